"""Removes what was withdrawn from the history of a table: each snapshot that has it, and every file of theirs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.table.clean import remove_orphans, remove_snapshots
from kfm_pipelines.sinks.table.commit import MAIN
from kfm_pipelines.sinks.table.tables import TableRevision, history_of_key
from kfm_pipelines.sinks.table.warehouse import load_table

if TYPE_CHECKING:
    from pyiceberg.table import Table


def forget_withdrawn(services: Services, dataset: Dataset, withdrawn: Mapping[str, Sequence[str]]) -> int:
    """Removes the snapshots that show these contents, given by key. Call when the current one shows none of them.
    Returns the number of snapshots."""
    with services.database.transaction() as connection:
        histories = {key: history_of_key(connection, key) for key in withdrawn}
    concerned = {
        key: history for key, history in histories.items() if any(one.content_hash in withdrawn[key] for one in history)
    }
    table = load_table(services, dataset) if concerned else None
    if table is None:
        return 0
    gone = {one for key, history in concerned.items() for one in snapshots_with(table, history, withdrawn[key])}
    _remove_tags(table, gone)
    remove_snapshots(table, gone)
    # The commits of a stopped process, and earlier versions of the metadata.
    remove_orphans(services, dataset, table)
    return len(gone)


def snapshots_with(table: "Table", history: Sequence[TableRevision], contents: Sequence[str]) -> set[int]:
    """Returns the snapshots up to the current one in which the key has one of these contents."""
    current = table.current_snapshot()
    content_at = {one.snapshot: one.content_hash for one in history}
    content, found = None, set()
    # Not by their parents, which may be removed already.
    for snapshot in sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0):
        content = content_at.get(snapshot.snapshot_id, content)
        if content in contents and snapshot != current:
            found.add(snapshot.snapshot_id)
    return found


def _remove_tags(table: "Table", snapshots: set[int]) -> None:
    named = [name for name, ref in table.refs().items() if ref.snapshot_id in snapshots and name != MAIN]
    if named:
        with table.manage_snapshots() as manage:
            for name in named:
                manage.remove_tag(name)
        table.refresh()
