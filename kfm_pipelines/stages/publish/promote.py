"""Makes staged releases visible to readers: immutable files first, then one pointer each, then the keys' history.

Everything from the swap on runs under the keys' locks. Only the process that staged a release can do what comes before
it; if it has ended, the release is computed again. What follows can be repeated by anyone from any point until it is
done. Each step is taken for many releases at once, and what fails for one does not affect the others.
Each revision in the history is a document of its own, so a publication writes only its own, the one before it and the
list. Withdrawn revisions are removed, because they would reveal what is masked again.
"""

import json
import logging
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from kfm_pipelines.catalog.collections import tables as collections
from kfm_pipelines.catalog.documents import sha256
from kfm_pipelines.catalog.facts import MANIFEST, SBOM, DocumentFacts
from kfm_pipelines.catalog.stac.item import RECORDS, history_document, revision_document, superseded_document
from kfm_pipelines.catalog.trust.signer import SIDECAR, open_sealed, seal_for, write_sealed
from kfm_pipelines.catalog.trust.trust_root import load_trust_root
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import GateRefused, IntegrityBroken, ObjectMissing, SignatureRefused
from kfm_pipelines.gates.schema import diff_schemas
from kfm_pipelines.gates.schema_approval import Schema, fix_first_schema
from kfm_pipelines.services import Services
from kfm_pipelines.stages.config.key_config import KeyConfig
from kfm_pipelines.stages.publish.stage import Release, StagedFiles
from kfm_pipelines.stages.publish.tables import Publication
from kfm_pipelines.state import wal
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.transactions import KeyFacts
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores import Layout, Store, WorkStore
from kfm_pipelines.stores.layout import PROVENANCE_GRAPH, STAGED_DATA, STAGED_ITEM, Swap

log = logging.getLogger(__name__)
KeyFailures = dict[str, Exception]  # by key
FIRST_SCHEMA = "first_schema"


def read_staged(store: WorkStore, layout: Layout, release: Release, txn: int) -> StagedFiles:
    """Returns the staged files. Raises IntegrityBroken unless this process holds exactly what was staged."""
    digests = {STAGED_DATA: release.content_hash, STAGED_ITEM: release.item_hash}
    digests |= {**release.files, **release.documents, **release.records, **release.shared}
    staged = {}
    for name, digest in digests.items():
        data = store.read_local(layout.staged_document(release.key, txn, name))
        if data is None:
            raise IntegrityBroken(f"{release.key}: the process that staged {name} has ended")
        if sha256(data) != digest:
            raise IntegrityBroken(f"{release.key}: {name} is not what was staged")
        staged[name] = data
    return staged


@dataclass(frozen=True, slots=True)
class IntendedRelease:
    """A release whose publication is allowed. `staged` is None when readers see it already, because a predecessor was
    stopped after the swap: only what follows is repeated. `facts` are those of its transaction."""

    claim: Claim
    txn: int
    release: Release
    staged: StagedFiles | None
    facts: KeyFacts

    @property
    def key(self) -> str:
        return self.claim.key


def create_objects(store: WorkStore, layout: Layout, releases: Sequence[IntendedRelease]) -> KeyFailures:
    """Writes the immutable files of releases that readers do not see yet."""
    own: dict[str, bytes] = {}
    shared: dict[str, bytes] = {}
    owners: dict[str, set[str]] = defaultdict(set)
    for one in releases:
        if one.staged is None:
            continue
        release, staged = one.release, one.staged
        files = {layout.content(release.content_hash): staged[STAGED_DATA]}
        files |= {layout.data_file(digest, name): staged[name] for name, digest in release.files.items()}
        documents = {**release.documents, **release.records}
        files |= {layout.document(digest): staged[name] for name, digest in documents.items()}
        common = {path: staged[name] for name, path in release.shared_paths(layout).items()}
        own |= files
        shared |= common
        for path in (*files, *common):
            owners[path].add(one.key)
    failures = {**store.create_all(own), **store.create_shared_all(shared)}
    return {key: error for path, error in failures.items() for key in owners[path]}


