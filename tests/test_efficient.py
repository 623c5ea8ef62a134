"""Tiled attention is exact attention, in value and gradient, without the T × S matrix; and Linformer."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_lib import attention, efficient, masks
from course_lib.efficient import Linformer, Pattern, Tile, attend, dense, tiled

B, H, T, S, K, V = 2, 3, 11, 17, 5, 7


def draw(*size: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def qkv(queries=T, keys=S, lead=(B, H), dtype=torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    sizes = ((*lead, queries, K), (*lead, keys, K), (*lead, keys, V))
    q, k, v = (draw(*size, seed=seed, dtype=dtype) for seed, size in enumerate(sizes))
    return q, k, v


def value_and_gradients(f: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """f's value, and the gradient of each input for one fixed cotangent."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    out = f(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, draw(*out.shape, seed=9, dtype=out.dtype))]


def assert_same(f: Callable[..., Tensor], g: Callable[..., Tensor], *inputs: Tensor, tolerance=1e-10) -> None:
    names = ("value", "gradient of q", "gradient of k", "gradient of v")
    both = value_and_gradients(f, *inputs), value_and_gradients(g, *inputs)
    for name, ours, theirs in zip(names, *both, strict=True):
        torch.testing.assert_close(
            ours, theirs, atol=tolerance, rtol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )


