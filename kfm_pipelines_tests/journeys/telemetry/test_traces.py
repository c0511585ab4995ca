"""One trace from whoever sends an event to the published Item; what goes wrong is in it too."""

import json
from collections import Counter
from datetime import timedelta

import pytest

from kfm_pipelines.events import normalise, resolve_event
from kfm_pipelines.inbox import telemetry
from kfm_pipelines.producer.cli import SampleRequest, emit_samples
from kfm_pipelines.producer.routes import sender_for_route
from kfm_pipelines.producer.upload import Topic
from kfm_pipelines.telemetry.logs.configure import configure_logs
from kfm_pipelines.telemetry.traces.context import TRACEPARENT, TraceContext
from kfm_pipelines.telemetry.traces.reader import RecordedSpan
from kfm_pipelines_tests.fixtures.runs.batches import expire_leases, receive, upload
from kfm_pipelines_tests.fixtures.runs.batches import stage as staged
from kfm_pipelines_tests.fixtures.runs.dispatch import spoiled
from kfm_pipelines_tests.fixtures.sites.site import START, Site
from kfm_pipelines_tests.fixtures.telemetry.home_files import ancestors, log_lines, records, spans

ON_THE_WAY = {"sns_to_sqs_delivery", "sqs_receive", "contract_validation", "idempotent_write"}
AT_WORK = {"wal_replay", "extract", "fetch", "transform", "mask", "validate", "stac_write", "publish"}
SAID_OF_WORK = {
    "kfm.pipeline", "kfm.key", "kfm.stage", "kfm.version", "kfm.lineage.inputs", "kfm.lineage.outputs",
    "kfm.energy_kwh", "kfm.co2e_kg", "kfm.cost_usd",
}  # fmt: skip
GATES = {"schema_gate", "qa_gate", "integrity_gate", "care_gate", "governance_gate"}


def emitted(site: Site, road: str = "s3", copies: int = 0) -> str:
    samples = SampleRequest("usgs/streamflow", START, 1, copies=copies, route=road)  # type: ignore[arg-type]
    way = sender_for_route(site.services, samples.route, "topic", "usgs-streamflow")
    [key] = emit_samples(site.services, samples, way, lambda _: None)
    return key


def trace_of(site: Site, key: str) -> list[RecordedSpan]:
    """The spans of the trace in which the key was published."""
    everything = spans(site.root)
    [trace] = {one.trace for one in everything if one.name == "publish" and one.attributes["kfm.key"] == key}
    return [one for one in everything if one.trace == trace]


@pytest.mark.parametrize("road", ["s3", "auto-update", "fifo"])
def test_one_trace_leads_from_the_sender_to_the_item(site: Site, road: str) -> None:
    key = emitted(site, road, copies=1)
    assert site.work()["published"] == 1
    trace = trace_of(site, key)
    named = {one.name for one in trace}
    assert named >= {"publish_event", *ON_THE_WAY, *AT_WORK, *GATES}
    for one in trace:
        if one.name != "publish_event":
            assert ancestors(one, trace)[-1] == "publish_event", f"{one.name} is not under who sent it"
    [publish] = [one for one in trace if one.name == "publish"]
    assert ancestors(publish, trace) == ["sqs_receive", "sns_to_sqs_delivery", "publish_event"]
    assert f"catalog/usgs-streamflow/items/{key}.json" in publish.attributes["kfm.lineage.outputs"]
    assert {one.trace for one in spans(site.root)} == {publish.trace}, "copies of an event are in its trace"


def test_every_span_of_work_says_what_it_is_of_and_what_it_cost(site: Site) -> None:
    key = emitted(site)
    site.work()
    for one in trace_of(site, key):
        if one.name in AT_WORK:
            assert one.attributes.keys() >= SAID_OF_WORK, one.name
            assert one.attributes["kfm.key"] == key
            assert one.attributes["kfm.version"] == "v1-0-0"
            assert one.attributes["kfm.energy_kwh"] > 0
            assert one.attributes["kfm.energy_method"] == "estimated"
            [object_uri] = one.attributes["kfm.lineage.inputs"]
            assert object_uri.startswith(f"s3://{site.bucket}/usgs/streamflow/2025/12/04/00/")


