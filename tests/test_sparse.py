"""Sparse patterns: pair for pair the dense masks, exact over those pairs, and never T × T in memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_efficient import K, V, assert_same, draw, measure, value_and_gradients

from course_lib import attention, masks, sparse
from course_lib.efficient import Pattern, attend

# Lengths around the sizes of tiles (64 rows, 256 rows) and well below them.
LENGTHS = st.one_of(st.integers(1, 40), st.sampled_from([63, 64, 65, 129, 257, 300]))


def times_computed(pattern: Pattern) -> torch.Tensor:
    """How often each pair is computed: (T, S) counts, from the tiles alone."""
    counts = torch.zeros(pattern.T, pattern.S, dtype=torch.long)
    for rows, columns, mask in pattern.tiles:
        i = torch.arange(pattern.T)[rows]
        j = torch.arange(pattern.S)[columns]
        assert len(i) and len(j), "an empty tile is work for nothing"
        assert mask is None or mask.shape == (len(i), len(j))
        counts[i[:, None], j] += 1 if mask is None else mask.long()
    return counts


def assert_is(pattern: Pattern, mask: torch.Tensor) -> None:
    """The pattern holds the mask's pairs, each once, and counts them."""
    assert torch.equal(times_computed(pattern), mask.long())
    assert torch.equal(pattern.mask(), mask)
    assert pattern.pairs() == int(mask.sum())


def qkv(queries: int, keys: int, dtype=torch.float64) -> list[torch.Tensor]:
    sizes = ((2, 1, queries, K), (2, 1, keys, K), (2, 1, keys, V))
    return [draw(*size, seed=seed, dtype=dtype) for seed, size in enumerate(sizes)]


# --- the same pairs as the masks ----------------------------------------------------------------------------


@given(LENGTHS, st.integers(0, 90), st.integers(0, 70), st.booleans())
def test_window(length, radius, cached, causal):
    keys = length + cached
    assert_is(sparse.window(length, radius, causal=causal), masks.window(length, radius, causal=causal))
    assert_is(sparse.window(length, radius, keys, causal=causal), masks.window(length, radius, keys, causal=causal))


def test_window_counts_both_ends():
    """|i − j| ≤ radius, and not <: five words for a radius of 2, three of them not in the future."""
    assert sparse.window(9, 2).mask()[4].tolist() == [False, False, *[True] * 5, False, False]
    assert sparse.window(9, 2, causal=True).mask()[4].tolist() == [False, False, *[True] * 3, *[False] * 4]


@given(LENGTHS, st.integers(1, 40))
def test_strided(length, stride):
    assert_is(sparse.strided(length, stride), masks.strided(length, stride))


@pytest.mark.parametrize(("length", "stride"), [(601, 1), (1100, 2), (50, 49), (50, 50), (50, 51), (5, 10**9)])
def test_strided_when_the_texts_between_fill_several_tiles_or_none(length, stride):
    assert_is(sparse.strided(length, stride), masks.strided(length, stride))


@given(LENGTHS, st.integers(1, 70), st.data())
def test_fixed(length, size, data):
    summary = data.draw(st.integers(1, size))
    assert_is(sparse.fixed(length, size, summary), masks.fixed(length, size, summary))


@pytest.mark.parametrize(("length", "size", "summary"), [(700, 300, 3), (600, 256, 1), (300, 10**6, 2)])
def test_fixed_when_one_block_fills_several_tiles(length, size, summary):
    assert_is(sparse.fixed(length, size, summary), masks.fixed(length, size, summary))


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 9), st.integers(0, 99))
def test_block_sparse_of_any_layout(rows, columns, size, seed):
    layout = torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed)) < 0.4
    assert_is(sparse.block_sparse(layout, size), masks.block(layout, size))


@given(st.integers(1, 8), st.integers(1, 9), st.integers(0, 99), st.data())
def test_block_sparse_cut_to_a_length(blocks, size, seed, data):
    length = data.draw(st.integers(1, blocks * size))
    layout = torch.rand(blocks, blocks, generator=torch.Generator().manual_seed(seed)) < 0.4
    assert_is(sparse.block_sparse(layout, size, length), masks.block(layout, size, length))


def test_blocks_larger_than_a_tile():
    layout = torch.tensor([[True, False], [True, True]])
    pattern = sparse.block_sparse(layout, 300, 550)
    assert_is(pattern, masks.block(layout, 300, 550))
    assert max(len(range(550)[tile.rows]) for tile in pattern.tiles) <= 256


