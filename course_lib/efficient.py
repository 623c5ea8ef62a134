"""Attention that never stores the T × S weights: exact attention tile by tile, and Linformer.

The *online softmax* makes tiles possible: a row's maximum, its sum and its output can be kept up to date
while the row's keys come in pieces. Which pieces, a `Pattern` says: all of them (`dense`), or the few of a
sparse pattern (`sparse.py`). One walk over the tiles serves them all, forwards and backwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from . import attention, masks
from .shapes import expect, expect_attention, shape

Device = torch.device | str | None
TILE = 256  # on CPUs the fastest size: larger tiles leave the cache, smaller ones wait for Python


class Tile(NamedTuple):
    """A rectangle of the T × S pairs: every row sees every column, or those where the small mask is True."""

    rows: slice
    columns: slice | Tensor
    mask: Tensor | None = None

    def to(self, device: torch.device) -> Tile:
        """The same tile with its tensors on `device`."""
        columns = self.columns.to(device) if isinstance(self.columns, Tensor) else self.columns
        return Tile(self.rows, columns, None if self.mask is None else self.mask.to(device))


@dataclass(frozen=True, eq=False)
class Pattern:
    """Who may attend to whom among T queries and S keys, as tiles: each allowed pair lies in exactly one."""

    tiles: tuple[Tile, ...]
    T: int
    S: int

    def mask(self, *, device: Device = None) -> Tensor:
        """The dense (T, S) mask, for pictures and tests: what `attend` takes care not to build."""
        mask_TS = torch.zeros(self.T, self.S, dtype=torch.bool, device=device)
        j_S = torch.arange(self.S, device=device)
        for rows, columns, mask in self.tiles:
            there = columns.to(j_S.device) if isinstance(columns, Tensor) else j_S[columns]
            # `or`: a masked tile may lie over another one's columns, as long as their pairs differ.
            mask_TS[rows, there] |= True if mask is None else mask.to(j_S.device)
        return mask_TS

    def pairs(self) -> int:
        """How many (query, key) pairs are computed and kept: the cost of the pattern, T·S for `dense`."""
        return sum(
            len(range(self.T)[rows]) * _count(columns, self.S) if mask is None else int(mask.sum())
            for rows, columns, mask in self.tiles
        )


def _count(columns: slice | Tensor, keys: int) -> int:
    return len(columns) if isinstance(columns, Tensor) else len(range(keys)[columns])


def spans(start: int, stop: int, size: int = TILE) -> Iterator[slice]:
    """[start, stop) cut into slices of `size`; the last may be shorter."""
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))


def dense(
    queries: int, keys: int | None = None, *, causal: bool = False, tile: int = TILE, device: Device = None
) -> Pattern:
    """All pairs, or those with j ≤ i; tiles above the diagonal are left out, so causal costs half."""
    keys = queries if keys is None else keys
    expect(tile >= 1, f"A tile has 1 row or more; got {tile}.")
    expect(
        not causal or queries <= keys,
        f"Causal queries are the newest of all tokens, so T <= S; got T = {queries} and S = {keys}.",
    )
    corner = masks.causal(min(tile, max(queries, 1)), device=device) if causal else None
    tiles = []
    for rows in spans(0, queries, tile):
        # The first row of a causal tile stands at this key, so all its rows see every key before.
        seen = rows.start + keys - queries if causal else keys
        tiles += [Tile(rows, columns) for columns in spans(0, seen, tile)]
        if corner is not None:
            n = rows.stop - rows.start
            tiles.append(Tile(rows, slice(seen, seen + n), corner[:n, :n]))
    return Pattern(tuple(tiles), queries, keys)


def tiled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    tile: int = TILE,
) -> Tensor:
    """softmax(q kᵀ / √d_k) v exactly, in O(T·d) memory. The mask hides padding: (..., 1, S)."""
    expect_attention(q, k, v, mask)
    pattern = dense(q.shape[-2], k.shape[-2], causal=causal, tile=tile, device=q.device)
    return attend(q, k, v, pattern, mask, scale=scale)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
) -> Tensor:
    """softmax(q kᵀ / √d_k) v over the pairs of `pattern`, in O(T·d) memory; who sees nobody gets zeros.

    q is (..., T, K), k is (..., S, K), v is (..., S, V); the mask hides padding and is (..., 1, S).
    """
    expect_attention(q, k, v, mask)
    queries, keys = q.shape[-2], k.shape[-2]
    expect(
        (queries, keys) == (pattern.T, pattern.S),
        f"The pattern is for {pattern.T} queries and {pattern.S} keys; got q {shape(q)} and k {shape(k)}.",
    )
    _expect_padding(mask)
    lead = torch.broadcast_shapes(*(x.shape[:-2] for x in (q, k, v, mask) if x is not None))
    dtype = torch.promote_types(q.dtype, torch.float32)  # sums of half-precision numbers need more digits
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale

    def flat(x: Tensor, rows: int, width: int) -> Tensor:
        return x.expand(*lead, rows, width).reshape(math.prod(lead), rows, width)

    out_NTV = _Walk.apply(
        flat(q.to(dtype) * scale, queries, q.shape[-1]),
        flat(k.to(dtype), keys, k.shape[-1]),
        flat(v.to(dtype), keys, v.shape[-1]),
        None if mask is None else flat(mask, 1, keys),
        tuple(tile.to(q.device) for tile in pattern.tiles),
    )
    return out_NTV.reshape(*lead, queries, v.shape[-1]).to(q.dtype)


def _expect_padding(mask: Tensor | None) -> None:
    if mask is not None and mask.shape[-2] != 1:
        raise ValueError(
            f"The mask hides padding, the same keys from every query: (..., 1, S); got shape {shape(mask)}. "
            "Who sees whom is for the pattern to say, or for `causal`."
        )


class _Walk(torch.autograd.Function):
    """The online softmax, N attentions at once. Lower-case t and s are the rows and columns of one tile.

    A new tile may raise the maximum m of a row to m'. All that was summed relative to m is then worth
    e^(m − m') as much:  sum ← sum·e^(m−m') + Σ e^(score−m'),  out ← out·e^(m−m') + Σ e^(score−m') v.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q_NTK: Tensor,
        k_NSK: Tensor,
        v_NSV: Tensor,
        seen_N1S: Tensor | None,
        tiles: tuple[Tile, ...],
    ) -> Tensor:
        # Started at the lowest finite number and not at −∞: an empty row then has no −∞ − (−∞) = NaN.
        max_NT1 = q_NTK.new_full((*q_NTK.shape[:2], 1), torch.finfo(q_NTK.dtype).min)
        sum_NT1 = torch.zeros_like(max_NT1)
        out_NTV = q_NTK.new_zeros(*q_NTK.shape[:2], v_NSV.shape[-1])
        with _no_autocast(q_NTK):
            for tile in tiles:
                scores_Nts = _scores(q_NTK[:, tile.rows], _take(k_NSK, tile.columns), seen_N1S, tile)
                max_Nt1 = max_NT1[:, tile.rows]
                higher_Nt1 = torch.maximum(max_Nt1, scores_Nts.amax(-1, keepdim=True))
                weights_Nts = scores_Nts.sub_(higher_Nt1).exp_()
                worth_Nt1 = (max_Nt1 - higher_Nt1).exp_()
                max_Nt1.copy_(higher_Nt1)
                sum_NT1[:, tile.rows].mul_(worth_Nt1).add_(weights_Nts.sum(-1, keepdim=True))
                out_NTV[:, tile.rows].mul_(worth_Nt1).baddbmm_(weights_Nts, _take(v_NSV, tile.columns))
        # A row that saw a key has a sum of at least e^0 = 1, that of its maximum.
        out_NTV /= sum_NT1.clamp(min=1)
        # All that backward needs of the softmax: weight = e^(score − lse), 0 in an empty row with lse = ∞.
        lse_NT1 = (max_NT1 + sum_NT1.log()).masked_fill_(sum_NT1 == 0, math.inf)
        ctx.save_for_backward(q_NTK, k_NSK, v_NSV, seen_N1S, out_NTV, lse_NT1)
        ctx.tiles = tiles
        return out_NTV

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """With dW = dO Vᵀ: dS = W ∘ (dW − Σⱼ W dW), and Σⱼ W dW = Σ dO ∘ O needs no weights."""
        q_NTK, k_NSK, v_NSV, seen_N1S, out_NTV, lse_NT1 = ctx.saved_tensors
        (dout_NTV,) = grads
        dq_NTK, dk_NSK, dv_NSV = (torch.zeros_like(x) for x in (q_NTK, k_NSK, v_NSV))
        mean_NT1 = (dout_NTV * out_NTV).sum(-1, keepdim=True)
        with _no_autocast(q_NTK):
            for tile in ctx.tiles:
                rows, columns = tile.rows, tile.columns
                q_NtK, dout_NtV = q_NTK[:, rows], dout_NTV[:, rows]
                k_NsK, v_NsV = _take(k_NSK, columns), _take(v_NSV, columns)
                weights_Nts = _scores(q_NtK, k_NsK, seen_N1S, tile).sub_(lse_NT1[:, rows]).exp_()
                dscores_Nts = torch.bmm(dout_NtV, v_NsV.mT).sub_(mean_NT1[:, rows]).mul_(weights_Nts)
                _add_product(dv_NSV, columns, weights_Nts.mT, dout_NtV)
                _add_product(dk_NSK, columns, dscores_Nts.mT, q_NtK)
                _add_product(dq_NTK, rows, dscores_Nts, k_NsK)
        return dq_NTK, dk_NSK, dv_NSV, None, None


