"""From lessons to notebooks: the same bytes every time, no answer in a stub, and errors that say what to mend."""

from __future__ import annotations

import argparse
import ast
import importlib
import itertools
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest

from course_lib import build, exercises
from course_lib.exercises.declare import Case, Check, Exercise

NUMBER = itertools.count()

ANSWERS = '''
from __future__ import annotations
import functools
from dataclasses import dataclass
import numpy as np
from numpy import exp as exponential


def double(x: np.ndarray, *, times: int = 2, name: str | None = None) -> np.ndarray:
    """Twice x."""
    # the secret comment

    # and another
    return x * times
    # a last word


class Layer(dict):
    """A layer with a bias."""

    width: int = 3

    def __init__(self, d: int):
        """Make it."""
        super().__init__()
        self.d = d

    def forward(
        self,
        x: dict[
            str, int
        ],
        /,
        *rest: int,
        scale: float = 0.5,
        **more: str,
    ) -> tuple[
        int, str
    ]:
        total: list[int] = [self.d]

        @functools.cache
        def inner(y: int) -> int:
            return y + 1

        return total, inner
'''

LESSON = """
# %% [markdown]
# # 90 Exercises: toys

# %%
import functools
import numpy as np
from course_lib.checks import check, hint

# %% [markdown]
# ## 90.1 Double it
#
# Words.

# %%
# answer: {module}.double

# %% [markdown]
# ## 90.2 A layer

# %%
# answer: {module}.Layer

# %% [markdown]
# The end.
"""

LECTURE = """
# %% [markdown]
# # 90 Toys

# %%
x = 1

# %% [markdown]
# Once more.

# %%
x = 1
"""


def exercise(answer: str, id_: str = "90.1", title: str = "Double it", points: int = 1) -> Exercise:
    checks = (Check("all", points),)
    return Exercise(id_, title, answer, 5, ("04-b",), checks, lambda draw: [Case("all")], ("a", "b", "c"))


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Makes a module from a text, and gives its name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(source: str = ANSWERS) -> str:
        name = f"toy_answers_{next(NUMBER)}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source), encoding="utf-8")
        importlib.invalidate_caches()
        return name

    return make


@pytest.fixture
def course(tmp_path, monkeypatch, answers):
    """A course with one unit, 90: a lecture and two exercises."""
    module = answers()
    declared = (exercise(f"{module}.double", points=3), exercise(f"{module}.Layer", "90.2", "A layer"))
    monkeypatch.setattr(exercises, "UNITS", ("90",))
    monkeypatch.setattr(exercises, "of_unit", lambda unit: declared)
    (tmp_path / "pyproject.toml").write_text("[tool.course]\n")
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons/90_toys.py").write_text(LECTURE)
    (tmp_path / "lessons/90_toys_exercises.py").write_text(LESSON.format(module=module))
    return tmp_path


def edit(course: Path, old: str, new: str, file: str = "90_toys_exercises.py") -> None:
    path = course / "lessons" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def page(course: Path, folder: str):
    return nbformat.reads(build.build(course)[course / folder / "90_toys.ipynb"], as_version=4)


def run(course: Path, check: bool = False) -> int:
    return build.main(argparse.Namespace(root=course, check=check))


# --- the same bytes


def test_the_notebooks_of_this_course_are_up_to_date(root):
    assert build.differences(root) == []


