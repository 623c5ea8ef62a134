"""The parts of the capstone's translator: attention, masks, positions, norm, feed-forward, decoding.

Each is what an exercise of the course asks for, with the exercise's signature, so that a learner's own answer can take
its place (`capstone.py` looks for those). The parts here are made of the library's ideas. Whoever wrote them, the
parameters have the same names and shapes, and the numbers are the same: a trained model fits them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from . import attention, by_hand, masks
from .blocks import layer_norm


class MultiHead(nn.Module):
    """[head_1, …, head_H] W_o with four layers nn.Linear(D, D): w_q, w_k, w_v, w_o. Exercise 06.8."""

    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.heads = heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        memory = x if memory is None else memory
        projected = (self.w_q(x), self.w_k(memory), self.w_v(memory))
        q, k, v = (attention.split_heads(part, self.heads) for part in projected)
        read = attention.attention(q, k, v, None if mask is None else mask[:, None])
        return self.w_o(attention.merge_heads(read))


def see_the_past(T: int, S: int) -> np.ndarray:
    """The causal mask of the T newest of S tokens. Exercise 07.2."""
    return masks.causal(T, S).numpy()


def sinusoid_table(length: int, d_model: int, base: float) -> np.ndarray:
    """Sines in even columns, cosines in odd ones. Exercise 08.2."""
    return by_hand.sinusoidal(length, d_model, base=base)


def feed_forward(x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor) -> Tensor:
    """ReLU(x W_1 + b_1) W_2 + b_2. Exercise 09.3."""
    return torch.relu(x @ w_1 + b_1) @ w_2 + b_2


@dataclass(frozen=True)
class Parts:
    """What a translator is made of. `whose` says of each part who wrote it, for people to read."""

    MultiHead: Callable[..., nn.Module] = MultiHead
    see_the_past: Callable[..., Any] = see_the_past
    sinusoid_table: Callable[..., Any] = sinusoid_table
    layer_norm: Callable[..., Tensor] = layer_norm
    feed_forward: Callable[..., Tensor] = feed_forward
    whose: tuple[tuple[str, str, str], ...] = ()

    def attention(self, d_model: int, heads: int) -> Attention:
        """Multi-head attention, called as attention(x, memory=None, mask=None, causal=False)."""
        return Attention(self, d_model, heads)

    def table(self, words: int, d_model: int) -> nn.Embedding:
        """A vector for each word, small enough to be compared with and, times √D, as long as a position's."""
        table = nn.Embedding(words, d_model)
        nn.init.normal_(table.weight, std=0.5 / math.sqrt(d_model))
        return table

    def norm(self, d_model: int) -> Norm:
        """Layer normalisation with a gain and a bias."""
        return Norm(self, d_model)

    def think(self, d_model: int, d_ff: int) -> Think:
        """The feed-forward network with its four parameters."""
        return Think(self, d_model, d_ff)

    def positions(self, x: Tensor) -> Tensor:
        """The rows of the sinusoid table for the tokens of x (B, T, D), as (T, D)."""
        return torch.as_tensor(np.asarray(self.sinusoid_table(x.shape[1], x.shape[2], 10_000.0))).to(x)

    def __repr__(self) -> str:
        lines = [f"{'part':16}{'exercise':10}whose"]
        lines += [f"{name:16}{exercise:10}{who}" for name, exercise, who in self.whose]
        if any(who != "yours" for _, _, who in self.whose):
            lines.append("To use your own: finish the exercise, save its notebook, and run this cell again.")
        return "\n".join(lines)


class Attention(nn.Module):
    """A MultiHead that is called like the library's: its mask may be (B, 1, S), and causal=True adds the past's."""

    def __init__(self, parts: Parts, d_model: int, heads: int):
        super().__init__()
        self.heads, self.see_the_past = parts.MultiHead(d_model, heads), parts.see_the_past

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        queries, keys = x.shape[1], (x if memory is None else memory).shape[1]
        if causal:
            past = torch.as_tensor(np.asarray(self.see_the_past(queries, keys)), device=x.device)
            mask = past if mask is None else mask & past
        # Exercise 06.8 promises a mask for every sentence and every query, and nothing that broadcasts.
        whole = None if mask is None else mask.expand(len(x), queries, keys)
        return self.heads(x, memory, whole)


class Norm(nn.Module):
    """layer_norm with its parameters."""

    def __init__(self, parts: Parts, d_model: int):
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
        self.function = parts.layer_norm

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.gain, self.bias, 1e-5)


class Think(nn.Module):
    """feed_forward with its parameters."""

    def __init__(self, parts: Parts, d_model: int, d_ff: int):
        super().__init__()
        self.w_1, self.w_2 = nn.Parameter(torch.empty(d_model, d_ff)), nn.Parameter(torch.empty(d_ff, d_model))
        self.b_1, self.b_2 = nn.Parameter(torch.zeros(d_ff)), nn.Parameter(torch.zeros(d_model))
        for weight in (self.w_1, self.w_2):
            nn.init.xavier_uniform_(weight)
        self.function = parts.feed_forward

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.w_1, self.b_1, self.w_2, self.b_2)
