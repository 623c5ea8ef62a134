# %% [markdown]
# # 04 Queries, keys and values
#
# In unit 03 every token was compared with every other token as it stood, and nothing could be learned. Here each token gets
# three roles, each made by a matrix: what it *asks for*, what it can be *found by*, and what it *hands out*.
#
# **After this unit you can**
#
# - make queries, keys and values, and say why there are three matrices (04-a);
# - compute attention by hand: scores, weights, outputs (04-b);
# - write attention for all queries as matrix products (04-c);
# - use cross-attention, with other numbers of queries than of keys (04-d);
# - tell hard from soft lookup, and move between them by temperature (04-e);
# - map the row convention onto the column convention (04-f).
#
# **You need** unit 03: dot products as similarity, softmax, a weighted sum. **Time**: 50 minutes to read and play; all cells
# together run in a few seconds.
#
# Notation, as everywhere in the course: tokens are rows, $X$ is $T \times D$. There are $T$ queries and $S$ keys, of width
# $d_k$; values have width $d_v$.

# %%
import numpy as np

from course_lib import plots, widgets
from course_lib.by_hand import (
    WORKED_EXAMPLE,
    attention,
    attention_loops,
    attention_weights,
    hard_lookup,
    project,
    soft_lookup,
    softmax,
)

np.set_printoptions(precision=4, suppress=True)

# %% [markdown]
# ## A dictionary answers with one value
#
# A database of films has a *key* for each film, its title, and a *value*, the film itself. You come with a *query*, "Star
# Wars". The database compares the query with every key, picks the best match, and returns its value.
#
# Titles as numbers: let each film be two numbers, how much space and how much romance it has. A query is such a pair too, and
# a dot product says how well it fits a key.

# %%
titles = ["Star Wars", "Titanic", "Wall-E"]
keys = np.array([[2.0, 0.2], [0.1, 2.0], [1.2, 1.2]])  # space, romance
values = np.array([[1977.0], [1997.0], [2008.0]])  # what is handed out: the year
query = np.array([1.0, 0.0])  # "something with space in it"
scores = keys @ query
print({title: float(score) for title, score in zip(titles, scores, strict=True)})

# %% [markdown]
# **Predict** before you run the next cell: which year does a hard lookup return?

# %%
found = hard_lookup(query, keys, values)
assert found == 1977
found

# %% [markdown]
# ## A soft lookup blends all values
#
# A hard lookup cannot learn: move the query a little and nothing changes, until the answer jumps. So let every value take
# part, with a weight that grows with its score. Softmax makes such weights, and a **temperature** $\tau$ says how sharp they
# are:
#
# $$\text{soft}(q) = \sum_j a_j\, v_j, \qquad a = \text{softmax}\!\left(\frac{q \cdot k_1}{\tau}, \dots, \frac{q \cdot k_S}{\tau}\right)$$
#
# **Predict**: what comes back when $\tau$ is nearly 0? And when it is very large?

# %%
cold, warm, hot = (soft_lookup(query, keys, values, t) for t in (0.01, 1.0, 1000.0))
assert np.allclose(cold, hard_lookup(query, keys, values))  # a database again
assert np.allclose(hot, values.mean(axis=0), atol=0.1)  # everybody counts the same
print(cold, warm, hot)

# %% [markdown]
# **Play**: first leave the query where it is and turn the temperature down from 1. Below which temperature is the answer 1978.0
# or less, within one year of the database's? Then move the query about, and watch the returned value blend.

# %%
widgets.SoftDictionary(titles=titles, keys=keys, values=values[:, 0], query=query)

# %% [markdown]
# At about $\tau = 0.23$: the best score leads by 0.8, and $e^{0.8 / 0.23}$ is about 32, so 97 % of the weight lie on *Star Wars*.

# %%
assert soft_lookup(query, keys, values, 0.23) < 1978 < soft_lookup(query, keys, values, 0.24)

