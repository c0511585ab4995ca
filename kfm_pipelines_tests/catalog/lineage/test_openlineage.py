"""OpenLineage events: valid, one START and one end for each run, and never a reason for a run to fail or wait."""

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
from jsonschema import Draft202012Validator
from openlineage.client.serde import Serde

from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.catalog.lineage.openlineage import RunFacts, RunInput, RunOutput, State, run_event
from kfm_pipelines.catalog.lineage.send import TIMEOUT_SECONDS, send_run_event, transport_to
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.stages.assets.assets import emit_run_abort_if_stopped
from kfm_pipelines_tests.fixtures.catalog.openlineage_schema import RUN_EVENT
from kfm_pipelines_tests.fixtures.catalog.release import HERITAGE, STREAMFLOW, WITHOUT_PLACES
from kfm_pipelines_tests.fixtures.runs.dispatch import spoiled
from kfm_pipelines_tests.fixtures.runs.keys import revision
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
READ = RunInput("s3://kfm-ingest/usgs/streamflow/one two.parquet", "v1")
OUTPUT = RunOutput.from_values(
    asdict(revision("k", revision=2, content_hash="a" * 64, rows=68, bytes=5000)),
    location="file:///srv/kfm/processed/usgs-streamflow/k.parquet",
    table=STREAMFLOW.table,
    masked=False,
    gates={"schema": True, "care": True},
    inputs=(READ,),
)
Event = dict[str, Any]


def event_of(dataset: Dataset, facts: RunFacts) -> Event:
    event: Event = json.loads(Serde.to_json(run_event(dataset, facts)))
    assert_valid(event)
    return event


