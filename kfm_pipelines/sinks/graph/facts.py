"""What one key contributes to the graph: a pure function of its published documents and its declaration."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from kfm_pipelines.catalog.documents import SHA256_MULTIHASH_PREFIX, asset_of
from kfm_pipelines.catalog.prov.document import data_id, slug
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.events.notice import release_uri
from kfm_pipelines.sinks.graph.documents import Document, KeyDocuments, digest_of_asset
from kfm_pipelines.sinks.graph.model import GraphFacts, Kind, Label, Node, key_properties
from kfm_pipelines.sinks.graph.places import add_nations, places_of_key
from kfm_pipelines.sinks.graph.provenance import add_provenance


def key_facts(dataset: Dataset, key: str, documents: KeyDocuments) -> GraphFacts:
    """Returns nothing for a key without an Item. Raises IntegrityBroken when its history lacks what its Item says."""
    facts = GraphFacts()
    if documents.item is None:
        return facts
    node = key_node(facts, dataset, key)
    facts.relate(node, Kind.IN_DATASET, _dataset_node(facts, dataset))
    facts.relate(node, Kind.IN_COLLECTION, _collection_node(facts, dataset))
    around = [*places_of_key(facts, dataset, key), *_window(facts, documents.item)]
    numbers = sorted(documents.revisions)
    nodes = {number: _add_revision(facts, node, documents, number) for number in numbers}
    for revision in nodes.values():
        for kind, target in around:
            facts.relate(revision, kind, target)
    for before, after in pairwise(numbers):
        facts.relate(nodes[after], Kind.WAS_REVISION_OF, nodes[before])
    facts.relate(node, Kind.CURRENT, nodes[_current_number(key, documents)])
    return facts


def key_node(facts: GraphFacts, dataset: Dataset, key: str) -> Node:
    return facts.add(Label.KEY, release_uri(dataset.dataset, key), key_properties(key))


def _dataset_node(facts: GraphFacts, dataset: Dataset) -> Node:
    properties = {"dataset": dataset.dataset, "title": dataset.title, "licence": dataset.licence.id}
    return facts.add(Label.DATASET, f"kfm:dataset:{dataset.dataset}", properties)


def _collection_node(facts: GraphFacts, dataset: Dataset) -> Node:
    return facts.add(Label.COLLECTION, dataset.pipeline, {"title": dataset.title})


def _window(facts: GraphFacts, item: Document) -> Iterator[tuple[Kind, Node]]:
    starts, ends = item["properties"]["start_datetime"], item["properties"]["end_datetime"]
    window = facts.add(Label.TIME_WINDOW, f"kfm:window:{starts}/{ends}", {"starts": starts, "ends": ends})
    yield Kind.IN_WINDOW, window


def _add_revision(facts: GraphFacts, key: Node, documents: KeyDocuments, number: int) -> Node:
    document, provenance = documents.revisions[number], documents.provenance[number]
    revision = facts.add(Label.REVISION, document["id"], _revision_properties(document))
    facts.relate(revision, Kind.IS_VERSION_OF, key)
    for name, asset in sorted(document["assets"].items()):
        if "metadata" not in asset["roles"]:
            _add_distribution(facts, revision, name, asset)
    for provider in document["properties"]["providers"]:
        agent = facts.add(Label.AGENT, f"kfm:provider:{slug(provider['name'])}", {"name": provider["name"]})
        facts.relate(revision, Kind.WAS_ATTRIBUTED_TO, agent, {"roles": provider["roles"]})
    add_nations(facts, revision, document["properties"])
    add_provenance(facts, revision, document, provenance)
    return revision


def _revision_properties(document: Document) -> dict[str, Any]:
    properties = document["properties"]
    records = {f"{name}_sha256": _checksum(asset_of(document, name)) for name in ("provenance", "manifest")}
    return {
        "key": properties["kfm:key"],
        "number": properties["kfm:revision"],
        "dataset": properties["kfm:dataset"],
        "title": properties["title"],
        "licence": properties["license"],
        "published": properties["published"],
        "content_sha256": digest_of_asset(document, "data"),
        "inputs_hash": properties["kfm:inputs_hash"],
        "transform_version": properties["kfm:transform_version"],
        "gates": sorted(properties["kfm:gates"]),
        "labels": sorted(properties["kfm:labels"]) if "kfm:labels" in properties else None,
        "late_inputs": properties.get("kfm:late_inputs", 0),
        "rows": properties["table:row_count"],
        "expires": properties.get("expires"),
        "superseded": bool(properties.get("deprecated")),
        "geometry": _well_known_text(document.get("bbox")),
        **records,
    }


def _add_distribution(facts: GraphFacts, revision: Node, name: str, asset: Mapping[str, Any]) -> None:
    digest = _checksum(asset)
    address = data_id(digest) if digest else asset["href"]
    node = facts.add(Label.DISTRIBUTION, address, {"sha256": digest})
    path = asset["href"].rpartition("../")[2]
    described = {"asset": name, "href": path, "media_type": asset.get("type"), "bytes": asset.get("file:size")}
    facts.relate(revision, Kind.DISTRIBUTION, node, described)


def _checksum(asset: Mapping[str, Any]) -> str | None:
    checksum = asset.get("file:checksum")
    return str(checksum).removeprefix(SHA256_MULTIHASH_PREFIX) if checksum else None


def _well_known_text(bbox: list[float] | None) -> str | None:
    """Returns the published rectangle as geo:wktLiteral."""
    if not bbox:
        return None
    west, south, east, north = bbox
    return f"POLYGON(({west} {south},{east} {south},{east} {north},{west} {north},{west} {south}))"


def _current_number(key: str, documents: KeyDocuments) -> int:
    """Returns the last revision with the data and the provenance of the Item."""
    wanted = _release_of(documents.item or {})
    for number in sorted(documents.revisions, reverse=True):
        if _release_of(documents.revisions[number]) == wanted:
            return number
    raise IntegrityBroken(f"{key}: its history does not have the release that its Item describes")


def _release_of(document: Document) -> tuple[str, str]:
    return digest_of_asset(document, "data"), digest_of_asset(document, "provenance")
