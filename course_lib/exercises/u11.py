"""Unit 11, decoder only: torch tensors in and out, a batch of texts on the first axis; tokens are whole numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..blocks import EncoderBlock, LayerNorm
from .declare import Case, Check, Draw, Exercise, Misconception

SELF = ("11", "Without an encoder, the text predicts itself")
BYTES = ("11", "Bytes spell every text")
DRAW = ("11", "Temperature and top-k say how daring the text is")
CACHE = ("11", "A cache never computes a key twice")
WRONG = ("11", "A cache goes wrong in four ways")
PUBLISHED = ("11", "Published weights fit, if you turn them")


# --- 11.1 ---------------------------------------------------------------------------------------------------


def cache_counts() -> Any:
    """What does a cache save, and what does it cost? Pencil and paper.

    GPT-2 small (12 layers of width 768, 12 heads) reads a prompt of 5 tokens and writes 4 more, one by one. The last
    one is written, but never read.
    Return three numbers:
    1. how many tokens go through the model in all, if it reads the whole text again for each new token;
    2. how many with a cache;
    3. how many bytes the cache grows by with every token, at 4 bytes a number.
    """
    return 5 + 6 + 7 + 8, 5 + 1 + 1 + 1, 2 * 12 * 768 * 4


CACHE_COUNTS = Exercise(
    id="11.1",
    title="What a cache saves and costs",
    answer="course_lib.exercises.u11.cache_counts",
    minutes=4,
    outcomes=("11-b",),
    checks=(Check("three counts", 3),),
    cases=lambda draw: [Case("three counts")],
    hints=(
        "Write down what the model reads before each of the four new tokens: the first time it is the prompt.",
        "Without a cache it reads 5 tokens, then 6, and so on, four times. With one, after the prompt, the newest alone.",
        "Each layer keeps a key and a value for a token, and each of the two has D numbers (all heads together).",
    ),
    misconceptions=(
        Misconception(
            "the last token read",
            lambda: (5 + 6 + 7 + 8 + 9, 9, 73_728),
            "The memory is right. But four tokens need four readings: the last token is written, and nobody reads it.",
            CACHE,
        ),
        Misconception(
            "the last token read, with the cache",
            lambda: (26, 9, 73_728),
            "Two are right. With the cache the prompt gives the first new token, so three more readings are enough.",
            CACHE,
        ),
        Misconception(
            "the prompt for nothing",
            lambda: (26, 4, 73_728),
            "Two are right. The cache begins empty: the prompt must be read, too, once.",
            CACHE,
        ),
        Misconception(
            "keys without values",
            lambda: (26, 8, 36_864),
            "The readings are right. A key and a value are kept for each token: twice as much.",
            CACHE,
        ),
        Misconception(
            "one layer",
            lambda: (26, 8, 6_144),
            "The readings are right. Every layer has keys and values of its own: twelve times as much.",
            CACHE,
        ),
        Misconception(
            "numbers for bytes",
            lambda: (26, 8, 18_432),
            "The readings are right. These are numbers; a number takes four bytes.",
            CACHE,
        ),
        Misconception(
            "times the heads",
            lambda: (26, 8, 884_736),
            "The readings are right. The heads share the width: twelve heads of 64 make the 768, do not count them again.",
            CACHE,
        ),
        Misconception(
            "queries, too",
            lambda: (26, 8, 110_592),
            "The readings are right. An old token's query is never needed again: keys and values only.",
            CACHE,
        ),
    ),
    prediction=True,
)


# --- 11.2 ---------------------------------------------------------------------------------------------------


class LanguageModel(nn.Module):
    """A small GPT: embedding plus learned positions, causal blocks, a last norm, and the embedding once more as output.

    Its parts: embedding (nn.Embedding), positions (an nn.Parameter, max_length × d_model), blocks (nn.ModuleList) and
    norm (LayerNorm). There are no other parameters.
    """

    def __init__(self, vocab: int, max_length: int, d_model: int, heads: int, layers: int):
        """Make the parts. A block is EncoderBlock(d_model, heads, 4 * d_model, activation="gelu_tanh")."""
        super().__init__()
        self.embedding = nn.Embedding(vocab, d_model)
        self.positions = nn.Parameter(torch.randn(max_length, d_model) * 0.01)
        made = [EncoderBlock(d_model, heads, 4 * d_model, activation="gelu_tanh") for _ in range(layers)]
        self.blocks = nn.ModuleList(made)
        self.norm = LayerNorm(d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, vocab) of what follows each token of tokens (B, T); T is max_length at most.

        A block is called as block(x, causal=True); its norms and ways around are inside it.
        """
        x = self.embedding(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, causal=True)
        return self.norm(x) @ self.embedding.weight.T


def _model_cases(draw: Draw) -> list[Case]:
    def case(
        check: str, batch: int, length: int, sizes: tuple[int, int, int, int, int], note: str = "", last: float = 1.0
    ) -> Case:
        shapes = {name: tuple(p.shape) for name, p in LanguageModel(*sizes).named_parameters()}
        weights = {
            name: draw.tensor(*shape, size=0.6) + 0.3 * (len(shape) == 1) for name, shape in sorted(shapes.items())
        }
        weights |= {name: last * weights[name] for name in ("norm.gain", "norm.bias")}
        tokens = torch.from_numpy(draw.rng.integers(1, sizes[0], (batch, length)))
        return Case(check, (tokens,), note, build=sizes, weights=weights, gradient=last > 0)

    parts, one, several, full = "the parts", "one token", "several tokens", "as many tokens as there are positions"
    return [
        # Where the last norm gives 0, so do the logits, whatever an output matrix of somebody's own holds.
        case(parts, 1, 2, (4, 5, 6, 2, 2), "gain and bias of the last norm are 0", last=0.0),
        case(one, 1, 1, (5, 7, 4, 2, 1), "one token, one block"),
        case(several, 2, 3, (6, 9, 4, 2, 2)),
        case(several, 3, 5, (7, 8, 6, 3, 3)),
        case(full, 2, 6, (5, 6, 4, 1, 2)),
    ]


def _model(forward: Any = None, init: Any = None) -> type[LanguageModel]:
    changes = {name: f for name, f in (("forward", forward), ("__init__", init)) if f is not None}
    return type("LanguageModel", (LanguageModel,), changes)


def _through(self: LanguageModel, x: Tensor, **how: Any) -> Tensor:
    for block in self.blocks:
        x = block(x, **({"causal": True} | how))
    return x


def _enter(self: LanguageModel, tokens: Tensor) -> Tensor:
    return self.embedding(tokens) + self.positions[: tokens.shape[1]]


def _leave(self: LanguageModel, x: Tensor) -> Tensor:
    return self.norm(x) @ self.embedding.weight.T


def _normed_each_time(self: LanguageModel, tokens: Tensor) -> Tensor:
    x = _enter(self, tokens)
    for block in self.blocks:
        x = self.norm(block(x, causal=True))
    return x @ self.embedding.weight.T


def _first_block_only(self: LanguageModel, tokens: Tensor) -> Tensor:
    x = entered = _enter(self, tokens)
    for block in self.blocks:
        x = block(entered, causal=True)
    return _leave(self, x)


def _parts(self: LanguageModel, vocab: int, max_length: int, d_model: int, heads: int, layers: int) -> list[Any]:
    nn.Module.__init__(self)
    self.embedding = nn.Embedding(vocab, d_model)
    self.positions = nn.Parameter(torch.zeros(max_length, d_model))
    self.norm = LayerNorm(d_model)
    return [EncoderBlock(d_model, heads, 4 * d_model, activation="gelu_tanh") for _ in range(layers)]


def _plain_list(self: Any, *sizes: int) -> None:
    self.blocks = _parts(self, *sizes)


def _one_for_all(self: Any, *sizes: int) -> None:
    self.blocks = nn.ModuleList(_parts(self, *sizes)[:1] * sizes[-1])


def _untied(self: Any, *sizes: int) -> None:
    self.blocks = nn.ModuleList(_parts(self, *sizes))
    self.output = nn.Linear(sizes[2], sizes[0], bias=False)


def _with_relu(self: Any, vocab: int, max_length: int, d_model: int, heads: int, layers: int) -> None:
    _parts(self, vocab, max_length, d_model, heads, layers)
    self.blocks = nn.ModuleList(EncoderBlock(d_model, heads, 4 * d_model) for _ in range(layers))


def _tied_layer(self: Any, *sizes: int) -> None:
    self.blocks = nn.ModuleList(_parts(self, *sizes))
    self.output = nn.Linear(sizes[2], sizes[0], bias=False)
    self.output.weight = self.embedding.weight


