"""What an upstream has released is taken only if it is what was announced."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from kfm_pipelines.errors import IntegrityBroken, ObjectMissing
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.events.release import release_event
from kfm_pipelines.stages.compute.members import fetch_release
from kfm_pipelines.stores import Layout, Store, open_store
from kfm_pipelines_tests.events.test_release import ATLAS, RELEASE

DATA = b"what was published"
DIGEST = hashlib.sha256(DATA).hexdigest()
EVENT = release_event(replace(RELEASE, content_hash=DIGEST, bytes=len(DATA)), ATLAS)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = open_store((tmp_path / "data").as_uri())
    opened.write(Layout("usgs-streamflow").content(DIGEST), DATA)
    return opened


def taken(event: IngestEvent, store: Store, max_bytes: int = 1000) -> bytes:
    return fetch_release(event, ATLAS.input.model_copy(update={"max_bytes": max_bytes}), store).data


def test_the_announced_content_is_read_from_the_store(store: Store) -> None:
    assert taken(EVENT, store) == DATA


def test_content_that_is_gone_is_missing(store: Store) -> None:
    with pytest.raises(ObjectMissing, match=r"^kfm://usgs-streamflow/.*: its data bbbbbbbbbbbb is not in the store"):
        taken(replace(EVENT, etag="b" * 64), store)


def test_content_that_was_changed_is_refused(store: Store) -> None:
    store.write(Layout("usgs-streamflow").content(DIGEST), DATA.upper())
    with pytest.raises(IntegrityBroken, match=f"the event promised {DIGEST}"):
        taken(EVENT, store)


def test_content_that_is_too_large_is_refused(store: Store) -> None:
    with pytest.raises(IntegrityBroken, match="the dataset takes at most 17"):
        taken(EVENT, store, max_bytes=17)
