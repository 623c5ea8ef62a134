"""What a child may do and what not: each line is tried in a real one, with the grader's own secrets as bait."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from course_lib.exercises.declare import Case
from course_lib.grading import keeper, sandbox, strip, wire

pytestmark = pytest.mark.skipif(bool(sandbox.missing()), reason=f"no isolation here: {sandbox.missing()}")
ROOT = Path(__file__).parents[1]
FINE = "import os, sys, ctypes, socket, threading\nlibc = ctypes.CDLL(None, use_errno=True)\n"


@pytest.fixture(scope="module")
def zygote(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stripped")
    strip.strip("04", ["import numpy as np"], folder)
    with keeper.Zygote(folder) as made:
        yield made


@pytest.fixture
def child(zygote):
    made = zygote.child()
    yield made
    made.close()


def run(child, cell: str) -> str:
    """What the cell raises, "" if nothing."""
    raised = child.ask({"cell": FINE + cell, "name": "cell"}, seconds=20)[0]["raised"]
    return "" if raised is None else ": ".join(raised)


@pytest.mark.parametrize(
    "cell",
    [
        "import torch; assert (torch.ones(300, 300) @ torch.ones(300, 300)).sum() == 27e6",
        "t = threading.Thread(target=lambda: None); t.start(); t.join()",
        "open('mine', 'w').write('x'); assert open('mine').read() == 'x'; os.remove('mine')",
        "import tempfile; tempfile.TemporaryFile().write(b'x')",
        "import sqlite3, decimal, email.message",
        "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.savefig('a.png')",
        "assert os.environ['HOME'].startswith('/') and 'PYTHONPATH' not in os.environ",
        "print('x' * 10**6); sys.stdout.flush(); os.write(1, b'x')",
        "import torch; x = torch.randn(3, requires_grad=True); x.sum().backward(); torch.nn.GRU(3, 4)",
        "import course_lib.exercises.declare, course_lib.observe",
    ],
)
def test_what_an_honest_learner_needs_works(child, cell):
    assert run(child, cell) == ""


def forbidden_cells() -> list[str]:
    secret = str(ROOT / "course_lib" / "exercises" / "u04.py")
    return [
        f"open({secret!r})",
        f"os.listdir({str(ROOT)!r})",
        f"open({str(ROOT / 'solutions' / '04_queries_keys_values.ipynb')!r})",
        "from course_lib.exercises import u04",
        "import course_lib.attention",
        "import course_lib.by_hand",
        "open('/etc/passwd')",
        "open('/etc/hostname')",
        f"os.listdir({os.path.expanduser('~')!r})",
        f"os.listdir({os.path.dirname(ROOT)!r})",
        "os.listdir('/tmp')",
        "open('/tmp/outside', 'w')",
        "open('/dev/shm/outside', 'w')",
        "open('../outside', 'w')",
        "open('/proc/GRADER/mem', 'rb')",
        "open('/proc/GRADER/cmdline')",
        "open(f'/proc/{os.getppid()}/environ')",
        "open('/proc/self/maps')",
        "os.fork()",
        "import subprocess; subprocess.run(['true'])",
        "os.execv('/bin/true', ['true'])",
        "import multiprocessing as m; p = m.Process(target=print); p.start()",
        "socket.socket()",
        "socket.socket(socket.AF_UNIX)",
        "socket.create_connection(('127.0.0.1', 9), 1)",
        "os.kill(GRADER, 0)",
        "os.kill(os.getppid(), 9)",
        "os.kill(-1, 9)",
        "os.killpg(0, 9)",
        f"os.chmod({str(ROOT)!r}, 0o777)",
        f"os.utime({secret!r})",
        f"os.chown({secret!r}, 0, 0)",
        f"os.truncate({secret!r}, 0)",
        f"os.symlink({secret!r}, 'link'); open('link')",
        f"os.link({secret!r}, 'hard')",
        f"os.rename({secret!r}, 'moved')",
        "os.mkdir('folder')",
        "os.mkfifo('pipe')",
        "import resource as r; r.setrlimit(r.RLIMIT_AS, (-1, -1))",
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (4096, 4096))",
        "bytearray(8 << 30)",
        "[open('mine', 'w') for _ in range(200)] and [open(os.devnull) for _ in iter(int, 1)]",
        "open('big', 'wb').write(bytes(40 << 20))",
        "x = lambda f: f(f); x(x)",
    ]


@pytest.mark.parametrize("cell", forbidden_cells())
def test_what_nobody_needs_fails(child, cell):
    cell = cell.replace("GRADER", str(os.getpid()))
    keep = f"kept = []\ndef go():\n    {'; '.join(cell.splitlines())}\ngo()"
    try:
        assert run(child, keep if "[open(" not in cell else cell) != ""
    except keeper.Gone as gone:
        assert gone.status == "died"


@pytest.mark.parametrize("call", sorted(sandbox.CALLS.get(platform.machine(), {})))
def test_every_listed_call_is_refused(child, call):
    number = sandbox.CALLS[platform.machine()][call]
    cell = f"r = libc.syscall({number}, -1, -1, -1, -1, -1)\nassert (r, ctypes.get_errno()) == (-1, 1)"
    assert run(child, cell) == ""


def test_the_numbers_of_calls_are_those_of_this_machine():
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if platform.machine() != "x86_64" or not header.exists():
        pytest.skip("no list of system calls on this machine")
    lines = [line.split() for line in header.read_text().splitlines() if line.startswith("#define __NR_")]
    real = {words[1].removeprefix("__NR_"): int(words[2]) for words in lines}
    assert {n: real[n] for n in sandbox.CALLS["x86_64"] if n in real} == {
        n: number for n, number in sandbox.CALLS["x86_64"].items() if n in real
    }


def test_a_child_that_hangs_is_ended_and_its_folder_is_gone(zygote):
    child = zygote.child()
    cell = (
        "open('mine', 'w').write('x')\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass"
    )
    with pytest.raises(keeper.Gone) as gone:
        child.ask({"cell": cell, "name": "c"}, seconds=0.7)
    assert gone.value.status == "timeout" and not list(child.folder.iterdir()) and not alive(child.process)


@pytest.mark.parametrize("size", [8 << 20, 0])
def test_a_child_that_fills_the_disk_is_ended(zygote, size):
    child = zygote.child()
    cell = f"i = 0\nwhile True:\n    i += 1\n    open(str(i), 'wb').write(bytes({size}))"
    with pytest.raises(keeper.Gone, match="room"):
        child.ask({"cell": cell, "name": "c"}, seconds=30)
    assert not list(child.folder.iterdir())


@pytest.mark.parametrize(
    "cell", ["import os; os._exit(0)", "import ctypes; ctypes.string_at(0)", "import os; os.abort()"]
)
def test_a_child_that_ends_itself_costs_only_itself(zygote, cell):
    with pytest.raises(keeper.Gone) as gone:
        zygote.child().ask({"cell": cell, "name": "c"}, seconds=20)
    assert gone.value.status == "died"
    child = zygote.child()
    assert run(child, "x = 1") == ""
    child.close()


def test_nothing_of_one_child_is_seen_by_the_next(zygote):
    first = zygote.child()
    assert run(first, "import numpy; numpy.evil = 1; open('note', 'w').write('for you')") == ""
    first.close()
    second = zygote.child()
    assert run(second, "import numpy; assert not hasattr(numpy, 'evil') and os.listdir('.') == []") == ""
    second.close()


def test_answers_sent_ahead_or_in_place_of_the_grader_do_not_count(zygote):
    forge = """
