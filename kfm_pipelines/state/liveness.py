"""Which processes are alive. Each holds a session lock in Postgres under a number of its own, which ends with the
process, however it ends, and stays while the process is only slow or stopped."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from kfm_pipelines.errors import KfmError
from kfm_pipelines.state.database import LOCK_SESSION, Connection, Database, advisory_lock, pairs, translated_errors

# A restart of Postgres takes the lock from a living process, which looks this often and takes it again.
KEEPER_SECONDS = 2.0
# A process is dead when its lock is missing in two looks this far apart.
MISSING_SECONDS = 8.0
# Rows of runs that ended long ago; a run takes hours at most.
ROWS_KEPT_DAYS = 7
# How long to wait for another worker that plans. Without the lock two may plan the same keys, but only one binds them.
PLANNING_SECONDS = 5.0

# Classes of advisory locks, as in the view kfm.live_processes; the second number is that of the process.
PROCESS_CLASS, WORKER_CLASS = 4_935_245, 4_935_246


class ProcessLock:
    """The lock of this process, kept until `close` or the end of the process."""

    def __init__(self, database: Database, *, worker: bool = False) -> None:
        self._database = database
        self._lock_class = WORKER_CLASS if worker else PROCESS_CLASS
        self.number: int = database.fetch("SELECT nextval('kfm.process_numbers')::int AS number")[0]["number"]
        self._connection = self._take()
        self._closed = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="process-lock", daemon=True)
        self._keeper.start()

    def close(self) -> None:
        self._closed.set()
        self._keeper.join()
        self._connection.close()

    def _take(self) -> Connection:
        connection = self._database.connect()
        # Shared, because after a broken connection Postgres may keep the old session for some seconds.
        taking = "SELECT pg_advisory_lock_shared(%(lock_class)s, %(number)s)"
        connection.execute(taking, {"lock_class": self._lock_class, "number": self.number})
        return connection

    def _keep(self) -> None:
        while not self._closed.wait(KEEPER_SECONDS):
            try:
                with translated_errors():
                    self._connection.execute("SELECT 1")
            except KfmError:
                with suppress(KfmError), translated_errors():
                    self._connection.close()
                    self._connection = self._take()


def record_run(database: Database, run_id: str, process: int) -> None:
    """Records that the process, which holds its lock, executes the run."""
    statement = """
        WITH old AS (DELETE FROM kfm.run_processes WHERE begun_at < clock_timestamp() - make_interval(days => %(days)s))
        INSERT INTO kfm.run_processes (run_id, process) VALUES (%(run_id)s, %(process)s) ON CONFLICT DO NOTHING
    """
    database.execute(statement, {"run_id": run_id, "process": process, "days": ROWS_KEPT_DAYS})


def is_recorded(database: Database, run_id: str) -> bool:
    return bool(database.fetch("SELECT FROM kfm.run_processes WHERE run_id = %(run_id)s", {"run_id": run_id}))


def look_at_runs(database: Database, run_ids: Sequence[str], missing_seconds: float) -> Mapping[str, bool]:
    """Returns, for each of these runs that has begun, whether its process is dead: whether its lock has been missing
    for so many seconds since it was first missed."""
    query = """
        UPDATE kfm.run_processes p
        SET missing_since = CASE WHEN process NOT IN (SELECT process FROM kfm.live_processes)
                                 THEN coalesce(missing_since, clock_timestamp()) END
        WHERE run_id = ANY(%(run_ids)s)
        RETURNING run_id, coalesce(missing_since <= clock_timestamp() - make_interval(secs => %(seconds)s), false)
            AS dead
    """
    return pairs(database.fetch(query, {"run_ids": list(run_ids), "seconds": missing_seconds}))


def live_processes(database: Database) -> set[int]:
    return {row["process"] for row in database.fetch("SELECT process FROM kfm.live_processes")}


def end_open_transactions(database: Database, processes: Iterable[int]) -> int:
    """Ends the sessions in which these processes, which no longer renew their leases, have left a transaction open:
    a stopped process would keep the rows locked that it has changed, and nobody could take over its keys."""
    query = """
        SELECT pg_terminate_backend(session.pid, 1000) FROM pg_stat_activity session
        WHERE session.state LIKE 'idle in transaction%%' AND session.usename = current_user
          AND %(prefix)s || session.application_name IN (
              SELECT keeper.application_name FROM pg_locks JOIN pg_stat_activity keeper USING (pid)
              WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND classid = ANY(%(classes)s)
                AND objid::bigint = ANY(%(processes)s))
    """
    classes = [PROCESS_CLASS, WORKER_CLASS]
    return database.execute(query, {"prefix": LOCK_SESSION, "classes": classes, "processes": [*processes]})


def count_workers(database: Database) -> int:
    """Returns how many `kfm work` processes are alive."""
    return len(database.fetch("SELECT FROM kfm.live_processes WHERE worker"))


@contextmanager
def planning(database: Database) -> Iterator[None]:
    """Lets one worker at a time look at what is due and choose from it."""
    with database.transaction() as connection:
        advisory_lock(connection, "kfm planning", PLANNING_SECONDS)
        yield
