"""Unit 09, the Transformer block: normalise, attend, feed forward, and a way around each."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .declare import Case, Check, Draw, Exercise, Misconception

AVERAGE = ("09", "Stacked attention only averages again")
FEED = ("09", "The feed-forward network thinks about one token at a time")
SKIP = ("09", "A residual connection keeps the road open")
NORM = ("09", "Layer normalisation gives each token mean 0 and variance 1")
ORDER = ("09", "Pre-norm leaves the road free, post-norm stands on it")
COUNT = ("09", "The block can be counted")
CUT = "The numbers are right, but nothing can be learned: .detach(), .item(), .data or torch.tensor(...) cuts the gradient."


# --- 09.1 ---------------------------------------------------------------------------------------------------


def parameters_of_a_block() -> Any:
    """How many parameters has an encoder block with D = 8, H = 2 heads and F = 32? Pencil and paper.

    Attention: W_q, W_k, W_v and W_o with a bias each. Feed-forward: W_1, b_1, W_2, b_2. Two layer norms, each
    with a gain and a bias. Return one whole number.
    """
    return 872


PARAMETERS = Exercise(
    id="09.1",
    title="Count a block",
    answer="course_lib.exercises.u09.parameters_of_a_block",
    minutes=6,
    outcomes=("09-b",),
    checks=(Check("the number of parameters", 2),),
    cases=lambda draw: [Case("the number of parameters")],
    hints=(
        "Three parts: four square matrices, two rectangular ones, and the norms. Do biases belong to them?",
        "Attention is 4 · (D · D + D). The number of heads does not appear: heads share the columns.",
        "288 for attention, 2 · 8 · 32 + 32 + 8 = 552 for the feed-forward network, and 2 · (8 + 8) for the norms.",
    ),
    misconceptions=(
        Misconception(
            "no biases, or no output matrix",
            lambda: 800,
            "Something of 72 is missing: either W_o with its bias (attention has four matrices), or the biases of all six matrices.",
            COUNT,
        ),
        Misconception(
            "no norms, or no attention biases",
            lambda: 840,
            "32 are missing: either the two layer norms (a gain and a bias each, 2 D numbers), or attention's four biases.",
            COUNT,
        ),
        Misconception(
            "half of the norms",
            lambda: 856,
            "Half of the norms is missing: there are two, one for each sublayer, and each has a gain and a bias.",
            COUNT,
        ),
        Misconception(
            "once per head",
            lambda: 1160,
            "You counted attention once for each head. Heads share the columns of one matrix: D² whatever H is.",
            COUNT,
        ),
        Misconception(
            "one feed-forward matrix",
            lambda: 608,
            "The feed-forward network has two matrices: D × F to widen, and F × D to come back.",
            COUNT,
        ),
        Misconception(
            "matrices only",
            lambda: 768,
            "104 are missing. Count the biases (four of attention, two of the feed-forward network) and both norms.",
            COUNT,
        ),
        Misconception(
            "the block once per head",
            lambda: 1744,
            "You counted everything once for each head. Heads share the columns of attention's matrices: H does not appear.",
            COUNT,
        ),
        Misconception(
            "no feed-forward biases",
            lambda: 832,
            "b_1 (F numbers) and b_2 (D numbers) are missing: the feed-forward network has both.",
            COUNT,
        ),
    ),
    prediction=True,
)


# --- 09.2 ---------------------------------------------------------------------------------------------------


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Normalise each token by itself: (x − μ) / √(σ² + ε) · gain + bias.

    x is (..., T, D); gain and bias are (D,). μ is the mean of a token's D numbers, σ² the mean of their squared
    distances from μ. Return a tensor of the shape of x.
    """
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


def _norm_cases(draw: Draw) -> list[Case]:
    def args(*shape: int, eps: float, size: float = 1.0) -> tuple[Any, ...]:
        d = shape[-1]
        return draw.tensor(*shape, size=size) + 0.7, draw.tensor(d) + 1, draw.tensor(d), eps

    return [
        Case("one sentence", args(3, 4, eps=1e-5)),
        Case("a batch of sentences", args(2, 3, 5, eps=1e-5)),
        Case("a batch of sentences", args(2, 5, 3, 4, eps=1e-5), "one more axis in front"),
        Case("the small number ε", args(3, 4, eps=0.5), "a large ε, to see where it stands"),
        Case("the small number ε", (3 * torch.ones(2, 4).double(), *args(2, 4, eps=1e-5)[1:]), "all numbers are equal"),
        Case("gradient", args(2, 3, 4, eps=1e-3), gradient=True),
    ]


def _normed(x: Tensor, gain: Tensor, bias: Tensor, eps: float, **how: Any) -> Tensor:
    dim = how.get("dim", -1)
    mean = x.mean(dim=dim, keepdim=True)
    variance = x.var(dim=dim, keepdim=True, unbiased=how.get("unbiased", False))
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


