# %% [markdown]
# # 13 Exercises: training within a budget, and the capstone
#
# Seven exercises, about an hour and a half; the last two are the capstone of the course. Write your answer in place of
# `raise NotImplementedError`, run the cell, then the check below it. A wrong answer costs nothing: the check says which idea is wrong. Stuck?
# `hint("13.2")` gives three hints, one at a time.
#
# You need the lecture `notebooks/13_training_budget.ipynb`, and for the capstone your own exercise notebooks of units 06 to 09, in this
# folder.

# %%
import math

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.capstone import own_parts
from course_lib.checks import check, hint
from course_lib.data import batches, number_pairs
from course_lib.device import generator, seed_all
from course_lib.handed_in import held_back, translate, write_model
from course_lib.training import TrainConfig, fit

torch.set_num_threads(1)

# %% [markdown]
# ## 13.1 Megabytes by hand
#
# Parameters, gradients, the optimizer's memory, and what is kept for the way back: how much is it, and which trick makes what smaller?

# %%
# answer: course_lib.exercises.u13.megabytes_by_hand

# %% [markdown]
# ## 13.2 A batch that does not fit
#
# The model has room for a few sentences at a time, and says so. Get the gradient of the whole batch all the same.

# %%
# answer: course_lib.exercises.u13.gradient_in_parts

# %% [markdown]
# ## 13.3 Forget, and compute again
#
# Checkpointing, without torch's own function for it. Each of the layers knows how many of them keep something for the way back,
# and complains when there are too many.

# %%
# answer: course_lib.exercises.u13.gradient_again

# %% [markdown]
# ## 13.4 What stays in float32
#
# Two sums to round, five choices to make.

# %%
# answer: course_lib.exercises.u13.few_digits

# %% [markdown]
# ## 13.5 Work and span
#
# An RNN is a chain, attention is a heap. Measure any computation that somebody describes to you. Plain Python is enough.

# %%
# answer: course_lib.exercises.u13.work_and_span

# %% [markdown]
# ## The capstone
#
# You have written attention, masks, positions, a norm and a feed-forward network. Now they translate. `own_parts()` looks into your
# exercise notebooks in this folder (saved ones: what is only on the screen, it cannot see), tries each part with the checks of its
# exercise, and takes it if it passes. For a part that is missing or not right yet, the course's own one steps in, and the table says so.

# %%
parts = own_parts()
parts

# %% [markdown]
# `parts.attention`, `parts.norm` and `parts.think` make modules around those functions, with parameters to train; `parts.table` makes a
# table of word vectors, and `parts.positions(x)` gives the sinusoids for x.
#
# ## 13.6 Capstone: a translator of your own parts
#
# The Transformer of unit 10, one block on either side. Everything in it is something that you have written before.

# %%
# answer: course_lib.exercises.u13.Translator

# %% [markdown]
# Time to train it, within a budget: 400 steps of 32 numbers, some three seconds of one core. Every seventh number is held back (`held_back`): your
# model will be asked for those. Numbers below a thousand are rare below a million, so they come in four times more.

# %%
words = number_pairs("german", train=14_000, test=1)
english, german = words.source_words, words.target_words
to_learn = [n for n in (*words.train_numbers, *4 * [*range(1000)]) if not held_back(n)]
source, target = words.encode(to_learn)
print(f"{len(to_learn):,} numbers to learn from; 45 is held back: {held_back(45)}")

# %% [markdown]
# The cell below trains and writes `13_model.safetensors` beside this notebook: 480 kB of plain numbers. Whoever grades builds your model
# from `hand_in` (the next exercise) and loads the file into it. You may change everything here: steps, learning rate, sizes. If you change
# the model, train again, so that file and model fit.


# %%
def train(model, steps=400):
    pairs = batches(source, target, 32, generator=generator(0), steps=steps)
    history = fit(model, pairs, TrainConfig(steps=steps, lr=5e-3, warmup=20, matmul="medium"))
    print(f"loss {history.losses[-1]:.4f}, written to {write_model(model).name}")
    return model


# %% tags=["trains"]
try:
    seed_all(0)
    model = train(Translator(len(english), len(german), 64, 4, 256))  # noqa: F821
    said = translate(model, words.encode([45, 777_777])[0], longest=14)
    print(*(" ".join(german.decode(row)) for row in said), sep="\n")
except NotImplementedError:
    print("Translator (13.6) is still empty: there is nothing to train yet.")

# %% [markdown]
# ## 13.7 Capstone: hand it in
#
# One line, if you trained what stands above. The check loads your file into the model and asks for 800 numbers that were held back. When you
# hand in your notebook, hand in `13_model.safetensors` with it; whoever grades will draw other numbers.

# %%
# answer: course_lib.exercises.u13.hand_in

# %% [markdown]
# **Done?** `course progress` shows what you have so far. If your model translates, then every part of it is something that you have
# written and understood: scores, softmax, heads, masks, positions, norms, blocks, and the training around them.
