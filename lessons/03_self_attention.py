# %% [markdown]
# # 03 Self-attention, no parameters yet
#
# In unit 02 a decoder looked at the states of an encoder, and an RNN had to make those states first, word by word. Here the
# RNN goes and attention stays: a sentence looks at *itself*, and every word gets a new vector, made of all words at once. To
# see what attention does on its own, nothing in this unit is learned.
#
# **After this unit you can**
#
# - write self-attention with loops, then as matrices, and show that both are equal (03-a);
# - say what the weights depend on: the input, and no parameters (03-b);
# - prove in code that self-attention is permutation equivariant (03-c);
# - say when a dot product is a cosine, and name other measures (03-d).
#
# **You need** unit 02: scores, softmax, a weighted sum; and NumPy arrays with `@` for products. **Time**: 45 minutes to read
# and play; all cells together run in a few seconds.
#
# Notation, as everywhere in the course: tokens are rows, $X$ is $T \times D$: a sentence of $T$ tokens, each a vector of width
# $D$. Row $i$ is $x_i$; we count from 1 in the text, and Python counts from 0. A *token* is a piece of text, here a word.

# %%
from inspect import signature

import numpy as np

from course_lib import plots, widgets
from course_lib.by_hand import WORKED_EXAMPLE, cosine, self_attention, self_attention_loops, softmax
from course_lib.number_words import english

np.set_printoptions(precision=4, suppress=True)

# %% [markdown]
# ## A word needs its neighbours
#
# "I arrived at the bank after crossing the **river**." "I arrived at the bank after crossing the **street**." The word *bank* is
# the same, its meaning is not, and the word that decides stands at the other end of the sentence. If a word is one fixed
# vector, that vector cannot be right in both sentences. So: make a *new* vector for *bank*, from all words of its sentence.
#
# Self-attention does this in three stages, for each token $i$:
#
# 1. **similarity**: a score $s_{ij}$ for every token $j$;
# 2. **softmax**: the scores become weights $w_{ij}$ that sum to 1;
# 3. **weighted sum**: the new vector is $y_i = \sum_j w_{ij}\, x_j$.
#
# These are the stages of unit 02. What is new: the one who asks and those who are read are the same tokens.
#
# Before real words, an example for pencil and paper, which comes back in unit 04: three tokens of width 4.

# %%
x = WORKED_EXAMPLE.x
print(x)

# %% [markdown]
# ## Similarity is a dot product
#
# $$s_{ij} = x_i \cdot x_j = \sum_c x_{ic}\, x_{jc}$$
#
# Multiply place by place, and add. The result is large where both vectors are large in the same places.
#
# **Predict** by hand the three scores of token 3, $[1, 1, 1, 1]$: with $[1, 0, 1, 0]$, with $[0, 2, 0, 2]$, and with itself.

# %%
scores_of_token_3 = [x[2] @ x[j] for j in range(3)]
assert scores_of_token_3 == [2, 4, 4]
scores_of_token_3

# %% [markdown]
# ## Softmax runs along each row
#
# $$w_{ij} = \frac{\exp(s_{ij})}{\sum_{j'} \exp(s_{ij'})}$$
#
# **Predict**: which of the three weights of token 3 are equal? Does it attend most to itself?

# %%
weights_of_token_3 = softmax(scores_of_token_3)
assert np.allclose(weights_of_token_3, [0.0634, 0.4683, 0.4683], atol=5e-5)
assert np.isclose(weights_of_token_3.sum(), 1)
weights_of_token_3

# %% [markdown]
# Token 2 gets as much as token 3 itself: it is less like token 3 in direction, but it is longer. Remember that; we come back
# to it.
#
# All scores at once make a table with a row for each token that attends. $x_i \cdot x_j = x_j \cdot x_i$, so the table is
# symmetric. **Predict**: are the weights symmetric, too?

# %%
scores = np.array([[x[i] @ x[j] for j in range(3)] for i in range(3)])
weights = softmax(scores)  # along each row
assert scores.tolist() == [[2, 0, 2], [0, 8, 4], [2, 4, 4]]
assert np.array_equal(scores, scores.T)
assert not np.allclose(weights, weights.T)  # each row is divided by a sum of its own
weights

