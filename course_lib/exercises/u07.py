"""Unit 07, masking: NumPy in, NumPy out. True = may attend; an empty row is a check of its own everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..by_hand import softmax
from .declare import Case, Check, Draw, Exercise, Misconception

Array = np.ndarray

SPOIL = ("07", "A decoder must not see what it is about to say")
INFINITY = ("07", "Minus infinity before the softmax makes a weight of exactly zero")
TRIANGLE = ("07", "A causal mask is a triangle, with its diagonal")
BROADCAST = ("07", "Masks broadcast, and combine with “and”")
EMPTY = ("07", "A row with nothing to attend to gives NaN")
LEAK = ("07", "Nothing leaks, to the last bit")
PREFIXES = ("07", "One pass does the work of all prefixes")


# --- 07.1 ---------------------------------------------------------------------------------------------------


def count_pairs() -> Any:
    """Five tokens, so 25 pairs of query and key. Count with pencil and paper, and return a list of four numbers.

    1. In the causal mask, how many entries are True?
    2. How many keys may the third query attend to, in the causal mask?
    3. Token 5 is padding. How many entries are True in "causal and not padding"?
    4. Some slides mask every j ≥ i. How many entries are left True?
    """
    return [15, 3, 14, 10]


COUNT_PAIRS = Exercise(
    id="07.1",
    title="Count before you build",
    answer="course_lib.exercises.u07.count_pairs",
    minutes=4,
    outcomes=("07-a",),
    checks=(Check("the four numbers", 2),),
    cases=lambda draw: [Case("the four numbers")],
    hints=(
        "Draw the 5 × 5 table: a row for each query, a column for each key. A query sees itself and what came before.",
        "Row i of the causal mask has i True entries. Padding takes a column away, and leaves the rows as they are.",
        "1 + 2 + 3 + 4 + 5 for the first. For the third, only the last row had the last column. For the fourth, each "
        "row loses the token itself.",
    ),
    misconceptions=(
        Misconception(
            "a token does not see itself",
            lambda: [10, 2, 10, 10],
            "You hid the diagonal. A query sees itself too: the token at i is known when the one after it is predicted.",
            TRIANGLE,
        ),
        Misconception(
            "the padded row is gone",
            lambda: [15, 3, 10, 10],
            "You took the row of the padded token away as well. Padding must not be *read*: that is its column.",
            BROADCAST,
        ),
        Misconception(
            "or",
            lambda: [15, 3, 21, 10],
            "You counted pairs that one of the two masks allows. Both must allow a pair: “and”, not “or”.",
            BROADCAST,
        ),
        Misconception(
            "the same mask twice",
            lambda: [15, 3, 14, 15],
            "To mask j ≥ i hides the token itself as well: five entries fewer than the causal mask, which masks j > i.",
            TRIANGLE,
        ),
        Misconception(
            "what is masked",
            lambda: [10, 2, 11, 15],
            "You counted what is masked. In this course True means: may attend.",
            TRIANGLE,
        ),
        Misconception(
            "third query without itself",
            lambda: [15, 2, 14, 10],
            "The third query sees two tokens before it, and itself.",
            TRIANGLE,
        ),
        Misconception(
            "padding alone",
            lambda: [15, 3, 20, 10],
            "For the third number you took a column from all 25 pairs. The future is hidden too: take it from the causal mask.",
            BROADCAST,
        ),
        Misconception(
            "row and column",
            lambda: [15, 3, 9, 10],
            "You took too much away for padding. In the causal mask only the last query sees token 5, so one True entry is lost.",
            BROADCAST,
        ),
        Misconception(
            "row gone, diagonal kept",
            lambda: [15, 3, 10, 15],
            "Two things: padding takes a column away and no row; and to mask j ≥ i hides the token itself as well.",
            BROADCAST,
        ),
    ),
    prediction=True,
)


# --- 07.2 ---------------------------------------------------------------------------------------------------


def see_the_past(T: int, S: int) -> Array:
    """The causal mask of the T newest of S tokens: query i stands at position i + S - T (counted from 0).

    Usually T = S, and query i stands at i. Return an array of booleans (T, S), True where a query may attend:
    to its own position and all before it.
    """
    i, j = np.arange(S - T, S), np.arange(S)
    return j[None, :] <= i[:, None]


def _past_cases(draw: Draw) -> list[Case]:
    square, longer = "as many queries as keys", "the newest queries of more tokens"
    return [
        Case(square, (2, 2)),
        Case(square, (5, 5)),
        Case(longer, (2, 5), "two new queries, five tokens in all"),
        Case(longer, (4, 7)),
        Case(longer, (1, 3), "the newest query alone: it sees everything"),
    ]


def _past_by(rule: Callable[[Array, Array], Array]) -> Callable[[int, int], Array]:
    return lambda T, S: rule(np.arange(S - T, S)[:, None], np.arange(S)[None, :])


SEE_THE_PAST = Exercise(
    id="07.2",
    title="The past, and the token itself",
    answer="course_lib.exercises.u07.see_the_past",
    minutes=6,
    outcomes=("07-a",),
    checks=(Check("as many queries as keys", 2), Check("the newest queries of more tokens")),
    cases=_past_cases,
    hints=(
        "Compare positions: when may the query at position p attend to the key at position j?",
        "j ≤ p. A column of query positions against a row of key positions gives the whole table by broadcasting.",
        "The queries stand at S - T, …, S - 1: np.arange(S - T, S)[:, None]. Compare with np.arange(S)[None, :].",
    ),
    misconceptions=(
        Misconception(
            "inverted",
            _past_by(lambda i, j: j > i),
            "Yours is True where attention is forbidden. In this course True means: may attend. Other libraries differ.",
            TRIANGLE,
        ),
        Misconception(
            "diagonal hidden",
            _past_by(lambda i, j: j < i),
            "Your queries do not see themselves, and the first sees nothing at all. Mask j > i, and keep the diagonal.",
            TRIANGLE,
        ),
        Misconception(
            "the future",
            _past_by(lambda i, j: j >= i),
            "Yours is the other triangle: each query sees itself and the future. Rows are queries: True where j ≤ i.",
            TRIANGLE,
        ),
        Misconception(
            "one step ahead",
            _past_by(lambda i, j: j <= i + 1),
            "Your queries see one key too many: the very token that they are to predict.",
            SPOIL,
        ),
        Misconception(
            "lined up at the start",
            lambda T, S: np.tri(T, S, dtype=bool),
            "Right for T = S. With older tokens before them, the queries stand at the end: query i at position i + S - T.",
            TRIANGLE,
        ),
        Misconception(
            "only the new tokens",
            lambda T, S: np.tri(T, dtype=bool),
            "Your mask has T columns. There is a column for every key, S of them: the older tokens are read as well.",
            TRIANGLE,
        ),
        Misconception(
            "a row for every token",
            lambda T, S: np.tri(S, dtype=bool),
            "Your mask has S rows. There is a row for every query: of these, the T newest.",
            TRIANGLE,
        ),
        Misconception(
            "queries in the columns",
            lambda T, S: _past_by(lambda i, j: j <= i)(T, S).T,
            "Rows and columns are swapped: rows are queries, columns are keys, as in the scores.",
            TRIANGLE,
        ),
        Misconception(
            "everything",
            lambda T, S: np.ones((T, S), dtype=bool),
            "Every query sees everything here, the future included.",
            SPOIL,
        ),
        Misconception(
            "zeros and ones",
            lambda T, S: np.tri(T, S, S - T),
            "The pattern is right, in numbers. A mask is made of booleans, so that & and ~ mean what they say: add dtype=bool.",
            TRIANGLE,
        ),
        Misconception(
            "zeros and infinities",
            lambda T, S: np.where(np.tri(T, S, S - T, dtype=bool), 0.0, -np.inf),
            "This is M, the matrix to add to the scores: also right, elsewhere. Here the mask itself is asked for, in booleans.",
            INFINITY,
        ),
        Misconception(
            "the future, lined up at the start",
            lambda T, S: np.triu(np.ones((T, S), dtype=bool)),
            "np.triu keeps the upper triangle: each query sees itself and the future. Rows are queries: True where j ≤ i, which np.tril keeps.",
            TRIANGLE,
        ),
        Misconception(
            "moved to the other side",
            lambda T, S: np.tri(T, S, T - S, dtype=bool),
            "Right for T = S. With older tokens before them the triangle moves to the right, by S - T, and yours moves to the left.",
            TRIANGLE,
        ),
        Misconception(
            "older tokens hidden",
            lambda T, S: np.hstack([np.zeros((T, S - T), dtype=bool), np.tri(T, dtype=bool)]),
            "The triangle stands in the right place, and the older tokens before it are hidden. They are the past: True.",
            TRIANGLE,
        ),
        Misconception(
            "itself alone",
            lambda T, S: np.eye(T, S, S - T, dtype=bool),
            "Each query sees itself alone here. It sees all tokens before it as well.",
            TRIANGLE,
        ),
        Misconception(
            "queries and keys exchanged",
            lambda T, S: np.tri(S, T, dtype=bool),
            "T and S are exchanged: there are T rows, for the queries, and S columns, for the keys.",
            TRIANGLE,
        ),
    ),
    alternatives=(
        lambda T, S: np.tri(T, S, S - T, dtype=bool),
        lambda T, S: np.tril(np.ones((S, S), dtype=bool))[S - T :],
        lambda T, S: ~np.triu(np.ones((T, S), dtype=bool), k=1 + S - T),
        lambda T, S: [[j <= i + S - T for j in range(S)] for i in range(T)],
        lambda T, S: np.fromfunction(lambda i, j: j - i <= S - T, (T, S)),
    ),
)


# --- 07.3 ---------------------------------------------------------------------------------------------------


def batch_mask(tokens: Array, pad: int) -> Array:
    """The mask for a batch of sentences: nobody sees the future, and nobody sees padding.

    tokens is (B, T), whole numbers, equal to `pad` where a sentence is padded.
    Return an array of booleans (B, T, T), True where query i of a sentence may attend to its key j.
    """
    past = np.tri(tokens.shape[1], dtype=bool)
    word = tokens != pad
    return past & word[:, None, :]


def _token_cases(draw: Draw) -> list[Case]:
    plain, other, left = "no future and no padding", "whatever number stands for padding", "padding on the left"

    def sentences(lengths: list[int], T: int, pad: int, at_end: bool = True) -> Array:
        tokens = draw.rng.integers(10, 99, (len(lengths), T))
        for row, n in zip(tokens, lengths, strict=True):
            row[(slice(n, None) if at_end else slice(0, T - n))] = pad
        return tokens

    unusual = sentences([5, 3], 5, 7)
    unusual[:, 1] = 0
    return [
        Case(plain, (sentences([3, 1], 3, 0), 0)),
        Case(plain, (sentences([2, 4, 3], 4, 0), 0)),
        Case(plain, (sentences([3, 2, 1], 3, 0), 0), "as many sentences as words, where a missing axis goes unnoticed"),
        Case(other, (unusual, 7), "padding is 7, and 0 is a word"),
        Case(left, (sentences([2, 5, 4], 5, 0, at_end=False), 0), "the sentences end together"),
    ]


def _tokens_by(rule: Callable[[Array, Array], Array], wanted: Callable[[Array, int], Array] = np.not_equal) -> Any:
    def wrong(tokens: Array, pad: int) -> Array:
        return rule(np.tri(tokens.shape[1], dtype=bool), wanted(tokens, pad))

    return wrong


def _batch_loops(tokens: Array, pad: int) -> Array:
    B, T = tokens.shape
    mask = np.zeros((B, T, T), dtype=bool)
    for b in range(B):
        for i in range(T):
            for j in range(i + 1):
                mask[b, i, j] = tokens[b, j] != pad
    return mask


def _counted(tokens: Array, pad: int) -> Array:
    return np.arange(tokens.shape[1]) < (tokens != pad).sum(axis=1, keepdims=True)


BATCH_MASK = Exercise(
    id="07.3",
    title="No future and no padding",
    answer="course_lib.exercises.u07.batch_mask",
    minutes=8,
    outcomes=("07-a",),
    checks=(
        Check("no future and no padding", 2),
        Check("whatever number stands for padding"),
        Check("padding on the left"),
    ),
    cases=_token_cases,
    hints=(
        "Two masks, and both must agree. Which shape has each of them alone?",
        "The causal mask is (T, T), the same for all sentences. Padding hides keys: (B, 1, T), the same for all queries.",
        "`tokens != pad` is (B, T). With [:, None, :] it becomes (B, 1, T), and & broadcasts the two to (B, T, T).",
    ),
    misconceptions=(
        Misconception(
            "or",
            _tokens_by(lambda past, word: past | word[:, None, :]),
            "You combined the masks with “or”: a pair passes if one of them allows it. Both must: &.",
            BROADCAST,
        ),
        Misconception(
            "inverted",
            _tokens_by(lambda past, word: ~(past & word[:, None, :])),
            "Yours is True where attention is forbidden. In this course True means: may attend.",
            TRIANGLE,
        ),
        Misconception(
            "diagonal hidden",
            _tokens_by(lambda past, word: np.tril(past, -1) & word[:, None, :]),
            "Your queries do not see themselves. Mask the future, j > i, and keep the diagonal.",
            TRIANGLE,
        ),
        Misconception(
            "the future",
            _tokens_by(lambda past, word: past.T & word[:, None, :]),
            "Yours is the other triangle: each query sees itself and the future. Rows are queries: True where j ≤ i.",
            TRIANGLE,
        ),
        Misconception(
            "padded queries hidden",
            _tokens_by(lambda past, word: past & word[:, :, None]),
            "You hid the rows of padded tokens, and everybody still reads them. Padding hides keys, which are columns: (B, 1, T).",
            BROADCAST,
        ),
        Misconception(
            "padded queries and keys hidden",
            _tokens_by(lambda past, word: past & word[:, None, :] & word[:, :, None]),
            "You also emptied the rows of padded queries. Nobody reads their outputs, and empty rows ask for NaN: hide keys only.",
            EMPTY,
        ),
        Misconception(
            "padding forgotten",
            _tokens_by(lambda past, word: np.broadcast_to(past, (len(word), *past.shape))),
            "The future is hidden, and padding is read as if it were words.",
            BROADCAST,
        ),
        Misconception(
            "future forgotten",
            _tokens_by(lambda past, word: np.broadcast_to(word[:, None, :], (len(word), *past.shape))),
            "Padding is hidden, and every query sees the future. Both masks together: &.",
            SPOIL,
        ),
        Misconception(
            "padding alone, not widened",
            _tokens_by(lambda past, word: word[:, None, :]),
            "This is the padding mask alone, (B, 1, T). With the causal mask (T, T) and & it becomes (B, T, T).",
            BROADCAST,
        ),
        Misconception(
            "padding is always 0",
            _tokens_by(lambda past, word: past & word[:, None, :], lambda tokens, pad: tokens != 0),
            "You compared with 0. Which number stands for padding is said by `pad`: 0 may be a word.",
            BROADCAST,
        ),
        Misconception(
            "padding is always at the end",
            _tokens_by(lambda past, word: past & word[:, None, :], _counted),
            "You counted words and took the first so many. Sentences can be padded on the left: look at each token.",
            BROADCAST,
        ),
        Misconception(
            "no axis for the queries",
            _tokens_by(lambda past, word: past & word),
            "(T, T) & (B, T) lines sentences up with queries. Padding needs an axis for the queries: (B, 1, T).",
            BROADCAST,
        ),
        Misconception(
            "zeros and ones",
            lambda tokens, pad: batch_mask(tokens, pad).astype(int),
            "The pattern is right, in numbers. A mask is made of booleans, so that & and ~ mean what they say.",
            BROADCAST,
        ),
        Misconception(
            "zeros and infinities",
            lambda tokens, pad: np.where(batch_mask(tokens, pad), 0.0, -np.inf),
            "This is M, the matrix to add to the scores: also right, elsewhere. Here the mask itself is asked for, in booleans.",
            INFINITY,
        ),
        Misconception(
            "only padding is seen",
            _tokens_by(lambda past, word: past & word[:, None, :], np.equal),
            "You allowed what is padding and hid the words: == where != belongs.",
            BROADCAST,
        ),
        Misconception(
            "the future without the token",
            _tokens_by(lambda past, word: ~past & word[:, None, :]),
            "Yours allows the future alone. The triangle is True where a query may attend: to itself and the past.",
            TRIANGLE,
        ),
        Misconception(
            "either, not both",
            _tokens_by(lambda past, word: past ^ word[:, None, :]),
            "^ is True where exactly one of the masks allows a pair. Both must: &.",
            BROADCAST,
        ),
        Misconception(
            "every token sees itself",
            _tokens_by(lambda past, word: past & word[:, None, :] | np.eye(len(past), dtype=bool)),
            "You let padded tokens see themselves, perhaps to avoid empty rows. Nobody may read padding, not even padding.",
            EMPTY,
        ),
        Misconception(
            "an axis for heads",
            lambda tokens, pad: batch_mask(tokens, pad)[:, None],
            "The mask is right, with one axis too many: (B, 1, T, T) is for several heads. Here (B, T, T) is asked for.",
            BROADCAST,
        ),
        Misconception(
            "first sentence for all",
            lambda tokens, pad: batch_mask(np.broadcast_to(tokens[:1], tokens.shape), pad),
            "Every sentence got the padding of the first. Each has its own: tokens != pad, with an axis for the queries.",
            BROADCAST,
        ),
    ),
    alternatives=(
        _batch_loops,
        lambda tokens, pad: np.logical_and(np.tri(tokens.shape[1]) == 1, (tokens != pad)[:, np.newaxis]),
        lambda tokens, pad: np.stack([np.tri(len(row), dtype=bool) & (row != pad) for row in tokens]),
        lambda tokens, pad: ~(np.triu(np.ones((tokens.shape[1],) * 2, dtype=bool), 1) | (tokens == pad)[:, None, :]),
        lambda tokens, pad: np.einsum("ij,bj->bij", np.tri(tokens.shape[1]), tokens != pad) > 0,
    ),
)


# --- 07.4 ---------------------------------------------------------------------------------------------------


def masked_weights(scores: Array, mask: Array) -> Array:
    """Softmax along each row, over the keys that the mask allows; all other weights are 0.

    scores is (..., T, S). mask is boolean, True = may attend, and broadcasts to the scores' shape.
    Return the weights, of the scores' shape. Each row sums to 1; a row that may attend to nothing gets zeros, not NaN.
    """
    some = mask.any(axis=-1, keepdims=True)  # False where a row may attend to nothing
    hidden = np.where(some, -np.inf, 0.0)  # such a row gets scores that softmax can bear, and zeros afterwards
    return np.where(some, softmax(np.where(mask, scores, hidden)), 0.0)


NO_KEYS = "a row that may attend to nothing"


def _weights_cases(draw: Draw) -> list[Case]:
    some, many, large = "masked keys get nothing, each row sums to 1", "masks that broadcast", "large scores"
    empty = draw.mask(4, 3)
    empty[1] = False
    apart = np.array([[900.0], [-900.0], [0.0]])
    batch = draw.mask(2, 3, 4)
    batch[1] = False
    return [
        Case(some, (draw(2, 3), draw.mask(2, 3))),
        Case(some, (draw(4, 5, size=3), draw.mask(4, 5))),
        Case(many, (draw(2, 3, 4), draw.mask(2, 1, 4)), "the same mask for every query of a sentence"),
        Case(many, (draw(2, 3, 5), draw.mask(3, 5)), "the same mask for every sentence"),
        Case(large, (draw.rng.uniform(-200, 200, (3, 4)), draw.mask(3, 4)), "scores from -200 to 200"),
        Case(large, (1000 + draw(3, 4, size=20), draw.mask(3, 4)), "all scores near 1000"),
        Case(large, (draw(3, 4, size=20) - 1000, draw.mask(3, 4)), "all scores near -1000"),
        Case(large, (draw(3, 4) + apart, draw.mask(3, 4)), "rows near 900, -900 and 0"),
        Case(NO_KEYS, (draw(4, 3), empty), "the second query may attend to nothing"),
        Case(NO_KEYS, (draw(2, 3, 4), batch), "the second sentence is all padding"),
    ]


def _quiet(function: Callable[..., Array]) -> Callable[..., Array]:
    """NumPy warns of NaN on the way; here they are what is shown."""

    def silent(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            return function(*args)

    return silent


def _filled(fill: float) -> Callable[[Array, Array], Array]:
    return _quiet(lambda scores, mask: softmax(np.where(mask, scores, fill)))


def _added(scores: Array, mask: Array) -> Array:
    return softmax(scores + np.where(mask, 0.0, -1e9))


def _too_much_to_exp(scores: Array, mask: Array) -> Array:
    exps = np.exp(np.where(mask, scores, -np.inf))
    total = exps.sum(axis=-1, keepdims=True)
    return exps / np.where(total == 0, 1.0, total)


def _bare_exp(scores: Array, mask: Array) -> Array:
    exps = np.exp(scores) * mask
    return exps / exps.sum(axis=-1, keepdims=True)


def _one_maximum(scores: Array, mask: Array) -> Array:
    exps = np.exp(scores - scores.max()) * mask
    total = exps.sum(axis=-1, keepdims=True)
    return exps / np.where(total == 0, 1.0, total)


def _over_the_queries(scores: Array, mask: Array) -> Array:
    mask = np.broadcast_to(mask, scores.shape)
    return masked_weights(scores.swapaxes(-1, -2), mask.swapaxes(-1, -2)).swapaxes(-1, -2)


def _in_place(scores: Array, mask: Array) -> Array:
    scores[~np.broadcast_to(mask, scores.shape)] = -np.inf
    return np.nan_to_num(_quiet(softmax)(scores))


def _mask_as_index(scores: Array, mask: Array) -> Array:
    scores = scores.copy()
    scores[~mask] = -np.inf
    return np.nan_to_num(_quiet(softmax)(scores))


def _one_row_at_a_time(scores: Array, mask: Array) -> Array:
    mask = np.broadcast_to(mask, scores.shape)
    weights = np.zeros(scores.shape)
    for place in np.ndindex(*scores.shape[:-1]):
        if mask[place].any():
            weights[place][mask[place]] = softmax(scores[place][mask[place]])
    return weights


def _renormalised(scores: Array, mask: Array) -> Array:
    kept = softmax(scores) * mask
    total = kept.sum(axis=-1, keepdims=True)
    return np.divide(kept, total, out=np.zeros(scores.shape), where=total > 0)


MASKED_WEIGHTS = Exercise(
    id="07.4",
    title="A softmax that looks at the mask",
    answer="course_lib.exercises.u07.masked_weights",
    given=("softmax",),
    minutes=12,
    outcomes=("07-c",),
    checks=(
        Check("masked keys get nothing, each row sums to 1", 2),
        Check("masks that broadcast"),
        Check("large scores"),
        Check(NO_KEYS, 2),
    ),
    cases=_weights_cases,
    hints=(
        "Which number must a score become, so that its exponential is exactly 0? np.where(mask, …, …) chooses.",
        "-np.inf, before the softmax. Then think of a row of nothing but -∞: what is its maximum, and -∞ minus that?",
        "Subtract 0 where the maximum is -∞, and divide by 1 where the sum of the exponentials is 0. Or compute, and put "
        "zeros into the rows where `mask.any(axis=-1)` is False.",
    ),
    misconceptions=(
        Misconception(
            "NaN in empty rows",
            _filled(-np.inf),
            "All else is right. A row of nothing but -∞ gives 0/0 = NaN, which poisons all that is computed from it: give it zeros.",
            EMPTY,
        ),
        Misconception(
            "empty rows read everything alike",
            _filled(-1e9),
            "All else is right. But a row of equal fills, however low, has equal weights: it reads what it must not. Give it zeros.",
            EMPTY,
        ),
        Misconception(
            "empty rows ignore the mask",
            _added,
            "All else is right. But with -1e9 added to all scores of a row their differences are unchanged: it reads as if there were no mask.",
            EMPTY,
        ),
        Misconception(
            "scores of 0",
            _filled(0.0),
            "You set masked scores to 0. exp(0) is 1, so these keys still get weight: the score of nobody is -∞.",
            INFINITY,
        ),
        Misconception(
            "not low enough",
            _filled(-100.0),
            "-100 is low only beside small scores: where all scores are near -1000, the masked keys win. Take -np.inf.",
            INFINITY,
        ),
        Misconception(
            "masked after the softmax",
            lambda scores, mask: softmax(scores) * mask,
            "You masked after the softmax, so rows no longer sum to 1, and hidden keys still shape the others' weights.",
            INFINITY,
        ),
        Misconception(
            "weights of minus infinity",
            lambda scores, mask: np.where(mask, softmax(scores), -np.inf),
            "You set the weights to -∞, after the softmax. It is the scores that become -∞, before it.",
            INFINITY,
        ),
        Misconception(
            "infinity times zero",
            _quiet(lambda scores, mask: softmax(scores + (1.0 - mask) * -np.inf)),
            "Every weight is NaN: 0 times ∞ is NaN, and so is ∞ - ∞. Hidden scores become -∞, with a minus, and np.where chooses them.",
            INFINITY,
        ),
        Misconception(
            "inverted",
            lambda scores, mask: masked_weights(scores, ~mask),
            "You hid what is allowed. In this course True means: may attend.",
            TRIANGLE,
        ),
        Misconception(
            "no mask",
            lambda scores, mask: softmax(scores),
            "The mask has no effect here: every key takes its share, whatever the mask says.",
            INFINITY,
        ),
        Misconception(
            "over the queries",
            _over_the_queries,
            "These weights sum to 1 over the queries: softmax must run along each row, over the keys.",
            INFINITY,
        ),
        Misconception(
            "overflow",
            _quiet(_too_much_to_exp),
            "exp of a score near 1000 is infinity, and near -1000 it is 0. Subtract the largest allowed score of the row first.",
            INFINITY,
        ),
        Misconception(
            "overflow, and NaN in empty rows",
            _quiet(_bare_exp),
            "exp of a score near 1000 is infinity, and near -1000 it is 0, as in an empty row: ∞/∞ and 0/0 are NaN. Subtract the largest first.",
            INFINITY,
        ),
        Misconception(
            "multiplied by minus infinity",
            _quiet(lambda scores, mask: softmax(scores * np.where(mask, 1.0, -np.inf))),
            "A negative score times -∞ is +∞, so the hidden key wins. Put -∞ in the score's place: np.where.",
            INFINITY,
        ),
        Misconception(
            "changes its input",
            _in_place,
            "The weights are right, but `scores[~mask] = …` writes into the caller's scores. Make a new array: np.where.",
            INFINITY,
        ),
        Misconception(
            "mask as an index",
            _mask_as_index,
            "`scores[~mask]` needs a mask of the scores' own shape. np.where(mask, …, …) broadcasts, and takes (B, 1, S) as well.",
            BROADCAST,
        ),
        Misconception(
            "one maximum for all rows",
            _one_maximum,
            "You subtracted the largest score of the whole table: in rows far below it every exponential is 0. Each row has its own maximum.",
            INFINITY,
        ),
        Misconception(
            "zeroed, then masked",
            lambda scores, mask: softmax(scores * mask) * mask,
            "Multiplied by the mask, hidden scores become 0, and exp(0) = 1 stays in the sum: the rows no longer sum to 1. Hidden scores become -∞.",
            INFINITY,
        ),
        Misconception(
            "lowest of the others",
            lambda scores, mask: softmax(np.where(mask, scores, scores.min())),
            "You gave hidden keys the lowest score there is, and they still take their share. Only -∞ gets nothing.",
            INFINITY,
        ),
        Misconception(
            "mask as a number",
            lambda scores, mask: softmax(scores + mask),
            "You added True and False as 1 and 0: hidden keys lose only a little. What is hidden needs a score of -∞.",
            INFINITY,
        ),
        Misconception(
            "only the allowed scores",
            lambda scores, mask: softmax(scores[np.broadcast_to(mask, scores.shape)]),
            "scores[mask] is one long row of all allowed scores: the table is gone. Hide with np.where, which keeps the shape.",
            BROADCAST,
        ),
        Misconception(
            "first axis",
            _quiet(lambda scores, mask: softmax(np.where(mask, scores, -np.inf), axis=0)),
            "Your softmax runs along the first axis. It runs along the last one, over the keys of each query.",
            INFINITY,
        ),
    ),
    alternatives=(
        _one_row_at_a_time,
        _renormalised,
        lambda scores, mask: softmax(np.where(mask, scores, -1e9)) * mask,
        lambda scores, mask: softmax(scores + np.where(mask, 0.0, -1e9)) * mask,
        _quiet(lambda scores, mask: np.nan_to_num(softmax(np.where(mask, scores, -np.inf)))),
        lambda scores, mask: np.where(
            mask.any(axis=-1, keepdims=True), softmax(np.where(mask, scores, np.finfo(float).min)), 0.0
        ),
    ),
)


# --- 07.5 ---------------------------------------------------------------------------------------------------


def decoder_attention(q: Array, k: Array, v: Array, word: Array) -> Array:
    """Causal attention for a batch with padding: softmax(q kᵀ / √d_k) v, where no query sees the future or padding.

    q and k are (B, T, d_k), v is (B, T, d_v); word is boolean, (B, T): True on words, False on padding.
    Return an array (B, T, d_v); a query that may attend to nothing gets zeros. You may call your `masked_weights`.
    """
    past = np.tri(q.shape[1], dtype=bool)
    mask = past & word[:, None, :]
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return masked_weights(scores, mask) @ v


def _decoder_cases(draw: Draw) -> list[Case]:
    def case(check: str, lengths: list[int], T: int, K: int, V: int, note: str = "", left: bool = False) -> Case:
        B, size = len(lengths), np.array(lengths)[:, None]
        word = np.arange(T) >= T - size if left else np.arange(T) < size
        return Case(check, (draw(B, T, K, size=2), draw(B, T, K), draw(B, T, V), word), note)

    huge = case("large scores", [4, 2], 4, 3, 5, "scores in the thousands")
    huge.args[0][..., 0] = huge.args[1][..., 0] = 60.0
    return [
        case("no padding: the past alone", [3, 3], 3, 4, 2),
        case("no padding: the past alone", [5, 5, 5], 5, 4, 6),
        case("padded words are not read", [4, 2], 4, 3, 5),
        case("padded words are not read", [2, 5, 3, 1], 5, 2, 3),
        huge,
        case(NO_KEYS, [3, 1], 3, 2, 4, "padding on the left: its first queries may attend to nothing", left=True),
    ]


def _decoder(
    mask: Callable[[Array, Array], Array] = lambda past, word: past & word[:, None, :],
    weigh: Callable[[Array, Array], Array] = masked_weights,
    scale: Callable[[Array, Array], float] = lambda q, v: 1 / np.sqrt(q.shape[-1]),
    read: Callable[[Array, Array, Array], Array] = lambda k, v, word: v,
) -> Callable[..., Array]:
    """The answer with one of its parts replaced."""

    def attend(q: Array, k: Array, v: Array, word: Array) -> Array:
        scores = q @ k.swapaxes(-1, -2) * scale(q, v)
        allowed = mask(np.tri(q.shape[1], dtype=bool), word)
        return weigh(scores, allowed) @ read(k, v, word)

    return _quiet(attend)


def _prefix_by_prefix(q: Array, k: Array, v: Array, word: Array) -> Array:
    y = np.zeros(v.shape)
    for b in range(len(q)):
        for i in range(q.shape[1]):
            seen = np.nonzero(word[b, : i + 1])[0]
            if len(seen):
                y[b, i] = softmax(k[b, seen] @ q[b, i] / np.sqrt(q.shape[-1])) @ v[b, seen]
    return y


def _fill_then_scale(q: Array, k: Array, v: Array, word: Array) -> Array:
    mask = np.tri(q.shape[1], dtype=bool) & word[:, None, :]
    filled = np.where(mask, np.einsum("btk,bsk->bts", q, k), -np.inf)
    return np.nan_to_num(_quiet(softmax)(filled / q.shape[-1] ** 0.5)) @ v


DECODER_ATTENTION = Exercise(
    id="07.5",
    title="Attention for a decoder",
    answer="course_lib.exercises.u07.decoder_attention",
    minutes=15,
    outcomes=("07-a", "07-b", "07-c"),
    checks=(
        Check("no padding: the past alone", 2),
        Check("padded words are not read", 2),
        Check("large scores"),
        Check(NO_KEYS),
    ),
    cases=_decoder_cases,
    hints=(
        "Three things in their order: scaled scores (B, T, T), weights under a mask (B, T, T), output (B, T, d_v).",
        "The mask is that of 07.3, with `word` in place of `tokens != pad`. The weights are those of 07.4.",
        "k.swapaxes(-1, -2) turns keys so that q @ … gives (B, T, T); divide by np.sqrt(q.shape[-1]); then "
        "masked_weights(scores, mask) @ v.",
    ),
    misconceptions=(
        Misconception(
            "no scale",
            _decoder(scale=lambda q, v: 1.0),
            "The scores are not scaled. Since unit 05 they are divided by √d_k.",
            INFINITY,
        ),
        Misconception(
            "scaled by d_k",
            _decoder(scale=lambda q, v: 1 / q.shape[-1]),
            "You divided by d_k. The spread of a dot product grows with its root: divide by √d_k.",
            INFINITY,
        ),
        Misconception(
            "scaled by the values' width",
            _decoder(scale=lambda q, v: 1 / np.sqrt(v.shape[-1])),
            "You divided by √d_v. Scores are made of queries and keys: it is their width that counts, √d_k.",
            INFINITY,
        ),
        Misconception(
            "padding forgotten",
            _decoder(mask=lambda past, word: past),
            "The future is hidden, and padding is read as if it were words.",
            BROADCAST,
        ),
        Misconception(
            "future forgotten",
            _decoder(mask=lambda past, word: word[:, None, :]),
            "Padding is hidden, and every query sees the future.",
            SPOIL,
        ),
        Misconception(
            "or",
            _decoder(mask=lambda past, word: past | word[:, None, :]),
            "You combined the masks with “or”: a pair passes if one of them allows it. Both must: &.",
            BROADCAST,
        ),
        Misconception(
            "diagonal hidden",
            _decoder(mask=lambda past, word: np.tril(past, -1) & word[:, None, :]),
            "Your queries do not see themselves, and the first sees nothing. Mask the future, j > i, and keep the diagonal.",
            TRIANGLE,
        ),
        Misconception(
            "the future instead of the past",
            _decoder(mask=lambda past, word: past.T & word[:, None, :]),
            "Yours is the other triangle: each query sees itself and the future. Rows are queries: True where j ≤ i.",
            TRIANGLE,
        ),
        Misconception(
            "padded queries hidden",
            _decoder(mask=lambda past, word: past & word[:, :, None]),
            "You hid the rows of padded tokens, and everybody still reads them. Padding hides keys: word[:, None, :].",
            BROADCAST,
        ),
        Misconception(
            "padded queries and keys hidden",
            _decoder(mask=lambda past, word: past & word[:, None, :] & word[:, :, None]),
            "You also emptied the rows of padded queries, which may read the words before them: hide keys only.",
            EMPTY,
        ),
        Misconception(
            "padded values set to 0",
            _decoder(mask=lambda past, word: past, read=lambda k, v, word: v * word[..., None]),
            "You set the values of padding to 0, and padding still takes its share of the weights. Mask its scores.",
            BROADCAST,
        ),
        Misconception(
            "scores of 0",
            _decoder(weigh=_filled(0.0)),
            "You set masked scores to 0. exp(0) is 1, so the future still gets weight: the score of nobody is -∞.",
            INFINITY,
        ),
        Misconception(
            "masked after the softmax",
            _decoder(weigh=lambda scores, mask: softmax(scores) * mask),
            "You masked after the softmax: rows no longer sum to 1, and the future still shapes the weights of the past.",
            LEAK,
        ),
        Misconception(
            "NaN in empty rows",
            _decoder(weigh=_filled(-np.inf)),
            "All else is right. A row of nothing but -∞ gives 0/0 = NaN, which poisons all that is computed from it: give it zeros.",
            EMPTY,
        ),
        Misconception(
            "empty rows read everything alike",
            _decoder(weigh=_filled(-1e9)),
            "All else is right. But a row of equal fills, however low, has equal weights: it reads the future. Give it zeros.",
            EMPTY,
        ),
        Misconception(
            "empty rows ignore the mask",
            _decoder(weigh=_added),
            "All else is right. But with -1e9 added to all scores of a row their differences are unchanged: it reads as if there were no mask.",
            EMPTY,
        ),
        Misconception(
            "over the queries",
            _decoder(weigh=_over_the_queries),
            "These weights sum to 1 over the queries: softmax must run along each row, over the keys.",
            INFINITY,
        ),
        Misconception(
            "overflow",
            _decoder(weigh=_too_much_to_exp),
            "exp of a score in the thousands is infinity. Subtract the largest allowed score of the row first.",
            INFINITY,
        ),
        Misconception(
            "keys summed",
            _decoder(read=lambda k, v, word: k),
            "You multiplied the weights with the keys. Keys are for finding; what is handed out are the values.",
            PREFIXES,
        ),
        Misconception(
            "multiplied by the root",
            _decoder(scale=lambda q, v: np.sqrt(q.shape[-1])),
            "You multiplied by √d_k. Dividing by it keeps the scores from growing.",
            INFINITY,
        ),
        Misconception(
            "scaled by the number of tokens",
            _decoder(scale=lambda q, v: 1 / np.sqrt(q.shape[-2])),
            "You divided by the root of the number of tokens. The scale is the root of the width of queries and keys, √d_k.",
            INFINITY,
        ),
        Misconception(
            "weights divided",
            _decoder(
                scale=lambda q, v: 1.0,
                weigh=lambda scores, mask: masked_weights(scores, mask),
                read=lambda k, v, word: v / np.sqrt(k.shape[-1]),
            ),
            "You divided after the softmax, so the weights no longer sum to 1. The scores are divided, before it.",
            INFINITY,
        ),
        Misconception(
            "roles swapped",
            lambda q, k, v, word: decoder_attention(k, q, v, word),
            "You computed k qᵀ, so the keys ask. Rows of the scores belong to queries: q kᵀ.",
            PREFIXES,
        ),
        Misconception(
            "all axes turned",
            lambda q, k, v, word: masked_weights(q @ k.T, word) @ v,
            "k.T turns all three axes, the batch too. Only the last two change places: k.swapaxes(-1, -2).",
            BROADCAST,
        ),
        Misconception(
            "no axis for the queries",
            lambda q, k, v, word: np.tri(q.shape[1], dtype=bool) & word,
            "(T, T) & (B, T) lines sentences up with queries. Padding needs an axis for the queries: word[:, None, :].",
            BROADCAST,
        ),
        Misconception(
            "mask the wrong way round",
            _decoder(mask=lambda past, word: ~(past & word[:, None, :])),
            "The mask is the wrong way round: in this course True means may attend.",
            TRIANGLE,
        ),
        Misconception(
            "only padding is read",
            _decoder(mask=lambda past, word: past & ~word[:, None, :]),
            "`word` is True on words already: with ~ you hide them and leave the padding.",
            BROADCAST,
        ),
        Misconception(
            "one step ahead",
            _decoder(mask=lambda past, word: np.tri(len(past), k=1, dtype=bool) & word[:, None, :]),
            "Your queries see one key too many: the very token that they are to predict.",
            SPOIL,
        ),
        Misconception(
            "softmax twice",
            _decoder(weigh=lambda scores, mask: masked_weights(softmax(scores), mask)),
            "You took the softmax twice, first without the mask. masked_weights wants scores.",
            INFINITY,
        ),
        Misconception(
            "padded keys set to 0",
            lambda q, k, v, word: _decoder(mask=lambda past, word: past)(q, k * word[..., None], v, word),
            "You set the keys of padding to 0: then its scores are 0, and exp(0) = 1 takes its share. Mask its scores.",
            BROADCAST,
        ),
        Misconception(
            "weights instead of the output",
            lambda q, k, v, word: masked_weights(
                q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), np.tri(q.shape[1], dtype=bool) & word[:, None, :]
            ),
            "These are the weights, (B, T, T). One step is left: weights @ v.",
            PREFIXES,
        ),
    ),
    alternatives=(
        _prefix_by_prefix,
        _fill_then_scale,
        _decoder(weigh=_renormalised),
        _decoder(weigh=lambda scores, mask: softmax(np.where(mask, scores, -1e9)) * mask),
        _decoder(scale=lambda q, v: q.shape[-1] ** -0.5, weigh=_one_row_at_a_time),
    ),
)


# --- 07.6 ---------------------------------------------------------------------------------------------------


def who_moved(before: Array, after: Array) -> Array:
    """Read an experiment: token j of a sentence was changed, for one j after the other. Which outputs moved?

    before is (T, D): the outputs of the sentence as it was. after is (T, T, D): after[j] are the outputs, all T of
    them, when token j had been changed. Return an array of booleans (T, T), rows as always for outputs: entry (i, j) is
    True if any number of output i is not exactly what it was when token j was changed.
    """
    moved = (after != before).any(axis=-1)
    return moved.T


def _moves(draw: Draw, sees: Array, D: int, size: float = 1.0, number: int = -1) -> tuple[Array, Array]:
    """Outputs before and after, where output i moves by `size`, in one number alone, if it sees token j."""
    before = draw.rng.integers(1, 9, (len(sees), D)).astype(float)
    after = np.broadcast_to(before, (len(sees), *before.shape)).copy()
    after[..., number] += size * sees.T
    return before, after


def _experiment_cases(draw: Draw) -> list[Case]:
    plain, small = "which outputs moved", "every move counts, small or hidden in a sum"
    late = np.tri(4, dtype=bool)
    late[1, 3] = True  # one leak
    before, after = _moves(draw, np.tri(5, dtype=bool), 2)
    after[..., 0] -= after[..., 1] - before[..., 1]
    everything = draw(4, 4, 3)
    return [
        Case(plain, _moves(draw, np.tri(3, dtype=bool), 2), "nothing leaks"),
        Case(plain, _moves(draw, late, 3, size=-1.0, number=0), "output 2 sees token 4"),
        Case(plain, (draw(4, 3), everything), "everybody sees everybody"),
        Case(small, _moves(draw, np.tri(4, dtype=bool), 3, size=-1e-9), "moves of 0.000000001, downwards"),
        Case(small, (before, after), "one number moves up and another down by as much"),
    ]


WHO_MOVED = Exercise(
    id="07.6",
    title="Read the experiment",
    answer="course_lib.exercises.u07.who_moved",
    minutes=8,
    outcomes=("07-b",),
    checks=(Check("which outputs moved", 2), Check("every move counts, small or hidden in a sum")),
    cases=_experiment_cases,
    hints=(
        "`after != before` compares all experiments with the outputs as they were, at once: which shape has it?",
        "It is (T, T, D): experiment j, output i, number. One number that differs is enough: .any over the last axis.",
        "What is left has experiments j as rows and outputs i as columns. Rows are to be outputs: transpose.",
    ),
    misconceptions=(
        Misconception(
            "transposed",
            lambda before, after: (after != before).any(axis=-1),
            "Your rows are the experiments, j. Rows belong to outputs and columns to changed tokens, as in the weights: transpose.",
            LEAK,
        ),
        Misconception(
            "inverted",
            lambda before, after: (after == before).all(axis=-1).T,
            "Yours is True where an output stayed. True was to say: it moved.",
            LEAK,
        ),
        Misconception(
            "every number must move",
            lambda before, after: (after != before).all(axis=-1).T,
            "You ask that all numbers of an output move. One is enough for a leak: any, not all.",
            LEAK,
        ),
        Misconception(
            "about equal",
            lambda before, after: (~np.isclose(after, before)).any(axis=-1).T,
            "You allow for rounding. A weight of exactly 0 leaves no trace at all, so the proof asks for equality: !=.",
            LEAK,
        ),
        Misconception(
            "sums compared",
            lambda before, after: ~np.isclose(after.sum(axis=-1), before.sum(axis=-1), rtol=0, atol=1e-12).T,
            "You compared sums. Two moves in one output can cancel there: compare number by number.",
            LEAK,
        ),
        Misconception(
            "upwards only",
            lambda before, after: (after > before).any(axis=-1).T,
            "You look for numbers that grew. One that shrank has moved as well: !=.",
            LEAK,
        ),
        Misconception(
            "the future alone",
            lambda before, after: np.triu((after != before).any(axis=-1).T, 1),
            "You kept the future alone. That is the next question; this table shows the past as well.",
            LEAK,
        ),
        Misconception(
            "how far",
            lambda before, after: np.abs(after - before).max(axis=-1).T,
            "You measured how far outputs moved. The question is whether they did: booleans.",
            LEAK,
        ),
        Misconception(
            "its own output only",
            lambda before, after: np.diag((after != before).any(axis=-1).diagonal()),
            "You looked at output j when token j was changed. The leak is in the others: all pairs.",
            LEAK,
        ),
        Misconception(
            "compared with another output",
            lambda before, after: (after != before[:, None]).any(axis=-1),
            "You compared output i of an experiment with output j of before. Each is compared with itself as it was: after[j, i] with before[i].",
            LEAK,
        ),
        Misconception(
            "first number only",
            lambda before, after: (after[..., 0] != before[:, 0]).T,
            "You looked at the first number of each output. Any of its numbers may have moved: .any(axis=-1).",
            LEAK,
        ),
        Misconception(
            "last number only",
            lambda before, after: (after[..., -1] != before[:, -1]).T,
            "You looked at the last number of each output. Any of its numbers may have moved: .any(axis=-1).",
            LEAK,
        ),
        Misconception(
            "over the outputs",
            lambda before, after: (after != before).any(axis=1),
            "Your any ran over the outputs, and what is left are experiments and numbers. It runs over the numbers of an output: axis=-1.",
            LEAK,
        ),
        Misconception(
            "zeros and ones",
            lambda before, after: who_moved(before, after).astype(int),
            "The table is right, in numbers. It is to be made of booleans, like a mask.",
            LEAK,
        ),
        Misconception(
            "one answer for all",
            lambda before, after: (after != before).any(),
            "This is one answer for the whole experiment. The table has one for each pair of output and token.",
            LEAK,
        ),
    ),
    alternatives=(
        lambda before, after: np.array([[not np.array_equal(a, b) for a in after[:, i]] for i, b in enumerate(before)]),
        lambda before, after: (np.abs(after - before).sum(axis=-1) > 0).T,
        lambda before, after: (after.swapaxes(0, 1) != before[:, None]).any(axis=2),
        lambda before, after: np.stack([(out != before).any(axis=1) for out in after], axis=1),
    ),
)


# --- 07.7 ---------------------------------------------------------------------------------------------------


def which_leak() -> Any:
    """Six programs that hide the future. The last token is changed: does any earlier output move (beyond rounding)?

    One layer of causal attention in float64, all rows with something to attend to:
    1. scores of the future become -∞, then softmax;       2. scores of the future become 0, then softmax;
    3. softmax, then weights of the future become 0;       4. as 3, then each row is divided by its sum;
    5. scores of the future become -1e9, then softmax.
    Two layers: 6. the first has the mask of 1, the second has none.
    Return a list of six, True where something leaks.
    """
    return [False, True, True, False, False, True]


def _guess(*leaks: int) -> Callable[[], list[bool]]:
    return lambda: [number in leaks for number in range(1, 7)]


WHICH_LEAK = Exercise(
    id="07.7",
    title="Which of these leak?",
    answer="course_lib.exercises.u07.which_leak",
    minutes=5,
    outcomes=("07-b",),
    checks=(Check("the six predictions", 2),),
    cases=lambda draw: [Case("the six predictions")],
    hints=(
        "For each: is there any way from the last token to an earlier output? Ways lead through weights and sums.",
        "A softmax divides by a sum over all scores that it is given. Whose scores are in that sum?",
        "exp(0) = 1, exp(-1e9) = 0. In 3 the sum has the future in it; in 4 that sum cancels. In 6 follow the second layer.",
    ),
    misconceptions=(
        Misconception(
            "0 is nothing",
            _guess(3, 6),
            "A score of 0 is not nothing: exp(0) is 1, so the future gets weight in program 2.",
            INFINITY,
        ),
        Misconception(
            "a weight of 0 is enough",
            _guess(2, 6),
            "In program 3 the future still stands in the softmax's denominator: it makes the weights of the past smaller or larger.",
            LEAK,
        ),
        Misconception(
            "too late to mend",
            _guess(2, 3, 4, 6),
            "Dividing by the row's sum cancels the old denominator: program 4 gives the same weights as program 1.",
            LEAK,
        ),
        Misconception(
            "-1e9 is not infinity",
            _guess(2, 3, 5, 6),
            "exp(-1e9) is exactly 0 in float64 and in float32. Where a row has any key to see, program 5 equals program 1.",
            INFINITY,
        ),
        Misconception(
            "one mask is enough",
            _guess(2, 3),
            "The second layer of program 6 reads the last token's output, which knows the last token. Every layer needs its mask.",
            LEAK,
        ),
        Misconception(
            "everything leaks",
            _guess(1, 2, 3, 4, 5, 6),
            "exp(-∞) is exactly 0, and 0 times a value adds nothing: program 1 cannot leak.",
            LEAK,
        ),
        Misconception(
            "nothing leaks",
            _guess(),
            "Three of them leak. Begin with 2: exp(0) is 1, so the future gets weight.",
            INFINITY,
        ),
        Misconception(
            "only the scores of 0",
            _guess(2),
            "2 is right. Now 3: whose scores are in the sum that the softmax divides by? And 6: what does the second layer read?",
            LEAK,
        ),
        Misconception(
            "only the late mask",
            _guess(3),
            "3 is right. Now 2: exp(0) is 1. And 6: the last output of layer 1 knows the last token, and layer 2 reads it.",
            LEAK,
        ),
        Misconception(
            "late masks swapped",
            _guess(2, 4, 6),
            "3 and 4 are turned around: dividing each row by its sum is what cancels the denominator with the future in it.",
            LEAK,
        ),
        Misconception(
            "only minus infinity is safe",
            _guess(2, 3, 4, 5, 6),
            "Two are too strict: dividing by the sum in 4 cancels the future again, and exp(-1e9) in 5 is exactly 0.",
            LEAK,
        ),
        Misconception(
            "upside down",
            _guess(1, 4, 5),
            "All six are turned around: True says that something leaks.",
            LEAK,
        ),
    ),
    prediction=True,
)

EXERCISES = (
    COUNT_PAIRS,
    SEE_THE_PAST,
    BATCH_MASK,
    MASKED_WEIGHTS,
    DECODER_ATTENTION,
    WHO_MOVED,
    WHICH_LEAK,
)
