"""The figures' common part: JavaScript assembled from kit.js and the figure's own file, and what shows without it."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from ..plots import Picture
from ..shapes import expect

HERE = Path(__file__).parent


def synced() -> Any:
    """A list that the browser shares."""
    return traitlets.List().tag(sync=True)


class Figure(anywidget.AnyWidget):
    """A figure whose arithmetic runs in the browser; `numbers()` is its NumPy twin.

    A subclass names its JavaScript file, and says in `alt()` and `picture()` what it shows where no script runs.
    """

    _css = (HERE / "kit.css").read_text(encoding="utf-8")

    def __init_subclass__(cls, script: str | None = None, **kwargs: Any):
        if script is not None:  # traitlets makes further subclasses of its own
            cls._esm = "\n".join((HERE / name).read_text(encoding="utf-8") for name in ("kit.js", script))
        super().__init_subclass__(**kwargs)

    def numbers(self) -> dict[str, Any]:
        """The numbers that the figure shows, as arrays."""
        raise NotImplementedError

    def alt(self) -> str:
        """The figure in a sentence."""
        raise NotImplementedError

    def picture(self) -> Picture:
        """The figure as it stands, as a still picture."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        data["image/png"] = base64.b64encode(self.picture().png()).decode()
        data["text/plain"] = self.alt()
        metadata["image/png"] = {"alt": html.escape(self.alt())}
        return data, metadata


def matrix(values: Any, name: str, columns: int | None = None) -> list[list[float]]:
    """A matrix as lists of numbers, which is what crosses to the browser."""
    array = np.asarray(values, dtype=float)
    expect(
        array.ndim == 2 and array.size > 0 and bool(np.isfinite(array).all()) and columns in (None, array.shape[-1]),
        f"{name} should be a matrix of finite numbers{f' with {columns} columns' if columns else ''}; "
        f"got shape {array.shape}.",
    )
    return array.tolist()
