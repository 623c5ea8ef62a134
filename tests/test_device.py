"""Choosing a device and fixing randomness."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from course_lib import device


def pretend(monkeypatch, cuda=False, mps=False):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    "cuda, mps, best",
    [(False, False, "cpu"), (True, False, "cuda"), (False, True, "mps"), (True, True, "cuda")],
)
def test_the_fastest_device_is_picked(monkeypatch, cuda, mps, best):
    pretend(monkeypatch, cuda, mps)
    assert device.pick_device().type == best
    assert device.available_devices()[-1] == "cpu"
    assert device.pick_device("cpu").type == "cpu"


def test_a_device_that_is_not_there_is_refused_in_words(monkeypatch):
    pretend(monkeypatch, mps=True)
    with pytest.raises(ValueError, match=r"no cuda device .* it has: mps, cpu"):
        device.pick_device("cuda:1")
    assert device.pick_device("mps").type == "mps"


def test_a_seed_fixes_python_numpy_and_torch():
    def draws():
        return random.random(), np.random.rand(), torch.rand(2).tolist()

    device.seed_all(5)
    first = draws()
    device.seed_all(5)
    assert draws() == first
    device.seed_all(6)
    assert all(a != b for a, b in zip(draws(), first, strict=True))


def test_a_generator_of_its_own_disturbs_nobody():
    torch.manual_seed(0)
    wanted = torch.rand(3)
    torch.manual_seed(0)
    a, b = (torch.rand(3, generator=device.generator(7)) for _ in range(2))
    assert torch.equal(a, b) and torch.equal(torch.rand(3), wanted)


def test_synchronize_waits_on_the_right_device(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda d: waited.append(str(d)))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waited.append("mps"))
    for name in ("cpu", "cuda:0", "mps"):
        device.synchronize(name)
    assert waited == ["cuda:0", "mps"]
