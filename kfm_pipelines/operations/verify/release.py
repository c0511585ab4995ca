"""Checks one Item, current or historical, and everything it leads to."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kfm_pipelines.catalog.documents import SHA256_MULTIHASH_PREFIX, check_document
from kfm_pipelines.catalog.prov.constraints import violations
from kfm_pipelines.catalog.stac.item import RECORDS
from kfm_pipelines.catalog.trust.attestation import subjects_of
from kfm_pipelines.data_files import COG_TYPE
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.identity import union
from kfm_pipelines.declarations.tables import arrow_type
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.operations.verify import records
from kfm_pipelines.operations.verify.published_tree import CATALOG_LINKS, PublishedTree, check_links
from kfm_pipelines.operations.verify.result import PUBLICATION_HINT, Check, CheckFunction, run_check
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.raster.open import box_of_raster
from kfm_pipelines.stages.publish.stage import bounding_box
from kfm_pipelines.stores.layout import Layout

if TYPE_CHECKING:
    import pyarrow as pa

COORDINATE_COLUMNS = ("longitude", "latitude")
_STAC_KINDS = {"Feature": "item", "Collection": "collection", "Catalog": "catalog"}


def check_stac(path: str, document: Mapping[str, Any]) -> Iterator[Check]:
    kind = _STAC_KINDS.get(str(document.get("type")))
    found = "" if kind else "not an Item, Collection or Catalog"
    try:
        if kind:
            check_document(kind, document)  # type: ignore[arg-type]  # the three there are
    except IntegrityBroken as error:
        found = str(error)
    yield Check("valid STAC", path, ok=not found, found=found)


@dataclass(frozen=True)
class PublishedRelease:
    """An Item and what it leads to, read when first used."""

    tree: PublishedTree
    path: str
    is_historical: bool

    @cached_property
    def item(self) -> dict[str, Any]:
        return self.tree.document(self.path)

    @property
    def key(self) -> str:
        return str(self.item["properties"]["kfm:key"])

    @property
    def layout(self) -> Layout:
        return Layout(self.item["collection"])

    def asset(self, name: str) -> str:
        path = self.tree.resolve(self.path, self.item["assets"][name]["href"])
        if path is None:
            raise IntegrityBroken(f"{self.path}: its {name} is outside the store")
        return path

    @cached_property
    def stored_assets(self) -> dict[str, dict[str, Any]]:
        """The assets that are in the store; others stay with their provider, who may change them."""
        return {name: asset for name, asset in self.item["assets"].items() if not urlsplit(asset["href"]).scheme}

    @property
    def files(self) -> list[str]:
        """The names of assets beside the data."""
        records = {name for name, *_ in RECORDS.values()}
        return sorted(self.stored_assets.keys() - records - {"data", "provenance"})

    @cached_property
    def attestation(self) -> str:
        """The path of the attestation. The current Item does not link it; its newest revision does."""
        if self.is_historical:
            return self.asset("attestation")
        history = [path for rel, path in self.tree.links(self.path, self.item) if rel == "version-history"]
        if not history:
            raise IntegrityBroken(f"{self.path} links no history, so its attestation cannot be found")
        linked = [path for rel, path in self.tree.links(history[0], self.tree.document(history[0])) if rel == "item"]
        newest = max(linked, key=lambda path: int(path.rsplit("/", 1)[-1].removesuffix(".json")))
        return PublishedRelease(self.tree, newest, is_historical=True).attestation

    @cached_property
    def statement(self) -> dict[str, Any]:
        return records.read_statement(self.tree, self.attestation)

    @cached_property
    def manifest_path(self) -> str:
        known = {self.layout.processed_data(self.key), self.layout.item(self.key), self.asset("provenance")}
        known |= {self.asset(name) for name in self.files}
        [path] = subjects_of(self.statement).keys() - known
        return path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return self.tree.document(self.manifest_path)


def verify_release(release: PublishedRelease) -> list[Check]:
    functions = _HISTORICAL_CHECKS if release.is_historical else _CURRENT_CHECKS
    return [check for what, function in functions.items() for check in run_check(what, release.path, function, release)]


def _check_location(release: PublishedRelease) -> Iterator[Check]:
    """The file name must have the key that is in the document."""
    expected = release.layout.item(release.key)
    same = (release.path, release.item["id"]) == (expected, release.key)
    yield Check("Item is where its key says", release.path, ok=same, found="" if same else f"it belongs at {expected}")


def _check_seals(release: PublishedRelease) -> Iterator[Check]:
    for rel, path in release.tree.links(release.path, release.item):
        if rel in CATALOG_LINKS:
            yield release.tree.check_seal(path)


def _check_assets(release: PublishedRelease) -> Iterator[Check]:
    for name, asset in release.stored_assets.items():
        path = release.asset(name)
        digest, size = release.tree.digest_and_size(path)
        yield Check(f"{name}, checksum", path, ok=asset["file:checksum"] == SHA256_MULTIHASH_PREFIX + digest)
        yield Check(f"{name}, size", path, ok=asset["file:size"] == size)


def _check_processed_file(release: PublishedRelease) -> Iterator[Check]:
    path = release.layout.processed_data(release.key)
    digest, _ = release.tree.digest_and_size(path)
    same = release.item["assets"]["data"]["file:checksum"] == SHA256_MULTIHASH_PREFIX + digest
    yield Check("file by its name is the current data", path, ok=same)


def _check_data(release: PublishedRelease) -> Iterator[Check]:
    path, properties = release.asset("data"), release.item["properties"]
    table = read_parquet(release.tree.read(path), path)
    yield Check("data can be read", path, ok=True, found=f"{table.num_rows} rows")
    count = properties["table:row_count"]
    yield Check("row count", path, ok=table.num_rows == count, found=f"{table.num_rows}, the Item has {count}")
    columns = properties["table:columns"]
    stated = [(column["name"], arrow_type(column["type"])) for column in columns]
    actual = [(field.name, field.type) for field in table.schema]
    differing = ", ".join(sorted({name for name, _ in set(stated) ^ set(actual)})) or "order"
    found = f"{len(actual)}" if stated == actual else f"differs from the Item: {differing}"
    yield Check("columns", path, ok=stated == actual, found=found)
    yield _check_bounding_box(path, table, release)


def _check_bounding_box(path: str, table: "pa.Table", release: PublishedRelease) -> Check:
    location, stated = _location_columns(table, release.item["properties"]), release.item.get("bbox")
    rasters = [name for name in release.files if release.stored_assets[name].get("type") == COG_TYPE]
    if location is None and not rasters:
        found = "no column holds a location" + (", but the Item has one" if stated else "")
        return Check("bounding box", path, ok=stated is None, found=found)
    boxes = [box_of_raster(release.tree.read(release.asset(name)), name) for name in rasters]
    box = union([*boxes, bounding_box(table, location) if location else None])
    same = stated == (list(box) if box else None)
    return Check("bounding box", path, ok=same, found="" if same else "differs from the Item")


def _location_columns(table: "pa.Table", properties: Mapping[str, Any]) -> Table | None:
    """Finds the location columns: by the file's metadata where it is GeoParquet, else by the Item."""
    geo = json.loads((table.schema.metadata or {}).get(b"geo", b"{}"))
    geometry = geo.get("primary_column") or properties.get("table:primary_geometry")
    longitude, latitude = (None, None) if geometry else _coordinate_columns(table, properties)
    if geometry is None and longitude is None:
        return None
    return Table.model_construct(
        primary_key=[], columns=[], geometry_column=geometry, longitude_column=longitude, latitude_column=latitude
    )