def _in_place(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
    out = layer_norm(x.clone(), gain, bias, eps)
    x.data.sub_(x.data.mean(dim=-1, keepdim=True))
    return out


LAYER_NORM = Exercise(
    id="09.2",
    title="Layer normalisation, written out",
    answer="course_lib.exercises.u09.layer_norm",
    minutes=10,
    outcomes=("09-a",),
    checks=(Check("one sentence", 2), Check("a batch of sentences"), Check("the small number ε"), Check("gradient")),
    cases=_norm_cases,
    hints=(
        "Which numbers belong together? The D numbers of one token, so everything runs over the last axis.",
        "keepdim=True keeps the axis, so that (…, T, 1) can be subtracted from (…, T, D).",
        "var(unbiased=False) divides by D, as the formula does. ε stands under the root, next to the variance.",
    ),
    misconceptions=(
        Misconception(
            "divides by D − 1",
            lambda x, gain, bias, eps: _normed(x, gain, bias, eps, unbiased=True),
            "Your variance divides by D − 1, which is torch's default for var and std. Here it is a mean: divide by D.",
            NORM,
        ),
        Misconception(
            "ε outside the root",
            lambda x, gain, bias, eps: (x - x.mean(-1, True)) / (x.var(-1, unbiased=False, keepdim=True).sqrt() + eps)
            * gain + bias,
            "ε stands outside the root: σ + ε. It belongs under it, √(σ² + ε), or small variances behave differently.",
            NORM,
        ),
        Misconception(
            "no root",
            lambda x, gain, bias, eps: (x - x.mean(-1, True)) / (x.var(-1, unbiased=False, keepdim=True) + eps) * gain + bias,
            "You divided by the variance. To get variance 1, divide by its root, the standard deviation.",
            NORM,
        ),
        Misconception(
            "not centred",
            lambda x, gain, bias, eps: x / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + eps) * gain + bias,
            "The mean is still in there: subtract it before you divide.",
            NORM,
        ),
        Misconception(
            "no gain and bias",
            lambda x, gain, bias, eps: _normed(x, torch.ones_like(gain), torch.zeros_like(bias), eps),
            "Gain and bias are missing: they let the network choose another mean and width where that helps.",
            NORM,
        ),
        Misconception(
            "no bias",
            lambda x, gain, bias, eps: _normed(x, gain, torch.zeros_like(bias), eps),
            "The bias is missing: it is added at the end, and becomes the new mean where the gain is 1.",
            NORM,
        ),
        Misconception(
            "no gain",
            lambda x, gain, bias, eps: _normed(x, torch.ones_like(gain), bias, eps),
            "The gain is missing: each of the D numbers is multiplied by its own gain before the bias is added.",
            NORM,
        ),
        Misconception(
            "bias before gain",
            lambda x, gain, bias, eps: (_normed(x, torch.ones_like(gain), bias, eps)) * gain,
            "The bias is multiplied by the gain: multiply first, then add.",
            NORM,
        ),
        Misconception(
            "over the tokens",
            lambda x, gain, bias, eps: _normed(x, gain, bias, eps, dim=-2),
            "You normalised over the tokens: each feature across the sentence. Layer norm looks at one token at a time.",
            NORM,
        ),
        Misconception(
            "over everything",
            lambda x, gain, bias, eps: _normed(x, gain, bias, eps, dim=tuple(range(x.dim()))),
            "One mean for the whole tensor. Each token has its own: the mean runs over the last axis only.",
            NORM,
        ),
        Misconception(
            "over the whole sentence",
            lambda x, gain, bias, eps: _normed(x, gain, bias, eps, dim=(-2, -1)),
            "One mean for a whole sentence. Each token has its own, or neighbours would change it: the last axis only.",
            NORM,
        ),
        Misconception(
            "the axis by its number",
            lambda x, gain, bias, eps: _normed(x, gain, bias, eps, dim=1),
            "dim=1 is the last axis of one sentence only. In a batch it is another one: count from the end, dim=-1.",
            NORM,
        ),
        Misconception(
            "the axis by its number, for a batch",
            lambda x, gain, bias, eps: _normed(x, gain, bias, eps, dim=2),
            "dim=2 is the last axis of a batch only. One sentence has no such axis: count from the end, dim=-1.",
            NORM,
        ),
        Misconception(
            "the axis is lost",
            lambda x, gain, bias, eps: (x - x.mean(-1)) / torch.sqrt(x.var(-1, unbiased=False) + eps) * gain + bias,
            "A mean or variance over the last axis is (…, T) and does not fit x, (…, T, D): keepdim=True makes it (…, T, 1).",
            NORM,
        ),
        Misconception(
            "brackets missing",
            lambda x, gain, bias, eps: x - x.mean(-1, True) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + eps)
            * gain + bias,
            "Python divides before it subtracts: only the mean is divided here. Put brackets around x − μ.",
            NORM,
        ),
        Misconception(
            "RMS norm",
            lambda x, gain, bias, eps: x / torch.sqrt((x**2).mean(-1, True) + eps) * gain + bias,
            "The mean is not subtracted, neither above nor in the variance. That is RMS norm, a younger cousin; here μ goes first.",
            NORM,
        ),
        Misconception(
            "variance around 0",
            lambda x, gain, bias, eps: (x - x.mean(-1, True)) / torch.sqrt((x**2).mean(-1, True) + eps) * gain + bias,
            "Your variance is the mean of x². Its squares are distances from the mean: (x − μ)².",
            NORM,
        ),
        Misconception(
            "squares summed",
            lambda x, gain, bias, eps: (x - x.mean(-1, True))
            / torch.sqrt(((x - x.mean(-1, True)) ** 2).sum(-1, True) + eps) * gain + bias,
            "You summed the squared distances. The variance is their mean: divide by D.",
            NORM,
        ),
        Misconception(
            "one root too many",
            lambda x, gain, bias, eps: (x - x.mean(-1, True))
            / torch.sqrt(x.std(-1, unbiased=False, keepdim=True) + eps) * gain + bias,
            "You took the root of σ, which is a root already. Under the root stands the variance, σ².",
            NORM,
        ),
        Misconception(
            "no ε",
            lambda x, gain, bias, eps: _normed(x, gain, bias, 0.0),
            "ε is not used. A token whose numbers are all equal would be divided by 0: √(σ² + ε).",
            NORM,
        ),
        Misconception(
            "a fixed ε",
            lambda x, gain, bias, eps: _normed(x, gain, bias, 1e-5),
            "You wrote 1e-5 (or the like) into the formula. The caller chooses: use the argument eps.",
            NORM,
        ),
        Misconception(
            "softmax",
            lambda x, gain, bias, eps: torch.softmax(x, dim=-1) * gain + bias,
            "You used softmax, which makes numbers that sum to 1. Layer norm makes numbers with mean 0 and variance 1.",
            NORM,
        ),
        Misconception(
            "sum instead of mean",
            lambda x, gain, bias, eps: (x - x.sum(-1, True))
            / torch.sqrt(((x - x.sum(-1, True)) ** 2).sum(-1, True) + eps) * gain + bias,
            "You took sums where means are meant: the 1/D is missing, as it is on a well-known slide.",
            NORM,
        ),
        Misconception(
            "makes the sum 1",
            lambda x, gain, bias, eps: x / (x.sum(-1, True) + eps) * gain + bias,
            "You made the numbers of a token sum to 1. That is not what is normalised: mean 0, variance 1.",
            NORM,
        ),
        Misconception("cut off", lambda x, gain, bias, eps: layer_norm(x, gain, bias, eps).detach(), CUT, NORM),
        Misconception(
            "mean and variance cut off",
            lambda x, gain, bias, eps: (x - x.mean(-1, True).detach())
            / torch.sqrt(x.var(-1, unbiased=False, keepdim=True).detach() + eps) * gain + bias,
            "The values are right. Mean and variance depend on x too, and their gradient is part of the answer: no detach.",
            NORM,
        ),
        Misconception(
            "changes its input",
            _in_place,
            "The numbers are right, but x is changed on the way (-=, sub_ and the like work in place). Make a new tensor.",
            NORM,
        ),
    ),
    alternatives=(
        lambda x, gain, bias, eps: _normed(x, gain, bias, eps),
        lambda x, gain, bias, eps: (x - x.mean(-1, True)) * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + eps) * gain
        + bias,
        lambda x, gain, bias, eps: gain * (x - x.mean(-1)[..., None])
        / (x.pow(2).mean(-1) - x.mean(-1).pow(2) + eps).sqrt()[..., None] + bias,
    ),
    forbidden=("layer_norm", "LayerNorm", "native_layer_norm", "batch_norm", "group_norm"),
)  # fmt: skip


# --- 09.3 ---------------------------------------------------------------------------------------------------


def feed_forward(x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor) -> Tensor:
    """The position-wise network: ReLU(x W_1 + b_1) W_2 + b_2, the same for every token.

    x is (..., T, D); w_1 is (D, F), b_1 is (F,), w_2 is (F, D), b_2 is (D,). Return a tensor of the shape of x.
    """
    hidden = torch.relu(x @ w_1 + b_1)
    return hidden @ w_2 + b_2


