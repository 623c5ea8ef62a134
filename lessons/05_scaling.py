# %% [markdown]
# # 05 Scaling
#
# Unit 04 ended with a formula, $\text{softmax}(QK^\top)V$, and a promise: one more thing is divided by. Here you find out what
# happens to the scores when vectors grow wider, why softmax suffers from it, and why $\sqrt{d_k}$ is the cure.
#
# **After this unit you can**
#
# - measure the variance of dot products as $d_k$ grows (05-a);
# - measure the softmax Jacobian against the scale (05-b);
# - write a stable softmax (05-c);
# - show a model that learns with the scale and stalls without (05-d).
#
# **You need** unit 04: queries, keys, values, and softmax along each row. You should know what a mean and a variance are, and
# what a derivative is. **Time**: 50 minutes to read and play; all cells together run in a few seconds.
#
# Notation: $d_k$ is the width of queries and keys, $S$ the number of keys, $s$ a score, $a$ a weight. The *standard deviation*
# is the root of the variance: how far numbers usually lie from their mean.

# %%
import numpy as np

from course_lib import by_hand, plots, widgets
from course_lib.by_hand import WORKED_EXAMPLE, project, softmax

np.set_printoptions(precision=4, suppress=True)

# %% [markdown]
# ## A dot product of random vectors has variance d_k
#
# Before training, the matrices hold random numbers, and so do queries and keys. Let all numbers be independent, with mean 0
# and variance 1. A score is a sum of $d_k$ products:
#
# $$q \cdot k = q_1 k_1 + q_2 k_2 + \dots + q_{d_k} k_{d_k}$$
#
# Each product has mean 0 and variance $1 \cdot 1 = 1$. Variances of independent numbers add up, so the sum has mean 0 and
# variance $d_k$: its standard deviation is $\sqrt{d_k}$, and not $d_k$, because signs differ and partly cancel.
#
# **Predict**: with $d_k = 64$, how large is a usual score? And with $d_k = 256$?


# %%
def random_scores(d_k, pairs=10_000, seed=0):
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((2, pairs, d_k))
    return np.sum(q * k, axis=1)  # row n of q with row n of k


widths = [1, 4, 16, 64, 256]
measured = {d_k: random_scores(d_k).var() for d_k in widths}
print("variance:", {d_k: float(v.round(2)) for d_k, v in measured.items()})

# %% [markdown]
# The variance is $d_k$, measured. Three seeds, so that it is no accident:

# %%
for seed in range(3):
    for d_k in widths:
        assert np.isclose(random_scores(d_k, seed=seed).var() / d_k, 1, atol=0.15)
        assert abs(random_scores(d_k, seed=seed).mean()) < 0.05 * np.sqrt(d_k)

# %%
plots.histogram(
    {f"d_k = {d_k}": random_scores(d_k) for d_k in (4, 64, 256)},
    title="Scores of random vectors",
    xlabel="score q · k",
    alt="Three histograms of scores around 0: the larger d_k, the wider, with standard deviations of about 2, 8 and 16.",
)

# %% [markdown]
# See how the hill grows wider as $d_k$ grows: twice as wide for four times the width.
#
# ## Dividing by the root of d_k keeps the scores at one size
#
# Numbers divided by $c$ have a standard deviation divided by $c$, and a variance divided by $c^2$. So
#
# $$\text{scores} = \frac{Q K^\top}{\sqrt{d_k}}$$
#
# have variance $d_k / d_k = 1$, for every width. That is **scaled dot-product attention**, and the whole of the cure:
#
# $$Y = \text{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V$$

# %%
for d_k in widths:
    assert np.isclose((random_scores(d_k) / np.sqrt(d_k)).var(), 1, atol=0.15)

# %% [markdown]
# **By hand**: the worked example of unit 04 has $d_k = 3$, and token 1 has the scores $[2, 4, 4]$. Its weights were
# $[0.0634, 0.4683, 0.4683]$. **Predict**: does the first weight grow or shrink when the scores are divided by $\sqrt 3$?

