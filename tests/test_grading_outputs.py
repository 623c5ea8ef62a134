"""Tables, adjustments, exports and moves of a graded class, and the files that hold them."""

from __future__ import annotations

import csv
import io
import json
import os
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from graded_class import UNREADABLE, empty, entry, of_size, row, solved
from hypothesis import given
from hypothesis import strategies as st

from course_lib import cli, exercises
from course_lib.grading import outputs, report_command, standings
from course_lib.grading.outputs import Adjustment, Move, file_names, moved, moved_table, read_adjustments, write_outputs
from course_lib.grading.records import Entry

KEYS = ["student", "unit", "exercise", "points", "max", "status", "misconception", "message"]
FIRST = exercises.of_unit("04")[0]
FOUR = sum(e.points for e in exercises.of_unit("04"))
THREE = sum(e.points for e in exercises.of_unit("03"))
# What a folder may be called: anything but a slash and NUL, and not . or ..
folders = st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=40).filter(
    lambda n: n not in (".", "..")
)


def read(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_bytes().decode("utf-8"), newline="")))


def with_points(student: str, points: int, unit: str = "04") -> Entry:
    """One row with so many points of 20."""
    made = replace(row(student, FIRST), points=points, max=20, unit=unit, exercise=f"{unit}.1")
    return entry(student, unit, [made])


def grade(entries: list[Entry], *changes: tuple[str, str, str], student: str = "ada") -> tuple[dict[str, str], str]:
    """Points by unit and the total of one student after adjustments, as printed."""
    adjustments = [Adjustment(who, unit, change) for who, unit, change in changes]
    (found,) = [s for s in standings.standings(entries, adjustments) if s.student == student]
    return {u: standings.number(p) for u, p in found.units.items()}, standings.number(found.total)


# --- the two tables of the contract ------------------------------------------------------------------------


def test_grades_have_a_line_for_each_student_and_a_column_for_each_unit(tmp_path: Path) -> None:
    write_outputs(tmp_path, [solved("zoe"), empty("bob"), solved("ada", "03"), solved("ada"), empty("zoe", "03")])
    assert read(tmp_path / "grades.csv") == [
        ["student", "03", "04", "total", "max"],
        ["ada", str(THREE), str(FOUR), str(THREE + FOUR), str(THREE + FOUR)],
        ["bob", "0", "0", "0", str(THREE + FOUR)],
        ["zoe", "0", str(FOUR), str(FOUR), str(THREE + FOUR)],
    ]


def test_the_newest_entry_counts(tmp_path: Path) -> None:
    write_outputs(tmp_path, [solved("ada"), empty("ada")])
    assert read(tmp_path / "grades.csv")[1] == ["ada", "0", "0", str(FOUR)]
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == len(exercises.of_unit("04"))


def test_results_have_a_line_for_each_student_and_exercise(tmp_path: Path) -> None:
    entries = of_size(7, ("03", "04"))
    write_outputs(tmp_path, entries)
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    assert all(list(line) == KEYS for line in lines)
    wanted = sorted((r for e in entries for r in e.rows), key=lambda r: (r.student, r.exercise))
    assert lines == [{key: getattr(r, key) for key in KEYS} for r in wanted]


def test_no_students_at_all(tmp_path: Path) -> None:
    write_outputs(tmp_path / "deep" / "down", [])
    assert (tmp_path / "deep" / "down" / "grades.csv").read_text() == "student,total,max\n"
    assert (tmp_path / "deep" / "down" / "results.jsonl").read_text() == ""


