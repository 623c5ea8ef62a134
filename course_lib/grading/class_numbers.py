"""What a class has understood, in numbers: hard exercises, wrong ideas, which of them come together, who needs help."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from .records import Row
from .standings import Standing, nothing_there, unreadable

# The rules of the report, in one place: the page states them with these numbers.
FAR_BELOW = 0.5  # of the median
ENOUGH_FOR_A_MEDIAN = 5  # students
TROUBLE = ("timeout", "died", "forbidden")
MUCH_TROUBLE = 3  # exercises
FEWEST_TOGETHER = 3  # students
LEAST_LIFT = 1.5
CHANCE = 0.01  # of one or more false pairs in the whole list

Wrong = tuple[str, str]  # an exercise and the name of a misconception


@dataclass(frozen=True)
class Difficulty:
    """How one exercise went in the class."""

    exercise: str
    students: int
    reached: float
    solved: float
    missing: float
    attempts: int


@dataclass(frozen=True)
class Frequency:
    """How often a wrong idea was met, among those who tried the exercise."""

    wrong: Wrong
    students: int
    attempts: int

    @property
    def share(self) -> float:
        return self.students / self.attempts if self.attempts else 0.0


@dataclass(frozen=True)
class Pair:
    """Two wrong ideas that the same students hold: `both` of the `tried` who tried both exercises."""

    first: Wrong
    second: Wrong
    both: int
    expected: float
    tried: int

    @property
    def lift(self) -> float:
        return self.both / self.expected


@dataclass(frozen=True)
class Concern:
    """A student to talk to, and why."""

    standing: Standing
    reasons: tuple[str, ...]


def rows_of(standing: Standing) -> list[Row]:
    return [row for entry in standing.entries.values() for row in entry.rows]


def difficulties(ranked: Sequence[Standing]) -> list[Difficulty]:
    """Every exercise, the hardest first: by the share of points that the class reached."""
    found: dict[str, list[Row]] = {}
    for standing in ranked:
        for row in rows_of(standing):
            found.setdefault(row.exercise, []).append(row)
    measured = []
    for exercise, rows in sorted(found.items()):
        points, most, n = sum(row.points for row in rows), sum(row.max for row in rows), len(rows)
        solved, missing = (sum(row.status == s for row in rows) for s in ("passed", "missing"))
        measured.append(
            Difficulty(exercise, n, points / most if most else 0.0, solved / n, missing / n, attempts=n - missing)
        )
    return sorted(measured, key=lambda d: d.reached)


def frequencies(ranked: Sequence[Standing]) -> list[Frequency]:
    """The wrong ideas, the most frequent first."""
    held: Counter[Wrong] = Counter()
    for standing in ranked:
        held.update(_wrong_ideas(standing))
    attempts = {d.exercise: d.attempts for d in difficulties(ranked)}
    found = [Frequency(wrong, n, attempts[wrong[0]]) for wrong, n in held.items()]
    return sorted(found, key=lambda f: (-f.students, f.wrong))


def _wrong_ideas(standing: Standing) -> list[Wrong]:
    return sorted({(row.exercise, row.misconception) for row in rows_of(standing) if row.misconception})


# --- what comes together ------------------------------------------------------------------------------------


def chance_of(both: int, first: int, second: int, tried: int) -> float:
    """P(X ≥ both), if `first` and `second` of `tried` students were drawn independently (hypergeometric)."""

    def log_choose(n: int, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    if both <= max(0, first + second - tried):
        return 1.0
    log_term = log_choose(first, both) + log_choose(tried - first, second - both) - log_choose(tried, second)
    term = total = math.exp(log_term)
    for k in range(both, min(first, second)):
        term *= (first - k) * (second - k) / ((k + 1) * (tried - first - second + k + 1))
        total += term
    return min(1.0, total)


def pairs(ranked: Sequence[Standing]) -> list[Pair]:
    """Wrong ideas of different exercises that come together more often than chance explains, most frequent first."""
    together: Counter[tuple[Wrong, Wrong]] = Counter()
    tried: dict[str, set[str]] = {}
    holders: dict[Wrong, set[str]] = {}
    for standing in ranked:
        for row in rows_of(standing):
            if row.status != "missing":
                tried.setdefault(row.exercise, set()).add(standing.student)
        ideas = _wrong_ideas(standing)
        for wrong in ideas:
            holders.setdefault(wrong, set()).add(standing.student)
        together.update((a, b) for a, b in combinations(ideas, 2) if a[0] != b[0])
    frequent = {pair: n for pair, n in together.items() if n >= FEWEST_TOGETHER}
    common = {key: tried[key[0]] & tried[key[1]] for key in {(a[0], b[0]) for a, b in frequent}}
    # Each pair that could have come up is one more chance to be fooled, so the bar rises with their number.
    per_exercise = Counter(exercise for exercise, _ in holders).values()
    possible = math.comb(len(holders), 2) - sum(math.comb(n, 2) for n in per_exercise)
    limit, found = CHANCE / max(1, possible), []
    for (a, b), n in frequent.items():
        everybody = common[a[0], b[0]]
        first, second = len(holders[a] & everybody), len(holders[b] & everybody)
        pair = Pair(a, b, n, first * second / len(everybody), len(everybody))
        if pair.lift >= LEAST_LIFT and chance_of(n, first, second, len(everybody)) < limit:
            found.append(pair)
    return sorted(found, key=lambda p: (-p.both, -p.lift, p.first, p.second))


# --- students -----------------------------------------------------------------------------------------------


def median_total(ranked: Sequence[Standing]) -> float:
    return statistics.median(float(standing.total) for standing in ranked) if ranked else 0.0


def concerns(ranked: Sequence[Standing], top: Mapping[str, int]) -> list[Concern]:
    """Students to talk to, those with most reasons first, then those with fewest points."""
    median = median_total(ranked) if len(ranked) >= ENOUGH_FOR_A_MEDIAN else 0.0
    found = [Concern(standing, tuple(_reasons(standing, median, top))) for standing in ranked]
    named = [concern for concern in found if concern.reasons]
    return sorted(named, key=lambda c: (-len(c.reasons), c.standing.total, c.standing.student))


def _reasons(standing: Standing, median: float, top: Mapping[str, int]) -> list[str]:
    reasons = []
    if float(standing.total) < FAR_BELOW * median:
        reasons.append("far below the median")
    trouble = Counter(row.status for row in rows_of(standing) if row.status in TROUBLE)
    if trouble.total() >= MUCH_TROUBLE:
        listed = ", ".join(f"{n} × {status}" for status, n in sorted(trouble.items()))
        reasons.append(f"programs that did not end well: {listed}")
    bad = [unit for unit, entry in sorted(standing.entries.items()) if unreadable(entry)]
    if bad:
        reasons.append(f"unreadable: unit {', '.join(bad)}")
    stopped = _stopped_after(standing, list(top))
    if stopped:
        reasons.append(f"nothing since unit {stopped}")
    return reasons


def _stopped_after(standing: Standing, units: Sequence[str]) -> str:
    """The last unit with work in it, if the units after it are empty."""
    entries = standing.entries
    at_work = [unit for unit in units if unit in entries and not nothing_there(entries[unit])]
    return at_work[-1] if at_work and at_work[-1] != units[-1] else ""


def histogram(values: Sequence[float], top: float, most_bins: int = 13) -> list[tuple[float, float, int]]:
    """(from, to below, how many) in equal steps from 0 until the top is inside; what exceeds it counts as the last."""
    steps = [base * 10**k for k in range(12) for base in (1, 2, 5)]
    step = next(s for s in steps if top // s + 1 <= most_bins)
    bins = int(top // step) + 1
    counts = Counter(min(bins - 1, int(value // step)) for value in values)
    return [(float(i * step), float((i + 1) * step), counts[i]) for i in range(bins)]
