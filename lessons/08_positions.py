# %% [markdown]
# # 08 Positions
#
# "The dog bit the man" and "the man bit the dog" have the same words. Attention, as you have built it so far, cannot tell
# them apart. Here it learns where a token stands, in five ways, and trained models decide which of them still work on
# sentences longer than any in training.
#
# **After this unit you can**
#
# - write the sinusoid table in closed form, and a shift as a rotation (08-a);
# - show that shuffling is noticed once positions are added (08-b);
# - measure which encodings extrapolate past the trained length (08-c);
# - write rotary positions and ALiBi (08-d).
#
# **You need** unit 03 (shuffling commutes with self-attention), 04 and 05 (queries, keys, values, the scale) and 07 (the causal
# mask); sine and cosine from school. **Time**: 60 minutes to read and play; all cells together run in about half a minute,
# nearly all of it training at the end.
#
# Notation, as everywhere: tokens are rows, $X$ is $T \times D$; $t$ is the position of a token, counted from 0.

# %%
from itertools import permutations

import numpy as np

from course_lib import by_hand, plots, widgets
from course_lib.by_hand import (
    WORKED_EXAMPLE,
    alibi_bias,
    alibi_slopes,
    attention,
    attention_scores,
    project,
    rotary,
    rotation_matrix,
    sinusoidal,
)

np.set_printoptions(precision=4, suppress=True)

# %% [markdown]
# ## Attention alone does not see order
#
# The three tokens of unit 04 again, in their order and shuffled: token 3 first, then 1, then 2.
#
# **Predict**: how do the outputs of the shuffled sentence differ from those of the sentence in order?

# %%
x, w_q, w_k, w_v = WORKED_EXAMPLE
order = np.array([2, 0, 1])
y = attention(*project(x, w_q, w_k, w_v))
y_shuffled = attention(*project(x[order], w_q, w_k, w_v))
assert np.allclose(y_shuffled, y[order])  # the same rows, shuffled in the same way
print(y, y_shuffled, sep="\n\n")

# %% [markdown]
# Token 1 gets the same output wherever it stands. For the translator of unit 02 this would be fatal: "forty five" and "five
# forty" would be the same set of words.
#
# ## A position is a vector that is added
#
# Let $p_t$ be a vector of width $D$ for each position, and give attention $x_t + p_t$ in place of $x_t$. Which vectors? For
# now any that differ from one another.
#
# **Predict**: token 2 moves from place 1 to place 2. Does its output change now?

