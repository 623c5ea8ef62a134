"""The GPU path without a GPU: every model of the course on a device that refuses what CUDA refuses.

Trained on the pretend GPU, a model has the CPU's parameters after every step: equal to the last bit, without
tolerance, because the pretend GPU runs the CPU's kernels. Three things must be made the same on both sides:
the attention kernel (`MATH`: the CPU's flash kernel is for the CPU only), the optimizer's kernel (fused), and
dropout, at a rate of a half (what is kept is then doubled: exact in whatever order torch multiplies).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pretend_gpu
import pytest
import torch
import torch.nn.functional as F
from pretend_gpu import NAME, Traffic
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from course_lib import (
    attention,
    blocks,
    decoding,
    device,
    efficient,
    masks,
    metrics,
    positions,
    rnn,
    sparse,
    training,
)
from course_lib import data as course_data
from course_lib.gpt import GPT, GPTConfig
from course_lib.seq2seq import AttentionSeq2Seq, Seq2Seq, Seq2SeqConfig
from course_lib.transformer import Transformer, TransformerConfig
from course_lib.transformer_xl import TransformerXL, TransformerXLConfig

pretend_gpu.install()

TWO_DEVICES = "Expected all tensors to be on the same device"
B, H, T, S, K, F_, C = 5, 2, 6, 7, 4, 9, 11  # sizes of everything, all different; D = H·K
D = H * K
DROPOUT = 0.5


@pytest.fixture(autouse=True)
def traffic(request: pytest.FixtureRequest) -> Iterator[Traffic]:
    if "where" in request.fixturenames:  # a test on real hardware: torch as it is
        yield Traffic()
        return
    with pretend_gpu.switched_on() as traffic, sdpa_kernel(SDPBackend.MATH):
        yield traffic


# --- The models: one line each, name → (how to make it, what it reads) --------------------------------------


class Reader(nn.Module):
    """A small language model around any layer that maps (B, T, D) to (B, T, D)."""

    def __init__(self, layer: Callable[[Tensor], Tensor]):
        super().__init__()
        self.embedding = nn.Embedding(C, D)
        self.layer = layer
        self.output = nn.Linear(D, C)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return self.output(self.layer(self.embedding(tokens_BT)))


class Causal(nn.Module):
    """GPT's block with some kind of positions in its scores."""

    def __init__(self, kind: positions.ScorePositions):
        super().__init__()
        self.block = blocks.EncoderBlock(D, H, F_, positions=kind, dropout=DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x, causal=True)


class Heads(nn.Module):
    """Queries, keys and values in heads for any function of the three."""

    def __init__(self, attend: Callable[[Tensor, Tensor, Tensor], Tensor]):
        super().__init__()
        self.w = nn.Linear(D, 3 * D)
        self.attend = attend

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (attention.split_heads(part, H) for part in self.w(x).chunk(3, dim=-1))
        return attention.merge_heads(self.attend(q, k, v))


class First(nn.Module):
    """An encoder that returns more than its states, or needs lengths: what it says of each word."""

    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.arange(x.shape[0], device=x.device) % x.shape[1] + 1
        out = self.encoder(x, lengths)
        return out[0] if isinstance(out, tuple) else out


class Segments(nn.Module):
    """A text read in three parts, each with the memory of those before."""

    def __init__(self, model: TransformerXL):
        super().__init__()
        self.model = model

    def forward(self, tokens_BT: Tensor) -> Tensor:
        memory, logits = None, []
        for part in tokens_BT.chunk(3, dim=1):
            part_logits, memory = self.model(part, memory)
            logits.append(part_logits)
        return torch.cat(logits, dim=1)


