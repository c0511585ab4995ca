"""The real daemon and the real UI server: what a person sees and clicks, by the same GraphQL calls."""

import json
import time
import urllib.request
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.dagster_run import FINISHED_STATUSES

from kfm_pipelines.local.dagster import serve_dagster
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.orchestration.names import STAGES
from kfm_pipelines.telemetry.logs.configure import LOG_FILE
from kfm_pipelines_tests.fixtures.aws.emulator import bodies, listening
from kfm_pipelines_tests.fixtures.runs.dispatch import OTHER, declare, spoiled
from kfm_pipelines_tests.fixtures.sites.processes import eventually
from kfm_pipelines_tests.fixtures.sites.site import Site
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
    """The server that the browser talks to."""

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

    def backfill(self, keys: list[str]) -> dict[str, Any]:
        number = self.launch("usgs/streamflow", keys)
        deadline = time.monotonic() + 200
        while True:
            found: dict[str, Any] = self.ask(BACKFILL, id=number)["partitionBackfillOrError"]
            if found["status"] != "REQUESTED" or time.monotonic() > deadline:
                return found
            time.sleep(1)


@pytest.fixture
def ui(site: Site) -> Iterator[Ui]:
    with serve_dagster(site.root, site.environment) as server:
        yield Ui(server.url)


@pytest.mark.slow
def test_the_daemon_publishes_and_a_backfill_of_unchanged_keys_skips(site: Site, ui: Ui) -> None:
    for hour in (0, 1, 2, 6):  # by the last one the others are closed
        site.put(hour)
    keys = [site.key(hour) for hour in range(3)]
    published = "SELECT count(*) AS n FROM kfm.revisions"
    assert eventually(lambda: site.fetch(published) == [{"n": 4}], seconds=120)

    finished = ui.backfill(keys)

    assert finished["status"] == "COMPLETED_SUCCESS"
    assert [run["status"] for run in finished["runs"]] == ["SUCCESS"]
    outcomes = site.services.database.fetch(
        "SELECT key, outcome FROM kfm.wal WHERE run_id = %(run)s AND outcome IS NOT NULL ORDER BY key",
        {"run": finished["runs"][0]["id"]},
    )
    assert outcomes == [{"key": key, "outcome": "SKIPPED"} for key in keys]
    assert site.fetch(published) == [{"n": 4}]
    _the_partition_says_it_was_skipped(ui, keys[1])
    _the_assets_are_described(ui)
    _the_sensor_gives_reasons(ui)
    _the_log_tells_of_the_run(site, finished["runs"][0]["id"])
    _dagsters_own_processes_tell_json(site)
    _freshness_is_looked_at(site)
    _a_failed_run_is_told(site)


def _freshness_is_looked_at(site: Site) -> None:
    """Of the newest publication, though the asset has partitions; nobody can say it of a dataset without any."""
    states = {"usgs/streamflow": "PASS", "drought/tribal-areas": "UNKNOWN"}
    keys = {name: dg.AssetKey([*name.split("/"), "publish"]) for name in states}
    with open_instance() as instance:

        def looked_at() -> bool:
            found = instance.get_freshness_state_records(list(keys.values()))
            return {name: found[key].freshness_state.value for name, key in keys.items() if key in found} == states

        assert eventually(looked_at, seconds=60)


def _a_failed_run_is_told(site: Site) -> None:
    queue = listening(site.services.settings.alert_topic)
    site.put(3, spoiled(3))
    told: list[str] = []

    def arrived() -> bool:
        told.extend(bodies(queue))
        return bool(told)

    assert eventually(arrived, seconds=60)
    assert json.loads(told[0])["Subject"] == "KFM: a run of usgs/streamflow failed at validate, 1 key"


def _the_partition_says_it_was_skipped(ui: Ui, key: str) -> None:
    asset = {"path": ["usgs", "streamflow", "publish"]}
    [latest] = ui.ask(MATERIALIZATIONS, key=asset, partitions=[key])["assetOrError"]["assetMaterializations"]
    entries = {entry["label"]: entry.get("text", entry.get("intValue")) for entry in latest["metadataEntries"]}
    assert entries["outcome"] == "SKIPPED"
    assert entries["reason"] == "nothing changed since revision 1"


def _the_assets_are_described(ui: Ui) -> None:
    nodes = ui.ask(ASSETS)["assetNodes"]
    assert {node["groupName"] for node in nodes} == {"usgs_streamflow", "drought_tribal_areas", "heritage_sites"}
    assert {node["assetKey"]["path"][-1] for node in nodes} == set(STAGES)
    for node in nodes:
        assert node["description"]
        assert "parquet" in node["kinds"]
        assert [sorted(owner) for owner in node["owners"]] == [["team"], ["email"]]
        assert {"domain", "stage"} <= {tag["key"] for tag in node["tags"]}


def _the_sensor_gives_reasons(ui: Ui) -> None:
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


def _the_log_tells_of_the_run(site: Site, run_id: str) -> None:
    lines = [line for line in lines_of(site.root / "telemetry" / LOG_FILE) if line.get("run_id") == run_id]
    told = [line["dagster_event_type"] for line in lines if "dagster_event_type" in line]
    assert (told[0], told[-1], told.count("STEP_SUCCESS")) == ("RUN_START", "RUN_SUCCESS", len(STAGES))


def _dagsters_own_processes_tell_json(site: Site) -> None:
    """Between lines of other processes, which are none."""
    told = (site.root / "logs" / "dagster.log").read_text().splitlines()
    loggers = {json.loads(line)["logger"] for line in told if line.startswith('{"event"')}
    assert {"dagster-webserver", "dagster.daemon.SensorDaemon"} <= loggers


@pytest.mark.slow
def test_runs_of_a_serial_dataset_never_overlap_and_hold_up_no_other(site: Site) -> None:
    declare(site, serial=True)
    keys = {
        "usgs/streamflow": [site.key(hour) for hour in range(2)],
        OTHER: [site.key().replace("usgs-streamflow", "usda-soil")],
    }
    with dg.DagsterInstance.get() as instance, serve_dagster(site.root, site.environment) as server:
        for dataset, names in keys.items():
            instance.add_dynamic_partitions(dataset.replace("/", "_"), names)
        assert eventually(lambda: "serial_usgs_streamflow" in instance.event_log_storage.get_concurrency_keys(), 60)

        site.put(2)  # the sensor asks for a run as well
        for dataset, names in keys.items():
            for name in names:
                Ui(server.url).launch(dataset, [name])
        assert eventually(lambda: len(finished(instance)) == 4, seconds=200)

        times = {run.run_id: instance.get_run_stats(run.run_id) for run in finished(instance)}
        serial = sorted(_span(times[run.run_id]) for run in finished(instance) if _is_of(run, "usgs"))
        [other] = [_span(times[run.run_id]) for run in finished(instance) if _is_of(run, "usda")]
    assert len(serial) == 3
    assert all(before[1] <= after[0] for before, after in pairwise(serial))
    assert other[0] < serial[-1][0]


def finished(instance: dg.DagsterInstance) -> Sequence[dg.DagsterRun]:
    return instance.get_runs(dg.RunsFilter(statuses=FINISHED_STATUSES))


def _is_of(run: dg.DagsterRun, domain: str) -> bool:
    return run.job_name.startswith(domain) or any(key.path[0] == domain for key in run.asset_selection or ())


def _span(stats: Any) -> tuple[float, float]:
    """From the moment the queue let the run go to its end."""
    return stats.launch_time, stats.end_time
