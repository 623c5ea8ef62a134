"""Unit 07's promise: what only looks like a mistake loses the points for empty rows, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import checks, exercises
from course_lib.by_hand import softmax
from course_lib.exercises.u07 import NO_KEYS


def filled(fill):
    return lambda scores, mask: softmax(np.where(mask, scores, fill))


def renormalised(scores, mask):
    kept = softmax(scores) * mask
    return kept / kept.sum(axis=-1, keepdims=True)


NOT_MISTAKES = {
    "minus infinity": filled(-np.inf),
    "-1e9": filled(-1e9),
    "-1e9 added": lambda scores, mask: softmax(scores + ~mask * -1e9),
    "lowest float32": filled(float(np.finfo(np.float32).min)),
    "after the softmax, renormalised": renormalised,
}


def attention_with(weigh, fill_first):
    """A decoder's attention; the mask comes before the scale, or after it."""

    def attend(q, k, v, word):
        mask = np.tri(q.shape[1], dtype=bool) & word[:, None, :]
        scores, root = q @ k.swapaxes(-1, -2), np.sqrt(q.shape[-1])
        if fill_first:
            return softmax(np.where(mask, scores, -np.inf) / root) @ v
        return weigh(scores / root, mask) @ v

    return attend


def failed(subject, exercise_id):
    with np.errstate(all="ignore"):
        report = checks.try_out(subject, exercises.find(exercise_id))
    assert report.misconception is not None and "All else is right" in report.misconception.idea
    return [result.check.name for result in report.results if not result.passed]


@pytest.mark.parametrize("name", NOT_MISTAKES)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_what_only_looks_like_a_mistake_loses_the_empty_rows_alone(name):
    assert failed(NOT_MISTAKES[name], "07.4") == [NO_KEYS]
    assert failed(attention_with(NOT_MISTAKES[name], fill_first=False), "07.5") == [NO_KEYS]


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_filling_before_scaling_is_no_mistake():
    assert failed(attention_with(None, fill_first=True), "07.5") == [NO_KEYS]
