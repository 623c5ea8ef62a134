# %% [markdown]
# # 03 Exercises: self-attention
#
# Eight exercises, about an hour. Write your answer in place of `raise NotImplementedError`, run the cell, then the check
# below it. A wrong answer costs nothing: the check says which idea is wrong. Stuck? `hint("03.2")` gives three hints, one at
# a time.
#
# You need the lecture `notebooks/03_self_attention.ipynb`. Everything here is NumPy; tokens are rows.

# %%
import numpy as np

from course_lib.by_hand import WORKED_EXAMPLE, softmax
from course_lib.checks import check, hint

x = WORKED_EXAMPLE.x

# %% [markdown]
# ## 03.1 Three similarities by hand
#
# $$X = \begin{bmatrix}1&0&1&0\\0&2&0&2\\1&1&1&1\end{bmatrix}$$
#
# A row is a token. Take a sheet of paper, compare token 2 with all three, and write the three dot products into the function.

# %%
# answer: course_lib.exercises.u03.scores_of_token_2

# %% [markdown]
# ## 03.2 Self-attention with loops
#
# $s_{ij} = x_i \cdot x_j$, $\;w_i = \text{softmax}(s_i)$, $\;y_i = \sum_j w_{ij}\, x_j$, for one token $i$ after the other.

# %%
# answer: course_lib.exercises.u03.self_attention_loops

# %% [markdown]
# ## 03.3 The same as matrices
#
# $Y = \text{softmax}(X X^\top)\, X$. When it passes, compare both of yours in a new cell: how large is
# `np.abs(self_attention(x) - self_attention_loops(x)).max()`?

# %%
# answer: course_lib.exercises.u03.self_attention

# %% [markdown]
# ## 03.4 One token changes
#
# Three tokens, and the third becomes another word. Predict, formula by formula.

# %%
# answer: course_lib.exercises.u03.one_token_changes

# %% [markdown]
# ## 03.5 The weights move along
#
# You have the weights of a sentence. Somebody shuffles the sentence. Make the new weights from the old ones, without
# computing anything anew.

# %%
# answer: course_lib.exercises.u03.shuffle_weights

# %% [markdown]
# ## 03.6 Does shuffling commute?
#
# Write the test for permutation equivariance, $f(P X) = P\, f(X)$. It is asked about self-attention, and about other functions `f`
# of a sentence: some commute with shuffling, some do not.

# %%
# answer: course_lib.exercises.u03.is_equivariant

# %% [markdown]
# ## 03.7 Dot product or cosine?
#
# Four pairs, no computer. In which of them is the dot product the cosine?

# %%
# answer: course_lib.exercises.u03.dot_or_cosine

# %% [markdown]
# ## 03.8 Choose your measure
#
# The weights of self-attention with three kinds of similarity. The rest of the formula does not change.

# %%
# answer: course_lib.exercises.u03.weights_by

# %% [markdown]
# **Done?** `course progress` shows what you have so far. On with unit 04, queries, keys and values: a token gets three roles, and
# self-attention something to learn.
