"""Unit 05's figure: how wide the vectors are, how hot the softmax is, and what becomes of scores and gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets

from .. import plots
from ..by_hand import softmax, softmax_jacobian
from ..shapes import expect
from .kit import Figure, matrix, synced

LIMIT, BIN = 40, 2  # the histogram goes from -40 to 40; what lies beyond is counted in the last bins


def _sixteenths(values: Any) -> np.ndarray:
    """Rounded to 1/16: short to send, and sums of products are exact, in NumPy's order and in JavaScript's."""
    return np.round(np.asarray(values, dtype=float) * 16) / 16


class ScoreScale(Figure, script="score_scale.js"):
    """Widen random vectors, turn the temperature: histogram of scores, weights, entropy and gradient norm."""

    queries: Any = synced()
    key_vectors: Any = synced()
    d_k = traitlets.Int(64).tag(sync=True)
    temperature = traitlets.Float(1.0).tag(sync=True)

    def __init__(self, queries: Any, keys: Any, d_k: int = 64, temperature: float = 1.0):
        queries, keys = matrix(_sixteenths(queries), "queries"), matrix(_sixteenths(keys), "keys")
        expect(
            len(queries[0]) == len(keys[0]),
            f"Queries and keys should be equally wide; got {len(queries[0])} and {len(keys[0])}.",
        )
        expect(1 <= d_k <= len(keys[0]), f"d_k goes from 1 to the width of the keys, {len(keys[0])}; got {d_k}.")
        expect(temperature > 0, f"The temperature should be above 0; got {temperature}.")
        super().__init__(queries=queries, key_vectors=keys, d_k=d_k, temperature=temperature)

    def numbers(self) -> dict[str, Any]:
        q, k = (np.array(rows)[:, : self.d_k] for rows in (self.queries, self.key_vectors))
        scores = q @ k.T / self.temperature
        weights = softmax(scores)
        logs = np.log(np.where(weights > 0, weights, 1.0))
        entropy = -np.sum(weights * logs, axis=1)
        gradient = np.linalg.norm(softmax_jacobian(weights), axis=(1, 2))
        bins = np.clip(np.floor((scores + LIMIT) / BIN), 0, 2 * LIMIT // BIN - 1).astype(int)
        return {
            "histogram": np.bincount(bins.ravel(), minlength=2 * LIMIT // BIN),
            "spread": scores.std(),
            "weights": weights[0],
            "entropy": np.array([entropy[0], np.median(entropy)]),
            "gradient": np.array([gradient[0], np.median(gradient)]),
        }

    def alt(self) -> str:
        now = self.numbers()
        return (
            f"Random vectors of width d_k = {self.d_k} at temperature {self.temperature:g}: scores spread by "
            f"{now['spread']:.2f}; the first query's largest weight is {now['weights'].max():.2f}, the median entropy "
            f"{now['entropy'][1]:.2f} and the median gradient norm {now['gradient'][1]:.3f}."
        )

    def picture(self) -> plots.Picture:
        names = [f"key {j + 1}" for j in range(len(self.key_vectors))]
        title = f"Weights at d_k = {self.d_k}, temperature {self.temperature:g}"
        return plots.bars(self.numbers()["weights"], names, title=title, alt=self.alt())
