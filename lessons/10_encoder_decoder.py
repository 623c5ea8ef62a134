# %% [markdown]
# # 10 The encoder–decoder Transformer
#
# All parts are on the table: attention with queries, keys and values (04), scaled (05), in several heads (06), masked (07), with
# positions (08), inside a block with residuals, norms and a feed-forward network (09). Here they become a machine that translates:
# *forty five* goes in, *fünf und vierzig* comes out. It is the model of "Attention Is All You Need", only smaller.
#
# **After this unit you can**
#
# - assemble the encoder–decoder from its parts, equal to torch's (10-a);
# - train with teacher forcing, shifted targets and a loss without padding (10-b);
# - decode greedily and by beam (10-c);
# - read cross-attention, and measure exact match and BLEU (10-d).
#
# **You need** units 02 (the task, and alignments) and 04 to 09 (the parts). **Time**: 85 minutes to read and play. Six small
# networks are trained on the way; all cells together take less than a minute.
#
# Notation as before: $B$ sentences, $S$ source words, $T$ target words, width $D$, $H$ heads, feed-forward width $F$; and $C$ words
# in the vocabulary.

# %%
import math
import random
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from course_lib import plots, widgets
from course_lib.attention import record_weights
from course_lib.capstone import own_parts
from course_lib.data import BOS, EOS, PAD, batches, number_pairs
from course_lib.decoding import beam, greedy
from course_lib.device import generator, seed_all
from course_lib.metrics import bleu, exact_match, perplexity
from course_lib.seq2seq import AttentionSeq2Seq, Seq2SeqConfig
from course_lib.training import TrainConfig, cross_entropy_sum, fit, warmup_inverse_sqrt
from course_lib.transformer import PAPER_BASE, Transformer, TransformerConfig

# %%
torch.set_num_threads(1)  # for networks this small, more threads would mostly wait for each other

# %% [markdown]
# ## The words enter once, times the root of D
#
# The task is that of unit 02. A source has its words; a target stands between `<bos>` and `<eos>` (begin and end of sentence).

# %%
spoken = number_pairs("german", train=9_000, test=900)
sizes = TransformerConfig(len(spoken.source_words), len(spoken.target_words))
source_BS, target_BT = spoken.encode([45])
print(spoken.source_words.decode(source_BS[0]), source_BS.tolist())
print(spoken.target_words.decode(target_BT[0]), target_BT.tolist())
print(f"{sizes.source_vocab} English tokens, {sizes.target_vocab} German ones, D = {sizes.d_model}, H = {sizes.heads}")

# %% [markdown]
# Each word picks a row of a table, its **embedding** $e$. What enters the first block is
#
# $$x = \sqrt{D}\; e + p$$
#
# with $p$ the sinusoids of unit 08. This happens in the bottom layer only: later blocks get what the block below them made.
#
# Why the $\sqrt D$? The same table is used again at the very end, where each state is compared with every word's vector, and there
# its entries should be small, about $1/\sqrt D$. **Predict**: without the factor, which is longer, $e$ or $p$?

# %%
seed_all(0)
model = Transformer(sizes)
e_BSD = model.source_embedding(source_BS)
p_SD = model.positions(torch.zeros(1, 2, sizes.d_model))[0]
print(f"e: {e_BSD[0, 0].norm():.2f}   √D e: {8 * e_BSD[0, 0].norm():.2f}   p: {p_SD[0].norm():.2f}")
assert torch.allclose(model.embed(model.source_embedding, source_BS), math.sqrt(64) * e_BSD + p_SD)

# %% [markdown]
# **What is wrong here?** Somebody leaves the factor out. It runs, and the words are all but drowned by their positions:

# %%
forgotten = e_BSD + p_SD
same_place = F.cosine_similarity(forgotten[0, 0], p_SD[0], dim=0)
assert e_BSD[0, 0].norm() < p_SD[0].norm() / 5  # the word is a small ripple on its position
assert same_place > 0.95  # "forty" at place 0 looks like anything at place 0

# %% [markdown]
# ## A decoder block reads twice
#
# The encoder is a stack of the blocks of unit 09, nothing new. Its output is called the **memory**, $B \times S \times D$: a vector
# for each source word, which knows its neighbours. A decoder block has one more sublayer, in the middle:
#
# 1. masked self-attention: what have I written so far?
# 2. **cross-attention**: queries from the decoder, keys and values from the memory. What does the source say?
# 3. feed-forward.
#
# Each has its way around: $x + f(\text{norm}(x))$. **Predict** the shape of the cross-attention's weights for one sentence with
# $S = 2$ source words and $T = 4$ target words (`<bos>` fünf und vierzig).

# %%
memory_BSD, real_B1S = model.encode(source_BS)
block = model.decoder[0]
x_BTD = model.embed(model.target_embedding, target_BT[:, :-1])
y_BTD = x_BTD + block.self_attention(block.skip_1.norm(x_BTD), causal=True)
read, weights_BHTS = block.cross_attention(block.skip_2.norm(y_BTD), memory_BSD, real_B1S, need_weights=True)
y_BTD = y_BTD + read
y_BTD = y_BTD + block.feed_forward(block.skip_3.norm(y_BTD))
assert weights_BHTS.shape == (1, 4, 4, 2)  # B, H, T, S: who asks comes first
assert torch.allclose(y_BTD, block(x_BTD, memory_BSD, memory_mask=real_B1S), atol=1e-6)

# %% [markdown]
# Five lines, and they are the whole decoder block. **What is wrong here?** Somebody swaps the two arguments of the cross-attention:
# the memory asks, the decoder is read. **Predict** how many rows come out.

# %%
swapped = block.cross_attention(memory_BSD, block.skip_2.norm(x_BTD))
assert swapped.shape == (1, 2, 64)  # a row for each source word: nothing that could be added to four target words
try:
    x_BTD + swapped
except RuntimeError as error:
    print(error)

# %% [markdown]
# With as many source words as target words the shapes would fit, and nothing would complain. Remember who asks: the one that writes.
#
# ## Each attention has its own mask
#
# | attention | queries | keys and values | hidden |
# |---|---|---|---|
# | encoder, self | source | source | padding of the source |
# | decoder, self | target | target | the future (padding stands at the end, so it is the future, too) |
# | decoder, cross | target | memory | padding of the source |
#
# **Predict**: you change the third target word. Which rows of the logits change? You change the last source word: which now?

