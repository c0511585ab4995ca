"""STAC 1.1: the Item of a key, the Collection of a dataset, the root Catalog.

Nothing here knows the time of day: a document says what the data is, so the same data has the same document.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from kfm_pipelines.catalogs.care_facts import CareFacts
from kfm_pipelines.catalogs.documents import checksum, document_bytes
from kfm_pipelines.catalogs.release_facts import BBox, DocumentFacts, ReleaseFacts
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import IntegrityBroken

if TYPE_CHECKING:
    import pystac
    from jsonschema import Draft7Validator

ANONYMIZED_EXTENSION = "https://stac-extensions.github.io/anonymized-location/v1.0.0/schema.json"
FILE_EXTENSION = "https://stac-extensions.github.io/file/v2.1.0/schema.json"
TABLE_EXTENSION = "https://stac-extensions.github.io/table/v1.2.0/schema.json"
PARQUET = "application/vnd.apache.parquet"
ROOT_TITLE = "Kansas Frontier Matrix"


@dataclass(frozen=True, slots=True)
class Member:
    """One item as its collection sees it."""

    key: str
    window_start: datetime
    window_end: datetime
    bbox: BBox | None


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
        properties=_item_properties(dataset, facts),
        stac_extensions=[FILE_EXTENSION, TABLE_EXTENSION, *([ANONYMIZED_EXTENSION] if facts.care.masked else [])],
    )
    item.add_asset("data", _data_asset(dataset, data))
    item.add_asset("provenance", _provenance_asset(provenance))
    document = item.to_dict(include_self_link=False, transform_hrefs=False)
    document["collection"] = dataset.pipeline
    document["links"] = [
        {"rel": "root", "href": "../../catalog.json", "type": "application/json", "title": ROOT_TITLE},
        {"rel": "parent", "href": "../collection.json", "type": "application/json", "title": dataset.title},
        {"rel": "collection", "href": "../collection.json", "type": "application/json", "title": dataset.title},
        {"rel": "license", "href": dataset.licence.url},
        *({"rel": "derived_from", "href": one.uri} for one in facts.inputs),
    ]
    check("item", document)
    return document_bytes(document)


def collection_document(dataset: Dataset, members: Sequence[Member]) -> bytes:
    import pystac

    collection = pystac.Collection(
        id=dataset.pipeline,
        title=dataset.title,
        description=dataset.description,
        license=dataset.licence.id,
        extent=_extent(dataset, members),
        keywords=sorted(set(dataset.tags.values())),
        providers=[
            pystac.Provider(p.name, roles=[pystac.ProviderRole(role) for role in p.roles], url=p.url)
            for p in dataset.providers
        ],
        extra_fields={
            "kfm:dataset": dataset.dataset,
            **({"kfm:sovereignty": dataset.sovereignty.model_dump()} if dataset.sovereignty else {}),
        },
    )
    document = collection.to_dict(include_self_link=False, transform_hrefs=False)
    document["links"] = [
        {"rel": "root", "href": "../catalog.json", "type": "application/json", "title": ROOT_TITLE},
        {"rel": "parent", "href": "../catalog.json", "type": "application/json", "title": ROOT_TITLE},
        {"rel": "license", "href": dataset.licence.url},
    ]
    items = [
        {"rel": "item", "href": f"./items/{member.key}.json", "type": "application/geo+json"}
        for member in sorted(members, key=lambda member: member.key)
    ]
    # One link stands for all: they differ in the key alone, and checking 100,000 of them takes a minute.
    check("collection", {**document, "links": document["links"] + items[:1]})
    return document_bytes({**document, "links": document["links"] + items})


def extent_of(dataset: Dataset, members: Sequence[Member]) -> dict[str, Any]:
    """Where and when these members are, as a Collection says it."""
    return _extent(dataset, members).to_dict()


def root_document(datasets: Iterable[Dataset]) -> bytes:
    """The entry to the catalog; `datasets` are those with a collection."""
    links: list[dict[str, str]] = [{"rel": "root", "href": "./catalog.json", "type": "application/json"}]
    for dataset in datasets:
        href = f"./{dataset.pipeline}/collection.json"
        links.append({"rel": "child", "href": href, "type": "application/json", "title": dataset.title})
    document = {
        "type": "Catalog",
        "stac_version": _stac_version(),
        "id": "kansas-frontier-matrix",
        "title": ROOT_TITLE,
        "description": "Everything KFM Pipelines has published.",
        "links": links,
    }
    check("catalog", document)
    return document_bytes(document)


def _extent(dataset: Dataset, members: Sequence[Member]) -> "pystac.Extent":
    import pystac

    return pystac.Extent(
        spatial=pystac.SpatialExtent([list(_union(members) or _declared_extent(dataset))]),
        temporal=pystac.TemporalExtent([[min(m.window_start for m in members), max(m.window_end for m in members)]]),
    )


def _item_properties(dataset: Dataset, facts: ReleaseFacts) -> dict[str, Any]:
    return {
        "title": f"{dataset.title}, {facts.key.split(':')[3]}",
        "license": dataset.licence.id,
        "kfm:key": facts.key,
        "kfm:dataset": dataset.dataset,
        "kfm:transform_version": dataset.key.transform_version,
        "kfm:inputs_hash": facts.inputs_hash,
        "kfm:policy": facts.care.policy,
        "kfm:gates": dict.fromkeys(facts.gates, "green"),
        "table:row_count": facts.rows,
        "table:columns": [
            {"name": column.name, "type": column.type, "description": column.description}
            | ({"unit": column.unit} if column.unit else {})
            for column in facts.table.columns
        ],
        **_care_properties(dataset, facts.care),
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
        properties["kfm:exemption"] = {
            "id": care.exemption.id,
            "by": care.exemption.holder,
            "until": care.exemption.until,
            "reason": care.exemption.reason,
        }
    return properties


def _data_asset(dataset: Dataset, data: DocumentFacts) -> "pystac.Asset":
    import pystac

    return pystac.Asset(
        href=data.href,
        title=dataset.title,
        media_type=PARQUET,
        roles=["data"],
        extra_fields={
            "file:size": data.size,
            "file:checksum": checksum(data.digest),
        },
    )


def _provenance_asset(provenance: DocumentFacts) -> "pystac.Asset":
    import pystac

    return pystac.Asset(
        href=provenance.href,
        title="What was done to the data under its policy (PROV-O)",
        media_type="application/ld+json",
        roles=["metadata", "provenance"],
        extra_fields={"file:size": provenance.size, "file:checksum": checksum(provenance.digest)},
    )


def _rectangle(bbox: BBox | None) -> dict[str, Any] | None:
    if bbox is None:
        return None
    west, south, east, north = bbox
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [ring]}


def _union(members: Sequence[Member]) -> BBox | None:
    boxes = [member.bbox for member in members if member.bbox]
    if not boxes:
        return None
    return (min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes))


def _declared_extent(dataset: Dataset) -> BBox:
    """A Collection has to say where it is also when no Item does."""
    extent = dataset.extent
    return (extent.west, extent.south, extent.east, extent.north) if extent else (-180.0, -90.0, 180.0, 90.0)


def check(kind: Literal["item", "collection", "catalog"], document: Mapping[str, Any]) -> None:
    """Check against the official core schema, which comes with pystac; no network is asked."""
    from jsonschema.exceptions import best_match

    error = best_match(_validator(kind).iter_errors(document))
    if error is not None:
        where = "/".join(str(part) for part in error.absolute_path) or kind
        raise IntegrityBroken(f"the STAC {kind} {document.get('id')} is not valid at {where}: {error.message[:200]}")


@cache
def _validator(kind: str) -> "Draft7Validator":
    from jsonschema import Draft7Validator
    from pystac.validation.local_validator import get_local_schema_cache
    from referencing import Registry, Resource

    schemas = get_local_schema_cache()
    registry: Registry[Any] = Registry().with_resources(
        [(uri, Resource.from_contents(schema)) for uri, schema in schemas.items()]
    )
    [schema] = [schema for uri, schema in schemas.items() if uri.endswith(f"/{kind}.json")]
    return Draft7Validator(schema, registry=registry)


def _stac_version() -> str:
    import pystac

    return pystac.get_stac_version()
