"""Sparse patterns as tiles: the masks of `masks.py` with the same names, without the T × T matrix.

A pattern says which pairs are computed at all: `attend(q, k, v, window(T, 128))` costs T · 257 pairs.
Its dense picture, `pattern.mask()`, equals the mask of the same name.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import masks
from .efficient import TILE, Device, Pattern, Tile, dense, spans
from .efficient import attend as attend  # so that `sparse.attend(q, k, v, sparse.window(…))` needs one import
from .shapes import expect, shape

# n rows of a window compute n + 2·radius columns each, to keep 2·radius + 1: taller tiles waste more.
ROWS = 64


def window(
    queries: int, radius: int, keys: int | None = None, *, causal: bool = False, device: Device = None
) -> Pattern:
    """|i − j| ≤ radius; causal: 0 ≤ i − j ≤ radius. With a cache S > T, and i counts from S − T."""
    keys = queries if keys is None else keys
    expect(radius >= 0, f"A window has a radius of 0 or more; got {radius}.")
    expect(queries <= keys, f"The queries are the newest of all tokens; got T = {queries} and S = {keys}.")
    radius = min(radius, keys)
    ahead = 0 if causal else radius
    back = torch.arange(ROWS)[:, None] + radius - torch.arange(ROWS + radius + ahead)  # i − j
    band = ((back <= radius) & (back >= -ahead)).to(device)
    tiles = []
    for rows in spans(0, queries, ROWS):
        first = rows.start + keys - queries - radius
        columns = slice(max(first, 0), min(first + (rows.stop - rows.start) + radius + ahead, keys))
        mask = band[: rows.stop - rows.start, columns.start - first : columns.stop - first]
        tiles.append(Tile(rows, columns, mask))
    return Pattern(tuple(tiles), queries, keys)


def strided(length: int, stride: int, *, device: Device = None) -> Pattern:
    """Sparse Transformer: the last `stride` words, and every stride-th word before; j ≤ i.

    Words with the same remainder i mod stride are a short text of their own, read causally; what is one
    stride back is already in the window, so here query n + 2 sees the keys up to n.
    """
    expect(stride >= 1, f"A stride is 1 or more; got {stride}.")
    tiles = list(window(length, stride, causal=True, device=device).tiles)
    texts = [range(first, length, stride) for first in range(min(stride, length))]
    patterns = {n: dense(n - 2, causal=True, device=device) for n in {len(text) for text in texts} if n > 2}
    for text in texts:
        for rows, columns, mask in patterns[len(text)].tiles if len(text) > 2 else ():
            assert isinstance(columns, slice)
            tiles.append(Tile(_slice(text[2:][rows]), _slice(text[columns]), mask))
    return Pattern(tuple(tiles), length, length)


def _slice(numbers: range) -> slice:
    return slice(numbers.start, numbers.stop, numbers.step)


def fixed(length: int, size: int, summary: int = 1, *, device: Device = None) -> Pattern:
    """Sparse Transformer: a query's own block, and the last `summary` words of each block before; j ≤ i."""
    expect(1 <= summary <= size, f"Of a block of {size} words, 1 to {size} can be its summary; got {summary}.")
    # One tile holds several small blocks, or a part of a large one.
    group = max(ROWS // size, 1) * size
    corner = masks.fixed(min(group, TILE), size, summary, device=device)
    ends = torch.arange(length // size)[:, None] * size + torch.arange(size - summary, size)
    ends = ends.flatten().to(device)
    tiles = []
    for blocks in spans(0, length, group):
        before = blocks.start // size * summary
        # One summary word per block is a slice with a step; more need an index.
        columns = slice(size - 1, blocks.start, size) if summary == 1 else ends[:before]
        for rows in spans(blocks.start, blocks.stop):
            n = rows.stop - rows.start
            if before:
                tiles.append(Tile(rows, columns))
            if rows.start > blocks.start:
                tiles.append(Tile(rows, slice(blocks.start, rows.start)))
            tiles.append(Tile(rows, rows, corner[:n, :n]))
    return Pattern(tuple(tiles), length, length)


def block_sparse(layout: Tensor, size: int, length: int | None = None, *, device: Device = None) -> Pattern:
    """Cell (a, b) of the coarse layout says whether the a-th block of queries sees the b-th block of keys."""
    expect(layout.dim() == 2, f"A layout has two axes (query blocks, key blocks); got shape {shape(layout)}.")
    expect(layout.dtype == torch.bool, f"A layout is boolean, True where a block may attend; got {layout.dtype}.")
    expect(size >= 1, f"A block has 1 word or more; got {size}.")
    queries, keys = (blocks * size if length is None else length for blocks in layout.shape)
    expect(
        queries <= layout.shape[0] * size and keys <= layout.shape[1] * size,
        f"A layout of {shape(layout)} blocks of {size} words is too small for {length} words.",
    )
    j_S = torch.arange(keys)
    tiles = []
    for rows, seen in zip(spans(0, queries, size), layout.cpu(), strict=False):
        columns = j_S[seen.repeat_interleave(size)[:keys]]
        if len(columns):
            where = _as_slice(columns) or columns.to(device)
            tiles += [Tile(part, where) for part in spans(rows.start, rows.stop)]
    return Pattern(tuple(tiles), queries, keys)


def _as_slice(columns: Tensor) -> slice | None:
    """Ascending columns as a slice, if there is no gap between them: a slice is a view, an index a copy."""
    first, last = int(columns[0]), int(columns[-1])
    return slice(first, last + 1) if last - first + 1 == len(columns) else None


def bigbird(
    length: int,
    size: int = 64,
    *,
    radius: int = 1,
    global_blocks: int = 1,
    random_blocks: int = 3,
    seed: int = 0,
    device: Device = None,
) -> Pattern:
    """BigBird, in blocks of `size` words: neighbours, global blocks (row *and* column), random blocks.

    Each block sees the `radius` blocks on both sides of it, the first `global_blocks`, which see all, and
    `random_blocks` drawn from all, so that some may be among the others.
    """
    expect(length >= 1 and size >= 1, f"BigBird needs words and blocks of words; got {length} and {size}.")
    blocks = -(-length // size)
    layout = (
        masks.window(blocks, radius)
        | masks.global_tokens(blocks, min(global_blocks, blocks))
        | masks.random(blocks, min(random_blocks, blocks), seed=seed)
    )
    return block_sparse(layout, size, length, device=device)
