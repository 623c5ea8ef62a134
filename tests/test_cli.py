"""The command `course`: what it runs, what it imports, and how it ends."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from course_lib import cli


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A command `fake` whose `main` can be exchanged; it counts how often it was imported."""
    module = SimpleNamespace(loaded=0, main=lambda args: args.number)

    def load(name: str) -> SimpleNamespace:
        assert name == "fake"
        module.loaded += 1
        return module

    module.add_arguments = lambda parser: parser.add_argument("--number", type=int, default=0)
    monkeypatch.setitem(cli.COMMANDS, "fake", cli.Command("fake", "do as if", "course fake --number 3"))
    monkeypatch.setattr(cli, "load", load)
    return module


def test_the_exit_code_is_the_command_s_own(fake: SimpleNamespace) -> None:
    assert cli.main(["fake"]) == 0
    assert cli.main(["fake", "--number", "3"]) == 3
    fake.main = lambda args: None
    assert cli.main(["fake"]) == 0


def test_every_command_follows_the_protocol() -> None:
    for name, command in cli.COMMANDS.items():
        module = cli.load(name)
        module.add_arguments(argparse.ArgumentParser())
        assert callable(module.main)
        assert command.example.startswith(f"course {name}")


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_names_every_command_and_imports_none(
    fake: SimpleNamespace, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert all(name in told and command.help in told for name, command in cli.COMMANDS.items())
    assert fake.loaded == 0


def test_help_of_a_command_shows_its_arguments(fake: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["fake", "--help"])
    told = capsys.readouterr().out
    assert "--number" in told
    assert "course fake --number 3" in told


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bnech"])
    assert ended.value.code == 2
    assert "bnech" in capsys.readouterr().err


def failing(error: BaseException):
    def main(args: argparse.Namespace) -> int:
        raise error

    return main


@pytest.mark.parametrize("error", [ValueError("heads must divide d_model"), ImportError("No module named 'x'")])
def test_a_mistake_is_one_line(fake: SimpleNamespace, capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    fake.main = failing(error)
    assert cli.main(["fake"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"course fake: {error}")
    assert told.count("\n") == 1
    assert ("course doctor" in told) == isinstance(error, ImportError)


@pytest.mark.parametrize("words", [["--debug", "fake"], ["fake", "--debug"]])
def test_debug_shows_where(fake: SimpleNamespace, words: list[str]) -> None:
    fake.main = failing(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        cli.main(words)


def test_an_error_of_ours_is_not_hidden(fake: SimpleNamespace) -> None:
    fake.main = failing(RuntimeError("a defect"))
    with pytest.raises(RuntimeError):
        cli.main(["fake"])


def test_interrupted(fake: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    fake.main = failing(KeyboardInterrupt())
    assert cli.main(["fake"]) == 130
    assert "Stopped" in capsys.readouterr().err


def test_help_does_not_wait_for_torch(root: Path) -> None:
    code = "import sys, course_lib.cli as c\ntry: c.main(['--help'])\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.stdout.split()[-1] == "False"
