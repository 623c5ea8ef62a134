"""How fast a class is graded, against nbgrader on the same notebooks: `course bench grading`.

nbgrader gets an environment of its own, which borrows this one's packages: torch is not installed twice.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path
from typing import NamedTuple

from ..shapes import expect
from ..units import UNITS

NBGRADER = "nbgrader==0.9.6"
ROOT = Path(__file__).resolve().parents[2]
CONFIG = """c = get_config()
c.CourseDirectory.course_id = "course"
c.CourseDirectory.root = {0!r}
c.ExecutePreprocessor.timeout = 60
c.ClearSolutions.code_stub = {{"python": "raise NotImplementedError"}}
"""


def environment(folder: Path) -> Path:
    """The Python of an environment with nbgrader; made once."""
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.EnvBuilder(with_pip=True).create(folder)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", NBGRADER]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        expect(done.returncode == 0, f"{NBGRADER} could not be installed: {done.stderr.strip()[-300:]}")
        (folder / "ready").touch()
    return python


class StockCourse:
    """A course as nbgrader's own guide sets it up, with one unit of ours as its assignment."""

    def __init__(self, python: Path, folder: Path, unit: str):
        self.python, self.folder, self.unit = python, folder, unit
        self.name = next(u.name for u in UNITS if u.number == unit)
        (folder / "source" / unit).mkdir(parents=True)
        (folder / "nbgrader_config.py").write_text(CONFIG.format(str(folder)))
        shutil.copy(ROOT / "exercises" / f"{self.name}.ipynb", folder / "source" / unit)
        self("generate_assignment", unit)

    def __call__(self, *words: str) -> str:
        """Run one of nbgrader's commands; what it said."""
        env = os.environ | {"COURSE_PROGRESS": str(self.folder / "progress.json"), "OMP_NUM_THREADS": "1"}
        env["PATH"] = f"{self.python.parent}{os.pathsep}{env.get('PATH', '')}"  # it calls a program of its environment
        env["JUPYTER_PATH"] = str(Path(sys.prefix) / "share" / "jupyter")  # where the borrowed packages keep templates
        command = [str(self.python), "-m", "nbgrader", *words]
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        expect(done.returncode == 0, f"nbgrader {' '.join(words)} failed: {said.strip()[-600:]}")
        return said

    def hand_in(self, student: str, notebook: Path) -> None:
        target = self.folder / "submitted" / student / self.unit / f"{self.name}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(notebook, target)


def seconds_of_nbgrader(python: Path, unit: str, students: int) -> float:
    with tempfile.TemporaryDirectory() as name:
        course = StockCourse(python, Path(name), unit)
        for number in range(students):
            course.hand_in(f"student{number}", ROOT / "solutions" / f"{course.name}.ipynb")
        start = time.perf_counter()
        course("autograde", unit)
        return time.perf_counter() - start


class Cost(NamedTuple):
    seconds: float
    bytes: int  # the most that one process had at any moment


def cost_of_course(unit: str, students: int, jobs: int = 1) -> Cost:
    """What `course grade` takes for a class of right answers, start-up included."""
    stem = next(u.name for u in UNITS if u.number == unit)
    with tempfile.TemporaryDirectory() as name:
        for number in range(students):
            folder = Path(name) / "submissions" / f"student{number}"
            folder.mkdir(parents=True)
            shutil.copy(ROOT / "solutions" / f"{stem}.ipynb", folder)
        words = ["grade", f"{name}/submissions", "--out", f"{name}/out", "--units", unit, "--jobs", str(jobs)]
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "course_lib.cli", *words], cwd=ROOT, stdout=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        expect(process.returncode == 0, "course grade failed")
        return Cost(time.perf_counter() - start, used.ru_maxrss * 1024)


def per_submission(seconds: dict[int, float]) -> float:
    """Beyond start-up: the slope between a small and a large class."""
    (few, short), (many, long) = sorted(seconds.items())
    return (long - short) / (many - few)


def measured(cache: Path, unit: str = "04") -> tuple[float, float]:
    """Seconds for each submission, nbgrader's and ours, one after the other in one run; one process each."""
    python = environment(cache)
    theirs = per_submission({n: seconds_of_nbgrader(python, unit, n) for n in (2, 8)})
    ours = per_submission({n: cost_of_course(unit, n).seconds for n in (20, 220)})
    return theirs, ours
