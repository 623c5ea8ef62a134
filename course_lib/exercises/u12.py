"""Unit 12, what attention costs: counts, the online softmax, patterns, Linformer, segments with a memory; in torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .declare import Case, Check, Draw, Exercise, Misconception

COST = ("12", "A layer costs n²d + nd²")
DOUBLE = ("12", "Doubling the words doubles some costs and quadruples others")
ONLINE = ("12", "A softmax can be computed piece by piece")
TILED = ("12", "Tiles give the same numbers in less memory")
PATTERN = ("12", "A pattern leaves pairs out")
ERROR = ("12", "What is left out becomes an error")
LOW_RANK = ("12", "Linformer mixes the keys before anybody asks")
MEMORY = ("12", "Transformer-XL carries a memory from segment to segment")


# --- 12.1 ---------------------------------------------------------------------------------------------------


def pairs_against_width() -> Any:
    """How many times n·d² is n²·d? Pencil and paper, for d = 1,000.

    Return the ratio n²d / (nd²) for a sentence of n = 30 words, a bound of n = 512 and a document of n = 10,000,
    as a list; then a second list: the factor by which n²d, nd², and the n × n weights in memory grow when n
    doubles and d stays.
    """
    return [0.03, 0.512, 10], [4, 2, 4]


RATIOS = Exercise(
    id="12.1",
    title="Which part is the larger one?",
    answer="course_lib.exercises.u12.pairs_against_width",
    minutes=4,
    outcomes=("12-c",),
    checks=(Check("two lists of three", 2),),
    cases=lambda draw: [Case("two lists of three")],
    hints=(
        "Write both products out, n·n·d and n·d·d, and cancel what they share.",
        "What is left is n / d. For the second list: replace n by 2n in each product, and leave d alone.",
        "(2n)²d is four times n²d, and 2n·d² is twice nd². The weights have a row for each query and a column for each key.",
    ),
    misconceptions=(
        Misconception(
            "upside down",
            lambda: ([1000 / 30, 1000 / 512, 0.1], [4, 2, 4]),
            "The growth is right. The ratio is upside down: n²d / (nd²) is n / d, small for short sentences.",
            COST,
        ),
        Misconception(
            "weights twice as large",
            lambda: ([0.03, 0.512, 10], [4, 2, 2]),
            "The ratios are right. The weights have n rows and n columns, so twice the words are four times the numbers.",
            COST,
        ),
        Misconception(
            "everything quadratic",
            lambda: ([0.03, 0.512, 10], [4, 4, 4]),
            "The ratios are right. The projections treat each word alone: n·d² has one n, and doubles.",
            COST,
        ),
        Misconception(
            "everything doubles",
            lambda: ([0.03, 0.512, 10], [2, 2, 2]),
            "The ratios are right. Only nd² doubles: n²d and the n × n weights have n twice, so they become four times as large.",
            COST,
        ),
        Misconception(
            "growth exchanged",
            lambda: ([0.03, 0.512, 10], [2, 4, 4]),
            "The ratios are right. In the second list, n²d and nd² are exchanged: d stays, and n stands squared in the first.",
            COST,
        ),
        Misconception(
            "percent",
            lambda: ([3, 51.2, 1000], [4, 2, 4]),
            "The growth is right. The ratios are a hundred times too large: percent were not asked for.",
            COST,
        ),
        Misconception(
            "squared",
            lambda: ([0.0009, 0.512**2, 100], [4, 2, 4]),
            "The growth is right. You squared the ratio: n·n·d / (n·d·d) cancels to n / d, without a square.",
            COST,
        ),
        Misconception(
            "share of the whole",
            lambda: ([30 / 1030, 512 / 1512, 10 / 11], [4, 2, 4]),
            "The growth is right. You gave the share of the sum, n / (n + d). Asked is one part against the other, n / d.",
            COST,
        ),
    ),
    prediction=True,
)


# --- 12.2 ---------------------------------------------------------------------------------------------------


def growth_exponent(lengths: Tensor, costs: Tensor) -> Tensor:
    """The p of cost ≈ c·nᵖ, measured: the slope of log cost over log n, one number.

    lengths and costs are (m,), positive, m of 2 or more; lengths are not in any order and not evenly spaced.
    Fit log cost = p · log n + b by least squares over all m points, and return p: 1 is linear, 2 is quadratic.
    """
    x = lengths.log() - lengths.log().mean()
    y = costs.log() - costs.log().mean()
    return (x * y).sum() / (x * x).sum()


def _exponent_cases(draw: Draw) -> list[Case]:
    def case(check: str, lengths: list[float], power: float, noise: float, note: str = "") -> Case:
        n = torch.tensor(lengths, dtype=torch.float64)
        c = float(draw.rng.uniform(2, 9))
        return Case(check, (n, c * n**power * (noise * draw.tensor(len(lengths))).exp()), note)

    exact, noisy = "an exact power", "measured, with noise"
    disturbed = case(noisy, [64, 512, 128, 256], 1, 0.1, "one run was disturbed, and took longer than the longest")
    disturbed.args[1][2] *= 8
    return [
        case(exact, [4, 16], 1, 0, "two lengths, linear"),
        case(exact, [8, 64, 16], 2, 0, "quadratic"),
        case(noisy, [100, 3200, 150, 800, 400], 1.7, 0.15),
        case(noisy, [700, 90, 5000, 2000, 60, 300], 0.8, 0.2),
        disturbed,
    ]


def _slope(x: Tensor, y: Tensor) -> Tensor:
    x = x - x.mean()
    return (x * (y - y.mean())).sum() / (x * x).sum()


def _through_origin(n: Tensor, c: Tensor) -> Tensor:
    return (n.log() * c.log()).sum() / (n.log() ** 2).sum()


def _by_doublings(n: Tensor, c: Tensor) -> Tensor:
    order = n.argsort()
    return ((c[order][1:] / c[order][:-1]).log() / (n[order][1:] / n[order][:-1]).log()).mean()


def _between_the_ends(n: Tensor, c: Tensor) -> Tensor:
    low, high = n.argmin(), n.argmax()
    return (c[high] / c[low]).log() / (n[high] / n[low]).log()


def _first_and_last(n: Tensor, c: Tensor) -> Tensor:
    return (c[-1] / c[0]).log() / (n[-1] / n[0]).log()


def _lstsq(n: Tensor, c: Tensor) -> Any:
    table = torch.stack([n.log(), torch.ones_like(n)], dim=1)
    return torch.linalg.lstsq(table, c.log()[:, None]).solution[0, 0]


def _covariance(n: Tensor, c: Tensor) -> Any:
    both = torch.cov(torch.stack([n.log2(), c.log2()]))
    return float(both[0, 1] / both[0, 0])


EXPONENT = Exercise(
    id="12.2",
    title="Measure the exponent",
    answer="course_lib.exercises.u12.growth_exponent",
    minutes=8,
    outcomes=("12-c",),
    checks=(Check("an exact power"), Check("measured, with noise", 2)),
    cases=_exponent_cases,
    hints=(
        "Take logarithms: log(c·nᵖ) = p · log n + log c. That is a straight line, and p is its slope.",
        "The slope of least squares is Σ (x − mean x)(y − mean y) / Σ (x − mean x)², with x = log n and y = log cost.",
        "x = lengths.log(); y = costs.log(); subtract from each its mean; then (x * y).sum() / (x * x).sum().",
    ),
    misconceptions=(
        Misconception(
            "no logarithms",
            _slope,
            "This is the slope of cost over n: seconds per word. An exponent is a slope between logarithms.",
            DOUBLE,
        ),
        Misconception(
            "logarithm of the costs only",
            lambda n, c: _slope(n, c.log()),
            "You took the logarithm of the costs, not of the lengths: that fits an exponential, c·e^(pn).",
            DOUBLE,
        ),
        Misconception(
            "logarithm of the lengths only",
            lambda n, c: _slope(n.log(), c),
            "You took the logarithm of the lengths, not of the costs. Both need one.",
            DOUBLE,
        ),
        Misconception(
            "axes swapped",
            lambda n, c: _slope(c.log(), n.log()),
            "This is log n over log cost. The cost stands above: how much does it change when n changes?",
            DOUBLE,
        ),
        Misconception(
            "through the origin",
            _through_origin,
            "This line is forced through the origin, as if c were 1. Subtract the means first: c is free.",
            DOUBLE,
        ),
        Misconception(
            "the factor of a doubling",
            lambda n, c: 2 ** _slope(n.log(), c.log()),
            "This is 2ᵖ, by what the cost grows when n doubles. Asked is p itself.",
            DOUBLE,
        ),
        Misconception(
            "the constant",
            lambda n, c: c.log().mean() - _slope(n.log(), c.log()) * n.log().mean(),
            "You returned where the line meets the axis, log c. Asked is its slope.",
            DOUBLE,
        ),
        Misconception(
            "the two ends only",
            _between_the_ends,
            "You used the shortest and the longest only, so one noisy run decides. Least squares uses all points.",
            DOUBLE,
        ),
        Misconception(
            "first and last as they come",
            _first_and_last,
            "You used the first and the last number, and they are not sorted. Least squares uses all points, in any order.",
            DOUBLE,
        ),
        Misconception(
            "mean of the neighbours' slopes",
            _by_doublings,
            "You averaged the slopes between neighbours: in that mean, two close lengths count as much as two distant "
            "ones. Fit one line to all.",
            DOUBLE,
        ),
        Misconception(
            "quotient of the logarithms",
            lambda n, c: (c.log() / n.log()).mean(),
            "You divided logarithms of costs by those of lengths. That is p only if c is 1: a slope divides differences.",
            DOUBLE,
        ),
        Misconception(
            "rounded",
            lambda n, c: _slope(n.log(), c.log()).round(),
            "You rounded. Measured exponents are no whole numbers, and how far they are from one is worth knowing.",
            DOUBLE,
        ),
        Misconception(
            "sorted apart",
            lambda n, c: _slope(n.sort().values.log(), c.sort().values.log()),
            "You sorted lengths and costs apart, so a cost may meet another length. Least squares needs no order: leave the pairs.",
            DOUBLE,
        ),
        Misconception(
            "divided by m above, by m − 1 below",
            lambda n, c: ((n.log() - n.log().mean()) * (c.log() - c.log().mean())).mean() / n.log().var(),
            "torch's var divides by m − 1, and your mean by m: the two must be alike, or sums in both places.",
            DOUBLE,
        ),
        Misconception(
            "the correlation",
            lambda n, c: torch.corrcoef(torch.stack([n.log(), c.log()]))[0, 1],
            "This is the correlation: it says how straight the line is, and not how steep.",
            DOUBLE,
        ),
    ),
    alternatives=(
        _lstsq,
        _covariance,
        lambda n, c: _slope(n.log10(), c.log10()),
        lambda n, c: torch.cov(torch.stack([n.log(), c.log()]))[0, 1] / n.log().var(),
    ),
)


# --- 12.3 ---------------------------------------------------------------------------------------------------


def absorb_tile(
    top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One tile more for the online softmax: the new (top, total, out).

    Of the keys read so far, top (T, 1) is each query's largest score, total (T, 1) is Σ e^(score − top), and
    out (T, V) is Σ e^(score − top) · value. Before the first tile they are −∞, 0 and 0.
    scores (T, s) and values (s, V) belong to the next s keys; a score of −∞ is masked. Return the three for all
    keys up to these; do not divide. A query that has still seen no key keeps −∞, 0 and 0 (no NaN). Change no input.
    """
    higher = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
    base = higher.masked_fill(higher == -math.inf, 0.0)
    worth = (top - base).exp()
    weights = (scores - base).exp()
    return higher, total * worth + weights.sum(dim=-1, keepdim=True), out * worth + weights @ values


