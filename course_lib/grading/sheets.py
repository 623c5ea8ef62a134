"""What stands in a notebook: the code of its cells, ready to compile, read in whatever state the file is.

Nothing here runs a student's code, and no file raises: what cannot be used is left out, and a note says so.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import re
import stat
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..shapes import expect
from .records import Sheet
from .unpack import LARGEST, printable

MOST_CELLS = 2_000
LONGEST_CELL = 200_000  # characters
LONGEST_CODE = 1_000_000  # of all cells together
MOST_BRACKETS = 1_000_000  # of the JSON: each becomes an object of 60 bytes or more
KEEP_BODY = ("time", "timeit", "capture", "prun", "memit")
# A line for IPython, where a statement may begin: %magic, !command, ?help, x = !command, help?, pip install
COMMAND = re.compile(
    r"""(?P<indent>[ \t]*)(?=(?P<word>\S+))(?:
        [%!] | \?\??[\w%] | [\w.,*\[\] \t]{1,200}=[ \t]*[%!]\S | [\w.*\[\]]{1,200}\?\??[ \t]*(?=\n|\Z)
        | (?:pip3?|conda|mamba|uv|cd|ls|cat|mkdir|rm|cp|mv|git|wget|curl)[ \t]+[\w./~-]
    )(?:\\\n|.)*""",
    re.X,
)
TOKEN = re.compile(r"\\.|\"\"\"|'''|[\"'\#\n()\[\]{}]", re.S)


def read_sheet(path: Path) -> Sheet:
    """The code of a notebook: `cells[i]` is its code cell i + 1, empty where that was left out, so that numbers fit."""
    notes: list[str] = []
    cells: list[str] = []
    room = LONGEST_CODE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an odd escape in a student's string is no news for the instructor
        for source in _code(Path(path), notes):
            if len(cells) == MOST_CELLS:
                notes.append(f"the notebook has more than {MOST_CELLS:,} code cells: the others are left out")
                break
            room -= len(source)
            code, note = _ready(source) if room >= 0 else ("", "left out: the notebook holds too much code")
            cells.append(code)
            notes += [f"code cell {len(cells)} {note}"] if note else []
    if not any(cells) and not notes:
        notes.append("there is no code in this notebook")
    return Sheet(tuple(cells), tuple(map(printable, notes[:100])))


def _code(path: Path, notes: list[str]) -> Iterator[str]:
    """The sources of all code cells, as they stand in the file; what is odd goes to the notes."""
    for number, cell in enumerate(_raw_cells(path, notes), start=1):
        if not isinstance(cell, dict):
            notes.append(f"cell {number} is no cell of a notebook: left out")
        elif cell.get("cell_type") == "code":
            source = cell.get("source", cell.get("input"))
            lines: list[Any] = source if isinstance(source, list) else [source]
            is_text = all(isinstance(line, str) for line in lines)
            notes += [] if is_text else [f"cell {number} holds no text: left out"]
            text = "".join(lines) if is_text else ""
            yield text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        elif _is_answer(cell):
            notes.append(f"cell {number} holds an answer, and is no code cell any more: left out")


def _is_answer(cell: dict[str, Any]) -> bool:
    facts: Any = cell
    for key in ("metadata", "nbgrader", "grade_id"):
        facts = facts.get(key) if isinstance(facts, dict) else None
    return str(facts).startswith("answer-")


def _raw_cells(path: Path, notes: list[str]) -> list[Any]:
    """The list of cells: of version 4 as it is, of version 3 from its worksheets; empty where there is none."""
    try:
        facts = path.stat()
        expect(stat.S_ISREG(facts.st_mode), "it is no plain file")
        expect(facts.st_size <= LARGEST, f"it is larger than {LARGEST // 1_000_000} MB")
        text, is_odd = decoded(path.read_bytes())
        expect(bool(text.strip("\0 \t\r\n")), "it is empty")
        expect(text.count("{") + text.count("[") <= MOST_BRACKETS, "it holds too many objects")
        whole = json.loads(text)
    except OSError as error:
        notes.append(f"the notebook cannot be read: {error.strerror}")
    except json.JSONDecodeError as error:
        kind = (
            "it is a web page"
            if text.lstrip()[:1] == "<"
            else f"its JSON breaks off or is damaged in line {error.lineno}"
        )
        notes.append(f"the notebook cannot be read: {kind}")
    except (RecursionError, MemoryError):
        notes.append("the notebook cannot be read: it is nested too deeply")
    except ValueError as error:
        notes.append(f"the notebook cannot be read: {error}")
    else:
        notes += ["the notebook is not in UTF-8: letters may be wrong"] if is_odd else []
        cells = _cells_of(whole)
        notes += ["this file is JSON, but no notebook"] if cells is None else []
        return cells or []
    return []


def _cells_of(whole: Any) -> list[Any] | None:
    if not isinstance(whole, dict):
        return None
    if isinstance(whole.get("cells"), list):
        return whole["cells"]
    sheets = whole.get("worksheets")
    if not isinstance(sheets, list):
        return None
    found = [s["cells"] for s in sheets if isinstance(s, dict) and isinstance(s.get("cells"), list)]
    return list(itertools.chain.from_iterable(found))


def decoded(data: bytes) -> tuple[str, bool]:
    """Text in UTF-8, UTF-16 or UTF-32, with or without a byte order mark; else read as Windows or Latin letters."""
    for encoding in (json.detect_encoding(data), "cp1252"):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode(encoding), encoding == "cp1252"
    return data.decode("latin-1"), True


# --- from a cell to code that compiles ----------------------------------------------------------------------


def _ready(source: str) -> tuple[str, str]:
    """The code of a cell, or nothing; and what to say about it."""
    if not source.strip():
        return "", ""
    if len(source) > LONGEST_CELL:
        return "", f"is longer than {LONGEST_CELL:,} characters: left out"
    if magic := re.match(r"\s*%%(\S*)[^\n]*", source):
        if magic[1] not in KEEP_BODY:
            return "", f"begins with %%{magic[1][:20]}: left out"
        source = "\n" * magic[0].count("\n") + source[magic.end() :]  # its lines keep their numbers
    fault, left_out = _fault(source), ""
    if fault:
        plain, commands = _without_commands(_dedented(source))
        if plain != source:
            source, fault = plain, _fault(plain)
        left_out = f"has commands for IPython, which are left out: {', '.join(commands[:5])}" if commands else ""
    return ("", f"does not compile: {fault}, left out") if fault else (source, left_out)


def _fault(source: str) -> str:
    """Why a cell cannot be used; nothing where Python can parse and compile it."""
    if wild := _too_wild(source):
        return wild
    try:
        tree = ast.parse(source)
        compile(source, "<cell>", "exec", dont_inherit=True)
        return "" if _depth(tree) <= 150 else "it is nested too deeply"
    except SyntaxError as error:
        return f"line {error.lineno or 1}: {error.msg[:100]}"
    except (RecursionError, MemoryError):
        return "it is nested too deeply"
    except Exception as error:  # a zero byte, half a letter
        return f"line 1: {str(error)[:100]}"


def _too_wild(source: str) -> str:
    """What must not reach the parser: it can crash on deep brackets, and take minutes or all memory for the rest."""
    lines = list(_statements(source, commands=False))  # no line may pass as a command that Python would read
    if max(line.depth for line in lines) > 60:
        return "its brackets are nested too deeply"
    if any(len(line.text) > 5_000 and re.search(r"\bimport\b", line.text) for line in lines):  # quadratic in the dots
        return "it imports a name that is too long"
    # Every way out of a `try` copies its `finally`, and every `finally` inside another doubles it.
    ways_out = 1 + len(re.findall(r"\b(?:return|break|continue)\b", source))
    if (doublings := len(re.findall(r"\bfinally\b", source))) and len(source) * ways_out << min(
        doublings, 40
    ) > 1 << 25:
        return "its finally blocks are nested too deeply"
    return ""


def _depth(tree: ast.AST) -> int:
    """How deep a syntax tree is, without recursion."""
    depth, level = 0, [tree]
    while level:
        depth, level = depth + 1, [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


class Statement(NamedTuple):
    """A piece of a cell, line ends included; `word` is the first one of a line for IPython."""

    text: str
    depth: int = 0
    indent: str = ""
    word: str = ""


def _statements(source: str, *, commands: bool) -> Iterator[Statement]:
    """A cell, cut where a statement may begin, found without Python's parser."""
    at = 0
    while at <= len(source):
        if commands and (found := COMMAND.match(source, at)):
            end = found.end() + 1
            yield Statement(source[at:end], 0, found["indent"], found["word"])
        else:
            end, depth = _end_of_statement(source, at)
            yield Statement(source[at:end], depth)
        at = end


