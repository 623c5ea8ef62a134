"""The folder with what was handed in: as it is, or unpacked from a zip without trusting it.

No entry leaves its folder, no link is followed, and the number and size of files have bounds. Nothing is ever written
into the instructor's own folder.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shutil
import stat
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..shapes import expect

LARGEST = 20_000_000  # bytes of one notebook or model
NOTEBOOK = re.compile(r"\.ipynb(\.txt|\.json)?$", re.I)  # some browsers save a notebook as .ipynb.txt


def printable(text: str) -> str:
    """A name that every file can hold: bytes that are no UTF-8 become letters, what is left becomes a question mark."""
    try:
        text = text.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        text = os.fsencode(text).decode("latin-1") if _is_escaped(text) else text
    return text.encode("utf-8", "replace").decode("utf-8")


def _is_escaped(text: str) -> bool:
    return all(not 0xD800 <= ord(c) <= 0xDFFF or 0xDC80 <= ord(c) <= 0xDCFF for c in text)


def is_ignored(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def leads_inside(path: Path, home: Path) -> bool:
    """Whether a link leads to a place in the student's own folder, which itself must not be a link."""
    try:
        return path.resolve(strict=True).is_relative_to(home.parent.resolve() / home.name)
    except (OSError, RuntimeError, ValueError):  # it leads nowhere, or in a circle
        return False


class Room(NamedTuple):
    """How much an archive may hold: entries, bytes once unpacked, and bytes of an archive inside it."""

    entries: int
    size: int
    inner: int


CLASS = Room(entries=300_000, size=10_000_000_000, inner=100_000_000)
STUDENT = Room(entries=3_000, size=100_000_000, inner=0)
ZIPS_PER_STUDENT = 20
NOWHERE = os.devnull + "/a-link-that-was-handed-in"  # can neither be read nor written


@contextlib.contextmanager
def submissions(path: Path) -> Iterator[Path]:
    """The folder with what was handed in: `path` itself, or a temporary one where something had to be unpacked."""
    path = Path(path)
    expect(path.exists(), f"There is nothing at {path}: give the folder or the .zip with what was handed in.")
    with tempfile.TemporaryDirectory(prefix="handed-in-") as temporary:
        folder = Path(temporary)
        if path.is_dir():
            expect(any(not is_ignored(p.name) for p in path.iterdir()), f"The folder {path} is empty.")
            if not any(_zips(path)):
                yield path
                return
            _mirror(path, folder)
        else:
            expect(zipfile.is_zipfile(path), f"{path} is neither a folder nor a .zip that can be opened.")
            unpack(path, folder, CLASS)
            expect(any(folder.iterdir()), f"There is nothing in {path}.")
        _unpack_inner(folder)
        yield folder if path.is_dir() else _unwrapped(folder, path.stem)


def files_below(home: Path, deepest: int = 12) -> Iterator[Path]:
    """Every file below a folder in order, hidden ones left out; a linked folder counts as a file, nobody follows it."""
    for where, folders, files in os.walk(home):
        here = Path(where)
        links = [name for name in folders if (here / name).is_symlink()]
        is_deep = len(here.relative_to(home).parts) >= deepest
        folders[:] = [] if is_deep else sorted(f for f in folders if not is_ignored(f))
        yield from (here / name for name in sorted([*files, *links]) if not is_ignored(name))


def _zips(folder: Path) -> Iterator[Path]:
    return (p for p in files_below(folder) if p.suffix.lower() == ".zip" and not p.is_symlink() and p.is_file())


def _mirror(source: Path, target: Path) -> None:
    """The same tree without a second copy of the bytes; files that are no concern of ours keep only their names."""
    for entry in source.iterdir():
        if entry.is_dir() and not entry.is_symlink() and not is_ignored(entry.name):
            (target / entry.name).mkdir()
    for path in files_below(source):
        new = target / path.relative_to(source)
        new.parent.mkdir(parents=True, exist_ok=True)
        home = source / path.relative_to(source).parts[0]
        if path.is_symlink() and not (leads_inside(path, home) and path.is_file()):
            _leave_link(new)
        elif path.is_file() and (NOTEBOOK.search(path.name) or path.suffix.lower() in (".zip", ".safetensors")):
            _link_or_copy(path.resolve(), new)
        else:
            new.touch()


def _link_or_copy(path: Path, new: Path) -> None:
    try:
        os.link(path, new)
    except OSError:  # another disk, or a file system without hard links
        try:
            shutil.copyfile(path, new)
        except OSError:
            new.touch()


def _leave_link(new: Path) -> None:
    """In the place of a link one that leads nowhere, so that `find_papers` can say that there was one."""
    with contextlib.suppress(OSError):
        new.symlink_to(NOWHERE)


