"""DCAT-US 3: the catalog and its pages conform to the shapes, and no mandatory field may be missing."""

import copy
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urljoin

import pytest
from pyld import jsonld
from pyshacl import validate
from rdflib import Graph

from kfm_pipelines.catalog.dcat import CONTEXT, Series, catalog_dcat, page_dcat
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.state.revisions import PublishedKey
from kfm_pipelines_tests.fixtures.catalog.json_ld import no_network, terms_of
from kfm_pipelines_tests.fixtures.catalog.release import HERITAGE, KANSAS, STREAMFLOW, WITHOUT_PLACES
from kfm_pipelines_tests.fixtures.runs.keys import published_key
from kfm_pipelines_tests.fixtures.sites.site import START

DAY = timedelta(days=1)
SERIES = Series(STREAMFLOW, "not-sensitive@2", False, START, START + DAY, KANSAS, "./usgs-streamflow/items.parquet")
SEVERAL = [
    SERIES,
    Series(WITHOUT_PLACES, "tribal-areas@1", False, START, START + DAY, None),
    Series(HERITAGE, "heritage-sites@1", True, START, START + DAY, None),
]
FILES = [
    published_key(
        f"usgs-streamflow:kansas_statewide:none:2025-12-04T{hour:02}Z:v1-0-0",
        window_start=START + timedelta(hours=hour),
        window_end=START + timedelta(hours=hour + 1),
        bbox=KANSAS if hour else None,
        content_hash=str(hour) * 64,
        bytes=5000 + hour,
    )
    for hour in (1, 0)
]


DOCUMENTS: dict[str, bytes] = {
    "catalog": catalog_dcat(SEVERAL),
    "page": page_dcat(SERIES, "2025/12/04", FILES),
    "page of a month": page_dcat(SEVERAL[2], "2025", FILES),
}
# Mandatory fields by the type of their node.
MANDATORY: dict[str, tuple[str, ...]] = {
    "dcat:Catalog": ("dcterms:title", "dcterms:description", "dcterms:publisher", "dcterms:conformsTo", "dcat:dataset"),
    "dcat:Dataset": (
        "dcterms:title", "dcterms:description", "dcterms:identifier", "dcterms:publisher", "dcat:contactPoint",
        "dcterms:license", "dcterms:accessRights", "dcat:keyword", "dcterms:temporal", "dcat:distribution",
        "dcterms:accrualPeriodicity",
    ),
    "dcat:Distribution": ("dcterms:title", "dcterms:license", "dcat:mediaType", "dcat:accessURL"),
    "foaf:Agent": ("foaf:name",),
    "vcard:Kind": ("vcard:fn", "vcard:hasEmail"),
    "dcterms:RightsStatement": ("rdfs:label",),
    "dcterms:Standard": ("dcterms:title",),
    "dcterms:PeriodOfTime": ("dcat:startDate", "dcat:endDate"),
    "dcterms:Location": ("dcat:bbox",),
    "skos:Concept": ("skos:prefLabel",),
}  # fmt: skip
OF_FILES = {"spdx:Checksum": ("spdx:algorithm", "spdx:checksumValue")}
Document = dict[str, Any]
each_document = pytest.mark.parametrize("name", DOCUMENTS)


@pytest.fixture(scope="module")
def conforms() -> Callable[[Document], tuple[bool, str]]:
    shapes = Graph().parse(shipped_path("resources") / "contracts" / "dcat-us-3.shacl.ttl", format="turtle")

    def check(document: Document) -> tuple[bool, str]:
        data = Graph().parse(
            data=json.dumps(document), format="json-ld", publicID="https://kfm.example/catalog/dcat.jsonld"
        )
        passed, _, report = validate(data, shacl_graph=shapes)
        return bool(passed), str(report)

    return check


def nodes(document: object, kind: str) -> Iterator[Document]:
    if isinstance(document, list):
        for one in document:
            yield from nodes(one, kind)
    elif isinstance(document, dict):
        if kind in (types if isinstance(types := document.get("@type"), list) else [types]):
            yield document
        for value in document.values():
            yield from nodes(value, kind)


@each_document
def test_our_documents_conform_to_the_shapes(name: str, conforms: Callable[[Document], tuple[bool, str]]) -> None:
    passed, report = conforms(json.loads(DOCUMENTS[name]))
    assert passed, report


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mandatory"), [("catalog", MANDATORY), ("page", OF_FILES)])
def test_the_shapes_require_every_mandatory_field(
    name: str, mandatory: dict[str, tuple[str, ...]], conforms: Callable[[Document], tuple[bool, str]]
) -> None:
    for kind, field in ((kind, field) for kind, fields in mandatory.items() for field in fields):
        document = json.loads(DOCUMENTS[name])
        # Nodes with an id are one node wherever they occur.
        first = next(nodes(document, kind))
        for node in nodes(document, kind):
            if node is first or ("@id" in first and node.get("@id") == first["@id"]):
                del node[field]
        passed, report = conforms(document)
        assert (passed, field in report) == (False, True), f"{kind} without {field}"


