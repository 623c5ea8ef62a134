"""Unit 13, training within a budget: gradients in parts, activations computed again, precision, and the capstone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data import BOS, EOS, PAD, Vocabulary, encode_pairs, number_vocabulary
from ..handed_in import FILE, held_back
from ..number_words import speller
from ..parts import Parts
from .declare import Case, Check, Draw, Exercise, Misconception

MEMORY = ("13", "Training keeps four things in memory")
ACCUMULATE = ("13", "A batch in parts has the gradient of the whole")
AGAIN = ("13", "Checkpointing forgets, and computes again")
FLOATS = ("13", "bfloat16 keeps the range and drops the digits")
WAIT = ("13", "A Transformer's words do not wait for each other")
BUILD = ("13", "The last model is made of your own parts")


# --- 13.1 ---------------------------------------------------------------------------------------------------


def megabytes_by_hand() -> Any:
    """Five amounts of memory in MB (a million bytes), worked out with pencil and paper.

    A model of 1,000,000 parameters is trained with Adam, which keeps two averages for each parameter. Everything is in
    float32, 4 bytes a number. It has 4 layers; for the way back each layer keeps 10 tensors of the shape (B, T, D),
    with B = 32 sentences, T = 50 words and D = 250; its input is the first of the ten.
    1. parameters, their gradients and Adam's averages, together      2. what all layers keep for the way back
    3. as 2, when the batch goes through in 4 parts                   4. as 2, when all that is kept is in bfloat16
    5. as 2, with checkpointing: every layer keeps its input only, and one layer at a time makes its other nine again
    """
    return [16, 64, 16, 32, 20.8]


MEGABYTES = Exercise(
    id="13.1",
    title="Megabytes by hand",
    answer="course_lib.exercises.u13.megabytes_by_hand",
    minutes=6,
    outcomes=("13-e",),
    checks=(Check("five amounts of memory", 2),),
    cases=lambda draw: [Case("five amounts of memory")],
    hints=(
        "How many numbers are kept for each parameter? Count the parameter itself, its gradient, and what Adam remembers.",
        "One tensor of shape (32, 50, 250) has 400,000 numbers: 1.6 MB in float32. How many such tensors are kept?",
        "With checkpointing there are the four inputs and, while one layer is computed again, nine more tensors: 13 of them.",
    ),
    misconceptions=(
        Misconception(
            "the parameters alone",
            lambda: [4, 64, 16, 32, 20.8],
            "The first amount is that of the parameters alone. Each of them has a gradient and two averages besides.",
            MEMORY,
        ),
        Misconception(
            "no averages",
            lambda: [8, 64, 16, 32, 20.8],
            "Adam's two averages are missing in the first amount: four numbers for each parameter, not two.",
            MEMORY,
        ),
        Misconception(
            "one average",
            lambda: [12, 64, 16, 32, 20.8],
            "Adam keeps two averages for each parameter, of the gradient and of its square: four numbers in all.",
            MEMORY,
        ),
        Misconception(
            "one layer",
            lambda: [16, 16, 4, 8, 20.8],
            "You counted one layer. All four keep their tensors until the way back has come to them.",
            MEMORY,
        ),
        Misconception(
            "only the inputs",
            lambda: [16, 64, 16, 32, 6.4],
            "The inputs are right, 4 · 1.6 MB. But the layer that is computed again needs room for its other tensors.",
            AGAIN,
        ),
        Misconception(
            "the input counted twice",
            lambda: [16, 64, 16, 32, 22.4],
            "The input of the layer that is computed again is among the four that were kept: nine more tensors, not ten.",
            AGAIN,
        ),
        Misconception(
            "bytes forgotten",
            lambda: [4, 16, 4, 8, 5.2],
            "These are millions of numbers. In float32 each takes four bytes.",
            MEMORY,
        ),
    ),
    prediction=True,
)


# --- 13.2 ---------------------------------------------------------------------------------------------------


class SmallRoom(nn.Module):
    """Logits for the next token; it has room for a few sentences at a time, and for one part's way back."""

    def __init__(self, embedding: Tensor, output: Tensor, room: int):
        super().__init__()
        self.embedding, self.output = nn.Parameter(embedding), nn.Parameter(output)
        self.room, self.open = room, 0

    def forward(self, tokens: Tensor) -> Tensor:
        if len(tokens) > self.room:
            raise RuntimeError(f"out of memory: {len(tokens)} sentences at once, and there is room for {self.room}")
        if self.open:
            raise RuntimeError("out of memory: the part before is still kept, since its backward() has not been called")
        logits = torch.tanh(self.embedding[tokens]) @ self.output
        if logits.requires_grad:
            self.open += 1
            logits.register_hook(self._went_back)
        return logits

    def _went_back(self, gradient: Tensor) -> None:
        self.open -= 1


def gradient_in_parts(model: Any, tokens: Tensor, targets: Tensor, pad: int, parts: int) -> Any:
    """Loss and gradient of a batch that is too large for the memory, one part after the other.

    model(tokens) gives logits (B, T, C); tokens and targets are (B, T). The loss is the mean of F.cross_entropy over all
    real tokens of the whole batch: where targets equals pad there is none. Cut the batch into `parts` by its rows
    (the last part may be smaller), and let each part go forward and backward before the next.
    The gradients of model are None at the start. Return the loss, one number, and the list [p.grad for each parameter p].
    """
    real = (targets != pad).sum()
    loss = torch.zeros((), dtype=torch.double)
    for some, wanted in zip(tokens.tensor_split(parts), targets.tensor_split(parts), strict=True):
        logits = model(some)
        part = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=pad, reduction="sum") / real
        part.backward()
        loss = loss + part.detach()
    return loss, [p.grad for p in model.parameters()]


def _parts_cases(draw: Draw) -> list[Case]:
    def case(check: str, lengths: tuple[int, ...], c: int, d: int, parts: int, pad: int = 0, note: str = "") -> Case:
        t = max(lengths)
        tokens, targets = (torch.from_numpy(draw.rng.integers(0, c - 1, (len(lengths), t))) for _ in range(2))
        real = torch.arange(t) < torch.tensor(lengths)[:, None]
        targets = torch.where(real, targets + (targets >= pad), pad)
        model = SmallRoom(draw.tensor(c, d), draw.tensor(d, c), math.ceil(len(lengths) / parts))
        return Case(check, (model, tokens, targets, pad, parts), note)

    one, even, uneven = "one part", "parts with as many words each", "parts with different numbers of words"
    return [
        case(one, (3, 2), 5, 2, 1, note="one part: the whole batch fits"),
        case(even, (4, 4), 5, 3, 2, note="two sentences of four words, two parts"),
        case(even, (3, 3, 3, 3, 3, 3), 7, 4, 3, note="six sentences of three words, three parts"),
        case(uneven, (5, 1), 6, 3, 2, note="a sentence of five words and one of one word, two parts"),
        case(uneven, (6, 2, 3, 1, 5), 8, 3, 2, pad=4, note="five sentences, two parts; padding is token 4"),
    ]


