"""How good are the answers? Exact match, BLEU, accuracy and perplexity, each a number with one meaning."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING, NamedTuple

from course_lib.shapes import expect, shape

if TYPE_CHECKING:
    from torch import Tensor

Sentence = Sequence[str] | Sequence[int]


def exact_match(predictions: Sequence[Sentence], references: Sequence[Sentence]) -> float:
    """Share of predictions that equal their reference token for token, from 0 to 1."""
    _expect_pairs(predictions, references)
    right = sum(list(said) == list(meant) for said, meant in zip(predictions, references, strict=True))
    return right / len(predictions)


def bleu(predictions: Sequence[Sentence], references: Sequence[Sentence]) -> float:
    """Corpus BLEU from 0 to 100 by sacrebleu, one reference each, tokens taken as they are.

    BLEU = 100 · min(1, exp(1 - r/c)) · (p_1 p_2 p_3 p_4)^(1/4)

    p_n is the share of the n-grams of all predictions that their references contain, c counts the words of
    all predictions and r those of all references. The first p_n without a match counts half a match, the
    second a quarter, and so on; where no prediction has four words, there is no p_4 and BLEU is 0.
    """
    _expect_pairs(predictions, references)
    # Loading sacrebleu takes longer than most cells: only those who want BLEU should wait for it.
    from sacrebleu import corpus_bleu

    said, meant = [_line(tokens) for tokens in predictions], [_line(tokens) for tokens in references]
    score = corpus_bleu(said, [meant], tokenize="none", force=True).score
    return min(score, 100.0)  # the fourth root of 1 comes out a rounding error above it


class DigitScore(NamedTuple):
    """How many numbers of this many digits there were, and the share that was right."""

    digits: int
    total: int
    share: float


def by_digits(numbers: Iterable[int], correct: Iterable[bool]) -> list[DigitScore]:
    """Results by number of digits, the shortest first: a mean over all hides what the rare ones do."""
    numbers, correct = list(map(index, numbers)), list(map(bool, correct))
    _expect_same_length(numbers, correct, "numbers", "correct")
    expect(min(numbers) >= 0, f"Digits are counted for numbers from 0 on; got {min(numbers)}.")
    groups: dict[int, list[bool]] = defaultdict(list)
    for number, right in zip(numbers, correct, strict=True):
        groups[len(str(number))].append(right)
    return [DigitScore(digits, len(hits), sum(hits) / len(hits)) for digits, hits in sorted(groups.items())]


def token_accuracy(logits: Tensor, targets: Tensor, pad: int) -> Tensor:
    """Share of the targets that have the largest logit, padding left out; NaN where all is padding.

    Logits (..., C), targets (...). The answer is a tensor on their device: asking does not stall a GPU.
    """
    expect(
        logits.ndim >= 1 and logits.shape[:-1] == targets.shape and targets.numel() > 0,
        "logits need the shape of targets with the vocabulary as one more axis, and at least one target; "
        f"got logits {shape(logits)} and targets {shape(targets)}.",
    )
    real = targets != pad
    right = (logits.argmax(dim=-1) == targets) & real
    return right.sum() / real.sum()


def perplexity(mean_nll: float) -> float:
    """exp(mean negative log-likelihood per token): as unsure as a fair choice among so many tokens."""
    nll = float(mean_nll)
    expect(
        nll >= 0,
        f"A mean negative log-likelihood is 0 or more; got {nll}. Is the sign right, is the loss finite?",
    )
    try:
        return math.exp(nll)
    except OverflowError:
        return math.inf


def _expect_pairs(predictions: Sequence[Sentence], references: Sequence[Sentence]) -> None:
    _expect_same_length(predictions, references, "predictions", "references")
    for tokens in (*predictions, *references):
        if isinstance(tokens, str):
            raise TypeError(f"Each sentence is a list of tokens; got the string {tokens[:40]!r}. Try .split() on it.")


def _expect_same_length(one: Sequence, other: Sequence, name: str, other_name: str) -> None:
    expect(len(one) > 0, f"There is nothing to measure: {name} are empty.")
    expect(
        len(one) == len(other),
        f"{name} and {other_name} belong together one by one; got {len(one)} and {len(other)}.",
    )


def _line(tokens: Sentence) -> str:
    """The tokens with one space between them, which is how sacrebleu takes them apart again."""
    line = " ".join(map(str, tokens))
    expect(
        len(line.split()) == len(tokens),
        f"BLEU needs tokens without white space in them; got {list(tokens)}.",
    )
    return line
