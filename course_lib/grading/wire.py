"""What crosses between grader and child: a short JSON head and raw array bytes, every size checked, never pickle.

The child is not trusted. Whatever it sends is a value made of words, arrays and tuples, or it is a `BadReply`.
The grader is trusted by the child, so that only the grader may send names of the library's functions and objects.
"""

from __future__ import annotations

import importlib
import json
import math
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..exercises.declare import Case
from ..observe import Fault, Observation, Opaque

HEAD, BODY = 1 << 20, 64 << 20  # bytes that a message may have
NODES, DEPTH = 20_000, 12  # values in one message, and how deep they may nest
DTYPES = {"bool", "complex64", "complex128", "float16", "float32", "float64"}
DTYPES |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


class BadReply(ValueError):
    """The other side sent something that is not a message."""


# --- messages -----------------------------------------------------------------------------------------------


def send(channel: socket.socket, head: Any, body: bytes = b"") -> None:
    text = json.dumps(head).encode()
    if len(text) > HEAD or len(body) > BODY:
        raise BadReply(f"a message of {len(text)} + {len(body)} bytes is too large")
    channel.sendall(struct.pack("<II", len(text), len(body)) + text + body)


def receive(channel: socket.socket, seconds: float | None = None, tick: Callable[[], None] | None = None) -> Any:
    """The next message: (head, body). One deadline for all of it, so that a sender who drips bytes gains no time.

    `tick` is called a few times a second, bytes or not. TimeoutError, EOFError or BadReply tell what went wrong.
    """
    end = math.inf if seconds is None else time.monotonic() + seconds
    head_size, body_size = struct.unpack("<II", _exactly(channel, 8, end, tick))
    if head_size > HEAD or body_size > BODY:
        raise BadReply(f"a message of {head_size} + {body_size} bytes was announced")
    text = _exactly(channel, head_size, end, tick)
    body = _exactly(channel, body_size, end, tick)
    try:
        return json.loads(text), body
    except (ValueError, RecursionError):
        raise BadReply("the message is not JSON") from None


def _exactly(channel: socket.socket, size: int, end: float, tick: Callable[[], None] | None) -> bytes:
    parts, looked = bytearray(), time.monotonic()
    while len(parts) < size:
        now = time.monotonic()
        if now >= end:
            raise TimeoutError
        if tick is not None and now - looked >= 0.2:
            looked = now
            tick()
        channel.settimeout(min(end - now, 0.25) if end < math.inf else None)
        try:
            part = channel.recv(min(1 << 20, size - len(parts)))
        except TimeoutError:
            continue
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


# --- values -------------------------------------------------------------------------------------------------


def encode(value: Any, body: bytearray) -> Any:
    """A value as JSON; the bytes of arrays are added to `body`, in the order in which they stand."""
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # words of NumPy and of an Enum are words
    if isinstance(value, (np.ndarray, np.generic)):
        kind = {"f": np.float64, "c": np.complex128}.get(value.dtype.kind, value.dtype)  # float128 is not everywhere
        stored = value if value.dtype.name in DTYPES and value.dtype.isnative else value.astype(kind)
        body += np.ascontiguousarray(stored).tobytes()
        return {"array": [stored.dtype.name, list(value.shape), isinstance(value, np.generic)]}
    if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        whole = value.detach().cpu().contiguous()
        body += (whole.view(torch.int16) if kind == "bfloat16" else whole).numpy().tobytes()
        return {"tensor": [kind, list(value.shape), isinstance(value, torch.nn.Parameter)]}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return {"list" if isinstance(value, list) else "tuple": [encode(x, body) for x in value]}
    if isinstance(value, (set, frozenset)):
        return {"set": [encode(x, body) for x in sorted(value)]}
    if isinstance(value, dict):
        return {"dict": [[encode(k, body), encode(x, body)] for k, x in value.items()]}
    if isinstance(value, Opaque):
        return {"opaque": value.kind}
    return _encode_given(value, body)


def _encode_given(value: Any, body: bytearray) -> Any:
    """A function or class of the library by its name, an object by its class and what it holds."""
    if hasattr(value, "__qualname__") and "<" not in value.__qualname__:
        return {"name": [value.__module__, value.__qualname__]}
    if type(value).__module__.startswith(("course_lib.", "torch.nn.")) and hasattr(value, "__dict__"):
        return {"object": [encode(type(value), body), encode(vars(value), body)]}
    raise TypeError(f"a {type(value).__name__} cannot be sent: give it a name in the unit's file")


