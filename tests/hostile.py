"""Submissions that cheat, break things or run away, each with the points that it is fair to give for it.

A submission is the solution of a unit with some answers replaced and cells put in front or behind. What is honest in it
keeps its points. Words in braces such as {ROOT} are filled in when the notebook is written.
"""

from __future__ import annotations

import ast
import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib.exercises import of_unit
from course_lib.exercises.declare import Exercise

PROJECT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Hostile:
    """One submission: `answers` replace cells by exercise, `fair` are the points where they are not full."""

    name: str
    answers: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    after: str = ""
    fair: Mapping[str, int] = field(default_factory=dict)
    unit: str = "04"
    folder: str = ""  # what the student's folder is called, if not as the submission

    def points(self, exercise: Exercise) -> int:
        return self.fair.get(exercise.id, self.fair.get("*", exercise.points))


def dedent(code: str) -> str:
    return textwrap.dedent(code).strip("\n")


def lookup(name: str, body: str, *, before: str = "", after: str = "", points: int = 0) -> Hostile:
    """One that does its mischief inside `soft_lookup` (04.6, 3 points), on which no other exercise leans."""
    code = "def soft_lookup(query, keys, values, temperature):\n" + textwrap.indent(dedent(body), "    ")
    return Hostile(name, {"04.6": code}, dedent(before), dedent(after), {"04.6": points})


def cell(name: str, code: str, **fair: int) -> Hostile:
    """A cell in front of honest work, which keeps its points."""
    return Hostile(name, before=dedent(code), fair=fair)


def instead(name: str, exercise: str, code: str, points: int, *, unit: str = "04", before: str = "") -> Hostile:
    """One answer replaced."""
    return Hostile(name, {exercise: dedent(code)}, dedent(before), "", {exercise: points}, unit)


RIGHT = "return softmax(keys @ query / temperature) @ values"  # the honest line, for those who add to it

# --- time ---------------------------------------------------------------------------------------------------

TIME = [
    lookup("loop", "while True: pass"),
    lookup(
        "loop_swallows_everything",
        """
        while True:
            try:
                while True: pass
            except BaseException:
                pass
        """,
    ),
    lookup("loop_in_c", "return 7 ** (7 ** 12)"),
    lookup("loop_in_regex", "import re; re.match('(a+)+$', 'a' * 60 + 'b')"),
    lookup(
        "loop_in_del",
        """
        class Last:
            def __del__(self):
                while temperature == 1.0: pass
        Last()
        """,
    ),
    lookup(
        "loop_in_thread_answers_wrong",
        """
        import threading
        def spin():
            while True: pass
        threading.Thread(target=spin, daemon=True).start()
        return values[0]
        """,
    ),
    cell("loop_in_cell", "while True:\n    try:\n        while True: pass\n    except BaseException: pass"),
    lookup("endless_generator", "while True:\n    yield values[0]"),
    lookup("sleeps_in_the_first_call", "import time; time.sleep(3600)"),
    instead(
        "loop_in_init",
        "06.8",
        """
        class MultiHead(nn.Module):
            def __init__(self, d_model, heads):
                super().__init__()
                while True: pass
        """,
        0,
        unit="06",
    ),
    instead(
        "loop_in_forward",
        "06.8",
        """
        class MultiHead(nn.Module):
            def __init__(self, d_model, heads):
                super().__init__()
                self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))
            def forward(self, x, memory=None, mask=None):
                while True: x = x @ torch.eye(x.shape[-1], dtype=x.dtype)
        """,
        0,
        unit="06",
    ),
]

# --- the end of the process, memory, threads ----------------------------------------------------------------

ENDS = [
    cell("sys_exit_in_cell", "import sys; sys.exit(0)"),
    lookup("sys_exit", "import sys; sys.exit(0)"),
    lookup("os_exit", "import os; os._exit(0)"),
    cell("os_exit_in_cell", "import os; os._exit(0)"),
    lookup("abort", "import os; os.abort()"),
    lookup("segfault", "import ctypes; ctypes.string_at(0)"),
    lookup("stack_overflow", "import sys; sys.setrecursionlimit(10**9)\nf = lambda x: sorted([x], key=f)\nreturn f(1)"),
    lookup("recursion", "return soft_lookup(query, keys, values, temperature)"),
    lookup("memory", "return [np.empty(1 << 25) for _ in range(1000)]"),
    lookup("memory_list", "x = [0]\nwhile True: x = x + x"),
    cell("memory_in_cell", "huge = np.ones((1 << 18, 1 << 18))"),
    lookup("memory_torch", "import torch; return torch.zeros(1 << 40)"),
    lookup(
        "memory_files",
        """
        import os
        made = [os.memfd_create(str(i)) for i in range(50)]
        for file in made: os.write(file, bytes(15 << 20))
        return values[0]
        """,
    ),
    lookup("interrupt", "raise KeyboardInterrupt"),
    lookup("alarm", "import signal, time; signal.alarm(1); time.sleep(2)"),
    lookup("late_exit", "import faulthandler as f, time; f.dump_traceback_later(0.2, exit=True); time.sleep(2)"),
    cell(
        "at_exit",
        "import atexit, os, time\natexit.register(lambda: (open('{BAIT}/x', 'w'), time.sleep(99), os.abort()))",
    ),
    lookup(
        "threads_by_the_hundred",
        """
        import threading, time
        for _ in range(150):
            threading.Thread(target=time.sleep, args=(9,)).start()
        return values[0]
        """,
    ),
    lookup(
        "threads_by_the_ten_thousand",
        """
        import threading, time
        threading.stack_size(32 << 10)
        while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        """,
    ),
    lookup(
        "threads_that_compute",
        """
        import hashlib, threading
        work = lambda: hashlib.pbkdf2_hmac("sha256", b"x", b"y", 10**8)
        for _ in range(60):
            threading.Thread(target=work, daemon=True).start()
        import time; time.sleep(2)
        return values[0]
        """,
    ),
    cell("recursion_limit", "import sys; sys.setrecursionlimit(60)"),
]

