"""Checkpoints of a training run: files that are whole or not there, and that fit or are refused."""

from __future__ import annotations

import os
import pickle
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .device import device_of
from .parallel import Processes
from .shapes import expect, shape

if TYPE_CHECKING:
    from .training import Run


def save_checkpoint(path: str | Path, run: Run, processes: Processes | None = None) -> None:
    """Write all of `run` to `path`: whoever looks sees the old file or the new one, never half of one."""
    processes = processes or Processes()
    generators = processes.gather(generator_states(device_of(run.model)))
    if processes.rank == 0:
        state = {
            "step": run.step,
            "updates": run.updates,
            "config": asdict(run.config),
            "model": run.model.state_dict(),
            "optimizer": run.optimizer.state_dict(),
            "scaler": run.scaler.state_dict(),
            "generators": generators,
            "history": run.history.numbers(),
        }
        replace_file(Path(path), state)
    processes.gather(None)  # nobody goes on, and perhaps reads the file, before it is there


def replace_file(path: Path, state: dict[str, Any]) -> None:
    """Write beside `path`, make sure that it is on the disk, and only then let it take the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    try:
        with open(new, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def load_checkpoint(path: str | Path, run: Run, processes: Processes | None = None) -> None:
    """Set `run` to what `path` holds, all of it or, with a ValueError that says what differs, nothing."""
    processes = processes or Processes()
    state = read_checkpoint(path)
    same_config(state["config"], asdict(run.config))
    same_sizes(state["model"], run.model.state_dict())
    expect(
        len(state["generators"]) == processes.size,
        f"The checkpoint was written by {len(state['generators'])} processes; this run has {processes.size}.",
    )
    try:
        run.optimizer.load_state_dict(state["optimizer"])
        run.scaler.load_state_dict(state["scaler"])
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"The optimizer's state in {path} does not fit this model: {error}") from error
    # The model comes last: nothing after this line can fail.
    set_generators(state["generators"][processes.rank], device_of(run.model))
    run.model.load_state_dict(state["model"])
    run.step, run.updates, run.history = state["step"], state["updates"], type(run.history)(**state["history"])


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """What `save_checkpoint` wrote, as plain numbers and tensors: no code of the file is ever run."""
    try:
        with zipfile.ZipFile(path) as archive:  # torch.save writes a zip; torch.load does not check its checksums
            damaged = archive.testzip()
        expect(damaged is None, f"{path} is damaged: {damaged} is not what was written.")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (zipfile.BadZipFile, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"{path} is not a whole checkpoint: {str(error).splitlines()[0]} "
            "Was it cut short, or written by another program?"
        ) from error
    keys = {"step", "updates", "config", "model", "optimizer", "scaler", "generators", "history"}
    found = set(state) if isinstance(state, dict) else {type(state).__name__}
    expect(
        found == keys,
        f"{path} is not a checkpoint of fit: expected {sorted(keys)}; got {sorted(map(str, found))[:10]}.",
    )
    return state


def same_config(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Going on with other settings would be neither the old run nor the new one."""
    free = {"checkpoint_every", "log_every"}
    differing = [
        f"{name} was {theirs.get(name, 'not there')} and is {ours.get(name, 'not there')}"
        for name in sorted(theirs.keys() | ours.keys())
        if name not in free and theirs.get(name) != ours.get(name)
    ]
    expect(
        not differing,
        f"The checkpoint belongs to another training configuration: {'; '.join(differing)}. "
        "Take the same one, or start anew with resume=False.",
    )


def same_sizes(theirs: dict[str, Tensor], ours: dict[str, Tensor]) -> None:
    """Every parameter and buffer of the model is there, in its shape and number type, and no other."""
    wrong = [f"{name} is missing" for name in ours if name not in theirs]
    wrong += [f"{name} is not in the model" for name in theirs if name not in ours]
    wrong += [
        f"{name} is {kind(theirs[name])}, the model has {kind(ours[name])}"
        for name in ours
        if name in theirs and kind(theirs[name]) != kind(ours[name])
    ]
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    expect(not wrong, f"The checkpoint is of another model: {'; '.join(wrong[:3])}{more}.")


def kind(tensor: Tensor) -> str:
    return f"{shape(tensor)} {tensor.dtype}"


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """Where torch's own generators stand, which dropout draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_generators(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    if device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])
