"""Every exercise of the course: its answer passes, each wrong idea is rejected and named, each other way passes."""

from __future__ import annotations

import pytest

from course_lib import exercises
from course_lib.build import stub_source
from course_lib.outcomes import OUTCOMES, of_unit
from course_lib.validate import declared, pages

ALL = [exercise for unit in exercises.UNITS for exercise in exercises.of_unit(unit)]
every = pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)
each_seed = pytest.mark.parametrize("seed", declared.SEEDS)


@every
def test_the_stub_is_seen_as_empty(exercise):
    assert declared.stub_complaints(exercise) == []


@every
@each_seed
def test_the_answer_passes_with_all_points(exercise, seed):
    assert declared.answer_complaints(exercise, seed) == []


@every
@each_seed
def test_each_misconception_is_rejected_and_named(exercise, seed):
    for misconception in exercise.misconceptions:
        assert declared.misconception_complaints(exercise, misconception, seed) == []


@every
def test_no_two_misconceptions_share_a_signature(exercise):
    assert declared.signature_complaints(exercise) == []


@every
@each_seed
def test_each_alternative_passes(exercise, seed):
    for number in range(len(exercise.alternatives)):
        assert declared.alternative_complaints(exercise, number, seed) == []


@every
def test_no_check_is_vacuous(exercise):
    assert declared.vacuous_complaints(exercise) == []


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
    stub = stub_source(exercise)
    assert declared.leak_complaints(exercise, stub) == []
    assert "raise NotImplementedError" in [line.strip() for line in stub.split("\n")]


@every
def test_what_to_read_again_is_a_heading_of_the_lecture(exercise, root):
    lectures = [pages.read_notebook(path) for path in (root / "notebooks").glob("*.ipynb")]
    assert declared.read_complaints(exercise, {n.unit: set(pages.headings_of(n)) for n in lectures}) == []


@pytest.mark.parametrize("unit", exercises.UNITS)
def test_every_outcome_of_the_unit_is_tested(unit):
    assert declared.outcome_complaints(unit) == []
    assert len(exercises.of_unit(unit)) >= 4
    assert any(e.prediction for e in exercises.of_unit(unit)) and not all(e.prediction for e in exercises.of_unit(unit))


def test_names_and_ids_are_unique():
    assert len({e.id for e in ALL}) == len({e.name for e in ALL}) == len(ALL)
    assert all(key[:2].isdigit() and key[2] == "-" for key in OUTCOMES)
