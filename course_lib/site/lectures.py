"""Each lecture is executed once, and again only when it changes: its own text, the locked packages, or a file of the
library that it used last time.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..shapes import expect
from ..validate import step
from ..validate.pages import STOP_AFTER, kernel_env
from .figures import STATE

LIBRARY = Path(__file__).resolve().parents[1]
# Run as a last cell: the library's files that the lecture has loaded.
ASK_WHAT_WAS_USED = """
import sys
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] == "course_lib" and getattr(module, "__file__", None):
        print(module.__file__)
"""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]


def executed(paths: list[Path], cache: Path, jobs: int) -> dict[str, dict[str, Any]]:
    """The lectures with their outputs, by name: from the cache, or run now, several side by side."""
    known = {path: remembered(path, cache) for path in paths}
    todo = [path for path in paths if known[path] is None]
    total = sum(len(code_cells(json.loads(path.read_bytes()))) for path in todo)
    with step("executing lectures", total) as bar, ThreadPoolExecutor(jobs) as pool:
        bar.set_postfix_str(f"{len(paths) - len(todo)} of {len(paths)} from the cache")
        known |= zip(todo, pool.map(lambda path: execute(path, cache, bar.update), todo), strict=True)
    return {path.stem: notebook for path, notebook in known.items() if notebook is not None}


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


# --- the cache ----------------------------------------------------------------------------------------------


def entry(path: Path, cache: Path) -> Path:
    """Where the outputs of this very text with these very packages are kept."""
    lock = path.parents[1] / "lock.txt"
    packages = lock.read_bytes() if lock.exists() else b""
    return cache / "executed" / f"{path.stem}-{digest(path.read_bytes() + packages)}.json"


def remembered(path: Path, cache: Path) -> dict[str, Any] | None:
    """The lecture as it was executed before, unless a file that it used has changed since."""
    try:
        kept = json.loads(entry(path, cache).read_text(encoding="utf-8"))
        fresh = all(digest((LIBRARY / name).read_bytes()) == was for name, was in kept["used"].items())
        return kept["notebook"] if fresh else None
    except (OSError, ValueError, KeyError):
        return None


def remember(path: Path, cache: Path, notebook: dict[str, Any], used: list[Path]) -> None:
    """Keep it, in place of what was kept of this lecture before; whole or not at all."""
    file = entry(path, cache)
    file.parent.mkdir(parents=True, exist_ok=True)
    for older in file.parent.glob(f"{path.stem}-*.json"):
        older.unlink()
    digests = {str(name.relative_to(LIBRARY)): digest(name.read_bytes()) for name in used}
    part = file.with_suffix(".part")
    part.write_text(json.dumps({"used": digests, "notebook": notebook}, ensure_ascii=False), encoding="utf-8")
    part.replace(file)


def with_scripts(modules: list[Path], notebook: dict[str, Any]) -> list[Path]:
    """The modules, and of the scripts and styles beside them those that a figure of the notebook carries."""
    models = notebook["metadata"].get("widgets", {}).get(STATE, {}).get("state", {}).values()
    carried = "\n".join(model["state"].get(part, "") for model in models for part in ("_esm", "_css"))
    beside = {file for folder in {path.parent for path in modules} for file in folder.glob("*.[jc]s*")}
    return sorted({file for file in beside if file.read_text(encoding="utf-8") in carried}.union(modules))


# --- running ------------------------------------------------------------------------------------------------


def execute(path: Path, cache: Path, on_cell: Callable[[], object]) -> dict[str, Any]:
    """Run a lecture in a kernel of its own, from its own folder, without touching anybody's progress."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellControlSignal, DeadKernelError

    notebook: Any = nbformat.read(path, 4)  # type: ignore[no-untyped-call]
    notebook.cells.append(nbformat.v4.new_code_cell(ASK_WHAT_WAS_USED))  # type: ignore[no-untyped-call]
    where = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=2 * STOP_AFTER, kernel_name="python3", resources=where)
    client.on_cell_executed = lambda cell, cell_index, execute_reply: on_cell()
    with tempfile.TemporaryDirectory(prefix="course-site-") as scratch:
        try:
            client.execute(env=kernel_env(Path(scratch)))
        except (CellControlSignal, DeadKernelError, RuntimeError) as error:
            raise ValueError(f"notebooks/{path.name} does not run to its end: {last_line(error)}") from error
    answer = notebook.cells.pop()
    said = "".join(output.get("text", "") for output in answer.outputs)
    used = [file for file in map(Path, said.split("\n")) if file.is_relative_to(LIBRARY)]
    expect(bool(used), f"notebooks/{path.name} uses nothing of course_lib from {LIBRARY}: is another one installed?")
    plain = json.loads(nbformat.writes(notebook))  # type: ignore[no-untyped-call]
    remember(path, cache, plain, with_scripts(used, plain))
    return plain


def last_line(error: BaseException) -> str:
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
