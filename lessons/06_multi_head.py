# %% [markdown]
# # 06 Multi-head attention
#
# One attention asks one question of the sentence and gets one answer, an average. Words need more: *who* is "it", and *how* is
# it? Here several attentions work side by side on the same tokens, each with its own small question, and together they cost
# no more than the one before.
#
# **After this unit you can**
#
# - split and merge heads without a loop (06-a);
# - show that multi-head attention equals $H$ separate attentions (06-b);
# - count parameters and operations of heads (06-c);
# - load torch's weights and get torch's result (06-d);
# - read heads that specialise, and say why weights may mislead (06-e).
#
# **You need** unit 04 (queries, keys, values), unit 05 (why one divides by $\sqrt{d_k}$), and from unit 02 what a mask is.
# **Time**: 60 minutes to read and play. A small Transformer is trained on the way; all cells together take less than a
# minute.
#
# Notation: $D$ is the model's width, $H$ the number of heads, $d_k = D / H$ the width of one head (letter K in names such as
# `q_HTK`). Tokens are rows, as always. Formulas and figures count heads from 1, code counts them from 0. The first half is
# NumPy, the second half torch.

# %%
import numpy as np

from course_lib import widgets
from course_lib.by_hand import (
    WORKED_EXAMPLE,
    attention,
    attention_weights,
    merge_heads,
    multi_head,
    multi_head_cost,
    multi_head_loops,
    project,
    softmax,
    split_heads,
)

np.set_printoptions(precision=4, suppress=True)

# %% [markdown]
# ## One head returns one average
#
# "Dog bites man", and "man bites dog". To understand *bites* one has to know who stands on the left and who on the right.
# Let *bites* read both neighbours, half and half. **Predict**: in which of the two sentences does it get which vector?

# %%
dog, bites, man = np.array([1.0, 0, 0]), np.array([0, 1.0, 0]), np.array([0, 0, 1.0])
half_half = np.array([0.5, 0.0, 0.5])  # the weights of "bites": left neighbour, itself, right neighbour
one_way = half_half @ np.stack([dog, bites, man])
other_way = half_half @ np.stack([man, bites, dog])
assert np.array_equal(one_way, other_way)  # half dog, half man: who bites whom is gone
one_way

# %% [markdown]
# Would other weights help, seven tenths for the left and three tenths for the right? The output is still *one sum*, and every
# word in it went through the same matrix $W_v$. So one can take something from the word on the left, add a matching amount of
# it to the word on the right, and the sum does not move. **Predict** whether a *convolution* notices: it has a matrix for the left
# neighbour and another one for the right,
#
# $$y_i = x_{i-1} W_{\text{left}} + x_{i+1} W_{\text{right}}$$

# %%
rng = np.random.default_rng(6)
w_any, w_left, w_right = rng.standard_normal((3, 3, 3))
seven_three = np.array([0.7, 0.0, 0.3])
before, taken = np.stack([dog, bites, man]), rng.standard_normal(3)
after = before + np.outer([-1 / 0.7, 0, 1 / 0.3], taken)
assert np.allclose(seven_three @ before @ w_any, seven_three @ after @ w_any)  # one head: the same
convolution = [left @ w_left + right @ w_right for left, _, right in (before, after)]
assert not np.allclose(*convolution)  # a convolution can tell

# %% [markdown]
# **Two heads** can tell as well: the first looks left, the second looks right, and their outputs are put *side by side*, not
# added up. If a matrix follows, its upper half meets what came from the left and its lower half what came from the right.
# **Predict**: which matrix makes two heads equal to the convolution?

# %%
looks_left, looks_right = np.array([1.0, 0, 0]), np.array([0, 0, 1.0])
side_by_side = np.concatenate([looks_left @ after, looks_right @ after])
w_stacked = np.vstack([w_left, w_right])
assert side_by_side.shape == (6,) and w_stacked.shape == (6, 3)
assert np.allclose(side_by_side @ w_stacked, convolution[1])

