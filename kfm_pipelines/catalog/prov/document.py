"""Writes PROV-O as JSON-LD: where a release came from, what each stage did, by which plans and on whose authority.

A document follows from inputs and rules alone, so the same release has the same document; times, runs and builds are
in its records. It mentions the table before masking and reveals nothing about it. An authority over the data
neither made nor published it, so PROV's terms for who acted are used for one only where it signed something.
"""

import hashlib
import json
import re
from typing import Any
from urllib.parse import quote

from kfm_pipelines.catalog.documents import document_bytes
from kfm_pipelines.catalog.facts import CareFacts, InputFacts, ReleaseFacts
from kfm_pipelines.catalog.stac.item import PARQUET
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.identity import Provider
from kfm_pipelines.events.notice import read_release_uri

PREFIXES = {
    "prov": "http://www.w3.org/ns/prov#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "dcterms": "http://purl.org/dc/terms/",
    "care": "urn:kfm:care:",
    "kfm": "urn:kfm:",
}
SOFTWARE = "kfm:agent:kfm-pipelines"


def release_provenance(dataset: Dataset, facts: ReleaseFacts) -> bytes:
    builder = _ProvenanceBuilder(dataset, facts)
    builder.add_agents()
    builder.add_inputs()
    builder.add_plans()
    builder.add_outputs()
    builder.add_stages()
    return document_bytes({"@context": PREFIXES, "@graph": builder.graph()})


def data_id(content_hash: str) -> str:
    return f"kfm:sha256:{content_hash}"


def iri(uri: str) -> str:
    """Escapes what an IRI may not contain; different object names stay different."""
    return quote(uri, safe="/:@!$&'()*+,;=-._~")


class _ProvenanceBuilder:
    """Collects the statements about one release. No node is anonymous, so graphs of many releases can be merged."""

    def __init__(self, dataset: Dataset, facts: ReleaseFacts) -> None:
        self._dataset = dataset
        self._facts = facts
        self._nodes: dict[str, dict[str, list[Any]]] = {}
        parts = (facts.inputs_hash, facts.config, facts.content_hash)
        self._name = f"{facts.key}:{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}"

    def graph(self) -> list[dict[str, Any]]:
        return [
            {"@id": name, **{predicate: _sort_values(predicate, values) for predicate, values in node.items()}}
            for name, node in sorted(self._nodes.items())
        ]

    def add_agents(self) -> None:
        authority = self._facts.care.authority
        self._describe(SOFTWARE, "Agent", {"@type": "prov:SoftwareAgent", "rdfs:label": "KFM Pipelines"})
        organisations = {_authority_id(authority): {"rdfs:label": authority}}
        for provider in self._dataset.providers:
            source = {"dcterms:source": provider.url} if provider.url else {}
            organisations[_provider_id(provider)] = {"rdfs:label": provider.name, **source}
            if "processor" in provider.roles:
                self._relate(SOFTWARE, "actedOnBehalfOf", _provider_id(provider))
        for name, attributes in organisations.items():
            self._describe(name, "Agent", {"@type": "prov:Organization", **attributes})

    def add_inputs(self) -> None:
        """Adds each object as it was, which is one state of its address, and the message that announced it."""
        producers = [_provider_id(one) for one in self._dataset.providers if "producer" in one.roles]
        for one in self._facts.inputs:
            state, address = _input_id(one), iri(one.uri)
            optional = {"kfm:versionId": one.version, "kfm:etag": one.etag, "kfm:size": one.size}
            digests = {f"kfm:{algorithm}": digest for algorithm, digest in one.digest.items()}
            present = {name: value for name, value in optional.items() if value is not None}
            self._entity(state, {"@type": "kfm:Object", **digests, **present})
            self._entity(address, {"@type": "kfm:ObjectAddress"})
            self._relate(state, "specializationOf", address)
            self._entity(_event_id(one), {"@type": "kfm:Message", "dcterms:references": {"@id": state}})
            if read_release_uri(one.uri) is None:  # its own provenance says whose an upstream's release is
                for producer in producers:
                    self._relate(state, "wasAttributedTo", producer)

    def add_plans(self) -> None:
        care, version = self._facts.care, self._dataset.key.transform_version
        self._entity(
            self._transform_plan,
            {
                "@type": "prov:Plan",
                "rdfs:label": f"{self._dataset.dataset} {version}",
                "kfm:transformVersion": version,
                "kfm:configDigest": self._facts.config,
                "dcterms:requires": {"@id": _policy_id(care)},
            },
        )
        self._entity(
            _policy_id(care),
            {
                "@type": "prov:Plan",
                "rdfs:label": care.policy,
                "dcterms:description": care.reason,
                "care:policyDigest": care.policy_digest,
                "care:label": list(care.labels),
                "care:authority": {"@id": _authority_id(care.authority)},
            },
        )

    def add_outputs(self) -> None:
        facts, data, table = self._facts, data_id(self._facts.content_hash), self._id("table")
        staged, release = self._id("staged"), self._id("release")
        self._entity(table, {"@type": "kfm:TableBeforePolicy"})
        self._entity(
            data,
            {
                "@type": "kfm:Data",
                "kfm:sha256": facts.content_hash,
                "kfm:size": facts.size,
                "kfm:rows": facts.rows,
                "dcterms:format": PARQUET,
                "care:authority": {"@id": _authority_id(facts.care.authority)},
            },
        )
        self._entity(self._id("verdicts"), {"@type": "kfm:Verdicts", "kfm:green": list(facts.gates)})
        self._entity(staged, {"@type": ["prov:Collection", "kfm:StagedRelease"]})
        identity = {"dcterms:identifier": facts.key, "kfm:dataset": self._dataset.dataset}
        self._entity(release, {"@type": ["prov:Collection", "kfm:Release"], **identity})
        for one in facts.inputs:
            self._relate(table, "wasDerivedFrom", _input_id(one))
        self._relate(data, "wasDerivedFrom", table)
        self._relate(release, "wasDerivedFrom", staged)
        self._relate(data, "wasAttributedTo", SOFTWARE)
        self._relate(staged, "hadMember", data)
        self._relate(release, "hadMember", data)

    def add_stages(self) -> None:
        facts, data = self._facts, data_id(self._facts.content_hash)
        table, verdicts, staged = self._id("table"), self._id("verdicts"), self._id("staged")
        stages = {
            "compute": ([*map(_input_id, facts.inputs), *map(_event_id, facts.inputs)], table),
            "mask": ([table], data),
            "validate": ([data], verdicts),
            "stage": ([data, verdicts], staged),
            "publish": ([staged], self._id("release")),
        }
        before: str | None = None
        for stage, (used, generated) in stages.items():
            activity = f"{self._id('activity')}:{stage}"
            self._add_activity(stage, activity)
            for one in used:
                self._relate(activity, "used", one)
            self._relate(generated, "wasGeneratedBy", activity)
            if before:
                self._relate(activity, "wasInformedBy", before)
            before = activity

    def _add_activity(self, stage: str, activity: str) -> None:
        care = self._facts.care
        attributes = _care_attributes(care) if stage == "mask" else {"@type": f"kfm:{stage.capitalize()}"}
        self._describe(activity, "Activity", attributes)
        self._relate(activity, "wasAssociatedWith", SOFTWARE)
        if plan := {"compute": self._transform_plan, "mask": _policy_id(care)}.get(stage):
            association = f"{activity}:by-software"
            self._relate(activity, "qualifiedAssociation", association)
            self._describe(association, "Association", {})
            self._relate(association, "agent", SOFTWARE)
            self._relate(association, "hadPlan", plan)
        if stage == "mask" and care.exemption:
            self._relate(activity, "wasAssociatedWith", _authority_id(care.authority))

    def _entity(self, name: str, attributes: dict[str, Any]) -> None:
        self._describe(name, "Entity", attributes)

    def _describe(self, name: str, kind: str, attributes: dict[str, Any]) -> None:
        self._state(name, "@type", f"prov:{kind}")
        for predicate, value in attributes.items():
            for one in value if isinstance(value, list) else [value]:
                self._state(name, predicate, one)

    def _relate(self, subject: str, relation: str, target: str) -> None:
        self._state(subject, f"prov:{relation}", {"@id": target})

    def _state(self, subject: str, predicate: str, value: Any) -> None:
        values = self._nodes.setdefault(subject, {}).setdefault(predicate, [])
        if value not in values:
            values.append(value)

    def _id(self, kind: str) -> str:
        return f"kfm:{kind}:{self._name}"

    @property
    def _transform_plan(self) -> str:
        version = self._dataset.key.transform_version
        return f"kfm:plan:{self._dataset.dataset}:{version}:{self._facts.config[:16]}"


