"""The real daemon and the real UI server: what a person sees and clicks, by the same GraphQL calls."""

import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from kfm_pipelines.local.dagster import serve_dagster
from kfm_pipelines.orchestration.naming import STAGES
from kfm_pipelines_tests.local.processes import eventually
from kfm_pipelines_tests.site import Site

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
{ assetNodes { assetKey { path } groupName description kinds owners { ... on TeamAssetOwner { team } } tags { key } } }
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

    def backfill(self, keys: list[str]) -> dict[str, Any]:
        selection = [{"path": ["usgs", "streamflow", stage]} for stage in STAGES]
        launched = self.ask(LAUNCH, params={"assetSelection": selection, "partitionNames": keys})
        number = launched["launchPartitionBackfill"]["backfillId"]
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
    for hour in range(3):
        site.put(hour)
    keys = [site.key(hour) for hour in range(3)]
    published = "SELECT count(*) AS n FROM kfm.revisions"
    assert eventually(lambda: site.fetch(published) == [{"n": 3}], seconds=120)

    finished = ui.backfill(keys)

    assert finished["status"] == "COMPLETED_SUCCESS"
    assert [run["status"] for run in finished["runs"]] == ["SUCCESS"]
    outcomes = site.workshop.database.fetch(
        "SELECT key, outcome FROM kfm.wal WHERE run_id = %(run)s AND outcome IS NOT NULL ORDER BY key",
        {"run": finished["runs"][0]["id"]},
    )
    assert outcomes == [{"key": key, "outcome": "SKIPPED"} for key in keys]
    assert site.fetch(published) == [{"n": 3}]
    _the_partition_says_it_was_skipped(ui, keys[1])
    _the_assets_are_described(ui)
    _the_sensor_gives_reasons(ui)


def _the_partition_says_it_was_skipped(ui: Ui, key: str) -> None:
    asset = {"path": ["usgs", "streamflow", "publish"]}
    [latest] = ui.ask(MATERIALIZATIONS, key=asset, partitions=[key])["assetOrError"]["assetMaterializations"]
    entries = {entry["label"]: entry.get("text", entry.get("intValue")) for entry in latest["metadataEntries"]}
    assert entries["outcome"] == "SKIPPED"
    assert entries["reason"] == "nothing changed since revision 1"


def _the_assets_are_described(ui: Ui) -> None:
    nodes = ui.ask(ASSETS)["assetNodes"]
    assert {node["assetKey"]["path"][-1] for node in nodes} == set(STAGES)
    assert {node["groupName"] for node in nodes} == {"usgs_streamflow"}
    for node in nodes:
        assert node["description"]
        assert "parquet" in node["kinds"]
        assert node["owners"] == [{"team": "hydrology"}]
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