def test_two_builds_are_equal_whatever_the_hash_seed(root):
    code = "import hashlib, pathlib, sys; from course_lib import build\nmade = build.build(pathlib.Path(sys.argv[1]))\n"
    code += "print(hashlib.sha256(repr(sorted((str(p), t) for p, t in made.items())).encode()).hexdigest())"
    made = [
        subprocess.run(
            [sys.executable, "-c", code, str(root)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert made[0] == made[1] and len(made[0]) == 65


def test_building_twice_changes_nothing(course, capsys):
    first = build.build(course)
    assert first == build.build(course)
    assert run(course) == 0 and "wrote exercises/90_toys.ipynb" in capsys.readouterr().out
    stamps = {path: path.stat().st_mtime_ns for path in first}
    assert run(course) == 0 and "wrote" not in capsys.readouterr().out
    assert stamps == {path: path.stat().st_mtime_ns for path in first}
    assert all(path.read_bytes() == text.encode() for path, text in first.items())


# --- form of a notebook


@pytest.mark.parametrize("folder", build.FOLDERS)
def test_notebooks_are_valid_and_empty(course, folder):
    notebook = page(course, folder)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code and all(cell.outputs == [] and cell.execution_count is None for cell in code)


def test_the_first_cell_names_the_file_to_edit(course):
    for folder, file in zip(build.FOLDERS, ("90_toys.py", *["90_toys_exercises.py"] * 2), strict=True):
        first = page(course, folder).cells[0]
        assert first.cell_type == "markdown" and f"`lessons/{file}`" in first.source and "course build" in first.source


def test_ids_follow_from_content(course):
    before = page(course, "notebooks").cells
    ids = [cell.id for cell in before]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", id_) for id_ in ids)
    assert before[2].source == before[4].source and before[2].id != before[4].id
    edit(course, "# Once more.", "# Once more.\n\n# %%\ny = 2", "90_toys.py")
    after = {cell.source: cell.id for cell in page(course, "notebooks").cells}
    assert len(after) == len(before)
    assert all(after[cell.source] == cell.id for cell in (before[0], before[1], before[3]))
    assert {cell.id for cell in before} < {cell.id for cell in page(course, "notebooks").cells}


def test_exercise_and_solution_are_the_same_but_for_the_answers(course):
    stub, solution = page(course, "exercises").cells, page(course, "solutions").cells
    assert len(stub) == len(solution)
    differing = [s.metadata.get("nbgrader", {}).get("grade_id") for s, a in zip(stub, solution, strict=True)
                 if s.source != a.source]  # fmt: skip
    assert differing == ["answer-90-1", "answer-90-2"]
    facts = next(cell.source for cell in stub if cell.source.startswith("## 90.1"))
    assert facts.split("\n\n")[:2] == ["## 90.1 Double it", "*5 minutes · 3 points · outcome 04-b*"]
    assert "*5 minutes · 1 point · outcome 04-b*" in json.dumps(stub, ensure_ascii=False)


@pytest.mark.parametrize("folder", ["exercises", "solutions"])
def test_nbgrader_finds_what_it_wants(course, folder):
    """The fields of nbgrader's cell schema, version 3: all of them, of the right type, points where graded."""
    types = {"schema_version": int, "grade_id": str, "grade": bool, "solution": bool, "locked": bool, "task": bool}
    found = [cell for cell in page(course, folder).cells if "nbgrader" in cell.metadata]
    ids = [cell.metadata.nbgrader.grade_id for cell in found]
    assert ids == ["answer-90-1", "check-90-1", "answer-90-2", "check-90-2"]
    for cell in found:
        meta = dict(cell.metadata.nbgrader)
        points = meta.pop("points", None)
        assert {key: type(value) for key, value in meta.items()} == types
        assert meta["schema_version"] == 3 and re.fullmatch(r"[A-Za-z0-9_-]+", meta["grade_id"])
        assert meta["grade"] == meta["locked"] == (not meta["solution"]) == (points is not None) and not meta["task"]
        tagged = cell.metadata.get("tags", []) == ["raises-exception"]
        assert tagged == (meta["grade"] and folder == "exercises")
    assert found[1].metadata.nbgrader.points == 3 and found[1].source == 'check(double, "90.1")'


def test_launch_links_only_where_there_is_a_repository(course):
    text = "".join(build.build(course).values())
    assert "colab" not in text and "mybinder" not in text and "pip" not in text
    (course / "pyproject.toml").write_text('[tool.course]\nrepository = "who/what"\n')
    for folder in build.FOLDERS:
        first, second = page(course, folder).cells[:2]
        assert f"colab.research.google.com/github/who/what/blob/main/{folder}/90_toys.ipynb" in first.source
        assert f"mybinder.org/v2/gh/who/what/main?labpath={folder}/90_toys.ipynb" in first.source
        assert second.cell_type == "code" and second.metadata.tags == ["colab"]
        assert "git+https://github.com/who/what" in second.source and "--no-deps" in second.source
        exec(second.source, {})  # outside Colab it does nothing
    (course / "pyproject.toml").unlink()
    with pytest.raises(ValueError, match=r"no pyproject\.toml .* is this the course's folder"):
        build.build(course)


# --- answers and stubs


def test_annotations_are_stripped(answers):
    module = answers()
    source = build.answer_source(exercise(f"{module}.double"))
    assert source.split("\n")[0] == "def double(x, *, times=2, name=None):"
    layer = build.answer_source(exercise(f"{module}.Layer"))
    assert "def __init__(self, d):" in layer and "total = [self.d]" in layer and "def inner(y):" in layer
    assert "width: int = 3" in layer  # a class's own fields mean something
    tree = ast.parse(layer)
    forward = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "forward")
    everything = [*forward.args.args, *forward.args.posonlyargs, *forward.args.kwonlyargs, forward.args.vararg]
    assert all(arg.annotation is None for arg in [*everything, forward.args.kwarg]) and forward.returns is None
    assert ast.unparse(forward.args) == "self, x, /, *rest, scale=0.5, **more"


def test_stripping_keeps_the_meaning_where_letters_take_more_than_a_byte(answers):
    module = answers('def f(α: int = 1, β: "→" = 2) -> "größer":\n    """é."""\n    return α + β\n')
    assert build.answer_source(exercise(f"{module}.f")).split("\n")[0] == "def f(α=1, β=2):"


def test_a_stub_is_signature_docstring_and_an_error(answers):
    assert build.stub_source(exercise(f"{answers()}.double")) == (
        'def double(x, *, times=2, name=None):\n    """Twice x."""\n    raise NotImplementedError'
    )


def test_the_stub_of_a_class_keeps_every_method_and_no_body(answers):
    module = answers()
    stub = build.stub_source(exercise(f"{module}.Layer"))
    assert stub.count("raise NotImplementedError") == 2 == stub.count("    def ")
    assert '"""A layer with a bias."""' in stub and '"""Make it."""' in stub and "class Layer(dict):" in stub
    for secret in ("super()", "self.d", "total", "inner", "cache", "return"):
        assert secret not in stub
    space: dict = {}
    exec(stub, space)
    with pytest.raises(NotImplementedError):
        space["Layer"](3)


@pytest.mark.parametrize(
    "body",
    [
        "# secret\n    return 1",
        "# secret\n\n    # secret\n\n    return 1",
        '"""Doc."""\n\n    # secret\n    return 1',
        '"""Doc."""\n    return 1\n    # secret',
        '"""Doc."""\n    @secret\n    def g(): return 1\n    return g',
        '"""Doc."""\n    if (secret := 1):\n        return secret\n    else:\n        # secret\n        return 1',
        '"""Doc."""',
    ],
)
def test_nothing_of_the_body_leaks(answers, body):
    stub = build.stub_source(exercise(f"{answers(f'def f(x):{chr(10)}    {body}{chr(10)}')}.f"))
    assert "secret" not in stub and "return" not in stub
    assert ('"""Doc."""' in stub) == ("Doc" in body)
    ast.parse(stub)
    assert stub.endswith("\n    raise NotImplementedError")


def test_a_body_beside_def_is_refused(answers):
    with pytest.raises(ValueError, match="f: write its body on a line of its own"):
        build.stub_source(exercise(f"{answers('def f(x): return x')}.f"))


def test_names_needed():
    source = """
@decorate
class A(Base):
    size = start
    def f(self, x=default):
        import math
        local = [len(y) for y in x]
        def g(): return local, helper, A, math
        return np.exp(local), print, __class__
"""
    assert build.names_needed(source) == {"decorate", "Base", "start", "default", "helper", "np"}


def test_names_made():
    source = (
        "%matplotlib inline\n!ls\nimport a.b, c as d\nfrom e import f\nx, *y = z\ndef g(h): i = 1\nclass J: k = 1\n"
    )
    source += "for l in x:\n    m = l\nwith o as p: pass\nprint(q)"
    assert build.names_made(source) == {"a", "d", "f", "x", "y", "g", "J", "l", "m", "p"}


# --- errors that speak


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("# answer: {m}.double", "# answer {m}.double", r"90_toys_exercises\.py: '# answer .*' is no marker: write"),
        ("# answer: {m}.double", "# solution: {m}.double", r"is no marker: write `# answer: course_lib"),
        ("# answer: {m}.double", "# answer: {m}.doubel", r"names no exercise of this unit .* those are: \w+\.double"),
        ("# answer: {m}.Layer", "# answer: {m}.double", r"names no exercise of this unit that is still to come"),
        ("# answer: {m}.double", "# answer: {m}.double\nx = 1", "holds more than .*: give the rest its own cell"),
        ("## 90.1 Double it", "## 90.1 Twice", r"cell of 90\.1 should have the heading '## 90\.1 Double it'"),
        ("import functools\n", "", r"the answer of 90\.2 uses functools, which no cell above imports"),
        ("# %%\n# answer: {m}.Layer\n", "", r"has no cell for \w+\.Layer, declared in course_lib/exercises"),
        (
            "import functools",
            "import functools as",
            r"90_toys_exercises\.py: .* in a cell's line 1: 'import functools as",
        ),
        (
            "# %% [markdown]\n# The end.",
            "# %% [raw]\n# The end.",
            r"a cell is code or \[markdown\]; got raw: .*The end",
        ),
    ],
)
def test_mistakes_in_a_lesson(course, old, new, message):
    module = exercises.of_unit("90")[0].answer.partition(".")[0]
    edit(course, old.replace("{m}", module), new.replace("{m}", module))
    with pytest.raises(ValueError, match=message):
        build.build(course)


