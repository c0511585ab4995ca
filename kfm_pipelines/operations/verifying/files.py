"""Every public file: something vouches for each, or it should not be there."""

from collections.abc import Collection, Iterator

from kfm_pipelines.catalogs.keys import read_public_keys
from kfm_pipelines.catalogs.seal import SIDECAR, unsealed
from kfm_pipelines.operations.verifying.checking import Check, looked
from kfm_pipelines.operations.verifying.shelf import Shelf
from kfm_pipelines.stores.layout import KEYS, REPORTS, public_key

UNFINISHED = ".part"  # what a store writes to before it gives a file its name


def every_file(shelf: Shelf, processed: Collection[str]) -> Iterator[Check]:
    """`processed` are the files that the Items speak of."""
    for path in _paths(shelf, "objects"):
        yield from looked("object is what its name says", path, lambda at: _object(shelf, at), path)
    for path in _paths(shelf, "processed"):
        if path not in processed:
            yield Check("belongs to a key", path, ok=False, found="no Item speaks of it")
    for path in _paths(shelf, "catalog"):
        if path.startswith(f"{KEYS}/"):
            yield from looked("public key", path, lambda at: _public_key(shelf, at), path)
        elif not is_item(path):  # those are attested
            yield from looked("sealed", path, lambda at: _sealed(shelf, at), path)
    for path in _paths(shelf, REPORTS):
        yield from looked("sealed", path, lambda at: _sealed(shelf, at), path)


def is_item(path: str) -> bool:
    """Whether it is the current Item of a key."""
    parts = path.split("/")
    return len(parts) == 4 and parts[2] == "items" and path.endswith(".json")


def _paths(shelf: Shelf, tier: str) -> list[str]:
    return [path for path in shelf.store.paths(tier) if not path.endswith(UNFINISHED)]


def _object(shelf: Shelf, path: str) -> Iterator[Check]:
    digest, _ = shelf.facts(path)
    named = path.rsplit("/", 1)[-1].partition(".")[0]
    yield Check("object is what its name says", path, ok=named == digest)


def _public_key(shelf: Shelf, path: str) -> Iterator[Check]:
    data = shelf.read(path)
    [key] = read_public_keys(data, path)
    same = (public_key(key.key_id), key.pem) == (path, data)
    yield Check("public key is what its name says", path, ok=same)


def _sealed(shelf: Shelf, path: str) -> Iterator[Check]:
    """By a seal of its own, or by one beside it."""
    if path.endswith(SIDECAR) or not shelf.exists(path + SIDECAR):
        yield shelf.seal(path)
        sealed = path.removesuffix(SIDECAR)
        if not shelf.exists(sealed):
            yield Check("sealed", path, ok=False, found=f"{sealed} is gone")
        return
    document, _ = unsealed(path + SIDECAR, shelf.read(path + SIDECAR), shelf.trust.keys)
    digest, size = shelf.facts(path)
    same = (document["path"], document["sha256"], document["size"]) == (path, digest, size)
    yield Check("sealed", path, ok=same, found="" if same else "not what the seal beside it tells")
