"""`course site --lite`: the NumPy units as a JupyterLite site, where Python itself runs in the reader's browser.

Lectures, figures, exercises and `check(...)` work there with nothing installed; the finished site asks no other host.
There is no torch in a browser: cells that need it are shown and say so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..grading import release
from ..shapes import expect
from ..units import NUMPY_UNITS, UNITS
from . import pyodide

MARKER = "jupyter-lite.json"
START = "lab/index.html?path=notebooks/00_welcome.ipynb"
NEEDS_TORCH = "**Needs torch: run on your machine.** Your browser cannot run this cell; nothing below hangs on it."
EXTENSIONS = ("jupyterlite-pyodide-kernel", "jupyterlab-widgets", "anywidget")
KERNEL = "@jupyterlite/pyodide-kernel-extension:kernel"
# /drive is the folder of the notebooks, which the browser keeps; a kernel's other files live as long as it does.
PYODIDE = {
    "packages": list(pyodide.KERNEL_FIRST),
    "env": {"HOME": "/home/pyodide", "COURSE_PROGRESS": "/drive/progress.json"},
}
SETTINGS = {
    "jupyter-lite-schema-version": 0,
    "jupyter-config-data": {
        "appName": "Attention and Transformers",
        "exposeAppInBrowser": True,
        # Every cell is drawn, so that the browser's own search finds it, and figures stay where they are.
        "settingsOverrides": {"@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"}},
        "litePluginSettings": {KERNEL: {"disablePyPIFallback": True, "loadPyodideOptions": PYODIDE}},
    },
}
# The pages of JupyterLite look for their settings in this page's script, up to the folder that it calls the root.
INDEX = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={START}">
<title>Attention and Transformers</title>
<script id="jupyter-config-data" type="application/json" data-jupyter-lite-root=".">{{}}</script>
</head>
<body><p>The course opens here: <a href="{START}">Welcome</a>.</p></body>
</html>
"""


def build_lite(out: Path, root: Path, pyodide_at: str | None = None) -> None:
    """Write the edition for the browser into `out`.

    `pyodide_at`: a folder or an address with Pyodide's files; else $COURSE_PYODIDE, else where Pyodide publishes them.
    """
    root, out = root.resolve(), out.resolve()
    location = pyodide_at or os.environ.get("COURSE_PYODIDE") or pyodide.own_address()
    fresh = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    expect(fresh or (out / MARKER).is_file(), f"{out} holds something else: choose an empty folder, or a new one.")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".lite-") as name:
        work, made = Path(name), Path(name) / "made"
        files = release.contents(root)
        library = {path: content for path, content in files.items() if path.startswith("course_lib/")}
        pyodide.write_distribution(work / "static" / "pyodide", location, library)
        write_notebooks(files, work / "contents")
        (work / MARKER).write_text(json.dumps(SETTINGS), encoding="utf-8")
        _run_jupyterlite(work, made)
        (made / "index.html").write_text(INDEX, encoding="utf-8")
        if not fresh:
            shutil.rmtree(out)
        shutil.copytree(made, out, dirs_exist_ok=True)


def _run_jupyterlite(work: Path, made: Path) -> None:
    """JupyterLite's own build: its application, the three extensions and no other, and the notebooks."""
    config = {
        "lite_dir": str(work),
        "output_dir": str(made),
        "contents": [str(work / "contents")],
        "apps": ["lab"],
        "federated_extensions": [str(pyodide.extension(distribution)) for distribution in EXTENSIONS],
        "ignore_sys_prefix": ["federated_extensions"],
        "no_sourcemaps": True,
        "no_unused_shared_packages": True,
    }
    (work / "jupyter_lite_config.json").write_text(json.dumps({"LiteBuildConfig": config}), encoding="utf-8")
    command = [sys.executable, "-m", "jupyterlite_core", "build"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True)
    tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
    expect(done.returncode == 0, f"JupyterLite could not build the site:\n{tail}")


# --- the notebooks ----------------------------------------------------------------------------------------------


def write_notebooks(files: dict[str, bytes], out: Path) -> None:
    """Lectures and exercises of the NumPy units, as students get them, with torch's cells to read."""
    names = [unit.name for unit in UNITS if unit.number in NUMPY_UNITS]
    for path in (f"{folder}/{name}.ipynb" for folder in ("notebooks", "exercises") for name in names):
        if path in files:
            notebook = for_the_browser(json.loads(files[path]))
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_text(json.dumps(notebook, indent=1, ensure_ascii=False), encoding="utf-8")


def for_the_browser(notebook: dict[str, Any]) -> dict[str, Any]:
    """The same notebook for a kernel without torch."""
    kernel = {"display_name": "Python (Pyodide)", "language": "python", "name": "python"}
    cells = [
        _to_read(cell) if "needs-torch" in cell["metadata"].get("tags", ()) else cell for cell in notebook["cells"]
    ]
    return notebook | {"cells": cells, "metadata": notebook["metadata"] | {"kernelspec": kernel}}


def _to_read(cell: dict[str, Any]) -> dict[str, Any]:
    """A code cell as text: its code, and why it does not run here."""
    if cell["cell_type"] != "code":
        return cell
    text = f"{NEEDS_TORCH}\n\n```python\n{''.join(cell['source'])}\n```"
    return {
        "cell_type": "markdown",
        "id": cell["id"],
        "metadata": cell["metadata"],
        "source": text.splitlines(keepends=True),
    }
