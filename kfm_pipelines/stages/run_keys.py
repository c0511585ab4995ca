"""The keys of one run: their claims, what is logged of them together, and what happens to one that fails."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services
from kfm_pipelines.stages.config.key_config import KeyConfigs
from kfm_pipelines.stages.failure import FailureHandler
from kfm_pipelines.stages.reproduce import declaration_digest
from kfm_pipelines.stages.telemetry.outcomes import OutcomeTelemetry
from kfm_pipelines.stages.telemetry.spans import StageTelemetry
from kfm_pipelines.stages.trigger import RunTrigger, is_reproduction, refused_keys
from kfm_pipelines.stages.validate.report import quarantine_files, record_refusal
from kfm_pipelines.stages.validate.table_gates import KeyVerdict, refusal_of
from kfm_pipelines.state import transactions
from kfm_pipelines.state.keys import Claim, Claims, keys_in_review
from kfm_pipelines.state.transactions import KeyFacts, StageResult, load_facts
from kfm_pipelines.state.verdicts import GateVerdict
from kfm_pipelines.stores import Layout


class RunKeys:
    """What the stages of a run share. The run owns the claims on its keys."""

    def __init__(self, services: Services, dataset: Dataset, run_id: str, trigger: RunTrigger) -> None:
        self.services = services
        self.database = services.database
        self.store = services.store
        self.dataset = dataset
        self.layout = Layout(dataset.pipeline)
        self.trigger = trigger
        self.is_reproduction = is_reproduction(services.database, dataset.dataset, trigger)
        declaration = cache(partial(declaration_digest, services.database)) if self.is_reproduction else None
        self.configs = KeyConfigs(services, dataset, declaration)
        self.claims = Claims(
            services.database,
            run_id,
            services.settings.lease_seconds,
            trigger.replay,
            dataset=dataset.dataset,
            skip_in_review=self.is_reproduction,
        )
        self.telemetry = StageTelemetry(services, dataset, run_id, trigger, held_keys=self.claims.held)
        self.outcomes = OutcomeTelemetry(services, dataset, run_id, trigger.replay, self.telemetry)
        self.failures = FailureHandler(services, self.layout, self.telemetry, self.outcomes)
        self.notes = self.failures.notes  # why a key dropped out in this stage

    @contextmanager
    def stage_scope(self) -> Iterator[None]:
        """Keeps leases alive during a stage and emits its costs and outcomes afterwards."""
        try:
            with self.claims.keep_alive():
                yield
        finally:
            self.telemetry.end_stage()
            self.outcomes.end_stage()
            self.services.telemetry.flush()

    def allowed_keys(self, keys: Sequence[str]) -> list[str]:
        """Returns the keys that this run may touch, and notes why the others are refused."""
        refused = refused_keys(self.database, self.dataset.dataset, self.trigger, keys, self.claims.owner)
        if self.is_reproduction:
            refused |= keys_in_review(self.database, keys)
        self.notes.update(refused)
        return [key for key in keys if key not in refused]

    def held_claims(self, keys: Iterable[str]) -> list[Claim]:
        """Returns the claims on the keys that are still in this run."""
        claims = self.claims.held()
        return [claims[key] for key in keys if key in claims]

    def load_held_claims(self, keys: Iterable[str]) -> list[Claim]:
        claims = self.held_claims(keys)
        self.telemetry.load_origins([claim.key for claim in claims])
        return claims

    def load_facts(self, claims: Sequence[Claim]) -> dict[str, KeyFacts]:
        return load_facts(self.database, {claim.key: claim.epoch for claim in claims})

    def write_together(self, stage: str, claims: Sequence[Claim], write: Callable[[Sequence[Claim]], None]) -> set[str]:
        """Writes something for all claims at once, or one by one if one of them is refused. Returns the keys for which
        it was written."""
        if not claims:
            return set()
        with self.telemetry.shared(claims, stage), suppress(Exception):  # perhaps of one of them only
            write(claims)
            return {claim.key for claim in claims}
        written = set()
        for claim in claims:
            with self.failures.guard(claim, stage):
                write([claim])
                written.add(claim.key)
        return written

    def advance(self, stage: str, results: Sequence[StageResult]) -> set[str]:
        """Logs what a stage has done to its keys, and returns the keys of which the log has it."""
        by_claim = {one.transition.claim: one for one in results}

        def advance(claims: Sequence[Claim]) -> None:
            transactions.advance(self.database, self.dataset.dataset, [by_claim[claim] for claim in claims])

        return self.write_together(stage, list(by_claim), advance)

    def fail(self, stage: str, claims: Iterable[Claim], failures: Mapping[str, Exception]) -> None:
        for claim in claims:
            if claim.key in failures:
                with self.failures.guard(claim, stage):
                    raise failures[claim.key]

    def refuse_if_red(self, claim: Claim, judged: Sequence[KeyVerdict], earlier: Sequence[GateVerdict] = ()) -> None:
        """On a red verdict, records the verdicts, quarantines the key's files and raises the refusal."""
        for one in judged:
            if not one.verdict.passed:
                records = [each.record for each in judged]
                record_refusal(self.services, self.dataset, claim, records, earlier=earlier)
                quarantine_files(self.services, self.dataset, claim)
                raise refusal_of(claim.key, one.verdict)

    def hand_back_if_red(self, key_verdicts: Sequence[KeyVerdict], stage: str) -> None:
        if all(one.verdict.passed for one in key_verdicts):
            return
        reason = "another key of the run is red"
        for claim in self.claims.held().values():
            with self.failures.guard(claim, stage):
                self.failures.hand_back(claim, delay=0, reason=reason, count_attempt=False)
                self.notes[claim.key] = f"handed back: {reason}"
