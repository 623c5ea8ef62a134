"""Grades one paper after another: text in, text out. Runs in processes of its own here, or on a Dask cluster.

It holds cases and answers, and asks a child about what the student wrote; it never runs that itself.
"""

from __future__ import annotations

import atexit
import base64
import json
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from ..exercises import of_unit
from . import strip
from .keeper import Zygote
from .mark import mark
from .records import Entry, Row, Sheet

_here = threading.local()  # a zygote for each thread: one child at a time
_all: list[Bench] = []


class Bench:
    """The stripped library of one unit, and a zygote that uses it."""

    def __init__(self, unit: str, prelude: list[str], closed: bool):
        self.key = (unit, tuple(prelude), closed)
        self.folder = Path(tempfile.mkdtemp(prefix="stripped-"))
        strip.strip(unit, prelude, self.folder)
        self.zygote = Zygote(self.folder, torch=uses_torch(unit), closed=closed)
        _all.append(self)

    def close(self) -> None:
        self.zygote.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        _all.remove(self)


def uses_torch(unit: str) -> bool:
    """Whether torch must be loaded before the first child; where not, a learner may still import it."""
    of_unit(unit)
    return "torch" in sys.modules


def bench(unit: str, prelude: list[str], closed: bool) -> Bench:
    """This thread's bench for a unit: made once, and again when its zygote has ended."""
    now: Bench | None = getattr(_here, "bench", None)
    if now is not None and (now.key != (unit, tuple(prelude), closed) or now.zygote.process.poll() is not None):
        now.close()
        now = None
    _here.bench = now or Bench(unit, prelude, closed)
    return _here.bench


@atexit.register
def close_all() -> None:
    for each in list(_all):
        each.close()


def grade_text(request: str) -> str:
    """The journal's line for one paper. Whatever goes wrong here costs this paper only, and says so."""
    asked: dict[str, Any] = json.loads(request)
    try:
        try:
            rows, notes = _grade(asked)
        except Exception:  # not the student's fault: once more, with everything new
            _forget()
            rows, notes = _grade(asked)
    except Exception as error:
        _forget()
        message = f"The grader failed here ({type(error).__name__}): please tell your instructor."
        rows = nothing(asked["student"], asked["unit"], "died", message)
        notes = (f"grader: {type(error).__name__}: {error}"[:300],)
    return Entry(asked["student"], asked["unit"], asked["key"], rows, notes).to_text()


def _forget() -> None:
    """The next paper gets a new bench: nobody knows in which state this one is."""
    if (now := getattr(_here, "bench", None)) is not None:
        _here.bench = None
        now.close()


def _grade(asked: dict[str, Any]) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    sheet = Sheet(tuple(asked["cells"]), tuple(asked["notes"]))
    at = bench(asked["unit"], asked["prelude"], asked["closed"])
    with tempfile.TemporaryDirectory() as folder:
        model = None
        if asked.get("model"):
            model = Path(folder) / "model.safetensors"
            model.write_bytes(base64.b64decode(asked["model"]))
        return mark(
            asked["student"], asked["unit"], sheet, at.zygote, asked["prelude"], asked["stubs"], asked["seed"], model
        )


def nothing(student: str, unit: str, status: str, message: str) -> tuple[Row, ...]:
    """No points in any exercise of a unit, for one reason."""
    return tuple(Row(student, unit, e.id, 0, e.points, status, message=message) for e in of_unit(unit))


def main() -> None:
    """Requests on standard input, a line each; answers on standard output."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        answers.write(grade_text(line) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
