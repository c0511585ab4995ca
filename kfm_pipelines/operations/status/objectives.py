"""Service level objectives and burn rates, from `resources/slo.yaml`. A test compares the alert rules with them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kfm_pipelines.declarations import DeclarationModel, Duration, WindowLength
from kfm_pipelines.declarations.dataset import Dataset, load_model

SLO_FILE = "slo.yaml"
AlertSeverity = Literal["page", "ticket"]
# 100 would leave an error budget of 0 to divide by.
PercentGood = Annotated[float, Field(gt=0, lt=100)]
_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1), "s": timedelta(seconds=1)}
_MAX_WINDOW_HOURS: Mapping[WindowLength, int] = {"hour": 1, "day": 24, "month": 31 * 24}


@dataclass(frozen=True, slots=True)
class Objective:
    name: str
    percent: float

    @property
    def budget(self) -> float:
        """The share that may fail."""
        return (100 - self.percent) / 100

    def burn_rate(self, bad: float, total: float) -> float:
        """A rate of 1 uses up the budget exactly; no events use none of it."""
        return bad / total / self.budget if total else 0.0


@dataclass(frozen=True, slots=True)
class BurnWindow:
    """The period of a burn rate, and the rate above which it alerts."""

    label: str  # Prometheus duration: 5m, 1h
    length: timedelta
    factor: float


@dataclass(frozen=True, slots=True)
class BurnAlert:
    """Alerts when both windows exceed their rate."""

    short: BurnWindow
    long: BurnWindow
    severity: AlertSeverity


@dataclass(frozen=True, slots=True)
class Objectives:
    objectives: Mapping[str, Objective]
    latency_seconds: float
    double_applies: int
    burn_alerts: tuple[BurnAlert, ...]
    min_events: int  # fewer in the long window raise no alert

    @property
    def windows(self) -> tuple[BurnWindow, ...]:
        both = [window for burn in self.burn_alerts for window in (burn.short, burn.long)]
        return tuple(sorted(both, key=lambda window: window.length))


class _BurnAlertSettings(DeclarationModel):
    short: Duration
    long: Duration
    factor: Annotated[float, Field(gt=1)]
    severity: AlertSeverity

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if not timedelta(0) < self.short < self.long:
            raise ValueError("short must be shorter than long")
        return self


class _BurnSettings(DeclarationModel):
    events: Annotated[int, Field(ge=1)]
    windows: Annotated[list[_BurnAlertSettings], Field(min_length=1)]


class _ObjectiveSettings(DeclarationModel):
    success: PercentGood
    latency: PercentGood
    duplicates: PercentGood


class _SloFile(DeclarationModel):
    latency: Duration
    objectives: _ObjectiveSettings
    double_applies: Annotated[int, Field(ge=0)]
    burn: _BurnSettings


def load_objectives(resources: Path) -> Objectives:
    declared = load_model(_SloFile, resources / SLO_FILE)
    return Objectives(
        objectives={name: Objective(name, percent) for name, percent in declared.objectives},
        latency_seconds=declared.latency.total_seconds(),
        double_applies=declared.double_applies,
        burn_alerts=tuple(_burn_alert(one) for one in declared.burn.windows),
        min_events=declared.burn.events,
    )


def lag_target(dataset: Dataset) -> timedelta | None:
    """Returns allowed disorder, open window and time to publish; None without a freshness objective."""
    if dataset.slo.freshness is None:
        return None
    window = timedelta(hours=_MAX_WINDOW_HOURS[dataset.key.window])
    return dataset.watermark.out_of_order + window + dataset.slo.freshness


def _burn_alert(settings: _BurnAlertSettings) -> BurnAlert:
    short, long = (
        BurnWindow(format_prometheus_duration(length), length, settings.factor)
        for length in (settings.short, settings.long)
    )
    return BurnAlert(short, long, settings.severity)


def format_prometheus_duration(length: timedelta) -> str:
    unit, one = next((unit, one) for unit, one in _UNITS.items() if not length % one)
    return f"{length // one}{unit}"
