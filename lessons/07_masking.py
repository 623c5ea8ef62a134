# %% [markdown]
# # 07 Masking
#
# Until now every token could look at every other token. A model that *writes* must not: the words it has still to say are not
# there yet. And in a batch, short sentences are filled up with padding, which nobody should read. Both are one small table of
# True and False.
#
# **After this unit you can**
#
# - build causal and padding masks with shapes that broadcast (07-a);
# - prove that nothing leaks from the future, in value and gradient (07-b);
# - handle rows that may attend to nothing (07-c).
#
# **You need** unit 04 (queries, keys, values) and unit 05 (scores are divided by $\sqrt{d_k}$, here always); from unit 06, what
# heads are. **Time**: 50 minutes to read and play; all cells together run in a few seconds.
#
# Notation, as everywhere: $T$ queries are rows, $S$ keys are columns. A mask is boolean, and **True = may attend**.

# %%
import time

import numpy as np

from course_lib import plots, widgets
from course_lib.by_hand import (
    WORKED_EXAMPLE,
    additive_mask,
    attention,
    attention_scores,
    attention_weights,
    causal_mask,
    masked_softmax,
    padding_mask,
    project,
    softmax,
)

np.set_printoptions(precision=4, suppress=True)

# %% [markdown]
# ## A decoder must not see what it is about to say
#
# The decoder of unit 02 wrote *fünf und vierzig* word by word. In training we know the whole sentence, so we can give it all
# words at once, and ask at every place for the *next* one:
#
# | it reads | \<bos\> | fünf | und | vierzig |
# |---|---|---|---|---|
# | it should say | fünf | und | vierzig | \<eos\> |
#
# Four lessons in one pass. But look: what *fünf* should say stands one place to its right, in the very same input. A model that
# may look there has nothing to learn. Here is such a cheat, made by hand: 200 random tokens, and scores that are high for the
# next place and 0 elsewhere.
#
# **Predict**: how often is its guess of the next token right? And how often, if the future is hidden? (`causal_mask` and
# `masked_softmax` hide it. How, is what this unit is about.)


# %%
def share_right(seed, mask):
    tokens = np.random.default_rng(seed).integers(10, size=200)
    look_ahead = 20.0 * np.eye(200, k=1)  # row i, column i + 1
    read = masked_softmax(look_ahead, mask) @ np.eye(10)[tokens]  # which of ten words it reads, and how much
    return np.mean(read.argmax(axis=1)[:-1] == tokens[1:])


for seed in range(3):
    cheating, honest = share_right(seed, np.ones((200, 200), bool)), share_right(seed, causal_mask(200))
    assert cheating == 1.0 and honest < 0.3
    print(f"sees the future: {cheating:.0%}   does not: {honest:.0%}")

# %% [markdown]
# 100 % in training, and of no use afterwards: when the model writes by itself, the place to its right is empty. (One in ten is
# chance, with ten words.) So the future has to be hidden while it trains.
#
# ## Minus infinity before the softmax makes a weight of exactly zero
#
# The worked example of unit 04 comes back: let its three tokens be *fünf*, *und*, *vierzig*. Scores are scaled, as unit 05 found.

# %%
x, w_q, w_k, w_v = WORKED_EXAMPLE
words = ["fünf", "und", "vierzig"]
q, k, v = project(x, w_q, w_k, w_v)
scores = attention_scores(q, k)  # q kᵀ / √d_k
assert np.allclose(scores * np.sqrt(3), [[2, 4, 4], [4, 16, 12], [4, 12, 10]])
scores

# %% [markdown]
# *fünf*, the first query, may see itself only. Its weights come from $\exp$ of its scores, so hide a key by giving it the one
# score whose exponential is nothing:
#
# $$\exp(-\infty) = 0$$
#
# **Predict** the first row of the weights after the next cell. And its output, the weighted sum of the values $[1, 2, 3]$,
# $[2, 8, 0]$, $[2, 6, 3]$?

