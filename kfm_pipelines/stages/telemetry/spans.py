"""Spans, durations and costs of a run, of each stage of each key, and of each gate. Failures here never stop a run."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.energy.emit import (
    INPUTS,
    OUTPUTS,
    WorkUnit,
    cost_attributes,
    emit_costs,
    record_usage,
    set_cost_attributes,
)
from kfm_pipelines.energy.estimate import energy_of
from kfm_pipelines.energy.meter import Meter, RunUsage, Usage
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.gates import Verdict
from kfm_pipelines.services import Services
from kfm_pipelines.stages.telemetry.tables import Origin, origins_of
from kfm_pipelines.stages.trigger import RunTrigger
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.stores import Layout
from kfm_pipelines.telemetry.logs.lines import log_context
from kfm_pipelines.telemetry.process import best_effort
from kfm_pipelines.telemetry.traces.spans import (
    SpanValue,
    TraceContext,
    current_span,
    current_span_attributes,
    mark_failed,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span

TRIAL = "kfm.trial"  # marks shadow runs, whose verdicts are not counted
# Copied from the surrounding span, because gates are searched by them.
CONTEXT_ATTRIBUTES = ("kfm.key", "kfm.run_id", "kfm.event_id", "kfm.replay_id", TRIAL)

log = logging.getLogger(__name__)
OUTSIDE_KEYS = "other"  # the stage of usage that belongs to no key


@dataclass
class StageTelemetry:
    """Telemetry of the stages of a run, one after the other."""

    services: Services
    dataset: Dataset
    run_id: str
    trigger: RunTrigger
    held_keys: Callable[[], Iterable[str]] = tuple  # the keys of the run: when one origin is needed, all are loaded
    _origins: dict[str, Origin] = field(default_factory=dict)
    _used: dict[WorkUnit, Usage] = field(default_factory=dict)
    _has_no_output: bool = False

    def load_origins(self, keys: Sequence[str]) -> None:
        """Loads the current origins of these keys in one query."""
        with best_effort(self.services.telemetry, "the origin of keys", "span"):
            self._origins |= origins_of(self.services.database, keys)

    def begin_traces(self, keys: Sequence[str]) -> None:
        """Emits a root span for each key whose trace no sender has begun."""
        now = datetime.now(UTC)
        for key in keys:
            origin = self.origin(key)
            if self.trigger.replay or TraceContext.parse(origin.trace) is None:
                name = "replay" if self.trigger.replay else "run"
                about: dict[str, SpanValue] = {"kfm.dataset": self.dataset.dataset, "kfm.key": key}
                about |= {"kfm.run_id": self.run_id, "kfm.event_id": list(origin.events)}
                about |= {"kfm.replay_id": self.trigger.replay} if self.trigger.replay else {}
                self.services.telemetry.spans.emit_root_span(name, self.trace_of(key), now, now, about)

    def origin(self, key: str) -> Origin:
        if key not in self._origins:
            self.load_origins([key, *self.held_keys()])
        return self._origins.setdefault(key, Origin())

    def trace_of(self, key: str) -> TraceContext:
        """Returns the trace of the key's newest event. A replay has its own trace for each key."""
        if self.trigger.replay:
            return TraceContext.of_event(f"{self.trigger.replay}:{key}")
        return TraceContext.parse(self.origin(key).trace) or TraceContext.of_event(f"{self.run_id}:{key}")

    def emit_claims(self, claims: Collection[Claim], begun: datetime, usage: Usage) -> None:
        """Emits that the keys were claimed together and that no predecessor had left anything to complete or undo."""
        now, costs = datetime.now(UTC), cost_attributes(energy_of(self.services, usage.share(max(1, len(claims)))))
        for claim in claims:
            attributes = {**self._attributes(claim, "compute", self.origin(claim.key)), **costs}
            self.services.telemetry.spans.emit_past_span(
                "wal_replay", begun, now, attributes, parent=self.trace_of(claim.key)
            )

    @contextmanager
    def stage_span(
        self, claim: Claim, stage: str, span: str | None = None, begun: datetime | None = None
    ) -> Iterator[None]:
        """Wraps the work on a key in a span of the key's trace; log lines inside carry its context. The span starts
        at `begun` if that work began together with that of other keys."""
        origin, trace = self.origin(claim.key), self.trace_of(claim.key)
        # A replay has its own trace, linked to that of the events.
        links = [came for came in [TraceContext.parse(origin.trace)] if came and self.trigger.replay]
        meter = Meter()
        self._has_no_output = False
        with (
            log_context(
                run_id=self.run_id,
                dataset=self.dataset.dataset,
                idempotency_key=claim.key,
                trace_id=trace.trace_hex,
                event_id=origin.events[0] if origin.events else None,
                object_key=origin.objects[0] if origin.objects else None,
                replay_id=self.trigger.replay,
                stage=stage,
            ),
            self.services.telemetry.spans.span(
                span or stage, self._attributes(claim, stage, origin), parent=trace, links=links, begun=begun
            ) as opened,
        ):
            try:
                yield
            finally:
                self._end_span(opened, claim, stage, meter.read())

    def _end_span(self, span: "Span | None", claim: Claim, stage: str, usage: Usage) -> None:
        set_cost_attributes(span, energy_of(self.services, usage))
        if span is not None and not self._has_no_output:
            span.set_attribute(OUTPUTS, self._outputs(claim, stage))
        self._add_usage(claim, stage, usage)

    @contextmanager
    def shared(self, claims: Collection[Claim], stage: str) -> Iterator[None]:
        """Divides what is used for many keys at once equally among them."""
        meter = Meter()
        try:
            yield
        finally:
            if claims:
                usage = meter.read().share(len(claims))
                for claim in claims:
                    self._add_usage(claim, stage, usage)

    def _add_usage(self, claim: Claim, stage: str, usage: Usage) -> None:
        work = WorkUnit(stage, claim.key, claim.epoch)
        self._used[work] = self._used[work] + usage if work in self._used else usage

    def mark_work_failed(self, error: Exception) -> None:
        """Marks the current span as failed, with the type of the error only."""
        self.mark_no_output()
        mark_failed(current_span(), type(error).__name__)

    def mark_no_output(self) -> None:
        self._has_no_output = True

    def end_stage(self) -> None:
        """Records the usage since the last call."""
        services, dataset, replay = self.services, self.dataset.dataset, self.trigger.replay
        with best_effort(services.telemetry, "the cost of a stage", "energy"):
            used, self._used = self._used, {}
            run = active_runs(services).get(self.run_id)
            for work, usage in used.items():
                if run is not None:
                    run.add(usage)
                seconds = usage.wall_seconds or 0.0
                services.telemetry.metrics.observe("processing_latency_seconds", seconds, stage=work.stage)
            emit_costs(services, record_usage(services, self.run_id, used, dataset=dataset, replay=replay))

    def _attributes(self, claim: Claim, stage: str, origin: Origin) -> dict[str, SpanValue]:
        attributes: dict[str, SpanValue] = {
            "kfm.pipeline": self.dataset.pipeline,
            "kfm.dataset": self.dataset.dataset,
            "kfm.key": claim.key,
            "kfm.stage": stage,
            "kfm.version": CanonicalKey.parse(claim.key).transform_version,
            "kfm.run_id": self.run_id,
            "kfm.attempt": claim.attempts,
            "kfm.event_id": list(origin.events),
            INPUTS: list(origin.objects),
            OUTPUTS: [],
        }
        return attributes | ({"kfm.replay_id": self.trigger.replay} if self.trigger.replay else {})

    def _outputs(self, claim: Claim, stage: str) -> list[str]:
        """Only `publish` leaves something that others can read."""
        layout = Layout(self.dataset.pipeline)
        return [layout.processed_data(claim.key), layout.item(claim.key)] if stage == "publish" else []