def swap_items(store: WorkStore, layout: Layout, releases: Sequence[IntendedRelease]) -> KeyFailures:
    """Makes the releases visible, each by one swap of its Item."""
    keys = {layout.item(one.key): one.key for one in releases}
    swaps = [
        Swap(layout.item(one.key), one.staged[STAGED_ITEM], one.release.expected_item)
        for one in releases
        if one.staged is not None
    ]
    return {keys[path]: error for path, error in store.swap_all(swaps).items()}


def replace_data(store: WorkStore, layout: Layout, releases: Sequence[IntendedRelease]) -> KeyFailures:
    """Puts the data of visible releases under its familiar name."""
    keys = {layout.processed_data(one.key): one.key for one in releases}
    sources = {layout.processed_data(one.key): layout.content(one.release.content_hash) for one in releases}
    return {keys[path]: error for path, error in store.replace_all(sources).items()}


def build_history(
    services: Services,
    dataset: Dataset,
    one: IntendedRelease,
    published: datetime,
    publication: Publication,
    withdrawn: Sequence[str],
) -> tuple[dict[str, bytes], list[int]]:
    """Removes what this publication withdraws. Returns the documents to write, and the earlier revisions that are
    missing from the store although they were not withdrawn. They are not written again, because each was made under its
    own configuration."""
    store, layout, key, release = services.store, Layout(dataset.pipeline), one.key, one.release
    _withdraw(store, layout, key, publication, withdrawn)
    is_first = release.revision == 1
    earlier = [] if is_first else [n for n in _revisions(store, layout, key) if n < release.revision]
    before, replaced = _last_verified(services, layout, key, earlier)
    document = _document(services, layout, release, published, before, one.txn)
    documents = {layout.revision(key, release.revision): document}
    if before is not None and replaced is not None:
        documents[layout.revision(key, before)] = superseded_document(replaced, release.revision)
    documents[layout.history(key)] = history_document(dataset.pipeline, key, [*earlier, release.revision])
    known = [] if is_first else publication.earlier_revisions(key, release.revision, withdrawn)
    sealed = {path: seal_for(services, path, document) for path, document in documents.items()}
    return sealed, [revision for revision in known if revision not in earlier]


def write_current_if_missing(
    services: Services, dataset: Dataset, one: IntendedRelease, publication: Publication
) -> None:
    """Writes the current revision's document before the swap if it predates the history; later it could not be."""
    store, layout, key, now = services.store, Layout(dataset.pipeline), one.key, one.facts.current
    if now is None or now.revision >= one.release.revision:
        return
    current = wal.entry_of(publication.connection, key, now.txn, Step.PUBLISH)
    if current is None or store.exists(layout.revision(key, now.revision)):
        return
    old = Release.from_values(current.detail)
    if store.digest(layout.item(key)) == old.item_hash:
        document = _document(services, layout, old, current.at, None)
        write_sealed(services, layout.revision(key, old.revision), document)


def _last_verified(
    services: Services, layout: Layout, key: str, earlier: list[int]
) -> tuple[int, Mapping[str, Any]] | tuple[None, None]:
    """Returns the last of the earlier revisions and its document. One with a broken seal is left out and not sealed
    again, but it must not stop a publication that readers already see; `kfm verify` reports it."""
    if not earlier:
        return None, None
    trust = load_trust_root(services.store, services.settings.signing_key, None)
    while earlier:
        path = layout.revision(key, earlier[-1])
        try:
            document, _ = open_sealed(path, services.store.read(path), trust.keys)
        except (IntegrityBroken, SignatureRefused, ObjectMissing) as error:
            log.warning("left out of the history: %s", error)
            earlier.pop()
        else:
            return earlier[-1], document
    return None, None


