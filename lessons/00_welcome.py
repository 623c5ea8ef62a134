# %% [markdown]
# # 00 Welcome
#
# This course goes from a network that forgets the beginning of a sentence to one that translates, writes, and reads long
# texts: the Transformer. You will build every important piece with your own hands, first with numbers on paper, then in
# code.
#
# **After this unit you can** find your way around: where lectures and exercises are, how to check your work, and whether
# your installation is whole. **You need** some Python, and to have multiplied matrices once. **Time**: 15 minutes.
#
# ## You predict, run, compare
#
# Before most results you will find the word **Predict**. Stop there, and say what you expect; a wrong guess that you made
# teaches more than a right one that you read. Then run the cell (Shift + Enter) and compare. Many cells end in `assert`:
# that is a claim of the text, and it runs. If a claim were false, the cell would fail.
#
# **Predict**: what is the sum of the weights that a softmax makes of the scores 1, 2 and 3?

# %%
import numpy as np

from course_lib import widgets
from course_lib.by_hand import softmax
from course_lib.units import CourseMap

weights = softmax([1, 2, 3])
assert np.isclose(weights.sum(), 1)
weights

# %% [markdown]
# You need not know what a softmax is yet. What you have seen is how this course talks: a question, a guess, a number, and
# a line that would complain if the number were wrong.
#
# ## Sequences are everywhere
#
# A text is a row of words, speech a row of sounds, a program a row of symbols, the weather a row of measurements. Such rows
# are called **sequences**, and many tasks turn one into another: translate a text, write down what was said, turn a program
# into another language, continue a time series. In each case a symbol is first turned into a vector, a row of numbers, and
# from there on all is arithmetic.
#
# Until about 2020, each of these tasks had a kind of network of its own. Today nearly all of them are solved by one kind, the
# **Transformer**. What makes a network a Transformer? Its parts (words, sounds, patches of an image) learn of each other in
# one way only: by **self-attention**. What that is, and why it was worth changing everything for, is what this course is
# about.
#
# **To think about** while you go on: in "the chef who ran out of blueberries and went to the stores *was* out of
# ingredients", which word decides that it is "was" and not "were"? How far away is it?
#
# ## The map shows the way and how far you are

# %%
CourseMap()

# %% [markdown]
# Lectures are in `notebooks/`, exercises in `exercises/`. In an exercise you replace `raise NotImplementedError` by your
# answer and run the check below it. A wrong answer costs nothing. The check tries your code on small inputs and, if it
# recognises the mistake, tells you which *idea* is wrong. `hint("04.2")` gives a hint for exercise 04.2: there are three,
# each says more than the last.
#
# What you have done is kept in a small file. Here it is, and here you can start a unit again:

# %%
widgets.Progress()

# %% [markdown]
# ## Your installation can be looked at
#
# This cell says in plain words whether all that the course needs is there, and what to do if not. `course doctor` says the
# same in a terminal.

# %% tags=["needs-torch"]
from course_lib import doctor

_ = doctor.main(None)

# %% [markdown]
# Which device will compute? The fastest that your machine has: an NVIDIA card (CUDA), an Apple chip (MPS), or the CPU. The
# course is made for two CPU cores, so none of it needs more.

# %% tags=["needs-torch"]
from course_lib.device import available_devices, pick_device

print("This machine has", available_devices(), "and the course will use", pick_device())

# %% [markdown]
# **On**: unit 01, where a network reads a sentence word by word, and forgets.
#
# **To read**: Jurafsky and Martin, *Speech and Language Processing* (3rd ed. draft), for a long and gentle way through the
# same country.
