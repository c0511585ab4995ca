"""How far the streams of a dataset have come, kept in tables: advances, the steps that follow from them, checkpoints.

Belongs here: keeping what `events.progress` reckons. Does not: what becomes of late events (`late`), or when keys are
due (`due`).

Advances and steps follow from the events alone, so they may change in the past when an event is delivered after later
ones. A checkpoint is what was promised at some time by the clock, and never goes back.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from kfm_pipelines.declarations import Watermark
from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.state.database import Connection, Database
from kfm_pipelines.watermarks.checkpoints import WHOLE_DATASET
from kfm_pipelines.watermarks.progress import Advance, envelope, is_progress
from kfm_pipelines.watermarks.steps import REACHED_BY_NOW, STREAMS_CTE, recompute_all_steps, recompute_steps

# A dataset with more streams than that has a pattern that names something else; what it costs to follow them grows with
# their number.
MAX_STREAMS = 20_000

# What the checkpoints should be by now and are not.
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
"""  # noqa: S608 nothing in it is anybody's input


def lock_streams(connection: Connection, datasets: Iterable[str]) -> None:
    """Let nobody else change how far these datasets have come before this transaction ends. Whoever holds a stream must
    not lock a key any more: keys are locked first."""
    for dataset in sorted(set(datasets)):
        connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%(seat)s, 0))", {"seat": f"kfm streams {dataset}"}
        )


def advance_streams(
    connection: Connection,
    datasets: Datasets,
    events: Sequence[IngestEvent],
    evaluated_by_caller: Sequence[str],
    now: datetime | None,
) -> None:
    """Let the streams come as far as these events say. What is told of an event twice, with two times, is two signs of
    progress: so it does not matter which of them came first. Whether those to be judged are late is still to be asked;
    what is known besides them may have to be judged again."""
    for dataset in sorted({event.dataset for event in events}):
        declared = datasets[dataset]
        _apply_rule(connection, declared)
        signs = _extract_advances((event for event in events if event.dataset == dataset), declared.watermark)
        new = _drop_excess_streams(connection, dataset, _select_new_advances(connection, dataset, signs))
        if new:
            surpassed = _insert_advances(connection, dataset, new)
            recompute_steps(connection, declared, new, surpassed, evaluated_by_caller)
            _advance_checkpoints(connection, declared, now)


def datasets_with_progress(connection: Connection, datasets: Datasets, events: Sequence[IngestEvent]) -> set[str]:
    """The datasets that would advance. What is no progress now never will be: streams only come further."""
    found = set()
    for dataset in {event.dataset for event in events}:
        signs = _extract_advances((event for event in events if event.dataset == dataset), datasets[dataset].watermark)
        if _select_new_advances(connection, dataset, signs):
            found.add(dataset)
    return found


def advance_watermarks(database: Database, datasets: Datasets, now: datetime | None = None) -> list[str]:
    """Bring the checkpoints up to the clock, also where no event came: streams fall idle. The datasets that moved."""
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
    """What steps depend on. An event keeps the partition that it had when it came."""
    return f"out_of_order {rule.out_of_order}, idle_after {rule.idle_after}, skew {rule.skew}"


def _read_rule(connection: Connection, dataset: str) -> str | None:
    row = connection.execute(
        "SELECT rule FROM kfm.stream_rules WHERE dataset = %(dataset)s", {"dataset": dataset}
    ).fetchone()
    return row["rule"] if row else None


def _apply_rule(connection: Connection, dataset: Dataset) -> None:
    """Reckon everything again once, if another rule is declared than it was reckoned by."""
    known, declared = _read_rule(connection, dataset.dataset), _format_rule(dataset.watermark)
    if known == declared:
        return
    connection.execute(
        """
        INSERT INTO kfm.stream_rules (dataset, rule) VALUES (%(dataset)s, %(rule)s)
        ON CONFLICT (dataset) DO UPDATE SET rule = excluded.rule
        """,
        {"dataset": dataset.dataset, "rule": declared},
    )
    if known is not None:
        _rebuild_advances(connection, dataset)
        recompute_all_steps(connection, dataset)


def _rebuild_advances(connection: Connection, dataset: Dataset) -> None:
    """What is progress depends on the rule. Events may be purged, so what they were a sign of counts as well."""
    rows = connection.execute(
        """
        SELECT partition, at, reached FROM kfm.advances WHERE dataset = %(dataset)s
        UNION
        SELECT i.partition, t.at, i.data_time FROM kfm.inbox i, LATERAL (VALUES (i.made_at), (i.event_time)) AS t (at)
        WHERE i.dataset = %(dataset)s AND i.change = 'created' AND i.made_at IS NOT NULL AND i.data_time IS NOT NULL
        """,
        {"dataset": dataset.dataset},
    )
    points: defaultdict[str, list[Advance]] = defaultdict(list)
    for row in rows:
        if is_progress(row["at"], row["reached"], dataset.watermark):
            points[row["partition"]].append(Advance(row["at"], row["reached"]))
    connection.execute("DELETE FROM kfm.advances WHERE dataset = %(dataset)s", {"dataset": dataset.dataset})
    signs = [(partition, one) for partition in sorted(points) for one in envelope(points[partition])]
    _insert_advances(connection, dataset.dataset, signs)