# %%
hidden = scores.copy()
hidden[0, 1] = hidden[0, 2] = hidden[1, 2] = -np.inf
weights = softmax(hidden)
assert weights[0].tolist() == [1, 0, 0]  # exactly
assert (weights @ v)[0].tolist() == [1, 2, 3]  # its own value, and nothing else
weights

# %% [markdown]
# The second row shares its one unit of attention among two keys now, and the third sees everything, as before. The same can be
# written as a sum with a matrix $M$ of $0$ and $-\infty$, which is how many papers put it:
#
# $$A = \text{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}} + M\right), \qquad
# M = \begin{bmatrix} 0 & -\infty & -\infty \\ 0 & 0 & -\infty \\ 0 & 0 & 0 \end{bmatrix}$$
#
# **Predict**: does it matter whether one masks before or after dividing by $\sqrt{d_k}$? And is $-10^9$ low enough for $-\infty$?

# %%
mask = np.array([[True, False, False], [True, True, False], [True, True, True]])
assert np.array_equal(softmax(scores + additive_mask(mask)), weights)
assert np.allclose(softmax((q @ k.T + additive_mask(mask)) / np.sqrt(3)), weights)  # -∞ / √3 is -∞
assert np.array_equal(softmax(np.where(mask, scores, -1e9)), weights)
assert np.exp(-1e9) == 0 and np.exp(np.float32(-1e9)) == 0  # exactly 0 too, in double and in single precision
assert float(np.finfo(np.float16).min) > -1e9  # but half precision ends at -65504: there -1e9 does not exist

# %% [markdown]
# Three ways to write the same thing. Now three that are not the same.
#
# **What is wrong here?** "Masked" sounds like zero, so somebody sets the hidden scores to 0. **Predict** the weights of *fünf*:
# its own score is $2/\sqrt 3 \approx 1.15$.

# %%
zeroed = softmax(np.where(mask, scores, 0.0))
assert zeroed[0, 1] > 0.15 and zeroed[0, 2] > 0.15  # exp(0) is 1, not 0
zeroed

# %% [markdown]
# **What is wrong here?** Some lecture notes say that masking "sets the softmax values to $-\infty$". The softmax's values are the
# *weights*. (NumPy warns you, and is right to.)

# %%
taken_at_its_word = np.where(mask, softmax(scores), -np.inf)
assert not np.isfinite((taken_at_its_word @ v)[0]).any()  # -∞ times a value is ±∞, or NaN
assert np.isfinite(softmax(np.where(mask, scores, -np.inf)) @ v).all()  # it is the scores that become -∞

# %% [markdown]
# **What is wrong here?** The weights of the future are set to 0, after the softmax. That looks right: nothing of the future is
# read. **Predict** the sum of each row.

# %%
too_late = softmax(scores) * mask
assert np.allclose(too_late.sum(axis=1), [0.1361, 0.9097, 1.0], atol=5e-5)  # fünf keeps a seventh of its attention
mended = too_late / too_late.sum(axis=1, keepdims=True)
assert np.allclose(mended, weights)  # dividing each row by its sum mends it
too_late.sum(axis=1)

# %% [markdown]
# The rest of the attention went to words that nobody may see, and is lost. Worse: *how much* is lost depends on those words. You
# will see below that this leaks. With the division at the end it is the same as masking before: no mistake, only a detour.
#
# ## A causal mask is a triangle, with its diagonal
#
# A query sees its own place and all places before: $m_{ij} = (j \le i)$. Positions of queries in a column, positions of keys in a
# row, and one comparison makes the table.
#
# **Predict** how many of the 16 entries are True for four tokens.

# %%
i, j = np.arange(4)[:, None], np.arange(4)[None, :]
past = j <= i
assert np.array_equal(past, causal_mask(4)) and np.array_equal(past, np.tri(4, dtype=bool))
assert past.sum() == 1 + 2 + 3 + 4
past.astype(int)

