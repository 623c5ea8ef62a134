"""What holds for every test: one thread, no network, and the same examples in every run."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Before anything imports torch, matplotlib or transformers, and for the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["HF_HUB_OFFLINE"] = "1"

# Machines differ in speed, so an example has no deadline of its own; what failed once fails again.
settings.register_profile("course", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("course")


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the project."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """A test that leaves this machine fails at once, instead of passing only where there is a network."""
    real = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else ""
        local = self.family not in (socket.AF_INET, socket.AF_INET6) or host in ("localhost", "::1")
        if not (local or host.startswith("127.")):
            raise OSError(f"a test tried to reach {host!r}; tests run without a network")
        real(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect)
        yield
