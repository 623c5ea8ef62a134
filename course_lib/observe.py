"""Run a learner's code on a case and write down what happened: the only file that touches it.

It runs where the learner's code runs: in the notebook's kernel, or in a process that a grader has locked away.
What it returns are arrays, numbers and words, so that the judgement can be made elsewhere.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import io
import linecache
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .exercises.declare import Case

SECONDS = 3.0
ROOM = 2 << 30  # bytes that a call may take beyond what the process already has


class TooLong(BaseException):
    """Not an Exception, so that `except Exception` in an endless loop does not swallow it."""


@dataclass(frozen=True)
class Opaque:
    """Something that is neither number nor array nor text: only the name of its type is kept."""

    kind: str


@dataclass(frozen=True)
class Fault:
    """What a call raised: the kind of error, its message, and the lines of the learner's own code."""

    kind: str
    message: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Observation:
    """All that one call showed. `gradients` is None where the result hangs on no input."""

    output: Any = None
    fault: Fault | None = None
    changed: tuple[int, ...] = ()
    gradients: tuple[Any, ...] | None = None
    parameters: tuple[tuple[str, tuple[int, ...]], ...] = ()
    printed: str = ""


def observe(subject: Callable[..., Any], case: Case, seconds: float | None = None) -> Observation:
    """Call `subject` (or the module built from it) as the case says, on copies of the case's inputs."""
    args = tuple(_copy(arg, case.gradient) for arg in case.args)
    screen = io.StringIO()
    found: dict[str, Any] = {}

    def run() -> None:
        target = subject
        if case.build is not None:
            target = subject(*(_copy(arg, False) for arg in case.build))
            found["parameters"] = _parameters(target)
            _prepare(target, case)
        output = _translate(target, case, args) if case.longest else target(*args)
        if case.gradient:
            found["gradients"] = _gradients(output, args, target)
        found["output"] = plain(output)

    try:
        with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
            within_limits(run, seconds or SECONDS + 10 * bool(case.longest))  # or hundreds of sentences, word by word
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        found["fault"] = _fault(error)
    changed = tuple(i for i, (a, b) in enumerate(zip(args, case.args, strict=True)) if not _equal(a, b))
    return Observation(**found, changed=changed, printed=screen.getvalue()[:2000])


def remember(source: str, name: str) -> str:
    """A file name for code that stands in no file, under which errors find its lines."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    return name


def plain(value: Any, depth: int = 0) -> Any:
    """Arrays, numbers, words and tuples of these; anything else is only named."""
    if value is None or isinstance(value, (str, Opaque)):
        return value
    if _is_tensor(value):
        value = value.detach().cpu()
        return (value.float() if value.dtype.is_floating_point and value.dtype.itemsize < 4 else value).numpy().copy()
    if isinstance(value, (bool, int, float, complex, np.generic, np.ndarray)):
        array = np.array(value)
        return array if array.dtype.kind in "biufc" else Opaque(f"array of {array.dtype}")
    if isinstance(value, (list, tuple)) and depth < 5 and len(value) <= 10_000:
        if value and all(isinstance(x, (bool, int, float, np.generic, list, tuple)) for x in value):
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                array = np.array(value)
                if array.dtype.kind in "biuf":
                    return array
        return tuple(plain(x, depth + 1) for x in value)
    return Opaque(type(value).__name__)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _copy(value: Any, gradient: bool) -> Any:
    if _is_tensor(value):
        value = value.detach().clone()
        return value.requires_grad_() if gradient and value.is_floating_point() else value
    return copy.deepcopy(value)


def _equal(a: Any, b: Any) -> bool:
    if _is_tensor(a) or isinstance(a, np.ndarray):
        a, b = plain(a), plain(b)
        return a.shape == b.shape and bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return bool(a == b)


def _parameters(module: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    named = getattr(module, "named_parameters", None)
    if named is None or isinstance(module, type):
        return ()
    return tuple(sorted((name, tuple(p.shape)) for name, p in named()))


def _prepare(module: Any, case: Case) -> None:
    """Load the case's weights, and set training or evaluation."""
    import torch

    if case.longest:
        from .handed_in import load_into

        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"a model is wanted, an nn.Module with parameters; got {type(module).__name__}")
        return load_into(module.float().eval(), case.weights or {})
    module.double().train(case.training)
    own = dict(module.named_parameters())
    for name, value in (case.weights or {}).items():
        if name not in own:
            raise AttributeError(f"there is no parameter {name}; found: {', '.join(own) or 'none'}")
        with torch.no_grad():
            own[name].copy_(torch.as_tensor(value))


