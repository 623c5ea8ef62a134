# %% [markdown]
# # 12 What attention costs, and how to pay less
#
# Every word looks at every other word: that is the strength of attention, and its price. Here you count and measure the price, find out
# when it matters, and meet two kinds of savings: those that change nothing but the order of the work, and those that leave
# something out. Of the second kind you measure what they get wrong.
#
# **After this unit you can**
#
# - say what each variant changes in attention's formula (12-a);
# - measure a variant's error against exact attention (12-b);
# - measure how cost grows as the length doubles (12-c);
# - write the online softmax (12-d).
#
# **You need** units 01 (sequential steps, interaction distance), 04 to 07 (attention, the stable softmax, heads, masks) and 11 (where texts
# became long). **Time**: 70 minutes to read and play; all cells together take about ten seconds.
#
# Notation as before. Where queries and keys are the same text, $n = T = S$ is its number of words, and $d$ is the width $D$.

# %%
import math
import sys
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from course_lib import efficient, masks, plots, sparse, widgets
from course_lib.attention import explicit, fused
from course_lib.bench import peak_bytes
from course_lib.by_hand import WORKED_EXAMPLE, project
from course_lib.device import generator, seed_all
from course_lib.positions import sinusoidal
from course_lib.rnn import LeftToRight, counts
from course_lib.transformer_xl import RelativeMultiHead, TransformerXL, TransformerXLConfig

torch.set_num_threads(1)  # measured on one thread: less noise

# %% [markdown]
# ## A layer costs n²d + nd²
#
# Count the multiplications of one attention layer. Queries, keys, values and the last projection $W_O$ are four products of $n \times d$ with
# $d \times d$: $4\,nd^2$. The scores $QK^\top$ are $n^2$ dot products of $d$ terms, and so is $AV$, counted the other way: $2\,n^2 d$. (Heads
# change nothing in this, unit 06.) Without the factors:
#
# $$\underbrace{n^2 d}_{\text{pairs}} + \underbrace{n d^2}_{\text{each word alone}}$$
#
# torch can count for us: two operations, a multiplication and an addition, for each term of a product. **Predict** the number for
# $n = 30$ words of width $d = 100$.


# %%
def attention_layer(x_nD, w_4DD):
    q_nD, k_nD, v_nD = (x_nD @ w_DD for w_DD in w_4DD[:3])
    return explicit(q_nD, k_nD, v_nD)[0] @ w_4DD[3]


def operations(run):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        run()
    return counter.get_total_flops()


n, d = 30, 100
counted = operations(lambda: attention_layer(torch.randn(n, d), torch.randn(4, d, d)))
assert counted == 2 * (4 * n * d**2 + 2 * n**2 * d) == 2_760_000

# %% [markdown]
# Now the two other roads of unit 01. An RNN multiplies each word and each state by a $d \times d$ matrix; a convolution over $w$ words has
# $w$ such matrices:

# %%
rnn, kernel_DDw = LeftToRight(d, d, "rnn"), torch.randn(d, d, 3)
assert operations(lambda: rnn(torch.randn(1, n, d))) == 2 * (2 * n * d**2)
assert operations(lambda: F.conv1d(torch.randn(1, d, n), kernel_DDw, padding=1)) == 2 * (3 * n * d**2)

# %% [markdown]
# | layer | multiplications | steps that wait for each other |
# |---|---|---|
# | attention | $n^2 d + n d^2$ | 1 |
# | recurrent | $n d^2$ | $n$ |
# | convolution, $w$ words | $w \, n d^2$ | 1 |
#
# Think of $d$ as about 1,000. **Predict** for a sentence ($n = 30$), a usual bound ($n = 512$) and a document ($n = 10{,}000$): how
# large is $n^2 d$ against $n d^2$? And how much memory do the $n \times n$ weights of one head take, four bytes each?

# %%
d = 1000
for n in (30, 512, 10_000):
    print(f"n = {n:6,}: n²d / nd² = {n**2 * d / (n * d**2):7.3f}, weights {4 * n**2 / 1e6:10.4f} MB")
assert [n / d for n in (30, 512, 10_000)] == [0.03, 0.512, 10]
assert 4 * 10_000**2 == 400_000_000  # 400 MB: for one head, of one layer, of one sentence

# %% [markdown]
# The two terms are equal where $n = d$. **For $n \ll d$ the pairs cost next to nothing**: attention and an RNN both pay $nd^2$, times a
# small factor, and attention's one step against the RNN's $n$ decides. **For $n \gg d$ the pairs are everything**, and an RNN
# needs far fewer operations.
#
# **What is wrong here?** "Attention is quadratic in the length, so in our translator of unit 10 the pairs are what costs." Its sentences
# had about a dozen words, its width was 64. **Predict** the share of the pairs.

# %%
n, d = 12, 64
share = 2 * n**2 * d / (4 * n * d**2 + 2 * n**2 * d)
print(f"the pairs are {share:.0%} of the multiplications")
assert share < 0.1  # and the feed-forward network, with 8 n d² more, is not even counted