def trace_gate(services: Services, gate: str, judge: Callable[[], Verdict]) -> Verdict:
    """Runs a gate in a span and logs the verdict, with the names of broken rules only: findings may quote the data."""
    telemetry = services.telemetry
    about = current_span_attributes(CONTEXT_ATTRIBUTES)
    with telemetry.spans.span(f"{gate}_gate", {**about, "kfm.gate": gate}) as span:
        verdict = judge()
        label = "green" if verdict.passed else "red"
        broken = sorted({finding.rule for finding in verdict.findings})
        if span is not None:
            span.set_attribute("kfm.verdict", label)
            if broken:
                span.set_attribute("kfm.findings", broken)
        if not verdict.passed:
            mark_failed(span, "red")
        # Inside the span, so that the line carries its id.
        level = logging.INFO if verdict.passed else logging.ERROR
        log.log(level, "gate %s is %s%s", gate, label, f": {', '.join(broken)}" if broken else "")
    if TRIAL not in about:
        telemetry.metrics.count("gate_verdicts_total", gate=gate, verdict=label)
    return verdict


def active_runs(services: Services) -> dict[str, RunUsage]:
    """Returns the runs that this process is executing, by id."""
    return services.load_once("runs", dict)


def begin_run_metering(services: Services, run_id: str, *, own_process: bool) -> None:
    """Starts metering; in a process started for this run, from the start of the process."""
    with best_effort(services.telemetry, "the cost of a run", "energy"):
        active_runs(services)[run_id] = RunUsage(Meter.since_process_start() if own_process else Meter())


def emit_run_end(
    services: Services, dataset: Dataset, run_id: str, replay: str | None, *, succeeded: bool, lost: bool = False
) -> None:
    """A run that is `lost` was stopped or died elsewhere, so its costs are unknown."""
    with best_effort(services.telemetry, "the end of a run"):
        usage = Usage(None, None) if lost else None
        # A stage that was run alone has begun nothing.
        if not lost and (run := active_runs(services).pop(run_id, None)) is not None:
            usage = run.overhead()
            held = usage.gigabyte_seconds  # sampled, so that the parts may add up to slightly more than the total
            usage = replace(usage, gigabyte_seconds=None if held is None else max(0.0, held))
        if usage is not None:
            used = {WorkUnit(OUTSIDE_KEYS): usage}
            emit_costs(services, record_usage(services, run_id, used, dataset=dataset.dataset, replay=replay))
        services.telemetry.metrics.set("pipeline_success", int(succeeded), dataset=dataset.dataset)
        with log_context(run_id=run_id, dataset=dataset.dataset, replay_id=replay):
            log.log(logging.INFO if succeeded else logging.ERROR, "run ended %s", "well" if succeeded else "badly")
        services.telemetry.flush()