# %% [markdown]
# ## One vector plays three roles
#
# In a sentence, every token is all three at once. It asks about the others, the others find it, and it hands something out.
# One vector $x_i$ cannot be good at all three, so three matrices, learned in training, make three vectors of it:
#
# $$q_i = x_i W_q \qquad k_i = x_i W_k \qquad v_i = x_i W_v$$
#
# - **query**: what am I looking for?
# - **key**: what can I be found by?
# - **value**: what do I hand out, if I am found?
#
# Here is an example that is small enough for pencil and paper, and that you will meet again: three tokens of width $D = 4$,
# and matrices that make vectors of width 3.

# %%
x, w_q, w_k, w_v = WORKED_EXAMPLE
print("X =", x, "W_q =", w_q, "W_k =", w_k, "W_v =", w_v, sep="\n")

# %% [markdown]
# **By hand**: token 1 is $[1, 0, 1, 0]$. Times $W_q$, it picks the first and the third row of $W_q$ and adds them. Write down
# $q_1$, $k_1$ and $v_1$ before you go on.

# %%
q, k, v = project(x, w_q, w_k, w_v)
assert q[0].tolist() == [1, 0, 2]
assert k[0].tolist() == [0, 1, 1]
assert v[0].tolist() == [1, 2, 3]
print("Q =", q, "K =", k, "V =", v, sep="\n")

# %% [markdown]
# Why not two matrices, one for queries and keys together? Then the score of $i$ with $j$ would always be that of $j$ with $i$:
# what "she" finds in "Fatima", "Fatima" would have to find in "she". Two matrices free the two directions from each other.
# And why a third one for the values? What makes a word easy to find need not be what the finder wants to know.
# (The three tokens of our example give a symmetric table all the same, by chance; a fourth token shows it.)

# %%
fourth = np.vstack([x, [0, 0, 1, 0]])
one_matrix = (fourth @ w_q) @ (fourth @ w_q).T
two_matrices = (fourth @ w_q) @ (fourth @ w_k).T
assert np.array_equal(one_matrix, one_matrix.T)  # always symmetric
assert two_matrices[3, 0] == 1 and two_matrices[0, 3] == 0  # token 4 sees token 1 otherwise than token 1 sees it

# %% [markdown]
# ## A score is a dot product of a query and a key
#
# $$s_{ij} = q_i \cdot k_j$$
#
# **Predict** the three scores of token 1: $q_1 = [1, 0, 2]$ with $k_1 = [0, 1, 1]$, $k_2 = [4, 4, 0]$ and $k_3 = [2, 3, 1]$.

# %%
scores_of_token_1 = np.array([q[0] @ k[j] for j in range(3)])
assert scores_of_token_1.tolist() == [2, 4, 4]
scores_of_token_1

# %% [markdown]
# **Play**: drag the query and the keys. A score is large when the arrows point the same way *and* are long; it is 0 at a right
# angle, and negative beyond.

# %%
widgets.Arrows(query=[1.5, 0.5], keys=[[1.0, 1.0], [-0.5, 1.2], [1.2, -0.8]])

# %% [markdown]
# ## Softmax runs along each row
#
# Scores become weights that are positive and sum to 1, one softmax for each query, over the keys:
#
# $$a_{ij} = \frac{\exp(s_{ij})}{\sum_{j'} \exp(s_{ij'})}$$
#
# **Predict**: the scores of token 1 are 2, 4, 4. Which weights are equal? Is the first larger or smaller than one tenth?

# %%
weights_of_token_1 = softmax(scores_of_token_1)
assert np.allclose(weights_of_token_1, [0.0634, 0.4683, 0.4683], atol=5e-5)
weights_of_token_1

# %% [markdown]
# A score of 2 less means a weight smaller by the factor $e^2 \approx 7.4$: softmax sees differences, and not the scores
# themselves.

# %%
assert np.isclose(weights_of_token_1[1] / weights_of_token_1[0], np.exp(2))
assert np.allclose(softmax([2, 4, 4]), softmax([102, 104, 104]))

