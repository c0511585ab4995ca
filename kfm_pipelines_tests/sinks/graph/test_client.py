"""Collisions are repeated, everything else is one sentence of ours."""

import dataclasses
from contextlib import suppress
from typing import Any

import pytest

from kfm_pipelines.errors import ServiceUnavailable, SettingsInvalid
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.graph import sink, statements
from kfm_pipelines.sinks.graph.client import ATTEMPTS, GraphRefused, open_graph
from kfm_pipelines_tests.fixtures.graph.server import contents


def test_without_an_address_there_is_no_graph(graph_services: Services) -> None:
    with (
        pytest.raises(SettingsInvalid, match="KFM_GRAPH_URL is not set"),
        open_graph(dataclasses.replace(graph_services.settings, graph_url=None)),
    ):
        pass


def test_the_schema_is_created_once(graph_services: Services) -> None:
    with open_graph(graph_services.settings) as graph:
        sink.prepare(graph)
        names = {row["name"] for one in statements.SCHEMA_NAMES for row in graph.run(one)}
        assert set(statements.SCHEMA) <= names
        sink.prepare(graph)


def test_a_refused_duplicate_is_tried_again(graph_services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    with open_graph(graph_services.settings) as graph:
        sink.prepare(graph)
        graph.write(lambda run: run("CREATE (:Place {id: 'x'})"))
        attempts: list[int] = []

        def work(run: Any) -> str:
            attempts.append(1)
            if len(attempts) < 3:
                run("CREATE (:Place {id: 'y'})")
                run("CREATE (:Place {id: 'x'})")
            run("MERGE (:Place {id: 'z'})")
            return "done"

        assert graph.write(work) == "done"
        assert len(attempts) == 3
        attempts.clear()

        def never(run: Any) -> None:
            attempts.append(1)
            run("CREATE (:Place {id: 'x'})")

        with pytest.raises(ServiceUnavailable, match="the graph refused"):
            graph.write(never)
        assert len(attempts) == ATTEMPTS
    assert {name[-1] for name in contents(graph_services)} == {"x", "z"}


def test_a_wrong_statement_is_not_tried_again(graph_services: Services) -> None:
    attempts: list[int] = []

    def work(run: Any) -> None:
        attempts.append(1)
        run("NONSENSE")

    with open_graph(graph_services.settings) as graph, pytest.raises(GraphRefused):
        graph.write(work)
    assert len(attempts) == 1


def test_what_is_read_is_not_kept(graph_services: Services) -> None:
    """Whether the server refuses to write in a read transaction, or not."""
    with open_graph(graph_services.settings) as graph, suppress(GraphRefused):
        graph.read(lambda run: run("CREATE (:Place {id: 'x'})"))
    assert contents(graph_services) == {}