# %% [markdown]
# **What is wrong here?** A famous table gives self-attention $n^2 d$ and a recurrent layer $n d^2$. "So for $n < d$, attention needs fewer
# operations." The table counts the recurrent layer's matrices, and leaves attention's out. **Predict** who needs fewer for $n = 30$, $d = 512$.

# %%
n, d = 30, 512
attention_needs = operations(lambda: attention_layer(torch.randn(n, d), torch.randn(4, d, d)))
rnn_needs = operations(lambda: LeftToRight(d, d, "rnn")(torch.randn(1, n, d)))
assert n**2 * d < n * d**2  # the table's comparison …
assert attention_needs > 2 * rnn_needs  # … and what is really multiplied
assert counts("attention", n).sequential_steps == 1 and counts("rnn", n).sequential_steps == n  # here lies the gain

# %% [markdown]
# On hardware that does thousands of multiplications at once, 30 steps in a row can take longer than twice the work in one step; unit 13
# measures that.
#
# **Play**: move $n$ and $d$ (or click into the picture). Where do the curves of attention and of the convolution cross? What happens to the
# crossing when $d$ grows? *Few keys* is what most of this unit is about: each query looks at so many keys only.

# %%
widgets.CostCurves(length=512, width=1000, few=128)

# %% [markdown]
# (They cross where $n^2 d + nd^2 = 3\,nd^2$: at $n = 2d$.)
#
# Memory is the harder limit. `peak_bytes` tells the most memory that torch held at one time. **Predict** by which factor it grows from 512
# to 1,024 and to 2,048 words, for attention as we have written it since unit 04.


# %%
def qkv(n, d=64, seed=0):
    return torch.randn(3, 1, 1, n, d, generator=generator(seed)).unbind(0)  # B = 1 sentence, H = 1 head


held = [peak_bytes(lambda n=n: explicit(*qkv(n))) for n in (512, 1024, 2048)]
print([f"{b / 1e6:.1f} MB" for b in held])
assert all(3 < after / before < 4.5 for before, after in pairwise(held))
assert held[-1] > 2 * 4 * 2048**2  # scores and weights are there at the same time

# %% [markdown]
# ## A softmax can be computed piece by piece
#
# Must the weights be stored? The output of one query is
#
# $$y = \frac{\sum_j e^{s_j - m}\, v_j}{\sum_j e^{s_j - m}}, \qquad m = \max_j s_j .$$
#
# Two sums, which could be built up key by key, and then each score be forgotten. But $m$ is the maximum of *all* scores (unit 05: without it
# the exponentials overflow), and it is known only at the end. The trick: use the maximum *so far*. When it grows from $m$ to $m'$, all that
# was summed is worth $e^{m - m'}$ as much:
#
# $$\text{sum} \leftarrow \text{sum}\cdot e^{m - m'} + e^{s - m'}, \qquad \text{out} \leftarrow \text{out}\cdot e^{m - m'} + e^{s - m'}\, v .$$
#
# This is the **online softmax**. By hand, with the first token of unit 04: its scores were 2, 4, 4, and its output
# (1.9366, 6.6831, 1.5951). **Predict** maximum, sum and factor after each of the three keys.

# %%
q_TK, k_TK, v_TV = (torch.from_numpy(array) for array in project(*WORKED_EXAMPLE))
scores = k_TK @ q_TK[0]
top, total, out_V = -math.inf, 0.0, torch.zeros(3, dtype=torch.float64)
for score, value_V in zip(scores.tolist(), v_TV, strict=True):
    higher = max(top, score)
    worth, weight = math.exp(top - higher), math.exp(score - higher)
    top, total, out_V = higher, total * worth + weight, out_V * worth + weight * value_V
    print(f"score {score:g}: max {top:g}, old sums times {worth:.4f}, sum {total:.4f}, out {out_V.numpy().round(4)}")
y_V = out_V / total
assert torch.allclose(y_V, torch.tensor([1.9366, 6.6831, 1.5951], dtype=torch.float64), atol=1e-4)

# %% [markdown]
# At the first key the factor is $e^{-\infty} = 0$: there was nothing. At the second the maximum grows from 2 to 4, and the first key's 1
# becomes $e^{-2} = 0.1353$. At the third nothing grows, and the factor is 1. One division at the end; no weight was ever kept.
#
# **What is wrong here?** Somebody subtracts the running maximum, and forgets to rescale. **Predict**: is the output too near to the first
# value, or too near to the later ones?

# %%
top, careless, careless_V = -math.inf, 0.0, torch.zeros(3, dtype=torch.float64)
for score, value_V in zip(scores.tolist(), v_TV, strict=True):
    top = max(top, score)
    weight = math.exp(score - top)
    careless, careless_V = careless + weight, careless_V + weight * value_V
assert torch.allclose(careless_V / careless, v_TV.mean(dim=0))  # each key was the largest when it came: a plain mean
assert (careless_V / careless - y_V).abs().max() > 1

