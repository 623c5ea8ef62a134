"""Run pip for start.py: one moving line instead of its output, and plain words when it fails.

Standard library only, and plain syntax, as in start.py.
"""

import contextlib
import os
import platform
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

# What pip says when it fails -> what is wrong and what to do. The first that fits is told.
TROUBLES = {
    "No space left|not enough space|quota exceeded|WinError 112": """
        The disk is full: the one of {folder}, or that of {temp}, where pip unpacks.
        Free some room and run the same command again.""",
    "CERTIFICATE_VERIFY_FAILED|SSLError": """
        The network shows a certificate that Python does not trust, as those of companies and universities do.
        Ask them for its file, then run: pip config set global.cert FILE""",
    "ProxyError|407 Proxy|connect to proxy": """
        A proxy stands between this computer and the internet and refuses.
        Set the variable HTTPS_PROXY to its address, with name and password if it wants them.""",
    "NewConnection|name resolution|getaddrinfo|nodename nor|unreachable|refused|reset by peer|timed out": """
        The packages cannot be downloaded: the network does not answer.
        Check the connection and run the same command again (behind a firewall, tell pip of a mirror).""",
    "No matching distribution found for torch": """
        PyTorch has no build for this computer, {machine}.
        It takes 64-bit Linux (glibc 2.28 or newer), Windows, or a Mac with an Apple chip.""",
    "Long Path": """
        Windows refuses long file names here.
        Move the course to a folder with a short name, such as C:\\course, and run the same command again.""",
    "Permission denied|Access is denied|WinError (5|32)|Read-only|not permitted": """
        {folder} cannot be changed.
        Close what uses it (JupyterLab, an editor), see that it is yours, and run the same command again.""",
}


class Trouble(Exception):
    """What is wrong and what to do about it, in words for the learner."""


def explain(output, folder):
    """The words for what went wrong, from what pip or the operating system said of it."""
    for pattern, words in TROUBLES.items():
        if re.search(pattern, output, re.IGNORECASE):
            lines = [line.strip() for line in words.strip().splitlines()]
            facts = {"folder": folder, "temp": tempfile.gettempdir(), "machine": platform.platform()}
            return "\n".join(lines).format(**facts)
    lines = output.splitlines()
    errors = [line for line in lines if "error" in line.lower()] or lines
    return "\n".join(["The installation failed:", *errors[-3:]])


class Progress:
    """pip's output as one line that moves: "installing 43 of 128: jupyterlab (12 s)"."""

    def __init__(self, total, packages, out=None):
        self.total, self.packages, self.out = total, packages, out or sys.stdout
        self.text, self.todo, self.before = "asking pip", [], 0
        self.seen = {"looking up": set(), "downloading": set()}
        self.started, self.shown = time.monotonic(), 0.0

    def read(self, line):
        """Take note of a line of pip's output: versions of pip differ in their order, not in their words."""
        fetch = r" *(?:Downloading|Using cached|Processing)"
        file = re.match(fetch + r" (?:\S*[/\\])?(\w[\w.]*)-(\S+)( \(.*B\))?", line)
        asked = re.match(r"Collecting ([\w.-]+)", line)
        listed = re.match(r"Installing collected packages: (.*\S)", line)
        if file and not file.group(2).endswith(".metadata"):
            self.count("downloading", file.group(1), file.group(3) or "")
        elif asked:
            self.count("looking up", asked.group(1))
        elif line.startswith("WARNING: Retrying"):
            self.text = "the network does not answer; trying again"
        elif listed:
            self.todo, self.before = listed.group(1).split(", "), self.installed()

    def count(self, verb, name, size=""):
        self.seen[verb].add(name)
        self.text = f"{verb} {len(self.seen[verb])} of about {self.total}: {name}{size}"

    def installed(self):
        return sum(name.endswith(".dist-info") for name in os.listdir(self.packages))

    def show(self):
        """Bring the line up to date; in a log, where lines cannot move, every ten seconds."""
        terminal, now = self.out.isatty(), time.monotonic()
        if now - self.shown < (0.1 if terminal else 10):
            return
        if self.todo:
            # The newest of those unpacked: pip is still compiling it.
            number = min(max(self.installed() - self.before, 1), len(self.todo))
            self.text = f"installing {number} of {len(self.todo)}: {self.todo[number - 1]}"
        self.shown, line = now, f"  {self.text} ({now - self.started:.0f} s)"
        width = shutil.get_terminal_size().columns - 1
        self.out.write("\r" + line[:width].ljust(width) if terminal else line + "\n")
        self.out.flush()


def follow(process, idle):
    """The lines of a process as they come; `idle` runs in between, so that the display keeps moving."""
    lines = queue.Queue()
    threading.Thread(target=lambda: [*map(lines.put, process.stdout), lines.put(None)], daemon=True).start()
    while True:
        idle()
        with contextlib.suppress(queue.Empty):
            line = lines.get(timeout=0.2)
            if line is None:
                return
            yield line


def stop(process):
    """Let pip clear away its temporary files, but not for long."""
    with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        if process.poll() is None:
            process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)
            process.wait(timeout=5)
    process.kill()


def run_pip(command, log, progress, until=None, **options):
    """Run it, show its progress, append its output to `log`. True: stopped at a line that matches `until`."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "encoding": "utf-8", "errors": "replace"}
    output, progress.todo = [], []
    with open(log, "a", encoding="utf-8") as record:
        process = subprocess.Popen(command, **pipes, **options)
        try:
            for line in follow(process, progress.show):
                record.write(line)
                output.append(line)
                progress.read(line)
                if until and until.match(line):
                    return True
            if process.wait():
                words = explain("".join(output), log.parent)
                raise Trouble(f"{words}\nAll that pip said stands in {log}")
        finally:
            stop(process)
    return False
