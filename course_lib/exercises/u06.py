"""Unit 06, multi-head attention: first NumPy arrays, then torch's weights and a torch module."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..by_hand import softmax
from .declare import Case, Check, Draw, Exercise, Misconception

Array = np.ndarray

KEEP = ("06", "Heads keep the questions apart")
COLUMNS = ("06", "A head is a block of columns")
SPLIT = ("06", "Splitting is a reshape and a swap")
SEPARATE = ("06", "All heads at once are separate attentions")
MIX = ("06", "One more matrix mixes the heads")
COST = ("06", "Eight heads cost as much as one")
TORCH = ("06", "torch computes the same numbers")
TRAINED = ("06", "The heads of a trained model look at different words")
MISLEAD = ("06", "A sharp head need not matter")
ROLES = ("04", "One vector plays three roles")
ROWS = ("04", "Softmax runs along each row")
SUM = ("04", "The output is a weighted sum of values")
PAIRS = ("04", "All pairs are one matrix product")
CROSS = ("04", "Queries may come from another sequence")
PADDING = ("02", "Padded words are masked before the softmax")

NOT_OURS = ("scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward")


# --- 06.1 ---------------------------------------------------------------------------------------------------


def shapes_of_heads() -> Any:
    """Four shapes, worked out without a computer: two sentences of ten words, width 512, eight heads.

    1. the queries of both sentences, split into heads;   2. the scores of both sentences, in all heads;
    3. the output of one head, for one sentence;          4. the outputs of all heads merged, for both sentences.
    Return a list of four tuples. The batch comes first, as everywhere in the course.
    """
    return [(2, 8, 10, 64), (2, 8, 10, 10), (10, 64), (2, 10, 512)]


SHAPES = Exercise(
    id="06.1",
    title="Four shapes by hand",
    answer="course_lib.exercises.u06.shapes_of_heads",
    minutes=4,
    outcomes=("06-a",),
    checks=(Check("the four shapes", 2),),
    cases=lambda draw: [Case("the four shapes")],
    hints=(
        "Eight heads share a width of 512. How wide is one of them?",
        "Batch, heads, tokens, width: heads stand before the tokens, so that each head compares tokens with tokens.",
        "A head is 512 / 8 = 64 wide. A score belongs to a head, a query and a key. Merged, heads lie side by side again.",
    ),
    misconceptions=(
        Misconception(
            "one vector for a head",
            lambda: [(2, 8, 10, 64), (2, 8, 10, 10), (64,), (2, 10, 512)],
            "The third is one vector for a whole sentence in yours. Each of the ten words has its own output in every head.",
            SEPARATE,
        ),
        Misconception(
            "both sentences",
            lambda: [(2, 8, 10, 64), (2, 8, 10, 10), (2, 10, 64), (2, 10, 512)],
            "Nearly: the third is asked for one sentence, and yours is that of both.",
            SEPARATE,
        ),
        Misconception(
            "a batch of one",
            lambda: [(2, 8, 10, 64), (2, 8, 10, 10), (1, 10, 64), (2, 10, 512)],
            "Nearly: the third is one head's output for one sentence, without an axis for the batch.",
            SEPARATE,
        ),
        Misconception(
            "heads of full width",
            lambda: [(2, 8, 10, 512), (2, 8, 10, 10), (10, 512), (2, 10, 4096)],
            "Your heads have the full width each. Eight heads share the width: 512 / 8 = 64 columns for each.",
            COLUMNS,
        ),
        Misconception(
            "heads behind the tokens",
            lambda: [(2, 10, 8, 64), (2, 8, 10, 10), (10, 64), (2, 10, 512)],
            "(2, 10, 8, 64) is half of the way: the heads must change places with the tokens before anything is compared.",
            SPLIT,
        ),
        Misconception(
            "words compared with heads",
            lambda: [(2, 10, 8, 64), (2, 10, 8, 8), (10, 64), (2, 10, 512)],
            "Your heads stand behind the tokens, and then heads are compared with heads, word by word. Swap the two axes.",
            SPLIT,
        ),
        Misconception(
            "one table for all heads",
            lambda: [(2, 8, 10, 64), (2, 10, 10), (10, 64), (2, 10, 512)],
            "Your scores have no axis for the heads. Each head has its own table of scores: that is what heads are for.",
            KEEP,
        ),
        Misconception(
            "scores as wide as a head",
            lambda: [(2, 8, 10, 64), (2, 8, 10, 64), (10, 64), (2, 10, 512)],
            "A score belongs to a pair of words, so a head has 10 × 10 of them; its width 64 disappears in the dot product.",
            SEPARATE,
        ),
        Misconception(
            "heads before the batch",
            lambda: [(8, 2, 10, 64), (8, 2, 10, 10), (10, 64), (2, 10, 512)],
            "The batch comes first, then the heads: the first two shapes begin with 2, 8.",
            SPLIT,
        ),
        Misconception(
            "columns compared with columns",
            lambda: [(2, 8, 10, 64), (2, 8, 64, 64), (10, 64), (2, 10, 512)],
            "Your scores compare columns with columns. A score belongs to a pair of words, so a head has 10 × 10 of them.",
            SEPARATE,
        ),
        Misconception(
            "all heads for one",
            lambda: [(2, 8, 10, 64), (2, 8, 10, 10), (8, 10, 64), (2, 10, 512)],
            "Nearly: the third is asked for one head, and yours is that of all eight.",
            SEPARATE,
        ),
        Misconception(
            "not merged",
            lambda: [(2, 8, 10, 64), (2, 8, 10, 10), (10, 64), (2, 8, 10, 64)],
            "The fourth still has an axis for the heads. Merged, the eight blocks of 64 columns lie side by side again.",
            SPLIT,
        ),
        Misconception(
            "batch and heads in one axis",
            lambda: [(16, 10, 64), (16, 10, 10), (10, 64), (2, 10, 512)],
            "You made one axis of batch and heads. Some programs do so; here they are two axes, 2 and 8.",
            SPLIT,
        ),
        Misconception(
            "heads added up",
            lambda: [(2, 8, 10, 64), (2, 8, 10, 10), (10, 64), (2, 10, 64)],
            "Merging puts the heads side by side: eight times 64 columns are 512 again. You added them up.",
            SPLIT,
        ),
    ),
    prediction=True,
)


# --- 06.2 ---------------------------------------------------------------------------------------------------


def split_heads(x: Array, heads: int) -> Array:
    """Cut the columns of every token into blocks, one for each head, without a loop.

    x is (B, T, D), and heads divides D. Head 0 takes the first D / heads columns, head 1 the next ones, and so on.
    Return an array (B, heads, T, D / heads).
    """
    B, T, D = x.shape
    return x.reshape(B, T, heads, D // heads).swapaxes(1, 2)


def _split_cases(draw: Draw) -> list[Case]:
    def case(check: str, b: int, t: int, heads: int, width: int, note: str = "") -> Case:
        return Case(check, (draw(b, t, heads * width), heads), note)

    return [
        case("one sentence, two heads", 1, 3, 2, 2),
        case("any sizes", 2, 3, 4, 5),
        case("any sizes", 3, 4, 2, 6, "wider heads"),
        case("the two ends", 2, 4, 1, 3, "a single head"),
        case("the two ends", 2, 3, 5, 1, "as many heads as columns"),
    ]


SPLIT_HEADS = Exercise(
    id="06.2",
    title="Split into heads",
    answer="course_lib.exercises.u06.split_heads",
    minutes=8,
    outcomes=("06-a",),
    checks=(Check("one sentence, two heads", 2), Check("any sizes"), Check("the two ends")),
    cases=_split_cases,
    hints=(
        "First give each block of columns an axis of its own. Nothing moves in memory while you do that.",
        "x.reshape(B, T, heads, width) is x with its last axis cut in two. Which two axes are now in the wrong order?",
        "Swap tokens and heads: .swapaxes(1, 2), or .transpose(0, 2, 1, 3).",
    ),
    misconceptions=(
        Misconception(
            "no swap",
            lambda x, heads: x.reshape(len(x), heads, x.shape[1], -1),
            "The shape is right, and the numbers went elsewhere: a reshape to (B, H, T, K) cuts the sentence, not the columns. "
            "Reshape to (B, T, H, K), then swap the axes of tokens and heads.",
            SPLIT,
        ),
        Misconception(
            "half of the way",
            lambda x, heads: x.reshape(*x.shape[:2], heads, -1),
            "The columns are cut as they should be: (B, T, H, K). Now swap tokens and heads, so that heads stand first.",
            SPLIT,
        ),
        Misconception(
            "columns dealt like cards",
            lambda x, heads: x.reshape(*x.shape[:2], -1, heads).transpose(0, 3, 1, 2),
            "Your heads take every H-th column. A head is a block of columns that stand next to each other.",
            COLUMNS,
        ),
        Misconception(
            "number and width mixed up",
            lambda x, heads: x.reshape(*x.shape[:2], -1, heads).swapaxes(1, 2),
            "You made blocks of `heads` columns each. `heads` is the number of blocks; a block is D / heads columns wide.",
            COLUMNS,
        ),
        Misconception(
            "wrong axes swapped",
            lambda x, heads: x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 3),
            "You swapped tokens and columns. Tokens and heads change places; a token's numbers stay last.",
            SPLIT,
        ),
        Misconception(
            "blocks on their side",
            lambda x, heads: x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 3, 1),
            "In your heads tokens are columns. They are rows everywhere in this course: (B, H, T, K).",
            SPLIT,
        ),
        Misconception(
            "heads before the batch",
            lambda x, heads: np.stack(np.split(x, heads, axis=-1)),
            "The blocks are right, and the heads stand before the batch: (H, B, T, K). The batch comes first.",
            SPLIT,
        ),
        Misconception(
            "whole input for each",
            lambda x, heads: np.repeat(x[:, None], heads, axis=1),
            "Every head got all columns. Heads share the width: each gets D / heads columns of its own.",
            COLUMNS,
        ),
        Misconception(
            "tokens cut",
            lambda x, heads: x.reshape(len(x), heads, -1, x.shape[2]),
            "You cut the sentence into pieces. Every head sees all tokens, and of each token a block of columns.",
            COLUMNS,
        ),
        Misconception(
            "last head first",
            lambda x, heads: x.reshape(*x.shape[:2], heads, -1)[:, :, ::-1].swapaxes(1, 2),
            "The heads come in the opposite order. Head 0 has the first columns.",
            SPLIT,
        ),
        Misconception(
            "starts at h",
            lambda x, heads: np.stack([x[..., h : h + x.shape[2] // heads] for h in range(heads)], axis=1),
            "Your block of head h starts at column h, so blocks overlap. Those before it are D / heads wide: start at h · D / heads.",
            COLUMNS,
        ),
        Misconception(
            "heads last",
            lambda x, heads: np.stack(np.split(x, heads, axis=-1), axis=-1),
            "The blocks are right, and your new axis stands last: (B, T, K, H). The heads stand second: (B, H, T, K).",
            SPLIT,
        ),
        Misconception(
            "cut like a long ribbon",
            lambda x, heads: x.reshape(len(x), heads, -1, x.shape[1]).swapaxes(2, 3),
            "A reshape to (B, H, K, T) reads on over the ends of the tokens and mixes them. Cut the last axis only: "
            "(B, T, H, K), then swap tokens and heads.",
            SPLIT,
        ),
        Misconception(
            "one head only",
            lambda x, heads: np.split(x, heads, axis=-1)[0],
            "Only the first block is left. All of them are wanted, on an axis of their own: (B, H, T, K).",
            SPLIT,
        ),
        Misconception(
            "batch flattened",
            lambda x, heads: (
                x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2).reshape(-1, x.shape[1], x.shape[2] // heads)
            ),
            "Batch and heads became one axis. That is fine inside a program, but here four axes are asked for: (B, H, T, K).",
            SPLIT,
        ),
    ),
    alternatives=(
        lambda x, heads: np.stack(np.split(x, heads, axis=-1), axis=1),
        lambda x, heads: np.moveaxis(x.reshape(*x.shape[:-1], heads, -1), -2, 1),
        lambda x, heads: np.einsum("bthk->bhtk", x.reshape(*x.shape[:2], heads, x.shape[2] // heads)),
        lambda x, heads: np.array(
            [[row[:, h * (x.shape[2] // heads) : (h + 1) * (x.shape[2] // heads)] for h in range(heads)] for row in x]
        ),
        lambda x, heads: np.array([[[t.reshape(heads, -1)[h] for t in row] for h in range(heads)] for row in x]),
    ),
)


# --- 06.3 ---------------------------------------------------------------------------------------------------


def merge_heads(x: Array) -> Array:
    """Put the heads side by side again: what undoes split_heads, without a loop.

    x is (B, H, T, K). Return an array (B, T, H·K): of each token first the K numbers of head 0, then those of head 1 …
    """
    B, H, T, K = x.shape
    return x.swapaxes(1, 2).reshape(B, T, H * K)


def _merge_cases(draw: Draw) -> list[Case]:
    return [
        Case("one sentence, two heads", (draw(1, 2, 3, 2),)),
        Case("any sizes", (draw(2, 4, 3, 5),)),
        Case("any sizes", (draw(3, 2, 5, 4),), "fewer heads"),
        Case("the two ends", (draw(2, 1, 4, 3),), "a single head"),
        Case("the two ends", (draw(2, 5, 3, 1),), "heads of width 1"),
    ]


MERGE_HEADS = Exercise(
    id="06.3",
    title="Merge the heads",
    answer="course_lib.exercises.u06.merge_heads",
    minutes=6,
    outcomes=("06-a",),
    checks=(Check("one sentence, two heads", 2), Check("any sizes"), Check("the two ends")),
    cases=_merge_cases,
    hints=(
        "Undo split_heads: its steps backwards, in the opposite order.",
        "A reshape glues axes that stand next to each other. Which two are to be glued, and do they?",
        "First swap heads and tokens, (B, T, H, K); then reshape the last two axes into one.",
    ),
    misconceptions=(
        Misconception(
            "no swap back",
            lambda x: x.reshape(len(x), x.shape[2], -1),
            "The shape is right, and a token now holds numbers of other tokens. Swap heads and tokens before the reshape.",
            SPLIT,
        ),
        Misconception(
            "number by number",
            lambda x: x.transpose(0, 2, 3, 1).reshape(len(x), x.shape[2], -1),
            "Your heads are dealt like cards: the first number of each head, then the second. Head 0 comes whole, then head 1.",
            SPLIT,
        ),
        Misconception(
            "half of the way",
            lambda x: x.swapaxes(1, 2),
            "Tokens and heads changed places, as they should. Now make one axis of the last two: (B, T, H·K).",
            SPLIT,
        ),
        Misconception(
            "heads added up",
            lambda x: x.sum(axis=1),
            "You added the heads up, and what came from which head is lost. They stand side by side.",
            MIX,
        ),
        Misconception(
            "heads averaged",
            lambda x: x.mean(axis=1),
            "You averaged the heads, and what came from which head is lost. They stand side by side.",
            MIX,
        ),
        Misconception(
            "below each other",
            lambda x: x.reshape(len(x), -1, x.shape[3]),
            "Your heads stand below each other: H·T tokens of width K. Side by side they are T tokens of width H·K.",
            SPLIT,
        ),
        Misconception(
            "last head first",
            lambda x: x[:, ::-1].swapaxes(1, 2).reshape(len(x), x.shape[2], -1),
            "The heads come in the opposite order. Head 0 stands on the left.",
            SPLIT,
        ),
        Misconception(
            "one head only",
            lambda x: x[:, 0],
            "Only the first head is left. All of them stand side by side: H·K columns.",
            SPLIT,
        ),
        Misconception(
            "wrong axes swapped",
            lambda x: x.swapaxes(1, 3).reshape(len(x), x.shape[2], -1),
            "You swapped heads and columns. Heads and tokens change places before the reshape: swapaxes(1, 2).",
            SPLIT,
        ),
        Misconception(
            "batch flattened",
            lambda x: x.swapaxes(1, 2).reshape(-1, x.shape[1] * x.shape[3]),
            "The tokens are right, and those of all sentences became one list. Keep the batch: (B, T, H·K).",
            SPLIT,
        ),
        Misconception(
            "two heads, always",
            lambda x: np.concatenate([x[:, 0], x[:, 1]], axis=-1),
            "You merged two heads. There are x.shape[1] of them, however many that is.",
            SPLIT,
        ),
        Misconception(
            "on its side",
            lambda x: x.swapaxes(2, 3).reshape(len(x), -1, x.shape[2]),
            "The numbers are right, and tokens became columns: swap the last two axes.",
            SPLIT,
        ),
    ),
    alternatives=(
        lambda x: np.concatenate(list(x.swapaxes(0, 1)), axis=-1),
        lambda x: np.concatenate([x[:, h] for h in range(x.shape[1])], axis=2),
        lambda x: np.einsum("bhtk->bthk", x).reshape(x.shape[0], x.shape[2], -1),
        lambda x: np.array([[np.ravel(row[:, t]) for t in range(x.shape[2])] for row in x]),
        lambda x: np.array([np.hstack(list(row)) for row in x]),
    ),
)


# --- 06.4 ---------------------------------------------------------------------------------------------------


def one_head(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int, h: int) -> Array:
    """The output of head h alone, an attention of its own: h counts from 0, and there are `heads` of them.

    x is (T, D); w_q, w_k and w_v are (D, D). Scores are divided by the root of the head's width, as in unit 05.
    Return an array (T, D / heads). `softmax` is imported above.
    """
    width = w_q.shape[1] // heads
    block = slice(h * width, (h + 1) * width)
    q, k, v = x @ w_q[:, block], x @ w_k[:, block], x @ w_v[:, block]
    weights = softmax(q @ k.T / np.sqrt(width))
    return weights @ v


def _head_cases(draw: Draw) -> list[Case]:
    def case(check: str, t: int, heads: int, width: int, h: int, note: str = "") -> Case:
        d = heads * width
        return Case(check, (draw(t, d), *(draw(d, d) for _ in range(3)), heads, h), note)

    return [
        case("the first of two heads", 3, 2, 2, 0),
        case("any head", 5, 2, 3, 1, "the last of two"),
        case("any head", 4, 3, 5, 1, "in the middle"),
        case("any head", 2, 4, 3, 3),
        case("a single head", 4, 1, 5, 0, "its block is the whole matrix"),
    ]


def _of_head(scale: Any = None, axis: int = -1, pick: Any = None) -> Any:
    """one_head with another scale, another softmax axis, or another choice of columns."""

    def made(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int, h: int) -> Array:
        width = w_q.shape[1] // heads
        columns = pick(w_q.shape[1], heads, h) if pick else slice(h * width, (h + 1) * width)
        q, k, v = (x @ w[:, columns] for w in (w_q, w_k, w_v))
        by = np.sqrt(q.shape[1]) if scale is None else scale(width, heads)
        return softmax(q @ k.T / by, axis=axis) @ v

    return made


def _block(w: Array, heads: int, h: int) -> Array:
    return np.split(w, heads, axis=1)[h]


def _rows_of_input(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int, h: int) -> Array:
    part = _block(x, heads, h)
    q, k, v = (part @ np.split(w, heads, axis=0)[h] for w in (w_q, w_k, w_v))
    return softmax(q @ k.T / np.sqrt(part.shape[1])) @ v


def _input_cut(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int, h: int) -> Array:
    part = _block(x, heads, h)
    q, k, v = (part @ _block(np.split(w, heads, axis=0)[h], heads, h) for w in (w_q, w_k, w_v))
    return softmax(q @ k.T / np.sqrt(part.shape[1])) @ v


def _weights_of_all(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int, h: int) -> Array:
    return softmax(x @ w_q @ (x @ w_k).T / np.sqrt(x.shape[1] // heads)) @ x @ _block(w_v, heads, h)


def _head_with(values: Any) -> Any:
    """Right weights, other values."""

    def made(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int, h: int) -> Array:
        q, k = x @ _block(w_q, heads, h), x @ _block(w_k, heads, h)
        return softmax(q @ k.T / np.sqrt(q.shape[1])) @ values(x, w_k, w_v, heads, h)

    return made


def _head_einsum(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int, h: int) -> Array:
    d = w_q.shape[1] // heads
    q, k, v = (np.einsum("td,dhk->htk", x, w.reshape(len(w), heads, d))[h] for w in (w_q, w_k, w_v))
    return np.einsum("ts,sk->tk", softmax(np.einsum("tk,sk->ts", q, k) * d**-0.5), v)


def _head_loops(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int, h: int) -> Any:
    d = len(x[0]) // heads
    q, k, v = ((x @ w)[:, h * d : h * d + d] for w in (w_q, w_k, w_v))
    out = []
    for row in q:
        a = softmax([row @ key / math.sqrt(d) for key in k])
        out.append(sum(a[j] * v[j] for j in range(len(v))))
    return out


def _head_sliced(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int, h: int) -> Array:
    q, k, v = (np.split(x @ w, heads, axis=-1)[h] for w in (w_q, w_k, w_v))
    return softmax(q / q.shape[1] ** 0.5 @ k.T) @ v


ONE_HEAD = Exercise(
    id="06.4",
    title="One head alone",
    answer="course_lib.exercises.u06.one_head",
    minutes=10,
    outcomes=("06-b",),
    checks=(Check("the first of two heads", 2), Check("any head", 2), Check("a single head")),
    cases=_head_cases,
    hints=(
        "A head is attention as in units 04 and 05, with smaller matrices. Which part of w_q belongs to head h?",
        "A block of columns: w_q[:, h * width : (h + 1) * width] with width = D // heads. The same for w_k and w_v.",
        "q, k, v are x times these blocks, each (T, width). Then softmax(q @ k.T / np.sqrt(width)) @ v.",
    ),
    misconceptions=(
        Misconception(
            "blocks of rows",
            _rows_of_input,
            "You took a block of rows: rows belong to the input's numbers, so your head sees a part of each token and its "
            "output has the full width. A head is a block of columns.",
            COLUMNS,
        ),
        Misconception(
            "input cut",
            _input_cut,
            "Your head sees only a part of each token. Every head reads all D numbers of the input: only the columns of the "
            "matrices are shared out.",
            COLUMNS,
        ),
        Misconception(
            "one column",
            _of_head(pick=lambda d, heads, h: slice(h, h + 1)),
            "You took a single column. A head is a block of D / heads columns.",
            COLUMNS,
        ),
        Misconception(
            "columns dealt like cards",
            _of_head(pick=lambda d, heads, h: slice(h, None, heads)),
            "Your head takes every H-th column. A head is a block of columns that stand next to each other.",
            COLUMNS,
        ),
        Misconception(
            "counted from the other end",
            _of_head(pick=lambda d, heads, h: slice((heads - 1 - h) * (d // heads), (heads - h) * (d // heads))),
            "The blocks are counted from the right in yours. Head 0 has the first columns.",
            COLUMNS,
        ),
        Misconception(
            "counted from one",
            _of_head(
                pick=lambda d, heads, h: slice(((h - 1) % heads) * (d // heads), ((h - 1) % heads + 1) * (d // heads))
            ),
            "You took the block before: h counts from 0, so head 0 has the first columns.",
            COLUMNS,
        ),
        Misconception(
            "matrices transposed",
            lambda x, w_q, w_k, w_v, heads, h: one_head(x, w_q.T, w_k.T, w_v.T, heads, h),
            "Your matrices are transposed. Tokens are rows, so it is x @ w, and a head is a block of the columns of w.",
            COLUMNS,
        ),
        Misconception(
            "scale of the number of heads",
            _of_head(scale=lambda width, heads: np.sqrt(heads)),
            "You divided by the root of the number of heads. It is the root of a head's width, D / heads.",
            SEPARATE,
        ),
        Misconception(
            "starts at h",
            _of_head(pick=lambda d, heads, h: slice(h, h + d // heads)),
            "Your block starts at column h. The blocks before it are `width` columns wide: it starts at h · width.",
            COLUMNS,
        ),
        Misconception(
            "scale of the whole width",
            _of_head(scale=lambda width, heads: np.sqrt(width * heads)),
            "You divided by √D. The dot product has as many terms as the head is wide: √(D / heads).",
            SEPARATE,
        ),
        Misconception(
            "no scale",
            _of_head(scale=lambda width, heads: 1.0),
            "The scores are not divided by the root of the head's width: unit 05 says why they should be.",
            SEPARATE,
        ),
        Misconception(
            "width without its root",
            _of_head(scale=lambda width, heads: width),
            "You divided by the head's width. It is its square root.",
            SEPARATE,
        ),
        Misconception(
            "over the queries",
            _of_head(axis=0),
            "These weights sum to 1 over the queries, not over the keys: softmax must run along each row.",
            ROWS,
        ),
        Misconception(
            "weights of all columns",
            _weights_of_all,
            "The scores use all columns of Q and K, so all heads would look at the same words. A head compares with its own "
            "columns only.",
            KEEP,
        ),
        Misconception(
            "values of full width",
            _head_with(lambda x, w_k, w_v, heads, h: x @ w_v),
            "Your head hands out values of the full width. Its values are its own block of columns, too: (T, D / heads).",
            COLUMNS,
        ),
        Misconception(
            "values not projected",
            _head_with(lambda x, w_k, w_v, heads, h: _block(x, heads, h)),
            "The values are columns of the bare input here. What is handed out is projected: x W_v, this head's columns.",
            ROLES,
        ),
        Misconception(
            "keys summed",
            _head_with(lambda x, w_k, w_v, heads, h: x @ _block(w_k, heads, h)),
            "You multiplied the weights with the keys. Keys are for finding; what is handed out are the values.",
            SUM,
        ),
        Misconception(
            "one vector for the sentence",
            lambda *args: one_head(*args).sum(axis=0),
            "You added up all tokens: one vector for the sentence. A head has an output for every token, (T, D / heads).",
            SEPARATE,
        ),
        Misconception(
            "roles swapped",
            lambda x, w_q, w_k, w_v, heads, h: one_head(x, w_k, w_q, w_v, heads, h),
            "You computed k qᵀ, or turned the scores round, so the keys ask. Rows of the scores belong to queries: q kᵀ.",
            PAIRS,
        ),
        Misconception(
            "queries twice",
            lambda x, w_q, w_k, w_v, heads, h: one_head(x, w_q, w_q, w_v, heads, h),
            "Queries are compared with queries here. The keys have a matrix of their own: x @ w_k, this head's columns.",
            ROLES,
        ),
        Misconception(
            "scaled after the softmax",
            lambda x, w_q, w_k, w_v, heads, h: (
                _of_head(scale=lambda width, heads: 1.0)(x, w_q, w_k, w_v, heads, h) / np.sqrt(w_q.shape[1] // heads)
            ),
            "You divided after the softmax, so the weights no longer sum to 1. The scores are divided, then comes the softmax.",
            SEPARATE,
        ),
        Misconception(
            "multiplied by the root",
            _of_head(scale=lambda width, heads: width**-0.5),
            "You multiplied by the root of the head's width. Dividing by it keeps the scores from growing.",
            SEPARATE,
        ),
        Misconception(
            "scale of the number of tokens",
            lambda x, w_q, w_k, w_v, heads, h: _of_head(scale=lambda width, heads: np.sqrt(len(x)))(
                x, w_q, w_k, w_v, heads, h
            ),
            "You divided by the root of the number of tokens. What counts is how many terms a dot product has: the head's width.",
            SEPARATE,
        ),
        Misconception(
            "number and width mixed up",
            _of_head(
                pick=lambda d, heads, h: slice(h * heads, (h + 1) * heads), scale=lambda width, heads: np.sqrt(heads)
            ),
            "Your block has `heads` columns. `heads` is the number of blocks; a block is D / heads columns wide.",
            COLUMNS,
        ),
        Misconception(
            "one column short",
            _of_head(
                pick=lambda d, heads, h: slice(h * (d // heads), (h + 1) * (d // heads) - 1),
                scale=lambda width, heads: np.sqrt(width),
            ),
            "A column is missing at the end of your block. A slice stops before its end: h · width up to (h + 1) · width.",
            COLUMNS,
        ),
        Misconception(
            "rows that do not fit",
            lambda x, w_q, w_k, w_v, heads, h: (
                x @ np.split(w_q, heads)[h] if heads > 1 else one_head(x, w_q, w_k, w_v, 1, 0)
            ),
            "You cut rows of the matrices, and then the tokens do not fit any more. A head is a block of columns: w_q[:, …].",
            COLUMNS,
        ),
        Misconception(
            "weights instead of the output",
            lambda x, w_q, w_k, w_v, heads, h: softmax(
                x @ _block(w_q, heads, h) @ (x @ _block(w_k, heads, h)).T / np.sqrt(x.shape[1] // heads)
            ),
            "These are the weights of the head, (T, T). Its output is their weighted sum of values: weights @ v.",
            SUM,
        ),
        Misconception(
            "softmax left out",
            lambda x, w_q, w_k, w_v, heads, h: (
                (x @ _block(w_q, heads, h))
                @ (x @ _block(w_k, heads, h)).T
                / np.sqrt(x.shape[1] // heads)
                @ (x @ _block(w_v, heads, h))
            ),
            "You weighted the values with bare scores. Softmax turns scores into weights: positive, and 1 in sum.",
            ROWS,
        ),
    ),
    alternatives=(
        _head_einsum,
        _head_loops,
        _head_sliced,
    ),
)


# --- 06.5 ---------------------------------------------------------------------------------------------------


def multi_head(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    """All heads at once, for a batch of sentences, and the matrix that mixes them: [Y_1 … Y_H] W_O.

    x is (B, T, D); the four matrices are (D, D). You may call your split_heads and merge_heads from above.
    Return an array (B, T, D).
    """
    q, k, v = (split_heads(x @ w, heads) for w in (w_q, w_k, w_v))
    weights = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return merge_heads(weights @ v) @ w_o


def _multi_cases(draw: Draw) -> list[Case]:
    def case(check: str, b: int, t: int, heads: int, width: int, note: str = "", size: float = 1.0) -> Case:
        d = heads * width
        return Case(check, (draw(b, t, d, size=size), *(draw(d, d) for _ in range(4)), heads), note)

    return [
        case("one sentence, two heads", 1, 3, 2, 2),
        case("a batch, any sizes", 2, 3, 4, 5),
        case("a batch, any sizes", 3, 4, 2, 5, "fewer heads"),
        case("a batch, any sizes", 2, 4, 4, 2, "as many heads as tokens"),
        case("a single head", 2, 3, 1, 4),
        case("large scores", 2, 5, 3, 2, "scores in the thousands", 40.0),
    ]


def _wrong_multi(**swap: Any) -> Any:
    """multi_head with one of its parts exchanged."""
    split, merge = swap.get("split", split_heads), swap.get("merge", merge_heads)
    scale, weigh = swap.get("scale", lambda q, d: 1 / np.sqrt(q.shape[-1])), swap.get("weigh", softmax)
    last = swap.get("last", lambda y, w_o: y @ w_o)

    def made(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
        q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
        if "roles" in swap:
            q, k, v = swap["roles"](q, k, v, x, heads)
        scores = q @ k.swapaxes(-1, -2) * scale(q, x.shape[-1])
        return last(merge(weigh(scores) @ v), w_o)

    return made


def _unsafe_softmax(scores: Array) -> Array:
    with np.errstate(all="ignore"):
        exps = np.exp(scores)
        return exps / exps.sum(axis=-1, keepdims=True)


def _parts_of_input(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    def project(w: Array) -> Array:
        parts = zip(np.split(x, heads, -1), np.split(w, heads, 0), range(heads), strict=True)
        return np.stack([p @ np.split(rows, heads, 1)[h] for p, rows, h in parts], axis=1)

    q, k, v = project(w_q), project(w_k), project(w_v)
    return merge_heads(softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v) @ w_o


def _sum_of_heads(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    rows = np.split(w_o, heads, axis=0)
    return np.array([sum(one_head(s, w_q, w_k, w_v, heads, h) @ rows[h] for h in range(heads)) for s in x])


def _multi_einsum(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    d = x.shape[-1]
    q, k, v = (np.einsum("btd,dhk->bhtk", x, w.reshape(d, heads, d // heads)) for w in (w_q, w_k, w_v))
    a = softmax(np.einsum("bhtk,bhsk->bhts", q, k) / (d // heads) ** 0.5)
    return np.einsum("bhts,bhsk,hkd->btd", a, v, w_o.reshape(heads, d // heads, d))


def _multi_concat(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    return np.stack([np.hstack([one_head(s, w_q, w_k, w_v, heads, h) for h in range(heads)]) for s in x]) @ w_o


MULTI_HEAD = Exercise(
    id="06.5",
    title="All heads at once",
    answer="course_lib.exercises.u06.multi_head",
    minutes=12,
    outcomes=("06-b",),
    checks=(
        Check("one sentence, two heads", 2),
        Check("a batch, any sizes", 2),
        Check("a single head"),
        Check("large scores"),
    ),
    cases=_multi_cases,
    hints=(
        "Project first, split afterwards: x @ w_q is (B, T, D), and split_heads makes (B, H, T, D / H) of it.",
        "With q and k of shape (B, H, T, K), q @ k.swapaxes(-1, -2) has all scores of all heads, (B, H, T, T).",
        "softmax(scores / np.sqrt(K)) @ v is (B, H, T, K). Merge the heads, and multiply with w_o at the very end.",
    ),
    misconceptions=(
        Misconception(
            "not mixed",
            _wrong_multi(last=lambda y, w_o: y),
            "W_O is not used: the heads lie side by side and never meet. The last matrix mixes them.",
            MIX,
        ),
        Misconception(
            "last matrix transposed",
            _wrong_multi(last=lambda y, w_o: y @ w_o.T),
            "W_O is transposed. Tokens are rows and stand on the left: merged @ w_o.",
            MIX,
        ),
        Misconception(
            "scale of the whole width",
            _wrong_multi(scale=lambda q, d: d**-0.5),
            "You divided by √D. Each head's dot product has D / H terms: the scale is √(D / H).",
            SEPARATE,
        ),
        Misconception(
            "no scale",
            _wrong_multi(scale=lambda q, d: 1.0),
            "The scores are not divided by the root of the head's width: unit 05 says why they should be.",
            SEPARATE,
        ),
        Misconception(
            "width without its root",
            _wrong_multi(scale=lambda q, d: 1 / q.shape[-1]),
            "You divided by the head's width, or twice by its root. Once by the root is enough.",
            SEPARATE,
        ),
        Misconception(
            "scale of the number of heads",
            _wrong_multi(scale=lambda q, d: (q.shape[-1] / d) ** 0.5),
            "You divided by the root of the number of heads. It is the root of a head's width, D / H.",
            SEPARATE,
        ),
        Misconception(
            "matrices transposed",
            lambda x, w_q, w_k, w_v, w_o, heads: multi_head(x, w_q.T, w_k.T, w_v.T, w_o.T, heads),
            "Your matrices are transposed. Tokens are rows in this course: x @ w, as it stands.",
            COLUMNS,
        ),
        Misconception(
            "all axes turned round",
            lambda x, w_q, w_k, w_v, w_o, heads: (
                merge_heads(
                    softmax(split_heads(x @ w_q, heads) @ split_heads(x @ w_k, heads).T / np.sqrt(x.shape[-1] // heads))
                    @ split_heads(x @ w_v, heads)
                )
                @ w_o
            ),
            "k.T turns round all four axes, batch and heads included. Swap the last two only: k.swapaxes(-1, -2).",
            SEPARATE,
        ),
        Misconception(
            "input added",
            lambda x, w_q, w_k, w_v, w_o, heads: x + multi_head(x, w_q, w_k, w_v, w_o, heads),
            "You added the input to the output. That is a residual connection, and it comes in unit 09, around this function.",
            MIX,
        ),
        Misconception(
            "over the heads",
            _wrong_multi(weigh=lambda s: softmax(s, axis=1)),
            "Your softmax runs over the heads, so that heads compete for a pair of words. It runs over the keys, the last axis.",
            SEPARATE,
        ),
        Misconception(
            "over the queries",
            _wrong_multi(weigh=lambda s: softmax(s, axis=-2)),
            "These weights sum to 1 over the queries, not over the keys: softmax runs along the last axis.",
            ROWS,
        ),
        Misconception(
            "over everything",
            _wrong_multi(weigh=lambda s: softmax(s.reshape(len(s), -1)).reshape(s.shape)),
            "All weights of a sentence together sum to 1 here. Each query has a softmax of its own, in every head.",
            ROWS,
        ),
        Misconception(
            "split without a swap",
            _wrong_multi(split=lambda y, h: y.reshape(len(y), h, y.shape[1], -1)),
            "A reshape straight to (B, H, T, K) cuts the sentence, not the columns: reshape to (B, T, H, K), then swap.",
            SPLIT,
        ),
        Misconception(
            "heads behind the tokens",
            _wrong_multi(
                split=lambda y, h: y.reshape(*y.shape[:2], h, -1), merge=lambda y: y.reshape(*y.shape[:2], -1)
            ),
            "Your heads stand behind the tokens, so each word compares its own heads with each other, and no word sees another. "
            "Swap tokens and heads.",
            SPLIT,
        ),
        Misconception(
            "merge without a swap",
            _wrong_multi(merge=lambda y: y.reshape(len(y), y.shape[2], -1)),
            "Merged without swapping back: a token now holds numbers of other tokens. Heads and tokens first change places.",
            SPLIT,
        ),
        Misconception(
            "columns dealt like cards",
            _wrong_multi(
                split=lambda y, h: y.reshape(*y.shape[:2], -1, h).transpose(0, 3, 1, 2),
                merge=lambda y: y.transpose(0, 2, 3, 1).reshape(len(y), y.shape[2], -1),
            ),
            "Your heads take every H-th column. With given matrices it matters which columns belong together: blocks.",
            COLUMNS,
        ),
        Misconception(
            "input cut",
            _parts_of_input,
            "You split x before the projection, so each head sees a part of every token. Project first, then split.",
            COLUMNS,
        ),
        Misconception(
            "one head whatever is asked",
            lambda x, w_q, w_k, w_v, w_o, heads: multi_head(x, w_q, w_k, w_v, w_o, 1),
            "This is one head of full width: the number of heads has no effect.",
            KEEP,
        ),
        Misconception(
            "scaled after the softmax",
            _wrong_multi(scale=lambda q, d: 1.0, roles=lambda q, k, v, x, heads: (q, k, v / np.sqrt(q.shape[-1]))),
            "You divided after the softmax, so the weights no longer sum to 1. The scores are divided, then comes the softmax.",
            SEPARATE,
        ),
        Misconception(
            "multiplied by the root",
            _wrong_multi(scale=lambda q, d: q.shape[-1] ** 0.5),
            "You multiplied by the root of the head's width. Dividing by it keeps the scores from growing.",
            SEPARATE,
        ),
        Misconception(
            "scale of the number of tokens",
            _wrong_multi(scale=lambda q, d: q.shape[-2] ** -0.5),
            "You divided by the root of the number of tokens. What counts is how many terms a dot product has: D / H.",
            SEPARATE,
        ),
        Misconception(
            "heads averaged",
            _wrong_multi(merge=lambda y: np.tile(y.mean(axis=1), (1, 1, y.shape[1]))),
            "You averaged the heads before the last matrix, so that what each of them found is lost. They stand side by side.",
            MIX,
        ),
        Misconception(
            "weights averaged",
            _wrong_multi(weigh=lambda s: softmax(s).mean(axis=1, keepdims=True)),
            "You averaged the weights of the heads: all of them look at the same words. Each keeps its own weights.",
            KEEP,
        ),
        Misconception(
            "mixed too early",
            lambda x, w_q, w_k, w_v, w_o, heads: multi_head(x, w_q, w_k, w_v @ w_o, np.eye(len(w_o)), heads),
            "W_O was multiplied before the heads did their work. It mixes what they found: merge first, then @ w_o.",
            MIX,
        ),
        Misconception(
            "queries twice",
            lambda x, w_q, w_k, w_v, w_o, heads: multi_head(x, w_q, w_q, w_v, w_o, heads),
            "Queries are compared with queries here. The keys have a matrix of their own: x @ w_k.",
            ROLES,
        ),
        Misconception(
            "scores added up",
            _wrong_multi(weigh=lambda s: softmax(np.broadcast_to(s.sum(axis=1, keepdims=True), s.shape))),
            "You added the scores of the heads before the softmax: all heads look at the same words. Each keeps its own.",
            KEEP,
        ),
        Misconception(
            "roles swapped",
            _wrong_multi(roles=lambda q, k, v, x, heads: (k, q, v)),
            "You computed k qᵀ, so the keys ask. Rows of the scores belong to queries: q kᵀ.",
            PAIRS,
        ),
        Misconception(
            "keys summed",
            _wrong_multi(roles=lambda q, k, v, x, heads: (q, k, k)),
            "You multiplied the weights with the keys. Keys are for finding; what is handed out are the values.",
            SUM,
        ),
        Misconception(
            "values not projected",
            _wrong_multi(roles=lambda q, k, v, x, heads: (q, k, split_heads(x, heads))),
            "The values are the bare input. What is handed out is projected too: x W_v, split into heads.",
            ROLES,
        ),
        Misconception(
            "overflow",
            _wrong_multi(weigh=_unsafe_softmax),
            "exp of a large score is infinity, and infinity / infinity is NaN. (With one maximum for all rows, a whole row "
            "becomes 0, and 0 / 0 is NaN too.) Subtract from each row its own maximum first.",
            ROWS,
        ),
    ),
    alternatives=(_sum_of_heads, _multi_einsum, _multi_concat),
)


# --- 06.6 ---------------------------------------------------------------------------------------------------


def price_of_heads() -> Any:
    """Six numbers for T = 10 tokens of width D = 512; no biases. A: eight heads of width 64. B: one head of width 512.

    1. parameters of W_q, W_k, W_v and W_O together, A     2. the same, B
    3. multiplications for all scores Q Kᵀ, A              4. the same, B
    5. attention weights to keep for one sentence, A       6. the same, B
    Return them as a list. You may write 4 * 512**2 and the like.
    """
    return [4 * 512**2, 4 * 512**2, 10 * 10 * 512, 10 * 10 * 512, 8 * 10 * 10, 10 * 10]


PRICE = Exercise(
    id="06.6",
    title="What eight heads cost",
    answer="course_lib.exercises.u06.price_of_heads",
    minutes=6,
    outcomes=("06-c",),
    checks=(Check("the six numbers", 2),),
    cases=lambda draw: [Case("the six numbers")],
    hints=(
        "A head of A has a block of 64 columns of each of W_q, W_k, W_v. How many columns have eight of them?",
        "One score of A takes 64 multiplications, one of B takes 512. How many scores are there in each?",
        "Four matrices of 512 × 512, whatever the heads. Scores: 8 × 100 of 64 terms, or 100 of 512. Weights: one per score.",
    ),
    misconceptions=(
        Misconception(
            "eight times everything",
            lambda: [4 * 512**2 * 8, 4 * 512**2, 8 * 51_200, 51_200, 800, 100],
            "You gave each head the full width. Eight heads share the 512 columns: 64 for each.",
            COST,
        ),
        Misconception(
            "last matrix forgotten",
            lambda: [3 * 512**2, 3 * 512**2, 51_200, 51_200, 800, 100],
            "W_O is missing: four matrices have parameters, with one head or with eight.",
            COST,
        ),
        Misconception(
            "last matrix in A only",
            lambda: [4 * 512**2, 3 * 512**2, 51_200, 51_200, 800, 100],
            "The question gives B its W_O too. Compare like with like: then the parameters are the same.",
            COST,
        ),
        Misconception(
            "one head of eight",
            lambda: [4 * 512**2, 4 * 512**2, 6_400, 51_200, 100, 100],
            "For the scores and weights you counted one head of A. There are eight of them.",
            COST,
        ),
        Misconception(
            "scores cheaper",
            lambda: [4 * 512**2, 4 * 512**2, 6_400, 51_200, 800, 100],
            "The scores of A: a head's take 100 × 64 multiplications, and there are eight heads.",
            COST,
        ),
        Misconception(
            "scores dearer",
            lambda: [4 * 512**2, 4 * 512**2, 8 * 51_200, 51_200, 800, 100],
            "The scores of A are shorter: each is a dot product of 64 numbers, not of 512.",
            COST,
        ),
        Misconception(
            "additions too",
            lambda: [4 * 512**2, 4 * 512**2, 102_400, 102_400, 800, 100],
            "You counted additions as well, as many papers do. Here only multiplications are asked for: half of it.",
            COST,
        ),
        Misconception(
            "parameters of one head",
            lambda: [4 * 512 * 64, 4 * 512**2, 51_200, 51_200, 800, 100],
            "For the parameters of A you counted one head of 64 columns. There are eight, and together they have 512.",
            COST,
        ),
        Misconception(
            "narrow last matrix",
            lambda: [3 * 512**2 + 512 * 64, 4 * 512**2, 51_200, 51_200, 800, 100],
            "W_O of A is too small in yours: it meets all eight heads side by side, so it has 512 rows, and 512 columns.",
            COST,
        ),
        Misconception(
            "one matrix of four",
            lambda: [512**2, 512**2, 51_200, 51_200, 800, 100],
            "You counted one matrix. There are four of that size: W_q, W_k, W_v and W_O.",
            COST,
        ),
        Misconception(
            "one query of ten",
            lambda: [4 * 512**2, 4 * 512**2, 10 * 512, 10 * 512, 80, 10],
            "Your scores and weights are those of one query. Each of the ten tokens asks: 10 × 10 pairs.",
            COST,
        ),
        Misconception(
            "weights the same",
            lambda: [4 * 512**2, 4 * 512**2, 51_200, 51_200, 100, 100],
            "The weights are what does grow: each head has a table of 10 × 10 of its own.",
            COST,
        ),
    ),
    prediction=True,
)


# --- 06.7 ---------------------------------------------------------------------------------------------------


def from_torch(in_proj_weight: Tensor, out_proj_weight: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The matrices of this course from those of torch.nn.MultiheadAttention.

    in_proj_weight is (3·D, D): queries, keys, values below each other. out_proj_weight is (D, D). torch multiplies
    with the transpose, x @ w.T. Return four tensors (D, D), w_q, w_k, w_v and w_o, for x @ w with tokens as rows.
    """
    w_q, w_k, w_v = in_proj_weight.chunk(3, dim=0)
    return w_q.T, w_k.T, w_v.T, out_proj_weight.T