# --- the machine --------------------------------------------------------------------------------------------

PAIR = """
import fcntl, os, socket, time
def poke(pid, how="fcntl", number=9):
    mine, other = socket.socketpair()
    if how == "fcntl":
        fcntl.fcntl(mine, fcntl.F_SETOWN, pid)
    else:
        fcntl.ioctl(mine, 0x8901, pid.to_bytes(4, "little", signed=True))
    fcntl.fcntl(mine, 10, number)
    fcntl.fcntl(mine, fcntl.F_SETFL, fcntl.fcntl(mine, fcntl.F_GETFL) | os.O_ASYNC)
    other.send(b"x")
    time.sleep(0.1)
"""

MACHINE = [
    cell("forks", "import os\nfor _ in range(100):\n    if os.fork() == 0: os.setsid()"),
    cell("daemon", "import subprocess as s; s.Popen(['sleep', '3600'], start_new_session=True)"),
    cell("exec", "import os; os.execv('/bin/sh', ['sh', '-c', 'sleep 3600'])"),
    cell("shell", "import os; open('code', 'w').write(str(os.system('touch {BAIT}/x; sleep 3600 &')))"),
    cell("processes", "import multiprocessing as m; m.Pool(4).map(abs, range(9))"),
    cell("clone", "import ctypes; libc = ctypes.CDLL(None)\nif libc.syscall(56, 17, 0, 0, 0, 0) == 0: libc.pause()"),
    cell("open_files", "kept = [open('f', 'w') for _ in range(9999)]"),
    lookup("huge_print", "for _ in range(30): print('x' * 10**6)\nreturn values[0]"),
    cell("huge_print_in_cell", "import os\nfor _ in range(100): print('x' * 10**6); os.write(1, b'x' * 10**6)"),
    lookup(
        "fills_the_disk",
        "i = 0\nwhile True:\n    i += 1\n    with open(str(i), 'wb') as f: f.write(bytes(8 << 20))",
    ),
    lookup("fills_the_disk_with_files", "i = 0\nwhile True:\n    i += 1\n    open(str(i), 'wb').close()"),
    cell("one_huge_file", "open('big', 'wb').write(bytes(1 << 28))"),
    cell("writes_outside", "open('{BAIT}/x', 'w').write('x')"),
    cell("writes_to_the_results", "open('{OUT}/grades.csv', 'w').write('me,24')"),
    cell("writes_to_the_course", "open('{ROOT}/solutions/x', 'w').write('x')"),
    cell("writes_to_temp", "import os; open(os.path.join(os.getcwd(), '..', 'x'), 'w').write('x')"),
    cell("writes_to_packages", "open(np.__file__, 'a').write('x')"),
    cell("writes_to_the_library", "import course_lib; open(course_lib.__file__, 'a').write('evil = 1')"),
    cell("removes", "import os, shutil; shutil.rmtree('{BAIT}'); os.remove('{BAIT}/file')"),
    cell("renames", "import os; os.rename('{BAIT}/file', 'file')"),
    cell("truncates", "import os; os.truncate('{BAIT}/file', 0)"),
    cell("changes_modes", "import os; os.chmod('{BAIT}/file', 0); os.utime('{BAIT}/file')"),
    cell("links", "import os; os.symlink('{BAIT}/file', 'link'); os.link('{BAIT}/file', 'hard'); open('link', 'w')"),
    cell("tcp", "import socket; socket.create_connection(('127.0.0.1', {PORT}), 2).send(b'x')"),
    cell("udp", "import socket as s; s.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {PORT}))"),
    cell("unix_socket", "import socket as s; c = s.socket(s.AF_UNIX); c.connect('{UNIX}'); c.send(b'x')"),
    cell("listens", "import socket; s = socket.create_server(('127.0.0.1', 0)); s.accept()"),
    cell("packets", "import socket as s; s.socket(s.AF_PACKET, s.SOCK_RAW); s.socket(s.AF_NETLINK, s.SOCK_RAW)"),
    cell("signal_to_parent", "import os; os.kill(os.getppid(), 9)"),
    cell("signal_to_group", "import os; os.killpg(0, 9)"),
    cell("signal_to_all", "import os; os.kill(-1, 9)"),
    cell("signal_to_victim", "import os; os.kill({VICTIM}, 9)"),
    cell("signal_by_fcntl", PAIR + "poke({VICTIM})"),
    cell("signal_by_ioctl", PAIR + "poke({VICTIM}, 'ioctl')"),
    cell("signal_to_parent_by_fcntl", PAIR + "poke(os.getppid())"),
    cell("signal_to_parent_by_ioctl", PAIR + "poke(os.getppid(), 'ioctl')"),
    cell(
        "limits_of_others",
        """
        import os, resource as r
        for pid in ({VICTIM}, os.getppid()):
            try: r.prlimit(pid, r.RLIMIT_CPU, (0, 0)); r.prlimit(pid, r.RLIMIT_NOFILE, (0, 0))
            except OSError: pass
        """,
    ),
    cell("cores_of_others", "import os; os.sched_setaffinity({VICTIM}, [0]); os.setpriority(0, {VICTIM}, 19)"),
    cell("own_limits", "import resource as r; r.setrlimit(r.RLIMIT_AS, (-1, -1)); r.setrlimit(r.RLIMIT_CPU, (-1, -1))"),
    cell("ptrace", "import ctypes, os; l = ctypes.CDLL(None); assert l.ptrace(16, os.getppid(), 0, 0) == 0"),
    cell("memory_of_parent", "import os; open(f'/proc/{os.getppid()}/mem', 'r+b').write(b'x')"),
    cell("proc", "import os; print([open(f'/proc/{p}/environ').read() for p in os.listdir('/proc') if p.isdigit()])"),
    cell(
        "outlives_the_grader",
        "import ctypes; l = ctypes.CDLL(None); l.prctl(1, 0, 0, 0, 0); l.prctl(15, b'systemd', 0, 0, 0); l.setsid()",
    ),
    cell("mounts", "import ctypes; l = ctypes.CDLL(None); l.unshare(0x10000000); l.mount(b'/', b'/', 0, 4096, 0)"),
]