def _sums(model: Any, tokens: Tensor, targets: Tensor, pad: int) -> Tensor:
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), ignore_index=pad, reduction="sum")


def _in_parts(divide: Any, clear: bool = False, of: Any = None) -> Any:
    """Each part's loss is its sum divided by `divide(targets of the part, all targets, pad, parts)`."""

    def wrong(model: Any, tokens: Tensor, targets: Tensor, pad: int, parts: int) -> Any:
        total = torch.zeros((), dtype=torch.double)
        pairs = list(zip(tokens.tensor_split(parts), targets.tensor_split(parts), strict=True))
        for some, wanted in pairs if of is None else pairs[of]:
            if clear:
                model.zero_grad()
            loss = _sums(model, some, wanted, pad) / divide(wanted, targets, pad, parts)
            loss.backward()
            total = total + loss.detach()
        return total, [p.grad for p in model.parameters()]

    return wrong


def _real(targets: Tensor, pad: int) -> Tensor:
    return (targets != pad).sum()


def _padding_counts(model: Any, tokens: Tensor, targets: Tensor, pad: int, parts: int) -> Any:
    total = torch.zeros((), dtype=torch.double)
    for some, wanted in zip(tokens.tensor_split(parts), targets.tensor_split(parts), strict=True):
        loss = F.cross_entropy(model(some).flatten(0, 1), wanted.flatten(), reduction="sum") / targets.numel()
        loss.backward()
        total = total + loss.detach()
    return total, [p.grad for p in model.parameters()]


def _all_at_once(model: Any, tokens: Tensor, targets: Tensor, pad: int, parts: int) -> Any:
    loss = _sums(model, tokens, targets, pad) / _real(targets, pad)
    loss.backward()
    return loss, [p.grad for p in model.parameters()]


def _backward_at_the_end(model: Any, tokens: Tensor, targets: Tensor, pad: int, parts: int) -> Any:
    pairs = zip(tokens.tensor_split(parts), targets.tensor_split(parts), strict=True)
    loss = torch.stack([_sums(model, *pair, pad) for pair in pairs]).sum() / _real(targets, pad)
    loss.backward()
    return loss, [p.grad for p in model.parameters()]


def _last_loss_only(model: Any, tokens: Tensor, targets: Tensor, pad: int, parts: int) -> Any:
    _, gradients = _in_parts(lambda part, all_, pad, parts: _real(all_, pad))(model, tokens, targets, pad, parts)
    with torch.no_grad():
        model.open = 0
        some, wanted = tokens.tensor_split(parts)[-1], targets.tensor_split(parts)[-1]
        return _sums(model, some, wanted, pad) / _real(targets, pad), gradients


def _by_index(model: Any, tokens: Tensor, targets: Tensor, pad: int, parts: int) -> Any:
    size, count, losses = -(-len(tokens) // parts), int((targets != pad).sum()), []
    for start in range(0, len(tokens), size):
        logp = model(tokens[start : start + size]).log_softmax(-1)
        wanted = targets[start : start + size]
        nll = -logp.gather(-1, wanted[..., None])[..., 0]
        loss = (nll * (wanted != pad)).sum() / count
        loss.backward()
        losses.append(loss.item())
    return sum(losses), [p.grad for p in model.parameters()]


def _grad_by_grad(model: Any, tokens: Tensor, targets: Tensor, pad: int, parts: int) -> Any:
    weights, real = list(model.parameters()), (targets != pad).sum()
    sums, total = [torch.zeros_like(p) for p in weights], torch.zeros(())
    for some, wanted in zip(tokens.chunk(parts), targets.chunk(parts), strict=True):
        loss = _sums(model, some, wanted, pad)
        for kept, new in zip(sums, torch.autograd.grad(loss, weights), strict=True):
            kept += new
        total = total + loss.detach()
    return total / real, [s / real for s in sums]


def _weighted_means(model: Any, tokens: Tensor, targets: Tensor, pad: int, parts: int) -> Any:
    total = 0.0
    for some, wanted in zip(tokens.tensor_split(parts), targets.tensor_split(parts), strict=True):
        share = (wanted != pad).sum() / (targets != pad).sum()
        mean = F.cross_entropy(model(some).transpose(1, 2), wanted, ignore_index=pad)
        (mean * share).backward()
        total += float(mean * share)
    return torch.tensor(total), tuple(p.grad for p in model.parameters())


IN_PARTS = Exercise(
    id="13.2",
    title="A batch that does not fit",
    answer="course_lib.exercises.u13.gradient_in_parts",
    minutes=15,
    outcomes=("13-a",),
    checks=(
        Check("one part"),
        Check("parts with as many words each"),
        Check("parts with different numbers of words", 2),
    ),
    cases=_parts_cases,
    hints=(
        "Gradients add up by themselves: each backward() adds to .grad. What must each part's loss be divided by, so that "
        "the sum of all parts is the mean of the whole batch?",
        "By the number of real tokens of the whole batch, which you can count before the first part. So take "
        'F.cross_entropy with reduction="sum" and ignore_index=pad.',
        "real = (targets != pad).sum(); then for each pair of tokens.tensor_split(parts) and targets.tensor_split(parts): "
        "sum of the losses / real, backward(), and add its .detach() to the loss.",
    ),
    misconceptions=(
        Misconception(
            "mean of the means",
            _in_parts(lambda part, all_, pad, parts: _real(part, pad) * parts),
            "You averaged the parts' means. A word in a part with few words then counts more than others: divide every "
            "part's sum by the real tokens of the whole batch.",
            ACCUMULATE,
        ),
        Misconception(
            "sum of the means",
            _in_parts(lambda part, all_, pad, parts: _real(part, pad)),
            "You added the parts' means: loss and gradient are about as many times too large as there are parts.",
            ACCUMULATE,
        ),
        Misconception(
            "not divided at all",
            _in_parts(lambda part, all_, pad, parts: 1),
            "This is the sum over all words. Divide by the number of real tokens in the whole batch.",
            ACCUMULATE,
        ),
        Misconception(
            "zero_grad inside the loop",
            _in_parts(lambda part, all_, pad, parts: _real(all_, pad), clear=True),
            "Only the last part's gradient is left: zero_grad() inside the loop throws away what the others have added.",
            ACCUMULATE,
        ),
        Misconception(
            "only the first part",
            _in_parts(lambda part, all_, pad, parts: _real(all_, pad), of=slice(0, 1)),
            "Only the first part went through. Is the `return` inside the loop?",
            ACCUMULATE,
        ),
        Misconception(
            "divided by all places",
            _in_parts(lambda part, all_, pad, parts: all_.numel()),
            "You divided by all places of the batch, padding included.",
            ACCUMULATE,
        ),
        Misconception(
            "divided by the sentences",
            _in_parts(lambda part, all_, pad, parts: len(all_)),
            "You divided by the number of sentences. The mean is taken over words.",
            ACCUMULATE,
        ),
        Misconception(
            "divided twice",
            _in_parts(lambda part, all_, pad, parts: _real(all_, pad) * parts),
            "You divided by the number of parts as well. The real tokens of the whole batch are divisor enough.",
            ACCUMULATE,
        ),
        Misconception(
            "padding counted",
            _padding_counts,
            "Padding counts like a word: pass ignore_index=pad, and count real tokens only.",
            ACCUMULATE,
        ),
        Misconception(
            "all at once",
            _all_at_once,
            "The whole batch went through the model at once, and there is no room for that. Cut it by rows first.",
            ACCUMULATE,
        ),
        Misconception(
            "backward at the end",
            _backward_at_the_end,
            "backward() is called once, at the end: until then all parts keep what they need for the way back, and nothing "
            "is saved. Call it for each part.",
            ACCUMULATE,
        ),
        Misconception(
            "the last part's loss",
            _last_loss_only,
            "The gradients are right. The loss you return is that of the last part: add up those of all parts.",
            ACCUMULATE,
        ),
    ),
    alternatives=(_by_index, _grad_by_grad, _weighted_means),
)


# --- 13.3 ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class SmallStack:
    """Layers tanh(x W), one after the other, to be used like a list. They share little room for the way back."""

    weights: list[Tensor]
    room: int
    open: int = 0

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, place: Any) -> Any:
        chosen = range(len(self.weights))[place]
        return partial(self.run, chosen) if isinstance(chosen, int) else [partial(self.run, i) for i in chosen]

    def run(self, number: int, x: Tensor) -> Tensor:
        """Layer `number` of x; complains when more layers than there is room for keep something for the way back."""
        y = torch.tanh(x @ self.weights[number])
        if y.requires_grad:
            self.open += 1
            y.register_hook(self._went_back)
        if self.open > self.room:
            kept = f"{self.open} layers keep what they need for the way back"
            raise RuntimeError(f"out of memory: {kept}, and there is room for {self.room}")
        return y

    def _went_back(self, gradient: Tensor) -> None:
        self.open -= 1