# %%
read_BT = target_BT[:, :-1]
logits_BTC = model(source_BS, read_BT)
other_target, other_source = read_BT.clone(), source_BS.clone()
other_target[0, 2], other_source[0, 1] = 9, 9
changed = (model(source_BS, other_target) != logits_BTC).any(dim=-1)[0]
assert changed.tolist() == [False, False, True, True]  # nothing leaks from the future …
assert (model(other_source, read_BT) != logits_BTC).any(dim=-1).all()  # … and every target word sees the whole source

# %% [markdown]
# **What is wrong here?** "It is a decoder, so its attentions are causal": a causal mask in the cross-attention, too. Think of
# *fünf*, the first word to write, and of *five*, the last word to read.

# %%
causal_TS = torch.ones(4, 2, dtype=torch.bool).tril()
_, blinkered = block.cross_attention(block.skip_2.norm(x_BTD), memory_BSD, causal_TS, need_weights=True)
assert (blinkered[0, :, 0, 1] == 0).all()  # whoever writes the first word cannot look at "five"
assert (weights_BHTS[0, :, 0, 1] > 0).all()

# %% [markdown]
# And padding: a sentence means the same in any company. **Predict**: are the logits equal, or nearly so, or different?

# %%
padded_BS = F.pad(source_BS, (0, 5), value=PAD)
assert torch.allclose(model(padded_BS, read_BT), logits_BTC, atol=1e-5)

# %% [markdown]
# ## Encode, decode, compare with every word
#
# Here is the whole way once more, block by block, and every tensor on it is kept:


# %%
def keep(side, name, letters, tensor):
    flow.append((side, name, letters, tensor.detach()))
    return tensor


flow = [("encoder", "word numbers", "BS", source_BS)]
x = keep("encoder", "embedding × √D + position", "BSD", model.embed(model.source_embedding, source_BS))
inside = model.encoder[0]
y, a_BHSS = inside.attention(inside.skip_1.norm(x), mask=real_B1S, need_weights=True)
keep("encoder", "self-attention: weights", "BHSS", a_BHSS)
x = keep("encoder", "x + self-attention", "BSD", x + y)
x = keep("encoder", "x + feed-forward", "BSD", x + inside.feed_forward(inside.skip_2.norm(x)))
memory = keep("encoder", "norm: the memory", "BSD", model.encoder_norm(x))
assert torch.allclose(memory, memory_BSD, atol=1e-6)

# %%
keep("decoder", "word numbers", "BT", read_BT)
x = keep("decoder", "embedding × √D + position", "BTD", model.embed(model.target_embedding, read_BT))
y, a_BHTT = block.self_attention(block.skip_1.norm(x), causal=True, need_weights=True)
keep("decoder", "self-attention: weights", "BHTT", a_BHTT)
x = keep("decoder", "x + self-attention", "BTD", x + y)
y, a_BHTS = block.cross_attention(block.skip_2.norm(x), memory, real_B1S, need_weights=True)
keep("decoder", "cross-attention: weights", "BHTS", a_BHTS)
x = keep("decoder", "x + cross-attention", "BTD", x + y)
x = keep("decoder", "x + feed-forward", "BTD", x + block.feed_forward(block.skip_3.norm(x)))
x = keep("decoder", "norm", "BTD", model.decoder_norm(x))
by_parts = keep("decoder", "logits: x · every word", "BTC", x @ model.target_embedding.weight.T)
assert torch.allclose(by_parts, logits_BTC, atol=1e-5)

# %% [markdown]
# **Play**: click a block (or go through them with the arrow keys) and see the tensor that leaves it. Where does $S$ turn into $T$?
# Which tensors have an $H$? In which weights do you see zeros, and why there?

# %%
widgets.DataFlow(flow)

# %% [markdown]
# Only the cross-attention has both letters, $T \times S$: it is the one bridge between the two languages.
#
# ## Every part of it is your own
#
# Attention with heads (04 to 06), the causal mask (07), the sinusoids (08), the norm and the feed-forward network (09): you have
# written them all in your exercises. The next cell looks for them in your exercise notebooks. Where an answer is missing or its
# check does not pass yet, it says so and takes the course's own.

# %%
parts = own_parts("../exercises")
parts

# %% [markdown]
# They take the weights of our model and work with them. `MultiHead` has four matrices, where the library keeps $W_q$, $W_k$ and $W_v$
# under each other in one.


# %%
def attend(part, x, memory, mask):
    own = parts.MultiHead(part.d_model, part.heads)
    thirds = part.w_qkv.weight.chunk(3), part.w_qkv.bias.chunk(3)
    for layer, weight, bias in zip((own.w_q, own.w_k, own.w_v), *thirds, strict=True):
        layer.load_state_dict({"weight": weight, "bias": bias})
    own.w_o.load_state_dict(part.w_o.state_dict())
    return own(x, memory, mask)


def norm(part, x):
    return parts.layer_norm(x, part.gain, part.bias, part.eps)


def think(part, x):
    return parts.feed_forward(x, part.w_1.weight.T, part.w_1.bias, part.w_2.weight.T, part.w_2.bias)


def enter(table, words):
    places = torch.as_tensor(parts.sinusoid_table(words.shape[1], table.embedding_dim, 10_000.0)).float()
    return math.sqrt(table.embedding_dim) * table.weight[words] + places


# %% [markdown]
# And this is the whole Transformer, for any number of layers. **Predict**: how far are its logits from those of the library's model?


# %%
@torch.no_grad()
def assembled(model, source, read):
    word = (source != PAD)[:, None]
    x = enter(model.source_embedding, source)
    for b in model.encoder:
        x = x + attend(b.attention, norm(b.skip_1.norm, x), None, word.expand(-1, x.shape[1], -1))
        x = x + think(b.feed_forward, norm(b.skip_2.norm, x))
    memory, x = norm(model.encoder_norm, x), enter(model.target_embedding, read)
    past = torch.as_tensor(parts.see_the_past(x.shape[1], x.shape[1])).expand(len(x), -1, -1)
    for b in model.decoder:
        x = x + attend(b.self_attention, norm(b.skip_1.norm, x), None, past)
        x = x + attend(b.cross_attention, norm(b.skip_2.norm, x), memory, word.expand(-1, x.shape[1], -1))
        x = x + think(b.feed_forward, norm(b.skip_3.norm, x))
    return norm(model.decoder_norm, x) @ model.target_embedding.weight.T