# %% [markdown]
# It runs, nothing overflows, and where the scores happen to fall it is even right: such a mistake can live long.
#
# **What is wrong here?** "A softmax for each piece, and then the mean of the pieces' outputs." **Predict** what it forgets.

# %%
pieces = [scores[:1], scores[1:]]
averaged_V = sum(s.softmax(dim=0) @ v for s, v in zip(pieces, (v_TV[:1], v_TV[1:]), strict=True)) / 2
assert (averaged_V - y_V).abs().max() > 0.5  # a piece with small scores counts as much as one with large

# %% [markdown]
# **Play**: read tile by tile (a **tile** is a piece of several keys). Where does the factor differ from 0 and 1? Change a score, the last
# one to 9, say. Take the rescaling away: for which orders of scores is the end still right? Does the size of a tile matter?

# %%
widgets.OnlineSoftmax(
    scores=[2, 4, 4, 1, 7, 3],
    values=[*v_TV.tolist(), [0, 3, 1], [5, 0, 2], [1, 1, 4]],
    tile=2,
)

# %% [markdown]
# ## Tiles give the same numbers in less memory
#
# The library does this for all queries at once, in tiles of 256 × 256 pairs: `efficient.tiled`. torch has a **kernel** for it, that is one
# program that does all steps in one go: `fused` in our library, *scaled dot-product attention* in torch's words. On a GPU it is
# **FlashAttention**: a tile fits into the small memory next to the arithmetic units, and the large memory, which is slow, never sees a
# weight.
#
# **Predict**: how far are they from `explicit`, in float32? In float64?

# %%
for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-13)):
    q, k, v = (x.to(dtype) for x in qkv(700))
    exact = explicit(q, k, v)[0]
    for name, out in {"tiled": efficient.tiled(q, k, v), "fused": fused(q, k, v)}.items():
        print(f"{dtype}, {name}: largest difference {(out - exact).abs().max():.0e}")
        assert torch.allclose(out, exact, atol=tolerance)

# %% [markdown]
# Rounding, nothing else. Learning needs the weights once more, for the gradient. **Predict**: must they be stored for that?

# %%
q, k, v = (x.requires_grad_() for x in qkv(700))
gradients = [torch.autograd.grad(f(q, k, v).square().sum(), (q, k, v)) for f in (efficient.tiled, fused)]
wanted = torch.autograd.grad(explicit(q, k, v)[0].square().sum(), (q, k, v))
for found in gradients:
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(found, wanted, strict=True))

# %% [markdown]
# No: each tile's weights are computed a second time on the way back, from $q$, $k$ and one number for each query, $m + \log(\text{sum})$, since
# $a_{ij} = e^{s_{ij} - m_i} / \text{sum}_i$. A little more work, far less memory. **Predict** the memory from 1,024 to 2,048 words,
# forwards and backwards.


# %%
def there_and_back(f, n):
    q, k, v = (x.requires_grad_() for x in qkv(n))
    return peak_bytes(lambda: f(q, k, v).sum().backward())


for name, f in {"explicit": lambda *x: explicit(*x)[0], "tiled": efficient.tiled, "fused": fused}.items():
    small, large = there_and_back(f, 1024), there_and_back(f, 2048)
    print(f"{name:8} {small / 1e6:5.1f} MB → {large / 1e6:5.1f} MB, × {large / small:.2f}")
    assert large / small > 3.5 if name == "explicit" else large / small < 2.3

# %% [markdown]
# **What is wrong here?** "I call the fused kernel, so no weights are stored." Somebody passes $n \times d$ matrices, without the axes for
# batch and heads. **Predict**: are the numbers the same? Is the memory?

# %%
q, k, v = qkv(2048)
bare = [x[0, 0] for x in (q, k, v)]
assert torch.allclose(fused(*bare), fused(q, k, v)[0, 0], atol=1e-5)
four_axes, two_axes = peak_bytes(lambda: fused(q, k, v)), peak_bytes(lambda: fused(*bare))
print(f"{four_axes / 1e6:.1f} MB with four axes, {two_axes / 1e6:.1f} MB with two")
assert two_axes >= four_axes

# %% [markdown]
# torch has several kernels behind one name and chooses by shape, type and device, without a word. For two axes this version takes the one that
# builds the whole table. Whoever counts on a saving measures it.
#
# **What is wrong here?** "FlashAttention makes attention linear." Its memory, yes. **Predict** how many pairs the tiles hold for
# 1,000 and for 2,000 words.

# %%
assert efficient.dense(1000).pairs() == 1000**2
assert efficient.dense(2000).pairs() == 2000**2  # none is left out: the work is quadratic as before
assert efficient.dense(1000, causal=True).pairs() == 1000 * 1001 / 2  # tiles above the diagonal need not be computed

# %% [markdown]
# ## A pattern leaves pairs out
#
# To save work, something must go. The **Sparse Transformer** (Child et al. 2019) and **BigBird** (Zaheer et al. 2020) decide beforehand which
# pairs are computed; in unit 04's formula the sum over the keys has fewer terms, and nothing else changes. The nearest ones first: a
# **window**, $|i - j| \le$ radius. Here is the chef of unit 01.