def _feed_cases(draw: Draw) -> list[Case]:
    def args(*shape: int, f: int) -> tuple[Any, ...]:
        d = shape[-1]
        return draw.tensor(*shape), draw.tensor(d, f), draw.tensor(f), draw.tensor(f, d), draw.tensor(d)

    return [
        Case("one sentence", args(2, 3, f=5)),
        Case("a batch of sentences", args(2, 4, 3, f=6)),
        Case("gradient", args(2, 3, f=4), gradient=True),
    ]


FEED_FORWARD = Exercise(
    id="09.3",
    title="The feed-forward network",
    answer="course_lib.exercises.u09.feed_forward",
    minutes=6,
    outcomes=("09-b", "09-d"),
    checks=(Check("one sentence"), Check("a batch of sentences"), Check("gradient")),
    cases=_feed_cases,
    hints=(
        "Two matrices, and something between them without which two would be one.",
        "Widen to F, cut off what is negative, go back to D. Each step has its bias.",
        "torch.relu(x @ w_1 + b_1) is the hidden layer; the second layer has no ReLU behind it.",
    ),
    misconceptions=(
        Misconception(
            "no activation",
            lambda x, w_1, b_1, w_2, b_2: (x @ w_1 + b_1) @ w_2 + b_2,
            "Without a ReLU between them, two matrices are one matrix: nothing new can be computed.",
            FEED,
        ),
        Misconception(
            "activation at the end",
            lambda x, w_1, b_1, w_2, b_2: torch.relu((x @ w_1 + b_1) @ w_2 + b_2),
            "The ReLU stands at the end. Between the matrices it makes them two; at the end it only cuts the output off.",
            FEED,
        ),
        Misconception(
            "activation twice",
            lambda x, w_1, b_1, w_2, b_2: torch.relu(torch.relu(x @ w_1 + b_1) @ w_2 + b_2),
            "There is a second ReLU, behind W_2. The output will be added to x, and may be negative.",
            FEED,
        ),
        Misconception(
            "bias after the activation",
            lambda x, w_1, b_1, w_2, b_2: (torch.relu(x @ w_1) + b_1) @ w_2 + b_2,
            "b_1 comes after the ReLU. Before it, the bias moves the point at which a unit switches on.",
            FEED,
        ),
        Misconception(
            "no biases",
            lambda x, w_1, b_1, w_2, b_2: torch.relu(x @ w_1) @ w_2,
            "Both biases are missing: x W_1 + b_1, and at the end + b_2.",
            FEED,
        ),
        Misconception(
            "no first bias",
            lambda x, w_1, b_1, w_2, b_2: torch.relu(x @ w_1) @ w_2 + b_2,
            "b_1 is missing: it moves the point at which each hidden unit switches on.",
            FEED,
        ),
        Misconception(
            "no last bias",
            lambda x, w_1, b_1, w_2, b_2: torch.relu(x @ w_1 + b_1) @ w_2,
            "b_2 is missing: it is added at the end, after W_2.",
            FEED,
        ),
        Misconception(
            "sigmoid",
            lambda x, w_1, b_1, w_2, b_2: torch.sigmoid(x @ w_1 + b_1) @ w_2 + b_2,
            "You used a sigmoid, which squeezes everything between 0 and 1. The network has a ReLU: max(0, x).",
            FEED,
        ),
        Misconception(
            "tanh",
            lambda x, w_1, b_1, w_2, b_2: torch.tanh(x @ w_1 + b_1) @ w_2 + b_2,
            "You used tanh, as the RNN of unit 01 does. The network has a ReLU: max(0, x).",
            FEED,
        ),
        Misconception(
            "softmax",
            lambda x, w_1, b_1, w_2, b_2: torch.softmax(x @ w_1 + b_1, dim=-1) @ w_2 + b_2,
            "You used softmax, which is attention's. The feed-forward network has a ReLU: max(0, x), number by number.",
            FEED,
        ),
        Misconception(
            "leaky",
            lambda x, w_1, b_1, w_2, b_2: F.leaky_relu(x @ w_1 + b_1) @ w_2 + b_2,
            "Your ReLU leaks: what is negative should become 0, and not a small negative number.",
            FEED,
        ),
        Misconception(
            "absolute values",
            lambda x, w_1, b_1, w_2, b_2: (x @ w_1 + b_1).abs() @ w_2 + b_2,
            "You made negative numbers positive. A ReLU makes them 0: max(0, x).",
            FEED,
        ),
        Misconception(
            "activation first",
            lambda x, w_1, b_1, w_2, b_2: (torch.relu(x) @ w_1 + b_1) @ w_2 + b_2,
            "The ReLU stands before W_1, and the two matrices behind it are one. It belongs between them.",
            FEED,
        ),
        Misconception(
            "only the hidden layer",
            lambda x, w_1, b_1, w_2, b_2: torch.relu(x @ w_1 + b_1),
            "This is the hidden layer, F numbers for each token. W_2 and b_2 bring it back to D.",
            FEED,
        ),
        Misconception(
            "transposed weights",
            lambda x, w_1, b_1, w_2, b_2: torch.relu(x @ w_1.T + b_1) @ w_2.T + b_2,
            "W_1 is (D, F) here: x W_1 needs no transpose. (nn.Linear and F.linear keep theirs as (F, D), and transpose.)",
            FEED,
        ),
        Misconception(
            "GELU",
            lambda x, w_1, b_1, w_2, b_2: F.gelu(x @ w_1 + b_1) @ w_2 + b_2,
            "You used a GELU. GPT-2 does; the 2017 paper, and this exercise, use ReLU: max(0, x).",
            FEED,
        ),
        Misconception(
            "with the input added",
            lambda x, w_1, b_1, w_2, b_2: x + torch.relu(x @ w_1 + b_1) @ w_2 + b_2,
            "You added x. The way around is the residual connection, which comes next; the network itself does not have it.",
            SKIP,
        ),
        Misconception("cut off", lambda x, w_1, b_1, w_2, b_2: feed_forward(x, w_1, b_1, w_2, b_2).detach(), CUT, FEED),
    ),
    alternatives=(
        lambda x, w_1, b_1, w_2, b_2: F.linear(F.relu(F.linear(x, w_1.T, b_1)), w_2.T, b_2),
        lambda x, w_1, b_1, w_2, b_2: torch.einsum("...f,fd->...d", (x @ w_1 + b_1).clamp(min=0), w_2) + b_2,
        lambda x, w_1, b_1, w_2, b_2: torch.where(x @ w_1 + b_1 > 0, x @ w_1 + b_1, 0.0) @ w_2 + b_2,
    ),
)


# --- 09.4 ---------------------------------------------------------------------------------------------------


def collapse(a_1: Tensor, w_1: Tensor, a_2: Tensor, w_2: Tensor) -> tuple[Tensor, Tensor]:
    """Two attention layers with fixed weights are one. Layer 1 computes A_1 X W_1, layer 2 does A_2 (…) W_2.

    a_1 and a_2 are (T, T), w_1 is (D, E), w_2 is (E, M). Return two tensors A (T, T) and W (D, M), such that
    A X W is what both layers together compute, for every X.
    """
    return a_2 @ a_1, w_1 @ w_2


