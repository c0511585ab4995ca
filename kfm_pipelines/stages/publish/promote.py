"""Makes a staged release visible to readers: immutable files first, then one pointer, then the key's history.

Everything here runs under the key's lock. Only the process that staged a release can do what comes before the swap; if
it has ended, the release is computed again. What follows can be repeated by anyone from any point until it is done.
Each revision in the history is a document of its own, so a publication writes only its own, the one before it and the
list. Withdrawn revisions are removed, because they would reveal what is masked again.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from kfm_pipelines.catalog.documents import sha256
from kfm_pipelines.catalog.facts import MANIFEST, SBOM, DocumentFacts
from kfm_pipelines.catalog.stac.item import RECORDS, history_document, revision_document, superseded_document
from kfm_pipelines.catalog.trust.signer import SIDECAR, open_sealed, write_sealed
from kfm_pipelines.catalog.trust.trust_root import load_trust_root
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import IntegrityBroken, ObjectMissing, SignatureRefused
from kfm_pipelines.services import Services
from kfm_pipelines.stages.publish.stage import Release, StagedFiles
from kfm_pipelines.stages.publish.tables import Publication
from kfm_pipelines.stores import Layout, Store, WorkStore
from kfm_pipelines.stores.layout import PROVENANCE_GRAPH, STAGED_DATA, STAGED_ITEM

log = logging.getLogger(__name__)


def read_staged(store: WorkStore, layout: Layout, release: Release, txn: int) -> StagedFiles:
    """Returns the staged files. Raises IntegrityBroken unless this process holds exactly what was staged."""
    digests = {STAGED_DATA: release.content_hash, STAGED_ITEM: release.item_hash}
    digests |= {**release.documents, **release.records, **release.shared}
    staged = {}
    for name, digest in digests.items():
        data = store.read_local(layout.staged_document(release.key, txn, name))
        if data is None:
            raise IntegrityBroken(f"{release.key}: the process that staged {name} has ended")
        if sha256(data) != digest:
            raise IntegrityBroken(f"{release.key}: {name} is not what was staged")
        staged[name] = data
    return staged


def promote(
    store: WorkStore, layout: Layout, release: Release, staged: StagedFiles | None, before_swap: Callable[[], None]
) -> None:
    """Publishes the staged files. None: readers see the release already, because a predecessor was stopped after the
    swap, and only what follows is repeated. `before_swap` is the last chance to refuse."""
    if staged is not None:
        store.create(layout.content(release.content_hash), staged[STAGED_DATA])
        for name, digest in {**release.documents, **release.records}.items():
            store.create(layout.document(digest), staged[name])
        for name, path in release.shared_paths(layout).items():
            store.create_shared(path, staged[name])
        before_swap()
        store.swap(layout.item(release.key), staged[STAGED_ITEM], release.expected_item)
    store.replace(layout.content(release.content_hash), layout.processed_data(release.key))


def write_history(
    services: Services, dataset: Dataset, release: Release, txn: int, publication: Publication, withdrawn: Sequence[str]
) -> list[int]:
    """Returns the earlier revisions that are missing from the store although they were not withdrawn. They are not
    written again here, because each was made under its own configuration. `withdrawn` are the contents that this
    publication withdraws."""
    store, layout, key = services.store, Layout(dataset.pipeline), release.key
    _withdraw(store, layout, key, publication, withdrawn)
    is_first = release.revision == 1
    earlier = [] if is_first else [one for one in _revisions(store, layout, key) if one < release.revision]
    before, replaced = _last_verified(services, layout, key, earlier)
    published = publication.intended_at(release.revision, txn)
    document = _document(services, layout, release, published, before, txn)
    write_sealed(services, layout.revision(key, release.revision), document)
    if before is not None and replaced is not None:
        write_sealed(services, layout.revision(key, before), superseded_document(replaced, release.revision))
    write_sealed(services, layout.history(key), history_document(dataset.pipeline, key, [*earlier, release.revision]))
    known = [] if is_first else publication.earlier_revisions(release.revision, withdrawn)
    return [revision for revision in known if revision not in earlier]


def write_current_if_missing(services: Services, dataset: Dataset, release: Release, publication: Publication) -> None:
    """Writes the current revision's document before the swap if it predates the history; later it could not be."""
    store, layout, key = services.store, Layout(dataset.pipeline), release.key
    current = publication.current_release()
    if current is None or current.detail["revision"] >= release.revision:
        return
    old = Release.from_values(current.detail)
    if store.exists(layout.revision(key, old.revision)) or store.digest(layout.item(key)) != old.item_hash:
        return
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
    publication.hold_snapshots()
    traces = publication.traces_of(withdrawn)
    there = [path for one in traces.revisions if store.exists(path := layout.revision(key, one))]
    if there or traces.are_current:
        for path in (layout.snapshot(), PROVENANCE_GRAPH):
            store.discard(path)
            store.discard(path + SIDECAR)
    for digest in traces.documents:
        store.discard(layout.document(digest))
    for txn in traces.txns:
        store.discard(layout.validation_report(key, txn))
    for path in there:
        store.discard(path)
    if not store.exists(layout.snapshot()):
        publication.forget_snapshot()
    if not store.exists(PROVENANCE_GRAPH):
        publication.forget_graph()


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
