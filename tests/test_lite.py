"""The edition for the browser, in Chromium, with no host but its own: lectures run, figures move, checks answer."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import browser
import pytest

from course_lib import exercises
from course_lib.site import lite, pyodide
from course_lib.units import NUMPY_UNITS, UNITS

ROOT = Path(__file__).resolve().parents[1]
NAMES = [unit.name for unit in UNITS if unit.number in NUMPY_UNITS]
WANTED = os.environ.get("COURSE_SLOW") == "1"
in_chromium = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not WANTED, reason="builds 52 MB and runs Python in a browser: set COURSE_SLOW=1 to ask for it"),
]


# --- without a browser ------------------------------------------------------------------------------------------


def cell(kind="code", source=("import torch\n", "torch.ones(2)"), tags=()):
    return {"cell_type": kind, "id": "a1", "metadata": {"tags": list(tags)}, "source": list(source)}


def test_a_cell_that_needs_torch_is_there_to_read_and_says_so():
    code = cell() | {"outputs": [], "execution_count": None}
    notebook = {"cells": [code, code | {"metadata": {"tags": ["needs-torch"]}}], "metadata": {"x": 1}, "nbformat": 4}
    first, second = lite.for_the_browser(notebook)["cells"]
    assert first == code
    text = "".join(second["source"])
    assert second["cell_type"] == "markdown" and "outputs" not in second
    assert "needs torch: run on your machine" in text.lower()
    assert "```python\nimport torch\ntorch.ones(2)\n```" in text
    assert code["cell_type"] == "code"  # what came in is not changed
    assert lite.for_the_browser(notebook)["metadata"]["kernelspec"]["name"] == "python"


def test_the_notebooks_are_those_of_the_numpy_units_and_none_imports_torch(tmp_path):
    from course_lib.grading import release

    lite.write_notebooks(release.contents(ROOT), tmp_path)
    assert {p.stem for p in (tmp_path / "notebooks").iterdir()} == set(NAMES)
    assert {p.stem for p in (tmp_path / "exercises").iterdir()} == {n for n in NAMES if n[:2] in exercises.UNITS}
    for path in tmp_path.rglob("*.ipynb"):
        code = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
        assert code and not [c for c in code if re.search(r"^(import|from) torch", "".join(c["source"]), re.M)]


def test_a_check_answers_where_nothing_can_be_kept(tmp_path, monkeypatch, capsys):
    from course_lib.checks import check, hint

    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "file" / "progress.json"))

    def project(x, w_q, w_k, w_v):
        return x @ w_q, x @ w_k, x @ w_v

    with pytest.warns(UserWarning, match="could not be kept"):
        check(project, "04.2")
    with pytest.warns(UserWarning, match="could not be kept"):
        hint("04.2")
    said = capsys.readouterr().out
    assert "3 of 3 points" in said and "Hint 1 of 3" in said


def distribution(folder: Path, packages: dict[str, list[str]], spoil: str = "") -> str:
    """A Pyodide distribution in small: every package a wheel with nothing in it."""
    folder.mkdir()
    entries = {}
    for name, depends in packages.items():
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/__init__.py", "")
        content = (folder / f"{name}-1.0-py3-none-any.whl").read_bytes()
        entries[name] = pyodide.add_wheel(folder, f"{name}-1.0-py3-none-any.whl", content, depends)
    if spoil:
        entries[spoil]["sha256"] = hashlib.sha256(b"another file").hexdigest()
    for name in pyodide.CORE:
        (folder / name).write_text(name)
    lock = {"info": {"python": "3.14.2"}, "packages": entries}
    (folder / pyodide.LOCK).write_text(json.dumps(lock))
    return str(folder)


PACKAGES = {
    "numpy": [], "matplotlib": ["numpy", "PIL_low"], "pil-low": [], "ipython": ["traitlets"], "traitlets": [],
    "jedi": [],
    "micropip": [], "typing-extensions": [], "pandas": ["numpy"],
}  # fmt: skip


@pytest.fixture
def no_downloads(monkeypatch):
    """pip is not asked: the course's own wheel is the only one that is made."""
    monkeypatch.setattr(pyodide, "_own_wheels", lambda out, python: {n: {"depends": ()} for n in OURS})


OURS = ("piplite", "ipykernel", "comm", "pyodide-kernel", "anywidget")


def test_only_what_the_course_needs_is_taken_and_the_course_is_on_the_list(tmp_path, no_downloads):
    source = distribution(tmp_path / "all", PACKAGES)
    pyodide.write_distribution(tmp_path / "out", source, {"course_lib/__init__.py": b"x = 1\n"})
    lock = json.loads((tmp_path / "out" / pyodide.LOCK).read_text())
    assert set(lock["packages"]) == {*PACKAGES, *OURS, "attention-course"} - {"pandas", "typing-extensions"}
    assert (tmp_path / "out" / "pyodide.mjs").read_text() == "pyodide.mjs"
    entry = lock["packages"]["attention-course"]
    assert entry["imports"] == ["course_lib"] and set(entry["depends"]) == {"numpy", "matplotlib", "anywidget"}
    wheel = tmp_path / "out" / entry["file_name"]
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == entry["sha256"]
    assert zipfile.ZipFile(wheel).read("course_lib/__init__.py") == b"x = 1\n"


