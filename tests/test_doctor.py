"""`course doctor`: it finds what is wrong, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from course_lib import doctor

Capture = pytest.CaptureFixture[str]


def test_a_sound_installation_has_no_grave_fault() -> None:
    for check in (doctor.check_python, doctor.check_torch, doctor.check_jupyterlab, doctor.check_folder):
        assert all(finding.good for finding in doctor.run(check)), check.__name__


def test_needed_follows_the_requirements_and_their_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    requires = {
        "attention-course": ["A_b>=1", 'winonly; sys_platform == "nowhere"', 'pytest; extra == "test"'],
        "a-b": ["c[fast]", "attention-course"],
        "c": ['d; extra == "fast"', 'e; extra == "slow"', "gone"],
    }
    monkeypatch.setattr(doctor, "installed_version", lambda name: "1" if name != "gone" else None)
    monkeypatch.setattr(doctor.metadata, "requires", requires.get)
    assert doctor.needed() == {"a-b", "c", "d", "gone"}


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """What is installed; needed are a, b and c, locked are a, b, c at 1 and z (needed on another system)."""
    have: dict[str, str | None] = {"a": "1", "b": "1", "c": "1", "z": None}
    monkeypatch.setattr(doctor, "needed", lambda: {"a", "b", "c"})
    monkeypatch.setattr(doctor, "locked", lambda: {"a": "1", "b": "1", "c": "1", "z": "1"})
    monkeypatch.setattr(doctor, "installed_version", have.get)
    return have


def test_all_packages_there(packages: dict[str, str | None]) -> None:
    (finding,) = doctor.check_packages()
    assert finding.good
    assert "3 packages" in finding.what


def test_a_missing_package_and_another_version_are_named(
    packages: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.update(a=None, b="2", z="3")
    monkeypatch.setattr(sys, "prefix", str(doctor.ROOT / ".venv"))
    found = list(doctor.check_packages())
    assert [finding.what.split()[0] for finding in found] == ["a", "b", "z"]
    assert "is 2, the course was tested with 1" in found[1].what
    assert not any(finding.good for finding in found)
    assert all(finding.grave for finding in found)


def test_outside_of_venv_another_version_is_only_a_note(
    packages: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.update(b="2")
    monkeypatch.setattr(sys, "prefix", "/opt/conda/envs/attention-course")
    (finding,) = doctor.check_packages()
    assert not finding.good
    assert not finding.grave


def test_lock_is_read_without_its_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    assert doctor.locked() == {}
    (tmp_path / "lock.txt").write_text("# head\n\n# [base]\nnumpy==2.4.6\ntorch==2.13.0\n")
    assert doctor.locked() == {"numpy": "2.4.6", "torch": "2.13.0"}


@pytest.mark.parametrize(
    ("kind", "driver", "cuda", "good", "words"),
    [
        ("cuda", True, "13.0", True, "device cuda"),
        ("mps", False, None, True, "device mps"),
        ("cpu", False, None, True, "the course needs none"),
        ("cpu", True, None, False, "its build has no CUDA"),
        ("cpu", True, "13.0", False, "update the driver"),
    ],
)
def test_the_device_and_why(kind: str, driver: bool, cuda: str | None, good: bool, words: str) -> None:
    finding = doctor.device_finding(kind, driver=driver, cuda=cuda)
    assert finding.good == good
    assert words in finding.what + finding.advice
    assert good or not finding.grave


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ROOT", tmp_path / "missing")
    (finding,) = doctor.check_folder()
    assert not finding.good
    assert "copy the course" in finding.advice


def test_a_check_that_breaks_is_a_fault_of_its_own(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def check_torch():
        raise OSError("libgomp.so.1 is missing")
        yield

    monkeypatch.setattr(doctor, "CHECKS", (check_torch, doctor.check_folder))
    assert doctor.main() == 1
    told = capsys.readouterr().out
    assert "FAULT  torch does not work: OSError: libgomp.so.1 is missing" in told
    assert "ok     notebooks can be saved" in told
    assert told.endswith("1 fault: the arrows say what to do.\n")


def test_notes_do_not_make_it_fail(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    note = doctor.Finding(False, "something", "no matter", grave=False)
    monkeypatch.setattr(doctor, "CHECKS", (lambda: iter([note]),))
    assert doctor.main() == 0
    assert capsys.readouterr().out == "note   something\n       -> no matter\nAll is well.\n"
