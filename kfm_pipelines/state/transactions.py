"""Transitions of one key: every public function is one database transaction over WAL, inbox and key.

A key's transaction begins with a claim and ends in exactly one of `commit` (in `stages.publish.tables`), `skip` or
`fail`; `hand_back` ends it without an outcome, so that the key is tried again.
"""

from collections.abc import Callable, Mapping, Sequence

from kfm_pipelines.errors import KfmError
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.state import audit, dead_letters, wal
from kfm_pipelines.state.audit import AuditEntry
from kfm_pipelines.state.database import Connection, Database
from kfm_pipelines.state.inbox import events_of
from kfm_pipelines.state.keys import PRIORITIES, Claim, fenced_error
from kfm_pipelines.state.wal import Entry, Step


def begin(
    database: Database,
    claim: Claim,
    describe: Callable[[Sequence[IngestEvent]], Mapping[str, object]],
    *,
    take_events: bool = True,
) -> list[IngestEvent]:
    """Opens the key's transaction over all events known now. Without `take_events` they stay waiting."""
    with database.transaction() as connection:
        events = events_of(connection, claim.key)
        _open(connection, claim, describe(events), events if take_events else [])
    return events


def advance(
    database: Database,
    claim: Claim,
    step: Step,
    detail: Mapping[str, object] | None = None,
    *,
    audit_entry: AuditEntry | None = None,
) -> None:
    """Writes a step and its audit entry."""
    with database.transaction() as connection:
        wal.append(connection, claim, step, detail)
        if audit_entry:
            audit.record(connection, audit_entry)


def await_review(database: Database, claim: Claim, release_digest: str, audit_entry: AuditEntry) -> None:
    """Frees a key until its release is reviewed. The transaction stays open, so that the staged files are kept."""
    with database.transaction() as connection:
        connection.execute(
            "UPDATE kfm.keys SET awaiting = %(digest)s WHERE key = %(key)s AND epoch = %(epoch)s",
            {"digest": release_digest, "key": claim.key, "epoch": claim.epoch},
        )
        audit.record(connection, audit_entry)
        _free_key(connection, claim)


def skip(database: Database, claim: Claim, detail: Mapping[str, object]) -> None:
    """Ends the transaction without a publication, for example because the same inputs are already applied."""
    with database.transaction() as connection:
        wal.append(connection, claim, Step.SKIP, detail)
        settle(connection, claim, {"outcome": "SKIPPED", **detail})


def fail(database: Database, claim: Claim, stage: str, error: KfmError, *, retry_in: float, trace: str = "") -> bool:
    """Opens a dead letter for the key. After a publish intent the publication still has to be completed, so the key is
    due again in `retry_in` seconds and the result is False."""
    detail = {"stage": stage, "error": type(error).__name__, "reason": str(error)}
    with database.transaction() as connection:
        last = wal.last_entry(connection, claim.key)
        intended = last is not None and last.step is Step.PUBLISH
        txn = claim.epoch if last is None or last.outcome is not None else last.txn
        if last is None or last.outcome is not None:
            # It failed before it began. Its events must not count as waiting, or the key would stay due forever.
            _open(connection, claim, {}, events_of(connection, claim.key))
        if not intended:
            connection.execute("UPDATE kfm.keys SET awaiting = NULL WHERE key = %(key)s", {"key": claim.key})
            wal.append(connection, claim, Step.FAIL, detail, txn=txn)
            _move_started(connection, claim.key, "failed")
        dead_letters.record_key(connection, claim, txn, stage, error, trace)
        _free_key(connection, claim, due_in=retry_in if intended else None)
    return not intended


def hand_back(
    database: Database, claim: Claim, *, delay: float, reason: str, count_attempt: bool = True, refused: bool = False
) -> None:
    """Undoes the claim. The key is due again after `delay` seconds; for a replay, which retries by itself, only if
    events are waiting. After a publish intent the transaction stays open for the next worker to complete or abandon,
    and the key is due in any case: readers may see the release, and the replay may never be resumed."""
    with database.transaction() as connection:
        last = wal.last_entry(connection, claim.key)
        intended = last is not None and last.step is Step.PUBLISH
        due_in = delay if intended or not (claim.replay or refused) else None
        detail = {"reason": reason} | ({"refused": True} if refused else {"again_in_seconds": due_in})
        if not count_attempt and not refused:
            detail["spared"] = True
        if last and last.outcome is None and not intended:
            wal.append(connection, claim, Step.FAIL, detail, txn=last.txn)
            _move_started(connection, claim.key, "received")
        _free_key(connection, claim, due_in=due_in, attempts=claim.attempts if count_attempt else claim.attempts - 1)


