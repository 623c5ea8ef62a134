"""Every exercise of the course: its answer passes, each wrong idea is rejected and named, each other way passes."""

from __future__ import annotations

import inspect
import itertools

import numpy as np
import pytest

from course_lib import checks, exercises
from course_lib.build import answer_source, stub_source
from course_lib.outcomes import OUTCOMES, of_unit

ALL = [exercise for unit in exercises.UNITS for exercise in exercises.of_unit(unit)]
every = pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)
SEEDS = (0, 1, 20_261)  # the learner's, and others as an instructor may draw


def run_stub(exercise):
    space = dict(inspect.getmodule(exercise.load_answer()).__dict__) | {"__name__": "__main__"}
    exec(stub_source(exercise), space)
    return space[exercise.name]


@every
def test_the_stub_is_seen_as_empty(exercise):
    assert checks.examine(run_stub(exercise), exercise).status == "missing"


@every
@pytest.mark.parametrize("seed", SEEDS)
def test_the_answer_passes_with_all_points(exercise, seed):
    report = checks.judge(exercise, checks.observations_of(exercise.id, seed), seed)
    assert report.status == "passed" and report.points == exercise.points
    assert all(o.fault is None for o in checks.observations_of(exercise.id, seed))


@every
@pytest.mark.parametrize("seed", SEEDS)
def test_each_misconception_is_rejected_and_named(exercise, seed):
    for m in exercise.misconceptions:
        report = checks.try_out(m.wrong, exercise, seed)
        assert report.status not in ("passed", "missing", "forbidden"), m.name
        assert report.points < exercise.points, m.name
        assert report.misconception is m, f"{m.name} is called {report.misconception and report.misconception.name}"


@every
def test_no_two_misconceptions_share_a_signature(exercise):
    for a, b in itertools.combinations(exercise.misconceptions, 2):
        seen = (checks.observations_of(exercise.id, 0, m.name) for m in (a, b))
        assert not all(map(checks.alike, *seen)), f"{a.name} and {b.name} cannot be told apart"


@every
@pytest.mark.parametrize("seed", SEEDS)
def test_each_alternative_passes(exercise, seed):
    for number, way in enumerate(exercise.alternatives):
        report = checks.try_out(way, exercise, seed)
        assert report.status == "passed", f"alternative {number}:\n{checks.Card(report)!r}"


def impostors(exercise):
    """Answers without an idea: none of them may earn a point."""
    wanted = [o.output for o in checks.observations_of(exercise.id, 0)]
    yield "nothing", lambda *a: None
    yield "zero", lambda *a: 0
    yield "its first argument", lambda *a: a[0] if a else None
    if not inspect.isclass(exercise.load_answer()) and all(isinstance(w, np.ndarray) for w in wanted):
        count = itertools.count()
        yield "zeros of the right shape", lambda *a: np.zeros(wanted[next(count) % len(wanted)].shape)


@every
def test_no_check_is_vacuous(exercise):
    for name, impostor in impostors(exercise):
        assert checks.try_out(impostor, exercise).points == 0, f"{name} earns points"
    failing = {
        result.check.name
        for m in exercise.misconceptions
        for result in checks.try_out(m.wrong, exercise).results
        if not result.passed
    }
    assert exercise.prediction or failing == {check.name for check in exercise.checks}


@every
def test_the_declaration_is_complete(exercise):
    assert set(exercise.outcomes) <= set(of_unit(exercise.unit)) and exercise.outcomes
    assert exercise.prediction or len(exercise.misconceptions) >= 6
    assert exercise.prediction or exercise.alternatives
    assert len(exercise.hints) == 3 and all(len(h) > 20 for h in exercise.hints)
    assert 1 <= exercise.minutes <= 60 and exercise.points >= 1
    assert all(len(m.idea) > 30 for m in exercise.misconceptions)


@every
def test_nothing_of_the_answer_is_in_the_stub(exercise):
    body = {line.strip() for line in answer_source(exercise).split("\n")}
    stub = {line.strip() for line in stub_source(exercise).split("\n")}
    kept = {line for line in body & stub if "=" in line and "def " not in line}
    docstring = inspect.getdoc(exercise.load_answer()) or ""
    assert all(line.strip('"') in docstring for line in kept) and "raise NotImplementedError" in stub


@pytest.mark.parametrize("unit", exercises.UNITS)
def test_every_outcome_of_the_unit_is_tested(unit):
    tested = {outcome for exercise in exercises.of_unit(unit) for outcome in exercise.outcomes}
    assert tested == set(of_unit(unit))
    assert len(exercises.of_unit(unit)) >= 4
    assert any(e.prediction for e in exercises.of_unit(unit)) and not all(e.prediction for e in exercises.of_unit(unit))


def test_names_and_ids_are_unique():
    assert len({e.id for e in ALL}) == len({e.name for e in ALL}) == len(ALL)
    assert all(key[:2].isdigit() and key[2] == "-" for key in OUTCOMES)
