"""PROV-O as JSON-LD: where one release came from, what each stage did to it, by which plans and on whose authority.

Says what follows from the inputs and the rules, so the same release has the same document; when it was done, by which
run and which build of the software, is in the records beside it. Of the table before masking it says that there was
one, and nothing more. An authority over the data neither made it nor published it: PROV's words for who did something
are used of it only where it signed something.
"""

import hashlib
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kfm_pipelines.catalog.documents import document_bytes
from kfm_pipelines.catalog.facts import PROVENANCE, CareFacts, InputFacts, ReleaseFacts
from kfm_pipelines.catalog.prov.jsonld import as_json_ld, name_of
from kfm_pipelines.catalog.stac.item import PARQUET
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.identity import Provider

if TYPE_CHECKING:
    from prov.model import ProvDocument

__all__ = ["PROVENANCE", "data_id", "iri", "provenance_document", "release_provenance"]

_STAGES = ("compute", "mask", "validate", "stage", "publish")
SOFTWARE = "kfm:agent:kfm-pipelines"


def release_provenance(dataset: Dataset, facts: ReleaseFacts) -> bytes:
    return document_bytes(as_json_ld(provenance_document(dataset, facts)))


def provenance_document(dataset: Dataset, facts: ReleaseFacts) -> "ProvDocument":
    """The same as PROV's own data model, for whoever wants it in another of its notations."""
    from prov.model import ProvDocument

    return _ProvenanceBuilder(ProvDocument(), dataset, facts).build()


def data_id(content_hash: str) -> str:
    """Bytes, named by what they are."""
    return f"kfm:sha256:{content_hash}"


def iri(uri: str) -> str:
    """An object may be called anything; an IRI may not. Different names stay different."""
    return quote(uri, safe="/:@!$&'()*+,;=-._~")


class _ProvenanceBuilder:
    """One release's document while it is put together."""

    def __init__(self, document: "ProvDocument", dataset: Dataset, facts: ReleaseFacts) -> None:
        self._document = document
        self._dataset = dataset
        self._facts = facts
        parts = (facts.inputs_hash, facts.config, facts.content_hash)
        self._name = f"{facts.key}:{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}"

    def build(self) -> "ProvDocument":
        self._add_agents()
        self._add_inputs()
        self._add_plans()
        self._add_outputs()
        self._add_stages()
        return self._document

    def _add_agents(self) -> None:
        document, authority = self._document, self._facts.care.authority
        document.agent(
            name_of(SOFTWARE),
            _attribute_pairs({"prov:type": name_of("prov:SoftwareAgent"), "prov:label": "KFM Pipelines"}),
        )
        organisation = {"prov:type": name_of("prov:Organization")}
        document.agent(name_of(_authority_id(authority)), _attribute_pairs({**organisation, "prov:label": authority}))
        for provider in self._dataset.providers:
            told: dict[str, Any] = {**organisation, "prov:label": provider.name}
            if provider.url:
                told["dcterms:source"] = provider.url
            document.agent(name_of(_provider_id(provider)), _attribute_pairs(told))
            if "processor" in provider.roles:
                document.actedOnBehalfOf(name_of(SOFTWARE), name_of(_provider_id(provider)))

    def _add_inputs(self) -> None:
        for one in self._facts.inputs:
            self._add_input(one)

    def _add_input(self, one: InputFacts) -> None:
        """The object as it was, which is one state of what is at that address; and the message that told of it."""
        document, state, place = self._document, name_of(_input_id(one)), name_of(iri(one.uri))
        message = name_of(f"kfm:event:{iri(one.event)}")
        told: dict[str, Any] = {"prov:type": name_of("kfm:Object")}
        told |= {f"kfm:{algorithm}": digest for algorithm, digest in one.digest.items()}
        for fact, value in (("versionId", one.version), ("etag", one.etag), ("size", _integer_literal(one.size))):
            if value is not None:
                told[f"kfm:{fact}"] = value
        document.entity(state, _attribute_pairs(told))
        document.entity(place, _attribute_pairs({"prov:type": name_of("kfm:ObjectAddress")}))
        document.specializationOf(state, place)
        document.entity(message, _attribute_pairs({"prov:type": name_of("kfm:Message"), "dcterms:references": state}))
        for provider in self._dataset.providers:
            if "producer" in provider.roles:
                document.wasAttributedTo(state, name_of(_provider_id(provider)))

    def _add_plans(self) -> None:
        document, care, key = self._document, self._facts.care, self._dataset.key
        document.entity(
            name_of(self._transform_plan),
            _attribute_pairs(
                {
                    "prov:type": name_of("prov:Plan"),
                    "prov:label": f"{self._dataset.dataset} {key.transform_version}",
                    "kfm:transformVersion": key.transform_version,
                    "kfm:configDigest": self._facts.config,
                    "dcterms:requires": name_of(_policy_id(care)),
                }
            ),
        )
        document.entity(
            name_of(_policy_id(care)),
            _attribute_pairs(
                {
                    "prov:type": name_of("prov:Plan"),
                    "prov:label": care.policy,
                    "dcterms:description": care.reason,
                    "care:policyDigest": care.policy_digest,
                    "care:label": list(care.labels),
                    "care:authority": name_of(_authority_id(care.authority)),
                }
            ),
        )

    def _add_outputs(self) -> None:
        document, facts = self._document, self._facts
        data, table = name_of(data_id(facts.content_hash)), name_of(self._node_id("table"))
        document.entity(table, _attribute_pairs({"prov:type": name_of("kfm:TableBeforePolicy")}))
        document.entity(
            data,
            _attribute_pairs(
                {
                    "prov:type": name_of("kfm:Data"),
                    "kfm:sha256": facts.content_hash,
                    "kfm:size": _integer_literal(facts.size),
                    "kfm:rows": _integer_literal(facts.rows),
                    "dcterms:format": PARQUET,
                    "care:authority": name_of(_authority_id(facts.care.authority)),
                }
            ),
        )
        document.entity(
            name_of(self._node_id("verdicts")),
            _attribute_pairs({"prov:type": name_of("kfm:Verdicts"), "kfm:green": list(facts.gates)}),
        )
        document.entity(
            name_of(self._node_id("staged")),
            _attribute_pairs({"prov:type": [name_of("prov:Collection"), name_of("kfm:StagedRelease")]}),
        )
        document.entity(
            name_of(self._node_id("release")),
            _attribute_pairs(
                {
                    "prov:type": [name_of("prov:Collection"), name_of("kfm:Release")],
                    "dcterms:identifier": facts.key,
                    "kfm:dataset": self._dataset.dataset,
                }
            ),
        )
        for one in facts.inputs:
            document.wasDerivedFrom(table, name_of(_input_id(one)))
        document.wasDerivedFrom(data, table)
        document.wasDerivedFrom(name_of(self._node_id("release")), name_of(self._node_id("staged")))
        document.wasAttributedTo(data, name_of(SOFTWARE))
        for collection in ("staged", "release"):
            document.hadMember(name_of(self._node_id(collection)), data)

    def _add_stages(self) -> None:
        """Each stage with what it used and what came of it; each knew of the one before."""
        facts = self._facts
        messages = [f"kfm:event:{iri(one.event)}" for one in facts.inputs]
        table, data, verdicts = self._node_id("table"), data_id(facts.content_hash), self._node_id("verdicts")
        steps = {
            "compute": ([*map(_input_id, facts.inputs), *messages], table),
            "mask": ([table], data),
            "validate": ([data], verdicts),
            "stage": ([data, verdicts], self._node_id("staged")),
            "publish": ([self._node_id("staged")], self._node_id("release")),
        }
        before: str | None = None
        for stage in _STAGES:
            used, generated = steps[stage]
            activity = self._node_id(f"activity:{stage}")
            self._add_activity(stage, activity)
            for one in dict.fromkeys(used):
                self._document.used(name_of(activity), name_of(one))
            self._document.wasGeneratedBy(name_of(generated), name_of(activity))
            if before:
                self._document.wasInformedBy(name_of(activity), name_of(before))
            before = activity

    def _add_activity(self, stage: str, activity: str) -> None:
        document, care = self._document, self._facts.care
        told = _care_attributes(care) if stage == "mask" else {"prov:type": name_of(f"kfm:{stage.capitalize()}")}
        document.activity(name_of(activity), other_attributes=_attribute_pairs(told))
        plan = {"compute": self._transform_plan, "mask": _policy_id(care)}.get(stage)
        by = (name_of(plan), name_of(f"{activity}:by-software")) if plan else ()
        document.wasAssociatedWith(name_of(activity), name_of(SOFTWARE), *by)
        if stage == "mask" and care.exemption:
            document.wasAssociatedWith(name_of(activity), name_of(_authority_id(care.authority)))

    def _node_id(self, kind: str) -> str:
        kind, _, stage = kind.partition(":")
        return f"kfm:{kind}:{self._name}" + (f":{stage}" if stage else "")

    @property
    def _transform_plan(self) -> str:
        version = self._dataset.key.transform_version
        return f"kfm:plan:{self._dataset.dataset}:{version}:{self._facts.config[:16]}"


