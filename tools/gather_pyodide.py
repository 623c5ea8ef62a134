"""Gather a Pyodide distribution from npm and PyPI, for machines that reach package indexes and nothing else.

    .venv/bin/python tools/gather_pyodide.py FOLDER
    course site --lite --out DIR --pyodide FOLDER

For tests only. A release is made from Pyodide's own files, which `course site --lite` takes when it is told nothing.

The interpreter is the npm package `pyodide`. Wheels that were compiled for it are on no index; one package on PyPI has
unchanged copies of them, and each must have the checksum that a lock file on npm gives for it. Wheels in pure Python
are PyPI's own.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from jupyterlite_pyodide_kernel.constants import PYODIDE_VERSION

from course_lib.site.pyodide import CORE, LOCK, download, needed

COMPILED_IN, COMPILED_FOR = "open-webui==0.12.4", "314.0.4"
WANTED = ("numpy", "matplotlib", "ipython", "jedi", "micropip", "typing-extensions")


def npm_package(version: str, folder: Path) -> Path:
    """The unpacked npm package of Pyodide's interpreter."""
    command = ["npm", "pack", "--ignore-scripts", "--silent", f"pyodide@{version}"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(folder / f"pyodide-{version}.tgz") as archive:
        archive.extractall(folder / version, filter="data")
    return folder / version / "package"


def compiled_wheels(folder: Path) -> dict[str, bytes]:
    """Every wheel that lies inside another one, by its name."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*command, "--dest", str(folder), COMPILED_IN], check=True, stderr=subprocess.DEVNULL)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as outer:
        return {Path(name).name: outer.read(name) for name in outer.namelist() if name.endswith(".whl")}


def add(out: Path, entry: dict[str, Any], other: dict[str, Any], compiled: dict[str, bytes], python: str) -> dict:
    """Put one package into `out`; its entry in the list."""
    content = compiled.get(other["file_name"], b"")
    if hashlib.sha256(content).hexdigest() == other["sha256"]:
        (out / other["file_name"]).write_bytes(content)
        return other
    if not entry["file_name"].endswith("-none-any.whl"):
        raise SystemExit(f"No wheel with the right checksum was found for {entry['file_name']}.")
    with tempfile.TemporaryDirectory() as folder:
        download([f"{entry['name']}=={entry['version']}"], Path(folder), python)
        (path,) = Path(folder).iterdir()
        shutil.copy(path, out)
    digest = hashlib.sha256((out / path.name).read_bytes()).hexdigest()
    return entry | {"file_name": path.name, "sha256": digest}


def gather(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        core, other = (npm_package(version, folder) for version in (PYODIDE_VERSION, COMPILED_FOR))
        lock, old = (json.loads((package / LOCK).read_text(encoding="utf-8")) for package in (core, other))
        if lock["info"]["abi_version"] != old["info"]["abi_version"]:
            raise SystemExit(f"Wheels for Pyodide {COMPILED_FOR} do not run in {PYODIDE_VERSION}.")
        for file in CORE:
            shutil.copy(core / file, out)
        compiled, listed = compiled_wheels(folder), lock["packages"]
        names = needed(listed, WANTED)
        python = lock["info"]["python"]
        made = {name: add(out, listed[name], old["packages"][name], compiled, python) for name in names}
    (out / LOCK).write_text(json.dumps(lock | {"packages": made}), encoding="utf-8")
    size = sum(path.stat().st_size for path in out.iterdir()) / 1e6
    print(f"Pyodide {PYODIDE_VERSION} with {len(names)} packages in {out}, {size:.0f} MB.")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    gather(Path(sys.argv[1]))
