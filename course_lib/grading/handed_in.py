"""Who handed in what: every student's notebook for every unit, whatever the layout and whatever the file is called.

Nothing that a student hands in raises: what cannot be used is left out, and a note says so. ValueError is for the
instructor: the path is wrong, the archive cannot be opened, there are no students.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..shapes import expect
from ..units import UNITS
from .records import Paper
from .sheets import decoded, read_sheet, stub_cells, without_spare_stubs
from .unpack import LARGEST, NOTEBOOK, files_below, is_ignored, leads_inside, printable, submissions

__all__ = ["find_papers", "read_sheet", "strays", "stub_cells", "submissions", "without_spare_stubs"]

OTHER_ARCHIVES = (".7z", ".bz2", ".gz", ".rar", ".tar", ".tgz", ".xz")
MOODLE = re.compile(r"(?P<student>.+_\d+)_assignsubmission_(?:file|onlinetext)_?(?P<file>.*)", re.S)
CANVAS = re.compile(r"(?P<name>[^_]+)_(?P<late>LATE_)?(?P<number>\d+)_\d+_(?P<file>.+)", re.S)
# In the raw text of a notebook, whole or not: check(attention, "04.4") and "grade_id": "answer-04-4".
CHECKED = re.compile(
    r"\bcheck\(\s*[\w.]{1,80}\s*,\s*\\?[\"'](\d\d)\.\d{1,3}\\?[\"']|\b(?:answer|check)-(\d\d)-\d{1,3}\b"
)
NUMBERED = re.compile(r"(?:(?!untitled)[a-z]{1,12}[ _-]?)?0*(\d{1,2})(?!\d)")
STEMS = {unit.number: unit.name for unit in UNITS}


@dataclass(frozen=True)
class File:
    """A file that a student handed in: where it is, and what the student called it."""

    path: Path
    name: str
    home: Path
    is_late: bool = False


class Trouble(NamedTuple):
    """A file that is not taken, and why; the unit, where its name tells it."""

    unit: str | None
    words: str


def find_papers(folder: Path, units: Sequence[str]) -> list[Paper]:
    """For every student, in order, a paper for each of the units ("04"), found or missing."""
    files, _ = _by_student(_tree(Path(folder)))
    expect(
        bool(files),
        f"There are no students in {folder}. What was handed in lies in SUBMISSIONS/<student>/<notebook>.ipynb, or as "
        "nbgrader, Moodle and Canvas lay it out.",
    )
    return [paper for student in sorted(files) for paper in _papers(student, files[student], units)]


def strays(folder: Path) -> list[Path]:
    """Notebooks beside the students' folders, which belong to nobody: worth a word to the instructor."""
    return _by_student(_tree(Path(folder)))[1]


def _tree(folder: Path) -> Path:
    """The folder of the students: nbgrader keeps it in `submitted`."""
    inner = folder / "submitted"
    is_tree = inner.is_dir() and not inner.is_symlink() and not any(NOTEBOOK.search(p.name) for p in inner.iterdir())
    return inner if is_tree else folder


def _by_student(folder: Path) -> tuple[dict[str, list[File]], list[Path]]:
    """The files of every student, and the notebooks that are nobody's."""
    files: dict[str, list[File]] = {}
    loose = []
    for entry in sorted(folder.iterdir()):
        if is_ignored(entry.name):
            continue
        is_folder = os.path.isdir(entry) and not entry.is_symlink()
        is_link = entry.is_symlink() and not NOTEBOOK.search(entry.name)
        student, name, is_late = _owner(entry.name, is_folder or is_link)
        if student is None:
            loose += [entry] if NOTEBOOK.search(entry.name) else []
            continue
        inside = itertools.islice(files_below(entry), 5_000) if is_folder else ()
        new = [File(path, str(path.relative_to(entry)), entry, is_late) for path in inside]
        new += [] if is_folder else [File(entry, name, entry, is_late)]
        files.setdefault(printable(student), []).extend(new)
    return files, loose


def _owner(name: str, is_folder: bool) -> tuple[str | None, str, bool]:
    """Student, what they called the file, and whether it came late; None for a file that belongs to nobody."""
    is_archive = name.lower().endswith(".zip")
    if found := MOODLE.fullmatch(name):
        return found["student"], found["file"] or name, False
    if (found := CANVAS.fullmatch(name)) and (not is_folder or is_archive):
        return f"{found['name']}_{found['number']}", found["file"], bool(found["late"])
    if is_folder or is_archive:
        return name[:-4] if is_archive else name, name, False
    return None, name, False


