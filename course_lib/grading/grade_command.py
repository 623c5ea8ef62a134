"""`course grade SUBMISSIONS --out DIR`: grade a class, and write tables, pages and a report."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import exercises
from ..shapes import expect
from . import batch, outputs
from .handed_in import find_papers
from .keeper import refuse_where_unsafe
from .records import Entry
from .standings import moved, moved_table
from .unpack import submissions

LOST = """--unsafe: what students wrote runs in a process of its own, but that process can read your files, the tests
and other students' work, use the network, and leave processes behind. Use it on a machine that holds nothing else."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "submissions", type=Path, metavar="SUBMISSIONS", help="<student>/<notebook>.ipynb, nbgrader's submitted/, a zip"
    )
    add("--out", type=Path, required=True, metavar="DIR", help="where grades, feedback and the report go")
    add("--units", default="", help="only these, such as 04,06 (all that anybody handed in)")
    add("--seed", type=int, help="draws the inputs; keep it to yourself (kept in DIR/seed, drawn the first time)")
    add("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes at once (%(default)s)")
    add("--dask", metavar="ADDRESS", help="grade on this Dask cluster, such as tcp://10.0.0.1:8786")
    add("--adjust", type=Path, metavar="CSV", help="student,unit,change,reason: late days, manual corrections")
    add("--unsafe", action="store_true", help="grade although learners' code cannot be locked away here")
    add("--root", type=Path, default=Path.cwd(), help="the course's folder (here)")


def main(args: argparse.Namespace) -> int:
    """Grade what is new or changed, then write everything; 0 when every paper has a grade."""
    expect(args.jobs >= 1, f"--jobs takes a number from 1; got {args.jobs}.")
    adjustments = outputs.find_adjustments(args.out, args.adjust)
    with submissions(args.submissions) as folder, batch.Journal(args.out) as journal:
        _safe(args, folder)
        before = list(journal.entries.values())
        seed = _seed(args.out, args.seed)
        papers = find_papers(folder, _units(args.units))
        if not args.units:  # units that nobody handed in are not missing, they are not due yet
            due = {p.unit for p in papers if p.path is not None}
            papers = [p for p in papers if p.unit in due]
        expect(bool(papers), f"No notebook of this course was found in {args.submissions}.")
        plans = {unit: batch.plan(args.root, unit) for unit in sorted({p.unit for p in papers})}
        asked = list(batch.requests(papers, plans, seed, not args.unsafe))
        todo = batch.outstanding(asked, journal)
        print(f"{len(papers)} papers, {len(papers) - len(todo)} of them graded before; seed in {args.out / 'seed'}.")
        for entry in _graded(todo, plans, args):
            journal.add(entry)
        after = list(journal.entries.values())
    moves = moved(before, after) if before else []
    outputs.write_outputs(args.out, after, adjustments=adjustments, moved=moves)
    if moves:
        print(moved_table(moves))
    _tell(after, args.out)
    return 0


def _units(text: str) -> list[str]:
    chosen = [unit.strip().zfill(2) for unit in text.split(",") if unit.strip()] or list(exercises.UNITS)
    unknown = [unit for unit in chosen if unit not in exercises.UNITS]
    expect(not unknown, f"There are no exercises for {', '.join(unknown)}; there are for {', '.join(exercises.UNITS)}.")
    return chosen


def _safe(args: argparse.Namespace, folder: Path) -> None:
    expect(sys.platform == "linux", "Grading needs Linux: a machine, a container, or the Linux part of Windows (WSL).")
    if args.unsafe:
        print(LOST)
        return
    with tempfile.TemporaryDirectory() as empty:
        library = Path(__file__).resolve().parents[1]
        refuse_where_unsafe(Path(empty), [library, args.out, folder, args.root / "solutions", args.root / "lessons"])


def _seed(out: Path, given: int | None) -> int:
    """The seed that is given, or the one of last time, or a new one; kept where only its owner reads it."""
    path = out / "seed"
    with contextlib.suppress(FileNotFoundError, ValueError):
        kept = int(path.read_text())
        given = kept if given is None else given
    seed = secrets.randbits(48) if given is None else given
    expect(seed >= 0, f"--seed takes a number from 0; got {seed}.")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{seed}\n")
    return seed


def _graded(todo: list[dict[str, Any]], plans: dict[str, batch.Plan], args: argparse.Namespace) -> Iterator[Entry]:
    """An entry for each request, as they come, with a bar that shows how far it is."""
    from tqdm import tqdm

    absent = [r for r in todo if r["paper"].path is None]
    present = sorted((r for r in todo if r["paper"].path is not None), key=lambda r: r["paper"].unit)
    yield from map(batch.not_handed_in, absent)
    texts = (batch.to_text(r, plans) for r in present)
    graded = batch.on_dask(texts, args.dask) if args.dask else batch.here(texts, min(args.jobs, len(present) or 1))
    for text in tqdm(graded, total=len(present), unit="paper", disable=None if present else True):
        yield Entry.from_text(text)


def _tell(entries: list[Entry], out: Path) -> None:
    """A line for each unit, and where to look."""
    print(f"{'unit':6}{'papers':>8}{'mean':>8}{'max':>6}{'full':>7}{'nothing':>9}")
    for unit in sorted({e.unit for e in entries}):
        points = [e.points for e in entries if e.unit == unit]
        most = max(sum(r.max for r in e.rows) for e in entries if e.unit == unit)
        full, none = sum(p == most for p in points), sum(p == 0 for p in points)
        print(f"{unit:6}{len(points):8}{sum(points) / len(points):8.1f}{most:6}{full:7}{none:9}")
    print(f"Open {out / 'report.html'}; grades are in {out / 'grades.csv'}.")
