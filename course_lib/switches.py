"""Switches that are set for a while and put back: mode, precision of matrix products, activation checkpointing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as recompute_in_backward

from .shapes import expect


def expect_one_of(value: object, name: str, known: list[Any]) -> None:
    expect(value in known, f"{name} should be one of {', '.join(map(repr, known))}; got {value!r}.")


@contextmanager
def in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """`model.train()` or `model.eval()` for a while; then every part gets its old mode back."""
    before = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode


@contextmanager
def matmul_precision(name: str | None) -> Iterator[None]:
    """Let float32 matrix products use fewer bits inside ("medium", "high"); None changes nothing.

    It is one switch for the whole process, so it goes back to what it was. "medium" is faster on many CPUs.
    """
    before = torch.get_float32_matmul_precision()
    if name is not None:
        expect_one_of(name, "precision of matrix products", ["highest", "high", "medium"])
        torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        if name is not None:
            torch.set_float32_matmul_precision(before)


@contextmanager
def checkpointed(*modules: nn.Module) -> Iterator[None]:
    """Activation checkpointing: these modules keep their inputs only, and compute the rest again in backward.

    Same gradients to the last bit, dropout included: the generator is set back before computing again. Memory
    for activations shrinks from all layers to one, time grows by about one forward pass.
    """
    before = [(module, module.__dict__.get("forward")) for module in dict.fromkeys(modules)]
    for module, _ in before:
        module.forward = partial(  # type: ignore[method-assign]
            recompute_in_backward, module.forward, use_reentrant=False, preserve_rng_state=True
        )
    try:
        yield
    finally:
        for module, forward in before:
            if forward is None:
                del module.forward
            else:
                module.forward = forward  # type: ignore[method-assign]


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """The members of every nn.ModuleList, the outermost only: the layers of a stack."""
    blocks: list[nn.Module] = []
    waiting = [model]
    while waiting:
        module = waiting.pop()
        (blocks if isinstance(module, nn.ModuleList) else waiting).extend(module.children())
    expect(
        len(blocks) > 0,
        f"{type(model).__name__} has no nn.ModuleList of blocks to compute again; "
        "name the modules yourself: with checkpointed(...): fit(...).",
    )
    return blocks