def test_a_file_that_is_not_the_one_on_the_list_is_refused(tmp_path, no_downloads):
    source = distribution(tmp_path / "all", PACKAGES, spoil="pil-low")
    with pytest.raises(ValueError, match=r"pil-low-1\.0-py3-none-any\.whl .* is not the file"):
        pyodide.write_distribution(tmp_path / "out", source, {})


def test_bad_places_are_named(tmp_path, no_downloads):
    with pytest.raises(ValueError, match=r"is no Pyodide distribution: it has no pyodide-lock\.json"):
        pyodide.reader(str(tmp_path))
    with pytest.raises(ValueError, match=r"could not be fetched .* with --pyodide"):
        pyodide.reader("http://127.0.0.1:9/x")("pyodide.mjs")
    source = distribution(tmp_path / "all", {"numpy": []})
    with pytest.raises(ValueError, match="Pyodide's list of packages has no"):
        pyodide.write_distribution(tmp_path / "out", source, {})


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("my only copy")
    with pytest.raises(ValueError, match="holds something else"):
        lite.build_lite(tmp_path, ROOT, str(tmp_path))
    assert (tmp_path / "thesis.tex").read_text() == "my only copy"


# --- in Chromium ------------------------------------------------------------------------------------------------

BUILD = "import sys, pathlib; from course_lib.site.lite import build_lite; build_lite(*map(pathlib.Path, sys.argv[1:]))"


def build(out: Path) -> None:
    """From $COURSE_PYODIDE, or from where Pyodide publishes, or, where that cannot be reached, from package indexes."""
    env = dict(os.environ)
    run = functools.partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, timeout=900)
    done = run([sys.executable, "-c", BUILD, str(out), str(ROOT)], env=env)
    if "could not be fetched" in done.stderr and "COURSE_PYODIDE" not in env:
        gathered = out.parent / "pyodide"
        tool = run([sys.executable, "-m", "tools.gather_pyodide", str(gathered)])
        assert tool.returncode == 0, tool.stderr[-2000:]
        done = run([sys.executable, "-c", BUILD, str(out), str(ROOT)], env=env | {"COURSE_PYODIDE": str(gathered)})
    assert done.returncode == 0, done.stderr[-3000:]


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextlib.contextmanager
def served(folder: Path):
    """The folder on loopback, as any web server would show it; the address to fill in."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/lab/index.html?path={{}}"
        server.shutdown()


@pytest.fixture(scope="module")
def edition(tmp_path_factory):
    browser.find_browser()
    out = tmp_path_factory.mktemp("lite") / "out"
    began = time.monotonic()
    build(out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    print(f"\nthe edition for the browser: {size:.0f} MB, made in {time.monotonic() - began:.0f} s")
    assert size < 70
    with served(out) as address:
        yield address


@pytest.fixture
def page():
    with browser.open_page() as page:
        page.set_default_timeout(400_000)
        yield page
        assert page.strangers == [], "the page asked other hosts"
        assert page.errors == []


def lite_mark(test):
    for mark in in_chromium:
        test = mark(test)
    return test


def outputs(page) -> str:
    return "\n".join(page.locator(".jp-OutputArea-output").all_inner_texts())


@lite_mark
@pytest.mark.parametrize("name", NAMES)
def test_a_lecture_runs_to_its_end(edition, page, name):
    browser.run_all(page, edition, f"notebooks/{name}.ipynb")
    told = page.get_by_text("Needs torch: run on your machine.")
    assert told.count() > 0
    if name == "04_queries_keys_values":
        soft = page.locator(".cf", has=page.locator("input[aria-label=temperature]")).first
        before = json.loads(soft.get_attribute("data-numbers"))
        handle = soft.locator("circle[aria-label=query]")
        handle.focus()
        handle.press("ArrowUp")
        assert json.loads(soft.get_attribute("data-numbers")) != before


STUB, WRONG, RIGHT = "def project(", "x @ w_q, x @ w_k, x", "x @ w_q, x @ w_k, x @ w_v"


def solve(page, body: str) -> str:
    """Type an answer to 04.2 over what stands there, run it and its check; what the check shows."""
    answer = page.locator(".jp-CodeCell", has_text=STUB).first
    answer.scroll_into_view_if_needed()
    answer.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(f"def project(x, w_q, w_k, w_v):\n    return {body}")
    page.keyboard.press("Shift+Enter")
    check = page.locator(".jp-CodeCell", has_text='check(project, "04.2")').first
    page.wait_for_function("() => document.activeElement.closest('.jp-Cell')?.innerText.includes('check(project')")
    page.keyboard.press("Shift+Enter")
    page.wait_for_function(
        "() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'", polling=500
    )
    return check.locator("[role=status]").inner_text()


@lite_mark
def test_an_exercise_solved_wrongly_then_rightly_and_remembered(edition, page):
    browser.run_all(page, edition, "exercises/04_queries_keys_values.ipynb", stubs=True)
    assert "Still empty" in outputs(page)
    card = solve(page, WRONG)
    assert "What a token hands out is a role of its own" in card and "Read again: unit 04" in card
    card = solve(page, RIGHT)
    assert "3 of 3 points" in card and "✗" not in card
    browser.run_all(page, edition, "notebooks/00_welcome.ipynb")  # another page, another kernel
    assert "3 of 24 points" in outputs(page)
