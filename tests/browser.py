"""JupyterLab in a real browser: a server on loopback, a headless Chromium, and a page that tells what went wrong."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
]
# Every name but loopback's fails to resolve: whatever a page asks of another host is refused, and counted.
FLAGS.append("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
BAD_OUTPUT = re.compile(r"Javascript Error|Error displaying widget|Loading widget|model not found|Traceback")
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},  # or cells off screen are not drawn
}


def find_browser() -> str:
    """The path of Chromium or Chrome; without one the test is skipped, or fails where one was promised."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    if os.environ.get("COURSE_NEEDS_BROWSER"):
        pytest.fail("no Chromium or Chrome was found, and COURSE_NEEDS_BROWSER asks for one")
    pytest.skip("no Chromium or Chrome on this machine")


@contextlib.contextmanager
def lab(root: Path, theme: str) -> Iterator[str]:
    """JupyterLab on loopback for the notebooks in `root`; yields an address to fill in: .../doc/tree/{}?token=..."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        settings = SETTINGS | {"@jupyterlab/apputils-extension:themes": {"theme": f"JupyterLab {theme}"}}
        (home / "app").mkdir()
        (home / "app" / "overrides.json").write_text(json.dumps(settings))
        folders = {f"JUPYTER_{kind}_DIR": str(home / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
        env = os.environ | folders | {"IPYTHONDIR": str(home / "ipython"), "MPLCONFIGDIR": str(home / "mpl")}
        env |= {"COURSE_PROGRESS": str(home / "progress.json"), "OMP_NUM_THREADS": "1"}
        token = secrets.token_hex(16)
        command = f"""-m jupyterlab --no-browser --allow-root --ServerApp.root_dir={root} --ServerApp.ip=127.0.0.1
            --ServerApp.port=0 --IdentityProvider.token={token} --LabApp.app_settings_dir={home / "app"}
            --LabApp.user_settings_dir={home / "user"} --LabApp.workspaces_dir={home / "spaces"} --LabApp.news_url=
            --LabApp.extension_manager=readonly --LabApp.expose_app_in_browser=True"""
        with open(home / "log", "wb") as log:
            server = subprocess.Popen([sys.executable, *command.split()], env=env, stdout=log, stderr=log)
            try:
                yield f"{_address(home, server)}doc/tree/{{}}?token={token}&reset"
            finally:
                server.terminate()
                server.wait(30)


def _address(home: Path, server: subprocess.Popen) -> str:
    end = time.monotonic() + 90
    while time.monotonic() < end and server.poll() is None:
        for file in (home / "runtime").glob("jpserver-*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                url = json.loads(file.read_text())["url"]
                urllib.request.urlopen(f"{url}login", timeout=5).close()
                return url
        time.sleep(0.2)
    raise RuntimeError("JupyterLab did not start:\n" + (home / "log").read_text()[-3000:])


@contextlib.contextmanager
def open_page(width: int = 1100, height: int = 900) -> Iterator:
    """A page that keeps what it asked of other hosts in `page.strangers`, and script errors in `page.errors`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        page = chromium.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce").new_page()
        page.strangers, page.errors = [], []
        home = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(home) else page.strangers.append(r.url))
        page.on("pageerror", lambda e: page.errors.append(str(e)))
        page.set_default_timeout(120_000)
        try:
            yield page
        finally:
            chromium.close()


def run_all(page, address: str, notebook: str, *, stubs: bool = False) -> None:
    """Open a notebook and run every cell; fails when one raises (unless there are stubs) or draws an error."""
    page.goto(address.format(notebook), wait_until="domcontentloaded")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.wait_for_function(
        """() => { const s = window.jupyterapp?.shell?.currentWidget?.sessionContext;
                   return !!s?.isReady && s.session?.kernel?.status === 'idle' }"""
    )
    fine = page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")
    outputs = page.locator(".jp-OutputArea-output").all_inner_texts()
    assert fine or stubs, f"a cell raised: {outputs[-3:]}"
    assert not [text for text in outputs if BAD_OUTPUT.search(text)]
