"""Emits spans, metrics, records and logs for received messages. Its failures never stop the intake."""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from kfm_pipelines.aws.queue import Message
from kfm_pipelines.energy.emit import WorkUnit, emit_costs, record_usage
from kfm_pipelines.energy.estimate import Energy, energy_of
from kfm_pipelines.energy.meter import Meter
from kfm_pipelines.errors import UniquenessInAttributes
from kfm_pipelines.inbox.record import RecordedBatch
from kfm_pipelines.services import Services
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines.telemetry.logs.lines import log_context
from kfm_pipelines.telemetry.process import best_effort
from kfm_pipelines.telemetry.traces.spans import TRACEPARENT, SpanValue, TraceContext
from kfm_pipelines.text import read_timestamp

# In a storm only this many messages of each commit get their own spans, or telemetry would take a third of the time of
# recording. All of them keep their trace, so later spans still belong to it.
TRACED_AT_ONCE = 50
INTAKE_RUN_ID = "intake"  # stands for a run id in the energy ledger
MAX_DELIVERY_TIME = timedelta(days=14)  # SQS keeps a message no longer, so an older SNS time is made up

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _ReceivedMessage:
    """A message, its delivery, and the receiving span of each notice and refusal in it."""

    message: Message
    delivery: Delivery
    traces: tuple[tuple[str, TraceContext], ...]
    traced: bool


