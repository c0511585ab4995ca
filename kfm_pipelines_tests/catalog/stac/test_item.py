"""STAC documents: valid by the official schemas without a network, and the same bytes for the same facts."""

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import pystac
import pytest
from pystac.errors import STACValidationError
from pystac.validation import validate_dict
from pystac.validation.stac_validator import JsonSchemaSTACValidator

from kfm_pipelines.catalog.documents import PROFILE
from kfm_pipelines.catalog.facts import ReleaseFacts
from kfm_pipelines.catalog.stac.collection import collection_document, page_document, root_document
from kfm_pipelines.catalog.stac.item import ANONYMIZED_EXTENSION, history_document, superseded_document
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines_tests.fixtures.catalog.official_schemas import official_validator
from kfm_pipelines_tests.fixtures.catalog.release import (
    COLLECTION,
    DATA_HREF,
    EMPTY,
    EXEMPTED,
    FACTS,
    HERITAGE,
    IN_A_BUCKET,
    KANSAS,
    MASKED,
    NOWHERE,
    OPEN,
    PROVENANCE,
    STREAMFLOW,
    WITH_A_LATE_ONE,
    WITHOUT_PLACES,
    item_of,
    revised,
)

DATASET = STREAMFLOW
DOCUMENTS: dict[str, Callable[[], bytes]] = {
    "item": lambda: item_of(DATASET, FACTS),
    "item of an empty table": lambda: item_of(DATASET, EMPTY),
    "item with a late input": lambda: item_of(DATASET, WITH_A_LATE_ONE),
    "revision with a late input": lambda: revised(item_of(DATASET, WITH_A_LATE_ONE)),
    "item in a bucket": lambda: item_of(DATASET, IN_A_BUCKET),
    "collection": lambda: collection_document(DATASET, COLLECTION),
    "collection with a snapshot": lambda: collection_document(
        DATASET, dataclasses.replace(COLLECTION, has_snapshot=True)
    ),
    "collection of an empty table": lambda: collection_document(DATASET, NOWHERE),
    "item without a place": lambda: item_of(WITHOUT_PLACES, dataclasses.replace(FACTS, bbox=None)),
    "collection without a place": lambda: collection_document(WITHOUT_PLACES, NOWHERE),
    "masked item": lambda: item_of(HERITAGE, dataclasses.replace(FACTS, care=MASKED)),
    "item with all places withheld": lambda: item_of(
        HERITAGE, dataclasses.replace(EMPTY, care=dataclasses.replace(MASKED, uncertainty_m=None))
    ),
    "item under an exemption": lambda: item_of(HERITAGE, dataclasses.replace(FACTS, care=EXEMPTED)),
    "revision": lambda: revised(item_of(DATASET, FACTS)),
    "superseded revision": lambda: superseded_document(json.loads(revised(item_of(DATASET, FACTS))), 3),
    "revision under an exemption": lambda: revised(item_of(HERITAGE, dataclasses.replace(FACTS, care=EXEMPTED))),
    "history": lambda: history_document("usgs-streamflow", FACTS.key, [1, 3]),
    "page": lambda: page_document("usgs-streamflow", "2025/12/04", [], [FACTS.key]),
    "page of pages": lambda: page_document("usgs-streamflow", "2025", ["2025/12"], []),
    "root": lambda: root_document([DATASET]),
    "empty root": lambda: root_document([]),
}


def changed(**fields: Any) -> Dataset:
    return DATASET.model_copy(update=fields)


@pytest.fixture(scope="module")
def official() -> JsonSchemaSTACValidator:
    return official_validator()


@pytest.mark.parametrize("write", DOCUMENTS.values(), ids=list(DOCUMENTS))
def test_every_document_is_reproducible_and_valid_by_the_core_schema(write: Callable[[], bytes]) -> None:
    document = json.loads(write())
    expected = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    assert write() == expected.encode()
    [schema] = validate_dict(document, extensions=[])
    assert f"/v{pystac.get_stac_version()}/" in schema
    assert document["stac_version"] == pystac.get_stac_version()


