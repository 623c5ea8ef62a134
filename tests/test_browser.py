"""Lectures in JupyterLab in Chromium: all cells run, every figure is moved by mouse and by keyboard, in both themes."""

from __future__ import annotations

import json
import os
import shutil
import statistics
from pathlib import Path

import browser
import numpy as np
import pytest

from course_lib import widgets

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[1]
SHOTS = os.environ.get("COURSE_SCREENSHOTS")  # a folder, for those who want to look


@pytest.fixture(scope="module", params=["Light", "Dark"])
def theme(request):
    return request.param


@pytest.fixture(scope="module")
def lab(theme, tmp_path_factory):
    browser.find_browser()
    root = tmp_path_factory.mktemp("course")  # JupyterLab saves what it runs: never serve the repository itself
    for folder in ("notebooks", "exercises"):
        shutil.copytree(ROOT / folder, root / folder)
    with browser.lab(root, theme) as address:
        yield address


@pytest.fixture
def page():
    with browser.open_page() as page:
        yield page
        assert page.strangers == [], "the page asked other hosts"
        assert page.errors == []


def figure(page, name):
    """The figures of one kind on the page: told apart by what they contain."""
    marks = {"SoftDictionary": "input[aria-label=temperature]", "Arrows": "circle[aria-label='key 1']",
             "EditKV": "input[aria-label='k1, column 1']", "WeightedSum": "button[aria-label^='query ']",
             "DecoderSteps": "input[aria-label=step]"}  # fmt: skip
    return page.locator(".cf", has=page.locator(marks[name])).first


def read(fig, what="numbers"):
    return json.loads(fig.get_attribute(f"data-{what}"))


def twin(name, state):
    """The figure's NumPy twin in the state that the browser shows."""
    rest = dict(state)
    arguments = {
        "SoftDictionary": lambda s: dict(
            titles=s["titles"], keys=s["key_vectors"], values=s["values"], query=s["query"]
        ),
        "Arrows": lambda s: dict(query=s["query"], keys=s["key_vectors"]),
        "EditKV": lambda s: dict(q=s["q"], k=s["k"], v=s["v"]),
        "WeightedSum": lambda s: dict(q=s["q"], k=s["k"], v=s["v"], tokens=s["tokens"]),
        "DecoderSteps": lambda s: dict(source=s["source"], target=s["target"], weights=s["weights"]),
    }[name](rest)
    made = getattr(widgets, name)(**arguments)
    for trait in ("temperature", "query", "step", "chosen"):
        if trait in rest and trait not in arguments:
            setattr(made, trait, rest[trait])
    return made


def same_numbers(name, fig):
    ours, theirs = twin(name, read(fig, "state")).numbers(), read(fig)
    assert set(ours) == set(theirs)
    for key, value in ours.items():
        np.testing.assert_allclose(np.array(theirs[key]), value, atol=1e-5, err_msg=f"{name}.{key}")


def moved(name, fig, action):
    """The action changes the numbers, and they are still the twin's."""
    before = read(fig)
    action()
    assert read(fig) != before, f"{name}: nothing moved"
    same_numbers(name, fig)


def drag(page, handle, dx, dy):
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + dx, y + dy, steps=6)
    page.mouse.up()


def press(handle, key):
    handle.focus()
    handle.press(key)


def shot(page, name, theme):
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}_{theme}.png", full_page=False)


def test_unit_04_and_its_figures(lab, page, theme):
    browser.run_all(page, lab, "notebooks/04_queries_keys_values.ipynb")
    for name in ("SoftDictionary", "Arrows", "WeightedSum", "EditKV"):
        fig = figure(page, name)
        fig.scroll_into_view_if_needed()
        same_numbers(name, fig)
        shot(page, f"04_{name}", theme)
    soft, arrows, total, edit = (figure(page, n) for n in ("SoftDictionary", "Arrows", "WeightedSum", "EditKV"))
    moved("SoftDictionary", soft, lambda: drag(page, soft.locator("circle[aria-label=query]"), -40, -30))
    moved("SoftDictionary", soft, lambda: press(soft.locator("circle[aria-label=query]"), "ArrowUp"))
    moved("SoftDictionary", soft, lambda: press(soft.locator("input"), "ArrowLeft"))
    moved("Arrows", arrows, lambda: drag(page, arrows.locator("circle[aria-label='key 1']"), -30, 20))
    moved("Arrows", arrows, lambda: press(arrows.locator("circle[aria-label='key 2']"), "ArrowRight"))
    moved("WeightedSum", total, lambda: total.locator("button").nth(2).click())
    moved("WeightedSum", total, lambda: press(total.locator("button").nth(2), "ArrowUp"))
    weights = read(edit)["weights"]
    moved("EditKV", edit, lambda: edit.locator("input[aria-label='v2, column 1']").fill("9"))
    assert read(edit)["weights"] == weights  # V does not reach the weights
    moved("EditKV", edit, lambda: press(edit.locator("input[aria-label='k1, column 1']"), "ArrowUp"))
    assert read(edit)["weights"] != weights
    moved("EditKV", edit, lambda: edit.locator("button").click())


def test_figures_answer_within_a_frame(lab, page, theme):
    """Median time from an input event to the redrawn figure: printed, and far below a second at any rate."""
    browser.run_all(page, lab, "notebooks/04_queries_keys_values.ipynb")
    soft = figure(page, "SoftDictionary")
    times = soft.evaluate(
        """(el) => { const input = el.querySelector('input'), times = [];
            for (let i = 0; i < 60; i++) {
                input.value = -1 + i / 30;
                const start = performance.now();
                input.dispatchEvent(new Event('input'));
                el.getBoundingClientRect();
                times.push(performance.now() - start);
            }
            return times }"""
    )
    print(f"\nSoftDictionary, {theme}: {statistics.median(times):.2f} ms from input to redrawn figure (median of 60)")
    assert int(soft.get_attribute("data-drawn")) >= 40


def test_figures_fit_a_narrow_window(lab, theme):
    with browser.open_page(width=1100) as page:
        browser.run_all(page, lab, "notebooks/04_queries_keys_values.ipynb")
        for name in ("SoftDictionary", "Arrows", "WeightedSum", "EditKV"):
            fig = figure(page, name)
            fits = fig.evaluate("(el) => { el.style.width = '400px'; return el.scrollWidth <= el.clientWidth + 1 }")
            assert fits, f"{name} is wider than 400 px"


def test_exercises_of_unit_04_show_their_cards(lab, page, theme):
    """Run all goes through; an empty stub says so, and a wrong answer typed in gets the name of its idea."""
    browser.run_all(page, lab, "exercises/04_queries_keys_values.ipynb", stubs=True)
    page.wait_for_function("() => document.body.innerText.split('Still empty').length === 9", timeout=20_000)
    page.evaluate(
        """async () => {
            const notebook = jupyterapp.shell.currentWidget.content, cells = notebook.widgets;
            const at = cells.findIndex((c) => c.model.sharedModel.source.startsWith('def attention('));
            cells[at].model.sharedModel.setSource('def attention(q, k, v):\\n    return softmax(q @ k.T, axis=0) @ v');
            for (const i of [at, at + 1]) {
                notebook.activeCellIndex = i;
                await jupyterapp.commands.execute('notebook:run-cell');
            } }"""
    )
    page.wait_for_function("() => document.body.innerText.includes('These weights sum to 1 over the queries')")
    page.locator("text=These weights sum to 1 over the queries").first.scroll_into_view_if_needed()
    shot(page, "04_card", theme)
