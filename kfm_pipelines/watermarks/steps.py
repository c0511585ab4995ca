"""Stores the steps of a watermark, and marks the period in which lateness must be re-evaluated."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.state.database import Connection
from kfm_pipelines.watermarks.progress import (
    FIRST_YEAR,
    Advance,
    Advances,
    Period,
    Sweep,
    WatermarkStep,
    find_disagreement,
)

ADVANCE_PAGE_SIZE = 1000
EARLIEST = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
# All streams of a dataset, found without reading all of its advances.
STREAMS_CTE = """
    RECURSIVE streams AS (
        (SELECT partition FROM kfm.advances WHERE dataset = %(dataset)s ORDER BY partition LIMIT 1)
        UNION ALL
        SELECT (SELECT a.partition FROM kfm.advances a WHERE a.dataset = %(dataset)s AND a.partition > s.partition
                ORDER BY a.partition LIMIT 1)
        FROM streams s WHERE s.partition IS NOT NULL
    )
"""
# The last advance of each stream before some time.
_REACHED = f"""
    WITH {STREAMS_CTE}
    SELECT s.partition, last.at, last.reached
    FROM streams s CROSS JOIN LATERAL (
        SELECT a.at, a.reached FROM kfm.advances a
        WHERE a.dataset = %(dataset)s AND a.partition = s.partition AND a.at {{comparison}} {{time}}
        ORDER BY a.at DESC LIMIT 1
    ) AS last
    WHERE s.partition IS NOT NULL
