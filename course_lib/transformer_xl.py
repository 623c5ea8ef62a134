"""Transformer-XL: long texts in segments, each attending to a memory of the one before (Dai et al. 2019).

Two ideas. The hidden states of earlier segments stay as *memory*, read but never trained through. And
positions are *distances* i − j: a word of the memory would otherwise claim the same place as one of today.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import attention, merge_heads, split_heads
from .blocks import FeedForward, Residual, look_up
from .positions import SinusoidTable
from .shapes import expect, expect_divides, expect_last, expect_rank, shape

Memory = tuple[Tensor, ...]


def relative_shift(by_distance: Tensor) -> Tensor:
    """From a column per distance S−1, …, 1, 0 to a column per key, (..., T, S): row i moves left by T−1−i.

    Written one column wider and read as T × S again, each row begins one place later than the row above: a
    shift without an index. What comes in from the right lies in the future, and is for the mask to hide.
    """
    queries, keys = by_distance.shape[-2:]
    wider = F.pad(by_distance, (1, 0)).flatten(-2)
    return wider[..., queries:].unflatten(-1, (queries, keys))


class RelativeMultiHead(nn.Module):
    """Causal multi-head attention whose scores know distances:

    score(i, j) = [ (q_i + u)·k_j + (q_i + v)·W_r R_{i−j} ] / √d_k

    q_i·k_j and q_i·R: what this query looks for, in content and at a distance. u·k_j and v·R: what all do.
    """

    def __init__(self, d_model: int, heads: int, *, dropout: float = 0.0):
        super().__init__()
        expect_divides(heads, d_model)
        self.d_model, self.heads, self.dropout = d_model, heads, dropout
        self.w_q, self.w_k, self.w_v, self.w_r, self.w_o = (nn.Linear(d_model, d_model, bias=False) for _ in range(5))
        self.waves = SinusoidTable(d_model, base=10_000.0)
        self.u, self.v = (nn.Parameter(torch.zeros(heads, 1, d_model // heads)) for _ in range(2))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """x (B, T, D) attends to the memory (B, M, D) and to itself up to the diagonal; S = M + T."""
        expect_rank(x, "x", "BTD")
        expect_last(x, "x", self.d_model)
        x_BSD = x if memory is None else torch.cat([_read_only(memory, x), x], dim=1)
        distances_SD = self.waves.rows(x_BSD, 0).flip(0).to(x.dtype)  # S−1, …, 1, 0
        q_BHTK, k_BHSK, v_BHSK, r_HSK = (
            split_heads(w(y), self.heads)
            for w, y in ((self.w_q, x), (self.w_k, x_BSD), (self.w_v, x_BSD), (self.w_r, distances_SD))
        )
        # Parameters are float32 also under autocast, where q is not: what is added should not widen it.
        u, v = (bias.to(q_BHTK.dtype) for bias in (self.u, self.v))
        position_BHTS = relative_shift((q_BHTK + v) @ r_HSK.mT) / math.sqrt(self.d_model // self.heads)
        dropout = self.dropout if self.training else 0.0
        out_BHTK = attention(q_BHTK + u, k_BHSK, v_BHSK, bias=position_BHTS, causal=True, dropout=dropout)
        return self.w_o(merge_heads(out_BHTK))


def _read_only(memory: Tensor, x: Tensor) -> Tensor:
    """The memory without its history: no gradient flows back into earlier segments."""
    expect(
        memory.dim() == 3 and memory.shape[0] == x.shape[0] and memory.shape[2] == x.shape[2],
        f"The memory should be (B, M, D) with B and D of x {shape(x)}; got shape {shape(memory)}.",
    )
    return memory.detach()


@dataclass(frozen=True)
class TransformerXLConfig:
    """Sizes of a Transformer-XL; `memory` is how many words each layer remembers."""

    vocab: int
    d_model: int = 64
    heads: int = 4
    layers: int = 2
    d_ff: int = 256
    memory: int = 64
    dropout: float = 0.0


class XLBlock(nn.Module):
    """Relative attention over memory and segment, then feed-forward; post-norm, as in the paper."""

    def __init__(self, config: TransformerXLConfig):
        super().__init__()
        c = config
        self.attention = RelativeMultiHead(c.d_model, c.heads, dropout=c.dropout)
        self.feed_forward = FeedForward(c.d_model, c.d_ff, dropout=c.dropout)
        self.skip_1, self.skip_2 = (Residual(c.d_model, pre_norm=False, dropout=c.dropout) for _ in range(2))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        x = self.skip_1.leave(x, self.attention(x, memory))
        return self.skip_2.leave(x, self.feed_forward(x))


class TransformerXL(nn.Module):
    """p(next word | words so far), segment by segment: h^n = block(h^(n−1), memory^(n−1)), logits = h Eᵀ.

    Layer n reads what layer n−1 remembers, so L layers look back over L memories.
    """

    def __init__(self, config: TransformerXLConfig):
        super().__init__()
        c = self.config = config
        expect(c.memory >= 0, f"A memory holds 0 words or more; got {c.memory}.")
        self.embedding = nn.Embedding(c.vocab, c.d_model)
        nn.init.normal_(self.embedding.weight, std=1 / math.sqrt(c.d_model))
        self.blocks = nn.ModuleList(XLBlock(c) for _ in range(c.layers))

    def forward(self, tokens: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
        """Logits (B, T, C) of one segment (B, T), and the memory (B, ≤ M, D per layer) for the next one."""
        expect_rank(tokens, "tokens", "BT")
        expect(tokens.shape[1] > 0, f"There are no tokens to read; got shape {shape(tokens)}.")
        expect(
            memory is None or len(memory) == len(self.blocks),
            f"The memory has one tensor per layer, {len(self.blocks)}; got {len(memory or ())}.",
        )
        x = look_up(self.embedding, tokens) * math.sqrt(self.config.d_model)
        x = F.dropout(x, self.config.dropout, self.training)
        kept = []
        for layer, block in enumerate(self.blocks):
            before = None if memory is None else memory[layer]
            y = block(x, before)
            kept.append(self._remember(x, before))
            x = y
        return F.linear(x, self.embedding.weight), tuple(kept)

    def start(self, batch: int) -> None:
        """Reading begins without a memory, whatever the batch."""
        return None

    def step(self, tokens: Tensor, state: Memory | None) -> tuple[Tensor, Memory]:
        """Logits (B, C) after the last of the newest tokens (B, T), and the memory with them in it."""
        logits_BTC, state = self(tokens, state)
        return logits_BTC[:, -1], state

    def _remember(self, x: Tensor, memory: Tensor | None) -> Tensor:
        """The last M states that entered a layer, without their history."""
        states = x if memory is None else torch.cat([memory, x], dim=1)
        return states[:, max(states.shape[1] - self.config.memory, 0) :].detach()
