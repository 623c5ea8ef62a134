"""Unit 06's figure: the heads of a model, layer by layer, word by word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import traitlets

from .. import plots
from ..shapes import expect
from .kit import Figure, matrix, synced


class HeadExplorer(Figure, script="head_explorer.js"):
    """Choose a layer and a head, point at a word: what it reads, in this head and in all the others.

    `layers` maps the name of a layer to (queries, keys, weights), words on both sides and weights (H, T, S); a fourth
    entry, a mask (T, S), says which keys could not be seen. The head after the last one is the mean of all.
    """

    names: Any = synced()
    query_words: Any = synced()
    key_words: Any = synced()
    weights: Any = synced()
    seen: Any = synced()
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    query = traitlets.Int(0).tag(sync=True)

    def __init__(self, layers: Mapping[str, Any], *, layer: int = 0, head: int = 0, query: int = 0):
        expect(len(layers) > 0, "HeadExplorer needs at least one layer: {name: (queries, keys, weights)}.")
        made = [_checked(name, *parts) for name, parts in layers.items()]
        queries, keys, weights, seen = (list(column) for column in zip(*made, strict=True))
        expect(0 <= layer < len(made), f"layer goes from 0 to {len(made) - 1}; got {layer}.")
        expect(0 <= head <= len(weights[layer]), f"head goes from 0 to {len(weights[layer])}, the mean; got {head}.")
        expect(0 <= query < len(queries[layer]), f"query goes from 0 to {len(queries[layer]) - 1}; got {query}.")
        super().__init__(
            names=list(layers), query_words=queries, key_words=keys, weights=weights, seen=seen,
            layer=layer, head=head, query=query,
        )  # fmt: skip

    def _row(self) -> int:
        return min(self.query, len(self.query_words[self.layer]) - 1)

    def _map(self) -> np.ndarray:
        """The weights of the head that is shown, (T, S)."""
        heads = np.array(self.weights[self.layer])
        return heads[self.head] if self.head < len(heads) else heads.mean(axis=0)

    def numbers(self) -> dict[str, Any]:
        return {"weights": self._map()[self._row()], "heads": np.array(self.weights[self.layer])[:, self._row()]}

    def alt(self) -> str:
        weights = self.numbers()["weights"]
        word, read = self.query_words[self.layer][self._row()], self.key_words[self.layer][int(weights.argmax())]
        return f"{self._title()}: “{word}” attends most to “{read}” ({weights.max():.2f})."

    def _title(self) -> str:
        mean = self.head >= len(self.weights[self.layer])
        return f"{self.names[self.layer]}, {'mean of the heads' if mean else f'head {self.head + 1}'}"

    def picture(self) -> plots.Picture:
        queries, keys = self.query_words[self.layer], self.key_words[self.layer]
        mask = np.array(self.seen[self.layer])
        return plots.weights(self._map(), queries, keys, title=self._title(), mask=mask, alt=self.alt())


def _checked(name: str, queries: Any, keys: Any, weights: Any, mask: Any = None) -> tuple[Any, ...]:
    """One layer as lists, which is what crosses to the browser."""
    heads = [matrix(head, f"a head of {name!r}") for head in np.asarray(weights, dtype=float)]
    wanted = (len(queries), len(keys))
    got = {np.shape(head) for head in heads}
    expect(got == {wanted}, f"The heads of {name!r} should be (queries, keys) = {wanted}; got {sorted(got)}.")
    seen = np.ones(wanted, dtype=bool) if mask is None else np.broadcast_to(np.asarray(mask, dtype=bool), wanted)
    return list(queries), list(keys), heads, seen.tolist()
