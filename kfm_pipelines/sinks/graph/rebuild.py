"""Makes the graph show what the catalog has, and nothing else: from the catalog alone, not from the database."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.graph import statements
from kfm_pipelines.sinks.graph.apply import show
from kfm_pipelines.sinks.graph.client import Graph, open_graph
from kfm_pipelines.sinks.graph.model import OWN_LABELS, GraphFacts, Label
from kfm_pipelines.sinks.graph.sink import CHUNK, only_writer, prepare, write_keys
from kfm_pipelines.stores import Layout, Store


@dataclass
class RebuildResult:
    keys: int = 0  # that the catalog has
    removed: int = 0  # keys that only the graph had
    problems: dict[str, str] = field(default_factory=dict)  # by key


def rebuild(services: Services, on_progress: Callable[[int, int], None] = lambda done, total: None) -> RebuildResult:
    """Writes every key of the catalog, then removes what is left. Publications may go on meanwhile."""
    result = RebuildResult()
    published = {name: published_keys(services.store, one) for name, one in services.datasets.items()}
    total = sum(map(len, published.values()))
    with open_graph(services.settings) as graph:
        for name, keys in published.items():
            for start in range(0, len(keys), CHUNK):
                result.problems |= _write(graph, services, services.datasets[name], keys[start : start + CHUNK])
                result.keys += len(keys[start : start + CHUNK])
                on_progress(result.keys, total)
        unknown = _known_keys(graph) - {key for keys in published.values() for key in keys}
        result.removed = _remove(graph, services, sorted(unknown), result.problems)
        with only_writer(services.database):
            _sweep(graph)
    return result


def published_keys(store: Store, dataset: Dataset) -> list[str]:
    """Returns the keys that have an Item."""
    return [path.rpartition("/")[2].removesuffix(".json") for path in store.paths(Layout(dataset.pipeline).items())]


def count_nodes(graph: Graph) -> dict[str, int]:
    """Returns the number of nodes with each label."""
    counts = {label: graph.read(lambda run, one=label: run(statements.count_nodes(one))) for label in Label}  # type: ignore[misc]
    return {str(label): int(rows[0]["nodes"]) for label, rows in counts.items()}


def _write(graph: Graph, services: Services, dataset: Dataset, keys: Sequence[str]) -> Mapping[str, str]:
    with only_writer(services.database):
        prepare(graph)
        return write_keys(graph, services, dataset, keys)


def _known_keys(graph: Graph) -> set[str]:
    """Returns the keys that the graph says anything of, but for those that others merely refer to."""
    labels = OWN_LABELS
    rows = [row for label in labels for row in graph.read(lambda run, one=label: run(statements.known_keys(one)))]  # type: ignore[misc]
    return {row["key"] for row in rows if isinstance(row["key"], str)}


def _remove(graph: Graph, services: Services, keys: Sequence[str], problems: dict[str, str]) -> int:
    """Removes keys unless they were published meanwhile. Keys of a dataset that is not declared any more go too."""
    datasets = {one.key.source: one for one in services.datasets.values()}
    undeclared = [key for key in keys if key.partition(":")[0] not in datasets]
    for start in range(0, len(undeclared), CHUNK):
        chunk = undeclared[start : start + CHUNK]
        with only_writer(services.database):
            graph.write(lambda run, some=chunk: show(run, some, GraphFacts()))  # type: ignore[misc]
    for source, dataset in datasets.items():
        problems |= _write(graph, services, dataset, [key for key in keys if key.partition(":")[0] == source])
    return len(keys)


def _sweep(graph: Graph) -> None:
    """Deletes nodes that nothing refers to, and announcements that nothing supports, however they came about."""
    shared = [statements.sweep_orphans(label) for label in Label if label not in OWN_LABELS]
    announced = [statements.sweep_announcements(label) for label in (Label.SOURCE_OBJECT, Label.DISTRIBUTION)]
    for statement in (*announced, *shared):
        while graph.write(lambda run, one=statement: run(one))[0]["deleted"]:  # type: ignore[misc]
            pass
