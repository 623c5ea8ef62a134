"""A class: which papers must be graded, by whom, and a journal that survives being stopped at any moment."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from ..build import stub_source
from ..exercises import of_unit
from ..shapes import expect
from ..units import UNITS
from .records import Entry, Paper
from .sheets import read_sheet
from .worker import grade_text, nothing

JUDGES = ("exercises.declare", "checks", "observe", "handed_in", "grading.mark", "grading.reasons", "grading.sheets")


# --- what to grade ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What all papers of a unit have in common."""

    unit: str
    prelude: tuple[str, ...]
    stubs: dict[str, str]
    file: str
    digest: str
    trains: tuple[str, ...] = ()  # cells that only train what is handed in beside the notebook


def plan(root: Path, unit: str) -> Plan:
    """The plan for a unit, from its exercise notebook and its declarations."""
    name = next(u.name for u in UNITS if u.number == unit)
    path = root / "exercises" / f"{name}.ipynb"
    expect(path.is_file(), f"There is no {path}: run this in the course's folder, or name it with --root.")
    cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    trains = ["".join(c["source"]) for c in cells if "trains" in c["metadata"].get("tags", ())]
    given = ["".join(c["source"]) for c in cells if "nbgrader" not in c["metadata"]]
    prelude = tuple(source for source in given if source not in trains)
    declared = of_unit(unit)
    modules = [importlib.import_module(f"course_lib.{name}") for name in (*JUDGES, f"exercises.u{unit}")]
    judges = b"".join(Path(str(m.__file__)).read_bytes() for m in modules)
    digest = hashlib.sha256(judges + json.dumps(prelude).encode()).hexdigest()
    stubs = {e.name: stub_source(e) for e in declared}
    return Plan(unit, prelude, stubs, next((e.file for e in declared if e.file), ""), digest, tuple(trains))


def requests(papers: Iterable[Paper], plans: dict[str, Plan], seed: int, closed: bool) -> Iterator[dict[str, Any]]:
    """One request for each paper; its key changes with whatever could change its grade."""
    for paper in papers:
        how = plans[paper.unit]
        content = b"" if paper.path is None else paper.path.read_bytes()
        model = _model(paper, how.file)
        key = hashlib.sha256(
            b"\0".join([how.digest.encode(), str((seed, closed)).encode(), model, content])
        ).hexdigest()
        yield {"paper": paper, "key": key, "seed": seed, "closed": closed}


def _model(paper: Paper, name: str) -> bytes:
    """The file beside the notebook, where the unit wants one; a link or a file of 9 MB and more is left there."""
    beside = paper.path.parent / name if name and paper.path is not None else None
    if beside is None or beside.is_symlink() or not beside.is_file() or beside.stat().st_size > 9 << 20:
        return b""
    return beside.read_bytes()


def to_text(request: dict[str, Any], plans: dict[str, Plan]) -> str:
    """What a worker needs to know, as text: also what stands in the notebook, for it may sit on another machine."""
    paper: Paper = request["paper"]
    assert paper.path is not None
    sheet, how = read_sheet(paper.path), plans[paper.unit]
    cells = ["" if cell.strip() in how.trains else cell for cell in sheet.cells]
    more = {"student": paper.student, "unit": paper.unit, "cells": cells, "notes": [*paper.notes, *sheet.notes]}
    given = {"prelude": how.prelude, "stubs": how.stubs, "model": base64.b64encode(_model(paper, how.file)).decode()}
    return json.dumps({k: v for k, v in request.items() if k != "paper"} | more | given)


def not_handed_in(request: dict[str, Any]) -> Entry:
    paper: Paper = request["paper"]
    rows = nothing(paper.student, paper.unit, "missing", "Nothing was handed in for this unit.")
    return Entry(paper.student, paper.unit, request["key"], rows, paper.notes)


# --- the journal --------------------------------------------------------------------------------------------