# %%
two_layers = Transformer(replace(sizes, encoder_layers=2, decoder_layers=2))
for made in (model, two_layers):
    assert torch.allclose(assembled(made, padded_BS, read_BT), made(padded_BS, read_BT), atol=1e-4)

# %% [markdown]
# You have built a Transformer: nothing in it is left that you have not written. (Further down the model is trained, and
# your parts translate with its weights.)
#
# ## And it is torch's Transformer
#
# torch has this model ready-made, `torch.nn.Transformer`. **Predict**: with the same weights, how far apart are the two results?


# %%
@torch.no_grad()
def copy_block(ours, theirs, attentions, skips):
    for mine, name in attentions:
        their = getattr(theirs, name)
        their.in_proj_weight.copy_(mine.w_qkv.weight)
        their.in_proj_bias.copy_(mine.w_qkv.bias)
        their.out_proj.load_state_dict(mine.w_o.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.w_2.state_dict())
    for place, skip in enumerate(skips, start=1):
        getattr(theirs, f"norm{place}").load_state_dict({"weight": skip.norm.gain, "bias": skip.norm.bias})


# %%
def torch_twin(ours):
    how = dict(dropout=0.0, batch_first=True, norm_first=ours.config.pre_norm)
    layer = nn.TransformerEncoderLayer(64, 4, 256, **how)
    stack = nn.TransformerEncoder(layer, 1, nn.LayerNorm(64), enable_nested_tensor=False)
    theirs = nn.Transformer(64, 4, 1, 1, 256, custom_encoder=stack, **how)
    e, d = ours.encoder[0], ours.decoder[0]
    copy_block(e, theirs.encoder.layers[0], [(e.attention, "self_attn")], [e.skip_1, e.skip_2])
    both = [(d.self_attention, "self_attn"), (d.cross_attention, "multihead_attn")]
    copy_block(d, theirs.decoder.layers[0], both, [d.skip_1, d.skip_2, d.skip_3])
    for mine, their in ((ours.encoder_norm, theirs.encoder.norm), (ours.decoder_norm, theirs.decoder.norm)):
        their.load_state_dict({"weight": mine.gain, "bias": mine.bias})
    return theirs


# %% [markdown]
# torch leaves embeddings, positions, masks and the last product to you. Its masks say True where something is *hidden*, the opposite of
# ours. All parameters are shaken first: as long as every gain is 1 and every bias 0, one could forget to copy them.


# %%
def shaken(**options):
    made = Transformer(replace(sizes, **options))
    for p in made.parameters():
        p.data += 0.1 * torch.randn(p.shape, generator=generator(p.numel()))
    return made


def both_ways(ours, theirs):
    hidden, future = padded_BS == PAD, torch.ones(4, 4, dtype=torch.bool).triu(1)
    x, y = ours.embed(ours.source_embedding, padded_BS), ours.embed(ours.target_embedding, read_BT)
    states = theirs(x, y, tgt_mask=future, src_key_padding_mask=hidden, memory_key_padding_mask=hidden)
    return ours(padded_BS, read_BT), states @ ours.target_embedding.weight.T


pre = shaken()
assert torch.allclose(*both_ways(pre, torch_twin(pre)), atol=1e-4)

# %% [markdown]
# The same numbers. One detail: torch puts a norm after each stack, always. Pre-norm needs it (unit 09: nothing else normalises the sum).
# The model of 2017 is post-norm and has none, since each block ends with a norm. In this course it is a switch, `final_norm`.
#
# **What is wrong here?** "Post-norm has normalised already, so torch's last norm changes nothing." **Predict** for a fresh model, with
# gains 1 and biases 0; then for one that has moved away from there.

# %%
post = shaken(pre_norm=False)
assert torch.allclose(*both_ways(post, torch_twin(post)), atol=1e-4)  # with it: torch's model
as_in_2017 = Transformer(replace(post.config, final_norm=False))
as_in_2017.load_state_dict(post.state_dict(), strict=False)  # all but the two norms
assert not torch.allclose(as_in_2017(source_BS, read_BT), post(source_BS, read_BT), atol=0.1)
without = torch_twin(post)
without.encoder.norm = without.decoder.norm = None
assert torch.allclose(*both_ways(as_in_2017, without), atol=1e-4)  # without it: torch's, robbed of both norms

# %%
fresh = Transformer(replace(sizes, pre_norm=False))
fresh_2017 = Transformer(replace(fresh.config, final_norm=False))
fresh_2017.load_state_dict(fresh.state_dict(), strict=False)
assert torch.allclose(fresh_2017(source_BS, read_BT), fresh(source_BS, read_BT), atol=1e-3)  # only before training

# %% [markdown]
# ## The target is shifted by one word
#
# In training the right translation is known, so the decoder reads *it*, and not its own guesses: **teacher forcing**. All places
# are trained at once, since the causal mask hides from each what it should predict. For this the target is used twice, one
# word apart:
#
# | place | 1 | 2 | 3 | 4 |
# |---|---|---|---|---|
# | reads (`target_in`) | `<bos>` | fünf | und | vierzig |
# | should say (`target_out`) | fünf | und | vierzig | `<eos>` |

# %%
batch = next(batches(*spoken.encode([45]), 1, generator=None))
assert torch.equal(batch.target_in, target_BT[:, :-1])
assert torch.equal(batch.target_out, target_BT[:, 1:])

# %% [markdown]
# The numbers to learn from: 9,000 drawn evenly below a million, and, since hardly any of those are short, the numbers below a thousand
# twice. Left out of all training: 900 others, and whatever below a thousand is a multiple of 9. So 45 is never seen.