class Decoder:
    """Values from JSON and bytes. Names and objects only where the sender is trusted."""

    def __init__(self, body: bytes, trusted: bool = False):
        self.body, self.place, self.nodes, self.trusted = body, 0, 0, trusted

    def __call__(self, raw: Any, depth: int = 0) -> Any:
        self.nodes += 1
        if self.nodes > NODES or depth > DEPTH:
            raise BadReply("too many values in one message")
        # Numbers come as arrays from whoever sends what `plain` made; nobody who judges expects another kind.
        if raw is None or isinstance(raw, str) or (self.trusted and isinstance(raw, (bool, int, float))):
            return raw
        if not (isinstance(raw, dict) and len(raw) == 1):
            raise BadReply("not a value")
        ((kind, x),) = raw.items()
        read = getattr(self, f"_{kind}", None) if kind in KINDS or (self.trusted and kind in TRUSTED) else None
        if read is None:
            raise BadReply(f"no value of kind {kind[:20]!r} was expected")
        return read(x, depth + 1)

    def _tuple(self, x: Any, depth: int) -> tuple[Any, ...]:
        return tuple(self._list(x, depth))

    def _list(self, x: Any, depth: int) -> list[Any]:
        if not isinstance(x, list):
            raise BadReply("not a list")
        return [self(item, depth) for item in x]

    def _set(self, x: Any, depth: int) -> set[Any]:
        return set(self._list(x, depth))

    def _opaque(self, x: Any, depth: int) -> Opaque:
        return Opaque(str(x)[:60])

    def _array(self, x: Any, depth: int) -> Any:
        if not (isinstance(x, list) and len(x) == 3):
            raise BadReply("not an array")
        array = self._bytes(x[0], x[0], x[1])
        return array[()] if x[2] is True and self.trusted else array

    def _bytes(self, kind: Any, stored: Any, shape: Any) -> np.ndarray:
        """The next bytes as an array, if kind, shape and what is left of the bytes agree."""
        if not isinstance(stored, str) or stored not in DTYPES or not isinstance(shape, list) or len(shape) > 8:
            raise BadReply(f"not an array of {str(kind)[:20]}")
        if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= BODY for n in shape):
            raise BadReply("not a shape")
        dtype = np.dtype(stored)
        size = math.prod(shape) * dtype.itemsize
        if self.place + size > len(self.body):
            raise BadReply("the shape asks for more bytes than there are")
        raw = self.body[self.place : self.place + size]
        self.place += size
        return np.frombuffer(raw, dtype).reshape(shape).copy()

    def _tensor(self, x: Any, depth: int) -> Any:
        import torch

        kind, shape, is_parameter = x
        whole = torch.from_numpy(self._bytes(kind, "int16" if kind == "bfloat16" else kind, shape))
        whole = whole.view(torch.bfloat16) if kind == "bfloat16" else whole
        return torch.nn.Parameter(whole) if is_parameter else whole

    def _dict(self, x: Any, depth: int) -> dict[Any, Any]:
        return {self(k, depth): self(v, depth) for k, v in x}

    def _name(self, x: Any, depth: int) -> Any:
        found = importlib.import_module(x[0])
        for part in x[1].split("."):
            found = getattr(found, part)
        return found

    def _object(self, x: Any, depth: int) -> Any:
        made = object.__new__(self(x[0], depth))
        made.__dict__.update(self(x[1], depth))
        return made


KINDS = {"tuple", "opaque", "array"}
TRUSTED = {"list", "set", "tensor", "dict", "name", "object"}


# --- cases and observations ---------------------------------------------------------------------------------


def case_to_wire(case: Case) -> tuple[Any, bytes]:
    """What the child needs of a case: not which check it belongs to, and no note."""
    body = bytearray()
    parts = [case.args, case.build, None if case.weights is None else dict(case.weights)]
    return {"case": [*(encode(p, body) for p in parts), case.gradient, case.training, case.longest]}, bytes(body)


def case_from_wire(head: Any, body: bytes) -> Case:
    args, build, weights, gradient, training, longest = head["case"]
    decode = Decoder(body, trusted=True)
    return Case("", decode(args), "", decode(build), decode(weights), gradient, training, longest)


def observation_to_wire(seen: Observation) -> tuple[Any, bytes]:
    body = bytearray()
    fault = None if seen.fault is None else [seen.fault.kind, seen.fault.message, list(seen.fault.lines)]
    values = [encode(seen.output, body), encode(seen.gradients, body)]
    return {"values": values, "fault": fault, "changed": seen.changed, "parameters": seen.parameters}, bytes(body)


def observation_from_wire(head: Any, body: bytes) -> Observation:
    """The observation, or BadReply: nothing in `head` is believed to have the right form."""
    try:
        decode = Decoder(body)
        output, gradients = (decode(value) for value in head["values"])
        if gradients is not None and not isinstance(gradients, tuple):
            raise BadReply("gradients should be a tuple")
        changed = tuple(int(i) for i in head["changed"][:100])
        named = [(str(name)[:200], tuple(int(n) for n in shape[:8])) for name, shape in head["parameters"][:2000]]
        return Observation(output, _fault(head["fault"]), changed, gradients, tuple(named))
    except BadReply:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise BadReply(f"the reply has another form: {type(error).__name__}") from None


def _fault(raw: Any) -> Fault | None:
    if raw is None:
        return None
    kind, message, lines = raw
    return Fault(str(kind)[:60], str(message)[:500], tuple(str(line)[:300] for line in lines[:3]))
