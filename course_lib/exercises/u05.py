"""Unit 05, scaling: how scores grow with the width, what softmax makes of that, and the gradient that is left."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..by_hand import softmax
from .declare import Case, Check, Draw, Exercise, Misconception

Array = np.ndarray

VARIANCE = ("05", "A dot product of random vectors has variance d_k")
ROOT = ("05", "Dividing by the root of d_k keeps the scores at one size")
SATURATE = ("05", "Large scores saturate the softmax")
JACOBIAN = ("05", "A saturated softmax passes no gradient")
STABLE = ("05", "The largest score can be subtracted")
HEADS = ("05", "Each head divides by the root of its own width")
LEARN = ("05", "With the scale a model learns, without it the model stalls")


# --- 05.1 ---------------------------------------------------------------------------------------------------


def spread_of_scores() -> Any:
    """Four numbers, with pencil and paper. q and k have 64 numbers each, independent, of mean 0 and variance 1.

    1. the variance of q · k                          2. the standard deviation of q · k
    3. the standard deviation of q · k / √64          4. the standard deviation of q · k / 64
    Return them as a list of four, not rounded.
    """
    return [64, 8, 1, 1 / 8]


SPREAD = Exercise(
    id="05.1",
    title="How far scores spread",
    answer="course_lib.exercises.u05.spread_of_scores",
    minutes=3,
    outcomes=("05-a",),
    checks=(Check("the four numbers", 2),),
    cases=lambda draw: [Case("the four numbers")],
    hints=(
        "q · k is a sum of 64 products. What is the variance of one product, and what happens to variances in a sum?",
        "Each product has variance 1, and variances of independent numbers add up. The standard deviation is the root.",
        "The variance is 64, its root is 8. Dividing scores by a number divides their standard deviation by it.",
    ),
    misconceptions=(
        Misconception(
            "variance and deviation swapped",
            lambda: [8, 64, 1, 1 / 8],
            "Variance and standard deviation are swapped: the variance is the sum of 64 ones, the deviation its root.",
            VARIANCE,
        ),
        Misconception(
            "variance divided",
            lambda: [64, 8, 8, 1],
            "You divided the variance. Dividing scores by c divides their standard deviation by c, the variance by c².",
            ROOT,
        ),
        Misconception(
            "no growth",
            lambda: [1, 1, 1 / 8, 1 / 64],
            "A sum of 64 products spreads more than one of them: variances of independent numbers add up.",
            VARIANCE,
        ),
        Misconception(
            "deviations added",
            lambda: [4096, 64, 8, 1],
            "You added standard deviations. Signs differ and partly cancel: it is the variances that add up, to 64.",
            VARIANCE,
        ),
        Misconception(
            "both divisors alike",
            lambda: [64, 8, 1, 1],
            "√64 and 64 cannot both give 1: the scores spread by 8, and 8 / 64 is far less than 1.",
            ROOT,
        ),
        Misconception(
            "divisors swapped",
            lambda: [64, 8, 1 / 8, 1],
            "3 and 4 are swapped: the deviation is 8, and √64 = 8 is the divisor that brings it to 1.",
            ROOT,
        ),
        Misconception(
            "divided twice",
            lambda: [64, 8, 1 / 8, 1 / 64],
            "1 and 2 are right. For 3 and 4 divide the deviation that you found, 8, by √64 = 8 and by 64.",
            ROOT,
        ),
        Misconception(
            "variance of the last one",
            lambda: [64, 8, 1, 1 / 64],
            "Three are right. The fourth asks for a deviation, and 1/64 is the variance: 64 / 64². Divide 8 by 64.",
            ROOT,
        ),
        Misconception(
            "half for the root",
            lambda: [64, 32, 4, 1 / 2],
            "The standard deviation is the square root of the variance, and you halved it: √64 is not 32.",
            VARIANCE,
        ),
        Misconception(
            "two vectors, twice the variance",
            lambda: [128, 128**0.5, 2**0.5, 128**0.5 / 64],
            "The variances of q and k are multiplied, not added: a product has variance 1 · 1, and 64 of them are summed.",
            VARIANCE,
        ),
    ),
    prediction=True,
)


# --- 05.2 ---------------------------------------------------------------------------------------------------


def score_variances(q: Array, k: Array, widths: list[int]) -> Array:
    """How the variance of dot products grows with the width, measured on N pairs of vectors.

    q and k are (N, D): row n of q and row n of k are a pair. For each width d in `widths`, keep the first d columns
    of both, take the N dot products, and measure their variance over the pairs (divide by N, as np.var does).
    Return an array (len(widths), 2): in each row the variance of the bare dot products, and that of the dot products
    divided by √d.
    """
    rows = []
    for d in widths:
        scores = np.sum(q[:, :d] * k[:, :d], axis=1)
        rows.append([np.var(scores), np.var(scores / np.sqrt(d))])
    return np.array(rows)


def _variance_cases(draw: Draw) -> list[Case]:
    def case(check: str, n: int, d: int, widths: list[int], note: str = "", shift: float = 0.0) -> Case:
        return Case(check, (draw(n, d) + shift, draw(n, d) + shift, widths), note)

    return [
        case("one width", 3, 2, [2], "every column is used"),
        case("several widths", 4, 5, [1, 3]),
        case("several widths", 9, 7, [2, 7, 4, 3], "in any order"),
        case("scores whose mean is not 0", 5, 6, [3, 4], "all numbers shifted by 2", shift=2.0),
    ]


def _measured(scores_of: Any, of: Any = np.var, by: Any = np.sqrt) -> Any:
    """The answer with other scores, another measure or another divisor."""

    def wrong(q: Array, k: Array, widths: list[int]) -> Array:
        found = [(scores_of(q[:, :d], k[:, :d]), by(d)) for d in widths]
        return np.array([[of(scores), of(scores / divisor)] for scores, divisor in found])

    return wrong


def _pairs(q: Array, k: Array) -> Array:
    return np.sum(q * k, axis=1)


def _measured_on(q: Array, k: Array, widths: list[int], columns: Any) -> Array:
    """The answer on other columns than the first d."""
    scores = [_pairs(q[:, columns(d)], k[:, columns(d)]) for d in widths]
    return np.array([[np.var(s), np.var(s) / d] for s, d in zip(scores, widths, strict=True)])


def _cosines(q: Array, k: Array) -> Array:
    return _pairs(q, k) / (np.linalg.norm(q, axis=1) * np.linalg.norm(k, axis=1))


def _whole_width(q: Array, k: Array, widths: list[int]) -> Array:
    return np.array([[np.var(_pairs(q, k)), np.var(_pairs(q, k) / np.sqrt(d))] for d in widths])


def _root_of_whole(q: Array, k: Array, widths: list[int]) -> Array:
    return _measured(_pairs, by=lambda d: np.sqrt(q.shape[1]))(q, k, widths)


def _variance_scaled(q: Array, k: Array, widths: list[int]) -> Array:
    bare = [np.var(_pairs(q[:, :d], k[:, :d])) for d in widths]
    return np.array([[v, v / np.sqrt(d)] for v, d in zip(bare, widths, strict=True)])


def _running_sums(q: Array, k: Array, widths: list[int]) -> Array:
    bare = np.cumsum(q * k, axis=1)[:, np.array(widths) - 1].var(axis=0)
    return np.stack([bare, bare / np.array(widths)], axis=1)


def _pair_by_pair(q: Array, k: Array, widths: list[int]) -> Any:
    table = []
    for d in widths:
        scores = [float(a[:d] @ b[:d]) for a, b in zip(q, k, strict=True)]
        mean = sum(scores) / len(scores)
        variance = sum((s - mean) ** 2 for s in scores) / len(scores)
        table.append((variance, variance / d))
    return table


VARIANCES = Exercise(
    id="05.2",
    title="Measure the growth",
    answer="course_lib.exercises.u05.score_variances",
    minutes=8,
    outcomes=("05-a",),
    checks=(Check("one width", 2), Check("several widths"), Check("scores whose mean is not 0")),
    cases=_variance_cases,
    hints=(
        "One width at a time: q[:, :d] are the first d columns. What is the dot product of two rows?",
        "Multiply number by number, and sum along each row: N scores, one for each pair. np.var measures their variance.",
        "For every d: scores = the sum over axis 1 of the products; then np.var of the scores, and of scores / np.sqrt(d).",
    ),
    misconceptions=(
        Misconception(
            "standard deviation",
            _measured(_pairs, of=np.std),
            "This is the standard deviation, the root of the variance. It is the variance that grows like d.",
            VARIANCE,
        ),
        Misconception(
            "all pairs",
            _measured(lambda q, k: q @ k.T),
            "q @ k.T pairs every row with every row. Here row n of q belongs to row n of k, so there are N scores.",
            VARIANCE,
        ),
        Misconception(
            "not cut",
            _whole_width,
            "Every width gives the same bare variance here: the dot products use all columns, and not the first d.",
            VARIANCE,
        ),
        Misconception(
            "divided by d",
            _measured(_pairs, by=float),
            "You divided the scores by d. Then the variance shrinks like 1/d; with √d it stays where it is.",
            ROOT,
        ),
        Misconception(
            "root of the whole width",
            _root_of_whole,
            "You divided by √D, for all columns. The dot product has d terms, so √d belongs to it.",
            HEADS,
        ),
        Misconception(
            "not summed",
            _measured(lambda q, k: q * k),
            "This is the variance of single products. A dot product is their sum along the row: sum first, then measure.",
            VARIANCE,
        ),
        Misconception(
            "mean instead of sum",
            _measured(lambda q, k: np.mean(q * k, axis=1)),
            "You took the mean of the products. A dot product is their sum.",
            VARIANCE,
        ),
        Misconception(
            "summed over the pairs",
            _measured(lambda q, k: np.sum(q * k, axis=0)),
            "You summed over the pairs and measured over the columns. Each pair has its own sum: axis 1.",
            VARIANCE,
        ),
        Misconception(
            "variance divided by the root",
            _variance_scaled,
            "You divided the variance by √d. Divide the scores by √d: that divides their variance by d.",
            ROOT,
        ),
        Misconception(
            "mean of squares",
            _measured(_pairs, of=lambda scores: np.mean(scores**2)),
            "This is the mean of the squares. The variance measures from the mean of the scores, which may not be 0.",
            VARIANCE,
        ),
        Misconception(
            "divided by N - 1",
            _measured(_pairs, of=lambda scores: np.var(scores, ddof=1)),
            "You divided by N - 1, as one does to estimate from a sample. Fine elsewhere; here divide by N, as np.var does.",
            VARIANCE,
        ),
        Misconception(
            "multiplied",
            _measured(_pairs, by=lambda d: 1 / np.sqrt(d)),
            "You multiplied the scores by √d, so they spread even more. Divide.",
            ROOT,
        ),
        Misconception(
            "columns swapped",
            lambda q, k, widths: score_variances(q, k, widths)[:, ::-1],
            "Right numbers, swapped: first the variance of the bare scores, then that of the divided ones.",
            ROOT,
        ),
        Misconception(
            "transposed",
            lambda q, k, widths: score_variances(q, k, widths).T,
            "Right numbers, lying the other way: a row for each width, and two columns.",
            ROOT,
        ),
        Misconception(
            "cosines",
            _measured(_cosines),
            "You divided by the lengths of the vectors, which gives cosines (unit 03). A score is the bare dot product.",
            VARIANCE,
        ),
        Misconception(
            "returned too early",
            lambda q, k, widths: score_variances(q, k, widths[:1]),
            "There is a row for the first width only. Does the `return` stand inside the loop?",
            VARIANCE,
        ),
        Misconception(
            "one column too many",
            lambda q, k, widths: _measured_on(q, k, widths, lambda d: slice(0, d + 1)),
            "You took d + 1 columns. A slice stops before its end: [:, :d] are the first d.",
            VARIANCE,
        ),
        Misconception(
            "the other columns",
            lambda q, k, widths: _measured_on(q, k, widths, lambda d: slice(d, None)),
            "[:, d:] is what comes after the first d columns. The first d are [:, :d].",
            VARIANCE,
        ),
        Misconception(
            "one column alone",
            lambda q, k, widths: _measured_on(q, k, widths, lambda d: slice(d - 1, d)),
            "You took one column, the d-th. A dot product of width d sums over all of the first d.",
            VARIANCE,
        ),
        Misconception(
            "rows cut",
            lambda q, k, widths: np.array(
                [score_variances(q[:d], k[:d], [q.shape[1]])[0] * [1, q.shape[1] / d] for d in widths]
            ),
            "You kept the first d pairs. All pairs stay; of each vector keep the first d numbers: [:, :d].",
            VARIANCE,
        ),
        Misconception(
            "theory instead of measurement",
            lambda q, k, widths: np.array([[d, 1.0] for d in widths]),
            "These are the numbers that theory promises. Here they are to be measured, on the pairs that come in.",
            VARIANCE,
        ),
        Misconception(
            "bare scores only",
            lambda q, k, widths: score_variances(q, k, widths)[:, 0],
            "The first column is right, and the second is missing: the variance of the scores divided by √d.",
            ROOT,
        ),
        Misconception(
            "everything summed",
            lambda q, k, widths: np.zeros((len(widths), 2)),
            "One sum over all pairs is one number, and one number does not vary. Sum along each row: axis=1.",
            VARIANCE,
        ),
    ),
    alternatives=(
        _running_sums,
        _pair_by_pair,
        lambda q, k, widths: np.array(
            [[s.var(), s.var() / d] for d, s in ((d, np.einsum("nd,nd->n", q[:, :d], k[:, :d])) for d in widths)]
        ),
        lambda q, k, widths: np.vstack(
            [[np.diag(q[:, :d] @ k[:, :d].T).var(), np.var(np.diag(q[:, :d] @ k[:, :d].T) * d**-0.5)] for d in widths]
        ),
    ),
)


# --- 05.3 ---------------------------------------------------------------------------------------------------


def stable_softmax(scores: Array) -> Array:
    """Softmax along the last axis that holds for scores of any size.

    scores is an array of one axis or more; a score may be in the thousands, and it may be -∞ (its weight is then 0),
    but no row has -∞ alone. Return an array of the same shape, in which each row along the last axis sums to 1.
    """
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True)


def _softmax_cases(draw: Draw) -> list[Case]:
    far_apart = draw(3, 4) + np.array([[900.0], [-900.0], [0.0]])
    hidden = draw(2, 3)
    hidden[0, 1] = hidden[1, 2] = -np.inf
    return [
        Case("one row of scores", (draw(3),)),
        Case("many rows", (draw(2, 5),)),
        Case("many rows", (draw(4, 4),), "as many rows as columns"),
        Case("many rows", (draw(2, 3, 4),), "three axes"),
        Case("large scores", (draw(5, size=1000),), "scores in the thousands"),
        Case("large scores", (draw(3, 6, size=300),), "scores in the hundreds"),
        Case("large scores", (draw(4, size=50_000),), "scores in the ten thousands"),
        Case("rows far apart", (far_apart,), "rows near 900, -900 and 0"),
        Case("scores of -∞", (hidden,), "one score of each row is -∞"),
    ]


def _shifted_by(shift: Any) -> Any:
    """The answer with something else subtracted."""

    def wrong(scores: Array) -> Array:
        with np.errstate(all="ignore"):
            exps = np.exp(scores - shift(scores))
            return exps / exps.sum(axis=-1, keepdims=True)

    return wrong


def _quietly(function: Any) -> Any:
    def wrong(*args: Array) -> Any:
        with np.errstate(all="ignore"):
            return function(*args)

    return wrong


def _normalised(numbers: Array) -> Array:
    return numbers / numbers.sum(axis=-1, keepdims=True)


def _subtract_in_place(scores: Array) -> Array:
    scores -= scores.max(axis=-1, keepdims=True)
    return np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)


def _softmax_rows(scores: Array) -> Array:
    if scores.ndim > 1:
        return np.array([_softmax_rows(row) for row in scores])
    top = max(scores)
    exps = [np.exp(s - top) for s in scores]
    return np.array([e / sum(exps) for e in exps])


def _without_exp(scores: Array) -> Array:
    shifted = scores - scores.min(axis=-1, keepdims=True)
    return shifted / shifted.sum(axis=-1, keepdims=True)


STABLE_SOFTMAX = Exercise(
    id="05.3",
    title="A softmax that holds",
    answer="course_lib.exercises.u05.stable_softmax",
    minutes=8,
    outcomes=("05-c",),
    checks=(
        Check("one row of scores"),
        Check("many rows"),
        Check("large scores"),
        Check("rows far apart"),
        Check("scores of -∞"),
    ),
    cases=_softmax_cases,
    hints=(
        "exp(1000) is infinity. Softmax sees only differences of scores: what may you subtract from a row?",
        "Subtract the row's own largest score, then exp, then divide by the row's sum. Each row has its own largest score.",
        "scores.max(axis=-1, keepdims=True) keeps the axis, so that it can be subtracted row by row; the sum likewise.",
    ),
    misconceptions=(
        Misconception(
            "nothing subtracted",
            _shifted_by(lambda s: 0.0),
            "exp of a large score is infinity, and infinity / infinity is NaN. Subtract the largest score first.",
            STABLE,
        ),
        Misconception(
            "largest of all",
            _shifted_by(np.max),
            "One maximum for the whole array: a row far below it becomes 0 / 0. Each row subtracts its own largest score.",
            STABLE,
        ),
        Misconception(
            "largest of each column",
            _shifted_by(lambda s: s.max(axis=0, keepdims=True)),
            "You subtracted another number from each score of a row, which changes the weights. One number for each row.",
            STABLE,
        ),
        Misconception(
            "axis not kept",
            _shifted_by(lambda s: s.max(axis=-1)),
            "Without keepdims=True the row maxima line up with the columns (or do not fit at all).",
            STABLE,
        ),
        Misconception(
            "smallest subtracted",
            _shifted_by(lambda s: s.min(axis=-1, keepdims=True)),
            "You subtracted the smallest score: what is left is 0 or more, and exp still overflows. Take the largest.",
            STABLE,
        ),
        Misconception(
            "mean subtracted",
            _shifted_by(lambda s: s.mean(axis=-1, keepdims=True)),
            "After subtracting the mean, the largest score may still be in the hundreds. Subtract the largest: 0 is left.",
            STABLE,
        ),
        Misconception(
            "largest size",
            _shifted_by(lambda s: np.abs(s).max(axis=-1, keepdims=True)),
            "You subtracted the largest absolute value. In a row of large negative scores that pushes all to 0 / 0.",
            STABLE,
        ),
        Misconception(
            "clipped",
            _quietly(lambda s: softmax(np.clip(s, -80, 80))),
            "You cut the scores off. Then large scores become equal, and so do their weights: subtract, do not clip.",
            STABLE,
        ),
        Misconception(
            "divided by the largest",
            _quietly(lambda s: softmax(s / np.abs(s).max(axis=-1, keepdims=True))),
            "You divided by the largest score, which changes all differences. Subtracting leaves them as they are.",
            STABLE,
        ),
        Misconception(
            "over the wrong axis",
            lambda s: softmax(s, axis=0),
            "These weights sum to 1 down the columns. Softmax runs along the last axis: every row sums to 1.",
            STABLE,
        ),
        Misconception(
            "over everything",
            lambda s: softmax(s.ravel()).reshape(s.shape),
            "All weights together sum to 1. Each row has a softmax of its own.",
            STABLE,
        ),
        Misconception(
            "logarithms",
            _quietly(lambda s: np.log(softmax(s))),
            "These are the logarithms of the weights. The weights themselves sum to 1.",
            STABLE,
        ),
        Misconception(
            "not divided",
            lambda s: np.exp(s - s.max(axis=-1, keepdims=True)),
            "The largest weight is 1 in every row: you did not divide by the row's sum.",
            STABLE,
        ),
        Misconception(
            "sum not shifted",
            _quietly(lambda s: np.exp(s - s.max(axis=-1, keepdims=True)) / np.exp(s).sum(axis=-1, keepdims=True)),
            "The maximum is subtracted above the line and not below it. Only when both have it does it cancel.",
            STABLE,
        ),
        Misconception(
            "no exponentials",
            _quietly(_without_exp),
            "You divided shifted scores by their sum. Softmax takes exponentials first.",
            STABLE,
        ),
        Misconception(
            "in place",
            _subtract_in_place,
            "The numbers are right, but `scores -= …` changes the caller's array. Write scores - … instead.",
            STABLE,
        ),
        Misconception(
            "sum of the whole table",
            lambda s: np.exp(s - s.max(axis=-1, keepdims=True)) / np.exp(s - s.max(axis=-1, keepdims=True)).sum(),
            "Each row subtracts its own maximum, as it should, but you divided by the sum of all rows. Each row has its own sum.",
            STABLE,
        ),
        Misconception(
            "axis of the sum not kept",
            lambda s: (
                np.exp(s - s.max(axis=-1, keepdims=True)) / np.exp(s - s.max(axis=-1, keepdims=True)).sum(axis=-1)
            ),
            "The sums need keepdims=True as well: without it they line up with the columns (or do not fit at all).",
            STABLE,
        ),
        Misconception(
            "sign flipped",
            _quietly(lambda s: _normalised(np.exp(s.max(axis=-1, keepdims=True) - s))),
            "The sign is flipped, so that the smallest score gets the largest weight: scores minus maximum, not maximum minus scores.",
            STABLE,
        ),
        Misconception(
            "scaled as well",
            lambda s: softmax(s / np.sqrt(s.shape[-1])),
            "You divided by a root here, too. Softmax takes the scores as they come; the scale belongs to attention.",
            STABLE,
        ),
        Misconception(
            "another base",
            lambda s: _normalised(2.0 ** (s - s.max(axis=-1, keepdims=True))),
            "You took powers of 2. Softmax has e: np.exp.",
            STABLE,
        ),
        Misconception(
            "shifted scores without exp",
            _quietly(lambda s: _normalised(s - s.max(axis=-1, keepdims=True))),
            "The maximum is subtracted, and exp is missing: take it before you divide by the sum.",
            STABLE,
        ),
        Misconception(
            "second axis",
            lambda s: softmax(s, axis=1),
            "axis=1 is the last axis of a table only. A single row has no axis 1, and with three axes it is the middle one: axis=-1.",
            STABLE,
        ),
        Misconception(
            "rows of a table only",
            lambda s: np.array([softmax(row.ravel()).reshape(row.shape) for row in s]),
            "Your loop takes tables for granted: in a single row it meets single scores. With axis=-1 no loop is needed.",
            STABLE,
        ),
    ),
    alternatives=(
        _softmax_rows,
        lambda s: np.exp(s - np.logaddexp.reduce(s, axis=-1, keepdims=True)),
        lambda s: np.exp(s - np.amax(s, -1)[..., None]) / np.sum(np.exp(s - np.amax(s, -1)[..., None]), -1)[..., None],
    ),
    forbidden=("softmax", "scipy"),
)


# --- 05.4 ---------------------------------------------------------------------------------------------------


def softmax_jacobian(scores: Array) -> Array:
    """How much each weight moves when one score does: entry (i, j) is ∂a_i / ∂s_j; the weights a are the softmax of scores s.

    scores is (S,). Return an array (S, S). `softmax` is imported above.
    """
    a = softmax(scores)
    return np.diag(a) - np.outer(a, a)


def _jacobian_cases(draw: Draw) -> list[Case]:
    return [
        Case("two keys", (draw(2),)),
        Case("more keys", (draw(3),)),
        Case("more keys", (draw(6),)),
        Case(
            "large scores",
            (np.array([700.0, 1000.0, 1000.5, 999.0]) + draw(4, size=0.1),),
            "three near 1000, one far below",
        ),
    ]


def _jacobian_by(formula: Any) -> Any:
    return lambda scores: formula(softmax(scores))


def _by_differences(scores: Array) -> Array:
    steps = 1e-5 * np.eye(len(scores))
    return np.array([(softmax(scores + h) - softmax(scores - h)) / 2e-5 for h in steps]).T


def _entry_by_entry(scores: Array) -> Array:
    a, size = softmax(scores), len(scores)
    return np.array([[a[i] * ((i == j) - a[j]) for j in range(size)] for i in range(size)])


def _unsafe(scores: Array) -> Array:
    a = np.exp(scores) / np.exp(scores).sum()
    return np.diag(a) - np.outer(a, a)


JACOBIAN_EXERCISE = Exercise(
    id="05.4",
    title="How the weights move",
    answer="course_lib.exercises.u05.softmax_jacobian",
    minutes=8,
    outcomes=("05-b",),
    checks=(Check("two keys"), Check("more keys", 2), Check("large scores")),
    cases=_jacobian_cases,
    hints=(
        "A score pulls its own weight up, and all others down, since they still sum to 1. What sign has each entry?",
        "On the diagonal a_i (1 - a_i), elsewhere -a_i a_j. Both are a_i (δ_ij - a_j), where δ_ij is 1 if i = j, else 0.",
        "a_i δ_ij is np.diag(a), a_i a_j is np.outer(a, a); the entry is their difference.",
    ),
    misconceptions=(
        Misconception(
            "diagonal only",
            _jacobian_by(lambda a: np.diag(a * (1 - a))),
            "Only a weight's own score moves it here. But weights sum to 1: when one rises, all others must fall.",
            JACOBIAN,
        ),
        Misconception(
            "a vector",
            _jacobian_by(lambda a: a * (1 - a)),
            "These are the diagonal's numbers alone. Every score moves every weight: the result is S × S.",
            JACOBIAN,
        ),
        Misconception(
            "no diagonal",
            _jacobian_by(lambda a: -np.outer(a, a)),
            "Every entry is negative here, as if a score pulled its own weight down. The diagonal has a_i more.",
            JACOBIAN,
        ),
        Misconception(
            "diagonal of weights",
            _jacobian_by(np.diag),
            "You left out the sum under the fraction: it grows with each score, too, and that gives -a_i a_j.",
            JACOBIAN,
        ),
        Misconception(
            "sign flipped",
            _jacobian_by(lambda a: np.outer(a, a) - np.diag(a)),
            "All signs are flipped: a higher score must raise its own weight.",
            JACOBIAN,
        ),
        Misconception(
            "plus",
            _jacobian_by(lambda a: np.outer(a, a) + np.diag(a)),
            "All entries are positive, so all weights rise together. They sum to 1: others must fall, by a_i a_j.",
            JACOBIAN,
        ),
        Misconception(
            "sigmoid everywhere",
            _jacobian_by(lambda a: np.outer(a, 1 - a)),
            "You used a_i (1 - a_j) everywhere. The 1 is there on the diagonal only: δ_ij.",
            JACOBIAN,
        ),
        Misconception(
            "scores instead of weights",
            lambda s: np.diag(s) - np.outer(s, s),
            "The formula is right and s stands where a belongs: take the softmax first.",
            JACOBIAN,
        ),
        Misconception(
            "squared diagonal",
            _jacobian_by(lambda a: np.diag(a**2) - np.outer(a, a)),
            "Your diagonal is 0. A weight does answer to its own score: a_i (1 - a_i).",
            JACOBIAN,
        ),
        Misconception(
            "the norm",
            lambda s: np.linalg.norm(softmax_jacobian(s)),
            "This is the norm of the Jacobian, one number. The exercise asks for the matrix itself.",
            JACOBIAN,
        ),
        Misconception(
            "overflow",
            _quietly(_unsafe),
            "exp of a large score is infinity, and infinity / infinity is NaN. Use a softmax that holds.",
            STABLE,
        ),
        Misconception(
            "number by number",
            _jacobian_by(lambda a: np.diag(a) - a * a),
            "a * a multiplies number by number, and NumPy repeats that row. All pairs a_i a_j are wanted: np.outer(a, a).",
            JACOBIAN,
        ),
        Misconception(
            "one number for all pairs",
            _jacobian_by(lambda a: np.diag(a) - a @ a),
            "a @ a is one number, the sum of the squares. All pairs a_i a_j are wanted: np.outer(a, a).",
            JACOBIAN,
        ),
        Misconception(
            "ones on the diagonal",
            _jacobian_by(lambda a: np.eye(len(a)) - np.outer(a, a)),
            "The diagonal is too large: δ_ij is multiplied by a_i as well, a_i (δ_ij - a_j), so it is np.diag(a).",
            JACOBIAN,
        ),
        Misconception(
            "others rise too",
            _jacobian_by(lambda a: np.outer(a, a) + np.diag(a * (1 - 2 * a))),
            "Your diagonal is right. The others fall when one rises: -a_i a_j, so that each row sums to 0.",
            JACOBIAN,
        ),
        Misconception(
            "half of the table",
            _jacobian_by(lambda a: np.tril(np.diag(a) - np.outer(a, a))),
            "Above the diagonal there are zeros. Every score moves every weight, on both sides.",
            JACOBIAN,
        ),
        Misconception(
            "a score slipped in",
            lambda s: np.diag(softmax(s)) - np.outer(softmax(s), s),
            "One factor is a score and not a weight: a_i a_j has weights only.",
            JACOBIAN,
        ),
        Misconception(
            "scaled as well",
            lambda s: softmax_jacobian(s / np.sqrt(len(s))),
            "You divided the scores by a root. Here they are taken as they come: a = softmax(scores).",
            JACOBIAN,
        ),
    ),
    alternatives=(
        _by_differences,
        _entry_by_entry,
        _jacobian_by(lambda a: a[:, None] * (np.eye(len(a)) - a)),
        _jacobian_by(lambda a: (np.eye(len(a)) - a[:, None]) * a),
    ),
)


# --- 05.5 ---------------------------------------------------------------------------------------------------


def scaled_attention(q: Array, k: Array, v: Array) -> Array:
    """Scaled dot-product attention, for one head or for several at once.

    q is (..., T, d_k), k is (..., S, d_k), v is (..., S, d_v). In front there may be an axis for the heads; each head
    has queries, keys and values of its own. Return an array (..., T, d_v). `softmax` is imported above.
    """
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(scores) @ v


def _scaled_cases(draw: Draw) -> list[Case]:
    def case(check: str, t: int, s: int, d: int, v: int, note: str = "", size: float = 1.0) -> Case:
        return Case(check, (draw(t, d, size=size), draw(s, d), draw(s, v)), note)

    heads = (draw(3, 2, 4), draw(3, 5, 4), draw(3, 5, 6))
    square = (draw(2, 3, 3), draw(2, 3, 3), draw(2, 3, 3))
    return [
        case("one head", 2, 3, 4, 5),
        case("one head", 6, 4, 7, 2),
        Case("several heads at once", heads, "three heads of width 4"),
        Case("several heads at once", square, "two heads, all other sizes equal"),
        case("large scores", 3, 5, 4, 2, "scores in the thousands", size=5000),
    ]


def _scaled_by(divisor: Any) -> Any:
    return lambda q, k, v: softmax(q @ k.swapaxes(-1, -2) / divisor(q, k, v)) @ v


def _width_of_all_heads(q: Array, k: Array, v: Array) -> float:
    return np.sqrt(q.shape[-1] * (q.shape[0] if q.ndim > 2 else 1))


def _weights_divided(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ k.swapaxes(-1, -2)) / np.sqrt(q.shape[-1]) @ v


def _scaled_unsafely(q: Array, k: Array, v: Array) -> Array:
    exps = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return exps / exps.sum(axis=-1, keepdims=True) @ v


def _queries_divided_in_place(q: Array, k: Array, v: Array) -> Array:
    q /= np.sqrt(q.shape[-1])
    return softmax(q @ k.swapaxes(-1, -2)) @ v


def _unit(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _head_by_head(q: Array, k: Array, v: Array) -> Array:
    if q.ndim > 2:
        return np.array([_head_by_head(*one) for one in zip(q, k, v, strict=True)])
    return np.array([softmax(k @ row / len(row) ** 0.5) @ v for row in q])


SCALED = Exercise(
    id="05.5",
    title="Scaled dot-product attention",
    answer="course_lib.exercises.u05.scaled_attention",
    minutes=8,
    outcomes=("05-d",),
    checks=(Check("one head", 2), Check("several heads at once"), Check("large scores")),
    cases=_scaled_cases,
    hints=(
        "It is the attention of unit 04 with one thing more. Which number in the shapes says how many products a score sums?",
        "Divide the scores by the root of the width of q, which is q.shape[-1], before the softmax.",
        "With an axis for heads in front, k.T would turn that around as well: k.swapaxes(-1, -2) turns the last two only.",
    ),
    misconceptions=(
        Misconception(
            "no scale",
            _scaled_by(lambda q, k, v: 1.0),
            "This is unit 04's attention, without a scale: divide the scores by √d_k.",
            ROOT,
        ),
        Misconception(
            "divided by d_k",
            _scaled_by(lambda q, k, v: q.shape[-1]),
            "The scores are divided by d_k in all (or by √d_k twice). They spread like its root: once √d_k is enough.",
            ROOT,
        ),
        Misconception(
            "multiplied",
            _scaled_by(lambda q, k, v: 1 / np.sqrt(q.shape[-1])),
            "You multiplied by √d_k, so that softmax saturates even more. Divide.",
            ROOT,
        ),
        Misconception(
            "width of the values",
            _scaled_by(lambda q, k, v: np.sqrt(v.shape[-1])),
            "You took the width of the values. A score sums over the numbers of a query and a key: d_k.",
            ROOT,
        ),
        Misconception(
            "number of queries",
            _scaled_by(lambda q, k, v: np.sqrt(q.shape[-2])),
            "You took the number of queries. Longer sentences do not make larger scores, wider vectors do: d_k.",
            ROOT,
        ),
        Misconception(
            "number of keys",
            _scaled_by(lambda q, k, v: np.sqrt(k.shape[-2])),
            "You took the number of keys. Longer sentences do not make larger scores, wider vectors do: d_k.",
            ROOT,
        ),
        Misconception(
            "width of all heads",
            _scaled_by(_width_of_all_heads),
            "You divided by √D, for all heads together. A head's score sums over its own d_k = D/H numbers.",
            HEADS,
        ),
        Misconception(
            "weights divided",
            _weights_divided,
            "You divided the weights, after the softmax: they no longer sum to 1. The scores are divided, before.",
            ROOT,
        ),
        Misconception(
            "over the queries",
            lambda q, k, v: softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), axis=-2) @ v,
            "These weights sum to 1 over the queries. Softmax runs along each row, over the keys.",
            ("04", "Softmax runs along each row"),
        ),
        Misconception(
            "all axes turned",
            lambda q, k, v: softmax(q @ k.T / np.sqrt(q.shape[-1])) @ v,
            "k.T turns all axes around, the heads' too. With several heads only the last two change places.",
            HEADS,
        ),
        Misconception(
            "keys summed",
            lambda q, k, v: softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ k,
            "You multiplied the weights with the keys. Keys are for finding; what is handed out are the values.",
            ("04", "The output is a weighted sum of values"),
        ),
        Misconception(
            "overflow",
            _quietly(_scaled_unsafely),
            "The scale does not save exp from overflow: scores may still be in the thousands. Subtract the largest.",
            STABLE,
        ),
        Misconception(
            "in place",
            _queries_divided_in_place,
            "The numbers are right, but `q /= …` changes the caller's queries. Write q / … instead.",
            ROOT,
        ),
        Misconception(
            "output divided",
            lambda q, k, v: scaled_attention(q, k, v) / np.sqrt(q.shape[-1]),
            "The scores are divided, as they should be, and the output once more. It is an average of values: leave it as it is.",
            ROOT,
        ),
        Misconception(
            "weights instead of the output",
            lambda q, k, v: softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])),
            "These are the weights, (T, S). One step is left: weights @ v.",
            ("04", "The output is a weighted sum of values"),
        ),
        Misconception(
            "cosines",
            lambda q, k, v: softmax(_unit(q) @ _unit(k).swapaxes(-1, -2)) @ v,
            "You divided by the lengths of the vectors, which gives cosines (unit 03). The scale is the same for all pairs: √d_k.",
            ROOT,
        ),
        Misconception(
            "heads averaged",
            lambda q, k, v: scaled_attention(q, k, v).mean(axis=0) if q.ndim > 2 else scaled_attention(q, k, v),
            "One head is right. Of several heads you took the mean: each has an output of its own, (H, T, d_v).",
            HEADS,
        ),
        Misconception(
            "count of all numbers",
            _scaled_by(lambda q, k, v: np.sqrt(q.size)),
            "q.size counts all numbers of all queries. A score sums over the width alone: q.shape[-1].",
            ROOT,
        ),
        Misconception(
            "first two axes",
            lambda q, k, v: softmax(q @ k.swapaxes(0, 1) / np.sqrt(q.shape[-1])) @ v,
            "You swapped the first two axes of k. With several heads these are heads and keys: swap the last two, (-1, -2).",
            HEADS,
        ),
    ),
    alternatives=(
        _head_by_head,
        lambda q, k, v: softmax((q / q.shape[-1] ** 0.5) @ np.moveaxis(k, -1, -2)) @ v,
        lambda q, k, v: np.einsum(
            "...ts,...sv->...tv", softmax(np.einsum("...tk,...sk->...ts", q, k) * k.shape[-1] ** -0.5), v
        ),
        lambda q, k, v: softmax((q * q.shape[-1] ** -0.25) @ (k * k.shape[-1] ** -0.25).swapaxes(-2, -1)) @ v,
    ),
)


# --- 05.6 ---------------------------------------------------------------------------------------------------


def query_gradient(q: Array, k: Array, v: Array, wanted: Array) -> Array:
    """The gradient that reaches the queries, by hand: ∂L/∂q for L = ½ Σ (y - wanted)², summed over all numbers of y.

    y is scaled attention, softmax(q kᵀ / √d_k) v. q is (T, d_k), k is (S, d_k), v is (S, d_v), wanted is (T, d_v).
    Return an array (T, d_k). `softmax` is imported above.
    """
    scale = 1 / np.sqrt(q.shape[-1])
    a = softmax(scale * q @ k.T)
    grad_y = a @ v - wanted
    grad_a = grad_y @ v.T
    grad_s = a * (grad_a - np.sum(a * grad_a, axis=-1, keepdims=True))
    return scale * grad_s @ k


def _gradient_cases(draw: Draw) -> list[Case]:
    def case(check: str, t: int, s: int, d: int, v: int, note: str = "") -> Case:
        return Case(check, (draw(t, d), draw(s, d), draw(s, v), draw(t, v)), note)

    return [
        case("one query", 1, 3, 4, 2),
        case("many queries", 4, 3, 5, 2),
        case("many queries", 3, 6, 2, 5),
        case("all sizes equal", 4, 4, 4, 4, "where a wrong transpose has the right shape"),
    ]


def _through_softmax(a: Array, grad_a: Array) -> Array:
    return a * (grad_a - np.sum(a * grad_a, axis=-1, keepdims=True))


def _gradient_with(back: Any = _through_softmax, scale_back: float | None = None, times: float = 1.0) -> Any:
    """The answer with another way back through the softmax, another scale on the way back, or a factor."""

    def wrong(q: Array, k: Array, v: Array, wanted: Array) -> Array:
        scale = 1 / np.sqrt(q.shape[-1])
        a = softmax(scale * q @ k.T)
        grad_s = back(a, (a @ v - wanted) @ v.T)
        return times * (scale if scale_back is None else scale_back) * grad_s @ k

    return wrong


def _no_scale_at_all(q: Array, k: Array, v: Array, wanted: Array) -> Array:
    a = softmax(q @ k.T)
    return _through_softmax(a, (a @ v - wanted) @ v.T) @ k


def _stop_at_scores(q: Array, k: Array, v: Array, wanted: Array) -> Array:
    a = softmax(q @ k.T / np.sqrt(q.shape[-1]))
    return _through_softmax(a, (a @ v - wanted) @ v.T)


def _gradient_of_keys(q: Array, k: Array, v: Array, wanted: Array) -> Array:
    return _stop_at_scores(q, k, v, wanted).T @ q / np.sqrt(q.shape[-1])


def _gradient_of_values(q: Array, k: Array, v: Array, wanted: Array) -> Array:
    a = softmax(q @ k.T / np.sqrt(q.shape[-1]))
    return a.T @ (a @ v - wanted)


def _wanted_forgotten(q: Array, k: Array, v: Array, wanted: Array) -> Array:
    return query_gradient(q, k, v, np.zeros_like(wanted))


def _mean_over_numbers(q: Array, k: Array, v: Array, wanted: Array) -> Array:
    return query_gradient(q, k, v, wanted) / wanted.size


def _mean_over_queries(q: Array, k: Array, v: Array, wanted: Array) -> Array:
    return query_gradient(q, k, v, wanted) / len(q)


def _squares_sent_back(q: Array, k: Array, v: Array, wanted: Array) -> Array:
    a = softmax(q @ k.T / np.sqrt(q.shape[-1]))
    return _through_softmax(a, (a @ v - wanted) ** 2 @ v.T) @ k / np.sqrt(q.shape[-1])


def _loss_of(q: Array, k: Array, v: Array, wanted: Array) -> float:
    return float(np.sum((softmax(q @ k.T / np.sqrt(q.shape[-1])) @ v - wanted) ** 2) / 2)


def _gradient_by_differences(q: Array, k: Array, v: Array, wanted: Array) -> Array:
    grad = np.zeros_like(q)
    for place in np.ndindex(q.shape):
        step = np.zeros_like(q)
        step[place] = 1e-5
        grad[place] = (_loss_of(q + step, k, v, wanted) - _loss_of(q - step, k, v, wanted)) / 2e-5
    return grad


def _gradient_row_by_row(q: Array, k: Array, v: Array, wanted: Array) -> Array:
    rows = []
    for one, target in zip(q, wanted, strict=True):
        a = softmax(k @ one / np.sqrt(len(one)))
        rows.append((np.diag(a) - np.outer(a, a)) @ (v @ (a @ v - target)) @ k / np.sqrt(len(one)))
    return np.array(rows)


def _gradient_einsum(q: Array, k: Array, v: Array, wanted: Array) -> Array:
    a = softmax(q @ k.T / np.sqrt(q.shape[-1]))
    jacobian = np.einsum("ti,ij->tij", a, np.eye(len(k))) - np.einsum("ti,tj->tij", a, a)
    return np.einsum("tv,sv,tsj,jk->tk", a @ v - wanted, v, jacobian, k) / np.sqrt(q.shape[-1])


QUERY_GRADIENT = Exercise(
    id="05.6",
    title="The gradient that reaches the queries",
    answer="course_lib.exercises.u05.query_gradient",
    minutes=20,
    outcomes=("05-b", "05-d"),
    checks=(Check("one query", 2), Check("many queries", 2), Check("all sizes equal")),
    cases=_gradient_cases,
    hints=(
        "Go back through the formula from its end: L from y, y from the weights, the weights from the scores, scores from q.",
        "∂L/∂y = y - wanted; ∂L/∂a = (y - wanted) vᵀ; through the softmax: a_i (g_i - Σ_j a_j g_j), row by row, g = ∂L/∂a.",
        "With grad_s the gradient for the scaled scores, q receives grad_s @ k, times the scale once more.",
    ),
    misconceptions=(
        Misconception(
            "scale forgotten on the way back",
            _gradient_with(scale_back=1.0),
            "The scale stands between q and the scores, so the gradient passes it as well: times 1/√d_k on the way back.",
            LEARN,
        ),
        Misconception(
            "no scale at all",
            _no_scale_at_all,
            "These are the gradients of attention without a scale: the scores want to be divided by √d_k first.",
            LEARN,
        ),
        Misconception(
            "diagonal of the Jacobian",
            _gradient_with(lambda a, g: a * (1 - a) * g),
            "You used a (1 - a) alone. Each score moves all weights of its row: a_i (g_i - Σ_j a_j g_j).",
            JACOBIAN,
        ),
        Misconception(
            "softmax skipped",
            _gradient_with(lambda a, g: g),
            "The gradient went past the softmax as if it were not there: multiply with its Jacobian.",
            JACOBIAN,
        ),
        Misconception(
            "row sum forgotten",
            _gradient_with(lambda a, g: a * g),
            "a_i g_i is half of it: the sum under the fraction moves, too. Subtract a_i Σ_j a_j g_j.",
            JACOBIAN,
        ),
        Misconception(
            "sum over the queries",
            _gradient_with(lambda a, g: a * (g - np.sum(a * g, axis=0, keepdims=True))),
            "The sum ran over the queries. Each row has a softmax of its own: sum along the row, over the keys.",
            JACOBIAN,
        ),
        Misconception(
            "sum without weights",
            _gradient_with(lambda a, g: a * (g - np.sum(g, axis=-1, keepdims=True))),
            "The sum lacks its weights: subtract Σ_j a_j g_j, the average of g under the weights.",
            JACOBIAN,
        ),
        Misconception(
            "plain mean",
            _gradient_with(lambda a, g: a * (g - np.mean(g, axis=-1, keepdims=True))),
            "You subtracted the plain mean of the row. It is the mean under the weights: Σ_j a_j g_j.",
            JACOBIAN,
        ),
        Misconception(
            "sign flipped",
            _gradient_with(times=-1.0),
            "The sign is flipped: ∂L/∂y is y - wanted. (Descent takes the minus later, when it makes a step.)",
            LEARN,
        ),
        Misconception(
            "twice",
            _gradient_with(times=2.0),
            "Twice too large: the ½ in the loss cancels the 2 of the square.",
            LEARN,
        ),
        Misconception(
            "mean over the queries",
            _mean_over_queries,
            "You divided by the number of queries, as the lecture's mean does. Here the loss is a sum.",
            LEARN,
        ),
        Misconception(
            "mean over all numbers",
            _mean_over_numbers,
            "You took the mean over all numbers of y. Here the loss is a sum.",
            LEARN,
        ),
        Misconception(
            "target forgotten",
            _wanted_forgotten,
            "`wanted` has no effect: the gradient starts from y - wanted, not from y.",
            LEARN,
        ),
        Misconception(
            "gradient of the scores",
            _stop_at_scores,
            "This is the gradient for the scores, (T, S). One step is left: each score is a product of q with a key.",
            LEARN,
        ),
        Misconception(
            "gradient of the keys",
            _gradient_of_keys,
            "This is what reaches the keys, grad_sᵀ q. The queries receive grad_s k.",
            LEARN,
        ),
        Misconception(
            "gradient of the values",
            _gradient_of_values,
            "This is what reaches the values, aᵀ (y - wanted). The way to the queries leads through the softmax.",
            LEARN,
        ),
        Misconception(
            "multiplied on the way back",
            lambda q, k, v, wanted: query_gradient(q, k, v, wanted) * q.shape[-1],
            "Forward the scores are divided by √d_k, and you multiplied by it on the way back. A factor is the same in both directions.",
            LEARN,
        ),
        Misconception(
            "weights forgotten",
            _gradient_with(lambda a, g: g - np.sum(a * g, axis=-1, keepdims=True)),
            "The bracket is right, and the a_i in front of it is missing: a_i (g_i - Σ_j a_j g_j).",
            JACOBIAN,
        ),
        Misconception(
            "bracket lost",
            _gradient_with(lambda a, g: a * g - np.sum(a * g, axis=-1, keepdims=True)),
            "The weights multiply the whole bracket, the sum too: a_i (g_i - Σ_j a_j g_j).",
            JACOBIAN,
        ),
        Misconception(
            "plus the sum",
            _gradient_with(lambda a, g: a * (g + np.sum(a * g, axis=-1, keepdims=True))),
            "The sum is subtracted, not added: a score that rises takes from all other weights.",
            JACOBIAN,
        ),
        Misconception(
            "one sum for all queries",
            _gradient_with(lambda a, g: a * (g - np.sum(a * g))),
            "You subtracted one sum over the whole table. Each row has its own: axis=-1, keepdims=True.",
            JACOBIAN,
        ),
        Misconception(
            "one Jacobian for all queries",
            _gradient_with(lambda a, g: g @ (np.diag(a[0]) - np.outer(a[0], a[0]))),
            "You used the Jacobian of the first query for all. Each query has weights of its own, and so a Jacobian of its own.",
            JACOBIAN,
        ),
        Misconception(
            "squared error sent back",
            _squares_sent_back,
            "The gradient starts from y - wanted, without the square: the derivative of ½ x² is x.",
            LEARN,
        ),
        Misconception(
            "summed over the queries",
            lambda q, k, v, wanted: query_gradient(q, k, v, wanted).sum(axis=0),
            "You added up what reaches the queries. Each query has a gradient of its own: (T, d_k).",
            LEARN,
        ),
        Misconception(
            "transposed",
            lambda q, k, v, wanted: query_gradient(q, k, v, wanted).T,
            "The numbers are right, and queries became columns. A gradient has the shape of what it belongs to: (T, d_k).",
            LEARN,
        ),
    ),
    alternatives=(_gradient_by_differences, _gradient_row_by_row, _gradient_einsum),
)


# --- 05.7 ---------------------------------------------------------------------------------------------------


def which_models_learn() -> Any:
    """Five models as in the lecture, 300 steps each. True if it finds (nearly) all words by then, with a loss near 0.

    1. d_k = 512, scores divided by √512, step size 30        2. d_k = 512, no scale, step size 30
    3. d_k = 512, no scale, step size 0.01                    4. d_k = 4, no scale, step size 30
    5. d_k = 512, scores divided by 512, step size 30
    Return them as a list of five.
    """
    return [True, False, False, True, False]


WHICH_LEARN = Exercise(
    id="05.7",
    title="Which models learn?",
    answer="course_lib.exercises.u05.which_models_learn",
    minutes=3,
    outcomes=("05-d",),
    checks=(Check("the five predictions"),),
    cases=lambda draw: [Case("the five predictions")],
    hints=(
        "Ask of each model how far its scores spread at the start: much more than 1, about 1, or much less than 1?",
        "Spread 1, 22.6, 22.6, 2 and 0.04. A saturated softmax passes no gradient, whatever the step size.",
        "Spread 2 is not yet saturated. Spread 0.04 is not stuck, and is far too slow for 300 steps of this size.",
    ),
    misconceptions=(
        Misconception(
            "a smaller step mends it",
            lambda: [True, False, True, True, False],
            "A smaller step makes a gradient of nearly 0 smaller still. The lecture tried nine step sizes: none helped.",
            LEARN,
        ),
        Misconception(
            "never without a scale",
            lambda: [True, False, False, False, False],
            "With d_k = 4 bare scores spread by 2 only. That does not saturate: small widths do without a scale.",
            LEARN,
        ),
        Misconception(
            "any divisor will do",
            lambda: [True, False, False, True, True],
            "Divided by 512 the scores are all near 0 and change 512 times more slowly than with √512: 300 steps are too few.",
            LEARN,
        ),
        Misconception(
            "everything learns",
            lambda: [True, True, True, True, True],
            "Without the scale, scores at d_k = 512 spread by 22.6: softmax saturates and hardly any gradient is left.",
            LEARN,
        ),
        Misconception(
            "only the smaller step",
            lambda: [True, False, True, False, False],
            "Neither: a smaller step does not bring a vanished gradient back, and d_k = 4 does not need the scale.",
            LEARN,
        ),
        Misconception(
            "upside down",
            lambda: [False, True, True, False, True],
            "All five are turned around: the scale is what lets a wide model learn.",
            LEARN,
        ),
        Misconception(
            "only at first sight",
            lambda: [True, True, False, True, False],
            "Number 2 spreads by 22.6: softmax saturates, and a large step trades one wrong key for another.",
            LEARN,
        ),
        Misconception(
            "two rescues",
            lambda: [True, False, True, True, True],
            "Two are too hopeful: a smaller step does not bring back a vanished gradient, and divided by 512, 300 steps are too few.",
            LEARN,
        ),
        Misconception(
            "width feared, divisor trusted",
            lambda: [True, False, False, False, True],
            "4 and 5 are turned around: at d_k = 4 bare scores spread by 2 only, and divided by 512 they hardly move in 300 steps.",
            LEARN,
        ),
    ),
    prediction=True,
)

EXERCISES = (SPREAD, VARIANCES, STABLE_SOFTMAX, JACOBIAN_EXERCISE, SCALED, QUERY_GRADIENT, WHICH_LEARN)
