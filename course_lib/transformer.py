"""The encoder–decoder Transformer of "Attention Is All You Need", assembled from the blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch.nn.functional as F
from torch import Tensor, nn

from . import masks
from .attention import KeyValue
from .blocks import DecoderBlock, EncoderBlock, LayerNorm, look_up
from .positions import SinusoidalPositions
from .shapes import expect, expect_rank, shape


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes and switches of an encoder–decoder. The defaults learn number words in seconds."""

    source_vocab: int
    target_vocab: int
    d_model: int = 64
    heads: int = 4
    d_ff: int = 256
    encoder_layers: int = 1
    decoder_layers: int = 1
    dropout: float = 0.0
    pre_norm: bool = True
    final_norm: bool = True  # a norm after each stack: pre-norm needs it, torch has it, the 2017 model has not
    share_embeddings: bool = False  # one table for source and target, where both speak from one vocabulary
    activation: str = "relu"
    embedding_std: float = 0.5  # of a word's vector as the first layer sees it, after the factor √D
    pad: int = 0


# The base model of the paper: one vocabulary of 37,000 word pieces for both languages.
PAPER_BASE = TransformerConfig(
    source_vocab=37_000,
    target_vocab=37_000,
    d_model=512,
    heads=8,
    d_ff=2048,
    encoder_layers=6,
    decoder_layers=6,
    dropout=0.1,
    pre_norm=False,
    final_norm=False,
    share_embeddings=True,
    embedding_std=1.0,
)


class DecoderState(NamedTuple):
    """What the decoder keeps between two words: the source's keys and values, and its own."""

    memory: tuple[KeyValue, ...]
    memory_mask: Tensor
    past: tuple[KeyValue, ...] | None


class Transformer(nn.Module):
    """p(target | source) = softmax(decode(target so far, encode(source)) Eᵀ), E the target's embedding table."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        c = self.config = config
        expect(
            not c.share_embeddings or c.source_vocab == c.target_vocab,
            f"One shared table needs one vocabulary; got {c.source_vocab} source and {c.target_vocab} target words.",
        )
        self.target_embedding = nn.Embedding(c.target_vocab, c.d_model)
        self.source_embedding = self.target_embedding if c.share_embeddings else nn.Embedding(c.source_vocab, c.d_model)
        for table in (self.source_embedding, self.target_embedding):
            nn.init.normal_(table.weight, std=c.embedding_std / math.sqrt(c.d_model))
        self.positions = SinusoidalPositions(c.d_model)
        sizes: dict[str, Any] = dict(pre_norm=c.pre_norm, dropout=c.dropout, activation=c.activation)
        width = (c.d_model, c.heads, c.d_ff)
        encoder = nn.ModuleList(EncoderBlock(*width, **sizes) for _ in range(c.encoder_layers))
        decoder = nn.ModuleList(DecoderBlock(*width, **sizes) for _ in range(c.decoder_layers))
        self.encoder, self.decoder = cast(Sequence[EncoderBlock], encoder), cast(Sequence[DecoderBlock], decoder)
        self.encoder_norm, self.decoder_norm = (
            LayerNorm(c.d_model) if c.final_norm else nn.Identity() for _ in range(2)
        )

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Logits (B, T, C) for the word after each word of target_in (B, T), which starts with <bos>."""
        memory, memory_mask = self.encode(source)
        return self.logits(self.decode(target_in, memory, memory_mask))

    def embed(self, table: nn.Embedding, tokens: Tensor, offset: int = 0) -> Tensor:
        """Word vectors times √D, plus positions: in the bottom layer only."""
        x = look_up(table, tokens) * math.sqrt(self.config.d_model)
        return F.dropout(self.positions(x, offset), self.config.dropout, self.training)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """The source (B, S) as memory (B, S, D), and the mask that hides its padding."""
        expect_rank(source, "source", "BS")
        expect(source.shape[1] > 0, f"The source has no words; got shape {shape(source)}.")
        mask = masks.not_pad(source, self.config.pad)
        x = self.embed(self.source_embedding, source)
        for block in self.encoder:
            x = block(x, mask)
        return self.encoder_norm(x), mask

    def decode(self, target_in: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """The decoder's last states (B, T, D). Padding stands at the end, where the causal mask hides it."""
        expect_rank(target_in, "target_in", "BT")
        expect(
            target_in.shape[0] == memory.shape[0] and target_in.shape[1] > 0,
            f"Each source needs its target; got target_in {shape(target_in)} for {memory.shape[0]} sources.",
        )
        x = self.embed(self.target_embedding, target_in)
        for block in self.decoder:
            x = block(x, memory, memory_mask=memory_mask)
        return self.decoder_norm(x)

    def logits(self, x: Tensor) -> Tensor:
        """Each state compared with every word's vector."""
        return F.linear(x, self.target_embedding.weight)

    def start(self, source: Tensor) -> DecoderState:
        """Encode once: keys and values of the source for every decoder layer."""
        memory, mask = self.encode(source)
        return DecoderState(tuple(b.cross_attention.key_value(memory) for b in self.decoder), mask, None)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Logits (B, C) after the newest tokens (B, T), and the state that has seen them."""
        offset = 0 if state.past is None else state.past[0].k.shape[-2]
        past: Sequence[KeyValue | None] = state.past or (None,) * len(self.decoder)
        x = self.embed(self.target_embedding, tokens, offset)
        presents = []
        for block, kept, memory in zip(self.decoder, past, state.memory, strict=True):
            x, present = block.step(x, kept, memory, state.memory_mask)
            presents.append(present)
        return self.logits(self.decoder_norm(x[:, -1])), state._replace(past=tuple(presents))
