"""NumPy by hand against torch, against loops written here, and against its own promises."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.utils.flop_counter import FlopCounterMode

from course_lib import by_hand as bh

B, H, T, S, K, V, D, FF = 2, 3, 5, 7, 4, 6, 12, 10
close = dict(rtol=1e-12, atol=1e-12)
pytestmark = pytest.mark.filterwarnings("error")  # no division by zero, no overflow on the way


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def tensor(x):
    return torch.tensor(x)


def equal(ours, theirs, **tolerance):
    theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else theirs
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, **(tolerance or close))


def tokens(bound):
    """Random matrices (tokens, width), any small size."""
    numbers = st.floats(-bound, bound, allow_subnormal=False)
    return st.tuples(st.integers(1, 6), st.integers(1, 5)).flatmap(
        lambda size: arrays(np.float64, size, elements=numbers)
    )


def qkv(rng, *batch):
    return (rng.normal(size=(*batch, n, width)) * 2 for n, width in ((T, K), (S, K), (S, V)))


# --- the worked example, digit for digit -----------------------------------------------------------


def test_worked_example_digit_for_digit():
    q, k, v = bh.project(*bh.WORKED_EXAMPLE)
    assert bh.attention_scores(q, k, scale=1.0).tolist() == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    weights = bh.attention_weights(q, k, scale=1.0)
    assert weights[0].round(4).tolist() == [0.0634, 0.4683, 0.4683]
    outputs = [[1.9366, 6.6831, 1.5951], [2.0, 7.964, 0.054], [1.9997, 7.7599, 0.3584]]
    assert bh.attention(q, k, v, scale=1.0).round(4).tolist() == outputs
    assert bh.attention_loops(q, k, v, scale=1.0).round(4).tolist() == outputs


def test_worked_example_is_shared_and_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        bh.WORKED_EXAMPLE.x[0, 0] = 9
    with pytest.raises(AttributeError):
        bh.WORKED_EXAMPLE.x = 0
    assert all(array.dtype == np.float64 for array in bh.WORKED_EXAMPLE)
    assert [array.shape for array in bh.WORKED_EXAMPLE] == [(3, 4), (4, 3), (4, 3), (4, 3)]


def test_runs_where_torch_cannot_be_imported():
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from course_lib import by_hand as bh\n"
        "q, k, v = bh.project(*bh.WORKED_EXAMPLE)\n"
        "print(bh.attention(q, k, v, scale=1.0).round(4).tolist()[0])\n"
        "foreign = {name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(sorted(foreign & {'torch', 'scipy', 'matplotlib', 'transformers'} - {'torch'}))\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[1.9366, 6.6831, 1.5951]", "[]"]


def test_each_function_is_short_and_says_what_it_does():
    functions = [f for _, f in inspect.getmembers(bh, inspect.isfunction) if f.__module__ == bh.__name__]
    assert len(functions) > 30
    for function in functions:
        lines = inspect.getsource(function).splitlines()
        assert len(lines) <= 20 and function.__doc__, function.__name__


# --- softmax, masked softmax, Jacobian --------------------------------------------------------------


@given(tokens(1000.0), st.floats(-1e4, 1e4))
def test_softmax_rows_sum_to_one_and_a_shift_changes_nothing(scores, shift):
    weights = bh.softmax(scores)
    assert np.all(weights >= 0)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(bh.softmax(scores + shift), weights, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_equals_torch(rng, axis):
    scores = rng.normal(size=(B, T, S)) * 200
    equal(bh.softmax(scores, axis=axis), torch.softmax(tensor(scores), dim=axis))


def test_softmax_takes_a_plain_list_and_leaves_its_input_alone():
    scores = np.array([2, 4, 4])
    equal(bh.softmax([2, 4, 4]), bh.softmax(scores))
    assert scores.tolist() == [2, 4, 4]
    assert bh.softmax(np.array([1.0, 2.0], dtype=np.float32)).dtype == np.float32


@given(st.data(), tokens(300.0))
def test_masked_softmax_is_softmax_of_what_is_left(data, scores):
    mask = data.draw(arrays(bool, scores.shape))
    weights = bh.masked_softmax(scores, mask)
    for row, allowed, weight in zip(scores, mask, weights, strict=True):
        assert np.all(weight[~allowed] == 0)
        if allowed.any():
            np.testing.assert_allclose(weight[allowed], bh.softmax(row[allowed]), **close)


def test_masked_softmax_ignores_what_stands_in_masked_places():
    scores = np.array([[1.0, np.nan, 2.0, np.inf], [np.nan] * 4])
    mask = np.array([[True, False, True, False], [False] * 4])
    equal(bh.masked_softmax(scores, mask)[0, [0, 2]], bh.softmax([1.0, 2.0]))
    assert bh.masked_softmax(scores, mask)[1].tolist() == [0, 0, 0, 0]
    equal(bh.masked_softmax(np.array([3.0, 1.0]), np.array([True, False])), np.array([1.0, 0.0]))


def test_masked_softmax_broadcasts_the_mask(rng):
    scores, mask = rng.normal(size=(B, H, T, S)), rng.random((B, 1, 1, S)) < 0.6
    mask[0] = False
    theirs = torch.softmax(tensor(scores).masked_fill(~tensor(mask), -torch.inf), -1).nan_to_num(0.0)
    equal(bh.masked_softmax(scores, mask), theirs)


def test_softmax_jacobian_equals_autograd(rng):
    scores = tensor(rng.normal(size=S))
    theirs = torch.autograd.functional.jacobian(lambda s: torch.softmax(s, -1), scores)
    equal(bh.softmax_jacobian(torch.softmax(scores, -1).numpy()), theirs)
    weights = bh.softmax(rng.normal(size=(B, T, S)))
    equal(bh.softmax_jacobian(weights)[1, 2], bh.softmax_jacobian(weights[1, 2]))
    assert np.abs(bh.softmax_jacobian(np.eye(S)[2])).max() == 0  # saturated: nothing moves


# --- self-attention and cosine ----------------------------------------------------------------------


@given(tokens(5.0), st.randoms(use_true_random=False))
def test_self_attention_loops_equal_matrix_and_shuffling_commutes(x, random):
    y = bh.self_attention(x)
    np.testing.assert_allclose(bh.self_attention_loops(x), y, **close)
    order = list(range(len(x)))
    random.shuffle(order)
    np.testing.assert_allclose(bh.self_attention(x[order]), y[order], rtol=1e-9, atol=1e-9)


def test_self_attention_equals_torch(rng):
    x = rng.normal(size=(B, T, D))
    equal(bh.self_attention(x), F.scaled_dot_product_attention(*[tensor(x)] * 3, scale=1.0))
    equal(bh.self_attention_loops(x[1]), bh.self_attention(x)[1])
    assert not np.allclose(bh.self_attention(x), bh.self_attention(x[:, ::-1]))  # not invariant


def test_cosine_equals_torch_and_ignores_length(rng):
    a, b = rng.normal(size=(B, T, D)), rng.normal(size=(B, T, D))
    equal(bh.cosine(a, b), F.cosine_similarity(tensor(a), tensor(b), dim=-1))
    equal(bh.cosine(3 * a, 0.1 * b), bh.cosine(a, b))
    assert bh.cosine([0.25, 0], [0.5, 0]) == 1
    assert bh.cosine([0, 2], [0, 5]) == 1 and bh.cosine([0, 2], [0, -5]) == -1
    with pytest.raises(ValueError, match="no cosine"):
        bh.cosine(np.zeros(3), np.ones(3))


# --- additive attention -----------------------------------------------------------------------------


def test_additive_scores_are_the_network_on_the_concatenation(rng):
    state, states = rng.normal(size=(T, K)), rng.normal(size=(S, V))
    w_state, w_source, v = rng.normal(size=(K, D)), rng.normal(size=(V, D)), rng.normal(size=D)
    w = np.vstack([w_state, w_source])
    theirs = np.array([[v @ np.tanh(np.concatenate([s, h]) @ w) for h in states] for s in state])
    ours = bh.additive_scores(state, states, w_state, w_source, v)
    equal(ours, theirs)
    equal(bh.additive_scores(state[1], states, w_state, w_source, v), theirs[1])
    mask = np.arange(S) < 4
    equal(bh.additive_context(ours, states), torch.softmax(tensor(ours), -1).numpy() @ states)
    cut = np.array([bh.softmax(row[:4]) @ states[:4] for row in theirs])
    equal(bh.additive_context(ours, states, mask[None]), cut)
    equal(bh.additive_context(ours[1], states, mask), cut[1])


# --- lookups ----------------------------------------------------------------------------------------


def test_lookup_cold_is_hard_and_hot_is_the_mean(rng):
    query, keys, values = rng.normal(size=K), rng.normal(size=(S, K)), rng.normal(size=(S, V))
    best = max(range(S), key=lambda j: sum(query * keys[j]))
    equal(bh.hard_lookup(query, keys, values), values[best])
    equal(bh.soft_lookup(query, keys, values, 1e-3), values[best])
    equal(bh.soft_lookup(query, keys, values, 1e12), values.mean(0), rtol=1e-8)
    warm = np.exp(keys @ query / 2.5) / np.exp(keys @ query / 2.5).sum()
    equal(bh.soft_lookup(query, keys, values, 2.5), warm @ values)
    equal(bh.soft_lookup(query, keys, values), bh.soft_lookup(query, keys, values, 1.0))
    queries = rng.normal(size=(T, K))
    equal(bh.hard_lookup(queries, keys, values)[3], bh.hard_lookup(queries[3], keys, values))
    equal(bh.soft_lookup(queries, keys, values)[3], bh.soft_lookup(queries[3], keys, values))


def test_hard_lookup_returns_whatever_the_values_are():
    films = np.array(["Alien", "Star Wars"])
    assert bh.hard_lookup(np.array([0.0, 1.0]), np.eye(2), films) == "Star Wars"


# --- attention --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
def test_attention_equals_torch_and_loops(rng, scale):
    q, k, v = qkv(rng, B, H)
    mask = rng.random((B, 1, T, S)) < 0.6
    mask[..., 0] = True
    bias = rng.normal(size=(H, T, S))
    theirs = F.scaled_dot_product_attention(tensor(q), tensor(k), tensor(v), scale=scale)
    equal(bh.attention(q, k, v, scale=scale), theirs)
    equal(bh.attention_loops(q[1, 2], k[1, 2], v[1, 2], scale), theirs[1, 2])
    added = tensor(np.where(mask, bias, -np.inf))
    theirs = F.scaled_dot_product_attention(tensor(q), tensor(k), tensor(v), attn_mask=added, scale=scale)
    equal(bh.attention(q, k, v, mask, scale, bias), theirs)
    equal(bh.attention_weights(q, k, mask, scale, bias) @ v, theirs)


def test_attention_divides_by_the_root_of_the_head_width(rng):
    q, k, _ = qkv(rng)
    equal(bh.attention_scores(q, k), q @ k.T / 2)  # K = 4
    equal(bh.attention_scores(q, k, 1.0), q @ k.T)


def test_an_empty_row_gives_zeros(rng):
    q, k, v = qkv(rng)
    mask = np.ones((T, S), dtype=bool)
    mask[2] = False
    y = bh.attention(q, k, v, mask)
    assert np.all(y[2] == 0)
    equal(np.delete(y, 2, 0), np.delete(bh.attention(q, k, v), 2, 0))


@given(st.data(), st.integers(2, 6), st.integers(1, 4))
def test_causal_attention_has_no_leak_bit_for_bit(data, length, width):
    numbers = arrays(np.float64, (length, width), elements=st.floats(-50, 50, allow_subnormal=False))
    x, other = data.draw(numbers), data.draw(numbers)
    t = data.draw(st.integers(1, length - 1))
    changed = np.concatenate([x[:t], other[t:]])
    mask = bh.causal_mask(length)
    before, after = bh.attention(x, x, x, mask), bh.attention(changed, changed, changed, mask)
    assert before[:t].tobytes() == after[:t].tobytes()


@given(tokens(5.0), st.randoms(use_true_random=False))
def test_attention_does_not_see_the_order_of_keys(x, random):
    order = list(range(len(x)))
    random.shuffle(order)
    np.testing.assert_allclose(bh.attention(x, x[order], x[order]), bh.attention(x, x, x), rtol=1e-9, atol=1e-9)


def test_project_reads_keys_and_values_from_the_memory(rng):
    x, memory = rng.normal(size=(B, T, D)), rng.normal(size=(B, S, V))
    w_q, w_k, w_v = rng.normal(size=(D, K)), rng.normal(size=(V, K)), rng.normal(size=(V, FF))
    for ours, theirs in zip(bh.project(x, w_q, w_k, w_v, memory), (x @ w_q, memory @ w_k, memory @ w_v), strict=True):
        equal(ours, theirs)


# --- multi-head -------------------------------------------------------------------------------------


def test_split_heads_gives_each_head_its_block_of_columns(rng):
    x = rng.normal(size=(B, T, D))
    heads = bh.split_heads(x, H)
    for h in range(H):
        equal(heads[:, h], x[:, :, h * K : (h + 1) * K])
    equal(bh.merge_heads(heads), x)
    equal(bh.merge_heads(bh.split_heads(x[0], H)), x[0])


def theirs_multi_head(x, weights, memory=None, mask=None):
    """torch.nn.MultiheadAttention with our matrices (x W here is x Wᵀ there)."""
    w_q, w_k, w_v, w_o = (tensor(w) for w in weights)
    layer = torch.nn.MultiheadAttention(D, H, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([w_q.T, w_k.T, w_v.T]))
        layer.out_proj.weight.copy_(w_o.T)
    memory = x if memory is None else memory
    blocked = None if mask is None else tensor(~np.broadcast_to(mask, (B, H, T, S)).reshape(B * H, T, S))
    return layer(tensor(x), tensor(memory), tensor(memory), attn_mask=blocked, need_weights=False)[0]


def test_multi_head_equals_torch_and_separate_attentions(rng):
    x, memory = rng.normal(size=(B, T, D)), rng.normal(size=(B, S, D))
    weights = [rng.normal(size=(D, D)) for _ in range(4)]
    for source in (None, memory):
        theirs = theirs_multi_head(x, weights, source)
        equal(bh.multi_head(x, *weights, H, source), theirs)
        equal(bh.multi_head_loops(x, *weights, H, source), theirs)
    equal(bh.multi_head(x[1], *weights, H), theirs_multi_head(x, weights)[1])
    assert not np.allclose(bh.multi_head(x, *weights, 1), bh.multi_head(x, *weights, H))


def test_multi_head_widths_need_not_be_the_models(rng):
    x = rng.normal(size=(B, T, D))
    w_q, w_k, w_v, w_o = (rng.normal(size=size) for size in ((D, 2 * H), (D, 2 * H), (D, 5 * H), (5 * H, FF)))
    q, k, v = (tensor(x @ w).unflatten(-1, (H, -1)).transpose(1, 2) for w in (w_q, w_k, w_v))
    theirs = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2) @ tensor(w_o)
    equal(bh.multi_head(x, w_q, w_k, w_v, w_o, H), theirs)
    equal(bh.multi_head_loops(x, w_q, w_k, w_v, w_o, H), theirs)


def test_multi_head_masks_of_every_shape(rng):
    x, memory = rng.normal(size=(B, T, D)), rng.normal(size=(B, S, D))
    weights = [rng.normal(size=(D, D)) for _ in range(4)]
    for size in ((T, S), (B, T, S), (B, 1, S), (B, H, T, S), (1, H, 1, S)):
        mask = rng.random(size) < 0.5
        mask[..., 3] = True
        full = mask[:, None] if mask.ndim == 3 else mask
        theirs = theirs_multi_head(x, weights, memory, full)
        equal(bh.multi_head(x, *weights, H, memory, mask), theirs)
    per_head = rng.random((H, T, S)) < 0.5
    per_head[..., 3] = True
    theirs = theirs_multi_head(x, weights, memory, per_head)
    equal(bh.multi_head(x[1], *weights, H, memory[1], per_head), theirs[1])
    equal(bh.multi_head(x[1], *weights, H, memory[1], mask[0]), bh.multi_head(x, *weights, H, memory, mask)[1])


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_multi_head_cost_is_what_torch_counts(heads):
    parameters = [torch.zeros(8, 8) for _ in range(4)]
    x, memory = torch.zeros(T, 8), torch.zeros(S, 8)
    with FlopCounterMode(display=False) as counter:
        q, k, v = (y @ w for y, w in zip((x, memory, memory), parameters, strict=False))
        q, k, v = (y.unflatten(-1, (heads, -1)).transpose(0, 1) for y in (q, k, v))
        (torch.softmax(q @ k.mT, -1) @ v).transpose(0, 1).flatten(1) @ parameters[3]
    count = sum(p.numel() for p in parameters)
    assert bh.multi_head_cost(T, 8, S) == (count, counter.get_total_flops())
    assert bh.multi_head_cost(T, 8) == bh.multi_head_cost(T, 8, T)


# --- masks ------------------------------------------------------------------------------------------


def test_causal_mask_has_the_diagonal_and_the_past():
    assert np.array_equal(bh.causal_mask(T), np.tril(np.ones((T, T), dtype=bool)))
    chunk = bh.causal_mask(T, S)
    assert chunk.dtype == bool
    assert np.array_equal(chunk, bh.causal_mask(S)[-T:])  # the newest T rows of the whole
    assert bh.causal_mask(1, S).all()


def test_padding_mask_counts_lengths():
    mask = bh.padding_mask([3, 0], S)
    assert mask.shape == (2, 1, S) and mask.dtype == bool
    assert mask[:, 0].sum(-1).tolist() == [3, 0] and mask[0, 0, :3].all()
    assert bh.padding_mask(np.array([3, 1])).shape == (2, 1, 3)


def test_padding_and_causal_together_equal_the_unpadded_sequence(rng):
    x, lengths = rng.normal(size=(B, T, D)), [5, 3]
    y = bh.attention(x, x, x, bh.padding_mask(lengths, T) & bh.causal_mask(T))
    for b, n in enumerate(lengths):
        equal(y[b, :n], bh.attention(x[b, :n], x[b, :n], x[b, :n], bh.causal_mask(n)))


def test_additive_mask_is_the_same_as_the_boolean_one(rng):
    q, k, _ = qkv(rng)
    added = bh.additive_mask(bh.causal_mask(T, S))
    assert bh.additive_mask(np.array([True, False])).tolist() == [0.0, -np.inf]
    assert bh.additive_mask(bh.padding_mask([1, 2])).tolist() == [[[0.0, -np.inf]], [[0.0, 0.0]]]
    assert set(added.ravel()) == {0.0, -np.inf}
    equal(bh.attention_weights(q, k, bias=added), bh.attention_weights(q, k, bh.causal_mask(T, S)))


# --- positions --------------------------------------------------------------------------------------


@given(st.integers(1, 9), st.integers(1, 9), st.floats(2, 1e5), st.integers(0, 500))
def test_sinusoidal_loops_equal_closed_form_at_any_width(length, d_model, base, start):
    table = bh.sinusoidal(length, d_model, base=base, start=start)
    np.testing.assert_allclose(
        bh.sinusoidal_loops(length, d_model, base=base, start=start), table, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(bh.sinusoidal(start + length, d_model, base=base)[start:], table)


def test_sinusoidal_against_complex_numbers():
    angle = np.arange(T)[:, None] * 10000.0 ** -(np.arange(D // 2) * 2 / D)
    turns = np.exp(1j * angle)
    equal(bh.sinusoidal(T, D)[:, 0::2], turns.imag)
    equal(bh.sinusoidal(T, D)[:, 1::2], turns.real)
    equal(bh.sinusoidal_loops(T, D), bh.sinusoidal(T, D))
    assert bh.sinusoidal(2, 3)[0].tolist() == [0, 1, 0]
    assert bh.sinusoidal(2, 3)[1, 2] == pytest.approx(math.sin(10000 ** (-2 / 3)))


@given(st.integers(0, 300), st.integers(-50, 50), st.integers(1, 5), st.floats(2, 1e5))
def test_a_step_in_position_is_a_rotation(t, k, pairs, base):
    table = bh.sinusoidal(401, 2 * pairs, base=base, start=-50)
    R = bh.rotation_matrix(k, 2 * pairs, base=base)
    np.testing.assert_allclose(R @ table[t + 50], table[t + k + 50], atol=1e-9)
    np.testing.assert_allclose(R @ R.T, np.eye(2 * pairs), atol=1e-12)


@given(st.data(), st.integers(1, 4), st.integers(0, 100), st.integers(0, 100), st.integers(0, 1000))
def test_rotary_scores_depend_on_the_distance_only(data, pairs, i, j, shift):
    vectors = arrays(np.float64, (1, 2 * pairs), elements=st.floats(-3, 3, allow_subnormal=False))
    q, k = data.draw(vectors), data.draw(vectors)
    here = bh.rotary(q, [i]) @ bh.rotary(k, [j]).T
    there = bh.rotary(q, [i + shift]) @ bh.rotary(k, [j + shift]).T
    np.testing.assert_allclose(here, there, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(bh.rotary(q, [i])), np.linalg.norm(q), atol=1e-12)


def test_rotary_turns_neighbouring_pairs_as_in_roformer(rng):
    x, positions, base = rng.normal(size=(B, T, D)), np.array([0, 3, 4, 10, 2]), 50.0
    pairs = torch.view_as_complex(tensor(x).unflatten(-1, (-1, 2)).contiguous())
    angle = tensor(positions)[:, None] * base ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    theirs = torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)
    equal(bh.rotary(x, positions, base=base), theirs)
    equal(bh.rotary(x), bh.rotary(x, range(T)))
    # A sinusoid's R_k turns the pair (sin, cos), which is the other way round.
    equal(bh.rotary(x[0], [7] * T), x[0] @ bh.rotation_matrix(-7, D).T)
    assert bh.rotary(np.array([[1, 0], [1, 0]]))[1].tolist() == [math.cos(1), math.sin(1)]  # integers too


def test_alibi_slopes_of_the_paper():
    assert bh.alibi_slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    equal(bh.alibi_slopes(16), np.array([2 ** (-h / 2) for h in range(1, 17)]))
    assert bh.alibi_slopes(1).tolist() == [2.0**-8]
    equal(bh.alibi_slopes(12), np.concatenate([bh.alibi_slopes(8), bh.alibi_slopes(16)[0::2][:4]]))
    assert all(len(bh.alibi_slopes(n)) == n for n in range(1, 40))


def test_alibi_bias_is_the_distance_times_the_slope():
    bias, slopes = bh.alibi_bias(H, T, S), bh.alibi_slopes(H)
    assert bias.shape == (H, T, S)
    for h in range(H):
        for i in range(T):
            for j in range(S):
                assert bias[h, i, j] == pytest.approx(-slopes[h] * abs(i + S - T - j))
    equal(bh.alibi_bias(H, S)[:, -T:], bias)


def test_relative_attention_of_shaw_in_loops(rng):
    q, k, v = qkv(rng, B)
    c = 2
    key_table, value_table = rng.normal(size=(2 * c + 1, K)), rng.normal(size=(2 * c + 1, V))
    mask = rng.random((B, T, S)) < 0.7
    mask[..., 1] = True
    theirs = np.zeros((B, T, V))
    for b in range(B):
        for i in range(T):
            rows = [max(-c, min(c, j - (i + S - T))) + c for j in range(S)]
            scores = [q[b, i] @ (k[b, j] + key_table[rows[j]]) / math.sqrt(K) for j in range(S)]
            exps = np.where(mask[b, i], np.exp(scores), 0.0)
            for j in range(S):
                theirs[b, i] += exps[j] / exps.sum() * (v[b, j] + value_table[rows[j]])
    equal(bh.relative_attention(q, k, v, key_table, value_table, mask), theirs)
    no_keys, no_values = np.zeros((1, K)), np.zeros((1, V))
    equal(bh.relative_attention(q, k, v, no_keys, no_values), bh.attention(q, k, v))


def test_disentangled_scores_of_deberta_in_loops(rng):
    q, k, _ = qkv(rng, B)
    c = 2
    q_positions, k_positions = rng.normal(size=(2 * c, K)), rng.normal(size=(2 * c, K))

    def delta(i, j):
        if i - j <= -c:
            return 0
        return 2 * c - 1 if i - j >= c else i - j + c

    theirs = np.zeros((B, T, S))
    for b in range(B):
        for t in range(T):
            for j in range(S):
                i = t + S - T
                theirs[b, t, j] = q[b, t] @ k[b, j] + q[b, t] @ k_positions[delta(i, j)]
                theirs[b, t, j] += k[b, j] @ q_positions[delta(j, i)]
    equal(bh.disentangled_scores(q, k, q_positions, k_positions), theirs / math.sqrt(3 * K))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what another package warns about while loading is not ours
def test_deberta_and_alibi_equal_hugging_face(rng):
    """Theirs reads q^r at δ(i,j), the paper at δ(j,i): equal with q^r mirrored, if nothing is clipped."""
    from transformers import DebertaConfig
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.deberta import modeling_deberta as deberta

    for heads in (4, 6, 12):
        theirs = build_alibi_tensor(torch.ones(1, S), heads, torch.float64)
        equal(bh.alibi_bias(heads, 1, S), theirs - theirs[:, :, -1:], rtol=1e-6)
    config = DebertaConfig(hidden_size=D, num_attention_heads=H, max_relative_positions=S + 1)
    config.relative_attention, config.pos_att_type = True, ["c2p", "p2c"]
    layer = deberta.DisentangledSelfAttention(config).double().eval()
    x, table = tensor(rng.normal(size=(1, S, D))), tensor(rng.normal(size=(2 * (S + 1), D)))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(tensor(rng.normal(size=parameter.shape)))
        span = deberta.build_relative_position(x, x)
        _, theirs = layer(x, torch.ones(1, 1, S, S), True, relative_pos=span, rel_embeddings=table)
        q, k, _ = layer.transpose_for_scores(layer.in_proj(x)).chunk(3, -1)
        q = (q + layer.transpose_for_scores(layer.q_bias[None, None])).numpy()[0]
        k_r, q_r = (layer.transpose_for_scores(f(table)[None])[0] for f in (layer.pos_proj, layer.pos_q_proj))
    for h in range(H):
        mirrored = np.roll(q_r[h].numpy()[::-1], 1, axis=0)
        scores = bh.disentangled_scores(q[h], k.numpy()[0, h], mirrored, k_r[h].numpy())
        equal(bh.softmax(scores), theirs[0, h], rtol=1e-5)  # their scale is a float32


# --- the block --------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_layer_norm_equals_torch(rng, eps):
    x, gain, bias = rng.normal(size=(B, T, D)) * 3 + 1, rng.normal(size=D), rng.normal(size=D)
    equal(bh.layer_norm(x, gain, bias, eps), F.layer_norm(tensor(x), (D,), tensor(gain), tensor(bias), eps))
    equal(bh.layer_norm(x), F.layer_norm(tensor(x), (D,)))


def test_activations_equal_torch():
    x = np.linspace(-6, 6, 101)
    equal(bh.gelu(x), F.gelu(tensor(x)))
    equal(bh.gelu_tanh(x), F.gelu(tensor(x), approximate="tanh"))
    assert np.abs(bh.gelu(x) - bh.gelu_tanh(x)).max() > 1e-4


def feed_forward_weights(rng):
    return [rng.normal(size=size) for size in ((D, FF), (FF,), (FF, D), (D,))]


@pytest.mark.parametrize(
    ("name", "function"),
    [("relu", F.relu), ("gelu", F.gelu), ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"))],
)
def test_feed_forward_equals_torch(rng, name, function):
    x, (w1, b1, w2, b2) = rng.normal(size=(B, T, D)), feed_forward_weights(rng)
    hidden = function(F.linear(tensor(x), tensor(w1).T, tensor(b1)))
    equal(bh.feed_forward(x, w1, b1, w2, b2, name), F.linear(hidden, tensor(w2).T, tensor(b2)))
    if name == "relu":
        equal(bh.feed_forward(x, w1, b1, w2, b2), bh.feed_forward(x, w1, b1, w2, b2, "relu"))


@pytest.mark.parametrize("pre_norm", [False, True])
def test_encoder_block_equals_torch(rng, pre_norm):
    layer = torch.nn.TransformerEncoderLayer(
        D, H, FF, dropout=0.0, batch_first=True, norm_first=pre_norm, dtype=torch.float64
    )
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            zero = name in ("self_attn.in_proj_bias", "self_attn.out_proj.bias")  # ours has no biases there
            parameter.copy_(tensor(rng.normal(size=parameter.shape) * (not zero)))
    theirs = {name: parameter.detach().numpy() for name, parameter in layer.named_parameters()}
    w_q, w_k, w_v = (w.T for w in np.split(theirs["self_attn.in_proj_weight"], 3))
    w_o, w1, w2 = (theirs[f"{n}.weight"].T for n in ("self_attn.out_proj", "linear1", "linear2"))
    x, mask = rng.normal(size=(B, T, D)), bh.causal_mask(T)
    ours = bh.encoder_block(
        x,
        lambda y: bh.multi_head(y, w_q, w_k, w_v, w_o, H, mask=mask),
        lambda y: bh.feed_forward(y, w1, theirs["linear1.bias"], w2, theirs["linear2.bias"]),
        lambda y: bh.layer_norm(y, theirs["norm1.weight"], theirs["norm1.bias"]),
        lambda y: bh.layer_norm(y, theirs["norm2.weight"], theirs["norm2.bias"]),
        pre_norm,
    )
    equal(ours, layer(tensor(x), src_mask=tensor(~mask)), rtol=1e-10, atol=1e-10)


# --- tiles ------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.data(), st.integers(1, 9), st.integers(1, 11), st.sampled_from([None, 1.0, 100.0]))
def test_online_softmax_is_exact_for_every_tile(data, keys, tile, scale):
    numbers = st.floats(-10, 10, allow_subnormal=False)
    q, k, v = (data.draw(arrays(np.float64, size, elements=numbers)) for size in ((3, 2), (keys, 2), (keys, 4)))
    np.testing.assert_allclose(
        bh.online_softmax_attention(q, k, v, tile, scale), bh.attention(q, k, v, scale=scale), atol=1e-11
    )


def test_online_softmax_rescales_when_the_maximum_grows(rng):
    q, k, v = qkv(rng, B, H)
    k = k * np.arange(1, S + 1)[:, None] * 100  # scores beyond what exp can hold, larger and larger
    theirs = F.scaled_dot_product_attention(tensor(q), tensor(k), tensor(v))
    equal(bh.online_softmax_attention(q, k, v, 2), theirs)


# --- inputs: unchanged, and what is said about bad ones ----------------------------------------------


def test_nothing_changes_its_input(rng):
    q, k, v = qkv(rng)
    x, w = rng.normal(size=(T, D)), rng.normal(size=(D, D))
    mask = bh.causal_mask(T, S)
    given_arrays = [q, k, v, x, w, mask]
    for array in given_arrays:
        array.flags.writeable = False  # a write would raise
    bh.attention(q, k, v, mask)
    bh.attention_loops(q, k, v)
    bh.online_softmax_attention(q, k, v, 2)
    bh.relative_attention(q, k, v, np.zeros((3, K)), np.zeros((3, V)), mask)
    bh.disentangled_scores(q, k, np.zeros((4, K)), np.zeros((4, K)))
    bh.multi_head(x, w, w, w, w, H, mask=bh.causal_mask(T))
    for function in (
        bh.self_attention,
        bh.self_attention_loops,
        bh.rotary,
        bh.layer_norm,
        bh.gelu,
        bh.softmax,
    ):
        function(x)


def bad_calls():
    """What is called, what it raises, and what the message says."""
    x, m = np.ones((T, D)), np.ones((T, T), dtype=bool)
    q, k, v = np.ones((T, K)), np.ones((S, K)), np.ones((S, V))
    wide, square = np.ones((D, K)), np.ones((D, D))
    return {
        "softmax of nothing": (lambda: bh.softmax([]), ValueError, "at least one score"),
        "masked softmax of nothing": (lambda: bh.masked_softmax(np.ones((2, 0)), m), ValueError, "empty"),
        "a list": (lambda: bh.self_attention([[1, 2]]), TypeError, "NumPy array, not list"),
        "a list in the loops": (lambda: bh.self_attention_loops([[1, 2]]), TypeError, "x .* not list"),
        "a list of states": (lambda: bh.additive_scores(q, [[1]], wide, wide, q[0]), TypeError, "states"),
        "a list of keys": (lambda: bh.hard_lookup(q[0], [[1]], v), TypeError, "keys"),
        "a list to project": (lambda: bh.project(x, wide, wide, [[1]]), TypeError, "w_v"),
        "a list in attention loops": (lambda: bh.attention_loops(q, k, [[1]]), TypeError, "v .* not list"),
        "a list to score": (lambda: bh.attention_scores(q, [[1]]), TypeError, "k .* not list"),
        "a list of values": (lambda: bh.attention(q, k, [[1]]), TypeError, "v .* not list"),
        "a list to split": (lambda: bh.split_heads([[1]], 1), TypeError, "x .* not list"),
        "a list to merge": (lambda: bh.merge_heads([[[1]]]), TypeError, "x .* not list"),
        "a list of scores": (lambda: bh.masked_softmax([[1]], m), TypeError, "scores .* not list"),
        "a list to turn": (lambda: bh.rotary([[1, 2]]), TypeError, "x .* not list"),
        "a list of positions": (lambda: bh.disentangled_scores(q, k, [[1]], k), TypeError, "q_positions"),
        "a list in tiles": (lambda: bh.online_softmax_attention(q, k, [[1]], 2), TypeError, "v .* not list"),
        "a tensor": (lambda: bh.attention(torch.ones(T, K), k, v), TypeError, "q .* not Tensor"),
        "one axis": (lambda: bh.self_attention(x[0]), ValueError, r"2 axes or more.*\(12,\)"),
        "loops, a batch": (lambda: bh.self_attention_loops(x[None]), ValueError, "no batch"),
        "loops, batched q": (lambda: bh.attention_loops(q[None], k[None], v[None]), ValueError, "no batch"),
        "loops, widths": (lambda: bh.attention_loops(x, k, v), ValueError, "same width"),
        "no tokens": (lambda: bh.self_attention(x[:0]), ValueError, "empty"),
        "scores, widths": (lambda: bh.attention_scores(x, k), ValueError, "same width"),
        "keys without values": (lambda: bh.attention(q, k, v[1:]), ValueError, "Every key needs its value"),
        "weights, mask turned": (
            lambda: bh.attention_weights(q, k, np.ones((S, T), bool)),
            ValueError,
            "5, 7",
        ),
        "attention, mask turned": (lambda: bh.attention(q, k, v, np.ones((S, T), bool)), ValueError, "5, 7"),
        "a row of masks": (lambda: bh.masked_softmax(k, np.ones(K, bool)), ValueError, r"\(7, 4\)"),
        "three masks for one row": (lambda: bh.masked_softmax(k[0], k > 0), ValueError, r"\(1, 4\)"),
        "mask of numbers": (lambda: bh.attention(q, k, v, np.ones((T, S))), TypeError, "boolean"),
        "additive mask of numbers": (lambda: bh.additive_mask(np.ones((T, S))), TypeError, "boolean"),
        "additive, state": (lambda: bh.additive_scores(q, v, wide, wide, q[0]), ValueError, "state .* = 12"),
        "additive, states": (
            lambda: bh.additive_scores(x, v, wide, wide, q[0]),
            ValueError,
            "states .* = 12",
        ),
        "lookup, width": (lambda: bh.hard_lookup(x[0], k, v), ValueError, "query .* = 4"),
        "lookup, values": (
            lambda: bh.soft_lookup(q[0], k, v[1:]),
            ValueError,
            "needs its value; got 7 and 6",
        ),
        "lookup, cold": (lambda: bh.soft_lookup(q[0], k, v, 0), ValueError, "above 0; got 0"),
        "project, x": (lambda: bh.project(q, wide, wide, wide), ValueError, "x should be .* = 12"),
        "project, memory": (lambda: bh.project(x, wide, wide, wide, v), ValueError, "memory should be"),
        "project, w_v": (lambda: bh.project(x, wide, wide, k), ValueError, "memory should be .* = 7"),
        "jacobian of a list": (lambda: bh.softmax_jacobian([1.0]), TypeError, "weights"),
        "split": (lambda: bh.split_heads(x, 5), ValueError, "12 cannot be split into 5"),
        "merge": (lambda: bh.merge_heads(x), ValueError, "3 axes"),
        "multi-head": (lambda: bh.multi_head(x, *[square] * 4, 5), ValueError, "into 5 heads"),
        "multi-head loops": (lambda: bh.multi_head_loops(x, *[square] * 4, 0), ValueError, "into 0 heads"),
        "multi-head, w_o": (lambda: bh.multi_head(x, *[square] * 3, v, 3), ValueError, "concatenated heads"),
        "causal, no queries": (lambda: bh.causal_mask(0), ValueError, "T = 0"),
        "causal, too few keys": (lambda: bh.causal_mask(5, 3), ValueError, "T = 5, S = 3"),
        "padding, long": (lambda: bh.padding_mask([8], S), ValueError, r"0 to S = 7; got \[8\]"),
        "padding, negative": (lambda: bh.padding_mask([-1, 3]), ValueError, "-1"),
        "padding, halves": (lambda: bh.padding_mask([1.5]), TypeError, "whole numbers"),
        "padding, one number": (lambda: bh.padding_mask(3), TypeError, "one per sequence"),
        "sinusoid of nothing": (lambda: bh.sinusoidal(0, 4), ValueError, "got 0 and 4"),
        "odd rotation": (lambda: bh.rotation_matrix(1, 5), ValueError, "5 is not even"),
        "odd rotary": (lambda: bh.rotary(x[:, :5]), ValueError, "even"),
        "rotary, positions": (lambda: bh.rotary(x, [1, 2]), ValueError, "positions .* = 5"),
        "alibi": (lambda: bh.alibi_slopes(0), ValueError, "at least one head"),
        "Shaw, no value": (lambda: bh.relative_attention(q, k, v[1:], k, v), ValueError, "needs its value"),
        "Shaw, even": (lambda: bh.relative_attention(q, k, v, k[:4], v[:4]), ValueError, r"2c \+ 1 rows"),
        "Shaw, unequal": (lambda: bh.relative_attention(q, k, v, k[:3], v[:5]), ValueError, r"2c \+ 1 rows"),
        "Shaw, keys": (lambda: bh.relative_attention(q, k, v, v, v), ValueError, "key_table .* d_k = 4"),
        "Shaw, values": (lambda: bh.relative_attention(q, k, v, k, k), ValueError, "value_table .* d_v = 6"),
        "Shaw, a list": (lambda: bh.relative_attention(q, k, v, [[1]], v), TypeError, "key_table"),
        "DeBERTa, odd": (lambda: bh.disentangled_scores(q, k, k[:3], k[:3]), ValueError, "2c rows"),
        "DeBERTa, unequal": (lambda: bh.disentangled_scores(q, k, k[:2], k[:4]), ValueError, "2c rows"),
        "DeBERTa, q^r": (lambda: bh.disentangled_scores(q, k, v[:4], k[:4]), ValueError, "q_positions"),
        "DeBERTa, k^r": (lambda: bh.disentangled_scores(q, k, k[:4], v[:4]), ValueError, "k_positions"),
        "activation": (
            lambda: bh.feed_forward(x, wide, 0, wide.T, 0, "tanh"),
            ValueError,
            "relu, gelu.*'tanh'",
        ),
        "feed-forward": (lambda: bh.feed_forward(v, wide, 0, wide.T, 0), ValueError, "rows of w1 = 12"),
        "tiles": (lambda: bh.online_softmax_attention(q, k, v, 0), ValueError, "tile = 0"),
        "tiles, values": (lambda: bh.online_softmax_attention(q, k, v[1:], 2), ValueError, "needs its value"),
    }


@pytest.mark.parametrize("name", bad_calls())
def test_bad_input_is_told_what_is_wrong(name):
    call, error, message = bad_calls()[name]
    with pytest.raises(error, match=message):
        call()
