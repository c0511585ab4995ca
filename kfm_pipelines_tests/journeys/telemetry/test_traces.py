"""One trace leads from the producer of an event to the published Item, failures included."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from kfm_pipelines.events import normalise, resolve_event
from kfm_pipelines.inbox import telemetry
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.producer.cli import SampleRequest, emit_samples
from kfm_pipelines.producer.routes import sender_for_route
from kfm_pipelines.producer.upload import Topic
from kfm_pipelines.telemetry.logs.configure import configure_logs
from kfm_pipelines.telemetry.traces.reader import RecordedSpan
from kfm_pipelines.telemetry.traces.spans import TRACEPARENT, TraceContext
from kfm_pipelines_tests.fixtures.runs.batches import expire_leases, receive, upload
from kfm_pipelines_tests.fixtures.runs.batches import stage as staged
from kfm_pipelines_tests.fixtures.runs.dispatch import spoiled
from kfm_pipelines_tests.fixtures.sites.site import START, Site, opened_site
from kfm_pipelines_tests.fixtures.telemetry.home_files import ancestors, log_lines, records, spans

DELIVERY = {"sns_to_sqs_delivery", "sqs_receive", "contract_validation", "idempotent_write"}
WORK = {"wal_replay", "extract", "fetch", "transform", "mask", "validate", "stac_write", "publish"}
WORK_ATTRIBUTES = {
    "kfm.pipeline", "kfm.key", "kfm.stage", "kfm.version", "kfm.lineage.inputs", "kfm.lineage.outputs",
    "kfm.energy_kwh", "kfm.co2e_kg", "kfm.cost_usd",
}  # fmt: skip
GATES = {"schema_gate", "qa_gate", "integrity_gate", "care_gate", "governance_gate"}


def emitted(site: Site, route: str = "s3", copies: int = 0) -> str:
    samples = SampleRequest("usgs/streamflow", START, 1, copies=copies, route=route)  # type: ignore[arg-type]
    sender = sender_for_route(site.services, samples.route, "topic", "usgs-streamflow")
    [key] = emit_samples(site.services, samples, sender, lambda _: None)
    return key


def trace_of(site: Site, key: str) -> list[RecordedSpan]:
    """Returns the spans of the trace in which the key was published."""
    everything = spans(site.root)
    [trace] = {one.trace for one in everything if one.name == "publish" and one.attributes["kfm.key"] == key}
    return [one for one in everything if one.trace == trace]


@pytest.fixture(scope="module")
def traced(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site that published one key twice sent, for tests that change nothing."""
    root = tmp_path_factory.mktemp("traced") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as site:
        emitted(site, copies=1)
        assert site.work()["published"] == 1
        yield site


@pytest.mark.parametrize("route", ["auto-update", "fifo"])
def test_one_trace_leads_from_the_producer_to_the_item(site: Site, route: str) -> None:
    key = emitted(site, route, copies=1)
    assert site.work()["published"] == 1
    assert_one_trace(site, key)


def test_one_trace_leads_from_s3_to_the_item(traced: Site) -> None:
    assert_one_trace(traced, traced.key())


def assert_one_trace(site: Site, key: str) -> None:
    trace = trace_of(site, key)
    named = {one.name for one in trace}
    assert named >= {"publish_event", *DELIVERY, *WORK, *GATES}
    for one in trace:
        if one.name != "publish_event":
            assert ancestors(one, trace)[-1] == "publish_event", f"{one.name} is not below its producer"
    [publish] = [one for one in trace if one.name == "publish"]
    assert ancestors(publish, trace) == ["sqs_receive", "sns_to_sqs_delivery", "publish_event"]
    assert f"catalog/usgs-streamflow/items/{key}.json" in publish.attributes["kfm.lineage.outputs"]
    assert {one.trace for one in spans(site.root)} == {publish.trace}, "copies of an event belong to its trace"


def test_every_span_of_work_has_its_key_lineage_and_cost(traced: Site) -> None:
    key = traced.key()
    for one in trace_of(traced, key):
        if one.name in WORK:
            assert one.attributes.keys() >= WORK_ATTRIBUTES, one.name
            assert one.attributes["kfm.key"] == key
            assert one.attributes["kfm.version"] == "v1-0-0"
            assert one.attributes["kfm.energy_kwh"] > 0
            assert one.attributes["kfm.energy_method"] == "estimated"
            [object_uri] = one.attributes["kfm.lineage.inputs"]
            assert object_uri.startswith(f"s3://{traced.bucket}/usgs/streamflow/2025/12/04/00/")


def test_gates_are_found_by_event_in_spans_and_log(traced: Site) -> None:
    key = traced.key()
    [row] = traced.fetch("SELECT identity FROM kfm.inbox")
    gates = [one for one in trace_of(traced, key) if one.name in GATES]
    assert {one.name for one in gates} == GATES
    assert all(one.attributes["kfm.event_id"] == [row["identity"]] for one in gates)
    assert all(one.attributes["kfm.verdict"] == "green" for one in gates)
    lines = [line for line in log_lines(traced.root) if line["event"].startswith("gate ")]
    assert {line["event"] for line in lines} == {f"gate {one.removesuffix('_gate')} is green" for one in GATES}
    assert {(line["event_id"], line["idempotency_key"], line["trace_id"]) for line in lines} == {
        (row["identity"], key, gates[0].trace)
    }


