"""`course lab`: what JupyterLab is asked for."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from jupyter_server.serverapp import ServerApp
from jupyterlab.labapp import LabApp

from course_lib import lab


def test_it_opens_the_welcome_notebook_where_there_is_one(tmp_path: Path) -> None:
    assert "--LabApp.default_url=/lab" in lab.options(tmp_path, browser=True, superuser=False)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / lab.WELCOME).touch()
    words = lab.options(tmp_path, browser=True, superuser=False)
    assert "--LabApp.default_url=/lab/tree/notebooks/00_welcome.ipynb" in words
    assert f"--ServerApp.root_dir={tmp_path}" in words


@pytest.mark.parametrize(("browser", "superuser"), [(True, False), (False, False), (False, True)])
def test_browser_and_superuser(tmp_path: Path, browser: bool, superuser: bool) -> None:
    words = lab.options(tmp_path, browser=browser, superuser=superuser)
    assert ("--no-browser" in words) == (not browser)
    assert ("--allow-root" in words) == superuser


def test_jupyterlab_understands_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(LabApp, "launch_instance", lambda argv: started.append(argv))
    assert lab.main(argparse.Namespace(no_browser=True)) == 0
    names = [word.split("=")[0].lstrip("-") for word in started[0] if "." in word.split("=")[0]]
    classes = {"ServerApp": ServerApp, "LabApp": LabApp}
    for name in names:
        owner, _, trait = name.partition(".")
        assert trait in classes[owner].class_trait_names(config=True), name
    assert "--no-browser" in started[0]
