"""Unit 09 in JupyterLab in Chromium: depth, residuals, norms and a row of numbers, by mouse and by keyboard."""

from __future__ import annotations

import statistics

import browser
import numpy as np
import pytest
from test_browser import lab, page, press, read, shot, theme  # noqa: F401
from test_browser_05 import pull

from course_lib import widgets

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
LECTURE = "notebooks/09_transformer_block.ipynb"


def same_numbers(kind, fig):
    """The browser shows what the NumPy twin computes in the same state."""
    ours, theirs = getattr(widgets, kind)(**read(fig, "state")).numbers(), read(fig)
    assert set(ours) == set(theirs)
    for key, value in ours.items():
        np.testing.assert_allclose(np.array(theirs[key]), value, atol=1e-5, err_msg=f"{kind}.{key}")


def moved(kind, fig, action):
    before = read(fig)
    action()
    assert read(fig) != before, f"{kind}: nothing moved"
    same_numbers(kind, fig)


def control(fig, label):
    return fig.locator(f"input[aria-label='{label}']")


def button(fig, label):
    return fig.locator(f"button[aria-label='{label}']")


def said(fig):
    return fig.locator("p.cf-readout").inner_text()


def fits(fig):
    return fig.evaluate("(el) => { el.style.width = '400px'; return el.scrollWidth <= el.clientWidth + 1 }")


def test_unit_09_and_its_figures(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    the_row(page, page.locator(".cf", has=page.locator("input[aria-label=bias]")), theme)
    the_depth(page, page.locator(".cf", has=page.locator("input[aria-label=depth]")), theme)


def the_row(page, fig, theme):  # noqa: F811
    fig.scroll_into_view_if_needed()
    same_numbers("NormRow", fig)
    shot(page, "09_NormRow", theme)
    normal = read(fig)["normal"]
    for name in ("all + 1", "all ÷ 2"):  # shift and size do not reach the output
        fig.get_by_role("button", name=name).click()
        same_numbers("NormRow", fig)
        np.testing.assert_allclose(read(fig)["normal"], normal, atol=1e-4)
    assert read(fig, "state")["row"] == [1, 2, 3, 4]
    moved("NormRow", fig, lambda: press(control(fig, "x2"), "ArrowRight"))
    moved("NormRow", fig, lambda: pull(page, control(fig, "x4"), 0.9))
    moved("NormRow", fig, lambda: press(control(fig, "gain"), "End"))
    moved("NormRow", fig, lambda: press(control(fig, "bias"), "Home"))
    assert "become -3.00 and 9.00" in said(fig)
    assert fig.get_by_role("button", name="all × 2").is_disabled()  # would leave the line
    shot(page, "09_NormRow_moved", theme)
    assert fits(fig), "NormRow is wider than 400 px"


def the_depth(page, fig, theme):  # noqa: F811
    fig.scroll_into_view_if_needed()
    same_numbers("DepthGradient", fig)
    assert read(fig, "state")["depth"] == 24 and read(fig)["bottom"][0][0] < -14
    shot(page, "09_DepthGradient_bare", theme)
    moved("DepthGradient", fig, lambda: press(control(fig, "depth"), "ArrowRight"))
    moved("DepthGradient", fig, lambda: pull(page, control(fig, "depth"), 0.99))
    assert read(fig, "state")["depth"] == 32 and "At the bottom of 32 blocks" in said(fig)
    moved("DepthGradient", fig, lambda: button(fig, "residual on").click())
    moved("DepthGradient", fig, lambda: press(control(fig, "size of the weights"), "End"))
    assert read(fig)["gradient"][0] > 6  # explodes
    shot(page, "09_DepthGradient_explodes", theme)
    moved("DepthGradient", fig, lambda: press(button(fig, "norm none"), "ArrowRight"))
    assert read(fig, "state")["norm"] == "pre" and abs(read(fig)["gradient"][0]) < 2
    shot(page, "09_DepthGradient_pre", theme)
    moved("DepthGradient", fig, lambda: button(fig, "norm post").click())
    moved("DepthGradient", fig, lambda: press(button(fig, "residual on"), "ArrowLeft"))
    moved("DepthGradient", fig, lambda: fig.get_by_role("button", name="draw other weights").click())
    assert read(fig, "state")["seed"] == 1
    answers_within_a_frame(fig, theme)
    assert fits(fig), "DepthGradient is wider than 400 px"
    fig.scroll_into_view_if_needed()
    shot(page, "09_DepthGradient_narrow", theme)


def answers_within_a_frame(fig, theme):  # noqa: F811
    """Median time from an input event to the redrawn figure: printed, and every event redraws."""
    drawn = int(fig.get_attribute("data-drawn"))
    times = fig.evaluate(
        """(el) => { const input = el.querySelector('input[aria-label=depth]'), times = [];
            for (let i = 0; i < 60; i++) {
                input.value = 1 + i % 32;
                const start = performance.now();
                input.dispatchEvent(new Event('input'));
                el.getBoundingClientRect();
                times.push(performance.now() - start);
            }
            return times }"""
    )
    print(f"\nDepthGradient, {theme}: {statistics.median(times):.2f} ms from input to redrawn figure (median of 60)")
    assert int(fig.get_attribute("data-drawn")) >= drawn + 40
