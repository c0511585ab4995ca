"""A rebuild gives the graph that the catalog describes, whatever was there."""

from kfm_pipelines.services import Services
from kfm_pipelines.sinks.graph import sink
from kfm_pipelines.sinks.graph.client import open_graph
from kfm_pipelines.sinks.graph.rebuild import count_nodes, rebuild
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.fixtures.catalog.release import STREAMFLOW
from kfm_pipelines_tests.fixtures.graph.handmade_catalog import HandmadeCatalog, upstream
from kfm_pipelines_tests.fixtures.graph.server import contents, empty
from kfm_pipelines_tests.sinks.graph.test_sink import ATLAS, MAP, A, B, C, publish_some

STRANGE = (
    "CREATE (:Revision {id: 'x:y:none:2025:v1@1', key: 'x:y:none:2025:v1'})-[:IN_PLACE]->(:Place {id: 'atlantis'})"
)


def test_a_rebuild_is_what_writing_each_key_gave(graph_services: Services, handmade: HandmadeCatalog) -> None:
    publish_some(handmade)
    handmade.publish(ATLAS, MAP, [upstream(STREAMFLOW, A, "a2")], content="map")
    sink.write(graph_services, STREAMFLOW, [A, B])
    sink.write(graph_services, ATLAS, [MAP])
    incremental = contents(graph_services)
    with open_graph(graph_services.settings) as graph:
        empty(graph)
        assert rebuild(graph_services).keys == 3
        assert contents(graph_services) == incremental
        counted = sum(count_nodes(graph).values())
    assert counted == sum(name[0] == "node" for name in incremental)


def test_what_the_catalog_does_not_have_is_removed(graph_services: Services, handmade: HandmadeCatalog) -> None:
    publish_some(handmade)
    sink.write(graph_services, STREAMFLOW, [A, B])
    right = contents(graph_services)
    handmade.publish(STREAMFLOW, C, content="c", hour=2)
    sink.write(graph_services, STREAMFLOW, [C])
    handmade.withdraw(STREAMFLOW, C, 1)
    with open_graph(graph_services.settings) as graph:
        graph.write(lambda run: run(STRANGE))
        graph.write(
            lambda run: run("CREATE (:Message {id: 'nobody heard it'})-[:ANNOUNCED]->(:SourceObject {id: 'x'})")
        )
        graph.write(lambda run: run("MATCH (m:Message) MATCH (o:SourceObject) MERGE (m)-[:ANNOUNCED]->(o)"))
        graph.write(lambda run: run("MATCH (r:Revision) SET r.title = 'another'"))
    result = rebuild(graph_services)
    assert (result.keys, result.removed, result.problems) == (2, 2, {})
    assert contents(graph_services) == right


def test_others_may_add_to_the_graph(graph_services: Services, handmade: HandmadeCatalog) -> None:
    """Labels and relations of other people stay as they are."""
    publish_some(handmade)
    sink.write(graph_services, STREAMFLOW, [A])
    with open_graph(graph_services.settings) as graph:
        graph.write(lambda run: run("MATCH (r:Revision) CREATE (:Paper {id: 'doi:1'})-[:CITES]->(r)-[:LIKES]->(:Cat)"))
        sink.write(graph_services, STREAMFLOW, [A])
        rebuild(graph_services)
        found = graph.read(lambda run: run("MATCH (:Paper)-[:CITES]->(r)-[:LIKES]->(:Cat) RETURN count(r) AS n"))
    assert found == [{"n": 2}]


def test_unreadable_keys_are_reported_and_the_rest_is_written(
    graph_services: Services, handmade: HandmadeCatalog
) -> None:
    publish_some(handmade)
    layout = Layout(STREAMFLOW.pipeline)
    graph_services.store.write(layout.history(B), b"not JSON")
    assert list(rebuild(graph_services).problems) == [B]
    assert {name[-1] for name in contents(graph_services) if name[1] == "Revision"} == {f"{A}@1", f"{A}@2"}