import gc, json, struct
sockets = [s for s in gc.get_objects() if isinstance(s, socket.socket)]
f = sys._getframe()
while f:
    sockets += [v for v in f.f_locals.values() if isinstance(v, socket.socket)]; f = f.f_back
def say(head, s=[s for s in sockets if s.fileno() >= 0][0]):
    h = json.dumps(head).encode(); s.sendall(struct.pack("<II", len(h), 0) + h)
def answer(x):
    for n in range(50):
        say({"values": [None, None], "fault": None, "changed": [], "parameters": [], "to": n})
answer(0)
"""
    child = zygote.child()
    with pytest.raises(keeper.Gone) as gone:
        child.ask({"cell": FINE + forge, "name": "c"}, seconds=10)
    assert gone.value.status == "died"


def test_tcp_is_closed_by_landlock_even_without_seccomp(zygote):
    """The first wall stands without the second one: a listening server is not reached."""
    server = socket.create_server(("127.0.0.1", 0))
    accepted = []
    thread = threading.Thread(target=lambda: accepted.append(server.accept()), daemon=True)
    thread.start()
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from course_lib.grading import sandbox
import socket
sandbox.close_files(["/usr", "/lib"], [])
try: socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), 2)
except PermissionError: sys.exit(7)
"""
    result = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert result.returncode == 7 or sandbox.landlock_version() < 4
    assert not accepted or sandbox.landlock_version() < 4
    server.close()


def test_the_zygote_ends_with_the_grader_and_its_child_too(tmp_path):
    strip.strip("04", [], tmp_path / "s")
    code = f"""
import sys, time
from pathlib import Path
from course_lib.grading import keeper
z = keeper.Zygote(Path({str(tmp_path / "s")!r}), torch=False)
c = z.child()
print(z.process.pid, c.process, flush=True)
c.ask({{"cell": "import signal\\nwhile True: pass", "name": "c"}}, seconds=100)
"""
    grader = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert grader.stdout is not None
    pids = [int(word) for word in grader.stdout.readline().split()]
    time.sleep(0.3)
    grader.kill()
    grader.wait()
    grader.stdout.close()
    end = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(alive, pids))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_secrets_below_what_a_child_may_read_are_found(tmp_path):
    assert sandbox.leaks(["/usr/lib", str(tmp_path)], [tmp_path / "out", Path("/usr/library")]) == [
        (str(tmp_path.resolve()), (tmp_path / "out").resolve())
    ]
    with pytest.raises(ValueError, match="move it elsewhere"):
        keeper.refuse_where_unsafe(tmp_path, [tmp_path / "out"])
    keeper.refuse_where_unsafe(tmp_path, [ROOT / "course_lib", ROOT / "solutions"])


def test_where_nothing_can_be_locked_away_it_refuses(monkeypatch, tmp_path):
    monkeypatch.setattr(sandbox, "landlock_version", lambda: 0)
    with pytest.raises(ValueError, match="--unsafe"):
        keeper.refuse_where_unsafe(tmp_path, [])


def test_a_function_is_observed_in_the_child(child):
    import numpy as np

    assert run(child, "def twice(x):\n    return 2 * x") == ""
    head, body = wire.case_to_wire(Case("", (np.arange(3.0),)))
    seen = wire.observation_from_wire(*child.ask({"call": "twice"} | head, body, seconds=5))
    np.testing.assert_array_equal(seen.output, [0, 2, 4])
    assert child.ask({"call": "thrice"} | head, body, seconds=5)[0]["missing"] == ""
