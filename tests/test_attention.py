"""Attention: properties first, then equality with torch and with NumPy by hand, then bad input."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_lib import attention as A
from course_lib import by_hand, masks
from course_lib.positions import ScorePositions

B, H, T, S, K, V, D = 2, 3, 5, 7, 4, 6, 12
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 4e-2}


def draw(*shape, dtype=torch.float64, seed=0, grad=True, size=1.0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=torch.float64)
    return (x * size).to(dtype).requires_grad_(grad)


def qkv(dtype=torch.float64, **kwargs):
    return (
        draw(B, H, T, K, dtype=dtype, seed=1, **kwargs),
        draw(B, H, S, K, dtype=dtype, seed=2, **kwargs),
        draw(B, H, S, V, dtype=dtype, seed=3, **kwargs),
    )


def some_mask():
    """Ragged, with one row that may see nothing and one that may see a single key."""
    mask = torch.rand(B, 1, T, S, generator=torch.Generator().manual_seed(5)) > 0.4
    mask[0, 0, 2] = False
    mask[1, 0, 1] = False
    mask[1, 0, 1, 3] = True
    return mask


def reference(q, k, v, mask=None, bias=0.0, scale=None):
    """The formula with −∞ and NaN swept away afterwards: written apart from the library, in float64."""
    q, k, v = (x.detach().double().requires_grad_() for x in (q, k, v))
    scores = torch.einsum("...tk,...sk->...ts", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
    if mask is not None:
        scores = scores + torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, -1e300)
    e = (scores - scores.max(-1, keepdim=True).values).exp()
    w = e / e.sum(-1, keepdim=True)
    if mask is not None:
        w = w * mask
    return torch.einsum("...ts,...sv->...tv", w, v), w, (q, k, v)


def compare(out, inputs, wanted, wanted_inputs, dtype):
    """Same value, and the same gradient for a cotangent that is not all ones."""
    atol = TOLERANCE[dtype]
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), wanted, atol=atol, rtol=atol)
    cotangent = draw(*out.shape, seed=9, grad=False)
    got = torch.autograd.grad(out, inputs, cotangent.to(dtype))
    want = torch.autograd.grad(wanted, wanted_inputs, cotangent)
    for g, w in zip(got, want, strict=True):
        assert g.isfinite().all()
        torch.testing.assert_close(g.double(), w, atol=4 * atol, rtol=4 * atol)


ROADS = {
    "explicit": lambda *a, **k: A.explicit(*a, **k)[0],
    "fused": A.fused,
    "auto": A.attention,
}
road = pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
dtypes = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


# --- softmax


@given(st.lists(st.floats(-200, 200), min_size=1, max_size=9), st.floats(-1e4, 1e4))
def test_softmax_sums_to_one_and_does_not_see_a_shift(scores, shift):
    x = torch.tensor(scores, dtype=torch.float64)
    weights = A.softmax(x)
    assert weights.sum() == pytest.approx(1) and (weights >= 0).all()
    torch.testing.assert_close(weights, A.softmax(x + shift), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_equals_torch_in_value_and_gradient(dim):
    x = draw(3, 5, 4, size=100.0)
    torch.testing.assert_close(A.softmax(x, dim), torch.softmax(x, dim), atol=1e-14, rtol=1e-12)
    assert torch.autograd.gradcheck(lambda x: A.softmax(x, dim), draw(3, 5, 4))


def test_softmax_runs_over_the_last_axis_unless_asked():
    x = draw(3, 5)
    torch.testing.assert_close(A.softmax(x).sum(1), torch.ones(3, dtype=torch.float64))


def test_softmax_takes_out_the_maximum_of_each_row():
    x = torch.tensor([[0.0, 1.0], [-5000.0, -5001.0]])
    torch.testing.assert_close(A.softmax(x), torch.softmax(x, -1))


@dtypes
def test_masked_softmax_gives_zero_to_what_is_hidden_and_to_empty_rows(dtype):
    scores = draw(B, H, T, S, dtype=dtype, size=30.0)
    mask = some_mask()
    weights = A.masked_softmax(scores, mask)
    assert (weights[~mask.expand_as(weights)] == 0).all()
    rows = weights.double().sum(-1)
    torch.testing.assert_close(rows, mask.any(-1).expand_as(rows).double(), atol=TOLERANCE[dtype], rtol=0)
    assert (weights[1, :, 1, 3] == 1).all()
    (weights * draw(B, H, T, S, grad=False).to(dtype)).sum().backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[~mask.expand_as(scores)] == 0).all() and (scores.grad[0, :, 2] == 0).all()


# --- the two roads


@road
@dtypes
@pytest.mark.parametrize("masked", [False, True])
def test_both_roads_equal_the_formula_in_value_and_gradient(road, dtype, masked):
    q, k, v = qkv(dtype)
    mask = some_mask() if masked else None
    wanted, _, inputs = reference(q, k, v, mask)
    compare(road(q, k, v, mask), (q, k, v), wanted, inputs, dtype)


@road
def test_an_empty_row_gives_zeros_and_no_gradient(road):
    q, k, v = qkv()
    out = road(q, k, v, some_mask())
    assert (out[0, :, 2] == 0).all()
    grads = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    assert all(g.isfinite().all() for g in grads) and (grads[0][0, :, 2] == 0).all()
    nothing = torch.zeros(T, S, dtype=torch.bool)
    out = road(q, k, v, nothing)
    assert (out == 0).all()
    assert all((g == 0).all() for g in torch.autograd.grad(out, (q, k, v), torch.ones_like(out)))


@road
@dtypes
def test_large_logits_stay_finite(road, dtype):
    q, k, v = qkv(dtype)
    wanted, _, inputs = reference(q, k, v, some_mask(), scale=60.0)
    out = road(q, k, v, some_mask(), scale=60.0)
    assert out.isfinite().all()
    if dtype == torch.float64:
        compare(out, (q, k, v), wanted, inputs, dtype)


@road
def test_bias_and_scale_enter_before_the_softmax(road):
    q, k, v = qkv()
    bias, mask = draw(H, T, S, seed=4, grad=False), some_mask()
    for m in (None, mask):
        wanted, _, inputs = reference(q, k, v, m, bias=bias, scale=0.3)
        compare(road(q, k, v, m, bias=bias, scale=0.3), (q, k, v), wanted, inputs, torch.float64)
        wanted, _, inputs = reference(q, k, v, m, scale=0.3)
        compare(road(q, k, v, m, scale=0.3), (q, k, v), wanted, inputs, torch.float64)


@road
def test_a_bias_gets_its_gradient(road):
    q, k, v = qkv()
    bias = draw(H, T, S, seed=4)
    wanted, _, _ = reference(q, k, v, bias=bias)
    (want,) = torch.autograd.grad(wanted.square().sum(), bias)
    (got,) = torch.autograd.grad(road(q, k, v, bias=bias).square().sum(), bias)
    torch.testing.assert_close(got, want)


@road
def test_a_coarser_bias_is_taken_in_the_precision_of_the_queries(road):
    q, k, v = qkv(torch.float32)
    bias = draw(H, T, S, seed=4, grad=False, dtype=torch.bfloat16)
    torch.testing.assert_close(road(q, k, v, bias=bias), road(q, k, v, bias=bias.float()))


@road
@pytest.mark.parametrize("queries", [1, 3, S])
@pytest.mark.parametrize("extra", ["nothing", "mask", "bias"])
def test_causal_lines_up_the_last_query_with_the_last_key(road, queries, extra):
    q, k, v = qkv()
    q = draw(B, H, queries, K, seed=6)
    mask = (torch.arange(S) > 0)[None] if extra == "mask" else None
    bias = draw(H, queries, S, seed=4, grad=False) if extra == "bias" else None
    seen = masks.causal(queries, S) if mask is None else masks.causal(queries, S) & mask
    wanted, _, inputs = reference(q, k, v, seen, bias=0.0 if bias is None else bias)
    compare(road(q, k, v, mask, bias=bias, causal=True), (q, k, v), wanted, inputs, torch.float64)


@road
def test_the_causal_mask_is_made_where_the_queries_are(road):
    assert road(*(x.to("meta") for x in qkv()), causal=True).device.type == "meta"


@road
def test_no_leak_from_the_future_in_value_and_gradient(road):
    q, k, v = draw(B, H, S, K, seed=1), draw(B, H, S, K, seed=2), draw(B, H, S, V, seed=3)
    out = road(q, k, v, causal=True)
    with torch.no_grad():
        changed_k, changed_v = k.clone(), v.clone()
        changed_k[..., 4:, :] += 10
        changed_v[..., 4:, :] -= 10
    later = road(q, changed_k, changed_v, causal=True)
    assert torch.equal(out[..., :4, :], later[..., :4, :])
    assert not torch.allclose(out[..., 4:, :], later[..., 4:, :])
    grads = torch.autograd.grad(out[..., :4, :].sum(), (k, v))
    assert all((g[..., 4:, :] == 0).all() for g in grads)
    assert all((g[..., :4, :] != 0).any() for g in grads)


@road
@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 3, 4)], ids=str)
def test_any_number_of_leading_axes(road, lead):
    q, k, v = draw(*lead, T, K, seed=1), draw(*lead, S, K, seed=2), draw(*lead, S, V, seed=3)
    mask = torch.rand(T, S, generator=torch.Generator().manual_seed(1)) > 0.3
    wanted, _, inputs = reference(q, k, v, mask)
    compare(road(q, k, v, mask), (q, k, v), wanted, inputs, torch.float64)
    wanted, _, inputs = reference(q, k, v, mask & masks.causal(T, S))
    compare(road(q, k, v, mask, causal=True), (q, k, v), wanted, inputs, torch.float64)


@road
def test_inputs_are_left_alone(road):
    q, k, v = (x.detach() for x in qkv())
    mask, bias = some_mask(), draw(H, T, S, grad=False)
    before = [x.clone() for x in (q, k, v, mask, bias)]
    road(q, k, v, mask, bias=bias)
    assert all(torch.equal(a, b) for a, b in zip(before, (q, k, v, mask, bias), strict=True))


@road
def test_shuffling_keys_and_values_together_changes_nothing(road):
    q, k, v = qkv()
    order = torch.randperm(S, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(road(q, k[..., order, :], v[..., order, :]), road(q, k, v))


def test_explicit_returns_the_weights_it_used():
    q, k, v = qkv()
    mask = some_mask()
    out, weights = A.explicit(q, k, v, mask)
    torch.testing.assert_close(out, weights @ v)
    torch.testing.assert_close(weights, reference(q, k, v, mask)[1])


def test_dropout_drops_weights_and_scales_the_rest():
    q, k, v = (x.detach().float() for x in qkv())
    ones = torch.ones(B, H, S, 1)
    torch.manual_seed(0)
    for run in (lambda: A.explicit(q, k, ones, dropout=0.5)[0], lambda: A.fused(q, k, ones, dropout=0.5)):
        outs = torch.stack([run() for _ in range(300)])
        assert outs.std() > 0.1
        torch.testing.assert_close(outs.mean(), torch.tensor(1.0), atol=0.05, rtol=0)
    _, weights = A.explicit(q, k, v, dropout=0.5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T))


@road
def test_dropout_is_the_share_that_is_dropped(road):
    q, k, v = torch.zeros(1, 4000, K), torch.zeros(1, 1, K), torch.ones(1, 1, 1)
    torch.manual_seed(0)
    out = road(q, k, v, dropout=0.2)  # a single key: its weight is 1, or dropped
    torch.testing.assert_close(out.unique(), torch.tensor([0.0, 1.25]))
    assert (out == 0).float().mean().item() == pytest.approx(0.2, abs=0.03)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**20))
def test_roads_agree_for_any_sizes(queries, keys, width, value_width, seed):
    g = torch.Generator().manual_seed(seed)
    q, k, v = (
        torch.randn(2, n, w, generator=g, dtype=torch.float64)
        for n, w in ((queries, width), (keys, width), (keys, value_width))
    )
    mask = torch.rand(2, queries, keys, generator=g) > 0.5
    torch.testing.assert_close(A.explicit(q, k, v, mask)[0], A.fused(q, k, v, mask), atol=1e-12, rtol=1e-12)


def test_equals_numpy_by_hand():
    q, k, v = (x.detach()[0, 0] for x in qkv())
    wanted = by_hand.attention(q.numpy(), k.numpy(), v.numpy())
    torch.testing.assert_close(A.attention(q, k, v), torch.from_numpy(wanted), atol=1e-13, rtol=1e-13)


def test_gradcheck():
    mask = some_mask()
    assert torch.autograd.gradcheck(lambda q, k, v: A.explicit(q, k, v, mask)[0], qkv())


# --- which road


def test_the_road_follows_device_dtype_and_length(monkeypatch):
    short, long = torch.zeros(1, 2, 511, 4), torch.zeros(1, 2, 512, 4)
    assert A.faster_road(short, short) == A.faster_road(long, long) == "fused"
    assert A.faster_road(short.bfloat16(), short.bfloat16()) == "explicit"
    assert A.faster_road(long.bfloat16(), long.bfloat16()) == "fused"
    assert A.faster_road(short[..., :1, :].bfloat16(), long.bfloat16()) == "fused"  # the keys count
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    assert A.faster_road(short, short) == "explicit" and A.faster_road(long, long) == "fused"
    assert A.faster_road(short.to("meta"), short.to("meta")) == "fused"


@pytest.mark.parametrize("name, other", [("explicit", "fused"), ("fused", "explicit")])
def test_attention_takes_the_road_it_is_told_and_all_it_is_given_along(monkeypatch, name, other):
    given = {"bias": draw(H, T, S, seed=4), "causal": True, "scale": 0.3, "dropout": 0.2}
    torch.manual_seed(0)
    wanted = ROADS[name](*qkv(), some_mask(), **given)
    monkeypatch.setattr(A, "faster_road", lambda q, k: name)
    monkeypatch.setattr(A, other, None)
    torch.manual_seed(0)
    assert torch.equal(A.attention(*qkv(), some_mask(), **given), wanted)


# --- without parameters, and the scores of RNN attention


def test_self_attention_is_a_set_operation():
    x = draw(B, T, D)
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(A.self_attention(x[:, order]), A.self_attention(x)[:, order])
    wanted, _, _ = reference(x, x, x, scale=1.0)
    torch.testing.assert_close(A.self_attention(x), wanted)
    assert torch.autograd.gradcheck(A.self_attention, draw(2, 3, 2))


def test_dot_and_general_scores():
    state, source, w = draw(B, K, seed=1), draw(B, S, K, seed=2), draw(D, K, seed=3)
    wide = draw(B, D, seed=4)
    for b in range(B):
        for i in range(S):
            torch.testing.assert_close(A.dot_scores(state, source)[b, i], state[b] @ source[b, i])
            torch.testing.assert_close(A.general_scores(wide, source, w)[b, i], wide[b] @ w @ source[b, i])


class TestAdditive:
    def make(self):
        torch.manual_seed(0)
        return A.AdditiveAttention(d_state=K, d_source=D, d_hidden=V).double()

    def test_equals_the_formula_word_by_word(self):
        layer, state, source = self.make(), draw(B, K, seed=1), draw(B, S, D, seed=2)
        nn.init.normal_(layer.w_source.bias)
        mask = torch.arange(S) < torch.tensor([[S], [3]])
        context, weights = layer(state, source, mask)
        w = torch.cat([layer.w_state.weight, layer.w_source.weight], dim=1)  # one W for [s; h]
        for b in range(B):
            pairs = [torch.cat([state[b], h]) for h in source[b][mask[b]]]
            scores = [layer.v.weight[0] @ torch.tanh(w @ pair + layer.w_source.bias) for pair in pairs]
            a = torch.softmax(torch.stack(scores), 0)
            torch.testing.assert_close(weights[b][mask[b]], a)
            torch.testing.assert_close(context[b], a @ source[b][mask[b]])
        assert (weights[~mask] == 0).all()

    def test_has_one_bias_and_one_score(self):
        sizes = {name: tuple(p.shape) for name, p in self.make().named_parameters()}
        hidden = {"w_state.weight": (V, K), "w_source.weight": (V, D), "w_source.bias": (V,)}
        assert sizes == {**hidden, "v.weight": (1, V)}

    def test_equals_numpy_by_hand(self):
        layer, state, source = self.make(), draw(K, seed=1, grad=False), draw(S, D, seed=2, grad=False)
        nn.init.zeros_(layer.w_source.bias)
        names = (layer.w_state.weight.T, layer.w_source.weight.T, layer.v.weight[0])
        scores = by_hand.additive_scores(state.numpy(), source.numpy(), *(p.detach().numpy() for p in names))
        _, weights = layer(state, source)
        torch.testing.assert_close(weights, torch.softmax(torch.from_numpy(scores), -1).to(weights))

    def test_projecting_the_source_once_changes_nothing(self):
        layer, state, source = self.make(), draw(B, K, seed=1), draw(B, S, D, seed=2)
        keys = layer.project(source)
        plain, kept = layer(state, source), layer(state, source, keys=keys)
        assert all(torch.equal(a, b) for a, b in zip(plain, kept, strict=True))
        assert not torch.allclose(layer(state, source, keys=-keys)[1], plain[1])  # they are used

    def test_an_empty_source_gives_zeros_and_finite_gradients(self):
        layer, state, source = self.make(), draw(B, K, seed=1), draw(B, S, D, seed=2)
        context, weights = layer(state, source, torch.zeros(B, S, dtype=torch.bool))
        assert (context == 0).all() and (weights == 0).all()
        context.sum().backward()
        assert state.grad.isfinite().all() and source.grad.isfinite().all()

    def test_gradcheck(self):
        layer = self.make()
        assert torch.autograd.gradcheck(lambda s, h: layer(s, h)[0], (draw(2, K), draw(2, 3, D)))

    def test_bad_widths_are_named(self):
        with pytest.raises(ValueError, match=r"state should be d_state = 4; got shape \(2, 12\)"):
            self.make()(draw(B, D), draw(B, S, D))
        with pytest.raises(ValueError, match=r"source should be d_source = 12; got shape \(2, 7, 4\)"):
            self.make()(draw(B, K), draw(B, S, K))


# --- many heads


def test_splitting_takes_blocks_of_columns_and_merging_undoes_it():
    x = draw(B, T, D)
    heads = A.split_heads(x, H)
    assert heads.shape == (B, H, T, D // H)
    for h in range(H):
        assert torch.equal(heads[:, h], x[..., h * D // H : (h + 1) * D // H])
    assert torch.equal(A.merge_heads(heads), x)
    assert torch.equal(A.split_heads(x[0], H), heads[0])  # a table of positions has no batch


def torch_twin(layer, **kwargs):
    """torch's own layer with our weights."""
    twin = nn.MultiheadAttention(D, H, batch_first=True, bias=layer.w_o.bias is not None, **kwargs).double()
    twin.in_proj_weight.data.copy_(layer.w_qkv.weight)
    twin.out_proj.weight.data.copy_(layer.w_o.weight)
    if layer.w_o.bias is not None:
        twin.in_proj_bias.data.copy_(layer.w_qkv.bias)
        twin.out_proj.bias.data.copy_(layer.w_o.bias)
    return twin


