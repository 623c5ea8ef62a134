"""Unit 12 in JupyterLab in Chromium: costs, tiles and patterns are moved by mouse and key; the numbers are NumPy's."""

from __future__ import annotations

import browser
import numpy as np
import pytest
from test_browser import lab, page, press, read, shot, theme  # noqa: F401

from course_lib import widgets

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
LECTURE = "notebooks/12_efficient_attention.ipynb"
MARKS = {
    "CostCurves": "input[aria-label='width d']",
    "OnlineSoftmax": "input[aria-label='score 1']",
    "PatternExplorer": "canvas[aria-label^='pattern']",
}


def figure(page, name):  # noqa: F811
    found = page.locator(".cf", has=page.locator(MARKS[name])).first
    found.scroll_into_view_if_needed()
    return found


def same_numbers(name, fig):
    state = read(fig, "state")
    arguments = (state["scores"], state["values"]) if name == "OnlineSoftmax" else ()
    twin = getattr(widgets, name)(*arguments)
    for trait, value in state.items():
        setattr(twin, trait, value)
    ours, theirs = twin.numbers(), read(fig)
    assert set(ours) == set(theirs)
    for key, value in ours.items():
        np.testing.assert_allclose(np.array(theirs[key]), value, atol=1e-5, rtol=1e-9, err_msg=f"{name}.{key}")


def moved(name, fig, action):
    before = read(fig)
    action()
    assert read(fig) != before, f"{name}: nothing moved"
    same_numbers(name, fig)


def fits(fig):
    return fig.evaluate("(el) => { el.style.width = '400px'; return el.scrollWidth <= el.clientWidth + 1 }")


def milliseconds(fig, selector):
    """Median time from moving a slider to the redrawn figure."""
    times = fig.evaluate(
        """(el, selector) => { const input = el.querySelector(selector), low = +input.min, high = +input.max;
            return [...Array(40)].map((_, i) => {
                input.value = low + (high - low) * ((7 * i) % 40) / 39;
                const start = performance.now();
                input.dispatchEvent(new Event('input'));
                el.getBoundingClientRect();
                return performance.now() - start }) }""",
        selector,
    )
    return float(np.median(times))


def test_unit_12_and_its_figures(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    costs(page, theme)
    online(page, theme)
    patterns(page, theme)


def costs(page, theme):  # noqa: F811
    name, fig = "CostCurves", figure(page, "CostCurves")
    same_numbers(name, fig)
    shot(page, "12_CostCurves", theme)
    moved(name, fig, fig.get_by_text("a document: 10,000").click)
    assert read(fig)["share"] == pytest.approx(10 / 11) and "400 MB" in fig.inner_text()
    moved(name, fig, lambda: press(fig.get_by_label("width d"), "ArrowRight"))
    moved(name, fig, lambda: press(fig.get_by_label("words n"), "Home"))
    assert read(fig, "state")["length"] == 16
    moved(name, fig, lambda: fig.locator("svg").click(position={"x": 300, "y": 120}))
    assert 500 < read(fig, "state")["length"] < 5_000
    assert fits(fig), "CostCurves is wider than 400 px"
    shot(page, "12_CostCurves_narrow", theme)
    print(f"\n{name}, {theme}: {milliseconds(fig, 'input'):.2f} ms")


def online(page, theme):  # noqa: F811
    name, fig = "OnlineSoftmax", figure(page, "OnlineSoftmax")
    same_numbers(name, fig)
    further = fig.get_by_text("next tile →")
    moved(name, fig, further.click)
    moved(name, fig, lambda: press(further, "Enter"))
    assert read(fig)["top"] == [4, 4, 7] and "The same." in fig.inner_text() and further.is_disabled()
    shot(page, "12_OnlineSoftmax", theme)
    moved(name, fig, fig.get_by_label("rescale").click)
    assert "Not the same!" in fig.inner_text()
    moved(name, fig, lambda: fig.get_by_label("score 1").fill("9"))
    moved(name, fig, lambda: press(fig.get_by_label("score 2"), "ArrowUp"))
    moved(name, fig, fig.get_by_text("← back").click)
    moved(name, fig, lambda: press(fig.get_by_label("keys in a tile"), "End"))
    assert len(read(fig)["top"]) == 1 and "The same." in fig.inner_text()  # one tile: nothing to rescale
    moved(name, fig, lambda: press(fig.get_by_label("keys in a tile"), "Home"))
    moved(name, fig, lambda: press(fig.get_by_label("tiles read"), "End"))
    assert len(read(fig)["top"]) == 6
    assert fits(fig), "OnlineSoftmax is wider than 400 px"
    shot(page, "12_OnlineSoftmax_narrow", theme)
    print(f"\n{name}, {theme}: {milliseconds(fig, 'input[type=range]'):.2f} ms")


def patterns(page, theme):  # noqa: F811
    name, fig = "PatternExplorer", figure(page, "PatternExplorer")
    same_numbers(name, fig)
    layers = read(fig)["layers"]
    shot(page, "12_PatternExplorer_window", theme)
    moved(name, fig, fig.get_by_text("window + global", exact=True).click)
    assert read(fig)["layers"] == 2 < layers and read(fig)["growth"] < 2.1
    moved(name, fig, fig.get_by_text("BigBird", exact=True).click)
    moved(name, fig, fig.get_by_text("draw again").click)
    shot(page, "12_PatternExplorer", theme)
    canvas, state = fig.locator("canvas"), lambda: read(fig, "state")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 2)
    assert state()["chosen"][0] == 0 and "global" in canvas.get_attribute("aria-label")
    page.mouse.move(2, 2)
    press(canvas, "ArrowDown")
    assert state()["chosen"][0] == 1
    moved(name, fig, fig.get_by_label("causal").click)
    moved(name, fig, lambda: press(fig.get_by_label("block size"), "ArrowRight"))
    moved(name, fig, lambda: press(fig.get_by_label("words n"), "Home"))
    assert state()["length"] == 8 and max(state()["chosen"]) < 8
    moved(name, fig, lambda: press(fig.get_by_label("window, each side"), "Home"))
    moved(name, fig, lambda: press(fig.get_by_label("random blocks, each"), "Home"))
    moved(name, fig, lambda: press(fig.get_by_label("global blocks"), "Home"))
    assert read(fig)["layers"] == -1 and "never hear" in fig.inner_text()
    moved(name, fig, fig.get_by_text("all pairs", exact=True).click)
    assert fits(fig), "PatternExplorer is wider than 400 px"
    shot(page, "12_PatternExplorer_narrow", theme)
    print(f"\n{name}, {theme}: {milliseconds(fig, 'input'):.2f} ms")
