"""Transitions of keys, and what is known of them: every public function is one transaction over WAL, inbox and keys.

A key's transaction begins with a claim and ends in exactly one of `commit` (in `stages.publish.tables`), `skip` or
`fail`; `hand_back` ends it without an outcome, so that the key is tried again. What all keys of a run do is one
statement for all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kfm_pipelines.errors import GateRefused, KfmError
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.state import audit, dead_letters, wal
from kfm_pipelines.state.audit import AuditEntry
from kfm_pipelines.state.database import Connection, Database, columns
from kfm_pipelines.state.inbox import events_of_keys
from kfm_pipelines.state.keys import PRIORITIES, Claim, fenced_error
from kfm_pipelines.state.revisions import Revision
from kfm_pipelines.state.verdicts import GateVerdict, record_verdicts, verdicts_of_transactions
from kfm_pipelines.state.wal import Entry, Step, Transition, entries_of_transactions


@dataclass(frozen=True, slots=True)
class StageResult:
    """The step that a stage completes for one key, and what is recorded with it."""

    transition: Transition
    audit_entry: AuditEntry | None = None
    verdicts: Sequence[GateVerdict] = ()


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """A key, its current revision, and one of its transactions as far as the log has it."""

    key: str
    window: tuple[datetime, datetime]
    source: str | None  # the key of another version that this one takes its inputs from
    current: Revision | None
    details: Mapping[Step, Mapping[str, Any]]
    verdicts: tuple[GateVerdict, ...]

    def detail(self, step: Step) -> Mapping[str, Any]:
        try:
            return self.details[step]
        except KeyError:
            raise GateRefused(
                f"{self.key}: this transaction has not been through {step}; run the whole group of assets"
            ) from None


def load_facts(database: Database, txns: Mapping[str, int]) -> dict[str, KeyFacts]:
    """Returns the facts about each key and its transaction."""
    with database.transaction() as connection:
        query = "SELECT key, window_start, window_end, inputs_from FROM kfm.keys WHERE key = ANY(%(keys)s)"
        rows = connection.execute(query, {"keys": list(txns)}).fetchall()
        current = current_revisions(connection, list(txns))
        verdicts = verdicts_of_transactions(connection, txns)
        details: dict[str, dict[Step, Mapping[str, Any]]] = {key: {} for key in txns}
        for entry in entries_of_transactions(connection, txns):
            details[entry.key][entry.step] = entry.detail
    return {
        row["key"]: KeyFacts(
            key=row["key"],
            window=(row["window_start"], row["window_end"]),
            source=row["inputs_from"],
            current=current.get(row["key"]),
            details=details[row["key"]],
            verdicts=tuple(verdicts[row["key"]]),
        )
        for row in rows
    }


def current_revisions(connection: Connection, keys: list[str]) -> dict[str, Revision]:
    """Returns the current revision of each of these keys that has one."""
    query = """
        SELECT r.* FROM unnest(%(keys)s::text[]) AS asked (key)
        JOIN LATERAL (SELECT * FROM kfm.revisions WHERE key = asked.key ORDER BY revision DESC LIMIT 1) r ON true
    """
    rows = connection.execute(query, {"keys": keys})
    return {row["key"]: Revision.from_values(row) for row in rows}


def begin(
    database: Database,
    claims: Sequence[Claim],
    describe: Callable[[Claim, Sequence[IngestEvent]], Mapping[str, object]],
    *,
    take_events: bool = True,
) -> dict[str, list[IngestEvent]]:
    """Opens a transaction of each key over all events known now. Without `take_events` they stay waiting."""
    with database.transaction() as connection:
        events = events_of_keys(connection, [claim.key for claim in claims])
        intents = {claim: describe(claim, events[claim.key]) for claim in claims}
        _open(connection, intents, {key: own if take_events else [] for key, own in events.items()})
    return events


def advance(database: Database, dataset: str, results: Sequence[StageResult]) -> None:
    """Writes the results of a stage for many keys: all of them, or none if one is refused."""
    with database.transaction() as connection:
        wal.append(connection, [one.transition for one in results])
        audit.record(connection, [one.audit_entry for one in results if one.audit_entry])
        record_verdicts(connection, dataset, {one.transition.claim: one.verdicts for one in results})


def await_review(database: Database, claim: Claim, release_digest: str, audit_entry: AuditEntry) -> None:
    """Frees a key until its release is reviewed. The transaction stays open, so that the staged files are kept."""
    with database.transaction() as connection:
        statement = "UPDATE kfm.keys SET awaiting = %(digest)s WHERE key = %(key)s AND epoch = %(epoch)s"
        connection.execute(statement, {"digest": release_digest, "key": claim.key, "epoch": claim.epoch})
        audit.record(connection, [audit_entry])
        _free_keys(connection, [claim])


def skip(database: Database, details: Mapping[Claim, Mapping[str, object]]) -> None:
    """Ends transactions without a publication, for example because the same inputs are already applied."""
    with database.transaction() as connection:
        wal.append(connection, [Transition(claim, Step.SKIP, detail) for claim, detail in details.items()])
        settle(connection, {claim: {"outcome": "SKIPPED", **detail} for claim, detail in details.items()})


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
            _open(connection, {claim: {}}, events_of_keys(connection, [claim.key]))
        if not intended:
            connection.execute("UPDATE kfm.keys SET awaiting = NULL WHERE key = %(key)s", {"key": claim.key})
            wal.append(connection, [Transition(claim, Step.FAIL, detail, txn)])
            _move_started(connection, [claim.key], "failed")
        dead_letters.record_key(connection, claim, txn, stage, error, trace)
        _free_keys(connection, [claim], due_in=retry_in if intended else None)
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
            wal.append(connection, [Transition(claim, Step.FAIL, detail, last.txn)])
            _move_started(connection, [claim.key], "received")
        attempts = claim.attempts if count_attempt else claim.attempts - 1
        _free_keys(connection, [claim], due_in=due_in, attempts=attempts)


def close_abandoned(database: Database, claim: Claim) -> Entry | None:
    """Ends what an earlier worker left open before its publish intent; returns an intent that it left open."""
    with database.transaction() as connection:
        last = wal.last_entry(connection, claim.key)
        if last is None or last.outcome is not None:
            return None
        if last.step is Step.PUBLISH:
            return last
        statement = "UPDATE kfm.keys SET awaiting = NULL WHERE key = %(key)s AND awaiting IS NOT NULL"
        reviewed = connection.execute(statement, {"key": claim.key}).rowcount
        reason = f"abandoned by run {last.run_id} after {last.step}; rolled back"
        if reviewed:
            reason = "its review is over, or something newer came; computed again"
        wal.append(connection, [Transition(claim, Step.FAIL, {"reason": reason}, last.txn)])
        _move_started(connection, [claim.key], "received")
        return None


def abandon_intent(database: Database, claim: Claim, intent: Entry, reason: str) -> None:
    """Ends a predecessor's publication that is not visible and cannot be completed."""
    with database.transaction() as connection:
        detail = {"reason": f"given up, nothing was published: {reason}"}
        wal.append(connection, [Transition(claim, Step.FAIL, detail, intent.txn)])
        _move_started(connection, [claim.key], "received")


