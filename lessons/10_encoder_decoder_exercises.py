# %% [markdown]
# # 10 Exercises: the encoder–decoder
#
# Eight exercises, about an hour and a quarter. Write your answer in place of `raise NotImplementedError`, run the cell, then the
# check below it. A wrong answer costs nothing: the check says which idea is wrong. Stuck? `hint("10.2")` gives three hints, one
# at a time.
#
# You need the lecture `notebooks/10_encoder_decoder.ipynb`. Everything here is torch; the first axis is the batch. Attention,
# feed-forward network and norm are the library's, for you to put together.

# %%
from collections import Counter

import torch
import torch.nn.functional as F
from torch import nn

from course_lib import plots
from course_lib.attention import MultiHeadAttention
from course_lib.blocks import FeedForward, LayerNorm
from course_lib.checks import check, hint

# %% [markdown]
# ## 10.1 Three attentions, three masks
#
# Encoder, decoder, and the bridge between them. For each: what is hidden, and how large is the table of scores?

# %%
# answer: course_lib.exercises.u10.masks_and_shapes

# %% [markdown]
# ## 10.2 Shift the targets
#
# One row of tokens, used twice: once to be read, once to be predicted.

# %%
# answer: course_lib.exercises.u10.shift_targets

# %% [markdown]
# ## 10.3 A loss without padding
#
# $-\log p(\text{the right word})$, averaged over the real words of a batch. Large logits come up, too.

# %%
# answer: course_lib.exercises.u10.token_loss

# %% [markdown]
# ## 10.4 The decoder's block
#
# Self-attention, cross-attention, feed-forward, each as $x + f(\text{norm}(x))$. The encoder's block of unit 09, with one sublayer more.

# %%
# answer: course_lib.exercises.u10.DecoderLayer

# %% [markdown]
# ## 10.5 Greedy decoding
#
# For a batch of sentences that end at different times.

# %%
# answer: course_lib.exercises.u10.greedy_tokens

# %% [markdown]
# ## 10.6 One step of a beam
#
# $W$ sentences so far, $C$ words that may follow each: which of the $W \cdot C$ longer sentences stay?

# %%
# answer: course_lib.exercises.u10.beam_step

# %% [markdown]
# ## 10.7 What BLEU counts
#
# $p_1$ to $p_4$, the shares of single words, pairs, triples and groups of four that the reference has, too. `Counter` is imported.

# %%
# answer: course_lib.exercises.u10.ngram_precisions

# %% [markdown]
# A translator has written *zwei hundert vier und dreißig* for *two hundred thirty four*. Three heads of its cross-attention:

# %%
english, german = ["two", "hundred", "thirty", "four"], ["zwei", "hundert", "vier", "und", "dreißig"]
head_a = [[0.93, 0.04, 0.01, 0.02], [0.10, 0.85, 0.03, 0.02], [0.02, 0.03, 0.06, 0.89],
          [0.03, 0.07, 0.48, 0.42], [0.01, 0.04, 0.91, 0.04]]  # fmt: skip
plots.weights(head_a, german, english, title="Head A")

# %%
head_b = [[0.88, 0.07, 0.03, 0.02], [0.12, 0.79, 0.06, 0.03], [0.03, 0.11, 0.80, 0.06],
          [0.02, 0.04, 0.17, 0.77], [0.03, 0.05, 0.12, 0.80]]  # fmt: skip
plots.weights(head_b, german, english, title="Head B")

# %%
head_c = [[0.04, 0.05, 0.07, 0.84], [0.03, 0.02, 0.05, 0.90], [0.01, 0.04, 0.09, 0.86],
          [0.05, 0.03, 0.11, 0.81], [0.02, 0.06, 0.04, 0.88]]  # fmt: skip
plots.weights(head_c, german, english, title="Head C")

# %% [markdown]
# ## 10.8 Read three heads
#
# Each row belongs to a German word. What do the heads look at, and what may you conclude?

# %%
# answer: course_lib.exercises.u10.read_cross_attention

# %% [markdown]
# **Done?** `course progress` shows what you have so far. On with unit 11: a decoder without an encoder, which writes on its own.