def walk(pattern: Callable[[int], efficient.Pattern]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Attention over a sparse pattern, which is made for as many tokens as there are."""
    return lambda q, k, v: efficient.attend(q, k, v, pattern(q.shape[-2]))


def translation() -> list[tuple[Tensor, ...]]:
    """Batches (source, target_in, target_out), padded at the end."""
    return [(padded(B, S), *padded_pair(B, T)) for _ in range(3)]


def text() -> list[tuple[Tensor, ...]]:
    """Batches (tokens, next_tokens), padded at the end."""
    return [padded_pair(B, T) for _ in range(3)]


def padded_pair(rows: int, length: int) -> tuple[Tensor, Tensor]:
    tokens = padded(rows, length + 1)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def padded(rows: int, length: int) -> Tensor:
    """Words 3 … C − 1; the first row is full, the others end earlier."""
    tokens = torch.randint(3, C, (rows, length))
    lengths = length - torch.arange(rows) % (length - 2)
    return tokens.masked_fill(torch.arange(length) >= lengths[:, None], 0)


def transformer(**options: Any) -> Transformer:
    sizes = dict(d_model=D, heads=H, d_ff=F_, dropout=DROPOUT)
    return Transformer(TransformerConfig(C, C, **(sizes | options)))


def recurrent(kind: type[Seq2Seq] | type[AttentionSeq2Seq], **options: Any) -> nn.Module:
    sizes = dict(d_embed=D, d_hidden=K, d_attention=F_)
    return kind(Seq2SeqConfig(C, C, **(sizes | options)))


def gpt(**options: Any) -> GPT:
    return GPT(GPTConfig(C, **(dict(max_length=24, d_model=D, heads=H, dropout=DROPOUT) | options)))


def transformer_xl() -> TransformerXL:
    sizes = dict(d_model=D, heads=H, layers=2, d_ff=F_, memory=3, dropout=DROPOUT)
    return TransformerXL(TransformerXLConfig(C, **sizes))


TRANSLATORS: dict[str, Callable[[], nn.Module]] = {
    "rnn": lambda: recurrent(Seq2Seq, cell="rnn"),
    "gru, left to right": lambda: recurrent(Seq2Seq, bidirectional=False),
    "lstm": lambda: recurrent(Seq2Seq, cell="lstm"),
    "attention, gru": lambda: recurrent(AttentionSeq2Seq),
    "attention, lstm": lambda: recurrent(AttentionSeq2Seq, cell="lstm", bidirectional=False),
    "transformer": transformer,
    "transformer, post-norm, shared table": lambda: transformer(
        pre_norm=False, final_norm=False, share_embeddings=True, encoder_layers=2
    ),
}
LANGUAGE_MODELS: dict[str, Callable[[], nn.Module]] = {
    "gpt": gpt,
    "gpt with bands": lambda: gpt(band=2),
    "transformer-xl": transformer_xl,
}
READERS: dict[str, Callable[[], Callable[[Tensor], Tensor]]] = {
    "self-attention without parameters": lambda: attention.self_attention,
    "sinusoidal positions": lambda: positions.SinusoidalPositions(D),
    "learned positions": lambda: positions.LearnedPositions(T, D),
    "rotary": lambda: Causal(positions.Rotary(K)),
    "alibi": lambda: Causal(positions.Alibi(H)),
    "shaw": lambda: Causal(positions.RelativePositions(K, 3)),
    "deberta": lambda: Causal(positions.Disentangled(H, K, 3)),
    "explicit attention": lambda: Heads(lambda q, k, v: attention.explicit(q, k, v, causal=True)[0]),
    "tiled attention": lambda: Heads(partial(efficient.tiled, causal=True, tile=4)),
    "window": lambda: Heads(walk(partial(sparse.window, radius=1))),
    "strided": lambda: Heads(walk(partial(sparse.strided, stride=2))),
    "fixed": lambda: Heads(walk(partial(sparse.fixed, size=3, summary=2))),
    "bigbird": lambda: Heads(walk(partial(sparse.bigbird, size=2, random_blocks=1, radius=0))),
    "linformer": lambda: Heads(efficient.Linformer(T, 3)),
    "bidirectional rnn": lambda: First(rnn.Bidirectional(D, K, "rnn")),
    "word windows": lambda: First(rnn.WindowEncoder(D, D, layers=2)),
    "layer norm by hand": lambda: lambda x: blocks.layer_norm(x, x.new_ones(D), x.new_zeros(D)),
}

MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], list[tuple[Tensor, ...]]]]] = {
    **{name: (make, translation) for name, make in TRANSLATORS.items()},
    **{name: (make, text) for name, make in LANGUAGE_MODELS.items()},
    "transformer-xl in segments": (lambda: Segments(transformer_xl()), text),
    **{name: ((lambda make=make: Reader(make())), text) for name, make in READERS.items()},  # type: ignore[misc]
}


def made(make: Callable[[], nn.Module], device: str = "cpu", seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return make().to(device)


# --- Training: the CPU's parameters, after every step -------------------------------------------------------


@dataclass
class Trained:
    steps: list[dict[str, Tensor]]
    losses: list[float]


def train(
    make: Callable[[], nn.Module],
    batches: Callable[[], list[tuple[Tensor, ...]]],
    device: str,
    steps: int = 3,
    **options: Any,
) -> Trained:
    """`fit` for some steps, and all parameters and buffers after each of them."""
    model = made(make)
    torch.manual_seed(1)
    data = batches()[:steps]
    seen: list[dict[str, Tensor]] = []
    torch.manual_seed(2)  # dropout
    history = training.fit(
        model,
        data,
        training.TrainConfig(steps=len(data), warmup=1, **({"smoothing": 0.1} | options)),
        device=device,
        progress=False,
        on_step=lambda step: seen.append({name: t.clone() for name, t in model.state_dict().items()}),
    )
    return Trained(seen, history.losses)


@pytest.fixture
def same_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fused AdamW on every device: `fit` may choose another where it does not know the device."""
    adamw = torch.optim.AdamW
    monkeypatch.setattr(torch.optim, "AdamW", lambda *args, **more: adamw(*args, **(more | {"fused": True})))


@pytest.mark.usefixtures("same_optimizer")
@pytest.mark.parametrize("name", MODELS)
def test_after_every_step_all_parameters_are_the_cpus(name):
    there, here = (train(*MODELS[name], where) for where in (NAME, "cpu"))
    assert there.losses == here.losses and len(there.steps) == 3
    for mine, cpu in zip(there.steps, here.steps, strict=True):
        assert mine.keys() == cpu.keys()
        assert all(tensor.device.type == NAME for tensor in mine.values())
        different = [key for key, tensor in mine.items() if not torch.equal(tensor.cpu(), cpu[key])]
        assert not different
    assert any(not torch.equal(here.steps[0][key], here.steps[1][key]) for key in here.steps[0])  # it did learn


@pytest.mark.usefixtures("same_optimizer")
@pytest.mark.parametrize("name", ["transformer", "gpt with bands"])
def test_checkpointing_recomputes_the_same_numbers(name):
    there, here = train(*MODELS[name], NAME, recompute=True), train(*MODELS[name], "cpu")
    assert there.losses == here.losses
    assert all(torch.equal(t.cpu(), here.steps[-1][key]) for key, t in there.steps[-1].items())


@pytest.mark.usefixtures("same_optimizer")
def test_a_batch_in_parts_gives_the_same_numbers():
    there, here = (train(*MODELS["transformer"], where, accumulate=3) for where in (NAME, "cpu"))
    assert there.losses == here.losses
    assert all(torch.equal(t.cpu(), here.steps[-1][key]) for key, t in there.steps[-1].items())


def test_the_optimizer_that_fit_chooses_for_the_device_agrees_within_rounding():
    there, here = (train(*MODELS["transformer"], where) for where in (NAME, "cpu"))
    assert there.losses == pytest.approx(here.losses, rel=1e-5)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["attention, lstm", "transformer", "gpt with bands", "rotary", "tiled attention"])
