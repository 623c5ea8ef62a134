"""Positions: properties first, then equality with loops, NumPy by hand and Hugging Face, then bad input."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_lib import by_hand
from course_lib import positions as P
from course_lib.attention import MultiHeadAttention, explicit

B, H, T, S, K, V = 2, 3, 4, 7, 6, 5
D = H * K
M = 3  # maximal distance: smaller than S, so that both ends are clipped
WIDE = torch.float64
BASES = (10_000.0, 50.0)


def draw(*shape, dtype=WIDE, seed=0, grad=True):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=WIDE)
    return x.to(dtype).requires_grad_(grad)


def queries_and_keys(dtype=WIDE):
    return draw(B, H, T, K, seed=1, dtype=dtype), draw(B, H, S, K, seed=2, dtype=dtype)


def assert_close(found, expected, tolerance=1e-10):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def assert_same(found, expected, inputs, tolerance=1e-10):
    """Two roads give the same values, and the same gradient for every input."""
    assert_close(found, expected, tolerance)
    weight = draw(*found.shape, seed=99, grad=False, dtype=found.dtype)
    roads = [torch.autograd.grad((out * weight).sum(), inputs, retain_graph=True) for out in (found, expected)]
    for ours, theirs in zip(*roads, strict=True):
        assert theirs.abs().max() > 0
        assert_close(ours, theirs, tolerance)


def kinds(heads=H, head_width=K, max_distance=M):
    """One of each kind that works inside the scores, its tables large enough to matter."""
    torch.manual_seed(0)
    modules = [
        P.Rotary(head_width, base=50.0),
        P.Alibi(heads),
        P.RelativePositions(head_width, max_distance),
        P.Disentangled(heads, head_width, max_distance),
    ]
    for module in modules:
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=0.7)
    return modules


every_kind = pytest.mark.parametrize("kind", range(4), ids=["rotary", "alibi", "relative", "disentangled"])


# Sinusoids: properties -----------------------------------------------------------------------------


def test_the_first_column_counts_radians_because_exponents_start_at_zero():
    table = P.sinusoidal(7, 8, dtype=WIDE)
    assert_close(table[:, 0], torch.arange(7, dtype=WIDE).sin())
    assert_close(table[:, 1], torch.arange(7, dtype=WIDE).cos())


def rotation(k, width, base):
    """R_k, block by block: (sin a, cos a) -> (sin(a + kω), cos(a + kω))."""
    matrix = torch.zeros(width, width, dtype=WIDE)
    for i in range(width // 2):
        angle = k * base ** (-2 * i / width)
        matrix[2 * i, 2 * i], matrix[2 * i, 2 * i + 1] = math.cos(angle), math.sin(angle)
        matrix[2 * i + 1, 2 * i], matrix[2 * i + 1, 2 * i + 1] = -math.sin(angle), math.cos(angle)
    return matrix


@given(t=st.integers(0, 500), k=st.integers(-200, 500), half=st.integers(1, 9), base=st.floats(2.0, 20_000.0))
@settings(max_examples=60, deadline=None)
def test_a_step_of_k_is_the_same_rotation_from_everywhere(t, k, half, base):
    here = P.sinusoidal(1, 2 * half, base=base, start=t, dtype=WIDE)
    there = P.sinusoidal(1, 2 * half, base=base, start=t + k, dtype=WIDE)
    assert_close(there[0], rotation(k, 2 * half, base) @ here[0])
    assert_close(there, P.rotate(here, [-k], base=base))


def test_the_product_of_two_positions_sees_their_distance_alone():
    table = P.sinusoidal(40, 10, dtype=WIDE)
    products = table @ table.mT
    for distance in range(40):
        diagonal = products.diagonal(distance)
        assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert products[0].argmax() == 0


def test_rows_are_all_different_and_bounded():
    table = P.sinusoidal(1000, 6)
    assert table.abs().max() <= 1
    assert torch.pdist(table).min() > 1e-3


# Sinusoids: equality -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 5, 8])
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("start", [0, 3, -2])
def test_the_table_is_the_formula_for_any_width(width, base, start):
    table = P.sinusoidal(6, width, base=base, start=start, dtype=WIDE)
    assert table.shape == (6, width)
    for row in range(6):
        for column in range(width):
            angle = (start + row) / base ** (2 * (column // 2) / width)
            wave = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[row, column].item() == pytest.approx(wave, abs=1e-13)


@pytest.mark.parametrize("width", [7, 8])
def test_the_table_is_that_of_numpy(width):
    found = P.sinusoidal(11, width, base=77.0, start=5, dtype=WIDE)
    assert_close(found, torch.from_numpy(by_hand.sinusoidal(11, width, base=77.0, start=5)))


@pytest.mark.parametrize("start", [10**6, 10**8 + 1])
def test_far_positions_are_as_exact_as_near_ones(start):
    row = P.sinusoidal(1, 16, start=start)[0]
    for column in range(16):
        angle = start / 10_000.0 ** (2 * (column // 2) / 16)
        wave = math.cos(angle) if column % 2 else math.sin(angle)
        assert row[column].item() == pytest.approx(wave, abs=2e-7)


def test_a_table_has_the_dtype_and_device_that_were_asked_for():
    assert P.sinusoidal(3, 4).dtype == torch.float32
    assert P.sinusoidal(3, 4).device.type == "cpu"
    assert P.sinusoidal(3, 4, dtype=torch.bfloat16).dtype == torch.bfloat16
    assert P.sinusoidal(3, 4, device="meta").device.type == "meta"
    assert P.sinusoidal(0, 4).shape == (0, 4)
    with torch.device("meta"):  # a default device is not where the waves are computed
        assert_close(P.sinusoidal(3, 4), torch.stack([P.sinusoids([t], 4)[0] for t in range(3)]).float())


def test_waves_have_the_base_of_the_paper_and_take_any_other():
    assert torch.equal(P.sinusoids([3, 700], 8), P.sinusoids([3, 700], 8, 10_000.0))
    assert_close(P.sinusoids([3], 4, base=0.25)[0, 2], torch.tensor(3 / 0.25**0.5, dtype=WIDE).sin())


# Positions that are added ----------------------------------------------------------------------------


@pytest.mark.parametrize("width", [D, 7])
@pytest.mark.parametrize("offset", [0, 5])
def test_sinusoidal_positions_add_the_table(width, offset):
    x = draw(B, T, width)
    before = x.detach().clone()
    found = P.SinusoidalPositions(width, base=50.0)(x, offset)
    assert_same(found, x + P.sinusoidal(T, width, base=50.0, start=offset, dtype=WIDE), [x])
    assert torch.equal(x, before)
    assert torch.equal(P.SinusoidalPositions(width, base=50.0)(x[0], offset), found[0])  # without a batch, too


def added(max_length=40):
    torch.manual_seed(0)
    return [P.SinusoidalPositions(D), P.LearnedPositions(max_length, D)]


@pytest.mark.parametrize("which", [0, 1], ids=["sinusoidal", "learned"])
def test_chunks_with_an_offset_are_the_whole(which):
    module, x = added()[which], draw(B, 12, D, dtype=torch.float32)
    chunks = [module(x[:, start:stop], offset=start) for start, stop in ((0, 3), (3, 4), (4, 12))]
    assert torch.equal(torch.cat(chunks, dim=1), module(x))


def test_sinusoidal_positions_have_no_end():
    module = P.SinusoidalPositions(4)
    for start, length in ((0, 3), (60, 5), (64, 1), (0, 1000), (2, 3), (P.KEPT_ROWS - 2, 5), (10**9, 2)):
        x = draw(1, length, 4, dtype=torch.float32, grad=False)
        assert torch.equal(module(x, start), x + P.sinusoidal(length, 4, start=start))
    assert len(module.table.kept) <= P.KEPT_ROWS


def test_the_table_is_kept_between_calls():
    module, x = P.SinusoidalPositions(4), torch.zeros(1, 10, 4)
    module(x)
    kept = module.table.kept
    assert len(kept) >= 10
    for offset in range(len(kept) - 9):
        module(x, offset)
    assert module.table.kept is kept
    module(torch.zeros(1, len(kept) + 1, 4))
    assert len(module.table.kept) == 2 * len(kept)


def test_sinusoids_are_no_parameters_and_are_not_saved():
    for module in (P.SinusoidalPositions(D), P.Rotary(K), P.Alibi(H)):
        assert not list(module.parameters())
        assert not module.state_dict()
    module = P.SinusoidalPositions(D)
    module(torch.zeros(1, 9, D))
    assert not module.state_dict()
    module.load_state_dict(P.SinusoidalPositions(D).state_dict())


def test_a_journey_through_bfloat16_leaves_the_table_exact():
    x, fresh = torch.zeros(1, 50, D), P.SinusoidalPositions(D)(torch.zeros(1, 50, D))
    module = P.SinusoidalPositions(D)
    module(x)
    assert torch.equal(module.bfloat16().float()(x), fresh)
    assert torch.equal(module.double()(x.double())[0], P.sinusoidal(50, D, dtype=WIDE))
    assert torch.equal(copy.deepcopy(module).float()(x), fresh)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, WIDE])
def test_added_positions_keep_the_dtype_and_round_once(dtype):
    x = draw(B, 30, D, dtype=dtype)
    for module in added():
        found, exact = module.double()(x, 7), module.double()(x.double(), 7)
        assert found.dtype == dtype
        half_a_step = torch.finfo(dtype).eps / 2
        torch.testing.assert_close(found.double(), exact, rtol=1.01 * half_a_step, atol=1e-7)


def test_a_table_made_in_inference_mode_serves_training():
    sinusoidal, rotary = P.SinusoidalPositions(D), P.Rotary(K)
    x, (q, k) = draw(B, T, D), queries_and_keys()
    with torch.inference_mode():
        sinusoidal(x)
        rotary.rotate(q, k)
    sinusoidal(x).sum().backward()
    sum(part.square().sum() for part in rotary.rotate(q, k)).backward()
    assert x.grad is not None and q.grad is not None


def test_learned_positions_add_their_rows_and_learn_those_alone():
    module = P.LearnedPositions(9, D).double()
    x, offset = draw(B, T, D), 3
    loop = torch.stack([torch.stack([x[b, t] + module.table[offset + t] for t in range(T)]) for b in range(B)])
    assert_same(module(x, offset), loop, [x, module.table])
    module(x, offset).sum().backward()
    assert module.table.grad.ne(0).any(1).tolist() == [False] * 3 + [True] * T + [False] * 2
    assert list(module.state_dict()) == ["table"]
    assert [p.shape for p in module.parameters()] == [(9, D)]


def test_learned_positions_reach_their_last_row_and_not_further():
    module = P.LearnedPositions(9, D)
    module(torch.zeros(B, 9, D))
    module(torch.zeros(B, T, D), 9 - T)
    with pytest.raises(ValueError, match=r"max_length = 9; 4 tokens after 6 others need 10"):
        module(torch.zeros(B, T, D), 6)


def test_learned_positions_start_small_and_different():
    torch.manual_seed(0)
    table = P.LearnedPositions(500, 40).table
    assert table.std().item() == pytest.approx(0.02, rel=0.05)
    assert abs(table.mean().item()) < 1e-3


# Rotary: properties --------------------------------------------------------------------------------


@given(st.integers(0, 300), st.integers(0, 300), st.integers(-300, 2000), st.integers(1, 6), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_rotary_products_see_the_distance_alone(m, n, shift, half, seed):
    q, k = draw(1, 2 * half, seed=seed, grad=False), draw(1, 2 * half, seed=seed + 50, grad=False)
    here = (P.rotate(q, [m]) * P.rotate(k, [n])).sum()
    there = (P.rotate(q, [m + shift]) * P.rotate(k, [n + shift])).sum()
    assert_close(there, here)
    assert_close(there, (q * P.rotate(k, [n - m])).sum())


def test_rotary_sees_the_sign_of_the_distance():
    q, k = draw(1, K, seed=3), draw(1, K, seed=4)
    ahead, behind = (P.rotate(q, [5]) * P.rotate(k, [n]) for n in (7, 3))
    assert (ahead.sum() - behind.sum()).abs() > 1e-2


@given(t=st.integers(-1000, 100_000), half=st.integers(1, 8), base=st.floats(2.0, 1e6))
@settings(max_examples=40, deadline=None)
def test_rotation_keeps_the_norm_of_every_pair_and_can_be_undone(t, half, base):
    x = draw(3, 2 * half, seed=t % 7, grad=False)
    turned = P.rotate(x, [t], base=base)
    assert_close(turned.unflatten(-1, (-1, 2)).norm(dim=-1), x.unflatten(-1, (-1, 2)).norm(dim=-1))
    assert_close(P.rotate(turned, [-t], base=base), x)


def test_position_zero_does_not_turn_and_the_others_do():
    x = draw(T, K)
    turned = P.rotate(x, range(T))
    assert torch.equal(turned[0], x[0])
    assert (turned[1:] - x[1:]).abs().amax(-1).min() > 0.05


# Rotary: equality ----------------------------------------------------------------------------------


def turned_by_loops(x, positions, base=10_000.0):
    """One number after the other, for x (T, K)."""
    rows = []
    for token, t in zip(x, positions, strict=True):
        row = []
        for i in range(0, len(token), 2):
            angle = t / base ** (i / len(token))
            row += [token[i] * math.cos(angle) - token[i + 1] * math.sin(angle)]
            row += [token[i] * math.sin(angle) + token[i + 1] * math.cos(angle)]
        rows.append(torch.stack(row))
    return torch.stack(rows)


def over_batch_and_heads(function, *arrays):
    """A function of one head's arrays, for every sentence and every head: (B, H, ..., ...)."""
    return torch.stack(
        [torch.stack([function(*(a[b, h] for a in arrays)) for h in range(H)]) for b in range(len(arrays[0]))]
    )


