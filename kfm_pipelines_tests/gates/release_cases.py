"""For every rule of the integrity and governance gates, a release that keeps it and one that breaks it."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kfm_pipelines.catalogs.care_facts import CareFacts
from kfm_pipelines.catalogs.prov import release_provenance
from kfm_pipelines.catalogs.release_facts import PROVENANCE, DocumentFacts
from kfm_pipelines.gates import Promised, ReleaseSubject
from kfm_pipelines.gates.integrity import DATA, ITEM
from kfm_pipelines_tests.catalogs.given import FACTS, INPUT, item_of
from kfm_pipelines_tests.events.given import declared
from kfm_pipelines_tests.gates.case import Case
from kfm_pipelines_tests.stages.given import WINDOW

TRIBAL_AREAS = declared()["drought/tribal-areas"]
KEY = "drought-tribal-areas:united_states:none:2025-12-04:v1-0-0"
BYTES = b"what would be published"
URI = "s3://kfm-ingest/drought/one.parquet"
RELEASE = "c" * 64
Document = dict[str, Any]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _care(methods: tuple[str, ...]) -> CareFacts:
    return CareFacts("tribal-areas@1", "d" * 64, "reason", "The Nations", (), methods, None, None, 40.0, None)


def _staged(methods: tuple[str, ...]) -> dict[str, bytes]:
    facts = replace(
        FACTS,
        key=KEY,
        window_start=WINDOW[0],
        window_end=WINDOW[1],
        bbox=None,
        rows=1,
        size=len(BYTES),
        content_hash=sha256(BYTES),
        inputs=(replace(INPUT, uri=URI),),
        care=_care(methods),
        table=TRIBAL_AREAS.table,
    )
    provenance = release_provenance(TRIBAL_AREAS, facts)
    described = DocumentFacts(f"../{sha256(provenance)}.json", sha256(provenance), len(provenance))
    item = item_of(TRIBAL_AREAS, facts, data_href="../data.parquet", provenance=described)
    return {DATA: BYTES, ITEM: item, PROVENANCE: provenance}


def release(*methods: str) -> ReleaseSubject:
    """A release with nothing wrong about it; masked when there are methods."""
    staged = _staged(methods)
    return ReleaseSubject(
        dataset=TRIBAL_AREAS,
        key=KEY,
        inputs=(Promised(URI, "1" * 32, 5, "1" * 32, 5),),
        judged=sha256(BYTES),
        digests={name: sha256(data) for name, data in staged.items()},
        staged=staged,
        policy="tribal-areas@1",
        care="masked" if methods else "open",
        verified=RELEASE,
        digest=RELEASE,
    )


GOOD, MASKED = release(), release("restricted point: group")


def with_input(**found: Any) -> ReleaseSubject:
    return replace(GOOD, inputs=tuple(replace(one, **found) for one in GOOD.inputs))


def with_staged(name: str, data: bytes) -> ReleaseSubject:
    return replace(GOOD, staged={**GOOD.staged, name: data})


def altered(name: str, change: Callable[[Document], object]) -> ReleaseSubject:
    """The release with one of its documents changed."""
    document = json.loads(GOOD.staged[name])
    change(document)
    return with_staged(name, json.dumps(document).encode())


def without_link(relation: str) -> Callable[[Document], object]:
    return lambda item: item.update(links=[link for link in item["links"] if link["rel"] != relation])


def with_property(name: str, value: object) -> Callable[[Document], object]:
    return lambda item: item["properties"].update({name: value})


def without(relation: str, kind: str) -> Callable[[Document], object]:
    """The provenance with nothing of this relation said about nodes of this kind."""

    def change(provenance: Document) -> None:
        for node in provenance["@graph"]:
            if kind in node["@type"]:
                node.pop(relation)

    return change


def _of_itself(provenance: Document) -> None:
    [data] = [node for node in provenance["@graph"] if "kfm:Data" in node["@type"]]
    data["prov:wasDerivedFrom"] = {"@id": data["@id"]}


INTEGRITY_CASES: Sequence[Case[ReleaseSubject]] = (
    Case("input-etag", with_input(etag=None), with_input(found_etag="2" * 32)),
    Case("input-etag", GOOD, with_input(found_etag=None)),
    Case("input-size", with_input(size=None), with_input(found_size=4)),
    Case("judged-bytes", GOOD, replace(GOOD, judged="0" * 64)),
    Case("staged-digest", GOOD, with_staged("left-behind.json", b"{}")),
    Case("staged-digest", GOOD, replace(GOOD, digests={**GOOD.digests, "missing.json": "0" * 64})),
    Case("item-agrees", GOOD, altered(ITEM, lambda item: item["assets"]["data"].update({"file:size": 1}))),
    Case(
        "item-agrees",
        GOOD,
        altered(ITEM, lambda item: item["assets"]["provenance"].update({"file:checksum": "1220" + "0" * 64})),
    ),
)
GOVERNANCE_CASES: Sequence[Case[ReleaseSubject]] = (
    Case("policy-applied", GOOD, altered(ITEM, with_property("kfm:policy", "not-sensitive@1"))),
    Case("policy-applied", MASKED, replace(MASKED, care="open")),
    Case("policy-applied", GOOD, replace(GOOD, care="masked")),
    Case("policy-applied", GOOD, replace(GOOD, care="exempted")),
    Case("policy-verified", GOOD, replace(GOOD, verified=None)),
    Case("policy-verified", GOOD, replace(GOOD, verified="0" * 64)),
    Case("licence", GOOD, altered(ITEM, with_property("license", "MIT"))),
    Case("licence", GOOD, altered(ITEM, without_link("license"))),
    Case("sovereignty", GOOD, altered(ITEM, with_property("kfm:sovereignty", None))),
    Case("provenance-complete", GOOD, altered(PROVENANCE, lambda document: document.update({"@graph": []}))),
    Case("provenance-complete", GOOD, altered(PROVENANCE, without("prov:used", "kfm:Compute"))),
    Case("provenance-complete", GOOD, altered(PROVENANCE, without("prov:used", "care:LeftOpen"))),
    Case("provenance-complete", GOOD, altered(PROVENANCE, without("prov:specializationOf", "kfm:Object"))),
    Case("provenance-complete", GOOD, altered(PROVENANCE, without("prov:wasGeneratedBy", "kfm:Data"))),
    Case("provenance-complete", GOOD, altered(PROVENANCE, without("prov:wasGeneratedBy", "kfm:TableBeforePolicy"))),
    Case("provenance-complete", GOOD, with_staged(PROVENANCE, b"not JSON")),
    Case("provenance-consistent", GOOD, altered(PROVENANCE, _of_itself)),
    Case("provenance-linked", GOOD, altered(ITEM, without_link("derived_from"))),
    Case("provenance-linked", GOOD, altered(ITEM, lambda item: item["assets"].pop("provenance"))),
)
