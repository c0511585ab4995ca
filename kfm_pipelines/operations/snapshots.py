"""Snapshots: all Items of a collection in one table, for whoever wants to ask about many at once.

One is taken when something was published since the last one. The collection links it from the first one on, and it is
written before that, so the link always leads somewhere.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.catalogs.stac_geoparquet import items_table
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import IntegrityBroken, ObjectMissing
from kfm_pipelines.operations.collections import refresh_collection
from kfm_pipelines.operations.signing import write_with_seal
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state import snapshots
from kfm_pipelines.state.revisions import count_change, published_keys
from kfm_pipelines.stores import Layout


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What became of one collection."""

    dataset: str
    items: int
    bytes: int
    note: str = ""  # why none was taken

    def __str__(self) -> str:
        return f"{self.dataset}: {self.note or f'{self.items} items in {self.bytes} bytes'}"


def take_snapshot(workshop: Workshop, dataset: Dataset, *, anyway: bool = False) -> Snapshot:
    """Write the collection's Items as one table, unless nothing has changed since it was last done."""
    layout = Layout(dataset.pipeline)
    with workshop.database.transaction() as connection:
        changes = snapshots.changes_of(connection, dataset.dataset)
        taken = snapshots.taken_up_to(connection, dataset.dataset, snapshots.ITEMS)
        keys = [one.key for one in published_keys(connection, dataset.dataset)]
    if not keys:
        return Snapshot(dataset.dataset, 0, 0, "nothing is published")
    if taken == changes and not anyway and workshop.store.exists(layout.snapshot()):
        return Snapshot(dataset.dataset, len(keys), 0, "nothing has changed since the last one")
    items = list(_items(workshop, layout, keys))
    data = items_table(items)
    write_with_seal(workshop, layout.snapshot(), data)
    with workshop.database.transaction() as connection:
        snapshots.record_snapshot(connection, dataset.dataset, snapshots.ITEMS, changes)
        if taken is None:
            count_change(connection, dataset.dataset)
    refresh_collection(workshop, dataset)
    return Snapshot(dataset.dataset, len(items), len(data))


def _items(workshop: Workshop, layout: Layout, keys: list[str]) -> Iterator[dict[str, Any]]:
    for key in keys:
        path = layout.item(key)
        try:
            yield json.loads(workshop.store.read(path))
        except (ObjectMissing, ValueError, RecursionError):
            raise IntegrityBroken(f"{path} is not there or no Item; see what a scan says of it") from None
