"""The metrics file, read back: all of it, what is new since the last time, or only the last minutes.

Lines stand in the order in which they were written, so the last hour is found by halving and read from there.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from kfm_pipelines.telemetry.append_only import previous_path
from kfm_pipelines.telemetry.metrics.totals import Totals

METRICS_FILE = "metrics.jsonl"
_TIME = re.compile(rb'"timeUnixNano":"(\d{1,20})"')
_FINGERPRINT_BYTES = 4096
_MAX_TRACKED_FILES = 8
_SEEK_PRECISION_BYTES = 64 * 1024
_SLACK = 60 * 10**9  # nanoseconds; a process may be a little late to write a line


def read_totals(folder: Path, since: datetime | None = None) -> Totals:
    """What the metrics in this folder come to: all of them, or what was told since then."""
    totals = Totals()
    earliest = 0 if since is None else int(since.timestamp() * 1e9)
    with _open_files(folder) as files:
        for file in files:
            if earliest:
                _seek(file, earliest - _SLACK)
            for line in _whole_lines(file):
                if not earliest or _line_time(line) >= earliest:
                    totals.add_line(line)
    return totals


class MetricsFollower:
    """Adds what processes write, as often as it is asked. A file that was moved aside is read to its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[bytes, int] = {}  # how far, by how a file begins: moving it does not change that
        self._totals = Totals()

    def totals(self) -> Totals:
        with _open_files(self._folder) as files:
            for file in files:
                begins = _fingerprint(file)
                if begins is not None:
                    self._read_new_lines(file, begins)
        return self._totals

    def _read_new_lines(self, file: BinaryIO, fingerprint: bytes) -> None:
        done = self._offsets.pop(fingerprint, 0)
        file.seek(done if done <= os.fstat(file.fileno()).st_size else 0)
        for line in _whole_lines(file):
            self._totals.add_line(line)
        self._offsets[fingerprint] = file.tell()
        while len(self._offsets) > _MAX_TRACKED_FILES:
            del self._offsets[next(iter(self._offsets))]


@contextlib.contextmanager
def _open_files(folder: Path) -> Iterator[list[BinaryIO]]:
    """The file before, and the one that is written to. Opened in the other order: one that is moved aside in between
    is found twice, not missed."""
    with contextlib.ExitStack() as stack:
        files: dict[int, BinaryIO] = {}
        for path in (folder / METRICS_FILE, previous_path(folder / METRICS_FILE)):
            with contextlib.suppress(OSError):
                file = stack.enter_context(path.open("rb"))
                files.setdefault(os.fstat(file.fileno()).st_ino, file)
        yield list(reversed(files.values()))


def _fingerprint(file: BinaryIO) -> bytes | None:
    """Enough of a file to know it by; None as long as it has not got that much."""
    begins = file.read(_FINGERPRINT_BYTES)
    line, end, _ = begins.partition(b"\n")
    return line if end or len(begins) == _FINGERPRINT_BYTES else None


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """From where the file stands; it is left standing behind the last whole line."""
    while True:
        start = file.tell()
        line = file.readline()
        if not line.endswith(b"\n"):
            file.seek(start)
            return
        yield line


def _seek(file: BinaryIO, earliest: int) -> None:
    """To a line that is not far before this time, in nanoseconds."""
    low, high = 0, os.fstat(file.fileno()).st_size
    while high - low > _SEEK_PRECISION_BYTES:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()
        # A line without a time says nothing: rather read too much.
        low, high = (middle, high) if 0 <= _line_time(file.readline()) < earliest else (low, middle)
    file.seek(low)
    if low:
        file.readline()


def _line_time(line: bytes) -> int:
    found = _TIME.search(line)
    return int(found[1]) if found else -1
