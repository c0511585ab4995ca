"""What is told of messages on their way into the inbox: where each was when, how long it took, what that cost.

Belongs here: telling. Does not: reading, recording or deleting a message, which goes on whatever becomes of this.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from kfm_pipelines.aws.queue import Message
from kfm_pipelines.energy.emit import WorkUnit, emit_costs, record_usage
from kfm_pipelines.energy.estimate import Energy, energy_of
from kfm_pipelines.energy.meter import Meter
from kfm_pipelines.errors import UniquenessInAttributes
from kfm_pipelines.inbox.record import RecordedBatch
from kfm_pipelines.inbox.trace_headers import Sender, sender_of
from kfm_pipelines.services import Services
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines.telemetry.logs.lines import log_context
from kfm_pipelines.telemetry.process import best_effort
from kfm_pipelines.telemetry.traces.spans import SpanValue, TraceContext

# In a storm only so many messages of each commit get spans of their own, or telling would take a third of the time of
# recording. All of them keep their trace, so what is made of them later is told in it.
TRACED_AT_ONCE = 50
INTAKE_RUN_ID = "intake"  # in the place of a run's id in the ledger

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _ReceivedMessage:
    """A message, what it said, and the span that received each of its events or refusals."""

    message: Message
    delivery: Delivery
    traces: tuple[tuple[str, TraceContext], ...]
    traced: bool


@dataclass
class IntakeTelemetry:
    """The messages of one commit, from the moment they are in our hands."""

    services: Services
    queue: str
    _meter: Meter = field(default_factory=Meter)
    _messages: list[_ReceivedMessage] = field(default_factory=list)
    _read_at: datetime | None = None
    _event_count: int = 0

    def read(self, messages: Sequence[Message], reader: Callable[[Message], Delivery]) -> list[Delivery]:
        """What each message says, every event with the span that received it."""
        left = TRACED_AT_ONCE
        for message in messages:
            begun = _now()
            delivery = reader(message)
            arrival = _ReceivedMessage(message, delivery, (), traced=False)
            with best_effort(self.services.telemetry, "where a message comes from", "span"):
                arrival = self._trace_message(message, delivery, begun, traced=left > 0)
            left -= len(arrival.traces)
            self._event_count += len(arrival.traces)
            self._messages.append(arrival)
        self._read_at = _now()
        return [one.delivery for one in self._messages]

    def emit(self, recorded: RecordedBatch) -> None:
        """To be called when they are recorded."""
        with best_effort(self.services.telemetry, "what came of messages"):
            self._emit(recorded)

    def _emit(self, recorded: RecordedBatch) -> None:
        now = _now()
        energy = self._emit_energy()
        self._emit_counters(recorded)
        new = set(recorded.new_identities)
        for one in self._messages:
            self._emit_message(one, new, recorded.unrecorded_identities, now, energy)
        self._emit_totals(recorded, now)

    def _trace_message(
        self, message: Message, delivery: Delivery, started_at: datetime, *, traced: bool
    ) -> _ReceivedMessage:
        sender = sender_of(message)
        known = [event.identity for event in delivery.events]
        if delivery.refusal:
            known.append(delivery.refusal.identity)
        received = tuple(
            (
                identity,
                self._emit_receive_spans(message, identity, delivery, sender, started_at)
                if traced
                else _trace_origin(sender, identity),
            )
            for identity in known
        )
        events = tuple(
            replace(event, trace=context.traceparent, sent_at=message.sent_at)
            for event, (_, context) in zip(delivery.events, received, strict=False)
        )
        return _ReceivedMessage(message, replace(delivery, events=events), received, traced)

    def _emit_receive_spans(
        self, message: Message, identity: str, delivery: Delivery, sender: Sender, started_at: datetime
    ) -> TraceContext:
        """Tell of its way here: by the clocks of SNS, of SQS and of this machine, which may disagree a little."""
        spans = self.services.telemetry.spans
        attributes = {
            "messaging.system": "aws_sqs",
            "messaging.destination.name": self.queue,
            "messaging.message.id": message.message_id,
            "kfm.event_id": identity,
        }
        sent = message.sent_at or message.received_at or started_at
        got = message.received_at or started_at
        announced, origin = sender.announced_at or sent, _trace_origin(sender, identity)
        delivered = spans.emit_past_span(
            "sns_to_sqs_delivery", announced, sent, attributes, parent=origin, kind="consumer"
        )
        received = spans.emit_past_span("sqs_receive", sent, got, attributes, parent=delivered, kind="consumer")
        refusal = delivery.refusal if delivery.refusal and delivery.refusal.identity == identity else None
        failed = type(refusal.error).__name__ if refusal else None
        spans.emit_past_span("contract_validation", started_at, _now(), attributes, parent=received, failed=failed)
        return received

    def _emit_energy(self) -> Energy:
        """What taking them in has cost, which is nobody's run."""
        usage = self._meter.read()
        emit_costs(self.services, record_usage(self.services, INTAKE_RUN_ID, {WorkUnit("ingest"): usage}, dataset=None))
        return energy_of(self.services, usage)

    def _emit_counters(self, recorded: RecordedBatch) -> None:
        metrics, tally = self.services.telemetry.metrics, recorded.counts
        metrics.count("messages_received_total", tally.received, queue=self.queue)
        metrics.count("messages_duplicate_total", tally.duplicates, queue=self.queue)
        metrics.count("event_dedup_hits", tally.duplicates)
        metrics.count("event_dlq_count", tally.refused)
        metrics.count("sqs_fifo.producer.violations", tally.violations)
        metrics.count("sqs_fifo.dedupe.collisions_detected", recorded.collisions)

    def _emit_message(
        self, received: _ReceivedMessage, new: set[str], unrecorded: frozenset[str], now: datetime, energy: Energy
    ) -> None:
        """What it brought is not new any more for those after it: copies may come together."""
        brought = {identity for identity, _ in received.traces} & new
        told_new = bool(brought)
        new -= brought
        telemetry, message = self.services.telemetry, received.message
        if message.sent_at and message.received_at:
            waited = max(0.0, (message.received_at - message.sent_at).total_seconds())
            telemetry.metrics.observe("processing_latency_seconds", waited, stage="queue")
        for identity, context in received.traces:
            refused = identity in unrecorded or (
                received.delivery.refusal is not None and identity == received.delivery.refusal.identity
            )
            fresh = identity in brought
            brought.discard(identity)  # a message may say the same twice
            latency = _elapsed_ms(message.sent_at, now)
            if fresh and latency is not None:
                telemetry.metrics.observe("event_ingest_latency_ms", latency)
            if received.traced and not refused and self._read_at:
                hit: dict[str, SpanValue] = {"kfm.event_id": identity, "kfm.dedup_hit": not fresh}
                telemetry.spans.emit_past_span("idempotent_write", self._read_at, now, hit, parent=context)
            if refused:
                self._log_refusal(received, identity, context)
            telemetry.records.write(
                "event-ingest-v1",
                {
                    "at": now.isoformat(),
                    "event_id": identity,
                    "queue": self.queue,
                    "message_id": message.message_id or None,
                    "trace_id": context.trace_hex,
                    "latency_ms": latency,
                    "dedup_hit": not fresh and not refused,
                    "dlq": refused,
                    **self._energy_per_event(energy),
                },
            )
        if self.queue.endswith(".fifo"):
            self._emit_fifo_record(received, now, dedup_hit=not told_new and not received.delivery.refusal)

    def _emit_fifo_record(self, received: _ReceivedMessage, now: datetime, *, dedup_hit: bool) -> None:
        body = received.message.body.encode()
        self.services.telemetry.metrics.observe("sqs_fifo.body_hash.length_bytes", len(body))
        refusal = received.delivery.refusal
        self.services.telemetry.records.write(
            "eventbus-v1",
            {
                "at": now.isoformat(),
                "queue": self.queue,
                "event_ids": [identity for identity, _ in received.traces],
                "message_id": received.message.message_id or None,
                "message_group": received.message.group,
                "body_hash": hashlib.sha256(body).hexdigest(),
                "body_bytes": len(body),
                "dedup_hit": dedup_hit,
                "violation": refusal is not None and isinstance(refusal.error, UniquenessInAttributes),
            },
        )

    def _emit_totals(self, recorded: RecordedBatch, now: datetime) -> None:
        tally = recorded.counts
        self.services.telemetry.records.write(
            "patterns-v1",
            {
                "at": now.isoformat(),
                "queue": self.queue,
                "messages_received": tally.received,
                "events_recorded": tally.recorded,
                "messages_duplicate": tally.duplicates,
                "messages_refused": tally.refused,
                "producer_violations": tally.violations,
                "dedupe_collisions": recorded.collisions,
            },
        )
        log.info(
            "%d messages: %d events recorded, %d duplicates, %d refused",
            tally.received, tally.recorded, tally.duplicates, tally.refused, extra={"queue": self.queue},
        )  # fmt: skip

    def _log_refusal(self, received: _ReceivedMessage, identity: str, context: TraceContext) -> None:
        refusal = received.delivery.refusal
        with log_context(
            message_id=received.message.message_id, event_id=identity, trace_id=context.trace_hex, queue=self.queue
        ):
            why = type(refusal.error).__name__ if refusal else "it could not be recorded"
            log.warning("a message was refused: %s", why)

    def _energy_per_event(self, energy: Energy) -> dict[str, Any]:
        """Of one event: what is not known of all is not known of one."""
        events = max(1, self._event_count)
        spent = {"energy_ws": energy.watt_seconds, "carbon_g": energy.carbon_grams}
        shared = {name: None if value is None else value / events for name, value in spent.items()}
        return {**shared, "energy_method": energy.method}


def _trace_origin(sender: Sender, identity: str) -> TraceContext:
    """Where its trace begins: with who sent it, or by its identity, which S3 and whoever uploads know too."""
    return sender.context or TraceContext.of_event(identity)


def _elapsed_ms(sent: datetime | None, now: datetime) -> float | None:
    return None if sent is None else max(0.0, (now - sent).total_seconds() * 1000)


def _now() -> datetime:
    return datetime.now(UTC)
