"""What is told of work on the keys of a run: a span for each stage of each key, how long it took and what it cost.

Belongs here: telling while it goes on. Does not: what came of a key (`outcomes_told`), or the work itself, which goes
on whatever becomes of this.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.energy.emit import INPUTS, OUTPUTS, WorkUnit, emit_costs, record_usage, set_cost_attributes
from kfm_pipelines.energy.estimate import energy_of
from kfm_pipelines.energy.meter import Meter, Usage
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.services import Services
from kfm_pipelines.stages.telemetry.key_origin import Origin, origins_of
from kfm_pipelines.stages.telemetry.runs import active_runs
from kfm_pipelines.stages.trigger import RunTrigger
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.stores import Layout
from kfm_pipelines.telemetry.logs.lines import log_context
from kfm_pipelines.telemetry.process import best_effort
from kfm_pipelines.telemetry.traces.spans import SpanValue, TraceContext, current_span, mark_failed

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class StageTelemetry:
    """The telling of one stage of a run, or of several one after the other."""

    def __init__(
        self,
        services: Services,
        dataset: Dataset,
        run_id: str,
        trigger: RunTrigger,
        held_keys: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`held` are the keys that the run has now: asked for one, all of them are looked up."""
        self._services = services
        self._dataset = dataset
        self._layout = Layout(dataset.pipeline)
        self._run_id = run_id
        self._trigger = trigger
        self._held_keys = held_keys
        self._origins: dict[str, Origin] = {}
        self._used: dict[WorkUnit, Usage] = {}
        self._has_no_output = False

    def load_origins(self, keys: Sequence[str]) -> None:
        """Read where all these keys come from at once, as it is now."""
        with best_effort(self._services.telemetry, "where keys come from", "span"):
            self._origins |= origins_of(self._services.database, keys)

    def begin_traces(self, keys: Sequence[str]) -> None:
        """Where nobody has sent anything in the trace that a key is told in, this is its beginning."""
        now = datetime.now(UTC)
        for key in keys:
            origin = self.origin(key)
            if self._trigger.replay or TraceContext.parse(origin.trace) is None:
                name = "replay" if self._trigger.replay else "run"
                about: dict[str, SpanValue] = {"kfm.dataset": self._dataset.dataset, "kfm.key": key}
                about |= {"kfm.run_id": self._run_id, "kfm.event_id": list(origin.events)}
                about |= {"kfm.replay_id": self._trigger.replay} if self._trigger.replay else {}
                self._services.telemetry.spans.emit_root_span(name, self.trace_of(key), now, now, about)

    def origin(self, key: str) -> Origin:
        if key not in self._origins:
            self.load_origins([key, *self._held_keys()])
        return self._origins.setdefault(key, Origin())

    def trace_of(self, key: str) -> TraceContext:
        """The trace that its newest event came in. A replay has one of its own for each key: it may be years later."""
        if self._trigger.replay:
            return TraceContext.of_event(f"{self._trigger.replay}:{key}")
        return TraceContext.parse(self.origin(key).trace) or TraceContext.of_event(f"{self._run_id}:{key}")

    @contextmanager
    def stage_span(self, claim: Claim, stage: str, span: str | None = None) -> Iterator[None]:
        """Work on a key in a stage, as a span in the key's trace; everything logged meanwhile says of what it is."""
        origin, trace = self.origin(claim.key), self.trace_of(claim.key)
        meter = Meter()
        self._has_no_output = False
        with (
            log_context(
                run_id=self._run_id,
                dataset=self._dataset.dataset,
                idempotency_key=claim.key,
                trace_id=trace.trace_hex,
                event_id=origin.events[0] if origin.events else None,
                object_key=origin.objects[0] if origin.objects else None,
                replay_id=self._trigger.replay,
                stage=stage,
            ),
            self._services.telemetry.spans.span(
                span or stage, self._attributes(claim, stage, origin), parent=trace, links=self._links(origin)
            ) as opened,
        ):
            try:
                yield
            finally:
                usage = meter.read()
                self._end_span(opened, claim, stage, usage)

    def _end_span(self, span: "Span | None", claim: Claim, stage: str, usage: Usage) -> None:
        set_cost_attributes(span, energy_of(self._services, usage))
        if span is not None and not self._has_no_output:
            span.set_attribute(OUTPUTS, self._outputs(claim, stage))
        work = WorkUnit(stage, claim.key, claim.epoch)
        self._used[work] = self._used[work] + usage if work in self._used else usage

    def mark_work_failed(self, error: Exception) -> None:
        """The work at hand failed; the exception itself goes no further."""
        self.mark_no_output()
        mark_failed(current_span(), type(error).__name__)

    def mark_no_output(self) -> None:
        """Nothing comes of the work at hand, rightly or not."""
        self._has_no_output = True

    def end_stage(self) -> None:
        """Enter into the ledger what was used since the last time."""
        with best_effort(self._services.telemetry, "what a stage cost", "energy"):
            self._flush_usage()

    def _flush_usage(self) -> None:
        used, self._used = self._used, {}
        run = active_runs(self._services).get(self._run_id)
        for work, usage in used.items():
            if run is not None:
                run.add(usage)
            seconds = usage.wall_seconds or 0.0
            self._services.telemetry.metrics.observe("processing_latency_seconds", seconds, stage=work.stage)
        dataset, replay = self._dataset.dataset, self._trigger.replay
        emit_costs(self._services, record_usage(self._services, self._run_id, used, dataset=dataset, replay=replay))

    def _attributes(self, claim: Claim, stage: str, origin: Origin) -> dict[str, SpanValue]:
        attributes: dict[str, SpanValue] = {
            "kfm.pipeline": self._dataset.pipeline,
            "kfm.dataset": self._dataset.dataset,
            "kfm.key": claim.key,
            "kfm.stage": stage,
            "kfm.version": CanonicalKey.parse(claim.key).transform_version,
            "kfm.run_id": self._run_id,
            "kfm.attempt": claim.attempts,
            "kfm.event_id": list(origin.events),
            INPUTS: list(origin.objects),
            OUTPUTS: [],
        }
        return attributes | ({"kfm.replay_id": self._trigger.replay} if self._trigger.replay else {})

    def _outputs(self, claim: Claim, stage: str) -> list[str]:
        """Where a stage leaves what it makes."""
        layout, place = self._layout, (claim.key, claim.epoch)
        if stage == "compute":
            return [layout.computed_table(*place)]
        if stage in ("mask", "validate"):
            return [layout.masked_table(*place)]
        if stage == "stage":
            return [layout.staged_data(*place), layout.staged_item(*place)]
        return [layout.processed_data(claim.key), layout.item(claim.key)]

    def _links(self, origin: Origin) -> list[TraceContext]:
        """From a replay to the trace that the events came in."""
        came = TraceContext.parse(origin.trace)
        return [came] if came and self._trigger.replay else []
