"""What happens to one key as a whole: every function here is one database transaction over WAL, inbox and key.

A key's transaction begins with a claim and ends in exactly one of `commit` (in `publishing`), `skip` or `fail`;
`hand_back` ends it without an outcome for the key, so that it is tried again.
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
    """Open the key's transaction over every event known now, or without `taking` them; a later one makes it due."""
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
    """Write a step, together with what the audit has to say of it."""
    with database.transaction() as connection:
        wal.append(connection, claim, step, detail)
        if audit_entry:
            audit.record(connection, audit_entry)


def await_review(database: Database, claim: Claim, release_digest: str, audit_entry: AuditEntry) -> None:
    """Let go of a key whose release is staged, until somebody decides about it. The transaction stays open: what is
    staged, and what it was made from, is kept for whoever has to look at it."""
    with database.transaction() as connection:
        connection.execute(
            "UPDATE kfm.keys SET awaiting = %(digest)s WHERE key = %(key)s AND epoch = %(epoch)s",
            {"digest": release_digest, "key": claim.key, "epoch": claim.epoch},
        )
        audit.record(connection, audit_entry)
        _free_key(connection, claim)


def skip(database: Database, claim: Claim, detail: Mapping[str, object]) -> None:
    """Nothing to do: the same inputs are already applied."""
    with database.transaction() as connection:
        wal.append(connection, claim, Step.SKIP, detail)
        settle(connection, claim, {"outcome": "SKIPPED", **detail})


def fail(database: Database, claim: Claim, stage: str, error: KfmError, *, retry_in: float, trace: str = "") -> bool:
    """The key cannot be published as it is; leave one dead letter that says why. A publication already intended has to
    be completed one day, so after a publish intent the key is tried again in `again_in` seconds as well, and this is
    not its end: False."""
    detail = {"stage": stage, "error": type(error).__name__, "reason": str(error)}
    with database.transaction() as connection:
        last = wal.last_entry(connection, claim.key)
        intended = last is not None and last.step is Step.PUBLISH
        txn = claim.epoch if last is None or last.outcome is not None else last.txn
        if last is None or last.outcome is not None:
            # It failed before it began. Its events must not count as waiting, or the key would be due for ever.
            _open(connection, claim, {}, events_of(connection, claim.key))
        if not intended:
            connection.execute("UPDATE kfm.keys SET awaiting = NULL WHERE key = %(key)s", {"key": claim.key})
            wal.append(connection, claim, Step.FAIL, detail, txn=txn)
            _move_started(connection, claim.key, "failed")
        dead_letters.record_key(connection, claim, txn, stage, error, trace)
        _free_key(connection, claim, due_in=retry_in if intended else None)
    return not intended


def hand_back(
    database: Database,
    claim: Claim,
    *,
    delay: float,
    reason: str,
    count_attempt: bool = True,
    refused: bool = False,
) -> None:
    """Undo the claim; the key is due again after `delay` seconds, or for a replay only if events wait: it asks again
    itself. After a publish intent the transaction stays open, for the next worker to roll forward, and the key is due
    whoever began it: readers may see half of it, and nobody knows whether that replay is ever carried on."""
    with database.transaction() as connection:
        last = wal.last_entry(connection, claim.key)
        intended = last is not None and last.step is Step.PUBLISH
        due_in = delay if intended or not (claim.replay or refused) else None
        detail = {"reason": reason} | ({"refused": True} if refused else {"again_in_seconds": due_in})
        if not count_attempt and not refused:  # for no fault of its own
            detail["spared"] = True
        if last and last.outcome is None and not intended:
            wal.append(connection, claim, Step.FAIL, detail, txn=last.txn)
            _move_started(connection, claim.key, "received")
        _free_key(connection, claim, due_in=due_in, attempts=claim.attempts if count_attempt else claim.attempts - 1)


def close_abandoned(database: Database, claim: Claim) -> Entry | None:
    """End what an earlier worker left open before its publish intent; return what it left open after it."""
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
    """End a predecessor's publication of which nothing can be seen and nothing can be completed."""
    with database.transaction() as connection:
        wal.append(
            connection, claim, Step.FAIL, {"reason": f"given up, nothing was published: {reason}"}, txn=intent.txn
        )
        _move_started(connection, claim.key, "received")


def has_publish_intent(database: Database, key: str) -> bool:
    """Whether a publication of this key is intended and not yet committed."""
    with database.transaction() as connection:
        last = wal.last_entry(connection, key)
    return last is not None and last.step is Step.PUBLISH


def settle(connection: Connection, claim: Claim, outcome: Mapping[str, object]) -> None:
    """The key has had what its events asked for."""
    _move_started(connection, claim.key, "succeeded")
    connection.execute(
        "UPDATE kfm.keys SET awaiting = NULL WHERE key = %(key)s AND awaiting IS NOT NULL", {"key": claim.key}
    )
    dead_letters.close_key(connection, claim.key, {**outcome, "run": claim.owner})
    _free_key(connection, claim)


def _open(
    connection: Connection,
    claim: Claim,
    detail: Mapping[str, object],
    events: Sequence[IngestEvent],
) -> None:
    """What becomes of events that another key's inputs are taken from is that key's matter."""
    wal.append(connection, claim, Step.BEGIN, {**detail, "replay": claim.replay} if claim.replay else detail)
    connection.execute(
        """
        UPDATE kfm.inbox SET state = 'started'
        WHERE identity = ANY(%(identities)s) AND key = %(key)s AND state IN ('received', 'failed')
        """,
        {"identities": [event.identity for event in events], "key": claim.key},
    )


def _free_key(connection: Connection, claim: Claim, *, due_in: float | None = None, attempts: int = 0) -> None:
    """Free the key, due in so many seconds, or when an event wants it that came and that this transaction did not see.
    A key that is settled has had what its events asked for: it is as urgent from now on as those that wait, or not at
    all. What is held in the late lane does not wait for anything."""
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
    """The events that `begin` took, on to their next state."""
    connection.execute(
        """
        UPDATE kfm.inbox SET state = %(state)s,
            settled_at = CASE WHEN %(state)s = 'succeeded' THEN clock_timestamp() END
        WHERE key = %(key)s AND state = 'started'
        """,
        {"key": key, "state": state},
    )
