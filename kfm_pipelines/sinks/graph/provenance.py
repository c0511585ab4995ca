"""What the provenance of a release contributes: activities, the objects and messages they used, policy, authority."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kfm_pipelines.catalog.prov.document import data_id, iri
from kfm_pipelines.events.notice import RELEASE_SCHEME, read_release_uri
from kfm_pipelines.sinks.graph.documents import Document
from kfm_pipelines.sinks.graph.model import GraphFacts, Kind, Label, Node, key_properties

Entity = Mapping[str, Any]

DATA = data_id("")
_OUTCOMES = ("care:Masking", "care:Exemption", "care:LeftOpen")
_ITEM_LINK = re.compile(r"(?:\.\./)+([^/]+)/items/([^/]+)\.json")
_OBJECT_TERMS = {"etag": "kfm:etag", "bytes": "kfm:size", "sha256": "kfm:sha256", "hmac_sha256": "kfm:hmacSha256"}
_LABELS: Mapping[str, Label] = {  # by the first of these types that an entity has
    "prov:Activity": Label.ACTIVITY,
    "prov:Plan": Label.POLICY,
    "prov:Organization": Label.AUTHORITY,
    "kfm:Message": Label.MESSAGE,
    "kfm:Object": Label.SOURCE_OBJECT,
}


def add_provenance(facts: GraphFacts, revision: Node, document: Document, provenance: Document) -> None:
    _Reader(facts, revision, document, {one["@id"]: one for one in provenance["@graph"]}).add()


class _Reader:
    def __init__(self, facts: GraphFacts, revision: Node, document: Document, entities: Mapping[str, Entity]) -> None:
        self._facts, self._revision, self._document, self._entities = facts, revision, document, entities
        self._late = _late_inputs(document)

    def add(self) -> None:
        for one in self._of_type("prov:Activity"):
            self._add_activity(one)
        for name, one in self._entities.items():
            for activity in _targets(one, "prov:wasGeneratedBy"):
                self._add_generated(self._node(activity), name, one)
        for one in self._of_type("prov:Plan"):
            if "care:policyDigest" in one:
                self._add_policy(one)
        for one in self._of_type("kfm:Message"):
            for target in _targets(one, "dcterms:references"):
                self._facts.relate(self._node(one["@id"]), Kind.ANNOUNCED, self._node(target))
        for one in self._of_type("kfm:TableBeforePolicy"):
            for name in _targets(one, "prov:wasDerivedFrom"):
                self._add_source(name)

    def _add_activity(self, activity: Entity) -> None:
        facts, node = self._facts, self._node(activity["@id"])
        for name in _targets(activity, "prov:wasInformedBy"):
            facts.relate(node, Kind.WAS_INFORMED_BY, self._node(name))
        for name in _targets(activity, "prov:used"):
            if _is_known(self._entities[name]):
                facts.relate(node, Kind.USED, self._node(name), self._objects_of_message(name))
        for association in _targets(activity, "prov:qualifiedAssociation"):
            for plan in _targets(self._entities[association], "prov:hadPlan"):
                if "care:policyDigest" in self._entities[plan]:
                    facts.relate(node, Kind.HAD_PLAN, self._node(plan))
        for agent in _targets(activity, "prov:wasAssociatedWith"):
            if agent.startswith("kfm:authority:"):
                facts.relate(node, Kind.WAS_ASSOCIATED_WITH, self._node(agent))

    def _add_generated(self, activity: Node, name: str, entity: Entity) -> None:
        if "kfm:Data" in entity["@type"]:
            self._facts.relate(activity, Kind.GENERATED, self._node(name))
        if "kfm:Release" in entity["@type"]:
            self._facts.relate(self._revision, Kind.WAS_GENERATED_BY, activity)

    def _add_policy(self, policy: Entity) -> None:
        outcomes = {kind: one for one in self._of_type("prov:Activity") for kind in one["@type"] if kind in _OUTCOMES}
        [(outcome, masking)] = outcomes.items()
        described = {
            "sha256": policy["care:policyDigest"],
            "outcome": outcome.removeprefix("care:"),
            "methods": _texts(masking, "care:method") or None,
            "exemption": masking.get("care:exemption"),
        }
        self._facts.relate(self._revision, Kind.UNDER_POLICY, self._node(policy["@id"]), described)
        for name in _targets(policy, "care:authority"):
            self._facts.relate(self._revision, Kind.DECIDED_BY, self._node(name))

    def _add_source(self, name: str) -> None:
        """Adds an object, or the keys of other datasets whose release was used: several may have the same bytes."""
        entity, addresses = self._entities[name], _targets(self._entities[name], "prov:specializationOf")
        late = {"late": True} if any(self._is_late(address, entity) for address in addresses) else {}
        upstream = {address: found[1] for address in addresses if (found := read_release_uri(address))}
        for address, key in upstream.items():
            node = self._facts.add(Label.KEY, address, key_properties(key))
            used = {"content_sha256": entity.get("kfm:sha256"), **late}
            self._facts.relate(self._revision, Kind.WAS_DERIVED_FROM, node, used)
        if not upstream:
            stated = {name: entity.get(term) for name, term in _OBJECT_TERMS.items()}
            self._facts.relate(self._revision, Kind.WAS_DERIVED_FROM, self._node(name), {**stated, **late})

    def _is_late(self, address: str, entity: Entity) -> bool:
        return (address, entity.get("kfm:versionId")) in self._late

    def _objects_of_message(self, name: str) -> dict[str, list[str]] | None:
        objects = sorted(_targets(self._entities[name], "dcterms:references"))
        return {"about": objects} if objects else None

    def _of_type(self, kind: str) -> Iterator[Entity]:
        return (one for one in self._entities.values() if kind in one["@type"])

    def _node(self, name: str) -> Node:
        entity = self._entities[name]
        match _label_of(name, entity):
            case Label.ACTIVITY:
                key = self._document["properties"]["kfm:key"]
                return self._facts.add(Label.ACTIVITY, name, {"key": key, "stage": name.rpartition(":")[2]})
            case Label.DISTRIBUTION:
                return self._facts.add(Label.DISTRIBUTION, name, {"sha256": name.removeprefix(DATA)})
            case Label.SOURCE_OBJECT:
                [address, *_] = _targets(entity, "prov:specializationOf")
                return self._facts.add(Label.SOURCE_OBJECT, name, {"address": address})
            case Label.POLICY:
                return self._facts.add(Label.POLICY, name, {"policy": name.removeprefix("kfm:policy:")})
            case Label.AUTHORITY:
                return self._facts.add(Label.AUTHORITY, name, {"name": entity["rdfs:label"]})
            case label:
                return self._facts.add(label, name)


def _label_of(name: str, entity: Entity) -> Label:
    """An upstream's release has the name of its data, so it is the distribution that the upstream published."""
    if name.startswith(DATA):
        return Label.DISTRIBUTION
    return next(label for kind, label in _LABELS.items() if kind in entity["@type"])


def _is_known(entity: Entity) -> bool:
    """Whether the graph has such a node; tables before masking and staged releases are steps on the way."""
    return any(kind in _LABELS or kind == "kfm:Data" for kind in entity["@type"])


def _targets(entity: Entity, predicate: str) -> list[str]:
    value = entity.get(predicate, [])
    return [one["@id"] for one in (value if isinstance(value, list) else [value])]


def _texts(entity: Entity, predicate: str) -> list[str]:
    value = entity.get(predicate, [])
    return sorted(value) if isinstance(value, list) else [value]


def _late_inputs(document: Document) -> set[tuple[str, str | None]]:
    """Returns address and version of the inputs that came after their window had closed."""
    links = (one for one in document["links"] if one["rel"] == "derived_from" and one.get("kfm:late"))
    return {(_address_of(one["href"]), one.get("kfm:object_version")) for one in links}


def _address_of(href: str) -> str:
    """Returns the address that a link leads to; that of an upstream's key for a link to its Item."""
    found = _ITEM_LINK.fullmatch(href)
    return f"{RELEASE_SCHEME}{found[1]}/{found[2]}" if found else iri(href)