def assert_valid(event: Event) -> None:
    Draft202012Validator(RUN_EVENT, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(event)


def facts(state: State, *outputs: RunOutput) -> RunFacts:
    return RunFacts(str(uuid4()), state, NOW, inputs=(READ,), outputs=outputs, failed=2)


@pytest.mark.parametrize("state", ["START", "COMPLETE", "FAIL", "ABORT"])
def test_an_event_names_run_job_and_outcome(state: State) -> None:
    run = facts(state)
    event = event_of(STREAMFLOW, run)
    assert (event["eventType"], event["run"]["runId"]) == (state, run.run_id)
    assert (event["job"]["namespace"], event["job"]["name"]) == ("kfm", "usgs/streamflow")
    assert event["eventTime"] == "2026-05-01T12:00:00+00:00"
    error = event["run"]["facets"].get("errorMessage", {})
    assert error.get("message") == (None if state in ("START", "COMPLETE") else "2 keys were not published")


def test_objects_are_named_by_the_convention_of_openlineage() -> None:
    [read] = event_of(STREAMFLOW, facts("COMPLETE"))["inputs"]
    assert (read["namespace"], read["name"]) == ("s3://kfm-ingest", "usgs/streamflow/one two.parquet")
    assert read["facets"]["version"]["datasetVersion"] == "v1"


def test_an_output_has_schema_lineage_and_quality() -> None:
    [output] = event_of(STREAMFLOW, facts("COMPLETE", OUTPUT))["outputs"]
    assert (output["namespace"], output["name"]) == ("file", "/srv/kfm/processed/usgs-streamflow/k.parquet")
    facets = output["facets"]
    names = [column.name for column in STREAMFLOW.table.columns]
    assert [(field["name"], field["ordinal_position"]) for field in facets["schema"]["fields"]] == [
        (name, place) for place, name in enumerate(names, 1)
    ]
    assert set(facets["columnLineage"]["fields"]) == set(names)
    [field] = facets["columnLineage"]["fields"]["site_no"]["inputFields"]
    assert (field["namespace"], field["name"], field["field"]) == (
        "s3://kfm-ingest",
        "usgs/streamflow/one two.parquet",
        "site_no",
    )
    assert [(one["subtype"], one["masking"]) for one in field["transformations"]] == [("IDENTITY", False)]
    assert (facets["dataQualityMetrics"]["rowCount"], facets["dataQualityMetrics"]["bytes"]) == (68, 5000)
    assert [(one["name"], one["success"]) for one in facets["dataQualityAssertions"]["assertions"]] == [
        ("schema", True), ("care", True)
    ]  # fmt: skip
    assert facets["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"
    assert facets["version"]["datasetVersion"] == f"2-{'a' * 16}"
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 68


def test_a_column_is_traced_to_its_name_in_the_object() -> None:
    output = replace(OUTPUT, table=WITHOUT_PLACES.table)
    [output] = event_of(WITHOUT_PLACES, facts("COMPLETE", output))["outputs"]
    [field] = output["facets"]["columnLineage"]["fields"]["valid_on"]["inputFields"]
    assert field["field"] == "Date"


def test_a_derived_column_is_traced_to_its_sources() -> None:
    columns = [
        column.model_copy(update={"source": "dec_long_va"}) if column.name == "longitude" else column
        for column in STREAMFLOW.table.columns
    ]
    renamed = STREAMFLOW.model_copy(update={"table": STREAMFLOW.table.model_copy(update={"columns": columns})})
    [output] = event_of(renamed, facts("COMPLETE", OUTPUT))["outputs"]
    lineage = output["facets"]["columnLineage"]["fields"]
    assert _traced(lineage["geometry"]) == [("dec_long_va", "TRANSFORMATION"), ("latitude", "TRANSFORMATION")]
    assert _traced(lineage["longitude"]) == [("dec_long_va", "IDENTITY")]
    assert not any(one["masking"] for of in lineage["geometry"]["inputFields"] for one in of["transformations"])


def test_columns_of_a_transform_have_no_claimed_source() -> None:
    transformed = STREAMFLOW.model_copy(update={"transform": "unheard-of"})
    [output] = event_of(transformed, facts("COMPLETE", OUTPUT))["outputs"]
    assert output["facets"]["columnLineage"]["fields"] == {}


def _traced(field: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["field"], how["subtype"]) for one in field["inputFields"] for how in one["transformations"]]


def test_masked_columns_are_marked_and_added_columns_have_no_source() -> None:
    table = published_table(HERITAGE, load_policy(shipped_path("resources"), HERITAGE.policy))
    output = replace(OUTPUT, table=table, masked=True)
    [output] = event_of(HERITAGE, facts("COMPLETE", output))["outputs"]
    lineage = output["facets"]["columnLineage"]["fields"]
    assert {"record", "easting"} & set(lineage) == set()
    assert all(one["transformations"][0]["masking"] for of in lineage.values() for one in of["inputFields"])


def test_the_schema_requires_every_field() -> None:
    good = event_of(STREAMFLOW, facts("COMPLETE", OUTPUT))
    for name in RUN_EVENT["required"]:
        assert not Draft202012Validator(RUN_EVENT).is_valid({key: value for key, value in good.items() if key != name})
    good["outputs"][0]["facets"]["schema"].pop("_producer")
    assert not Draft202012Validator(RUN_EVENT).is_valid(good)


@pytest.mark.slow
def test_every_run_sends_an_event_at_its_start_and_its_end(
    stack: Stack, site_template: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events = tmp_path / "made when needed" / "events.jsonl"
    url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", url, site_template, KFM_OPENLINEAGE_URL=events.as_uri()) as site:
        put = site.put(0)
        site.work()
        start, complete = _read(events)
        assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
        assert start["run"]["runId"] == complete["run"]["runId"]
        assert [one["name"] for one in complete["inputs"]] == [put.object_key]
        [output] = complete["outputs"]
        assert output["name"] == str(site.data / f"processed/usgs-streamflow/{site.key()}.parquet")
        rows = site.fetch("SELECT rows FROM kfm.revisions")[0]["rows"]
        assert output["facets"]["dataQualityMetrics"]["rowCount"] == rows
        gates = {one["name"] for one in output["facets"]["dataQualityAssertions"]["assertions"]}
        assert {"schema", "integrity", "governance", "care"} <= gates

        site.put(1, data=spoiled(1))
        site.work()
        _, _, again, failed = _read(events)
        assert (again["eventType"], failed["eventType"]) == ("START", "FAIL")
        assert failed["outputs"] == []
        assert failed["run"]["facets"]["errorMessage"]["message"] == "1 keys were not published"

        _aborts_a_stopped_run(site)
        assert [one["eventType"] for one in _read(events)[4:]] == ["ABORT"]
        _sends_over_http(site)
        _never_waits_long(site, caplog)


def _aborts_a_stopped_run(site: Site) -> None:
    """A stopped run cannot send its own event; a failed one has sent it already."""
    with dg.DagsterInstance.get() as instance:
        [failed] = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
        emit_run_abort_if_stopped(instance, site.services, site.dataset, failed)
        stopped = dg.DagsterRun(job_name="usgs_streamflow", status=dg.DagsterRunStatus.CANCELED)
        instance.add_run(stopped)
        emit_run_abort_if_stopped(instance, site.services, site.dataset, stopped)


def _sends_over_http(site: Site) -> None:
    run_id = site.fetch("SELECT run_id FROM kfm.revisions")[0]["run_id"]
    with receiver() as (url, received):
        _send(site, url, run_id)
    [(path, event)] = received
    assert path == "/api/v1/lineage"
    assert_valid(event)
    assert (event["run"]["runId"], len(event["outputs"])) == (run_id, 1)


def _never_waits_long(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """An endpoint that is missing or does not answer costs one log line each."""
    with socket.socket() as silent, caplog.at_level(logging.WARNING):
        silent.bind(("127.0.0.1", 0))
        nobody = silent.getsockname()[1]
        _send(site, f"http://127.0.0.1:{nobody}", "none")
        silent.listen()
        begun = time.monotonic()
        _send(site, f"http://127.0.0.1:{nobody}/", "none")
        assert time.monotonic() - begun < 2 * TIMEOUT_SECONDS + 1
        _send(site, (site.root / "dagster/dagster.yaml/below-a-file.jsonl").as_uri(), "none")
    lines = [record.getMessage() for record in caplog.records if record.name == "kfm_pipelines.catalog.lineage.send"]
    assert len(lines) == 3
    assert all(line.startswith("could not send the COMPLETE event of run none: ") for line in lines)


def _send(site: Site, url: str, run_id: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kfm_pipelines.catalog.lineage.send.transport_to", lambda _: transport_to(url))
        send_run_event(site.services, site.dataset, run_id, "COMPLETE")


@contextmanager
def receiver() -> Iterator[tuple[str, list[tuple[str, Event]]]]:
    received: list[tuple[str, Event]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, json.loads(body)))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", received
        finally:
            server.shutdown()
            thread.join()


def _read(path: Path) -> list[Event]:
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for event in events:
        assert_valid(event)
    return events
