# %% [markdown]
# # 02 RNN with attention
#
# In unit 01 an encoder read a sentence and handed its last state to a decoder: one vector for the whole sentence, however
# long. Here the decoder may look at *all* states of the encoder, again before every word, and learns where to look.
#
# **After this unit you can**
#
# - compute additive scores, weights and the context vector (02-a);
# - mask padded source words (02-b);
# - read an alignment (02-c);
# - tell general attention (two sources) from self-attention (one source) (02-d);
# - use multiplicative scores, dot and general (02-e).
#
# **You need** units 00 and 01: what an RNN's state is, an encoder that reads in both directions, a decoder that writes word
# by word. **Time**: 60 minutes to read and play. Two networks are trained on the way; all cells together take less than a
# minute.
#
# Notation: $i$ counts the words of the source, $1 \dots S$; $t$ counts the words of the target, $1 \dots T$. $h_i$ is a state
# of the encoder, $s_t$ a state of the decoder. Watch these two letters: half of the confusion about attention is about
# which of them is meant.

# %%
import math
import random

import torch

from course_lib import plots, widgets
from course_lib.attention import AdditiveAttention, dot_scores, general_scores, masked_softmax, self_attention
from course_lib.data import batches, number_pairs
from course_lib.decoding import greedy
from course_lib.device import generator, seed_all
from course_lib.metrics import by_digits, exact_match
from course_lib.rnn import GRUCell
from course_lib.seq2seq import AttentionSeq2Seq, Seq2Seq, Seq2SeqConfig
from course_lib.training import TrainConfig, fit

torch.set_printoptions(precision=3, sci_mode=False)
torch.set_num_threads(1)  # for networks this small, more threads would mostly wait for each other

# %% [markdown]
# ## One state is too small for a sentence
#
# The task of this unit: read a number in English, write it in German. *Forty five* becomes *fünf und vierzig*, five and
# forty. Here are both networks, not trained yet: one as in unit 01, one with attention.

# %%
spoken = number_pairs("german", train=1, test=1)  # only for its vocabularies; the data come later
sizes = Seq2SeqConfig(len(spoken.source_words), len(spoken.target_words))
plain, attentive = Seq2Seq(sizes), AttentionSeq2Seq(sizes)
source, target = spoken.encode([45])
print(spoken.source_words.decode(source[0]), "→", spoken.target_words.decode(target[0]))

# %% [markdown]
# In both, a state of the decoder has 128 numbers; in the second, the encoder has 64 for each word. **Predict**: how many numbers
# does each decoder get of "forty five"? And of "seven hundred seventy seven thousand seven hundred seventy seven", which has
# nine words?

# %%
kept = {}
for number in (45, 777_777):
    words_BS, _ = spoken.encode([number])
    kept[number] = plain.start(words_BS).cell.shape, attentive.start(words_BS).source.shape
print(kept)
assert kept[45][0] == kept[777_777][0] == (1, 128)  # one state, whatever the length
assert kept[45][1] == (1, 2, 64) and kept[777_777][1] == (1, 9, 64)  # a state for every word

# %% [markdown]
# Two words or nine, the plain decoder gets 128 numbers. The other one gets 64 numbers *for each word*, and so a new question:
# which of them to look at?
#
# ## Attention is a soft search over the source
#
# Before it writes word $t$, the decoder gives every source word a **score** $e_{ti}$: how well does word $i$ fit what comes
# next? Softmax makes **weights** of the scores, and the **context** $c_t$ is the sum of the encoder's states, each times
# its weight:
#
# $$a_{ti} = \frac{\exp(e_{ti})}{\sum_{i'} \exp(e_{ti'})} \qquad\qquad c_t = \sum_i a_{ti}\, h_i$$
#
# It is a search, since one word may win; it is soft, since all words take part, and so gradients reach all of them.
#
# **By hand**: three source words with scores $\ln 3$, $0$ and $\ln 4$, and states $[4, 0]$, $[0, 8]$ and $[2, 2]$. Write down
# the three weights and the context. (The exponentials are 3, 1 and 4.)

# %%
scores = torch.tensor([math.log(3), 0.0, math.log(4)])
states = torch.tensor([[4.0, 0.0], [0.0, 8.0], [2.0, 2.0]])
weights = torch.softmax(scores, dim=0)
context = sum(weights[i] * states[i] for i in range(3))
assert torch.allclose(weights, torch.tensor([3 / 8, 1 / 8, 4 / 8]))
assert torch.allclose(context, torch.tensor([2.5, 2.0]))
print(weights, context)

