# %% [markdown]
# # 09 Exercises: the Transformer block
#
# Eight exercises, a little over an hour. Write your answer in place of `raise NotImplementedError`, run the cell, then the check below
# it. Stuck? `hint("09.2")` gives three hints, one at a time. You need the lecture `notebooks/09_transformer_block.ipynb`.

# %%
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.checks import check, hint

torch.set_num_threads(1)


def norm(x):
    """Layer normalisation without gain and bias, for exercise 09.5."""
    return F.layer_norm(x, x.shape[-1:])


# %% [markdown]
# ## 09.1 Count a block
#
# A sheet of paper is enough.

# %%
# answer: course_lib.exercises.u09.parameters_of_a_block

# %% [markdown]
# ## 09.2 Layer normalisation, written out
#
# Without torch's own function, of course.

# %%
# answer: course_lib.exercises.u09.layer_norm

# %% [markdown]
# ## 09.3 The feed-forward network
#
# What attention, an average, cannot do.

# %%
# answer: course_lib.exercises.u09.feed_forward

# %% [markdown]
# ## 09.4 Two layers that are one
#
# Show why a stack of attention layers needs something in between.

# %%
# answer: course_lib.exercises.u09.collapse

# %% [markdown]
# ## 09.5 Assemble the block, both ways
#
# `norm` is defined at the top of this notebook.

# %%
# answer: course_lib.exercises.u09.block

# %% [markdown]
# ## 09.6 Gradient through 24 layers, predicted
#
# The chain rule, and a little arithmetic.

# %%
# answer: course_lib.exercises.u09.gradient_through_24_layers

# %% [markdown]
# ## 09.7 A stack with weights of its own in every layer
#
# Blocks are made to be stacked. Here a block is small, and the stack is what counts.

# %%
# answer: course_lib.exercises.u09.PreNormStack

# %% [markdown]
# ## 09.8 Read four measurements
#
# The lecture's four kinds of stacks, without their names.

# %%
# answer: course_lib.exercises.u09.four_stacks

# %% [markdown]
# **Done?** `course progress` shows what you have so far. On with unit 10, the encoder–decoder.
