"""What holds of the notebooks without a kernel: NumPy units run where there is no torch, and cells are short."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib import units
from course_lib.units import UNITS, CourseMap

ROOT = Path(__file__).resolve().parents[1]
NUMPY_UNITS = [u for u in units.NUMPY_UNITS if list((ROOT / "notebooks").glob(f"{u}_*.ipynb"))]
LECTURES = sorted(set((ROOT / "notebooks").glob("*.ipynb")) - {ROOT / "notebooks" / "00_welcome.ipynb"})

WITHOUT_TORCH = """
import json, sys
sys.modules["torch"] = None  # import torch now raises ImportError
space = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code" and "needs-torch" not in cell["metadata"].get("tags", []):
        exec(compile("".join(cell["source"]), sys.argv[1], "exec"), space)
print("ran to the end")
"""


@pytest.mark.parametrize("folder", ["notebooks", "solutions"])
@pytest.mark.parametrize("unit", NUMPY_UNITS)
def test_a_numpy_unit_runs_where_torch_cannot_be_imported(unit, folder, tmp_path):
    if unit == "00" and folder == "solutions":
        pytest.skip("the welcome has no exercises")
    (notebook,) = (ROOT / folder).glob(f"{unit}_*.ipynb")
    env = os.environ | {"COURSE_PROGRESS": str(tmp_path / "progress.json"), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-c", WITHOUT_TORCH, str(notebook)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, cwd=ROOT)
    assert "ran to the end" in run.stdout, run.stderr[-2000:]


def cells(path, kind):
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == kind:
            yield "".join(cell["source"])


@pytest.mark.parametrize("path", LECTURES, ids=lambda p: p.stem)
def test_a_lecture_keeps_the_house_style(path):
    text = "\n".join(cells(path, "markdown"))
    titles = [line for line in text.split("\n") if line.startswith("# ")]
    assert len(titles) == 1 and titles[0].startswith(f"# {path.stem[:2]} ")
    for phrase in ("After this unit you can", "You need", "Time", "Predict", "takeaways", "To think about", "To read"):
        assert phrase in text, f"{path.stem} has no {phrase!r}"
    assert "What is wrong here?" in text
    assert not {word for word in ("simply", "obviously", "trivial") if f" {word} " in text.lower()}
    for source in cells(path, "code"):
        lines = [line for line in source.split("\n") if line.strip()]
        assert len(lines) <= 16, f"{path.stem}: a cell of {len(lines)} lines: {lines[0]}"


def test_every_notebook_is_one_of_the_fourteen_units():
    names = {unit.name for unit in UNITS}
    assert len(names) == 14 and [unit.number for unit in UNITS] == [f"{n:02}" for n in range(14)]
    for folder in ("notebooks", "exercises", "solutions"):
        assert {path.stem for path in (ROOT / folder).glob("*.ipynb")} <= names


def test_the_map_links_what_is_there_and_shows_points(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))
    made = CourseMap(ROOT)
    assert '<a href="04_queries_keys_values.ipynb">' in made._repr_html_() and "0 of 24 points" in repr(made)
    empty = CourseMap(tmp_path)
    assert "href" not in empty._repr_html_() and repr(empty).count("still to come") == 14