# %%
q, k, v = project(*WORKED_EXAMPLE)
scores = q @ k.T / np.sqrt(3)
weights = softmax(scores)
assert np.allclose(scores[0], [1.1547, 2.3094, 2.3094], atol=5e-5)
assert np.allclose(weights[0], [0.1361, 0.4319, 0.4319], atol=5e-5)  # softer than before
assert np.allclose(weights @ v, by_hand.attention(q, k, v))  # the library scales unless it is told not to
weights @ v

# %% [markdown]
# **What is wrong here?** A set of slides says "normalize by number of dimensions", and the formula below that line has
# $\sqrt d$. Which of the two is it? **Predict** the standard deviation of $q \cdot k / d_k$ for $d_k = 256$.

# %%
by_d = random_scores(256) / 256
by_root = random_scores(256) / np.sqrt(256)
assert np.isclose(by_d.std(), 1 / 16, atol=0.01)  # too small, and smaller still for wider vectors
assert np.isclose(by_root.std(), 1, atol=0.05)

# %% [markdown]
# With 20 keys, scores that small give every key nearly the same weight, 1/20: attention that cannot prefer anything.

# %%
flat = softmax(by_d.reshape(-1, 20))
lively = softmax(by_root.reshape(-1, 20))
assert np.median(flat.max(axis=1)) < 0.06  # the best key has hardly more than its 0.05
assert np.median(lively.max(axis=1)) > 0.15

# %% [markdown]
# **What is wrong here?** The same slides explain the root so: "$c\sqrt d$ is approximately the norm of a $d$-dimensional vector
# with all values $c$". **Predict** the norm (the length) of a vector of sixteen times $-3$, and what the formula gives.

# %%
c, d = -3.0, 16
norm = np.linalg.norm(np.full(d, c))
assert norm == 12 == abs(c) * np.sqrt(d)  # exact, nothing approximate about it
assert c * np.sqrt(d) == -12  # and no length is negative: it is |c|√d

# %% [markdown]
# "Approximately" belongs elsewhere: a vector of $d$ *random* numbers with variance 1 has a norm of about $\sqrt d$. And equal
# numbers are no reason for the root: the dot product of two vectors of $c$ is $c^2 d$, which grows like $d$. The root comes from
# signs that cancel.

# %%
rng = np.random.default_rng(0)
norms = np.linalg.norm(rng.standard_normal((100, 256)), axis=1)
assert np.allclose(norms, 16, atol=3) and not np.allclose(norms, 16, atol=0.5)
assert np.full(d, c) @ np.full(d, c) == c**2 * d

# %% [markdown]
# ## Large scores saturate the softmax
#
# Softmax sees differences of scores: 2 more means a weight $e^2 \approx 7.4$ times as large. When scores spread by 16, the best
# key is usually several points ahead of the next, and $e^{-8} \approx 0.0003$. **Saturated** means: one key has all the weight.
#
# How spread out a row of weights is, says its **entropy** $-\sum_j a_j \ln a_j$: 0 when one key has it all, $\ln S$ when all
# $S$ keys have the same.


# %%
def entropy(weights):
    logs = np.log(np.where(weights > 0, weights, 1.0))  # 0 ln 0 counts as 0
    return -np.sum(weights * logs, axis=-1)


assert entropy(np.array([0.0, 1, 0, 0])) == 0
assert np.isclose(entropy(np.full(4, 1 / 4)), np.log(4))

# %% [markdown]
# **Predict**: 400 queries, 20 random keys, $d_k = 256$. Which share of its attention does a usual query give to its best key,
# without the scale and with it?


# %%
def random_rows(d_k, seed=0, queries=400, keys=20):
    draw = np.random.default_rng(seed)
    return draw.standard_normal((queries, d_k)) @ draw.standard_normal((keys, d_k)).T


bare, scaled = softmax(random_rows(256)), softmax(random_rows(256) / 16)
for name, rows in (("without the scale", bare), ("with the scale", scaled)):
    best, spread_out = np.median(rows.max(axis=1)), np.median(entropy(rows))
    print(f"{name}: best weight {best:.3f}, entropy {spread_out:.3f} of at most {np.log(20):.3f}")

