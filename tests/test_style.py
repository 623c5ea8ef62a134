"""The rules that keep the project readable: form, types, and who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

# Every file or folder of course_lib stands in one layer and imports only from its own and those above it.
LAYERS = {
    "ground": ["device", "shapes"],
    "ideas": ["attention", "blocks", "efficient", "masks", "positions", "rnn", "sparse"],
    "by hand": ["by_hand"],
    "models": ["gpt", "parts", "seq2seq", "transformer", "transformer_xl"],
    "use": [
        "checkpoints",
        "data",
        "decoding",
        "handed_in",
        "metrics",
        "number_words",
        "parallel",
        "switches",
        "training",
    ],
    "learn": ["capstone", "checks", "coverage", "exercises", "observe", "outcomes", "progress", "units"],
    "show": ["plots", "widgets"],
    "teach": ["bench", "build", "cli", "doctor", "grading", "lab", "notebook_check", "site", "validate"],
}
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names}
ORDER = list(LAYERS)
# by_hand is all that the edition in the browser needs, where there is no torch.
BY_HAND_MAY_IMPORT = {"shapes", "numpy"} | set(sys.stdlib_module_names)


class Import(NamedTuple):
    """Module `source` of the library imports `target`: a module of the library, or a package from outside."""

    source: str
    target: str
    ours: bool
    runs: bool  # False under `if TYPE_CHECKING:`


def type_only(tree: ast.Module) -> set[ast.AST]:
    """The nodes under `if TYPE_CHECKING:`, which a type checker reads and Python does not run."""
    guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    return {inner for guard in guards for statement in guard.body for inner in ast.walk(statement)}


def full_names(node: ast.AST, package: list[str]) -> list[str]:
    """The dotted names that an import statement asks for; `package` is where the file stands."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = package[: len(package) - node.level + 1] if node.level else []
    base = ".".join([*above, *([node.module] if node.module else [])])
    return [f"{base}.{alias.name}" for alias in node.names]


def imports(library: Path) -> list[Import]:
    """All imports in all files of the library, those inside functions included."""
    found = []
    for path in sorted(library.rglob("*.py")):
        parts = path.relative_to(library.parent).with_suffix("").parts
        if parts[1] == "__init__":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        quiet = type_only(tree)
        for node in ast.walk(tree):
            for name in full_names(node, list(parts[:-1])):
                ours = name.split(".")[0] == library.name
                target = name.split(".")[1 if ours and "." in name else 0]
                found.append(Import(parts[1], target, ours, node not in quiet))
    return [item for item in found if item.source != item.target]


def faults(library: Path) -> list[str]:
    """What breaks the rule of layers, in words."""
    names = {path.stem for path in library.glob("*.py")} | {path.parent.name for path in library.glob("*/__init__.py")}
    names -= {"__init__"}
    found = [
        f"{library.name}/{name} stands in no layer: add it to LAYERS in tests/test_style.py, "
        "and to the table in ARCHITECTURE.md"
        for name in sorted(names - set(LAYER_OF))
    ]
    graph: dict[str, set[str]] = {}
    for source, target, ours, runs in imports(library):
        if source == "by_hand" and target not in BY_HAND_MAY_IMPORT:
            found.append(f"by_hand imports {target}; it may import NumPy, shapes and the standard library")
        if not ours or source not in LAYER_OF or target not in LAYER_OF:
            continue
        below, above = LAYER_OF[source], LAYER_OF[target]
        if ORDER.index(above) > ORDER.index(below):
            found.append(f"{source} ({below}) imports {target} ({above}), which stands below it")
        if runs:
            graph.setdefault(source, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append("a circle of imports: " + " → ".join(reversed(error.args[1])))
    return found


def test_layers(root: Path) -> None:
    assert not faults(root / "course_lib")


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"shapes": "from .attention import softmax"}, r"shapes (ground) imports attention (ideas)"),
        ({"masks": "from course_lib import training"}, r"masks (ideas) imports training (use)"),
        ({"masks": "import course_lib.training"}, r"masks (ideas) imports training (use)"),
        ({"rnn": "def f():\n    from .gpt import GPT"}, r"rnn (ideas) imports gpt (models)"),
        ({"exercises/declare": "from ..build import run"}, r"exercises (learn) imports build (teach)"),
        ({"exercises/u01": "from .. import cli"}, r"exercises (learn) imports cli (teach)"),
        ({"masks": "from . import rnn", "rnn": "from . import masks"}, "a circle of imports"),
        ({"by_hand": "import torch.nn"}, "by_hand imports torch"),
        ({"by_hand": "from .masks import causal"}, "by_hand imports masks"),
        ({"novelty": ""}, "course_lib/novelty stands in no layer: add it to LAYERS in tests/test_style.py"),
        ({"folder/__init__": ""}, "course_lib/folder stands in no layer"),
    ],
)
def test_broken_layers_are_found(tmp_path: Path, files: dict[str, str], fault: str) -> None:
    for name, text in files.items():
        path = tmp_path / "course_lib" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = faults(tmp_path / "course_lib")
    assert len(found) == 1
    assert fault in found[0]


def test_sound_layers_are_not_blamed(tmp_path: Path) -> None:
    library = tmp_path / "course_lib"
    (library / "exercises").mkdir(parents=True)
    (library / "__init__.py").write_text("from . import cli")
    (library / "attention.py").write_text("if TYPE_CHECKING:\n    from .positions import Rotary\nimport torch")
    (library / "positions.py").write_text("from .attention import explicit\nfrom . import shapes, device")
    (library / "by_hand.py").write_text("import math\nimport numpy as np\nfrom course_lib.shapes import shape")
    (library / "exercises" / "__init__.py").write_text("from .declare import Exercise")
    (library / "exercises" / "declare.py").write_text("from .. import by_hand\nfrom ..shapes import expect")
    assert faults(library) == []


def python(code: str, root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)


def test_import_of_the_library_does_not_load_torch(root: Path) -> None:
    done = python("import sys, course_lib; print('torch' in sys.modules, 'numpy' in sys.modules)", root)
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_by_hand_runs_where_there_is_no_torch(root: Path) -> None:
    blocked = "import sys; sys.modules['torch'] = None; from course_lib import by_hand; print(by_hand.__name__)"
    done = python(blocked, root)
    assert done.stdout.strip() == "course_lib.by_hand", done.stderr


@pytest.mark.parametrize(
    "command",
    ["ruff format --check --diff .", "ruff check .", "mypy"],
    ids=["formatted", "linted", "typed"],
)
def test_tools_find_nothing(root: Path, command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command.split()], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-6000:]}{done.stderr[-2000:]}"
