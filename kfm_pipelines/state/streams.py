"""How far the streams of a dataset have come, kept in tables: advances, the steps that follow from them, checkpoints.

Belongs here: keeping what `events.progress` reckons. Does not: what becomes of late events (`late`), or when keys are
due (`due`).

Advances and steps follow from the events alone, so they may change in the past when an event is delivered after later
ones. A checkpoint is what was promised at some time by the clock, and never goes back.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.datasets import Dataset, Datasets
from kfm_pipelines.declarations import Watermark
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.events.progress import Advance, Step, envelope, is_progress, sweep
from kfm_pipelines.state.database import Database

if TYPE_CHECKING:
    from psycopg import Connection

# The dataset as a whole, among its partitions; no partition has this name.
WHOLE = "*"

# Each stream's last advance before some time, found without looking at all the advances before it.
_REACHED = """
    WITH RECURSIVE streams AS (
        (SELECT partition FROM kfm.advances WHERE dataset = %(dataset)s ORDER BY partition LIMIT 1)
        UNION ALL
        SELECT (SELECT a.partition FROM kfm.advances a WHERE a.dataset = %(dataset)s AND a.partition > s.partition
                ORDER BY a.partition LIMIT 1)
        FROM streams s WHERE s.partition IS NOT NULL
    )
    SELECT s.partition, last.at, last.reached
    FROM streams s CROSS JOIN LATERAL (
        SELECT a.at, a.reached FROM kfm.advances a
        WHERE a.dataset = %(dataset)s AND a.partition = s.partition AND a.at {comparison} {time}
        ORDER BY a.at DESC LIMIT 1
    ) AS last
    WHERE s.partition IS NOT NULL
"""
_REACHED_BEFORE = _REACHED.format(comparison="<", time="%(since)s")
REACHED_BY_NOW = _REACHED.format(comparison="<=", time="coalesce(%(now)s::timestamptz, clock_timestamp())")
# What the checkpoints should be by now and are not.
_BEHIND = f"""
    SELECT due.partition, due.watermark
    FROM (
        (SELECT '{WHOLE}' AS partition, watermark FROM kfm.watermark_steps
         WHERE dataset = %(dataset)s AND at <= coalesce(%(now)s::timestamptz, clock_timestamp())
         ORDER BY at DESC LIMIT 1)
        UNION ALL
        SELECT partition, reached - %(out_of_order)s FROM ({REACHED_BY_NOW}) AS reached
    ) AS due
    LEFT JOIN kfm.checkpoints c ON c.dataset = %(dataset)s AND c.partition = due.partition
    WHERE c.watermark IS NULL OR c.watermark < due.watermark
"""  # noqa: S608 nothing in it is anybody's input


def hold_streams(connection: "Connection[dict[str, Any]]", datasets: Iterable[str]) -> None:
    """Let nobody else change how far these datasets have come before this transaction ends. Whoever holds a stream must
    not lock a key any more: keys are locked first."""
    for dataset in sorted(set(datasets)):
        connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%(seat)s, 0))", {"seat": f"kfm streams {dataset}"}
        )


def advance(
    connection: "Connection[dict[str, Any]]",
    datasets: Datasets,
    told: Sequence[IngestEvent],
    judged: Sequence[str],
    now: datetime | None,
) -> None:
    """Let the streams come as far as these events say. What is told of an event twice, with two times, is two signs of
    progress: so it does not matter which of them came first. Whether those to be judged are late is still to be asked;
    what is known besides them may have to be judged again."""
    for dataset in sorted({event.dataset for event in told}):
        declared = datasets[dataset]
        signs = _signs((event for event in told if event.dataset == dataset), declared.watermark)
        new = _not_surpassed(connection, dataset, signs)
        if new:
            since = min(one.at for _, one in new)
            _sweep_again(connection, declared, since, _insert_advances(connection, dataset, since, new), judged)
            _advance_checkpoints(connection, declared, now)


def brings_progress(
    connection: "Connection[dict[str, Any]]", datasets: Datasets, told: Sequence[IngestEvent]
) -> set[str]:
    """The datasets that would advance. What is no progress now never will be: streams only come further."""
    found = set()
    for dataset in {event.dataset for event in told}:
        signs = _signs((event for event in told if event.dataset == dataset), datasets[dataset].watermark)
        if _not_surpassed(connection, dataset, signs):
            found.add(dataset)
    return found


def advance_watermarks(database: Database, datasets: Datasets, now: datetime | None = None) -> list[str]:
    """Bring the checkpoints up to the clock, also where no event came: streams fall idle. The datasets that moved."""
    moved = []
    for dataset in datasets.values():
        with database.transaction() as connection:
            if _behind(connection, dataset, now):
                hold_streams(connection, [dataset.dataset])
                _advance_checkpoints(connection, dataset, now)
                moved.append(dataset.dataset)
    return moved


def _signs(events: Iterable[IngestEvent], rule: Watermark) -> list[tuple[str, Advance]]:
    """Of each stream the events that got further than all made before them."""
    points: defaultdict[str, list[Advance]] = defaultdict(list)
    for event in events:
        if event.change == "created" and is_progress(event.event_time, event.data_time, rule):
            points[event.partition].append(Advance(event.event_time, event.data_time))
    return [(partition, one) for partition in sorted(points) for one in envelope(points[partition])]


_UNNESTED = """
    unnest(%(partitions)s::text[], %(ats)s::timestamptz[], %(reached)s::timestamptz[]) AS n (partition, at, reached)
