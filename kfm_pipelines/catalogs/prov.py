"""PROV-O as JSON-LD: what was done to the data of one release under its masking policy, by what and on whose authority.

Says what follows from the inputs and the rules, so the same release has the same document; when it was done, and by
which run, is in the audit.
"""

from collections.abc import Sequence
from typing import Any

from kfm_pipelines.catalogs.care_facts import CareFacts
from kfm_pipelines.catalogs.documents import document_bytes
from kfm_pipelines.catalogs.release_facts import PROVENANCE

__all__ = ["PROVENANCE", "care_provenance"]

CONTEXT = {
    "prov": "http://www.w3.org/ns/prov#",
    "dcterms": "http://purl.org/dc/terms/",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "care": "urn:kfm:care:",
    "kfm": "urn:kfm:",
}


def care_provenance(key: str, inputs: Sequence[str], content_hash: str, care: CareFacts) -> bytes:
    """One activity: the masking, or the decision not to mask, with what it used and what came out. Which revision it is
    depends on what came before, so it is not said here: the same release has the same document."""
    return document_bytes(
        {
            "@context": CONTEXT,
            "@graph": [
                *({"@id": uri, "@type": "prov:Entity"} for uri in inputs),
                _activity(key, inputs, content_hash, care),
                _plan(care),
                _authority(care),
                {"@id": "kfm:agent:kfm-pipelines", "@type": ["prov:Agent", "prov:SoftwareAgent"]},
                _output(key, inputs, content_hash, care),
            ],
        }
    )


def _activity(key: str, inputs: Sequence[str], content_hash: str, care: CareFacts) -> dict[str, Any]:
    kind = "care:Masking" if care.masked else "care:Exemption" if care.exemption else "care:LeftOpen"
    activity: dict[str, Any] = {
        "@id": _activity_id(key, content_hash),
        "@type": ["prov:Activity", kind],
        "prov:used": [{"@id": uri} for uri in inputs],
        "prov:wasAssociatedWith": [{"@id": "kfm:agent:kfm-pipelines"}],
        "prov:qualifiedAssociation": {
            "@type": "prov:Association",
            "prov:agent": {"@id": _authority_id(care)},
            "prov:hadPlan": {"@id": _plan_id(care)},
        },
        "care:method": list(care.methods),
    }
    if care.key_id and care.masked:
        activity["care:keyId"] = care.key_id
    if care.exemption:
        activity |= {
            "care:exemption": care.exemption.id,
            "care:exemptedBy": care.exemption.holder,
            "care:exemptedUntil": care.exemption.until,
            "care:signature": care.exemption.signature,
            "dcterms:description": care.exemption.reason,
        }
    return activity


def _plan(care: CareFacts) -> dict[str, Any]:
    return {
        "@id": _plan_id(care),
        "@type": ["prov:Entity", "prov:Plan"],
        "rdfs:label": care.policy,
        "dcterms:description": care.reason,
        "care:policyDigest": care.policy_digest,
        "care:label": list(care.labels),
    }


def _authority(care: CareFacts) -> dict[str, Any]:
    return {"@id": _authority_id(care), "@type": ["prov:Agent", "prov:Organization"], "rdfs:label": care.authority}


def _output(key: str, inputs: Sequence[str], content_hash: str, care: CareFacts) -> dict[str, Any]:
    return {
        "@id": f"kfm:sha256:{content_hash}",
        "@type": "prov:Entity",
        "prov:wasGeneratedBy": {"@id": _activity_id(key, content_hash)},
        "prov:wasDerivedFrom": [{"@id": uri} for uri in inputs],
        "prov:wasAttributedTo": {"@id": _authority_id(care)},
    }


def _activity_id(key: str, content_hash: str) -> str:
    return f"kfm:activity:{key}:{content_hash[:16]}:care"


def _plan_id(care: CareFacts) -> str:
    return f"kfm:policy:{care.policy}"


def _authority_id(care: CareFacts) -> str:
    return f"kfm:authority:{care.authority.lower().replace(' ', '-')}"