# %%
sentence = ["the", "chef", "who", "ran", "out", "of", "blueberries", "and", "went", "to", "the", "stores", "was"]
near_TS = masks.window(len(sentence), 2)
chef, was = 1, 12
print(
    int(near_TS.sum()),
    "of",
    near_TS.numel(),
    "pairs; was sees",
    [w for w, s in zip(sentence, near_TS[was], strict=True) if s],
)
assert not near_TS[was, chef]

# %% [markdown]
# As in unit 01, layers carry on what one layer cannot see: after two layers *was* hears what its neighbours heard. **Predict**: with a
# radius of 2, after how many layers has *was* heard of the *chef*, eleven words away? And if *the*, the first word, is **global**: it sees
# all, and all see it?


# %%
def layers_until(sees_TS, query, key):
    known = sees_TS.clone()
    for layer in range(1, 100):
        if known[query, key]:
            return layer
        known = known.float() @ sees_TS.float() > 0
    return None


shared_TS = masks.global_tokens(len(sentence), 1)
assert layers_until(near_TS, was, chef) == math.ceil(11 / 2) == 6
assert layers_until(near_TS | shared_TS, was, chef) == 2  # was asks *the*, which has read everything

# %% [markdown]
# **What is wrong here?** Somebody sets the *row* of the global word, "it sees all", and thinks that this is what global means. **Predict**
# the number of layers now.

# %%
row_only_TS = near_TS.clone()
row_only_TS[0] = True  # the first word sees all …
assert layers_until(row_only_TS, was, chef) == 6  # … and hardly anybody sees it: what it knows stays with it
column_only_TS = near_TS.clone()
column_only_TS[:, 0] = True
assert layers_until(column_only_TS, was, chef) == 2  # luck …
assert layers_until(column_only_TS, chef, was) == 6  # … and one way round only

# %% [markdown]
# (With the column alone, *was* hears of the chef through *the*, since the two are neighbours; but the chef hears nothing of *was*.)
#
# BigBird adds a few **random** pairs, which make shortcuts, and works in **blocks** of words, because hardware multiplies blocks much faster
# than scattered pairs. **Predict** the share of all pairs for 1,024 and for 2,048 words, in blocks of 16: each block sees its
# neighbours (3 blocks), a global block and 3 random ones.

# %%
birds = {n: sparse.bigbird(n, size=16) for n in (1024, 2048)}
for n, bird in birds.items():
    print(f"{n} words: {bird.pairs():,} pairs, {bird.pairs() / n**2:.1%} of all")
assert 1.9 < birds[2048].pairs() / birds[1024].pairs() < 2.1  # twice the words, twice the pairs
assert sparse.window(2048, 64).pairs() < 2048 * 129  # a window: at most 2 · radius + 1 for each query

# %% [markdown]
# The two patterns of the Sparse Transformer, for decoders: **strided** (the last words, and every $l$-th before) and **fixed** (the words of one's own block,
# and the last word of each block before, as its summary). With $l \approx \sqrt n$ each query sees at most about $2\sqrt n$ keys, and every
# earlier word is two layers away, or one. See the grey: pairs that are never computed.

# %%
g = generator(0)
x_TD = torch.randn(12, 8, generator=g)
strided_TS = masks.strided(12, 3)
plots.weights(explicit(x_TD, x_TD, x_TD, strided_TS)[1], title="Strided, every third word", mask=strided_TS.numpy())

# %%
fixed_TS = masks.fixed(12, 4)
plots.weights(explicit(x_TD, x_TD, x_TD, fixed_TS)[1], title="Fixed, blocks of four", mask=fixed_TS.numpy())

# %%
for n in (64, 256, 1024):
    root = math.isqrt(n)
    keys = [pattern.pairs() / n for pattern in (sparse.strided(n, root), sparse.fixed(n, root))]
    print(f"n = {n}, √n = {root}: {keys[0]:.0f} and {keys[1]:.0f} keys for a query, on average")
    assert max(keys) < 2 * root
for sees_TS in (strided_TS, fixed_TS):
    assert all(layers_until(sees_TS, i, j) <= 2 for i in range(12) for j in range(i))

# %% [markdown]
# **Play**: start with *window*, and read pairs, growth and layers. Then one global block; then BigBird. Which of the three parts brings the
# layers down? Double the words: which patterns grow × 2, which × 4? Make it causal: can the global word still help?
# (All is counted in blocks; a block of size 1 is a word. Point at a pair, or move with the arrow keys, to see why it is computed.)

# %%
widgets.PatternExplorer(length=48, size=1, radius=2)

# %% [markdown]
# **What is wrong here?** "I have a window mask, so I pay for a window." The mask goes into the attention of unit 07, which computes all
# scores and throws most of them away. **Predict** the memory for 2,048 words: without a mask, with the mask, and with the library's
# `sparse.attend`, which computes the pattern's tiles only.

