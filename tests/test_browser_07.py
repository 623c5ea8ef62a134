"""Unit 07 in JupyterLab in Chromium: the mask is painted by click, drag and key, and the numbers are NumPy's."""

from __future__ import annotations

import browser
import numpy as np
import pytest
from test_browser import lab, page, press, read, shot, theme  # noqa: F401  (fixtures)

from course_lib import widgets

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
NOTEBOOK = "notebooks/07_masking.ipynb"


def painter(page):  # noqa: F811
    return page.locator(".cf", has=page.locator("[data-pair='0 0']")).first


def same_numbers(fig):
    ours, theirs = widgets.MaskPainter(**read(fig, "state")).numbers(), read(fig)
    assert set(ours) == set(theirs)
    for key, value in ours.items():
        np.testing.assert_allclose(np.array(theirs[key]), value, atol=1e-5, err_msg=key)


def mask_after(fig, action):
    """What the action makes of the mask; the weights must have moved with it, and still be the twin's."""
    before = read(fig)
    action()
    assert read(fig) != before, "nothing moved"
    same_numbers(fig)
    return np.array(read(fig, "state")["mask"])


def drag_over(page, start, end):  # noqa: F811
    (a, b), (c, d) = ((box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
                      for box in (start.bounding_box(), end.bounding_box()))  # fmt: skip
    page.mouse.move(a, b)
    page.mouse.down()
    page.mouse.move(c, d, steps=12)
    page.mouse.up()


def test_the_mask_is_painted(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, NOTEBOOK)
    fig = painter(page)
    fig.scroll_into_view_if_needed()
    same_numbers(fig)
    shot(page, "07_all", theme)
    pair, button = (lambda i, j: fig.locator(f"[data-pair='{i} {j}']")), lambda name: fig.get_by_text(name, exact=True)
    past, word = np.tri(5, dtype=bool), np.array([True] * 4 + [False])
    assert (mask_after(fig, button("causal").click) == past).all()
    assert read(fig)["leak"] == [0] * 5 and "No query sees the future" in fig.inner_text()
    assert (mask_after(fig, button("padding").click) == (past & word)).all()  # "and", not instead
    shot(page, "07_both", theme)
    mask = mask_after(fig, pair(0, 2).click)
    assert mask[0].tolist() == [True, False, True, False, False] and read(fig)["leak"][0] > 0.5
    mask = mask_after(fig, lambda: drag_over(page, pair(3, 0), pair(3, 3)))
    assert not mask[3].any() and read(fig)["empty"] == [0, 0, 0, 1, 0]
    assert "vierzig may attend to nothing" in fig.inner_text()
    shot(page, "07_painted", theme)
    assert mask_after(fig, lambda: press(pair(3, 0), "Space"))[3].tolist() == [True, False, False, False, False]
    pair(3, 0).press("ArrowUp")
    assert page.evaluate("document.activeElement.dataset.pair") == "2 0"
    assert not mask_after(fig, lambda: page.keyboard.press("Enter"))[2, 0]
    assert not mask_after(fig, lambda: page.keyboard.press("Shift+ArrowRight"))[2, 1]  # the arrow carries the paint
    assert mask_after(fig, button("all").click).all()


def test_the_figure_answers_at_once_and_fits_a_narrow_window(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, NOTEBOOK)
    fig = painter(page)
    fig.scroll_into_view_if_needed()
    assert fig.evaluate("(el) => { el.style.width = '400px'; return el.scrollWidth <= el.clientWidth + 1 }")
    shot(page, "07_narrow", theme)
    times = fig.evaluate(
        """(el) => [...Array(40)].map((_, n) => {
            const cell = el.querySelectorAll('[data-pair]')[n % 25], start = performance.now();
            cell.click();
            el.getBoundingClientRect();
            return performance.now() - start })"""
    )
    print(f"\nMaskPainter, {theme}: {np.median(times):.2f} ms from click to redrawn figure (median of 40)")
    assert int(fig.get_attribute("data-drawn")) >= 40