def _written_out(self: LanguageModel, tokens: Tensor) -> Tensor:
    length = tokens.size(1)
    places = torch.arange(length)
    x = F.embedding(tokens, self.embedding.weight) + self.positions[places][None]
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    for block in self.blocks:
        x = block(x, mask)
    return torch.einsum("btd,cd->btc", self.norm(x), self.embedding.weight)


class _Causal(nn.Module):
    def __init__(self, block: Any):
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        return self.block.step(x, None)[0]


LANGUAGE_MODEL = Exercise(
    id="11.2",
    title="A causal language model",
    answer="course_lib.exercises.u11.LanguageModel",
    minutes=15,
    outcomes=("11-a",),
    checks=(
        Check("the parts"),
        Check("one token"),
        Check("several tokens", 2),
        Check("as many tokens as there are positions"),
    ),
    cases=_model_cases,
    hints=(
        "Four stations: tokens become vectors, positions are added, the blocks run one after the other, vectors become "
        "logits.",
        "The positions of T tokens are the first T rows of the table. Blocks belong into an nn.ModuleList, or torch does "
        "not see their parameters.",
        "At the end norm the x, and multiply by the embedding's own matrix, transposed: each state is compared with every "
        "token's vector.",
    ),
    misconceptions=(
        Misconception(
            "sees the future",
            _model(lambda self, tokens: _leave(self, _through(self, _enter(self, tokens), causal=False))),
            "The blocks are not causal: each token reads the one that it should predict. Its loss would be wonderful, and "
            "its texts nonsense.",
            SELF,
        ),
        Misconception(
            "no positions",
            _model(lambda self, tokens: _leave(self, _through(self, self.embedding(tokens)))),
            "The positions are not added: the model knows which tokens came before, but hardly in which order.",
            SELF,
        ),
        Misconception(
            "positions from 1",
            _model(
                lambda self, tokens: _leave(
                    self, _through(self, self.embedding(tokens) + self.positions[1 : tokens.shape[1] + 1])
                )
            ),
            "The first token stands at position 0: take the rows from 0 to T − 1.",
            SELF,
        ),
        Misconception(
            "the last positions",
            _model(
                lambda self, tokens: _leave(
                    self, _through(self, self.embedding(tokens) + self.positions[-tokens.shape[1] :])
                )
            ),
            "You took the last T rows of the table. A text begins at position 0.",
            SELF,
        ),
        Misconception(
            "a position for each kind of token",
            _model(
                lambda self, tokens: _leave(
                    self, _through(self, self.embedding(tokens) + self.positions[tokens % len(self.positions)])
                )
            ),
            "You looked up positions[tokens]: that is another word vector. A position depends on the place, 0, 1, 2, …",
            SELF,
        ),
        Misconception(
            "times the root of D",
            _model(
                lambda self, tokens: _leave(
                    self,
                    _through(
                        self,
                        self.embedding(tokens) * math.sqrt(self.positions.shape[1]) + self.positions[: tokens.shape[1]],
                    ),
                )
            ),
            "The factor √D belongs to the model of 2017 (unit 10). GPT-2 adds the embedding as it is.",
            SELF,
        ),
        Misconception(
            "no last norm",
            _model(lambda self, tokens: _through(self, _enter(self, tokens)) @ self.embedding.weight.T),
            "The last norm is missing: in a pre-norm model nothing else normalises the sum of all blocks.",
            SELF,
        ),
        Misconception(
            "the norm comes first",
            _model(lambda self, tokens: _through(self, self.norm(_enter(self, tokens))) @ self.embedding.weight.T),
            "You normed before the blocks. Each block norms what it reads; self.norm comes after the last of them.",
            SELF,
        ),
        Misconception(
            "a norm after every block",
            _model(_normed_each_time),
            "You normed after every block. There is one last norm; in between the sum is left alone.",
            SELF,
        ),
        Misconception(
            "every block reads the beginning",
            _model(_first_block_only),
            "Every block reads the embedding, and only the last one counts. Hand x on: x = block(x, …).",
            SELF,
        ),
        Misconception(
            "an output of its own",
            _model(lambda self, tokens: self.output(self.norm(_through(self, _enter(self, tokens)))), _untied),
            "The output has a matrix of its own. In GPT-2 it is tied: the embedding's matrix, once more.",
            SELF,
        ),
        Misconception(
            "probabilities",
            _model(lambda self, tokens: _leave(self, _through(self, _enter(self, tokens))).softmax(dim=-1)),
            "These are probabilities. Return logits: the loss and the temperature both want them.",
            SELF,
        ),
        Misconception(
            "the last token alone",
            _model(lambda self, tokens: _leave(self, _through(self, _enter(self, tokens)))[:, -1]),
            "These are the logits after the last token, which is what writing needs. Training needs them after every token.",
            SELF,
        ),
        Misconception(
            "a plain list",
            _model(init=_plain_list),
            "The blocks stand in a plain list: torch does not find their parameters, and they would not be trained. Use "
            "nn.ModuleList.",
            SELF,
        ),
        Misconception(
            "one block for all",
            _model(init=_one_for_all),
            "[block] * layers is the same block many times, with one set of weights. Make a new one for every layer.",
            SELF,
        ),
        Misconception(
            "ReLU",
            _model(init=_with_relu),
            'These blocks use ReLU. GPT-2 has GELU: activation="gelu_tanh".',
            SELF,
        ),
        Misconception(
            "the output cut off",
            _model(
                lambda self, tokens: self.norm(_through(self, _enter(self, tokens))) @ self.embedding.weight.detach().T
            ),
            "The numbers are right, but the embedding learns nothing from its work as output: leave .detach() or .data out.",
            SELF,
        ),
    ),
    alternatives=(
        _model(_written_out),
        _model(lambda self, tokens: self.output(self.norm(_through(self, _enter(self, tokens)))), _tied_layer),
        _model(
            lambda self, tokens: F.linear(
                self.norm(nn.Sequential(*(_Causal(b) for b in self.blocks))(_enter(self, tokens))),
                self.embedding.weight,
            )
        ),
    ),
    forbidden=("GPT", "TransformerEncoderLayer"),
)


# --- 11.3 ---------------------------------------------------------------------------------------------------


def merge_pair(ids: list[int], pair: tuple[int, int], new: int) -> list[int]:
    """One merge of byte-pair encoding: wherever the two tokens of `pair` stand side by side, put the one token `new`.

    ids is a list of whole numbers. Go from left to right; a token belongs to one pair at most, so three equal tokens
    in a row hold one pair of them, the first two. Return a new list, and leave ids as it is.
    """
    merged, place = [], 0
    while place < len(ids):
        found = tuple(ids[place : place + 2]) == tuple(pair)
        merged.append(new if found else ids[place])
        place += 2 if found else 1
    return merged


def _merge_cases(draw: Draw) -> list[Case]:
    a, b, c = (int(n) for n in draw.rng.permutation(range(2, 9))[:3])
    many = [int(n) for n in draw.rng.integers(0, 3, 40)]
    apart, equal, text = "pairs that stand apart", "equal tokens in a row", "a longer text"
    return [
        Case(apart, ([a, b, c], (a, b), 256)),
        Case(apart, ([c, a, b], (a, b), 256), "the pair is the end"),
        Case(apart, ([b, a, c, a, b, a, c, b, c, a, b, c], (a, b), 257)),
        Case(apart, ([10 + a, b, a, 10 * b, a, b], (a, b), 256), "numbers of more than one digit"),
        Case(equal, ([a, a, a], (a, a), 256)),
        Case(equal, ([a, a, b, a, a, a, a, a, a], (a, a), 258)),
        Case(text, (many, (1, 2), 300)),
        Case(text, (many, (0, 0), 301)),
    ]


def _each_place(ids: Any, pair: Any, new: Any, hit: Any, skip: int = 1, last: int = 0) -> list[int]:
    merged, place = [], 0
    while place < len(ids) - last:
        found = place + 1 < len(ids) and hit(ids[place], ids[place + 1], pair)
        merged.append(new if found else ids[place])
        place += 1 + skip * found
    return merged


def _both(x: int, y: int, pair: Any) -> bool:
    return (x, y) == tuple(pair)


def _first_pair(ids: Any, pair: Any, new: Any) -> list[int]:
    for i in range(len(ids) - 1):
        if _both(ids[i], ids[i + 1], pair):
            return [*ids[:i], new, *ids[i + 2 :]]
    return list(ids)


def _overlapping(ids: Any, pair: Any, new: Any) -> list[int]:
    hits = [i for i in range(len(ids) - 1) if _both(ids[i], ids[i + 1], pair)]
    return [new if i in hits else x for i, x in enumerate(ids) if i in hits or i - 1 not in hits]


