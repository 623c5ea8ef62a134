# %% [markdown]
# # 01 Sequence to sequence with an RNN
#
# How does a network read a sentence, when sentences have no fixed length? For many years the answer was: word by word, with a
# memory that is passed on. Here you build such a network, let it translate and copy, and measure where it fails. All that
# comes later in this course, attention first of all, is an answer to what you find in this unit.
#
# **After this unit you can**
#
# - write one step of an RNN (01-a);
# - build the state of an encoder that reads in both directions (01-b);
# - show the bottleneck: accuracy falls as sentences grow (01-c);
# - count sequential steps and interaction distance for RNN, word window and attention (01-d);
# - measure the gradient that reaches the first word (01-e).
#
# **You need** unit 00, matrix products, and some torch: tensors, and what `backward()` does. **Time**: 60 minutes to read and
# play. Three small networks are trained on the way; all cells together take less than a minute.
#
# Notation: $B$ sentences side by side (a batch), $T$ words each, $E$ numbers for a word, $D$ numbers for a state. Words and
# states are rows. $x_t$ is the vector of word $t$, $h_t$ the state after reading it. Shapes hang on the names: `x_BTE` is
# $B \times T \times E$.

# %%
import math

import torch

from course_lib import plots, widgets
from course_lib.data import BOS, Vocabulary, batches, copy_task, number_pairs, pad_rows
from course_lib.decoding import greedy
from course_lib.device import generator, seed_all
from course_lib.metrics import exact_match
from course_lib.rnn import Bidirectional, LeftToRight, RNNCell, WindowEncoder, counts, minimum_steps, run
from course_lib.seq2seq import Encoder, Seq2Seq, Seq2SeqConfig
from course_lib.training import TrainConfig, fit

torch.set_num_threads(1)  # for networks this small, more threads would mostly wait for each other
torch.set_printoptions(precision=3, sci_mode=False)

# %% [markdown]
# ## An RNN reads one word after the other
#
# First, words become numbers. A **vocabulary** gives every word an id, and an **embedding** is a table with a row of $E$ numbers
# for every id: the word's vector. The numbers in the table are learned with everything else.

# %%
spoken = number_pairs("german", train=1, test=1)  # only for its vocabularies
ids_BT, _ = spoken.encode([45])
seed_all(0)
table = torch.nn.Embedding(len(spoken.source_words), 3)
x_BTE = table(ids_BT).detach()
print(spoken.source_words.decode(ids_BT[0]), "→", ids_BT.tolist(), "→", x_BTE)

# %% [markdown]
# A **recurrent neural network** (RNN) has a state $h$, a row of $D$ numbers that starts with zeros. It reads a word, makes a new
# state out of the word and the old state, and goes on to the next word:
#
# $$h_t = \tanh(x_t W_{ih} + h_{t-1} W_{hh} + b)$$
#
# $W_{ih}$ leads from the input to the hidden state, $W_{hh}$ from one hidden state to the next. They are the same at every
# step, so one network reads sentences of any length. The tanh squeezes every number into $-1 \dots 1$.
#
# **By hand**, with everything one number wide: $W_{ih} = \ln 2$, $W_{hh} = \frac{5}{3} \ln 3$, $b = 0$, and the words are $x_1 = 1$,
# $x_2 = 0$. Two facts help: $\tanh(\ln 2) = 0.6$ and $\tanh(\ln 3) = 0.8$. Write down $h_1$ and $h_2$. The second word is 0; is
# the second state?


# %%
def step(x, h, w_ih, w_hh, b):
    return torch.tanh(x @ w_ih + h @ w_hh + b)


narrow = torch.tensor([[math.log(2)]]), torch.tensor([[5 / 3 * math.log(3)]]), torch.zeros(1)
h_0 = torch.zeros(1, 1)
h_1 = step(torch.tensor([[1.0]]), h_0, *narrow)
h_2 = step(torch.tensor([[0.0]]), h_1, *narrow)
print(h_1, h_2)
assert torch.allclose(torch.cat([h_1, h_2]), torch.tensor([[0.6], [0.8]]))

