# %% [markdown]
# # 09 The Transformer block
#
# Attention lets tokens read each other. It is not enough: a stack of nothing but attention can only average, and a deep stack of
# anything is hard to train. This unit adds the three parts that turn attention into a block that can be stacked: a feed-forward
# network, residual connections, and layer normalisation. And it asks of each part: does it let the network *compute* more, or
# does it let the network *learn*?
#
# **After this unit you can**
#
# - write layer normalisation, equal to torch's (09-a);
# - assemble the encoder block and count its parameters (09-b);
# - say and show why residuals and norms help training (09-c);
# - show that attention layers alone are one linear map of the values (09-d).
#
# **You need** units 04 to 06: attention, its scale, its heads; and what a gradient is. **Time**: 70 minutes to read and play; all
# cells together run in about 10 seconds.

# %%
import math

import torch
import torch.nn.functional as F
from torch import nn

from course_lib import plots, widgets
from course_lib.blocks import EncoderBlock, FeedForward, LayerNorm, layer_norm
from course_lib.by_hand import WORKED_EXAMPLE
from course_lib.device import generator

torch.set_printoptions(precision=4, sci_mode=False)
torch.set_num_threads(1)
draw = generator(0)

# %% [markdown]
# ## Stacked attention only averages again
#
# Once its weights are computed, an attention layer is $A X W$: it mixes tokens from the left and features from the right. Two such
# layers are $A_2 (A_1 X W_1) W_2$. Here is the worked example of unit 04, with its own weights as $A_1$ and other ones as $A_2$.
#
# **Predict**: can one layer, with other matrices, do what these two do?

# %%
x, w_q, w_k, w_v = (torch.tensor(part) for part in WORKED_EXAMPLE)
a_1 = torch.softmax(x @ w_q @ (x @ w_k).T, dim=-1)
a_2 = torch.softmax(torch.randn(3, 3, generator=draw).double(), dim=-1)
w_2 = torch.randn(3, 2, generator=draw).double()
two_layers = a_2 @ (a_1 @ x @ w_v) @ w_2
one_layer = (a_2 @ a_1) @ x @ (w_v @ w_2)
assert torch.allclose(two_layers, one_layer)

# %% [markdown]
# It can. With the weights held fixed, two attention layers are **one linear map of the values**, and two averages after each other
# are one average: the rows of $A_2 A_1$ still sum to 1. (The weights depend on the input through a softmax, so the whole stack is not
# linear. But what it does to the *values* is to average them, and to average the averages.)

# %%
assert torch.allclose((a_2 @ a_1).sum(-1), torch.ones(3).double())

# %% [markdown]
# **Predict**: what becomes of three tokens that are averaged again and again? Here is the same $A_1$, applied up to 30 times, and how
# far the tokens still are from each other.

# %%
apart = [float((torch.matrix_power(a_1, n) @ x).std(dim=0).max()) for n in range(31)]
assert apart[0] > 0.5 and apart[30] < 1e-6  # in the end all tokens are one
print({n: f"{apart[n]:.1e}" for n in (0, 1, 5, 10, 30)})

# %% [markdown]
# An average never leaves the range of what it averages, and many averages leave nothing to tell tokens apart.
#
# ## The feed-forward network thinks about one token at a time
#
# So after each attention every token goes through a small network of its own, the same for all tokens:
#
# $$\text{FFN}(x) = \text{ReLU}(x W_1 + b_1)\, W_2 + b_2$$
#
# (In columns, $W_2\, \text{ReLU}(W_1 x + b_1) + b_2$: unit 04 has the table.) $W_1$ widens the token from $D$ to $F$ numbers, ReLU sets
# the negative ones to 0, $W_2$ goes back to $D$. What can it do that an average cannot? For example, take absolute values:

# %%
signs = torch.tensor([[-3.0], [2.0], [-1.0]])  # three tokens of width 1
split, join = torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0], [1.0]])
assert (torch.relu(signs @ split) @ join).flatten().tolist() == [3, 2, 1]
assert signs.max() < 3  # no average of -3, 2 and -1 is 3

