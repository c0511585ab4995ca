"""Chooses the keys of a replay and gives the reason for each one taken or left out. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.events import key_of, member_of_key, window_of
from kfm_pipelines.operations.replay.eligible import KnownKey, NewKey
from kfm_pipelines.state.replays import PlannedKey

FIELDS: Mapping[str, str] = {
    "state": "published, failed or unpublished",
    "version": "a transform version",
    "partition": "a partition of the dataset's stream",
    "late": "yes or no",
}
STATES = ("published", "failed", "unpublished")


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Conditions on keys, all of which must hold."""

    conditions: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "KeyFilter":
        return cls(tuple(_parse_condition(one) for one in texts))

    def matches(self, known: KnownKey) -> bool:
        return all(_matches(known, field, value) for field, value in self.conditions)


@dataclass(frozen=True, slots=True)
class ReplayLimits:
    watermark: datetime | None
    killed: str | None = None
    laxer: Mapping[str, str] = field(default_factory=dict)  # keys whose inputs may not be reused, and why

    def exclusion_reason(self, window_end: datetime) -> str | None:
        if self.killed:
            return self.killed
        if self.watermark is None:
            return "no window of the dataset is closed yet"
        if window_end > self.watermark:
            return f"its window is not closed: the watermark is {self.watermark:%Y-%m-%dT%H:%M:%SZ}"
        return None


def choose_upgrades(
    dataset: Dataset, known: Sequence[KnownKey], key_filter: KeyFilter, limits: ReplayLimits
) -> tuple[list[PlannedKey], list[NewKey]]:
    """Returns the planned keys and the keys to create. The filter applies to what may be upgraded."""
    version = dataset.key.transform_version
    there = {one.key: one for one in known if one.version == version}
    sources: dict[str, KnownKey] = {}
    unfit: list[PlannedKey] = []
    for one in (one for one in known if one.version != version and one.revision and key_filter.matches(one)):
        if why_not := _source_exclusion_reason(dataset, one, limits):
            unfit.append(PlannedKey(one.key, why_not, left_out=True))
            continue
        member = member_of_key(dataset, one.key)
        target = str(key_of(dataset, window_of(one.window_start, dataset.key.window), member))
        if _is_newer(one, sources.get(target)):
            sources[target] = one
    windows = {**{key: one for key, one in there.items() if key_filter.matches(one)}, **sources}
    ordered = sorted(windows, key=lambda key: (windows[key].window_start, key))
    chosen = [_plan_upgrade(key, sources.get(key), there.get(key), limits) for key in ordered]
    new = [NewKey(target, one.window_start, one.window_end) for target, one in sources.items()]
    return [*unfit, *chosen], new


def _source_exclusion_reason(dataset: Dataset, known: KnownKey, limits: ReplayLimits) -> str | None:
    """A key has a single source, so a source with another window would yield only part of the data."""
    window = window_of(known.window_start, dataset.key.window)
    if (window.start, window.end) != (known.window_start, known.window_end):
        return f"its window is not one {dataset.key.window}, as windows of {dataset.dataset} are now"
    if known.inputs_from and known.events:
        return f"its inputs are its own and those of {known.inputs_from}; upload its objects again"
    return limits.laxer.get(known.key)


def plan_reproduction(known: KnownKey, limits: ReplayLimits) -> PlannedKey:
    left_out = limits.exclusion_reason(known.window_end)
    if left_out is None and known.revision is None:
        left_out = (
            f"{_inclusion_reason(known)}: there is nothing to reproduce; --mode upgrade makes it with what is declared "
            "now"
        )
    return PlannedKey(known.key, left_out or _inclusion_reason(known), left_out=left_out is not None)


def _inclusion_reason(known: KnownKey) -> str:
    published = f"published, revision {known.revision}" if known.revision else "never published"
    if known.failed:
        return f"dead-lettered; {published}"
    return published if known.revision else "registered, not run"


def _plan_upgrade(key: str, source: KnownKey | None, existing: KnownKey | None, limits: ReplayLimits) -> PlannedKey:
    left_out = _upgrade_exclusion_reason(source, existing, limits)
    if source is None:
        why = _inclusion_reason(existing) if existing else ""
    else:
        why = f"of version {source.version}, revision {source.revision}"
    return PlannedKey(key, left_out or why, source.key if source else None, left_out is not None)


def _upgrade_exclusion_reason(source: KnownKey | None, existing: KnownKey | None, limits: ReplayLimits) -> str | None:
    one = source or existing
    if one is None or (existing is not None and existing.revision):
        return f"is published already, revision {existing.revision}" if existing else "nothing is known of it"
    if beyond := limits.exclusion_reason(one.window_end):
        return beyond
    return "no object of its window is known" if source is None and not one.events else None


def _is_newer(known: KnownKey, other: KnownKey | None) -> bool:
    if other is None or other.published_at is None:
        return True
    return known.published_at is not None and known.published_at > other.published_at


def _parse_condition(text: str) -> tuple[str, str]:
    field, equals, value = text.partition("=")
    if not equals or field not in FIELDS or not value:
        known = ", ".join(f"{name} ({meaning})" for name, meaning in FIELDS.items())
        raise ReplayRefused(f"{text[:100]!r} is not a condition; write FIELD=VALUE, where FIELD is {known}")
    if (field == "state" and value not in STATES) or (field == "late" and value not in ("yes", "no")):
        raise ReplayRefused(f"{field} must be {FIELDS[field]}, not {value[:100]!r}")
    return field, value


def _matches(known: KnownKey, field: str, value: str) -> bool:
    if field == "state":
        published = known.revision is not None
        return {"published": published, "failed": known.failed, "unpublished": not published}[value]
    if field == "late":
        return (known.late > 0) == (value == "yes")
    return known.version == value if field == "version" else value in known.partitions