def _papers(student: str, files: list[File], units: Sequence[str]) -> Iterator[Paper]:
    """The papers of one student."""
    candidates: dict[str, list[File]] = {}
    troubles, others = [], []
    for file in files:
        if trouble := _trouble(file):
            troubles.append(Trouble(_unit_by_name(file) if NOTEBOOK.search(file.name) else None, trouble))
        elif not NOTEBOOK.search(file.name):
            others.append(_called(file))
        elif unit := _unit(file):
            candidates.setdefault(unit, []).append(file)
        else:
            troubles.append(Trouble(None, f"{_called(file)} could not be told to belong to any unit"))
    for unit in units:
        told = [t.words for t in troubles if t.unit == unit]
        if unit in candidates:
            taken, notes = _choose(candidates[unit], unit)
            yield Paper(student, unit, taken.path, tuple([*notes, *told]))
            continue
        told += [t.words for t in troubles if t.unit not in units]
        told += [f"what was handed in instead: {_some(others)}"] if others and not candidates and not told else []
        yield Paper(student, unit, None, ("no notebook was found for this unit", *told))


def _called(file: File) -> str:
    return printable(file.name)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _trouble(file: File) -> str:
    """Why a file is not even looked at."""
    name = _called(file)
    try:
        if file.path.is_symlink() and not (leads_inside(file.path, file.home) and file.path.is_file()):
            return f"{name} is a link that points outside the folder of the submission: refused"
        facts = file.path.stat()
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
    if name.lower().endswith(".zip") and not NOTEBOOK.search(name):
        return f"{name} could not be unpacked (damaged, locked, too large, or inside another archive): left out"
    if name.lower().endswith(OTHER_ARCHIVES):
        return f"{name} is an archive of a kind that is not read: hand in the notebook itself, or a .zip"
    if NOTEBOOK.search(name) and not stat.S_ISREG(facts.st_mode):
        return f"{name} is no plain file: refused"
    if NOTEBOOK.search(name) and facts.st_size > LARGEST:
        return f"{name} is larger than {LARGEST // 1_000_000} MB: refused; clear its outputs"
    return ""


def _last_name(file: File) -> str:
    """The name without folders and ending, in one spelling: for comparing only."""
    name = file.name.replace("\\", "/").rpartition("/")[2]
    return unicodedata.normalize("NFC", NOTEBOOK.sub("", name)).casefold()


def _is_exact(file: File, unit: str) -> bool:
    return _last_name(file) == STEMS.get(unit)


def _unit(file: File) -> str | None:
    """The unit of a notebook: by its exact name, else by what it checks, else by a number in its name."""
    exact = [unit for unit in STEMS if _is_exact(file, unit)]
    return exact[0] if exact else _unit_by_content(file.path) or _unit_by_name(file)


def _unit_by_name(file: File) -> str | None:
    name = _last_name(file)
    if stems := [unit for unit, stem in STEMS.items() if stem in name]:
        return stems[0]
    number = NUMBERED.match(name)
    return f"{int(number[1]):02d}" if number else None


def _unit_by_content(path: Path) -> str | None:
    """The unit that most of a notebook's checks and answer cells belong to."""
    try:
        text = decoded(path.read_bytes())[0]
    except OSError:
        return None
    found = Counter(a or b for a, b in CHECKED.findall(text))
    return found.most_common(1)[0][0] if found else None


def _choose(files: list[File], unit: str) -> tuple[File, list[str]]:
    """One notebook of those for a unit: that with its checks, that with the exact name, the last in natural order."""

    def worth(file: File) -> tuple[bool, bool, bool, Any]:
        is_course = file.path.parent.name in ("notebooks", "solutions")  # the whole course was handed in
        return _unit_by_content(file.path) == unit, not is_course, _is_exact(file, unit), _natural(file.name)

    taken = max(files, key=worth) if len(files) > 1 else files[0]
    left = [_called(file) for file in files if file is not taken]
    notes = [f"several notebooks for this unit: {_called(taken)} was taken, not {_some(left)}"] if left else []
    if not _is_exact(taken, unit) and not left:
        notes.append(f"found under the name {_called(taken)}")
    return taken, [*notes, *(["marked as late by the learning platform"] if taken.is_late else [])]


def _natural(name: str) -> tuple[Any, ...]:
    """A key that sorts "hw (10)" behind "hw (9)"; ties are broken by the spelling."""
    pieces = re.split(r"(\d+)", unicodedata.normalize("NFC", name).casefold())
    return [(len(p.lstrip("0")), p.lstrip("0")) if i % 2 else p for i, p in enumerate(pieces)], name  # type: ignore
