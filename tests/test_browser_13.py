"""Unit 13 in JupyterLab in Chromium: the budget is moved by mouse and keyboard, and its bytes are NumPy's."""

from __future__ import annotations

import browser
import numpy as np
import pytest
from test_browser import lab, page, press, read, shot, theme  # noqa: F401

from course_lib import widgets

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
LECTURE = "notebooks/13_training_budget.ipynb"


def same_as_numpy(fig):
    state, shown = read(fig, "state"), read(fig)
    twin = widgets.Budget(state["models"], state["budget"])
    for name in ("model", "batch", "parts", "again", "precision"):
        setattr(twin, name, state[name])
    wanted = twin.numbers()
    assert set(shown) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(np.array(shown[name]), value, rtol=1e-9, err_msg=name)


def moved(fig, action, *, numbers=True):
    """The action changes the state (and the numbers), and they are still the twin's."""
    before, state = read(fig), read(fig, "state")
    action()
    assert read(fig, "state") != state, "nothing moved"
    assert not numbers or read(fig) != before
    same_as_numpy(fig)


def test_unit_13_and_its_figure(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    fig = page.locator(".cf", has=page.locator("input[aria-label=batch]"))
    batch, parts = fig.locator("input[aria-label=batch]"), fig.locator("input[aria-label=parts]")
    button = lambda name: fig.get_by_role("button", name=name, exact=True)  # noqa: E731
    fig.scroll_into_view_if_needed()
    same_as_numpy(fig)
    shot(page, "13_Budget_start", theme)
    moved(fig, lambda: button("model GPT-2, small").click())
    assert "It does not fit" in fig.inner_text()
    shot(page, "13_Budget_too_much", theme)
    moved(fig, lambda: press(batch, "ArrowLeft"))
    assert read(fig, "state")["batch"] == 32
    for _ in range(3):
        moved(fig, lambda: press(parts, "ArrowRight"))
    assert read(fig, "state")["parts"] == 8 and "4 sentences are in memory at a time" in fig.inner_text()
    moved(fig, lambda: pull(page, batch, 0.99))
    assert read(fig, "state")["batch"] == 256
    moved(fig, lambda: button("checkpointing on").click())
    assert "4/3 of the work" in fig.inner_text()
    button("precision float32").focus()
    moved(fig, lambda: page.keyboard.press("ArrowRight"))
    assert read(fig, "state")["precision"] == "bfloat16"
    moved(fig, lambda: press(parts, "End"))
    assert "It fits." in fig.inner_text() and "1 sentence is in memory" in fig.inner_text()
    shot(page, "13_Budget_all_tricks", theme)
    moved(fig, lambda: button("model this course's").click())
    fits = fig.evaluate("(el) => { el.style.width = '400px'; return el.scrollWidth <= el.clientWidth + 1 }")
    shot(page, "13_Budget_narrow", theme)
    assert fits, "Budget is wider than 400 px"
    assert page.strangers == [] and page.errors == []


def pull(page, slider, share):  # noqa: F811
    """Drag a slider's thumb to a share of its length."""
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2, steps=6)
    page.mouse.up()
