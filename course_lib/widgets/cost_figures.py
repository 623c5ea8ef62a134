"""Unit 12's figures: who sees whom and what it costs, a softmax in pieces, and costs against length and width."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets

from .. import plots
from ..shapes import expect
from .kit import Figure, matrix, synced

WIDTH = 1000  # the width d that the cost of a pattern is told for
LENGTHS = 2 ** np.arange(4, 18)  # where the cost curves are computed


def _random_blocks(blocks: int, count: int, seed: int) -> np.ndarray:
    """(blocks, blocks): `count` True in each row, drawn by a hash that JavaScript computes as well."""
    row, column = np.indices((blocks, blocks), dtype=np.uint32)
    start = np.full_like(row, seed + 1) * np.uint32(0xC2B2AE3D)
    h = (row + np.uint32(1)) * np.uint32(0x9E3779B1) ^ (column + np.uint32(1)) * np.uint32(0x85EBCA77) ^ start
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
        h = (h ^ (h >> np.uint32(shift))) * np.uint32(factor)
    h ^= h >> np.uint32(15)
    rank = h.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    return rank < count


class PatternExplorer(Figure, script="pattern_explorer.js"):
    """BigBird's pattern: neighbouring, global and random blocks; pairs, growth, layers until all are reached."""

    length = traitlets.Int(48).tag(sync=True)
    size = traitlets.Int(1).tag(sync=True)
    radius = traitlets.Int(2).tag(sync=True)
    global_blocks = traitlets.Int(0).tag(sync=True)
    random_blocks = traitlets.Int(0).tag(sync=True)
    causal = traitlets.Bool(False).tag(sync=True)
    seed = traitlets.Int(0).tag(sync=True)
    chosen: Any = synced()  # [query, key], counted from 0

    def __init__(
        self, length: int = 48, size: int = 1, radius: int = 2, global_blocks: int = 0, random_blocks: int = 0
    ):
        expect(8 <= length <= 96, f"There is room for 8 to 96 words; got {length}.")
        expect(1 <= size <= 16, f"A block has 1 to 16 words; got {size}.")
        expect(
            min(radius, global_blocks, random_blocks) >= 0,
            f"Radius, global and random blocks are 0 or more; got {radius}, {global_blocks} and {random_blocks}.",
        )
        super().__init__(
            length=length,
            size=size,
            radius=radius,
            global_blocks=global_blocks,
            random_blocks=random_blocks,
            chosen=[length // 2, length // 2],
        )

    def kinds(self, length: int) -> np.ndarray:
        """(n, n): 0 is left out, 1 a neighbour, 2 global, 3 random."""
        blocks = -(-length // self.size)
        a, b = np.indices((blocks, blocks))
        layout = np.where(_random_blocks(blocks, self.random_blocks, self.seed), 3, 0)
        layout[np.abs(a - b) <= self.radius] = 1
        layout[np.minimum(a, b) < self.global_blocks] = 2
        kinds = layout.repeat(self.size, 0).repeat(self.size, 1)[:length, :length]
        return np.tril(kinds) if self.causal else kinds

    def numbers(self) -> dict[str, Any]:
        kinds = self.kinds(self.length)
        pairs, n = int((kinds > 0).sum()), self.length
        return {
            "kinds": kinds,
            "pairs": pairs,
            "share": pairs / n**2,
            "growth": (self.kinds(2 * n) > 0).sum() / pairs,
            "layers": self.layers(kinds > 0),
            "cost": np.array([2 * pairs * WIDTH, 2 * n**2 * WIDTH]),
            "seen": int((kinds[self.chosen[0]] > 0).sum()),
        }

    def layers(self, sees: np.ndarray) -> int:
        """How many layers until every word has heard of every other (causal: of every earlier one); −1 for never."""
        wanted = np.tri(len(sees), dtype=bool) if self.causal else np.ones_like(sees)
        known, count = sees.copy(), 1
        while not known[wanted].all():
            more = (known.astype(int) @ sees) > 0
            if (more == known).all():
                return -1
            known, count = more, count + 1
        return count

    def alt(self) -> str:
        now = self.numbers()
        reach = f"{now['layers']} layers" if now["layers"] > 0 else "no number of layers"
        return (
            f"Which of {self.length} words sees which: {now['pairs']} pairs, {now['share']:.0%} of all. Twice the "
            f"length has {now['growth']:.2f} times the pairs; {reach} bring every word to every other."
        )

    def picture(self) -> plots.Picture:
        from matplotlib.colors import ListedColormap

        figure, axes = plots.new(4.6, 4.6)
        axes.imshow(self.numbers()["kinds"], cmap=ListedColormap(["#d9d9d9", "#31688e", "#fde725", "#D55E00"]), vmax=3)
        axes.set(title="Who sees whom", xlabel="key (attended to)", ylabel="query (attends)")
        return plots.Picture(figure, self.alt())


class OnlineSoftmax(Figure, script="online_softmax.js"):
    """One query's scores come tile by tile: running maximum, running sum, running output, and how they are rescaled."""

    scores: Any = synced()
    values: Any = synced()
    tile = traitlets.Int(1).tag(sync=True)
    step = traitlets.Int(1).tag(sync=True)
    rescale = traitlets.Bool(True).tag(sync=True)

    def __init__(self, scores: Any, values: Any, tile: int = 1, step: int = 1):
        (row,) = matrix([scores], "scores")
        rows = matrix(values, "values")
        expect(len(row) == len(rows), f"There is one value for each score; got {len(row)} and {len(rows)}.")
        expect(2 <= len(row) <= 12, f"There is room for 2 to 12 keys; got {len(row)}.")
        expect(1 <= tile <= len(row), f"A tile has 1 to {len(row)} keys; got {tile}.")
        expect(step >= 1, f"The first step is 1; got {step}.")
        super().__init__(scores=row, values=rows, tile=tile, step=step)

    def numbers(self) -> dict[str, Any]:
        scores, values = np.array(self.scores), np.array(self.values)
        count = min(self.step, -(-len(scores) // self.tile))
        top, total, out = -np.inf, 0.0, np.zeros(values.shape[1])
        history: dict[str, list[Any]] = {name: [] for name in ("top", "factor", "sum", "out")}
        for first in range(0, count * self.tile, self.tile):
            new, seen = scores[first : first + self.tile], values[first : first + self.tile]
            higher = max(top, new.max())
            factor = np.exp(top - higher) if self.rescale else 1.0
            weights = np.exp(new - higher)
            top, total, out = higher, total * factor + weights.sum(), out * factor + weights @ seen
            for name, value in zip(history, (top, factor, total, out), strict=True):
                history[name].append(value)
        weights = np.exp(scores - scores.max())
        exact = weights @ values / weights.sum()
        return {name: np.array(value) for name, value in history.items()} | {"output": out / total, "exact": exact}

    def alt(self) -> str:
        now = self.numbers()
        listed = ", ".join(f"{x:.4f}" for x in now["output"])
        return (
            f"After {len(now['top'])} tiles of {self.tile} the maximum is {now['top'][-1]:g}, "
            f"the sum {now['sum'][-1]:.4f} and the output {listed}."
        )

    def picture(self) -> plots.Picture:
        now = self.numbers()
        rows = {name: now[name] for name in ("top", "sum")} | {f"out {c + 1}": x for c, x in enumerate(now["out"].T)}
        title = "Maximum, sum and output, tile by tile"
        return plots.curves(rows, title=title, xlabel="tile", ylabel="so far", alt=self.alt())


class CostCurves(Figure, script="cost_curves.js"):
    """Multiplications of one layer against the length: all pairs, few keys for each query, recurrent, convolution."""

    length = traitlets.Int(512).tag(sync=True)
    width = traitlets.Int(1000).tag(sync=True)
    few = traitlets.Int(128).tag(sync=True)

    def __init__(self, length: int = 512, width: int = 1000, few: int = 128):
        for name, value in (("length", length), ("width", width), ("few", few)):
            expect(1 <= value <= 131_072, f"{name} should be 1 to 131072; got {value}.")
        super().__init__(length=length, width=width, few=few)

    def costs(self, n: Any) -> np.ndarray:
        """Attention n²d + nd², with few keys n·min(few, n)·d + nd², recurrent nd², convolution of width 3: 3nd²."""
        n, d = np.asarray(n, dtype=float), float(self.width)
        rows = n * d**2
        return np.array([n**2 * d + rows, n * np.minimum(n, self.few) * d + rows, rows, 3 * rows])

    def numbers(self) -> dict[str, Any]:
        n, d = self.length, self.width
        return {
            "costs": self.costs(n),
            "curves": self.costs(LENGTHS),
            "growth": self.costs(2 * n) / self.costs(n),
            "share": n / (n + d),
            "bytes": 4 * n**2,
            "steps": np.array([1, 1, n, 1]),
        }

    def alt(self) -> str:
        now = self.numbers()
        listed = ", ".join(f"{n} {c:.2g}" for n, c in zip(NAMES, now["costs"], strict=True))
        return (
            f"Multiplications of a layer for {self.length} words of width {self.width}: {listed}. The pairs are "
            f"{now['share']:.0%} of attention's."
        )

    def picture(self) -> plots.Picture:
        lines = {name: (LENGTHS, curve) for name, curve in zip(NAMES, self.numbers()["curves"], strict=True)}
        made = plots.curves(
            lines,
            title=f"Multiplications of a layer, d = {self.width}",
            xlabel="words n",
            ylabel="multiplications",
            alt=self.alt(),
            log=True,
        )
        axes = made.figure.axes[0]
        axes.set_xscale("log", base=2)
        axes.axvline(self.length, color="0.5")
        return made


NAMES = ("attention, all pairs", "attention, few keys", "recurrent", "convolution")