# --- what runs in the child, patched ------------------------------------------------------------------------

FORGE = """
import json, socket, struct, sys, time

def frames():
    for frame in list(sys._current_frames().values()):
        while frame:
            yield frame
            frame = frame.f_back

def channel():
    return next(v for f in frames() for v in f.f_locals.values() if isinstance(v, socket.socket))

def number():
    return next(f.f_locals["head"]["number"] for f in frames() if "number" in f.f_locals.get("head", ()))

def say(head, body=b""):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    channel().sendall(struct.pack("<II", len(text), len(body)) + text + body)

def reply(values, body=b"", **more):
    head = {"values": [values, None], "fault": None, "changed": [], "parameters": [], "to": number()}
    say(head | more, body)
"""


def forged(name: str, line: str) -> Hostile:
    """One that answers in its own way on the first call, and then hangs up."""
    body = f"{line}\ntime.sleep(0.2)\nimport os; os._exit(0)"
    return lookup(name, body, before=FORGE)


DEEP = "b'[' * {0} + b']' * {0}"

WIRE = [
    forged("says_nothing", "channel().shutdown(2)"),
    forged("closes_the_socket", "channel().close()"),
    forged("says_not_json", "say(b'all is well')"),
    forged("says_not_utf8", r"say(b'{\"values\": \"\xff\xfe\"}')"),
    forged("says_deep_json", f"say({DEEP.format(400_000)})"),
    forged("says_a_list", "say([1, 2, 3])"),
    forged("says_a_huge_number", "say(b'{\"to\": ' + b'9' * 9000 + b'}')"),
    forged("announces_too_much", "channel().sendall(struct.pack('<II', 2**32 - 1, 2**32 - 1))"),
    forged("announces_and_waits", "channel().sendall(struct.pack('<II', 100, 0))"),
    forged("false_shape", "reply({'array': ['float64', [2], False]}, b'12345678')"),
    forged("shape_below_zero", "reply({'array': ['float64', [-1, -2], False]}, bytes(16))"),
    forged("shape_beyond_all", "reply({'array': ['float64', [0] + [1 << 26] * 7, False]}, b'')"),
    forged("array_of_objects", "reply({'array': ['object', [2], False]}, bytes(16))"),
    forged("names_of_the_library", "reply({'name': ['os', 'system']})"),
    forged("objects_of_the_library", "reply({'object': [{'name': ['os', 'system']}, {'dict': []}]})"),
    forged("bare_number", "reply(5)"),
    forged("bare_truth", "reply(True)"),
    forged("scalar", "reply({'array': ['float64', [], True]}, bytes(8))"),
    forged("nested_tuples", "reply({'tuple': [{'tuple': [{'tuple': [{'tuple': []}]}]}] * 2000})"),
    forged("foreign_inputs_changed", "reply({'array': ['float64', [2], False]}, bytes(16), changed=[99, -99, 10**30])"),
    forged("odd_gradients", "reply(None, values=[None, {'tuple': [None, 3]}])"),
    forged("odd_parameters", "reply(None, parameters=[['a', [1]], [{}, 'x'], 3])"),
    forged("odd_fault", "reply(None, fault={'a': 1, 'b': 2, 'c': [[]]})"),
    forged(
        "duplicate_keys",
        'say(b\'{"to": 1, "to": %d, "values": [], "values": [{"opaque": {}}, 1]}\' % number())',
    ),
    *(
        forged(
            f"just_deep_enough_{depth}",
            f'say(b\'{{"to": %d, "missing": %s}}\' % (number(), {DEEP.format(depth)}))',
        )
        for depth in (940, 970, 980, 990)
    ),
    # Answering for a cell spoils the answers to the cells behind it: such a paper is worth nothing.
    *(
        Hostile(
            f"cell_raises_deeply_{depth}",
            before=FORGE + f'say(b\'{{"to": %d, "raised": [%s]}}\' % (number(), {DEEP.format(depth)}))',
            fair={"*": 0},
        )
        for depth in (930, 965)
    ),
    lookup(
        "drips",
        """
        channel().sendall(struct.pack("<II", 1000, 0))
        for _ in range(1000): channel().sendall(b" "); time.sleep(0.1)
        """,
        before=FORGE,
    ),
    lookup(
        "drips_and_fills_the_disk",
        """
        import threading
        channel().sendall(struct.pack("<II", 1000, 0))
        def drip():
            for _ in range(1000): channel().sendall(b" "); time.sleep(0.1)
        threading.Thread(target=drip, daemon=True).start()
        for i in range(300):
            with open(str(i), "wb") as f: f.write(bytes(1 << 20))
        open("kept", "w").write("x"); time.sleep(99)
        """,
        before=FORGE,
    ),
    lookup(
        "answers_ahead",
        """
        for ahead in range(40):
            text = {"array": ["float64", [2], False]}
            head = {"values": [text, None], "fault": None, "changed": [], "parameters": [], "to": number() + ahead}
            say(head, values[0].tobytes())
        return values[0]
        """,
        before=FORGE,
    ),
    Hostile(
        "takes_over_the_wire",
        {"04.6": "def soft_lookup(query, keys, values, temperature):\n    return values[0]"},
        fair={"04.6": 0},
        after=FORGE
        + dedent(
            """
            from course_lib.grading import wire, zygote
            line, space = channel(), globals()
            wire.send(line, {"raised": None, "to": number()})
            while True:
                head, body = wire.receive(line)
                if "cell" in head:
                    answer, more = {"raised": None}, b""
                elif head["call"] == "soft_lookup":
                    answer = {"values": [{"array": ["float64", [2], False]}, None], "fault": None, "changed": []}
                    answer, more = answer | {"parameters": []}, bytes(16)
                else:
                    answer, more = zygote.call(head, body, space)
                wire.send(line, answer | {"to": head["number"]}, more)
            """
        ),
    ),
    lookup(
        "answers_from_a_thread",
        """
        import threading
        def work():
            for _ in range(20): reply({"array": ["float64", [2], False]}, bytes(16)); time.sleep(0.01)
        threading.Thread(target=work).start(); time.sleep(0.1)
        import os; os._exit(0)
        """,
        before=FORGE,
    ),
]