def _care_attributes(care: CareFacts) -> dict[str, Any]:
    kind = "Masking" if care.masked else "Exemption" if care.exemption else "LeftOpen"
    attributes: dict[str, Any] = {"@type": f"care:{kind}", "care:method": list(care.methods)}
    if care.key_id and care.masked:
        attributes["care:keyId"] = care.key_id
    if care.exemption:
        attributes |= {
            "care:exemption": care.exemption.id,
            "care:exemptedBy": care.exemption.holder,
            "care:exemptedUntil": care.exemption.until,
            "care:signature": care.exemption.signature,
            "dcterms:description": care.exemption.reason,
        }
    return attributes


def _sort_values(predicate: str, values: list[Any]) -> Any:
    """Sorts the values; a type is always a list, any other single value stands alone."""
    if predicate == "@type":
        return [values[0], *sorted(values[1:])]  # PROV's own class first
    if len(values) == 1:
        return values[0]
    return sorted(values, key=lambda value: json.dumps(value, sort_keys=True))


def _input_id(one: InputFacts) -> str:
    """Names one state of an object: by version, or where the bucket has none by ETag or message. An upstream's release
    has the name it has in its own provenance."""
    if read_release_uri(one.uri) and "sha256" in one.digest:
        return data_id(one.digest["sha256"])
    if one.version:
        return f"{iri(one.uri)}?versionId={iri(one.version)}"
    return f"{iri(one.uri)}#etag={iri(one.etag)}" if one.etag else f"{iri(one.uri)}#event={iri(one.event)}"


def _event_id(one: InputFacts) -> str:
    return f"kfm:event:{iri(one.event)}"


def _authority_id(authority: str) -> str:
    return f"kfm:authority:{slug(authority)}"


def _provider_id(provider: Provider) -> str:
    return f"kfm:provider:{slug(provider.name)}"


def _policy_id(care: CareFacts) -> str:
    return f"kfm:policy:{iri(care.policy)}"


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