# %% [markdown]
# **Predict**: if you change token 2 (counted from 0), which outputs of the feed-forward network change?

# %%
tokens = torch.randn(5, 4, generator=draw)
feed = FeedForward(4, 16)
changed = tokens.clone()
changed[2] += 1
moved = (feed(changed) != feed(tokens)).any(-1)
assert moved.tolist() == [False, False, True, False, False]

# %% [markdown]
# **What is wrong here?** Somebody leaves the ReLU out, "since the matrices are what is learned".

# %%
without = feed.w_2(feed.w_1(tokens))
one_matrix = tokens @ (feed.w_2.weight @ feed.w_1.weight).T + feed.w_2(feed.w_1.bias)
assert torch.allclose(without, one_matrix, atol=1e-5)  # two matrices, and one would have done
assert not torch.allclose(feed(tokens), without, atol=1e-3)  # with the ReLU it is something else

# %% [markdown]
# ## A residual connection keeps the road open
#
# Instead of $f(x)$, a layer returns $x + f(x)$: it only has to learn what to *change*. The derivative of the sum is $1 + f'(x)$:
# whatever $f$ does to the gradient, the 1 lets it through: $x$ has a way around $f$.
#
# Let us measure that on stacks of 24 real blocks, of four kinds. A block has two **sublayers**, attention and then the feed-forward
# network. `apply` is one block, bare or with a way around each sublayer. (Two kinds have norms, which come further down.)


# %%
def apply(block, x, kind):
    if kind in ("pre-norm", "post-norm"):
        return block(x)
    if kind == "bare":
        return block.feed_forward(block.attention(x))
    x = x + block.attention(x)
    return x + block.feed_forward(x)


# %% [markdown]
# `climb` sends ten random tokens up through 24 new blocks and keeps every state, the tokens after each block. `measure` sends a
# random gradient down from the top, and returns its size at each state, compared with the top. (`retain_grad` asks torch to keep
# the gradient of a state in the middle, too; `double` asks for numbers precise enough to show how small some of them become.)


# %%
def climb(kind, seed, depth=24, width=32):
    torch.manual_seed(seed)
    states = [torch.randn(1, 10, width, dtype=torch.double, requires_grad=True)]
    for _ in range(depth):
        block = EncoderBlock(width, 4, 4 * width, pre_norm=kind != "post-norm").double()
        states.append(apply(block, states[-1], kind))
        states[-1].retain_grad()
    return states


def measure(kind, seed):
    states = climb(kind, seed)
    states[-1].backward(torch.randn_like(states[-1]))
    return [float(s.grad.norm() / states[-1].grad.norm()) for s in reversed(states)]


# %% [markdown]
# **Predict**: which share of the gradient is left after 24 blocks, without and with residual connections?

# %%
for seed in range(3):
    bare, residual = measure("bare", seed), measure("residual", seed)
    assert bare[6] < 1e-5 and bare[24] < 1e-20  # gone long before the bottom
    assert residual[24] > 1  # it arrives, and has even grown
print(f"bare: {bare[24]:.1e}, with residual connections: {residual[24]:.1f}")

# %% [markdown]
# That is what the gradient sees on its way down. On its way up, each block *adds* to the state, so with residual connections the
# numbers themselves grow from block to block. The next part looks after that.

# %%
for seed in range(3):
    up = [float(s.detach().norm()) for s in climb("residual", seed)]
    assert up[24] > 1.5 * up[0]
print(f"size of the state after 0, 12 and 24 blocks: {up[0]:.0f}, {up[12]:.0f}, {up[24]:.0f}")

# %% [markdown]
# ## Layer normalisation gives each token mean 0 and variance 1
#
# Layer normalisation brings each token back to one size:
#
# $$\text{LN}(x) = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} \cdot g + b, \qquad \mu = \frac1D \sum_d x_d, \quad
# \sigma^2 = \frac1D \sum_d (x_d - \mu)^2$$
#
# Mean and variance are those of *one token's* $D$ numbers; the gain $g$ and the bias $b$, $D$ numbers each, are learned. The small
# $\varepsilon$ is there so that nobody divides by 0.
#
# **Predict** the mean and the variance of the row $[1, 3, 5, 7]$, and the row after normalisation (with $g = 1$ and $b = 0$).

