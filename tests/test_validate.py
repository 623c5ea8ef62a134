"""`course validate` on a tiny course: green when all is well, red with a word that helps for every planted fault."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
import threading
from pathlib import Path

import pytest

from course_lib import build, checks, cli, exercises, outcomes, progress, validate
from course_lib.validate import declared, pages

NUMBER = itertools.count()

MODULE = '''
import numpy as np

from course_lib import exercises
from course_lib.checks import check, hint
from course_lib.exercises.declare import Case, Check, Exercise, Misconception


def scaled(x, s):
    """Multiply every number of x, which is (T, D), with the number s."""
    # the bare product
    result = np.multiply(x, s)
    return result


def cases(draw):
    return [
        Case("values", (draw(2, 3), 2.5)),
        Case("negative numbers", (draw(3, 2), -1.5)),
        # more cases
    ]


EXERCISES = (
    Exercise(
        id="90.1", title="Scale it", answer=f"{__name__}.scaled", minutes=2, outcomes=("90-a",),
        checks=(Check("values", 2), Check("negative numbers")), cases=cases, hints=("one", "two", "three"),
        misconceptions=(
            Misconception("adds", lambda x, s: x + s, "You added s.", ("90", "Scaling is a product")),
            Misconception("no sign", lambda x, s: x * abs(s), "The sign is lost.", ("90", "Scaling is a product")),
        ),
        alternatives=(lambda x, s: np.array([[s * number for number in row] for row in x]),),
    ),
)


def install():
    exercises.UNITS, exercises.of_unit = ("90",), lambda unit: EXERCISES
'''

LECTURE = """
# %% [markdown]
# # 90 Toys
#
# ## Scaling is a product
#
# On with [the exercises](../exercises/90_toys.ipynb), or [up](#Scaling-is-a-product); see
# [a page](https://example.org/page). Not links: `a[0](b)`.

# %%
import time

time.sleep(0.4)

# %%
assert 2 * 3 == 6
"""

LESSON = """
# %% [markdown]
# # 90 Exercises: toys

# %%
import numpy as np

import MODULE
from course_lib.checks import check, hint

MODULE.install()

# %% [markdown]
# ## 90.1 Scale it

# %%
# answer: MODULE.scaled

