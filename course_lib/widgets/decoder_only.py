"""Unit 11's figures: the distribution of the next token, and what a cache of keys and values keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets

from .. import plots
from ..by_hand import softmax
from ..shapes import expect
from .kit import Figure, matrix, synced

SHOWN = 12  # of all tokens, as many as have a bar
BYTES = 4  # of a float32


class NextToken(Figure, script="next_token.js"):
    """Turn temperature and top-k, and draw: what may follow each of some texts, by a model's logits.

    `logits` maps a text to one logit for each of `tokens`. Temperature 0 is its limit, top_k 0 keeps all tokens.
    The token that is drawn is where `luck`, from 0 to 1, falls when the probabilities stand in a row, best first.
    """

    tokens: Any = synced()
    texts: Any = synced()
    logits: Any = synced()
    text = traitlets.Int(0).tag(sync=True)
    temperature = traitlets.Float(1.0).tag(sync=True)
    top_k = traitlets.Int(0).tag(sync=True)
    luck = traitlets.Float(0.5).tag(sync=True)

    def __init__(self, tokens: Sequence[str], logits: Mapping[str, Any], temperature: float = 1.0, top_k: int = 0):
        expect(len(logits) > 0, "There is no text to go on from.")
        rows = matrix(np.round(np.array([np.asarray(row, dtype=float) for row in logits.values()]), 4), "logits")
        expect(len(rows[0]) == len(tokens), f"Each token needs a logit; got {len(tokens)} and {len(rows[0])}.")
        expect(0 <= temperature < float("inf"), f"The temperature is 0 or above, and finite; got {temperature}.")
        expect(0 <= top_k <= len(tokens), f"top_k goes from 0 (all) to {len(tokens)}; got {top_k}.")
        super().__init__(tokens=list(tokens), texts=list(logits), logits=rows, temperature=temperature, top_k=top_k)

    def numbers(self) -> dict[str, Any]:
        logits = np.array(self.logits[self.text])
        order = np.argsort(-logits, kind="stable")
        count = 1 if self.temperature == 0 else self.top_k or len(logits)
        p = np.zeros(len(logits))
        p[order[:count]] = softmax(logits[order[:count]] / (self.temperature or 1.0))
        entropy = -np.sum(p * np.log(np.where(p > 0, p, 1.0)))
        drawn = min(int(np.sum(np.cumsum(p[order]) <= self.luck)), count - 1)
        return {"p": p, "order": order[:SHOWN], "kept": count, "equal": np.exp(entropy), "drawn": int(order[drawn])}

    def alt(self) -> str:
        now = self.numbers()
        listed = ", ".join(f"{self.tokens[i]} {now['p'][i]:.2f}" for i in now["order"][:5])
        return (
            f"What may follow “{self.texts[self.text]}” at temperature {self.temperature:g}, "
            f"{now['kept']} tokens kept: {listed}. As undecided as between {now['equal']:.1f} equal choices."
        )

    def picture(self) -> plots.Picture:
        now = self.numbers()
        names = [self.tokens[i] for i in now["order"]]
        title = f"After “{self.texts[self.text]}”, temperature {self.temperature:g}"
        return plots.bars(now["p"][now["order"]], names, title=title, alt=self.alt())


class KeyValueCache(Figure, script="key_value_cache.js"):
    """Layers × tokens, step by step: what is computed now, what comes from the cache, what a band has dropped."""

    layers = traitlets.Int(4).tag(sync=True)
    d_model = traitlets.Int(64).tag(sync=True)
    prompt = traitlets.Int(4).tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    band = traitlets.Int(0).tag(sync=True)
    cached = traitlets.Bool(True).tag(sync=True)

    def __init__(self, layers: int = 4, d_model: int = 64, prompt: int = 4, step: int = 0, band: int = 0):
        expect(1 <= layers <= 6 and 1 <= prompt <= 8, f"1 to 6 layers, 1 to 8 tokens; got {layers} and {prompt}.")
        expect(0 <= step <= 12, f"step goes from 0, the prompt, to 12; got {step}.")
        expect(band == 0 or 2 <= band <= 8, f"band is 0 (none) or 2 to 8; got {band}.")
        super().__init__(layers=layers, d_model=d_model, prompt=prompt, step=step, band=band)

    def numbers(self) -> dict[str, Any]:
        seen = self.prompt + self.step
        token, layer = np.arange(seen), np.arange(self.layers)[:, None]
        banded = (layer % 2 == 1) & (self.band > 0)
        new = (token == seen - 1) | (self.step == 0) | (not self.cached)
        dropped = banded & (seen - 1 - token > self.band - 1)
        kept = np.where(banded[:, 0], min(seen, self.band - 1), seen).sum() if self.cached else 0
        return {
            "grid": np.where(new, 1, np.where(dropped, 3, 2)),  # computed now, dropped, from the cache
            "now": 1 if self.cached and self.step else seen,
            "total": seen if self.cached else sum(range(self.prompt, seen + 1)),
            "bytes": int(kept) * 2 * self.d_model * BYTES,
        }

    def alt(self) -> str:
        now = self.numbers()
        how = "with a cache" if self.cached else "without a cache"
        return (
            f"{self.layers} layers, a prompt of {self.prompt} tokens and {self.step} more, {how}: {now['now']} tokens "
            f"are read in this step, {now['total']} so far; keys and values kept: {now['bytes']} bytes."
        )

    def picture(self) -> plots.Picture:
        grid = self.numbers()["grid"]
        figure, axes = plots.new(1.5 + 0.35 * grid.shape[1], 1 + 0.35 * len(grid))
        axes.set_axis_off()
        axes.set_title("● computed now   ■ from the cache   × dropped", fontsize=9)
        for i, row in enumerate(grid[::-1]):
            for j, kind in enumerate(row):
                axes.text((j + 1) / (len(row) + 1), (len(grid) - i) / (len(grid) + 1), " ●■×"[kind], ha="center")
        return plots.Picture(figure, self.alt())