# %% [markdown]
# The context has the width of *one* state, for two words or for nine. So the decoder's sizes do not depend on the length
# of the sentence, and still each step can read another part of it.

# %% [markdown]
# ## A small network scores every source word
#
# Where do scores come from? From a network with one hidden layer, which sees the decoder's state and one word's state, and is
# trained with everything else (Bahdanau et al. 2015):
#
# $$e_{ti} = v^\top \tanh\big(W\,[s_{t-1};\, h_i]\big) = v^\top \tanh\big(W_s\, s_{t-1} + W_h\, h_i\big)$$
#
# $[s; h]$ means: one under the other, in one long vector. **Predict**: one matrix for the long vector, or two matrices and a
# sum: is that the same thing, or only similar?

# %%
draw = generator(2)
s, h = torch.randn(3, generator=draw), torch.randn(4, generator=draw)
w = torch.randn(5, 3 + 4, generator=draw)
w_s, w_h = w[:, :3], w[:, 3:]  # the columns that meet s, and those that meet h
assert torch.allclose(w @ torch.cat([s, h]), w_s @ s + w_h @ h)

# %% [markdown]
# The same thing. And the two matrices have an advantage: $W_h h_i$ does not change from step to step, so it is computed once
# for each sentence.
#
# The library's `AdditiveAttention` does this for a batch of sentences, $B$ rows at once. **Predict** the shape of the scores of
# two sentences with four words each.

# %%
seed_all(0)
attention = AdditiveAttention(d_state=3, d_source=5, d_hidden=6)
state_BN, source_BSM = torch.randn(2, 3), torch.randn(2, 4, 5)
inside = attention.w_state(state_BN)[:, None, :] + attention.w_source(source_BSM)  # (2, 1, 6) + (2, 4, 6)
scores_BS = (torch.tanh(inside) @ attention.v.weight.T)[..., 0]
assert scores_BS.shape == (2, 4)

# %%
by_hand = scores_BS.softmax(dim=-1)
context_BM, weights_BS = attention(state_BN, source_BSM)
assert torch.allclose(weights_BS, by_hand)
assert torch.allclose(context_BM, torch.stack([by_hand[b] @ source_BSM[b] for b in range(2)]))

# %% [markdown]
# What makes `AdditiveAttention` trainable? It is a **module**, a class built on `torch.nn.Module`: it makes its parameters in
# `__init__`, and uses them in `forward`, which runs when the module is called. Here is the smallest one there is, with one
# number to learn for each feature. **Predict**: which of its two attributes will training find, and move?


# %%
class Gain(torch.nn.Module):
    def __init__(self, width):
        super().__init__()  # first of all: it makes room for parameters
        self.gain = torch.nn.Parameter(torch.ones(width))  # found, and trained
        self.plain = torch.ones(width)  # a tensor like any other: not found

    def forward(self, x):
        return x * self.gain


gain = Gain(5)
assert [name for name, _ in gain.named_parameters()] == ["gain"]
assert torch.equal(gain(source_BSM), source_BSM)  # all ones, as long as nobody trains it

# %% [markdown]
# **What is wrong here?** Somebody leaves the tanh out: "it is only a squashing function". **Predict** what happens to the
# weights when the decoder's state changes.

# %%
linear = [(attention.w_state(s_BN)[:, None] + attention.w_source(source_BSM)) @ attention.v.weight.T
          for s_BN in (state_BN, 10 * state_BN)]  # fmt: skip
one, other = (scores[..., 0].softmax(dim=-1) for scores in linear)
assert torch.allclose(one, other, atol=1e-6)  # the state adds the same number to every score: softmax cannot see it
assert not torch.allclose(weights_BS, attention(10 * state_BN, source_BSM)[1])  # with tanh it matters

# %% [markdown]
# Without the tanh the decoder would look at the same words at every step, whatever it has written.
#
# ## Softmax runs over the source words
#
# At each step the decoder has one unit of attention to give away, over the words of *its own* sentence. For $T$ target words
# and $S$ source words the weights make a table $T \times S$, a row for each target word. **Predict**: what do its rows sum to?
# And its columns?

