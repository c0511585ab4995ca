"""What a piece of work used: time, processor time with that of child processes, memory, bytes moved."""

import resource
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """What was measured. None is not known, which is not nothing."""

    wall_seconds: float
    cpu_seconds: float | None
    gigabyte_seconds: float | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None


class Meter:
    """Measures from when it is made until it is asked."""

    def __init__(self) -> None:
        self._wall = time.monotonic()
        self._cpu = _cpu_seconds()

    def read(self) -> Usage:
        return Usage(time.monotonic() - self._wall, _cpu_seconds() - self._cpu)


def _cpu_seconds() -> float:
    """Of this process and of the children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
