"""STAC 1.1: the Item of a key, which is the same for the same data, and its history with an Item for each revision."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from kfm_pipelines.catalog.documents import PROFILE, checksum, source_href, stac_bytes
from kfm_pipelines.catalog.facts import (
    ATTESTATION,
    MANIFEST,
    SBOM,
    CareFacts,
    DocumentFacts,
    ReleaseFacts,
    StorageFacts,
)
from kfm_pipelines.data_files import Attachments
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.identity import BBox
from kfm_pipelines.events import member_of_key

_EXTENSIONS_URL = "https://stac-extensions.github.io"
ANONYMIZED_EXTENSION = f"{_EXTENSIONS_URL}/anonymized-location/v1.0.0/schema.json"
FILE_EXTENSION = f"{_EXTENSIONS_URL}/file/v2.1.0/schema.json"
PROCESSING_EXTENSION = f"{_EXTENSIONS_URL}/processing/v1.2.0/schema.json"
PROJECTION_EXTENSION = f"{_EXTENSIONS_URL}/projection/v2.0.0/schema.json"
STORAGE_EXTENSION = f"{_EXTENSIONS_URL}/storage/v2.0.0/schema.json"
TABLE_EXTENSION = f"{_EXTENSIONS_URL}/table/v1.2.0/schema.json"
TIMESTAMPS_EXTENSION = f"{_EXTENSIONS_URL}/timestamps/v1.1.0/schema.json"
VERSION_EXTENSION = f"{_EXTENSIONS_URL}/version/v1.2.0/schema.json"
JSON, GEOJSON, PARQUET = "application/json", "application/geo+json", "application/vnd.apache.parquet"
ROOT_TITLE = "Kansas Frontier Matrix"
PROVENANCE_TITLE = "What was done to the data under its policy (PROV-O)"
STORE, PROVIDER = "store", "provider"  # names of storage schemes: ours, and that of assets which stay where they are
S3_PLATFORM = "https://{bucket}.s3.{region}.amazonaws.com"
REFERENCE_SYSTEM = "EPSG:4326"  # of every published table; the schema gate checks it
# The records of a revision: name, title and media type of their assets.
# Extensions whose fields only some Items have, by the prefix of these fields.
_OPTIONAL_EXTENSIONS = {
    prefix: f"{_EXTENSIONS_URL}/{prefix}/{version}/schema.json"
    for prefix, version in {
        "eo": "v2.0.0",
        "landsat": "v2.0.0",
        "raster": "v2.0.0",
        "sat": "v1.2.0",
        "view": "v1.1.0",
    }.items()
}
RECORDS: Mapping[str, tuple[str, str, str]] = {
    MANIFEST: ("manifest", "What it was made from, by which software, under which rules", JSON),
    ATTESTATION: ("attestation", "Signed statement of how it was made (SLSA, DSSE)", "application/vnd.dsse+json"),
    SBOM: ("sbom", "All software that was installed", "application/vnd.cyclonedx+json"),
}
# Characters of a window's label that name its page: hours are on a page of their day, days on one of their month.
_PAGE_LENGTHS = {
    len("2025-12-04T00Z"): len("2025-12-04"),
    len("2025-12-04"): len("2025-12"),
    **dict.fromkeys((len("2025-12"), len("2025-W49"), len("2025")), len("2025")),
}


def item_document(
    dataset: Dataset,
    facts: ReleaseFacts,
    data: DocumentFacts,
    provenance: DocumentFacts,
    files: Mapping[str, DocumentFacts],
) -> bytes:
    """Mentions nothing of earlier revisions, so the same inputs give the same Item. `files` are those beside the data,
    by their names as assets."""
    import pystac

    item = pystac.Item(
        id=facts.key,
        geometry=_rectangle(facts.bbox),
        bbox=list(facts.bbox) if facts.bbox else None,
        datetime=None,
        start_datetime=facts.window_start,
        end_datetime=facts.window_end,
        properties=_properties(dataset, facts),
        stac_extensions=[
            FILE_EXTENSION,
            PROCESSING_EXTENSION,
            *([PROJECTION_EXTENSION] if facts.bbox else []),
            STORAGE_EXTENSION,
            TABLE_EXTENSION,
            VERSION_EXTENSION,
            *_extensions_of(facts.attachments),
            *([ANONYMIZED_EXTENSION] if facts.care.masked else []),
            *([TIMESTAMPS_EXTENSION] if facts.care.exemption else []),
            PROFILE,
        ],
    )
    document = item.to_dict(include_self_link=False, transform_hrefs=False)
    documented = _asset(provenance, PROVENANCE_TITLE, "application/ld+json", "metadata", "provenance")
    stored = {
        "data": _asset(data, dataset.title, PARQUET, "data"),
        **{
            one.name: {**_asset(files[one.name], one.title, one.media_type, *one.roles), **one.properties}
            for one in facts.attachments.files
        },
        "provenance": documented,
    }
    document |= {
        "collection": dataset.pipeline,
        "assets": {
            **{name: {**asset, "storage:refs": [STORE]} for name, asset in stored.items()},
            **{name: {**asset, "storage:refs": [PROVIDER]} for name, asset in facts.attachments.remote.items()},
        },
        "links": _links(dataset, facts),
    }
    return stac_bytes("item", document)


def revision_document(
    item: Mapping[str, Any],
    revision: int,
    published: datetime,
    records: Mapping[str, DocumentFacts],
    predecessor: int | None,
) -> bytes:
    key, extensions = item["id"], item["stac_extensions"]
    assets = {name: {**asset, "href": _href_from_child(asset["href"])} for name, asset in item["assets"].items()}
    for record, facts in records.items():
        name, title, media_type = RECORDS[record]
        assets[name] = _asset(facts, title, media_type, "metadata")
    replaced = ("parent", "version-history")
    document = {
        **item,
        "id": f"{key}@{revision}",
        "stac_extensions": list(dict.fromkeys([*extensions, TIMESTAMPS_EXTENSION])),
        "properties": {
            **item["properties"],
            "version": str(revision),
            "published": published.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "kfm:revision": revision,
        },
        "assets": assets,
        "links": [
            *({**one, "href": _href_from_child(one["href"])} for one in item["links"] if one["rel"] not in replaced),
            *(link(relation, f"../{key}.json") for relation in replaced),
            link("latest-version", f"../../items/{key}.json", media_type=GEOJSON),
            *([link("predecessor-version", f"./{predecessor}.json", media_type=GEOJSON)] if predecessor else []),
        ],
    }
    return _revision_bytes(document)


def superseded_document(document: Mapping[str, Any], successor: int) -> bytes:
    links = [one for one in document["links"] if one["rel"] != "successor-version"]
    changed = {
        **document,
        "properties": {**document["properties"], "deprecated": True},
        "links": [*links, link("successor-version", f"./{successor}.json", media_type=GEOJSON)],
    }
    return _revision_bytes(changed)


def history_document(pipeline: str, key: str, revisions: Sequence[int]) -> bytes:
    links = [
        link("root", "../../catalog.json"),
        link("parent", "../collection.json", pipeline),
        link("latest-version", f"../items/{key}.json", media_type=GEOJSON),
        *(link("item", f"./{key}/{one}.json", f"revision {one}", media_type=GEOJSON) for one in sorted(revisions)),
    ]
    description = f"Every revision of {key} that may be seen, the current one last."
    return catalog_bytes(f"{key}-history", f"Revisions of {key}", description, links)


def catalog_bytes(identifier: str, title: str, description: str, links: Sequence[Mapping[str, str]]) -> bytes:
    import pystac

    document = {"type": "Catalog", "stac_version": pystac.get_stac_version(), "id": identifier, "title": title}
    return stac_bytes("catalog", {**document, "description": description, "links": links})


def link(relation: str, href: str, title: str | None = None, media_type: str = JSON) -> dict[str, str]:
    return {"rel": relation, "href": href, "type": media_type} | ({"title": title} if title else {})


def page_of(key: str) -> str:
    """Returns the page that links this key: `2025/12/04`, `2025/12` or `2025`."""
    label = key.split(":")[3]
    return label[: _PAGE_LENGTHS[len(label)]].replace("-", "/")


def title_of(dataset: Dataset, key: str) -> str:
    """Returns the title of a key's release: that of its dataset, its window, and its tile or county if it has one."""
    member = member_of_key(dataset, key)
    return f"{dataset.title}, {key.split(':')[3]}{f', {member}' if member else ''}"


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