# %%
row = torch.tensor([[1.0, 3.0, 5.0, 7.0]])
one, zero = torch.ones(4), torch.zeros(4)
normal = layer_norm(row, one, zero)
assert row.mean() == 4 and row.var(unbiased=False) == 5
assert torch.allclose(normal, torch.tensor([[-3.0, -1.0, 1.0, 3.0]]) / 5**0.5, atol=1e-5)
normal

# %% [markdown]
# (`unbiased=False` divides by $D$. torch's own default divides by $D - 1$, a classic trap.)
#
# **Play**: move the four numbers. **Predict** first: what happens to LN(x) if you add 1 to all four? If you double all four? What do
# gain and bias do to mean and variance? And what comes out if all four are equal?

# %%
widgets.NormRow([1, 3, 5, 7])

# %%
assert torch.allclose(layer_norm(row + 1, one, zero), normal)  # shifted: the same
assert torch.allclose(layer_norm(2 * row, one, zero), normal, atol=1e-5)  # doubled: the same
moved_row = layer_norm(row, 3 * one, zero - 2)
assert math.isclose(moved_row.mean(), -2, abs_tol=1e-4)  # the bias is the new mean …
assert math.isclose(moved_row.var(unbiased=False), 9, abs_tol=1e-3)  # … and the gain squared the new variance
assert (layer_norm(5 * torch.ones(1, 4), one, zero) == 0).all()  # no NaN, thanks to ε

# %% [markdown]
# On a whole batch, our function, the library's module and torch's own are the same. And each token is normalised by itself: its
# neighbours and the rest of the batch do not matter, which is what a decoder that works token by token needs.

# %%
sentence = torch.randn(2, 5, 8, generator=draw) * 7 + 3
ours, torchs = layer_norm(sentence, torch.ones(8), torch.zeros(8)), nn.LayerNorm(8)(sentence)
assert torch.allclose(ours, torchs, atol=1e-5)
assert torch.allclose(LayerNorm(8)(sentence), torchs, atol=1e-5)
assert torch.allclose(nn.LayerNorm(8)(sentence[1, 3]), torchs[1, 3], atol=1e-5)  # one token alone

# %% [markdown]
# **What is wrong here?** A well-known set of slides writes $\mu = \sum_d x_d$ "the mean".

# %%
slide_mean = row.sum()  # 16: the 1/D is missing
slide_sigma = ((row - slide_mean) ** 2).mean().sqrt()
assert slide_mean != row.mean()
assert ((row - slide_mean) / slide_sigma < 0).all()  # every number lies below such a "mean": nothing is centred

# %% [markdown]
# **What is wrong here?** The same slides call $\sigma$ the standard deviation, and divide by $\sqrt{\sigma} + \varepsilon$.

# %%
sigma = row.var(unbiased=False).sqrt()
slide = (row - row.mean()) / (sigma.sqrt() + 1e-5)
assert abs(float(slide.var(unbiased=False)) - 1) > 1  # one root too many: the variance is σ, here 2.24
assert torch.isclose(slide.var(unbiased=False), sigma, atol=1e-3)

# %% [markdown]
# **What is wrong here?** The same slides say "normalizing to unit mean"; another set says that the outputs "sum up to 1".

# %%
assert abs(float(normal.mean())) < 1e-6  # the mean is 0, and not 1 …
assert abs(float(normal.sum())) < 1e-6  # … so the outputs sum to 0; it is softmax whose outputs sum to 1
assert torch.isclose(normal.var(unbiased=False), torch.tensor(1.0), atol=1e-4)  # what is 1 is the variance

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
    assert 1 < pre[24] < 10 and pre[24] > 1.5 * post[24]  # pre-norm arrives with its size, and a little more
    assert 1e-2 < post[24] < 1  # post-norm has lost some, though far less than without residual connections
print(f"pre-norm: {pre[24]:.2f}, post-norm: {post[24]:.2f}")

