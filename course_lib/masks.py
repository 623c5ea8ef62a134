"""Masks: who may attend to whom. **True = may attend**, everywhere in the course.

A mask broadcasts against scores of shape (..., T, S): row = query, column = key. `&` narrows, `|` widens,
so a decoder's mask is `causal(T) & padding(lengths)` and BigBird's is `window(T, 3) | global_tokens(T, 2) | ...`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .shapes import expect, expect_rank, shape

Device = torch.device | str | None


def _grid(queries: int, keys: int, device: Device) -> tuple[Tensor, Tensor]:
    """Query positions i as a column and key positions j as a row; the last query stands at the last key."""
    expect(
        0 < queries <= keys,
        f"The queries are the newest of all tokens, so 1 <= T <= S; got T = {queries} queries and S = {keys} keys.",
    )
    i_T1 = torch.arange(keys - queries, keys, device=device)[:, None]
    j_1S = torch.arange(keys, device=device)[None, :]
    return i_T1, j_1S


def causal(queries: int, keys: int | None = None, *, device: Device = None) -> Tensor:
    """(T, S): query i sees itself and what came before, j ≤ i. With a cache S > T, and i counts from S − T."""
    i_T1, j_1S = _grid(queries, queries if keys is None else keys, device)
    return j_1S <= i_T1


def padding(lengths: Tensor, keys: int | None = None) -> Tensor:
    """(B, 1, S): every query of sentence b sees its first lengths[b] words."""
    expect_rank(lengths, "lengths", "B")
    width = int(lengths.max()) if keys is None else keys
    return (torch.arange(width, device=lengths.device) < lengths[:, None])[:, None, :]


def not_pad(tokens: Tensor, pad: int = 0) -> Tensor:
    """(B, 1, S): every query sees the words of its sentence, and no padding."""
    expect_rank(tokens, "tokens", "BS")
    return (tokens != pad)[:, None, :]


def both(*masks: Tensor | None) -> Tensor | None:
    """All of the masks at once: a query may attend where every one of them says so (None forbids nothing)."""
    result = None
    for mask in masks:
        if mask is not None:
            result = mask if result is None else result & mask
    return result


def window(
    queries: int, radius: int, keys: int | None = None, *, causal: bool = False, device: Device = None
) -> Tensor:
    """(T, S): |i − j| ≤ radius; causal: only the past half, 0 ≤ i − j ≤ radius."""
    expect(radius >= 0, f"A window has a radius of 0 or more; got {radius}.")
    i_T1, j_1S = _grid(queries, queries if keys is None else keys, device)
    near = (i_T1 - j_1S).abs() <= radius
    return near & (j_1S <= i_T1) if causal else near


def strided(length: int, stride: int, *, device: Device = None) -> Tensor:
    """(T, T), Sparse Transformer: the last `stride` words, and every stride-th word before; j ≤ i."""
    expect(stride >= 1, f"A stride is 1 or more; got {stride}.")
    i_T1, j_1S = _grid(length, length, device)
    back = i_T1 - j_1S
    return (back >= 0) & ((back <= stride) | (back % stride == 0))


def fixed(length: int, size: int, summary: int = 1, *, device: Device = None) -> Tensor:
    """(T, T), Sparse Transformer: the query's own block, and the last `summary` words of every block; j ≤ i."""
    expect(1 <= summary <= size, f"Of a block of {size} words, 1 to {size} can be its summary; got {summary}.")
    i_T1, j_1S = _grid(length, length, device)
    return (j_1S <= i_T1) & ((i_T1 // size == j_1S // size) | (j_1S % size >= size - summary))


def global_tokens(length: int, count: int, *, device: Device = None) -> Tensor:
    """(T, T): the first `count` words see all words, and all words see them (row *and* column)."""
    expect(0 <= count <= length, f"Of {length} words, 0 to {length} can be global; got {count}.")
    i_T1, j_1S = _grid(length, length, device)
    return (i_T1 < count) | (j_1S < count)


def random(length: int, keys: int, *, seed: int, device: Device = None) -> Tensor:
    """(T, T): each query sees `keys` words drawn without replacement; the same seed draws the same ones."""
    expect(0 <= keys <= length, f"Each query can see 0 to {length} random words; got {keys}.")
    # Drawn on the CPU, whatever the default device: the same seed gives the same mask everywhere.
    draw = torch.rand(length, length, generator=torch.Generator().manual_seed(seed), device="cpu")
    mask = torch.zeros(length, length, dtype=torch.bool, device="cpu").scatter_(1, draw.topk(keys, dim=1).indices, True)
    return mask.to(device)


def block(layout: Tensor, size: int, length: int | None = None) -> Tensor:
    """(T, T) from a coarse (T/size, T/size) layout: each of its cells stands for size × size pairs."""
    expect(layout.dim() == 2, f"A layout has two axes (query blocks, key blocks); got shape {shape(layout)}.")
    expect(layout.dtype == torch.bool, f"A layout is boolean, True where a block may attend; got {layout.dtype}.")
    expect(size >= 1, f"A block has 1 word or more; got {size}.")
    mask = layout.repeat_interleave(size, 0).repeat_interleave(size, 1)
    return mask if length is None else mask[:length, :length]
