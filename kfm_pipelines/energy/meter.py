"""Measures what work used here and in ended children, without Postgres, queues, mapped files and GPUs."""

import logging
import os
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import psutil  # type: ignore[import-untyped]

from kfm_pipelines.aws.clients import traffic

GIGABYTE = 1e9
PAGE_SIZE = resource.getpagesize()
POWERCAP = Path("/sys/class/powercap/intel-rapl/subsystem")
WATT_SECONDS_PER_KWH = 3_600_000
# Counters advance every millisecond, so one that stands still for this long was not read.
STUCK_SECONDS = 0.1

CounterReader = Callable[[], Mapping[str, float]]  # kWh since the last call, by counter

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Usage:
    """None is unknown, and makes every sum unknown. `network_bytes` are S3's, `watt_seconds` the whole machine's."""

    wall_seconds: float | None
    cpu_seconds: float | None
    gigabyte_seconds: float | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    watt_seconds: float | None = None
    network_bytes: int | None = None

    def __add__(self, other: "Usage") -> "Usage":
        return self._combine(other, 1)

    def __sub__(self, other: "Usage") -> "Usage":
        return self._combine(other, -1)

    def _combine(self, other: "Usage", sign: int) -> "Usage":
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(Usage))
        return Usage(*(None if one is None or more is None else one + sign * more for one, more in pairs))

    def share(self, parts: int) -> "Usage":
        """Returns one of so many equal parts; bytes that cannot be divided are left out."""
        values = (getattr(self, field.name) for field in fields(Usage))
        return Usage(*(one // parts if isinstance(one, int) else one and one / parts for one in values))

    @property
    def missing(self) -> tuple[str, ...]:
        """The inputs of an estimate that could not be read."""
        parts = ("cpu_seconds", "gigabyte_seconds", "network_bytes")
        return tuple(part for part in parts if getattr(self, part) is None)


class Meter:
    """Measures from its creation until it is read. Cheap: every stage of every key has one. Invalid after a fork."""

    def __init__(self) -> None:
        self._started = self._sampled = time.monotonic()
        self._baseline = _read_counters(0.0)
        self._memory = _memory_bytes()
        self._gigabyte_seconds: float | None = None if self._memory is None else 0.0

    @classmethod
    def since_process_start(cls) -> "Meter":
        meter = cls()
        age = max(0.0, time.time() - psutil.Process().create_time())
        meter._started -= age
        meter._baseline = Usage(0.0, 0.0, 0.0, 0, 0, meter._baseline.watt_seconds, 0)
        if meter._memory is not None:
            meter._gigabyte_seconds = meter._memory / 2 * age / GIGABYTE  # it grew from nothing
        return meter

    def read(self) -> Usage:
        now = time.monotonic()
        # Assumes linear growth since the last sample. A failed sample makes the sum unknown for good.
        before, self._memory = self._memory, _memory_bytes()
        if self._gigabyte_seconds is None or before is None or self._memory is None:
            self._gigabyte_seconds = None
        else:
            self._gigabyte_seconds += (before + self._memory) / 2 * (now - self._sampled) / GIGABYTE
        self._sampled = now
        return _read_counters(now - self._started, self._gigabyte_seconds) - self._baseline


@dataclass
class RunUsage:
    """What a run uses in this process, and how much of it belongs to its keys."""

    meter: Meter
    key_usage: Usage | None = None

    def add(self, usage: Usage) -> None:
        self.key_usage = usage if self.key_usage is None else self.key_usage + usage

    def overhead(self) -> Usage:
        used = self.meter.read()
        return used if self.key_usage is None else used - self.key_usage


def _read_counters(wall_seconds: float, gigabyte_seconds: float | None = 0.0) -> Usage:
    read, written = _file_bytes()
    received, sent = traffic.received, traffic.sent
    return Usage(
        wall_seconds,
        _cpu_seconds(),
        gigabyte_seconds,
        None if read is None else read + received,
        None if written is None else written + sent,
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
    try:
        return int(_read_proc("statm").split()[1]) * PAGE_SIZE
    except (OSError, ValueError, IndexError):
        return None


def _file_bytes() -> tuple[int | None, int | None]:
    """Returns the bytes this process and its ended children read and wrote, without sockets; None where not counted."""
    try:
        counters = dict(line.split(b": ") for line in _read_proc("io").splitlines())
        return int(counters[b"rchar"]), int(counters[b"wchar"])
    except (OSError, ValueError, KeyError):
        return None, None


def _read_proc(name: str) -> bytes:
    """Reads a file of Linux about this process, four times faster than psutil, which opens it each time."""
    return os.pread(_proc_file(os.getpid(), name), 4096, 0)


@cache
def _proc_file(pid: int, name: str) -> int:
    """Kept open. After a fork, that of the parent would be the wrong one."""
    return os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)


class MachineCounter:
    """Sums the machine's energy counters (RAPL). Once a reading is lost, the sum is unknown for good."""

    def __init__(self, read: CounterReader) -> None:
        self._read = read
        self._lock = Lock()
        self._names = frozenset(read())
        self._total = 0.0
        self._last_advanced = dict.fromkeys(self._names, time.monotonic())
        self._lost = not self._names

    def watt_seconds(self) -> float | None:
        with self._lock:
            if not self._lost:
                self._add(self._read(), time.monotonic())
            return None if self._lost else self._total

    def _add(self, readings: Mapping[str, float], now: float) -> None:
        self._total += WATT_SECONDS_PER_KWH * sum(readings.values())
        self._last_advanced.update((name, now) for name, kwh in readings.items() if kwh > 0)
        is_stuck = any(now - advanced > STUCK_SECONDS for advanced in self._last_advanced.values())
        self._lost = is_stuck or readings.keys() != self._names or min(readings.values()) < 0
        if self._lost:
            log.warning("the machine's energy counters can no longer be read; energy is estimated from now on")


def machine_watt_seconds() -> float | None:
    """Returns what all processors have drawn since the first call, whatever they worked on; None without counters."""
    counter = _counter()
    return counter.watt_seconds() if counter else None


@cache
def _counter() -> MachineCounter | None:
    reader = open_rapl_reader(POWERCAP)
    counter = MachineCounter(reader) if reader else None
    return counter if counter and counter.watt_seconds() is not None else None


def open_rapl_reader(powercap: Path) -> CounterReader | None:
    """Returns None without codecarbon or readable counters. codecarbon's guesses for other machines are not used."""
    if not powercap.exists():
        return None
    try:
        from codecarbon.core.cpu import IntelRAPL, is_rapl_available
        from codecarbon.core.units import Time

        logging.getLogger("codecarbon").setLevel(logging.ERROR)  # it is chatty on stderr
        if not is_rapl_available(str(powercap)):
            return None
        rapl: Any = IntelRAPL(str(powercap))
        rapl.start()
    except Exception as error:  # noqa: BLE001 - not installed, or another version: energy is estimated
        log.info("no energy counters: %s", type(error).__name__)
        return None
    one_second = Time.from_seconds(1)  # affects only the power, which is not used
    return lambda: {name: kwh for name, kwh in rapl.get_cpu_details(one_second).items() if "Energy" in name}