def _torch_cases(draw: Draw) -> list[Case]:
    return [
        Case("a small layer", (draw.tensor(6, 2), draw.tensor(2, 2))),
        Case("a wider layer", (draw.tensor(12, 4), draw.tensor(4, 4))),
        Case("a wider layer", (draw.tensor(18, 6), draw.tensor(6, 6)), "six can be cut into three the wrong way, too"),
    ]


def _cut_in(weight: Tensor, out: Tensor, places: tuple[int, int, int]) -> tuple[Tensor, ...]:
    parts = weight.chunk(3)
    return (*(parts[i].T for i in places), out.T)


FROM_TORCH = Exercise(
    id="06.7",
    title="Matrices from torch",
    answer="course_lib.exercises.u06.from_torch",
    minutes=6,
    outcomes=("06-d",),
    checks=(Check("a small layer"), Check("a wider layer", 2)),
    cases=_torch_cases,
    hints=(
        "Which axis of a (3·D, D) matrix has three parts?",
        "in_proj_weight.chunk(3) gives three (D, D) tensors: for queries, keys, values. torch computes x @ part.T with each.",
        "So each of our matrices is the transpose of torch's: w_q = part.T, and the same for out_proj_weight.",
    ),
    misconceptions=(
        Misconception(
            "not transposed",
            lambda i, o: (*i.chunk(3), o),
            "torch stores its matrices for x @ w.T. With x @ w they have to be transposed, all four.",
            TORCH,
        ),
        Misconception(
            "last one not transposed",
            lambda i, o: (*_cut_in(i, o, (0, 1, 2))[:3], o),
            "Three are right. out_proj_weight is stored like the others, for x @ w.T: transpose it, too.",
            TORCH,
        ),
        Misconception(
            "only the last one transposed",
            lambda i, o: (*i.chunk(3), o.T),
            "w_o is right. The three parts of in_proj_weight are stored for x @ w.T as well: transpose them, too.",
            TORCH,
        ),
        Misconception(
            "keys first",
            lambda i, o: _cut_in(i, o, (1, 0, 2)),
            "Queries and keys are swapped: torch has queries first, then keys, then values.",
            TORCH,
        ),
        Misconception(
            "values first",
            lambda i, o: _cut_in(i, o, (2, 1, 0)),
            "Your parts are in the opposite order: torch has queries first, then keys, then values.",
            TORCH,
        ),
        Misconception(
            "every third row",
            lambda i, o: (i[0::3].T, i[1::3].T, i[2::3].T, o.T),
            "You dealt the rows like cards. The first D rows make the queries, the next D the keys, the last D the values.",
            TORCH,
        ),
        Misconception(
            "reshaped instead of transposed",
            lambda i, o: (*i.reshape(len(o), -1).chunk(3, dim=1), o.T),
            "A reshape to (D, 3·D) has the shape of the transpose, and other numbers in other places. Use .T.",
            TORCH,
        ),
        Misconception(
            "reshaped after the transpose",
            lambda i, o: (*i.T.reshape(3, len(o), len(o)), o.T),
            "After .T the three parts stand side by side, and a reshape to (3, D, D) cuts through all of them. "
            "Cut first, then transpose each part.",
            TORCH,
        ),
        Misconception(
            "cut along the wrong axis",
            lambda i, o: (*i.T.chunk(3, dim=0), o.T),
            "You transposed first, so the three parts stand side by side, and cut from top to bottom. Cut along dim=1.",
            TORCH,
        ),
        Misconception(
            "one for all three",
            lambda i, o: (i.T, o.T),
            "Queries, keys and values are still in one matrix: return four tensors of (D, D).",
            TORCH,
        ),
        Misconception(
            "last one left out",
            lambda i, o: _cut_in(i, o, (0, 1, 2))[:3],
            "Three are right, and the fourth is missing: w_o, which mixes the heads.",
            MIX,
        ),
    ),
    alternatives=(
        lambda i, o: (*i.T.chunk(3, dim=1), o.T),
        lambda i, o: [part.T.contiguous() for part in (*i.split(len(o)), o)],
        lambda i, o: (*i.unflatten(0, (3, -1)).mT, o.t()),
        lambda i, o: tuple(w.transpose(0, 1) for w in (i[: len(o)], i[len(o) : 2 * len(o)], i[2 * len(o) :], o)),
        lambda i, o: tuple(part.numpy().T for part in (*i.chunk(3), o)),
    ),
)


