"""Resolves a notice to its events: the dataset that takes it, the window it falls in and the keys it is work for."""

import re
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime

from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.declarations.inputs import EventTemplate
from kfm_pipelines.declarations.scenes import Scene
from kfm_pipelines.declarations.splits import MEMBER
from kfm_pipelines.errors import ContractBroken, DeclarationInvalid, LocationUndeclared, MessageRefused, NoticeUnwanted
from kfm_pipelines.events.canonical_key import CanonicalKey, Window, start_of_week, window_of
from kfm_pipelines.events.identity import member_identity
from kfm_pipelines.events.notice import Change, Notice, ObjectNotice, PayloadNotice, check_object_key
from kfm_pipelines.text import quote_value

# Part of one path segment: a payload may choose among the objects a template allows, but not leave them.
_TEMPLATE_VALUE = re.compile(r"[A-Za-z0-9_-]+")
_MEMBER = re.compile(MEMBER)


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
    # The identity of the whole notice, if its object is split among several keys.
    part_of: str | None = field(default=None, compare=False, repr=False)

    @property
    def notice_identity(self) -> str:
        """The same for all events of one notice."""
        return self.part_of or self.identity

    @property
    def data_time(self) -> datetime:
        """The start of the data it covers, or of its window if that is unknown."""
        return self.granule_start or self.window_start


_NOTICE_FIELDS = tuple(one.name for one in fields(ObjectNotice))


def resolve_events(notice: Notice, datasets: Datasets, most: int | None = None) -> tuple[IngestEvent, ...]:
    """Returns the events of a notice: one, or one for each member if the dataset splits its objects, sorted by key,
    and of those at most so many if that is given. Raises MessageRefused when no declared dataset takes it."""
    event = resolve_event(notice, datasets)
    dataset = datasets[event.dataset]
    if dataset.key.split_by is None:
        return (event,)
    try:
        members = datasets.members_of(event.dataset)
    except DeclarationInvalid as error:  # only its own messages are refused
        raise MessageRefused(f"objects of {event.dataset} cannot be split: {error}") from None
    window = window_of(event.window_start, dataset.key.window)
    return tuple(
        replace(
            event,
            identity=member_identity(event.identity, member),
            key=str(key_of(dataset, window, member)),
            part_of=event.identity,
        )
        for member in members[:most]
    )


def resolve_event(notice: Notice, datasets: Datasets) -> IngestEvent:
    """Returns the event of a notice as a whole, before its object is split. Raises NoticeUnwanted if it is about a
    bucket of a provider, who announces more than anybody wants."""
    if isinstance(notice, PayloadNotice):
        notice = _resolve_object(notice, datasets)
    dataset = _dataset_of(notice, datasets)
    if dataset.scene is not None:
        notice = _folder_notice(notice, dataset, dataset.scene)
    if notice.size is not None and notice.size > dataset.input.max_bytes:
        raise ContractBroken(
            f"object {quote_value(notice.asset_uri)} has {notice.size} bytes; {dataset.dataset} takes at most "
            f"{dataset.input.max_bytes}"
        )
    window = _window_of(notice, dataset)
    known = {name: getattr(notice, name) for name in _NOTICE_FIELDS}
    resolved = {
        "dataset": dataset.dataset,
        "key": str(key_of(dataset, window, _member_of(notice, dataset))),
        "window_start": window.start,
        "window_end": window.end,
        "partition": _partition_of(notice, dataset),
    }
    return IngestEvent(**known | resolved)


def key_of(dataset: Dataset, window: Window, member: str = "") -> CanonicalKey:
    """`member` is the tile, station, county or cell that a key is for, where the dataset declares that."""
    fixed = dataset.key
    aoi = f"{fixed.aoi}-{member}" if member else fixed.aoi
    return CanonicalKey(fixed.source, aoi, fixed.h3_res, window.label, fixed.transform_version)


def member_of_key(dataset: Dataset, key: str) -> str:
    """Returns the tile, station, county or cell in a key; "" where the dataset folds by time alone."""
    return (
        CanonicalKey.parse(key).aoi.removeprefix(dataset.key.aoi).removeprefix("-") if dataset.key.has_members else ""
    )


def _member_of(notice: ObjectNotice, dataset: Dataset) -> str:
    group = dataset.key.fold_by
    if group is None:
        return ""
    found = _match_path(notice, dataset)
    member = (found[group] or "").replace("/", "") if found else ""  # a tile such as 14/S/PH has several folders
    if not _MEMBER.fullmatch(member):
        raise LocationUndeclared(f"{quote_value(notice.asset_uri)}: {group} must be 1 to 40 letters, digits or _")
    return member.lower()


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
        if named.input.upstream:
            raise LocationUndeclared(
                f"{named.dataset} takes no objects: it follows from what is published of {named.input.location}"
            )
        if not _accepts(named, notice):
            raise LocationUndeclared(
                f"{quote_value(notice.asset_uri)} is not under {named.input.location}, the location of {named.dataset}"
            )
        return named
    for dataset in datasets.values():
        if _accepts(dataset, notice):
            return dataset
    provided = any(one.input.provider and one.input.bucket == notice.bucket for one in datasets.values())
    raise (NoticeUnwanted if provided else LocationUndeclared)(
        f"{quote_value(notice.asset_uri)} is not under the bucket and prefix of any declared dataset"
    )


def _accepts(dataset: Dataset, notice: ObjectNotice) -> bool:
    return notice.bucket == dataset.input.bucket and notice.object_key.startswith(dataset.input.prefix)


def _folder_notice(notice: ObjectNotice, dataset: Dataset, scene: Scene) -> ObjectNotice:
    """Returns the notice of the folder that the pattern matches, whichever of its objects the message is about.

    Nothing of that object is said about the folder. A scene is gone with the object that describes it; without any
    other it is a scene still.
    """
    path = notice.object_key
    folders = (path[: place + 1] for place, character in enumerate(path) if character == "/")
    folder = next((one for one in folders if re.fullmatch(dataset.input.object_pattern, one, re.ASCII)), None)
    if folder is None:
        raise _pattern_mismatch(notice, dataset)
    if folder == path:
        return notice
    change: Change = "created" if notice.change == "created" or not scene.is_essential(path) else "deleted"
    return replace(notice, object_key=folder, etag=None, version_id=None, size=None, sequencer=None, change=change)


def _pattern_mismatch(notice: ObjectNotice, dataset: Dataset) -> LocationUndeclared:
    refusal = LocationUndeclared if dataset.input.provider is None else NoticeUnwanted
    return refusal(f"{quote_value(notice.asset_uri)} does not match {dataset.dataset}'s input.object_pattern")


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
        raise _pattern_mismatch(notice, dataset)
    named = found.groupdict(default="")
    try:
        year = int(named["year"])
        if "week" in named:
            return window_of(start_of_week(year, int(named["week"])), dataset.key.window)
        month = int(named.get("month", 1))
        day, hour = int(named.get("day", 1)), int(named.get("hour", 0))
        return window_of(datetime(year, month, day, hour, tzinfo=UTC), dataset.key.window)
    except (ValueError, OverflowError) as error:
        raise LocationUndeclared(f"{quote_value(notice.asset_uri)} has no window in its path: {error}") from None


def _match_path(notice: ObjectNotice, dataset: Dataset) -> re.Match[str] | None:
    return re.fullmatch(dataset.input.object_pattern, notice.object_key, re.ASCII)
