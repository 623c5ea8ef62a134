"""Unit 08 in JupyterLab in Chromium: the table of sinusoids and the curves, moved by mouse and by keyboard."""

from __future__ import annotations

import browser
import numpy as np
import pytest
from test_browser import lab, page, press, read, shot, theme  # noqa: F401

from course_lib import widgets

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
LECTURE = "notebooks/08_positions.ipynb"


def same_numbers(fig):
    """The browser shows what the NumPy twin computes in the same state."""
    state, theirs = read(fig, "state"), read(fig)
    ours = (widgets.DotsByDistance if "look" in state else widgets.SinusoidImage)(**state).numbers()
    assert set(ours) == set(theirs)
    for key, value in ours.items():
        np.testing.assert_allclose(np.array(theirs[key]), value, atol=1e-5, err_msg=key)


def moved(fig, action):
    before = read(fig)
    action()
    assert read(fig) != before, "nothing moved"
    same_numbers(fig)


def named(fig, name):
    return fig.locator(f"input[aria-label='{name}']")


def click_slider(page, handle, share):  # noqa: F811
    """A click of the mouse on the slider's track."""
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)


def fits(fig):
    return fig.evaluate("(el) => { el.style.width = '400px'; return el.scrollWidth <= el.clientWidth + 1 }")


def test_unit_08_and_its_figures(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    image = page.locator(".cf", has=page.locator("input[aria-label='position t']"))
    dots = page.locator(".cf", has=page.locator("input[aria-label='rotary looks back']"))
    assert image.count() == dots.count() == 1
    the_table_moves(page, image, theme)
    the_curves_move(page, dots, theme)
    for picture in page.locator("img[alt^='ALiBi']").all():
        picture.scroll_into_view_if_needed()
        shot(page, "08_alibi", theme)
    page.get_by_text("beyond 16 (three seeds)").last.scroll_into_view_if_needed()
    shot(page, "08_table", theme)
    assert fits(image) and fits(dots), "wider than 400 px"


def the_table_moves(page, image, theme):  # noqa: F811
    image.scroll_into_view_if_needed()
    same_numbers(image)
    canvas = image.locator("canvas")
    box = canvas.bounding_box()
    moved(image, lambda: page.mouse.click(box["x"] + 30, box["y"] + box["height"] * 0.51))
    assert read(image, "state")["position"] == 25 and "PE(25) begins" in image.inner_text()
    shot(page, "08_SinusoidImage", theme)
    moved(image, lambda: click_slider(page, named(image, "width D"), 0.8))
    moved(image, lambda: press(named(image, "width D"), "ArrowLeft"))
    moved(image, lambda: press(named(image, "base"), "ArrowLeft"))
    moved(image, lambda: press(named(image, "position t"), "ArrowRight"))
    state = read(image, "state")
    drawn = canvas.evaluate("(c) => [c.width, c.height, ...c.getContext('2d').getImageData(0, 0, 2, 1).data]")
    assert drawn[:2] == [state["d_model"], 50]
    assert drawn[2:5] == [33, 145, 140] and drawn[6:9] == [253, 231, 37]  # PE(0) = 0, 1, …: the middle, the top


def the_curves_move(page, dots, theme):  # noqa: F811
    dots.scroll_into_view_if_needed()
    same_numbers(dots)
    assert read(dots)["rotary"] == pytest.approx(read(dots)["sinusoidal"])
    moved(dots, lambda: click_slider(page, named(dots, "rotary looks back"), 0.4))
    moved(dots, lambda: press(named(dots, "rotary looks back"), "ArrowLeft"))
    assert int(np.argmax(read(dots)["rotary"])) == read(dots, "state")["look"] > 0
    moved(dots, lambda: press(named(dots, "ALiBi head"), "ArrowRight"))
    moved(dots, lambda: press(named(dots, "base"), "ArrowLeft"))
    moved(dots, lambda: press(named(dots, "width D"), "ArrowRight"))
    dots.scroll_into_view_if_needed()
    shot(page, "08_DotsByDistance", theme)
