"""Unit 10 in JupyterLab in Chromium: it trains, blocks are clicked, the kernel translates a number typed in."""

from __future__ import annotations

import browser
import numpy as np
import pytest
from test_browser import lab, page, press, read, shot, theme  # noqa: F401

from course_lib import widgets

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
LECTURE = "notebooks/10_encoder_decoder.ipynb"


def twin(fig):
    """The figure's NumPy twin in the state that the browser shows."""
    state = read(fig, "state")
    if "blocks" in state:
        made = widgets.DataFlow([("encoder", "words", "B", [1])])
    else:
        shown = state["source"], state["target"], state["weights"]
        made = widgets.Translator(lambda number: shown, number=state["number"])
    for name, value in state.items():
        setattr(made, name, value)
    return made


def same_numbers(fig):
    ours, theirs = twin(fig).numbers(), read(fig)
    assert set(ours) == set(theirs)
    for key, value in ours.items():
        np.testing.assert_allclose(np.array(theirs[key]), value, atol=1e-5, err_msg=key)


def moved(fig, action):
    before = read(fig)
    action()
    assert read(fig) != before, "nothing moved"
    same_numbers(fig)


def fits(fig):
    return fig.evaluate("(el) => { el.style.width = '400px'; return el.scrollWidth <= el.clientWidth + 1 }")


def test_unit_10_and_its_figures(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    flow = page.locator(".cf", has=page.locator("button[aria-label^='block ']")).first
    flow.scroll_into_view_if_needed()
    same_numbers(flow)
    bridge = flow.locator("button[aria-label='block cross-attention: weights']")
    moved(flow, bridge.click)
    assert read(flow)["shape"] == [1, 4, 4, 2] and "(B, H, T, S) = (1, 4, 4, 2)" in flow.inner_text()
    shot(page, "10_DataFlow", theme)
    moved(flow, lambda: press(bridge, "ArrowDown"))
    moved(flow, lambda: press(flow.locator("button").nth(0), "Enter"))
    assert fits(flow), "DataFlow is wider than 400 px"
    translates(page, theme)


def translates(page, theme):  # noqa: F811
    typed = page.get_by_label("number to translate")
    typed.scroll_into_view_if_needed()
    fig = page.locator(".cf", has=page.locator("input[aria-label='number to translate']")).first
    same_numbers(fig)
    shot(page, "10_Translator_long", theme)
    typed.fill("45")
    typed.press("Enter")
    page.wait_for_function("() => document.body.innerText.includes('forty five → fünf und vierzig')")
    same_numbers(fig)
    best = [read(fig, "state")["source"][i] for i in read(fig)["best"]]
    assert (best[0], best[2]) == ("five", "forty")  # it crosses
    moved(fig, fig.get_by_role("group", name="layer").locator("button").nth(1).click)
    heads = fig.get_by_role("group", name="head")
    moved(fig, heads.locator("button").nth(2).click)
    moved(fig, lambda: press(heads.locator("button").nth(2), "ArrowRight"))
    assert read(fig, "state")["head"] == 2
    shot(page, "10_Translator", theme)
    assert fits(fig), "Translator is wider than 400 px"