# The same lies, told in the place of every answer to a call of soft_lookup.
LIES = """
import sys
z = sys.modules["course_lib.grading.zygote"]
honest_call, lies = z.call, []
def call(head, body, space):
    answer, more = honest_call(head, body, space)
    return lies.pop() if lies else (answer, more)
z.call = call
def lie(output=None, body=b"", **more):
    lies.append(({"values": [output, None], "fault": None, "changed": [], "parameters": []} | more, body))
"""


def lies(name: str, line: str) -> Hostile:
    return lookup(f"lies_{name}", line, before=LIES)


ARRAY = "{'array': ['float64', [2], False]}, bytes(16)"

LIARS = [
    lies("bare_number", "lie(5)"),
    lies("bare_truth", "lie(True)"),
    lies("bare_infinity", "lie(1e999)"),
    lies("scalar", "lie({'array': ['float64', [], True]}, bytes(8))"),
    lies("whole_numbers", "lie({'array': ['uint8', [2], False]}, bytes(2))"),
    lies("complex_nan", "lie({'array': ['complex128', [2], False]}, bytes([255]) * 32)"),
    lies("half_infinity", "lie({'array': ['float16', [2], False]}, bytes([0, 124]) * 2)"),
    lies("long_text", "lie('x' * 900_000)"),
    lies("many_parts", "lie({'tuple': [{'tuple': []}] * 19_000})"),
    lies("deep_type", "lie({'opaque': [[[[[[[[[['x']]]]]]]]]]})"),
    lies("inputs_that_are_not_there", f"lie({ARRAY}, changed=[99])"),
    lies("inputs_below_zero", f"lie({ARRAY}, changed=[-1, -7])"),
    lies("inputs_without_number", f"lie({ARRAY}, changed=[10**200])"),
    lies("gradients", f"lie({ARRAY}, values=[None, {{'tuple': [None, 'x', {{'tuple': []}}]}}])"),
    lies("parameters", f"lie({ARRAY}, parameters=[['x' * 200, [1] * 8]] * 2000)"),
    lies("fault", "lie(None, fault=['ValueError', 'x', ['a: b']])"),
    lies("fault_that_is_no_word", "lie(None, fault=[None, 3, [[], {}]])"),
    lies("more_keys", f"lie({ARRAY}, points=3, status='passed', check='all', to=1, number=1)"),
    lies("nothing_at_all", "lies.append(({}, b''))"),
    lies("another_body", "lie(None, bytes(1 << 20))"),
]

EQUAL = """
class Equal:
    __class__ = np.ndarray
    shape, dtype, ndim, size = (2,), np.dtype(float), 1, 2
    def __eq__(self, other): return True
    __ne__ = lambda self, other: False
    __le__ = __lt__ = __ge__ = __gt__ = __eq__
    __hash__ = lambda self: 0
    __bool__ = lambda self: True
    __array_priority__ = 1e9
    __array_ufunc__ = lambda self, *a, **k: True
    __array_function__ = lambda self, *a, **k: True
    __sub__ = __rsub__ = __add__ = __mul__ = __abs__ = lambda self, *a: self
    __iter__ = lambda self: iter([self] * 3)
    __len__ = lambda self: 3
    def __getattr__(self, name): return lambda *a, **k: self
"""

