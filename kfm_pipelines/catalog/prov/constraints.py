"""PROV's constraints that need no times, https://www.w3.org/TR/prov-constraints/, and no cycles at all."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from kfm_pipelines.catalog.prov.document import PREFIXES

RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
XSD_INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
_PROV = PREFIXES["prov"]
ENTITY, ACTIVITY, AGENT, ASSOCIATION = (f"{_PROV}{name}" for name in ("Entity", "Activity", "Agent", "Association"))
_KINDS = (ENTITY, ACTIVITY, AGENT, ASSOCIATION)
# Types of subject and object of each relation.
_SIDES = {
    "used": (ACTIVITY, ENTITY),
    "wasGeneratedBy": (ENTITY, ACTIVITY),
    "wasInformedBy": (ACTIVITY, ACTIVITY),
    "wasDerivedFrom": (ENTITY, ENTITY),
    "specializationOf": (ENTITY, ENTITY),
    "hadMember": (ENTITY, ENTITY),
    "wasAttributedTo": (ENTITY, AGENT),
    "wasAssociatedWith": (ACTIVITY, AGENT),
    "actedOnBehalfOf": (AGENT, AGENT),
    "qualifiedAssociation": (ACTIVITY, ASSOCIATION),
    "agent": (ASSOCIATION, AGENT),
    "hadPlan": (ASSOCIATION, ENTITY),
}
_DEPENDS = ("used", "wasGeneratedBy", "wasInformedBy", "wasDerivedFrom", "specializationOf")
_AT_MOST_ONE = ("wasGeneratedBy", "agent", "hadPlan")  # without times, two would have to be the same
# An agent may also be an entity or an activity.
_DISJOINT = ((ENTITY, ACTIVITY), (ENTITY, ASSOCIATION), (ACTIVITY, ASSOCIATION), (AGENT, ASSOCIATION))
Triple = tuple[str, str, str]
Targets = Mapping[str, Mapping[str, list[str]]]  # by relation and subject


def triples(document: bytes) -> Iterator[Triple]:
    """Yields the triples of one of our documents in the notation of N-Triples."""
    return _graph_triples(json.loads(document)["@graph"])


def _graph_triples(graph: Sequence[Mapping[str, Any]]) -> Iterator[Triple]:
    for node in graph:
        subject = f"<{_expand(node['@id'])}>"
        for predicate, values in node.items():
            if predicate == "@type":
                yield from ((subject, f"<{RDF_TYPE}>", f"<{_expand(one)}>") for one in values)
            elif predicate != "@id":
                listed = values if isinstance(values, list) else [values]
                yield from ((subject, f"<{_expand(predicate)}>", _term(one)) for one in listed)


def violations(document: bytes) -> list[str]:
    """Returns one sentence, naming the nodes, for each constraint that the document breaks."""
    try:
        parsed = json.loads(document)
        statements = list(_graph_triples(parsed["@graph"]))
        names = [node["@id"] for node in parsed["@graph"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ["it cannot be read as PROV-O in JSON-LD"]
    if parsed.get("@context") != PREFIXES:
        return ["its context is not the one that gives its terms their meaning"]
    relations = _relations(statements)
    declared = _declared_kinds(statements)
    named = {name for _, name in _sides(relations)}
    return [
        *(f"{name} is declared twice" for name in sorted({name for name in names if names.count(name) > 1})),
        *(f"{name} is referred to and nowhere declared" for name in sorted(named - set(declared))),
        *_impossible_kinds(relations, declared),
        *(
            f"{subject} has {len(targets)} times {name}: {', '.join(targets)}"
            for name in _AT_MOST_ONE
            for subject, targets in sorted(relations[name].items())
            if len(targets) > 1
        ),
        *_cycles(relations),
    ]


def _relations(statements: list[Triple]) -> Targets:
    relations: dict[str, dict[str, list[str]]] = {name: defaultdict(list) for name in _SIDES}
    for subject, predicate, value in statements:
        name = predicate[1:-1].removeprefix(_PROV)
        if name in _SIDES:
            relations[name][subject[1:-1]].append(value[1:-1])
    return relations


def _declared_kinds(statements: list[Triple]) -> Mapping[str, set[str]]:
    declared: dict[str, set[str]] = defaultdict(set)
    for subject, predicate, value in statements:
        if predicate == f"<{RDF_TYPE}>" and value[1:-1] in _KINDS:
            declared[subject[1:-1]].add(value[1:-1])
    return declared


def _impossible_kinds(relations: Targets, declared: Mapping[str, set[str]]) -> Iterator[str]:
    """A node has the types it declares and those that its relations imply."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for name, own in declared.items():
        kinds[name] |= own
    for kind, name in _sides(relations):
        kinds[name].add(kind)
    for name in sorted(kinds):
        for one, other in _DISJOINT:
            if {one, other} <= kinds[name]:
                yield f"{name} cannot be both {_short_name(one)} and {_short_name(other)}"


def _cycles(relations: Targets) -> Iterator[str]:
    depends: dict[str, list[str]] = defaultdict(list)
    for name in _DEPENDS:
        for subject, targets in relations[name].items():
            depends[subject] += targets
    try:
        TopologicalSorter(depends).prepare()
    except CycleError as error:
        yield f"nothing can depend on itself: {' → '.join(reversed(error.args[1]))}"


def _sides(relations: Targets) -> Iterator[tuple[str, str]]:
    for relation, (left, right) in _SIDES.items():
        for subject, targets in relations[relation].items():
            yield left, subject
            yield from ((right, target) for target in targets)


def _short_name(kind: str) -> str:
    return kind.removeprefix(_PROV).lower()


def _expand(compact: str) -> str:
    prefix, _, local = compact.partition(":")
    # By JSON-LD what begins with // is never the rest of a compact name, so kfm:// is a scheme and not our prefix.
    return PREFIXES[prefix] + local if prefix in PREFIXES and not local.startswith("//") else compact


def _term(value: Any) -> str:
    if isinstance(value, dict):
        return f"<{_expand(value['@id'])}>"
    if isinstance(value, int):
        return f'"{value}"^^<{XSD_INTEGER}>'
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        value = value.replace(plain, escaped)
    return f'"{value}"'
