"""One paper: run its cells in a child, observe each exercise there, judge here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import exercises
from ..checks import Report, argument_names, judge, observations_of, right, with_file
from ..exercises.declare import Exercise
from ..handed_in import read_model
from ..observe import SECONDS, Observation
from . import wire
from .keeper import Child, Gone, Zygote
from .reasons import forbidden_in, known, reason
from .records import Part, Row, Sheet
from .sheets import without_spare_stubs

CELL_SECONDS, CALL_SECONDS, PAPER_SECONDS = 10.0, SECONDS + 3, 90.0
RESTARTS = 4  # cells that hang or kill, before the whole paper is given up


class Late(Gone):
    """The time for the whole paper is used up."""


class Marker:
    """A child with the paper's cells in it; when it is gone, the next question gets a new one."""

    def __init__(self, zygote: Zygote, prelude: Sequence[str], sheet: Sheet):
        self.zygote, self.prelude, self.sheet = zygote, prelude, sheet
        self.child: Child | None = None
        self.bad: dict[int, str] = {}  # cells that are left out, and why
        self.notes: list[str] = []
        self.end = time.monotonic() + PAPER_SECONDS

    def ask(self, head: dict[str, Any], body: bytes, seconds: float) -> tuple[dict[str, Any], bytes]:
        if self.child is None:
            self.start()
        assert self.child is not None
        try:
            return self.child.ask(head, body, seconds=self._at_most(seconds))
        except Gone:
            self.drop()
            raise

    def _at_most(self, seconds: float) -> float:
        """How long one question may take: no longer than what is left for the paper."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise Late("timeout", f"the whole notebook took more than {PAPER_SECONDS:g} seconds")
        return min(seconds, left)

    def start(self) -> None:
        """A new child that has run the cells; a cell that hangs or ends the process is left out from then on."""
        while len(self.bad) <= RESTARTS:
            child, place = self.zygote.child(), -1
            try:
                for number, cell in enumerate(self.prelude):
                    child.ask({"cell": cell, "name": f"<given {number}>"}, seconds=self._at_most(CELL_SECONDS))
                again, troubles = [], {}
                for place in (p for p in range(len(self.sheet.cells)) if p not in self.bad):
                    if self._run(child, place):
                        again.append(place)
                for place in again:  # `place` tells below which cell ended the process
                    if said := self._run(child, place):
                        troubles[place] = said
            except Gone as gone:
                child.close()
                if isinstance(gone, Late):
                    raise
                self.bad[place] = str(gone)
                self.notes.append(f"Code cell {place + 1} was left out: {gone}.")
                continue
            except BaseException:
                child.close()
                raise
            if self.child is None and not any("raised" in note for note in self.notes):
                self.notes += [f"Code cell {place + 1} raised {said}." for place, said in troubles.items()][:5]
            self.child = child
            return
        raise Gone("died", "too many cells hang or end the process")

    def _run(self, child: Child, place: int) -> str:
        """Run a cell; the kind of error it raised. One that raises is run again when all others have been."""
        head = {"cell": self.sheet.cells[place], "name": f"<code cell {place + 1}>"}
        raised = child.ask(head, seconds=self._at_most(CELL_SECONDS))[0].get("raised")
        return known(raised[0], self.sheet.cells) if isinstance(raised, list) and raised else ""

    def observe(self, exercise: Exercise, seed: int, tensors: Mapping[str, Any] | None) -> list[Observation] | str:
        """What the learner's code does on every case; or the kind of what stands in its place, "" for nothing.

        What an earlier exercise left behind (a timer, a thread) may end the child: then a new one decides.
        """
        used = self.child is not None
        try:
            return self._observe(exercise, seed, tensors)
        except Gone as gone:
            if gone.status != "died" or not used:
                raise
        return self._observe(exercise, seed, tensors)

    def _observe(self, exercise: Exercise, seed: int, tensors: Mapping[str, Any] | None) -> list[Observation] | str:
        seen: list[Observation] = []
        for case in with_file(exercise.draw_cases(seed), dict(tensors) if tensors is not None else None):
            head, body = wire.case_to_wire(case)
            try:
                answer, more = self.ask({"call": exercise.name} | head, body, CALL_SECONDS + 10 * bool(case.longest))
                if "missing" in answer:
                    return str(answer["missing"])[:60]
                seen.append(wire.observation_from_wire(answer, more))
                if any(not 0 <= i < len(case.args) for i in seen[-1].changed):
                    raise wire.BadReply("inputs are said to be changed that are not there")
            except wire.BadReply:
                self.drop()
                raise Gone("died", "its process sent something that is not an answer") from None
            if (fault := seen[-1].fault) and fault.kind == "TooLong":
                self.drop()  # a thread may still be running in there
                raise Gone("timeout", f"it ran for more than {SECONDS:g} seconds")
        return seen

    def drop(self) -> None:
        if self.child is not None:
            self.child.close()
            self.child = None


def mark(
    student: str, unit: str, sheet: Sheet, zygote: Zygote, prelude: Sequence[str], stubs: Mapping[str, str],
    seed: int, model: Path | None = None,
) -> tuple[tuple[Row, ...], tuple[str, ...]]:  # fmt: skip
    """All rows of a paper, and notes on what was left out of it."""
    sheet = replace(sheet, cells=tuple(without_spare_stubs(sheet.cells, stubs)))
    marker = Marker(zygote, prelude, sheet)
    try:
        rows = tuple(_row(student, e, marker, seed, model) for e in exercises.of_unit(unit))
    finally:
        marker.drop()
    return rows, (*sheet.notes, *marker.notes)


def _row(student: str, exercise: Exercise, marker: Marker, seed: int, model: Path | None) -> Row:
    """One exercise: forbidden, missing, gone, or judged."""
    nothing = Row(student, exercise.unit, exercise.id, 0, exercise.points, "missing")
    cells = [*marker.prelude, *marker.sheet.cells]
    if not marker.sheet.cells:
        return replace(nothing, message="Nothing was handed in that can be read.")
    try:
        if used := forbidden_in(marker.sheet.cells, exercise, marker.prelude):
            message = f"This exercise wants your own code, and yours calls {used}."
            return replace(nothing, status="forbidden", message=message)
        tensors = read_model(model) if exercise.file and model is not None else None
        if exercise.file and tensors is None:
            return replace(nothing, message=f"There is no {exercise.file} beside the notebook.")
        seen = marker.observe(exercise, seed, tensors)
    except Gone as gone:
        return replace(nothing, status=gone.status, message=f"No points: {gone}.")
    except ValueError as error:  # the file beside the notebook
        return replace(nothing, status="error", message=str(error))
    if isinstance(seen, str):
        kind = f"{exercise.name} is not a function or class." if seen else f"Nothing here is called {exercise.name}."
        return replace(nothing, status="error" if seen else "missing", message=kind)
    if all(got.fault and got.fault.kind == "NotImplementedError" for got in seen):
        return replace(nothing, message="Still empty.")
    return _judged(nothing, exercise, seen, cells, seed)


def _judged(row: Row, exercise: Exercise, seen: list[Observation], cells: Sequence[str], seed: int) -> Row:
    report: Report = judge(exercise, seen, seed)
    cases, wanted = exercise.draw_cases(seed), observations_of(exercise.id, seed)
    why: dict[str, str] = {}
    for case, got, want in zip(cases, seen, wanted, strict=True):
        if not right(case, got, want) and case.check not in why:
            why[case.check] = reason(case, got, want, argument_names(exercise), cells)
    parts = tuple(
        Part(r.check.name, r.check.points, r.passed, "" if r.passed else why.get(r.check.name, "Not right yet."))
        for r in report.results
    )
    lost = [f"{part.name}: {part.reason}" for part in parts if not part.passed]
    return replace(
        row, points=report.points, status=report.status, parts=parts, message=lost[0] if lost else "",
        misconception=report.misconception.name if report.misconception else "",
    )  # fmt: skip
