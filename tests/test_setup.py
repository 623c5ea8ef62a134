"""start.py with fakes in place of pip and the network, and the three lists of packages in step."""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
posix_only = pytest.mark.skipif(os.name != "posix", reason="the fake Python is a script with a #! line")


# --- the three lists of packages ----------------------------------------------------------------------------


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(lines: list[str]) -> dict[str, SpecifierSet]:
    return {canonicalize_name(item.name): item.specifier for item in map(Requirement, lines)}


def lock_lines() -> list[str]:
    lines = (ROOT / "lock.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def conda() -> dict:
    return yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


OWN = ("pip", "python")  # conda's, which pip has no name for


def conda_packages() -> dict[str, SpecifierSet]:
    lines = [line for line in conda()["dependencies"] if isinstance(line, str) and line.split("=")[0] not in OWN]
    return requirements([line.replace("pytorch", "torch") for line in lines])


def test_conda_names_the_packages_and_ranges_of_pyproject() -> None:
    assert conda_packages() == requirements(project()["dependencies"])


def test_conda_and_binder_take_one_python_of_the_range() -> None:
    (line,) = (line for line in conda()["dependencies"] if str(line).startswith("python"))
    match = re.match(r"python\s*=+\s*([\d\.]*)", line)  # how repo2docker reads it; else it starts from an old Python
    assert match and match[1] in SpecifierSet(project()["requires-python"])


def test_conda_takes_only_the_course_itself_from_pip_and_all_else_from_conda_forge() -> None:
    assert conda()["channels"] == ["conda-forge"]
    assert [line["pip"] for line in conda()["dependencies"] if isinstance(line, dict)] == [["-e ."]]


def test_lock_holds_every_direct_dependency_within_its_range() -> None:
    held = dict(line.split("==") for line in lock_lines())
    extras = [line for lines in project()["optional-dependencies"].values() for line in lines]
    for name, ranges in requirements(project()["dependencies"] + extras).items():
        assert name in held, f"{name} is not in lock.txt: run tools/relock.py"
        assert Version(held[name]) in ranges, f"lock.txt has {name} {held[name]}: run tools/relock.py"


def test_lock_has_one_exact_version_per_package_and_nothing_else() -> None:
    names = []
    for line in lock_lines():
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line), f"not name==version: {line}"
        names.append(line.split("==")[0])
    assert len(names) == len(set(names))
    assert "torch==2.13.0" in lock_lines()


def test_lock_groups_are_the_extras(start: ModuleType) -> None:
    groups = start.locked()
    assert list(groups) == ["base", *project()["optional-dependencies"]]
    assert [line for lines in groups.values() for line in lines] == lock_lines()


def test_python_versions_agree(start: ModuleType) -> None:
    ranges = SpecifierSet(project()["requires-python"])
    assert [v for v in ("3.10", "3.11", "3.12", "3.13", "3.14") if v in ranges] == list(start.PYTHONS)
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == list(start.PYTHONS)


# --- start.py in a folder of its own ------------------------------------------------------------------------

