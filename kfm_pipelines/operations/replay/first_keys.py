"""The canary of a replay: a few of its keys are tried in the shadow tier, without claims, and compared with what is
published. Nothing is published by it, and nothing is asked of Dagster before it is good.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any

from kfm_pipelines.care.governance import governance_of, policy_of
from kfm_pipelines.declarations import Tolerance
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.energy.emit import WorkUnit, emit_costs, record_usage
from kfm_pipelines.energy.meter import Meter
from kfm_pipelines.errors import ObjectMissing, Terminal
from kfm_pipelines.operations.canary.shadow_run import ShadowResult, ShadowRun
from kfm_pipelines.operations.replay.eligible import inherit_inputs, read_declaration_digest
from kfm_pipelines.operations.replay.keys import KeyState
from kfm_pipelines.services import Services
from kfm_pipelines.stages.config.key_config import KeyConfig, KeyConfigs, load_declaration
from kfm_pipelines.stages.publish.read_back import published_data
from kfm_pipelines.stages.reproduce import changes_since_publication, declaration_digest
from kfm_pipelines.state.database import Database, jsonb
from kfm_pipelines.state.replays import Replay
from kfm_pipelines.state.revisions import Revision, current_revision
from kfm_pipelines.stores import Layout


def list_canary_keys(database: Database, replay: str, number: int) -> list[KeyState]:
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


def reset_canary(database: Database, replay: str) -> None:
    """Its start begins anew."""
    database.execute(
        "UPDATE kfm.replay_keys SET canary = false, comparison = NULL WHERE replay = %(replay)s AND canary",
        {"replay": replay},
    )


def prepare_canary_key(database: Database, replay: str, key: str) -> None:
    with database.transaction() as connection:
        inherit_inputs(connection, replay, [key])


def record_canary(database: Database, replay: str, key: str, comparison: Mapping[str, object]) -> None:
    database.execute(
        """
        UPDATE kfm.replay_keys SET canary = true, comparison = %(comparison)s
        WHERE replay = %(replay)s AND key = %(key)s
        """,
        {"replay": replay, "key": key, "comparison": jsonb(dict(comparison))},
    )


STAGE = "canary"
EXACT_ROWS = Tolerance(columns="additive")


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """What came of one key."""

    key: str
    faults: tuple[str, ...]
    report: dict[str, Any]


def run_canary(services: Services, replay: Replay) -> list[CanaryResult]:
    """Try as many keys as the terms say, or as many as have objects; each result is kept with its key."""
    reset_canary(services.database, replay.id)
    return list(islice(_canary_results(services, replay), replay.terms.canary))


def _canary_results(services: Services, replay: Replay) -> Iterator[CanaryResult]:
    canary = ReplayCanary(services, replay)
    for one in list_canary_keys(services.database, replay.id, replay.terms.canary):
        with _record_cost(services, replay, one.key):
            try:
                trial = canary.run_key(one)
            except Terminal as error:  # of its inputs, say: it would stop the key in its run as well
                trial = ShadowResult((str(error).removeprefix(f"{one.key}: "),))
        if trial is None:
            continue
        report = trial.as_report()
        record_canary(services.database, replay.id, one.key, report)
        yield CanaryResult(one.key, trial.faults, report)


@contextmanager
def _record_cost(services: Services, replay: Replay, key: str) -> Iterator[None]:
    """What trying the key costs is entered, whatever comes of it. There is no run: the replay stands for it."""
    meter = Meter()
    try:
        yield
    finally:
        used = {WorkUnit(STAGE, key): meter.read()}
        run_id = f"replay-{replay.id}"
        emit_costs(services, record_usage(services, run_id, used, dataset=replay.dataset, replay=replay.id))


class ReplayCanary:
    """Each under the terms that its run would have."""

    def __init__(self, services: Services, replay: Replay) -> None:
        self._services = services
        self._replay = replay
        self._dataset: Dataset = services.datasets[replay.dataset]
        of_then = partial(declaration_digest, services.database) if replay.mode == "reproduce" else None
        self._terms = KeyConfigs(services, self._dataset, of_then)

    def run_key(self, key_state: KeyState) -> ShadowResult | None:
        """None when there is no object to try it with."""
        prepare_canary_key(self._services.database, self._replay.id, key_state.key)
        if self._replay.mode == "reproduce" and (changes := changes_since_publication(self._services, key_state.key)):
            return ShadowResult((f"it cannot be reproduced: {'; '.join(changes)}",))
        terms, current = (
            self._terms.for_key(key_state.key),
            current_revision(self._services.database, key_state.source or key_state.key),
        )
        trying = self._shadow_run(self._published_declaration(current), terms)
        objects = trying.fetch_objects(key_state.key)
        if not objects:
            return None
        published = self._read_published(current) if current else None
        trial = trying.run(key_state.key, objects, published, terms.rules(key_state.key))
        if current is None or self._replay.mode == "upgrade":
            return trial
        return _check_reproduction(current, trial)

    def _published_declaration(self, current: Revision | None) -> Dataset:
        """The declaration that made what is published, or today's where that was not kept."""
        digest = read_declaration_digest(self._services.database, current) if current else None
        return load_declaration(self._services, digest) if digest else self._dataset

    def _shadow_run(self, published_declaration: Dataset, terms: KeyConfig) -> ShadowRun:
        is_open = all(
            policy_of(self._services, one).is_open and one.review == "none"
            for one in (published_declaration, terms.dataset)
        )
        return ShadowRun(
            services=self._services,
            dataset=published_declaration,
            governance=governance_of(self._services, published_declaration),
            candidate=terms.dataset,
            tolerance=self._tolerance,
            shadow_name=f"replay-{self._replay.id}",
            is_open=is_open,
            approved=terms.approved,
        )

    @cached_property
    def _tolerance(self) -> Tolerance:
        if self._replay.mode == "reproduce":
            return Tolerance()
        if wished := self._replay.plan.get("tolerance"):
            return Tolerance.model_validate(wished)
        return self._dataset.canary.tolerance if self._dataset.canary else EXACT_ROWS

    def _read_published(self, current: Revision) -> bytes | None:
        """None when the store has lost them: then only their digest is left to compare with."""
        try:
            return published_data(self._services.store, Layout(self._dataset.pipeline), current)
        except ObjectMissing:
            return None


def _check_reproduction(current: Revision, result: ShadowResult) -> ShadowResult:
    """Byte for byte or not at all; the bytes are known by their digest also when the store has lost them."""
    if result.content_hash == current.content_hash:
        return ShadowResult(result.faults, {"identical": True, **result.comparison}, result.content_hash)
    other = f"it does not come out as revision {current.revision} did, though nothing is known to have changed"
    return ShadowResult((*result.faults, other), {**result.comparison, "identical": False}, result.content_hash)
