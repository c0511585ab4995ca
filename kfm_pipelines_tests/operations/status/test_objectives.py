"""Objectives are read from one file, and a mistake in it is refused."""

from datetime import timedelta
from pathlib import Path

import pytest

from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.operations.status.objectives import SLO_FILE, burn_rate, format_prometheus_duration, load_objectives
from kfm_pipelines.settings import shipped_path


def test_the_shipped_objectives() -> None:
    promised = load_objectives(shipped_path("resources"))

    assert dict(promised.objectives) == {"success": 99.0, "latency": 95.0, "duplicates": 99.0}
    assert (promised.latency, promised.double_applies) == (timedelta(minutes=5), 0)
    assert promised.windows == [timedelta(minutes=minutes) for minutes in (5, 30, 60, 360)]
    assert [(one.short, one.long, one.factor, one.severity) for one in promised.burn.windows] == [
        (timedelta(minutes=5), timedelta(hours=1), 14.4, "page"),
        (timedelta(minutes=30), timedelta(hours=6), 6.0, "ticket"),
    ]


def test_a_budget_used_up_exactly_burns_at_one() -> None:
    assert burn_rate(99.0, bad=1, total=100) == pytest.approx(1)
    assert burn_rate(95.0, bad=1, total=10) == pytest.approx(2)
    assert burn_rate(99.0, bad=0, total=0) == 0


@pytest.mark.parametrize(("minutes", "written"), [(5, "5m"), (60, "1h"), (90, "90m"), (2880, "2d"), (0.5, "30s")])
def test_durations_are_formatted_for_prometheus(minutes: float, written: str) -> None:
    assert format_prometheus_duration(timedelta(minutes=minutes)) == written


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("success: 99.0", "success: 100.0", r"slo\.yaml: objectives\.success"),
        ("short: 5 min", "short: 2 h", "short must be shorter than long"),
        ("severity: page", "severity: loud", r"burn\.windows\.0\.severity"),
        ("latency: 5 min", "latency: soon", "must be a number and a unit"),
        ("double_applies: 0\n", "", "double_applies"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    text = (shipped_path("resources") / SLO_FILE).read_text()
    assert right in text
    (tmp_path / SLO_FILE).write_text(text.replace(right, wrong, 1))
    with pytest.raises(DeclarationInvalid, match=message):
        load_objectives(tmp_path)
