# %% [markdown]
# # 09 The Transformer block
#
# Attention lets tokens read each other. It is not enough: a stack of nothing but attention can only average, and a deep stack of
# anything is hard to train. This unit adds the three parts that turn attention into a block that can be stacked: a feed-forward
# network, residual connections, and layer normalisation.
#
# **After this unit you can**
#
# - write layer normalisation, equal to torch's (09-a);
# - assemble the encoder block and count its parameters (09-b);
# - say and show why residuals and norms help training (09-c);
# - show that attention layers alone are one linear map of the values (09-d).
#
# **You need** units 04 to 06: attention, its scale, its heads; and what a gradient is. **Time**: 50 minutes to read; all cells
# together run in a few seconds.

# %%
import torch
import torch.nn.functional as F
from torch import nn

from course_lib import plots
from course_lib.blocks import EncoderBlock, FeedForward, LayerNorm, layer_norm
from course_lib.device import generator

torch.set_printoptions(precision=4, sci_mode=False)
torch.set_num_threads(1)
draw = generator(0)

# %% [markdown]
# ## Stacked attention only averages again
#
# With its weights held fixed, an attention layer is $A X W$: it mixes tokens from the left and features from the right. Two such
# layers are $A_2 (A_1 X W_1) W_2$.
#
# **Predict**: can one layer, with other matrices, do what these two do?

# %%
x = torch.randn(5, 4, generator=draw)
a_1, a_2 = (torch.softmax(torch.randn(5, 5, generator=draw), dim=-1) for _ in range(2))
w_1, w_2 = torch.randn(4, 6, generator=draw), torch.randn(6, 3, generator=draw)
two_layers = a_2 @ (a_1 @ x @ w_1) @ w_2
one_layer = (a_2 @ a_1) @ x @ (w_1 @ w_2)
assert torch.allclose(two_layers, one_layer, atol=1e-5)

# %% [markdown]
# It can. Two averages after each other are one average: the rows of $A_2 A_1$ still sum to 1. (The weights themselves depend on the
# input through a softmax, so a whole stack is not linear; but its *values* are only ever averaged.)

# %%
assert torch.allclose((a_2 @ a_1).sum(-1), torch.ones(5))

# %% [markdown]
# ## The feed-forward network thinks about one token at a time
#
# So between two attentions each token goes through a small network of its own, the same for all tokens:
#
# $$\text{FFN}(x) = W_2\, \text{ReLU}(W_1 x + b_1) + b_2$$
#
# **Predict**: if you change token 2, which outputs of the feed-forward network change?

# %%
feed = FeedForward(4, 16)
changed = x.clone()
changed[2] += 1
moved = (feed(changed) != feed(x)).any(-1)
assert moved.tolist() == [False, False, True, False, False]

# %% [markdown]
# **What is wrong here?** Somebody leaves the ReLU out, "since the matrices are what is learned".

# %%
without = feed.w_2(feed.w_1(x))
one_matrix = x @ (feed.w_2.weight @ feed.w_1.weight).T + feed.w_2(feed.w_1.bias)
assert torch.allclose(without, one_matrix, atol=1e-5)  # two matrices, and one would have done
assert not torch.allclose(feed(x), without, atol=1e-3)  # with the ReLU it is something else

# %% [markdown]
# ## A residual connection keeps the road open
#
# Instead of $f(x)$, a layer returns $x + f(x)$. The derivative of the sum is $1 + f'(x)$: whatever $f$ does to the gradient, the 1
# lets it through.
#
# Here is a stack of 24 blocks, once with nothing but the sublayers, once with residual connections. `measure` returns how large the
# gradient is at the input of each block, counted from the top, compared with the top.


# %%
def apply(block, x, kind):
    if kind in ("pre-norm", "post-norm"):
        return block(x)
    if kind == "sublayers only":
        return block.feed_forward(block.attention(x))
    x = x + block.attention(x)
    return x + block.feed_forward(x)


