"""The library as the child sees it: only what a unit's notebook imports and what its cases hand over, no answers.

From the names that are wanted, everything they need is followed, definition by definition, through all files; the
rest is left out. What an exercise asks for is therefore not on the child's disk, unless the notebook itself gives it.
"""

from __future__ import annotations

import ast
import dis
import functools
import types
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any

from .. import exercises
from ..build import answer_source
from ..exercises.declare import Exercise

WHOLE = ("shapes", "observe", "exercises.declare", "grading.wire", "grading.sandbox", "grading.zygote")
QUIET = (
    '"""Nothing is shown and nothing is checked here."""\n\n\ndef __getattr__(name):\n    return lambda *a, **k: None\n'
)
SILENT = ("checks", "plots", "widgets", "progress", "units", "outcomes")
PACKAGES = ("", "exercises", "grading")


def strip(unit: str, prelude: Iterable[str], target: Path) -> None:
    """Write the stripped library for a unit into `target`/course_lib. `prelude` are the notebook's own first cells."""
    declared = exercises.of_unit(unit)
    wanted = {*imported([*prelude]), *handed_over(declared)}
    if any(e.file for e in declared):
        wanted |= {("course_lib.handed_in", "load_into"), ("course_lib.handed_in", "translate")}
    modules = {module.rpartition(".")[2]: module for module, name in wanted if not name}
    wanted = {w for w in wanted if w[1]} | set(_attributes((ast.parse(answer_source(e)) for e in declared), modules))
    files = {f"course_lib.{name}": _source(f"course_lib.{name}") for name in WHOLE}
    for name, text in shaken({w for w in wanted if w[0].removeprefix("course_lib.") not in SILENT}).items():
        files.setdefault(name, text)
    files |= {f"course_lib.{name}": QUIET for name in SILENT}
    for name, text in files.items():
        path = target.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for package in PACKAGES:
        (target / "course_lib" / package / "__init__.py").write_text("")


def imported(cells: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(module, name) for all that the cells import from this library; the name is empty for a module as a whole."""
    for node in (n for cell in cells for n in ast.walk(ast.parse(cell))):
        yield from _targets(node, "course_lib") if isinstance(node, ast.ImportFrom) else ()
        if isinstance(node, ast.Import):
            yield from ((a.name, "") for a in node.names if a.name.startswith("course_lib."))


def _attributes(trees: Iterable[ast.AST], modules: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Of a module that is imported as a whole, what the answers use: `by_hand.softmax` gives (…by_hand, softmax)."""
    for node in (n for tree in trees for n in ast.walk(tree)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield modules[node.value.id], node.attr


def handed_over(declared: Iterable[Exercise]) -> Iterator[tuple[str, str]]:
    """The library's functions and classes that cases pass to what the learner wrote."""
    for value in (v for e in declared for case in e.draw_cases() for v in (*case.args, *(case.build or ()))):
        yield from _named(value)


def _named(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _named(item)
    if isinstance(value, (types.FunctionType, type)):
        yield value.__module__, value.__qualname__.partition(".")[0]
    elif type(value).__module__.startswith("course_lib.") and not isinstance(value, tuple):
        yield type(value).__module__, type(value).__qualname__


# --- following definitions ----------------------------------------------------------------------------------


def shaken(wanted: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The source of every module that is needed, with the definitions that are needed."""
    kept: dict[str, set[int]] = defaultdict(set)
    names: dict[str, set[str]] = defaultdict(set)
    queue = sorted(wanted)
    while queue:
        module, name = queue.pop()
        if name in names[module]:
            continue
        names[module].add(name)
        statements = _statements(module)
        for place, statement in enumerate(statements):
            if not _makes(statement, name):
                continue
            kept[module].add(place)
            if isinstance(statement, ast.ImportFrom):
                queue += [t for t in _targets(statement, module) if name in (t[1], t[0].rpartition(".")[2])]
            queue += [(module, used) for used in _uses(statement)]
            queue += _through_modules(statement, module)
    return {module: _text(module, places, names[module]) for module, places in kept.items()}


@functools.cache
def _statements(module: str) -> list[ast.stmt]:
    """The statements of a file, without annotations, which nobody evaluates."""
    tree = ast.parse(_source(module))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return tree.body


def _source(module: str) -> str:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"there is no module {module}")
    return Path(spec.origin).read_text(encoding="utf-8")


def _makes(statement: ast.stmt, name: str) -> bool:
    """Whether a statement at the top of a file makes (or changes) this name; an empty name means all of them."""
    items = (n for n in ast.walk(statement) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store))
    made = {i.argval for i in dis.get_instructions(_code(statement)) if i.opname == "STORE_NAME"}
    whole = name == "" and not isinstance(statement, (ast.Import, ast.ImportFrom))
    return whole or name in made | {n.value.id for n in items if isinstance(n.value, ast.Name)}


def _uses(statement: ast.stmt) -> set[str]:
    return global_names(_code(statement))


@functools.cache
def _code(statement: ast.stmt) -> CodeType:
    return compile(ast.Module([statement], []), "", "exec")


def global_names(code: CodeType) -> set[str]:
    """Names that code looks up outside its functions."""
    inner = (global_names(c) for c in code.co_consts if isinstance(c, CodeType))
    loads = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return loads.union(*inner)


def _targets(node: ast.ImportFrom, module: str) -> list[tuple[str, str]]:
    """Where in this library an import leads: (module, name), or (module, "") for one that is imported as such."""
    base = node.module or ""
    if node.level:
        above = module.split(".")[: -node.level] if module != "course_lib" else ["course_lib"]
        base = ".".join([*above, *([base] if base else [])])
    if base.partition(".")[0] != "course_lib":
        return []
    whole = [f"{base}.{a.name}" for a in node.names]
    return [(w, "") if _is_module(w) else (base, a.name) for w, a in zip(whole, node.names, strict=True)]


@functools.cache
def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _through_modules(statement: ast.stmt, module: str) -> Iterator[tuple[str, str]]:
    """For `by_hand.softmax(...)` where by_hand is a module of the library: (course_lib.by_hand, softmax)."""
    yield from _attributes([statement], _modules(module))


@functools.cache
def _modules(module: str) -> dict[str, str]:
    """Names under which a file knows other modules of the library."""
    return {
        (a.asname or a.name): t[0]
        for node in _statements(module)
        if isinstance(node, ast.ImportFrom)
        for a, t in zip(node.names, _targets(node, module), strict=False)
        if t[1] == ""
    }


def _only(statement: ast.stmt, names: set[str]) -> ast.stmt:
    """Of an import, the names that are needed: the others may lead to what is not there."""
    if not isinstance(statement, ast.ImportFrom):
        return statement
    wanted = [a for a in statement.names if (a.asname or a.name) in names]
    return ast.ImportFrom(statement.module, wanted, statement.level)


def _text(module: str, places: set[int], names: set[str]) -> str:
    statements = _statements(module)
    future = [s for s in statements if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    kept = [_only(s, names) for place, s in enumerate(statements) if place in places and s not in future]
    return "\n\n".join(ast.unparse(s) for s in [*future, *kept]) + "\n"