@given(st.lists(folders, min_size=1, max_size=4, unique=True))
def test_names_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, students: list[str]) -> None:
    out = tmp_path_factory.mktemp("names")
    write_outputs(out, [solved(student) for student in students])
    assert [line[0] for line in read(out / "grades.csv")[1:]] == sorted(students)
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text(encoding="utf-8").split("\n") if line]
    assert {r["student"] for r in rows} == set(students)
    pages = [path for path in out.rglob("*") if path.suffix == ".html"]
    assert len(pages) == len(students) + 1
    assert {path.parent for path in pages} == {out, out / "feedback"}


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(b"jos\xe9")
    write_outputs(tmp_path, [solved(name), solved("jos\ufffd")])
    assert json.loads((tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()[0])["student"] == name
    assert len(list((tmp_path / "feedback").iterdir())) == 2


# --- file names --------------------------------------------------------------------------------------------


@given(st.lists(folders, max_size=8, unique=True))
def test_file_names_are_safe_and_different(students: list[str]) -> None:
    names = file_names(students)
    assert list(names) == students
    assert len({name.casefold() for name in names.values()}) == len(students)
    for name in names.values():
        assert name.endswith(".html")
        assert not set(name) & set('/\\:*?"<>|\0\n') and name[0] not in ". -" and len(name.encode()) < 255
        assert name.isprintable()


@pytest.mark.parametrize(
    "name", ["ada", "Ada Lovelace", "李小龙", "o'neil", "müller_jörg", "a.b@uni.edu", "نور", "x-1"]
)
def test_ordinary_names_are_kept(name: str) -> None:
    assert file_names([name]) == {name: f"{name}.html"}


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "..",
        ".hidden",
        "CON",
        "nul.txt",
        "a:b",
        "a\\b",
        "dot.",
        "-rf",
        "a\nb",
        "Ada\u202e",
        "e\u0301",
        "n" * 255,
    ],
)
def test_dangerous_names_get_a_stand_in(name: str) -> None:
    (file,) = file_names([name]).values()
    assert file != f"{name}.html" and "/" not in file and "~" in file and not file.startswith(".")


def test_names_that_some_systems_hold_for_one() -> None:
    names = file_names(["Anna", "anna", "straße", "STRASSE", "é", "e\u0301", "anna2"])
    assert names["anna2"] == "anna2.html"
    assert len({outputs._folded(name) for name in names.values()}) == 7
    assert all("~" in name for student, name in names.items() if student != "anna2")
    imitation = file_names(["Anna", "anna"])["anna"].removesuffix(".html")
    assert len(set(file_names(["Anna", "anna", imitation]).values())) == 3


# --- whole files -------------------------------------------------------------------------------------------


def test_students_who_vanished_lose_their_page_and_nothing_else_does(tmp_path: Path) -> None:
    write_outputs(tmp_path, [solved("ada"), solved("bob")])
    (tmp_path / "feedback" / "my notes.html").write_text("mine")
    (tmp_path / "feedback" / "list.txt").write_text("mine")
    (tmp_path / "feedback" / ".course-0123").write_text("half")
    (tmp_path / ".course-4567").write_text("half")
    write_outputs(tmp_path, [solved("ada")])
    assert sorted(path.name for path in (tmp_path / "feedback").iterdir()) == ["ada.html", "list.txt", "my notes.html"]
    assert not list(tmp_path.glob(".course-*"))


def test_a_file_is_whole_or_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_outputs(tmp_path, [solved("ada")])
    before = (tmp_path / "grades.csv").read_bytes()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_outputs(tmp_path, [empty("ada")])
    assert (tmp_path / "grades.csv").read_bytes() == before
    assert not list(tmp_path.rglob(".course-*"))


