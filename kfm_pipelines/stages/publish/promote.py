"""Makes a staged release visible to readers: immutable files first, then one pointer, then the key's history.

Everything here runs under the key's lock and can be repeated from any point until it is done. Each revision in the
history is a document of its own, so a publication writes only its own, the one before it and the list. Withdrawn
revisions are removed, because they would reveal what is masked again.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kfm_pipelines.catalog.facts import MANIFEST, DocumentFacts
from kfm_pipelines.catalog.stac.item import RECORDS, SBOM, history_document, revision_document, superseded_document
from kfm_pipelines.catalog.trust.signer import SIDECAR, open_sealed, write_sealed
from kfm_pipelines.catalog.trust.trust_root import load_trust_root
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import IntegrityBroken, ObjectMissing, SignatureRefused
from kfm_pipelines.services import Services
from kfm_pipelines.stages.publish.stage import Release
from kfm_pipelines.stages.publish.tables import Publication
from kfm_pipelines.stores import Layout, Store, read_if_exists
from kfm_pipelines.stores.layout import PROVENANCE_GRAPH, clear_work

log = logging.getLogger(__name__)


def verify_staged(store: Store, layout: Layout, release: Release, txn: int) -> None:
    """Raises IntegrityBroken unless the staging tier holds exactly what was staged."""
    documents = {
        layout.staged_document(release.key, txn, name): digest
        for name, digest in {**release.documents, **release.records}.items()
    }
    for path, digest in {
        layout.staged_data(release.key, txn): release.content_hash,
        layout.staged_item(release.key, txn): release.item_hash,
        **documents,
    }.items():
        if store.digest(path) != digest:
            raise IntegrityBroken(f"{release.key}: {path.rsplit('/', 1)[-1]} is not what was staged")


def promote(
    store: Store, layout: Layout, release: Release, txn: int, *, before_swap: Callable[[], None] = lambda: None
) -> None:
    """Publishes the release, then clears the key's work folders.

    Each part checks whether it is already done, because a predecessor may have been stopped anywhere; the staged files
    stay complete until the last part begins. `before_swap` is the last chance to refuse.
    """
    data = layout.staged_data(release.key, txn)
    parts = {data: layout.content(release.content_hash)}
    for name, digest in {**release.documents, **release.records}.items():
        parts[layout.staged_document(release.key, txn, name)] = layout.document(digest)
    missing = {staged: kept for staged, kept in parts.items() if not store.exists(kept)}
    if missing:
        verify_staged(store, layout, release, txn)
    for staged, kept in missing.items():
        store.copy_once(staged, kept)
    for name, path in release.shared_paths(layout).items():
        if not store.exists(path):
            _keep_shared(store, layout.staged_document(release.key, txn, name), path, release.shared[name])
    if store.digest(layout.item(release.key)) != release.item_hash:
        verify_staged(store, layout, release, txn)
        before_swap()
        store.swap(layout.staged_item(release.key, txn), layout.item(release.key), release.expected_item)
    if store.digest(layout.processed_data(release.key)) != release.content_hash:
        store.replace(data, layout.processed_data(release.key))
    clear_work(store, layout, release.key)


def _keep_shared(store: Store, staged: str, path: str, digest: str) -> None:
    """A shared file is not staged if it was published already; then it has been removed since."""
    if store.digest(staged) != digest:
        raise IntegrityBroken(f"{path} is gone, and {staged.rsplit('/', 1)[-1]} is not staged")
    store.copy_once(staged, path)


def write_history(
    services: Services, dataset: Dataset, release: Release, txn: int, publication: Publication, withdrawn: Sequence[str]
) -> list[int]:
    """Returns the earlier revisions that are missing from the store although they were not withdrawn. They are not
    written again here, because each was made under its own configuration. `withdrawn` are the contents that this
    publication withdraws."""
    store, layout, key = services.store, Layout(dataset.pipeline), release.key
    _withdraw(store, layout, key, publication, withdrawn)
    earlier = [revision for revision in _revisions(store, layout, key) if revision < release.revision]
    before, replaced = _last_verified(services, layout, key, earlier)
    published = publication.intended_at(release.revision, txn)
    document = _document(services, layout, release, published, before)
    write_sealed(services, layout.revision(key, release.revision), document)
    if before is not None and replaced is not None:
        write_sealed(services, layout.revision(key, before), superseded_document(replaced, release.revision))
    write_sealed(services, layout.history(key), history_document(dataset.pipeline, key, [*earlier, release.revision]))
    known = publication.earlier_revisions(release.revision, withdrawn) if release.revision > 1 else []
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
    write_sealed(services, layout.revision(key, old.revision), _document(services, layout, old, current.at, None))


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


def _document(services: Services, layout: Layout, release: Release, published: datetime, before: int | None) -> bytes:
    item = json.loads(services.store.read(layout.item(release.key)))
    epoch = services.settings.source_date_epoch
    at = published if epoch is None else datetime.fromtimestamp(epoch, UTC)
    records = _records(services.store, layout, release.records)
    return revision_document(item, release.revision, at, records, before)


def _records(store: Store, layout: Layout, digests: Mapping[str, str]) -> dict[str, DocumentFacts]:
    """Describes the revision's records, and the list of software that its manifest names."""
    records = {}
    for name, digest in digests.items():
        if name in RECORDS:
            data = store.read(layout.document(digest))
            records[name] = _facts(layout, digest, data)
            if name == MANIFEST:
                sbom = json.loads(data)["environment"]["sbom"]["sha256"]
                records |= _facts_if_present(store, layout, SBOM, sbom)
    return records


def _facts_if_present(store: Store, layout: Layout, name: str, digest: str) -> dict[str, DocumentFacts]:
    data = read_if_exists(store, layout.document(digest))
    return {} if data is None else {name: _facts(layout, digest, data)}


def _facts(layout: Layout, digest: str, data: bytes) -> DocumentFacts:
    return DocumentFacts(f"../../../../{layout.document(digest)}", digest, len(data))


def _revisions(store: Store, layout: Layout, key: str) -> list[int]:
    """Returns the revisions with a document in the store, so that withdrawn and lost ones are not linked."""
    names = [path.rsplit("/", 1)[-1] for path in store.paths(layout.revisions(key))]
    return sorted(int(found[1]) for name in names if (found := re.fullmatch(r"([0-9]+)\.json", name)))