# %%
q, k, v = qkv(2048)
band_TS, pattern = masks.window(2048, 64), sparse.window(2048, 64)
assert torch.allclose(sparse.attend(q, k, v, pattern), explicit(q, k, v, band_TS)[0], atol=1e-5)  # the same numbers
plain, masked = peak_bytes(lambda: explicit(q, k, v)), peak_bytes(lambda: explicit(q, k, v, band_TS))
few = peak_bytes(lambda: sparse.attend(q, k, v, pattern))
print(f"all pairs {plain / 1e6:.1f} MB, masked {masked / 1e6:.1f} MB, tiles {few / 1e6:.1f} MB")
assert masked > plain > 10 * few  # the mask made it worse

# %% [markdown]
# ## Linformer mixes the keys before anybody asks
#
# The other way to have fewer terms: keep all queries, and make *fewer keys*. Linformer (Wang et al. 2020) mixes $S$ keys into $r$ of them by a
# learned matrix $E$, and the values by $F$, both $r \times S$:
#
# $$\text{softmax}\!\left(\frac{Q\,(E K)^\top}{\sqrt{d_k}}\right) F V$$
#
# **Predict** the shape of the weights, and the number of scores for 4,096 words and $r = 256$.

# %%
q, k, v = (x[0, 0] for x in qkv(4096))
mixer = efficient.Linformer(4096, 256, generator=generator(1))
assert (mixer.e @ k).shape == (256, 64)  # 256 mixed keys, as wide as before
assert explicit(q, mixer.e @ k, mixer.f @ v)[1].shape == (4096, 256)
assert torch.allclose(explicit(q, mixer.e @ k, mixer.f @ v)[0], mixer(q, k, v), atol=1e-4)
print(f"{4096 * 256:,} scores instead of {4096**2:,}")

# %% [markdown]
# **What is wrong here?** "It is a projection, like $W_K$", so somebody multiplies from the right, and makes the keys narrower. **Predict**
# how many scores there are.

# %%
narrow_KR = torch.randn(64, 16, generator=generator(2))
narrow_TS = (q @ narrow_KR) @ (k @ narrow_KR).mT
assert narrow_TS.shape == (4096, 4096)  # as many as before: words are rows, and E must stand on the left to mix words

# %% [markdown]
# **What is wrong here?** Linformer in a decoder, with a causal mask on the $T \times r$ weights. **Predict**: the last word is changed. Does
# the first output change?

# %%
q, k, v = (x[0, 0] for x in qkv(8))
little = efficient.Linformer(8, 4, generator=generator(1))
causal_TR = torch.ones(8, 4, dtype=torch.bool).tril()
before, _ = explicit(q, little.e @ k, little.f @ v, causal_TR)
k[-1], v[-1] = 9.0, 9.0
after, _ = explicit(q, little.e @ k, little.f @ v, causal_TR)
assert (before[0] - after[0]).abs().max() > 0.1  # every mixture has the last word in it, and no mask takes it out again
try:
    little(q, k, v, causal=True)
except ValueError as refusal:
    print(refusal)

# %% [markdown]
# A second price: $E$ has a column for each place, so a Linformer has a largest length, as a learned table of positions has (unit 08).
#
# ## Transformer-XL carries a memory from segment to segment
#
# Long texts can be cut into **segments**, each as long as one can pay for. But then a word at the start of a segment sees nothing of
# what came before. Transformer-XL (Dai et al. 2019) keeps the states of the segment before as a **memory**: queries come from the
# segment, keys and values from memory and segment together. In unit 04's formula, $S = M + T$.

# %%
seed_all(0)
reader = TransformerXL(TransformerXLConfig(vocab=11, d_model=16, heads=2, layers=2, d_ff=32, memory=100))
text_BT = torch.randint(0, 11, (1, 12), generator=generator(0))


@torch.no_grad()
def in_segments(model, text_BT, size, remember=True):
    memory, logits = None, []
    for segment_BT in text_BT.split(size, dim=1):
        logits_BTC, new = model(segment_BT, memory)
        memory = new if remember else None
        logits.append(logits_BTC)
    return torch.cat(logits, dim=1)


# %% [markdown]
# **Predict**: twelve words, read in segments of four with a memory that holds all: are the logits those of the whole text, read at once? And
# without the memory?

# %%
with torch.no_grad():
    whole_BTC, _ = reader(text_BT)
assert torch.allclose(in_segments(reader, text_BT, 4), whole_BTC, atol=1e-5)
cut_BTC = in_segments(reader, text_BT, 4, remember=False)
assert torch.allclose(cut_BTC[:, :4], whole_BTC[:, :4], atol=1e-5)  # the first segment has nothing to remember
assert not torch.allclose(cut_BTC[:, 4:], whole_BTC[:, 4:], atol=0.1)

