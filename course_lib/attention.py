"""Attention: scores, softmax, weighted sum; then many heads, and keys and values that are kept.

Two roads lead to the same numbers. `explicit` builds the weights, for reading and plotting; `fused` hands the
formula to torch's kernel, for training and GPUs. `attention` takes whichever is faster where it runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import masks
from .shapes import expect, expect_attention, expect_divides, expect_last, expect_rank, shape

if TYPE_CHECKING:
    from .positions import ScorePositions


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """softmax(x)ᵢ = exp(xᵢ − max x) / Σⱼ exp(xⱼ − max x): the maximum cancels, and nothing overflows."""
    shifted = scores - scores.amax(dim, keepdim=True).detach()
    exponentials = shifted.exp()
    return exponentials / exponentials.sum(dim, keepdim=True)


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the keys a query may see; a query that may see none gets zeros, not NaN."""
    if mask is None:
        return torch.softmax(scores, dim=-1)
    # The lowest finite number instead of −∞: its exponential is exactly 0 too, and an empty row has no ∞ − ∞.
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, dim=-1)
    return weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)


def explicit(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """A = softmax(q kᵀ / √d_k + bias), output = A v. Returns (output, A).

    q is (..., T, K), k is (..., S, K), v is (..., S, V); mask and bias broadcast to (..., T, S).
    `scale` replaces 1/√d_k; `dropout` is the share of weights dropped (0 outside training).
    """
    expect_attention(q, k, v, mask)
    if causal:
        mask = masks.both(mask, masks.causal(q.shape[-2], k.shape[-2], device=q.device))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = (q * scale) @ k.mT  # scaling q costs T·K products, scaling the scores T·S
    if bias is not None:
        scores = scores + bias
    weights = masked_softmax(scores, mask)
    return (F.dropout(weights, dropout) if dropout else weights) @ v, weights


def fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """The output of `explicit` from torch's kernel, which for inputs (B, H, T, K) never stores the T × S weights."""
    expect_attention(q, k, v, mask)
    queries, keys = q.shape[-2], k.shape[-2]
    # `is_causal` lets the kernel skip half of the work, but it lines up the *first* query with the first key.
    plain_causal = causal and queries == keys and mask is None and bias is None
    if causal and not plain_causal and queries > 1:
        mask = masks.both(mask, masks.causal(queries, keys, device=q.device))
    if bias is not None:
        mask = bias if mask is None else torch.where(mask, bias, float("-inf"))
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(q.dtype)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=plain_causal, scale=scale, dropout_p=dropout
    )


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q kᵀ / √d_k) v by the faster road for this device, dtype and length."""
    if faster_road(q, k) == "fused":
        return fused(q, k, v, mask, bias=bias, causal=causal, scale=scale, dropout=dropout)
    return explicit(q, k, v, mask, bias=bias, causal=causal, scale=scale, dropout=dropout)[0]


def faster_road(q: Tensor, k: Tensor) -> str:
    """Which road to take: the one place where that is decided, from what `course bench` measures."""
    if q.device.type != "cpu" or k.shape[-2] >= 512:
        return "fused"
    # On a CPU, oneDNN multiplies bfloat16 (and float32 below the highest precision) with units that
    # the fused kernel does not use on short sequences.
    fast_matmul = q.dtype == torch.bfloat16 or torch.get_float32_matmul_precision() != "highest"
    return "explicit" if fast_matmul else "fused"


def self_attention(x: Tensor) -> Tensor:
    """Without any parameters: y = softmax(x xᵀ) x, every token the average of the tokens it resembles."""
    return explicit(x, x, x, scale=1.0)[0]


def dot_scores(state: Tensor, source: Tensor) -> Tensor:
    """e_i = sᵀ h_i for a decoder state s (..., D) and encoder states h (..., S, D)."""
    expect_last(state, "state", source.shape[-1], "the width of the source states")
    return (source @ state[..., None])[..., 0]


def general_scores(state: Tensor, source: Tensor, w: Tensor) -> Tensor:
    """e_i = sᵀ W h_i: a matrix W (state width × source width) between the two."""
    expect(
        w.shape == (state.shape[-1], source.shape[-1]),
        f"W should be (state width, source width) = ({state.shape[-1]}, {source.shape[-1]}); got shape {shape(w)}.",
    )
    return dot_scores(state @ w, source)


class AdditiveAttention(nn.Module):
    """Bahdanau's attention: e_i = vᵀ tanh(W [s; h_i]), a = softmax(e), context c = Σ a_i h_i.

    W [s; h] is the same as W_s s + W_h h, and W_h h_i does not change while the decoder steps:
    `project` computes it once for a sentence.
    """

    def __init__(self, d_state: int, d_source: int, d_hidden: int):
        super().__init__()
        self.w_state = nn.Linear(d_state, d_hidden, bias=False)
        self.w_source = nn.Linear(d_source, d_hidden)
        self.v = nn.Linear(d_hidden, 1, bias=False)

    def project(self, source: Tensor) -> Tensor:
        """W_h h_i for all words of the source: (..., S, hidden)."""
        expect_last(source, "source", self.w_source.in_features, "d_source")
        return self.w_source(source)

    def forward(
        self, state: Tensor, source: Tensor, mask: Tensor | None = None, keys: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Context (..., D) and weights (..., S) for state (..., d_state); mask (..., S) is True on real words."""
        expect_last(state, "state", self.w_state.in_features, "d_state")
        keys = self.project(source) if keys is None else keys
        hidden = torch.tanh(self.w_state(state)[..., None, :] + keys)
        weights = masked_softmax(self.v(hidden)[..., 0], mask)
        return (weights[..., None, :] @ source)[..., 0, :], weights


