"""Grading a class from the command line: right grades, with reasons, whatever happens on the way."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import made_class
import pytest
from made_class import ROOT, hand_in, notebook, with_answer

from course_lib import cli
from course_lib.checks import try_out
from course_lib.exercises import UNITS, find, of_unit
from course_lib.grading import batch, sandbox
from course_lib.grading.records import Entry

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(sandbox.missing()), reason=f"no isolation here: {sandbox.missing()}"),
]
TOP = sum(e.points for e in of_unit("04"))


def grade(submissions: Path, out: Path, *more: str) -> int:
    words = ["grade", str(submissions), "--out", str(out), "--seed", "11", "--root", str(ROOT), "--jobs", "2", *more]
    return cli.main(words)


def rows(out: Path) -> dict[tuple[str, str], dict]:
    lines = (out / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return {(row["student"], row["exercise"]): row for row in map(json.loads, lines)}


def grades(out: Path) -> dict[str, dict[str, str]]:
    with open(out / "grades.csv", encoding="utf-8", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def small_class(tmp_path_factory):
    """Right, empty, half, nothing at all; graded once."""
    home = tmp_path_factory.mktemp("class")
    submissions, out = home / "submissions", home / "out"
    hand_in(submissions, "ada", "04", notebook("04"))
    hand_in(submissions, "bob", "04", notebook("04", "exercises"))
    hand_in(submissions, "Zoë", "04", with_answer("04", "04.4", "def attention(q, k, v):\n    return v"))
    hand_in(submissions, "dan", "06", notebook("06"))
    assert grade(submissions, out, "--units", "04,06") == 0
    return submissions, out


def test_the_contract_of_the_outputs(small_class):
    _, out = small_class
    table = grades(out)
    assert list(table["ada"]) == ["student", "04", "06", "total", "max"]
    assert (table["ada"]["04"], table["bob"]["04"], table["dan"]["04"]) == (str(TOP), "0", "0")
    assert float(table["dan"]["06"]) == sum(e.points for e in of_unit("06"))
    row = rows(out)["Zoë", "04.4"]
    assert list(row) == ["student", "unit", "exercise", "points", "max", "status", "misconception", "message"]
    assert row["status"] == "wrong" and row["points"] < row["max"] and row["message"]
    assert rows(out)["bob", "04.2"]["status"] == rows(out)["dan", "04.2"]["status"] == "missing"
    assert {p.stem for p in (out / "feedback").iterdir()} >= {"ada", "bob", "dan"}
    assert (out / "report.html").stat().st_size > 1000
    assert (out / "seed").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("unit", UNITS)
def test_every_solution_has_full_points_and_every_stub_none(unit, tmp_path):
    if any(e.file for e in of_unit(unit)):
        pytest.skip("has a model to hand in: tests/test_capstone.py")
    hand_in(tmp_path / "s", "right", unit, notebook(unit))
    hand_in(tmp_path / "s", "empty", unit, notebook(unit, "exercises"))
    assert grade(tmp_path / "s", tmp_path / "out", "--units", unit) == 0
    found = rows(tmp_path / "out")
    for exercise in of_unit(unit):
        assert found["right", exercise.id]["points"] == exercise.points, found["right", exercise.id]
        assert found["empty", exercise.id]["status"] == "missing"


@pytest.mark.parametrize("unit", ["04", "06"])
def test_wrong_in_each_declared_way_gives_the_grade_and_the_idea_that_check_gives(unit, tmp_path):
    wrong = list(made_class.wrong_answers(unit))
    assert len(wrong) >= 30
    for number, (exercise, _, source) in enumerate(wrong):
        hand_in(tmp_path / "s", f"{number:03}", unit, with_answer(unit, exercise.id, source))
    assert grade(tmp_path / "s", tmp_path / "out", "--units", unit) == 0
    found, top = rows(tmp_path / "out"), sum(e.points for e in of_unit(unit))
    for number, (exercise, name, _) in enumerate(wrong):
        row = found[f"{number:03}", exercise.id]
        declared = next(m for m in exercise.misconceptions if m.name == name)
        report = try_out(declared.wrong, exercise, 11)
        assert (row["points"], row["misconception"]) == (report.points, name), row
        others = [found[f"{number:03}", e.id] for e in of_unit(unit) if e.id != exercise.id]
        used = sum(r["points"] for r in others) - (top - exercise.points)
        assert used == 0 or exercise.name in "".join(made_class.notebook(unit)["cells"][-1]["source"]) or used <= 0


def test_a_second_run_grades_nothing_again(small_class, capsys):
    submissions, out = small_class
    before = (out / "journal.jsonl").read_bytes(), (out / "results.jsonl").read_bytes()
    assert grade(submissions, out, "--units", "04,06") == 0
    assert "8 papers, 8 of them graded before" in capsys.readouterr().out
    assert before == ((out / "journal.jsonl").read_bytes(), (out / "results.jsonl").read_bytes())


def test_what_changed_is_graded_again_and_whose_grade_moved_is_shown(tmp_path, capsys):
    hand_in(tmp_path / "s", "ada", "04", notebook("04"))
    hand_in(tmp_path / "s", "bob", "04", notebook("04", "exercises"))
    grade(tmp_path / "s", tmp_path / "out", "--units", "04")
    hand_in(tmp_path / "s", "bob", "04", notebook("04"))
    capsys.readouterr()
    grade(tmp_path / "s", tmp_path / "out", "--units", "04")
    said = capsys.readouterr().out
    assert "2 papers, 1 of them graded before" in said and "bob" in said and "ada" not in said
    assert grades(tmp_path / "out")["bob"]["04"] == str(TOP)


def test_the_key_changes_with_seed_notebook_and_tests(tmp_path):
    path = hand_in(tmp_path, "ada", "04", notebook("04"))
    paper, plans = batch.Paper("ada", "04", path), {"04": batch.plan(ROOT, "04")}

    def key(seed=1, closed=True):
        return next(batch.requests([paper], plans, seed, closed))["key"]

    keys = [key(), key(2), key(closed=False)]
    path.write_text(path.read_text() + " ")
    keys.append(key())
    plans["04"] = batch.Plan("04", (), {}, "", "another digest")
    keys.append(key())
    assert len(set(keys)) == 5


def test_the_number_of_jobs_changes_nothing(small_class, tmp_path):
    submissions, out = small_class
    assert grade(submissions, tmp_path, "--units", "04,06", "--jobs", "1") == 0
    assert (tmp_path / "results.jsonl").read_bytes() == (out / "results.jsonl").read_bytes()


def test_kill_at_any_moment_and_go_on(tmp_path):
    for number in range(12):
        made = notebook("04") if number % 2 else with_answer("04", "04.4", "def attention(q, k, v):\n    return v")
        hand_in(tmp_path / "s", f"{number:02}", "04", made)
    words = ["grade", str(tmp_path / "s"), "--units", "04", "--seed", "3", "--jobs", "2"]
    journal = tmp_path / "out" / "journal.jsonl"
    for lines in (0, 2, 5):  # killed before the first paper, and after some
        process = subprocess.Popen(
            [sys.executable, "-m", "course_lib.cli", *words, "--out", str(tmp_path / "out")],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"TMPDIR": str(tmp_path)},
        )  # fmt: skip
        while not journal.exists() or journal.read_bytes().count(b"\n") < lines:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with open(journal, "ab") as file:
            file.write(b'{"student": "00", "uni')  # and as if it had been killed in the middle of a line
    words += ["--root", str(ROOT)]
    assert cli.main([*words, "--out", str(tmp_path / "out")]) == 0
    assert cli.main([*words, "--out", str(tmp_path / "whole")]) == 0
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == (tmp_path / "whole" / "results.jsonl").read_bytes()
    kept = journal.read_text().splitlines()
    assert sorted(Entry.from_text(line).student for line in kept) == [f"{n:02}" for n in range(12)]
    assert not left_behind(str(tmp_path))


def left_behind(folder: str) -> list[str]:
    """Zygotes and children with this folder in their command that are still there a little later."""
    for _ in range(50):
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if b"course_lib.grading.zygote import main" in words and folder.encode() in words:
                found.append(folder.name)
        if not found:
            return []
        time.sleep(0.2)
    return found


def test_two_at_once_into_one_folder_are_refused(tmp_path):
    hand_in(tmp_path / "s", "ada", "04", notebook("04"))
    with batch.Journal(tmp_path / "out"):
        assert grade(tmp_path / "s", tmp_path / "out") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", "--out", "out"], "nowhere"),
        (["s", "--out", "out", "--units", "99"], "99"),
        (["s", "--out", "out", "--jobs", "0"], "--jobs"),
        (["s", "--out", "out", "--seed", "-4"], "--seed"),
        (["empty", "--out", "out"], "No notebook"),
    ],
)
def test_an_instructors_mistake_is_told_in_one_line(words, said, tmp_path, monkeypatch, capsys):
    hand_in(tmp_path / "s", "ada", "04", notebook("04"))
    (tmp_path / "empty" / "bob").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["grade", *words, "--root", str(ROOT)]) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


def test_units_that_nobody_handed_in_are_not_due(tmp_path):
    hand_in(tmp_path / "s", "ada", "04", notebook("04"))
    assert grade(tmp_path / "s", tmp_path / "out") == 0
    assert list(grades(tmp_path / "out")["ada"]) == ["student", "04", "total", "max"]


def test_without_isolation_it_refuses_and_unsafe_says_what_is_weaker(tmp_path, monkeypatch, capsys):
    hand_in(tmp_path / "s", "ada", "04", notebook("04"))
    monkeypatch.setattr(sandbox, "landlock_version", lambda: 0)
    assert grade(tmp_path / "s", tmp_path / "out") == 2
    assert "--unsafe" in capsys.readouterr().err
    assert grade(tmp_path / "s", tmp_path / "out", "--unsafe") == 0
    assert "read your files" in capsys.readouterr().out and grades(tmp_path / "out")["ada"]["total"] == str(TOP)


def test_answers_in_other_forms(tmp_path):
    """A callable object, a lambda, a partial and a decorated function are answers as good as any."""
    honest = made_class.answer_cell(notebook("04"), "04.4")["source"]
    source = "".join(honest).replace("def attention(", "def _mine(")
    styles = {
        "lambda": f"{source}\nattention = lambda *a: _mine(*a)",
        "partial": f"import functools\n{source}\nattention = functools.partial(_mine)",
        "object": f"{source}\nclass A:\n    def __call__(self, *a):\n        return _mine(*a)\nattention = A()",
        "decorated": f"import functools\n{source}\n@functools.wraps(_mine)\ndef attention(*a):\n    return _mine(*a)",
        "list": f"{source}\nattention = lambda *a: tuple(x.tolist() for x in _mine(*a))",
    }
    for style, text in styles.items():
        hand_in(tmp_path / "s", style, "04", with_answer("04", "04.4", text))
    assert grade(tmp_path / "s", tmp_path / "out") == 0
    for style in styles:
        assert rows(tmp_path / "out")[style, "04.4"]["points"] == find("04.4").points, rows(tmp_path / "out")[
            style, "04.4"
        ]


def test_dask_with_a_worker_that_is_killed_gives_the_same_grades(small_class, tmp_path):
    distributed = pytest.importorskip("distributed")
    submissions, out = small_class
    for number in range(8):
        hand_in(tmp_path / "s", f"x{number}", "04", notebook("04"))
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        first = client.run(os.getpid)
        client.submit(os.kill, next(iter(first.values())), signal.SIGKILL, pure=False, retries=0)
        assert grade(tmp_path / "s", tmp_path / "out", "--dask", cluster.scheduler_address) == 0
        assert all(row["total"] == str(TOP) for row in grades(tmp_path / "out").values())
        assert len(grades(tmp_path / "out")) == 8
        again = tmp_path / "again"
        assert grade(submissions, again, "--units", "04,06", "--dask", cluster.scheduler_address) == 0
    assert (again / "results.jsonl").read_bytes() == (out / "results.jsonl").read_bytes()