def _links(dataset: Dataset, facts: ReleaseFacts) -> list[dict[str, Any]]:
    page = page_of(facts.key)
    sources: list[dict[str, Any]] = [
        {"rel": "derived_from", "href": source_href(one.uri)}
        | ({"kfm:object_version": one.version} if one.version else {})
        | ({"kfm:late": True} if one.late else {})
        for one in facts.inputs
    ]
    return [
        link("root", "../../catalog.json", ROOT_TITLE),
        link("parent", f"../by-time/{page}/catalog.json", page.replace("/", "-")),
        link("collection", "../collection.json", dataset.title),
        link("version-history", f"../history/{facts.key}.json", "All revisions"),
        {"rel": "license", "href": dataset.licence.url},
        *sources,
    ]


def _properties(dataset: Dataset, facts: ReleaseFacts) -> dict[str, Any]:
    table, late = facts.table, sum(one.late for one in facts.inputs)
    return {
        "title": title_of(dataset, facts.key),
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
        **_places_of(table),
        **({"proj:code": REFERENCE_SYSTEM, "proj:bbox": list(facts.bbox)} if facts.bbox else {}),
        "storage:schemes": _storage_schemes(dataset, facts),
        **_processing(dataset, facts),
        **_care_properties(dataset, facts.care),
        **facts.attachments.properties,
    }


