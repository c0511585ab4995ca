"""STAC 1.1: the Item of a key.

Nothing here knows the time of day: a document says what the data is, so the same data has the same document.
"""

from datetime import date, timedelta
from typing import Any

from kfm_pipelines.catalog.documents import checksum, document_bytes
from kfm_pipelines.catalog.facts import CareFacts, DocumentFacts, InputFacts, ReleaseFacts, StorageFacts
from kfm_pipelines.catalog.stac.pages import page_of
from kfm_pipelines.catalog.stac.profile import PROFILE, check_document
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.identity import BBox

_EXTENSIONS_URL = "https://stac-extensions.github.io"
ANONYMIZED_EXTENSION = f"{_EXTENSIONS_URL}/anonymized-location/v1.0.0/schema.json"
FILE_EXTENSION = f"{_EXTENSIONS_URL}/file/v2.1.0/schema.json"
PROCESSING_EXTENSION = f"{_EXTENSIONS_URL}/processing/v1.2.0/schema.json"
PROJECTION_EXTENSION = f"{_EXTENSIONS_URL}/projection/v2.0.0/schema.json"
STORAGE_EXTENSION = f"{_EXTENSIONS_URL}/storage/v2.0.0/schema.json"
TABLE_EXTENSION = f"{_EXTENSIONS_URL}/table/v1.2.0/schema.json"
TIMESTAMPS_EXTENSION = f"{_EXTENSIONS_URL}/timestamps/v1.1.0/schema.json"
VERSION_EXTENSION = f"{_EXTENSIONS_URL}/version/v1.2.0/schema.json"
PARQUET = "application/vnd.apache.parquet"
ROOT_TITLE = "Kansas Frontier Matrix"
PROVENANCE_TITLE = "What was done to the data under its policy (PROV-O)"
STORE = "store"  # what an Item calls the one place where all its files are
REFERENCE_SYSTEM = "EPSG:4326"  # of every table that is published, see the gate of that name


def item_document(dataset: Dataset, facts: ReleaseFacts, data: DocumentFacts, provenance: DocumentFacts) -> bytes:
    """Says nothing of what came before: whoever has the same inputs has the same Item."""
    import pystac

    item = pystac.Item(
        id=facts.key,
        geometry=_rectangle(facts.bbox),
        bbox=list(facts.bbox) if facts.bbox else None,
        datetime=None,
        start_datetime=facts.window_start,
        end_datetime=facts.window_end,
        properties=_properties(dataset, facts),
        stac_extensions=_extensions(facts),
    )
    document = item.to_dict(include_self_link=False, transform_hrefs=False)
    document |= {
        "collection": dataset.pipeline,
        "assets": {
            "data": _asset(data, dataset.title, PARQUET, ["data"]),
            "provenance": _asset(provenance, PROVENANCE_TITLE, "application/ld+json", ["metadata", "provenance"]),
        },
        "links": _links(dataset, facts),
    }
    check_document("item", document)
    return document_bytes(document)


def providers_of(dataset: Dataset) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "roles": list(one.roles)} | ({"url": one.url} if one.url else {})
        for one in dataset.providers
    ]


def table_columns(table: Table) -> list[dict[str, str]]:
    return [
        {"name": column.name, "type": column.type, "description": column.description}
        | ({"unit": column.unit} if column.unit else {})
        for column in table.columns
    ]


def _extensions(facts: ReleaseFacts) -> list[str]:
    return [
        FILE_EXTENSION,
        PROCESSING_EXTENSION,
        *([PROJECTION_EXTENSION] if facts.bbox else []),
        STORAGE_EXTENSION,
        TABLE_EXTENSION,
        VERSION_EXTENSION,
        *([ANONYMIZED_EXTENSION] if facts.care.masked else []),
        *([TIMESTAMPS_EXTENSION] if facts.care.exemption else []),
        PROFILE,
    ]


def _links(dataset: Dataset, facts: ReleaseFacts) -> list[dict[str, Any]]:
    page, json_type = page_of(facts.key), "application/json"
    when = page.replace("/", "-")
    return [
        {"rel": "root", "href": "../../catalog.json", "type": json_type, "title": ROOT_TITLE},
        {"rel": "parent", "href": f"../by-time/{page}/catalog.json", "type": json_type, "title": when},
        {"rel": "collection", "href": "../collection.json", "type": json_type, "title": dataset.title},
        {"rel": "version-history", "href": f"../history/{facts.key}.json", "type": json_type, "title": "All revisions"},
        {"rel": "license", "href": dataset.licence.url},
        *(_derived_from_link(one) for one in facts.inputs),
    ]


