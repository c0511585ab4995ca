"""Usage includes ended children, memory and bytes; what cannot be read is unknown. Energy counters are summed."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from kfm_pipelines.aws.clients import traffic
from kfm_pipelines.energy import meter
from kfm_pipelines.energy.meter import MachineCounter, Meter, Usage, machine_watt_seconds, open_rapl_reader

MEGABYTE = 1_000_000
WATT_SECOND = 1 / 3_600_000  # in kWh
BUSY = "import time\nwhile time.process_time() < 0.3: pass\nopen('/dev/null', 'wb').write(bytes(3_000_000))"


def test_a_child_that_has_ended_counts() -> None:
    measured = Meter()
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    used = measured.read()
    assert used.cpu_seconds is not None
    assert used.cpu_seconds >= 0.3
    assert (used.wall_seconds or 0.0) >= 0.3
    assert (used.bytes_written or 0) >= 3 * MEGABYTE


def test_bytes_include_files_and_the_network(tmp_path: Path) -> None:
    measured = Meter()
    (tmp_path / "file").write_bytes(bytes(2 * MEGABYTE))
    (tmp_path / "file").read_bytes()
    traffic.add(received=5 * MEGABYTE, sent=MEGABYTE)
    used = measured.read()
    assert used.network_bytes == 6 * MEGABYTE
    assert 7 * MEGABYTE <= (used.bytes_read or 0) < 8 * MEGABYTE
    assert 3 * MEGABYTE <= (used.bytes_written or 0) < 4 * MEGABYTE


def test_memory_counts_while_it_is_held() -> None:
    empty = Meter()
    time.sleep(0.05)
    without = empty.read()
    block = bytearray(200 * MEGABYTE)
    block[:] = b"x" * len(block)
    full = Meter()
    time.sleep(0.05)
    used = full.read()
    assert used.gigabyte_seconds is not None
    assert without.gigabyte_seconds is not None
    assert used.wall_seconds
    assert without.wall_seconds
    more = used.gigabyte_seconds / used.wall_seconds - without.gigabyte_seconds / without.wall_seconds
    assert more == pytest.approx(len(block) / 1e9, rel=0.3)


def test_parts_add_up_to_the_whole() -> None:
    measured = Meter()
    one, two, whole = measured.read(), measured.read(), measured.read()
    parts = (one, two - one, whole - two)
    assert all(min(_numbers(part)) >= 0 for part in parts)
    assert _numbers(parts[0] + parts[1] + parts[2]) == pytest.approx(_numbers(whole))
    assert whole.missing == ()


def _numbers(one: Usage) -> list[float]:
    return [getattr(one, field.name) for field in fields(Usage) if field.name != "watt_seconds"]


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    known, unknown = Usage(1, 2.0, 3.0, 4, 5, 6.0, 7), Usage(1, None)
    assert known + known == Usage(2, 4.0, 6.0, 8, 10, 12.0, 14)
    assert known - known == Usage(0, 0.0, 0.0, 0, 0, 0.0, 0)
    for result in (known + unknown, unknown + known):
        assert result == Usage(2, None)
    assert known - unknown == Usage(0, None)


def test_what_cannot_be_read_is_unknown_and_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: str) -> bytes:
        raise PermissionError

    monkeypatch.setattr(meter, "_read_proc", denied)
    used = Meter().read()
    assert (used.bytes_read, used.bytes_written) == (None, None)
    assert used.cpu_seconds is not None
    assert used.missing == ("gigabyte_seconds",)


def test_memory_that_could_not_be_read_once_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Meter()
    with monkeypatch.context() as patch:
        patch.setattr(meter, "_memory_bytes", lambda: None)
        assert measured.read().gigabyte_seconds is None
    assert measured.read().gigabyte_seconds is None


class Readings:
    """Returns one reading after the other."""

    def __init__(self, *readings: Mapping[str, float]) -> None:
        self._readings = iter(readings)

    def __call__(self) -> Mapping[str, float]:
        return next(self._readings)


def packages(*watt_seconds: float) -> dict[str, float]:
    return {f"package-{number}": one * WATT_SECOND for number, one in enumerate(watt_seconds)}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = 0.0

    def pass_seconds(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(meter.time, "monotonic", lambda: now)  # type: ignore[attr-defined]
    return pass_seconds


def test_all_processors_are_added_up() -> None:
    counter = MachineCounter(Readings(packages(9, 9), packages(2, 3), packages(0, 1)))
    assert counter.watt_seconds() == pytest.approx(5)
    assert counter.watt_seconds() == pytest.approx(6)


@pytest.mark.parametrize("lost", [{}, packages(1), packages(1, -1)])
def test_a_lost_counter_stays_unknown(lost: dict[str, float]) -> None:
    counter = MachineCounter(Readings(packages(0, 0), packages(2, 3), lost, packages(2, 3)))
    assert [counter.watt_seconds() for _ in range(3)] == [pytest.approx(5), None, None]


def test_a_counter_that_stands_still_is_lost(clock: Callable[[float], None]) -> None:
    """codecarbon reports a failed reading as zero."""
    counter = MachineCounter(Readings(packages(0, 0), packages(0, 1), packages(1, 1), packages(1, 0)))
    for seconds, expected in ((0.05, 1), (5.0, 3), (5.0, None)):
        clock(seconds)
        assert counter.watt_seconds() == (None if expected is None else pytest.approx(expected))


def test_without_counters_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_rapl_reader(tmp_path / "powercap") is None
    assert MachineCounter(Readings({})).watt_seconds() is None
    monkeypatch.setattr(meter, "POWERCAP", tmp_path / "powercap")
    meter._counter.cache_clear()
    assert machine_watt_seconds() is None
    meter._counter.cache_clear()


def test_counters_are_read_from_a_folder_like_that_of_linux(tmp_path: Path) -> None:
    pytest.importorskip("codecarbon", reason="the extra `energy` is not installed")
    for number, microjoules in ((0, 1_000_000), (1, 77_000_000)):
        rapl(tmp_path, number, microjoules)
    rapl(tmp_path, 0, 500_000, part="core")
    readings = open_rapl_reader(tmp_path)
    assert readings is not None
    counter = MachineCounter(readings)
    rapl(tmp_path, 0, 6_000_000)
    rapl(tmp_path, 0, 4_500_000, part="core")
    rapl(tmp_path, 1, 80_000_000)
    assert counter.watt_seconds() == pytest.approx(8, rel=1e-5)  # cores are in their package
    rapl(tmp_path, 0, 1_000_000)  # it wraps around at 100 Ws
    assert counter.watt_seconds() == pytest.approx(8 + 95, rel=1e-5)


def test_unreadable_counters_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """codecarbon would guess from the processor's name, which is not a measurement."""
    pytest.importorskip("codecarbon", reason="the extra `energy` is not installed")
    rapl(tmp_path, 0, 1_000_000)
    (tmp_path / "intel-rapl" / "intel-rapl:0" / "energy_uj").write_text("no number")
    monkeypatch.setattr(meter, "POWERCAP", tmp_path)
    meter._counter.cache_clear()
    assert machine_watt_seconds() is None
    meter._counter.cache_clear()


def rapl(powercap: Path, number: int, microjoules: int, part: str | None = None) -> None:
    """Writes a counter like the kernel's."""
    folder = powercap / "intel-rapl" / f"intel-rapl:{number}"
    if part:
        folder = folder / f"intel-rapl:{number}:0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{part or f'package-{number}'}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text("100000000\n")
