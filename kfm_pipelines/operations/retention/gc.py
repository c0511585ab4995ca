"""Garbage: immutable objects that nothing refers to, and work folders of transactions that are over.

An object stays when any document of the catalog names it, when the log says that a release has it, or when a manifest
that stays names it. Both the catalog and the log have to agree that it is nobody's, so one of them may be damaged, or
be older than the other. Finding takes as long as it takes, and holds nobody off. Then the log is asked once more with
nobody publishing: whatever was published since has been through it. Only then, and for moments, do publications wait.
"""

import hashlib
import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kfm_pipelines.catalog.facts import MANIFEST
from kfm_pipelines.catalog.trust.environment import environment_facts
from kfm_pipelines.declarations.dataset import pipeline_of
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.services import Services
from kfm_pipelines.stages.publish.tables import (
    RetainedRelease,
    lock_for_collection,
    margin_before_now,
    newest_epochs,
    open_transactions,
    retained_releases,
)
from kfm_pipelines.state.database import Database
from kfm_pipelines.stores import Layout, Store, read_if_exists
from kfm_pipelines.stores.layout import CATALOG, OBJECTS, TIERS, WorkFolder, digest_of, is_key_document, work_folder

READERS = 8  # at once; on S3 a read is mostly waiting
HOLD_SECONDS = 2.0  # publications wait no longer at a time, and give up after five
PAUSE_SECONDS = 0.2  # for those that waited
REFUSALS_IN_A_ROW = 5

_OBJECT = re.compile(rb"objects/sha256/[0-9a-f]{2}/([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Garbage:
    """What was found. Objects are looked at again before they go."""

    objects: tuple[str, ...]
    folders: tuple[str, ...]
    refused: str | None  # why no object may go
    since: datetime  # what was staged later has to be asked about


@dataclass(frozen=True, slots=True)
class SweepResult:
    objects: tuple[str, ...]
    folders: tuple[str, ...]
    left: int  # objects that may be garbage, but publications gave no chance to look again
    refused: str | None


def collect_garbage(services: Services) -> SweepResult:
    return sweep(services, find_garbage(services))


def find_garbage(services: Services) -> Garbage:
    with services.database.transaction() as connection:
        since = margin_before_now(connection)
        held = retained_releases(connection)
    folders = tuple(sorted(folder.path for folder in _idle_folders(services)))
    try:
        objects = _unreferenced_objects(services.store, held)
    except IntegrityBroken as error:
        return Garbage((), folders, str(error), since)
    return Garbage(objects, folders, None, since)


def sweep(services: Services, garbage: Garbage) -> SweepResult:
    # Their transactions are over, and what is over does not begin again: nobody has to be held off.
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
    return SweepResult(tuple(removed), garbage.folders, len(waiting), garbage.refused)


def _sweep_batch(services: Services, waiting: deque[str], since: datetime) -> list[str] | None:
    """Remove as many as there is time for; None when publications go on all the time."""
    removed: list[str] = []
    with lock_for_collection(services.database) as connection:
        if connection is None:
            return None
        kept = {digest for one in retained_releases(connection, since=since) for digest in one.digests}
        until = time.monotonic() + HOLD_SECONDS
        while waiting and (not removed or time.monotonic() < until):
            path = waiting.popleft()
            if digest_of(path) not in kept:
                connection.execute("SELECT")  # as long as the database answers, nobody publishes
                services.store.discard(path)
                removed.append(path)
    return removed


def _unreferenced_objects(store: Store, held: Iterable[RetainedRelease]) -> tuple[str, ...]:
    """IntegrityBroken when some document cannot be read: nobody knows what it refers to."""
    documents = [path for path in store.paths(CATALOG) if path.endswith((".json", ".jsonld"))]
    marked = _read_digests(documents, lambda path: _referenced_digests(store, path))
    marked |= {digest for one in held for digest in one.digests}
    objects = store.paths(OBJECTS)
    found = [path for path in objects if digest_of(path) not in marked]
    if any(path.endswith(".json") for path in found):
        kept = [path for path in objects if digest_of(path) in marked and path.endswith(".json")]
        marked |= _read_digests(kept, lambda path: _sbom_of_kept(store, path)) | _sboms_of_staged(store, held)
        marked.add(environment_facts().sbom)
    return tuple(path for path in found if digest_of(path) not in marked)


def _referenced_digests(store: Store, path: str) -> set[str]:
    data = read_if_exists(store, path)
    if data is None:
        return set()  # gone since it was listed
    document = _parse_object(data)
    named = {digest.decode() for digest in _OBJECT.findall(data)}
    if document is None or (is_key_document(path) and document.get("type") not in ("Feature", "Catalog")):
        raise IntegrityBroken(f"{path} cannot be read, so nobody knows what it refers to; restore it first")
    if document.get("type") == "Feature" and not named:
        raise IntegrityBroken(f"{path} is an Item that refers to no object; restore it first")
    return named


def _sbom_of_kept(store: Store, path: str) -> set[str]:
    """What a kept document names beside what the catalog does; nothing unless it is a manifest."""
    data = read_if_exists(store, path)
    if data is None:
        return set()  # gone since it was listed
    if hashlib.sha256(data).hexdigest() != digest_of(path):
        raise IntegrityBroken(f"{path} holds other bytes than its name says, so nobody knows what it refers to")
    return _sbom_of(data)


def _sboms_of_staged(store: Store, held: Iterable[RetainedRelease]) -> set[str]:
    """A manifest that is not yet kept is where it was staged."""
    layouts = [(Layout(pipeline_of(one.dataset)), one) for one in held if one.is_open]
    staged = [read_if_exists(store, layout.staged_document(one.key, one.txn, MANIFEST)) for layout, one in layouts]
    return {digest for data in staged if data is not None for digest in _sbom_of(data)}


def _sbom_of(data: bytes) -> set[str]:
    manifest = _parse_object(data)
    if manifest is None or manifest.get("kind") != "kfm-run-manifest":
        return set()
    return {manifest["environment"]["sbom"]["sha256"]}


def _idle_folders(services: Services) -> set[WorkFolder]:
    """Work folders of transactions that are over. Of a key or an epoch that the database has never heard of nobody can
    say so."""
    paths = [path for tier in TIERS for path in services.store.paths(tier)]
    found = {folder for folder in map(work_folder, paths) if folder is not None}
    # Asked after the folders were found: one that is there was begun before this.
    alive, epochs = _work_in_progress(services.database)
    return {one for one in found if one.txn <= epochs.get(one.key, 0) and (one.key, one.txn) not in alive}


def _work_in_progress(database: Database) -> tuple[set[tuple[str, int]], dict[str, int]]:
    with database.transaction() as connection:
        return open_transactions(connection), newest_epochs(connection)


def _read_digests(paths: Iterable[str], digests_of: Callable[[str], set[str]]) -> set[str]:
    with ThreadPoolExecutor(READERS) as pool:
        return set().union(*pool.map(digests_of, paths))


def _parse_object(data: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
