"""A batch: one run's work on many keys of one dataset, stage by stage, each key in its own transaction.

A key that fails, has nothing new, or belongs to another worker drops out; the others continue. All stages of a run are
in one process, which holds the tables between them; the state of each key is in the database.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from kfm_pipelines.care.governance import policy_of
from kfm_pipelines.catalog.documents import sha256
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.energy.emit import metered_span
from kfm_pipelines.gates import TABLE_GATES
from kfm_pipelines.parquet.parquet import write_published
from kfm_pipelines.services import Services
from kfm_pipelines.stages import reproduce
from kfm_pipelines.stages.compute_stage import ComputeStage
from kfm_pipelines.stages.mask import mask_computed, masking_audit_entry
from kfm_pipelines.stages.previews import BatchPreviews, CarePreview
from kfm_pipelines.stages.publish import release
from kfm_pipelines.stages.publish.promote import first_schema_detail
from kfm_pipelines.stages.publish_stage import PublishStage
from kfm_pipelines.stages.run_keys import RunKeys
from kfm_pipelines.stages.trigger import EVENT_TRIGGER, RunTrigger
from kfm_pipelines.stages.validate.release_gates import judge_release
from kfm_pipelines.stages.validate.report import validation_report
from kfm_pipelines.stages.validate.table_gates import KeyVerdict, judge_table
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.revisions import neighbour_rows
from kfm_pipelines.state.transactions import StageResult
from kfm_pipelines.state.wal import Step, Transition
from kfm_pipelines.stores.work import write_attachments


class Batch:
    """The stages of one run. Its keys and their claims are in `RunKeys`."""

    def __init__(self, services: Services, dataset: Dataset, run_id: str, trigger: RunTrigger = EVENT_TRIGGER) -> None:
        self._run = RunKeys(services, dataset, run_id, trigger)
        self.database = services.database
        self.claims = self._run.claims
        self.held_claims = self._run.held_claims
        self.notes = self._run.notes
        self.previews = BatchPreviews(services, dataset, self._run.configs)
        self._publish_stage = PublishStage(self._run, self.previews)
        self.awaiting_review = self._publish_stage.awaiting_review

    def compute(self, keys: Sequence[str]) -> None:
        """Claims each key, finishes or undoes what a predecessor left, and computes a table from its objects."""
        ComputeStage(self._run).compute(keys)

    def mask(self, keys: Iterable[str]) -> None:
        """Applies the dataset's policy; from here on the bytes are those that will be published."""
        results: list[StageResult] = []
        with self._run.stage_scope():
            for claim in self._run.load_held_claims(keys):
                with self._run.failures.guard(claim, "mask"):
                    config = self._run.configs.for_key(claim.key)
                    dataset, rules = config.dataset, config.rules(claim.key)
                    outcome = mask_computed(self._run.services, config, claim)
                    declared, has_boxes = rules.published_table(dataset), dataset.processor == "vector"
                    data = write_published(outcome.table, declared, boxes=has_boxes)
                    self._run.store.write(self._run.layout.masked_table(claim.key, claim.epoch), data)
                    locate = partial(self._run.layout.masked_file, claim.key, claim.epoch)
                    write_attachments(self._run.store, locate, outcome.attachments)
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
            self._run.advance("mask", results)

    def validate(self, keys: Iterable[str]) -> list[KeyVerdict]:
        """Runs the table gates. If a key is red, the blocking check stops the run, so green keys are handed back."""
        key_verdicts: list[KeyVerdict] = []
        results: list[StageResult] = []
        with self._run.stage_scope():
            claims = self._run.load_held_claims(keys)
            facts, neighbours = self._run.load_facts(claims), self._neighbour_rows(claims)
            for claim in claims:
                with self._run.failures.guard(claim, "validate"):
                    config = self._run.configs.for_key(claim.key)
                    around = neighbours.get(claim.key, ())
                    judged = judge_table(self._run.services, config, claim, facts[claim.key], around)
                    key_verdicts += judged
                    self._run.refuse_if_red(claim, judged)
                    detail = {"gates": list(TABLE_GATES), "content_hash": judged[0].record.digest}
                    detail |= first_schema_detail(config)
                    records = [one.record for one in judged]
                    results.append(StageResult(Transition(claim, Step.VALIDATE, detail), verdicts=records))
            self._run.advance("validate", results)
            self._run.hand_back_if_red(key_verdicts, "validate")
        return key_verdicts

    def stage(self, keys: Iterable[str]) -> list[KeyVerdict]:
        """Stages each green key's complete release and runs the release gates on it."""
        key_verdicts: list[KeyVerdict] = []
        results: list[StageResult] = []
        reports: dict[str, tuple[str, bytes]] = {}
        with self._run.stage_scope():
            claims = self._run.load_held_claims(keys)
            facts = self._run.load_facts(claims)
            for claim in claims:
                with self._run.failures.guard(claim, "stage"):
                    config, known = self._run.configs.for_key(claim.key), facts[claim.key]
                    if self._run.is_reproduction:
                        reproduce.refuse_different_data(self._run.database, known)
                    with metered_span(self._run.services, "stac_write"):
                        staged = release.stage_candidate(
                            self._run.services, config.dataset, claim, config.governance, known
                        )
                    rules = config.rules(claim.key)
                    judged = judge_release(self._run.services, config.dataset, claim, rules, staged, known)
                    key_verdicts += judged
                    self._run.refuse_if_red(claim, judged, known.verdicts)
                    records = [one.record for one in judged]
                    verdicts = [*known.verdicts, *records]
                    reports[claim.key] = validation_report(self._run.services, config.dataset, claim, verdicts)
                    transition = Transition(claim, Step.STAGE_ATOMIC, staged.as_detail())
                    results.append(StageResult(transition, verdicts=records))
            with self._run.telemetry.shared([one.transition.claim for one in results], "stage"):
                unwritten = self._run.store.write_all(dict(reports.values()))
            failures = {key: unwritten[path] for key, (path, _) in reports.items() if path in unwritten}
            self._run.fail("stage", claims, failures)
            self._run.advance("stage", [one for one in results if one.transition.claim.key not in failures])
            self._run.hand_back_if_red(key_verdicts, "stage")
        return key_verdicts

    def publish(self, keys: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Publishes what is staged and green; releases that need a review wait for it."""
        return self._publish_stage.publish(keys)

    def care_previews(self, keys: Iterable[str]) -> dict[str, CarePreview]:
        with self._run.stage_scope():
            return self.previews.care(self._run.held_claims(keys))

    def trace_of(self, key: str) -> str:
        return self._run.telemetry.trace_of(key).trace_hex

    def _neighbour_rows(self, claims: Sequence[Claim]) -> dict[str, tuple[int, ...]]:
        """Returns the rows of neighbouring windows, which are comparable only if nothing masks."""
        around = self._run.dataset.quality.rows.neighbours
        if around is None or not claims or not policy_of(self._run.services, self._run.dataset).is_open:
            return {}
        return neighbour_rows(self._run.database, [claim.key for claim in claims], around.windows)
