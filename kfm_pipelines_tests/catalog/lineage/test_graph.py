"""The provenance of all current releases as one graph: complete, reproducible, and open to queries."""

import dataclasses
import gzip
import json
import os
from collections.abc import Iterable, Iterator

import pytest
from click.testing import CliRunner
from rdflib import Dataset as RdfDataset

from kfm_pipelines.catalog.lineage import graph as provenance_graph
from kfm_pipelines.catalog.lineage.graph import write_graph
from kfm_pipelines.catalog.prov.document import release_provenance
from kfm_pipelines.catalog.prov.graph import (
    SHARING_QUERY,
    STAGES_QUERY,
    compress_lines,
    decompress_lines,
    find_lines_sharing,
    load_quads,
    quads,
    run_query,
)
from kfm_pipelines.cli.main import kfm
from kfm_pipelines.errors import QueryRefused
from kfm_pipelines.stores.layout import PROVENANCE_GRAPH
from kfm_pipelines_tests.fixtures.catalog.published_hours import publish_hours
from kfm_pipelines_tests.fixtures.catalog.release import EXEMPTED, FACTS, HERITAGE, INPUT, STREAMFLOW
from kfm_pipelines_tests.fixtures.sites.site import Site

NEXT_KEY = "usgs-streamflow:kansas_statewide:none:2025-12-04T01Z:v1-0-0"
OTHER = dataclasses.replace(
    FACTS,
    key=NEXT_KEY,
    content_hash="e" * 64,
    inputs=(dataclasses.replace(INPUT, etag="8" * 32), dataclasses.replace(INPUT, uri="s3://kfm-ingest/other.parquet")),
)
UNRELATED = dataclasses.replace(
    FACTS, key=NEXT_KEY.replace("T01Z", "T02Z"), inputs=(dataclasses.replace(INPUT, uri="s3://kfm-ingest/x"),)
)