# %%
kinds = ("bare", "residual", "post-norm", "pre-norm")
curves = {kind: (range(25), [max(value, 1e-12) for value in measure(kind, 0)]) for kind in kinds}
plots.curves(
    curves,
    title="Gradient on its way down 24 blocks",
    xlabel="blocks passed, from the top",
    ylabel="gradient, relative to the top",
    alt="Without residual connections the gradient vanishes within ten blocks; with them it stays between 0.1 and 10.",
    log=True,
)

# %% [markdown]
# See the bare stack: its curve leaves the picture (which is cut off at $10^{-12}$) within half the way. The other three stay near 1.
#
# The free road has a price. Nothing on it is ever normalised, so in pre-norm the state still grows, and the last block hands on
# numbers of a size that nobody chose. That is why a pre-norm stack ends with **one more norm**. A post-norm stack needs none.

# %%
for seed in range(3):
    up_pre, up_post = ([float(s.detach().norm()) for s in climb(kind, seed)] for kind in ("pre-norm", "post-norm"))
    assert up_pre[24] > 1.3 * up_pre[0]
    assert math.isclose(up_post[24], math.sqrt(10 * 32), rel_tol=1e-3)  # ten tokens of 32 numbers with variance 1

# %% [markdown]
# **Play**: a small stack of feed-forward blocks, computed while you move. Each state has a size (dashed) and a gradient.
#
# 1. Pull the depth. After how many blocks has the bare stack lost all but a millionth of its gradient? Then switch the residual on.
# 2. Residual on, no norm: make the weights larger. What happens? Now the same with pre-norm, and with post-norm.
# 3. No residual, no norm: can you find a size of the weights at which the gradient neither fades nor explodes? At 32 blocks?
# 4. No residual, but a norm: a good part of the gradient arrives. Is all well, then? Look at the second table, the likeness of the
#    tokens at the top (their mean cosine); at 1 they all point the same way, and the stack has forgotten which token it was given.

# %%
widgets.DepthGradient(depth=24)

# %% [markdown]
# What you found, as numbers. `bottom` is the first table as powers of ten ($-6$ is a millionth), its rows without and with residual
# connections, its columns no norm, pre-norm, post-norm.

# %%
normal_size, large = (widgets.DepthGradient(24, gain=gain).numbers() for gain in (1.0, 3.0))
assert normal_size["bottom"][0, 0] < -14 and large["bottom"][0, 0] > 6  # bare: fades, or explodes
assert large["bottom"][1, 0] > 6  # residual, no norm: explodes
assert abs(large["bottom"][1, 1]) < 2 and abs(large["bottom"][1, 2]) < 2  # pre- and post-norm: the size hardly matters
forgotten, kept = normal_size["alike"]  # without, with residual connections
assert forgotten.min() > 0.8 and kept.max() < 0.5

# %% [markdown]
# So the two parts do different things. The **residual connection** keeps a road open, for the gradient and for the token itself. The
# **norm** frees the stack from the size of its weights.
#
# ## Residuals and norms decide whether a deep stack learns
#
# A gradient of the right size is a promise, not yet a result. So let 24 blocks learn something small: six random digits come in, and
# each of the six places must name the largest of them. A stack through which no digit gets can still learn how often each digit is
# the largest (9 is, in nearly half of all cases). That gives this loss:

# %%
shares = [((n + 1) ** 6 - n**6) / 10**6 for n in range(10)]  # how often n is the largest of six digits
by_frequency = -sum(share * math.log(share) for share in shares)
assert math.isclose(sum(shares), 1) and 1.35 < by_frequency < 1.37
print(f"9 is the largest in {shares[9]:.0%} of all cases; loss of who knows the shares only: {by_frequency:.2f}")


# %%
def new_model(kind, seed, size=1.0, depth=24, width=16):
    torch.manual_seed(seed)
    blocks = nn.ModuleList(EncoderBlock(width, 2, 2 * width, pre_norm=kind != "post-norm") for _ in range(depth))
    for weight in blocks.parameters():
        weight.data *= size if weight.dim() == 2 else 1.0  # the matrices, not biases and gains
    return nn.ModuleList([nn.Embedding(10, width), blocks, nn.Linear(width, 10)])