class Ledger(TorchDispatchMode):
    """Writes down what torch allocates: the largest tensor, and the most bytes alive at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.alive = self.peak = 0
        self.known: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        old = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        for x in tree_leaves(out):
            if isinstance(x, Tensor):
                self.largest = max(self.largest, x.numel())
                self._enter(x.untyped_storage(), old)
        return out

    def _enter(self, storage: torch.UntypedStorage, old: set[int]) -> None:
        key = storage._cdata
        if key not in self.known and key not in old:
            self.known[key] = storage.nbytes()
            self.alive += storage.nbytes()
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self._leave, key)

    def _leave(self, key: int) -> None:
        self.alive -= self.known.pop(key)


def measure(f: Callable[[Tensor, Tensor, Tensor], Tensor], length: int, *, backward: bool = True) -> Ledger:
    """What f allocates for one head of `length` tokens, forwards or forwards and backwards."""
    inputs = [draw(1, length, 8, seed=seed, dtype=torch.float32).requires_grad_(backward) for seed in range(3)]
    with Ledger() as ledger:
        out = f(*inputs)
        if backward:
            out.sum().backward()
    return ledger


# --- tiled = exact ------------------------------------------------------------------------------------------


@given(
    st.integers(1, 23),
    st.integers(0, 23),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([(), (2,), (2, 1, 3)]),
)
def test_tiled_is_exact_for_every_size_of_tile(queries, cached, tile, causal, lead):
    keys = queries + cached
    mask = masks.causal(queries, keys) if causal else None
    assert_same(
        lambda *x: tiled(*x, causal=causal, tile=tile),
        lambda *x: attention.explicit(*x, mask)[0],
        *qkv(queries, keys, lead),
    )


@given(st.integers(2, 19), st.integers(1, 18), st.integers(1, 9))
def test_more_queries_than_keys(queries, fewer, tile):
    keys = max(1, queries - fewer)
    inputs = qkv(queries, keys)
    assert_same(lambda *x: tiled(*x, tile=tile), lambda *x: F.scaled_dot_product_attention(*x), *inputs)


@pytest.mark.parametrize("causal", [False, True])
def test_float32_with_the_default_tile_over_several_tiles(causal):
    inputs = qkv(600, 600, (2,), torch.float32)
    assert_same(
        lambda *x: tiled(*x, causal=causal),
        lambda *x: F.scaled_dot_product_attention(*x, is_causal=causal),
        *inputs,
        tolerance=1e-5,
    )


@given(st.integers(1, 12), st.integers(0, 12), st.integers(1, 7), st.booleans())
def test_padding_in_front_or_behind_also_for_a_whole_sentence(queries, cached, tile, causal):
    keys = queries + cached
    lengths = torch.tensor([keys, keys // 2, 0])
    behind = masks.padding(lengths, keys)
    for padding in (behind, behind.flip(-1)):
        mask = padding[:, None] & masks.causal(queries, keys) if causal else padding[:, None]
        assert_same(
            lambda *x, padding=padding: tiled(*x, padding[:, None], causal=causal, tile=tile),
            lambda *x, mask=mask: attention.explicit(*x, mask)[0],
            *qkv(queries, keys, (3, 2)),
        )


def test_who_sees_nobody_gets_zeros_and_gives_no_gradient():
    padding = masks.padding(torch.tensor([4, 0]), S)
    out, *gradients = value_and_gradients(lambda *x: tiled(*x, padding, tile=3), *qkv(lead=(2,)))
    for x in (out, *gradients):
        assert x.isfinite().all()
        assert (x[1] == 0).all() and (x[0] != 0).any()
    assert (gradients[1][0, 4:] == 0).all() and (gradients[2][0, 4:] == 0).all()


def test_a_mask_for_each_head_and_one_for_all():
    per_head = masks.padding(torch.tensor([3, 17, 9]), S)  # (H, 1, S) against q (B, H, T, K)
    for mask in (per_head, per_head[1], per_head[:, :, :1]):
        assert_same(
            lambda *x, mask=mask: tiled(*x, mask, tile=4),
            lambda *x, mask=mask: attention.explicit(*x, mask)[0],
            *qkv(),
        )


def test_leading_axes_broadcast():
    q, k, v = draw(B, 1, T, K), draw(H, S, K, seed=1), draw(S, V, seed=2)
    mask = masks.padding(torch.tensor([3, S]), S)[:, None]
    assert tiled(q, k, v, mask, tile=4).shape == (B, H, T, V)
    assert_same(lambda *x: tiled(*x, mask, tile=4), lambda *x: attention.explicit(*x, mask)[0], q, k, v)


@pytest.mark.parametrize("scale", [1.0, 0.3, 0.0])
def test_scale_replaces_the_root(scale):
    assert_same(lambda *x: tiled(*x, scale=scale, tile=4), lambda *x: attention.explicit(*x, scale=scale)[0], *qkv())


def test_layout_in_memory_does_not_matter():
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in qkv())
    assert not q.is_contiguous()
    assert_same(lambda *x: tiled(*x, tile=4), lambda *x: attention.explicit(*x)[0], q, k, v)


@pytest.mark.parametrize("causal", [False, True])
def test_gradcheck(causal):
    inputs = [x.requires_grad_() for x in qkv(5, 7, (2,))]
    mask = masks.padding(torch.tensor([7, 3]), 7)
    assert torch.autograd.gradcheck(lambda *x: tiled(*x, mask, causal=causal, tile=3), inputs)


# --- numbers that try the online softmax --------------------------------------------------------------------


@pytest.mark.parametrize("highest", [200, -200])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_logits_from_minus_200_to_200_rising_or_falling_from_tile_to_tile(highest, causal, dtype, tolerance):
    root = math.sqrt(200)
    q = torch.full((T, 1), root, dtype=dtype)
    k = torch.linspace(-highest / root, highest / root, S, dtype=dtype)[:, None]
    assert_same(
        lambda *x: tiled(*x, scale=1.0, causal=causal, tile=2),
        lambda *x: attention.explicit(*x, scale=1.0, causal=causal)[0],
        *(q, k, draw(S, V, dtype=dtype)),
        tolerance=tolerance,
    )


def test_equal_scores_average_and_one_huge_score_chooses():
    _, k, v = qkv(lead=())
    torch.testing.assert_close(tiled(torch.zeros(T, K, dtype=v.dtype), k, v, tile=4), v.mean(0).expand(T, V))
    chosen = torch.zeros(S, K, dtype=v.dtype)
    chosen[6] = 1e4
    torch.testing.assert_close(tiled(torch.ones(T, K, dtype=v.dtype), chosen, v, tile=4), v[6].expand(T, V))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    """Rounded once, at the end: the same bits as the float32 result, rounded; also the gradients."""
    inputs = qkv(300, 300, (1,), dtype)
    low = value_and_gradients(lambda *x: tiled(*x, tile=32), *inputs)
    high = value_and_gradients(lambda *x: tiled(*x, tile=32).to(dtype), *(x.float() for x in inputs))
    for ours, exact in zip(low, high, strict=True):
        assert ours.dtype == dtype
        assert torch.equal(ours, exact.to(dtype))


def test_autocast_does_not_round_the_sums():
    inputs = qkv(60, 60, (1,), torch.float32)
    plain = value_and_gradients(lambda *x: tiled(*x, tile=16), *inputs)
    with torch.autocast("cpu", torch.bfloat16):
        cast = value_and_gradients(lambda *x: tiled(*x, tile=16), *inputs)
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))


def test_inputs_stay_as_they_are():
    inputs = qkv()
    before = [x.clone() for x in inputs]
    padding = masks.padding(torch.tensor([3, 9]), S)[:, None]
    kept = padding.clone()
    value_and_gradients(lambda *x: tiled(*x, padding, tile=4), *inputs)
    tiled(*inputs, padding, tile=4)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True)) and torch.equal(padding, kept)


def test_a_second_derivative_is_refused_and_not_wrong():
    q, k, v = (x.requires_grad_() for x in qkv())
    (gradient,) = torch.autograd.grad(tiled(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


# --- memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backward", [False, True])
def test_memory_grows_with_the_length_and_not_with_its_square(causal, backward):
    small, large = (measure(lambda *x: tiled(*x, causal=causal), length, backward=backward) for length in (4096, 8192))
    assert large.largest <= 8192 * 64
    assert large.peak <= 2.3 * small.peak


def test_the_ledger_sees_the_matrix_of_exact_attention():
    """The measure itself: where T × T is built, it says so."""
    small, large = (measure(lambda *x: attention.explicit(*x)[0], length) for length in (256, 512))
    assert large.largest == 512 * 512
    assert 3.5 < large.peak / small.peak < 4
    assert small.peak >= 2 * 256 * 256 * 4


# --- patterns -----------------------------------------------------------------------------------------------


@given(st.integers(0, 20), st.integers(0, 9), st.integers(1, 8), st.booleans())
def test_dense_counts_its_pairs(queries, cached, tile, causal):
    keys = queries + cached
    pattern = dense(queries, keys, causal=causal, tile=tile)
    mask = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries if causal else keys)
    assert torch.equal(pattern.mask(), mask)
    assert pattern.pairs() == mask.sum()


def test_causal_leaves_out_what_lies_above_the_diagonal():
    assert len(dense(12, tile=3).tiles) == 16
    assert len(dense(12, causal=True, tile=3).tiles) == 10


def test_a_pattern_of_your_own():
    """Rows 0 to 2 see two scattered keys, rows 3 and up all keys from 4, but row 3 only key 4."""
    corner = torch.ones(T - 3, S - 4, dtype=torch.bool)
    corner[0, 1:] = False
    tiles = (Tile(slice(0, 3), torch.tensor([9, 2])), Tile(slice(3, T), slice(4, S), corner))
    pattern = Pattern(tiles, T, S)
    mask = torch.zeros(T, S, dtype=torch.bool)
    mask[:3, [2, 9]] = True
    mask[3, 4] = True
    mask[4:, 4:] = True
    assert torch.equal(pattern.mask(), mask) and pattern.pairs() == mask.sum()
    assert_same(lambda *x: attend(*x, pattern), lambda *x: attention.explicit(*x, mask)[0], *qkv())


def test_an_empty_pattern_and_no_queries():
    q, k, v = (x.requires_grad_() for x in qkv())
    out = attend(q, k, v, Pattern((), T, S))
    out.sum().backward()
    assert out.shape == (B, H, T, V) and (out == 0).all() and (q.grad == 0).all() and (v.grad == 0).all()
    assert tiled(q[..., :0, :], k, v).shape == (B, H, 0, V)
    assert tiled(q[:0], k[:0], v[:0]).shape == (0, H, T, V)


# --- bad input ----------------------------------------------------------------------------------------------


def test_bad_input_is_refused_in_words():
    q, k, v = qkv()
    with pytest.raises(ValueError, match="same width d_k"):
        tiled(q[..., :3], k, v)
    with pytest.raises(ValueError, match="Every key needs its value"):
        tiled(q, k, v[..., :4, :])
    with pytest.raises(TypeError, match="A mask is boolean"):
        tiled(q, k, v, torch.ones(1, S))
    with pytest.raises(ValueError, match=r"hides padding.*got shape \(11, 17\).*`causal`"):
        tiled(q, k, v, torch.ones(T, S, dtype=torch.bool))
    with pytest.raises(ValueError, match="T <= S; got T = 17 and S = 11"):
        tiled(k, q, q, causal=True)
    with pytest.raises(ValueError, match="1 row or more; got 0"):
        tiled(q, k, v, tile=0)
    with pytest.raises(ValueError, match="pattern is for 4 queries and 17 keys; got q"):
        attend(q, k, v, dense(4, S))
    with pytest.raises(ValueError, match="pattern is for 11 queries and 16 keys; got q"):
        attend(q, k, v, dense(T, 16))


# --- Linformer ----------------------------------------------------------------------------------------------


def linformer(length=S, rank=4, dtype=torch.float64) -> Linformer:
    return Linformer(length, rank, generator=torch.Generator().manual_seed(3)).to(dtype)


def test_linformer_is_its_formula_word_by_word():
    layer, (q, k, v) = linformer(), qkv()
    out = layer(q, k, v)
    e, f = layer.e.detach(), layer.f.detach()
    assert e.shape == f.shape == (4, S) and not torch.equal(e, f)
    for b in range(B):
        for h in range(H):
            keys = torch.stack([sum(e[r, j] * k[b, h, j] for j in range(S)) for r in range(4)])
            values = torch.stack([sum(f[r, j] * v[b, h, j] for j in range(S)) for r in range(4)])
            for i in range(T):
                weights = torch.softmax(torch.stack([q[b, h, i] @ key for key in keys]) / math.sqrt(K), dim=0)
                torch.testing.assert_close(out[b, h, i].detach(), weights @ values)


def test_linformer_with_the_identity_is_exact_attention():
    layer, inputs = linformer(rank=S), qkv()
    with torch.no_grad():
        layer.e.copy_(torch.eye(S))
        layer.f.copy_(torch.eye(S))
    assert_same(layer, lambda *x: attention.explicit(*x)[0], *inputs)


def test_linformer_reads_shorter_texts_with_its_first_columns():
    long, short = linformer(S + 6), linformer(S)
    with torch.no_grad():
        short.e.copy_(long.e[:, :S])
        short.f.copy_(long.f[:, :S])
    assert_same(long, short, *qkv())


def test_linformer_padding_is_as_if_it_were_not_there():
    """Whatever stands in the padding; a sentence of nothing but padding gives zeros."""
    layer, (q, k, v) = linformer(), qkv()
    mask = masks.padding(torch.tensor([6, 0]), S)[:, None]
    out = layer(q, k, v, mask)
    torch.testing.assert_close(out[0], layer(q, k[..., :6, :], v[..., :6, :])[0])
    assert (out[1] == 0).all()
    hidden = ~mask.mT
    wild = layer(q, k.masked_fill(hidden, math.nan), v.masked_fill(hidden, math.inf), mask)
    assert torch.equal(wild, out)
    torch.testing.assert_close(layer(q, k, v, mask[0, 0]), layer(q, k[..., :6, :], v[..., :6, :]))


def test_linformer_learns_and_passes_gradients_on():
    layer, inputs = linformer(), [x.requires_grad_() for x in qkv(4, 6, (2,))]
    mask = masks.padding(torch.tensor([6, 4]), 6)
    assert torch.autograd.gradcheck(lambda *x: layer(*x, mask), inputs)
    layer(*inputs).square().sum().backward()
    assert all((p.grad[:, :6] != 0).all() and (p.grad[:, 6:] == 0).all() for p in layer.parameters())


def test_linformer_costs_rank_and_not_length():
    layer = Linformer(4096, 16)
    assert measure(layer, 4096).largest <= 16 * 4096


def test_linformer_is_drawn_from_the_generator_and_keeps_dot_products_on_average():
    assert torch.equal(linformer().e, linformer().e)
    e = Linformer(50, 4000, generator=torch.Generator().manual_seed(0)).e.detach()
    torch.testing.assert_close(e.mT @ e, torch.eye(50), atol=0.1, rtol=0)


def test_linformer_says_why_not():
    layer, (q, k, v) = linformer(), qkv()
    with pytest.raises(ValueError, match="cannot be causal: each projected key is a mixture of all keys"):
        layer(q, k, v, causal=True)
    with pytest.raises(ValueError, match="made for up to 17 keys"):
        layer(q, draw(B, H, S + 1, K), draw(B, H, S + 1, V))
    with pytest.raises(ValueError, match="hides padding"):
        layer(q, k, v, torch.ones(T, S, dtype=torch.bool))
    with pytest.raises(ValueError, match="1 or more; got 0 and 3"):
        Linformer(0, 3)
    with pytest.raises(ValueError, match="1 or more; got 3 and 0"):
        Linformer(3, 0)


def test_tiles_move_to_the_device_of_the_queries():
    """Here the device without memory, "meta": shapes alone, and an error where devices meet."""
    pattern = Pattern((Tile(slice(0, 5), torch.arange(4), torch.ones(5, 4, dtype=torch.bool)),), 5, 6)
    q, k, v = (torch.randn(2, n, 3, device="meta", requires_grad=True) for n in (5, 6, 6))
    out = attend(q, k, v, pattern)
    out.sum().backward()
    assert out.device.type == "meta" and v.grad is not None and v.grad.shape == v.shape
    assert dense(5, causal=True, device="meta").tiles[0].mask.device.type == "meta"
    assert efficient.dense(3).mask(device="meta").device.type == "meta"
