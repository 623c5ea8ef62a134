"""Recurrent cells, the loop over time, both directions, word windows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from course_lib import rnn

KINDS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
CELLS = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}
B, T, E, D = 4, 6, 3, 5
LENGTHS = torch.tensor([4, 6, 1, 3])


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def cell_of(kind, d_input=E, d_hidden=D, seed=1):
    torch.manual_seed(seed)
    return rnn.make_cell(kind, d_input, d_hidden).double()


def parts(state):
    return tuple(state) if isinstance(state, tuple) else (state,)


def theirs_of(cell, module, suffix):
    """torch's module with the parameters of our cell."""
    with torch.no_grad():
        for name, value in cell.named_parameters():
            getattr(module, f"{name}{suffix}").copy_(value)
    return module


def assert_close(ours, theirs, tolerance=1e-12):
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def real_positions(lengths=LENGTHS, length=T):
    return torch.arange(length) < lengths[:, None]


# --- One step -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_equals_torchs_cell_in_value_and_gradient(kind):
    ours, theirs = cell_of(kind), CELLS[kind](E, D).double()
    theirs.load_state_dict(ours.state_dict())  # the same names, the same layout
    results = []
    for cell in (ours, theirs):
        x = draw(B, E).requires_grad_()
        before = [draw(B, D, seed=seed).requires_grad_() for seed in range(2, 2 + ours.parts)]
        after = cell(x, rnn.LSTMState(*before) if kind == "lstm" else before[0])
        weighted = sum((draw(B, D, seed=9 + i) * part).sum() for i, part in enumerate(parts(after)))
        gradients = torch.autograd.grad(weighted, [x, *before, *cell.parameters()])
        results.append([*parts(after), *gradients])
    for one, other in zip(*results, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_state_a_cell_starts_from_zeros(kind):
    cell = cell_of(kind)
    zeros = cell.state(torch.zeros(B, cell.parts * D, dtype=torch.float64))
    for one, other in zip(parts(cell(draw(B, E))), parts(cell(draw(B, E), zeros)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind):
    cell = cell_of(kind, 2, 3)
    x, lengths = draw(2, 3, 2).requires_grad_(), torch.tensor([3, 2])
    for reverse in (False, True):
        assert torch.autograd.gradcheck(
            lambda x, *_, reverse=reverse: rnn.run(cell, x, lengths, reverse=reverse)[0],
            (x, *cell.parameters()),
        )


@pytest.mark.parametrize("kind", KINDS)
def test_first_weights_lie_within_one_over_the_root_of_the_width(kind):
    for parameter in cell_of(kind, d_hidden=16).parameters():
        assert 0.2 < parameter.abs().max() <= 0.25


# --- The loop over time -------------------------------------------------------------------------------------


def torch_run(module, x, lengths):
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    states, last = module(packed)
    return pad_packed_sequence(states, batch_first=True)[0], last


@pytest.mark.parametrize("dtype,tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("kind", KINDS)
def test_run_equals_torch_on_padded_sentences(kind, dtype, tolerance):
    cell = cell_of(kind).to(dtype)
    module = theirs_of(cell, KINDS[kind](E, D, batch_first=True).to(dtype), "_l0")
    x, pull = draw(B, T, E, dtype=dtype), draw(B, T, D, seed=3, dtype=dtype)
    x_ours, x_theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    real = real_positions()[..., None]

    states, last = rnn.run(cell, x_ours, LENGTHS)
    states_torch, last_torch = torch_run(module, x_theirs, LENGTHS)
    assert_close(states * real, states_torch, tolerance)  # torch writes zeros on padding
    for one, other in zip(parts(last), parts(last_torch), strict=True):
        assert_close(one, other[0], tolerance)

    (states * real * pull).sum().backward()
    (states_torch * pull).sum().backward()
    assert_close(x_ours.grad, x_theirs.grad, tolerance)
    for name, parameter in cell.named_parameters():
        assert_close(parameter.grad, getattr(module, f"{name}_l0").grad, 5 * tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_bidirectional_equals_torch_on_padded_sentences(kind):
    torch.manual_seed(4)
    encoder = rnn.Bidirectional(E, D, kind).double()
    module = KINDS[kind](E, D, batch_first=True, bidirectional=True).double()
    theirs_of(encoder.right, module, "_l0")
    theirs_of(encoder.left, module, "_l0_reverse")
    x_ours, x_theirs = draw(B, T, E).requires_grad_(), draw(B, T, E).requires_grad_()

    states, last = encoder(x_ours, LENGTHS)
    states_torch, last_torch = torch_run(module, x_theirs, LENGTHS)
    real = real_positions()[..., None]
    assert states.shape == (B, T, 2 * D) == (B, T, encoder.width)
    assert_close(states * real, states_torch)
    assert_close(last, torch.cat(list(parts(last_torch)[0]), dim=-1))

    pull = draw(B, 2 * D, seed=5)
    (last * pull).sum().backward()
    (torch.cat(list(parts(last_torch)[0]), dim=-1) * pull).sum().backward()
    assert_close(x_ours.grad, x_theirs.grad)


def test_two_directions_of_128_make_256():
    encoder = rnn.Bidirectional(7, 128)
    states, last = encoder(draw(2, 3, 7, dtype=torch.float32))
    assert encoder.width == 256 and states.shape == (2, 3, 256) and last.shape == (2, 256)


@given(
    kind=st.sampled_from(list(KINDS)),
    lengths=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    extra=st.integers(0, 3),
    reverse=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_a_sentence_alone_equals_the_sentence_in_a_padded_batch(kind, lengths, extra, reverse, seed):
    cell, longest = cell_of(kind), max(lengths) + extra
    x = draw(len(lengths), longest, E, seed=seed)
    states, last = rnn.run(cell, x, torch.tensor(lengths), reverse=reverse)
    for row, length in enumerate(lengths):
        alone, last_alone = rnn.run(cell, x[row : row + 1, :length], reverse=reverse)
        assert_close(states[row, :length], alone[0])
        for one, other in zip(parts(last), parts(last_alone), strict=True):
            assert_close(one[row], other[0])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_on_padding_changes_nothing_and_gets_no_gradient(kind, reverse):
    cell, real = cell_of(kind), real_positions()
    x = draw(B, T, E).requires_grad_()
    other = torch.where(real[..., None], x.detach(), 100.0)
    states, last = rnn.run(cell, x, LENGTHS, reverse=reverse)
    states_other, last_other = rnn.run(cell, other, LENGTHS, reverse=reverse)
    assert torch.equal(states, states_other)
    assert all(torch.equal(a, b) for a, b in zip(parts(last), parts(last_other), strict=True))
    (gradient,) = torch.autograd.grad(states.sum() + sum(part.sum() for part in parts(last)), x)
    assert (gradient[~real] == 0).all() and (gradient[real] != 0).all()


def test_on_padding_the_state_stays_what_it_was():
    cell, real = cell_of("gru"), real_positions()
    states, last = rnn.run(cell, draw(B, T, E), LENGTHS)
    for row, length in enumerate(LENGTHS):
        assert torch.equal(last[row], states[row, length - 1])
        assert (states[row, length:] == last[row]).all()
    backward, last = rnn.run(cell, draw(B, T, E), LENGTHS, reverse=True)
    assert torch.equal(last, backward[:, 0])
    assert (backward[~real] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_reading_in_two_parts_equals_reading_at_once(kind):
    cell, x = cell_of(kind), draw(B, T, E)
    states, last = rnn.run(cell, x)
    first, middle = rnn.run(cell, x[:, :2])
    second, last_again = rnn.run(cell, x[:, 2:], state=middle)
    assert_close(torch.cat([first, second], dim=1), states)
    for one, other in zip(parts(last), parts(last_again), strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_left_to_right_cannot_see_the_future_and_bidirectional_can(kind):
    torch.manual_seed(6)
    x, changed = draw(B, T, E), draw(B, T, E)
    changed[:, 3] += 1
    one_way, two_way = rnn.LeftToRight(E, D, kind).double(), rnn.Bidirectional(E, D, kind).double()
    before, after = one_way(x)[0], one_way(changed)[0]
    assert torch.equal(before[:, :3], after[:, :3]) and not torch.equal(before[:, 3:], after[:, 3:])
    before, after = two_way(x)[0], two_way(changed)[0]
    assert (before[:, 0] != after[:, 0]).any(dim=-1).all()


def test_left_to_right_is_one_run_and_shows_its_last_hidden_state():
    torch.manual_seed(7)
    encoder = rnn.LeftToRight(E, D, "lstm").double()
    states, last = encoder(draw(B, T, E), LENGTHS)
    states_run, last_run = rnn.run(encoder.cell, draw(B, T, E), LENGTHS)
    assert torch.equal(states, states_run) and torch.equal(last, last_run.h) and encoder.width == D


def test_inputs_stay_as_they_were():
    x, lengths = draw(B, T, E), LENGTHS.clone()
    rnn.Bidirectional(E, D).double()(x, lengths)
    rnn.WindowEncoder(E, D).double()(x, lengths)
    assert torch.equal(x, draw(B, T, E)) and torch.equal(lengths, LENGTHS)


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_autocast_stays_near_float32(kind):
    torch.manual_seed(8)
    encoder = rnn.Bidirectional(E, D, kind)
    x = draw(B, T, E, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        states, last = encoder(x, LENGTHS)
    (states.float().sum() + last.float().sum()).backward()
    torch.testing.assert_close(states.float(), encoder(x, LENGTHS)[0], rtol=0, atol=0.03)
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_made_where_the_input_lives_and_no_value_is_read(kind):
    # Tensors on "meta" hold no values: reading one raises, and so does mixing them with CPU tensors.
    x, lengths = torch.empty(B, T, E, device="meta"), torch.empty(B, dtype=torch.long, device="meta")
    states, last = rnn.Bidirectional(E, D, kind).to("meta")(x, lengths)
    assert states.shape == (B, T, 2 * D) and last.device.type == "meta"
    assert rnn.WindowEncoder(E, D).to("meta")(x, lengths).shape == (B, T, D)


# --- Word windows -------------------------------------------------------------------------------------------


def test_windows_hold_each_word_and_its_neighbours_in_order():
    x = torch.tensor([[[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]])
    rows = [[0, 0, 1, 10, 2, 20], [1, 10, 2, 20, 3, 30], [2, 20, 3, 30, 0, 0]]
    assert rnn.windows(x, 3).tolist() == [rows]


def test_window_encoder_equals_convolutions():
    torch.manual_seed(9)
    encoder = rnn.WindowEncoder(E, D, window=5, layers=2).double()
    x_ours, x_theirs = draw(B, T, E).requires_grad_(), draw(B, T, E).requires_grad_()
    y = x_theirs.mT
    for layer, width in zip(encoder.layers, (E, D), strict=True):
        kernel = layer.weight.view(D, 5, width).permute(0, 2, 1)
        y = torch.relu(nn.functional.conv1d(y, kernel, layer.bias, padding=2))
    ours = encoder(x_ours)
    assert_close(ours, y.mT)
    ours.square().sum().backward()
    y.square().sum().backward()
    assert_close(x_ours.grad, x_theirs.grad)


def test_window_encoder_on_padded_sentences_equals_each_sentence_alone():
    torch.manual_seed(10)
    encoder = rnn.WindowEncoder(E, D, window=3, layers=3).double()
    x = torch.where(real_positions()[..., None], draw(B, T, E), 100.0)
    states = encoder(x, LENGTHS)
    for row, length in enumerate(LENGTHS):
        assert_close(states[row, :length], encoder(x[row : row + 1, :length])[0])
        assert (states[row, length:] == 0).all()


def test_padding_may_hold_anything_in_a_window():
    x = torch.where(real_positions()[..., None], draw(B, T, E), float("nan"))
    assert rnn.WindowEncoder(E, D, layers=2).double()(x, LENGTHS).isfinite().all()


def seen_by(encoder, length):
    """(T, T), True where state i depends on word j: measured by gradients."""
    x = draw(1, length, E).requires_grad_()
    states = encoder(x)[0]
    rows = [torch.autograd.grad(state.sum(), x, retain_graph=True)[0][0] for state in states]
    return torch.stack([(row != 0).any(dim=-1) for row in rows])


@pytest.mark.parametrize("window,layers", [(3, 1), (3, 2), (5, 1), (5, 2)])
def test_each_layer_of_windows_sees_window_minus_one_words_more(window, layers):
    torch.manual_seed(11)
    encoder = rnn.WindowEncoder(E, 16, window, layers).double()
    place = torch.arange(11)
    near = (place[:, None] - place).abs() <= layers * (window // 2)
    assert torch.equal(seen_by(encoder, 11), near)


# --- Counts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length,window", [(2, 3), (7, 3), (8, 3), (9, 5), (10, 5), (3, 7)])
def test_interaction_distance_of_windows_is_where_first_and_last_word_meet(length, window):
    torch.manual_seed(12)
    layers = 1
    while not seen_by(rnn.WindowEncoder(E, 16, window, layers).double(), length)[:, [0, -1]].all(dim=1).any():
        layers += 1
    assert rnn.counts("window", length, window) == rnn.Counts(1, layers)


def test_counts_of_rnn_and_attention():
    assert rnn.counts("rnn", 9) == rnn.Counts(sequential_steps=9, interaction_distance=9)
    assert rnn.counts("attention", 9) == rnn.Counts(sequential_steps=1, interaction_distance=1)
    assert rnn.counts("window", 1) == rnn.Counts(1, 1)


def test_the_loop_takes_as_many_steps_as_counted():
    cell, taken = cell_of("gru"), []
    step = cell.step
    cell.step = lambda *inputs: (taken.append(1), step(*inputs))[1]
    rnn.run(cell, draw(B, T, E))
    assert len(taken) == rnn.counts("rnn", T).sequential_steps


def waits_for(kind, layer, word, length):
    """What a state is computed from: (layer, word) pairs."""
    if kind == "rnn":
        return [(layer - 1, word), *([(layer, word - 1)] if word else [])]
    near = range(length) if kind == "attention" else range(max(0, word - 1), min(length, word + 2))
    return [(layer - 1, other) for other in near]


@pytest.mark.parametrize("kind", ["rnn", "window", "attention"])
def test_minimum_steps_is_one_more_than_all_it_waits_for(kind):
    length, layers = 5, 3
    expected = torch.zeros(layers + 1, length, dtype=torch.long)
    for layer in range(1, layers + 1):
        for word in range(length):
            expected[layer, word] = 1 + max(expected[place] for place in waits_for(kind, layer, word, length))
    assert torch.equal(rnn.minimum_steps(kind, length, layers), expected)


# --- Bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x,lengths,message",
    [
        (torch.zeros(B, E), None, r"3 axes .*got shape \(4, 3\)"),
        (torch.zeros(B, T, E + 1), None, r"d_input = 3; got shape \(4, 6, 4\)"),
        (torch.zeros(B, 0, E), None, r"at least one word; got x of shape \(4, 0, 3\)"),
        (torch.zeros(B, T, E), torch.tensor([1, 2, 0, 3]), r"between 1 and T = 6; got lengths from 0 to 3"),
        (torch.zeros(B, T, E), torch.tensor([1, 2, 7, 3]), r"between 1 and T = 6; got lengths from 1 to 7"),
        (torch.zeros(B, T, E), torch.tensor([1, 2, 3]), r"shape \(4,\); got shape \(3,\)"),
        (torch.zeros(B, T, E), torch.ones(B), r"whole number.*float32"),
    ],
)
def test_bad_sequences_are_named(x, lengths, message):
    for reader in (rnn.LeftToRight(E, D), rnn.Bidirectional(E, D), rnn.WindowEncoder(E, D)):
        with pytest.raises(ValueError, match=message):
            reader(x, lengths)


def test_bad_states_are_named():
    x, gru, lstm = torch.zeros(B, E), rnn.GRUCell(E, D), rnn.LSTMCell(E, D)
    with pytest.raises(TypeError, match=r"LSTMCell is a pair LSTMState\(h, c\); got Tensor"):
        lstm(x, torch.zeros(B, D))
    with pytest.raises(TypeError, match=r"LSTMCell is a pair LSTMState\(h, c\); got tuple"):
        lstm(x, (torch.zeros(B, D), torch.zeros(B, D)))
    with pytest.raises(TypeError, match="GRUCell is one tensor h; got LSTMState"):
        gru(x, rnn.LSTMState(torch.zeros(B, D), torch.zeros(B, D)))
    with pytest.raises(ValueError, match=r"\(4, 5\); got shape \(4, 6\)"):
        gru(x, torch.zeros(B, D + 1))
    with pytest.raises(ValueError, match=r"\(4, 5\); got shape \(1, 5\)"):
        rnn.run(lstm, x[:, None], state=rnn.LSTMState(torch.zeros(B, D), torch.zeros(1, D)))
    with pytest.raises(ValueError, match=r"one word per sentence.*\(4, 1, 3\)"):
        gru(x[:, None])


@pytest.mark.parametrize(
    "call,message",
    [
        (lambda: rnn.make_cell("gated", E, D), "rnn, gru, lstm; got 'gated'"),
        (lambda: rnn.GRUCell(0, D), "d_input = 0"),
        (lambda: rnn.GRUCell(E, -1), "d_hidden = -1"),
        (lambda: rnn.GRUCell(E, D).state(torch.zeros(B, D + 1)), "d_hidden = 5"),
        (lambda: rnn.WindowEncoder(E, D, window=4), "odd number of words, 3 or more; got 4"),
        (lambda: rnn.WindowEncoder(E, D, window=1), "got 1"),
        (lambda: rnn.WindowEncoder(E, D, layers=0), "at least one layer; got 0"),
        (lambda: rnn.counts("gru", 4), "rnn, window, attention; got 'gru'"),
        (lambda: rnn.counts("rnn", 0), "got length 0"),
        (lambda: rnn.counts("window", 4, window=2), "got 2"),
        (lambda: rnn.minimum_steps("cnn", 4), "got 'cnn'"),
        (lambda: rnn.minimum_steps("rnn", 4, layers=0), "at least one layer; got 0"),
    ],
)
def test_bad_sizes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