def gradient_again(layers: Any, x: Tensor, every: int) -> Any:
    """The gradient of the sum of y = layers[-1](… layers[1](layers[0](x))) with respect to x, with little memory.

    layers is like a list of functions: layers[2](x), layers[2:4], len(layers), and a loop over them all work.
    Forward: no graph at all (torch.no_grad), and keep only the inputs of layers 0, every, 2·every, …
    Backward, the last group of layers first: compute the group's layers again from its kept input, now with a graph, and
    let the gradient that arrived from behind go through it: torch.autograd.grad(output, input, gradient).
    There is room for the graph of one group of `every` layers. Return the gradient, of the shape of x, and the list of
    kept inputs, first one first.
    """
    kept, y = [], x
    with torch.no_grad():
        for number, layer in enumerate(layers):
            if number % every == 0:
                kept.append(y)
            y = layer(y)
    gradient = torch.ones_like(y)
    for group in reversed(range(len(kept))):
        start = kept[group].detach().requires_grad_()
        y = start
        for layer in layers[group * every : (group + 1) * every]:
            y = layer(y)
        (gradient,) = torch.autograd.grad(y, start, gradient)
    return gradient, kept


def _again_cases(draw: Draw) -> list[Case]:
    def case(check: str, count: int, every: int, t: int, d: int, note: str) -> Case:
        layers = SmallStack([draw.tensor(d, d, size=0.8) for _ in range(count)], every)
        return Case(check, (layers, draw.tensor(t, d, size=0.7), every), note)

    one, whole, rest = "one group", "several groups", "a last group that is smaller"
    return [
        case(one, 2, 2, 1, 2, "two layers, one group"),
        case(whole, 4, 2, 2, 3, "four layers in groups of two"),
        case(whole, 3, 1, 3, 2, "three layers, each a group of its own"),
        case(rest, 5, 2, 2, 3, "five layers in groups of two"),
        case(rest, 7, 3, 4, 2, "seven layers in groups of three"),
    ]