def _take(x_NSK: Tensor, columns: slice | Tensor) -> Tensor:
    """The rows of one tile: a view where they are a slice, a copy where they are scattered."""
    return x_NSK.index_select(1, columns) if isinstance(columns, Tensor) else x_NSK[:, columns]


def _add_product(x_NSK: Tensor, where: slice | Tensor, a: Tensor, b: Tensor) -> None:
    """x[where] += a b, in place."""
    if isinstance(where, Tensor):
        x_NSK.index_add_(1, where, torch.bmm(a, b))
    else:
        x_NSK[:, where].baddbmm_(a, b)


def _scores(q_NtK: Tensor, k_NsK: Tensor, seen_N1S: Tensor | None, tile: Tile) -> Tensor:
    """The scores of one tile, −∞ where a query may not attend."""
    scores_Nts = torch.bmm(q_NtK, k_NsK.mT)
    if tile.mask is not None:
        scores_Nts.masked_fill_(~tile.mask, -math.inf)
    if seen_N1S is not None:
        scores_Nts.masked_fill_(~seen_N1S[:, :, tile.columns], -math.inf)
    return scores_Nts


def _no_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Autocast would round the products, and the running sums with them."""
    kind = x.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else nullcontext()


class Linformer(nn.Module):
    """softmax(q (E k)ᵀ / √d_k) (F v): E and F mix S keys and values into `rank` of each, so T·rank scores.

    E and F are (rank, length) and act on the axis of tokens; a shorter sequence uses their first columns.
    """

    def __init__(self, length: int, rank: int, *, generator: torch.Generator | None = None):
        super().__init__()
        expect(length >= 1 and rank >= 1, f"Length and rank are 1 or more; got {length} and {rank}.")
        # Entries of variance 1/rank keep dot products on average (Johnson and Lindenstrauss).
        self.e, self.f = (
            nn.Parameter(torch.randn(rank, length, generator=generator) / math.sqrt(rank)) for _ in range(2)
        )

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """q (..., T, K), k (..., S, K), v (..., S, V); the mask hides padding and is (..., 1, S)."""
        expect_attention(q, k, v, mask)
        keys, length = k.shape[-2], self.e.shape[1]
        expect(
            not causal,
            "Linformer cannot be causal: each projected key is a mixture of all keys, later ones too, and no "
            "mask takes them out of the mixture again. Use `tiled`, or a causal pattern of `sparse`.",
        )
        expect(keys <= length, f"This Linformer was made for up to {length} keys; got k {shape(k)}.")
        _expect_padding(mask)
        if mask is not None:
            k, v = (torch.where(mask.mT, x, 0.0) for x in (k, v))
        return attention.attention(q, self.e[:, :keys] @ k, self.f[:, :keys] @ v)
