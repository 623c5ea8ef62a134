# %% [markdown]
# # 11 Decoder only: GPT-2
#
# Unit 10 translated. Here there is nothing to translate: the machine reads a text and says how it goes on. Throw the encoder away,
# and with it the cross-attention; what is left of the decoder is GPT. You will put it together, teach it Python's manual
# letter by letter, let it write, and find out why it does not read everything again for each new word.
#
# **After this unit you can**
#
# - write a causal language model (11-a);
# - use a cache, show equal logits and measure the gain (11-b);
# - sample with temperature and top-k (11-c);
# - load an independent GPT-2's weights and get its logits (11-d).
#
# **You need** units 07 (causal masks), 09 (the block) and 10 (shifted targets, greedy decoding). **Time**: 75 minutes to read and
# play. Three small networks are trained on the way; all cells together take less than a minute.
#
# Notation as before: $B$ texts, $T$ tokens, width $D$, $H$ heads, $C$ tokens in the vocabulary; and $L$ layers.

# %%
import math
import time
from collections import Counter
from importlib.util import find_spec
from itertools import pairwise
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import nn

from course_lib import plots, widgets
from course_lib.attention import record_weights
from course_lib.data import ByteTokenizer, next_token_windows, number_pairs, python_docs_text
from course_lib.decoding import filter_logits, sample
from course_lib.device import generator, seed_all
from course_lib.gpt import GPT, GPT2_SMALL, GPTConfig, load_hugging_face
from course_lib.training import TrainConfig, evaluate, fit

# %%
torch.set_num_threads(1)  # for networks this small, more threads would mostly wait for each other

# %% [markdown]
# ## Without an encoder, the text predicts itself
#
# A **language model** gives every text a probability, one token after the other:
#
# $$p(x_1 \dots x_T) = \prod_t p(x_t \mid x_1 \dots x_{t-1})$$
#
# That is what unit 10's decoder did, with one condition less: no source. So no cross-attention either, and a decoder block without
# cross-attention is the block of unit 09 with a causal mask. GPT-2 stacks $L$ of them:
#
# | station | the model of 2017 (unit 10) | GPT-2 |
# |---|---|---|
# | in | $\sqrt D\, e + $ sinusoid | $e + p$, with $p$ learned, one vector for each place |
# | block | post-norm, ReLU | pre-norm, GELU (a ReLU with a round corner) |
# | after the last block | nothing | one more norm |
# | out | the embedding's matrix, once more | the same: **tied** |
#
# **Predict** the shapes on the way for $B = 2$ texts of $T = 9$ tokens, $D = 64$ and $C = 256$.

# %%
seed_all(0)
model = GPT(GPTConfig(vocab=256, max_length=64, d_model=64, heads=4, layers=2))
tokens_BT = torch.randint(0, 256, (2, 9), generator=generator(0))
x_BTD = model.embedding(tokens_BT) + model.positions.table[:9]
for block in model.blocks:
    x_BTD = x_BTD + block.attention(block.skip_1.norm(x_BTD), causal=True)
    x_BTD = x_BTD + block.feed_forward(block.skip_2.norm(x_BTD))
logits_BTC = model.norm(x_BTD) @ model.embedding.weight.T
print(tuple(x_BTD.shape), tuple(logits_BTC.shape))
assert torch.allclose(logits_BTC, model(tokens_BT)[0], atol=1e-6)

# %% [markdown]
# Six lines, and they are all of GPT-2. **Predict**: token 5 (counted from 0) of the first text is changed. Which rows of the logits
# change?

# %%
other_BT = tokens_BT.clone()
other_BT[0, 5] += 1
changed_BT = (model(other_BT)[0] != model(tokens_BT)[0]).any(dim=-1)
assert changed_BT[0].tolist() == [False] * 5 + [True] * 4  # not before, and everything from there on
assert not changed_BT[1].any()

# %% [markdown]
# Now the real one: $L = 12$, $D = 768$, $C = 50{,}257$, 1,024 places. Each block has about $12 D^2$ parameters: $4D^2$ in the attention,
# $8D^2$ in the feed-forward network. **Predict** the total, in millions. (The *meta* device of unit 10 builds it without memory.)

# %%
with torch.device("meta"):
    small = GPT(GPT2_SMALL)
parameters = sum(p.numel() for p in small.parameters())
per_block = 12 * 768**2 + 13 * 768  # 13 D: biases of four matrices, gain and bias of two norms
assert parameters == 12 * per_block + (50_257 + 1_024) * 768 + 2 * 768 == 124_439_808
print(f"{parameters:,}; an output matrix of its own would add {50_257 * 768:,}, {50_257 * 768 / parameters:.0%}")

# %% [markdown]
# **What is wrong here?** The paper's table (Radford et al. 2019, table 2) says 117M for this size, and so do many slides. You have
# counted: 124 million. (Its authors said later, in the notes to their code, that the first numbers were wrong.) A count that runs is
# worth more than a table.

# %%
assert not 116e6 < parameters < 118e6

