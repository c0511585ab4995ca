"""The machine's own counters: added up as long as they can be read, and not a moment longer."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kfm_pipelines.energy import counters
from kfm_pipelines.energy.counters import MachineCounter, machine_watt_seconds, open_rapl_reader

WATT_SECOND = 1 / 3_600_000  # in kWh


class Told:
    """Counters that tell one thing after the other."""

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

    monkeypatch.setattr(counters.time, "monotonic", lambda: now)  # type: ignore[attr-defined]
    return pass_seconds


def test_all_processors_are_added_up() -> None:
    counter = MachineCounter(Told(packages(9, 9), packages(2, 3), packages(0, 1)))
    assert counter.watt_seconds() == pytest.approx(5)
    assert counter.watt_seconds() == pytest.approx(6)


@pytest.mark.parametrize("lost", [{}, packages(1), packages(1, -1)])
def test_a_counter_that_was_lost_tells_no_more(lost: dict[str, float]) -> None:
    """What it counted meanwhile is lost as well."""
    counter = MachineCounter(Told(packages(0, 0), packages(2, 3), lost, packages(2, 3)))
    assert [counter.watt_seconds() for _ in range(3)] == [pytest.approx(5), None, None]


def test_a_counter_that_stands_still_is_not_read(clock: Callable[[float], None]) -> None:
    """codecarbon tells nothing apart from what it could not read."""
    counter = MachineCounter(Told(packages(0, 0), packages(0, 1), packages(1, 1), packages(1, 0)))
    for seconds, told in ((0.05, 1), (5.0, 3), (5.0, None)):
        clock(seconds)
        assert counter.watt_seconds() == (None if told is None else pytest.approx(told))


def test_no_counter_is_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_rapl_reader(tmp_path / "powercap") is None
    assert MachineCounter(Told({})).watt_seconds() is None
    monkeypatch.setattr(counters, "POWERCAP", tmp_path / "powercap")
    counters._counter.cache_clear()
    assert machine_watt_seconds() is None
    counters._counter.cache_clear()


def test_counters_in_a_folder_as_linux_has_it(tmp_path: Path) -> None:
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
    rapl(tmp_path, 0, 1_000_000)  # it begins again at 100 Ws
    assert counter.watt_seconds() == pytest.approx(8 + 95, rel=1e-5)


def test_counters_that_say_nothing_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """codecarbon would guess by the processor's name; that is no measurement."""
    pytest.importorskip("codecarbon", reason="the extra `energy` is not installed")
    rapl(tmp_path, 0, 1_000_000)
    (tmp_path / "intel-rapl" / "intel-rapl:0" / "energy_uj").write_text("no number")
    monkeypatch.setattr(counters, "POWERCAP", tmp_path)
    counters._counter.cache_clear()
    assert machine_watt_seconds() is None
    counters._counter.cache_clear()


def rapl(powercap: Path, number: int, microjoules: int, part: str | None = None) -> None:
    """A counter as the kernel shows it."""
    folder = powercap / "intel-rapl" / f"intel-rapl:{number}"
    if part:
        folder = folder / f"intel-rapl:{number}:0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{part or f'package-{number}'}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text("100000000\n")
