"""Checks that something vouches for every public file, and that collections and DCAT pages match their Items."""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

from kfm_pipelines.catalog.documents import SHA256_MULTIHASH_PREFIX
from kfm_pipelines.catalog.trust.signer import SIDECAR, open_sealed, read_public_keys
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.operations.verify.published_tree import PublishedTree
from kfm_pipelines.operations.verify.result import PUBLICATION_HINT, Check, run_check
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
    layout, name = Layout(""), path.rpartition("/")[2]
    places = (layout.content(digest), layout.document(digest), layout.data_file(digest, name))
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


def check_totals(tree: PublishedTree, catalog: Iterable[str], items: Collection[str]) -> Iterator[Check]:
    """`catalog` lists every path, `items` those of the current Items."""
    for path in catalog:
        parts = path.split("/")
        if len(parts) == 3 and parts[0] == CATALOG and parts[2] == "collection.json":
            mine = [item for item in items if item.startswith(f"{path.removesuffix('collection.json')}items/")]
            yield from run_check(
                "collection matches its Items", path, lambda at: _check_collection(tree, *at), (path, mine)
            )
        elif path.endswith("/dcat.jsonld") and "/by-time/" in path:
            yield from run_check("DCAT tells what its page holds", path, lambda at: _check_dcat(tree, at), path)


def check_histories(catalog: Iterable[str], items: Collection[str]) -> Iterator[Check]:
    """Keys do not disappear: a history always has a current Item."""
    parts = [path.split("/") for path in catalog]
    keys = {(one[1], one[3].removesuffix(".json")) for one in parts if len(one) > 3 and one[2] == "history"}
    for pipeline, key in sorted(keys):
        item, history = Layout(pipeline).item(key), Layout(pipeline).history(key)
        found = "" if item in items else f"{item} is gone"
        yield Check("history has an Item", history, ok=item in items, found=found)


def _check_collection(tree: PublishedTree, path: str, items: Collection[str]) -> Iterator[Check]:
    document = tree.document(path)
    held = [tree.document(item) for item in items]
    properties = [item["properties"] for item in held]
    pairs: dict[str, tuple[object, object]] = {
        "totals": (
            document["kfm:totals"],
            {
                "items": len(held),
                "rows": sum(one["table:row_count"] for one in properties),
                "bytes": sum(item["assets"]["data"]["file:size"] for item in held),
            },
        ),
        "versions": (
            document["summaries"]["kfm:transform_version"],
            sorted({one["kfm:transform_version"] for one in properties}),
        ),
    }
    if held:
        [interval] = document["extent"]["temporal"]["interval"]
        starts = min(datetime.fromisoformat(one["start_datetime"]) for one in properties)
        ends = max(datetime.fromisoformat(one["end_datetime"]) for one in properties)
        pairs["times"] = ([datetime.fromisoformat(one) for one in interval], [starts, ends])
    boxes = [item["bbox"] for item in held if item.get("bbox")]
    if boxes:  # else the collection has the declared extent
        west, south, east, north = zip(*boxes, strict=True)
        enclosing = [min(west), min(south), max(east), max(north)]
        pairs["place"] = (document["extent"]["spatial"]["bbox"], [enclosing])
    differing = [name for name, (stated, counted) in pairs.items() if stated != counted]
    found = f"differs from its Items: {', '.join(differing)}; {PUBLICATION_HINT}" if differing else ""
    yield Check("collection matches its Items", path, ok=not differing, found=found)


def _check_dcat(tree: PublishedTree, path: str) -> Iterator[Check]:
    page = path.removesuffix("dcat.jsonld") + "catalog.json"
    linked = {to for rel, to in tree.links(page, tree.document(page)) if rel == "item"}
    distributions = tree.document(path)["dcat:distribution"]
    listed = {_resolve_address(tree, path, one["dcat:accessURL"]): one for one in distributions}
    differing = [item for item in sorted(linked & listed.keys()) if not _describes_item(tree, path, listed[item], item)]
    found = f"differs from {differing[0]}" if differing else ""
    found = f"not the Items that {page} links" if linked != listed.keys() else found
    yield Check("DCAT tells what its page holds", path, ok=not found, found=found and f"{found}; {PUBLICATION_HINT}")


def _describes_item(tree: PublishedTree, path: str, distribution: dict[str, Any], item: str) -> bool:
    document = tree.document(item)
    asset = document["assets"]["data"]
    return (
        distribution["dcterms:identifier"],
        SHA256_MULTIHASH_PREFIX + distribution["spdx:checksum"]["spdx:checksumValue"]["@value"],
        distribution["dcat:byteSize"]["@value"],
        _resolve_address(tree, path, distribution["dcat:downloadURL"]),
    ) == (document["id"], asset["file:checksum"], str(asset["file:size"]), tree.resolve(item, asset["href"]))


def _resolve_address(tree: PublishedTree, base: str, node: dict[str, str]) -> str:
    path = tree.resolve(base, node["@id"])
    if path is None:
        raise IntegrityBroken(f"{base} has a link to outside the store")
    return path
