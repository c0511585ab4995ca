"""Service level objectives and burn rates, from `resources/slo.yaml`. A test compares the alert rules with them."""

from collections.abc import Mapping
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
_MAX_WINDOW_HOURS: Mapping[WindowLength, int] = {
    "hour": 1,
    "day": 24,
    "week": 7 * 24,
    "month": 31 * 24,
    "year": 366 * 24,
}


class _BurnAlert(DeclarationModel):
    """Alerts when the burn rates of both periods exceed the factor."""

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
    events: Annotated[int, Field(ge=1)]  # fewer in the long window raise no alert
    windows: Annotated[list[_BurnAlert], Field(min_length=1)]


class _PercentsGood(DeclarationModel):
    success: PercentGood
    latency: PercentGood
    duplicates: PercentGood


class Objectives(DeclarationModel):
    latency: Duration
    objectives: _PercentsGood
    double_applies: Annotated[int, Field(ge=0)]
    burn: _BurnSettings

    @property
    def windows(self) -> list[timedelta]:
        """The periods of all burn rates, shortest first."""
        return sorted(length for alert in self.burn.windows for length in (alert.short, alert.long))


def load_objectives(resources: Path) -> Objectives:
    return load_model(Objectives, resources / SLO_FILE)


def error_budget(percent_good: float) -> float:
    """Returns the share that may fail."""
    return (100 - percent_good) / 100


def burn_rate(percent_good: float, bad: float, total: float) -> float:
    """A rate of 1 uses up the budget exactly; no events use none of it."""
    return bad / total / error_budget(percent_good) if total else 0.0


def lag_target(dataset: Dataset) -> timedelta | None:
    """Returns allowed disorder, open window and time to publish; None without a freshness objective."""
    if dataset.slo.freshness is None:
        return None
    window = timedelta(hours=_MAX_WINDOW_HOURS[dataset.key.window])
    return dataset.watermark.out_of_order + window + dataset.slo.freshness


def format_prometheus_duration(length: timedelta) -> str:
    unit, one = next((unit, one) for unit, one in _UNITS.items() if not length % one)
    return f"{length // one}{unit}"
