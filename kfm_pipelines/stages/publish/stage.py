"""Stage: the candidate revision, complete and checked, where no reader looks."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.verifier import release_digest
from kfm_pipelines.catalog.documents import sha256
from kfm_pipelines.catalog.facts import (
    ATTESTATION,
    MANIFEST,
    PROVENANCE,
    PUBLIC_KEY,
    SBOM,
    CareFacts,
    DocumentFacts,
    EnvironmentFacts,
    InputFacts,
    ReleaseFacts,
    StorageFacts,
)
from kfm_pipelines.catalog.prov.document import release_provenance
from kfm_pipelines.catalog.stac.item import item_document
from kfm_pipelines.catalog.trust.attestation import Subjects, run_manifest, sign_attestation
from kfm_pipelines.catalog.trust.signer import Signer
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.identity import BBox, box_from
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.parquet.geoparquet import box_of
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.stores import Layout, Store
from kfm_pipelines.stores.layout import public_key

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is about to be staged."""

    key: str
    epoch: int
    revision: int
    window_start: datetime
    window_end: datetime
    inputs: tuple[InputFacts, ...]
    inputs_hash: str
    fingerprint: str
    config: str
    public_inputs_hash: str  # the one that may be shown: nobody can guess unmasked inputs by it
    care: CareFacts
    table: Table
    gates: tuple[str, ...]
    environment: EnvironmentFacts
    storage: StorageFacts


@dataclass(frozen=True, slots=True)
class Attester:
    """What vouches for a release: whose key signs it, and the list of the software that made it."""

    signer: Signer
    sbom: bytes


