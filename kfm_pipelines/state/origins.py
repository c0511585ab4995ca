"""Where keys come from: the events that ask for them, and the trace in which the newest one came. Read-only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.state.database import Database

MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Origin:
    """Of one key. Of many events and objects the newest are named."""

    trace: str | None = None
    events: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    asking: int = 0  # events that nothing has come of yet
    sent: tuple[datetime, ...] = ()  # when those were sent, where that is known
    made_at: datetime | None = None  # the newest of all


def origins_of(database: Database, keys: Sequence[str]) -> dict[str, Origin]:
    rows = database.fetch(
        """
        SELECT key,
               (array_agg(trace ORDER BY received_at DESC, identity) FILTER (WHERE trace IS NOT NULL))[1] AS trace,
               (array_agg(identity ORDER BY received_at DESC, identity))[1:%(most)s] AS events,
               (array_agg(DISTINCT asset_uri))[1:%(most)s] AS objects,
               count(*) FILTER (WHERE state <> 'succeeded') AS asking,
               array_agg(sent_at) FILTER (WHERE state <> 'succeeded' AND sent_at IS NOT NULL) AS sent,
               max(coalesce(made_at, event_time)) AS made_at
        FROM kfm.inbox WHERE key = ANY(%(keys)s) GROUP BY key
        """,
        {"keys": list(keys), "most": MOST_NAMED},
    )
    return {
        row["key"]: Origin(
            trace=row["trace"],
            events=tuple(row["events"]),
            objects=tuple(row["objects"]),
            asking=row["asking"],
            sent=tuple(row["sent"] or ()),
            made_at=row["made_at"],
        )
        for row in rows
    }


def rows_before(database: Database, key: str, revision: int) -> int | None:
    """How many rows the revision before had; before the first one, how many the window before this one has."""
    rows = database.fetch(
        """
        SELECT rows FROM kfm.revisions WHERE key = %(key)s AND revision = %(revision)s - 1
        UNION ALL
        (SELECT r.rows FROM kfm.keys mine
         JOIN kfm.keys k ON k.dataset = mine.dataset AND split_part(k.key, ':', 5) = split_part(mine.key, ':', 5)
                        AND k.window_start < mine.window_start
         JOIN kfm.revisions r ON r.key = k.key
         WHERE mine.key = %(key)s AND %(revision)s = 1
         ORDER BY k.window_start DESC, r.revision DESC LIMIT 1)
        LIMIT 1
        """,
        {"key": key, "revision": revision},
    )
    return int(rows[0]["rows"]) if rows else None
