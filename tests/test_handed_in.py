"""What students really hand in: every kind of mess with what is to be found in it, and nothing that raises."""

from __future__ import annotations

import ast
import io
import json
import os
import sys
import unicodedata
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.grading import handed_in, sheets, unpack
from course_lib.grading.handed_in import find_papers, read_sheet, strays, submissions, without_spare_stubs

ROOT = Path(__file__).resolve().parents[1]
NAME = "04_queries_keys_values.ipynb"
posix_only = pytest.mark.skipif(os.name != "posix", reason="needs links and odd file names")


def notebook(*cells: Any, **more: Any) -> dict[str, Any]:
    """A notebook with these code cells; a cell that is no string stands as it is."""
    made = [{"cell_type": "code", "metadata": {}, "source": c} if isinstance(c, str) else c for c in cells]
    return {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5} | more


def work(unit: str = "04", mark: str = "") -> str:
    """A notebook of a unit, as text; `mark` tells one from another."""
    return json.dumps(notebook(f"mark = {mark!r}", f'check(attention, "{unit}.4")', f'check(softmax, "{unit}.3")'))


def lay(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def zipped(files: dict[str, str | bytes], **attributes: int) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = attributes.get("mode", 0o644) << 16
            file.writestr(info, content)
    return held.getvalue()


def found(folder: Path, *units: str) -> dict[tuple[str, str], str | None]:
    """What was found, as {(student, unit): path below the folder}."""
    papers = find_papers(folder, units or ("04",))
    return {(p.student, p.unit): str(p.path.relative_to(folder)) if p.path else None for p in papers}


# --- layouts ------------------------------------------------------------------------------------------------

LAYOUTS: dict[str, tuple[dict[str, str | bytes], dict[tuple[str, str], str | None]]] = {
    "contract": (
        {f"bo/{NAME}": "", f"al/{NAME}": "", "al/06_multi_head.ipynb": ""},
        {
            ("al", "04"): f"al/{NAME}",
            ("al", "06"): "al/06_multi_head.ipynb",
            ("bo", "04"): f"bo/{NAME}",
            ("bo", "06"): None,
        },
    ),
    "nbgrader": ({f"al/unit 4/{NAME}": ""}, {("al", "04"): f"al/unit 4/{NAME}"}),
    "parent of nbgrader's": (
        {f"submitted/al/ps1/{NAME}": "", f"source/ps1/{NAME}": "", "gradebook.db": ""},
        {("al", "04"): f"submitted/al/ps1/{NAME}"},
    ),
    "a student called submitted": ({f"submitted/{NAME}": ""}, {("submitted", "04"): f"submitted/{NAME}"}),
    "moodle": (
        {
            f"Ann Lee_123_assignsubmission_file_/{NAME}": "",
            f"Ann Lee_456_assignsubmission_file/{NAME}": "",
            "Ann Lee_123_assignsubmission_onlinetext_/onlinetext.html": "",
        },
        {
            ("Ann Lee_123", "04"): f"Ann Lee_123_assignsubmission_file_/{NAME}",
            ("Ann Lee_456", "04"): f"Ann Lee_456_assignsubmission_file/{NAME}",
        },
    ),
    "moodle, flat": (
        {f"Ann Lee_123_assignsubmission_file_{NAME}": ""},
        {("Ann Lee_123", "04"): f"Ann Lee_123_assignsubmission_file_{NAME}"},
    ),
    "canvas": (
        {f"leeann_12_9001_{NAME}": "", f"leeann_LATE_13_9002_{NAME}": "", "doejo_14_9003_essay.pdf": ""},
        {
            ("doejo_14", "04"): None,
            ("leeann_12", "04"): f"leeann_12_9001_{NAME}",
            ("leeann_13", "04"): f"leeann_LATE_13_9002_{NAME}",
        },
    ),
    "renamed, the content tells": (
        {
            "a/x.ipynb": work(),
            "b/hw2.ipynb": work(),
            f"c/{NAME[:-6]} (1).ipynb": work(),
            "d/Kopie von 07.ipynb": work(),
        },
        {
            ("a", "04"): "a/x.ipynb",
            ("b", "04"): "b/hw2.ipynb",
            ("c", "04"): f"c/{NAME[:-6]} (1).ipynb",
            ("d", "04"): "d/Kopie von 07.ipynb",
        },
    ),
    "renamed, the name tells": (
        {
            "a/04.IPYNB": "{",
            "b/hw4.ipynb": "",
            f"c/Kopie von {NAME}": "",
            "d/4 final.ipynb": "{}",
            "e/Untitled4.ipynb": "",
        },
        {
            ("a", "04"): "a/04.IPYNB",
            ("b", "04"): "b/hw4.ipynb",
            ("c", "04"): f"c/Kopie von {NAME}",
            ("d", "04"): "d/4 final.ipynb",
            ("e", "04"): None,
        },
    ),
    "saved by a browser": ({f"a/{NAME}.txt": ""}, {("a", "04"): f"a/{NAME}.txt"}),
    "truncated, renamed": ({"a/new.ipynb": work()[:-9]}, {("a", "04"): "a/new.ipynb"}),
    "several, one exact": (
        {f"a/{NAME}": work(), f"a/{NAME[:-6]} (2).ipynb": work(), "a/z.ipynb": work()},
        {("a", "04"): f"a/{NAME}"},
    ),
    "several, none exact": (
        {"a/04 (9).ipynb": work(), "a/04 (10).ipynb": work(), "a/04 (1).ipynb": work()},
        {("a", "04"): "a/04 (10).ipynb"},
    ),
    "the exact one is another notebook": (
        {f"a/{NAME}": json.dumps(notebook("1")), f"a/{NAME[:-6]}-1.ipynb": work()},
        {("a", "04"): f"a/{NAME[:-6]}-1.ipynb"},
    ),
    "the whole course": (
        {f"a/{f}/{NAME}": work() for f in ("exercises", "notebooks", "solutions")},
        {("a", "04"): f"a/exercises/{NAME}"},
    ),
    "a number decides last": (
        {"a/04_new.ipynb": "{}", "a/zz.ipynb": work(), "a/Untitled4.ipynb": "{}"},
        {("a", "04"): "a/zz.ipynb"},
    ),
    "hidden": (
        {
            "a/.ipynb_checkpoints/04-checkpoint.ipynb": work(),
            f"__MACOSX/a/._{NAME}": "",
            f"a/._{NAME}": "",
            ".git/x": "",
            f"a/deep/.venv/{NAME}": work(),
        },
        {("a", "04"): None},
    ),
    "only other files": ({"a/report.pdf": "", "a/04.py": ""}, {("a", "04"): None}),
    "natural names": (
        {f"Zoë Łuk/{NAME}": "", f"李 雷/{NAME}": ""},
        {("Zoë Łuk", "04"): f"Zoë Łuk/{NAME}", ("李 雷", "04"): f"李 雷/{NAME}"},
    ),
}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_every_layout_is_read(tmp_path: Path, kind: str) -> None:
    files, expected = LAYOUTS[kind]
    got = found(lay(tmp_path, files), *sorted({unit for _, unit in expected}))
    assert got == expected
    assert list(got) == sorted(got)


@pytest.mark.parametrize("kind", LAYOUTS)
def test_every_layout_is_read_from_an_archive_too(tmp_path: Path, kind: str) -> None:
    files, expected = LAYOUTS[kind]
    archive = tmp_path / "download.zip"
    archive.write_bytes(zipped(files))
    with submissions(archive) as folder:
        assert found(folder, *sorted({unit for _, unit in expected})) == expected
    assert not folder.exists()


def test_a_student_without_a_file_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "al").mkdir()
    (tmp_path / "bo").mkdir()
    lay(tmp_path, {f"bo/{NAME}": work(), "bo/hw.zip": zipped({})})
    with submissions(tmp_path) as folder:
        assert found(folder) == {("al", "04"): None, ("bo", "04"): f"bo/{NAME}"}
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        file.mkdir("cy/")
    (tmp_path / "c.zip").write_bytes(held.getvalue())
    with submissions(tmp_path / "c.zip") as folder:
        assert found(folder) == {("cy", "04"): None}


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_name_keeps_its_own_spelling(tmp_path: Path, form: Any) -> None:
    student = unicodedata.normalize(form, "Jürgen Müller")
    (paper,) = find_papers(lay(tmp_path, {f"{student}/{NAME}": ""}), ["04"])
    assert paper.student == student


