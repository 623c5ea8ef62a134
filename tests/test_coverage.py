"""The table of what the course covers is whole and true."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from course_lib import coverage, exercises
from course_lib.outcomes import OUTCOMES
from course_lib.units import UNITS

ROOT = Path(__file__).parents[1]


def test_the_page_is_as_it_would_be_written():
    assert (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8") == coverage.page(), "run `course build`"


@pytest.mark.parametrize("key", OUTCOMES)
def test_every_outcome_is_taught_and_tested(key):
    stem = next(u.name for u in UNITS if u.number == key[:2])
    lesson = (ROOT / "lessons" / f"{stem}.py").read_text(encoding="utf-8")
    assert f"# ## {coverage.SECTIONS[key]}\n" in lesson
    tested = [e for e in exercises.of_unit(key[:2]) if key in e.outcomes]
    assert tested
    assert all(e.misconceptions for e in tested if not e.prediction)


def test_no_section_without_an_outcome_and_all_systems_from_1_to_28():
    assert set(coverage.SECTIONS) == set(OUTCOMES)
    assert list(coverage.SYSTEMS) == [f"S{n}" for n in range(1, 29)]


@pytest.mark.parametrize("key", coverage.SYSTEMS)
def test_every_system_is_in_the_library_and_has_its_test(key):
    for name in coverage.SYSTEMS[key].library:
        module, _, thing = name.partition(".")
        found = importlib.import_module(f"course_lib.{module}")
        assert not thing or hasattr(found, thing), name
    for test in coverage.SYSTEMS[key].tests:
        file, _, function = test.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        assert function in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}, test
