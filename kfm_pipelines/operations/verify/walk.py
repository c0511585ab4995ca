"""Verifies one key, or everything: from the catalog's root down, as a reader would go, then file by file."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from kfm_pipelines.catalog.trust.trust_root import TrustRoot
from kfm_pipelines.errors import KfmError, ObjectMissing
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.operations.verify.files import check_files, check_histories, check_totals
from kfm_pipelines.operations.verify.published_tree import PublishedTree, check_links
from kfm_pipelines.operations.verify.release import PublishedRelease, check_stac, verify_release
from kfm_pipelines.operations.verify.result import (
    MALFORMED_ERRORS,
    PUBLICATION_HINT,
    Check,
    VerificationResult,
    run_check,
)
from kfm_pipelines.operations.verify.revisions import GATES_GREEN, check_reports, check_revisions
from kfm_pipelines.operations.verify.tables import WHAT as TABLE
from kfm_pipelines.operations.verify.tables import check_key_in_table, check_table
from kfm_pipelines.stores import Layout, Store
from kfm_pipelines.stores.layout import CATALOG, ROOT_CATALOG, is_item


def verify_key(store: Store, trust: TrustRoot, key: str) -> VerificationResult:
    CanonicalKey.parse(key)
    tree = PublishedTree(store, trust)
    linked = [path.split("/") for path in _linked_paths(tree, ROOT_CATALOG, ("child",))]
    collections = [parts[1] for parts in linked if len(parts) > 1]
    for pipeline in (key.partition(":")[0], *collections):
        if tree.exists(Layout(pipeline).item(key)):
            checks = _check_item(tree, Layout(pipeline).item(key))
            in_table = run_check(TABLE, pipeline, lambda one: check_key_in_table(tree, one, key), pipeline)
            return VerificationResult(key, (*checks, *in_table))
    raise ObjectMissing(f"{key} is not published in {store.url}")


def verify_all(
    store: Store, trust: TrustRoot, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> Iterator[VerificationResult]:
    """Verifies each key that the catalog leads to, then the catalog itself and every file."""
    tree = PublishedTree(store, trust)
    if not tree.exists(ROOT_CATALOG):
        raise ObjectMissing(f"{ROOT_CATALOG} is not in the store {store.url}: nothing is published there")
    items, around = _walk_catalog(tree)
    catalog = store.paths(CATALOG)
    listed = [path for path in catalog if is_item(path)]
    for path in listed:
        if path not in items:
            found = f"no catalog page links it; {PUBLICATION_HINT}"
            around.append(Check("reached from the root", path, ok=False, found=found))
    every = sorted({*items, *listed})
    for done, path in enumerate(every):
        on_progress(done, len(every))
        yield VerificationResult(_key_of(path), tuple(_check_item(tree, path)))
    on_progress(len(every), len(every))
    processed = {Layout(path.split("/")[1]).processed_data(_key_of(path)) for path in every if is_item(path)}
    sums = (*check_histories(catalog, listed), *check_totals(tree, catalog, listed))
    pipelines = sorted({path.split("/")[1] for path in listed})
    tables = [one for name in pipelines for one in run_check(TABLE, name, lambda at: check_table(tree, at), name)]
    yield VerificationResult(CATALOG, (*around, *sums, *check_files(tree, processed), *tables))


def _check_item(tree: PublishedTree, path: str) -> Iterator[Check]:
    release = PublishedRelease(tree, path, is_historical=False)
    yield from verify_release(release)
    yield from run_check(GATES_GREEN, path, check_reports, release)
    for history in _history_paths(release):
        yield from run_check("history", history, lambda at: _check_catalog(tree, at), history)
        yield from run_check("revisions", history, lambda at: check_revisions(tree, at), history)
        for revision in _linked_paths(tree, history, ("item",)):
            yield from verify_release(PublishedRelease(tree, revision, is_historical=True))


def _history_paths(release: PublishedRelease) -> list[str]:
    try:
        return [path for rel, path in release.tree.links(release.path, release.item) if rel == "version-history"]
    except (KfmError, *MALFORMED_ERRORS):  # reported by the checks of the Item
        return []


def _walk_catalog(tree: PublishedTree) -> tuple[set[str], list[Check]]:
    """Returns every Item that the catalog leads to, and the checks of the documents on the way."""
    items: set[str] = set()
    checks: list[Check] = []
    seen = {ROOT_CATALOG}
    waiting = [ROOT_CATALOG]
    while waiting:
        path = waiting.pop()
        checks += run_check("catalog", path, lambda at: _check_catalog(tree, at), path)
        items.update(_linked_paths(tree, path, ("item",)))
        children = [child for child in _linked_paths(tree, path, ("child",)) if child not in seen]
        seen.update(children)
        waiting += children
    return items, checks


def _check_catalog(tree: PublishedTree, path: str) -> Iterator[Check]:
    yield tree.check_seal(path)
    document = tree.document(path)
    yield from check_stac(path, document)
    yield from check_links(tree, path, document)


def _linked_paths(tree: PublishedTree, path: str, relations: tuple[str, ...]) -> list[str]:
    """Skips links that cannot be followed; `check_links` reports them."""
    found: list[str] = []
    with suppress(KfmError, *MALFORMED_ERRORS):
        for link in tree.document(path)["links"]:
            with suppress(KfmError, *MALFORMED_ERRORS):
                found += [to for rel, to in tree.links(path, {"links": [link]}) if rel in relations]
    return found


def _key_of(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".json")
