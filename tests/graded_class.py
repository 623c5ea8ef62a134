"""A class that never was: entries as the grader would write them, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from course_lib import exercises
from course_lib.exercises.declare import Exercise
from course_lib.grading.records import Entry, Part, Row

REASON = "The result's last two axes are swapped."
UNREADABLE = "the notebook cannot be read: its JSON breaks off or is damaged in line 7"


def row(
    student: str,
    exercise: Exercise,
    status: str = "passed",
    failed: int = 0,
    idea: str = "",
    message: str = "",
    reason: str = REASON,
) -> Row:
    """One exercise whose last `failed` checks do not hold; without parts where nothing was tried."""
    if status in ("missing", "timeout", "died", "forbidden"):
        return Row(student, exercise.unit, exercise.id, 0, exercise.points, status, "", message or f"It was {status}.")
    held = len(exercise.checks) - failed
    parts = tuple(
        Part(check.name, check.points, i < held, "" if i < held else reason) for i, check in enumerate(exercise.checks)
    )
    points = sum(part.points for part in parts if part.passed)
    said = message or next((f"{p.name}: {p.reason}" for p in parts if not p.passed), "")
    return Row(student, exercise.unit, exercise.id, points, exercise.points, status, idea, said, parts)


def entry(student: str, unit: str, rows: Sequence[Row], notes: Sequence[str] = ()) -> Entry:
    return Entry(student, unit, "key", tuple(rows), tuple(notes))


def solved(student: str, unit: str = "04") -> Entry:
    """A student who has all points of a unit."""
    return entry(student, unit, [row(student, e) for e in exercises.of_unit(unit)])


def empty(student: str, unit: str = "04", notes: Sequence[str] = ()) -> Entry:
    """A student who handed in nothing for a unit."""
    return entry(student, unit, [row(student, e, "missing") for e in exercises.of_unit(unit)], notes)


def some(student: str, units: Sequence[str], rng: random.Random) -> list[Entry]:
    """A student with strengths and weaknesses."""
    skill = rng.betavariate(4, 2)
    return [entry(student, unit, [_drawn(student, e, skill, rng) for e in exercises.of_unit(unit)]) for unit in units]


def _drawn(student: str, exercise: Exercise, skill: float, rng: random.Random) -> Row:
    if rng.random() < skill:
        return row(student, exercise)
    if rng.random() < 0.15:
        return row(student, exercise, rng.choice(["missing", "timeout", "died", "forbidden"]))
    if rng.random() < 0.1:
        return row(student, exercise, "error", len(exercise.checks), reason="It raised RuntimeError.")
    idea = rng.choice(exercise.misconceptions).name
    return row(student, exercise, "wrong", rng.randint(1, len(exercise.checks)), idea)


def of_size(size: int, units: Sequence[str] = ("04",), seed: int = 0) -> list[Entry]:
    """So many students, each different."""
    rng = random.Random(seed)
    return [made for i in range(size) for made in some(f"student{i:05d}", units, rng)]
