"""Compares a table with the catalog: the rows of each key with the Parquet file that its Item names."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.catalog.documents import sha256
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.table.rows import digest_of_rows, is_exempted, rows_of
from kfm_pipelines.sinks.table.schema import KEY
from kfm_pipelines.sinks.table.warehouse import load_table, translated_errors
from kfm_pipelines.stores import Layout, Store
from kfm_pipelines.stores.layout import digest_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

KEYS_AT_ONCE = 200


def differences(services: Services, dataset: Dataset, keys: Sequence[str]) -> dict[str, str]:
    """Returns what differs between the table and the catalog, by key; nothing when they agree."""
    with translated_errors():
        return compare_keys(services.store, load_table(services, dataset), dataset.pipeline, keys)


def compare_keys(store: Store, table: "Table | None", pipeline: str, keys: Sequence[str]) -> dict[str, str]:
    layout = Layout(pipeline)
    read = store.read_all([layout.item(key) for key in keys])
    items = {key: json.loads(read[path]) for key in keys if (path := layout.item(key)) in read}
    masked = {key: item for key, item in items.items() if not is_exempted(item)}
    contents = {key: digest_of(item["assets"]["data"]["href"]) for key, item in masked.items()}
    data = store.read_all([layout.content(digest) for digest in contents.values()])
    present = _rows_by_key(table, {key: _window(items.get(key)) for key in keys})
    found = {}
    for key in keys:
        digest = contents.get(key)
        file = data.get(layout.content(digest)) if digest else None
        if problem := _compare(present.get(key), digest, file):
            found[key] = problem
    return found


def compare_all(store: Store, table: "Table | None", pipeline: str) -> Iterator[tuple[str, str]]:
    """Compares every key of the catalog, a few at a time. Yields those that differ, and what the table has besides."""
    paths = store.paths(Layout(pipeline).items())
    keys = [path.rsplit("/", 1)[-1].removesuffix(".json") for path in paths]
    for start in range(0, len(keys), KEYS_AT_ONCE):
        yield from compare_keys(store, table, pipeline, keys[start : start + KEYS_AT_ONCE]).items()
    for key in sorted(_keys_in(table) - set(keys)):
        yield key, "the table has rows of what is not in the catalog"


def _window(item: Mapping[str, Any] | None) -> datetime | None:
    return datetime.fromisoformat(item["properties"]["start_datetime"]) if item else None


def _rows_by_key(table: "Table | None", windows: Mapping[str, datetime | None]) -> "dict[str, pa.Table]":
    import pyarrow.compute as pc

    if table is None or table.current_snapshot() is None:
        return {}
    rows = table.scan(rows_of(windows)).to_arrow()
    present = pc.unique(rows.column(KEY)).to_pylist()
    return {key: rows.filter(pc.equal(rows.column(KEY), key)) for key in present}


def _compare(present: "pa.Table | None", digest: str | None, data: bytes | None) -> str | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if digest is None:
        return None if present is None else f"the table has {len(present)} rows that nobody should see"
    if data is None or sha256(data) != digest:
        return "its data is not what the Item promises"
    published = pq.read_table(pa.BufferReader(data))
    if present is None:
        return "the table does not have it" if len(published) else None
    if len(present) != len(published):
        return f"the table has {len(present)} rows, and its file {len(published)}"
    if digest_of_rows(present, published.column_names) != digest_of_rows(published, published.column_names):
        return "the table has other rows than its file"
    return None


def _keys_in(table: "Table | None") -> set[str]:
    import pyarrow.compute as pc

    if table is None or table.current_snapshot() is None:
        return set()
    return set(pc.unique(table.scan(selected_fields=(KEY,)).to_arrow().column(KEY)).to_pylist())


def totals(services: Services, dataset: Dataset) -> Mapping[str, Any]:
    """Returns facts about the table for people."""
    with translated_errors():
        table = load_table(services, dataset)
    current = table.current_snapshot() if table else None
    if table is None or current is None:
        return {"dataset": dataset.dataset, "rows": 0, "files": 0, "snapshots": 0}
    summary = current.summary.additional_properties if current.summary else {}
    return {
        "dataset": dataset.dataset,
        "table": ".".join(table.name()),
        "rows": int(summary.get("total-records", 0)),
        "files": int(summary.get("total-data-files", 0)),
        "bytes": int(summary.get("total-files-size", 0)),
        "snapshots": len(table.metadata.snapshots),
        "snapshot": current.snapshot_id,
        "tags": sorted(name for name, ref in table.refs().items() if ref.snapshot_ref_type == "tag"),
        "metadata": table.metadata_location,
    }
