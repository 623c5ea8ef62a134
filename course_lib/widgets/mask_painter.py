"""Unit 07's figure: paint the mask by hand; see what each query still reads, and how much of the future."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import plots
from ..by_hand import masked_softmax
from ..shapes import expect
from .kit import Figure, matrix, synced


class MaskPainter(Figure, script="mask_painter.js"):
    """Click or drag over pairs to mask them; the leak meter adds up a query's weights on keys that come after it."""

    scores: Any = synced()
    mask: Any = synced()
    tokens: Any = synced()
    real: Any = synced()

    def __init__(self, scores: Any, tokens: Any, mask: Any = None, real: Any = None):
        rows, n = matrix(scores, "scores"), len(tokens)
        expect(
            len(rows) == len(rows[0]) == n,
            f"scores should be (tokens, tokens) = ({n}, {n}); got ({len(rows)}, {len(rows[0])}).",
        )
        real = np.ones(n, dtype=bool) if real is None else np.asarray(real)
        mask = np.ones((n, n), dtype=bool) if mask is None else np.asarray(mask)
        expect(
            mask.dtype == bool and mask.shape == (n, n) and real.dtype == bool and real.shape == (n,),
            f"mask should be boolean, ({n}, {n}), and real boolean, ({n},): True on words, False on padding; "
            f"got {mask.dtype} {mask.shape} and {real.dtype} {real.shape}.",
        )
        super().__init__(scores=rows, tokens=list(tokens), mask=mask.tolist(), real=real.tolist())

    def numbers(self) -> dict[str, Any]:
        mask = np.array(self.mask)
        weights = masked_softmax(np.array(self.scores), mask)
        return {"weights": weights, "leak": np.triu(weights, 1).sum(axis=1), "empty": (~mask.any(axis=1)).astype(int)}

    def alt(self) -> str:
        leaks = ", ".join(f"{t} {x:.2f}" for t, x in zip(self.tokens, self.numbers()["leak"], strict=True))
        hidden = int((~np.array(self.mask)).sum())
        return f"Attention weights with {hidden} pairs masked. What each query sees of the future: {leaks}."

    def picture(self) -> plots.Picture:
        weights = self.numbers()["weights"]
        return plots.weights(weights, self.tokens, title="Weights under the mask", mask=self.mask, alt=self.alt())
