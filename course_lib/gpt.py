"""GPT-2: a decoder without an encoder. Learned positions, pre-norm blocks, a final norm, tied output."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from . import masks, sparse
from .attention import KeyValue, MultiHeadAttention, merge_heads
from .blocks import EncoderBlock, LayerNorm, look_up
from .positions import LearnedPositions
from .shapes import expect, expect_rank, shape

Past = tuple[KeyValue, ...]


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a GPT. With `band`, every second layer sees only the last `band` tokens, as in GPT-3."""

    vocab: int
    max_length: int
    d_model: int = 64
    heads: int = 4
    layers: int = 2
    dropout: float = 0.0
    band: int | None = None

    def is_banded(self, layer: int) -> bool:
        """Dense, banded, dense, banded, …"""
        return self.band is not None and layer % 2 == 1


GPT2_SMALL = GPTConfig(vocab=50_257, max_length=1024, d_model=768, heads=12, layers=12, dropout=0.1)


class BandedAttention(MultiHeadAttention):
    """Causal attention to the last `band` tokens, itself included; no T × T matrix, and a cache that stays small."""

    def __init__(self, d_model: int, heads: int, band: int, *, dropout: float = 0.0):
        super().__init__(d_model, heads, dropout=dropout)
        self.band = band

    def step(self, x: Tensor, past: KeyValue | None, mask: Tensor | None = None) -> tuple[Tensor, KeyValue]:
        """As for all tokens, but `present` keeps only those that the next token may still see."""
        expect(mask is None, "A band is its own mask.")
        q, new = self.project(x)
        kv = new if past is None else past.extend(new)
        queries, keys = q.shape[-2], kv.k.shape[-2]
        first = max(0, keys - self.band + 1)
        present = KeyValue(kv.k[..., first:, :], kv.v[..., first:, :])
        dropping = self.training and self.dropout > 0
        if queries > self.band and self.recorded is None and not dropping:
            pattern = sparse.window(queries, self.band - 1, keys, causal=True, device=x.device)
            return self.w_o(merge_heads(sparse.attend(q, *kv, pattern))), present
        seen = masks.window(queries, self.band - 1, keys, causal=True, device=x.device)
        return self.attend(q, kv, seen), present


class GPT(nn.Module):
    """p(next token | tokens so far) = softmax(norm(blocks(E[tokens] + P)) Eᵀ)."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        c = self.config = config
        expect(c.band is None or c.band >= 1, f"A band holds 1 token or more; got {c.band}.")
        self.embedding = nn.Embedding(c.vocab, c.d_model)
        self.positions = LearnedPositions(c.max_length, c.d_model)
        blocks = nn.ModuleList(self._block(layer) for layer in range(c.layers))
        self.blocks = cast(Sequence[EncoderBlock], blocks)
        self.norm = LayerNorm(c.d_model)
        self._initialise()

    def _block(self, layer: int) -> EncoderBlock:
        c = self.config
        attention = None
        if c.band is not None and c.is_banded(layer):
            attention = BandedAttention(c.d_model, c.heads, c.band, dropout=c.dropout)
        return EncoderBlock(
            c.d_model, c.heads, 4 * c.d_model, dropout=c.dropout, activation="gelu_tanh", attention=attention
        )

    def _initialise(self) -> None:
        """Normal weights with std 0.02; what is added to the residual stream 2L times shrinks by √(2L)."""
        for name, parameter in self.named_parameters():
            if name.endswith("weight"):
                nn.init.normal_(parameter, std=0.02)
            if name.endswith(("w_o.weight", "w_2.weight")):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * self.config.layers))
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
        nn.init.normal_(self.positions.table, std=0.01)

    @property
    def max_length(self) -> int:
        """How many tokens the table of positions holds."""
        return self.config.max_length

    def forward(self, tokens: Tensor, past: Past | None = None) -> tuple[Tensor, Past]:
        """Logits (B, T, C) after each of the newest tokens (B, T), and `present`: the past with them in it."""
        x, present = self._hidden(tokens, past)
        return F.linear(x, self.embedding.weight), present

    def start(self, batch: int) -> None:
        """Decoding begins with no past at all, whatever the batch."""
        return None

    def step(self, tokens: Tensor, state: Past | None) -> tuple[Tensor, Past]:
        """Logits (B, C) after the last of the newest tokens: the others are not needed, so not computed."""
        x, present = self._hidden(tokens, state)
        return F.linear(x[:, -1], self.embedding.weight), present

    def _hidden(self, tokens: Tensor, past: Past | None) -> tuple[Tensor, Past]:
        expect_rank(tokens, "tokens", "BT")
        expect(tokens.shape[1] > 0, f"There are no tokens to read; got shape {shape(tokens)}.")
        seen = 0 if past is None else past[0].k.shape[-2]
        x = self.positions(look_up(self.embedding, tokens), seen)
        x = F.dropout(x, self.config.dropout, self.training)
        present = []
        for layer, block in enumerate(self.blocks):
            x, kept = block.step(x, None if past is None else past[layer])
            present.append(kept)
        return self.norm(x), tuple(present)


# Hugging Face's names for what stands here on the right. Its "Conv1D" layers store matrices as (in, out).
_NAMES = (
    (r"wte\.weight", r"embedding.weight"),
    (r"wpe\.weight", r"positions.table"),
    (r"ln_f\.(weight|bias)", r"norm.\1"),
    (r"h\.(\d+)\.ln_([12])\.(weight|bias)", r"blocks.\1.skip_\2.norm.\3"),
    (r"h\.(\d+)\.attn\.c_attn\.(weight|bias)", r"blocks.\1.attention.w_qkv.\2"),
    (r"h\.(\d+)\.attn\.c_proj\.(weight|bias)", r"blocks.\1.attention.w_o.\2"),
    (r"h\.(\d+)\.mlp\.c_fc\.(weight|bias)", r"blocks.\1.feed_forward.w_1.\2"),
    (r"h\.(\d+)\.mlp\.c_proj\.(weight|bias)", r"blocks.\1.feed_forward.w_2.\2"),
)
_NOT_WEIGHTS = re.compile(r"lm_head\.weight|h\.\d+\.attn\.(bias|masked_bias)")  # the tied output, and mask buffers


def load_hugging_face(model: GPT, state: Mapping[str, Tensor]) -> None:
    """Copy the weights of a Hugging Face GPT-2 (`GPT2LMHeadModel.state_dict()`) into `model`, all or none."""
    ours: dict[str, Tensor] = {}
    for name, tensor in state.items():
        plain = name.removeprefix("transformer.")
        if _NOT_WEIGHTS.fullmatch(plain):
            continue
        ours[_our_name(plain)] = tensor.T if re.search(r"\.c_\w+\.weight$", plain) else tensor
    own = model.state_dict()
    for name in sorted(own.keys() | ours.keys()):
        expect(name in ours, f"The state dict has no weights for {name}: does it have fewer layers?")
        expect(name in own, f"This model has no {name}: does the state dict have more layers?")
        expect(
            ours[name].shape == own[name].shape,
            f"{name} should have shape {shape(own[name])}; the state dict has {shape(ours[name])}.",
        )
    model.load_state_dict(ours)


def _our_name(name: str) -> str:
    for theirs, ours in _NAMES:
        if match := re.fullmatch(theirs, name):
            return match.expand(ours).replace("norm.weight", "norm.gain")
    raise ValueError(f"{name!r} is not a weight of a Hugging Face GPT-2.")
