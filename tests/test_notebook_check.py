"""`course check` and the progress panel: what a learner without a browser, or with one, sees of their work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course_lib import cli, notebook_check, progress, widgets

ROOT = Path(__file__).resolve().parents[1]
NAME = "04_queries_keys_values.ipynb"


@pytest.fixture(autouse=True)
def own_progress(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))


def test_the_solutions_earn_all_points(capsys):
    # The solutions are the library's own text, and may say so: nothing in them imports the answers.
    assert cli.main(["check", str(ROOT / "solutions" / NAME)]) == 0
    assert "24 of 24 points." in capsys.readouterr().out
    assert progress.read()["04.4"].points == 5


def test_stubs_are_empty_and_cost_no_try(capsys):
    assert cli.main(["check", str(ROOT / "exercises" / NAME)]) == 1
    out = capsys.readouterr().out
    assert out.count("Still empty") == 8 and "0 of 24 points." in out
    assert progress.read() == {}


def edited(tmp_path, change):
    notebook = json.loads((ROOT / "exercises" / NAME).read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = [change("".join(cell["source"]))]
    file = tmp_path / NAME
    file.write_text(json.dumps(notebook), encoding="utf-8")
    return file


def test_a_wrong_idea_is_named_and_a_broken_cell_costs_only_itself(tmp_path, capsys):
    def change(source):
        if source.startswith("def attention("):
            return "%matplotlib inline\ndef attention(q, k, v):\n    return softmax(q @ k.T, axis=0) @ v"
        return "def project(:" if source.startswith("def project(") else source

    file = edited(tmp_path, change)
    assert cli.main(["check", str(file), "04.2", "04.4"]) == 1
    out = capsys.readouterr().out
    assert "These weights sum to 1 over the queries" in out and "0 of 8 points." in out
    assert "raised SyntaxError" in out and "Nothing here is called project." in out


@pytest.mark.parametrize(
    "text, message",
    [(None, "There is no file"), ("{", "not a notebook"), ("[]", "not a notebook"), ('{"cells": 3}', "not a notebook")],
)
def test_an_unreadable_notebook_is_refused_in_one_line(text, message, tmp_path, capsys):
    file = tmp_path / NAME
    if text is not None:
        file.write_text(text)
    assert cli.main(["check", str(file)]) == 2
    assert message in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"has no exercise 99\.9"):
        notebook_check.check_notebook(ROOT / "exercises" / NAME, ["99.9"])


def test_the_panel_shows_progress_and_starts_a_unit_again():
    progress.record("04.1", 2, 2)
    progress.record("02.1", 1, 2)
    panel = widgets.Progress()
    assert "2 of 2" in panel.view.value and "2 of 2" in repr(panel)
    panel.unit.value = "04"
    panel.button.click()
    assert "2 of 2" not in panel.view.value and set(progress.read()) == {"02.1"}
    assert panel.unit.description and panel.button.tooltip