@dataclass(frozen=True, slots=True)
class Release:
    """A staged revision, as it is written into the log: all that is needed to publish it, or to finish doing so."""

    key: str
    revision: int
    inputs_hash: str
    fingerprint: str
    content_hash: str
    item_hash: str
    expected_item: str | None
    rows: int
    bytes: int
    bbox: BBox | None
    documents: Mapping[str, str] = field(default_factory=dict)  # digests by name; the Item leads to them
    records: Mapping[str, str] = field(default_factory=dict)  # digests of what tells how it came about
    shared: Mapping[str, str] = field(default_factory=dict)  # digests of what it has in common with others
    signed_by: str = ""  # id of the key

    @property
    def digest(self) -> str:
        """Of everything that readers go by; verdicts and reviews are about this. Records are not part of it: they name
        the software, and a review holds though that was renewed meanwhile."""
        return release_digest(self.content_hash, self.item_hash, self.documents)

    def shared_paths(self, layout: Layout) -> dict[str, str]:
        """Where readers find what it has in common with others, by name."""
        paths = {SBOM: layout.document(self.shared.get(SBOM, "")), PUBLIC_KEY: public_key(self.signed_by)}
        return {name: paths[name] for name in self.shared}

    def as_detail(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_detail(cls, detail: dict[str, Any]) -> "Release":
        return cls(**{**detail, "bbox": box_from(detail["bbox"])})


def stage(store: Store, dataset: Dataset, candidate: Candidate, content_hash: str, attester: Attester) -> Release:
    """Write data, documents and Item of the candidate to the staging tier; the data must be the bytes judged."""
    layout = Layout(dataset.pipeline)
    data = _read_judged_data(store, layout, candidate, content_hash)
    facts = _facts(candidate, content_hash, data)
    papers = _build_documents(dataset, facts, candidate.revision, attester)
    _stage_release_files(store, layout, candidate, data, papers)
    release = Release(
        key=candidate.key,
        revision=candidate.revision,
        inputs_hash=candidate.inputs_hash,
        fingerprint=candidate.fingerprint,
        content_hash=content_hash,
        item_hash=sha256(papers.item),
        expected_item=store.digest(layout.item(candidate.key)),
        rows=facts.rows,
        bytes=len(data),
        bbox=facts.bbox,
        documents=_digests(papers.documents),
        records=_digests(papers.records),
        shared=_digests(papers.shared),
        signed_by=attester.signer.public.key_id,
    )
    _stage_shared(store, layout, candidate, release, papers.shared)
    return release


def bounding_box(table: "pa.Table", declaration: Table) -> BBox | None:
    """West, south, east, north of the rows that have a place; None when there are none."""
    import pyarrow.compute as pc

    if declaration.geometry_column is not None:
        return box_from(box_of(table.column(declaration.geometry_column)))
    if declaration.longitude_column is None or declaration.latitude_column is None:
        return None
    longitudes = pc.min_max(table.column(declaration.longitude_column)).as_py()
    latitudes = pc.min_max(table.column(declaration.latitude_column)).as_py()
    if longitudes["min"] is None or latitudes["min"] is None:
        return None
    return (longitudes["min"], latitudes["min"], longitudes["max"], latitudes["max"])


@dataclass(frozen=True, slots=True)
class _ReleaseDocuments:
    """All that is written about the data of a release, by what it is to the release."""

    item: bytes
    documents: Mapping[str, bytes]
    records: Mapping[str, bytes]
    shared: Mapping[str, bytes]


def _read_judged_data(store: Store, layout: Layout, candidate: Candidate, content_hash: str) -> bytes:
    data = store.read(layout.masked_table(candidate.key, candidate.epoch))
    if sha256(data) != content_hash:
        raise IntegrityBroken(f"{candidate.key}: the masked table changed after it was judged")
    return data


def _build_documents(dataset: Dataset, facts: ReleaseFacts, revision: int, attester: Attester) -> _ReleaseDocuments:
    """Each names the ones before it by their digests; the attestation names them all."""
    layout = Layout(dataset.pipeline)
    provenance = release_provenance(dataset, facts)
    provenance_hash = sha256(provenance)
    item = item_document(
        dataset,
        facts,
        DocumentFacts(f"../../../{layout.content(facts.content_hash)}", facts.content_hash, facts.size),
        DocumentFacts(f"../../../{layout.document(provenance_hash)}", provenance_hash, len(provenance)),
    )
    item_hash = sha256(item)
    manifest = run_manifest(dataset, facts, revision, item_hash=item_hash, provenance_hash=provenance_hash)
    manifest_hash = sha256(manifest)
    subjects = Subjects(
        data=(layout.processed_data(facts.key), facts.content_hash),
        item=(layout.item(facts.key), item_hash),
        provenance=(layout.document(provenance_hash), provenance_hash),
        manifest=(layout.document(manifest_hash), manifest_hash),
    )
    return _ReleaseDocuments(
        item=item,
        documents={PROVENANCE: provenance},
        records={MANIFEST: manifest, ATTESTATION: sign_attestation(dataset, facts, subjects, attester.signer)},
        shared={SBOM: attester.sbom, PUBLIC_KEY: attester.signer.public.pem},
    )


def _stage_release_files(
    store: Store, layout: Layout, candidate: Candidate, data: bytes, documents: _ReleaseDocuments
) -> None:
    store.write(layout.staged_data(candidate.key, candidate.epoch), data)
    for name, document in {**documents.documents, **documents.records}.items():
        store.write(layout.staged_document(candidate.key, candidate.epoch, name), document)
    store.write(layout.staged_item(candidate.key, candidate.epoch), documents.item)


def _stage_shared(
    store: Store, layout: Layout, candidate: Candidate, release: Release, shared: Mapping[str, bytes]
) -> None:
    """What many releases have in common is staged until one of them is published."""
    if release.shared[SBOM] != candidate.environment.sbom:
        raise IntegrityBroken(f"{candidate.key}: the list of software is not the one that its documents name")
    for name, path in release.shared_paths(layout).items():
        if not store.exists(path):
            store.write(layout.staged_document(candidate.key, candidate.epoch, name), shared[name])


def _facts(candidate: Candidate, content_hash: str, data: bytes) -> ReleaseFacts:
    table = read_parquet(data, candidate.key)
    return ReleaseFacts(
        key=candidate.key,
        window_start=candidate.window_start,
        window_end=candidate.window_end,
        inputs=candidate.inputs,
        inputs_hash=candidate.public_inputs_hash,
        config=candidate.config,
        care=candidate.care,
        gates=candidate.gates,
        table=candidate.table,
        environment=candidate.environment,
        storage=candidate.storage,
        content_hash=content_hash,
        size=len(data),
        rows=table.num_rows,
        bbox=bounding_box(table, candidate.table),
    )


def _digests(documents: Mapping[str, bytes]) -> dict[str, str]:
    return {name: sha256(document) for name, document in documents.items()}
