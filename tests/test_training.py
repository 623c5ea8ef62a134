"""Training: the loss, the loop against one written by hand, checkpoints, accumulation, several processes."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from run_training import KILLED, PARALLEL, SOURCE_VOCAB, TARGET_VOCAB, make_batches, tiny
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib import training
from course_lib.training import (
    Run,
    TrainConfig,
    add_gradients,
    checkpointed,
    cross_entropy_sum,
    evaluate,
    fit,
    in_mode,
    load_checkpoint,
    matmul_precision,
    repeated_blocks,
    save_checkpoint,
    warmup_inverse_sqrt,
    warmup_linear,
)

ROOT = Path(__file__).parent.parent
quiet_fit = partial(fit, progress=False)


def parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Equal to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def close(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float) -> bool:
    return one.keys() == other.keys() and all(
        torch.allclose(one[name], other[name], rtol=0, atol=tolerance) for name in one
    )


# --- Schedules ----------------------------------------------------------------------------------------------


@given(st.integers(0, 60), st.integers(1, 200))
def test_linear_schedule_rises_to_one_at_the_end_of_warm_up_and_falls_to_zero_after_the_last_step(warmup, total):
    shares = [warmup_linear(step, warmup, total) for step in range(total + 2)]
    peak = max(warmup, 1)
    if peak <= total:
        assert shares[peak] == 1.0 == max(shares)
        assert shares[-1] == 0.0 < shares[total]
    rising = shares[: min(peak, total) + 1]
    assert np.allclose(np.diff(rising), 1 / peak), "equal steps up"
    falling = np.diff(shares[peak : total + 2])
    assert np.all(falling < 0) and np.allclose(falling, falling[:1] if len(falling) else 0), "equal steps down"


def test_linear_schedule_by_hand():
    assert [warmup_linear(s, 2, 5) for s in range(8)] == [0, 1 / 2, 1, 3 / 4, 1 / 2, 1 / 4, 0, 0]
    assert [warmup_linear(s, 0, 3) for s in (1, 2, 3)] == [1, 2 / 3, 1 / 3]
    assert [warmup_linear(s, 20, 3) for s in (1, 2, 3)] == [1 / 20, 2 / 20, 3 / 20], "too short to get warm"


@given(st.integers(1, 10_000), st.integers(1, 2048), st.integers(1, 5000))
def test_schedule_of_the_paper_is_its_formula(step, d_model, warmup):
    formula = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
    assert math.isclose(warmup_inverse_sqrt(step, d_model, warmup), formula, rel_tol=1e-12)


def test_schedule_of_the_paper_begins_at_zero_and_peaks_at_the_end_of_warm_up():
    assert warmup_inverse_sqrt(0, 512) == 0.0
    rates = [warmup_inverse_sqrt(step, 512, 40) for step in range(200)]
    assert max(range(200), key=rates.__getitem__) == 40
    assert math.isclose(rates[40], (512 * 40) ** -0.5)
    assert warmup_inverse_sqrt(4000, 512) == pytest.approx(6.99e-4, rel=1e-3), "4000 steps of warm-up by default"


# --- The loss -----------------------------------------------------------------------------------------------


def loss_by_hand(logits: np.ndarray, targets: np.ndarray, smoothing: float, pad: int | None) -> tuple[float, int]:
    """Token by token: the cross-entropy between the smoothed target and softmax."""
    total, count = 0.0, 0
    for row, answers in zip(logits, targets, strict=True):
        for z, answer in zip(row, answers, strict=True):
            if answer == pad:
                continue
            log_p = z - z.max() - math.log(np.exp(z - z.max()).sum())
            q = np.full(len(z), smoothing / len(z))
            q[answer] += 1 - smoothing
            total, count = total - float((q * log_p).sum()), count + 1
    return total, count


def some_logits(scale: float = 3.0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits_BTC = scale * torch.randn(3, 5, 7, generator=generator, dtype=torch.float64)
    targets_BT = torch.randint(1, 7, (3, 5), generator=generator)
    targets_BT[1, 2:] = 0
    targets_BT[2] = 0  # a row of nothing but padding
    return logits_BTC.to(dtype), targets_BT


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("pad", [0, 4, None])
@pytest.mark.parametrize("scale", [3.0, 200.0])
def test_cross_entropy_sum_is_the_formula_and_torchs(smoothing, pad, scale):
    logits_BTC, targets_BT = some_logits(scale)
    logits_BTC.requires_grad_()
    before = logits_BTC.detach().clone(), targets_BT.clone()
    total, tokens = cross_entropy_sum(logits_BTC, targets_BT, smoothing=smoothing, pad=pad)
    expected, count = loss_by_hand(logits_BTC.detach().numpy(), targets_BT.numpy(), smoothing, pad)
    assert total.item() == pytest.approx(expected, rel=1e-12) and tokens.item() == count
    theirs = F.cross_entropy(
        logits_BTC.transpose(1, 2),
        targets_BT,
        ignore_index=-100 if pad is None else pad,
        label_smoothing=smoothing,
        reduction="sum",
    )
    assert torch.allclose(total, theirs, rtol=1e-12)
    # ∂loss/∂logits = softmax - smoothed target where a token is real, 0 where it is padding
    (gradient_BTC,) = torch.autograd.grad(total, logits_BTC)
    q_BTC = (1 - smoothing) * F.one_hot(targets_BT, 7) + smoothing / 7
    real_BT1 = (targets_BT != (-100 if pad is None else pad))[..., None]
    assert torch.allclose(gradient_BTC, (logits_BTC.softmax(-1) - q_BTC) * real_BT1, atol=1e-12)
    assert torch.equal(before[0], logits_BTC) and torch.equal(before[1], targets_BT), "arguments unchanged"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_give_a_float32_loss(dtype):
    logits_BTC, targets_BT = some_logits(dtype=dtype)
    total, _ = cross_entropy_sum(logits_BTC, targets_BT, smoothing=0.1)
    wide, _ = cross_entropy_sum(logits_BTC.float(), targets_BT, smoothing=0.1)
    assert total.dtype == torch.float32 and torch.equal(total, wide)
    assert cross_entropy_sum(logits_BTC.double(), targets_BT)[0].dtype == torch.float64, "but no less than given"


def test_a_batch_of_padding_has_no_loss_and_no_tokens():
    total, tokens = cross_entropy_sum(torch.randn(2, 3, 4), torch.zeros(2, 3, dtype=torch.long))
    assert total.item() == 0 and tokens.item() == 0


def test_bad_targets_are_explained():
    logits_BTC, targets_BT = some_logits()
    with pytest.raises(ValueError, match="shifted once"):
        cross_entropy_sum(logits_BTC, targets_BT[:, :-1])
    with pytest.raises(ValueError, match=r"from 0 to 6.*another vocabulary"):
        cross_entropy_sum(logits_BTC, targets_BT + 6)
    with pytest.raises(ValueError, match="3 axes"):
        cross_entropy_sum(logits_BTC[0], targets_BT)
    with pytest.raises(ValueError, match="smoothing"):
        cross_entropy_sum(logits_BTC, targets_BT, smoothing=1.0)


def test_evaluate_is_the_loss_per_token_however_the_data_is_cut():
    model = tiny(0, torch.float64, dropout=0.5)
    whole = tuple(torch.cat(column) for column in zip(*make_batches(3), strict=True))
    with torch.no_grad():
        logits_BTC = model.eval()(*whole[:2])
    total, count = loss_by_hand(logits_BTC.numpy(), whole[2].numpy(), 0.0, 0)
    model.train()
    model.blocks[1].eval()  # a mixed mode, which must come back
    assert evaluate(model, [whole]) == pytest.approx(total / count, rel=1e-12)
    assert evaluate(model, make_batches(3)) == pytest.approx(total / count, rel=1e-12)
    uneven = [tuple(t[:2] for t in whole), tuple(t[2:] for t in whole)]
    assert evaluate(model, uneven) == pytest.approx(total / count, rel=1e-12)
    assert model.training and model.blocks[0].training and not model.blocks[1].dropout.training
    assert not gradients(model)


def test_evaluate_needs_something_to_evaluate():
    with pytest.raises(ValueError, match="no batch"):
        evaluate(tiny(0), [])
    source, target_in, target_out = make_batches(1)[0]
    with pytest.raises(ValueError, match="no real token"):
        evaluate(tiny(0), [(source, target_in, target_out * 0)])


# --- The loop -----------------------------------------------------------------------------------------------


def train_by_hand(model: nn.Module, batches: list, config: TrainConfig, rates: list[float]) -> tuple[list, list]:
    """AdamW, clipping and the mean over real tokens written out, one parameter after the other."""
    moments = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()}
    losses, norms = [], []
    for step, (batch, rate) in enumerate(zip(batches, rates, strict=True), start=1):
        *inputs, targets = batch
        logits_NC = model(*inputs).flatten(0, 1)
        loss = F.cross_entropy(logits_NC, targets.flatten(), ignore_index=0, label_smoothing=config.smoothing)
        grads = torch.autograd.grad(loss, list(moments))
        norm = math.sqrt(sum(float((g**2).sum()) for g in grads))
        with torch.no_grad():
            for (p, (m, v)), g in zip(moments.items(), grads, strict=True):
                g = g * min(1.0, config.clip / (norm + 1e-6))
                b1, b2 = config.betas
                m.mul_(b1).add_((1 - b1) * g)
                v.mul_(b2).add_((1 - b2) * g**2)
                p.mul_(1 - rate * (config.weight_decay if p.ndim > 1 else 0.0))
                p.sub_(rate * (m / (1 - b1**step)) / ((v / (1 - b2**step)).sqrt() + 1e-8))
        losses.append(loss.item())
        norms.append(norm)
    return losses, norms


@pytest.mark.parametrize("accumulate", [1, 3])
def test_fit_is_the_loop_written_by_hand(accumulate):
    """Learning rates by schedule, weight decay on matrices only, clipping, smoothing."""
    config = TrainConfig(
        steps=8,
        lr=0.02,
        warmup=3,
        weight_decay=0.3,
        clip=0.4,
        smoothing=0.1,
        accumulate=accumulate,
        log_every=3,
    )
    ours, theirs, batches = tiny(0, torch.float64), tiny(0, torch.float64), make_batches(8)
    for p in (*ours.blocks[0].norm.parameters(), *theirs.blocks[0].norm.parameters()):
        nn.init.constant_(p, 0.7)  # where decay would show
    model_before = parameters(ours)
    history = quiet_fit(ours, batches, config)
    rates = [0.02 * warmup_linear(step, 3, 8) for step in range(1, 9)]
    losses, norms = train_by_hand(theirs, batches, config, rates)
    assert close(parameters(ours), parameters(theirs), 1e-10)
    assert not close(parameters(ours), model_before, 1e-3)
    assert history.lr == rates
    assert np.allclose(history.losses, losses, atol=1e-10) and np.allclose(history.norms, norms, atol=1e-10)
    assert history.tokens == [int((batch[-1] != 0).sum()) for batch in batches]
    assert len(history.seconds) == 8 and np.all(np.diff(history.seconds) > 0)


def test_any_function_of_the_step_is_a_schedule():
    asked: list[int] = []

    def schedule(step: int) -> float:
        asked.append(step)
        return warmup_inverse_sqrt(step, 64, 2)

    history = quiet_fit(tiny(0), make_batches(4), TrainConfig(steps=4, lr=1.0), schedule=schedule)
    assert asked == [1, 2, 3, 4]
    assert history.lr == [warmup_inverse_sqrt(step, 64, 2) for step in asked]


def test_the_model_learns_and_its_mode_comes_back():
    model = tiny(0, width=16)
    model.eval()
    batch = make_batches(1)[0]
    history = quiet_fit(model, [batch] * 60, TrainConfig(steps=60, lr=0.02))
    assert history.losses[-1] < 0.3 * history.losses[0]
    assert not any(module.training for module in model.modules())


def test_dropout_is_on_while_training():
    modes = []
    model = tiny(0)
    model.blocks[0].register_forward_pre_hook(lambda module, _: modes.append(module.training))
    model.eval()
    quiet_fit(model, make_batches(2), TrainConfig(steps=2))
    assert modes == [True, True]


def test_a_language_model_that_also_returns_its_cache():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.output = nn.Embedding(9, 16), nn.Linear(16, 9)
            self.gru = nn.GRU(16, 16, batch_first=True)

        def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
            states, last = self.gru(self.embedding(tokens))
            return self.output(states), last

    torch.manual_seed(0)
    tokens = torch.randint(0, 9, (4, 7), generator=torch.Generator().manual_seed(1))
    tokens[:, 2] = 0
    batch = (tokens[:, :-1], tokens[:, 1:])
    history = quiet_fit(Reader(), [batch] * 30, TrainConfig(steps=30, lr=0.02, pad=None))
    assert history.tokens == [24] * 30, "without pad, token 0 is a token like any other"
    assert history.losses[-1] < 0.5 * history.losses[0]


def test_gradients_left_over_from_before_do_not_count():
    clean, dirty = tiny(0), tiny(0)
    for p in dirty.parameters():
        p.grad = torch.ones_like(p)
    for model in (clean, dirty):
        quiet_fit(model, make_batches(2), TrainConfig(steps=2))
    assert same(parameters(clean), parameters(dirty))


def test_parameters_that_need_no_gradient_stay():
    model = tiny(0)
    model.source.requires_grad_(False)
    before = model.source.weight.clone()
    quiet_fit(model, make_batches(3), TrainConfig(steps=3, weight_decay=0.5))
    assert torch.equal(before, model.source.weight)
    with pytest.raises(ValueError, match="nothing to train"):
        quiet_fit(tiny(0).requires_grad_(False), make_batches(1), TrainConfig(steps=1))


def test_on_step_hears_every_step_and_may_stop():
    heard: list[int] = []
    quiet_fit(tiny(0), make_batches(5), TrainConfig(steps=5), on_step=heard.append)
    assert heard == [1, 2, 3, 4, 5]
    history = quiet_fit(tiny(0), make_batches(5), TrainConfig(steps=5), on_step=lambda step: step == 3)
    assert len(history.losses) == len(history.tokens) == len(history.lr) == 3


def test_nothing_is_read_from_the_device_between_two_looks():
    """.item(), float() and bool() of a tensor all end in this operator; each would stall a GPU."""

    class Count(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            Count.calls += function is torch.ops.aten._local_scalar_dense.default
            return function(*args, **(kwargs or {}))

    with Count():
        quiet_fit(tiny(0), make_batches(12), TrainConfig(steps=12, log_every=12, accumulate=2))
        assert Count.calls == 0
        float(torch.ones(()))
        assert Count.calls == 1, "the counter counts"


def test_progress_shows_the_loss_or_nothing(capsys):
    fit(tiny(0), make_batches(3), TrainConfig(steps=3, log_every=1))
    shown = capsys.readouterr()
    assert "training" in shown.err and "3/3" in shown.err and "loss=" in shown.err and shown.out == ""
    quiet_fit(tiny(0), make_batches(3), TrainConfig(steps=3))
    assert capsys.readouterr() == ("", "")


def test_batches_may_be_endless_but_not_too_few():
    history = quiet_fit(tiny(0), iter(make_batches(7)), TrainConfig(steps=4))
    assert len(history.losses) == 4
    with pytest.raises(ValueError, match="ended after 3 of 4 steps"):
        quiet_fit(tiny(0), make_batches(3), TrainConfig(steps=4))


def test_only_as_many_batches_as_steps_are_taken():
    batches = iter(make_batches(7))
    quiet_fit(tiny(0), batches, TrainConfig(steps=4))
    assert len(list(batches)) == 3


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (torch.ones(2, 3), TypeError, "tuple of tensors"),
        ((torch.ones(2, 3), [1, 2]), TypeError, "tuple of tensors"),
        ((torch.ones(2, 3),), ValueError, "then the targets"),
        ((torch.ones(2, 3), torch.ones(4, 3)), ValueError, "same number of rows"),
        ((torch.ones(0, 3), torch.ones(0, 3)), ValueError, "at least one"),
    ],
)
def test_what_is_no_batch_is_refused(batch, error, message):
    with pytest.raises(error, match=message):
        quiet_fit(tiny(0), [batch], TrainConfig(steps=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps should be at least 1; got 0"),
        ({"accumulate": 0}, "accumulate"),
        ({"log_every": 0}, "log_every"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"lr": 0.0}, "lr should be above 0"),
        ({"clip": -1.0}, "clip"),
        ({"warmup": -1}, "warmup cannot be negative"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"smoothing": 1.0}, "smoothing"),
        ({"precision": "half"}, "precision should be one of 'float32', 'bfloat16', 'float16'; got 'half'"),
        ({"matmul": "low"}, "matmul should be one of"),
    ],
)
def test_bad_settings_are_refused_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**({"steps": 1} | options))


# --- When numbers leave the finite --------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_ends_training_with_advice(tmp_path):
    batches, model = make_batches(9), tiny(0)
    model.blocks[1].register_forward_hook(lambda m, inputs, out: out * float("nan") if len(seen) == 4 else out)
    seen: list[int] = []
    config = TrainConfig(steps=9, log_every=6, checkpoint_every=3)
    with pytest.raises(ValueError, match=r"in step 5: loss nan.*learning rate"):
        quiet_fit(model, batches, config, checkpoint=tmp_path / "run.pt", on_step=seen.append)
    kept = torch.load(tmp_path / "run.pt", weights_only=True)
    assert kept["step"] == 3, "the last good checkpoint is still there"
    assert all(torch.isfinite(value).all() for value in kept["model"].values())
    assert model.training, "and the mode is as before"


def test_a_gradient_that_is_not_finite_ends_training_too(tmp_path):
    model = tiny(0)
    model.output.bias.register_hook(lambda g: g / 0.0)
    with pytest.raises(ValueError, match=r"in step 1: loss [0-9.]+, length of the gradient (inf|nan)"):
        quiet_fit(model, make_batches(1), TrainConfig(steps=1), checkpoint=tmp_path / "run.pt")
    assert not list(tmp_path.iterdir())


def test_a_batch_of_padding_is_named():
    batches = make_batches(3)
    batches[1] = (*batches[1][:2], batches[1][2] * 0)
    with pytest.raises(ValueError, match=r"in step 2: loss nan.* 0 real tokens. The batch holds no real token"):
        quiet_fit(tiny(0), batches, TrainConfig(steps=3))


# --- Accumulation -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accumulate", [2, 3, 5, 9])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_accumulated_gradient_is_the_gradient_of_the_big_batch(accumulate, dtype, tolerance):
    batch = make_batches(1)[0]
    whole, parts = tiny(0, dtype), tiny(0, dtype)
    loss = add_gradients(whole, batch, TrainConfig(steps=1, smoothing=0.1))
    again = add_gradients(parts, batch, TrainConfig(steps=1, smoothing=0.1, accumulate=accumulate))
    assert close(gradients(whole), gradients(parts), tolerance)
    assert torch.allclose(loss, again, atol=tolerance) and not again.requires_grad


def test_the_mean_of_means_would_be_another_gradient():
    """So the test above can fail: with these batches, tokens are spread unevenly enough."""
    batch = make_batches(1)[0]
    whole, parts = tiny(0), tiny(0)
    add_gradients(whole, batch, TrainConfig(steps=1))
    for part in training.split_rows(batch, 2):
        logits_BTC = parts(*part[:2])
        (F.cross_entropy(logits_BTC.flatten(0, 1), part[2].flatten(), ignore_index=0) / 2).backward()
    assert not close(gradients(whole), gradients(parts), 1e-3)


def test_parts_go_through_the_model_one_after_the_other():
    rows: list[int] = []
    model = tiny(0)
    model.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    quiet_fit(model, make_batches(1, rows=5), TrainConfig(steps=1, accumulate=3))
    quiet_fit(model, make_batches(1, rows=2), TrainConfig(steps=1, accumulate=3))
    assert rows == [2, 2, 1, 1, 1], "never an empty part"


# --- Precision ----------------------------------------------------------------------------------------------


def test_bfloat16_is_for_the_arithmetic_alone():
    inside: list[torch.dtype] = []
    half, full, batches = tiny(0, width=16), tiny(0, width=16), make_batches(12)
    half.blocks[0].wide.register_forward_hook(lambda m, inputs, out: inside.append(out.dtype))
    ours = quiet_fit(half, batches, TrainConfig(steps=12, precision="bfloat16"))
    theirs = quiet_fit(full, batches, TrainConfig(steps=12))
    assert set(inside) == {torch.bfloat16}
    assert {p.dtype for p in half.parameters()} == {torch.float32}
    assert np.allclose(ours.losses, theirs.losses, rtol=0.02) and ours.losses != theirs.losses
    assert not torch.is_autocast_enabled("cpu")


def test_evaluate_in_bfloat16_is_close_to_float32():
    model, batches = tiny(0, width=16), make_batches(3)
    assert evaluate(model, batches, precision="bfloat16") == pytest.approx(evaluate(model, batches), rel=0.02)


def test_a_float16_step_that_overflows_is_skipped_and_the_schedule_waits():
    model = tiny(0)
    kept = []

    def overflow_once(gradient: Tensor) -> Tensor:
        return gradient * float("inf") if len(kept) == 2 else gradient

    model.output.weight.register_hook(overflow_once)
    history = quiet_fit(
        model,
        make_batches(5),
        TrainConfig(steps=5, warmup=4, precision="float16", lr=0.01),
        on_step=lambda step: kept.append(parameters(model)),
    )
    assert same(kept[1], kept[2]) and not same(kept[2], kept[3])
    rates = [0.01 * warmup_linear(step, 4, 5) for step in (1, 2, 3, 3, 4)]
    assert history.lr == rates
    assert not math.isfinite(history.norms[2]) and all(map(math.isfinite, history.losses))


def test_float16_is_unscaled_before_it_is_clipped():
    """Clipped first, gradients of a loss 65536 times too large would all be cut to the same length."""
    batches = make_batches(3)
    config = TrainConfig(steps=3, clip=0.05)
    half, full = tiny(0), tiny(0)
    ours = quiet_fit(half, batches, replace(config, precision="float16"))
    theirs = quiet_fit(full, batches, config)
    assert np.allclose(ours.norms, theirs.norms, rtol=0.02)
    assert close(parameters(half), parameters(full), 0.01)


def test_matmul_precision_comes_back():
    before = torch.get_float32_matmul_precision()
    during = []
    quiet_fit(
        tiny(0),
        make_batches(1),
        TrainConfig(steps=1, matmul="medium"),
        on_step=lambda _: during.append(torch.get_float32_matmul_precision()),
    )
    assert during == ["medium"] and torch.get_float32_matmul_precision() == before
    with pytest.raises(KeyError), matmul_precision("high"):
        assert torch.get_float32_matmul_precision() == "high"
        raise KeyError
    assert torch.get_float32_matmul_precision() == before
    with matmul_precision(None):
        assert torch.get_float32_matmul_precision() == before
    with pytest.raises(ValueError, match="matrix products"), matmul_precision("low"):
        pass


def test_modes_come_back_after_an_error():
    model = tiny(0)
    model.blocks[0].eval()
    with pytest.raises(KeyError), in_mode(model, training=False):
        assert not model.training
        raise KeyError
    assert model.training and not model.blocks[0].norm.training and model.blocks[1].norm.training


# --- Activation checkpointing -------------------------------------------------------------------------------


def saved_bytes(model: nn.Module, forward: Callable[[], Tensor]) -> tuple[Tensor, int]:
    """What `forward` returns, and how much its graph keeps for backward, parameters left out."""
    own, kept = {p.untyped_storage().data_ptr() for p in model.parameters()}, []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        return forward(), sum(kept)


def test_recomputing_gives_the_same_gradient_for_less_memory():
    batch, config = make_batches(1)[0], TrainConfig(steps=1)
    results, kept = [], []
    for modules in (lambda m: [], repeated_blocks):
        model = tiny(0, width=12, layers=4, dropout=0.4)
        torch.manual_seed(5)
        with checkpointed(*modules(model)):
            loss_sum, saved = saved_bytes(model, lambda: training.batch_loss(model, batch, config)[0])  # noqa: B023
        loss_sum.backward()  # outside on purpose: what was computed inside knows how to be computed again
        results.append(gradients(model) | {"loss": loss_sum.detach()})
        kept.append(saved)
    assert same(*results), "to the last bit, dropout included"
    assert kept[1] < 0.4 * kept[0]


def test_fit_with_recomputing_ends_with_the_same_parameters():
    ended = []
    for recompute in (False, True):
        model = tiny(0, dropout=0.4)
        torch.manual_seed(5)
        calls: list[int] = []
        model.blocks[1].norm.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        quiet_fit(model, make_batches(4), TrainConfig(steps=4, recompute=recompute, accumulate=2))
        assert len(calls) == (16 if recompute else 8), "every block runs once more in backward"
        assert "forward" not in vars(model.blocks[0])
        ended.append(parameters(model))
    assert same(*ended)


def test_recomputing_works_where_no_input_requires_a_gradient():
    model = tiny(0)
    model.source.requires_grad_(False)
    model.target.requires_grad_(False)
    with checkpointed(*model.blocks):
        training.batch_loss(model, make_batches(1)[0], TrainConfig(steps=1))[0].backward()
    assert model.blocks[0].wide.weight.grad.abs().sum() > 0


def test_checkpointed_undoes_itself_also_nested_and_after_an_error():
    block = tiny(0).blocks[0]
    with checkpointed(block):
        outer = block.forward
        with pytest.raises(KeyError), checkpointed(block, block):
            assert block.forward is not outer
            raise KeyError
        assert block.forward is outer
    assert "forward" not in vars(block)


def test_repeated_blocks_are_the_outermost_ones():
    inner = nn.Module()
    inner.parts = nn.ModuleList([nn.Linear(2, 2)])
    model = nn.Sequential(nn.Linear(2, 2), nn.ModuleList([inner, nn.Linear(3, 3)]))
    assert repeated_blocks(model) == [inner, model[1][1]]
    with pytest.raises(ValueError, match=r"Linear has no nn.ModuleList"):
        quiet_fit(nn.Linear(2, 2), make_batches(1), TrainConfig(steps=1, recompute=True))


# --- Checkpoints --------------------------------------------------------------------------------------------


def run_script(launcher: list[str], what: str, folder: Path) -> tuple[int, str]:
    """Run tests/run_training.py in a process of its own: exit status, and what it wrote to stderr."""
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    environment = os.environ | loopback | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, str(ROOT / "tests" / "run_training.py"), what, str(folder)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            _, errors = process.communicate(timeout=200)
        finally:
            process.terminate()  # torchrun then ends its processes too
    return process.returncode, errors


def test_a_run_that_was_killed_goes_on_as_if_nothing_had_happened(tmp_path):
    status, errors = run_script([], "killed", tmp_path)
    assert status != 0 and not errors, errors
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]
    assert torch.load(tmp_path / "run.pt", weights_only=True)["step"] == 6

    whole = tiny(1, dropout=0.3)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = quiet_fit(whole, make_batches(10), KILLED)
    resumed = tiny(2, dropout=0.3)  # other parameters, another generator state: all comes from the file
    heard: list[int] = []
    history = quiet_fit(
        resumed,
        iter(make_batches(10)),
        KILLED,
        checkpoint=tmp_path / "run.pt",
        resume=True,
        on_step=heard.append,
    )
    torch.set_num_threads(threads)
    assert heard == [7, 8, 9, 10]
    assert same(parameters(whole), parameters(resumed)), "to the last bit"
    for name in ("losses", "norms", "lr", "tokens"):
        assert getattr(history, name) == getattr(expected, name)
    assert len(history.seconds) == 10 and np.all(np.diff(history.seconds) > 0)


def test_float16_goes_on_with_its_scale(tmp_path):
    config = TrainConfig(steps=6, precision="float16", checkpoint_every=3)
    whole, first, second = tiny(0), tiny(0), tiny(1)
    for model in (whole, first, second):  # the first gradients overflow: the scale has to come down
        model.output.weight.register_hook(lambda g: torch.where(g.abs() > 5e3, torch.inf, g))
    quiet_fit(whole, make_batches(6), config)
    path = tmp_path / "run.pt"
    quiet_fit(first, make_batches(6), config, checkpoint=path, on_step=lambda step: step == 3)
    assert torch.load(path, weights_only=True)["scaler"]["scale"] < 65536.0
    quiet_fit(second, make_batches(6), config, checkpoint=path, resume=True)
    assert same(parameters(whole), parameters(second))


def finished(tmp_path: Path) -> tuple[Path, TrainConfig]:
    path, config = tmp_path / "deep" / "run.pt", TrainConfig(steps=4, checkpoint_every=2)
    quiet_fit(tiny(0), make_batches(4), config, checkpoint=path)
    return path, config


def test_a_finished_run_is_loaded_and_left_as_it_is(tmp_path):
    path, config = finished(tmp_path)
    first, again = tiny(0), tiny(1)
    quiet_fit(first, make_batches(4), config)
    history = quiet_fit(again, make_batches(4), config, checkpoint=path, resume=True)
    assert same(parameters(first), parameters(again)) and len(history.losses) == 4


def test_without_resume_training_starts_anew_and_without_a_file_resume_does_too(tmp_path):
    path, config = finished(tmp_path)
    fresh, anew, nothing_yet = tiny(3), tiny(3), tiny(3)
    quiet_fit(fresh, make_batches(4), config)
    quiet_fit(anew, make_batches(4), config, checkpoint=path)
    quiet_fit(nothing_yet, make_batches(4), config, checkpoint=tmp_path / "other.pt", resume=True)
    assert same(parameters(fresh), parameters(anew)) and same(parameters(fresh), parameters(nothing_yet))
    with pytest.raises(ValueError, match="resume=True needs checkpoint="):
        quiet_fit(tiny(0), make_batches(4), config, resume=True)


def refused(path: Path, config: TrainConfig, message: str, **sizes) -> None:
    """Loading says why not, and neither the model nor torch's generator has changed."""
    model = tiny(9, **sizes)
    before, generator = parameters(model), torch.get_rng_state()
    run = Run.begin(model, config)
    with pytest.raises(ValueError, match=message):
        load_checkpoint(path, run)
    assert same(before, parameters(model)) and torch.equal(generator, torch.get_rng_state())
    assert run.step == 0 and not run.history.losses
    with pytest.raises(ValueError, match=message):
        quiet_fit(model, make_batches(4), config, checkpoint=path, resume=True)
    assert same(before, parameters(model))


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    path, config = finished(tmp_path)
    refused(path, config, r"source.weight is \(11, 6\).*the model has \(11, 7\).*more", width=7)
    refused(path, config, r"blocks.2.norm.weight is missing", layers=3)
    refused(path, config, r"blocks.1.norm.weight is not in the model", layers=1)
    refused(path, config, r"torch.float32, the model has .* torch.float64", dtype=torch.float64)


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path):
    path, config = finished(tmp_path)
    refused(path, replace(config, steps=8), "steps was 4 and is 8")
    refused(path, replace(config, lr=1.0, smoothing=0.1), "lr was 0.005 and is 1.0; smoothing was 0.0 and is 0.1")
    other = replace(config, log_every=1, checkpoint_every=1)  # these do not change where training ends
    quiet_fit(tiny(9), make_batches(4), other, checkpoint=path, resume=True)


