"""PROV's data model written as PROV-O in JSON-LD, and read again as triples.

The `prov` library writes PROV-O only by way of an RDF graph, which takes ten times as long as making the document; what
is written here is that same graph, without the detour. Nodes without a name do not occur, so that graphs of many
releases can be put together without a second thought.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from kfm_pipelines.errors import IntegrityBroken

if TYPE_CHECKING:
    from prov.identifier import Namespace, QualifiedName
    from prov.model import ProvDocument, ProvRecord

PREFIXES = {
    "prov": "http://www.w3.org/ns/prov#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "dcterms": "http://purl.org/dc/terms/",
    "care": "urn:kfm:care:",
    "kfm": "urn:kfm:",
}
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
XSD_INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
_SCHEMES = {"s3": "s3:"}  # written in full: JSON-LD takes `s3://…` for what it is
_PROPERTIES = {"prov:label": "rdfs:label"}
_RELATIONS = {
    "Usage": "prov:used",
    "Generation": "prov:wasGeneratedBy",
    "Communication": "prov:wasInformedBy",
    "Derivation": "prov:wasDerivedFrom",
    "Attribution": "prov:wasAttributedTo",
    "Association": "prov:wasAssociatedWith",
    "Delegation": "prov:actedOnBehalfOf",
    "Specialization": "prov:specializationOf",
    "Membership": "prov:hadMember",
}
Triple = tuple[str, str, str]


@cache
def namespaces() -> "Mapping[str, Namespace]":
    from prov.constants import PROV
    from prov.identifier import Namespace

    named = {prefix: Namespace(prefix, uri) for prefix, uri in (PREFIXES | _SCHEMES).items()}
    return {**named, "prov": PROV}


def name_of(compact: str) -> "QualifiedName":
    """`kfm:Data` or `s3://bucket/key` as the library's qualified name."""
    prefix, _, local = compact.partition(":")
    return namespaces()[prefix][local]


def as_json_ld(document: "ProvDocument") -> dict[str, Any]:
    """One node for each thing that is named, in the order of their names."""
    nodes: dict[str, dict[str, list[Any]]] = {}
    for record in document.get_records():
        for subject, predicate, value in _statements(record):
            values = nodes.setdefault(subject, {}).setdefault(predicate, [])
            if value not in values:
                values.append(value)
    return {
        "@context": PREFIXES,
        "@graph": [{"@id": name, **{p: _sort_values(p, v) for p, v in nodes[name].items()}} for name in sorted(nodes)],
    }


def triples(document: bytes) -> Iterator[Triple]:
    """The triples of a document of ours, written as N-Triples have them."""
    for node in json.loads(document)["@graph"]:
        subject = f"<{_expand(node['@id'])}>"
        for predicate, values in node.items():
            if predicate == "@type":
                yield from ((subject, f"<{RDF_TYPE}>", f"<{_expand(one)}>") for one in values)
            elif predicate != "@id":
                listed = values if isinstance(values, list) else [values]
                yield from ((subject, f"<{_expand(predicate)}>", _term(one)) for one in listed)


def _statements(record: "ProvRecord") -> Iterator[tuple[str, str, Any]]:
    kind = type(record).__name__.removeprefix("Prov")
    told = [(name, value) for name, value in record.attributes if value is not None]
    if kind not in _RELATIONS:
        subject = _compact(record.identifier)
        yield subject, "@type", f"prov:{kind}"
        for name, value in told:
            yield from _attribute(subject, name, value)
        return
    subject, target = _compact(told[0][1]), _compact(told[1][1])
    yield subject, _RELATIONS[kind], {"@id": target}
    if kind == "Association" and record.identifier is not None:
        qualified = _compact(record.identifier)
        yield subject, "prov:qualifiedAssociation", {"@id": qualified}
        yield qualified, "@type", "prov:Association"
        yield qualified, "prov:agent", {"@id": target}
        yield from ((qualified, "prov:hadPlan", {"@id": _compact(plan)}) for _, plan in told[2:])
    elif len(told) > 2 or record.identifier is not None:
        raise IntegrityBroken(f"no way is known to write this {kind} of {subject} as PROV-O")


def _attribute(subject: str, name: "QualifiedName", value: Any) -> Iterator[tuple[str, str, Any]]:
    predicate = _compact(name)
    if predicate == "prov:type":
        yield subject, "@type", _compact(value)
    else:
        yield subject, _PROPERTIES.get(predicate, predicate), _json_value(value)


def _json_value(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if hasattr(value, "localpart"):
        return {"@id": _compact(value)}
    if value.datatype.uri == XSD_INTEGER:
        return int(value.value)
    raise IntegrityBroken(f"no way is known to write {value!r} as PROV-O")


def _compact(name: Any) -> str:
    return f"{name.namespace.prefix}:{name.localpart}"


def _sort_values(predicate: str, values: list[Any]) -> Any:
    """A type is always a list; of anything else a single value stands alone."""
    if predicate == "@type":
        # The class of PROV comes first, then the narrower ones.
        return [values[0], *sorted(values[1:])]
    ordered = sorted(values, key=lambda value: json.dumps(value, sort_keys=True))
    return ordered if len(ordered) > 1 else ordered[0]


def _expand(compact: str) -> str:
    prefix, _, local = compact.partition(":")
    return PREFIXES[prefix] + local if prefix in PREFIXES else compact


def _term(value: Any) -> str:
    if isinstance(value, dict):
        return f"<{_expand(value['@id'])}>"
    if isinstance(value, int):
        return f'"{value}"^^<{XSD_INTEGER}>'
    return f'"{_escape(value)}"'


def _escape(text: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, escaped)
    return text
