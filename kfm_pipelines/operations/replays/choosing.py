"""Which keys a replay is over, each with the reason why, or the reason why not. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.events import key_of, window_of
from kfm_pipelines.state.replayable import KnownKey, NewKey
from kfm_pipelines.state.replays import PlannedKey

FIELDS: Mapping[str, str] = {
    "state": "published, failed or unpublished",
    "version": "a transform version",
    "partition": "a partition of the dataset's stream",
    "late": "yes or no",
}
STATES = ("published", "failed", "unpublished")


@dataclass(frozen=True, slots=True)
class Where:
    """Conditions on keys; all of them have to hold."""

    conditions: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, written: Iterable[str]) -> "Where":
        """FIELD=VALUE each; ReplayRefused when one makes no sense."""
        return cls(tuple(_condition(one) for one in written))

    def holds(self, known: KnownKey) -> bool:
        return all(_holds(known, field, value) for field, value in self.conditions)

    def as_list(self) -> list[str]:
        return [f"{field}={value}" for field, value in self.conditions]


EVERY_KEY = Where()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What no key of a plan may be beyond."""

    watermark: datetime | None
    killed: str | None = None

    def why_not(self, window_end: datetime) -> str | None:
        if self.killed:
            return self.killed
        if self.watermark is None:
            return "no window of the dataset is closed yet"
        if window_end > self.watermark:
            return f"its window is not closed: the watermark is {self.watermark:%Y-%m-%dT%H:%M:%SZ}"
        return None


def choose_again(dataset: Dataset, known: Sequence[KnownKey], bounds: Bounds) -> list[PlannedKey]:
    """For a reproduction: every key as it is."""
    return [_again(dataset, one, bounds) for one in known]


def choose_upgrades(
    dataset: Dataset, known: Sequence[KnownKey], bounds: Bounds
) -> tuple[list[PlannedKey], list[NewKey]]:
    """For an upgrade: each window that is published by another version, as a key of the declared one."""
    version = dataset.key.transform_version
    there = {one.key: one for one in known if one.version == version}
    sources: dict[str, KnownKey] = {}
    for one in known:
        target = str(key_of(dataset, window_of(one.window_start, dataset.key.window)))
        if one.version != version and _is_newer(one, sources.get(target)):
            sources[target] = one
    chosen = [_upgraded(target, one, there.get(target), bounds) for target, one in sources.items()]
    others = [PlannedKey(key, f"is of version {version} already", left_out=True) for key in there if key not in sources]
    new = [NewKey(target, one.window_start, one.window_end, one.key) for target, one in sources.items()]
    return [*chosen, *others], new


def _again(dataset: Dataset, one: KnownKey, bounds: Bounds) -> PlannedKey:
    left_out = bounds.why_not(one.window_end)
    if left_out is None and one.revision is None and one.version != dataset.key.transform_version:
        left_out = f"is of version {one.version}, which is not declared any more, and was never published"
    if left_out is None and not one.events and one.revision is None:
        left_out = "no object of its window is known"
    return PlannedKey(one.key, left_out or _why(one), left_out=left_out is not None)


def _why(one: KnownKey) -> str:
    published = f"published, revision {one.revision}" if one.revision else "never published"
    if one.failed:
        return f"dead-lettered; {published}"
    return published if one.revision else "registered, not run"


def _upgraded(target: str, one: KnownKey, there: KnownKey | None, bounds: Bounds) -> PlannedKey:
    left_out = bounds.why_not(one.window_end)
    if left_out is None and one.revision is None:
        left_out = f"was never published by version {one.version}"
    if left_out is None and there is not None and there.revision:
        left_out = f"is published already, revision {there.revision}"
    return PlannedKey(
        target, left_out or f"of version {one.version}, revision {one.revision}", one.key, left_out is not None
    )


def _is_newer(one: KnownKey, other: KnownKey | None) -> bool:
    if other is None or other.published_at is None:
        return True
    return one.published_at is not None and one.published_at > other.published_at


def _condition(written: str) -> tuple[str, str]:
    field, equals, value = written.partition("=")
    if not equals or field not in FIELDS or not value:
        known = ", ".join(f"{name} ({meaning})" for name, meaning in FIELDS.items())
        raise ReplayRefused(f"{written[:100]!r} is no condition; write FIELD=VALUE with one of {known}")
    if (field == "state" and value not in STATES) or (field == "late" and value not in ("yes", "no")):
        raise ReplayRefused(f"{field} must be {FIELDS[field]}, not {value[:100]!r}")
    return field, value


def _holds(known: KnownKey, field: str, value: str) -> bool:
    match field:
        case "state":
            return {"published": known.revision is not None, "failed": known.failed,
                    "unpublished": known.revision is None}[value]  # fmt: skip
        case "version":
            return known.version == value
        case "partition":
            return value in known.partitions
        case _:
            return (known.late > 0) == (value == "yes")