def test_every_document_is_valid_by_the_schemas_of_its_extensions(official: JsonSchemaSTACValidator) -> None:
    for name, write in DOCUMENTS.items():
        document = json.loads(write())
        assert validate_dict(document, validator=official)[1:] == document.get("stac_extensions", []), name


@pytest.mark.parametrize(
    ("facts", "more"),
    [
        (FACTS, {"projection"}),
        (EMPTY, set()),
        (dataclasses.replace(FACTS, care=EXEMPTED), {"projection", "timestamps"}),
    ],
)
def test_an_item_lists_its_extensions(facts: ReleaseFacts, more: set[str]) -> None:
    extensions = json.loads(item_of(DATASET, facts))["stac_extensions"]
    official = {uri.split("/")[3] for uri in extensions if uri != PROFILE}
    assert official == {"file", "processing", "storage", "table", "version"} | more
    assert PROFILE in extensions


def test_a_masked_item_warns_and_states_its_uncertainty() -> None:
    item = json.loads(item_of(HERITAGE, dataclasses.replace(FACTS, care=MASKED)))
    properties = item["properties"]
    assert ANONYMIZED_EXTENSION in item["stac_extensions"]
    # As far east and west as north and south, where degrees are shortest.
    assert properties["anon:size"] * 111_320 * math.cos(math.radians(40.05)) >= 2 * 10_474
    assert "do not use them to find anything" in properties["anon:warning"]
    assert properties["kfm:labels"] == ["care:ethics", "tk:culturally-sensitive"]
    assert "kfm:exemption" not in properties


def test_an_item_under_an_exemption_names_holder_and_end() -> None:
    properties = json.loads(item_of(HERITAGE, dataclasses.replace(FACTS, care=EXEMPTED)))["properties"]
    assert properties["kfm:exemption"] == {
        "id": "exempt-1", "by": "A reviewer", "until": "2026-12-31", "reason": "for the court"
    }  # fmt: skip
    assert properties["expires"] == "2027-01-01T00:00:00Z"
    assert "anon:warning" not in properties


def test_item_and_collection_carry_the_sovereignty_notice() -> None:
    facts = dataclasses.replace(FACTS, bbox=None, care=dataclasses.replace(OPEN, labels=("bc:provenance",)))
    item = json.loads(item_of(WITHOUT_PLACES, facts))
    collection = json.loads(collection_document(WITHOUT_PLACES, NOWHERE))
    assert WITHOUT_PLACES.sovereignty is not None
    notice = WITHOUT_PLACES.sovereignty.notice
    assert item["properties"]["kfm:sovereignty"]["notice"] == collection["kfm:sovereignty"]["notice"] == notice


def test_the_extension_schemas_refuse_a_wrong_field(official: JsonSchemaSTACValidator) -> None:
    for section, name, value in (("assets", "file:checksum", "no hex"), ("properties", "table:row_count", "many")):
        document = json.loads(item_of(DATASET, FACTS))
        place = document["assets"]["data"] if section == "assets" else document["properties"]
        place[name] = value
        with pytest.raises(STACValidationError):
            validate_dict(document, validator=official)


def test_an_item_describes_its_data() -> None:
    item = json.loads(item_of(DATASET, FACTS))
    asset = item["assets"]["data"]

    assert (item["id"], item["collection"]) == (FACTS.key, "usgs-streamflow")
    assert (item["bbox"], item["geometry"]["type"]) == (list(KANSAS), "Polygon")
    assert (item["properties"]["start_datetime"], item["properties"]["end_datetime"]) == (
        "2025-12-04T00:00:00Z",
        "2025-12-04T01:00:00Z",
    )
    assert (asset["href"], asset["file:size"], asset["file:checksum"]) == (DATA_HREF, 5000, f"1220{'a' * 64}")
    assert item["properties"]["kfm:gates"] == {"schema": "green"}
    assert [column["name"] for column in item["properties"]["table:columns"]] == [c.name for c in DATASET.table.columns]
    assert [link["href"] for link in item["links"] if link["rel"] == "derived_from"] == [FACTS.inputs[0].uri]