"""


def _parameters(dataset: str, signs: Sequence[tuple[str, Advance]]) -> dict[str, object]:
    return {
        "dataset": dataset,
        "partitions": [partition for partition, _ in signs],
        "ats": [one.at for _, one in signs],
        "reached": [one.reached for _, one in signs],
    }


def _not_surpassed(
    connection: "Connection[dict[str, Any]]", dataset: str, signs: Sequence[tuple[str, Advance]]
) -> list[tuple[str, Advance]]:
    if not signs:
        return []
    rows = connection.execute(
        f"""
        SELECT n.partition, n.at, n.reached FROM {_UNNESTED}
        WHERE n.reached > coalesce((
            SELECT a.reached FROM kfm.advances a
            WHERE a.dataset = %(dataset)s AND a.partition = n.partition AND a.at <= n.at ORDER BY a.at DESC LIMIT 1
        ), '-infinity')
        """,  # noqa: S608
        _parameters(dataset, signs),
    )
    return [(row["partition"], Advance(row["at"], row["reached"])) for row in rows]


def _insert_advances(
    connection: "Connection[dict[str, Any]]", dataset: str, since: datetime, new: Sequence[tuple[str, Advance]]
) -> list[tuple[str, Advance]]:
    """All advances since then; those that the new ones surpass are none any more."""
    rows = connection.execute(
        "SELECT partition, at, reached FROM kfm.advances WHERE dataset = %(dataset)s AND at >= %(since)s",
        {"dataset": dataset, "since": since},
    )
    known = [(row["partition"], Advance(row["at"], row["reached"])) for row in rows]
    by_stream: defaultdict[str, list[Advance]] = defaultdict(list)
    for partition, one in (*known, *new):
        by_stream[partition].append(one)
    kept = [(partition, one) for partition, several in by_stream.items() for one in envelope(several)]
    surpassed = [*(set(known) - set(kept))]
    if surpassed:
        connection.execute(
            f"""
            DELETE FROM kfm.advances a USING {_UNNESTED}
            WHERE a.dataset = %(dataset)s AND a.partition = n.partition AND a.at = n.at
            """,  # noqa: S608
            _parameters(dataset, surpassed),
        )
    connection.execute(
        f"INSERT INTO kfm.advances (dataset, partition, at, reached) SELECT %(dataset)s, n.* FROM {_UNNESTED}",  # noqa: S608
        _parameters(dataset, new),
    )
    return kept


def _sweep_again(
    connection: "Connection[dict[str, Any]]",
    dataset: Dataset,
    since: datetime,
    advances: Sequence[tuple[str, Advance]],
    judged: Sequence[str],
) -> None:
    """The steps from this time on, anew; events made after the first that is another may be late now, or no more."""
    parameters = {"dataset": dataset.dataset, "since": since}
    before = {
        row["partition"]: Advance(row["at"], row["reached"])
        for row in connection.execute(_REACHED_BEFORE.encode(), parameters)
    }
    last = connection.execute(
        """
        SELECT watermark FROM kfm.watermark_steps WHERE dataset = %(dataset)s AND at < %(since)s
        ORDER BY at DESC LIMIT 1
        """,
        parameters,
    ).fetchone()
    steps = set(sweep(before, last["watermark"] if last else None, advances, dataset.watermark))
    known = {
        Step(row["at"], row["watermark"])
        for row in connection.execute(
            "SELECT at, watermark FROM kfm.watermark_steps WHERE dataset = %(dataset)s AND at >= %(since)s", parameters
        )
    }
    if steps != known:
        _replace_steps(connection, dataset.dataset, known - steps, steps - known)
        _judge_again(connection, dataset.dataset, min(step.at for step in steps ^ known), judged)


def _replace_steps(
    connection: "Connection[dict[str, Any]]", dataset: str, wrong: Iterable[Step], right: Iterable[Step]
) -> None:
    connection.execute(
        "DELETE FROM kfm.watermark_steps WHERE dataset = %(dataset)s AND at = ANY(%(ats)s)",
        {"dataset": dataset, "ats": [step.at for step in wrong]},
    )
    added = list(right)
    connection.execute(
        """
        INSERT INTO kfm.watermark_steps (dataset, at, watermark)
        SELECT %(dataset)s, * FROM unnest(%(ats)s::timestamptz[], %(watermarks)s::timestamptz[])
        """,
        {"dataset": dataset, "ats": [one.at for one in added], "watermarks": [one.watermark for one in added]},
    )


def _judge_again(
    connection: "Connection[dict[str, Any]]", dataset: str, since: datetime, judged: Sequence[str]
) -> None:
    """Leave a mark if other events made later are known. Their keys cannot be locked from here: that is done later."""
    connection.execute(
        """
        INSERT INTO kfm.late_again AS a (dataset, since)
        SELECT %(dataset)s, %(since)s WHERE EXISTS (
            SELECT FROM kfm.inbox WHERE dataset = %(dataset)s AND coalesce(made_at, event_time) > %(since)s
              AND identity <> ALL(%(judged)s))
        ON CONFLICT (dataset) DO UPDATE SET since = least(a.since, excluded.since)
        """,
        {"dataset": dataset, "since": since, "judged": list(judged)},
    )


def _behind(
    connection: "Connection[dict[str, Any]]", dataset: Dataset, now: datetime | None
) -> Sequence[Mapping[str, Any]]:
    parameters = {"dataset": dataset.dataset, "now": now, "out_of_order": dataset.watermark.out_of_order}
    return connection.execute(_BEHIND.encode(), parameters).fetchall()


def _advance_checkpoints(connection: "Connection[dict[str, Any]]", dataset: Dataset, now: datetime | None) -> None:
    behind = _behind(connection, dataset, now)
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
