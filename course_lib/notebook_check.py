"""`course check exercises/04_queries_keys_values.ipynb`: the checks of a notebook, without a browser."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from pathlib import Path
from typing import Any

from . import exercises, progress
from .checks import Card, Report, examine
from .observe import remember
from .shapes import expect


def code_cells(path: Path) -> list[str]:
    """The code of a notebook, without magics and shell commands."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    except FileNotFoundError:
        raise ValueError(f"There is no file {path}.") from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is not a notebook that can be read.") from None
    return ["\n".join(x for x in s.split("\n") if not x.lstrip().startswith(("%", "!"))) for s in sources]


def run_cells(cells: list[str], name: str) -> tuple[dict[str, Any], list[str]]:
    """What the cells define, and what went wrong on the way; cells that check are left out."""
    space: dict[str, Any] = {"__name__": "__main__"}
    troubles = []
    for number, source in enumerate(cells, start=1):
        if source.startswith(("check(", "hint(")):
            continue
        file = remember(source, f"<{name}, code cell {number}>")
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(source, file, "exec"), space)
        except Exception as error:
            troubles.append(f"Code cell {number} raised {type(error).__name__}: {error}")
    return space, troubles


def check_notebook(path: Path, wanted: list[str]) -> tuple[list[Report], list[str]]:
    """A report for each exercise of the notebook's unit (or for those wanted)."""
    known = exercises.of_unit(path.name[:2])
    unknown = set(wanted) - {e.id for e in known}
    expect(not unknown, f"{path.name} has no exercise {', '.join(sorted(unknown))}.")
    space, troubles = run_cells(code_cells(path), path.name)
    reports = []
    for exercise in known:
        if wanted and exercise.id not in wanted:
            continue
        if exercise.name in space:
            reports.append(examine(space[exercise.name], exercise))
        else:
            reports.append(Report(exercise, "missing", message=f"Nothing here is called {exercise.name}."))
    return reports, troubles


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "notebook", type=Path, help="your exercise notebook, such as exercises/04_queries_keys_values.ipynb"
    )
    parser.add_argument("exercises", nargs="*", metavar="ID", help="only these exercises, such as 04.2")


def main(args: argparse.Namespace) -> int:
    """Print a card for each exercise; 0 when all of them are solved."""
    reports, troubles = check_notebook(args.notebook, args.exercises)
    print("\n".join(troubles))
    for report in reports:
        print(Card(report), end="\n\n")
        if report.status != "missing":
            progress.record(report.exercise.id, report.points, report.exercise.points)
    done = sum(report.points for report in reports)
    print(f"{done} of {sum(report.exercise.points for report in reports)} points.")
    return 0 if all(report.status == "passed" for report in reports) else 1
