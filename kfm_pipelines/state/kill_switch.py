"""The kill switch: which datasets must not publish, since when, who decided it and why.

A publication holds the dataset's barrier, shared, from before it checks the switch until its swap is committed or
given up. `kill` commits its move and then takes the barrier exclusively, so when it returns every publication that
missed the move has ended. Only `kill` waits for the barrier, and it holds nothing else, so there is no deadlock.
"""

from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.errors import DatasetKilled, StillPublishing
from kfm_pipelines.state.database import Connection, Database, advisory_lock, insert_rows

LONGEST_WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class KilledDataset:
    dataset: str
    actor: str
    reason: str
    at: datetime

    def __str__(self) -> str:
        return f"{self.dataset} is killed by {self.actor}: {self.reason}"


def kill(
    database: Database, dataset: str, actor: str, reason: str, *, wait_seconds: float = LONGEST_WAIT_SECONDS
) -> None:
    """Sets the switch, then waits for running publications. Killing a killed dataset records the new actor and reason.

    Raises StillPublishing when some have not ended in time; the switch stays set."""
    with database.transaction() as connection:
        _lock_switch(connection, dataset)
        _record_move(connection, dataset, actor, reason, killed=True)
    _await_publications(database, dataset, wait_seconds)


def unkill(database: Database, dataset: str, actor: str, reason: str) -> bool:
    """Releases the switch; returns False and records nothing when the dataset was not killed."""
    with database.transaction() as connection:
        _lock_switch(connection, dataset)
        if find_killed(connection, dataset) is None:
            return False
        _record_move(connection, dataset, actor, reason, killed=False)
        return True


def killed_datasets(database: Database) -> dict[str, KilledDataset]:
    rows = database.fetch("SELECT dataset, actor, reason, at FROM kfm.killed ORDER BY dataset")
    return {row["dataset"]: KilledDataset(**row) for row in rows}


def find_killed(connection: Connection, dataset: str) -> KilledDataset | None:
    query = "SELECT dataset, actor, reason, at FROM kfm.killed WHERE dataset = %(dataset)s"
    row = connection.execute(query, {"dataset": dataset}).fetchone()
    return KilledDataset(**row) if row else None


def was_killed_within(database: Database, dataset: str, seconds: float) -> bool:
    query = """
        SELECT 1 FROM kfm.killed WHERE dataset = %(dataset)s
        UNION ALL
        SELECT 1 FROM kfm.kill_moves
        WHERE dataset = %(dataset)s AND at >= clock_timestamp() - make_interval(secs => %(seconds)s)
    """
    rows = database.fetch(query, {"dataset": dataset, "seconds": seconds})
    return bool(rows)


def killed_with_due_keys(database: Database) -> list[tuple[KilledDataset, int]]:
    """Returns every killed dataset with the number of its due keys."""
    query = """
        SELECT d.dataset, d.actor, d.reason, d.at, (SELECT count(*) FROM kfm.keys k WHERE k.dataset = d.dataset
                     AND k.due_at <= clock_timestamp() AND k.owner IS NULL) AS keys
        FROM kfm.killed d ORDER BY d.dataset
    """
    rows = database.fetch(query)
    return [(KilledDataset(row["dataset"], row["actor"], row["reason"], row["at"]), row["keys"]) for row in rows]


def interrupted_publications(database: Database, limit: int) -> list[tuple[str, str]]:
    """Returns dataset and key of intended publications of killed datasets that no worker holds any more."""
    query = """
        SELECT k.dataset, k.key FROM kfm.keys k JOIN kfm.killed d ON d.dataset = k.dataset
        WHERE (k.due_at IS NOT NULL OR k.owner IS NOT NULL)
          AND (k.owner IS NULL OR k.lease_until < clock_timestamp())
          AND (SELECT w.step FROM kfm.wal w WHERE w.key = k.key ORDER BY w.id DESC LIMIT 1) = 'publish'
        ORDER BY k.key LIMIT %(limit)s
    """
    rows = database.fetch(query, {"limit": limit})
    return [(row["dataset"], row["key"]) for row in rows]


def is_known(database: Database, dataset: str) -> bool:
    """Whether the database knows the dataset, even if its declaration is gone or broken."""
    query = """
        SELECT 1 WHERE EXISTS (SELECT FROM kfm.keys WHERE dataset = %(dataset)s)
            OR EXISTS (SELECT FROM kfm.kill_moves WHERE dataset = %(dataset)s)
    """
    rows = database.fetch(query, {"dataset": dataset})
    return bool(rows)


def refuse_if_killed(connection: Connection, dataset: str) -> None:
    found = find_killed(connection, dataset)
    if found is not None:
        raise DatasetKilled(str(found))


def hold_barrier(connection: Connection, dataset: str) -> bool:
    """Holds the barrier until the transaction ends, so that a kill waits for it. Returns False when a kill is waiting:
    it has set the switch already, so there is nothing to wait for."""
    query = "SELECT pg_try_advisory_xact_lock_shared(hashtextextended(%(barrier)s, 0)) AS held"
    row = connection.execute(query, _barrier(dataset)).fetchone()
    return bool(row and row["held"])


def _barrier(dataset: str) -> dict[str, str]:
    """The name that is hashed to the lock's number. A collision between datasets only delays one of them."""
    return {"barrier": f"kfm kill {dataset}"}


def _lock_switch(connection: Connection, dataset: str) -> None:
    """Serialises moves, so that the one with the highest id was committed last."""
    query = "SELECT pg_advisory_xact_lock(hashtextextended(%(seat)s, 0))"
    connection.execute(query, {"seat": f"kfm kill move {dataset}"})


def _record_move(connection: Connection, dataset: str, actor: str, reason: str, *, killed: bool) -> None:
    move = {"dataset": dataset, "killed": killed, "actor": actor, "reason": reason}
    insert_rows(connection, "kill_moves", [move])


def _await_publications(database: Database, dataset: str, wait_seconds: float) -> None:
    with database.transaction() as connection:
        if advisory_lock(connection, _barrier(dataset)["barrier"], wait_seconds):
            return
        under_way = _count_publications(connection, dataset)
    raise StillPublishing(
        f"{dataset} is killed, but publications that began earlier are still running after {wait_seconds:.0f} s: "
        f"{under_way}; kill it again to wait for them"
    )


def _count_publications(connection: Connection, dataset: str) -> int:
    """Counts the holders of the barrier. Postgres shows the lock's number in two halves."""
    query = """
        SELECT count(*) AS n FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock' AND objsubid = 1
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND (classid::bigint << 32) | objid::bigint = hashtextextended(%(barrier)s, 0)
    """
    row = connection.execute(query, _barrier(dataset)).fetchone()
    return row["n"] if row else 0
