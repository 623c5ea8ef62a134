"""lessons/*.py → notebooks/, exercises/, solutions/: the notebooks are generated, byte for byte.

A lesson is a percent-format script. In an exercise lesson, a code cell `# answer: course_lib.file.name` becomes
two cells: the stub (signature, docstring, NotImplementedError) or the whole answer, and the check.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import hashlib
import inspect
import json
import re
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jupytext

from . import coverage, exercises
from .exercises.declare import Exercise
from .shapes import expect

FOLDERS = ("notebooks", "exercises", "solutions")
MARKER = re.compile(r"#\s*answer\s*:\s*(\S+)\s*")


@dataclass(frozen=True)
class Cell:
    """One cell of a notebook to be."""

    kind: str
    source: str
    metadata: dict[str, Any] = field(default_factory=dict)


# --- reading a lesson ---------------------------------------------------------------------------------------


def read_lesson(path: Path) -> list[Cell]:
    """The cells of a percent-format script."""
    notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    cells = []
    for cell in notebook.cells:
        metadata = {k: v for k, v in cell.metadata.items() if k != "lines_to_next_cell"}
        expect(
            cell.cell_type in ("code", "markdown"),
            f"{path.name}: a cell is code or [markdown]; got {cell.cell_type}: {cell.source[:60]!r}",
        )
        if cell.source.strip():
            cells.append(Cell(cell.cell_type, cell.source.rstrip(), metadata))
    expect(bool(cells), f"{path.name} has no cells: a lesson starts with a line `# %% [markdown]`.")
    return cells


# --- from an answer to a stub -------------------------------------------------------------------------------


def answer_source(exercise: Exercise) -> str:
    """The answer's text without its annotations, which only the library needs."""
    source = textwrap.dedent(inspect.getsource(exercise.load_answer()))
    cuts: set[tuple[int, ...]] = set()  # row and column of begin and end, and is it an argument's?
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg) and node.annotation is not None:
            cuts.add((node.lineno, node.col_offset + len(node.arg.encode()), *_end(node.annotation), True))
        elif isinstance(node, ast.FunctionDef):
            if node.returns is not None:
                cuts.add((*_arrow(source, node.returns), *_end(node.returns), False))
            for inner in ast.walk(node):  # those of a class body stay: a dataclass lives by them
                if isinstance(inner, ast.AnnAssign) and inner.value is not None:
                    cuts.add((*_end(inner.target), *_end(inner.annotation), False))
    return _cut(source, cuts)


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def _arrow(source: str, returns: ast.expr) -> tuple[int, int]:
    """Where the " ->" before a return annotation begins."""
    line = source.encode().split(b"\n")[returns.lineno - 1]
    return returns.lineno, len(line[: line.rindex(b"->", 0, returns.col_offset)].rstrip())


def _cut(source: str, cuts: set[tuple[int, ...]]) -> str:
    lines = [line.encode() for line in source.split("\n")]
    for row, column, end_row, end_column, is_argument in sorted(cuts, reverse=True):
        rest = lines[end_row - 1][end_column:]
        if is_argument and rest.startswith(b" = "):
            rest = b"=" + rest[3:]  # a default without an annotation is written without spaces
        lines[row - 1 : end_row] = [lines[row - 1][:column] + rest]
    return "\n".join(line.decode() for line in lines).rstrip()


def stub_source(exercise: Exercise) -> str:
    """Signature and docstring of the answer; of a class, those of every method."""
    source = answer_source(exercise)
    lines = source.split("\n")
    for node in sorted(functions(ast.parse(source)), key=lambda n: -n.lineno):
        first, last = _body_lines(node, lines)
        indent = " " * node.body[0].col_offset
        lines[first - 1 : last] = [f"{indent}raise NotImplementedError"]
    return "\n".join(lines)


def _body_lines(node: Any, lines: list[str]) -> tuple[int, int]:
    """First and last line of a function's body without its docstring, with all comments that belong to it."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    starts = [n.lineno for s in body[:1] for n in [s, *getattr(s, "decorator_list", [])]]
    first, last = min(starts, default=node.end_lineno + 1), node.end_lineno
    expect(first > node.lineno, f"{node.name}: write its body on a line of its own, below `def`.")
    while not lines[first - 2].strip() or lines[first - 2].strip().startswith("#"):
        first -= 1
    inside = " " * node.body[0].col_offset + "#"
    while last < len(lines) and lines[last].startswith(inside):
        last += 1
    return first, last


def functions(tree: ast.Module) -> Iterator[Any]:
    """The functions of an answer: itself, or the methods of a class."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from (n for n in node.body if isinstance(n, ast.FunctionDef))
        elif isinstance(node, ast.FunctionDef):
            yield node