@posix_only
def test_a_name_that_is_no_text_can_be_written_down(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/J\xfcrgen"
    os.mkdir(folder)
    with open(folder + b"/\xff\xfe04.ipynb", "wb"):
        pass
    (paper,) = find_papers(tmp_path, ["04"])
    assert paper.student == "Jürgen"
    assert " ".join(paper.notes).encode()


def notes(folder: Path, unit: str = "04") -> str:
    (paper,) = find_papers(folder, [unit])
    return "; ".join(paper.notes)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({f"a/{NAME}": work()}, ""),
        ({"a/hw4.ipynb": work()}, "found under the name hw4.ipynb"),
        ({f"a/{NAME}": work(), "a/b.ipynb": work(), "a/c.ipynb": work()}, f"{NAME} was taken, not b.ipynb, c.ipynb"),
        ({"a/report.pdf": ""}, "no notebook was found for this unit; what was handed in instead: report.pdf"),
        ({"a/thing.ipynb": "{}"}, "thing.ipynb could not be told to belong to any unit"),
        ({"a/hw.rar": "Rar!"}, "hw.rar is an archive of a kind that is not read"),
        ({"a/hw.zip": "PK"}, "hw.zip could not be unpacked"),
        ({"a/homework 7.zip": "PK"}, "homework 7.zip could not be unpacked"),
        ({f"x_LATE_1_2_{NAME}": work()}, "marked as late by the learning platform"),
        ({"a/06_multi_head.ipynb": work("06"), "a/a.pdf": ""}, "no notebook was found for this unit"),
    ],
)
def test_notes_say_what_was_taken_and_what_was_not(tmp_path: Path, files: Any, words: str) -> None:
    told = notes(lay(tmp_path, files))
    assert words in told if words else not told
    assert ("instead" in told) == ("instead" in words)


