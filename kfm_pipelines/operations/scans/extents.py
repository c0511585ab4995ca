"""Whether each collection says where and when its Items really are. The Items are asked, not the database.

What a collection says wrongly is written anew the way every publication does it: from the revisions. Where these say
otherwise than the Items, that is told; which of the two is right is for the nightly scan to find. An Item that cannot
be read is told as well, and the others are compared without it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from kfm_pipelines.catalog.collections.pages import mark_every_page_stale
from kfm_pipelines.catalog.collections.refresh import refresh_collection
from kfm_pipelines.catalog.stac.collection import Member, extent_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import ObjectMissing
from kfm_pipelines.gates import Finding, Severity
from kfm_pipelines.gates.verdict import error
from kfm_pipelines.operations.scans import tables
from kfm_pipelines.operations.scans.nightly import ScanFinding, ScanResult, already_running_result, record_result
from kfm_pipelines.operations.scans.tables import ScanKind
from kfm_pipelines.services import Services
from kfm_pipelines.state import verdicts
from kfm_pipelines.state.revisions import mark_collection_changed, published_keys
from kfm_pipelines.stores import Layout
from kfm_pipelines.text import truncate_line

DRIFT, READABLE = "extent-drift", "item-readable"
GATE = "extents"
MAX_EXTENT_LENGTH = 200

ItemsByPath = Mapping[str, Member | Finding]  # by path: what an Item says, or that it says nothing of use


def recompute_extent(services: Services, dataset: Dataset, run_id: str) -> ScanResult:
    """Compare Items, collection and database; if they differ, tell it and have the collection written anew."""
    with tables.scan_lock(services.database, ScanKind.EXTENTS, dataset.dataset) as started_at:
        if started_at is None:
            return already_running_result(dataset, ScanKind.EXTENTS)
        refresh_collection(services, dataset)
        items, wrong = _compare_extents(services, dataset, {})
        if wrong:
            # Something may have been published while we read: then it is in all three now.
            refresh_collection(services, dataset)
            items, wrong = _compare_extents(services, dataset, items)
        found = tuple(ScanFinding(None, GATE, finding) for finding in wrong)
        scanned = ScanResult(dataset.dataset, ScanKind.EXTENTS, len(items), findings=found)
        with services.database.transaction() as connection:
            verdicts.record_findings(
                connection, run_id, dataset.dataset, None, None, GATE, [asdict(one) for one in wrong]
            )
            record_result(connection, scanned, run_id, started_at, {})
            if any(finding.rule == DRIFT for finding in wrong):
                mark_every_page_stale(connection, dataset.dataset)
                mark_collection_changed(connection, dataset.dataset)
        refresh_collection(services, dataset)
    return scanned


def _compare_extents(services: Services, dataset: Dataset, previous: ItemsByPath) -> tuple[ItemsByPath, list[Finding]]:
    """What the Items say, and what is wrong; `before` is what they said a moment ago."""
    layout = Layout(dataset.pipeline)
    with services.database.transaction() as connection:
        keys = published_keys(connection, dataset.dataset)
    recorded = {layout.item(k.key): Member(k.key, k.window_start, k.window_end, k.bbox) for k in keys}
    # An Item that says what is recorded has not changed since.
    unchanged = {path: said for path, said in previous.items() if said == recorded.get(path)}
    items = _read_items(services, layout, unchanged)
    members = [said for said in items.values() if isinstance(said, Member)]
    unreadable = [said for said in items.values() if isinstance(said, Finding)]
    if not recorded and not members:
        return items, unreadable
    true = extent_of(dataset, members) if members else None
    drift = [
        _drift_finding(subject, true, measured)
        for subject, measured in (
            ("collection", _collection_extent(services, dataset)),
            ("database", extent_of(dataset, list(recorded.values())) if recorded else None),
        )
        if measured != true
    ]
    return items, [*unreadable, *drift]


def _read_items(services: Services, layout: Layout, known: ItemsByPath) -> ItemsByPath:
    items: dict[str, Member | Finding] = {}
    for path in services.store.paths(layout.items()):
        if path.endswith(".json"):
            try:
                items[path] = known.get(path) or _parse_member(json.loads(services.store.read(path)))
            except ObjectMissing:
                continue  # it was there a moment ago
            except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
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
        raise ValueError("a time without a zone cannot be compared with others")
    return time


def _collection_extent(services: Services, dataset: Dataset) -> object:
    try:
        document = json.loads(services.store.read(Layout(dataset.pipeline).collection()))
    except (ObjectMissing, ValueError):
        return None
    return document.get("extent") if isinstance(document, dict) else None


def _drift_finding(subject: str, true: object, measured: object) -> Finding:
    return Finding(
        DRIFT, Severity.WARN, subject, f"the extent of the Items, {_format_extent(true)}", _format_extent(measured)
    )


def _format_extent(extent: object) -> str:
    return truncate_line(json.dumps(extent), MAX_EXTENT_LENGTH) if extent else "none"