def _state(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Maximum, sum and output over some keys, by the definition."""
    top = scores.amax(dim=-1, keepdim=True)
    weights = (scores - top.masked_fill(top == -math.inf, 0.0)).exp()
    return top, weights.sum(dim=-1, keepdim=True), weights @ values


def _tile_cases(draw: Draw) -> list[Case]:
    first, higher, lower, large, empty = (
        "the first tile",
        "the maximum grows",
        "the maximum stays",
        "large scores",
        "a query that has seen nothing",
    )

    def case(check: str, t: int, before: int, s: int, width: int, shift: float, note: str, size: float = 1.0) -> Case:
        old = _state(draw.tensor(t, before, size=size), draw.tensor(before, width)) if before else (
            torch.full((t, 1), -math.inf, dtype=torch.float64),
            torch.zeros(t, 1, dtype=torch.float64),
            torch.zeros(t, width, dtype=torch.float64),
        )  # fmt: skip
        return Case(check, (*old, draw.tensor(t, s, size=size) + shift, draw.tensor(s, width)), note)

    mixed = case(empty, 4, 2, 3, 2, 0.0, "the first query sees nothing, the second only now, the third only before")
    top, total, out, scores, _ = mixed.args
    for row in (0, 1):
        top[row], total[row], out[row] = -math.inf, 0.0, 0.0
    scores[0], scores[2] = -math.inf, -math.inf
    return [
        case(first, 1, 0, 2, 3, 0.0, "one query, the first two keys"),
        case(first, 3, 0, 4, 2, 1.0, "the first tile"),
        case(higher, 1, 2, 1, 2, 5.0, "one query, and a key with a larger score"),
        case(higher, 4, 5, 3, 2, 4.0, "larger scores"),
        case(lower, 2, 4, 3, 5, -6.0, "smaller scores"),
        case(large, 3, 4, 2, 5, 0.0, "scores in the hundreds", 400.0),
        mixed,
    ]


Step = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Any]


def _tile_mistake(
    worth_total: Callable[[Tensor, Tensor], Tensor] = lambda top, base: (top - base).exp(),
    worth_out: Callable[[Tensor, Tensor], Tensor] = lambda top, base: (top - base).exp(),
) -> Step:
    def wrong(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
        higher = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
        base = higher.masked_fill(higher == -math.inf, 0.0)
        weights = (scores - base).exp()
        new_total = total * worth_total(top, base) + weights.sum(dim=-1, keepdim=True)
        return higher, new_total, out * worth_out(top, base) + weights @ values

    return wrong


def _kept(top: Tensor, base: Tensor) -> Tensor:
    return torch.ones_like(top)


def _upside_down(top: Tensor, base: Tensor) -> Tensor:
    return (base - top.masked_fill(top == -math.inf, 0.0)).exp()


def _tile_only(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    return _state(scores, values)


def _tile_maximum(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    new = scores.amax(dim=-1, keepdim=True)
    base = new.masked_fill(new == -math.inf, 0.0)
    worth, weights = (top - base).exp(), (scores - base).exp()
    return new, total * worth + weights.sum(dim=-1, keepdim=True), out * worth + weights @ values


def _own_maximum(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    _, new_total, new_out = _state(scores, values)
    return torch.maximum(top, scores.amax(dim=-1, keepdim=True)), total + new_total, out + new_out


def _divided(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    higher, new_total, new_out = absorb_tile(top, total, out, scores, values)
    return higher, new_total, new_out / new_total.masked_fill(new_total == 0, 1.0)


def _averages(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    higher, new_total, _ = absorb_tile(top, total, out, scores, values)
    _, tile_total, tile_out = _state(scores, values)
    return higher, new_total, out + tile_out / tile_total.masked_fill(tile_total == 0, 1.0)


def _one_maximum(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    higher = torch.maximum(top, scores.max())
    worth, weights = (top - higher).exp(), (scores - higher).exp()
    return higher, total * worth + weights.sum(dim=-1, keepdim=True), out * worth + weights @ values


def _no_maximum(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    higher = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
    return higher, total + scores.exp().sum(dim=-1, keepdim=True), out + scores.exp() @ values


def _nan_where_empty(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    higher = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
    worth, weights = (top - higher).exp(), (scores - higher).exp()
    return higher, total * worth + weights.sum(dim=-1, keepdim=True), out * worth + weights @ values


def _counted(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    higher, _, new_out = absorb_tile(top, total, out, scores, values)
    return higher, total + scores.shape[-1], new_out


def _new_part_too(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    higher = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
    base = higher.masked_fill(higher == -math.inf, 0.0)
    worth, weights = (top - base).exp(), (scores - base).exp()
    return higher, (total + weights.sum(dim=-1, keepdim=True)) * worth, (out + weights @ values) * worth


def _old_maximum(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    higher = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
    weights = (scores - top.masked_fill(top == -math.inf, 0.0)).exp()
    return higher, total + weights.sum(dim=-1, keepdim=True), out + weights @ values


def _top_kept(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    return top, *absorb_tile(top, total, out, scores, values)[1:]


def _sums_in_place(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    higher, new_total, new_out = absorb_tile(top, total, out, scores, values)
    return higher, total.copy_(new_total), out.copy_(new_out)


def _in_place(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    higher, new_total, new_out = absorb_tile(top, total, out, scores, values)
    return top.copy_(higher), total.copy_(new_total), out.copy_(new_out)


def _through_lse(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    higher = torch.cat([top, scores], dim=-1).amax(dim=-1, keepdim=True)
    safe = torch.nan_to_num(higher, neginf=0.0)
    everything = torch.cat([total.log() + top - safe, scores - safe], dim=-1)
    return (
        higher,
        everything.logsumexp(dim=-1, keepdim=True).exp(),
        out * (top - safe).exp() + (scores - safe).exp() @ values,
    )


def _row_by_row(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    rows = []
    for m, s, o, row in zip(top[:, 0].tolist(), total[:, 0].tolist(), out, scores.tolist(), strict=True):
        new = max([m, *row])
        if new == -math.inf:
            rows.append((torch.tensor([m]), torch.tensor([s]), o))
            continue
        shares = [math.exp(x - new) for x in row]
        mixed = o * math.exp(m - new) + sum((w * v for w, v in zip(shares, values, strict=True)), torch.zeros_like(o))
        rows.append((torch.tensor([new]), torch.tensor([s * math.exp(m - new) + sum(shares)]), mixed))
    return tuple(torch.stack([row[part] for row in rows]) for part in range(3))


def _key_by_key(top: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> Any:
    for score, value in zip(scores.mT[..., None], values, strict=True):
        higher = torch.maximum(top, score)
        old = torch.where(top == -math.inf, 0.0, (top - higher).exp())
        new = torch.where(score == -math.inf, 0.0, (score - higher).exp())
        top, total, out = higher, total * old + new, out * old + new * value
    return top, total, out


TILE = Exercise(
    id="12.3",
    title="The online softmax: one tile more",
    answer="course_lib.exercises.u12.absorb_tile",
    minutes=14,
    outcomes=("12-d",),
    checks=(
        Check("the first tile"),
        Check("the maximum grows", 2),
        Check("the maximum stays"),
        Check("large scores"),
        Check("a query that has seen nothing"),
    ),
    cases=_tile_cases,
    hints=(
        "First the new maximum: the larger of top and the tile's own, for each query. Everything is then told relative "
        "to it.",
        "What was summed relative to the old maximum is worth e^(old − new) as much. Multiply total and out by that "
        "factor, then add the tile's weights e^(score − new), and those times the values.",
        "higher = torch.maximum(top, scores.amax(-1, keepdim=True)); worth = (top - higher).exp(); "
        "weights = (scores - higher).exp(). Where higher is still −∞, subtract 0 instead: −∞ − (−∞) is NaN.",
    ),
    misconceptions=(
        Misconception(
            "nothing rescaled",
            _tile_mistake(_kept, _kept),
            "What was summed before is still relative to the old maximum. When the maximum grows to m', multiply the old "
            "sum and the old output by e^(m − m').",
            ONLINE,
        ),
        Misconception(
            "output not rescaled",
            _tile_mistake(worth_out=_kept),
            "The sum is rescaled, the output is not: its old part is too large by e^(m' − m). Both need the factor.",
            ONLINE,
        ),
        Misconception(
            "sum not rescaled",
            _tile_mistake(worth_total=_kept),
            "The output is rescaled, the sum is not: in the end you would divide by too much. Both need the factor.",
            ONLINE,
        ),
        Misconception(
            "factor upside down",
            _tile_mistake(_upside_down, _upside_down),
            "The factor is upside down: a larger maximum makes what came before worth less, e^(old − new), at most 1.",
            ONLINE,
        ),
        Misconception(
            "the tile alone",
            _tile_only,
            "This is the softmax of the new tile: all keys before it are forgotten.",
            ONLINE,
        ),
        Misconception(
            "the tile's maximum",
            _tile_maximum,
            "You took the tile's maximum as the new one, even where it is smaller. The running maximum never falls: with "
            "scores in the hundreds, e^(old − new) would overflow.",
            ONLINE,
        ),
        Misconception(
            "each tile relative to its own maximum",
            _own_maximum,
            "The tile's weights are relative to the tile's own maximum, the older ones to theirs: they cannot be added. "
            "Bring both to the common maximum first.",
            ONLINE,
        ),
        Misconception(
            "divided already",
            _divided,
            "The output is divided by the sum already. The next tile would be added to an average: divide once, after "
            "the last tile.",
            ONLINE,
        ),
        Misconception(
            "averages added",
            _averages,
            "You added the tile's average, its own softmax, to the output. Averages of pieces do not add up: keep "
            "undivided sums.",
            ONLINE,
        ),
        Misconception(
            "one maximum for all queries",
            _one_maximum,
            "The maximum runs over the whole tile. Each query has its own: take it along the row.",
            ONLINE,
        ),
        Misconception(
            "no maximum subtracted",
            _no_maximum,
            "You added e^score without subtracting the maximum: it overflows for large scores (unit 05), and does not fit "
            "what was summed before.",
            ONLINE,
        ),
        Misconception(
            "NaN where nothing was seen",
            _nan_where_empty,
            "Right, except where a query has seen no key yet: −∞ − (−∞) is NaN. Subtract 0 there, or start from a very low "
            "finite number.",
            ONLINE,
        ),
        Misconception(
            "keys counted",
            _counted,
            "The second number counts keys. It is the sum of their weights, e^(score − maximum).",
            ONLINE,
        ),
        Misconception(
            "the new tile rescaled, too",
            _new_part_too,
            "The factor is applied after the tile was added. The tile's weights are relative to the new maximum already: "
            "rescale what came before, then add.",
            ONLINE,
        ),
        Misconception(
            "relative to the old maximum",
            _old_maximum,
            "The tile's weights are relative to the old maximum, while you return the new one. Large scores would overflow, "
            "too: bring everything to the new maximum.",
            ONLINE,
        ),
        Misconception(
            "the old maximum returned",
            _top_kept,
            "Sum and output are right, but you returned the old maximum. The next tile needs the one they are relative to.",
            ONLINE,
        ),
        Misconception(
            "sums in place",
            _sums_in_place,
            "The numbers are right, but *=, += or the like changed the total and out that were passed in. Return new tensors.",
            ONLINE,
        ),
        Misconception(
            "in place",
            _in_place,
            "The numbers are right, but you changed the tensors that were passed in. Return new ones.",
            ONLINE,
        ),
    ),
    alternatives=(_through_lse, _row_by_row, _key_by_key),
)


# --- 12.4 ---------------------------------------------------------------------------------------------------


def bigbird_mask(length: int, radius: int, count: int, random_keys: Tensor) -> Tensor:
    """BigBird's mask, (length, length) and boolean: True where query i (row) may attend to key j (column).

    A pair is allowed for any of three reasons: |i − j| ≤ radius; or query or key is one of the first `count`
    words, which are global: they see all, and all see them; or j is one of query i's random keys.
    random_keys is (length, r), whole numbers: row i are those of query i.
    """
    i = torch.arange(length)[:, None]
    j = torch.arange(length)[None, :]
    mask = ((i - j).abs() <= radius) | (i < count) | (j < count)
    return mask.scatter(1, random_keys, True)


def _bigbird_cases(draw: Draw) -> list[Case]:
    def case(check: str, n: int, radius: int, count: int, drawn: int, note: str = "") -> Case:
        rows = [draw.rng.permutation(n)[:drawn] for _ in range(n)]
        keys = torch.tensor([row.tolist() for row in rows], dtype=torch.long).reshape(n, drawn)
        if drawn:  # one key that neither a window nor a global word has, and whose mirror is not drawn
            keys[n - 1, 0], keys[2, :] = 2, 1
        return Case(check, (n, radius, count, keys), note)

    window, shared, drawn = "window", "global words", "random keys"
    return [
        case(window, 5, 1, 0, 0, "a window of radius 1 and nothing else"),
        case(window, 9, 3, 0, 0),
        case(shared, 6, 1, 1, 0, "and one global word"),
        case(shared, 9, 1, 4, 0),
        case(drawn, 7, 1, 0, 1, "and one random key for each query"),
        case(drawn, 12, 1, 2, 3),
    ]


def _bigbird(n: int, radius: int, count: int, keys: Tensor, **change: Callable[..., Tensor]) -> Tensor:
    """The answer with one part changed."""
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    near = change.get("near", lambda i, j, r: (i - j).abs() <= r)(i, j, radius)
    shared = change.get("shared", lambda i, j, g: (i < g) | (j < g))(i, j, count)
    drawn = torch.zeros(n, n, dtype=torch.bool).scatter(1, keys, True)
    drawn = change.get("drawn", lambda drawn: drawn)(drawn)
    return change.get("joined", lambda *masks: masks[0] | masks[1] | masks[2])(near, shared, drawn)


def _changed(**change: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda n, radius, count, keys: _bigbird(n, radius, count, keys, **change)


def _random_rows(n: int, radius: int, count: int, keys: Tensor) -> Tensor:
    mask = _bigbird(n, radius, count, keys[:, :0])
    mask[:, keys.flatten()] = True
    return mask


def _in_loops(n: int, radius: int, count: int, keys: Tensor) -> Any:
    return [[abs(i - j) <= radius or min(i, j) < count or j in keys[i].tolist() for j in range(n)] for i in range(n)]


def _filled(n: int, radius: int, count: int, keys: Tensor) -> Any:
    ones = torch.ones(n, n, dtype=torch.bool)
    mask = ones.tril(radius) & ones.triu(-radius)
    mask[:count] = True
    mask[:, :count] = True
    mask[torch.arange(n)[:, None], keys] = True
    return mask


def _one_hot(n: int, radius: int, count: int, keys: Tensor) -> Any:
    place = torch.arange(n)
    drawn = (keys[:, :, None] == place).any(dim=1)
    near = torch.cdist(place[:, None].double(), place[:, None].double()) < radius + 0.5
    return near | drawn | (torch.minimum(place[:, None], place) < count)


BIGBIRD = Exercise(
    id="12.4",
    title="BigBird's pattern",
    answer="course_lib.exercises.u12.bigbird_mask",
    minutes=10,
    outcomes=("12-a",),
    checks=(Check("window"), Check("global words"), Check("random keys", 2)),
    cases=_bigbird_cases,
    hints=(
        "Two ranges that broadcast, i as a column and j as a row, give the distance of every pair.",
        "Three masks, joined by 'or': one reason is enough. Global is for rows and for columns.",
        "mask.scatter(1, random_keys, True) sets, in each row, the columns that the row of random_keys names.",
    ),
    misconceptions=(
        Misconception(
            "window too narrow",
            _changed(near=lambda i, j, r: (i - j).abs() < r),
            "The window is too narrow by one on each side: |i − j| ≤ radius, so a radius of 1 has three words.",
            PATTERN,
        ),
        Misconception(
            "radius taken for the width",
            _changed(near=lambda i, j, r: (i - j).abs() <= r // 2),
            "You took the radius for the whole width. It counts the words on each side.",
            PATTERN,
        ),
        Misconception(
            "window into the past only",
            _changed(near=lambda i, j, r: (i - j >= 0) & (i - j <= r)),
            "The window looks back only. BigBird's encoder looks both ways; only a decoder must not see the future.",
            PATTERN,
        ),
        Misconception(
            "window into the future only",
            _changed(near=lambda i, j, r: (j - i >= 0) & (j - i <= r)),
            "The window looks ahead only: a word also sees the radius words before it.",
            PATTERN,
        ),
        Misconception(
            "without itself",
            _changed(near=lambda i, j, r: ((i - j).abs() <= r) & (i != j)),
            "A word may attend to itself: the distance 0 is within every radius.",
            PATTERN,
        ),
        Misconception(
            "global words see, and nobody sees them",
            _changed(shared=lambda i, j, g: (i < g) | torch.zeros_like(j, dtype=torch.bool)),
            "Global words see all, but nobody sees them: what they collect reaches no one. Set the columns, too.",
            PATTERN,
        ),
        Misconception(
            "global words are seen, and do not see",
            _changed(shared=lambda i, j, g: torch.zeros_like(i, dtype=torch.bool) | (j < g)),
            "All see the global words, but those see only their neighbours and have nothing to tell. Set the rows, too.",
            PATTERN,
        ),
        Misconception(
            "global among themselves",
            _changed(shared=lambda i, j, g: (i < g) & (j < g)),
            "This joins global words only among themselves. Query *or* key is global, not both.",
            PATTERN,
        ),
        Misconception(
            "global words do not see each other",
            _changed(shared=lambda i, j, g: (i < g) ^ (j < g)),
            "Two global words do not see each other here: ^ is 'either, not both'. Query or key, or both: |.",
            PATTERN,
        ),
        Misconception(
            "one global word only",
            _changed(shared=lambda i, j, g: ((i < 1) | (j < 1)) & torch.tensor(g > 0)),
            "Only word 0 is global. The first `count` words are.",
            PATTERN,
        ),
        Misconception(
            "everything before",
            _changed(near=lambda i, j, r: j - i <= r),
            "Without .abs() the distance to earlier words is negative, and always small enough: all of them are seen.",
            PATTERN,
        ),
        Misconception(
            "everything after",
            _changed(near=lambda i, j, r: i - j <= r),
            "Without .abs() the distance to later words is negative, and always small enough: all of them are seen.",
            PATTERN,
        ),
        Misconception(
            "one random key each",
            lambda n, radius, count, keys: bigbird_mask(n, radius, count, keys[:, :1]),
            "Each query got its first random key only. Row i of random_keys has r of them.",
            PATTERN,
        ),
        Misconception(
            "one global word too many",
            _changed(shared=lambda i, j, g: (i <= g) | (j <= g)),
            "There is one global word too many: counted from 0, the first `count` words are those below `count`.",
            PATTERN,
        ),
        Misconception(
            "global words at the end",
            _changed(shared=lambda i, j, g: (i >= len(i) - g) | (j >= len(i) - g)),
            "You took the last words as global. It is the first `count`.",
            PATTERN,
        ),
        Misconception(
            "random keys in the column",
            _changed(drawn=lambda drawn: drawn.mT),
            "The random keys went into the columns: row i of random_keys names what query i sees, and a query is a row.",
            PATTERN,
        ),
        Misconception(
            "random both ways",
            _changed(drawn=lambda drawn: drawn | drawn.mT),
            "You let random keys look back at who drew them. Query i sees its random keys; they need not see it.",
            PATTERN,
        ),
        Misconception(
            "the same random keys for all",
            _random_rows,
            "Every query sees the random keys of all. Each row of random_keys belongs to one query.",
            PATTERN,
        ),
        Misconception(
            "random keys forgotten",
            _changed(drawn=torch.zeros_like),
            "The random keys are missing: row i of random_keys names more keys that query i may see.",
            PATTERN,
        ),
        Misconception(
            "all reasons at once",
            _changed(joined=lambda a, b, c: a & b & c),
            "You asked for all three reasons at once. One is enough: join with 'or'.",
            PATTERN,
        ),
        Misconception(
            "upside down",
            _changed(joined=lambda a, b, c: ~(a | b | c)),
            "Upside down: in this course True is 'may attend'.",
            PATTERN,
        ),
    ),
    alternatives=(_in_loops, _filled, _one_hot),
)


# --- 12.5 ---------------------------------------------------------------------------------------------------


def window_error(q: Tensor, k: Tensor, v: Tensor, radius: int) -> Tensor:
    """How wrong a window is: ‖windowed − exact‖ / ‖exact‖, one number.

    q and k are (T, K), v is (T, V). exact = softmax(q kᵀ / √K) v. For windowed, query i sees only keys with
    |i − j| ≤ radius: all other scores are −∞ before the softmax. ‖·‖ is the root of the sum of all squares of the
    T × V outputs.
    """
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    place = torch.arange(len(q))
    far = (place[:, None] - place).abs() > radius
    exact = scores.softmax(dim=-1) @ v
    windowed = scores.masked_fill(far, -math.inf).softmax(dim=-1) @ v
    return (windowed - exact).norm() / exact.norm()


def _error_cases(draw: Draw) -> list[Case]:
    def case(check: str, t: int, width: int, values: int, radius: int, note: str = "", size: float = 1.5) -> Case:
        q, k, v = draw.tensor(t, width, size=size), draw.tensor(t, width, size=size), draw.tensor(t, values)
        return Case(check, (q, k, v + 0.5, radius), note)

    small, large = "a window", "large scores"
    q, k, v = draw.tensor(6, 4, size=10.0), draw.tensor(6, 4, size=10.0), draw.tensor(6, 3)
    q, k = q + 25 * q.sign(), k + 25 * k.sign()  # at least 4 · 25² / √4 in size: its exponential is 0
    return [
        case(small, 3, 2, 1, 0, "three words, each sees only itself"),
        case(small, 6, 3, 4, 2),
        case(small, 9, 4, 2, 1),
        case(small, 5, 4, 3, 4, "radius T − 1: nothing is left out"),
        case(large, 7, 3, 5, 2, "scores in the hundreds", 20.0),
        Case(large, (q.abs(), -k.abs(), v, 1), "all scores are below −1000"),
    ]


def _outputs(
    q: Tensor, k: Tensor, v: Tensor, radius: int, hide: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Windowed and exact; `hide` makes weights of the scores and of what is far."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    place = torch.arange(len(q))
    return hide(scores, (place[:, None] - place).abs() > radius) @ v, scores.softmax(dim=-1) @ v


def _rightly(scores: Tensor, far: Tensor) -> Tensor:
    return scores.masked_fill(far, -math.inf).softmax(dim=-1)


def _measured(measure: Callable[[Tensor, Tensor], Any]) -> Callable[..., Any]:
    return lambda q, k, v, radius: measure(*_outputs(q, k, v, radius, _rightly))


def _hidden(hide: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    def wrong(q: Tensor, k: Tensor, v: Tensor, radius: int) -> Tensor:
        windowed, exact = _outputs(q, k, v, radius, hide)
        return (windowed - exact).norm() / exact.norm()

    return wrong


def _error_of_weights(q: Tensor, k: Tensor, v: Tensor, radius: int) -> Tensor:
    windowed, exact = _outputs(q, k, torch.eye(len(q), dtype=v.dtype), radius, _rightly)
    return (windowed - exact).norm() / exact.norm()


def _over_the_queries(q: Tensor, k: Tensor, v: Tensor, radius: int) -> Tensor:
    scores, place = q @ k.mT / math.sqrt(q.shape[-1]), torch.arange(len(q))
    far = (place[:, None] - place).abs() > radius
    exact, windowed = scores.softmax(dim=0) @ v, scores.masked_fill(far, -math.inf).softmax(dim=0) @ v
    return (windowed - exact).norm() / exact.norm()


def _ahead_without_end(q: Tensor, k: Tensor, v: Tensor, radius: int) -> Tensor:
    place = torch.arange(len(q))
    return _hidden(lambda scores, far: _rightly(scores, place[:, None] - place > radius))(q, k, v, radius)


def _unscaled(q: Tensor, k: Tensor, v: Tensor, radius: int) -> Tensor:
    return window_error(q * math.sqrt(q.shape[-1]), k, v, radius)


def _narrower(q: Tensor, k: Tensor, v: Tensor, radius: int) -> Tensor:
    place = torch.arange(len(q))
    near = (place[:, None] - place).abs() < max(radius, 1)
    return _hidden(lambda scores, far: _rightly(scores, ~near))(q, k, v, radius)


def _backwards_only(q: Tensor, k: Tensor, v: Tensor, radius: int) -> Tensor:
    place = torch.arange(len(q))
    back = place[:, None] - place
    return _hidden(lambda scores, far: _rightly(scores, (back < 0) | (back > radius)))(q, k, v, radius)


def _each_window(q: Tensor, k: Tensor, v: Tensor, radius: int) -> Any:
    rows = []
    for i, query in enumerate(q):
        near = slice(max(i - radius, 0), i + radius + 1)
        rows.append((k[near] @ query / math.sqrt(len(query))).softmax(dim=0) @ v[near])
    exact = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-1) @ v
    return float(torch.dist(torch.stack(rows), exact) / exact.norm())


def _afterwards_renormalised(q: Tensor, k: Tensor, v: Tensor, radius: int) -> Any:
    def hide(scores: Tensor, far: Tensor) -> Tensor:
        weights = (scores - scores.masked_fill(far, -math.inf).amax(dim=-1, keepdim=True)).exp().masked_fill(far, 0.0)
        return weights / weights.sum(dim=-1, keepdim=True)

    windowed, exact = _outputs(q, k, v, radius, hide)
    return ((windowed - exact) ** 2).sum().sqrt() / (exact**2).sum().sqrt()


WINDOW_ERROR = Exercise(
    id="12.5",
    title="How wrong is a window?",
    answer="course_lib.exercises.u12.window_error",
    minutes=10,
    outcomes=("12-b",),
    checks=(Check("a window", 3), Check("large scores")),
    cases=_error_cases,
    hints=(
        "Two outputs from the same scores: one softmax over all of them, one with far keys masked. Then one number.",
        "place = torch.arange(T); (place[:, None] - place).abs() > radius says which pairs are too far. −∞ goes there "
        "before the softmax.",
        "(windowed - exact).norm() / exact.norm(): .norm() of a matrix is the root of the sum of its squares.",
    ),
    misconceptions=(
        Misconception(
            "hidden after the softmax",
            _hidden(lambda scores, far: scores.softmax(dim=-1).masked_fill(far, 0.0)),
            "Far weights are set to 0 after the softmax, so the rest no longer sums to 1. Mask the scores, or renormalise.",
            ERROR,
        ),
        Misconception(
            "zero for a masked score",
            _hidden(lambda scores, far: scores.masked_fill(far, 0.0).softmax(dim=-1)),
            "Masked scores are 0, and e⁰ = 1 still counts: far keys keep a weight. They need −∞ (unit 07).",
            ERROR,
        ),
        Misconception(
            "−100 for −∞",
            _hidden(lambda scores, far: scores.masked_fill(far, -100.0).softmax(dim=-1)),
            "−100 (or the like) is no −∞: where all other scores are lower still, the far keys win.",
            ERROR,
        ),
        Misconception(
            "exponentials without the maximum",
            _hidden(
                lambda scores, far: (
                    scores.exp().masked_fill(far, 0.0) / scores.exp().masked_fill(far, 0.0).sum(dim=-1, keepdim=True)
                )
            ),
            "Your softmax takes e to the score as it is: it overflows, or becomes 0 / 0. Subtract the row's maximum (unit 05).",
            ERROR,
        ),
        Misconception(
            "softmax over the queries",
            _over_the_queries,
            "Your softmax runs over the queries. Along each row, over the keys: dim=-1.",
            ERROR,
        ),
        Misconception(
            "the window hidden",
            _hidden(lambda scores, far: _rightly(scores, ~far).nan_to_num(0.0)),
            "You hid the window and kept the rest: True in your mask must be what is too far.",
            ERROR,
        ),
        Misconception(
            "not relative",
            _measured(lambda windowed, exact: (windowed - exact).norm()),
            "This is the absolute error. Divide by ‖exact‖, or a larger v alone makes the variant look worse.",
            ERROR,
        ),
        Misconception(
            "relative to the windowed output",
            _measured(lambda windowed, exact: (windowed - exact).norm() / windowed.norm()),
            "You divided by the windowed output. The measure is what is right, ‖exact‖.",
            ERROR,
        ),
        Misconception(
            "squares without the root",
            _measured(lambda windowed, exact: ((windowed - exact) ** 2).sum() / (exact**2).sum()),
            "These are the squares of the norms: the root is missing.",
            ERROR,
        ),
        Misconception(
            "difference of the norms",
            _measured(lambda windowed, exact: (windowed.norm() - exact.norm()).abs() / exact.norm()),
            "You compared the lengths of the two outputs: two different outputs can be equally long. Take the norm of "
            "the difference.",
            ERROR,
        ),
        Misconception(
            "largest difference",
            _measured(lambda windowed, exact: (windowed - exact).abs().max() / exact.abs().max()),
            "This is the largest difference. Asked is the norm: all differences count.",
            ERROR,
        ),
        Misconception(
            "mean over the queries",
            _measured(lambda windowed, exact: ((windowed - exact).norm(dim=-1) / exact.norm(dim=-1)).mean()),
            "You averaged one relative error for each query: a query with a small output then counts much. One norm over "
            "all outputs.",
            ERROR,
        ),
        Misconception(
            "sum of absolute differences",
            _measured(lambda windowed, exact: (windowed - exact).abs().sum() / exact.abs().sum()),
            "You summed absolute values. The norm is the root of the sum of squares.",
            ERROR,
        ),
        Misconception(
            "one for each query",
            _measured(lambda windowed, exact: (windowed - exact).norm(dim=-1) / exact.norm(dim=-1)),
            "This is an error for each query. Asked is one number for all outputs.",
            ERROR,
        ),
        Misconception(
            "error of the weights",
            _error_of_weights,
            "You compared the weights. What the next layer reads are the outputs, weights times v.",
            ERROR,
        ),
        Misconception(
            "no scale",
            _unscaled,
            "The scores are not divided by √K, as in unit 05.",
            ERROR,
        ),
        Misconception(
            "divided by K",
            lambda q, k, v, radius: window_error(q / math.sqrt(q.shape[-1]), k, v, radius),
            "You divided by K. The scale is its root, √K (unit 05).",
            ERROR,
        ),
        Misconception(
            "radius taken for the width",
            lambda q, k, v, radius: window_error(q, k, v, radius // 2),
            "You took the radius for the whole width. It counts the words on each side.",
            PATTERN,
        ),
        Misconception(
            "everything after",
            _ahead_without_end,
            "Without .abs() the distance to later words is negative, and never too large: all of them are seen.",
            PATTERN,
        ),
        Misconception(
            "looks back only",
            _backwards_only,
            "Your window looks back only. |i − j| ≤ radius is on both sides.",
            PATTERN,
        ),
        Misconception(
            "too narrow",
            _narrower,
            "Your window is too narrow: |i − j| ≤ radius, with the radius itself.",
            PATTERN,
        ),
    ),
    alternatives=(_each_window, _afterwards_renormalised),
    forbidden=("scaled_dot_product_attention",),
)


# --- 12.6 ---------------------------------------------------------------------------------------------------


def linformer(q: Tensor, k: Tensor, v: Tensor, e: Tensor, f: Tensor) -> Tensor:
    """softmax(q (e k)ᵀ / √K) (f v): attention to r mixtures of the S keys and values.

    q is (B, T, K), k is (B, S, K), v is (B, S, V); e and f are (r, S). Return (B, T, V). The weights are
    (B, T, r). A T × S matrix on the way would cost all that is to be saved.
    """
    scores = q @ (e @ k).mT / math.sqrt(q.shape[-1])
    return torch.softmax(scores, dim=-1) @ (f @ v)


def _linformer_cases(draw: Draw) -> list[Case]:
    def case(check: str, *sizes: int, note: str = "", size: float = 1.0) -> Case:
        b, t, s, width, values, rank = sizes
        shapes = ((b, t, width), (b, s, width), (b, s, values), (rank, s), (rank, s))
        tensors = [draw.tensor(*shape) for shape in shapes]
        tensors[0] = tensors[0] * size
        return Case(check, tuple(tensors), note, gradient=True)

    one, many, large = "one sentence", "a batch, more queries than keys", "large scores"
    return [
        case(one, 1, 2, 3, 2, 1, 2, note="two mixtures of three keys"),
        case(one, 1, 4, 7, 3, 5, 2),
        case(many, 3, 8, 6, 5, 4, 2),
        case(large, 2, 3, 9, 4, 5, 6, note="scores in the hundreds", size=300.0),
    ]


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, dim: int = -1) -> Tensor:
    scores = q @ k.mT / (math.sqrt(q.shape[-1]) if scale is None else scale)
    return torch.softmax(scores, dim=dim) @ v


def _overflowing(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum(dim=-1, keepdim=True)


def _projects_weights(q: Tensor, k: Tensor, v: Tensor, e: Tensor, f: Tensor) -> Tensor:
    weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)
    return weights @ e.mT @ (f @ v)


def _with_einsum(q: Tensor, k: Tensor, v: Tensor, e: Tensor, f: Tensor) -> Any:
    keys, values = torch.einsum("rs,bsk->brk", e, k), torch.einsum("rs,bsv->brv", f, v)
    weights = torch.einsum("btk,brk->btr", q, keys).div(q.shape[-1] ** 0.5).softmax(-1)
    return torch.einsum("btr,brv->btv", weights, values)


def _one_at_a_time(q: Tensor, k: Tensor, v: Tensor, e: Tensor, f: Tensor) -> Any:
    return torch.stack([_attend(a, e @ b, f @ c) for a, b, c in zip(q, k, v, strict=True)])


LINFORMER = Exercise(
    id="12.6",
    title="Linformer",
    answer="course_lib.exercises.u12.linformer",
    minutes=8,
    outcomes=("12-a",),
    checks=(Check("one sentence", 2), Check("a batch, more queries than keys"), Check("large scores")),
    cases=_linformer_cases,
    hints=(
        "It is unit 04's formula with two changes: other keys, and other values. Which shapes have they?",
        "e mixes words: (r, S) times (B, S, K) is (B, r, K). e stands on the left, since words are rows.",
        "With keys = e @ k and values = f @ v, softmax(q @ keys.mT / √K) @ values; softmax over the r mixtures.",
    ),
    misconceptions=(
        Misconception(
            "e for both",
            lambda q, k, v, e, f: _attend(q, e @ k, e @ v),
            "You mixed keys and values with the same matrix. Some models share one, but here f is for the values.",
            LOW_RANK,
        ),
        Misconception(
            "e and f exchanged",
            lambda q, k, v, e, f: _attend(q, f @ k, e @ v),
            "e and f are exchanged: e mixes the keys, f the values.",
            LOW_RANK,
        ),
        Misconception(
            "f for both",
            lambda q, k, v, e, f: _attend(q, f @ k, f @ v),
            "You mixed the keys with f as well. e is for the keys.",
            LOW_RANK,
        ),
        Misconception(
            "weights projected afterwards",
            _projects_weights,
            "You computed all T × S weights and projected them then: the cost is as before, and the numbers differ. Mix the "
            "keys first.",
            LOW_RANK,
        ),
        Misconception(
            "scaled by the rank",
            lambda q, k, v, e, f: _attend(q, e @ k, f @ v, math.sqrt(len(e))),
            "You divided by the root of the rank. A score is still a dot product of K terms: √K.",
            LOW_RANK,
        ),
        Misconception(
            "scaled by the length",
            lambda q, k, v, e, f: _attend(q, e @ k, f @ v, math.sqrt(k.shape[-2])),
            "You divided by the root of the number of keys. A score is a dot product of K terms: √K.",
            LOW_RANK,
        ),
        Misconception(
            "no scale",
            lambda q, k, v, e, f: _attend(q, e @ k, f @ v, 1.0),
            "The scores are not divided by √K, as in unit 05.",
            LOW_RANK,
        ),
        Misconception(
            "divided by K",
            lambda q, k, v, e, f: _attend(q, e @ k, f @ v, q.shape[-1]),
            "You divided by K. The scale is its root, √K (unit 05).",
            LOW_RANK,
        ),
        Misconception(
            "softmax over the queries",
            lambda q, k, v, e, f: _attend(q, e @ k, f @ v, dim=-2),
            "The weights sum to 1 over the queries. Softmax runs along each row, over the r mixtures.",
            LOW_RANK,
        ),
        Misconception(
            "mixtures normalised",
            lambda q, k, v, e, f: _attend(q, torch.softmax(e, dim=-1) @ k, torch.softmax(f, dim=-1) @ v),
            "You made averages of e and f by a softmax. They are matrices as they are, negative entries too.",
            LOW_RANK,
        ),
        Misconception(
            "no softmax",
            lambda q, k, v, e, f: q @ (e @ k).mT / math.sqrt(q.shape[-1]) @ (f @ v),
            "The softmax is missing: scores are no weights.",
            LOW_RANK,
        ),
        Misconception(
            "e and f transposed",
            lambda q, k, v, e, f: _attend(q, e.mT @ k, f.mT @ v),
            "e is (r, S) and k has S rows: e @ k fits as it is, without a transpose.",
            LOW_RANK,
        ),
        Misconception(
            "values not mixed",
            lambda q, k, v, e, f: _attend(q, e @ k, v),
            "Only the keys are mixed. There are r weights for each query, so there must be r values: f @ v.",
            LOW_RANK,
        ),
        Misconception(
            "keys not transposed",
            lambda q, k, v, e, f: torch.softmax(q @ (e @ k) / math.sqrt(q.shape[-1]), dim=-1) @ (f @ v),
            "A score is the dot product of a query with a mixed key: q (e k)ᵀ, with the last two axes swapped.",
            LOW_RANK,
        ),
        Misconception(
            "exponentials without the maximum",
            lambda q, k, v, e, f: _overflowing(q @ (e @ k).mT / math.sqrt(q.shape[-1])) @ (f @ v),
            "Your softmax takes e to the score as it is, and overflows for large scores. Subtract the row's maximum (unit 05).",
            LOW_RANK,
        ),
        Misconception(
            "softmax over the batch",
            lambda q, k, v, e, f: _attend(q, e @ k, f @ v, dim=0),
            "dim=0 is the batch. Softmax runs along each row, over the r mixtures: dim=-1.",
            LOW_RANK,
        ),
        Misconception(
            "cut off",
            lambda q, k, v, e, f: linformer(q, k, v, e, f).detach(),
            "The numbers are right, but nothing can be learned: .detach(), .item(), .data or torch.tensor(...) cuts the gradient.",
            LOW_RANK,
        ),
        Misconception(
            "keys handed out",
            lambda q, k, v, e, f: torch.softmax(q @ (e @ k).mT / math.sqrt(q.shape[-1]), -1) @ (e @ k),
            "The weights hand out the mixed keys. They belong to the mixed values, f v.",
            LOW_RANK,
        ),
        Misconception(
            "keys not mixed",
            lambda q, k, v, e, f: _attend(q, k, v),
            "This is plain attention: e and f are not used, and the weights are T × S.",
            LOW_RANK,
        ),
    ),
    alternatives=(
        _with_einsum,
        _one_at_a_time,
        lambda q, k, v, e, f: torch.softmax((q / q.shape[-1] ** 0.5) @ (k.mT @ e.mT), dim=-1) @ (v.mT @ f.mT).mT,
    ),
    forbidden=("scaled_dot_product_attention",),
)


# --- 12.7 ---------------------------------------------------------------------------------------------------


def read_in_segments(x: Tensor, size: int, keep: int) -> Tensor:
    """A long text read in segments, each with a memory of what came before: the outputs, (N, D).

    x is (N, D). Its segments are `size` words each; the last may be shorter. Without any parameters: a segment's
    queries are its words; its keys and values are the memory and then its words; output = softmax(q kᵀ / √D) v.
    A query sees the whole memory, and the segment up to itself. At first the memory is empty; after each segment it
    is the last `keep` rows of memory and segment together (all, if there are fewer; none, if keep is 0).
    No gradient flows through the memory.
    """
    memory, outputs = x[:0], []
    for segment in x.split(size):
        states = torch.cat([memory, segment])
        scores = segment @ states.mT / math.sqrt(x.shape[-1])
        future = torch.ones_like(scores, dtype=torch.bool).triu(1 + len(memory))
        outputs.append(scores.masked_fill(future, -math.inf).softmax(dim=-1) @ states)
        memory = states[max(len(states) - keep, 0) :].detach()
    return torch.cat(outputs)


def _segment_cases(draw: Draw) -> list[Case]:
    def case(check: str, n: int, width: int, size: int, keep: int, note: str = "") -> Case:
        return Case(check, (draw.tensor(n, width), size, keep), note, gradient=True)

    first, later, kept = "one segment", "segments with a memory", "what is remembered"
    return [
        case(first, 2, 3, 2, 2, "two words, one segment"),
        case(first, 4, 2, 5, 3, "four words, one segment"),
        case(later, 4, 3, 2, 2, "two segments of two words"),
        case(later, 7, 2, 3, 4, "the last segment is shorter"),
        case(kept, 9, 4, 2, 5, "the memory is longer than a segment"),
        case(kept, 8, 3, 4, 1, "the memory is shorter than a segment"),
        case(kept, 6, 4, 2, 0, "nothing is kept"),
        case(kept, 7, 3, 2, 50, "everything is kept"),
    ]


def _segments(
    x: Tensor,
    size: int,
    keep: int,
    *,
    read: Callable[[Tensor, Tensor], Tensor] = lambda memory, segment: torch.cat([memory, segment]),
    hidden: Callable[[Tensor, int], Tensor] = lambda ones, m: ones.triu(1 + m),
    scale: Callable[[Tensor], float] = lambda states: math.sqrt(states.shape[-1]),
    left: Callable[..., Tensor] = lambda states, keep, segment, out: states[max(len(states) - keep, 0) :].detach(),
) -> Tensor:
    """The answer with one part changed."""
    memory, outputs = x[:0], []
    for segment in x.split(size):
        states = read(memory, segment)
        scores = segment @ states.mT / scale(states)
        future = hidden(torch.ones_like(scores, dtype=torch.bool), len(states) - len(segment))
        outputs.append(scores.masked_fill(future, -math.inf).softmax(dim=-1) @ states)
        memory = left(torch.cat([memory, segment]), keep, segment, outputs[-1])
    return torch.cat(outputs)


def _with(**change: Any) -> Callable[..., Any]:
    return lambda x, size, keep: _segments(x, size, keep, **change)


def _newest(states: Tensor, keep: int) -> Tensor:
    return states[max(len(states) - keep, 0) :].detach()


def _memory_asks(x: Tensor, size: int, keep: int) -> Any:
    memory, outputs = x[:0], []
    for segment in x.split(size):
        states = torch.cat([memory, segment])
        outputs.append(_segments(states, len(states), keep))
        memory = _newest(states, keep)
    return torch.cat(outputs)


def _zeros_at_first(x: Tensor, size: int, keep: int) -> Any:
    """As the answer, but the memory starts as `keep` rows of zeros instead of being empty."""
    padded = torch.cat([x.new_zeros(keep, x.shape[-1]), x])
    outputs = []
    for first in range(0, len(x), size):
        memory, segment = padded[first : first + keep].detach(), x[first : first + size]
        states = torch.cat([memory, segment])
        future = torch.ones(len(segment), len(states), dtype=torch.bool).triu(1 + keep)
        scores = segment @ states.mT / math.sqrt(x.shape[-1])
        outputs.append(scores.masked_fill(future, -math.inf).softmax(dim=-1) @ states)
    return torch.cat(outputs)


def _whole_segments_only(x: Tensor, size: int, keep: int) -> Any:
    return _segments(x[: max(len(x) // size, 1) * size], size, keep)


def _all_in_one_table(x: Tensor, size: int, keep: int) -> Any:
    """Every pair of the whole text, masked: the same numbers, and none of the saving."""
    place = torch.arange(len(x))
    start = place // size * size
    seen = (place <= place[:, None]) & (place >= (start - keep)[:, None])
    own = place[:, None] // size == place // size
    scores = torch.where(own, x @ x.mT, x @ x.detach().mT) / math.sqrt(x.shape[-1])
    weights = scores.masked_fill(~seen, -1e9).softmax(dim=-1)
    return (weights * own) @ x + (weights * ~own) @ x.detach()


def _word_by_word(x: Tensor, size: int, keep: int) -> Any:
    memory: list[Tensor] = []
    rows = []
    for first in range(0, len(x), size):
        seen = list(memory)
        for word in x[first : first + size]:
            seen.append(word)
            states = torch.stack(seen)
            rows.append((states @ word / math.sqrt(len(word))).softmax(dim=0) @ states)
        memory = [state.detach() for state in seen][-keep:] if keep else []
    return torch.stack(rows)


def _no_memory_gradient(x: Tensor, size: int, keep: int) -> Any:
    outputs = []
    for first in range(0, len(x), size):
        with torch.no_grad():
            memory = x[max(first - keep, 0) : first].clone()
        segment = x[first : first + size]
        states = torch.vstack([memory, segment])
        seen = torch.ones(len(segment), len(states)).tril(len(memory)) == 1
        weights = torch.where(seen, segment @ states.mT * x.shape[-1] ** -0.5, -torch.inf).softmax(-1)
        outputs.append(weights @ states)
    return torch.vstack(outputs)


SEGMENTS = Exercise(
    id="12.7",
    title="Segments with a memory",
    answer="course_lib.exercises.u12.read_in_segments",
    minutes=15,
    outcomes=("12-a",),
    checks=(Check("one segment"), Check("segments with a memory", 2), Check("what is remembered", 2)),
    cases=_segment_cases,
    hints=(
        "Who asks? The words of the segment. Who is read? The memory and the segment, M + T states, oldest first.",
        "The scores are T × (M + T). Query i of the segment stands at place M + i of those, and sees nothing after it: "
        "the triangle of unit 07, moved to the right by M. x.split(size) gives the segments.",
        "states = torch.cat([memory, segment]); the future is ones(T, M + T).triu(1 + M); the next memory is "
        "states[max(len(states) - keep, 0):].detach(), which also works for keep = 0.",
    ),
    misconceptions=(
        Misconception(
            "memory not detached",
            _with(left=lambda states, keep, segment, out: states[max(len(states) - keep, 0) :]),
            "The values are right, but gradients flow through the memory: training would go back through all segments. "
            "Detach it.",
            MEMORY,
        ),
        Misconception(
            "everything detached",
            _with(read=lambda memory, segment: torch.cat([memory, segment]).detach()),
            "The values are right, but the segment's own keys and values are detached, too. Only the memory is read-only.",
            MEMORY,
        ),
        Misconception(
            "triangle not moved",
            _with(hidden=lambda ones, m: ones.triu(1)),
            "The triangle starts at the first column, where the memory stands: it hides the segment's own words, and part "
            "of the memory. Move it to the right by M.",
            MEMORY,
        ),
        Misconception(
            "itself hidden where there is a memory",
            _with(hidden=lambda ones, m: ones.triu(m) if m else ones.triu(1)),
            "The triangle is one column too far to the left: a word does not see itself.",
            MEMORY,
        ),
        Misconception(
            "no mask",
            _with(hidden=lambda ones, m: torch.zeros_like(ones)),
            "Nothing is hidden: words of the segment see those that come after them.",
            MEMORY,
        ),
        Misconception(
            "one word of the future",
            _with(hidden=lambda ones, m: ones.triu(2 + m)),
            "The triangle is one column too far to the right: each word sees the one after it.",
            MEMORY,
        ),
        Misconception(
            "no segments",
            lambda x, size, keep: _segments(x, max(len(x), 1), keep),
            "This is causal attention over the whole text: its cost grows with the square of the text. Read segment by segment.",
            MEMORY,
        ),
        Misconception(
            "a memory of zeros",
            _zeros_at_first,
            "The memory starts with rows of zeros. Their score is 0, and e⁰ takes a share of the weight: begin with no row at all, x[:0].",
            MEMORY,
        ),
        Misconception(
            "only the last segment returned",
            lambda x, size, keep: _segments(x, size, keep)[(len(x) - 1) // size * size :],
            "Only the last segment's outputs come back. Collect those of all segments, and join them with torch.cat.",
            MEMORY,
        ),
        Misconception(
            "the past hidden",
            _with(hidden=lambda ones, m: ones.tril(m - 1)),
            "Upside down: you hid the past and left the future.",
            MEMORY,
        ),
        Misconception(
            "memory behind the segment",
            _with(read=lambda memory, segment: torch.cat([segment, memory])),
            "The memory stands behind the segment. It is older: oldest first, or the triangle hides the wrong columns.",
            MEMORY,
        ),
        Misconception(
            "memory not read",
            _with(read=lambda memory, segment: segment),
            "No segment reads the memory: each begins as if nothing had been said before.",
            MEMORY,
        ),
        Misconception(
            "the memory asks, too",
            _memory_asks,
            "There are too many rows: the memory asks, too. Its outputs were computed one segment ago; only the segment's "
            "words ask.",
            MEMORY,
        ),
        Misconception(
            "outputs remembered",
            _with(left=lambda states, keep, segment, out: _newest(torch.cat([states[: -len(segment)], out]), keep)),
            "You remembered the outputs. The next segment's keys must be made like this one's: from what entered the "
            "layer.",
            MEMORY,
        ),
        Misconception(
            "the oldest kept",
            _with(left=lambda states, keep, segment, out: states[:keep].detach()),
            "You kept the oldest states. The newest are the last rows.",
            MEMORY,
        ),
        Misconception(
            "everything kept",
            _with(left=lambda states, keep, segment, out: states.detach()),
            "Everything is kept, so the memory grows with the text, and the cost with it. Keep the last rows only.",
            MEMORY,
        ),
        Misconception(
            "minus zero",
            _with(left=lambda states, keep, segment, out: states[-keep:].detach()),
            "Nearly: states[-0:] is everything. For keep = 0 nothing is to be kept; count from the front instead.",
            MEMORY,
        ),
        Misconception(
            "only the last segment remembered",
            _with(left=lambda states, keep, segment, out: _newest(segment, keep)),
            "Only the last segment is remembered. Where it is shorter than the memory, older states stay.",
            MEMORY,
        ),
        Misconception(
            "the rest left out",
            _whole_segments_only,
            "The last words are missing: the last segment may be shorter than the others.",
            MEMORY,
        ),
        Misconception(
            "no scale",
            _with(scale=lambda states: 1.0),
            "The scores are not divided by √D, the root of the width.",
            MEMORY,
        ),
        Misconception(
            "divided by D",
            _with(scale=lambda states: states.shape[-1]),
            "You divided by D. The scale is its root, √D (unit 05).",
            MEMORY,
        ),
        Misconception(
            "scaled by the keys",
            _with(scale=lambda states: math.sqrt(len(states))),
            "You divided by the root of the number of keys. It is √D, the width.",
            MEMORY,
        ),
    ),
    alternatives=(_all_in_one_table, _word_by_word, _no_memory_gradient),
    forbidden=("scaled_dot_product_attention",),
)


# --- 12.8 ---------------------------------------------------------------------------------------------------


def name_the_change() -> Any:
    """What does each change in softmax(q kᵀ / √d_k) v? Reading, and a little arithmetic.

    1. Return a list of five words for: tiled attention; a window; Linformer; Transformer-XL; torch's fused kernel.
       "order": the same numbers, computed in another order. "pairs": fewer pairs. "keys": other, fewer keys and
       values. "memory": earlier states are read as well.
    2. And a list of four numbers: the pairs of scores for 4,096 words computed by tiled attention; by Linformer of
       rank 256; by a window of radius 64 if no word stood near an edge (so every query has all its neighbours); and
       by Transformer-XL with segments of 512 that each read a memory of 512 (count every score of the T × (M + T)
       tables, hidden or not, and give the first segment a memory, too).
    """
    return ["order", "pairs", "keys", "memory", "order"], [4096**2, 4096 * 256, 4096 * 129, 8 * 512 * 1024]


CHANGES = Exercise(
    id="12.8",
    title="What each variant changes",
    answer="course_lib.exercises.u12.name_the_change",
    minutes=7,
    outcomes=("12-a", "12-c"),
    checks=(Check("five words and four numbers", 3),),
    cases=lambda draw: [Case("five words and four numbers")],
    hints=(
        "Which of them give exactly the numbers of unit 04? Those leave nothing out, and save no pair either.",
        "Linformer: every query has a score for each of the 256 mixtures. A window of radius 64 has 64 words on each side, "
        "and the word itself.",
        "Transformer-XL: 4,096 / 512 segments; in each, 512 queries and 512 + 512 keys.",
    ),
    misconceptions=(
        Misconception(
            "tiles save pairs",
            lambda: (
                ["order", "pairs", "keys", "memory", "order"],
                [4096 * 256, 4096 * 256, 4096 * 129, 8 * 512 * 1024],
            ),
            "The words are right. Tiles leave no pair out: all 4,096² scores are computed, only never all at one time.",
            TILED,
        ),
        Misconception(
            "tiled as fewer pairs",
            lambda: (["pairs", "pairs", "keys", "memory", "order"], [4096**2, 4096 * 256, 4096 * 129, 8 * 512 * 1024]),
            "The numbers are right. Tiled attention computes every pair, in another order, and gives the same numbers.",
            TILED,
        ),
        Misconception(
            "the radius taken for the width",
            lambda: (["order", "pairs", "keys", "memory", "order"], [4096**2, 4096 * 256, 4096 * 64, 8 * 512 * 1024]),
            "All right but the window: radius 64 means 64 words before, 64 after, and the word itself.",
            PATTERN,
        ),
        Misconception(
            "without the word itself",
            lambda: (["order", "pairs", "keys", "memory", "order"], [4096**2, 4096 * 256, 4096 * 128, 8 * 512 * 1024]),
            "All right but the window: the word sees itself, too.",
            PATTERN,
        ),
        Misconception(
            "no memory",
            lambda: (["order", "pairs", "keys", "memory", "order"], [4096**2, 4096 * 256, 4096 * 129, 8 * 512 * 512]),
            "All right but Transformer-XL: each segment reads its memory as well, so there are 1,024 keys.",
            MEMORY,
        ),
        Misconception(
            "fused as fewer pairs",
            lambda: (["order", "pairs", "keys", "memory", "pairs"], [4096**2, 4096 * 256, 4096 * 129, 8 * 512 * 1024]),
            "The numbers are right. The fused kernel works by tiles: every pair is computed, in another order.",
            TILED,
        ),
        Misconception(
            "Linformer as fewer pairs",
            lambda: (["order", "pairs", "pairs", "memory", "order"], [4096**2, 4096 * 256, 4096 * 129, 8 * 512 * 1024]),
            "The numbers are right. Linformer leaves no pair of its tables out: it makes other keys and values, and fewer of them.",
            LOW_RANK,
        ),
        Misconception(
            "Transformer-XL as fewer pairs",
            lambda: (["order", "pairs", "keys", "pairs", "order"], [4096**2, 4096 * 256, 4096 * 129, 8 * 512 * 1024]),
            "The numbers are right. Transformer-XL's own idea is what a segment reads besides itself: earlier states.",
            MEMORY,
        ),
        Misconception(
            "one side of the window",
            lambda: (["order", "pairs", "keys", "memory", "order"], [4096**2, 4096 * 256, 4096 * 65, 8 * 512 * 1024]),
            "All right but the window: it reaches 64 words to each side, before and after.",
            PATTERN,
        ),
        Misconception(
            "one segment",
            lambda: (["order", "pairs", "keys", "memory", "order"], [4096**2, 4096 * 256, 4096 * 129, 512 * 1024]),
            "All right but Transformer-XL: this is one segment, and 4,096 words are eight of them.",
            MEMORY,
        ),
        Misconception(
            "no memory for the first segment",
            lambda: (
                ["order", "pairs", "keys", "memory", "order"],
                [4096**2, 4096 * 256, 4096 * 129, 512 * 512 + 7 * 512 * 1024],
            ),
            "All right but Transformer-XL: true of a text's beginning, but here the first segment has a memory, too.",
            MEMORY,
        ),
        Misconception(
            "the memory asks, too",
            lambda: (["order", "pairs", "keys", "memory", "order"], [4096**2, 4096 * 256, 4096 * 129, 8 * 1024 * 1024]),
            "All right but Transformer-XL: the memory is read and does not ask. There are 512 queries in each segment.",
            MEMORY,
        ),
        Misconception(
            "rank squared",
            lambda: (["order", "pairs", "keys", "memory", "order"], [4096**2, 256**2, 4096 * 129, 8 * 512 * 1024]),
            "All right but Linformer: there are fewer keys, not fewer queries. All 4,096 of them ask.",
            LOW_RANK,
        ),
    ),
    prediction=True,
)

EXERCISES = (RATIOS, EXPONENT, TILE, BIGBIRD, WINDOW_ERROR, LINFORMER, SEGMENTS, CHANGES)