@given(LENGTHS, st.integers(1, 20), st.integers(0, 2), st.integers(0, 3), st.integers(0, 4), st.integers(0, 9))
def test_bigbird(length, size, radius, global_blocks, random_blocks, seed):
    pattern = sparse.bigbird(
        length, size, radius=radius, global_blocks=global_blocks, random_blocks=random_blocks, seed=seed
    )
    blocks = -(-length // size)
    layout = masks.window(blocks, radius) | masks.global_tokens(blocks, min(global_blocks, blocks))
    layout |= masks.random(blocks, min(random_blocks, blocks), seed=seed)
    assert_is(pattern, masks.block(layout, size, length))


def test_bigbird_has_its_three_parts():
    size, length = 4, 78
    mask = sparse.bigbird(length, size, radius=1, global_blocks=2, random_blocks=3, seed=5).mask()
    assert mask[:8].all(), "the global blocks see everybody"
    assert mask[:, :8].all(), "and everybody sees them"
    assert (mask | ~masks.window(length, size)).all(), "a word sees at least a block to both sides"
    without = sparse.bigbird(length, size, radius=1, global_blocks=2, random_blocks=0).mask()
    more = (mask & ~without)[8:, 8:].sum(1) / size
    assert (mask | ~without).all() and (more <= 3).all() and more.mean() > 1, "and random blocks beside"


def test_bigbird_is_drawn_from_its_seed():
    first, again, other = (sparse.bigbird(200, 8, seed=seed).mask() for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


# --- attention over them ------------------------------------------------------------------------------------

PATTERNS = {
    "window": lambda n: sparse.window(n, 9),
    "causal window": lambda n: sparse.window(n, 9, causal=True),
    "window after a cache": lambda n: sparse.window(n, 9, n + 5),
    "strided": lambda n: sparse.strided(n, 7),
    "fixed, one summary": lambda n: sparse.fixed(n, 6),
    "fixed, three summaries": lambda n: sparse.fixed(n, 6, 3),
    "bigbird": lambda n: sparse.bigbird(n, 5, seed=3),
    "block-sparse with empty rows": lambda n: sparse.block_sparse(
        torch.tensor([[True, False, True], [False, False, False], [False, True, False]]), -(-n // 3), n
    ),
}
everywhere = pytest.mark.parametrize("name", PATTERNS)


@everywhere
@pytest.mark.parametrize("length", [1, 16, 131])
def test_equal_to_exact_attention_with_the_mask_in_float64(name, length):
    pattern = PATTERNS[name](length)
    mask = pattern.mask()
    assert_same(lambda *x: attend(*x, pattern), lambda *x: attention.explicit(*x, mask)[0], *qkv(length, pattern.S))


@everywhere
def test_equal_to_exact_attention_with_the_mask_in_float32(name):
    pattern = PATTERNS[name](301)
    mask = pattern.mask()
    assert_same(
        lambda *x: attend(*x, pattern),
        lambda *x: attention.explicit(*x, mask)[0],
        *qkv(301, pattern.S, torch.float32),
        tolerance=1e-5,
    )


@everywhere
def test_padding_joins_the_pattern(name):
    pattern = PATTERNS[name](37)
    padding = masks.padding(torch.tensor([11, 0]), pattern.S)[:, None]
    mask = pattern.mask() & padding
    assert not mask.any(-1).all(), "some rows see nobody, and should get zeros"
    inputs = qkv(37, pattern.S)
    assert_same(lambda *x: attend(*x, pattern, padding), lambda *x: attention.explicit(*x, mask)[0], *inputs)
    for result in value_and_gradients(lambda *x: attend(*x, pattern, padding), *inputs):
        assert result.isfinite().all() and (result[1] == 0).all()


@everywhere
def test_gradcheck(name):
    pattern = PATTERNS[name](8)
    inputs = [x[:1, 0].requires_grad_() for x in qkv(8, pattern.S)]
    assert torch.autograd.gradcheck(lambda *x: attend(*x, pattern), inputs)


@everywhere
def test_logits_of_200(name):
    pattern = PATTERNS[name](67)
    mask = pattern.mask()
    q, k, v = qkv(67, pattern.S)
    scale = float(200 / (q @ k.mT).abs().max())
    assert_same(
        lambda *x: attend(*x, pattern, scale=scale),
        lambda *x: attention.explicit(*x, mask, scale=scale)[0],
        *(q, k, v),
        tolerance=1e-9,
    )


@pytest.mark.parametrize("name", ["causal window", "strided", "fixed, one summary", "fixed, three summaries"])
def test_nothing_comes_from_the_future(name):
    """Change word 20: what stands before it keeps every bit, and has gradient exactly 0 from there on."""
    pattern = PATTERNS[name](41)
    q, k, v = (x.requires_grad_() for x in qkv(41, 41))
    out = attend(q, k, v, pattern)
    out[..., :20, :].square().sum().backward()
    for x in (q, k, v):
        assert (x.grad[..., 20:, :] == 0).all() and (x.grad[..., :20, :] != 0).any()
    changed = [x.detach().clone() for x in (q, k, v)]
    for x in changed:
        x[..., 20, :] = 50.0
    assert torch.equal(attend(*changed, pattern)[..., :20, :], out[..., :20, :])
    assert not torch.equal(attend(*changed, pattern)[..., 20, :], out[..., 20, :])


# --- cost ---------------------------------------------------------------------------------------------------

SIZES = {
    "window": lambda n: sparse.window(n, 64),
    "strided": lambda n: sparse.strided(n, 64),
    "fixed": lambda n: sparse.fixed(n, 64, 4),
    "bigbird": lambda n: sparse.bigbird(n, 64, seed=0),
    "block-sparse": lambda n: sparse.block_sparse(torch.eye(n // 64, dtype=torch.bool).roll(3, 0), 64),
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("backward", [False, True])
def test_memory_grows_with_the_length_and_not_with_its_square(name, backward):
    """Making the pattern is counted too."""

    def run(q, k, v):
        return attend(q, k, v, SIZES[name](q.shape[-2]))

    small, large = (measure(run, length, backward=backward) for length in (4096, 8192))
    assert large.largest <= 64 * 8192
    assert large.peak <= 2.3 * small.peak


@pytest.mark.parametrize(
    "pattern",
    [
        lambda n: sparse.window(n, n),
        lambda n: sparse.strided(n, 1),
        lambda n: sparse.strided(n, n),
        lambda n: sparse.fixed(n, n),
        lambda n: sparse.fixed(n, 2, 2),
        lambda n: sparse.block_sparse(torch.ones(1, 1, dtype=torch.bool), n),
    ],
    ids=["window", "strided by 1", "strided by T", "one fixed block", "all words are summaries", "one block"],
)
def test_no_matrix_even_where_the_pattern_is_dense(pattern):
    length = 2048
    ledger = measure(lambda q, k, v: attend(q, k, v, pattern(length)), length)
    assert ledger.largest <= length * 256 < length * length


def test_the_number_of_pairs_is_known_without_the_mask():
    n, r = 100_000, 64
    assert sparse.window(n, r).pairs() == n * (2 * r + 1) - r * (r + 1)
    assert sparse.window(n, r, causal=True).pairs() == n * (r + 1) - r * (r + 1) // 2
    blocks = 1000
    assert sparse.fixed(blocks * 100, 100, 3).pairs() == blocks * 5050 + 100 * 3 * blocks * (blocks - 1) // 2
    assert sparse.bigbird(6400, 64, random_blocks=0).pairs() == 64**2 * (100 + 3 + 97 * 4 + 3)


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sparse.window(5, -1), "radius of 0 or more; got -1"),
        (lambda: sparse.window(5, 1, 4), "newest of all tokens; got T = 5 and S = 4"),
        (lambda: sparse.strided(5, 0), "stride is 1 or more; got 0"),
        (lambda: sparse.fixed(5, 4, 5), "1 to 4 can be its summary; got 5"),
        (lambda: sparse.fixed(5, 4, 0), "1 to 4 can be its summary; got 0"),
        (lambda: sparse.block_sparse(torch.ones(3), 2), r"two axes .* got shape \(3,\)"),
        (lambda: sparse.block_sparse(torch.ones(3, 3), 2), "boolean.* got torch.float32"),
        (lambda: sparse.block_sparse(torch.ones(3, 3) > 0, 0), "1 word or more; got 0"),
        (
            lambda: sparse.block_sparse(torch.ones(3, 3) > 0, 4, 13),
            r"\(3, 3\) blocks of 4 words is too small for 13",
        ),
        (lambda: sparse.bigbird(0, 4), "needs words and blocks of words; got 0 and 4"),
        (lambda: sparse.bigbird(4, 0), "needs words and blocks of words; got 4 and 0"),
        (lambda: sparse.bigbird(9, 3, radius=-1), "radius of 0 or more; got -1"),
    ],
)
def test_bad_input_is_refused_in_words(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "pattern",
    [
        sparse.window(9, 2, device="meta"),
        sparse.strided(9, 2, device="meta"),
        sparse.fixed(200, 4, 3, device="meta"),
        sparse.bigbird(9, 1, device="meta"),
    ],
    ids=["window", "strided", "fixed", "bigbird"],
)
def test_tensors_are_made_where_they_are_asked_for(pattern):
    tensors = [x for tile in pattern.tiles for x in tile if isinstance(x, torch.Tensor)]
    assert tensors and all(x.device.type == "meta" for x in tensors)


def test_neighbours_are_read_in_place():
    """Columns without a gap are a slice, which is a view: only scattered ones are copied together."""
    band = sparse.block_sparse(masks.window(9, 1), 8)
    assert all(isinstance(tile.columns, slice) for tile in band.tiles)
    assert all(isinstance(tile.columns, slice) for tile in sparse.fixed(300, 4).tiles)
    assert any(isinstance(tile.columns, torch.Tensor) for tile in sparse.bigbird(300, 4).tiles)
