"""Provenance documents: complete from data to message, reproducible, and valid PROV-O."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from prov.model import ProvDocument
from pyld import jsonld
from rdflib import DCTERMS, PROV, RDFS, Graph, URIRef

from kfm_pipelines.catalog.facts import CareFacts, ReleaseFacts
from kfm_pipelines.catalog.prov.constraints import triples, violations
from kfm_pipelines.catalog.prov.document import PREFIXES, iri, release_provenance
from kfm_pipelines_tests.catalog.stac.test_item import EXEMPTED, HERITAGE, MASKED, WITHOUT_PLACES
from kfm_pipelines_tests.fixtures.catalog.release import FACTS, INPUT, OPEN

OTHER_INPUT = dataclasses.replace(INPUT, uri="s3://kfm-ingest/a b%20<ü>.parquet", version="3/L4+x==", event="6" * 64)
RELEASE = dataclasses.replace(FACTS, inputs=(INPUT, OTHER_INPUT))
SEALED = dataclasses.replace(INPUT, etag=None, size=None, digest={"hmacSha256": "7" * 64})
RELEASES: dict[str, ReleaseFacts] = {
    "open": RELEASE,
    "masked": dataclasses.replace(RELEASE, inputs=(SEALED,), care=MASKED),
    "exempted": dataclasses.replace(RELEASE, care=EXEMPTED),
    "quoted": dataclasses.replace(RELEASE, care=dataclasses.replace(OPEN, reason='a "reason"\\n\nand another\r')),
}
each_release = pytest.mark.parametrize("facts", [pytest.param(facts, id=name) for name, facts in RELEASES.items()])
Node = dict[str, Any]


def graph(facts: ReleaseFacts) -> dict[str, Node]:
    return {node["@id"]: node for node in json.loads(release_provenance(HERITAGE, facts))["@graph"]}


def stage(facts: ReleaseFacts, kind: str) -> Node:
    [found] = [node for node in graph(facts).values() if kind in node["@type"]]
    return found


def care_stage(care: CareFacts) -> Node:
    kind = "Masking" if care.masked else "Exemption" if care.exemption else "LeftOpen"
    return stage(dataclasses.replace(FACTS, care=care), f"care:{kind}")


def test_the_data_leads_back_through_every_stage_to_object_and_message() -> None:
    nodes = graph(RELEASE)
    release = stage(RELEASE, "kfm:Release")
    chain = [nodes[release["prov:wasGeneratedBy"]["@id"]]]
    while "prov:wasInformedBy" in chain[-1]:
        chain.append(nodes[chain[-1]["prov:wasInformedBy"]["@id"]])
    assert [one["@type"][-1] for one in chain] == [
        "kfm:Publish", "kfm:Stage", "kfm:Validate", "care:LeftOpen", "kfm:Compute"
    ]  # fmt: skip
    used = [nodes[one["@id"]] for one in chain[-1]["prov:used"]]
    assert [one["@type"][-1] for one in used] == ["kfm:Message", "kfm:Message", "kfm:Object", "kfm:Object"]
    assert {one["@id"] for one in used[:2]} == {f"kfm:event:{'2' * 64}", f"kfm:event:{'6' * 64}"}
    assert [(one["kfm:etag"], one["kfm:sha256"], one["kfm:size"]) for one in used[2:]] == [
        ("9" * 32, "1" * 64, 4321)
    ] * 2
    assert {one["prov:specializationOf"]["@id"] for one in used[2:]} == {iri(INPUT.uri), iri(OTHER_INPUT.uri)}
    data = nodes[f"kfm:sha256:{'a' * 64}"]
    assert data["prov:wasGeneratedBy"]["@id"] == chain[3]["@id"]
    table = nodes[data["prov:wasDerivedFrom"]["@id"]]
    assert {one["@id"] for one in table["prov:wasDerivedFrom"]} == {one["@id"] for one in used[2:]}


def test_the_plan_is_the_transform_with_its_configuration_and_the_policy() -> None:
    nodes = graph(RELEASES["masked"])
    [by] = [node for name, node in nodes.items() if name.endswith(":compute:by-software")]
    plan = nodes[by["prov:hadPlan"]["@id"]]
    assert (plan["kfm:transformVersion"], plan["kfm:configDigest"]) == ("v1-0-0", "5" * 64)
    policy = nodes[plan["dcterms:requires"]["@id"]]
    assert (policy["rdfs:label"], policy["care:policyDigest"]) == ("heritage-sites@1", "d" * 64)


def test_the_software_follows_the_policy_and_the_providers_stand_behind_their_objects() -> None:
    nodes = graph(RELEASES["masked"])
    association = nodes[stage(RELEASES["masked"], "care:Masking")["prov:qualifiedAssociation"]["@id"]]
    assert association["prov:agent"]["@id"] == "kfm:agent:kfm-pipelines"
    assert nodes[association["prov:hadPlan"]["@id"]]["rdfs:label"] == "heritage-sites@1"
    assert (
        stage(RELEASES["masked"], "kfm:Object")["prov:wasAttributedTo"]["@id"] == "kfm:provider:kansas-frontier-matrix"
    )
    assert nodes["kfm:agent:kfm-pipelines"]["prov:actedOnBehalfOf"]["@id"] == "kfm:provider:kansas-frontier-matrix"


@each_release
def test_the_authority_acted_only_where_it_signed(facts: ReleaseFacts) -> None:
    """Data about nations is not made by them, nor is it they who decided, because their authority is respected."""
    nodes = graph(facts)
    [authority] = [name for name in nodes if name.startswith("kfm:authority:")]
    assert nodes[authority]["rdfs:label"] == facts.care.authority
    found = {
        (predicate, node["@type"][-1])
        for node in nodes.values()
        for predicate, values in node.items()
        if {"@id": authority} in (values if isinstance(values, list) else [values])
    }
    signed = {("prov:wasAssociatedWith", "care:Exemption")} if facts.care.exemption else set()
    assert found == {("care:authority", "kfm:Data"), ("care:authority", "prov:Plan")} | signed
    assert stage(facts, "kfm:Data")["prov:wasAttributedTo"] == {"@id": "kfm:agent:kfm-pipelines"}


def test_masking_is_an_activity_of_its_own() -> None:
    found = care_stage(MASKED)
    assert found["@type"] == ["prov:Activity", "care:Masking"]
    assert (found["care:keyId"], found["care:method"]) == ("heritage-2026", list(MASKED.methods))


def test_an_exemption_names_who_signed_it() -> None:
    found = care_stage(EXEMPTED)
    assert (found["care:exemptedBy"], found["care:exemptedUntil"]) == ("A reviewer", "2026-12-31")
    assert found["care:signature"] == "c2lnbmVk"
    assert "care:keyId" not in found


def test_releasing_unmasked_data_is_an_activity() -> None:
    assert care_stage(OPEN)["@type"] == ["prov:Activity", "care:LeftOpen"]


def test_masked_inputs_reveal_nothing_to_test_guesses_with() -> None:
    masked = RELEASES["masked"]
    entity = stage(masked, "kfm:Object")
    assert not {"kfm:etag", "kfm:size", "kfm:sha256"} & set(entity)
    assert entity["kfm:hmacSha256"] == "7" * 64
    assert set(stage(masked, "kfm:TableBeforePolicy")) == {
        "@id", "@type", "prov:wasDerivedFrom", "prov:wasGeneratedBy"
    }  # fmt: skip


def test_the_same_release_has_the_same_document_and_another_another() -> None:
    documents = [release_provenance(HERITAGE, RELEASE) for _ in range(2)]
    build = dataclasses.replace(RELEASE.environment, commit="8" * 40, python="3.14.0", dirty=True)
    assert documents[0] == documents[1] == release_provenance(HERITAGE, dataclasses.replace(RELEASE, environment=build))
    others: list[dict[str, Any]] = [{"inputs_hash": "0" * 64}, {"config": "0" * 64}, {"care": EXEMPTED}, {"rows": 1}]
    assert all(release_provenance(HERITAGE, dataclasses.replace(RELEASE, **one)) != documents[0] for one in others)


@each_release
def test_the_prov_library_reads_the_document_and_writes_the_same_graph(facts: ReleaseFacts) -> None:
    document = release_provenance(WITHOUT_PLACES, facts)
    ours = Graph().parse(data=document, format="json-ld")
    lines = "".join(f"{' '.join(triple)} .\n" for triple in triples(document))
    assert set(Graph().parse(data=lines, format="nt")) == set(ours)
    read = ProvDocument.deserialize(content=lines, format="rdf", rdf_format="nt")
    theirs = Graph().parse(data=read.serialize(format="rdf", rdf_format="turtle"), format="turtle")
    # Where an activity has a qualified association, the library leaves its plain ones to infer.
    plain, qualified = URIRef(PREFIXES["prov"] + "wasAssociatedWith"), URIRef(PREFIXES["prov"] + "qualifiedAssociation")
    inferred = {(one, plain, agent) for one, agent in ours.subject_objects(plain) if (one, qualified, None) in ours}
    assert set(theirs) | inferred == set(ours)


def test_prefixes_are_the_official_ones() -> None:
    theirs = {"prov": PROV, "rdfs": RDFS, "dcterms": DCTERMS}
    assert {prefix: PREFIXES[prefix] for prefix in theirs} == {prefix: str(word) for prefix, word in theirs.items()}


@each_release
def test_json_ld_expands_without_a_network_and_drops_no_term(facts: ReleaseFacts) -> None:
    document = json.loads(release_provenance(HERITAGE, facts))
    assert terms_of(jsonld.expand(document, {"documentLoader": no_network})) == {
        PREFIXES[prefix] + local for prefix, local in (term.split(":", 1) for term in terms_of(document["@graph"]))
    }


@each_release
def test_our_documents_keep_the_constraints_of_prov(facts: ReleaseFacts) -> None:
    assert violations(release_provenance(HERITAGE, facts)) == []


def _cycle(nodes: dict[str, Node]) -> None:
    """The object that went in came of what came out."""
    [source] = [node for node in nodes.values() if "kfm:Object" in node["@type"]]
    source["prov:wasDerivedFrom"] = {"@id": f"kfm:sha256:{'a' * 64}"}


def _informed_by_its_successor(nodes: dict[str, Node]) -> None:
    [compute] = [node for node in nodes.values() if "kfm:Compute" in node["@type"]]
    [publish] = [name for name, node in nodes.items() if "kfm:Publish" in node["@type"]]
    compute["prov:wasInformedBy"] = {"@id": publish}


def _of_itself(nodes: dict[str, Node]) -> None:
    data = nodes[f"kfm:sha256:{'a' * 64}"]
    data["prov:wasDerivedFrom"] = {"@id": data["@id"]}


def _both(nodes: dict[str, Node]) -> None:
    nodes[f"kfm:sha256:{'a' * 64}"]["@type"].append("prov:Activity")


def _generates(nodes: dict[str, Node]) -> None:
    """An entity on the side of an activity."""
    [verdicts] = [node for node in nodes.values() if "kfm:Verdicts" in node["@type"]]
    verdicts["prov:wasGeneratedBy"] = {"@id": f"kfm:sha256:{'a' * 64}"}


def _twice(nodes: dict[str, Node]) -> None:
    data = nodes[f"kfm:sha256:{'a' * 64}"]
    data["prov:wasGeneratedBy"] = [data["prov:wasGeneratedBy"]] * 2


def _undeclared(nodes: dict[str, Node]) -> None:
    del nodes["kfm:agent:kfm-pipelines"]


def _two_plans(nodes: dict[str, Node]) -> None:
    [by] = [node for name, node in nodes.items() if name.endswith(":mask:by-software")]
    by["prov:hadPlan"] = [by["prov:hadPlan"], {"@id": f"kfm:sha256:{'a' * 64}"}]


DATA_URN = f"urn:kfm:sha256:{'a' * 64}"
BROKEN: dict[str, tuple[Callable[[dict[str, Node]], None], list[str]]] = {
    "cycle of derivation": (
        _cycle,
        ["depend on itself", DATA_URN, "s3://kfm-ingest/usgs/streamflow/one.parquet#etag="],
    ),
    "cycle of stages": (_informed_by_its_successor, ["depend on itself", ":compute", ":publish"]),
    "derived from itself": (_of_itself, ["depend on itself", DATA_URN]),
    "entity and activity": (_both, [f"{DATA_URN} cannot be both entity and activity"]),
    "impossible by its relation": (_generates, [f"{DATA_URN} cannot be both entity and activity"]),
    "generated twice": (_twice, [f"{DATA_URN} has 2 times wasGeneratedBy"]),
    "undeclared agent": (_undeclared, ["urn:kfm:agent:kfm-pipelines is referred to and nowhere declared"]),
    "two plans of one association": (_two_plans, ["2 times hadPlan"]),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_violation_is_found_and_names_the_nodes(case: str) -> None:
    change, words = BROKEN[case]
    nodes = graph(FACTS)
    change(nodes)
    found = violations(json.dumps({"@context": PREFIXES, "@graph": list(nodes.values())}).encode())
    assert len(found) == 1
    assert all(word in found[0] for word in words), found


def test_an_agent_may_be_an_entity_too() -> None:
    nodes = graph(FACTS)
    nodes["kfm:agent:kfm-pipelines"]["@type"].append("prov:Entity")
    assert violations(json.dumps({"@context": PREFIXES, "@graph": list(nodes.values())}).encode()) == []


def test_a_document_that_is_not_ours_is_invalid() -> None:
    document = json.loads(release_provenance(HERITAGE, FACTS))
    other_words = json.dumps({**document, "@context": {**PREFIXES, "prov": "urn:other:"}}).encode()
    twice = json.dumps({**document, "@graph": [*document["@graph"], document["@graph"][0]]}).encode()
    assert "context" in violations(other_words)[0]
    assert any("declared twice" in one for one in violations(twice))
    for broken in (b"", b"[]", b"not JSON", b'{"@graph": [{}]}', b'{"@graph": [{"@id": "a", "x": [{}]}]}'):
        assert violations(broken) == ["it cannot be read as PROV-O in JSON-LD"]


def terms_of(document: object) -> set[str]:
    """Every property that is used anywhere."""
    if isinstance(document, list):
        return {term for one in document for term in terms_of(one)}
    if not isinstance(document, dict):
        return set()
    return {key for key in document if not key.startswith("@")} | {
        term for value in document.values() for term in terms_of(value)
    }


def no_network(url: str, options: object) -> Any:
    raise AssertionError(f"{url} was asked for")
