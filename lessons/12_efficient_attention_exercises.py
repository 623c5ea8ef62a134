# %% [markdown]
# # 12 Exercises: what attention costs
#
# Eight exercises, about an hour and a quarter. Write your answer in place of `raise NotImplementedError`, run the cell, then the
# check below it. A wrong answer costs nothing: the check says which idea is wrong. Stuck? `hint("12.3")` gives three hints, one
# at a time.
#
# You need the lecture `notebooks/12_efficient_attention.ipynb`. Everything here is torch.

# %%
import math

import torch

from course_lib.checks import check, hint

torch.set_num_threads(1)

# %% [markdown]
# ## 12.1 Which part is the larger one?
#
# A layer costs $n^2 d + n d^2$. Three lengths, one width.

# %%
# answer: course_lib.exercises.u12.pairs_against_width

# %% [markdown]
# ## 12.2 Measure the exponent
#
# You have timed something for several lengths. Does it grow like $n$, or like $n^2$?

# %%
# answer: course_lib.exercises.u12.growth_exponent

# %% [markdown]
# ## 12.3 The online softmax: one tile more
#
# Keys come in tiles, for all queries at once. What is kept of those that were read, and how does the next tile change it?

# %%
# answer: course_lib.exercises.u12.absorb_tile

# %% [markdown]
# ## 12.4 BigBird's pattern
#
# Window, global words, random keys: one mask.

# %%
# answer: course_lib.exercises.u12.bigbird_mask

# %% [markdown]
# ## 12.5 How wrong is a window?
#
# Exact attention, attention in a window, and one number that says how far they are apart.

# %%
# answer: course_lib.exercises.u12.window_error

# %% [markdown]
# ## 12.6 Linformer
#
# $\text{softmax}\big(Q\,(EK)^\top / \sqrt{d_k}\big)\, F V$, for a batch.

# %%
# answer: course_lib.exercises.u12.linformer

# %% [markdown]
# ## 12.7 Segments with a memory
#
# The idea of Transformer-XL without any parameters: a text of $N$ words, read in segments.

# %%
# answer: course_lib.exercises.u12.read_in_segments

# %% [markdown]
# ## 12.8 What each variant changes
#
# Five variants, one formula; and how many scores each computes.

# %%
# answer: course_lib.exercises.u12.name_the_change

# %% [markdown]
# **Done?** `course progress` shows what you have so far. On with unit 13: training within a budget.