def _drop_excess_streams(
    connection: Connection, dataset: str, new: Sequence[tuple[str, Advance]]
) -> list[tuple[str, Advance]]:
    """Without those of streams that are too many."""
    rows = connection.execute(
        """
        SELECT n.partition FROM unnest(%(partitions)s::text[]) AS n (partition) WHERE NOT EXISTS (
            SELECT FROM kfm.advances a WHERE a.dataset = %(dataset)s AND a.partition = n.partition)
        """,
        {"dataset": dataset, "partitions": sorted({partition for partition, _ in new})},
    ).fetchall()
    if not rows:
        return list(new)
    [count] = connection.execute(
        f"WITH {STREAMS_CTE} SELECT count(partition) AS n FROM streams".encode(),  # noqa: S608
        {"dataset": dataset},
    ).fetchall()
    room = max(0, MAX_STREAMS - count["n"])
    too_many = set(sorted(row["partition"] for row in rows)[room:])
    return [(partition, one) for partition, one in new if partition not in too_many]


def _extract_advances(events: Iterable[IngestEvent], rule: Watermark) -> list[tuple[str, Advance]]:
    """Of each stream the events that got further than all made before them."""
    points: defaultdict[str, list[Advance]] = defaultdict(list)
    for event in events:
        if event.change == "created" and is_progress(event.event_time, event.data_time, rule):
            points[event.partition].append(Advance(event.event_time, event.data_time))
    return [(partition, one) for partition in sorted(points) for one in envelope(points[partition])]


_UNNESTED_ADVANCES = """
    unnest(%(partitions)s::text[], %(ats)s::timestamptz[], %(reached)s::timestamptz[]) AS n (partition, at, reached)
"""


def _parameters(dataset: str, advances: Sequence[tuple[str, Advance]]) -> dict[str, object]:
    return {
        "dataset": dataset,
        "partitions": [partition for partition, _ in advances],
        "ats": [one.at for _, one in advances],
        "reached": [one.reached for _, one in advances],
    }


def _select_new_advances(
    connection: Connection, dataset: str, advances: Sequence[tuple[str, Advance]]
) -> list[tuple[str, Advance]]:
    if not advances:
        return []
    rows = connection.execute(
        f"""
        SELECT n.partition, n.at, n.reached FROM {_UNNESTED_ADVANCES}
        WHERE n.reached > coalesce((
            SELECT a.reached FROM kfm.advances a
            WHERE a.dataset = %(dataset)s AND a.partition = n.partition AND a.at <= n.at ORDER BY a.at DESC LIMIT 1
        ), '-infinity')
        """,  # noqa: S608
        _parameters(dataset, advances),
    )
    return [(row["partition"], Advance(row["at"], row["reached"])) for row in rows]


def _insert_advances(
    connection: Connection, dataset: str, new: Sequence[tuple[str, Advance]]
) -> list[tuple[str, Advance]]:
    """Those that the new ones surpass are none any more; they follow upon them, since a stream only comes further."""
    parameters = _parameters(dataset, new)
    rows = connection.execute(
        f"""
        DELETE FROM kfm.advances a USING {_UNNESTED_ADVANCES}
        WHERE a.dataset = %(dataset)s AND a.partition = n.partition AND a.at >= n.at AND a.at < coalesce((
            SELECT b.at FROM kfm.advances b
            WHERE b.dataset = %(dataset)s AND b.partition = n.partition AND b.at >= n.at AND b.reached > n.reached
            ORDER BY b.at LIMIT 1
        ), 'infinity')
        RETURNING a.partition, a.at, a.reached
        """,  # noqa: S608
        parameters,
    ).fetchall()
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
    connection.execute(
        """
        INSERT INTO kfm.checkpoints AS c (dataset, partition, watermark)
        SELECT %(dataset)s, * FROM unnest(%(partitions)s::text[], %(watermarks)s::timestamptz[])
        ON CONFLICT (dataset, partition) DO UPDATE
        SET watermark = greatest(c.watermark, excluded.watermark), updated_at = clock_timestamp()
        """,
        {
            "dataset": dataset.dataset,
            "partitions": [row["partition"] for row in behind],
            "watermarks": [row["watermark"] for row in behind],
        },
    )
