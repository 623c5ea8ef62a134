"""What crosses between grader and child: right values come across whole, and nothing else comes across at all."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.exercises import UNITS, of_unit, u03
from course_lib.exercises.declare import Case
from course_lib.grading import wire
from course_lib.observe import Fault, Observation, Opaque, observe


@pytest.fixture
def pair():
    a, b = socket.socketpair()
    yield a, b
    a.close()
    b.close()


def there_and_back(value, trusted=True):
    body = bytearray()
    raw = json.loads(json.dumps(wire.encode(value, body)))
    return wire.Decoder(bytes(body), trusted=trusted)(raw)


def test_values_come_across_whole():
    values = (None, True, 3, 2.5, float("inf"), "ß", [1, [2]], {"a": np.arange(6).reshape(2, 3), 1: (2,)})
    back = there_and_back(values)
    assert back[:7] == values[:7] and back[7][1] == (2,)
    np.testing.assert_array_equal(back[7]["a"], values[7]["a"])
    for kind in (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool):
        tensor = torch.tensor([[1.0, 0.0, 2.5]]).to(kind)
        found = there_and_back(tensor)
        assert found.dtype == kind and torch.equal(found, tensor)
    for array in (np.zeros((0, 3)), np.array(2.5), np.array([True, False]), np.arange(3, dtype=np.uint8)):
        found = there_and_back(array, trusted=False)
        assert found.dtype == array.dtype and found.shape == array.shape and np.array_equal(found, array)
    assert type(there_and_back(np.float32(2.5))) is np.float32


def test_a_function_of_the_library_crosses_by_its_name_only_from_the_grader():
    assert there_and_back(u03._running_sum) is u03._running_sum
    with pytest.raises(wire.BadReply):
        there_and_back(u03._running_sum, trusted=False)
    with pytest.raises(TypeError, match="cannot be sent"):
        there_and_back(lambda x: x)


@pytest.mark.parametrize("unit", UNITS)
def test_every_case_of_the_course_crosses_and_is_observed_alike(unit):
    for exercise in of_unit(unit):
        answer = exercise.load_answer()
        for case in exercise.draw_cases(5)[:4]:
            if case.longest:
                continue
            head, body = wire.case_to_wire(case)
            crossed = wire.case_from_wire(json.loads(json.dumps(head)), body)
            direct, through = observe(answer, case), observe(answer, crossed)
            head, body = wire.observation_to_wire(through)
            arrived = wire.observation_from_wire(json.loads(json.dumps(head)), body)
            assert_equal(arrived.output, direct.output)
            assert_equal(arrived.gradients, direct.gradients)
            assert (arrived.changed, arrived.parameters) == (direct.changed, direct.parameters)
            assert (arrived.fault and arrived.fault.kind) == (direct.fault and direct.fault.kind)


def assert_equal(a, b):
    assert type(a) is type(b)
    if isinstance(a, tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    else:
        assert a == b


GOOD = wire.observation_to_wire(Observation(np.arange(3.0), Fault("E", "m", ("l",)), (0,), None, (("w", (2, 3)),)))


def test_a_good_observation_is_read():
    seen = wire.observation_from_wire(json.loads(json.dumps(GOOD[0])), GOOD[1])
    assert seen.parameters == (("w", (2, 3)),) and seen.fault == Fault("E", "m", ("l",))
    assert wire.observation_from_wire({**GOOD[0], "values": [{"opaque": "Evil"}, None]}, b"").output == Opaque("Evil")


@pytest.mark.parametrize(
    "bad",
    [
        {"values": [{"array": ["float32", [10**9, 10**9], False]}, None]},
        {"values": [{"array": ["float64", [-1, -3], False]}, None]},
        {"values": [{"array": ["float64", [True, 3], False]}, None]},
        {"values": [{"array": ["float64", [4], False]}, None]},
        {"values": [{"array": ["object", [1], False]}, None]},
        {"values": [{"array": ["__class__", [1], False]}, None]},
        {"values": [{"array": "float64"}, None]},
        {"values": [{"name": ["os", "system"]}, None]},
        {"values": [{"object": [{"name": ["os", "system"]}, {"dict": []}]}, None]},
        {"values": [{"tensor": ["load", [1]]}, None]},
        {"values": [{"dict": []}, None]},
        {"values": [[1], None]},
        {"values": [None, 3]},
        {"values": [None]},
        {"values": 7},
        {"values": [{"tuple": [None] * 30_000}, None]},
        {"values": [{"tuple": 5}, None]},
        {"changed": None},
        {"changed": ["x"]},
        {"parameters": [["w"]]},
        {"parameters": 3},
        {"fault": 3},
        {"fault": ["a", "b"]},
    ],
    ids=str,
)
def test_a_bad_observation_is_refused(bad):
    with pytest.raises(wire.BadReply):
        wire.observation_from_wire({**json.loads(json.dumps(GOOD[0])), **bad}, GOOD[1])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["array", "tuple", "opaque"]), inner),
    max_leaves=30,
)


@given(JSON, st.binary(max_size=64))
def test_whatever_is_sent_it_is_an_observation_or_a_bad_reply(head, body):
    for raw in (head, {"values": [head, head], "changed": head, "parameters": head, "fault": head}):
        with contextlib.suppress(wire.BadReply):
            assert isinstance(wire.observation_from_wire(raw, body), Observation)


def test_messages_have_one_deadline_however_they_drip(pair):
    def drip():
        pair[1].sendall(struct.pack("<II", 1000, 0))
        for _ in range(40):
            try:
                pair[1].sendall(b"\x01")
            except OSError:
                return
            time.sleep(0.05)

    thread = threading.Thread(target=drip)
    thread.start()
    start, ticks = time.monotonic(), []
    with pytest.raises(TimeoutError):
        wire.receive(pair[0], 0.4, lambda: ticks.append(1))
    assert time.monotonic() - start < 1.5
    pair[0].close()
    thread.join()


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (struct.pack("<II", 10, 2**32 - 1), wire.BadReply),
        (struct.pack("<II", 2**30, 0), wire.BadReply),
        (struct.pack("<II", 4, 0) + b"\xff\xfe\x00\x01", wire.BadReply),
        (struct.pack("<II", 400_000, 0) + b"[" * 200_000 + b"]" * 200_000, wire.BadReply),
        (b"abc", EOFError),
    ],
)
def test_what_is_no_message_is_refused(pair, raw, error):
    sender = threading.Thread(target=lambda: (pair[1].sendall(raw), pair[1].close()))
    sender.start()
    with pytest.raises(error):
        wire.receive(pair[0], 5)
    sender.join()


def test_a_message_that_is_too_large_is_not_sent(pair):
    with pytest.raises(wire.BadReply):
        wire.send(pair[0], "x" * (wire.HEAD + 1))


def test_a_case_tells_neither_its_check_nor_its_note():
    head, _ = wire.case_to_wire(Case("the secret check", (np.zeros(2),), "a secret note"))
    assert "secret" not in json.dumps(head)
