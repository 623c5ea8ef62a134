"""Each mask against its definition, pair by pair."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib import masks

lengths = st.integers(1, 13)


def pairs(mask):
    return {(i, j) for i, row in enumerate(mask.tolist()) for j, seen in enumerate(row) if seen}


def where(rule, queries, keys=None):
    """The pairs for which rule(i, j) holds, with i the position of the query among all keys."""
    keys = queries if keys is None else keys
    return {(r, j) for r in range(queries) for j in range(keys) if rule(r + keys - queries, j)}


@given(lengths, st.integers(0, 6))
def test_causal_sees_itself_and_the_past_also_after_a_cache(queries, cached):
    mask = masks.causal(queries, queries + cached)
    assert mask.dtype == torch.bool and mask.shape == (queries, queries + cached)
    assert pairs(mask) == where(lambda i, j: j <= i, queries, queries + cached)
    assert torch.equal(masks.causal(queries), masks.causal(queries, queries))


@given(lengths, st.integers(0, 5), st.integers(0, 6))
def test_window(length, radius, cached):
    keys = length + cached
    assert pairs(masks.window(length, radius)) == where(lambda i, j: abs(i - j) <= radius, length)
    chunk = masks.window(length, radius, keys, causal=True)
    assert pairs(chunk) == where(lambda i, j: 0 <= i - j <= radius, length, keys)
    assert torch.equal(chunk, masks.window(keys, radius, causal=True)[cached:])


@given(lengths, st.integers(1, 5))
def test_strided(length, stride):
    def rule(i, j):
        return j in range(max(0, i - stride), i + 1) or (j <= i and (i - j) % stride == 0)

    assert pairs(masks.strided(length, stride)) == where(rule, length)


@given(lengths, st.integers(1, 5), st.data())
def test_fixed(length, size, data):
    summary = data.draw(st.integers(1, size))

    def rule(i, j):
        own_block = j // size == i // size
        summary_word = j % size in range(size - summary, size)
        return j <= i and (own_block or summary_word)

    assert pairs(masks.fixed(length, size, summary)) == where(rule, length)


def test_fixed_has_one_summary_word_unless_asked():
    assert torch.equal(masks.fixed(11, 4), masks.fixed(11, 4, 1))


@given(lengths, st.data())
def test_global_tokens_see_all_and_are_seen_by_all(length, data):
    count = data.draw(st.integers(0, length))
    mask = masks.global_tokens(length, count)
    assert mask[:count].all() and mask[:, :count].all()
    assert not mask[count:, count:].any()


@given(lengths, st.data())
def test_random_draws_the_number_asked_for_and_the_seed_fixes_it(length, data):
    keys = data.draw(st.integers(0, length))
    mask = masks.random(length, keys, seed=3)
    assert mask.dtype == torch.bool and (mask.sum(1) == keys).all()
    assert torch.equal(mask, masks.random(length, keys, seed=3))


def test_random_differs_by_seed_and_by_row():
    mask = masks.random(50, 3, seed=0)
    assert not torch.equal(mask, masks.random(50, 3, seed=1))
    assert len({tuple(row) for row in mask.tolist()}) > 40
    state = torch.random.get_rng_state()
    masks.random(50, 3, seed=0)
    assert torch.equal(state, torch.random.get_rng_state())
    with torch.device("meta"):  # a default device changes nothing in what is drawn
        assert torch.equal(mask, masks.random(50, 3, seed=0))


def test_block_spreads_each_cell_of_the_layout():
    layout = torch.tensor([[True, False, True], [False, True, False]])
    mask = masks.block(layout, 2)
    assert mask.shape == (4, 6)
    assert pairs(mask) == {(i, j) for i in range(4) for j in range(6) if layout[i // 2, j // 2]}
    square = masks.block(torch.eye(3, dtype=torch.bool), 4, 10)
    assert pairs(square) == where(lambda i, j: i // 4 == j // 4, 10)


def test_padding_from_lengths_and_from_tokens_agree():
    tokens = torch.tensor([[5, 6, 7, 0], [4, 0, 0, 0], [9, 9, 9, 9]])
    mask = masks.not_pad(tokens)
    assert mask.shape == (3, 1, 4)
    assert mask[:, 0].tolist() == [[True, True, True, False], [True, False, False, False], [True] * 4]
    assert torch.equal(mask, masks.padding(torch.tensor([3, 1, 4])))
    assert torch.equal(masks.not_pad(tokens, pad=9)[:, 0], tokens != 9)
    wider = masks.padding(torch.tensor([3, 1]), 5)
    assert wider.shape == (2, 1, 5) and wider.sum() == 4


def test_both_is_and_and_none_forbids_nothing():
    a, b = masks.causal(4), masks.padding(torch.tensor([3, 2]), 4)
    assert torch.equal(masks.both(a, None, b), a & b)
    assert masks.both(a, b).shape == (2, 4, 4)
    assert masks.both(None, None) is None and masks.both() is None
    assert masks.both(None, a) is a


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: masks.causal(3, 2), "T = 3 queries and S = 2 keys"),
        (lambda: masks.causal(0), "T = 0 queries"),
        (lambda: masks.window(4, -1), "radius of 0 or more; got -1"),
        (lambda: masks.strided(4, 0), "stride is 1 or more; got 0"),
        (lambda: masks.fixed(4, 2, 3), "block of 2 words, 1 to 2 .* got 3"),
        (lambda: masks.fixed(4, 2, 0), "got 0"),
        (lambda: masks.global_tokens(4, 5), "0 to 4 can be global; got 5"),
        (lambda: masks.global_tokens(4, -1), "got -1"),
        (lambda: masks.random(4, 5, seed=0), "0 to 4 random words; got 5"),
        (lambda: masks.random(4, -1, seed=0), "got -1"),
        (lambda: masks.block(torch.ones(2, 2), 2), "boolean.*torch.float32"),
        (lambda: masks.block(torch.ones(2, dtype=torch.bool), 2), r"two axes.*\(2,\)"),
        (lambda: masks.block(torch.ones(2, 2, dtype=torch.bool), 0), "1 word or more; got 0"),
        (lambda: masks.padding(torch.ones(2, 3)), r"lengths should have 1 axes .*\(2, 3\)"),
        (lambda: masks.not_pad(torch.ones(3)), r"tokens should have 2 axes .*\(3,\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_edges_are_allowed():
    assert masks.window(3, 0).equal(torch.eye(3, dtype=torch.bool))
    assert not masks.random(3, 0, seed=0).any() and masks.random(3, 3, seed=0).all()
    assert masks.global_tokens(3, 3).all() and not masks.global_tokens(3, 0).any()
    assert masks.block(torch.eye(3, dtype=torch.bool), 1).equal(torch.eye(3, dtype=torch.bool))
    assert masks.fixed(4, 2, 2).equal(masks.causal(4)) and masks.strided(4, 1).equal(masks.causal(4))


@pytest.mark.parametrize(
    "make",
    [
        lambda d: masks.causal(3, 4, device=d),
        lambda d: masks.window(3, 1, device=d),
        lambda d: masks.strided(3, 2, device=d),
        lambda d: masks.fixed(3, 2, device=d),
        lambda d: masks.global_tokens(3, 1, device=d),
        lambda d: masks.random(3, 1, seed=0, device=d),
        lambda d: masks.padding(torch.tensor([1, 2], device=d), 3),
    ],
)
def test_masks_are_made_where_they_are_asked_for(make):
    assert make("meta").device.type == "meta"