def test_a_late_mark_is_not_part_of_the_name(tmp_path: Path) -> None:
    lay(tmp_path, {f"x_LATE_1_2_{NAME}": "", "x_1_3_06_multi_head.ipynb": ""})
    assert {p.student for p in find_papers(tmp_path, ["04", "06"])} == {"x_1"}


@posix_only
def test_links_lead_nowhere_outside_the_students_folder(tmp_path: Path) -> None:
    folder = lay(tmp_path / "all", {"bo/own.ipynb": work(), "bo/deep/x": ""})
    lay(tmp_path, {f"secret/{NAME}": work(mark="secret")})
    for student, target in {
        "al": tmp_path / "secret" / NAME,
        "cy": folder / "bo" / "own.ipynb",
        "di": Path("../../secret") / NAME,
        "em": Path(NAME),
        "fo": Path("/proc/self/environ"),
    }.items():
        (folder / student).mkdir()
        (folder / student / NAME).symlink_to(target)
    (folder / "bo" / NAME).symlink_to("own.ipynb")
    (folder / "gi").symlink_to(tmp_path / "secret")
    (folder / "hu").symlink_to(folder / "bo")
    (folder / "ia").mkdir()
    (folder / "ia" / "linked").symlink_to(tmp_path / "secret")
    papers = {p.student: p for p in find_papers(folder, ["04"])}
    assert {s for s, p in papers.items() if p.path} == {"bo"}
    assert all("points outside the folder" in " ".join(p.notes) for s, p in papers.items() if s != "bo")
    lay(folder, {"zz/hw.zip": zipped({NAME: work()})})
    with submissions(folder) as copy:
        again = {p.student: p for p in find_papers(copy, ["04"])}
        assert {s for s, p in again.items() if p.path} == {"bo", "zz"}
        assert {s: p.notes for s, p in again.items() if s not in ("bo", "zz")} == {
            s: p.notes for s, p in papers.items() if s != "bo"
        }


def test_an_archive_that_may_not_be_read_costs_only_its_student(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(tmp_path, {"al/hw.zip": zipped({NAME: work()}), f"bo/{NAME}": work()})

    def refuse(*words: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os.path, "getsize", refuse)
    with submissions(tmp_path) as folder:
        assert found(folder) == {("al", "04"): None, ("bo", "04"): f"bo/{NAME}"}


@posix_only
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / NAME)
    assert "no plain file" in notes(tmp_path)
    assert "no plain file" in read_sheet(tmp_path / "a" / NAME).notes[0]


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    lay(tmp_path, {f"a/{NAME}": "", "b/x.ipynb": work()})
    with open(tmp_path / "a" / NAME, "r+b") as file:
        file.truncate(20_000_001)
    one, other = find_papers(tmp_path, ["04"])
    assert one.path is None and "larger than 20 MB" in one.notes[1]
    assert other.path is not None
    assert "larger than 20 MB" in read_sheet(tmp_path / "a" / NAME).notes[0]


def test_folders_are_followed_only_so_deep(tmp_path: Path) -> None:
    deep = "/".join("d" * 12)
    lay(tmp_path, {f"a/{deep}/{NAME}": work(), f"b/{deep}/d/{NAME}": work()})
    assert found(tmp_path) == {("a", "04"): f"a/{deep}/{NAME}", ("b", "04"): None}


def test_notebooks_beside_the_folders_are_nobodys(tmp_path: Path) -> None:
    lay(tmp_path, {NAME: work(), f"a/{NAME}": work(), "readme.txt": ""})
    assert found(tmp_path) == {("a", "04"): f"a/{NAME}"}
    assert strays(tmp_path) == [tmp_path / NAME]


