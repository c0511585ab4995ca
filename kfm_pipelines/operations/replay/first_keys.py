"""The canary of a replay: a few keys in the shadow tier, before Dagster is asked for anything."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any

from kfm_pipelines.declarations import Tolerance
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import ObjectMissing, Terminal
from kfm_pipelines.operations.canary.shadow_run import ShadowResult, ShadowRun, record_cost
from kfm_pipelines.operations.replay.eligible import inherit_inputs, read_declaration_digest
from kfm_pipelines.operations.replay.tables import KeyState
from kfm_pipelines.services import Services
from kfm_pipelines.stages.config.key_config import KeyConfigs, load_declaration
from kfm_pipelines.stages.publish.read_back import published_data
from kfm_pipelines.stages.reproduce import changes_since_publication, declaration_digest
from kfm_pipelines.state.database import Database, jsonb
from kfm_pipelines.state.replays import Replay
from kfm_pipelines.state.revisions import Revision, current_revision
from kfm_pipelines.stores import Layout

EXACT_ROWS = Tolerance(columns="additive")


@dataclass(frozen=True, slots=True)
class CanaryResult:
    key: str
    faults: tuple[str, ...]
    report: dict[str, Any]


def run_canary(services: Services, replay: Replay) -> list[CanaryResult]:
    """Tries as many keys as the terms ask for, or as many as have objects, and stores each result with its key."""
    statement = "UPDATE kfm.replay_keys SET canary = false, comparison = NULL WHERE replay = %(replay)s AND canary"
    services.database.execute(statement, {"replay": replay.id})
    return list(islice(_canary_results(services, replay), replay.terms.canary))


def _canary_results(services: Services, replay: Replay) -> Iterator[CanaryResult]:
    canary = _ReplayCanary(services, replay)
    for one in _list_canary_keys(services.database, replay.id, replay.terms.canary):
        # There is no run, so the replay's id stands in for one.
        with record_cost(services, f"replay-{replay.id}", replay.dataset, one.key, replay.id):
            try:
                result = canary.run_key(one)
            except Terminal as error:  # it would fail the key in its run as well
                result = ShadowResult((str(error).removeprefix(f"{one.key}: "),))
        if result is None:
            continue
        report = result.as_report()
        record_canary(services.database, replay.id, one.key, report)
        yield CanaryResult(one.key, result.faults, report)


def _list_canary_keys(database: Database, replay: str, number: int) -> list[KeyState]:
    """Returns keys that have an object: published ones first, spread over the plan."""
    query = """
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
    """
    rows = database.fetch(query, {"replay": replay, "number": number})
    return [KeyState(**{name: row[name] for name in KeyState.__dataclass_fields__}) for row in rows]


def record_canary(database: Database, replay: str, key: str, comparison: Mapping[str, object]) -> None:
    statement = """
        UPDATE kfm.replay_keys SET canary = true, comparison = %(comparison)s
        WHERE replay = %(replay)s AND key = %(key)s
    """
    database.execute(statement, {"replay": replay, "key": key, "comparison": jsonb(dict(comparison))})


class _ReplayCanary:
    """Tries keys under the configuration their runs would have."""

    def __init__(self, services: Services, replay: Replay) -> None:
        self._services = services
        self._replay = replay
        self._dataset: Dataset = services.datasets[replay.dataset]
        published = partial(declaration_digest, services.database) if replay.mode == "reproduce" else None
        self._configs = KeyConfigs(services, self._dataset, published)

    def run_key(self, key_state: KeyState) -> ShadowResult | None:
        """Returns None when the key has no object."""
        with self._services.database.transaction() as connection:
            inherit_inputs(connection, self._replay.id, [key_state.key])
        if self._replay.mode == "reproduce" and (changes := changes_since_publication(self._services, key_state.key)):
            return ShadowResult((f"it cannot be reproduced: {'; '.join(changes)}",))
        config = self._configs.for_key(key_state.key)
        current = current_revision(self._services.database, key_state.source or key_state.key)
        digest = read_declaration_digest(self._services.database, current) if current else None
        # Today's declaration stands in where that of the published revision was not kept.
        declared = load_declaration(self._services, digest) if digest else self._dataset
        name = f"replay-{self._replay.id}"
        shadow_run = ShadowRun(self._services, declared, config.dataset, self._tolerance, name, config.approved)
        objects = shadow_run.fetch_objects(key_state.key)
        if not objects:
            return None
        published = self._read_published(current) if current else None
        result = shadow_run.run(key_state.key, objects, published, config.rules(key_state.key))
        if current is None or self._replay.mode == "upgrade":
            return result
        # Adds a fault unless the bytes have the published digest.
        if result.content_hash == current.content_hash:
            return ShadowResult(result.faults, {"identical": True, **result.comparison}, result.content_hash)
        other = f"it does not come out as revision {current.revision} did, though nothing is known to have changed"
        return ShadowResult((*result.faults, other), {**result.comparison, "identical": False}, result.content_hash)

    @cached_property
    def _tolerance(self) -> Tolerance:
        if self._replay.mode == "reproduce":
            return Tolerance()
        if requested := self._replay.plan.get("tolerance"):
            return Tolerance.model_validate(requested)
        return self._dataset.canary.tolerance if self._dataset.canary else EXACT_ROWS

    def _read_published(self, current: Revision) -> bytes | None:
        """Returns None when the store has lost the bytes; their digest remains for comparison."""
        try:
            return published_data(self._services.store, Layout(self._dataset.pipeline), current)
        except ObjectMissing:
            return None
