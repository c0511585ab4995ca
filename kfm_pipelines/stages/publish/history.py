"""The history of a key in the catalog, written under the key's lock right after the swap, and by whoever rolls forward.

Each revision is a document of its own, so a publication touches its own, the one before it and the list of them,
however many there are. A revision that was taken back disappears: it would tell what is masked again.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kfm_pipelines.catalog.facts import MANIFEST, DocumentFacts
from kfm_pipelines.catalog.stac.item import RECORDS, SBOM, history_document, revision_document, superseded_document
from kfm_pipelines.catalog.trust.signer import SIDECAR, open_sealed, write_sealed
from kfm_pipelines.catalog.trust.trust_root import load_trust_root
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import IntegrityBroken, ObjectMissing, SignatureRefused
from kfm_pipelines.services import Services
from kfm_pipelines.stages.publish.commit import Publication
from kfm_pipelines.stages.publish.stage import Release
from kfm_pipelines.stores import Layout, Store, read_if_exists
from kfm_pipelines.stores.layout import PROVENANCE_GRAPH

log = logging.getLogger(__name__)


def write_history(
    services: Services, dataset: Dataset, release: Release, txn: int, publication: Publication, withdrawn: Sequence[str]
) -> list[int]:
    """`withdrawn` are the contents that were taken back with this publication. Which earlier revisions are not there,
    though nobody took them back: each was made under a configuration of its own, so they are not made again here."""
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
    """Before the swap: what is current now may be from before there was a history, and nobody could write it after."""
    store, layout, key = services.store, Layout(dataset.pipeline), release.key
    current = publication.current_release()
    if current is None or current.detail["revision"] >= release.revision:
        return
    old = Release.from_detail(dict(current.detail))
    if store.exists(layout.revision(key, old.revision)) or store.digest(layout.item(key)) != old.item_hash:
        return
    write_sealed(services, layout.revision(key, old.revision), _document(services, layout, old, current.at, None))


def _last_verified(
    services: Services, layout: Layout, key: str, earlier: list[int]
) -> tuple[int, Mapping[str, Any]] | tuple[None, None]:
    """The last of the earlier revisions, and its document. One that is not as it was sealed is left out and not sealed
    again, and nothing about it may stop a publication that readers see already; `kfm verify` names it."""
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
    """Also from the table of all Items and the graph of all provenance: the next ones are made without it. A
    predecessor may have been stopped anywhere, so what it has done is done again until the log knows of it."""
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
    told = published if epoch is None else datetime.fromtimestamp(epoch, UTC)
    records = _records(services.store, layout, release.records)
    return revision_document(item, release.revision, told, records, before)


def _records(store: Store, layout: Layout, digests: Mapping[str, str]) -> dict[str, DocumentFacts]:
    """What tells how the revision came about. The list of software is one for many revisions: the manifest names it."""
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
    """Which are there: the documents are asked, so that one that was taken back or lost is not linked."""
    names = [path.rsplit("/", 1)[-1] for path in store.paths(layout.revisions(key))]
    return sorted(int(found[1]) for name in names if (found := re.fullmatch(r"([0-9]+)\.json", name)))
