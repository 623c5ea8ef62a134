"""`course validate`, for CI: are notebooks as their lessons say, do they run, do checks tell right from wrong?

`declared.py` asks the exercises, `pages.py` the notebooks; here the steps follow each other, then the table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .. import exercises
from ..shapes import expect
from . import declared, pages
from .declared import Complaints, Examined
from .pages import Notebook


@dataclass
class Findings:
    """All that a validation found. Being over time is a fault only where time is strict."""

    notebooks: list[Notebook]
    strict_time: bool = False
    exercises: list[Examined] = field(default_factory=list)
    general: Complaints = field(default_factory=list)

    @property
    def complaints(self) -> Complaints:
        parts: list[Any] = [*self.notebooks, *self.exercises]
        return [*self.general, *(text for part in parts for text in part.complaints)]

    @property
    def late(self) -> Complaints:
        return [text for notebook in self.notebooks for text in pages.over_time(notebook)]

    @property
    def ok(self) -> bool:
        return not (self.complaints or (self.strict_time and self.late))


# --- the steps ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def step(name: str, total: int) -> Iterator[Any]:
    """A bar for one step; its clock moves every second, even while nothing ends."""
    done = threading.Event()
    with tqdm(total=total, desc=f"{name:22}", file=sys.stderr, mininterval=0.2) as bar:

        def beat() -> None:
            while not done.wait(1.0):
                bar.refresh()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield bar
        finally:
            done.set()
            thread.join()


def validate(root: Path, units: str, jobs: int, strict_time: bool) -> Findings:
    """Every step in turn; each adds what it finds, and none stops the others."""
    everything = [pages.read_notebook(p) for f in pages.KINDS for p in sorted((root / f).glob("*.ipynb"))]
    chosen = choose(units, {notebook.unit for notebook in everything} | set(exercises.UNITS))
    findings = Findings([notebook for notebook in everything if notebook.unit in chosen], strict_time)
    with step("notebooks and lessons", 1) as bar:
        findings.general += pages.build_complaints(root, chosen)
        bar.update()
    headings = {n.unit: set(pages.headings_of(n)) for n in everything if n.kind == "lecture"}
    check_exercises(findings, sorted(chosen & set(exercises.UNITS)), headings)
    with step("links and headings", len(findings.notebooks)) as bar:
        for notebook in findings.notebooks:
            notebook.complaints += pages.text_complaints(notebook) + pages.lent_answers(notebook)
            bar.update()
    with tempfile.TemporaryDirectory(prefix="course-validate-") as scratch:
        run_notebooks(findings, root, jobs, Path(scratch))
    return findings


def choose(units: str, known: set[str]) -> set[str]:
    """The units that "04,02" means; all for an empty text."""
    wanted = {unit.strip() for unit in units.split(",") if unit.strip()}
    unknown = ", ".join(sorted(wanted - known))
    expect(not unknown, f"There is no unit {unknown}; there are: {', '.join(sorted(known))}.")
    return wanted or known


def check_exercises(findings: Findings, units: Sequence[str], headings: dict[str, set[str]]) -> None:
    with step("exercises", len(units)) as bar:
        for unit in units:
            findings.general += declared.outcome_complaints(unit)
            if torch := sys.modules.get("torch"):
                torch.set_num_threads(1)  # answers are small: several threads only get in each other's way
            for exercise in exercises.of_unit(unit):
                bar.set_postfix_str(exercise.id)
                findings.exercises.append(declared.examine(exercise, headings))
            bar.update()


def run_notebooks(findings: Findings, root: Path, jobs: int, scratch: Path) -> None:
    """Lectures and solutions by nbval, side by side; then the exercises as they are handed out."""
    runnable = [n for n in findings.notebooks if n.sources("code")]
    complete = [n for n in runnable if n.kind != "exercise"]
    with step("lectures, solutions", sum(len(n.sources("code")) for n in complete)) as bar:
        if complete:
            pages.run_nbval(root, complete, jobs, scratch, bar)
    stubs = [n for n in runnable if n.kind == "exercise"]
    with (
        step("exercises, untouched", sum(len(n.sources("code")) for n in stubs)) as bar,
        ThreadPoolExecutor(jobs) as pool,
    ):
        list(pool.map(lambda notebook: pages.run_stubs(notebook, scratch, bar), stubs))


# --- what is told -------------------------------------------------------------------------------------------


def notebook_row(notebook: Notebook, strict_time: bool) -> dict[str, Any]:
    late = pages.over_time(notebook)
    wrong = bool(notebook.complaints) or (strict_time and bool(late))
    return {
        "unit": notebook.unit,
        "kind": notebook.kind,
        "cells": len(notebook.sources("code")),
        "seconds": round(sum(notebook.seconds.values()), 1),
        "slowest": f"{notebook.seconds.get(notebook.slowest, 0):.1f} s, code cell {notebook.slowest}",
        "verdict": "WRONG" if wrong else "over time" if late else "ok",
    }


def exercise_row(found: Examined) -> dict[str, Any]:
    exercise = found.exercise
    return {
        "exercise": exercise.id,
        "title": exercise.title,
        "points": exercise.points,
        "misconceptions": f"{found.named}/{len(exercise.misconceptions)}",
        "alternatives": f"{found.accepted}/{len(exercise.alternatives)}",
        "verdict": "WRONG" if found.complaints else "ok",
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Rows with the same keys, as text in columns."""
    lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)] if rows else []
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def report(findings: Findings, seconds: float) -> dict[str, Any]:
    """Everything for a machine to read."""
    return {
        "ok": findings.ok,
        "seconds": round(seconds, 1),
        "complaints": findings.complaints,
        "over_time": findings.late,
        "notebooks": [notebook_row(n, findings.strict_time) | {"name": n.name} for n in findings.notebooks],
        "exercises": [exercise_row(found) for found in findings.exercises],
    }


def tell(findings: Findings, seconds: float) -> str:
    """The same for people: the table, then what to mend."""
    rows = [notebook_row(n, findings.strict_time) for n in findings.notebooks]
    parts = [table(rows), table([exercise_row(found) for found in findings.exercises])]
    parts.append("\n".join(f"✗ {text}" for text in findings.complaints))
    parts.append("\n".join(f"{'✗' if findings.strict_time else '!'} {text}" for text in findings.late))
    mend = len(findings.complaints) + (len(findings.late) if findings.strict_time else 0)
    verdict = "All is well" if findings.ok else "One thing to mend" if mend == 1 else f"{mend} things to mend"
    parts.append(f"{verdict} (notebooks: {len(rows)}, exercises: {len(findings.exercises)}, {seconds:.0f} s).")
    return "\n\n".join(filter(None, parts))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--units", default="", metavar="04,02", help="only these units (all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="notebooks at a time (one per core)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found to this file too")
    parser.add_argument("--strict-time", action="store_true", help="fail when a cell or a notebook is over its time")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the course's folder (here)")


def main(args: argparse.Namespace) -> int:
    """Validate, show the table, and say by the exit code whether all is well."""
    expect(args.jobs >= 1, f"--jobs is how many notebooks run at a time, 1 or more; got {args.jobs}.")
    begin = time.monotonic()
    findings = validate(args.root.resolve(), args.units, args.jobs, args.strict_time)
    seconds = time.monotonic() - begin
    print(tell(findings, seconds))
    if args.json:
        args.json.write_text(
            json.dumps(report(findings, seconds), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return 0 if findings.ok else 1