# %%
def measure(kind, seed, depth=24, width=32):
    torch.manual_seed(seed)
    stack = [EncoderBlock(width, 4, 4 * width, pre_norm=kind != "post-norm") for _ in range(depth)]
    states = [torch.randn(1, 10, width, requires_grad=True)]
    for block in stack:
        states.append(apply(block, states[-1], kind))
        states[-1].retain_grad()
    top = F.layer_norm(states[-1], (width,)) if kind == "pre-norm" else states[-1]
    top.backward(torch.randn(top.shape))
    return [float(s.grad.norm() / states[-1].grad.norm()) for s in reversed(states)]


# %% [markdown]
# **Predict**: after 24 blocks, which share of the gradient is left at the bottom, without and with residual connections?

# %%
for seed in range(3):
    bare, residual = measure("sublayers only", seed), measure("residual", seed)
    assert bare[6] < 1e-5 and bare[24] < 1e-20  # gone long before the bottom
    assert residual[24] > 1  # it arrives, and has even grown
print(f"bare: {bare[24]:.1e}, with residual connections: {residual[24]:.1f}")

# %% [markdown]
# ## Layer normalisation gives each token mean 0 and variance 1
#
# With residual connections the numbers grow from block to block. Layer normalisation brings each token back to one size:
#
# $$\text{LN}(x) = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} \cdot g + b, \qquad \mu = \frac1D \sum_d x_d, \quad
# \sigma^2 = \frac1D \sum_d (x_d - \mu)^2$$
#
# Mean and variance are those of *one token's* $D$ numbers; the gain $g$ and the bias $b$ are learned.
#
# **Predict** the mean and the variance of the row $[1, 3, 5, 7]$, and the row after normalisation.

# %%
row = torch.tensor([[1.0, 3.0, 5.0, 7.0]])
normal = layer_norm(row, torch.ones(4), torch.zeros(4))
assert row.mean() == 4 and row.var(unbiased=False) == 5
assert torch.allclose(normal, torch.tensor([[-3.0, -1.0, 1.0, 3.0]]) / 5**0.5, atol=1e-5)
normal

# %%
sentence = torch.randn(2, 5, 8, generator=draw) * 7 + 3
ours, torchs = layer_norm(sentence, torch.ones(8), torch.zeros(8)), nn.LayerNorm(8)(sentence)
assert torch.allclose(ours, torchs, atol=1e-5)
assert torch.allclose(LayerNorm(8)(sentence), torchs, atol=1e-5)

# %% [markdown]
# **What is wrong here?** One set of slides forgets the $\frac1D$ in the mean and divides by $\sqrt{\sigma} + \varepsilon$; another says
# that the outputs "sum up to 1". Check each on a row.

# %%
slide = (row - row.sum()) / (row.var(unbiased=False).sqrt().sqrt() + 1e-5)
assert abs(float(slide.mean())) > 1  # without 1/D the row is not centred
assert abs(float(slide.var(unbiased=False)) - 1) > 0.5  # √σ is not what makes the variance 1
assert abs(float(normal.sum())) < 1e-5  # the outputs sum to 0, not to 1

# %% [markdown]
# ## Pre-norm leaves the road free, post-norm stands on it
#
# Where does the norm go? In 2017 it came *after* the sum, $\text{norm}(x + f(x))$: **post-norm**. GPT-2 moved it *before* the sublayer,
# $x + f(\text{norm}(x))$: **pre-norm**. In pre-norm the road for $x$ is never touched; in post-norm every gradient passes through
# every norm.
#
# **Predict**: at the bottom of 24 blocks, which of the two has more of the gradient left?

# %%
for seed in range(3):
    post, pre = measure("post-norm", seed), measure("pre-norm", seed)
    assert pre[24] > post[24] and 0.5 < pre[24] < 10  # pre-norm arrives with about its size
    assert post[24] < 1  # post-norm has lost some, though far less than without residual connections

