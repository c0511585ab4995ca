"""The extent scan: does each collection state where and when its Items are? If not, it is rewritten."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from kfm_pipelines.catalog.collections.pages import mark_every_page_stale
from kfm_pipelines.catalog.collections.refresh import refresh_collection
from kfm_pipelines.catalog.documents import read_item
from kfm_pipelines.catalog.stac.collection import Member, extent_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.gates import Finding, Severity
from kfm_pipelines.gates.verdict import error
from kfm_pipelines.operations.scans import tables
from kfm_pipelines.operations.scans.result import ScanFinding, ScanKind, ScanResult, already_running
from kfm_pipelines.services import Services
from kfm_pipelines.state import verdicts
from kfm_pipelines.state.revisions import mark_collection_changed, published_keys
from kfm_pipelines.stores import Layout, read_if_exists
from kfm_pipelines.text import truncate_line

DRIFT, READABLE = "extent-drift", "item-readable"
GATE = "extents"
MAX_EXTENT_LENGTH = 200

ItemsByPath = Mapping[str, Member | Finding]  # a Finding stands for an unreadable Item


def recompute_extent(services: Services, dataset: Dataset, run_id: str) -> ScanResult:
    """Compares Items, collection and database. When they differ, reports it and rewrites the collection."""
    with tables.scan_lock(services.database, ScanKind.EXTENTS, dataset.dataset) as started_at:
        if started_at is None:
            return already_running(dataset.dataset, ScanKind.EXTENTS)
        refresh_collection(services, dataset)
        items, wrong = _compare_extents(services, dataset, {})
        if wrong:
            # A publication during the first comparison is in all three by now.
            refresh_collection(services, dataset)
            items, wrong = _compare_extents(services, dataset, items)
        found = tuple(ScanFinding(None, GATE, finding) for finding in wrong)
        result = ScanResult(dataset.dataset, ScanKind.EXTENTS, len(items), findings=found)
        with services.database.transaction() as connection:
            recorded = [asdict(finding) for finding in wrong]
            verdicts.record_findings(connection, run_id, dataset.dataset, None, None, GATE, recorded)
            tables.record_scan(connection, result, run_id, started_at, {})
            if any(finding.rule == DRIFT for finding in wrong):
                mark_every_page_stale(connection, dataset.dataset)
                mark_collection_changed(connection, dataset.dataset)
        refresh_collection(services, dataset)
    return result


def _compare_extents(services: Services, dataset: Dataset, previous: ItemsByPath) -> tuple[ItemsByPath, list[Finding]]:
    """Returns the Items and what is wrong. `previous` are the Items as read a moment ago."""
    layout = Layout(dataset.pipeline)
    with services.database.transaction() as connection:
        keys = published_keys(connection, dataset.dataset)
    recorded = {layout.item(k.key): Member(k.key, k.window_start, k.window_end, k.bbox) for k in keys}
    # An Item that agreed with what is recorded now has not changed since.
    unchanged = {path: item for path, item in previous.items() if item == recorded.get(path)}
    items = _read_items(services, layout, unchanged)
    members = [item for item in items.values() if isinstance(item, Member)]
    unreadable = [item for item in items.values() if isinstance(item, Finding)]
    if not recorded and not members:
        return items, unreadable
    true = extent_of(dataset, members) if members else None
    collection = read_item(read_if_exists(services.store, layout.collection())).get("extent")
    database = extent_of(dataset, list(recorded.values())) if recorded else None
    measured = {"collection": collection, "database": database}
    expected = f"the extent of the Items, {_format_extent(true)}"
    drift = [
        Finding(DRIFT, Severity.WARN, subject, expected, _format_extent(extent))
        for subject, extent in measured.items()
        if extent != true
    ]
    return items, [*unreadable, *drift]


def _read_items(services: Services, layout: Layout, known: ItemsByPath) -> ItemsByPath:
    items: dict[str, Member | Finding] = {}
    for path in services.store.paths(layout.items()):
        if path in known:
            items[path] = known[path]
        elif path.endswith(".json") and (data := read_if_exists(services.store, path)) is not None:
            try:
                items[path] = _parse_member(read_item(data))
            except (ValueError, KeyError, TypeError, IndexError, AttributeError):
                items[path] = error(READABLE, path, "an Item with an id, a time and a place", "something else")
    return items


def _parse_member(item: Mapping[str, Any]) -> Member:
    bbox, properties = item.get("bbox"), item["properties"]
    return Member(
        key=item["id"],
        window_start=_parse_time(properties["start_datetime"]),
        window_end=_parse_time(properties["end_datetime"]),
        bbox=(float(bbox[0]), float(bbox[1]), float(bbox[2]), float(bbox[3])) if bbox is not None else None,
    )


def _parse_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without a zone cannot be compared")
    return time


def _format_extent(extent: object) -> str:
    return truncate_line(json.dumps(extent), MAX_EXTENT_LENGTH) if extent else "none"
