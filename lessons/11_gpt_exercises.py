# %% [markdown]
# # 11 Exercises: decoder only
#
# Eight exercises, about an hour and a half. Write your answer in place of `raise NotImplementedError`, run the cell, then the
# check below it. A wrong answer costs nothing: the check says which idea is wrong. Stuck? `hint("11.2")` gives three hints, one
# at a time.
#
# You need the lecture `notebooks/11_gpt.ipynb`. Everything here is torch; the first axis is the batch. Block and norm are the
# library's, for you to put together.

# %%
import math

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.blocks import EncoderBlock, LayerNorm
from course_lib.checks import check, hint

torch.set_num_threads(1)  # for tensors this small, more threads would mostly wait for each other

# %% [markdown]
# ## 11.1 What a cache saves and costs
#
# Count what goes through the model, and what is kept.

# %%
# answer: course_lib.exercises.u11.cache_counts

# %% [markdown]
# ## 11.2 A causal language model
#
# GPT in a dozen lines: a table, positions, blocks, a norm, and the table again.

# %%
# answer: course_lib.exercises.u11.LanguageModel

# %% [markdown]
# ## 11.3 Merge a pair of bytes
#
# The one step that GPT-2's tokeniser learns by, repeated 50,000 times. `aaa` is where most first versions fail.

# %%
# answer: course_lib.exercises.u11.merge_pair

# %% [markdown]
# ## 11.4 Attention with a past
#
# One head, no matrices: join the past and the new, and move the diagonal of the mask to where it belongs.

# %%
# answer: course_lib.exercises.u11.cached_attention

# %% [markdown]
# ## 11.5 Write with a cache
#
# The loop around it. The model of this exercise counts what it has to read, and loses patience.

# %%
# answer: course_lib.exercises.u11.continue_text

# %% [markdown]
# ## 11.6 Temperature by hand
#
# Squares, a sum, and two limits.

# %%
# answer: course_lib.exercises.u11.temperature_by_hand

# %% [markdown]
# ## 11.7 Temperature and top-k
#
# From logits to the probabilities that the next token is drawn from. Large logits and temperature 0 come up, too.

# %%
# answer: course_lib.exercises.u11.next_token_probabilities

# %% [markdown]
# ## 11.8 A block of the published GPT-2
#
# Names, shapes, and an order of columns that somebody else has chosen: your block must give the published model's numbers.

# %%
# answer: course_lib.exercises.u11.gpt2_block

# %% [markdown]
# **Done?** `course progress` shows what you have so far. On with unit 12: what attention costs, and how to pay less.
