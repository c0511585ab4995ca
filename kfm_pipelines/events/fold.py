"""Folds what a message says into the key it is work for, by the rules the dataset declares.

Belongs here: which dataset, which window, which key. Does not: which of several events about one object counts
(ordering's), or remembering any of it (state's).
"""

import re
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime

from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.errors import ContractBroken, LocationUndeclared
from kfm_pipelines.events.canonical_key import CanonicalKey
from kfm_pipelines.events.notice import Notice, ObjectNotice, PayloadNotice
from kfm_pipelines.events.payloads import resolve_object
from kfm_pipelines.events.windows import Window, window_of
from kfm_pipelines.text import quote_value


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestEvent(ObjectNotice):
    """A notice that found its dataset: work for one key. Group and place are known of what a FIFO queue delivered."""

    dataset: str
    key: str
    window_start: datetime
    window_end: datetime
    partition: str = ""  # which of the dataset's streams it belongs to, where there are several
    message_group: str | None = None
    group_sequence: int | None = None
    late: bool = False  # made after its window had closed; only the inbox can tell
    # How it came, which is nothing it says: the span that received it, and when the queue got its message.
    trace: str | None = field(default=None, compare=False)
    sent_at: datetime | None = field(default=None, compare=False)

    @property
    def data_time(self) -> datetime:
        """The time it is about, as far as that is known."""
        return self.granule_start or self.window_start


_NOTICE_FIELDS = tuple(one.name for one in fields(ObjectNotice))


def resolve_event(notice: Notice, datasets: Datasets) -> IngestEvent:
    """The event a notice stands for; MessageRefused when no declared dataset may take it."""
    if isinstance(notice, PayloadNotice):
        notice = resolve_object(notice, datasets)
    dataset = _dataset_of(notice, datasets)
    if notice.size is not None and notice.size > dataset.input.max_bytes:
        raise ContractBroken(
            f"object {quote_value(notice.asset_uri)} has {notice.size} bytes; {dataset.dataset} takes at most "
            f"{dataset.input.max_bytes}"
        )
    window = _window_of(notice, dataset)
    said = {name: getattr(notice, name) for name in _NOTICE_FIELDS}
    return IngestEvent(
        **said
        | {
            "dataset": dataset.dataset,
            "key": str(key_of(dataset, window)),
            "window_start": window.start,
            "window_end": window.end,
            "partition": _partition_of(notice, dataset),
        }
    )


def key_of(dataset: Dataset, window: Window) -> CanonicalKey:
    """The canonical key of one window of one dataset."""
    return CanonicalKey(
        source=dataset.key.source,
        aoi=dataset.key.aoi,
        h3_res=dataset.key.h3_res,
        time_window=window.label,
        transform_version=dataset.key.transform_version,
    )


def _dataset_of(notice: ObjectNotice, datasets: Datasets) -> Dataset:
    if notice.dataset is not None:
        named = datasets[notice.dataset]
        if not _accepts(named, notice):
            where = f"s3://{named.input.bucket}/{named.input.prefix}"
            raise LocationUndeclared(
                f"{quote_value(notice.asset_uri)} is not under {where}, where {named.dataset} lives"
            )
        return named
    for dataset in datasets.values():
        if _accepts(dataset, notice):
            return dataset
    raise LocationUndeclared(
        f"{quote_value(notice.asset_uri)} is not under the bucket and prefix of any declared dataset"
    )


def _accepts(dataset: Dataset, notice: ObjectNotice) -> bool:
    return notice.bucket == dataset.input.bucket and notice.object_key.startswith(dataset.input.prefix)


def _window_of(notice: ObjectNotice, dataset: Dataset) -> Window:
    if notice.granule_start is None:
        return _window_from_path(notice, dataset)
    try:
        window = window_of(notice.granule_start, dataset.key.window)
    except ValueError as error:
        raise ContractBroken(f"granule_start is no use: {error}") from None
    _check_granule(notice.granule_start, notice.granule_end, window)
    return window


def _partition_of(notice: ObjectNotice, dataset: Dataset) -> str:
    """What the path says; a path that follows no pattern, since its message names the window, belongs to none."""
    named = dataset.watermark.partition
    found = re.fullmatch(dataset.input.object_pattern, notice.object_key, re.ASCII) if named else None
    partition = (found[named] or "") if found and named else ""
    if partition and not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", partition):
        raise LocationUndeclared(f"{quote_value(notice.asset_uri)} names no {named} that could be told from others")
    return partition


def _check_granule(start: datetime, end: datetime | None, window: Window) -> None:
    if end is None:
        return
    if end < start:
        raise ContractBroken(f"granule_end {end.isoformat()} is before granule_start {start.isoformat()}")
    # Producers write the end inclusive (03:59:59) or exclusive (04:00:00); neither reaches into the next window.
    if end > window.end:
        raise ContractBroken(f"the granule ends at {end.isoformat()}, beyond its window {window.label}")


def _window_from_path(notice: ObjectNotice, dataset: Dataset) -> Window:
    found = re.fullmatch(dataset.input.object_pattern, notice.object_key, re.ASCII)
    if found is None:
        raise LocationUndeclared(
            f"{quote_value(notice.asset_uri)} does not match {dataset.dataset}'s input.object_pattern"
        )
    named = found.groupdict(default="")
    try:
        year, month = int(named["year"]), int(named["month"])
        day, hour = int(named.get("day", 1)), int(named.get("hour", 0))
        return window_of(datetime(year, month, day, hour, tzinfo=UTC), dataset.key.window)
    except (ValueError, OverflowError) as error:
        raise LocationUndeclared(f"{quote_value(notice.asset_uri)} names no window: {error}") from None
