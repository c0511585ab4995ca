"""Gauges show the current state and counters what happened, compared with what was made to happen."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from kfm_pipelines.aws.batches import Outgoing, RefusedMessage
from kfm_pipelines.aws.queue import Queue
from kfm_pipelines.errors import ProducerMistaken
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.status import tables
from kfm_pipelines.operations.status.gauges import emit_gauges
from kfm_pipelines.producer.envelope import envelope
from kfm_pipelines.producer.messages import s3_envelope
from kfm_pipelines.producer.routes import sender_for_route
from kfm_pipelines.producer.upload import FifoProducer
from kfm_pipelines.services import Services
from kfm_pipelines.state import kill_switch
from kfm_pipelines.state.outbox import Sink, acknowledge, due, request
from kfm_pipelines.telemetry.metrics.names import METRICS
from kfm_pipelines.telemetry.metrics.reader import Totals
from kfm_pipelines_tests.fixtures.runs.dispatch import spoiled
from kfm_pipelines_tests.fixtures.sites.site import START, Site, opened_site
from kfm_pipelines_tests.fixtures.telemetry.home_files import totals

STREAMFLOW = "usgs/streamflow"


def emitted(site: Site) -> Totals:
    emit_gauges(site.services, at_once=True)
    return totals(site.root)


@pytest.fixture(scope="module")
def worked(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three hours, one of them announced twice and one spoiled, and an unreadable message."""
    root = tmp_path_factory.mktemp("worked") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as site:
        puts = [site.put(0), site.put(1), site.put(2, spoiled(2))]
        site.send(site.s3_message(puts[0]))
        site.send("rubbish")
        site.work()
        yield site