def _forwards(layers: Any, x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def _kept(layers: Any, x: Tensor, every: int, shift: int = 0) -> list[Tensor]:
    kept = []
    with torch.no_grad():
        for number, layer in enumerate(layers):
            if number % every == shift % every:
                kept.append(x)
            x = layer(x)
    return kept


def _segments(layers: Any, every: int) -> list[Any]:
    return [layers[i : i + every] for i in range(0, len(layers), every)]


def _through(groups: Any, kept: Any, restart: bool = False, wrong_way: bool = False) -> Tensor:
    gradient = None
    pairs = list(zip(groups, kept, strict=True))
    for group, saved in pairs if wrong_way else reversed(pairs):
        start = saved.detach().requires_grad_()
        y = _forwards(group, start)
        (gradient,) = torch.autograd.grad(y, start, torch.ones_like(y) if gradient is None or restart else gradient)
    assert gradient is not None
    return gradient


def _no_checkpoints(layers: Any, x: Tensor, every: int) -> Any:
    start = x.detach().requires_grad_()
    y = _forwards(layers, start)
    return torch.autograd.grad(y.sum(), start)[0], _kept(layers, x, every)


def _keeps_all(layers: Any, x: Tensor, every: int) -> Any:
    kept = _kept(layers, x, 1)
    return _through(_segments(layers, 1), kept), kept


def _rest_forgotten(layers: Any, x: Tensor, every: int) -> Any:
    groups = [group for group in _segments(layers, every) if len(group) == every]
    kept = _kept(layers, x, every)[: len(groups)]
    return _through(groups, kept), kept


def _last_group(layers: Any, x: Tensor, every: int) -> Any:
    kept = _kept(layers, x, every)
    return _through(_segments(layers, every)[-1:], kept[-1:]), kept


def _outputs_kept(layers: Any, x: Tensor, every: int) -> Any:
    kept, outputs = _kept(layers, x, every), []
    with torch.no_grad():
        for group, saved in zip(_segments(layers, every), kept, strict=True):
            outputs.append(_forwards(group, saved))
    return _through(_segments(layers, every), kept), outputs


def _from_x(layers: Any, x: Tensor, every: int) -> Any:
    groups = _segments(layers, every)
    return _through(groups, [x] * len(groups)), _kept(layers, x, every)


def _kept_backwards(layers: Any, x: Tensor, every: int) -> Any:
    kept = _kept(layers, x, every)
    return _through(_segments(layers, every), kept), kept[::-1]


def _two_steps(layers: Any, x: Tensor, every: int) -> Any:
    kept = [x.clone()]
    for group in _segments(layers, every):
        with torch.no_grad():
            kept.append(_forwards(group, kept[-1]))
    last = kept.pop()
    upstream = torch.ones_like(last)
    while len(kept) and (start := kept[len(kept) - 1].clone().requires_grad_()) is not None:
        place = len(kept) - 1
        y = _forwards(layers[place * every : place * every + every], start)
        (y * upstream).sum().backward()
        upstream = start.grad  # type: ignore[assignment]
        if place == 0:
            break
        kept = kept[:place]
    return upstream, tuple(_kept(layers, x, every))


def _recursive(layers: Any, x: Tensor, every: int) -> Any:
    first, rest = layers[:every], layers[every:]
    with torch.no_grad():
        after = _forwards(first, x)
    gradient, kept = _recursive(rest, after, every) if rest else (torch.ones_like(after), [])
    start = x.detach().clone().requires_grad_()
    return torch.autograd.grad(_forwards(first, start), start, grad_outputs=gradient)[0], [x, *kept]


COMPUTE_AGAIN = Exercise(
    id="13.3",
    title="Forget, and compute again",
    answer="course_lib.exercises.u13.gradient_again",
    minutes=15,
    outcomes=("13-b",),
    checks=(Check("one group"), Check("several groups", 2), Check("a last group that is smaller")),
    cases=_again_cases,
    hints=(
        "First the way forward alone, without any graph: go through the layers, and keep what enters every `every`-th one.",
        "The gradient of a sum begins as ones, of the shape of y. A group turns the gradient at its output into the one at "
        "its input; start with the last group.",
        "For a group: start = kept[g].detach().requires_grad_(), its layers again from there, then "
        "(gradient,) = torch.autograd.grad(y, start, gradient). Slices of a list may reach beyond its end.",
    ),
    misconceptions=(
        Misconception(
            "one big graph",
            _no_checkpoints,
            "All layers were computed with a graph at once: nothing is saved. Only the group that is computed again needs one.",
            AGAIN,
        ),
        Misconception(
            "begins with ones in every group",
            lambda layers, x, every: (
                _through(_segments(layers, every), _kept(layers, x, every), restart=True),
                _kept(layers, x, every),
            ),
            "Each group starts from ones again. What enters a group from behind is the gradient that came out of the group "
            "after it.",
            AGAIN,
        ),
        Misconception(
            "first group first",
            lambda layers, x, every: (
                _through(_segments(layers, every), _kept(layers, x, every), wrong_way=True),
                _kept(layers, x, every),
            ),
            "You went through the groups from the first to the last. The gradient comes from behind: last group first.",
            AGAIN,
        ),
        Misconception(
            "everything kept",
            _keeps_all,
            "The gradient is right, but the input of every layer was kept. Keep those of layers 0, every, 2·every, … only.",
            AGAIN,
        ),
        Misconception(
            "the smaller group forgotten",
            _rest_forgotten,
            "The layers left over at the end are missing: the last group may be smaller than the others.",
            AGAIN,
        ),
        Misconception(
            "the last group only",
            _last_group,
            "This is the gradient at the input of the last group. Carry it on, through all groups, to x.",
            AGAIN,
        ),
        Misconception(
            "outputs kept",
            _outputs_kept,
            "The gradient is right, but you return what leaves the groups. To compute a group again, one needs what enters it.",
            AGAIN,
        ),
        Misconception(
            "each group from x",
            _from_x,
            "Every group was computed again from x. Each has an input of its own, which you kept.",
            AGAIN,
        ),
        Misconception(
            "kept in the order of the way back",
            _kept_backwards,
            "Gradient and inputs are right, but the list is in the order of the way back: first one first.",
            AGAIN,
        ),
        Misconception(
            "the gradient alone",
            lambda layers, x, every: _through(_segments(layers, every), _kept(layers, x, every)),
            "This is the gradient alone. Return two things: the gradient, and the list of kept inputs.",
            AGAIN,
        ),
    ),
    alternatives=(_two_steps, _recursive),
    forbidden=("checkpoint", "checkpoint_sequential"),
)


# --- 13.4 ---------------------------------------------------------------------------------------------------


def few_digits() -> Any:
    """Two numbers, then five times True or False.

    bfloat16 keeps 8 binary digits of a number (float32 keeps 24). From 256 to 512 its numbers are 2 apart, just above 1
    they are 1/128 apart; what falls between is rounded to the nearest, halves to the one whose last digit is 0.
    First list: 1. what is 256 + 1 in bfloat16?   2. what is 1 + 1/1000 in bfloat16?
    Second list: must this stay in float32 for training to work well (True), or may it be bfloat16 (False)?
    1. the parameters that the optimizer changes, by about a thousandth a step   2. the factors of x @ W
    3. the loss, a sum over thousands of words     4. Adam's averages     5. the activations kept for the way back
    """
    return [256, 1], [True, False, True, True, False]


FEW_DIGITS = Exercise(
    id="13.4",
    title="What stays in float32",
    answer="course_lib.exercises.u13.few_digits",
    minutes=6,
    outcomes=("13-c",),
    checks=(Check("numbers and choices", 2),),
    cases=lambda draw: [Case("numbers and choices")],
    hints=(
        "Between 256 and 512 only even numbers exist in bfloat16: 257 lies halfway between two of them.",
        "1/1000 is far less than half of 1/128. Which number is nearest?",
        "Ask of each: does something small have to be added to something large, again and again? Then the digits matter. "
        "A product of two rounded numbers is off by a little once, and such errors are as often up as down.",
    ),
    misconceptions=(
        Misconception(
            "as if exact",
            lambda: ([257, 1.001], [True, False, True, True, False]),
            "The choices are right. The two sums are those of exact numbers: bfloat16 has no number 257 and none between 1 and "
            "1 + 1/128.",
            FLOATS,
        ),
        Misconception(
            "rounded up",
            lambda: ([258, 1], [True, False, True, True, False]),
            "257 lies halfway between 256 and 258. Halves go to the neighbour whose last binary digit is 0, and that is 256.",
            FLOATS,
        ),
        Misconception(
            "everything in float32",
            lambda: ([256, 1], [True, True, True, True, True]),
            "The sums are right. But if everything stays in float32, nothing is saved: products and what is kept for the way "
            "back stand rounding well.",
            FLOATS,
        ),
        Misconception(
            "the loss only",
            lambda: ([256, 1], [False, False, True, False, False]),
            "The loss is not all: a parameter near 1 that is changed by a thousandth stays what it was in bfloat16, and so "
            "do slow averages.",
            FLOATS,
        ),
        Misconception(
            "products in float32",
            lambda: ([256, 1], [True, True, True, True, False]),
            "The factors of a product may be rounded: that is where the time is saved, and the sum inside is kept in float32 "
            "by the machine.",
            FLOATS,
        ),
        Misconception(
            "averages in bfloat16",
            lambda: ([256, 1], [True, False, True, False, False]),
            "Adam's averages change by a tenth or a fiftieth of what arrives: small things added to larger ones, as with the "
            "parameters. With 8 digits they stop moving.",
            FLOATS,
        ),
        Misconception(
            "parameters in bfloat16",
            lambda: ([256, 1], [False, False, True, True, False]),
            "A parameter near 1 that is changed by a thousandth stays what it was: 1 + 1/1000 is 1 in bfloat16, as you said "
            "yourself.",
            FLOATS,
        ),
    ),
    prediction=True,
)


# --- 13.5 ---------------------------------------------------------------------------------------------------


def work_and_span(seconds: Any, needs: Any) -> Any:
    """How far could a computation be spread over many workers?

    seconds[i] says how long operation i takes, and needs[i] is the list of operations that must have ended before it can
    begin, all of them numbered below i. Return three numbers: the work (the seconds of one worker, who does all of it),
    the span (the seconds of ever so many workers, each operation begun as soon as it can), and work / span, the parallelism.
    """
    ends: list[Any] = []
    for own, before in zip(seconds, needs, strict=True):
        ends.append(own + max((ends[i] for i in before), default=0))
    return [sum(seconds), max(ends), sum(seconds) / max(ends)]


def _span_cases(draw: Draw) -> list[Case]:
    def random_graph(count: int, most: int) -> Case:
        needs = [sorted(draw.rng.permutation(i)[: draw.rng.integers(0, most + 1)].tolist()) for i in range(count)]
        # The last one needs nothing and is short, the second begins with nothing before it: who looks there alone is wrong.
        needs[-1], needs[1] = [], [0]
        seconds = [*draw.rng.integers(2, 9, count - 1).tolist(), 1]
        return Case("any computation", (seconds, needs), f"{count} operations")

    chain, free = "an RNN: each step waits", "attention: nothing waits"
    slow = draw.rng.integers(2, 6, 4).tolist()
    table = draw.rng.integers(1, 7, 5).tolist()
    return [
        Case(chain, ([2, 3], [[], [0]]), "two steps"),
        Case(chain, (slow, [[], [0], [1], [2]]), "four steps, one after the other"),
        Case(free, (table, [[]] * 5), "five operations that need nothing"),
        Case(free, ([1, 6, 2, 3], [[], [], [], [0, 1, 2]]), "three that need nothing, and one that needs them all"),
        random_graph(7, 2),
        random_graph(10, 3),
    ]


def _spans(span: Any, work: Any = None, last: Any = None) -> Any:
    def wrong(seconds: Any, needs: Any) -> Any:
        total, longest = (work or (lambda s, n: sum(s)))(seconds, needs), span(seconds, needs)
        return [total, longest, (last or (lambda w, s: w / s))(total, longest)]

    return wrong


def _ends(seconds: Any, needs: Any, join: Any = max) -> list[Any]:
    ends: list[Any] = []
    for own, before in zip(seconds, needs, strict=True):
        ends.append(own + (join([ends[i] for i in before]) if before else 0))
    return ends


def _begins(seconds: Any, needs: Any) -> Any:
    begins: list[Any] = []
    for before in needs:
        begins.append(max((begins[i] + seconds[i] for i in before), default=0))
    return max(begins) or 1


def _with_memo(seconds: Any, needs: Any) -> Any:
    known: dict[int, Any] = {}

    def end(i: int) -> Any:
        if i not in known:
            known[i] = seconds[i] + (max(map(end, needs[i])) if needs[i] else 0)
        return known[i]

    work, span = 0, 0
    for i, own in enumerate(seconds):
        work, span = work + own, max(span, end(i))
    return work, span, work / span


def _by_simulation(seconds: Any, needs: Any) -> Any:
    left, clock = dict(enumerate(seconds)), 0
    done: set[int] = set()
    while left:
        running = [i for i in left if set(needs[i]) <= done]
        step = min(left[i] for i in running)
        clock += step
        for i in running:
            left[i] -= step
        done |= {i for i in running if left[i] == 0}
        left = {i: s for i, s in left.items() if s > 0}
    return np.array([sum(seconds), clock, sum(seconds) / clock])


WORK_AND_SPAN = Exercise(
    id="13.5",
    title="Work and span",
    answer="course_lib.exercises.u13.work_and_span",
    minutes=10,
    outcomes=("13-d",),
    checks=(Check("an RNN: each step waits"), Check("attention: nothing waits"), Check("any computation", 2)),
    cases=_span_cases,
    hints=(
        "When does operation i end, if it begins as soon as it can? It begins when the last of those that it needs has ended.",
        "Go through the operations in order and keep a list of the times at which each ends; one that needs nothing begins "
        "at 0.",
        "ends.append(seconds[i] + max((ends[j] for j in needs[i]), default=0)). The span is the largest of all ends.",
    ),
    misconceptions=(
        Misconception(
            "ends with the last one",
            _spans(lambda s, n: _ends(s, n)[-1]),
            "You took the end of the last operation in the list. Another one may end later: the span is the largest of all "
            "ends.",
            WAIT,
        ),
        Misconception(
            "does not wait for all",
            _spans(lambda s, n: max(_ends(s, n, min))),
            "An operation begins when the first of those it needs has ended. It has to wait for the last of them.",
            WAIT,
        ),
        Misconception(
            "waits for them one after the other",
            _spans(lambda s, n: max(_ends(s, n, sum))),
            "You added the times of all that an operation needs. Those run side by side: only the latest of them counts.",
            WAIT,
        ),
        Misconception(
            "counts operations",
            _spans(lambda s, n: max(_ends([1] * len(s), n)), work=lambda s, n: len(s)),
            "You counted operations. They take different times: add seconds.",
            WAIT,
        ),
        Misconception(
            "steps for seconds",
            _spans(lambda s, n: max(_ends([1] * len(s), n))),
            "Your span counts how many operations stand in a row. They take different times: add their seconds.",
            WAIT,
        ),
        Misconception(
            "begins for ends",
            _spans(_begins),
            "Your span is the time at which the last operation begins. Its own seconds are missing.",
            WAIT,
        ),
        Misconception(
            "the slowest one",
            _spans(lambda s, n: max(s)),
            "Your span is the slowest operation. That holds only where nothing waits for anything.",
            WAIT,
        ),
        Misconception(
            "no workers",
            _spans(lambda s, n: sum(s)),
            "Your span is the work: as if one worker did all of it, one operation after the other.",
            WAIT,
        ),
        Misconception(
            "upside down",
            _spans(lambda s, n: max(_ends(s, n)), last=lambda w, s: s / w),
            "The quotient is upside down: parallelism is work / span, and never below 1.",
            WAIT,
        ),
        Misconception(
            "whole numbers",
            _spans(lambda s, n: max(_ends(s, n)), last=lambda w, s: w // s),
            "The quotient lost its fraction: / and not //.",
            WAIT,
        ),
    ),
    alternatives=(_with_memo, _by_simulation),
)


# --- 13.6 ---------------------------------------------------------------------------------------------------

parts = Parts()


class Translator(nn.Module):
    """A Transformer that translates: one encoder block, one decoder block, pre-norm, made of your own parts.

    Its parts: source_table and target_table from parts.table(words, d_model); self_attention_1 (of the encoder),
    self_attention_2 and cross_attention (of the decoder) from parts.attention(d_model, heads); think_1 (encoder) and think_2
    (decoder) from parts.think(d_model, d_ff); norm_1 to norm_7 from parts.norm(d_model), in the order in which they
    are used below.
    """

    def __init__(self, source_words: int, target_words: int, d_model: int, heads: int, d_ff: int):
        """Make the fourteen parts."""
        super().__init__()
        self.source_table = parts.table(source_words, d_model)
        self.target_table = parts.table(target_words, d_model)
        self.self_attention_1 = parts.attention(d_model, heads)
        self.self_attention_2 = parts.attention(d_model, heads)
        self.cross_attention = parts.attention(d_model, heads)
        self.think_1, self.think_2 = parts.think(d_model, d_ff), parts.think(d_model, d_ff)
        self.norm_1, self.norm_2, self.norm_3 = (parts.norm(d_model) for _ in range(3))
        self.norm_4, self.norm_5, self.norm_6, self.norm_7 = (parts.norm(d_model) for _ in range(4))

    def embed(self, table: Any, tokens: Tensor) -> Tensor:
        """Vectors of the tokens (B, T), times √D, plus parts.positions(x), the sinusoids for x (B, T, D)."""
        x = table(tokens) * math.sqrt(table.embedding_dim)
        return x + parts.positions(x)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """source (B, S) and target_in (B, T) are tokens, 0 is padding. Return logits (B, T, C).

        An attention is called as attention(x, memory=None, mask=None, causal=False); a mask (B, 1, S) is True on words.
        Encoder, from embedded source words: x + self_attention_1(norm_1(x)), x + think_1(norm_2(x)); the memory is norm_3(x).
        Decoder, from embedded target words: y + self_attention_2(norm_4(y)), which is causal; y + cross_attention(norm_5(y))
        over the memory; y + think_2(norm_6(y)). Padding of the source is hidden in encoder and cross-attention.
        The logits are norm_7(y) times the transposed table of target words, target_table.weight.
        """
        words = (source != 0)[:, None]
        x = self.embed(self.source_table, source)
        x = x + self.self_attention_1(self.norm_1(x), mask=words)
        x = x + self.think_1(self.norm_2(x))
        memory = self.norm_3(x)
        y = self.embed(self.target_table, target_in)
        y = y + self.self_attention_2(self.norm_4(y), causal=True)
        y = y + self.cross_attention(self.norm_5(y), memory, words)
        y = y + self.think_2(self.norm_6(y))
        return self.norm_7(y) @ self.target_table.weight.T


Sizes = tuple[int, int, int, int, int]


def _translator_cases(draw: Draw) -> list[Case]:
    def case(check: str, lengths: tuple[int, ...], t: int, sizes: Sizes, note: str = "") -> Case:
        shapes = {name: tuple(p.shape) for name, p in Translator(*sizes).named_parameters()}
        weights = {n: draw.tensor(*s, size=0.5) + 0.4 * n.endswith("gain") for n, s in sorted(shapes.items())}
        real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        source = torch.from_numpy(draw.rng.integers(1, sizes[0], tuple(real.shape))) * real
        target = torch.from_numpy(draw.rng.integers(1, sizes[1], (len(lengths), t)))
        target[:, 0] = BOS
        return Case(check, (source, target), note, build=sizes, weights=weights, gradient=True)

    one, many, padded = "the first word", "several words", "sentences of different lengths"
    return [
        case(one, (2,), 1, (5, 6, 4, 2, 3), "one sentence of two words, and <bos>"),
        case(many, (3, 3), 3, (7, 5, 6, 3, 4), "as many target words as source words"),
        case(many, (4, 4), 3, (6, 8, 4, 2, 5)),
        case(padded, (2, 5, 3), 4, (9, 7, 6, 2, 8)),
    ]


def _translator(**methods: Any) -> type[Translator]:
    return type("Translator", (Translator,), {name: m for name, m in methods.items() if m} | methods)


def _forward(**changed: Any) -> type[Translator]:
    """The model with one step changed; each step is a function of (self, what it needs …)."""
    step: dict[str, Any] = {
        "look": lambda self, x, words: x + self.self_attention_1(self.norm_1(x), mask=words),
        "think": lambda self, x: x + self.think_1(self.norm_2(x)),
        "memory": lambda self, x: self.norm_3(x),
        "back": lambda self, y: y + self.self_attention_2(self.norm_4(y), causal=True),
        "over": lambda self, y, memory, words: y + self.cross_attention(self.norm_5(y), memory, words),
        "ponder": lambda self, y: y + self.think_2(self.norm_6(y)),
        "logits": lambda self, y: self.norm_7(y) @ self.target_table.weight.T,
    } | changed

    def forward(self: Translator, source: Tensor, target_in: Tensor) -> Tensor:
        words = (source != 0)[:, None]
        x = step["think"](self, step["look"](self, self.embed(self.source_table, source), words))
        memory = step["memory"](self, x)
        y = step["back"](self, self.embed(self.target_table, target_in))
        return step["logits"](self, step["ponder"](self, step["over"](self, y, memory, words)))

    return _translator(forward=forward)


def _embedding(embed: Any) -> type[Translator]:
    return _translator(embed=embed)


def _one_norm(self: Translator, *sizes: int) -> None:
    Translator.__init__(self, *sizes)  # type: ignore[arg-type]
    for number in range(2, 8):
        setattr(self, f"norm_{number}", self.norm_1)


def _one_table(self: Translator, *sizes: int) -> None:
    Translator.__init__(self, *sizes)  # type: ignore[arg-type]
    self.target_table = self.source_table = parts.table(max(sizes[:2]), sizes[2])


def _source_only(self: Translator, table: Any, tokens: Tensor) -> Tensor:
    x = table(tokens) * math.sqrt(table.embedding_dim)
    return x + parts.positions(x) if table is self.source_table else x


def _in_a_row(self: Translator, source: Tensor, target_in: Tensor) -> Tensor:
    real = source.ne(0).unsqueeze(1)
    x = self.source_table(source) * source.new_tensor(self.source_table.embedding_dim).double().sqrt()
    x = x + parts.positions(x)[None]
    normed = self.norm_1(x)
    x = self.self_attention_1(normed, normed, real.expand(-1, source.shape[1], -1)) + x
    x = self.think_1(self.norm_2(x)) + x
    memory, t = self.norm_3(x), target_in.shape[1]
    y = self.embed(self.target_table, target_in)
    past = torch.ones(t, t).tril().bool()[None]
    y = y + self.self_attention_2(self.norm_4(y), mask=past)
    y = y + self.cross_attention(self.norm_5(y), memory, mask=real)
    y = y + self.think_2(self.norm_6(y))
    return torch.einsum("btd,cd->btc", self.norm_7(y), self.target_table.weight)


class _TwoMethods(Translator):
    def encode(self, source: Tensor, words: Tensor) -> Tensor:
        x = self.embed(self.source_table, source)
        for part, norm, extra in (
            (self.self_attention_1, self.norm_1, {"mask": words}),
            (self.think_1, self.norm_2, {}),
        ):
            x = x + part(norm(x), **extra)
        return self.norm_3(x)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        words = (source > 0).unsqueeze(-2)
        y, memory = self.embed(self.target_table, target_in), self.encode(source, words)
        y = y + self.self_attention_2(self.norm_4(y), causal=True)
        y = y + self.cross_attention(self.norm_5(y), memory=memory, mask=words)
        return F.linear(self.norm_7(y + self.think_2(self.norm_6(y))), self.target_table.weight)


TRANSLATOR = Exercise(
    id="13.6",
    title="Capstone: a translator of your own parts",
    answer="course_lib.exercises.u13.Translator",
    minutes=30,
    outcomes=("13-e",),
    checks=(Check("the first word"), Check("several words", 2), Check("sentences of different lengths", 2)),
    cases=_translator_cases,
    hints=(
        "Write the constructor first: fourteen lines of self.… = parts.…. Then embed. Then the encoder: two lines of the form "
        "x = x + f(norm(x)).",
        "words = (source != 0)[:, None] is the mask (B, 1, S). It goes to self_attention_1 and to cross_attention, as mask. "
        "self_attention_2 gets causal=True instead.",
        "The decoder has three lines: y = y + self.self_attention_2(self.norm_4(y), causal=True), then cross_attention(…, "
        "memory, words) with norm_5, then think_2 with norm_6. At the end self.norm_7(y) @ self.target_table.weight.T.",
    ),
    misconceptions=(
        Misconception(
            "no root of D",
            _embedding(lambda self, table, tokens: (x := table(tokens)) + parts.positions(x)),
            "The words' vectors are not multiplied by √D: next to their positions they are too small to be seen.",
            ("10", "The words enter once, times the root of D"),
        ),
        Misconception(
            "no positions",
            _embedding(lambda self, table, tokens: table(tokens) * math.sqrt(table.embedding_dim)),
            "There are no positions: for this model a sentence is a bag of words. Add parts.positions(x).",
            ("10", "The words enter once, times the root of D"),
        ),
        Misconception(
            "positions for the source only",
            _embedding(_source_only),
            "The target words have no positions. The decoder, too, has to know what stands where.",
            ("10", "The words enter once, times the root of D"),
        ),
        Misconception(
            "positions times the root of D",
            _embedding(
                lambda self, table, tokens: (
                    ((x := table(tokens)) + parts.positions(x)) * math.sqrt(table.embedding_dim)
                )
            ),
            "The positions were multiplied by √D, too. Only the words' vectors are.",
            ("10", "The words enter once, times the root of D"),
        ),
        Misconception(
            "the encoder reads padding",
            _forward(look=lambda self, x, words: x + self.self_attention_1(self.norm_1(x))),
            "The encoder's self-attention reads padding as if it were words: give it the mask.",
            ("10", "Each attention has its own mask"),
        ),
        Misconception(
            "the decoder reads padding",
            _forward(over=lambda self, y, memory, words: y + self.cross_attention(self.norm_5(y), memory)),
            "The cross-attention reads the padding of the source as if it were words: give it the mask.",
            ("10", "Each attention has its own mask"),
        ),
        Misconception(
            "masks the wrong way round",
            _forward(
                look=lambda self, x, words: x + self.self_attention_1(self.norm_1(x), mask=~words),
                over=lambda self, y, memory, words: y + self.cross_attention(self.norm_5(y), memory, ~words),
            ),
            "The masks are the wrong way round: True means that a word may be read.",
            ("10", "Each attention has its own mask"),
        ),
        Misconception(
            "the decoder sees the future",
            _forward(back=lambda self, y: y + self.self_attention_2(self.norm_4(y))),
            "The decoder's self-attention is not causal: each word could read the one that it should predict.",
            ("10", "Each attention has its own mask"),
        ),
        Misconception(
            "a causal encoder",
            _forward(look=lambda self, x, words: x + self.self_attention_1(self.norm_1(x), mask=words, causal=True)),
            "The encoder is causal. It may read the whole sentence; only the decoder has a future to hide.",
            ("10", "Each attention has its own mask"),
        ),
        Misconception(
            "the source is never read",
            _forward(over=lambda self, y, memory, words: y + self.cross_attention(self.norm_5(y), causal=True)),
            "The cross-attention does not get the memory: the decoder reads itself twice and the source never.",
            ("10", "A decoder block reads twice"),
        ),
        Misconception(
            "memory without its norm",
            _forward(memory=lambda self, x: x),
            "The memory is not normed: norm_3 ends the encoder.",
            ("10", "Encode, decode, compare with every word"),
        ),
        Misconception(
            "no last norm",
            _forward(logits=lambda self, y: y @ self.target_table.weight.T),
            "norm_7 is missing: a pre-norm decoder ends with a norm, before the states are compared with the words.",
            ("10", "Encode, decode, compare with every word"),
        ),
        Misconception(
            "no way around the attentions",
            _forward(
                look=lambda self, x, words: self.self_attention_1(self.norm_1(x), mask=words),
                back=lambda self, y: self.self_attention_2(self.norm_4(y), causal=True),
                over=lambda self, y, memory, words: self.cross_attention(self.norm_5(y), memory, words),
            ),
            "There is no way around the attentions: x + attention(norm(x)), for each of the three.",
            ("10", "A decoder block reads twice"),
        ),
        Misconception(
            "post-norm",
            _forward(
                look=lambda self, x, words: self.norm_1(x + self.self_attention_1(x, mask=words)),
                think=lambda self, x: self.norm_2(x + self.think_1(x)),
                back=lambda self, y: self.norm_4(y + self.self_attention_2(y, causal=True)),
                over=lambda self, y, memory, words: self.norm_5(y + self.cross_attention(y, memory, words)),
                ponder=lambda self, y: self.norm_6(y + self.think_2(y)),
            ),
            "This is post-norm, norm(x + f(x)). Asked for is pre-norm, x + f(norm(x)).",
            ("10", "A decoder block reads twice"),
        ),
        Misconception(
            "the encoder does not think",
            _forward(think=lambda self, x: x),
            "The encoder's feed-forward network, think_1, is not used.",
            ("10", "A decoder block reads twice"),
        ),
        Misconception(
            "the decoder does not think",
            _forward(ponder=lambda self, y: y),
            "The decoder's feed-forward network, think_2, is not used.",
            ("10", "A decoder block reads twice"),
        ),
        Misconception(
            "probabilities",
            _forward(logits=lambda self, y: (self.norm_7(y) @ self.target_table.weight.T).softmax(dim=-1)),
            "You returned probabilities. The loss has its own softmax: return the logits.",
            ("10", "Padding stays out of the loss"),
        ),
        Misconception(
            "one norm for all",
            _translator(__init__=_one_norm),
            "There is one norm, used seven times. Each has a gain and a bias of its own.",
            ("10", "A decoder block reads twice"),
        ),
        Misconception(
            "one table for both languages",
            _translator(__init__=_one_table),
            "Both languages share one table. They have different words: source_table and target_table.",
            ("10", "The words enter once, times the root of D"),
        ),
        Misconception(
            "cut off from the encoder",
            _forward(memory=lambda self, x: self.norm_3(x).detach()),
            "The numbers are right, but no gradient reaches the encoder: it would never learn anything.",
            BUILD,
        ),
    ),
    alternatives=(_translator(forward=_in_a_row), _TwoMethods),
    forbidden=(
        "Transformer", "TransformerEncoderLayer", "TransformerDecoderLayer", "MultiheadAttention", "MultiHeadAttention",
        "EncoderBlock", "DecoderBlock", "scaled_dot_product_attention",
    ),
    given=("own_parts",),
)  # fmt: skip


# --- 13.7 ---------------------------------------------------------------------------------------------------

english, german = number_vocabulary("english"), number_vocabulary("german")


def hand_in() -> Any:
    """Build the model whose parameters stand in your file: the class and the sizes that you trained, nothing else.

    It is built without arguments; the check loads the numbers of 13_model.safetensors into it and asks it for numbers
    that nobody may train on. Its forward(source, target_in) gives logits. english and german are the two vocabularies.
    """
    return Translator(len(english), len(german), 64, 4, 256)


LONGEST = 14  # words of the longest number below a million, and <eos>


def unseen(draw: Draw, count: int) -> list[int]:
    """Numbers that nobody may train on: three of four below a million, one of four below a thousand, no two alike."""
    small = [n for n in range(1000) if held_back(n)]
    chosen = set(draw.rng.permutation(small)[: count // 4].tolist())
    while len(chosen) < count:
        chosen |= {n for n in draw.rng.integers(1000, 1_000_000, 1).tolist() if held_back(n)}
    return sorted(chosen)


def too_few_right(numbers: list[int], share: float) -> Callable[[Any], str]:
    """A complaint about translations (N, L): fewer than this share are right."""
    spell = speller("german")

    def complaint(said: Any) -> str:
        if (
            not isinstance(said, np.ndarray)
            or said.ndim != 2
            or len(said) != len(numbers)
            or said.dtype.kind not in "iu"
        ):
            return "The model's answers are no translations: forward should return logits (B, T, C)."
        pairs = [(n, _words(row, german), spell(n)) for n, row in zip(numbers, said, strict=True)]
        wrong = [(n, ours) for n, ours, theirs in pairs if ours != theirs]
        right, needed = len(numbers) - len(wrong), math.ceil(share * len(numbers))
        if right >= needed:
            return ""
        n, ours = wrong[0]
        heard = " ".join(ours) or "nothing"
        return (
            f"{right} of {len(numbers)} unseen numbers are right, {needed} are needed. For example, {n} became “{heard}”, "
            f"and it should be “{' '.join(spell(n))}”. More steps, or another learning rate?"
        )

    return complaint


def _words(row: Any, vocabulary: Vocabulary) -> list[str]:
    """The words of a row up to <eos>; a token that is no word is told as it is."""
    tokens = row.tolist()
    tokens = tokens[: tokens.index(EOS)] if EOS in tokens else tokens
    known = range(len(vocabulary))
    return [vocabulary.words[t] if t in known else f"<{t}>" for t in tokens if t != PAD]


def _hand_in_cases(draw: Draw) -> list[Case]:
    def case(check: str, count: int, share: float) -> Case:
        numbers, speak, spell = unseen(draw, count), speller("english"), speller("german")
        source, target = encode_pairs(((speak(n), spell(n)) for n in numbers), english, german)
        complaint = too_few_right(numbers, share)
        return Case(check, (source,), build=(), longest=LONGEST, wanted=target[:, 1:], complaint=complaint)

    return [
        case("half of the unseen numbers", 100, 0.5),
        case("nine of ten", 100, 0.9),
        case("99 of 100", 600, 0.99),
    ]


HAND_IN = Exercise(
    id="13.7",
    title="Capstone: hand it in",
    answer="course_lib.exercises.u13.hand_in",
    minutes=15,
    outcomes=("13-e",),
    checks=(Check("half of the unseen numbers", 2), Check("nine of ten", 2), Check("99 of 100", 2)),
    cases=_hand_in_cases,
    hints=(
        "One line: return the same call of Translator that you trained with.",
        "Few numbers right? Look at the loss: it should fall below 0.01. Is the learning rate the one of the cell above, with "
        "warm-up and a way down to 0?",
        "400 steps of 32 numbers are enough for 99 of 100. Numbers below a thousand are rare among all below a million, so the "
        "training data above holds them four times.",
    ),
    given=(
        "number_pairs",
        "batches",
        "generator",
        "seed_all",
        "held_back",
        "translate",
        "write_model",
        "fit",
        "TrainConfig",
    ),
    prediction=True,  # what is graded is a file: there are no wrong programs to name
    file=FILE,
)

EXERCISES = (MEGABYTES, IN_PARTS, COMPUTE_AGAIN, FEW_DIGITS, WORK_AND_SPAN, TRANSLATOR, HAND_IN)