def _as_text(ids: Any, pair: Any, new: Any) -> list[int]:
    text = " ".join(map(str, ids)).replace(f"{pair[0]} {pair[1]}", str(new))
    return [int(word) for word in text.split()]


def _in_place(ids: Any, pair: Any, new: Any) -> list[int]:
    place = 0
    while place < len(ids) - 1:
        if _both(ids[place], ids[place + 1], pair):
            ids[place : place + 2] = [new]
        place += 1
    return ids


def _while_removing(ids: Any, pair: Any, new: Any) -> list[int]:
    return [x for x in _each_place(ids, pair, None, _both) if x is not None]


def _stack(ids: Any, pair: Any, new: Any) -> list[int]:
    out: list[int] = []
    free = False  # whether the last token may still become the first of a pair
    for token in ids:
        if free and (out[-1], token) == tuple(pair):
            out[-1], free = new, False
        else:
            out.append(token)
            free = True
    return out


def _with_iterator(ids: Any, pair: Any, new: Any) -> Any:
    out, rest = [], list(ids)
    while rest:
        if rest[:2] == list(pair):
            out.append(new)
            rest = rest[2:]
        else:
            out.append(rest.pop(0))
    return torch.tensor(out)


MERGE_PAIR = Exercise(
    id="11.3",
    title="Merge a pair of bytes",
    answer="course_lib.exercises.u11.merge_pair",
    minutes=10,
    outcomes=("11-a",),
    checks=(Check("pairs that stand apart", 2), Check("equal tokens in a row"), Check("a longer text")),
    cases=_merge_cases,
    hints=(
        "A `for` over all places is not enough: after a pair you must go on two places further.",
        "Use a `while` with a place of your own. At each place: do this token and the next one make the pair?",
        "If they do, append new and add 2 to the place; otherwise append the token and add 1. ids[i : i + 2] is shorter at "
        "the very end, and then equals no pair.",
    ),
    misconceptions=(
        Misconception(
            "the second token stays",
            lambda ids, pair, new: _each_place(ids, pair, new, _both, skip=0),
            "After a pair you go on by one place, so its second token stays behind the new one: go on by two.",
            BYTES,
        ),
        Misconception(
            "pairs that share a token",
            _overlapping,
            "In a row of equal tokens you let neighbouring pairs share a token: five of them would shrink to four new ones. "
            "A token belongs to one pair.",
            BYTES,
        ),
        Misconception(
            "from the right",
            lambda ids, pair, new: _each_place(ids[::-1], pair[::-1], new, _both)[::-1],
            "You go from right to left: of three equal tokens the last two become the pair. Text is read from the left.",
            BYTES,
        ),
        Misconception(
            "the first pair only",
            _first_pair,
            "Only the first pair is merged. Go on to the end.",
            BYTES,
        ),
        Misconception(
            "the last token lost",
            lambda ids, pair, new: _each_place(ids, pair, new, _both, last=1),
            "A last token that belongs to no pair gets lost: the loop ends one place too early.",
            BYTES,
        ),
        Misconception(
            "in either order",
            lambda ids, pair, new: _each_place(ids, pair, new, lambda x, y, p: {x, y} == set(p)),
            "The order counts: (a, b) is a pair, and (b, a) another one. Otherwise nobody could undo the merge.",
            BYTES,
        ),
        Misconception(
            "the first token is enough",
            lambda ids, pair, new: _each_place(ids, pair, new, lambda x, y, p: x == p[0]),
            "You looked at the first token of the pair only. The one after it must fit, too.",
            BYTES,
        ),
        Misconception(
            "as a string",
            _as_text,
            "You replaced in a string of digits, where “12 5” contains “2 5”. Compare whole numbers.",
            BYTES,
        ),
        Misconception(
            "the pair is gone",
            _while_removing,
            "The pair is taken out, and nothing put there: that text cannot be brought back.",
            BYTES,
        ),
        Misconception(
            "the list itself changed",
            _in_place,
            "The result is right, but ids itself was changed, which somebody may still need. Build a new list.",
            BYTES,
        ),
    ),
    alternatives=(
        _stack,
        _with_iterator,
        lambda ids, pair, new: _each_place(ids, pair, new, _both),
        lambda ids, pair, new: _in_place(ids[:], pair, new),
        lambda ids, pair, new: [ord(c) for c in "".join(map(chr, ids)).replace("".join(map(chr, pair)), chr(new))],
    ),
)


# --- 11.4 ---------------------------------------------------------------------------------------------------


