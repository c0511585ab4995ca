"""Reads the current state from the database and the queues and emits it as gauges."""

import time
from datetime import UTC, datetime, timedelta

from kfm_pipelines.errors import KfmError
from kfm_pipelines.operations.status import tables
from kfm_pipelines.operations.status.objectives import (
    burn_rate,
    format_prometheus_duration,
    lag_target,
    load_objectives,
)
from kfm_pipelines.services import Services
from kfm_pipelines.state import kill_switch
from kfm_pipelines.state.outbox import Sink, backlogs
from kfm_pipelines.telemetry.metrics.instruments import Instruments
from kfm_pipelines.telemetry.process import best_effort
from kfm_pipelines.watermarks import late_lane
from kfm_pipelines.watermarks.queries import read_watermarks

INTERVAL_SECONDS = 15.0
LAST_EMITTED = "vital signs"
QUANTILES = {"0.5": 0.5, "0.95": 0.95, "0.99": 0.99}
LATENCY_WINDOW = timedelta(hours=1)
DOUBLE_APPLY_WINDOW = timedelta(days=1)


def emit_gauges(services: Services, *, at_once: bool = False) -> list[str]:
    """Emits at most every 15 seconds. Returns a sentence for each part that could not be read."""
    problems: list[str] = []
    with best_effort(services.telemetry, "how things stand", "metric"):
        now, taken = time.monotonic(), services.cache.get(LAST_EMITTED)
        if taken is None:
            _initialise_counters(services)
        if at_once or taken is None or now - taken >= INTERVAL_SECONDS:
            services.cache[LAST_EMITTED] = now
            for emit in (_emit_database_gauges, _emit_queue_gauges):
                try:
                    emit(services, services.telemetry.metrics)
                except KfmError as error:
                    problems.append(str(error))
    services.telemetry.flush()
    return problems


def _initialise_counters(services: Services) -> None:
    """Starts every counter at 0, so that its first increase is visible."""
    metrics = services.telemetry.metrics
    for name in (
        "event_dedup_hits", "event_dlq_count", "event_success_total", "sqs_fifo.dedupe.collisions_detected",
        "sqs_fifo.producer.violations", "sqs_fifo.dedupe_window_hits",
    ):  # fmt: skip
        metrics.count(name, 0)
    for intake in services.intakes:
        metrics.count("messages_received_total", 0, queue=intake.queue.name)
        metrics.count("messages_duplicate_total", 0, queue=intake.queue.name)
    for dataset in services.datasets:
        metrics.count("retry_exhausted_total", 0, dataset=dataset)
        metrics.count("masking_failures_total", 0, dataset=dataset)
        for outcome in ("APPLIED", "SKIPPED", "FAILED"):
            metrics.count("keys_settled_total", 0, dataset=dataset, outcome=outcome)
    metrics.count("retry_attempts_total", 0, reason="Retryable")
    for signal in ("span", "metric", "record"):
        metrics.count("telemetry_dropped_total", 0, signal=signal)


def _emit_queue_gauges(services: Services, metrics: Instruments) -> None:
    for queue in (*(intake.queue for intake in services.intakes), *services.dead_letter_queues):
        depth = queue.depth()
        metrics.set("queue_depth_messages", depth.waiting + depth.in_flight, queue=queue.name)


def _emit_database_gauges(services: Services, metrics: Instruments) -> None:
    database, now = services.database, datetime.now(UTC)
    _emit_dead_letter_gauges(services, metrics)
    _emit_dataset_gauges(services, metrics, now)
    _emit_sink_gauges(services, metrics, now)
    doubled = tables.double_applies(database, DOUBLE_APPLY_WINDOW)
    for name in services.datasets:
        metrics.set("double_applies", doubled.get(name, 0), dataset=name)
    values = tables.latency_quantiles(database, LATENCY_WINDOW, list(QUANTILES.values()))
    for label, seconds in zip(QUANTILES, values, strict=False):
        metrics.set("latency_quantile_seconds", seconds, quantile=label)
    objectives = load_objectives(services.settings.resources)
    for window in objectives.windows:
        settled = tables.count_settled(database, window, objectives.latency.total_seconds())
        for slo, bad, total in (("success", settled.failed, settled.keys), ("latency", settled.slow, settled.events)):
            rate = burn_rate(getattr(objectives.objectives, slo), bad, total)
            metrics.set("error_budget_burn_rate", rate, slo=slo, window=format_prometheus_duration(window))
    metrics.set("telemetry_timestamp_seconds", now.timestamp())


def _emit_dead_letter_gauges(services: Services, metrics: Instruments) -> None:
    """Counts letters by the queue of their message; letters of keys count for the ordinary queue."""
    waiting = tables.letters_by_queue(services.database)
    of_keys = waiting.pop(None, 0)
    for intake in services.intakes:
        name = intake.queue.name
        count = waiting.get(name, 0) + (of_keys if name == services.queue.name else 0)
        metrics.set("dead_letter_count", count, queue=name)


def _emit_dataset_gauges(services: Services, metrics: Instruments, now: datetime) -> None:
    marks, held = read_watermarks(services.database), late_lane.count_held_by_dataset(services.database)
    killed = kill_switch.killed_datasets(services.database)
    published = tables.last_published(services.database, services.datasets)
    for name, dataset in services.datasets.items():
        if name in marks:
            metrics.set("watermark_event_time_seconds", marks[name].timestamp(), stream=name)
            metrics.set("watermark_lag_seconds", max(0.0, (now - marks[name]).total_seconds()), stream=name)
        if (target := lag_target(dataset)) is not None:
            metrics.set("watermark_lag_target_seconds", target.total_seconds(), stream=name)
        if dataset.slo.freshness is not None:
            metrics.set("freshness_target_min", dataset.slo.freshness.total_seconds() / 60, dataset=name)
        if name in published:
            metrics.set("published_timestamp_seconds", published[name].timestamp(), dataset=name)
        metrics.set("late_held_events", held.get(name, 0), dataset=name)
        metrics.set("killed_timestamp_seconds", killed[name].at.timestamp() if name in killed else 0, dataset=name)


def _emit_sink_gauges(services: Services, metrics: Instruments, now: datetime) -> None:
    """Emits zeros too, so that an alert ends when a sink has caught up."""
    waiting = {(one.sink, one.dataset): one for one in backlogs(services.database)}
    for sink, name in sorted({*waiting, *((sink, name) for sink in Sink for name in services.datasets)}):
        behind = waiting.get((sink, name))
        lag = max(0.0, (now - behind.since).total_seconds()) if behind else 0.0
        metrics.set("sink_keys_waiting", behind.keys if behind else 0, sink=sink, dataset=name)
        metrics.set("sink_lag_seconds", lag, sink=sink, dataset=name)
