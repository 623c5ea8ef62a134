"""Unit 03, self-attention without parameters: NumPy in, NumPy out, no matrices to learn and no scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..by_hand import softmax
from .declare import Case, Check, Draw, Exercise, Misconception

Array = np.ndarray

SIMILAR = ("03", "Similarity is a dot product")
ROWS = ("03", "Softmax runs along each row")
SUM = ("03", "The new vector is a weighted sum of all tokens")
SAME = ("03", "Loops and matrices give the same numbers")
INPUT = ("03", "The weights depend on the input, and on nothing else")
SHUFFLE = ("03", "Shuffling the tokens shuffles the outputs")
BAG = ("03", "Self-attention sees a bag of words")
COSINE = ("03", "A dot product is a cosine only for unit vectors")
MEASURES = ("03", "Other measures work as well")


def _unsafe_softmax(scores: Array) -> Array:
    with np.errstate(all="ignore"):
        exps = np.exp(scores)
        return exps / exps.sum(axis=-1, keepdims=True)


def _weights(x: Array) -> Array:
    return softmax(x @ x.T)


def _unit(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _loud(draw: Draw, tokens: int, width: int) -> Array:
    """Tokens that point about the same way, each longer than the one before: all read the last."""
    return 20.0 * np.arange(1, tokens + 1)[:, None] + draw(tokens, width, size=3)


# --- 03.1 ---------------------------------------------------------------------------------------------------


def scores_of_token_2() -> Any:
    """The scores of token 2 with tokens 1, 2 and 3, worked out with pencil and paper.

    Return a list of three numbers. Use X as it stands above; no softmax yet.
    """
    return [0, 8, 4]


SCORES_OF_TOKEN_2 = Exercise(
    id="03.1",
    title="Three similarities by hand",
    answer="course_lib.exercises.u03.scores_of_token_2",
    minutes=3,
    outcomes=("03-a",),
    checks=(Check("the three scores of token 2", 2),),
    cases=lambda draw: [Case("the three scores of token 2")],
    hints=(
        "Token 2 asks here: its row is compared with every row of X, its own included.",
        "A dot product multiplies place by place and adds: [0, 2, 0, 2] · [1, 0, 1, 0] = 0·1 + 2·0 + 0·1 + 2·0.",
        "That first one is 0. The second is [0, 2, 0, 2] with itself, the third is [0, 2, 0, 2] with [1, 1, 1, 1].",
    ),
    misconceptions=(
        Misconception(
            "the diagonal",
            lambda: [2, 8, 4],
            "You compared each token with itself. Token 2 is compared with every token: its row stays, the other "
            "changes.",
            SIMILAR,
        ),
        Misconception(
            "token 1's scores",
            lambda: [2, 0, 2],
            "These are the scores of token 1. Token 2 is the second row of X, [0, 2, 0, 2]: we count from 1 in the "
            "text.",
            SIMILAR,
        ),
        Misconception(
            "token 3's scores",
            lambda: [2, 4, 4],
            "These are the scores of token 3. Token 2 is the second row of X, [0, 2, 0, 2]: we count from 1 in the "
            "text.",
            SIMILAR,
        ),
        Misconception(
            "itself left out",
            lambda: [0, 4],
            "One score is missing: a token is compared with itself, too.",
            SIMILAR,
        ),
        Misconception(
            "cosines",
            lambda: [0, 1, 0.5**0.5],
            "These are cosines: you divided by the lengths. The score is the bare dot product.",
            COSINE,
        ),
        Misconception(
            "scaled",
            lambda: [0, 4, 2],
            "You halved the scores, as dividing by √4 does. That comes in unit 05: here they are bare dot products.",
            SIMILAR,
        ),
        Misconception(
            "not added up",
            lambda: [[0, 0, 0, 0], [0, 4, 0, 4], [0, 2, 0, 2]],
            "You multiplied place by place. Add up the four products of each pair: a score is one number.",
            SIMILAR,
        ),
        Misconception(
            "the row itself",
            lambda: [0, 2, 0, 2],
            "This is token 2 itself. Its scores are dot products with tokens 1, 2 and 3: three numbers.",
            SIMILAR,
        ),
        Misconception(
            "weights",
            lambda: softmax([0, 8, 4]),
            "These are the weights already. The question stops one stage earlier: the scores, before the softmax.",
            ROWS,
        ),
    ),
    prediction=True,
)


# --- 03.2 ---------------------------------------------------------------------------------------------------


def self_attention_loops(x: Array) -> Array:
    """The new vectors of all tokens, with loops: similarity, softmax, weighted sum, token by token.

    x is (T, D), a token per row; it may hold whole numbers. Return a new array (T, D): row i is the new vector
    of token i. `softmax` is imported above.
    """
    new_rows = []
    for x_i in x:
        scores = [x_i @ x_j for x_j in x]
        weights = softmax(scores)
        new_rows.append(sum(w_ij * x_j for w_ij, x_j in zip(weights, x, strict=True)))
    return np.array(new_rows)


def _loop_cases(draw: Draw) -> list[Case]:
    whole = np.array([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]])
    return [
        Case("every token becomes a mixture", (draw(2, 3),), "two tokens"),
        Case("every token becomes a mixture", (draw(5, 3),), "five tokens"),
        Case("every token becomes a mixture", (draw(4, 6),), "more width than tokens"),
        Case("whole numbers in, fractions out", (whole,), "the worked example"),
        Case("large scores", (_loud(draw, 4, 3),), "scores in the thousands"),
    ]


def _into_its_input(x: Array) -> Array:
    y = x  # no copy: two names for one array
    for i in range(len(x)):
        y[i] = softmax(x @ x[i]) @ x
    return y


def _reads_what_it_writes(x: Array) -> Array:
    y = np.array(x, dtype=float)
    for i in range(len(y)):
        y[i] = softmax(y @ y[i]) @ y
    return y


def _zeros_like(x: Array) -> Array:
    y = np.zeros_like(x)
    for i in range(len(x)):
        y[i] = softmax(x @ x[i]) @ x
    return y


def _others_only(x: Array) -> Array:
    scores = (x @ x.T).astype(float)
    np.fill_diagonal(scores, -np.inf)
    return softmax(scores) @ x


def _past_only(x: Array) -> Array:
    return np.array([softmax(x[: i + 1] @ x[i]) @ x[: i + 1] for i in range(len(x))])


def _return_in_the_loop(x: Array) -> Array:
    y = np.zeros(x.shape)
    y[0] = softmax(x @ x[0]) @ x
    return y


def _last_term(x: Array) -> Array:
    return _weights(x)[:, -1:] * x[-1]


def _zeros_and_indices(x: Array) -> Array:
    y = np.zeros(x.shape)
    for i in range(len(x)):
        weights = softmax([x[i] @ x[j] for j in range(len(x))])
        for j in range(len(x)):
            y[i] += weights[j] * x[j]
    return y


def _own_softmax(x: Array) -> Array:
    rows = []
    for asking in x.astype(float):
        exps = np.exp(x @ asking - (x @ asking).max())
        rows.append((exps[:, None] * x).sum(axis=0) / exps.sum())
    return np.vstack(rows)


LOOPS = Exercise(
    id="03.2",
    title="Self-attention with loops",
    answer="course_lib.exercises.u03.self_attention_loops",
    minutes=10,
    outcomes=("03-a",),
    checks=(
        Check("every token becomes a mixture", 2),
        Check("whole numbers in, fractions out"),
        Check("large scores"),
    ),
    cases=_loop_cases,
    hints=(
        "Begin with one token, x[0]: its dot products with all tokens, softmax of these, the weighted sum. Then a "
        "loop.",
        "For token i: scores = [x[i] @ x[j] for every j], weights = softmax(scores), a list as long as the sentence.",
        "y[i] is weights[0] * x[0] + weights[1] * x[1] + …; collect the y[i] in a new array: np.zeros(x.shape), or a "
        "list.",
    ),
    misconceptions=(
        Misconception(
            "writes into its input",
            _into_its_input,
            "`y = x` makes no copy: while you fill y, x changes under your hands. Collect the rows in a new array.",
            SAME,
        ),
        Misconception(
            "reads what it has written",
            _reads_what_it_writes,
            "Later tokens read new vectors of earlier ones. All are made from the old x: read x, write elsewhere.",
            SAME,
        ),
        Misconception(
            "cut to whole numbers",
            _zeros_like,
            "np.zeros_like(x) holds whole numbers if x does, and cuts the fractions off. np.zeros(x.shape) does not.",
            SAME,
        ),
        Misconception(
            "no softmax",
            lambda x: x @ x.T @ x,
            "You weighted the tokens with bare scores. Softmax makes weights of them: positive, and 1 in sum.",
            ROWS,
        ),
        Misconception(
            "divided by the sum",
            lambda x: (x @ x.T) / (x @ x.T).sum(axis=1, keepdims=True) @ x,
            "You divided the scores by their sum. Scores may be negative or cancel; softmax takes exponentials first.",
            ROWS,
        ),
        Misconception(
            "over the rows that ask",
            lambda x: softmax(x @ x.T, axis=0) @ x,
            "Token i's own weights should sum to 1, over all j. Here the weights that token j receives do.",
            ROWS,
        ),
        Misconception(
            "itself left out",
            _others_only,
            "A token takes part in its own mixture: the sum runs over all j, and j = i is one of them.",
            SUM,
        ),
        Misconception(
            "only what came before",
            _past_only,
            "Your token i sees only tokens up to itself. Here all tokens see all; hiding the future comes in unit 07.",
            SUM,
        ),
        Misconception(
            "one row of weights for all",
            lambda x: np.tile(softmax(x @ x[0]) @ x, (len(x), 1)),
            "Every token gets the mixture of token 1. Each one has its own scores, so its own weights.",
            SUM,
        ),
        Misconception(
            "return inside the loop",
            _return_in_the_loop,
            "Only the first token got its new vector. Is the `return` inside the loop? It belongs behind it.",
            SAME,
        ),
        Misconception(
            "only the last term",
            _last_term,
            "Each row keeps only its last term: `=` replaces what was there. A sum needs `+=`.",
            SUM,
        ),
        Misconception(
            "the last token's vector",
            lambda x: softmax(x @ x[-1]) @ x,
            "This is the new vector of the last token alone. Collect those of all tokens, in a list or an array.",
            SAME,
        ),
        Misconception(
            "last token left out",
            lambda x: softmax(x @ x[:-1].T) @ x[:-1],
            "The last token is read by nobody: range(len(x)) already ends before len(x).",
            SUM,
        ),
        Misconception(
            "its own weight for all",
            lambda x: np.diag(_weights(x))[:, None] * x.sum(axis=0),
            "Every x_j is multiplied by the weight that token i gives to itself. Each has its own: w_ij, with the j "
            "of x_j.",
            SUM,
        ),
        Misconception(
            "the token itself",
            lambda x: x.astype(float),
            "What comes out is what went in: did you sum w_ij x_i? The sum runs over x_j.",
            SUM,
        ),
        Misconception(
            "softmax of one number",
            lambda x: np.tile(x.sum(axis=0).astype(float), (len(x), 1)),
            "Every weight is 1 here: softmax of a single number is 1. It needs all scores of token i at once.",
            ROWS,
        ),
        Misconception(
            "divided once more",
            lambda x: _weights(x) @ x / len(x),
            "You took the mean of the weighted tokens. The weights sum to 1 already: add up, and divide by nothing.",
            SUM,
        ),
        Misconception(
            "plain average",
            lambda x: np.tile(x.mean(axis=0), (len(x), 1)),
            "Every token counts the same here. Its weight should follow its similarity with the token that asks.",
            SUM,
        ),
        Misconception(
            "nearest only",
            lambda x: x[np.argmax(x @ x.T, axis=1)].astype(float),
            "You took the one most similar token. All take part, with weights: that is the soft in softmax.",
            SUM,
        ),
        Misconception(
            "weights returned",
            lambda x: _weights(x),
            "These are the weights, (T, T). One stage is left: the weighted sum of the tokens, (T, D).",
            SUM,
        ),
        Misconception(
            "cosines",
            lambda x: softmax(_unit(x) @ _unit(x).T) @ x,
            "You compared directions only (cosines). The score here is the bare dot product, lengths included.",
            COSINE,
        ),
        Misconception(
            "scaled",
            lambda x: softmax(x @ x.T / np.sqrt(x.shape[1])) @ x,
            "You divided by √D. That is unit 05; here the scores are bare dot products.",
            SIMILAR,
        ),
        Misconception(
            "overflow",
            lambda x: _unsafe_softmax(x @ x.T) @ x,
            "exp of a large score is infinity, and infinity / infinity is NaN. Use `softmax` from above, which is "
            "safe.",
            ROWS,
        ),
    ),
    alternatives=(
        _zeros_and_indices,
        _own_softmax,
        lambda x: np.stack([softmax(x @ row) @ x for row in x]),
        lambda x: np.array([sum(w * v for w, v in zip(softmax([a @ b for b in x]), x, strict=True)) for a in x]),
    ),
)


# --- 03.3 ---------------------------------------------------------------------------------------------------


def self_attention(x: Array) -> Array:
    """The same for all tokens at once, without a loop.

    x is (T, D), a token per row. Return an array (T, D).
    """
    scores = x @ x.T
    weights = softmax(scores)
    return weights @ x


def _matrix_cases(draw: Draw) -> list[Case]:
    return [
        Case("all tokens at once", (draw(2, 3),)),
        Case("all tokens at once", (draw(6, 4),), "more tokens than width"),
        Case("as many tokens as width", (draw(4, 4),), "where a wrong transpose has the right shape"),
        Case("large scores", (_loud(draw, 5, 3),), "scores in the thousands"),
    ]


def _in_place(x: Array) -> Array:
    y = softmax(x @ x.T) @ x
    x -= x.mean()
    return y


def _sum_without_its_axis(x: Array) -> Array:
    exps = np.exp(x @ x.T - (x @ x.T).max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1) @ x


MATRICES = Exercise(
    id="03.3",
    title="The same as matrices",
    answer="course_lib.exercises.u03.self_attention",
    minutes=8,
    outcomes=("03-a",),
    checks=(Check("all tokens at once", 2), Check("as many tokens as width"), Check("large scores")),
    cases=_matrix_cases,
    hints=(
        "Entry (i, j) of the scores is the dot product of row i and row j of x. Which product of matrices has these?",
        "The scores are (T, T). (T, D) times (D, T) gives that: one of the two factors must be transposed.",
        "scores = x @ x.T, softmax along each row (its default), and (T, T) weights times (T, D) tokens.",
    ),
    misconceptions=(
        Misconception(
            "no transpose",
            lambda x: softmax(x @ x) @ x,
            "x x multiplies rows with columns, features with tokens (or does not fit at all): rows with rows is x xᵀ.",
            SAME,
        ),
        Misconception(
            "features compared",
            lambda x: x @ softmax(x.T @ x),
            "xᵀ x is (D, D): it compares features over all tokens. Tokens are rows, so tokens are compared by x xᵀ.",
            SAME,
        ),
        Misconception(
            "down the columns",
            lambda x: softmax(x @ x.T, axis=0) @ x,
            "The scores are symmetric, the weights are not: each row of weights must sum to 1, not each column.",
            ROWS,
        ),
        Misconception(
            "over everything",
            lambda x: softmax((x @ x.T).ravel()).reshape(len(x), len(x)) @ x,
            "All weights together sum to 1 here. Each token has a softmax of its own: every row sums to 1.",
            ROWS,
        ),
        Misconception(
            "no softmax",
            lambda x: x @ x.T @ x,
            "You weighted the tokens with bare scores. Softmax makes weights of them: positive, and 1 in sum.",
            ROWS,
        ),
        Misconception(
            "divided by the sum",
            lambda x: (x @ x.T) / (x @ x.T).sum(axis=1, keepdims=True) @ x,
            "You divided the scores by their sum. Scores may be negative or cancel; softmax takes exponentials first.",
            ROWS,
        ),
        Misconception(
            "softmax last",
            lambda x: softmax(x @ x.T @ x),
            "Softmax comes before the weighted sum: it makes weights of the scores, and the outputs stay as they are.",
            ROWS,
        ),
        Misconception(
            "softmax twice",
            lambda x: softmax(_weights(x)) @ x,
            "You took softmax of the weights. They have been through it already: a second one makes them nearly equal.",
            ROWS,
        ),
        Misconception(
            "sum without its axis",
            _sum_without_its_axis,
            "The sums lost their axis, so column j is divided by the sum of row j. keepdims=True keeps them beside "
            "their rows.",
            ROWS,
        ),
        Misconception(
            "cosines",
            lambda x: softmax(_unit(x) @ _unit(x).T) @ x,
            "You compared directions only (cosines). The score here is the bare dot product, lengths included.",
            COSINE,
        ),
        Misconception(
            "scores summed",
            lambda x: _weights(x) @ (x @ x.T),
            "You summed the scores, by weight. What is summed are the tokens: weights @ x.",
            SUM,
        ),
        Misconception(
            "tokens on the left",
            lambda x: x.T @ _weights(x),
            "xᵀ times the weights lets the tokens stand as columns, and sums over those who ask. Weights left, "
            "tokens right.",
            SAME,
        ),
        Misconception(
            "divided once more",
            lambda x: _weights(x) @ x / len(x),
            "You divided by the number of tokens. The weights sum to 1 already: nothing is left to divide by.",
            SUM,
        ),
        Misconception(
            "weights returned",
            lambda x: _weights(x),
            "These are the weights, (T, T). One stage is left: the weighted sum of the tokens, (T, D).",
            SUM,
        ),
        Misconception(
            "itself left out",
            _others_only,
            "A token takes part in its own mixture: the diagonal of the scores stays.",
            SUM,
        ),
        Misconception(
            "added to the old vector",
            lambda x: x + _weights(x) @ x,
            "You added the mixture to the old vector. That is a residual connection, unit 09: here the mixture is all.",
            SUM,
        ),
        Misconception(
            "nearest only",
            lambda x: x[np.argmax(x @ x.T, axis=1)],
            "You took the one most similar token. All take part, with weights: that is the soft in softmax.",
            SUM,
        ),
        Misconception(
            "scaled",
            lambda x: softmax(x @ x.T / np.sqrt(x.shape[1])) @ x,
            "You divided by √D. That is unit 05; here the scores are bare dot products.",
            SIMILAR,
        ),
        Misconception(
            "overflow",
            lambda x: _unsafe_softmax(x @ x.T) @ x,
            "exp of a large score is infinity, and infinity / infinity is NaN. Use `softmax` from above, which is "
            "safe.",
            ROWS,
        ),
        Misconception(
            "one maximum for all",
            lambda x: _unsafe_softmax(x @ x.T - (x @ x.T).max()) @ x,
            "You subtracted one maximum for all rows, so a row far below it becomes 0 / 0. Each row has its own.",
            ROWS,
        ),
        Misconception(
            "changes its input",
            _in_place,
            "The numbers are right, but x is changed on the way (-=, /= and the like work in place). Make a new array.",
            SAME,
        ),
    ),
    alternatives=(
        lambda x: np.einsum("ts,sd->td", softmax(np.einsum("td,sd->ts", x, x)), x),
        lambda x: (x.T @ softmax(x @ x.T, axis=0)).T,
        lambda x: np.stack([softmax(x @ row) @ x for row in x]),
        lambda x: (lambda e: (e @ x) / e.sum(1, keepdims=True))(np.exp(x @ x.T - (x @ x.T).max(1, keepdims=True))),
    ),
)


# --- 03.4 ---------------------------------------------------------------------------------------------------


def one_token_changes() -> Any:
    """Five predictions, each True or False. Somebody changes x_3 of a sentence of three tokens. What changes?

    1. the score s_12 = x_1 · x_2            2. the weight w_12
    3. the ratio w_12 / w_11                 4. the new vector y_1
    5. a parameter of self-attention
    Return them as a list of five: True where it changes.
    """
    return [False, True, False, True, False]


ONE_TOKEN_CHANGES = Exercise(
    id="03.4",
    title="One token changes",
    answer="course_lib.exercises.u03.one_token_changes",
    minutes=4,
    outcomes=("03-b",),
    checks=(Check("the five predictions", 2),),
    cases=lambda draw: [Case("the five predictions")],
    hints=(
        "Write each of the five as a formula, and look where x_3 stands in it.",
        "s_12 has only x_1 and x_2 in it. w_12 = exp(s_12) / (exp(s_11) + exp(s_12) + exp(s_13)).",
        "In the ratio w_12 / w_11 the denominators cancel. And how many numbers of self-attention are learned?",
    ),
    misconceptions=(
        Misconception(
            "weights of two alone",
            lambda: [False, False, False, True, False],
            "w_12 is a share: the denominator of softmax sums over all tokens, x_3 included.",
            INPUT,
        ),
        Misconception(
            "every score",
            lambda: [True, True, True, True, False],
            "s_12 = x_1 · x_2 has no x_3 in it. Scores belong to two tokens; weights belong to all of them.",
            INPUT,
        ),
        Misconception(
            "the ratio too",
            lambda: [False, True, True, True, False],
            "Divide w_12 by w_11: the denominators are the same and cancel, and exp(s_12 - s_11) knows nothing of x_3.",
            INPUT,
        ),
        Misconception(
            "a parameter",
            lambda: [False, True, False, True, True],
            "There are no parameters here: nothing is learned and nothing is kept. The weights are made of x each "
            "time.",
            INPUT,
        ),
        Misconception(
            "token 1 untouched",
            lambda: [False, False, False, False, False],
            "y_1 is a sum over all tokens, and x_3 is one of them: it enters by its weight and by itself.",
            SUM,
        ),
        Misconception(
            "the score too",
            lambda: [True, True, False, True, False],
            "Nearly: s_12 = x_1 · x_2 has no x_3 in it, so it stays.",
            INPUT,
        ),
        Misconception(
            "the sum untouched",
            lambda: [False, True, False, False, False],
            "Nearly: y_1 is a sum over all tokens, x_3 included, with weights that change.",
            SUM,
        ),
        Misconception(
            "the ratio instead of the weight",
            lambda: [False, False, True, True, False],
            "It is the other way round: the weight is a share among all, and changes; in the ratio the denominators "
            "cancel.",
            INPUT,
        ),
        Misconception(
            "everything",
            lambda: [True] * 5,
            "Not everything: look for x_3 in s_12 = x_1 · x_2, and for anything that is learned.",
            INPUT,
        ),
        Misconception(
            "numbers of those that change",
            lambda: [2, 4],
            "Right: the second and the fourth. Write it as five times True or False.",
            INPUT,
        ),
        Misconception(
            "upside down",
            lambda: [True, False, True, False, True],
            "All five are upside down: write True where something changes.",
            INPUT,
        ),
    ),
    prediction=True,
)


# --- 03.5 ---------------------------------------------------------------------------------------------------


def shuffle_weights(weights: Array, order: Array) -> Array:
    """The weights of the shuffled sentence, from those of the sentence as it was.

    weights is (T, T), those of x. order is (T,): the shuffled sentence is x[order], so that the token now in place
    p stood in place order[p]. Return the (T, T) weights of x[order]; x itself is not needed, and not given.
    """
    return weights[order][:, order]


def _shuffle_cases(draw: Draw) -> list[Case]:
    def case(check: str, order: list[int], note: str = "") -> Case:
        return Case(check, (_weights(draw(len(order), 2)), np.array(order)), note)

    return [
        case("two tokens change places", [1, 0, 2]),
        case("two tokens change places", [0, 3, 2, 1]),
        case("any order", [1, 2, 0], "round and round: going back is another order"),
        case("any order", [3, 0, 4, 1, 2]),
    ]


def _places(order: Array) -> Array:
    matrix = np.zeros((len(order), len(order)))
    matrix[np.arange(len(order)), order] = 1
    return matrix


def _shuffle_loops(weights: Array, order: Array) -> Array:
    new = np.empty_like(weights)
    for p, i in enumerate(order):
        for q, j in enumerate(order):
            new[p, q] = weights[i, j]
    return new


def _shuffle_in_place(weights: Array, order: Array) -> Array:
    weights[:] = weights[order][:, order]
    return weights


SHUFFLE_WEIGHTS = Exercise(
    id="03.5",
    title="The weights move along",
    answer="course_lib.exercises.u03.shuffle_weights",
    minutes=8,
    outcomes=("03-c",),
    checks=(Check("two tokens change places"), Check("any order", 2)),
    cases=_shuffle_cases,
    hints=(
        "Look at the figure with the words to drag: when a word moves, what moves with it? Two things.",
        "Entry (p, q) of the new weights: the token in place p attends to the one in place q. Where did these two "
        "stand?",
        "New entry (p, q) is the old entry (order[p], order[q]): first pick the rows in this order, then the columns.",
    ),
    misconceptions=(
        Misconception(
            "rows only",
            lambda weights, order: weights[order],
            "Only the rows moved. The token is attended to as well: its column moves with it.",
            SHUFFLE,
        ),
        Misconception(
            "columns only",
            lambda weights, order: weights[:, order],
            "Only the columns moved. The token attends as well: its row moves with it.",
            SHUFFLE,
        ),
        Misconception(
            "rows twice",
            lambda weights, order: weights[order][order],
            "weights[order][order] shuffles the rows a second time. The columns are the second axis: [:, order].",
            SHUFFLE,
        ),
        Misconception(
            "columns twice",
            lambda weights, order: weights[:, order][:, order],
            "weights[:, order][:, order] shuffles the columns a second time. The rows are the first axis: [order].",
            SHUFFLE,
        ),
        Misconception(
            "pairs picked",
            lambda weights, order: weights[order, order],
            "weights[order, order] picks the pairs (order[p], order[p]), T numbers of the diagonal. Rows first, then "
            "columns.",
            SHUFFLE,
        ),
        Misconception(
            "nothing moves",
            lambda weights, order: weights.copy(),
            "Nothing moved: that would be invariance. The weights move with their tokens.",
            SHUFFLE,
        ),
        Misconception(
            "the way back",
            lambda weights, order: weights[np.argsort(order)][:, np.argsort(order)],
            "This shuffles the other way round, back from the new order to the old. Place p holds the token order[p].",
            SHUFFLE,
        ),
        Misconception(
            "rows there, columns back",
            lambda weights, order: weights[order][:, np.argsort(order)],
            "Rows went one way and columns the other, as in P W P. Both follow the tokens: P W Pᵀ, the same order "
            "twice.",
            SHUFFLE,
        ),
        Misconception(
            "transposed",
            lambda weights, order: weights.T[order][:, order],
            "Rows and columns are swapped: who attended is now attended to. Weights are not symmetric, only scores "
            "are.",
            ROWS,
        ),
        Misconception(
            "normalised once more",
            lambda weights, order: softmax(weights[order][:, order]),
            "The order is right, but these are softmax of weights. They were weights already: moving them is all.",
            ROWS,
        ),
        Misconception(
            "changes its input",
            _shuffle_in_place,
            "The numbers are right, but you wrote them into the weights you were given. Make a new array.",
            SHUFFLE,
        ),
    ),
    alternatives=(
        lambda weights, order: weights[np.ix_(order, order)],
        lambda weights, order: weights[:, order][order],
        lambda weights, order: _places(order) @ weights @ _places(order).T,
        lambda weights, order: weights[order[:, None], order[None, :]],
        lambda weights, order: weights.take(order, axis=0).take(order, axis=1),
        _shuffle_loops,
    ),
)


# --- 03.6 ---------------------------------------------------------------------------------------------------


def is_equivariant(f: Callable[[Array], Array], x: Array, order: Array) -> bool:
    """Does it make no difference whether you shuffle first and then apply f, or apply f and then shuffle?

    f takes tokens (T, D) and returns an array with T rows; x is (T, D); order is (T,), and x[order] are the shuffled
    tokens. Return True or False. Rounding is no difference: compare with np.allclose.
    """
    return np.allclose(f(x[order]), f(x)[order])


def _attend(x: Array) -> Array:
    return softmax(x @ x.T / 2) @ x  # halved: whoever is handed this function is not handed the answer of 03.3


def _each_alone(x: Array) -> Array:
    return np.maximum(0, 2 * x + 1)  # exact whatever the order, so that only sums are rounded otherwise


def _running_sum(x: Array) -> Array:
    return np.cumsum(x, axis=0)


def _with_places(x: Array) -> Array:
    return _attend(x + np.arange(len(x))[:, None])


def _sorted(x: Array) -> Array:
    return np.sort(x, axis=0)


def _everywhere_the_mean(x: Array) -> Array:
    return np.tile(x.mean(axis=0), (len(x), 1))


def _first_minus(x: Array) -> Array:
    return x - x[0]


def _last_to_zero(x: Array) -> Array:
    return np.vstack([x[:-1], np.zeros((1, x.shape[1]))])


def _place_added(x: Array) -> Array:
    return x + np.arange(len(x))[:, None]


def _equivariance_cases(draw: Draw) -> list[Case]:
    turn, mixed = np.array([1, 2, 0]), np.array([3, 0, 4, 1, 2])
    yes_and_no, which, rounding = "what commutes and what does not", "not invariance", "rounding is no difference"
    many = np.roll(np.arange(60), 17)
    return [
        Case(yes_and_no, (_attend, draw(3, 2), turn), "f is a self-attention"),
        Case(yes_and_no, (_running_sum, draw(3, 4), turn), "f is a running sum over the tokens"),
        Case(yes_and_no, (_each_alone, draw(4, 5), np.array([1, 0, 3, 2])), "f treats each token alone"),
        Case(yes_and_no, (_each_alone, draw(5, 3), mixed), "f treats each token alone, another order"),
        Case(
            yes_and_no, (_with_places, draw(5, 3), mixed), "f adds the number of its place to each token, then attends"
        ),
        Case(yes_and_no, (_last_to_zero, draw(5, 2), mixed), "f sets the token in the last place to zero"),
        Case(which, (_sorted, draw(5, 2), mixed), "f sorts each column, so order is lost"),
        Case(which, (_first_minus, np.sort(draw(5, 4), axis=0), mixed), "f subtracts the first token from all"),
        Case(which, (_place_added, draw(5, 3), mixed), "f adds the number of its place to each token"),
        Case(which, (_everywhere_the_mean, draw(3, 5), turn), "f puts the mean of all tokens in each place"),
        Case(rounding, (_attend, draw(60, 7, size=2), many), "f is a self-attention, sixty tokens"),
        Case(rounding, (_running_sum, draw(60, 7), many), "f is a running sum, sixty tokens"),
    ]


def _token_by_token(f: Callable[[Array], Array], x: Array, order: Array) -> bool:
    new, old = f(x[order]), f(x)
    return all(np.abs(new[p] - old[i]).max() < 1e-6 for p, i in enumerate(order))


IS_EQUIVARIANT = Exercise(
    id="03.6",
    title="Does shuffling commute?",
    answer="course_lib.exercises.u03.is_equivariant",
    minutes=10,
    outcomes=("03-c",),
    checks=(
        Check("what commutes and what does not", 2),
        Check("not invariance"),
        Check("rounding is no difference"),
    ),
    cases=_equivariance_cases,
    hints=(
        "Two roads: shuffle, then f; and f, then shuffle. Do both end in the same place?",
        "The first road is f(x[order]). The second is f(x), with its rows in the new order.",
        "np.allclose(first road, second road): the second is f(x)[order].",
    ),
    misconceptions=(
        Misconception(
            "invariance",
            lambda f, x, order: np.allclose(f(x[order]), f(x)),
            "You asked whether the result stays where it was: invariance. Equivariance lets it move with its token.",
            SHUFFLE,
        ),
        Misconception(
            "only one road",
            lambda f, x, order: np.allclose(f(x)[order], f(x)),
            "f never sees shuffled tokens here. One road shuffles before f, the other after it.",
            SHUFFLE,
        ),
        Misconception(
            "shuffled twice",
            lambda f, x, order: np.allclose(f(x[order])[order], f(x)),
            "You shuffled a second time to get back. That works for a swap only; the way back is np.argsort(order).",
            SHUFFLE,
        ),
        Misconception(
            "sums compared",
            lambda f, x, order: np.allclose(f(x[order]).sum(axis=0), f(x).sum(axis=0)),
            "You compared sums over the tokens. They may agree though single tokens got another vector: compare row "
            "by row.",
            SHUFFLE,
        ),
        Misconception(
            "bags compared",
            lambda f, x, order: np.allclose(sorted(f(x[order]).tolist()), sorted(f(x).tolist())),
            "You compared the rows as a bag, whichever token they belong to. Each token must get its own vector back.",
            BAG,
        ),
        Misconception(
            "bit by bit",
            lambda f, x, order: np.array_equal(f(x[order]), f(x)[order]),
            "Sums in another order differ in the last digit, so equal bit by bit is too much to ask: np.allclose.",
            SHUFFLE,
        ),
        Misconception(
            "no absolute value",
            lambda f, x, order: bool((f(x[order]) - f(x)[order]).max() < 1e-6),
            "The largest difference is small where all differences are negative, too. Take absolute values first: "
            "np.abs.",
            SHUFFLE,
        ),
        Misconception(
            "the difference itself",
            lambda f, x, order: np.abs(f(x[order]) - f(x)[order]).max(),
            "This is how far the two roads are apart. The question is whether they are: True or False.",
            SHUFFLE,
        ),
        Misconception(
            "table of answers, bit by bit",
            lambda f, x, order: f(x[order]) == f(x)[order],
            "== answers for every number, and bit by bit. One answer is wanted, and rounding is no difference: "
            "np.allclose.",
            SHUFFLE,
        ),
        Misconception(
            "shapes compared",
            lambda f, x, order: f(x[order]).shape == f(x)[order].shape,
            "You compared shapes, which are always the same. The numbers decide.",
            SHUFFLE,
        ),
        Misconception(
            "not equivariant",
            lambda f, x, order: not np.allclose(f(x[order]), f(x)[order]),
            "Upside down: True should mean that both roads end in the same place.",
            SHUFFLE,
        ),
        Misconception(
            "one row only",
            lambda f, x, order: np.allclose(f(x[order])[0], f(x)[order][0]),
            "You compared one token. All of them have to agree.",
            SHUFFLE,
        ),
        Misconception(
            "table of answers",
            lambda f, x, order: np.isclose(f(x[order]), f(x)[order]),
            "np.isclose answers for every number. One answer is wanted, for all of them together: np.allclose.",
            SHUFFLE,
        ),
    ),
    alternatives=(
        lambda f, x, order: np.allclose(f(x[order])[np.argsort(order)], f(x)),
        lambda f, x, order: bool(np.abs(f(x[order]) - f(x)[order]).max() < 1e-6),
        lambda f, x, order: bool(np.isclose(f(_places(order) @ x), _places(order) @ f(x)).all()),
        _token_by_token,
    ),
)


# --- 03.7 ---------------------------------------------------------------------------------------------------


def dot_or_cosine() -> Any:
    """Dot product and cosine of four pairs of vectors, worked out with pencil and paper.

    1. [3, 4] and [3, 4]      2. [3, 4] and [-6, -8]      3. [2, 0] and [0, 5]      4. [0.6, 0.8] and [1, 0]
    Return a list of four pairs [dot product, cosine].
    """
    return [[25, 1], [-50, -1], [0, 0], [0.6, 0.6]]


DOT_OR_COSINE = Exercise(
    id="03.7",
    title="Dot product or cosine?",
    answer="course_lib.exercises.u03.dot_or_cosine",
    minutes=5,
    outcomes=("03-d",),
    checks=(Check("four dot products and four cosines", 2),),
    cases=lambda draw: [Case("four dot products and four cosines")],
    hints=(
        "The length of [3, 4] is √(9 + 16) = 5. Which of the eight vectors have length 1?",
        "Multiply place by place and add: that is the dot product. Divided by both lengths it is the cosine.",
        "The lengths are 5 and 5, 5 and 10, 2 and 5, 1 and 1: only in the last pair is nothing left to divide by.",
    ),
    misconceptions=(
        Misconception(
            "a match is 1",
            lambda: [[1, 1], [-1, -1], [0, 0], [0.6, 0.6]],
            "1 and -1 are cosines. The dot product of [3, 4] with itself is 9 + 16: the length, squared.",
            COSINE,
        ),
        Misconception(
            "no lengths",
            lambda: [[25, 25], [-50, -50], [0, 0], [0.6, 0.6]],
            "Your cosines are dot products. A cosine is divided by both lengths, and stays between -1 and 1.",
            COSINE,
        ),
        Misconception(
            "divided once",
            lambda: [[25, 5], [-50, -10], [0, 0], [0.6, 0.6]],
            "You divided by one length only. A cosine is divided by both, and stays between -1 and 1.",
            COSINE,
        ),
        Misconception(
            "divided by the other length",
            lambda: [[25, 5], [-50, -5], [0, 0], [0.6, 0.6]],
            "You divided by the second length only. A cosine is divided by both, and stays between -1 and 1.",
            COSINE,
        ),
        Misconception(
            "angles",
            lambda: [[25, 0], [-50, 180], [0, 90], [0.6, 53]],
            "These are angles. The cosine of 0° is 1, of 180° it is -1, and of 90° it is 0.",
            COSINE,
        ),
        Misconception(
            "two lists",
            lambda: [[25, -50, 0, 0.6], [1, -1, 0, 0.6]],
            "All eight numbers are right. Write them as four pairs, [dot product, cosine], one for each pair of "
            "vectors.",
            COSINE,
        ),
        Misconception(
            "one list",
            lambda: [25, 1, -50, -1, 0, 0, 0.6, 0.6],
            "All eight numbers are right. Write them as four pairs: [[…, …], [… , …], …].",
            COSINE,
        ),
        Misconception(
            "sign lost",
            lambda: [[25, 1], [50, 1], [0, 0], [0.6, 0.6]],
            "The second pair points in opposite directions: both numbers are negative.",
            COSINE,
        ),
        Misconception(
            "other way round",
            lambda: [[1, 25], [-1, -50], [0, 0], [0.6, 0.6]],
            "Right numbers, in the other order: dot product first, then the cosine.",
            COSINE,
        ),
    ),
    prediction=True,
)


# --- 03.8 ---------------------------------------------------------------------------------------------------


def weights_by(x: Array, measure: str) -> Array:
    """Self-attention weights with a similarity of your choice.

    x is (T, D), no row of zeros. measure says how s_ij is made of x_i and x_j:
    "dot" x_i · x_j, "cosine" their cosine, "distance" minus half the squared distance, -|x_i - x_j|² / 2.
    Return the weights (T, T): softmax of the scores along each row.
    """
    if measure == "cosine":
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    scores = x @ x.T
    if measure == "distance":
        differences = x[:, None, :] - x[None, :, :]
        scores = -(differences**2).sum(axis=-1) / 2
    return softmax(scores)


def _measure_cases(draw: Draw) -> list[Case]:
    one = draw(3, 2)
    names = ("dot", "cosine", "distance")
    small = [Case(f"by {name}", (one, name), f"measure {name!r}") for name in names]
    return small + [
        Case(f"by {name}", (draw(6, 4, size=3), name), f"measure {name!r}, longer vectors") for name in names
    ]


def _measured(dot: Any = None, cosine: Any = None, distance: Any = None, axis: int = -1) -> Callable[..., Array]:
    """weights_by with some of its three measures replaced."""
    ways = {
        "dot": dot or (lambda x: x @ x.T),
        "cosine": cosine or (lambda x: _unit(x) @ _unit(x).T),
        "distance": distance or (lambda x: -_squares(x) / 2),
    }
    return lambda x, measure: softmax(ways[measure](x), axis=axis)


def _squares(x: Array) -> Array:
    return ((x[:, None] - x[None]) ** 2).sum(axis=-1)


def _measure_in_place(x: Array, measure: str) -> Array:
    if measure == "cosine":
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        return softmax(x @ x.T)
    return _measured()(x, measure)


def _pair_by_pair(x: Array, measure: str) -> Array:
    def score(a: Array, b: Array) -> float:
        if measure == "dot":
            return a @ b
        if measure == "cosine":
            return a @ b / (np.sqrt(a @ a) * np.sqrt(b @ b))
        return -(float(np.linalg.norm(a - b)) ** 2) / 2

    return np.array([softmax([score(a, b) for b in x]) for a in x])


WEIGHTS_BY = Exercise(
    id="03.8",
    title="Choose your measure",
    answer="course_lib.exercises.u03.weights_by",
    minutes=12,
    outcomes=("03-d",),
    checks=(Check("by dot"), Check("by cosine", 2), Check("by distance", 2)),
    cases=_measure_cases,
    hints=(
        "Only the scores differ; the softmax is the same for all three. Make one (T, T) array of scores for each.",
        "Cosine: first make every row a unit vector, x / length, with np.linalg.norm(x, axis=1, keepdims=True). Then "
        "dot.",
        "Distance: x[:, None] - x[None] is (T, T, D), all differences; square, sum over the last axis, times -1/2.",
    ),
    misconceptions=(
        Misconception(
            "measure ignored",
            lambda x, measure: _weights(x),
            "All three measures give the weights of the dot product here. Look at `measure` before you score.",
            MEASURES,
        ),
        Misconception(
            "one vector made unit",
            _measured(cosine=lambda x: _unit(x) @ x.T),
            "You divided by one of the two lengths. A cosine is divided by both.",
            COSINE,
        ),
        Misconception(
            "the other vector made unit",
            _measured(cosine=lambda x: x @ _unit(x).T),
            "You divided by one of the two lengths, that of x_j. A cosine is divided by both.",
            COSINE,
        ),
        Misconception(
            "one length twice",
            _measured(cosine=lambda x: x @ x.T / np.linalg.norm(x, axis=1) ** 2),
            "You divided twice by the length of x_j. One length is that of x_i: norms[:, None] * norms[None, :].",
            COSINE,
        ),
        Misconception(
            "length without its axis",
            _measured(cosine=lambda x: x / np.linalg.norm(x, axis=1)),
            "(T, D) / (T,) does not line up. keepdims=True keeps the lengths as a column, (T, 1), one beside each "
            "token.",
            COSINE,
        ),
        Misconception(
            "angle",
            _measured(cosine=lambda x: np.arccos(np.clip(_unit(x) @ _unit(x).T, -1, 1))),
            "This is the angle, which is small for similar tokens. Its cosine is asked for.",
            COSINE,
        ),
        Misconception(
            "columns made unit",
            _measured(cosine=lambda x: (lambda u: u @ u.T)(x / np.linalg.norm(x, axis=0))),
            "You divided by the lengths of columns. Tokens are rows: axis=1, and keepdims=True so that it fits.",
            COSINE,
        ),
        Misconception(
            "one length for all",
            _measured(cosine=lambda x: (lambda u: u @ u.T)(x / np.linalg.norm(x))),
            "np.linalg.norm(x) is one number for the whole matrix. Each token has its own length: axis=1.",
            COSINE,
        ),
        Misconception(
            "squared lengths",
            _measured(cosine=lambda x: (lambda u: u @ u.T)(x / (x**2).sum(axis=1, keepdims=True))),
            "You divided by x · x, the length squared. The length is its root.",
            COSINE,
        ),
        Misconception(
            "cosine forgotten",
            _measured(cosine=lambda x: x @ x.T),
            "For the cosine you returned the weights of the dot product: the lengths are still in there.",
            COSINE,
        ),
        Misconception(
            "far is similar",
            _measured(distance=lambda x: _squares(x) / 2),
            "The farther, the heavier? A distance measures unlikeness: it needs a minus to be a similarity.",
            MEASURES,
        ),
        Misconception(
            "not squared",
            _measured(distance=lambda x: -np.sqrt(_squares(x)) / 2),
            "You took the distance, and not its square. -|x_i - x_j|² / 2 is asked for.",
            MEASURES,
        ),
        Misconception(
            "the distance itself",
            _measured(distance=lambda x: -np.sqrt(_squares(x))),
            "You took the distance. -|x_i - x_j|² / 2 is asked for: its square, halved.",
            MEASURES,
        ),
        Misconception(
            "along the streets",
            _measured(distance=lambda x: -np.abs(x[:, None] - x[None]).sum(axis=-1) / 2),
            "You summed absolute differences. |x_i - x_j|² is the sum of the squared ones.",
            MEASURES,
        ),
        Misconception(
            "mean of the squares",
            _measured(distance=lambda x: -_squares(x) / x.shape[1] / 2),
            "You took the mean of the squared differences. |x_i - x_j|² is their sum.",
            MEASURES,
        ),
        Misconception(
            "no half",
            _measured(distance=lambda x: -_squares(x)),
            "The half is missing: -|x_i - x_j|² / 2. Softmax sees factors (it does not see what is added to a row).",
            MEASURES,
        ),
        Misconception(
            "one over the distance",
            _measured(distance=lambda x: 1 / (1 + _squares(x))),
            "You took one over the distance. That is a similarity too, and another one: -|x_i - x_j|² / 2 is asked "
            "for.",
            MEASURES,
        ),
        Misconception(
            "down the columns",
            _measured(axis=0),
            "The scores are symmetric, the weights are not: each row of weights must sum to 1, not each column.",
            ROWS,
        ),
        Misconception(
            "new vectors returned",
            lambda x, measure: _measured()(x, measure) @ x,
            "You went one stage too far: these are the new vectors. The weights are asked for, (T, T).",
            SUM,
        ),
        Misconception(
            "scores returned",
            lambda x, measure: {"dot": x @ x.T, "cosine": _unit(x) @ _unit(x).T}.get(measure, -_squares(x) / 2),
            "These are the scores. Softmax along each row makes weights of them.",
            ROWS,
        ),
        Misconception(
            "changes its input",
            _measure_in_place,
            "The weights are right, but `x /= ...` changes the tokens of whoever called you. Write x = x / ... "
            "instead.",
            COSINE,
        ),
    ),
    alternatives=(
        _measured(),
        _pair_by_pair,
        _measured(cosine=lambda x: (x @ x.T) / np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(x, axis=1))),
        _measured(distance=lambda x: x @ x.T - (x**2).sum(axis=1) / 2),
        _measured(distance=lambda x: x @ x.T - (x**2).sum(axis=1) / 2 - (x**2).sum(axis=1)[:, None] / 2),
    ),
)

EXERCISES = (
    SCORES_OF_TOKEN_2,
    LOOPS,
    MATRICES,
    ONE_TOKEN_CHANGES,
    SHUFFLE_WEIGHTS,
    IS_EQUIVARIANT,
    DOT_OR_COSINE,
    WEIGHTS_BY,
)
