"""Places in the graph: the area of a key, its tile, county or cell, and the nations that its release names.

They come from names that are published, so no place is finer than what readers of the catalog see.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kfm_pipelines.catalog.prov.document import slug
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.sinks.graph.model import GraphFacts, Kind, Label, Node

H3_CELL = "h3_cell"


def places_of_key(facts: GraphFacts, dataset: Dataset, key: str) -> Iterator[tuple[Kind, Node]]:
    aoi, member = _split(dataset, CanonicalKey.parse(key).aoi)
    area = {"kind": "area", "name": aoi}
    yield Kind.IN_PLACE, facts.add(Label.PLACE, f"kfm:place:{aoi}", area)
    if member:
        kind = member_kind(dataset)
        where = f"kfm:place:{kind}:{member}" if kind == H3_CELL else f"kfm:place:{aoi}:{kind}:{member}"
        yield Kind.IN_PLACE, facts.add(Label.PLACE, where, {"kind": kind, "name": member})


def add_nations(facts: GraphFacts, revision: Node, properties: Mapping[str, Any]) -> None:
    if (sovereignty := properties.get("kfm:sovereignty")) is not None:
        nations = str(sovereignty["nations"])
        node = facts.add(Label.PLACE, f"kfm:nations:{slug(nations)}", {"kind": "nations", "name": nations})
        facts.relate(revision, Kind.IN_PLACE, node)


def member_kind(dataset: Dataset) -> str:
    """Returns what the members of a key are: the declared group or column, such as tile or county, or cells."""
    split = dataset.key.split_by
    if split is None:
        return dataset.key.fold_by or "member"
    return split.column or H3_CELL


def _split(dataset: Dataset, aoi: str) -> tuple[str, str]:
    """Returns the area and the member in a key; its area may have been declared differently at the time."""
    declared = dataset.key.aoi
    if dataset.key.has_members and aoi.startswith(f"{declared}-"):
        return declared, aoi.removeprefix(f"{declared}-")
    return aoi, ""
