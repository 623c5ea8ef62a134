"""Training: one plain loop, `fit`, and around it the small functions that make it fit the machine.

A batch is a tuple of tensors with one row per example: what the model reads and, last, what it should answer.
For a translation that is (source, target_in, target_out), for a language model (tokens, next_tokens).
Every loss is per real token: a sum over tokens divided by how many there are, padding left out of both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import islice
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from .checkpoints import load_checkpoint, save_checkpoint
from .device import device_of
from .parallel import Batch, Processes, join_processes, split_rows
from .shapes import expect, expect_rank, shape
from .switches import checkpointed, expect_one_of, in_mode, matmul_precision, repeated_blocks

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class TrainConfig:
    """All that decides where training ends, besides the model, the batches and the schedule."""

    steps: int
    lr: float = 5e-3
    warmup: int = 20
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    clip: float = 1.0  # the longest gradient that is followed as it is; math.inf: any length
    smoothing: float = 0.0
    pad: int | None = 0  # None: every token is real
    accumulate: int = 1  # parts in which a batch goes through the model, one after the other
    precision: str = "float32"  # of the forward pass; parameters, loss and optimizer stay in float32
    matmul: str | None = None  # "medium": faster matrix products on many CPUs; None: leave as it is
    recompute: bool = False  # activation checkpointing of every block in a ModuleList
    checkpoint_every: int = 100
    log_every: int = 10  # steps between two looks at the loss: each look waits for the device

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "checkpoint_every", "log_every"):
            expect(getattr(self, name) >= 1, f"{name} should be at least 1; got {getattr(self, name)}.")
        for name in ("lr", "clip"):
            expect(getattr(self, name) > 0, f"{name} should be above 0; got {getattr(self, name)}.")
        for name in ("warmup", "weight_decay"):
            expect(getattr(self, name) >= 0, f"{name} cannot be negative; got {getattr(self, name)}.")
        expect(0 <= self.smoothing < 1, f"smoothing goes from 0 to below 1; got {self.smoothing}.")
        expect_one_of(self.precision, "precision", list(PRECISIONS))
        expect_one_of(self.matmul, "matmul", [None, "highest", "high", "medium"])


# --- Schedules: plain functions of the step, which counts from 1 --------------------------------------------


def warmup_linear(step: int, warmup: int, total: int) -> float:
    """The share of the learning rate at `step`: up to 1 at step `warmup`, then down to 0 after step `total`.

    min(step / warmup,  (total + 1 - step) / (total + 1 - warmup))
    """
    warmup = max(warmup, 1)
    up, down = step / warmup, (total + 1 - step) / max(total + 1 - warmup, 1)
    return max(min(up, down), 0.0)


def warmup_inverse_sqrt(step: int, d_model: int, warmup: int = 4000) -> float:
    """The learning rate of "Attention Is All You Need"; use it with lr=1.

    d_model^-0.5 · min(step^-0.5, step · warmup^-1.5), which is d_model^-0.5 · step / max(step, warmup)^1.5
    """
    # The second form gives 0 at step 0, where step^-0.5 would divide by zero.
    return d_model**-0.5 * step / max(step, warmup, 1) ** 1.5


# --- The loss -----------------------------------------------------------------------------------------------


def cross_entropy_sum(
    logits: Tensor, targets: Tensor, *, smoothing: float = 0.0, pad: int | None = 0
) -> tuple[Tensor, Tensor]:
    """Σ over real tokens of -Σ_c q_c log p_c, and the number of real tokens, both as tensors of one number.

    p = softmax(logits);  q_c = (1 - ε) [c is the target] + ε / C  with ε = smoothing.
    """
    expect_rank(logits, "logits", "BTC")
    expect(
        targets.shape == logits.shape[:2],
        f"Each row of logits needs its target; got logits {shape(logits)} and targets {shape(targets)}. "
        "Is the target shifted once, so that it is one token ahead of what the model reads?",
    )
    expect(0 <= smoothing < 1, f"smoothing goes from 0 to below 1; got {smoothing}.")
    # exp and log lose too much in half precision, and a sum over many tokens would stop growing.
    wide_NC = logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32))
    ignored = -100 if pad is None else pad
    try:
        total = F.cross_entropy(
            wide_NC, targets.flatten(), ignore_index=ignored, label_smoothing=smoothing, reduction="sum"
        )
    except IndexError as error:
        raise ValueError(
            f"Targets should be ids from 0 to {logits.shape[-1] - 1}, as many as there are logits: {error} "
            "Was the target encoded with another vocabulary?"
        ) from error
    return total, real_tokens(targets, pad)


def real_tokens(targets: Tensor, pad: int | None = 0) -> Tensor:
    """How many targets count, as a tensor on their device."""
    return (targets != (-100 if pad is None else pad)).sum()


def batch_loss(model: nn.Module, batch: Batch, config: TrainConfig) -> tuple[Tensor, Tensor]:
    """Summed loss and number of real tokens of one batch, the model's arithmetic in `config.precision`."""
    *inputs, targets = batch
    with autocast(targets.device, config.precision):
        output = model(*inputs)
    logits_BTC = output[0] if isinstance(output, tuple) else output  # a GPT also returns its cache
    return cross_entropy_sum(logits_BTC, targets, smoothing=config.smoothing, pad=config.pad)


