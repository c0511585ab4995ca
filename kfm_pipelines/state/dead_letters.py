"""Dead letters: one for each refused message and one for each failed key, with the reason in one sentence.

A letter is opened, may be redriven or quarantined, and is closed when its message or key succeeds. If it fails again,
the same letter is reopened. `letter_moves` keeps the full history.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kfm_pipelines.errors import KfmError
from kfm_pipelines.state.database import Connection, jsonb
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.text import truncate_line

REASON_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused message, kept as received."""

    identity: str
    body: str
    error: KfmError
    attributes: Mapping[str, str] = field(default_factory=dict)
    attribute_types: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    sequence: int | None = None
    dataset: str | None = None
    key: str | None = None


def record_key(connection: Connection, claim: Claim, txn: int, stage: str, error: KfmError, trace: str) -> None:
    """Opens or reopens the key's letter, with its inputs and the steps it completed."""
    statement = """
        INSERT INTO kfm.dead_letters AS known
            (source, dataset, key, failure_stage, triage, error, reason, attempts, run_id, trace, lineage, cost)
        SELECT k.key, k.dataset, k.key, %(stage)s, %(triage)s, %(error)s, %(reason)s, %(attempts)s, %(run_id)s,
               %(trace)s,
               jsonb_build_object('txn', %(txn)s::bigint, 'steps', w.steps, 'inputs', w.inputs),
               jsonb_build_object('seconds', round(w.seconds, 3))
        FROM kfm.keys k, LATERAL (
            SELECT jsonb_agg(step ORDER BY id) AS steps, extract(epoch FROM clock_timestamp() - min(at)) AS seconds,
                   (jsonb_agg(detail -> 'inputs') FILTER (WHERE step = 'begin')) -> 0 AS inputs
            FROM kfm.wal WHERE wal.key = k.key AND wal.txn = %(txn)s) w
        WHERE k.key = %(key)s
        ON CONFLICT (source) DO UPDATE SET
            failure_stage = excluded.failure_stage, triage = excluded.triage, error = excluded.error,
            reason = excluded.reason, attempts = excluded.attempts, run_id = excluded.run_id, trace = excluded.trace,
            lineage = excluded.lineage, cost = excluded.cost, changed_at = clock_timestamp(),
            state = CASE known.state WHEN 'quarantined' THEN known.state ELSE 'open' END, closed_at = NULL,
            filed_at = NULL,
            forwarded_at = CASE WHEN known.state IN ('open', 'quarantined') THEN known.forwarded_at END
        RETURNING id, xmax = 0 AS fresh
    """
    parameters = {
        "key": claim.key,
        "txn": txn,
        "stage": stage,
        "triage": error.triage,
        "error": type(error).__name__,
        "reason": truncate_line(str(error), REASON_LIMIT),
        "attempts": claim.attempts,
        "run_id": claim.owner,
        "trace": trace,
    }
    row = connection.execute(statement, parameters).fetchone()
    if row:
        detail = {"stage": stage, "error": type(error).__name__, "run": claim.owner}
        record_move(connection, [row["id"]], "opened" if row["fresh"] else "failed again", detail)


def record_messages(connection: Connection, queue: str, refusals: Sequence[Refusal]) -> None:
    """Stores each refused body once. A repeat adds to the letter's count and reopens it if it was closed."""
    by_identity = {refusal.identity: refusal for refusal in refusals}
    # In a fixed order, so that two consumers of the same messages cannot deadlock.
    for identity in sorted(by_identity):
        times = sum(refusal.identity == identity for refusal in refusals)
        _record_message(connection, queue, by_identity[identity], times)


def _record_message(connection: Connection, queue: str, refusal: Refusal, times: int) -> None:
    error = refusal.error
    statement = """
        WITH before AS (SELECT state FROM kfm.dead_letters WHERE source = %(identity)s)
        INSERT INTO kfm.dead_letters AS known
            (source, dataset, key, failure_stage, triage, error, reason, queue, body, attributes, attribute_types,
             message_group, group_sequence, attempts)
        VALUES (%(identity)s, %(dataset)s, %(key)s, 'receive', %(triage)s, %(error)s, %(reason)s, %(queue)s, %(body)s,
                %(attributes)s, %(types)s, %(group)s, %(sequence)s, %(times)s)
        ON CONFLICT (source) DO UPDATE SET
            attempts = known.attempts + excluded.attempts, triage = excluded.triage, error = excluded.error,
            reason = excluded.reason, body = excluded.body, changed_at = clock_timestamp(),
            state = CASE known.state WHEN 'quarantined' THEN known.state ELSE 'open' END, closed_at = NULL,
            filed_at = CASE WHEN known.state IN ('open', 'quarantined') THEN known.filed_at END,
            forwarded_at = CASE WHEN known.state IN ('open', 'quarantined') THEN known.forwarded_at END
        RETURNING id, (SELECT state FROM before) AS before
    """
    parameters = {
        "identity": refusal.identity,
        "dataset": refusal.dataset,
        "key": refusal.key,
        "triage": error.triage,
        "error": type(error).__name__,
        "reason": truncate_line(str(error), REASON_LIMIT),
        "queue": queue,
        "body": refusal.body,
        "attributes": jsonb(dict(refusal.attributes)),
        "types": jsonb(dict(refusal.attribute_types)),
        "group": refusal.group,
        "sequence": refusal.sequence,
        "times": times,
    }
    row = connection.execute(statement, parameters).fetchone()
    if row and row["before"] not in ("open", "quarantined"):
        what = "opened" if row["before"] is None else "failed again"
        record_move(connection, [row["id"]], what, {"stage": "receive", "error": type(error).__name__})


def close_keys(connection: Connection, details: Mapping[str, Mapping[str, object]]) -> None:
    """Closes the letters of these keys, each with its detail."""
    condition = "key = ANY(%(keys)s) AND body IS NULL AND closed_at IS NULL"
    for letter, key in _close(connection, condition, {"keys": list(details)}):
        record_move(connection, [letter], "closed", details[key])


def close(connection: Connection, letter: int, detail: Mapping[str, object]) -> None:
    closed = _close(connection, "id = %(letter)s AND state <> 'closed'", {"letter": letter})
    record_move(connection, [letter for letter, _ in closed], "closed", detail)


def _close(connection: Connection, condition: str, parameters: Mapping[str, object]) -> list[tuple[int, str]]:
    """Returns the closed letters and their keys."""
    statement = f"""
        UPDATE kfm.dead_letters SET state = 'closed', closed_at = clock_timestamp(), changed_at = clock_timestamp(),
               filed_at = NULL
        WHERE {condition} RETURNING id, key
    """.encode()  # noqa: S608 - both conditions are literals in this module
    rows = connection.execute(statement, parameters)
    return [(row["id"], row["key"]) for row in rows]


def record_move(connection: Connection, letters: Sequence[int], what: str, detail: Mapping[str, object]) -> None:
    if letters:
        connection.execute(
            "INSERT INTO kfm.letter_moves (letter, what, detail) SELECT id, %(what)s, %(detail)s "
            "FROM unnest(%(letters)s::bigint[]) AS id",
            {"letters": list(letters), "what": what, "detail": jsonb(dict(detail))},
        )
