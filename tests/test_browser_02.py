"""Unit 02 in JupyterLab in Chromium: it trains, the decoder is stepped by mouse and keyboard, and the button trains."""

from __future__ import annotations

import os

import browser
import pytest
from test_browser import figure, lab, moved, page, press, read, same_numbers, shot, theme  # noqa: F401

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
LECTURE = "notebooks/02_rnn_attention.ipynb"


def word(fig, text):
    return fig.locator("button.cf-word", has_text=text).first


def slide(fig, value):
    """Put the slider on a step, as a mouse would."""
    fig.locator("input[aria-label=step]").fill(str(value))


def test_unit_02_and_its_figures(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    steps = figure(page, "DecoderSteps")
    steps.scroll_into_view_if_needed()
    same_numbers("DecoderSteps", steps)
    moved("DecoderSteps", steps, lambda: slide(steps, 2))
    assert "vierzig" in steps.inner_text()
    slider = steps.locator("input[aria-label=step]")
    moved("DecoderSteps", steps, lambda: press(slider, "ArrowLeft"))
    moved("DecoderSteps", steps, lambda: press(slider, "ArrowRight"))
    page.mouse.move(0, 0)
    moved("DecoderSteps", steps, lambda: word(steps, "five").hover())
    assert read(steps, "state")["chosen"] == ["source", 1]
    moved("DecoderSteps", steps, lambda: word(steps, "fünf").hover())
    assert read(steps)["source"][1] > 0.5  # "fünf" reads "five"
    assert "it reads “five” most" in steps.inner_text()
    shot(page, "02_DecoderSteps", theme)
    moved("DecoderSteps", steps, lambda: word(steps, "forty").focus())
    fits = steps.evaluate("(el) => { el.style.width = '400px'; return el.scrollWidth <= el.clientWidth + 1 }")
    assert fits, "DecoderSteps is wider than 400 px"
    trains_at_the_press_of_a_button(page, theme)


def trains_at_the_press_of_a_button(page, theme):  # noqa: F811
    button = page.get_by_role("button", name="train", exact=True)
    button.scroll_into_view_if_needed()
    assert page.get_by_text("Nothing is trained yet.").count() == 1
    page.get_by_label("hidden size").select_option("32")
    button.click()
    page.wait_for_function("() => document.body.innerText.includes('Training with hidden size 32')")
    assert button.is_disabled()
    page.wait_for_function("() => document.body.innerText.includes('of the unseen numbers are translated exactly')")
    page.wait_for_function("() => !document.querySelector('button.jupyter-button[disabled]')")
    picture = page.locator("img[alt^='Alignment with hidden size 32']")
    assert picture.count() == 1 and "attends most to" in picture.get_attribute("alt")
    picture.scroll_into_view_if_needed()
    shot(page, "02_Retrain", theme)


@pytest.mark.skipif("COURSE_SCREENSHOTS" not in os.environ, reason="pictures for those who want to look")
def test_pictures_of_unit_02(lab, page, theme):  # noqa: F811
    browser.run_all(page, lab, LECTURE)
    for number, image in enumerate(page.locator(".jp-OutputArea-output img").all()):
        image.scroll_into_view_if_needed()
        shot(page, f"02_picture_{number}", theme)
