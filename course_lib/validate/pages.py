"""Is a notebook sound? As its lesson says, with links that lead somewhere, and running from top to bottom."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from .. import build, exercises
from .declared import Complaints, leak_complaints

KINDS = {"notebooks": "lecture", "exercises": "exercise", "solutions": "solution"}
CELL_SECONDS, NOTEBOOK_SECONDS = 10.0, 60.0  # budgets
STOP_AFTER = 60  # seconds, then a cell is taken to be endless
FENCED = re.compile(r"^(```|~~~).*?^\1", flags=re.M | re.S)


@dataclass
class Notebook:
    """A generated notebook, and what is found out about it."""

    path: Path
    cells: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[int, float] = field(default_factory=dict)  # by number of the code cell, from 0 as nbval counts
    complaints: Complaints = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def kind(self) -> str:
        return KINDS[self.path.parent.name]

    @property
    def unit(self) -> str:
        return self.path.name[:2]

    def sources(self, cell_type: str) -> list[str]:
        return ["".join(cell["source"]) for cell in self.cells if cell["cell_type"] == cell_type]

    def place(self, number: int) -> str:
        """A code cell in words: its number and its first line."""
        return f"{self.name}, code cell {number} (`{self.sources('code')[number].splitlines()[0][:50]}`)"

    @property
    def slowest(self) -> int:
        return max(self.seconds, key=lambda number: self.seconds[number], default=0)


def read_notebook(path: Path) -> Notebook:
    notebook = Notebook(path)
    try:
        notebook.cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (ValueError, KeyError, TypeError):
        notebook.complaints.append(f"{notebook.name} cannot be read as a notebook: run `course build`.")
    return notebook


def build_complaints(root: Path, units: set[str]) -> Complaints:
    """Each notebook must be as its lesson says, byte for byte, and each declared unit must have one."""
    try:
        wrong = [text for text in build.differences(root) if text.split("/")[1][:2] in units]
    except ValueError as error:
        wrong = [f"The notebooks cannot be built. {error}"]
    lessons = {path.name[:2] for path in (root / "lessons").glob("*_exercises.py")}
    wanted = sorted(units & set(exercises.UNITS) - lessons)
    return wrong + [f"Unit {unit} declares exercises, and lessons/{unit}_…_exercises.py is missing." for unit in wanted]


def headings_of(notebook: Notebook, level: str = "##") -> list[str]:
    lines = "\n".join(FENCED.sub("", source) for source in notebook.sources("markdown"))
    return [line.removeprefix(level).strip() for line in lines.split("\n") if line.startswith(level + " ")]


def text_complaints(notebook: Notebook) -> Complaints:
    """Links lead somewhere, headings are clear, and no cell may fail unseen."""
    found = []
    for target in itertools.chain(*map(links, notebook.sources("markdown"))):
        file, _, anchor = unquote(target).partition("#")
        there = notebook.path.parent / file if file else notebook.path
        if not there.exists():
            found.append(f"{notebook.name}: the link to {target} is dead: no such file.")
        elif anchor and there.suffix == ".ipynb" and anchor.replace("-", " ") not in anchors(read_notebook(there)):
            found.append(f"{notebook.name}: the link to {target} is dead: there is no such heading.")
    titles, sections = headings_of(notebook, "#"), headings_of(notebook)
    if len(titles) != 1:
        found.append(f"{notebook.name} needs one `# ` title; it has {len(titles)}.")
    twice = sorted({name for name in sections if sections.count(name) > 1})
    found += [f"{notebook.name}: the heading {name!r} stands twice: give each its own." for name in twice]
    muted = (
        "nbval-skip",
        "NBVAL_SKIP",
        "NBVAL_RAISES",
        *([] if notebook.kind == "exercise" else ["raises-exception"]),
    )
    for number, cell in enumerate(cell for cell in notebook.cells if cell["cell_type"] == "code"):
        if any(word in f"{cell['metadata'].get('tags')} {''.join(cell['source'])}" for word in muted):
            found.append(f"{notebook.place(number)} may fail unseen: drop the marker, catch the error and assert it.")
    return found


def links(source: str) -> list[str]:
    """The targets inside this course of a text's links and pictures."""
    found = re.findall(
        r"\]\(<?([^)\s>]+)|(?:src|href)=[\"']([^\"']+)", re.sub(r"`[^`\n]+`", "", FENCED.sub("", source))
    )
    return [target for pair in found if (target := "".join(pair)) and not re.match(r"[a-z][a-z0-9+.-]*:|//", target)]


def anchors(notebook: Notebook) -> set[str]:
    return {name.replace("-", " ") for level in ("#", "##", "###") for name in headings_of(notebook, level)}


def lent_answers(notebook: Notebook) -> Complaints:
    """No answer may stand anywhere in an exercise notebook."""
    handed_out = notebook.kind == "exercise" and notebook.unit in exercises.UNITS
    here = exercises.of_unit(notebook.unit) if handed_out else ()
    everything = "\n".join("".join(cell["source"]) for cell in notebook.cells)
    return [text for exercise in here for text in leak_complaints(exercise, everything, notebook.name)]


