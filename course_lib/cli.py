"""The command `course`: one line here per subcommand, the work in a module of its own.

Such a module has `add_arguments(parser)` and `main(args) -> int`, and is imported only when it is asked for.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple


class Command(NamedTuple):
    module: str
    help: str
    example: str


COMMANDS = {
    "lab": Command("lab", "open the course in JupyterLab", "course lab --no-browser"),
    "doctor": Command("doctor", "check that all that the course needs is there and works", "course doctor"),
    "build": Command("build", "make the notebooks from the lessons", "course build --check"),
    "validate": Command("validate", "check notebooks, exercises, links and times", "course validate --units 04"),
    "check": Command(
        "notebook_check", "check your exercise notebook", "course check exercises/04_queries_keys_values.ipynb"
    ),
    "progress": Command("progress", "show what you have done so far", "course progress"),
    "release": Command("grading.release", "make the students' copy of the course", "course release --out ../students"),
    "grade": Command("grading.grade_command", "grade a class", "course grade submitted --out graded --units 04"),
    "report": Command(
        "grading.report_command", "write tables and pages of a graded class again", "course report graded"
    ),
    "site": Command("site", "make the course's web site", "course site --out site"),
    "bench": Command("bench", "measure speed and memory against torch's own modules", "course bench --help"),
}


def build_parser(chosen: str | None) -> argparse.ArgumentParser:
    """The parser of all commands; only the chosen one's module is imported, for its arguments."""
    parser = argparse.ArgumentParser(
        prog="course",
        description="Attention and Transformers: the commands of the course.",
        epilog="examples:\n" + "\n".join(f"  {command.example}" for command in COMMANDS.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words = "show where in the code an error arose"
    parser.add_argument("--debug", action="store_true", help=words)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        # SUPPRESS, so that a --debug before the command is not undone by its absence after it.
        sub = subparsers.add_parser(
            name, help=command.help, description=command.help, epilog=f"example: {command.example}"
        )
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=words)
        if name == chosen:
            load(name).add_arguments(sub)
    return parser


def load(name: str):
    """The module of a command; the students' copy of the course does not have all of them."""
    try:
        return importlib.import_module(f"course_lib.{COMMANDS[name].module}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("course_lib."):
            raise
        raise ValueError("this command is for instructors, and not part of the students' copy.") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit code: its own; 2 for a mistake of the user, in one line; 130 when interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in words if word in COMMANDS), None)
    try:
        args = build_parser(chosen).parse_args(words or ["--help"])
        return int(load(args.command).main(args) or 0)
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130
    except (ValueError, ImportError) as error:
        if "--debug" in words:
            raise
        advice = "; `course doctor` tells what is missing" if isinstance(error, ImportError) else ""
        print(f"course {chosen}: {error}{advice}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