# %% [markdown]
# Our `softmax` makes use of that. `exp` of 1000 is more than the computer can write down, it becomes infinity, and infinity divided
# by infinity is NaN. So `softmax` first subtracts the largest score: the weights stay the same, and `exp` never sees a number above
# 0. (Unit 05 comes back to this.)

# %%
with np.errstate(over="ignore"):
    assert np.isinf(np.exp(1000.0))
assert np.allclose(softmax([1002, 1004, 1004]), weights_of_token_1)

# %% [markdown]
# For all queries at once the scores are a table, $T \times S$: row $i$ belongs to query $i$, column $j$ to key $j$. `softmax` runs over
# the last axis unless you tell it otherwise (`axis=-1`, here the same as `axis=1`), that is along each row, over the keys.
#
# **What is wrong here?** Somebody runs the softmax over the other axis. The shape is right, all numbers are positive, and
# nobody complains. (`q @ k.T` is the whole table of scores; two sections on you will see why.)

# %%
wrong = softmax(q @ k.T, axis=0)
right = softmax(q @ k.T, axis=1)
assert np.allclose(right.sum(axis=1), 1)  # each query has one unit of attention to give
assert not np.allclose(wrong.sum(axis=1), 1)  # here each key has one unit to receive
print("row sums, wrong:", wrong.sum(axis=1), "right:", right.sum(axis=1))

# %% [markdown]
# ## The output is a weighted sum of values
#
# $$y_i = \sum_j a_{ij}\, v_j$$
#
# **By hand**: $y_1 = 0.0634\, v_1 + 0.4683\, v_2 + 0.4683\, v_3$. The values are $[1, 2, 3]$, $[2, 8, 0]$ and $[2, 6, 3]$.
# Which of the three numbers of $y_1$ will be near 2?

# %%
y_1 = sum(weights_of_token_1[j] * v[j] for j in range(3))
assert np.allclose(y_1, [1.9366, 6.6831, 1.5951], atol=5e-5)
y_1

# %% [markdown]
# **What is wrong here?** A well-known set of slides writes $y_i = \sum_i w_{ij} v_j$. Look at the index under the sum. What is
# left when you sum over $i$?

# %%
summed_over_i = sum(right[i, :, None] * v for i in range(3))  # what the slide says
assert summed_over_i.shape == (3, 3)
assert not np.allclose(summed_over_i[0], y_1)  # no i is left on the right-hand side: it belongs to no query
assert np.allclose(sum(right[0, j] * v[j] for j in range(3)), y_1)  # over j, the keys

# %% [markdown]
# **Play**: click a row to choose a query, and see its weighted sum grow, value by value.

# %%
widgets.WeightedSum(q=q, k=k, v=v, tokens=["token 1", "token 2", "token 3"])

# %% [markdown]
# **Play**: edit a number in V only, then in K only. **Predict** first: which of the two moves the weights? Which moves the outputs?

# %%
widgets.EditKV(q=q, k=k, v=v)

# %% [markdown]
# The same in code, with the library's functions. (`scale=1.0` asks them for the scores as they are. Without it they would divide by
# $\sqrt{d_k}$, which is unit 05.) An edit of V leaves the weights alone and moves the outputs. An edit of K moves the weights and,
# through them, the outputs too.

# %%
edited_v, edited_k = v.copy(), k.copy()
edited_v[1] += 1
edited_k[1] += 1
unedited = attention(q, k, v, scale=1.0)
assert np.array_equal(attention_weights(q, k, scale=1.0), softmax(q @ k.T))  # V is not in there
assert not np.allclose(attention(q, k, edited_v, scale=1.0), unedited)
assert not np.allclose(attention_weights(q, edited_k, scale=1.0), softmax(q @ k.T))
assert not np.allclose(attention(q, edited_k, v, scale=1.0), unedited)