def _withdraw(store: Store, layout: Layout, key: str, publication: Publication, withdrawn: Sequence[str]) -> None:
    """Removes the withdrawn contents, also from the snapshot of all Items and the provenance graph. A predecessor may
    have been stopped anywhere, so its work is repeated until the log records it."""
    if not withdrawn:
        return
    connection, dataset = publication.connection, publication.dataset
    # Waits for anyone writing the snapshot or the graph; later writers see what is committed here.
    collections.lock_snapshot(connection, dataset)
    collections.lock_graph(connection)
    traces = collections.find_withdrawn_artifacts(connection, key, withdrawn)
    there = [path for one in traces.revisions if store.exists(path := layout.revision(key, one))]
    if there or traces.are_current:
        for path in (layout.snapshot(), PROVENANCE_GRAPH):
            store.discard(path)
            store.discard(path + SIDECAR)
    for digest in traces.documents:
        store.discard(layout.document(digest))
    for name, digest in traces.files:
        store.discard(layout.data_file(digest, name))
    for txn in traces.txns:
        store.discard(layout.validation_report(key, txn))
    for path in there:
        store.discard(path)
    if not store.exists(layout.snapshot()):
        collections.delete_mark(connection, dataset, collections.ITEMS_SNAPSHOT)
    if not store.exists(PROVENANCE_GRAPH):
        collections.delete_graph_marks(connection)


def _document(
    services: Services, layout: Layout, release: Release, published: datetime, before: int | None, txn: int = 0
) -> bytes:
    """Uses what this process staged in transaction `txn`, and otherwise reads it from the store."""

    def read(name: str, path: str) -> bytes:
        local = services.store.read_local(layout.staged_document(release.key, txn, name))
        return services.store.read(path) if local is None else local

    records = {}
    for name, digest in release.records.items():
        if name in RECORDS:
            data = read(name, layout.document(digest))
            records[name] = _facts(layout, digest, data)
            if name == MANIFEST:  # it names the list of software
                sbom = json.loads(data)["environment"]["sbom"]["sha256"]
                with suppress(ObjectMissing):
                    records[SBOM] = _facts(layout, sbom, read(SBOM, layout.document(sbom)))
    epoch = services.settings.source_date_epoch
    at = published if epoch is None else datetime.fromtimestamp(epoch, UTC)
    item = json.loads(read(STAGED_ITEM, layout.item(release.key)))
    return revision_document(item, release.revision, at, records, before)


def _facts(layout: Layout, digest: str, data: bytes) -> DocumentFacts:
    return DocumentFacts(f"../../../../{layout.document(digest)}", digest, len(data))


def _revisions(store: Store, layout: Layout, key: str) -> list[int]:
    """Returns the revisions with a document in the store, so that withdrawn and lost ones are not linked."""
    names = [path.rsplit("/", 1)[-1] for path in store.paths(layout.revisions(key))]
    return sorted(int(found[1]) for name in names if (found := re.fullmatch(r"([0-9]+)\.json", name)))


def first_schema_detail(config: KeyConfig) -> Mapping[str, Any]:
    """Returns what the log keeps of a key that is judged before its dataset has a fixed schema, so that it does not
    matter which declaration is in force when an interrupted publication is completed."""
    first = config.first_schema
    return {} if first is None else {FIRST_SCHEMA: asdict(first)}


def fix_schema(publication: Publication, releases: Sequence[IntendedRelease]) -> KeyFailures:
    """Records the schema if these releases are the first of their dataset. Refuses those with another schema than the
    first, which nobody has compared, unless readers see them already."""
    failures: KeyFailures = {}
    fixed: Schema | None = None
    for one in releases:
        judged = one.facts.details.get(Step.VALIDATE, {}).get(FIRST_SCHEMA)
        if judged is None:
            continue
        own = Schema(**judged)
        fixed = fixed or fix_first_schema(publication.connection, own) or own
        changes = diff_schemas(fixed.columns, own.columns)
        if changes and one.staged is not None:
            failures[one.key] = GateRefused(
                f"{one.key}: another schema was published first, and needs approval to change: {'; '.join(changes)}"
            )
    return failures
