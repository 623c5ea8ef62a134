"""Several processes, one model: data-parallel training written out, for torchrun."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed

from .shapes import expect

if TYPE_CHECKING:
    from .training import Run

Batch = Sequence[Tensor]


def split_rows(batch: Batch, parts: int) -> list[Batch]:
    """The batch in `parts` batches of nearly equal size; never an empty one."""
    parts = min(parts, len(batch[-1]))
    return list(zip(*(tensor.tensor_split(parts) for tensor in batch), strict=True))


@dataclass(frozen=True)
class Processes:
    """Data-parallel training written out: the same model everywhere, each process with its rows of the batch.

    The loss is a sum over tokens divided by all tokens, so gradients of different rows add up: one all-reduce
    is all it takes. torch's DistributedDataParallel averages over processes instead, which gives a token less
    weight in a process that has many; in return it sends while backward is still at work, which pays for
    large models. A process that is alone leaves everything as it is.
    """

    rank: int = 0
    size: int = 1

    def rows(self, batch: Batch) -> Batch:
        """This process's rows of the batch."""
        expect(
            len(batch[-1]) >= self.size,
            f"A batch of {len(batch[-1])} rows cannot feed {self.size} processes: each needs one at least.",
        )
        return batch if self.size == 1 else split_rows(batch, self.size)[self.rank]

    def sum_up(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by its sum over all processes, as one message."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        distributed.all_reduce(flat)
        for tensor, total in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def gather(self, thing: Any) -> list[Any]:
        """What each process has, by rank."""
        things = [thing] * self.size
        if self.size > 1:
            distributed.all_gather_object(things, thing)
        return things

    def share(self, run: Run) -> None:
        """All begin with the parameters of process 0, whatever each drew for itself, and at the same step."""
        if self.size == 1:
            return
        steps = self.gather(run.step)
        expect(
            len(set(steps)) == 1,
            f"The processes are at different steps: {steps}. Can all of them read the checkpoint?",
        )
        for tensor in run.model.state_dict().values():
            distributed.broadcast(tensor, src=0)


def join_processes(device: torch.device) -> Processes:
    """The processes that torchrun started, or this one alone; a group that exists is used as it is."""
    if not distributed.is_available():
        return Processes()
    if not distributed.is_initialized() and distributed.is_torchelastic_launched():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        # Open until the end: a group that is closed and opened again may meet messages of the old one.
        atexit.register(distributed.destroy_process_group)
    if not distributed.is_initialized():
        return Processes()
    return Processes(distributed.get_rank(), distributed.get_world_size())