def test_a_checkpoint_of_several_processes_is_refused_by_one(tmp_path):
    path, config = finished(tmp_path)
    state = torch.load(path, weights_only=True)
    torch.save(state | {"generators": state["generators"] * 2}, path)
    refused(path, config, "written by 2 processes; this run has 1")


def test_a_damaged_checkpoint_is_refused(tmp_path):
    path, config = finished(tmp_path)
    whole = path.read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(path, config, "not a whole checkpoint")
    # One bit of one weight: the file is whole, and still not what was written.
    weight = torch.load(io.BytesIO(whole), weights_only=True)["model"]["output.weight"]
    place = whole.index(weight.numpy().tobytes()) + 3
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
    refused(path, config, "damaged")


def test_other_files_are_refused_and_their_code_is_not_run(tmp_path):
    path, config = finished(tmp_path)
    torch.save({"model": tiny(0).state_dict()}, path)
    refused(path, config, "not a checkpoint of fit")
    torch.save(torch.ones(3), path)
    refused(path, config, "not a checkpoint of fit: .* got .*Tensor")
    path.write_text("steps: 4")
    refused(path, config, "not a whole checkpoint")
    trap = tmp_path / "trap"
    torch.save({"model": Trap(trap)}, path)
    refused(path, config, "not a whole checkpoint")
    assert not trap.exists()


