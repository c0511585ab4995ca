"""What a piece of work used: time, processor time, memory, bytes moved, and energy where the machine counts it.

Counted: processor time of this process and of its children that have ended; memory of this process, as it was whenever
somebody looked; bytes that this process and its ended children read and wrote by way of files and pipes, and what went
to S3 and came from there. Not counted: children that still run (those of the embedded stack are services, not work),
what Postgres, queues and topics do, bytes exchanged with them, files that are mapped into memory, and graphics cards.
"""

import os
import resource
import time
from dataclasses import dataclass
from typing import TypeVar

from kfm_pipelines.aws.clients import traffic
from kfm_pipelines.energy.counters import machine_watt_seconds

GIGABYTE = 1e9
MAX_PROC_BYTES = 1024  # bytes; what is read of /proc here is shorter

T = TypeVar("T", int, float)


@dataclass(frozen=True, slots=True)
class Usage:
    """What was measured. None is not known, which is not nothing: with it every sum is unknown as well.

    `bytes_read` and `bytes_written` are of files and S3 together; `network_bytes` is what of both went to S3 or came
    from there. `watt_seconds` are of the whole machine, whoever else worked on it."""

    wall_seconds: float | None
    cpu_seconds: float | None
    gigabyte_seconds: float | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    watt_seconds: float | None = None
    network_bytes: int | None = None

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            _sum(self.wall_seconds, other.wall_seconds),
            _sum(self.cpu_seconds, other.cpu_seconds),
            _sum(self.gigabyte_seconds, other.gigabyte_seconds),
            _sum(self.bytes_read, other.bytes_read),
            _sum(self.bytes_written, other.bytes_written),
            _sum(self.watt_seconds, other.watt_seconds),
            _sum(self.network_bytes, other.network_bytes),
        )

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(
            _difference(self.wall_seconds, other.wall_seconds),
            _difference(self.cpu_seconds, other.cpu_seconds),
            _difference(self.gigabyte_seconds, other.gigabyte_seconds),
            _difference(self.bytes_read, other.bytes_read),
            _difference(self.bytes_written, other.bytes_written),
            _difference(self.watt_seconds, other.watt_seconds),
            _difference(self.network_bytes, other.network_bytes),
        )

    @property
    def missing(self) -> tuple[str, ...]:
        """What an estimate is made of and could not be read."""
        parts = ("cpu_seconds", "gigabyte_seconds", "network_bytes")
        return tuple(part for part in parts if getattr(self, part) is None)


class Meter:
    """Measures from when it is made until it is asked. Cheap: it is asked before and after every stage of every key.
    One of a process of its own: it says nothing true in a fork of the process that made it."""

    def __init__(self) -> None:
        self._started = self._sampled = time.monotonic()
        self._baseline = _read_counters(0.0)
        self._memory = _memory_bytes()
        self._gigabyte_seconds: float | None = None if self._memory is None else 0.0

    @classmethod
    def since_process_start(cls) -> "Meter":
        """One that has measured since this process began: its start is a cost of whatever it was started for."""
        meter = cls()
        age = _process_age_seconds()
        meter._started -= age
        meter._baseline = Usage(0.0, 0.0, 0.0, 0, 0, meter._baseline.watt_seconds, 0)
        if meter._memory is not None:
            meter._gigabyte_seconds = meter._memory / 2 * age / GIGABYTE  # it has grown from nothing
        return meter

    def read(self) -> Usage:
        now = time.monotonic()
        self._add_memory_seconds(now)
        return _read_counters(now - self._started, self._gigabyte_seconds) - self._baseline

    def _add_memory_seconds(self, now: float) -> None:
        """As if it had grown evenly since somebody looked last. A look that fails leaves it unknown for good."""
        before, self._memory = self._memory, _memory_bytes()
        if self._gigabyte_seconds is None or before is None or self._memory is None:
            self._gigabyte_seconds = None
        else:
            self._gigabyte_seconds += (before + self._memory) / 2 * (now - self._sampled) / GIGABYTE
        self._sampled = now


@dataclass
class RunUsage:
    """What a run uses in this process, and how much of it is its keys'."""

    meter: Meter
    key_usage: Usage | None = None

    def add(self, usage: Usage) -> None:
        self.key_usage = usage if self.key_usage is None else self.key_usage + usage

    def overhead(self) -> Usage:
        used = self.meter.read()
        return used if self.key_usage is None else used - self.key_usage


def _process_age_seconds() -> float:
    """How long this process has been there; 0 where nobody knows."""
    try:
        ticks = _read_proc_file("stat").rpartition(b")")[2].split()[19]
        began = int(ticks) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


def _read_counters(wall_seconds: float, gigabyte_seconds: float | None = 0.0) -> Usage:
    """As they stand, since this process began."""
    read, written = _file_bytes()
    received, sent = traffic.received, traffic.sent
    return Usage(
        wall_seconds,
        _cpu_seconds(),
        gigabyte_seconds,
        _sum(read, received),
        _sum(written, sent),
        machine_watt_seconds(),
        received + sent,
    )


def _cpu_seconds() -> float | None:
    try:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime
    except OSError:
        return None


def _memory_bytes() -> int | None:
    """Resident memory of this process."""
    try:
        return int(_read_proc_file("statm").split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return _memory_bytes_by_psutil()


def _memory_bytes_by_psutil() -> int | None:
    """Where there is no /proc."""
    import psutil  # type: ignore[import-untyped]

    try:
        return int(psutil.Process().memory_info().rss)
    except (psutil.Error, OSError):
        return None


def _file_bytes() -> tuple[int | None, int | None]:
    """What this process and its ended children have read and written; sockets are not in it."""
    try:
        fields = _read_proc_file("io").split()
        return int(fields[1]), int(fields[3])
    except (OSError, ValueError, IndexError):
        return None, None


def _read_proc_file(name: str) -> bytes:
    """A file of /proc, opened anew each time: after a fork an open one would tell of the parent."""
    descriptor = os.open(f"/proc/self/{name}", os.O_RDONLY)
    try:
        return os.read(descriptor, MAX_PROC_BYTES)
    finally:
        os.close(descriptor)


def _sum(one: T | None, other: T | None) -> T | None:
    return None if one is None or other is None else one + other


def _difference(one: T | None, other: T | None) -> T | None:
    return None if one is None or other is None else one - other
