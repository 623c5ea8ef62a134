"""Unit 10, the encoder–decoder: torch tensors in and out, a batch of sentences on the first axis."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention import MultiHeadAttention
from ..blocks import FeedForward, LayerNorm
from .declare import Case, Check, Draw, Exercise, Misconception

READS = ("10", "A decoder block reads twice")
MASKS = ("10", "Each attention has its own mask")
SHIFT = ("10", "The target is shifted by one word")
LOSS = ("10", "Padding stays out of the loss")
GREEDY = ("10", "Greedy decoding takes the best word, again and again")
BEAM = ("10", "A beam keeps several sentences alive")
BLEU = ("10", "Exact match and BLEU measure different things")
CROSS = ("10", "Cross-attention crosses where German does")
CUT = "The numbers are right, but nothing can be learned: .detach(), .item(), .data or torch.tensor(...) cuts the gradient."


# --- 10.1 ---------------------------------------------------------------------------------------------------


def masks_and_shapes() -> Any:
    """Which mask, and which table of scores, has each of the three attentions? Pencil and paper.

    A source of S = 5 words (two of them padding) is translated; T = 3 target words are read so far.
    1. the encoder's self-attention; 2. the decoder's self-attention; 3. the decoder's cross-attention.
    Return two lists of three: the mask that each needs, "padding" (of the source) or "causal"; and the shape
    of one head's scores, (queries, keys).
    """
    return ["padding", "causal", "padding"], [(5, 5), (3, 3), (3, 5)]


WHICH_MASK = Exercise(
    id="10.1",
    title="Three attentions, three masks",
    answer="course_lib.exercises.u10.masks_and_shapes",
    minutes=4,
    outcomes=("10-a",),
    checks=(Check("masks and shapes", 2),),
    cases=lambda draw: [Case("masks and shapes")],
    hints=(
        "For each attention ask: who asks, and who is read? The first number counts those who ask, the second those who "
        "are read.",
        "Something is hidden for two reasons only: it is no word at all, or it has not been written yet.",
        "Cross-attention: target words ask, source words are read. The source is there from the first step, so nothing "
        "of it is the future; but its padding is no word.",
    ),
    misconceptions=(
        Misconception(
            "causal cross-attention",
            lambda: (["padding", "causal", "causal"], [(5, 5), (3, 3), (3, 5)]),
            "The shapes are right. The source is known before the first word is written: cross-attention has no future "
            "to hide, only padding.",
            MASKS,
        ),
        Misconception(
            "the decoder causal, the encoder too",
            lambda: (["causal", "causal", "padding"], [(5, 5), (3, 3), (3, 5)]),
            "The shapes are right. The encoder may read the whole sentence, forwards and backwards: nothing is written "
            "there.",
            MASKS,
        ),
        Misconception(
            "keys first",
            lambda: (["padding", "causal", "padding"], [(5, 5), (3, 3), (5, 3)]),
            "The masks are right. In cross-attention the target asks and the source is read: (queries, keys) is (3, "
            "5).",
            READS,
        ),
        Misconception(
            "cross-attention among the source words",
            lambda: (["padding", "causal", "padding"], [(5, 5), (3, 3), (5, 5)]),
            "The masks are right. In cross-attention the queries come from the decoder: there are three of them.",
            READS,
        ),
        Misconception(
            "cross-attention among the target words",
            lambda: (["padding", "causal", "padding"], [(5, 5), (3, 3), (3, 3)]),
            "The masks are right. In cross-attention the keys come from the encoder's output: there are five of them.",
            READS,
        ),
        Misconception(
            "padding everywhere",
            lambda: (["padding", "padding", "padding"], [(5, 5), (3, 3), (3, 5)]),
            "The shapes are right. Without a causal mask a target word would read the words that it should predict.",
            MASKS,
        ),
        Misconception(
            "padding cut off",
            lambda: (["padding", "causal", "padding"], [(3, 3), (3, 3), (3, 3)]),
            "You counted real words only. Padding is hidden by a mask, and keeps its columns: S stays 5.",
            MASKS,
        ),
        Misconception(
            "causal everywhere",
            lambda: (["causal", "causal", "causal"], [(5, 5), (3, 3), (3, 5)]),
            "The shapes are right. Only the one that writes has a future: the source is there from the start, for "
            "the encoder and for cross-attention.",
            MASKS,
        ),
        Misconception(
            "no mask in the encoder",
            lambda: (["none", "causal", "padding"], [(5, 5), (3, 3), (3, 5)]),
            'The shapes are right. In the encoder, too, two of the five places are no words: its mask is "padding".',
            MASKS,
        ),
        Misconception(
            "no mask in cross-attention",
            lambda: (["padding", "causal", "none"], [(5, 5), (3, 3), (3, 5)]),
            "The shapes are right. Cross-attention reads the source with its padding, so that must be hidden there, "
            "too.",
            MASKS,
        ),
        Misconception(
            "causal cross-attention, keys first",
            lambda: (["padding", "causal", "causal"], [(5, 5), (3, 3), (5, 3)]),
            "Look at cross-attention again: the target asks (3 queries) and the source is read (5 keys), and of a "
            "source that is known nothing is the future.",
            MASKS,
        ),
        Misconception(
            "pair by pair",
            lambda: [("padding", (5, 5)), ("causal", (3, 3)), ("padding", (3, 5))],
            "All six are right. Return them as two lists: the three masks, then the three shapes.",
            MASKS,
        ),
    ),
    prediction=True,
)


# --- 10.2 ---------------------------------------------------------------------------------------------------


def shift_targets(target: Tensor) -> tuple[Tensor, Tensor]:
    """What the decoder reads, and what it should answer.

    target is (B, T + 1), whole numbers: <bos> (1), the words, <eos> (2), and padding (0) behind shorter sentences.
    Return target_in and target_out, (B, T) each: at every place target_out holds the token that follows the one
    in target_in. (A shorter sentence keeps its <eos> in target_in, where it does no harm.)
    """
    return target[:, :-1], target[:, 1:]


def _sentences(draw: Draw, *lengths: int) -> Tensor:
    """Sentences of so many words, no two words of a row alike."""
    rows = torch.zeros(len(lengths), max(lengths) + 2, dtype=torch.long)
    for row, length in zip(rows, lengths, strict=True):
        words = torch.from_numpy(draw.rng.permutation(40)[:length] + 4)
        row[: length + 2] = torch.cat([torch.tensor([1]), words, torch.tensor([2])])
    return rows


def _shift_cases(draw: Draw) -> list[Case]:
    same, short = "sentences of one length", "a shorter sentence"
    return [
        Case(same, (_sentences(draw, 2),), "one sentence of two words"),
        Case(same, (_sentences(draw, 3, 3),)),
        Case(short, (_sentences(draw, 4, 2, 3),)),
        Case(short, (_sentences(draw, 1, 5, 3, 2),)),
    ]


def _eos_taken_out(target: Tensor) -> Any:
    inputs = target[:, :-1]
    return inputs.masked_fill(inputs == 2, 0), target[:, 1:]


def _gathered(target: Tensor) -> Any:
    places = torch.arange(target.shape[1] - 1)
    return target.index_select(1, places), target.index_select(1, places + 1)


SHIFT_TARGETS = Exercise(
    id="10.2",
    title="Shift the targets",
    answer="course_lib.exercises.u10.shift_targets",
    minutes=5,
    outcomes=("10-b",),
    checks=(Check("sentences of one length"), Check("a shorter sentence")),
    cases=_shift_cases,
    hints=(
        "Write down one target, <bos> fünf und vierzig <eos>. After <bos>, what should the decoder say? After fünf?",
        "Both are the same row, one token apart. The first starts at <bos>; the second ends with the last column.",
        "Slices along the second axis: all columns but the last, and all columns but the first.",
    ),
    misconceptions=(
        Misconception(
            "not shifted",
            lambda target: (target[:, :-1], target[:, :-1]),
            "Both are the same: the decoder reads the word that it should predict. It would learn to copy, and have "
            "nothing to copy when it translates.",
            SHIFT,
        ),
        Misconception(
            "nothing cut",
            lambda target: (target, target),
            "You returned the target twice: the decoder reads the very word that it should predict, <bos> is asked "
            "for, and something is read after <eos>.",
            SHIFT,
        ),
        Misconception(
            "the other way round",
            lambda target: (target[:, 1:], target[:, :-1]),
            "The wrong way round: the decoder would read the next word and be asked for the one before it.",
            SHIFT,
        ),
        Misconception(
            "shifted twice",
            lambda target: (target[:, :-2], target[:, 2:]),
            "You shifted by two: after <bos> the second word is asked for, and nobody ever learns to say the first.",
            SHIFT,
        ),
        Misconception(
            "input not cut",
            lambda target: (target, target[:, 1:]),
            "target_in has one column more than target_out: after the last token there is nothing to predict, so leave "
            "the last column out.",
            SHIFT,
        ),
        Misconception(
            "output not cut",
            lambda target: (target[:, :-1], target),
            "target_out still begins with <bos>: nobody has to predict that, it is given.",
            SHIFT,
        ),
        Misconception(
            "rolled",
            lambda target: (target, target.roll(-1, dims=1)),
            "roll brings <bos> back at the end, where it would be asked for. Cut a column off on either side instead.",
            SHIFT,
        ),
        Misconception(
            "first and last column cut in both",
            lambda target: (target[:, 1:-1], target[:, 1:-1]),
            "You took <bos> and the last column from both. The decoder needs <bos> to begin, and <eos> is a word that it "
            "must learn to say.",
            SHIFT,
        ),
        Misconception(
            "no <bos>",
            lambda target: (target[:, 1:-1], target[:, 2:]),
            "target_in does not start with <bos>: the first word is given away, and never learned.",
            SHIFT,
        ),
        Misconception(
            "along the batch",
            lambda target: (target[:-1], target[1:]),
            "You shifted along the first axis: that is the next sentence. Words are on the second axis.",
            SHIFT,
        ),
        Misconception(
            "<eos> taken out",
            _eos_taken_out,
            "You replaced <eos> in what the decoder reads. That does no harm in training, but it is not asked for here: "
            "target_in is the target without its last column, as it stands.",
            SHIFT,
        ),
        Misconception(
            "a second <bos>",
            lambda target: (F.pad(target[:, :-1], (1, 0), value=1), target),
            "You put a <bos> in front of a target that has one: <bos> is read twice, and asked for once. Cut instead "
            "of adding.",
            SHIFT,
        ),
        Misconception(
            "rolled, the end cleared",
            lambda target: (target, F.pad(target[:, 1:], (0, 1))),
            "There is one column too many: after the last token nothing is left to predict. Cut the last column of "
            "target_in, and the first of target_out.",
            SHIFT,
        ),
        Misconception(
            "padding marked otherwise",
            lambda target: (target[:, :-1], target[:, 1:].masked_fill(target[:, 1:] == 0, -100)),
            "The shift is right. Leave the padding as it is, though: which number stands for it is told to the loss.",
            SHIFT,
        ),
    ),
    alternatives=(
        _gathered,
        lambda target: [target[..., :-1], target[..., 1:]],
        lambda target: (target.narrow(1, 0, target.size(1) - 1), target.narrow(1, 1, target.size(1) - 1)),
        lambda target: (torch.stack([row[:-1] for row in target]), torch.stack([row[1:] for row in target])),
    ),
)


# --- 10.3 ---------------------------------------------------------------------------------------------------


def token_loss(logits: Tensor, targets: Tensor, pad: int) -> Tensor:
    """The mean of −log p(target) over all real tokens of the batch: one number.

    logits is (B, T, C), before any softmax. targets is (B, T), whole numbers below C; where it equals pad there is
    no word, and that place counts neither in the sum nor in the number by which you divide.
    """
    log_p = torch.log_softmax(logits, dim=-1)
    of_target = log_p.gather(-1, targets[..., None])[..., 0]
    real = targets != pad
    return -of_target[real].sum() / real.sum()


def _loss_cases(draw: Draw) -> list[Case]:
    def case(
        check: str, lengths: tuple[int, ...], t: int, c: int, pad: int = 0, note: str = "", size: float = 1.0
    ) -> Case:
        targets = torch.from_numpy(draw.rng.integers(0, c - 1, (len(lengths), t)))
        targets = targets + (targets >= pad)  # any word but padding
        real = torch.arange(t) < torch.tensor(lengths)[:, None]
        logits = draw.tensor(len(lengths), t, c, size=size)
        return Case(check, (logits, torch.where(real, targets, pad), pad), note, gradient=True)

    full, padded, large = "no padding", "padding does not count", "large logits"
    return [
        case(full, (2,), 2, 3, note="one sentence of two words"),
        case(full, (4, 4, 4), 4, 5),
        case(padded, (1, 3), 3, 4),
        case(padded, (5, 2, 1), 5, 4, pad=3, note="padding is token 3 here"),
        case(large, (3, 3), 3, 5, note="logits in the thousands", size=2000),
    ]


def _picked(values: Tensor, targets: Tensor) -> Tensor:
    return values.gather(-1, targets[..., None])[..., 0]


def _nll(logits: Tensor, targets: Tensor) -> Tensor:
    return -_picked(torch.log_softmax(logits, dim=-1), targets)


def _real_mean(values: Tensor, targets: Tensor, pad: int) -> Tensor:
    return values[targets != pad].mean()


def _of_sentences(logits: Tensor, targets: Tensor, pad: int) -> Tensor:
    real = targets != pad
    return ((_nll(logits, targets) * real).sum(dim=1) / real.sum(dim=1)).mean()


def _naive(logits: Tensor, targets: Tensor, pad: int) -> Tensor:
    p = logits.exp() / logits.exp().sum(dim=-1, keepdim=True)
    return _real_mean(-_picked(p, targets).log(), targets, pad)


def _shifted_inside(logits: Tensor, targets: Tensor, pad: int) -> Tensor:
    return _real_mean(_nll(logits[:, :-1], targets[:, 1:]), targets[:, 1:], pad)


def _pad_from_the_vocabulary(logits: Tensor, targets: Tensor, pad: int) -> Tensor:
    words = logits.masked_fill(torch.arange(logits.shape[-1]) == pad, -math.inf)
    return _real_mean(_nll(words, targets), targets, pad)


def _written_into(logits: Tensor, targets: Tensor, pad: int) -> Tensor:
    logits[targets == pad] = 0
    return _real_mean(_nll(logits, targets), targets, pad)


def _einsum(logits: Tensor, targets: Tensor, pad: int) -> Tensor:
    chosen, real = F.one_hot(targets, logits.shape[-1]).to(logits), (targets != pad).to(logits)
    log_p = logits - logits.logsumexp(dim=-1, keepdim=True)
    return -torch.einsum("btc,btc,bt->", log_p, chosen, real) / real.sum()


def _one_by_one(logits: Tensor, targets: Tensor, pad: int) -> Any:
    losses: list[Tensor] = []
    for row, words in zip(logits, targets.tolist(), strict=True):
        losses += [row[t].logsumexp(0) - row[t, word] for t, word in enumerate(words) if word != pad]
    return torch.stack(losses).mean()


TOKEN_LOSS = Exercise(
    id="10.3",
    title="A loss without padding",
    answer="course_lib.exercises.u10.token_loss",
    minutes=10,
    outcomes=("10-b",),
    checks=(Check("no padding"), Check("padding does not count", 2), Check("large logits")),
    cases=_loss_cases,
    hints=(
        "Three steps: log-probabilities of all words, the one of the target at each place, the mean over real places.",
        "torch.log_softmax is safe where log(softmax) is not. log_p.gather(-1, targets[..., None]) picks the target's.",
        "With real = targets != pad: sum what is picked where real is True, and divide by real.sum(). "
        "(F.cross_entropy with ignore_index does all of it, on logits of shape (B·T, C).)",
    ),
    misconceptions=(
        Misconception(
            "padding counted",
            lambda logits, targets, pad: _nll(logits, targets).mean(),
            "Padding counts like a word: the model is paid for predicting it, and a batch with more padding has "
            "another loss.",
            LOSS,
        ),
        Misconception(
            "divided by all places",
            lambda logits, targets, pad: (_nll(logits, targets) * (targets != pad)).mean(),
            "Padding is left out of the sum, but not of the number you divide by: the loss shrinks with every padded "
            "place.",
            LOSS,
        ),
        Misconception(
            "only padding counted",
            lambda logits, targets, pad: _nll(logits, targets)[targets == pad].mean(),
            "Upside down: you average over the padding. Real is where targets != pad.",
            LOSS,
        ),
        Misconception(
            "softmax first",
            lambda logits, targets, pad: _real_mean(_nll(logits.softmax(dim=-1), targets), targets, pad),
            "There are two softmaxes: cross_entropy (and log_softmax) has its own. Give it the logits: after a softmax "
            "all of them lie between 0 and 1, and the loss cannot come near 0.",
            LOSS,
        ),
        Misconception(
            "not divided",
            lambda logits, targets, pad: _nll(logits, targets)[targets != pad].sum(),
            "This is the sum. Divide by the number of real tokens, or the loss depends on the size of the batch.",
            LOSS,
        ),
        Misconception(
            "divided by the sentences",
            lambda logits, targets, pad: _nll(logits, targets)[targets != pad].sum() / len(targets),
            "You divided by the number of sentences. The mean is taken over tokens.",
            LOSS,
        ),
        Misconception(
            "mean of the sentences' means",
            _of_sentences,
            "You averaged each sentence and then the sentences: words of short sentences count more. One sum, one "
            "count.",
            LOSS,
        ),
        Misconception(
            "the sign",
            lambda logits, targets, pad: -_real_mean(_nll(logits, targets), targets, pad),
            "The sign is turned round: training would make the right words improbable. The loss is minus log p.",
            LOSS,
        ),
        Misconception(
            "no logarithm",
            lambda logits, targets, pad: 1 - _real_mean(_picked(logits.softmax(dim=-1), targets), targets, pad),
            "This is 1 − p. The loss is −log p: it does not forgive a word that was given no chance.",
            LOSS,
        ),
        Misconception(
            "no softmax at all",
            lambda logits, targets, pad: -_real_mean(_picked(logits, targets), targets, pad),
            "You took the target's logit for its log-probability. log_softmax makes one of it: the others must count "
            "too.",
            LOSS,
        ),
        Misconception(
            "softmax over the places",
            lambda logits, targets, pad: -_real_mean(_picked(torch.log_softmax(logits, dim=1), targets), targets, pad),
            "Softmax ran over the places of the sentence. The choice is among the words of the vocabulary, the last "
            "axis.",
            LOSS,
        ),
        Misconception(
            "padding is always 0",
            lambda logits, targets, pad: _real_mean(_nll(logits, targets), targets, 0),
            "You left token 0 out. Padding is the token that is passed as pad, whatever its number.",
            LOSS,
        ),
        Misconception(
            "shifted once more",
            _shifted_inside,
            "You shifted again. These targets are shifted already: place t of targets belongs to place t of logits.",
            SHIFT,
        ),
        Misconception(
            "padding out of the vocabulary",
            _pad_from_the_vocabulary,
            "You gave the word <pad> no probability. It stays a word like others in the softmax; what is left out are the "
            "places whose target is padding.",
            LOSS,
        ),
        Misconception(
            "exp overflows",
            _naive,
            "exp of a large logit is infinity, and the loss NaN. log_softmax takes the maximum out first.",
            LOSS,
        ),
        Misconception(
            "one number for each place",
            lambda logits, targets, pad: _nll(logits, targets) * (targets != pad),
            "These are the losses of all places, (B, T). Training needs one number: their mean over the real ones.",
            LOSS,
        ),
        Misconception(
            "cut off from its inputs",
            lambda logits, targets, pad: _real_mean(_nll(logits, targets), targets, pad).detach(),
            CUT,
            LOSS,
        ),
        Misconception(
            "log of softmax",
            lambda logits, targets, pad: -_real_mean(_picked(logits.softmax(dim=-1), targets).log(), targets, pad),
            "For a large logit softmax gives exactly 0, and log 0 is −∞. log_softmax does both in one, without this "
            "accident.",
            LOSS,
        ),
        Misconception(
            "log of the whole softmax",
            lambda logits, targets, pad: -_real_mean(_picked(logits.softmax(dim=-1).log(), targets), targets, pad),
            "softmax gives exactly 0 where a logit is far below the largest, and log 0 is −∞. log_softmax does both in one, "
            "without this accident.",
            LOSS,
        ),
        Misconception(
            "a small number under the logarithm",
            lambda logits, targets, pad: (
                -_real_mean((_picked(logits.softmax(dim=-1), targets) + 1e-9).log(), targets, pad)
            ),
            "A small number under the logarithm hides the trouble: the loss cannot grow beyond some 20, and the "
            "gradient dies there. log_softmax needs no such help.",
            LOSS,
        ),
        Misconception(
            "smoothed",
            lambda logits, targets, pad: F.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=pad, label_smoothing=0.1
            ),
            "The labels are smoothed. That is a good recipe for training, but asked for is the plain −log p of the "
            "target.",
            LOSS,
        ),
        Misconception(
            "perplexity",
            lambda logits, targets, pad: _real_mean(_nll(logits, targets), targets, pad).exp(),
            "This is the perplexity, e to the power of the loss. Leave out the exp.",
            LOSS,
        ),
        Misconception(
            "view where a transpose is meant",
            lambda logits, targets, pad: F.cross_entropy(
                logits.reshape(len(logits), logits.shape[2], -1), targets, ignore_index=pad
            ),
            "view and reshape keep the order of the numbers and cut them anew: words and places are mixed up. To "
            "swap two axes, transpose.",
            LOSS,
        ),
        Misconception(
            "vocabulary on the last axis",
            lambda logits, targets, pad: F.cross_entropy(logits, targets, ignore_index=pad),
            "F.cross_entropy looks for the vocabulary on the second axis: flatten logits to (B·T, C) and targets to "
            "(B·T), or swap the last two axes.",
            LOSS,
        ),
        Misconception(
            "written into the logits",
            _written_into,
            "You write into logits, which belong to the caller (and to the gradient). Pick the real places, or work "
            "on a clone.",
            LOSS,
        ),
    ),
    alternatives=(
        _one_by_one,
        _einsum,
        lambda logits, targets, pad: F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=pad),
        lambda logits, targets, pad: F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=pad),
        lambda logits, targets, pad: F.nll_loss(
            logits.log_softmax(-1)[targets != pad], targets[targets != pad], reduction="mean"
        ),
        lambda logits, targets, pad: (_nll(logits, targets) * (targets != pad)).sum() / (targets != pad).sum(),
    ),
)


# --- 10.4 ---------------------------------------------------------------------------------------------------


class DecoderLayer(nn.Module):
    """One block of the decoder, pre-norm: look back, look over to the source, think; each with a way around it.

    Its parts: self_attention and cross_attention (MultiHeadAttention), feed_forward (FeedForward), and norm_1, norm_2,
    norm_3 (LayerNorm).
    """

    def __init__(self, d_model: int, heads: int, d_ff: int):
        """Make the six parts: MultiHeadAttention(d_model, heads), FeedForward(d_model, d_ff), LayerNorm(d_model)."""
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, heads)
        self.cross_attention = MultiHeadAttention(d_model, heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm_1, self.norm_2, self.norm_3 = (LayerNorm(d_model) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """x (B, T, D) is the target so far, memory (B, S, D) the encoder's output, which is normed already.

        memory_mask (B, 1, S) is True on the real words of the source. MultiHeadAttention is called as
        attention(x, memory=None, mask=None, causal=False): without memory it is self-attention.
        Return (B, T, D).
        """
        x = x + self.self_attention(self.norm_1(x), causal=True)
        x = x + self.cross_attention(self.norm_2(x), memory, memory_mask)
        return x + self.feed_forward(self.norm_3(x))


def _layer_cases(draw: Draw) -> list[Case]:
    def weights(d: int, heads: int, d_ff: int) -> dict[str, Tensor]:
        shapes = {name: tuple(p.shape) for name, p in DecoderLayer(d, heads, d_ff).named_parameters()}
        return {name: draw.tensor(*shape, size=0.6) + 0.3 * (len(shape) == 1) for name, shape in sorted(shapes.items())}

    def case(check: str, lengths: tuple[int, ...], t: int, s: int, sizes: tuple[int, int, int], note: str = "") -> Case:
        mask = (torch.arange(s) < torch.tensor(lengths)[:, None])[:, None]
        tensors = draw.tensor(len(lengths), t, sizes[0]), draw.tensor(len(lengths), s, sizes[0])
        return Case(check, (*tensors, mask), note, build=sizes, weights=weights(*sizes), gradient=True)

    one, many, padded = "one word reads a sentence", "several words", "padding of the source"
    return [
        case(one, (3,), 1, 3, (4, 2, 6), "one target word, no padding"),
        case(many, (3, 3), 3, 3, (6, 3, 5), "as many target words as source words"),
        case(many, (5, 5), 3, 5, (4, 2, 7)),
        case(padded, (2, 4, 3), 5, 4, (6, 2, 9)),
    ]


def _layer(forward: Any, init: Any = None) -> type[DecoderLayer]:
    return type("DecoderLayer", (DecoderLayer,), {"forward": forward} | ({"__init__": init} if init else {}))


def _post_norm(self: DecoderLayer, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    x = self.norm_1(x + self.self_attention(x, causal=True))
    x = self.norm_2(x + self.cross_attention(x, memory, mask))
    return self.norm_3(x + self.feed_forward(x))


def _crossed_first(self: DecoderLayer, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    x = x + self.cross_attention(self.norm_1(x), memory, mask)
    x = x + self.self_attention(self.norm_2(x), causal=True)
    return x + self.feed_forward(self.norm_3(x))


def _block(cross: Any, look_back: Any = None, think: Any = None) -> type[DecoderLayer]:
    """The layer with one sublayer replaced: each gets (self, x, memory, mask) and returns the new x."""

    def forward(self: DecoderLayer, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        x = look_back(self, x) if look_back else x + self.self_attention(self.norm_1(x), causal=True)
        x = cross(self, x, memory, mask) if cross else x + self.cross_attention(self.norm_2(x), memory, mask)
        return think(self, x) if think else x + self.feed_forward(self.norm_3(x))

    return _layer(forward)


def _memory_asks(self: DecoderLayer, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    return x + self.cross_attention(memory, self.norm_2(x))


def _all_at_once(self: DecoderLayer, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    back = self.self_attention(self.norm_1(x), causal=True)
    over = self.cross_attention(self.norm_2(x), memory, mask)
    return x + back + over + self.feed_forward(self.norm_3(x))


def _bare(self: DecoderLayer, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    x = x + self.self_attention(x, causal=True)
    x = x + self.cross_attention(x, memory, mask)
    return x + self.feed_forward(x)


def _around_everything(self: DecoderLayer, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    y = self.self_attention(self.norm_1(x), causal=True)
    y = self.cross_attention(self.norm_2(y), memory, mask)
    return x + self.feed_forward(self.norm_3(y))


def _in_place(self: DecoderLayer, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    x += self.self_attention(self.norm_1(x), causal=True)
    x += self.cross_attention(self.norm_2(x), memory, mask)
    x += self.feed_forward(self.norm_3(x))
    return x


def _in_a_loop(self: DecoderLayer, x: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
    sublayers = (
        (self.norm_1, lambda y: self.self_attention(y, causal=True)),
        (self.norm_2, lambda y: self.cross_attention(y, memory, memory_mask)),
        (self.norm_3, self.feed_forward),
    )
    for norm, sublayer in sublayers:
        x = x + sublayer(norm(x))
    return x


def _written_out(self: DecoderLayer, x: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
    t = x.shape[1]
    earlier = torch.tril(torch.ones(t, t, dtype=torch.bool))
    normed = self.norm_1(x)
    x = x + self.self_attention(normed, normed, mask=earlier)
    y = self.cross_attention(self.norm_2(x), memory=memory, mask=memory_mask.expand(-1, t, -1))
    x = x + y
    y = self.feed_forward(self.norm_3(x))
    return y + x


def _stepwise(self: DecoderLayer, x: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
    q, kv = self.self_attention.project(self.norm_1(x))
    x = x + self.self_attention.attend(q, kv, causal=True)
    q, kv = self.cross_attention.project(self.norm_2(x), memory)
    x = x + self.cross_attention.attend(q, kv, memory_mask)
    return x + self.feed_forward(self.norm_3(x))


def _one_norm(self: DecoderLayer, d_model: int, heads: int, d_ff: int) -> None:
    nn.Module.__init__(self)
    self.self_attention = MultiHeadAttention(d_model, heads)
    self.cross_attention = MultiHeadAttention(d_model, heads)
    self.feed_forward = FeedForward(d_model, d_ff)
    self.norm_1 = self.norm_2 = self.norm_3 = LayerNorm(d_model)


def _one_attention(self: DecoderLayer, d_model: int, heads: int, d_ff: int) -> None:
    nn.Module.__init__(self)
    self.self_attention = self.cross_attention = MultiHeadAttention(d_model, heads)
    self.feed_forward = FeedForward(d_model, d_ff)
    self.norm_1, self.norm_2, self.norm_3 = (LayerNorm(d_model) for _ in range(3))


DECODER_LAYER = Exercise(
    id="10.4",
    title="The decoder's block",
    answer="course_lib.exercises.u10.DecoderLayer",
    minutes=15,
    outcomes=("10-a",),
    checks=(Check("one word reads a sentence"), Check("several words", 2), Check("padding of the source")),
    cases=_layer_cases,
    hints=(
        "Start from the encoder block of unit 09: x + f(norm(x)), twice. The decoder has a third line in the middle.",
        "Self-attention is causal. In cross-attention the queries come from x, normed, and keys and values from memory; "
        "its mask is memory_mask.",
        "x = x + self.self_attention(self.norm_1(x), causal=True), then the same pattern with cross_attention(…, memory, "
        "memory_mask) and norm_2, then feed_forward and norm_3.",
    ),
    misconceptions=(
        Misconception(
            "sees the future",
            _block(None, look_back=lambda self, x: x + self.self_attention(self.norm_1(x))),
            "The self-attention is not causal: in training each word could read the word that it should predict.",
            MASKS,
        ),
        Misconception(
            "causal cross-attention",
            _block(
                lambda self, x, memory, mask: (
                    x
                    + self.cross_attention(
                        self.norm_2(x), memory, mask & torch.ones(x.shape[1], memory.shape[1]).tril().bool()
                    )
                )
            ),
            "The cross-attention is causal, too: the first target word reads the first source word only. The source is "
            "known from the start; hide its padding, nothing else.",
            MASKS,
        ),
        Misconception(
            "padding is read",
            _block(lambda self, x, memory, mask: x + self.cross_attention(self.norm_2(x), memory)),
            "memory_mask is not used: the padding of the source is read like words.",
            MASKS,
        ),
        Misconception(
            "mask the wrong way round",
            _block(lambda self, x, memory, mask: x + self.cross_attention(self.norm_2(x), memory, ~mask)),
            "memory_mask is the wrong way round: True means that a word may be read.",
            MASKS,
        ),
        Misconception(
            "reads itself again",
            _block(lambda self, x, memory, mask: x + self.cross_attention(self.norm_2(x), causal=True)),
            "The cross-attention does not use memory: the decoder reads itself twice, and never the source.",
            READS,
        ),
        Misconception(
            "the memory asks",
            _block(_memory_asks),
            "Queries and keys are swapped: in cross-attention the decoder asks (first argument) and the encoder's output "
            "is read (memory).",
            READS,
        ),
        Misconception(
            "post-norm",
            _layer(_post_norm),
            "This is post-norm, norm(x + f(x)), as in 2017. Asked for is pre-norm, x + f(norm(x)).",
            READS,
        ),
        Misconception(
            "source first",
            _layer(_crossed_first),
            "The order is self-attention, cross-attention, feed-forward: first what has been written, then the source.",
            READS,
        ),
        Misconception(
            "side by side",
            _layer(_all_at_once),
            "All three sublayers read the same x. Each should read what the one before it has made of x.",
            READS,
        ),
        Misconception(
            "no way around the cross-attention",
            _block(lambda self, x, memory, mask: self.cross_attention(self.norm_2(x), memory, mask)),
            "There is no way around the cross-attention: what has been written so far is lost there. x + …",
            READS,
        ),
        Misconception(
            "no way around the self-attention",
            _block(None, look_back=lambda self, x: self.self_attention(self.norm_1(x), causal=True)),
            "There is no way around the self-attention: the word itself is lost in the average. x + …",
            READS,
        ),
        Misconception(
            "no way around the feed-forward network",
            _block(None, think=lambda self, x: self.feed_forward(self.norm_3(x))),
            "There is no way around the feed-forward network. x + …",
            READS,
        ),
        Misconception(
            "way around from the normed x",
            _block(lambda self, x, memory, mask: (y := self.norm_2(x)) + self.cross_attention(y, memory, mask)),
            "The way around the cross-attention starts after the norm. It should carry x itself, untouched.",
            READS,
        ),
        Misconception(
            "no norm before the cross-attention",
            _block(lambda self, x, memory, mask: x + self.cross_attention(x, memory, mask)),
            "The cross-attention's queries come from x without its norm: norm_2 is not used.",
            READS,
        ),
        Misconception(
            "the memory normed again",
            _block(lambda self, x, memory, mask: x + self.cross_attention(self.norm_2(x), self.norm_2(memory), mask)),
            "You normed the memory, too. It comes normed from the encoder; norm_2 belongs to x.",
            READS,
        ),
        Misconception(
            "no feed-forward network",
            _block(None, think=lambda self, x: x),
            "The feed-forward network is missing: attention alone only averages (unit 09).",
            READS,
        ),
        Misconception(
            "one norm for all",
            _layer(DecoderLayer.forward, _one_norm),
            "There is one norm, used three times. Each sublayer has a norm of its own, with gain and bias.",
            READS,
        ),
        Misconception(
            "one attention for both",
            _layer(DecoderLayer.forward, _one_attention),
            "There is one attention, used twice. Looking back and looking over to the source need matrices of their "
            "own.",
            READS,
        ),
        Misconception(
            "cut off from the source",
            _block(lambda self, x, memory, mask: x + self.cross_attention(self.norm_2(x), memory.detach(), mask)),
            "The numbers are right, but no gradient reaches the memory: the encoder would never learn anything.",
            READS,
        ),
        Misconception(
            "no norm before the self-attention",
            _block(None, look_back=lambda self, x: x + self.self_attention(x, causal=True)),
            "The self-attention reads x without its norm: norm_1 is not used.",
            READS,
        ),
        Misconception(
            "no norm before the feed-forward network",
            _block(None, think=lambda self, x: x + self.feed_forward(x)),
            "The feed-forward network reads x without its norm: norm_3 is not used.",
            READS,
        ),
        Misconception(
            "no norm at all",
            _layer(_bare),
            "No norm is used at all. Each sublayer reads norm(x), with a norm of its own.",
            READS,
        ),
        Misconception(
            "one norm used twice",
            _block(None, think=lambda self, x: x + self.feed_forward(self.norm_2(x))),
            "norm_2 is used twice and norm_3 never: the feed-forward network has a norm of its own.",
            READS,
        ),
        Misconception(
            "one way around everything",
            _layer(_around_everything),
            "There is one way around the whole block. Each of the three sublayers has its own: x + … three times.",
            READS,
        ),
        Misconception(
            "the first way around from the normed x",
            _block(None, look_back=lambda self, x: (y := self.norm_1(x)) + self.self_attention(y, causal=True)),
            "The way around the self-attention starts after the norm. It should carry x itself, untouched.",
            READS,
        ),
        Misconception(
            "causal=True in the cross-attention",
            _block(lambda self, x, memory, mask: x + self.cross_attention(self.norm_2(x), memory, mask, causal=True)),
            "The cross-attention is causal, too. No part of the source is the future: hide its padding, nothing else.",
            MASKS,
        ),
        Misconception(
            "padding set to zero",
            _block(lambda self, x, memory, mask: x + self.cross_attention(self.norm_2(x), memory * mask.mT)),
            "You set padded words to 0 and still read them: a key of zeros gets a weight like any other. Pass "
            "memory_mask to the attention.",
            MASKS,
        ),
        Misconception(
            "no self-attention",
            _block(None, look_back=lambda self, x: x),
            "The self-attention is missing: a word would not know what has been written before it.",
            READS,
        ),
        Misconception(
            "x changed in place",
            _layer(_in_place),
            "x += … changes the tensor that was passed in, which the caller still needs. Write x = x + …",
            READS,
        ),
    ),
    alternatives=(_layer(_written_out), _layer(_stepwise), _layer(_in_a_loop)),
    forbidden=("DecoderBlock", "TransformerDecoderLayer", "MultiheadAttention"),
)


# --- 10.5 ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scripted:
    """A model that knows by heart what to say: `model(source, target_in)` gives logits (B, T, C).

    Whoever feeds it anything but <bos> and its own words, in order, gets other words.
    """

    scripts: tuple[tuple[int, ...], ...]
    words: int
    bos: int

    def __call__(self, source: Tensor, target_in: Tensor) -> Tensor:
        batch, length = target_in.shape
        logits = torch.sin(torch.arange(batch * length * self.words) * 1.7).reshape(batch, length, self.words).double()
        for b, heard in enumerate(target_in.tolist()):
            script = [self.bos, *self.scripts[int(source[b, 0])]]
            for t in range(length):
                follows = heard[: t + 1] == script[: t + 1] and t + 1 < len(script)
                logits[b, t, script[t + 1] if follows else 3 + (t + sum(heard)) % (self.words - 3)] += (
                    2.5  # sure enough for argmax, not for a draw
                )
        return logits


def greedy_tokens(model: Any, source: Tensor, bos: int, eos: int, pad: int, max_length: int) -> Tensor:
    """Translate by taking the most probable token at each step, for all sentences of a batch at once.

    model(source, target_in) gives logits (B, T, C) for the token after each token of target_in (B, T), which
    starts with bos. A sentence ends with its first eos; behind it stands pad. Stop as soon as every sentence
    has ended, and after max_length tokens at the latest.
    Return the tokens (B, L), without bos and with eos.
    """
    tokens = torch.full((len(source), 1), bos)
    ended = torch.zeros(len(source), dtype=torch.bool)
    for _ in range(max_length):
        newest = model(source, tokens)[:, -1].argmax(dim=-1)
        newest = newest.masked_fill(ended, pad)
        tokens = torch.cat([tokens, newest[:, None]], dim=1)
        ended = ended | (newest == eos)
        if ended.all():
            break
    return tokens[:, 1:]


def _greedy_cases(draw: Draw) -> list[Case]:
    def case(
        check: str, lengths: tuple[int, ...], longest: int, marks: tuple[int, int, int] = (1, 2, 0), note: str = ""
    ) -> Case:
        bos, eos, pad = marks
        scripts = []
        for length in lengths:
            said = [int(w) for w in draw.rng.integers(5, 11, length)]
            after = [int(w) for w in draw.rng.integers(5, 11, 12 - length)]
            scripts.append((*said, eos, *after))  # it would babble on behind <eos>
        source = torch.arange(len(lengths))[:, None].expand(-1, 13).contiguous()
        return Case(check, (Scripted(tuple(scripts), 11, bos), source, bos, eos, pad, longest), note)

    one, many, limit = "one sentence", "sentences that end at different times", "the limit"
    return [
        case(one, (1,), 6, note="one word"),
        case(one, (3,), 8, (3, 4, 1), "other ids for bos, eos and pad"),
        case(many, (2, 4, 1), 8),
        case(many, (3, 1, 3, 5), 9, (4, 3, 2), "other ids for bos, eos and pad"),
        case(limit, (6, 2), 4, note="one sentence is longer than max_length"),
    ]


def _search(model: Any, source: Tensor, bos: int, eos: int, pad: int, max_length: int, **change: Any) -> Tensor:
    """greedy_tokens with one thing changed."""
    tokens = torch.full((len(source), 1), change.get("first", bos))
    ended = torch.zeros(len(source), dtype=torch.bool)
    for _ in range(max_length + change.get("more", 0)):
        logits = model(source, tokens[:, -1:] if change.get("newest_alone") else tokens)
        newest = logits[:, change.get("place", -1)].argmax(dim=-1)
        newest = newest if change.get("babble") else newest.masked_fill(ended, change.get("behind", pad))
        if change.get("no_eos"):
            ended = ended | (newest == eos)
            newest = newest.masked_fill(newest == eos, pad)
        ended = ended | (newest == eos)
        if change.get("leave_first") and ended.all():
            break
        tokens = torch.cat([tokens, newest[:, None]], dim=1)
        if change.get("stop", torch.all)(ended):
            break
    return tokens if change.get("keep_bos") else tokens[:, 1:]


def _changed(**change: Any) -> Any:
    return lambda model, source, bos, eos, pad, max_length: _search(model, source, bos, eos, pad, max_length, **change)


def _by_argument(name: str, which: int) -> Any:
    return lambda *args: _search(*args, **{name: args[which]})


def _last_sentence(model: Any, source: Tensor, bos: int, eos: int, pad: int, max_length: int) -> Tensor:
    tokens = torch.full((len(source), 1), bos)
    for _ in range(max_length):
        tokens = torch.cat([tokens, model(source, tokens)[-1].argmax(dim=-1)[:, None]], dim=1)
    return tokens[:, 1:]


def _ragged(model: Any, source: Tensor, bos: int, eos: int, pad: int, max_length: int) -> Any:
    rows = _search(model, source, bos, eos, pad, max_length).tolist()
    return [row[: row.index(eos) + 1] if eos in row else row for row in rows]


def _at_once(model: Any, source: Tensor, bos: int, eos: int, pad: int, max_length: int) -> Tensor:
    tokens = torch.full((len(source), max_length), bos)
    return model(source, tokens).argmax(dim=-1)


def _filled_in(model: Any, source: Tensor, bos: int, eos: int, pad: int, max_length: int) -> Tensor:
    tokens, done, t = torch.full((len(source), max_length + 1), pad), [False] * len(source), 0
    tokens[:, 0] = bos
    while t < max_length and not all(done):
        best = model(source, tokens[:, : t + 1])[:, t, :].max(dim=-1).indices
        t += 1
        for b in range(len(source)):
            if not done[b]:
                tokens[b, t] = best[b]
                done[b] = bool(best[b] == eos)
    return tokens[:, 1 : t + 1]


def _as_lists(model: Any, source: Tensor, bos: int, eos: int, pad: int, max_length: int) -> Tensor:
    rows = []
    for b in range(len(source)):
        row = [bos]
        while len(row) <= max_length and eos not in row[1:]:
            row.append(int(model(source[b : b + 1], torch.tensor([row]))[0, -1].argmax()))
        rows.append(row[1:])
    longest = max(map(len, rows))
    return torch.tensor([row + [pad] * (longest - len(row)) for row in rows])


def _cut_afterwards(model: Any, source: Tensor, bos: int, eos: int, pad: int, max_length: int) -> Tensor:
    tokens = source.new_full((source.shape[0], 1), bos)
    while tokens.shape[1] <= max_length and not (tokens == eos).any(dim=1).all():
        p = torch.softmax(model(source, tokens), dim=-1)
        tokens = torch.hstack([tokens, p[:, -1, :].topk(1).indices])
    tokens = tokens[:, 1:]
    behind = (tokens == eos).cumsum(dim=1) > (tokens == eos).int()
    return tokens.where(~behind, torch.tensor(pad))


GREEDY_TOKENS = Exercise(
    id="10.5",
    title="Greedy decoding",
    answer="course_lib.exercises.u10.greedy_tokens",
    minutes=15,
    outcomes=("10-c",),
    checks=(Check("one sentence"), Check("sentences that end at different times", 2), Check("the limit")),
    cases=_greedy_cases,
    hints=(
        "Begin with a column of bos. In each round: ask the model, take the best token at the last place, append it.",
        "logits[:, -1].argmax(dim=-1) is the newest token of each sentence, (B,). Keep a row of booleans that says which "
        "sentences have ended, and put pad there.",
        "torch.cat([tokens, newest[:, None]], dim=1) appends; ended = ended | (newest == eos); leave the loop when "
        "ended.all(). Return tokens[:, 1:].",
    ),
    misconceptions=(
        Misconception(
            "the first place",
            _changed(place=0),
            "You read the logits at the first place: they say what follows bos, at every step the same. The newest token "
            "follows the last place, [:, -1].",
            GREEDY,
        ),
        Misconception(
            "stops with the first sentence",
            _changed(stop=lambda ended: ended[0]),
            "You stop when the first sentence of the batch has ended. The others are cut off.",
            GREEDY,
        ),
        Misconception(
            "stops with any sentence",
            _changed(stop=torch.any),
            "You stop as soon as one sentence has ended. Wait for all of them.",
            GREEDY,
        ),
        Misconception(
            "never stops early",
            _changed(stop=lambda ended: False),
            "You always go on to max_length: the tokens are right, with columns of nothing but padding behind them. Stop "
            "when all sentences have ended.",
            GREEDY,
        ),
        Misconception(
            "talks on",
            _changed(babble=True),
            "A sentence that has ended talks on until the others are ready. What comes after eos must be pad.",
            GREEDY,
        ),
        Misconception(
            "talks on without end",
            _changed(babble=True, stop=lambda ended: False),
            "Nothing ends: after eos the model talks on, up to max_length. Put pad behind eos, and stop when all "
            "have ended.",
            GREEDY,
        ),
        Misconception(
            "eos behind eos",
            _by_argument("behind", 3),
            "Behind the first eos stands eos again. It should be pad.",
            GREEDY,
        ),
        Misconception(
            "without eos",
            _changed(no_eos=True),
            "The eos is replaced by pad. It belongs to the sentence: keep it.",
            GREEDY,
        ),
        Misconception(
            "with bos",
            _changed(keep_bos=True),
            "The tokens are right, with bos in front. It was given, not said: leave it out.",
            GREEDY,
        ),
        Misconception(
            "only the newest token is read",
            _changed(newest_alone=True),
            "You give the model the newest token alone. Without a cache it must read all tokens so far, or it does not know "
            "what it has said.",
            GREEDY,
        ),
        Misconception(
            "begins with eos",
            _by_argument("first", 3),
            "You begin with eos. A translation begins with bos: that is what the model has learned to go on from.",
            GREEDY,
        ),
        Misconception(
            "begins with pad",
            _by_argument("first", 4),
            "You begin with pad (or zeros). A translation begins with bos.",
            GREEDY,
        ),
        Misconception(
            "one token too few",
            _changed(more=-1),
            "At the limit you stop one token early: bos does not count among the max_length tokens.",
            GREEDY,
        ),
        Misconception(
            "one token too many",
            _changed(more=1),
            "At the limit you go one token too far: max_length tokens at the most.",
            GREEDY,
        ),
        Misconception(
            "leaves before the last token",
            _changed(leave_first=True),
            "The last token is missing: you leave the loop before the newest tokens are appended. Append, then ask "
            "whether all have ended.",
            GREEDY,
        ),
        Misconception(
            "no limit",
            _changed(more=20),
            "max_length is not used: a model that never says eos would talk for ever.",
            GREEDY,
        ),
        Misconception(
            "ids by heart",
            lambda model, source, bos, eos, pad, max_length: _search(model, source, 1, 2, 0, max_length),
            "You use 1, 2 and 0 for bos, eos and pad. They are arguments: other vocabularies have other numbers.",
            GREEDY,
        ),
        Misconception(
            "the last sentence",
            _last_sentence,
            "logits[-1] is the last sentence of the batch. The last place of all sentences is logits[:, -1].",
            GREEDY,
        ),
        Misconception(
            "rows of different lengths",
            _ragged,
            "The tokens are right, in rows of different lengths. Fill the shorter ones with pad, so that they make "
            "one tensor (B, L).",
            GREEDY,
        ),
        Misconception(
            "everything from one call",
            _at_once,
            "You ask the model once. It can only say what follows the tokens that it is given: append each new token "
            "and ask again.",
            GREEDY,
        ),
    ),
    alternatives=(_as_lists, _cut_afterwards, _filled_in),
    forbidden=("greedy", "beam", "generate"),
)


# --- 10.6 ---------------------------------------------------------------------------------------------------


def beam_step(scores: Tensor, log_p: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """One step of beam search: of all sentences so far, each with one more word, keep the best `width`.

    scores is (W,): the log-probability of each of the W sentences so far. log_p is (W, C): how probable each of the
    C words is as its next one, as a logarithm. (No sentence has ended yet.)
    Return three tensors of length width, the best first: the new scores, which sentence each of them goes on
    from (0 … W−1), and its new word (0 … C−1).
    """
    total = scores[:, None] + log_p
    best = total.flatten().topk(width)
    return best.values, best.indices // log_p.shape[1], best.indices % log_p.shape[1]


def _beam_cases(draw: Draw) -> list[Case]:
    def case(check: str, w: int, c: int, width: int, note: str = "") -> Case:
        # The first sentence is far ahead, so that it takes several of the places.
        scores = -torch.arange(w).double() * 1.3 - 1 + draw.tensor(w, size=0.1)
        return Case(check, (scores, draw.tensor(w, c, size=1.5).log_softmax(dim=-1), width), note)

    return [
        case("the first step", 1, 4, 2, "one sentence, nothing said yet"),
        case("the first step", 1, 6, 4),
        case("later steps", 2, 3, 2),
        case("later steps", 3, 7, 3),
        case("later steps", 4, 5, 3, "keep fewer than there are"),
    ]


def _flat(total: Tensor, width: int, columns: int | None = None) -> Any:
    best = total.flatten().topk(width)
    columns = columns or total.shape[1]
    return best.values, best.indices // columns, best.indices % columns


def _own_best(scores: Tensor, log_p: Tensor, width: int) -> Any:
    best = log_p.max(dim=1)
    order = (scores + best.values).argsort(descending=True)[:width]
    return (scores + best.values)[order], order, best.indices[order]


def _sorted_pairs(scores: Tensor, log_p: Tensor, width: int) -> Any:
    pairs = [(float(scores[w] + p), w, c) for w in range(len(scores)) for c, p in enumerate(log_p[w])]
    kept = sorted(pairs, reverse=True)[:width]
    return tuple(map(list, zip(*kept, strict=True)))


def _two_rounds(scores: Tensor, log_p: Tensor, width: int) -> Any:
    few = (scores[:, None] + log_p).topk(min(width, log_p.shape[1]), dim=1)
    best = few.values.flatten().topk(width)
    return best.values, best.indices // few.values.shape[1], few.indices.flatten()[best.indices]


def _unmapped(scores: Tensor, log_p: Tensor, width: int) -> Any:
    few = (scores[:, None] + log_p).topk(min(width, log_p.shape[1]), dim=1).values
    return _flat(few, width)


def _columns(scores: Tensor, log_p: Tensor, width: int) -> Any:
    return _flat(scores + log_p.T, width, log_p.shape[1])


def _slashed(scores: Tensor, log_p: Tensor, width: int) -> Any:
    best = (scores[:, None] + log_p).flatten().topk(width)
    return best.values, best.indices / log_p.shape[1], best.indices % log_p.shape[1]


def _new_word_alone(scores: Tensor, log_p: Tensor, width: int) -> Any:
    values, parents, words = beam_step(scores, log_p, width)
    return values - scores[parents], parents, words


def _in_table_order(scores: Tensor, log_p: Tensor, width: int) -> Any:
    values, parents, words = beam_step(scores, log_p, width)
    order = (parents * log_p.shape[1] + words).argsort()
    return values[order], parents[order], words[order]


def _one_after_the_other(scores: Tensor, log_p: Tensor, width: int) -> Any:
    total, kept = scores.unsqueeze(1) + log_p, []
    for _ in range(width):
        row, column = divmod(int(total.argmax()), total.shape[1])
        kept.append((float(total[row, column]), row, column))
        total[row, column] = -math.inf
    return [list(part) for part in zip(*kept, strict=True)]


def _swapped(scores: Tensor, log_p: Tensor, width: int) -> Any:
    values, parents, words = beam_step(scores, log_p, width)
    return values, words, parents


BEAM_STEP = Exercise(
    id="10.6",
    title="One step of a beam",
    answer="course_lib.exercises.u10.beam_step",
    minutes=12,
    outcomes=("10-c",),
    checks=(Check("the first step"), Check("later steps", 2)),
    cases=_beam_cases,
    hints=(
        "A table with a row for each sentence so far and a column for each word: what stands in it? Which entries "
        "stay?",
        "log p of a longer sentence is a sum: scores[:, None] + log_p, (W, C). The best may all stand in one row, so look "
        "for them in the whole table: flatten it, and take topk.",
        "Place i of the flat table is row i // C and column i % C, with C the number of words.",
    ),
    misconceptions=(
        Misconception(
            "each goes on with its own best",
            _own_best,
            "Each sentence goes on once, with its best word. A good sentence may deserve several places and a bad one none: "
            "compare all W · C.",
            BEAM,
        ),
        Misconception(
            "scores so far ignored",
            lambda scores, log_p, width: _flat(log_p, width),
            "The scores so far are not used: an improbable sentence with a probable next word would win.",
            BEAM,
        ),
        Misconception(
            "multiplied",
            lambda scores, log_p, width: _flat(scores[:, None] * log_p, width),
            "You multiplied logarithms. Probabilities are multiplied; their logarithms are added.",
            BEAM,
        ),
        Misconception(
            "probabilities added",
            lambda scores, log_p, width: _flat(scores[:, None] + log_p.exp(), width),
            "You added a probability to a log-probability. log_p is a logarithm already: add it as it is.",
            BEAM,
        ),
        Misconception(
            "multiplied as probabilities",
            lambda scores, log_p, width: _flat((scores[:, None] + log_p).exp(), width),
            "Sentences and words are right, and the scores are probabilities. Stay with logarithms: a product of many "
            "probabilities becomes 0.",
            BEAM,
        ),
        Misconception(
            "the worst",
            lambda scores, log_p, width: _flat(-(scores[:, None] + log_p), width),
            "You kept the least probable. Log-probabilities are negative: the best are the largest, nearest to 0.",
            BEAM,
        ),
        Misconception(
            "divided by W",
            lambda scores, log_p, width: _flat(scores[:, None] + log_p, width, len(scores)),
            "The scores are right. A row of the flat table has C places, one for each word: divide by C, not by W.",
            BEAM,
        ),
        Misconception(
            "sentence and word swapped",
            _swapped,
            "All numbers are right: return the scores, then the sentence that is continued, then the new word.",
            BEAM,
        ),
        Misconception(
            "places of the flat table",
            lambda scores, log_p, width: tuple((scores[:, None] + log_p).flatten().topk(width)),
            "Take the place in the flat table apart: i // C is the sentence, i % C the word.",
            BEAM,
        ),
        Misconception(
            "the best of each row",
            lambda scores, log_p, width: tuple((scores[:, None] + log_p).topk(width, dim=1)),
            "You kept `width` words for each sentence, W · width in all. The beam keeps `width` in all.",
            BEAM,
        ),
        Misconception(
            "the worst of the best first",
            lambda scores, log_p, width: tuple(x.flip(0) for x in beam_step(scores, log_p, width)),
            "The right ones, the worst of them first. Put the best first.",
            BEAM,
        ),
        Misconception(
            "shared out again",
            lambda scores, log_p, width: _flat(
                (scores[:, None] + log_p).flatten().log_softmax(0).view_as(log_p), width
            ),
            "Sentences and words are right, but the scores were normalised once more: log p of a sentence is the "
            "plain sum.",
            BEAM,
        ),
        Misconception(
            "places among the few",
            _unmapped,
            "The scores are right. You took the best words of each sentence first; a place among those few is not "
            "yet the word: look it up in their indices.",
            BEAM,
        ),
        Misconception(
            "sentences as columns",
            _columns,
            "The scores are right. Your table has a column for each sentence, so place i of the flat table is word i "
            "// W and sentence i % W, not what you return.",
            BEAM,
        ),
        Misconception(
            "divided with /",
            _slashed,
            "The scores and words are right. The sentence is a whole number: // and not /.",
            BEAM,
        ),
        Misconception(
            "the new word alone",
            _new_word_alone,
            "Sentences and words are right. The score of a sentence is that of the sentence so far plus that of its "
            "new word; you return the second alone.",
            BEAM,
        ),
        Misconception(
            "the mean of both",
            lambda scores, log_p, width: _flat((scores[:, None] + log_p) / 2, width),
            "Sentences and words are right, and the scores are half of what they should be: log p of a sentence is a "
            "sum, not a mean.",
            BEAM,
        ),
        Misconception(
            "in the order of the table",
            _in_table_order,
            "The right ones, in the order in which they stand in the table. Put the best first.",
            BEAM,
        ),
    ),
    alternatives=(
        _sorted_pairs,
        _two_rounds,
        _one_after_the_other,
        lambda scores, log_p, width: _flat((scores.unsqueeze(1) + log_p), width),
        lambda scores, log_p, width: (
            (flat := (scores.view(-1, 1) + log_p).reshape(-1).sort(descending=True))[0][:width],
            torch.div(flat[1][:width], log_p.shape[1], rounding_mode="floor"),
            flat[1][:width].remainder(log_p.shape[1]),
        ),
    ),
    forbidden=("beam", "hypotheses"),
)


# --- 10.7 ---------------------------------------------------------------------------------------------------


def ngram_precisions(said: list[list[str]], meant: list[list[str]]) -> list[float]:
    """BLEU's p_1, p_2, p_3 and p_4: p_n is the share of all groups of n neighbouring words in `said` that stand in
    their reference.

    said and meant are lists of sentences, and a sentence is a list of words; said[i] is compared with meant[i] only.
    A group counts as often as the reference has it, not more often. For each n add up the hits of all sentences,
    and the groups of all sentences, and divide once. Where there is no group of n words at all, p_n is 0.
    Return a list of four numbers from 0 to 1.
    """
    shares = []
    for n in range(1, 5):
        hits, total = 0, 0
        for ours, theirs in zip(said, meant, strict=True):
            found, wanted = (Counter(zip(*(words[i:] for i in range(n)), strict=False)) for words in (ours, theirs))
            hits += (found & wanted).total()
            total += found.total()
        shares.append(hits / total if total else 0.0)
    return shares


def _bleu_cases(draw: Draw) -> list[Case]:
    def words(*lines: str) -> list[list[str]]:
        return [line.split() for line in lines]

    def noisy(*lengths: int) -> tuple[list[list[str]], list[list[str]]]:
        meant = [[f"w{w}" for w in draw.rng.integers(0, 4, length)] for length in lengths]
        said = [
            [w if draw.rng.random() < 0.7 else "x" for w in row] + ["w0", "w1"][: 1 + i % 2]
            for i, row in enumerate(meant)
        ]
        return said, meant

    one, several, short = "one sentence", "several sentences", "too short for some groups"
    german = words("fünf und vierzig")
    return [
        Case(one, (words("vierzig und fünf und"), words("fünf und vierzig und")), "the right words in another order"),
        Case(one, (words("und und und fünf"), words("fünf und vierzig und")), "one word again and again"),
        Case(one, (words("fünf und vierzig hundert fünf und"), words("fünf und fünf und vierzig"))),
        Case(
            one,
            (words("hundert fünf und vierzig"), words("ein hundert fünf und vierzig tausend")),
            "less than was meant",
        ),
        Case(several, (words("fünf", "ein hundert zwei und dreißig"), words("fünf", "zwei hundert zwei und zwanzig"))),
        Case(several, (words("drei und", "fünf zehn"), words("fünf zehn", "drei und sechs")), "mixed up"),
        Case(several, noisy(5, 3, 8)),
        Case(several, noisy(6, 9, 4)),
        Case(short, (german, german), "three words: there is no group of four"),
    ]


def _groups(words: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def _share(said: Any, meant: Any, n: int, count: Any, groups: Any = _groups, of: int = 0) -> Any:
    pairs = [(groups(a, n), groups(b, n)) for a, b in zip(said, meant, strict=True)]
    total = sum(len(pair[of]) for pair in pairs)
    return sum(count(a, b) for a, b in pairs) / total if total else 0.0


def _clipped(a: Any, b: Any) -> int:
    return sum(min(count, b.count(group)) for group, count in Counter(a).items())


def _mean_of_sentences(said: Any, meant: Any, n: int) -> Any:
    shares = [_share([a], [b], n, _clipped) for a, b in zip(said, meant, strict=True)]
    return sum(shares) / len(shares)


def _all_references(said: Any, meant: Any, n: int) -> Any:
    ours, theirs = ([g for row in rows for g in _groups(row, n)] for rows in (said, meant))
    return _clipped(ours, theirs) / len(ours) if ours else 0.0


def _as_sets(said: Any, meant: Any, n: int) -> Any:
    pairs = [(set(_groups(a, n)), set(_groups(b, n))) for a, b in zip(said, meant, strict=True)]
    total = sum(len(a) for a, _ in pairs)
    return sum(len(a & b) for a, b in pairs) / total if total else 0.0


def _same_place(a: Any, b: Any) -> int:
    return sum(x == y for x, y in zip(a, b, strict=False))


def _by_the_longer(said: Any, meant: Any, n: int) -> Any:
    total = sum(max(len(_groups(a, n)), len(_groups(b, n))) for a, b in zip(said, meant, strict=True))
    hits = sum(_clipped(_groups(a, n), _groups(b, n)) for a, b in zip(said, meant, strict=True))
    return hits / total if total else 0.0


def _by_words(said: Any, meant: Any, n: int) -> Any:
    hits = sum(_clipped(_groups(a, n), _groups(b, n)) for a, b in zip(said, meant, strict=True))
    return hits / sum(map(len, said))


def _joined(said: Any, meant: Any, n: int) -> Any:
    return _share([list(chain(*said))], [list(chain(*meant))], n, _clipped)


def _sorted_groups(words: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(sorted(group)) for group in _groups(words, n)]


def _crossed_off(said: Any, meant: Any, n: int) -> Any:
    hits = total = 0
    for ours, theirs in zip(said, meant, strict=True):
        left = [" ".join(g) for g in _groups(theirs, n)]
        for group in (" ".join(g) for g in _groups(ours, n)):
            total += 1
            if group in left:
                left.remove(group)
                hits += 1
    return 0 if total == 0 else hits / total


def _four(share: Any) -> Any:
    """p_1 to p_4 by a function of (said, meant, n)."""
    return lambda said, meant: [share(said, meant, n) for n in range(1, 5)]


def _for_each_n(*wrong: Misconception) -> tuple[Misconception, ...]:
    return tuple(replace(m, wrong=_four(m.wrong)) for m in wrong)


NGRAMS = Exercise(
    id="10.7",
    title="What BLEU counts",
    answer="course_lib.exercises.u10.ngram_precisions",
    minutes=12,
    outcomes=("10-d",),
    checks=(Check("one sentence"), Check("several sentences", 2), Check("too short for some groups")),
    cases=_bleu_cases,
    hints=(
        "Make the groups of one sentence first: words i to i + n − 1, for every i at which that many words are left.",
        "There are len(words) − n + 1 of them. Count them with collections.Counter, for both sentences: tuples can "
        "be keys.",
        "For each group take the smaller of the two counts (for Counters that is &). Add up over all sentences, and divide "
        "at the very end.",
    ),
    misconceptions=_for_each_n(
        Misconception(
            "not clipped",
            lambda said, meant, n: _share(said, meant, n, lambda a, b: sum(g in b for g in a)),
            "“und und und und” would have a precision of 1: a group counts at most as often as the reference has it.",
            BLEU,
        ),
        Misconception(
            "as sets",
            _as_sets,
            "You made sets: a group that stands twice in both counts once. Count how often each stands there.",
            BLEU,
        ),
        Misconception(
            "found groups counted once",
            lambda said, meant, n: _share(said, meant, n, lambda a, b: len(set(a) & set(b))),
            "A group that stands twice in both is counted as one hit. Take the smaller of the two counts.",
            BLEU,
        ),
        Misconception(
            "mean of the sentences",
            _mean_of_sentences,
            "You averaged the sentences. Add up hits and groups over all of them and divide once: a sentence of one word "
            "should not count as much as one of ten.",
            BLEU,
        ),
        Misconception(
            "any reference",
            _all_references,
            "You looked in the references of all sentences. Each sentence is compared with its own.",
            BLEU,
        ),
        Misconception(
            "recall",
            lambda said, meant, n: _share(said, meant, n, _clipped, of=1),
            "You divided by the groups of the references: that is recall. Precision divides by what was said.",
            BLEU,
        ),
        Misconception(
            "the last group forgotten",
            lambda said, meant, n: _share(
                said, meant, n, _clipped, lambda words, n: [tuple(words[i : i + n]) for i in range(len(words) - n)]
            ),
            "The last group is missing: there are len(words) − n + 1 of them.",
            BLEU,
        ),
        Misconception(
            "groups that stick out",
            lambda said, meant, n: _share(
                said, meant, n, _clipped, lambda words, n: [tuple(words[i : i + n]) for i in range(len(words))]
            ),
            "Some of your groups stick out at the end and have fewer than n words. Stop n − 1 words earlier.",
            BLEU,
        ),
        Misconception(
            "at the same place",
            lambda said, meant, n: _share(said, meant, n, _same_place),
            "A group counts only where it stands at the same place in both. BLEU looks for it anywhere in the "
            "reference.",
            BLEU,
        ),
        Misconception(
            "always single words",
            lambda said, meant, n: _share(said, meant, 1, _clipped),
            "All four numbers are p_1: you compare single words, whatever n is.",
            BLEU,
        ),
        Misconception(
            "groups side by side",
            lambda said, meant, n: _share(
                said,
                meant,
                n,
                _clipped,
                lambda words, n: [tuple(words[i : i + n]) for i in range(0, len(words) - n + 1, n)],
            ),
            "Your groups do not overlap. Every word begins one, as long as n words are left.",
            BLEU,
        ),
        Misconception(
            "in per cent",
            lambda said, meant, n: 100 * _share(said, meant, n, _clipped),
            "This is the share in per cent: leave the factor of 100 out.",
            BLEU,
        ),
        Misconception(
            "the number of hits",
            lambda said, meant, n: sum(
                _clipped(_groups(a, n), _groups(b, n)) for a, b in zip(said, meant, strict=True)
            ),
            "These are the hits. Divide by the number of groups that were said.",
            BLEU,
        ),
        Misconception(
            "divided by zero",
            lambda said, meant, n: _share(said, meant, n, _clipped) if any(len(s) >= n for s in said) else 1 / 0,
            "Where no sentence has n words there is nothing to divide by: return 0.",
            BLEU,
        ),
        Misconception(
            "divided by the longer",
            _by_the_longer,
            "You divided by the groups of the longer of the two sentences. Precision asks about what was said, and "
            "about nothing else.",
            BLEU,
        ),
        Misconception(
            "divided by the words",
            _by_words,
            "You divided by the number of words. A sentence of T words has T − n + 1 groups of n.",
            BLEU,
        ),
        Misconception(
            "n from 0",
            lambda said, meant, n: _share(said, meant, n - 1, _clipped) if n > 1 else 0.0,
            "Your four numbers are p_0 to p_3: range(4) counts from 0. p_1 comes first: range(1, 5).",
            BLEU,
        ),
        Misconception(
            "nothing is perfect",
            lambda said, meant, n: _share(said, meant, n, _clipped) if any(len(s) >= n for s in said) else 1.0,
            "Where there is no group of n words, you return 1. Whoever says nothing has hit nothing: return 0.",
            BLEU,
        ),
        Misconception(
            "one long sentence",
            _joined,
            "You put all sentences one behind the other: groups reach over their borders. Count within each sentence.",
            BLEU,
        ),
        Misconception(
            "in any order",
            lambda said, meant, n: _share(said, meant, n, _clipped, _sorted_groups),
            "Your groups do not know the order of their words: “und fünf” counts as “fünf und”. Do not sort them.",
            BLEU,
        ),
    ),
    alternatives=(
        _four(_crossed_off),
        _four(lambda said, meant, n: _share(said, meant, n, _clipped)),
        lambda said, meant: torch.tensor([_crossed_off(said, meant, n) for n in (1, 2, 3, 4)], dtype=torch.float64),
    ),
    forbidden=("bleu", "corpus_bleu", "sacrebleu"),
)


# --- 10.8 ---------------------------------------------------------------------------------------------------


def read_cross_attention() -> Any:
    """Read the three heads above, and return three things.

    First: the source words that "vier" and "dreißig" read most in head A, a list of two.
    Second: the letter of the head whose rows make an alignment that crosses, "A", "B" or "C".
    Third: True or False. Does the table of head C prove that "four" is what decides every German word?
    """
    return ["four", "thirty"], "A", False


READ_HEADS = Exercise(
    id="10.8",
    title="Read three heads",
    answer="course_lib.exercises.u10.read_cross_attention",
    minutes=4,
    outcomes=("10-d",),
    checks=(Check("what the heads show", 2),),
    cases=lambda draw: [Case("what the heads show")],
    hints=(
        "A row belongs to the word that is written; its largest number stands in the column of the word that it reads.",
        "An alignment crosses where a later row reads an earlier column. Go down the rows of each head: who goes back?",
        "A head that looks at one word all the time says where it looks. Three other things reach each word as well: the "
        "other heads, the way around, and what the encoder has mixed into that word.",
    ),
    misconceptions=(
        Misconception(
            "in the order of the sentence",
            lambda: (["thirty", "four"], "A", False),
            "Head A is the one. But look along its rows again: “vier” is four, and German says it first.",
            CROSS,
        ),
        Misconception(
            "the diagonal",
            lambda: (["four", "thirty"], "B", False),
            "Head B goes down from left to right, one place after the other: nothing crosses there.",
            CROSS,
        ),
        Misconception(
            "the column",
            lambda: (["four", "thirty"], "C", False),
            "Head C looks at one column from top to bottom. An alignment that crosses has rows that go back.",
            CROSS,
        ),
        Misconception(
            "weights as a proof",
            lambda: (["four", "thirty"], "A", True),
            "The words and the head are right. A weight says where a head looked, not what decided: other heads, the way "
            "around and the encoder's own mixing reach the word as well.",
            CROSS,
        ),
        Misconception(
            "word by word",
            lambda: (["thirty", "four"], "B", False),
            "You went through both sentences in the same order. Find the largest number in the row of “vier” in head "
            "A: it stands under four, the last column.",
            CROSS,
        ),
        Misconception(
            "word by word, and a proof",
            lambda: (["thirty", "four"], "B", True),
            "Read head A row by row: the largest number in the row of “vier” stands under four. And a weight says "
            "where a head looked, not what decided.",
            CROSS,
        ),
        Misconception(
            "in the order of the sentence, and a proof",
            lambda: (["thirty", "four"], "A", True),
            "Head A is the one. Look along its rows again: “vier” is four. And a weight says where a head looked, "
            "not what decided.",
            CROSS,
        ),
        Misconception(
            "all in one row",
            lambda: ("four", "thirty", "A", False),
            "All of it is right. Return three things, the first of them a list of the two words.",
            CROSS,
        ),
    ),
    prediction=True,
)

EXERCISES = (
    WHICH_MASK,
    SHIFT_TARGETS,
    TOKEN_LOSS,
    DECODER_LAYER,
    GREEDY_TOKENS,
    BEAM_STEP,
    NGRAMS,
    READ_HEADS,
)