# %%
plots.weights(attention_weights(q, k, causal_mask(3)), words, title="Nobody reads the future", mask=causal_mask(3))

# %% [markdown]
# See the grey triangle: these weights are not small, they are absent. Each row sums to 1 over what is left.
#
# **What is wrong here?** A well-known slide gives the scores $q_i \cdot k_j$ where $j < i$, and $-\infty$ where $j \ge i$. **Predict**
# what the first query can see. (NumPy will warn you in the next cell. Read the warning.)

# %%
strict = np.arange(3)[None, :] < np.arange(3)[:, None]
with_nan = softmax(np.where(strict, scores, -np.inf))
assert not strict[0].any()  # the first row is empty
assert np.isnan(with_nan[0]).all()  # 0/0
assert with_nan[1].tolist() == [1, 0, 0]  # und does not see "und"
with_nan

# %% [markdown]
# With $j \ge i$ masked, a token does not see itself, and the first sees nothing. Its own word is no secret: *und* is given, and
# *vierzig* is to be said. What must be hidden is $j > i$.
#
# A model that writes keeps the keys and values of older tokens (unit 11). Then the $T$ queries are the newest of $S$ tokens, query
# $i$ stands at position $i + S - T$, and the triangle moves to the right. **Predict** the mask of the two newest of five tokens.

# %%
assert causal_mask(2, 5).astype(int).tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
assert np.array_equal(causal_mask(2, 5), causal_mask(5)[-2:])  # the last two rows of the square
assert causal_mask(1, 5).all()  # the newest query sees everything there is

# %% [markdown]
# ## Masks broadcast, and combine with “and”
#
# A batch holds sentences of different lengths in one array: *fünf und vierzig* and *sieben* (7), so the second gets padding.
#
# | | | | | |
# |---|---|---|---|---|
# | 45 | \<bos\> | fünf | und | vierzig |
# | 7 | \<bos\> | sieben | \<pad\> | \<pad\> |
#
# Nobody may read \<pad\>, whoever asks: a padding mask hides *columns*, the same for every query. So its shape is $(B, 1, S)$: one
# row for each sentence, an axis of length 1 for the queries. The causal mask is $(T, T)$, the same for every sentence. **Predict**
# the shape of both together, and the number of True entries in each sentence.

# %%
lengths = [4, 2]
words_only = padding_mask(lengths)
both = causal_mask(4) & words_only
assert words_only.shape == (2, 1, 4) and both.shape == (2, 4, 4)
assert both.sum(axis=(1, 2)).tolist() == [10, 1 + 2 + 2 + 2]
both[1].astype(int)

# %% [markdown]
# The rows of the padded *queries* stay as they are: what \<pad\> reads goes to an output that nobody looks at (the loss of unit 10
# leaves it out). Real tokens come out the same as without padding, and that is the claim to test. A vector for *sieben*, one for
# \<bos\>, and zeros for \<pad\>:

# %%
bos, sieben, pad = np.array([1.0, 0, 0, 0]), np.array([0.0, 1, 1, 0]), np.zeros(4)
batch = np.stack([np.vstack([bos, x]), np.vstack([bos, sieben, pad, pad])])
q_b, k_b, v_b = (batch @ w for w in (w_q, w_k, w_v))
y_batch = attention(q_b, k_b, v_b, both)
alone = attention(*project(batch[1, :2], w_q, w_k, w_v), causal_mask(2))
assert y_batch.shape == (2, 4, 3)
assert np.allclose(y_batch[1, :2], alone, atol=1e-12)  # as if there were no padding

# %% [markdown]
# A zero vector is not a silent one: its score with every query is 0, and $\exp(0) = 1$. Without the padding mask it takes its share.
# (Let the queries see ahead here, as an encoder's do.) **Predict**: more or less than a tenth of the attention of \<bos\>?

