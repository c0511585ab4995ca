"""Metrics, records and logs for the outcome of each key: published, skipped, failed or awaiting review."""

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.energy.estimate import Energy
from kfm_pipelines.energy.ledger import key_totals_of_run, total_energy
from kfm_pipelines.errors import AttemptsExhausted, CareRefused, KfmError, PolicyRefused
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.services import Services
from kfm_pipelines.stages.telemetry.spans import StageTelemetry
from kfm_pipelines.stages.telemetry.tables import Origin, SettledEvents, rows_before, settled_events
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.revisions import FetchCounts
from kfm_pipelines.state.verdicts import passed_gates
from kfm_pipelines.telemetry.process import best_effort

APPLIED, SKIPPED, FAILED, AWAITING = "APPLIED", "SKIPPED", "FAILED", "AWAITING"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _KeyOutcome:
    """An outcome to emit when the stage has ended."""

    claim: Claim
    outcome: str
    at: datetime
    txn: int
    release: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass
class OutcomeTelemetry:
    services: Services
    dataset: Dataset
    run_id: str
    replay: str | None
    stage_telemetry: StageTelemetry
    _pending: list[_KeyOutcome] = field(default_factory=list)

    def emit_applied(self, claim: Claim, release: Mapping[str, Any], txn: int | None = None) -> None:
        """`txn` is set when the claim completed an earlier transaction."""
        with self._best_effort():
            now = datetime.now(UTC)
            self._add_outcome(_KeyOutcome(claim, APPLIED, now, claim.epoch if txn is None else txn, release))
            metrics, dataset = self.services.telemetry.metrics, self.dataset.dataset
            metrics.set("published_timestamp_seconds", now.timestamp(), dataset=dataset)
            fresh = _freshness(self.stage_telemetry.origin(claim.key), now)
            if fresh is not None:
                metrics.set("freshness_min", fresh, dataset=dataset)
            log.info("revision %s published", release.get("revision"))

    def emit_unpublished(self, claim: Claim, outcome: str) -> None:
        self.stage_telemetry.mark_no_output()
        with self._best_effort():
            self._add_outcome(_KeyOutcome(claim, outcome, datetime.now(UTC), claim.epoch))

    def emit_retry(self, error: Exception) -> None:
        with self._best_effort():
            reason = type(error).__name__
            self.services.telemetry.metrics.count("retry_attempts_total", reason=reason)
            log.warning("tried again: %s", reason)

    def emit_failed(self, claim: Claim, stage: str, error: KfmError) -> None:
        with self._best_effort():
            metrics, dataset, reason = self.services.telemetry.metrics, self.dataset.dataset, type(error).__name__
            self._add_outcome(_KeyOutcome(claim, FAILED, datetime.now(UTC), claim.epoch, error=reason))
            metrics.count("event_dlq_count")
            if isinstance(error, AttemptsExhausted):  # not caused by the data
                metrics.count("retry_exhausted_total", dataset=dataset)
            elif stage == "mask" or isinstance(error, CareRefused | PolicyRefused):
                metrics.count("masking_failures_total", dataset=dataset)
            log.error("failed in %s: %s", stage, reason)

    def emit_fetches(self, fetches: FetchCounts) -> None:
        with self._best_effort():
            dataset, metrics = self.dataset.dataset, self.services.telemetry.metrics
            log.info("%s: %d objects unchanged, %d fetched", dataset, fetches.hits, fetches.misses)
            metrics.count("object_fetches_total", fetches.hits, dataset=dataset, result="unchanged")
            metrics.count("object_fetches_total", fetches.misses, dataset=dataset, result="fetched")

    def emit_left_out(self, left_out: Mapping[str, int]) -> None:
        with self._best_effort():
            for reason, count in left_out.items():
                self.services.telemetry.metrics.count(
                    "records_left_out_total", count, dataset=self.dataset.dataset, reason=reason
                )

    def end_stage(self) -> None:
        """Emits the outcomes since the last call; call after their costs are in the ledger."""
        settled, self._pending = self._pending, []
        if not settled:
            return
        with self._best_effort():
            database = self.services.database
            costs = key_totals_of_run(database, self.run_id)
            gates = passed_gates(database, {one.claim.key: one.txn for one in settled})
            ended = {one.claim.key: one.txn for one in settled if one.outcome in (APPLIED, SKIPPED)}
            events = settled_events(database, ended)
            revisions = {one.claim.key: one.release["revision"] for one in settled if one.outcome == APPLIED}
            before = rows_before(database, revisions)
            for one in settled:
                key = one.claim.key
                rows, answered = before.get(key), events.get(key, SettledEvents())
                row_delta = (one.release["rows"] - rows) / rows * 100 if rows and one.outcome == APPLIED else None
                self._emit_metrics(answered, row_delta)
                common = self._write_update_record(one, answered)
                self._write_governance_record(one, common, total_energy(costs.get(key, ())), gates[key], row_delta)

    def _best_effort(self) -> AbstractContextManager[None]:
        return best_effort(self.services.telemetry, "the outcome of a key")

    def _add_outcome(self, one: _KeyOutcome) -> None:
        self._pending.append(one)
        self.services.telemetry.metrics.count("keys_settled_total", dataset=self.dataset.dataset, outcome=one.outcome)

    def _emit_metrics(self, events: SettledEvents, row_delta: float | None) -> None:
        metrics = self.services.telemetry.metrics
        if row_delta is not None:
            metrics.set("row_delta_pct", row_delta, dataset=self.dataset.dataset)
        metrics.count("event_success_total", events.events)
        for seconds in events.seconds:
            metrics.observe("processing_latency_seconds", seconds, stage="end_to_end")

    def _write_update_record(self, one: _KeyOutcome, events: SettledEvents) -> dict[str, Any]:
        """Returns the fields that both records have in common."""
        longest = max(events.seconds, default=None)
        common = {
            "at": one.at.isoformat(),
            "dataset": self.dataset.dataset,
            "key": one.claim.key,
            "run_id": self.run_id,
            "trace_id": self.stage_telemetry.trace_of(one.claim.key).trace_hex,
            "replay_id": self.replay,
            "outcome": one.outcome,
            "error": one.error,
        }
        update = {
            "idempotency": "hit" if one.outcome == SKIPPED else "miss",
            "revision": one.release.get("revision"),
            "events": events.events,
            "latency_ms": None if longest is None else longest * 1000,
        }
        self.services.telemetry.records.write("auto-update-v1", common | update)
        return common

    def _write_governance_record(
        self,
        one: _KeyOutcome,
        common: Mapping[str, Any],
        cost: Energy,
        gates: Mapping[str, bool],
        row_delta: float | None,
    ) -> None:
        origin = self.stage_telemetry.origin(one.claim.key)
        self.services.telemetry.records.write(
            "pattern-idempotent-safety-governance-v3",
            {
                **common,
                "pipeline": self.dataset.pipeline,
                "transform_version": CanonicalKey.parse(one.claim.key).transform_version,
                "policy": self.dataset.policy,
                "pipeline_success": int(one.outcome != FAILED),
                "freshness_min": _freshness(origin, one.at) if one.outcome == APPLIED else None,
                "row_delta_pct": row_delta,
                "checksum": one.release.get("content_hash"),
                "gates": dict(gates),
                "energy_kwh": cost.energy_kwh,
                "co2e_kg": cost.co2e_kg,
                "cost_usd": cost.cost_usd,
                "energy_method": cost.method,
            },
        )


def _freshness(origin: Origin, now: datetime) -> float | None:
    return None if origin.made_at is None else max(0.0, (now - origin.made_at).total_seconds() / 60)
