"""Where tensors live and how randomness is fixed: the only file that asks which hardware there is."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import nn


def available_devices() -> list[str]:
    """The kinds of device this machine has, the fastest first."""
    kinds = [("cuda", torch.cuda.is_available()), ("mps", torch.backends.mps.is_available()), ("cpu", True)]
    return [name for name, there in kinds if there]


def pick_device(name: str | torch.device | None = None) -> torch.device:
    """The device asked for, or the fastest there is: CUDA, then MPS, then the CPU."""
    if name is None:
        return torch.device(available_devices()[0])
    device = torch.device(name)
    if device.type in ("cuda", "mps") and device.type not in available_devices():
        raise ValueError(
            f"This machine has no {device.type} device that torch can use; "
            f"it has: {', '.join(available_devices())}. Leave the name out to take the best one."
        )
    return device


def seed_all(seed: int) -> None:
    """Fix every generator that a notebook may draw from: Python, NumPy, torch on all devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def generator(seed: int, device: str | torch.device = "cpu") -> torch.Generator:
    """A generator of its own, so that drawing here does not disturb drawing there."""
    return torch.Generator(device=device).manual_seed(seed)


def synchronize(device: str | torch.device) -> None:
    """Wait until the device has done its work: without this, a stopwatch on a GPU measures nothing."""
    kind = torch.device(device).type
    if kind == "cuda":
        torch.cuda.synchronize(device)
    elif kind == "mps":
        torch.mps.synchronize()


def device_of(model: nn.Module) -> torch.device:
    """Where the model's parameters are."""
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device
