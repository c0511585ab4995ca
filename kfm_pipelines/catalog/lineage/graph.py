"""One graph of where everything that is published came from, written when something changed, and asked by people."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.catalog.collections import snapshot_marks
from kfm_pipelines.catalog.collections.snapshot_marks import is_outdated, written_at_last
from kfm_pipelines.catalog.documents import SHA256, asset_of, sha256
from kfm_pipelines.catalog.prov.graph import (
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
from kfm_pipelines.catalog.trust.signer import write_with_seal
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import ObjectMissing
from kfm_pipelines.services import Services
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


def write_graph(services: Services) -> GraphWritten:
    """Write the graph of all current releases, unless nothing was published since."""
    return written_at_last("the graph of provenance", lambda: _try_to_write(services))


def _try_to_write(services: Services) -> GraphWritten | None:
    """None when it must not be written."""
    with services.database.transaction() as connection:
        changes = snapshot_marks.changes_of_collections(connection)
        is_current = changes == snapshot_marks.taken_up_to(connection, snapshot_marks.PROVENANCE)
        if is_current and (not changes or services.store.exists(PROVENANCE_GRAPH)):
            return GraphWritten(published=bool(changes))
        keys = [
            (services.datasets[dataset], one.key)
            for dataset in changes
            if dataset in services.datasets
            for one in published_keys(connection, dataset)
        ]
    result, read = GraphWritten(written=True), dict[str, str]()
    data = packed(_lines(services, keys, result, read))
    with services.database.transaction() as connection:
        snapshot_marks.hold_graph(connection)
        if is_outdated(connection, snapshot_marks.PROVENANCE, changes, read):
            return None
        write_with_seal(services, PROVENANCE_GRAPH, data)
        snapshot_marks.record(connection, snapshot_marks.PROVENANCE, changes)
    return result


def origins_of(services: Services, key: str, dataset: Dataset) -> Origins:
    """ObjectMissing when nothing is published of the key."""
    document, digest, _ = _provenance(services, dataset, key)
    own = loaded(quads(document, digest))
    sources = asked(own, SOURCES)
    others: list[dict[str, Any]] = []
    if services.store.exists(PROVENANCE_GRAPH):
        lines = sharing(services.store.read(PROVENANCE_GRAPH), {one["address"] for one in sources})
        others = [one for one in asked(loaded(lines), SHARING) if one["key"] != key] if lines else []
    return Origins(sources, asked(own, STAGES), others)


def ask_graph(services: Services, query: str) -> list[dict[str, Any]]:
    """QueryRefused for what the graph cannot answer, before it is read: that takes a while."""
    prepared(query)
    if not services.store.exists(PROVENANCE_GRAPH):
        raise ObjectMissing("there is no graph yet; `kfm lineage graph` writes it, as does the nightly job")
    return asked(loaded(unpacked(services.store.read(PROVENANCE_GRAPH))), query)


def _lines(
    services: Services, keys: Sequence[tuple[Dataset, str]], result: GraphWritten, read: dict[str, str]
) -> Iterator[str]:
    """Notes in `read` which content of each key it is about."""
    for dataset, key in keys:
        try:
            document, digest, read[key] = _provenance(services, dataset, key)
            lines = quads(document, digest)
        except (ObjectMissing, ValueError, KeyError, TypeError):
            result.left_out += 1
            continue
        result.releases += 1
        yield from lines


def _provenance(services: Services, dataset: Dataset, key: str) -> tuple[bytes, str, str]:
    """The document that the key's Item leads to, its digest, and the one of the data it is about."""
    layout = Layout(dataset.pipeline)
    item = json.loads(services.store.read(layout.item(key)))
    digest = _digest(item, "provenance")
    document = services.store.read(layout.document(digest))
    if sha256(document) != digest:
        raise ObjectMissing(f"{key}: the provenance is not what its Item says it is")
    return document, digest, _digest(item, "data")


def _digest(item: dict[str, Any], asset: str) -> str:
    return str(asset_of(item, asset).get("file:checksum")).removeprefix(SHA256)