FAKE_PYTHON = """\
#!{python}
import json, os, pathlib, sys, time
here = pathlib.Path(__file__).resolve().parent.parent
words = sys.argv[1:]
with open(here.parent / "calls.txt", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
if words[0] == "-c":
    sys.exit((here.parent / "broken").exists())
if "--dry-run" in words and (here.parent / "cuda").exists():
    print("Collecting filelock (from torch)\\nCollecting nvidia-cublas==13.1 (from torch)", flush=True)
    time.sleep(60)
if "--index-url" in words and (here.parent / "no cpu builds").exists():
    sys.exit("NewConnectionError")
fails = here.parent / "fails.txt"
if fails.exists() and "--editable" in words:
    print(fails.read_text(), flush=True)
    time.sleep(60 if (here.parent / "hang").exists() else 0)
    sys.exit(1)
print("Collecting numpy<3\\nInstalling collected packages: numpy")
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """start.py loaded from a copy, so that its .venv is one of our own; no GPU, no CUDA, plenty of room."""
    for name in ("start.py", "lock.txt", "pyproject.toml", "tools"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    monkeypatch.syspath_prepend(str(ROOT))
    spec = importlib.util.spec_from_file_location("start_copy", tmp_path / "start.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "has_nvidia", lambda: False)
    monkeypatch.setattr(module.sys, "platform", "linux")
    return module


@pytest.fixture
def fake(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """start.py whose .venv gets a Python that only pretends to be pip."""

    def make_venv() -> None:
        shutil.rmtree(start.VENV, ignore_errors=True)
        start.PYTHON.parent.mkdir(parents=True)
        start.PACKAGES.mkdir(parents=True)
        start.PYTHON.write_text(FAKE_PYTHON.format(python=sys.executable))
        start.PYTHON.chmod(0o755)
        made.append("made")

    made: list[str] = []
    monkeypatch.setattr(start, "made", made, raising=False)
    monkeypatch.setattr(start, "make_venv", make_venv)
    return start


def pip_calls(start: ModuleType) -> list[list[str]]:
    lines = (start.ROOT / "calls.txt").read_text().splitlines()
    return [words[words.index("install") + 1 :] for words in map(json.loads, lines) if "install" in words]


@posix_only
def test_installs_once_and_then_finds_nothing_to_do(fake: ModuleType) -> None:
    fake.prepare(set())
    assert pip_calls(fake)[-1][-1] == "."
    assert [call[-1] for call in pip_calls(fake)][:2] == ["torch==2.13.0", "setuptools"]
    assert all("lock.txt" in call for call in pip_calls(fake)[1:])
    before = len(pip_calls(fake))
    fake.prepare(set())
    assert len(pip_calls(fake)) == before
    assert "Collecting numpy" in fake.LOG.read_text()


@posix_only
def test_an_extra_is_added_and_kept(fake: ModuleType) -> None:
    fake.prepare(set())
    fake.prepare({"test"})
    assert pip_calls(fake)[-1][-1] == ".[test]"
    assert fake.read_stamp()["extras"] == ["test"]
    (fake.ROOT / "lock.txt").open("a").write("\n# changed\n")
    assert fake.plan(set()) == "add"
    before = len(pip_calls(fake))
    fake.prepare(set())
    assert len(pip_calls(fake)) > before
    assert pip_calls(fake)[-1][-1] == ".[test]", "an update forgets no extra"
    assert fake.made == ["made"]


@posix_only
@pytest.mark.parametrize("damage", ["stamp gone", "stamp garbled", "other python", "moved", "python broken"])
def test_a_damaged_venv_is_made_anew(fake: ModuleType, damage: str) -> None:
    fake.prepare(set())
    stamp = fake.read_stamp()
    if damage == "stamp gone":
        fake.STAMP.unlink()
    elif damage == "stamp garbled":
        fake.STAMP.write_text('["cut of')
    elif damage == "python broken":
        (fake.ROOT / "broken").touch()
    else:
        key = "python" if damage == "other python" else "folder"
        fake.STAMP.write_text(json.dumps(dict(stamp, **{key: "elsewhere"})))
    assert fake.plan(set()) == "anew"
    fake.prepare(set())
    assert fake.made == ["made", "made"]


@posix_only
def test_a_failed_installation_leaves_no_stamp(fake: ModuleType) -> None:
    fake.prepare(set())
    (fake.ROOT / "fails.txt").write_text("ERROR: Temporary failure in name resolution")
    with pytest.raises(fake.Trouble, match=r"network does not answer[\s\S]*install.log"):
        fake.prepare({"test"})
    assert fake.plan(set()) == "anew"


@posix_only
def test_without_a_driver_torch_comes_from_the_cpu_builds(fake: ModuleType) -> None:
    (fake.ROOT / "cuda").touch()
    began = time.monotonic()
    fake.prepare(set())
    assert time.monotonic() - began < 30, "the question must end at the first sign of CUDA"
    assert pip_calls(fake)[1] == [
        *pip_calls(fake)[1][:-4],
        "--no-deps",
        "--index-url",
        fake.CPU_WHEELS,
        "torch==2.13.0+cpu",
    ]
    assert sum("--index-url" in call for call in pip_calls(fake)) == 1


@posix_only
def test_where_the_cpu_builds_cannot_be_had_their_address_is_named(fake: ModuleType) -> None:
    (fake.ROOT / "cuda").touch()
    (fake.ROOT / "no cpu builds").touch()
    with pytest.raises(fake.Trouble, match=r"does not answer[\s\S]*without CUDA, from https://download\.pytorch"):
        fake.prepare(set())
    assert fake.plan(set()) == "anew"


@posix_only
@pytest.mark.parametrize("why", ["driver", "macOS", "no CUDA in the answer"])
def test_otherwise_pip_is_left_to_choose(fake: ModuleType, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why != "no CUDA in the answer":
        (fake.ROOT / "cuda").touch()
    if why == "driver":
        monkeypatch.setattr(fake, "has_nvidia", lambda: True)
    if why == "macOS":
        monkeypatch.setattr(fake.sys, "platform", "darwin")
    fake.prepare(set())
    assert not any("--index-url" in call for call in pip_calls(fake))


@posix_only
def test_an_interrupted_pip_is_stopped(fake: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fails.txt", "hang"):
        (fake.ROOT / name).write_text("Collecting x")
    started = []
    real = subprocess.Popen

    def popen(*words, **options):
        started.append(real(*words, **options))
        return started[-1]

    monkeypatch.setattr("tools.run_pip.subprocess.Popen", popen)
    calls = []
    monkeypatch.setattr(fake.Progress, "read", lambda self, line: calls.append(line) or interrupt(line))

    def interrupt(line: str) -> None:
        if line.strip() == "Collecting x":
            raise KeyboardInterrupt

    assert fake.main(["--check"]) == 130
    assert all(process.poll() is not None for process in started)
    assert not fake.STAMP.exists()


# --- one at a time ------------------------------------------------------------------------------------------


@posix_only
def test_a_second_start_waits_for_the_first_and_even_for_its_orphaned_pip(start: ModuleType) -> None:
    code = textwrap.dedent(
        f"""
        import subprocess, sys, time
        sys.path.insert(0, {str(start.ROOT)!r})
        import start
        with start.only_one():
            pip = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
            print(pip.pid, flush=True)
            time.sleep(60)
        """
    )
    first = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert first.stdout
    pip = int(first.stdout.readline())
    handle = os.open(start.ROOT / ".venv.lock", os.O_RDWR)
    try:
        assert not start.take(handle)
        first.kill()
        first.wait()
        assert not start.take(handle), "pip still runs"
        os.kill(pip, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while not start.take(handle) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert start.take(handle)
    finally:
        first.stdout.close()
        os.close(handle)


def test_the_one_who_waited_looks_again(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = iter(["anew", "nothing"])
    monkeypatch.setattr(start, "plan", lambda extras: next(plans))
    monkeypatch.setattr(start, "install", lambda *words: pytest.fail("the other start.py did it already"))
    start.prepare(set())


# --- plain words --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "bits", "fault"),
    [((3, 10, 4), 64, "3.10: too old"), ((3, 14, 0), 64, "3.14: too new"), ((3, 12, 1), 32, "3.12: 32-bit")],
)
def test_a_python_that_does_not_fit_is_refused(start: ModuleType, version, bits, fault) -> None:
    with pytest.raises(start.Trouble, match=fault + r"\.\nGet Python 3.12"):
        start.check_python(version, bits, find=lambda name: None)
    with pytest.raises(start.Trouble, match=r"run: python3\.12 start\.py"):
        start.check_python(version, bits, find=lambda name: name if name in ("python3.11", "python3.12") else None)


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 12, 9), (3, 13, 2)])
def test_a_python_that_fits_is_taken(start: ModuleType, version: tuple[int, ...]) -> None:
    start.check_python(version, 64)


@pytest.mark.parametrize("name", ["start.py", "tools/run_pip.py"])
def test_an_old_python_can_read_the_file_to_the_end(name: str) -> None:
    ast.parse((ROOT / name).read_text(encoding="utf-8"), feature_version=(3, 6))


@pytest.mark.parametrize("name", ["start.py", "tools/run_pip.py"])
def test_only_the_standard_library_is_needed(name: str) -> None:
    tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
    modules = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in modules} <= {*sys.stdlib_module_names, "tools", "msvcrt", "fcntl"}


def test_debian_without_venv(start: ModuleType) -> None:
    with pytest.raises(start.Trouble, match=r"sudo apt install python3\.1\d-venv"):
        start.check_venv_module(find=lambda name: None if name == "ensurepip" else name)
    start.check_venv_module(find=lambda name: name)


def test_no_room(start: ModuleType) -> None:
    with pytest.raises(start.Trouble, match=r"needs 3 GB, and 1.5 GB are free"):
        start.check_room(3, 1.5e9)
    start.check_room(3, 3.1e9)


def test_a_folder_that_cannot_be_written_to(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(start.os, "open", refuse)
    with pytest.raises(start.Trouble, match=r"cannot be written to\. Copy the course"):
        start.prepare(set())


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "global.cert"),
        ("Cannot connect to proxy. OSError('Tunnel connection failed: 407 Proxy", "HTTPS_PROXY"),
        (
            "[Errno -3] Temporary failure in name resolution'\nERROR: No matching distribution",
            "network does not",
        ),
        ("[Errno 11001] getaddrinfo failed", "network does not answer"),
        ("NewConnectionError('[Errno -2] Name or service not known", "network does not answer"),
        ("ERROR: No matching distribution found for torch==2.13.0", "no build for this computer"),
        ("HINT: ... does not have Windows Long Path support enabled", "short name"),
        ("[WinError 32] The process cannot access the file", "Close what uses it"),
        ("[Errno 30] Read-only file system: '/course/.venv'", "cannot be changed"),
        ("Collecting a\nERROR: ResolutionImpossible\nfor help visit", "ResolutionImpossible"),
        ("nothing in particular", "nothing in particular"),
    ],
)
def test_what_pip_says_is_put_into_plain_words(start: ModuleType, said: str, told: str) -> None:
    words = start.explain(said, Path(".venv"))
    assert told in words
    assert "{" not in words


def test_errors_of_the_system_are_explained_too(
    start: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(extras):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(start, "prepare", fail)
    assert start.main([]) == 1
    assert "The disk is full" in capsys.readouterr().err


def test_help_and_unknown_words(start: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert start.main(["--help"]) == 0
    assert "start.py --no-browser" in capsys.readouterr().out
    assert start.main(["--chek"]) == 2
    assert "does not know: --chek" in capsys.readouterr().err


def test_what_is_run_in_the_end(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start.os, "cpu_count", lambda: 2)
    command, variables = start.action(["test"])
    assert command == ["-m", "pytest", "-n", "2", "--dist", "loadfile", "tests"]
    assert variables["OMP_NUM_THREADS"] == "1"
    assert start.action(["test", "tests/test_masks.py", "-x"])[0][-2:] == ["tests/test_masks.py", "-x"]
    assert start.action(["--check"])[0] == ["-m", "course_lib.cli", "doctor"]
    assert start.action(["--no-browser"])[0] == ["-m", "course_lib.cli", "lab", "--no-browser"]


def test_the_wrong_packages_are_not_found_through_variables(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("PIP_USER", "1")
    assert "PYTHONPATH" not in start.environment()
    assert start.environment(A="1")["PIP_USER"] == "0"


# --- the line that moves ------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


OLD_PIP = """\
Collecting torch==2.13.0
  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (104.2 MB)
