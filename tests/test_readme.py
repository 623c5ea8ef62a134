"""The README's example does what the README says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_example_translates_a_number(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    exec(compile("import torch; torch.manual_seed(0)\n" + code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == "zwei hundert tausend fünf und vierzig"


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_what_a_page_names_is_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), f"{page} links to {link}"
    for path in re.findall(r"`((?:course_lib|tests|lessons|tools)/[\w./]+\.(?:py|js|txt))`", text):
        assert (ROOT / path).exists() or "NN" in path or "name" in path, f"{page} names {path}"