# %% [markdown]
# ## What is added 2L times starts smaller
#
# In a pre-norm model every sublayer *adds* to the same vector $x$, and nothing shrinks it on the way: $x_{\text{end}} = x + y_1 + \dots + y_{2L}$.
# At the start the $y$ have nothing to do with each other, so their variances add up: with variance $s^2$ each, the sum has
# $2L s^2$, a spread of $s\sqrt{2L}$. GPT-2 therefore draws the last matrix of each sublayer with a standard deviation of
# $0.02 / \sqrt{2L}$ where all others have $0.02$.
#
# **What is wrong here?** Somebody forgets the root and draws all matrices alike. It runs. **Predict** by which factor the sum spreads
# more with 32 layers than with 2.


# %%
@torch.no_grad()
def spread(layers, scaled=True):
    seed_all(0)
    made = GPT(GPTConfig(vocab=256, max_length=64, d_model=64, heads=4, layers=layers))
    x_BTD = made.positions(made.embedding(torch.randint(0, 256, (4, 64))))
    for name, parameter in made.named_parameters():
        if name.endswith(("w_o.weight", "w_2.weight")) and not scaled:
            parameter *= math.sqrt(2 * layers)  # undoes what GPT-2 does
        if name.endswith("weight"):
            parameter *= math.sqrt(768 / 64)  # 0.02 is made for D = 768: see below
    for block in made.blocks:
        x_BTD, _ = block.step(x_BTD, None)
    return float(x_BTD.std())


# %%
good, bad = ([spread(layers, scaled) for layers in (2, 8, 32)] for scaled in (True, False))
for how, values in {"divided by √(2L)": good, "all alike": bad}.items():
    print(f"{how:>17}: " + ", ".join(f"{v:.2f}" for v in values))
assert good[2] / good[0] < 1.3  # the same spread, whatever the depth
assert bad[2] / bad[0] > 3  # √(64 / 4) = 4: it grows as the root of the depth

# %% [markdown]
# (The $0.02$ itself fits a width of 768: normed numbers, 768 of them, times such a matrix give numbers that spread by
# $0.02\sqrt{768} \approx 0.55$. Our models are narrower, and keep that 0.55: all matrices are drawn with $0.55/\sqrt D$.)
#
# ## Bytes spell every text
#
# Unit 10 had one token for each word of a list. **Predict** what becomes of "forty five quokkas" there, and back.

# %%
words = number_pairs("german", train=10, test=10).source_words
back = words.decode(words.encode(["forty", "five", "quokkas"]))
print(back)
assert back == ["forty", "five", "<unk>"]  # what is not on the list is lost

# %% [markdown]
# GPT-2 wants to be **reversible**: from the tokens the very same text comes back, whatever it was. Every text is a row of bytes
# (UTF-8), and there are 256 different bytes. **Predict**: how many tokens has "fünf und vierzig", which has 16 letters and spaces?

# %%
spell = ByteTokenizer()
print(spell.encode("fünf"), len(spell.encode("fünf und vierzig")))
assert len(spell.encode("fünf und vierzig")) == 17  # ü takes two bytes
for text in ("fünf und vierzig", "forty five quokkas", "四十五", "🙂\n\t\x00"):
    assert spell.decode(spell.encode(text)) == text
assert spell.decode([195]) == "\ufffd"  # the first half of ü is no letter: it shows as �

# %% [markdown]
# Nothing is unknown, but texts get long, and attention costs $T^2$. So GPT-2 **merges**: the pair of tokens that is most frequent
# becomes a new token, then the next pair, 50,000 times. $256 + 50{,}000 + 1$ (a token for the end of a text) is its $C = 50{,}257$.
# **Predict** which pair of letters of an English text comes first.

# %%
raw = python_docs_text()[:20_000].encode()
row = "".join(chr(byte) for byte in raw)  # one character for each token, so that Python's replace can merge
spelled = {chr(n): bytes([n]) for n in range(256)}
for new in map(chr, range(256, 296)):
    (a, b), _ = Counter(pairwise(row)).most_common(1)[0]
    row, spelled[new] = row.replace(a + b, new), spelled[a] + spelled[b]
print([spelled[chr(n)].decode(errors="replace") for n in range(256, 296)])
print(f"{len(raw):,} bytes, {len(row):,} tokens after 40 merges")
assert b"".join(spelled[token] for token in row) == raw  # still reversible
assert len(row) < 0.8 * len(raw)

# %% [markdown]
# Spaces in a row first (this text is full of indented lines), then pieces of frequent words. For our small model we stay with bytes: 256 rows in
# the table are enough.
#
# ## Every place of a window is an exercise
#
# The text is Python's own manual, which every Python carries with it. It has documents of very different lengths. Unit 10 padded
# sentences to one length; here nothing is padded: all documents are put in one row, and a window of $T$ tokens is cut out anywhere,
# even across the border of two documents (GPT-2 puts its end-of-text token there). The target is the same window, one token on.