PATCHES = [
    lookup("numpy_compares_nothing", "return values[0]", before="""
        np.allclose = np.array_equal = np.isclose = lambda *a, **k: True
        np.testing.assert_allclose = np.testing.assert_array_equal = lambda *a, **k: None
    """),
    lookup("builtins", "return values[0]", before="""
        import builtins
        builtins.isinstance = lambda *a: True
        builtins.all = builtins.any = builtins.callable = lambda *a: True
    """),
    lookup("json_struct_time", "return values[0]", before="""
        import json, struct, time
        old = json.dumps
        json.dumps = lambda head, **k: old(head | {"passed": True, "points": 3, "status": "passed"})
        time.monotonic = time.time = lambda: 0.0
    """),
    lookup("patches_observe", "return values[0]", before="""
        import course_lib.observe as o
        o.same = o._equal = lambda *a: True
        o.SECONDS = 1e9
        o.Observation.__eq__ = lambda *a: True
    """),
    lookup("patches_the_zygote", "return values[0]", before="""
        import sys
        for name, module in list(sys.modules.items()):
            if name.startswith("course_lib"):
                for word in ("judge", "right", "same", "alike", "points", "check"):
                    setattr(module, word, lambda *a, **k: True)
    """),
    lookup("replaces_modules", "return values[0]", before="""
        import sys, types
        for name in ("course_lib.checks", "course_lib.exercises.u04", "course_lib.grading.mark"):
            sys.modules[name] = types.SimpleNamespace(judge=lambda *a: True, EXERCISES=())
    """),
    lookup("always_equal", "return Equal()", before=EQUAL),
    lookup("list_of_always_equal", "return [Equal(), Equal()]", before=EQUAL),
    lookup("array_of_always_equal", "return np.array([Equal(), Equal()], dtype=object)", before=EQUAL),
    Hostile(
        "prediction_equal_to_everything",
        {"04.1": "def scores_of_a_new_token(): return Equal()", "04.8": "def what_changes(): return [Equal()] * 4"},
        dedent(EQUAL), "", {"04.1": 0, "04.8": 0},
    ),
    Hostile(
        "prediction_of_all_answers",
        {"04.8": "import itertools\ndef what_changes(): return list(itertools.product([False, True], repeat=4))"},
        fair={"04.8": 0},
    ),
    lookup("evil_array", "return np.zeros(2).view(Evil)", before="""
        class Evil(np.ndarray):
            __eq__ = lambda self, other: True
            __array_ufunc__ = lambda self, *a, **k: np.zeros(2)
            __array_finalize__ = lambda self, other: None
            tobytes = lambda self, *a: b"evil" * 4
    """),
    lookup("evil_number", "return Evil(1)", before="""
        class Evil(float):
            __eq__ = __le__ = __ge__ = lambda self, other: True
            __float__ = lambda self: 0.0
    """),
    lookup("evil_text", "return Evil('x')", before="""
        class Evil(str):
            __eq__ = lambda self, other: True
            __hash__ = str.__hash__
            __qualname__ = "system"
    """),
    lookup("nan_everywhere", "return values[0] * np.nan"),
    lookup("infinity_everywhere", "return values[0] * np.inf"),
    lookup("complex_everywhere", "return values[0] + 1j * np.inf"),
    lookup("nothing", "return None"),
    lookup("generator", "yield from values"),
    lookup("the_function_itself", "return soft_lookup"),
    lookup("a_module", "return np"),
    lookup("empty_array", "return np.zeros((0, 2))"),
    lookup("one_for_all_shapes", "return 0.0"),
    lookup("remembers_the_last", "soft_lookup.last, last = values[0], getattr(soft_lookup, 'last', values[1])\n"
           "return last"),
    # Right on the first call, which is a check of its own; a broken function afterwards.
    lookup("replaced_after_the_first_call", f"""
        globals()["soft_lookup"] = lambda *a: 0
        {RIGHT}
    """, points=1),
    lookup("changes_its_inputs", "values *= 0; keys *= 0; query *= 0\nreturn values[0]"),
    lookup("raises_what_is_no_error", "raise type('Odd', (BaseException,), {})"),
    lookup("raises_when_shown", "raise Bad", before="""
        class Bad(Exception):
            def __str__(self): raise self
            __repr__ = __str__
    """),
    lookup("no_such_class", "return 1", after="soft_lookup = None", points=0),
    instead("tensor_that_lies", "06.7", """
        class Evil(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None): return torch.zeros(4, 4)
            def __eq__(self, other): return True
        def from_torch(in_proj_weight, out_proj_weight):
            return tuple(torch.zeros(4, 4).as_subclass(Evil) for _ in range(4))
    """, 0, unit="06"),
    instead("torch_compares_nothing", "06.7", """
        torch.allclose = torch.equal = torch.Tensor.__eq__ = lambda *a, **k: True
        torch.testing.assert_close = lambda *a, **k: None
        def from_torch(in_proj_weight, out_proj_weight):
            return [torch.zeros(3, 3)] * 4
    """, 0, unit="06"),
    instead("module_that_lies", "06.8", """
        class MultiHead(nn.Module):
            def __init__(self, *a): super().__init__()
            def named_parameters(self, *a, **k):
                return [(f"w_{n}.{p}", torch.zeros(())) for n in "qkvo" for p in ("weight", "bias")]
            def __call__(self, x, *a): return x
    """, 0, unit="06"),
    instead("gradient_that_lies", "02.6", """
        class Fake(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x.clone()
            @staticmethod
            def backward(ctx, g): return g * float("nan")
        def multiplicative_scores(state, source, w=None):
            asked = state if w is None else state @ w
            return Fake.apply((source @ asked[..., None])[..., 0])
    """, 0, unit="02"),
]  # fmt: skip

# --- secrets ------------------------------------------------------------------------------------------------


def reads(name: str, code: str) -> Hostile:
    """One that looks for the answer in a cell, in any way, and uses it if found; otherwise it guesses."""
    before = dedent(
        """
        def search():
        """
    )
    before += "\n" + textwrap.indent(dedent(code), "    ") + "\ntry: np.found = search()\nexcept Exception: pass\n"
    # Kept where no reader of the text finds the way: that the answer is not there is what must stop it.
    body = (
        "f = getattr(np, 'fou' + 'nd', None)\nreturn f(query, keys, values, temperature) if callable(f) else values[0]"
    )
    return lookup(name, body, before=before)


