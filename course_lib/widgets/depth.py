"""Unit 09's figures: what depth does to a gradient, and what layer normalisation does to a row."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import traitlets

from .. import plots
from ..shapes import expect
from .kit import Figure, matrix, synced

D, F, TOKENS, DEEPEST = 8, 32, 4, 32
NORMS = ("none", "pre", "post")
FLOOR = 1e-300  # a logarithm has no place for 0
EPS = 1e-5
Rows = np.ndarray


@functools.lru_cache(maxsize=8)
def _draw(seed: int) -> tuple[Rows, Rows, list[tuple[Rows, Rows]]]:
    """Tokens, a gradient for the top, and weights: uniform as torch's Linear draws them, the same as in JavaScript."""
    state = (seed * 2654435761 + 12345) % 2**32

    def rows(n: int, width: int, size: float) -> Rows:
        nonlocal state
        numbers = []
        for _ in range(n * width):
            state = (state * 1664525 + 1013904223) % 2**32
            numbers.append(state / 2**31 - 1)
        return np.array(numbers).reshape(n, width) * size

    x, top = rows(TOKENS, D, 3**0.5), rows(TOKENS, D, 1.0)
    return x, top, [(rows(D, F, D**-0.5), rows(F, D, F**-0.5)) for _ in range(DEEPEST)]


def _norm(x: Rows) -> tuple[Rows, Rows]:
    """Each row with mean 0 and variance 1, and what it was divided by."""
    centred = x - x.mean(axis=1, keepdims=True)
    sigma = np.sqrt((centred**2).mean(axis=1, keepdims=True) + EPS)
    return centred / sigma, sigma


def _norm_back(g: Rows, y: Rows, sigma: Rows) -> Rows:
    """The gradient of a norm loses its mean and what lies along y: (g − mean(g) − y · mean(g y)) / σ."""
    return (g - g.mean(axis=1, keepdims=True) - y * (g * y).mean(axis=1, keepdims=True)) / sigma


def _through(seed: int, depth: int, residual: bool, norm: str, gain: float) -> tuple[list[Rows], list[Rows]]:
    """The states from the bottom to the top, and the gradient at each of them."""
    x, top, blocks = _draw(seed)
    states, seen = [x], []
    for w_1, w_2 in blocks[:depth]:
        inside, sigma = _norm(x) if norm == "pre" else (x, x)
        hidden = inside @ (gain * w_1)
        total = np.maximum(hidden, 0) @ (gain * w_2) + (x if residual else 0)
        x, after = _norm(total) if norm == "post" else (total, total)
        seen.append((inside, sigma, hidden, x, after))
        states.append(x)
    gradients = [top]
    for (w_1, w_2), (inside, sigma, hidden, out, after) in zip(blocks[:depth][::-1], seen[::-1], strict=True):
        above = _norm_back(gradients[-1], out, after) if norm == "post" else gradients[-1]
        below = (above @ (gain * w_2).T * (hidden > 0)) @ (gain * w_1).T
        below = _norm_back(below, inside, sigma) if norm == "pre" else below
        gradients.append(above + below if residual else below)
    return states, gradients[::-1]


def _size(rows: Rows) -> float:
    return max(FLOOR, float(np.sqrt((rows**2).sum())))


def _log(rows: Rows, whole: Rows) -> float:
    return float(np.log10(_size(rows) / _size(whole)))


def _alike(rows: Rows) -> float:
    """The mean cosine of two different tokens."""
    unit = rows / np.array([[_size(row)] for row in rows])
    return float(((unit @ unit.T).sum() - (unit * unit).sum()) / (len(rows) * (len(rows) - 1)))