# %%
lengths = sorted(len(spell.encode(t)) for t in topics.values())
ids = torch.tensor(spell.encode(python_docs_text()))
print(f"{len(lengths)} documents of {lengths[0]} to {lengths[-1]:,} bytes, together {len(ids):,}")
train_ids, test_ids = ids[: int(0.9 * len(ids))], ids[int(0.9 * len(ids)) :]
read_BT, said_BT = next(next_token_windows(train_ids, 64, 3, generator(1), steps=1))
assert torch.equal(read_BT[:, 1:], said_BT[:, :-1])
print(repr(spell.decode(read_BT[0])), "\n" + repr(spell.decode(said_BT[0])))

# %% [markdown]
# A window of 64 tokens is 64 exercises at once: after one token, after two, … after 64. **Predict** the loss of a model that knows
# nothing and gives each of the 256 bytes the same probability. And of one that knows how often each byte occurs? And of one
# that knows how often each byte follows each other one?

# %%
alone_C = torch.bincount(train_ids, minlength=256) + 1.0  # plus 1: nothing is impossible
after_CC = torch.full((256, 256), 0.1)
after_CC.index_put_((train_ids[:-1], train_ids[1:]), torch.ones(len(train_ids) - 1), accumulate=True)
p_alone, p_after = alone_C / alone_C.sum(), after_CC / after_CC.sum(dim=1, keepdim=True)
by_counts = {
    "nothing": math.log(256),
    "letters": float(-p_alone[test_ids].log().mean()),
    "pairs": float(-p_after[test_ids[:-1], test_ids[1:]].log().mean()),
}
print({name: round(loss, 2) for name, loss in by_counts.items()})
assert by_counts["nothing"] > by_counts["letters"] + 1 > by_counts["pairs"] + 1.5

# %% [markdown]
# Now a GPT: 2 layers, $D = 64$, 64 places, 400 steps with 16 windows each. Everything is ready: the loop is that of unit 10
# (without padding: `pad=None`). **Predict** its loss before the first step, and on unseen text after the last one.


# %%
@torch.no_grad()
def new_gpt(d_model, heads, layers, seed=0, **more):
    seed_all(seed)
    made = GPT(GPTConfig(256, 64, d_model, heads, layers, **more))
    for parameter in made.parameters():
        if parameter.ndim > 1:
            parameter *= math.sqrt(768 / d_model)  # 0.02 → 0.55 / √D
    return made


def train(made, steps=400, seed=0):
    windows = next_token_windows(train_ids, 64, 16, generator(seed), steps)
    return fit(made, windows, TrainConfig(steps=steps, lr=8e-3, warmup=20, pad=None, matmul="medium"))


def unseen(made):
    return evaluate(made, next_token_windows(test_ids, 64, 64, generator(99), 8), pad=None)


# %%
writer = new_gpt(64, 4, 2)
at_first = unseen(writer)
assert abs(at_first - math.log(256)) < 0.5  # it begins knowing nothing

# %%
history = train(writer)

# %%
learned = unseen(writer)
print(f"{at_first:.2f} before, {learned:.2f} after {history.seconds[-1]:.1f} seconds")
assert learned < by_counts["pairs"] - 0.2  # it looks back further than one letter
plots.curves({"GPT, 2 layers": history.losses, "counted pairs": ([1, 400], [by_counts["pairs"]] * 2)},
             title="Learning Python's manual, byte by byte", xlabel="training step", ylabel="loss per byte",
             alt=f"The loss falls from {history.losses[0]:.1f} to {history.losses[-1]:.1f}, below the line of counted pairs.")  # fmt: skip

# %% [markdown]
# See where the curve crosses the dashed line: from there on it knows more than which letter follows which.
#
# ## Temperature and top-k say how daring the text is
#
# The model gives logits $z$ for the next token; somebody must choose. **Greedy** takes the best one. **Predict** what kind of text
# that gives.


# %%
def go_on(prompt, steps=120, seed=0, **how):
    ids_BT = torch.tensor([spell.encode(prompt)])
    said_BT = sample(writer, ids_BT, steps=steps, generator=generator(seed), crop=True, **how)
    return spell.decode(said_BT[0])


greedy_text = go_on("If the ", temperature=0)
print(greedy_text)
tail = greedy_text[-90:]
groups = set(zip(tail, tail[1:], tail[2:], strict=False))
assert len(groups) < 60  # of 88 groups of three letters: many stand there twice and more

# %% [markdown]
# It goes round in circles: the most probable letter leads to the most probable word, and that one back to itself. So **draw** the next
# token instead, from probabilities that you can sharpen or flatten by a **temperature** $\tau$ (unit 04 knew it from the soft lookup):
#
# $$p_i = \frac{e^{z_i / \tau}}{\sum_j e^{z_j / \tau}}$$
#
# **By hand**: at $\tau = 1$ four tokens have 0.5, 0.25, 0.15 and 0.1. Dividing logits by $\tau$ raises each $p$ to the power $1/\tau$ and
# shares out again. What are they at $\tau = 0.5$? **Predict** where it ends for $\tau \to 0$, and for $\tau \to \infty$.

# %%
z = torch.tensor([0.5, 0.25, 0.15, 0.1]).log()
squares = torch.tensor([0.5, 0.25, 0.15, 0.1]) ** 2
assert torch.allclose((z / 0.5).softmax(dim=0), squares / squares.sum())
print((z / 0.5).softmax(dim=0))
assert (z / 0.01).softmax(dim=0)[0] > 0.999  # τ → 0: greedy
assert torch.allclose((z / 1000).softmax(dim=0), torch.tensor(0.25), atol=1e-3)  # τ → ∞: dice