def _translate(module: Any, case: Case, args: tuple[Any, ...]) -> Any:
    from .handed_in import translate  # only here: a grader's child has that file only where a model is handed in

    (source,) = args
    return translate(module, source, case.longest)


def _gradients(output: Any, args: tuple[Any, ...], target: Any) -> tuple[Any, ...] | None:
    """How the inputs and parameters would move a fixed combination of all outputs."""
    import torch

    outputs = [x for x in (output if isinstance(output, (list, tuple)) else (output,)) if _is_tensor(x)]
    starts = np.cumsum([1, *(x.numel() for x in outputs)])  # rows in a list count on, as they would in one tensor
    total = sum((x * _direction(x, start)).sum() for x, start in zip(outputs, starts, strict=False))
    if not _is_tensor(total) or not total.requires_grad:
        return None
    inputs = [a for a in args if _is_tensor(a) and a.requires_grad]
    named = getattr(target, "named_parameters", None)
    inputs += [] if named is None else [p for _, p in sorted(named())]
    return tuple(plain(g) for g in torch.autograd.grad(total, inputs, allow_unused=True))


def _direction(x: Any, start: int) -> Any:
    """Fixed numbers of the shape and type of `x`, whatever torch's default type has been set to."""
    count = np.arange(start, start + x.numel(), dtype=np.float64)
    return sys.modules["torch"].from_numpy(np.sin(count)).to(x).reshape(x.shape)


def _fault(error: BaseException) -> Fault:
    """The error without the library's own frames."""
    cause = error.__cause__ if isinstance(error, TooLong) and error.__cause__ else error
    frames = [f for f in traceback.extract_tb(cause.__traceback__) if f.filename not in (__file__, threading.__file__)]
    frames = [f for f in frames if "site-packages" not in f.filename] or frames  # the learner's lines, not torch's
    lines = tuple(f"line {f.lineno}, in {f.name}: {f.line}" for f in frames if f.line)[-3:]
    return Fault(type(error).__name__, str(error)[:500], lines)


def within_limits(run: Callable[[], Any], seconds: float | None = None) -> Any:
    """What `run` returns or raises; TooLong after so many seconds. The process lives on in any case.

    It runs in a thread of its own. One that does not end is told to (`except Exception` does not stop that), and
    one that will not listen is left behind: it wastes time until the kernel is restarted, and does no other harm.
    """
    seconds = SECONDS if seconds is None else seconds
    box: dict[str, Any] = {}

    def work() -> None:
        try:
            box["value"] = run()
        except BaseException as error:
            box["error"] = error

    worker = threading.Thread(target=work, daemon=True)
    with _memory(ROOM):
        try:
            worker.start()
        except RuntimeError:  # a browser has no threads: there, reloading the page is all there is
            work()
        else:
            worker.join(seconds)
            _stop(worker)
    if worker.is_alive():
        raise TooLong(f"still running after {seconds:g} seconds, and does not stop: restart the kernel")
    if isinstance(box.get("error"), TooLong):
        raise TooLong(f"still running after {seconds:g} seconds, so it was stopped") from box["error"]
    if "error" in box:
        raise box["error"]
    return box["value"]


def _stop(worker: threading.Thread) -> None:
    """Raise TooLong inside a thread until it ends, for a second at most."""
    for _ in range(20):
        if not worker.is_alive():
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident or 0), ctypes.py_object(TooLong))
        worker.join(0.05)


@contextlib.contextmanager
def _memory(room: int) -> Iterator[None]:
    """A ceiling for the address space, where the system has one."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        ceiling = used + room if soft == resource.RLIM_INFINITY else min(soft, used + room)
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, hard))
    except (ImportError, OSError, ValueError):
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
