"""Checks that something vouches for every public file."""

from collections.abc import Collection, Iterator

from kfm_pipelines.catalog.trust.signer import SIDECAR, open_sealed, read_public_keys
from kfm_pipelines.operations.verify.published_tree import PublishedTree
from kfm_pipelines.operations.verify.result import Check, run_check
from kfm_pipelines.stores.layout import CATALOG, KEYS, REPORTS, Layout, is_item, public_key

UNFINISHED = ".part"  # suffix of files that are still being written
TIERS = (CATALOG, "objects", "processed", REPORTS)
ORPHAN = "no readable document refers to it; `kfm gc` removes what is not needed"


def check_files(tree: PublishedTree, processed: Collection[str]) -> Iterator[Check]:
    """`processed` are the files the Items describe. Every path read so far counts as referred to."""
    referred = tree.paths_read()
    for tier in TIERS:
        yield from _check_skipped_files(tree, tier)
    for path in _finished_paths(tree, "objects"):
        yield from run_check("object is what its name says", path, lambda at: _check_object(tree, at), path)
        if path not in referred:
            yield Check("object is referred to", path, ok=True, found=ORPHAN, note=True)
    for path in _finished_paths(tree, "processed"):
        if path not in processed:
            yield Check("belongs to a key", path, ok=False, found="no Item describes it")
    for path in _finished_paths(tree, CATALOG):
        if path.startswith(f"{KEYS}/"):
            yield from run_check("public key", path, lambda at: _check_public_key(tree, at), path)
        elif not is_item(path):  # Items are attested
            yield from run_check("sealed", path, lambda at: _check_seal(tree, at), path)
    for path in _finished_paths(tree, REPORTS):
        yield from run_check("sealed", path, lambda at: _check_seal(tree, at), path)


def _check_skipped_files(tree: PublishedTree, tier: str) -> Iterator[Check]:
    """Reports entries whose content is not checked."""
    for path in tree.store.foreign_entries(tier):
        yield Check("is a file of its own", path, ok=False, found="not a regular file; a store has only those")
    for path in tree.store.paths(tier):
        if path.endswith(UNFINISHED):
            yield Check("finished", path, ok=True, found="being written, or left by a crash: do not use", note=True)


def _finished_paths(tree: PublishedTree, tier: str) -> list[str]:
    return [path for path in tree.store.paths(tier) if not path.endswith(UNFINISHED)]


def _check_object(tree: PublishedTree, path: str) -> Iterator[Check]:
    digest, _ = tree.digest_and_size(path)
    places = (Layout("").content(digest), Layout("").document(digest))
    yield Check("object is what its name says", path, ok=path in places)


def _check_public_key(tree: PublishedTree, path: str) -> Iterator[Check]:
    data = tree.read(path)
    [key] = read_public_keys(data, path)
    same = (public_key(key.key_id), key.pem) == (path, data)
    yield Check("public key is what its name says", path, ok=same)


def _check_seal(tree: PublishedTree, path: str) -> Iterator[Check]:
    """Accepts a seal inside the document or in a sidecar file."""
    if path.endswith(SIDECAR) or not tree.exists(path + SIDECAR):
        yield tree.check_seal(path)
        sealed = path.removesuffix(SIDECAR)
        if not tree.exists(sealed):
            yield Check("sealed", path, ok=False, found=f"{sealed} is gone")
        return
    document, _ = open_sealed(path + SIDECAR, tree.read(path + SIDECAR), tree.trust.keys)
    digest, size = tree.digest_and_size(path)
    same = (document["path"], document["sha256"], document["size"]) == (path, digest, size)
    yield Check("sealed", path, ok=same, found="" if same else "differs from its seal")
