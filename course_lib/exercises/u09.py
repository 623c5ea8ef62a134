"""Unit 09, the Transformer block: normalise, attend, feed forward, and a way around each."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

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
            "no norms", lambda: 840, "The two layer norms are missing: each has a gain and a bias, 2 D numbers.", COUNT
        ),
        Misconception(
            "one norm",
            lambda: 856,
            "There are two layer norms, one for each of the two sublayers; you counted one.",
            COUNT,
        ),
        Misconception(
            "once per head",
            lambda: 1160,
            "You counted attention once for each head. Heads share the columns of one matrix: D² whatever H is.",
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
    outcomes=("09-d",),
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
            "There is a second ReLU, behind W_2. The output goes back into the residual stream, and may be negative.",
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
    ]


def _build(pre: Any, post: Any) -> Any:
    return lambda x, a, w_1, w_2, pre_norm: (pre if pre_norm else post)(x, a, w_1, w_2)


def _feed(x: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return torch.relu(x @ w_1) @ w_2


def _pre(x: Tensor, a: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return block(x, a, w_1, w_2, True)


def _post(x: Tensor, a: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return block(x, a, w_1, w_2, False)


def _parallel(x: Tensor, a: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return x + a @ norm(x) + _feed(norm(x), w_1, w_2)


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
            _build(_parallel, _post),
            "Both sublayers read the same x. The feed-forward network comes second: it reads what attention has made.",
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
        Misconception("cut off", _build(lambda *args: _pre(*args).detach(), _post), CUT, SKIP),
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
    """Numbers instead of vectors: each layer multiplies by 0.5. How much gradient reaches the bottom of 24 layers?

    Return two numbers: without residual connections (y = 0.5 x), and with them (y = x + 0.5 x). Formulas such as
    0.1**3 are welcome.
    """
    return [0.5**24, 1.5**24]


GRADIENT = Exercise(
    id="09.6",
    title="Gradient through 24 layers, predicted",
    answer="course_lib.exercises.u09.gradient_through_24_layers",
    minutes=4,
    outcomes=("09-c",),
    checks=(Check("both gradients", 2),),
    cases=lambda draw: [Case("both gradients")],
    hints=(
        "The chain rule multiplies the derivatives of all layers.",
        "The derivative of 0.5 x is 0.5. What is the derivative of x + 0.5 x?",
        "Without: 0.5 twenty-four times as a factor. With: 1.5 twenty-four times. (A norm keeps the second in check.)",
    ),
    misconceptions=(
        Misconception(
            "added instead of multiplied",
            lambda: [12, 36],
            "You added the layers' derivatives. The chain rule multiplies them, one factor for each layer.",
            SKIP,
        ),
        Misconception(
            "the 1 forgotten",
            lambda: [0.5**24, 0.5**24],
            "With a residual connection, the derivative of x + 0.5 x is 1 + 0.5: the 1 is the free road.",
            SKIP,
        ),
        Misconception(
            "only the 1",
            lambda: [0.5**24, 1],
            "The road around contributes the 1, and the sublayer its 0.5 besides: 1.5 for each layer.",
            SKIP,
        ),
        Misconception(
            "swapped",
            lambda: [1.5**24, 0.5**24],
            "The two are swapped: the first number is that without residual connections.",
            SKIP,
        ),
    ),
    prediction=True,
)

EXERCISES = (PARAMETERS, LAYER_NORM, FEED_FORWARD, COLLAPSE, BLOCK, GRADIENT)