# --- 06.8 ---------------------------------------------------------------------------------------------------


class MultiHead(nn.Module):
    """Multi-head attention as a module of torch, for sentences that read themselves or others.

    Its parameters are four layers nn.Linear(d_model, d_model), with biases: w_q, w_k, w_v and w_o.
    """

    def __init__(self, d_model: int, heads: int):
        """Make the four layers, and remember the number of heads."""
        super().__init__()
        self.heads = heads
        self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_v, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """The tokens of x (B, T, D) read memory (B, S, D), or x itself where memory is None.

        mask is (B, T, S), True where a query may read a key, the same for every head; None: everything may be read.
        Return a tensor (B, T, D).
        """
        memory = x if memory is None else memory
        layers = ((self.w_q, x), (self.w_k, memory), (self.w_v, memory))
        q, k, v = (layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer, y in layers)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -math.inf)
        y = torch.softmax(scores, dim=-1) @ v
        return self.w_o(y.transpose(1, 2).flatten(2))


def _module_cases(draw: Draw) -> list[Case]:
    def case(
        check: str, b: int, t: int, heads: int, width: int, s: int = 0, masked: bool = False, note: str = ""
    ) -> Case:
        d = heads * width
        weights: dict[str, Array] = {}
        for name in ("w_q", "w_k", "w_v", "w_o"):
            weights |= {f"{name}.weight": draw(d, d), f"{name}.bias": draw(d)}
        mask = torch.from_numpy(draw.mask(b, t, s or t)) if masked else None
        args = (draw.tensor(b, t, d), draw.tensor(b, s, d) if s else None, mask)
        return Case(check, args[: 3 if masked else 2 if s else 1], note, (d, heads), weights, gradient=True)

    return [
        case("self-attention", 1, 3, 2, 2),
        case("self-attention", 2, 3, 4, 5, note="a batch"),
        case("self-attention", 3, 4, 4, 2, note="as many heads as tokens"),
        case("reading another sequence", 2, 3, 2, 3, s=3, note="of the same length"),
        case("reading another sequence", 2, 4, 3, 2, s=5, note="of another length"),
        case("a mask", 2, 4, 2, 3, masked=True, note="as many sentences as heads"),
        case("a mask", 3, 4, 2, 3, s=5, masked=True),
    ]


