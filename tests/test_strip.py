"""The library that a child sees: it has what the notebook imports, it runs, and it holds no answer."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.checks import given_names, try_out
from course_lib.exercises import UNITS, of_unit
from course_lib.grading import batch, strip

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def prelude(unit: str) -> list[str]:
    return list(batch.plan(ROOT, unit).prelude)


@pytest.fixture(scope="module", params=UNITS)
def stripped(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"stripped{request.param}")
    strip.strip(request.param, prelude(request.param), folder)
    return request.param, folder


def own_modules(folder: Path) -> list[str]:
    names = [".".join(p.relative_to(folder).with_suffix("").parts) for p in folder.rglob("*.py")]
    quiet = {f"course_lib.{name}" for name in (*strip.SILENT, *strip.WHOLE)}
    return sorted(n for n in names if n not in quiet and not n.endswith("__init__"))


def test_the_notebooks_own_cells_run_on_it(stripped):
    unit, folder = stripped
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\nspace = {{}}\n"
    code += "".join(f"exec({cell!r}, space)\n" for cell in prelude(unit))
    code += f"import course_lib; assert course_lib.__file__.startswith({str(folder)!r})\n"
    code += "".join(f"import {name}\n" for name in own_modules(folder))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr[-800:]


def test_nothing_on_it_solves_an_exercise_of_the_unit(stripped):
    unit, folder = stripped
    answers = {(e.answer.rpartition(".")[0], e.name) for e in of_unit(unit)}
    for module in own_modules(folder):
        tree = ast.parse(folder.joinpath(*module.split(".")).with_suffix(".py").read_text())
        names = [n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
        assert not answers & {(module, name) for name in names}, "the answer itself is there"
        for thing in (getattr(importlib.import_module(module), name) for name in names):
            for exercise in of_unit(unit):
                named = {thing.__name__, module.rpartition(".")[2]} & set(exercise.forbidden)
                if not named and inspect.isclass(thing) == inspect.isclass(exercise.load_answer()):
                    status = try_out(thing, exercise).status
                    assert status != "passed", f"{module}.{thing.__name__} solves {exercise.id}"


def test_a_module_imported_as_a_whole_gives_only_what_answers_use():
    tree = ast.parse("def mine(x):\n    return by_hand.softmax(x) + np.exp(x)")
    assert list(strip._attributes([tree], {"by_hand": "course_lib.by_hand"})) == [("course_lib.by_hand", "softmax")]


def test_definitions_are_followed_through_files(tmp_path):
    text = strip.shaken({("course_lib.blocks", "EncoderBlock")})
    assert "class MultiHeadAttention" in text["course_lib.attention"]
    assert "class DecoderBlock" not in text["course_lib.blocks"]
    assert "AdditiveAttention" not in text["course_lib.attention"]


def test_only_the_needed_names_of_an_import_are_kept():
    """training.py imports two names from checkpoints in one line; whoever needs one of them gets one."""
    text = strip.shaken({("course_lib.positions", "sinusoidal")})
    assert all("import" not in line or "()" not in line for line in text["course_lib.positions"].splitlines())
    for module, source in strip.shaken({("course_lib.training", "fit")}).items():
        for node in (n for n in ast.parse(source).body if isinstance(n, ast.ImportFrom) and n.level == 1 and n.module):
            target = ast.parse(strip.shaken({("course_lib.training", "fit")}).get(f"course_lib.{node.module}", ""))
            made = {n.name for n in target.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
            made |= {
                t.id for n in target.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)
            }
            assert {a.name for a in node.names} <= made | {"KEY"}, (module, node.module)


@pytest.mark.parametrize("unit", UNITS)
def test_what_the_notebook_imports_is_given(unit):
    """Whoever uses what the notebook's own first cell imports has not borrowed the answer."""
    names = {name for module, name in strip.imported(prelude(unit)) if name and module != "course_lib.checks"}
    for exercise in of_unit(unit):
        free = given_names(exercise) | set(exercise.forbidden)
        assert {n for n in names - free if callable(getattr(strip, n, None)) or n.islower()} == set(), exercise.id
