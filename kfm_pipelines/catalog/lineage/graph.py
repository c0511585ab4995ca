"""Writes the provenance of all current releases as one graph, and answers questions about it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.catalog.collections import tables
from kfm_pipelines.catalog.collections.tables import is_outdated, retry_until_written
from kfm_pipelines.catalog.documents import SHA256_MULTIHASH_PREFIX, asset_of, sha256
from kfm_pipelines.catalog.prov import graph as prov
from kfm_pipelines.catalog.prov.document import iri
from kfm_pipelines.catalog.prov.graph import compress_lines, load_quads, quads, run_query
from kfm_pipelines.catalog.trust.signer import write_with_sidecar
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import ObjectMissing
from kfm_pipelines.events.notice import release_uri
from kfm_pipelines.services import Services
from kfm_pipelines.state.revisions import published_keys
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import PROVENANCE_GRAPH


@dataclass
class GraphWriteResult:
    """Leaves out releases whose Item or provenance is missing or changed, which scans report."""

    written: bool = False
    published: bool = True  # whether anything was ever published
    releases: int = 0
    left_out: int = 0

    def __str__(self) -> str:
        if not self.published:
            return "nothing is published yet, so there is no graph"
        if not self.written:
            return "nothing was published since the graph was written"
        releases = "1 release" if self.releases == 1 else f"{self.releases} releases"
        return f"provenance of {releases}" + (f"; {self.left_out} left out" if self.left_out else "")


@dataclass(frozen=True, slots=True)
class KeyLineage:
    """Where the data of one key came from, and other keys made from the same objects, or from this key."""

    sources: Sequence[dict[str, Any]]
    stages: Sequence[dict[str, Any]]
    sharing: Sequence[dict[str, Any]]  # as of when the graph was written


def write_graph(services: Services) -> GraphWriteResult:
    return retry_until_written("the graph of provenance", lambda: _try_to_write_graph(services))


def _try_to_write_graph(services: Services) -> GraphWriteResult | None:
    """Returns None when the graph was outdated before it could be written."""
    with services.database.transaction() as connection:
        changes = tables.changes_of_collections(connection)
        is_current = changes == tables.recorded_changes(connection, tables.GRAPH_SNAPSHOT)
        if is_current and (not changes or services.store.exists(PROVENANCE_GRAPH)):
            return GraphWriteResult(published=bool(changes))
        keys = [
            (services.datasets[dataset], one.key)
            for dataset in changes
            if dataset in services.datasets
            for one in published_keys(connection, dataset)
        ]
    result, read = GraphWriteResult(written=True), dict[str, str]()
    data = compress_lines(_quad_lines(services, keys, result, read))
    with services.database.transaction() as connection:
        tables.lock_graph(connection)
        if is_outdated(connection, tables.GRAPH_SNAPSHOT, changes, read):
            return None
        write_with_sidecar(services, PROVENANCE_GRAPH, data)
        tables.record_mark(connection, tables.GRAPH_SNAPSHOT, changes)
    return result


def read_key_lineage(services: Services, key: str, dataset: Dataset) -> KeyLineage:
    """Raises ObjectMissing when nothing is published for the key."""
    document, digest, _ = _read_provenance(services, dataset, key)
    own = load_quads(quads(document, digest))
    sources = run_query(own, prov.SOURCES_QUERY)
    others: list[dict[str, Any]] = []
    if services.store.exists(PROVENANCE_GRAPH):
        addresses = {*(one["address"] for one in sources), iri(release_uri(dataset.dataset, key))}
        lines = prov.find_lines_sharing(services.store.read(PROVENANCE_GRAPH), addresses)
        found = run_query(load_quads(lines), prov.SHARING_QUERY) if lines else []
        others = [one for one in found if one["key"] != key and one["address"] in addresses]
    return KeyLineage(sources, run_query(own, prov.STAGES_QUERY), others)


def query_graph(services: Services, query: str) -> list[dict[str, Any]]:
    """Raises QueryRefused before it loads the graph, which takes a while."""
    prov.prepare_query(query)
    if not services.store.exists(PROVENANCE_GRAPH):
        raise ObjectMissing("there is no graph yet; write it with `kfm lineage graph`, or wait for the nightly job")
    return run_query(load_quads(prov.decompress_lines(services.store.read(PROVENANCE_GRAPH))), query)


def _quad_lines(
    services: Services, keys: Sequence[tuple[Dataset, str]], result: GraphWriteResult, read: dict[str, str]
) -> Iterator[str]:
    """Records in `read` the content hash of each key."""
    for dataset, key in keys:
        try:
            document, digest, read[key] = _read_provenance(services, dataset, key)
            lines = quads(document, digest)
        except (ObjectMissing, ValueError, KeyError, TypeError):
            result.left_out += 1
            continue
        result.releases += 1
        yield from lines


def _read_provenance(services: Services, dataset: Dataset, key: str) -> tuple[bytes, str, str]:
    """Returns the provenance that the Item of a key links, its digest, and that of the data."""
    layout = Layout(dataset.pipeline)
    item = json.loads(services.store.read(layout.item(key)))
    digest = _asset_digest(item, "provenance")
    document = services.store.read(layout.document(digest))
    if sha256(document) != digest:
        raise ObjectMissing(f"{key}: the provenance does not match its Item")
    return document, digest, _asset_digest(item, "data")


def _asset_digest(item: dict[str, Any], asset: str) -> str:
    return str(asset_of(item, asset).get("file:checksum")).removeprefix(SHA256_MULTIHASH_PREFIX)