# %%
held_out = {*spoken.test_numbers, *range(0, 1000, 9)}
train_numbers = [n for n in (*spoken.train_numbers, *range(1000), *range(1000)) if n not in held_out]
test_numbers = [45, *spoken.test_numbers, *random.Random(0).sample(range(0, 1000, 9), 99)]
source_test, target_test = spoken.encode(test_numbers)
assert not set(test_numbers) & set(train_numbers)
print(len(train_numbers), "numbers to learn from,", len(test_numbers), "to be tested on")

# %% [markdown]
# **What is wrong here?** Somebody forgets the shift: the decoder reads a word and is asked for the same word. **Predict** the
# loss after 60 steps, against the loss of one trained rightly, and how many numbers each translates.


# %%
def train(words, steps, shifted=True, seed=0, lr=5e-3, layers=1):
    seed_all(seed)
    vocabularies = len(words.source_words), len(words.target_words)
    made = Transformer(TransformerConfig(*vocabularies, encoder_layers=layers, decoder_layers=layers))
    pairs = batches(*words.encode(train_numbers), 32, generator=generator(seed), steps=steps)
    if not shifted:
        pairs = ((b.source, b.target_in, b.target_in) for b in pairs)
    config = TrainConfig(steps=steps, lr=lr, warmup=20, matmul="medium")
    return made, fit(made, pairs, config, progress=steps > 100)


# %%
def right(made, words, numbers):
    source, target = words.encode(numbers)
    said = greedy(made, source, max_length=target.shape[1])
    return exact_match(*([words.target_words.decode(r) for r in rows] for rows in (said, target)))


copier, copied = train(spoken, 60, shifted=False)
honest, learned = train(spoken, 60)
print(f"loss {copied.losses[-1]:.3f} without the shift, {learned.losses[-1]:.3f} with it")

# %%
assert copied.losses[-1] < 0.1 < learned.losses[-1]  # a wonderful loss …
assert right(copier, spoken, test_numbers[:200]) == 0  # … and not one number is translated
copies = greedy(copier, source_BS, max_length=6)[0]
print([spoken.target_words.words[i] for i in copies.tolist()])

# %% [markdown]
# It learned to copy, and when it translates there is nothing to copy but `<bos>`. Beware of a loss that is too good.
#
# ## Padding stays out of the loss
#
# The loss of a place is $-\log p(\text{the right word})$; that of a batch is the mean over its *real* words. **Predict**: a batch is
# padded with three more columns. What happens to a mean over all places?

# %%
some = next(batches(*spoken.encode(test_numbers[:8]), 8, generator=None))
logits = honest(some.source, some.target_in).detach()
log_p = logits.log_softmax(dim=-1).gather(-1, some.target_out[..., None])[..., 0]
real = some.target_out != PAD
by_hand = -log_p[real].sum() / real.sum()
total, count = cross_entropy_sum(logits, some.target_out)
assert torch.allclose(by_hand, total / count)
assert torch.allclose(by_hand, F.cross_entropy(logits.flatten(0, 1), some.target_out.flatten(), ignore_index=PAD))

# %% [markdown]
# **What is wrong here?** Three losses that run, and that are often seen:

# %%
wider_logits, wider = F.pad(logits, (0, 0, 0, 3)), F.pad(some.target_out, (0, 3), value=PAD)
over_all = F.cross_entropy(logits.flatten(0, 1), some.target_out.flatten())  # padding counts as a word
over_more = F.cross_entropy(wider_logits.flatten(0, 1), wider.flatten())
assert (over_all - over_more).abs() > 1e-3 and over_all > 1.05 * by_hand  # it depends on how much padding there is
diluted = -(log_p * real).sum() / real.numel()  # left out of the sum, but not of the count
assert diluted < by_hand
twice = F.cross_entropy(logits.softmax(dim=-1).flatten(0, 1), some.target_out.flatten(), ignore_index=PAD)
print(f"right {by_hand:.2f}, over all places {over_all:.2f}, diluted {diluted:.2f}, softmax twice {twice:.2f}")

# %% [markdown]
# The third one gives probabilities to a function that wants logits. **Predict** the smallest loss that it can reach, with $C$ words,
# if the model is perfectly sure and right.

# %%
perfect = F.one_hot(torch.tensor([5]), sizes.target_vocab).float()  # probabilities: all on the right word
floor = F.cross_entropy(perfect, torch.tensor([5]))
assert torch.isclose(floor, torch.tensor(math.log(math.e + sizes.target_vocab - 1) - 1))
assert floor > 2  # it cannot come near 0, however good the model is

# %% [markdown]
# ## Smoothed labels forbid certainty
#
# The paper trains with **label smoothing**, $\varepsilon = 0.1$: the target is not "this word, with probability 1" but $1 - \varepsilon$
# on it and $\varepsilon$ shared out over all words. **Predict**: which of two models has the smaller smoothed loss, one that gives the
# right word 0.9, or one that gives it 0.9999?

# %%
C, eps = 10, 0.1
q = torch.full((C,), eps / C)
q[3] += 1 - eps


def smoothed(sure):
    p = torch.full((C,), (1 - sure) / (C - 1))
    p[3] = sure
    own = -(q * p.log()).sum()
    assert torch.isclose(own, F.cross_entropy(p.log()[None], torch.tensor([3]), label_smoothing=eps), atol=1e-5)
    return own


assert smoothed(0.91) < smoothed(0.9999) and smoothed(0.91) < smoothed(0.5)

# %% [markdown]
# The best answer is $q$ itself: 0.91 on the right word. The loss then is the entropy of $q$, not 0. The paper notes that this hurts
# perplexity (the model is told to be unsure) and improves BLEU.
#
# The **learning rate** rises first and falls afterwards: Adam knows little about the gradients at the start, and large steps then do
# harm. The paper's schedule is $D^{-0.5} \min(t^{-0.5},\; t \cdot 4000^{-1.5})$. **Predict** at which step it is largest, and what it
# is at step 0.

# %%
steps = [1, *range(250, 20_001, 250)]
rates = [warmup_inverse_sqrt(t, d_model=512) for t in steps]
assert steps[rates.index(max(rates))] == 4000
assert warmup_inverse_sqrt(0, d_model=512) == 0  # t^-0.5 taken at its word would divide by zero there
plots.curves({"D = 512, warm-up 4000": (steps, rates)}, title="The paper's learning rate", xlabel="step",
             ylabel="learning rate", alt=f"The rate rises to {max(rates):.5f} at step 4000 and falls slowly after it.")  # fmt: skip

