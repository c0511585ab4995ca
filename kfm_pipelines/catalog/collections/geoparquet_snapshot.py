"""Writes all Items of a collection as one table, if something was published since, before the collection links it."""

import json
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.catalog.collections import tables
from kfm_pipelines.catalog.collections.refresh import refresh_collection
from kfm_pipelines.catalog.collections.tables import is_outdated, retry_until_written
from kfm_pipelines.catalog.documents import sha256
from kfm_pipelines.catalog.trust.signer import write_with_sidecar
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import IntegrityBroken, ObjectMissing
from kfm_pipelines.services import Services
from kfm_pipelines.state.revisions import Revision, lock_current_revision, mark_collection_changed, published_keys
from kfm_pipelines.stores import Layout


@dataclass(frozen=True, slots=True)
class Snapshot:
    dataset: str
    items: int
    bytes: int
    note: str = ""  # why none was written

    def __str__(self) -> str:
        items = "1 item" if self.items == 1 else f"{self.items} items"
        return f"{self.dataset}: {self.note or f'{items} in {self.bytes} bytes'}"


def take_snapshot(services: Services, dataset: Dataset, *, anyway: bool = False) -> Snapshot:
    """Writes the table unless nothing has changed since the last one."""
    return retry_until_written(
        f"a snapshot of {dataset.dataset}", lambda: _try_to_take_snapshot(services, dataset, anyway=anyway)
    )


def _try_to_take_snapshot(services: Services, dataset: Dataset, *, anyway: bool) -> Snapshot | None:
    from kfm_pipelines.catalog.stac.geoparquet import items_table  # loads pyarrow and shapely

    layout = Layout(dataset.pipeline)
    with services.database.transaction() as connection:
        changes = tables.changes_of(connection, dataset.dataset)
        taken = tables.recorded_changes(connection, tables.ITEMS_SNAPSHOT).get(dataset.dataset)
        recorded = published_keys(connection, dataset.dataset)
    if not recorded:
        return Snapshot(dataset.dataset, 0, 0, "nothing is published")
    if taken == changes and not anyway and services.store.exists(layout.snapshot()):
        return Snapshot(dataset.dataset, len(recorded), 0, "nothing has changed since the last one")
    read = [_read_recorded_item(services, layout, one) for one in recorded]
    data, contents = items_table([item for _, item in read]), {one.key: one.content_hash for one, _ in read}
    with services.database.transaction() as connection:
        tables.lock_snapshot(connection, dataset.dataset)
        if is_outdated(connection, tables.ITEMS_SNAPSHOT, {dataset.dataset: changes}, contents):
            return None
        is_first = not tables.has_snapshot(connection, dataset.dataset, tables.ITEMS_SNAPSHOT)
        write_with_sidecar(services, layout.snapshot(), data)
        tables.record_mark(connection, tables.ITEMS_SNAPSHOT, {dataset.dataset: changes})
        if is_first:
            mark_collection_changed(connection, dataset.dataset)
    refresh_collection(services, dataset)
    return Snapshot(dataset.dataset, len(read), len(data))


def _read_recorded_item(services: Services, layout: Layout, one: Revision) -> tuple[Revision, dict[str, Any]]:
    """Returns the Item and its revision; only what was published may be sealed."""
    path = layout.item(one.key)
    try:
        data = services.store.read(path)
        if sha256(data) != one.item_hash:
            with services.database.transaction() as connection:
                one = lock_current_revision(connection, one.key) or one
                data = services.store.read(path)
    except ObjectMissing:
        raise IntegrityBroken(f"{path} is missing; run a scan") from None
    if sha256(data) != one.item_hash:
        raise IntegrityBroken(f"{path} is not what was published; run a scan")
    return one, json.loads(data)
