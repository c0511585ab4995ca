"""The STAC profile: refuses documents without a mandatory field, and unknown fields under `kfm:`."""

import copy
import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from jsonschema import Draft7Validator

from kfm_pipelines.catalog.documents import Kind, check_document, profile_bytes
from kfm_pipelines.catalog.stac.collection import collection_document
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines_tests.fixtures.catalog.release import (
    COLLECTION,
    EXEMPTED,
    FACTS,
    HERITAGE,
    IN_A_BUCKET,
    MASKED,
    WITHOUT_PLACES,
    item_of,
    revised,
)

Document = dict[str, Any]

SCHEMA = json.loads(profile_bytes())
DEFINED = SCHEMA["definitions"]
ITEM = json.loads(item_of(HERITAGE, dataclasses.replace(FACTS, care=MASKED)))
OPEN_ITEM = json.loads(item_of(WITHOUT_PLACES, FACTS))
UNMASKED = json.loads(item_of(HERITAGE, dataclasses.replace(FACTS, care=EXEMPTED)))
BUCKET = json.loads(item_of(WITHOUT_PLACES, IN_A_BUCKET))
REVISION = json.loads(revised(item_of(HERITAGE, FACTS)))
THE_COLLECTION = json.loads(collection_document(WITHOUT_PLACES, COLLECTION))


def _without(document: Document, *place: str | int) -> Document:
    changed = copy.deepcopy(document)
    inner: Any = changed
    for part in place[:-1]:
        inner = inner[part]
    del inner[place[-1]]
    return changed


def _with(document: Document, value: object, *place: str | int) -> Document:
    changed = copy.deepcopy(document)
    inner: Any = changed
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    return changed


def _without_link(document: Document, relation: str) -> Document:
    return {**document, "links": [link for link in document["links"] if link["rel"] != relation]}


Place = tuple[str | int, ...]
LINEAGE = DEFINED["collection"]["properties"]["kfm:lineage"]["required"]
STORE: Place = ("properties", "storage:schemes", "store")
# Mandatory fields by place.
DEMANDED: list[tuple[Document, Place, Sequence[str]]] = [
    (ITEM, ("properties",), DEFINED["item_fields"]["required"]),
    (ITEM, ("properties",), DEFINED["processing"]["required"]),
    (ITEM, ("properties",), ["anon:size", "anon:warning", "proj:bbox", "proj:code", "kfm:authority"]),
    (ITEM, ("properties", "table:columns", 0), ["name", "type", "description"]),
    (ITEM, ("assets",), ["data", "provenance"]),
    (ITEM, ("assets", "data"), [*DEFINED["file"]["required"], "storage:refs"]),
    (BUCKET, STORE, ["bucket", "region", "platform"]),
    (OPEN_ITEM, ("properties", "kfm:sovereignty"), ["nations", "notice"]),
    (UNMASKED, ("properties",), ["expires"]),
    (UNMASKED, ("properties", "kfm:exemption"), ["id", "by", "until", "reason"]),
    (REVISION, ("properties",), ["published"]),
    (THE_COLLECTION, (), DEFINED["collection"]["required"]),
    (THE_COLLECTION, ("kfm:totals",), ["items", "rows", "bytes"]),
    (THE_COLLECTION, ("kfm:lineage",), LINEAGE),
    (THE_COLLECTION, ("kfm:qa",), ["status", "keys_with_errors"]),
    (THE_COLLECTION, ("summaries",), ["kfm:transform_version", "kfm:gates"]),
]
# Fields that must not be there, or must have another value.
WRONG: list[tuple[Document, Place, object]] = [
    (ITEM, ("kfm:other",), "something"),
    (ITEM, ("properties", "kfm:other"), "something"),
    (ITEM, ("assets", "data", "kfm:other"), "something"),
    (ITEM, ("links", 0, "kfm:other"), "something"),
    (REVISION, ("properties", "kfm:other"), "something"),
    (THE_COLLECTION, ("kfm:other",), "something"),
    (THE_COLLECTION, ("summaries", "kfm:other"), "something"),
    (ITEM, ("properties", "kfm:key"), "no key"),
    (ITEM, ("properties", "kfm:dataset"), "nothing"),
    (ITEM, ("properties", "kfm:inputs_hash"), "ab"),
    (ITEM, ("properties", "kfm:late_inputs"), 0),
    (ITEM, ("properties", "kfm:coordinates"), ["longitude"]),
    (ITEM, ("links", -1, "kfm:late"), False),
    (ITEM, ("properties", "kfm:policy"), "unversioned"),
    (ITEM, ("properties", "kfm:gates"), {"schema": "red"}),
    (ITEM, ("properties", "anon:size"), 0),
    (ITEM, ("properties", "proj:code"), "EPSG:3857"),
    (ITEM, ("properties", "published"), "2025-12-04T00:00:00Z"),
    (ITEM, ("properties", "deprecated"), True),
    (ITEM, ("assets", "data", "href"), "/home/somebody/data.parquet"),
    (ITEM, ("assets", "data", "file:checksum"), "ab" * 34),
    (ITEM, ("stac_extensions",), ITEM["stac_extensions"][:-1]),
    (ITEM, STORE, {"type": "file", "platform": "file:///data/kfm"}),
    (REVISION, ("properties", "kfm:revision"), 0),
    (REVISION, ("properties", "version"), "v1-0-0"),
]
LINKS = [
    *((ITEM, relation) for relation in ("root", "parent", "collection", "license", "version-history")),
    (REVISION, "latest-version"),
]


def _mutations() -> Iterator[tuple[str, Document]]:
    """One invalid document for every mandatory field, wrong value and missing link."""
    for document, place, names in DEMANDED:
        for name in names:
            yield f"{document['type']} without {'/'.join(map(str, (*place, name)))}", _without(document, *place, name)
    for document, place, value in WRONG:
        yield f"{document['type']} with {'/'.join(map(str, place))} {value}", _with(document, value, *place)
    for document, relation in LINKS:
        yield f"no link {relation}", _without_link(document, relation)


MUTATIONS = dict(_mutations())


def _kind(document: Document) -> Kind:
    return "collection" if document["type"] == "Collection" else "item"


def test_every_document_that_breaks_the_profile_is_refused() -> None:
    refusals = {name: _refusal(wrong) for name, wrong in MUTATIONS.items()}
    expected = re.compile(r"the STAC (item|collection) .* is not valid at ")
    assert [name for name, text in refusals.items() if not expected.match(text)] == []
    assert len(MUTATIONS) > 80


def _refusal(document: Document) -> str:
    try:
        check_document(_kind(document), document)
    except IntegrityBroken as error:
        return str(error)
    return ""


def test_the_originals_of_the_mutations_are_valid() -> None:
    for document in (ITEM, OPEN_ITEM, UNMASKED, BUCKET, REVISION, THE_COLLECTION):
        check_document(_kind(document), document)


def test_the_profile_is_a_json_schema_and_names_itself() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"] in ITEM["stac_extensions"]
    assert SCHEMA["$id"] == SCHEMA["properties"]["stac_extensions"]["contains"]["const"]


def test_the_place_of_a_mistake_is_named() -> None:
    with pytest.raises(IntegrityBroken, match="is not valid at properties/kfm:policy"):
        check_document("item", _with(ITEM, "unversioned", "properties", "kfm:policy"))
