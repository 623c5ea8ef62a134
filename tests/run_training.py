"""Training runs that need processes of their own: one that is killed, and several that share a batch.

python tests/run_training.py killed FOLDER            dies by SIGKILL after step 7
torchrun ... tests/run_training.py parallel FOLDER    writes what each process ended with
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from course_lib.training import TrainConfig, fit

SOURCE_VOCAB, TARGET_VOCAB = 11, 13


class Block(nn.Module):
    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.norm, self.wide, self.back = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(3 * width, width),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.back(self.wide(self.norm(x)).relu()))


class Tiny(nn.Module):
    """A translation model of few numbers: the mean of the source, added to every word of the target."""

    def __init__(self, width: int = 6, dropout: float = 0.0, layers: int = 2):
        super().__init__()
        self.source, self.target = nn.Embedding(SOURCE_VOCAB, width), nn.Embedding(TARGET_VOCAB, width)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(layers))
        self.output = nn.Linear(width, TARGET_VOCAB)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        x = self.target(target_in) + self.source(source).mean(dim=1, keepdim=True)
        for block in self.blocks:
            x = block(x)
        return self.output(x)


def tiny(seed: int, dtype: torch.dtype = torch.float32, **sizes) -> Tiny:
    torch.manual_seed(seed)
    return Tiny(**sizes).to(dtype)


def make_batches(
    steps: int, rows: int = 5, seed: int = 3, source: int = 4, target: int = 7
) -> list[tuple[Tensor, ...]]:
    """Batches whose rows have very different numbers of real tokens."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(steps):
        source_BS = torch.randint(3, SOURCE_VOCAB, (rows, source), generator=generator)
        target_BT = torch.randint(3, TARGET_VOCAB, (rows, target + 1), generator=generator)
        lengths_B = torch.randint(2, target + 2, (rows,), generator=generator)
        lengths_B[0], lengths_B[-1] = target + 1, 2
        target_BT[torch.arange(target + 1) >= lengths_B[:, None]] = 0
        made.append((source_BS, target_BT[:, :-1], target_BT[:, 1:]))
    return made


KILLED = TrainConfig(steps=10, warmup=3, checkpoint_every=3, log_every=4, smoothing=0.1)


def killed(folder: Path) -> None:
    def die(step: int) -> None:
        if step == 7:
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))

    fit(
        tiny(1, dropout=0.3),
        make_batches(10),
        KILLED,
        checkpoint=folder / "run.pt",
        on_step=die,
        progress=False,
    )


PARALLEL = TrainConfig(steps=6, warmup=2, accumulate=2, checkpoint_every=3, smoothing=0.1)


def parallel(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    written = count_replacements()
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        model = tiny(rank, torch.float64)
        history = fit(model, make_batches(6), PARALLEL, checkpoint=folder / "plain.pt")
    whole = dropout_run(rank, folder, "whole.pt")
    dropout_run(rank, folder, "halves.pt", on_step=lambda step: step == 3)
    halves = dropout_run(rank + 10, folder, "halves.pt", resume=True)
    few = message_of(lambda: fit(tiny(0), make_batches(6, rows=1), PARALLEL, progress=False))
    alone = folder / f"alone{rank}.pt"  # a file that only one process can see
    if rank == 0:
        alone.write_bytes((folder / "plain.pt").read_bytes())
    apart = message_of(
        lambda: fit(tiny(0, torch.float64), make_batches(6), PARALLEL, checkpoint=alone, resume=True, progress=False)
    )
    ended = {"model": model.state_dict(), "history": history.numbers(), "shown": shown.getvalue()}
    ended |= {"whole": whole, "halves": halves, "written": len(written), "few": few, "apart": apart}
    torch.save(ended, folder / f"rank{rank}.pt")


def dropout_run(seed: int, folder: Path, name: str, **options) -> dict[str, Tensor]:
    model = tiny(seed, dropout=0.3)
    fit(model, make_batches(6), PARALLEL, checkpoint=folder / name, progress=False, **options)
    return model.state_dict()


def message_of(action) -> str:
    try:
        action()
    except ValueError as error:
        return str(error)
    return "no error"


def count_replacements() -> list[str]:
    """Every file that takes another's name from now on."""
    replace, seen = os.replace, []
    os.replace = lambda old, new: (seen.append(str(new)), replace(old, new))[1]
    return seen


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"killed": killed, "parallel": parallel}[sys.argv[1]](Path(sys.argv[2]))
