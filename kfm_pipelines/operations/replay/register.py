"""Creates keys for windows no event has named, from what is in the bucket now, or published by the upstreams."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.events import IngestEvent, key_of, window_of
from kfm_pipelines.inbox.bucket_objects import list_events
from kfm_pipelines.inbox.record import register_events, request_events
from kfm_pipelines.inbox.releases import list_releases
from kfm_pipelines.operations.replay.eligible import NewKey, create_keys
from kfm_pipelines.services import Services
from kfm_pipelines.state import audit
from kfm_pipelines.state.audit import Action, AuditEntry
from kfm_pipelines.watermarks.queries import read_watermark

MAX_WINDOWS = 50_000  # more partitions in one definition make Dagster's pages slow


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """Objects found, events that were new, the sorted keys of all windows, how many of those were new, and the keys of
    open windows that were made due."""

    objects: int
    events: int
    keys: tuple[str, ...]
    new_keys: int
    due: tuple[str, ...] = ()


def register_windows(
    services: Services, dataset: Dataset, start: datetime, end: datetime, actor: str, *, include_open: bool = False
) -> RegistrationResult:
    """Gives every window that begins in [start, end) a key; where a window has a key for each tile, station or county,
    those of which there are objects. The audit entry is written first. With `include_open`, objects of windows that are
    still open count as if they were notified now: replays may not touch them, but their keys become due like any
    other."""
    found = [one for one in _list_inputs(services, dataset) if start <= one[0].window_start < end]
    windows = _keys_of_events(found) if dataset.key.has_members else list(_windows(dataset, start, end))
    detail: dict[str, object] = {"windows": len(windows)}
    if include_open:
        detail["include_open"] = True
    if windows:
        detail |= {"from": windows[0].window_start.isoformat(), "to": windows[-1].window_end.isoformat()}
    entry = AuditEntry(Action.WINDOWS_REGISTERED, actor, dataset.dataset, dataset.policy, detail=detail)
    with services.database.transaction() as connection:
        audit.record(connection, [entry])
    new_keys = create_keys(services.database, dataset.dataset, windows)
    events = register_events(services.database, services.datasets, found, actor) if found else 0
    objects = len({event.notice_identity for event, _ in found})
    due = _request_open(services, dataset, found) if include_open else []
    return RegistrationResult(objects, events, tuple(sorted(one.key for one in windows)), new_keys, tuple(due))


def _list_inputs(services: Services, dataset: Dataset) -> Iterator[tuple[IngestEvent, str]]:
    return list_releases(services, dataset) if dataset.input.upstream else list_events(dataset, services.datasets)


def _request_open(services: Services, dataset: Dataset, found: Sequence[tuple[IngestEvent, str]]) -> list[str]:
    """Requests what lies in windows that are open now that all objects are registered."""
    watermark = read_watermark(services.database, dataset.dataset)
    is_open = [one for one in found if watermark is None or one[0].window_end > watermark]
    return request_events(services.database, services.datasets, services.settings.queue, is_open)


def _keys_of_events(found: Sequence[tuple[IngestEvent, str]]) -> list[NewKey]:
    keys = {event.key: NewKey(event.key, event.window_start, event.window_end) for event, _ in found}
    return sorted(keys.values(), key=lambda one: (one.window_start, one.key))


def _windows(dataset: Dataset, start: datetime, end: datetime) -> Iterator[NewKey]:
    try:
        window = window_of(start, dataset.key.window)
        if window.start < start:
            window = window_of(window.end, dataset.key.window)
        for _ in range(MAX_WINDOWS):
            if window.start >= end:
                return
            yield NewKey(str(key_of(dataset, window)), window.start, window.end)
            window = window_of(window.end, dataset.key.window)
    except ValueError as error:
        raise ReplayRefused(f"{error}; register up to an earlier time") from None
    if window.start < end:
        raise ReplayRefused(f"more than {MAX_WINDOWS} windows of one {dataset.key.window}; register them in parts")