def _collapse_cases(draw: Draw) -> list[Case]:
    def case(check: str, t: int, d: int, e: int, m: int) -> Case:
        a_1, a_2 = (torch.softmax(draw.tensor(t, t), dim=-1) for _ in range(2))
        return Case(check, (a_1, draw.tensor(d, e), a_2, draw.tensor(e, m)))

    return [
        case("two layers as one", 2, 3, 4, 5),
        case("two layers as one", 5, 4, 2, 3),
        case("square matrices too", 3, 3, 3, 3),
    ]


COLLAPSE = Exercise(
    id="09.4",
    title="Two layers that are one",
    answer="course_lib.exercises.u09.collapse",
    minutes=8,
    outcomes=("09-d",),
    checks=(Check("two layers as one", 2), Check("square matrices too")),
    cases=_collapse_cases,
    hints=(
        "Write the second layer around the first: A_2 (A_1 X W_1) W_2. Which brackets may you move?",
        "All of them: a product of matrices may be grouped as you like, as long as the order stays.",
        "What stands to the left of X is A; what stands to its right is W.",
    ),
    misconceptions=(
        Misconception(
            "first layer outside",
            lambda a_1, w_1, a_2, w_2: (a_1 @ a_2, w_1 @ w_2),
            "A_1 A_2 lets the second layer work first. The later layer stands further out: A_2 (A_1 X).",
            AVERAGE,
        ),
        Misconception(
            "matrices in the other order",
            lambda a_1, w_1, a_2, w_2: (a_2 @ a_1, w_2 @ w_1),
            "W_2 W_1 is the order of columns. Rows are multiplied from the right, so W_1 comes first: X W_1 W_2.",
            AVERAGE,
        ),
        Misconception(
            "both in the other order",
            lambda a_1, w_1, a_2, w_2: (a_1 @ a_2, w_2 @ w_1),
            "Both orders are reversed. Write it down: A_2 (A_1 X W_1) W_2. From left to right: A_2, A_1, X, W_1, W_2.",
            AVERAGE,
        ),
        Misconception(
            "added",
            lambda a_1, w_1, a_2, w_2: (a_1 + a_2, w_1 @ w_2),
            "You added the weights. The second layer averages what the first one made: a product, and its rows sum to 1.",
            AVERAGE,
        ),
        Misconception(
            "averaged",
            lambda a_1, w_1, a_2, w_2: ((a_1 + a_2) / 2, w_1 @ w_2),
            "The mean of both weights is not both after each other: multiply them.",
            AVERAGE,
        ),
        Misconception(
            "element by element",
            lambda a_1, w_1, a_2, w_2: (a_1 * a_2, w_1 @ w_2),
            "* multiplies number by number. One layer after the other is a matrix product: @.",
            AVERAGE,
        ),
        Misconception(
            "softmax once more",
            lambda a_1, w_1, a_2, w_2: (torch.softmax(a_2 @ a_1, dim=-1), w_1 @ w_2),
            "The weights are through the softmax already, and the product's rows sum to 1 as they are.",
            AVERAGE,
        ),
        Misconception(
            "the second layer's weights",
            lambda a_1, w_1, a_2, w_2: (a_2, w_1 @ w_2),
            "A_1 is lost: the first layer averaged too, before the second one did.",
            AVERAGE,
        ),
        Misconception(
            "the first layer's weights",
            lambda a_1, w_1, a_2, w_2: (a_1, w_1 @ w_2),
            "A_2 is lost: the second layer averages what the first one made.",
            AVERAGE,
        ),
        Misconception(
            "the first layer twice",
            lambda a_1, w_1, a_2, w_2: (a_1 @ a_1, w_1 @ w_2),
            "A_1 stands there twice, and A_2 not at all. The second layer has weights of its own.",
            AVERAGE,
        ),
        Misconception(
            "A transposed",
            lambda a_1, w_1, a_2, w_2: ((a_2 @ a_1).T, w_1 @ w_2),
            "A is transposed: its rows should be the queries, and sum to 1.",
            AVERAGE,
        ),
        Misconception(
            "W transposed",
            lambda a_1, w_1, a_2, w_2: (a_2 @ a_1, (w_1 @ w_2).T),
            "W is transposed, as for columns. Here tokens are rows: X W, so W is (D, M).",
            AVERAGE,
        ),
        Misconception(
            "no W",
            lambda a_1, w_1, a_2, w_2: a_2 @ a_1,
            "This is A, and right. W is asked for as well: return both, A first.",
            AVERAGE,
        ),
        Misconception(
            "one matrix of both",
            lambda a_1, w_1, a_2, w_2: (a_2 @ a_1, w_2),
            "W_1 is lost: what the first layer made of the features goes into the second, so W is a product of both.",
            AVERAGE,
        ),
        Misconception(
            "swapped results",
            lambda a_1, w_1, a_2, w_2: (w_1 @ w_2, a_2 @ a_1),
            "Right matrices, in another order: return A first, then W.",
            AVERAGE,
        ),
    ),
    alternatives=(
        lambda a_1, w_1, a_2, w_2: (torch.einsum("ij,jk->ik", a_2, a_1), torch.einsum("de,em->dm", w_1, w_2)),
        lambda a_1, w_1, a_2, w_2: [(a_1.T @ a_2.T).T, (w_2.T @ w_1.T).T],
    ),
)


# --- 09.5 ---------------------------------------------------------------------------------------------------


def block(x: Tensor, a: Tensor, w_1: Tensor, w_2: Tensor, pre_norm: bool) -> Tensor:
    """A small encoder block. Its attention is a (T, T) matrix of weights `a`; its feed-forward network has no biases.

    Sublayers: attend(y) = a y and feed(y) = ReLU(y W_1) W_2, each with a residual connection. norm is layer
    normalisation without gain and bias: F.layer_norm(x, x.shape[-1:]). x is (B, T, D), w_1 (D, F), w_2 (F, D).
    pre_norm True:  x = x + f(norm(x)) for each sublayer f.    pre_norm False:  x = norm(x + f(x)).
    """
    if pre_norm:
        x = x + a @ norm(x)
        return x + torch.relu(norm(x) @ w_1) @ w_2
    x = norm(x + a @ x)
    return norm(x + torch.relu(x @ w_1) @ w_2)


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _block_cases(draw: Draw) -> list[Case]:
    def args(b: int, t: int, d: int, f: int, pre_norm: bool) -> tuple[Any, ...]:
        a = torch.softmax(draw.tensor(t, t), dim=-1)
        return draw.tensor(b, t, d, size=2.0), a, draw.tensor(d, f), draw.tensor(f, d), pre_norm

    return [
        Case("pre-norm", args(2, 3, 4, 5, True)),
        Case("pre-norm", args(3, 5, 6, 4, True)),
        Case("post-norm", args(2, 3, 4, 5, False)),
        Case("post-norm", args(3, 5, 6, 4, False)),
        Case("gradient", args(2, 3, 4, 5, True), gradient=True),
        Case("gradient", args(2, 3, 4, 5, False), gradient=True),
    ]


