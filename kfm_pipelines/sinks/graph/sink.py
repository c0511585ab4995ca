"""The graph as a sink of publications: shows the current state of keys, whatever it showed before."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import IntegrityBroken, ServiceUnavailable
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.graph import statements
from kfm_pipelines.sinks.graph.apply import show
from kfm_pipelines.sinks.graph.client import Graph, GraphRefused, Run, open_graph
from kfm_pipelines.sinks.graph.compare import Delta, compare, read_derivations, read_present
from kfm_pipelines.sinks.graph.documents import read_documents
from kfm_pipelines.sinks.graph.facts import key_facts
from kfm_pipelines.sinks.graph.model import GraphFacts
from kfm_pipelines.state.database import Database, session_lock
from kfm_pipelines.stores import Layout

CHUNK = 200  # keys whose documents are read together
TRANSACTION_SIZE = 20_000  # nodes and relations
LOCK_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Contribution:
    """What each key contributes to the graph, and the problems of keys whose documents cannot be read."""

    facts: Mapping[str, GraphFacts]
    problems: Mapping[str, str]


def write(services: Services, dataset: Dataset, keys: Sequence[str]) -> dict[str, str]:
    """Makes the graph show what is published of these keys, and nothing else of them. Returns problems by key.

    Raises ServiceUnavailable when the graph does not answer. Writing the same keys again repairs whatever was left.
    """
    with open_graph(services.settings) as graph, only_writer(services.database):
        prepare(graph)
        return write_keys(graph, services, dataset, keys)


def write_keys(graph: Graph, services: Services, dataset: Dataset, keys: Sequence[str]) -> dict[str, str]:
    """Writes the keys for the only writer."""
    problems: dict[str, str] = {}
    for chunk in _chunks(keys):
        contribution = contributions(services, dataset, chunk)
        problems.update(contribution.problems)
        for some in _in_transactions(contribution.facts):
            problems.update(write_facts(graph, some))
    return problems


def differences(services: Services, dataset: Dataset, keys: Sequence[str]) -> dict[str, str]:
    """Returns how the graph differs from the catalog, for those of these keys where it does."""
    found: dict[str, str] = {}
    with open_graph(services.settings) as graph:
        for chunk in _chunks(keys):
            contribution = contributions(services, dataset, chunk)
            found.update(contribution.problems)
            found.update(_different(graph, contribution.facts))
    return found


def contributions(services: Services, dataset: Dataset, keys: Sequence[str]) -> Contribution:
    read = read_documents(services.store, Layout(dataset.pipeline), keys)
    facts, problems = {}, dict(read.problems)
    for key, documents in read.documents.items():
        try:
            facts[key] = key_facts(dataset, key, documents)
        except IntegrityBroken as error:
            problems[key] = str(error)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problems[key] = f"its documents lack something: {type(error).__name__}: {str(error)[:200]}"
    return Contribution(facts, problems)


def prepare(graph: Graph) -> None:
    """Creates the constraints and indexes that the graph does not have yet."""
    existing = {row["name"] for statement in statements.SCHEMA_NAMES for row in graph.run(statement)}
    for name, statement in statements.SCHEMA.items():
        if name not in existing:
            graph.run(statement.format(name=name))


@contextmanager
def only_writer(database: Database) -> Iterator[None]:
    """Lets nobody else write the graph. Raises ServiceUnavailable when another process keeps writing it."""
    with session_lock(database, "kfm graph", LOCK_SECONDS) as taken:
        if not taken:
            raise ServiceUnavailable(f"another process has been writing the graph for {LOCK_SECONDS} s")
        yield


def _in_transactions(facts: Mapping[str, GraphFacts]) -> Iterator[dict[str, GraphFacts]]:
    """Yields keys whose facts are not too many together: the server holds a transaction in memory."""
    some: dict[str, GraphFacts] = {}
    size = 0
    for key, one in facts.items():
        if some and size + one.size > TRANSACTION_SIZE:
            yield some
            some, size = {}, 0
        some[key] = one
        size += one.size
    if some:
        yield some


def write_facts(graph: Graph, facts: Mapping[str, GraphFacts]) -> dict[str, str]:
    """Writes all keys in one transaction; if the graph refuses one of them, each in its own."""
    if not facts:
        return {}
    try:
        graph.write(lambda run: show(run, list(facts), _union(facts)))
    except GraphRefused as refusal:
        if len(facts) == 1:
            return dict.fromkeys(facts, str(refusal))
        return {key: text for key, one in facts.items() for text in write_facts(graph, {key: one}).values()}
    return {}


def _different(graph: Graph, facts: Mapping[str, GraphFacts]) -> dict[str, str]:
    """Compares all keys at once, and each by itself only where that finds something."""
    if not _difference(graph, list(facts), _union(facts)):
        return {}
    found = {key: _difference(graph, [key], wanted) for key, wanted in facts.items()}
    return {key: str(difference) for key, difference in found.items() if difference}


def _difference(graph: Graph, keys: Sequence[str], wanted: GraphFacts) -> Delta | None:
    """Returns how the graph differs from what these keys contribute together."""

    def read(run: Run) -> Delta | None:
        return compare(wanted, read_present(run, keys, wanted)) or read_derivations(run, keys) or None

    return graph.read(read)


def _union(facts: Mapping[str, GraphFacts]) -> GraphFacts:
    union = GraphFacts()
    for one in facts.values():
        union.nodes.update(one.nodes)
        union.relations.update(one.relations)
    return union


def _chunks(keys: Sequence[str]) -> Iterator[list[str]]:
    distinct = list(dict.fromkeys(keys))
    return (distinct[start : start + CHUNK] for start in range(0, len(distinct), CHUNK))