# %% [markdown]
# It is the cache of unit 11 with a limit: the oldest states fall out. **What is wrong here?** Lecture notes say: "Transformer-XL divides
# sequences *hierarchically*." That would be a tree: attention inside each segment, then attention among one summary for each segment. Let us
# build that, and ask both: whose words can see a later segment?


# %%
def hierarchy(x_TD, size):
    inside = torch.cat([explicit(s, s, s)[0] for s in x_TD.split(size)])
    summaries = torch.stack([s.mean(dim=0) for s in inside.split(size)])
    above = explicit(summaries, summaries, summaries)[0]
    return inside + above.repeat_interleave(size, dim=0)


words_TD = torch.randn(12, 8, generator=generator(3))
other_TD = words_TD.clone()
other_TD[11] += 1.0  # the last word, in the last segment
assert (
    (hierarchy(other_TD, 4) != hierarchy(words_TD, 4)).any(dim=1)[:4].all()
)  # the tree: the first segment hears of it
other_BT = text_BT.clone()
other_BT[0, 11] = (other_BT[0, 11] + 1) % 11
both = [in_segments(reader, text, 4)[:, :11] for text in (text_BT, other_BT)]
assert torch.equal(*both)  # Transformer-XL: nobody before it does

# %% [markdown]
# And a word of the tree sees other segments only as *one* summary, whereas in Transformer-XL it can attend to each remembered word. There is no
# tree: segments stand in a row, all on one level, and each hands its states on to the next.
#
# How far back can a word hear? Layer 2 reads the memory of what layer 1 made, and that had read a memory of its own. **Predict** for segments
# and memories of 4 words: which words hear of the first word, with 1, 2 and 3 layers?

# %%
long_BT = torch.randint(0, 11, (1, 24), generator=generator(4))
changed_BT = long_BT.clone()
changed_BT[0, 0] = (changed_BT[0, 0] + 1) % 11
for layers in (1, 2, 3):
    seed_all(1)
    model = TransformerXL(TransformerXLConfig(vocab=11, d_model=16, heads=2, layers=layers, d_ff=32, memory=4))
    heard = (in_segments(model, changed_BT, 4) != in_segments(model, long_BT, 4)).any(dim=-1)[0]
    print(layers, "layers:", "".join("x" if h else "." for h in heard))
    assert heard.tolist() == [True] * 4 * (layers + 1) + [False] * (24 - 4 * (layers + 1))

# %% [markdown]
# So $L$ layers look back over $L$ memories, and each segment costs $T\,(M + T)$ pairs, wherever it stands: twice the text, twice the cost.
#
# Two details make it work. The memory is read and never trained through: gradients stop there, or training would have to go back through
# the whole book. And positions are *distances* (unit 08): counted from the segment's start, the first word of the memory and the first word of the
# segment would both be number 0. **Predict**: which of the two gets no gradient?

# %%
layer = RelativeMultiHead(16, 2)
segment_BTD, memory_BMD = (torch.randn(1, n, 16, requires_grad=True) for n in (4, 6))
layer(segment_BTD, memory_BMD).sum().backward()
assert segment_BTD.grad.abs().sum() > 0 and memory_BMD.grad is None

# %% [markdown]
# ## What is left out becomes an error
#
# `tiled` and `fused` compute exact attention. A window and a Linformer compute something else. How far off? One number:
#
# $$\text{error} = \frac{\lVert Y_{\text{variant}} - Y_{\text{exact}} \rVert}{\lVert Y_{\text{exact}} \rVert}$$
#
# That depends on what is to be looked at. Three texts of 512 vectors: **near**, whose scores are large for neighbours (the dot products of
# unit 08's sinusoids); **slow**, whose vectors change slowly along the text; **anywhere**, where the right key can be at any place.


# %%
def slow_text(n, d, g, batch=()):
    noise = torch.randn(*batch, d, n + 32, generator=g)
    return F.avg_pool1d(noise, 33, stride=1).mT * math.sqrt(33)


def texts(n=512, d=32, seed=0):
    g = generator(seed)
    where = 3 * sinusoidal(n, d)
    slow = slow_text(n, d, g)
    free = torch.randn(3, n, d, generator=g)
    return {
        "near": (where, where, free[0]),
        "slow": (slow, slow, slow),
        "anywhere": (3 * free[1], 3 * free[2], free[0]),
    }


def error(found, exact):
    return float((found - exact).norm() / exact.norm())


# %% [markdown]
# Linformer's matrices are to be learned. Two that need no learning: random ones, as a Linformer starts, and **pooling**, where each mixed
# key is the mean of 8 neighbouring keys. **Predict**, for each text, which variants have a small error.


# %%
def pooling(n, rank):
    mixer = efficient.Linformer(n, rank, generator=generator(0))
    mean_RS = F.adaptive_avg_pool1d(torch.eye(n)[None], rank)[0].mT
    mixer.load_state_dict({"e": mean_RS, "f": mean_RS})
    return mixer