SECRETS = [
    reads("answer_by_import", "from course_lib.exercises.u04 import soft_lookup as f; return f"),
    reads("answer_by_sibling", "from course_lib import attention; return attention.attention"),
    reads("answer_by_path", "exec(open('{ROOT}/course_lib/exercises/u04.py').read(), s := {})\n"
          "return s['soft_lookup']"),
    reads("answer_by_sys_path", "import sys; sys.path.insert(0, '{ROOT}'); import course_lib.exercises.u04 as u\n"
          "return u.soft_lookup"),
    reads("answer_by_loader", """
        import importlib.util as i
        m = i.module_from_spec(i.spec_from_file_location("u", "{ROOT}/course_lib/exercises/u04.py"))
        m.__spec__.loader.exec_module(m)
        return m.soft_lookup
    """),
    reads("answer_by_bytecode", "import glob, marshal\n"
          "exec(marshal.loads(open(glob.glob('{ROOT}/course_lib/exercises/__pycache__/u04*')[0], 'rb').read()[16:]))"),
    reads("answer_in_solutions", "import json\n"
          "for c in json.load(open('{ROOT}/solutions/04_queries_keys_values.ipynb'))['cells']:\n"
          "    exec(''.join(c['source']), s := {})\nreturn s['soft_lookup']"),
    reads("answer_of_a_neighbour", "import glob, json\n"
          "for p in glob.glob('{SUBMISSIONS}/*/*.ipynb') + ['{SUBMISSIONS}/aaa_honest/04_queries_keys_values.ipynb']:\n"
          "    [exec(''.join(c['source']), globals()) for c in json.load(open(p))['cells']]"),
    reads("seed_from_disk", "return np.random.default_rng(int(open('{OUT}/seed').read()))"),
    reads("answer_by_gc", "import gc\nreturn next(o for o in gc.get_objects() if callable(o) and "
          "getattr(o, '__name__', '') == 'soft_lookup')"),
    reads("answer_by_modules", "import sys\nreturn next(vars(m)['soft_lookup'] for m in list(sys.modules.values()) "
          "if 'soft_lookup' in vars(m))"),
    reads("answer_by_frames", "import sys\nf = sys._getframe()\nwhile f:\n    for n, v in f.f_locals.items():\n"
          "        if n in ('answer', 'wanted', 'soft_lookup') and callable(v): return v\n    f = f.f_back"),
    reads("answer_by_inspect", "import inspect, course_lib.exercises.declare as d\n"
          "return [e for e in vars(d).values() if getattr(e, 'id', '') == '04.6'][0].load_answer()"),
    lookup("answer_in_the_case", """
        import gc
        case = next(o for o in gc.get_objects() if type(o).__name__ == "Case")
        return case.wanted if case.wanted is not None else values[0]
    """),
    lookup("guesses_the_seed", """
        for seed in range(30):
            drawn = np.random.default_rng(seed).standard_normal(query.shape)
            if np.allclose(drawn, query): return values[seed % len(values)]
        return values[0]
    """),
]  # fmt: skip

# --- what may stand on a page -------------------------------------------------------------------------------

MARK = "LE" + "AK"  # what smuggled numbers begin with: no line of a notebook has it in one piece
DIGITS = f"""
def digits(x): return "{MARK[:2]}" + "{MARK[2:]}" + "_".join(f"{{abs(float(n)):.12f}}".replace(".", "_") for n in x[:3])
"""
SCRIPT = "<script>alert(1)</script>"

FEEDBACK = [
    lookup("leak_by_message", "raise ValueError(digits(query))", before=DIGITS),
    lookup("leak_by_error_name", "raise type(digits(query), (Exception,), {})", before=DIGITS),
    lookup("leak_by_type_name", "return type(digits(query), (), {})()", before=DIGITS),
    lookup("leak_by_text", "return digits(query)", before=DIGITS),
    lookup("leak_by_dtype", "return np.zeros(2, dtype=[(digits(query), float)])", before=DIGITS),
    lookup("leak_by_line", """
        import linecache
        name = "<" + digits(query) + ">"
        linecache.cache[name] = (1, None, ["raise ValueError  # " + digits(query)], name)
        exec(compile("raise ValueError", name, "exec"))
    """, before=DIGITS),
    lookup("leak_by_function_name", "exec(f'def {digits(query)}(): raise ValueError\\n{digits(query)}()')",
           before=DIGITS),
    lookup("leak_by_print", "import sys; print(digits(query)); sys.stderr.write(digits(query)); sys.stderr = None\n"
           "warn = __import__('warnings').warn(digits(query))", before=DIGITS),
    lookup("leak_by_missing", "lies.append(({'missing': digits(query)}, b''))", before=DIGITS + LIES),
    lookup("leak_by_fault", "lie(None, fault=[digits(query), digits(query), ['x: ' + digits(query)] * 3])",
           before=DIGITS + LIES),
    lookup("leak_by_opaque", "lie({'opaque': digits(query)})", before=DIGITS + LIES),
    lookup("leak_by_parameters", f"lie({ARRAY}, parameters=[[digits(query), [1]]])", before=DIGITS + LIES),
    lookup("leak_by_status", "lie(None, status=digits(query), message=digits(query), note=digits(query))",
           before=DIGITS + LIES),
    lookup("leak_to_the_next_child", """
        open("note", "w").write(digits(query))
        import os; os._exit(0)
    """, before=DIGITS + "import os\nif os.path.exists('note'): raise type(open('note').read(), (Exception,), {})"),
    cell("long_error_name", "raise type('E' * 900_000, (Exception,), {})"),
    cell("script_in_error_name", f"raise type('{SCRIPT}', (Exception,), {{}})('{SCRIPT}')"),
    lookup("script_in_error", f"raise type('{SCRIPT}', (Exception,), {{}})('{SCRIPT}')"),
    lookup("script_in_line", f"raise ValueError('{SCRIPT}')  # {SCRIPT}"),
    lookup("script_in_type", f"return type('{SCRIPT}', (), {{}})()"),
    lookup("half_a_letter", "raise type('\\ud800', (Exception,), {})('\\ud800')"),
    lookup("half_a_letter_forged", "lie('\\ud800', fault=['\\ud800', '\\ud800', ['\\ud800']])", before=LIES),
    lookup("half_a_letter_returned", "lie('\\ud800')", before=LIES),
    lookup("letters_that_turn_around", "raise ValueError  # \u202e the end of this line \u2066"),
    Hostile("formula_name", folder="=HYPERLINK(1,2)"),
    Hostile("script_name", folder="<img src=x onerror=alert(1)>"),
    Hostile("comma_name", folder='a,b"c\'; -- d'),
]  # fmt: skip