# %%
table_TS = torch.randn(3, 5, generator=draw).softmax(dim=-1)  # three target words read five source words
h_SD = torch.randn(5, 4, generator=draw)
contexts_TD = table_TS @ h_SD
assert torch.allclose(table_TS.sum(dim=1), torch.ones(3))  # each row: one unit
assert not torch.allclose(table_TS.sum(dim=0), torch.ones(5), atol=0.1)  # columns: some are read more
assert contexts_TD.shape == (3, 4)  # one context for each target word

# %% [markdown]
# **What is wrong here?** Some lecture notes speak of "the context vector of the $i$-th *input*, $c_i = \sum_j \alpha_{ij} h^{(j)}$",
# and say a few lines later that $i$ is the position of the *output*. Both cannot be. **Predict**: how many contexts would
# there be in each reading, with five source words and three target words?

# %%
assert len(contexts_TD) == 3 != len(h_SD)  # i is the output: one context for each word to write
try:
    table_TS.T @ h_SD  # i as the input would need five rows of weights over five words
except RuntimeError as error:
    print("i as the input does not fit:", error)

# %% [markdown]
# There is a context for each word that is *written*. In this course the source has $i$, the target has $t$, and $c_t$ has a $t$.
#
# ## Padded words are masked before the softmax
#
# A batch is a rectangle, sentences are not: short ones are filled up with padding. The encoder has a state there, too, and the
# small network gives it a score.
#
# **Predict**: a sentence of two words, once alone and once padded to five. Are the weights of its two words the same?

# %%
alone = source_BSM[:1, :2]
padded = torch.cat([alone, torch.zeros(1, 3, 5)], dim=1)
state = state_BN[:1]
print("alone: ", attention(state, alone)[1].detach())
print("padded:", attention(state, padded)[1].detach())

# %% [markdown]
# **What is wrong here?** The padded words were read: the same sentence means something else in other company.

# %%
share = attention(state, padded)[1][0, 2:].sum()
assert share > 0.1  # a good part of the attention went to nothing at all
assert not torch.allclose(attention(state, padded)[0], attention(state, alone)[0])

# %% [markdown]
# The cure: a mask, True on real words, and a score of $-\infty$ wherever it is False, since $\exp(-\infty) = 0$. Two cures
# that come to mind are wrong. **Predict** for each what the weights will look like:
# a score of 0 for padding; or the softmax first, and then 0 for the weights of padding.

# %%
real = torch.tensor([[True, True, False, False, False]])
few = torch.tensor([[1.0, -1.0, 2.0, 0.5, 0.3]])  # scores of two words and three paddings
zero_scores = few.masked_fill(~real, 0.0).softmax(dim=-1)
assert zero_scores[0, 2] > zero_scores[0, 1]  # exp(0) = 1: padding still has its share
afterwards = few.softmax(dim=-1) * real
assert afterwards.sum() < 0.5  # padding reads nothing, and what it took is missing
right = few.masked_fill(~real, -math.inf).softmax(dim=-1)
assert torch.allclose(right[:, :2], few[:, :2].softmax(dim=-1))  # as if the two words were alone
assert (right[:, 2:] == 0).all()

# %% [markdown]
# With the mask, a sentence is the same in any company:

# %%
assert torch.allclose(attention(state, padded, real)[0], attention(state, alone)[0])
assert torch.allclose(masked_softmax(few, real), right)
print("padded, masked:", attention(state, padded, real)[1].detach())

# %% [markdown]
# One corner is left: a row that is padding from end to end. With $-\infty$ everywhere softmax computes $0/0$, and one NaN is
# enough to spoil the gradient of the whole batch. The library returns zeros there: nothing to read, nothing read.

# %%
nothing = torch.zeros(1, 5, dtype=torch.bool)
assert few.masked_fill(~nothing, -math.inf).softmax(dim=-1).isnan().all()
assert (masked_softmax(few, nothing) == 0).all()

# %% [markdown]
# ## The question is the state before the step
#
# The order of one step of the decoder, with $y_{t-1}$ the word written last:
#
# 1. score with $s_{t-1}$, the state that is there already: $e_{ti} = v^\top \tanh(W_s s_{t-1} + W_h h_i)$;
# 2. softmax over $i$, and the context $c_t = \sum_i a_{ti} h_i$;
# 3. the new state $s_t = \text{cell}([y_{t-1};\, c_t],\; s_{t-1})$;
# 4. the next word from $s_t$ and $c_t$.

# %%
cell = GRUCell(4 + 5, 3)  # reads a word of width 4 and a context of width 5


def step(y, s_before, h):
    c, _ = attention(s_before, h)
    return cell(torch.cat([y, c], dim=-1), s_before)