# %% [markdown]
# Token 3 gives token 2 nearly half of its attention, token 2 gives token 3 less than two hundredths: its own length keeps it
# busy with itself.
#
# **What is wrong here?** Somebody runs the softmax over the other axis: "the scores are symmetric, so it cannot matter".
# **Predict** what the rows will sum to.

# %%
down_the_columns = softmax(scores, axis=0)
print("row sums:", down_the_columns.sum(axis=1))
assert not np.allclose(down_the_columns.sum(axis=1), 1, atol=0.1)  # half a unit for token 1, one and a half for token 2
assert np.allclose(down_the_columns, weights.T)  # it turns the table: who attends is now attended to

# %%
plots.weights(weights, ["token 1", "token 2", "token 3"], title="Who reads whom")

# %% [markdown]
# See row by row where the attention goes: token 2 keeps almost all for itself, tokens 1 and 3 share. (*Query* is the one who attends,
# *key* the one who is attended to. Here every token is both; unit 04 makes more of these two words.)
#
# ## The new vector is a weighted sum of all tokens
#
# $$y_i = \sum_j w_{ij}\, x_j$$
#
# **By hand**: $y_3 = 0.0634\,[1, 0, 1, 0] + 0.4683\,[0, 2, 0, 2] + 0.4683\,[1, 1, 1, 1]$. **Predict**: which of its four numbers
# are equal?

# %%
y_3 = sum(weights_of_token_3[j] * x[j] for j in range(3))
assert np.allclose(y_3, [0.5317, 1.4049, 0.5317, 1.4049], atol=5e-5)
y_3

# %% [markdown]
# The weights are positive and sum to 1, so a new vector is an *average*: in no place can it be larger than the largest token, or
# smaller than the smallest. **Predict** whether that holds for any tokens, before you run it on random ones.

# %%
for seed in range(3):
    tokens = np.random.default_rng(seed).standard_normal((6, 4))
    new = self_attention(tokens)
    assert (new <= tokens.max(axis=0) + 1e-12).all() and (new >= tokens.min(axis=0) - 1e-12).all()

# %% [markdown]
# Now *bank*. The vectors are made by hand, two numbers for each word: how much water is in it, and how much town. *Bank* has
# both, *at* and *after* have neither. **Predict**: which of the two numbers of the new *bank* grows beside *river*, and which beside *street*?

# %%
meaning = {"bank": [1.0, 1.0], "at": [-0.5, 0.0], "after": [0.0, -0.5], "river": [2.0, 0.0], "street": [0.0, 2.0]}


def new_bank(*words):
    return self_attention(np.array([meaning[word] for word in words]))[words.index("bank")]


by_river, by_street = new_bank("at", "bank", "after", "river"), new_bank("at", "bank", "after", "street")
print("water, town: by the river", by_river, "by the street", by_street)
assert by_river[0] > 2 * by_river[1] and by_street[1] > 2 * by_street[0]

# %% [markdown]
# One word, two sentences, two vectors. In trained networks nobody writes these numbers by hand: they are learned.
#
# **Play**: drag the words. The squares are the new vectors. Try: turn *river* towards the town. Make *after* very long:
# who reads it now? Can you push a square out of the area between the arrows' tips?

# %%
river_words = ["at", "bank", "after", "river"]
widgets.TokenPlane(tokens=river_words, vectors=[meaning[word] for word in river_words])

# %% [markdown]
# A second example. "Fatima accepted a job in deep learning because **she** loves the topic." The words that count, with two
# numbers each: how much person, how much work. **Predict**: which word does *she* read most? And whom does *Fatima*?

# %%
story = {"Fatima": [2.0, 0.3], "job": [0.0, 1.5], "learning": [0.0, 1.8], "she": [1.4, 0.0], "topic": [0.1, 1.6]}
words, vectors = list(story), np.array(list(story.values()))
reads = softmax(vectors @ vectors.T)
she, fatima = words.index("she"), words.index("Fatima")
assert reads[she].argmax() == fatima and reads[she, fatima] > 0.5
assert reads[fatima].argmax() == fatima
plots.bars(reads[she], words, title="What “she” reads")

# %% [markdown]
# See the longest bar: the new vector of *she* is for the most part *Fatima*. So it will know, one layer later, who is meant.
#
# ## Loops and matrices give the same numbers
#
# For all tokens, one after the other: two loops, one inside the other. (`self_attention_loops` of the library reads the same.)


