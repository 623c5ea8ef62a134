"""What each student has in the end: points by unit, what the instructor adjusted, and whose grade moved in a regrade.

Adjustments come from a CSV with the columns `student,unit,change,reason`. A change is `+2`, `-3`, `-10%` or `=17`; an
empty unit means the total. They apply in the order of the file, first those of units, then those of totals; a
percentage is of the points that stand at that moment. Nothing falls below 0; a bonus may exceed the maximum.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from ..shapes import expect
from .records import Entry

CHANGE = re.compile(r"([+-])(\d+(?:\.\d+)?)(%?)|=(\d+(?:\.\d+)?)")
COLUMNS = ("student", "unit", "change", "reason")
# How notes begin to say it; see sheets.py and handed_in.py.
UNREADABLE = re.compile(
    r"(?i)\b(cannot|could not) be read\b|\bis JSON, but no notebook\b|\bof a kind that is not read\b"
)
CENT = Decimal("0.01")


@dataclass(frozen=True)
class Adjustment:
    """What an instructor changes by hand, why, and the line of the file that says so."""

    student: str
    unit: str
    change: str
    reason: str = ""
    line: int = 0

    def apply(self, points: Decimal) -> Decimal:
        """The points after the change, to the cent, and never below 0."""
        match = CHANGE.fullmatch(self.change)
        expect(match is not None, f"{self._where}a change is +2, -3, -10% or =17; got {self.change!r}.")
        assert match is not None
        sign, amount, percent, exact = match.groups()
        if exact is not None:
            return Decimal(exact)
        step = points * Decimal(amount) / 100 if percent else Decimal(amount)
        after = points - step if sign == "-" else points + step
        return max(Decimal(0), after).quantize(CENT, ROUND_HALF_UP)

    @property
    def _where(self) -> str:
        return f"line {self.line}: " if self.line else ""


@dataclass(frozen=True)
class Applied:
    """An adjustment, and what it did."""

    adjustment: Adjustment
    before: Decimal
    after: Decimal


@dataclass(frozen=True)
class Standing:
    """One student: the papers, the points of each unit after adjustments, and their total."""

    student: str
    entries: Mapping[str, Entry]
    units: Mapping[str, Decimal]
    total: Decimal
    max: int
    applied: tuple[Applied, ...] = ()

    @property
    def share(self) -> float:
        return float(self.total) / self.max if self.max else 0.0

    @property
    def total_adjustment(self) -> Decimal:
        """What the adjustments of the total alone changed."""
        return self.total - sum(self.units.values(), Decimal(0))


@dataclass(frozen=True)
class Move:
    """An exercise whose points a regrade changed."""

    student: str
    unit: str
    exercise: str
    before: int
    after: int
    max: int
    status_before: str
    status_after: str


def number(points: Decimal | int) -> str:
    """Points without trailing zeros: 17, 16.2."""
    text = f"{Decimal(points):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def printable(text: str) -> str:
    """For a terminal: a name can hold control characters, which would act there."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def newest(entries: Iterable[Entry]) -> dict[tuple[str, str], Entry]:
    """One entry for each student and unit: the last one."""
    return {(entry.student, entry.unit): entry for entry in entries}


def maxima(entries: Iterable[Entry]) -> dict[str, int]:
    """What can be reached in each unit, in the order of units."""
    found: dict[str, int] = {}
    for entry in entries:
        found[entry.unit] = max(found.get(entry.unit, 0), sum(row.max for row in entry.rows))
    return dict(sorted(found.items()))


def unreadable(entry: Entry) -> bool:
    """The paper as a whole could not be read: a note says so, and nothing on it was tried."""
    said = any(UNREADABLE.search(note) for note in entry.notes)
    return said and all(row.status in ("missing", "error") for row in entry.rows)


def nothing_there(entry: Entry) -> bool:
    """Nothing was handed in for this unit, or only the empty exercises."""
    return all(row.status == "missing" for row in entry.rows) and not unreadable(entry)


# --- adjustments --------------------------------------------------------------------------------------------


def find_adjustments(out: Path, given: Path | None = None) -> list[Adjustment]:
    """Those of the file that is given, else of DIR/adjustments.csv where there is one, so that none is forgotten."""
    usual = out / "adjustments.csv"
    if given is None and not usual.is_file():
        return []
    return read_adjustments(given or usual)


