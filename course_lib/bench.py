"""Speed and memory against torch's own modules: `course bench`. Ratios of runs interleaved on one machine."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import attention as A
from . import data, efficient, masks, sparse, training
from .decoding import greedy
from .metrics import exact_match
from .seq2seq import AttentionSeq2Seq, Seq2Seq, Seq2SeqConfig
from .transformer import Transformer, TransformerConfig

SIZES = ((64, 4, 16, 16), (16, 4, 64, 32), (4, 8, 256, 64), (1, 8, 1024, 64))  # B, H, T, K
Run = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One measured figure and what it may be: `at_most`, `at_least`, or neither where it is only shown."""

    group: str
    name: str
    value: float
    unit: str = "×"
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool:
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )

    @property
    def budget(self) -> str:
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return "" if self.at_least is None else f"≥ {self.at_least:g}"


# --- how to measure ---------------------------------------------------------------------------------------


def seconds(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def ratio(ours: Run, theirs: Run, budget_seconds: float = 1.5, rounds: int = 300) -> float:
    """Median of ours / theirs, each round timing both side by side, so that noise falls on both."""
    for run in (ours, theirs, ours, theirs):
        run()
    ratios: list[float] = []
    end = time.perf_counter() + budget_seconds
    while len(ratios) < 5 or (time.perf_counter() < end and len(ratios) < rounds):
        first = seconds(ours)
        second = seconds(theirs)
        third, fourth = seconds(theirs), seconds(ours)  # and back: neither always runs first
        ratios.append((first + fourth) / (second + third))
    return statistics.median(ratios)


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Nothing on stderr: the profiler, which is not Python, writes a line there whenever it starts and stops."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def peak_bytes(run: Run) -> int:
    """The most memory that torch held at one time during `run`, beyond what it held before."""
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with quiet_stderr(), torch.profiler.profile(activities=cpu, profile_memory=True) as profile:
        run()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def backward(make: Callable[[], Tensor]) -> Run:
    """Forward, then backward with a cotangent of ones."""

    def run() -> None:
        out = make()
        out.backward(torch.ones_like(out))

    return run


def draw(*shape: int, grad: bool = True) -> Tensor:
    return torch.randn(*shape, requires_grad=grad)


def both_ways(group: str, name: str, ours: Callable, theirs: Callable, at_most: float) -> Iterator[Row]:
    """Forward alone, and forward with backward."""
    with torch.no_grad():
        yield Row(group, f"{name}, forward", ratio(ours, theirs), at_most=at_most)
    yield Row(group, f"{name}, forward + backward", ratio(backward(ours), backward(theirs)), at_most=at_most)


# --- what is measured -------------------------------------------------------------------------------------


def plain_formula(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(q kᵀ / √d_k) v as one would type it; with a mask, empty rows become zeros too."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is None:
        return torch.softmax(scores, dim=-1) @ v
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    return weights.masked_fill(~mask.any(-1, keepdim=True), 0.0) @ v


def explicit_output(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return A.explicit(q, k, v, mask)[0]


def bench_attention() -> Iterator[Row]:
    for length in (512, 1024):
        q, k, v = (draw(2, 4, length, 64) for _ in range(3))
        for mask in (None, masks.causal(length)):
            name = f"explicit / formula, T {length}{', masked' if mask is not None else ''}"
            ours, theirs = partial(explicit_output, q, k, v, mask), partial(plain_formula, q, k, v, mask)
            yield from both_ways("attention", name, ours, theirs, 1.1)
    for b, h, t, width in SIZES:
        q, k, v = (draw(b, h, t, width) for _ in range(3))
        fused, sdpa = partial(A.fused, q, k, v), partial(F.scaled_dot_product_attention, q, k, v)
        yield from both_ways("attention", f"fused / SDPA, B {b} H {h} T {t}", fused, sdpa, 1.05)


def bench_multihead() -> Iterator[Row]:
    for b, h, t, width in SIZES:
        x = draw(b, t, h * width)
        ours = A.MultiHeadAttention(h * width, h)
        theirs = nn.MultiheadAttention(h * width, h, batch_first=True)
        yield from both_ways(
            "multihead",
            f"multi-head / torch's, B {b} H {h} T {t}",
            partial(ours, x),
            lambda x=x, layer=theirs: layer(x, x, x, need_weights=False)[0],
            1.03,
        )
    yield from bench_long_inference()


def bench_long_inference(length: int = 4096) -> Iterator[Row]:
    """torch's layer in eval mode builds T × T even when nobody asks for the weights."""
    x = draw(1, length, 512, grad=False)
    ours = A.MultiHeadAttention(512, 8).eval()
    layer = nn.MultiheadAttention(512, 8, batch_first=True).eval()

    def theirs() -> Tensor:
        return layer(x, x, x, need_weights=False)[0]

    with torch.no_grad():
        memory = peak_bytes(partial(ours, x)) / peak_bytes(theirs)
        yield Row("multihead", f"{length} tokens, inference: memory", memory, at_most=0.1)
        yield Row("multihead", f"{length} tokens, inference: time", ratio(partial(ours, x), theirs, 4), at_most=0.75)


class TorchTranslator(nn.Module):
    """torch.nn.Transformer with the same embeddings and output as ours."""

    def __init__(self, like: Transformer):
        super().__init__()
        c = self.config = like.config
        self.stacks = nn.Transformer(
            c.d_model, c.heads, c.encoder_layers, c.decoder_layers, c.d_ff, dropout=c.dropout, batch_first=True,
            norm_first=c.pre_norm,
        )  # fmt: skip
        self.embedder = like

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        return self.logits(target_in, *self.encode(source))

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        pad = source == self.config.pad
        x = self.embedder.embed(self.embedder.source_embedding, source)
        return self.stacks.encoder(x, src_key_padding_mask=pad), pad

    def logits(self, target_in: Tensor, memory: Tensor, pad: Tensor) -> Tensor:
        length = target_in.shape[1]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = self.embedder.embed(self.embedder.target_embedding, target_in)
        x = self.stacks.decoder(y, memory, tgt_mask=future, memory_key_padding_mask=pad, tgt_is_causal=True)
        return self.embedder.logits(x)


def training_step(model: nn.Module, source: Tensor, target: Tensor, low_precision: bool) -> Run:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def run() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=low_precision):
            logits = model(source, target[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), target[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return run


def translators(tokens: int, batch: int, **sizes: Any) -> tuple[Transformer, TorchTranslator, Tensor, Tensor]:
    config = TransformerConfig(100, 100, **sizes)
    torch.manual_seed(0)
    source, target = (torch.randint(3, 100, (batch, n)) for n in (tokens, tokens + 1))
    source[: batch // 4, tokens // 2 :] = 0
    return Transformer(config), TorchTranslator(Transformer(config)), source, target


def bench_training_step() -> Iterator[Row]:
    for tokens, batch in ((16, 64), (64, 16)):
        for low_precision, at_most in ((False, 1.0), (True, 0.6)):
            ours, theirs, source, target = translators(
                tokens, batch, d_model=128, heads=4, d_ff=512, encoder_layers=2, decoder_layers=2
            )
            figure = ratio(
                training_step(ours, source, target, low_precision),
                training_step(theirs, source, target, low_precision),
                4,
            )
            kind = "bfloat16" if low_precision else "float32"
            yield Row("step", f"training step / nn.Transformer, {tokens} tokens, {kind}", figure, at_most=at_most)


def bench_decoding(length: int = 128) -> Iterator[Row]:
    for batch, at_least in ((64, 12.0), (1, 3.0)):
        ours, theirs, source, _ = translators(
            32, batch, d_model=128, heads=4, d_ff=512, encoder_layers=2, decoder_layers=2
        )
        ours.eval(), theirs.eval()

        def rerun(model=theirs, source=source, batch=batch) -> Tensor:
            memory, pad = model.encode(source)
            tokens = torch.ones(batch, 1, dtype=torch.long)
            for _ in range(length):
                newest = model.logits(tokens, memory, pad)[:, -1].argmax(-1, keepdim=True)
                tokens = torch.cat([tokens, newest], dim=1)
            return tokens

        def cached(model=ours, source=source) -> Tensor:
            return greedy(model, source, max_length=length, eos=-1)  # no such word: both write to the full length

        with torch.no_grad():
            cached(), rerun()
            runs = [(seconds(rerun), seconds(cached)) for _ in range(3)]
        speedup = statistics.median(slow / fast for slow, fast in runs)
        yield Row("decoding", f"cached / re-run, {length} tokens, batch {batch}: faster", speedup, at_least=at_least)


def bench_memory(length: int = 4096) -> Iterator[Row]:
    def variants(n: int) -> dict[str, Callable[[], Tensor]]:
        q, k, v = (draw(1, 2, n, 32) for _ in range(3))
        layout = torch.eye(n // 64, dtype=torch.bool).roll(1, 0) | torch.eye(n // 64, dtype=torch.bool)
        patterns = {
            "window": sparse.window(n, 64),
            "strided": sparse.strided(n, 64),
            "fixed": sparse.fixed(n, 64),
            "BigBird": sparse.bigbird(n, 64, seed=0),
            "block-sparse": sparse.block_sparse(layout, 64),
        }
        runs: dict[str, Callable[[], Tensor]] = {}
        for name, pattern in patterns.items():
            runs[name] = partial(sparse.attend, q, k, v, pattern)
        return runs | {"tiled": partial(efficient.tiled, q, k, v), "fused": partial(A.fused, q, k, v)}

    small, large = variants(length), variants(2 * length)
    for name in small:
        growth = peak_bytes(backward(large[name])) / peak_bytes(backward(small[name]))
        yield Row("memory", f"{name}: peak at {2 * length} / {length}", growth, at_most=2.3)
    for n in (length // 4, length // 2):
        q, k, v = (draw(1, 2, n, 32) for _ in range(3))
        base = peak_bytes(backward(partial(A.fused, q, k, v)))
        explicit = peak_bytes(backward(partial(explicit_output, q, k, v)))
        yield Row("memory", f"explicit / fused, T {n}: peak", explicit / base)


def bench_import() -> Iterator[Row]:
    code = "import time; t = time.perf_counter(); import course_lib; print(time.perf_counter() - t)"
    times = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) for _ in range(7)
    ]
    yield Row("import", "import course_lib", statistics.median(times), "s", at_most=0.15)


# --- learning ---------------------------------------------------------------------------------------------


def recipes(
    words: data.TranslationData,
) -> dict[str, tuple[Callable[[], nn.Module], training.TrainConfig, int]]:
    """How each model of the course learns number words: model, training, batch size."""
    sizes = len(words.source_words), len(words.target_words)
    return {
        "Transformer": (
            lambda: Transformer(TransformerConfig(*sizes)),
            training.TrainConfig(steps=300, lr=5e-3, warmup=20, matmul="medium"),
            32,
        ),
        "RNN with attention": (
            lambda: AttentionSeq2Seq(Seq2SeqConfig(*sizes)),
            training.TrainConfig(steps=150, lr=1e-2, warmup=20),
            32,
        ),
        "RNN without attention": (
            lambda: Seq2Seq(Seq2SeqConfig(*sizes)),
            training.TrainConfig(steps=240, lr=1e-2, warmup=20),
            32,
        ),
    }


def learn(name: str, words: data.TranslationData, seed: int) -> tuple[float, float]:
    """CPU seconds of training, and exact match on numbers not seen."""
    make, config, size = recipes(words)[name]
    torch.manual_seed(seed)
    model = make()
    g = torch.Generator().manual_seed(seed)
    batches = data.batches(words.source_train, words.target_train, size, generator=g, steps=config.steps)
    start = time.process_time()
    training.fit(model, batches, config, progress=False)
    used = time.process_time() - start
    answers = greedy(model, words.source_test, max_length=words.target_test.shape[1])
    decode = words.target_words.decode
    wanted = [decode(row) for row in words.target_test]
    return used, exact_match([decode(row) for row in answers], wanted)


def bench_learning() -> Iterator[Row]:
    start = time.process_time()
    words = data.number_pairs()
    yield Row("learning", "making the data", time.process_time() - start, "CPU s", at_most=0.5)
    for name, at_most in (("Transformer", 2.0), ("RNN with attention", 5.0), ("RNN without attention", None)):
        runs = [learn(name, words, seed) for seed in range(3)]
        worst = min(match for _, match in runs)
        yield Row("learning", f"{name}: training, slowest of 3", max(t for t, _ in runs), "CPU s", at_most=at_most)
        floor = 0.99 if at_most else None
        yield Row("learning", f"{name}: exact match, worst of 3", worst, "", at_least=floor)


def bench_grading() -> Iterator[Row]:
    """Against nbgrader, which is installed into an environment of its own; and a class of a thousand."""
    from .grading import measure

    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = measure.measured(Path(folder) / "nbgrader")
    yield Row("grading", "nbgrader autograde, for each submission", theirs, "s")
    yield Row("grading", "course grade, for each submission", ours, "s")
    yield Row("grading", "times faster", theirs / ours, at_least=80)
    few, many = (measure.cost_of_course("04", n, jobs=2) for n in (100, 1000))
    yield Row("grading", "1,000 submissions of unit 04, two processes", many.seconds, "s", at_most=60)
    yield Row("grading", "memory: 1,000 submissions against 100", many.bytes / few.bytes, at_most=1.2)


GROUPS: dict[str, Callable[[], Iterator[Row]]] = {
    "attention": bench_attention,
    "multihead": bench_multihead,
    "step": bench_training_step,
    "decoding": bench_decoding,
    "memory": bench_memory,
    "import": bench_import,
    "learning": bench_learning,
    "grading": bench_grading,
}
ON_REQUEST = {"grading"}  # installs nbgrader, and takes minutes


# --- the command ------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "groups", nargs="*", metavar="GROUP", help=f"what to measure (all but grading): {', '.join(GROUPS)}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the table as JSON")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="torch's threads (1: least noise)")


def main(args: argparse.Namespace) -> int:
    """Measure, print row by row, and return 1 when a budget is broken."""
    unknown = set(args.groups) - set(GROUPS)
    if unknown:
        raise ValueError(f"There is no group {', '.join(sorted(unknown))}; there are: {', '.join(GROUPS)}.")
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    rows = []
    for group in args.groups or [group for group in GROUPS if group not in ON_REQUEST]:
        for row in GROUPS[group]():
            rows.append(row)
            verdict = "" if not row.budget else "ok" if row.met else "BROKEN"
            print(f"{row.name:58}{row.value:9.3f} {row.unit:6} {row.budget:8} {verdict}", flush=True)
    if args.json:
        args.json.write_text(json.dumps([asdict(row) | {"met": row.met} for row in rows], indent=1) + "\n")
    broken = [row for row in rows if not row.met]
    print(f"\n{len(rows)} figures, {len(broken)} over budget.")
    return 1 if broken else 0
