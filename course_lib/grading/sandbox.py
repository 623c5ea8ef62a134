"""What a child process may do: read Python and its packages, write into one folder, compute. No privileges needed.

Landlock closes files and TCP (for the zygote, once: children inherit it), seccomp closes system calls, rlimits bound
time, memory and files. Calls are listed by what they are for; a call that is not listed is allowed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import site
import struct
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

SECONDS_OF_CPU = 120
ROOM = 1536 << 20  # bytes of address space beyond the zygote's
FILE_BYTES, OPEN_FILES = 16 << 20, 64

# --- Landlock -----------------------------------------------------------------------------------------------

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
REMOVE_FILE, MAKE_FILE = 32, 256
WRITE = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | REMOVE_FILE | MAKE_FILE  # plain files: no folders, no links
FOR_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL  # what has a meaning for a file that is no folder
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _done(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def landlock_version() -> int:
    """The version of Landlock that the kernel has; 0 where there is none."""
    return max(0, _libc().syscall(CREATE_RULESET, None, 0, 1)) if sys.platform == "linux" else 0


def missing() -> str:
    """Why the isolation is not to be had on this machine, in words; empty where it is."""
    if sys.platform != "linux":
        return f"{platform.system()} has neither Landlock nor seccomp"
    if platform.machine() not in CALLS:
        return f"the list of system calls is not known for {platform.machine()}"
    if landlock_version() < 3:
        return "the kernel has no Landlock of version 3 or later (Linux 6.2; `lsm=landlock` among its start options)"
    return ""


def close_files(read: Iterable[str], write: Iterable[str]) -> None:
    """From here on this process and its children see these paths and no other file, and make no TCP connection."""
    libc, version = _libc(), landlock_version()
    every = (1 << 15) - 1 | (IOCTL if version >= 5 else 0)
    tcp, scopes = (3 if version >= 4 else 0), (3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = _done(libc.syscall(CREATE_RULESET, struct.pack("<QQQ", every, tcp, scopes), size, 0), "Landlock")
    for paths, access in ((read, READ), (write, WRITE)):
        for path in paths:
            try:
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            access_here = access if os.path.isdir(path) else access & FOR_FILES
            _done(libc.syscall(ADD_RULE, rules, 1, struct.pack("<Qi", access_here, place), 0), f"Landlock, {path}")
            os.close(place)
    _no_new_privileges(libc)
    _done(libc.syscall(RESTRICT_SELF, rules, 0), "Landlock")
    os.close(rules)


def readable(stripped: Path) -> list[str]:
    """What a child may read: Python, its packages but for this library, time zones, and the stripped library."""
    system = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/localtime"]
    system += ["/dev/zero", "/dev/urandom", "/dev/random", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"]
    python = [sysconfig.get_path("stdlib"), sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_path("platstdlib")]
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    found = [str(p) for folder in packages if os.path.isdir(folder) for p in Path(folder).iterdir() if not _ours(p)]
    return [p for p in [*system, *python, *sorted(found), str(stripped)] if p and os.path.exists(p)]


def _ours(path: Path) -> bool:
    return "course_lib" in path.name.replace("-", "_").lower()


def leaks(allowed: Sequence[str], secret: Sequence[Path]) -> list[tuple[str, Path]]:
    """Secrets that stand below something readable: grading there would not be safe."""
    pairs = [(Path(a).resolve(), s.resolve()) for a in allowed for s in secret]
    return [(str(a), s) for a, s in pairs if a == s or a in s.parents]


# --- seccomp ------------------------------------------------------------------------------------------------

# name: (number on x86_64, number on aarch64); None where a machine has no such call.
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "ptrace": (101, 117),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "process_madvise": (440, 440), "process_mrelease": (448, 448), "setpriority": (141, 140),
    "ioprio_set": (251, 30), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274), "sched_setaffinity": (203, 122), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # networks, and what outlives a process
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242), "shmget": (29, 194), "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186),
    "mq_open": (240, 180), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "shmctl": (31, 195), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "mq_unlink": (241, 181),
    # what Landlock leaves open: modes, owners, times, attributes
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "flock": (73, 32), "inotify_add_watch": (254, 27), "sync": (162, 81), "syncfs": (306, 267),
    # the machine
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsmount": (432, 432), "mount_setattr": (442, 442), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "reboot": (169, 142), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "swapon": (167, 224),
    "swapoff": (168, 225), "quotactl": (179, 60), "acct": (163, 89), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266), "sethostname": (170, 161),
    "setdomainname": (171, 162), "syslog": (103, 116), "fanotify_init": (300, 262), "vhangup": (153, 58),
    "personality": (135, 92),
}  # fmt: skip
# Calls that are needed, but not with every argument: numbers, which argument, values, and whether these alone are
# refused (False) or allowed (True). The owner of a file or socket gets its signals, and may be any process.
ARGUMENTS: dict[str, tuple[tuple[int, int], int, tuple[int, ...], bool]] = {
    "fcntl": ((72, 25), 1, (8, 10, 15, 1024, 1026), False),  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY
    "prctl": ((157, 167), 0, (1, 4), False),  # PR_SET_PDEATHSIG, PR_SET_DUMPABLE
    "ioctl": ((16, 29), 1, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451), True),  # terminals, FIONBIO, FIOCLEX
    "prlimit64": ((302, 261), 0, (0,), True),  # the limits of process 0, which is the caller: others would be stopped
}
CALLS = {
    "x86_64": {name: x for name, (x, _) in NUMBERS.items() if x is not None},
    "aarch64": {name: a for name, (_, a) in NUMBERS.items() if a is not None},
}
CLONE = {"x86_64": 56, "aarch64": 220}
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE3, CLONE_THREAD, X32 = 435, 0x10000, 0x40000000
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000


def filter_program(machine: str) -> bytes:
    """A filter in the kernel's own small language: EPERM for the calls above, threads allowed, processes not."""
    load, jump_if_equal, jump_if_set, jump_if_at_least, answer = 0x20, 0x15, 0x45, 0x35, 0x06
    lines: list[tuple[int, int, int, int]] = [
        (load, 0, 0, 4),
        (jump_if_equal, 1, 0, AUDIT[machine]),
        (answer, 0, 0, KILL),
    ]
    lines += [(load, 0, 0, 0)]
    if machine == "x86_64":
        lines += [(jump_if_at_least, 0, 1, X32), (answer, 0, 0, KILL)]
    # libc tries clone3 first, whose flags cannot be read here; told that there is none, it takes clone.
    lines += [(jump_if_equal, 0, 1, CLONE3), (answer, 0, 0, ERROR | errno.ENOSYS)]
    for number in CALLS[machine].values():
        lines += [(jump_if_equal, 0, 1, number), (answer, 0, 0, ERROR | errno.EPERM)]
    for numbers, place, values, allowed in ARGUMENTS.values():
        lines += [(jump_if_equal, 0, 2 + 2 * len(values), numbers[machine == "aarch64"]), (load, 0, 0, 16 + 8 * place)]
        for value in values:
            lines += [(jump_if_equal, 0, 1, value), (answer, 0, 0, ALLOW if allowed else ERROR | errno.EPERM)]
        lines += [(answer, 0, 0, ERROR | errno.EPERM if allowed else ALLOW)]
    lines += [(jump_if_equal, 0, 3, CLONE[machine]), (load, 0, 0, 16), (jump_if_set, 1, 0, CLONE_THREAD)]
    lines += [(answer, 0, 0, ERROR | errno.EPERM), (answer, 0, 0, ALLOW)]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def close_calls(program: bytes) -> None:
    """From here on this thread, and those it starts, live under the filter."""
    libc = _libc()
    buffer = ctypes.create_string_buffer(program, len(program))
    _no_new_privileges(libc)
    pointer = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    _done(libc.prctl(22, 2, pointer, 0, 0), "seccomp")


def _no_new_privileges(libc: ctypes.CDLL) -> None:
    _done(libc.prctl(38, 1, 0, 0, 0), "no_new_privs")


# --- the rest -----------------------------------------------------------------------------------------------


def drop_capabilities() -> None:
    """Root without its powers: limits cannot be raised again, nothing can be mounted."""
    header = struct.pack("<II", 0x20080522, 0)
    _done(_libc().capset(header, bytes(24)), "capset")


def die_with_parent() -> None:
    """SIGKILL for this process when its parent ends; and no picture of its memory when it crashes."""
    _done(_libc().prctl(1, 9, 0, 0, 0), "prctl")
    _done(_libc().prctl(4, 0, 0, 0, 0), "prctl")


def limit(size: int) -> None:
    """Bounds for the child; `size` is the address space that it has already."""
    import resource  # which Windows has not

    for kind, amount in (
        (resource.RLIMIT_AS, size + ROOM),
        (resource.RLIMIT_CPU, SECONDS_OF_CPU),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(kind, (amount, amount))
