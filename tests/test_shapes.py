"""The errors of shapes.py, for NumPy arrays and torch tensors alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from course_lib import shapes

makers = pytest.mark.parametrize("zeros", [np.zeros, torch.zeros], ids=["numpy", "torch"])


@makers
def test_shape_is_written_as_people_write_it(zeros):
    assert shapes.shape(zeros((2, 5, 16))) == "(2, 5, 16)"


@makers
def test_each_check_lets_good_input_through_and_names_bad_input(zeros):
    x = zeros((2, 5, 16))
    shapes.expect_rank(x, "x", "BTD")
    shapes.expect_last(x, "x", 16)
    shapes.expect_attention(x, zeros((2, 7, 16)), zeros((2, 7, 3)))
    with pytest.raises(ValueError, match=r"x should have 2 axes \(T = queries .*, D = model width d_model\); got"):
        shapes.expect_rank(x, "x", "TD")
    with pytest.raises(ValueError, match=r"last axis of x should be d_model = 8; got shape \(2, 5, 16\)"):
        shapes.expect_last(x, "x", 8)
    with pytest.raises(ValueError, match="d_state = 8"):
        shapes.expect_last(zeros(()), "x", 8, "d_state")


def test_masks_of_both_kinds():
    shapes.expect_mask(np.ones((3, 4), dtype=bool), 3, 4)
    shapes.expect_mask(torch.ones(1, 4, dtype=torch.bool), 3, 4)
    shapes.expect_mask(torch.ones(2, 3, 1, dtype=torch.bool), 3, 4)
    with pytest.raises(TypeError, match="got int64"):
        shapes.expect_mask(np.ones((3, 4), dtype=int), 3, 4)
    with pytest.raises(TypeError, match="got list"):
        shapes.expect_mask([[True]], 1, 1)
    with pytest.raises(ValueError, match=r"\(3, 4\), or 1 to broadcast; got shape \(4, 3\)"):
        shapes.expect_mask(np.ones((4, 3), dtype=bool), 3, 4)


@pytest.mark.parametrize("heads, d_model", [(5, 12), (0, 12), (-3, 12), (1, 0)])
def test_heads_must_divide(heads, d_model):
    with pytest.raises(ValueError, match=f"d_model = {d_model} cannot be split into {heads} heads"):
        shapes.expect_divides(heads, d_model)


def test_expect_says_what_it_was_told():
    shapes.expect(True, "never")
    with pytest.raises(ValueError, match="so it goes"):
        shapes.expect(False, "so it goes")


def test_every_letter_of_the_key_is_explained():
    assert set("BHTSDKVFC") == set(shapes.KEY) and all(shapes.KEY.values())
