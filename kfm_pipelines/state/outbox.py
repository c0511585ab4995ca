"""The outbox: keys whose publication a sink does not show yet.

A publication asks for its keys in its own transaction, so nothing is lost while a sink is away. A sink shows the
current state of a key, whatever it was before: a key that is published twice meanwhile is one row, the order does not
matter, and writing a key again changes nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from kfm_pipelines.state.database import Connection, Database

LONGEST_WAIT_SECONDS = 300


class Sink(StrEnum):
    TABLE = "table"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class Backlog:
    """How far a sink is behind for one dataset."""

    sink: Sink
    dataset: str
    keys: int
    since: datetime
    failed: int  # of these, keys that could not be written at the last attempt
    problem: str | None  # of one of them


def request(connection: Connection, sinks: Collection[Sink], dataset: str, keys: Collection[str]) -> None:
    """Asks these sinks for these keys. Call in the transaction that publishes or withdraws them."""
    if not sinks or not keys:
        return
    statement = """
        INSERT INTO kfm.outbox AS waiting (sink, dataset, key)
        SELECT sink, %(dataset)s, key FROM unnest(%(sinks)s::text[]) AS sink, unnest(%(keys)s::text[]) AS key
        ORDER BY sink, key
        ON CONFLICT (sink, key) DO UPDATE SET
            dataset = excluded.dataset, change = excluded.change, due = excluded.due, attempts = 0, problem = NULL
    """
    connection.execute(statement, {"sinks": list(sinks), "dataset": dataset, "keys": list(keys)})


def request_all_published(database: Database, sink: Sink, dataset: str, *, but: Collection[str] = ()) -> int:
    """Asks for every published key of the dataset but these. Returns their number."""
    statement = """
        INSERT INTO kfm.outbox AS waiting (sink, dataset, key)
        SELECT %(sink)s, %(dataset)s, k.key FROM kfm.keys k
        WHERE k.dataset = %(dataset)s AND EXISTS (SELECT FROM kfm.revisions r WHERE r.key = k.key)
          AND NOT k.key = ANY(%(but)s)
        ORDER BY k.key
        ON CONFLICT (sink, key) DO UPDATE SET
            dataset = excluded.dataset, change = excluded.change, due = excluded.due, attempts = 0, problem = NULL
    """
    return database.execute(statement, {"sink": sink, "dataset": dataset, "but": list(but)})


def due(
    database: Database, sink: Sink, dataset: str, *, keys: Sequence[str] | None = None, limit: int
) -> dict[str, int]:
    """Returns due keys, or those of `keys` that are asked for, each with the change to acknowledge; in order of their
    windows, which is that of the names."""
    query = """
        SELECT key, change FROM kfm.outbox
        WHERE sink = %(sink)s AND dataset = %(dataset)s
          AND CASE WHEN %(keys)s::text[] IS NULL THEN due <= clock_timestamp() ELSE key = ANY(%(keys)s) END
        ORDER BY key COLLATE "C" LIMIT %(limit)s
    """
    asked = None if keys is None else list(keys)
    rows = database.fetch(query, {"sink": sink, "dataset": dataset, "keys": asked, "limit": limit})
    return {row["key"]: row["change"] for row in rows}


def acknowledge(connection: Connection, sink: Sink, changes: Mapping[str, int]) -> None:
    """Removes what the sink shows now. What was published since stays."""
    statement = """
        DELETE FROM kfm.outbox o USING unnest(%(keys)s::text[], %(changes)s::bigint[]) AS done (key, change)
        WHERE o.sink = %(sink)s AND o.key = done.key AND o.change = done.change
    """
    connection.execute(statement, {"sink": sink, "keys": list(changes), "changes": list(changes.values())})


def postpone(database: Database, sink: Sink, problems: Mapping[str, str]) -> None:
    """Has these keys wait, longer each time, up to five minutes."""
    statement = """
        UPDATE kfm.outbox o SET
            attempts = o.attempts + 1, problem = failed.problem,
            due = clock_timestamp() + make_interval(secs => least(power(2, least(o.attempts, 10) + 1), %(longest)s))
        FROM unnest(%(keys)s::text[], %(problems)s::text[]) AS failed (key, problem)
        WHERE o.sink = %(sink)s AND o.key = failed.key
    """
    parameters = {
        "sink": sink,
        "keys": list(problems),
        "problems": [problem[:1000] for problem in problems.values()],
        "longest": LONGEST_WAIT_SECONDS,
    }
    database.execute(statement, parameters)


def make_due(database: Database, sink: Sink, dataset: str) -> None:
    statement = "UPDATE kfm.outbox SET due = clock_timestamp() WHERE sink = %(sink)s AND dataset = %(dataset)s"
    database.execute(statement, {"sink": sink, "dataset": dataset})


def forget(database: Database, sink: Sink, dataset: str) -> None:
    """Removes what is asked of a sink that does not show the dataset any more."""
    statement = "DELETE FROM kfm.outbox WHERE sink = %(sink)s AND dataset = %(dataset)s"
    database.execute(statement, {"sink": sink, "dataset": dataset})


def datasets_due(database: Database, sink: Sink) -> list[str]:
    query = (
        "SELECT DISTINCT dataset FROM kfm.outbox WHERE sink = %(sink)s AND due <= clock_timestamp() ORDER BY dataset"
    )
    return [row["dataset"] for row in database.fetch(query, {"sink": sink})]


def backlogs(database: Database) -> list[Backlog]:
    query = """
        SELECT sink, dataset, count(*) AS keys, min(at) AS since, count(*) FILTER (WHERE attempts > 0) AS failed,
               max(problem) AS problem
        FROM kfm.outbox GROUP BY sink, dataset ORDER BY sink, dataset
    """
    return [Backlog(**{**row, "sink": Sink(row["sink"])}) for row in database.fetch(query)]
