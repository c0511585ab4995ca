"""Nothing that a policy hides reaches the graph: not its files, not its logs, not an answer."""

import os
import time
from pathlib import Path

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.sinks.graph import sink
from kfm_pipelines.sinks.graph.client import open_graph
from kfm_pipelines_tests.fixtures.care.register import KEY, with_reviewer
from kfm_pipelines_tests.fixtures.graph.server import GraphServer, contents, empty
from kfm_pipelines_tests.fixtures.leaks.scanner import Hit, Scanner
from kfm_pipelines_tests.fixtures.runs.batches import work_in_batches
from kfm_pipelines_tests.fixtures.sites.site import opened_site
from kfm_pipelines_tests.journeys.leaks.test_tables import CANARIES, COUNT, planted


def leaks(server: GraphServer, answer: object) -> list[Hit]:
    scanner = Scanner(CANARIES)
    found = scanner.scan("answers", repr(answer).encode())
    return found + (scanner.scan_tree(server.home) if server.home else [])


@pytest.mark.slow
def test_nothing_of_a_masked_dataset_is_in_the_graph(
    stack: Stack, site_template: str, tmp_path: Path, graph_server: GraphServer
) -> None:
    url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", url, site_template, **graph_server.environment) as site:
        register = with_reviewer(site)
        register.publish(planted(register))
        register.put(planted(register, condition=["poor"] * COUNT))
        work_in_batches(site)
        register.approve()
        work_in_batches(site)
        with open_graph(site.services.settings) as graph:
            empty(graph)
            assert sink.write(site.services, register.dataset, [KEY]) == {}
            answer = contents(site.services)
            assert {name[-1] for name in answer if name[:2] == ("node", "Revision")} == {f"{KEY}@1", f"{KEY}@2"}
            assert leaks(graph_server, answer) == []
            hidden = {canary.texts[0]: canary for canary in CANARIES[:3]}
            graph.write(lambda run: run("UNWIND $names AS name CREATE (:Place {id: name})", names=list(hidden)))
            if graph_server.home:
                assert eventually_found(graph_server)
            assert len({one.canary for one in leaks(graph_server, contents(site.services))}) == 3
            empty(graph)


def eventually_found(server: GraphServer) -> bool:
    """Whether the search would find a name that is in the graph, once its pages are written."""
    for _ in range(100):
        os.sync()
        if any(hit.name != "answers" for hit in leaks(server, "")):
            return True
        time.sleep(0.1)
    return False
