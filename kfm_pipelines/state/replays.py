"""Replays: the plan, the state of each, and the log of who did what. Keys and batches belong to `operations.replay`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.state.database import Connection, Database, columns, insert_rows, jsonb

Mode = Literal["reproduce", "upgrade"]
FINAL_STATES = ("stopped", "cancelled", "done")


@dataclass(frozen=True, slots=True)
class ReplayTerms:
    """Execution options, chosen at the start and kept when it is resumed, except `here`."""

    canary: int = 3  # keys to try first
    batch: int = 200
    rate: float | None = None  # keys per minute
    time_box_seconds: float | None = None
    max_attempts: int = 3
    quarantine_percent: float = 10.0
    here: bool = False  # executed by the process that started it, not by Dagster's daemon


@dataclass(frozen=True, slots=True)
class PlannedReplay:
    """`plan` is the request, `config` the configuration it was planned under."""

    id: str
    dataset: str
    mode: Mode
    plan: Mapping[str, Any]
    config: Mapping[str, Any]
    config_digest: str


@dataclass(frozen=True, slots=True)
class Replay(PlannedReplay):
    """A planned replay and its progress."""

    state: str
    note: str
    created_at: datetime
    started_at: datetime | None
    changed_at: datetime
    ended_at: datetime | None

    @property
    def terms(self) -> ReplayTerms:
        return ReplayTerms(**self.plan.get("terms", {}))

    @property
    def is_over(self) -> bool:
        return self.state in FINAL_STATES


@dataclass(frozen=True, slots=True)
class PlannedKey:
    """A key of a plan. `source` is the key whose release it is compared with, if that is another one; a key that is
    `left_out` is listed only with the reason why it is not replayed."""

    key: str
    why: str
    source: str | None = None
    left_out: bool = False


def create(database: Database, new: PlannedReplay, keys: Sequence[PlannedKey], actor: str) -> None:
    """Stores a plan. The keys are replayed in the given order."""
    with database.transaction() as connection:
        insert_rows(connection, "replays", [asdict(new)])
        statement = """
            INSERT INTO kfm.replay_keys (replay, key, source, why, state, place)
            SELECT %(replay)s, k.key, k.source, k.why, CASE WHEN k.left_out THEN 'left_out' ELSE 'waiting' END, k.place
            FROM unnest(%(key)b::text[], %(source)b::text[], %(why)b::text[], %(left_out)b::boolean[])
                 WITH ORDINALITY AS k (key, source, why, left_out, place)
        """
        connection.execute(statement, {"replay": new.id, **columns(keys, "key", "source", "why", "left_out")})
        left_out = sum(one.left_out for one in keys)
        planned = {"keys": len(keys) - left_out, "left_out": left_out, "config": new.config_digest}
        record_move(connection, new.id, "planned", actor, planned)


def read(database: Database, replay: str) -> Replay:
    rows = database.fetch("SELECT * FROM kfm.replays WHERE id = %(id)s", {"id": replay})
    if not rows:
        raise ReplayRefused(f"there is no replay {replay[:60]!r}; `kfm replay status` lists them")
    return _replay(rows[0])


def latest(database: Database, limit: int) -> list[Replay]:
    rows = database.fetch("SELECT * FROM kfm.replays ORDER BY created_at DESC LIMIT %(limit)s", {"limit": limit})
    return [_replay(row) for row in rows]


def active_replays(database: Database) -> list[Replay]:
    """Returns the replays that Dagster's daemon executes, without those with `here`, and others with an open batch."""
    query = """
        SELECT * FROM kfm.replays r
        WHERE CASE state WHEN 'running' THEN NOT coalesce((plan #>> '{terms,here}')::boolean, false)
                         ELSE EXISTS (SELECT FROM kfm.replay_batches b WHERE b.replay = r.id AND b.ended_at IS NULL) END
        ORDER BY created_at
    """
    rows = database.fetch(query)
    return [_replay(row) for row in rows]


def move(
    database: Database,
    replay: str,
    what: str,
    actor: str,
    *,
    to: str,
    only_from: Sequence[str],
    note: str = "",
    terms: ReplayTerms | None = None,
) -> bool:
    """Changes the replay's state and logs the actor; returns False when it is not in one of the expected states."""
    with database.transaction() as connection:
        statement = """
            UPDATE kfm.replays SET state = %(to)s, note = %(note)s, changed_at = clock_timestamp(),
                plan = plan || coalesce(%(terms)s::jsonb, '{}'),
                started_at = CASE WHEN %(to)s IN ('canary', 'running')
                                  THEN coalesce(started_at, clock_timestamp()) ELSE started_at END,
                ended_at = CASE WHEN %(to)s = ANY(%(over)s) THEN clock_timestamp() END
            WHERE id = %(id)s AND state = ANY(%(only_from)s)
        """
        parameters = {
            "id": replay,
            "to": to,
            "note": note,
            "over": list(FINAL_STATES),
            "only_from": list(only_from),
            "terms": jsonb({"terms": asdict(terms)}) if terms else None,
        }
        moved = connection.execute(statement, parameters).rowcount
        if moved:
            detail = {"note": note} if note else {}
            record_move(connection, replay, what, actor, {**detail, **(asdict(terms) if terms else {})})
    return moved == 1


def record_move(connection: Connection, replay: str, what: str, actor: str, detail: Mapping[str, object]) -> None:
    move = {"replay": replay, "what": what, "actor": actor, "detail": detail}
    insert_rows(connection, "replay_moves", [move])


def moves_of(database: Database, replay: str) -> list[dict[str, Any]]:
    query = "SELECT what, actor, detail, at FROM kfm.replay_moves WHERE replay = %(replay)s ORDER BY id"
    return database.fetch(query, {"replay": replay})


def seconds_since_start(database: Database, replay: str) -> float:
    """Returns the seconds since the last start or resumption."""
    query = """
        SELECT extract(epoch FROM clock_timestamp() - max(at))::float AS seconds FROM kfm.replay_moves
        WHERE replay = %(replay)s AND what IN ('started', 'resumed')
    """
    rows = database.fetch(query, {"replay": replay})
    return float(rows[0]["seconds"] or 0.0)


@contextmanager
def lock_replay(database: Database, replay: str) -> Iterator[bool]:
    """Yields whether this process may execute the replay; one does at a time. The lock ends with the process."""
    name = {"name": f"kfm replay {replay}"}
    with database.transaction() as connection:
        query = "SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 0)) AS mine"
        [row] = connection.execute(query, name).fetchall()
        connection.commit()  # the lock belongs to the connection; an idle transaction would be ended after a while
        try:
            yield bool(row["mine"])
        finally:
            if row["mine"]:
                connection.execute("SELECT pg_advisory_unlock(hashtextextended(%(name)s, 0))", name)


def _replay(row: Mapping[str, Any]) -> Replay:
    return Replay(**{name: row[name] for name in Replay.__dataclass_fields__})
