"""Stages a release: builds the documents and the Item of a candidate, complete, where no reader looks."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.governance import Governance, KeyRules
from kfm_pipelines.care.tables import Exemption
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
    ExemptionFacts,
    ReleaseFacts,
)
from kfm_pipelines.catalog.prov.document import release_provenance
from kfm_pipelines.catalog.stac.item import item_document
from kfm_pipelines.catalog.trust.attestation import Subjects, run_manifest, sign_attestation
from kfm_pipelines.catalog.trust.signer import Signer
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.identity import BBox, box_from, union
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.parquet.geoparquet import box_of
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.state.revisions import ReleaseDescription
from kfm_pipelines.stores import Layout, WorkStore
from kfm_pipelines.stores.layout import STAGED_ITEM, public_key
from kfm_pipelines.stores.work import read_attachments

if TYPE_CHECKING:
    import pyarrow as pa

StagedFiles = Mapping[str, bytes]  # by name


@dataclass(frozen=True, slots=True)
class Candidate:
    """A release before staging: what its documents may state, and what only the log keeps."""

    facts: ReleaseFacts  # without those of the data, and with a digest of the inputs that reveals nothing masked
    epoch: int
    revision: int
    inputs_hash: str
    fingerprint: str

    @property
    def key(self) -> str:
        return self.facts.key


@dataclass(frozen=True, slots=True)
class Attester:
    """The key that signs a release, and the list of the software that made it."""

    signer: Signer
    sbom: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(ReleaseDescription):
    """A staged revision as the log keeps it: everything needed to publish it or to finish a publication."""

    expected_item: str | None  # digest of the Item it replaces
    documents: Mapping[str, str] = field(default_factory=dict)  # digests by name; the Item links to them
    files: Mapping[str, str] = field(default_factory=dict)  # likewise, of files beside the table
    records: Mapping[str, str] = field(default_factory=dict)  # digests of manifest and attestation
    shared: Mapping[str, str] = field(default_factory=dict)  # digests of files shared with other releases
    signed_by: str = ""  # id of the key

    @property
    def digest(self) -> str:
        """Digest of everything readers rely on, to which verdicts and reviews refer. It leaves out the records, which
        name the software, so that a review stays valid after an update."""
        return release_digest(self.content_hash, self.item_hash, self.documents)

    @property
    def object_digests(self) -> set[str]:
        """Digests of the objects that a publication needs."""
        own = (self.files, self.documents, self.records, self.shared)
        return {self.content_hash, *(digest for digests in own for digest in digests.values())}

    def shared_paths(self, layout: Layout) -> dict[str, str]:
        """Returns where the shared files are published, by name."""
        paths = {SBOM: layout.document(self.shared.get(SBOM, "")), PUBLIC_KEY: public_key(self.signed_by)}
        return {name: paths[name] for name in self.shared}

    def as_detail(self) -> dict[str, Any]:
        return asdict(self)


def stage(
    store: WorkStore,
    dataset: Dataset,
    candidate: Candidate,
    content_hash: str,
    attester: Attester,
    file_digests: Mapping[str, str] | None = None,
) -> Release:
    """Stages the candidate; its data and the files beside it must be the bytes that the gates judged."""
    layout = Layout(dataset.pipeline)
    place = candidate.key, candidate.epoch
    data = store.read_work(layout.masked_table(*place))
    if sha256(data) != content_hash:
        raise IntegrityBroken(f"{candidate.key}: the masked table changed after it was judged")
    if sha256(attester.sbom) != candidate.facts.environment.sbom:
        raise IntegrityBroken(f"{candidate.key}: the list of software is not the one that its documents name")
    table = store.read_table(layout.masked_table(*place), partial(read_parquet, name=candidate.key))
    attachments = read_attachments(store, partial(layout.masked_file, *place))
    files = {one.file_name: one.data for one in attachments.files}
    if _digests(files) != dict(file_digests or {}):
        raise IntegrityBroken(f"{candidate.key}: the files beside the table changed after they were judged")
    facts = replace(
        candidate.facts,
        content_hash=content_hash,
        size=len(data),
        rows=table.num_rows,
        bbox=union([bounding_box(table, candidate.facts.table), *(one.bbox for one in attachments.files)]),
        attachments=attachments,
    )
    papers = _build_documents(dataset, facts, candidate.revision, attester)
    store.move(layout.masked_table(*place), layout.staged_data(*place))
    staged = {STAGED_ITEM: papers.item, **files, **papers.documents, **papers.records, **papers.shared}
    for name, document in staged.items():
        store.write(layout.staged_document(*place, name), document)
    return Release(
        key=candidate.key,
        revision=candidate.revision,
        inputs_hash=candidate.inputs_hash,
        fingerprint=candidate.fingerprint,
        content_hash=content_hash,
        item_hash=sha256(papers.item),
        expected_item=store.digest(layout.item(candidate.key)) if candidate.epoch > 1 else None,  # none at first
        rows=facts.rows,
        bytes=len(data),
        bbox=facts.bbox,
        documents=_digests(papers.documents),
        files=_digests(files),
        records=_digests(papers.records),
        shared=_digests(papers.shared),
        signed_by=attester.signer.public.key_id,
    )


def bounding_box(table: "pa.Table", declaration: Table) -> BBox | None:
    """Returns west, south, east and north of the rows with coordinates; None when there are none."""
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


def care_facts(governance: Governance, rules: KeyRules, measures: Mapping[str, Any]) -> CareFacts:
    policy, extent = rules.policy, governance.oversight.dataset.extent
    methods = tuple(
        f"{sensitivity} {kind}: {rule.method}"
        for sensitivity, classes in sorted(policy.classes.items())
        for kind, rule in (*classes.rules.items(), *([("raster", classes.raster)] if classes.raster else ()))
    )
    return CareFacts(
        policy=policy.name,
        policy_digest=policy.digest,
        reason=policy.reason,
        authority=governance.authority.name,
        labels=tuple(policy.labels),
        methods=methods,
        key_id=policy.key_id,
        uncertainty_m=measures.get("uncertainty_m"),
        farthest_latitude=max(abs(extent.south), abs(extent.north)) if extent else 0.0,
        exemption=_exemption_facts(rules.exemption) if rules.exemption else None,
    )


def _exemption_facts(exemption: Exemption) -> ExemptionFacts:
    return ExemptionFacts(
        id=exemption.id,
        holder=exemption.signed.holder,
        until=exemption.until.isoformat(),
        reason=str(exemption.signed.statement["reason"]),
        signature=exemption.signed.signature,
    )


@dataclass(frozen=True, slots=True)
class _ReleaseDocuments:
    item: bytes
    documents: Mapping[str, bytes]
    records: Mapping[str, bytes]
    shared: Mapping[str, bytes]


def _build_documents(dataset: Dataset, facts: ReleaseFacts, revision: int, attester: Attester) -> _ReleaseDocuments:
    """Each document names the ones before it by their digests; the attestation names them all."""
    layout = Layout(dataset.pipeline)
    beside = facts.attachments.files
    files = {one.name: (layout.data_file(digest := sha256(one.data), one.file_name), digest) for one in beside}
    provenance = release_provenance(dataset, facts)
    provenance_hash = sha256(provenance)
    item = item_document(
        dataset,
        facts,
        DocumentFacts(f"../../../{layout.content(facts.content_hash)}", facts.content_hash, facts.size),
        DocumentFacts(f"../../../{layout.document(provenance_hash)}", provenance_hash, len(provenance)),
        {
            one.name: DocumentFacts(f"../../../{files[one.name][0]}", files[one.name][1], len(one.data))
            for one in beside
        },
    )
    item_hash = sha256(item)
    manifest = run_manifest(dataset, facts, revision, item_hash=item_hash, provenance_hash=provenance_hash)
    manifest_hash = sha256(manifest)
    subjects = Subjects(
        data=(layout.processed_data(facts.key), facts.content_hash),
        item=(layout.item(facts.key), item_hash),
        provenance=(layout.document(provenance_hash), provenance_hash),
        manifest=(layout.document(manifest_hash), manifest_hash),
        files=tuple(files.values()),
    )
    return _ReleaseDocuments(
        item=item,
        documents={PROVENANCE: provenance},
        records={MANIFEST: manifest, ATTESTATION: sign_attestation(dataset, facts, subjects, attester.signer)},
        shared={SBOM: attester.sbom, PUBLIC_KEY: attester.signer.public.pem},
    )


def _digests(documents: Mapping[str, bytes]) -> dict[str, str]:
    return {name: sha256(document) for name, document in documents.items()}