VARIANTS = {
    "fused": fused,
    "tiled": lambda q, k, v: efficient.tiled(q, k, v, tile=64),
    "window, radius 32": lambda q, k, v: sparse.attend(q, k, v, sparse.window(512, 32)),
    "window, radius 511": lambda q, k, v: sparse.attend(q, k, v, sparse.window(512, 511)),
    "BigBird, blocks of 16": lambda q, k, v: sparse.attend(q, k, v, sparse.bigbird(512, 16)),
    "Linformer, random, rank 64": efficient.Linformer(512, 64, generator=generator(1)),
    "Linformer, pooling, rank 64": pooling(512, 64),
}


# %%
@torch.no_grad()
def errors(seed):
    chosen = texts(seed=seed)
    exact = {name: explicit(*text)[0] for name, text in chosen.items()}
    return {name: {kind: error(f(*text), exact[kind]) for kind, text in chosen.items()} for name, f in VARIANTS.items()}


table = errors(seed=0)
print(f"{'':30}" + "".join(f"{kind:>10}" for kind in table["fused"]))
for name, row in table.items():
    print(f"{name:30}" + "".join(f"{e:10.0e}" if e < 1e-4 else f"{e:10.3f}" for e in row.values()))

# %%
for seed in (0, 1, 2):
    table = errors(seed)
    for name in ("fused", "tiled", "window, radius 511"):
        assert max(table[name].values()) < 1e-4  # the same numbers, but for rounding
    window, bird, pooled = (
        table[name] for name in ("window, radius 32", "BigBird, blocks of 16", "Linformer, pooling, rank 64")
    )
    assert window["near"] < 0.01 < 0.5 < window["anywhere"]  # a window is good where neighbours matter …
    assert bird["near"] < 0.01 < 0.5 < bird["anywhere"]  # … and a few random pairs do not find the right key
    assert (
        pooled["slow"] < 0.2 and pooled["near"] > 0.5 and pooled["anywhere"] > 0.5
    )  # pooling blurs what must be sharp
    assert min(table["Linformer, random, rank 64"].values()) > 0.5  # nothing learned yet

# %% [markdown]
# There is no best variant: each is a guess about the text. (Real models are trained *with* their pattern and arrange themselves with it;
# the error of a drop-in, as here, is the worst case.)
#
# **What is wrong here?** "Linformer approximates attention, that is proved, so I can take random $E$ and $F$." The theorem says that matrices of low
# rank *exist*. **Predict** what 500 steps of learning make of it, on slow texts, where the loss is the squared error above.