def test_mixed_precision_trains_close_to_float32(name, precision):
    there, here = train(*MODELS[name], NAME, precision=precision), train(*MODELS[name], "cpu")
    assert there.losses == pytest.approx(here.losses, rel=0.03)
    assert there.losses != here.losses
    assert all(t.dtype == here.steps[-1][key].dtype for key, t in there.steps[-1].items())


def test_mixed_precision_is_that_of_the_device():
    model, (batch, *_) = made(MODELS["transformer"][0], NAME), translation()
    with training.autocast(torch.device(NAME), "bfloat16"):
        assert model(*(t.to(NAME) for t in batch[:-1])).dtype == torch.bfloat16


def test_a_run_goes_on_from_a_checkpoint_on_the_device(tmp_path):
    data = translation()
    config = training.TrainConfig(steps=3, warmup=1)
    fit = partial(training.fit, config=config, device=NAME, progress=False)
    whole, cut = made(transformer), made(transformer)
    torch.manual_seed(2)
    fit(whole, data)
    torch.manual_seed(2)
    fit(cut, data, checkpoint=tmp_path / "run.pt", on_step=lambda step: step == 2)
    again = made(transformer, seed=9)
    torch.manual_seed(7)  # of no effect: where the generators stood is in the checkpoint
    history = fit(again, data, checkpoint=tmp_path / "run.pt", resume=True)
    assert len(history.losses) == 3
    for mine, other in zip(again.parameters(), whole.parameters(), strict=True):
        assert mine.device.type == NAME and torch.equal(mine, other)


