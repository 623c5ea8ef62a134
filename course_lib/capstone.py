"""The learner's own parts for the capstone, taken from their exercise notebooks.

A notebook is not run: only its imports, definitions and plain constants are, in a namespace of their own. A part is
taken if it passes the checks of its exercise; in place of any other the course's own part stands, and the table that
`own_parts()` shows says which and why.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

from . import exercises, observe
from .checks import examine
from .exercises.declare import Exercise
from .parts import Parts

WANTED = {
    "MultiHead": "06.8",
    "see_the_past": "07.2",
    "sinusoid_table": "08.2",
    "layer_norm": "09.2",
    "feed_forward": "09.3",
}
CHEAP = {"float", "int", "len", "math", "np", "numpy", "range", "torch", "tuple"}  # what a constant may call


def own_parts(folder: str | Path = ".") -> Parts:
    """The parts of the translator: yours, from the exercise notebooks in `folder`, or the course's where those fail."""
    own: dict[str, Any] = {}
    rows = []
    for name, id_ in WANTED.items():
        found, why = find_part(id_, Path(folder))
        if found is not None:
            own[name] = found
        rows.append((name, id_, "yours" if found is not None else f"the course's: {why}"))
    return Parts(**own, whose=tuple(rows))


def find_part(id_: str, folder: Path) -> tuple[Any, str]:
    """What the learner wrote for an exercise, if it passes; otherwise None and the reason."""
    try:
        exercise = exercises.find(id_)
        exercise.load_answer()
    except (ImportError, AttributeError, ValueError):
        return None, "there is nothing here to check yours with"  # a grader's child has no answers
    notebook = next(iter(sorted(folder.glob(f"{exercise.unit}_*.ipynb"))), None)
    if notebook is None:
        return None, f"there is no notebook of unit {exercise.unit} in this folder"
    try:
        space = definitions(notebook)
    except (OSError, ValueError, KeyError, TypeError):
        return None, f"{notebook.name} cannot be read as a notebook"
    except observe.TooLong:
        return None, f"the definitions in {notebook.name} do not come to an end"
    if exercise.name not in space:
        return None, f"{notebook.name} has no {exercise.name} that can be read"
    return judged(space[exercise.name], exercise)


def judged(answer: Any, exercise: Exercise) -> tuple[Any, str]:
    """The answer, or None and what its check says."""
    report = examine(answer, exercise)
    if report.status == "passed":
        return answer, ""
    told = {
        "missing": f"{exercise.id} is still empty",
        "forbidden": f"{exercise.id} does not stand on its own feet. {report.message}",
    }
    return None, told.get(report.status, f"{exercise.id} has {report.points} of {exercise.points} points so far")


def definitions(notebook: Path) -> dict[str, Any]:
    """The names that a notebook's imports, functions, classes and plain constants give; nothing else is run."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    space: dict[str, Any] = {"__name__": "__main__"}

    def run() -> None:
        for cell in cells:
            if cell["cell_type"] == "code":
                for statement in statements("".join(cell["source"])):
                    with contextlib.suppress(Exception):  # what it should have defined is missed soon enough
                        exec(compile(ast.Module([statement], []), notebook.name, "exec"), space)

    with contextlib.redirect_stdout(io.StringIO()):
        observe.within_limits(run, seconds=20)
    return space


def statements(source: str) -> list[ast.stmt]:
    """The statements of a cell that define something without computing it; none where the cell is no Python."""
    lines = [line for line in source.split("\n") if not line.lstrip().startswith(("%", "!"))]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        return []
    defining = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    return [node for node in tree.body if isinstance(node, defining) or _is_constant(node)]


def _is_constant(node: ast.stmt) -> bool:
    """`eps = 1e-5`, `low = float("-inf")` or `relu = lambda x: …`, but not `model = train(…)`."""
    return isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _is_cheap(node.value)


def _is_cheap(value: ast.AST) -> bool:
    if isinstance(value, ast.Lambda):
        return True
    if isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[0] not in CHEAP:
        return False
    return all(map(_is_cheap, ast.iter_child_nodes(value)))