def test_the_same_again_touches_nothing(tmp_path: Path) -> None:
    entries = of_size(5)
    write_outputs(tmp_path, entries)
    files = {path: (path.stat().st_ino, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()}
    random.Random(3).shuffle(entries)
    write_outputs(tmp_path, entries)
    assert files == {path: (path.stat().st_ino, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()}


# --- adjustments -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "points"),
    [("+2", "19"), ("-3", "14"), ("-10%", "15.3"), ("+50%", "25.5"), ("=12", "12"), ("=0", "0"), ("-40", "0"),
     ("+0.5", "17.5"), ("-100%", "0"), ("-250%", "0"), ("-33.333%", "11.33"), ("+2.50", "19.5"), ("=16.10", "16.1")],
)  # fmt: skip
def test_a_change_of_a_unit(change: str, points: str) -> None:
    entries = [with_points("ada", 17), with_points("ada", 5, "05"), with_points("bob", 9)]
    units, total = grade(entries, ("ada", "04", change))
    assert units == {"04": points, "05": "5"}
    assert Decimal(total) == Decimal(points) + 5
    assert grade(entries, ("ada", "04", change), student="bob") == ({"04": "9", "05": "0"}, "9")


def test_changes_of_the_total_come_after_those_of_units() -> None:
    entries = [with_points("ada", 10), with_points("ada", 6, "05")]
    assert grade(entries, ("ada", "", "-50%"), ("ada", "04", "+4")) == ({"04": "14", "05": "6"}, "10")
    assert grade(entries, ("ada", "", "=7"), ("ada", "", "+1")) == ({"04": "10", "05": "6"}, "8")
    assert grade(entries, ("ada", "", "-99")) == ({"04": "10", "05": "6"}, "0")


def test_changes_apply_in_the_order_of_the_file() -> None:
    entries = [with_points("ada", 10)]
    assert grade(entries, ("ada", "04", "-50%"), ("ada", "04", "+2"))[1] == "7"
    assert grade(entries, ("ada", "04", "+2"), ("ada", "04", "-50%"))[1] == "6"


@given(
    st.lists(st.tuples(st.sampled_from(["", "04", "05"]), st.sampled_from("+-="), st.integers(0, 40), st.booleans()))
)
def test_nothing_falls_below_zero(changes: list[tuple[str, str, int, bool]]) -> None:
    entries = [with_points("ada", 17), with_points("ada", 3, "05")]
    adjustments = [Adjustment("ada", u, f"{s}{n}{'%' * (p and s != '=')}") for u, s, n, p in changes]
    (found,) = standings.standings(entries, adjustments)
    assert found.total >= 0 and min(found.units.values()) >= 0
    last = found.applied[-1] if found.applied and not found.applied[-1].adjustment.unit else None
    assert found.total == (last.after if last else sum(found.units.values()))
    assert not standings.number(found.total).endswith((".", ".0", "0.00"))


def test_reading_what_spreadsheets_make_of_it(tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    path.write_bytes(
        b'\xef\xbb\xbfStudent;UNIT;change;reason;extra\r\nada;4;-10%;"late; one day";x\r\n;;;;\r\nbob;;\'+2.5;;\r\n'
        + "zoë;04;−3;\r\n".encode()
    )
    assert read_adjustments(path) == [
        Adjustment("ada", "04", "-10%", "late; one day", 2),
        Adjustment("bob", "", "+2.5", "", 4),
        Adjustment("zoë", "04", "-3", "", 5),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"line 1 should be student,unit,change,reason; there is no student, unit, change, reason"),
        ("student,unit,change\nada,04,+2\n", "there is no reason"),
        ("student,unit,change,reason\nada,04,+2,ok\nada,04,2,late\n", r"line 3: a change is .*'2'.*drop a leading"),
        ("student,unit,change,reason\nada,04,+1e3,late\n", "line 2: a change is"),
        ("student,unit,change,reason\nada,04,,late\n", "line 2: a change is .* got ''"),
        ("student,unit,change,reason\nada,04,=17%,late\n", "line 2: a change is"),
        ("student,unit,change,reason\nada,04,--2,late\n", "line 2: a change is"),
        ("student,unit,change,reason\n,04,-2,late\n", "line 2: the student is missing"),
        ("student,unit,change,reason\nada,04,-2,late, sick\n", r"line 2: too many cells, \[' sick'\]"),
        ("student,unit,change,reason\nada,04,-1,5,late\n", "line 2: too many cells"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "late.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_adjustments(path)


def test_no_file_of_adjustments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"late\.csv cannot be read"):
        read_adjustments(tmp_path / "late.csv")


def test_unknown_students_and_units_stop_before_anything_is_written(tmp_path: Path) -> None:
    entries = [solved("ada_lovelace"), solved("bob")]
    with pytest.raises(ValueError, match=r"line 7 .*no student 'ada_lovelac'\. Near to it: ada_lovelace"):
        write_outputs(tmp_path, entries, adjustments=[Adjustment("ada_lovelac", "04", "+1", line=7)])
    with pytest.raises(ValueError, match="There are 2 students, none alike"):
        write_outputs(tmp_path, entries, adjustments=[Adjustment("xyzzy", "", "+1")])
    with pytest.raises(ValueError, match="no unit '05'; there are 04"):
        write_outputs(tmp_path, entries, adjustments=[Adjustment("bob", "05", "+1")])
    with pytest.raises(ValueError, match="a change is"):
        write_outputs(tmp_path, entries, adjustments=[Adjustment("bob", "04", "much")])
    assert not list(tmp_path.iterdir())


# --- exports -----------------------------------------------------------------------------------------------


def exported(tmp_path: Path, kind: str, entries: list[Entry], *adjustments: Adjustment) -> list[list[str]]:
    path = outputs.write_export(tmp_path, kind, entries, adjustments)
    assert path == tmp_path / f"{kind}.csv"
    return read(path)


def test_canvas(tmp_path: Path) -> None:
    entries = [with_points("ada", 17), with_points("bob", 20), with_points("bob", 3, "05")]
    lines = exported(tmp_path, "canvas", entries, Adjustment("ada", "04", "-10%"))
    assert lines == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "04 Queries, keys and values", "05 Scaling"],
        ["    Points Possible", "", "", "", "", "20", "20"],
        ["ada", "", "", "ada", "", "15.3", "0"],
        ["bob", "", "", "bob", "", "20", "3"],
    ]
    lines = exported(tmp_path, "canvas", entries, Adjustment("ada", "", "-2"))
    assert [line[-1] for line in lines] == ["Adjustment", "0", "-2", "0"]