class DepthGradient(Figure, script="depth.js"):
    """A stack of feed-forward blocks: turn its depth, its residual connections, its norms and the size of its weights.

    Each block is ReLU(x W_1) W_2 with D = 8, F = 32, on four tokens. All sizes are given as powers of ten.
    """

    depth = traitlets.Int(24).tag(sync=True)
    residual = traitlets.Bool(False).tag(sync=True)
    norm = traitlets.Unicode("none").tag(sync=True)
    gain = traitlets.Float(1.0).tag(sync=True)
    seed = traitlets.Int(0).tag(sync=True)

    def __init__(
        self, depth: int = 24, residual: bool = False, norm: str = "none", gain: float = 1.0, seed: int = 0
    ) -> None:
        expect(1 <= depth <= DEEPEST, f"The depth goes from 1 to {DEEPEST} blocks; got {depth}.")
        expect(norm in NORMS, f"norm should be one of {', '.join(NORMS)}; got {norm!r}.")
        expect(1 <= gain <= 3, f"The size of the weights goes from 1 to 3 times torch's; got {gain}.")
        super().__init__(depth=depth, residual=residual, norm=norm, gain=float(gain), seed=seed)

    def numbers(self) -> dict[str, Any]:
        kinds = [[(way, norm) for norm in NORMS] for way in (False, True)]
        runs = [[_through(self.seed, self.depth, *kind, self.gain) for kind in row] for row in kinds]
        states, gradients = runs[int(self.residual)][NORMS.index(self.norm)]
        return {
            "gradient": np.array([_log(g, gradients[-1]) for g in gradients]),
            "state": np.array([_log(s, states[0]) for s in states]),
            "bottom": np.array([[_log(g[0], g[-1]) for _, g in row] for row in runs]),
            "alike": np.array([[_alike(s[-1]) for s, _ in row] for row in runs]),
        }

    def alt(self) -> str:
        now = self.numbers()
        kind = f"{'with' if self.residual else 'without'} residual connections, norm: {self.norm}"
        return (
            f"A stack of {self.depth} blocks {kind}: the gradient at the bottom is {10 ** now['gradient'][0]:.1e} of "
            f"that at the top, the state at the top is {10 ** now['state'][-1]:.1e} times as large as the input."
        )

    def picture(self) -> plots.Picture:
        now, places = self.numbers(), range(self.depth + 1)
        named = {"gradient, 1 at the top": now["gradient"], "size of the state, 1 at the bottom": now["state"]}
        lines = {name: (places, 10.0**values) for name, values in named.items()}
        words = {"title": f"A stack of {self.depth} blocks", "xlabel": "after block number", "ylabel": "size"}
        return plots.curves(lines, **words, alt=self.alt(), log=True)


class NormRow(Figure, script="norm_row.js"):
    """Move the numbers of one token, its gain and its bias: what layer normalisation makes of them."""

    row: Any = synced()
    gain = traitlets.Float(1.0).tag(sync=True)
    bias = traitlets.Float(0.0).tag(sync=True)

    def __init__(self, row: Any, gain: float = 1.0, bias: float = 0.0):
        (row,) = matrix([row], "row")
        expect(
            2 <= len(row) <= 6 and max(map(abs, row)) <= 10,
            f"row should have two to six numbers from -10 to 10; got {row}.",
        )
        super().__init__(row=row, gain=float(gain), bias=float(bias))

    def numbers(self) -> dict[str, Any]:
        (row,) = x = np.array([self.row])
        normal = _norm(x)[0][0]
        output = normal * self.gain + self.bias
        both = (row, output)
        return {
            "normal": normal,
            "output": output,
            "mean": np.array([r.mean() for r in both]),
            "variance": np.array([r.var() for r in both]),
        }

    def alt(self) -> str:
        now = self.numbers()
        return (
            f"The row {self.row} with mean {now['mean'][0]:.2f} and variance {now['variance'][0]:.2f} becomes "
            f"{now['output'].round(2).tolist()} with mean {now['mean'][1]:.2f} and variance {now['variance'][1]:.2f}."
        )

    def picture(self) -> plots.Picture:
        lines = {"x": self.row, "LN(x)": self.numbers()["output"]}
        title = "A row before and after layer normalisation"
        return plots.curves(lines, title=title, xlabel="place in the row", ylabel="number", alt=self.alt())
