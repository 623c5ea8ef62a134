"""Python for the browser: the few files of Pyodide that the course needs, each checked, and the course's own wheels.

Pyodide reads a list of packages, `pyodide-lock.json`, and fetches one from beside it as soon as a cell imports it. Here
that list is cut down to what the course needs, and the course itself is put on it: a notebook says `import course_lib`
as it does anywhere else, and nothing has to be installed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from .. import __version__
from ..shapes import expect

LOCK = "pyodide-lock.json"
CORE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
KERNEL_FIRST = ("micropip", "piplite", "ipykernel", "comm", "pyodide-kernel", "jedi", "ipython")  # what a kernel loads
# Pure Python, in the versions that are installed here and so were tested with the figures: what each needs in turn.
WHEELS = {
    "comm": ("traitlets",),
    "ipywidgets": ("comm", "ipython", "traitlets"),
    "psygnal": (),
    "anywidget": ("ipywidgets", "psygnal", "typing-extensions"),
}
COURSE = {"attention-course": ("numpy", "matplotlib", "anywidget")}


def own_address() -> str:
    """Where Pyodide itself publishes the release that the kernel was made for."""
    from jupyterlite_pyodide_kernel.constants import PYODIDE_CDN_URL

    return str(PYODIDE_CDN_URL)


def reader(location: str) -> Callable[[str], bytes]:
    """A function that gives the content of a file of the distribution, which is a folder or a web address."""
    if re.match(r"https?://", location):
        return lambda name: _fetch(f"{location.rstrip('/')}/{name}")
    folder = Path(location)
    expect((folder / LOCK).is_file(), f"{folder} is no Pyodide distribution: it has no {LOCK}.")
    return lambda name: _read(folder / name)


def _fetch(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return answer.read()
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise ValueError(
            f"{address} could not be fetched ({reason}). Name another place, a folder or an address, with --pyodide."
        ) from None


def _read(path: Path) -> bytes:
    expect(path.is_file(), f"{path} is missing: the Pyodide distribution is not whole.")
    return path.read_bytes()


# --- the folder -------------------------------------------------------------------------------------------------


def write_distribution(out: Path, location: str, library: dict[str, bytes]) -> None:
    """What a page needs to run Python: interpreter, packages, and the course (`library`: its files by their path)."""
    read = reader(location)
    out.mkdir(parents=True, exist_ok=True)
    for name in CORE:
        (out / name).write_bytes(read(name))
    lock = json.loads(read(LOCK))
    ours = _own_wheels(out, lock["info"]["python"]) | _course_wheel(out, library)
    theirs = needed(lock["packages"], [*KERNEL_FIRST, *(n for e in ours.values() for n in e["depends"])], ours)
    for name in theirs:
        entry = lock["packages"][name]
        content = read(entry["file_name"])
        same = hashlib.sha256(content).hexdigest() == entry["sha256"]
        expect(same, f"{entry['file_name']} of {location} is not the file that its {LOCK} names: fetch it again.")
        (out / entry["file_name"]).write_bytes(content)
    lock["packages"] = {name: lock["packages"][name] for name in theirs} | ours
    (out / LOCK).write_text(json.dumps(lock), encoding="utf-8")


def needed(packages: dict[str, Any], wanted: Iterable[str], ours: Iterable[str] = ()) -> list[str]:
    """Names of packages and of all that they need, in alphabetical order, less those that we bring ourselves."""
    found: set[str] = set()
    todo = [_name(name) for name in wanted]
    while todo:
        name = todo.pop()
        if name in found or name in ours:
            continue
        expect(name in packages, f"Pyodide's list of packages has no {name}.")
        found.add(name)
        todo += map(_name, packages[name]["depends"])
    return sorted(found)


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


# --- wheels of our own ------------------------------------------------------------------------------------------


def _own_wheels(out: Path, python: str) -> dict[str, dict[str, Any]]:
    """Entries of the widgets' Python side, and of the kernel's, whose wheels lie beside its JavaScript."""
    entries = {}
    with tempfile.TemporaryDirectory() as folder:
        download([f"{name}=={metadata.version(name)}" for name in WHEELS], Path(folder), python)
        kernel = extension("jupyterlite-pyodide-kernel") / "static" / "pypi"
        for path in [*Path(folder).glob("*.whl"), *kernel.glob("*.whl")]:
            name = _name(path.name.split("-")[0])
            if name in WHEELS or name in KERNEL_FIRST:
                entries[name] = add_wheel(out, path.name, path.read_bytes(), WHEELS.get(name, ()))
    missing = {*WHEELS, "piplite", "ipykernel", "pyodide-kernel"} - entries.keys()
    expect(not missing, f"No wheel was found for {', '.join(sorted(missing))}.")
    return entries


def download(requirements: list[str], folder: Path, python: str) -> None:
    """Wheels in pure Python, from where pip takes its packages on this machine."""
    version = ".".join(python.split(".")[:2])
    anywhere = ["--implementation", "py", "--abi", "none", "--platform", "any", "--python-version", version]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", *anywhere, "--dest", str(folder), *requirements]
    done = subprocess.run(command, capture_output=True, text=True)
    said = done.stderr.strip().splitlines() or ["no reason given"]
    expect(done.returncode == 0, f"pip could not fetch {', '.join(requirements)}: {said[-1]}")


def extension(distribution: str) -> Path:
    """The folder in which a Python package brings its part of JupyterLab."""
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        raise ValueError(f"{distribution} is not installed: pip install -e '.[site]'.") from None
    found = [f for f in files if f.name == "package.json" and "labextensions" in f.parts]
    expect(len(found) == 1, f"{distribution} brings no part of JupyterLab: install it again.")
    return Path(str(found[0].locate())).resolve().parent


def _course_wheel(out: Path, library: dict[str, bytes]) -> dict[str, dict[str, Any]]:
    ((name, depends),) = COURSE.items()
    stem = f"{name.replace('-', '_')}-{__version__}"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {__version__}\n"
    tags = "Wheel-Version: 1.0\nGenerator: course\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = library | {f"{stem}.dist-info/METADATA": about.encode(), f"{stem}.dist-info/WHEEL": tags.encode()}
    path = out / f"{stem}-py3-none-any.whl"
    record = "".join(f"{name},sha256={_record_sum(content)},{len(content)}\n" for name, content in files.items())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file, content in (files | {f"{stem}.dist-info/RECORD": record.encode()}).items():
            wheel.writestr(zipfile.ZipInfo(file, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return {name: add_wheel(out, path.name, path.read_bytes(), depends)}


def _record_sum(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def add_wheel(out: Path, file: str, content: bytes, depends: Iterable[str]) -> dict[str, Any]:
    """Put a wheel beside the list of packages; its entry in that list."""
    (out / file).write_bytes(content)
    name, version = file.split("-")[:2]
    with zipfile.ZipFile(out / file) as wheel:
        tops = {inner.split("/")[0] for inner in wheel.namelist() if inner.endswith("/__init__.py")}
    return {
        "name": _name(name),
        "version": version,
        "file_name": file,
        "install_dir": "site",
        "sha256": hashlib.sha256(content).hexdigest(),
        "package_type": "package",
        "imports": sorted(tops),
        "depends": list(depends),
        "unvendored_tests": False,
    }
