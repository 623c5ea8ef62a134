"""Set the course up and open it. Needs nothing but Python 3.11, 3.12 or 3.13.

    python3 start.py                 install what the course needs and open it in JupyterLab
    python3 start.py --no-browser    the same, but print the address instead of opening a browser
    python3 start.py --check         install, verify that everything works, and stop
    python3 start.py test [ARGS]     install what the tests need and run them all; ARGS choose for pytest,
                                     for instance: python3 start.py test tests/test_masks.py -k causal

On Windows write `py start.py`. Everything goes into the folder .venv beside this file. You may stop it at
any moment with Ctrl-C and start it again; to begin afresh, delete .venv.
"""

# An older Python must be able to read this file far enough to say that it is too old: plain syntax only.
import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tools.run_pip import Progress, Trouble, explain, run_pip

PYTHONS = ("3.11", "3.12", "3.13")
THIS_PYTHON = "{}.{}".format(*sys.version_info[:2])
ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
PACKAGES = VENV / ("Lib" if os.name == "nt" else f"lib/python{THIS_PYTHON}") / "site-packages"
STAMP = VENV / "course-stamp.json"  # written last: where it stands, the installation is whole
LOG = VENV / "install.log"
ROOM, ROOM_WITH_CUDA = 3, 10  # gigabytes
# Linux wheels of torch bring 2.7 GB of CUDA; builds without it are published at this address only.
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
CUDA = re.compile(r"(Collecting|Processing) (\S*/)?(nvidia|cuda)[-_]")


def say(text, out=None):
    print(text, file=out, flush=True)


def check_python(version, bits, find=shutil.which):
    """Refuse a Python for which there are no packages, and name a fitting one that is on this computer."""
    name = "{}.{}".format(*version[:2])
    if name in PYTHONS and bits == 64:
        return
    fault = "32-bit" if name in PYTHONS else "too old" if tuple(version[:2]) < (3, 11) else "too new"
    fitting = [other for other in PYTHONS if find("python" + other)]
    advice = "Get Python 3.12 (64-bit) at python.org/downloads, then run start.py with it."
    if fitting:
        advice = f"This computer has a fitting one; run: python{fitting[-1]} start.py"
    raise Trouble(f"The course runs on Python 3.11, 3.12 and 3.13. This is {name}: {fault}.\n{advice}")


def check_venv_module(find=importlib.util.find_spec):
    """Debian and Ubuntu keep what makes .venv in a package of its own."""
    if not (find("venv") and find("ensurepip")):
        package = f"python{THIS_PYTHON}-venv"
        raise Trouble(f"This Python cannot make .venv. Install what it lacks: sudo apt install {package}")


def check_room(gigabytes, free):
    if free < gigabytes * 1e9:
        raise Trouble(
            f"The disk is too full: the course needs {gigabytes} GB, and {free / 1e9:.1f} GB are free.\n"
            f"Free some room, or move this folder to another disk: {ROOT}"
        )


def has_nvidia():
    return os.path.exists("/proc/driver/nvidia/version") or bool(shutil.which("nvidia-smi"))