# %% [markdown]
# There are always many improbable tokens, and together they are not improbable at all. **Top-k** keeps the $k$ largest logits and sets
# all others to $-\infty$, as a mask does. **Predict**: with $k = 2$, what becomes of the four probabilities above?

# %%
best = filter_logits(z, top_k=2)
assert best[2] == best[3] == -math.inf
assert torch.allclose(best.softmax(dim=0), torch.tensor([2 / 3, 1 / 3, 0, 0]))

# %% [markdown]
# **What is wrong here?** Three versions that run, and that people write:

# %%
cut = z.masked_fill(z < z[1], 0.0)  # the others' logits set to 0
assert cut.softmax(dim=0)[3] > cut.softmax(dim=0)[0]  # e⁰ = 1: the worst tokens are now the best
late = z.softmax(dim=0) / 0.5  # the temperature after the softmax …
assert torch.allclose(late / late.sum(), z.softmax(dim=0))  # … changes nothing, once they add up to 1 again …
assert late.sum() > 1.99  # … and before that they were no probabilities
hot = (z * 2.0).softmax(dim=0)  # multiplied: a "hot" model that plays safe
assert hot[0] > z.softmax(dim=0)[0]

# %% [markdown]
# **Play**: three texts, and what our model thinks comes next. Turn the temperature from 0 to 3: when does nonsense become likely? At
# temperature 2, how small must $k$ be to keep it out? Which of the three texts leaves the model least choice? Then draw.

# %%
names = [f"byte {n}" if n < 32 or n > 126 else "space" if n == 32 else chr(n) for n in range(256)]
names[10] = "new line"
texts = ["The value of th", "If the object is a seq", "For exam"]
with torch.no_grad():
    nexts = {t: writer.step(torch.tensor([spell.encode(t)]), None)[0][0] for t in texts}
widgets.NextToken(names, nexts)

# %% [markdown]
# "Least choice" has a number: $e^{\text{entropy}}$, which the figure shows as so many equal choices. **Predict** how it moves with
# the temperature. And are the drawn tokens really distributed like $p$?

# %%
logits_C = nexts["The value of th"]


def choices(temperature):
    p_C = (logits_C / temperature).softmax(dim=0)
    return float(torch.special.entr(p_C).sum().exp())


print([round(choices(t), 1) for t in (0.3, 0.7, 1, 1.5, 3)])
assert choices(0.3) < choices(0.7) < choices(1) < choices(1.5) < choices(3)
p_C = filter_logits(logits_C / 1.5, top_k=5).softmax(dim=0)
drawn = torch.multinomial(p_C, 20_000, replacement=True, generator=generator(0))
assert (torch.bincount(drawn, minlength=256) / 20_000 - p_C).abs().max() < 0.02 and len(drawn.unique()) <= 5

# %%
for how in (dict(temperature=2.0), dict(temperature=1.0), dict(temperature=0.7, top_k=20)):
    print(f"--- {how}\n{go_on('If the ', **how)}\n")

# %% [markdown]
# Not English yet, but its rhythm, line breaks and quotation marks, after a few seconds and 400,000 bytes. (GPT-2 read 40 GB.)
#
# ## A cache never computes a key twice
#
# To write the next token the model needs the last row of logits, and for that the keys and values of *all* tokens before it, in
# every layer. Do these have to be computed again for each new token? **Predict**: a token is added at the end. What changes in the
# keys of the earlier ones, in layer 2?

# %%
prompt_BT = torch.tensor([spell.encode("The value of the ex")])
with torch.no_grad():
    _, past = writer(prompt_BT[:, :-1])
    _, longer = writer(prompt_BT)
print([tuple(kv.k.shape) for kv in past], "→", [tuple(kv.k.shape) for kv in longer])  # (B, H, T, K) for each layer
for old, new in zip(past, longer, strict=True):
    assert torch.allclose(old.k, new.k[:, :, :-1], atol=1e-5) and torch.allclose(old.v, new.v[:, :, :-1], atol=1e-5)

# %% [markdown]
# Nothing changes: the causal mask lets nothing come back from a later token, in any layer. So keep them. GPT-2's code hands them in
# as `past` and out as `present`, and then reads the *newest* token alone: one query, and the old keys and values.
#
# | | without a cache | with a cache |
# |---|---|---|
# | reads for token $n$ | all $n$ tokens | 1 token |
# | reads in all, for $n$ tokens | $1 + 2 + \dots + n = n(n+1)/2$ | $n$ |
# | keeps | nothing | $2 L D$ numbers for each token |
#
# **Predict**: are the logits the same if the model reads token by token? If it reads 5 tokens, then 9 at once, then 5?

