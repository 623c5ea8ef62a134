"""What a learner has done: one small JSON file that a crash cannot corrupt."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from . import exercises


@dataclass(frozen=True)
class Entry:
    """Best result and effort for one exercise."""

    points: int = 0
    max: int = 0
    tries: int = 0
    hints: int = 0


def path() -> Path:
    """The file: $COURSE_PROGRESS, or progress.json beside the notebooks, or in the home folder."""
    if chosen := os.environ.get("COURSE_PROGRESS"):
        return Path(chosen)
    course = Path(__file__).resolve().parents[1]
    if (course / "exercises").is_dir() and os.access(course, os.W_OK):
        return course / "progress.json"
    return Path.home() / ".attention-course" / "progress.json"


def read() -> dict[str, Entry]:
    """All entries by exercise; an unreadable file is put aside, never overwritten."""
    file = path()
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))["exercises"]
        return {str(key): Entry(**{k: int(v) for k, v in value.items()}) for key, value in entries.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        file.replace(file.with_suffix(".unreadable.json"))
        return {}


def write(entries: dict[str, Entry]) -> None:
    """Whole or not at all: a new file beside the old one takes its place in one move."""
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"version": 1, "exercises": {k: asdict(v) for k, v in sorted(entries.items())}}, indent=1)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".progress-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text + "\n")
            out.flush()
            os.fsync(out.fileno())
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise


def record(exercise: str, points: int, maximum: int) -> None:
    """One more try; the best result stays."""
    with _told_if_not_kept():
        entries = read()
        old = entries.get(exercise, Entry())
        entries[exercise] = replace(old, points=max(old.points, points), max=maximum, tries=old.tries + 1)
        write(entries)


def next_hint(exercise: str, available: int) -> int:
    """The number of the next hint, 0, 1, 2; the last one again when all were given."""
    old = Entry()
    with _told_if_not_kept():
        entries = read()
        old = entries.get(exercise, old)
        entries[exercise] = replace(old, hints=min(old.hints + 1, available))
        write(entries)
    return min(old.hints, available - 1)


@contextlib.contextmanager
def _told_if_not_kept() -> Iterator[None]:
    """A full disk, or a browser that keeps nothing, costs no learner the answer of a check."""
    try:
        yield
    except OSError as error:
        warnings.warn(f"What you did could not be kept in {path()}: {error.strerror or error}", stacklevel=4)


def restart(unit: str) -> None:
    """Forget what was done in a unit."""
    write({key: entry for key, entry in read().items() if not key.startswith(f"{unit}.")})


def table() -> str:
    """Every exercise of the course with the learner's best result, as text."""
    entries, rows = read(), []
    for unit in exercises.UNITS:
        try:
            known = exercises.of_unit(unit)
        except ImportError:  # a unit that needs torch, where there is none
            rows.append(f"{unit}    needs torch: run it on your machine")
            continue
        for exercise in known:
            entry = entries.get(exercise.id, Entry())
            done = "not tried" if not entry.tries else f"{entry.points} of {exercise.points}"
            rows.append(f"{exercise.id:6}{exercise.title:52.50}{done:>12}{entry.tries:5} tries{entry.hints:3} hints")
    return "\n".join(rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--restart", metavar="UNIT", help="forget what was done in a unit, such as 04")


def main(args: argparse.Namespace) -> int:
    """Print the table, or forget a unit."""
    if args.restart:
        exercises.of_unit(args.restart)
        restart(args.restart)
    print(table())
    return 0