def test_the_instructor_is_told_what_is_wrong_with_the_path(tmp_path: Path) -> None:
    def enter(path: Path) -> None:
        with submissions(path):
            pass

    lay(tmp_path, {"x.txt": "hello", f"alone/{NAME}": "", "empty.zip": zipped({})})
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ValueError, match="There is nothing at"):
        enter(tmp_path / "absent")
    with pytest.raises(ValueError, match="is empty"):
        enter(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"neither a folder nor a \.zip"):
        enter(tmp_path / "x.txt")
    with pytest.raises(ValueError, match="There is nothing in"):
        enter(tmp_path / "empty.zip")
    with pytest.raises(ValueError, match="There are no students"):
        find_papers(tmp_path / "alone", ["04"])


# --- archives -----------------------------------------------------------------------------------------------


def unpacked(tmp_path: Path, content: bytes, name: str = "download.zip") -> tuple[dict[str, bytes], Path]:
    """All files that an archive leaves in its folder."""
    archive = tmp_path / name
    archive.write_bytes(content)
    with submissions(archive) as folder:
        files = (p for p in sorted(folder.rglob("*")) if p.is_file())
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}, folder


@pytest.mark.parametrize(
    "name", ["../evil.ipynb", "a/../../evil.ipynb", "/tmp/evil.ipynb", "..\\evil.ipynb", "C:\\e.ipynb"]
)
def test_no_entry_leaves_its_folder(tmp_path: Path, name: str) -> None:
    files, folder = unpacked(tmp_path, zipped({name: work(), f"a/{NAME}": work()}))
    assert list(files) == [f"a/{NAME}"]
    assert not list(folder.parent.glob("*evil*"))


@posix_only
def test_links_in_an_archive_are_not_made(tmp_path: Path) -> None:
    (tmp_path / "d.zip").write_bytes(zipped({f"a/{NAME}": "/etc/passwd", "a/x": "../b"}, mode=0o120777))
    with submissions(tmp_path / "d.zip") as folder:
        (paper,) = find_papers(folder, ["04"])
        assert paper.path is None and "link" in paper.notes[1]
        assert not any(p.exists() for p in (folder / "a").iterdir())


@posix_only
def test_nothing_is_written_through_a_link_of_the_same_archive(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        info = zipfile.ZipInfo("a/04.ipynb")
        info.external_attr = 0o120777 << 16
        file.writestr(info, str(tmp_path / "victim"))
        file.writestr("a/04.ipynb/x.ipynb", "evil")
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("a/04.ipynb", "evil")
    unpacked(tmp_path, content.getvalue())
    assert {p.name for p in tmp_path.iterdir()} == {"download.zip"}


def test_a_notebook_that_swells_is_cut_and_then_refused(tmp_path: Path) -> None:
    content = zipped({f"a/{NAME}": b"0" * 300_000_000, "a/junk.bin": b"0" * 1_000_000, f"b/{NAME}": work()})
    (tmp_path / "d.zip").write_bytes(content)
    with submissions(tmp_path / "d.zip") as folder:
        assert sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) < 20_010_000
        one, other = find_papers(folder, ["04"])
        assert "larger than 20 MB" in one.notes[1] and other.path is not None


def test_an_archive_out_of_proportion_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "CLASS", unpack.Room(entries=10, size=1_000, inner=100))
    with pytest.raises(ValueError, match="more than 10 files"):
        unpacked(tmp_path, zipped({f"{i}/a.ipynb": "" for i in range(11)}))
    with pytest.raises(ValueError, match="unpack it yourself"):
        unpacked(tmp_path, zipped({"a/a.ipynb": b"0" * 1_001}))
    with pytest.raises(ValueError, match="too many files"):
        unpacked(tmp_path, zipped({f"{i:050}/a.ipynb": "" for i in range(100)}))


def test_a_students_bomb_costs_only_its_student(tmp_path: Path) -> None:
    many = zipped({f"{i}.ipynb": b"" for i in range(3_001)})
    large = zipped({f"{i}.ipynb": b"0" * 11_000_000 for i in range(10)})
    lay(tmp_path, {"al/many.zip": many, "bo/large.zip": large, "cy/good.zip": zipped({NAME: work()})})
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    with submissions(tmp_path) as folder:
        papers = {p.student: p for p in find_papers(folder, ["04"])}
        assert [s for s, p in papers.items() if p.path] == ["cy"]
        assert "many.zip could not be unpacked" in papers["al"].notes[1]
        assert "large.zip could not be unpacked" in papers["bo"].notes[1]
        assert sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) < 1_000_000
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}


@pytest.mark.parametrize(
    ("name", "student"),
    [
        ("al/hw.zip", "al"),
        ("al.zip", "al"),
        ("leeann_12_900_hw.zip", "leeann_12"),
        ("A B_7_assignsubmission_file_/h.ZIP", "A B_7"),
    ],
)
@pytest.mark.parametrize("outer", [True, False])
def test_a_students_archive_is_opened(tmp_path: Path, name: str, student: str, outer: bool) -> None:
    inner = {name: zipped({f"my work/{NAME}": work(mark="mine")})}
    where = lay(tmp_path, {"all.zip": zipped(inner)}) / "all.zip" if outer else lay(tmp_path, inner)
    with submissions(where) as folder:
        (paper,) = find_papers(folder, ["04"])
        assert paper.student == student and paper.path is not None
        assert "mine" in read_sheet(paper.path).cells[0]


