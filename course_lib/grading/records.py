"""What is known of one student's work: which papers there are, what stands on them, what they are worth."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STATUSES = ("passed", "wrong", "error", "timeout", "died", "missing", "forbidden")


@dataclass(frozen=True)
class Paper:
    """The notebook that a student handed in for a unit; `path` is None where there is none."""

    student: str
    unit: str
    path: Path | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sheet:
    """What stands in a notebook: the code of its cells, ready to compile, and what was left out and why."""

    cells: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """One named check of an exercise: what it is worth, whether it held, and the reason in words if not."""

    name: str
    points: int
    passed: bool
    reason: str = ""


@dataclass(frozen=True)
class Row:
    """One student, one exercise: a line of results.jsonl, and the parts behind the points."""

    student: str
    unit: str
    exercise: str
    points: int
    max: int
    status: str
    misconception: str = ""
    message: str = ""
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Entry:
    """One line of the journal: a paper that was graded. `key` tells whether it must be graded again."""

    student: str
    unit: str
    key: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        return sum(row.points for row in self.rows)

    def to_text(self) -> str:
        """One line of plain ASCII: a folder's name may hold bytes that are no UTF-8."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Entry:
        """The entry of a line; ValueError where the line is not whole."""
        try:
            raw: dict[str, Any] = json.loads(text)
            rows = tuple(Row(**{**r, "parts": tuple(Part(**p) for p in r["parts"])}) for r in raw.pop("rows"))
            return cls(**{**raw, "rows": rows, "notes": tuple(raw["notes"])})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a line of the journal: {error}") from None