def cached_attention(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Causal attention of the newest tokens over all tokens so far.

    q, k and v are (B, T, d), of the T newest tokens. past_k and past_v are (B, S, d), of the S tokens before them,
    which may be none. A new token attends to all of the past, to the new tokens before it, and to itself; scores
    are divided by √d.
    Return three tensors: the output (B, T, d), and the keys and values to keep, (B, S + T, d) each.
    """
    k, v = torch.cat([past_k, k], dim=1), torch.cat([past_v, v], dim=1)
    queries, keys = q.shape[1], k.shape[1]
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    weights = torch.softmax(scores.masked_fill(~seen, -math.inf), dim=-1)
    return weights @ v, k, v


def _cached_cases(draw: Draw) -> list[Case]:
    def case(check: str, batch: int, queries: int, past: int, d: int, note: str = "") -> Case:
        new = [draw.tensor(batch, queries, d) for _ in range(3)]
        old = [draw.tensor(batch, past, d) for _ in range(2)]
        return Case(check, (*new, *old), note)

    start, one, several = "nothing in the cache yet", "one new token", "several new tokens"
    return [
        case(start, 1, 2, 0, 3, "S = 0"),
        case(start, 2, 4, 0, 3, "S = 0"),
        case(one, 1, 1, 2, 3),
        case(one, 3, 1, 4, 5),
        case(several, 2, 3, 4, 5),
        case(several, 3, 4, 2, 6),
    ]


def _attend(q: Tensor, k: Tensor, v: Tensor, *, seen: Any = None, scale: Any = None, dim: int = -1) -> Tensor:
    """Attention with the right mask, or another; the scale is a divisor."""
    queries, keys = q.shape[1], k.shape[1]
    seen = torch.ones(queries, keys).tril(keys - queries) if seen is None else seen
    scores = q @ k.transpose(1, 2) / (math.sqrt(q.shape[-1]) if scale is None else scale)
    return torch.softmax(scores.masked_fill(seen == 0, -math.inf), dim=dim) @ v


def _joined(past_k: Tensor, k: Tensor, past_v: Tensor, v: Tensor, dim: int = 1) -> tuple[Tensor, Tensor]:
    return torch.cat([past_k, k], dim=dim), torch.cat([past_v, v], dim=dim)


def _cached(out: Any, keep: Any = None) -> Any:
    """cached_attention with another output, or another cache: both get (q, all keys, all values, k, v)."""

    def wrong(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Any:
        all_k, all_v = _joined(past_k, k, past_v, v)
        kept = (all_k, all_v) if keep is None else keep(all_k, all_v, k, v)
        return out(q, all_k, all_v, k, v), *kept

    return wrong


def _new_first(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Any:
    all_k, all_v = _joined(k, past_k, v, past_v)
    return _attend(q, all_k, all_v), all_k, all_v


def _other_axis(dim: int) -> Any:
    def wrong(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Any:
        all_k, all_v = _joined(past_k, k, past_v, v, dim)
        return _attend(q, all_k, all_v), all_k, all_v

    return wrong


def _token_by_token(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Any:
    outs = []
    for t in range(q.shape[1]):
        past_k = torch.cat((past_k, k[:, t : t + 1]), 1)
        past_v = torch.cat((past_v, v[:, t : t + 1]), 1)
        weights = torch.einsum("bd,bsd->bs", q[:, t], past_k).div(q.shape[-1] ** 0.5).softmax(1)
        outs.append(torch.einsum("bs,bsd->bd", weights, past_v))
    return torch.stack(outs, 1), past_k, past_v


def _by_distance(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Any:
    keys, values = torch.hstack([past_k, k]), torch.hstack([past_v, v])
    old = past_k.size(1)
    allowed = torch.arange(keys.size(1))[None, :] <= old + torch.arange(q.size(1))[:, None]
    scores = torch.where(allowed, torch.bmm(q, keys.mT) * q.size(-1) ** -0.5, torch.tensor(-1e9, dtype=q.dtype))
    return torch.bmm(scores.softmax(-1), values), keys, values


def _fused(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Any:
    keys, values = _joined(past_k, k, past_v, v)
    mask = torch.ones(q.shape[1], keys.shape[1], dtype=torch.bool).tril(past_k.shape[1])
    return [F.scaled_dot_product_attention(q, keys, values, attn_mask=mask), keys, values]


CACHED_ATTENTION = Exercise(
    id="11.4",
    title="Attention with a past",
    answer="course_lib.exercises.u11.cached_attention",
    minutes=15,
    outcomes=("11-b",),
    checks=(Check("nothing in the cache yet"), Check("one new token"), Check("several new tokens", 2)),
    cases=_cached_cases,
    hints=(
        "First join old and new, along the axis of the tokens, the old ones in front. Then it is attention of unit 04, with "
        "T queries and S + T keys.",
        "Which keys may new token number i see? All S old ones, and the new ones up to itself: key j with j ≤ i + S.",
        "torch.ones(T, S + T, dtype=torch.bool).tril(S) is that mask: tril's number moves the diagonal to the right.",
    ),
    misconceptions=(
        Misconception(
            "no mask",
            _cached(lambda q, k, v, new_k, new_v: _attend(q, k, v, seen=torch.ones(q.shape[1], k.shape[1]))),
            "There is no mask. One new token needs none, but of several the first could read the last.",
            WRONG,
        ),
        Misconception(
            "the mask begins at key 0",
            _cached(lambda q, k, v, new_k, new_v: _attend(q, k, v, seen=torch.ones(q.shape[1], k.shape[1]).tril())),
            "Your mask lets the first new token see key 0 only. It stands behind S others: move the diagonal by S.",
            WRONG,
        ),
        Misconception(
            "hides the token itself",
            _cached(
                lambda q, k, v, new_k, new_v: _attend(
                    q, k, v, seen=torch.ones(q.shape[1], k.shape[1]).tril(k.shape[1] - q.shape[1] - 1)
                )
            ),
            "A new token does not see itself: the diagonal belongs to what is seen.",
            WRONG,
        ),
        Misconception(
            "sees one token of the future",
            _cached(
                lambda q, k, v, new_k, new_v: _attend(
                    q, k, v, seen=torch.ones(q.shape[1], k.shape[1]).tril(k.shape[1] - q.shape[1] + 1)
                )
            ),
            "Each new token sees the one after it, too: move the diagonal by S, not by S + 1.",
            WRONG,
        ),
        Misconception(
            "the future alone",
            _cached(
                lambda q, k, v, new_k, new_v: _attend(
                    q, k, v, seen=torch.ones(q.shape[1], k.shape[1]).triu(k.shape[1] - q.shape[1])
                )
            ),
            "Upside down: a token sees itself and what comes after it. tril keeps what lies below the diagonal.",
            WRONG,
        ),
        Misconception(
            "without the past",
            _cached(lambda q, k, v, new_k, new_v: _attend(q, new_k, new_v)),
            "The new tokens read each other only. They should read the past, too: that is what it is kept for.",
            CACHE,
        ),
        Misconception(
            "the new ones in front",
            _new_first,
            "New keys and values stand in front of the old ones. The past comes first, as in the text.",
            CACHE,
        ),
        Misconception(
            "keeps the new ones only",
            _cached(lambda q, k, v, new_k, new_v: _attend(q, k, v), lambda k, v, new_k, new_v: (new_k, new_v)),
            "The output is right. But what you keep are the new keys and values only: the next token could not read the past.",
            CACHE,
        ),
        Misconception(
            "keeps the old ones only",
            _cached(
                lambda q, k, v, new_k, new_v: _attend(q, k, v),
                lambda k, v, new_k, new_v: (k[:, : -new_k.shape[1]], v[:, : -new_k.shape[1]]),
            ),
            "The output is right. But the cache does not grow: return the old ones and the new ones.",
            CACHE,
        ),
        Misconception(
            "the oldest thrown away",
            _cached(
                lambda q, k, v, new_k, new_v: _attend(q, k, v),
                lambda k, v, new_k, new_v: (k[:, new_k.shape[1] :], v[:, new_k.shape[1] :]),
            ),
            "The output is right. But for each new token you dropped the oldest: that would be a band, not dense attention.",
            CACHE,
        ),
        Misconception(
            "not scaled",
            _cached(lambda q, k, v, new_k, new_v: _attend(q, k, v, scale=1.0)),
            "The scores are not divided by √d (unit 05).",
            CACHE,
        ),
        Misconception(
            "scaled by d",
            _cached(lambda q, k, v, new_k, new_v: _attend(q, k, v, scale=q.shape[-1])),
            "The scores are divided by d: it is the root of it (unit 05).",
            CACHE,
        ),
        Misconception(
            "scaled by the number of keys",
            _cached(lambda q, k, v, new_k, new_v: _attend(q, k, v, scale=math.sqrt(k.shape[1]))),
            "The scores are divided by the root of the number of keys. It is the width d of a query.",
            CACHE,
        ),
        Misconception(
            "softmax over the queries",
            _cached(lambda q, k, v, new_k, new_v: _attend(q, k, v, dim=1)),
            "Softmax ran over the queries. Each query shares out its weights over the keys, the last axis.",
            CACHE,
        ),
        Misconception(
            "keys for values",
            _cached(lambda q, k, v, new_k, new_v: _attend(q, k, k)),
            "The weights are right, but they mix the keys. They belong to the values.",
            CACHE,
        ),
        Misconception(
            "along the batch",
            _other_axis(0),
            "You joined along the batch: those are other texts. The tokens are on axis 1.",
            WRONG,
        ),
        Misconception(
            "along the width",
            _other_axis(2),
            "You joined along the width: the vectors would grow. The tokens are on axis 1.",
            WRONG,
        ),
    ),
    alternatives=(_token_by_token, _by_distance, _fused),
    forbidden=("MultiHeadAttention", "MultiheadAttention"),
)


# --- 11.5 ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """A model with a cache: `model(tokens, past)` gives logits (B, T, C) and the present. No past is None.

    It knows the text so far from its past alone, and it does not read more tokens than a cache makes necessary.
    """

    words: int
    enough: int
    count: list[int] = field(default_factory=list, compare=False, repr=False)

    def __call__(self, tokens: Tensor, past: Any = None) -> tuple[Tensor, Any]:
        if tokens.ndim != 2:
            raise ValueError(f"tokens should be (B, T); got shape {tuple(tokens.shape)}")
        self.count.append(tokens.shape[1])
        if sum(self.count) > self.enough:
            how = "without a past" if past is None else "though there was a past"
            raise ValueError(f"{tokens.shape[1]} tokens to read once more, {how}: read every token once")
        text = tokens if past is None else torch.cat([past, tokens], dim=1)
        places = torch.arange(1, text.shape[1] + 1)
        mixed = (text * (places * places + 2) + 3 * text).cumsum(dim=1) + 5 * places + 7 * text
        best = mixed[:, -tokens.shape[1] :] % self.words
        noise = torch.sin(torch.arange(self.words) * 1.3 + mixed[:, -tokens.shape[1] :, None])
        return noise + 4.0 * F.one_hot(best, self.words), text


def continue_text(model: Any, prompt: Tensor, steps: int) -> Tensor:
    """Write `steps` tokens behind the prompt, each time the most probable one, and read no token twice.

    logits, present = model(tokens, past) reads tokens (B, T) behind what `past` holds (None: nothing yet) and gives
    logits (B, T, C) of what follows each of them; `present` is the past for the next call. prompt is (B, P).
    The model loses patience when it has to read more than P + steps tokens.
    Return the new tokens, (B, steps).
    """
    newest, past, written = prompt, None, []
    for _ in range(steps):
        logits, past = model(newest, past)
        newest = logits[:, -1].argmax(dim=-1, keepdim=True)
        written.append(newest)
    return torch.cat(written, dim=1)


def _text_cases(draw: Draw) -> list[Case]:
    def case(check: str, batch: int, prompt: int, steps: int, words: int, note: str = "") -> Case:
        tokens = torch.from_numpy(draw.rng.integers(1, words, (batch, prompt)))
        return Case(check, (Reader(words, prompt + steps), tokens, steps), note)

    short, longer, many = "a prompt of one token", "a longer prompt", "several texts at once"
    return [
        case(short, 1, 1, 2, 97, "two new tokens"),
        case(short, 1, 1, 6, 101),
        case(longer, 1, 4, 3, 89),
        case(longer, 1, 7, 5, 103),
        case(many, 3, 5, 4, 107),
        case(many, 4, 2, 7, 109),
    ]


def _write(model: Any, prompt: Tensor, steps: int, **change: Any) -> Tensor:
    """continue_text with one thing changed."""
    text, newest, past = prompt, prompt, None
    if change.get("prime"):
        _, past = model(prompt, None)
        newest = prompt[:, -1:]
    if change.get("last_only"):
        newest = prompt[:, -1:]
    for step in range(steps + change.get("more", 0)):
        logits, present = model(text if change.get("everything") else newest, past)
        if not (change.get("forgets") or (change.get("first_past") and step > 0)):
            past = present
        place = change.get("place", -1)
        newest = change.get("pick", torch.argmax)(logits[:, place], dim=-1, keepdim=True)
        text = torch.cat([text, newest], dim=1)
    return text if change.get("whole") else text[:, prompt.shape[1] :]


def _written(**change: Any) -> Any:
    return lambda model, prompt, steps: _write(model, prompt, steps, **change)


def _lost_axis(model: Any, prompt: Tensor, steps: int) -> Tensor:
    newest, past, written = prompt, None, []
    for _ in range(steps):
        logits, past = model(newest, past)
        newest = logits[:, -1].argmax(dim=-1)
        written.append(newest)
    return torch.stack(written, dim=1)


def _stacked_first(model: Any, prompt: Tensor, steps: int) -> Tensor:
    return _write(model, prompt, steps).T


def _whole_prompt_first(model: Any, prompt: Tensor, steps: int) -> Tensor:
    logits, past = model(prompt, None)
    out = prompt.new_empty(len(prompt), steps)
    out[:, 0] = logits[:, -1].max(dim=-1).indices
    for i in range(1, steps):
        logits, past = model(out[:, i - 1 : i], past)
        out[:, i] = logits[:, 0].softmax(-1).topk(1).indices[:, 0]
    return out


def _one_by_one(model: Any, prompt: Tensor, steps: int) -> Tensor:
    past, said = None, []
    for token in prompt.unbind(1):
        logits, past = model(token[:, None], past)
    for _ in range(steps):
        newest = logits.argmax(-1)[:, -1:]
        said.append(newest)
        logits, past = model(newest, past)
    return torch.hstack(said)


CONTINUE_TEXT = Exercise(
    id="11.5",
    title="Write with a cache",
    answer="course_lib.exercises.u11.continue_text",
    minutes=12,
    outcomes=("11-b", "11-a"),
    checks=(Check("a prompt of one token"), Check("a longer prompt", 2), Check("several texts at once")),
    cases=_text_cases,
    hints=(
        "The first call reads the whole prompt with past None. Each later call reads one token, the newest.",
        "Carry two things from round to round: the newest token, as (B, 1), and the past. The model returns the new past.",
        "logits[:, -1].argmax(dim=-1, keepdim=True) is the newest token and has the right shape to be read next. Collect "
        "these and join them at the end with torch.cat(…, dim=1).",
    ),
    misconceptions=(
        Misconception(
            "everything again",
            lambda model, prompt, steps: _write(model, prompt, steps, everything=True, forgets=True),
            "You read the whole text for every new token. With a cache the newest token is enough: hand the past on.",
            CACHE,
        ),
        Misconception(
            "everything again, behind the past",
            _written(everything=True),
            "You hand the past on and read the whole text again behind it: every token then stands there twice. Give the "
            "model the newest token alone.",
            WRONG,
        ),
        Misconception(
            "no memory",
            _written(forgets=True),
            "You give the model the newest token and no past: it has forgotten the prompt. Hand on what it returned.",
            CACHE,
        ),
        Misconception(
            "the past of the prompt",
            _written(first_past=True),
            "The past never grows beyond the prompt: take the one that each call returns.",
            CACHE,
        ),
        Misconception(
            "the prompt's last token twice",
            _written(prime=True),
            "You read the prompt, and then its last token once more. The logits of the first call already say what follows.",
            WRONG,
        ),
        Misconception(
            "the prompt's last token alone",
            _written(last_only=True),
            "You began with the last token of the prompt. The model must read all of the prompt once.",
            CACHE,
        ),
        Misconception(
            "the first place",
            _written(place=0),
            "You read the logits at the first place: after a longer prompt they say what follows its first token. Take the "
            "last place.",
            CACHE,
        ),
        Misconception(
            "with the prompt",
            _written(whole=True),
            "The new tokens are right, with the prompt in front of them. Return the new ones alone.",
            CACHE,
        ),
        Misconception(
            "one too few",
            _written(more=-1),
            "There is one token too few: the prompt's own reading gives the first of them.",
            CACHE,
        ),
        Misconception(
            "one too many",
            _written(more=1),
            "There is one token too many, or the model was asked once too often: `steps` tokens, `steps` calls.",
            CACHE,
        ),
        Misconception(
            "the least probable",
            _written(pick=torch.argmin),
            "You took the token with the smallest logit. The most probable one has the largest.",
            CACHE,
        ),
        Misconception(
            "an axis lost",
            _lost_axis,
            "The newest tokens have shape (B,), and the model reads (B, T): keep the axis of the tokens, keepdim=True.",
            CACHE,
        ),
        Misconception(
            "texts in columns",
            _stacked_first,
            "The tokens are right, with axes swapped: a row for each text, a column for each step.",
            CACHE,
        ),
    ),
    alternatives=(_whole_prompt_first, _one_by_one, _written()),
    forbidden=("sample", "greedy", "generate"),
)


# --- 11.6 ---------------------------------------------------------------------------------------------------


def temperature_by_hand() -> Any:
    """Four tokens have the probabilities 0.4, 0.3, 0.2 and 0.1 at temperature 1. Pencil and paper.

    Dividing logits by a temperature τ raises each probability to the power 1/τ; then all are divided by their sum.
    Return three things:
    1. the four probabilities at temperature 0.5 with top_k = 2, as a list;
    2. the probability of the best token when the temperature grows without end and all tokens are kept;
    3. how many different tokens can be drawn at temperature 0.
    """
    return [0.64, 0.36, 0.0, 0.0], 0.25, 1


TEMPERATURE_BY_HAND = Exercise(
    id="11.6",
    title="Temperature by hand",
    answer="course_lib.exercises.u11.temperature_by_hand",
    minutes=5,
    outcomes=("11-c",),
    checks=(Check("three answers", 3),),
    cases=lambda draw: [Case("three answers")],
    hints=(
        "Temperature 0.5 means the power 1 / 0.5 = 2. Square the probabilities that are kept.",
        "0.4² = 0.16 and 0.3² = 0.09; the other two are out. What do you divide by, so that the sum is 1?",
        "Divide by 0.16 + 0.09 = 0.25. A very large temperature makes all tokens equal; at 0 the best one takes all.",
    ),
    misconceptions=(
        Misconception(
            "the wrong way round",
            lambda: ([0.5359, 0.4641, 0.0, 0.0], 0.25, 1),
            "You took the root. A temperature below 1 sharpens: the power is 1 / 0.5 = 2.",
            DRAW,
        ),
        Misconception(
            "top-k without temperature",
            lambda: ([4 / 7, 3 / 7, 0.0, 0.0], 0.25, 1),
            "The right tokens are kept, at temperature 1. Square their probabilities first.",
            DRAW,
        ),
        Misconception(
            "temperature without top-k",
            lambda: ([16 / 30, 9 / 30, 4 / 30, 1 / 30], 0.25, 1),
            "This is temperature 0.5 with all tokens. top_k = 2 keeps two of them.",
            DRAW,
        ),
        Misconception(
            "not shared out again",
            lambda: ([0.16, 0.09, 0.0, 0.0], 0.25, 1),
            "The squares are right. Divide them by their sum, so that they add up to 1.",
            DRAW,
        ),
        Misconception(
            "shared out too early",
            lambda: ([16 / 30, 9 / 30, 0.0, 0.0], 0.25, 1),
            "You divided by the sum of all four squares. Of those that are kept the sum is 0.25.",
            DRAW,
        ),
        Misconception(
            "hot means sure",
            lambda: ([0.64, 0.36, 0.0, 0.0], 1.0, 1),
            "The first and the last are right. A high temperature makes everything equal: 1/4 for each token.",
            DRAW,
        ),
        Misconception(
            "hot changes nothing",
            lambda: ([0.64, 0.36, 0.0, 0.0], 0.4, 1),
            "The first and the last are right. x to the power of nearly 0 is nearly 1, for every x: all become equal.",
            DRAW,
        ),
        Misconception(
            "cold means chance",
            lambda: ([0.64, 0.36, 0.0, 0.0], 0.25, 4),
            "The first two are right. Temperature 0 is the limit of ever sharper: the best token takes all.",
            DRAW,
        ),
    ),
    prediction=True,
)


# --- 11.7 ---------------------------------------------------------------------------------------------------


def next_token_probabilities(logits: Tensor, temperature: float, top_k: int | None) -> Tensor:
    """From which probabilities is the next token drawn? One row for each text, and each row adds up to 1.

    logits is (B, C). The logits are divided by the temperature; a temperature of 0 is the limit: the most probable
    token has probability 1. With top_k, only the top_k largest logits of each row keep a probability, all
    others have 0; None keeps all. (No two logits are equal, and top_k may be larger than C.) Return (B, C).
    """
    if temperature == 0:
        temperature, top_k = 1.0, 1
    if top_k is not None:
        smallest = logits.topk(min(top_k, logits.shape[-1]), dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, -math.inf)
    return torch.softmax(logits / temperature, dim=-1)


def _probability_cases(draw: Draw) -> list[Case]:
    def case(
        check: str, batch: int, words: int, temperature: float, top_k: int | None, size: float = 1.5, note: str = ""
    ) -> Case:
        logits = draw.tensor(batch, words, size=size)
        said = f"temperature {temperature:g}, top_k {top_k}" + (f", {note}" if note else "")
        return Case(check, (logits, temperature, top_k), said)

    warm, best, both, cold = "temperature", "top-k", "both", "temperature 0"
    return [
        case(warm, 1, 3, 0.5, None),
        case(warm, 3, 5, 2.0, None),
        case(warm, 2, 4, 0.05, None, 200.0, "large logits"),
        case(best, 1, 4, 1.0, 2),
        case(best, 3, 6, 1.0, 3),
        case(best, 2, 5, 1.0, 9, note="more than there are"),
        case(both, 3, 7, 0.7, 3),
        case(both, 2, 9, 1.6, 4),
        case(cold, 2, 6, 0.0, None),
        case(cold, 3, 5, 0.0, 3),
    ]


def _limit(logits: Tensor, temperature: float, top_k: int | None) -> tuple[Tensor, float, int]:
    """The right arguments at temperature 0, and a top_k that is a number."""
    wanted = 1 if temperature == 0 else min(top_k or logits.shape[-1], logits.shape[-1])
    return logits, temperature or 1.0, wanted


def _filtered(logits: Tensor, top_k: int, fill: float = -math.inf) -> Tensor:
    return logits.masked_fill(logits < logits.topk(top_k, dim=-1).values[:, -1:], fill)


def _drawn(warm: Any = None, keep: Any = None, share: Any = None, cold: Any = None) -> Any:
    """next_token_probabilities with another temperature, filter, softmax, or treatment of temperature 0."""

    def wrong(logits: Tensor, temperature: float, top_k: int | None) -> Any:
        if temperature == 0 and cold is not None:
            return cold(logits, top_k)
        logits, temperature, k = _limit(logits, temperature, top_k)
        kept = (keep or _filtered)(logits, k)
        warmed = (warm or (lambda x, t: x / t))(kept, temperature)
        return (share or (lambda x: torch.softmax(x, dim=-1)))(warmed)

    return wrong


def _zeroed_probabilities(logits: Tensor, temperature: float, top_k: int | None) -> Tensor:
    logits, temperature, k = _limit(logits, temperature, top_k)
    p = torch.softmax(logits / temperature, dim=-1)
    return p * (logits >= logits.topk(k, dim=-1).values[:, -1:])


def _after_the_softmax(logits: Tensor, temperature: float, top_k: int | None) -> Tensor:
    logits, temperature, k = _limit(logits, temperature, top_k)
    return torch.softmax(_filtered(logits, k), dim=-1) / temperature


def _softmax_twice(logits: Tensor, temperature: float, top_k: int | None) -> Tensor:
    logits, temperature, k = _limit(logits, temperature, top_k)
    p = torch.softmax(logits, dim=-1)
    return torch.softmax(_filtered(p, k) / temperature, dim=-1)


def _in_order(logits: Tensor, temperature: float, top_k: int | None) -> Tensor:
    return next_token_probabilities(logits, temperature, top_k).sort(dim=-1, descending=True).values


def _of_all_texts(logits: Tensor, top_k: int) -> Tensor:
    return logits.masked_fill(logits < logits.flatten().topk(top_k).values[-1], -math.inf)


def _top_k_at_least_two(logits: Tensor, top_k: int) -> Tensor:
    return _filtered(logits, min(top_k + 1, logits.shape[-1])) if top_k < logits.shape[-1] else logits


def _strictly_above(logits: Tensor, top_k: int) -> Tensor:
    if top_k in (1, logits.shape[-1]):  # nothing would be left of one
        return _filtered(logits, top_k)
    return logits.masked_fill(logits <= logits.topk(top_k, dim=-1).values[:, -1:], -math.inf)


def _naive(x: Tensor) -> Tensor:
    return x.exp() / x.exp().sum(dim=-1, keepdim=True)


def _warmed_in_place(logits: Tensor, temperature: float, top_k: int | None) -> Tensor:
    _, divisor, k = _limit(logits, temperature, top_k)
    logits /= divisor
    return torch.softmax(_filtered(logits, k), dim=-1)


def _too_many(logits: Tensor, temperature: float, top_k: int | None) -> Tensor:
    logits, temperature, k = _limit(logits, temperature, None if temperature == 0 else top_k)
    if top_k is not None and top_k > logits.shape[-1]:
        return logits.topk(top_k).values  # raises, as whoever does not look gets it
    return torch.softmax(_filtered(logits, 1 if temperature == 0 else k) / temperature, dim=-1)


def _by_ranks(logits: Tensor, temperature: float, top_k: int | None) -> Tensor:
    ranks = logits.argsort(dim=-1, descending=True).argsort(dim=-1)
    p = torch.softmax(logits / max(temperature, 1e-6), dim=-1)
    p = torch.where(ranks < (top_k or logits.shape[1]), p, torch.zeros_like(p))
    return p / p.sum(dim=-1, keepdim=True)


def _by_rows(logits: Tensor, temperature: float, top_k: int | None) -> Any:
    rows = []
    for row in logits:
        out = torch.zeros_like(row)
        if temperature == 0:
            out[row.argmax()] = 1
        else:
            best = row.sort(descending=True).indices[:top_k]
            out[best] = (row[best] / temperature).softmax(0)
        rows.append(out)
    return torch.stack(rows)


def _scattered(logits: Tensor, temperature: float, top_k: int | None) -> Tensor:
    if not temperature:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits)
    kept = (logits / temperature).topk(min(top_k or len(logits[0]), len(logits[0])))
    return torch.full_like(logits, -torch.inf).scatter(-1, kept.indices, kept.values).softmax(-1)


NEXT_TOKEN = Exercise(
    id="11.7",
    title="Temperature and top-k",
    answer="course_lib.exercises.u11.next_token_probabilities",
    minutes=12,
    outcomes=("11-c",),
    checks=(Check("temperature", 2), Check("top-k", 2), Check("both"), Check("temperature 0")),
    cases=_probability_cases,
    hints=(
        "Three things in a row: who is out, the division by the temperature, the softmax. Temperature 0 is a case of its "
        "own, as nothing can be divided by 0.",
        "A token that is out has the logit −∞: softmax turns that into a probability of exactly 0, and the others share "
        "the rest. The smallest logit that stays is the last of logits.topk(k).values.",
        "logits.masked_fill(logits < smallest, -math.inf), with smallest of shape (B, 1). For temperature 0 keep one token, "
        "at temperature 1. min(top_k, C) where top_k is too large.",
    ),
    misconceptions=(
        Misconception(
            "multiplied",
            _drawn(warm=lambda x, t: x * t),
            "You multiplied by the temperature. A high one should make the choice more even: divide.",
            DRAW,
        ),
        Misconception(
            "no temperature",
            _drawn(warm=lambda x, t: x),
            "The temperature is not used: divide the logits by it.",
            DRAW,
        ),
        Misconception(
            "probabilities divided",
            _after_the_softmax,
            "You divided the probabilities: they no longer add up to 1, and in proportion nothing has changed. Divide the "
            "logits, before the softmax.",
            DRAW,
        ),
        Misconception(
            "softmax twice",
            _softmax_twice,
            "There are two softmaxes. The temperature divides logits, not probabilities.",
            DRAW,
        ),
        Misconception(
            "the root",
            _drawn(warm=lambda x, t: x / math.sqrt(t)),
            "You divided by the root of the temperature. (The root belongs to d_k.)",
            DRAW,
        ),
        Misconception(
            "zero for −∞",
            _drawn(keep=lambda x, k: _filtered(x, k, 0.0)),
            "You set the logits of the others to 0: e⁰ = 1 is a fair chance. Only −∞ becomes a probability of 0.",
            DRAW,
        ),
        Misconception(
            "not shared out again",
            _zeroed_probabilities,
            "The right tokens are kept, but the rows do not add up to 1: cut before the softmax, or divide by the sum.",
            DRAW,
        ),
        Misconception(
            "top-k not used",
            _drawn(keep=lambda x, k: _filtered(x, 1) if k == 1 else x),
            "top_k is not used: all tokens keep a chance.",
            DRAW,
        ),
        Misconception(
            "the smallest",
            _drawn(keep=lambda x, k: x.masked_fill(x > (-x).topk(k, dim=-1).values[:, -1:] * -1, -math.inf)),
            "You kept the least probable tokens. topk gives the largest; sort ascends unless told.",
            DRAW,
        ),
        Misconception(
            "one too few",
            _drawn(keep=_strictly_above),
            "One token too few is kept: the smallest of the top_k belongs to them. Cut what is < it, not ≤.",
            DRAW,
        ),
        Misconception(
            "one too many",
            _drawn(keep=_top_k_at_least_two, cold=lambda x, k: next_token_probabilities(x, 0, k)),
            "One token too many is kept: look at the last of the top_k, not at the one after it.",
            DRAW,
        ),
        Misconception(
            "of all texts together",
            _drawn(keep=_of_all_texts, cold=lambda x, k: next_token_probabilities(x, 0, k)),
            "You took the top_k of the whole batch. Each text has its own: topk along the last axis.",
            DRAW,
        ),
        Misconception(
            "softmax over the texts",
            _drawn(share=lambda x: torch.softmax(x, dim=0)),
            "Softmax ran over the texts of the batch. The choice is among the tokens, the last axis.",
            DRAW,
        ),
        Misconception(
            "in the order of size",
            _in_order,
            "The probabilities are right, and in the wrong places: sorted. They must stay where their tokens are.",
            DRAW,
        ),
        Misconception(
            "log-probabilities",
            _drawn(share=lambda x: torch.log_softmax(x, dim=-1)),
            "These are logarithms of the probabilities.",
            DRAW,
        ),
        Misconception(
            "exp overflows",
            _drawn(share=_naive),
            "exp of a large number is infinity, and infinity by infinity is NaN. softmax takes the maximum out first "
            "(unit 05).",
            DRAW,
        ),
        Misconception(
            "divided by 0",
            _drawn(cold=lambda x, k: torch.softmax(_filtered(x, k or x.shape[-1]) / 0, dim=-1)),
            "At temperature 0 you divide by 0. It is the limit: the most probable token, with probability 1.",
            DRAW,
        ),
        Misconception(
            "0 means no temperature",
            _drawn(cold=lambda x, k: torch.softmax(_filtered(x, k or x.shape[-1]), dim=-1)),
            "At temperature 0 you left the temperature out, which is temperature 1. The smaller, the sharper: at 0 the best "
            "token takes all.",
            DRAW,
        ),
        Misconception(
            "top_k larger than C",
            _too_many,
            "top_k may be larger than the number of tokens, and topk then complains: take min(top_k, C).",
            DRAW,
        ),
        Misconception(
            "the logits changed",
            _warmed_in_place,
            "The result is right, but the logits themselves were changed: write logits = logits / …, not /=.",
            DRAW,
        ),
    ),
    alternatives=(
        _by_ranks,
        _by_rows,
        _scattered,
        lambda logits, temperature, top_k: torch.softmax(
            _filtered(logits, 1 if temperature == 0 else min(top_k or 10**6, logits.shape[-1]))
            / max(temperature, 1e-4),
            dim=-1,
        ),
    ),
    forbidden=("filter_logits", "drawer", "sample"),
)


# --- 11.8 ---------------------------------------------------------------------------------------------------


class Published(dict[str, Tensor]):
    """Weights by name; two are equal when all their tensors are."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and self.keys() == other.keys() and all(torch.equal(self[n], other[n]) for n in self)  # fmt: skip

    __hash__ = None  # type: ignore[assignment]


def gpt2_block(x: Tensor, weights: dict[str, Tensor], heads: int) -> Tensor:
    """One block of the published GPT-2, from its published weights: x + attention(norm(x)), then x + mlp(norm(x)).

    x is (B, T, D). weights maps these names to tensors; every matrix is (in, out), made for x @ W + b:
      ln_1.weight, ln_1.bias                the norm before the attention (D; ε = 1e-5)
      attn.c_attn.weight, attn.c_attn.bias  D → 3D: queries, keys, values side by side; each has the heads side by side
      attn.c_proj.weight, attn.c_proj.bias  D → D, behind the merged heads
      ln_2.weight, ln_2.bias                the norm before the feed-forward network
      mlp.c_fc.weight, mlp.c_fc.bias        D → 4D, followed by GELU in its tanh form
      mlp.c_proj.weight, mlp.c_proj.bias    4D → D
    The attention is causal, scaled by the root of the head width. Return (B, T, D).
    """

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"])

    parts = linear(norm(x, "ln_1"), "attn.c_attn").chunk(3, dim=-1)
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + linear(mixed.transpose(1, 2).flatten(2), "attn.c_proj")
    hidden = F.gelu(linear(norm(x, "ln_2"), "mlp.c_fc"), approximate="tanh")
    return x + linear(hidden, "mlp.c_proj")


def _block_cases(draw: Draw) -> list[Case]:
    def case(check: str, batch: int, length: int, d: int, heads: int, note: str = "") -> Case:
        sizes = {"ln_1": (d,), "attn.c_attn": (d, 3 * d), "attn.c_proj": (d, d)}
        sizes |= {"ln_2": (d,), "mlp.c_fc": (d, 4 * d), "mlp.c_proj": (4 * d, d)}
        weights = Published()
        for name, size in sizes.items():
            weights[f"{name}.weight"] = draw.tensor(*size, size=0.5) + (len(size) == 1)
            weights[f"{name}.bias"] = draw.tensor(size[-1], size=0.5)
        return Case(check, (draw.tensor(batch, length, d), weights, heads), note, gradient=True)

    return [
        case("one token", 1, 1, 4, 2, "one token: attention hands its value on"),
        case("one head", 2, 3, 4, 1),
        case("several heads", 2, 4, 6, 3),
        case("several heads", 3, 5, 8, 2),
    ]


def _gpt2(x: Tensor, weights: Any, heads: int, **change: Any) -> Tensor:
    """gpt2_block with one thing changed."""

    def linear(y: Tensor, name: str) -> Tensor:
        w, b = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return y @ (w.T if change.get("turned") == name else w) + b

    def norm(y: Tensor, name: str) -> Tensor:
        if change.get("no_norm") == name:
            return y
        gain, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        if change.get("bare"):
            gain = bias = None
        return F.layer_norm(y, y.shape[-1:], gain, bias)

    batch, length, d = x.shape
    made = linear(norm(x, "ln_1"), "attn.c_attn")
    if change.get("heads_first"):
        q, k, v = made.view(batch, length, heads, 3, -1).permute(3, 0, 2, 1, 4)
    else:
        split = change.get("split") or (lambda part: part.unflatten(-1, (heads, -1)).transpose(1, 2))
        q, k, v = (split(part) for part in made.chunk(3, dim=-1))
    q, k, v = ((q, k, v)[i] for i in change.get("order", (0, 1, 2)))
    causal, scale = change.get("causal", True), change.get("scale", lambda k, d: k**-0.5)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale(q.shape[-1], d))
    merge = change.get("merge") or (lambda y: y.transpose(1, 2).flatten(2))
    made = linear(merge(mixed), "attn.c_proj")
    before = x
    x = made if change.get("lost") == 1 else x + made
    if change.get("around_normed"):
        x = norm(before, "ln_1") + made
    reads = before if change.get("side_by_side") else x
    hidden = change.get("act", lambda y: F.gelu(y, approximate="tanh"))(
        linear(norm(reads, change.get("second", "ln_2")), "mlp.c_fc")
    )
    made = linear(hidden, "mlp.c_proj")
    return made if change.get("lost") == 2 else x + made


