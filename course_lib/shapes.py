"""The dimension key of the course, and errors that speak to the learner.

Inside functions a tensor carries its dimensions as a suffix: `scores_BHTS` has batch, heads,
queries, keys. Everything here works on NumPy arrays and torch tensors alike and imports neither.
"""

from __future__ import annotations

from typing import Any

KEY = {
    "B": "batch",
    "H": "heads",
    "T": "queries (target length)",
    "S": "keys (source length)",
    "D": "model width d_model",
    "K": "head width d_k",
    "V": "value width d_v",
    "F": "feed-forward width",
    "C": "vocabulary size",
}


def shape(x: Any) -> str:
    """The shape of `x` as people write it: (2, 5, 16)."""
    return str(tuple(x.shape))


def expect(ok: bool, message: str) -> None:
    """Raise `ValueError(message)` unless `ok`."""
    if not ok:
        raise ValueError(message)


def expect_rank(x: Any, name: str, letters: str) -> None:
    """`x` has one axis per letter: expect_rank(x, "x", "BTD")."""
    if len(x.shape) != len(letters):
        axes = ", ".join(f"{letter} = {KEY[letter]}" for letter in letters)
        raise ValueError(f"{name} should have {len(letters)} axes ({axes}); got shape {shape(x)} with {len(x.shape)}.")


def expect_last(x: Any, name: str, width: int, symbol: str = "d_model") -> None:
    """The last axis of `x` has the given width."""
    if not x.shape or x.shape[-1] != width:
        raise ValueError(f"The last axis of {name} should be {symbol} = {width}; got shape {shape(x)}.")


def expect_divides(heads: int, d_model: int) -> None:
    """The model width splits into `heads` equal parts."""
    if heads < 1 or d_model < 1 or d_model % heads:
        raise ValueError(
            f"d_model = {d_model} cannot be split into {heads} heads of equal width: "
            f"choose a positive number of heads that divides {d_model}."
        )


def expect_attention(q: Any, k: Any, v: Any, mask: Any = None) -> None:
    """Queries match keys in width, keys match values in number, and the mask fits the scores."""
    if len(q.shape) < 2 or len(k.shape) < 2 or len(v.shape) < 2:
        raise ValueError(
            "q, k and v need at least two axes (tokens, width); "
            f"got shapes q {shape(q)}, k {shape(k)}, v {shape(v)}. One token alone is x[None, :]."
        )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"q and k should have the same width d_k, since each score is a dot product of the two; "
            f"got q {shape(q)} and k {shape(k)}."
        )
    if q.shape[-1] == 0 or k.shape[-2] == 0:
        raise ValueError(
            f"Attention needs at least one key of at least one dimension; got q {shape(q)} and k {shape(k)}."
        )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"Every key needs its value: k has {k.shape[-2]} rows and v has {v.shape[-2]}; "
            f"got k {shape(k)} and v {shape(v)}."
        )
    if mask is not None:
        expect_mask(mask, q.shape[-2], k.shape[-2])


def expect_mask(mask: Any, queries: int, keys: int) -> None:
    """The mask is boolean (True = may attend) and its last two axes broadcast to (T, S)."""
    if str(getattr(mask, "dtype", type(mask).__name__)).removeprefix("torch.") != "bool":
        raise TypeError(
            "A mask is boolean, True where a query may attend to a key; "
            f"got {getattr(mask, 'dtype', type(mask).__name__)}. A 0/1 mask becomes one by `mask == 1`."
        )
    rows, columns = (0, 0, *mask.shape)[-2:]
    if rows not in (1, queries) or columns not in (1, keys):
        raise ValueError(
            f"The mask's last two axes should be (queries, keys) = ({queries}, {keys}), or 1 to broadcast; "
            f"got shape {shape(mask)}."
        )
