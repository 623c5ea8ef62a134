# %% [markdown]
# # 08 Exercises: positions
#
# Eight exercises, about seventy minutes. Write your answer in place of `raise NotImplementedError`, run the cell, then the check
# below it. A wrong answer costs nothing: the check says which idea is wrong. Stuck? `hint("08.2")` gives three hints, one at
# a time.
#
# You need the lecture `notebooks/08_positions.ipynb`. Everything here is NumPy; tokens are rows, positions count from 0.

# %%
import numpy as np

from course_lib.by_hand import self_attention
from course_lib.checks import check, hint

# %% [markdown]
# ## 08.1 Two clocks by hand
#
# $PE(t, 2i) = \sin(t / b^{2i/D})$, $\;PE(t, 2i+1) = \cos(t / b^{2i/D})$. Take $D = 4$ and $b = 100$, and a sheet of paper.

# %%
# answer: course_lib.exercises.u08.clocks_by_hand

# %% [markdown]
# ## 08.2 The table of sinusoids
#
# The same formula for any length, width and base. Loops are fine; a line of NumPy is finer.

# %%
# answer: course_lib.exercises.u08.sinusoid_table

# %% [markdown]
# ## 08.3 Moving on by k is a rotation
#
# $PE(t + k) = R_k\, PE(t)$: you get rows of a table and are not told at which positions. Move each on by $k$ all the same.

# %%
# answer: course_lib.exercises.u08.move_on

# %% [markdown]
# ## 08.4 Does it notice the order?
#
# What did unit 03 prove about self-attention, and how far is it from true once places have vectors?

# %%
# answer: course_lib.exercises.u08.shuffle_gap

# %% [markdown]
# ## 08.5 Rotary scores
#
# $s_{ij} = (R_{m} q_i) \cdot (R_{n} k_j) / \sqrt{d_k}$, where query $i$ stands at $m$ and key $j$ at $n$. A pair $(a, b)$ turned by
# the angle $\alpha$ is $(a \cos\alpha - b \sin\alpha,\; a \sin\alpha + b \cos\alpha)$.

# %%
# answer: course_lib.exercises.u08.rotary_scores

# %% [markdown]
# ## 08.6 Distance costs
#
# ALiBi in a few lines: $-m_h\,|i - j|$ with $m_h = 2^{-8h/H}$.

# %%
# answer: course_lib.exercises.u08.alibi_penalty

# %% [markdown]
# ## 08.7 Inside and beyond
#
# Three trained models have answered for sentences longer than any in training. Measure fairly.

# %%
# answer: course_lib.exercises.u08.inside_and_beyond

# %% [markdown]
# ## 08.8 Read the tables
#
# At the end of the lecture stand two tables from trained models. (Without torch you have no tables: think about which
# encodings meet something at place 30 that they have never met before.)

# %%
# answer: course_lib.exercises.u08.kept_beyond

# %% [markdown]
# **Done?** `course progress` shows what you have so far. On with unit 09, The Transformer block: what a layer needs besides
# attention.