# %%
unmasked = attention_weights(q_b[1], k_b[1])
assert unmasked[0, 2:].sum() > 0.1  # what <bos> wastes on <pad>
assert attention_weights(q_b[1], k_b[1], words_only[1])[0, 2:].tolist() == [0, 0]
unmasked[0]

# %% [markdown]
# **What is wrong here?** Two masks, so somebody writes "or": a pair may pass if it is in the past *or* a word.

# %%
either = causal_mask(4) | words_only
assert either[0].all()  # in a sentence without padding, everybody sees everything
assert either[1, 3, 2]  # and <pad> is read all the same
assert not both[0, 0, 1] and not both[1, 3, 2]  # with "and", each mask has a veto

# %% [markdown]
# **What is wrong here?** Somebody forgets the axis for the queries and combines $(T, T)$ with $(B, S)$. With 2 sentences of 4 words
# NumPy refuses. **Predict** what it does with 4 sentences of 4 words.

# %%
four = padding_mask([4, 3, 2, 1])[:, 0, :]  # (B, S), without the axis for the queries
silently_wrong = causal_mask(4) & four
right = causal_mask(4) & four[:, None, :]
assert silently_wrong.shape == (4, 4) and right.shape == (4, 4, 4)
assert silently_wrong[3].tolist() == [True, False, False, False]  # query 4 got the length of sentence 4
assert right[0, 3].all()  # in the first sentence, query 4 sees all four words

# %% [markdown]
# With heads there is one axis more: $(B, 1, T, S)$, the same mask for every head.
#
# **Play**: paint the mask. Click or drag over the pairs (or walk with the arrow keys, and press Space; with Shift the arrows paint).
# Masked pairs are grey and hatched. The **leak meter** on the right adds up how much of its attention each query gives to keys that
# come after it. The buttons take away (*causal*, *padding*: "and"), or give everything back (*all*).
#
# - **Predict**: which queries leak without any mask? Which one cannot leak, whatever you paint?
# - Press *causal*. Give one pair of the future back. Which rows change, and why only these?
# - Empty a whole row.

# %%
sentence = ["<bos>", "fünf", "und", "vierzig", "<pad>"]
x_5 = np.vstack([bos, x, pad])
scores_5 = attention_scores(x_5 @ w_q, x_5 @ w_k)
widgets.MaskPainter(scores=scores_5, tokens=sentence, real=[True, True, True, True, False])


# %%
def leak(weights):
    return np.triu(weights, k=1).sum(axis=-1)  # what stands right of the diagonal


assert (leak(softmax(scores_5))[:-1] > 0).all() and leak(softmax(scores_5))[-1] == 0  # the last has no future
assert (leak(masked_softmax(scores_5, causal_mask(5))) == 0).all()  # exactly
leak(softmax(scores_5))

# %% [markdown]
# ## Nothing leaks, to the last bit
#
# The meter reads the weights. A proof looks at outputs: change a future token, and see whether anything before it moves. Not
# "hardly moves": a weight of exactly 0 times a value adds exactly 0, so the outputs must be **equal bit for bit**.
#
# **Predict** for six tokens, when token $j$ is changed: which outputs may move with the causal mask?


# %%
def outputs(x, mask, seed=0):
    rng = np.random.default_rng(seed)
    q, k, v = (x @ rng.standard_normal((x.shape[1], 5)) for _ in range(3))
    return attention(q, k, v, mask)


def who_sees_whom(layer, x):
    sees = np.zeros((len(x), len(x)), bool)
    for j in range(len(x)):
        changed = x.copy()
        changed[j] += 100.0  # as different as you like
        sees[:, j] = (layer(changed) != layer(x)).any(axis=1)  # not equal, to the last bit
    return sees