def test_evaluation_is_the_cpus():
    data = translation()
    here, there = (training.evaluate(made(transformer, where), data) for where in ("cpu", NAME))
    assert here == there


def test_models_live_with_a_default_device():
    torch.set_default_device(NAME)  # what some notebooks begin with
    try:
        words = torch.randint(3, C, (B, T))
        model = transformer()
        training.fit(model, [(words, words, words)], training.TrainConfig(steps=1), progress=False)
        assert decoding.greedy(model, words, max_length=3).device.type == NAME
        assert masks.causal(T).device.type == sparse.window(T, 1).mask().device.type == NAME
    finally:
        torch.set_default_device(None)


# --- Functions beside the models ----------------------------------------------------------------------------

Draw = Callable[..., Tensor]
FUNCTIONS: dict[str, Callable[[Draw, str], Tensor]] = {
    "additive attention": lambda x, where: made(lambda: attention.AdditiveAttention(D, K, F_), where)(
        x(B, D), x(B, S, K), x(B, S) > 0
    )[0],
    "dot scores": lambda x, where: attention.dot_scores(x(B, D), x(B, S, D)),
    "general scores": lambda x, where: attention.general_scores(x(B, D), x(B, S, K), x(D, K)),
    "softmax": lambda x, where: attention.softmax(x(T, S)),
    "masked softmax with an empty row": lambda x, where: attention.masked_softmax(
        x(T, S), torch.arange(T, device=where)[:, None] > 2
    ),
    "relative attention": lambda x, where: positions.relative_attention(
        x(H, T, K), x(H, S, K), x(H, S, K), x(5, K), x(5, K)
    )[0],
    "disentangled scores": lambda x, where: positions.disentangled_scores(x(H, T, K), x(H, S, K), x(6, K), x(6, K), 3),
    "rotation by given positions": lambda x, where: positions.rotate(x(T, K), torch.arange(T, device=where)),
    "causal mask after a cache": lambda x, where: masks.causal(T, S, device=where),
    "padding": lambda x, where: masks.padding(torch.tensor([2, S, 1], device=where)),
    "strided mask": lambda x, where: masks.strided(T, 2, device=where),
    "fixed mask": lambda x, where: masks.fixed(T, 3, device=where),
    "global tokens": lambda x, where: masks.global_tokens(T, 2, device=where),
    "random mask": lambda x, where: masks.random(T, 3, seed=1, device=where),
    "block mask": lambda x, where: masks.block(x(2, 3) > 0, 2),
    "block-sparse attention": lambda x, where: efficient.attend(
        x(T, K), x(T, K), x(T, K), sparse.block_sparse(x(3, 3) > 0, 2, device=where)
    ),
    "a pattern's mask": lambda x, where: sparse.fixed(T, 3, 2, device=where).mask(device=where),
    "token accuracy": lambda x, where: metrics.token_accuracy(x(B, T, C), x(B, T).long(), 0),
    "filtered logits": lambda x, where: decoding.filter_logits(x(B, C), 5, 0.7),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_stay_on_the_device_and_give_the_cpus_values(name):
    def run(where: str) -> Tensor:
        generator = torch.Generator().manual_seed(5)
        return FUNCTIONS[name](lambda *size: torch.randn(*size, generator=generator).to(where), where)

    there, here = run(NAME), run("cpu")
    assert there.device.type == NAME and torch.equal(there.cpu(), here)


def test_weights_are_recorded_where_they_are_computed():
    model, tokens = made(gpt, NAME).eval(), padded(B, T).to(NAME)
    with attention.record_weights(model) as recorded:
        model(tokens)
    assert {weights.device.type for calls in recorded.values() for weights in calls} == {NAME}


def test_data_reaches_the_device_and_words_come_back():
    words = course_data.Vocabulary((*course_data.SPECIALS, *"abcdefg"))
    source, target = padded(B, S), padded(B, T)
    batch = next(course_data.batches(source, target, 3, generator=device.generator(1), device=NAME))
    assert {t.device.type for t in batch} == {NAME}
    assert words.decode(source[0].to(NAME)) == words.decode(source[0])
    stream = course_data.next_token_windows(range(C), 4, 2, device.generator(1), 1, device=NAME)
    assert {t.device.type for t in next(stream)} == {NAME}


# --- Decoding -----------------------------------------------------------------------------------------------


def decode(name: str, how: Callable[[nn.Module, Tensor], Tensor | tuple[Tensor, ...]], where: str) -> list[Tensor]:
    """What a model says to some sources (a language model: to some prompts), on the CPU."""
    torch.manual_seed(3)
    model, words = made(MODELS[name][0], where), padded(B, 4)
    out = how(model, words)
    return [t.cpu() for t in (out if isinstance(out, tuple) else (out,))]


def draw(model: nn.Module, prompt: Tensor, **options: Any) -> Tensor:
    where = next(model.parameters()).device
    return decoding.sample(model, prompt, generator=device.generator(4, where), **options)


def translate_by_chance(model: nn.Module, source: Tensor) -> Tensor:
    first = torch.ones(len(source), 1, dtype=torch.long)
    return draw(model, first, source=source, steps=9, top_p=0.8, eos=2)


WAYS: dict[str, tuple[dict[str, Any], Callable[[nn.Module, Tensor], Any]]] = {
    "greedy": (TRANSLATORS, partial(decoding.greedy, max_length=9)),
    "beam": (TRANSLATORS, partial(decoding.beam, max_length=9, width=3)),
    "sampled translation": (TRANSLATORS, translate_by_chance),
    "sampled": (LANGUAGE_MODELS, partial(draw, steps=9, temperature=0.7)),
    "top-k": (LANGUAGE_MODELS, partial(draw, steps=9, top_k=3)),
    "top-p": (LANGUAGE_MODELS, partial(draw, steps=9, top_p=0.7)),
    "beyond the longest text": (LANGUAGE_MODELS, partial(draw, steps=30, crop=True)),
}


@pytest.mark.parametrize(("way", "name"), [(way, name) for way, (names, _) in WAYS.items() for name in names])
def test_decoding_says_what_the_cpu_says(way, name):
    for there, here in zip(*(decode(name, WAYS[way][1], where) for where in (NAME, "cpu")), strict=True):
        assert torch.equal(there, here)


@pytest.mark.parametrize("name", ["attention, gru", "transformer"])
@pytest.mark.parametrize(("search", "check_every"), [(decoding.greedy, 3), (decoding.greedy, 8), (decoding.beam, 4)])
def test_searching_waits_once_in_a_while_and_not_for_every_token(name, search, check_every):
    model, source = made(MODELS[name][0], NAME), padded(B, 4).to(NAME)
    nobody_says = C + 5  # so that no row ends early
    with pretend_gpu.switched_on() as traffic:
        search(model, source, max_length=12, check_every=check_every, eos=nobody_says)
    assert 1 <= traffic.waits <= 12 // check_every + 1  # one more, for the length of the answer
    assert traffic.uploads <= 2  # tables of positions


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.7}])
def test_sampling_waits_at_most_once_for_a_token(options, traffic):
    model, prompt = made(gpt, NAME), padded(B, 4).to(NAME)
    draw(model, prompt, steps=9, **options)
    assert traffic.waits <= 9
    traffic.syncs.clear()
    draw(model, prompt, steps=9, temperature=0.0)
    assert traffic.waits == 0