def _coordinate_columns(table: "pa.Table", properties: Mapping[str, Any]) -> Sequence[str | None]:
    """Returns the columns that the Item names. Items from before they named any mean those of the usual names."""
    usual = COORDINATE_COLUMNS if set(COORDINATE_COLUMNS) <= set(table.column_names) else (None, None)
    named: Sequence[str | None] = properties.get("kfm:coordinates", usual)
    return named


def _check_provenance(release: PublishedRelease) -> Iterator[Check]:
    path = release.asset("provenance")
    document = release.tree.read(path)
    graph = json.loads(document)["@graph"]
    content = release.item["assets"]["data"]["file:checksum"].removeprefix(SHA256_MULTIHASH_PREFIX)
    about = any(str(node.get("@id", "")).endswith(f"sha256:{content}") for node in graph)
    yield Check("provenance is of this data", path, ok=about)
    broken = violations(document)
    yield Check("provenance keeps PROV's constraints", path, ok=not broken, found=broken[0] if broken else "")


def _check_attestation(release: PublishedRelease) -> Iterator[Check]:
    path, statement = release.attestation, release.statement
    yield Check("attestation is signed", path, ok=True)
    subjects = subjects_of(statement)
    attested = [release.layout.processed_data(release.key), release.asset("provenance"), release.manifest_path]
    digests = [
        release.tree.digest_and_size(release.asset("data"))[0],
        *(release.tree.digest_and_size(one)[0] for one in attested[1:]),
    ]
    files = [release.asset(name) for name in release.files]
    attested += files
    digests += [release.tree.digest_and_size(path)[0] for path in files]
    for subject, digest in zip(attested, digests, strict=True):
        yield Check("attested", subject, ok=subjects.get(subject) == digest)


def _check_item_attested(release: PublishedRelease) -> Iterator[Check]:
    digest, _ = release.tree.digest_and_size(release.path)
    same = subjects_of(release.statement).get(release.path) == digest
    found = "" if same else f"differs from what its newest revision attests; {PUBLICATION_HINT}"
    yield Check("attested", release.path, ok=same, found=found)


def _check_manifest(release: PublishedRelease) -> Iterator[Check]:
    path, manifest = release.manifest_path, release.manifest
    yield from records.check_manifest_schema(path, manifest)
    yield from records.check_outputs(path, manifest, subjects_of(release.statement))
    yield from records.check_manifest_agreement(path, manifest, release.statement, release.item)
    yield from records.check_sbom(release.tree, manifest)
    yield from records.check_masking_notice(release.path, manifest, release.item)


_COMMON_CHECKS: dict[str, CheckFunction[PublishedRelease]] = {
    "valid STAC": lambda release: check_stac(release.path, release.item),
    "links lead somewhere": lambda release: check_links(release.tree, release.path, release.item),
    "documents around it are sealed": _check_seals,
    "assets": _check_assets,
    "data": _check_data,
    "provenance": _check_provenance,
    "attestation": _check_attestation,
    "manifest": _check_manifest,
}
_CURRENT_CHECKS: dict[str, CheckFunction[PublishedRelease]] = {
    **_COMMON_CHECKS,
    "Item is where its key says": _check_location,
    "Item is attested": _check_item_attested,
    "file by its name": _check_processed_file,
}
_HISTORICAL_CHECKS: dict[str, CheckFunction[PublishedRelease]] = {
    "sealed": lambda release: iter([release.tree.check_seal(release.path)]),
    **_COMMON_CHECKS,
}
