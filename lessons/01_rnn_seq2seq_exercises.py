# %% [markdown]
# # 01 Exercises: sequence to sequence with an RNN
#
# Eight exercises, about an hour. Write your answer in place of `raise NotImplementedError`, run the cell, then the check
# below it. A wrong answer costs nothing: the check says which idea is wrong. Stuck? `hint("01.2")` gives three hints, one at
# a time.
#
# You need the lecture `notebooks/01_rnn_seq2seq.ipynb`. Everything here is torch; the first axis is the batch, $B$ sentences
# side by side, $T$ words each; words ($E$ numbers) and states ($D$ numbers) are rows.

# %%
import math

import torch

from course_lib.checks import check, hint

# %% [markdown]
# ## 01.1 Who knows what?
#
# Five numbers, no computer.

# %%
# answer: course_lib.exercises.u01.who_knows_what

# %% [markdown]
# ## 01.2 One step of an RNN
#
# $h_t = \tanh(x_t W_{ih} + h_{t-1} W_{hh} + b)$, for all sentences of a batch at once.

# %%
# answer: course_lib.exercises.u01.rnn_step

# %% [markdown]
# ## 01.3 One state for a sentence
#
# The encoder of a translator: step by step through the sentence, and its last state is all that is handed over. Sentences of a batch
# have different lengths; mind the padding.

# %%
# answer: course_lib.exercises.u01.sentence_state

# %% [markdown]
# ## 01.4 A state that knows both sides
#
# $h_i = [\overrightarrow{h}_i;\ \overleftarrow{h}_i]$, for every word. Start with sentences that have no padding: they have points of
# their own.

# %%
# answer: course_lib.exercises.u01.both_directions

# %% [markdown]
# ## 01.5 Accuracy against length
#
# How the curves of the lecture were measured. One number for all sentences would hide what happens to the long ones.

# %%
# answer: course_lib.exercises.u01.accuracy_by_length

# %% [markdown]
# ## 01.6 The gradient that arrives
#
# Your `rnn_step` again, and a gradient that starts at the last state. Once it works, try it with thirty words: what is left for the
# first one?

# %%
# answer: course_lib.exercises.u01.gradient_by_word

# %% [markdown]
# ## 01.7 Who waits for whom?
#
# A sheet of paper, two rows of circles above five words.

# %%
# answer: course_lib.exercises.u01.steps_by_hand

# %% [markdown]
# ## 01.8 Two counts for three roads
#
# Steps that wait, and interaction distance: for the window an exact count, no rule of thumb.

# %%
# answer: course_lib.exercises.u01.two_counts

# %% [markdown]
# **Done?** `course progress` shows what you have so far. On with unit 02: the decoder looks at all states, and learns where.