def loss_of(model, digits, kind):
    embed, blocks, read = model
    x = embed(digits)
    for block in blocks:
        x = apply(block, x, kind)
    x = F.layer_norm(x, x.shape[-1:]) if kind == "pre-norm" else x  # its last norm
    largest = digits.max(dim=1, keepdim=True).values.expand_as(digits)
    return F.cross_entropy(read(x).flatten(0, 1), largest.flatten())


# %%
def fit(kind, seed, size=1.0, steps=40):
    model = new_model(kind, seed, size)
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = loss_of(model, torch.randint(10, (32, 6)), kind)
        adam.zero_grad()
        loss.backward()
        adam.step()
    with torch.no_grad():
        return model, float(loss_of(model, torch.randint(10, (500, 6)), kind))


# %% [markdown]
# **Predict**: after 40 steps, which loss has the bare stack, and which has pre-norm? (`fit` returns the model, and its loss on 500 new
# rows of digits.)

# %%
seed = 0  # any other will do: try one
trained = {kind: fit(kind, seed) for kind in ("bare", "pre-norm")}
print({kind: round(loss, 2) for kind, (_, loss) in trained.items()})
assert trained["bare"][1] > by_frequency - 0.1  # no better than counting: the digits never arrive at the top
assert trained["pre-norm"][1] < 1.0  # it reads them

# %% [markdown]
# And with residual connections alone, without norms?

# %%
print(f"residual: {fit('residual', seed)[1]:.2f}")

# %% [markdown]
# They can be enough. So what are norms for? Start with all matrices twice as large, as somebody might who draws them another way.
#
# **Predict**: which of residual only, post-norm and pre-norm still learn?

# %%
losses = {kind: fit(kind, seed, size=2.0)[1] for kind in ("residual", "post-norm")}
print({kind: round(loss, 2) for kind, loss in losses.items()})
assert math.isnan(losses["residual"])  # numbers beyond what a float can hold
assert losses["post-norm"] > by_frequency - 0.2  # stands still

# %%
losses["pre-norm"] = fit("pre-norm", seed, size=2.0)[1]
assert losses["pre-norm"] < 1.0  # learns as before
print(f"pre-norm: {losses['pre-norm']:.2f}")

# %% [markdown]
# Pre-norm alone does not care. Post-norm can be trained as well, and was, with a learning rate that starts small and warms up: you will
# see how in unit 10.
#
# ## Without residuals the loss is a plain or a gorge
#
# Li et al. (2018) drew the loss *around* a trained network: take a random direction in the space of all weights, walk along it, and
# plot the loss. (Each row of a matrix gets a step as long as the row itself, or large weights would look more stable than small
# ones.) For a deep network without residual connections they found a rugged landscape, with them a smooth bowl. Draw yours.


# %%
@torch.no_grad()
def walk(model, kind, seed):
    torch.manual_seed(seed)
    digits, weights = torch.randint(10, (300, 6)), list(model.parameters())
    home, steps = [w.clone() for w in weights], [torch.randn_like(w) for w in weights]
    steps = [s * w.norm(dim=-1, keepdim=True) / s.norm(dim=-1, keepdim=True) for s, w in zip(steps, home, strict=True)]
    losses = []
    for t in torch.linspace(-0.6, 0.6, 13):
        for w, start, step in zip(weights, home, steps, strict=True):
            w.copy_(start + t * step)
        losses.append(float(loss_of(model, digits, kind)))
    return losses


# %% [markdown]
# **Predict** the shape of the two curves: bare, and pre-norm. And that of a bare stack whose matrices start 1.85 times as large, near
# the size at which its gradient neither fades nor explodes?

# %%
plain, bowl = (walk(trained[kind][0], kind, seed) for kind in ("bare", "pre-norm"))
assert min(plain) > 1.1 and max(plain) - min(plain) < 1  # nothing but a plain, as high as the shares alone
assert min(bowl) < 1.0 and min(bowl[0], bowl[-1]) > min(bowl) + 0.1 and max(bowl) < 5  # a floor, and gentle walls

# %%
gorge = walk(fit("bare", seed, size=1.85)[0], "bare", seed)
assert min(gorge[0], gorge[-1]) > 1e3 * min(gorge)

