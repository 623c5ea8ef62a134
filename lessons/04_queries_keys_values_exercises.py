# %% [markdown]
# # 04 Exercises: queries, keys and values
#
# Eight exercises, about an hour. Write your answer in place of `raise NotImplementedError`, run the cell, then the check
# below it. A wrong answer costs nothing: the check says which idea is wrong. Stuck? `hint("04.2")` gives three hints, one at
# a time.
#
# You need the lecture `notebooks/04_queries_keys_values.ipynb`. Everything here is NumPy; tokens are rows.

# %%
import numpy as np

from course_lib.by_hand import WORKED_EXAMPLE, softmax
from course_lib.checks import check, hint

x, w_q, w_k, w_v = WORKED_EXAMPLE

# %% [markdown]
# ## 04.1 Three scores by hand
#
# $$X = \begin{bmatrix}1&0&1&0\\0&2&0&2\\1&1&1&1\end{bmatrix} \quad
# W_q = \begin{bmatrix}1&0&1\\1&0&0\\0&0&1\\0&1&1\end{bmatrix} \quad
# W_k = \begin{bmatrix}0&0&1\\1&1&0\\0&1&0\\1&1&0\end{bmatrix}$$
#
# A new token, $[1, 0, 0, 0]$, asks about the three tokens of $X$. Take a sheet of paper: its query, the three keys, three dot
# products. Write the three scores into the function.

# %%
# answer: course_lib.exercises.u04.scores_of_a_new_token

# %% [markdown]
# ## 04.2 Three roles for every token
#
# $Q = X W_q$, $K = X W_k$, $V = X W_v$.

# %%
# answer: course_lib.exercises.u04.project

# %% [markdown]
# ## 04.3 What one query reads
#
# $s_j = q \cdot k_j$, $\;a = \text{softmax}(s)$, $\;y = \sum_j a_j v_j$. A loop is fine here. No $\sqrt{d_k}$ yet: that is
# unit 05.

# %%
# answer: course_lib.exercises.u04.attend_once

# %% [markdown]
# ## 04.4 Attention for all queries at once
#
# $Y = \text{softmax}(Q K^\top)\, V$: three lines, no loop needed. (Loops give the same numbers, so the check takes them too; but
# from unit 06 on there will be heads and batches, and matrix products carry over to those.)

# %%
# answer: course_lib.exercises.u04.attention

# %% [markdown]
# ## 04.5 Reading another sequence
#
# The decoder of a translator reads the encoder's output: the tokens of `x` ask, the tokens of `memory` are read.

# %%
# answer: course_lib.exercises.u04.cross_attention

# %% [markdown]
# ## 04.6 From a soft lookup to a hard one
#
# Build the soft dictionary of the lecture, temperature included.

# %%
# answer: course_lib.exercises.u04.soft_lookup

# %% [markdown]
# ## 04.7 The same in columns
#
# Half of all papers write tokens as columns. Translate.

# %%
# answer: course_lib.exercises.u04.attention_columns

# %% [markdown]
# ## 04.8 Edit V only, edit K only
#
# Predict, then try it in the lecture's figure.

# %%
# answer: course_lib.exercises.u04.what_changes

# %% [markdown]
# **Done?** `course progress` shows what you have so far. On with unit 05, Scaling: why one divides by $\sqrt{d_k}$.
