"""Provenance of the care taken: one activity of its own, with who decided and by which rules."""

import dataclasses
import json
from typing import Any

from kfm_pipelines.catalogs.care_facts import CareFacts
from kfm_pipelines.catalogs.prov import care_provenance
from kfm_pipelines_tests.catalogs.given import OPEN
from kfm_pipelines_tests.catalogs.test_stac import EXEMPTED, MASKED

KEY = "heritage-sites:kansas_statewide:5:2026-05:v1-0-0"
INPUT = "s3://kfm-ingest/heritage/sites/2026/05/register-01.parquet"


def graph(care: CareFacts) -> dict[str, dict[str, Any]]:
    document = json.loads(care_provenance(KEY, (INPUT,), "a" * 64, care))
    assert document["@context"]["prov"] == "http://www.w3.org/ns/prov#"
    return {node["@id"]: node for node in document["@graph"]}


def activity(care: CareFacts) -> dict[str, Any]:
    [found] = [node for node in graph(care).values() if "prov:Activity" in node["@type"]]
    return found


def test_masking_is_an_activity_of_its_own() -> None:
    found = activity(MASKED)
    assert found["@type"] == ["prov:Activity", "care:Masking"]
    assert found["prov:used"] == [{"@id": INPUT}]
    assert (found["care:keyId"], found["care:method"]) == ("heritage-2026", list(MASKED.methods))


def test_the_plan_is_the_policy_and_the_authority_stands_behind_it() -> None:
    nodes = graph(MASKED)
    association = activity(MASKED)["prov:qualifiedAssociation"]
    plan, authority = nodes[association["prov:hadPlan"]["@id"]], nodes[association["prov:agent"]["@id"]]
    assert (plan["rdfs:label"], plan["care:policyDigest"]) == ("heritage-sites@1", "d" * 64)
    assert (authority["rdfs:label"], "prov:Agent" in authority["@type"]) == ("Heritage review board", True)


def test_what_came_out_is_named_by_its_bytes_and_leads_back() -> None:
    output = graph(MASKED)[f"kfm:sha256:{'a' * 64}"]
    assert output["prov:wasGeneratedBy"]["@id"] == activity(MASKED)["@id"]
    assert output["prov:wasDerivedFrom"] == [{"@id": INPUT}]


def test_an_exemption_is_one_as_well_with_who_signed_it() -> None:
    found = activity(EXEMPTED)
    assert found["@type"] == ["prov:Activity", "care:Exemption"]
    assert (found["care:exemptedBy"], found["care:exemptedUntil"]) == ("A reviewer", "2026-12-31")
    assert found["care:signature"] == "c2lnbmVk"
    assert "care:keyId" not in found


def test_to_mask_nothing_is_a_decision_too() -> None:
    assert activity(OPEN)["@type"] == ["prov:Activity", "care:LeftOpen"]


def test_the_same_release_has_the_same_document() -> None:
    first, again = (care_provenance(KEY, (INPUT,), "a" * 64, MASKED) for _ in range(2))
    other = care_provenance(KEY, (INPUT,), "a" * 64, dataclasses.replace(MASKED, policy="heritage-sites@2"))
    assert first == again != other


def test_every_node_that_is_pointed_at_is_there() -> None:
    for care in (MASKED, EXEMPTED, OPEN):
        nodes = graph(care)
        text = json.dumps(list(nodes.values()))
        pointed = {part.split('"')[0] for part in text.split('{"@id": "')[1:]}
        assert pointed <= set(nodes)
