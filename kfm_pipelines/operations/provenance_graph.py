"""One graph of where everything that is published came from, written when something changed, and asked by people."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.catalogs.documents import SHA256
from kfm_pipelines.catalogs.prov_graph import (
    SHARING,
    SOURCES,
    STAGES,
    asked,
    loaded,
    packed,
    prepared,
    quads,
    sharing,
    unpacked,
)
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import ObjectMissing
from kfm_pipelines.gates.items import asset_of, sha256
from kfm_pipelines.operations.signing import write_with_seal
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.graph_marks import changes_in_graph, changes_of_collections, mark_graph
from kfm_pipelines.state.revisions import published_keys
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import PROVENANCE_GRAPH


@dataclass
class GraphWritten:
    """What came of writing the graph. A release whose Item or provenance is missing or changed is left out; the scan
    of what is published says what is wrong with it."""

    written: bool = False
    published: bool = True  # whether there was anything to write of, ever
    releases: int = 0
    left_out: int = 0

    def __str__(self) -> str:
        if not self.published:
            return "nothing is published yet, so there is no graph"
        if not self.written:
            return "nothing was published since the graph was written"
        return f"provenance of {self.releases} releases" + (f"; {self.left_out} left out" if self.left_out else "")


@dataclass(frozen=True, slots=True)
class Origins:
    """Where one key's data came from, and what else came from there."""

    sources: Sequence[dict[str, Any]]
    stages: Sequence[dict[str, Any]]
    sharing: Sequence[dict[str, Any]]  # as of when the graph was written


def write_graph(workshop: Workshop) -> GraphWritten:
    """Write the graph of all current releases, unless nothing was published since."""
    result = GraphWritten()
    with workshop.database.transaction() as connection:
        changes = changes_of_collections(connection)
        if changes == changes_in_graph(connection) and (not changes or workshop.store.exists(PROVENANCE_GRAPH)):
            result.published = bool(changes)
            return result
        keys = [
            (workshop.datasets[dataset], one.key)
            for dataset in changes
            if dataset in workshop.datasets
            for one in published_keys(connection, dataset)
        ]
        write_with_seal(workshop, PROVENANCE_GRAPH, packed(_lines(workshop, keys, result)))
        mark_graph(connection, changes)
    result.written = True
    return result


def origins_of(workshop: Workshop, key: str, dataset: Dataset) -> Origins:
    """ObjectMissing when nothing is published of the key."""
    document, digest = _provenance(workshop, dataset, key)
    own = loaded(quads(document, digest))
    sources = asked(own, SOURCES)
    others: list[dict[str, Any]] = []
    if workshop.store.exists(PROVENANCE_GRAPH):
        lines = sharing(workshop.store.read(PROVENANCE_GRAPH), {one["address"] for one in sources})
        others = [one for one in asked(loaded(lines), SHARING) if one["key"] != key] if lines else []
    return Origins(sources, asked(own, STAGES), others)


def ask_graph(workshop: Workshop, query: str) -> list[dict[str, Any]]:
    """QueryRefused for what the graph cannot answer, before it is read: that takes a while."""
    prepared(query)
    if not workshop.store.exists(PROVENANCE_GRAPH):
        raise ObjectMissing("there is no graph yet; `kfm lineage graph` writes it, as does the nightly job")
    return asked(loaded(unpacked(workshop.store.read(PROVENANCE_GRAPH))), query)


def _lines(workshop: Workshop, keys: Sequence[tuple[Dataset, str]], result: GraphWritten) -> Iterator[str]:
    for dataset, key in keys:
        try:
            document, digest = _provenance(workshop, dataset, key)
            lines = quads(document, digest)
        except (ObjectMissing, ValueError, KeyError, TypeError):
            result.left_out += 1
            continue
        result.releases += 1
        yield from lines


def _provenance(workshop: Workshop, dataset: Dataset, key: str) -> tuple[bytes, str]:
    """The document that the key's Item leads to, and its digest."""
    layout = Layout(dataset.pipeline)
    item = json.loads(workshop.store.read(layout.item(key)))
    digest = str(asset_of(item, "provenance").get("file:checksum")).removeprefix(SHA256)
    document = workshop.store.read(layout.document(digest))
    if sha256(document) != digest:
        raise ObjectMissing(f"{key}: the provenance is not what its Item says it is")
    return document, digest