@pytest.mark.parametrize("name", ["attention, gru", "transformer", "gpt with bands"])
def test_training_waits_only_when_it_looks_at_the_loss(name, traffic):
    def waits(steps: int) -> int:
        model, data = made(MODELS[name][0], NAME), (MODELS[name][1]() * 3)[:steps]
        traffic.syncs.clear()
        config = training.TrainConfig(steps=steps, log_every=steps)
        training.fit(model, data, config, progress=False)
        return traffic.waits

    assert waits(7) == waits(2) <= 3


# --- Planted bugs: each invisible on the CPU, each caught ---------------------------------------------------


@dataclass(frozen=True)
class Bug:
    """A mistake that a test on the CPU cannot see, and a use of the library in which it shows on a GPU."""

    plant: Callable[[pytest.MonkeyPatch], None]
    use: Callable[[str], object]
    message: str = TWO_DEVICES
    error: type[Exception] = RuntimeError


def fitting(name: str) -> Callable[[str], object]:
    return lambda where: train(*MODELS[name], where, steps=1, smoothing=0.0)


def saying(way: str, name: str) -> Callable[[str], object]:
    return lambda where: decode(name, WAYS[way][1], where)


def replace(target: Any, name: str, new: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Plant `new(the old one)` in its place."""
    return lambda monkeypatch: monkeypatch.setattr(target, name, new(getattr(target, name)))


def forgetful(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes `device` and does not pass it on."""
    return lambda *args, device=None, **more: make(*args, **more)


def on_cpu(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose result was made without a device."""
    return lambda *args, **more: make(*args, **more).cpu()


def constant_not_registered(old: Any) -> Callable[..., Any]:
    """LayerNorm with its gain as a plain tensor: `.to(device)` does not find it."""

    def init(self: Any, d_model: int, eps: float = 1e-5) -> None:
        old(self, d_model, eps)
        del self.gain
        self.gain = torch.ones(d_model)

    return init


def half_a_batch(old: Any) -> Callable[..., Any]:
    return lambda batch, where: (*old(batch, where)[:-1], batch[-1])


def weighted_loss(old: Any) -> Callable[..., Any]:
    """Cross entropy with a weight for each word, made on the CPU."""

    def cross_entropy(logits: Tensor, targets: Tensor, **more: Any) -> Tensor:
        return old(logits, targets, **(more | {"weight": torch.ones(logits.shape[-1])}))

    return cross_entropy


def started_with_zeros(old: Any) -> Callable[..., Any]:
    """A cache that begins with an empty tensor of its own."""

    def start(self: GPT, batch: int) -> Any:
        nothing = torch.zeros(batch, H, 0, K)
        return tuple(attention.KeyValue(nothing, nothing) for _ in self.blocks)

    return start


def zeros_of_the_cpu(old: Any) -> Callable[..., Any]:
    return lambda self, x: self.state(torch.zeros(len(x), self.parts * self.d_hidden))


def half_on_cpu(part: str) -> Callable[..., Any]:
    """The first beams with their tokens, or their scores, made without a device."""
    return lambda old: lambda *args: (beams := old(*args))._replace(**{part: getattr(beams, part).cpu()})


def padded_by_hand(old: Any) -> Callable[..., Any]:
    """Word windows that put zeros in front of and behind a sentence with `cat`."""

    def windows(x: Tensor, window: int) -> Tensor:
        edge = torch.zeros(x.shape[0], window // 2, x.shape[2])
        return torch.cat([edge, x, edge], dim=1).unfold(1, window, 1).mT.flatten(-2)

    return windows


def written_by_index(old: Any) -> Callable[..., Any]:
    """top-k that writes −∞ to all other places, from a tensor of its own."""

    def filter_logits(logits: Tensor, top_k: int | None = None, top_p: float | None = None) -> Tensor:
        order = logits.argsort(dim=-1, descending=True)[:, top_k or 1 :]
        rows = torch.arange(len(logits), device=logits.device)[:, None]
        logits = logits.clone()
        logits[rows, order] = torch.full(order.shape, -torch.inf)
        return logits

    return filter_logits


def table_on_cpu(old: Any) -> Callable[..., Any]:
    """Shaw's bias from a table that is looked up where it was made: on the CPU, by an index on the device."""

    def relative_bias(q: Tensor, k: Tensor, key_table: Tensor) -> Tensor:
        a_TSK = key_table.detach().cpu()[positions.shaw_rows(q, k, key_table)]
        return torch.einsum("bhtk,tsk->bhts", q, a_TSK)

    return relative_bias


def unchecked_generator(old: Any) -> Callable[..., Any]:
    """Sampling from a generator that somebody made on the CPU."""

    def drawer(temperature: float, top_k: Any, top_p: Any, generator: Any) -> Callable[[Tensor], Tensor]:
        on_the_cpu = torch.Generator().manual_seed(1)
        return lambda logits: torch.multinomial(logits.softmax(-1), 1, generator=on_the_cpu).squeeze(1)

    return drawer


def read_as_numpy(old: Any) -> Callable[..., Any]:
    """Losses read without `.cpu()` before."""

    def read(self: training.History, **more: Any) -> None:
        torch.stack([loss for loss, *_ in self.waiting]).numpy()
        old(self, **more)

    return read


def cached_on_first_use(old: Any) -> Callable[..., Any]:
    """A mask that is kept from the first call on, whatever device that was for."""
    kept = cache(lambda length, keys: old(length, keys))
    return lambda length, keys=None, *, device=None: kept(length, keys)


BUGS: dict[str, Bug] = {
    "arange without a device, in a mask": Bug(
        replace(masks, "_grid", lambda old: lambda queries, keys, device: old(queries, keys, None)),
        fitting("gpt with bands"),
    ),
    "padding mask built on the CPU": Bug(replace(masks, "not_pad", on_cpu), fitting("transformer")),
    "causal mask cached on its first device": Bug(
        replace(masks, "causal", cached_on_first_use), fitting("explicit attention")
    ),
    "constant as an attribute, not a buffer": Bug(
        replace(blocks.LayerNorm, "__init__", constant_not_registered), fitting("gpt")
    ),
    "table of positions left on the CPU": Bug(
        replace(positions, "sinusoidal", forgetful), fitting("transformer")
    ),
    "rotary table left on the CPU": Bug(replace(positions.SinusoidTable, "rows", on_cpu), fitting("rotary")),
    "ALiBi's slopes without a device": Bug(replace(positions, "alibi_slopes", forgetful), fitting("alibi")),
    "CPU table looked up by a device index": Bug(
        replace(positions, "relative_bias", table_on_cpu), fitting("shaw"), "indices should be either on cpu"
    ),
    "first state of an RNN on the CPU": Bug(
        replace(rnn.Cell, "zeros", zeros_of_the_cpu),
        fitting("gru, left to right"),
    ),
    "cat with zeros of the CPU": Bug(replace(rnn, "windows", padded_by_hand), fitting("word windows")),
    "target of the loss left on the CPU": Bug(replace(training, "on_device", half_a_batch), fitting("gpt")),
    "weights of the loss on the CPU": Bug(
        replace(F, "cross_entropy", weighted_loss), fitting("gpt")
    ),
    "indices of an embedding on the CPU": Bug(
        replace(decoding, "tokens_for", lambda old: lambda model, tokens, name: tokens),
        saying("greedy", "transformer"),
    ),
    "cache that begins on the CPU": Bug(replace(GPT, "start", started_with_zeros), saying("top-k", "gpt")),
    "CPU values written by index": Bug(
        replace(decoding, "filter_logits", written_by_index), saying("top-k", "gpt")
    ),
    "beam scores on the CPU": Bug(
        replace(decoding, "first_beams", half_on_cpu("scores")),
        saying("beam", "transformer"),
    ),
    "beam tokens on the CPU": Bug(
        replace(decoding, "first_beams", half_on_cpu("tokens")),
        saying("beam", "transformer"),
    ),
    "rows of a beam counted on the CPU": Bug(
        replace(decoding, "rows_of", on_cpu), saying("beam", "attention, gru")
    ),
    "generator of the CPU": Bug(
        replace(decoding, "drawer", unchecked_generator), saying("sampled", "gpt"), "type for generator"
    ),
    "NumPy without cpu()": Bug(
        replace(training.History, "read", read_as_numpy), fitting("gpt"), "to numpy", TypeError
    ),
    "memory kept on the CPU": Bug(
        replace(TransformerXL, "_remember", on_cpu), fitting("transformer-xl in segments")
    ),
    "column of a tile on the CPU": Bug(
        replace(efficient.Tile, "to", lambda old: lambda self, where: self), fitting("fixed")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_device_bug_is_caught(name, monkeypatch):
    bug = BUGS[name]
    bug.use(NAME)  # without the bug it works
    bug.plant(monkeypatch)
    bug.use("cpu")  # and on the CPU nobody sees it
    with pytest.raises(bug.error, match=bug.message):
        bug.use(NAME)


def test_a_planted_wait_is_caught(monkeypatch):
    monkeypatch.setattr(
        decoding,
        "most_probable",
        lambda logits: torch.tensor([int(r.argmax()) for r in logits]).to(logits.device),
    )
    with pretend_gpu.switched_on() as traffic:
        decode("transformer", WAYS["greedy"][1], NAME)
    assert traffic.waits > 9


def test_autocast_for_the_wrong_device_is_caught(monkeypatch):
    monkeypatch.setattr(training, "autocast", lambda where, precision: torch.autocast("cpu", torch.bfloat16))
    with pytest.raises(AssertionError):
        test_mixed_precision_is_that_of_the_device()


# --- Real hardware ------------------------------------------------------------------------------------------

HARDWARE = {
    "cuda": "no CUDA device that torch can use: it needs an NVIDIA GPU, its driver, and a torch with CUDA",
    "mps": "no MPS device that torch can use: it needs a Mac with Apple silicon",
}


def on_hardware(*names: str) -> pytest.MarkDecorator:
    """One test for each device and name; for a device that is not there one that says why it was skipped."""
    cases = []
    for where, reason in HARDWARE.items():
        if where in device.available_devices():
            cases += [pytest.param(where, name, id=f"{where}-{name}") for name in names]
        else:
            cases.append(pytest.param(where, "", id=where, marks=pytest.mark.skip(reason=reason)))
    return pytest.mark.parametrize(("where", "name"), cases)


@pytest.fixture
def no_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real GPU's generator draws other numbers than the CPU's."""
    monkeypatch.setattr(sys.modules[__name__], "DROPOUT", 0.0)


@pytest.mark.usefixtures("no_dropout")
@on_hardware(*MODELS)
def test_real_hardware_has_the_cpus_gradients_within_rounding(where, name):
    make, batches = MODELS[name]
    here, there = made(make), made(make, where)
    torch.manual_seed(1)
    batch, config = batches()[0], training.TrainConfig(steps=1)
    loss = training.add_gradients(here, batch, config).item()
    there_loss = training.add_gradients(there, [t.to(where) for t in batch], config).item()
    assert there_loss == pytest.approx(loss, rel=1e-4)
    for mine, cpu in zip(there.parameters(), here.parameters(), strict=True):
        assert mine.device.type == where and (mine.grad is None) == (cpu.grad is None)
        assert mine.grad is None or torch.allclose(mine.grad.cpu(), cpu.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("no_dropout")
@on_hardware(*MODELS)
def test_real_hardware_trains_as_the_cpu_does(where, name):
    # Losses and not parameters: where a gradient is nothing but rounding, Adam makes it a step of full size.
    there, here = (train(*MODELS[name], on) for on in (where, "cpu"))
    assert there.losses == pytest.approx(here.losses, rel=1e-3)
    assert all(tensor.device.type == where for tensor in there.steps[-1].values())


@pytest.mark.usefixtures("no_dropout")
@on_hardware("attention, gru", "transformer", "gpt with bands")
def test_real_hardware_trains_in_mixed_precision(where, name):
    there, here = train(*MODELS[name], where, precision="bfloat16"), train(*MODELS[name], "cpu")
    assert there.losses == pytest.approx(here.losses, rel=0.05)


@on_hardware(*TRANSLATORS)
def test_real_hardware_says_what_the_cpu_says(where, name):
    for way in ("greedy", "beam"):
        there, here = (decode(name, WAYS[way][1], on)[0] for on in (where, "cpu"))
        assert torch.equal(there, here)


@on_hardware("rules")
def test_real_hardware_refuses_what_the_pretend_one_refuses(where, name):
    with pytest.raises(RuntimeError, match=TWO_DEVICES):
        torch.ones(2, device=where) + torch.ones(2)
    assert (torch.ones(2, device=where) + torch.tensor(1.0)).device.type == where
    with pytest.raises(TypeError, match="to numpy"):
        torch.ones(2, device=where).numpy()
