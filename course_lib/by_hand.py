"""Attention by hand: NumPy only, first as loops over tokens, then as matrix products.

Rows are tokens: `x` is (tokens, width); matrix forms take batch axes in front. Masks: True = may attend.
Where positions count, the T queries are the newest of S tokens: query i stands at position i + S - T.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from course_lib.shapes import expect, expect_attention, expect_divides, expect_last, expect_mask, shape

Array: TypeAlias = NDArray[Any]
Mask: TypeAlias = NDArray[np.bool_] | None  # None: every query may attend to every key
QKV: TypeAlias = tuple[Array, Array, Array]  # queries, keys, values
Layer: TypeAlias = Callable[[Array], Array]


def _expect_arrays(axes: int, **arrays: Any) -> None:
    """Every argument is a NumPy array with at least so many axes, none of them empty."""
    for name, x in arrays.items():
        if not isinstance(x, np.ndarray):
            raise TypeError(f"{name} should be a NumPy array, not {type(x).__name__}: try np.array({name}).")
        expect(x.ndim >= axes, f"{name} should have {axes} axes or more, tokens first; got shape {shape(x)}.")
        expect(x.size > 0, f"{name} is empty: its shape is {shape(x)}.")


# Unit 02, by hand: additive attention ------------------------------------------------------------
def additive_scores(state: Array, states: Array, w_state: Array, w_source: Array, v: Array) -> Array:
    """Bahdanau's small network, for one state s or a row of them: e_i = vᵀ tanh(W_state s + W_source h_i)."""
    _expect_arrays(1, state=state, states=states, w_state=w_state, w_source=w_source, v=v)
    expect_last(state, "state", w_state.shape[0], "rows of w_state")
    expect_last(states, "states", w_source.shape[0], "rows of w_source")
    return np.tanh((state @ w_state)[..., None, :] + states @ w_source) @ v


def additive_context(scores: Array, states: Array, mask: Mask = None) -> Array:
    """The source as the decoder reads it at this step: a = softmax_i(e_i), c = sum_i a_i h_i."""
    return (softmax(scores) if mask is None else masked_softmax(scores, mask)) @ states


# Unit 03: self-attention without parameters ------------------------------------------------------
def softmax(scores: ArrayLike, axis: int = -1) -> Array:
    """Turn scores into weights that sum to one: a_j = exp(s_j - max s) / sum_j exp(s_j - max s)."""
    scores = np.asarray(scores)
    expect(scores.size > 0, f"softmax needs at least one score; got shape {shape(scores)}.")
    # The maximum cancels in the fraction, and without it exp overflows.
    exps = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


def self_attention_loops(x: Array) -> Array:
    """Each token becomes a mixture of all: w_ij = softmax_j(x_i · x_j), y_i = sum_j w_ij x_j."""
    _expect_arrays(2, x=x)
    expect(x.ndim == 2, f"The loops take one sequence (tokens, width), no batch; got shape {shape(x)}.")
    y = np.zeros(x.shape)
    for i in range(len(x)):
        weights = softmax([x[i] @ x[j] for j in range(len(x))])
        y[i] = sum(weights[j] * x[j] for j in range(len(x)))
    return y


def self_attention(x: Array) -> Array:
    """The same for all tokens at once: Y = softmax(X Xᵀ) X."""
    _expect_arrays(2, x=x)
    return softmax(x @ x.swapaxes(-1, -2)) @ x


def cosine(a: Array, b: Array) -> Array:
    """The dot product of two directions, from -1 to 1: cos = a · b / (|a| |b|)."""
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    expect(bool(np.all(lengths > 0)), "A vector of zeros points nowhere, so it has no cosine.")
    return np.sum(np.multiply(a, b), axis=-1) / lengths


# Unit 04: queries, keys and values ---------------------------------------------------------------
class WorkedExample(NamedTuple):
    """Three tokens of width 4, and the matrices that make queries, keys and values of width 3."""

    x: Array
    w_q: Array
    w_k: Array
    w_v: Array


