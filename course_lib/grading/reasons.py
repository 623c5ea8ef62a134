"""Why a part was not earned, for a student to read: what kind of difference, but no hidden input and no answer."""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType

import numpy as np

from .. import exercises
from ..checks import fitted, given_names, same
from ..exercises.declare import Case, Exercise
from ..observe import Observation, Opaque
from .strip import global_names

KINDS = {"LinAlgError", "AxisError", "OutOfMemoryError", "TooLong", "JSONDecodeError", "UnpicklingError"}
KINDS |= {"Tensor", "Parameter", "function", "generator", "method", "module", "dict_keys", "dict_values", "ndarray"}


def known(kind: object, cells: Iterable[str], other: str = "an error of its own") -> str:
    """The name of an error or type, if it is common or stands in the notebook: a new one may spell what went in."""
    if not isinstance(kind, str) or not kind.isidentifier() or len(kind) > 60:
        return other
    own = hasattr(builtins, kind) or kind in KINDS or any(re.search(rf"\b{kind}\b", cell) for cell in cells)
    return kind if own else other


def reason(case: Case, got: Observation, want: Observation, names: Sequence[str], cells: Sequence[str]) -> str:
    """One sentence: an error, a form, the kind of numbers, a side effect or a gradient."""
    if got.fault is not None:
        return _fault(got, cells)
    if case.complaint is not None:
        return case.complaint(got.output).partition(" For example, ")[0]  # the example is one of the hidden inputs
    if want.fault is not None:
        return f"This input should be refused with a {want.fault.kind}; yours returned something."
    if not same(got.output, want.output):
        return _value(got.output, want.output, cells)
    if got.changed != want.changed:
        changed = ", ".join(names[i] for i in got.changed if 0 <= i < len(names))
        return f"It changes its input {changed} in place: work on a copy."
    if got.parameters != want.parameters:
        return "Its parameters do not have the names and shapes that the exercise fixes."
    if got.gradients is None:
        return "The values are right, but no gradient flows back: something cuts the path."
    return "The values are right, but a gradient is not."


def _fault(got: Observation, cells: Sequence[str]) -> str:
    """The kind of error and the student's own line: the message might quote what went in."""
    assert got.fault is not None
    kind = known(got.fault.kind, cells)
    if kind == "TooLong":
        return "It did not end in time. Is there a loop without an end?"
    if kind == "MemoryError":
        return "It asked for more memory than there is. Look at the shapes of what is multiplied."
    own = {line.strip() for cell in cells for line in cell.splitlines()}
    said = [line.partition(": ")[2].strip() for line in got.fault.lines]
    place = next((line for line in reversed(said) if line and line in own), "")
    return f"It raised {kind}" + (f", in the line `{place}`." if place else ".")


def _value(got: object, want: object, cells: Sequence[str]) -> str:
    got = fitted(got, want)
    if got is None:
        return "The result is None. Is a `return` missing?"
    if isinstance(got, Opaque):
        return f"The result is an object of type {known(got.kind, cells, 'its own')}, which has no value."
    if isinstance(want, tuple) or isinstance(got, tuple):
        if not (isinstance(want, tuple) and isinstance(got, tuple) and len(want) == len(got)):
            return "The result has another number of parts than it should."
        return next(_value(g, w, cells) for g, w in zip(got, want, strict=True) if not same(g, w))
    if not (isinstance(got, np.ndarray) and isinstance(want, np.ndarray)):
        return "The result is not right yet."
    if got.shape != want.shape:
        swapped = got.shape == (*want.shape[:-2], *want.shape[:-3:-1]) and got.ndim > 1
        return "The result's last two axes are swapped." if swapped else "The result has not the right shape."
    if (got.dtype.kind == "b") != (want.dtype.kind == "b"):
        return "The result has not the right type: True and False on one side, numbers on the other."
    if np.isfinite(want).all() and not np.isfinite(got).all():
        return f"The result contains {'NaN' if np.isnan(got).any() else 'infinity'}."
    return "The shape is right, the numbers are not."


# --- what may not be called ---------------------------------------------------------------------------------


def forbidden_in(cells: Iterable[str], exercise: Exercise, prelude: Iterable[str] = ()) -> str:
    """What the answer may not lean on, if its text (with the helpers it uses) does. Best effort, nothing is run.

    What the notebook's own first cells import is given; whatever else the library has is not there where it runs.
    """
    makers, origin = _makers((*prelude, *cells))
    given = given_names(exercise) | set(_makers(tuple(prelude))[1])
    used: set[str] = set()
    looked_up: set[str] = set()  # as names of their own: in x.softmax, softmax is none
    queue, seen = {exercise.name}, {e.name for e in exercises.of_unit(exercise.unit)}  # others are graded on their own
    while queue:
        name = queue.pop()
        seen.add(name)
        for code in makers.get(name, ()):
            used |= _words(code)
            looked_up |= global_names(code)
            queue |= global_names(code) - seen
    borrowed = {name for name in looked_up - given if origin.get(name, "").startswith("course_lib")}
    ends = {origin[name].rpartition(".")[2] for name in looked_up if name in origin}
    return ", ".join(sorted((used | ends) & {*exercise.forbidden, "course_lib"} | borrowed))


@functools.lru_cache(maxsize=2)
def _makers(cells: tuple[str, ...]) -> tuple[dict[str, list[CodeType]], dict[str, str]]:
    """Global names with the statements that make them; names that imports make, with the paths they stand for."""
    makers: dict[str, list[CodeType]] = {}
    origin: dict[str, str] = {}
    for tree in map(ast.parse, cells):
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                origin |= _imports(node)
        for statement in _simple(tree.body):
            code = compile(ast.Module([statement], []), "", "exec", dont_inherit=True)
            for name in {i.argval for i in dis.get_instructions(code) if i.opname == "STORE_NAME"}:
                makers.setdefault(name, []).append(code)
    return makers, origin


COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.TryStar, ast.ExceptHandler, ast.Match, ast.match_case)


def _simple(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Statements one by one, also those inside `if`, `with`, `for` and `try`, but for imports."""
    for node in body:
        if isinstance(node, COMPOUND):
            yield from _simple(ast.iter_child_nodes(node))
        elif isinstance(node, ast.stmt) and not isinstance(node, (ast.Import, ast.ImportFrom, ast.Break, ast.Continue)):
            yield node


def _imports(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    base = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
    return {(a.asname or a.name).partition(".")[0]: base + a.name for a in node.names}


def _words(code: CodeType) -> set[str]:
    """Global names, attributes, imports, and words that stand alone in quotes, as in getattr(torch, "softmax")."""
    inner = (_words(c) for c in code.co_consts if isinstance(c, CodeType))
    quoted = {c for c in code.co_consts if isinstance(c, str) and c.isidentifier()}
    # What is only made here is not used: an exercise may bear the name of what it may not call.
    names = (i.argval for i in dis.get_instructions(code) if i.opcode in dis.hasname and i.opname != "STORE_NAME")
    return {part for name in names for part in name.split(".")}.union(quoted, *inner)