# %% [markdown]
# ## All pairs are one matrix product
#
# Row $i$ of $Q$ with row $j$ of $K$ is entry $(i, j)$ of $Q K^\top$. So everything above, for all tokens at once, is
#
# $$Y = \text{softmax}(Q K^\top)\, V = \text{softmax}\big(X W_q (X W_k)^\top\big)\, X W_v$$
#
# **Predict** the nine scores: you have the first row already, $[2, 4, 4]$.

# %%
scores = q @ k.T
assert scores.tolist() == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
y = softmax(scores) @ v
assert np.allclose(y, [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]], atol=5e-5)
y

# %% [markdown]
# Here every matrix is $3 \times 3$, which hides what is what. **Predict**: if the values had width $d_v = 2$ (say, the first two columns
# of $W_v$ only), which shape would $Q K^\top$ have, which the weights, and which $Y$?

# %%
narrow_v = x @ w_v[:, :2]
narrow_y = softmax(scores) @ narrow_v
assert scores.shape == (3, 3) and narrow_v.shape == (3, 2) and narrow_y.shape == (3, 2)  # T × S, S × d_v, T × d_v
assert np.allclose(narrow_y, y[:, :2])  # the weights do not care how wide the values are

# %% [markdown]
# The loops and the matrices are the same thing, written twice.

# %%
assert np.allclose(attention_loops(q, k, v, scale=1.0), y, atol=1e-12)
assert np.allclose(attention(q, k, v, scale=1.0), y, atol=1e-12)

# %%
plots.weights(softmax(scores), ["1", "2", "3"], title="Who reads whom in the worked example")

# %% [markdown]
# See the first row: token 1 gives most of its attention to tokens 2 and 3, and little to itself.
#
# **What is wrong here?** "A word clearly attends most to itself", say some lecture notes. With $q = k = x$ and vectors of
# one length that would be so. With $W_q \ne W_k$ nothing makes it so.

# %%
weights = softmax(scores)
assert weights[0].argmax() != 0  # token 1 does not
assert weights[1].argmax() == 1  # token 2 does: it depends on the matrices

# %% [markdown]
# **What is wrong here?** Other notes write $\text{softmax}(QK/n)$. Two slips in one formula.

# %%
no_transpose = q @ k  # runs, since both are 3 × 3 by chance; it compares features with tokens
assert not np.array_equal(no_transpose, q @ k.T)
by_n = softmax(q @ k.T / 3)  # n, the number of tokens, has no place here
assert not np.allclose(by_n, softmax(q @ k.T))
try:
    x[:2] @ w_q @ (x[:2] @ w_k)
except ValueError as error:
    print("With two tokens it does not even fit:", error)

# %% [markdown]
# What one *does* divide by is $\sqrt{d_k}$, and unit 05 is about why.
#
# ## Queries may come from another sequence
#
# Nothing above needs queries and keys to come from the same tokens. In translation the decoder asks, and the encoder is
# read: **cross-attention**. With $X$ of $T$ tokens asking and $E$ of $S$ tokens being read,
#
# $$Q = X W_q \qquad K = E W_k \qquad V = E W_v \qquad Y = \text{softmax}(Q K^\top)\, V$$
#
# **Predict**: five tokens read four (the three of the example and one more), with $d_k = 3$ and $d_v = 2$. Which shape have the
# scores, and which has the output?

# %%
asking = np.array([[1.0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 1]])
q_x, k_e, v_e = project(asking, w_q, w_k, w_v[:, :2], memory=fourth)
assert (q_x @ k_e.T).shape == (5, 4)  # T × S, and not T × T as some slides say
assert attention(q_x, k_e, v_e, scale=1.0).shape == (5, 2)  # T × d_v

# %% [markdown]
# **What is wrong here?** One set of slides takes the values of cross-attention from $X$, which asks. What was found is not
# what is read.

# %%
try:
    attention(q_x, k_e, asking @ w_v[:, :2], scale=1.0)
