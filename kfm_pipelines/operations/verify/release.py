"""One Item, current or of its history, and everything it leads to."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kfm_pipelines.catalog.documents import SHA256_MULTIHASH_PREFIX, check_document
from kfm_pipelines.catalog.prov.constraints import violations
from kfm_pipelines.catalog.trust.attestation import subjects_of
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.operations.verify import records
from kfm_pipelines.operations.verify.check import PUBLICATION_HINT, Check, CheckFunction, run_check
from kfm_pipelines.operations.verify.published_tree import CATALOG_LINKS, PublishedTree, check_links
from kfm_pipelines.operations.verify.tables import check_data
from kfm_pipelines.stores.layout import Layout

_STAC_KINDS = {"Feature": "item", "Collection": "collection", "Catalog": "catalog"}


def check_stac(path: str, document: Mapping[str, Any]) -> Iterator[Check]:
    kind = _STAC_KINDS.get(str(document.get("type")))
    try:
        if kind is None:
            raise IntegrityBroken("it is no Item, Collection or Catalog")
        check_document(kind, document)  # type: ignore[arg-type]  # the three there are
    except IntegrityBroken as error:
        yield Check("valid STAC", path, ok=False, found=str(error))
    else:
        yield Check("valid STAC", path, ok=True)


@dataclass(frozen=True)
class PublishedRelease:
    """An Item and how to get at what it leads to; each part is read when it is first asked for."""

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
            raise IntegrityBroken(f"{self.path}: its {name} is outside of the store")
        return path

    @cached_property
    def attestation(self) -> str:
        """Its path. The current Item knows no history, so that of its newest revision tells."""
        if self.is_historical:
            return self.asset("attestation")
        history = [path for rel, path in self.tree.links(self.path, self.item) if rel == "version-history"]
        if not history:
            raise IntegrityBroken(f"{self.path} leads to no history, so nothing that is signed can be found")
        linked = [path for rel, path in self.tree.links(history[0], self.tree.document(history[0])) if rel == "item"]
        newest = max(linked, key=lambda path: int(path.rsplit("/", 1)[-1].removesuffix(".json")))
        return PublishedRelease(self.tree, newest, is_historical=True).attestation

    @cached_property
    def statement(self) -> dict[str, Any]:
        return records.read_statement(self.tree, self.attestation)

    @cached_property
    def manifest_path(self) -> str:
        known = {self.layout.processed_data(self.key), self.layout.item(self.key), self.asset("provenance")}
        return records.find_manifest_path(self.statement, known)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return self.tree.document(self.manifest_path)


def verify_release(release: PublishedRelease) -> list[Check]:
    looks = _HISTORICAL_CHECKS if release.is_historical else _CURRENT_CHECKS
    return [check for what, look in looks.items() for check in run_check(what, release.path, look, release)]


def _check_stac(release: PublishedRelease) -> Iterator[Check]:
    yield from check_stac(release.path, release.item)


def _check_location(release: PublishedRelease) -> Iterator[Check]:
    """The key in the name of the file is the key in the document."""
    expected = release.layout.item(release.key)
    same = (release.path, release.item["id"]) == (expected, release.key)
    yield Check("Item is where its key says", release.path, ok=same, found="" if same else f"it is that of {expected}")


def _check_links(release: PublishedRelease) -> Iterator[Check]:
    yield from check_links(release.tree, release.path, release.item)


def _check_seals(release: PublishedRelease) -> Iterator[Check]:
    """Of every document of the catalog that the Item leads to."""
    for rel, path in release.tree.links(release.path, release.item):
        if rel in CATALOG_LINKS:
            yield release.tree.check_seal(path)


def _check_own_seal(release: PublishedRelease) -> Iterator[Check]:
    yield release.tree.check_seal(release.path)


def _check_assets(release: PublishedRelease) -> Iterator[Check]:
    for name, asset in release.item["assets"].items():
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
    path = release.asset("data")
    yield from check_data(path, release.tree.read(path), release.item)


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
    for subject, digest in zip(attested, digests, strict=True):
        yield Check("attested", subject, ok=subjects.get(subject) == digest)


def _check_item_attested(release: PublishedRelease) -> Iterator[Check]:
    digest, _ = release.tree.digest_and_size(release.path)
    same = subjects_of(release.statement).get(release.path) == digest
    found = "" if same else f"not what the newest revision of its history attests; {PUBLICATION_HINT}"
    yield Check("attested", release.path, ok=same, found=found)


def _check_manifest(release: PublishedRelease) -> Iterator[Check]:
    path, manifest = release.manifest_path, release.manifest
    yield from records.check_manifest_schema(path, manifest)
    yield from records.check_outputs(path, manifest, subjects_of(release.statement))
    yield from records.check_manifest_agreement(path, manifest, release.statement, release.item)
    yield from records.check_sbom(release.tree, manifest)
    yield from records.check_masking_notice(release.path, manifest, release.item)


_COMMON_CHECKS: dict[str, CheckFunction[PublishedRelease]] = {
    "valid STAC": _check_stac,
    "links lead somewhere": _check_links,
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
_HISTORICAL_CHECKS: dict[str, CheckFunction[PublishedRelease]] = {"sealed": _check_own_seal, **_COMMON_CHECKS}