class Journal:
    """One line for each graded paper, added when it is done. A line cut off by a crash is dropped when it is opened."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "journal.jsonl"
        self.file = open(self.path, "a+b")  # noqa: SIM115
        self._lock()
        self.file.seek(0)
        content = self.file.read()
        self.file.truncate(content.rfind(b"\n") + 1)
        self.entries: dict[tuple[str, str], Entry] = {}
        for line in content.split(b"\n")[:-1]:
            with contextlib.suppress(ValueError):
                self._keep(Entry.from_text(line.decode("utf-8")))

    def _lock(self) -> None:
        with contextlib.suppress(ImportError):  # Windows has no fcntl
            import fcntl

            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.file.close()
                raise ValueError(f"Somebody else is grading into {self.path.parent} at this moment.") from None

    def _keep(self, entry: Entry) -> None:
        self.entries[entry.student, entry.unit] = entry

    def has(self, student: str, unit: str, key: str) -> bool:
        known = self.entries.get((student, unit))
        return known is not None and known.key == key

    def add(self, entry: Entry) -> None:
        self.file.write(entry.to_text().encode("utf-8") + b"\n")
        self.file.flush()
        self._keep(entry)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()


# --- who grades ---------------------------------------------------------------------------------------------


class Worker:
    """A process that grades what it is told. It outlives a bad paper; if it does end, the next one gets a new one."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "course_lib.grading.worker"]
        # A session of its own: Ctrl-C is for the one who gives out the work.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True
        )

    def grade(self, request: str) -> str:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.process.communicate(timeout=30)
        self.process.kill()
        self.process.wait()


def here(texts: Iterable[str], jobs: int) -> Iterator[str]:
    """Grade on this machine with so many processes; answers come as they are ready."""
    own, workers = threading.local(), []

    def ask(text: str) -> str:
        for _ in range(2):
            if getattr(own, "worker", None) is None:
                own.worker = Worker()
                workers.append(own.worker)
            with contextlib.suppress(OSError):
                if answer := own.worker.grade(text):
                    return answer
            own.worker.close()
            own.worker = None
        return _given_up(text)

    pool = ThreadPoolExecutor(jobs)
    try:
        yield from _as_completed(lambda text: pool.submit(ask, text), texts, 2 * jobs)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for worker in workers:
            worker.close()


def _given_up(text: str) -> str:
    asked = json.loads(text)
    rows = nothing(asked["student"], asked["unit"], "died", "Grading this notebook ended the grader's process, twice.")
    return Entry(asked["student"], asked["unit"], asked["key"], rows, tuple(asked["notes"])).to_text()


def _as_completed(submit: Callable[[str], Future[str]], texts: Iterable[str], most: int) -> Iterator[str]:
    """Results as they come, with never more than `most` under way, so that memory stays flat."""
    under_way: set[Future[str]] = set()
    for text in texts:
        under_way.add(submit(text))
        if len(under_way) >= most:
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    while under_way:
        done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)


def on_dask(texts: Iterable[str], address: str) -> Iterator[str]:
    """Grade on a Dask cluster. Text goes out and text comes back; a worker that is lost has its papers graded again."""
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise ValueError("--dask needs the package distributed: pip install 'attention-course[grade]'") from None
    with Client(address, set_as_default=False) as client:
        most = 3 * max(1, sum(client.nthreads().values()))
        under_way, texts = as_completed([]), iter(texts)
        for text in _first(texts, most):
            under_way.add(client.submit(grade_text, text, pure=False, retries=3))
        for future in under_way:
            yield future.result()
            for text in _first(texts, 1):
                under_way.add(client.submit(grade_text, text, pure=False, retries=3))


def _first(texts: Iterator[str], count: int) -> Iterator[str]:
    for _, text in zip(range(count), texts, strict=False):
        yield text


def outstanding(asked: Sequence[dict[str, Any]], journal: Journal) -> list[dict[str, Any]]:
    """Requests whose papers are not graded yet, or were graded before something changed."""
    return [r for r in asked if not journal.has(r["paper"].student, r["paper"].unit, r["key"])]
