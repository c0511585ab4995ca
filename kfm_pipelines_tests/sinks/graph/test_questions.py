"""Every question of the page about the graph is asked, and answered as it says."""

import dataclasses
import re
from pathlib import Path

import pytest

from kfm_pipelines.catalog.facts import CareFacts
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.splits import SplitBy
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.graph import sink
from kfm_pipelines.sinks.graph.query import query_graph
from kfm_pipelines_tests.fixtures.catalog.release import OPEN, STREAMFLOW
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.graph.handmade_catalog import HandmadeCatalog, source, upstream
from kfm_pipelines_tests.fixtures.runbook import ANYTHING
from kfm_pipelines_tests.sinks.graph.test_sink import ATLAS, MAP, A, B

PAGE = Path(__file__).parents[3] / "docs" / "use" / "graph.md"
BLOCK = re.compile(r"^```(cypher|text)\n((?:.*\n)*?)```$", re.MULTILINE)
DROUGHT = declared()["drought/tribal-areas"]
TRIBAL = "drought-tribal-areas:united_states:none:2025-12-02:v1-0-0"
NATIONS = "The Tribal Nations and Native communities described"


def under(policy: str, authority: str = OPEN.authority) -> CareFacts:
    return dataclasses.replace(OPEN, policy=policy, authority=authority)


def by_county() -> Dataset:
    parcels = declared()["land/parcels"]
    split = SplitBy(column="county", members=["chase", "riley"])
    return parcels.model_copy(update={"key": parcels.key.model_copy(update={"split_by": split})})


def publish(handmade: HandmadeCatalog) -> dict[str, Dataset]:
    """Publishes what the page is about, and returns the dataset of each key."""
    counties = {county: f"land-parcels:flint_hills-{county}:none:2025-12:v1-0-0" for county in ("chase", "riley")}
    for key in counties.values():
        handmade.publish(by_county(), key, [source("land/parcels/roll.geojson")], care=under("parcels@1"))
    hour = source("usgs/streamflow/2025/12/04/00/streamflow.parquet")
    handmade.publish(STREAMFLOW, A, [hour], content="a")
    first = source("usgs/streamflow/2025/12/04/01/streamflow.parquet")
    late = source("usgs/streamflow/2025/12/04/01/correction.parquet", late=True)
    handmade.publish(STREAMFLOW, B, [first], content="b", hour=1, care=under("not-sensitive@1"))
    handmade.publish(STREAMFLOW, B, [first, late], content="b2", hour=1, rows=60)
    tribal = source("drought/tribal-areas/2025-12-02.json")
    handmade.publish(DROUGHT, TRIBAL, [tribal], content="tribal", care=under("tribal-areas@1", NATIONS))
    inputs = [upstream(STREAMFLOW, A, "a"), upstream(DROUGHT, TRIBAL, "tribal")]
    handmade.publish(ATLAS, MAP, inputs, content="map", care=under("drought-streamflow@1", NATIONS))
    return {**dict.fromkeys(counties.values(), by_county()), A: STREAMFLOW, B: STREAMFLOW, TRIBAL: DROUGHT, MAP: ATLAS}


def test_the_page_answers_its_questions(graph_services: Services, handmade: HandmadeCatalog) -> None:
    for key, dataset in publish(handmade).items():
        assert sink.write(graph_services, dataset, [key]) == {}
        assert sink.differences(graph_services, dataset, [key]) == {}
    blocks = BLOCK.findall(PAGE.read_text())
    assert [language for language, _ in blocks] == ["cypher", "text"] * 6
    for (_, query), (_, answer) in zip(blocks[::2], blocks[1::2], strict=True):
        rows = query_graph(graph_services, query)
        lines = [" | ".join(map(str, row.values())) for row in rows]
        expected = [".*".join(map(re.escape, line.split(ANYTHING))) for line in answer.splitlines()]
        assert len(lines) == len(expected), (query, lines)
        for pattern, line in zip(expected, lines, strict=True):
            assert re.fullmatch(pattern, line), (pattern, line)


@pytest.mark.parametrize("kind", ["county", "area"])
def test_places_are_those_of_the_name_of_a_key(graph_services: Services, handmade: HandmadeCatalog, kind: str) -> None:
    for key, dataset in publish(handmade).items():
        sink.write(graph_services, dataset, [key])
    found = query_graph(graph_services, f"MATCH (p:Place {{kind: '{kind}'}}) RETURN p.name AS name ORDER BY name")
    expected = {"county": ["chase", "riley"], "area": ["flint_hills", "kansas_statewide", "united_states"]}
    assert [row["name"] for row in found] == expected[kind]
