"""Stores how far streams have advanced, and checkpoints, which are promises and never move back."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from kfm_pipelines.declarations import Watermark
from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.state.database import Connection, Database
from kfm_pipelines.watermarks.progress import Advance, Advances, envelope, is_progress
from kfm_pipelines.watermarks.queries import WHOLE_DATASET
from kfm_pipelines.watermarks.steps import REACHED_BY_NOW, STREAMS_CTE, recompute_all_steps, recompute_steps

MAX_STREAMS = 20_000  # more means that the pattern matches something else; the cost grows with the number

# Checkpoints that should be further by now.
_OUTDATED_CHECKPOINTS = f"""
    SELECT due.partition, due.watermark
    FROM (
        (SELECT '{WHOLE_DATASET}' AS partition, watermark FROM kfm.watermark_steps
         WHERE dataset = %(dataset)s AND at <= coalesce(%(now)s::timestamptz, clock_timestamp())
         ORDER BY at DESC LIMIT 1)
        UNION ALL
        SELECT partition, reached - %(out_of_order)s FROM ({REACHED_BY_NOW}) AS reached
    ) AS due
    LEFT JOIN kfm.checkpoints c ON c.dataset = %(dataset)s AND c.partition = due.partition
    WHERE c.watermark IS NULL OR c.watermark < due.watermark
"""  # noqa: S608 - contains no input


def lock_streams(connection: Connection, datasets: Iterable[str]) -> None:
    """Locks the streams of these datasets until the transaction ends. Keys must be locked before streams."""
    for dataset in sorted(set(datasets)):
        query = "SELECT pg_advisory_xact_lock(hashtextextended(%(seat)s, 0))"
        connection.execute(query, {"seat": f"kfm streams {dataset}"})


def advance_streams(
    connection: Connection,
    datasets: Datasets,
    events: Sequence[IngestEvent],
    evaluated_by_caller: Sequence[str],
    now: datetime | None,
) -> None:
    """Marks earlier events for re-evaluation, except those that the caller evaluates itself."""
    for dataset in sorted({event.dataset for event in events}):
        declared = datasets[dataset]
        _apply_rule(connection, declared)
        advances = _extract_advances(events, declared)
        new = _drop_excess_streams(connection, dataset, _select_new_advances(connection, dataset, advances))
        if new:
            surpassed = _insert_advances(connection, dataset, new)
            recompute_steps(connection, declared, new, surpassed, evaluated_by_caller)
            _advance_checkpoints(connection, declared, now)


def datasets_with_progress(connection: Connection, datasets: Datasets, events: Sequence[IngestEvent]) -> set[str]:
    """Returns the datasets that would advance. Streams never move back, so what is no progress now never will be."""
    named = {event.dataset for event in events}
    advances = {name: _extract_advances(events, datasets[name]) for name in named}
    return {name for name in named if _select_new_advances(connection, name, advances[name])}


def advance_watermarks(database: Database, datasets: Datasets, now: datetime | None = None) -> list[str]:
    """Advances checkpoints to the clock, because streams become idle without events; returns the changed datasets."""
    moved = []
    for dataset in datasets.values():
        with database.transaction() as connection:
            other_rule = _read_rule(connection, dataset.dataset) not in (None, _format_rule(dataset.watermark))
            if other_rule or _find_outdated_checkpoints(connection, dataset, now):
                lock_streams(connection, [dataset.dataset])
                _apply_rule(connection, dataset)
                _advance_checkpoints(connection, dataset, now)
                moved.append(dataset.dataset)
    return moved


def _format_rule(rule: Watermark) -> str:
    """Formats what the steps depend on. An event keeps the partition it had when it arrived."""
    return f"out_of_order {rule.out_of_order}, idle_after {rule.idle_after}, skew {rule.skew}"


def _read_rule(connection: Connection, dataset: str) -> str | None:
    query = "SELECT rule FROM kfm.stream_rules WHERE dataset = %(dataset)s"
    row = connection.execute(query, {"dataset": dataset}).fetchone()
    return row["rule"] if row else None


def _apply_rule(connection: Connection, dataset: Dataset) -> None:
    """Recomputes everything if the declared rule has changed."""
    known, declared = _read_rule(connection, dataset.dataset), _format_rule(dataset.watermark)
    if known == declared:
        return
    statement = """
        INSERT INTO kfm.stream_rules (dataset, rule) VALUES (%(dataset)s, %(rule)s)
        ON CONFLICT (dataset) DO UPDATE SET rule = excluded.rule
    """
    connection.execute(statement, {"dataset": dataset.dataset, "rule": declared})
    if known is not None:
        _rebuild_advances(connection, dataset)
        recompute_all_steps(connection, dataset)


def _rebuild_advances(connection: Connection, dataset: Dataset) -> None:
    """Recomputes the advances from the inbox, and from known advances because their events may have been purged."""
    query = """
        SELECT partition, at, reached FROM kfm.advances WHERE dataset = %(dataset)s
        UNION
        SELECT i.partition, t.at, i.data_time FROM kfm.inbox i, LATERAL (VALUES (i.made_at), (i.event_time)) AS t (at)
        WHERE i.dataset = %(dataset)s AND i.change = 'created' AND i.made_at IS NOT NULL AND i.data_time IS NOT NULL
    """
    rows = connection.execute(query, {"dataset": dataset.dataset})
    points: defaultdict[str, list[Advance]] = defaultdict(list)
    for row in rows:
        if is_progress(row["at"], row["reached"], dataset.watermark):
            points[row["partition"]].append(Advance(row["at"], row["reached"]))
    connection.execute("DELETE FROM kfm.advances WHERE dataset = %(dataset)s", {"dataset": dataset.dataset})
    _insert_advances(connection, dataset.dataset, _envelopes(points))


def _drop_excess_streams(connection: Connection, dataset: str, new: Advances) -> Advances:
    query = """
        SELECT n.partition FROM unnest(%(partitions)s::text[]) AS n (partition) WHERE NOT EXISTS (
            SELECT FROM kfm.advances a WHERE a.dataset = %(dataset)s AND a.partition = n.partition)
    """
    parameters = {"dataset": dataset, "partitions": sorted({partition for partition, _ in new})}
    rows = connection.execute(query, parameters).fetchall()
    if not rows:
        return list(new)
    statement = f"WITH {STREAMS_CTE} SELECT count(partition) AS n FROM streams".encode()  # noqa: S608
    [count] = connection.execute(statement, {"dataset": dataset}).fetchall()
    free = max(0, MAX_STREAMS - count["n"])
    too_many = set(sorted(row["partition"] for row in rows)[free:])
    return [(partition, one) for partition, one in new if partition not in too_many]


def _extract_advances(events: Iterable[IngestEvent], dataset: Dataset) -> Advances:
    """Returns, per stream, the events of the dataset that got further than all made before them."""
    points: defaultdict[str, list[Advance]] = defaultdict(list)
    for event in (one for one in events if one.dataset == dataset.dataset and one.change == "created"):
        if is_progress(event.event_time, event.data_time, dataset.watermark):
            points[event.partition].append(Advance(event.event_time, event.data_time))
    return _envelopes(points)


def _envelopes(points: Mapping[str, Iterable[Advance]]) -> Advances:
    return [(partition, one) for partition in sorted(points) for one in envelope(points[partition])]


_UNNESTED_ADVANCES = """
    unnest(%(partitions)s::text[], %(ats)s::timestamptz[], %(reached)s::timestamptz[]) AS n (partition, at, reached)