def autocast(device: torch.device, precision: str) -> AbstractContextManager:
    """Matrix products in `precision`; what needs more range, as softmax and norms, stays in float32."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=PRECISIONS[precision])


def evaluate(model: nn.Module, batches: Iterable[Batch], *, pad: int | None = 0, precision: str = "float32") -> float:
    """Mean loss per real token over all `batches`, without dropout, without gradients."""
    config = TrainConfig(steps=1, pad=pad, precision=precision)
    sums, counts = [], []
    with torch.no_grad(), in_mode(model, training=False):
        for batch in batches:
            loss, tokens = batch_loss(model, on_device(batch, device_of(model)), config)
            sums.append(loss)
            counts.append(tokens)
    expect(len(sums) > 0, "There is no batch to evaluate. Was the iterator used up before?")
    tokens = torch.stack(counts).sum()
    expect(bool(tokens > 0), f"The batches hold no real token: every target is pad = {pad}.")
    return float(torch.stack(sums).double().sum() / tokens)


# --- One step -----------------------------------------------------------------------------------------------


def add_gradients(
    model: nn.Module,
    batch: Batch,
    config: TrainConfig,
    *,
    tokens: Tensor | None = None,
    scaler: torch.amp.GradScaler | None = None,
) -> Tensor:
    """Add the gradient of the loss per token to `.grad`, in `config.accumulate` parts; return that loss.

    loss = (Σ_parts Σ_tokens cross-entropy) / tokens. All parts share one divisor, the real tokens of the
    whole batch: a mean of the parts' means would give tokens of a part with much padding more weight.
    """
    tokens = real_tokens(batch[-1], config.pad) if tokens is None else tokens
    loss = torch.zeros((), device=batch[-1].device)
    for part in split_rows(batch, config.accumulate):
        part_loss = batch_loss(model, part, config)[0] / tokens
        (part_loss if scaler is None else scaler.scale(part_loss)).backward()
        loss = loss + part_loss.detach()
    return loss


def update(run: Run, rate: float) -> Tensor:
    """One step of the optimizer; return how long the gradient was before it was clipped."""
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    run.scaler.unscale_(run.optimizer)  # before clipping: it is the true gradient whose length counts
    norm = nn.utils.clip_grad_norm_(run.parameters, run.config.clip)
    before = run.scaler.get_scale()
    run.scaler.step(run.optimizer)
    run.scaler.update()
    # A float16 gradient that overflowed is dropped and the scale goes down: then the schedule waits too.
    run.updates += int(run.scaler.get_scale() >= before)
    return norm


# --- What a run knows, and what it remembers ----------------------------------------------------------------


@dataclass
class History:
    """One number per step: loss per token, learning rate, gradient's length, real tokens, seconds so far."""

    losses: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    waiting: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list, repr=False)

    def add(self, loss: Tensor, norm: Tensor, tokens: Tensor, rate: float, seconds: float) -> None:
        """Keep one step. The tensors stay on their device, unread, so that nothing waits for it."""
        self.waiting.append((loss, norm.to(loss), tokens))
        self.lr.append(rate)
        self.seconds.append(seconds)

    def read(self, *, overflow: bool = False) -> None:
        """Fetch what waits, all at once. Loss and gradient must be finite; with `overflow`, the loss."""
        if not self.waiting:
            return
        loss, norm, tokens = (torch.stack(column).cpu().tolist() for column in zip(*self.waiting, strict=True))
        self.waiting.clear()
        self.losses += loss
        self.norms += norm
        self.tokens += tokens
        for back, (one_loss, one_norm) in enumerate(zip(loss, norm, strict=True)):
            if not math.isfinite(one_loss) or not (overflow or math.isfinite(one_norm)):
                raise ValueError(not_finite(len(self.losses) - len(loss) + back + 1, one_loss, one_norm, tokens[back]))

    def numbers(self) -> dict[str, list]:
        """The columns, for a checkpoint or a table."""
        return {f.name: list(getattr(self, f.name)) for f in fields(self) if f.name != "waiting"}


