# %% [markdown]
# # 06 Exercises: multi-head attention
#
# Nine exercises, about an hour and a quarter. Write your answer in place of `raise NotImplementedError`, run the cell, then the
# check below it. A wrong answer costs nothing: the check says which idea is wrong. Stuck? `hint("06.2")` gives three hints,
# one at a time.
#
# You need the lecture `notebooks/06_multi_head.ipynb`. The first six exercises are NumPy, then comes torch; tokens are rows.

# %%
import math

import numpy as np
import torch
from torch import nn

from course_lib.by_hand import softmax
from course_lib.checks import check, hint

# %% [markdown]
# ## 06.1 Four shapes by hand
#
# No computer yet: $B = 2$ sentences, $T = 10$ words each, $D = 512$, $H = 8$.

# %%
# answer: course_lib.exercises.u06.shapes_of_heads

# %% [markdown]
# ## 06.2 Split into heads
#
# From $(B, T, D)$ to $(B, H, T, D/H)$: now with a batch in front. One sentence of two words and two heads, to follow with the
# eye: $\begin{bmatrix}11&12&13&14\\21&22&23&24\end{bmatrix}$ becomes
# $\begin{bmatrix}11&12\\21&22\end{bmatrix}$ and $\begin{bmatrix}13&14\\23&24\end{bmatrix}$.

# %%
# answer: course_lib.exercises.u06.split_heads

# %% [markdown]
# ## 06.3 Merge the heads
#
# The way back. When both are right, `merge_heads(split_heads(x, 4))` is `x` again.

# %%
# answer: course_lib.exercises.u06.merge_heads

# %% [markdown]
# ## 06.4 One head alone
#
# $Y_h = \text{softmax}\!\left(Q_h K_h^\top / \sqrt{D/H}\right) V_h$, for one sentence and one $h$.

# %%
# answer: course_lib.exercises.u06.one_head

# %% [markdown]
# ## 06.5 All heads at once
#
# $[Y_1 \; \dots \; Y_H]\, W_O$, for a batch of sentences. No loop over heads is needed. If you want to see it with your own eyes,
# compare with `one_head` from above.

# %%
# answer: course_lib.exercises.u06.multi_head

# %% [markdown]
# ## 06.6 What eight heads cost
#
# Count before you compute.

# %%
# answer: course_lib.exercises.u06.price_of_heads

# %% [markdown]
# ## 06.7 Matrices from torch
#
# From here on torch. Somebody gives you a trained `torch.nn.MultiheadAttention`. With your four matrices, `multi_head` of the
# lecture gives torch's result.

# %%
# answer: course_lib.exercises.u06.from_torch

# %% [markdown]
# ## 06.8 A module of torch
#
# The real thing, which the Transformer of unit 10 is made of: self-attention, cross-attention (unit 04) and a mask (unit 02) in
# one class. Take it in three steps, and run the check after each: half-right answers get their points.

# %%
# answer: course_lib.exercises.u06.MultiHead

# %% [markdown]
# ## 06.9 Read three heads
#
# What *it* reads in a model that somebody trained. Weights, a row for each of heads 1 and 2:
#
# | | The | animal | street | it | tired |
# |---|---|---|---|---|---|
# | head 1 | 0.02 | 0.83 | 0.07 | 0.05 | 0.03 |
# | head 2 | 0.03 | 0.04 | 0.03 | 0.08 | 0.82 |
#
# And head 3, for which the lengths of the values were measured, too. (Take the lengths after $W_O$; all other weights are 0.)
#
# | | The | animal | it |
# |---|---|---|---|
# | weight | 0.90 | 0.06 | 0.04 |
# | length of the value | 0.1 | 5.0 | 1.0 |

# %%
# answer: course_lib.exercises.u06.read_heads

# %% [markdown]
# **Done?** `course progress` shows what you have so far. On with unit 07, Masking: how the future is kept out of sight.
