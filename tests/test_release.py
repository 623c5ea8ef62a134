"""The students' copy: what is in it, what is not, that it works, and that nobody's edits are lost."""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from course_lib import cli, exercises
from course_lib.grading import release as module
from course_lib.grading.release import FILES, LIBRARY, MARKER, contents, release

ROOT = Path(__file__).resolve().parents[1]
NAME = "exercises/04_queries_keys_values.ipynb"
# Packages that students do not get. One that stands neither here nor in LIBRARY is a decision still to be made.
AT_HOME = {"grading", "site", "validate"}
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The students' copy of the real course."""
    out = tmp_path_factory.mktemp("release") / "course"
    release(ROOT, out)
    return out


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A small course with all that a release looks for, and much that it must not take."""
    root = tmp_path / "course"
    one = json.dumps({"cells": [{"cell_type": "markdown", "source": ["*Generated from `lessons/x`*"]}], "metadata": {}})
    extra = ("course_lib/grading/mark.py", "course_lib/secret.txt", "course_lib/__pycache__/a.py", ".env", "notes.md")
    others = ("solutions/04_queries_keys_values.ipynb", "lessons/04.py", "tests/test_x.py", "exercises/mine.ipynb")
    for name in (*FILES, "course_lib/__init__.py", "course_lib/cli.py", "course_lib/widgets/a.js", *extra, *others):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\n")
    for name in (NAME, "notebooks/00_welcome.ipynb"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(one)
    return root


def files(folder: Path) -> set[str]:
    found = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    return {p.as_posix() for p in found if p.parts[0] != ".git"}


# Where the course is installed for development, that installation would lend the copy the modules that it lacks.
ALONE = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]; "
COURSE = "from course_lib.cli import main; sys.exit(main(sys.argv[1:]))"


def python(copy: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Python in the students' copy; the only course_lib that it sees is the copy's own."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables = kept | {"COURSE_PROGRESS": str(copy.parent / "progress.json"), "PYTHONDONTWRITEBYTECODE": "1"}
    line = [sys.executable, "-c", ALONE + code, *words]
    return subprocess.run(line, cwd=copy, env=variables, capture_output=True, text=True, timeout=100)


# --- what is in it ------------------------------------------------------------------------------------------


def test_only_what_is_listed_goes_out(course: Path, tmp_path: Path) -> None:
    release(course, tmp_path / "out")
    library = {"course_lib/__init__.py", "course_lib/cli.py", "course_lib/widgets/a.js"}
    assert files(tmp_path / "out") == {*FILES, *library, NAME, "notebooks/00_welcome.ipynb", "README.md", MARKER}


def test_the_real_copy_has_every_notebook_and_nothing_of_the_instructors(copy: Path) -> None:
    assert {p.split("/")[0] for p in files(copy) if "/" in p} == {"course_lib", "exercises", "notebooks", "tools"}
    for folder in ("exercises", "notebooks"):
        assert {p.name for p in (copy / folder).iterdir()} == {p.name for p in (ROOT / folder).glob("[01]*.ipynb")}
    assert not AT_HOME & {p.name for p in (copy / "course_lib").iterdir()}


def test_every_package_of_the_library_is_decided_on() -> None:
    packages = {p.parent.name for p in (ROOT / "course_lib").glob("*/__init__.py")}
    given = {pattern.split("/")[0] for pattern in LIBRARY if "/" in pattern}
    assert packages == given | AT_HOME, "list the new package in release.LIBRARY, or in AT_HOME here"
    for folder in given:
        suffixes = {p.suffix for p in (ROOT / "course_lib" / folder).iterdir() if p.is_file()}
        assert suffixes == {Path(pattern).suffix for pattern in LIBRARY if pattern.startswith(folder)}


def test_what_students_get_imports_nothing_that_they_do_not_get(copy: Path) -> None:
    for path in (copy / "course_lib").rglob("*.py"):
        depth = len(path.relative_to(copy).parts) - 1  # the dots that lead to course_lib
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or path.name == "bench.py":
                continue
            names = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
            assert node.level != depth or not AT_HOME & set(names), f"{path.name} imports {names}"


def test_notebooks_do_not_speak_of_lessons_nor_show_outputs(copy: Path, tmp_path: Path) -> None:
    for path in [*(copy / "exercises").iterdir(), *(copy / "notebooks").iterdir()]:
        assert "Generated from" not in path.read_text(encoding="utf-8")
    ours, theirs = (json.loads((folder / NAME).read_text(encoding="utf-8")) for folder in (ROOT, copy))
    assert theirs["cells"] == ours["cells"][1:] and theirs["metadata"] == ours["metadata"]
    first = {"cell_type": "markdown", "source": ["*Generated from `x`*\n", "\n", "*Open in [Colab](y).*"]}
    code = {"cell_type": "code", "source": ["1"], "outputs": [{"text": "an answer"}], "execution_count": 3}
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps({"cells": [first, code]}))
    made = json.loads(module.student_notebook(path))["cells"]
    assert made[0]["source"] == ["*Open in [Colab](y).*"]
    assert made[1] == {"cell_type": "code", "source": ["1"], "outputs": [], "execution_count": None}


def test_a_folder_that_is_no_course_is_refused(tmp_path: Path, course: Path) -> None:
    with pytest.raises(ValueError, match="is this the course's folder"):
        contents(tmp_path)
    (course / NAME).write_text("{")
    with pytest.raises(ValueError, match="not a notebook that can be read"):
        contents(course)
    (course / NAME).unlink()
    with pytest.raises(ValueError, match="no exercises"):
        contents(course)


# --- that it works ------------------------------------------------------------------------------------------


def test_check_works_in_the_copy(copy: Path, tmp_path: Path) -> None:
    where = python(copy, "import course_lib.checks as c; print(c.__file__)").stdout.strip()
    assert Path(where) == copy.resolve() / "course_lib" / "checks.py"
    assert "No module named" in python(copy, "import course_lib.grading").stderr
    points = sum(exercise.points for exercise in exercises.of_unit("04"))
    done = python(copy, COURSE, "check", NAME)
    assert f"0 of {points} points." in done.stdout and "Still empty" in done.stdout, done.stderr
    solved = shutil.copy(ROOT / "solutions" / Path(NAME).name, tmp_path)
    done = python(copy, COURSE, "check", str(solved))
    assert f"{points} of {points} points." in done.stdout, done.stderr


@pytest.mark.parametrize("folder", [Path(), ROOT / "solutions"], ids=["stub", "answer"])
def test_a_cell_with_a_check_runs_in_the_copy(copy: Path, folder: Path) -> None:
    path = folder / Path(NAME).name if folder.name else copy / NAME
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    end = next(i for i, cell in enumerate(code) if cell.startswith("check("))
    done = python(copy, "\n".join(code[: end + 1]))
    assert (done.returncode == 0) == bool(folder.name), done.stderr
    assert "✓" in done.stdout if folder.name else "NotImplementedError: 04.1" in done.stderr


@pytest.mark.parametrize(
    "words", [["--help"], ["progress"], ["doctor", "--help"], ["lab", "--help"], ["bench", "--help"]]
)
def test_students_commands_work_in_the_copy(copy: Path, words: list[str]) -> None:
    done = python(copy, COURSE, *words)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["validate", "grade", "release"])
def test_instructors_commands_say_that_they_are_not_here(copy: Path, command: str) -> None:
    if command not in cli.COMMANDS:
        pytest.skip(f"there is no command {command}")
    done = python(copy, COURSE, command)
    assert done.returncode == 2
    assert "for instructors" in done.stderr and done.stderr.count("\n") == 1
    assert "doctor" not in done.stderr


def test_start_py_works_as_far_as_a_machine_without_network_lets_it(copy: Path) -> None:
    code = "import start; print(len(start.locked()['base']), start.identity()['folder'])"
    done = python(copy, code)
    assert done.returncode == 0 and str(copy.resolve()) in done.stdout, done.stderr


def test_the_readme_names_what_is_there(copy: Path) -> None:
    readme = (copy / "README.md").read_text(encoding="utf-8")
    assert "solutions" not in readme and "lessons" not in readme
    for name in ("start.py", "notebooks/", "exercises/", "course_lib/", NAME):
        assert f"{name}" in readme and (copy / name).exists()


# --- releasing again ----------------------------------------------------------------------------------------


def test_a_second_release_changes_nothing(course: Path, tmp_path: Path) -> None:
    first = release(course, tmp_path / "out")
    before = {name: (tmp_path / "out" / name).read_bytes() for name in files(tmp_path / "out")}
    second = release(course, tmp_path / "out")
    assert set(first.written) == {*before} - {MARKER} and first.same == ()
    assert second.written == second.deleted == second.kept == () and second.same == first.written
    assert before == {name: (tmp_path / "out" / name).read_bytes() for name in files(tmp_path / "out")}


def test_what_changed_is_replaced_and_what_vanished_is_deleted(course: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (course / "course_lib/exercises").mkdir()
    (course / "course_lib/exercises/u99.py").write_text("old")
    release(course, out)
    (out / "progress.json").write_text("mine")
    (course / "course_lib/cli.py").write_text("new")
    (course / "course_lib/exercises/u99.py").unlink()
    changes = release(course, out)
    assert (changes.written, changes.deleted) == (("course_lib/cli.py",), ("course_lib/exercises/u99.py",))
    assert (out / "course_lib/cli.py").read_text() == "new"
    assert not (out / "course_lib/exercises").exists()
    assert (out / "progress.json").read_text() == "mine"


def test_edits_are_left_alone_unless_forced(course: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    release(course, out)
    (out / NAME).write_text("my answer")
    (out / "course_lib/cli.py").write_text("my change")
    (out / "course_lib/new.py").write_text("my file")
    (course / "course_lib/cli.py").unlink()
    (course / "course_lib/new.py").write_text("theirs")
    for _ in range(2):
        changes = release(course, out)
        assert set(changes.kept) == {NAME, "course_lib/cli.py", "course_lib/new.py"} and not changes.written
        assert (out / NAME).read_text() == "my answer" and (out / "course_lib/cli.py").read_text() == "my change"
        assert (out / "course_lib/new.py").read_text() == "my file"
    changes = release(course, out, force=True)
    assert changes.kept == () and changes.deleted == ("course_lib/cli.py",)
    assert (out / NAME).read_bytes() == contents(course)[NAME] and (out / "course_lib/new.py").read_text() == "theirs"


def test_windows_line_ends_are_no_edit(course: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    release(course, out)
    (out / "course_lib/cli.py").write_bytes(b"# course_lib/cli.py\r\n")
    assert release(course, out).kept == ()


def test_a_folder_that_is_no_release_is_refused_unless_forced(course: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("precious")
    (out / "README.md").write_text("precious")
    for marker in (None, "{", '{"files": 3}'):
        if marker:
            (out / MARKER).write_text(marker)
        with pytest.raises(ValueError, match="holds no earlier release"):
            release(course, out)
    assert (out / "README.md").read_text() == "precious"
    release(course, out, force=True)
    assert (out / "thesis.tex").read_text() == "precious"
    assert (out / "README.md").read_text() != "precious"
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is not a folder"):
        release(course, tmp_path / "file", force=True)


def test_a_marker_cannot_reach_outside(course: Path, tmp_path: Path) -> None:
    release(course, tmp_path / "out")
    victim = tmp_path / "victim"
    victim.write_text("x")
    sums = {name: module._sum(b"x") for name in ("../victim", str(victim))}
    (tmp_path / "out" / MARKER).write_text(json.dumps({"files": sums}))
    release(course, tmp_path / "out", force=True)
    assert victim.exists()


@pytest.mark.parametrize("where", [".", ".."])
def test_the_course_itself_is_never_a_target(course: Path, where: str) -> None:
    with pytest.raises(ValueError, match="is the course itself"):
        release(course, course / where, force=True)


# --- git ----------------------------------------------------------------------------------------------------


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs git as nobody in particular, without this machine's settings."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A Teacher")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "teacher@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")

    def run(folder: Path, *words: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def command(course: Path, out: Path, *, git: bool = False, force: bool = False) -> int:
    return module.main(argparse.Namespace(root=course, out=out, git=git, force=force))


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A course whose notebooks are as their lessons say; or are not."""
    state = SimpleNamespace(wrong=[])
    monkeypatch.setattr(module.build, "differences", lambda root: state.wrong)
    return state


