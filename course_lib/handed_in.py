"""A trained translator that is handed in: a file of plain numbers beside the notebook, and what it says.

The file is read as numbers only (safetensors), never as code, and every size is checked before anything is believed:
whoever grades does not know who wrote it. A model is any module with forward(source, target_in) -> logits.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .number_words import LIMIT
from .shapes import expect

if TYPE_CHECKING:
    from torch import Tensor, nn

FILE = "13_model.safetensors"
LARGEST_FILE, MOST_TENSORS, LONGEST_NAME = 8 << 20, 400, 200  # two million float32 numbers: many times what it takes
KINDS = {"F16", "F32", "F64"}


def path(name: str = FILE) -> Path:
    """Where the file stands: beside the notebook, or in the folder $COURSE_HAND_IN."""
    return Path(os.environ.get("COURSE_HAND_IN") or ".") / name


def held_back(number: int) -> bool:
    """Numbers that nobody may train on, since they are asked in the end: every seventh below a million."""
    expect(0 <= number < LIMIT, f"Numbers go from 0 to {LIMIT - 1:,}; got {number}.")
    return number % 7 == 3


# --- the file -----------------------------------------------------------------------------------------------


def write_model(model: nn.Module, file: str | Path | None = None) -> Path:
    """All parameters of `model` as float32: the file is there whole, or not at all."""
    from safetensors.torch import save

    file = path() if file is None else Path(file)
    tensors = {name: p.detach().cpu().float().contiguous() for name, p in model.named_parameters()}
    new = file.with_name(file.name + ".new")
    try:
        new.write_bytes(save(tensors))
        os.replace(new, file)
    finally:
        new.unlink(missing_ok=True)
    return file


def read_model(file: str | Path | None = None) -> dict[str, np.ndarray]:
    """The tensors of a file by name; a ValueError says what is wrong with it."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    file = path() if file is None else Path(file)
    content = _bytes_of(file)
    _expect_header(content, file.name)
    try:
        tensors = load(content)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file.name} is not a whole safetensors file: {error}. Write it once more.") from None
    spoiled = [name for name, array in tensors.items() if not np.isfinite(array).all()]
    expect(
        not spoiled,
        f"{file.name} holds NaN or infinity in {', '.join(spoiled[:3])}: did training leave the finite numbers?",
    )
    return tensors


def _bytes_of(file: Path) -> bytes:
    """The content of a plain file of bearable size; links and devices are not followed."""
    try:
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise ValueError(f"There is no {file.name} beside the notebook yet: train your model first.") from None
    except OSError as error:
        raise ValueError(f"{file.name} cannot be read: {error.strerror}.") from None
    try:
        expect(stat.S_ISREG(os.fstat(handle).st_mode), f"{file.name} is no plain file.")
        with os.fdopen(handle, "rb", closefd=False) as stream:
            content = stream.read(LARGEST_FILE + 1)
    finally:
        os.close(handle)
    expect(
        len(content) <= LARGEST_FILE,
        f"{file.name} has more than {LARGEST_FILE >> 20} MB: a model this large is over the budget.",
    )
    return content


def _expect_header(content: bytes, name: str) -> None:
    """Before anything is unpacked: so many tensors, of these kinds, with names of bearable length."""
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + length]) if 8 + length <= len(content) else None
        entries = {key: value for key, value in header.items() if key != "__metadata__"}  # type: ignore[union-attr]
        kinds = {str(value["dtype"]) for value in entries.values()}
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{name} is not a safetensors file. Write it with write_model(model).") from None
    expect(0 < len(entries) <= MOST_TENSORS, f"{name} holds {len(entries)} tensors; 1 to {MOST_TENSORS} are read.")
    expect(max(map(len, entries)) <= LONGEST_NAME, f"{name}: a tensor's name has at most {LONGEST_NAME} letters.")
    expect(kinds <= KINDS, f"{name} holds numbers of type {', '.join(sorted(kinds - KINDS))}; save them as float32.")


# --- the model ----------------------------------------------------------------------------------------------


def load_into(model: nn.Module, tensors: Mapping[str, Any]) -> None:
    """Set every parameter of `model` to the tensor of its name, or say which do not fit, and change nothing."""
    import torch

    own = dict(model.named_parameters())
    wrong = [f"{name} is not in the file" for name in own if name not in tensors]
    wrong += [f"{name} is in the file, but not in the model" for name in tensors if name not in own]
    wrong += [
        f"{name} is {tuple(tensors[name].shape)} in the file and {tuple(p.shape)} in the model"
        for name, p in own.items()
        if name in tensors and tuple(tensors[name].shape) != tuple(p.shape)
    ]
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    expect(
        not wrong, f"The file belongs to another model: {'; '.join(wrong[:3])}{more}. Train again, or mend the model."
    )
    with torch.no_grad():
        for name, p in own.items():
            p.copy_(torch.as_tensor(tensors[name]))


def translate(model: nn.Module, source: Tensor, longest: int, *, bos: int = 1, eos: int = 2, pad: int = 0) -> Tensor:
    """The most probable word, again and again, for a model that has only forward. Tokens (B, T) without <bos>."""
    import torch

    tokens_BT = torch.full((len(source), 1), bos, device=source.device)
    ended_B = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    with torch.no_grad():
        for _ in range(longest):
            newest_B = model(source, tokens_BT)[:, -1].argmax(dim=-1).masked_fill(ended_B, pad)
            tokens_BT = torch.cat([tokens_BT, newest_B[:, None]], dim=1)
            ended_B = ended_B | (newest_B == eos)
            if bool(ended_B.all()):
                break
    return tokens_BT[:, 1:]
