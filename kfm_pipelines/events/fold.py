"""Resolves a notice to its event: the dataset that takes it, the window it falls in and the key it is work for."""

import re
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime

from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.declarations.inputs import EventTemplate
from kfm_pipelines.errors import ContractBroken, LocationUndeclared
from kfm_pipelines.events.canonical_key import CanonicalKey, Window, window_of
from kfm_pipelines.events.notice import Notice, ObjectNotice, PayloadNotice, check_object_key
from kfm_pipelines.text import quote_value

# Part of one path segment: a payload may choose among the objects a template allows, but not leave them.
_TEMPLATE_VALUE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestEvent(ObjectNotice):
    """A notice that a dataset takes. Message group and sequence are set for messages from a FIFO queue."""

    dataset: str
    key: str
    window_start: datetime
    window_end: datetime
    partition: str = ""  # the dataset's stream it belongs to, if there are several
    message_group: str | None = None
    group_sequence: int | None = None
    late: bool = False  # made after its window had closed; set by the inbox
    # How it arrived, not what it is: the span that received it, and when the queue got its message.
    trace: str | None = field(default=None, compare=False)
    sent_at: datetime | None = field(default=None, compare=False)

    @property
    def data_time(self) -> datetime:
        """The start of the data it covers, or of its window if that is unknown."""
        return self.granule_start or self.window_start


_NOTICE_FIELDS = tuple(one.name for one in fields(ObjectNotice))


def resolve_event(notice: Notice, datasets: Datasets) -> IngestEvent:
    """Returns the event of a notice. Raises MessageRefused when no declared dataset takes it."""
    if isinstance(notice, PayloadNotice):
        notice = _resolve_object(notice, datasets)
    dataset = _dataset_of(notice, datasets)
    if notice.size is not None and notice.size > dataset.input.max_bytes:
        raise ContractBroken(
            f"object {quote_value(notice.asset_uri)} has {notice.size} bytes; {dataset.dataset} takes at most "
            f"{dataset.input.max_bytes}"
        )
    window = _window_of(notice, dataset)
    known = {name: getattr(notice, name) for name in _NOTICE_FIELDS}
    resolved = {
        "dataset": dataset.dataset,
        "key": str(key_of(dataset, window)),
        "window_start": window.start,
        "window_end": window.end,
        "partition": _partition_of(notice, dataset),
    }
    return IngestEvent(**known | resolved)


def key_of(dataset: Dataset, window: Window) -> CanonicalKey:
    fixed = dataset.key
    return CanonicalKey(fixed.source, fixed.aoi, fixed.h3_res, window.label, fixed.transform_version)


def _resolve_object(notice: PayloadNotice, datasets: Datasets) -> ObjectNotice:
    """Fills the object template of the dataset that listens to the producer. The object's content is unknown."""
    dataset, template = _find_template(notice, datasets)
    values = {name: _template_value(notice, name) for name in sorted(template.payload_fields)}
    object_key = template.object_key.format(**values, event_time=notice.event_time)
    check_object_key(object_key)
    return ObjectNotice(
        shape=notice.shape,
        identity=notice.identity,
        bucket=dataset.input.bucket,
        object_key=object_key,
        event_time=notice.event_time,
        dataset=dataset.dataset,
        priority=notice.priority,
    )


def _find_template(notice: PayloadNotice, datasets: Datasets) -> tuple[Dataset, EventTemplate]:
    for dataset in datasets.values():
        for template in dataset.input.events:
            if template.source == notice.event_source:
                return dataset, template
    raise LocationUndeclared(
        f"the payload names no object, and no declared dataset has {quote_value(notice.event_source)} in its "
        "input.events"
    )


def _template_value(notice: PayloadNotice, name: str) -> str:
    value = notice.payload.get(name)
    if value is None or not _TEMPLATE_VALUE.fullmatch(str(value)):
        raise ContractBroken(
            f"payload.{name} of {quote_value(notice.event_source)} must be a whole number or letters, digits, _ and -, "
            f"not {quote_value(value)}"
        )
    return str(value)


def _dataset_of(notice: ObjectNotice, datasets: Datasets) -> Dataset:
    if notice.dataset is not None:
        named = datasets[notice.dataset]
        if not _accepts(named, notice):
            raise LocationUndeclared(
                f"{quote_value(notice.asset_uri)} is not under s3://{named.input.bucket}/{named.input.prefix}, "
                f"the location of {named.dataset}"
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


def _partition_of(notice: ObjectNotice, dataset: Dataset) -> str:
    """Returns the partition in the path; "" for a path that does not match, which a named granule allows."""
    group = dataset.watermark.partition
    found = _match_path(notice, dataset) if group else None
    partition = (found[group] or "") if found and group else ""
    if partition and not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", partition):
        raise LocationUndeclared(
            f"{quote_value(notice.asset_uri)}: {group} must be 1 to 100 letters, digits, _, . or -"
        )
    return partition


def _window_of(notice: ObjectNotice, dataset: Dataset) -> Window:
    start, end = notice.granule_start, notice.granule_end
    if start is None:
        return _window_from_path(notice, dataset)
    try:
        window = window_of(start, dataset.key.window)
    except ValueError as error:
        raise ContractBroken(f"granule_start has no window: {error}") from None
    if end is not None and end < start:
        raise ContractBroken(f"granule_end {end.isoformat()} is before granule_start {start.isoformat()}")
    # Producers write the end inclusive (03:59:59) or exclusive (04:00:00); neither reaches into the next window.
    if end is not None and end > window.end:
        raise ContractBroken(f"the granule ends at {end.isoformat()}, beyond its window {window.label}")
    return window


def _window_from_path(notice: ObjectNotice, dataset: Dataset) -> Window:
    found = _match_path(notice, dataset)
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
        raise LocationUndeclared(f"{quote_value(notice.asset_uri)} has no window in its path: {error}") from None


def _match_path(notice: ObjectNotice, dataset: Dataset) -> re.Match[str] | None:
    return re.fullmatch(dataset.input.object_pattern, notice.object_key, re.ASCII)
