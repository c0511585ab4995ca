"""Decides which events are late: made after the watermark had passed their window. `late_lane` releases them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.declarations import LateRule
from kfm_pipelines.declarations.dataset import Datasets
from kfm_pipelines.state.audit import Action
from kfm_pipelines.state.database import Connection, Database, columns
from kfm_pipelines.state.inbox import LISTING
from kfm_pipelines.state.keys import LOCK_AVAILABLE
from kfm_pipelines.watermarks.due import close_windows, make_keys_due
from kfm_pipelines.watermarks.streams import advance_watermarks, lock_streams

KEY_BATCH_SIZE = 1000
MAX_ROUNDS = 20  # a stream whose events keep changing is left to the next tick

# Events whose recorded lateness differs from the watermark steps.
_LATENESS_CHANGED = f"""
    SELECT i.identity, i.key, i.dataset, coalesce(s.late, false) AS late,
           i.queue = '{LISTING}' AND i.state = 'received' AS unasked
    FROM kfm.inbox i
    JOIN kfm.keys k ON k.key = i.key
    LEFT JOIN kfm.late l ON l.identity = i.identity
    LEFT JOIN LATERAL (
        SELECT w.watermark >= k.window_end AS late FROM kfm.watermark_steps w
        WHERE w.dataset = i.dataset AND w.at < i.made_at ORDER BY w.at DESC LIMIT 1
    ) AS s ON true
    WHERE {{which}} AND coalesce(l.is_late, false) <> coalesce(s.late, false)
"""  # noqa: S608 - contains no input
_LATENESS_CHANGED_BY_IDENTITY = _LATENESS_CHANGED.format(which="i.identity = ANY(%(identities)s)")
_LATENESS_CHANGED_IN_PERIOD = _LATENESS_CHANGED.format(
    which="""
    i.dataset = %(dataset)s AND i.made_at > %(since)s AND i.made_at <= coalesce(%(until)s::timestamptz, 'infinity')
