"""Unit 04's figures: the soft dictionary, arrows in the plane, editing K and V, a weighted sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets

from .. import plots
from ..by_hand import softmax
from ..shapes import expect
from .kit import Figure, matrix, synced


class SoftDictionary(Figure, script="soft_dictionary.js"):
    """Move the query among the keys, turn the temperature: the returned value blends."""

    titles: Any = synced()
    key_vectors: Any = synced()
    values: Any = synced()
    query: Any = synced()
    temperature = traitlets.Float(1.0).tag(sync=True)

    def __init__(self, titles: Any, keys: Any, values: Any, query: Any, temperature: float = 1.0):
        keys, values = matrix(keys, "keys", 2), [float(x) for x in values]
        expect(
            len(titles) == len(keys) == len(values),
            f"Each title needs a key and a value; got {len(titles)}, {len(keys)} and {len(values)}.",
        )
        expect(temperature > 0, f"The temperature should be above 0; got {temperature}.")
        (query,) = matrix([query], "query", 2)
        super().__init__(titles=list(titles), key_vectors=keys, values=values, query=query, temperature=temperature)

    def numbers(self) -> dict[str, Any]:
        scores = np.array(self.key_vectors) @ np.array(self.query)
        weights = softmax(scores / self.temperature)
        return {"scores": scores, "weights": weights, "value": weights @ np.array(self.values)}

    def alt(self) -> str:
        now = self.numbers()
        parts = ", ".join(f"{t} {w:.2f}" for t, w in zip(self.titles, now["weights"], strict=True))
        return f"A soft dictionary at temperature {self.temperature:g}: weights {parts}; it returns {now['value']:.1f}."

    def picture(self) -> plots.Picture:
        return plots.bars(
            self.numbers()["weights"], self.titles, title="Weights of the soft dictionary", alt=self.alt()
        )


class Arrows(Figure, script="arrows.js"):
    """Drag the query and the keys: the scores are dot products, the weights their softmax."""

    query: Any = synced()
    key_vectors: Any = synced()

    def __init__(self, query: Any, keys: Any):
        (query,) = matrix([query], "query", 2)
        super().__init__(query=query, key_vectors=matrix(keys, "keys", 2))

    def numbers(self) -> dict[str, Any]:
        scores = np.array(self.key_vectors) @ np.array(self.query)
        return {"scores": scores, "weights": softmax(scores)}

    def alt(self) -> str:
        scores = ", ".join(f"{s:.2f}" for s in self.numbers()["scores"])
        return f"A query arrow {self.query} among {len(self.key_vectors)} key arrows; the scores are {scores}."

    def picture(self) -> plots.Picture:
        return plots.arrows(self.query, self.key_vectors, title="A query among keys", alt=self.alt())


class EditKV(Figure, script="edit_kv.js"):
    """Edit a number of K or of V and see what moves: the weights, the outputs, or both."""

    q: Any = synced()
    k: Any = synced()
    v: Any = synced()

    def __init__(self, q: Any, k: Any, v: Any):
        q, k, v = matrix(q, "q"), matrix(k, "k"), matrix(v, "v")
        expect(
            len(q[0]) == len(k[0]) and len(k) == len(v),
            "q and k share their width, k and v their number of rows.",
        )
        super().__init__(q=q, k=k, v=v)

    def numbers(self) -> dict[str, Any]:
        weights = softmax(np.array(self.q) @ np.array(self.k).T)
        return {"weights": weights, "output": weights @ np.array(self.v)}

    def alt(self) -> str:
        return f"Keys and values to edit, and below them the weights {self.numbers()['weights'].round(2).tolist()}."

    def picture(self) -> plots.Picture:
        return plots.weights(self.numbers()["weights"], title="Weights of K and V as they stand", alt=self.alt())


class WeightedSum(Figure, script="weighted_sum.js"):
    """Choose a query: its weights, each value times its weight, and their sum."""

    q: Any = synced()
    k: Any = synced()
    v: Any = synced()
    tokens: Any = synced()
    query = traitlets.Int(0).tag(sync=True)

    def __init__(self, q: Any, k: Any, v: Any, tokens: Any):
        q, k, v = matrix(q, "q"), matrix(k, "k"), matrix(v, "v")
        expect(
            len(q[0]) == len(k[0]) and len(q) == len(k) == len(v) == len(tokens),
            "q, k, v and tokens have one row each for every token, and q and k share their width.",
        )
        super().__init__(q=q, k=k, v=v, tokens=list(tokens))

    def numbers(self) -> dict[str, Any]:
        scores = np.array(self.k) @ np.array(self.q[self.query])
        weights = softmax(scores)
        parts = weights[:, None] * np.array(self.v)
        return {"scores": scores, "weights": weights, "parts": parts, "output": parts.sum(axis=0)}

    def alt(self) -> str:
        now = self.numbers()
        return f"The query of {self.tokens[self.query]} reads {now['output'].round(4).tolist()}."

    def picture(self) -> plots.Picture:
        title = f"What {self.tokens[self.query]} attends to"
        return plots.bars(self.numbers()["weights"], self.tokens, title=title, alt=self.alt())
