"""Unit 01's second figure: the fewest steps before each state can be computed, and the words that a state knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets

from .. import plots
from ..shapes import expect
from .kit import Figure, synced

KINDS = ("rnn", "window", "attention")


class MinimumSteps(Figure, script="minimum_steps.js"):
    """A grid of states, words at the bottom: each with its number of steps; a clock; a state whose words are marked."""

    words: Any = synced()
    kind = traitlets.Unicode("rnn").tag(sync=True)
    length = traitlets.Int(6).tag(sync=True)
    layers = traitlets.Int(2).tag(sync=True)
    window = traitlets.Int(3).tag(sync=True)
    clock = traitlets.Int(0).tag(sync=True)
    chosen: Any = synced()  # [layer, word], both counted from 0; layer 0 are the words themselves

    def __init__(self, words: Any, kind: str = "rnn", layers: int = 2, window: int = 3):
        words = [str(word) for word in words]
        expect(kind in KINDS, f"kind should be one of {', '.join(KINDS)}; got {kind!r}.")
        expect(2 <= len(words) <= 14, f"There is room for 2 to 14 words; got {len(words)}.")
        expect(1 <= layers <= 6, f"There is room for 1 to 6 layers; got {layers}.")
        expect(window in (3, 5, 7), f"window should be 3, 5 or 7; got {window}.")
        chosen = [layers, len(words) - 1]
        super().__init__(words=words, kind=kind, length=len(words), layers=layers, window=window, chosen=chosen)

    def numbers(self) -> dict[str, Any]:
        layer, word = np.arange(self.layers + 1)[:, None], np.arange(self.length)
        waiting = word if self.kind == "rnn" else np.zeros_like(word)
        steps = np.where(layer > 0, layer + waiting, 0)
        top, at = self.chosen
        if self.kind == "rnn":
            known = (layer <= top) & ((word <= at) if top > 0 else (word == at))  # a bare word knows itself alone
        elif self.kind == "window":
            known = np.abs(word - at) <= (top - layer) * (self.window // 2)
        else:
            known = (layer < top) | ((layer == top) & (word == at))
        distance = {"rnn": self.length, "attention": 1}.get(self.kind) or -(-(self.length - 1) // (self.window - 1))
        return {
            "steps": steps,
            "done": (steps <= self.clock).astype(int),
            "known": known.astype(int),
            "counts": np.array([self.length if self.kind == "rnn" else 1, distance]),
        }

    def alt(self) -> str:
        rows = [f"layer {n}: {' '.join(map(str, row))}" for n, row in enumerate(self.numbers()["steps"].tolist())][1:]
        return f"The fewest steps before each state of {self.kind} can be computed. {'; '.join(rows)}."

    def picture(self) -> plots.Picture:
        steps = self.numbers()["steps"]
        figure, axes = plots.new(1.4 + 0.62 * self.length, 1.2 + 0.55 * len(steps))
        image = axes.imshow(steps, origin="lower", cmap="cividis", vmin=0)
        for (layer, word), count in np.ndenumerate(steps):
            light = count < 0.55 * max(1, steps.max())
            axes.text(word, layer, str(count), ha="center", va="center", color="white" if light else "black")
        axes.set_xticks(range(self.length), self.words[: self.length], rotation=45)
        axes.set_yticks(range(len(steps)), ["words", *(f"layer {n}" for n in range(1, len(steps)))])
        axes.set(title=f"Fewest steps before a state can be computed: {self.kind}", xlabel="word", ylabel="layer")
        figure.colorbar(image, ax=axes, label="steps")
        return plots.Picture(figure, self.alt())
