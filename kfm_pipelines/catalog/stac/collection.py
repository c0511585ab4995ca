"""STAC 1.1: Collection, root Catalog, and pages by time, so that no document grows without limit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.catalog.documents import PROFILE, PROFILE_FILE, stac_bytes
from kfm_pipelines.catalog.stac.item import (
    GEOJSON,
    PARQUET,
    PROVENANCE_TITLE,
    ROOT_TITLE,
    TABLE_EXTENSION,
    VERSION_EXTENSION,
    catalog_bytes,
    link,
    providers_of,
    table_columns,
)
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset, pipeline_of
from kfm_pipelines.declarations.identity import BBox, union
from kfm_pipelines.events.notice import release_uri

if TYPE_CHECKING:
    import pystac

SNAPSHOT_ASSET = {
    "href": "./items.parquet",
    "title": "All Items in one table (stac-geoparquet), as of the last night",
    "type": PARQUET,
    "roles": ["collection-mirror"],
}
DCAT_LINK = link("alternate", "./dcat.jsonld", "As DCAT-US 3", media_type="application/ld+json")


@dataclass(frozen=True, slots=True)
class Member:
    key: str
    window_start: datetime
    window_end: datetime
    bbox: BBox | None


@dataclass(frozen=True, slots=True)
class CollectionFacts:
    items: int
    rows: int
    bytes: int
    starts: datetime
    ends: datetime
    bbox: BBox | None
    versions: tuple[str, ...]  # transform versions of all Items
    years: tuple[str, ...]
    table: Table  # as published
    policy: str
    gates: tuple[str, ...]
    keys_with_errors: int  # in the last scan
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
    provenance_roles = ["metadata", "provenance"]
    status = "red" if facts.keys_with_errors else "green"
    document = collection.to_dict(include_self_link=False, transform_hrefs=False)
    document |= {
        "stac_extensions": [TABLE_EXTENSION, VERSION_EXTENSION, PROFILE],
        "providers": providers_of(dataset),
        "version": dataset.key.transform_version,
        "table:columns": table_columns(facts.table),
        "item_assets": {
            "data": {"title": dataset.title, "type": PARQUET, "roles": ["data"]},
            "provenance": {"title": PROVENANCE_TITLE, "type": "application/ld+json", "roles": provenance_roles},
        },
        "summaries": {"kfm:transform_version": sorted(facts.versions), "kfm:gates": list(facts.gates)},
        "kfm:dataset": dataset.dataset,
        "kfm:totals": {"items": facts.items, "rows": facts.rows, "bytes": facts.bytes},
        "kfm:lineage": {
            "source": _source(dataset),
            "processor": dataset.processor,
            **({"transform": dataset.transform} if dataset.transform else {}),
            "transform_version": dataset.key.transform_version,
            "policy": facts.policy,
        },
        "kfm:qa": {"status": status, "keys_with_errors": facts.keys_with_errors},
        **({"kfm:sovereignty": dataset.sovereignty.model_dump()} if dataset.sovereignty else {}),
        **({"assets": {"items": SNAPSHOT_ASSET}} if facts.has_snapshot else {}),
        "links": [
            link("root", "../catalog.json", ROOT_TITLE),
            link("parent", "../catalog.json", ROOT_TITLE),
            {"rel": "license", "href": dataset.licence.url},
            *(link("derived_from", f"../{pipeline_of(name)}/collection.json") for name in dataset.input.upstream_names),
            *(link("child", f"./by-time/{year}/catalog.json", year) for year in sorted(facts.years)),
        ],
    }
    return stac_bytes("collection", document)


def _source(dataset: Dataset) -> str:
    return ", ".join(release_uri(name, "") for name in dataset.input.upstream_names) or dataset.input.location


def pages_above(page: str) -> list[str]:
    """Returns the pages above one, nearest first: `2025/12/04` → `2025/12`, `2025`."""
    parts = page.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]


def page_document(pipeline: str, page: str, below: Sequence[str], keys: Sequence[str]) -> bytes:
    """Links pages, Items, or both, where the dataset has had windows of more than one length."""
    up = "../" * (len(page.split("/")) + 1)
    when = page.replace("/", "-")
    links = [
        link("root", f"{up}../catalog.json"),
        link("parent", "../catalog.json" if pages_above(page) else f"{up}collection.json"),
        *(link("child", f"./{one.rsplit('/', 1)[-1]}/catalog.json", one.replace("/", "-")) for one in sorted(below)),
        *([DCAT_LINK] if keys else []),
        *(link("item", f"{up}items/{key}.json", media_type=GEOJSON) for key in sorted(keys)),
    ]
    description = f"What is published of {pipeline} for {when}, in UTC."
    return catalog_bytes(f"{pipeline}-{when}", when, description, links)


def root_document(datasets: Iterable[Dataset]) -> bytes:
    """Returns the entry to the catalog, for the datasets that have a collection."""
    about = "JSON Schema of what Items and Collections say under kfm:"
    described_by = link("describedby", f"./{PROFILE_FILE}", about, media_type="application/schema+json")
    children = [link("child", f"./{dataset.pipeline}/collection.json", dataset.title) for dataset in datasets]
    links = [link("root", "./catalog.json"), described_by, DCAT_LINK, *children]
    return catalog_bytes("kansas-frontier-matrix", ROOT_TITLE, "Everything KFM Pipelines has published.", links)


def extent_of(dataset: Dataset, members: Sequence[Member]) -> dict[str, Any]:
    starts, ends = min(m.window_start for m in members), max(m.window_end for m in members)
    return _extent(dataset, starts, ends, union(one.bbox for one in members)).to_dict()


def _extent(dataset: Dataset, starts: datetime, ends: datetime, bbox: BBox | None) -> "pystac.Extent":
    import pystac

    # A collection needs an extent even when no Item has a place.
    box = bbox or (dataset.extent.box if dataset.extent else (-180.0, -90.0, 180.0, 90.0))
    return pystac.Extent(pystac.SpatialExtent([list(box)]), pystac.TemporalExtent([[starts, ends]]))
