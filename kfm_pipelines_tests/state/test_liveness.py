"""A process is alive as long as it holds its lock: it ends with the process, not with a restart of Postgres."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kfm_pipelines.state import liveness
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.liveness import ProcessLock, count_workers, live_processes, look_at_runs, record_run
from kfm_pipelines_tests.fixtures.sites.processes import eventually, next_line, script

HOLDER = """
import sys, time
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.liveness import ProcessLock
print(ProcessLock(Database(sys.argv[1])).number, flush=True)
time.sleep(300)
"""
SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'lock of kfm %%' AND datname = current_database()"
)


@contextmanager
def holder(database: Database) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yields a process that holds its lock, and its number."""
    process = script(HOLDER, database._url)
    try:
        yield process, int(next_line(process))
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def lock(database: Database) -> Iterator[ProcessLock]:
    held = ProcessLock(database)
    yield held
    held.close()


def test_a_run_is_dead_when_its_process_was_killed_and_not_when_it_was_stopped(database: Database) -> None:
    with holder(database) as (process, number):
        record_run(database, "run", number)
        os.kill(process.pid, signal.SIGSTOP)
        assert look_at_runs(database, ["run", "one that has not begun"], 0) == {"run": False}

        process.kill()
        process.wait()
        assert eventually(lambda: look_at_runs(database, ["run"], 0) == {"run": True}, seconds=2)


def test_a_restart_of_postgres_is_no_death(database: Database, lock: ProcessLock) -> None:
    record_run(database, "run", lock.number)
    [session] = database.fetch(SESSIONS)
    database.execute("SELECT pg_terminate_backend(%(pid)s)", session)

    assert eventually(lambda: look_at_runs(database, ["run"], liveness.MISSING_SECONDS) and not held(database, lock))
    assert eventually(lambda: held(database, lock), seconds=2 * liveness.KEEPER_SECONDS + 1)

    assert look_at_runs(database, ["run"], 0) == {"run": False}
    assert database.fetch("SELECT missing_since FROM kfm.run_processes") == [{"missing_since": None}]


def test_a_lock_that_stays_missing_is_a_death_after_some_seconds(database: Database) -> None:
    record_run(database, "run", process=0)
    assert look_at_runs(database, ["run"], 8) == {"run": False}
    database.execute("UPDATE kfm.run_processes SET missing_since = missing_since - interval '7 s'")
    assert look_at_runs(database, ["run"], 8) == {"run": False}
    database.execute("UPDATE kfm.run_processes SET missing_since = missing_since - interval '1 s'")
    assert look_at_runs(database, ["run"], 8) == {"run": True}


def test_workers_are_counted_and_other_processes_are_not(database: Database, lock: ProcessLock) -> None:
    workers = [ProcessLock(database, worker=True) for _ in range(2)]
    assert count_workers(database) == 2
    assert live_processes(database) == {lock.number, *(worker.number for worker in workers)}
    for worker in workers:
        worker.close()
    assert eventually(lambda: count_workers(database) == 0)


def test_postgres_notices_within_seconds_that_the_host_of_a_holder_is_gone(database: Database) -> None:
    with database.connect() as connection:
        names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
        idle, interval, count, unanswered = (
            int(connection.execute("SELECT current_setting(%(name)s) AS n", {"name": name}).fetchone()["n"])  # type: ignore[index]
            for name in names
        )
    assert idle + interval * count < 10
    assert unanswered < 10_000


def test_rows_of_runs_that_ended_long_ago_are_removed(database: Database) -> None:
    record_run(database, "old", 1)
    database.execute("UPDATE kfm.run_processes SET begun_at = begun_at - interval '8 days'")
    record_run(database, "new", 2)
    record_run(database, "new", 3)
    assert database.fetch("SELECT run_id, process FROM kfm.run_processes") == [{"run_id": "new", "process": 2}]


def held(database: Database, lock: ProcessLock) -> bool:
    return lock.number in live_processes(database)
