"""Whether each collection says where and when its Items really are. The Items are asked, not the database.

What a collection says wrongly is written anew the way every publication does it: from the revisions. Where these say
otherwise than the Items, that is told; which of the two is right is for the nightly scan to find.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from kfm_pipelines.catalogs.stac import Member, extent_of
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import ObjectMissing
from kfm_pipelines.events.quoting import one_line
from kfm_pipelines.gates import Finding, Severity
from kfm_pipelines.operations.collections import refresh_collection
from kfm_pipelines.operations.scan import Found, Scanned, record, under_way
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state import findings, scans
from kfm_pipelines.state.revisions import count_change, published_keys
from kfm_pipelines.state.scans import Kind
from kfm_pipelines.stores import Layout

RULE = "extent-drift"
GATE = "extents"
LONGEST = 200


def recompute_extent(workshop: Workshop, dataset: Dataset, run_id: str) -> Scanned:
    """Compare Items, collection and database; if they differ, tell it and have the collection written anew."""
    with scans.scanning(workshop.database, Kind.EXTENTS, dataset.dataset) as started_at:
        if started_at is None:
            return under_way(dataset, Kind.EXTENTS)
        refresh_collection(workshop, dataset)
        keys, drift = _compared(workshop, dataset)
        if drift:
            # Something may have been published while we read: then it is in all three now.
            refresh_collection(workshop, dataset)
            keys, drift = _compared(workshop, dataset)
        found = tuple(Found(None, GATE, finding) for finding in drift)
        scanned = Scanned(dataset.dataset, Kind.EXTENTS, keys, found=found)
        with workshop.database.transaction() as connection:
            findings.record(connection, run_id, dataset.dataset, None, None, GATE, [asdict(one) for one in drift])
            record(connection, scanned, run_id, started_at, {})
            if drift:
                count_change(connection, dataset.dataset)
        refresh_collection(workshop, dataset)
    return scanned


def _compared(workshop: Workshop, dataset: Dataset) -> tuple[int, list[Finding]]:
    with workshop.database.transaction() as connection:
        keys = published_keys(connection, dataset.dataset)
    recorded = [Member(k.key, k.window_start, k.window_end, k.bbox) for k in keys]
    items = list(_items(workshop, dataset))
    if not recorded and not items:
        return 0, []
    true = extent_of(dataset, items) if items else None
    drift = [
        _drift(subject, true, measured)
        for subject, measured in (
            ("collection", _collection_extent(workshop, dataset)),
            ("database", extent_of(dataset, recorded) if recorded else None),
        )
        if measured != true
    ]
    return len(items), drift


def _items(workshop: Workshop, dataset: Dataset) -> Iterator[Member]:
    """Every Item that can be read; the nightly scan says which cannot."""
    paths = workshop.store.paths(Layout(dataset.pipeline).items())
    for path in (path for path in paths if path.endswith(".json")):
        try:
            yield _member(json.loads(workshop.store.read(path)))
        except (ObjectMissing, ValueError, KeyError, TypeError, IndexError):
            continue


def _member(item: Mapping[str, Any]) -> Member:
    bbox, properties = item.get("bbox"), item["properties"]
    return Member(
        key=item["id"],
        window_start=datetime.fromisoformat(properties["start_datetime"]),
        window_end=datetime.fromisoformat(properties["end_datetime"]),
        bbox=(float(bbox[0]), float(bbox[1]), float(bbox[2]), float(bbox[3])) if bbox else None,
    )


def _collection_extent(workshop: Workshop, dataset: Dataset) -> object:
    try:
        document = json.loads(workshop.store.read(Layout(dataset.pipeline).collection()))
    except (ObjectMissing, ValueError):
        return None
    return document.get("extent") if isinstance(document, dict) else None


def _drift(subject: str, true: object, measured: object) -> Finding:
    return Finding(RULE, Severity.WARN, subject, f"the extent of the Items, {_shown(true)}", _shown(measured))


def _shown(extent: object) -> str:
    return one_line(json.dumps(extent), LONGEST) if extent else "none"
