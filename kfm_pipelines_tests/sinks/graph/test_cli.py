"""`kfm graph` for people and for programs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.sinks.graph import sink
from kfm_pipelines.sinks.graph.client import open_graph
from kfm_pipelines.state.outbox import Sink, postpone, request
from kfm_pipelines_tests.fixtures.graph.server import GraphServer, empty
from kfm_pipelines_tests.fixtures.runs.batches import publish_due
from kfm_pipelines_tests.fixtures.sites.command import CommandResult, kfm_in_process
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site


@pytest.fixture(scope="module")
def graph_site(
    stack: Stack, site_template: str, graph_server: GraphServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A site with a published hour that the graph does not have yet."""
    root, url = tmp_path_factory.mktemp("graph") / "site", stack.environment["KFM_POSTGRES_URL"]
    with opened_site(root, url, site_template, **graph_server.environment) as site:
        with open_graph(site.services.settings) as graph:
            empty(graph)
        site.put(0)
        publish_due(site)
        with site.services.database.transaction() as connection:
            request(connection, [Sink.GRAPH], "usgs/streamflow", [site.key(0)])
        postpone(site.services.database, Sink.GRAPH, {site.key(0): "the graph does not answer"})
        yield site


def kfm(site: Site, *arguments: str, text: str = "") -> CommandResult:
    return kfm_in_process(site.environment, *arguments, text=text)


def test_status_shows_the_server_and_what_waits(graph_site: Site) -> None:
    document = kfm(graph_site, "graph", "status", "--json").json
    assert document["address"] == graph_site.environment["KFM_GRAPH_URL"]
    [waiting] = document["waiting"]
    assert (waiting["dataset"], waiting["keys"], waiting["failed"]) == ("usgs/streamflow", 1, 1)
    printed = kfm(graph_site, "graph", "status").out
    assert "waiting        1 key of usgs/streamflow since 20" in printed
    assert "the graph does not answer" in printed
    assert graph_site.environment["KFM_GRAPH_PASSWORD"] not in printed


def test_the_overview_shows_every_sink(graph_site: Site) -> None:
    sinks = kfm(graph_site, "status", "--json").json["sinks"]
    assert set(sinks) == set(Sink)
    assert sinks["graph"]["datasets"] == {"usgs/streamflow": 1}
    assert "graph      1 key waiting since 20" in kfm(graph_site, "status").out


def test_rebuild_then_query(graph_site: Site) -> None:
    assert kfm(graph_site, "graph", "rebuild", "--json").json == {"keys": 1, "removed": 0, "problems": {}}
    text = "MATCH (r:Revision) RETURN r.id AS revision, r.gates AS gates"
    [row] = kfm(graph_site, "graph", "query", "-", "--json", text=text).json["rows"]
    assert row["revision"] == f"{graph_site.key(0)}@1"
    assert "schema" in row["gates"]
    assert kfm(graph_site, "graph", "query", "-", text=text).out.endswith("1 row\n")
    assert kfm(graph_site, "graph", "status", "--json").json["nodes"]["Revision"] == 1
    assert sink.differences(graph_site.services, graph_site.dataset, [graph_site.key(0)]) == {}


def test_queries_that_write_are_refused(graph_site: Site, tmp_path: Path) -> None:
    file = tmp_path / "query.cypher"
    file.write_text("MATCH (n) DETACH DELETE n")
    refused = kfm(graph_site, "graph", "query", str(file))
    assert refused.code == 2
    assert "DETACH is not allowed" in refused.err