@dataclass
class IntakeTelemetry:
    """Telemetry for the messages of one commit, from their receipt on."""

    services: Services
    queue: str
    _meter: Meter = field(default_factory=Meter)
    _messages: list[_ReceivedMessage] = field(default_factory=list)
    _read_at: datetime | None = None
    _event_count: int = 0

    def read(self, messages: Sequence[Message], reader: Callable[[Message], Delivery]) -> list[Delivery]:
        """Reads each message and adds the receiving span to its events."""
        left = TRACED_AT_ONCE
        for message in messages:
            started_at = _now()
            delivery = reader(message)
            received = _ReceivedMessage(message, delivery, (), traced=False)
            with best_effort(self.services.telemetry, "the origin of a message", "span"):
                received = self._trace_message(message, delivery, started_at, traced=left > 0)
            left -= len(received.traces)
            self._event_count += len(received.traces)
            self._messages.append(received)
        self._read_at = _now()
        return [one.delivery for one in self._messages]

    def emit(self, recorded: RecordedBatch) -> None:
        """Emits the outcome of the messages, after they are recorded."""
        with best_effort(self.services.telemetry, "the outcome of messages"):
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
        envelope = _sns_envelope(message.body)
        # SNS without raw delivery puts the attribute into its envelope.
        sender = TraceContext.parse(message.attributes.get(TRACEPARENT) or _sns_attribute(envelope, TRACEPARENT))
        announced_at = _announced_at(envelope, message.sent_at)
        notices = delivery.notices
        identities = [*notices, delivery.refusal.identity] if delivery.refusal else notices
        traces: list[tuple[str, TraceContext]] = []
        for identity in identities:
            # Without a sender the trace starts from the identity, which S3 and uploaders can derive too.
            context = sender or TraceContext.of_event(identity)
            if traced:
                context = self._emit_receive_spans(message, identity, delivery, context, announced_at, started_at)
            traces.append((identity, context))
        context_of = dict(traces[: len(notices)])
        events = tuple(
            replace(event, trace=context_of[event.notice_identity].traceparent, sent_at=message.sent_at)
            for event in delivery.events
        )
        return _ReceivedMessage(message, replace(delivery, events=events), tuple(traces), traced)

    def _emit_receive_spans(
        self,
        message: Message,
        identity: str,
        delivery: Delivery,
        origin: TraceContext,
        announced_at: datetime | None,
        started_at: datetime,
    ) -> TraceContext:
        """Emits delivery, receipt and validation, by the clocks of SNS, SQS and this machine, which may differ."""
        spans = self.services.telemetry.spans
        attributes = {
            "messaging.system": "aws_sqs",
            "messaging.destination.name": self.queue,
            "messaging.message.id": message.message_id,
            "kfm.event_id": identity,
        }
        sent = message.sent_at or message.received_at or started_at
        got = message.received_at or started_at
        delivered = spans.emit_past_span(
            "sns_to_sqs_delivery", announced_at or sent, sent, attributes, parent=origin, kind="consumer"
        )
        received = spans.emit_past_span("sqs_receive", sent, got, attributes, parent=delivered, kind="consumer")
        refusal = delivery.refusal if delivery.refusal and delivery.refusal.identity == identity else None
        failed = type(refusal.error).__name__ if refusal else None
        spans.emit_past_span("contract_validation", started_at, _now(), attributes, parent=received, failed=failed)
        return received

    def _emit_energy(self) -> Energy:
        """Emits the cost of the intake, which belongs to no run."""
        usage = self._meter.read()
        emit_costs(self.services, record_usage(self.services, INTAKE_RUN_ID, {WorkUnit("ingest"): usage}, dataset=None))
        return energy_of(self.services, usage)

    def _emit_counters(self, recorded: RecordedBatch) -> None:
        metrics, counts = self.services.telemetry.metrics, recorded.counts
        metrics.count("messages_received_total", counts.received, queue=self.queue)
        metrics.count("messages_duplicate_total", counts.duplicates, queue=self.queue)
        metrics.count("event_dedup_hits", counts.duplicates)
        unwanted = sum(one.delivery.unwanted for one in self._messages)
        metrics.count("notices_unwanted_total", unwanted, queue=self.queue)
        metrics.count("event_dlq_count", counts.refused)
        metrics.count("sqs_fifo.producer.violations", counts.violations)
        metrics.count("sqs_fifo.dedupe.collisions_detected", recorded.collisions)

    def _emit_message(
        self, received: _ReceivedMessage, new: set[str], unrecorded: frozenset[str], now: datetime, energy: Energy
    ) -> None:
        """Removes the message's events from `new`, because copies of it may follow in the same batch."""
        first_seen = {identity for identity, _ in received.traces} & new
        has_new = bool(first_seen)
        new -= first_seen
        message = received.message
        if message.sent_at and message.received_at:
            waited = max(0.0, (message.received_at - message.sent_at).total_seconds())
            self.services.telemetry.metrics.observe("processing_latency_seconds", waited, stage="queue")
        for identity, context in received.traces:
            refusal = received.delivery.refusal
            refused = identity in unrecorded or (refusal is not None and identity == refusal.identity)
            outcome = "refused" if refused else "new" if identity in first_seen else "duplicate"
            first_seen.discard(identity)  # a message may contain the same event twice
            self._emit_event(received, (identity, context), now, energy, outcome)
        if self.queue.endswith(".fifo"):
            self._emit_fifo_record(received, now, dedup_hit=not has_new and not received.delivery.refusal)

    def _emit_event(
        self, received: _ReceivedMessage, event: tuple[str, TraceContext], now: datetime, energy: Energy, outcome: str
    ) -> None:
        (identity, context), message, telemetry = event, received.message, self.services.telemetry
        latency = None if message.sent_at is None else max(0.0, (now - message.sent_at).total_seconds() * 1000)
        if outcome == "new" and latency is not None:
            telemetry.metrics.observe("event_ingest_latency_ms", latency)
        if outcome == "refused":
            self._log_refusal(received, identity, context)
        elif received.traced and self._read_at:
            hit: dict[str, SpanValue] = {"kfm.event_id": identity, "kfm.dedup_hit": outcome == "duplicate"}
            telemetry.spans.emit_past_span("idempotent_write", self._read_at, now, hit, parent=context)
        telemetry.records.write(
            "event-ingest-v1",
            {
                "at": now.isoformat(),
                "event_id": identity,
                "queue": self.queue,
                "message_id": message.message_id or None,
                "trace_id": context.trace_hex,
                "latency_ms": latency,
                "dedup_hit": outcome == "duplicate",
                "dlq": outcome == "refused",
                "energy_ws": self._per_event(energy.watt_seconds),
                "carbon_g": self._per_event(energy.carbon_grams),
                "energy_method": energy.method,
            },
        )

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
        counts = recorded.counts
        self.services.telemetry.records.write(
            "patterns-v1",
            {
                "at": now.isoformat(),
                "queue": self.queue,
                "messages_received": counts.received,
                "events_recorded": counts.recorded,
                "messages_duplicate": counts.duplicates,
                "messages_refused": counts.refused,
                "producer_violations": counts.violations,
                "dedupe_collisions": recorded.collisions,
            },
        )
        log.info(
            "messages received: %d; events recorded: %d, duplicates: %d, refused: %d",
            counts.received, counts.recorded, counts.duplicates, counts.refused, extra={"queue": self.queue},
        )  # fmt: skip

    def _log_refusal(self, received: _ReceivedMessage, identity: str, context: TraceContext) -> None:
        refusal = received.delivery.refusal
        with log_context(
            message_id=received.message.message_id, event_id=identity, trace_id=context.trace_hex, queue=self.queue
        ):
            why = type(refusal.error).__name__ if refusal else "it could not be recorded"
            log.warning("a message was refused: %s", why)

    def _per_event(self, total: float | None) -> float | None:
        return None if total is None else total / max(1, self._event_count)


def _announced_at(envelope: dict[str, Any], sent: datetime | None) -> datetime | None:
    """Returns when SNS took the message, None when that is unknown or impossible."""
    timestamp = envelope.get("Timestamp")
    if not isinstance(timestamp, str) or sent is None:
        return None
    with suppress(ValueError):
        announced = read_timestamp(timestamp)
        return announced if sent - MAX_DELIVERY_TIME < announced <= sent else None
    return None


def _sns_attribute(envelope: dict[str, Any], name: str) -> str | None:
    attributes = envelope.get("MessageAttributes")
    attribute = attributes.get(name) if isinstance(attributes, dict) else None
    value = attribute.get("Value") if isinstance(attribute, dict) else None
    return value if isinstance(value, str) else None


def _sns_envelope(body: str) -> dict[str, Any]:
    """Returns the document of an SNS notification, empty for any other body and for one that cannot be read."""
    if '"TopicArn"' not in body:
        return {}
    with suppress(ValueError, RecursionError):
        document = json.loads(body)
        return document if isinstance(document, dict) else {}
    return {}


def _now() -> datetime:
    return datetime.now(UTC)