@pytest.fixture(scope="module")
def fifo(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose FIFO queue is used and that runs nothing."""
    root = tmp_path_factory.mktemp("fifo") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as site:
        yield site


def test_events_are_counted_as_often_as_they_happened(worked: Site) -> None:
    found, queue = emitted(worked), worked.services.queue.name
    assert found.counter("messages_received_total", queue=queue) >= 5  # and S3's own test events
    assert found.counter("messages_duplicate_total", queue=queue) == 1
    assert found.counter("event_dedup_hits") == 1
    assert found.counter("keys_settled_total", dataset=STREAMFLOW, outcome="APPLIED") == 2
    assert found.counter("keys_settled_total", dataset=STREAMFLOW, outcome="FAILED") == 1
    assert found.counter("event_success_total") == 2
    assert found.counter("event_dlq_count") == 2
    assert found.counter("gate_verdicts_total", gate="qa", verdict="red") == 1
    assert found.counter("object_fetches_total", dataset=STREAMFLOW, result="fetched") >= 3
    assert found.histogram("processing_latency_seconds", stage="end_to_end").count == 2
    assert found.histogram("event_ingest_latency_ms").count == 3
    assert found.gauge("dead_letter_count", queue=queue) == 2
    assert found.counter("energy_kwh", dataset=STREAMFLOW, method="estimated") > 0
    assert found.counter("energy_kwh", method="measured") == 0
    assert found.gauge("pipeline_success", dataset=STREAMFLOW) in (0, 1)


def test_time_and_freshness(worked: Site) -> None:
    found, now = emitted(worked), datetime.now(UTC).timestamp()
    mark = found.gauge("watermark_event_time_seconds", stream=STREAMFLOW)
    assert mark is not None
    assert found.gauge("watermark_lag_seconds", stream=STREAMFLOW) == pytest.approx(now - mark, abs=60)
    [row] = worked.fetch("SELECT max(at) AS at FROM kfm.ledger")
    assert found.gauge("published_timestamp_seconds", dataset=STREAMFLOW) == pytest.approx(row["at"].timestamp())
    assert found.gauge("published_timestamp_seconds", dataset="heritage/sites") is None
    assert found.gauge("killed_timestamp_seconds", dataset=STREAMFLOW) == 0


def test_burn_rates_follow_failed_keys_and_slow_events(worked: Site) -> None:
    """One of three keys failed, with a budget of 1 %. One of two events took six minutes, with a budget of 5 %."""
    worked.services.database.execute(
        "UPDATE kfm.inbox SET sent_at = settled_at - interval '6 min' WHERE key = %(key)s", {"key": worked.key(0)}
    )
    found = emitted(worked)
    assert found.gauge("error_budget_burn_rate", slo="success", window="1h") == pytest.approx(100 / 3)
    assert found.gauge("error_budget_burn_rate", slo="latency", window="1h") == pytest.approx(10)
    assert found.gauge("latency_quantile_seconds", quantile="0.99") == pytest.approx(360, rel=0.05)


def test_past_failures_do_not_burn(worked: Site) -> None:
    counted = tables.count_settled(worked.services.database, timedelta(microseconds=1), 300)
    assert counted == tables.SettledCounts(0, 0, 0, 0)


def test_a_double_apply_is_counted(worked: Site) -> None:
    """The database prevents it; so the test disables its guard and inserts a row by hand."""
    assert emitted(worked).gauge("double_applies", dataset=STREAMFLOW) == 0
    worked.services.database.execute("ALTER TABLE kfm.revisions DISABLE TRIGGER USER")
    worked.services.database.execute(
        """
        INSERT INTO kfm.revisions (key, revision, txn, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes,
                                   run_id)
        SELECT key, 2, txn + 1000, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes, run_id
        FROM kfm.revisions ORDER BY key LIMIT 1
        """
    )
    assert emitted(worked).gauge("double_applies", dataset=STREAMFLOW) == 1


def test_unreachable_queues_do_not_stop_other_gauges(worked: Site) -> None:
    away = Services(worked.services.settings)
    away.__dict__["intakes"] = ()
    away.__dict__["dead_letter_queues"] = (Queue("there-is-no-such-queue"),)
    [problem] = emit_gauges(away, at_once=True)
    away.close()
    assert "there-is-no-such-queue" in problem
    assert totals(worked.root).gauge("telemetry_timestamp_seconds") is not None


def test_a_killed_dataset_has_its_time(worked: Site) -> None:
    kill_switch.kill(worked.services.database, STREAMFLOW, "a test", "to see it")
    [killed] = kill_switch.killed_datasets(worked.services.database).values()
    since = emitted(worked).gauge("killed_timestamp_seconds", dataset=STREAMFLOW)
    assert since == pytest.approx(killed.at.timestamp())


def test_a_sink_that_is_behind_is_seen_until_it_has_caught_up(worked: Site) -> None:
    database, graph = worked.services.database, {"sink": "graph", "dataset": STREAMFLOW}
    with database.transaction() as connection:
        request(connection, [Sink.GRAPH], STREAMFLOW, [worked.key(0), worked.key(1)])
    database.execute("UPDATE kfm.outbox SET at = at - interval '2 hours' WHERE key = %(key)s", {"key": worked.key(1)})
    found = emitted(worked)
    assert found.gauge("sink_keys_waiting", **graph) == 2
    assert found.gauge("sink_lag_seconds", **graph) == pytest.approx(7200, abs=60)
    assert found.gauge("sink_keys_waiting", sink="table", dataset=STREAMFLOW) == 0
    with database.transaction() as connection:
        acknowledge(
            connection, Sink.GRAPH, due(database, Sink.GRAPH, STREAMFLOW, keys=[worked.key(0), worked.key(1)], limit=10)
        )
    found = emitted(worked)
    assert (found.gauge("sink_keys_waiting", **graph), found.gauge("sink_lag_seconds", **graph)) == (0, 0)


def test_every_declared_metric_has_a_value_after_one_round(site: Site) -> None:
    site.put(0)
    site.put(1)
    site.services.intakes[2].queue.send(site.auto_update_message(site.put(2)), group="one")
    site.work()
    found = emitted(site)
    assert {metric.name for metric in METRICS if not found.series(metric.name)} == set()


def test_a_dedupe_key_used_twice_is_a_collision(fifo: Site) -> None:
    queue = fifo.services.intakes[2].queue
    bodies = []
    for put in (fifo.put(0), fifo.put(1)):
        payload = s3_envelope(fifo.bucket, put.object_key, put.etag, put.size, None, START, "an-id")
        bodies.append(envelope(fifo.dataset.event_source, "the same", START, payload).body)
        queue.send(bodies[-1], group="one")
    fifo.drain()
    assert emitted(fifo).counter("sqs_fifo.dedupe.collisions_detected") == 1
    queue.send(bodies[1], group="one", deduplication_id="sent again, much later")
    fifo.drain()
    assert emitted(fifo).counter("sqs_fifo.dedupe.collisions_detected") == 2


def test_a_deduplication_key_only_in_attributes_is_a_violation(fifo: Site) -> None:
    before = emitted(fifo).histogram("sqs_fifo.body_hash.length_bytes").count
    fifo.services.intakes[2].queue.send('{"a": "body"}', {"dedupe_key": "only here"}, group="one")
    fifo.drain()
    assert emitted(fifo).counter("sqs_fifo.producer.violations") == 1
    assert emitted(fifo).histogram("sqs_fifo.body_hash.length_bytes").count == before + 1


def test_a_body_sent_again_is_a_hit_in_the_deduplication_window(fifo: Site) -> None:
    sender = sender_for_route(fifo.services, "fifo", "queue", "one")
    for body in ("one", "two", "one", "one"):
        sender.send(f'{{"body": "{body}"}}')
    assert emitted(fifo).counter("sqs_fifo.dedupe_window_hits") == 2


class Refusing:
    """A queue that refuses everything."""

    name = "refusing"

    def send_batch(self, batch: Sequence[Outgoing]) -> list[RefusedMessage]:
        return [RefusedMessage(place, "Throttled", permanent=True) for place, _ in enumerate(batch)]


def test_a_refused_body_is_no_hit_when_sent_again() -> None:
    hits: list[int] = []
    producer = FifoProducer(Refusing(), on_window_hit=lambda: hits.append(1))
    for _ in range(2):
        with pytest.raises(ProducerMistaken):
            producer.send_all([Outgoing("a body", {}, "one")])
    assert hits == []
