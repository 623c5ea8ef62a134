"""Unit 06 in JupyterLab in Chromium: it trains, and heads, layers and words are chosen by mouse and by keyboard."""

from __future__ import annotations

import browser
import numpy as np
import pytest
from test_browser import lab, page, press, read, shot, theme  # noqa: F401

from course_lib import widgets

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
LECTURE = "notebooks/06_multi_head.ipynb"


def same_numbers(fig):
    """The browser shows what the NumPy twin computes in the same state."""
    state, theirs = read(fig, "state"), read(fig)
    parts = zip(state["query_words"], state["key_words"], state["weights"], state["seen"], strict=True)
    made = widgets.HeadExplorer(dict(zip(state["names"], parts, strict=True)))
    made.layer, made.head, made.query = state["layer"], state["head"], state["query"]
    ours = made.numbers()
    assert set(ours) == set(theirs)
    for key, value in ours.items():
        np.testing.assert_allclose(np.array(theirs[key]), value, atol=1e-5, err_msg=key)


def moved(fig, action):
    before = read(fig)
    action()
    assert read(fig) != before, "nothing moved"
    same_numbers(fig)


def button(fig, label):
    return fig.locator(f"button[aria-label='{label}']:visible").first


def said(fig):
    return fig.locator("p.cf-readout:visible").inner_text()


def fits(fig):
    return fig.evaluate("(el) => { el.style.width = '400px'; return el.scrollWidth <= el.clientWidth + 1 }")


def test_unit_06_and_its_figures(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    explorers = page.locator(".cf", has=page.locator("button[aria-label='show head 1']"))
    assert explorers.count() == 2
    it_is(page, explorers.nth(0), theme)
    trained(page, explorers.nth(1), theme)


def it_is(page, fig, theme):  # noqa: F811
    """The sentence made by hand: two heads, two answers, and a mean that hides them."""
    fig.scroll_into_view_if_needed()
    same_numbers(fig)
    assert "“it” reads “animal” most" in said(fig)
    moved(fig, lambda: button(fig, "show head 2").click())
    assert "“it” reads “tired” most" in said(fig)
    moved(fig, lambda: press(button(fig, "show head 2"), "ArrowRight"))
    assert read(fig, "state")["head"] == 2 and "mean" in said(fig)
    assert sorted(read(fig)["weights"])[-2] > 0.4  # both words in one row
    moved(fig, lambda: press(button(fig, "show mean"), "ArrowLeft"))
    shot(page, "06_it", theme)
    moved(fig, lambda: button(fig, "word tired").hover())
    moved(fig, lambda: button(fig, "word it").focus())
    assert fits(fig), "HeadExplorer is wider than 400 px"


def trained(page, fig, theme):  # noqa: F811
    """Three layers of the model trained in the notebook."""
    fig.scroll_into_view_if_needed()
    same_numbers(fig)
    assert "“→ vier”" in said(fig)
    shot(page, "06_cross", theme)
    moved(fig, lambda: button(fig, "word → dreißig").hover())
    moved(fig, lambda: press(button(fig, "word → dreißig"), "ArrowRight"))
    moved(fig, lambda: button(fig, "show head 3").click())
    moved(fig, lambda: press(button(fig, "layer decoder, cross"), "ArrowLeft"))
    assert read(fig, "state")["layer"] == 1 and fig.get_by_text("hidden").count() > 0
    fig.scroll_into_view_if_needed()
    shot(page, "06_decoder", theme)
    moved(fig, lambda: button(fig, "layer encoder").click())
    moved(fig, lambda: button(fig, "word seven").hover())
    assert len(read(fig)["weights"]) == 9
    shot(page, "06_encoder", theme)
    assert fits(fig), "HeadExplorer is wider than 400 px"
