"""How things stand, as gauges, and what happened, as counts: held against what was made to happen."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from kfm_pipelines.aws.batches import Outgoing
from kfm_pipelines.aws.queue import Queue
from kfm_pipelines.operations.status import indicators
from kfm_pipelines.operations.status.gauges import emit_gauges
from kfm_pipelines.services import Services
from kfm_pipelines.state import kill_switch
from kfm_pipelines.telemetry.metrics.names import METRICS
from kfm_pipelines.telemetry.metrics.reader import Totals
from kfm_pipelines_tests.fixtures.runs.dispatch import spoiled
from kfm_pipelines_tests.fixtures.sites.site import Site
from kfm_pipelines_tests.fixtures.telemetry.home_files import totals


def signs(site: Site) -> Totals:
    emit_gauges(site.services, at_once=True)
    return totals(site.root)


def test_what_happened_is_counted_as_often_as_it_happened(site: Site) -> None:
    """Three hours, one of them told twice, one spoiled, and a message that nobody can read."""
    puts = [site.put(0), site.put(1), site.put(2, spoiled(2))]
    site.send(site.s3_message(puts[0]))
    site.send("rubbish")
    before = signs(site)  # S3's own test events
    site.work()
    told, queue, dataset = signs(site), site.services.queue.name, "usgs/streamflow"
    assert told.counter("messages_received_total", queue=queue) - before.counter("messages_received_total") == 5
    assert told.counter("messages_duplicate_total", queue=queue) == 1
    assert told.counter("event_dedup_hits") == 1
    assert told.counter("keys_settled_total", dataset=dataset, outcome="APPLIED") == 2
    assert told.counter("keys_settled_total", dataset=dataset, outcome="FAILED") == 1
    assert told.counter("event_success_total") == 2
    assert told.counter("event_dlq_count") == 2
    assert told.counter("gate_verdicts_total", gate="qa", verdict="red") == 1
    assert told.counter("object_fetches_total", dataset=dataset, result="fetched") >= 3
    assert told.histogram("processing_latency_seconds", stage="end_to_end").count == 2
    assert told.histogram("event_ingest_latency_ms").count == 3
    assert told.gauge("dead_letter_count", queue=queue) == 2
    assert told.counter("energy_kwh", dataset=dataset, method="estimated") > 0
    assert told.counter("energy_kwh", method="measured") == 0
    assert told.gauge("pipeline_success", dataset=dataset) in (0, 1)


def test_every_declared_metric_has_a_value_after_one_round(site: Site) -> None:
    """But for two that need something to compare with, and something to try again."""
    site.put(0)
    site.put(1)
    site.services.intakes[2].queue.send(site.auto_update_message(site.put(2)), group="one")
    site.work()
    told = signs(site)
    silent = {metric.name for metric in METRICS if not told.series(metric.name)}
    assert silent == set()


def test_a_dedupe_key_used_twice_is_a_collision(site: Site) -> None:
    first, second = site.put(0), site.put(1)
    bodies = [_envelope(site, one.object_key, one.etag, one.size, key="the same") for one in (first, second)]
    for body in bodies:
        site.services.intakes[2].queue.send(body, group="one")
    site.drain()
    assert signs(site).counter("sqs_fifo.dedupe.collisions_detected") == 1
    site.services.intakes[2].queue.send(bodies[1], group="one", deduplication_id="sent again, much later")
    site.drain()
    assert signs(site).counter("sqs_fifo.dedupe.collisions_detected") == 2


def test_uniqueness_in_attributes_is_a_violation(site: Site) -> None:
    site.services.intakes[2].queue.send('{"a": "body"}', {"dedupe_key": "only here"}, group="one")
    site.drain()
    assert signs(site).counter("sqs_fifo.producer.violations") == 1
    assert signs(site).histogram("sqs_fifo.body_hash.length_bytes").count == 1


def test_what_sqs_recognises_is_a_hit_in_its_window(site: Site) -> None:
    from kfm_pipelines.producer.routes import sender_for_route

    way = sender_for_route(site.services, "fifo", "queue", "one")
    for body in ("one", "two", "one", "one"):
        way.send(f'{{"body": "{body}"}}')
    assert signs(site).counter("sqs_fifo.dedupe_window_hits") == 2


class Refusing:
    """A queue that takes nothing."""

    name = "refusing"

    def send_batch(self, batch: Sequence[Outgoing]) -> list[object]:
        from kfm_pipelines.aws.batches import RefusedMessage

        return [RefusedMessage(place, "Throttled", permanent=True) for place, _ in enumerate(batch)]


def test_what_was_not_taken_is_no_hit_the_next_time() -> None:
    from kfm_pipelines.errors import ProducerMistaken
    from kfm_pipelines.producer.send import FifoProducer

    hits: list[int] = []
    producer = FifoProducer(Refusing(), on_window_hit=lambda: hits.append(1))  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(ProducerMistaken):
            producer.send_all([Outgoing("a body", {}, "one")])
    assert hits == []


def test_time_and_freshness(site: Site) -> None:
    site.put(0)
    site.work()
    told, now = signs(site), datetime.now(UTC).timestamp()
    mark = told.gauge("watermark_event_time_seconds", stream="usgs/streamflow")
    lag = told.gauge("watermark_lag_seconds", stream="usgs/streamflow")
    assert mark is not None
    assert lag == pytest.approx(now - mark, abs=60)
    assert told.gauge("published_timestamp_seconds", dataset="usgs/streamflow") == pytest.approx(now, abs=60)
    assert told.gauge("published_timestamp_seconds", dataset="heritage/sites") is None
    assert told.gauge("killed_timestamp_seconds", dataset="usgs/streamflow") == 0


def test_a_killed_dataset_is_seen(site: Site) -> None:
    kill_switch.kill(site.services.database, "usgs/streamflow", "a test", "to see it")
    since = signs(site).gauge("killed_timestamp_seconds", dataset="usgs/streamflow")
    assert since == pytest.approx(datetime.now(UTC).timestamp(), abs=60)


def test_a_double_apply_would_be_seen(site: Site) -> None:
    """The database does not let it happen; so its guard is taken away, and a row is made by hand that says it did."""
    site.put(0)
    site.work()
    assert signs(site).gauge("double_applies", dataset="usgs/streamflow") == 0
    site.services.database.execute("ALTER TABLE kfm.revisions DISABLE TRIGGER USER")
    site.services.database.execute(
        """
        INSERT INTO kfm.revisions (key, revision, txn, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes,
                                   run_id)
        SELECT key, 2, txn + 1000, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes, run_id
        FROM kfm.revisions
        """
    )
    assert signs(site).gauge("double_applies", dataset="usgs/streamflow") == 1


def test_burn_follows_what_failed_and_what_was_slow(site: Site) -> None:
    """One of three keys failed: a third, of a budget of a hundredth. One of two events took six minutes: a half, of a
    budget of a twentieth."""
    for hour in range(2):
        site.put(hour)
    site.put(2, spoiled(2))
    site.work()
    site.services.database.execute(
        "UPDATE kfm.inbox SET sent_at = settled_at - interval '6 min' WHERE key = %(key)s", {"key": site.key(0)}
    )
    told = signs(site)
    assert told.gauge("error_budget_burn_rate", slo="success", window="1h") == pytest.approx(100 / 3)
    assert told.gauge("error_budget_burn_rate", slo="latency", window="1h") == pytest.approx(10)
    assert told.gauge("latency_quantile_seconds", quantile="0.99") == pytest.approx(360, rel=0.05)


def test_what_is_over_does_not_burn_on(site: Site) -> None:
    site.put(0, spoiled(0))
    site.work()
    counted = indicators.count_settled(site.services.database, timedelta(microseconds=1), 300)
    assert counted == indicators.SettledCounts(0, 0, 0, 0)


def test_queues_that_are_away_keep_nothing_else_from_being_told(site: Site) -> None:
    away = Services(site.services.settings)
    away.__dict__["intakes"] = ()
    away.__dict__["dead_letter_queues"] = (Queue("there-is-no-such-queue"),)
    [problem] = emit_gauges(away, at_once=True)
    away.close()
    assert "there-is-no-such-queue" in problem
    assert totals(site.root).gauge("telemetry_timestamp_seconds") is not None


def _envelope(site: Site, object_key: str, etag: str, size: int, *, key: str) -> str:
    from kfm_pipelines.producer.envelope import envelope
    from kfm_pipelines.producer.messages import s3_envelope
    from kfm_pipelines_tests.fixtures.sites.site import START

    payload = s3_envelope(site.bucket, object_key, etag, size, None, START, "an-id")
    return envelope(site.dataset.event_source, key, START, payload).body
