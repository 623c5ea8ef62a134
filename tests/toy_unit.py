"""A small unit for testing the machinery: two exercises, one function and one class."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from course_lib.by_hand import softmax
from course_lib.exercises.declare import Case, Check, Draw, Exercise, Misconception

READ = ("04", "Somewhere")


def toy_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """softmax(q kᵀ) v for q (T, K), k (S, K), v (S, V); mask (T, S) is True where a query may attend."""
    scores = q @ k.T
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    # a comment inside the answer
    return softmax(scores) @ v


class ToyLayer(nn.Module):
    """x W + b with a weight (d, e) and a bias (e,)."""

    def __init__(self, d: int, e: int):
        """Make `weight` and `bias`."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(d, e))
        self.bias = nn.Parameter(torch.zeros(e))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (B, d) → (B, e)."""
        return x @ self.weight + self.bias


def function_cases(draw: Draw) -> list[Case]:
    return [
        Case("values", (draw(2, 3), draw(2, 3), draw(2, 3))),
        Case("values", (draw(3, 4), draw(5, 4), draw(5, 2)), "more keys than queries"),
        Case("large scores", (draw(3, 4, size=900), draw(5, 4), draw(5, 2))),
        Case("mask", (draw(3, 4), draw(5, 4), draw(5, 2), draw.mask(3, 5))),
    ]


def module_cases(draw: Draw) -> list[Case]:
    weights = {"weight": draw(4, 3), "bias": draw(3)}
    return [
        Case("parameters and values", (draw.tensor(2, 4),), build=(4, 3), weights=weights),
        Case("gradient", (draw.tensor(2, 4),), build=(4, 3), weights=weights, gradient=True),
    ]


def _naive(q, k, v, mask=None):
    scores = q @ k.T if mask is None else np.where(mask, q @ k.T, -np.inf)
    with np.errstate(all="ignore"):
        e = np.exp(scores * 1.0)
        return e / e.sum(-1, keepdims=True) @ v


class Detached(ToyLayer):
    def forward(self, x):
        return x.detach() @ self.weight + self.bias


class NoParameters(ToyLayer):
    def __init__(self, d, e):
        super().__init__(d, e)
        self.list = [nn.Parameter(torch.zeros(e))]
        del self.bias

    def forward(self, x):
        return x @ self.weight


FUNCTION = Exercise(
    id="90.1",
    title="Toy attention",
    answer="toy_unit.toy_attention",
    minutes=5,
    outcomes=("04-b",),
    checks=(Check("values", 2), Check("large scores"), Check("mask")),
    cases=function_cases,
    hints=("first", "second", "third"),
    misconceptions=(
        Misconception("over queries", lambda q, k, v, mask=None: softmax(q @ k.T, axis=0) @ v, "Wrong axis.", READ),
        Misconception("ignores the mask", lambda q, k, v, mask=None: softmax(q @ k.T) @ v, "Forgets the mask.", READ),
        Misconception("overflows", _naive, "Overflows.", READ),
    ),
    alternatives=(lambda q, k, v, mask=None: np.einsum("ts,sv->tv", softmax(np.einsum("tk,sk->ts", q, k)
                  if mask is None else np.where(mask, q @ k.T, -1e9)), v),),
    forbidden=("scaled_dot_product_attention",),
)  # fmt: skip

MODULE = Exercise(
    id="90.2",
    title="Toy layer",
    answer="toy_unit.ToyLayer",
    minutes=5,
    outcomes=("04-b",),
    checks=(Check("parameters and values"), Check("gradient")),
    cases=module_cases,
    hints=("first", "second", "third"),
    misconceptions=(
        Misconception("detached", Detached, "Cuts the gradient.", READ),
        Misconception("plain list", NoParameters, "torch cannot see it.", READ),
    ),
)
EXERCISES = (FUNCTION, MODULE)