# %%
places, cut_off = torch.linspace(-0.6, 0.6, 13).tolist(), [min(loss, 4.0) for loss in gorge]
print(f"the gorge: {min(gorge):.1f} at its floor, {gorge[0]:.0f} and {gorge[-1]:.0f} at its ends")
plots.curves(
    {"bare": (places, plain), "bare, weights × 1.85": (places, cut_off), "pre-norm": (places, bowl)},
    title="Loss on a walk through the weights",
    xlabel="step along a random direction (0: the trained network)",
    ylabel="loss, cut off at 4",
    alt="Bare: nearly flat. Bare with larger weights: a gorge whose walls leave the picture. Pre-norm: a bowl, lower than both.",
)

# %% [markdown]
# See three landscapes. The bare stack lives on a plain where no direction leads down; with larger weights it lives in a gorge whose
# walls, thousands of times as high as its floor, leave the picture: one step too long, and all is lost. Pre-norm has a bowl, in which
# a gradient tells you something. (One random direction and a small network: a look, and no proof. Li et al. have the large pictures.)
#
# ## Residuals add no power, a norm does
#
# Does a network with residual connections *compute* more than one without? Some slides say: no, such tricks only help training; others
# count layer norm among the nonlinearities. Both can be tested.
#
# **Predict**: can a feed-forward network *without* a residual connection return $x + \text{FFN}(x)$? (Think of
# $\text{ReLU}(x) - \text{ReLU}(-x)$.)

# %%
wide, eye = FeedForward(4, 16 + 2 * 4), torch.eye(4)
wide.w_1.weight.data = torch.cat([feed.w_1.weight, eye, -eye])
wide.w_1.bias.data = torch.cat([feed.w_1.bias, torch.zeros(8)])
wide.w_2.weight.data = torch.cat([feed.w_2.weight, eye, -eye], dim=1)
wide.w_2.bias.data = feed.w_2.bias.data
assert torch.allclose(wide(tokens), tokens + feed(tokens), atol=1e-5)

# %% [markdown]
# It can, with $2D$ hidden units more. So a residual connection adds no power; it gives for free what a bare network would have to
# find among all its weights, and keep.
#
# And a norm? Take a task that no linear map can do: say 1 if two signs differ, 0 if they are equal (exclusive or). The best linear map
# with a bias says one half to everybody.

# %%
signs_2 = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
wanted = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
with_bias = torch.cat([signs_2, torch.ones(4, 1)], dim=1)
best = torch.linalg.lstsq(with_bias, wanted).solution
assert torch.allclose(with_bias @ best, torch.full((4, 1), 0.5), atol=1e-5)

# %% [markdown]
# Now a linear map, a layer norm, a linear map; no ReLU and no softmax anywhere. The sum of both signs makes the row large or leaves it
# small, the norm divides by that size, and the third number, which was 1, tells.

# %%
rows = signs_2 @ torch.tensor([[1.0, -1, 0, 0], [1, -1, 0, 0]]) + torch.tensor([0.0, 0, 1, -1])
third = layer_norm(rows, one, zero)[:, 2:3]
low, high = third.min(), third.max()
assert torch.allclose((third - low) / (high - low), wanted, atol=1e-5)  # exclusive or, exactly

# %% [markdown]
# So both slides have a point. A residual connection is a help for training and no more. A layer norm is a help for training *and* a
# nonlinearity; a block that has a ReLU already does not need it for that.
#
# ## The block can be counted
#
# An encoder block is attention and feed-forward, each with its norm and its way around. Attention has four $D \times D$ matrices with
# biases, the feed-forward network $D \times F$ and $F \times D$ with theirs, each norm a gain and a bias.
#
# **Predict** the number of parameters for $D = 512$, $F = 2048$. Does it depend on the number of heads? Which part has most?