def _module(forward: Any) -> type[MultiHead]:
    """MultiHead with another forward."""
    return type("MultiHead", (MultiHead,), {"forward": forward})


def _cut(y: Tensor, heads: int) -> Tensor:
    return y.unflatten(-1, (heads, -1)).transpose(1, 2)


def _glue(y: Tensor) -> Tensor:
    return y.transpose(1, 2).flatten(2)


def _hide(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores if mask is None else scores.masked_fill(~mask[:, None], -math.inf)


def _weigh(scores: Tensor, mask: Tensor | None, dim: int = -1) -> Tensor:
    """Masked softmax along any axis, without NaN where nothing is left."""
    return torch.softmax(_hide(scores, mask).clamp(min=-1e30), dim)


def _parts(**swap: Any) -> type[MultiHead]:
    """MultiHead with one of its steps exchanged."""
    cut, glue, weigh = swap.get("cut", _cut), swap.get("glue", _glue), swap.get("weigh", _weigh)
    scale, sources = swap.get("scale", lambda q, d: q.shape[-1] ** -0.5), swap.get("sources", lambda x, m: (x, m, m))
    last = swap.get("last", lambda self, y: self.w_o(y))

    def forward(self: Any, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        asks, found, handed = sources(x, x if memory is None else memory)
        q, k, v = cut(self.w_q(asks), self.heads), cut(self.w_k(found), self.heads), cut(self.w_v(handed), self.heads)
        if "roles" in swap:
            q, k, v = swap["roles"](q, k, v)
        return last(self, glue(weigh(q @ k.mT * scale(q, x.shape[-1]), mask) @ v))

    return _module(forward)


def _masked_after(scores: Tensor, mask: Tensor | None) -> Tensor:
    weights = torch.softmax(scores, dim=-1)
    return weights if mask is None else weights * mask[:, None]


def _renormalised(scores: Tensor, mask: Tensor | None) -> Tensor:
    weights = _masked_after(scores, mask)
    return weights / weights.sum(dim=-1, keepdim=True)


def _zero_scores(scores: Tensor, mask: Tensor | None) -> Tensor:
    return torch.softmax(scores if mask is None else scores.masked_fill(~mask[:, None], 0.0), dim=-1)


def _no_head_axis(scores: Tensor, mask: Tensor | None) -> Tensor:
    return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -math.inf), dim=-1)


