"""Nodes and relations that the embedded graph takes in a second, and whether that stays so as it grows.

Facts are those of a published key under other names, so what is measured is the graph and its client.
"""

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bench.measurement import Measurement
from kfm_pipelines.local.graph import graph_environment, start_graph
from kfm_pipelines.settings import load_settings
from kfm_pipelines.sinks.graph import sink
from kfm_pipelines.sinks.graph.client import Graph, open_graph
from kfm_pipelines.sinks.graph.documents import read_documents
from kfm_pipelines.sinks.graph.facts import key_facts
from kfm_pipelines.sinks.graph.model import GraphFacts, Node, Relation
from kfm_pipelines.stores import Layout, open_store
from kfm_pipelines_tests.fixtures.catalog.release import FACTS, STREAMFLOW
from kfm_pipelines_tests.fixtures.graph.handmade_catalog import HandmadeCatalog, digest, source

FEW, MANY = 1_000, 100_000
PROMISED = 5_000
OBJECT = source(f"{FACTS.key}.parquet")
OWN = ("2025-12-04T00Z", digest(FACTS.key), OBJECT.event)  # what differs from key to key


def graph_upserts(folder: Path) -> list[Measurement]:
    server = start_graph(folder)
    if server is None:
        raise SystemExit("the embedded graph does not start: install kfm-pipelines[graph]")
    try:
        environment = {"KFM_POSTGRES_URL": "postgresql://unused", **graph_environment(folder, server.url)}
        with open_graph(load_settings(environment)) as graph:
            sink.prepare(graph)
            keys = _facts(_template(folder))
            _upserts_per_second(graph, keys, FEW)  # until its code is compiled
            few = _upserts_per_second(graph, keys, FEW)
            _upserts_per_second(graph, keys, MANY - 3 * FEW)
            many = _upserts_per_second(graph, keys, FEW)
    finally:
        server.process.stop()
    return [
        Measurement("graph_upserts", few, "upserts/s", PROMISED),
        Measurement(f"graph_upserts_after_{MANY}_keys", many, "upserts/s", few),
    ]


def _upserts_per_second(graph: Graph, keys: Iterator[tuple[str, GraphFacts]], count: int) -> float:
    upserts, seconds = 0, 0.0
    while chunk := dict(islice(keys, min(sink.CHUNK, count))):
        start = time.perf_counter()
        problems = sink.write_facts(graph, chunk)
        seconds += time.perf_counter() - start
        if problems:
            raise SystemExit(f"the graph refused {len(problems)} keys")
        upserts += sum(len(one.nodes) + len(one.relations) for one in chunk.values())
        count -= len(chunk)
        if not count:
            break
    return upserts / seconds


def _template(folder: Path) -> GraphFacts:
    """Returns the facts of one published key."""
    catalog, key = HandmadeCatalog(open_store((folder / "data").as_uri())), FACTS.key
    catalog.publish(STREAMFLOW, key, [OBJECT])
    return key_facts(STREAMFLOW, key, read_documents(catalog.store, Layout(STREAMFLOW.pipeline), [key]).documents[key])


def _facts(template: GraphFacts) -> Iterator[tuple[str, GraphFacts]]:
    """Yields the template under the names of ever other keys."""
    number = 0
    while True:
        number += 1

        def rename(text: str, to: str = f"key-{number:08d}") -> str:
            for own in OWN:
                text = text.replace(own, to)
            return text

        nodes = {
            Node(one.label, rename(one.id)): {
                name: rename(value) if isinstance(value, str) else value for name, value in stated.items()
            }
            for one, stated in template.nodes.items()
        }
        relations = {
            Relation(
                one.kind, Node(one.source.label, rename(one.source.id)), Node(one.target.label, rename(one.target.id))
            ): stated
            for one, stated in template.relations.items()
        }
        yield rename(FACTS.key), GraphFacts(nodes, relations)
