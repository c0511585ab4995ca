"""Whatever happens in between, writing every key once more gives the graph that writing in order would have given."""

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.graph import sink
from kfm_pipelines.sinks.graph.client import open_graph
from kfm_pipelines.sinks.graph.rebuild import rebuild
from kfm_pipelines.stores import WorkStore, open_store
from kfm_pipelines_tests.fixtures.catalog.release import STREAMFLOW
from kfm_pipelines_tests.fixtures.graph.handmade_catalog import HandmadeCatalog, source, upstream
from kfm_pipelines_tests.fixtures.graph.server import contents, empty, without_graph
from kfm_pipelines_tests.sinks.graph.test_sink import ATLAS, MAP, STRICTER, A, B

KEYS = (A, B, MAP)
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(("publish", "withdraw", "write", "write", "outage"))),
    min_size=4,
    max_size=14,
)


class History:
    """Takes the operations to a catalog and a graph."""

    def __init__(self, services: Services, folder: Path) -> None:
        services.__dict__["store"] = WorkStore(open_store(folder.as_uri()))
        self.services, self.catalog = services, HandmadeCatalog(services.store)
        self.numbers: dict[str, list[int]] = defaultdict(list)
        self.count = 0

    def apply(self, key: str, operation: str) -> None:
        match operation:
            case "publish":
                self.publish(key)
            case "withdraw" if self.numbers[key]:
                self.catalog.withdraw(ATLAS if key == MAP else STREAMFLOW, key, self.numbers[key].pop(0))
            case "write":
                self.write(self.services, key)
            case "outage":
                try:
                    self.write(without_graph(self.services), key)
                except ServiceUnavailable:
                    return
                raise AssertionError("a graph that is away accepted something")

    def publish(self, key: str) -> None:
        """Publishes one of three contents, so that some come back and some are in two keys."""
        self.count += 1
        content, shared = f"content {self.count % 3}", source("shared.parquet", f"v{self.count % 2}")
        if key == MAP:
            inputs = [upstream(STREAMFLOW, A, content), upstream(STREAMFLOW, B, content)]
            self.numbers[key].append(self.catalog.publish(ATLAS, key, inputs, content=f"map {self.count}"))
        elif self.count % 4:
            self.numbers[key].append(self.catalog.publish(STREAMFLOW, key, [source(key), shared], content=content))
        else:
            self.numbers[key].append(self.catalog.publish(STREAMFLOW, key, [shared], content=content, care=STRICTER))

    def write(self, services: Services, *keys: str) -> None:
        for key in keys:
            assert sink.write(services, ATLAS if key == MAP else STREAMFLOW, [key]) == {}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(operations=OPERATIONS, last=st.permutations(KEYS))
def test_any_interleaving_ends_in_the_same_graph(
    graph_services: Services, operations: list[tuple[str, str]], last: list[str]
) -> None:
    with open_graph(graph_services.settings) as graph, TemporaryDirectory() as folder:
        empty(graph)
        history = History(graph_services, Path(folder))
        for key, operation in operations:
            history.apply(key, operation)
        history.write(graph_services, *last)
        interleaved = contents(graph_services)
        empty(graph)
        history.write(graph_services, *KEYS)
        assert contents(graph_services) == interleaved
        assert rebuild(graph_services).problems == {}
        assert contents(graph_services) == interleaved
        empty(graph)
        rebuild(graph_services)
        assert contents(graph_services) == interleaved
