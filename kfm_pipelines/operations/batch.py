"""A batch: one run's work on many keys of one dataset, stage by stage, each key under its own transaction.

A key that fails, has nothing new, or is somebody else's drops out, and the others go on. Where a key stands is always
in the database, so every stage can run in a process of its own.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.declarations import Table
from kfm_pipelines.errors import AttemptsExhausted, DatasetKilled, KfmError, OwnershipLost, Retryable, Terminal
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.gates import TABLE_GATES, ApprovedSchema, Verdict
from kfm_pipelines.operations import inputs, release
from kfm_pipelines.operations.care_audit import asking_entry, masking_entry
from kfm_pipelines.operations.care_shown import CareShown, care_shown
from kfm_pipelines.operations.governance import Governance, Rules, governance_of
from kfm_pipelines.operations.handoff import Handoff, HandoffStream, Judgement
from kfm_pipelines.operations.judging import judge_before_masking, judge_table, refusal_of
from kfm_pipelines.operations.published_maps import published_maps
from kfm_pipelines.operations.red_bytes import keep_red
from kfm_pipelines.operations.release_gates import judge_release
from kfm_pipelines.operations.reviewing import is_approved
from kfm_pipelines.operations.schema_approval import approved_schema
from kfm_pipelines.operations.traces import trace_of
from kfm_pipelines.operations.validation_report import write_validation_report
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.stages.compute import compute
from kfm_pipelines.stages.mask import Outcome, mask
from kfm_pipelines.stages.parquet import read_parquet, write_parquet, write_published
from kfm_pipelines.stages.publish import clear_work
from kfm_pipelines.state import kills, transactions
from kfm_pipelines.state.claims import Claim, Claims
from kfm_pipelines.state.ingest_state import Fetches, count_fetches
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores import Layout

log = logging.getLogger(__name__)


class Batch:
    """The keys of one run, which is the owner of their claims."""

    def __init__(self, workshop: Workshop, dataset: Dataset, run_id: str) -> None:
        self._workshop = workshop
        self.database = workshop.database
        self._store = workshop.store
        self._dataset = dataset
        self._layout = Layout(dataset.pipeline)
        self.claims = Claims(workshop.database, run_id, workshop.settings.lease_seconds)
        self.notes: dict[str, str] = {}  # why a key dropped out in this stage
        self.waiting: set[str] = set()  # keys whose release somebody has to see first

    def compute(self, keys: Sequence[str]) -> HandoffStream:
        """Claim each key, finish or undo what a predecessor left, fetch its objects and make them one table."""
        fetches = Fetches()
        with self.claims.kept_alive():
            for key in keys:
                claim = self._claimed(key)
                if claim is None:
                    continue
                with self._working(claim, "compute"):
                    config = self._governance.config_digest(key)
                    prepared = inputs.prepare(self._workshop, self._dataset, claim, config)
                    fetches += prepared.fetches
                    if isinstance(prepared, inputs.Settled):
                        self.notes[key] = prepared.note
                        continue
                    yield Handoff.of(claim, write_parquet(compute(self._dataset, prepared.objects)))
                    transactions.advance(self.database, claim, Step.COMPUTE, prepared.as_detail())
        log.info("%s: %d objects unchanged, %d fetched", self._dataset.dataset, fetches.hits, fetches.misses)
        count_fetches(self.database, self._dataset.dataset, fetches)

    def mask(self, handoffs: Iterable[Handoff]) -> HandoffStream:
        """Apply the dataset's policy; from here on the bytes are the ones that will be published."""
        with self.claims.kept_alive():
            for handoff in handoffs:
                with self._working(handoff.claim, "mask"):
                    rules = self._governance.of(handoff.claim.key)
                    outcome = self._masked(handoff, rules)
                    data = write_published(outcome.table, rules.published(self._dataset))
                    result = Handoff.of(handoff.claim, data)
                    yield result
                    detail = {
                        "policy": rules.policy.name,
                        "exemption": rules.exemption.id if rules.exemption else None,
                        "rows": outcome.table.num_rows,
                        "measures": dict(outcome.measures),
                        "content_hash": result.content_hash,
                    }
                    audited = masking_entry(self._dataset, handoff.claim, rules, result.content_hash, outcome)
                    transactions.advance(self.database, handoff.claim, Step.MASK, detail, audited=audited)

    def validate(self, handoffs: Iterable[Handoff]) -> list[Judgement]:
        """Let every gate judge every key's table. With a red one among them the green ones are handed back, because
        the run will be stopped by its blocking check; they come again without the red one."""
        judgements: list[Judgement] = []
        with self.claims.kept_alive():
            for handoff in handoffs:
                with self._working(handoff.claim, "validate"):
                    rules = self._governance.of(handoff.claim.key)
                    verdicts = judge_table(self._workshop, self._dataset, rules, self._approved, handoff)
                    self._heed(handoff.claim, verdicts, judgements)
                    detail = {"gates": list(TABLE_GATES), "content_hash": handoff.content_hash}
                    transactions.advance(self.database, handoff.claim, Step.VALIDATE, detail)
            self._hand_back_if_red(judgements, "validate")
        return judgements

    def stage(self, keys: Iterable[str]) -> list[Judgement]:
        """Write each green key's revision, complete, to where no reader looks, and let the release gates judge it."""
        judgements: list[Judgement] = []
        with self.claims.kept_alive():
            for claim in self.held(keys):
                with self._working(claim, "stage"):
                    staged = release.stage_candidate(self._workshop, self._dataset, claim, self._governance)
                    transactions.advance(self.database, claim, Step.STAGE_ATOMIC, staged.as_detail())
                    rules = self._governance.of(claim.key)
                    verdicts = judge_release(self._workshop, self._dataset, claim, rules, staged)
                    self._heed(claim, verdicts, judgements)
                    write_validation_report(self._workshop, self._dataset, claim)
            self._hand_back_if_red(judgements, "stage")
        return judgements

    def publish(self, keys: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Publish what is staged and green, key by key; what somebody has to see first waits for that."""
        published: dict[str, Mapping[str, Any]] = {}
        with self.claims.kept_alive():
            for claim in self.held(keys):
                with self._working(claim, "publish"):
                    if self._waits(claim):
                        self.waiting.add(claim.key)
                        continue
                    done = release.publish(self._workshop, self._dataset, claim, self._governance)
                    published[claim.key] = done.as_detail()
        return published

    def care_shown(self, keys: Iterable[str]) -> dict[str, CareShown]:
        """What may be shown of the masking of staged keys; nothing where nothing is masked, or where it cannot be
        drawn: a picture is no reason to stop."""
        shown: dict[str, CareShown] = {}
        with self.claims.kept_alive():
            for claim in self.held(keys):
                try:
                    rules = self._governance.of(claim.key)
                    if rules.masks:
                        shown[claim.key] = care_shown(self._workshop, self._dataset, claim, rules)
                except Exception as error:  # noqa: BLE001 - what it is may quote the data
                    log.warning("no picture of %s: %s\n%s", claim.key, type(error).__name__, trace_of(error))
        return shown

    def published_maps(self, releases: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
        """None of what an exemption lets out: that can be withdrawn, a picture in the log of a run cannot."""
        lasting = {key: one for key, one in releases.items() if self._governance.of(key).came_to != "exempted"}
        return published_maps(self._workshop, self._dataset, lasting)

    def published_table(self, key: str) -> Table:
        return self._governance.of(key).published(self._dataset)

    @property
    def store_url(self) -> str:
        return self._store.url

    def held(self, keys: Iterable[str]) -> list[Claim]:
        """The claims on those of the keys that are still in this run."""
        claims = self.claims.held()
        return [claims[key] for key in keys if key in claims]

    def _claimed(self, key: str) -> Claim | None:
        """The key, free of what a predecessor left; None when it is not ours to work on, or was only to be finished."""
        try:
            CanonicalKey.parse(key)
            with self.database.transaction() as connection:
                kills.refuse_if_killed(connection, self._dataset.dataset)
            claim = self.claims.take(key)
        except KfmError as error:
            self.notes[key] = str(error)
            return None
        with self._working(claim, "compute"):
            intent = transactions.close_abandoned(self.database, claim)
            if intent is not None and release.finish(
                self._workshop, self._dataset, claim, intent, lambda: self._governance
            ):
                self.notes[key] = "an interrupted publication was completed"
                return None
            clear_work(self._store, self._layout, key)
            return claim
        return None

    def _masked(self, handoff: Handoff, rules: Rules) -> Outcome:
        table = read_parquet(handoff.data, handoff.claim.key)
        if not rules.masks:
            return Outcome(table)
        judge_before_masking(self._workshop, self._dataset, handoff, table)
        outcome = mask(table, self._dataset, rules.policy, rules.secret)
        if outcome.crosswalk is not None:
            path = self._layout.crosswalk(handoff.claim.key, handoff.claim.epoch)
            self._store.write(path, write_parquet(outcome.crosswalk))
        return outcome

    def _waits(self, claim: Claim) -> bool:
        """Whether the staged release has to be seen by somebody first; then the key is let go until it has been."""
        staged = release.staged_release(self.database, claim)
        if is_approved(self._governance.oversight, claim.key, staged.digest):
            return False
        entry = asking_entry(self._dataset, claim, self._governance.policy, staged.digest)
        transactions.await_review(self.database, claim, staged.digest, entry)
        self.notes[claim.key] = "awaiting review"
        return True

    def _heed(self, claim: Claim, verdicts: Iterable[Verdict], judgements: list[Judgement]) -> None:
        """Keep what the gates say. What a red one refused is set aside for a while, for people to look at."""
        for verdict in verdicts:
            judgements.append(Judgement(claim.key, verdict))
            if not verdict.passed:
                write_validation_report(self._workshop, self._dataset, claim)
                keep_red(self._workshop, self._dataset, claim)
                raise refusal_of(claim.key, verdict)

    @cached_property
    def _approved(self) -> ApprovedSchema:
        return approved_schema(self._workshop, self._dataset)

    @cached_property
    def _governance(self) -> Governance:
        """Read when a stage first needs it, so that what is amiss with it is each key's failure."""
        return governance_of(self._workshop, self._dataset)

    @contextmanager
    def _working(self, claim: Claim, stage: str) -> Iterator[None]:
        """Work on one key; whatever goes wrong is that key's alone. That the key was lost may show only when its
        failure is written."""
        try:
            with self._answering(claim, stage):
                yield
        except OwnershipLost as error:
            self.notes[claim.key] = str(error)
            self._clear(claim)

    @contextmanager
    def _answering(self, claim: Claim, stage: str) -> Iterator[None]:
        """What a failure does to its key depends on its class."""
        try:
            yield
        except OwnershipLost:
            raise
        except DatasetKilled as error:
            self.notes[claim.key] = str(error)
            self._clear(claim)
            transactions.hand_back(self.database, claim, delay=0, reason=str(error), count_attempt=False)
        except Terminal as error:
            self._fail(claim, stage, error)
        except Retryable as error:
            self._again(claim, stage, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is that key's failure
            # Where it came from, not what it says: an exception may quote the data it was about.
            log.error("unexpected failure of %s in %s: %s\n%s", claim.key, stage, type(error).__name__, trace_of(error))
            unnamed = Retryable(f"{claim.key}: {type(error).__name__} in {stage}")
            self._again(claim, stage, unnamed.with_traceback(error.__traceback__))

    def _again(self, claim: Claim, stage: str, error: Retryable) -> None:
        if self._workshop.retries.exhausted(claim.attempts):
            exhausted = AttemptsExhausted(f"{claim.attempts} attempts, the last one: {error}")
            self._fail(claim, stage, exhausted.with_traceback(error.__traceback__))
            return
        delay = self._workshop.retries.delay(claim.attempts, self._workshop.random)
        self.notes[claim.key] = f"comes again in {delay:.0f} s: {error}"
        self._clear(claim)
        transactions.hand_back(self.database, claim, delay=delay, reason=str(error))

    def _fail(self, claim: Claim, stage: str, error: KfmError) -> None:
        self.notes[claim.key] = str(error)
        self._clear(claim)
        again_in = self._workshop.retries.cap_seconds
        transactions.fail(self.database, claim, stage, error, again_in=again_in, trace=trace_of(error))

    def _hand_back_if_red(self, judgements: Sequence[Judgement], stage: str) -> None:
        if all(judgement.verdict.passed for judgement in judgements):
            return
        reason = "another key of the run is red"
        for claim in self.claims.held().values():
            with self._working(claim, stage):
                self._clear(claim)
                transactions.hand_back(self.database, claim, delay=0, reason=reason, count_attempt=False)
                self.notes[claim.key] = f"handed back: {reason}"

    def _clear(self, claim: Claim) -> None:
        """Remove what this claim wrote, unless it has to be kept to finish a publication. Done before the key is let
        go: afterwards perhaps nobody looks at it again."""
        if not transactions.publish_intent(self.database, claim.key):
            for folder in self._layout.work_of(claim.key):
                self._store.remove(f"{folder}/{claim.epoch}")