def test_moodle(tmp_path: Path) -> None:
    wrong = next(e for e in exercises.of_unit("10") if e.id == "10.2")
    idea = next(m for m in wrong.misconceptions if "<bos>" in m.idea)
    failed = row("ada", wrong, "wrong", 1, idea.name, reason="<script>")
    late = Adjustment("ada", "10", "-1", "late & lazy")
    head, ada = exported(
        tmp_path, "moodle", [entry("ada", "10", [failed])], late, Adjustment("ada", "", "+0.5", "kind")
    )
    assert head == ["Username", "10 The encoder–decoder", "10 The encoder–decoder (feedback)", "Adjustment",
                    "Adjustment (feedback)"]  # fmt: skip
    assert ada[:2] == ["ada", str(failed.points - 1)] and ada[3:] == ["0.5", "kind"]
    assert ada[2].startswith(f"{failed.points - 1} of {wrong.points} points. 10.2: ")
    assert "&lt;bos&gt;" in ada[2] and "late &amp; lazy" in ada[2] and "<" not in ada[2] and "script" not in ada[2]
    assert exported(tmp_path, "moodle", [solved("a@b.edu"), solved("c@b.edu")])[0][0] == "Email address"
    assert exported(tmp_path, "moodle", [solved("a@b.edu"), solved("c")])[0][0] == "Username"


def test_nbgrader(tmp_path: Path) -> None:
    entries = [with_points("ada", 17), with_points("bob", 10), with_points("bob", 3, "05")]
    changes = [Adjustment("ada", "04", "-3"), Adjustment("bob", "04", "+2")]
    head, *lines = exported(tmp_path, "nbgrader", entries, *changes)
    assert ",".join(head) == (
        "assignment,duedate,timestamp,student_id,last_name,first_name,email,raw_score,late_submission_penalty,score,max_score"
    )
    assert [[line[0], line[3], *line[7:]] for line in lines] == [
        ["04_queries_keys_values", "ada", "17.0", "3.0", "14.0", "20.0"],
        ["04_queries_keys_values", "bob", "12.0", "0.0", "12.0", "20.0"],
        ["05_scaling", "ada", "0.0", "0.0", "0.0", "20.0"],
        ["05_scaling", "bob", "3.0", "0.0", "3.0", "20.0"],
    ]
    assert all(float(line[9]) == float(line[7]) - float(line[8]) for line in lines)


@pytest.mark.parametrize("kind", ["canvas", "moodle", "nbgrader"])
@pytest.mark.parametrize("name", ["=1+1", "+2", "-3", "@sum", "\tx", '=HYPERLINK("x","y")'])
def test_no_text_becomes_a_formula(tmp_path: Path, kind: str, name: str) -> None:
    late = Adjustment(name, "", "+1", "=cmd|' /C calc'!A0")
    for line in exported(tmp_path, kind, [solved(name)], late)[1:]:
        for cell in line:
            assert not cell.startswith(("=", "+", "-", "@", "\t")), cell
    assert f"'{name}" in [cell for line in read(tmp_path / f"{kind}.csv") for cell in line]


def test_there_is_no_other_export(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="There is no export 'excel'; there are canvas, moodle, nbgrader"):
        outputs.write_export(tmp_path, "excel", [])


# --- moves -------------------------------------------------------------------------------------------------