def _care_attributes(care: CareFacts) -> dict[str, Any]:
    kind = "Masking" if care.masked else "Exemption" if care.exemption else "LeftOpen"
    told: dict[str, Any] = {"prov:type": name_of(f"care:{kind}"), "care:method": list(care.methods)}
    if care.key_id and care.masked:
        told["care:keyId"] = care.key_id
    if care.exemption:
        told |= {
            "care:exemption": care.exemption.id,
            "care:exemptedBy": care.exemption.holder,
            "care:exemptedUntil": care.exemption.until,
            "care:signature": care.exemption.signature,
            "dcterms:description": care.exemption.reason,
        }
    return told


def _attribute_pairs(attributes: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Attributes as the library takes them: a list is as many attributes."""
    pairs = []
    for name, value in attributes.items():
        attribute = name_of(name)
        pairs += [(attribute, one) for one in (value if isinstance(value, list) else [value])]
    return pairs


def _integer_literal(number: int | None) -> Any:
    from prov.constants import XSD_INTEGER
    from prov.model import Literal

    return None if number is None else Literal(str(number), XSD_INTEGER)


def _input_id(one: InputFacts) -> str:
    """One state of an object. In a bucket without versions each still has an ETag, or a message of its own."""
    if one.version:
        return f"{iri(one.uri)}?versionId={iri(one.version)}"
    return f"{iri(one.uri)}#etag={iri(one.etag)}" if one.etag else f"{iri(one.uri)}#event={iri(one.event)}"


def _authority_id(authority: str) -> str:
    return f"kfm:authority:{_slug(authority)}"


def _provider_id(provider: Provider) -> str:
    return f"kfm:provider:{_slug(provider.name)}"


def _policy_id(care: CareFacts) -> str:
    return f"kfm:policy:{iri(care.policy)}"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
