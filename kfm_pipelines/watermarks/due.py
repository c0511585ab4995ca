"""When keys are due. `ready_at` of an event: null is at once, infinity not before a release or a request."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.state.database import Connection, Database
from kfm_pipelines.state.keys import LOCK_AVAILABLE, PRIORITIES
from kfm_pipelines.watermarks.queries import WHOLE_DATASET

KEY_BATCH_SIZE = 1000


def make_due(
    connection: Connection,
    datasets: Datasets,
    fresh: Sequence[IngestEvent],
    moved: Sequence[IngestEvent],
    now: datetime | None,
) -> None:
    """Makes keys of new events due by their declaration, those of moved ones at once, unless held or waiting."""
    query = "SELECT identity FROM kfm.inbox WHERE identity = ANY(%(identities)s) AND ready_at > clock_timestamp()"
    rows = connection.execute(query, {"identities": [event.identity for event in (*fresh, *moved)]})
    unready = {row["identity"] for row in rows}
    wanted = [event for event in fresh if event.identity not in unready]
    changed = [event for event in moved if event.identity not in unready]
    waiting = _defer_events(connection, datasets, wanted, now)
    urgency: dict[str, int] = {}
    for event in [*wanted, *changed]:
        urgency[event.key] = max(urgency.get(event.key, 0), PRIORITIES[event.priority])
    at_once = {event.key for event in changed} | {event.key for event in wanted if event.identity not in waiting}
    statement = """
        UPDATE kfm.keys k SET priority = greatest(k.priority, n.priority), due_at = least(k.due_at,
            CASE WHEN n.at_once THEN clock_timestamp() ELSE (
                SELECT min(coalesce(i.ready_at, clock_timestamp())) FROM kfm.inbox i
                WHERE i.key = k.key AND i.state = 'received' AND i.ready_at IS DISTINCT FROM 'infinity') END)
        FROM unnest(%(keys)s::text[], %(priorities)s::smallint[], %(at_once)s::boolean[]) AS n (key, priority, at_once)
        WHERE k.key = n.key
    """
    parameters = {
        "keys": list(urgency),
        "priorities": list(urgency.values()),
        "at_once": [key in at_once for key in urgency],
    }
    connection.execute(statement, parameters)
    make_keys_due(connection, [event.key for event in changed])


def make_keys_due(connection: Connection, keys: Sequence[str]) -> None:
    """Makes these keys, and keys that take their inputs from them, due at once."""
    if keys:
        statement = """
            UPDATE kfm.keys SET due_at = least(due_at, clock_timestamp())
            WHERE key = ANY(%(keys)s) OR inputs_from = ANY(%(keys)s)
        """
        connection.execute(statement, {"keys": list(keys)})


def close_windows(database: Database, datasets: Datasets) -> int:
    """Makes keys due whose window the watermark has passed; returns how many. Locked keys wait for the next tick."""
    return sum(
        _close_windows_of_dataset(database, dataset) for dataset in datasets.values() if dataset.due.when == "on_close"
    )


def _close_windows_of_dataset(database: Database, dataset: Dataset) -> int:
    parameters = {"dataset": dataset.dataset, "whole": WHOLE_DATASET, "limit": KEY_BATCH_SIZE}
    count = 0
    while True:
        with database.transaction() as connection:
            query = """
                SELECT DISTINCT i.key
                FROM kfm.inbox i JOIN kfm.keys k ON k.key = i.key
                JOIN kfm.checkpoints c ON c.dataset = i.dataset AND c.partition = %(whole)s
                WHERE i.dataset = %(dataset)s AND i.state = 'received' AND i.ready_at < 'infinity'
                  AND k.window_end <= c.watermark
                LIMIT %(limit)s
            """
            rows = connection.execute(query, parameters).fetchall()
            closed = [row["key"] for row in rows]
            keys = [row["key"] for row in connection.execute(LOCK_AVAILABLE, {"keys": closed})]
            _mark_ready(connection, keys)
            statement = """
                UPDATE kfm.keys k SET due_at = least(due_at, clock_timestamp()) WHERE key = ANY(%(keys)s) AND EXISTS (
                    SELECT FROM kfm.inbox i WHERE i.key = k.key AND i.state = 'received' AND i.ready_at IS NULL)
            """
            connection.execute(statement, {"keys": keys})
        count += len(keys)
        if len(closed) < KEY_BATCH_SIZE or not keys:
            return count


def _defer_events(
    connection: Connection, datasets: Datasets, fresh: Sequence[IngestEvent], now: datetime | None
) -> set[str]:
    """Sets how long new events wait; returns the identities of those whose dataset lets them wait."""
    patient: defaultdict[str, list[IngestEvent]] = defaultdict(list)
    for event in fresh:
        due = datasets[event.dataset].due
        if due.wait is not None and (due.when == "on_close" or event.priority != "high"):
            patient[event.dataset].append(event)
    for dataset, events in patient.items():
        _set_ready_at(connection, datasets[dataset], events, now)
        if datasets[dataset].due.when == "eager":
            _mark_ready(connection, _keys_with_enough_events(connection, datasets[dataset], events))
    return {event.identity for events in patient.values() for event in events}


def _set_ready_at(
    connection: Connection, dataset: Dataset, events: Sequence[IngestEvent], now: datetime | None
) -> None:
    """Sets the longest wait, except for windows that are already closed."""
    statement = """
        UPDATE kfm.inbox i SET ready_at = coalesce(%(now)s::timestamptz, i.received_at) + %(wait)s
        FROM kfm.keys k
        WHERE i.identity = ANY(%(identities)s) AND k.key = i.key AND NOT (%(on_close)s AND k.window_end <= coalesce(
            (SELECT watermark FROM kfm.checkpoints c WHERE c.dataset = i.dataset AND c.partition = %(whole)s),
            '-infinity'))
    """
    parameters = {
        "identities": [event.identity for event in events],
        "now": now,
        "wait": dataset.due.wait,
        "on_close": dataset.due.when == "on_close",
        "whole": WHOLE_DATASET,
    }
    connection.execute(statement, parameters)


def _keys_with_enough_events(connection: Connection, dataset: Dataset, events: Sequence[IngestEvent]) -> list[str]:
    query = """
        SELECT key FROM kfm.inbox
        WHERE key = ANY(%(keys)s) AND state = 'received' AND ready_at IS DISTINCT FROM 'infinity'
        GROUP BY key HAVING count(*) >= %(enough)s
    """
    rows = connection.execute(query, {"keys": [event.key for event in events], "enough": dataset.due.events})
    return [row["key"] for row in rows]


def _mark_ready(connection: Connection, keys: Sequence[str]) -> None:
    """Ends the wait of these keys' events, except held ones."""
    statement = """
        UPDATE kfm.inbox SET ready_at = NULL
        WHERE key = ANY(%(keys)s) AND state = 'received' AND ready_at < 'infinity'
    """
    connection.execute(statement, {"keys": list(keys)})