@pytest.mark.parametrize("base", BASES)
def test_rotate_is_the_loop(base):
    x, positions = draw(B, H, T, K), [3, 0, 11, 200]
    expected = over_batch_and_heads(lambda x: turned_by_loops(x, positions, base), x)
    assert_same(P.rotate(x, positions, base=base), expected, [x])
    assert_close(P.rotate(x, torch.tensor(positions), base=base), expected)
    by_numpy = by_hand.rotary(x.detach().numpy(), positions, base=base)
    assert_close(P.rotate(x, positions, base=base).detach(), torch.from_numpy(by_numpy))


def test_rotate_is_that_of_gpt_j():
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    x = draw(B, T, H, K)  # GPT-J's order of axes
    angles = torch.arange(T, dtype=WIDE)[:, None] * 10_000.0 ** (-torch.arange(0, K, 2, dtype=WIDE) / K)
    expected = gptj.apply_rotary_pos_emb(x, angles.sin()[None], angles.cos()[None])
    assert_same(P.rotate(x.transpose(1, 2), range(T)), expected.transpose(1, 2), [x])


def test_every_sentence_may_have_positions_of_its_own():
    x, positions = draw(B, H, T, K), torch.tensor([[0, 1, 2, 3], [0, 0, 0, 1]])
    found = P.rotate(x, positions[:, None])
    for b in range(B):
        assert_close(found[b], P.rotate(x[b], positions[b]))