# %%
kinds = ("sublayers only", "residual", "post-norm", "pre-norm")
curves = {kind: [max(value, 1e-12) for value in measure(kind, 0)] for kind in kinds}
plots.curves(
    curves,
    title="Gradient on its way down 24 blocks",
    xlabel="blocks passed, from the top",
    ylabel="gradient, relative to the top",
    alt="Without residual connections the gradient vanishes within ten blocks; with them it stays between 0.3 and 10.",
    log=True,
)

# %% [markdown]
# Do these tricks add power, or do they only help training? Residual connections add nothing that a network without them could not
# compute. Layer normalisation is another matter: it is not linear, so it can do something that matrices alone cannot.

# %%
doubled, summed = layer_norm(2 * row, torch.ones(4), torch.zeros(4)), 2 * normal
assert torch.allclose(doubled, normal, atol=1e-4)  # twice the input, the same output …
assert not torch.allclose(doubled, summed, atol=0.1)  # … which no linear map would give

# %% [markdown]
# ## The block can be counted
#
# An encoder block is attention and feed-forward, each with its norm and its way around. Attention has four $D \times D$ matrices with
# biases, the feed-forward network two of $D \times F$, each norm a gain and a bias.
#
# **Predict** the number of parameters for $D = 512$, $F = 2048$. Does it depend on the number of heads?

# %%
counts = {heads: sum(p.numel() for p in EncoderBlock(512, heads, 2048).parameters()) for heads in (1, 8)}
attention, feeding, norms = 4 * (512 * 512 + 512), 2 * 512 * 2048 + 2048 + 512, 2 * 2 * 512
assert counts[1] == counts[8] == attention + feeding + norms == 3_152_384

# %% [markdown]
# And with the same weights it is torch's own block, to the last digits.

# %%
ours = EncoderBlock(8, 2, 32, pre_norm=False)
theirs = nn.TransformerEncoderLayer(8, 2, 32, dropout=0.0, batch_first=True)
theirs.self_attn.in_proj_weight.data.copy_(ours.attention.w_qkv.weight)
theirs.self_attn.in_proj_bias.data.copy_(ours.attention.w_qkv.bias)
theirs.self_attn.out_proj.load_state_dict(ours.attention.w_o.state_dict())
theirs.linear1.load_state_dict(ours.feed_forward.w_1.state_dict())
theirs.linear2.load_state_dict(ours.feed_forward.w_2.state_dict())
assert torch.allclose(ours(sentence), theirs(sentence), atol=1e-5)

# %% [markdown]
# ## Barriers and solutions
#
# | barrier | solution |
# |---|---|
# | self-attention has nothing to learn (03) | queries, keys and values (04) |
# | scores grow with the width (04) | divide by $\sqrt{d_k}$ (05) |
# | one head is one average (05) | several heads (06) |
# | must not see the future | masks (07) |
# | no notion of order | positions (08) |
# | only weighted averages | the feed-forward network (09) |
# | deep stacks do not train | residual connections and norms (09) |
#
# **Three takeaways**
#
# 1. Attention moves information between tokens, the feed-forward network works on it within each token.
# 2. $x + f(x)$ lets the gradient pass: 24 bare blocks lose all of it, 24 residual ones do not.
# 3. Layer normalisation gives each token mean 0 and variance 1; before the sublayer (pre-norm) it leaves the road free.
#
# **To think about**
#
# - What would happen if the norm ran over the tokens of a sentence instead of over the features of a token, while decoding?
# - Why does the feed-forward network have most of the parameters, although attention has all of the fame?
# - Li et al. (2018) drew the loss around a trained network, with and without residual connections. What would you expect to see?
#
# **To read**: Ba et al. 2016, *Layer Normalization*; He et al. 2016, *Deep Residual Learning*; Xiong et al. 2020, *On Layer
# Normalization in the Transformer Architecture*; Li et al. 2018, *Visualizing the Loss Landscape of Neural Nets*.
#
# **On**: try it yourself in `exercises/09_transformer_block.ipynb`. Then unit 10 puts everything together: a translator.
