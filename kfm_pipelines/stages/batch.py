"""A batch: one run's work on many keys of one dataset, stage by stage, each key in its own transaction.

A key that fails, has nothing new, or belongs to another worker drops out; the others continue. All stages of a run are
in one process, which holds the tables between them; the state of each key is in the database.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from typing import Any

from kfm_pipelines.care.review.decide import is_approved
from kfm_pipelines.catalog.documents import sha256
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.energy.emit import metered_span, record_lost_costs
from kfm_pipelines.errors import KfmError
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.gates import TABLE_GATES, Verdict
from kfm_pipelines.parquet.parquet import write_parquet, write_published
from kfm_pipelines.services import Services
from kfm_pipelines.stages import reproduce
from kfm_pipelines.stages.compute import inputs
from kfm_pipelines.stages.compute.table import compute
from kfm_pipelines.stages.config.changes import refuse_laxer_policy
from kfm_pipelines.stages.config.key_config import KeyConfigs
from kfm_pipelines.stages.failure import FailureHandler
from kfm_pipelines.stages.mask import audit_entry, mask_computed, masking_audit_entry
from kfm_pipelines.stages.previews import BatchPreviews, CarePreview
from kfm_pipelines.stages.publish import release
from kfm_pipelines.stages.reproduce import declaration_digest
from kfm_pipelines.stages.telemetry.outcomes import AWAITING, SKIPPED, OutcomeTelemetry
from kfm_pipelines.stages.telemetry.spans import StageTelemetry
from kfm_pipelines.stages.trigger import EVENT_TRIGGER, RunTrigger, is_reproduction, refused_keys
from kfm_pipelines.stages.validate.release_gates import judge_release
from kfm_pipelines.stages.validate.report import quarantine_files, write_validation_report
from kfm_pipelines.stages.validate.table_gates import KeyVerdict, judge_table, refusal_of
from kfm_pipelines.state import kill_switch, transactions
from kfm_pipelines.state.audit import Action
from kfm_pipelines.state.keys import Claim, Claims, keys_in_review, source_of_key
from kfm_pipelines.state.revisions import FetchCounts, count_fetches
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import clear_work


class Batch:
    """The keys of one run, which owns their claims."""

    def __init__(self, services: Services, dataset: Dataset, run_id: str, trigger: RunTrigger = EVENT_TRIGGER) -> None:
        self._services = services
        self.database = services.database
        self._store = services.store
        self._dataset = dataset
        self._layout = Layout(dataset.pipeline)
        self._trigger = trigger
        self._is_reproduction = is_reproduction(services.database, dataset.dataset, trigger)
        declaration = cache(partial(declaration_digest, services.database)) if self._is_reproduction else None
        self._configs = KeyConfigs(services, dataset, declaration)
        self.claims = Claims(
            services.database,
            run_id,
            services.settings.lease_seconds,
            trigger.replay,
            dataset=dataset.dataset,
            skip_in_review=self._is_reproduction,
        )
        self._stage_telemetry = StageTelemetry(services, dataset, run_id, trigger, held_keys=self.claims.held)
        self._outcomes = OutcomeTelemetry(services, dataset, run_id, trigger.replay, self._stage_telemetry)
        self._failures = FailureHandler(services, self._layout, self._stage_telemetry, self._outcomes)
        self.notes = self._failures.notes  # why a key dropped out in this stage
        self.awaiting_review: set[str] = set()

    def compute(self, keys: Sequence[str]) -> None:
        """Claims each key, finishes or undoes what a predecessor left, and computes a table from its objects."""
        fetches = FetchCounts()
        self._store.recheck_shared()
        with self._stage_scope():
            self._stage_telemetry.load_origins(keys)
            self._stage_telemetry.begin_traces(keys)
            for key in self._allowed_keys(keys):
                claim = self._claim_key(key)
                if claim is None:
                    continue
                with self._failures.guard(claim, "compute"):
                    with metered_span(self._services, "extract"):
                        prepared = self._prepare_inputs(claim)
                    fetches += prepared.fetches
                    if isinstance(prepared, inputs.SkippedKey):
                        self.notes[key] = prepared.note
                        self._outcomes.emit_unpublished(claim, SKIPPED)
                        continue
                    config = self._configs.for_key(key)
                    with metered_span(self._services, "transform"):
                        computed = write_parquet(compute(config.dataset, prepared.objects))
                    self._store.write(self._layout.computed_table(key, claim.epoch), computed)
                    detail = {**prepared.as_detail(), **config.as_detail(key)}
                    transactions.advance(self.database, claim, Step.COMPUTE, detail)
        count_fetches(self.database, self._dataset.dataset, fetches)
        self._outcomes.emit_fetches(fetches)

    def mask(self, keys: Iterable[str]) -> None:
        """Applies the dataset's policy; from here on the bytes are those that will be published."""
        with self._stage_scope():
            for claim in self._load_held_claims(keys):
                with self._failures.guard(claim, "mask"):
                    config = self._configs.for_key(claim.key)
                    dataset, rules = config.dataset, config.rules(claim.key)
                    outcome = mask_computed(self._services, dataset, rules, claim)
                    data = write_published(outcome.table, rules.published_table(dataset))
                    self._store.write(self._layout.masked_table(claim.key, claim.epoch), data)
                    content_hash = sha256(data)
                    detail = {
                        "policy": rules.policy.name,
                        "exemption": rules.exemption.id if rules.exemption else None,
                        "rows": outcome.table.num_rows,
                        "measures": dict(outcome.measures),
                        "content_hash": content_hash,
                    }
                    audited = masking_audit_entry(dataset, claim, rules, content_hash, outcome)
                    transactions.advance(self.database, claim, Step.MASK, detail, audit_entry=audited)

    def validate(self, keys: Iterable[str]) -> list[KeyVerdict]:
        """Runs the table gates. If a key is red, the blocking check stops the run, so green keys are handed back."""
        key_verdicts: list[KeyVerdict] = []
        with self._stage_scope():
            for claim in self._load_held_claims(keys):
                with self._failures.guard(claim, "validate"):
                    config = self._configs.for_key(claim.key)
                    data = self._store.read_work(self._layout.masked_table(claim.key, claim.epoch))
                    rules = config.rules(claim.key)
                    verdicts = judge_table(self._services, config.dataset, rules, config.approved, claim, data)
                    self._collect_verdicts(claim, verdicts, key_verdicts)
                    detail = {"gates": list(TABLE_GATES), "content_hash": sha256(data)}
                    transactions.advance(self.database, claim, Step.VALIDATE, detail)
            self._hand_back_if_red(key_verdicts, "validate")
        return key_verdicts

    def stage(self, keys: Iterable[str]) -> list[KeyVerdict]:
        """Stages each green key's complete release and runs the release gates on it."""
        key_verdicts: list[KeyVerdict] = []
        with self._stage_scope():
            for claim in self._load_held_claims(keys):
                with self._failures.guard(claim, "stage"):
                    config = self._configs.for_key(claim.key)
                    if self._is_reproduction:
                        reproduce.refuse_different_data(self.database, claim)
                    with metered_span(self._services, "stac_write"):
                        staged = release.stage_candidate(self._services, config.dataset, claim, config.governance)
                    transactions.advance(self.database, claim, Step.STAGE_ATOMIC, staged.as_detail())
                    verdicts = judge_release(self._services, config.dataset, claim, config.rules(claim.key), staged)
                    self._collect_verdicts(claim, verdicts, key_verdicts)
                    write_validation_report(self._services, config.dataset, claim)
            self._hand_back_if_red(key_verdicts, "stage")
        return key_verdicts

    def publish(self, keys: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Publishes what is staged and green, key by key; releases that need a review wait for it."""
        published: dict[str, Mapping[str, Any]] = {}
        all_keys = list(keys)
        with self._stage_scope():
            for claim in self._load_held_claims(self._allowed_keys(all_keys)):
                with self._failures.guard(claim, "publish"):
                    if self._is_reproduction and self._skip_if_reproduced(claim):
                        continue
                    if self._await_review_if_required(claim):
                        self.awaiting_review.add(claim.key)
                        continue
                    config = self._configs.for_key(claim.key)
                    done = release.publish(self._services, config.dataset, claim, config.governance)
                    published[claim.key] = done.as_detail()
                    self._outcomes.emit_applied(claim, published[claim.key])
        for key in all_keys:  # also of those that another worker has taken
            self._store.forget_work(self._layout, key)
        return published

    def care_previews(self, keys: Iterable[str]) -> dict[str, CarePreview]:
        with self._stage_scope():
            return self.previews.care(self.held_claims(keys))

    @cached_property
    def previews(self) -> BatchPreviews:
        return BatchPreviews(self._services, self._dataset, self._configs)

    def trace_of(self, key: str) -> str:
        return self._stage_telemetry.trace_of(key).trace_hex

    def held_claims(self, keys: Iterable[str]) -> list[Claim]:
        """Returns the claims on the keys that are still in this run."""
        claims = self.claims.held()
        return [claims[key] for key in keys if key in claims]

    def _load_held_claims(self, keys: Iterable[str]) -> list[Claim]:
        claims = self.held_claims(keys)
        self._stage_telemetry.load_origins([claim.key for claim in claims])
        return claims

    def _allowed_keys(self, keys: Sequence[str]) -> list[str]:
        """Returns the keys that this run may touch, and notes why the others are refused."""
        refused = refused_keys(self.database, self._dataset.dataset, self._trigger, keys, self.claims.owner)
        if self._is_reproduction:
            refused |= keys_in_review(self.database, keys)
        self.notes.update(refused)
        return [key for key in keys if key not in refused]

    def _claim_key(self, key: str) -> Claim | None:
        """Takes the key and cleans up after a predecessor. None: it cannot be taken, or there is nothing left to do."""
        try:
            CanonicalKey.parse(key)
            with self.database.transaction() as connection:
                kill_switch.refuse_if_killed(connection, self._dataset.dataset)
            claim = self.claims.take(key)
        except KfmError as error:
            self.notes[key] = str(error)
            return None
        with self._failures.guard(claim, "compute", "wal_replay"):
            if claim.epoch > 1:  # another run may have died with it
                record_lost_costs(self._services, self._dataset.dataset, key)
            intent = transactions.close_abandoned(self.database, claim)
            if intent is not None and release.finish(
                self._services, self._dataset, claim, intent, lambda: self._configs.for_key(key).governance
            ):
                self.notes[key] = "an interrupted publication was completed"
                self._outcomes.emit_applied(claim, intent.detail, txn=intent.txn)
                return None
            if claim.epoch > 1:
                clear_work(self._store, self._layout, key)
            return claim
        return None

    def _prepare_inputs(self, claim: Claim) -> inputs.PreparedInputs | inputs.SkippedKey:
        if self._is_reproduction:
            return reproduce.prepare_reproduction(self._services, claim, self._configs)
        config = self._configs.for_key(claim.key)
        source = source_of_key(self.database, claim.key)
        if source is not None:
            refuse_laxer_policy(self._services, config.dataset, source)
        return inputs.prepare(self._services, config.dataset, claim, config.governance.config_digest(claim.key))

    def _skip_if_reproduced(self, claim: Claim) -> bool:
        """Ends the transaction without publishing when readers still find the reproduced release."""
        staged = release.staged_release(self.database, claim)
        if not reproduce.is_still_published(self._services, self._dataset, staged):
            return False
        self.notes[claim.key] = reproduce.REPRODUCED
        self._failures.clear(claim)
        transactions.skip(self.database, claim, {"revision": staged.revision, "reason": reproduce.REPRODUCED})
        self._outcomes.emit_unpublished(claim, SKIPPED)
        return True

    def _await_review_if_required(self, claim: Claim) -> bool:
        """Frees the key until its release is reviewed, if it needs a review and has none."""
        staged = release.staged_release(self.database, claim)
        governance = self._configs.for_key(claim.key).governance
        if is_approved(governance.oversight, claim.key, staged.digest):
            return False
        for path in (self._layout.computed_table, self._layout.staged_data):  # what a reviewer sees
            self._store.keep(path(claim.key, claim.epoch))
        entry = audit_entry(Action.REVIEW_ASKED, self._dataset, claim, governance.policy, staged.digest, {})
        transactions.await_review(self.database, claim, staged.digest, entry)
        self.notes[claim.key] = "awaiting review"
        self._outcomes.emit_unpublished(claim, AWAITING)
        return True

    def _collect_verdicts(self, claim: Claim, verdicts: Iterable[Verdict], key_verdicts: list[KeyVerdict]) -> None:
        """Collects the verdicts; on a red one, quarantines the key's files and raises its refusal."""
        for verdict in verdicts:
            key_verdicts.append(KeyVerdict(claim.key, verdict))
            if not verdict.passed:
                write_validation_report(self._services, self._dataset, claim)
                quarantine_files(self._services, self._dataset, claim)
                raise refusal_of(claim.key, verdict)

    @contextmanager
    def _stage_scope(self) -> Iterator[None]:
        """Keeps leases alive during a stage and emits its costs and outcomes afterwards."""
        try:
            with self.claims.keep_alive():
                yield
        finally:
            self._stage_telemetry.end_stage()
            self._outcomes.end_stage()
            self._services.telemetry.flush()

    def _hand_back_if_red(self, key_verdicts: Sequence[KeyVerdict], stage: str) -> None:
        if all(one.verdict.passed for one in key_verdicts):
            return
        reason = "another key of the run is red"
        for claim in self.claims.held().values():
            with self._failures.guard(claim, stage):
                self._failures.hand_back(claim, delay=0, reason=reason, count_attempt=False)
                self.notes[claim.key] = f"handed back: {reason}"
