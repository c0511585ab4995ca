"""What is told of a gate that judges: a span and a line in the log, which the event's id and the replay's find."""

import logging
from collections.abc import Callable

from kfm_pipelines.gates import Verdict
from kfm_pipelines.services import Services
from kfm_pipelines.telemetry.traces.spans import current_span_attributes, mark_failed

# What the span around it says that its own has to say too: a gate is looked for by these.
TRIAL = "kfm.trial"  # on work that is only tried: what gates say of it is no news of what is published
CONTEXT_ATTRIBUTES = ("kfm.key", "kfm.run_id", "kfm.event_id", "kfm.replay_id", TRIAL)

log = logging.getLogger(__name__)


def trace_gate(services: Services, gate: str, judge: Callable[[], Verdict]) -> Verdict:
    """The gate's verdict. Which rules were broken is told, by name; what they found may quote the data."""
    telemetry = services.telemetry
    about = current_span_attributes(CONTEXT_ATTRIBUTES)
    with telemetry.spans.span(f"{gate}_gate", {**about, "kfm.gate": gate}) as span:
        verdict = judge()
        broken = sorted({finding.rule for finding in verdict.findings})
        if span is not None:
            span.set_attribute("kfm.verdict", _verdict_label(verdict))
            if broken:
                span.set_attribute("kfm.findings", broken)
        if not verdict.passed:
            mark_failed(span, "red")
        # Within the span, so that the line names it.
        level = logging.INFO if verdict.passed else logging.ERROR
        log.log(level, "gate %s is %s%s", gate, _verdict_label(verdict), f": {', '.join(broken)}" if broken else "")
    if TRIAL not in about:
        telemetry.metrics.count("gate_verdicts_total", gate=gate, verdict=_verdict_label(verdict))
    return verdict


def _verdict_label(verdict: Verdict) -> str:
    return "green" if verdict.passed else "red"
