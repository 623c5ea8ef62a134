# %% [markdown]
# # 02 Exercises: RNN with attention
#
# Eight exercises, about an hour. Write your answer in place of `raise NotImplementedError`, run the cell, then the check
# below it. A wrong answer costs nothing: the check says which idea is wrong. Stuck? `hint("02.2")` gives three hints, one at
# a time.
#
# You need the lecture `notebooks/02_rnn_attention.ipynb`. Everything here is torch; the first axis is the batch, $B$ sentences
# side by side, $S$ words each.

# %%
import math

import torch
from torch import nn

from course_lib import plots
from course_lib.checks import check, hint

# %% [markdown]
# ## 02.1 Weights and context by hand
#
# $$e = [0,\ \ln 2,\ \ln 5] \qquad h_1 = [8, 0] \quad h_2 = [0, 8] \quad h_3 = [8, 8]$$
#
# Take a sheet of paper: softmax of the scores, then the weighted sum of the states. Fractions are welcome.

# %%
# answer: course_lib.exercises.u02.weights_and_context

# %% [markdown]
# ## 02.2 The score is a small network
#
# $e_i = v^\top \tanh(W_s s + W_h h_i)$, for all sentences and all words at once. In code the states are rows: they stand on the
# left, the matrices on the right.

# %%
# answer: course_lib.exercises.u02.additive_scores

# %% [markdown]
# ## 02.3 Weights for real words only
#
# Softmax over the words of each sentence, with padding left out. Think of a sentence that is nothing but padding, too: it has a
# point of its own.

# %%
# answer: course_lib.exercises.u02.attention_weights

# %% [markdown]
# ## 02.4 The context vector
#
# $c = \sum_i a_i h_i$, for each sentence.

# %%
# answer: course_lib.exercises.u02.context

# %% [markdown]
# ## 02.5 All of it as a module
#
# Scores, weights, context, in one `nn.Module` with parameters that can be trained. Your functions from above do the work.

# %%
# answer: course_lib.exercises.u02.AttentionStep

# %% [markdown]
# ## 02.6 Scores by products
#
# $e_i = s^\top h_i$ and $e_i = s^\top W h_i$, in one function.

# %%
# answer: course_lib.exercises.u02.multiplicative_scores

# %% [markdown]
# Two networks have translated *two hundred thirty four*, one into German, one into French. Their weights, first the German ones:

# %%
english = ["two", "hundred", "thirty", "four"]
german = ["zwei", "hundert", "vier", "und", "dreißig"]
french = ["deux", "cent", "trente", "quatre"]
to_german = [[0.90, 0.06, 0.01, 0.03], [0.12, 0.80, 0.05, 0.03], [0.02, 0.05, 0.08, 0.85],
             [0.04, 0.11, 0.36, 0.49], [0.01, 0.08, 0.84, 0.07]]  # fmt: skip
plots.weights(to_german, german, english, title="English to German")

# %%
to_french = [[0.88, 0.09, 0.02, 0.01], [0.07, 0.86, 0.05, 0.02], [0.02, 0.09, 0.81, 0.08], [0.03, 0.02, 0.13, 0.82]]
plots.weights(to_french, french, english, title="English to French")

# %% [markdown]
# ## 02.7 Read an alignment
#
# Read the two tables above: what does each German word read most, and where do the lines cross?

# %%
# answer: course_lib.exercises.u02.read_alignment

# %% [markdown]
# ## 02.8 Two sources, or one?
#
# General attention goes from one sequence to another; self-attention stays within one.

# %%
# answer: course_lib.exercises.u02.one_or_two

# %% [markdown]
# **Done?** `course progress` shows what you have so far. On with unit 03: self-attention, and no RNN any more.