# %% [markdown]
# The second word brought nothing, and the state still remembers the first one: that is what $W_{hh}$ is for.
#
# With real widths it is the same line. **Predict** the shape of the state after each word of "forty five", for $D = 4$.

# %%
draw = generator(1)
w_ih, w_hh, b = torch.randn(3, 4, generator=draw), torch.randn(4, 4, generator=draw), torch.zeros(4)
h = torch.zeros(1, 4)
for t in range(x_BTE.shape[1]):
    h = step(x_BTE[:, t], h, w_ih, w_hh, b)
    print("after word", t + 1, h)
assert h.shape == (1, 4)

# %% [markdown]
# The library's `RNNCell` does this. It keeps its matrices transposed and has two biases, as torch's own cell does, which
# changes the bookkeeping and not the numbers; `run` is the loop over the words.

# %%
cell = RNNCell(3, 4)
by_hand = torch.zeros(1, 4)
for word in x_BTE.unbind(1):
    by_hand = step(word, by_hand, cell.weight_ih.T, cell.weight_hh.T, cell.bias_ih + cell.bias_hh)
states_BTD, last_BD = run(cell, x_BTE)
assert torch.allclose(last_BD, by_hand) and torch.equal(states_BTD[:, -1], last_BD)

# %% [markdown]
# **Predict**: is the last state of "forty five" that of "five forty"? (Would it be, if we added up the words' vectors?)

# %%
_, other_way = run(cell, x_BTE.flip(1))
assert not torch.allclose(last_BD, other_way, atol=1e-3)  # an RNN knows the order of the words
assert torch.allclose(x_BTE.sum(1), x_BTE.flip(1).sum(1))  # a sum does not

# %% [markdown]
# **What is wrong here?** Somebody leaves the tanh out: "the matrices do the work". Let two sentences be read, and then their
# sum, word by word. **Predict**: what is the state of the sum?


# %%
def read_without_tanh(x_TE):
    h = torch.zeros(4)
    for word in x_TE:
        h = word @ w_ih + h @ w_hh
    return h


one, two = torch.randn(5, 3, generator=draw), torch.randn(5, 3, generator=draw)
both = read_without_tanh(one + two)
assert torch.allclose(both, read_without_tanh(one) + read_without_tanh(two), rtol=1e-3, atol=1e-3)

# %% [markdown]
# The sum of the states: every word adds its own share, whatever the others say. In such a network "not" could never change
# what "good" means. (And without tanh nothing keeps the state from growing at every step.)
#
# ## The last state carries the whole sentence
#
# Translation needs two RNNs. The **encoder** reads the source, as above. The **decoder** starts from a state made of the
# encoder's last one, and writes the target, one word at a time; each word that it has written is the next one that it reads. A
# special word, `<bos>`, begins the sentence, and when the decoder writes `<eos>`, it is over.
#
# $$s_0 = \tanh(W h_T) \qquad s_t = \text{cell}(y_{t-1}, s_{t-1}) \qquad p(y_t) = \text{softmax}(W_o\, s_t)$$
#
# $s_t$ is a state of the decoder, $y_t$ a word of the target. $W_o$ makes a score for every word of the vocabulary, and
# **softmax** turns scores into probabilities: positive numbers that sum to 1, the largest for the best score (unit 02 has its
# formula). The library calls all of this `Seq2Seq`, from sequence to sequence.

# %%
sizes = Seq2SeqConfig(
    len(spoken.source_words), len(spoken.target_words), d_encoder=128, d_hidden=128, bidirectional=False
)
seed_all(0)
translator = Seq2Seq(sizes)
source, target = spoken.encode([45])
print(spoken.source_words.decode(source[0]), "→", ["<bos>", *spoken.target_words.decode(target[0]), "<eos>"])

