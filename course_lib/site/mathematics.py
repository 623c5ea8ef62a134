"""Formulas are set while the site is built, by KaTeX in a process of Node.js: pages need no script to show them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ..shapes import expect

SCRIPT = Path(__file__).parent / "set_formulas.js"


class Typesetter:
    """KaTeX, asked one formula at a time: a line of JSON there, a line of JSON back."""

    def __init__(self, packages: Path):
        node = shutil.which("node")
        expect(node is not None, "The site needs Node.js (nodejs.org) to set its formulas.")
        self.process = subprocess.Popen(
            [str(node), str(SCRIPT)],
            env=os.environ | {"NODE_PATH": str(packages)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self.known: dict[tuple[str, bool], str] = {}

    def __call__(self, formula: str, display: bool = False) -> str:
        """The formula as HTML, with MathML inside for screen readers; ValueError where KaTeX does not understand it."""
        asked = (formula, display)
        if asked not in self.known:
            answer = self._ask({"formula": formula, "display": display})
            expect("html" in answer, f"KaTeX cannot read {formula!r}: {answer.get('error')}")
            self.known[asked] = answer["html"]
        return self.known[asked]

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        expect(bool(line), "Node.js stopped while setting formulas.")
        return json.loads(line)

    def close(self) -> None:
        """Close its input, at which the process ends."""
        self.process.communicate()