# %% [markdown]
# See the straight line up and the slow way down. Our runs are short: 20 steps up, then in a straight line to 0.
#
# ## A step is loss, gradient, clip, step, and a clean slate
#
# `fit` has done this for you so far; here is one step of it by hand. `backward` *adds* to the gradients that are there.
#
# **What is wrong here?** Two slips that run: nobody calls `zero_grad`, or the gradient is clipped after the step. **Predict** what the
# first does to the gradient of the second step.


# %%
def gradient(made, batch):
    logits = made(batch.source, batch.target_in)
    F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD).backward()
    return torch.cat([p.grad.flatten() for p in made.parameters()])


pupil = Transformer(sizes)
optimizer = torch.optim.SGD(pupil.parameters(), lr=1.0)
once = gradient(pupil, some)
assert torch.allclose(gradient(pupil, some), 2 * once, atol=1e-5)  # no zero_grad: the old one is still in there

# %%
optimizer.zero_grad()
before, limit = nn.utils.parameters_to_vector(pupil.parameters()).detach(), 0.1
gradient(pupil, some)
nn.utils.clip_grad_norm_(pupil.parameters(), limit)  # before the step: afterwards it would come too late
optimizer.step()
moved = (nn.utils.parameters_to_vector(pupil.parameters()) - before).norm()
assert torch.isclose(moved, torch.tensor(limit), atol=1e-3) and once.norm() > 5 * limit

# %% [markdown]
# ## Seconds of training are enough
#
# 500 steps of 32 numbers, 121,000 parameters, some 10,000 numbers to learn from and 1,000 that are never seen.
# **Predict**: how many of those will be right in every word?

# %%
translator, history = train(spoken, 500)

# %%
plots.curves(
    {"Transformer, 1 + 1 layers": history.losses},
    title="Learning to say numbers in German",
    xlabel="training step",
    ylabel="loss per word",
    log=True,
    alt=f"The loss falls from {history.losses[0]:.1f} to {history.losses[-1]:.4f}, most steeply in the first 150 steps.",
)

# %%
meant = [spoken.target_words.decode(row) for row in target_test]
longest = target_test.shape[1]
said_BT = greedy(translator, source_test, max_length=longest)
said = [spoken.target_words.decode(row) for row in said_BT]
print(f"{exact_match(said, meant):.1%} of the unseen numbers, after {history.seconds[-1]:.1f} seconds")
assert exact_match(said, meant) >= 0.99

# %% [markdown]
# Now against unit 02: the RNN with attention, trained as it was there (150 steps, its own learning rate), on today's numbers. To tell
# two good models apart takes many numbers: 5,000 that neither has seen.
# **Predict**: who has more parameters, whose training step takes longer, who is better at the end?

# %%
seed_all(0)
rnn = AttentionSeq2Seq(Seq2SeqConfig(sizes.source_vocab, sizes.target_vocab))
pairs = batches(*spoken.encode(train_numbers), 32, generator=generator(0), steps=150)
rnn_history = fit(rnn, pairs, TrainConfig(steps=150, lr=1e-2, warmup=20, matmul="medium"))


# %%
def summary(made, past):
    pace = float(torch.tensor(past.seconds).diff().median())
    return sum(p.numel() for p in made.parameters()), pace, right(made, spoken, unseen)


unseen = random.Random(0).sample(sorted(set(range(1_000_000)) - set(train_numbers)), 5000)
(size, pace, share), (rnn_size, rnn_pace, rnn_share) = summary(translator, history), summary(rnn, rnn_history)
print(f"Transformer: {size:,} parameters, {1000 * pace:.1f} ms a step, {share:.2%} right")
print(f"RNN:         {rnn_size:,} parameters, {1000 * rnn_pace:.1f} ms a step, {rnn_share:.2%} right")
assert size < 0.8 * rnn_size and pace < 0.8 * rnn_pace and share >= 0.99
assert share > rnn_share  # it beats unit 02, in fewer parameters

# %% [markdown]
# An honest reading: the Transformer wins with three quarters of the parameters and with steps that take about half the
# time, because no word waits for the one before it. But in *steps* the RNN learns faster, and with as many seconds as the Transformer had
# (250 steps: try it) it comes out level: numbers are short, and short sequences are where an RNN suffers least. At a thousand words, the waiting decides
# (unit 13 measures it).
#
# ## Greedy decoding takes the best word, again and again
#
# When it translates, the model has nobody to force it: it reads `<bos>`, says its best word, reads that, and so on until `<eos>`.

# %%
words_BT = torch.tensor([[BOS]])
while words_BT[0, -1] != EOS:
    with torch.no_grad():
        p_C = translator(source_BS, words_BT)[0, -1].softmax(dim=-1)  # at the LAST place: what comes next?
    print(f"{spoken.target_words.words[int(p_C.argmax())]:>10}  {p_C.max():.3f}")
    words_BT = torch.cat([words_BT, p_C.argmax().view(1, 1)], dim=1)
assert spoken.target_words.decode(words_BT[0]) == ["fünf", "und", "vierzig"]
assert torch.equal(words_BT[:, 1:], greedy(translator, source_BS, max_length=9))

# %% [markdown]
# (The library's `greedy` gives the same and computes less: it keeps keys and values of what it has read. Unit 11 is about that
# cache.) And the Transformer of your own parts says the same, now that the weights are trained:

# %%
by_your_parts = assembled(translator, source_BS, words_BT[:, :-1]).argmax(dim=-1)[0]
assert spoken.target_words.decode(by_your_parts) == ["fünf", "und", "vierzig"]

# %% [markdown]
# **What is wrong here?** A model that was trained with dropout translates, and nobody has called `eval()`. **Predict**: asked twice,
# does it say the same twice?

