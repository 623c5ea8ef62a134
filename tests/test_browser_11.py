"""Unit 11 in JupyterLab in Chromium: it trains, temperature and top-k are turned, the cache is stepped through."""

from __future__ import annotations

import browser
import numpy as np
import pytest
from test_browser import lab, page, press, read, shot, theme  # noqa: F401
from test_browser_05 import pull

from course_lib import widgets

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
LECTURE = "notebooks/11_gpt.ipynb"


def twin(fig):
    """The figure's NumPy twin in the state that the browser shows."""
    state = read(fig, "state")
    made = widgets.NextToken(["a"], {"x": [0.0]}) if "logits" in state else widgets.KeyValueCache()
    for name, value in state.items():
        setattr(made, name, value)
    return made


def same_numbers(fig):
    ours, theirs = twin(fig).numbers(), read(fig)
    assert set(ours) == set(theirs)
    for key, value in ours.items():
        np.testing.assert_allclose(np.array(theirs[key]), value, atol=1e-5, err_msg=key)


def moved(fig, action):
    """The action changes the numbers, and they are still the twin's."""
    before = read(fig)
    action()
    assert read(fig) != before, "nothing moved"
    same_numbers(fig)


def fits(fig):
    return fig.evaluate("(el) => { el.style.width = '400px'; return el.scrollWidth <= el.clientWidth + 1 }")


def test_unit_11_and_its_figures(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    draws(page, theme)
    keeps(page, theme)


def draws(page, theme):  # noqa: F811
    fig = page.locator(".cf", has=page.locator("input[aria-label=top-k]")).first
    fig.scroll_into_view_if_needed()
    heat, top = fig.locator("input[aria-label=temperature]"), fig.locator("input[aria-label=top-k]")
    same_numbers(fig)
    shot(page, "11_NextToken_start", theme)
    calm = read(fig)["equal"]
    moved(fig, lambda: press(heat, "ArrowRight"))
    moved(fig, lambda: pull(page, heat, 0.9))
    assert read(fig)["equal"] > 2 * calm  # hot: undecided
    moved(fig, lambda: press(top, "Home"))
    assert read(fig)["kept"] == 1 and max(read(fig)["p"]) == 1
    moved(fig, lambda: pull(page, top, 0.1))
    assert 2 <= read(fig)["kept"] <= 8 and "out" in fig.inner_text()
    shot(page, "11_NextToken_hot_and_cut", theme)
    moved(fig, lambda: press(heat, "Home"))  # temperature 0: the best one takes all
    assert read(fig)["drawn"] == read(fig)["order"][0] and max(read(fig)["p"]) == 1
    moved(fig, fig.get_by_role("button", name="For exam").click)
    moved(fig, lambda: press(fig.get_by_role("button", name="For exam"), "ArrowLeft"))
    moved(fig, lambda: press(heat, "End"))
    luck = read(fig, "state")["luck"]
    fig.get_by_role("button", name="draw a token").click()
    assert read(fig, "state")["luck"] != luck
    same_numbers(fig)
    assert fits(fig), "NextToken is wider than 400 px"
    shot(page, "11_NextToken_narrow", theme)


def keeps(page, theme):  # noqa: F811
    fig = page.locator(".cf", has=page.locator("input[aria-label=cache]")).first
    fig.scroll_into_view_if_needed()
    same_numbers(fig)
    box, step = fig.locator("input[aria-label=cache]"), fig.locator("input[aria-label='new tokens']")
    band = fig.locator("input[aria-label^=band]")
    moved(fig, lambda: press(step, "ArrowRight"))
    assert read(fig)["now"] == 1
    moved(fig, lambda: press(step, "End"))
    with_cache = read(fig)["total"]
    shot(page, "11_KeyValueCache", theme)
    moved(fig, box.click)
    assert read(fig)["total"] > 5 * with_cache and read(fig)["bytes"] == 0
    moved(fig, lambda: press(box, "Space"))
    whole = read(fig)["bytes"]
    moved(fig, lambda: pull(page, band, 0.3))
    assert read(fig)["bytes"] < whole and "×" in fig.inner_text()
    shot(page, "11_KeyValueCache_banded", theme)
    moved(fig, lambda: press(fig.locator("input[aria-label=layers]"), "ArrowRight"))
    moved(fig, lambda: press(fig.locator("input[aria-label=prompt]"), "ArrowRight"))
    assert fits(fig), "KeyValueCache is wider than 400 px"
    shot(page, "11_KeyValueCache_narrow", theme)
