"""Write lock.txt anew: the exact versions that start.py installs, as pip resolves pyproject.toml today.

    .venv/bin/python tools/relock.py

Run it after a change of the dependencies, on Linux and on the oldest Python of the range: a release that
runs there runs on the newer ones too. That is then checked, for every system and Python of the course, and
what has no build is named; hold such a package back in HOLD and run this again. Takes some minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
SYSTEMS = {
    "Linux": ["manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"],
    "Linux on ARM": ["manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"],
    "macOS": ["macosx_14_0_arm64", "macosx_11_0_arm64"],
    "Windows": ["win_amd64"],
}
# Releases not to take, with the reason.
HOLD = ["soupsieve<3"]  # 3.0 needs Python 3.11.5, and Debian 12 has 3.11.2
# Needed on one system only, so that pip on Linux never sees them: pip takes the newest there.
ELSEWHERE = "appnope (macOS); pywinpty (Windows); the CUDA packages of torch (Linux with an NVIDIA driver)"

HEADER = f"""\
# The exact versions that start.py installs, as a constraints file for pip.
# Written by tools/relock.py from pyproject.toml; do not edit by hand.
# Valid for Python {PYTHONS[0]} to {PYTHONS[-1]} on Linux, macOS and Windows.
# Not held here, since pip on Linux does not see them: {ELSEWHERE}.
"""


class Pip:
    """The newest pip in a folder of its own: older ones download every wheel even for a dry run."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.python, self.report = folder / "bin" / "python", folder / "report.json"
        self.run("install", "--quiet", "--upgrade", "pip")

    def run(self, *words: str) -> None:
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", *words]
        done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise ValueError(done.stderr.strip().splitlines()[-1])

    def would_install(self, *words: str) -> list[dict[str, Any]]:
        """What pip says of each package that it would install for these words."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.json")
            options = ["--dry-run", "--ignore-installed", "--quiet", "--use-feature=fast-deps"]
            self.run("install", *options, "--report", str(report), *words)
            return json.loads(report.read_text(encoding="utf-8"))["install"]


def name_and_version(item: dict[str, Any]) -> tuple[str, str]:
    """A local version such as +cpu names the build, not the release: every machine takes its own."""
    return canonicalize_name(item["metadata"]["name"]), item["metadata"]["version"].split("+")[0]


def groups(pip: Pip, project: dict[str, Any], items: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """The packages of the course itself, then those that each extra adds, all from one resolution."""
    base, extras = project["dependencies"], project["optional-dependencies"]
    held = pip.python.parent / "held.txt"
    held.write_text("".join(f"{name}=={version}\n" for name, version in map(name_and_version, items)))
    result: dict[str, dict[str, str]] = {}
    for group, lines in {"base": [], **extras}.items():
        known = {name for versions in result.values() for name in versions}
        found = dict(map(name_and_version, pip.would_install("--constraint", str(held), *base, *lines)))
        result[group] = {name: version for name, version in found.items() if name not in known}
    return result


def missing_builds(pip: Pip, items: list[dict[str, Any]]) -> list[str]:
    """For every system and Python of the course: the locked releases that do not run there."""
    missing = []
    for item in items:
        needs = SpecifierSet(item["metadata"].get("requires_python", ""))
        # The first release of each Python: some systems never get a later one.
        missing += [f"{item['metadata']['name']} needs Python {needs}" for v in PYTHONS if f"{v}.0" not in needs]
    compiled = [item for item in items if not item["download_info"]["url"].endswith(("-any.whl", ".tar.gz"))]
    lines = ["==".join(name_and_version(item)) for item in compiled]

    def look(job: tuple[str, str, str]) -> str:
        system, python, line = job
        where = [word for name in SYSTEMS[system] for word in ("--platform", name)]
        options = ["--no-deps", "--only-binary", ":all:", "--target", "unused", "--python-version", python]
        try:
            pip.would_install(*options, *where, *line.split())
        except ValueError as error:
            return f"{system}, Python {python}: {error}"
        return ""

    jobs = [(system, python, " ".join(lines)) for system in SYSTEMS for python in PYTHONS]
    with ThreadPoolExecutor(4) as pool:
        return sorted({*missing, *pool.map(look, jobs)} - {""})


def render(found: dict[str, dict[str, str]]) -> str:
    """The text of lock.txt; start.py and `course doctor` read the `# [group]` lines."""
    text = HEADER
    for group, versions in found.items():
        lines = "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))
        text += f"\n# [{group}]\n{lines}"
    return text


def main() -> int:
    if f"{sys.version_info[0]}.{sys.version_info[1]}" != PYTHONS[0] or sys.platform != "linux":
        raise SystemExit(f"Run this on Linux with Python {PYTHONS[0]}: the head of the file says why.")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with tempfile.TemporaryDirectory() as folder:
        pip = Pip(Path(folder))
        extras = [line for lines in project["optional-dependencies"].values() for line in lines]
        items = pip.would_install(*project["dependencies"], *extras, *HOLD)
        found = groups(pip, project, items)
        (ROOT / "lock.txt").write_text(render(found), encoding="utf-8", newline="\n")
        print(
            "lock.txt:",
            ", ".join(f"{group} {len(versions)}" for group, versions in found.items()),
            flush=True,
        )
        missing = missing_builds(pip, items)
    print("\n".join(missing) or "Every release runs on every system and Python of the course.")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
