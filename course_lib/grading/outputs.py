"""The files that grading leaves: tables, pages for students, the report on the class, exports for other systems.

    grades.csv, moved.csv   names stand there exactly as the folders are called, for scripts to read back
    results.jsonl           one object for each student and exercise, as graded: before any adjustment
    feedback/, report.html  see pages.py and class_report.py
    canvas.csv, moodle.csv, nbgrader.csv
                            on request; people open these in spreadsheets, where a cell that begins with = + - @ is a
                            formula, so such a text gets an apostrophe in front

Every file appears whole or not at all: it is written beside its place and moved there in one step.
"""

from __future__ import annotations

import csv
import hashlib
import html
import io
import json
import os
import secrets
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, fields
from decimal import Decimal
from pathlib import Path

from ..shapes import expect
from ..units import UNITS
from . import class_report, pages
from .records import Entry
from .standings import (
    Adjustment,
    Move,
    Standing,
    find_adjustments,
    maxima,
    moved,
    moved_table,
    newest,
    number,
    read_adjustments,
    standings,
)

__all__ = [
    "EXPORTS", "Adjustment", "Move", "file_names", "find_adjustments", "grades_csv", "moved", "moved_table",
    "read_adjustments", "read_moves", "results_jsonl", "write_export", "write_outputs",
]  # fmt: skip

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in "0123456789¹²³")}
TEMPORARY = ".course-"


def write_outputs(
    out: Path,
    entries: Sequence[Entry],
    *,
    adjustments: Sequence[Adjustment] = (),
    moved: Sequence[Move] = (),
    title: str = "",
) -> None:
    """All files of a graded class; a wrong adjustment is an error before the first of them is written."""
    own = list(newest(entries).values())
    ranked, title = standings(own, adjustments), title or "Attention and Transformers"
    names = file_names([standing.student for standing in ranked])
    (out / "feedback").mkdir(parents=True, exist_ok=True)
    for piece in out.glob(f"{TEMPORARY}*"):
        piece.unlink()  # left by a run that was killed
    write_whole(out / "grades.csv", grades_csv(ranked, maxima(own)))
    write_whole(out / "results.jsonl", results_jsonl(ranked))
    _tidy(out / "feedback", set(names.values()))
    for standing in ranked:
        write_whole(out / "feedback" / names[standing.student], pages.feedback(standing, title))
    write_whole(out / "report.html", class_report.page(ranked, maxima(own), names, moved=moved, title=title))
    if moved:
        write_whole(out / "moved.csv", moved_csv(moved))


# --- files --------------------------------------------------------------------------------------------------


def write_whole(path: Path, text: str) -> None:
    """Put a text into a file, whole or not at all; a file that says the same already is left alone."""
    # A folder's name need not be UTF-8. What is not, stands there as \udcff, which JSON reads back as it was.
    data = text.encode("utf-8", "backslashreplace")
    if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
        return
    beside = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        beside.write_bytes(data)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def file_names(students: Iterable[str]) -> dict[str, str]:
    """A file for each student: the name itself, or where that is no safe or no unique file name, one like it."""
    students = list(students)
    taken = Counter(_folded(student) for student in students)
    plain = {student: taken[_folded(student)] == 1 and _is_plain(student) for student in students}
    return {student: f"{student if plain[student] else _stand_in(student)}.html" for student in students}


def _folded(name: str) -> str:
    """The same for two names that some file system holds for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _is_plain(name: str) -> bool:
    """Safe on every system. A tilde is kept for stand-ins, so that none of them can be somebody's name."""
    letters = all(c.isalnum() or unicodedata.category(c) in ("Mn", "Mc") or c in " ._-@+,'()" for c in name)
    ends = name[:1] not in ("", " ", ".", "-") and name[-1:] not in (" ", ".")
    reserved = name.partition(".")[0].strip().casefold() in RESERVED
    composed = unicodedata.normalize("NFC", name) == name
    return letters and ends and not reserved and composed and len(name.encode()) <= 150