def test_an_empty_lesson_and_an_empty_folder(course):
    (course / "lessons/90_toys.py").write_text("")
    with pytest.raises(ValueError, match=r"90_toys\.py has no cells: a lesson starts with"):
        build.build(course)
    for path in (course / "lessons").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match=r"There is no lesson in .*lessons: is this the course's folder"):
        build.build(course)


# --- course build --check


def test_check_names_what_is_missing_differs_or_has_no_lesson(course, capsys):
    assert run(course, check=True) == 1
    assert capsys.readouterr().out.count("is missing: run `course build`") == 3
    assert not (course / "exercises").exists()
    assert run(course) == 0 == run(course, check=True)
    assert "as its lesson says" in capsys.readouterr().out
    notebook = course / "solutions/90_toys.ipynb"
    before = notebook.read_bytes()
    notebook.write_bytes(before + b"\n")
    (course / "notebooks/91_lost.ipynb").write_text("{}")
    assert run(course, check=True) == 1
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "notebooks/91_lost.ipynb has no lesson: delete it, or write one",
        "solutions/90_toys.ipynb differs from its lesson: edit the lesson, then run `course build`",
    ]
    assert notebook.read_bytes() == before + b"\n"
    notebook.write_bytes(before.replace(b"\n", b"\r\n"))
    assert any("solutions" in text for text in build.differences(course))
