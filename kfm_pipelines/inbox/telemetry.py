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
from kfm_pipelines.energy.coefficients import energy_of
from kfm_pipelines.energy.emit import Work, enter_used, tell_costs
from kfm_pipelines.energy.estimate import Energy
from kfm_pipelines.energy.meter import Meter
from kfm_pipelines.errors import UniquenessInAttributes
from kfm_pipelines.inbox.record import Recorded
from kfm_pipelines.inbox.trace_headers import Sender, sender_of
from kfm_pipelines.services import Services
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines.telemetry.best_effort import excused
from kfm_pipelines.telemetry.logs.context import joined
from kfm_pipelines.telemetry.traces.context import TraceContext
from kfm_pipelines.telemetry.traces.spans import Value

# In a storm only so many messages of each commit get spans of their own, or telling would take a third of the time of
# recording. All of them keep their trace, so what is made of them later is told in it.
TRACED_AT_ONCE = 50
INTAKE = "intake"  # in the place of a run's id in the ledger

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A message, what it said, and the span that received each of its events or refusals."""

    message: Message
    delivery: Delivery
    received: tuple[tuple[str, TraceContext], ...]
    traced: bool


@dataclass
class Arrivals:
    """The messages of one commit, from the moment they are in our hands."""

    services: Services
    queue: str
    _meter: Meter = field(default_factory=Meter)
    _arrived: list[_Arrival] = field(default_factory=list)
    _read_at: datetime | None = None
    _events: int = 0

    def read(self, messages: Sequence[Message], reader: Callable[[Message], Delivery]) -> list[Delivery]:
        """What each message says, every event with the span that received it."""
        left = TRACED_AT_ONCE
        for message in messages:
            begun = _now()
            delivery = reader(message)
            arrival = _Arrival(message, delivery, (), traced=False)
            with excused(self.services.telemetry, "where a message comes from", "span"):
                arrival = self._arrival(message, delivery, begun, traced=left > 0)
            left -= len(arrival.received)
            self._events += len(arrival.received)
            self._arrived.append(arrival)
        self._read_at = _now()
        return [one.delivery for one in self._arrived]

    def tell(self, recorded: Recorded) -> None:
        """To be called when they are recorded."""
        with excused(self.services.telemetry, "what came of messages"):
            self._tell(recorded)

    def _tell(self, recorded: Recorded) -> None:
        now = _now()
        energy = self._spent()
        self._count(recorded)
        new = set(recorded.fresh)
        for one in self._arrived:
            self._tell_one(one, new, recorded.unrecorded, now, energy)
        self._tell_all(recorded, now)

    def _arrival(self, message: Message, delivery: Delivery, begun: datetime, *, traced: bool) -> _Arrival:
        sender = sender_of(message)
        known = [event.identity for event in delivery.events]
        if delivery.refusal:
            known.append(delivery.refusal.identity)
        received = tuple(
            (
                identity,
                self._received(message, identity, delivery, sender, begun) if traced else _origin(sender, identity),
            )
            for identity in known
        )
        events = tuple(
            replace(event, trace=context.traceparent, sent_at=message.sent_at)
            for event, (_, context) in zip(delivery.events, received, strict=False)
        )
        return _Arrival(message, replace(delivery, events=events), received, traced)

    def _received(
        self, message: Message, identity: str, delivery: Delivery, sender: Sender, begun: datetime
    ) -> TraceContext:
        """Tell of its way here: by the clocks of SNS, of SQS and of this machine, which may disagree a little."""
        spans = self.services.telemetry.spans
        attributes = {
            "messaging.system": "aws_sqs",
            "messaging.destination.name": self.queue,
            "messaging.message.id": message.message_id,
            "kfm.event_id": identity,
        }
        sent = message.sent_at or message.received_at or begun
        got = message.received_at or begun
        announced, origin = sender.announced_at or sent, _origin(sender, identity)
        delivered = spans.past("sns_to_sqs_delivery", announced, sent, attributes, under=origin, kind="consumer")
        received = spans.past("sqs_receive", sent, got, attributes, under=delivered, kind="consumer")
        refusal = delivery.refusal if delivery.refusal and delivery.refusal.identity == identity else None
        failed = type(refusal.error).__name__ if refusal else None
        spans.past("contract_validation", begun, _now(), attributes, under=received, failed=failed)
        return received

    def _spent(self) -> Energy:
        """What taking them in has cost, which is nobody's run."""
        usage = self._meter.read()
        tell_costs(self.services, enter_used(self.services, INTAKE, {Work("ingest"): usage}, dataset=None))
        return energy_of(self.services, usage)

    def _count(self, recorded: Recorded) -> None:
        metrics, tally = self.services.telemetry.metrics, recorded.tally
        metrics.count("messages_received_total", tally.received, queue=self.queue)
        metrics.count("messages_duplicate_total", tally.duplicates, queue=self.queue)
        metrics.count("event_dedup_hits", tally.duplicates)
        metrics.count("event_dlq_count", tally.refused)
        metrics.count("sqs_fifo.producer.violations", tally.violations)
        metrics.count("sqs_fifo.dedupe.collisions_detected", recorded.collisions)

    def _tell_one(
        self, one: _Arrival, new: set[str], unrecorded: frozenset[str], now: datetime, energy: Energy
    ) -> None:
        """What it brought is not new any more for those after it: copies may come together."""
        brought = {identity for identity, _ in one.received} & new
        told_new = bool(brought)
        new -= brought
        telemetry, message = self.services.telemetry, one.message
        if message.sent_at and message.received_at:
            waited = max(0.0, (message.received_at - message.sent_at).total_seconds())
            telemetry.metrics.observe("processing_latency_seconds", waited, stage="queue")
        for identity, context in one.received:
            refused = identity in unrecorded or (
                one.delivery.refusal is not None and identity == one.delivery.refusal.identity
            )
            fresh = identity in brought
            brought.discard(identity)  # a message may say the same twice
            latency = _milliseconds(message.sent_at, now)
            if fresh and latency is not None:
                telemetry.metrics.observe("event_ingest_latency_ms", latency)
            if one.traced and not refused and self._read_at:
                hit: dict[str, Value] = {"kfm.event_id": identity, "kfm.dedup_hit": not fresh}
                telemetry.spans.past("idempotent_write", self._read_at, now, hit, under=context)
            if refused:
                self._log_refusal(one, identity, context)
            telemetry.records.tell(
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
                    **self._share(energy),
                },
            )
        if self.queue.endswith(".fifo"):
            self._tell_fifo(one, now, dedup_hit=not told_new and not one.delivery.refusal)

    def _tell_fifo(self, one: _Arrival, now: datetime, *, dedup_hit: bool) -> None:
        body = one.message.body.encode()
        self.services.telemetry.metrics.observe("sqs_fifo.body_hash.length_bytes", len(body))
        refusal = one.delivery.refusal
        self.services.telemetry.records.tell(
            "eventbus-v1",
            {
                "at": now.isoformat(),
                "queue": self.queue,
                "event_ids": [identity for identity, _ in one.received],
                "message_id": one.message.message_id or None,
                "message_group": one.message.group,
                "body_hash": hashlib.sha256(body).hexdigest(),
                "body_bytes": len(body),
                "dedup_hit": dedup_hit,
                "violation": refusal is not None and isinstance(refusal.error, UniquenessInAttributes),
            },
        )

    def _tell_all(self, recorded: Recorded, now: datetime) -> None:
        tally = recorded.tally
        self.services.telemetry.records.tell(
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

    def _log_refusal(self, one: _Arrival, identity: str, context: TraceContext) -> None:
        refusal = one.delivery.refusal
        with joined(message_id=one.message.message_id, event_id=identity, trace_id=context.trace_hex, queue=self.queue):
            why = type(refusal.error).__name__ if refusal else "it could not be recorded"
            log.warning("a message was refused: %s", why)

    def _share(self, energy: Energy) -> dict[str, Any]:
        """Of one event: what is not known of all is not known of one."""
        events = max(1, self._events)
        spent = {"energy_ws": energy.watt_seconds, "carbon_g": energy.carbon_grams}
        shared = {name: None if value is None else value / events for name, value in spent.items()}
        return {**shared, "energy_method": energy.method}


def _origin(sender: Sender, identity: str) -> TraceContext:
    """Where its trace begins: with who sent it, or by its identity, which S3 and whoever uploads know too."""
    return sender.context or TraceContext.of_event(identity)


def _milliseconds(sent: datetime | None, now: datetime) -> float | None:
    return None if sent is None else max(0.0, (now - sent).total_seconds() * 1000)


def _now() -> datetime:
    return datetime.now(UTC)
