"""Make the README's pictures from the running course, so that they stay true: python tools/screenshots.py

It needs what the tests need, and Chromium or Chrome. Pictures go to docs/pictures.
"""

from __future__ import annotations

import importlib.util
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from course_lib.site import STATIC
from course_lib.site.pages import card
from course_lib.units import UNITS

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
LARGEST = 200_000  # bytes
LECTURE = "notebooks/04_queries_keys_values.ipynb"
EXERCISES = "exercises/04_queries_keys_values.ipynb"
# A softmax over the wrong axis: the shape is right, and only the idea is wrong.
WRONG = "def attention(q, k, v):\n    scores = q @ k.T\n    weights = softmax(scores, axis=0)\n    return weights @ v"
ANSWER_AND_CHECK = """async (answer) => {
    const notebook = jupyterapp.shell.currentWidget.content, cells = notebook.widgets;
    const at = cells.findIndex((cell) => cell.model.sharedModel.source.startsWith('def attention('));
    cells[at].model.sharedModel.setSource(answer);
    for (const i of [at, at + 1]) {
        notebook.activeCellIndex = i;
        await jupyterapp.commands.execute('notebook:run-cell');
    } }"""


def load_browser() -> Any:
    """The tests' way to drive JupyterLab and Chromium."""
    spec = importlib.util.spec_from_file_location("browser", ROOT / "tests" / "browser.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def save(name: str, png: bytes) -> None:
    """Keep a picture with as many colours as fit into its size."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in (256, 128, 64, 32):
        buffer = io.BytesIO()
        picture.quantize(colours).save(buffer, "PNG", optimize=True)
        if buffer.tell() < LARGEST:
            break
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / f"{name}.png").write_bytes(buffer.getvalue())
    print(f"docs/pictures/{name}.png: {picture.width} × {picture.height}, {buffer.tell() / 1000:.0f} kB")


def lab_with_a_figure(browser: Any, page: Any, address: str) -> None:
    """JupyterLab at the soft dictionary of unit 04, its query moved and its temperature turned down."""
    browser.run_all(page, address, LECTURE)
    figure = page.locator(".cf", has=page.locator("input[aria-label=temperature]")).first
    handle = figure.locator("circle[aria-label=query]")
    handle.focus()
    for key in ("ArrowUp",) * 6 + ("ArrowRight",) * 3:
        handle.press(key)
    figure.locator("input[aria-label=temperature]").press("ArrowLeft")
    figure.evaluate("el => el.scrollIntoView({block: 'center'})")
    page.wait_for_timeout(1000)
    save("lab", page.screenshot())


def check_with_a_misconception(browser: Any, page: Any, address: str) -> None:
    """A wrong answer to exercise 04.4, and the card that says which idea is wrong."""
    browser.run_all(page, address, EXERCISES, stubs=True)
    page.evaluate(ANSWER_AND_CHECK, WRONG)
    named = page.locator("text=These weights sum to 1 over the queries").first
    named.wait_for()
    named.evaluate("el => el.scrollIntoView({block: 'center'})")
    page.wait_for_timeout(1000)
    save("check", page.screenshot())


def course_map(page: Any) -> None:
    """The map as the website shows it."""
    style = (STATIC / "site.css").read_text(encoding="utf-8")
    rules = "body { font: 16px/1.5 system-ui, sans-serif; margin: 0; } ol.course-map { margin: 0; padding: 8px; }"
    columns = "ol.course-map { grid-template-columns: repeat(5, 1fr); gap: .7rem; }"
    cards = "".join(map(card, UNITS))
    page.set_content(
        f'<html data-theme="light"><style>{style}{rules}{columns}</style>'
        f'<body class="bd-article"><ol class="course-map">{cards}</ol></body></html>'
    )
    save("map", page.locator("ol.course-map").screenshot())


def main() -> None:
    browser = load_browser()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)  # JupyterLab saves what it runs: never serve the repository itself
        for folder in ("notebooks", "exercises"):
            shutil.copytree(ROOT / folder, root / folder)
        with browser.lab(root, "Light") as address, browser.open_page(width=1180, height=680) as page:
            lab_with_a_figure(browser, page, address)
            check_with_a_misconception(browser, page, address)
    with browser.open_page(width=1180) as page:
        course_map(page)


if __name__ == "__main__":
    main()