def test_an_archive_in_an_archive_in_an_archive_is_not_opened(tmp_path: Path) -> None:
    inner = zipped({NAME: work()})
    with submissions(lay(tmp_path, {"al/a.zip": zipped({"b.zip": inner})})) as folder:
        assert "b.zip could not be unpacked" in notes(folder)


def test_many_archives_of_one_student_are_not_opened(tmp_path: Path) -> None:
    with submissions(lay(tmp_path, {f"al/{i:02}.zip": zipped({f"{i}.txt": ""}) for i in range(25)})) as folder:
        assert sum(p.is_dir() for p in (folder / "al").iterdir()) == 20


def test_a_damaged_entry_costs_only_itself(tmp_path: Path) -> None:
    content = bytearray(zipped({f"al/{NAME}": os.urandom(500), f"bo/{NAME}": work()}))
    content[100:120] = bytes(20)
    (tmp_path / "d.zip").write_bytes(content)
    with submissions(tmp_path / "d.zip") as folder:
        one, other = find_papers(folder, ["04"])
        assert one.path and "cannot be read" in read_sheet(one.path).notes[0]
        assert other.path and read_sheet(other.path).cells


def test_a_locked_archive_is_refused(tmp_path: Path) -> None:
    content = bytearray(zipped({f"al/{NAME}": work()}))
    for at in (content.index(b"PK\3\4") + 6, content.index(b"PK\1\2") + 8):
        content[at] |= 1
    with pytest.raises(ValueError, match="password"):
        unpacked(tmp_path, bytes(content))
    with submissions(lay(tmp_path / "x", {"al/hw.zip": bytes(content)})) as folder:
        assert "locked" in notes(folder)


def test_names_in_utf8_without_its_flag_and_with_backslashes(tmp_path: Path) -> None:
    content = zipped({f"Zoë\\{NAME}": work()})
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        place = content.index(mark) + at
        content = content[:place] + b"\0\0" + content[place + 2 :]
    assert list(unpacked(tmp_path, content)[0]) == [f"Zoë/{NAME}"]


@pytest.mark.parametrize("name", ["class.zip", "class (1).zip", "CLASS.zip"])
def test_the_folder_around_everything_is_no_student(tmp_path: Path, name: str) -> None:
    files, _ = unpacked(tmp_path, zipped({f"class/al/{NAME}": "", f"class/bo/{NAME}": ""}), name)
    assert set(files) == {f"al/{NAME}", f"bo/{NAME}"}
    files, _ = unpacked(tmp_path, zipped({f"class/{NAME}": ""}), name)
    assert set(files) == {f"class/{NAME}"}


def test_a_plain_folder_is_used_as_it_is(tmp_path: Path) -> None:
    with submissions(lay(tmp_path, {f"al/{NAME}": ""})) as folder:
        assert folder == tmp_path


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 255))
def test_no_archive_raises(tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int, byte: int) -> None:
    folder = tmp_path_factory.mktemp("zips")
    content = bytearray(zipped({f"x/{NAME}": work(), "y/z.ipynb": "{}"}))
    content[at % len(content)] = byte
    lay(folder, {"al/a.zip": bytes(content), "bo/b.zip": junk, "cy/c.zip": bytes(content) + junk})
    with submissions(folder) as inner:
        for paper in find_papers(inner, ["04"]):
            assert paper.path is None or read_sheet(paper.path)


# --- sheets -------------------------------------------------------------------------------------------------