@needs_git
def test_a_pull_brings_the_new_release_and_keeps_the_students_answers(course: Path, tmp_path: Path, git, built) -> None:
    out, student = tmp_path / "out", tmp_path / "student"
    git(tmp_path, "init", "--quiet", "-b", "main", str(out))
    assert command(course, out, git=True) == 0
    assert git(out, "status", "--porcelain") == ""
    git(tmp_path, "clone", "--quiet", str(out), str(student))
    (student / NAME).write_text("my answer")
    git(student, "commit", "--quiet", "-am", "mine")
    (course / "course_lib/cli.py").write_text("new")
    (course / "course_lib/widgets/a.js").unlink()
    (out / "draft.md").write_text("not yet")
    assert command(course, out, git=True) == 0
    assert git(out, "rev-list", "--count", "HEAD") == "2"
    assert git(out, "status", "--porcelain") == "?? draft.md"
    git(student, "pull", "--quiet", "--no-rebase", "--no-edit")
    assert (student / NAME).read_text() == "my answer"
    assert (student / "course_lib/cli.py").read_text() == "new"
    assert not (student / "course_lib/widgets").exists() and not (student / "draft.md").exists()


@needs_git
def test_a_release_without_git_can_be_committed_later(course: Path, tmp_path: Path, git, built, capsys) -> None:
    out = tmp_path / "out"
    git(tmp_path, "init", "--quiet", str(out))
    command(course, out)
    command(course, out, git=True)
    assert set(git(out, "ls-files").split()) == files(out)
    command(course, out, git=True)
    assert git(out, "rev-list", "--count", "HEAD") == "1"
    assert "nothing to commit" in capsys.readouterr().out