def close_abandoned(database: Database, claim: Claim) -> Entry | None:
    """Ends what an earlier worker left open before its publish intent; returns an intent that it left open."""
    with database.transaction() as connection:
        last = wal.last_entry(connection, claim.key)
        if last is None or last.outcome is not None:
            return None
        if last.step is Step.PUBLISH:
            return last
        reviewed = connection.execute(
            "UPDATE kfm.keys SET awaiting = NULL WHERE key = %(key)s AND awaiting IS NOT NULL", {"key": claim.key}
        ).rowcount
        reason = f"abandoned by run {last.run_id} after {last.step}; rolled back"
        if reviewed:
            reason = "its review is over, or something newer came; computed again"
        wal.append(connection, claim, Step.FAIL, {"reason": reason}, txn=last.txn)
        _move_started(connection, claim.key, "received")
        return None


def abandon_intent(database: Database, claim: Claim, intent: Entry, reason: str) -> None:
    """Ends a predecessor's publication that is not visible and cannot be completed."""
    with database.transaction() as connection:
        wal.append(
            connection, claim, Step.FAIL, {"reason": f"given up, nothing was published: {reason}"}, txn=intent.txn
        )
        _move_started(connection, claim.key, "received")


def has_publish_intent(database: Database, key: str) -> bool:
    """Whether a publication of this key is intended but not committed."""
    with database.transaction() as connection:
        last = wal.last_entry(connection, key)
    return last is not None and last.step is Step.PUBLISH


def settle(connection: Connection, claim: Claim, outcome: Mapping[str, object]) -> None:
    """Marks the key's events as succeeded, closes its dead letter and frees it."""
    _move_started(connection, claim.key, "succeeded")
    connection.execute(
        "UPDATE kfm.keys SET awaiting = NULL WHERE key = %(key)s AND awaiting IS NOT NULL", {"key": claim.key}
    )
    dead_letters.close_key(connection, claim.key, {**outcome, "run": claim.owner})
    _free_key(connection, claim)


def _open(connection: Connection, claim: Claim, detail: Mapping[str, object], events: Sequence[IngestEvent]) -> None:
    """Starts the key's own events; those of a key it takes inputs from are left to that key."""
    wal.append(connection, claim, Step.BEGIN, {**detail, "replay": claim.replay} if claim.replay else detail)
    connection.execute(
        """
        UPDATE kfm.inbox SET state = 'started'
        WHERE identity = ANY(%(identities)s) AND key = %(key)s AND state IN ('received', 'failed')
        """,
        {"identities": [event.identity for event in events], "key": claim.key},
    )


def _free_key(connection: Connection, claim: Claim, *, due_in: float | None = None, attempts: int = 0) -> None:
    """Frees the key, due in `due_in` seconds or when an event is ready that this transaction did not see. Without
    `due_in` its priority becomes that of the waiting events. Events held in the late lane do not count as waiting."""
    freed = connection.execute(
        """
        WITH waiting AS (
            SELECT max(array_position(%(ranked)s::text[], priority)) - 1 AS priority,
                   min(coalesce(ready_at, clock_timestamp())) AS ready_at
            FROM kfm.inbox
            WHERE key = %(key)s AND state = 'received' AND ready_at IS DISTINCT FROM 'infinity'
        )
        UPDATE kfm.keys k
        SET owner = NULL, lease_until = NULL, dispatch = NULL, attempts = %(attempts)s,
            due_at = least(due_at, coalesce(
                clock_timestamp() + make_interval(secs => %(due_in)s::float), w.ready_at)),
            priority = CASE WHEN %(due_in)s::float IS NULL THEN coalesce(w.priority, 0) ELSE k.priority END
        FROM waiting w
        WHERE key = %(key)s AND epoch = %(epoch)s
        """,
        {
            "key": claim.key,
            "epoch": claim.epoch,
            "due_in": due_in,
            "attempts": attempts,
            "ranked": sorted(PRIORITIES, key=PRIORITIES.__getitem__),
        },
    )
    if freed.rowcount == 0:
        raise fenced_error(claim)


def _move_started(connection: Connection, key: str, state: str) -> None:
    connection.execute(
        """
        UPDATE kfm.inbox SET state = %(state)s,
            settled_at = CASE WHEN %(state)s = 'succeeded' THEN clock_timestamp() END
        WHERE key = %(key)s AND state = 'started'
        """,
        {"key": key, "state": state},
    )