# %%
def with_loops(x):
    y = np.zeros(x.shape)
    for i in range(len(x)):  # who attends
        w_i = softmax([x[i] @ x[j] for j in range(len(x))])
        for j in range(len(x)):  # who is attended to
            y[i] += w_i[j] * x[j]
    return y


assert np.allclose(with_loops(x)[2], y_3)

# %% [markdown]
# Row $i$ of $X$ with row $j$ of $X$ is entry $(i, j)$ of $X X^\top$. And row $i$ of the weights times $X$ is $\sum_j w_{ij} x_j$.
# So all of it is
#
# $$Y = \text{softmax}(X X^\top)\, X$$
#
# **Predict** the three shapes for $T$ tokens of width $D$: the scores, the weights, the outputs.


# %%
def with_matrices(x):
    scores = x @ x.T  # (T, D) times (D, T) is (T, T)
    weights = softmax(scores)  # (T, T), each row sums to 1
    return weights @ x  # (T, T) times (T, D) is (T, D)


assert np.abs(with_loops(x) - with_matrices(x)).max() < 1e-6

# %% [markdown]
# Three tokens may agree by luck. Other sizes, other numbers, three seeds, and the library's own versions:

# %%
for seed in range(3):
    tokens = np.random.default_rng(seed).standard_normal((7, 5))
    for same in (with_matrices, self_attention_loops, self_attention):
        assert np.abs(with_loops(tokens) - same(tokens)).max() < 1e-6

# %% [markdown]
# **What is wrong here?** A loop that saves an array: it writes each new vector over the old one. **Predict** which of the three
# tokens come out right.

# %%
written = x.copy()
for i in range(3):
    written[i] = softmax(written @ written[i]) @ written  # reads what it has written
right = [bool(np.allclose(written[i], with_loops(x)[i])) for i in range(3)]
print(right)
assert right == [True, False, False]  # token 2 has read a new token 1

# %% [markdown]
# All new vectors are made from the old ones, so no token has to wait for another. They can be computed in any order, or all at
# the same time: that is what an RNN cannot do, whose state $t$ needs state $t - 1$.

# %%
last_first = {i: softmax(x @ x[i]) @ x for i in (2, 0, 1)}
assert all(np.allclose(last_first[i], with_matrices(x)[i]) for i in range(3))

# %% [markdown]
# ## The weights depend on the input, and on nothing else
#
# A layer of a network has numbers that training finds, its parameters. **Predict**: how many does self-attention have?

# %%
assert list(signature(with_matrices).parameters) == ["x"]  # tokens go in, and that is all

# %% [markdown]
# None. Compare it with a layer that mixes tokens by a fixed table $M$, which training would find: $Y = M X$. **Predict**: what
# happens to the shares of each token when another sentence comes? And when a longer one comes?

# %%
M = np.full((3, 3), 1 / 3)  # a fixed table: whatever the tokens, everybody reads everybody alike
other = np.array([[3.0, 0, 0, 1], [0, 0, 2, 0], [1, 0, 1, 0]])
assert not np.allclose(softmax(other @ other.T), softmax(x @ x.T), atol=0.1)  # other tokens, other weights; M stays M
longer = np.vstack([x, other])
assert self_attention(longer).shape == (6, 4)
try:
    M @ longer
except ValueError as error:
    print("The fixed table fits three tokens only:", error)

# %% [markdown]
# So the weights belong to the *sentence*: they are computed anew from every input, of any length.
#
# How far does one token reach? Change token 3 and look at token 1. **Predict** what changes: the score $s_{12}$, the weight
# $w_{12}$, the ratio $w_{12} / w_{11}$.

# %%
changed = x.copy()
changed[2] = [3, 0, 0, 0]
before, after = softmax(x @ x.T)[0], softmax(changed @ changed.T)[0]
print("weights of token 1, before and after:", before, after)
assert (changed @ changed.T)[0, 1] == (x @ x.T)[0, 1]  # a score belongs to two tokens
assert not np.isclose(after[1], before[1], atol=0.01)  # a weight is a share, and belongs to all
assert np.isclose(after[1] / after[0], before[1] / before[0])  # what they share out between them stays

# %% [markdown]
# And $X$ enters three times: twice in the scores, once in the sum. **Predict**: all tokens twice as long; are the outputs twice as
# long?

# %%
assert np.array_equal((2 * x) @ (2 * x).T, 4 * scores)  # scores four times as large, so the weights are sharper
assert not np.allclose(self_attention(2 * x), 2 * self_attention(x), atol=0.1)