# %%
for seed in range(3):
    tokens = np.random.default_rng(seed).standard_normal((6, 8))
    assert who_sees_whom(lambda x: outputs(x, None), tokens).all()  # without a mask, all outputs move
    sees = who_sees_whom(lambda x: outputs(x, causal_mask(6)), tokens)
    assert np.array_equal(sees, causal_mask(6))  # with it: the past, all of it, and nothing else
sees.astype(int)

# %% [markdown]
# The experiment has found the mask again, without looking at it. Now the mask that came too late, after the softmax. Its weights on
# the future are 0 too, so the leak meter shows nothing. **Predict**: do earlier outputs move?


# %%
def masked_too_late(x):
    return (attention_weights(x, x) * causal_mask(len(x))) @ x


late = who_sees_whom(masked_too_late, tokens)
assert np.triu(late, k=1).any()  # the future moves the past: through the denominator of the softmax
late.astype(int)

# %% [markdown]
# A softmax divides by a sum over *all* keys, and the future stands in that sum. Masked before the softmax, it does not.
#
# **What is wrong here?** Two layers. The mask is in the first, "and so the future is gone". **Predict** the table.


# %%
def first_layer_only(x):
    return outputs(outputs(x, causal_mask(len(x)), seed=1), None, seed=2)


def every_layer(x):
    return outputs(outputs(x, causal_mask(len(x)), seed=1), causal_mask(len(x)), seed=2)


assert np.triu(who_sees_whom(first_layer_only, tokens), k=1).any()
assert np.array_equal(who_sees_whom(every_layer, tokens), causal_mask(6))

# %% [markdown]
# The last output of layer 1 knows the last token, and layer 2 read it. Every layer needs its mask.
#
# Gradients go the same ways back. How does output $y_i = \sum_j a_{ij} v_j$ move with a value, and with a score?
#
# $$\frac{\partial y_i}{\partial v_j} = a_{ij} \qquad\qquad \frac{\partial y_i}{\partial s_{ij}} = a_{ij}\,(v_j - y_i)$$
#
# Both have the factor $a_{ij}$: where the weight is exactly 0, so is the gradient, whatever the token was. (Torch will say the same
# at the end.)

# %%
a = attention_weights(q, k, causal_mask(3))
y = a @ v
by_score = a[:, :, None] * (v[None, :, :] - y[:, None, :])  # (i, j, number of the output)
assert (by_score[~causal_mask(3)] == 0).all()
nudged = scores + 1e-6 * (np.arange(3) == 1)  # a hair more on key 2, for every query
moved = (masked_softmax(nudged, causal_mask(3)) @ v - y) / 1e-6
assert np.allclose(moved, by_score[:, 1], atol=1e-4)  # the formula is right
assert (moved[0] == 0).all()  # and fünf does not feel it at all

# %% [markdown]
# ## One pass does the work of all prefixes
#
# Without masks one could give the model each beginning of the sentence by itself: *\<bos\>*, then *\<bos\> fünf*, then *\<bos\> fünf
# und*, and take the newest output each time. **Predict**: is that the same as one pass with a causal mask?


# %%
def prefix_by_prefix(q, k, v):
    return np.vstack([attention(q[t : t + 1], k[: t + 1], v[: t + 1]) for t in range(len(q))])


for seed in range(3):
    q_r, k_r, v_r = np.random.default_rng(seed).standard_normal((3, 64, 16))
    one_pass = attention(q_r, k_r, v_r, causal_mask(64))
    assert np.allclose(prefix_by_prefix(q_r, k_r, v_r), one_pass, atol=1e-12)

# %% [markdown]
# (Equal up to rounding: products of other sizes are summed in another order.) The same numbers, and 64 small products instead of
# one. **Predict** how many times longer the loop takes.


# %%
def fastest(function, times=20):
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


ratio = fastest(lambda: prefix_by_prefix(q_r, k_r, v_r)) / fastest(lambda: attention(q_r, k_r, v_r, causal_mask(64)))
assert ratio > 2
print(f"the loop takes {ratio:.0f} times as long")

