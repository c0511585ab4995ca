"""A run writes its keys into table and graph; what it cannot write, a later tick writes."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.sinks.assets import sample
from kfm_pipelines.sinks.flush import flush_due, flush_now
from kfm_pipelines.sinks.graph import sink as graph
from kfm_pipelines.sinks.graph.client import open_graph
from kfm_pipelines.sinks.table import check as table
from kfm_pipelines.state.outbox import Sink, backlogs
from kfm_pipelines_tests.fixtures.graph.server import GraphServer, empty, without_graph
from kfm_pipelines_tests.fixtures.sinks import publish_hours
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

pytestmark = pytest.mark.slow
DATASETS = ["usgs-streamflow"]


@pytest.fixture
def site(stack: Stack, site_template: str, tmp_path: Path, graph_server: GraphServer) -> Iterator[Site]:
    """Its streamflow is also a table and in a graph."""
    url = stack.environment["KFM_POSTGRES_URL"]
    known = graph_server.environment
    with opened_site(tmp_path / "site", url, site_template, DATASETS, DATASETS, **known) as opened:
        with open_graph(opened.services.settings) as server:
            empty(server)
        yield opened


def assert_sinks_are_the_catalog(site: Site, keys: list[str]) -> None:
    assert backlogs(site.services.database) == []
    for sink in (table, graph):
        assert sink.differences(site.services, site.dataset, keys) == {}


def checks(instance: dg.DagsterInstance, asset: str) -> list[bool]:
    key = dg.AssetCheckKey(dg.AssetKey(["usgs", "streamflow", asset]), "matches_catalog")
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=5)
    evaluations = [record.event.get_dagster_event().asset_check_evaluation_data for record in records if record.event]
    return [one.passed for one in evaluations]


def test_a_run_writes_its_keys_into_both(site: Site) -> None:
    for hour in range(2):
        site.put(hour)
    assert site.work()["published"] == 2
    assert_sinks_are_the_catalog(site, [site.key(hour) for hour in range(2)])
    with dg.DagsterInstance.get() as instance:
        for asset in ("table", "graph"):
            assert checks(instance, asset) == [True]
            materialized = instance.get_materialized_partitions(dg.AssetKey(["usgs", "streamflow", asset]))
            assert materialized == {site.key(hour) for hour in range(2)}


@pytest.mark.parametrize(
    ("count", "most", "compared"), [(0, 50, 0), (1, 50, 1), (50, 50, 50), (51, 50, 26), (5000, 200, 200)]
)
def test_keys_to_compare_are_evenly_spaced(count: int, most: int, compared: int) -> None:
    keys = [f"{number:04d}" for number in range(count)]
    chosen = sample(keys, most)
    assert len(chosen) == compared
    assert chosen[:1] == keys[:1]
    assert chosen == sorted(set(chosen))


def test_a_graph_that_is_away_stops_no_run_and_loses_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("KFM_GRAPH_URL", "bolt://127.0.0.1:1")
        site.put(0)
        away = Site(without_graph(site.services), site.environment, site.root)
        assert away.work()["published"] == 1
        [waiting] = backlogs(site.services.database)
        assert (waiting.sink, waiting.keys, waiting.failed) == (Sink.GRAPH, 1, 1)
        assert "does not answer" in str(waiting.problem)
        with dg.DagsterInstance.get() as instance:
            assert (checks(instance, "table"), checks(instance, "graph")) == ([True], [False])
        away.services.close()
    site.services.database.execute("UPDATE kfm.outbox SET due = clock_timestamp()")
    assert flush_due(site.services) == []
    assert_sinks_are_the_catalog(site, [site.key(0)])


def test_a_revision_while_a_sink_is_behind_is_written_once(site: Site) -> None:
    publish_hours(site, [0])
    publish_hours(site, [0], version=1)
    assert [(one.sink, one.keys) for one in backlogs(site.services.database)] == [(Sink.GRAPH, 1), (Sink.TABLE, 1)]
    for sink in Sink:
        assert flush_now(site.services, site.dataset, sink) == []
    assert_sinks_are_the_catalog(site, [site.key(0)])
