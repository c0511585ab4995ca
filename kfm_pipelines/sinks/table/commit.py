"""One commit to a table: written on a branch, audited there, and published by one move of `main`.

The log says first what the branch is for, then which snapshot was audited. Whoever writes next ends what a stopped
writer left: it counts as published if `main` has its snapshot, and is undone otherwise. A writer whose branch was
undone meanwhile cannot publish it any more. pyiceberg would move `main` to any snapshot, so its ancestry is checked
here.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.table import tables as log
from kfm_pipelines.sinks.table.clean import files_of, remove_unreferenced
from kfm_pipelines.sinks.table.tables import Purpose, TableCommit
from kfm_pipelines.sinks.table.warehouse import load_table, open_catalog, translated_errors, write_version_hint
from kfm_pipelines.state.database import advisory_lock

if TYPE_CHECKING:
    from pyiceberg.table import Table

MAIN = "main"
ATTEMPTS = 8
PAUSE_SECONDS = 0.1
LOCK_SECONDS = 30.0
# Of the error of pyiceberg when another branch was written to meanwhile.
_OUT_OF_SEQUENCE = "older than last sequence number"

# Writes to the branch by this table, which then is as it left it, and raises unless what it finds there is right.
Write = Callable[["Table", str], None]


@contextmanager
def writing(services: Services, dataset: Dataset, lock_seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Makes this process the only writer of the table, and ends what a stopped one has left. Postgres ends the lock of
    a process that vanishes, and after two minutes that of one that hangs."""
    with services.database.transaction() as connection:
        if not advisory_lock(connection, f"kfm table {dataset.dataset}", lock_seconds):
            raise ServiceUnavailable(f"the table of {dataset.dataset} is being written by another process")
        with translated_errors():
            recover(services, dataset)
            yield
            write_version_hint(services, dataset)


def recover(services: Services, dataset: Dataset, only: TableCommit | None = None) -> None:
    """Ends open commits, all or one of them: forward if readers see it, backward if not."""
    for commit in log.open_commits(services.database, dataset.dataset):
        if only is not None and commit.id != only.id:
            continue
        table = load_table(services, dataset)
        if table is not None and commit.snapshot is not None and is_published(table, commit.snapshot):
            log.end(services.database, commit, "published")
        else:
            if table is not None:
                undo(services, table, commit)
            log.end(services.database, commit, "abandoned")


def commit_to(services: Services, dataset: Dataset, table: "Table", purpose: Purpose, write: Write) -> "Table":
    """Publishes what `write` writes. Others that commit to the same table meanwhile make it start again."""
    from pyiceberg.exceptions import CommitFailedException, ValidationException

    for attempt in range(ATTEMPTS):
        commit = log.begin(services.database, dataset.dataset, purpose, _first_snapshot(table))
        try:
            _publish(services, table, commit, write)
        except (CommitFailedException, ValidationException, ValueError) as error:
            recover(services, dataset, commit)
            if isinstance(error, ValueError) and _OUT_OF_SEQUENCE not in str(error):
                raise
            time.sleep(services.random.uniform(0, PAUSE_SECONDS * attempt))
            table = table.refresh()
            if attempt == ATTEMPTS - 1:
                raise ServiceUnavailable(f"the table of {dataset.dataset} changed during each attempt") from error
        except Exception:
            recover(services, dataset, commit)
            raise
        else:
            log.end(services.database, commit, "published")
            return table.refresh()
    raise AssertionError


def _publish(services: Services, table: "Table", commit: TableCommit, write: Write) -> None:
    from pyiceberg.table.update import (
        AssertRefSnapshotId,
        AssertTableUUID,
        RemoveSnapshotRefUpdate,
        SetSnapshotRefUpdate,
    )

    catalog, branch, base = open_catalog(services), commit.branch, commit.base
    same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
    is_new = AssertRefSnapshotId(ref=branch, snapshot_id=None)
    begin = SetSnapshotRefUpdate(ref_name=branch, type="branch", snapshot_id=base)
    catalog.commit_table(table, (same_table, is_new), (begin,))
    table.refresh()
    write(table, branch)
    staged = table.refs().get(branch)
    if staged is None or not _descends(table, staged.snapshot_id, base):
        raise ServiceUnavailable("another process has undone this commit")
    log.record_audited(services.database, commit, staged.snapshot_id)
    requirements = (
        same_table,
        AssertRefSnapshotId(ref=MAIN, snapshot_id=base),
        AssertRefSnapshotId(ref=branch, snapshot_id=staged.snapshot_id),
    )
    day = f"{services.today():%Y-%m-%d}"
    moves = (
        SetSnapshotRefUpdate(ref_name=MAIN, type="branch", snapshot_id=staged.snapshot_id),
        SetSnapshotRefUpdate(ref_name=day, type="tag", snapshot_id=staged.snapshot_id),
        RemoveSnapshotRefUpdate(ref_name=branch),
    )
    catalog.commit_table(table, requirements, moves)


def undo(services: Services, table: "Table", commit: TableCommit) -> None:
    """Removes the branch with its snapshots at once, so that nobody can publish it, then their files."""
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate

    for attempt in range(ATTEMPTS):
        staged = table.refresh().refs().get(commit.branch)
        if staged is None:
            return
        own = [*takewhile(lambda one: one != commit.base, ancestors(table, staged.snapshot_id))]
        files = files_of(table, own)
        requirement = AssertRefSnapshotId(ref=commit.branch, snapshot_id=staged.snapshot_id)
        removals = (RemoveSnapshotRefUpdate(ref_name=commit.branch), RemoveSnapshotsUpdate(snapshot_ids=own))
        try:
            open_catalog(services).commit_table(table, (requirement,), removals)
        except CommitFailedException:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            remove_unreferenced(table.refresh(), files)
            return


def is_published(table: "Table", snapshot: int) -> bool:
    current = table.current_snapshot()
    return current is not None and _descends(table, current.snapshot_id, snapshot)


def ancestors(table: "Table", snapshot: int) -> Iterator[int]:
    """Yields the snapshot and those it was made from, newest first."""
    known = table.metadata.snapshot_by_id(snapshot)
    while known is not None:
        yield known.snapshot_id
        parent = known.parent_snapshot_id
        known = None if parent is None else table.metadata.snapshot_by_id(parent)


def _descends(table: "Table", snapshot: int, ancestor: int) -> bool:
    return ancestor in ancestors(table, snapshot)


def _first_snapshot(table: "Table") -> int:
    """Returns the current snapshot, and makes an empty one in a new table, which could have no branch otherwise."""
    current = table.current_snapshot()
    if current is None:
        table.append(table.schema().as_arrow().empty_table())
        current = table.refresh().current_snapshot()
    if current is None:
        raise AssertionError
    return current.snapshot_id