# %%
with torch.no_grad():
    whole_BTC, _ = writer(prompt_BT)
    for chunks in ([1] * 19, [5, 9, 5], [18, 1]):
        past, parts = None, []
        for chunk_BT in prompt_BT.split(chunks, dim=1):
            part_BTC, past = writer(chunk_BT, past)
            parts.append(part_BTC)
        assert torch.allclose(torch.cat(parts, dim=1), whole_BTC, atol=1e-4)

# %% [markdown]
# The same logits. And the time? A larger model (not trained: for the time it makes no difference), 256 tokens.
# **Predict** how many times faster the cache is. Reads are $256 \cdot 257 / 2 = 32{,}896$ against $256$: 128 times fewer.

# %%
seed_all(0)
large = GPT(GPTConfig(256, 256, d_model=128, heads=4, layers=4)).eval()
text_BT = torch.randint(0, 256, (1, 256), generator=generator(0))


@torch.no_grad()
def seconds(cached):
    past, start = None, time.perf_counter()
    for n in range(1, 257):
        logits_BC, past = large.step(text_BT[:, n - 1 : n] if cached else text_BT[:, :n], past if cached else None)
    return time.perf_counter() - start, logits_BC


# %%
(slow, slow_BC), (fast, fast_BC) = seconds(cached=False), seconds(cached=True)
print(f"{slow:.2f} s without, {fast:.2f} s with the cache: {slow / fast:.1f} times faster")
assert torch.allclose(slow_BC, fast_BC, atol=1e-4)
assert slow > 2 * fast

# %% [markdown]
# Faster by much, but not by 128: a step with one token costs nearly as much in *calls* as one with many, and reading a row of
# tokens at once is what computers are good at. (That is why prompts are read in one go.) The cache pays with memory.
# **Predict** its size for GPT-2 small with a full text of 1,024 tokens, at 4 bytes a number; and for GPT-3, 96 layers of width
# 12,288, with 2,048 tokens at 2 bytes.

# %%
cached = sum(tensor.numel() for kv in past for tensor in kv)
assert cached == 2 * 2 * 64 * 19  # 2 · L · D numbers for each of our 19 tokens
gpt2, gpt3 = 2 * 12 * 768 * 1024 * 4, 2 * 96 * 12_288 * 2048 * 2
print(f"GPT-2 small: {gpt2 / 1e6:.0f} MB, GPT-3: {gpt3 / 1e9:.1f} GB, for one text")
assert 75e6 < gpt2 < 76e6 and 9.6e9 < gpt3 < 9.7e9

# %% [markdown]
# **Play**: layers upwards, tokens to the right. Add new tokens, one by one, and compare with the cache taken away: how much is computed
# in the last step, how much in all? Leave the band alone for now.

# %%
widgets.KeyValueCache(layers=4, d_model=64, prompt=4, step=3)

# %% [markdown]
# ## A cache goes wrong in four ways
#
# Each of these runs. **What is wrong here?** First: torch's fused attention with its own switch for causal masks, one new query,
# five keys. **Predict** which keys it sees.

# %%
q, k, v = torch.randn(1, 4, generator=generator(0)), torch.randn(5, 4, generator=generator(1)), torch.eye(5)
# With the identity as values, the output is the weights.
seen = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0, 0]
print(seen)
assert seen.tolist() == [1, 0, 0, 0, 0]  # the diagonal starts at the top left: the newest token sees the oldest only
right = F.scaled_dot_product_attention(q[None], k[None], v[None])[0, 0]
assert (right > 0).all()  # one newest token needs no mask at all

# %% [markdown]
# Several new tokens need a mask, and its diagonal must be moved by the length of the past: new token $i$ sees key $j$ for
# $j \le i + S$. Second: **no mask** for a chunk of several tokens, because "one token needs none".

# %%
q_TK, k_SK = torch.randn(3, 4, generator=generator(2)), torch.randn(5, 4, generator=generator(3))
moved_TS = torch.ones(3, 5, dtype=torch.bool).tril(5 - 3)
print(moved_TS.int())
masked = F.scaled_dot_product_attention(q_TK[None], k_SK[None], v[None], attn_mask=moved_TS)[0]
bare = F.scaled_dot_product_attention(q_TK[None], k_SK[None], v[None])[0]
assert (masked[0, 3:] == 0).all() and (bare[0, 3:] > 0).all()  # without it, the first new token reads the two after it

# %% [markdown]
# Third: the **position starts again**. A newest token that is read alone is the first of its row, but it is not the first of the text.
# Fourth: the **whole text again** behind a past that already holds it. **Predict** for both whether the shapes give them away.


# %%
@torch.no_grad()
def last_logits(newest_BT, past, position):
    x_BTD = writer.embedding(newest_BT) + writer.positions.table[position : position + newest_BT.shape[1]]
    for block, kv in zip(writer.blocks, past, strict=True):
        x_BTD, _ = block.step(x_BTD, kv)
    return writer.norm(x_BTD)[0, -1] @ writer.embedding.weight.T


_, past = writer(prompt_BT[:, :-1])
wanted_C = whole_BTC[0, -1]
assert torch.allclose(last_logits(prompt_BT[:, -1:], past, 18), wanted_C, atol=1e-4)  # right
assert not torch.allclose(last_logits(prompt_BT[:, -1:], past, 0), wanted_C, atol=0.1)  # third
again_C = last_logits(prompt_BT, past, 18)  # every token stands there twice now
assert not torch.allclose(again_C, wanted_C, atol=0.1)  # fourth

