"""Unit 08, positions: sinusoids and their rotation, shuffling noticed, rotary, ALiBi, and accuracy past training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..by_hand import rotary, self_attention, sinusoidal
from .declare import Case, Check, Draw, Exercise, Misconception

Array = np.ndarray

ORDER = ("08", "Attention alone does not see order")
CLOCKS = ("08", "Every pair of columns is a clock")
SHIFT = ("08", "Moving on by k is a rotation")
NOTICE = ("08", "Shuffling is noticed once positions are added")
ROTARY = ("08", "Rotary turns queries and keys")
ALIBI = ("08", "ALiBi makes distance cost")
MEASURE = ("08", "Trained models say which encodings extrapolate")


# --- 08.1 ---------------------------------------------------------------------------------------------------


def clocks_by_hand() -> Any:
    """Six numbers, with pencil and paper, for a table of width D = 4 with base 100.

    First the four numbers of PE(0), in the order of the columns; then the rates of the first and of the second
    pair of columns, that is what t is multiplied by inside sin and cos. Return a list of six numbers.
    """
    return [0, 1, 0, 1, 1, 0.1]


CLOCKS_BY_HAND = Exercise(
    id="08.1",
    title="Two clocks by hand",
    answer="course_lib.exercises.u08.clocks_by_hand",
    minutes=4,
    outcomes=("08-a",),
    checks=(Check("the row at 0 and the two rates", 2),),
    cases=lambda draw: [Case("the row at 0 and the two rates")],
    hints=(
        "At t = 0 every angle is 0, whatever the rate: you need only sin 0 and cos 0, in the order of the columns.",
        "Pair i has the rate 1 / base^(2i/D), and i starts at 0. What is anything to the power 0?",
        "PE(0) = [sin 0, cos 0, sin 0, cos 0]. The rates are 1/100^0 and 1/100^(2/4), and 100^(1/2) is 10.",
    ),
    misconceptions=(
        Misconception(
            "exponents start at 2/D",
            lambda: [0, 1, 0, 1, 0.1, 0.01],
            "Your exponents start at 2·1/D. They start at 0, so the first pair has the rate 1, the fastest of all.",
            CLOCKS,
        ),
        Misconception(
            "exponent i/D",
            lambda: [0, 1, 0, 1, 1, 100**-0.25],
            "You took i/D for the exponent. It is 2i/D: the pairs share the whole range from 0 to 1 among them.",
            CLOCKS,
        ),
        Misconception(
            "periods for rates",
            lambda: [0, 1, 0, 1, 1, 10],
            "You multiplied by base^(2i/D). The position is divided by it: later pairs turn slower, not faster.",
            CLOCKS,
        ),
        Misconception(
            "the last pair has 1/base",
            lambda: [0, 1, 0, 1, 1, 0.01],
            "Your second rate is 1/base. With i = 1 the exponent is 2i/D = 2/4, not 1: the slowest pair only comes near 1/base.",
            CLOCKS,
        ),
        Misconception(
            "slow first",
            lambda: [0, 1, 0, 1, 0.1, 1],
            "The first pair is the fastest: its exponent is 0, so its rate is 1. Later pairs turn slower.",
            CLOCKS,
        ),
        Misconception(
            "exponents for rates",
            lambda: [0, 1, 0, 1, 0, 0.5],
            "0 and 1/2 are the exponents 2i/D. The rates are 1 / base^0 and 1 / base^(1/2).",
            CLOCKS,
        ),
        Misconception(
            "cosine first",
            lambda: [1, 0, 1, 0, 1, 0.1],
            "Sine stands in the even columns, 0, 2, …, and cosine in the odd ones: yours are swapped.",
            CLOCKS,
        ),
        Misconception(
            "halves",
            lambda: [0, 0, 1, 1, 1, 0.1],
            "You put all sines first, then all cosines. In this course they alternate: sin, cos, sin, cos.",
            CLOCKS,
        ),
        Misconception(
            "zeros at 0",
            lambda: [0, 0, 0, 0, 1, 0.1],
            "Position 0 is not a row of zeros: the cosine of 0 is 1.",
            CLOCKS,
        ),
    ),
    prediction=True,
)


# --- 08.2 ---------------------------------------------------------------------------------------------------


def sinusoid_table(length: int, d_model: int, base: float) -> Array:
    """The table of sinusoids for positions t = 0, 1, …, length - 1.

    PE(t, 2i) = sin(t / base^(2i/D)) and PE(t, 2i+1) = cos(t / base^(2i/D)), i = 0, 1, …, with D = d_model.
    An odd d_model ends with a sine. Return an array (length, d_model).
    """
    t = np.arange(length)[:, None]
    column = np.arange(d_model)
    angle = t / base ** (2 * (column // 2) / d_model)
    return np.where(column % 2 == 0, np.sin(angle), np.cos(angle))


def _table_cases(draw: Draw) -> list[Case]:
    near = int(draw.rng.integers(4, 7))
    return [
        Case("an even width", (3, 4, 100.0)),
        Case("an even width", (near, 10, 10_000.0), "the width and base of a small model"),
        Case("another base", (5, 6, 20.0)),
        Case("another base", (2, 8, 500_000.0), "a large base, as in today's long models"),
        Case("an odd width", (4, 5, 100.0), "ends with a sine"),
    ]


def _waves(angle: Callable[[Array, Array, int, float], Array], swap: bool = False) -> Callable[..., Array]:
    """A table whose angles are computed in another way."""

    def table(length: int, d_model: int, base: float) -> Array:
        column = np.arange(d_model)
        a = angle(np.arange(length)[:, None], column, d_model, base)
        return np.where((column % 2 == 0) != swap, np.sin(a), np.cos(a))

    return table


def _halves(length: int, d_model: int, base: float) -> Array:
    table = sinusoid_table(length, d_model, base)
    return np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1)


def _ends_with_cosine(length: int, d_model: int, base: float) -> Array:
    table = sinusoid_table(length, d_model, base)
    if d_model % 2:
        table[:, -1] = np.cos(np.arange(length) / base ** ((d_model - 1) / d_model))
    return table


def _odd_crashes(length: int, d_model: int, base: float) -> Array:
    table = np.zeros((length, d_model))
    angle = np.arange(length)[:, None] / base ** (np.arange(0, d_model, 2) / d_model)
    table[:, 0::2] = np.sin(angle)
    table[:, 1::2] = np.cos(angle)
    return table


def _by_loops(length: int, d_model: int, base: float) -> list[list[float]]:
    rows = []
    for t in range(length):
        angles = [t * base ** (-(c - c % 2) / d_model) for c in range(d_model)]
        rows.append([float(np.cos(a) if c % 2 else np.sin(a)) for c, a in enumerate(angles)])
    return rows


def _by_log(length: int, d_model: int, base: float) -> Array:
    rate = np.exp(-np.log(base) * np.arange(0, d_model, 2) / d_model)
    angle = np.outer(np.arange(length), rate)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(length, -1)[:, :d_model]


def _by_slices(length: int, d_model: int, base: float) -> Array:
    table = np.zeros((length, d_model))
    angle = np.arange(length)[:, None] / base ** (np.arange(0, d_model, 2) / d_model)
    table[:, 0::2] = np.sin(angle)
    table[:, 1::2] = np.cos(angle)[:, : d_model // 2]
    return table


SINUSOID_TABLE = Exercise(
    id="08.2",
    title="The table of sinusoids",
    answer="course_lib.exercises.u08.sinusoid_table",
    minutes=12,
    outcomes=("08-a",),
    checks=(Check("an even width", 2), Check("another base"), Check("an odd width")),
    cases=_table_cases,
    hints=(
        "Columns 2i and 2i+1 share one angle. Which i belongs to column c? Try c = 0, 1, 2, 3.",
        "i is c // 2. Positions as a column, np.arange(length)[:, None], and columns as a row give all angles at once.",
        "angle = t / base ** (2 * (column // 2) / d_model); np.where picks the sine for even columns, else the cosine.",
    ),
    misconceptions=(
        Misconception(
            "exponents start at 2/D",
            _waves(lambda t, c, d, base: t / base ** (2 * (c // 2 + 1) / d)),
            "Your exponents start at 2·1/D. They start at 0: the first pair has the rate 1, whatever the base.",
            CLOCKS,
        ),
        Misconception(
            "exponent i/D",
            _waves(lambda t, c, d, base: t / base ** ((c // 2) / d)),
            "Your exponent is i/D. It is 2i/D, so that the slowest pair comes near 1/base.",
            CLOCKS,
        ),
        Misconception(
            "an angle of its own for each column",
            _waves(lambda t, c, d, base: t / base ** (c / d)),
            "Sine and cosine of a pair have different rates here. They share one angle: only then do they form a clock.",
            CLOCKS,
        ),
        Misconception(
            "twice the column",
            _waves(lambda t, c, d, base: t / base ** (2 * c / d)),
            "You put the column's number for i. Columns 2i and 2i+1 belong to pair i: i is the column // 2.",
            CLOCKS,
        ),
        Misconception(
            "multiplied",
            _waves(lambda t, c, d, base: t * base ** (2 * (c // 2) / d)),
            "You multiplied by base^(2i/D). The position is divided by it: later pairs turn slower.",
            CLOCKS,
        ),
        Misconception(
            "brackets missing",
            _waves(lambda t, c, d, base: t / base**2 * (c // 2) / d),
            "** binds before * and /: base ** 2 * i / d is base² · i / d. Put brackets around the exponent.",
            CLOCKS,
        ),
        Misconception(
            "exponent 4i/D",
            _waves(lambda t, c, d, base: t / base ** (4 * (c // 2) / d)),
            "Your exponents are twice too large. If you wrote np.arange(0, d_model, 2), the 2 of 2i is in it already.",
            CLOCKS,
        ),
        Misconception(
            "sines only",
            lambda length, d_model, base: np.sin(
                np.arange(length)[:, None] / base ** (2 * (np.arange(d_model) // 2) / d_model)
            ),
            "There are sines in all columns. The odd columns have the cosine of the same angle.",
            CLOCKS,
        ),
        Misconception(
            "ends with a cosine",
            _ends_with_cosine,
            "With an odd width the last column is even, as it counts from 0: it has a sine.",
            CLOCKS,
        ),
        Misconception(
            "base ignored",
            _waves(lambda t, c, d, base: t / 10_000.0 ** (2 * (c // 2) / d)),
            "10000 stands in your formula, whatever base is given.",
            CLOCKS,
        ),
        Misconception(
            "cosine first",
            _waves(lambda t, c, d, base: t / base ** (2 * (c // 2) / d), swap=True),
            "Sine and cosine are swapped: even columns have the sine.",
            CLOCKS,
        ),
        Misconception(
            "halves",
            _halves,
            "All sines stand first, then all cosines. Some libraries do so; here they alternate, as in the formula.",
            CLOCKS,
        ),
        Misconception(
            "positions from 1",
            _waves(lambda t, c, d, base: (t + 1) / base ** (2 * (c // 2) / d)),
            "Your positions start at 1. The first token stands at t = 0, with the row 0, 1, 0, 1, …",
            CLOCKS,
        ),
        Misconception(
            "transposed",
            lambda length, d_model, base: sinusoid_table(length, d_model, base).T,
            "Positions are your columns. In this course tokens are rows: the table is (length, d_model).",
            CLOCKS,
        ),
        Misconception(
            "crashes at odd widths",
            _odd_crashes,
            "With an odd width there is one sine more than there are cosines: cut the cosines to the columns left.",
            CLOCKS,
        ),
    ),
    alternatives=(_by_loops, _by_log, _by_slices),
)


# --- 08.3 ---------------------------------------------------------------------------------------------------


def move_on(pe: Array, k: int, base: float) -> Array:
    """PE(t + k) from PE(t), by a rotation, without knowing t.

    pe is (T, D), D even: rows of the table of sinusoids at positions that nobody tells you. Return an array (T, D):
    each row moved on by k positions. sin(a + b) = sin a cos b + cos a sin b; cos(a + b) = cos a cos b - sin a sin b.
    """
    angle = k / base ** (np.arange(0, pe.shape[1], 2) / pe.shape[1])
    sin, cos = pe[:, 0::2], pe[:, 1::2]
    moved = np.empty_like(pe)
    moved[:, 0::2] = sin * np.cos(angle) + cos * np.sin(angle)
    moved[:, 1::2] = cos * np.cos(angle) - sin * np.sin(angle)
    return moved


def _rows(draw: Draw, count: int, d_model: int, base: float) -> Array:
    """Rows of a table at some positions, in no order."""
    return sinusoidal(90, d_model, base=base)[draw.rng.permutation(np.arange(1, 90))[:count]]


def _move_cases(draw: Draw) -> list[Case]:
    return [
        Case("one position on", (_rows(draw, 1, 2, 100.0), 1, 100.0), "a single clock"),
        Case("one position on", (_rows(draw, 3, 6, 10_000.0), 1, 10_000.0)),
        Case("far on, and back", (_rows(draw, 5, 4, 50.0), 7, 50.0)),
        Case("far on, and back", (_rows(draw, 2, 8, 1000.0), -3, 1000.0), "back by 3"),
    ]


def _turned(turn: Callable[[Array, Array, Array], tuple[Array, Array]], rate: Any = None) -> Callable[..., Array]:
    def move(pe: Array, k: int, base: float) -> Array:
        d = pe.shape[1]
        angle = k / base ** (np.arange(0, d, 2) / d) if rate is None else rate(k, d, base)
        first, second = turn(pe[:, 0::2], pe[:, 1::2], angle)
        return np.stack([first, second], axis=-1).reshape(pe.shape)

    return move


def _right_turn(s: Array, c: Array, a: Array) -> tuple[Array, Array]:
    return s * np.cos(a) + c * np.sin(a), c * np.cos(a) - s * np.sin(a)


def _halves_turned(pe: Array, k: int, base: float) -> Array:
    half, d = pe.shape[1] // 2, pe.shape[1]
    angle = k / base ** (np.arange(0, d, 2) / d)
    return np.concatenate(_right_turn(pe[:, :half], pe[:, half:], angle), axis=1)


def _new_sine_too_soon(pe: Array, k: int, base: float) -> Array:
    angle = k / base ** (np.arange(0, pe.shape[1], 2) / pe.shape[1])
    pe[:, 0::2] = pe[:, 0::2] * np.cos(angle) + pe[:, 1::2] * np.sin(angle)
    pe[:, 1::2] = pe[:, 1::2] * np.cos(angle) - pe[:, 0::2] * np.sin(angle)
    return pe


def _by_one_function(find: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """The angle of each clock from an inverse function that sees half of the clock."""

    def move(pe: Array, k: int, base: float) -> Array:
        d = pe.shape[1]
        angle = find(pe[:, 0::2], pe[:, 1::2]) + k / base ** (np.arange(0, d, 2) / d)
        return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(pe.shape)

    return move


def _by_matrix(pe: Array, k: int, base: float) -> Array:
    d = pe.shape[1]
    r = np.zeros((d, d))
    for i in range(0, d, 2):
        c, s = np.cos(k / base ** (i / d)), np.sin(k / base ** (i / d))
        r[i : i + 2, i : i + 2] = [[c, s], [-s, c]]
    return pe @ r.T


def _by_complex(pe: Array, k: int, base: float) -> Array:
    d = pe.shape[1]
    z = (pe[:, 1::2] + 1j * pe[:, 0::2]) * np.exp(1j * k / base ** (np.arange(0, d, 2) / d))
    return np.stack([z.imag, z.real], axis=-1).reshape(pe.shape)


def _by_arctan(pe: Array, k: int, base: float) -> Array:
    d = pe.shape[1]
    angle = np.arctan2(pe[:, 0::2], pe[:, 1::2]) + k / base ** (np.arange(0, d, 2) / d)
    return np.dstack([np.sin(angle), np.cos(angle)]).reshape(pe.shape)


MOVE_ON = Exercise(
    id="08.3",
    title="Moving on by k is a rotation",
    answer="course_lib.exercises.u08.move_on",
    minutes=12,
    outcomes=("08-a",),
    checks=(Check("one position on", 2), Check("far on, and back", 2)),
    cases=_move_cases,
    hints=(
        "Each pair (sin, cos) is the hand of a clock. By which angle does the hand of pair i turn in k steps?",
        "By k times the rate of the pair, k / base^(2i/D). The two formulas in the docstring give the new pair.",
        "sin, cos = pe[:, 0::2], pe[:, 1::2]; the new even columns are sin * np.cos(angle) + cos * np.sin(angle).",
    ),
    misconceptions=(
        Misconception(
            "turned back",
            _turned(lambda s, c, a: _right_turn(s, c, -a)),
            "You turned the clocks back: this is PE(t - k). Look at the signs of the two sines.",
            SHIFT,
        ),
        Misconception(
            "one angle for all pairs",
            _turned(_right_turn, lambda k, d, base: np.full(d // 2, float(k))),
            "All pairs turn by the same angle here. Each clock has its own rate: pair i turns by k / base^(2i/D).",
            SHIFT,
        ),
        Misconception(
            "exponent i/D",
            _turned(_right_turn, lambda k, d, base: k / base ** (np.arange(d // 2) / d)),
            "Your exponent is i/D. The rates are those of the table: base^(2i/D).",
            CLOCKS,
        ),
        Misconception(
            "exponents start at 2/D",
            _turned(_right_turn, lambda k, d, base: k / base ** (np.arange(2, d + 2, 2) / d)),
            "Your exponents start at 2·1/D; they start at 0, as in the table.",
            CLOCKS,
        ),
        Misconception(
            "base ignored",
            _turned(_right_turn, lambda k, d, base: k / 10_000.0 ** (np.arange(0, d, 2) / d)),
            "10000 stands in your formula, whatever base is given.",
            CLOCKS,
        ),
        Misconception(
            "k ignored",
            _turned(_right_turn, lambda k, d, base: 1 / base ** (np.arange(0, d, 2) / d)),
            "Your clocks turn by one step, whatever k is: the angle is k times the rate.",
            SHIFT,
        ),
        Misconception(
            "sine and cosine swapped",
            _turned(lambda s, c, a: _right_turn(s, c, a)[::-1]),
            "The new cosines stand in the even columns. As in the table, even columns have the sine.",
            CLOCKS,
        ),
        Misconception(
            "in place, and the new sine used too soon",
            _new_sine_too_soon,
            "You wrote the new sine over the old one, in the caller's array, and then made the cosine from it: both need the old pair.",
            SHIFT,
        ),
        Misconception(
            "the new sine used too soon",
            lambda pe, k, base: _new_sine_too_soon(pe.copy(), k, base),
            "You wrote the new sine over the old one, and then made the new cosine from it. Both need the old pair.",
            SHIFT,
        ),
        Misconception(
            "a new table",
            lambda pe, k, base: sinusoidal(len(pe), pe.shape[1], base=base, start=k),
            "You made a new table, as if row r stood at position r. Nobody says where the rows stand: turn each as it is.",
            SHIFT,
        ),
        Misconception(
            "arcsin",
            _by_one_function(lambda s, c: np.arcsin(s)),
            "arcsin finds the angle on one half of the clock only. No angle is needed: turn the pair (sin, cos) itself.",
            SHIFT,
        ),
        Misconception(
            "arctan",
            _by_one_function(lambda s, c: np.arctan(s / c)),
            "arctan(sin / cos) cannot tell a clock from the opposite one. No angle is needed: turn the pair itself.",
            SHIFT,
        ),
        Misconception(
            "transposed",
            lambda pe, k, base: move_on(pe, k, base).T,
            "Your positions are columns. Return them as rows, as they came: (T, D).",
            SHIFT,
        ),
        Misconception(
            "both signs plus",
            _turned(lambda s, c, a: (s * np.cos(a) + c * np.sin(a), c * np.cos(a) + s * np.sin(a))),
            "One sign is wrong: cos(a + b) has a minus. With two pluses the pairs grow longer, and no rotation does that.",
            SHIFT,
        ),
        Misconception(
            "added",
            lambda pe, k, base: pe + _right_turn(np.zeros(1), np.ones(1), np.array(k))[0],
            "You added something to the rows. Moving on turns each pair; adding changes its length.",
            SHIFT,
        ),
        Misconception(
            "PE(k) added",
            lambda pe, k, base: pe + sinusoidal(1, pe.shape[1], base=base, start=k),
            "You added PE(k): but sin(a + b) is not sin a + sin b. Each pair is turned.",
            SHIFT,
        ),
        Misconception(
            "rows moved",
            lambda pe, k, base: np.roll(pe, -k, axis=0),
            "You moved the rows of the array. They may stand in any order: compute each from itself, by turning it.",
            SHIFT,
        ),
        Misconception(
            "halves",
            _halves_turned,
            "You paired column i with column i + D/2. Sine and cosine of one clock are neighbours: 2i and 2i + 1.",
            CLOCKS,
        ),
    ),
    alternatives=(_by_matrix, _by_complex, _by_arctan),
)


# --- 08.4 ---------------------------------------------------------------------------------------------------


def shuffle_gap(x: Array, p: Array, order: Array) -> float:
    """How much self-attention notices when the tokens change places: 0 if it is blind to order.

    x is (T, D), the tokens; p is (T, D), the vectors of the places, added to whatever token stands there; x[order]
    are the shuffled tokens. Attend over the sentence as it stands and over the shuffled one; a blind layer returns the
    same rows, shuffled in the same way. Return the largest absolute difference from that, one number.
    `self_attention` of unit 03 is imported above.
    """
    as_it_stands = self_attention(x + p)
    shuffled = self_attention(x[order] + p)
    return np.abs(shuffled - as_it_stands[order]).max()


def _gap_cases(draw: Draw) -> list[Case]:
    three, four, five = np.array([1, 2, 0]), np.array([2, 0, 3, 1]), np.array([3, 0, 4, 2, 1])
    x, p = draw(3, 4), draw(3, 4)
    return [
        Case("positions are noticed", (x, p, three)),
        Case("positions are noticed", (-x, -p, three), "the first case with all signs turned: the same gap"),
        Case("positions are noticed", (draw(4, 6), sinusoidal(4, 6), four), "sinusoids"),
        Case("with and without", (draw(4, 5), np.zeros((4, 5)), four), "no positions: the gap is 0"),
        Case("with and without", (draw(5, 7), np.tile(draw(1, 7), (5, 1)), five), "the same vector everywhere"),
        Case("with and without", (draw(5, 8), draw(5, 8), five)),
    ]


def _gap(shuffled: Callable[[Array, Array, Array], Array], stands: Callable[[Array, Array, Array], Array]) -> Any:
    return lambda x, p, order: np.abs(shuffled(x, p, order) - stands(x, p, order)).max()


def _of_shuffled(x: Array, p: Array, order: Array) -> Array:
    return self_attention(x[order] + p)


def _then_shuffled(x: Array, p: Array, order: Array) -> Array:
    return self_attention(x + p)[order]


NOTICES = Exercise(
    id="08.4",
    title="Does it notice the order?",
    answer="course_lib.exercises.u08.shuffle_gap",
    minutes=8,
    outcomes=("08-b",),
    checks=(Check("positions are noticed", 2), Check("with and without")),
    cases=_gap_cases,
    hints=(
        "Unit 03: shuffling commutes with self-attention. Which two arrays are equal for a layer that is blind?",
        "Shuffle the tokens, add p, attend; or add p, attend, shuffle the rows of the result. The places do not move.",
        "Compare self_attention(x[order] + p) with the rows of self_attention(x + p) taken in `order`.",
    ),
    misconceptions=(
        Misconception(
            "places travel along",
            _gap(lambda x, p, o: self_attention((x + p)[o]), _then_shuffled),
            "Your gap is always 0: each token took its place with it (or places never reach attention). Shuffle x alone.",
            NOTICE,
        ),
        Misconception(
            "results not shuffled",
            _gap(_of_shuffled, lambda x, p, o: self_attention(x + p)),
            "You compared with the results in their old order. Even a blind layer moves each row along with its token.",
            ORDER,
        ),
        Misconception(
            "shuffled twice",
            _gap(lambda x, p, o: _of_shuffled(x, p, o)[o], lambda x, p, o: self_attention(x + p)),
            "Both steps shuffle in one direction. Row i of the shuffled sentence is token order[i]: compare it with that token's row.",
            ORDER,
        ),
        Misconception(
            "added behind attention",
            _gap(lambda x, p, o: self_attention(x[o]) + p, lambda x, p, o: (self_attention(x) + p)[o]),
            "You added p behind the attention (or compared the inputs). Added before, it takes part in scores and values.",
            NOTICE,
        ),
        Misconception(
            "places shuffled",
            _gap(lambda x, p, o: self_attention(x + p[o]), _then_shuffled),
            "You shuffled the places, and the tokens stayed. The places stay, and the tokens move: x[order] + p.",
            NOTICE,
        ),
        Misconception(
            "positions on one side",
            _gap(_of_shuffled, lambda x, p, o: self_attention(x)[o]),
            "One of the two sentences has no positions. Both have: p is added to whatever tokens stand there.",
            NOTICE,
        ),
        Misconception(
            "signed",
            lambda x, p, order: (_of_shuffled(x, p, order) - _then_shuffled(x, p, order)).max(),
            "You took the largest difference with its sign. A large negative one counts as much: np.abs first.",
            NOTICE,
        ),
        Misconception(
            "features shuffled",
            _gap(lambda x, p, o: self_attention(x[:, o] + p[:, : len(o)]), lambda x, p, o: self_attention(x + p)[:, o]),
            "You shuffled columns, which are features. Tokens are rows: x[order].",
            ORDER,
        ),
        Misconception(
            "mean",
            lambda x, p, order: np.abs(_of_shuffled(x, p, order) - _then_shuffled(x, p, order)).mean(),
            "This is the mean difference. The largest was asked for: one row that differs is enough to notice.",
            NOTICE,
        ),
        Misconception(
            "sums compared",
            lambda x, p, order: np.abs(_of_shuffled(x, p, order).sum(0) - _then_shuffled(x, p, order).sum(0)).max(),
            "You compared sums over all tokens. A layer may give rows to the wrong tokens and keep the sum.",
            NOTICE,
        ),
        Misconception(
            "yes or no",
            lambda x, p, order: not np.allclose(_of_shuffled(x, p, order), _then_shuffled(x, p, order)),
            "You return yes or no, and rightly so; the exercise asks how much: the largest absolute difference.",
            NOTICE,
        ),
    ),
    alternatives=(
        lambda x, p, order: np.abs(_of_shuffled(x, p, order)[np.argsort(order)] - self_attention(x + p)).max(),
        lambda x, p, order: max(
            float(np.abs(_of_shuffled(x, p, order)[new] - self_attention(x + p)[old]).max())
            for new, old in enumerate(order)
        ),
        lambda x, p, order: np.linalg.norm((_of_shuffled(x, p, order) - _then_shuffled(x, p, order)).ravel(), np.inf),
    ),
)


# --- 08.5 ---------------------------------------------------------------------------------------------------


def rotary_scores(q: Array, k: Array, q_positions: Array, k_positions: Array, base: float) -> Array:
    """Scaled scores with rotary positions: turn queries and keys, then q kᵀ / √d_k.

    q is (T, d_k), k is (S, d_k), d_k even; q_positions is (T,) and k_positions (S,), the places of the tokens.
    Neighbours form a pair: columns 2i and 2i+1 of a token at t are turned by the angle t / base^(2i/d_k).
    Return an array (T, S).
    """

    def turn(x: Array, t: Array) -> Array:
        angle = t[:, None] / base ** (np.arange(0, x.shape[1], 2) / x.shape[1])
        even, odd = x[:, 0::2], x[:, 1::2]
        turned = np.empty_like(x)
        turned[:, 0::2] = even * np.cos(angle) - odd * np.sin(angle)
        turned[:, 1::2] = even * np.sin(angle) + odd * np.cos(angle)
        return turned

    return turn(q, q_positions) @ turn(k, k_positions).T / np.sqrt(q.shape[1])


def _parallel(draw: Draw, t: int, s: int, d: int) -> tuple[Array, Array]:
    """Queries and keys whose pairs lie on one line: then it does not matter in which direction both are turned."""
    phi = draw.rng.uniform(0.3, 1.2, d // 2)
    line = np.stack([np.cos(phi), np.sin(phi)], axis=-1)
    q, k = ((draw(n, d // 2)[:, :, None] * line).reshape(n, d) for n in (t, s))
    return q, k


def _either_way(args: tuple[Any, ...]) -> Callable[[Any], str]:
    """A complaint about scores, unless they are right for turning one way or, queries and keys alike, the other."""
    q, k, m, n, base = args
    both = [rotary_scores(q, k, m, n, base), rotary_scores(q, k, -m, -n, base)]

    def complaint(said: Any) -> str:
        if not isinstance(said, np.ndarray) or said.shape != both[0].shape:
            return f"With q of shape {q.shape} and k of shape {k.shape}, the scores should be an array {both[0].shape}."
        if any(np.allclose(said, right, rtol=1e-4, atol=1e-5) for right in both):
            return ""
        return (
            f"With q of shape {q.shape} and k of shape {k.shape}: the scores are not those of turned queries and keys. "
            "Each pair is turned as a whole, by the sine and the cosine of its angle."
        )

    return complaint


def _rotary_cases(draw: Draw) -> list[Case]:
    far = draw.rng.permutation(40)
    q, k = _parallel(draw, 2, 3, 4)
    free = (draw(3, 6), draw(4, 6), np.arange(3.0) + 2, np.arange(4.0), 100.0)
    return [
        Case("tokens in a row", (q, k, np.arange(2.0) + 1, np.arange(3.0), 100.0)),
        Case("tokens in a row", (*_parallel(draw, 5, 4, 6), np.arange(5.0) + 2, np.arange(4.0), 10_000.0)),
        Case("any positions", (*_parallel(draw, 3, 5, 8), far[:3] + 0.0, far[3:8] + 0.0, 50.0), "far apart, unordered"),
        Case("any positions", (q, k, np.arange(2.0) + 31, np.arange(3.0) + 30, 100.0), "the first case, 30 later"),
        Case("any queries and keys", free, complaint=_either_way(free)),
    ]


def _rotary_by(turn: Callable[[Array, Array, float], Array], turn_k: Any = None, scaled: bool = True) -> Any:
    def scores(q: Array, k: Array, q_positions: Array, k_positions: Array, base: float) -> Array:
        product = turn(q, q_positions, base) @ (turn_k or turn)(k, k_positions, base).T
        return product / (np.sqrt(q.shape[1]) if scaled else 1.0)

    return scores


def _stay(x: Array, t: Array, base: float) -> Array:
    return x


def _turn(x: Array, t: Array, base: float) -> Array:
    return rotary(x, t, base=base)


def _turn_halves(x: Array, t: Array, base: float) -> Array:
    half, d = x.shape[1] // 2, x.shape[1]
    angle = t[:, None] / base ** (np.arange(0, d, 2) / d)
    a, b = x[:, :half], x[:, half:]
    return np.hstack([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)])


def _turn_as_complex(x: Array, t: Array, base: float) -> Array:
    d = x.shape[1]
    z = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * t[:, None] / base ** (np.arange(0, d, 2) / d))
    return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)


def _turn_at_rate(exponent: Callable[[int], Array]) -> Callable[[Array, Array, float], Array]:
    def turn(x: Array, t: Array, base: float) -> Array:
        angle = t[:, None] / base ** exponent(x.shape[1])
        even, odd = x[:, 0::2], x[:, 1::2]
        turned = (even * np.cos(angle) - odd * np.sin(angle), even * np.sin(angle) + odd * np.cos(angle))
        return np.stack(turned, axis=-1).reshape(x.shape)

    return turn


def _even_too_soon(x: Array, t: Array, base: float) -> Array:
    x, angle = x.copy(), t[:, None] / base ** (np.arange(0, x.shape[1], 2) / x.shape[1])
    x[:, 0::2] = x[:, 0::2] * np.cos(angle) - x[:, 1::2] * np.sin(angle)
    x[:, 1::2] = x[:, 0::2] * np.sin(angle) + x[:, 1::2] * np.cos(angle)
    return x


def _two_pluses(x: Array, t: Array, base: float) -> Array:
    angle = t[:, None] / base ** (np.arange(0, x.shape[1], 2) / x.shape[1])
    even, odd = x[:, 0::2], x[:, 1::2]
    turned = (even * np.cos(angle) + odd * np.sin(angle), even * np.sin(angle) + odd * np.cos(angle))
    return np.stack(turned, axis=-1).reshape(x.shape)


def _cosines_only(q: Array, k: Array, q_positions: Array, k_positions: Array, base: float) -> Array:
    d = q.shape[1]
    angle = (q_positions[:, None] - k_positions)[..., None] / base ** (np.arange(0, d, 2) / d)
    products = (q[:, None] * k[None]).reshape(len(q), len(k), -1, 2).sum(-1)
    return (products * np.cos(angle)).sum(-1) / np.sqrt(d)


def _by_distance(q: Array, k: Array, q_positions: Array, k_positions: Array, base: float) -> Array:
    scores = np.zeros((len(q), len(k)))
    for i, m in enumerate(q_positions):
        for j, n in enumerate(k_positions):
            scores[i, j] = q[i] @ rotary(k[j : j + 1], [n - m], base=base)[0] / np.sqrt(q.shape[1])
    return scores


ROTARY_SCORES = Exercise(
    id="08.5",
    title="Rotary scores",
    answer="course_lib.exercises.u08.rotary_scores",
    minutes=15,
    outcomes=("08-d",),
    checks=(Check("tokens in a row", 2), Check("any positions"), Check("any queries and keys")),
    cases=_rotary_cases,
    hints=(
        "Write a helper that turns the rows of one array by their positions, and use it for queries and for keys.",
        "angle = t[:, None] / base ** (np.arange(0, d, 2) / d) is (tokens, pairs). Even columns are x, odd columns y.",
        "A turned pair is (x cos - y sin, x sin + y cos). Then the product of turned q with turned k, over √d_k.",
    ),
    misconceptions=(
        Misconception(
            "not turned",
            _rotary_by(_stay),
            "Nothing is turned here: these are the scores of unit 05, and they know no positions.",
            ROTARY,
        ),
        Misconception(
            "queries only",
            _rotary_by(_turn, _stay),
            "Only the queries are turned, so the score depends on where the query stands. Turn the keys as well.",
            ROTARY,
        ),
        Misconception(
            "keys only",
            _rotary_by(_stay, _turn),
            "Only the keys are turned, so the score depends on where the key stands. Turn the queries as well.",
            ROTARY,
        ),
        Misconception(
            "opposite ways",
            _rotary_by(_turn, lambda x, t, base: rotary(x, -t, base=base)),
            "Queries and keys turn in opposite directions: the score sees m + n. Turned the same way, it sees n - m.",
            ROTARY,
        ),
        Misconception(
            "positions ignored",
            _rotary_by(lambda x, t, base: rotary(x, base=base)),
            "Row r is turned as if it stood at position r. Tokens stand where q_positions and k_positions say.",
            ROTARY,
        ),
        Misconception(
            "one angle for all pairs",
            _rotary_by(_turn_at_rate(lambda d: np.zeros(d // 2))),
            "All pairs turn at one rate. Pair i turns by t / base^(2i/d_k): fast clocks and slow ones.",
            CLOCKS,
        ),
        Misconception(
            "exponent i/d_k",
            _rotary_by(_turn_at_rate(lambda d: np.arange(d // 2) / d)),
            "Your exponent is i/d_k. It is 2i/d_k, the same clocks as in the table of sinusoids.",
            CLOCKS,
        ),
        Misconception(
            "exponents start at 2/d_k",
            _rotary_by(_turn_at_rate(lambda d: np.arange(2, d + 2, 2) / d)),
            "Your exponents start at 2·1/d_k. They start at 0: the first pair turns by t itself.",
            CLOCKS,
        ),
        Misconception(
            "halves",
            _rotary_by(_turn_halves),
            "You paired column i with column i + d_k/2. Many models do so; this exercise pairs neighbours, 2i and 2i+1.",
            ROTARY,
        ),
        Misconception(
            "sinusoids added",
            _rotary_by(lambda x, t, base: x + sinusoidal(int(t.max()) + 1, x.shape[1], base=base)[t.astype(int)]),
            "You added sinusoids to queries and keys. Rotary adds nothing: it turns, and all lengths stay as they are.",
            ROTARY,
        ),
        Misconception(
            "not scaled",
            _rotary_by(_turn, scaled=False),
            "The scores are turned rightly, but not divided by √d_k (unit 05).",
            ROTARY,
        ),
        Misconception(
            "divided by d_k",
            lambda q, k, m, n, base: rotary_scores(q, k, m, n, base) / np.sqrt(q.shape[1]),
            "The scores are turned rightly, but divided by d_k. It is its root (unit 05).",
            ROTARY,
        ),
        Misconception(
            "weights",
            lambda q, k, m, n, base: np.exp(s := rotary_scores(q, k, m, n, base)) / np.exp(s).sum(-1, keepdims=True),
            "These are weights, behind the softmax. The scores were asked for.",
            ROTARY,
        ),
        Misconception(
            "transposed",
            lambda q, k, m, n, base: rotary_scores(q, k, m, n, base).T,
            "Queries are the rows, and keys the columns: q kᵀ is (T, S), yours is (S, T).",
            ROTARY,
        ),
        Misconception(
            "base ignored",
            lambda q, k, m, n, base: rotary_scores(q, k, m, n, 10_000.0),
            "10000 stands in your formula, whatever base is given.",
            CLOCKS,
        ),
        Misconception(
            "the new column used too soon",
            _rotary_by(_even_too_soon),
            "You wrote the new even columns over the old ones, and then made the odd ones from them. Both need the old pair.",
            ROTARY,
        ),
        Misconception(
            "two pluses",
            _rotary_by(_two_pluses),
            "One sign is wrong: the pair becomes (a cos − b sin, a sin + b cos). With two pluses its length changes.",
            ROTARY,
        ),
        Misconception(
            "cosines only",
            _cosines_only,
            "You multiplied each pair's product by a cosine. That holds for parallel pairs; others need the sine part too.",
            ROTARY,
        ),
    ),
    alternatives=(
        _rotary_by(_turn_as_complex),
        _rotary_by(lambda x, t, base: rotary(x, -t, base=base)),
        _by_distance,
    ),
)


# --- 08.6 ---------------------------------------------------------------------------------------------------


def alibi_penalty(heads: int, length: int) -> Array:
    """What ALiBi adds to the scaled scores: -m_h |i - j| for head h, query i and key j.

    heads H is a power of two, and the heads are counted from 1: m_h = 2^(-8h/H) for h = 1, 2, …, H.
    Return an array (H, length, length): a table of queries (rows) and keys (columns) for each head.
    """
    slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
    position = np.arange(length)
    distance = np.abs(position[:, None] - position[None, :])
    return -slopes[:, None, None] * distance


def _penalty(slopes: Callable[[int], Array], distance: Callable[[Array], Array] = np.abs) -> Callable[..., Array]:
    def bias(heads: int, length: int) -> Array:
        i_minus_j = np.arange(length)[:, None] - np.arange(length)
        return -slopes(heads)[:, None, None] * distance(i_minus_j)

    return bias


def _slopes(heads: int) -> Array:
    return 2.0 ** (-8 * np.arange(1, heads + 1) / heads)


ALIBI_PENALTY = Exercise(
    id="08.6",
    title="Distance costs",
    answer="course_lib.exercises.u08.alibi_penalty",
    minutes=8,
    outcomes=("08-d",),
    checks=(Check("two heads", 2), Check("more heads, other lengths")),
    cases=lambda draw: [
        Case("two heads", (2, 3)),
        Case("more heads, other lengths", (4, 6)),
        Case("more heads, other lengths", (8, 5), "the slopes are 1/2, 1/4, … 1/256"),
        Case("more heads, other lengths", (16, 4), "sixteen heads: the first slope is the root of 1/2"),
        Case("more heads, other lengths", (1, 2 + int(draw.rng.integers(5, 8))), "a single head"),
    ],
    hints=(
        "Two things are multiplied: a slope for each head, (H,), and a distance for each pair of tokens, (T, T).",
        "position[:, None] - position[None, :] is i - j for all pairs. How is it made a distance?",
        "slopes[:, None, None] is (H, 1, 1), and broadcasts against the (T, T) distances. Mind the minus.",
    ),
    misconceptions=(
        Misconception(
            "a reward",
            _penalty(lambda h: -_slopes(h)),
            "The sign is missing: far keys get a larger score here. Distance should cost.",
            ALIBI,
        ),
        Misconception(
            "signed distance",
            _penalty(_slopes, lambda d: d),
            "You left i - j signed, so keys to the right are rewarded. Distance is |i - j|.",
            ALIBI,
        ),
        Misconception(
            "signed distance, the other way",
            _penalty(_slopes, lambda d: -d),
            "You left j - i signed, so keys to the left are rewarded. Distance is |i - j|.",
            ALIBI,
        ),
        Misconception(
            "with a mask",
            lambda heads, length: alibi_penalty(heads, length) + np.triu(np.full((length, length), -np.inf), 1),
            "You built the causal mask in. It stays apart: ALiBi says what distance costs, on both sides.",
            ALIBI,
        ),
        Misconception(
            "slopes in reverse",
            _penalty(lambda h: _slopes(h)[::-1]),
            "Your slopes are in reverse: the first head has the steepest, 2^(-8/H), the last one 2^(-8).",
            ALIBI,
        ),
        Misconception(
            "8 forgotten",
            _penalty(lambda h: 2.0 ** (-np.arange(1, h + 1) / h)),
            "The 8 is missing in the exponent: m_h = 2^(-8h/H), so the last slope is 2^(-8) for any number of heads.",
            ALIBI,
        ),
        Misconception(
            "whole exponents",
            _penalty(lambda h: 2.0 ** (-8 * np.arange(1, h + 1) // h)),
            "// rounds the exponent. With 16 heads the exponents are -1/2, -1, -3/2, …: divide with /.",
            ALIBI,
        ),
        Misconception(
            "one place too far",
            _penalty(_slopes, lambda d: np.abs(d) + 1),
            "Your distance starts at 1. From a token to itself it is 0, and costs nothing.",
            ALIBI,
        ),
        Misconception(
            "heads from 0",
            _penalty(lambda h: 2.0 ** (-8 * np.arange(h) / h)),
            "Your heads are counted from 0, so the first slope is 1. They count from 1: the first is 2^(-8/H).",
            ALIBI,
        ),
        Misconception(
            "slopes for eight heads",
            _penalty(lambda h: 2.0 ** -np.arange(1.0, h + 1)),
            "The slopes 1/2, 1/4, 1/8, … are those of eight heads. With H heads, m_h is 2^(-8h/H).",
            ALIBI,
        ),
        Misconception(
            "one slope for all heads",
            _penalty(lambda h: np.full(h, 2.0 ** (-8 / h))),
            "All heads have one slope here. Each forgets at a rate of its own: some look near, some far.",
            ALIBI,
        ),
        Misconception(
            "squared",
            _penalty(_slopes, lambda d: d**2),
            "You squared the distance. ALiBi's bias is linear in it, which is what the L of its name says.",
            ALIBI,
        ),
        Misconception(
            "past only",
            _penalty(_slopes, lambda d: np.maximum(d, 0)),
            "Keys to the right cost nothing here. Without a mask, distance costs on both sides.",
            ALIBI,
        ),
        Misconception(
            "heads last",
            lambda heads, length: alibi_penalty(heads, length).transpose(1, 2, 0),
            "Your heads stand on the last axis. They come first: (H, T, T).",
            ALIBI,
        ),
        Misconception(
            "exponentials",
            lambda heads, length: np.exp(alibi_penalty(heads, length)),
            "You took the exponential already. That is the softmax's task: the bias is added to the scores.",
            ALIBI,
        ),
    ),
    alternatives=(
        lambda heads, length: [
            [[-(2 ** (-8 * h / heads)) * abs(i - j) for j in range(length)] for i in range(length)]
            for h in range(1, heads + 1)
        ],
        lambda heads, length: np.einsum(
            "h,ij->hij", -_slopes(heads), np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
        ),
    ),
)


# --- 08.7 ---------------------------------------------------------------------------------------------------


def inside_and_beyond(predicted: Array, target: Array, trained: int) -> Array:
    """How often a model is right inside the trained length, and how often beyond it, for each seed.

    predicted is (seeds, B, T), whole numbers: what each of the trained models says at each place; target is (B, T),
    what is right. In training, sequences had `trained` tokens: places 0 … trained - 1 were seen, the others never.
    Return an array (seeds, 2): the share of right answers inside, then beyond.
    """
    right = predicted == target
    inside, beyond = right[:, :, :trained], right[:, :, trained:]
    return np.stack([inside.mean(axis=(1, 2)), beyond.mean(axis=(1, 2))], axis=1)


def _measure_cases(draw: Draw) -> list[Case]:
    def case(check: str, seeds: int, b: int, t: int, trained: int, note: str = "") -> Case:
        target = draw.rng.integers(0, 6, (b, t))
        predicted = np.repeat(target[None], seeds, axis=0)
        for seed in range(seeds):  # each seed errs often beyond, seldom inside, and each in its own number
            past = [trained + step for step in (0, 1, 3, 6) if trained + step < t]
            for place in (*range(0, trained, 3), *past):
                row = (place + seed) % b
                predicted[seed, row, place] += 1
                predicted[seed, (row + 1) % b, place] += trained <= place < t - 3 * seed
        return Case(check, (predicted, target, trained), note)

    return [
        case("one seed", 1, 5, 7, 4),
        case("one seed", 1, 4, 12, 3, "far more places beyond than inside"),
        case("three seeds", 3, 5, 11, 4),
    ]


def _shares(inside: Any, beyond: Any) -> Callable[..., Array]:
    def measure(predicted: Array, target: Array, trained: int) -> Array:
        right = predicted == target
        return np.stack([inside(right, trained).mean(axis=(1, 2)), beyond(right, trained).mean(axis=(1, 2))], axis=1)

    return measure


def _measure_loops(predicted: Array, target: Array, trained: int) -> Array:
    rows = []
    for one in predicted:
        right = [[bool(p == t) for p, t in zip(*pair, strict=True)] for pair in zip(one, target, strict=True)]
        inside = [r for row in right for r in row[:trained]]
        beyond = [r for row in right for r in row[trained:]]
        rows.append([sum(inside) / len(inside), sum(beyond) / len(beyond)])
    return np.array(rows)


MEASURE_LENGTHS = Exercise(
    id="08.7",
    title="Inside and beyond",
    answer="course_lib.exercises.u08.inside_and_beyond",
    minutes=8,
    outcomes=("08-c",),
    checks=(Check("one seed", 2), Check("three seeds")),
    cases=_measure_cases,
    hints=(
        "predicted == target broadcasts (seeds, B, T) against (B, T): True where a model is right.",
        "Cut the last axis at `trained`: the first part was seen in training. Then the mean of True and False.",
        "right[:, :, :trained].mean(axis=(1, 2)) has one number for each seed; np.stack(..., axis=1) puts two side by side.",
    ),
    misconceptions=(
        Misconception(
            "cut one place late",
            _shares(lambda r, n: r[:, :, : n + 1], lambda r, n: r[:, :, n + 1 :]),
            "You cut one place too late. Places 0 … trained - 1 were seen; place `trained` is the first that was not.",
            MEASURE,
        ),
        Misconception(
            "cut one place early",
            _shares(lambda r, n: r[:, :, : n - 1], lambda r, n: r[:, :, n - 1 :]),
            "You cut one place too early. `trained` places were seen, 0 … trained - 1: right[:, :, :trained] has all of them.",
            MEASURE,
        ),
        Misconception(
            "one place left out",
            _shares(lambda r, n: r[:, :, :n], lambda r, n: r[:, :, n + 1 :]),
            "Place `trained` counts nowhere. It is the first that was not seen, so beyond starts with it.",
            MEASURE,
        ),
        Misconception(
            "one place counted twice",
            _shares(lambda r, n: r[:, :, : n + 1], lambda r, n: r[:, :, n:]),
            "Place `trained` counts twice. A slice [:n] ends with place n - 1: inside is [:trained].",
            MEASURE,
        ),
        Misconception(
            "counted from the end",
            _shares(lambda r, n: r[:, :, :n], lambda r, n: r[:, :, -n:]),
            "[-trained:] takes the last `trained` places. Beyond are all places from `trained` on: [trained:].",
            MEASURE,
        ),
        Misconception(
            "all places inside",
            _shares(lambda r, n: r, lambda r, n: r[:, :, n:]),
            "Your first number counts all places. Inside are the places below `trained` only.",
            MEASURE,
        ),
        Misconception(
            "shares of the whole",
            lambda predicted, target, trained: np.stack(
                [
                    (predicted == target)[:, :, cut].sum(axis=(1, 2)) / target.size
                    for cut in (slice(trained), slice(trained, None))
                ],
                axis=1,
            ),
            "You divided both by the number of all places. Divide each part by the number of its own.",
            MEASURE,
        ),
        Misconception(
            "cut along the batch",
            lambda predicted, target, trained: np.stack(
                [
                    (predicted == target)[:, :trained].mean(axis=(1, 2)),
                    (predicted == target)[:, trained:].mean(axis=(1, 2)),
                ],
                1,
            ),
            "You cut the second axis, which is the batch. Places are the last axis: right[:, :, :trained].",
            MEASURE,
        ),
        Misconception(
            "all places",
            _shares(lambda r, n: r[:, :, :n], lambda r, n: r),
            "Your second number counts all places. The easy ones inside hide what happens beyond: leave them out.",
            MEASURE,
        ),
        Misconception(
            "swapped",
            _shares(lambda r, n: r[:, :, n:], lambda r, n: r[:, :, :n]),
            "The two are swapped: first inside, then beyond.",
            MEASURE,
        ),
        Misconception(
            "errors",
            _shares(lambda r, n: ~r[:, :, :n], lambda r, n: ~r[:, :, n:]),
            "These are the shares of wrong answers. Count the right ones.",
            MEASURE,
        ),
        Misconception(
            "seeds averaged",
            lambda predicted, target, trained: inside_and_beyond(predicted, target, trained).mean(axis=0),
            "You averaged over the seeds. Keep each: how far seeds lie apart tells whether a difference means something.",
            MEASURE,
        ),
        Misconception(
            "whole sequences",
            _shares(
                lambda r, n: r[:, :, :n].all(axis=2, keepdims=True), lambda r, n: r[:, :, n:].all(axis=2, keepdims=True)
            ),
            "You counted sequences without any error. Here each place counts by itself.",
            MEASURE,
        ),
        Misconception(
            "counts",
            lambda predicted, target, trained: np.stack(
                [(predicted == target)[:, :, cut].sum(axis=(1, 2)) for cut in (slice(trained), slice(trained, None))], 1
            ),
            "These are counts. There are more places on one side than on the other: divide, to get shares.",
            MEASURE,
        ),
        Misconception(
            "transposed",
            lambda predicted, target, trained: inside_and_beyond(predicted, target, trained).T,
            "Your seeds are columns. Return a row for each seed: inside, beyond.",
            MEASURE,
        ),
    ),
    alternatives=(
        _measure_loops,
        lambda predicted, target, trained: np.array(
            [[np.mean((p == target)[:, :trained]), np.mean((p == target)[:, trained:])] for p in predicted]
        ),
    ),
)


# --- 08.8 ---------------------------------------------------------------------------------------------------


def kept_beyond() -> Any:
    """Read the two tables of the lecture: which encodings beat no positions at all, beyond the trained length?

    Return five times True or False, in this order: learned, sinusoidal, rotary, relative, ALiBi. True: on both tasks
    it is better beyond the trained length than the model without positions.
    """
    return [False, False, True, True, True]


KEPT_BEYOND = Exercise(
    id="08.8",
    title="Read the tables",
    answer="course_lib.exercises.u08.kept_beyond",
    minutes=4,
    outcomes=("08-c",),
    checks=(Check("who beats no positions", 2),),
    cases=lambda draw: [Case("who beats no positions")],
    hints=(
        "Both tables have a row `none`: compare the column `beyond` of each other row with it.",
        "An encoding that was added to the inputs meets vectors at place 16 that no training ever showed it.",
        "Those that see only distances meet mostly distances that they know. Two of the five are False.",
    ),
    misconceptions=(
        Misconception(
            "sinusoids generalise",
            lambda: [False, True, True, True, True],
            "A formula gives sinusoids at any place, but the network has never seen them there: look at the table again.",
            MEASURE,
        ),
        Misconception(
            "all do",
            lambda: [True, True, True, True, True],
            "You may have read the column `inside`. Beyond the trained length two of the five fall below `none`.",
            MEASURE,
        ),
        Misconception(
            "ALiBi alone",
            lambda: [False, False, False, False, True],
            "ALiBi was made for this, yet in the tables it is not alone: compare rotary and relative with `none`.",
            MEASURE,
        ),
        Misconception(
            "rotary does not",
            lambda: [False, False, False, True, True],
            "Rotary loses some beyond, but it stays far above `none` in both tables.",
            MEASURE,
        ),
        Misconception(
            "ALiBi does not",
            lambda: [False, False, True, True, False],
            "ALiBi is the worst of the three on the second task, but compare it with `none`: it is far above.",
            MEASURE,
        ),
        Misconception(
            "the table does as well",
            lambda: [True, False, True, True, True],
            "Rows 16 to 47 of the learned table were never trained: look at its column `beyond` again.",
            MEASURE,
        ),
        Misconception(
            "none does",
            lambda: [False, False, False, False, False],
            "All lose something beyond, but to lose is not to be worse than no positions at all: compare with `none`.",
            MEASURE,
        ),
    ),
    prediction=True,
)


EXERCISES = (
    CLOCKS_BY_HAND,
    SINUSOID_TABLE,
    MOVE_ON,
    NOTICES,
    ROTARY_SCORES,
    ALIBI_PENALTY,
    MEASURE_LENGTHS,
    KEPT_BEYOND,
)