def _places_of(table: Table) -> dict[str, Any]:
    """Returns which columns hold the places of the rows."""
    if table.geometry_column:
        return {"table:primary_geometry": table.geometry_column}
    return {"kfm:coordinates": [table.longitude_column, table.latitude_column]} if table.longitude_column else {}


def _extensions_of(attachments: Attachments) -> list[str]:
    """Returns the extensions that define fields of the attachments, wherever in them these are."""
    assets = [*(one.properties for one in attachments.files), *attachments.remote.values()]
    described = [attachments.properties, *assets, *(band for one in assets for band in one.get("bands", []))]
    prefixes = {name.partition(":")[0] for one in described for name in one}
    return [url for prefix, url in _OPTIONAL_EXTENSIONS.items() if prefix in prefixes]


def _processing(dataset: Dataset, facts: ReleaseFacts) -> dict[str, Any]:
    facility = next((one.name for one in dataset.providers if "processor" in one.roles), None)
    made = f"transformed by {dataset.transform}" if dataset.transform else "read as one table"
    what = f"releases of {dataset.input.location}" if dataset.input.upstream else "objects"
    return {
        "processing:software": {"kfm-pipelines": facts.environment.kfm},
        "processing:lineage": f"{len(facts.inputs)} {what} {made}, released under policy {facts.care.policy}",
        "processing:expression": {
            "format": "kfm-transform",
            "expression": f"{dataset.transform or dataset.processor}@{dataset.key.transform_version}",
        },
        **({"processing:facility": facility} if facility else {}),
    }


def _storage_scheme(storage: StorageFacts) -> dict[str, Any]:
    """Describes the store without the machine: a folder may be anywhere."""
    if storage.bucket is None:
        return {"type": "file", "platform": "file:///{folder}"}
    return {"type": "aws-s3", "platform": S3_PLATFORM, "bucket": storage.bucket, "region": storage.region}


def _storage_schemes(dataset: Dataset, facts: ReleaseFacts) -> dict[str, dict[str, Any]]:
    """Describes our store, and where assets are that stay with their provider, and who pays for reading them."""
    schemes = {STORE: _storage_scheme(facts.storage)}
    if not facts.attachments.remote:
        return schemes
    feed = dataset.input.provider
    scheme = {"type": "aws-s3", "platform": S3_PLATFORM, "bucket": dataset.input.bucket}
    region = {"region": feed.region} if feed and feed.region else {}
    return {**schemes, PROVIDER: {**scheme, **region, "requester_pays": bool(feed and feed.requester_pays)}}


def _care_properties(dataset: Dataset, care: CareFacts) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    if care.labels:
        properties |= {"kfm:labels": list(care.labels), "kfm:authority": care.authority}
    if dataset.sovereignty:
        properties["kfm:sovereignty"] = dataset.sovereignty.model_dump()
    if care.masked:
        properties |= {"anon:size": care.box_degrees, "anon:warning": care.warning}
    if (granted := care.exemption) is not None:
        after = date.fromisoformat(granted.until) + timedelta(days=1)  # it holds until the end of that day
        exemption = {"id": granted.id, "by": granted.holder, "until": granted.until, "reason": granted.reason}
        properties |= {"expires": f"{after.isoformat()}T00:00:00Z", "kfm:exemption": exemption}
    return properties


def _asset(file: DocumentFacts, title: str, media_type: str, *roles: str) -> dict[str, Any]:
    described = {"href": file.href, "title": title, "type": media_type, "roles": list(roles)}
    return {**described, "file:size": file.size, "file:checksum": checksum(file.digest)}


def _revision_bytes(document: Mapping[str, Any]) -> bytes:
    return stac_bytes("item", document, profiled=PROFILE in document["stac_extensions"])


def _href_from_child(href: str) -> str:
    """Rewrites a relative address for a document one folder further down."""
    return f"../{href}" if href.startswith("../") else href


def _rectangle(bbox: BBox | None) -> dict[str, Any] | None:
    if bbox is None:
        return None
    west, south, east, north = bbox
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [ring]}
