"""The grader's hold on zygote and children: ask with a deadline, end them for sure, clean up behind them."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import sandbox, wire

DISK, FILES = 64 << 20, 1000  # bytes and files that a child may have in its folder
THREADS = 300
# An editable installation of this library finds its modules by a hook of its own: only Python's own hooks stay.
START = """import sys
sys.meta_path[:] = [f for f in sys.meta_path if getattr(f, "__module__", "").startswith("_frozen_importlib")]
sys.path[:] = [{0!r}, *(path for path in sys.path if path not in {2!r})]
from course_lib.grading.zygote import main
main(*{1!r})"""
OURS = ("", str(Path(__file__).resolve().parents[2]))  # where this library stands
KEPT = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")


class Gone(Exception):
    """The child is no more. `status` is timeout or died, the message says how."""

    def __init__(self, status: str, message: str):
        super().__init__(message)
        self.status = status


class Zygote:
    """A process that has torch loaded and forks; `with Zygote(stripped) as zygote: child = zygote.child()`."""

    def __init__(self, stripped: Path, *, torch: bool = True, closed: bool = True):
        self.work = Path(tempfile.mkdtemp(prefix="grading-"))
        self.control, theirs = socket.socketpair()
        arguments = (theirs.fileno(), str(stripped), str(self.work), torch, closed)
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        env = {name: os.environ[name] for name in KEPT if name in os.environ} | threads
        env |= {"PYTHONHASHSEED": "0", "HOME": str(self.work), "TMPDIR": str(self.work), "MPLCONFIGDIR": str(self.work)}
        self.process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-c", START.format(str(stripped), arguments, OURS)],
            pass_fds=[theirs.fileno()], env=env, cwd=self.work, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        theirs.close()
        try:
            wire.receive(self.control, 120)
        except (EOFError, TimeoutError, OSError) as error:
            self.process.kill()
            said = (self.process.communicate()[1] or b"").decode(errors="replace").strip()[-500:]
            self.close()
            raise RuntimeError(f"the grading process did not start: {said or type(error).__name__}") from None

    def child(self) -> Child:
        """A new child in an empty folder."""
        empty(self.work)
        ours, theirs = socket.socketpair()
        socket.send_fds(self.control, [str(self.work).encode()], [theirs.fileno()])
        theirs.close()
        self.control.settimeout(60)
        number, handles, _, _ = socket.recv_fds(self.control, 4, 1)
        if len(number) < 4:
            raise RuntimeError("the grading process ended")
        return Child(ours, struct.unpack("<i", number)[0], handles[0], self.work)

    def close(self) -> None:
        self.control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.process.kill()
        self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()
        shutil.rmtree(self.work, ignore_errors=True)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Child:
    """One child. Every question has a number, which the answer must carry: answers sent ahead do not count."""

    def __init__(self, channel: socket.socket, process: int, handle: int, folder: Path):
        self.channel, self.process, self.handle, self.folder = channel, process, handle, folder
        self.looked = time.monotonic()

    def ask(self, head: dict[str, Any], body: bytes = b"", *, seconds: float) -> tuple[dict[str, Any], bytes]:
        """The child's answer. Gone when it does not answer in time, ends, or answers something else."""
        number = secrets.randbits(60)  # one that cannot be told from the last
        try:
            self.channel.settimeout(seconds)
            wire.send(self.channel, head | {"number": number}, body)
            answer, more = wire.receive(self.channel, seconds, self._look)
            if time.monotonic() - self.looked > 0.2:  # many short answers hide no more than a long one
                self._look()
        except TimeoutError:
            raise self._gone("timeout", f"it ran for more than {seconds:.2g} seconds") from None
        except wire.BadReply:
            raise self._gone("died", "its process sent something that is not an answer") from None
        except (EOFError, OSError):
            raise self._gone("died", "it ended the process that it ran in") from None
        if not isinstance(answer, dict) or answer.get("to") != number:
            raise self._gone("died", "its process sent something that is not an answer")
        return answer, more

    def _look(self) -> None:
        """Gone where the child has too many files or threads, which no limit of the system counts."""
        self.looked = time.monotonic()
        with contextlib.suppress(OSError, IndexError):
            if int(Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()[17]) > THREADS:
                raise self._gone("died", "it started more threads than there is room for")
        files = list(itertools.islice(os.scandir(self.folder), FILES + 1))
        with contextlib.suppress(FileNotFoundError):
            if len(files) > FILES or sum(file.stat().st_size for file in files) > DISK:
                raise self._gone("died", "it wrote more files than there is room for")

    def _gone(self, status: str, message: str) -> Gone:
        self.close()
        return Gone(status, message)

    def close(self) -> None:
        """End the child, and see that it has ended."""
        if self.handle < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        select.select([self.handle], [], [], 10)
        os.close(self.handle)
        self.handle = -1
        self.channel.close()
        empty(self.folder)


def empty(folder: Path) -> None:
    """Remove the files in a folder (a child makes no folders), but not the folder: it is the one the zygote may use."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):  # with --unsafe only
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)


def refuse_where_unsafe(stripped: Path, secret: list[Path]) -> None:
    """ValueError where this machine cannot lock a child away, or where secrets stand in what a child must read."""
    if why := sandbox.missing():
        raise ValueError(f"Learners' code cannot be locked away here: {why}. Grade on Linux, or pass --unsafe.")
    for allowed, path in sandbox.leaks(sandbox.readable(stripped), secret):
        raise ValueError(f"{path} lies in {allowed}, which learners' code may read: move it elsewhere.")