@each_document
def test_json_ld_expands_without_a_network_and_drops_no_term(name: str) -> None:
    document = json.loads(DOCUMENTS[name])
    plain = {key: value for key, value in document.items() if key != "@context"}
    expanded = jsonld.expand(document, {"documentLoader": no_network, "base": "https://kfm.example/"})
    assert terms_of(expanded) == {
        CONTEXT[prefix] + local for prefix, local in (term.split(":", 1) for term in terms_of(plain))
    }


def test_an_undefined_term_is_dropped_by_expansion() -> None:
    document = {**json.loads(DOCUMENTS["catalog"]), "nonsense": "x"}
    expanded = jsonld.expand(document, {"documentLoader": no_network, "base": "https://kfm.example/"})
    assert not any(term.endswith("nonsense") for term in terms_of(expanded))


def test_a_dataset_states_publisher_cadence_and_distributions() -> None:
    streamflow, drought, heritage = json.loads(DOCUMENTS["catalog"])["dcat:dataset"]
    assert streamflow["dcterms:publisher"]["foaf:name"] == "Kansas Frontier Matrix"
    assert [one["foaf:name"] for one in streamflow["dcterms:creator"]] == ["U.S. Geological Survey"]
    assert streamflow["dcat:contactPoint"]["vcard:hasEmail"]["@id"].startswith("mailto:hydrology@")
    assert [one["dcterms:accrualPeriodicity"] for one in (streamflow, drought, heritage)] == [
        "R/PT1H",
        "R/P1W",
        "R/P1M",
    ]
    addresses = [one.get("dcat:accessURL") or one["dcat:downloadURL"] for one in streamflow["dcat:distribution"]]
    assert [one["@id"] for one in addresses] == [
        "./usgs-streamflow/collection.json", "../processed/usgs-streamflow/", "./usgs-streamflow/items.parquet"
    ]  # fmt: skip
    assert len(drought["dcat:distribution"]) == 2
    assert "ask a nation before" in drought["dcterms:rights"]["rdfs:label"]


def test_access_rights_mention_masking() -> None:
    rights = [one["dcterms:accessRights"]["rdfs:label"] for one in json.loads(DOCUMENTS["catalog"])["dcat:dataset"]]
    assert rights[:2] == ["public", "public"]
    assert "masked under policy heritage-sites@1" in rights[2]
    assert "masked" in json.loads(DOCUMENTS["page of a month"])["dcterms:accessRights"]["rdfs:label"]


def content_of(file: PublishedKey) -> str:
    return f"objects/sha256/{file.content_hash[:2]}/{file.content_hash}.parquet"


def test_a_page_leads_to_each_file_with_its_size_and_checksum() -> None:
    page = json.loads(DOCUMENTS["page"])
    assert page["dcat:inSeries"]["@id"] == json.loads(DOCUMENTS["catalog"])["dcat:dataset"][0]["@id"]
    first, second = page["dcat:distribution"]
    here = "https://kfm.example/catalog/usgs-streamflow/by-time/2025/12/04/dcat.jsonld"
    for one, file in ((first, FILES[1]), (second, FILES[0])):
        assert one["dcterms:identifier"] == file.key
        assert urljoin(here, one["dcat:downloadURL"]["@id"]) == f"https://kfm.example/{content_of(file)}"
        item = f"https://kfm.example/catalog/usgs-streamflow/items/{file.key}.json"
        assert urljoin(here, one["dcat:accessURL"]["@id"]) == item
        assert one["dcat:byteSize"]["@value"] == str(file.bytes)
        assert one["spdx:checksum"]["spdx:checksumValue"]["@value"] == file.content_hash
    year = json.loads(DOCUMENTS["page of a month"])["dcat:distribution"][0]["dcat:downloadURL"]["@id"]
    there = "https://kfm.example/catalog/heritage-sites/by-time/2025/dcat.jsonld"
    assert urljoin(there, year) == f"https://kfm.example/{content_of(FILES[1])}"


def test_the_order_of_files_makes_no_difference() -> None:
    assert page_dcat(SERIES, "2025/12/04", FILES[::-1]) == DOCUMENTS["page"]
    assert catalog_dcat(copy.copy(SEVERAL)) == DOCUMENTS["catalog"]
