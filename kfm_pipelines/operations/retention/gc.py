"""Garbage collection: immutable objects without references, and work folders of finished transactions.

An object stays while a catalog document, the write-ahead log or a retained manifest names it. Catalog and log must
agree before it is removed, so that one of them may be damaged or out of date. Finding garbage blocks nobody. Before
removal the log is read again while publications wait for a moment: it knows everything published since.
"""

import hashlib
import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime

from kfm_pipelines.catalog.documents import read_item
from kfm_pipelines.catalog.trust.environment import environment_facts
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.services import Services
from kfm_pipelines.stages.publish import tables
from kfm_pipelines.stages.publish.stage import Release
from kfm_pipelines.stores import Store, read_if_exists
from kfm_pipelines.stores.layout import CATALOG, OBJECTS, TIERS, WorkFolder, digest_of, is_key_document, work_folder

READERS = 8  # threads; reading from S3 is mostly waiting
HOLD_SECONDS = 2.0  # publications wait this long at most; they give up after five
PAUSE_SECONDS = 0.2  # lets waiting publications proceed
REFUSALS_IN_A_ROW = 5

_OBJECT = re.compile(rb"objects/sha256/[0-9a-f]{2}/([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Garbage:
    """What was found, or after a sweep, removed. Objects are checked again before they are removed."""

    objects: tuple[str, ...]
    folders: tuple[str, ...]
    refused: str | None  # why no object may be removed
    since: datetime  # releases staged later are checked again
    left: int | None = None  # after a sweep: objects not checked again because publications kept running


def collect_garbage(services: Services) -> Garbage:
    return sweep(services, find_garbage(services))


def find_garbage(services: Services) -> Garbage:
    with services.database.transaction() as connection:
        since = tables.margin_before_now(connection)
        held = tables.retained_releases(connection)
    folders = tuple(sorted(folder.path for folder in _idle_folders(services)))
    try:
        objects = _unreferenced_objects(services.store, held)
    except IntegrityBroken as error:
        return Garbage((), folders, str(error), since)
    return Garbage(objects, folders, None, since)


def sweep(services: Services, garbage: Garbage) -> Garbage:
    # Finished transactions do not start again, so this needs no lock.
    for folder in garbage.folders:
        services.store.remove(folder)
    waiting = deque(garbage.objects)
    removed: list[str] = []
    refusals = 0
    while waiting and refusals < REFUSALS_IN_A_ROW:
        gone = _sweep_batch(services, waiting, garbage.since)
        refusals = refusals + 1 if gone is None else 0
        removed += gone or []
        if waiting:
            time.sleep(PAUSE_SECONDS)
    return replace(garbage, objects=tuple(removed), left=len(waiting))


def _sweep_batch(services: Services, waiting: deque[str], since: datetime) -> list[str] | None:
    """Removes objects for a limited time. Returns None when running publications hold the lock."""
    removed: list[str] = []
    with tables.lock_for_collection(services.database) as connection:
        if connection is None:
            return None
        kept = {digest for one in tables.retained_releases(connection, since=since) for digest in one.object_digests}
        until = time.monotonic() + HOLD_SECONDS
        while waiting and (not removed or time.monotonic() < until):
            path = waiting.popleft()
            if digest_of(path) not in kept:
                connection.execute("SELECT")  # fails when the lock's connection is lost
                services.store.discard(path)
                removed.append(path)
    return removed


def _unreferenced_objects(store: Store, held: Iterable[Release]) -> tuple[str, ...]:
    """Raises IntegrityBroken when a document cannot be read, because its references are unknown."""
    documents = [path for path in store.paths(CATALOG) if path.endswith((".json", ".jsonld"))]
    marked = _read_digests(documents, lambda path: _referenced_digests(store, path))
    marked |= {digest for one in held for digest in one.object_digests}
    objects = store.paths(OBJECTS)
    found = [path for path in objects if digest_of(path) not in marked]
    if any(path.endswith(".json") for path in found):
        kept = [path for path in objects if digest_of(path) in marked and path.endswith(".json")]
        marked |= _read_digests(kept, lambda path: _sbom_of_kept(store, path))
        marked.add(environment_facts().sbom)
    return tuple(path for path in found if digest_of(path) not in marked)


def _referenced_digests(store: Store, path: str) -> set[str]:
    data = read_if_exists(store, path)
    if data is None:
        return set()  # removed since it was listed
    document = read_item(data)
    named = {digest.decode() for digest in _OBJECT.findall(data)}
    if not document or (is_key_document(path) and document.get("type") not in ("Feature", "Catalog")):
        raise IntegrityBroken(f"{path} cannot be read, so its references are unknown; restore it first")
    if document.get("type") == "Feature" and not named:
        raise IntegrityBroken(f"{path} is an Item without references to objects; restore it first")
    return named


def _sbom_of_kept(store: Store, path: str) -> set[str]:
    """Returns the SBOM a manifest names; nothing for other documents."""
    data = read_if_exists(store, path)
    if data is None:
        return set()  # removed since it was listed
    if hashlib.sha256(data).hexdigest() != digest_of(path):
        raise IntegrityBroken(f"{path} does not match its name, so its references are unknown")
    manifest = read_item(data)
    return {manifest["environment"]["sbom"]["sha256"]} if manifest.get("kind") == "kfm-run-manifest" else set()


def _idle_folders(services: Services) -> set[WorkFolder]:
    """Returns work folders of finished transactions. Keys and epochs unknown to the database are left alone."""
    paths = [path for tier in TIERS for path in services.store.paths(tier)]
    found = {folder for folder in map(work_folder, paths) if folder is not None}
    # Read after listing: every folder found belongs to a transaction that began before.
    with services.database.transaction() as connection:
        alive, epochs = tables.open_transactions(connection), tables.newest_epochs(connection)
    return {one for one in found if one.txn <= epochs.get(one.key, 0) and (one.key, one.txn) not in alive}


def _read_digests(paths: Iterable[str], digests_of: Callable[[str], set[str]]) -> set[str]:
    with ThreadPoolExecutor(READERS) as pool:
        return set().union(*pool.map(digests_of, paths))