# %%
for seed in range(3):
    for d_k in (256, 1024):
        bare, scaled = softmax(random_rows(d_k, seed)), softmax(random_rows(d_k, seed) / np.sqrt(d_k))
        assert np.median(bare.max(axis=1)) > 0.95  # a hard lookup before anything is learned
        assert np.median(scaled.max(axis=1)) < 0.3
        assert np.median(entropy(bare)) < 0.2 < 2 < np.median(entropy(scaled))

# %% [markdown]
# You know this from unit 04: dividing scores is a *temperature*. Unscaled attention starts as a cold, hard lookup in keys that
# mean nothing yet.
#
# ## A saturated softmax passes no gradient
#
# Why is a hard lookup bad to start with? To learn, the weights must move when the scores do. How much they move, for all pairs
# of weight $i$ and score $j$, says the **Jacobian** of the softmax. With $a_i = e^{s_i} / \sum_j e^{s_j}$ the quotient rule gives
#
# $$\frac{\partial a_i}{\partial s_j} = a_i\,(\delta_{ij} - a_j), \qquad \delta_{ij} = 1 \text{ if } i = j, \text{ else } 0$$
#
# **By hand**: two keys with weights $a$ and $1 - a$. All four entries are $\pm a(1 - a)$. **Predict** this number for $a = 0.5$,
# for $0.9$ and for $0.999$.

# %%
for share in (0.5, 0.9, 0.999):
    two_keys = by_hand.softmax_jacobian(np.array([share, 1 - share]))
    assert np.allclose(two_keys, share * (1 - share) * np.array([[1, -1], [-1, 1]]))
    print(share, "→", two_keys[0])

# %% [markdown]
# The surer the softmax, the less it moves. And each row sums to 0: one weight rises, others fall. Does the formula hold? Push
# each score a little and see.

# %%
row = np.array([2.0, 4.0, 4.0]) / np.sqrt(3)
pushed = [(softmax(row + h) - softmax(row - h)) / 2e-5 for h in 1e-5 * np.eye(3)]
jacobian = by_hand.softmax_jacobian(softmax(row))
assert np.allclose(np.transpose(pushed), jacobian, atol=1e-8)
assert np.allclose(jacobian.sum(axis=1), 0)
jacobian

# %% [markdown]
# One number for the whole matrix is its norm, the root of the sum of all squares. **Predict**: $d_k$ goes from 1 to 1024. What does
# the norm of a usual query do, without the scale and with it?


# %%
def usual_norm(scores):
    return np.median(np.linalg.norm(by_hand.softmax_jacobian(softmax(scores)), axis=(1, 2)))


powers = [1, 4, 16, 64, 256, 1024]
norm_bare = [usual_norm(random_rows(d_k)) for d_k in powers]
norm_scaled = [usual_norm(random_rows(d_k) / np.sqrt(d_k)) for d_k in powers]
plots.curves(
    {"q · k": (np.log2(powers), norm_bare), "q · k / √d_k": (np.log2(powers), norm_scaled)},
    title="What the softmax lets through",
    xlabel="log₂ of d_k, so that 10 means 1024",
    ylabel="norm of the Jacobian (median)",
    alt="The norm with the scale stays near 0.28 at every width; without, it falls below 0.001 at a width of 1024.",
    log=True,
)

# %%
for seed in range(3):
    at_64, at_1024 = (random_rows(d_k, seed) for d_k in (64, 1024))
    assert usual_norm(at_1024) < usual_norm(at_64) / 50  # it vanishes
    assert np.isclose(usual_norm(at_1024 / 32), usual_norm(at_64 / 8), rtol=0.1)  # it stays

# %% [markdown]
# Look closely and you see the curve without the scale rise a little before it falls. Softmax moves most when *two* keys are
# nearly tied, and scores that spread by 4 have fewer rivals than scores that spread by 1. After that it goes down fast.
#
# **Play**: 16 random queries and 8 random keys. The scores are divided by the temperature; the *gradient norm* is that of the
# Jacobian, and *median* means: of all 16 queries. Widen the vectors and watch the histogram, then turn the temperature until the
# weights come back to life. Which temperature do you need at $d_k = 16$, and at $256$? What does the gradient norm do when you
# make it very hot?