# %% [markdown]
# Here is the decoder's loop, written out. The network has not been trained, so it babbles, but the machine runs. Look for the
# line in which the decoder sees the English sentence. **Predict**: how many such lines are there?

# %%
state = translator.start(source)  # the encoder reads, s_0 is made
newest, written = torch.tensor([[BOS]]), []
for _ in range(4):
    logits_BC, state = translator.step(newest, state)  # a score for every German word
    newest = logits_BC.argmax(dim=-1, keepdim=True)  # the best one is written, and read next
    written.append(int(newest))
assert written == greedy(translator, source, max_length=4)[0].tolist()
print(spoken.target_words.decode(written))

# %% [markdown]
# One line, the first. From there on, all that the decoder knows of the source is `state`. **Predict**: how many numbers is
# that for "forty five"? And for "seven hundred seventy seven thousand seven hundred seventy seven"?

# %%
for number in (45, 777_777):
    words_BS, _ = spoken.encode([number])
    handed_over = translator.start(words_BS).cell
    print(words_BS.shape[1], "words →", handed_over.shape[1], "numbers")
    assert handed_over.shape == (1, 128)

# %% [markdown]
# Two words or nine: 128 numbers. Keep this in mind, it is what the unit is about.
#
# In training the decoder does not read its own babble. It reads the right words, and is asked for the next one at each place:
# **teacher forcing**. So input and target are the same sentence, shifted by one. The **loss** says how far the scores are from the
# right words, and training moves all weights, embeddings included, a little against its gradient, again and again.

# %%
target_in, target_out = target[:, :-1], target[:, 1:]
print("reads: ", [spoken.target_words.words[i] for i in target_in[0].tolist()])
print("writes:", [spoken.target_words.words[i] for i in target_out[0].tolist()])
assert translator(source, target_in).shape == (1, target_out.shape[1], len(spoken.target_words))

# %% [markdown]
# **What is wrong here?** A batch is a rectangle, so short sentences are filled up with padding, and somebody takes the state at the
# end of the rectangle as "the last one". **Predict**: is it the state that the sentence has when it is read alone?

# %%
padding = torch.zeros(1, 3, 3)  # three zero vectors behind the two words
padded = torch.cat([x_BTE, padding], dim=1)
padded_states, _ = run(cell, padded)
assert not torch.allclose(padded_states[:, -1], last_BD, atol=1e-3)  # three steps without a word changed it
assert torch.allclose(padded_states[:, 2 - 1], last_BD)  # the last word is number lengths − 1
_, with_lengths = run(cell, padded, lengths=torch.tensor([2]))
assert torch.allclose(with_lengths, last_BD)

# %% [markdown]
# A step without a word is still a step. Whoever reads padding translates the same sentence differently in other company.
#
# ## Grammar needs the future
#
# Fill the gap: "I saw … elephant". You read on before you decided between *a* and *an*. For a time series it is enough to know the
# past; in a sentence, what stands here may depend on what comes next.
#
# **Predict**: an RNN reads "I saw ? man" and "I saw ? elephant" from left to right. How different are its two states at the gap?

# %%
sentences = [["I", "saw", "?", noun] for noun in ("man", "house", "lion", "tree", "elephant", "apple", "owl", "onion")]
words = Vocabulary.build(sentences)
ids = torch.tensor([words.encode(sentence) for sentence in sentences])
seed_all(1)
vectors = torch.nn.Embedding(len(words), 16)(ids).detach()
left_to_right = LeftToRight(16, 128)
man, elephant = (left_to_right(vectors[i : i + 1])[0][:, 2] for i in (0, 4))
assert torch.equal(man, elephant)  # equal to the last bit: the noun has not been read yet

# %% [markdown]
# No network behind this encoder, however clever, can tell from that state whether *a* or *an* is right.
#
# The remedy: two readers. One goes from left to right, the other from right to left, each with its own weights, and the state
# of a word is both of their states **side by side** (concatenated):
#
# $$h_i = [\overrightarrow{h}_i;\ \overleftarrow{h}_i]$$
#
# Around 2016, two readers of this kind were how nearly everybody encoded a sentence (with a cell called LSTM, of which more below).
# **Predict** the width of $h_i$, if each reader has 128 numbers.

