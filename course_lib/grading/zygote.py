"""The zygote: closes itself in, imports NumPy and torch once, then forks a child for each paper. It knows no cases.

Started by keeper.py with a control socket. For every child it is sent a folder and one end of a socket pair, and
answers with the child's process handle. The child runs cells and calls functions as the grader asks.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import struct
import sys
import types
from pathlib import Path
from typing import Any

from . import sandbox, wire

PRELOAD = ("numpy", "math", "collections", "dataclasses", "typing", "functools", "itertools", "course_lib.observe")
TORCH = ("torch", "torch.nn.functional")


def main(control: int, stripped: str, work: str, torch: bool, closed: bool) -> None:
    """Serve until the control socket closes."""
    program = b""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory runs out, a child goes, not the grader
    size = os.open("/proc/self/statm", os.O_RDONLY) if os.path.exists("/proc/self/statm") else -1
    if closed:
        program = sandbox.filter_program(os.uname().machine)
        allowed = sandbox.readable(Path(stripped))
        sandbox.drop_capabilities()
        sandbox.close_files(allowed, [work, "/dev/null"])
    for name in (*PRELOAD, *(TORCH if torch else ())):
        importlib.import_module(name)
    if torch:
        sys.modules["torch"].set_num_threads(1)  # before any operation: a pool of threads does not survive a fork
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the system
    gc.collect()
    gc.freeze()
    channel = socket.socket(fileno=control)
    wire.send(channel, {"ready": True})
    while True:
        message, handles, _, _ = socket.recv_fds(channel, 4096, 1)
        if not message:
            return
        pages = int(os.pread(size, 100, 0).split()[0]) if size >= 0 else 0
        child = os.fork()
        if child == 0:
            try:
                channel.close()
                serve(socket.socket(fileno=handles[0]), message.decode(), pages * os.sysconf("SC_PAGE_SIZE"), program)
            finally:
                os._exit(1)
        os.close(handles[0])
        handle = os.pidfd_open(child)
        socket.send_fds(channel, [struct.pack("<i", child)], [handle])
        os.close(handle)


def serve(channel: socket.socket, folder: str, size: int, program: bytes) -> None:
    """The child's life: lock the door, then do what the grader asks until it hangs up."""
    sandbox.die_with_parent()
    os.setsid()
    os.chdir(folder)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _same_luck_for_all()
    if program:
        sandbox.limit(size)
        sandbox.close_calls(program)
    notebook = sys.modules["__main__"] = types.ModuleType("__main__")
    space = vars(notebook)
    space |= {"display": lambda *_, **__: None, "get_ipython": lambda: None}  # what a notebook has without an import
    while True:
        try:
            head, body = wire.receive(channel)
        except EOFError:
            return
        answer, more = run_cell(head, space) if "cell" in head else call(head, body, space)
        wire.send(channel, answer | {"to": head["number"]}, more)


def _same_luck_for_all() -> None:
    """Unseeded random numbers are the same for every paper, so that a grade does not depend on who came before."""
    import random

    random.seed(0)
    sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def run_cell(head: Any, space: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Run one cell; the answer tells what it raised, if it did."""
    from ..observe import remember

    try:
        exec(compile(head["cell"], remember(head["cell"], head["name"]), "exec", dont_inherit=True), space)
    except BaseException as error:
        return {"raised": [type(error).__name__, str(error)[:200]]}, b""
    return {"raised": None}, b""


def call(head: Any, body: bytes, space: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Observe one call of what the learner defined; or tell that it is not there."""
    from ..observe import observe

    subject = space.get(head["call"])
    if not callable(subject):
        return {"missing": "" if subject is None else type(subject).__name__}, b""
    return wire.observation_to_wire(observe(subject, wire.case_from_wire(head, body)))