# %% [markdown]
# (Scores that grow make softmax sharp, too sharp in the end: unit 05 is about that.)
#
# ## Shuffling the tokens shuffles the outputs
#
# The formula never says *where* a token stands. So what happens to "four thousand five" if its words are put in another
# order? Every word gets a vector of width 3, made by hand: words for digits resemble each other.

# %%
vector_of = {"four": [1.0, 0.5, 0.0], "five": [0.8, 0.0, -0.6], "seven": [0.9, 0.3, -0.3],
             "seventy": [0.7, 0.6, -0.2], "hundred": [-0.2, 1.0, 0.6], "thousand": [0.0, 1.2, 0.4]}  # fmt: skip
sentence = english(4005)
first = np.array([vector_of[word] for word in sentence])
order = [2, 1, 0]  # the word in place 1 stood in place 3 before
shuffled = first[order]
print(sentence, "→", [sentence[i] for i in order])

# %% [markdown]
# **Predict**: (a) will the three output rows be the same as before? (b) Will *four* have the same new vector as before?

# %%
print(self_attention(first), self_attention(shuffled), sep="\n\n")
assert np.allclose(self_attention(shuffled), self_attention(first)[order])  # (b) yes: shuffled like the tokens
assert not np.allclose(self_attention(shuffled), self_attention(first), atol=0.1)  # (a) no

# %% [markdown]
# Shuffle first and then attend, or attend first and then shuffle: the same. That is called **permutation equivariance**,
#
# $$f(P X) = P\, f(X)$$
#
# where the matrix $P$ has one 1 in each row and each column, and puts rows in another order. The weights move with the tokens, too: with
# *both* tokens, the one that attends (rows) and the one that is attended to (columns).
#
# **Play**: drag a word to another place, or move it with the arrow keys. Watch its row and its column (dashed). Which of the two
# changes below the tables stays 0?

# %%
widgets.Reorder(tokens=sentence, vectors=first)

# %% [markdown]
# Why must it be so? $f(PX) = \text{softmax}\big((PX)(PX)^\top\big)\, PX$ has three $P$ in it. **Predict** how many are left in the end, and
# where. A proof is a chain of steps, and each can be run:
#
# 1. $(PX)(PX)^\top = P\, X X^\top P^\top$: the scores move in rows and columns.
# 2. Softmax treats each row alone, and does not care for the order inside it: $\text{softmax}(P S P^\top) = P\, \text{softmax}(S)\, P^\top$.
# 3. $P W P^\top\, P X = P W X$, since $P^\top P = I$: shuffled back and forth is not shuffled at all.

# %%
P = np.eye(3)[order]
S, W = first @ first.T, softmax(first @ first.T)
assert np.allclose(P @ first, shuffled)
assert np.allclose((P @ first) @ (P @ first).T, P @ S @ P.T)  # 1
assert np.allclose(softmax(P @ S @ P.T), P @ W @ P.T)  # 2
assert np.array_equal(P.T @ P, np.eye(3))  # 3
assert np.allclose(P @ W @ P.T, W[order][:, order])  # in NumPy: the rows, then the columns

# %% [markdown]
# Many sizes and any order, on three seeds: **shuffling commutes with self-attention**. (To $10^{-12}$ and not to the last bit: a sum
# in another order is rounded otherwise.)

# %%
for seed in range(3):
    draw = np.random.default_rng(seed)
    tokens, any_order = draw.standard_normal((8, 5)), draw.permutation(8)
    one_road, other_road = self_attention(tokens[any_order]), self_attention(tokens)[any_order]
    assert np.abs(one_road - other_road).max() < 1e-12
    assert np.abs(one_road - self_attention(tokens)).max() > 0.5  # and it is no invariance

# %% [markdown]
# **What is wrong here?** "Self-attention is permutation *invariant*", say some lecture notes; "after shuffling: same activations",
# say others. Invariant means $f(PX) = f(X)$: nothing moves. Run it as they say:

# %%
claimed = np.allclose(self_attention(shuffled), self_attention(first))
assert not claimed  # place 1 held the new vector of "four", now it holds that of "five"
moved = np.abs(self_attention(shuffled) - self_attention(first)).max()
print(f"place by place, the outputs moved by up to {moved:.2f}")