def not_finite(step: int, loss: float, norm: float, tokens: int) -> str:
    advice = (
        "The batch holds no real token, only padding."
        if tokens == 0
        else "Look at the learning rate (too high, too little warm-up), at clip, at rows that are masked "
        "everywhere, at a log or a division near 0 and, with float16, at values above 65504."
    )
    return (
        f"Training left the finite numbers in step {step}: loss {loss}, length of the gradient {norm}, "
        f"{tokens} real tokens. {advice} The parameters are spoiled now; the last checkpoint is not."
    )


@dataclass
class Run:
    """All that changes while training: a checkpoint holds exactly this."""

    model: nn.Module
    config: TrainConfig
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    history: History = field(default_factory=History)
    step: int = 0  # batches used
    updates: int = 0  # updates made: the same number, except where float16 overflowed

    def __post_init__(self) -> None:
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]

    @classmethod
    def begin(cls, model: nn.Module, config: TrainConfig) -> Run:
        """A run at its first step, with AdamW; only float16 needs its loss scaled."""
        device = device_of(model)
        scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "float16")
        # One kernel for all parameters: 4 times faster on the CPU than torch's default.
        fused = True if device.type in ("cpu", "cuda") else None
        trained = [p for p in model.parameters() if p.requires_grad]
        expect(len(trained) > 0, "The model has no parameter that requires a gradient: nothing to train.")
        # Decay pulls towards 0, which is no better than any other value for a bias or the gain of a norm.
        groups = [
            {"params": [p for p in trained if p.ndim > 1], "weight_decay": config.weight_decay},
            {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=config.lr, betas=config.betas, fused=fused)
        return cls(model, config, optimizer, scaler)


# --- The loop -----------------------------------------------------------------------------------------------


def fit(
    model: nn.Module,
    batches: Iterable[Batch],
    config: TrainConfig,
    *,
    schedule: Callable[[int], float] | None = None,
    device: str | torch.device | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    on_step: Callable[[int], object] | None = None,
) -> History:
    """Train `model` for `config.steps` steps, one batch each, and return what happened.

    The learning rate of step 1, 2, … is config.lr · schedule(step), by default with `warmup_linear`.
    `checkpoint` names a file, written every `config.checkpoint_every` steps and at the end. With `resume`,
    training goes on from that file if it exists; `batches` then begins as it did the first time (same seed,
    a generator of its own), and those already used are skipped. Under torchrun all processes are given the
    same batches, and each takes its rows of every one. `on_step(steps done)` ends training by returning True.
    """
    factor = schedule or partial(warmup_linear, warmup=config.warmup, total=config.steps)
    model.to(device_of(model) if device is None else device)
    processes = join_processes(device_of(model))
    with prepared(model, config):
        run = begin_or_resume(model, config, checkpoint, resume, processes)
        began = time.perf_counter() - (run.history.seconds or [0.0])[-1]
        quiet = not progress or processes.rank > 0
        with tqdm(total=config.steps, initial=run.step, desc="training", unit="step", disable=quiet) as bar:
            for batch in islice(batches, run.step, config.steps):
                rate = config.lr * factor(run.updates + 1)
                loss, norm, tokens = train_step(run, batch, rate, processes)
                run.step += 1
                run.history.add(loss, norm, tokens, rate, time.perf_counter() - began)
                stop = on_step is not None and on_step(run.step) is True
                look_around(run, bar, checkpoint, processes, last=stop)
                if stop:
                    return run.history
    expect(run.step == config.steps, f"The batches ended after {run.step} of {config.steps} steps.")
    return run.history


def begin_or_resume(
    model: nn.Module, config: TrainConfig, checkpoint: str | Path | None, resume: bool, processes: Processes
) -> Run:
    """A run at its first step or, with `resume`, where the checkpoint left it, the same in all processes."""
    run = Run.begin(model, config)
    if resume:
        expect(checkpoint is not None, "resume=True needs checkpoint=, the file to go on from.")
        if checkpoint is not None and Path(checkpoint).exists():
            load_checkpoint(checkpoint, run, processes)
    processes.share(run)
    return run


def train_step(run: Run, batch: Batch, rate: float, processes: Processes) -> tuple[Tensor, Tensor, Tensor]:
    """Forward, backward, update: loss per token, length of its gradient, and how many tokens there were."""
    batch = on_device(batch, device_of(run.model))
    tokens = real_tokens(batch[-1], run.config.pad)
    run.optimizer.zero_grad(set_to_none=True)
    loss = add_gradients(run.model, processes.rows(batch), run.config, tokens=tokens, scaler=run.scaler)
    processes.sum_up([loss, *(p.grad for p in run.parameters if p.grad is not None)])
    return loss, update(run, rate), tokens


def look_around(run: Run, bar: tqdm, checkpoint: str | Path | None, processes: Processes, *, last: bool) -> None:
    """Every now and then: read the losses, show the newest, write a checkpoint."""
    bar.update()
    last = last or run.step == run.config.steps
    save = checkpoint is not None and (last or run.step % run.config.checkpoint_every == 0)
    if last or save or run.step % run.config.log_every == 0:
        # Before saving, so that a good checkpoint is never replaced by one that holds NaN.
        run.history.read(overflow=run.config.precision == "float16")
        bar.set_postfix(loss=f"{run.history.losses[-1]:.4f}", refresh=False)
    if save and checkpoint is not None:
        save_checkpoint(checkpoint, run, processes)


@contextmanager
def prepared(model: nn.Module, config: TrainConfig) -> Iterator[None]:
    """The model in training mode and the switches of `config` on; afterwards everything as it was."""
    with ExitStack() as stack:
        stack.enter_context(matmul_precision(config.matmul))
        stack.enter_context(in_mode(model, training=True))
        if config.recompute:
            stack.enter_context(checkpointed(*repeated_blocks(model)))
        yield


def on_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on `device`, once it is clear that it is a batch."""
    if not isinstance(batch, tuple | list) or not all(isinstance(tensor, Tensor) for tensor in batch):
        raise TypeError(f"A batch is a tuple of tensors, the targets last; got {type(batch).__name__}.")
    shapes = ", ".join(map(shape, batch))
    expect(len(batch) >= 2, f"A batch holds what the model reads and then the targets; got only {shapes}.")
    expect(
        batch[0].ndim > 0 and len(batch[0]) > 0 and len({len(tensor) for tensor in batch if tensor.ndim}) == 1,
        f"All tensors of a batch should have the same number of rows, at least one; got {shapes}.",
    )
    return tuple(tensor.to(device, non_blocking=True) for tensor in batch)
