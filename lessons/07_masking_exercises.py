# %% [markdown]
# # 07 Exercises: masking
#
# Seven exercises, about an hour. Write your answer in place of `raise NotImplementedError`, run the cell, then the check
# below it. A wrong answer costs nothing: the check says which idea is wrong. Stuck? `hint("07.2")` gives three hints, one at
# a time.
#
# You need the lecture `notebooks/07_masking.ipynb`. Everything here is NumPy; rows are queries, columns are keys, and
# **True = may attend**.

# %%
import numpy as np

from course_lib.by_hand import softmax
from course_lib.checks import check, hint

# %% [markdown]
# ## 07.1 Count before you build
#
# A 5 × 5 table, a pencil, four numbers.

# %%
# answer: course_lib.exercises.u07.count_pairs

# %% [markdown]
# ## 07.2 The past, and the token itself
#
# $m_{ij} = (j \le \text{position of query } i)$. Usually there are as many queries as keys. When a model writes, it asks only for
# the newest tokens, and the older ones stand before them among the keys.

# %%
# answer: course_lib.exercises.u07.see_the_past

# %% [markdown]
# ## 07.3 No future and no padding
#
# A batch as a model receives it: numbers of words, and a number that stands for padding. Both masks in one.

# %%
# answer: course_lib.exercises.u07.batch_mask

# %% [markdown]
# ## 07.4 A softmax that looks at the mask
#
# Hide first, then normalise. Rows that may attend to nothing have a check and points of their own: what else is right counts
# without them. `softmax` of the course is imported above, if you want to build on it; it makes NaN of a row of nothing but $-\infty$.

# %%
# answer: course_lib.exercises.u07.masked_weights

# %% [markdown]
# ## 07.5 Attention for a decoder
#
# Everything together: scale, both masks, softmax, values. This is the attention of every language model that writes.

# %%
# answer: course_lib.exercises.u07.decoder_attention

# %% [markdown]
# ## 07.6 Read the experiment
#
# Somebody changed the tokens of a sentence, one at a time, and kept all outputs. Make the table of who sees whom: what stands right
# of its diagonal is a leak.

# %%
# answer: course_lib.exercises.u07.who_moved

# %% [markdown]
# ## 07.7 Which of these leak?
#
# Predict first. Then try them: your own functions from above and the lecture's `who_sees_whom` are all you need.

# %%
# answer: course_lib.exercises.u07.which_leak

# %% [markdown]
# **Done?** `course progress` shows what you have so far. On with unit 08, Positions: a mask knows who came before, but not how far.
