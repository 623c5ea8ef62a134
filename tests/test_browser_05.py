"""Unit 05 in JupyterLab in Chromium: width and temperature are moved by mouse and keyboard, and match NumPy."""

from __future__ import annotations

import os
import statistics

import browser
import numpy as np
import pytest
from test_browser import lab, page, press, read, shot, theme  # noqa: F401

from course_lib import widgets

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
LECTURE = "notebooks/05_scaling.ipynb"


def same_as_numpy(fig):
    state, shown = read(fig, "state"), read(fig)
    wanted = widgets.ScoreScale(
        state["queries"], state["key_vectors"], d_k=state["d_k"], temperature=state["temperature"]
    ).numbers()
    assert set(shown) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(np.array(shown[name]), value, atol=1e-5, err_msg=name)


def moved(fig, action):
    """The action changes the numbers, and they are still the twin's."""
    before = read(fig)
    action()
    assert read(fig) != before, "nothing moved"
    same_as_numpy(fig)


def pull(page, slider, share):  # noqa: F811
    """Drag a slider's thumb from the middle of the track to a share of its length."""
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2, steps=6)
    page.mouse.up()


def test_unit_05_and_its_figure(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    fig = page.locator(".cf", has=page.locator("input[aria-label=d_k]"))
    width, heat = fig.locator("input[aria-label=d_k]"), fig.locator("input[aria-label=temperature]")
    fig.scroll_into_view_if_needed()
    same_as_numpy(fig)
    shot(page, "05_ScoreScale_start", theme)
    moved(fig, lambda: press(width, "ArrowRight"))
    assert read(fig, "state")["d_k"] == 128
    moved(fig, lambda: pull(page, width, 0.99))
    assert read(fig, "state")["d_k"] == 256
    saturated = read(fig)
    shot(page, "05_ScoreScale_saturated", theme)
    moved(fig, lambda: press(heat, "ArrowRight"))
    moved(fig, lambda: pull(page, heat, 0.9))
    moved(fig, lambda: fig.get_by_role("button", name="temperature = √d_k").click())
    assert read(fig, "state")["temperature"] == 16
    scaled = read(fig)
    assert scaled["entropy"][1] > 4 * saturated["entropy"][1] and scaled["gradient"][1] > 2 * saturated["gradient"][1]
    assert "√d_k / temperature is 1.00" in fig.inner_text()
    shot(page, "05_ScoreScale_scaled", theme)
    moved(fig, lambda: press(width, "Home"))
    fits = fig.evaluate("(el) => { el.style.width = '400px'; return el.scrollWidth <= el.clientWidth + 1 }")
    shot(page, "05_ScoreScale_narrow", theme)
    assert fits, "ScoreScale is wider than 400 px"
    answers_within_a_frame(fig, theme)


def answers_within_a_frame(fig, theme):  # noqa: F811
    """Median time from an input event to the redrawn figure: printed, and every event redraws."""
    drawn = int(fig.get_attribute("data-drawn"))
    times = fig.evaluate(
        """(el) => { const input = el.querySelector('input[aria-label=d_k]'), times = [];
            for (let i = 0; i < 60; i++) {
                input.value = 1 + i % 8;
                const start = performance.now();
                input.dispatchEvent(new Event('input'));
                el.getBoundingClientRect();
                times.push(performance.now() - start);
            }
            return times }"""
    )
    print(f"\nScoreScale, {theme}: {statistics.median(times):.2f} ms from input to redrawn figure (median of 60)")
    assert int(fig.get_attribute("data-drawn")) >= drawn + 40


@pytest.mark.skipif("COURSE_SCREENSHOTS" not in os.environ, reason="pictures for those who want to look")
def test_pictures_of_unit_05(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    for number, image in enumerate(page.locator(".jp-OutputArea-output img").all()):
        image.scroll_into_view_if_needed()
        shot(page, f"05_picture_{number}", theme)
