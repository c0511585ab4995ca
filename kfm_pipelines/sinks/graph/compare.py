"""What the graph has of some keys, and how that differs from what it should have."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kfm_pipelines.sinks.graph import statements
from kfm_pipelines.sinks.graph.client import Row, Run
from kfm_pipelines.sinks.graph.model import OWN_LABELS, GraphFacts, Kind, Label, Node, Relation

_KINDS, _LABELS = frozenset(map(str, Kind)), frozenset(map(str, Label))


@dataclass(frozen=True, slots=True)
class Delta:
    """What has to change so that the graph shows what it should."""

    set_nodes: Mapping[Node, dict[str, object]] = field(default_factory=dict)
    set_relations: Mapping[Relation, dict[str, object]] = field(default_factory=dict)
    drop_nodes: frozenset[Node] = frozenset()
    drop_relations: frozenset[Relation] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.set_nodes or self.set_relations or self.drop_nodes or self.drop_relations)

    def __str__(self) -> str:
        parts = [
            *(f"{one.label} {one.id} is missing or different" for one in self.set_nodes),
            *(_describe(one, "is missing or different") for one in self.set_relations),
            *(f"{one.label} {one.id} is no longer published" for one in self.drop_nodes),
            *(_describe(one, "is no longer published") for one in self.drop_relations),
        ]
        more = f"; {len(parts) - 1} more" if len(parts) > 1 else ""
        return f"{sorted(parts)[0]}{more}" if parts else "as published"


def read_present(run: Run, keys: Sequence[str], wanted: GraphFacts) -> GraphFacts:
    """Returns everything that these keys contribute to the graph, and the wanted nodes that it has."""
    present = GraphFacts()
    for label in (Label.KEY, *OWN_LABELS):
        for row in run(statements.own_nodes(label), keys=list(keys)):
            present.nodes[Node(label, row["id"])] = dict(row["properties"])
        for row in run(statements.own_relations(label), keys=list(keys)):
            relation = _relation(label, row)
            if relation is not None and not _is_derivation(relation):
                present.relations[relation] = dict(row["properties"])
    for label, ids in by_label(one for one in wanted.nodes if one not in present.nodes).items():
        for row in run(statements.shared_nodes(label), ids=ids):
            present.nodes[Node(label, row["id"])] = dict(row["properties"])
    messages = [one.id for one in wanted.nodes if one.label is Label.MESSAGE]
    for row in run(statements.ANNOUNCEMENTS, ids=messages) if messages else []:
        relation = _relation(Label.MESSAGE, row)
        if relation is not None and relation in wanted.relations:  # others may be of other keys
            present.relations[relation] = {}
    return present


def compare(wanted: GraphFacts, present: GraphFacts) -> Delta:
    """Returns the difference. What another key may still need is not dropped here."""
    return Delta(
        {node: dict(stated) for node, stated in wanted.nodes.items() if present.nodes.get(node) != stated},
        {one: dict(stated) for one, stated in wanted.relations.items() if present.relations.get(one) != stated},
        frozenset(one for one in present.nodes if one.label in OWN_LABELS and one not in wanted.nodes),
        frozenset(one for one in present.relations if one not in wanted.relations),
    )


def read_derivations(run: Run, keys: Sequence[str]) -> Delta:
    """Returns which derivations from revisions are missing, and which nothing supports any more."""
    wanted = {_derivation(row) for one in statements.DERIVATIONS_WANTED for row in run(one, keys=list(keys))}
    present = {_derivation(row) for one in statements.DERIVATIONS_PRESENT for row in run(one, keys=list(keys))}
    return Delta({}, {one: {} for one in wanted - present}, frozenset(), frozenset(present - wanted))


def _is_derivation(relation: Relation) -> bool:
    """Whether this relation follows from others, which several keys may state."""
    return relation.kind is Kind.WAS_DERIVED_FROM and relation.target.label is Label.REVISION


def by_label(nodes: Iterable[Node]) -> dict[Label, list[str]]:
    found: dict[Label, list[str]] = {}
    for one in nodes:
        found.setdefault(one.label, []).append(one.id)
    return found


def _derivation(row: Row) -> Relation:
    source, target = Node(Label.REVISION, row["source"]), Node(Label.REVISION, row["target"])
    return Relation(Kind.WAS_DERIVED_FROM, source, target)


def _relation(source: Label, row: Row) -> Relation | None:
    """Returns None for what somebody else has added to the graph, which stays as it is."""
    if row["kind"] not in _KINDS or row["label"] not in _LABELS:
        return None
    return Relation(Kind(row["kind"]), Node(source, row["source"]), Node(Label(row["label"]), row["target"]))


def _describe(one: Relation, what: str) -> str:
    return f"{one.source.id} {one.kind} {one.target.id} {what}"