"""  # noqa: S608 - contains no input
_REACHED_BEFORE = _REACHED.format(comparison="<", time="%(since)s")
REACHED_BY_NOW = _REACHED.format(comparison="<=", time="coalesce(%(now)s::timestamptz, clock_timestamp())")


def recompute_steps(
    connection: Connection, dataset: Dataset, new: Advances, superseded: Advances, evaluated_by_caller: Sequence[str]
) -> None:
    """Recomputes the steps from the first new advance until they agree with the stored ones again."""
    since = min(one.at for _, one in new)
    parameters = {"dataset": dataset.dataset, "since": since}
    before = {
        row["partition"]: Advance(row["at"], row["reached"])
        for row in connection.execute(_REACHED_BEFORE.encode(), parameters)
    }
    last = _watermark_at(connection, dataset.dataset, since, "<")
    sweep = Sweep(before, last, dataset.watermark)
    last_change = max(one.at for _, one in (*new, *superseded))
    steps: set[WatermarkStep] = set()
    upto: datetime | None = None
    for page in _read_pages(connection, dataset.dataset, since):
        steps.update(sweep.process(page))
        end = page[-1][1].at
        past = _are_changes_past(new, last_change, dataset, sweep, end)
        if past and sweep.watermark == _watermark_at(connection, dataset.dataset, end, "<="):
            upto = end
            break
    else:
        steps.update(sweep.finish())
    other = _replace_steps(connection, dataset.dataset, Period(since, upto), steps, last)
    if other:
        period = Period(other.since, other.until or upto)
        _mark_for_reevaluation(connection, dataset.dataset, period, evaluated_by_caller)


def recompute_all_steps(connection: Connection, dataset: Dataset) -> None:
    sweep = Sweep({}, None, dataset.watermark)
    pages = _read_pages(connection, dataset.dataset, None)
    steps = {step for page in pages for step in sweep.process(page)} | set(sweep.finish())
    other = _replace_steps(connection, dataset.dataset, None, steps, None)
    if other:
        _mark_for_reevaluation(connection, dataset.dataset, other, [])


def _are_changes_past(new: Advances, last_change: datetime, dataset: Dataset, sweep: Sweep, at: datetime) -> bool:
    """True when each changed stream has advanced since, or has long been idle and is not the furthest."""
    if at <= last_change:
        return False
    standing = [one.reached for partition, one in new if sweep.streams.last[partition] == one]
    if not standing:
        return True
    furthest, idle_at = sweep.streams.furthest, last_change + dataset.watermark.idle_after
    return at >= idle_at and furthest is not None and max(standing) < furthest


def _read_pages(connection: Connection, dataset: str, since: datetime | None) -> Iterator[Advances]:
    """Yields pages of the advances since then in order of time; those of one instant share a page."""
    parameters = {"dataset": dataset, "from": since or EARLIEST, "limit": ADVANCE_PAGE_SIZE}
    statement = """
        SELECT partition, at, reached FROM kfm.advances WHERE dataset = %(dataset)s AND at {comparison} %(from)s
        ORDER BY at FETCH FIRST %(limit)s ROWS WITH TIES
    """
    comparison = ">="
    while True:
        rows = connection.execute(statement.format(comparison=comparison).encode(), parameters).fetchall()
        if rows:
            yield [(row["partition"], Advance(row["at"], row["reached"])) for row in rows]
        if len(rows) < ADVANCE_PAGE_SIZE:
            return
        parameters["from"], comparison = rows[-1]["at"], ">"


def _watermark_at(
    connection: Connection, dataset: str, at: datetime, comparison: Literal["<", "<="]
) -> datetime | None:
    query = f"""
        SELECT watermark FROM kfm.watermark_steps WHERE dataset = %(dataset)s AND at {comparison} %(at)s
        ORDER BY at DESC LIMIT 1
    """.encode()  # noqa: S608
    row = connection.execute(query, {"dataset": dataset, "at": at}).fetchone()
    return row["watermark"] if row else None


def _replace_steps(
    connection: Connection, dataset: str, known_in: Period | None, steps: set[WatermarkStep], before: datetime | None
) -> Period | None:
    """Replaces the steps known in a period, or all; returns the period in which the watermark changed."""
    query = """
        SELECT at, watermark FROM kfm.watermark_steps
        WHERE dataset = %(dataset)s AND at >= coalesce(%(since)s::timestamptz, '-infinity')
          AND at <= coalesce(%(upto)s::timestamptz, 'infinity')
    """
    parameters = {"dataset": dataset, "since": known_in and known_in.since, "upto": known_in and known_in.until}
    rows = connection.execute(query, parameters)
    known = {WatermarkStep(row["at"], row["watermark"]) for row in rows}
    statement = "DELETE FROM kfm.watermark_steps WHERE dataset = %(dataset)s AND at = ANY(%(ats)s)"
    connection.execute(statement, {"dataset": dataset, "ats": [step.at for step in known - steps]})
    added = list(steps - known)
    connection.execute(
        """
        INSERT INTO kfm.watermark_steps (dataset, at, watermark)
        SELECT %(dataset)s, * FROM unnest(%(ats)s::timestamptz[], %(watermarks)s::timestamptz[])
        """,
        {"dataset": dataset, "ats": [one.at for one in added], "watermarks": [one.watermark for one in added]},
    )
    return find_disagreement(before, known, steps)


def _mark_for_reevaluation(
    connection: Connection, dataset: str, period: Period, evaluated_by_caller: Sequence[str]
) -> None:
    """Marks the period if it has other known events. Their keys cannot be locked here, so they are evaluated later."""
    statement = """
        INSERT INTO kfm.late_again AS a (dataset, since, until)
        SELECT %(dataset)s, %(since)s, %(until)s WHERE EXISTS (
            SELECT FROM kfm.inbox
            WHERE dataset = %(dataset)s AND made_at > %(since)s
              AND made_at <= coalesce(%(until)s::timestamptz, 'infinity') AND identity <> ALL(%(judged)s))
        ON CONFLICT (dataset) DO UPDATE SET since = least(a.since, excluded.since),
            until = CASE WHEN a.until IS NOT NULL AND excluded.until IS NOT NULL
                         THEN greatest(a.until, excluded.until) END
    """
    parameters = {"dataset": dataset, "since": period.since, "until": period.until, "judged": list(evaluated_by_caller)}
    connection.execute(statement, parameters)
