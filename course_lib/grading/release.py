"""`course release --out DIR`: the students' copy of the course, without solutions, lessons, tests and grading.

What goes into it is listed here, file by file or by folder; what is not listed stays at home. A list of what was
written, with checksums, stays in DIR: a later release replaces and deletes only what is still as it was released.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .. import __version__, build
from ..shapes import expect
from ..units import UNITS

FILES = (
    ".gitattributes",
    ".gitignore",
    "LICENSE",
    "environment.yml",
    "lock.txt",
    "pyproject.toml",
    "start.py",
    "tools/run_pip.py",
)
LIBRARY = ("*.py", "exercises/*.py", "widgets/*.py", "widgets/*.js", "widgets/*.css")  # below course_lib
MARKER = ".course-release.json"
README = """\
# Attention and Transformers: your copy of the course

```
python3 start.py          # makes .venv, installs, opens the course in JupyterLab
```

It needs Python 3.11, 3.12 or 3.13 and nothing else; on Windows write `py start.py`. `python3 start.py --check`
installs, verifies, and says in plain words what is missing.

| folder | what it holds |
|---|---|
| `notebooks/` | the lectures, one per unit; the numbers are the order. Begin with `00_welcome.ipynb` |
| `exercises/` | the exercises, one notebook per unit: this is what you hand in |
| `course_lib/` | the library that the course is built on: read it whenever you want to know how something works |

## Exercises

Write your answer in place of `raise NotImplementedError`, run the cell, then the check below it. A wrong answer costs
nothing: the check says which idea is wrong, and `hint("04.2")` gives three hints, one at a time. `course progress`
shows what you have done, and `course check exercises/04_queries_keys_values.ipynb` runs all checks of a notebook.

Hand in the notebook of the unit, under the name that it has. Keep the names of the functions: they are how your answers
are found. Cells of your own are welcome; lines that begin with `%` or `!` are skipped when your work is graded.

## When the course is updated

Pull it with git, or open the link that your instructor gave you again. What you wrote stays; exercises that you have
not touched get the new text.
"""


# --- what students get --------------------------------------------------------------------------------------


def contents(root: Path) -> dict[str, bytes]:
    """Every file of the students' copy, by its path."""
    missing = [name for name in FILES if not (root / name).is_file()]
    expect(not missing, f"There is no {', '.join(missing)} in {root}: is this the course's folder?")
    files = {name: (root / name).read_bytes() for name in FILES}
    for pattern in LIBRARY:
        for path in sorted((root / "course_lib").glob(pattern)):
            files[path.relative_to(root).as_posix()] = path.read_bytes()
    for folder in ("notebooks", "exercises"):
        for path in (root / folder / f"{unit.name}.ipynb" for unit in UNITS):
            if path.is_file():
                files[path.relative_to(root).as_posix()] = student_notebook(path)
    expect(any(name.startswith("exercises/") for name in files), f"There are no exercises in {root}.")
    return files | {"README.md": README.encode()}


def student_notebook(path: Path) -> bytes:
    """A notebook without outputs, and without the line that sends whoever edits it to the lessons."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        first = notebook["cells"][0]
    except (ValueError, KeyError, IndexError, TypeError):
        raise ValueError(f"{path} is not a notebook that can be read: run `course build`.") from None
    if first["source"] and first["source"][0].startswith("*Generated from"):
        first["source"] = "".join(first["source"][1:]).strip().splitlines(keepends=True)
        notebook["cells"] = notebook["cells"] if first["source"] else notebook["cells"][1:]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    return (json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()


# --- writing them -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Changes:
    """What a release did: files written, files that were right already, files deleted, and edited ones left alone."""

    written: tuple[str, ...]
    same: tuple[str, ...]
    deleted: tuple[str, ...]
    kept: tuple[str, ...]


def release(root: Path, out: Path, *, force: bool = False) -> Changes:
    """Bring `out` to the students' copy of `root`, and leave alone what is not as an earlier release wrote it."""
    root, out = root.resolve(), out.resolve()
    expect(not root.is_relative_to(out), f"{out} is the course itself, or holds it: choose another folder for --out.")
    files, before = contents(root), _released(out, force)
    present = {name: old for name in [*files, *before] if (old := _content(out / name)) is not None}
    same = {name for name, old in present.items() if old == files.get(name)}
    edited = {name for name, old in present.items() if name not in same and _sum(old) != before.get(name)}
    kept = set() if force else edited
    written = files.keys() - same - kept
    deleted = present.keys() - files.keys() - kept
    for name in written:
        _write(out / name, files[name])
    for name in deleted:
        _delete(out, name)
    sums = {name: _sum(new) for name, new in files.items()} | {name: before.get(name, "") for name in kept}
    marker = {"version": __version__, "files": dict(sorted(sums.items()))}
    _write(out / MARKER, (json.dumps(marker, indent=1) + "\n").encode())
    return Changes(*(tuple(sorted(names)) for names in (written, same, deleted, kept)))


