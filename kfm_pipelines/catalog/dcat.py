"""DCAT-US 3 as JSON-LD. Addresses are relative to the document, so that a store can be moved or copied."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kfm_pipelines.catalog.documents import document_bytes
from kfm_pipelines.catalog.stac.item import PARQUET, ROOT_TITLE, title_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.identity import BBox, union
from kfm_pipelines.state.revisions import PublishedKey
from kfm_pipelines.stores import Layout

CONTEXT = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dcterms": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "spdx": "http://spdx.org/rdf/terms#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "geo": "http://www.opengis.net/ont/geosparql#",
    "media": "https://www.iana.org/assignments/media-types/",
    "kfm": "urn:kfm:",
}
_CADENCES = {"hourly": "PT1H", "daily": "P1D", "weekly": "P1W", "monthly": "P1M", "yearly": "P1Y"}
_WINDOWS = {"hour": "PT1H", "day": "P1D", "week": "P1W", "month": "P1M", "year": "P1Y"}
_DCAT_US = ("https://resources.data.gov/dcat-us/3.0.0", "DCAT-US 3.0")
_STAC = ("https://github.com/radiantearth/stac-spec/tree/v1.1.0", "SpatioTemporal Asset Catalog 1.1.0")
_GEOPARQUET = ("https://geoparquet.org/releases/v1.1.0", "GeoParquet 1.1.0")
Node = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Series:
    dataset: Dataset
    policy: str
    masked: bool
    starts: datetime
    ends: datetime
    bbox: BBox | None
    snapshot: str | None = None  # address of the stac-geoparquet table, relative to the catalog


def catalog_dcat(published: Iterable[Series]) -> bytes:
    """`catalog/dcat.jsonld`."""
    catalog = {
        "@context": CONTEXT,
        "@id": "kfm:catalog",
        "@type": "dcat:Catalog",
        "dcterms:title": ROOT_TITLE,
        "dcterms:description": "Everything KFM Pipelines has published.",
        "dcterms:identifier": "kansas-frontier-matrix",
        "dcterms:publisher": _organisation(ROOT_TITLE),
        "dcterms:language": "en",
        "dcterms:conformsTo": _standard(_DCAT_US),
        "dcat:dataset": [_series(one) for one in published],
    }
    return document_bytes(catalog)


def page_dcat(series: Series, page: str, files: Sequence[PublishedKey]) -> bytes:
    """`catalog/{pipeline}/by-time/{page}/dcat.jsonld`: the files of one stretch of time, such as 2025/12/04."""
    up = "../" * (page.count("/") + 4)  # by-time, the pipeline and the catalog are above the page
    dataset = series.dataset
    ordered = sorted(files, key=lambda one: one.key)
    slice_ = {
        **_common_fields(dataset, series.policy, masked=series.masked),
        "@context": CONTEXT,
        "@id": f"{_dataset_id(dataset)}/{page}",
        "@type": "dcat:Dataset",
        "dcterms:title": f"{dataset.title}, {page.replace('/', '-')}",
        "dcterms:identifier": f"{dataset.dataset}/{page}",
        "dcterms:temporal": _period(min(one.window_start for one in ordered), max(one.window_end for one in ordered)),
        "dcat:inSeries": {"@id": _dataset_id(dataset)},
        "dcat:distribution": [_file_distribution(dataset, one, up) for one in ordered],
    }
    box = union(one.bbox for one in ordered)
    if box:
        slice_["dcterms:spatial"] = _location(box)
    return document_bytes(slice_)


def _series(series: Series) -> Node:
    dataset, window = series.dataset, _WINDOWS[series.dataset.key.window]
    cadence = _CADENCES.get(dataset.tags.get("cadence", ""), window)  # a weekly map may be valid for one day
    box = series.bbox or (dataset.extent.box if dataset.extent else None)
    return {
        **_common_fields(dataset, series.policy, masked=series.masked),
        "@id": _dataset_id(dataset),
        "@type": ["dcat:Dataset", "dcat:DatasetSeries"],
        "dcterms:title": dataset.title,
        "dcterms:identifier": dataset.dataset,
        "dcterms:accrualPeriodicity": f"R/{cadence}",
        "dcat:temporalResolution": {"@type": "xsd:duration", "@value": window},
        "dcterms:temporal": _period(series.starts, series.ends),
        **({"dcterms:spatial": _location(box)} if box else {}),
        "dcat:version": dataset.key.transform_version,
        "dcat:distribution": _distributions(series),
    }


def _common_fields(dataset: Dataset, policy: str, *, masked: bool) -> Node:
    producers = [one for one in dataset.providers if "producer" in one.roles]
    publisher = next((one for one in dataset.providers if {"host", "processor"} & set(one.roles)), None)
    warning = f"; places are masked under policy {policy}, and are not where things are"
    fields: Node = {
        "dcterms:description": dataset.description,
        "dcterms:publisher": _organisation(publisher.name, publisher.url) if publisher else _organisation(ROOT_TITLE),
        "dcterms:creator": [_organisation(one.name, one.url) for one in producers],
        "dcat:contactPoint": _contact(dataset),
        "dcterms:license": {"@id": dataset.licence.url},
        "dcterms:accessRights": _rights_statement(f"public{warning if masked else ''}"),
        "dcat:keyword": sorted(set(dataset.tags.values())),
        "dcterms:conformsTo": [_standard(_STAC)],
    }
    if "domain" in dataset.tags:
        theme = dataset.tags["domain"]
        fields["dcat:theme"] = {"@id": f"kfm:theme:{theme}", "@type": "skos:Concept", "skos:prefLabel": theme}
    if dataset.sovereignty:
        notice = f"{dataset.sovereignty.nations}. {dataset.sovereignty.notice}"
        fields["dcterms:rights"] = _rights_statement(notice)
    return fields


def _rights_statement(label: str) -> Node:
    return {"@type": "dcterms:RightsStatement", "rdfs:label": label}


def _distributions(series: Series) -> list[Node]:
    dataset, pipeline = series.dataset, series.dataset.pipeline
    collection = {
        **_distribution(dataset, "STAC Collection", "application/json"),
        "dcat:accessURL": {"@id": f"./{pipeline}/collection.json"},
        "dcterms:conformsTo": _standard(_STAC),
    }
    folder = {
        **_distribution(dataset, "Current revision of every key, one file each", PARQUET),
        "dcat:accessURL": {"@id": f"../processed/{pipeline}/"},
    }
    if dataset.table.geometry_column:
        folder["dcterms:conformsTo"] = _standard(_GEOPARQUET)
    if series.snapshot is None:
        return [collection, folder]
    snapshot = {
        **_distribution(dataset, "All items as one table (stac-geoparquet)", PARQUET),
        "dcat:downloadURL": {"@id": series.snapshot},
        "dcterms:conformsTo": _standard(_GEOPARQUET),
    }
    return [collection, folder, snapshot]


def _file_distribution(dataset: Dataset, one: PublishedKey, up: str) -> Node:
    return {
        **_distribution(dataset, title_of(dataset, one.key), PARQUET),
        "@id": f"kfm:distribution:{one.key}",
        "dcterms:identifier": one.key,
        "dcterms:temporal": _period(one.window_start, one.window_end),
        "dcat:accessURL": {"@id": f"{up}catalog/{dataset.pipeline}/items/{one.key}.json"},
        "dcat:downloadURL": {"@id": f"{up}{Layout(dataset.pipeline).content(one.content_hash)}"},
        "dcat:byteSize": {"@type": "xsd:nonNegativeInteger", "@value": str(one.bytes)},
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": {"@id": "spdx:checksumAlgorithm_sha256"},
            "spdx:checksumValue": {"@type": "xsd:hexBinary", "@value": one.content_hash},
        },
    }


def _distribution(dataset: Dataset, title: str, media_type: str) -> Node:
    return {
        "@type": "dcat:Distribution",
        "dcterms:title": title,
        "dcterms:license": {"@id": dataset.licence.url},
        "dcat:mediaType": {"@id": f"media:{media_type}"},
    }


def _contact(dataset: Dataset) -> Node:
    """Names the first team and the first email address among the owners, as DCAT-US requires."""
    team = next((owner.removeprefix("team:") for owner in dataset.owners if owner.startswith("team:")), None)
    address = next((owner for owner in dataset.owners if "@" in owner), None)
    return {
        "@type": "vcard:Kind",
        "vcard:fn": f"{ROOT_TITLE}, {team}" if team else str(address),
        **({"vcard:hasEmail": {"@id": f"mailto:{address}"}} if address else {}),
    }


def _organisation(name: str, url: str | None = None) -> Node:
    homepage = {"foaf:homepage": {"@id": url}} if url else {}
    return {"@type": ["foaf:Agent", "foaf:Organization"], "foaf:name": name, **homepage}


def _standard(standard: tuple[str, str]) -> Node:
    return {"@id": standard[0], "@type": "dcterms:Standard", "dcterms:title": standard[1]}


def _period(starts: datetime, ends: datetime) -> Node:
    return {
        "@type": "dcterms:PeriodOfTime",
        "dcat:startDate": {"@type": "xsd:dateTime", "@value": f"{starts:%Y-%m-%dT%H:%M:%SZ}"},
        "dcat:endDate": {"@type": "xsd:dateTime", "@value": f"{ends:%Y-%m-%dT%H:%M:%SZ}"},
    }


def _location(box: BBox) -> Node:
    west, south, east, north = box
    ring = ", ".join(f"{x} {y}" for x, y in ((west, south), (east, south), (east, north), (west, north), (west, south)))
    return {"@type": "dcterms:Location", "dcat:bbox": {"@type": "geo:wktLiteral", "@value": f"POLYGON(({ring}))"}}


def _dataset_id(dataset: Dataset) -> str:
    return f"kfm:dataset:{dataset.dataset}"
