"""SQL over redrives. A letter is in one redrive at a time.

An item goes planned → sending → sent → arrived → succeeded or failed. `sending` is committed before the message is
sent, so after a crash only these items are in doubt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.errors import LetterUnknown
from kfm_pipelines.operations.dead_letters import tables
from kfm_pipelines.operations.dead_letters.tables import CONDITIONS, IDLE_CONDITION, WITHOUT_BODY
from kfm_pipelines.state import dead_letters
from kfm_pipelines.state.database import Connection, Database, insert_rows

IN_FLIGHT = ("sending", "sent")
UNDECIDED = ("planned", *IN_FLIGHT, "arrived")


@dataclass(frozen=True, slots=True)
class Redrive:
    id: str
    canary: int
    rate: float
    state: str
    note: str


@dataclass(frozen=True, slots=True)
class RedriveItem:
    place: int
    state: str
    token: str
    letter: tables.Letter


def start_redrive(
    database: Database, redrive_id: str, letter_filter: tables.LetterFilter, *, limit: int, canary: int, rate: float
) -> int:
    """Binds matching open letters to a new redrive and returns how many, skipping letters of other redrives."""
    with database.transaction() as connection:
        binding = f"""
            UPDATE kfm.dead_letters SET state = 'redriving', changed_at = clock_timestamp(), filed_at = NULL
            WHERE id IN (SELECT id FROM kfm.dead_letters WHERE {CONDITIONS} AND state = 'open' AND {IDLE_CONDITION}
                         ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
            RETURNING id
        """.encode()  # noqa: S608 - a constant
        rows = connection.execute(binding, {**tables.filter_parameters(letter_filter), "limit": limit}).fetchall()
        if not rows:
            return 0
        ids = sorted(row["id"] for row in rows)
        redrive = {"id": redrive_id, "filter": letter_filter.as_detail(), "canary": canary, "rate": rate}
        insert_rows(connection, "redrives", [redrive])
        statement = """
            INSERT INTO kfm.redrive_items (redrive, place, letter, token)
            SELECT %(id)s, place, letter, %(id)s || '.' || letter
            FROM unnest(%(letters)s::bigint[]) WITH ORDINALITY AS l (letter, place)
        """
        connection.execute(statement, {"id": redrive_id, "letters": ids})
        dead_letters.record_move(connection, ids, "redrive planned", {"redrive": redrive_id})
    return len(ids)


def read_redrive(database: Database, redrive_id: str) -> Redrive:
    query = "SELECT id, canary, rate, state, note FROM kfm.redrives WHERE id = %(id)s"
    rows = database.fetch(query, {"id": redrive_id})
    if not rows:
        raise LetterUnknown(f"there is no redrive {redrive_id!r}")
    return Redrive(**rows[0])


def running_redrives(database: Database) -> list[str]:
    rows = database.fetch("SELECT id FROM kfm.redrives WHERE state = 'running' ORDER BY created_at")
    return [row["id"] for row in rows]


def items_of(database: Database, redrive_id: str) -> list[RedriveItem]:
    query = f"""
        SELECT i.place, i.state AS item_state, i.outcome, i.token, {WITHOUT_BODY}
        FROM kfm.redrive_items i JOIN kfm.dead_letters l ON l.id = i.letter
        WHERE i.redrive = %(redrive)s ORDER BY i.place
    """  # noqa: S608 - a constant
    rows = database.fetch(query, {"redrive": redrive_id})
    return [RedriveItem(row["place"], row["item_state"], row["token"], tables.letter_from_row(row)) for row in rows]


def item_states(database: Database, redrive_id: str) -> dict[int, tuple[str, str]]:
    """Returns state and outcome by place, without the letters, so that polling is cheap."""
    query = "SELECT place, state, outcome FROM kfm.redrive_items WHERE redrive = %(redrive)s"
    rows = database.fetch(query, {"redrive": redrive_id})
    return {row["place"]: (row["state"], row["outcome"]) for row in rows}


def mark_item(database: Database, token: str, state: str, *, only_from: Sequence[str]) -> bool:
    """Moves an item. Returns False when it is in none of the states `only_from`."""
    with database.transaction() as connection:
        statement = """
            UPDATE kfm.redrive_items SET state = %(state)s, changed_at = clock_timestamp()
            WHERE token = %(token)s AND state = ANY(%(only_from)s) RETURNING letter, redrive
        """
        row = connection.execute(statement, {"token": token, "state": state, "only_from": list(only_from)}).fetchone()
        if row is None:
            return False
        if state == "sent":
            dead_letters.record_move(connection, [row["letter"]], "sent", {"redrive": row["redrive"]})
    return True


def fail_item(database: Database, token: str, reason: str) -> None:
    with database.transaction() as connection:
        statement = """
            UPDATE kfm.redrive_items SET state = 'failed', outcome = %(why)s, changed_at = clock_timestamp()
            WHERE token = %(token)s AND state IN ('planned', 'sending') RETURNING letter, redrive
        """
        row = connection.execute(statement, {"token": token, "why": reason}).fetchone()
        if row:
            _reopen(connection, [row["letter"]], "cannot be sent", {"redrive": row["redrive"], "reason": reason})


def make_key_due(database: Database, token: str, key: str) -> None:
    """Makes the key of an item due with all its attempts, in one transaction, so never twice."""
    with database.transaction() as connection:
        statement = """
            UPDATE kfm.redrive_items SET state = 'arrived', keys = %(keys)s, changed_at = clock_timestamp()
            WHERE token = %(token)s AND state = 'planned' RETURNING letter, redrive
        """
        row = connection.execute(statement, {"token": token, "keys": [key]}).fetchone()
        if row is None:
            return
        statement = "UPDATE kfm.keys SET due_at = clock_timestamp(), attempts = 0 WHERE key = %(key)s AND owner IS NULL"
        connection.execute(statement, {"key": key})
        dead_letters.record_move(connection, [row["letter"]], "made due", {"redrive": row["redrive"]})


def settle_items(database: Database, redrive_id: str) -> None:
    """Decides every item that has arrived and whose keys are no longer due or in a run."""
    with database.transaction() as connection:
        query = """
            SELECT i.token, i.letter, i.keys,
                   (SELECT coalesce(string_agg(f.reason, '; '), '') FROM kfm.dead_letters f
                    WHERE f.key = ANY(i.keys) AND f.body IS NULL AND f.state = 'open'
                      AND f.changed_at > i.changed_at) AS failures
            FROM kfm.redrive_items i
            WHERE i.redrive = %(redrive)s AND i.state = 'arrived' AND NOT EXISTS (
                SELECT FROM kfm.keys k WHERE k.key = ANY(i.keys)
                  AND (k.owner IS NOT NULL OR (k.due_at IS NOT NULL AND NOT EXISTS (
                      SELECT FROM kfm.dead_letters f WHERE f.key = k.key AND f.body IS NULL AND f.state = 'open'
                        AND f.changed_at > i.changed_at))))
            ORDER BY i.place FOR UPDATE OF i
        """
        rows = connection.execute(query, {"redrive": redrive_id}).fetchall()
        for row in rows:
            _settle_item(connection, redrive_id, row)


def _settle_item(connection: Connection, redrive_id: str, row: dict[str, Any]) -> None:
    statement = """
        UPDATE kfm.redrive_items SET state = %(state)s, outcome = left(%(outcome)s, 1000),
               changed_at = clock_timestamp() WHERE token = %(token)s
    """
    parameters = {
        "token": row["token"],
        "state": "failed" if row["failures"] else "succeeded",
        "outcome": row["failures"] or "published or unchanged",
    }
    connection.execute(statement, parameters)
    # A recorded message is settled even if its key failed, because the key has a letter of its own.
    detail = {"redrive": redrive_id, "keys": row["keys"], "failed": bool(row["failures"])}
    query = "SELECT 1 FROM kfm.dead_letters WHERE id = %(id)s AND body IS NOT NULL"
    message = connection.execute(query, {"id": row["letter"]}).fetchone()
    if message or not row["failures"]:
        dead_letters.close(connection, row["letter"], detail)


def settle_running(database: Database) -> None:
    """Decides arrived items even if nobody waits for them any more, and ends finished redrives."""
    for redrive_id in running_redrives(database):
        settle_items(database, redrive_id)
        if not any(state in UNDECIDED for state, _ in item_states(database, redrive_id).values()):
            end_redrive(database, redrive_id, "done")


def end_redrive(
    database: Database, redrive_id: str, state: str, note: str = "", dropped_states: Sequence[str] = ("planned",)
) -> int:
    """Ends a redrive, reopens the letters of items in `dropped_states` and returns how many."""
    with database.transaction() as connection:
        statement = """
            UPDATE kfm.redrive_items SET state = 'dropped', changed_at = clock_timestamp()
            WHERE redrive = %(redrive)s AND state = ANY(%(given_up)s) RETURNING letter
        """
        rows = connection.execute(statement, {"redrive": redrive_id, "given_up": list(dropped_states)}).fetchall()
        dropped = [row["letter"] for row in rows]
        what = "not sent" if dropped_states == ("planned",) else "given up"
        _reopen(connection, dropped, what, {"redrive": redrive_id, "reason": note})
        statement = """
            UPDATE kfm.redrives SET state = %(state)s, note = %(note)s, ended_at = clock_timestamp()
            WHERE id = %(redrive)s AND state = 'running'
        """
        connection.execute(statement, {"redrive": redrive_id, "state": state, "note": note})
    return len(dropped)


def _reopen(connection: Connection, ids: Sequence[int], what: str, detail: Mapping[str, object]) -> None:
    statement = """
        UPDATE kfm.dead_letters SET state = 'open', changed_at = clock_timestamp(), filed_at = NULL
        WHERE id = ANY(%(letters)s) AND state = 'redriving'
    """
    connection.execute(statement, {"letters": list(ids)})
    dead_letters.record_move(connection, ids, what, detail)