def make_layer(**kwargs):
    torch.manual_seed(0)
    layer = A.MultiHeadAttention(D, H, **kwargs).double()
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    return layer


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("kind", ["none", "causal", "padding", "per sentence", "per head"])
def test_multi_head_equals_torch_in_value_weights_and_gradient(bias, cross, kind):
    layer, x = make_layer(bias=bias), draw(B, T, D, seed=1)
    memory = draw(B, S, D, seed=2) if cross else None
    keys = S if cross else T
    if kind == "causal" and cross:
        pytest.skip("cross-attention has no future")
    lengths = torch.tensor([keys, keys - 2])
    g = torch.Generator().manual_seed(0)
    mask = {
        "none": None,
        "causal": masks.causal(T),
        "padding": masks.padding(lengths, keys),
        "per sentence": torch.rand(B, T, keys, generator=g) > 0.3,
        "per head": torch.rand(B, H, T, keys, generator=g) > 0.3,
    }[kind]
    if mask is not None:
        mask[..., 0] = True  # torch's layer gives NaN on an empty row
    full = None if mask is None else (mask[:, None] if mask.dim() == 3 else mask).expand(B, H, T, keys)
    twin = torch_twin(layer)
    other = x if memory is None else memory
    theirs, their_weights = twin(
        x,
        other,
        other,
        attn_mask=None if full is None else ~full.reshape(B * H, T, keys),
        average_attn_weights=False,
    )
    ours, weights = layer(x, memory, mask, need_weights=True)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(weights, their_weights)
    torch.testing.assert_close(layer(x, memory, mask), theirs)
    if kind == "causal":
        torch.testing.assert_close(layer(x, causal=True), theirs)
        torch.testing.assert_close(layer(x, causal=True, need_weights=True)[0], theirs)
    cotangent, inputs = draw(B, T, D, seed=8, grad=False), [x] if memory is None else [x, memory]
    got = torch.autograd.grad(layer(x, memory, mask), [*inputs, *layer.parameters()], cotangent)
    want = torch.autograd.grad(theirs, [*inputs, *twin.parameters()], cotangent)
    for a, b in zip(
        sorted(got, key=lambda g: (g.shape, g.sum())),
        sorted(want, key=lambda g: (g.shape, g.sum())),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_multi_head_equals_separate_attentions():
    layer, x = make_layer(), draw(B, T, D, seed=1)
    w_q, w_k, w_v = layer.w_qkv.weight.chunk(3)
    b_q, b_k, b_v = layer.w_qkv.bias.chunk(3)
    heads, width = [], D // H
    for h in range(H):
        block = slice(h * width, (h + 1) * width)
        q, k, v = (x @ w[block].T + b[block] for w, b in ((w_q, b_q), (w_k, b_k), (w_v, b_v)))
        heads.append(torch.softmax(q @ k.mT / math.sqrt(width), -1) @ v)
    torch.testing.assert_close(layer(x), torch.cat(heads, -1) @ layer.w_o.weight.T + layer.w_o.bias)


def test_a_batch_that_equals_the_heads_does_not_confuse_the_mask():
    layer, x = make_layer(), draw(H, T, D, seed=1)
    mask = torch.rand(H, T, T, generator=torch.Generator().manual_seed(0)) > 0.4
    mask[..., 0] = True
    for b in range(H):
        torch.testing.assert_close(layer(x, mask=mask)[b], layer(x[b : b + 1], mask=mask[b])[0])


def test_a_cache_equals_recomputation_and_leaves_the_past_alone():
    layer, x = make_layer(), draw(B, S, D, seed=1)
    whole = layer(x, causal=True)
    past, parts = None, []
    for chunk in x.split([3, 1, 2, 1], dim=1):
        kept = None if past is None else (past.k.clone(), past.v.clone())
        out, present = layer.step(chunk, past)
        assert past is None or (torch.equal(past.k, kept[0]) and torch.equal(past.v, kept[1]))
        parts.append(out)
        past = present
    assert past.k.shape == (B, H, S, D // H)
    torch.testing.assert_close(torch.cat(parts, 1), whole)


class Marked(ScorePositions):
    """Queries grow with their position and keys shrink; the bias and the scale are no one else's."""

    def rotate(self, q, k, offset=0):
        t_T1 = torch.arange(offset + 1, offset + 1 + q.shape[-2])[:, None]
        return q * t_T1, k / t_T1

    def score_bias(self, q, k):
        return q[..., :1] * k[..., :1].mT

    def scale(self, d_k):
        return 0.7 / d_k


def test_positions_enter_queries_keys_bias_and_scale_also_after_a_cache():
    layer, x, mask = make_layer(positions=Marked()), draw(B, S, D, seed=1), masks.padding(torch.tensor([S, 4]))
    q, k, v = (A.split_heads(part, H) for part in layer.w_qkv(x).chunk(3, -1))
    t_T1 = torch.arange(1, S + 1)[:, None]
    q, k = q * t_T1, k / t_T1
    out, weights = A.explicit(q, k, v, mask[:, None], bias=q[..., :1] * k[..., :1].mT, causal=True, scale=0.7 * H / D)
    whole = layer.w_o(A.merge_heads(out))
    torch.testing.assert_close(layer(x, mask=mask, causal=True), whole)
    for found, wanted in zip(layer(x, mask=mask, causal=True, need_weights=True), (whole, weights), strict=True):
        torch.testing.assert_close(found, wanted)
    past = None
    for start, stop in ((0, 3), (3, 4), (4, S)):
        part, past = layer.step(x[:, start:stop], past, mask[..., :stop])
        torch.testing.assert_close(part, whole[:, start:stop])


def test_keys_and_values_of_a_memory_can_be_kept():
    layer, x, memory = make_layer(), draw(B, T, D, seed=1), draw(B, S, D, seed=2)
    kept = layer.key_value(memory)
    torch.testing.assert_close(layer.attend(layer.query(x), kept), layer(x, memory))


def test_layer_starts_like_torchs():
    torch.manual_seed(0)
    layer = A.MultiHeadAttention(48, 4)
    limit = math.sqrt(6 / (48 + 3 * 48))
    assert layer.w_qkv.weight.abs().max() <= limit and layer.w_qkv.weight.abs().max() > 0.95 * limit
    assert (layer.w_qkv.bias == 0).all() and (layer.w_o.bias == 0).all()
    assert sum(p.numel() for p in layer.parameters()) == 4 * 48 * 48 + 4 * 48
    assert sum(p.numel() for p in A.MultiHeadAttention(48, 4, bias=False).parameters()) == 4 * 48 * 48


def test_dropout_acts_in_training_only():
    layer, x = make_layer(dropout=0.5), draw(B, T, D)
    torch.manual_seed(0)
    assert not torch.equal(layer(x), layer(x))
    assert not torch.equal(layer(x, need_weights=True)[0], layer(x, need_weights=True)[0])
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    torch.testing.assert_close(layer(x), layer(x, need_weights=True)[0])
    torch.testing.assert_close(layer(x), make_layer()(x))


def test_weights_are_built_only_where_somebody_asks(monkeypatch):
    layer, x = make_layer(), draw(B, T, D)
    monkeypatch.setattr(A, "explicit", None)
    monkeypatch.setattr(A, "faster_road", lambda q, k: "fused")
    layer(x)
    layer.step(x, None)


def test_recording_sees_the_weights_that_were_used_and_ends_with_the_block():
    model = nn.ModuleDict({"one": make_layer(), "two": make_layer()})
    x, mask = draw(B, T, D), masks.padding(torch.tensor([T, 2]))
    plain = model["two"](model["one"](x, mask=mask), causal=True)
    with A.record_weights(model) as seen:
        recorded = model["two"](model["one"](x, mask=mask), causal=True)
    torch.testing.assert_close(plain, recorded)
    assert set(seen) == {"one", "two"} and len(seen["one"]) == 1
    torch.testing.assert_close(seen["one"][0], model["one"](x, mask=mask, need_weights=True)[1])
    assert (seen["one"][0][1, :, :, 2:] == 0).all() and (seen["two"][0].triu(1) == 0).all()
    assert not seen["one"][0].requires_grad
    model["one"](x)
    assert len(seen["one"]) == 1
    with A.record_weights(model) as seen:
        model["one"].step(x, None)
    torch.testing.assert_close(seen["one"][0], model["one"](x, causal=True, need_weights=True)[1])
    with pytest.raises(RuntimeError, match="stop"), A.record_weights(model):
        raise RuntimeError("stop")
    assert model["one"].recorded is None


# --- bad input

ATTENTION_ERRORS = [
    (lambda q, k, v: (q[0, 0, 0], k, v), ValueError, r"at least two axes.*q \(4,\)"),
    (lambda q, k, v: (q[..., :3], k, v), ValueError, r"same width d_k.*\(2, 3, 5, 3\) and k \(2, 3, 7, 4\)"),
    (lambda q, k, v: (q, k[..., :6, :], v), ValueError, r"k has 6 rows and v has 7"),
    (lambda q, k, v: (q, k[..., :0, :], v[..., :0, :]), ValueError, r"at least one key"),
    (lambda q, k, v: (q[..., :0], k[..., :0], v), ValueError, r"at least one key of at least one dimension"),
    (lambda q, k, v: (q, k, v, torch.ones(T, S)), TypeError, r"boolean.*got torch.float32"),
    (lambda q, k, v: (q, k, v, [[True]]), TypeError, r"boolean.*got list"),
    (
        lambda q, k, v: (q, k, v, torch.ones(S, T, dtype=torch.bool)),
        ValueError,
        r"\(5, 7\).*got shape \(7, 5\)",
    ),
    (lambda q, k, v: (q, k, v, torch.ones(S, dtype=torch.bool)), ValueError, r"got shape \(7,\)"),
    (lambda q, k, v: (q, k, v, torch.ones(T, 2, dtype=torch.bool)), ValueError, r"got shape \(5, 2\)"),
]


@road
@pytest.mark.parametrize("spoil, error, message", ATTENTION_ERRORS)
def test_bad_input_is_named(road, spoil, error, message):
    with pytest.raises(error, match=message):
        road(*spoil(*qkv()))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: A.MultiHeadAttention(12, 5), "12 cannot be split into 5 heads"),
        (lambda: A.MultiHeadAttention(12, 0), "12 cannot be split into 0 heads"),
        (lambda: A.MultiHeadAttention(0, 1), "d_model = 0"),
        (lambda: make_layer()(draw(T, D)), r"x should have 3 axes .*\(5, 12\) with 2"),
        (lambda: make_layer()(draw(B, T, K)), r"x should be d_model = 12; got shape \(2, 5, 4\)"),
        (lambda: make_layer()(draw(B, T, D), draw(B, S, K)), r"memory should be d_model = 12"),
        (lambda: make_layer()(draw(B, T, D), draw(S, D)), r"memory should have 3 axes"),
        (lambda: make_layer(positions=Marked())(draw(B, T, D), draw(B, S, D)), "in self-attention only"),
        (
            lambda: A.dot_scores(draw(B, D), draw(B, S, K)),
            r"width of the source states = 4; got shape \(2, 12\)",
        ),
        (lambda: A.general_scores(draw(D), draw(S, K), draw(K, D)), r"\(12, 4\); got shape \(4, 12\)"),
    ],
)
def test_bad_layers_and_inputs_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_plain_torch_formula_agrees_at_last():
    """The same through torch's public function, with a mask that broadcasts over batch and heads."""
    q, k, v = (x.detach() for x in qkv())
    mask = masks.causal(T, S)
    torch.testing.assert_close(A.attention(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