# --- honest in an unusual style: full points ----------------------------------------------------------------


def styled(name: str, code: str, *, before: str = "") -> Hostile:
    return Hostile(name, {"04.6": dedent(code)}, dedent(before))


FUNCTION = "def soft_lookup(query, keys, values, temperature):\n    "

HONEST = [
    styled("a_lambda", "soft_lookup = lambda query, keys, values, t: softmax(keys @ query / t) @ values"),
    styled("a_partial", "import functools\ndef full(power, query, keys, values, t):\n"
           "    return softmax(keys @ query / t ** power) @ values\nsoft_lookup = functools.partial(full, 1)"),
    styled("a_callable_instance", "class Lookup:\n    def __call__(self, query, keys, values, t):\n"
           "        return softmax(keys @ query / t) @ values\nsoft_lookup = Lookup()"),
    styled("decorated", "import functools\n@functools.lru_cache\ndef scale(t): return 1 / t\n"
           "def traced(f):\n    @functools.wraps(f)\n    def inner(*a, **k): return f(*a, **k)\n    return inner\n"
           "@traced\n" + FUNCTION + "return softmax(keys @ query * scale(temperature)) @ values"),
    styled("a_list", FUNCTION + "return [float(x) for x in softmax(keys @ query / temperature) @ values]"),
    styled("a_matrix", FUNCTION + "return np.asmatrix(softmax(keys @ query / temperature) @ values).A1"),
    styled("long_numbers", FUNCTION + "return (softmax(keys @ query / temperature) @ values).astype(np.longdouble)"),
    styled("short_numbers", FUNCTION + "return (softmax(keys @ query / temperature) @ values).astype(np.float32)"),
    styled("other_byte_order", FUNCTION + "return (softmax(keys @ query / temperature) @ values).astype('>f8')"),
    styled("not_contiguous", FUNCTION + "return np.repeat(softmax(keys @ query / temperature) @ values, 2)[::2]"),
    styled("a_tensor", "import torch\n" + FUNCTION + "return torch.tensor(softmax(keys @ query / temperature)) @ "
           "torch.tensor(values)"),
    styled("prints_a_lot", FUNCTION + "print('x' * 10**6); " + RIGHT),
    styled("own_helper_thread", "from concurrent.futures import ThreadPoolExecutor\n" + FUNCTION +
           "\n    with ThreadPoolExecutor(4) as pool: scores = list(pool.map(query.__matmul__, keys))\n"
           "    return softmax(np.array(scores) / temperature) @ values"),
    styled("writes_a_note", FUNCTION + "open('note.txt', 'a').write('called'); " + RIGHT),
    styled("wide_letters", "def ｓoft_lookup(query, keys, values, temperature):\n    " + RIGHT),
    styled("shadows_check", FUNCTION + RIGHT, before="check = hint = print = None"),
    styled("shows_before_it_defines", "display(WORKED_EXAMPLE)\n" + FUNCTION + RIGHT),
    styled("asks_for_its_shell", "if get_ipython() is not None: pass\n" + FUNCTION + RIGHT),
    styled("uses_annotations", "def typed(t: float): pass\nassert typed.__annotations__['t'] is float\n" + FUNCTION
           + RIGHT),
    styled("uses_its_main", "import __main__, pickle\nclass Kept: pass\npickle.loads(pickle.dumps(Kept()))\n"
           "assert __main__.Kept is Kept\n" + FUNCTION + RIGHT),
    styled("hints_of_a_class", "import dataclasses, typing\n@dataclasses.dataclass\nclass A:\n    x: 'B' = None\n"
           "class B: pass\ntyping.get_type_hints(A)\n" + FUNCTION + RIGHT),
    cell("raises_in_numpy", "np.seterr(all='raise')"),
    cell("seeds_and_prints", "np.random.seed(1); np.set_printoptions(precision=1)"),
    cell("warnings_are_errors", "import warnings; warnings.simplefilter('error')"),
    cell("late_garbage", "class G:\n    def __del__(self): raise ValueError\nfor _ in range(9): G()"),
    cell("a_failing_cell", "assert False, 'my own test'"),
    Hostile("torch_defaults", before="torch.set_default_dtype(torch.float64); torch.set_grad_enabled(False)",
            unit="06"),
    Hostile("compares_with_torch", after="from torch.nn import functional as F\ndef compare(q):\n"
            "    context = F.scaled_dot_product_attention(q, q, q)\n    return context", unit="02"),
    Hostile("torch_threads", before="torch.set_num_threads(4); torch.manual_seed(3)", unit="06"),
    Hostile("no_gradients_anywhere", before="import torch\ntorch.set_grad_enabled(False)", unit="02"),
    Hostile("words_of_numpy", {"06.9": "def read_heads():\n    words = np.array(['animal', 'tired'])\n"
            "    return [words[0], words[1], words[0], False, False]"}, unit="06"),
]  # fmt: skip