@needs_git
def test_edits_in_the_repository_are_neither_replaced_nor_committed(
    course: Path, tmp_path: Path, git, built, capsys
) -> None:
    out = tmp_path / "out"
    git(tmp_path, "init", "--quiet", str(out))
    command(course, out, git=True)
    (out / NAME).write_text("my answer")
    (course / NAME).write_text((course / NAME).read_text().replace("lessons/x", "lessons/y").replace("{}", '{"a": 1}'))
    command(course, out, git=True)
    assert (out / NAME).read_text() == "my answer"
    assert f"left alone, since it was edited there: {NAME}" in capsys.readouterr().out
    assert git(out, "status", "--porcelain") == f"M {NAME}"


@needs_git
def test_git_needs_a_repository_with_nothing_staged(course: Path, tmp_path: Path, git, built) -> None:
    out = tmp_path / "outer" / "out"
    out.mkdir(parents=True)
    for make in (lambda: None, lambda: git(out.parent, "init", "--quiet"), (out / ".git").mkdir):
        make()  # a repository around the folder is not meant, even where git would find it
        with pytest.raises(ValueError, match="is not a git repository: make one with"):
            command(course, out, git=True)
    git(out, "init", "--quiet")
    (out / "x").write_text("")
    git(out, "add", "x")
    with pytest.raises(ValueError, match="changes are staged"):
        command(course, out, git=True)
    assert files(out) == {"x"}


def test_git_that_is_not_installed(course: Path, tmp_path: Path, built, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out" / ".git").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="needs the program git"):
        command(course, tmp_path / "out", git=True)


def test_notebooks_that_are_not_as_built_are_not_released(course: Path, tmp_path: Path, built) -> None:
    built.wrong = ["exercises/04 differs from its lesson"]
    with pytest.raises(ValueError, match=r"run `course build` first\. exercises/04 differs"):
        command(course, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_has_its_arguments() -> None:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    args = parser.parse_args(["--out", "x", "--git"])
    assert (args.out, args.git, args.force, args.root) == (Path("x"), True, False, Path.cwd())