# %%
p = np.array([[0.0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
y = attention(*project(x + p, w_q, w_k, w_v))
y_shuffled = attention(*project(x[order] + p, w_q, w_k, w_v))
assert not np.allclose(y_shuffled, y[order])

# %% [markdown]
# **What is wrong here?** A set of slides adds $p_t$ to the inputs on one page, and to queries, keys and values on another, as if
# both were the same: $q_t = x_t W_q + p_t$.

# %%
q, k, v = project(x, w_q, w_k, w_v)
try:
    q + p
except ValueError as error:
    print("D is 4 and d_k is 3:", error)

# %% [markdown]
# Even where the widths fit, the two differ. Added to the inputs, the position passes through the matrix, and training can
# decide what a query, a key or a value keeps of it: $(x_t + p_t) W_q = x_t W_q + p_t W_q$. A value may forget the position
# altogether; with $v_t = x_t W_v + p_t$ it cannot.

# %%
q_right, _, _ = project(x + p, w_q, w_k, w_v)
assert np.allclose(q_right, q + p @ w_q)
assert not np.allclose(q_right, q + p[:, :3])  # added behind the matrix: other queries

# %% [markdown]
# Adding against **concatenating**: one could glue $p_t$ to $x_t$ and make the matrices taller. That costs width; and adding is
# the case in which the two blocks of the tall matrix are equal.

# %%
glued = np.hstack([x, p])  # (T, 2D)
assert np.allclose(glued @ np.vstack([w_q, w_q]), (x + p) @ w_q)

# %% [markdown]
# ## Every pair of columns is a clock
#
# Which vectors? Numbers 0, 1, 2, … would grow without end. Vaswani et al. take clocks: columns $2i$ and $2i+1$ are the
# hand of a clock, and each pair turns slower than the one before.
#
# $$PE(t, 2i) = \sin\!\left(\frac{t}{b^{2i/D}}\right) \qquad PE(t, 2i+1) = \cos\!\left(\frac{t}{b^{2i/D}}\right) \qquad
# i = 0, 1, 2, \dots \qquad b = 10000$$
#
# **Predict** the row $PE(0)$ for $D = 4$. And which column changes most from $t = 0$ to $t = 1$?

# %%
table = sinusoidal(6, 4)
assert table[0].tolist() == [0, 1, 0, 1]
assert np.abs(table[1] - table[0]).argmax() == 0  # the fast clock: sin goes from 0 to 0.84
table

# %% [markdown]
# One number at a time, as the formula says, or the whole table at once: the same.

# %%
assert np.allclose(by_hand.sinusoidal_loops(50, 32), sinusoidal(50, 32), atol=1e-12)
assert np.abs(sinusoidal(100_000, 4)).max() <= 1  # it never grows

# %% [markdown]
# **What is wrong here?** A set of slides starts its exponents at $2 \cdot 1 / D$ and ends at $2 \cdot \frac{D}{2} / D = 1$. So no
# pair turns at the rate 1. Take $D = 2$, a single clock, and look at neighbours.

# %%
t = np.arange(3)
from_one = np.stack([np.sin(t / 10_000 ** (2 * 1 / 2)), np.cos(t / 10_000 ** (2 * 1 / 2))], axis=1)
from_zero = sinusoidal(3, 2)
assert np.abs(from_one[1] - from_one[0]).max() < 1.1e-4  # neighbours can hardly be told apart
assert np.abs(from_zero[1] - from_zero[0]).max() > 0.8

# %% [markdown]
# At $D = 512$ the difference is small, since $10000^{2/512}$ is 1.04; but it is not the table of the paper, and weights trained with
# one do not fit the other.
#
# **Play**: turn the width and the base. Rows are positions, columns come in pairs. **Predict** first: what does a base of 2 do to
# the right half of the image? Which columns can tell position 3 from position 4, and which can tell 3 from 43?

# %%
widgets.SinusoidImage(d_model=32, base=10_000.0, length=50)

# %% [markdown]
# ## Moving on by k is a rotation
#
# All clocks move on by a fixed angle in $k$ steps, wherever they stand. Sine and cosine of a sum say how:
#
# $$\begin{bmatrix}\sin(a + \alpha)\\ \cos(a + \alpha)\end{bmatrix} =
# \begin{bmatrix}\cos\alpha & \sin\alpha\\ -\sin\alpha & \cos\alpha\end{bmatrix}
# \begin{bmatrix}\sin a\\ \cos a\end{bmatrix}, \qquad \alpha = \frac{k}{b^{2i/D}}$$
#
# One such block for each pair, along the diagonal, is a matrix $R_k$ with $PE(t + k) = R_k\, PE(t)$ (here $PE(t)$ stands as a
# column). It depends on $k$ and not on $t$: a matrix that the network can learn once and use everywhere.
#
# **Predict**: what is $R_2 R_3$?

# %%
table = sinusoidal(100, 16)
R = rotation_matrix(7, 16)
assert all(np.allclose(R @ table[t], table[t + 7]) for t in range(93))
assert np.allclose(R @ R.T, np.eye(16))  # a rotation: lengths stay
assert np.allclose(rotation_matrix(2, 16) @ rotation_matrix(3, 16), rotation_matrix(5, 16))

# %% [markdown]
# So the dot product of two rows knows their distance, and nothing else: $PE(t) \cdot PE(t+k) = \sum_i \cos(k / b^{2i/D})$.
#
# **Predict**: is it the same for $k$ and $-k$?

# %%
dots = table @ table.T
assert np.allclose(dots[10, 15], dots[60, 65])  # the same wherever the pair stands
assert np.allclose(dots[10, 15], dots[15, 10])  # it does not know which of the two comes first
assert np.allclose(dots[0, 5], np.cos(5 / 10_000 ** (np.arange(0, 16, 2) / 16)).sum())

# %% [markdown]
# **Play**: the dot product against the distance (solid). The other two curves belong to sections below; come back to them.
# Where does the solid curve stop falling? What does the base change, what the width?

# %%
widgets.DotsByDistance(d_model=32, base=10_000.0)

# %% [markdown]
# ## Shuffling is noticed once positions are added
#
# The worked example again, now with the sinusoids, and all six orders of its three tokens.
#
# **Predict**: in how many of the six orders does token 1 get the output that it has in the sentence as it stands? Without
# positions it was six.


# %%
def output_of_token_1(order, positions):
    tokens = x[list(order)] + positions
    return attention(*project(tokens, w_q, w_k, w_v))[order.index(0)]


orders = list(permutations(range(3)))
blind = [output_of_token_1(o, 0.0) for o in orders]
seeing = [output_of_token_1(o, sinusoidal(3, 4)) for o in orders]

# %%
assert all(np.allclose(row, blind[0]) for row in blind)
assert sum(np.allclose(row, seeing[0]) for row in seeing) == 1  # only the sentence itself
print("without positions\n", np.array(blind), "\nwith positions\n", np.array(seeing))

# %% [markdown]
# A causal mask (unit 07) breaks the symmetry too: the first token sees one token, the second two. Keep this in mind for the
# last section, where one model has no positions but a mask.
#
# ## A learned table ends where training ended
#
# BERT and GPT-2 do not compute $p_t$: it is a table of parameters, a row for each position, learned as word vectors are. Each
# position fits the data. And then?
#
# **Predict**: the table has rows for 16 positions. What happens at position 16?

# %%
learned = np.random.default_rng(0).standard_normal((16, 4)) * 0.02
try:
    learned[16]
except IndexError as error:
    print(error)
assert sinusoidal(1, 4, start=16).shape == (1, 4)  # a formula has a row for it; whether that helps, you will see

# %% [markdown]
# ## Distance can live in the scores
#
# What matters in a sentence is mostly how far apart two words stand, not their places. So give the *score* the distance, and leave
# the inputs alone. **Shaw et al. 2018** learn two vectors for each distance $r = j - i$, clipped at $c$: $a^K_r$ is added to the key,
# $a^V_r$ to the value.
#
# $$s_{ij} = \frac{q_i \cdot (k_j + a^K_{r})}{\sqrt{d_k}} \qquad y_i = \sum_j w_{ij}\,(v_j + a^V_{r}) \qquad r = \text{clip}(j - i, -c, c)$$
#
# **Predict**: with tables of zeros, what is left? And does a sentence that stands five places later give other outputs?

# %%
rng = np.random.default_rng(1)
key_table, value_table = rng.standard_normal((5, 3)), rng.standard_normal((5, 3))  # c = 2: distances -2 … 2
zeros = np.zeros((5, 3))
assert np.allclose(by_hand.relative_attention(q, k, v, zeros, zeros), attention(q, k, v))
y_relative = by_hand.relative_attention(q, k, v, key_table, value_table)
y_shuffled = by_hand.relative_attention(q[order], k[order], v[order], key_table, value_table)
assert not np.allclose(y_shuffled, y_relative[order])  # order is seen, though no token knows its place

# %% [markdown]
# The formula has no place in it, only $j - i$, so five places later nothing changes. **DeBERTa** takes words and distances apart
# in the score itself, three products in place of one (and so $\sqrt{3 d_k}$):
#
# $$s_{ij} = \frac{q_i \cdot k_j + q_i \cdot k^r_{\delta(i,j)} + k_j \cdot q^r_{\delta(j,i)}}{\sqrt{3 d_k}} \qquad
# \text{word–word, word–distance, distance–word}$$
#
# Here $k^r$ and $q^r$ are learned tables with a row for each distance, and $\delta(i, j)$ is the row for $i - j$.

# %%
tables = np.zeros((4, 3)), np.zeros((4, 3))  # 2c rows, c = 2
without = by_hand.disentangled_scores(q, k, *tables)
assert np.allclose(without * np.sqrt(3), attention_scores(q, k))  # the word–word part alone
with_distance = by_hand.disentangled_scores(q, k, rng.standard_normal((4, 3)), rng.standard_normal((4, 3)))
assert not np.allclose(with_distance, without)

# %% [markdown]
# ## Rotary turns queries and keys
#
# $R_k$ moved clocks on. **Rotary** positions (Su et al. 2021) move queries and keys themselves: each pair of columns of a query at
# place $m$ is turned by $m / b^{2i/d_k}$, each key at $n$ by $n / b^{2i/d_k}$. In the product only the difference of the two
# angles is left:
#
# $$(R_m q) \cdot (R_n k) = q \cdot R_{n - m}\, k$$
#
# **Predict**: all tokens move 100 places to the right. Which scores change?

# %%
rng = np.random.default_rng(2)
q8, k8, v8 = (rng.standard_normal((5, 8)) for _ in range(3))
here, later = np.arange(5), np.arange(5) + 100
scores = attention_scores(rotary(q8, here), rotary(k8, here))
assert np.allclose(scores, attention_scores(rotary(q8, later), rotary(k8, later)))  # none
assert np.allclose(np.linalg.norm(rotary(q8), axis=1), np.linalg.norm(q8, axis=1))  # nothing is added

# %% [markdown]
# **What is wrong here?** "Positions are needed once, so I turn the queries only." It runs.

# %%
one_sided = [attention_scores(rotary(q8, t), k8) for t in (here, later)]
assert not np.allclose(*one_sided)  # now a score depends on the place of the query, not on the distance

# %% [markdown]
# The values are not turned: positions say where to look, and what is read stays as it is. And unlike $PE(t) \cdot PE(t+k)$, a
# rotary score can prefer one distance on one side. If a key's content is the query's, turned by $s$ steps, the score is
# highest $s$ tokens back. **Play**: go back to the figure with the three curves, and move "rotary looks back" to 12.

# %%
query = np.tile([[1.0, 0.0]], 16)
fits_twelve_back = np.repeat(rotary(query, [12]), 61, axis=0)
back = rotary(fits_twelve_back, -np.arange(61)) @ query[0]
assert back.argmax() == 12

# %% [markdown]
# ## ALiBi makes distance cost
#
# **ALiBi** (Press et al. 2022) has no vectors at all. A score loses a little with each token between query and key, at a rate of its own
# for each head:
#
# $$s_{ij} = \frac{q_i \cdot k_j}{\sqrt{d_k}} - m_h\,|i - j| \qquad m_h = 2^{-8h/H}, \quad h = 1 \dots H$$
#
# **Predict** the slopes for $H = 4$. What factor does the weight of a key lose at distance 10 in the first head, if all scores
# are equal?

# %%
assert alibi_slopes(4).tolist() == [1 / 4, 1 / 16, 1 / 64, 1 / 256]
flat = by_hand.attention_weights(np.zeros((11, 2)), np.zeros((11, 2)), bias=alibi_bias(4, 11)[0])
assert np.isclose(flat[10, 0] / flat[10, 10], np.exp(-10 / 4))
plots.weights(flat, [str(t) for t in range(11)], title="ALiBi's first head of four, all scores equal")

# %% [markdown]
# See the diagonal: near keys get most, and the weights fall alike to both sides. ALiBi cannot tell left from right; in
# decoders the causal mask does that. In the figure with the three curves, choose other heads: the last one forgets hardly anything.
#
# ## Trained models say which encodings extrapolate
#
# **What is wrong here?** One lecture says: "position encodings enable generalisation to lengths not seen in training", since sinusoids
# have a row for every place. Another says of the same sinusoids: "that does not really work". Both cannot be right. Let trained
# models decide: six kinds of positions, three seeds each, trained on 16 tokens, tested on 48.
#
# The task: letters and blanks, and at each place the model says which **letter came last**. `b _ _ f _ a` → `b b b f f a`. A model needs
# order for it, but a token that is far away never matters.
#
# The cells below need torch; everything above does not.

# %% tags=["needs-torch"]
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.blocks import EncoderBlock
from course_lib.positions import Alibi, LearnedPositions, RelativePositions, Rotary, SinusoidalPositions

torch.set_num_threads(1)
LETTERS, TRAINED, LONG, D, H = 8, 16, 48, 32, 4


# %% tags=["needs-torch"]
def last_letter(batch, length, generator):
    """Letters 1 to 8, six places of ten blank (0); the target is the last letter so far."""
    letters = torch.randint(1, LETTERS + 1, (batch, length), generator=generator)
    is_letter = torch.rand(batch, length, generator=generator) < 0.4
    is_letter[:, 0] = True
    place = torch.where(is_letter, torch.arange(length), 0).cummax(dim=1).values
    return letters * is_letter, letters.gather(1, place)


print(*last_letter(1, 12, torch.Generator().manual_seed(0)), sep="\n")

# %% [markdown]
# One block, as the library has it (unit 09 opens it), with a causal mask. Two kinds are added to the inputs; three work inside the
# scores. The learned table gets 48 rows, so that it can run at all; training reaches only the first 16.

# %% tags=["needs-torch"]
ADDED = {"learned": lambda: LearnedPositions(LONG, D), "sinusoidal": lambda: SinusoidalPositions(D)}
SCORED = {"rotary": lambda: Rotary(D // H), "relative": lambda: RelativePositions(D // H, 4), "alibi": lambda: Alibi(H)}


class Reader(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed = nn.Embedding(LETTERS + 1, D)
        self.place = ADDED.get(kind, nn.Identity)()
        self.block = EncoderBlock(D, H, 4 * D, positions=SCORED.get(kind, lambda: None)())
        self.out = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, LETTERS + 1))

    def forward(self, tokens):
        return self.out(self.block(self.place(self.embed(tokens)), causal=True))


# %% [markdown]
# Training goes as in unit 01, with new sentences in each step. Two things only make it quick and calm: the learning rate rises and
# then falls (`OneCycleLR`), and gradients that are too long are cut (`clip_grad_norm_`). Unit 10 comes back to both.


# %% tags=["needs-torch"]
def train(kind, task, seed, steps):
    torch.manual_seed(seed)
    draw, model = torch.Generator().manual_seed(seed), Reader(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        tokens, target = task(24, TRAINED, draw)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


# %% [markdown]
# What to measure: the share of right answers at length 16, and at length 48 in the places from 16 on, which no training has
# reached. To count all 48 would hide the failure behind the 16 easy ones.


# %% tags=["needs-torch"]
def measure(kind, task, steps):
    """(seeds, 2): right at length 16, and right beyond it at length 48."""
    rows = []
    for seed in range(3):
        model, unseen = train(kind, task, seed, steps), torch.Generator().manual_seed(1000 + seed)
        with torch.no_grad():
            right = [model(s).argmax(-1) == y for s, y in (task(256, n, unseen) for n in (TRAINED, LONG))]
        rows.append([right[0].float().mean().item(), right[1][:, TRAINED:].float().mean().item()])
    return np.array(rows)


# %% [markdown]
# **Predict**, before you run: order the six kinds (none, learned, sinusoidal, rotary, relative, alibi) by what they will keep beyond
# 16. Will the sinusoids be better than the learned table? Better than no positions?

# %% tags=["needs-torch"]
last = {kind: measure(kind, last_letter, 150) for kind in ("none", "learned", "sinusoidal")}

# %% tags=["needs-torch"]
last |= {kind: measure(kind, last_letter, 150) for kind in SCORED}


# %% tags=["needs-torch"]
def show(results):
    print(f"{'kind':12}{'inside 16 (three seeds)':>28}{'beyond 16 (three seeds)':>28}")
    for kind, rows in results.items():
        inside, beyond = ("  ".join(f"{share:.2f}" for share in column) for column in rows.T)
        print(f"{kind:12}{inside:>28}{beyond:>28}")


show(last)

# %% [markdown]
# What to notice, as assertions that hold for every seed:

# %% tags=["needs-torch"]
for kind in ("learned", "sinusoidal"):
    assert last[kind][:, 0].min() > 0.97  # nearly perfect where they were trained
    assert last[kind][:, 1].max() < last["none"][:, 1].min()  # beyond, worse than no positions at all
for kind in ("rotary", "relative", "alibi"):
    assert last[kind][:, 0].min() > 0.93
    assert last[kind][:, 1].min() > last["none"][:, 1].max() + 0.15  # they lose something, and keep most


# %% [markdown]
# The sinusoids have a row for place 30, but training has never shown it to the network: on this task the formula is no better than
# the untrained rows of the learned table, and both are worse than no positions. So the second lecture is right about sinusoids, and
# what the first one hoped for is done by encodings that see *distances*: 3 tokens back is 3 tokens back, at place 10 as at
# place 40. (Why is "relative" not perfect even inside 16? Its table ends at distance 4, so all letters farther back look alike.)
#
# One task is one task. Here is another: say the letter **directly before**. `b f a` → `_ b f`.
#
# **Predict**: ALiBi prefers near keys, and the nearest of all is the token itself. Who will win now?


# %% tags=["needs-torch"]
def letter_before(batch, length, generator):
    letters = torch.randint(1, LETTERS + 1, (batch, length), generator=generator)
    return letters, F.pad(letters, (1, 0))[:, :-1]


before = {kind: measure(kind, letter_before, 120) for kind in ("none", "learned", "sinusoidal")}

# %% tags=["needs-torch"]
before |= {kind: measure(kind, letter_before, 120) for kind in SCORED}
show(before)

# %% tags=["needs-torch"]
chance = 1 / LETTERS
for kind in ("learned", "sinusoidal"):
    assert before[kind][:, 0].min() > 0.9 and before[kind][:, 1].max() < chance + 0.12  # near guessing
assert before["relative"][:, 1].min() > 0.95  # "one back" is one row of its table, the same everywhere
assert before["alibi"][:, 0].max() < 0.9  # "one back" is hard for it even inside: the token itself is nearer
for kind in SCORED:
    assert before[kind][:, 1].min() > before["none"][:, 1].max() + 0.2

# %% [markdown]
# So, for these two tasks and this small model: what was added to the inputs breaks off at the trained length, in all seeds. What
# sees distances keeps most of it, and which of the three keeps most depends on the task: ALiBi where near tokens matter more,
# Shaw's table where one exact distance counts. Rotary is good at both inside, and loses some beyond. Two things are new to it
# there: more keys share each softmax, and distances above 15 turn its clocks to differences that training never showed.
#
# ## Barriers and solutions
#
# | barrier | solution |
# |---|---|
# | an RNN squeezes the sentence into one state (01) | attention reads all states (02) |
# | self-attention has nothing to learn (03) | queries, keys and values, three matrices (04) |
# | scores grow with the width, softmax saturates (05) | divide by $\sqrt{d_k}$, in heads by $\sqrt{D/H}$ (05, 06) |
# | one row of weights can look for one thing only (06) | $H$ heads, side by side (06) |
# | must not see the future (07) | masks (07) |
# | no notion of order (03) | positions: added to the inputs, or distances in the scores (08) |
# | only weighted averages (03) | *next: unit 09, feed-forward* |
#
# **Three takeaways**
#
# 1. Without positions attention sees a set of tokens. Sinusoids are clocks, fast to slow, with exponents from 0; $k$ steps on is a
#    rotation $R_k$ that does not depend on $t$.
# 2. Rotary turns queries and keys so that a score sees $n - m$ alone; ALiBi subtracts $m_h |i - j|$; Shaw and DeBERTa learn vectors
#    for distances.
# 3. A formula for every place is no knowledge about every place: the models trained here lost what was added to the inputs beyond the trained
#    length, and kept most of what depends on distance.
#
# **To think about**
#
# - $PE(t) \cdot PE(t + k)$ is the same for $k$ and $-k$. How can a network with sinusoids still tell left from right? (Think of
#   $W_q \ne W_k$.)
# - With an encoder (no causal mask), which of the six kinds could still solve "the letter before"? Which could not, and why?
# - Train on 16 tokens, but start each sentence at a random place below 48. Which rows of the table would that change?
#
# **To read**: Vaswani et al. 2017, section 3.5; Shaw et al. 2018, *Self-Attention with Relative Position Representations*; Wang et al. 2019,
# *Self-Attention with Structural Position Representations*, where positions come from the tree of dependencies; He et al. 2021,
# *DeBERTa*; Su et al. 2021, *RoFormer*; Press et al. 2022, *Train Short, Test Long*.
#
# **On**: try it yourself in `exercises/08_positions.ipynb`. Then unit 09, the Transformer block, asks what else a layer
# needs besides attention.
