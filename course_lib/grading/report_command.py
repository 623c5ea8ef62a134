"""`course report DIR`: all tables and pages of a graded class once more, with adjustments, or for another system."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..shapes import expect
from . import outputs
from .records import Entry
from .standings import newest, number, standings


def read_journal(path: Path) -> tuple[list[Entry], list[int]]:
    """The newest entry for each student and unit, and the numbers of lines that are not whole.

    Whoever is stopped while writing leaves a piece of a line; that paper is graded again, so it is left out here.
    """
    expect(path.is_file(), f"There is no {path}. `course grade SUBMISSIONS --out {path.parent}` makes it.")
    entries, broken = [], []
    for position, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        try:
            if line.strip():
                entries.append(Entry.from_text(line.decode("utf-8")))
        except ValueError:
            broken.append(position)
    return list(newest(entries).values()), broken


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder that `course grade` wrote")
    adjust = (
        "student,unit,change,reason with changes such as +2, -3, -10%% or =17 (DIR/adjustments.csv, if there is one)"
    )
    parser.add_argument("--adjust", type=Path, metavar="CSV", help=adjust)
    parser.add_argument("--export", choices=sorted(outputs.EXPORTS), help="write DIR/<name>.csv for that system too")
    parser.add_argument("--title", default="", help="the heading of all pages")


def main(args: argparse.Namespace) -> int:
    """Write everything again and say in a few lines what is there."""
    entries, broken = read_journal(args.folder / "journal.jsonl")
    adjustments = outputs.find_adjustments(args.folder, args.adjust)
    moves = outputs.read_moves(args.folder / "moved.csv")
    outputs.write_outputs(args.folder, entries, adjustments=adjustments, moved=moves, title=args.title)
    ranked = standings(entries, adjustments)
    if broken:
        print(f"journal.jsonl: line {', '.join(map(str, broken[:10]))} is not whole and was left out.")
    if adjustments:
        print(f"{len(adjustments)} adjustments from {args.adjust or args.folder / 'adjustments.csv'}.")
    mean = sum(float(standing.total) for standing in ranked) / len(ranked) if ranked else 0.0
    print(f"{len(ranked)} students, {mean:.1f} of {number(ranked[0].max if ranked else 0)} points on average.")
    if args.export:
        print(f"For {args.export}: {outputs.write_export(args.folder, args.export, entries, adjustments)}")
    print(f"Open {args.folder / 'report.html'}")
    return 0
