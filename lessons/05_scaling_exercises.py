# %% [markdown]
# # 05 Exercises: scaling
#
# Seven exercises, about an hour. Write your answer in place of `raise NotImplementedError`, run the cell, then the check
# below it. A wrong answer costs nothing: the check says which idea is wrong. Stuck? `hint("05.2")` gives three hints, one at
# a time.
#
# You need the lecture `notebooks/05_scaling.ipynb`. Everything here is NumPy; tokens are rows. `softmax` is the
# course's own, for all exercises but 05.3, in which you write yours.

# %%
import numpy as np

from course_lib.by_hand import softmax
from course_lib.checks import check, hint

# %% [markdown]
# ## 05.1 How far scores spread
#
# $q \cdot k = q_1 k_1 + \dots + q_{64} k_{64}$, with independent numbers of mean 0 and variance 1. Pencil and paper are enough.

# %%
# answer: course_lib.exercises.u05.spread_of_scores

# %% [markdown]
# ## 05.2 Measure the growth
#
# Is it true that the variance grows like $d_k$? Write the function that measures it; below stands what to try it on.

# %%
# answer: course_lib.exercises.u05.score_variances

# %% [markdown]
# Try it on 20,000 pairs, once the check is green: `rng = np.random.default_rng(0)`, then
# `score_variances(rng.standard_normal((20_000, 64)), rng.standard_normal((20_000, 64)), [1, 4, 16, 64])`. What do you expect in
# each column?
#
# ## 05.3 A softmax that holds
#
# $$a_i = \frac{e^{s_i}}{\sum_j e^{s_j}}$$
#
# in such a way that scores of 1000 give weights, and not NaN.

# %%
# answer: course_lib.exercises.u05.stable_softmax

# %% [markdown]
# ## 05.4 How the weights move
#
# $\partial a_i / \partial s_j = a_i (\delta_{ij} - a_j)$, as a matrix.

# %%
# answer: course_lib.exercises.u05.softmax_jacobian

# %% [markdown]
# ## 05.5 Scaled dot-product attention
#
# $Y = \text{softmax}(Q K^\top / \sqrt{d_k})\, V$. With an axis for heads in front, each head is an attention of its own. You will
# use this function in all units to come.

# %%
# answer: course_lib.exercises.u05.scaled_attention

# %% [markdown]
# ## 05.6 The gradient that reaches the queries
#
# The lecture's model learned because somebody wrote its gradient. Now you: from the loss back to the queries, with the scale.
#
# $$L = \tfrac12 \sum (Y - \text{wanted})^2, \qquad Y = A V, \qquad A = \text{softmax}(Q K^\top / \sqrt{d_k})$$

# %%
# answer: course_lib.exercises.u05.query_gradient

# %% [markdown]
# ## 05.7 Which models learn?
#
# Five models that look up twenty words, as in the lecture. Predict, then try them there with `train`.

# %%
# answer: course_lib.exercises.u05.which_models_learn

# %% [markdown]
# **Done?** `course progress` shows what you have so far. On with unit 06, Multi-head attention: several attentions side by side.