# %%
figure_rng = np.random.default_rng(5)
widgets.ScoreScale(queries=figure_rng.standard_normal((16, 256)), keys=figure_rng.standard_normal((8, 256)))

# %% [markdown]
# With temperature $\sqrt{d_k}$ the histogram looks nearly the same at every width, and so do entropy and gradient. (Very hot is flat:
# the norm goes to that of equal weights, $\sqrt{7}/8 \approx 0.33$ for 8 keys. Nothing vanishes *inside* the softmax then, but
# the division itself makes every change of a score tiny.)
#
# ## The largest score can be subtracted
#
# Large scores have a second vice. **Predict** what this softmax, written as in the textbook, makes of 1000, 1001, 1002.


# %%
def textbook_softmax(scores):
    return np.exp(scores) / np.exp(scores).sum()


large = np.array([1000.0, 1001, 1002])
by_the_book = textbook_softmax(large)
print(by_the_book)

# %% [markdown]
# **What is wrong here?** The formula is right, and NumPy warns you: $e^{1000}$ is about $10^{434}$, and float64 ends near
# $10^{308}$. What is beyond is $\infty$, and $\infty / \infty$ is NaN, not a number. The cure costs one line. For any $m$
#
# $$\frac{e^{s_i - m}}{\sum_j e^{s_j - m}} = \frac{e^{-m}\, e^{s_i}}{e^{-m} \sum_j e^{s_j}} = \frac{e^{s_i}}{\sum_j e^{s_j}}$$
#
# Take $m$ as the largest score: the largest exponential is $e^0 = 1$, none overflows, and the sum is 1 at least, so it is never
# $0/0$. The `softmax` that you have used since unit 03 does this.


# %%
def stable(scores):
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True)


assert np.isnan(by_the_book).all()
assert np.allclose(stable(large), stable(large - 1000))
assert np.allclose(stable(large), [0.0900, 0.2447, 0.6652], atol=5e-5)
assert np.array_equal(stable(large), softmax(large))

# %% [markdown]
# **What is wrong here?** Somebody saves typing and subtracts the largest score of the *whole table*. **Predict** the second row.

# %%
table = np.array([[1000.0, 1001, 1002], [1.0, 2, 3]])
exps = np.exp(table - table.max())
assert exps[1].sum() == 0  # e^-1000 is 0 in a computer: the second row would be 0/0
assert np.allclose(stable(table)[0], stable(table)[1])  # each row with its own maximum

# %% [markdown]
# How soon does exp overflow? That depends on how numbers are stored: float32 ends at $e^{88}$, and float16, which unit 13 uses to
# save time and memory, at $e^{11}$. **Predict**: at $d_k = 256$, how many of 100 bare scores are too large for float16?

# %%
limits = {kind: float(np.log(float(np.finfo(kind).max))) for kind in ("float16", "float32", "float64")}
print(limits)
too_large = np.mean(random_scores(256) > limits["float16"])
assert 0.2 < too_large < 0.3  # one in four
assert np.mean(random_scores(256) / 16 > limits["float16"]) == 0

# %% [markdown]
# Two cures for two ills, and neither replaces the other. Subtracting the maximum leaves the weights as they are: no overflow, and
# still saturated. The scale makes softer weights, and one large score can overflow all the same.

# %%
hard = random_rows(256)[0]
assert np.array_equal(softmax(hard), stable(hard))
assert np.allclose(softmax(hard - hard.max()), softmax(hard))  # the maximum changes no weight
assert softmax(hard).max() > 0.9  # so this is as saturated as before

# %% [markdown]
# ## Each head divides by the root of its own width
#
# In unit 06 a model of width $D = 512$ will have $H = 8$ heads: attentions side by side, each with $d_k = D / H = 64$ numbers of
# every query and key. **Predict**: by what is a head's score divided, $\sqrt{512}$ or $\sqrt{64}$?