def _unpack_inner(folder: Path) -> None:
    """In the place of every student's zip a folder of the same name; one that cannot be unpacked stays, empty."""
    seen: Counter[str] = Counter()
    for path in list(_zips(folder)):
        home = path.relative_to(folder).parts[0]
        seen[home] += 1
        held = path.with_name(f".{len(seen)}-{seen[home]}.part")
        path.rename(held)
        try:
            expect(seen[home] <= ZIPS_PER_STUDENT, "There are too many archives.")
            path.mkdir()
            unpack(held, path, STUDENT)
        except ValueError:
            shutil.rmtree(path, ignore_errors=True)
            path.touch()
        finally:
            held.unlink()


class Entry(NamedTuple):
    """One file of an archive: where it goes, and how much of it is unpacked; a folder has no size."""

    info: zipfile.ZipInfo
    parts: list[str]
    size: int | None


def unpack(archive: Path, target: Path, room: Room) -> None:
    """Notebooks, models and inner zips into `target`; of other files only the names. No entry leaves `target`."""
    try:
        expect(_directory_size(archive, room) <= 1000 * room.entries, f"{archive.name} holds too many files.")
        with zipfile.ZipFile(archive) as file:
            entries = [entry for info in file.infolist() if (entry := _entry(info, room)).parts]
            size = sum(entry.size or 0 for entry in entries)
            expect(len(entries) <= room.entries, f"{archive.name} holds more than {room.entries} files.")
            expect(
                size <= room.size,
                f"{archive.name} would fill {size:,} bytes, more than the {room.size:,} allowed: unpack it yourself "
                "and give the folder.",
            )
            expect(not any(entry.info.flag_bits & 1 for entry in entries), f"{archive.name} is locked with a password.")
            for entry in entries:
                _write(file, entry, target.joinpath(*entry.parts))
    except ValueError:
        raise
    except OSError as error:
        raise ValueError(f"{archive.name} cannot be unpacked: {error.strerror or error}.") from None
    except Exception as error:  # zipfile, struct and codecs have many ways to stumble over a damaged archive
        raise ValueError(f"{archive.name} is damaged: {error}") from None


def _directory_size(archive: Path, room: Room) -> int:
    """Bytes of the list of entries, as the end of the archive states it: zipfile would read it all before any check."""
    with open(archive, "rb") as file:
        file.seek(max(0, os.path.getsize(archive) - 66_000))
        tail = file.read()
    at = len(tail) - 22 if tail[-22:].startswith(b"PK\5\6") and tail.endswith(b"\0\0") else tail.rfind(b"PK\5\6")
    expect(at >= 0 and len(tail) >= at + 22, f"{archive.name} is not a zip, or not whole.")
    is_zip64 = tail[max(0, at - 20) : at].startswith(b"PK\6\7")
    expect(room is CLASS or not is_zip64, f"{archive.name} is too large.")
    return 0 if is_zip64 else int.from_bytes(tail[at + 12 : at + 16], "little")


def _entry(info: zipfile.ZipInfo, room: Room) -> Entry:
    """What to unpack of a file: nothing where it would leave the folder; of a hidden one, the folder that it is in."""
    name = info.filename
    if not info.flag_bits & 0x800:  # zipfile then takes the name for DOS letters, though macOS writes UTF-8
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    name = name.replace("\\", "/")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or re.match(r"[A-Za-z]:", name) or len(parts) > 20:
        return Entry(info, [], None)
    seen = list(itertools.takewhile(lambda part: not is_ignored(part), parts))
    is_folder = name.endswith("/") or seen != parts
    return Entry(info, seen, None if is_folder else min(info.file_size, _most(name.lower(), room)))


def _most(name: str, room: Room) -> int:
    """How many bytes to unpack. One byte more than allowed is enough to see later that a notebook is too large."""
    if name.endswith(".zip"):
        return room.inner
    return LARGEST + 1 if NOTEBOOK.search(name) or name.endswith(".safetensors") else 0


def _write(file: zipfile.ZipFile, entry: Entry, target: Path) -> None:
    """One entry; a damaged one ends where its damage begins, and costs only itself."""
    try:
        if entry.size is None:
            return target.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISLNK(entry.info.external_attr >> 16):
            return _leave_link(target)
        with open(target, "wb") as out:
            if entry.size:
                _copy(file, entry, out)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ValueError(f"The disk is full: {target.parent} has no room for the archive.") from None
    except Exception:  # a wrong checksum, an unknown way of packing, data that end too early
        return


def _copy(file: zipfile.ZipFile, entry: Entry, out: BinaryIO) -> None:
    left = entry.size or 0
    with file.open(entry.info) as source:
        while left > 0 and (chunk := source.read(min(left, 1 << 16))):
            out.write(chunk)
            left -= len(chunk)


def _unwrapped(folder: Path, stem: str) -> Path:
    """Inside the one folder that many programs wrap around an archive, if it bears the archive's name."""
    inner = list(folder.iterdir())
    if len(inner) != 1 or not inner[0].is_dir() or any(NOTEBOOK.search(p.name) for p in inner[0].iterdir()):
        return folder
    wraps = re.sub(r"\s*\(\d+\)$", "", stem).casefold() == inner[0].name.casefold()
    return inner[0] if wraps else folder
