"""The alert rules as they are shipped, and Prometheus's own tool to try them on series."""

import shutil
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfm_pipelines.settings import shipped

RULES = shipped("resources") / "alerts" / "kfm.rules.yaml"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool, of Prometheus, is not installed")
LONG_MINUTES = 600

Series = Mapping[str, str]  # a series by its name and labels, and its values a minute apart, as promtool has them


@dataclass(frozen=True, slots=True, order=True)
class Fires:
    """An alert that fires, once for each set of labels that it has it for."""

    alert: str
    severity: str
    times: int = 1


@cache
def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def assert_fires(folder: Path, series: Series, minute: int, expected: Collection[Fires]) -> None:
    """That these alerts fire in that minute, and no others."""
    assert PROMTOOL is not None
    firing = {
        "expr": 'count by (alertname, severity) (ALERTS{alertstate="firing"})',
        "eval_time": f"{minute}m",
        "exp_samples": [
            {"labels": f'{{alertname="{one.alert}", severity="{one.severity}"}}', "value": one.times}
            for one in sorted(expected)
        ],
    }
    # A day of minutes takes promtool six seconds.
    every = "1m" if minute < LONG_MINUTES else "5m"
    told = [{"series": name, "values": values} for name, values in series.items()]
    case = {"interval": "1m", "input_series": told, "promql_expr_test": [firing]}
    path = folder / "case.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": every, "tests": [case]}))
    tried = subprocess.run([PROMTOOL, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stdout + tried.stderr
