"""Keys taken through all stages in this process, as a run does it, without Dagster; and a reader meanwhile."""

import hashlib
import json
import posixpath
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.events import ObjectNotice, fold, normalise
from kfm_pipelines.local.samples import streamflow_object
from kfm_pipelines.operations.batch import Batch
from kfm_pipelines.operations.collections import refresh_stale
from kfm_pipelines.operations.handoff import Handoff
from kfm_pipelines.operations.purposes import EVENTS, Purpose
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines.state.recording import record
from kfm_pipelines.stores import Layout, Store
from kfm_pipelines.stores.layout import ROOT_CATALOG
from kfm_pipelines_tests.site import START, Site


@dataclass(frozen=True)
class Told:
    """What a key is to be computed from next."""

    key: str
    message: str


def publish(workshop: Workshop, dataset: Dataset, keys: Sequence[str], run_id: str, purpose: Purpose = EVENTS) -> Batch:
    """From the inbox to the catalog; what became of the keys is in the batch, and in the log."""
    batch = stage(workshop, dataset, keys, run_id, purpose)
    batch.publish(keys)
    assert refresh_stale(workshop) == []
    return batch


def stage(workshop: Workshop, dataset: Dataset, keys: Sequence[str], run_id: str, purpose: Purpose = EVENTS) -> Batch:
    """As far as where no reader looks."""
    batch, layout, store = Batch(workshop, dataset, run_id, purpose), Layout(dataset.pipeline), workshop.store

    def kept(handoffs: Iterable[Handoff], path: Callable[[str, int], str]) -> Iterator[Handoff]:
        for handoff in handoffs:
            store.write(path(handoff.claim.key, handoff.claim.epoch), handoff.data)
            yield handoff

    computed = list(kept(batch.compute(keys), layout.computed))
    batch.validate(list(kept(batch.mask(computed), layout.masked)))
    batch.stage(keys)
    return batch


def told(site: Site, *, hour: int = 0, turn: int = 0) -> Told:
    """A new object of the hour, the turn-th of that name, and the message about it."""
    object_key, data = streamflow_object(START + timedelta(hours=hour), seed=turn)
    put = site.put(hour, data)
    assert put.object_key == object_key
    when = {"event_time": put.window_start + timedelta(minutes=turn), "sequencer": f"{turn:018X}"}
    return Told(site.key(hour), site.s3_message(put, **when))


def hear(workshop: Workshop, one: Told) -> None:
    """Record what the message says, as a drain does."""
    events = tuple(
        fold(notice, workshop.datasets) for notice in normalise(one.message) if isinstance(notice, ObjectNotice)
    )
    assert [event.key for event in events] == [one.key]
    record(workshop.database, "by hand", [Delivery(one.message, events)], workshop.datasets)


def forget_leases(workshop: Workshop) -> None:
    """Whoever holds a key has gone silent."""
    workshop.database.execute(
        "UPDATE kfm.keys SET lease_until = clock_timestamp() - interval '1 s', due_at = clock_timestamp()"
        " WHERE owner IS NOT NULL"
    )


def applied(workshop: Workshop) -> dict[str, int]:
    """How often each key was applied, by the log."""
    rows = workshop.database.fetch("SELECT key, count(*) AS n FROM kfm.wal WHERE outcome = 'APPLIED' GROUP BY key")
    return {row["key"]: row["n"] for row in rows}


def tree(store: Store, *folders: str) -> dict[str, str | None]:
    return {path: store.digest(path) for folder in folders for path in store.paths(folder)}


def followed(store: Store, path: str) -> str | None:
    """What a reader finds who follows an Item to its assets: the digest of the data. An asset that is missing, or is
    not what the Item says, fails."""
    if not store.exists(path):
        return None
    item = json.loads(store.read(path))
    for asset in item["assets"].values():
        data = store.read(posixpath.normpath(posixpath.join(posixpath.dirname(path), asset["href"])))
        assert asset["file:size"] == len(data)
        assert asset["file:checksum"] == f"1220{hashlib.sha256(data).hexdigest()}"
    return str(item["assets"]["data"]["file:checksum"].removeprefix("1220"))


def found_from_the_root(store: Store, path: str = ROOT_CATALOG) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every document that a stranger comes to who begins at the root and goes from child to child to item."""
    document = json.loads(store.read(path))
    yield path, document
    for link in document["links"]:
        if link["rel"] in ("child", "item"):
            href = posixpath.normpath(posixpath.join(posixpath.dirname(path), link["href"]))
            yield from found_from_the_root(store, href)


@dataclass
class Seen:
    """What a reader has seen, and what went wrong for it."""

    contents: set[str | None] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


@contextmanager
def reader_of(store: Store, path: str) -> Iterator[Seen]:
    """Somebody who follows the Item again and again while the work inside goes on."""
    seen, done = Seen(), threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                seen.contents.add(followed(store, path))
            except Exception as error:  # noqa: BLE001 - whatever a reader stumbles over is the finding
                seen.problems.append(repr(error))
            time.sleep(0.01)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield seen
    finally:
        done.set()
        reader.join()


@contextmanager
def storing_in(workshop: Workshop, store: Store) -> Iterator[None]:
    """The workshop with another store, for a while."""
    before = workshop.store
    workshop.__dict__["store"] = store
    try:
        yield
    finally:
        workshop.__dict__["store"] = before