def _build(pre: Any, post: Any) -> Any:
    return lambda x, a, w_1, w_2, pre_norm: (pre if pre_norm else post)(x, a, w_1, w_2)


def _feed(x: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return torch.relu(x @ w_1) @ w_2


def _pre(x: Tensor, a: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return block(x, a, w_1, w_2, True)


def _post(x: Tensor, a: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return block(x, a, w_1, w_2, False)


def _like(attend: Any = None, feed: Any = None, norm: Any = norm, pre: Any = None, post: Any = None) -> Any:
    """The block with another part: sublayers of (x, a) and (x, w_1, w_2), a norm, or one way of joining f to x."""
    attend, feed = attend or (lambda y, a: a @ y), feed or _feed
    pre, post = pre or (lambda x, f, n: x + f(n(x))), post or (lambda x, f, n: n(x + f(x)))

    def wrong(x: Tensor, a: Tensor, w_1: Tensor, w_2: Tensor, pre_norm: bool) -> Tensor:
        join = pre if pre_norm else post
        x = join(x, lambda y: attend(y, a), norm)
        return join(x, lambda y: feed(y, w_1, w_2), norm)

    return wrong


def _around_pre(x: Tensor, a: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return x + _feed(norm(x + a @ norm(x)), w_1, w_2)


def _around_post(x: Tensor, a: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return norm(x + _feed(norm(x + a @ x), w_1, w_2))


def _feed_first(x: Tensor, a: Tensor, w_1: Tensor, w_2: Tensor, pre_norm: bool) -> Tensor:
    if pre_norm:
        x = x + _feed(norm(x), w_1, w_2)
        return x + a @ norm(x)
    x = norm(x + _feed(x, w_1, w_2))
    return norm(x + a @ x)


def _added_in_place(x: Tensor, a: Tensor, w_1: Tensor, w_2: Tensor, pre_norm: bool) -> Tensor:
    if pre_norm:
        x += a @ norm(x)
        x += _feed(norm(x), w_1, w_2)
        return x
    x += a @ x
    x = norm(x)
    x += _feed(x, w_1, w_2)
    return norm(x)


def _normed_way_around(x: Tensor, a: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    y = norm(x) + a @ norm(x)
    return norm(y) + _feed(norm(y), w_1, w_2)


BLOCK = Exercise(
    id="09.5",
    title="Assemble the block, both ways",
    answer="course_lib.exercises.u09.block",
    minutes=15,
    outcomes=("09-b", "09-c"),
    checks=(Check("pre-norm", 2), Check("post-norm", 2), Check("gradient")),
    cases=_block_cases,
    hints=(
        "Two sublayers, one after the other. What the first returns is what the second starts from.",
        "Pre-norm: only what goes INTO a sublayer is normalised; the x that is added is the bare one.",
        "Pre-norm, first sublayer: x = x + a @ norm(x). Post-norm: x = norm(x + a @ x). The second likewise, with the ReLU.",
    ),
    misconceptions=(
        Misconception(
            "the two kinds swapped",
            _build(_post, _pre),
            "Pre and post are swapped: pre-norm normalises what enters a sublayer, post-norm what leaves the sum.",
            ORDER,
        ),
        Misconception(
            "always pre-norm",
            _build(_pre, _pre),
            "Both kinds are pre-norm here: with pre_norm False, the norm comes after the sum, norm(x + f(x)).",
            ORDER,
        ),
        Misconception(
            "always post-norm",
            _build(_post, _post),
            "Both kinds are post-norm here: with pre_norm True, the norm comes before the sublayer, x + f(norm(x)).",
            ORDER,
        ),
        Misconception(
            "no way around the feed-forward network",
            _build(
                lambda x, a, w_1, w_2: _feed(norm(x + a @ norm(x)), w_1, w_2),
                lambda x, a, w_1, w_2: norm(_feed(norm(x + a @ x), w_1, w_2)),
            ),
            "The second residual connection is missing: the feed-forward network has a way around it too.",
            SKIP,
        ),
        Misconception(
            "no way around attention",
            _build(
                lambda x, a, w_1, w_2: a @ norm(x) + _feed(norm(a @ norm(x)), w_1, w_2),
                lambda x, a, w_1, w_2: norm(norm(a @ x) + _feed(norm(a @ x), w_1, w_2)),
            ),
            "The first residual connection is missing: attention has a way around it too.",
            SKIP,
        ),
        Misconception(
            "no way around at all",
            _build(
                lambda x, a, w_1, w_2: _feed(norm(a @ norm(x)), w_1, w_2),
                lambda x, a, w_1, w_2: norm(_feed(norm(a @ x), w_1, w_2)),
            ),
            "There is no residual connection: nothing of x itself reaches the output, and no gradient the bottom.",
            SKIP,
        ),
        Misconception(
            "the way around is normalised",
            _build(_normed_way_around, _post),
            "You added norm(x). In pre-norm the bare x goes around: that is the free road for the gradient.",
            ORDER,
        ),
        Misconception(
            "side by side",
            _build(
                lambda x, a, w_1, w_2: x + a @ norm(x) + _feed(norm(x), w_1, w_2),
                lambda x, a, w_1, w_2: norm(x + a @ x + _feed(x, w_1, w_2)),
            ),
            "Both sublayers read the same x. The feed-forward network comes second: it reads what attention has made.",
            SKIP,
        ),
        Misconception(
            "around to the old x",
            _build(_around_pre, _around_post),
            "The second way around starts at the x that came in, so what attention added is lost. Add to the newest x.",
            SKIP,
        ),
        Misconception(
            "one way around both",
            _build(
                lambda x, a, w_1, w_2: x + _feed(norm(a @ norm(x)), w_1, w_2),
                lambda x, a, w_1, w_2: norm(x + _feed(norm(a @ x), w_1, w_2)),
            ),
            "One way around everything. There are two, one around each sublayer: x is added after attention, too.",
            SKIP,
        ),
        Misconception(
            "feed-forward first",
            _feed_first,
            "The feed-forward network comes first here. Attention gathers, then the feed-forward network works on it.",
            FEED,
        ),
        Misconception(
            "norm behind the sublayer",
            _like(pre=lambda x, f, n: x + n(f(x)), post=lambda x, f, n: x + n(f(x))),
            "You normalised what the sublayer returns, x + norm(f(x)). Pre-norm: x + f(norm(x)). Post-norm: norm(x + f(x)).",
            ORDER,
        ),
        Misconception(
            "norm before and behind",
            _like(pre=lambda x, f, n: n(x + f(n(x))), post=lambda x, f, n: n(x + f(n(x)))),
            "You normalised twice for each sublayer, before it and after the sum. Pre-norm does the first, post-norm the second.",
            ORDER,
        ),
        Misconception(
            "one more norm at the end",
            _build(lambda *args: norm(_pre(*args)), _post),
            "There is a norm at the end of the pre-norm block. One stands at the end of the whole stack, none in a block.",
            ORDER,
        ),
        Misconception(
            "no last norm",
            _build(_pre, lambda x, a, w_1, w_2: norm(x + a @ x) + _feed(norm(x + a @ x), w_1, w_2)),
            "In post-norm the second sum is normalised as well: norm(x + feed(x)).",
            ORDER,
        ),
        Misconception(
            "norm over the sentence",
            _like(norm=lambda x: F.layer_norm(x, x.shape[-2:])),
            "Your norm runs over all tokens of a sentence. Layer norm takes each token by itself: the last axis only.",
            NORM,
        ),
        Misconception(
            "weights transposed",
            _like(attend=lambda y, a: a.T @ y),
            "You used the transpose of a. Row i of a holds the weights of query i, so attention is a @ x.",
            AVERAGE,
        ),
        Misconception(
            "softmax once more",
            _like(attend=lambda y, a: torch.softmax(a, dim=-1) @ y),
            "a holds weights, not scores: they went through the softmax already, and each row sums to 1.",
            AVERAGE,
        ),
        Misconception(
            "activation at the end",
            _like(feed=lambda y, w_1, w_2: torch.relu(y @ w_1 @ w_2)),
            "The ReLU stands behind W_2. It belongs between the matrices: ReLU(y W_1) W_2.",
            FEED,
        ),
        Misconception(
            "changes its input",
            _added_in_place,
            "x += … writes into the caller's x, and torch refuses it where a gradient is wanted. Write x = x + …",
            SKIP,
        ),
        Misconception(
            "one norm only",
            _build(
                lambda x, a, w_1, w_2: (x + a @ norm(x)) + _feed(x + a @ norm(x), w_1, w_2),
                lambda x, a, w_1, w_2: norm(x + a @ x + _feed(x + a @ x, w_1, w_2)),
            ),
            "There is one norm where there should be two: each of the two sublayers has its own.",
            ORDER,
        ),
        Misconception(
            "no activation",
            _build(
                lambda x, a, w_1, w_2: (x + a @ norm(x)) + norm(x + a @ norm(x)) @ w_1 @ w_2,
                lambda x, a, w_1, w_2: norm(norm(x + a @ x) + norm(x + a @ x) @ w_1 @ w_2),
            ),
            "The ReLU is missing: without it the feed-forward network is a single matrix.",
            FEED,
        ),
        Misconception(
            "cut off", _build(lambda *args: _pre(*args).detach(), lambda *args: _post(*args).detach()), CUT, SKIP
        ),
        Misconception("post-norm cut off", _build(_pre, lambda *args: _post(*args).detach()), CUT, SKIP),
    ),
    alternatives=(
        _build(
            lambda x, a, w_1, w_2: (lambda y: y + F.relu(norm(y) @ w_1) @ w_2)(
                x + torch.einsum("ts,bsd->btd", a, norm(x))
            ),
            lambda x, a, w_1, w_2: (lambda y: norm(y + F.relu(y @ w_1) @ w_2))(norm(x + torch.matmul(a, x))),
        ),
        _build(
            lambda x, a, w_1, w_2: torch.stack([_pre(one, a, w_1, w_2) for one in x]),
            lambda x, a, w_1, w_2: torch.stack([_post(one, a, w_1, w_2) for one in x]),
        ),
    ),
)


# --- 09.6 ---------------------------------------------------------------------------------------------------


def gradient_through_24_layers() -> Any:
    """Numbers instead of vectors: each layer multiplies by 0.8. How much gradient reaches the bottom of 24 layers?

    Return two numbers: without residual connections (y = 0.8 x), and with them (y = x + 0.8 x). Formulas such as
    0.1**3 are welcome; so are two digits of the result.
    """
    return [0.8**24, 1.8**24]


def _not_both_gradients(said: Any) -> str:
    """What is wrong with the two numbers, of which two digits are enough."""
    if not isinstance(said, np.ndarray) or said.shape != (2,):
        return "The answer should be a list of two numbers, such as [0.1**3, 0.2**3]."
    near = np.isclose(said, gradient_through_24_layers(), rtol=0.02, atol=0)
    return "" if near.all() else f"Yours is {said.tolist()}. Not yet: work it out once more."


GRADIENT = Exercise(
    id="09.6",
    title="Gradient through 24 layers, predicted",
    answer="course_lib.exercises.u09.gradient_through_24_layers",
    minutes=4,
    outcomes=("09-c",),
    checks=(Check("both gradients", 2),),
    cases=lambda draw: [Case("both gradients", complaint=_not_both_gradients)],
    hints=(
        "The chain rule multiplies the derivatives of all layers.",
        "The derivative of 0.8 x is 0.8. What is the derivative of x + 0.8 x?",
        "Without: 0.8 twenty-four times as a factor. With: 1.8 twenty-four times. (A norm keeps the second in check.)",
    ),
    misconceptions=(
        Misconception(
            "added instead of multiplied",
            lambda: [24 * 0.8, 24 * 1.8],
            "You added the layers' derivatives. The chain rule multiplies them, one factor for each layer.",
            SKIP,
        ),
        Misconception(
            "the 1 forgotten",
            lambda: [0.8**24, 0.8**24],
            "With a residual connection, the derivative of x + 0.8 x is 1 + 0.8: the 1 is the free road.",
            SKIP,
        ),
        Misconception(
            "only the 1",
            lambda: [0.8**24, 1],
            "The road around contributes a 1 in every layer, and the sublayer its 0.8 besides: 1.8 for each of the 24 layers.",
            SKIP,
        ),
        Misconception(
            "one layer",
            lambda: [0.8, 1.8],
            "These are the derivatives of one layer. There are 24 of them, one after the other: the chain rule multiplies.",
            SKIP,
        ),
        Misconception(
            "one layer too few",
            lambda: [0.8**23, 1.8**23],
            "These are 23 factors. There is one for each layer, and there are 24 layers.",
            SKIP,
        ),
        Misconception(
            "swapped",
            lambda: [1.8**24, 0.8**24],
            "The two are swapped: the first number is that without residual connections.",
            SKIP,
        ),
    ),
    prediction=True,
)


# --- 09.7 ---------------------------------------------------------------------------------------------------


class PreNormStack(nn.Module):
    """A pre-norm stack: every layer changes x a little, x + f(norm(x)), and one more norm stands at the end.

    Its parts: linears (as many nn.Linear as there are layers), norms (as many nn.LayerNorm), and last (one nn.LayerNorm).
    f is a linear map with a ReLU behind it.
    """

    def __init__(self, d_model: int, layers: int):
        """Make the parts: nn.Linear(d_model, d_model) and nn.LayerNorm(d_model), new ones for each layer."""
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(layers))
        self.last = nn.LayerNorm(d_model)

    def forward(self, x: Tensor) -> Tensor:
        """x is (B, T, D). Return a tensor of the same shape."""
        for linear, layer_norm in zip(self.linears, self.norms, strict=True):
            x = x + torch.relu(linear(layer_norm(x)))
        return self.last(x)


def _stack_cases(draw: Draw) -> list[Case]:
    def case(check: str, b: int, t: int, d: int, layers: int, note: str = "") -> Case:
        shapes = {name: tuple(p.shape) for name, p in PreNormStack(d, layers).named_parameters()}
        weights = {n: draw.tensor(*s, size=0.8) + 0.5 * (len(s) == 1) for n, s in sorted(shapes.items())}
        return Case(check, (draw.tensor(b, t, d, size=2.0),), note, build=(d, layers), weights=weights, gradient=True)

    return [
        case("a single layer", 2, 3, 4, 1, "one layer"),
        case("several layers", 2, 3, 4, 2, "two layers"),
        case("several layers", 3, 2, 5, 4, "four layers"),
    ]


def _stack(forward: Any = None, init: Any = None) -> type[PreNormStack]:
    parts = {"forward": forward, "__init__": init}
    return type("PreNormStack", (PreNormStack,), {name: part for name, part in parts.items() if part})


def _parts(linears: Any, norms: Any, last: bool = True) -> Any:
    """An __init__ that makes its linears and norms by the given functions of (make one, how many)."""

    def init(self: Any, d_model: int, layers: int) -> None:
        nn.Module.__init__(self)
        self.linears = linears(lambda: nn.Linear(d_model, d_model), layers)
        self.norms = norms(lambda: nn.LayerNorm(d_model), layers)
        if last:
            self.last = nn.LayerNorm(d_model)

    return init


def _own(make: Any, layers: int) -> nn.ModuleList:
    return nn.ModuleList([make() for _ in range(layers)])


def _shared(make: Any, layers: int) -> nn.ModuleList:
    return nn.ModuleList([make()] * layers)


def _listed(make: Any, layers: int) -> list[nn.Module]:
    return [make() for _ in range(layers)]


def _layers(one: Any, end: Any = None) -> type[PreNormStack]:
    """The stack with another layer, a function of (x, linear, norm), or another end, one of (self, x)."""

    def forward(self: PreNormStack, x: Tensor) -> Tensor:
        for linear, layer_norm in zip(self.linears, self.norms, strict=True):
            x = one(x, linear, layer_norm)
        return end(self, x) if end else self.last(x)

    return _stack(forward)


def _right_layer(x: Tensor, linear: Any, layer_norm: Any) -> Tensor:
    return x + torch.relu(linear(layer_norm(x)))


def _side_by_side(self: PreNormStack, x: Tensor) -> Tensor:
    return self.last(x + sum(torch.relu(f(n(x))) for f, n in zip(self.linears, self.norms, strict=True)))


def _first_only(self: PreNormStack, x: Tensor) -> Tensor:
    for _ in self.linears:
        x = _right_layer(x, self.linears[0], self.norms[0])
    return self.last(x)


def _last_each_time(self: PreNormStack, x: Tensor) -> Tensor:
    for linear, layer_norm in zip(self.linears, self.norms, strict=True):
        x = self.last(_right_layer(x, linear, layer_norm))
    return x


def _returns_in_the_loop(self: PreNormStack, x: Tensor) -> Tensor:
    for linear, layer_norm in zip(self.linears, self.norms, strict=True):
        return self.last(_right_layer(x, linear, layer_norm))
    return x


def _from_the_bottom(self: PreNormStack, x: Tensor) -> Tensor:
    state = x
    for linear, layer_norm in zip(self.linears, self.norms, strict=True):
        state = x + torch.relu(linear(layer_norm(state)))
    return self.last(state)


def _around_all(self: PreNormStack, x: Tensor) -> Tensor:
    state = x
    for linear, layer_norm in zip(self.linears, self.norms, strict=True):
        state = torch.relu(linear(layer_norm(state)))
    return self.last(x + state)


def _last_first(self: PreNormStack, x: Tensor) -> Tensor:
    return _layers(_right_layer, lambda s, y: y).forward(self, self.last(x))


def _stack_in_place(self: PreNormStack, x: Tensor) -> Tensor:
    for linear, layer_norm in zip(self.linears, self.norms, strict=True):
        x += torch.relu(linear(layer_norm(x)))
    return self.last(x)


def _by_number(self: PreNormStack, x: Tensor) -> Tensor:
    for i in range(len(self.norms)):
        y = self.norms[i](x)
        y = F.relu(F.linear(y, self.linears[i].weight, self.linears[i].bias))  # type: ignore[arg-type]
        x = y + x
    return self.last(x)


STACK = Exercise(
    id="09.7",
    title="A stack with weights of its own in every layer",
    answer="course_lib.exercises.u09.PreNormStack",
    minutes=12,
    outcomes=("09-b", "09-c"),
    checks=(Check("a single layer"), Check("several layers", 3)),
    cases=_stack_cases,
    hints=(
        "Two jobs: __init__ makes the parts, forward walks through them. How does torch find parts that stand in a list?",
        "nn.ModuleList([...]) is a list that torch looks into. Make a new nn.Linear for each layer: [part] * 4 is one part.",
        "In forward: for linear, norm in zip(self.linears, self.norms), add to x what the layer makes of norm(x). After the "
        "loop, self.last once.",
    ),
    misconceptions=(
        Misconception(
            "one linear map for all layers",
            _stack(init=_parts(_shared, _own)),
            "All layers share one linear map: [part] * n repeats the same object. Make a new one for each layer.",
            COUNT,
        ),
        Misconception(
            "one norm for all layers",
            _stack(init=_parts(_own, _shared)),
            "All layers share one norm: [part] * n repeats the same object. Each layer has a gain and a bias of its own.",
            COUNT,
        ),
        Misconception(
            "one of each for all layers",
            _stack(init=_parts(_shared, _shared)),
            "[part] * n repeats the same object, so all layers have the same weights. Make new parts for each layer.",
            COUNT,
        ),
        Misconception(
            "plain lists",
            _stack(init=_parts(_listed, _listed)),
            "torch does not look into a plain list, so nothing in it would be trained: use nn.ModuleList.",
            COUNT,
        ),
        Misconception(
            "a plain list of linear maps",
            _stack(init=_parts(_listed, _own)),
            "torch does not look into a plain list, so no linear map would be trained: use nn.ModuleList for them, too.",
            COUNT,
        ),
        Misconception(
            "a plain list of norms",
            _stack(init=_parts(_own, _listed)),
            "torch finds no gains and biases in the layers. It does not look into a plain list of norms: use nn.ModuleList.",
            COUNT,
        ),
        Misconception(
            "the last norm is not there",
            _stack(
                lambda self, x: _layers(_right_layer, lambda s, y: y).forward(self, x), _parts(_own, _own, last=False)
            ),
            "There is no norm at the end. On the free road nothing is ever normalised, so the stack ends with one: self.last.",
            ORDER,
        ),
        Misconception(
            "the last norm is not used",
            _layers(_right_layer, lambda self, x: x),
            "self.last is made and not used. On the free road nothing is ever normalised: the stack ends with one norm more.",
            ORDER,
        ),
        Misconception(
            "post-norm",
            _layers(lambda x, linear, layer_norm: layer_norm(x + torch.relu(linear(x)))),
            "This is post-norm: the norm stands on the road. In pre-norm it stands before the layer: x + f(norm(x)).",
            ORDER,
        ),
        Misconception(
            "no way around",
            _layers(lambda x, linear, layer_norm: torch.relu(linear(layer_norm(x)))),
            "The residual connections are missing: each layer adds to x what it makes of norm(x).",
            SKIP,
        ),
        Misconception(
            "the way around is normalised",
            _layers(lambda x, linear, layer_norm: layer_norm(x) + torch.relu(linear(layer_norm(x)))),
            "You added norm(x). In pre-norm the bare x goes around: that is the free road for the gradient.",
            ORDER,
        ),
        Misconception(
            "no norm in the layers",
            _layers(lambda x, linear, layer_norm: x + torch.relu(linear(x))),
            "The layers see the bare x. In pre-norm each of them sees norm(x), so that the size of x does not matter to it.",
            ORDER,
        ),
        Misconception(
            "no activation",
            _layers(lambda x, linear, layer_norm: x + linear(layer_norm(x))),
            "The ReLU behind the linear map is missing.",
            FEED,
        ),
        Misconception(
            "activation over the sum",
            _layers(lambda x, linear, layer_norm: torch.relu(x + linear(layer_norm(x)))),
            "The ReLU stands on the road, behind the sum, and cuts off half of x. It belongs inside f: x + ReLU(…).",
            SKIP,
        ),
        Misconception(
            "side by side",
            _stack(_side_by_side),
            "All layers read the same x, side by side. In a stack, each reads what the layer below has made.",
            SKIP,
        ),
        Misconception(
            "the first layer again and again",
            _stack(_first_only),
            "You went through the first layer several times. Take the parts one after the other: zip(self.linears, self.norms).",
            COUNT,
        ),
        Misconception(
            "returns in the loop",
            _stack(_returns_in_the_loop),
            "Only the first layer does anything: the return stands inside the loop. Move it to the left, behind the loop.",
            COUNT,
        ),
        Misconception(
            "always around to the input",
            _stack(_from_the_bottom),
            "Each layer adds to the x that came in, so what the layers before have added is lost. Add to the newest x.",
            SKIP,
        ),
        Misconception(
            "one way around all",
            _stack(_around_all),
            "One way around the whole stack. Each layer has its own: x is added in every round of the loop.",
            SKIP,
        ),
        Misconception(
            "the last norm first",
            _stack(_last_first),
            "self.last stands before the loop. It comes when the loop is over.",
            ORDER,
        ),
        Misconception(
            "norm behind the layer",
            _layers(lambda x, linear, layer_norm: x + layer_norm(torch.relu(linear(x)))),
            "You normalised what the layer makes, x + norm(f(x)). Pre-norm normalises what it sees: x + f(norm(x)).",
            ORDER,
        ),
        Misconception(
            "activation before the linear map",
            _layers(lambda x, linear, layer_norm: x + linear(torch.relu(layer_norm(x)))),
            "The ReLU stands before the linear map. Here it comes behind it: ReLU(linear(norm(x))).",
            FEED,
        ),
        Misconception(
            "changes its input",
            _stack(_stack_in_place),
            "x += … writes into the caller's x, and torch refuses it where a gradient is wanted. Write x = x + …",
            SKIP,
        ),
        Misconception(
            "the last norm after every layer",
            _stack(_last_each_time),
            "self.last stands inside the loop, after every layer. It comes once, when the loop is over.",
            ORDER,
        ),
    ),
    alternatives=(
        _stack(_by_number),
        _stack(init=_parts(lambda make, n: nn.Sequential(*(make() for _ in range(n))), _own)),
    ),
)


# --- 09.8 ---------------------------------------------------------------------------------------------------


def four_stacks() -> Any:
    """Somebody measured four stacks of 24 blocks and lost the labels. Which is which?

            gradient at the bottom,     state at the top,
            relative to the top         relative to the input
    A       0.75                        1.0 (in every run)
    B       5e-26                       0.05
    C       6.0                         4.8
    D       1.9                         1.9

    The four kinds: "bare", "residual" (no norms), "pre-norm", "post-norm".
    Return a list of four words, for A, B, C and D.
    """
    return ["post-norm", "bare", "residual", "pre-norm"]


FOUR_STACKS = Exercise(
    id="09.8",
    title="Read four measurements",
    answer="course_lib.exercises.u09.four_stacks",
    minutes=5,
    outcomes=("09-c",),
    checks=(Check("the four stacks", 2),),
    cases=lambda draw: [Case("the four stacks")],
    hints=(
        "Start with the one that stands out. What happens to a gradient that has no way around?",
        "One of them always has a state of the same size at the top. After which part of a block is that so?",
        "Two are left, both with a free road. In one of them a layer sees a state of any size, and adds the more the larger it is.",
    ),
    misconceptions=(
        Misconception(
            "pre and post swapped",
            lambda: ["pre-norm", "bare", "residual", "post-norm"],
            "Pre- and post-norm are swapped. A's state has the same size in every run: a norm was the last thing it went through.",
            ORDER,
        ),
        Misconception(
            "residual and pre-norm swapped",
            lambda: ["post-norm", "bare", "pre-norm", "residual"],
            "C and D are swapped. Without norms a layer adds the more the larger the state is already, so it grows faster.",
            ORDER,
        ),
        Misconception(
            "residual and post-norm swapped",
            lambda: ["residual", "bare", "post-norm", "pre-norm"],
            "A and C are swapped. Without any norm nothing keeps the state's size: it grows, and does not end at 1.0.",
            NORM,
        ),
        Misconception(
            "the three with residuals, one on",
            lambda: ["residual", "bare", "pre-norm", "post-norm"],
            "B is right. A ends with the same size in every run, so a norm came last; and of C and D, which has a norm at all?",
            ORDER,
        ),
        Misconception(
            "the three with residuals, one back",
            lambda: ["pre-norm", "bare", "post-norm", "residual"],
            "B is right. A ends with the same size in every run, so a norm came last; and of C and D, which has a norm at all?",
            ORDER,
        ),
        Misconception(
            "residual loses the gradient",
            lambda: ["post-norm", "residual", "bare", "pre-norm"],
            "B has lost all of its gradient: it cannot have a free road. That is the bare stack.",
            SKIP,
        ),
        Misconception(
            "post-norm loses the gradient",
            lambda: ["bare", "post-norm", "residual", "pre-norm"],
            "B has lost all of its gradient. Post-norm loses some, but it has ways around: B is the bare stack.",
            SKIP,
        ),
        Misconception(
            "pre-norm loses the gradient",
            lambda: ["post-norm", "pre-norm", "residual", "bare"],
            "B has lost all of its gradient. Pre-norm leaves the road free: B is the bare stack.",
            SKIP,
        ),
    ),
    prediction=True,
)

EXERCISES = (PARAMETERS, LAYER_NORM, FEED_FORWARD, COLLAPSE, BLOCK, GRADIENT, STACK, FOUR_STACKS)
