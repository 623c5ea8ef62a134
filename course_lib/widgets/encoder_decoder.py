"""Unit 10's figures: a translator that shows where each head looks, and the model's tensors, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import traitlets

from .. import plots
from ..shapes import expect
from .kit import Figure, synced

ROWS, COLUMNS = 8, 8  # of a tensor's numbers, as many as fit on a narrow page
Translate = Callable[[int], tuple[Sequence[str], Sequence[str], Any]]


class Translator(Figure, script="translator.js"):
    """Type a number: the kernel translates it, the browser shows what any head of any layer reads.

    `translate(number)` returns source words, target words, and weights (layers, heads, target, source). Head −1 is
    the mean of all heads. Without a kernel the last translation stays, and its heads can still be chosen.
    """

    number = traitlets.Int(0).tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(-1).tag(sync=True)
    source: Any = synced()
    target: Any = synced()
    weights: Any = synced()
    note = traitlets.Unicode("").tag(sync=True)

    def __init__(self, translate: Translate, number: int = 45):
        self.translate = translate
        super().__init__(**self.translated(number))
        self.observe(lambda change: self.show(change["new"]), "number")

    def translated(self, number: int) -> dict[str, Any]:
        """The traits for one number."""
        source, target, weights = self.translate(number)
        array = np.asarray(weights, dtype=float)
        expect(
            array.ndim == 4 and array.shape[2:] == (len(target), len(source)) and bool(np.isfinite(array).all()),
            f"weights should be (layers, heads, target, source) = (…, …, {len(target)}, {len(source)}); "
            f"got {array.shape}.",
        )
        words = {"source": list(source), "target": list(target)}
        return {"number": number, "note": "", "weights": array.round(6).tolist(), **words}

    def show(self, number: int) -> None:
        """What happens when the number changes: a new translation, or a sentence that says why there is none."""
        try:
            made = self.translated(number)
        except Exception as error:  # a callback's traceback would end up in a log that nobody reads
            self.note = str(error)
            return
        with self.hold_sync():
            self.set_trait("note", "")
            for name in ("source", "target", "weights"):
                setattr(self, name, made[name])

    def numbers(self) -> dict[str, Any]:
        layer = np.array(self.weights)[self.layer]
        shown = layer.mean(axis=0) if self.head < 0 else layer[self.head]
        return {"map": shown, "best": shown.argmax(axis=1)}

    def alt(self) -> str:
        reads = (f"{word} ← {self.source[i]}" for word, i in zip(self.target, self.numbers()["best"], strict=True))
        which = "the mean of all heads" if self.head < 0 else f"head {self.head + 1}"
        return (
            f"{self.number}: what each written word reads most in layer {self.layer + 1}, {which}: {', '.join(reads)}."
        )

    def picture(self) -> plots.Picture:
        shown = self.numbers()["map"]
        return plots.weights(
            shown, self.target, self.source, title=f"Cross-attention for {self.number}", alt=self.alt()
        )


class DataFlow(Figure, script="data_flow.js"):
    """The model as a column of blocks: choose one, and see the tensor that leaves it.

    `blocks` are (side, name, letters, tensor): "encoder", "self-attention", "BSD", an array of as many axes.
    """

    blocks: Any = synced()
    chosen = traitlets.Int(0).tag(sync=True)

    def __init__(self, blocks: Iterable[tuple[str, str, str, Any]]):
        made = [described(*block) for block in blocks]
        expect(len(made) > 0, "There is no block to show.")
        super().__init__(blocks=made)

    def numbers(self) -> dict[str, Any]:
        block = self.blocks[self.chosen]
        shown = np.array(block["values"], dtype=float)
        shape = np.array(block["shape"])
        return {"shape": shape, "count": int(shape.prod()), "values": shown, "largest": float(np.abs(shown).max())}

    def alt(self) -> str:
        listed = (f"{b['name']} ({b['side']}) {shape_text(b)}" for b in self.blocks)
        return f"The tensors of the model in their order: {'; '.join(listed)}."

    def picture(self) -> plots.Picture:
        figure, axes = plots.new(6.5, 0.6 + 0.3 * len(self.blocks))
        axes.set_axis_off()
        axes.set_title("From words to logits")
        for row, block in enumerate(self.blocks):
            text = f"{block['side']:>8}   {block['name']:<34} {shape_text(block)}"
            axes.text(0, 1 - (row + 0.5) / len(self.blocks), text, family="monospace", fontsize=9)
        return plots.Picture(figure, self.alt())


def described(side: str, name: str, letters: str, tensor: Any) -> dict[str, Any]:
    """What the browser needs of one tensor: its shape, and the first numbers of its last two axes."""
    array = np.asarray(tensor, dtype=float)
    expect(
        array.ndim == len(letters) and array.size > 0 and bool(np.isfinite(array).all()),
        f"{name} should have the axes {letters}, finite numbers and none empty; got shape {array.shape}.",
    )
    first = np.atleast_2d(array)
    first = first[(0,) * (first.ndim - 2)]
    return {
        "side": side,
        "name": name,
        "letters": letters,
        "shape": list(array.shape),
        "values": first[:ROWS, :COLUMNS].round(6).tolist(),
    }


def shape_text(block: dict[str, Any]) -> str:
    return f"({', '.join(block['letters'])}) = ({', '.join(map(str, block['shape']))})"
