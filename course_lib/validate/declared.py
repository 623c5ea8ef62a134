"""Is an exercise sound? Asked of its declaration alone: nothing here starts a kernel.

Each question is a function that returns its complaints, sentences that say what to do; none: all is well.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import build, checks, exercises, outcomes
from ..exercises.declare import Exercise, Misconception

SEEDS = (0, 1, 20_261)  # the learner's, and others as an instructor may draw
Complaints = list[str]


@dataclass
class Examined:
    """An exercise, and how many of its wrong ideas were named and of its other right ways accepted."""

    exercise: Exercise
    named: int = 0
    accepted: int = 0
    complaints: Complaints = field(default_factory=list)


def stub_complaints(exercise: Exercise) -> Complaints:
    """The stub must be seen as empty."""
    module = inspect.getmodule(exercise.load_answer())
    space: dict[str, Any] = dict(vars(module)) | {"__name__": "__main__"}
    exec(build.stub_source(exercise), space)
    status = checks.examine(space[exercise.name], exercise).status
    if status == "missing":
        return []
    return [f"{exercise.id}: its stub is {status!r} and not empty: it should only raise NotImplementedError."]


def leak_complaints(exercise: Exercise, text: str, where: str = "its stub") -> Complaints:
    """No statement and no comment of the answer's body may stand in what the learner is given."""
    flat, lines = "".join(text.split()), {"".join(line.split()) for line in text.split("\n")}
    leaked = [
        piece
        for piece in answer_pieces(build.answer_source(exercise))
        if (bare := "".join(piece.split())) and ((len(bare) >= 12 and bare in flat) or ("=" in bare and bare in lines))
    ]
    return [f"{exercise.id}: {where} contains `{piece}`, a piece of the answer: take it out." for piece in leaked]


def answer_pieces(source: str) -> list[str]:
    """The plain statements and the comments inside the functions of an answer."""
    pieces, rows = [], source.split("\n")
    for function in build.functions(ast.parse(source)):
        body = function.body[1:] if ast.get_docstring(function) is not None else function.body
        for node in (inner for statement in body for inner in ast.walk(statement)):
            if isinstance(node, ast.stmt) and not hasattr(node, "body"):
                pieces.append(ast.get_source_segment(source, node) or "")
        inside = rows[function.lineno : function.end_lineno]
        pieces += [row.strip() for row in inside if row.strip().startswith("#")]
    return pieces


def answer_complaints(exercise: Exercise, seed: int) -> Complaints:
    """The library's answer must earn all points, and raise nothing."""
    seen = checks.observations_of(exercise.id, seed)
    report = checks.judge(exercise, seen, seed)
    if report.status == "passed" and report.points == exercise.points and not any(o.fault for o in seen):
        return []
    card = f"{checks.Card(report)!r}"
    return [f"{exercise.id}: its own answer does not pass: mend the answer or the cases.\n{card}"]


def misconception_complaints(exercise: Exercise, wrong: Misconception, seed: int) -> Complaints:
    """A wrong idea must lose points and be called by its name."""
    report = checks.try_out(wrong.wrong, exercise, seed)
    if report.status in ("passed", "missing", "forbidden") or report.points >= exercise.points:
        return [f"{exercise.id}: {wrong.name!r} counts as {report.status}: add a case on which it fails."]
    if report.misconception is not wrong:
        called = repr(report.misconception.name) if report.misconception else "nothing"
        return [f"{exercise.id}: {wrong.name!r} is rejected, but called {called}: add a case that shows it."]
    return []


def signature_complaints(exercise: Exercise) -> Complaints:
    """No two wrong ideas may behave alike."""
    found = []
    for a, b in itertools.combinations(exercise.misconceptions, 2):
        if all(map(checks.alike, *(checks.observations_of(exercise.id, 0, m.name) for m in (a, b)))):
            found.append(f"{exercise.id}: {a.name!r} and {b.name!r} behave alike: add a case that tells them apart.")
    return found