Collecting numpy<3,>=2.0 (from attention-course==0.1.0)
  Using cached https://mirror.example/numpy-2.4.6-cp311-cp311-win_amd64.whl (16 MB)
""".splitlines()
NEW_PIP = """\
Collecting jupyter-core (from x)
  Downloading jupyter_core-5.9.1-py3-none-any.whl.metadata (1.5 kB)
Downloading jupyter_core-5.9.1-py3-none-any.whl (29 kB)
""".splitlines()


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (OLD_PIP[:1], "looking up 1 of about 7: torch"),
        (OLD_PIP[:2], "downloading 1 of about 7: torch (104.2 MB)"),
        (OLD_PIP, "downloading 2 of about 7: numpy (16 MB)"),
        (NEW_PIP[:2], "looking up 1 of about 7: jupyter-core"),
        (NEW_PIP, "downloading 1 of about 7: jupyter_core (29 kB)"),
        (["Processing /wheels/torch-2.13.0+cpu-cp311.whl"], "downloading 1 of about 7: torch"),
        (["Requirement already satisfied: numpy"], "asking pip"),
        (["WARNING: Retrying (Retry(total=4, connect=None"], "the network does not answer; trying again"),
    ],
)
def test_progress_tells_what_pip_does(start: ModuleType, tmp_path: Path, lines: list[str], shown: str) -> None:
    progress = start.Progress(7, tmp_path, Terminal())
    for line in lines:
        progress.read(line + "\n")
    progress.show()
    assert progress.out.getvalue().strip() == f"{shown} (0 s)"


def test_progress_counts_what_has_been_installed(start: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "pip-23.dist-info").mkdir()
    progress = start.Progress(7, tmp_path, Terminal())
    progress.read("Installing collected packages: six, numpy, torch\n")
    for name in ("six-1", "numpy-2"):
        (tmp_path / f"{name}.dist-info").mkdir()
    progress.show()
    assert "installing 2 of 3: numpy" in progress.out.getvalue()


def test_progress_in_a_log_is_a_few_whole_lines(start: ModuleType, tmp_path: Path) -> None:
    progress = start.Progress(7, tmp_path, io.StringIO())
    for line in OLD_PIP:
        progress.read(line)
        progress.show()
    assert progress.out.getvalue().count("\n") == 1
    assert "\r" not in progress.out.getvalue()