def _masks_repeated(scores: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return torch.softmax(scores, dim=-1)
    repeated = mask.repeat(scores.shape[1], 1, 1).reshape(scores.shape)
    return torch.softmax(scores.masked_fill(~repeated, -math.inf), dim=-1)


class _NoBiases(MultiHead):
    def __init__(self, d_model: int, heads: int):
        super().__init__(d_model, heads)
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=False))


class _Narrow(nn.Module):
    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_model // heads) for _ in range(3))
        self.w_o = nn.Linear(d_model, d_model)


class _PlainList(nn.Module):
    """Layers in a list, which torch does not look into."""

    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.heads, self.layers = heads, [nn.Linear(d_model, d_model) for _ in range(4)]


class _OneMatrix(nn.Module):
    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.heads, self.w_qkv, self.w_o = heads, nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)


class _NoSuper(nn.Module):
    def __init__(self, d_model: int, heads: int):
        self.w_q = nn.Linear(d_model, d_model)


class _HeadByHead(nn.Module):
    """Another right way: loops over the heads, and the mask by the lowest number."""

    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.h, self.k = heads, d_model // heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Any, memory: Any = None, mask: Any = None) -> Any:
        source = x if memory is None else memory
        out = []
        for h in range(self.h):
            c = slice(h * self.k, (h + 1) * self.k)
            q, k, v = self.w_q(x)[..., c], self.w_k(source)[..., c], self.w_v(source)[..., c]
            s = torch.einsum("btk,bsk->bts", q, k) / self.k**0.5
            if mask is not None:
                s = torch.where(mask, s, torch.tensor(-1e9, dtype=s.dtype))
            out.append(s.softmax(-1) @ v)
        return self.w_o(torch.cat(out, dim=-1))