def run_nbval(root: Path, notebooks: list[Notebook], jobs: int, scratch: Path, bar: Any) -> None:
    """Run lectures and solutions, each in a kernel of its own, and note seconds and errors by cell."""
    command, environment, last = nbval_command(root, jobs, scratch), kernel_env(scratch), ""
    command += [str(notebook.path) for notebook in notebooks]
    with subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            last = line.strip() or last
            bar.update(bool(re.search(r"::Cell \d+ [A-Z]{4}|[A-Z]{4} \S+::Cell ", line)))
    report = scratch / "cells.xml"
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        note_cell(case, {notebook.name: notebook for notebook in notebooks})
    for notebook in notebooks:
        if not notebook.complaints and len(notebook.seconds) < len(notebook.sources("code")):
            notebook.complaints.append(f"{notebook.name} was not run to its end by nbval, which says: {last}")


def nbval_command(root: Path, jobs: int, scratch: Path) -> list[str]:
    """pytest with nbval, without the project's own settings: those are for its own tests."""
    (scratch / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-c", str(scratch / "pytest.ini"), f"--rootdir={root}", "--noconftest"]
    command += ["-p", "no:cacheprovider", "--nbval-lax", "--nbval-current-env", f"--nbval-cell-timeout={STOP_AFTER}"]
    command += ["-v", "--color=no", "--no-summary"]
    command += [f"--junitxml={scratch / 'cells.xml'}", "-o", "junit_duration_report=call"]
    return command + (["-n", str(jobs), "--dist", "loadfile"] if importlib.util.find_spec("xdist") else [])


def note_cell(case: ElementTree.Element, notebooks: dict[str, Notebook]) -> None:
    notebook = notebooks.get(case.get("classname", "").replace(".", "/", 1))
    number = re.fullmatch(r"Cell (\d+)", case.get("name", ""))
    if notebook is None or number is None:
        return
    notebook.seconds[int(number[1])] = float(case.get("time", 0))
    for failure in (*case.iter("failure"), *case.iter("error")):
        notebook.complaints.append(f"{notebook.place(int(number[1]))} fails: {reason(failure.text or '')}")


def reason(told: str) -> str:
    """From nbval's report on a cell: the error that it raised, or what else ended it."""
    lines = re.sub(r"(\x1b|#x1B)\[[0-9;]*m", "", told).strip().split("\n")
    why = next((line.partition(": ")[2] for line in lines if re.match(r"Cell \d+: ", line)), lines[0])
    return lines[-1] if why == "Cell execution caused an exception" else why


def run_stubs(notebook: Notebook, scratch: Path, bar: Any) -> None:
    """Run an exercise notebook as it is handed out: each check says "still empty", and nothing else fails."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellControlSignal, DeadKernelError

    page, clock = nbformat.read(notebook.path, 4), [0.0]
    number = {cell.id: i for i, cell in enumerate(c for c in page.cells if c.cell_type == "code")}

    def begin(cell: Any, cell_index: int) -> None:
        clock[0] = time.perf_counter()

    def end(cell: Any, cell_index: int, execute_reply: Any) -> None:
        notebook.seconds[number[cell.id]] = time.perf_counter() - clock[0]
        bar.update()

    where = {"metadata": {"path": str(notebook.path.parent)}}
    client = NotebookClient(page, timeout=STOP_AFTER, kernel_name="python3", allow_errors=True, resources=where)
    client.on_cell_execute, client.on_cell_executed = begin, end
    try:
        client.execute(env=kernel_env(scratch))
    except (CellControlSignal, DeadKernelError, RuntimeError) as error:
        notebook.complaints.append(f"{notebook.name} was not run to its end: {str(error).strip().splitlines()[0]}")
        return
    notebook.complaints += stub_run_complaints(notebook, [c for c in page.cells if c.cell_type == "code"])


def stub_run_complaints(notebook: Notebook, cells: list[Any]) -> Complaints:
    """After the run: NotImplementedError in each check cell, and no error anywhere else."""
    found = []
    for number, cell in enumerate(cells):
        is_check = bool(cell.metadata.get("nbgrader", {}).get("grade"))
        error = next((output for output in cell.outputs if output.output_type == "error"), None)
        if is_check and error is None:
            found.append(f"{notebook.place(number)} does not fail although nothing is filled in: the stub runs.")
        elif error is not None and not (is_check and error.ename == "NotImplementedError"):
            found.append(f"{notebook.place(number)} raises {error.ename}: {error.evalue[:200]}")
    checked = any(cell.metadata.get("nbgrader", {}).get("grade") for cell in cells)
    return found if checked else [*found, f"{notebook.name} has no check cell."]


def kernel_env(scratch: Path) -> dict[str, str]:
    """Nothing of a surrounding pytest, one thread for each kernel, and the user's progress and files left alone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return kept | {
        "COURSE_PROGRESS": str(scratch / "progress.json"),
        "COURSE_HAND_IN": str(scratch),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def over_time(notebook: Notebook) -> Complaints:
    """What takes longer than its budget."""
    total = sum(notebook.seconds.values())
    found = [
        f"{notebook.place(number)} takes {seconds:.1f} s; a cell may take {CELL_SECONDS:g} s."
        for number, seconds in sorted(notebook.seconds.items())
        if seconds > CELL_SECONDS
    ]
    long = f"{notebook.name} takes {total:.1f} s; a notebook may take {NOTEBOOK_SECONDS:g} s."
    return [*found, long] if total > NOTEBOOK_SECONDS else found
