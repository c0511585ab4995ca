"""The keys of a replay that are tried before the others, and what came of them."""

from collections.abc import Mapping

from kfm_pipelines.state.database import Database
from kfm_pipelines.state.replay_keys import KeyState
from kfm_pipelines.state.replayable import take_inputs


def in_order_of_evidence(database: Database, replay: str, number: int) -> list[KeyState]:
    """The keys to try first, always in the same order: spread over the plan as so many would be, those with something
    to be compared with before those without. One of which no object counts is no evidence."""
    rows = database.fetch(
        """
        SELECT parted.* FROM (
            SELECT every.*, ntile(%(number)s) OVER (PARTITION BY published ORDER BY place) AS part
            FROM (SELECT w.*, EXISTS (SELECT FROM kfm.revisions v WHERE v.key = coalesce(w.source, w.key)) AS published
                  FROM kfm.replay_keys w JOIN kfm.keys k ON k.key = w.key LEFT JOIN kfm.keys s ON s.key = w.source
                  WHERE w.replay = %(replay)s AND w.state = 'waiting'
                    AND EXISTS (SELECT FROM kfm.inbox i LEFT JOIN kfm.late l ON l.identity = i.identity
                                WHERE i.key = ANY(ARRAY[k.key, k.inputs_from, s.key, s.inputs_from])
                                  AND l.state IS DISTINCT FROM 'held')) AS every
        ) AS parted
        ORDER BY published DESC, row_number() OVER (PARTITION BY published, part ORDER BY place), place
        """,
        {"replay": replay, "number": number},
    )
    return [KeyState(**{name: row[name] for name in KeyState.__dataclass_fields__}) for row in rows]


def forget_canary(database: Database, replay: str) -> None:
    """Its start begins anew."""
    database.execute(
        "UPDATE kfm.replay_keys SET canary = false, comparison = NULL WHERE replay = %(replay)s AND canary",
        {"replay": replay},
    )


def prepare_trial(database: Database, replay: str, key: str) -> None:
    with database.transaction() as connection:
        take_inputs(connection, replay, [key])


def record_canary(database: Database, replay: str, key: str, comparison: Mapping[str, object]) -> None:
    from psycopg.types.json import Jsonb

    database.execute(
        """
        UPDATE kfm.replay_keys SET canary = true, comparison = %(comparison)s
        WHERE replay = %(replay)s AND key = %(key)s
        """,
        {"replay": replay, "key": key, "comparison": Jsonb(dict(comparison))},
    )