# %% [markdown]
# So a mask is what lets a Transformer train on all places of a sentence at once, where an RNN has to go step by step (unit 01). When
# it *writes*, it goes word by word all the same: there is nothing to the right yet.
#
# **What is wrong here?** The slides that we met above say that one could "change the set of keys and *queries* to include only past
# words". Take the past of the keys and the queries, as they say, and leave the values alone:

# %%
try:
    attention(q[:2], k[:2], v)
except ValueError as error:
    print(error)
assert np.allclose(attention(q[:2], k[:2], v[:2])[1], attention(q, k, v, causal_mask(3))[1])  # keys and values

# %% [markdown]
# What is found and what is handed out belong together: keys and *values* are cut. The query asks, one at a time.
#
# ## A row with nothing to attend to gives NaN
#
# It happened above, with $j \ge i$. It also happens with right masks: a sentence of length 0 in a batch, an empty source in
# cross-attention, or padding on the *left* with a causal mask, where the first token is padding and sees only itself.
#
# **Predict**: softmax of $[-\infty, -\infty, -\infty]$, step by step. What is the maximum? What is $-\infty$ minus that?

# %%
left_padded = causal_mask(3) & np.array([False, True, True])  # <pad> fünf und
empty_row = softmax(np.where(left_padded, scores, -np.inf))
assert np.isnan(empty_row[0]).all() and np.isfinite(empty_row[1:]).all()
empty_row

# %% [markdown]
# One row of NaN, which belongs to padding: who cares? The next layer does. **Predict** what it makes of $0 \times \text{NaN}$.

# %%
layer_1 = empty_row @ v
layer_2 = masked_softmax(scores, left_padded) @ layer_1  # a faultless layer, with weight 0 on <pad>
assert masked_softmax(scores, left_padded)[2, 0] == 0
assert np.isnan(layer_2[1:]).all()  # and every word is NaN

# %% [markdown]
# **What is wrong here?** "Then take $-10^9$ instead of $-\infty$: no NaN." **Predict** the weights of the empty row.

# %%
finite = softmax(np.where(left_padded, scores, -1e9))
assert np.allclose(finite[0], 1 / 3)  # all scores are equal, and equal scores share alike
assert leak(finite)[0] > 0.6  # so it reads what is forbidden: two thirds of it the future
finite

# %% [markdown]
# No NaN, no warning, and a leak. Who has nothing to attend to should read **nothing**: weights of 0, an output of 0. Three ways to
# get there:
#
# - in the softmax: subtract 0 where the maximum is $-\infty$, divide by 1 where the sum is 0 (`masked_softmax` does that);
# - after the softmax: multiply by the mask, or put zeros into rows without a True;
# - or never have such a row: keep \<bos\> at the beginning and pad on the right.

# %%
in_it = masked_softmax(scores, left_padded)
after_it = softmax(np.where(left_padded, scores, -1e9)) * left_padded
assert in_it[0].tolist() == [0, 0, 0] and np.allclose(in_it, after_it)
assert np.allclose(in_it[1:].sum(axis=1), 1)  # all others as ever
in_it

# %% [markdown]
# ## The gradient from the future is exactly zero (needs torch)
#
# The cells below need torch; everything above does not. Here torch itself says which tokens could move an output: the gradient of
# $y_i$ with respect to every token. **Predict** its pattern for six tokens.

# %% tags=["needs-torch"]
import torch

from course_lib import masks
from course_lib.attention import explicit, fused


def torch_gradients(road, seed):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(6, 8, generator=draw, dtype=torch.float64, requires_grad=True)
    y = road(*(x @ torch.randn(8, 8, generator=draw, dtype=torch.float64) for _ in range(3)))
    return torch.stack([torch.autograd.grad(row.sum(), x, retain_graph=True)[0] for row in y])  # (i, j, D)


