"""Finds late events and releases held ones. `late` decides which events are late."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from kfm_pipelines.declarations import LateRule
from kfm_pipelines.declarations.dataset import Datasets
from kfm_pipelines.errors import KeyInvalid, LateRefused
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.services import Services
from kfm_pipelines.state import audit
from kfm_pipelines.state.audit import Action, AuditEntry
from kfm_pipelines.state.database import Connection, Database, pairs
from kfm_pipelines.state.keys import LOCK_WITH_DEPENDENTS, PRIORITIES
from kfm_pipelines.watermarks.due import make_keys_due

LATE_LANE_JOB_NAME = "kfm_late_lane"
KEY_BATCH_SIZE = 500


@dataclass(frozen=True, slots=True)
class LateFilter:
    """Criteria for late events; None matches all. Identities may be prefixes."""

    dataset: str | None = None
    key: str | None = None
    identities: tuple[str, ...] = ()
    rule: LateRule | None = None
    state: str | None = "held"


@dataclass(frozen=True, slots=True)
class LateEvent:
    identity: str
    dataset: str
    key: str
    asset_uri: str
    made_at: datetime
    window_end: datetime
    watermark: datetime | None  # when the event was made
    rule: LateRule
    state: str
    noticed_at: datetime
    changed_at: datetime
    changed_by: str
    reason: str


_MATCHING_LATE_EVENTS = """
    FROM kfm.late l JOIN kfm.inbox i ON i.identity = l.identity JOIN kfm.keys k ON k.key = l.key
    LEFT JOIN LATERAL (
        SELECT w.watermark FROM kfm.watermark_steps w
        WHERE w.dataset = l.dataset AND w.at < i.made_at ORDER BY w.at DESC LIMIT 1
    ) AS s ON true
    WHERE l.is_late
      AND (%(dataset)s::text IS NULL OR l.dataset = %(dataset)s) AND (%(key)s::text IS NULL OR l.key = %(key)s)
      AND (%(rule)s::text IS NULL OR l.rule = %(rule)s) AND (%(state)s::text IS NULL OR l.state = %(state)s)
      AND (%(identities)s::text[] = '{}' OR EXISTS (
          SELECT FROM unnest(%(identities)s::text[]) AS digits WHERE starts_with(l.identity, digits)))
"""


def find_late_events(database: Database, criteria: LateFilter, *, limit: int | None = None) -> list[LateEvent]:
    """Returns the matching events in the order of their keys."""
    query = f"""
        SELECT l.identity, l.dataset, l.key, i.asset_uri, i.made_at, k.window_end,
               s.watermark, l.rule, l.state, l.noticed_at, l.changed_at, l.changed_by, l.reason
        {_MATCHING_LATE_EVENTS} ORDER BY l.dataset, l.key, l.identity LIMIT %(limit)s
    """
    rows = database.fetch(query, {**_parameters(criteria), "limit": limit})
    return [LateEvent(**row) for row in rows]


def count_late_events(database: Database, criteria: LateFilter) -> int:
    rows = database.fetch(f"SELECT count(*) AS n {_MATCHING_LATE_EVENTS}", _parameters(criteria))
    return int(rows[0]["n"])


def count_held_by_dataset(database: Database) -> dict[str, int]:
    return pairs(database.fetch("SELECT dataset, count(*) AS n FROM kfm.late WHERE state = 'held' GROUP BY dataset"))


def find_held_objects(database: Database, key: str) -> dict[str, str]:
    """Returns the objects of the key's held events, each with the identity of one event."""
    query = """
        SELECT i.asset_uri, l.identity
        FROM kfm.keys k JOIN kfm.late l ON l.key = ANY(ARRAY[k.key, k.inputs_from])
        JOIN kfm.inbox i ON i.identity = l.identity
        WHERE k.key = %(key)s AND l.state = 'held' ORDER BY l.identity
    """
    return pairs(database.fetch(query, {"key": key}))


def find_holdable_events(connection: Connection, datasets: Datasets, key: str) -> set[str]:
    """Returns events of a key that are not held but would be if they turned out to be late."""
    patched = [dataset.dataset for dataset in datasets.values() if dataset.late == "patch"]
    query = """
        SELECT i.identity FROM kfm.inbox i LEFT JOIN kfm.late l ON l.identity = i.identity
        WHERE i.key = %(key)s AND i.dataset <> ALL(%(patched)s) AND i.change = 'created' AND i.made_at IS NOT NULL
          AND l.state IS DISTINCT FROM 'released'
    """
    rows = connection.execute(query, {"key": key, "patched": patched})
    return {row["identity"] for row in rows}


