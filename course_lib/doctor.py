"""`course doctor`: what the course needs, whether it is there, and what to do where it is not."""

from __future__ import annotations

import argparse
import importlib.metadata as metadata
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
AFRESH = "delete the folder .venv and run: python3 start.py --check"


class Finding(NamedTuple):
    """One line of the report. Grave: the course does not work without it."""

    good: bool
    what: str
    advice: str = ""
    grave: bool = True


def check_python() -> Iterator[Finding]:
    name = f"Python {sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]}"
    good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield Finding(good, name, "run start.py with Python 3.11, 3.12 or 3.13")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_version(name: str) -> str | None:
    try:
        # A local part such as +cpu names the build, not the release.
        return metadata.version(name).split("+")[0]
    except metadata.PackageNotFoundError:
        return None


def needed(course: str = "attention-course") -> set[str]:
    """Every package that the course needs on this system and Python, directly or through another."""
    from packaging.requirements import Requirement

    found: set[tuple[str, str]] = set()
    todo = [(course, "")]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        lines = (metadata.requires(name) or []) if installed_version(name) else []
        for requirement in map(Requirement, lines):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                todo += [(canonical(requirement.name), extra) for extra in ("", *requirement.extras)]
    return {name for name, _ in found} - {course}


def locked() -> dict[str, str]:
    """The exact versions of lock.txt; empty where the library is installed without it."""
    lock = ROOT / "lock.txt"
    lines = lock.read_text(encoding="utf-8").splitlines() if lock.exists() else []
    return {name: version for name, _, version in (x.partition("==") for x in lines if x[:1] not in ("", "#"))}


def check_packages() -> Iterator[Finding]:
    """Nothing missing; in .venv, which start.py made, everything in exactly the version of the lock."""
    names, versions, ours = needed(), locked(), Path(sys.prefix) == ROOT / ".venv"
    have = {name: installed_version(name) for name in names | set(versions)}
    missing = sorted(name for name in names if have[name] is None)
    other = sorted(name for name, version in versions.items() if have[name] not in (None, version))
    for name in missing:
        yield Finding(False, f"{name} is not installed", AFRESH)
    for name in other:
        what = f"{name} is {have[name]}, the course was tested with {versions[name]}"
        yield Finding(False, what, AFRESH if ours else "fine if all else works", grave=ours)
    if not missing and not other:
        exactly = ", each in the version of lock.txt" if versions else ""
        yield Finding(True, f"{len(names)} packages{exactly}")


def check_torch() -> Iterator[Finding]:
    """A tiny attention, there and back, on the device that the course would use."""
    import torch

    from . import attention, device

    where = device.pick_device()
    x_BTD = torch.randn(2, 3, 4, generator=device.generator(0)).to(where).requires_grad_()
    attention.explicit(x_BTD, x_BTD, x_BTD)[0].square().sum().backward()
    good = x_BTD.grad is not None and bool(x_BTD.grad.isfinite().all())
    yield Finding(good, f"torch {torch.__version__} computes attention and its gradient", AFRESH)
    yield device_finding(where.type, driver=bool(shutil.which("nvidia-smi")), cuda=torch.version.cuda)


def device_finding(kind: str, *, driver: bool, cuda: str | None) -> Finding:
    """Which device, and why that one."""
    if kind != "cpu":
        return Finding(True, f"device {kind}: torch can use this machine's GPU")
    if not driver:
        return Finding(True, "device cpu: there is no GPU that torch can use, and the course needs none")
    reason = f"it was built for CUDA {cuda}: update the driver" if cuda else f"its build has no CUDA: {AFRESH}"
    return Finding(False, "device cpu, though there is an NVIDIA driver", f"torch cannot use it; {reason}", False)


def check_jupyterlab() -> Iterator[Finding]:
    import ipykernel
    import jupyterlab
    from jupyterlab.labapp import LabApp  # what `course lab` starts

    yield Finding(bool(LabApp.name), f"JupyterLab {jupyterlab.__version__} with Python kernel {ipykernel.__version__}")


def check_folder() -> Iterator[Finding]:
    try:
        with tempfile.NamedTemporaryFile(dir=ROOT):
            pass
        yield Finding(True, f"notebooks can be saved in {ROOT}")
    except OSError:
        yield Finding(False, f"{ROOT} cannot be written to", "copy the course to a folder that is yours")


CHECKS = (check_python, check_packages, check_torch, check_jupyterlab, check_folder)


def run(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of a check; one that breaks is a finding too."""
    try:
        yield from check()
    except Exception as error:
        what = check.__name__.removeprefix("check_")
        yield Finding(False, f"{what} does not work: {type(error).__name__}: {error}", AFRESH)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments: a patient does not choose the diagnosis."""


def main(args: argparse.Namespace | None = None) -> int:
    faults = 0
    for check in CHECKS:
        for finding in run(check):
            mark = "ok   " if finding.good else "FAULT" if finding.grave else "note "
            print(
                f"{mark}  {finding.what}" + ("" if finding.good else f"\n       -> {finding.advice}"),
                flush=True,
            )
            faults += finding.grave and not finding.good
    print("All is well." if not faults else f"{faults} fault{'s' * (faults > 1)}: the arrows say what to do.")
    return int(faults > 0)