# %% [markdown]
# No error, no wrong shape: worse texts, that is all. Comparing with the whole text read at once finds all four; so do that, always.
#
# And when the text is longer than the table of positions? Ours has 64 places. **Predict** what the model does with 65 tokens, and
# which 64 it should keep.

# %%
long_BT = train_ids[None, :70]
try:
    writer(long_BT)
except ValueError as error:
    print(error)
last = sample(writer, long_BT, steps=1, generator=None, temperature=0, crop=True)
assert torch.equal(last, sample(writer, long_BT[:, -64:], steps=1, generator=None, temperature=0))  # the LAST 64

# %% [markdown]
# Then every token moves to another place, so no cached key is right any more: beyond the table each token costs a whole reading. (Rotary
# positions of unit 08 have no table, and unit 12 meets other ways out.)
#
# ## Published weights fit, if you turn them
#
# Is this really GPT-2? The best proof is somebody else's program with the same weights. The published weights have names such as
# `h.0.attn.c_attn.weight`, and one habit: **matrices are stored as (in, out)**, for $x W$. torch's `nn.Linear` stores (out, in). Here is
# a set of weights in that form (with random numbers: the real ones are half a gigabyte to download):

# %%
D, layers = 48, 3
sizes = {"ln_1": (D,), "ln_2": (D,), "attn.c_attn": (D, 3 * D), "attn.c_proj": (D, D), "mlp.c_fc": (D, 4 * D),
         "mlp.c_proj": (4 * D, D)}  # fmt: skip
g, published = generator(7), {}
for name, size in {"ln_f": (D,), **{f"h.{i}.{n}": s for i in range(layers) for n, s in sizes.items()}}.items():
    published[f"{name}.weight"] = 0.2 * torch.randn(size, generator=g) + (len(size) == 1)
    published[f"{name}.bias"] = 0.2 * torch.randn(size[-1], generator=g)
published["wte.weight"], published["wpe.weight"] = (0.3 * torch.randn(n, D, generator=g) for n in (256, 32))
print(len(published), "tensors:", *list(published)[:4], "…")

# %% [markdown]
# And an **independent GPT-2**, from torch's own encoder layers, which share no line with this course. **Predict** which weights have to be
# turned on the way into it.


# %%
in_torch = {"norm1.": "ln_1", "norm2.": "ln_2", "self_attn.in_proj_": "attn.c_attn", "self_attn.out_proj.": "attn.c_proj",
            "linear1.": "mlp.c_fc", "linear2.": "mlp.c_proj"}  # fmt: skip


def turned(w):
    return w.T if w.ndim == 2 else w  # (in, out) → (out, in); biases, gains stay


def by_torch(weights, tokens_BT, heads, gelu):
    x = weights["wte.weight"][tokens_BT] + weights["wpe.weight"][: tokens_BT.shape[1]]
    future = nn.Transformer.generate_square_subsequent_mask(tokens_BT.shape[1])
    for i in range(layers):
        layer = nn.TransformerEncoderLayer(D, heads, 4 * D, 0.0, gelu, norm_first=True, batch_first=True)
        layer.load_state_dict({
            f"{name}{kind}": turned(weights[f"h.{i}.{ours}.{kind}"])
            for name, ours in in_torch.items() for kind in ("weight", "bias")
        })  # fmt: skip
        x = layer(x, src_mask=future)
    return F.layer_norm(x, (D,), weights["ln_f.weight"], weights["ln_f.bias"]) @ weights["wte.weight"].T


# %%
tanh_gelu = nn.GELU("tanh")
twin = GPT(GPTConfig(256, 32, d_model=D, heads=4, layers=layers))
load_hugging_face(twin, published)
ours_BTC, theirs_BTC = twin(tokens_BT)[0], by_torch(published, tokens_BT, 4, tanh_gelu)
print(f"largest difference {(ours_BTC - theirs_BTC).abs().max():.1e}, logits up to {theirs_BTC.abs().max():.0f}")
assert torch.allclose(ours_BTC, theirs_BTC, rtol=1e-4, atol=1e-3)

# %% [markdown]
# The same logits. **What is wrong here?** Two more attempts. One forgets to turn the matrices; the shapes of most forbid it, but
# `attn.c_proj` is square. The other one takes the exact GELU, where GPT-2 has
# $\tfrac12 x\,(1 + \tanh[\sqrt{2/\pi}\,(x + 0.044715\,x^3)])$. **Predict** which error is the larger one.

# %%
unturned = {name: w.T if name.endswith("attn.c_proj.weight") else w for name, w in published.items()}
far = (by_torch(unturned, tokens_BT, 4, tanh_gelu) - ours_BTC).abs().max()
near = (by_torch(published, tokens_BT, 4, nn.GELU()) - ours_BTC).abs().max()
print(f"not turned: {far:.2f}; exact GELU: {near:.4f}")
assert far > 0.5 and far > 20 * near  # another model
assert near > 2e-4 > (theirs_BTC - ours_BTC).abs().max()  # nearly the same, and yet not: more than rounding

