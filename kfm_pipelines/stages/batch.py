"""A batch: one run's work on many keys of one dataset, stage by stage, each key in its own transaction.

A key that fails, has nothing new, or belongs to another worker drops out; the others continue. All stages of a run are
in one process, which holds the tables between them; the state of each key is in the database.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from typing import Any

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.care.review.decide import is_approved
from kfm_pipelines.catalog.documents import sha256
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.energy.emit import metered_span, record_lost_costs
from kfm_pipelines.energy.meter import Meter
from kfm_pipelines.errors import DatasetKilled, KfmError
from kfm_pipelines.events import CanonicalKey, IngestEvent, member_of_key
from kfm_pipelines.gates import TABLE_GATES
from kfm_pipelines.inbox.record import archive_events
from kfm_pipelines.parquet.parquet import write_parquet, write_published
from kfm_pipelines.services import Services
from kfm_pipelines.stages import reproduce
from kfm_pipelines.stages.attachments import write_attachments
from kfm_pipelines.stages.compute import inputs
from kfm_pipelines.stages.compute.members import fetch_announced
from kfm_pipelines.stages.compute.same_rows import order_by_window, skip_same_rows
from kfm_pipelines.stages.compute.scene import OUTSIDE
from kfm_pipelines.stages.compute.shared_objects import KEPT_BYTES
from kfm_pipelines.stages.compute.split import Splitter
from kfm_pipelines.stages.config.changes import refuse_laxer_policy
from kfm_pipelines.stages.config.key_config import KeyConfig, KeyConfigs
from kfm_pipelines.stages.failure import FailureHandler
from kfm_pipelines.stages.mask import audit_entry, mask_computed, masking_audit_entry
from kfm_pipelines.stages.previews import DETAILED_KEYS, BatchPreviews, CarePreview
from kfm_pipelines.stages.publish import release
from kfm_pipelines.stages.publish.first_schema import first_schema_detail
from kfm_pipelines.stages.publish.promote import IntendedRelease
from kfm_pipelines.stages.reproduce import declaration_digest
from kfm_pipelines.stages.telemetry.outcomes import AWAITING, SKIPPED, OutcomeTelemetry
from kfm_pipelines.stages.telemetry.spans import StageTelemetry
from kfm_pipelines.stages.trigger import EVENT_TRIGGER, RunTrigger, is_reproduction, refused_keys
from kfm_pipelines.stages.validate.release_gates import judge_release
from kfm_pipelines.stages.validate.report import quarantine_files, record_refusal, validation_report
from kfm_pipelines.stages.validate.table_gates import KeyVerdict, judge_table, refusal_of
from kfm_pipelines.state import kill_switch, transactions, wal
from kfm_pipelines.state.audit import Action
from kfm_pipelines.state.keys import Claim, Claims, keys_in_review
from kfm_pipelines.state.revisions import FetchCounts, count_fetches, neighbour_rows
from kfm_pipelines.state.transactions import KeyFacts, StageResult, load_facts
from kfm_pipelines.state.verdicts import GateVerdict
from kfm_pipelines.state.wal import Step, Transition
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import clear_work

# Limits what one transaction publishes: others who need one of its keys wait for its swaps.
KEYS_PER_PUBLICATION = 50
BYTES_PER_PUBLICATION = 64 * 1024 * 1024


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
        results: list[StageResult] = []
        skipped: dict[Claim, inputs.SkippedKey] = {}
        left_out = Counter({OUTSIDE: 0})
        self._store.recheck_shared()
        with self._stage_scope():
            self._stage_telemetry.load_origins(keys)
            self._stage_telemetry.begin_traces(keys)
            claims = order_by_window(self._claim_keys(self._allowed_keys(keys)))
            known = {} if self._is_reproduction else self._begin(claims)
            splitter = Splitter()
            with self._fetcher(known) as fetcher:
                for claim in claims:
                    if claim.key not in known and not self._is_reproduction:
                        continue
                    with self._failures.guard(claim, "compute"):
                        with metered_span(self._services, "extract"):
                            prepared = self._prepare_inputs(claim, known.get(claim.key), fetcher)
                        fetches += prepared.fetches
                        if isinstance(prepared, inputs.SkippedKey):
                            skipped[claim] = prepared
                            continue
                        config = self._configs.for_key(claim.key)
                        with metered_span(self._services, "transform"):
                            member = member_of_key(config.dataset, claim.key)
                            computed = splitter.process(config.dataset, prepared.objects, config.load_area, member)
                        if splitter.has_read:
                            left_out.update(computed.left_out)
                        begun = known.get(claim.key)
                        nothing = inputs.skip_if_outside(computed, begun) or skip_same_rows(
                            self._services, config, claim, begun, prepared, computed.table
                        )
                        if nothing is not None:
                            skipped[claim] = nothing
                            continue
                        path = self._layout.computed_table(claim.key, claim.epoch)
                        self._store.write_table(path, computed.table, write_parquet)
                        locate = partial(self._layout.computed_file, claim.key, claim.epoch)
                        write_attachments(self._store, locate, computed.attachments)
                        detail = {**prepared.as_detail(), **config.as_detail(claim.key)}
                        if computed.left_out:
                            detail["left_out"] = dict(computed.left_out)
                        results.append(StageResult(Transition(claim, Step.COMPUTE, detail)))
                fetches += FetchCounts(misses=-fetcher.reused)
            self._advance("compute", results)
            self._skip(skipped)
        count_fetches(self.database, self._dataset.dataset, fetches)
        self._outcomes.emit_fetches(fetches)
        self._outcomes.emit_left_out(left_out)

    def mask(self, keys: Iterable[str]) -> None:
        """Applies the dataset's policy; from here on the bytes are those that will be published."""
        results: list[StageResult] = []
        with self._stage_scope():
            for claim in self._load_held_claims(keys):
                with self._failures.guard(claim, "mask"):
                    config = self._configs.for_key(claim.key)
                    dataset, rules = config.dataset, config.rules(claim.key)
                    outcome = mask_computed(self._services, config, claim)
                    declared, has_boxes = rules.published_table(dataset), dataset.processor == "vector"
                    data = write_published(outcome.table, declared, boxes=has_boxes)
                    self._store.write(self._layout.masked_table(claim.key, claim.epoch), data)
                    locate = partial(self._layout.masked_file, claim.key, claim.epoch)
                    write_attachments(self._store, locate, outcome.attachments)
                    content_hash = sha256(data)
                    detail = {
                        "policy": rules.policy.name,
                        "exemption": rules.exemption.id if rules.exemption else None,
                        "rows": outcome.table.num_rows,
                        "measures": dict(outcome.measures),
                        "content_hash": content_hash,
                    }
                    if outcome.attachments.files:
                        detail["files"] = {one.file_name: sha256(one.data) for one in outcome.attachments.files}
                    if outcome.findings:
                        detail["findings"] = [asdict(one) for one in outcome.findings]
                    audited = masking_audit_entry(dataset, claim, rules, content_hash, outcome)
                    results.append(StageResult(Transition(claim, Step.MASK, detail), audited))
            self._advance("mask", results)

    def validate(self, keys: Iterable[str]) -> list[KeyVerdict]:
        """Runs the table gates. If a key is red, the blocking check stops the run, so green keys are handed back."""
        key_verdicts: list[KeyVerdict] = []
        results: list[StageResult] = []
        with self._stage_scope():
            claims = self._load_held_claims(keys)
            facts, neighbours = self._load_facts(claims), self._neighbour_rows(claims)
            for claim in claims:
                with self._failures.guard(claim, "validate"):
                    config = self._configs.for_key(claim.key)
                    around = neighbours.get(claim.key, ())
                    judged = judge_table(self._services, config, claim, facts[claim.key], around)
                    key_verdicts += judged
                    self._refuse_if_red(claim, judged)
                    detail = {"gates": list(TABLE_GATES), "content_hash": judged[0].record.digest}
                    detail |= first_schema_detail(config)
                    records = [one.record for one in judged]
                    results.append(StageResult(Transition(claim, Step.VALIDATE, detail), verdicts=records))
            self._advance("validate", results)
            self._hand_back_if_red(key_verdicts, "validate")
        return key_verdicts

    def stage(self, keys: Iterable[str]) -> list[KeyVerdict]:
        """Stages each green key's complete release and runs the release gates on it."""
        key_verdicts: list[KeyVerdict] = []
        results: list[StageResult] = []
        reports: dict[str, tuple[str, bytes]] = {}
        with self._stage_scope():
            claims = self._load_held_claims(keys)
            facts = self._load_facts(claims)
            for claim in claims:
                with self._failures.guard(claim, "stage"):
                    config, known = self._configs.for_key(claim.key), facts[claim.key]
                    if self._is_reproduction:
                        reproduce.refuse_different_data(self.database, known)
                    with metered_span(self._services, "stac_write"):
                        staged = release.stage_candidate(
                            self._services, config.dataset, claim, config.governance, known
                        )
                    rules = config.rules(claim.key)
                    judged = judge_release(self._services, config.dataset, claim, rules, staged, known)
                    key_verdicts += judged
                    self._refuse_if_red(claim, judged, known.verdicts)
                    records = [one.record for one in judged]
                    verdicts = [*known.verdicts, *records]
                    reports[claim.key] = validation_report(self._services, config.dataset, claim, verdicts)
                    transition = Transition(claim, Step.STAGE_ATOMIC, staged.as_detail())
                    results.append(StageResult(transition, verdicts=records))
            with self._stage_telemetry.shared([one.transition.claim for one in results], "stage"):
                unwritten = self._store.write_all(dict(reports.values()))
            failures = {key: unwritten[path] for key, (path, _) in reports.items() if path in unwritten}
            self._fail("stage", claims, failures)
            self._advance("stage", [one for one in results if one.transition.claim.key not in failures])
            self._hand_back_if_red(key_verdicts, "stage")
        return key_verdicts

    def publish(self, keys: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Publishes what is staged and green; releases that need a review wait for it."""
        published: dict[str, Mapping[str, Any]] = {}
        all_keys = list(keys)
        with self._stage_scope():
            claims = self._load_held_claims(self._allowed_keys(all_keys))
            facts = self._load_facts(claims)
            intended: list[IntendedRelease] = []
            refused: dict[str, Exception] = {}
            with self._stage_telemetry.shared(claims, "publish"):
                for claim in claims:
                    try:
                        intended += self._authorise(claim, facts[claim.key])
                    except Exception as error:  # noqa: BLE001 - any error fails this key only
                        refused[claim.key] = error
            self._fail("publish", claims, refused)
            for chunk in _chunks(intended):
                begun = datetime.now(UTC)
                for one, failure in self._publish_chunk(chunk):
                    with self._failures.guard(one.claim, "publish", begun=begun):
                        if failure is not None:
                            raise failure
                        published[one.key] = one.release.as_detail()
                        self._outcomes.emit_applied(one.claim, published[one.key])
            for one in [one for one in intended if one.key in published][-DETAILED_KEYS:]:
                self.previews.hold_table(one.claim, one.release)
        self._store.forget_work(self._layout, all_keys)  # also of those that another worker has taken
        return published

    def _authorise(self, claim: Claim, facts: KeyFacts) -> list[IntendedRelease]:
        """Returns the release to publish, if there is one: it may be reproduced, or have to wait for its review."""
        if self._is_reproduction and self._skip_if_reproduced(claim, facts):
            return []
        if self._await_review_if_required(claim, facts):
            self.awaiting_review.add(claim.key)
            return []
        config = self._configs.for_key(claim.key)
        return [release.intend(self._services, config.dataset, claim, config.governance, facts)]

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

    def _claim_keys(self, keys: Sequence[str]) -> list[Claim]:
        """Takes the keys and cleans up after predecessors. Returns the claims on those that still have work to do."""
        valid = []
        for key in keys:
            try:
                CanonicalKey.parse(key)
                valid.append(key)
            except KfmError as error:
                self.notes[key] = str(error)
        try:
            with self.database.transaction() as connection:
                kill_switch.refuse_if_killed(connection, self._dataset.dataset)
        except DatasetKilled as error:
            self.notes |= dict.fromkeys(valid, str(error))
            return []
        begun, meter = datetime.now(UTC), Meter()
        claims, refused = self.claims.take_all(valid)
        self.notes |= {key: str(error) for key, error in refused.items()}
        again = [claim.key for claim in claims if claim.epoch > 1]
        with self.database.transaction() as connection:
            last = wal.last_entries(connection, again)
        left_open = {key for key, entry in last.items() if entry.outcome is None}
        if left_open:
            record_lost_costs(self._services, self._dataset.dataset, sorted(left_open))
        fresh = [claim for claim in claims if claim.key not in left_open]
        self._stage_telemetry.emit_claims(fresh, begun, meter.read())
        return [claim for claim in claims if claim.key not in left_open or self._recover(claim)]

    def _recover(self, claim: Claim) -> bool:
        """Ends what a predecessor left open, and returns whether there is still work to do."""
        key = claim.key
        with self._failures.guard(claim, "compute", "wal_replay"):
            intent = transactions.close_abandoned(self.database, claim)
            if intent is not None and release.finish(
                self._services, self._dataset, claim, intent, lambda: self._configs.for_key(key).governance
            ):
                self.notes[key] = "an interrupted publication was completed"
                self._outcomes.emit_applied(claim, intent.detail, txn=intent.txn)
                return False
            clear_work(self._store, self._layout, key)
            return True
        return False

    def _begin(self, claims: Sequence[Claim]) -> dict[str, inputs.KnownInputs]:
        """Begins the transactions of the keys and archives their events, before work starts."""
        known: dict[str, inputs.KnownInputs] = {}

        def begin(group: Sequence[Claim]) -> None:
            known.update(inputs.begin(self._services, group))

        self._together("compute", claims, begin)
        with self._stage_telemetry.shared(claims, "compute"):
            failures = archive_events(self._services, list(known))
        self._fail("compute", claims, failures)
        return {key: one for key, one in known.items() if key not in failures}

    def _fail(self, stage: str, claims: Iterable[Claim], failures: Mapping[str, Exception]) -> None:
        for claim in claims:
            if claim.key in failures:
                with self._failures.guard(claim, stage):
                    raise failures[claim.key]

    def _together(self, stage: str, claims: Sequence[Claim], write: Callable[[Sequence[Claim]], None]) -> set[str]:
        """Writes something for all claims at once, or one by one if one of them is refused. Returns the keys for which
        it was written."""
        if not claims:
            return set()
        with self._stage_telemetry.shared(claims, stage), suppress(Exception):  # perhaps of one of them only
            write(claims)
            return {claim.key for claim in claims}
        written = set()
        for claim in claims:
            with self._failures.guard(claim, stage):
                write([claim])
                written.add(claim.key)
        return written

    def _advance(self, stage: str, results: Sequence[StageResult]) -> set[str]:
        """Logs what a stage has done to its keys, and returns the keys of which the log has it."""
        by_claim = {one.transition.claim: one for one in results}

        def advance(claims: Sequence[Claim]) -> None:
            transactions.advance(self.database, self._dataset.dataset, [by_claim[claim] for claim in claims])

        return self._together(stage, list(by_claim), advance)

    def _skip(self, skipped: Mapping[Claim, inputs.SkippedKey]) -> None:
        def skip(claims: Sequence[Claim]) -> None:
            transactions.skip(self.database, {claim: skipped[claim].detail for claim in claims})

        written = self._together("compute", list(skipped), skip)
        for claim, one in skipped.items():
            if claim.key in written:
                self.notes[claim.key] = one.note
                self._outcomes.emit_unpublished(claim, SKIPPED)

    def _publish_chunk(self, releases: Sequence[IntendedRelease]) -> list[tuple[IntendedRelease, Exception | None]]:
        """Logs the intents and carries them out. Returns the releases with a logged intent, and what prevented each."""
        try:
            # Checked again under the lock; here it only avoids writing intents that must not be carried out.
            with self.database.transaction() as connection:
                kill_switch.refuse_if_killed(connection, self._dataset.dataset)
        except KfmError as error:
            return [(one, error) for one in releases]
        intents = [StageResult(Transition(one.claim, Step.PUBLISH, one.release.as_detail())) for one in releases]
        logged = self._advance("publish", intents)
        ready = [one for one in releases if one.key in logged]
        with self._stage_telemetry.shared([one.claim for one in ready], "publish"):
            failures = release.complete(self._services, self._dataset, ready) if ready else {}
        return [(one, failures.get(one.key)) for one in ready]

    def _load_facts(self, claims: Sequence[Claim]) -> dict[str, KeyFacts]:
        return load_facts(self.database, {claim.key: claim.epoch for claim in claims})

    def _neighbour_rows(self, claims: Sequence[Claim]) -> dict[str, tuple[int, ...]]:
        """Returns the rows of neighbouring windows, which are comparable only if nothing masks."""
        around = self._dataset.quality.rows.neighbours
        if around is None or not claims or not policy_of(self._services, self._dataset).is_open:
            return {}
        return neighbour_rows(self.database, [claim.key for claim in claims], around.windows)

    def _fetcher(self, known: Mapping[str, inputs.KnownInputs]) -> inputs.Fetcher:
        dataset, load_area = self._dataset, KeyConfig(self._services, self._dataset).load_area
        derives = dataset.scene is not None and dataset.scene.derive is not None
        return inputs.Fetcher(
            partial(fetch_announced, dataset=dataset, load_area=load_area, store=self._store),
            self._expected_events(known),
            assumed_bytes=dataset.input.max_bytes if derives else 0,
            keep_bytes=KEPT_BYTES if dataset.key.split_by else 0,
        )

    def _expected_events(self, known: Mapping[str, inputs.KnownInputs]) -> Iterator[IngestEvent]:
        """Yields the events whose objects will probably have to be fetched."""
        for key, one in known.items():
            try:
                config = self._configs.for_key(key).governance.config_digest(key)
            except KfmError:  # reported when the key is computed
                return
            if one.may_need_fetching(config):
                yield from one.events

    def _prepare_inputs(
        self, claim: Claim, known: inputs.KnownInputs | None, fetcher: inputs.Fetcher
    ) -> inputs.PreparedInputs | inputs.SkippedKey:
        if known is None:
            return reproduce.prepare_reproduction(self._services, claim, self._configs, fetcher)
        config = self._configs.for_key(claim.key)
        if known.facts.source is not None:
            refuse_laxer_policy(self._services, config.dataset, known.facts.source)
        digest = config.governance.config_digest(claim.key)
        return inputs.prepare(self._services, config.dataset, claim, known, digest, fetcher)

    def _skip_if_reproduced(self, claim: Claim, facts: KeyFacts) -> bool:
        """Ends the transaction without publishing when readers still find the reproduced release."""
        staged = release.staged_release(facts)
        if not reproduce.is_still_published(self._services, self._dataset, staged):
            return False
        self.notes[claim.key] = reproduce.REPRODUCED
        self._failures.clear(claim)
        transactions.skip(self.database, {claim: {"revision": staged.revision, "reason": reproduce.REPRODUCED}})
        self._outcomes.emit_unpublished(claim, SKIPPED)
        return True

    def _await_review_if_required(self, claim: Claim, facts: KeyFacts) -> bool:
        """Frees the key until its release is reviewed, if it needs a review and has none."""
        staged = release.staged_release(facts)
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

    def _refuse_if_red(self, claim: Claim, judged: Sequence[KeyVerdict], earlier: Sequence[GateVerdict] = ()) -> None:
        """On a red verdict, records the verdicts, quarantines the key's files and raises the refusal."""
        for one in judged:
            if not one.verdict.passed:
                records = [each.record for each in judged]
                record_refusal(self._services, self._dataset, claim, records, earlier=earlier)
                quarantine_files(self._services, self._dataset, claim)
                raise refusal_of(claim.key, one.verdict)

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


def _chunks(releases: Iterable[IntendedRelease]) -> Iterator[list[IntendedRelease]]:
    """Yields releases to publish in one transaction: many small ones, so that their requests go out together, and few
    large ones, so that none holds up the others."""
    chunk: list[IntendedRelease] = []
    size = 0
    for one in releases:
        if chunk and (len(chunk) == KEYS_PER_PUBLICATION or size + one.release.bytes > BYTES_PER_PUBLICATION):
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += one.release.bytes
    if chunk:
        yield chunk
