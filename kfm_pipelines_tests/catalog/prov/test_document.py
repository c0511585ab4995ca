"""Provenance documents: complete from data to message, reproducible, and valid PROV-O."""

import dataclasses
import json
from typing import Any

from prov.model import ProvDocument
from pyld import jsonld
from rdflib import DCTERMS, PROV, RDFS, Graph, URIRef

from kfm_pipelines.catalog.facts import CareFacts, ReleaseFacts
from kfm_pipelines.catalog.prov.constraints import triples
from kfm_pipelines.catalog.prov.document import PREFIXES, iri, release_provenance
from kfm_pipelines_tests.fixtures.catalog.json_ld import no_network, terms_of
from kfm_pipelines_tests.fixtures.catalog.provenance import OTHER_INPUT, RELEASE, RELEASES, Node, each_release, graph
from kfm_pipelines_tests.fixtures.catalog.release import EXEMPTED, FACTS, HERITAGE, INPUT, MASKED, OPEN, WITHOUT_PLACES


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
    # The library cannot read an activity with both plain and qualified associations: the latter imply the former.
    plain, qualified = URIRef(PREFIXES["prov"] + "wasAssociatedWith"), URIRef(PREFIXES["prov"] + "qualifiedAssociation")
    for activity in list(ours.subjects(qualified)):
        ours.remove((activity, plain, None))
    read = ProvDocument.deserialize(content=ours.serialize(format="nt"), format="rdf", rdf_format="nt")
    theirs = Graph().parse(data=read.serialize(format="rdf", rdf_format="turtle"), format="turtle")
    assert set(theirs) == set(ours)


def test_prefixes_are_the_official_ones() -> None:
    theirs = {"prov": PROV, "rdfs": RDFS, "dcterms": DCTERMS}
    assert {prefix: PREFIXES[prefix] for prefix in theirs} == {prefix: str(word) for prefix, word in theirs.items()}


@each_release
def test_json_ld_expands_without_a_network_and_drops_no_term(facts: ReleaseFacts) -> None:
    document = json.loads(release_provenance(HERITAGE, facts))
    assert terms_of(jsonld.expand(document, {"documentLoader": no_network})) == {
        PREFIXES[prefix] + local for prefix, local in (term.split(":", 1) for term in terms_of(document["@graph"]))
    }