def sheet(tmp_path: Path, content: Any) -> Any:
    path = tmp_path / NAME
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what a student's strings look like is no news for the instructor
        made = read_sheet(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for cell in made.cells:
            compile(ast.parse(cell), "cell", "exec")
            cell.encode()
    "\n".join(made.notes).encode()  # raises where half a letter is left
    return made


GOOD = "def f():\n    return 1\n"
WHOLE = json.dumps(notebook("naïve = 'ü'"), ensure_ascii=False)
THREE = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["a = 1\n", "b = 2"], "language": "python"}]}]}
SHEETS: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "plain": (notebook(GOOD, "x = 1"), (GOOD, "x = 1"), ""),
    "a list of lines": (notebook({"cell_type": "code", "source": ["a = 1\n", "b = 2"]}), ("a = 1\nb = 2",), ""),
    "version 3": (THREE | {"nbformat": 3}, ("a = 1\nb = 2",), ""),
    "two worksheets": ({"worksheets": THREE["worksheets"] * 2 + [3]}, ("a = 1\nb = 2",) * 2, ""),
    "Windows line ends": (notebook("if 1:\r\n    a = 2\r\nb = 1"), ("if 1:\n    a = 2\nb = 1",), ""),
    "old Mac line ends": (notebook("a = 2\rb = 1"), ("a = 2\nb = 1",), ""),
    "byte order mark": (b"\xef\xbb\xbf" + WHOLE.encode(), ("naïve = 'ü'",), ""),
    "UTF-16": (WHOLE.encode("utf-16"), ("naïve = 'ü'",), ""),
    "UTF-16 without a mark": (WHOLE.encode("utf-16-le"), ("naïve = 'ü'",), ""),
    "Latin letters": (WHOLE.encode("latin-1"), ("naïve = 'ü'",), "not in UTF-8"),
    "a mark in a cell": (notebook("\ufeffa = 1"), ("a = 1",), ""),
    "empty": (b"", (), "cannot be read: it is empty"),
    "blank": (b" \n\0", (), "cannot be read: it is empty"),
    "truncated": (WHOLE.encode()[:-20], (), "cannot be read: its JSON breaks off or is damaged in line 1"),
    "a web page": (b"<!DOCTYPE html><p>", (), "it is a web page"),
    "a picture": (b"\x89PNG\r\n\x1a\n\0\0", (), "cannot be read"),
    "other JSON": ({"a": 1}, (), "no notebook"),
    "a number": (b"3", (), "no notebook"),
    "cells that are none": ({"cells": {"a": 1}}, (), "no notebook"),
    "no cells": (notebook(), (), "no code"),
    "cells that are no dicts": (notebook(GOOD, 3, None, [], "a = 1"), (GOOD, "a = 1"), "cell 2 is no cell"),
    "a source that is no text": (notebook({"cell_type": "code", "source": [1, {}]}, "a = 1"), ("", "a = 1"), "no text"),
    "a cell without source": (notebook({"cell_type": "code"}, "a = 1"), ("", "a = 1"), "no text"),
    "an answer in a text cell": (
        notebook({"cell_type": "raw", "metadata": {"nbgrader": {"grade_id": "answer-04-2"}}, "source": "x"}, "a = 1"),
        ("a = 1",),
        "cell 1 holds an answer",
    ),
    "odd metadata": (notebook({"cell_type": "markdown", "metadata": 3}, {"cell_type": []}, "a = 1"), ("a = 1",), ""),
    "deep JSON": (b"[" * 100_000, (), "nested too deeply"),
    "wide JSON": (b'{"cells": [' + b"{}," * 1_000_001 + b"{}]}", (), "too many objects"),
    "a long number": (b'{"cells": ' + b"9" * 10_000 + b"}", (), "cannot be read"),
    "half a letter": (
        b'{"cells": [{"cell_type": "code", "source": "a = \'\\ud800\'"}]}',
        ("",),
        "code cell 1 does not",
    ),
    "a line magic": (
        notebook("%matplotlib inline\na = 1"),
        ("pass\na = 1",),
        "cell 1 has commands for IPython, which are left out: line 1 (%matplotlib)",
    ),
    "a command": (notebook("a = 1\n!pip install x \\\n  y 'z\nb = 1"), ("a = 1\npass\n\nb = 1",), "line 2 (!pip)"),
    "assigned commands": (notebook("x = !ls\ny, z = %who\na = 1"), ("pass\npass\na = 1",), "line 1 (x), line 2 (y,)"),
    "help": (notebook("np.dot?\n?len\nlen??\na = 1"), ("pass\npass\npass\na = 1",), "line 3 (len??)"),
    "in a block": (
        notebook("if 1:\n    %time f()\n\t\nfor i in 'a':\n  !ls"),
        ("if 1:\n    pass\n\t\nfor i in 'a':\n  pass",),
        "line 5 (!ls)",
    ),
    "pip without a mark": (notebook("pip install torch\na = 1"), ("pass\na = 1",), "line 1 (pip)"),
    "magic beside true percents": (
        notebook("%time\nx = (7\n% 4)\ns = '''\n%d\n'''"),
        ("pass\nx = (7\n% 4)\ns = '''\n%d\n'''",),
        "line 1 (%time)",
    ),
    "magic beside strings": (
        notebook("%m\nx = '''it's\n!a''' + \"'''\"  # don't (\n!ls"),
        ("pass\nx = '''it's\n!a''' + \"'''\"  # don't (\npass",),
        "line 1 (%m), line 4 (!ls)",
    ),
    "no magic, only percents": (notebook("x = (7\n% 4)"), ("x = (7\n% 4)",), ""),
    "a timed cell": (notebook("\n%%time\ndef f(): pass"), ("\n\ndef f(): pass",), ""),
    "a captured cell": (notebook("%%capture out\n!ls\na = 1"), ("\npass\na = 1",), "line 2 (!ls)"),
    "a shell cell": (notebook("%%bash\nls", "a = 1"), ("", "a = 1"), "code cell 1 begins with %%bash: left out"),
    "an indented cell": (notebook("  a = 1\n  b = 2"), ("a = 1\nb = 2",), ""),
    "prose": (
        notebook("a = 1", "The answer is\nfour?", "b = 1"),
        ("a = 1", "", "b = 1"),
        "code cell 2 does not compile: line 1: invalid syntax, left out",
    ),
    "unfinished": (notebook("a = 1\ndef f(:\n"), ("",), "code cell 1 does not compile: line 2: "),
    "return outside": (notebook("return 3"), ("",), "code cell 1 does not compile: line 1: 'return' outside function"),
    "empty cells count": (notebook("", " \n", "x = ("), ("", "", ""), "code cell 3 does not compile: line 1: "),
    "numbers after a magic": (notebook("%%time\na = 1\nb = = 2"), ("",), "line 3: "),
    "a zero byte": (notebook("a = 1\0"), ("",), "code cell 1 does not compile"),
    "an odd escape": (notebook("a = '\\d'\nb = a is 'x'"), ("a = '\\d'\nb = a is 'x'",), ""),
    "a long cell": (notebook("#" * 200_001), ("",), "longer than 200,000 characters"),
    "too much code": (
        notebook(*["#" * 199_999] * 6),
        ("#" * 199_999,) * 5 + ("",),
        "code cell 6 left out: the notebook",
    ),
    "too many cells": (notebook(*["1"] * 2_001), ("1",) * 2_000, "more than 2,000 code cells"),
}