def names_needed(source: str) -> set[str]:
    """Global names that a piece of code reads and does not make itself."""
    import symtable

    def free(table: symtable.SymbolTable) -> set[str]:
        inner = {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
        return inner.union(*(free(child) for child in table.get_children()))

    top = symtable.symtable(source, "answer", "exec")
    return free(top) - {s.get_name() for s in top.get_symbols() if s.is_assigned()} - set(dir(builtins))


def names_made(source: str) -> set[str]:
    """Names that a code cell binds at its top level: imports, definitions, assignments."""
    import symtable

    plain = "\n".join(line for line in source.split("\n") if not line.lstrip().startswith(("%", "!")))
    try:
        top = symtable.symtable(plain, "cell", "exec")
    except SyntaxError as error:
        raise ValueError(f"{error.msg} in a cell's line {error.lineno}: {error.text!r}") from None
    return {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}


# --- assembling ---------------------------------------------------------------------------------------------


def lecture(path: Path, repository: str) -> dict[str, Any]:
    """A lecture's notebook."""
    cells = [_first_cell(path, "notebooks", repository), *_colab(repository), *read_lesson(path)]
    return notebook(path.stem, cells)


def exercise_pair(path: Path, repository: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The stub's notebook and the solution's, from one lesson."""
    stem = path.stem.removesuffix("_exercises")
    stubs, solutions = ([_first_cell(path, f, repository), *_colab(repository)] for f in FOLDERS[1:])
    known, left = {"check", "hint"}, _declared(path)
    for cell in read_lesson(path):
        exercise = _asked_for(path, cell, left)
        if exercise is None:
            known |= _names_made(path, cell)
            stubs.append(cell)
            solutions.append(cell)
            continue
        _expect_heading(path, exercise, stubs[-1])
        _expect_names(path, exercise, known)
        known.add(exercise.name)
        for cells, is_stub in ((stubs, True), (solutions, False)):
            cells[-1] = _with_facts(cells[-1], exercise)
            cells += _answer_and_check(exercise, is_stub)
    expect(not left, f"{path.name} has no cell for {', '.join(left)}, declared in course_lib/exercises.")
    return notebook(stem, stubs), notebook(stem, solutions)


def _asked_for(path: Path, cell: Cell, left: dict[str, Exercise]) -> Exercise | None:
    """The exercise whose marker this cell is, taken from those that are left; None for any other cell."""
    first = cell.source.splitlines()[0]
    if cell.kind != "code" or not re.match(r"#\s*(answer|exercise|solution)\b", first):
        return None
    marked = MARKER.fullmatch(first)
    expect(marked is not None, f"{path.name}: {first!r} is no marker: write `# answer: course_lib.file.name`.")
    assert marked is not None
    expect(first == cell.source, f"{path.name}: a cell holds more than {first!r}: give the rest its own cell.")
    expect(
        marked[1] in left,
        f"{path.name}: {first!r} names no exercise of this unit that is still to come; "
        f"those are: {', '.join(left) or 'none'}.",
    )
    return left.pop(marked[1])


def _names_made(path: Path, cell: Cell) -> set[str]:
    try:
        return names_made(cell.source) if cell.kind == "code" else set()
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def _declared(path: Path) -> dict[str, Exercise]:
    return {exercise.answer: exercise for exercise in exercises.of_unit(path.name[:2])}


def _expect_heading(path: Path, exercise: Exercise, before: Cell) -> None:
    heading = f"## {exercise.id} {exercise.title}"
    expect(
        before.kind == "markdown" and heading in before.source.split("\n"),
        f"{path.name}: the text before the cell of {exercise.id} should have the heading {heading!r}.",
    )


def _expect_names(path: Path, exercise: Exercise, known: set[str]) -> None:
    missing = sorted(names_needed(answer_source(exercise)) - known)
    expect(
        not missing,
        f"{path.name}: the answer of {exercise.id} uses {', '.join(missing)}, which no cell above imports or defines.",
    )


def _with_facts(cell: Cell, exercise: Exercise) -> Cell:
    """Minutes, points and outcomes below the exercise's heading."""
    heading = f"## {exercise.id} {exercise.title}"
    points = "1 point" if exercise.points == 1 else f"{exercise.points} points"
    facts = f"*{exercise.minutes} minutes · {points} · outcome {', '.join(exercise.outcomes)}*"
    return Cell(cell.kind, cell.source.replace(heading, f"{heading}\n\n{facts}", 1), cell.metadata)


def _answer_and_check(exercise: Exercise, is_stub: bool) -> list[Cell]:
    slug = exercise.id.replace(".", "-")
    base = {"schema_version": 3, "task": False}
    answer = base | {"grade": False, "solution": True, "locked": False, "grade_id": f"answer-{slug}"}
    graded = base | {"grade": True, "solution": False, "locked": True, "grade_id": f"check-{slug}"}
    graded["points"] = exercise.points
    tags = {"tags": ["raises-exception"]} if is_stub else {}  # so that "run all" goes on to the next exercise
    return [
        Cell("code", stub_source(exercise) if is_stub else answer_source(exercise), {"nbgrader": answer}),
        Cell("code", f'check({exercise.name}, "{exercise.id}")', {"nbgrader": graded} | tags),
    ]


def _first_cell(path: Path, folder: str, repository: str) -> Cell:
    """Which file to edit, and where to open the notebook without an installation."""
    name = f"{folder}/{path.stem.removesuffix('_exercises')}.ipynb"
    text = f"*Generated from `lessons/{path.name}`: edit that file, then run `course build`.*"
    if repository:
        colab = f"https://colab.research.google.com/github/{repository}/blob/main/{name}"
        binder = f"https://mybinder.org/v2/gh/{repository}/main?labpath={name}"
        text += f"\n\n*Open in [Colab]({colab}) or [Binder]({binder}).*"
    return Cell("markdown", text)


def _colab(repository: str) -> list[Cell]:
    """Colab has torch already: only the course's own library is installed there, and nothing elsewhere."""
    if not repository:
        return []
    source = (
        "import subprocess\nimport sys\n\n"
        'if "google.colab" in sys.modules:  # Colab has the packages, all but the course\'s own library\n'
        f'    wanted = ["git+https://github.com/{repository}", "anywidget"]\n'
        '    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", *wanted], check=True)'
    )
    return [Cell("code", source, {"tags": ["colab"], "jupyter": {"source_hidden": True}})]


def notebook(stem: str, cells: list[Cell]) -> dict[str, Any]:
    """The notebook as JSON: no outputs, and cell ids that follow from the content."""
    seen: dict[str, int] = {}
    made: list[dict[str, Any]] = []
    for cell in cells:
        digest = hashlib.sha256(f"{stem}|{cell.kind}|{cell.source}".encode()).hexdigest()[:12]
        seen[digest] = seen.get(digest, 0) + 1
        id_ = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
        body: dict[str, Any] = {"cell_type": cell.kind, "id": id_, "metadata": cell.metadata}
        body["source"] = cell.source.splitlines(keepends=True)
        made.append(body | ({"execution_count": None, "outputs": []} if cell.kind == "code" else {}))
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return {
        "cells": made,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def build(root: Path) -> dict[Path, str]:
    """Every generated notebook, and the table of what they cover: path and text."""
    lessons = sorted((root / "lessons").glob("*.py"))
    expect(bool(lessons), f"There is no lesson in {root / 'lessons'}: is this the course's folder?")
    expect(
        (root / "pyproject.toml").exists(),
        f"There is no pyproject.toml in {root}: is this the course's folder?",
    )
    with open(root / "pyproject.toml", "rb") as file:
        repository = tomllib.load(file).get("tool", {}).get("course", {}).get("repository", "")
    made: dict[Path, dict[str, Any]] = {}
    for path in lessons:
        name = path.stem.removesuffix("_exercises") + ".ipynb"
        if path.stem.endswith("_exercises"):
            made[root / "exercises" / name], made[root / "solutions" / name] = exercise_pair(path, repository)
        else:
            made[root / "notebooks" / name] = lecture(path, repository)
    texts = {p: json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True) + "\n" for p, nb in made.items()}
    return texts | ({root / "docs" / "coverage.md": coverage.page()} if (root / "docs").is_dir() else {})


def differences(root: Path) -> list[str]:
    """What is not as `course build` would write it."""
    made = build(root)
    present = {p for folder in FOLDERS for p in (root / folder).glob("*.ipynb")}
    wrong = [f"{p.relative_to(root)} has no lesson: delete it, or write one" for p in sorted(present - made.keys())]
    for path, text in made.items():
        if not path.exists():
            wrong.append(f"{path.relative_to(root)} is missing: run `course build`")
        elif path.read_bytes() != text.encode():
            wrong.append(f"{path.relative_to(root)} differs from its lesson: edit the lesson, then run `course build`")
    return wrong


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a notebook differs from its lesson"
    )
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the course's folder (here)")


def main(args: argparse.Namespace) -> int:
    """Write the notebooks, or with --check say which are not as they would be written."""
    if args.check:
        wrong = differences(args.root)
        print("\n".join(wrong) or "Every notebook is as its lesson says.")
        return 1 if wrong else 0
    made = build(args.root)
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_bytes() != text.encode():
            path.write_bytes(text.encode())
            print(f"wrote {path.relative_to(args.root)}")
    print(f"{len(made)} files are up to date.")
    return 0
