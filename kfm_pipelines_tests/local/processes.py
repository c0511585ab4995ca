"""Looking at processes from outside, and a Python script as a process of its own."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped]


def script(source: str, *arguments: object) -> subprocess.Popen[str]:
    """Run this Python source in a process of its own; its output is a pipe."""
    return subprocess.Popen(
        [sys.executable, "-c", source, *map(str, arguments)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def says(process: subprocess.Popen[str]) -> str:
    """The next line the script prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def eventually(condition: Callable[[], object], seconds: float = 15) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def mentioning(path: Path) -> list[str]:
    """The command lines of living processes that name this path."""
    lines = (" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    return [line for line in lines if str(path) in line]


def descendants(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]