def has_publish_intent(database: Database, key: str) -> bool:
    """Whether a publication of this key is intended but not committed."""
    with database.transaction() as connection:
        last = wal.last_entry(connection, key)
    return last is not None and last.step is Step.PUBLISH


def settle(connection: Connection, outcomes: Mapping[Claim, Mapping[str, object]]) -> None:
    """Marks the keys' events as succeeded, closes their dead letters and frees them."""
    keys = [claim.key for claim in outcomes]
    _move_started(connection, keys, "succeeded")
    statement = "UPDATE kfm.keys SET awaiting = NULL WHERE key = ANY(%(keys)s) AND awaiting IS NOT NULL"
    connection.execute(statement, {"keys": keys})
    details = {claim.key: {**outcome, "run": claim.owner} for claim, outcome in outcomes.items()}
    dead_letters.close_keys(connection, details)
    _free_keys(connection, list(outcomes))


def _open(
    connection: Connection, details: Mapping[Claim, Mapping[str, object]], events: Mapping[str, Sequence[IngestEvent]]
) -> None:
    """Starts the keys' own events; those of a key that one takes inputs from are left to that key."""
    begun = [
        Transition(claim, Step.BEGIN, {**detail, "replay": claim.replay} if claim.replay else detail)
        for claim, detail in details.items()
    ]
    wal.append(connection, begun)
    started = [event.identity for key, known in events.items() for event in known if event.key == key]
    statement = """
        UPDATE kfm.inbox SET state = 'started' WHERE identity = ANY(%(started)s) AND state IN ('received', 'failed')
    """
    connection.execute(statement, {"started": started})


def _free_keys(
    connection: Connection, claims: Sequence[Claim], *, due_in: float | None = None, attempts: int = 0
) -> None:
    """Frees the keys, due in `due_in` seconds or when an event is ready that their transaction did not see. Without
    `due_in` their priority becomes that of the waiting events. Events held in the late lane do not count as waiting."""
    statement = """
        UPDATE kfm.keys k
        SET owner = NULL, lease_until = NULL, dispatch = NULL, attempts = %(attempts)s,
            due_at = least(k.due_at, coalesce(
                clock_timestamp() + make_interval(secs => %(due_in)s::float), w.ready_at)),
            priority = CASE WHEN %(due_in)s::float IS NULL THEN coalesce(w.priority, 0) ELSE k.priority END
        FROM unnest(%(key)s::text[], %(epoch)s::bigint[]) AS freed (key, epoch) CROSS JOIN LATERAL (
            SELECT max(array_position(%(ranked)s::text[], i.priority)) - 1 AS priority,
                   min(coalesce(i.ready_at, clock_timestamp())) AS ready_at
            FROM kfm.inbox i
            WHERE i.key = freed.key AND i.state = 'received' AND i.ready_at IS DISTINCT FROM 'infinity'
        ) w
        WHERE k.key = freed.key AND k.epoch = freed.epoch RETURNING k.key
    """
    chosen = {"due_in": due_in, "attempts": attempts, "ranked": sorted(PRIORITIES, key=PRIORITIES.__getitem__)}
    freed = connection.execute(statement, {**columns(claims, "key", "epoch"), **chosen})
    kept = {row["key"] for row in freed}
    for claim in claims:
        if claim.key not in kept:
            raise fenced_error(claim)


def _move_started(connection: Connection, keys: Sequence[str], state: str) -> None:
    statement = """
        UPDATE kfm.inbox SET state = %(state)s,
            settled_at = CASE WHEN %(state)s = 'succeeded' THEN clock_timestamp() END
        WHERE key = ANY(%(keys)s) AND state = 'started'
    """
    connection.execute(statement, {"keys": list(keys), "state": state})