@pytest.fixture
def environment() -> Iterator[None]:
    """Restores the environment, which a command changes."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def test_keys_made_from_another_version_of_an_object_are_found() -> None:
    lines = [
        line
        for number, facts in enumerate((FACTS, OTHER, UNRELATED))
        for line in quads(release_provenance(STREAMFLOW, facts), str(number) * 64)
    ]
    graph = compress_lines(lines)
    assert list(decompress_lines(graph)) == lines
    assert gzip.decompress(graph).decode().splitlines() == lines
    found = run_query(load_quads(find_lines_sharing(graph, [INPUT.uri])), SHARING_QUERY)
    assert {(row["address"], row["key"]) for row in found if row["address"] == INPUT.uri} == {
        (INPUT.uri, FACTS.key),
        (INPUT.uri, NEXT_KEY),
    }
    assert not any(row["key"] == UNRELATED.key for row in found)
    assert find_lines_sharing(graph, ["s3://kfm-ingest/nothing"]) == []


REMOTE_QUERIES = (
    "SELECT * FROM <http://127.0.0.1:9/> WHERE { ?a ?b ?c }",
    "ASK FROM NAMED <http://127.0.0.1:9/> { ?a ?b ?c }",
    "SELECT * { SERVICE <http://127.0.0.1:9/> { ?a ?b ?c } }",
    "SELECT * { ?a ?b ?c FILTER NOT EXISTS { SERVICE SILENT ?b { ?a ?b ?c } } }",
    "SELECT * { { SELECT (EXISTS { SERVICE ?b { ?a ?b ?c } } AS ?d) { ?a ?b ?c } } }",
)
INVALID_QUERIES = (
    "SELECT nothing",
    "",
    "SELECT * { ?a unheardof:b ?c }",
    "LOAD <http://127.0.0.1:9/>",
    "INSERT DATA { kfm:a kfm:b kfm:c }",
    "DELETE WHERE { ?a ?b ?c }",
)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        *((query, "queries can read only this graph") for query in REMOTE_QUERIES),
        *((query, "no SPARQL query") for query in INVALID_QUERIES),
        ('SELECT * { ?a ?b ?c FILTER REGEX(STR(?a), "[") }', "cannot be answered"),
    ],
)
def test_queries_open_no_connection(query: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def connected(*_: object, **__: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", connected)
    with pytest.raises(QueryRefused, match=message):
        run_query(load_quads(quads(release_provenance(STREAMFLOW, FACTS), "0" * 64)), query)


def test_keywords_inside_a_text_are_allowed() -> None:
    graph = load_quads(quads(release_provenance(STREAMFLOW, FACTS), "0" * 64))
    assert run_query(graph, 'ASK { ?a ?b ?c FILTER (?c != "SERVICE <http://127.0.0.1:9/> FROM") }') == [
        {"answer": True}
    ]


def test_stages_are_listed_in_order() -> None:
    exempted = dataclasses.replace(FACTS, care=EXEMPTED)
    result = run_query(load_quads(quads(release_provenance(HERITAGE, exempted), "0" * 64)), STAGES_QUERY)
    assert [(one["kind"].rpartition(":")[2], one["agent"], one["plan"]) for one in result] == [
        ("Compute", "KFM Pipelines", "heritage/sites v1-0-0"),
        ("Exemption", "Heritage review board", None),
        ("Exemption", "KFM Pipelines", "heritage-sites@1"),
        ("Validate", "KFM Pipelines", None),
        ("Stage", "KFM Pipelines", None),
        ("Publish", "KFM Pipelines", None),
    ]


@pytest.mark.slow
def test_the_graph_of_everything_published(site: Site, environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    _refuses_queries_before_anything_is_published()
    put = publish_hours(site, 0, 1)

    assert (write_graph(site.services).releases, write_graph(site.services).written) == (2, False)
    path = site.data / PROVENANCE_GRAPH
    first = path.read_bytes()
    path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(provenance_graph, "compress_lines", lambda lines: compress_lines(_with_nothing_idle(site, lines)))
        assert write_graph(site.services).written
    assert path.read_bytes() == first

    graph = RdfDataset(default_union=True)
    graph.parse(data=gzip.decompress(first), format="nquads")
    documents = [json.loads(one.read_text()) for one in site.data.glob("objects/sha256/*/*.json")]
    named = {str(one.identifier).rpartition(":")[2] for one in graph.graphs() if "sha256" in str(one.identifier)}
    assert len(named) == len([one for one in documents if "@graph" in one]) == 2
    assert all((site.data / f"objects/sha256/{name[:2]}/{name}.json").exists() for name in named)

    _answers_queries(site, put[0].object_key, put[0].etag)
    _writes_the_graph_again_after_a_publication(site, first)


def _refuses_queries_before_anything_is_published() -> None:
    result = CliRunner().invoke(kfm, ["lineage", "graph"], catch_exceptions=False)
    assert result.output == "nothing is published yet, so there is no graph\n"
    early = CliRunner().invoke(kfm, ["lineage", "query", "-"], input="ASK { ?a ?b ?c }")
    assert "there is no graph yet; write it with `kfm lineage graph`" in str(early.exception)


def _with_nothing_idle(site: Site, lines: Iterable[str]) -> Iterator[str]:
    """No transaction may be open while documents are read: Postgres would end it after two minutes."""
    idle = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
    for line in lines:
        assert site.fetch(idle) == []
        yield line


def _answers_queries(site: Site, object_key: str, etag: str) -> None:
    run = CliRunner().invoke
    result = run(kfm, ["lineage", "show", site.key(), "--json"], catch_exceptions=False)
    [source] = json.loads(result.output)["sources"]
    assert (source["address"], source["etag"]) == (f"s3://{site.bucket}/{object_key}", etag)
    assert [one["kind"].rpartition(":")[2] for one in json.loads(result.output)["stages"]] == [
        "Compute", "LeftOpen", "Validate", "Stage", "Publish"
    ]  # fmt: skip
    assert f"from s3://{site.bucket}/{object_key}" in run(kfm, ["lineage", "show", site.key()]).output

    question = "SELECT ?key WHERE { ?release a kfm:Release ; dcterms:identifier ?key } ORDER BY ?key"
    selected = run(kfm, ["lineage", "query", "-"], input=question, catch_exceptions=False)
    assert selected.output == f"{site.key(0)}\n{site.key(1)}\n2 rows\n"
    answer = run(kfm, ["lineage", "query", "-", "--json"], input="ASK { ?a prov:used ?b }")
    assert json.loads(answer.output) == {"rows": [{"answer": True}]}
    wrong = run(kfm, ["lineage", "query", "-"], input="SELECT nothing")
    assert (wrong.exit_code, "no SPARQL query" in wrong.output) == (2, True)
    elsewhere = run(kfm, ["lineage", "query", "-"], input=REMOTE_QUERIES[0])
    assert (elsewhere.exit_code, "FROM is not allowed" in elsewhere.output) == (2, True)


def _writes_the_graph_again_after_a_publication(site: Site, first: bytes) -> None:
    """Also counts a release whose provenance is missing as left out."""
    publish_hours(site, 2)
    item = json.loads((site.data / f"catalog/usgs-streamflow/items/{site.key(0)}.json").read_text())
    (site.data / "catalog/usgs-streamflow/items" / item["assets"]["provenance"]["href"]).resolve().unlink()
    result = CliRunner().invoke(kfm, ["lineage", "graph"], catch_exceptions=False)
    assert result.output == "provenance of 2 releases; 1 left out\n"
    assert (site.data / PROVENANCE_GRAPH).read_bytes() != first
    assert CliRunner().invoke(kfm, ["lineage", "graph"]).output == "nothing was published since the graph was written\n"