def _stand_in(name: str) -> str:
    kept = (
        "".join(c if c.isascii() and (c.isalnum() or c in "._-@+") else "_" for c in name[:60]).strip("._-")
        or "student"
    )
    return f"{kept}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _tidy(folder: Path, wanted: set[str]) -> None:
    """Remove pages of students who are no longer there, and what a killed run left; other people's files stay."""
    for path in folder.iterdir():
        left_over = path.name.startswith(TEMPORARY)
        if path.is_file() and (left_over or (path.suffix == ".html" and path.name not in wanted and _is_ours(path))):
            path.unlink()


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return pages.GENERATOR.encode() in file.read(600)


# --- tables -------------------------------------------------------------------------------------------------


def table(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV; whatever needs quotes has them."""
    lines: list[str] = []
    writer = csv.writer(_Sink(lines), lineterminator="\r\n")  # so that a \r in a name is quoted, too
    writer.writerows(rows)
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines)


class _Sink:
    """What csv writes to: one call for each row."""

    def __init__(self, lines: list[str]) -> None:
        self.write = lines.append


def grades_csv(ranked: Sequence[Standing], top: dict[str, int]) -> str:
    """A line for each student: points of each unit, the total, and what could be reached."""
    lines: list[Sequence[object]] = [("student", *top, "total", "max")]
    for standing in ranked:
        units = [number(standing.units[unit]) for unit in top]
        lines.append((standing.student, *units, number(standing.total), standing.max))
    return table(lines)


def results_jsonl(ranked: Sequence[Standing]) -> str:
    """A line for each student and exercise, as graded."""
    keys = ("student", "unit", "exercise", "points", "max", "status", "misconception", "message")
    rows = (row for standing in ranked for entry in standing.entries.values() for row in entry.rows)
    return "".join(json.dumps({key: getattr(row, key) for key in keys}, ensure_ascii=False) + "\n" for row in rows)


def moved_csv(moves: Sequence[Move]) -> str:
    return table([[field.name for field in fields(Move)], *map(astuple, moves)])


def read_moves(path: Path) -> list[Move]:
    """What moved.csv says; nothing where there is none."""
    if not path.is_file():
        return []
    try:
        head, *rows = csv.reader(io.StringIO(path.read_bytes().decode("utf-8"), newline=""))
        expect(head == [field.name for field in fields(Move)], f"its first line is {','.join(head)}.")
        return [Move(*row[:3], *map(int, row[3:6]), *row[6:]) for row in rows]  # type: ignore[arg-type]
    except (csv.Error, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a table that grading wrote: {error}") from None


# --- exports ------------------------------------------------------------------------------------------------


def spreadsheet_safe(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def unit_names(top: Iterable[str]) -> dict[str, str]:
    """How a unit is called in another system's grade book: 04 Queries, keys and values."""
    titles = {unit.number: unit.title for unit in UNITS}
    return {unit: f"{unit} {titles.get(unit, '')}".strip() for unit in top}


def _has_total_adjustments(ranked: Sequence[Standing]) -> bool:
    return any(standing.total_adjustment for standing in ranked)


def canvas(ranked: Sequence[Standing], top: dict[str, int]) -> str:
    """Canvas' gradebook import. Students are found by login or name, assignments by their title.

    What changes a total alone is a column of its own, worth 0 points, since Canvas adds up by itself.
    """
    extra = _has_total_adjustments(ranked)
    names = [*unit_names(top).values(), *(["Adjustment"] if extra else [])]
    lines: list[Sequence[object]] = [("Student", "ID", "SIS User ID", "SIS Login ID", "Section", *names)]
    lines.append(("    Points Possible", "", "", "", "", *top.values(), *([0] if extra else [])))
    for standing in ranked:
        name = spreadsheet_safe(standing.student)
        points = [*standing.units.values(), *([standing.total_adjustment] if extra else [])]
        lines.append((name, "", "", name, "", *map(number, points)))
    return table(lines)


def moodle(ranked: Sequence[Standing], top: dict[str, int]) -> str:
    """Moodle's grade import: who, then for each unit the grade and the feedback comment.

    The form asks for the mapping: the first column to user name (or e-mail address), the others to their grade items.
    """
    extra = _has_total_adjustments(ranked)
    mails = bool(ranked) and all("@" in standing.student for standing in ranked)
    head = ["Email address" if mails else "Username"]
    for name in unit_names(top).values():
        head += [name, f"{name} (feedback)"]
    lines: list[Sequence[object]] = [[*head, *(["Adjustment", "Adjustment (feedback)"] if extra else [])]]
    for standing in ranked:
        cells = [spreadsheet_safe(standing.student)]
        for unit in top:
            cells += [number(standing.units[unit]), _comment(standing, unit, top[unit])]
        if extra:
            reasons = [a.adjustment.reason for a in standing.applied if not a.adjustment.unit]
            cells += [number(standing.total_adjustment), _for_moodle("; ".join(filter(None, reasons)))]
        lines.append(cells)
    return table(lines)


def _comment(standing: Standing, unit: str, top: int) -> str:
    """A unit in a few sentences: points, wrong ideas, adjustments; nothing that a student's program wrote."""
    sentences = [f"{number(standing.units[unit])} of {top} points."]
    rows = standing.entries[unit].rows if unit in standing.entries else ()
    for row in rows:
        if idea := pages.idea_of(row):
            sentences.append(f"{row.exercise}: {idea.text}")
    for applied in standing.applied:
        if applied.adjustment.unit == unit:
            sentences.append(
                f"Adjusted by {applied.adjustment.change}: {applied.adjustment.reason or 'no reason given'}."
            )
    return _for_moodle(" ".join(sentences))


def _for_moodle(text: str) -> str:
    # Moodle shows a comment as HTML.
    return spreadsheet_safe(html.escape(text, quote=False))


def nbgrader(ranked: Sequence[Standing], top: dict[str, int]) -> str:
    """What `nbgrader export` writes: a line for each assignment and student; score = raw score - penalty."""
    who = ("assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email")
    lines = [[*who, "raw_score", "late_submission_penalty", "score", "max_score"]]
    stems = {unit.number: unit.name for unit in UNITS}
    for unit, most in top.items():
        for standing in ranked:
            graded = Decimal(standing.entries[unit].points if unit in standing.entries else 0)
            lines.append(_nbgrader_line(stems.get(unit, unit), standing.student, graded, standing.units[unit], most))
    for standing in ranked if _has_total_adjustments(ranked) else ():
        lines.append(_nbgrader_line("adjustment", standing.student, Decimal(0), standing.total_adjustment, 0))
    return table(lines)


def _nbgrader_line(assignment: str, student: str, graded: Decimal, score: Decimal, most: int) -> list[str]:
    raw = max(graded, score)
    numbers = [str(float(value)) for value in (raw, raw - score, score, most)]
    return [assignment, "", "", spreadsheet_safe(student), "", "", "", *numbers]


EXPORTS: dict[str, Callable[[Sequence[Standing], dict[str, int]], str]] = {
    "canvas": canvas,
    "moodle": moodle,
    "nbgrader": nbgrader,
}


def write_export(out: Path, kind: str, entries: Sequence[Entry], adjustments: Sequence[Adjustment] = ()) -> Path:
    """Write DIR/canvas.csv, moodle.csv or nbgrader.csv, and tell where it is."""
    expect(kind in EXPORTS, f"There is no export {kind!r}; there are {', '.join(EXPORTS)}.")
    own, path = list(newest(entries).values()), out / f"{kind}.csv"
    out.mkdir(parents=True, exist_ok=True)
    write_whole(path, EXPORTS[kind](standings(own, adjustments), maxima(own)))
    return path
