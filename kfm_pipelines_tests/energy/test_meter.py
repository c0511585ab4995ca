"""What work used: its own time and its children's, its memory and its bytes; what cannot be read is None."""

import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from timeit import timeit

import pytest

from kfm_pipelines.aws.clients import traffic
from kfm_pipelines.energy import meter as usage
from kfm_pipelines.energy.meter import Meter, Usage

MEGABYTE = 1_000_000
BUSY = "import time\nwhile time.process_time() < 0.3: pass\nopen('/dev/null', 'wb').write(bytes(3_000_000))"


def test_a_child_that_has_ended_counts() -> None:
    meter = Meter()
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    used = meter.read()
    assert used.cpu_seconds is not None
    assert used.cpu_seconds >= 0.3
    assert (used.wall_seconds or 0.0) >= 0.3
    assert (used.bytes_written or 0) >= 3 * MEGABYTE


def test_bytes_are_those_of_files_and_of_the_network(tmp_path: Path) -> None:
    meter = Meter()
    (tmp_path / "file").write_bytes(bytes(2 * MEGABYTE))
    (tmp_path / "file").read_bytes()
    traffic.add(received=5 * MEGABYTE, sent=MEGABYTE)
    used = meter.read()
    assert used.network_bytes == 6 * MEGABYTE
    assert 7 * MEGABYTE <= (used.bytes_read or 0) < 8 * MEGABYTE
    assert 3 * MEGABYTE <= (used.bytes_written or 0) < 4 * MEGABYTE


def test_memory_counts_as_long_as_it_is_held() -> None:
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
    meter = Meter()
    one, two, whole = meter.read(), meter.read(), meter.read()
    parts = (one, two - one, whole - two)
    assert all(min(_numbers(part)) >= 0 for part in parts)
    assert _numbers(parts[0] + parts[1] + parts[2]) == pytest.approx(_numbers(whole))
    assert whole.missing == ()


def _numbers(one: Usage) -> list[float]:
    return [getattr(one, field.name) for field in fields(Usage) if field.name != "watt_seconds"]


def test_unknown_and_something_is_unknown() -> None:
    known, unknown = Usage(1, 2.0, 3.0, 4, 5, 6.0, 7), Usage(1, None)
    assert known + known == Usage(2, 4.0, 6.0, 8, 10, 12.0, 14)
    assert known - known == Usage(0, 0.0, 0.0, 0, 0, 0.0, 0)
    for result in (known + unknown, unknown + known):
        assert result == Usage(2, None)
    assert known - unknown == Usage(0, None)


def test_what_cannot_be_read_is_unknown_and_the_rest_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system without /proc, or where it is hidden."""

    def hidden(name: str) -> bytes:
        raise PermissionError(name)

    monkeypatch.setattr(usage, "_read_proc_file", hidden)
    used = Meter().read()
    assert (used.bytes_read, used.bytes_written) == (None, None)
    assert used.gigabyte_seconds is not None  # psutil knows another way
    assert used.cpu_seconds is not None
    monkeypatch.setattr(usage, "_memory_bytes_by_psutil", lambda: None)
    assert Meter().read().missing == ("gigabyte_seconds",)


def test_memory_that_could_not_be_read_once_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = Meter()
    with monkeypatch.context() as patch:
        patch.setattr(usage, "_memory_bytes", lambda: None)
        assert meter.read().gigabyte_seconds is None
    assert meter.read().gigabyte_seconds is None


def test_reading_costs_next_to_nothing() -> None:
    """It happens twice for every stage of every key; a few times the usual, for a machine that is busy."""
    meter = Meter()
    assert min(timeit(meter.read, number=100) for _ in range(5)) / 100 < 200e-6
