"""Telemetry and accounting never stop work, and count nothing twice."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kfm_pipelines.energy.emit import record_lost_costs
from kfm_pipelines.energy.meter import Meter, Usage
from kfm_pipelines.operations.dead_letters.collect import collect_dead_messages
from kfm_pipelines.operations.status import tables
from kfm_pipelines.operations.status.gauges import emit_gauges
from kfm_pipelines.services import Services
from kfm_pipelines.stages.batch import Batch
from kfm_pipelines.stages.telemetry import spans as stage_spans
from kfm_pipelines.stages.telemetry.spans import begin_run_metering, emit_run_end
from kfm_pipelines.stages.telemetry.tables import origins_of, settled_events
from kfm_pipelines.state.keys import Claims
from kfm_pipelines.state.wal import Step
from kfm_pipelines_tests.fixtures.runs.batches import receive, upload
from kfm_pipelines_tests.fixtures.runs.energy import stage_totals
from kfm_pipelines_tests.fixtures.runs.keys import advance, begin, skip
from kfm_pipelines_tests.fixtures.sites.site import Site, work_once
from kfm_pipelines_tests.fixtures.telemetry.home_files import records, spans, totals


def test_without_coefficients_keys_are_published_and_their_energy_is_unknown(site: Site) -> None:
    (site.services.settings.resources / "telemetry" / "energy.yaml").write_text("watts_idle: {value: much}\n")
    site.put()
    assert site.work()["published"] == 1
    assert site.fetch("SELECT 1 FROM kfm.energy WHERE dataset IS NOT NULL AND method <> 'unknown'") == []
    assert site.fetch("SELECT 1 FROM kfm.dead_letters") == []


def test_a_ledger_that_refuses_entries_fails_no_key(site: Site) -> None:
    site.services.database.execute("ALTER TABLE kfm.energy ADD CONSTRAINT refuses_all CHECK (false) NOT VALID")
    site.put()
    assert site.work()["published"] == 1
    assert totals(site.root).counter("telemetry_dropped_total", signal="energy") > 0


def test_origins_that_cannot_be_read_fail_no_key(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> dict[str, object]:
        raise KeyError("anything")

    monkeypatch.setattr("kfm_pipelines.stages.telemetry.spans.origins_of", broken)
    site.put()
    assert site.work()["published"] == 1


def test_gauges_that_cannot_be_read_lose_no_tick(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(tables, "double_applies", broken)
    assert emit_gauges(site.services, at_once=True) == []
    assert totals(site.root).counter("telemetry_dropped_total", signal="metric") == 1


def test_the_same_record_twice_in_a_message_is_one_event_and_one_copy(site: Site) -> None:
    [record] = json.loads(site.s3_message(site.put()))["Records"]
    site.drain()
    before = len(records(site.root, "event-ingest-v1"))
    other = json.loads(json.dumps(record))
    other["s3"]["object"]["versionId"] = "another"
    site.send(json.dumps({"Records": [other, other]}))
    tally = site.drain()
    assert (tally.recorded, tally.duplicates) == (1, 1)
    assert [one["dedup_hit"] for one in records(site.root, "event-ingest-v1")[before:]] == [False, True]


def test_a_message_refused_by_the_database_is_recorded_as_a_dead_letter(site: Site) -> None:
    site.services.database.execute("ALTER TABLE kfm.inbox ADD CONSTRAINT unlucky CHECK (size <> 1)")
    site.send(site.s3_message(replace(site.put(), size=1)))
    site.drain()
    dead = [one for one in records(site.root, "event-ingest-v1") if one["dlq"]]
    assert len(dead) == 1
    assert not dead[0]["dedup_hit"]


def test_messages_in_the_dead_letter_queue_are_counted(site: Site) -> None:
    [dead] = [queue for queue in site.services.dead_letter_queues if not queue.name.endswith(".fifo")]
    dead.send("rubbish that somebody moved here")
    assert collect_dead_messages(site.services) == 1
    site.services.telemetry.flush()
    assert totals(site.root).counter("event_dlq_count") == 1


def test_an_event_counts_for_the_transaction_that_settles_it(site: Site) -> None:
    """One arrives while another is being processed. Each is counted when it is settled."""
    first = upload(site, version=0)
    receive(site.services, first)
    batch = Batch(site.services, site.dataset, "first")
    batch.compute([first.key])
    [claim] = batch.held_claims([first.key])
    receive(site.services, upload(site, version=1))
    site.services.database.execute(
        "UPDATE kfm.inbox SET ready_at = 'infinity', sent_at = clock_timestamp() WHERE state = 'received'"
    )
    [origin] = origins_of(site.services.database, [first.key]).values()
    [started] = site.fetch("SELECT identity FROM kfm.inbox WHERE state = 'started'")
    assert origin.events[0] == started["identity"], "the trace must stay that of the event the run started with"
    skip(site.services.database, claim, {"reason": "a test"})
    answered = settled_events(site.services.database, {first.key: claim.epoch})
    assert answered[first.key].events == 1


def test_a_stage_after_the_publish_intent_is_unknown_too(site: Site) -> None:
    one = upload(site)
    receive(site.services, one)
    claim = Claims(site.services.database, "a run that dies", 30, dataset=site.dataset.dataset).take(one.key)
    begin(site.services.database, claim)
    for step in (Step.COMPUTE, Step.MASK, Step.VALIDATE, Step.STAGE_ATOMIC, Step.PUBLISH):
        advance(site.services.database, claim, step)
    record_lost_costs(site.services, site.dataset.dataset, [one.key])
    record_lost_costs(site.services, site.dataset.dataset, [one.key])
    rows = site.fetch("SELECT stage FROM kfm.energy WHERE method = 'unknown' ORDER BY id")
    assert [row["stage"] for row in rows] == ["compute", "mask", "validate", "stage", "publish"]


def test_the_entries_of_a_run_add_up_to_its_usage(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[Usage] = []

    class RecordingMeter(Meter):
        def read(self) -> Usage:
            readings.append(super().read())
            return readings[-1]

    monkeypatch.setattr(stage_spans, "Meter", RecordingMeter)
    site.put(0)
    site.put(1)
    assert work_once(site.services).counts()["published"] == 2
    [run] = site.fetch("SELECT DISTINCT run_id FROM kfm.wal")
    stages = stage_totals(site.services.database, run["run_id"])
    assert stages.keys() == {"compute", "mask", "validate", "stage", "publish", "other"}
    whole = max(one.cpu_seconds or 0 for one in readings)
    recorded = [spent.usage.cpu_seconds or 0 for one in stages.values() for spent in one]
    assert min(recorded) >= 0
    assert sum(recorded) == pytest.approx(whole), "the overhead of the run is missing"


def test_a_dead_run_has_an_unknown_cost(site: Site) -> None:
    emit_run_end(site.services, site.dataset, "a-run", None, succeeded=False, lost=True)
    [row] = site.fetch("SELECT stage, method, watt_seconds FROM kfm.energy WHERE dataset IS NOT NULL")
    assert row == {"stage": "other", "method": "unknown", "watt_seconds": None}
    assert totals(site.root).gauge("pipeline_success", dataset=site.dataset.dataset) == 0


def test_a_run_in_a_process_of_its_own_is_charged_for_its_start(site: Site) -> None:
    begin_run_metering(site.services, "a-run", own_process=True)
    emit_run_end(site.services, site.dataset, "a-run", None, succeeded=True)
    [row] = site.fetch("SELECT wall_seconds, cpu_seconds FROM kfm.energy WHERE stage = 'other'")
    assert row["wall_seconds"] > 1, "this process has been there for longer"
    assert row["cpu_seconds"] > 0.5


@pytest.mark.parametrize("question", ["settled", "latency", "double", "last"])
def test_indicators_use_an_index(untouched: Site, question: str) -> None:
    """Sequential scans are off, because Postgres prefers them for an empty table."""
    plans: list[str] = []
    database = untouched.services.database
    planned = Services(untouched.services.settings).database

    class Explaining:
        def fetch(self, statement: str, parameters: dict[str, object] | None = None) -> list[dict[str, object]]:
            with planned.transaction() as connection:
                connection.execute("SET LOCAL enable_seqscan = off")
                rows = connection.execute(f"EXPLAIN {statement}", parameters or {}).fetchall()
                plans.extend(str(row["QUERY PLAN"]) for row in rows)
            return database.fetch(statement, parameters or {})

    explaining: Any = Explaining()
    if question == "settled":
        tables.count_settled(explaining, timedelta(hours=1), 300)
    elif question == "latency":
        tables.latency_quantiles(explaining, timedelta(hours=1), [0.5])
    elif question == "double":
        tables.double_applies(explaining, timedelta(days=1))
    else:
        tables.last_published(explaining, ["usgs/streamflow"])
    planned.close()
    plan = "\n".join(plans)
    assert "Index Cond: (" in plan
    wanted = {
        "settled": ("settled_at >", "at >"), "latency": ("settled_at >",), "double": ("applied_at >",),
        "last": ("dataset = ",),
    }  # fmt: skip
    conditions = [line for line in plans if "Index Cond" in line]
    assert all(any(one in line for line in conditions) for one in wanted[question]), plan


def test_a_replay_starts_in_its_own_trace(site: Site) -> None:
    from kfm_pipelines.stages.telemetry.spans import StageTelemetry
    from kfm_pipelines.stages.trigger import RunTrigger

    one = upload(site)
    receive(site.services, one)
    work = StageTelemetry(site.services, site.dataset, "a-run", RunTrigger(replay="r-1"))
    work.begin_traces([one.key])
    site.services.telemetry.flush()
    [begun] = [span for span in spans(site.root) if span.name == "replay"]
    assert begun.trace == work.trace_of(one.key).trace_hex
    assert begun.mentions("r-1")