# %% [markdown]
# What *is* invariant: whatever you compute from the outputs without looking at their order, such as their mean. **Predict** for a
# layer that treats each token alone, $f(x_i) = \tanh(x_i W)$: invariant, equivariant, or neither? And for a running sum, as an RNN
# makes one?

# %%
assert np.allclose(self_attention(shuffled).mean(axis=0), self_attention(first).mean(axis=0))  # invariant
alone = np.tanh(first @ np.ones((3, 2)))
assert np.allclose(np.tanh(shuffled @ np.ones((3, 2))), alone[order])  # equivariant
assert not np.allclose(np.cumsum(shuffled, axis=0), np.cumsum(first, axis=0)[order], atol=0.1)  # neither: order counts
assert not np.allclose(np.cumsum(shuffled, axis=0), np.cumsum(first, axis=0), atol=0.1)

# %% [markdown]
# ## Self-attention sees a bag of words
#
# Look at what we shuffled: "four thousand five" became "five thousand four". 4005 and 5004 are different numbers.
# **Predict**: can a network tell them apart, if all it knows are the outputs of self-attention, as a bag?

# %%
assert [sentence[i] for i in order] == english(5004)
bag = sorted(map(tuple, self_attention(first).round(9)))
other_bag = sorted(map(tuple, self_attention(shuffled).round(9)))
assert bag == other_bag  # the same three vectors

# %% [markdown]
# It cannot. For "forty five", which unit 02 translated, "five forty" would be as good. This is the price of dropping the RNN, which
# got the order for free. Unit 08 gives it back: it adds to each token *where* it stands.
#
# People say that self-attention works on *sets*. Nearly: in a set nothing stands twice. **Predict**: in "seven hundred seventy
# seven", do both *seven* get the same new vector? And does *hundred* notice that there are two of them?

# %%
number = english(777)
twice = self_attention(np.array([vector_of[word] for word in number]))
once = self_attention(np.array([vector_of[word] for word in number[:-1]]))
assert np.allclose(twice[0], twice[3])  # the same word, the same new vector
assert not np.allclose(twice[1], once[1], atol=0.01)  # two of them weigh more than one: a bag, not a set

# %% [markdown]
# ## A dot product is a cosine only for unit vectors
#
# $$\cos(a, b) = \frac{a \cdot b}{|a|\,|b|}$$
#
# The cosine looks at directions only: 1 for the same one, 0 at a right angle, −1 for opposite ones. A dot product looks at lengths
# as well. It is a cosine where both lengths are 1, and nowhere else.
#
# **What is wrong here?** A set of slides explains why the dot product: "match = 1 (cos 0°), opposites = −1 (cos 180°)". **Predict**
# the dot product of token 2, $[0, 2, 0, 2]$, with itself, and with its opposite.

# %%
match, opposite = x[1] @ x[1], x[1] @ -x[1]
assert match == 8 and opposite == -8  # the squared length, and not 1 and −1
assert np.isclose(cosine(x[1], x[1]), 1) and np.isclose(cosine(x[1], -x[1]), -1)
unit = x[1] / np.linalg.norm(x[1])
assert np.isclose(unit @ unit, 1) and np.isclose(unit @ -unit, -1)  # for unit vectors the slide is right

# %% [markdown]
# The difference has consequences. With unit vectors nobody is more like you than yourself, so every token reads itself most.
# **Predict** whether that holds without: here token 2 is three times as long as token 1, and points the same way.

# %%
loud = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
assert softmax(loud @ loud.T)[0].argmax() == 1  # token 1 reads token 2, which is longer
for seed in range(3):
    arrows = np.random.default_rng(seed).standard_normal((9, 4))
    units = arrows / np.linalg.norm(arrows, axis=1, keepdims=True)
    assert (softmax(units @ units.T).argmax(axis=1) == np.arange(9)).all()

# %% [markdown]
# ## Other measures work as well
#
# Nothing forces the dot product. Any number that is large for similar tokens will do:
#
# | measure | score of $x_i$ and $x_j$ | |
# |---|---|---|
# | dot product | $x_i \cdot x_j$ | direction and length; all pairs are one product |
# | cosine | $x_i \cdot x_j \,/\, (\lvert x_i\rvert\,\lvert x_j\rvert)$ | direction only; between −1 and 1 |
# | distance | $-\tfrac12 \lvert x_i - x_j\rvert^2$ | largest, 0, for equal vectors |
# | general (02) | $x_i^\top W x_j$ | with a matrix to learn |
# | additive (02) | $v^\top \tanh(W [x_i; x_j])$ | with a small network to learn |
#
# **Predict**: for which vectors do the dot product and the distance give the same *weights*? Multiply out $-\tfrac12|x_i - x_j|^2$
# and remember that softmax does not see what is added to a whole row.


