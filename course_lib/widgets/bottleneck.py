"""Unit 01's first figure: sentence length against accuracy, and against the gradient that reaches the first word."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets
from matplotlib.figure import Figure as Canvas

from .. import plots
from ..shapes import expect
from .kit import Figure, matrix, synced

STYLES = ("-", "--", ":", "-.")


class Bottleneck(Figure, script="bottleneck.js"):
    """Measured curves, one number per length; the slider chooses a length.

    `accuracy` and `gradient` are dictionaries: a name, and its numbers. The gradients are drawn on a logarithmic scale.
    """

    lengths: Any = synced()
    models: Any = synced()
    accuracy: Any = synced()
    sources: Any = synced()
    gradient: Any = synced()
    place = traitlets.Int(0).tag(sync=True)

    def __init__(self, lengths: Any, accuracy: dict[str, Any], gradient: dict[str, Any]):
        lengths = [int(n) for n in lengths]
        rows = {
            "accuracy": matrix(list(accuracy.values()), "accuracy", len(lengths)),
            "gradient": matrix(list(gradient.values()), "gradient", len(lengths)),
        }
        expect(
            lengths == sorted(set(lengths)) and len(lengths) > 1,
            f"lengths should be two at least, growing, none twice; got {lengths}.",
        )
        expect(np.min(rows["gradient"]) > 0, "A logarithmic scale has no place for gradients of 0 or less.")
        expect(
            max(len(accuracy), len(gradient)) <= len(STYLES),
            f"There are {len(STYLES)} kinds of dashes to tell curves apart; got {len(accuracy)} and {len(gradient)}.",
        )
        super().__init__(lengths=lengths, models=list(accuracy), sources=list(gradient), **rows)

    def numbers(self) -> dict[str, Any]:
        accuracy, gradient = np.array(self.accuracy), np.array(self.gradient)
        share = gradient[:, self.place] / gradient[:, 0]
        words = max(1, self.lengths[self.place] - self.lengths[0])
        return {
            "accuracy": accuracy[:, self.place],
            "gradient": gradient[:, self.place],
            "share": share,
            "factor": share ** (1 / words),
        }

    def alt(self) -> str:
        first, last = self.lengths[0], self.lengths[-1]
        falls = [f"{n}: {row[0]:.0%} to {row[-1]:.0%}" for n, row in zip(self.models, self.accuracy, strict=True)]
        fades = [f"{n}: {row[0]:.2g} to {row[-1]:.2g}" for n, row in zip(self.sources, self.gradient, strict=True)]
        return (
            f"From sentences of {first} to {last} words. Copied exactly: {'; '.join(falls)}. "
            f"Gradient that reaches the first word: {'; '.join(fades)}."
        )

    def picture(self) -> plots.Picture:
        canvas = Canvas(figsize=(8.6, 3.4), layout="constrained")
        left, right = canvas.subplots(1, 2)
        for axes, names, rows in ((left, self.models, self.accuracy), (right, self.sources, self.gradient)):
            for name, row, style in zip(names, rows, STYLES, strict=False):
                axes.plot(self.lengths, row, style, label=name)
            axes.axvline(self.lengths[self.place], color="0.6", linewidth=1)
            axes.set_xlabel("words in the sentence")
            axes.legend(fontsize=8)
        left.set(title="Sentences copied exactly", ylabel="share", ylim=(-0.02, 1.02))
        right.set(title="Gradient at the first word", ylabel="length of the gradient", yscale="log")
        return plots.Picture(canvas, self.alt())
