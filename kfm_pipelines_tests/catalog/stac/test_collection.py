"""Collections, their pages and the root catalog."""

import dataclasses
import json
from datetime import timedelta

import pytest

from kfm_pipelines.catalog.stac.collection import (
    Member,
    collection_document,
    extent_of,
    page_document,
    pages_above,
    root_document,
)
from kfm_pipelines.catalog.stac.item import page_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines_tests.catalog.stac.test_item import DATASET, changed
from kfm_pipelines_tests.fixtures.catalog.release import COLLECTION, KANSAS, NOWHERE, WITHOUT_PLACES
from kfm_pipelines_tests.fixtures.sites.site import START

MEMBERS = [
    Member(f"key-{hour}", START + timedelta(hours=hour), START + timedelta(hours=hour + 1), box)
    for hour, box in enumerate([KANSAS, None, (-103.0, 38.0, -100.0, 41.0)])
]


def test_a_collection_sums_up_what_it_holds_and_leads_to_its_years() -> None:
    collection = json.loads(collection_document(DATASET, COLLECTION))
    assert collection["extent"]["spatial"]["bbox"] == [list(KANSAS)]
    assert collection["extent"]["temporal"]["interval"] == [["2025-12-04T00:00:00Z", "2025-12-04T03:00:00Z"]]
    assert collection["kfm:totals"] == {"items": 3, "rows": 204, "bytes": 15_000}
    assert collection["summaries"]["kfm:transform_version"] == ["v1-0-0"]
    assert collection["kfm:lineage"]["policy"] == "not-sensitive@2"
    assert [link["href"] for link in collection["links"] if link["rel"] == "child"] == ["./by-time/2025/catalog.json"]
    assert "assets" not in collection


def test_an_extent_spans_all_members() -> None:
    extent = extent_of(DATASET, MEMBERS)
    assert extent["spatial"]["bbox"] == [[-103.0, 36.99, -94.59, 41.0]]
    assert extent["temporal"]["interval"] == [["2025-12-04T00:00:00Z", "2025-12-04T03:00:00Z"]]
    assert extent_of(DATASET, MEMBERS[::-1]) == extent


def test_the_status_of_a_collection_is_that_of_the_last_scan() -> None:
    def status(keys: int) -> object:
        facts = dataclasses.replace(COLLECTION, keys_with_errors=keys)
        return json.loads(collection_document(DATASET, facts))["kfm:qa"]["status"]

    assert (status(0), status(2)) == ("green", "red")


@pytest.mark.parametrize(
    ("window", "page", "above"),
    [
        ("2025-12-04T00Z", "2025/12/04", ["2025/12", "2025"]),
        ("2025-12-04", "2025/12", ["2025"]),
        ("2025-12", "2025", []),
    ],
)
def test_a_window_belongs_to_the_page_of_its_day_month_or_year(window: str, page: str, above: list[str]) -> None:
    assert page_of(f"source:aoi:none:{window}:v1") == page
    assert pages_above(page) == above


def test_a_page_links_what_is_below_and_what_is_above_it() -> None:
    document = json.loads(page_document("usgs-streamflow", "2025/12", ["2025/12/05", "2025/12/04"], ["b", "a"]))
    assert [(link["rel"], link["href"]) for link in document["links"]] == [
        ("root", "../../../../catalog.json"),
        ("parent", "../catalog.json"),
        ("child", "./04/catalog.json"),
        ("child", "./05/catalog.json"),
        ("alternate", "./dcat.jsonld"),
        ("item", "../../../items/a.json"),
        ("item", "../../../items/b.json"),
    ]


def test_a_collection_without_places_has_the_declared_extent() -> None:
    def box(dataset: Dataset) -> object:
        return json.loads(collection_document(dataset, NOWHERE))["extent"]["spatial"]["bbox"]

    assert box(WITHOUT_PLACES) == [[-180.0, 18.9, -66.9, 71.5]]
    assert box(changed(extent=None)) == [[-180.0, -90.0, 180.0, 90.0]]


def test_the_root_leads_to_every_collection() -> None:
    links = json.loads(root_document([DATASET]))["links"]
    assert [link["href"] for link in links if link["rel"] == "child"] == ["./usgs-streamflow/collection.json"]