"""


def _parameters(dataset: str, advances: Advances) -> dict[str, object]:
    return {
        "dataset": dataset,
        "partitions": [partition for partition, _ in advances],
        "ats": [one.at for _, one in advances],
        "reached": [one.reached for _, one in advances],
    }


def _select_new_advances(connection: Connection, dataset: str, advances: Advances) -> Advances:
    if not advances:
        return []
    query = f"""
        SELECT n.partition, n.at, n.reached FROM {_UNNESTED_ADVANCES}
        WHERE n.reached > coalesce((
            SELECT a.reached FROM kfm.advances a
            WHERE a.dataset = %(dataset)s AND a.partition = n.partition AND a.at <= n.at ORDER BY a.at DESC LIMIT 1
        ), '-infinity')
    """  # noqa: S608
    rows = connection.execute(query, _parameters(dataset, advances))
    return [(row["partition"], Advance(row["at"], row["reached"])) for row in rows]


def _insert_advances(connection: Connection, dataset: str, new: Advances) -> Advances:
    """Inserts new advances; deletes and returns the later ones that they surpass."""
    parameters = _parameters(dataset, new)
    statement = f"""
        DELETE FROM kfm.advances a USING {_UNNESTED_ADVANCES}
        WHERE a.dataset = %(dataset)s AND a.partition = n.partition AND a.at >= n.at AND a.at < coalesce((
            SELECT b.at FROM kfm.advances b
            WHERE b.dataset = %(dataset)s AND b.partition = n.partition AND b.at >= n.at AND b.reached > n.reached
            ORDER BY b.at LIMIT 1
        ), 'infinity')
        RETURNING a.partition, a.at, a.reached
    """  # noqa: S608
    rows = connection.execute(statement, parameters).fetchall()
    connection.execute(
        f"INSERT INTO kfm.advances (dataset, partition, at, reached) SELECT %(dataset)s, n.* FROM {_UNNESTED_ADVANCES}",  # noqa: S608
        parameters,
    )
    return [(row["partition"], Advance(row["at"], row["reached"])) for row in rows]


def _find_outdated_checkpoints(
    connection: Connection, dataset: Dataset, now: datetime | None
) -> Sequence[Mapping[str, Any]]:
    parameters = {"dataset": dataset.dataset, "now": now, "out_of_order": dataset.watermark.out_of_order}
    return connection.execute(_OUTDATED_CHECKPOINTS.encode(), parameters).fetchall()


def _advance_checkpoints(connection: Connection, dataset: Dataset, now: datetime | None) -> None:
    behind = _find_outdated_checkpoints(connection, dataset, now)
    if not behind:
        return
    statement = """
        INSERT INTO kfm.checkpoints AS c (dataset, partition, watermark)
        SELECT %(dataset)s, * FROM unnest(%(partitions)s::text[], %(watermarks)s::timestamptz[])
        ON CONFLICT (dataset, partition) DO UPDATE
        SET watermark = greatest(c.watermark, excluded.watermark), updated_at = clock_timestamp()
    """
    parameters = {
        "dataset": dataset.dataset,
        "partitions": [row["partition"] for row in behind],
        "watermarks": [row["watermark"] for row in behind],
    }
    connection.execute(statement, parameters)