def test_moves_name_student_and_exercise() -> None:
    first, second, *rest = exercises.of_unit("04")
    before = [
        entry("ada", "04", [row("ada", first), row("ada", second, "wrong", 1)]),
        entry("bob", "04", [row("bob", first), row("bob", second)]),
        entry("cyd", "04", [row("cyd", first, "missing")]),
        entry("gone", "04", [row("gone", first)]),
    ]
    after = [
        entry("new", "04", [row("new", first)]),
        entry("bob", "04", [row("bob", first, "error", len(first.checks)), row("bob", second, message="other words")]),
        entry("ada", "04", [row("ada", first), row("ada", second)]),
        entry("cyd", "04", [row("cyd", first, "forbidden"), row("cyd", rest[0])]),
    ]
    lost = second.checks[-1].points
    assert moved(before, after) == [
        Move("ada", "04", second.id, second.points - lost, second.points, second.points, "wrong", "passed"),
        Move("bob", "04", first.id, first.points, 0, first.points, "passed", "error"),
        Move("cyd", "04", rest[0].id, 0, rest[0].points, rest[0].points, "", "passed"),
    ]
    assert moved(before, before) == [] == moved([], after)


def test_moves_are_printed_and_kept(tmp_path: Path) -> None:
    moves = [Move(f"student {i},\x1b[31m", "04", "04.1", 0, i + 1, 99, "wrong", "passed") for i in range(45)]
    text = moved_table(moves)
    assert "and 5 more, see moved.csv" in text and "45 grades of 45 students moved: 45 up, 0 down." in text
    assert "\x1b" not in text and len({line.index("04.1") for line in text.splitlines() if "04.1" in line}) == 1
    assert moved_table([]) == "No grade moved."
    write_outputs(tmp_path, [solved("ada")], moved=moves)
    assert outputs.read_moves(tmp_path / "moved.csv") == moves
    write_outputs(tmp_path, [solved("ada")])
    assert outputs.read_moves(tmp_path / "moved.csv") == moves, "a later run that moved nothing keeps the record"
    assert outputs.read_moves(tmp_path / "none.csv") == []
    (tmp_path / "moved.csv").write_text("student,unit\nada,04\n")
    with pytest.raises(ValueError, match=r"moved\.csv is not a table that grading wrote"):
        outputs.read_moves(tmp_path / "moved.csv")


# --- the command -------------------------------------------------------------------------------------------


def journal(out: Path, entries: list[Entry], tail: str = "") -> None:
    out.mkdir(exist_ok=True)
    (out / "journal.jsonl").write_text("".join(f"{e.to_text()}\n" for e in entries) + tail, encoding="utf-8")


def test_the_journal_is_read_with_what_a_crash_left(tmp_path: Path) -> None:
    newest = [solved("bob"), empty("ada", notes=[UNREADABLE])]
    journal(tmp_path, [solved("ada"), *newest], tail=solved("cyd").to_text()[:-20])
    entries, broken = report_command.read_journal(tmp_path / "journal.jsonl")
    assert sorted(entries, key=lambda e: e.student) == sorted(newest, key=lambda e: e.student)
    assert broken == [4]


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(
        cli.COMMANDS, "report", cli.Command("grading.report_command", "write again", "course report DIR")
    )
    return lambda *words: cli.main(["report", *map(str, words)])


def test_report_writes_everything_again(tmp_path: Path, report, capsys: pytest.CaptureFixture[str]) -> None:
    journal(tmp_path, [solved("ada"), empty("bob")], tail='{"student": "cy')
    (tmp_path / "late.csv").write_text("student,unit,change,reason\nada,04,-10%,late\n")
    assert report(tmp_path, "--adjust", tmp_path / "late.csv", "--export", "canvas") == 0
    said = capsys.readouterr().out
    assert "line 3 is not whole" in said and "1 adjustments from" in said and "canvas.csv" in said
    assert read(tmp_path / "grades.csv")[1][1] == f"{0.9 * FOUR:g}" == read(tmp_path / "canvas.csv")[2][-1]
    assert {path.name for path in tmp_path.iterdir()} >= {"report.html", "results.jsonl", "feedback"}
    assert report(tmp_path) == 0
    assert read(tmp_path / "grades.csv")[1][1] == str(FOUR)
    (tmp_path / "late.csv").rename(tmp_path / "adjustments.csv")
    assert report(tmp_path) == 0
    assert read(tmp_path / "grades.csv")[1][1] == f"{0.9 * FOUR:g}"


def test_report_says_what_is_wrong_in_one_line(tmp_path: Path, report, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(tmp_path) == 2
    assert "There is no" in capsys.readouterr().err
    journal(tmp_path, [solved("ada")])
    (tmp_path / "late.csv").write_text("student,unit,change,reason\nadda,04,-10%,late\n")
    assert report(tmp_path, "--adjust", tmp_path / "late.csv") == 2
    assert "line 2 of the adjustments: there is no student 'adda'. Near to it: ada." in capsys.readouterr().err