# %% [markdown]
# So one head cannot tell what came from where, and several heads give that back. Unlike a convolution they choose
# anew in every sentence where to look. (To look *left* a head has to know where words stand; that is unit 08.)
#
# ## Heads keep the questions apart
#
# Back to the worked example of unit 04: three tokens, queries and keys of width 3. A score is a sum of three products, and
# that is three small questions, added up before the softmax:
#
# $$q_1 \cdot k_j = 1 \cdot k_{j1} + 0 \cdot k_{j2} + 2 \cdot k_{j3}$$
#
# Three heads of width 1 keep them apart: head 1 has the first column of $Q$, $K$ and $V$, head 2 the second, head 3 the third.
#
# **By hand**: token 1 asks, $q_1 = [1, 0, 2]$, and the keys are $[0, 1, 1]$, $[4, 4, 0]$, $[2, 3, 1]$. Write down its three
# scores in each of the three heads. (The width is 1, and so is $\sqrt{d_k}$.)

# %%
q_small, k_small, v_small = project(*WORKED_EXAMPLE)
scores_of_token_1 = np.array([q_small[0, h] * k_small[:, h] for h in range(3)])  # a row for each head
assert scores_of_token_1.tolist() == [[0, 4, 2], [0, 0, 0], [2, 0, 2]]
assert scores_of_token_1.sum(axis=0).tolist() == [2, 4, 4]  # added up: unit 04's scores
scores_of_token_1

# %% [markdown]
# **Predict** from these scores: which head of token 1 looks mainly at token 2? Which one cannot make up its mind?

# %%
heads_of_token_1 = softmax(scores_of_token_1)  # one softmax for each head
assert np.allclose(heads_of_token_1[0], [0.0159, 0.8668, 0.1173], atol=5e-5)
assert np.allclose(heads_of_token_1[1], 1 / 3)  # all scores equal: everybody counts the same
assert np.allclose(heads_of_token_1[2], [0.4683, 0.0634, 0.4683], atol=5e-5)
y_1 = np.array([heads_of_token_1[h] @ v_small[:, h] for h in range(3)])
assert np.allclose(y_1, [1.9841, 5.3333, 2.8099], atol=5e-5)  # one number from each head
y_1

# %% [markdown]
# Three answers to three questions, where unit 04 had one blend for all of them. Head 2 of token 1 asks for
# nothing (its query is 0) and averages everybody; the other two go on with their own columns.
#
# ## Two heads find animal and tired
#
# "The animal didn't cross the street because it was too tired." What is *it*? The animal. How is *it*? Tired. We make the
# vectors by hand, with four numbers for each word: *is a pronoun*, *is a thing*, *is alive*, *is a state*. Nothing here is
# trained; it shows what heads can do, not what they always do.