# %%
def learn(seed, n=128, d=16, rank=16, steps=500):
    g = generator(seed)
    mixer = efficient.Linformer(n, rank, generator=g)
    optimizer = torch.optim.Adam(mixer.parameters(), lr=1e-2)
    for _ in range(steps):
        x = slow_text(n, d, g, batch=(8,))
        loss = F.mse_loss(mixer(x, x, x), explicit(x, x, x)[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x = slow_text(n, d, g, batch=(8,))  # not seen in training
    with torch.no_grad():
        return error(mixer(x, x, x), explicit(x, x, x)[0])


# %%
for seed in (0, 1, 2):
    first, last = learn(seed, steps=0), learn(seed)
    print(f"error {first:.2f} → {last:.2f}")
    assert first > 1 and last < first / 3

# %% [markdown]
# ## Doubling the words doubles some costs and quadruples others
#
# Now everything side by side, on your machine. If a cost is $c\,n^p$, then doubling $n$ multiplies it by $2^p$, and
#
# $$p = \log_2 \frac{\text{cost}(2n)}{\text{cost}(n)} .$$
#
# **Predict** $p$ for the memory and for the time of each: explicit, fused, tiled, a window of radius 64, a Linformer of rank 64, an RNN.


# %%
def six(n, d=64):
    q, k, v = qkv(n, d)
    mixer, pattern = efficient.Linformer(n, 64, generator=generator(0)), sparse.window(n, 64)
    recurrent = torch.nn.RNN(d, d, batch_first=True)
    return {
        "explicit": lambda: explicit(q, k, v)[0],
        "fused": lambda: fused(q, k, v),
        "tiled": lambda: efficient.tiled(q, k, v),
        "window": lambda: sparse.attend(q, k, v, pattern),
        "Linformer": lambda: mixer(q, k, v),
        "RNN": lambda: recurrent(q[0])[0],
    }


# %%
# The time that this process computed, however busy the machine is. (On Windows that clock is too coarse.)
clock = time.perf_counter if sys.platform == "win32" else time.process_time
LENGTHS = (1024, 2048, 4096)


def seconds(run):
    start = clock()
    run()
    return clock() - start


# %%
with torch.no_grad():
    runs = {n: six(n) for n in LENGTHS}
    memory = {n: {name: peak_bytes(run) for name, run in of_n.items()} for n, of_n in runs.items()}  # also warms up
    best = {n: dict.fromkeys(of_n, math.inf) for n, of_n in runs.items()}
    for _ in range(3):  # all lengths in every round: a busy moment then falls on all of them
        for n, of_n in runs.items():
            for name, run in of_n.items():
                best[n][name] = min(best[n][name], seconds(run))

# %% [markdown]
# Memory first: the peak in bytes is the same in every run.

# %%
for name in memory[1024]:
    held = [memory[n][name] for n in LENGTHS]
    print(f"{name:10}" + "".join(f"{b / 1e6:9.2f} MB" for b in held) + f"   last doubling × {held[2] / held[1]:.2f}")
    assert held[2] / held[1] > 3.5 if name == "explicit" else held[2] / held[1] < 2.5
assert memory[4096]["explicit"] > 20 * max(memory[4096][name] for name in ("fused", "tiled", "window", "Linformer"))

# %% [markdown]
# Then time, the best of three runs, since whatever else the machine does can only make a run longer; $p$ from two doublings:

# %%
powers = {}
for name in best[1024]:
    took = [best[n][name] for n in LENGTHS]
    powers[name] = math.log2(took[2] / took[0]) / 2
    print(f"{name:10}" + "".join(f"{1e3 * t:9.2f} ms" for t in took) + f"   n to the power {powers[name]:.2f}")
quadratic, linear = ("explicit", "fused", "tiled"), ("window", "Linformer", "RNN")
assert min(powers[name] for name in quadratic) > max(powers[name] for name in linear) + 0.3

# %%
plots.curves(
    {name: (LENGTHS, [1e3 * best[n][name] for n in LENGTHS]) for name in powers},
    title="Time of one attention, or one RNN, d = 64", xlabel="words n", ylabel="milliseconds",
    alt="Time against the number of words: explicit, fused and tiled attention rise steeply; window, Linformer and RNN slowly.",
    log=True,
)  # fmt: skip

# %% [markdown]
# See the three steep lines: `fused` and `tiled` save memory, and pay for all pairs as `explicit` does. (`explicit` may even exceed 2: its
# table no longer fits into the processor's cache.) And see that the RNN is linear in $n$; at this width, $d = 64$, the texts are in the
# land of $n \gg d$, where it wins by operations. What it lacks is everything that units 01 and 02 told.
#
# Operations can be counted without any clock. **Predict** the factor for $n = 64$ and for $n = 4096$ words, when $n$ doubles and $d = 512$:


# %%
def layer_cost(n, d):
    return 4 * n * d**2 + 2 * n**2 * d


for n in (64, 4096):
    print(f"n = {n}: × {layer_cost(2 * n, 512) / layer_cost(n, 512):.2f}")
assert layer_cost(128, 512) / layer_cost(64, 512) < 2.2  # short: as good as linear
assert layer_cost(8192, 512) / layer_cost(4096, 512) > 3.5  # long: as good as quadratic

# %% [markdown]
# ## Barriers and solutions
#
# | barrier | solution | changes the result? |
# |---|---|---|
# | $n \times n$ weights do not fit into memory (04) | the online softmax by tiles; torch's fused kernel (12) | no |
# | $n^2$ pairs are too much work | windows, global and random words, blocks (12) | yes: the sum has fewer terms |
# | a window needs many layers to reach far (01) | a global word, row *and* column: two layers (12) | yes |
# | $n^2$ pairs are too much work | Linformer: $r$ mixed keys and values (12) | yes, and never causal |
# | a text longer than any table | Transformer-XL: segments with a memory (12) | yes: what fell out of the memory |
# | a sparse mask that saves nothing | compute only the pattern's tiles (12) | no |
# | training does not fit into memory, or takes too long | *next: unit 13* | |
#
# **Three takeaways**
#
# 1. A layer costs $n^2 d + n d^2$. For $n \ll d$ the pairs hardly count; for $n \gg d$ they are everything.
# 2. Tiles with an online softmax give exact attention in memory that grows with $n$. The work stays $n^2$.
# 3. Whoever saves work leaves something out: pairs, keys, or what is long ago. Measure the error on *your* kind of text, and check that the
#    cost really falls: a mask alone saves nothing.
#
# **To think about**
#
# - The cache of unit 11 makes each new word cost $n$ pairs instead of $n^2$. How much does a whole text of $n$ words cost then?
# - A model with 24 layers and a window of radius 128: how far can a word hear? Why might it still miss a needle 1,000 words back?
# - GPT-3 alternates dense and banded layers. Which of the two costs more at 2,048 words, and what would be lost without it?
# - Could you choose the pairs *after* looking at the queries and keys? What would that choice cost?
#
# **To read**: Vaswani et al. 2017, section 4 and table 1; Child et al. 2019, *Generating Long Sequences with Sparse Transformers*; Dai et al.
# 2019, *Transformer-XL*; Wang et al. 2020, *Linformer*; Zaheer et al. 2020, *Big Bird*; Milakov and Gimelshein 2018, *Online
# normalizer calculation for softmax*; Dao et al. 2022, *FlashAttention*.
#
# **On**: try it yourself in `exercises/12_efficient_attention.ipynb`. Then unit 13 trains within a budget: of memory, of digits, of
# time.