@pytest.mark.parametrize("kind", SHEETS)
def test_every_state_of_a_notebook_is_read(tmp_path: Path, kind: str) -> None:
    content, cells, words = SHEETS[kind]
    made = sheet(tmp_path, content)
    assert made.cells == cells
    told = "; ".join(made.notes)
    assert words in told if words else not told


def test_a_file_that_is_not_there_or_not_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot be read" in read_sheet(tmp_path / "absent").notes[0]
    assert "no plain file" in read_sheet(tmp_path).notes[0]
    lay(tmp_path, {"a/x.ipynb": work()})

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert "cannot be read: Permission denied" in read_sheet(tmp_path / "a/x.ipynb").notes[0]
    assert "could not be told" in notes(tmp_path)


N = 199_000
WILD: dict[str, Callable[[], str]] = {
    "brackets": lambda: "(" * N,
    "closed brackets": lambda: "[" * 90 + "]" * 90,
    "signs": lambda: "-" * N + "1",
    "not": lambda: "not " * (N // 4) + "1",
    "attributes": lambda: "a" + ".b" * (N // 2),
    "calls": lambda: "a" + "()" * (N // 2),
    "sums": lambda: "1" + "+1" * 1_000,
    "lambdas": lambda: "lambda:" * 1_000 + "1",
    "elifs": lambda: "if x:\n pass\n" + "elif x:\n pass\n" * 1_000,
    "dotted import": lambda: "import a" + ".a" * (N // 2),
    "dotted import in lines": lambda: "from a" + ".\\\na" * (N // 4) + " import b",
    "finally": lambda: "".join(f"{' ' * i}try:\n{' ' * i} a\n{' ' * i}finally:\n" for i in range(20)) + " " * 20 + "b",
    "many ways out": lambda: "def f():\n try:\n" + "  if a: return\n" * 6_000 + " finally:\n" + "  b()\n" * 16_000,
    "a long number": lambda: "x = " + "9" * 5_000,
}


@pytest.mark.parametrize("kind", WILD)
def test_what_would_choke_python_is_left_out(tmp_path: Path, kind: str) -> None:
    made = sheet(tmp_path, notebook(WILD[kind](), "a = 1"))
    assert made.cells == ("", "a = 1")
    assert len(made.notes) == 1 and len(made.notes[0]) < 200


def test_brackets_cannot_hide_behind_a_command(tmp_path: Path) -> None:
    source = "ls -" + "(" * 190 + "x" + ")" * 190
    assert "brackets" in sheets._fault(source)
    assert "brackets" in sheets._fault('x = "a""" + ' + "[" * 90 + "]" * 90)
    assert sheet(tmp_path, notebook(source)).cells == ("pass",)


def test_long_but_honest_code_is_kept(tmp_path: Path) -> None:
    data = "x = [" + "0.25, " * 20_000 + "]"
    tidy = "def f():\n    try:\n        return g(" + "h(" * 20 + ")" * 20 + ")\n    finally:\n        close()\n" * 1
    assert sheet(tmp_path, notebook(data, tidy, "'''" + "(" * 500 + "'''  # " + "[" * 500)).notes == ()


@given(st.binary(max_size=400))
def test_random_bytes_never_raise(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    sheet(tmp_path_factory.getbasetemp(), data)


KEYS = ("cells", "worksheets", "source", "input", "cell_type", "metadata", "nbgrader", "grade_id")
any_json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(any_json)
def test_random_json_never_raises(tmp_path_factory: pytest.TempPathFactory, whole: Any) -> None:
    sheet(tmp_path_factory.getbasetemp(), whole)


PIECES = [
    "a = 1",
    "%m",
    "!x",
    "(",
    ")",
    '"',
    "'''",
    '"""',
    "\\",
    "\n",
    "#",
    " ",
    "?",
    "é",
    "\0",
    "\x0c",
    "if 1:",
    "pip install x",
    "%%time",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=40))
def test_random_cells_never_raise_and_keep_their_lines(tmp_path_factory: pytest.TempPathFactory, source: str) -> None:
    made = sheet(tmp_path_factory.getbasetemp(), notebook(source))
    plain = source.replace("\r\n", "\n").replace("\r", "\n")
    assert not made.cells[0] or made.cells[0].count("\n") == plain.count("\n")
    pieces = "".join(statement.text for statement in sheets._statements(plain, commands=True))
    assert pieces == plain


@given(st.lists(st.sampled_from([*PIECES, "x", "f(", "=", "+", "'", "[", "]", "{", "}", "def f():\n "]), max_size=14))
def test_a_cell_that_python_takes_is_kept_as_it_is(tmp_path_factory: pytest.TempPathFactory, pieces: list[str]) -> None:
    source = "".join(pieces)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "cell", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return
    if not source.lstrip().startswith("%%") and source.strip():
        assert sheet(tmp_path_factory.getbasetemp(), notebook(source)).cells == (source,)


def test_the_notebooks_of_the_course_are_read_whole() -> None:
    for path in sorted((ROOT / "exercises").glob("*.ipynb")) + sorted((ROOT / "solutions").glob("*.ipynb")):
        raw = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
        made = read_sheet(path)
        assert made.cells == tuple("".join(c["source"]) for c in raw)
        assert made.notes == ()
        assert handed_in._unit_by_content(path) == path.name[:2]


# --- stubs --------------------------------------------------------------------------------------------------

STUBS = {
    "f": 'def f(x):\n    """Say it."""\n    raise NotImplementedError',
    "G": "class G:\n    def h(self):\n        raise NotImplementedError",
}
ANSWER = "def f(x):\n    return x"


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([ANSWER, STUBS["f"]], [ANSWER, ""]),
        ([STUBS["f"], ANSWER], ["", ANSWER]),
        ([STUBS["f"], STUBS["f"]], [STUBS["f"], STUBS["f"]]),
        ([STUBS["f"], "f(2)"], [STUBS["f"], "f(2)"]),
        (["f = lambda x: x", STUBS["f"] + "  # todo\n"], ["f = lambda x: x", ""]),
        ([ANSWER, "def f(x):\n\n    '''Mine.'''\n    # hm\n    raise NotImplementedError"], [ANSWER, ""]),
        (
            [ANSWER, "def f(x):\n    raise NotImplementedError\nf(1)"],
            [ANSWER, "def f(x):\n    raise NotImplementedError\nf(1)"],
        ),
        ([ANSWER, STUBS["G"]], [ANSWER, STUBS["G"]]),
        (["class G: x = 1", ANSWER, STUBS["G"], STUBS["f"]], ["class G: x = 1", ANSWER, "", ""]),
        (["f: int", STUBS["f"]], ["f: int", STUBS["f"]]),
        (["def f(x:", STUBS["f"]], ["def f(x:", STUBS["f"]]),
        (["", "1"], ["", "1"]),
    ],
)
def test_a_spare_stub_does_not_overwrite_an_answer(cells: list[str], expected: list[str]) -> None:
    assert without_spare_stubs(cells, STUBS) == tuple(expected)


def test_the_stubs_of_a_unit_are_those_of_its_notebook() -> None:
    stubs = handed_in.stub_cells("04")
    cells = read_sheet(ROOT / "exercises" / NAME).cells
    assert len(stubs) == 8 and set(stubs.values()) <= set(cells)
    solved = read_sheet(ROOT / "solutions" / NAME).cells
    assert without_spare_stubs([*solved, *cells], stubs) == (
        *solved,
        *("" if c in stubs.values() else c for c in cells),
    )


def test_reading_needs_no_torch() -> None:
    import subprocess

    code = "import sys; from course_lib.grading import handed_in; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["False"], done.stderr