def locked():
    """lock.txt as {"base": ["anyio==4.16.0", ...], "test": ...}: what each extra adds to the base."""
    groups = {}
    for line in (ROOT / "lock.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# ["):
            lines = groups.setdefault(line.strip("# []"), [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return groups


def identity():
    """What an installation is good for: this Python, this folder, these files."""
    files = b"".join((ROOT / name).read_bytes() for name in ("lock.txt", "pyproject.toml"))
    return {"python": THIS_PYTHON, "folder": str(ROOT), "files": hashlib.sha256(files).hexdigest()}


def read_stamp():
    try:
        return dict(json.loads(STAMP.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def write_stamp(extras):
    part = STAMP.with_suffix(".part")
    part.write_text(json.dumps(dict(identity(), extras=sorted(extras))), encoding="utf-8")
    os.replace(part, STAMP)


def environment(**more):
    """This process's variables, less those that would lead .venv's Python to other packages."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
    return dict(kept, PIP_USER="0", **more)


def python_starts():
    """Whether .venv's Python runs and finds the course: not after the system's Python was replaced."""
    command = [str(PYTHON), "-c", "import course_lib"]
    try:
        return subprocess.run(command, cwd=VENV, env=environment(), capture_output=True).returncode == 0
    except OSError:
        return False


def plan(extras):
    """What is to be done: "anew" (from nothing), "add" (to what is there) or "nothing"."""
    stamp, now = read_stamp(), identity()
    if any(stamp.get(key) != now[key] for key in ("python", "folder")) or not python_starts():
        return "anew"
    whole = stamp.get("files") == now["files"] and extras <= set(stamp.get("extras", ()))
    return "nothing" if whole else "add"


@contextlib.contextmanager
def only_one():
    """Let one start.py at a time change .venv; the system frees the lock when its holder dies."""
    try:
        handle = os.open(str(ROOT / ".venv.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        raise Trouble(f"{ROOT} cannot be written to. Copy the course to a folder of yours.") from None
    try:
        # pip inherits the lock: should it outlive this process, the next start.py waits for it as well.
        os.set_inheritable(handle, True)
        waiting = False
        while not take(handle):
            if not waiting:
                say("Another start.py is at work in this folder; waiting for it (Ctrl-C stops).")
            waiting = True
            time.sleep(0.3)
        yield
    finally:
        os.close(handle)


def take(handle):
    """Try to lock the file; where the file system has no locks, go on without."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
    return True


def make_venv():
    check_venv_module()
    if VENV.is_symlink():
        VENV.unlink()
    elif VENV.exists():
        say("The folder .venv is incomplete, or belongs to another Python or place: making it anew.")
        shutil.rmtree(VENV)
    check_room(ROOM_WITH_CUDA if has_nvidia() else ROOM, shutil.disk_usage(ROOT).free)
    # The Python outside: this one may be .venv's own, which was removed a moment ago.
    command = [getattr(sys, "_base_executable", "") or sys.executable, "-m", "venv", str(VENV)]
    done = subprocess.run(command, close_fds=False, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise Trouble(explain(done.stdout + done.stderr, VENV))


def pip_install(words, progress, until=None):
    command = [str(PYTHON), "-X", "utf8", "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    options = {"cwd": ROOT, "env": environment(), "close_fds": False}
    return run_pip([*command, "--progress-bar", "off", *words], LOG, progress, until, **options)


def install_torch(progress):
    """On Linux without an NVIDIA driver, see to it that torch comes without CUDA."""
    torch = next(line for line in locked()["base"] if line.startswith("torch=="))
    if sys.platform != "linux" or has_nvidia():
        return
    # pip before 25.3 fetches every wheel even for a dry run: stop it at the first sign of CUDA.
    if pip_install(["--dry-run", "--use-feature=fast-deps", torch], progress, until=CUDA):
        try:
            pip_install(["--no-deps", "--index-url", CPU_WHEELS, torch + "+cpu"], progress)
        except Trouble as trouble:
            raise Trouble(f"{trouble}\nThis was about {torch} without CUDA, from {CPU_WHEELS}") from None


def install(task, extras):
    """Bring .venv to what lock.txt says. Its stamp goes first and comes last: without it, it is half-made."""
    had = set() if task == "anew" else set(read_stamp().get("extras", ()))
    with contextlib.suppress(FileNotFoundError):
        STAMP.unlink()
    say("Installing the course into .venv; the first time, this takes a few minutes.")
    if task == "anew":
        make_venv()
    wanted = had | extras
    new = wanted - had if task == "add" and wanted > had else {"base", *wanted}
    progress = Progress(sum(len(locked()[group]) for group in new), PACKAGES)
    install_torch(progress)
    # The locked setuptools builds the course itself, rather than whichever is the newest today.
    pip_install(["--constraint", "lock.txt", "setuptools"], progress)
    course = ".[{}]".format(",".join(sorted(wanted))) if wanted else "."
    pip_install(["--constraint", "lock.txt", "--no-build-isolation", "--editable", course], progress)
    write_stamp(wanted)
    say("\nInstalled.")


def prepare(extras):
    """Install what is missing; where nothing is, this takes milliseconds."""
    if plan(extras) == "nothing":
        return
    with only_one():
        task = plan(extras)  # another start.py may have done it meanwhile
        if task != "nothing":
            install(task, extras)


def hand_over(words, **variables):
    """Become .venv's Python, so that Ctrl-C reaches it and not this file; Windows cannot, and waits."""
    os.chdir(str(ROOT))
    command, variables = [str(PYTHON), *words], environment(**variables)
    if os.name == "posix":
        os.execve(command[0], command, variables)
    return subprocess.call(command, env=variables)


def action(words):
    """What to run once the course is installed: the words for .venv's Python, and variables."""
    if words[:1] == ["test"]:
        # Side by side with one thread each: threads of several processes get in each other's way.
        side_by_side = ["-n", str(min(4, os.cpu_count() or 1)), "--dist", "loadfile"]
        return ["-m", "pytest", *side_by_side, *(words[1:] or ["tests"])], {"OMP_NUM_THREADS": "1"}
    if "--check" in words:
        return ["-m", "course_lib.cli", "doctor"], {}
    return ["-m", "course_lib.cli", "lab", *words], {}


def main(words):
    testing = words[:1] == ["test"]
    if words[:1] in (["-h"], ["--help"]):
        say(__doc__)
        return 0
    if not testing and not set(words) <= {"--no-browser", "--check"}:
        say("start.py does not know: {}\n\n{}".format(" ".join(words), __doc__), sys.stderr)
        return 2
    try:
        check_python(sys.version_info, sys.maxsize.bit_length() + 1)
        prepare({"test", "grade", "site"} if testing else set())
        command, variables = action(words)
        return hand_over(command, **variables)
    except Trouble as trouble:
        say(f"\n{trouble}", sys.stderr)
    except OSError as error:
        say("\n" + explain(str(error), VENV), sys.stderr)
    except KeyboardInterrupt:
        say("\nStopped. Nothing is broken: run the same command to go on.", sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop pip as well, as Ctrl-C does
    sys.exit(main(sys.argv[1:]))