y = torch.randn(2, 4)
s_now = step(y, state_BN, source_BSM)
assert s_now.shape == state_BN.shape

# %% [markdown]
# **What is wrong here?** A set of slides writes $\text{score}(s_t, h_i) = v^\top\tanh(W[s_t; h_i])$, and in the next line
# $a_{ti} = \text{softmax}(\text{score}(s_{t-1}, h_i))$. Which of the two can be computed? Write down what $s_t$ needs, and
# what that needs. **Predict** what Python says to the first line, taken at its word.


# %%
def step_of_the_slide(y, s_before, h):
    c, _ = attention(s_after, h)  # noqa: F821  (scores with s_t …)
    s_after = cell(torch.cat([y, c], dim=-1), s_before)  # … which is made of c_t, which is made of the scores
    return s_after


try:
    step_of_the_slide(y, state_BN, source_BSM)
except UnboundLocalError as error:
    print("A circle:", error)

# %% [markdown]
# $s_t$ needs $c_t$, $c_t$ needs the weights, and the weights would need $s_t$. Nor is it a matter of taste which of the two
# one writes, for they give different weights:

# %%
assert not torch.allclose(attention(state_BN, source_BSM)[1], attention(s_now, source_BSM)[1], atol=1e-3)

# %% [markdown]
# (Luong et al. 2015 do score with $s_t$. Their cell does not read the context: first $s_t$, then $c_t$, and no circle.)
#
# **What is wrong here?** "The first RNN generates the context vectors, the second RNN uses them", say other notes. If the first
# RNN made them, they would be there before the decoder starts. **Predict**: one source, two different decoder states. One
# context, or two?

# %%
first, _ = attention(state_BN[:1], source_BSM[:1])
second, _ = attention(-state_BN[:1], source_BSM[:1])
assert not torch.allclose(first, second, atol=1e-3)  # the same encoder states, another context

# %% [markdown]
# The first RNN makes the *states* $h_i$, once. *Attention* makes the contexts, one for each step, out of these states and of
# what the decoder is up to.
#
# ## A product can score as well
#
# A network in the middle is not the only way to compare two vectors. Luong et al. 2015 take products:
#
# $$\text{dot: } e_{ti} = s^\top h_i \qquad\qquad \text{general: } e_{ti} = s^\top W h_i$$
#
# **Predict**: which of the two works when $s$ has 3 numbers and $h_i$ has 5? For which $W$ are they equal?

# %%
w_35 = torch.randn(3, 5, generator=draw)
assert general_scores(state_BN, source_BSM, w_35).shape == (2, 4)
try:
    dot_scores(state_BN, source_BSM)
except ValueError as error:
    print("dot:", error)

# %%
asking_BM = torch.randn(2, 5, generator=draw)  # as wide as the words
dot = dot_scores(asking_BM, source_BSM)
assert torch.allclose(dot, general_scores(asking_BM, source_BSM, torch.eye(5)))
assert torch.allclose(dot[1, 2], asking_BM[1] @ source_BSM[1, 2])

# %% [markdown]
# Products have no hidden layer: all scores of all target words are one matrix product, which is what computers do best. The
# Transformer scores with products for this reason, and with $W$ split in two: one matrix for the one who asks, one for what is
# looked at (unit 04).
#
# ## Two sources, or one
#
# So far somebody asks (the decoder) and somebody else is read (the encoder): **general attention**, between two sources. Nothing
# forbids that a sentence asks about itself: **self-attention**, one source. Then each word gets a new vector, made of the words
# of its own sentence. (*General* has two meanings here: the general *score* above is a formula, and may be used in either. From
# unit 04 on, attention between two sources is called cross-attention.)
#
# **Predict** the shapes: three German words read five English words; five English words read themselves.

# %%
german_TD, english_SD = torch.randn(3, 4, generator=draw), torch.randn(5, 4, generator=draw)
two_sources = (german_TD @ english_SD.T).softmax(dim=-1) @ english_SD
one_source = (english_SD @ english_SD.T).softmax(dim=-1) @ english_SD
assert two_sources.shape == (3, 4) and one_source.shape == (5, 4)  # one row for each who asks
assert torch.allclose(one_source, self_attention(english_SD), atol=1e-6)

# %% [markdown]
# Self-attention needs no RNN at all: that is unit 03, and the road to the Transformer.
#
# ## With attention, seconds of training are enough
#
# Now for real. Numbers of two to six digits, about as many of each length; those of the test are never seen in training. The
# number 45 is among them.