def test_an_item_marks_late_inputs() -> None:
    item = json.loads(item_of(DATASET, WITH_A_LATE_ONE))
    assert item["properties"]["kfm:late_inputs"] == 1
    origins = [link for link in item["links"] if link["rel"] == "derived_from"]
    assert [link.get("kfm:late") for link in origins] == [None, True]
    assert "kfm:late" not in item_of(DATASET, FACTS).decode()


def test_an_empty_table_has_no_geometry_and_no_box() -> None:
    item = json.loads(item_of(DATASET, EMPTY))
    assert item["geometry"] is None
    assert "bbox" not in item


def test_a_revision_links_its_neighbours() -> None:
    first = json.loads(revised(item_of(DATASET, FACTS)))
    then = json.loads(superseded_document(first, 4))
    links = {link["rel"]: link["href"] for link in then["links"] if link["rel"] != "derived_from"}
    assert (first["properties"]["version"], "deprecated" in first["properties"]) == ("2", False)
    assert then["properties"]["deprecated"] is True
    assert links["predecessor-version"] == "./1.json"
    assert links["successor-version"] == "./4.json"
    assert links["latest-version"] == f"../../items/{FACTS.key}.json"
    assert links["collection"] == "../../collection.json"
    assert first["assets"]["data"]["href"] == f"../{DATA_HREF}"
    assert first["assets"]["manifest"]["file:checksum"] == f"1220{'e' * 64}"
    assert superseded_document(then, 4) == superseded_document(first, 4)


def test_an_item_from_before_the_profile_has_a_history_too() -> None:
    item = json.loads(item_of(DATASET, FACTS))
    del item["properties"]["providers"]
    with pytest.raises(IntegrityBroken, match="providers"):
        revised(json.dumps(item).encode())
    item["stac_extensions"].remove(PROFILE)
    first = json.loads(revised(json.dumps(item).encode()))
    assert json.loads(superseded_document(first, 3))["properties"]["deprecated"] is True


def test_an_item_names_its_store_without_the_machine() -> None:
    def scheme(facts: ReleaseFacts) -> object:
        return json.loads(item_of(DATASET, facts))["properties"]["storage:schemes"]["store"]

    assert scheme(FACTS) == {"type": "file", "platform": "file:///{folder}"}
    assert scheme(IN_A_BUCKET) == {
        "type": "aws-s3",
        "platform": "https://{bucket}.s3.{region}.amazonaws.com",
        "bucket": "kfm-published",
        "region": "us-east-2",
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 69},
        {"bbox": None},
        {"content_hash": "c" * 64},
        {"inputs_hash": "c" * 64},
        {"care": dataclasses.replace(OPEN, policy="other@1")},
    ],
)
def test_other_facts_are_other_bytes(changes: dict[str, Any]) -> None:
    assert item_of(DATASET, dataclasses.replace(FACTS, **changes)) != item_of(DATASET, FACTS)


def test_another_provenance_is_another_item() -> None:
    other = dataclasses.replace(PROVENANCE, digest="e" * 64)
    assert item_of(DATASET, FACTS, provenance=other) != item_of(DATASET, FACTS)


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (
            lambda: item_of(DATASET, FACTS, data_href=""),
            r"the STAC item .* is not valid at assets/data/href",
        ),
        (
            lambda: collection_document(changed(description=""), COLLECTION),
            "usgs-streamflow is not valid at description",
        ),
        (
            lambda: collection_document(
                changed(licence=DATASET.licence.model_copy(update={"id": "no such licence!"})), COLLECTION
            ),
            "usgs-streamflow is not valid at license",
        ),
        (lambda: root_document([changed(title=5)]), "kansas-frontier-matrix is not valid at links/3"),
    ],
)
def test_an_invalid_document_is_refused_with_its_place(write: Callable[[], bytes], sentence: str) -> None:
    with pytest.raises(IntegrityBroken, match=sentence):
        write()