class Trap:
    """Unpickled without care, this makes a folder."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_optimizer_state_that_does_not_fit_is_refused(tmp_path):
    path, config = finished(tmp_path)
    state = torch.load(path, weights_only=True)
    state["optimizer"]["param_groups"] = state["optimizer"]["param_groups"][:1]
    torch.save(state, path)
    refused(path, config, "optimizer's state")


@pytest.mark.parametrize("broken", ["torch.save", "os.fsync", "os.replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, broken):
    path, config = finished(tmp_path)
    before = path.read_bytes()

    def fail(*args):
        if broken == "torch.save":
            args[1].write(b"half a file")
        raise OSError("No space left on device")

    run = Run.begin(tiny(5), config)
    module, name = broken.split(".")
    monkeypatch.setattr({"torch": torch, "os": os}[module], name, fail)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint(path, run)
    monkeypatch.undo()
    assert path.read_bytes() == before and [p.name for p in path.parent.iterdir()] == ["run.pt"]


def test_checkpoints_come_at_their_steps_and_at_the_end(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(training, "save_checkpoint", lambda path, run, processes: written.append(run.step))
    config = TrainConfig(steps=7, checkpoint_every=3)
    quiet_fit(tiny(0), make_batches(7), config, checkpoint=tmp_path / "run.pt")
    quiet_fit(tiny(0), make_batches(7), config)
    assert written == [3, 6, 7]


def test_tied_weights_stay_tied(tmp_path):
    def tied(seed: int) -> nn.Module:
        model = tiny(seed)
        model.output.weight = model.target.weight
        return model

    config, path = TrainConfig(steps=4, checkpoint_every=2), tmp_path / "run.pt"
    whole, half, again = tied(0), tied(0), tied(1)
    quiet_fit(whole, make_batches(4), config)
    quiet_fit(half, make_batches(4), config, checkpoint=path, on_step=lambda step: step == 2)
    quiet_fit(again, make_batches(4), config, checkpoint=path, resume=True)
    assert again.output.weight is again.target.weight and same(parameters(whole), parameters(again))


# --- Several processes --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> list[dict]:
    """What two processes under torchrun ended with, by rank."""
    folder = tmp_path_factory.mktemp("parallel")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    status, errors = run_script(torchrun, "parallel", folder)
    assert status == 0, errors
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in (0, 1)]


def test_replicas_are_identical_and_equal_to_one_process_with_the_whole_batch(two_processes):
    zero, one = two_processes
    assert same(zero["model"], one["model"]), "though each began with parameters of its own"
    alone = tiny(0, torch.float64)  # as process 0 began
    history = quiet_fit(alone, make_batches(6), PARALLEL)
    assert close(zero["model"], parameters(alone), 1e-10)
    for name in ("losses", "norms"):
        assert np.allclose(zero["history"][name], getattr(history, name), atol=1e-10)
        assert zero["history"][name] == one["history"][name]
    assert zero["history"]["tokens"] == history.tokens, "tokens of the whole batch"


def test_the_mean_over_processes_would_be_another_model():
    """So the test above can fail: rows of the two processes hold different numbers of tokens."""
    counts = [int((part[-1] != 0).sum()) for part in training.split_rows(make_batches(1)[0], 2)]
    assert counts[0] != counts[1]


def test_several_processes_resume_with_their_own_dropout(two_processes):
    for ended in two_processes:
        assert same(ended["whole"], ended["halves"])


def test_only_the_first_process_shows_progress_and_writes(two_processes):
    zero, one = two_processes
    assert "6/6" in zero["shown"] and one["shown"] == ""
    assert (zero["written"], one["written"]) == (6, 0)


def test_processes_that_cannot_share_a_batch_or_a_checkpoint_say_so(two_processes):
    for ended in two_processes:
        assert "batch of 1 rows cannot feed 2 processes" in ended["few"]
        assert "at different steps: [6, 0]" in ended["apart"]


# --- With the course's own models ---------------------------------------------------------------------------


def course_models() -> dict[str, nn.Module]:
    from course_lib.gpt import GPT, GPTConfig
    from course_lib.seq2seq import AttentionSeq2Seq, Seq2Seq, Seq2SeqConfig
    from course_lib.transformer import Transformer, TransformerConfig

    torch.manual_seed(0)
    words = (SOURCE_VOCAB, TARGET_VOCAB)
    sizes = Seq2SeqConfig(*words, d_embed=8, d_hidden=6, d_attention=5)
    return {
        "transformer": Transformer(TransformerConfig(*words, d_model=8, heads=2, d_ff=12, dropout=0.1)),
        "seq2seq": Seq2Seq(sizes),
        "attention seq2seq": AttentionSeq2Seq(sizes),
        "gpt": GPT(GPTConfig(TARGET_VOCAB, max_length=16, d_model=8, heads=2, dropout=0.1)),
    }


@pytest.mark.parametrize("name", ["transformer", "seq2seq", "attention seq2seq", "gpt"])
def test_every_model_of_the_course_trains(name):
    model = course_models()[name]
    batch = make_batches(1)[0]
    batch = batch[1:] if name == "gpt" else batch
    stacks = name in ("transformer", "gpt")
    config = TrainConfig(steps=25, lr=0.02, warmup=5, accumulate=2, precision="bfloat16", recompute=stacks)
    history = quiet_fit(model, [batch] * 25, config)
    assert history.losses[-1] < 0.8 * history.losses[0]
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