# %% [markdown]
# The end.
"""


class Course:
    """A course in a folder of its own: `plant` faults, then `run`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.root, self.name, self.monkeypatch = folder, f"toy_course_{next(NUMBER)}", monkeypatch
        self.module = folder / f"{self.name}.py"
        self.lecture, self.lesson = folder / "lessons/90_toys.py", folder / "lessons/90_toys_exercises.py"
        self.lecture.parent.mkdir()
        (folder / "pyproject.toml").write_text(
            "[tool.pytest.ini_options]\ntimeout = 'nonsense'\naddopts = '--nonsense'\n"
        )
        (folder / "conftest.py").write_text("raise RuntimeError('the project's own tests are another matter')")
        for path, text in ((self.module, MODULE), (self.lecture, LECTURE), (self.lesson, LESSON)):
            path.write_text(text.replace("MODULE", self.name))

    def plant(self, path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert text.count(old) == 1, (old, text.count(old))
        path.write_text(text.replace(old, new))

    def build(self) -> None:
        importlib.invalidate_caches()
        self.monkeypatch.setattr(exercises, "UNITS", ("90",))
        self.monkeypatch.setattr(exercises, "of_unit", lambda unit: importlib.import_module(self.name).EXERCISES)
        for path, text in build.build(self.root).items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    def run(self, *words: str) -> int:
        return cli.main(["validate", "--root", str(self.root), "--jobs", "2", *words])


@pytest.fixture
def course(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(outcomes, "OUTCOMES", {"90-a": "scale numbers"})
    checks.observations_of.cache_clear()
    made = Course(tmp_path, monkeypatch)
    yield made
    sys.modules.pop(made.name, None)
    checks.observations_of.cache_clear()


@pytest.fixture
def no_kernels(monkeypatch):
    """Leave out the steps that start kernels: what they find has tests of its own."""
    monkeypatch.setattr(validate, "run_notebooks", lambda *args: None)


# --- with kernels


@pytest.mark.slow
def test_a_healthy_course_is_green(course, capsys, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", str(course.root / "mine.json"))
    course.build()
    assert course.run("--json", str(course.root / "found.json")) == 0, capsys.readouterr().out
    told, shown = capsys.readouterr()
    assert "All is well (notebooks: 3, exercises: 1" in told and "✗" not in told
    assert all(name in shown for name in ("notebooks and lessons", "exercises", "links", "lectures, solutions"))
    found = json.loads((course.root / "found.json").read_text())
    assert found["ok"] and found["complaints"] == found["over_time"] == []
    rows = {row["kind"]: row for row in found["notebooks"]}
    assert {kind: row["cells"] for kind, row in rows.items()} == {"lecture": 2, "exercise": 3, "solution": 3}
    assert all(row["verdict"] == "ok" and row["seconds"] >= 0 for row in rows.values())
    assert rows["lecture"]["seconds"] >= 0.4 and rows["lecture"]["slowest"].endswith("code cell 0")
    assert [(e["exercise"], e["misconceptions"], e["alternatives"], e["verdict"]) for e in found["exercises"]] == [
        ("90.1", "2/2", "1/1", "ok")
    ]
    assert not progress.read() and not (course.root / "mine.json").exists()  # the user's own progress is left alone
    assert not list(course.root.rglob(".pytest_cache"))


@pytest.mark.slow
def test_cells_that_fail_and_stubs_that_run(course, capsys):
    """Three faults that only running shows, each in another notebook."""
    course.plant(course.lecture, "assert 2 * 3 == 6", "assert 2 * 3 == 7, 'six it is'")
    course.build()
    stub, solution = course.root / "exercises/90_toys.ipynb", course.root / "solutions/90_toys.ipynb"
    course.plant(stub, "raise NotImplementedError", "return x * s")
    course.plant(stub, "import numpy as np", "import numpy as np, no_such_thing")
    course.plant(solution, "return result", "return -result")
    assert course.run() == 1
    told = capsys.readouterr().out
    lines = [line for line in told.split("\n") if line.startswith("✗") and "differs from its lesson" not in line]
    assert (
        "✗ notebooks/90_toys.ipynb, code cell 1 (`assert 2 * 3 == 7, 'six it is'`) fails: AssertionError: six it is"
        in told
    )
    wanted = "exercises/90_toys.ipynb, code cell 0 (`import numpy as np, no_such_thing`) raises ModuleNotFoundError"
    assert any(wanted in line for line in lines)
    assert any(
        'exercises/90_toys.ipynb, code cell 2 (`check(scaled, "90.1")`) raises NameError' in line for line in lines
    )
    assert any('solutions/90_toys.ipynb, code cell 2 (`check(scaled, "90.1")`) fails: ' in line for line in lines)


@pytest.mark.slow
def test_a_stub_that_runs_and_a_kernel_that_dies(course, tmp_path):
    course.build()
    path = course.root / "exercises/90_toys.ipynb"
    course.plant(path, "raise NotImplementedError", "return x * s")
    notebook = pages.read_notebook(path)
    with validate.step("here", 3) as bar:
        pages.run_stubs(notebook, tmp_path, bar)
    assert [text for text in notebook.complaints if "code cell 2" in text and "the stub runs" in text]
    assert len(notebook.complaints) == 1 and set(notebook.seconds) == {0, 1, 2} and bar.n == 3
    course.plant(path, "import numpy as np", "import os; os._exit(1)")
    notebook = pages.read_notebook(path)
    with validate.step("here", 3) as bar:
        pages.run_stubs(notebook, tmp_path, bar)
    assert len(notebook.complaints) == 1 and "was not run to its end" in notebook.complaints[0]


# --- without kernels


def test_the_toy_itself_is_sound(course, no_kernels, capsys):
    course.build()
    assert course.run() == 0, capsys.readouterr().out


DEAD = "(../exercises/90_toys.ipynb)"


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        # a vacuous check: nobody can fail it
        ("module", "# more cases", 'Case("empty", (draw(0, 2), 2.0)),', "the check 'empty' is vacuous"),
        ("module", "(draw(3, 2), -1.5)", "(0 * draw(3, 2), -1.5)", "to return zeros of the right shape earns 1 points"),
        # a leaked answer: in the docstring, in the prose
        ("module", "with the number s.", "with s:\n\n    result = np.multiply(x, s)\n", "stub contains `result = np"),
        ("lesson", "# ## 90.1 Scale it", "# Write `result =  np.multiply(x, s)`.\n# ## 90.1 Scale it",
         "exercises/90_toys.ipynb contains `result = np.multiply(x, s)`, a piece of the answer"),
        ("lesson", ".install()", ".install()\n# the bare product", "contains `# the bare product`, a piece"),
        # an unnamed misconception
        ("module", "lambda x, s: x * abs(s)", "lambda x, s: x + s * 1.0", "'no sign' is rejected, but called 'adds'"),
        ("module", "lambda x, s: x * abs(s)", "lambda x, s: x + s * 1.0", "'adds' and 'no sign' behave alike"),
        ("module", "lambda x, s: x * abs(s)", "lambda x, s: s * x", "'no sign' counts as passed: add a case on which"),
        # a dead link
        ("lecture", DEAD, "(../exercises/91_none.ipynb)", "link to ../exercises/91_none.ipynb is dead: no such file"),
        ("lecture", DEAD, "(../exercises/90_toys.ipynb#Nowhere)", "#Nowhere is dead: there is no such heading"),
        ("lecture", "(#Scaling-is-a-product)", "(#Nowhere)", "the link to #Nowhere is dead: there is no such heading"),
        ("lecture", "`a[0](b)`", '<img src="none.png">', "the link to none.png is dead"),
        # the rest of what is asked
        ("lecture", "# ## Scaling is", "# ## Scaling was", "says to read 'Scaling is a product', no `## ` heading"),
        ("lecture", "# On with", "# ## Scaling is a product\n# On with", "'Scaling is a product' stands twice"),
        ("lecture", "# # 90 Toys", "# 90 Toys", "notebooks/90_toys.ipynb needs one `# ` title; it has 0"),
        ("lecture", "# %%\nassert", '# %% tags=["raises-exception"]\nassert', "(`assert 2 * 3 == 6`) may fail unseen"),
        ("lecture", "assert 2", "# NBVAL_SKIP\nassert 2", "(`# NBVAL_SKIP`) may fail unseen"),
        ("module", '("90-a",)', '("90-b",)', "there is no outcome 90-b"),
        ("module", '("90-a",)', '("90-b",)', "no exercise tests outcome 90-a"),
        ("module", '("90-a",)', "()", "90.1: it names no outcome"),
        ("module", "[s * number for", "[s + number for", "alternative 0 is right and does not pass"),
        ("module", '"values", (draw(2, 3), 2.5)', '"values", (draw(2, 3), "a")', "its own answer does not pass"),
        ("module", '"values", (draw(2, 3), 2.5)', '"valeus", (draw(2, 3), 2.5)', "declaration raised ValueError: 90.1"),
    ],
)  # fmt: skip
def test_planted_faults(course, no_kernels, capsys, file, old, new, message):
    course.plant(getattr(course, file), old, new)
    if "empty" in new:
        course.plant(course.module, 'Check("values", 2),', 'Check("values", 2), Check("empty"),')
    course.build()
    assert course.run() == 1
    told = capsys.readouterr().out
    assert any(line.startswith("✗") and message in line for line in told.split("\n")), told
    assert "WRONG" in told or "unit 90" in told or "names no outcome" in told
    assert "to mend (notebooks: 3, exercises: 1" in told


def test_a_hand_edit(course, no_kernels, capsys):
    course.build()
    course.plant(course.root / "notebooks/90_toys.ipynb", "2 * 3 == 6", "2 * 3 == 3 * 2")
    assert course.run() == 1
    assert "✗ notebooks/90_toys.ipynb differs from its lesson: edit the lesson" in capsys.readouterr().out
    (course.root / "notebooks/90_toys.ipynb").write_text("no notebook")
    assert course.run() == 1
    assert "✗ notebooks/90_toys.ipynb cannot be read as a notebook: run `course build`" in capsys.readouterr().out


def test_lessons_that_cannot_be_built_and_units_without_one(course, no_kernels, capsys):
    course.build()
    course.plant(course.lesson, "# answer:", "# answer")
    assert course.run() == 1
    assert "✗ The notebooks cannot be built. 90_toys_exercises.py: '# answer" in capsys.readouterr().out
    course.lesson.unlink()
    assert course.run() == 1
    assert "✗ Unit 90 declares exercises, and lessons/90_…_exercises.py is missing" in capsys.readouterr().out


def test_a_stub_that_answers(course, monkeypatch):
    course.build()
    exercise = exercises.of_unit("90")[0]
    monkeypatch.setattr(build, "stub_source", lambda exercise: "def scaled(x, s):\n    return x * s")
    assert "its stub is 'passed' and not empty" in declared.stub_complaints(exercise)[0]


@pytest.mark.parametrize(("seconds", "late"), [((9.9, 9.9), 0), ((10.5, 0), 1), ((9.0,) * 7, 1), ((61.0,), 2)])
def test_over_time_is_shown_and_red_only_when_strict(course, capsys, monkeypatch, seconds, late):
    extra = "".join(f"\n# %%\nx = {number}\n" for number in range(6))
    course.lecture.write_text(course.lecture.read_text() + extra)
    course.build()

    def pretend(findings, *rest):
        findings.notebooks[0].seconds = dict(enumerate(seconds))

    monkeypatch.setattr(validate, "run_notebooks", pretend)
    assert course.run() == 0
    told = capsys.readouterr().out
    assert told.count("\n! notebooks/90_toys.ipynb") == late and ("over time" in told) == bool(late)
    assert course.run("--strict-time", "--json", str(course.root / "found.json")) == (1 if late else 0)
    told = capsys.readouterr().out
    assert told.count("\n✗ notebooks/90_toys.ipynb") == late and ("WRONG" in told) == bool(late)
    found = json.loads((course.root / "found.json").read_text())
    assert len(found["over_time"]) == late and found["ok"] == (not late)


def test_units_are_chosen(course, no_kernels, capsys):
    course.build()
    assert course.run("--units", " 90 ,") == 0
    assert course.run("--units", "91,90") == 2
    assert "There is no unit 91; there are: 90." in capsys.readouterr().err
    assert course.run("--jobs", "0") == 2
    (course.root / "notebooks/91_lost.ipynb").write_text(json.dumps({"cells": []}))
    assert course.run("--units", "90") == 0
    assert course.run() == 1


def test_nbval_that_does_not_start_is_no_success(course, tmp_path, monkeypatch):
    course.build()
    notebook = pages.read_notebook(course.root / "notebooks/90_toys.ipynb")
    monkeypatch.setattr(pages.sys, "executable", "/bin/false" if Path("/bin/false").exists() else sys.executable)
    with validate.step("here", 2) as bar:
        pages.run_nbval(course.root, [notebook], 1, tmp_path, bar)
    assert "was not run to its end by nbval" in notebook.complaints[0]


def test_a_step_is_never_silent(capsys):
    beats = threading.Semaphore(0)
    with validate.step("patience", 1) as bar:
        shown, bar.refresh = bar.refresh, lambda: (shown(), beats.release())
        assert beats.acquire(timeout=60) and beats.acquire(timeout=60)  # twice, while nothing else happens
    assert capsys.readouterr().err.count("patience") >= 4  # begin, two beats, end


def test_links():
    text = "[a](x.ipynb) ![b](y.png 'title') [c](<z.md>) [d](http://e.f) [g](mailto:h) `[i](j)` <a href='k'>"
    text += "\n```\n[l](m)\n```"
    assert pages.links(text) == ["x.ipynb", "y.png", "z.md", "k"]


def test_the_exercises_of_this_course_are_sound(root):
    lectures = [pages.read_notebook(path) for path in (root / "notebooks").glob("*.ipynb")]
    found = validate.Findings([])
    validate.check_exercises(found, exercises.UNITS, {n.unit: set(pages.headings_of(n)) for n in lectures})
    assert found.complaints == [] and found.ok
    assert {e.exercise.unit for e in found.exercises} == set(exercises.UNITS) >= {"04"}
    assert all(e.named == len(e.exercise.misconceptions) for e in found.exercises)


def test_no_answer_stands_in_an_exercise_notebook_of_this_course(root):
    for path in (root / "exercises").glob("*.ipynb"):
        notebook = pages.read_notebook(path)
        assert pages.lent_answers(notebook) == [] and pages.text_complaints(notebook) == []


def test_the_reason_is_taken_from_what_nbval_tells():
    head = "Notebook cell execution failed\nCell 1: {}\n\nInput:\nx = 1\n"
    raised = head.format("Cell execution caused an exception") + "\nTraceback:\n\n#x1B[31mKeyError#x1B[39m: 'x'\n"
    assert pages.reason(raised) == "KeyError: 'x'"
    assert pages.reason(head.format("Timeout of 4 seconds")) == "Timeout of 4 seconds"
    assert pages.reason("pytest plugin exception: no kernel") == "pytest plugin exception: no kernel"