# %%
lots = random.Random(0)


def some_numbers(count):
    return [lots.randrange(10, 10 ** lots.randint(2, 6)) for _ in range(count)]


test_numbers = sorted({45, *some_numbers(400)})
train_numbers = [n for n in some_numbers(10_000) if n not in test_numbers]
training, testing = spoken.encode(train_numbers), spoken.encode(test_numbers)
print(len(train_numbers), "numbers to learn from,", len(test_numbers), "to be tested on")

# %% [markdown]
# Both networks get the same: the same data in the same order, 150 steps with 32 numbers each, the same learning rate (how far
# one step goes; in a warmup, the first 20 steps go less far), the same width of the decoder.


# %%
def train(kind, seed=0):
    seed_all(seed)  # the numbers that the network starts with
    model = kind(sizes)
    pairs = batches(*training, 32, generator=generator(seed), steps=150)
    return model, fit(model, pairs, TrainConfig(steps=150, lr=1e-2, warmup=20))


without, history_without = train(Seq2Seq)

# %% [markdown]
# **Predict** before you train the second one: will its loss be lower at the end? By how much?

# %%
attending, history_attending = train(AttentionSeq2Seq)
assert history_attending.losses[-1] < 0.3 * history_without.losses[-1]

# %%
plots.curves(
    {"RNN without attention": history_without.losses, "RNN with attention": history_attending.losses},
    title="Same data, same steps",
    xlabel="training step",
    ylabel="loss per word",
    alt=f"Both losses fall; after 150 steps {history_without.losses[-1]:.2f} without attention, "
    f"{history_attending.losses[-1]:.3f} with it.",
)

# %% [markdown]
# See where the two curves part: both learn quickly which words there are, and how often; after that the plain RNN has to learn
# to squeeze every digit into one state, while the other learns where to look.
#
# A loss is not a translation. So let both translate the numbers that they have not seen, and count a number as right only if
# every word of it is. **Predict** two percentages.


# %%
def translate(model, source_BS):
    said = greedy(model, source_BS, max_length=testing[1].shape[1])
    return [spoken.target_words.decode(row) for row in said]


meant = [spoken.target_words.decode(row) for row in testing[1]]
said_without, said_attending = translate(without, testing[0]), translate(attending, testing[0])
print(f"exactly right: {exact_match(said_without, meant):.1%} without attention, "
      f"{exact_match(said_attending, meant):.1%} with it")  # fmt: skip
assert exact_match(said_attending, meant) > 0.9
assert exact_match(said_without, meant) < 0.5

# %% [markdown]
# ## Length hurts the RNN without attention
#
# If the one state is the bottleneck, long numbers should suffer most. **Predict** the two curves of accuracy against the number
# of digits.


# %%
def shares(said):
    scores = by_digits(test_numbers, [a == b for a, b in zip(said, meant, strict=True)])
    return [score.digits for score in scores], [score.share for score in scores]


digits, right_without = shares(said_without)
_, right_attending = shares(said_attending)
assert min(right_attending) > 0.8  # short or long
assert right_without[-1] < 0.2  # six digits

# %%
plots.curves(
    {"RNN without attention": (digits, right_without), "RNN with attention": (digits, right_attending)},
    title="Exact translations of unseen numbers",
    xlabel="digits of the number",
    ylabel="share that is right",
    alt=f"From two digits to six, the share falls from {right_without[0]:.0%} to {right_without[-1]:.0%} without "
    f"attention; with it, it goes from {right_attending[0]:.0%} to {right_attending[-1]:.0%}.",
)

# %% [markdown]
# See that one line falls and the other does not. (Is it fair? The network with attention has more parameters. The last figure of
# this unit lets you give it fewer.)
#
# ## The alignment crosses where German does
#
# The weights of one translation, as a picture: a row for each word that is written, a column for each word that can be read.
# **Predict** for *forty five* → *fünf und vierzig*: where is the largest weight in the row of *fünf*? In the row of *vierzig*?

# %%
source, target = spoken.encode([45])
english = spoken.source_words.decode(source[0])
german = [*spoken.target_words.decode(target[0]), "<eos>"]
alignment = attending.align(source, target[:, :-1])[0].detach()  # row t: where it looked to write word t
read = {word: english[int(row.argmax())] for word, row in zip(german, alignment, strict=True)}
print(read)
assert read["fünf"] == "five" and read["vierzig"] == "forty"