def test_rotate_takes_any_layout_in_memory():
    odd = draw(1 + B * H * T * K)[1:].view(B, H, T, K)
    columns = draw(B, H, K, T).mT
    sliced = draw(B, H, T, K + 3)[..., 1:-2]
    for x in (odd, columns, sliced):
        assert_close(P.rotate(x, range(T)), P.rotate(x.detach().clone().contiguous(), range(T)))


def test_gradcheck_of_rotate():
    assert torch.autograd.gradcheck(lambda x: P.rotate(x, [5, 1, 7, 2]), draw(2, T, K))


@pytest.mark.parametrize("offset", [0, 5])
def test_rotary_turns_queries_and_keys_at_their_positions(offset):
    q, k = queries_and_keys()
    rotary = P.Rotary(K, base=50.0)
    q_turned, k_turned = rotary.rotate(q, k, offset)
    for found, x in ((q_turned, q), (k_turned, k)):
        where = range(offset, offset + x.shape[-2])
        assert_same(found, over_batch_and_heads(lambda x, t=where: turned_by_loops(x, t, 50.0), x), [x])
    assert rotary.score_bias(q_turned, k_turned) is None
    assert rotary.scale(K) == pytest.approx(1 / math.sqrt(K))


def test_rotary_chunks_with_an_offset_are_the_whole():
    rotary, x = P.Rotary(K), draw(B, H, 12, K, dtype=torch.float32)
    whole = rotary.rotate(x, x)
    cuts = ((0, 5), (5, 6), (6, 12))
    chunks = [rotary.rotate(x[:, :, start:stop], x[:, :, start:stop], start) for start, stop in cuts]
    for found, expected in zip(zip(*chunks, strict=True), whole, strict=True):
        assert_close(torch.cat(found, dim=2), expected, 1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("position", [3, 1000, 60_000])
def test_low_precision_is_turned_by_precise_angles(dtype, position):
    x = draw(1, H, 1, 16, dtype=dtype, grad=False)
    exact = P.rotate(x.double(), [position])
    eps = torch.finfo(dtype).eps
    rotary = P.Rotary(16).to(dtype)
    for found in (P.rotate(x, [position]), *rotary.rotate(x, x, position)):
        assert found.dtype == dtype
        assert_close(found.double(), exact, eps)


def test_the_angles_of_float32_are_rounded_before_they_travel(monkeypatch):
    """Not every device knows float64."""
    monkeypatch.setattr(P, "turn", lambda x, table: table)
    assert P.rotate(draw(T, K, dtype=torch.float32), range(T)).dtype == torch.float32


def test_float32_stays_precise_far_out():
    x = draw(1, 1, 1, 16, dtype=torch.float32, grad=False)
    for offset in (10**5, 10**7):
        for found in (P.rotate(x, [offset]), P.Rotary(16).rotate(x, x, offset)[0]):
            assert_close(found.double(), P.rotate(x.double(), [offset]), 1e-6)


# ALiBi ---------------------------------------------------------------------------------------------


def test_slopes_of_the_paper():
    eight = [1 / 2**n for n in range(1, 9)]
    assert P.alibi_slopes(8).tolist() == eight
    assert P.alibi_slopes(1).tolist() == [2**-8]
    sixteen = [2 ** -(n / 2) for n in range(1, 17)]
    assert P.alibi_slopes(16, dtype=WIDE).tolist() == pytest.approx(sixteen, abs=1e-15)
    assert P.alibi_slopes(12, dtype=WIDE).tolist() == pytest.approx(eight + sixteen[0:8:2], abs=1e-15)


@pytest.mark.parametrize("heads", range(1, 18))
def test_slopes_are_those_of_numpy(heads):
    found = P.alibi_slopes(heads, dtype=WIDE)
    assert found.shape == (heads,) and found.unique().shape == (heads,)
    assert_close(found, torch.from_numpy(by_hand.alibi_slopes(heads)))


def test_slopes_are_those_of_bloom():
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    for heads in (3, 8, 14):
        # Bloom leaves out the query's own position, which a softmax does not see: key j has m_h · j.
        alibi = bloom.build_alibi_tensor(torch.ones(1, 5), heads, torch.float32).view(heads, 5)
        assert_close(alibi[:, 1], P.alibi_slopes(heads), 1e-6)


@pytest.mark.parametrize("heads", [H, 8, 12])  # of 12, some slopes are no powers of two
def test_alibi_charges_for_distance(heads):
    q, k = draw(B, heads, T, K), draw(B, heads, S, K)
    bias = P.Alibi(heads).score_bias(q, k)
    assert bias.shape == (1, heads, T, S)
    for h, slope in enumerate(by_hand.alibi_slopes(heads)):
        for i in range(T):
            for j in range(S):
                assert bias[0, h, i, j].item() == pytest.approx(-slope * abs(i + S - T - j), abs=1e-12)
    assert_close(bias[0], torch.from_numpy(by_hand.alibi_bias(heads, T, S)))


def test_alibi_is_the_same_to_both_sides():
    q = draw(B, H, S, K)
    bias = P.Alibi(H).score_bias(q, q)
    assert torch.equal(bias, bias.mT)
    assert torch.equal(bias.diagonal(dim1=-2, dim2=-1), torch.zeros(1, H, S, dtype=WIDE))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_alibi_counts_in_float32_and_answers_in_the_dtype_of_the_queries(dtype):
    q, k = torch.zeros(1, 12, 1, 2, dtype=dtype), torch.zeros(1, 12, 1001, 2, dtype=dtype)
    bias = P.Alibi(12).score_bias(q, k)
    assert bias.dtype == dtype
    exact = -P.alibi_slopes(12, dtype=WIDE)[:, None] * torch.arange(1000, -1, -1)
    half_a_step = torch.finfo(dtype).eps / 2
    torch.testing.assert_close(
        bias[0, :, 0].double(), exact, rtol=half_a_step * (1.01 if dtype == torch.bfloat16 else 4), atol=0
    )


# Relative positions --------------------------------------------------------------------------------


def shaw_scores(q, k, key_table):
    """q_i · (k_j + a_ij) / √d_k, pair by pair, for q (T, K) and k (S, K)."""
    m, shift = len(key_table) // 2, len(k) - len(q)
    rows = []
    for i in range(len(q)):
        keys = [k[j] + key_table[max(-m, min(m, j - (i + shift))) + m] for j in range(len(k))]
        rows.append(torch.stack([q[i] @ key / math.sqrt(q.shape[-1]) for key in keys]))
    return torch.stack(rows)


def shaw_output(q, k, v, key_table, value_table, mask):
    """Σ_j A_ij (v_j + b_ij) for one head; a query that may see nothing answers with zeros."""
    scores, m, shift = shaw_scores(q, k, key_table), len(key_table) // 2, len(k) - len(q)
    rows = []
    for i in range(len(q)):
        seen = [j for j in range(len(k)) if mask[i, j]]
        row = torch.zeros_like(v[0])
        if seen:
            weights = torch.stack([scores[i, j] for j in seen]).softmax(0)
            for weight, j in zip(weights, seen, strict=True):
                row = row + weight * (v[j] + value_table[max(-m, min(m, j - (i + shift))) + m])
        rows.append(row)
    return torch.stack(rows)


@pytest.mark.parametrize("max_distance", [1, M, 20])
def test_relative_positions_are_the_loop(max_distance):
    q, k = queries_and_keys()
    module = P.RelativePositions(K, max_distance).double()
    nn.init.normal_(module.key_table)
    found = q @ k.mT * module.scale(K) + module.score_bias(q, k)
    expected = over_batch_and_heads(lambda q, k: shaw_scores(q, k, module.key_table), q, k)
    assert_same(found, expected, [q, k, module.key_table])
    assert [*module.state_dict()] == ["key_table"]
    assert module.key_table.shape == (2 * max_distance + 1, K)


def test_a_row_of_the_key_table_is_j_minus_i():
    """Direction: the last row is for keys to the right, the first for keys to the left."""
    q, k = torch.ones(1, 1, 5, 1), torch.ones(1, 1, 5, 1)
    module = P.RelativePositions(1, 2)
    module.key_table.data = torch.arange(5.0)[:, None]
    assert module.score_bias(q, k)[0, 0, 2].tolist() == [0, 1, 2, 3, 4]
    assert module.score_bias(q, k)[0, 0, 4].tolist() == [0, 0, 0, 1, 2]


def ragged_mask():
    """Ragged, with one row that may see nothing and one that may see a single key."""
    mask = torch.rand(B, 1, T, S, generator=torch.Generator().manual_seed(5)) > 0.4
    mask[0, 0, 2] = False
    mask[1, 0, 1] = False
    mask[1, 0, 1, 3] = True
    return mask


@pytest.mark.parametrize("masked", [False, True])
def test_relative_attention_in_full_is_the_loop(masked):
    (q, k), v = queries_and_keys(), draw(B, H, S, V, seed=3)
    tables = draw(2 * M + 1, K, seed=4), draw(2 * M + 1, V, seed=5)
    mask = ragged_mask() if masked else None
    seen = torch.ones(B, H, T, S, dtype=torch.bool) if mask is None else mask.expand(B, H, T, S)
    found, weights = P.relative_attention(q, k, v, *tables, mask)
    expected = over_batch_and_heads(lambda q, k, v, mask: shaw_output(q, k, v, *tables, mask), q, k, v, seen)
    assert_same(found, expected, [q, k, v, *tables])
    assert_close(weights.sum(-1), seen.any(-1).double())
    alone = P.relative_attention(q[0, 1], k[0, 1], v[0, 1], *tables, None if mask is None else mask[0, 0])
    assert_close(alone[0], found[0, 1])
    arrays = (a.detach().numpy() for a in (q, k, v, *tables))
    by_numpy = by_hand.relative_attention(*arrays, None if mask is None else mask.numpy())
    assert_close(found.detach(), torch.from_numpy(by_numpy))


def test_relative_attention_without_anything_learned_is_plain_attention():
    (q, k), v = queries_and_keys(), draw(B, H, S, V, seed=3)
    zeros = torch.zeros(2 * M + 1, K, dtype=WIDE), torch.zeros(2 * M + 1, V, dtype=WIDE)
    for found, expected in zip(P.relative_attention(q, k, v, *zeros), explicit(q, k, v), strict=True):
        assert_close(found, expected)


def test_gradcheck_of_the_learned_kinds():
    q, k, v = draw(1, 2, 2, 4, seed=1), draw(1, 2, 3, 4, seed=2), draw(1, 2, 3, 3, seed=3)
    tables = draw(3, 4, seed=4), draw(3, 3, seed=5)
    assert torch.autograd.gradcheck(lambda *a: P.relative_attention(*a)[0], (q, k, v, *tables))
    tables = draw(2, 4, 4, seed=4), draw(4, 4, seed=5)
    assert torch.autograd.gradcheck(lambda *a: P.disentangled_scores(*a, 2), (q, k, *tables))
    learned = P.LearnedPositions(5, 4).double()
    assert torch.autograd.gradcheck(lambda x, _: learned(x, 2), (draw(2, 3, 4), learned.table))


class LargestTensor(TorchDispatchMode):
    """Remembers how many numbers the largest tensor made inside has in memory of its own."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


def test_no_kind_builds_a_vector_for_every_pair():
    tokens, width = 40, 16
    q, k, v = (draw(1, 1, tokens, width, seed=seed) for seed in range(3))
    for module in kinds(heads=1, head_width=width):
        module = module.double()
        with LargestTensor() as largest:
            bias = module.score_bias(*module.rotate(q, k))
            if bias is not None and bias.requires_grad:
                bias.sum().backward()
        assert 0 < largest.numbers <= tokens * tokens
    tables = draw(7, width), draw(7, width)
    with LargestTensor() as largest:
        P.relative_attention(q, k, v, *tables)[0].sum().backward()
    assert largest.numbers <= tokens * tokens


# Disentangled --------------------------------------------------------------------------------------


def delta(i, j, k):
    """The paper's three cases."""
    if i - j <= -k:
        return 0
    return 2 * k - 1 if i - j >= k else i - j + k


def deberta_scores(q, k, q_table, k_table, m):
    """Content–content, content–position, position–content, pair by pair, for one head."""
    shift, rows = len(k) - len(q), []
    for i in range(len(q)):
        terms = [
            q[i] @ k[j] + q[i] @ k_table[delta(i + shift, j, m)] + k[j] @ q_table[delta(j, i + shift, m)]
            for j in range(len(k))
        ]
        rows.append(torch.stack(terms) / math.sqrt(3 * q.shape[-1]))
    return torch.stack(rows)


@pytest.mark.parametrize("max_distance", [1, M, 20])
def test_disentangled_scores_are_the_loop(max_distance):
    q, k = queries_and_keys()
    q_table, k_table = draw(2 * max_distance, K, seed=4), draw(2 * max_distance, K, seed=5)
    found = P.disentangled_scores(q, k, q_table, k_table, max_distance)
    expected = over_batch_and_heads(lambda q, k: deberta_scores(q, k, q_table, k_table, max_distance), q, k)
    assert_same(found, expected, [q, k, q_table, k_table])
    by_numpy = by_hand.disentangled_scores(*(a.detach().numpy() for a in (q, k, q_table, k_table)))
    assert_close(found.detach(), torch.from_numpy(by_numpy))


def test_every_head_may_have_tables_of_its_own():
    q, k = queries_and_keys()
    q_table, k_table = draw(H, 2 * M, K, seed=4), draw(H, 2 * M, K, seed=5)
    found = P.disentangled_scores(q, k, q_table, k_table, M)
    expected = torch.stack(
        [P.disentangled_scores(q[:, h], k[:, h], q_table[h], k_table[h], M) for h in range(H)], dim=1
    )
    assert_same(found, expected, [q, k, q_table, k_table])


def test_disentangled_splits_its_projected_table_into_heads():
    q, k = queries_and_keys()
    module = kinds()[3].double()
    found = q @ k.mT * module.scale(K) + module.score_bias(q, k)
    tables = module.distance_table @ module.w_q.weight.mT, module.distance_table @ module.w_k.weight.mT
    heads = []
    for h in range(H):
        q_table, k_table = (table[:, h * K : (h + 1) * K] for table in tables)
        heads.append(torch.stack([deberta_scores(q[b, h], k[b, h], q_table, k_table, M) for b in range(B)]))
    assert_same(found, torch.stack(heads, dim=1), [q, k, *module.parameters()])
    assert sorted(module.state_dict()) == ["distance_table", "w_k.weight", "w_q.weight"]
    assert module.distance_table.shape == (2 * M, D)
    assert module.scale(K) == pytest.approx(1 / math.sqrt(3 * K))


def test_disentangled_scores_are_those_of_hugging_face():
    """Their code reads qʳ at δ(i, j), the paper at δ(j, i) = 2m − δ(i, j): the rows in reverse order."""
    deberta = pytest.importorskip("transformers.models.deberta.modeling_deberta")
    config = deberta.DebertaConfig(
        hidden_size=D, num_attention_heads=H, relative_attention=True, max_relative_positions=S,
        pos_att_type=["c2p", "p2c"], hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = deberta.DisentangledSelfAttention(config).double()
    table, x = draw(2 * S, D, seed=4, grad=False), draw(B, S, D, seed=5, grad=False)
    ones = torch.ones(B, 1, S, S)
    rows = deberta.build_relative_position(x, x)
    expected = theirs(x, ones, output_attentions=True, relative_pos=rows, rel_embeddings=table)[1]

    q, k, _ = theirs.transpose_for_scores(theirs.in_proj(x)).chunk(3, dim=-1)
    q_table, k_table = (
        projection(table).unflatten(-1, (H, K)).transpose(0, 1) for projection in (theirs.pos_q_proj, theirs.pos_proj)
    )
    q_table = torch.cat([q_table[:, :1], q_table[:, 1:].flip(1)], dim=1)
    assert_close(P.disentangled_scores(q, k, q_table, k_table, S).softmax(-1), expected, 1e-6)


def test_learned_tables_start_small():
    torch.manual_seed(0)
    for table in (P.RelativePositions(60, 20).key_table, P.Disentangled(3, 30, 20).distance_table):
        assert table.std().item() == pytest.approx(0.02, rel=0.1)


# Inside multi-head attention -----------------------------------------------------------------------


def test_the_base_class_changes_nothing():
    q, k = queries_and_keys()
    nothing = P.ScorePositions()
    assert nothing.rotate(q, k, 5)[0] is q and nothing.rotate(q, k, 5)[1] is k
    assert nothing.score_bias(q, k) is None
    x = draw(B, S, D, dtype=torch.float32)
    torch.manual_seed(1)
    plain, plugged = MultiHeadAttention(D, H), MultiHeadAttention(D, H, positions=nothing)
    plugged.load_state_dict(plain.state_dict())
    assert_close(plugged(x), plain(x), 1e-6)


def layer(kind, dtype=WIDE):
    torch.manual_seed(2)
    module = MultiHeadAttention(D, H, positions=kinds()[kind] if kind is not None else None)
    nn.init.normal_(module.w_qkv.bias)
    return module.to(dtype)


def loop_scores(positions, q, k, h):
    """The scores of one head (S, S) from the loops above."""
    if isinstance(positions, P.Rotary):
        q, k = (turned_by_loops(x, range(S), 50.0) for x in (q, k))
    if isinstance(positions, P.RelativePositions):
        return shaw_scores(q, k, positions.key_table)
    if isinstance(positions, P.Disentangled):
        tables = (w(positions.distance_table)[:, h * K : (h + 1) * K] for w in (positions.w_q, positions.w_k))
        return deberta_scores(q, k, *tables, M)
    scores = torch.stack([torch.stack([q[i] @ k[j] for j in range(S)]) for i in range(S)]) / math.sqrt(K)
    if isinstance(positions, P.Alibi):
        cost = torch.tensor([[abs(i - j) for j in range(S)] for i in range(S)], dtype=WIDE)
        scores = scores - by_hand.alibi_slopes(H)[h] * cost
    return scores


def layer_by_loops(module, x, causal):
    future = torch.ones(S, S, dtype=torch.bool).triu(1)
    sentences = []
    for b in range(B):
        q, k, v = (x[b] @ module.w_qkv.weight.mT + module.w_qkv.bias).split(D, dim=-1)
        heads = []
        for h in range(H):
            columns = slice(h * K, (h + 1) * K)
            scores = loop_scores(module.positions, q[:, columns], k[:, columns], h)
            scores = scores.masked_fill(future, -torch.inf) if causal else scores
            heads.append(scores.softmax(-1) @ v[:, columns])
        sentences.append(torch.cat(heads, dim=-1) @ module.w_o.weight.mT + module.w_o.bias)
    return torch.stack(sentences)


@every_kind
@pytest.mark.parametrize("causal", [False, True])
def test_a_layer_with_positions_is_the_loop(kind, causal):
    module, x = layer(kind), draw(B, S, D, seed=7)
    expected = layer_by_loops(module, x, causal)
    assert_same(module(x, causal=causal), expected, [x, *module.parameters()])
    assert_same(module(x, causal=causal, need_weights=True)[0], expected, [x, *module.parameters()])


@every_kind
@pytest.mark.parametrize("cuts", [(0, 1, 2, 3, 7), (0, 4, 7), (0, 6, 7)])
def test_chunks_after_a_cache_are_the_whole(kind, cuts):
    module, x = layer(kind), draw(B, S, D, seed=7)
    past, chunks = None, []
    for start, stop in itertools.pairwise(cuts):
        q, new = module.project(x[:, start:stop], offset=start)
        past = new if past is None else past.extend(new)
        chunks.append(module.attend(q, past, causal=True))
    assert_same(torch.cat(chunks, dim=1), module(x, causal=True), [x, *module.parameters()])


def is_equivariant(module, x, order):
    return torch.allclose(module(x[:, order]), module(x)[:, order], atol=1e-9)


@pytest.mark.parametrize("kind", [None, 0, 1, 2, 3], ids=["none", "rotary", "alibi", "relative", "disentangled"])
def test_shuffling_is_seen_once_there_are_positions(kind):
    x, order = draw(B, S, D, seed=8, grad=False), torch.tensor([3, 1, 0, 2, 6, 5, 4])
    assert is_equivariant(layer(kind), x, order) == (kind is None)


@pytest.mark.parametrize("which", [0, 1], ids=["sinusoidal", "learned"])
def test_shuffling_is_seen_once_positions_are_added(which):
    x, order = draw(B, S, D, seed=8, grad=False), torch.tensor([3, 1, 0, 2, 6, 5, 4])
    module, positions = layer(None), added()[which].double()
    assert is_equivariant(module, x, order)
    assert not is_equivariant(nn.Sequential(positions, module), x, order)


@every_kind
def test_far_away_the_same_sentence_gives_the_same_scores(kind):
    """Only distances count: behind 50 tokens that it may not see, a sentence fares as at the beginning."""
    module, x = layer(kind), draw(B, S, D, seed=7)
    long = torch.cat([draw(B, 50, D, seed=9), x], dim=1)
    mask = torch.zeros(50 + S, 50 + S, dtype=torch.bool)
    mask[50:, 50:] = True
    assert_close(module(long, mask=mask)[:, 50:], module(x))


@every_kind
def test_a_query_without_keys_gets_zeros_and_finite_gradients(kind):
    module, x = layer(kind), draw(B, S, D, seed=7)
    mask = torch.ones(B, S, S, dtype=torch.bool)
    mask[1, 3] = False
    out, weights = module(x, mask=mask, need_weights=True)
    assert weights[1, :, 3].abs().max() == 0
    assert_close(out[1, 3], module.w_o.bias)
    out.sum().backward()
    assert all(p.grad.isfinite().all() for p in (x, *module.parameters()))


@every_kind
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_lower_precision_stays_close(kind, dtype, tolerance):
    exact, x = layer(kind), draw(B, S, D, seed=7, grad=False)
    found = layer(kind, dtype)(x.to(dtype), causal=True)
    assert found.dtype == dtype
    assert_close(found.double(), exact(x, causal=True), tolerance)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = layer(kind, torch.float32)(x.float(), causal=True)
    assert_close(mixed.double(), exact(x, causal=True), 0.02)


class OneDevice(TorchDispatchMode):
    """As strict as CUDA: no operation but a copy takes tensors of two devices ("meta" forgives some)."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.dim()]
        assert func is torch.ops.aten._to_copy.default or len({x.device for x in tensors}) <= 1, func
        return func(*args, **(kwargs or {}))


@every_kind
def test_positions_follow_the_device_of_the_tokens(kind):
    q, k = queries_and_keys(torch.float32)
    module = kinds()[kind]
    module.score_bias(*module.rotate(q, k))
    module, x = module.to("meta"), torch.empty(B, S, D, device="meta", dtype=WIDE)
    q, k, whole = q.to("meta"), k.to("meta"), layer(kind).to("meta")
    with OneDevice():
        q, k = module.rotate(q, k, 3)
        bias = module.score_bias(q, k)
        out = whole(x, causal=True)
    assert q.device.type == k.device.type == out.device.type == "meta"
    assert bias is None or bias.device.type == "meta"


def test_functions_follow_the_device_of_the_tokens():
    modules = added()
    x, q, k, odd_table, even_table = (
        torch.empty(*sizes, device="meta") for sizes in ((B, T, D), (B, H, T, K), (B, H, S, K), (7, K), (6, K))
    )
    for module in modules:
        module(torch.zeros(B, T, D))
        module.to("meta")
    with OneDevice():
        outs = [module(x) for module in modules]
        outs.append(P.rotate(q, range(T)))
        outs.append(P.relative_attention(q, k, k, odd_table, odd_table)[0])
        outs.append(P.disentangled_scores(q, k, even_table, even_table, M))
    assert all(out.device.type == "meta" for out in outs)


# Bad input -----------------------------------------------------------------------------------------

Q, KEYS = torch.zeros(B, H, T, K), torch.zeros(B, H, S, K)
TABLE = torch.zeros(2 * M, K)
X, TOKENS = torch.zeros(B, T, D), torch.zeros(B, T, dtype=torch.long)
sinusoidal, learned, relative = P.SinusoidalPositions(D), P.LearnedPositions(9, D), P.RelativePositions(K, 2)

shaw, deberta = P.relative_attention, P.disentangled_scores

BAD = {
    "width 0": (lambda: P.sinusoidal(3, 0), "got width 0"),
    "base 0": (lambda: P.SinusoidalPositions(4, base=0), "got width 4, base 0"),
    "length −1": (lambda: P.sinusoidal(-1, 4), "0 or more; got -1"),
    "token numbers": (lambda: sinusoidal(TOKENS), "int64.*embedding"),
    "one axis": (lambda: sinusoidal(torch.zeros(D)), r"got shape \(18,\)"),
    "x too wide": (lambda: sinusoidal(torch.zeros(B, T, D + 1)), "d_model = 18"),
    "offset −1": (lambda: sinusoidal(X, -1), "0 or more; got -1"),
    "learned: too wide": (lambda: learned(torch.zeros(B, T, D + 1)), "d_model = 18"),
    "learned: offset −1": (lambda: learned(X, -1), "0 or more; got -1"),
    "learned: tokens": (lambda: learned(TOKENS), "int64.*embedding"),
    "learned: no rows": (lambda: P.LearnedPositions(0, D), "max_length should be 1 or more; got 0"),
    "learned: no columns": (lambda: P.LearnedPositions(9, 0), "d_model should be 1 or more; got 0"),
    "odd head": (lambda: P.Rotary(5), "even; got 5"),
    "no head": (lambda: P.Rotary(0), "even; got 0"),
    "odd x": (lambda: P.rotate(torch.zeros(T, 5), range(T)), "even; got 5"),
    "too few positions": (lambda: P.rotate(torch.zeros(T, K), range(3)), r"positions \(3,\)"),
    "positions without axis": (lambda: P.rotate(torch.zeros(T, K), torch.tensor(3)), r"positions \(\)"),
    "a vector to rotate": (lambda: P.rotate(torch.zeros(K), [3]), r"got x \(6,\)"),
    "rotary: before the split": (lambda: P.Rotary(K).rotate(X, KEYS), "q should have 4 axes"),
    "rotary: wide q": (lambda: P.Rotary(4).rotate(Q, KEYS), "axis of q .* head width = 4"),
    "rotary: wide k": (lambda: P.Rotary(K).rotate(Q, KEYS[..., :4]), "axis of k .* head width = 6"),
    "rotary: offset": (lambda: P.Rotary(K).rotate(Q, KEYS, -1), "0 or more; got -1"),
    "alibi: no heads": (lambda: P.Alibi(0), "heads should be 1 or more; got 0"),
    "slopes: no heads": (lambda: P.alibi_slopes(0), "heads should be 1 or more; got 0"),
    "alibi: heads": (lambda: P.Alibi(4).score_bias(Q, KEYS), r"have 4 heads; got q \(2, 3, 4, 6\)"),
    "more queries than keys": (lambda: P.Alibi(H).score_bias(KEYS, Q), "got 7 queries, 4 keys"),
    "relative: no distance": (lambda: P.RelativePositions(K, 0), "max_distance should be 1 or more; got 0"),
    "relative: no width": (lambda: P.RelativePositions(0, 2), "head_width should be 1 or more; got 0"),
    "relative: width": (lambda: P.RelativePositions(4, 2).score_bias(Q, KEYS), "head width = 4"),
    "relative: rank of k": (lambda: relative.score_bias(Q, KEYS[0]), "k should have 4"),
    "even key table": (lambda: shaw(Q, KEYS, KEYS, TABLE, TABLE), r"key_table .* \(7, 6\)"),
    "flat key table": (lambda: shaw(Q, KEYS, KEYS, TABLE[0], TABLE), r"key_table .* got shape \(6,\)"),
    "value table": (
        lambda: shaw(Q, KEYS, KEYS, TABLE[1:], TABLE[3:]),
        r"value_table .*5, 6.* got shape .3, 6",
    ),
    "shaw: one axis": (lambda: shaw(Q[0, 0, 0], KEYS, KEYS, TABLE[1:], TABLE[1:]), "at least two axes"),
    "values missing": (lambda: shaw(Q, KEYS, Q, TABLE[1:], TABLE[1:]), "key needs its value"),
    "wide keys": (lambda: deberta(Q, KEYS[..., :4], TABLE, TABLE, M), "same width"),
    "q table": (lambda: deberta(Q, KEYS, TABLE[1:], TABLE, M), r"q_position_table .* \(6, 6\)"),
    "k table": (lambda: deberta(Q, KEYS, TABLE, TABLE[:, 1:], M), r"k_position_table .* \(6, 6\)"),
    "distance 0": (lambda: deberta(Q, KEYS, TABLE, TABLE, 0), "max_distance should be 1 or more; got 0"),
    "disentangled: sizes": (lambda: P.Disentangled(H, K, 0), "max_distance should be 1 or more"),
    "disentangled: no heads": (lambda: P.Disentangled(0, K, M), "heads should be 1 or more"),
    "disentangled: no width": (lambda: P.Disentangled(H, 0, M), "head_width should be 1 or more"),
    "disentangled: heads": (lambda: P.Disentangled(2, K, M).score_bias(Q, KEYS), r"2 heads; got q \(2, 3, 4, 6\)"),
    "disentangled: width": (lambda: P.Disentangled(H, 4, M).score_bias(Q, KEYS), "head width = 4"),
}


@pytest.mark.parametrize("call, message", BAD.values(), ids=BAD.keys())
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_mask_of_numbers_is_refused():
    with pytest.raises(TypeError, match="True where a query may attend"):
        P.relative_attention(Q, KEYS, KEYS, TABLE[1:], TABLE[1:], torch.ones(T, S))