# %% tags=["needs-torch"]
future = ~masks.causal(6)
for seed in range(3):
    by_formula = torch_gradients(lambda q, k, v: explicit(q, k, v, masks.causal(6))[0], seed)
    by_kernel = torch_gradients(lambda q, k, v: fused(q, k, v, causal=True), seed)
    for gradient in (by_formula, by_kernel):
        assert (gradient[future] == 0).all()  # exactly, not nearly
        assert (gradient[~future] != 0).any(dim=-1).all()  # the whole past has a say

# %% [markdown]
# Both roads of the library, the formula written out and torch's own kernel, let nothing through.
#
# And an empty row? Let somebody add $M$ to the scores, and leave the empty row out of the loss. **Predict**: is the gradient safe?

# %% tags=["needs-torch"]
q_t, x_t, m_t = (torch.tensor(part) for part in (q, x, additive_mask(left_padded)))


def gradient_of_w_k(softmax_of):
    matrix = torch.tensor(w_k, requires_grad=True)
    weights = softmax_of(q_t @ (x_t @ matrix).T / 3**0.5)
    (weights[1:] ** 2).sum().backward()  # nobody asks for row 1
    return matrix.grad


assert gradient_of_w_k(lambda s: torch.softmax(s + m_t, dim=-1)).isnan().all()

# %% [markdown]
# It is not. Backwards, $0 \times \text{NaN}$ is NaN as well, and $W_k$ serves all rows: after one step of training the whole model
# would be NaN. The library's `masked_softmax` gives zeros forwards and finite gradients backwards.

# %% tags=["needs-torch"]
from course_lib.attention import masked_softmax as torch_masked_softmax

safe = gradient_of_w_k(lambda s: torch_masked_softmax(s, torch.tensor(left_padded)))
assert safe.isfinite().all() and (safe != 0).any()
safe

# %% [markdown]
# ## Barriers and solutions
#
# | barrier | solution |
# |---|---|
# | an RNN squeezes the sentence into one state (01) | attention reads all states (02) |
# | self-attention has nothing to learn (03) | queries, keys and values, three matrices (04) |
# | scores grow with the width, softmax saturates (05) | divide by $\sqrt{d_k}$, in heads by $\sqrt{D/H}$ (05, 06) |
# | exp overflows (05) | subtract the largest score of each row (05) |
# | one row of weights can look for one thing only (06) | $H$ heads, side by side (06) |
# | one average cannot tell what came from where (06) | a block of $W_O$ for each head (06) |
# | must not see the future (07) | a causal mask, $-\infty$ before the softmax, in every layer (07) |
# | padding is read like words (02) | a padding mask, $(B, 1, S)$, combined by "and" (07) |
# | a row with nothing to attend to is NaN (07) | give it zeros (07) |
# | no notion of order (03) | *next: unit 08* |
# | only weighted averages (03) | *still open: unit 09* |
#
# **Three takeaways**
#
# 1. Scores become $-\infty$ *before* the softmax, so that weights are exactly 0, in value and in gradient. True = may attend, and
#    a token sees itself.
# 2. The causal mask is $(T, T)$, the padding mask $(B, 1, S)$; "and" combines them, and one pass equals all prefixes.
# 3. A row with nothing to attend to is NaN by the formula, and NaN spreads. Give it zeros.
#
# **To think about**
#
# - Suppose the *value* of a padded token is infinite or NaN. Does the mask still protect you? What is $0 \times \infty$?
# - The first token of a causal model always reads only itself. What does that mean for \<bos\>?
# - With a causal mask, shuffling the tokens no longer merely shuffles the outputs (unit 03). Does the mask know about order?
# - Which of the encoder's and the decoder's attentions in unit 10 needs a causal mask, which a padding mask, and of which sentence?
#
# **To read**: Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.3, for the three uses of attention and their masks.
#
# **On**: try it yourself in `exercises/07_masking.ipynb`. Then unit 08, Positions: the mask knows who came before, but not how far.
