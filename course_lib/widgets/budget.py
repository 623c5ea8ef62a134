"""Unit 13's figure: what a step of training keeps in memory, and what each trick makes smaller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import traitlets

from .. import plots
from ..shapes import expect
from .kit import Figure, synced

KINDS = ("parameters", "gradients", "Adam's averages", "kept by the layers", "kept by the loss")
PRECISIONS = ("float32", "bfloat16")


class Sizes(NamedTuple):
    """A model to train: `layers` blocks of width `d_model`, sentences of `length` words, `words` in the vocabulary."""

    name: str
    parameters: int
    layers: int
    d_model: int
    d_ff: int
    heads: int
    length: int
    words: int


class Budget(Figure, script="budget.js"):
    """Choose model, batch, parts, checkpointing and precision: bytes of each kind against a budget, and the work."""

    models: Any = synced()
    model = traitlets.Int(0).tag(sync=True)
    batch = traitlets.Int(32).tag(sync=True)
    parts = traitlets.Int(1).tag(sync=True)
    again = traitlets.Bool(False).tag(sync=True)
    precision = traitlets.Unicode("float32").tag(sync=True)
    budget = traitlets.Float(16e9).tag(sync=True)

    def __init__(self, models: Sequence[Sizes], budget: float = 16e9, batch: int = 32):
        expect(len(models) > 0, "The figure needs at least one model.")
        expect(1 <= batch <= 256, f"A batch has 1 to 256 sentences here; got {batch}.")
        expect(budget > 0, f"The budget should be above 0 bytes; got {budget}.")
        super().__init__(models=[list(model) for model in models], budget=float(budget), batch=batch, model=0)

    def numbers(self) -> dict[str, Any]:
        sizes, half = Sizes(*self.models[self.model]), self.precision == "bfloat16"
        tokens = int(np.ceil(self.batch / self.parts)) * sizes.length
        wide = 2 * sizes.d_model + sizes.heads + 4  # what enters the norms, and small sums: always float32
        rest = 6 * sizes.d_model + sizes.d_ff  # what enters the products
        layer = 4 * wide + (2 if half else 4) * rest
        inputs = 4 * sizes.d_model
        layers = sizes.layers * inputs + layer - inputs if self.again else sizes.layers * layer
        amounts = [
            sizes.parameters * (6 if half else 4),  # bfloat16: a rounded copy for the products besides
            sizes.parameters * 4,
            sizes.parameters * 8,
            tokens * layers,
            tokens * sizes.words * 4,
        ]
        total = float(sum(amounts))
        return {
            "bytes": np.array(amounts, dtype=float),
            "total": total,
            "share": total / self.budget,
            "work": 4 / 3 if self.again else 1.0,  # a way forward once more, beside one forward and two back
        }

    def alt(self) -> str:
        now, sizes = self.numbers(), Sizes(*self.models[self.model])
        listed = ", ".join(f"{kind} {told(value)}" for kind, value in zip(KINDS, now["bytes"], strict=True))
        way = "with" if self.again else "without"
        return (
            f"{sizes.name}, a batch of {self.batch} in {self.parts} parts, {way} checkpointing, {self.precision}: "
            f"{listed}; {told(now['total'])} of {told(self.budget)} in all."
        )

    def picture(self) -> plots.Picture:
        share = np.minimum(self.numbers()["bytes"] / self.budget, 1.0)
        return plots.bars(share, KINDS, title=f"Share of {told(self.budget)}", alt=self.alt())


def told(amount: float) -> str:
    """Bytes for people."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= size:
            return f"{amount / size:.1f} {unit}"
    return f"{amount:.0f} B"