except ValueError as error:
    print(error)

# %% [markdown]
# ## Rows or columns: the same numbers, transposed
#
# Many texts write a token as a *column*, $q = W x$, and the output with the weights on the right. Both conventions are the same
# numbers. Let a small $c$ mark what is written in columns; each such matrix is the transpose of ours:
#
# | | rows (this course) | columns |
# |---|---|---|
# | tokens | rows of $X$, $T \times D$ | columns of $X_c = X^\top$, $D \times T$ |
# | matrix of the queries | $W_q$, $D \times d_k$ | $W_c = W_q^\top$, $d_k \times D$ |
# | queries | $Q = X W_q$, $T \times d_k$ | $Q_c = W_c X_c = Q^\top$, $d_k \times T$ |
# | scores | $Q K^\top$, $T \times S$, a row for each query | $K_c^\top Q_c$, $S \times T$, a column for each query |
# | softmax | along each row: weights $A$ | down each column: weights $A_c = A^\top$ |
# | output | $A V$, $T \times d_v$ | $V_c A_c$, $d_v \times T$ |
#
# **Predict**: in columns, over which axis does the softmax run in code, 0 or 1?

# %%
q_c, k_c, v_c = w_q.T @ x.T, w_k.T @ x.T, w_v.T @ x.T
y_c = v_c @ softmax(k_c.T @ q_c, axis=0)
assert np.allclose(y_c.T, y)

# %% [markdown]
# ## The same in torch (needs torch)
#
# The cells below need torch; everything above does not. The library's `attention` takes the road that is fastest on your
# machine, and gives the same numbers.

# %% tags=["needs-torch"]
import torch

from course_lib.attention import attention as torch_attention

y_torch = torch_attention(*(torch.from_numpy(part) for part in (q, k, v)), scale=1.0)
assert np.allclose(y_torch.numpy(), y)

# %% [markdown]
# And torch can say in which direction the matrices should move, which is how they are learned. `requires_grad_()` asks it to keep
# account of what is computed from $W_v$; `backward()` goes through that account backwards, and leaves in `w.grad`, for each number of
# $W_v$, how much the sum of all outputs would grow with it.

# %% tags=["needs-torch"]
w = torch.from_numpy(w_v.copy()).requires_grad_()
out = torch_attention(torch.from_numpy(q), torch.from_numpy(k), torch.tensor(x) @ w, scale=1.0)
out.sum().backward()
assert w.grad.shape == w_v.shape
by_hand = softmax(scores).sum(axis=0) @ x  # what every column of the gradient should be
assert np.allclose(w.grad.numpy(), by_hand[:, None])

# %% [markdown]
# ## Barriers and solutions
#
# | barrier | solution |
# |---|---|
# | an RNN squeezes the sentence into one state (01) | attention reads all states (02) |
# | self-attention has nothing to learn (03) | queries, keys and values, three matrices (04) |
# | no notion of order (03) | *still open: unit 08* |
# | scores grow with the width, softmax saturates | *next: unit 05* |
# | must not see the future | *still open: unit 07* |
#
# **Three takeaways**
#
# 1. A query looks for, a key is found by, a value is handed out; three matrices make the three from one token.
# 2. $\text{softmax}(QK^\top)V$: rows of scores belong to queries, softmax runs along each row, the output sums values over keys.
# 3. Keys and values belong together; queries may come from elsewhere, in any number.
#
# **To think about**
#
# - If $W_q$, $W_k$ and $W_v$ are all the identity matrix, which unit are you back in?
# - Two tokens have the same key. Can a query tell them apart? Can the output?
# - What would attention return if all keys were equal?
#
# **To read**: Vaswani et al. 2017, *Attention Is All You Need*, section 3.2; Bahdanau et al. 2015 for where it came from.
#
# **On**: try it yourself in `exercises/04_queries_keys_values.ipynb`. Then unit 05, Scaling, asks what happens when $d_k$
# grows.