# %%
careless = Transformer(replace(sizes, dropout=0.3))
careless.load_state_dict(translator.state_dict())
assert not torch.equal(
    careless(source_BS, read_BT), careless(source_BS, read_BT)
)  # each time other numbers are dropped
careless.eval()
assert torch.equal(careless(source_BS, read_BT), careless(source_BS, read_BT))
assert torch.equal(
    greedy(careless.train(), source_BS, max_length=9), words_BT[:, 1:]
)  # the library's greedy sees to it

# %% [markdown]
# In a batch sentences end at different times. One that has ended gets padding, and the loop goes on until *all* have ended.
#
# **What is wrong here?** Two ways to write the loop. The first reads `logits[:, 0]` for `logits[:, -1]`; the second stops when
# the *first* sentence of the batch has ended. **Predict** what each says for 45 and 777,777.


# %%
def search(place, done):
    numbers, tokens = spoken.encode([45, 777_777])[0], torch.full((2, 1), BOS)
    while tokens.shape[1] <= longest and not done(tokens == EOS):
        with torch.no_grad():
            tokens = torch.cat([tokens, translator(numbers, tokens)[:, place].argmax(dim=-1, keepdim=True)], dim=1)
    return [spoken.target_words.decode(row) for row in tokens]


print(search(0, lambda ended: ended.any(dim=1).all())[0][:4])
assert set(search(0, lambda ended: ended.any(dim=1).all())[0]) == {"fünf"}  # the first word, for ever
assert len(search(-1, lambda ended: ended[0].any())[1]) == 4  # 777,777 is cut off where 45 ends
assert search(-1, lambda ended: ended.any(dim=1).all())[1] == spoken.target_words.decode(spoken.encode([777_777])[1][0])

# %% [markdown]
# ## A beam keeps several sentences alive
#
# The best word now need not lead to the best sentence. **By hand**: two words are possible first, a (0.6) and b (0.4). After a there
# are three, with 0.35, 0.33 and 0.32; after b one has 0.9. Which sentence does greedy find? Which is the most probable?

# %%
after = {"a": {"x": 0.35, "y": 0.33, "z": 0.32}, "b": {"x": 0.9, "y": 0.05, "z": 0.05}}
first = {"a": 0.6, "b": 0.4}
chain = {w + v: first[w] * p for w, rest in after.items() for v, p in rest.items()}
by_greed = max(first, key=first.get) + max(after["a"], key=after["a"].get)
print({sentence: round(p, 3) for sentence, p in chain.items()})
assert by_greed == "ax" and max(chain, key=chain.get) == "bx"

# %% [markdown]
# A **beam** of width $W$ keeps the $W$ best sentences so far, extends each by every word, and keeps the $W$ best of all those. Width 1
# is greedy. Scores are sums of log-probabilities, and each word makes the sum smaller, so short sentences have an advantage. The
# **length penalty** evens that out:
#
# $$\text{score} = \frac{\log p(y)}{\big((5 + |y|)/6\big)^{\alpha}}$$
#
# **By hand**: one word with $\log p = -2$, or seven words with $\log p = -3$. Who wins with $\alpha = 0$, who with $\alpha = 1$?

# %%
short, long = [-2 / ((5 + 1) / 6) ** alpha for alpha in (0, 1)], [-3 / ((5 + 7) / 6) ** alpha for alpha in (0, 1)]
assert short == [-2, -2] and long == [-3, -1.5]
assert short[0] > long[0] and long[1] > short[1]

# %% [markdown]
# Now on unseen numbers, beam 4 against greedy; first with the model that had only 60 steps and is unsure of everything.
# **Predict**: are the beam's sentences more probable? Are more of them right?


# %%
@torch.no_grad()
def log_p_of(made, source_BS, said_BT):
    read_BT = F.pad(said_BT, (1, 0), value=BOS)[:, :-1]
    log_p = made(source_BS, read_BT).log_softmax(dim=-1).gather(-1, said_BT[..., None])[..., 0]
    return (log_p * (said_BT != PAD)).sum(dim=1)


def gain_of_a_beam(made, count):
    source_BS = source_test[:count]
    one_BT = greedy(made, source_BS, max_length=longest)
    four_BT, score_B = beam(made, source_BS, width=4, max_length=longest, length_penalty=0.0)
    return score_B - log_p_of(made, source_BS, one_BT), [spoken.target_words.decode(row) for row in four_BT]


# %%
unsure_B, _ = gain_of_a_beam(honest, 300)
gain_B, said_beam = gain_of_a_beam(translator, len(test_numbers))
for name, gain in {"after 60 steps": unsure_B, "after 500 steps": gain_B}.items():
    print(f"{name}: {(gain > 1e-3).sum()} of {len(gain)} more probable, {(gain < -1e-3).sum()} less")
print(f"exactly right after 500 steps: greedy {exact_match(said, meant):.1%}, beam {exact_match(said_beam, meant):.1%}")
assert unsure_B.mean() > 0 and (unsure_B > 1e-3).float().mean() > 0.05
assert (gain_B > -1e-3).float().mean() > 0.99  # nearly never less probable …
assert abs(exact_match(said_beam, meant) - exact_match(said, meant)) < 0.01  # … and hardly more often right

# %%
one_BT, _ = beam(translator, source_test[:50], width=1, max_length=longest)
assert [spoken.target_words.decode(row) for row in one_BT] == said[:50]  # a beam of width 1 is greedy

# %% [markdown]
# An unsure model has much to gain from a search; one that is nearly always sure has nothing to search for. Translation of real text
# lies in between: many sentences are possible, and the paper uses a beam of 4. (A beam can also end *below* greedy: it, too,
# throws away sentences that would have won later. Only a search through all of them is certain.)
#
# ## Exact match and BLEU measure different things
#
# One wrong word makes a number wrong: exact match is strict, and right for numbers. For sentences it is too strict, since there are
# many good translations. **BLEU** counts groups of 1, 2, 3 and 4 neighbouring words that the reference has, too: $p_n$ is the share of
# those that are said, and
#
# $$\text{BLEU} = 100 \cdot \min\big(1, e^{1 - r/c}\big) \cdot (p_1 p_2 p_3 p_4)^{1/4}$$
#
# with $c$ words said and $r$ words in the references: whoever says too little pays for it. **Predict** for "zwei und vierzig tausend fünf hundert"
# as the reference, and the same with *drei* for *zwei*: exact match? BLEU, about? And for the same words in reverse?

