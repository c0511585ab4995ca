"""The real daemon and UI server, by the GraphQL calls that the browser makes."""

import json
import os
import signal
import urllib.request
from itertools import pairwise
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.dagster_run import FINISHED_STATUSES

from kfm_pipelines.local.dagster import serve_dagster
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.orchestration.names import STAGES
from kfm_pipelines.telemetry.logs.lines import LOG_FILE
from kfm_pipelines_tests.fixtures.aws.emulator import bodies, listening
from kfm_pipelines_tests.fixtures.runs.dispatch import OTHER, declare, spoiled
from kfm_pipelines_tests.fixtures.sites.processes import eventually, fork_servers
from kfm_pipelines_tests.fixtures.sites.site import Site
from kfm_pipelines_tests.fixtures.telemetry.collectors import Receiver, receiver
from kfm_pipelines_tests.fixtures.telemetry.log_file import lines_of

LAUNCH = """
mutation ($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) { ... on LaunchBackfillSuccess { backfillId } }
}
"""
BACKFILL = """
query ($id: String!) {
  partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status runs { id status } } }
}
"""
ASSETS = """
{ assetNodes { assetKey { path } groupName description kinds tags { key }
  owners { ... on TeamAssetOwner { team } ... on UserAssetOwner { email } } } }
"""
TICKS = """
query ($selector: SensorSelector!) {
  sensorOrError(sensorSelector: $selector) { ... on Sensor { sensorState { status ticks(limit: 20) {
    status skipReason runKeys error { message } } } } }
}
"""
MATERIALIZATIONS = """
query ($key: AssetKeyInput!, $partitions: [String!]) {
  assetOrError(assetKey: $key) { ... on Asset { assetMaterializations(partitions: $partitions, limit: 1) {
    metadataEntries { label ... on TextMetadataEntry { text } ... on IntMetadataEntry { intValue } } } } }
}
"""