"""
)


@dataclass(frozen=True, slots=True)
class LatenessChange:
    identity: str
    key: str
    dataset: str
    late: bool
    unasked: bool  # found in a bucket listing, and its key has not been requested yet


def tick_watermarks(database: Database, datasets: Datasets, *, now: datetime | None = None) -> None:
    """Runs after events were recorded and regularly when none arrive; may run twice or be interrupted."""
    advance_watermarks(database, datasets, now)
    reevaluate_lateness(database, datasets)
    close_windows(database, datasets)


def evaluate_lateness(connection: Connection, datasets: Datasets, identities: Sequence[str]) -> list[LatenessChange]:
    """Records which of these events are late. The caller has locked their keys and streams."""
    rows = connection.execute(_LATENESS_CHANGED_BY_IDENTITY.encode(), {"identities": list(identities)})
    found = [LatenessChange(**row) for row in rows]
    _record_lateness(connection, datasets, found)
    return found


def reevaluate_lateness(database: Database, datasets: Datasets) -> int:
    """Returns how many events changed; their keys become due. Locked keys are left for the next tick."""
    changed = 0
    for mark in database.fetch("SELECT dataset FROM kfm.late_again ORDER BY dataset"):
        if mark["dataset"] not in datasets:
            continue
        for _ in range(MAX_ROUNDS):
            count, done = _reevaluate_batch(database, datasets, mark["dataset"])
            changed += count
            if done or not count:
                break
    return changed


def _reevaluate_batch(database: Database, datasets: Datasets, dataset: str) -> tuple[int, bool]:
    """Returns how many events changed, and whether no others are left."""
    with database.transaction() as connection:
        query = "SELECT since, until FROM kfm.late_again WHERE dataset = %(dataset)s"
        mark = connection.execute(query, {"dataset": dataset}).fetchone()
        if mark is None:
            return 0, True
        parameters = {"dataset": dataset, **mark}
        seen = connection.execute(_LATENESS_CHANGED_IN_PERIOD.encode(), parameters).fetchall()
        some = sorted({row["key"] for row in seen})[:KEY_BATCH_SIZE]
        keys = _lock_free_keys(connection, some)
        lock_streams(connection, [dataset])
        # With the streams locked, this result holds until the end of the transaction.
        now = [LatenessChange(**row) for row in connection.execute(_LATENESS_CHANGED_IN_PERIOD.encode(), parameters)]
        ours = [one for one in now if one.key in keys]
        _record_lateness(connection, datasets, ours)
        make_keys_due(connection, [one.key for one in ours if not one.unasked])
        # Deletes the mark unless it has been widened in the meantime.
        statement = """
            DELETE FROM kfm.late_again
            WHERE dataset = %(dataset)s AND since = %(since)s AND until IS NOT DISTINCT FROM %(until)s::timestamptz
        """
        return len(ours), len(ours) == len(now) and connection.execute(statement, parameters).rowcount == 1


def _lock_free_keys(connection: Connection, keys: Sequence[str]) -> set[str]:
    """Locks and returns the keys that are free, as are all keys that take their inputs from them."""
    query = "SELECT key, inputs_from FROM kfm.keys WHERE inputs_from = ANY(%(keys)s)"
    rows = connection.execute(query, {"keys": list(keys)}).fetchall()
    wanted = sorted({*keys, *(row["key"] for row in rows)})
    locked = {row["key"] for row in connection.execute(LOCK_AVAILABLE, {"keys": wanted})}
    return (locked & set(keys)) - {row["inputs_from"] for row in rows if row["key"] not in locked}


def _record_lateness(connection: Connection, datasets: Datasets, changes: Sequence[LatenessChange]) -> None:
    """Records changes but keeps releases, because an event that is no longer late may become late again."""
    if not changes:
        return
    late = [one for one in changes if one.late]
    rules: list[LateRule] = [datasets[one.dataset].late for one in late]
    # A deletion is applied even if it is late: what is gone at its source must not stay published.
    statement = """
        INSERT INTO kfm.late AS l (identity, key, dataset, rule, state)
        SELECT n.*, CASE WHEN n.rule = 'patch' OR i.change <> 'created' THEN 'applied' ELSE 'held' END
        FROM unnest(%(identity)s::text[], %(key)s::text[], %(dataset)s::text[], %(rules)s::text[])
             AS n (identity, key, dataset, rule)
        JOIN kfm.inbox i ON i.identity = n.identity
        ON CONFLICT (identity) DO UPDATE SET is_late = true, rule = excluded.rule
    """
    connection.execute(statement, {**columns(late, "identity", "key", "dataset"), "rules": rules})
    in_time = {"identities": [one.identity for one in changes if not one.late]}
    connection.execute("DELETE FROM kfm.late WHERE identity = ANY(%(identities)s) AND state <> 'released'", in_time)
    connection.execute("UPDATE kfm.late SET is_late = false WHERE identity = ANY(%(identities)s)", in_time)
    _apply_holds(connection, [one.identity for one in changes])
    _record_audit(connection, datasets, [one.identity for one in late])


def _apply_holds(connection: Connection, identities: Sequence[str]) -> None:
    """Makes held events wait and others ready. Listed events wait until their key is requested."""
    statement = """
        UPDATE kfm.inbox i SET ready_at = CASE WHEN l.state = 'held' THEN 'infinity'::timestamptz END
        FROM kfm.inbox known LEFT JOIN kfm.late l ON l.identity = known.identity
        WHERE i.identity = known.identity AND known.identity = ANY(%(identities)s) AND known.queue <> %(listing)s
          AND coalesce(l.state = 'held', false) <> coalesce(known.ready_at = 'infinity', false)
    """
    connection.execute(statement, {"identities": list(identities), "listing": LISTING})


def _record_audit(connection: Connection, datasets: Datasets, identities: Sequence[str]) -> None:
    """Adds an audit entry for each key with events that were released before they were known to be late."""
    statement = """
        INSERT INTO kfm.audit (action, actor, dataset, key, policy, detail)
        SELECT %(action)s, l.changed_by, l.dataset, l.key, p.policy, jsonb_build_object(
            'reason', l.reason, 'rules', jsonb_agg(DISTINCT l.rule),
            'events', jsonb_agg(l.identity ORDER BY l.identity))
        FROM kfm.late l JOIN unnest(%(datasets)s::text[], %(policies)s::text[]) AS p (dataset, policy)
             ON p.dataset = l.dataset
        WHERE l.identity = ANY(%(identities)s) AND l.state = 'released' AND l.rule <> 'patch' AND NOT EXISTS (
            SELECT FROM kfm.audit a
            WHERE a.key = l.key AND a.action = %(action)s AND jsonb_exists(a.detail -> 'events', l.identity))
        GROUP BY l.changed_by, l.dataset, l.key, p.policy, l.reason
    """
    parameters = {
        "identities": list(identities),
        "action": Action.LATE_RELEASED,
        "datasets": list(datasets),
        "policies": [dataset.policy for dataset in datasets.values()],
    }
    connection.execute(statement, parameters)