def alternative_complaints(exercise: Exercise, number: int, seed: int) -> Complaints:
    """Another right way must pass."""
    report = checks.try_out(exercise.alternatives[number], exercise, seed)
    if report.status == "passed":
        return []
    return [f"{exercise.id}: alternative {number} is right and does not pass:\n{checks.Card(report)!r}"]


def impostors(exercise: Exercise) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Answers without an idea: none of them may earn a point."""
    wanted = [o.output for o in checks.observations_of(exercise.id, 0)]
    yield "nothing", lambda *a: None
    yield "zero", lambda *a: 0
    yield "its first argument", lambda *a: a[0] if a else None
    if not inspect.isclass(exercise.load_answer()) and all(isinstance(w, np.ndarray) for w in wanted):
        count = itertools.count()
        yield "zeros of the right shape", lambda *a: np.zeros(wanted[next(count) % len(wanted)].shape)


def vacuous_complaints(exercise: Exercise) -> Complaints:
    """A point must be earned, and each check must be failed by some wrong idea."""
    found = [
        f"{exercise.id}: to return {name} earns {points} points: add a case to each check on which it fails."
        for name, impostor in impostors(exercise)
        if (points := checks.try_out(impostor, exercise).points)
    ]
    reports = [checks.try_out(m.wrong, exercise) for m in exercise.misconceptions]
    failed = {result.check.name for report in reports for result in report.results if not result.passed}
    idle = [check.name for check in exercise.checks if not exercise.prediction and check.name not in failed]
    return found + [
        f"{exercise.id}: the check {name!r} is vacuous, no misconception fails it: declare one that does."
        for name in idle
    ]


def read_complaints(exercise: Exercise, headings: Mapping[str, set[str]]) -> Complaints:
    """Where a learner is sent to read again must exist, if that unit's lecture does."""
    return [
        f"{exercise.id}: {m.name!r} says to read {m.read[1]!r}, no `## ` heading of lecture {m.read[0]}."
        for m in exercise.misconceptions
        if m.read[0] in headings and m.read[1] not in headings[m.read[0]]
    ]


def outcome_complaints(unit: str) -> Complaints:
    """Exercises test outcomes of their unit, and all of them."""
    known, units = outcomes.of_unit(unit), exercises.of_unit(unit)
    found = [f"{e.id}: it names no outcome: give it one of {', '.join(known)}." for e in units if not e.outcomes]
    tested = {outcome for exercise in units for outcome in exercise.outcomes}
    found += [
        f"unit {unit}: there is no outcome {name} (course_lib/outcomes.py)." for name in sorted(tested - set(known))
    ]
    return found + [
        f"unit {unit}: no exercise tests outcome {name}: write one." for name in known if name not in tested
    ]


def examine(exercise: Exercise, headings: Mapping[str, set[str]]) -> Examined:
    """Everything that can be asked of one exercise."""
    found = Examined(exercise)

    def sift(ask: Callable[[Any, int], Complaints], items: Iterable[Any]) -> int:
        answers = [list(dict.fromkeys(text for seed in SEEDS for text in ask(item, seed))) for item in items]
        found.complaints += itertools.chain(*answers)
        return sum(not answer for answer in answers)

    try:
        sift(lambda _, seed: answer_complaints(exercise, seed), [exercise])
        found.complaints += stub_complaints(exercise) + leak_complaints(exercise, build.stub_source(exercise))
        found.named = sift(lambda m, seed: misconception_complaints(exercise, m, seed), exercise.misconceptions)
        ways = range(len(exercise.alternatives))
        found.accepted = sift(lambda n, seed: alternative_complaints(exercise, n, seed), ways)
        found.complaints += signature_complaints(exercise) + vacuous_complaints(exercise)
        found.complaints += read_complaints(exercise, headings)
    except Exception as error:  # a declaration is code: what it raises must not hide the other exercises
        found.complaints.append(f"{exercise.id}: its declaration raised {type(error).__name__}: {error}")
    return found