# %%
two_readers = Bidirectional(16, 128)
both_BTD, ends_BD = two_readers(vectors)
assert both_BTD.shape == (8, 4, 256) and ends_BD.shape == (8, 256)  # 128 + 128
from_left, _ = run(two_readers.right, vectors)  # the one that moves to the right
from_right, _ = run(two_readers.left, vectors, reverse=True)
assert torch.equal(both_BTD, torch.cat([from_left, from_right], dim=-1))

# %% [markdown]
# Does the state at the gap know now what it has to know? Let a linear layer say *a* ($-1$) or *an* ($+1$) from it, the best one
# there is (least squares, no training needed). **Predict** for both encoders what it says to the eight sentences.

# %%
article = torch.tensor([[-1.0]] * 4 + [[1.0]] * 4)
verdicts = {}
for name, encoder in {"left to right": left_to_right, "both directions": two_readers}.items():
    at_gap = encoder(vectors)[0][:, 2].detach()
    best = torch.linalg.lstsq(at_gap, article, rcond=1e-4, driver="gelsd").solution
    verdicts[name] = at_gap @ best
    print(name, verdicts[name][:, 0])
assert verdicts["left to right"].abs().max() < 0.01  # halfway between a and an, every time
assert (verdicts["both directions"] - article).abs().max() < 0.1

# %% [markdown]
# The first one shrugs: one and the same answer for all, halfway between. (A *decoder* cannot read from both sides: it would have
# to know what it is about to write. Two directions are for reading.)
#
# **What is wrong here?** Somebody wants one vector for the whole sentence, and takes the state of the last word, `states[:, -1]`:
# it worked with one reader. **Predict**: how many words has the reader from the right read there?

# %%
changed = vectors.clone()
changed[:, 0] = 0.0  # another first word
new_states, new_last = two_readers(changed)
assert torch.equal(new_states[:, -1, 128:], both_BTD[:, -1, 128:])  # it began there: one word read, "I" never seen
assert not torch.allclose(new_last[:, 128:], ends_BD[:, 128:], atol=1e-4)  # its last state is the one at word 1

# %% [markdown]
# Each reader has a last state of its own, and they stand at opposite ends. The library's `last` puts these two together.
#
# ## Accuracy falls as sentences grow
#
# Now the question of this unit: can one state carry a sentence, however long? To find out, we need a task whose length we can turn
# like a knob, and that needs no grammar at all: **copying**. The network reads some digits, and writes the same digits.

