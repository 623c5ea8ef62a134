"""Unit 02's figure: the decoder, word by word, and what it reads while it writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets

from .. import plots
from ..shapes import expect
from .kit import Figure, matrix, synced


class DecoderSteps(Figure, script="decoder_steps.js"):
    """Step through the target; point at a word on either side and see what it is aligned with."""

    source: Any = synced()
    target: Any = synced()
    weights: Any = synced()
    chosen: Any = synced()
    step = traitlets.Int(0).tag(sync=True)

    def __init__(self, source: Any, target: Any, weights: Any):
        rows = matrix(weights, "weights")
        expect(
            (len(rows), len(rows[0])) == (len(target), len(source)),
            f"weights should be (target, source) = ({len(target)}, {len(source)}); got ({len(rows)}, {len(rows[0])}).",
        )
        super().__init__(source=list(source), target=list(target), weights=rows)

    def numbers(self) -> dict[str, Any]:
        weights = np.array(self.weights)
        side, place = self.chosen or ("target", self.step)
        shown = weights[: self.step + 1]
        if side == "target":
            return {"source": weights[place], "target": (np.arange(len(shown)) == place).astype(float)}
        return {"source": (np.arange(weights.shape[1]) == place).astype(float), "target": shown[:, place]}

    def alt(self) -> str:
        pairs = ", ".join(
            f"{t} ← {self.source[int(np.argmax(w))]}" for t, w in zip(self.target, self.weights, strict=True)
        )
        return f"What each written word reads most: {pairs}."

    def picture(self) -> plots.Picture:
        return plots.weights(self.weights, self.target, self.source, title="Alignment", alt=self.alt())
