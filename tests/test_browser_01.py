"""Unit 01 in JupyterLab in Chromium: it trains, the length is moved, states are chosen, and the clock is turned."""

from __future__ import annotations

import os

import browser
import numpy as np
import pytest
from test_browser import lab, page, press, read, shot, theme  # noqa: F401

from course_lib import widgets

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
LECTURE = "notebooks/01_rnn_seq2seq.ipynb"


def twin(state):
    """The figure's NumPy twin in the state that the browser shows."""
    if "clock" in state:
        made = widgets.MinimumSteps(state["words"])
        changed = ("kind", "length", "layers", "window", "clock", "chosen")
    else:
        curves = [
            dict(zip(state[a], state[b], strict=True)) for a, b in (("models", "accuracy"), ("sources", "gradient"))
        ]
        made, changed = widgets.Bottleneck(state["lengths"], *curves), ("place",)
    for trait in changed:
        setattr(made, trait, state[trait])
    return made


def same_numbers(fig):
    ours, theirs = twin(read(fig, "state")).numbers(), read(fig)
    assert set(ours) == set(theirs)
    for key, value in ours.items():
        np.testing.assert_allclose(np.array(theirs[key]), value, atol=1e-5, rtol=1e-5, err_msg=key)


def moved(fig, action):
    before = read(fig)
    action()
    assert read(fig) != before, "nothing moved"
    same_numbers(fig)


def fits(fig):
    return fig.evaluate("(el) => { el.style.width = '400px'; return el.scrollWidth <= el.clientWidth + 1 }")


def test_the_length_is_moved_and_the_readings_follow(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    fig = page.locator(".cf", has=page.locator("input[aria-label=length]"))
    fig.scroll_into_view_if_needed()
    same_numbers(fig)
    slider = fig.locator("input[aria-label=length]")
    assert read(fig)["accuracy"][0] > 0.9 and read(fig)["factor"] == [1, 1, 1]
    moved(fig, lambda: slider.fill("5"))
    assert read(fig, "state")["place"] == 5 and "6 words" in fig.inner_text()
    shot(page, "01_Bottleneck", theme)
    moved(fig, lambda: press(slider, "ArrowRight"))
    moved(fig, lambda: press(slider, "ArrowLeft"))
    chart = fig.locator("svg[role=img]").first
    box = chart.bounding_box()
    moved(fig, lambda: chart.click(position={"x": box["width"] * 0.96, "y": box["height"] / 2}))
    assert read(fig, "state")["place"] == 11 and read(fig)["accuracy"][0] < 0.1 and 0.4 < read(fig)["factor"][0] < 0.7
    assert fits(fig), "Bottleneck is wider than 400 px"
    shot(page, "01_Bottleneck_narrow", theme)


def test_states_are_chosen_and_the_clock_is_turned(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    fig = page.locator(".cf", has=page.locator("input[aria-label=clock]"))
    fig.scroll_into_view_if_needed()
    same_numbers(fig)
    was, chef = 12, 1
    moved(fig, lambda: fig.locator("input[aria-label=clock]").fill("7"))
    moved(fig, lambda: press(fig.locator("input[aria-label=clock]"), "ArrowLeft"))
    shot(page, "01_MinimumSteps_rnn", theme)
    assert np.sum(read(fig)["done"]) - 13 == 6 + 5  # layer 1 is one word ahead of layer 2
    moved(fig, lambda: fig.get_by_role("button", name="word window").click())
    assert np.sum(read(fig)["done"]) - 13 == 2 * 13 and read(fig)["counts"] == [1, 6]
    moved(fig, lambda: fig.locator("input[aria-label=layers]").fill("3"))
    moved(fig, lambda: fig.locator("input[aria-label=window]").fill("5"))
    moved(fig, lambda: fig.locator("circle[aria-label='layer 3, word 7']").click())
    assert read(fig)["known"][0][chef] == read(fig)["known"][0][was] == 1  # they have met in the middle
    shot(page, "01_MinimumSteps_window", theme)
    moved(fig, lambda: page.keyboard.press("ArrowDown"))  # the focus is on the state that was clicked
    moved(fig, lambda: page.keyboard.press("ArrowRight"))
    assert read(fig, "state")["chosen"] == [2, 7] and read(fig)["known"][0][chef] == 0
    moved(fig, lambda: fig.get_by_role("button", name="attention").click())
    assert read(fig)["known"][0] == [1] * 13 and read(fig)["counts"] == [1, 1]
    moved(fig, lambda: press(fig.locator("input[aria-label=words]"), "Home"))
    assert read(fig, "state")["chosen"] == [2, 1]  # a state that is gone cannot stay chosen
    moved(fig, lambda: fig.locator("input[aria-label=words]").fill("13"))
    assert fits(fig), "MinimumSteps is wider than 400 px"
    shot(page, "01_MinimumSteps_narrow", theme)


@pytest.mark.skipif("COURSE_SCREENSHOTS" not in os.environ, reason="pictures for those who want to look")
def test_pictures_of_unit_01(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    for number, image in enumerate(page.locator(".jp-OutputArea-output img").all()):
        image.scroll_into_view_if_needed()
        shot(page, f"01_picture_{number}", theme)
