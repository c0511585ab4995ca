"""Queries of people can only read, whatever the server would allow."""

from contextlib import suppress

import pytest

from kfm_pipelines.errors import QueryRefused
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.graph import query
from kfm_pipelines.sinks.graph.query import check_reading, query_graph
from kfm_pipelines_tests.fixtures.graph.server import contents


@pytest.mark.parametrize(
    "text",
    [
        "MATCH (n) RETURN n",
        "MATCH (n:Set)-[:CREATE|DELETE]->() WHERE n.set = 1 RETURN n.delete AS x",
        "MATCH (n {set: 'CREATE (n)'}) RETURN \"MERGE\" // DELETE n",
        "MATCH (n) WHERE n.`remove` = 1 /* SET n.x = 1 */ RETURN n",
        "UNWIND [1] AS x CALL { WITH x RETURN x AS y } RETURN y",
        "OPTIONAL MATCH (created) RETURN count(created) AS reset",
    ],
)
def test_reading_is_allowed(text: str) -> None:
    check_reading(text)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE (n)",
        "match (n) detach\ndelete n",
        "MATCH (n) SET n.x = 1",
        "MATCH (n) REMOVE n.x",
        "MERGE (n)",
        "LOAD CSV FROM 'file:///x' AS row RETURN row",
        "MATCH (n) FOREACH (x IN [1] | SET n.x = x)",
        "CALL apoc.cypher.doIt('x', {})",
        "CALL { CREATE (n) }",
        "DROP CONSTRAINT x",
        "RETURN '\\u0027 CREATE (n) //'",
        "MATCH (n) RETURN 'it\\'s' + '' CREATE (m)",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(QueryRefused, match="quer"):
        check_reading(text)


def test_what_gets_through_is_rolled_back(graph_services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "check_reading", lambda _: None)
    with suppress(QueryRefused):  # of a server that enforces read transactions
        query_graph(graph_services, "CREATE (n:Place {id: 'x'}) RETURN n.id AS id")
    assert contents(graph_services) == {}


def test_answers_are_plain_values(graph_services: Services) -> None:
    text = "RETURN 1 AS n, [datetime('2025-12-04T00:00:00Z')] AS at, {a: null} AS m, duration('P1D') AS d"
    [row] = query_graph(graph_services, text)
    assert row["at"][0].startswith("2025-12-04T00:00:00")
    assert row == {"n": 1, "at": row["at"], "m": {"a": None}, "d": "P1D"}


def test_a_mistake_is_named(graph_services: Services) -> None:
    with pytest.raises(QueryRefused, match="the graph refused"):
        query_graph(graph_services, "MATCH (n RETURN n")
