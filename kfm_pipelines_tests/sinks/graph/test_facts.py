"""What a key contributes follows from its documents alone."""

import dataclasses
from typing import Any

import pytest

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.sinks.graph.documents import read_documents
from kfm_pipelines.sinks.graph.facts import key_facts
from kfm_pipelines.sinks.graph.model import ALIGNMENTS, GraphFacts, Kind, Label, Node
from kfm_pipelines.stores import Layout, Store, open_store
from kfm_pipelines_tests.fixtures.catalog.provenance import MASKED_INPUT
from kfm_pipelines_tests.fixtures.catalog.release import EXEMPTED, HERITAGE, MASKED, STREAMFLOW
from kfm_pipelines_tests.fixtures.graph.handmade_catalog import HandmadeCatalog, digest, source, upstream
from kfm_pipelines_tests.sinks.graph.test_questions import DROUGHT, NATIONS, TRIBAL, by_county, under
from kfm_pipelines_tests.sinks.graph.test_sink import ATLAS, MAP, A, B, publish_some

SITES = "heritage-sites:kansas_statewide:5:2025-12:v1-0-0"


@pytest.fixture
def catalog(tmp_path: Any) -> HandmadeCatalog:
    return HandmadeCatalog(open_store((tmp_path / "data").as_uri()))


def facts_of(catalog: HandmadeCatalog, dataset: Dataset, key: str) -> GraphFacts:
    read = read_documents(catalog.store, Layout(dataset.pipeline), [key])
    assert read.problems == {}
    return key_facts(dataset, key, read.documents[key])


def targets(facts: GraphFacts, source_id: str, kind: Kind) -> dict[str, dict[str, Any]]:
    return {
        one.target.id: dict(stated)
        for one, stated in facts.relations.items()
        if (one.source.id, one.kind) == (source_id, kind)
    }


def test_an_unpublished_key_contributes_nothing(catalog: HandmadeCatalog) -> None:
    assert facts_of(catalog, STREAMFLOW, A) == GraphFacts()


def test_revisions_follow_each_other_and_the_last_is_current(catalog: HandmadeCatalog) -> None:
    publish_some(catalog)
    facts = facts_of(catalog, STREAMFLOW, A)
    key = f"kfm://usgs-streamflow/{A}"
    assert targets(facts, key, Kind.CURRENT) == {f"{A}@2": {}}
    assert targets(facts, f"{A}@2", Kind.WAS_REVISION_OF) == {f"{A}@1": {}}
    assert targets(facts, f"{A}@2", Kind.IS_VERSION_OF) == {key: {}}
    first, second = (facts.nodes[Node(Label.REVISION, f"{A}@{number}")] for number in (1, 2))
    assert (first["superseded"], second["superseded"]) == (True, False)
    assert second["content_sha256"] == digest("a2")
    assert second["geometry"] == ("POLYGON((-102.05 36.99,-94.59 36.99,-94.59 40.0,-102.05 40.0,-102.05 36.99))")
    assert targets(facts, f"{A}@2", Kind.UNDER_POLICY) == {
        "kfm:policy:not-sensitive@3": {"sha256": "e" * 64, "outcome": "LeftOpen"}
    }
    assert targets(facts, f"{A}@2", Kind.DECIDED_BY) == {"kfm:authority:kfm-data-stewards": {}}


def test_a_release_that_came_back_is_current_again(catalog: HandmadeCatalog) -> None:
    for content in ("first", "second", "first"):
        catalog.publish(STREAMFLOW, A, [source(content)], content=content)
    facts = facts_of(catalog, STREAMFLOW, A)
    assert targets(facts, f"kfm://usgs-streamflow/{A}", Kind.CURRENT) == {f"{A}@3": {}}
    assert targets(facts, f"{A}@3", Kind.WAS_GENERATED_BY) == targets(facts, f"{A}@1", Kind.WAS_GENERATED_BY)


def test_the_release_is_traced_through_its_activities_to_its_objects(catalog: HandmadeCatalog) -> None:
    publish_some(catalog)
    facts = facts_of(catalog, STREAMFLOW, A)
    [publishing] = targets(facts, f"{A}@2", Kind.WAS_GENERATED_BY)
    chain = [publishing]
    while before := targets(facts, chain[-1], Kind.WAS_INFORMED_BY):
        chain += before
    assert [name.rpartition(":")[2] for name in chain] == ["publish", "stage", "validate", "mask", "compute"]
    objects = {f"s3://kfm-ingest/{name}" for name in ("a.parquet?versionId=v2", "shared.parquet?versionId=v1")}
    used = targets(facts, chain[-1], Kind.USED)
    assert objects < set(used)
    messages = {name: stated for name, stated in used.items() if name not in objects}
    for message, stated in messages.items():
        assert list(targets(facts, message, Kind.ANNOUNCED)) == stated["about"]
    derived = targets(facts, f"{A}@2", Kind.WAS_DERIVED_FROM)
    assert {name: stated.get("late", False) for name, stated in derived.items()} == {
        "s3://kfm-ingest/a.parquet?versionId=v2": True,
        "s3://kfm-ingest/shared.parquet?versionId=v1": False,
    }
    assert targets(facts, chain[-2], Kind.GENERATED) == {f"kfm:sha256:{digest('a2')}": {}}


