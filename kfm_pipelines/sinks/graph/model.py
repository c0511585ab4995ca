"""What the graph consists of: labels, kinds of relations, and how they align with the vocabularies they come from.

Revisions and activities belong to one key. All other nodes are shared, so they say nothing but what their name says:
whatever one release states of an object or a policy is on the relation. A graph therefore is the union of what each key
contributes, in whatever order it was written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kfm_pipelines.events import CanonicalKey

Value = str | int | float | bool | list[str]
Properties = Mapping[str, Value]


class Label(StrEnum):
    DATASET = "Dataset"
    COLLECTION = "Collection"
    KEY = "Key"
    REVISION = "Revision"
    DISTRIBUTION = "Distribution"
    ACTIVITY = "Activity"
    SOURCE_OBJECT = "SourceObject"
    MESSAGE = "Message"
    POLICY = "Policy"
    AUTHORITY = "Authority"
    AGENT = "Agent"
    PLACE = "Place"
    TIME_WINDOW = "TimeWindow"


OWN_LABELS = (Label.REVISION, Label.ACTIVITY)  # of one key, which their property `key` names


class Kind(StrEnum):
    """Kinds of relations. Each starts at the key, or at a revision or activity of it, except ANNOUNCED."""

    IN_DATASET = "IN_DATASET"
    IN_COLLECTION = "IN_COLLECTION"
    CURRENT = "CURRENT"  # dcat:hasCurrentVersion
    IS_VERSION_OF = "IS_VERSION_OF"  # dcat:isVersionOf
    WAS_REVISION_OF = "WAS_REVISION_OF"
    WAS_DERIVED_FROM = "WAS_DERIVED_FROM"
    WAS_GENERATED_BY = "WAS_GENERATED_BY"
    WAS_ATTRIBUTED_TO = "WAS_ATTRIBUTED_TO"
    WAS_INFORMED_BY = "WAS_INFORMED_BY"
    WAS_ASSOCIATED_WITH = "WAS_ASSOCIATED_WITH"
    USED = "USED"
    GENERATED = "GENERATED"
    HAD_PLAN = "HAD_PLAN"
    DISTRIBUTION = "DISTRIBUTION"  # dcat:distribution
    UNDER_POLICY = "UNDER_POLICY"
    DECIDED_BY = "DECIDED_BY"
    IN_PLACE = "IN_PLACE"  # geo:sfWithin, dcterms:spatial
    IN_WINDOW = "IN_WINDOW"  # dcterms:temporal
    ANNOUNCED = "ANNOUNCED"  # from a message to what it is about


# Every node says which class of other vocabularies it is.
ALIGNMENTS: Mapping[Label, Mapping[str, str]] = {
    Label.DATASET: {"dcat": "dcat:DatasetSeries", "cidoc": "E73 Information Object"},
    Label.COLLECTION: {"stac": "Collection", "geosparql": "geo:FeatureCollection"},
    Label.KEY: {"dcat": "dcat:Dataset", "geosparql": "geo:Feature"},
    Label.REVISION: {"prov": "prov:Collection", "dcat": "dcat:Dataset", "cidoc": "E73 Information Object"},
    Label.DISTRIBUTION: {"prov": "prov:Entity", "dcat": "dcat:Distribution"},
    Label.ACTIVITY: {"prov": "prov:Activity", "cidoc": "E7 Activity"},
    Label.SOURCE_OBJECT: {"prov": "prov:Entity", "cidoc": "E73 Information Object"},
    Label.MESSAGE: {"prov": "prov:Entity"},
    Label.POLICY: {"prov": "prov:Plan", "cidoc": "E29 Design or Procedure"},
    Label.AUTHORITY: {"prov": "prov:Organization", "cidoc": "E74 Group"},
    Label.AGENT: {"prov": "prov:Organization", "cidoc": "E74 Group"},
    Label.PLACE: {"geosparql": "geo:Feature", "cidoc": "E53 Place"},
    Label.TIME_WINDOW: {"owl_time": "time:Interval", "cidoc": "E52 Time-Span"},
}


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A node by its label and the name that it has in the documents."""

    label: Label
    id: str


@dataclass(frozen=True, slots=True, order=True)
class Relation:
    kind: Kind
    source: Node
    target: Node


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """Nodes and relations with their properties."""

    nodes: dict[Node, dict[str, Value]] = field(default_factory=dict)
    relations: dict[Relation, dict[str, Value]] = field(default_factory=dict)

    def add(self, label: Label, name: str, properties: Mapping[str, Any] | None = None) -> Node:
        """Adds a node and returns it. Properties without a value are left out."""
        node = Node(label, name)
        self.nodes.setdefault(node, {"id": name, **ALIGNMENTS[label]}).update(_present(properties))
        return node

    @property
    def size(self) -> int:
        return len(self.nodes) + len(self.relations)

    def relate(self, source: Node, kind: Kind, target: Node, properties: Mapping[str, Any] | None = None) -> None:
        self.relations.setdefault(Relation(kind, source, target), {}).update(_present(properties))


def key_properties(key: str) -> dict[str, str]:
    """Returns what the name of a key says, which is all that a derived dataset knows of it."""
    parts = CanonicalKey.parse(key)
    return {
        "key": key,
        "source": parts.source,
        "aoi": parts.aoi,
        "h3_res": parts.h3_res,
        "window": parts.time_window,
        "transform_version": parts.transform_version,
    }


def _present(properties: Mapping[str, Any] | None) -> dict[str, Value]:
    return {name: value for name, value in (properties or {}).items() if value is not None}
