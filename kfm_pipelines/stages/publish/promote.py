"""Publish: immutable bytes first, then one pointer. Can be repeated from any point until it is done."""

from collections.abc import Callable

from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.stages.publish.stage import Release
from kfm_pipelines.stores import Layout, Store
from kfm_pipelines.stores.layout import clear_work


def verify_staged(store: Store, layout: Layout, release: Release, txn: int) -> None:
    """What lies in the staging tier must be what was staged, to the byte."""
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
    """Make the release what readers see, then clear the key's work folders. Call under the key's lock.

    Each part looks whether it is done, because a predecessor may have been stopped anywhere; the staged files are
    complete until the last part begins. `before_swap` is the last chance to refuse.
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
    """Not staged where it was kept already; then somebody has taken it away since."""
    if store.digest(staged) != digest:
        raise IntegrityBroken(f"{path} is gone, and {staged.rsplit('/', 1)[-1]} is not staged")
    store.copy_once(staged, path)
