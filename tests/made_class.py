"""Submissions made for tests: right ones, empty ones, and ones that are wrong in each declared way."""

from __future__ import annotations

import ast
import importlib
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from course_lib.exercises import of_unit
from course_lib.exercises.declare import Exercise
from course_lib.grading import strip
from course_lib.units import UNITS

ROOT = Path(__file__).parents[1]


def name_of(unit: str) -> str:
    return next(u.name for u in UNITS if u.number == unit)


def notebook(unit: str, folder: str = "solutions") -> dict[str, Any]:
    return json.loads((ROOT / folder / f"{name_of(unit)}.ipynb").read_text(encoding="utf-8"))


def answer_cell(made: dict[str, Any], exercise: str) -> dict[str, Any]:
    """The cell of a notebook in which an exercise is answered."""
    wanted = "answer-" + exercise.replace(".", "-")
    return next(c for c in made["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == wanted)


def with_answer(unit: str, exercise: str, source: str) -> dict[str, Any]:
    """The right notebook, but for one answer."""
    made = notebook(unit)
    answer_cell(made, exercise)["source"] = source
    return made


def hand_in(submissions: Path, student: str, unit: str, made: dict[str, Any]) -> Path:
    path = submissions / student / f"{name_of(unit)}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made), encoding="utf-8")
    return path


class Wrong(NamedTuple):
    """An answer that is wrong in a declared way, as a student would write it down."""

    exercise: Exercise
    misconception: str
    source: str


def wrong_answers(unit: str) -> Iterator[Wrong]:
    """Every misconception of a unit whose code can be written into a notebook, helpers and all.

    The code is taken from the unit's own file, so what is needed of other files must be what the notebook gives.
    """
    module = f"course_lib.exercises.u{unit}"
    tree = ast.parse(Path(str(importlib.import_module(module).__file__)).read_text(encoding="utf-8"))
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "Exercise"):
        given = {k.arg: k.value for k in call.keywords}
        id_node = given.get("id") or (call.args[0] if call.args else None)
        exercise = next((e for e in of_unit(unit) if isinstance(id_node, ast.Constant) and e.id == id_node.value), None)
        if exercise is None or "misconceptions" not in given:
            continue
        for made in (n for n in ast.walk(given["misconceptions"]) if isinstance(n, ast.Call)):
            if getattr(made.func, "id", "") == "Misconception" and len(made.args) >= 2:
                source = _written_down(module, exercise, made.args[1])
                if source and isinstance(made.args[0], ast.Constant):
                    yield Wrong(exercise, str(made.args[0].value), source)


def _written_down(module: str, exercise: Exercise, wrong: ast.expr) -> str:
    names = strip.global_names(compile(ast.Expression(wrong), "", "eval"))
    parts = strip.shaken({(module, name) for name in names})
    own = parts.pop(module, "")
    lines = [s for s in ast.parse(own).body if not isinstance(s, ast.ImportFrom) or s.module != "__future__"]
    imports = [s for s in lines if isinstance(s, ast.ImportFrom) and s.level]
    if any(s.module not in ("by_hand", "shapes") for s in imports) or exercise.name in names:
        return ""
    kept = "\n\n".join(ast.unparse(s).replace("from ..", "from course_lib.") for s in lines)
    return textwrap.dedent(f"{kept}\n\n{exercise.name} = {ast.unparse(wrong)}\n")
