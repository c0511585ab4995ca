"""Windows of history that no event has named: keys for all of them, from what lies in the bucket now."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import MessageRefused, ReplayRefused
from kfm_pipelines.events import IngestEvent, key_of, resolve_event, window_of
from kfm_pipelines.inbox.record import register_events
from kfm_pipelines.operations.replay.bucket_listing import list_objects
from kfm_pipelines.operations.replay.eligible import NewKey, create_keys
from kfm_pipelines.services import Services
from kfm_pipelines.state import audit
from kfm_pipelines.state.audit import Action, AuditEntry

# A definition with more partitions than that makes Dagster's pages slow.
MAX_WINDOWS = 50_000


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """What was found in the bucket, what of it was new, and the keys of all windows, sorted."""

    objects: int
    events: int
    keys: tuple[str, ...]
    new_keys: int


def register_windows(
    services: Services, dataset: Dataset, start: datetime, end: datetime, actor: str
) -> RegistrationResult:
    """Every window that begins in [start, end) gets a key, also one without an object. The bucket is listed once. Who
    did this is in the audit before it is done, whatever becomes of the plan."""
    windows = list(_windows(dataset, start, end))
    _record_audit(services, dataset, windows, actor)
    found = [one for one in _list_events(services, dataset) if start <= one[0].window_start < end]
    new_keys = create_keys(services.database, dataset.dataset, windows)
    events = register_events(services.database, services.datasets, found, actor) if found else 0
    return RegistrationResult(len(found), events, tuple(sorted(one.key for one in windows)), new_keys)


def _record_audit(services: Services, dataset: Dataset, windows: Sequence[NewKey], actor: str) -> None:
    detail: dict[str, object] = {"windows": len(windows)}
    if windows:
        detail |= {"from": windows[0].window_start.isoformat(), "to": windows[-1].window_end.isoformat()}
    entry = AuditEntry(Action.WINDOWS_REGISTERED, actor, dataset.dataset, dataset.policy, detail=detail)
    with services.database.transaction() as connection:
        audit.record(connection, entry)


def _windows(dataset: Dataset, start: datetime, end: datetime) -> Iterator[NewKey]:
    try:
        yield from _windows_between(dataset, start, end)
    except ValueError as error:
        raise ReplayRefused(f"{error}; register up to an earlier time") from None


def _windows_between(dataset: Dataset, start: datetime, end: datetime) -> Iterator[NewKey]:
    window = window_of(start, dataset.key.window)
    if window.start < start:
        window = window_of(window.end, dataset.key.window)
    number = 0
    while window.start < end:
        number += 1
        if number > MAX_WINDOWS:
            raise ReplayRefused(f"more than {MAX_WINDOWS} windows of one {dataset.key.window}; register them in parts")
        yield NewKey(str(key_of(dataset, window)), window.start, window.end)
        window = window_of(window.end, dataset.key.window)


def _list_events(services: Services, dataset: Dataset) -> Iterator[tuple[IngestEvent, str]]:
    """The objects that a notification would make events of, each with what is archived in its place."""
    for notice in list_objects(dataset.input.bucket, dataset.input.prefix):
        try:
            event = resolve_event(notice, services.datasets)
        except MessageRefused:  # as its notification would be, but nobody has sent one
            continue
        said = {
            "shape": notice.shape,
            "bucket": notice.bucket,
            "key": notice.object_key,
            "etag": notice.etag,
            "version_id": notice.version_id,
            "size": notice.size,
            "last_modified": notice.event_time.isoformat(),
        }
        yield event, json.dumps(said, sort_keys=True)