# %%
reference = [["zwei", "und", "vierzig", "tausend", "fünf", "hundert"]]
one_wrong = [["drei", "und", "vierzig", "tausend", "fünf", "hundert"]]
backwards = [reference[0][::-1]]
print({name: round(bleu(x, reference), 1) for name, x in {"one wrong": one_wrong, "backwards": backwards}.items()})
assert exact_match(one_wrong, reference) == 0 and 70 < bleu(one_wrong, reference) < 80
assert bleu(backwards, reference) < 20  # every word is right (p_1 = 1), and no pair of neighbours

# %% [markdown]
# With one word wrong, $p_1 \dots p_4$ are 5/6, 4/5, 3/4 and 2/3: their product is 1/3. **Predict** our translator's BLEU.

# %%
assert math.isclose(bleu(one_wrong, reference), 100 * (1 / 3) ** 0.25, rel_tol=1e-6)
print(f"BLEU: greedy {bleu(said, meant):.2f}, beam {bleu(said_beam, meant):.2f}")
assert bleu(said, meant) > 99

# %% [markdown]
# **What is wrong here?** "BLEU 99.8, so 99.8 % of the translations are right." A cheat whose last word is
# *zehn*, for every number:

# %%
cheat = [[*row[:-1], "zehn"] for row in meant]
print(f"exact match {exact_match(cheat, meant):.1%}, BLEU {bleu(cheat, meant):.1f}")
assert exact_match(cheat, meant) < 0.03 and bleu(cheat, meant) > 60

# %% [markdown]
# ## Cross-attention crosses where German does
#
# In unit 02 the alignment was a table with one row for each word. Now there is one for each head of each layer. `record_weights` writes
# them down while the model works.


# %%
def translate(number, made):
    source, _ = spoken.encode([number])
    answer = greedy(made, source, max_length=longest)
    with record_weights(made) as seen, torch.no_grad():
        made(source, F.pad(answer, (1, 0), value=BOS)[:, :-1])
    layers = [weights[0][0] for name, weights in seen.items() if "cross" in name]  # (H, T, S) each
    words = [spoken.target_words.words[i] for i in answer[0].tolist()]
    return spoken.source_words.decode(source[0]), words, torch.stack(layers)


english, german, weights_LHTS = translate(45, translator)
assert weights_LHTS.shape == (1, 4, 4, 2)
assert torch.allclose(weights_LHTS.sum(dim=-1), torch.ones(1, 4, 4))  # each row is a share of the source

# %% [markdown]
# **Predict** where the mean of the four heads is brightest in the rows of *fünf* and *vierzig*.

# %%
mean_TS = weights_LHTS[0].mean(dim=0)
best = {word: english[int(row.argmax())] for word, row in zip(german, mean_TS, strict=True)}
assert best["fünf"] == "five" and best["vierzig"] == "forty"
plots.weights(mean_TS, german, english, title="Cross-attention, mean of four heads")

# %% [markdown]
# See the two bright fields: they cross, as in unit 02. Is it so for one number only? All numbers from 21 to 99 that have a unit and a
# ten, **predict** the share that crosses:


# %%
def crosses(number, made, layer=0):
    _, german, weights = translate(number, made)
    unit, _, ten = weights[layer].mean(dim=0)[:3]
    return len(german) == 4 and bool(unit[1] > unit[0] and ten[0] > ten[1])


tens_and_units = [n for n in range(21, 100) if n % 10]
found = [crosses(n, translator) for n in tens_and_units]
print(f"{sum(found)} of {len(found)} cross")
assert sum(found) / len(found) > 0.9

# %% [markdown]
# Is it so in every layer? A deeper model, two layers on either side. **Predict**: does only the first of them cross, only the last, or both?

# %%
deeper, _ = train(spoken, 300, lr=3e-3, layers=2)

# %%
shares = [sum(crosses(n, deeper, layer) for n in tens_and_units) / len(tens_and_units) for layer in (0, 1)]
deep_share = right(deeper, spoken, test_numbers)
print(f"{deep_share:.1%} right; layer 1: {shares[0]:.0%} cross, layer 2: {shares[1]:.0%}")
assert deep_share >= 0.99 and max(shares) > 0.9

# %% [markdown]
# **Play**: type any number below a million; the kernel translates it with the deeper model. Choose a layer and a head: do all of them look
# at the same word? Which rows differ from head to head? Then try 100,000 and 0, which it has never seen: are they right? The
# largest weight of a row is bold.

# %%
widgets.Translator(lambda number: translate(number, deeper), number=234_567)

# %% [markdown]
# **What is wrong here?** "The weights show which word was translated." They show where a head looked. The memory at *five* holds
# something of *forty* as well, for the encoder has mixed them. **Predict**: change *forty* to *sixty*. Does the memory at *five*
# change?

# %%
pair = translator.encode(spoken.encode([45, 65])[0])[0]
shift = (pair[0, 1] - pair[1, 1]).norm() / pair[0, 1].norm()
print(f"the vector of “five” moves by {shift:.0%} of its length")
assert shift > 0.05

# %% [markdown]
# ## Another language is one line
#
# Nothing in the model knows German. **Predict** what has to change for French, where 97 is *quatre vingt dix sept*.

# %%
french = number_pairs("french", train=9_000, test=900)  # the one line
parleur, _ = train(french, 500)

# %%
in_french = right(parleur, french, test_numbers)
print(f"{in_french:.1%} of the unseen numbers")
assert in_french > 0.98

# %%
heard = greedy(parleur, french.encode([97])[0], max_length=12)[0]
print(" ".join(french.target_words.decode(heard)))

# %% [markdown]
# ## The model of the paper is this one, larger
#
# $N = 6$ layers on either side, $D = 512$, $H = 8$, $F = 2048$, one vocabulary of 37,000 word pieces for both languages. (Some
# lecture notes draw it with 10,000 words: only the last matrix would change.) **Predict** its number of parameters. Where are most
# of them? torch's *meta* device builds it without memory: shapes, no numbers.

# %%
with torch.device("meta"):
    paper = Transformer(PAPER_BASE)
