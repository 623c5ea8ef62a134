"""The exercise notebooks in a stock nbgrader course, nbgrader in an environment of its own; the page of promises."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import pytest

from course_lib.grading import measure

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stock_course_generates_grades_and_gives_feedback(tmp_path):
    try:
        python = measure.environment(tmp_path / "env")
    except ValueError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"nbgrader cannot be installed here: {error}")
    course = measure.StockCourse(python, tmp_path / "course", "04")
    name = f"{course.name}.ipynb"
    course.hand_in("ada", ROOT / "solutions" / name)
    course.hand_in("bob", tmp_path / "course" / "release" / "04" / name)
    course("autograde", "04")
    course("generate_feedback", "04")
    course("export")
    with open(tmp_path / "course" / "grades.csv", encoding="utf-8", newline="") as file:
        scores = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(file)}
    assert scores["ada"][0] == scores["ada"][1] > 0 and scores["bob"] == (0.0, scores["ada"][1])
    page = (tmp_path / "course" / "feedback" / "ada" / "04" / f"{course.name}.html").read_text(encoding="utf-8")
    assert "24.0" in page or str(scores["ada"][1]) in page


def test_every_promise_of_the_grader_names_a_test_that_is_there():
    text = (ROOT / "docs" / "grader.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)(?:::(\w+))?`", text)
    assert len(named) > 15
    for file, function in named:
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert not function or f"def {function}(" in source, f"{file}::{function}"
