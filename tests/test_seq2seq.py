"""The two encoder–decoders made of RNNs: without attention, and with it."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves, tree_map

from course_lib import data, training
from course_lib.number_words import english, german
from course_lib.seq2seq import AttentionSeq2Seq, Seq2Seq, Seq2SeqConfig

PAD, BOS, EOS = 0, 1, 2
SIZES = dict(source_vocab=11, target_vocab=13, d_embed=5, d_encoder=3, d_hidden=7, d_attention=6)
SOURCE = torch.tensor([[4, 9, 10, 0, 0], [5, 6, 7, 8, 4], [10, 0, 0, 0, 0], [3, 3, 9, 5, 0]])
TARGET_IN = torch.tensor([[1, 4, 0, 0], [1, 12, 11, 5], [1, 3, 3, 0], [1, 9, 0, 0]])
B, S = SOURCE.shape
T = TARGET_IN.shape[1]
UNITS = {english(unit)[0] for unit in range(1, 10)}
MODELS = [Seq2Seq, AttentionSeq2Seq]
SWITCHES = [dict(cell=cell, bidirectional=both) for cell in ("rnn", "gru", "lstm") for both in (True, False)]

every_model = pytest.mark.parametrize("build", MODELS)
every_switch = pytest.mark.parametrize("switches", SWITCHES, ids=lambda s: f"{s['cell']}-{s['bidirectional']}")


def model_of(build, seed=0, dtype=torch.float64, **switches):
    torch.manual_seed(seed)
    return build(Seq2SeqConfig(**SIZES, **switches)).to(dtype)


def gradients(model, loss):
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(found, model.parameters(), strict=True)]


def assert_close(ours, theirs, tolerance=1e-12):
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


# --- Padding ------------------------------------------------------------------------------------------------


@every_model
@every_switch
def test_a_pair_alone_equals_the_pair_in_a_padded_batch(build, switches):
    model = model_of(build, **switches)
    logits = model(SOURCE, TARGET_IN)
    assert logits.shape == (B, T, SIZES["target_vocab"])
    real = TARGET_IN != PAD
    pull = torch.randn(logits.shape, dtype=logits.dtype, generator=torch.Generator().manual_seed(1))
    together = gradients(model, (logits * pull)[real].sum())

    one_by_one = [torch.zeros_like(gradient) for gradient in together]
    for row in range(B):
        source = SOURCE[row : row + 1][:, SOURCE[row] != PAD]
        alone = model(source, TARGET_IN[row : row + 1, real[row]])[0]
        assert_close(logits[row, real[row]], alone)
        for total, gradient in zip(one_by_one, gradients(model, (alone * pull[row, real[row]]).sum()), strict=True):
            total += gradient
    for one, other in zip(together, one_by_one, strict=True):
        assert_close(one, other, 1e-11)


@every_model
@every_switch
def test_more_padding_changes_nothing(build, switches):
    model = model_of(build, **switches)
    wider = F.pad(SOURCE, (0, 3))
    assert_close(model(SOURCE, TARGET_IN), model(wider, F.pad(TARGET_IN, (0, 2)))[:, :T])


@every_model
def test_the_vector_of_padding_is_never_looked_at(build):
    model = model_of(build)
    before = model(SOURCE, TARGET_IN)
    before.sum().backward()
    assert (model.encoder.embedding.weight.grad[PAD] == 0).all()
    with torch.no_grad():
        model.encoder.embedding.weight[PAD] = 50.0
    assert torch.equal(before, model(SOURCE, TARGET_IN))


def test_another_padding_id_is_respected():
    model, other = model_of(AttentionSeq2Seq), model_of(AttentionSeq2Seq, pad=2)
    assert torch.equal(model(SOURCE, TARGET_IN), other(SOURCE.masked_fill(SOURCE == PAD, 2), TARGET_IN))


# --- One step at a time -------------------------------------------------------------------------------------


@every_model
@every_switch
@pytest.mark.parametrize("cuts", [(1, 1, 1, 1), (2, 1, 1), (4,)])
def test_stepping_gives_the_logits_of_teacher_forcing(build, switches, cuts):
    model = model_of(build, **switches)
    expected, state, done = model(SOURCE, TARGET_IN), model.start(SOURCE), 0
    for width in cuts:
        logits, state = model.step(TARGET_IN[:, done : done + width], state)
        done += width
        assert_close(logits, expected[:, done - 1])


@every_model
@every_switch
def test_a_state_is_a_tuple_of_rows_that_can_be_reordered_and_is_never_changed(build, switches):
    model = model_of(build, **switches)
    _, state = model.step(TARGET_IN[:, :2], model.start(SOURCE))
    assert isinstance(state, tuple) and all(leaf.shape[0] == B for leaf in tree_leaves(state))
    kept = tree_map(torch.clone, state)
    rows = torch.tensor([3, 3, 0, 1, 2])
    chosen = tree_map(lambda leaf: leaf.index_select(0, rows), state)
    logits, _ = model.step(TARGET_IN[rows, 2:3], chosen)
    expected, _ = model.step(TARGET_IN[:, 2:3], state)
    assert_close(logits, expected[rows])
    assert all(torch.equal(a, b) for a, b in zip(tree_leaves(kept), tree_leaves(state), strict=True))


@every_model
def test_later_target_words_change_nothing_before_them(build):
    model, changed = model_of(build), TARGET_IN.clone()
    changed[:, 2] = 7
    before, after = model(SOURCE, TARGET_IN), model(SOURCE, changed)
    assert torch.equal(before[:, :2], after[:, :2])
    assert (before[:, 2] != after[:, 2]).any(dim=-1).all()


@every_model
def test_inputs_stay_as_they_were_and_nothing_is_random(build):
    model, source, target_in = model_of(build), SOURCE.clone(), TARGET_IN.clone()
    model.train()
    assert torch.equal(model(source, target_in), model(source, target_in))
    assert torch.equal(source, SOURCE) and torch.equal(target_in, TARGET_IN)


# --- Without attention: one vector --------------------------------------------------------------------------


def reader_outputs(model):
    """All states and the last state of the encoder, as the model used them."""
    captured = []
    handle = model.encoder.reader.register_forward_hook(lambda module, inputs, out: captured.extend(out))
    logits = model(SOURCE, TARGET_IN)
    handle.remove()
    return logits, *captured


@every_switch
def test_without_attention_everything_passes_through_the_last_state(switches):
    model = model_of(Seq2Seq, **switches)
    logits, states, last = reader_outputs(model)
    through_states, through_last = torch.autograd.grad(logits.sum(), [states, last], allow_unused=True)
    assert through_states is None and (through_last != 0).any(dim=-1).all()
    state = model.start(SOURCE)
    width = SIZES["d_hidden"] * (2 if switches["cell"] == "lstm" else 1)
    assert sum(leaf[0].numel() for leaf in tree_leaves(state)) == width


@every_switch
def test_with_attention_every_word_is_reached_directly_and_padding_is_not(switches):
    logits, states, _ = reader_outputs(model_of(AttentionSeq2Seq, **switches))
    (gradient,) = torch.autograd.grad(logits.sum(), states)
    reached = (gradient != 0).any(dim=-1)
    assert torch.equal(reached, SOURCE != PAD)


# --- With attention -----------------------------------------------------------------------------------------


@every_switch
def test_weights_sum_to_one_over_the_words_and_are_zero_on_padding(switches):
    weights = model_of(AttentionSeq2Seq, **switches).align(SOURCE, TARGET_IN)
    assert weights.shape == (B, T, S)
    assert_close(weights.sum(dim=-1), torch.ones(B, T, dtype=torch.float64))
    hidden = (SOURCE == PAD)[:, None].expand_as(weights)
    assert (weights[hidden] == 0).all() and (weights[~hidden] > 0).all()


@every_switch
def test_attention_asks_with_the_state_before_the_word_is_read(switches):
    model, changed = model_of(AttentionSeq2Seq, **switches), TARGET_IN.clone()
    changed[:, 1] = 8
    before, after = model.align(SOURCE, TARGET_IN), model.align(SOURCE, changed)
    assert torch.equal(before[:, :2], after[:, :2])  # row 1 looks before target_in[1] is read
    long = (SOURCE != PAD).sum(dim=1) > 1
    assert (before[long, 2] != after[long, 2]).any(dim=-1).all()


CELL_STEP = {"rnn": torch.rnn_tanh_cell, "gru": torch.gru_cell, "lstm": torch.lstm_cell}


def torch_step(cell, kind, x, state):
    weights = (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    if kind == "lstm":
        return torch.stack(torch.lstm_cell(x[None], tuple(state[:, None]), *weights))[:, 0]
    return CELL_STEP[kind](x[None], state, *weights)


def torch_read(cell, kind, words):
    state = words.new_zeros((2 if kind == "lstm" else 1), cell.d_hidden)
    states = []
    for x in words:
        state = torch_step(cell, kind, x, state)
        states.append(state[0])
    return states


def bahdanau(model, source, target_in):
    """One sentence, one word at a time, from the parameters alone: logits (T, C) and weights (T, S)."""
    kind, att = model.config.cell, getattr(model, "attention", None)
    words = model.encoder.embedding.weight[source]
    if model.config.bidirectional:
        right = torch_read(model.encoder.reader.right, kind, words)
        left = torch_read(model.encoder.reader.left, kind, words.flip(0))[::-1]
        h, last = torch.cat([torch.stack(right), torch.stack(left)], dim=1), torch.cat([right[-1], left[0]])
    else:
        h = torch.stack(torch_read(model.encoder.reader.cell, kind, words))
        last = h[-1]
    s = torch.tanh(model.bridge.weight @ last + model.bridge.bias).view(-1, model.config.d_hidden)
    logits, weights = [], []
    for token in target_in:
        y, c = model.embedding.weight[token], h.new_zeros(0)
        if att is not None:
            w = torch.cat([att.w_state.weight, att.w_source.weight], dim=1)
            e = [att.v.weight[0] @ torch.tanh(w @ torch.cat([s[0], h_i]) + att.w_source.bias) for h_i in h]
            a = torch.stack(e).exp() / torch.stack(e).exp().sum()
            c = sum(a_i * h_i for a_i, h_i in zip(a, h, strict=True))
            weights.append(a)
        s = torch_step(model.cell, kind, torch.cat([y, c]), s)
        logits.append(model.output.weight @ torch.cat([s[0], c]) + model.output.bias)
    return torch.stack(logits), weights


@every_model
@every_switch
def test_equals_a_plain_loop_over_words_in_value_and_gradient(build, switches):
    model = model_of(build, **switches)
    logits, real = model(SOURCE, TARGET_IN), TARGET_IN != PAD
    pull = torch.randn(logits.shape, dtype=logits.dtype, generator=torch.Generator().manual_seed(2))
    loss = 0.0
    for row in range(B):
        source = SOURCE[row][SOURCE[row] != PAD]
        expected, weights = bahdanau(model, source, TARGET_IN[row, real[row]])
        assert_close(logits[row, real[row]], expected)
        if weights:
            ours = model.align(SOURCE, TARGET_IN)[row, real[row], : len(source)]
            assert_close(ours, torch.stack(weights))
        loss = loss + (expected * pull[row, real[row]]).sum()
    ours, theirs = gradients(model, (logits * pull)[real].sum()), gradients(model, loss)
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one, other, 1e-11)
    if build is AttentionSeq2Seq:
        assert all((gradient != 0).any() for gradient in ours)


@every_model
def test_float32_stays_near_float64_and_bfloat16_near_float32(build):
    double, single = model_of(build), model_of(build, dtype=torch.float32)
    logits = single(SOURCE, TARGET_IN)
    torch.testing.assert_close(logits.double(), double(SOURCE, TARGET_IN), rtol=1e-5, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        half = single(SOURCE, TARGET_IN)
    half.float().logsumexp(dim=-1).sum().backward()
    torch.testing.assert_close(half.float(), logits, rtol=0, atol=0.05)
    assert all(p.grad.isfinite().all() for p in single.parameters())


def crossings(number):
    """Where the English ten and the German "und" stand, for every "forty five" → "fünf und vierzig"."""
    said, gesagt = english(number), german(number)
    tens = [i for i, word in enumerate(said[:-1]) if word.endswith("ty") and said[i + 1] in UNITS]
    unds = [i for i, word in enumerate(gesagt) if word == "und"]
    return list(zip(tens, unds, strict=True))


def test_the_alignment_of_units_and_tens_crosses():
    """forty five → fünf und vierzig: fünf looks at five, vierzig at forty."""
    numbers = data.number_pairs(train=4000, test=400)
    torch.manual_seed(3)
    model = AttentionSeq2Seq(Seq2SeqConfig(len(numbers.source_words), len(numbers.target_words)))
    order = torch.Generator().manual_seed(4)
    batches = data.batches(numbers.source_train, numbers.target_train, 32, generator=order, steps=100)
    training.fit(model, batches, training.TrainConfig(steps=100, lr=1e-2), progress=False)
    with torch.no_grad():
        weights = model.align(numbers.source_test, numbers.target_test[:, :-1])
    places = [(row, *pair) for row, number in enumerate(numbers.test_numbers) for pair in crossings(number)]
    row, place, und = (torch.tensor(column) for column in zip(*places, strict=True))
    looked = weights.argmax(dim=-1)
    assert len(places) > 400
    assert (looked[row, und - 1] == place + 1).float().mean() > 0.9  # the unit, before "und"
    assert (looked[row, und + 1] == place).float().mean() > 0.9  # the ten, behind it


# --- Where it runs, and bad input ---------------------------------------------------------------------------


@every_model
@every_switch
def test_everything_is_made_where_the_input_lives_and_no_value_is_read(build, switches):
    # Tensors on "meta" hold no values: reading one raises, and so does mixing them with CPU tensors.
    model = model_of(build, **switches).to("meta")
    logits = model(SOURCE.to("meta"), TARGET_IN.to("meta"))
    assert logits.device.type == "meta" and logits.shape == (B, T, SIZES["target_vocab"])


@every_model
@pytest.mark.parametrize(
    "source,target_in,error,message",
    [
        (SOURCE + 7, TARGET_IN, ValueError, "vocabulary has 11 words; got tokens from 7 to 17"),
        (SOURCE, TARGET_IN + 1, ValueError, "vocabulary has 13 words; got tokens from 1 to 13"),
        (SOURCE, TARGET_IN - 1, ValueError, "got tokens from -1 to 11"),
        (SOURCE.float(), TARGET_IN, TypeError, "whole numbers.*float32"),
        (SOURCE, TARGET_IN.float(), TypeError, "whole numbers.*float32"),
        (SOURCE[0], TARGET_IN, ValueError, r"source should have 2 axes.*got shape \(5,\)"),
        (SOURCE, TARGET_IN[0], ValueError, r"target tokens should have 2 axes.*got shape \(4,\)"),
        (SOURCE[:, :0], TARGET_IN, ValueError, r"no words; got shape \(4, 0\)"),
        (SOURCE, TARGET_IN[:, :0], ValueError, r"one word at least; got tokens \(4, 0\)"),
        (SOURCE, TARGET_IN[:3], ValueError, r"Each of 4 sources.*got tokens \(3, 4\)"),
        (SOURCE * (SOURCE != 10), TARGET_IN, ValueError, "length 0 has no last word"),
        (SOURCE.flip(1), TARGET_IN, ValueError, "row 0 of the source has a word after padding"),
        (SOURCE * (SOURCE != 6), TARGET_IN, ValueError, "row 1 of the source has a word after padding"),
    ],
)
def test_bad_input_is_named(build, source, target_in, error, message):
    model = model_of(build)
    with pytest.raises(error, match=message):
        model(source, target_in)


@every_model
def test_a_step_names_bad_tokens_too(build):
    model = model_of(build)
    with pytest.raises(ValueError, match="vocabulary has 13 words; got tokens from 13 to 13"):
        model.step(torch.full((B, 1), 13), model.start(SOURCE))
    with pytest.raises(ValueError, match=r"Each of 4 sources.*got tokens \(1, 1\)"):
        model.step(torch.full((1, 1), BOS), model.start(SOURCE))


@every_model
@pytest.mark.parametrize(
    "change,message",
    [
        (dict(cell="gated"), "rnn, gru, lstm; got 'gated'"),
        (dict(target_vocab=0), "target_vocab should be 1 or more; got 0"),
        (dict(d_attention=0), "d_attention should be 1 or more; got 0"),
    ],
)
def test_bad_sizes_are_named(build, change, message):
    with pytest.raises(ValueError, match=message):
        build(Seq2SeqConfig(**{**SIZES, **change}))


@every_model
@pytest.mark.parametrize("both", [True, False])
def test_sizes_of_the_configuration_are_the_sizes_of_the_model(build, both):
    config = Seq2SeqConfig(500, 600, d_embed=40, d_encoder=3, d_hidden=7, bidirectional=both, embedding_std=0.2)
    model = build(config)
    width = 6 if both else 3
    seen_of_source = width if build is AttentionSeq2Seq else 0
    assert model.encoder(SOURCE)[0].shape == (B, S, width)
    assert model.bridge.weight.shape == (7, width)
    assert model.cell.weight_ih.shape == (3 * 7, 40 + seen_of_source)
    assert model.output.weight.shape == (600, 7 + seen_of_source)
    for table, words in ((model.encoder.embedding, 500), (model.embedding, 600)):
        assert table.weight.shape == (words, 40)
        assert abs(table.weight.std() - 0.2) < 0.01


def test_a_configuration_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Seq2SeqConfig(**SIZES).d_hidden = 3
