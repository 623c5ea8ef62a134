"""Still pictures: matplotlib figures with a title, named axes, one scale, and a text for those who cannot see."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .shapes import expect

Names = Sequence[str] | None


class Picture:
    """A matplotlib figure that shows itself in a notebook together with its alt text."""

    def __init__(self, figure: Figure, alt: str):
        self.figure, self.alt = figure, alt

    def png(self) -> bytes:
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight", facecolor="white")
        return buffer.getvalue()

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.png()).decode()
        return f'<img style="max-width:100%" alt="{html.escape(self.alt)}" src="data:image/png;base64,{data}">'

    def __repr__(self) -> str:
        return self.alt


def new(width: float = 5.0, height: float = 3.2) -> tuple[Figure, Any]:
    """An empty figure and its axes, without pyplot's global state."""
    figure = Figure(figsize=(width, height))
    return figure, figure.add_subplot()


def weights(
    values: Any,
    queries: Names = None,
    keys: Names = None,
    *,
    title: str,
    mask: Any = None,
    alt: str | None = None,
) -> Picture:
    """Attention weights (T, S) as a map from 0 to 1; where the mask is False, grey and hatched."""
    values = np.asarray(values, dtype=float)
    expect(values.ndim == 2, f"Weights to draw are (queries, keys); got shape {values.shape}.")
    queries = list(queries or map(str, range(1, len(values) + 1)))
    keys = list(keys or (queries if values.shape[0] == values.shape[1] else map(str, range(1, values.shape[1] + 1))))
    figure, axes = new(1.9 + 0.5 * len(keys), 1.3 + 0.42 * len(queries))
    hidden = np.zeros_like(values, dtype=bool) if mask is None else ~np.broadcast_to(mask, values.shape)
    image = axes.imshow(np.ma.array(values, mask=hidden), cmap="viridis", vmin=0, vmax=1)
    for i, j in zip(*np.nonzero(hidden), strict=True):
        axes.add_patch(_hatched(i, j))
    axes.set_xticks(range(len(keys)), keys, rotation=45 if max(map(len, keys)) > 3 else 0)
    axes.set_yticks(range(len(queries)), queries)
    axes.set(title=title, xlabel="key (attended to)", ylabel="query (attends)")
    figure.colorbar(image, ax=axes, label="weight")
    best = "; ".join(f"{q} attends most to {keys[int(row.argmax())]}" for q, row in zip(queries, values, strict=True))
    return Picture(figure, alt or f"{title}: {best}.")


def _hatched(row: int, column: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor="0.85", edgecolor="0.5", hatch="///")


def bars(values: Any, names: Sequence[str], *, title: str, alt: str | None = None) -> Picture:
    """Weights from 0 to 1 as horizontal bars."""
    values = np.asarray(values, dtype=float)
    figure, axes = new(5, 0.9 + 0.35 * len(names))
    axes.barh(list(names), values, color="#31688e")
    axes.invert_yaxis()
    axes.set(title=title, xlim=(0, 1), xlabel="weight")
    listed = ", ".join(f"{n} {v:.2f}" for n, v in zip(names, values, strict=True))
    return Picture(figure, alt or f"{title}: {listed}.")


def arrows(query: Any, keys: Any, *, title: str, alt: str | None = None) -> Picture:
    """One query and some keys as arrows from the origin."""
    figure, axes = new(4, 4)
    for number, key in enumerate(keys, start=1):
        axes.annotate(f"key {number}", (0, 0), key, arrowprops={"arrowstyle": "<-", "color": "#31688e"})
    axes.annotate("query", (0, 0), query, arrowprops={"arrowstyle": "<-", "color": "#D55E00"})
    limit = 1.2 * max(1.0, float(np.abs([query, *keys]).max()))
    axes.set(title=title, xlim=(-limit, limit), ylim=(-limit, limit), xlabel="first number", ylabel="second number")
    return Picture(figure, alt or f"{title}: query {list(query)}, keys {[list(k) for k in keys]}.")


def curves(lines: dict[str, Any], *, title: str, xlabel: str, ylabel: str, alt: str, log: bool = False) -> Picture:
    """One line per entry, told apart by dashes as well as by colour."""
    figure, axes = new(5.6, 3.2)
    for (name, values), style in zip(lines.items(), ("-", "--", ":", "-.") * len(lines), strict=False):
        x, y = values if isinstance(values, tuple) else (range(1, len(values) + 1), values)
        axes.plot(x, y, style, label=name)
        if len(x) <= 10:  # few enough to name each: no tick between two of them, such as 2.5 digits
            axes.set_xticks(list(x))
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if log:
        axes.set_yscale("log")
    axes.legend()
    return Picture(figure, alt)


def histogram(samples: dict[str, Any], *, title: str, xlabel: str, alt: str, bins: int = 60) -> Picture:
    """How often each size of number occurs: one outline per entry, told apart by dashes as well as by colour."""
    figure, axes = new(5.6, 3.2)
    reach = max(float(np.abs(values).max()) for values in samples.values())
    for (name, values), style in zip(samples.items(), ("-", "--", ":", "-.") * len(samples), strict=False):
        axes.hist(values, bins=bins, range=(-reach, reach), histtype="step", linestyle=style, label=name, density=True)
    axes.set(title=title, xlabel=xlabel, ylabel="density")
    axes.legend()
    return Picture(figure, alt)