# %%
sentence = ["The", "animal", "didn't", "cross", "the", "street", "because", "it", "was", "too", "tired"]
meanings = {"it": [1, 0, 0, 0], "animal": [0, 1, 1, 0], "street": [0, 1, 0, 0], "tired": [0, 0, 0, 1]}
x_it = np.array([meanings.get(word, [0, 0, 0, 0]) for word in sentence], dtype=float)
asks = np.zeros((4, 4))
asks[0] = [8, 8, 8, 0]  # only a pronoun asks: in columns 1 and 2 for living things, in column 3 for a state
shows = np.array([[0.0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])  # thing, alive | state, pronoun

# %% [markdown]
# The first two columns are head 1, the last two are head 2. **Predict** for *it*: the word with the largest weight in each head.
# And if there were only one head, with all four columns?

# %%
q_it, k_it, v_it = project(x_it, asks, shows, shows)
made_up = attention_weights(split_heads(q_it, 2), split_heads(k_it, 2))  # (heads, queries, keys)
it = sentence.index("it")
assert [sentence[j] for j in made_up[:, it].argmax(axis=-1)] == ["animal", "tired"]
single = attention_weights(q_it, k_it)[it]
assert sentence[single.argmax()] == "animal" and single[sentence.index("tired")] < 0.05  # it had to choose

# %% [markdown]
# And what does *it* get? Four numbers, of which everybody knows where they come from: thing and alive from head 1, state from
# head 2.

# %%
from_two = multi_head(x_it, asks, shows, shows, np.eye(4), heads=2)[it]
from_one = multi_head(x_it, asks, shows, shows, np.eye(4), heads=1)[it]
assert np.allclose(from_two, [1, 1, 1, 0], atol=0.05)  # a living thing, in a state
assert from_one[2] < 0.05  # the state was not found
print("two heads:", from_two, " one head:", from_one)

# %% [markdown]
# **Play**: choose a head and point at a word (or reach it with Tab and the arrow keys). What do words other than *it* look at,
# which ask for nothing? What does the mean of the two heads say, and what does it hide?

# %%
widgets.HeadExplorer({"made by hand": (sentence, sentence, made_up)}, query=it)

# %% [markdown]
# ## A head is a block of columns
#
# In general there are $H$ heads of width $D / H$, and head $h$ owns the $h$-th block of columns of $W_q$, $W_k$ and $W_v$. The
# paper of 2017 has $D = 512$ and $H = 8$: each head is 64 wide. Here are five tokens, $D = 12$ and $H = 3$.
#
# **Predict** the shape of one head's queries, of its scores, and of its output.

# %%
T, D, H = 5, 12, 3
x = rng.standard_normal((T, D))
w_q, w_k, w_v, w_o = rng.standard_normal((4, D, D)) / np.sqrt(D)
q_0, k_0, v_0 = (x @ w[:, :4] for w in (w_q, w_k, w_v))  # head 0: the first D / H = 4 columns
scores_0 = q_0 @ k_0.T / np.sqrt(4)
head_0 = softmax(scores_0) @ v_0
assert q_0.shape == (5, 4) and scores_0.shape == (5, 5) and head_0.shape == (5, 4)

# %% [markdown]
# Note what is *not* cut: $x$. Every head reads all 12 numbers of every token.
#
# **What is wrong here?** Some notes say: "each *row* of the matrix is a separate attention". **Predict** what a block of rows
# does: does it fit $x$? What do you get when you add up the parts?

# %%
rows = np.split(w_q, H, axis=0)  # three blocks of four rows
try:
    x @ rows[0]
except ValueError as error:
    print("A block of rows does not fit the tokens:", error)
parts = [np.split(x, H, axis=1)[h] @ rows[h] for h in range(H)]  # so one has to cut the tokens too
assert parts[0].shape == (T, D)  # of full width: no head of its own
assert np.allclose(sum(parts), x @ w_q)  # rows cut the sum into terms,
assert np.allclose(np.hstack([x @ block for block in np.split(w_q, H, axis=1)]), x @ w_q)  # columns cut the result

# %% [markdown]
# Rows belong to the numbers that go *in*, columns to those that come *out*, and a head is a part of what comes out. (In the
# column convention of unit 04, $q = W x$, and in torch's storage, the matrix is transposed: there a head is a block of $D / H$
# rows. A single row is not a head there either: it makes one number of the query, and a head has $D / H$ of them.)
#
# **What is wrong here?** A slide gives head $\ell$ the output $\text{softmax}(X Q_\ell K_\ell^\top X^\top)\, X V_\ell \in
# \mathbb{R}^{d/h}$. Read the shapes from left to right. **Predict** what happens to the tokens if one insists on a vector of
# length $d / h$.

# %%
assert head_0.shape == (T, D // H) != (D // H,)  # one row for each token: T × d/h
insisted = head_0.sum(axis=0)  # a vector of length d/h, for the whole sentence
shuffled = x[[4, 2, 0, 1, 3]]
again = attention(*(shuffled @ w[:, :4] for w in (w_q, w_k, w_v))).sum(axis=0)
assert np.allclose(insisted, again)  # the same for every order of the words,
assert not np.allclose(head_0[0], head_0[1])  # while every word should have its own

# %% [markdown]
# ## Splitting is a reshape and a swap
#
# One product, $X W_q$, makes the queries of all heads: they lie side by side, in blocks of columns. To compute all heads at once
# the blocks get an axis of their own. Two steps:
#
# $$(T, D) \;\xrightarrow{\text{reshape}}\; (T, H, D/H) \;\xrightarrow{\text{swap}}\; (H, T, D/H)$$
#
# The heads stand in front, since NumPy and torch multiply the *last two* axes, for everything that stands before them.

# %%
q = x @ w_q
q_HTK = q.reshape(T, H, D // H).swapaxes(0, 1)
assert q_HTK.shape == (3, 5, 4)
assert np.array_equal(q_HTK[0], q_0)  # head 0 is the first block of columns
assert np.array_equal(q_HTK, split_heads(q, H))

# %% [markdown]
# **What is wrong here?** "The shape is to be $(3, 5, 4)$, so I reshape to $(3, 5, 4)$." **Predict**: take numbers that can be
# followed with the eye, two tokens of width 4. What does the first head hold?

# %%
followed = np.array([[11, 12, 13, 14], [21, 22, 23, 24]])  # token 1 and token 2
at_once = followed.reshape(2, 2, 2)
assert at_once[0].tolist() == [[11, 12], [13, 14]]  # all of token 1, and nothing of token 2
assert split_heads(followed, 2)[0].tolist() == [[11, 12], [21, 22]]  # the left half of both

# %% [markdown]
# The wrong one runs and has the right shape, and nobody complains; but its first head has never heard of token 2.
#
# Merging goes the same way back: swap, then reshape.

# %%
assert np.array_equal(merge_heads(split_heads(q, H)), q)
back = q_HTK.swapaxes(0, 1).reshape(T, D)
assert np.array_equal(back, q)
assert not np.array_equal(q_HTK.reshape(T, D), q)  # without the swap: a token holds numbers of others

# %% [markdown]
# ## All heads at once are separate attentions
#
# With the heads in front, the formula of unit 05 does not change by a letter:
#
# $$Y_h = \text{softmax}\!\left(\frac{Q_h K_h^\top}{\sqrt{D/H}}\right) V_h \qquad\qquad Y = [Y_1 \; \dots \; Y_H]\, W_O$$
#
# **Predict**: three attentions in a loop, or all in one product: the same numbers?

# %%
q_HTK, k_HTK, v_HTK = (split_heads(x @ w, H) for w in (w_q, w_k, w_v))
scores_HTT = q_HTK @ k_HTK.swapaxes(-1, -2) / np.sqrt(D // H)
y_HTK = softmax(scores_HTT) @ v_HTK
for h in range(H):
    alone = attention(*(x @ np.split(w, H, axis=1)[h] for w in (w_q, w_k, w_v)))
    assert np.allclose(y_HTK[h], alone, atol=1e-12)

# %%
y = merge_heads(y_HTK) @ w_o
assert y.shape == x.shape  # in and out have one shape, so layers can be stacked
assert np.allclose(y, multi_head_loops(x, w_q, w_k, w_v, w_o, H), atol=1e-12)
assert np.allclose(y, multi_head(x, w_q, w_k, w_v, w_o, H), atol=1e-12)

# %% [markdown]
# **What is wrong here?** Somebody keeps the $\sqrt{D}$ of one big head. Unit 05 counted the terms of the dot product.
# **Predict** how far the scores spread with $D = 512$, $H = 8$, if one divides by $\sqrt{512}$.

# %%
wide_q, wide_k = rng.standard_normal((2, 200, 512))
of_heads = split_heads(wide_q, 8) @ split_heads(wide_k, 8).swapaxes(-1, -2)
assert np.isclose((of_heads / np.sqrt(64)).std(), 1, atol=0.05)  # as unit 05 wants it
assert np.isclose((of_heads / np.sqrt(512)).std(), 1 / np.sqrt(8), atol=0.05)  # too flat, the more so the more heads

# %% [markdown]
# ## One more matrix mixes the heads
#
# Side by side, the heads have not met yet: the first columns know only what head 0 found. $W_O$ mixes them. Its rows fall into
# blocks as well, one for each head, and so the product is a sum, a term for each head:
#
# $$[Y_1 \; \dots \; Y_H]\, W_O = Y_1 W_O^{(1)} + \dots + Y_H W_O^{(H)}$$
#
# **Predict**: is that the same as adding up the heads first and multiplying with one small matrix?

# %%
w_o_blocks = np.split(w_o, H, axis=0)  # rows this time: these numbers go in
assert np.allclose(sum(y_HTK[h] @ w_o_blocks[h] for h in range(H)), y)
added_first = y_HTK.sum(axis=0) @ w_o_blocks[0]
assert not np.allclose(added_first, y)  # added up too early: what came from which head is gone

# %% [markdown]
# That is the convolution of the beginning again: each head has a matrix of its own, so the sum still knows what came from where.
# We shall use this sum below, to switch single heads off.
#
# ## Eight heads cost as much as one
#
# More heads, more work? **Predict** for $T = 10$ tokens and $D = 512$: how many parameters, and how many multiplications and
# additions, with 1 head of width 512 and with 8 heads of width 64?


# %%
def cost(T, D, H):
    width = D // H
    parameters = H * 3 * D * width + D * D  # three blocks of columns for each head, and W_O
    projections = H * 3 * (2 * T * D * width) + 2 * T * D * D  # a product and a sum for each term
    scores_and_sums = H * 2 * (2 * T * T * width)  # Q Kᵀ, and weights times V
    return parameters, projections + scores_and_sums


prices = {heads: cost(10, 512, heads) for heads in (1, 2, 4, 8, 64)}
assert len(set(prices.values())) == 1  # H cancels: H heads of D / H columns
assert prices[8] == multi_head_cost(10, 512)
print(f"{prices[8][0]:,} parameters, {prices[8][1]:,} operations, with 1 head or 64")

# %% [markdown]
# What does grow is the number of *weights*: $H$ tables of $T \times T$ instead of one, each with its own softmax. For short
# sentences that is little. And each head's question becomes narrower: a width of 8 for 64 heads.

# %%
table_sizes = {heads: attention_weights(*(split_heads(np.ones((10, 512)), heads),) * 2).size for heads in (1, 8, 64)}
assert table_sizes == {1: 100, 8: 800, 64: 6400}

# %% [markdown]
# ## torch computes the same numbers
#
# From here on we need torch. Its `nn.MultiheadAttention` keeps $W_q$, $W_k$, $W_v$ below each other in one matrix, and all of
# them transposed, since torch computes `x @ weight.T`.
#
# **Predict** the shape of `in_proj_weight` for $D = 12$.

# %%
import torch
from torch.utils.flop_counter import FlopCounterMode

from course_lib.attention import MultiHeadAttention, record_weights
from course_lib.data import batches, number_pairs
from course_lib.decoding import greedy
from course_lib.device import generator, seed_all
from course_lib.metrics import exact_match
from course_lib.training import TrainConfig, fit
from course_lib.transformer import Transformer, TransformerConfig

torch.set_num_threads(1)  # for networks this small, more threads would mostly wait for each other

# %%
theirs = torch.nn.MultiheadAttention(D, H, bias=False, batch_first=True, dtype=torch.float64)
assert theirs.in_proj_weight.shape == (3 * D, D)
with torch.no_grad():
    theirs.in_proj_weight.copy_(torch.from_numpy(np.vstack([w_q.T, w_k.T, w_v.T])))
    theirs.out_proj.weight.copy_(torch.from_numpy(w_o.T))

# %% [markdown]
# Our matrices are in torch's layer now. **Predict**: how far apart are its result and ours, from the loop and from NumPy?

# %%
x_1TD = torch.from_numpy(x)[None]  # a batch of one sentence
their_y, their_weights = theirs(x_1TD, x_1TD, x_1TD, average_attn_weights=False)
apart = np.abs(their_y[0].detach().numpy() - y).max()
assert apart < 1e-6  # H heads = H separate attentions = torch
assert np.allclose(their_weights[0].detach().numpy(), softmax(scores_HTT), atol=1e-6)
print("largest difference:", apart)

# %% [markdown]
# **What is wrong here?** Somebody plots the weights that torch returns, and reads heads from them. **Predict** their shape when
# `average_attn_weights` is left out.

# %%
_, averaged = theirs(x_1TD, x_1TD, x_1TD)
assert averaged.shape == (1, T, T)  # no axis for the heads: torch averages them unless told not to
assert torch.allclose(averaged, their_weights.mean(dim=1))

# %% [markdown]
# The library's module has torch's layout, so weights are copied as they stand. And torch can count operations while it
# computes: the count is the one that we made with pencil and paper.

# %%
ours = MultiHeadAttention(D, H, bias=False).double()
with torch.no_grad():
    ours.w_qkv.weight.copy_(theirs.in_proj_weight)
    ours.w_o.weight.copy_(theirs.out_proj.weight)
assert torch.allclose(ours(x_1TD), their_y, atol=1e-6)

# %%
counted = {}
for heads in (1, 8):
    layer = MultiHeadAttention(64, heads, bias=False)
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(1, 10, 64, generator=generator(0)), need_weights=True)
    counted[heads] = sum(p.numel() for p in layer.parameters()), counter.get_total_flops()
assert counted[1] == counted[8] == multi_head_cost(10, 64)
counted

# %% [markdown]
# ## The heads of a trained model look at different words
#
# Now for heads that nobody made by hand. A small Transformer learns the task of unit 02, English number words to German ones.
# Its parts are the business of units 07 to 10; here it is enough that it has three layers of attention with four heads each: the
# encoder reads English words, the decoder reads its own German words, and the decoder reads the encoder (*cross*-attention).

# %%
numbers = number_pairs("german", train=10_000, test=200)
seed_all(0)
model = Transformer(TransformerConfig(len(numbers.source_words), len(numbers.target_words)))
pairs = batches(numbers.source_train, numbers.target_train, 32, generator=generator(0), steps=300)
history = fit(model, pairs, TrainConfig(steps=300, lr=5e-3, warmup=20, matmul="medium"))
print(f"loss {history.losses[0]:.2f} → {history.losses[-1]:.3f}")

# %%
meant = [numbers.target_words.decode(row) for row in numbers.target_test]


def share_right():
    said = greedy(model, numbers.source_test, max_length=numbers.target_test.shape[1])
    return exact_match([numbers.target_words.decode(row) for row in said], meant)


unseen = share_right()
print(f"{unseen:.1%} of the unseen numbers are translated exactly")
assert unseen > 0.95

# %% [markdown]
# `record_weights` lets every layer write its weights down while the model works, heads and masks included. **Predict**
# the shapes for *forty five* → *fünf und vierzig*: the decoder starts from `<bos>`, so it has four places to write at.


# %%
def weights_of(number):
    source, target = numbers.encode([number])
    with torch.no_grad(), record_weights(model) as recorded:
        model(source, target[:, :-1])
    read, written = numbers.source_words.decode(source[0]), numbers.target_words.decode(target[0])
    return read, [*written, "<eos>"], {name: calls[0][0].numpy() for name, calls in recorded.items()}


english, german, forty_five = weights_of(45)
print({name: weights.shape for name, weights in forty_five.items()})
assert [w.shape for w in forty_five.values()] == [(4, 2, 2), (4, 4, 4), (4, 4, 2)]

# %% [markdown]
# **Predict**, from unit 02: what does the cross-attention read while it writes *fünf*? And *vierzig*? (Mean of the heads.)

# %%
cross = forty_five["decoder.0.cross_attention"].mean(axis=0)
reads = {word: english[row.argmax()] for word, row in zip(german, cross, strict=True)}
print(reads)
assert reads["fünf"] == "five" and reads["vierzig"] == "forty"  # the lines cross, as in unit 02

# %% [markdown]
# **Play**: the three layers, on a longer number. In the decoder, "→ vier" is the place where *vier* is about to be written. It
# can read what has been written before, and the rest is hidden (unit 07). Look for a head that reads the word itself, one that
# reads a neighbour, one that reads the same word wherever it is. Do the four heads of the cross-attention agree on *vier*
# and *dreißig*? On *und*?

# %%
long_english, long_german, weights = weights_of(234_567)
places = [f"→ {word}" for word in long_german]
so_far = ["<bos>", *long_german[:-1]]
layers = {
    "encoder": (long_english, long_english, weights["encoder.0.attention"]),
    "decoder, its own words": (places, so_far, weights["decoder.0.self_attention"], np.tri(len(places)) > 0),
    "decoder, cross": (places, long_english, weights["decoder.0.cross_attention"]),
}
widgets.HeadExplorer(layers, layer=2, query=places.index("→ vier"))

# %% [markdown]
# Heads do differ: in every layer there are words for which two heads have their largest weight in different places. Nobody told
# them to: they begin with different random numbers, and training moves each of them its own way.

# %%
for name, heads_HTS in weights.items():
    favourites = heads_HTS.argmax(axis=-1)  # (heads, queries)
    differ = (favourites != favourites[0]).any(axis=0)
    print(f"{name}: the heads disagree on {differ.sum()} of {differ.size} words")
    assert differ.any()

# %% [markdown]
# What a head does has no name in general. In some you will see a rule, *the word before*, *the unit*, *the beginning*; in others
# you will not, and both may be needed.
#
# ## A sharp head need not matter
#
# It is tempting to read a bright field as a reason. Three things stand against it.
#
# **First**, a weight is only half of it. What arrives is weight times *value*. **Predict**: nine tenths of the attention go to a word
# whose value is nearly zero. Where does the output come from?

# %%
weights_of_a_head = np.array([0.9, 0.1])
values = np.array([[0.01, 0.0], [3.0, 4.0]])
contributions = np.linalg.norm(weights_of_a_head[:, None] * values, axis=1)
assert contributions[1] > 50 * contributions[0]  # the word that was hardly looked at

# %% [markdown]
# **Second**, others may do the same work. Each head adds a term to the sum before the next layer, so we can switch one off: zeros
# in its block of $W_O$ (columns in torch's storage, which is transposed). **Predict**: how many numbers are still translated when
# one of the twelve heads is off? And when all four of a layer are?


# %%
def without(layer, columns):
    kept = layer.w_o.weight.detach().clone()
    with torch.no_grad():
        layer.w_o.weight[:, columns] = 0
        share = share_right()
        layer.w_o.weight.copy_(kept)  # and on again
    return share


attentions = {name: part for name, part in model.named_modules() if isinstance(part, MultiHeadAttention)}
switched = {name: [without(layer, slice(16 * h, 16 * h + 16)) for h in range(4)] for name, layer in attentions.items()}
for name, shares in switched.items():
    print(f"{name:26}", "  ".join(f"{share:6.1%}" for share in shares))

# %%
encoder, decoder = attentions["encoder.0.attention"], attentions["decoder.0.self_attention"]
assert max(switched["encoder.0.attention"]) > unseen - 0.05  # there is a head that hardly anybody misses,
assert without(encoder, slice(None)) < 0.7  # while the layer as a whole is needed;
assert min(switched["decoder.0.self_attention"]) < 0.7  # and there is a head that is missed badly
assert share_right() == unseen  # all heads are on again

# %% [markdown]
# Go back to the figure and compare: could you have told from the weights which head can be missed? This has been
# seen in large models too: most heads can be taken out of a trained Transformer, one at a time, with little loss (Michel et al.
# 2019).
#
# **Third**, as in unit 02: the vectors that are read have been mixed before. In the cross-attention, *five* stands for the state at
# that place, which knows of *forty* as well.
#
# So weights say where a head looks. What it *does* takes an experiment: change something, and measure.
#
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
# | must not see the future | *next: unit 07* |
# | no notion of order (03) | *still open: unit 08* |
#
# **Three takeaways**
#
# 1. A head is a block of $D / H$ columns of $W_q$, $W_k$, $W_v$ and an attention of its own, with output $T \times D/H$; the
#    outputs stand side by side, and $W_O$ mixes them.
# 2. Splitting is reshape, then swap; merging is swap, then reshape. $H$ heads are $H$ separate attentions, to the last digit,
#    and cost as many parameters and operations as one of full width.
# 3. Heads of a trained model look at different words. Weights say where; whether it matters, only an experiment can say.
#
# **To think about**
#
# - With 512 heads of width 1, what can a head still ask? With one head of width 512, what can it not?
# - If two heads have the same $W_q$, $W_k$ and $W_v$, can training ever make them differ? Why do they differ in practice?
# - $W_v$ and $W_O$ of a head are always multiplied with each other. Could one do without one of them? What would it cost?
#
# **To read**: Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.2, and the pictures of heads at its end; Michel, Levy
# and Neubig 2019, *Are Sixteen Heads Really Better than One?*; Jain and Wallace 2019, *Attention is not Explanation*, and the answer
# by Wiegreffe and Pinter 2019, *Attention is not not Explanation*.
#
# **On**: try it yourself in `exercises/06_multi_head.ipynb`. Then unit 07 hides what must not be seen.