def test_an_upstream_is_named_with_the_data_that_was_used(catalog: HandmadeCatalog) -> None:
    late = dataclasses.replace(upstream(STREAMFLOW, B, "b"), late=True)
    catalog.publish(ATLAS, MAP, [upstream(STREAMFLOW, A, "a"), late], content="map")
    derived = targets(facts_of(catalog, ATLAS, MAP), f"{MAP}@1", Kind.WAS_DERIVED_FROM)
    assert derived == {
        f"kfm://usgs-streamflow/{A}": {"content_sha256": digest("a")},
        f"kfm://usgs-streamflow/{B}": {"content_sha256": digest("b"), "late": True},
    }


def test_two_upstreams_with_the_same_bytes_are_both_named(catalog: HandmadeCatalog) -> None:
    catalog.publish(ATLAS, MAP, [upstream(STREAMFLOW, key, "empty") for key in (A, B)], content="map")
    derived = targets(facts_of(catalog, ATLAS, MAP), f"{MAP}@1", Kind.WAS_DERIVED_FROM)
    assert set(derived) == {f"kfm://usgs-streamflow/{key}" for key in (A, B)}


@pytest.mark.parametrize(("care", "outcome"), [(MASKED, "Masking"), (EXEMPTED, "Exemption")])
def test_what_a_policy_did_is_on_the_relation(catalog: HandmadeCatalog, care: Any, outcome: str) -> None:
    catalog.publish(HERITAGE, SITES, [MASKED_INPUT], care=care)
    facts = facts_of(catalog, HERITAGE, SITES)
    [stated] = targets(facts, f"{SITES}@1", Kind.UNDER_POLICY).values()
    assert stated["outcome"] == outcome
    assert stated["methods"] == sorted(MASKED.methods)
    assert stated.get("exemption") == (care.exemption.id if care.exemption else None)
    [described] = targets(facts, f"{SITES}@1", Kind.WAS_DERIVED_FROM).values()
    assert described == {"hmac_sha256": "7" * 64}  # no ETag, size or digest of a masked input


def test_nations_and_members_are_places(catalog: HandmadeCatalog) -> None:
    catalog.publish(DROUGHT, TRIBAL, care=under("tribal-areas@1", NATIONS))
    places = targets(facts_of(catalog, DROUGHT, TRIBAL), f"{TRIBAL}@1", Kind.IN_PLACE)
    assert any(name.startswith("kfm:nations:the-tribal-nations-alaska-native") for name in places)
    key = "land-parcels:flint_hills-chase:none:2025-12:v1-0-0"
    catalog.publish(by_county(), key)
    places = targets(facts_of(catalog, by_county(), key), f"{key}@1", Kind.IN_PLACE)
    assert set(places) == {"kfm:place:flint_hills", "kfm:place:flint_hills:county:chase"}


def test_shared_nodes_state_nothing_but_their_name(catalog: HandmadeCatalog) -> None:
    """Otherwise the graph would depend on who wrote last."""
    publish_some(catalog)
    masked = dataclasses.replace(source("shared.parquet"), etag="9" * 32, digest={"hmacSha256": "7" * 64}, size=None)
    catalog.publish(HERITAGE, SITES, [masked], care=MASKED)
    catalog.publish(ATLAS, MAP, [upstream(STREAMFLOW, A, "a2")], content="map")
    found: dict[Node, dict[str, Any]] = {}
    for dataset, key in ((STREAMFLOW, A), (STREAMFLOW, B), (HERITAGE, SITES), (ATLAS, MAP)):
        for node, properties in facts_of(catalog, dataset, key).nodes.items():
            assert found.setdefault(node, properties) == properties
            assert properties.items() >= ALIGNMENTS[node.label].items()
            assert None not in properties.values()


def test_an_item_ahead_of_its_history_is_refused(catalog: HandmadeCatalog) -> None:
    publish_some(catalog)
    layout, store = Layout(STREAMFLOW.pipeline), catalog.store
    newer = store.read(layout.item(A))
    catalog.withdraw(STREAMFLOW, A, 2)
    store.write(layout.item(A), newer)
    with pytest.raises(IntegrityBroken, match="its history does not have the release"):
        facts_of(catalog, STREAMFLOW, A)


class Counting:
    """Counts the calls that a remote store would have to answer."""

    def __init__(self, store: Store) -> None:
        self.store, self.calls = store, 0

    def read_all(self, paths: Any) -> dict[str, bytes]:
        self.calls += 1
        return self.store.read_all(paths)


def test_any_number_of_keys_takes_three_round_trips(catalog: HandmadeCatalog) -> None:
    publish_some(catalog)
    counting: Any = Counting(catalog.store)
    read = read_documents(counting, Layout(STREAMFLOW.pipeline), [A, B])
    assert (len(read.documents), counting.calls) == (2, 3)
