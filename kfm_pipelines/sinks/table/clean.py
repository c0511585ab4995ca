"""Removes snapshots, and the files that nothing refers to any more, which pyiceberg leaves.

Only for the process that holds the table. Files of a commit that is not finished belong to it, or to a process that
lost the table and cannot publish them.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.table.warehouse import table_folder, version_hint, warehouse_root

if TYPE_CHECKING:
    from pyiceberg.table import Table

KEYS_FILE = "kfm.keys-file"  # of a snapshot's summary: the list of what it publishes


def remove_snapshots(table: "Table", snapshots: Collection[int]) -> int:
    """Removes snapshots that no branch or tag points at, and the files that only they refer to. Returns the number of
    files."""
    known = {one.snapshot_id for one in table.metadata.snapshots}
    gone = sorted(known & set(snapshots))
    if not gone:
        return 0
    files = files_of(table, gone)
    table.maintenance.expire_snapshots().by_ids(gone).commit()
    return remove_unreferenced(table.refresh(), files)


def remove_unreferenced(table: "Table", files: Collection[str]) -> int:
    """Removes those of the files that nothing refers to any more. Returns their number."""
    unreferenced = set(files) - referenced_files(table)
    for path in sorted(unreferenced):
        table.io.delete(path)
    return len(unreferenced)


def remove_orphans(services: Services, dataset: Dataset, table: "Table") -> list[str]:
    """Removes every file in the table's folder that nothing refers to. Returns their paths."""
    root = f"{warehouse_root(services)}/"
    referenced = {path.removeprefix(root) for path in referenced_files(table)} | {version_hint(dataset.pipeline)}
    orphans = [path for path in services.store.paths(table_folder(dataset.pipeline)) if path not in referenced]
    for path in orphans:
        services.store.discard(path)
    return orphans


def referenced_files(table: "Table") -> set[str]:
    """Returns every file that the table is made of."""
    logged = {one.metadata_file for one in table.metadata.metadata_log}
    return {table.metadata_location, *logged, *files_of(table, [one.snapshot_id for one in table.metadata.snapshots])}


def files_of(table: "Table", snapshots: Iterable[int]) -> set[str]:
    """Returns the snapshots' lists of manifests, the manifests, what they list, and our lists of keys."""
    found: set[str] = set()
    for one in snapshots:
        snapshot = table.metadata.snapshot_by_id(one)
        if snapshot is None:
            continue
        found.add(snapshot.manifest_list)
        if snapshot.summary and (listed := snapshot.summary.additional_properties.get(KEYS_FILE)):
            found.add(listed)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in found:  # snapshots share most of them
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                found |= {manifest.manifest_path, *(entry.data_file.file_path for entry in entries)}
    return found