# %%
digits = Vocabulary.build([["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]])
to_read, to_write = copy_task(5, 1, digits, seed=0)
print(digits.decode(to_read[0]), "→", digits.decode(to_write[0]))
assert digits.decode(to_read[0]) == digits.decode(to_write[0])

# %% [markdown]
# The network learns from sentences of 1 to 12 words, 2,000 of each length. One digit is one of ten, so a sentence of $n$ words is one
# of $10^n$: at twelve words, nobody learns them by heart.

# %%
lengths = list(range(1, 13))
sources, targets = [], []
for n in lengths:
    to_read, to_write = copy_task(n, 2_000, digits, seed=n)
    sources += to_read.tolist()
    targets += to_write.tolist()
training = pad_rows(sources), pad_rows(targets)
print(training[0].shape, training[1].shape)

# %% [markdown]
# The cell is a **GRU**, an RNN with *gates*: small layers that decide, number by number, how much of the old state to keep and
# how much to write anew. It learns better than the plain cell, so the RNN gets a fair chance. (Its formula is in
# `course_lib/rnn.py`; for this unit it is enough that it goes from $h_{t-1}$ and $x_t$ to $h_t$.)


# %%
def train(seed=0, **switches):
    seed_all(seed)  # the numbers that the network starts with
    model = Seq2Seq(Seq2SeqConfig(len(digits), len(digits), d_embed=32, cell="gru", **switches))
    pairs = batches(*training, 32, generator=generator(seed), steps=300)
    fit(model, pairs, TrainConfig(steps=300, lr=1e-2))
    return model


left_64 = train(d_encoder=64, d_hidden=64, bidirectional=False)

# %% [markdown]
# Test it on fresh sentences, 200 of each length, and count one as right only if every word is, and the end too. **Predict** the
# curve: the share of sentences copied exactly, for 1 to 12 words.


# %%
def exactly_right(model, n):
    to_read, to_write = copy_task(n, 200, digits, seed=1_000 + n)
    said = greedy(model, to_read, max_length=n + 1)
    return exact_match(said.tolist(), to_write[:, 1:].tolist())  # without <bos>


accuracy = {"left to right, 64": [exactly_right(left_64, n) for n in lengths]}
print({n: f"{share:.0%}" for n, share in zip(lengths, accuracy["left to right, 64"], strict=True)})


# %%
def assert_it_falls(curve):
    at = dict(zip(lengths, curve, strict=True))
    assert at[2] > 0.9  # two words: nearly always
    assert at[2] > at[4] > at[6] > at[8]  # and down, and down
    assert at[12] < 0.1  # twelve words: hardly ever


assert_it_falls(accuracy["left to right, 64"])

# %% [markdown]
# **What is wrong here?** "Of course it falls! If each word is right with probability 0.9, twelve of them are with $0.9^{12} = 0.28$. The
# network is as good as ever, only the sentences are longer." **Predict**: the share of single *words* that are right, in sentences of 2
# words and of 12.


# %%
def words_right(model, n):
    to_read, _ = copy_task(n, 200, digits, seed=1_000 + n)
    said = greedy(model, to_read, max_length=n)
    return float((said == to_read[:, : said.shape[1]]).sum() / to_read.numel())


print(f"{words_right(left_64, 2):.0%} of the words in short sentences, {words_right(left_64, 12):.0%} in long ones")
assert words_right(left_64, 2) > 0.95
assert words_right(left_64, 12) < 0.6  # each single word suffers from the company of the others

# %% [markdown]
# So it is not a matter of counting: the same word is copied well among two, and badly among twelve. Perhaps the network was badly built?
# Two repairs come to mind: read in both directions (32 + 32, so that the state still has 64 numbers), or double the width of the state. **Predict**
# for each: does the curve move? Does it stop falling?

# %%
both_32 = train(d_encoder=32, d_hidden=64, bidirectional=True)
accuracy["both directions, 32 + 32"] = [exactly_right(both_32, n) for n in lengths]
assert_it_falls(accuracy["both directions, 32 + 32"])

# %%
left_128 = train(d_encoder=128, d_hidden=128, bidirectional=False)
accuracy["left to right, 128"] = [exactly_right(left_128, n) for n in lengths]
assert_it_falls(accuracy["left to right, 128"])
at_six = {name: curve[lengths.index(6)] for name, curve in accuracy.items()}
assert at_six["left to right, 128"] > at_six["left to right, 64"]  # better, and falling all the same

# %%
plots.curves(
    {name: (lengths, curve) for name, curve in accuracy.items()},
    title="One state for a sentence",
    xlabel="words in the sentence",
    ylabel="share copied exactly",
    alt="Three curves fall from 100 % at one and two words to about 0 % at twelve; "
    "the wider state falls a little later.",
)

# %% [markdown]
# See that the three curves have one shape. A wider state buys a word or two, and all of this is about what 300 steps of training can
# do; but the sentence grows, and the state does not. That is the **bottleneck**.
#
# ## The gradient fades on its way to the first word
#
# There is a second trouble, and it concerns learning. The loss stands at the end, the first word at the beginning. What the network
# can learn about that word must come back as a gradient, through every state in between. By the chain rule each step multiplies it:
#
# $$\frac{\partial h_t}{\partial h_{t-1}} = \text{diag}(1 - h_t^2)\, W_{hh}^\top$$
#
# The first factor belongs to the tanh and is at most 1. The second: a new network draws the entries of $W_{hh}$ between
# $\pm 1/\sqrt{D}$, with variance $1/(3D)$, and such a matrix makes a vector shorter, by about $1/\sqrt 3 \approx 0.58$.
#
# **Predict**: by how much does the gradient fade over eleven steps?


# %%
def gradient_by_word(encoder, n):
    """How much of a gradient that starts at the last state reaches each word: a mean over 64 sentences."""
    tokens, _ = copy_task(n, 64, digits, seed=n)
    x_BTE = encoder.embedding(tokens).detach().requires_grad_()
    _, last_BD = encoder.reader(x_BTE)
    (gradient_BTE,) = torch.autograd.grad(last_BD.sum(), x_BTE)
    return gradient_BTE.norm(dim=-1).mean(dim=0)


# %%
def untrained(cell, **switches):
    seed_all(0)
    return Encoder(Seq2SeqConfig(len(digits), len(digits), d_embed=32, d_encoder=64, cell=cell, **switches))


fades = [float(gradient_by_word(untrained("rnn", bidirectional=False), n)[0]) for n in lengths]
per_word = (fades[-1] / fades[0]) ** (1 / 11)
print(f"{fades[0]:.2f} after one word, {fades[-1]:.4f} after twelve: each word leaves {per_word:.2f} of it")
assert fades == sorted(fades, reverse=True)  # down with every word
assert fades[-1] < 0.01 * fades[0] and 0.4 < per_word < 0.66
assert gradient_by_word(untrained("rnn", bidirectional=False), 30)[0] < 1e-6 * fades[0]  # thirty words

# %% [markdown]
# With twelve words, less than a hundredth arrives; with thirty, less than a millionth. The network would have to learn what the first
# word is for from a whisper.
#
# Gates help, but not at once. **Predict** for the GRU: before training, does its gradient fade? And after training?

# %%
encoders = {
    "plain RNN, untrained": untrained("rnn", bidirectional=False),
    "GRU, untrained": untrained("gru", bidirectional=False),
    "GRU, trained": left_64.encoder,
}
gradient = {name: [float(gradient_by_word(e, n)[0]) for n in lengths] for name, e in encoders.items()}
left_over = {name: curve[-1] / curve[0] for name, curve in gradient.items()}
print({name: f"{share:.4f}" for name, share in left_over.items()})
assert left_over["GRU, untrained"] < 0.02
assert left_over["GRU, trained"] > 0.2

# %% [markdown]
# The GRU has learned to let its state pass, and so gradients come through. That is why people used GRU and LSTM cells (an LSTM has
# gates too) and not the plain one.
#
# **What is wrong here?** "Gates cure the vanishing gradient, so long sentences are no problem any more." **Predict** what the same
# trained network does with twelve words, now that you know that its gradient arrives.

# %%
assert left_over["GRU, trained"] > 0.2  # the gradient gets through …
assert accuracy["left to right, 64"][-1] < 0.1  # … and the sentence does not

# %% [markdown]
# Two troubles, then: a long way for the gradient, and one state for everything. Gates help against the first.
#
# And two readers? The first word is far from the end for one of them, and near for the other. **Predict**: of thirteen words,
# which gets the least gradient?

# %%
by_word = gradient_by_word(untrained("gru", bidirectional=True), 13)
print(by_word)
assert int(by_word.argmin()) in (5, 6, 7)  # counted from 0: in the middle, far from both ends
assert by_word.min() < 0.2 * by_word.max()

# %% [markdown]
# **Play**: all that was measured, in one figure. Move the length (or click into a curve). At which length is every second sentence
# wrong, for each of the three networks? By which factor does each gradient fade per word?

# %%
widgets.Bottleneck(lengths=lengths, accuracy=accuracy, gradient=gradient)

# %% [markdown]
# ## The chef is far from the verb
#
# "The chef who ran out of blueberries and went to the stores **was** …" Why *was*, and not *were*? Because of the *chef*, eleven words
# earlier, and not because of the *stores* next door. In an RNN, what is known about the chef has been through eleven more steps
# by then. The number of steps between two words is their **interaction distance**. From the first to the last of $T$ words it is
# $T$, the first word's own step included.

# %%
sentence = ["the", "chef", "who", "ran", "out", "of", "blueberries", "and", "went", "to", "the", "stores", "was"]
chef, was = sentence.index("chef"), sentence.index("was")
assert was - chef == 11 and len(sentence) == 13
assert counts("rnn", len(sentence)).interaction_distance == 13

# %% [markdown]
# Is there another road? A **word window** (a convolution) gives each word a state made of itself and its neighbours, and needs no
# state from before. Farther words meet by stacking layers: with a window of 3, each layer looks one word further to each side.
#
# **Predict**: after how many layers does the state of *was* know of the *chef*? And after how many is there *some* state
# that knows both? A gradient tells: it is 0 where nothing gets through.


# %%
def who_knows(word, layers, window=3):
    """The places whose state after so many layers hangs on the word."""
    seed_all(0)
    x_BTE = torch.randn(1, len(sentence), 8, requires_grad=True)
    states_TD = WindowEncoder(8, 32, window, layers)(x_BTE)[0]
    reached = [torch.autograd.grad(s.sum(), x_BTE, retain_graph=True)[0][0, word].abs().sum() > 0 for s in states_TD]
    return {place for place, yes in enumerate(reached) if yes}


assert was not in who_knows(chef, layers=10) and was in who_knows(chef, layers=11)
assert not who_knows(chef, layers=5) & who_knows(was, layers=5)
print("both known, after 6 layers, to:", [sentence[i] for i in who_knows(chef, layers=6) & who_knows(was, layers=6)])

# %% [markdown]
# *Was* itself hears of the chef after eleven layers, as late as in the RNN. But information spreads to both sides, so the two meet
# in the middle after six. This is what is counted as the distance: layers until *some* state knows the first and the last word.
#
# **What is wrong here?** Slides say: "maximum interaction distance = sequence length / window size". For our thirteen words and a window
# of 3 that would be $13/3$, rounded up: 5 layers. **Predict**: does any state know all thirteen words after five?

# %%
ends = {layers: who_knows(0, layers) & who_knows(12, layers) for layers in (5, 6)}
assert math.ceil(13 / 3) == 5 and not ends[5]  # the slide's count is too small
assert ends[6] and counts("window", 13, window=3).interaction_distance == 6

# %% [markdown]
# One layer shows a state `window` words, and every further layer `window − 1` more, because windows overlap. So $l$ layers see
# $l\,(\text{window} - 1) + 1$ words, and it takes
#
# $$\left\lceil \frac{T - 1}{\text{window} - 1} \right\rceil$$
#
# layers to see $T$ of them. "About $T$ / window" is fair as a rule of thumb: both grow in proportion to $T$.

# %%
for length in (13, 50, 500):
    print(
        length, "words:", counts("window", length, window=5).interaction_distance, "layers; rule of thumb", length / 5
    )
assert counts("window", 500, window=5).interaction_distance == 125 > 500 / 5

# %% [markdown]
# And **attention**, the third road, to which the next units lead: every word looks at every other word directly. Its interaction
# distance is 1, for thirteen words as for five hundred.
#
# ## The states of an RNN wait for each other
#
# The second count is about time. A processor can do thousands of multiplications at once, but $h_2$ needs $h_1$, $h_3$ needs $h_2$, and
# so on: however fast the machine, $T$ steps come one after the other. **Predict**: how often is the cell called to read our thirteen
# words? And if a thousand sentences are read in one batch?

# %%
calls = []


class Counting(RNNCell):
    def step(self, projected, state):
        calls.append(len(projected))
        return super().step(projected, state)


run(Counting(8, 16), torch.randn(1_000, len(sentence), 8))
assert len(calls) == counts("rnn", len(sentence)).sequential_steps == 13  # steps that wait for each other …
assert calls[0] == 1_000  # … each for a thousand sentences at once

# %% [markdown]
# Many sentences go side by side; the words of one do not. Windows and attention have no such chain: all states of a layer are computed at
# once, and only layers wait for layers.
#
# Write into every state the fewest steps after which it can be there: one more than the largest number among those it reads.
# **Predict** the two rows of an RNN with two layers and five words. Careful: must the second layer wait until the first is done?

# %%
print("rnn", minimum_steps("rnn", 5, layers=2), "attention", minimum_steps("attention", 5, layers=2), sep="\n")
assert minimum_steps("rnn", 5, layers=2)[2].tolist() == [2, 3, 4, 5, 6]  # it starts at step 2, one behind
assert torch.equal(minimum_steps("window", 5, layers=2), minimum_steps("attention", 5, layers=2))

# %% [markdown]
# **Play**: turn the clock, and watch which states are there (filled). Click a state, or move with the arrow keys, and see which words it
# knows (dashed rings). Compare the three roads. With windows of 3, how many layers until some state knows both *chef* and *was*? And
# with windows of 5?

# %%
widgets.MinimumSteps(words=sentence, kind="rnn", layers=2)

# %% [markdown]
# Both counts for the three roads, with a sentence of $T$ words:
#
# | | steps of a layer that wait | interaction distance |
# |---|---|---|
# | RNN | $T$ | $T$ |
# | word window | 1 | $\lceil (T-1)/(\text{window}-1) \rceil$, about $T$ / window |
# | attention | 1 | 1 |

# %%
for kind in ("rnn", "window", "attention"):
    print(f"{kind:10}", counts(kind, 30, window=5), counts(kind, 300, window=5))
assert counts("rnn", 300) == (300, 300)
assert counts("window", 300, window=5) == (1, 75)
assert counts("attention", 300) == (1, 1)

# %% [markdown]
# ## Barriers and solutions
#
# | barrier | solution |
# |---|---|
# | a state does not know the words to come (01) | read in both directions (01) |
# | the gradient fades on its way back (01) | gates (01), and a shorter way: *next, unit 02* |
# | an RNN squeezes the sentence into one state (01) | *next: unit 02, attention* |
# | the encoder reads word by word, states wait (01) | word windows (01), *and unit 03, self-attention* |
# | windows: far words meet after many layers only (01) | *unit 03, self-attention* |
#
# **Three takeaways**
#
# 1. An RNN makes each state from a word and the state before; two readers, one from each end, let a state know both sides.
# 2. In sequence to sequence, one state carries the sentence, whatever its length: accuracy falls as sentences grow, and the gradient
#    fades on its way to the first word.
# 3. Two counts decide: how many steps must wait for each other, and how far apart two words are. RNN: $T$ and $T$; windows: 1 and about
#    $T$ / window; attention: 1 and 1.
#
# **To think about**
#
# - Train for 900 steps instead of 300. Which curves do you expect? Does the fall stop, or move?
# - Some early translators read the source *backwards*. For languages with the same order of words, which gradient became shorter,
#   and which longer?
# - What would happen to the gradient if $W_{hh}$ were twice as large? And three times? Why is that no cure?
# - A layer of attention looks at $T^2$ pairs. The table above does not show that. When would it matter?
#
# **To read**: Sutskever, Vinyals and Le 2014, *Sequence to Sequence Learning with Neural Networks*; Cho et al. 2014, *On the Properties of
# Neural Machine Translation: Encoder–Decoder Approaches*, for accuracy against length; Bengio, Simard and Frasconi 1994, *Learning
# Long-Term Dependencies with Gradient Descent Is Difficult*.
#
# **On**: try it yourself in `exercises/01_rnn_seq2seq.ipynb`. Then unit 02 opens the bottleneck: the decoder may look at all states.
