"""Translation with two RNNs: an encoder reads, a decoder writes; without attention, and with it.

Here i counts the words of the source and t those of the target; h_i is a state of the encoder, s_t of the
decoder. Both models keep one protocol: `model(source, target_in)` to train, `start` and `step` to translate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .attention import AdditiveAttention
from .blocks import look_up
from .rnn import Bidirectional, LeftToRight, State, hidden, make_cell, run
from .shapes import expect, expect_rank, shape


@dataclass(frozen=True)
class Seq2SeqConfig:
    """Sizes and switches of both models. The defaults learn number words in seconds."""

    source_vocab: int
    target_vocab: int
    d_embed: int = 64
    d_encoder: int = 32  # of each direction. Narrow: h_i then speaks of word i, and the alignment is sharp
    d_hidden: int = 128  # of the decoder
    d_attention: int = 128  # of the small network that scores
    cell: str = "gru"  # or "rnn", "lstm"
    bidirectional: bool = True
    embedding_std: float = 0.6
    pad: int = 0

    def __post_init__(self) -> None:
        for name in ("source_vocab", "target_vocab", "d_embed", "d_encoder", "d_hidden", "d_attention"):
            expect(getattr(self, name) >= 1, f"{name} should be 1 or more; got {getattr(self, name)}.")


class Encoder(nn.Module):
    """Words → vectors → the states h_1 … h_S."""

    def __init__(self, config: Seq2SeqConfig):
        super().__init__()
        c = config
        self.pad = c.pad
        self.embedding = embedding(c.source_vocab, c)
        self.reader = (Bidirectional if c.bidirectional else LeftToRight)(c.d_embed, c.d_encoder, c.cell)
        self.width = self.reader.width

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Source (B, S) → states (B, S, D), the last one (B, D), and a mask (B, S), True on real words."""
        expect_rank(source, "source", "BS")
        expect(source.shape[1] > 0, f"The source has no words; got shape {shape(source)}.")
        real_BS = source != self.pad
        expect_padding_last(real_BS)
        states_BSD, last_BD = self.reader(look_up(self.embedding, source), real_BS.sum(dim=1))
        return states_BSD, last_BD, real_BS


class Decoded(NamedTuple):
    """What comes of reading target words: what the output layer sees (B, T, D), the state, the weights."""

    seen: Tensor
    state: Any
    weights: Tensor | None = None


class Translator(nn.Module):
    """What both models share: an encoder, s_0 from its last state, and the layer that names the next word."""

    def __init__(self, config: Seq2SeqConfig, *, attends: bool):
        super().__init__()
        c = self.config = config
        self.encoder = Encoder(c)
        d_context = self.encoder.width if attends else 0
        self.embedding = embedding(c.target_vocab, c)
        self.cell = make_cell(c.cell, c.d_embed + d_context, c.d_hidden)
        self.bridge = nn.Linear(self.encoder.width, self.cell.parts * c.d_hidden)
        self.output = nn.Linear(c.d_hidden + d_context, c.target_vocab)

    def start(self, source: Tensor) -> Any:
        """Read the source (B, S): the state before the first target word."""
        raise NotImplementedError

    def decode(self, tokens: Tensor, state: Any) -> Decoded:
        """Read target words (B, T): all of them at once in training, the newest one in translation."""
        raise NotImplementedError

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Logits (B, T, C) for the word after each word of target_in (B, T), which starts with <bos>."""
        return self.output(self.decode(target_in, self.start(source)).seen)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits (B, C) after the newest tokens (B, T), and the state that has read them."""
        decoded = self.decode(tokens, state)
        return self.output(decoded.seen[:, -1]), decoded.state

    def first_state(self, last: Tensor) -> State:
        """s_0 = tanh(W h_last + b)."""
        return self.cell.state(torch.tanh(self.bridge(last)))

    def embed(self, tokens: Tensor, state: State) -> Tensor:
        """Vectors (B, T, E) of target words, a row for every state."""
        expect_rank(tokens, "target tokens", "BT")
        batch = hidden(state).shape[0]
        expect(
            tokens.shape[0] == batch and tokens.shape[1] > 0,
            f"Each of {batch} sources needs its target, of one word at least; got tokens {shape(tokens)}.",
        )
        return look_up(self.embedding, tokens)


