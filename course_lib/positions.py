"""Where a token stands: attention sees a set of tokens, and positions make it a sequence.

Two families. Added to the inputs: `SinusoidalPositions` and `LearnedPositions` return x + p. Inside the
scores: `Rotary`, `Alibi`, `RelativePositions` and `Disentangled` plug into
`MultiHeadAttention(..., positions=...)`, and what they do depends on the distance of query and key alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from .attention import explicit, split_heads
from .shapes import expect, expect_attention, expect_last, expect_rank, shape

Device = torch.device | str | None
KEPT_ROWS = 65_536  # a table of 512 columns then takes 128 MB; rows beyond are computed at each call


def expect_sizes(**sizes: int) -> None:
    """Every size is 1 or more: expect_sizes(heads=heads, max_distance=max_distance)."""
    for name, size in sizes.items():
        expect(size >= 1, f"{name} should be 1 or more; got {size}.")


def sinusoids(positions: Tensor | Sequence[int], width: int, base: float = 10_000.0) -> Tensor:
    """Waves at positions t, (...) -> (..., width): columns 2i and 2i+1 are sin(t ω_i) and cos(t ω_i).

    ω_i = base^(−2i/width), i = 0, 1, 2, …; an odd width ends with a sine. In float64 and on the CPU, which
    always has it: near t = 10⁶, float32 knows angles only in steps of 1/16.
    """
    expect(width >= 1 and base > 0, f"Width and base should be positive; got width {width}, base {base}.")
    t = torch.as_tensor(positions, dtype=torch.float64, device="cpu")
    i = torch.arange((width + 1) // 2, dtype=torch.float64, device="cpu")
    angles = t[..., None] * base ** (-2 * i / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width]


def sinusoidal(
    length: int,
    d_model: int,
    *,
    base: float = 10_000.0,
    start: int = 0,
    device: Device = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The table of Vaswani et al. 2017, (length, D), with rows t = start, start + 1, …

    PE[t, 2i] = sin(t / base^(2i/D)), PE[t, 2i+1] = cos(t / base^(2i/D)), i from 0, D even or odd.
    """
    expect(length >= 0, f"A table has a length of 0 or more; got {length}.")
    positions = torch.arange(start, start + length, device="cpu")
    return sinusoids(positions, d_model, base).to(dtype).to(device)  # cast first: MPS has no float64


class SinusoidTable:
    """Rows of the sinusoidal table, kept from call to call and extended when a sequence is longer.

    It follows from the position alone, so it is no parameter; and no buffer either, since `.bfloat16()`
    would round a buffer for good. It is built in full precision wherever the tokens are.
    """

    def __init__(self, width: int, base: float):
        self.width, self.base = width, base
        self.kept = sinusoidal(0, width, base=base, device="cpu")

    def rows(self, x: Tensor, offset: int) -> Tensor:
        """The rows for x (..., T, D), whose first token stands at `offset`; float32 or wider."""
        stop = offset + x.shape[-2]
        dtype = torch.promote_types(x.dtype, torch.float32)
        table = partial(sinusoidal, d_model=self.width, base=self.base, device=x.device, dtype=dtype)
        if stop > KEPT_ROWS:
            return table(x.shape[-2], start=offset)
        kept = self.kept
        if stop > len(kept) or kept.device != x.device or kept.dtype != dtype:
            rows = max(64, 1 << (stop - 1).bit_length())  # doubled: decoding seldom needs a new table
            self.kept = kept = table(rows)
        return kept[offset:stop]


def expect_tokens(x: Tensor, d_model: int, offset: int) -> None:
    """x is (..., T, D) of a floating dtype, and the offset counts the tokens before it."""
    if x.dim() < 2 or not x.is_floating_point():
        raise ValueError(
            f"Positions are added to embeddings (..., tokens, d_model = {d_model}) of a floating dtype; got "
            f"shape {shape(x)} of {x.dtype}. Token numbers go through an embedding first."
        )
    expect_last(x, "x", d_model)
    expect(offset >= 0, f"offset is the number of tokens before x, 0 or more; got {offset}.")


class SinusoidalPositions(nn.Module):
    """x_t + PE(t) with the table of `sinusoidal`, for sequences of any length; nothing is learned."""

    def __init__(self, d_model: int, base: float = 10_000.0):
        super().__init__()
        self.table = SinusoidTable(d_model, base)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """x (B, T, D) with PE(offset), PE(offset + 1), … added."""
        expect_tokens(x, self.table.width, offset)
        return (x + self.table.rows(x, offset)).to(x.dtype)


