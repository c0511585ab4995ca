"""What a site tells of itself, before and after something has happened to it, as series that the rules can be tried on.

The time between is made up: before it the site is watched for two hours, after it nothing changes any more.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from kfm_pipelines.operations.vital_signs import take_vital_signs
from kfm_pipelines.telemetry.exposition import Exposition
from kfm_pipelines_tests.site import Site
from kfm_pipelines_tests.telemetry.rules import Fires, Series, assert_fires

WATCHED_MINUTES = 130  # a series counts as new when it was not there an hour and more ago
ALIVE = "telemetry_timestamp_seconds"
# Moments are shown on Prometheus's made-up clock, which begins in 1970.
MOMENTS = (ALIVE, "published_timestamp_seconds", "killed_timestamp_seconds")


@dataclass(frozen=True)
class Told:
    """Every series of a site, as Prometheus would scrape it now."""

    values: dict[str, float]
    at: float = field(default_factory=time.time)


def told_by(site: Site) -> Told:
    take_vital_signs(site.workshop, at_once=True)
    text = Exposition(site.workshop.settings.telemetry_folder).text().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return Told({_series(sample.name, sample.labels): sample.value for sample in samples})


class Watch:
    """A site that is watched from now on."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._site = site
        self._folder = folder
        self._before = told_by(site)

    def expect(self, *expected: Fires, after_minutes: int, silent: bool = False) -> None:
        """That exactly these fire so long after what has happened since. A silent site tells nothing any more."""
        after = told_by(self._site)
        series = _series_of(self._before, after, silent=silent)
        assert_fires(self._folder, series, WATCHED_MINUTES + after_minutes, expected)


def _series_of(before: Told, after: Told, *, silent: bool) -> Series:
    series = {
        name: f"{_values(name, before.values.get(name), after.at, WATCHED_MINUTES - 1)} "
        f"{_values(name, value, after.at, 2000)}"
        for name, value in after.values.items()
    }
    watched = f"0+60x{WATCHED_MINUTES}"
    series[ALIVE] = f"{watched} {WATCHED_MINUTES * 60}x2000" if silent else "0+60x3000"
    return series


def _values(name: str, value: float | None, now: float, times: int) -> str:
    """A value and as many more of the same, as promtool writes them."""
    if value is None:
        return f"_x{times + 1}"
    if name.startswith(MOMENTS) and value:
        value = value - now + WATCHED_MINUTES * 60
    return f"{value!r}x{times}"


def _series(name: str, labels: dict[str, str]) -> str:
    said = ", ".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{said}}}"