class PlainState(NamedTuple):
    """What the decoder without attention keeps between two words: s_t, and nothing of the source."""

    cell: State


class Seq2Seq(Translator):
    """Encoder–decoder without attention: all that the decoder learns of the source is one vector, h_last.

    s_0 = tanh(W h_last),  s_t = cell(y_{t−1}, s_{t−1}),  p(y_t) = softmax(W_o s_t).
    """

    def __init__(self, config: Seq2SeqConfig):
        super().__init__(config, attends=False)

    def start(self, source: Tensor) -> PlainState:
        _, last_BD, _ = self.encoder(source)
        return PlainState(self.first_state(last_BD))

    def decode(self, tokens: Tensor, state: PlainState) -> Decoded:
        states_BTD, last = run(self.cell, self.embed(tokens, state.cell), state=state.cell)
        return Decoded(states_BTD, PlainState(last))


class AttentionState(NamedTuple):
    """What the decoder with attention keeps: s_t, all h_i (B, S, D), keys W h_i, and which are real words."""

    cell: State
    source: Tensor
    keys: Tensor
    real: Tensor


class AttentionSeq2Seq(Translator):
    """Bahdanau's encoder–decoder: every step looks at the source again, and asks with the state *before* it.

    a_ti = softmax_i(vᵀ tanh(W [s_{t−1}; h_i])),  c_t = Σ_i a_ti h_i,
    s_t = cell([y_{t−1}; c_t], s_{t−1}),  p(y_t) = softmax(W_o [s_t; c_t]).
    """

    def __init__(self, config: Seq2SeqConfig):
        super().__init__(config, attends=True)
        self.attention = AdditiveAttention(config.d_hidden, self.encoder.width, config.d_attention)

    def start(self, source: Tensor) -> AttentionState:
        states_BSD, last_BD, real_BS = self.encoder(source)
        keys_BSF = self.attention.project(states_BSD)  # the same for every target word, so computed once
        return AttentionState(self.first_state(last_BD), states_BSD, keys_BSF, real_BS)

    def decode(self, tokens: Tensor, state: AttentionState) -> Decoded:
        s, h_BSD, keys_BSF, real_BS = state
        seen, weights = [], []
        # Word by word, also in training: the question s_{t−1} is not there before step t − 1 is done.
        for y_BE in self.embed(tokens, s).unbind(1):
            c_BD, a_BS = self.attention(hidden(s), h_BSD, real_BS, keys_BSF)
            s = self.cell(torch.cat([y_BE, c_BD], dim=-1), s)
            seen.append(torch.cat([hidden(s), c_BD], dim=-1))
            weights.append(a_BS)
        return Decoded(torch.stack(seen, dim=1), state._replace(cell=s), torch.stack(weights, dim=1))

    def align(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Weights (B, T, S); row t: where the model looked to write the word that *follows* target_in[t]."""
        weights_BTS = self.decode(target_in, self.start(source)).weights
        assert weights_BTS is not None
        return weights_BTS


def embedding(words: int, config: Seq2SeqConfig) -> nn.Embedding:
    """A table of word vectors with the spread that the configuration asks for."""
    table = nn.Embedding(words, config.d_embed)
    nn.init.normal_(table.weight, std=config.embedding_std)
    return table


def expect_padding_last(real: Tensor) -> None:
    """Words first, then padding. Checked on the CPU only: every look at a value makes a GPU wait."""
    if real.device.type != "cpu":
        return
    gap_B = (real[:, 1:] & ~real[:, :-1]).any(dim=1)
    expect(
        not bool(gap_B.any()),
        "Padding should stand behind the words of a sentence, never before or between them; "
        f"row {int(gap_B.int().argmax())} of the source has a word after padding.",
    )