# %%
counts = {heads: sum(p.numel() for p in EncoderBlock(512, heads, 2048).parameters()) for heads in (1, 8)}
attention, feeding, norms = 4 * (512 * 512 + 512), 2 * 512 * 2048 + 2048 + 512, 2 * 2 * 512
assert counts[1] == counts[8] == attention + feeding + norms == 3_152_384
assert 0.66 < feeding / counts[8] < 0.67 and norms / counts[8] < 0.001  # two thirds are feed-forward
print({"attention": attention, "feed-forward": feeding, "norms": norms, "six blocks": 6 * counts[8]})

# %% [markdown]
# **What is wrong here?** Two people want six blocks. One multiplies a list, the other keeps the blocks in a plain list.


# %%
class PlainList(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = [EncoderBlock(8, 2, 32) for _ in range(6)]


def count(module):
    return sum(p.numel() for p in module.parameters())


one_block = count(EncoderBlock(8, 2, 32))
assert count(nn.ModuleList([EncoderBlock(8, 2, 32)] * 6)) == one_block  # six times the same block: one set of weights
assert count(PlainList()) == 0  # torch does not look into a plain list: nothing would be trained
assert count(nn.ModuleList(EncoderBlock(8, 2, 32) for _ in range(6))) == 6 * one_block

# %% [markdown]
# And with the same weights our block is torch's own, to the last digits.

# %%
our_block = EncoderBlock(8, 2, 32, pre_norm=False)
theirs = nn.TransformerEncoderLayer(8, 2, 32, dropout=0.0, batch_first=True)
theirs.self_attn.in_proj_weight.data.copy_(our_block.attention.w_qkv.weight)
theirs.self_attn.in_proj_bias.data.copy_(our_block.attention.w_qkv.bias)
theirs.self_attn.out_proj.load_state_dict(our_block.attention.w_o.state_dict())
theirs.linear1.load_state_dict(our_block.feed_forward.w_1.state_dict())
theirs.linear2.load_state_dict(our_block.feed_forward.w_2.state_dict())
assert torch.allclose(our_block(sentence), theirs(sentence), atol=1e-5)

# %% [markdown]
# ## Barriers and solutions
#
# | barrier | solution |
# |---|---|
# | an RNN squeezes the sentence into one state (01) | attention reads all states (02) |
# | self-attention has nothing to learn (03) | queries, keys and values, three matrices (04) |
# | scores grow with the width, softmax saturates (05) | divide by $\sqrt{d_k}$, in heads by $\sqrt{D/H}$ (05, 06) |
# | one row of weights can look for one thing only (06) | $H$ heads, side by side (06) |
# | must not see the future (07) | masks (07) |
# | no notion of order (03) | positions (08) |
# | only weighted averages (03) | the feed-forward network (09) |
# | the gradient, and the token itself, get lost in a deep stack | residual connections (09) |
# | everything hangs on the size of the weights | layer normalisation (09) |
# | two sequences, and a whole model | *next: unit 10* |
#
# **Three takeaways**
#
# 1. Attention moves information between tokens, the feed-forward network works on it within each token; without the second, a stack
#    only averages.
# 2. $x + f(x)$ lets the gradient and the token pass: 24 bare blocks lose both, 24 residual ones do not. It adds no power.
# 3. Layer normalisation gives each token mean 0 and variance 1. Before the sublayer (pre-norm) it leaves the road free, and the stack
#    ends with one norm more.
#
# **To think about**
#
# - What would happen while decoding, word by word, if the norm ran over the tokens of a sentence instead of over the features of a token?
# - Why does the feed-forward network have most of the parameters, although attention has all of the fame?
# - In the figure, a norm without a residual connection kept the gradient's size. Why is that not enough to learn?
# - The network that computes exclusive or with a norm: what would become of it if somebody left $\varepsilon$ at 1 instead of $10^{-5}$?
#
# **To read**: Ba et al. 2016, *Layer Normalization*; He et al. 2016, *Deep Residual Learning*; Li et al. 2018, *Visualizing the Loss
# Landscape of Neural Nets*; Xiong et al. 2020, *On Layer Normalization in the Transformer Architecture*; Dong et al. 2021, *Attention Is
# Not All You Need*, on what becomes of tokens that are only averaged.
#
# **On**: try it yourself in `exercises/09_transformer_block.ipynb`. Then unit 10 puts everything together: a translator.