class Ui:
    """The server behind the UI."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, query: str, **variables: object) -> Any:
        request = urllib.request.Request(
            f"{self._url}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            document = json.load(answer)
        assert "errors" not in document, document["errors"]
        return document["data"]

    def launch(self, dataset: str, keys: list[str]) -> str:
        selection = [{"path": [*dataset.split("/"), stage]} for stage in STAGES]
        launched = self.ask(LAUNCH, params={"assetSelection": selection, "partitionNames": keys})
        number: str = launched["launchPartitionBackfill"]["backfillId"]
        return number

    def backfills(self, *launched: str) -> list[dict[str, Any]]:
        """Returns the backfills once all are over."""

        def ask() -> list[dict[str, Any]]:
            return [self.ask(BACKFILL, id=number)["partitionBackfillOrError"] for number in launched]

        assert eventually(lambda: all(one["status"] != "REQUESTED" for one in ask()), seconds=400)
        return ask()


@pytest.mark.slow
def test_the_daemon_publishes_backfills_skip_and_serial_runs_never_overlap(site: Site) -> None:
    declare(site, serial=True)
    with (
        receiver() as collector,
        serve_dagster(site.root, {**site.environment, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}) as server,
        open_instance() as instance,
    ):
        ui = Ui(server.url)
        for hour in (0, 1, 2, 6):  # the last one closes the others
            site.put(hour)
        keys = [site.key(hour) for hour in range(3)]
        published = "SELECT count(*) AS n FROM kfm.revisions"
        assert eventually(lambda: site.fetch(published) == [{"n": 4}], seconds=120)

        _assert_runs_send_telemetry_before_they_end(collector)
        [fork_server] = fork_servers()
        os.kill(fork_server, signal.SIGKILL)  # the next run starts another one
        soil = site.key().replace("usgs-streamflow", "usda-soil")
        instance.add_dynamic_partitions("usda_soil", [soil])
        site.put(7)  # the sensor requests a run as well
        launched = [
            ui.launch("usgs/streamflow", keys),
            ui.launch("usgs/streamflow", keys[:1]),
            ui.launch(OTHER, [soil]),
        ]
        finished, *_ = ui.backfills(*launched)
        assert eventually(lambda: site.fetch(published) == [{"n": 5}], seconds=120)

        assert finished["status"] == "COMPLETED_SUCCESS"
        [run] = finished["runs"]
        assert run["status"] == "SUCCESS"
        outcomes = site.services.database.fetch(
            "SELECT key, outcome FROM kfm.wal WHERE run_id = %(run)s AND outcome IS NOT NULL ORDER BY key",
            {"run": run["id"]},
        )
        assert outcomes == [{"key": key, "outcome": "SKIPPED"} for key in keys]
        _assert_the_partition_is_skipped(ui, keys[1])
        _assert_assets_are_described(ui)
        _assert_the_sensor_gives_reasons(ui)
        _assert_the_run_is_logged(site, run["id"])
        _assert_dagster_logs_json(site)
        _assert_freshness_is_evaluated(site)
        _assert_a_failed_run_is_alerted(site)
        _assert_serial_runs_do_not_overlap(instance)


def _assert_runs_send_telemetry_before_they_end(collector: Receiver) -> None:
    """A run lives for seconds and metrics are sent once a minute, so they arrive because the process ends."""
    assert eventually(lambda: "publish" in {span.name for span in collector.spans}, seconds=20)
    assert eventually(lambda: "keys_settled_total" in {one.name for one in collector.metrics}, seconds=20)


def _assert_serial_runs_do_not_overlap(instance: dg.DagsterInstance) -> None:
    """The run of the other dataset does not wait for them."""
    runs = instance.get_runs(dg.RunsFilter(statuses=FINISHED_STATUSES))
    spans = [(run, _span(instance.get_run_stats(run.run_id))) for run in runs]
    serial = sorted(span for run, span in spans if _is_of(run, "usgs"))
    [other] = [span for run, span in spans if _is_of(run, "usda")]
    assert len(serial) >= 4
    assert all(before[1] <= after[0] for before, after in pairwise(serial))
    assert other[0] < serial[-1][0]


def _assert_freshness_is_evaluated(site: Site) -> None:
    """The newest publication counts, although the asset has partitions; without any the state is unknown."""
    states = {"usgs/streamflow": "PASS", "drought/tribal-areas": "UNKNOWN"}
    keys = {name: dg.AssetKey([*name.split("/"), "publish"]) for name in states}
    with open_instance() as instance:

        def is_evaluated() -> bool:
            found = instance.get_freshness_state_records(list(keys.values()))
            return {name: found[key].freshness_state.value for name, key in keys.items() if key in found} == states

        assert eventually(is_evaluated, seconds=60)


def _assert_a_failed_run_is_alerted(site: Site) -> None:
    queue = listening(site.services.settings.alert_topic)
    site.put(3, spoiled(3))
    events: list[str] = []

    def arrived() -> bool:
        events.extend(bodies(queue))
        return bool(events)

    assert eventually(arrived, seconds=60)
    assert json.loads(events[0])["Subject"] == "KFM: a run of usgs/streamflow failed at validate, 1 key"


def _assert_the_partition_is_skipped(ui: Ui, key: str) -> None:
    asset = {"path": ["usgs", "streamflow", "publish"]}
    [latest] = ui.ask(MATERIALIZATIONS, key=asset, partitions=[key])["assetOrError"]["assetMaterializations"]
    entries = {entry["label"]: entry.get("text", entry.get("intValue")) for entry in latest["metadataEntries"]}
    assert entries["outcome"] == "SKIPPED"
    assert entries["reason"] == "nothing changed since revision 1"


def _assert_assets_are_described(ui: Ui) -> None:
    nodes = ui.ask(ASSETS)["assetNodes"]
    assert {node["groupName"] for node in nodes} >= {
        "usgs_streamflow",
        "usda_soil",
        "drought_tribal_areas",
        "heritage_sites",
    }
    assert {node["assetKey"]["path"][-1] for node in nodes} == set(STAGES)
    for node in nodes:
        assert node["description"]
        assert "parquet" in node["kinds"]
        assert [sorted(owner) for owner in node["owners"]] == [["team"], ["email"]]
        assert {"domain", "stage"} <= {tag["key"] for tag in node["tags"]}


def _assert_the_sensor_gives_reasons(ui: Ui) -> None:
    selector = {
        "repositoryLocationName": "kfm",
        "repositoryName": "__repository__",
        "sensorName": "kfm_ingest",
    }
    state = ui.ask(TICKS, selector=selector)["sensorOrError"]["sensorState"]
    assert state["status"] == "RUNNING"
    assert [tick["error"] for tick in state["ticks"] if tick["error"]] == []
    assert any(len(tick["runKeys"]) == 1 for tick in state["ticks"])
    reasons = [tick["skipReason"] for tick in state["ticks"] if tick["status"] == "SKIPPED"]
    assert any("0 waiting" in reason and "no key is due" in reason for reason in reasons)


def _assert_the_run_is_logged(site: Site, run_id: str) -> None:
    lines = [line for line in lines_of(site.root / "telemetry" / LOG_FILE) if line.get("run_id") == run_id]
    events = [line["dagster_event_type"] for line in lines if "dagster_event_type" in line]
    assert (events[0], events[-1], events.count("STEP_SUCCESS")) == ("RUN_START", "RUN_SUCCESS", len(STAGES))


def _assert_dagster_logs_json(site: Site) -> None:
    """Other lines of the file come from other processes."""
    events = (site.root / "logs" / "dagster.log").read_text().splitlines()
    loggers = {json.loads(line)["logger"] for line in events if line.startswith('{"event"')}
    assert {"dagster-webserver", "dagster.daemon.SensorDaemon"} <= loggers


def _is_of(run: dg.DagsterRun, domain: str) -> bool:
    return run.job_name.startswith(domain) or any(key.path[0] == domain for key in run.asset_selection or ())


def _span(stats: Any) -> tuple[float, float]:
    """Returns when the queue launched the run, and when it ended."""
    return stats.launch_time, stats.end_time