def _without_commands(source: str) -> tuple[str, list[str]]:
    """The cell with `pass` in the place of every line for IPython, and which those were."""
    pieces: list[str] = []
    told: list[str] = []
    line = 1
    for statement in _statements(source, commands=True):
        ends = statement.text.count("\n")
        pieces.append(f"{statement.indent}pass" + "\n" * ends if statement.word else statement.text)
        told += [f"line {line} ({statement.word[:20]})"] if statement.word else []
        line += ends
    return "".join(pieces), told


def _dedented(source: str) -> str:
    """IPython takes the first line's indentation off all lines."""
    first = next(line for line in source.split("\n") if line.strip())
    indent = first[: len(first) - len(first.lstrip(" \t"))]
    return re.sub(f"^{indent}", "", source, flags=re.M) if indent else source


def _end_of_statement(source: str, at: int) -> tuple[int, int]:
    """Where the line ends that is not inside brackets or a string, and how deep the brackets were."""
    depth, deepest, quote = 0, 0, ""
    while token := TOKEN.search(source, at):
        at, mark = token.end(), token[0]
        if mark == "\n" and len(quote) < 3:
            quote = ""  # a string in single quotes ends with its line, closed or not
            if not depth:
                return at, deepest
        elif quote:
            if mark.startswith(quote):
                at, quote = token.start() + len(quote), ""
        elif mark[0] in "\"'":
            quote = mark
        elif mark == "#":
            at = end if (end := source.find("\n", at)) >= 0 else len(source)
        elif mark in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in ")]}":
            depth = max(0, depth - 1)
    return len(source) + 1, deepest