def _derived_from_link(one: InputFacts) -> dict[str, Any]:
    version = {"kfm:object_version": one.version} if one.version else {}
    return {"rel": "derived_from", "href": one.uri, **version, **({"kfm:late": True} if one.late else {})}


def _properties(dataset: Dataset, facts: ReleaseFacts) -> dict[str, Any]:
    table, late = facts.table, sum(one.late for one in facts.inputs)
    return {
        "title": f"{dataset.title}, {facts.key.split(':')[3]}",
        "license": dataset.licence.id,
        "providers": providers_of(dataset),
        "version": f"{dataset.key.transform_version}+{facts.inputs_hash[:12]}",
        "kfm:key": facts.key,
        "kfm:dataset": dataset.dataset,
        "kfm:transform_version": dataset.key.transform_version,
        "kfm:inputs_hash": facts.inputs_hash,
        **({"kfm:late_inputs": late} if late else {}),
        "kfm:policy": facts.care.policy,
        "kfm:gates": dict.fromkeys(facts.gates, "green"),
        "table:row_count": facts.rows,
        "table:columns": table_columns(table),
        **({"table:primary_geometry": table.geometry_column} if table.geometry_column else {}),
        **({"proj:code": REFERENCE_SYSTEM, "proj:bbox": list(facts.bbox)} if facts.bbox else {}),
        "storage:schemes": {STORE: _storage_scheme(facts.storage)},
        **_processing(dataset, facts),
        **_care_properties(dataset, facts.care),
    }


def _processing(dataset: Dataset, facts: ReleaseFacts) -> dict[str, Any]:
    """How the table came about, in words and by name. Only a processor can be a facility."""
    facility = next((one.name for one in dataset.providers if "processor" in one.roles), None)
    made = f"transformed by {dataset.transform}" if dataset.transform else "read as one table"
    return {
        "processing:software": {"kfm-pipelines": facts.environment.kfm},
        "processing:lineage": f"{len(facts.inputs)} objects {made}, released under policy {facts.care.policy}",
        "processing:expression": {
            "format": "kfm-transform",
            "expression": f"{dataset.transform or dataset.processor}@{dataset.key.transform_version}",
        },
        **({"processing:facility": facility} if facility else {}),
    }


def _storage_scheme(storage: StorageFacts) -> dict[str, Any]:
    """Where the files are, as far as that is the same for whoever reads them: a folder may be anywhere."""
    if storage.bucket is None:
        return {"type": "file", "platform": "file:///{folder}"}
    return {
        "type": "aws-s3",
        "platform": "https://{bucket}.s3.{region}.amazonaws.com",
        "bucket": storage.bucket,
        "region": storage.region,
    }


def _care_properties(dataset: Dataset, care: CareFacts) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    if care.labels:
        properties["kfm:labels"] = list(care.labels)
        properties["kfm:authority"] = care.authority
    if dataset.sovereignty:
        properties["kfm:sovereignty"] = dataset.sovereignty.model_dump()
    if care.masked:
        properties |= {"anon:size": care.box_degrees, "anon:warning": care.warning}
    if care.exemption:
        after = date.fromisoformat(care.exemption.until) + timedelta(days=1)  # it holds all that day
        properties |= {
            "expires": f"{after.isoformat()}T00:00:00Z",
            "kfm:exemption": {
                "id": care.exemption.id,
                "by": care.exemption.holder,
                "until": care.exemption.until,
                "reason": care.exemption.reason,
            },
        }
    return properties


def _asset(file: DocumentFacts, title: str, kind: str, roles: list[str]) -> dict[str, Any]:
    return {
        "href": file.href,
        "title": title,
        "type": kind,
        "roles": roles,
        "file:size": file.size,
        "file:checksum": checksum(file.digest),
        "storage:refs": [STORE],
    }


def _rectangle(bbox: BBox | None) -> dict[str, Any] | None:
    if bbox is None:
        return None
    west, south, east, north = bbox
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [ring]}