class LearnedPositions(nn.Module):
    """x_t + p_t with one learned vector p_t for each of `max_length` positions, and none beyond."""

    def __init__(self, max_length: int, d_model: int):
        super().__init__()
        expect_sizes(max_length=max_length, d_model=d_model)
        self.table = nn.Parameter(torch.empty(max_length, d_model))
        nn.init.normal_(self.table, std=0.02)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """x (B, T, D) with p_offset, p_offset+1, … added."""
        expect_tokens(x, self.table.shape[1], offset)
        stop, max_length = offset + x.shape[-2], len(self.table)
        need = f"{x.shape[-2]} tokens after {offset} others need {stop}: shorten the text"
        expect(stop <= max_length, f"Learned positions end at max_length = {max_length}; {need}.")
        return (x + self.table[offset:stop]).to(x.dtype)


class ScorePositions(nn.Module):
    """Positions inside attention, softmax(scale · rotate(q) rotate(k)ᵀ + score_bias): here none at all."""

    def rotate(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        """New queries and keys (B, H, T, K) at positions offset, offset + 1, …; only then are keys cached."""
        return q, k

    def score_bias(self, q: Tensor, k: Tensor) -> Tensor | None:
        """Added to the scaled scores of q (B, H, T, K) and k (B, H, S, K): query i stands at i + S − T."""
        return None

    def scale(self, d_k: int) -> float:
        """The factor of q kᵀ: 1/√d_k."""
        return 1 / math.sqrt(d_k)


def expect_pairs(head_width: int) -> None:
    ok = head_width >= 2 and head_width % 2 == 0
    expect(ok, f"Rotary positions turn pairs of columns: the head width should be even; got {head_width}.")


def turn(x: Tensor, table: Tensor) -> Tensor:
    """The rotation of `rotate` by the angles α of a sinusoidal table: (x_2i + i x_2i+1) e^(iα)."""
    sin, cos = table[..., 0::2], table[..., 1::2]
    # Complex products run about ten times as fast as sums over every other column; they need a plain layout.
    plain = x.to(table.dtype, copy=True, memory_format=torch.contiguous_format)
    pairs = torch.view_as_complex(plain.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.complex(cos, sin)).flatten(-2).to(x.dtype)


def rotate(x: Tensor, positions: Tensor | Sequence[int], base: float = 10_000.0) -> Tensor:
    """Turn columns 2i and 2i+1 of x (..., T, K) at position t by the angle t ω_i, ω_i = base^(−2i/K).

    (x_2i, x_2i+1) -> (x_2i cos − x_2i+1 sin, x_2i sin + x_2i+1 cos): neighbours form a pair, as in the paper
    (Su et al. 2021). Positions are (T,), or broadcast to the axes of x before the last.
    """
    expect_pairs(x.shape[-1])
    table = sinusoids(positions, x.shape[-1], base)
    ok = table.dim() >= 2 and x.dim() >= 2 and table.shape[-2] in (1, x.shape[-2])
    expect(ok, f"Each token needs its position; got x {shape(x)}, positions {tuple(table.shape[:-1])}.")
    return turn(x, table.to(torch.promote_types(x.dtype, torch.float32)).to(x.device))


class Rotary(ScorePositions):
    """RoPE: q_m and k_n are turned by the angles m ω_i and n ω_i, so that their product sees n − m alone.

    (R_m q)ᵀ (R_n k) = qᵀ R_(n−m) k. A key is turned once, at its own position, and kept turned in a cache.
    """

    def __init__(self, head_width: int, base: float = 10_000.0):
        super().__init__()
        expect_pairs(head_width)
        self.table = SinusoidTable(head_width, base)

    def rotate(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Queries and keys (B, H, T, K) turned for positions offset, offset + 1, …"""
        expect_heads(q, k, self.table.width)
        expect(offset >= 0, f"offset is the number of tokens before these, 0 or more; got {offset}.")
        return turn(q, self.table.rows(q, offset)), turn(k, self.table.rows(k, offset))


def expect_heads(q: Tensor, k: Tensor, head_width: int, heads: int | None = None) -> None:
    """q (B, H, T, K) and k (B, H, S, K) have the sizes for which the module was built."""
    expect_rank(q, "q", "BHTK")
    expect_rank(k, "k", "BHSK")
    expect_last(q, "q", head_width, "the head width")
    expect_last(k, "k", head_width, "the head width")
    expect(heads is None or q.shape[1] == heads, f"These positions have {heads} heads; got q {shape(q)}.")


def distances(queries: int, keys: int, device: Device = None) -> Tensor:
    """j − i for every query and key, (T, S): negative to the left. The last query stands at the last key."""
    expect(queries <= keys, f"Queries are the newest of the keys; got {queries} queries, {keys} keys.")
    i = torch.arange(keys - queries, keys, device=device)
    j = torch.arange(keys, device=device)
    return j - i[:, None]


def alibi_slopes(heads: int, *, device: Device = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """m_h = 2^(−8h/H) for h = 1 … H, if H is a power of two (Press et al. 2022).

    Otherwise those of the next lower power of two P, and then every other one of those of 2P.
    """
    expect_sizes(heads=heads)
    power = 1 << (heads.bit_length() - 1)
    first = torch.arange(1, power + 1, device=device, dtype=dtype) * (8 / power)
    rest = (2 * torch.arange(heads - power, device=device, dtype=dtype) + 1) * (4 / power)
    return 2.0 ** -torch.cat([first, rest])


class Alibi(ScorePositions):
    """score_ij = q_i · k_j / √d_k − m_h |i − j|: each head forgets with distance, at a fixed rate of its own.

    The paper is causal (j ≤ i); to the right, of which it says nothing, the bias falls as to the left.
    """

    def __init__(self, heads: int):
        super().__init__()
        expect_sizes(heads=heads)
        self.heads = heads

    def score_bias(self, q: Tensor, k: Tensor) -> Tensor:
        """−m_h |i − j|, (1, H, T, S)."""
        expect_heads(q, k, q.shape[-1], self.heads)
        dtype = torch.promote_types(q.dtype, torch.float32)  # bfloat16 cannot count beyond 256
        slopes_H11 = alibi_slopes(self.heads, device=q.device, dtype=dtype)[:, None, None]
        distance_TS = distances(q.shape[-2], k.shape[-2], q.device).abs()
        return (-slopes_H11 * distance_TS)[None].to(q.dtype)


def pick(values: Tensor, index: Tensor) -> Tensor:
    """values[..., t, index[t, s]], (..., T, S): from one column per distance to one per key."""
    return values.gather(-1, index.expand(*values.shape[:-2], *index.shape))


def expect_table(table: Tensor, name: str, rows: int, width: int) -> None:
    """The table is (rows, width), or (H, rows, width)."""
    ok = table.shape[-2:] == (rows, width)
    expect(ok, f"{name} should be ({rows}, {width}), a row for each distance; got shape {shape(table)}.")


def shaw_rows(q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    """clip(j − i, −m, m) + m, (T, S): which of the 2m + 1 rows of the table belongs to a query and a key."""
    m = table.shape[-2] // 2
    return distances(q.shape[-2], k.shape[-2], q.device).clamp(-m, m) + m


def relative_bias(q: Tensor, k: Tensor, key_table: Tensor) -> Tensor:
    """q_i · a_ij / √d_k with a_ij = key_table[clip(j − i, −m, m) + m], and no tensor of T × S × K."""
    expect_table(key_table, "key_table", (0, *key_table.shape)[-2] | 1, q.shape[-1])  # 2m + 1 is odd
    return pick(q @ key_table.mT, shaw_rows(q, k, key_table)) / math.sqrt(q.shape[-1])


def relative_attention(
    q: Tensor, k: Tensor, v: Tensor, key_table: Tensor, value_table: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Shaw et al. 2018 in full: every distance has a key and a value of its own. Returns (output, A).

    A = softmax_j(q_i · (k_j + a_ij) / √d_k), output_i = Σ_j A_ij (v_j + b_ij), where a_ij and b_ij are
    rows clip(j − i, −m, m) + m of key_table (2m + 1, K) and value_table (2m + 1, V), m the maximal distance.
    """
    expect_attention(q, k, v, mask)
    out, weights = explicit(q, k, v, mask, bias=relative_bias(q, k, key_table))
    expect_table(value_table, "value_table", key_table.shape[-2], v.shape[-1])
    # Keys at one distance r share b_r, so their weights are summed first: Σ_j A_ij b_ij = Σ_r (Σ_j A_ij) b_r.
    by_distance = weights.new_zeros(*weights.shape[:-1], value_table.shape[-2])
    by_distance = by_distance.scatter_add(-1, shaw_rows(q, k, value_table).expand_as(weights), weights)
    return out + by_distance @ value_table, weights


class RelativePositions(ScorePositions):
    """Shaw et al. 2018, the keys' part: score_ij = q_i · (k_j + a_ij) / √d_k, one table for all heads.

    a_ij = key_table[clip(j − i, −m, m) + m], m = max_distance. The values' part is in `relative_attention`.
    """

    def __init__(self, head_width: int, max_distance: int):
        super().__init__()
        expect_sizes(head_width=head_width, max_distance=max_distance)
        self.key_table = nn.Parameter(torch.empty(2 * max_distance + 1, head_width))
        nn.init.normal_(self.key_table, std=0.02)

    def score_bias(self, q: Tensor, k: Tensor) -> Tensor:
        """q_i · a_ij / √d_k, (B, H, T, S)."""
        expect_heads(q, k, self.key_table.shape[-1])
        return relative_bias(q, k, self.key_table)


def position_scores(q: Tensor, k: Tensor, q_table: Tensor, k_table: Tensor, max_distance: int) -> Tensor:
    """q_i · kʳ_δ(i,j) + k_j · qʳ_δ(j,i): content to position, and position to content. Not scaled."""
    expect_attention(q, k, k)
    expect_sizes(max_distance=max_distance)
    rows = 2 * max_distance
    expect_table(q_table, "q_position_table", rows, q.shape[-1])
    expect_table(k_table, "k_position_table", rows, q.shape[-1])
    to_key_TS = distances(q.shape[-2], k.shape[-2], q.device)
    delta_ij_TS = (max_distance - to_key_TS).clamp(0, rows - 1)
    delta_ji_TS = (max_distance + to_key_TS).clamp(0, rows - 1)
    content_to_position = pick(q @ k_table.mT, delta_ij_TS)
    position_to_content = pick(k @ q_table.mT, delta_ji_TS.mT).mT
    return content_to_position + position_to_content


def disentangled_scores(
    q: Tensor, k: Tensor, q_position_table: Tensor, k_position_table: Tensor, max_distance: int
) -> Tensor:
    """DeBERTa (He et al. 2021): (q_i · k_j + q_i · kʳ_δ(i,j) + k_j · qʳ_δ(j,i)) / √(3 d_k), (..., T, S).

    δ(i, j) = i − j + m, clipped to 0 … 2m − 1, m = max_distance; qʳ and kʳ are (2m, K) or (H, 2m, K).
    This is the paper's formula; its released code reads qʳ at δ(i, j).
    """
    position = position_scores(q, k, q_position_table, k_position_table, max_distance)
    return (q @ k.mT + position) / math.sqrt(3 * q.shape[-1])


class Disentangled(ScorePositions):
    """DeBERTa: words and distances have vectors of their own, and scores are those of `disentangled_scores`.

    qʳ = P W_q,r and kʳ = P W_k,r from one table P of distances, split into heads as the words' vectors are.
    """

    def __init__(self, heads: int, head_width: int, max_distance: int):
        super().__init__()
        expect_sizes(heads=heads, head_width=head_width, max_distance=max_distance)
        self.heads, self.head_width, self.max_distance = heads, head_width, max_distance
        d_model = heads * head_width
        self.distance_table = nn.Parameter(torch.empty(2 * max_distance, d_model))
        self.w_q = nn.Linear(d_model, d_model, bias=False)
        self.w_k = nn.Linear(d_model, d_model, bias=False)
        nn.init.normal_(self.distance_table, std=0.02)

    def score_bias(self, q: Tensor, k: Tensor) -> Tensor:
        """The two terms with a distance in them, scaled, (B, H, T, S)."""
        expect_heads(q, k, self.head_width, self.heads)
        q_table = split_heads(self.w_q(self.distance_table), self.heads)
        k_table = split_heads(self.w_k(self.distance_table), self.heads)
        return position_scores(q, k, q_table, k_table, self.max_distance) * self.scale(self.head_width)

    def scale(self, d_k: int) -> float:
        """1/√(3 d_k): each score is a sum of three products instead of one."""
        return 1 / math.sqrt(3 * d_k)