def test_a_red_gate_and_its_stage_are_marked_as_failed(site: Site) -> None:
    site.put(0, spoiled(0))
    assert site.work()["failed"] == 1
    failed = {one.name: one.failed for one in spans(site.root) if one.failed is not None}
    assert failed == {"qa_gate": "red", "validate": "QualityRefused"}
    [line] = [line for line in log_lines(site.root) if line["event"] == "failed in validate: QualityRefused"]
    assert line["level"] == "error"
    assert (line["stage"], line["idempotency_key"]) == ("validate", site.key())


def test_a_refused_message_has_a_trace_and_a_log_line(site: Site) -> None:
    with site.services.telemetry.spans.span("a test") as mine:
        assert mine is not None
        sender = TraceContext(mine.get_span_context().trace_id, mine.get_span_context().span_id)
        site.services.queue.send("rubbish", {TRACEPARENT: sender.traceparent})
    configure_logs(site.services.settings)
    site.drain()
    site.services.telemetry.flush()
    refused = [one for one in spans(site.root) if one.name == "contract_validation"]
    assert [(one.trace, one.failed) for one in refused] == [(sender.trace_hex, "BodyUnreadable")]
    [line] = [line for line in log_lines(site.root) if line["event"].startswith("a message was refused")]
    [record] = records(site.root, "event-ingest-v1")
    assert line["trace_id"] == sender.trace_hex
    assert line["message_id"] == record["message_id"]
    assert (record["dlq"], record["event_id"]) == (True, line["event_id"])


def test_an_invalid_context_is_not_used(site: Site) -> None:
    put = site.put()
    site.drain()
    for number, invalid in enumerate(("00-zz", "x" * 5000, f"00-{'0' * 32}-{'0' * 16}-01")):
        message = site.s3_message(put, version_id=f"v{number}")
        site.services.queue.send(message, {TRACEPARENT: invalid})
        site.drain()
        assert_own_trace(site, message)


def assert_own_trace(site: Site, message: str) -> None:
    [event] = [resolve_event(notice, site.services.datasets) for notice in normalise(message)]
    rows = site.services.database.fetch(
        "SELECT trace FROM kfm.inbox WHERE identity = %(identity)s", {"identity": event.identity}
    )
    kept = TraceContext.parse(rows[0]["trace"])
    assert kept is not None
    assert kept.trace_id == TraceContext.of_event(event.identity).trace_id


def test_the_spans_of_a_message_follow_each_other(traced: Site) -> None:
    key = traced.key()
    trace = {one.name: one for one in trace_of(traced, key)}
    assert trace["sns_to_sqs_delivery"].ended <= trace["sqs_receive"].ended
    assert trace["sqs_receive"].ended <= trace["contract_validation"].begun + timedelta(seconds=1)
    assert trace["contract_validation"].ended <= trace["idempotent_write"].ended


def test_of_many_messages_some_have_spans_and_all_have_a_trace(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "TRACED_AT_ONCE", 3)
    put = site.put()
    site.drain()
    site.services.telemetry.flush()
    messages = [site.s3_message(put, version_id=f"v{number}") for number in range(10)]
    before = Counter(one.name for one in spans(site.root))
    site.send_all(messages)
    site.drain()
    site.services.telemetry.flush()
    after = Counter(one.name for one in spans(site.root))
    assert after["sqs_receive"] - before["sqs_receive"] == 3
    assert site.fetch("SELECT count(*) AS n, count(DISTINCT trace) AS traces FROM kfm.inbox") == [
        {"n": 11, "traces": 11}
    ]


def test_the_cost_of_a_dead_run_is_unknown(site: Site) -> None:
    one = upload(site)
    receive(site.services, one)
    staged(site.services, site.dataset, [one.key], "a run that dies")
    site.services.database.execute("DELETE FROM kfm.energy")  # as if it had died before recording anything
    expire_leases(site.services)
    assert site.work()["published"] == 1
    rows = site.fetch("SELECT run_id, stage, method, watt_seconds FROM kfm.energy WHERE method = 'unknown' ORDER BY id")
    assert [(row["run_id"], row["stage"]) for row in rows] == [
        ("a run that dies", stage) for stage in ("compute", "mask", "validate", "stage", "publish")
    ]
    assert {row["watt_seconds"] for row in rows} == {None}


def test_a_replay_has_its_own_trace(traced: Site) -> None:
    from kfm_pipelines.stages.telemetry.spans import StageTelemetry
    from kfm_pipelines.stages.trigger import RunTrigger

    key = traced.key()
    first = trace_of(traced, key)[0].trace
    work = StageTelemetry(traced.services, traced.dataset, "a-run", RunTrigger(replay="r-1"))
    assert work.trace_of(key) == TraceContext.of_event(f"r-1:{key}")
    assert work.trace_of(key).trace_hex != first


def test_without_telemetry_everything_works_and_nothing_is_written(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from kfm_pipelines.services import Services
    from kfm_pipelines_tests.fixtures.sites.site import work_once

    monkeypatch.setenv("KFM_TELEMETRY", "off")
    silent = Services(replace(site.services.settings, telemetry=False))
    Topic(site.services.settings.topic).send(site.s3_message(site.put()))
    before = json.dumps([str(one) for one in spans(site.root)])
    try:
        assert work_once(silent).counts()["published"] == 1
    finally:
        silent.close()
    assert json.dumps([str(one) for one in spans(site.root)]) == before
