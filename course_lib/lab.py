"""`course lab`: JupyterLab in the folder of the course, at the Welcome notebook."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WELCOME = "notebooks/00_welcome.ipynb"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-browser", action="store_true", help="print the address, open no browser")


def options(root: Path, *, browser: bool, superuser: bool) -> list[str]:
    """The words for JupyterLab: where it starts, which page it opens, and silence but for the address."""
    page = f"/lab/tree/{WELCOME}" if (root / WELCOME).exists() else "/lab"
    quiet = ["--ServerApp.log_level=WARN", "--LabApp.log_level=WARN"]
    words = [f"--ServerApp.root_dir={root}", f"--LabApp.default_url={page}", *quiet]
    if not browser:
        words.append("--no-browser")
    if superuser:
        words.append("--allow-root")  # in a container there is no other user, and the address holds a secret
    return words


def main(args: argparse.Namespace) -> int:
    from jupyterlab.labapp import LabApp

    print("Starting JupyterLab; leave this window open, Ctrl-C twice ends it.", flush=True)
    superuser = hasattr(os, "geteuid") and os.geteuid() == 0
    LabApp.launch_instance(argv=options(ROOT, browser=not args.no_browser, superuser=superuser))
    return 0