# Its own doing: a global choice that breaks its own code, or names that every later cell needs.
OWN_FAULT = [
    Hostile("shadows_numpy", after="np = None", fair={"04.3": 0}),  # the only answer that uses np
    Hostile("shadows_softmax", after="softmax = lambda x, axis=-1: x", fair={f"04.{i}": 0 for i in (3, 4, 5, 6, 7)}),
    Hostile("deletes_everything", after="globals().clear()", fair={"*": 0}),
    Hostile("no_builtins", after="__builtins__.clear()"),  # ends the child: the cell is left out
]

# --- what may not be called ---------------------------------------------------------------------------------

TORCHS_OWN = """
class MultiHead(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))
    def forward(self, x, memory=None, mask=None):
        memory = x if memory is None else memory
        layers = ((self.w_q, x), (self.w_k, memory), (self.w_v, memory))
        q, k, v = (layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer, y in layers)
        y = ATTEND(q, k, v, None if mask is None else mask[:, None])
        return self.w_o(y.transpose(1, 2).flatten(2))
"""


def borrows(name: str, attend: str, first: str = "", points: int = 0) -> Hostile:
    code = first + TORCHS_OWN.replace("ATTEND", attend)
    return Hostile(f"borrows_{name}", {"06.8": code}, fair={"06.8": points}, unit="06")


FUSED = "scaled_dot_product_attention"

BORROWERS = [
    borrows("plainly", f"torch.nn.functional.{FUSED}"),
    borrows("under_another_name", "helper", f"from torch.nn.functional import {FUSED} as helper"),
    borrows("by_assignment", "helper", f"helper = torch.nn.functional.{FUSED}"),
    borrows("in_a_lambda", "helper", f"helper = lambda *a: torch.nn.functional.{FUSED}(*a)"),
    borrows("in_a_table", "table[0]", f"table = [torch.nn.functional.{FUSED}]"),
    borrows("by_getattr", f"getattr(torch.nn.functional, '{FUSED}')"),
    borrows("through_ops", f"torch.ops.aten.{FUSED}"),
]

# These pass: that nobody can hide what he calls is not promised.
PASSING_BORROWERS = [
    borrows("by_a_made_up_word", f"getattr(torch.nn.functional, '_'.join({FUSED.split('_')}))", points=7),
    borrows("by_eval", f"eval('torch.nn.functional.' + '{FUSED[:6]}' + str('{FUSED[6:]}'))", points=7),
]

EVERY = [
    *LIARS,
    *BORROWERS,
    *PASSING_BORROWERS,
    *TIME,
    *ENDS,
    *MACHINE,
    *WIRE,
    *PATCHES,
    *SECRETS,
    *FEEDBACK,
    *HONEST,
    *OWN_FAULT,
]


# --- notebooks ----------------------------------------------------------------------------------------------


def solution(unit: str) -> dict[str, Any]:
    (path,) = (PROJECT / "solutions").glob(f"{unit}_*.ipynb")
    return json.loads(path.read_text(encoding="utf-8"))


def notebook(hostile: Hostile, words: Mapping[str, str]) -> str:
    """The solution of the unit, changed as the submission says."""
    whole = solution(hostile.unit)
    for place in whole["cells"]:
        facts = place["metadata"].get("nbgrader", {}).get("grade_id", "")
        exercise = facts.removeprefix("answer-").replace("-", ".")
        if facts.startswith("answer-") and exercise in hostile.answers:
            place["source"] = _filled(hostile.answers[exercise], words)
    first = next(i for i, place in enumerate(whole["cells"]) if place["cell_type"] == "code") + 1
    if hostile.before:
        whole["cells"].insert(first, _code(_filled(hostile.before, words)))
    if hostile.after:
        whole["cells"].append(_code(_filled(hostile.after, words)))
    return json.dumps(whole)


def _filled(code: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        code = code.replace(f"{{{word}}}", value)
    ast.parse(code)
    return code


def _code(source: str) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}


def write(folder: Path, words: Mapping[str, str], chosen: list[Hostile] | None = None) -> dict[str, Hostile]:
    """All submissions as a class in a folder, with an honest student before, after and between; by student."""
    units = ("02", "04", "06")
    names = {unit: next((PROJECT / "solutions").glob(f"{unit}_*.ipynb")).name for unit in units}
    students: dict[str, Hostile] = {}
    for place, hostile in enumerate(EVERY if chosen is None else chosen):
        students[hostile.folder or f"s{place:03d}_{hostile.name}"] = hostile
        if place % 20 == 10:
            students[f"s{place:03d}_honest"] = Hostile("honest")
    students |= {f"{place}_honest{unit}": Hostile("honest", unit=unit) for unit in units for place in ("aaa", "zzz")}
    for student, hostile in students.items():
        (folder / student).mkdir(parents=True)
        text = notebook(hostile, words)
        (folder / student / names[hostile.unit]).write_text(text, encoding="utf-8")
    return students


def fair_points(hostile: Hostile) -> dict[str, int]:
    return {e.id: hostile.points(e) for e in of_unit(hostile.unit)}
