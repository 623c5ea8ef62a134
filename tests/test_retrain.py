"""The retraining figure without a browser: nothing until pressed, then a result or an error in words."""

from __future__ import annotations

import pytest
import torch

from course_lib import widgets
from course_lib.data import number_pairs
from course_lib.widgets.retrain import retrain

WORDS = number_pairs(train=200, test=40, below=1000)
TRAINING, TESTING = (WORDS.source_train, WORDS.target_train), (WORDS.source_test, WORDS.target_test)


def figure(**changes):
    return widgets.Retrain(WORDS, TRAINING, TESTING, sizes=(5, 7), **{"number": 45, "steps": 3} | changes)


def test_training_is_a_plain_function_that_disturbs_nobody():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    steps = []
    one, other = (retrain(6, WORDS, TRAINING, TESTING, number=45, steps=2, on_step=steps.append) for _ in range(2))
    assert torch.equal(torch.rand(3), expected)  # its random numbers are its own
    assert torch.equal(one.weights, other.weights) and one.exact == other.exact and steps == [1, 2, 1, 2]
    assert one.weights.shape == (4, 2) and one.target == ["fünf", "und", "vierzig", "<eos>"]
    assert one.source == ["forty", "five"] and torch.allclose(one.weights.sum(-1), torch.ones(4))


def test_more_steps_translate_better():
    few, many = (retrain(48, WORDS, TRAINING, TESTING, steps=steps) for steps in (2, 80))
    assert few.exact < 0.2 < many.exact


def test_it_waits_for_the_button_and_then_shows_what_came_of_it():
    shown = figure()
    assert "Nothing is trained yet" in shown.result.value and shown.bar.value == 0
    shown.size.value = 7
    shown.button.click()
    assert "Hidden size 7" in shown.result.value and "translated exactly" in shown.result.value
    assert "<img" in shown.result.value and "attends most to" in shown.result.value
    assert shown.bar.value == 3 and not shown.button.disabled


def test_the_button_rests_while_training():
    shown = figure()
    seen = []
    shown.advance = lambda step: seen.append(shown.button.disabled)
    shown.button.click()
    assert seen == [True] * 3


def test_an_error_is_said_in_words_and_the_button_comes_back():
    shown = figure(number=-1)
    shown.button.click()
    assert "Training stopped" in shown.result.value and "-1" in shown.result.value
    assert "<img" not in shown.result.value and not shown.button.disabled


def test_its_parts_have_names_and_it_has_a_text():
    shown = figure()
    assert (shown.size.description, shown.button.description, shown.bar.description) == (
        "hidden size",
        "train",
        "training",
    )
    assert repr(shown) == shown._repr_mimebundle_()["text/plain"] and "5, 7" in repr(shown)


@pytest.mark.parametrize("sizes", [(), (0, 4)])
def test_sizes_are_checked(sizes):
    with pytest.raises(ValueError, match="sizes should be"):
        widgets.Retrain(WORDS, TRAINING, TESTING, sizes=sizes)
