"""The Transformer's blocks: normalise, attend, feed forward, and a way around each for the gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import KeyValue, MultiHeadAttention
from .positions import ScorePositions
from .shapes import expect, expect_last, shape

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # GPT-2's
}


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """(x − μ) / √(σ² + ε) · gain + bias, with mean μ = Σ x / d and variance σ² = Σ (x − μ)² / d of each token."""
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


class LayerNorm(nn.Module):
    """`layer_norm` with a learned gain and bias, by torch's kernel: the same numbers in one pass."""

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        expect_last(x, "x", self.gain.shape[0])
        return F.layer_norm(x, self.gain.shape, self.gain, self.bias, self.eps)


class FeedForward(nn.Module):
    """W_2 f(W_1 x + b_1) + b_2, the same for every token: what attention, an average, cannot do."""

    def __init__(self, d_model: int, d_ff: int, activation: str = "relu", dropout: float = 0.0):
        super().__init__()
        expect(
            activation in ACTIVATIONS,
            f"The activation should be one of {', '.join(ACTIVATIONS)}; got {activation!r}.",
        )
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.activation, self.dropout = ACTIVATIONS[activation], dropout

    def forward(self, x: Tensor) -> Tensor:
        expect_last(x, "x", self.w_1.in_features)
        hidden = self.activation(self.w_1(x))
        return self.w_2(F.dropout(hidden, self.dropout, self.training))


class Residual(nn.Module):
    """The way around a sublayer f. Pre-norm (GPT-2): x + f(norm(x)). Post-norm (2017): norm(x + f(x)).

    `y = f(skip.enter(x)); x = skip.leave(x, y)`
    """

    def __init__(self, d_model: int, pre_norm: bool = True, dropout: float = 0.0, eps: float = 1e-5):
        super().__init__()
        self.norm = LayerNorm(d_model, eps)
        self.pre_norm, self.dropout = pre_norm, dropout

    def enter(self, x: Tensor) -> Tensor:
        """What the sublayer sees."""
        return self.norm(x) if self.pre_norm else x

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """What goes on: the input plus what the sublayer made of it."""
        x = x + F.dropout(y, self.dropout, self.training)
        return x if self.pre_norm else self.norm(x)


class EncoderBlock(nn.Module):
    """Self-attention (or the attention given), then feed-forward. With `causal`, or by `step`, it is GPT's block."""

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_ff: int,
        *,
        pre_norm: bool = True,
        dropout: float = 0.0,
        activation: str = "relu",
        positions: ScorePositions | None = None,
        attention: MultiHeadAttention | None = None,
    ):
        super().__init__()
        self.attention = attention or MultiHeadAttention(d_model, heads, dropout=dropout, positions=positions)
        self.feed_forward = FeedForward(d_model, d_ff, activation, dropout)
        self.skip_1, self.skip_2 = (Residual(d_model, pre_norm, dropout) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        y = self.attention(self.skip_1.enter(x), mask=mask, causal=causal)
        x = self.skip_1.leave(x, y)
        y = self.feed_forward(self.skip_2.enter(x))
        return self.skip_2.leave(x, y)

    def step(self, x: Tensor, past: KeyValue | None, mask: Tensor | None = None) -> tuple[Tensor, KeyValue]:
        """The newest tokens only, causally; the keys and values of the others come from `past`."""
        y, present = self.attention.step(self.skip_1.enter(x), past, mask)
        x = self.skip_1.leave(x, y)
        y = self.feed_forward(self.skip_2.enter(x))
        return self.skip_2.leave(x, y), present


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention to the encoder's output, feed-forward."""

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_ff: int,
        *,
        pre_norm: bool = True,
        dropout: float = 0.0,
        activation: str = "relu",
        positions: ScorePositions | None = None,
    ):
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, heads, dropout=dropout, positions=positions)
        self.cross_attention = MultiHeadAttention(d_model, heads, dropout=dropout)
        self.feed_forward = FeedForward(d_model, d_ff, activation, dropout)
        self.skip_1, self.skip_2, self.skip_3 = (Residual(d_model, pre_norm, dropout) for _ in range(3))

    def forward(
        self, x: Tensor, memory: Tensor, mask: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        """x (B, T, D) is the target, memory (B, S, D) the encoder's output; memory_mask hides the source's padding."""
        y = self.self_attention(self.skip_1.enter(x), mask=mask, causal=True)
        x = self.skip_1.leave(x, y)
        return self._read_and_think(x, self.cross_attention.key_value(memory), memory_mask)

    def step(
        self, x: Tensor, past: KeyValue | None, memory: KeyValue, memory_mask: Tensor | None = None
    ) -> tuple[Tensor, KeyValue]:
        """The newest tokens only; `memory` holds the keys and values of the source, computed once."""
        y, present = self.self_attention.step(self.skip_1.enter(x), past)
        x = self.skip_1.leave(x, y)
        return self._read_and_think(x, memory, memory_mask), present

    def _read_and_think(self, x: Tensor, memory: KeyValue, memory_mask: Tensor | None) -> Tensor:
        """Cross-attention and feed-forward, which need no other target token."""
        q = self.cross_attention.query(self.skip_2.enter(x))
        x = self.skip_2.leave(x, self.cross_attention.attend(q, memory, memory_mask))
        y = self.feed_forward(self.skip_3.enter(x))
        return self.skip_3.leave(x, y)


def look_up(table: nn.Embedding, tokens: Tensor) -> Tensor:
    """Rows of an embedding table, with an error that names the token outside the vocabulary."""
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise TypeError(f"Tokens are whole numbers (torch.long); got {tokens.dtype} of shape {shape(tokens)}.")
    try:
        return table(tokens)
    except IndexError:  # raised by the look-up itself: nothing is checked, so nothing is slowed down
        size, low, high = table.num_embeddings, int(tokens.min()), int(tokens.max())
        raise ValueError(
            f"Tokens should lie between 0 and {size - 1}, since the vocabulary has {size} words; "
            f"got tokens from {low} to {high}. Is this the vocabulary of another language or corpus?"
        ) from None