# %%
def by_distance(x):
    differences = x[:, None, :] - x[None, :, :]  # (T, T, D)
    return softmax(-(differences**2).sum(axis=-1) / 2)


assert np.allclose(by_distance(units), softmax(units @ units.T))  # unit vectors: the same weights
assert not np.allclose(by_distance(x), softmax(x @ x.T), atol=0.1)  # else a long vector is far, and no longer loud

# %% [markdown]
# $-\tfrac12|x_i - x_j|^2 = x_i \cdot x_j - \tfrac12|x_i|^2 - \tfrac12|x_j|^2$. The second term is the same along row $i$; the third
# is what a long token pays, and if all have one length it is the same for all.
#
# **Predict**: with another measure, does shuffling still commute? Which step of the proof needed the dot product?

# %%
some_order = np.roll(np.arange(9), 2)
weights_then = by_distance(units)[some_order][:, some_order]
assert np.allclose(by_distance(units[some_order]), weights_then)

# %% [markdown]
# It does, with every measure that looks at two tokens only: the table of scores moves in rows and columns (step 1), whatever its entries
# are made of, and the other steps do not ask.
#
# **Play** once more with the first figure: choose *cosine* or *distance* in its list, and make *after* long again.
#
# ## The same in torch (needs torch)
#
# The cells below need torch; everything above does not. torch's own attention takes queries, keys and values, which are unit 04;
# here all three are the tokens themselves. **Predict**: does it give our numbers?

# %% tags=["needs-torch"]
import torch
from torch.nn.functional import scaled_dot_product_attention

from course_lib.attention import self_attention as torch_self_attention

x_torch = torch.from_numpy(x.copy())
assert np.allclose(torch_self_attention(x_torch).numpy(), self_attention(x))
ours = scaled_dot_product_attention(x_torch, x_torch, x_torch, scale=1.0)
assert np.allclose(ours.numpy(), self_attention(x))

# %% [markdown]
# No parameters does not mean that nothing can be learned: a gradient flows back into the tokens, so their *vectors* can move.

# %% tags=["needs-torch"]
free = x_torch.clone().requires_grad_()
torch_self_attention(free)[0].sum().backward()  # the new vector of token 1 …
assert bool((free.grad != 0).any(dim=1).all())  # … asks all three tokens to move

# %% [markdown]
# ## Barriers and solutions
#
# | barrier | solution |
# |---|---|
# | an RNN squeezes the sentence into one state (01) | attention reads all states (02) |
# | padding is read like words (02) | a mask, before the softmax (02) |
# | the encoder reads word by word (01) | self-attention: all words at once (03) |
# | self-attention has nothing to learn (03) | *next: unit 04, queries, keys and values* |
# | no notion of order: 4005 = 5004 (03) | *still open: unit 08* |
# | only weighted averages (03) | *still open: unit 09* |
#
# **Three takeaways**
#
# 1. Similarity, softmax, weighted sum: $Y = \text{softmax}(X X^\top)\, X$, and loops give the same numbers.
# 2. The weights are made of the input alone. Shuffled tokens give shuffled outputs: **equivariant**, not invariant, so order is lost.
# 3. A dot product is a cosine for unit vectors only; otherwise long vectors are loud.
#
# **To think about**
#
# - What does self-attention return for a sentence of one token? For a sentence of equal tokens?
# - Scores are symmetric: $s_{ij} = s_{ji}$. Should *she* look at *Fatima* as much as *Fatima* looks at *she*? (Unit 04 says no.)
# - Apply self-attention again and again to its own output. Where do the squares of the first figure go?
#
# **To read**: Vaswani et al. 2017, *Attention Is All You Need*, the introduction and section 4, why self-attention; Peter Bloem 2019,
# *Transformers from scratch*, the part on self-attention; Zaheer et al. 2017, *Deep Sets*, on functions that do not see order.
#
# **On**: try it yourself in `exercises/03_self_attention.ipynb`. Then unit 04 gives every token three roles, and something to learn.