def _einsums(self: Any, x: Any, memory: Any = None, mask: Any = None) -> Any:
    memory = x if memory is None else memory
    B, T, D = x.shape
    q = self.w_q(x).view(B, T, self.heads, -1)
    k, v = (w(memory).view(B, memory.shape[1], self.heads, -1) for w in (self.w_k, self.w_v))
    scores = torch.einsum("bthk,bshk->bhts", q, k) * (D // self.heads) ** -0.5
    if mask is not None:
        scores = scores + torch.zeros_like(scores).masked_fill(mask.logical_not().unsqueeze(1), float("-inf"))
    return self.w_o(torch.einsum("bhts,bshk->bthk", scores.softmax(-1), v).reshape(B, T, D))


MULTI_HEAD_MODULE = Exercise(
    id="06.8",
    title="A module of torch",
    answer="course_lib.exercises.u06.MultiHead",
    minutes=20,
    outcomes=("06-b", "06-d"),
    checks=(Check("self-attention", 3), Check("reading another sequence", 2), Check("a mask", 2)),
    cases=_module_cases,
    hints=(
        "Begin with self-attention: it is your multi_head, with layers in place of matrices. torch has .mT for the last two axes.",
        "self.w_q(x) is (B, T, D). Split: .unflatten(-1, (heads, -1)).transpose(1, 2). Merge: .transpose(1, 2).flatten(2). "
        "With a memory only the queries come from x.",
        "The scores are (B, H, T, S), the mask is (B, T, S): mask[:, None] gives it an axis for the heads. "
        "scores.masked_fill(~mask[:, None], -math.inf) before the softmax.",
    ),
    misconceptions=(
        Misconception(
            "split without a swap",
            _parts(cut=lambda y, h: y.reshape(len(y), h, y.shape[1], -1)),
            "A view straight to (B, H, T, K) cuts the sentence, not the columns: (B, T, H, K) first, then transpose(1, 2).",
            SPLIT,
        ),
        Misconception(
            "merge without a swap",
            _parts(glue=lambda y: y.reshape(len(y), y.shape[2], -1)),
            "Merged without swapping back: a token now holds numbers of other tokens. transpose(1, 2) comes first.",
            SPLIT,
        ),
        Misconception(
            "columns dealt like cards",
            _parts(
                cut=lambda y, h: y.unflatten(-1, (-1, h)).permute(0, 3, 1, 2),
                glue=lambda y: y.permute(0, 2, 3, 1).flatten(2),
            ),
            "Your heads take every H-th column. With torch's weights it matters which columns belong together: blocks.",
            COLUMNS,
        ),
        Misconception(
            "input added",
            _module(lambda self, x, *rest: x + MultiHead.forward(self, x, *rest)),
            "You added the input to the output. That is a residual connection, and it comes in unit 09, around this module.",
            MIX,
        ),
        Misconception(
            "scale of the whole width",
            _parts(scale=lambda q, d: d**-0.5),
            "You divided by √D. Each head's dot product has D / H terms: the scale is √(D / H).",
            SEPARATE,
        ),
        Misconception(
            "no scale",
            _parts(scale=lambda q, d: 1.0),
            "The scores are not divided by the root of the head's width.",
            SEPARATE,
        ),
        Misconception(
            "width without its root",
            _parts(scale=lambda q, d: 1 / q.shape[-1]),
            "You divided by the head's width, or twice by its root. Once by the root is enough.",
            SEPARATE,
        ),
        Misconception(
            "over the heads",
            _parts(weigh=lambda s, mask: _weigh(s, mask, 1)),
            "Your softmax runs over the heads (dim=1 of four axes). It runs over the keys: dim=-1.",
            SEPARATE,
        ),
        Misconception(
            "over the queries",
            _parts(weigh=lambda s, mask: _weigh(s, mask, -2)),
            "These weights sum to 1 over the queries, not over the keys: softmax runs along dim=-1.",
            ROWS,
        ),
        Misconception(
            "not mixed",
            _parts(last=lambda self, y: y),
            "w_o is not used: the heads lie side by side and never meet.",
            MIX,
        ),
        Misconception(
            "heads averaged",
            _parts(glue=lambda y: y.mean(dim=1).repeat(1, 1, y.shape[1])),
            "You averaged the heads, so that what each of them found is lost. They stand side by side.",
            MIX,
        ),
        Misconception(
            "memory never read",
            _parts(sources=lambda x, m: (x, x, x)),
            "memory is never read: this is self-attention of x, whatever comes with it.",
            CROSS,
        ),
        Misconception(
            "values from x",
            _parts(sources=lambda x, m: (x, m, x)),
            "The values come from x. What is read belongs to what was looked at: keys and values from memory.",
            CROSS,
        ),
        Misconception(
            "keys from x",
            _parts(sources=lambda x, m: (x, x, m)),
            "The keys come from x. What is looked at and what is read belong together: keys and values from memory.",
            CROSS,
        ),
        Misconception(
            "all from memory",
            _parts(sources=lambda x, m: (m, m, m)),
            "The queries come from memory too, so x is never asked. The tokens of x ask: queries from x.",
            CROSS,
        ),
        Misconception(
            "memory asks",
            _parts(sources=lambda x, m: (m, x, x)),
            "The two are swapped: memory asks and x is read. The output needs a row for each token of x.",
            CROSS,
        ),
        Misconception(
            "keys summed",
            _parts(roles=lambda q, k, v: (q, k, k)),
            "You multiplied the weights with the keys. Keys are for finding; what is handed out are the values.",
            SUM,
        ),
        Misconception(
            "mask not used",
            _parts(weigh=lambda s, mask: torch.softmax(s, dim=-1)),
            "The mask is not used: everything is read, whatever it says.",
            PADDING,
        ),
        Misconception(
            "mask the wrong way round",
            _parts(weigh=lambda s, mask: _weigh(s, None if mask is None else ~mask)),
            "The mask is the wrong way round. In this course True means: may be read.",
            PADDING,
        ),
        Misconception(
            "zero for a score",
            _parts(weigh=_zero_scores),
            "You set hidden scores to 0, and exp(0) = 1 still takes its share. A score of −∞ gets the weight 0.",
            PADDING,
        ),
        Misconception(
            "mask added",
            _parts(weigh=lambda s, mask: torch.softmax(s if mask is None else s + mask[:, None], dim=-1)),
            "You added True and False as 1 and 0: hidden words lose only a little. What is hidden needs a score of −∞.",
            PADDING,
        ),
        Misconception(
            "mask after the softmax",
            _parts(weigh=_masked_after),
            "You hid weights after the softmax, and what they took is missing: the rest no longer sums to 1.",
            PADDING,
        ),
        Misconception(
            "mask without an axis for heads",
            _parts(weigh=_no_head_axis),
            "(B, T, S) against (B, H, T, S): torch lines up sentences with heads, silently where their numbers agree. "
            "The mask needs an axis for the heads: mask[:, None].",
            SEPARATE,
        ),
        Misconception(
            "masks in the order of the heads",
            _parts(weigh=_masks_repeated),
            "You repeated the masks as a block (1, 2, 1, 2, …), while the heads of one sentence follow each other (1, 1, 2, 2, …). "
            "repeat_interleave does it, or keep batch and heads as two axes and use mask[:, None].",
            SEPARATE,
        ),
        Misconception(
            "layers as narrow as a head",
            _Narrow,
            "Your w_q, w_k and w_v are only one head wide. Each makes all heads at once: nn.Linear(d_model, d_model).",
            COLUMNS,
        ),
        Misconception(
            "no biases",
            _NoBiases,
            "Your layers have no biases. torch's multi-head attention has them, and its weights could not be loaded.",
            TORCH,
        ),
        Misconception(
            "layers in a list",
            _PlainList,
            "torch finds no parameters: layers in a plain list are not seen. Make each an attribute: self.w_q = nn.Linear(…).",
            TORCH,
        ),
        Misconception(
            "one layer for three",
            _OneMatrix,
            "One layer for queries, keys and values is a good idea, and the library has it. Here four are asked for by name: "
            "w_q, w_k, w_v, w_o.",
            TORCH,
        ),
        Misconception(
            "base class not started",
            _NoSuper,
            "nn.Module has to be set up before it can hold layers: super().__init__() comes first.",
            TORCH,
        ),
        Misconception(
            "weights cut off",
            _parts(weigh=lambda s, mask: _weigh(s, mask).detach()),
            "The numbers are right, but no gradient goes through the weights: where to look could never be learned.",
            TORCH,
        ),
    ),
    alternatives=(_HeadByHead, _module(_einsums), _parts(weigh=_renormalised)),
    forbidden=NOT_OURS,
)


# --- 06.9 ---------------------------------------------------------------------------------------------------


def read_heads() -> Any:
    """Five answers from the tables above: three words, then two times True or False.

    1. Which word does “it” read most in head 1?      2. And in head 2?
    3. Which word contributes most to what “it” gets from head 3?
    4. “Head 3 looks at The, so The matters.” Do the tables support that?
    5. Somebody shows you only the mean of heads 1 and 2. Can you tell from it that one head looked at animal and
       another one at tired?
    Return a list of five.
    """
    return ["animal", "tired", "animal", False, False]


READ_HEADS = Exercise(
    id="06.9",
    title="Read three heads",
    answer="course_lib.exercises.u06.read_heads",
    minutes=5,
    outcomes=("06-e",),
    checks=(Check("the five answers", 2),),
    cases=lambda draw: [Case("the five answers")],
    hints=(
        "The first two are the largest numbers of their rows.",
        "What a word contributes is its weight times its value: a long look at a value of nearly nothing brings nearly nothing.",
        "Head 3: 0.90 · 0.1, 0.06 · 5.0, 0.04 · 1.0. And think of one single head that looks at both words, half and half.",
    ),
    misconceptions=(
        Misconception(
            "largest weight wins",
            lambda: ["animal", "tired", "The", True, False],
            "You took the largest weight for the largest contribution. Weight times value is what arrives: compute all three.",
            MISLEAD,
        ),
        Misconception(
            "word right, claim believed",
            lambda: ["animal", "tired", "animal", True, False],
            "You found that “animal” contributes most. Then a sharp look at “The” is no proof that “The” matters.",
            MISLEAD,
        ),
        Misconception(
            "claim refused, word wrong",
            lambda: ["animal", "tired", "The", False, False],
            "You do not trust the largest weight, rightly. So which word does contribute most? Weight times length of the value.",
            MISLEAD,
        ),
        Misconception(
            "mean believed",
            lambda: ["animal", "tired", "animal", False, True],
            "A single head that looks at both words, half and half, would give nearly the same mean. What came from which head "
            "is lost in it.",
            TRAINED,
        ),
        Misconception(
            "weights and mean believed",
            lambda: ["animal", "tired", "The", True, True],
            "Two things: weight times value is what arrives, not the weight alone; and a mean over heads hides which head "
            "looked where.",
            MISLEAD,
        ),
        Misconception(
            "claim and mean believed",
            lambda: ["animal", "tired", "animal", True, True],
            "The three words are right. Now the claims: if “animal” contributes most, what does the long look at “The” prove? "
            "And could a single head, half and half, have given the same mean?",
            MISLEAD,
        ),
        Misconception(
            "word wrong, mean believed",
            lambda: ["animal", "tired", "The", False, True],
            "Two things: what arrives is weight times value, so compute all three; and a mean over heads hides which head "
            "looked where.",
            MISLEAD,
        ),
        Misconception(
            "heads swapped",
            lambda: ["tired", "animal", "animal", False, False],
            "Heads 1 and 2 are swapped: rows belong to heads in the first table.",
            TRAINED,
        ),
        Misconception(
            "the word itself",
            lambda: ["animal", "tired", "it", False, False],
            "For head 3, take all three words: each weight times the length of that word's value.",
            MISLEAD,
        ),
    ),
    prediction=True,
)

EXERCISES = (
    SHAPES,
    SPLIT_HEADS,
    MERGE_HEADS,
    ONE_HEAD,
    MULTI_HEAD,
    PRICE,
    FROM_TORCH,
    MULTI_HEAD_MODULE,
    READ_HEADS,
)