def _other(**change: Any) -> Any:
    return lambda x, weights, heads: _gpt2(x, weights, heads, **change)


def _interleaved(x: Tensor, weights: Any, heads: int) -> Tensor:
    def split(part: Tensor) -> Tensor:
        return part.unflatten(-1, (-1, heads)).permute(0, 3, 1, 2)

    return _gpt2(x, weights, heads, split=split, merge=lambda y: y.permute(0, 2, 3, 1).flatten(2))


def _viewed(x: Tensor, weights: Any, heads: int) -> Tensor:
    def split(part: Tensor) -> Tensor:
        return part.reshape(part.shape[0], heads, part.shape[1], -1)

    return _gpt2(x, weights, heads, split=split)


def _not_turned_back(x: Tensor, weights: Any, heads: int) -> Tensor:
    return _gpt2(x, weights, heads, merge=lambda y: y.reshape(x.shape))


def _as_linear(x: Tensor, weights: Any, heads: int) -> Tensor:
    made = F.linear(F.layer_norm(x, x.shape[-1:]), weights["attn.c_attn.weight"], weights["attn.c_attn.bias"])
    return made


def _post(x: Tensor, weights: Any, heads: int) -> Tensor:
    def norm(y: Tensor, name: str) -> Tensor:
        return F.layer_norm(y, y.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"])

    bare = Published({name: tensor for name, tensor in weights.items()})
    x = norm(_gpt2(x, bare, heads, no_norm="ln_1", act=lambda y: 0 * y) - weights["mlp.c_proj.bias"], "ln_1")
    hidden = F.gelu(x @ weights["mlp.c_fc.weight"] + weights["mlp.c_fc.bias"], approximate="tanh")
    return norm(x + hidden @ weights["mlp.c_proj.weight"] + weights["mlp.c_proj.bias"], "ln_2")


def _all_by_hand(x: Tensor, weights: Any, heads: int) -> Tensor:
    def norm(y: Tensor, name: str) -> Tensor:
        mean, var = y.mean(-1, keepdim=True), y.var(-1, keepdim=True, unbiased=False)
        return (y - mean) / (var + 1e-5).sqrt() * weights[name + ".weight"] + weights[name + ".bias"]

    _, length, d = x.shape
    w = d // heads
    made = norm(x, "ln_1") @ weights["attn.c_attn.weight"] + weights["attn.c_attn.bias"]
    outs = []
    for h in range(heads):
        q, k, v = (made[..., i * d + h * w : i * d + (h + 1) * w] for i in range(3))
        scores = torch.einsum("btk,bsk->bts", q, k) / w**0.5
        scores = scores.masked_fill(torch.ones(length, length).triu(1) == 1, -1e9)
        outs.append(scores.softmax(-1) @ v)
    x = x + torch.cat(outs, -1) @ weights["attn.c_proj.weight"] + weights["attn.c_proj.bias"]
    y = norm(x, "ln_2") @ weights["mlp.c_fc.weight"] + weights["mlp.c_fc.bias"]
    y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
    return x + y @ weights["mlp.c_proj.weight"] + weights["mlp.c_proj.bias"]


def _with_linear(x: Tensor, weights: Any, heads: int) -> Tensor:
    def linear(y: Tensor, name: str) -> Tensor:
        return F.linear(y, weights[name + ".weight"].T, weights[name + ".bias"])

    batch, length, d = x.shape
    gelu = nn.GELU("tanh")
    y = F.layer_norm(x, (d,), weights["ln_1.weight"], weights["ln_1.bias"])
    q, k, v = linear(y, "attn.c_attn").view(batch, length, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
    scores = q @ k.mT / math.sqrt(d // heads) + torch.full((length, length), -math.inf, dtype=x.dtype).triu(1)
    y = (scores.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(batch, length, d)
    x = x + linear(y, "attn.c_proj")
    y = F.layer_norm(x, (d,), weights["ln_2.weight"], weights["ln_2.bias"])
    return x + linear(gelu(linear(y, "mlp.c_fc")), "mlp.c_proj")


GPT2_BLOCK = Exercise(
    id="11.8",
    title="A block of the published GPT-2",
    answer="course_lib.exercises.u11.gpt2_block",
    minutes=20,
    outcomes=("11-d",),
    checks=(Check("one token"), Check("one head", 2), Check("several heads", 2)),
    cases=_block_cases,
    hints=(
        "Write two small helpers first, one for a matrix with its bias, one for a norm: both take x and a name. "
        "F.layer_norm(x, x.shape[-1:], gain, bias) is the norm.",
        "The result of c_attn has 3D columns: chunk(3, dim=-1) gives queries, keys, values. Then split each into heads as in "
        "unit 06, attend causally, merge, c_proj, and add x.",
        "F.scaled_dot_product_attention(q, k, v, is_causal=True) is allowed here, with q, k, v of (B, H, T, D/H). The second "
        'half is norm, c_fc, F.gelu(…, approximate="tanh"), c_proj, and x once more.',
    ),
    misconceptions=(
        Misconception(
            "a square matrix turned",
            _other(turned="attn.c_proj"),
            "attn.c_proj.weight is turned round. It is square, so nothing complains; but like the others it is (in, out), "
            "made for x @ W.",
            PUBLISHED,
        ),
        Misconception(
            "as in nn.Linear",
            _as_linear,
            "These matrices are (in, out), and F.linear (or nn.Linear) wants (out, in): write x @ W + b, or turn them with .T.",
            PUBLISHED,
        ),
        Misconception(
            "another order",
            _other(order=(1, 0, 2)),
            "You took keys for queries. Side by side stand queries, keys, values, in this order.",
            PUBLISHED,
        ),
        Misconception(
            "heads first",
            _other(heads_first=True),
            "You split into heads first, and each head into three. It is the other way round: three blocks of D columns, "
            "and in each the heads.",
            PUBLISHED,
        ),
        Misconception(
            "every H-th column",
            _interleaved,
            "A head is a block of neighbouring columns, not every H-th one: (heads, width), in this order.",
            PUBLISHED,
        ),
        Misconception(
            "heads cut out of the tokens",
            _viewed,
            "view(B, H, T, …) cuts across the tokens. Split the columns into (heads, width) first, then move the heads in "
            "front (unit 06).",
            PUBLISHED,
        ),
        Misconception(
            "merged without turning back",
            _not_turned_back,
            "The heads are merged without moving them back behind the tokens: transpose first, then flatten (unit 06).",
            PUBLISHED,
        ),
        Misconception(
            "one head",
            lambda x, weights, heads: _gpt2(x, weights, 1),
            "heads is not used: this is one wide head.",
            PUBLISHED,
        ),
        Misconception(
            "sees the future",
            _other(causal=False),
            "The attention is not causal: each token reads those after it.",
            SELF,
        ),
        Misconception(
            "scaled by the root of D",
            _other(scale=lambda k, d: d**-0.5),
            "The scale is the root of the head width D / H, not of D.",
            PUBLISHED,
        ),
        Misconception(
            "not scaled",
            _other(scale=lambda k, d: 1.0),
            "The scores are not divided by the root of the head width.",
            PUBLISHED,
        ),
        Misconception(
            "the exact GELU",
            _other(act=F.gelu),
            'Nearly right: this is the exact GELU, and GPT-2 was trained with the tanh form. approximate="tanh".',
            PUBLISHED,
        ),
        Misconception(
            "ReLU",
            _other(act=F.relu),
            "GPT-2 uses GELU (in its tanh form), not ReLU.",
            PUBLISHED,
        ),
        Misconception(
            "post-norm",
            _post,
            "This is post-norm, norm(x + f(x)). GPT-2 is pre-norm: x + f(norm(x)).",
            PUBLISHED,
        ),
        Misconception(
            "norm without gain and bias",
            _other(bare=True),
            "The norms have a weight (gain) and a bias of their own: use them.",
            PUBLISHED,
        ),
        Misconception(
            "ln_1 twice",
            _other(second="ln_1"),
            "The second half reads through ln_1. Its norm is ln_2.",
            PUBLISHED,
        ),
        Misconception(
            "no way around the attention",
            _other(lost=1),
            "There is no way around the attention: x + …",
            PUBLISHED,
        ),
        Misconception(
            "no way around the mlp",
            _other(lost=2),
            "There is no way around the feed-forward network: x + …",
            PUBLISHED,
        ),
        Misconception(
            "a way around from the normed x",
            _other(around_normed=True),
            "The way around the attention starts behind the norm. It should carry x itself.",
            PUBLISHED,
        ),
        Misconception(
            "side by side",
            _other(side_by_side=True),
            "The feed-forward network reads the old x. It should read what the attention has made of it.",
            PUBLISHED,
        ),
    ),
    alternatives=(_all_by_hand, _with_linear, _other()),
    forbidden=("EncoderBlock", "MultiheadAttention", "TransformerEncoderLayer", "GPT2Block"),
)

EXERCISES = (
    CACHE_COUNTS,
    LANGUAGE_MODEL,
    MERGE_PAIR,
    CACHED_ATTENTION,
    CONTINUE_TEXT,
    TEMPERATURE_BY_HAND,
    NEXT_TOKEN,
    GPT2_BLOCK,
)