def test_a_gate_is_found_by_the_event_in_spans_and_log(site: Site) -> None:
    key = emitted(site)
    site.work()
    [row] = site.fetch("SELECT identity FROM kfm.inbox")
    gates = [one for one in trace_of(site, key) if one.name in GATES]
    assert {one.name for one in gates} == GATES
    assert all(one.attributes["kfm.event_id"] == [row["identity"]] for one in gates)
    assert all(one.attributes["kfm.verdict"] == "green" for one in gates)
    lines = [line for line in log_lines(site.root) if line["event"].startswith("gate ")]
    assert {line["event"] for line in lines} == {f"gate {one.removesuffix('_gate')} is green" for one in GATES}
    assert {(line["event_id"], line["idempotency_key"], line["trace_id"]) for line in lines} == {
        (row["identity"], key, gates[0].trace)
    }


def test_a_red_gate_and_the_stage_that_fails_by_it_are_marked(site: Site) -> None:
    site.put(0, spoiled(0))
    assert site.work()["failed"] == 1
    failed = {one.name: one.failed for one in spans(site.root) if one.failed is not None}
    assert failed == {"qa_gate": "red", "validate": "QualityRefused"}
    [line] = [line for line in log_lines(site.root) if line["event"] == "failed in validate: QualityRefused"]
    assert line["level"] == "error"
    assert (line["stage"], line["idempotency_key"]) == ("validate", site.key())


def test_a_refused_message_has_a_trace_and_a_line_with_its_id(site: Site) -> None:
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


@pytest.mark.parametrize("said", ["00-zz", "x" * 5000, f"00-{'0' * 32}-{'0' * 16}-01"])
def test_a_made_up_context_is_not_used(site: Site, said: str) -> None:
    put = site.put()
    site.drain()
    message = site.s3_message(put, version_id=None)
    site.services.queue.send(message, {TRACEPARENT: said})
    site.drain()
    [event] = [resolve_event(notice, site.services.datasets) for notice in normalise(message)]
    rows = site.services.database.fetch(
        "SELECT trace FROM kfm.inbox WHERE identity = %(identity)s", {"identity": event.identity}
    )
    kept = TraceContext.parse(rows[0]["trace"])
    assert kept is not None
    assert kept.trace_id == TraceContext.of_event(event.identity).trace_id


def test_the_times_of_a_message_follow_each_other(site: Site) -> None:
    key = emitted(site)
    site.work()
    trace = {one.name: one for one in trace_of(site, key)}
    assert trace["sns_to_sqs_delivery"].ended <= trace["sqs_receive"].ended
    assert trace["sqs_receive"].ended <= trace["contract_validation"].begun + timedelta(seconds=1)
    assert trace["contract_validation"].ended <= trace["idempotent_write"].ended


def test_in_a_storm_some_messages_have_spans_and_all_have_a_trace(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_a_dead_run_left_is_looked_for_and_what_it_cost_is_unknown(site: Site) -> None:
    """Its stages were begun; that nobody knows what they cost is on record."""
    one = upload(site)
    receive(site.services, one)
    staged(site.services, site.dataset, [one.key], "a run that dies")
    site.services.database.execute("DELETE FROM kfm.energy")  # as if it had died before it could enter anything
    expire_leases(site.services)
    assert site.work()["published"] == 1
    rows = site.fetch("SELECT run_id, stage, method, watt_seconds FROM kfm.energy WHERE method = 'unknown' ORDER BY id")
    assert [(row["run_id"], row["stage"]) for row in rows] == [
        ("a run that dies", stage) for stage in ("compute", "mask", "validate", "stage", "publish")
    ]
    assert {row["watt_seconds"] for row in rows} == {None}


def test_a_replay_has_a_trace_of_its_own_that_leads_to_the_first(site: Site) -> None:
    from kfm_pipelines.stages.telemetry.spans import StageTelemetry
    from kfm_pipelines.stages.trigger import RunTrigger

    key = emitted(site)
    site.work()
    first = trace_of(site, key)[0].trace
    work = StageTelemetry(site.services, site.dataset, "a-run", RunTrigger(replay="r-1"))
    assert work.trace_of(key) == TraceContext.of_event(f"r-1:{key}")
    assert work.trace_of(key).trace_hex != first


def test_without_telemetry_nothing_is_written_and_everything_works(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
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