def release(
    database: Database, datasets: Datasets, events: Sequence[LateEvent], *, actor: str, reason: str
) -> list[str]:
    """Releases these events and makes their keys due at once; returns the identities of those that were still held."""
    if not actor.strip() or not reason.strip():
        raise LateRefused("a release needs an actor and a reason")
    released: list[str] = []
    by_key = [list(of_key) for _, of_key in groupby(sorted(events, key=attrgetter("key")), key=attrgetter("key"))]
    for start in range(0, len(by_key), KEY_BATCH_SIZE):
        some = [event for of_key in by_key[start : start + KEY_BATCH_SIZE] for event in of_key]
        with database.transaction() as connection:
            connection.execute(LOCK_WITH_DEPENDENTS, {"keys": sorted({event.key for event in some})})
            gone = _release_held(connection, [event.identity for event in some], actor, reason)
            _record_audit(connection, datasets, [event for event in some if event.identity in gone], actor, reason)
        released += gone
    return released


def _parameters(criteria: LateFilter) -> dict[str, object]:
    return {**asdict(criteria), "identities": list(criteria.identities)}


def _release_held(connection: Connection, identities: Sequence[str], actor: str, reason: str) -> list[str]:
    statement = """
        UPDATE kfm.late SET state = 'released', changed_at = clock_timestamp(), changed_by = %(actor)s,
            reason = %(reason)s
        WHERE identity = ANY(%(identities)s) AND state = 'held' RETURNING identity
    """
    rows = connection.execute(statement, {"identities": list(identities), "actor": actor, "reason": reason}).fetchall()
    gone = [row["identity"] for row in rows]
    statement = "UPDATE kfm.inbox SET ready_at = NULL WHERE identity = ANY(%(identities)s)"
    connection.execute(statement, {"identities": gone})
    statement = """
        UPDATE kfm.keys k SET priority = greatest(k.priority, i.priority)
        FROM (SELECT key, max(array_position(%(ranked)s::text[], priority)) - 1 AS priority
              FROM kfm.inbox WHERE identity = ANY(%(identities)s) GROUP BY key) AS i
        WHERE k.key = i.key
        RETURNING k.key
    """
    parameters = {"identities": gone, "ranked": sorted(PRIORITIES, key=PRIORITIES.__getitem__)}
    keys = connection.execute(statement, parameters).fetchall()
    make_keys_due(connection, [row["key"] for row in keys])
    return gone


def _record_audit(
    connection: Connection, datasets: Datasets, events: Sequence[LateEvent], actor: str, reason: str
) -> None:
    for key, of_key in groupby(sorted(events, key=attrgetter("key")), key=attrgetter("key")):
        released = list(of_key)
        dataset = released[0].dataset
        policy = datasets[dataset].policy if dataset in datasets else ""
        detail = {
            "reason": reason,
            "rules": sorted({event.rule for event in released}),
            "events": sorted(event.identity for event in released),
        }
        audit.record(connection, [AuditEntry(Action.LATE_RELEASED, actor, dataset, policy, key=key, detail=detail)])


def find_held_events(services: Services, criteria: LateFilter) -> list[LateEvent]:
    """Returns what would be released; raises LateRefused or KeyInvalid when a named event is not held or unknown."""
    known = "SELECT FROM kfm.keys WHERE key = %(key)s"
    if criteria.key is not None and not services.database.fetch(known, {"key": criteria.key}):
        raise KeyInvalid(f"{criteria.key[:200]}: no event has named this key; see kfm late list")
    found = find_late_events(services.database, criteria)
    for digits in criteria.identities:
        _require_single_match(services, digits, [event for event in found if event.identity.startswith(digits)])
    return found


def find_outdated_keys(services: Services, events: Sequence[LateEvent]) -> list[str]:
    """Returns keys of undeclared versions whose inputs no key of the declared version takes."""
    outdated = {event.key: event.dataset for event in events if not _is_declared(services, event.dataset, event.key)}
    query = "SELECT key, inputs_from FROM kfm.keys WHERE inputs_from = ANY(%(keys)s)"
    dependent = services.database.fetch(query, {"keys": list(outdated)})
    taken = {
        row["inputs_from"] for row in dependent if _is_declared(services, outdated[row["inputs_from"]], row["key"])
    }
    return sorted(outdated.keys() - taken)


def release_by_rule(services: Services) -> list[str]:
    events = find_late_events(services.database, LateFilter(rule="replay"))
    reason = "held until the night by rule replay"
    return release(services.database, services.datasets, events, actor=LATE_LANE_JOB_NAME, reason=reason)


def _is_declared(services: Services, dataset: str, key: str) -> bool:
    declared = services.datasets.get(dataset)
    return declared is not None and declared.key.transform_version == CanonicalKey.parse(key).transform_version


def _require_single_match(services: Services, digits: str, found: Sequence[LateEvent]) -> None:
    if len(found) > 1:
        raise LateRefused(f"{digits}: {len(found)} held events begin with these digits; give more of the identity")
    if found:
        return
    known = find_late_events(services.database, LateFilter(identities=(digits,), state=None), limit=1)
    if known:
        one = known[0]
        if one.state == "held":
            raise LateRefused(f"{digits}: is held, but belongs to dataset {one.dataset} and key {one.key}")
        by = f" by {one.changed_by}" if one.state == "released" else f" by rule {one.rule}"
        raise LateRefused(f"{digits}: is not held; it is {one.state}{by} (key {one.key})")
    raise LateRefused(f"{digits}: no late event has this identity; see kfm late list")