def _released(out: Path, force: bool) -> dict[str, str]:
    """Checksums of an earlier release, by path; ValueError for a folder that is something else."""
    if not out.exists() or (out.is_dir() and all(path.name == ".git" for path in out.iterdir())):
        return {}
    expect(out.is_dir(), f"{out} is not a folder.")
    try:
        files = json.loads((out / MARKER).read_text(encoding="utf-8"))["files"]
        # A list that was tampered with must not make us delete what lies elsewhere.
        return {str(k): str(v) for k, v in files.items() if not Path(k).is_absolute() and ".." not in Path(k).parts}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        expect(
            force,
            f"{out} is not empty and holds no earlier release (no {MARKER} that can be read). Choose another folder; "
            "--force writes into this one, and replaces files of the same name.",
        )
        return {}


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _sum(content: bytes) -> str:
    """The same for Windows and Unix line ends, since git may change them."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    os.replace(part, path)


def _delete(out: Path, name: str) -> None:
    """A file, and the folders that are empty without it."""
    path = out / name
    path.unlink()
    for folder in path.parents:
        if folder == out or any(folder.iterdir()):
            return
        folder.rmdir()


# --- git ----------------------------------------------------------------------------------------------------


def commit(out: Path, changes: Changes) -> str:
    """One more commit on top, with the release's files and nothing else, so that a pull merges; its short name."""
    tracked = set(_git(out, "ls-files", "-z").split("\0"))
    names = [*changes.written, *changes.same, *tracked.intersection(changes.deleted), MARKER]
    options = ("--force", "--all", "--pathspec-from-file=-", "--pathspec-file-nul")
    _git(out, "add", *options, words="\0".join(names))
    if not _git(out, "diff", "--cached", "--name-only"):
        return ""
    _git(out, "commit", "--quiet", "--message", f"Course {__version__}")
    return _git(out, "rev-parse", "--short", "HEAD")


def expect_repository(out: Path) -> None:
    """ValueError where `out` is not the top of a git repository with nothing staged."""
    advice = f"make one with `git init {out}`, or clone yours there"
    top = _git(out, "rev-parse", "--show-toplevel") if (out / ".git").exists() else ""
    expect(bool(top) and Path(top).resolve() == out.resolve(), f"{out} is not a git repository: {advice}.")
    staged = _git(out, "diff", "--cached", "--name-only")
    expect(not staged, f"In {out}, changes are staged that are not from the course: commit or unstage them first.")


def _git(out: Path, *command: str, words: str = "") -> str:
    """What git says; ValueError with its own words where it fails. A commit hook or a signature may do so."""
    try:
        done = subprocess.run(
            ["git", "--literal-pathspecs", "-C", str(out), *command], input=words, capture_output=True, text=True
        )
    except FileNotFoundError:
        raise ValueError("--git needs the program git, which was not found.") from None
    expect(done.returncode == 0, f"git {command[0]} failed in {out}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()


# --- the command --------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the students' copy goes")
    parser.add_argument("--git", action="store_true", help="commit it into the git repository in DIR, to be pulled")
    parser.add_argument(
        "--force", action="store_true", help="replace files in DIR that no release wrote, or that changed"
    )
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the course's folder (here)")


def main(args: argparse.Namespace) -> int:
    """Write the students' copy; with --git, commit it."""
    wrong = build.differences(args.root)
    expect(not wrong, f"Notebooks are not as their lessons say; run `course build` first. {'; '.join(wrong[:3])}.")
    if args.git:
        expect_repository(args.out)
    changes = release(args.root, args.out, force=args.force)
    name = commit(args.out, changes) if args.git else ""
    for path in changes.kept:
        print(f"left alone, since it was edited there: {path} (--force replaces it)")
    print(f"{len(changes.written)} files written to {args.out}, {len(changes.deleted)} deleted.")
    if args.git:
        print(f"Committed as {name}: now push it." if name else "Nothing changed, so there is nothing to commit.")
    return 0
