"""Unit 03's figures: tokens to put in another order, and token vectors to drag in the plane."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets

from .. import plots
from ..by_hand import softmax
from ..shapes import expect
from .kit import Figure, matrix, synced

MEASURES = ("dot product", "cosine", "distance")


def _named_rows(tokens: Any, vectors: Any, columns: int | None = None) -> dict[str, Any]:
    """The traits that both figures begin with: a vector for each token."""
    tokens, rows = list(tokens), matrix(vectors, "vectors", columns)
    expect(len(tokens) == len(rows), f"Each token needs a vector; got {len(tokens)} and {len(rows)}.")
    return {"tokens": tokens, "vectors": rows}


class Reorder(Figure, script="reorder.js"):
    """Drag tokens into another order: the weights and the new vectors move with them."""

    tokens: Any = synced()
    vectors: Any = synced()
    order: Any = synced()

    def __init__(self, tokens: Any, vectors: Any):
        traits = _named_rows(tokens, vectors)
        super().__init__(**traits, order=list(range(len(traits["tokens"]))))

    def numbers(self) -> dict[str, Any]:
        start, order = np.array(self.vectors), np.array(self.order)
        now = start[order]
        weights = softmax(now @ now.T)
        before, output = softmax(start @ start.T) @ start, weights @ now
        return {
            "weights": weights,
            "output": output,
            "by_token": np.abs(output - before[order]).max(),
            "by_place": np.abs(output - before).max(),
        }

    def alt(self) -> str:
        now = self.numbers()
        return (
            f"Self-attention of “{' '.join(self.tokens[i] for i in self.order)}”, words to drag into another order. "
            f"Against the start, new vectors changed by {now['by_token']:.2f} word by word, "
            f"by {now['by_place']:.2f} place by place."
        )

    def picture(self) -> plots.Picture:
        names = [self.tokens[i] for i in self.order]
        return plots.weights(self.numbers()["weights"], names, title="Weights in this order", alt=self.alt())


class TokenPlane(Figure, script="token_plane.js"):
    """Drag token vectors in the plane: scores, self-attention weights and new vectors follow."""

    tokens: Any = synced()
    vectors: Any = synced()
    measure = traitlets.Enum(MEASURES, MEASURES[0]).tag(sync=True)

    def __init__(self, tokens: Any, vectors: Any, measure: str = MEASURES[0]):
        expect(measure in MEASURES, f"measure is one of {', '.join(MEASURES)}; got {measure!r}.")
        super().__init__(**_named_rows(tokens, vectors, 2), measure=measure)

    def numbers(self) -> dict[str, Any]:
        x = np.array(self.vectors)
        scores = self._scores(x)
        weights = softmax(scores)
        return {"scores": scores, "weights": weights, "output": weights @ x}

    def _scores(self, x: np.ndarray) -> np.ndarray:
        if self.measure == "distance":
            return -((x[:, None] - x[None]) ** 2).sum(axis=-1) / 2
        if self.measure == "cosine":
            lengths = np.linalg.norm(x, axis=1, keepdims=True)
            x = x / np.where(lengths == 0, 1.0, lengths)  # a token dragged to the origin resembles nobody: 0
        return x @ x.T

    def alt(self) -> str:
        best = self.numbers()["weights"].argmax(axis=1)
        reads = ", ".join(f"{t} reads {self.tokens[j]} most" for t, j in zip(self.tokens, best, strict=True))
        return f"Token vectors in a plane, compared by {self.measure}: {reads}."

    def picture(self) -> plots.Picture:
        title = f"Self-attention weights ({self.measure})"
        return plots.weights(self.numbers()["weights"], self.tokens, title=title, alt=self.alt())