parameters = sum(p.numel() for p in paper.parameters())
attends, thinks, norms = 4 * (512**2 + 512), 2 * 512 * 2048 + 2048 + 512, 2 * 512
up, down = attends + thinks + 2 * norms, 2 * attends + thinks + 3 * norms  # a block of the encoder, one of the decoder
assert parameters == 6 * up + 6 * down + 37_000 * 512 == 63_082_496
print(f"{parameters:,}, of which {37_000 * 512 / parameters:.0%} are the table of words")

# %% [markdown]
# The paper says 65 million (its table 3); it gives the vocabulary as "about 37,000", and 4,000 word pieces more or less are 2 million
# parameters.
#
# ## What the paper measured
#
# Translation, WMT-14, test set newstest2014 (Vaswani et al. 2017, table 2). FLOPs are operations of the whole training:
#
# | model | BLEU En→De | BLEU En→Fr | FLOPs En→De | FLOPs En→Fr |
# |---|---|---|---|---|
# | GNMT + RL | 24.6 | 39.92 | 2.3 · 10¹⁹ | 1.4 · 10²⁰ |
# | ConvS2S | 25.16 | 40.46 | 9.6 · 10¹⁸ | 1.5 · 10²⁰ |
# | MoE | 26.03 | 40.56 | 2.0 · 10¹⁹ | 1.2 · 10²⁰ |
# | ConvS2S, ensemble | 26.36 | 41.29 | 7.7 · 10¹⁹ | 1.2 · 10²¹ |
# | Transformer, base | 27.3 | 38.1 | 3.3 · 10¹⁸ | 3.3 · 10¹⁸ |
# | Transformer, big | 28.4 | 41.8 | 2.3 · 10¹⁹ | 2.3 · 10¹⁹ |
#
# One number depends on where you look: for the big model, English to French, many slides show **41.0**, from an earlier version of
# the paper; the abstract and table 2 of its last version say **41.8** (while its section 6.1 has kept 41.0). Against the best earlier
# result (41.29, an ensemble) that is the difference between losing and winning, so it is worth naming the version. The paper gives *one* cost for each of its models, for both languages.
#
# **Predict**: how many times cheaper was the base model than the ensemble that it beats, English to German?

# %%
cheaper = 7.7e19 / 3.3e18
assert 23 < cheaper < 24
print(f"{cheaper:.0f} times cheaper, and {27.3 - 26.36:.1f} BLEU better")

# %% [markdown]
# A second task, **writing an article of Wikipedia from its sources** (Liu et al. 2018, *Generating Wikipedia by Summarizing Long
# Sequences*, table 4). $L$ is the length of the input; ROUGE-L measures the longest common subsequence with the true article; perplexity is $e^{\text{loss}}$,
# lower is better. DMCA is attention with compressed memory, MoE a mixture of experts:
#
# | model | perplexity | ROUGE-L |
# |---|---|---|
# | RNN with attention, $L = 500$ | 5.04952 | 12.7 |
# | Transformer, encoder–decoder, $L = 500$ | 2.46645 | 34.2 |
# | Transformer, decoder only, $L = 4000$ | 2.22216 | 33.6 |
# | with DMCA, $L = 11000$ | 2.05159 | 36.2 |
# | with DMCA and MoE-128, $L = 11000$ | 1.92871 | 37.9 |
# | with DMCA and MoE-256, $L = 7500$ | 1.90325 | 38.8 |
#
# **Predict**: what is the loss per token, in nats, that belongs to 5.05 and to 2.47? Then find the two rows in which the two measures
# disagree about who is better.

# %%
assert math.isclose(perplexity(1.6193), 5.04952, rel_tol=1e-3)
assert math.isclose(perplexity(0.9028), 2.46645, rel_tol=1e-3)
rows = {"encoder–decoder": (2.46645, 34.2), "decoder only": (2.22216, 33.6)}
assert rows["decoder only"][0] < rows["encoder–decoder"][0] and rows["decoder only"][1] < rows["encoder–decoder"][1]

# %% [markdown]
# The decoder alone has the better perplexity and the lower ROUGE-L: a likelihood and an overlap do not measure the same thing, as
# with BLEU and exact match above. The rows also differ in $L$, so they do not compare the designs alone.
#
# ## Barriers and solutions
#
# | barrier | solution |
# |---|---|
# | an RNN squeezes the sentence into one state (01) | attention reads all states (02) |
# | no notion of order (03) | positions, added once at the bottom (08, 10) |
# | only weighted averages (03) | feed-forward networks (09) |
# | must not see the future (07) | a causal mask, in the decoder's self-attention only (07, 10) |
# | two sequences, of different lengths | cross-attention: the decoder asks, the memory is read (04, 10) |
# | in training every word waits for the one before it (01, 02) | teacher forcing with shifted targets: all places at once (10) |
# | the best word now is not the best sentence | beam search (10) |
# | translating still goes word by word, and reads everything again | *next: unit 11, the cache* |
#
# **Three takeaways**
#
# 1. Encoder: self-attention and feed-forward, $N$ times. Decoder: the same with a causal mask, and cross-attention in between. Queries
#    come from the one that writes.
# 2. The target is read and asked for, one word apart; padding counts neither in the loss nor in its divisor.
# 3. A loss, exact match, BLEU and an attention map each tell you something else. Look at more than one.
#
# **To think about**
#
# - Train on numbers drawn evenly below a million and nothing else: nine of ten then have six digits. What will become of 45? (It is a
#   surprise. In `train`, put `spoken.train_numbers` in the place of `train_numbers`.)
# - In teacher forcing the decoder never sees its own mistakes. What happens after the first wrong word, when it translates?
# - Every word of the target can be trained at once. Why can they not be *written* at once?
#
# **To read**: Vaswani et al. 2017, *Attention Is All You Need*, sections 3 and 5, tables 2 and 3; Papineni et al. 2002, *BLEU: a
# Method for Automatic Evaluation of Machine Translation*; Wu et al. 2016 (GNMT), section 7, for the length penalty; Liu et al.
# 2018, *Generating Wikipedia by Summarizing Long Sequences*.
#
# **On**: try it yourself in `exercises/10_encoder_decoder.ipynb`. Then unit 11 throws the encoder away and keeps the decoder: GPT.
