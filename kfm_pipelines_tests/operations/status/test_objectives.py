"""Objectives are read from one file, and a mistake in it is refused."""

from datetime import timedelta
from pathlib import Path

import pytest

from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.operations.status.objectives import SLO_FILE, Objective, format_prometheus_duration, load_objectives
from kfm_pipelines.settings import shipped_path


def test_the_shipped_objectives() -> None:
    promised = load_objectives(shipped_path("resources"))

    percents = {name: one.percent for name, one in promised.objectives.items()}
    assert percents == {"success": 99.0, "latency": 95.0, "duplicates": 99.0}
    assert (promised.latency_seconds, promised.double_applies) == (300, 0)
    assert [(one.label, one.length, one.factor) for one in promised.windows] == [
        ("5m", timedelta(minutes=5), 14.4),
        ("30m", timedelta(minutes=30), 6.0),
        ("1h", timedelta(hours=1), 14.4),
        ("6h", timedelta(hours=6), 6.0),
    ]
    assert [(one.short.label, one.long.label, one.severity) for one in promised.burn_alerts] == [
        ("5m", "1h", "page"),
        ("30m", "6h", "ticket"),
    ]


def test_a_budget_used_up_exactly_burns_at_one() -> None:
    assert Objective("success", 99.0).burn_rate(bad=1, total=100) == pytest.approx(1)
    assert Objective("latency", 95.0).burn_rate(bad=1, total=10) == pytest.approx(2)
    assert Objective("success", 99.0).burn_rate(bad=0, total=0) == 0


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