WORKED_EXAMPLE = WorkedExample(
    x=np.array([[1.0, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]),
    w_q=np.array([[1.0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]]),
    w_k=np.array([[0.0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]]),
    w_v=np.array([[0.0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]]),
)
for _array in WORKED_EXAMPLE:
    _array.flags.writeable = False  # everybody shares the example, so nobody may change it


def hard_lookup(query: Array, keys: Array, values: Array) -> Array:
    """A database returns one value, that of the best key: values[argmax_j(query · key_j)]."""
    _expect_arrays(1, query=query, keys=keys, values=values)
    expect_last(query, "query", keys.shape[-1], "the width of the keys")
    expect(len(keys) == len(values), f"Every key needs its value; got {len(keys)} and {len(values)}.")
    return values[np.argmax(query @ keys.T, axis=-1)]


def soft_lookup(query: Array, keys: Array, values: Array, temperature: float = 1.0) -> Array:
    """A blend of all values: softmax_j(query · key_j / temperature) V; the colder, the harder."""
    hard_lookup(query, keys, values)  # the two ask the same of their input
    expect(temperature > 0, f"The temperature should be above 0; got {temperature}. At 0: hard_lookup.")
    return softmax(query @ keys.T / temperature) @ values


def project(x: Array, w_q: Array, w_k: Array, w_v: Array, memory: Array | None = None) -> QKV:
    """Three roles for a token: Q = X W_q, K = M W_k, V = M W_v, with M = X, or a memory to read from."""
    memory = x if memory is None else memory
    _expect_arrays(2, x=x, memory=memory, w_q=w_q, w_k=w_k, w_v=w_v)
    for name, rows, w in (("x", x, w_q), ("memory", memory, w_k), ("memory", memory, w_v)):
        expect_last(rows, name, w.shape[0], "the number of rows of its matrix")
    return x @ w_q, memory @ w_k, memory @ w_v


def attention_loops(q: Array, k: Array, v: Array, scale: float | None = None) -> Array:
    """Query by query: s_j = q_i · k_j · scale, a = softmax(s), y_i = sum_j a_j v_j."""
    _expect_arrays(0, q=q, k=k, v=v)
    expect_attention(q, k, v)
    expect(q.ndim == k.ndim == v.ndim == 2, f"The loops take one sequence, no batch; got q {shape(q)}.")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    y = np.zeros((len(q), v.shape[-1]))
    for i in range(len(q)):
        weights = softmax([q[i] @ k[j] * scale for j in range(len(k))])
        y[i] = sum(weights[j] * v[j] for j in range(len(k)))
    return y


# Unit 05: scaling --------------------------------------------------------------------------------
def attention_scores(q: Array, k: Array, scale: float | None = None) -> Array:
    """How well each query fits each key: S = Q Kᵀ · scale, 1/√d_k unless given (unit 04 has 1.0)."""
    _expect_arrays(0, q=q, k=k)
    expect_attention(q, k, k)
    return q @ k.swapaxes(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)


def attention_weights(
    q: Array, k: Array, mask: Mask = None, scale: float | None = None, bias: Array | float = 0.0
) -> Array:
    """What share of its attention each query gives to each key: A = softmax(S + bias), row by row."""
    scores_TS = attention_scores(q, k, scale) + bias
    return softmax(scores_TS) if mask is None else masked_softmax(scores_TS, mask)


def attention(
    q: Array, k: Array, v: Array, mask: Mask = None, scale: float | None = None, bias: Array | float = 0.0
) -> Array:
    """Scaled dot-product attention: Y = A V = softmax(Q Kᵀ / √d_k) V."""
    _expect_arrays(0, q=q, k=k, v=v)
    expect_attention(q, k, v, mask)
    return attention_weights(q, k, mask, scale, bias) @ v


def softmax_jacobian(weights: Array) -> Array:
    """How weight i moves with score j: ∂a_i/∂s_j = a_i (δ_ij - a_j); zero once one weight has it all."""
    _expect_arrays(1, weights=weights)
    return weights[..., :, None] * (np.eye(weights.shape[-1]) - weights[..., None, :])


# Unit 06: multi-head attention -------------------------------------------------------------------
def split_heads(x: Array, heads: int) -> Array:
    """Cut the columns into H blocks, one for each head: (..., T, D) -> (..., H, T, D/H)."""
    _expect_arrays(2, x=x)
    expect_divides(heads, x.shape[-1])
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(-3, -2)


def merge_heads(x: Array) -> Array:
    """Put the blocks side by side again, the inverse of split_heads: (..., H, T, K) -> (..., T, H·K)."""
    _expect_arrays(3, x=x)
    return x.swapaxes(-3, -2).reshape(*x.shape[:-3], x.shape[-2], -1)


def multi_head_loops(
    x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int, memory: Array | None = None
) -> Array:
    """H separate attentions, each with its own block of columns, side by side: [Y_1 … Y_H] W_O."""
    expect_divides(heads, w_q.shape[-1])
    outputs = []
    for h in range(heads):
        w_q_h, w_k_h, w_v_h = (np.split(w, heads, axis=1)[h] for w in (w_q, w_k, w_v))
        outputs.append(attention(*project(x, w_q_h, w_k_h, w_v_h, memory)))
    return np.concatenate(outputs, axis=-1) @ w_o


def multi_head(
    x: Array,
    w_q: Array,
    w_k: Array,
    w_v: Array,
    w_o: Array,
    heads: int,
    memory: Array | None = None,
    mask: Mask = None,
) -> Array:
    """All heads at once: Y_h = softmax(Q_h K_hᵀ / √(D/H)) V_h, output [Y_1 … Y_H] W_O."""
    q_HTK, k_HSK, v_HSK = (split_heads(y, heads) for y in project(x, w_q, w_k, w_v, memory))
    if mask is not None and mask.ndim == x.ndim:
        mask = mask[..., None, :, :]  # (B, T, S) serves all heads; (B, H, T, S) has one for each
    y_TD = merge_heads(attention(q_HTK, k_HSK, v_HSK, mask))
    expect_last(y_TD, "the concatenated heads", w_o.shape[0], "rows of w_o")
    return y_TD @ w_o


def multi_head_cost(T: int, d_model: int, S: int | None = None) -> tuple[int, int]:
    """Parameters 4 D², operations 4 (T + S) D² + 4 T S D: H heads of width D/H cost as much as one of D."""
    S = T if S is None else S
    return 4 * d_model**2, 4 * (T + S) * d_model**2 + 4 * T * S * d_model


# Unit 07: masking --------------------------------------------------------------------------------
def masked_softmax(scores: Array, mask: Array) -> Array:
    """Softmax over the allowed keys; a row with none gets zeros, where -∞ alone would give 0/0 = NaN."""
    _expect_arrays(1, scores=scores)
    expect_mask(np.atleast_2d(mask) if scores.ndim == 1 else mask, *(1, *scores.shape)[-2:])
    scores = np.where(mask, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    exps = np.exp(scores - np.where(np.isneginf(largest), 0.0, largest))
    total = exps.sum(axis=-1, keepdims=True)
    return exps / np.where(total == 0, 1.0, total)


def relative_positions(T: int, S: int | None = None) -> Array:
    """Where key j stands, seen from query i, as a matrix (T, S): j - i, negative in the past."""
    S = T if S is None else S
    expect(1 <= T <= S, f"The T queries are the newest of S tokens: 1 <= T <= S; got T = {T}, S = {S}.")
    return np.arange(S)[None, :] - (np.arange(T)[:, None] + S - T)


def causal_mask(T: int, S: int | None = None) -> Array:
    """A query sees itself and the past: m_ij = (j <= i). Shape (T, S)."""
    return relative_positions(T, S) <= 0


def padding_mask(lengths: ArrayLike, S: int | None = None) -> Array:
    """Nobody attends to padding: m_bj = (j < length_b). Shape (B, 1, S), the same for every query."""
    lengths_B = np.asarray(lengths)
    if lengths_B.ndim != 1 or lengths_B.dtype.kind not in "iu":
        raise TypeError(f"lengths should be whole numbers, one per sequence; got {lengths!r}.")
    S = int(lengths_B.max()) if S is None else S
    expect(lengths_B.min() >= 0 and lengths_B.max() <= S, f"Lengths go from 0 to S = {S}; got {lengths!r}.")
    return np.arange(S) < lengths_B[:, None, None]


def additive_mask(mask: Array) -> Array:
    """The mask as a matrix M for softmax(S + M): 0 = may attend, -∞ = may not."""
    expect_mask(np.atleast_2d(mask), *np.atleast_2d(mask).shape[-2:])
    return np.where(mask, 0.0, -np.inf)


# Unit 08: positions ------------------------------------------------------------------------------
def sinusoidal_loops(length: int, d_model: int, *, base: float = 10000.0, start: int = 0) -> Array:
    """One number at a time: PE(t, 2i) = sin(t / base^(2i/D)), PE(t, 2i+1) = cos(t / base^(2i/D))."""
    table = np.zeros((length, d_model))
    for t, column in np.ndindex(length, d_model):
        angle = (start + t) / base ** (2 * (column // 2) / d_model)
        table[t, column] = math.sin(angle) if column % 2 == 0 else math.cos(angle)
    return table


def sinusoidal(length: int, d_model: int, *, base: float = 10000.0, start: int = 0) -> Array:
    """The table at once: sin in even columns, cos in odd ones; an odd width ends with a sin."""
    expect(min(length, d_model) >= 1, f"A table needs rows and columns; got {length} and {d_model}.")
    t = np.arange(start, start + length)[:, None]
    column = np.arange(d_model)
    angle = t / base ** (2 * (column // 2) / d_model)
    return np.where(column % 2 == 0, np.sin(angle), np.cos(angle))


def rotation_matrix(k: float, d_model: int, *, base: float = 10000.0) -> Array:
    """The R_k of PE(t+k) = R_k PE(t): blocks [[cos α, sin α], [-sin α, cos α]], α = k / base^(2i/D)."""
    expect(d_model >= 2 and d_model % 2 == 0, f"Rotations turn pairs: d_model = {d_model} is not even.")
    R = np.zeros((d_model, d_model))
    for i in range(0, d_model, 2):
        cos, sin = math.cos(k / base ** (i / d_model)), math.sin(k / base ** (i / d_model))
        R[i : i + 2, i : i + 2] = [[cos, sin], [-sin, cos]]
    return R


def rotary(x: Array, positions: ArrayLike | None = None, *, base: float = 10000.0) -> Array:
    """Turn the pair (x_2i, x_2i+1) of token t by t / base^(2i/d): then q_i · k_j knows only j - i."""
    _expect_arrays(2, x=x)
    T, d_k = x.shape[-2:]
    expect(d_k % 2 == 0, f"Rotary turns pairs, so the head width should be even; got shape {shape(x)}.")
    t = np.arange(T) if positions is None else np.asarray(positions)
    expect_last(t, "positions", T, "number of tokens")
    angle = t[..., None] / base ** (np.arange(0, d_k, 2) / d_k)
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = (even * np.cos(angle) - odd * np.sin(angle), even * np.sin(angle) + odd * np.cos(angle))
    return np.stack(turned, axis=-1).reshape(x.shape)


def alibi_slopes(heads: int) -> Array:
    """m_h = 2^(-8h/H), H a power of two; else those of the power below, then every other of the one above."""
    expect(heads >= 1, f"ALiBi needs at least one head; got {heads}.")
    below = 2 ** int(math.log2(heads))
    slopes = 2.0 ** (-8 * np.arange(1, below + 1) / below)
    between = 2.0 ** (-8 * np.arange(1, 2 * below, 2) / (2 * below))
    return np.concatenate([slopes, between[: heads - below]])


def alibi_bias(heads: int, T: int, S: int | None = None) -> Array:
    """What distance costs, to add to the scaled scores: b_hij = -m_h |j - i|. Shape (H, T, S)."""
    return -alibi_slopes(heads)[:, None, None] * np.abs(relative_positions(T, S))


def relative_attention(q: Array, k: Array, v: Array, key_table: Array, value_table: Array, mask: Mask = None) -> Array:
    """Shaw et al.: s_ij = q_i · (k_j + a^K_ij) / √d_k, y_i = Σ_j w_ij (v_j + a^V_ij), a_ij = row of j - i."""
    _expect_arrays(0, q=q, k=k, v=v, key_table=key_table, value_table=value_table)
    expect_attention(q, k, v, mask)
    expect_last(key_table, "key_table", q.shape[-1], "d_k")
    expect_last(value_table, "value_table", v.shape[-1], "d_v")
    c = len(key_table) // 2
    fits = len(key_table) == len(value_table) == 2 * c + 1
    expect(fits, f"Tables have 2c + 1 rows each; got {shape(key_table)} and {shape(value_table)}.")
    row_TS = np.clip(relative_positions(q.shape[-2], k.shape[-2]), -c, c) + c
    bias_TS = np.einsum("...tk,tsk->...ts", q, key_table[row_TS]) / math.sqrt(q.shape[-1])
    weights_TS = attention_weights(q, k, mask, bias=bias_TS)
    return weights_TS @ v + np.einsum("...ts,tsv->...tv", weights_TS, value_table[row_TS])


def disentangled_scores(q: Array, k: Array, q_positions: Array, k_positions: Array) -> Array:
    """DeBERTa: (q_i · k_j + q_i · k^r_δ(i,j) + k_j · q^r_δ(j,i)) / √(3 d_k), δ(i,j) = i - j + c, clipped."""
    _expect_arrays(2, q=q, k=k, q_positions=q_positions, k_positions=k_positions)
    expect_last(q_positions, "q_positions", q.shape[-1], "d_k")
    expect_last(k_positions, "k_positions", q.shape[-1], "d_k")
    c = len(q_positions) // 2
    fits = len(q_positions) == len(k_positions) == 2 * c
    expect(fits, f"Tables have 2c rows each; got {shape(q_positions)} and {shape(k_positions)}.")
    j_minus_i = relative_positions(q.shape[-2], k.shape[-2])
    delta_ij, delta_ji = np.clip(c - j_minus_i, 0, 2 * c - 1), np.clip(c + j_minus_i, 0, 2 * c - 1)
    content_content = attention_scores(q, k, scale=1.0)
    content_position = np.einsum("...tk,tsk->...ts", q, k_positions[delta_ij])
    position_content = np.einsum("...sk,tsk->...ts", k, q_positions[delta_ji])
    return (content_content + content_position + position_content) / math.sqrt(3 * q.shape[-1])


# Unit 09: the Transformer block ------------------------------------------------------------------
def layer_norm(x: Array, gain: Array | float = 1.0, bias: Array | float = 0.0, eps: float = 1e-5) -> Array:
    """Each token to mean 0 and variance 1, then to taste: (x - μ) / √(σ² + ε) · gain + bias."""
    mean = x.mean(axis=-1, keepdims=True)
    variance = np.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * gain + bias


def gelu(x: Array) -> Array:
    """x times the share of the normal distribution below x: x Φ(x) = x/2 (1 + erf(x/√2))."""
    return x / 2 * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)))


def gelu_tanh(x: Array) -> Array:
    """The approximation that GPT-2 uses: x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def feed_forward(x: Array, w1: Array, b1: Array, w2: Array, b2: Array, activation: str = "relu") -> Array:
    """The same small network for each token alone: f(X W_1 + b_1) W_2 + b_2, f = max(0, ·) or a gelu."""
    functions = {"relu": lambda h: np.maximum(0, h), "gelu": gelu, "gelu_tanh": gelu_tanh}
    expect(activation in functions, f"activation: one of {', '.join(functions)}; got {activation!r}.")
    expect_last(x, "x", w1.shape[0], "rows of w1")
    return functions[activation](x @ w1 + b1) @ w2 + b2


def encoder_block(x: Array, attend: Layer, feed: Layer, norm1: Layer, norm2: Layer, pre_norm: bool) -> Array:
    """Attend, then feed, each added to what it read. Post-norm: norm(x + f(x)); pre-norm: x + f(norm(x))."""
    if pre_norm:
        x = x + attend(norm1(x))
        return x + feed(norm2(x))
    x = norm1(x + attend(x))
    return norm2(x + feed(x))


# Unit 12: the same attention, some keys at a time ------------------------------------------------
def online_softmax_attention(q: Array, k: Array, v: Array, tile: int, scale: float | None = None) -> Array:
    """Exact, a tile of keys at a time: m' = max(m, s), z' = z e^(m-m') + Σ e^(s-m'), y' alike; output y/z."""
    _expect_arrays(0, q=q, k=k, v=v)
    expect_attention(q, k, v)
    expect(tile >= 1, f"A tile holds at least one key; got tile = {tile}.")
    m, z, y = np.array(-np.inf), np.array(0.0), np.array(0.0)
    for start in range(0, k.shape[-2], tile):
        here = np.s_[..., start : start + tile, :]
        scores = attention_scores(q, k[here], scale)
        m_new = np.maximum(m, scores.max(axis=-1, keepdims=True))
        exps, shrink = np.exp(scores - m_new), np.exp(m - m_new)  # the old sums stand under the old maximum
        z = z * shrink + exps.sum(axis=-1, keepdims=True)
        y = y * shrink + exps @ v[here]
        m = m_new
    return y / z
