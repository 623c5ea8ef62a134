"""Unit 08's figures: the table of sinusoids as an image, and what a score keeps of distance."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets

from .. import plots
from ..by_hand import alibi_slopes, rotary, sinusoidal
from ..shapes import expect
from .kit import Figure

FARTHEST = 60
HEADS = 8


def _expect_sizes(d_model: int, base: float) -> None:
    even = 2 <= d_model <= 64 and d_model % 2 == 0
    expect(even, f"d_model should be even, 2 to 64: columns come in pairs; got {d_model}.")
    expect(1 < base <= 1e5, f"base should be above 1 and at most 100000; got {base}.")


class SinusoidImage(Figure, script="sinusoid_image.js"):
    """The table PE as an image: turn the width and the base, and walk down the positions."""

    d_model = traitlets.Int(32).tag(sync=True)
    base = traitlets.Float(10_000.0).tag(sync=True)
    length = traitlets.Int(50).tag(sync=True)
    position = traitlets.Int(0).tag(sync=True)

    def __init__(self, d_model: int = 32, base: float = 10_000.0, length: int = 50, position: int = 0):
        _expect_sizes(d_model, base)
        expect(0 <= position < length, f"position should be 0 to {length - 1}; got {position}.")
        super().__init__(d_model=d_model, base=float(base), length=length, position=position)

    def numbers(self) -> dict[str, Any]:
        waves = 2 * np.pi * self.base ** (np.arange(0, self.d_model, 2) / self.d_model)
        table = sinusoidal(self.length, self.d_model, base=self.base)
        return {"table": table, "row": table[self.position], "waves": waves}

    def alt(self) -> str:
        waves = self.numbers()["waves"]
        return (
            f"Sinusoids of width {self.d_model} and base {self.base:g} for {self.length} positions: the first pair of "
            f"columns repeats after {waves[0]:.1f} positions, the last after {waves[-1]:.1f}."
        )

    def picture(self) -> plots.Picture:
        figure, axes = plots.new(5.6, 3.6)
        image = axes.imshow(self.numbers()["table"], cmap="viridis", vmin=-1, vmax=1, aspect="auto")
        axes.set(title="The table of sinusoids", xlabel="column of PE", ylabel="position t")
        figure.colorbar(image, ax=axes, label="PE(t, column)")
        return plots.Picture(figure, self.alt())


class DotsByDistance(Figure, script="dots_by_distance.js"):
    """Three curves against the distance k: PE(t)·PE(t+k), a rotary score, and ALiBi's factor on a weight."""

    d_model = traitlets.Int(32).tag(sync=True)
    base = traitlets.Float(10_000.0).tag(sync=True)
    look = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(2).tag(sync=True)

    def __init__(self, d_model: int = 32, base: float = 10_000.0, look: int = 0, head: int = 2):
        _expect_sizes(d_model, base)
        expect(0 <= look <= FARTHEST, f"look is a distance from 0 to {FARTHEST}; got {look}.")
        expect(1 <= head <= HEADS, f"head should be 1 to {HEADS}; got {head}.")
        super().__init__(d_model=d_model, base=float(base), look=look, head=head)

    def numbers(self) -> dict[str, Any]:
        table = sinusoidal(FARTHEST + 1, self.d_model, base=self.base)
        query = np.tile([[1.0, 0.0]], self.d_model // 2)
        wanted = rotary(query, [self.look], base=self.base)  # a key's content that fits a query `look` tokens later
        turned = rotary(np.repeat(wanted, FARTHEST + 1, axis=0), -np.arange(FARTHEST + 1), base=self.base)
        half = self.d_model / 2  # what both products are at their highest
        return {
            "sinusoidal": table @ table[0] / half,
            "rotary": turned @ query[0] / half,
            "alibi": np.exp(-alibi_slopes(HEADS)[self.head - 1] * np.arange(FARTHEST + 1)),
        }

    def alt(self) -> str:
        now = self.numbers()
        parts = ", ".join(f"{name} {values[10]:.2f}" for name, values in now.items())
        best = int(now["rotary"].argmax())
        return (
            f"Three curves against distance. At distance 10: {parts}; the rotary score is highest at distance {best}."
        )

    def picture(self) -> plots.Picture:
        distance = list(range(FARTHEST + 1))
        lines = {name: (distance, values) for name, values in self.numbers().items()}
        return plots.curves(
            lines, title="What a score keeps of distance", xlabel="distance k", ylabel="share of the highest",
            alt=self.alt(),
        )  # fmt: skip
