"""STAC 1.1: the Collection of a dataset, and the root Catalog.

A Collection is the sum of its pages and of what was declared and reviewed; it does not tell when it was written.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.catalog.documents import document_bytes
from kfm_pipelines.catalog.stac.item import (
    PARQUET,
    PROVENANCE_TITLE,
    ROOT_TITLE,
    TABLE_EXTENSION,
    VERSION_EXTENSION,
    providers_of,
    table_columns,
)
from kfm_pipelines.catalog.stac.pages import child_link, dcat_link, stac_version
from kfm_pipelines.catalog.stac.profile import PROFILE, PROFILE_FILE, check_document
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.identity import BBox, union

if TYPE_CHECKING:
    import pystac

SNAPSHOT = "./items.parquet"


@dataclass(frozen=True, slots=True)
class Member:
    """One Item as its collection sees it."""

    key: str
    window_start: datetime
    window_end: datetime
    bbox: BBox | None


@dataclass(frozen=True, slots=True)
class CollectionFacts:
    """All that a Collection says of what it holds."""

    items: int
    rows: int
    bytes: int
    starts: datetime
    ends: datetime
    bbox: BBox | None
    versions: tuple[str, ...]  # of the transform, of all Items
    years: tuple[str, ...]
    table: Table  # as it is published
    policy: str
    gates: tuple[str, ...]
    keys_with_errors: int  # by the last scan
    has_snapshot: bool


def collection_document(dataset: Dataset, facts: CollectionFacts) -> bytes:
    import pystac

    collection = pystac.Collection(
        id=dataset.pipeline,
        title=dataset.title,
        description=dataset.description,
        license=dataset.licence.id,
        extent=_extent(dataset, facts.starts, facts.ends, facts.bbox),
        keywords=sorted(set(dataset.tags.values())),
    )
    document = collection.to_dict(include_self_link=False, transform_hrefs=False)
    document |= {
        "stac_extensions": [TABLE_EXTENSION, VERSION_EXTENSION, PROFILE],
        "providers": providers_of(dataset),
        "version": dataset.key.transform_version,
        "table:columns": table_columns(facts.table),
        "item_assets": _item_assets(dataset),
        "summaries": {
            "kfm:transform_version": sorted(facts.versions),
            "kfm:gates": list(facts.gates),
        },
        "kfm:dataset": dataset.dataset,
        "kfm:totals": {"items": facts.items, "rows": facts.rows, "bytes": facts.bytes},
        "kfm:lineage": _lineage(dataset, facts),
        "kfm:qa": {
            "status": "red" if facts.keys_with_errors else "green",
            "keys_with_errors": facts.keys_with_errors,
        },
        **({"kfm:sovereignty": dataset.sovereignty.model_dump()} if dataset.sovereignty else {}),
        **({"assets": {"items": _snapshot_asset()}} if facts.has_snapshot else {}),
        "links": [
            {"rel": "root", "href": "../catalog.json", "type": "application/json", "title": ROOT_TITLE},
            {"rel": "parent", "href": "../catalog.json", "type": "application/json", "title": ROOT_TITLE},
            {"rel": "license", "href": dataset.licence.url},
            *(child_link(f"./by-time/{year}/catalog.json", year) for year in sorted(facts.years)),
        ],
    }
    check_document("collection", document)
    return document_bytes(document)


def extent_of(dataset: Dataset, members: Sequence[Member]) -> dict[str, Any]:
    """Where and when these members are, as a Collection says it."""
    starts, ends = min(m.window_start for m in members), max(m.window_end for m in members)
    return _extent(dataset, starts, ends, union(one.bbox for one in members)).to_dict()


def root_document(datasets: Iterable[Dataset]) -> bytes:
    """The entry to the catalog; `datasets` are those with a collection."""
    links: list[dict[str, str]] = [
        {"rel": "root", "href": "./catalog.json", "type": "application/json"},
        {
            "rel": "describedby",
            "href": f"./{PROFILE_FILE}",
            "type": "application/schema+json",
            "title": "JSON Schema of what Items and Collections say under kfm:",
        },
        dcat_link(),
    ]
    for dataset in datasets:
        href = f"./{dataset.pipeline}/collection.json"
        links.append({"rel": "child", "href": href, "type": "application/json", "title": dataset.title})
    document = {
        "type": "Catalog",
        "stac_version": stac_version(),
        "id": "kansas-frontier-matrix",
        "title": ROOT_TITLE,
        "description": "Everything KFM Pipelines has published.",
        "links": links,
    }
    check_document("catalog", document)
    return document_bytes(document)


def _extent(dataset: Dataset, starts: datetime, ends: datetime, bbox: BBox | None) -> "pystac.Extent":
    import pystac

    return pystac.Extent(
        spatial=pystac.SpatialExtent([list(bbox or _declared_extent(dataset))]),
        temporal=pystac.TemporalExtent([[starts, ends]]),
    )


def _declared_extent(dataset: Dataset) -> BBox:
    """A Collection has to say where it is also when no Item does."""
    extent = dataset.extent
    return (extent.west, extent.south, extent.east, extent.north) if extent else (-180.0, -90.0, 180.0, 90.0)


def _lineage(dataset: Dataset, facts: CollectionFacts) -> dict[str, Any]:
    return {
        "source": f"s3://{dataset.input.bucket}/{dataset.input.prefix}",
        "processor": dataset.processor,
        **({"transform": dataset.transform} if dataset.transform else {}),
        "transform_version": dataset.key.transform_version,
        "policy": facts.policy,
    }


def _item_assets(dataset: Dataset) -> dict[str, Any]:
    return {
        "data": {"title": dataset.title, "type": PARQUET, "roles": ["data"]},
        "provenance": {
            "title": PROVENANCE_TITLE,
            "type": "application/ld+json",
            "roles": ["metadata", "provenance"],
        },
    }


def _snapshot_asset() -> dict[str, Any]:
    return {
        "href": SNAPSHOT,
        "title": "All Items in one table (stac-geoparquet), as of the last night",
        "type": PARQUET,
        "roles": ["collection-mirror"],
    }
