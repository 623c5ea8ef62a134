"""What the site takes from npm, in exactly the versions of package-lock.json, so that its pages ask no other host."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..shapes import expect

HERE = Path(__file__).parent
FILES = ("package.json", "package-lock.json")


def packages(cache: Path) -> Path:
    """The folder node_modules with all packages: fetched once, then kept until package-lock.json changes."""
    lock = b"".join((HERE / name).read_bytes() for name in FILES)
    kept = cache / f"npm-{hashlib.sha256(lock).hexdigest()[:12]}"
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".npm-") as name:
            folder = Path(name) / "packages"
            folder.mkdir()
            fetch(folder)
            with contextlib.suppress(OSError):  # somebody else was faster, with the same packages
                folder.rename(kept)
    return kept / "node_modules"


def fetch(folder: Path) -> None:
    """`npm ci`: the locked versions, each checked against its checksum; no script of theirs runs."""
    npm = shutil.which("npm")
    expect(npm is not None, "The site needs npm, which comes with Node.js (nodejs.org), to fetch KaTeX.")
    for name in FILES:
        shutil.copy(HERE / name, folder)
    command = [str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    said = (done.stderr or done.stdout).strip().splitlines()
    expect(done.returncode == 0, f"npm could not fetch the site's packages: {said[0] if said else 'no reason given'}")