# %%
D, H = 512, 8
head_scores = random_scores(D // H)  # a head's dot product has 64 terms, whatever D is
assert np.isclose((head_scores / np.sqrt(D // H)).std(), 1, atol=0.05)

# %% [markdown]
# **What is wrong here?** A popular bug: the scale is taken from the model's width. Shapes are right, nothing crashes, and all
# weights are too flat.

# %%
too_flat = head_scores / np.sqrt(D)
assert np.isclose(too_flat.std(), 1 / np.sqrt(H), atol=0.03)  # as if the temperature were √8 ≈ 2.8

# %% [markdown]
# ## With the scale a model learns, without it the model stalls
#
# Now the proof: a model that is small enough to write all its gradients by hand. Unit 02 translated *forty five* into *fünf und
# vierzig*. Here is the dictionary that hides in it: twenty German words ask, twenty English words are looked at, and each German
# word should find its English one.

# %%
english = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
english += ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety", "hundred", "thousand"]
german = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"]
german += ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig", "hundert", "tausend"]
n = len(english)
assert n == len(german) == 20
x = np.eye(n)  # German word i: a row with a single 1, so that x @ w_q picks row i of w_q
e = np.eye(n)  # the English words, in the same way: keys are e @ w_k, and the values are e itself
wanted = e  # German word i wants the value of English word i

# %% [markdown]
# Forward, $Q = XW_q$, $K = EW_k$, $A = \text{softmax}(c\,QK^\top)$, $Y = AE$ with the scale $c$, and the loss is half the
# squared distance from what is wanted, a mean over the $n$ words: $L = \frac{1}{2n} \sum_i |y_i - \text{wanted}_i|^2$.
#
# Backward, the same formulas from the end to the beginning, one line each. $G_Y$ stands for $\partial L / \partial Y$, and so on:
#
# $$G_Y = \tfrac1n (Y - \text{wanted}) \qquad G_A = G_Y E^\top \qquad G_S = A \odot \big(G_A - \text{row sums of } A \odot G_A\big)$$
#
# $$G_Q = c\, G_S K \qquad G_K = c\, G_S^\top Q \qquad G_{W_q} = X^\top G_Q \qquad G_{W_k} = E^\top G_K$$
#
# $G_S$ is the Jacobian at work, $a_i(\delta_{ij} - a_j)$ times a vector, for all rows at once ($\odot$ multiplies number by number).


# %%
def forward(w_q, w_k, scale):
    return softmax(scale * (x @ w_q) @ (e @ w_k).T)


def backward(w_q, w_k, scale):
    a = forward(w_q, w_k, scale)
    grad_y = (a @ e - wanted) / n
    grad_a = grad_y @ e.T
    grad_s = a * (grad_a - np.sum(a * grad_a, axis=1, keepdims=True))
    grad_q, grad_k = scale * grad_s @ (e @ w_k), scale * grad_s.T @ (x @ w_q)
    return x.T @ grad_q, e.T @ grad_k


def loss_of(a):
    return np.sum((a @ e - wanted) ** 2) / (2 * n)


# %% [markdown]
# A gradient written by hand is wrong until it is checked. Push single numbers of $W_q$ and $W_k$, and compare.

# %%
small_q, small_k = np.random.default_rng(1).standard_normal((2, n, 6))
hand_q, hand_k = backward(small_q, small_k, scale=0.5)
for i, j in [(0, 0), (7, 3), (19, 5)]:
    push = np.zeros((n, 6))
    push[i, j] = 1e-5
    slope_q = loss_of(forward(small_q + push, small_k, 0.5)) - loss_of(forward(small_q - push, small_k, 0.5))
    slope_k = loss_of(forward(small_q, small_k + push, 0.5)) - loss_of(forward(small_q, small_k - push, 0.5))
    assert np.isclose(slope_q / 2e-5, hand_q[i, j], atol=1e-8)
    assert np.isclose(slope_k / 2e-5, hand_k[i, j], atol=1e-8)

# %% [markdown]
# Training is gradient descent and nothing else: 300 steps, each a little way down the slope.


# %%
def train(seed, d_k, scale, step=30.0, steps=300):
    draw = np.random.default_rng(seed)
    w_q, w_k = draw.standard_normal((2, n, d_k))
    losses = []
    for _ in range(steps):
        losses.append(loss_of(forward(w_q, w_k, scale)))
        grad_q, grad_k = backward(w_q, w_k, scale)
        w_q, w_k = w_q - step * grad_q, w_k - step * grad_k
    return losses, forward(w_q, w_k, scale)


def found(a):
    return np.mean(a.argmax(axis=1) == np.arange(n))  # the share of words with their largest weight in the right place


# %% [markdown]
# **Predict**: $d_k = 512$, the same seed, the same words, the same number of steps. With the scale $1/\sqrt{512}$ and without it,
# how many of the twenty words are found?

# %%
with_scale, a_with = train(0, 512, 1 / np.sqrt(512))
without, a_without = train(0, 512, 1.0)
print(f"with the scale: {found(a_with):.0%} found; without: {found(a_without):.0%}")
plots.curves(
    {"with the scale": with_scale, "without": without},
    title="Looking up twenty words, d_k = 512",
    xlabel="step",
    ylabel="loss",
    alt="With the scale the loss falls to 0 within 300 steps; without it the loss stays above 0.7.",
)

# %%
for seed in range(3):
    losses, a = train(seed, 512, 1 / np.sqrt(512))
    assert losses[-1] < 0.01 and found(a) == 1  # learns
    losses, a = train(seed, 512, 1.0)
    assert losses[-1] > 0.6 and found(a) <= 0.3  # stalls

# %% [markdown]
# Is that fair? Without the scale the scores change faster, too: maybe the step was only too large, and a smaller one would do. So
# give the model without the scale nine step sizes, from 0.001 to 100, and keep its best. **Predict**: does one of them rescue it?
# (The 30 was chosen in the same way, for the model with the scale: with steps of size 1 that one is not done after 300 either.)

# %%
best_loss, best_found = [], []
for seed in range(3):
    tried = [train(seed, 512, 1.0, step) for step in (0.001, 0.003, 0.01, 0.03, 0.1, 1.0, 10.0, 30.0, 100.0)]
    best_loss.append(min(losses[-1] for losses, _ in tried))
    best_found.append(max(found(a) for _, a in tried))
print("lowest loss:", np.round(best_loss, 2), "largest share found:", np.array(best_found))
assert min(best_loss) > 0.5 and max(best_found) <= 0.4
assert all(train(seed, 512, 1 / np.sqrt(512), step=1.0)[0][-1] > 0.1 for seed in range(3))

# %% [markdown]
# None does. Look at $G_S$ again: the pull on a score is proportional to its weight, $a_i (\dots)$. Where the right key has a weight
# of nearly 0, nothing pulls it up, however wrong the answer is. What little slope there is lies between the two best keys, and
# those are wrong ones: a large step trades one for the other. You can measure the pull before the first step:


# %%
def pull_at_start(seed, scale, d_k=512):
    w_q, w_k = np.random.default_rng(seed).standard_normal((2, n, d_k))
    a = forward(w_q, w_k, scale)
    grad_a = (a @ e - wanted) @ e.T
    grad_s = a * (grad_a - np.sum(a * grad_a, axis=1, keepdims=True))
    return np.median(-np.diag(grad_s))  # how strongly a usual word pulls up the score of its right key


for seed in range(3):
    pulls = pull_at_start(seed, 1 / np.sqrt(512)), pull_at_start(seed, 1.0)
    print("with the scale: {:.3f}   without: {:.1e}".format(*pulls))
    assert pulls[1] < 1e-6 < 0.01 < pulls[0]

# %% [markdown]
# Last, is it the width that matters? **Predict**: does the model with $d_k = 4$ learn without the scale? And the one with $d_k =
# 512$ that divides by $d_k$, not by its root?

# %%
for seed in range(3):
    losses, a = train(seed, 4, 1.0)
    assert losses[-1] < 0.1 and found(a) >= 0.9  # narrow: bare scores spread by 2 only, and that is no harm
    losses, _ = train(seed, 512, 1 / 512)
    assert losses[0] - losses[-1] < 0.05 < losses[-1]  # flat: no saturation, and hardly a step in 300

# %% [markdown]
# The last one is not stuck, it is slow: with steps 512 times as large it goes. The root is what lets one step size serve every
# width.

# %%
for seed in range(3):
    assert found(train(seed, 512, 1 / 512, step=30 * 512)[1]) == 1
    for d_k in (4, 64):
        assert found(train(seed, d_k, 1 / np.sqrt(d_k))[1]) == 1  # with the root: step 30 for all

# %% [markdown]
# And our two words? *Fünf* and *vierzig* read *five* and *forty*, in the order that German wants:

# %%
asked = [german.index(word) for word in ("fünf", "vierzig")]
read = [english.index(word) for word in ("forty", "five")]
assert (a_with[asked].argmax(axis=1) == [english.index("five"), english.index("forty")]).all()
plots.weights(a_with[np.ix_(asked, read)], ["fünf", "vierzig"], ["forty", "five"], title="Forty five, looked up")

# %% [markdown]
# ## The same in torch (needs torch)
#
# The cells below need torch; everything above does not. torch divides by $\sqrt{d_k}$ as well, and it can find the gradient
# without our seven lines. It should be the same one.

# %% tags=["needs-torch"]
import torch

tensors = [torch.from_numpy(part) for part in (q, k, v)]
y_torch = torch.nn.functional.scaled_dot_product_attention(*tensors)
assert np.allclose(y_torch.numpy(), weights @ v)

# %% tags=["needs-torch"]
t_q, t_k = (torch.from_numpy(w.copy()).requires_grad_() for w in (small_q, small_k))
t_y = (0.5 * t_q @ t_k.T).softmax(dim=-1)
t_loss = ((t_y - torch.from_numpy(wanted)) ** 2).sum() / (2 * n)
t_loss.backward()
assert np.allclose(t_q.grad.numpy(), hand_q) and np.allclose(t_k.grad.numpy(), hand_k)

# %% [markdown]
# ## Barriers and solutions
#
# | barrier | solution |
# |---|---|
# | an RNN squeezes the sentence into one state (01) | attention reads all states (02) |
# | self-attention has nothing to learn (03) | queries, keys and values, three matrices (04) |
# | scores grow with the width, softmax saturates (05) | divide by $\sqrt{d_k}$ (05) |
# | exp overflows (05) | subtract the largest score of each row (05) |
# | one row of weights can look for one thing only | *next: unit 06* |
# | must not see the future | *still open: unit 07* |
# | no notion of order (03) | *still open: unit 08* |
#
# **Three takeaways**
#
# 1. A dot product of random vectors has variance $d_k$; divided by $\sqrt{d_k}$ it has variance 1, at every width. With heads
#    $d_k$ is the head's width, $D / H$.
# 2. Large scores saturate the softmax, and its Jacobian $a_i(\delta_{ij} - a_j)$ goes to 0: the model cannot learn where to look.
# 3. Subtracting the largest score of a row changes no weight and prevents overflow. It does not replace the scale.
#
# **To think about**
#
# - T5 has no scale in its formula. Its authors draw $W_q$ with numbers that are $\sqrt{d_k}$ times smaller. Why does training
#   start in the same place? What is different afterwards? (Try it: `w_q / np.sqrt(512)` at the start, `scale=1.0`, `step=30 / 512`.)
# - Queries and keys after training are no longer random. May scores then be large again? Should they?
# - Our loss looks at the outputs. A loss on the weights themselves, $-\ln a_\text{right}$, has $G_S = A - \text{wanted}$. Would
#   that model stall? And why can a layer in the middle of a network not choose this loss?
# - Which scale would you choose if the numbers of $q$ and $k$ had variance 4?
#
# **To read**: Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.1 and its footnote 4, where this argument stands in
# three lines; Raffel et al. 2020, *Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer*, for T5.
#
# **On**: try it yourself in `exercises/05_scaling.ipynb`. Then unit 06 lets several attentions work side by side.