# %% [markdown]
# The library most people use for this is Hugging Face's `transformers`. Where it is installed, the next cell compares with it, too
# (and with `GPT2LMHeadModel.from_pretrained("gpt2")` in its place you would load the real weights):

# %%
if find_spec("transformers"):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=256, n_positions=32, n_embd=D, n_layer=layers, n_head=4, bos_token_id=0, eos_token_id=0
    )
    theirs = GPT2LMHeadModel(config).eval()
    theirs.transformer.load_state_dict(published, strict=False)  # older versions keep their masks there, too
    with torch.no_grad():
        assert torch.allclose(theirs(tokens_BT).logits, ours_BTC, rtol=1e-4, atol=1e-3)
    print("the same logits as transformers")

# %% [markdown]
# ## GPT-3 alternates dense and banded layers
#
# GPT-3 is "the same model" as GPT-2, by its paper, pre-norm, initialisation and byte tokens included, with one exception: dense layers
# alternate with **locally banded** ones, in which a token sees only the last $w$ tokens, itself included. (The paper refers to the
# Sparse Transformer for the pattern and does not give its $w$.) **Predict** the weights of the two kinds for $T = 6$ and $w = 3$.

# %%
banded = new_gpt(64, 4, 4, band=3)
with record_weights(banded) as recorded, torch.no_grad():
    banded(tokens_BT[:1, :6])
dense_TT, band_TT = (recorded[f"blocks.{layer}.attention"][0][0, 0] for layer in (0, 1))
assert (dense_TT > 0).sum() == 6 * 7 // 2 and (band_TT > 0).sum() == 1 + 2 + 3 * 4
plots.weights(band_TT, [str(n) for n in range(1, 7)], title="A banded layer, w = 3", mask=band_TT > 0)

# %% [markdown]
# See the hatched corner below the diagonal: that is the past which this layer does not see. Pairs grow as $wT$, no longer as $T^2/2$. At
# 2,048 tokens and $w = 256$ (a number of ours):

# %%
T, w = 2048, 256
dense, narrow = T * (T + 1) // 2, w * T - w * (w - 1) // 2
print(f"{dense:,} pairs in a dense layer, {narrow:,} in a banded one: {narrow / dense:.0%}")
assert narrow < 0.25 * dense

# %% [markdown]
# **What is wrong here?** "With a band of 3, a model with two such layers sees the last 3 tokens." **Predict** how far a change of
# the first token is felt: through two banded layers; through the four layers of `banded`.

# %%
x_BTD = torch.randn(1, 9, 64, generator=generator(0))
y_BTD = x_BTD.clone()
y_BTD[0, 0] = torch.randn(64, generator=generator(1))
for block in (banded.blocks[1], banded.blocks[3]):  # the two banded ones
    x_BTD, y_BTD = block.step(x_BTD, None)[0], block.step(y_BTD, None)[0]
felt = ((x_BTD - y_BTD).abs().amax(dim=-1)[0] > 1e-6).tolist()
assert felt == [True] * 5 + [False] * 4  # each layer hands it on by w − 1 = 2 places: 2 + 2
through_four = (banded(other_BT)[0] != banded(tokens_BT)[0]).any(dim=-1)[0]
assert through_four[5:].all()  # token 5 was changed: with dense layers between them it is felt everywhere after it

# %% [markdown]
# Information travels: what token 3 has heard of token 1, token 5 hears from token 3. And every second layer is dense, so nothing is
# out of reach. The **cache** gains, too: a banded layer keeps $w - 1$ tokens, however long the text gets.

# %%
with torch.no_grad():
    _, past = banded(tokens_BT)
print([kv.k.shape[2] for kv in past], "tokens kept by the four layers")
assert [kv.k.shape[2] for kv in past] == [9, 2, 9, 2]

# %% [markdown]
# **Play**: go back to the figure of the cache, give every second layer a band of 3, and add tokens. Which rows stop growing?
#
# ## Larger is lower
#
# GPT-3 came in eight sizes (Brown et al. 2020, table 2.1), all trained on the same 300 billion tokens, to see one thing: how the loss
# falls with size.
#
# | name | parameters | $L$ | $D$ | heads | head width |
# |---|---|---|---|---|---|
# | Small | 125M | 12 | 768 | 12 | 64 |
# | Medium | 350M | 24 | 1024 | 16 | 64 |
# | Large | 760M | 24 | 1536 | 16 | 96 |
# | XL | 1.3B | 24 | 2048 | 24 | 128 |
# | 2.7B | 2.7B | 32 | 2560 | 32 | 80 |
# | 6.7B | 6.7B | 32 | 4096 | 32 | 128 |
# | 13B | 13.0B | 40 | 5140 | 40 | 128 |
# | 175B | 175.0B | 96 | 12288 | 96 | 128 |
#
# **What is wrong here?** Two rows of this table, as printed, cannot be. You know one sum that must come out in each row. Find them.

