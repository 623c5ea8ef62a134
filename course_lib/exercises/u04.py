"""Unit 04, queries, keys and values: NumPy in, NumPy out, and no scale yet (that is unit 05)."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from ..by_hand import softmax
from .declare import Case, Check, Draw, Exercise, Misconception

Array = np.ndarray

LOOKUP = ("04", "A soft lookup blends all values")
ROLES = ("04", "One vector plays three roles")
SCORES = ("04", "A score is a dot product of a query and a key")
ROWS = ("04", "Softmax runs along each row")
SUM = ("04", "The output is a weighted sum of values")
MATRIX = ("04", "All pairs are one matrix product")
CROSS = ("04", "Queries may come from another sequence")
COLUMNS = ("04", "Rows or columns: the same numbers, transposed")


# --- 04.1 ---------------------------------------------------------------------------------------------------


def scores_of_a_new_token() -> Any:
    """A new token [1, 0, 0, 0] asks. Its scores with the keys of tokens 1, 2 and 3, with pencil and paper.

    Return a list of three numbers. Use X, W_q and W_k as they stand above; no softmax yet.
    """
    return [1, 4, 3]


SCORES_BY_HAND = Exercise(
    id="04.1",
    title="Three scores by hand",
    answer="course_lib.exercises.u04.scores_of_a_new_token",
    minutes=5,
    outcomes=("04-b",),
    checks=(Check("the three scores of the new token", 2),),
    cases=lambda draw: [Case("the three scores of the new token")],
    hints=(
        "The new token asks the question here: you need its query, and the key of every token of X.",
        "A query is the token's row times W_q, a key is a token's row times W_k: [1, 0, 0, 0] picks one row of its matrix.",
        "The query is [1, 0, 1]. The keys are [0, 1, 1], [4, 4, 0] and [2, 3, 1]. Three dot products are left.",
    ),
    misconceptions=(
        Misconception(
            "roles swapped",
            lambda: [2, 2, 3],
            "Here the three tokens ask and the new one is looked at: you took its key and their queries. The new token asks.",
            ROLES,
        ),
        Misconception(
            "inputs, or keys with keys",
            lambda: [1, 0, 1],
            "These are dot products of the inputs as they stand (unit 03), or of keys with keys. What asks is first made a "
            "query, by W_q; what is looked at is made a key, by W_k.",
            ROLES,
        ),
        Misconception(
            "query with queries",
            lambda: [3, 4, 5],
            "You multiplied the query with the three queries. A query looks at keys: W_k makes what it is compared with.",
            ROLES,
        ),
        Misconception(
            "no transpose",
            lambda: [2, 4, 2],
            "This is q K without a transpose: it adds up rows of K. A score is a dot product of q with one key, a row of K.",
            MATRIX,
        ),
        Misconception(
            "token 1 asks",
            lambda: [2, 4, 4],
            "These are the scores of token 1, from the lecture. The new token asks with its own query, [1, 0, 0, 0] W_q.",
            SCORES,
        ),
        Misconception(
            "query with values",
            lambda: [4, 2, 5],
            "You multiplied the query with the values. A query looks at keys; values are read afterwards.",
            ROLES,
        ),
        Misconception(
            "scaled",
            lambda: [1 / 3**0.5, 4 / 3**0.5, 3 / 3**0.5],
            "You divided by √d_k. That is right, and it is unit 05: here the scores are the bare dot products.",
            SCORES,
        ),
        Misconception(
            "weights",
            lambda: softmax([1, 4, 3]),
            "These are the weights already. The question stops one step earlier: the scores, before the softmax.",
            SCORES,
        ),
    ),
    prediction=True,
)


# --- 04.2 ---------------------------------------------------------------------------------------------------


def project(x: Array, w_q: Array, w_k: Array, w_v: Array) -> tuple[Array, Array, Array]:
    """Queries, keys and values of all tokens.

    x is (T, D), a token per row; w_q and w_k are (D, d_k), w_v is (D, d_v).
    Return three arrays: q (T, d_k), k (T, d_k), v (T, d_v).
    """
    return x @ w_q, x @ w_k, x @ w_v


def _projection_cases(draw: Draw) -> list[Case]:
    def case(check: str, t: int, d: int, k: int, v: int, note: str = "") -> Case:
        return Case(check, (draw(t, d), draw(d, k), draw(d, k), draw(d, v)), note)

    return [
        case("the right shapes and numbers", 2, 4, 3, 5),
        case("the right shapes and numbers", 6, 5, 2, 3, "more tokens"),
        case("square matrices too", 3, 3, 3, 3, "where a wrong transpose has the right shape"),
    ]


PROJECT = Exercise(
    id="04.2",
    title="Three roles for every token",
    answer="course_lib.exercises.u04.project",
    minutes=5,
    outcomes=("04-a",),
    checks=(Check("the right shapes and numbers", 2), Check("square matrices too")),
    cases=_projection_cases,
    hints=(
        "Tokens are rows. What stands on which side of the product, so that each row meets the matrix?",
        "(T, D) times (D, d_k) is (T, d_k): the tokens stand on the left.",
        "Three products with @, in the order q, k, v: the first is x @ w_q.",
    ),
    misconceptions=(
        Misconception(
            "values not projected",
            lambda x, w_q, w_k, w_v: (x @ w_q, x @ w_k, x),
            "The values are the bare inputs here. What a token hands out is a role of its own: v = x W_v.",
            ROLES,
        ),
        Misconception(
            "transposed matrices",
            lambda x, w_q, w_k, w_v: (x @ w_q.T, x @ w_k.T, x @ w_v.T),
            "You transposed the matrices. In this course they are (D, d_k) and tokens are rows: q = x W, no transpose.",
            COLUMNS,
        ),
        Misconception(
            "columns",
            lambda x, w_q, w_k, w_v: ((x @ w_q).T, (x @ w_k).T, (x @ w_v).T),
            "Your tokens became columns. They are rows in this course, before and after the projection.",
            COLUMNS,
        ),
        Misconception(
            "queries and keys swapped",
            lambda x, w_q, w_k, w_v: (x @ w_k, x @ w_q, x @ w_v),
            "Queries and keys are swapped: what asks is made by W_q, what is looked at by W_k.",
            ROLES,
        ),
        Misconception(
            "one matrix for queries and keys",
            lambda x, w_q, w_k, w_v: (x @ w_q, x @ w_q, x @ w_v),
            "Queries and keys come from one matrix here, so the score of i with j is always that of j with i. Two matrices free them.",
            ROLES,
        ),
        Misconception(
            "another order",
            lambda x, w_q, w_k, w_v: (x @ w_q, x @ w_v, x @ w_k),
            "Three right arrays in another order: return q, then k, then v.",
            ROLES,
        ),
        Misconception(
            "stacked",
            lambda x, w_q, w_k, w_v: np.concatenate([x @ w_q, x @ w_k, x @ w_v], axis=1),
            "You glued the three into one array. Roles differ, and widths may: return three arrays.",
            ROLES,
        ),
    ),
    alternatives=(
        lambda x, w_q, w_k, w_v: tuple(np.einsum("td,dk->tk", x, w) for w in (w_q, w_k, w_v)),
        lambda x, w_q, w_k, w_v: [np.array([row @ w for row in x]) for w in (w_q, w_k, w_v)],
        lambda x, w_q, w_k, w_v: tuple((w.T @ x.T).T for w in (w_q, w_k, w_v)),
    ),
)


# --- 04.3 ---------------------------------------------------------------------------------------------------


def attend_once(query: Array, keys: Array, values: Array) -> Array:
    """What one query reads: scores with all keys, softmax, weighted sum of the values.

    query is (d_k,), keys is (S, d_k), values is (S, d_v). Return an array (d_v,).
    `softmax` is imported above.
    """
    scores = np.array([query @ key for key in keys])
    weights = softmax(scores)
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


LARGE = 800.0  # exp of it is infinity


def _far_up(vectors: Array, by: float | Array) -> Array:
    """The same vectors with one more number behind them: scores far from 0 whose differences stay small."""
    return np.concatenate([vectors, np.broadcast_to(by, vectors.shape[:-1])[..., None]], axis=-1)


def _one_query_cases(draw: Draw) -> list[Case]:
    return [
        Case("one query over three keys", (draw(4), draw(3, 4), draw(3, 2))),
        Case(
            "any number of keys",
            (draw(3), draw(1, 3), draw(1, 5)),
            "a single key: its value comes back whole",
        ),
        Case("any number of keys", (draw(3), draw(6, 3), draw(6, 2))),
        Case("large scores", (_far_up(draw(3), LARGE), _far_up(draw(5, 3), 1.0), draw(5, 2)), "scores around 800"),
    ]


def _weighted_by(scores_of: Any) -> Any:
    return lambda query, keys, values: scores_of(query, keys) @ values


def _unsafe_softmax(scores: Array) -> Array:
    with np.errstate(all="ignore"):
        exps = np.exp(scores)
        return exps / exps.sum(axis=-1, keepdims=True)


ATTEND_ONCE = Exercise(
    id="04.3",
    title="What one query reads",
    answer="course_lib.exercises.u04.attend_once",
    minutes=8,
    outcomes=("04-b",),
    checks=(Check("one query over three keys", 2), Check("any number of keys"), Check("large scores")),
    cases=_one_query_cases,
    hints=(
        "Three stages, as in unit 03: similarity, softmax, weighted sum. Only what is compared has changed.",
        "One score per key: keys @ query gives all of them. softmax makes weights of them, which sum to 1.",
        "The output is weights[0] * values[0] + weights[1] * values[1] + …, the same as weights @ values.",
    ),
    misconceptions=(
        Misconception(
            "no softmax",
            _weighted_by(lambda query, keys: keys @ query),
            "You weighted the values with bare scores. Softmax turns scores into weights: positive, and 1 in sum.",
            ROWS,
        ),
        Misconception(
            "best key only",
            lambda query, keys, values: values[np.argmax(keys @ query)],
            "This is a hard lookup: only the best value comes back. Attention blends all values, by softmax.",
            LOOKUP,
        ),
        Misconception(
            "keys summed",
            lambda query, keys, values: softmax(keys @ query) @ keys,
            "You summed the keys. Keys are for finding; what is handed out are the values.",
            SUM,
        ),
        Misconception(
            "scores with values",
            lambda query, keys, values: softmax(values @ np.resize(query, values.shape[1])) @ values,
            "You compared the query with the values. It is compared with the keys, and reads the values.",
            ROLES,
        ),
        Misconception(
            "plain average",
            lambda query, keys, values: values.mean(axis=0),
            "Every value has the same weight here. The weights should follow the scores of the query with the keys.",
            SUM,
        ),
        Misconception(
            "divided by the sum",
            _weighted_by(lambda query, keys: (keys @ query) / (keys @ query).sum()),
            "You divided the scores by their sum. Scores may be negative; softmax takes exponentials first.",
            ROWS,
        ),
        Misconception(
            "scaled",
            _weighted_by(lambda query, keys: softmax(keys @ query / np.sqrt(len(query)))),
            "You divided by √d_k. That is right, and it is unit 05: here the scores are the bare dot products.",
            SCORES,
        ),
        Misconception(
            "overflow",
            _weighted_by(lambda query, keys: _unsafe_softmax(keys @ query)),
            "exp of a large score is infinity, and infinity / infinity is NaN. Subtract the largest score first.",
            ROWS,
        ),
        Misconception(
            "every weight is 1",
            lambda query, keys, values: values.sum(axis=0),
            "Every weight is 1 here: softmax ran over too few numbers. It is one softmax over the scores of all keys.",
            ROWS,
        ),
        Misconception(
            "exponentials only",
            _weighted_by(lambda query, keys: np.exp(np.minimum(keys @ query, 700))),
            "These are exponentials that nobody divided by their sum, so the weights do not sum to 1.",
            ROWS,
        ),
        Misconception(
            "softmax twice",
            _weighted_by(lambda query, keys: softmax(softmax(keys @ query))),
            "Softmax ran twice, which makes the weights nearly equal. Scores go through it once.",
            ROWS,
        ),
        Misconception(
            "the weights returned",
            lambda query, keys, values: softmax(keys @ query),
            "These are the weights. One step is left: the sum of the values, each times its weight.",
            SUM,
        ),
        Misconception(
            "not summed",
            lambda query, keys, values: softmax(keys @ query)[:, None] * values,
            "You weighted the values and did not add them up: the output is one vector, their sum.",
            SUM,
        ),
    ),
    alternatives=(
        lambda query, keys, values: softmax(keys @ query) @ values,
        lambda query, keys, values: np.einsum("s,sv->v", softmax(np.einsum("k,sk->s", query, keys)), values),
        lambda query, keys, values: (softmax(query[None] @ keys.T) @ values)[0],
    ),
)


# --- 04.4 ---------------------------------------------------------------------------------------------------


def attention(q: Array, k: Array, v: Array) -> Array:
    """Attention of all queries at once: softmax(q kᵀ) v, no scale.

    q is (T, d_k), k is (S, d_k), v is (S, d_v); T and S may differ. Return an array (T, d_v).
    """
    scores = q @ k.T
    weights = softmax(scores)
    return weights @ v


def _attention_cases(draw: Draw) -> list[Case]:
    far = np.array([LARGE, -LARGE, 2 * LARGE])  # each row of scores lies elsewhere
    return [
        Case("as many queries as keys", (draw(2, 3), draw(2, 3), draw(2, 4))),
        Case("as many queries as keys", (draw(4, 4), draw(4, 4), draw(4, 4)), "all sizes equal"),
        Case("more keys than queries, and fewer", (draw(2, 3), draw(5, 3), draw(5, 4))),
        Case("more keys than queries, and fewer", (draw(6, 3), draw(4, 3), draw(4, 2))),
        Case(
            "large scores", (_far_up(draw(3, 3), far), _far_up(draw(5, 3), 1.0), draw(5, 2)), "scores of ±800 and more"
        ),
    ]


def _scores_by(scores_of: Any) -> Any:
    return lambda q, k, v: softmax(scores_of(q, k)) @ v


def _in_place(q: Array, k: Array, v: Array) -> Array:
    scores = q @ k.T
    q -= q.max()
    return softmax(scores) @ v


def _loops(q: Array, k: Array, v: Array) -> Array:
    return np.array([sum(w * row for w, row in zip(softmax(k @ one), v, strict=True)) for one in q])


ATTENTION = Exercise(
    id="04.4",
    title="Attention for all queries at once",
    answer="course_lib.exercises.u04.attention",
    minutes=10,
    outcomes=("04-c",),
    checks=(
        Check("as many queries as keys", 2),
        Check("more keys than queries, and fewer", 2),
        Check("large scores"),
    ),
    cases=_attention_cases,
    hints=(
        "Row i of the scores belongs to query i and holds its dot products with all keys: a (T, S) array.",
        "q @ k.T has just these numbers. softmax runs along each row, over the keys, which is what it does by default.",
        "(T, S) weights times (S, d_v) values is (T, d_v): three lines, one for each of scores, weights, output.",
    ),
    misconceptions=(
        Misconception(
            "over the queries",
            lambda q, k, v: softmax(q @ k.T, axis=0) @ v,
            "These weights sum to 1 over the queries, not over the keys: softmax must run along each row.",
            ROWS,
        ),
        Misconception(
            "over everything",
            lambda q, k, v: softmax((q @ k.T).ravel()).reshape(len(q), len(k)) @ v,
            "All weights together sum to 1 here. Each query has a softmax of its own: every row sums to 1.",
            ROWS,
        ),
        Misconception(
            "roles swapped",
            lambda q, k, v: softmax(k @ q.T) @ v,
            "You computed k qᵀ, so the keys ask and the queries answer. Rows of the scores belong to queries: q kᵀ.",
            MATRIX,
        ),
        Misconception(
            "no transpose",
            lambda q, k, v: softmax(q @ k) @ v,
            "q k without a transpose multiplies rows with columns that mean nothing (or does not fit at all): q kᵀ.",
            MATRIX,
        ),
        Misconception(
            "keys summed",
            lambda q, k, v: softmax(q @ k.T) @ k,
            "You multiplied the weights with the keys. Keys are for finding; what is handed out are the values.",
            SUM,
        ),
        Misconception(
            "no softmax",
            lambda q, k, v: q @ k.T @ v,
            "You weighted the values with bare scores. Softmax turns scores into weights: positive, and 1 in sum.",
            ROWS,
        ),
        Misconception(
            "scaled",
            _scores_by(lambda q, k: q @ k.T / np.sqrt(q.shape[-1])),
            "You divided by √d_k. That is right, and it is unit 05: here the scores are the bare dot products.",
            SCORES,
        ),
        Misconception(
            "divided by the number of keys",
            _scores_by(lambda q, k: q @ k.T / len(k)),
            "You divided the scores by the number of keys. It has nothing to do with a dot product; no division here.",
            MATRIX,
        ),
        Misconception(
            "overflow",
            lambda q, k, v: _unsafe_softmax(q @ k.T) @ v,
            "exp of a large score is infinity, and infinity / infinity is NaN. Subtract each row's maximum first.",
            ROWS,
        ),
        Misconception(
            "one maximum for all",
            lambda q, k, v: _unsafe_softmax(q @ k.T - (q @ k.T).max()) @ v,
            "You subtracted one maximum for all rows, so a row far below it becomes 0 / 0. Each row has its own.",
            ROWS,
        ),
        Misconception(
            "hard lookup",
            lambda q, k, v: v[np.argmax(q @ k.T, axis=-1)],
            "This is a hard lookup: each query takes the one best value. Attention blends all values, by softmax.",
            LOOKUP,
        ),
        Misconception(
            "summed over the queries",
            lambda q, k, v: (softmax(q @ k.T) @ v).sum(axis=0),
            "You summed over i, the queries. Output i is a sum over j, the keys; there is one output for each query.",
            SUM,
        ),
        Misconception(
            "exponentials only",
            lambda q, k, v: np.exp(np.minimum(q @ k.T, 700)) @ v,
            "These are exponentials that nobody divided by their sum, so the rows of weights do not sum to 1.",
            ROWS,
        ),
        Misconception(
            "softmax twice",
            lambda q, k, v: softmax(softmax(q @ k.T)) @ v,
            "Softmax ran twice, which makes the weights nearly equal. Scores go through it once.",
            ROWS,
        ),
        Misconception(
            "the weights returned",
            lambda q, k, v: softmax(q @ k.T),
            "These are the weights. One step is left: the sum of the values, each times its weight.",
            SUM,
        ),
        Misconception(
            "summed over the queries, key by key",
            lambda q, k, v: (softmax(q @ k.T)[:, :, None] * v).sum(axis=0),
            "You summed over i, the queries, and kept the keys. Output i is a sum over j, the keys.",
            SUM,
        ),
        Misconception(
            "changes its input",
            _in_place,
            "The numbers are right, but q is changed on the way (-=, *= and the like work in place). Make a new array.",
            MATRIX,
        ),
    ),
    alternatives=(
        _loops,
        lambda q, k, v: np.einsum("ts,sv->tv", softmax(np.einsum("tk,sk->ts", q, k)), v),
        lambda q, k, v: (v.T @ softmax(k @ q.T, axis=0)).T,
        lambda q, k, v: (lambda e: (e @ v) / e.sum(1, keepdims=True))(
            np.exp(q @ k.T - (q @ k.T).max(1, keepdims=True))
        ),
        lambda q, k, v: np.stack([softmax(k @ row) @ v for row in q]),
    ),
)


# --- 04.5 ---------------------------------------------------------------------------------------------------


def cross_attention(x: Array, memory: Array, w_q: Array, w_k: Array, w_v: Array) -> Array:
    """The tokens of x read the tokens of memory. You may call your `attention` from above.

    x is (T, D) and asks; memory is (S, D) and is read. w_q and w_k are (D, d_k), w_v is (D, d_v).
    Return an array (T, d_v): one row for each token of x.
    """
    return attention(x @ w_q, memory @ w_k, memory @ w_v)


def _cross_cases(draw: Draw) -> list[Case]:
    def case(check: str, t: int, s: int, d: int, k: int, v: int, note: str = "") -> Case:
        return Case(check, (draw(t, d), draw(s, d), draw(d, k), draw(d, k), draw(d, v)), note)

    return [
        case("two sequences of one length", 3, 3, 4, 2, 5),
        case("two sequences of different lengths", 2, 5, 4, 3, 6),
        case("two sequences of different lengths", 6, 4, 3, 2, 5),
    ]


CROSS_ATTENTION = Exercise(
    id="04.5",
    title="Reading another sequence",
    answer="course_lib.exercises.u04.cross_attention",
    minutes=8,
    outcomes=("04-d",),
    checks=(Check("two sequences of one length"), Check("two sequences of different lengths", 2)),
    cases=_cross_cases,
    hints=(
        "Who asks? Who is looked at, and who hands out? Only one of the three roles belongs to x.",
        "Queries come from x. Keys and values come from memory, both of them: what is found is what is read.",
        "Your `attention` takes q (T, d_k), k (S, d_k) and v (S, d_v): make these three and call it.",
    ),
    misconceptions=(
        Misconception(
            "values from x",
            lambda x, memory, w_q, w_k, w_v: attention(x @ w_q, memory @ w_k, x @ w_v),
            "The values come from x here. What is read belongs to what was looked at: keys and values from memory.",
            CROSS,
        ),
        Misconception(
            "keys from x",
            lambda x, memory, w_q, w_k, w_v: attention(x @ w_q, x @ w_k, memory @ w_v),
            "The keys come from x, so x looks at itself and reads elsewhere. Keys and values both come from memory.",
            CROSS,
        ),
        Misconception(
            "memory asks",
            lambda x, memory, w_q, w_k, w_v: attention(memory @ w_q, x @ w_k, x @ w_v),
            "The two are swapped: memory asks and x is read. The output needs one row for each token of x.",
            CROSS,
        ),
        Misconception(
            "self-attention of x",
            lambda x, memory, w_q, w_k, w_v: attention(x @ w_q, x @ w_k, x @ w_v),
            "This is self-attention of x: memory is never looked at.",
            CROSS,
        ),
        Misconception(
            "self-attention of memory",
            lambda x, memory, w_q, w_k, w_v: attention(memory @ w_q, memory @ w_k, memory @ w_v),
            "This is self-attention of memory: no token of x asks.",
            CROSS,
        ),
        Misconception(
            "scaled",
            lambda x, memory, w_q, w_k, w_v: attention(x @ w_q / np.sqrt(w_q.shape[1]), memory @ w_k, memory @ w_v),
            "You divided by √d_k. That is right, and it is unit 05: here the scores are the bare dot products.",
            SCORES,
        ),
        Misconception(
            "matrices swapped",
            lambda x, memory, w_q, w_k, w_v: attention(x @ w_k, memory @ w_q, memory @ w_v),
            "W_q and W_k are swapped: W_q makes the queries, from x; W_k makes the keys, from memory.",
            ROLES,
        ),
        Misconception(
            "values not projected",
            lambda x, memory, w_q, w_k, w_v: attention(x @ w_q, memory @ w_k, memory),
            "The values are the bare memory here. What is handed out is projected too: memory W_v.",
            ROLES,
        ),
        Misconception(
            "over the queries",
            lambda x, memory, w_q, w_k, w_v: softmax(x @ w_q @ (memory @ w_k).T, axis=0) @ memory @ w_v,
            "These weights sum to 1 over the queries, not over the keys: softmax must run along each row.",
            ROWS,
        ),
        Misconception(
            "both sequences in one",
            lambda x, memory, w_q, w_k, w_v: attention(
                x @ w_q, np.concatenate([x, memory]) @ w_k, np.concatenate([x, memory]) @ w_v
            ),
            "Your queries look at x and memory together. Cross-attention looks at memory only.",
            CROSS,
        ),
    ),
    alternatives=(
        lambda x, memory, w_q, w_k, w_v: softmax((x @ w_q) @ (memory @ w_k).T) @ (memory @ w_v),
        lambda x, memory, w_q, w_k, w_v: softmax(x @ (w_q @ w_k.T) @ memory.T) @ memory @ w_v,
        lambda x, memory, w_q, w_k, w_v: np.array([attend_once(t @ w_q, memory @ w_k, memory @ w_v) for t in x]),
    ),
)


# --- 04.6 ---------------------------------------------------------------------------------------------------


def soft_lookup(query: Array, keys: Array, values: Array, temperature: float) -> Array:
    """A soft dictionary: the scores are divided by the temperature before the softmax.

    query is (d_k,), keys is (S, d_k), values is (S, d_v), temperature is above 0. Return an array (d_v,).
    The colder, the closer to a database, which returns the value of the best key alone.
    """
    return softmax(keys @ query / temperature) @ values


def _lookup_cases(draw: Draw) -> list[Case]:
    query, keys, values = draw(4), draw(5, 4), draw(5, 2)
    keys[2] = query / (query @ query)  # a score of 1: a softmax without care overflows when it is cold
    return [
        Case("temperature 1 is attention", (query, keys, values, 1.0)),
        Case("warm blends more, cold less", (query, keys, values, 0.5), "colder"),
        Case("warm blends more, cold less", (query, keys, values, 4.0), "warmer"),
        Case("the two ends", (query, keys, values, 1e-5), "nearly a database"),
        Case("the two ends", (query, keys, values, 1e6), "nearly a plain average"),
    ]


SOFT_LOOKUP = Exercise(
    id="04.6",
    title="From a soft lookup to a hard one",
    answer="course_lib.exercises.u04.soft_lookup",
    minutes=6,
    outcomes=("04-e",),
    checks=(
        Check("temperature 1 is attention"),
        Check("warm blends more, cold less"),
        Check("the two ends"),
    ),
    cases=_lookup_cases,
    hints=(
        "Start from `attend_once`. To which of its three stages does the temperature belong?",
        "A cold dictionary sees large differences between scores, a warm one small differences. What must a small number "
        "do to the scores for that?",
        "softmax(scores / temperature), and then the weighted sum of the values.",
    ),
    misconceptions=(
        Misconception(
            "multiplied",
            lambda query, keys, values, temperature: softmax(keys @ query * temperature) @ values,
            "You multiplied by the temperature, so warm is sharp and cold is flat. It divides the scores.",
            LOOKUP,
        ),
        Misconception(
            "ignored",
            lambda query, keys, values, temperature: softmax(keys @ query) @ values,
            "The temperature has no effect here: the blend is that of temperature 1.",
            LOOKUP,
        ),
        Misconception(
            "after the softmax",
            lambda query, keys, values, temperature: softmax(keys @ query) / temperature @ values,
            "You divided after the softmax (the weights, the values or the output), so the weights no longer sum to 1. The scores are divided, before it.",
            LOOKUP,
        ),
        Misconception(
            "divided twice",
            lambda query, keys, values, temperature: softmax((keys / temperature) @ (query / temperature)) @ values,
            "Query and keys are both divided, so the scores are divided by the temperature squared. Once is enough.",
            LOOKUP,
        ),
        Misconception(
            "always hard",
            lambda query, keys, values, temperature: values[np.argmax(keys @ query)],
            "This is the database: the best value alone, at every temperature. Only near 0 should it come to that.",
            LOOKUP,
        ),
        Misconception(
            "overflow",
            lambda query, keys, values, temperature: _unsafe_softmax(keys @ query / temperature) @ values,
            "At low temperature exp becomes infinity or 0, and the weights inf/inf or 0/0. Divide the scores first, inside a softmax that subtracts the largest.",
            ROWS,
        ),
        Misconception(
            "scaled",
            lambda query, keys, values, temperature: softmax(keys @ query / np.sqrt(len(query)) / temperature) @ values,
            "You divided by √d_k as well. That is unit 05: here the temperature alone divides the scores.",
            SCORES,
        ),
        Misconception(
            "keys returned",
            lambda query, keys, values, temperature: softmax(keys @ query / temperature) @ keys,
            "You blended the keys. Keys are for finding; what comes back are the values.",
            SUM,
        ),
    ),
    alternatives=(
        lambda query, keys, values, temperature: softmax((query / temperature) @ keys.T) @ values,
        lambda query, keys, values, temperature: attend_once(query / temperature, keys, values),
        lambda query, keys, values, temperature: values.T @ softmax(np.dot(keys, query) * (1 / temperature)),
    ),
)


# --- 04.7 ---------------------------------------------------------------------------------------------------


def attention_columns(x: Array, w_q: Array, w_k: Array, w_v: Array) -> Array:
    """Self-attention in the other convention, where tokens are columns: q = W_q x for each column x.

    x is (D, T); w_q and w_k are (d_k, D), w_v is (d_v, D). Return an array (d_v, T), a column for each token.
    """
    q, k, v = w_q @ x, w_k @ x, w_v @ x
    weights = softmax(k.T @ q, axis=0)
    return v @ weights


def _column_cases(draw: Draw) -> list[Case]:
    def case(check: str, t: int, d: int, k: int, v: int, note: str = "") -> Case:
        return Case(check, (draw(d, t), draw(k, d), draw(k, d), draw(v, d)), note)

    return [
        case("columns in, columns out", 3, 4, 2, 5),
        case("columns in, columns out", 6, 3, 4, 2),
        case("square matrices too", 4, 4, 4, 4, "where a wrong transpose has the right shape"),
    ]


def _rows_of(x: Array, w_q: Array, w_k: Array, w_v: Array) -> Array:
    return attention(x.T @ w_q.T, x.T @ w_k.T, x.T @ w_v.T)


ATTENTION_COLUMNS = Exercise(
    id="04.7",
    title="The same in columns",
    answer="course_lib.exercises.u04.attention_columns",
    minutes=10,
    outcomes=("04-f",),
    checks=(Check("columns in, columns out", 2), Check("square matrices too")),
    cases=_column_cases,
    hints=(
        "Everything is transposed: (W x)ᵀ = xᵀ Wᵀ. You may transpose, use what you have, and transpose back.",
        "Or stay in columns: q = w_q @ x is (d_k, T). In kᵀ q, which axis belongs to the keys?",
        "The weights of one query now stand in a column, so softmax runs down each column (axis=0), and v @ weights.",
    ),
    misconceptions=(
        Misconception(
            "softmax along the rows",
            lambda x, w_q, w_k, w_v: (w_v @ x) @ softmax((w_k @ x).T @ (w_q @ x), axis=1),
            "In kᵀ q the keys run down the columns, so softmax must too: over the keys, whichever way they lie.",
            COLUMNS,
        ),
        Misconception(
            "roles swapped",
            lambda x, w_q, w_k, w_v: (w_v @ x) @ softmax((w_q @ x).T @ (w_k @ x), axis=0),
            "With qᵀ k the columns belong to keys, and v @ weights needs a column for each query: kᵀ q.",
            COLUMNS,
        ),
        Misconception(
            "row weights on the right",
            lambda x, w_q, w_k, w_v: (w_v @ x) @ softmax((w_q @ x).T @ (w_k @ x), axis=1),
            "The weights are right, a row for each query; in columns the weights are transposed: v Aᵀ.",
            COLUMNS,
        ),
        Misconception(
            "rows out",
            _rows_of,
            "The numbers are right, and they lie in rows: the result should have a column for each token.",
            COLUMNS,
        ),
        Misconception(
            "row convention",
            lambda x, w_q, w_k, w_v: attention(x @ w_q, x @ w_k, x @ w_v),
            "This is the formula for rows. Here tokens are columns, so the matrix stands on the left: W x.",
            COLUMNS,
        ),
        Misconception(
            "features on the right",
            lambda x, w_q, w_k, w_v: (w_v @ x) @ softmax((w_q @ x) @ (w_k @ x).T),
            "q kᵀ compares features over all tokens here. Tokens are columns: kᵀ q compares tokens.",
            COLUMNS,
        ),
        Misconception(
            "scaled",
            lambda x, w_q, w_k, w_v: (w_v @ x) @ softmax((w_k @ x).T @ (w_q @ x) / np.sqrt(len(w_q)), axis=0),
            "You divided by √d_k. That is right, and it is unit 05: here the scores are the bare dot products.",
            SCORES,
        ),
        Misconception(
            "no softmax",
            lambda x, w_q, w_k, w_v: (w_v @ x) @ ((w_k @ x).T @ (w_q @ x)),
            "You weighted the values with bare scores. Softmax turns scores into weights: positive, and 1 in sum.",
            ROWS,
        ),
        Misconception(
            "tokens mistaken for features",
            lambda x, w_q, w_k, w_v: softmax((w_q @ x) @ (w_k @ x).T) @ (w_v @ x),
            "q kᵀ compares features over all tokens here. Tokens are columns: kᵀ q compares tokens.",
            COLUMNS,
        ),
    ),
    alternatives=(
        lambda x, w_q, w_k, w_v: _rows_of(x, w_q, w_k, w_v).T,
        lambda x, w_q, w_k, w_v: (w_v @ x) @ softmax((w_q @ x).T @ (w_k @ x), axis=1).T,
        lambda x, w_q, w_k, w_v: np.einsum(
            "vs,st->vt", w_v @ x, softmax(np.einsum("ks,kt->st", w_k @ x, w_q @ x), axis=0)
        ),
    ),
)


# --- 04.8 ---------------------------------------------------------------------------------------------------


def what_changes() -> Any:
    """Four predictions, each True or False. Somebody edits one matrix of numbers; what changes?

    1. V is edited: do the weights change?      2. V is edited: do the outputs change?
    3. K is edited: do the weights change?      4. K is edited: do the outputs change?
    Return them as a list of four.
    """
    return [False, True, True, True]


IDEAS_ABOUT_CHANGES = (
    "Look at the first: V does not stand inside the softmax, so the weights do not know the values. Try it in the figure.",
    "Look at the second: the outputs are sums of values. Edit a value and every output that reads it changes.",
    "Look at the third: the weights are softmax(q kᵀ). Keys stand inside it, so other keys give other weights.",
    "Look at the fourth: other weights blend the same values differently. An edit of K reaches the outputs through them.",
)


def _first_wrong_entries() -> list[Misconception]:
    """Every wrong list of four, with the idea of its first wrong entry."""
    right, swapped, found = [False, True, True, True], [True, True, False, True], []
    for answers in map(list, itertools.product((False, True), repeat=4)):
        wrong = [i for i in range(4) if answers[i] != right[i]]
        if wrong and answers != swapped:
            name = "wrong from the " + ("first", "second", "third", "fourth")[wrong[0]]
            name += "" if len(wrong) == 1 else f", {len(wrong)} in all: {''.join('FT'[a] for a in answers)}"
            found.append(Misconception(name, functools.partial(list, answers), IDEAS_ABOUT_CHANGES[wrong[0]], SUM))
    return found


WHAT_CHANGES = Exercise(
    id="04.8",
    title="Edit V only, edit K only",
    answer="course_lib.exercises.u04.what_changes",
    minutes=3,
    outcomes=("04-a",),
    checks=(Check("the four predictions"),),
    cases=lambda draw: [Case("the four predictions")],
    hints=(
        "Which of the three, q, k and v, stand inside the softmax?",
        "Weights are softmax(q kᵀ): v is not in there. Outputs are weights times v.",
        "So an edit of V passes the weights by, and an edit of K goes through them into the outputs.",
    ),
    misconceptions=(
        Misconception(
            "keys and values swapped",
            lambda: [True, True, False, True],
            "Keys and values are swapped here: keys stand inside the softmax, values are what it weights.",
            ROLES,
        ),
        *_first_wrong_entries(),
    ),
    prediction=True,
)

EXERCISES = (
    SCORES_BY_HAND,
    PROJECT,
    ATTEND_ONCE,
    ATTENTION,
    CROSS_ATTENTION,
    SOFT_LOOKUP,
    ATTENTION_COLUMNS,
    WHAT_CHANGES,
)
