"""Every metric. No label holds a key, an object or a message id, because every value is a series."""

from dataclasses import dataclass, field
from typing import Literal

MetricKind = Literal["counter", "gauge", "histogram"]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120, 180, 300, 600, 1800, 3600, 21600)
MILLISECONDS = tuple(1000 * bound for bound in SECONDS)
BYTES = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)


@dataclass(frozen=True, slots=True)
class Metric:
    """`unit` is UCUM, as OpenTelemetry requires."""

    name: str
    kind: MetricKind
    description: str
    labels: tuple[str, ...] = ()
    unit: str = "1"
    bounds: tuple[float, ...] = field(default=(), repr=False)

    @property
    def prometheus(self) -> str:
        """Returns the name without dots, which Prometheus does not allow."""
        return self.name.replace(".", "_")


METRICS: tuple[Metric, ...] = (
    # queues
    Metric("messages_received_total", "counter", "messages received", ("queue",)),
    Metric("messages_duplicate_total", "counter", "duplicate events", ("queue",)),
    Metric("notices_unwanted_total", "counter", "notices of providers that no dataset takes", ("queue",)),
    Metric("dead_letter_count", "gauge", "open dead letters", ("queue",)),
    Metric("queue_depth_messages", "gauge", "messages waiting in a queue", ("queue",)),
    # events
    Metric("event_ingest_latency_ms", "histogram", "from sent to recorded", (), "ms", MILLISECONDS),
    Metric("event_dedup_hits", "counter", "duplicate events"),
    Metric("event_dlq_count", "counter", "messages and keys that became dead letters"),
    Metric("event_success_total", "counter", "events whose key was published or unchanged"),
    Metric("event_worker_energy_ws", "counter", "energy of ingestion and stages", ("method",), "W.s"),
    Metric("event_worker_carbon_g", "counter", "carbon of ingestion and stages", ("method",), "g"),
    # FIFO queues
    Metric("sqs_fifo.dedupe.collisions_detected", "counter", "events with a known dedupe key and another body"),
    Metric("sqs_fifo.producer.violations", "counter", "messages that are unique only by their attributes"),
    Metric("sqs_fifo.body_hash.length_bytes", "histogram", "length of bodies that SQS hashes", (), "By", BYTES),
    Metric("sqs_fifo.dedupe_window_hits", "counter", "sends that SQS recognised within five minutes"),
    # work
    Metric(
        "processing_latency_seconds",
        "histogram",
        "time of a key in a stage; `queue` is sent to received, `end_to_end` is sent to published",
        ("stage",),
        "s",
        SECONDS,
    ),
    Metric("retry_attempts_total", "counter", "retries of keys", ("reason",)),
    Metric("retry_exhausted_total", "counter", "keys that used up their attempts", ("dataset",)),
    Metric("keys_settled_total", "counter", "settled keys by outcome", ("dataset", "outcome")),
    Metric("gate_verdicts_total", "counter", "verdicts of the gates", ("gate", "verdict")),
    Metric("masking_failures_total", "counter", "keys not masked, or refused by the verifier", ("dataset",)),
    Metric("object_fetches_total", "counter", "objects, fetched or unchanged", ("dataset", "result")),
    Metric("records_left_out_total", "counter", "scenes and other records left out", ("dataset", "reason")),
    Metric("double_applies", "gauge", "revisions with the same inputs as the one before", ("dataset",)),
    # time
    Metric("watermark_event_time_seconds", "gauge", "watermark of a stream", ("stream",), "s"),
    Metric("watermark_lag_seconds", "gauge", "how far the watermark is behind the clock", ("stream",), "s"),
    Metric("watermark_lag_target_seconds", "gauge", "how far the watermark may be behind", ("stream",), "s"),
    Metric("late_held_events", "gauge", "late events held", ("dataset",)),
    Metric("freshness_min", "gauge", "source to published, of the last key", ("dataset",), "min"),
    Metric("freshness_target_min", "gauge", "longest allowed age of the last publication", ("dataset",), "min"),
    Metric("published_timestamp_seconds", "gauge", "time of the last publication", ("dataset",), "s"),
    Metric("killed_timestamp_seconds", "gauge", "time the dataset was killed; 0 if it is not", ("dataset",), "s"),
    # sinks
    Metric("sink_keys_waiting", "gauge", "published keys that a sink does not have yet", ("sink", "dataset")),
    Metric("sink_lag_seconds", "gauge", "how long the first of these keys has waited", ("sink", "dataset"), "s"),
    # runs
    Metric("pipeline_success", "gauge", "1 if the last run succeeded, else 0", ("dataset",)),
    Metric("row_delta_pct", "gauge", "change in rows from the previous revision or window", ("dataset",), "%"),
    Metric("energy_kwh", "counter", "energy of runs", ("dataset", "method"), "kW.h"),
    Metric("co2e_kg", "counter", "carbon of runs", ("dataset", "method"), "kg"),
    Metric("cost_usd", "counter", "cost of runs, estimated", ("dataset",), "{USD}"),
    # service levels
    Metric("latency_quantile_seconds", "gauge", "end-to-end latency over the last hour", ("quantile",), "s"),
    Metric("error_budget_burn_rate", "gauge", "burn rate; 1 uses up the budget exactly in time", ("slo", "window")),
    # telemetry itself
    Metric("telemetry_dropped_total", "counter", "telemetry that could not be written or sent", ("signal",)),
    Metric("telemetry_timestamp_seconds", "gauge", "when the gauges were last read", (), "s"),
)

BY_NAME = {metric.name: metric for metric in METRICS}
