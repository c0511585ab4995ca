"""A batch: one run's work on many keys of one dataset, stage by stage, each key under its own transaction.

A key that fails, has nothing new, or is somebody else's drops out, and the others go on. Where a key stands is always
in the database, so every stage can run in a process of its own.
"""

import hashlib
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import AttemptsExhausted, GateRefused, KfmError, OwnershipLost, Retryable, Terminal
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.gates import GATES, Verdict, judge_schema
from kfm_pipelines.operations import inputs, release
from kfm_pipelines.operations.traces import trace_of
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.stages.compute import compute
from kfm_pipelines.stages.mask import mask
from kfm_pipelines.stages.parquet import declared_schema, read_parquet, write_parquet
from kfm_pipelines.stages.publish import clear_work
from kfm_pipelines.state import transactions
from kfm_pipelines.state.claims import Claim, Claims
from kfm_pipelines.state.ingest_state import Fetches, count_fetches
from kfm_pipelines.state.verdicts import record_verdict
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores import Layout

log = logging.getLogger(__name__)


class Handoff:
    """A key's table on its way from one stage to the next, as Parquet bytes, read when they are needed."""

    def __init__(self, claim: Claim, read: Callable[[], bytes]) -> None:
        self.claim = claim
        self._read = read

    @classmethod
    def of(cls, claim: Claim, data: bytes) -> "Handoff":
        return cls(claim, lambda: data)

    @cached_property
    def data(self) -> bytes:
        return self._read()

    @cached_property
    def content_hash(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


# One at a time, so that a large batch needs little memory. What becomes of one is thrown back into the generator.
HandoffStream = Generator[Handoff, None, None]


@dataclass(frozen=True, slots=True)
class Judgement:
    key: str
    verdict: Verdict


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

    def compute(self, keys: Sequence[str]) -> HandoffStream:
        """Claim each key, finish or undo what a predecessor left, fetch its objects and make them one table."""
        fetches = Fetches()
        with self.claims.kept_alive():
            for key in keys:
                claim = self._claimed(key)
                if claim is None:
                    continue
                with self._working(claim, "compute"):
                    prepared = inputs.prepare(self._workshop, self._dataset, claim)
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
                    table = read_parquet(handoff.data, handoff.claim.key)
                    masked, report = mask(table, self._policy, self._workshop.today())
                    result = Handoff.of(handoff.claim, write_parquet(masked))
                    yield result
                    detail = {**asdict(report), "content_hash": result.content_hash}
                    transactions.advance(self.database, handoff.claim, Step.MASK, detail)

    def validate(self, handoffs: Iterable[Handoff]) -> list[Judgement]:
        """Let every gate judge every key. With a red one among them the green ones are handed back, because the run
        will be stopped by its blocking check; they come again without the red one."""
        judgements: list[Judgement] = []
        with self.claims.kept_alive():
            for handoff in handoffs:
                with self._working(handoff.claim, "validate"):
                    verdict = self._judged(handoff)
                    judgements.append(Judgement(handoff.claim.key, verdict))
                    if not verdict.passed:
                        raise GateRefused(f"{handoff.claim.key}: {verdict.gate} gate: {verdict.reason}")
                    detail = {"gates": list(GATES), "content_hash": handoff.content_hash}
                    transactions.advance(self.database, handoff.claim, Step.VALIDATE, detail)
            if not all(judgement.verdict.passed for judgement in judgements):
                self._hand_back_all("another key of the run is red")
        return judgements

    def stage(self, keys: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Write each green key's revision, complete, to where no reader looks."""
        staged: dict[str, Mapping[str, Any]] = {}
        with self.claims.kept_alive():
            for claim in self.held(keys):
                with self._working(claim, "stage"):
                    candidate = release.stage_candidate(self._workshop, self._dataset, claim, self._policy)
                    transactions.advance(self.database, claim, Step.STAGE_ATOMIC, candidate.as_detail())
                    staged[claim.key] = candidate.as_detail()
        return staged

    def publish(self, keys: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Publish what is staged and green, key by key; then bring the collection up to date."""
        published: dict[str, Mapping[str, Any]] = {}
        with self.claims.kept_alive():
            for claim in self.held(keys):
                with self._working(claim, "publish"):
                    published[claim.key] = release.publish(self._workshop, self._dataset, claim).as_detail()
        return published

    def held(self, keys: Iterable[str]) -> list[Claim]:
        """The claims on those of the keys that are still in this run."""
        claims = self.claims.held()
        return [claims[key] for key in keys if key in claims]

    def _claimed(self, key: str) -> Claim | None:
        """The key, free of what a predecessor left; None when it is not ours to work on, or was only to be finished."""
        try:
            CanonicalKey.parse(key)
            claim = self.claims.take(key)
        except KfmError as error:
            self.notes[key] = str(error)
            return None
        with self._working(claim, "compute"):
            intent = transactions.close_abandoned(self.database, claim)
            if intent is not None and release.finish(self._workshop, self._dataset, claim, intent):
                self.notes[key] = "an interrupted publication was completed"
                return None
            clear_work(self._store, self._layout, key)
            return claim
        return None

    def _judged(self, handoff: Handoff) -> Verdict:
        table = read_parquet(handoff.data, handoff.claim.key)
        window = inputs.window_of_key(self.database, handoff.claim.key)
        verdict = judge_schema(self._dataset.table, table, declared_schema(self._dataset.table), window)
        record_verdict(
            self.database,
            handoff.claim,
            verdict.gate,
            handoff.content_hash,
            passed=verdict.passed,
            findings=[asdict(finding) for finding in verdict.findings],
        )
        return verdict

    @cached_property
    def _policy(self) -> Policy:
        return self._workshop.policy(self._dataset)

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
        except Terminal as error:
            self._fail(claim, stage, error)
        except Retryable as error:
            self._again(claim, stage, error)
        except Exception as error:
            log.exception("unexpected failure of %s in %s", claim.key, stage)
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

    def _hand_back_all(self, reason: str) -> None:
        for claim in self.claims.held().values():
            with self._working(claim, "validate"):
                self._clear(claim)
                transactions.hand_back(self.database, claim, delay=0, reason=reason, count_attempt=False)
                self.notes[claim.key] = f"handed back: {reason}"

    def _clear(self, claim: Claim) -> None:
        """Remove what this claim wrote, unless it has to be kept to finish a publication. Done before the key is let
        go: afterwards perhaps nobody looks at it again."""
        if not transactions.publish_intent(self.database, claim.key):
            for folder in self._layout.work_of(claim.key):
                self._store.remove(f"{folder}/{claim.epoch}")