# --- stubs --------------------------------------------------------------------------------------------------


def stub_cells(unit: str) -> dict[str, str]:
    """The stub of every exercise of a unit, by the name that it defines."""
    from .. import build, exercises

    return {exercise.name: build.stub_source(exercise) for exercise in exercises.of_unit(unit)}


def without_spare_stubs(cells: Iterable[str], stubs: Mapping[str, str]) -> tuple[str, ...]:
    """The cells, with an unchanged stub emptied where another cell holds an answer of its name.

    Cells were duplicated or moved: without this, a stub further down would overwrite the answer.
    """
    kept = tuple(cells)
    for name, stub in stubs.items():
        begins = re.compile(rf"^(?:(?:async +)?def +|class +)?{re.escape(name)}\b", re.M)
        places = [i for i, cell in enumerate(kept) if begins.search(cell)]
        if len(places) < 2:
            continue
        trees = {i: tree for i in places if (tree := _tree_of(kept[i])) and name in _defined(tree)}
        bare = _without_docstrings(_tree_of(stub))
        spare = {i for i, tree in trees.items() if _without_docstrings(tree) == bare}
        if spare != trees.keys():
            kept = tuple("" if i in spare else cell for i, cell in enumerate(kept))
    return kept


def _tree_of(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _defined(tree: ast.Module) -> set[str]:
    """Names that a cell gives a meaning at its top level."""
    names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    targets = [t for n in tree.body if isinstance(n, ast.Assign) for t in n.targets]
    targets += [n.target for n in tree.body if isinstance(n, ast.AnnAssign) and n.value is not None]
    return names | {t.id for t in targets if isinstance(t, ast.Name)}


def _without_docstrings(tree: ast.Module | None) -> str:
    """What a piece of code does, as text: comments, blank lines and docstrings do not count."""
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree) if tree is not None else ""