class KeyValue(NamedTuple):
    """Keys and values of the tokens so far, (B, H, S, K) each: what a decoder keeps instead of recomputing."""

    k: Tensor
    v: Tensor

    def extend(self, new: KeyValue) -> KeyValue:
        """With the newest tokens behind the old ones, along the axis of tokens."""
        return KeyValue(torch.cat([self.k, new.k], dim=-2), torch.cat([self.v, new.v], dim=-2))


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, D) → (B, H, T, D/H): head h takes the h-th block of columns."""
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, T, K) → (B, T, H·K): the heads side by side again."""
    return x.transpose(-3, -2).flatten(-2)


class MultiHeadAttention(nn.Module):
    """H attentions of width D/H side by side, then one matrix: [head_1, …, head_H] W_o.

    W_q, W_k and W_v stand under each other in one (3D, D) matrix, so that self-attention is one product.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        bias: bool = True,
        dropout: float = 0.0,
        positions: ScorePositions | None = None,
    ):
        super().__init__()
        expect_divides(heads, d_model)
        self.d_model, self.heads, self.dropout, self.positions = d_model, heads, dropout, positions
        self.recorded: list[Tensor] | None = None
        self.w_qkv = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.w_o = nn.Linear(d_model, d_model, bias=bias)
        nn.init.xavier_uniform_(self.w_qkv.weight)
        if bias:
            nn.init.zeros_(self.w_qkv.bias)
            nn.init.zeros_(self.w_o.bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Self-attention of x (B, T, D), or cross-attention from x to memory (B, S, D).

        The mask is (T, S), (B, T, S) or (B, H, T, S), or broadcasts to these. With `need_weights` the
        result is (output, weights (B, H, T, S)).
        """
        q, kv = self.project(x, memory)
        out, weights = self._attend(q, kv, mask, causal, need_weights or self.recorded is not None)
        return (out, weights) if need_weights and weights is not None else out

    def project(self, x: Tensor, memory: Tensor | None = None, offset: int = 0) -> tuple[Tensor, KeyValue]:
        """Queries of x, keys and values of memory (or of x itself), split into heads.

        `offset` is the number of tokens that a cache already holds before x.
        """
        expect_rank(x, "x", "BTD")
        expect_last(x, "x", self.d_model)
        if memory is not None:
            return self.query(x), self.key_value(memory)
        q, k, v = (split_heads(part, self.heads) for part in self.w_qkv(x).chunk(3, dim=-1))
        if self.positions is not None:
            q, k = self.positions.rotate(q, k, offset)
        return q, KeyValue(k, v)

    def step(self, x: Tensor, past: KeyValue | None, mask: Tensor | None = None) -> tuple[Tensor, KeyValue]:
        """Causal self-attention of the newest tokens x over all tokens so far. Returns (output, present)."""
        q, new = self.project(x, offset=0 if past is None else past.k.shape[-2])
        present = new if past is None else past.extend(new)
        return self.attend(q, present, mask, causal=True), present

    def query(self, x: Tensor) -> Tensor:
        """Queries alone: the decoder's side of cross-attention."""
        bias = None if self.w_qkv.bias is None else self.w_qkv.bias[: self.d_model]
        return split_heads(F.linear(x, self.w_qkv.weight[: self.d_model], bias), self.heads)

    def key_value(self, memory: Tensor) -> KeyValue:
        """Keys and values alone: the encoder's side of cross-attention, computed once for a sentence."""
        expect(self.positions is None, "Positions between tokens have a meaning in self-attention only.")
        expect_rank(memory, "memory", "BSD")
        expect_last(memory, "memory", self.d_model)
        bias = None if self.w_qkv.bias is None else self.w_qkv.bias[self.d_model :]
        k, v = F.linear(memory, self.w_qkv.weight[self.d_model :], bias).chunk(2, dim=-1)
        return KeyValue(split_heads(k, self.heads), split_heads(v, self.heads))

    def attend(self, q: Tensor, kv: KeyValue, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Attention of every head, the heads merged, and the output projection."""
        return self._attend(q, kv, mask, causal, self.recorded is not None)[0]

    def _attend(
        self, q: Tensor, kv: KeyValue, mask: Tensor | None, causal: bool, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        if mask is not None and mask.dim() == 3:
            mask = mask[:, None]  # (B, T, S) speaks of sentences: the same for every head
        bias = None if self.positions is None else self.positions.score_bias(q, kv.k)
        scale = None if self.positions is None else self.positions.scale(q.shape[-1])
        dropout = self.dropout if self.training else 0.0
        if not need_weights:
            out = attention(q, *kv, mask, bias=bias, causal=causal, scale=scale, dropout=dropout)
            return self.w_o(merge_heads(out)), None
        out, weights = explicit(q, *kv, mask, bias=bias, causal=causal, scale=scale, dropout=dropout)
        if self.recorded is not None:
            self.recorded.append(weights.detach())
        return self.w_o(merge_heads(out)), weights


@contextmanager
def record_weights(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Inside the block, every attention layer of `model` also writes down its weights, call by call.

    The model computes what it always computes, masks included: only the road is the explicit one.
    """
    layers = {name: m for name, m in model.named_modules() if isinstance(m, MultiHeadAttention)}
    for layer in layers.values():
        layer.recorded = []
    try:
        yield {name: layer.recorded for name, layer in layers.items() if layer.recorded is not None}
    finally:
        for layer in layers.values():
            layer.recorded = None
