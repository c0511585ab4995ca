"""The constraints of PROV: our documents keep them, and every violation is found."""

import json
from collections.abc import Callable

import pytest

from kfm_pipelines.catalog.facts import ReleaseFacts
from kfm_pipelines.catalog.prov.constraints import violations
from kfm_pipelines.catalog.prov.document import PREFIXES, release_provenance
from kfm_pipelines_tests.fixtures.catalog.provenance import Node, each_release, graph
from kfm_pipelines_tests.fixtures.catalog.release import FACTS, HERITAGE


@each_release
def test_our_documents_keep_the_constraints_of_prov(facts: ReleaseFacts) -> None:
    assert violations(release_provenance(HERITAGE, facts)) == []


def _cycle(nodes: dict[str, Node]) -> None:
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
