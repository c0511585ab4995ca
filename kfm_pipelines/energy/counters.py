"""The machine's own energy counters (RAPL), read by codecarbon where it is installed and they can be read.

They count the whole machine's processors, whoever they worked for, and neither memory nor the data centre around them.
codecarbon's guesses for machines without counters are not used: what is guessed here says so, see `energy`.
"""

import logging
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Protocol

POWERCAP = Path("/sys/class/powercap/intel-rapl/subsystem")
WATT_SECONDS_PER_KWH = 3_600_000
# A processor that is on draws something. Counters are renewed every millisecond; one that stands still for as long as
# this was not read.
STUCK_SECONDS = 0.1

log = logging.getLogger(__name__)


class CounterReader(Protocol):
    """What counters have gone on since they were asked last, in kWh by the name of each."""

    def __call__(self) -> Mapping[str, float]: ...


class MachineCounter:
    """Adds up what the counters tell. Once one of them was lost, what came meanwhile is, so that it tells no more."""

    def __init__(self, read: CounterReader) -> None:
        self._read = read
        self._lock = Lock()
        self._names = frozenset(read())
        self._total = 0.0
        self._last_advanced = dict.fromkeys(self._names, time.monotonic())
        self._lost = not self._names

    def watt_seconds(self) -> float | None:
        """Since it was made; None when that is not known."""
        with self._lock:
            if not self._lost:
                self._add(self._read(), time.monotonic())
            return None if self._lost else self._total

    def _add(self, readings: Mapping[str, float], now: float) -> None:
        self._total += WATT_SECONDS_PER_KWH * sum(readings.values())
        self._last_advanced.update((name, now) for name, kwh in readings.items() if kwh > 0)
        stuck = any(now - moved > STUCK_SECONDS for moved in self._last_advanced.values())
        self._lost = stuck or readings.keys() != self._names or min(readings.values()) < 0
        if self._lost:
            log.warning("the machine's energy counters cannot be read any more; energy is estimated from now on")


def machine_watt_seconds() -> float | None:
    """What the machine's processors have drawn since this process first asked; None where nothing counts it."""
    counter = _counter()
    return counter.watt_seconds() if counter else None


@cache
def _counter() -> MachineCounter | None:
    """Of this process, looked for once."""
    readings = open_rapl_reader(POWERCAP)
    counter = MachineCounter(readings) if readings else None
    return counter if counter and counter.watt_seconds() is not None else None


def open_rapl_reader(powercap: Path) -> CounterReader | None:
    """What reads the counters in that folder; None without codecarbon, without counters, or when they are forbidden."""
    if not powercap.exists():
        return None
    try:
        from codecarbon.core.cpu import IntelRAPL, is_rapl_available
        from codecarbon.core.units import Time

        logging.getLogger("codecarbon").setLevel(logging.ERROR)  # it thinks aloud on stderr
        if not is_rapl_available(str(powercap)):
            return None
        rapl = IntelRAPL(str(powercap))
        rapl.start()
    except Exception as error:  # noqa: BLE001 - it is not installed, or not as it was: then energy is estimated
        log.info("no energy counters: %s", type(error).__name__)
        return None
    one_second = Time.from_seconds(1)  # only power follows from it, which nobody asks for

    def readings() -> Mapping[str, float]:
        told: Mapping[str, float] = rapl.get_cpu_details(one_second)
        return {name: kwh for name, kwh in told.items() if "Energy" in name}

    return readings