# %%
table = {"Small": (0.125, 12, 768, 12, 64), "Medium": (0.35, 24, 1024, 16, 64), "Large": (0.76, 24, 1536, 16, 96),
         "XL": (1.3, 24, 2048, 24, 128), "2.7B": (2.7, 32, 2560, 32, 80), "6.7B": (6.7, 32, 4096, 32, 128),
         "13B": (13.0, 40, 5140, 40, 128), "175B": (175.0, 96, 12_288, 96, 128)}  # fmt: skip
assert [name for name, (_, _, width, heads, d_k) in table.items() if heads * d_k != width] == ["XL", "13B"]
for name, (billions, depth, width, _, _) in table.items():  # but the parameters fit: 12 D² a layer, and the two tables
    counted = 12 * depth * width**2 + (50_257 + 2048) * width
    assert abs(counted / 1e9 / billions - 1) < 0.03, name

# %% [markdown]
# In XL, $24 \cdot 128 = 3072$, and in 13B, $40 \cdot 128 = 5120$; the paper's table does not say what was really built.
#
# Earlier work (Kaplan et al. 2020) had found a **power law**: with enough data, $\text{loss} \approx (N_0 / N)^{0.076}$ for $N$ parameters
# (without the tables). A straight line if both axes are logarithms. **By hand**: by which factor does the loss fall if $N$ grows tenfold?

# %%
assert math.isclose(10**-0.076, 0.84, abs_tol=0.001)  # 16 % lower; the next tenfold again 16 % of the rest

# %% [markdown]
# A law over three orders of magnitude cannot be checked in seconds; "larger is lower" can. Our writer has 121,000 parameters.
# Two smaller ones, trained on the same windows for as many steps. **Predict** who beats the counted pairs.

# %%
smallest = new_gpt(8, 2, 1)
_ = train(smallest)

# %%
middle = new_gpt(24, 3, 2)
_ = train(middle)

# %%
numbers = [sum(p.numel() for p in m.parameters()) for m in (smallest, middle, writer)]
losses = [unseen(smallest), unseen(middle), learned]
for size, loss in zip(numbers, losses, strict=True):
    print(f"{size:>8,} parameters: {loss:.2f} (pairs, {256 * 255:,} numbers counted: {by_counts['pairs']:.2f})")
assert losses[0] > losses[1] + 0.1 and losses[1] > losses[2] + 0.1
plots.curves({"GPT after 400 steps": (numbers, losses)}, title="Larger is lower", xlabel="parameters", ylabel="loss on unseen text",
             alt="Three points that fall: " + ", ".join(f"{loss:.2f}" for loss in losses))  # fmt: skip

# %% [markdown]
# See three points that fall. No more than that may be read from them: three sizes, one recipe, a few seconds. (Trained until nothing moves, on so little text, the
# largest would begin to learn it by heart, and its loss on unseen text would rise again.)
#
# ## Barriers and solutions
#
# | barrier | solution |
# |---|---|
# | an RNN squeezes the sentence into one state (01) | attention reads all states (02) |
# | no notion of order (03) | positions: sinusoids (08), or a learned table (11) |
# | only weighted averages (03) | feed-forward networks (09) |
# | must not see the future (07) | a causal mask; then the text itself is the teacher (10, 11) |
# | words that nobody listed (10) | bytes and their merges: reversible (11) |
# | the sum of many layers grows (09) | smaller first weights where something is added, $1/\sqrt{2L}$; a last norm (11) |
# | writing reads everything again (10) | a cache of keys and values: same logits, $n$ readings in place of $n^2/2$ (11) |
# | the best token again and again goes in circles | temperature and top-k (11) |
# | pairs, and the cache, grow with the text | bands in every second layer (11); *next: unit 12, what attention costs* |
#
# **Three takeaways**
#
# 1. GPT is the block of unit 09 with a causal mask, $L$ times, between a table and the same table: every place of every text is an exercise.
# 2. Keys and values of the past never change, so keep them. Compare with reading everything at once: four ways to go wrong are silent.
# 3. The model gives a distribution; temperature and top-k decide what you make of it. Divide logits, cut with $-\infty$, before the softmax.
#
# **To think about**
#
# - A batch of prompts of different lengths: where do you put the padding, left or right, if all are to go on at the same time? What
#   becomes of the positions?
# - The encoder of unit 10 has no cache. Why could it not have one?
# - Give `new_gpt` a band (`band=8`) and train it. How much of the loss do the distant tokens account for?
#
# **To read**: Radford et al. 2019, *Language Models are Unsupervised Multitask Learners* (GPT-2), section 2; Brown et al. 2020, *Language
# Models are Few-Shot Learners* (GPT-3), section 2.1; Child et al. 2019, *Generating Long Sequences with Sparse Transformers*; Kaplan et al. 2020,
# *Scaling Laws for Neural Language Models*; Holtzman et al. 2020, *The Curious Case of Neural Text Degeneration*, for greedy text
# that goes in circles; Sennrich et al. 2016, *Neural Machine Translation of Rare Words with Subword Units*, for the merges.
#
# **On**: try it yourself in `exercises/11_gpt.ipynb`. Then unit 12 asks what attention costs, and how to pay less.
