"""One key, or all that is published: from the root of the catalog down, as a stranger would go, and then every file."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from kfm_pipelines.catalog.trust.trust_root import Trust
from kfm_pipelines.errors import KfmError, ObjectMissing
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.operations.verify.check import MALFORMED, UNDER_WAY, Check, Verified, looked
from kfm_pipelines.operations.verify.files import every_file
from kfm_pipelines.operations.verify.published_tree import Shelf, links_resolve
from kfm_pipelines.operations.verify.release import Release, is_valid, verify_release
from kfm_pipelines.operations.verify.revisions import GREEN, reports_agree, revisions_agree
from kfm_pipelines.operations.verify.totals import histories_have_items, sums_agree
from kfm_pipelines.stores import Layout, Store
from kfm_pipelines.stores.layout import CATALOG, ROOT_CATALOG, is_item


def verify_key(store: Store, trust: Trust, key: str) -> Verified:
    """The key's current revision and its history."""
    CanonicalKey.parse(key)
    shelf = Shelf(store, trust)
    linked = [path.split("/") for path in _linked(shelf, ROOT_CATALOG, ("child",))]
    collections = [parts[1] for parts in linked if len(parts) > 1]
    for pipeline in (key.partition(":")[0], *collections):
        if shelf.exists(Layout(pipeline).item(key)):
            return Verified(key, tuple(_checks_of(shelf, Layout(pipeline).item(key))))
    raise ObjectMissing(f"{key} is not published in {store.url}")


def verify_all(
    store: Store, trust: Trust, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> Iterator[Verified]:
    """Each key that the catalog leads to, then the catalog itself and every file there is."""
    shelf = Shelf(store, trust)
    if not shelf.exists(ROOT_CATALOG):
        raise ObjectMissing(f"{ROOT_CATALOG} is not in the store {store.url}: nothing is published there")
    items, around = _walked(shelf)
    catalog = store.paths(CATALOG)
    listed = [path for path in catalog if is_item(path)]
    for path in listed:
        if path not in items:
            found = f"no page of the catalog links it; {UNDER_WAY}"
            around.append(Check("reached from the root", path, ok=False, found=found))
    every = sorted({*items, *listed})
    for done, path in enumerate(every):
        on_progress(done, len(every))
        yield Verified(_key_of(path), tuple(_checks_of(shelf, path)))
    on_progress(len(every), len(every))
    processed = {Layout(path.split("/")[1]).processed_data(_key_of(path)) for path in every if is_item(path)}
    sums = (*histories_have_items(catalog, listed), *sums_agree(shelf, catalog, listed))
    yield Verified(CATALOG, (*around, *sums, *every_file(shelf, processed)))


def _checks_of(tree: Shelf, path: str) -> Iterator[Check]:
    release = Release(tree, path, is_historical=False)
    yield from verify_release(release)
    yield from looked(GREEN, path, reports_agree, release)
    for history in _history(release):
        yield from looked("history", history, lambda at: _catalog(tree, at), history)
        yield from looked("revisions", history, lambda at: revisions_agree(tree, at), history)
        for revision in _linked(tree, history, ("item",)):
            yield from verify_release(Release(tree, revision, is_historical=True))


def _history(release: Release) -> list[str]:
    try:
        return [path for rel, path in release.tree.links(release.path, release.item) if rel == "version-history"]
    except (KfmError, *MALFORMED):  # said by the checks of the Item
        return []


def _walked(tree: Shelf) -> tuple[set[str], list[Check]]:
    """Every Item that the catalog leads to, and what was found on the way."""
    items: set[str] = set()
    checks: list[Check] = []
    seen = {ROOT_CATALOG}
    waiting = [ROOT_CATALOG]
    while waiting:
        path = waiting.pop()
        checks += looked("catalog", path, lambda at: _catalog(tree, at), path)
        items.update(_linked(tree, path, ("item",)))
        children = [child for child in _linked(tree, path, ("child",)) if child not in seen]
        seen.update(children)
        waiting += children
    return items, checks


def _catalog(tree: Shelf, path: str) -> Iterator[Check]:
    yield tree.check_seal(path)
    document = tree.document(path)
    yield from is_valid(path, document)
    yield from links_resolve(tree, path, document)


def _linked(tree: Shelf, path: str, relations: tuple[str, ...]) -> list[str]:
    """One link that cannot be followed does not hide the others. That it is there is said where it is checked."""
    found: list[str] = []
    with suppress(KfmError, *MALFORMED):
        for link in tree.document(path)["links"]:
            with suppress(KfmError, *MALFORMED):
                found += [to for rel, to in tree.links(path, {"links": [link]}) if rel in relations]
    return found


def _key_of(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".json")