# %%
plots.weights(alignment, german, english, title="Who reads whom: the lines cross")

# %% [markdown]
# See the two bright fields of *fünf* and *vierzig*: they do not go down from left to right, as they would for two languages with
# the same order, but the other way. Nobody told the network that German says the unit first; it found out where to look. For
# *und* and for the end of the sentence (`<eos>`) there is nothing to look for, and their rows mean little.
#
# **Step through it**: move the slider to let the decoder write word by word. Point at a word, on either side, to see what
# reads it and what it reads.

# %%
widgets.DecoderSteps(source=english, target=german, weights=alignment)

# %% [markdown]
# A longer number crosses twice. **Predict** where, for *two hundred thirty four thousand five hundred sixty seven*.

# %%
long_source, long_target = spoken.encode([234_567])
long_english = spoken.source_words.decode(long_source[0])
long_german = spoken.target_words.decode(long_target[0])
long_alignment = attending.align(long_source, long_target[:, :-1])[0, :-1].detach()
long_read = [long_english[i] for i in long_alignment.argmax(dim=-1).tolist()]
assert long_read[long_german.index("vier")] == "four" and long_read[long_german.index("dreißig")] == "thirty"
assert long_read[long_german.index("sieben")] == "seven" and long_read[long_german.index("sechzig")] == "sixty"
plots.weights(long_alignment, long_german, long_english, title="234,567: two crossings")

# %% [markdown]
# See the fields go back to the left within each group of three digits. Some rows may surprise you: *hundert* is often written
# with an eye on another word than "hundred".
#
# **What is wrong here?** "The weights explain why the network wrote this word." They say where it looked, no more. Remember how
# the encoder reads. **Predict**: *forty five* becomes *sixty five*. Does the state of *five*, the second word, change?

# %%
pair, _ = spoken.encode([45, 65])  # forty five, sixty five
of_both = attending.start(pair).source
assert not torch.allclose(of_both[0, 1], of_both[1, 1], atol=1e-3)  # "five", with different neighbours

# %% [markdown]
# It does: $h_i$ comes from an encoder that reads in both directions, so the state of *five* knows of *forty*, too. Whoever looks
# at one word may have learned about another.
#
# **Try it**: train the network with attention again, with another hidden size of the decoder. Does it still beat the RNN
# without attention when it has fewer parameters?


# %%
def count(model):
    return sum(p.numel() for p in model.parameters())


small = AttentionSeq2Seq(Seq2SeqConfig(len(spoken.source_words), len(spoken.target_words), d_hidden=32))
print(f"{count(without):,} without attention, {count(attending):,} with, {count(small):,} with and hidden size 32")
assert count(small) < count(without) < count(attending)

# %%
widgets.Retrain(spoken, training, testing, sizes=(16, 32, 64), number=45)

# %% [markdown]
# ## Barriers and solutions
#
# | barrier | solution |
# |---|---|
# | an RNN squeezes the sentence into one state (01) | attention reads all states (02) |
# | padding is read like words (02) | a mask, before the softmax (02) |
# | the decoder still waits for its own state, word by word (01, 02) | *still open: units 03 and 10* |
# | the encoder still reads word by word (01) | *next: unit 03, self-attention* |
#
# **Three takeaways**
#
# 1. Score, softmax, weighted sum: $e_{ti}$ compares the decoder's state *before* the step with a source word, the weights sum to
#    1 over the source words, and the context $c_t$ is the sum of the states, by weight.
# 2. Padding is masked before the softmax, or it takes its share.
# 3. The context has one width for any length: that opens the bottleneck, and the weights can be read as an alignment.
#
# **To think about**
#
# - What would the weights look like if all $h_i$ were equal? What would the context be?
# - The network has never seen a number with one digit alone. Will it translate "seven"? Try `translate(attending, spoken.encode([7])[0])`.
# - How many scores does it take to translate a sentence of $S$ words into $T$ words? How many steps must wait for each other?
#
# **To read**: Bahdanau, Cho and Bengio 2015, *Neural Machine Translation by Jointly Learning to Align and Translate*, section 3,
# and their alignments in figure 3; Luong, Pham and Manning 2015, *Effective Approaches to Attention-based Neural Machine
# Translation*, section 3.1, for the products.
#
# **On**: try it yourself in `exercises/02_rnn_attention.ipynb`. Then unit 03 drops the RNN and keeps the attention.