def read_adjustments(path: Path) -> list[Adjustment]:
    """The lines of a CSV; ValueError names the line and what is wrong with it."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    separator = ";" if ";" in text.partition("\n")[0] else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        header = [str(name).strip().lower() for name in reader.fieldnames or ()]
        lacking = ", ".join(name for name in COLUMNS if name not in header)
        expect(not lacking, f"{path.name}, line 1 should be {','.join(COLUMNS)}; there is no {lacking}.")
        reader.fieldnames = header
        return [_adjustment(row, reader.line_num, path) for row in reader if any(_texts(row).values())]
    except csv.Error as error:
        raise ValueError(f"{path.name}, line {reader.line_num}: {error}") from None


def _texts(row: Mapping[str, str | None]) -> dict[str, str]:
    # Too many cells in a line end up under the key None, too few are None.
    return {key: str(row.get(key) or "").strip() for key in COLUMNS}


def _adjustment(row: Mapping[str, str | None], line: int, path: Path) -> Adjustment:
    cells = _texts(row)
    where = f"{path.name}, line {line}"
    extra = row.get(None)  # type: ignore[call-overload]
    expect(not extra, f"{where}: too many cells, {extra}. A reason with a comma stands in double quotes.")
    expect(bool(cells["student"]), f"{where}: the student is missing.")
    # A spreadsheet makes 4 of 04, and typing '+2 there keeps the sign.
    unit = cells["unit"].zfill(2) if cells["unit"] else ""
    change = cells["change"].lstrip("'").replace("−", "-").replace(" ", "")
    expect(
        CHANGE.fullmatch(change) is not None,
        f"{where}: a change is +2, -3, -10% or =17, with a point for decimals; got {cells['change']!r}. "
        "(Spreadsheets drop a leading + or =: type '+2 there.)",
    )
    return Adjustment(cells["student"], unit, change, cells["reason"], line)


def _check(adjustments: Sequence[Adjustment], students: Collection[str], units: Collection[str]) -> None:
    """Every adjustment means a student and a unit that there are."""
    for adjustment in adjustments:
        where = f"line {adjustment.line} of the adjustments: " if adjustment.line else "Adjustment: "
        if adjustment.student not in students:
            near = difflib.get_close_matches(adjustment.student, students, n=4, cutoff=0.5)
            advice = f"Near to it: {', '.join(near)}." if near else f"There are {len(students)} students, none alike."
            raise ValueError(f"{where}there is no student {adjustment.student!r}. {advice}")
        if adjustment.unit and adjustment.unit not in units:
            raise ValueError(f"{where}there is no unit {adjustment.unit!r}; there are {', '.join(units) or 'none'}.")


def standings(entries: Iterable[Entry], adjustments: Sequence[Adjustment] = ()) -> list[Standing]:
    """Every student, in order, with what is theirs after all adjustments."""
    papers: dict[str, dict[str, Entry]] = {}
    for (student, unit), entry in sorted(newest(entries).items()):
        papers.setdefault(student, {})[unit] = entry
    top = maxima(entry for own in papers.values() for entry in own.values())
    _check(adjustments, papers, top)
    by_student: dict[str, list[Adjustment]] = {}
    for adjustment in sorted(adjustments, key=lambda a: a.unit == ""):
        by_student.setdefault(adjustment.student, []).append(adjustment)
    return [_standing(student, own, top, by_student.get(student, [])) for student, own in papers.items()]


def _standing(
    student: str, entries: Mapping[str, Entry], top: Mapping[str, int], adjustments: Sequence[Adjustment]
) -> Standing:
    """Units first, then their sum, then what changes the sum."""
    units = {unit: Decimal(entries[unit].points if unit in entries else 0) for unit in top}
    total, applied = sum(units.values(), Decimal(0)), []
    for adjustment in adjustments:
        before = units[adjustment.unit] if adjustment.unit else total
        after = adjustment.apply(before)
        if adjustment.unit:
            units[adjustment.unit] = after
        total += after - before
        applied.append(Applied(adjustment, before, after))
    return Standing(student, entries, units, total, sum(top.values()), tuple(applied))


# --- regrading ----------------------------------------------------------------------------------------------


def moved(before: Sequence[Entry], after: Sequence[Entry]) -> list[Move]:
    """The exercises whose points changed, of papers that were graded both times; adjustments play no part."""
    old, moves = newest(before), []
    for place, entry in sorted(newest(after).items()):
        if place not in old:
            continue
        then = {row.exercise: row for row in old[place].rows}
        now = {row.exercise: row for row in entry.rows}
        for exercise in sorted({*then, *now}):
            a, b = then.get(exercise), now.get(exercise)
            points = (a.points if a else 0, b.points if b else 0)
            if points[0] != points[1]:
                top = b.max if b else a.max if a else 0
                states = (a.status if a else "", b.status if b else "")
                moves.append(Move(*place, exercise, *points, top, *states))
    return moves


def moved_table(moves: Sequence[Move], limit: int = 40) -> str:
    """The moves as text in columns, for the terminal."""
    if not moves:
        return "No grade moved."
    head = ["student", "exercise", "before", "after", "of", "status"]
    lines = [head] + [
        [
            printable(m.student),
            m.exercise,
            str(m.before),
            str(m.after),
            str(m.max),
            f"{m.status_before} → {m.status_after}",
        ]
        for m in moves[:limit]
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    rest = f"\nand {len(moves) - limit} more, see moved.csv" if len(moves) > limit else ""
    up = sum(m.after > m.before for m in moves)
    students = len({m.student for m in moves})
    return f"{text}{rest}\n{len(moves)} grades of {students} students moved: {up} up, {len(moves) - up} down."
