"""Unit 03 in JupyterLab in Chromium: words are dragged into another order, token vectors about the plane."""

from __future__ import annotations

import browser
import numpy as np
import pytest
from test_browser import drag, lab, page, press, read, shot, theme  # noqa: F401

from course_lib import widgets

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
LECTURE = "notebooks/03_self_attention.ipynb"


def same_numbers(fig):
    """The browser shows what the NumPy twin computes in the same state."""
    state, theirs = read(fig, "state"), read(fig)
    made = (widgets.Reorder if "order" in state else widgets.TokenPlane)(state["tokens"], state["vectors"])
    for trait in {"order", "measure"} & set(state):
        setattr(made, trait, state[trait])
    ours = made.numbers()
    assert set(ours) == set(theirs)
    for key, value in ours.items():
        np.testing.assert_allclose(np.array(theirs[key]), value, atol=1e-5, err_msg=key)


def moved(fig, action):
    before = read(fig)
    action()
    assert read(fig) != before, "nothing moved"
    same_numbers(fig)


def carry(page, fig, word, place):  # noqa: F811
    """Take a word by the mouse and let it go over the middle of another place, a little beyond."""
    chips = fig.locator("button.cf-word")
    fig.scroll_into_view_if_needed()
    start = chips.nth([text.strip() for text in chips.all_inner_texts()].index(word)).bounding_box()
    end = chips.nth(place).bounding_box()
    beyond = 0.8 if end["x"] > start["x"] else 0.2
    page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
    page.mouse.down()
    page.mouse.move(end["x"] + beyond * end["width"], end["y"] + end["height"] / 2, steps=8)
    page.mouse.up()


def order_of(fig):
    return [text.strip() for text in fig.locator("button.cf-word").all_inner_texts()]


def test_words_are_reordered_and_the_weights_move_with_them(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    fig = page.locator(".cf", has=page.locator("[aria-label='words in their order']"))
    fig.scroll_into_view_if_needed()
    same_numbers(fig)
    start = np.array(read(fig)["weights"])
    assert order_of(fig) == ["four", "thousand", "five"] and read(fig)["by_place"] == 0
    moved(fig, lambda: carry(page, fig, "four", 2))
    assert order_of(fig) == ["thousand", "five", "four"]
    order = read(fig, "state")["order"]
    assert order == [1, 2, 0]
    np.testing.assert_allclose(read(fig)["weights"], start[order][:, order])
    assert read(fig)["by_token"] < 1e-12 and read(fig)["by_place"] > 0.1
    shot(page, "03_Reorder", theme)
    moved(fig, lambda: carry(page, fig, "four", 0))
    assert order_of(fig) == ["four", "thousand", "five"]
    first = fig.locator("button.cf-word").first
    moved(fig, lambda: press(first, "ArrowRight"))
    assert order_of(fig) == ["thousand", "four", "five"]
    moved(fig, lambda: page.keyboard.press("ArrowRight"))  # the focus went with the word
    assert order_of(fig) == ["thousand", "five", "four"]
    page.keyboard.press("ArrowRight")  # there is no place beyond the last
    assert order_of(fig) == ["thousand", "five", "four"]
    headers = fig.locator("table").first.locator("th[scope=row]").all_inner_texts()
    assert headers == order_of(fig)
    moved(fig, lambda: fig.get_by_role("button", name="reverse").click())
    assert order_of(fig) == ["four", "five", "thousand"]
    moved(fig, lambda: fig.get_by_role("button", name="as it was").click())
    assert read(fig)["by_place"] == 0


def test_token_vectors_are_dragged_in_the_plane(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    fig = page.locator(".cf", has=page.locator("select[aria-label=similarity]"))
    fig.scroll_into_view_if_needed()
    same_numbers(fig)
    shot(page, "03_TokenPlane", theme)
    after = fig.locator("circle[aria-label=after]")
    moved(fig, lambda: drag(page, after, 90, -120))
    assert "bank → after" in fig.inner_text()  # a long vector is loud
    moved(fig, lambda: press(after, "ArrowUp"))
    measure = fig.get_by_label("similarity")
    moved(fig, lambda: measure.select_option("cosine"))
    assert "bank → bank" in fig.inner_text()
    moved(fig, lambda: press(measure, "ArrowDown"))
    assert read(fig, "state")["measure"] == "distance"
    shot(page, "03_TokenPlane_distance", theme)


def test_figures_of_unit_03_fit_a_narrow_window(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    figures = page.locator(".cf").all()
    assert len(figures) == 2
    for number, fig in enumerate(figures):
        fits = fig.evaluate("(el) => { el.style.width = '400px'; return el.scrollWidth <= el.clientWidth + 1 }")
        assert fits, f"figure {number} is wider than 400 px"
        fig.scroll_into_view_if_needed()
        shot(page, f"03_narrow_{number}", theme)
    for number, image in enumerate(page.locator(".jp-OutputArea-output img").all()):
        assert len(image.get_attribute("alt")) > 20
        image.scroll_into_view_if_needed()
        shot(page, f"03_picture_{number}", theme)
