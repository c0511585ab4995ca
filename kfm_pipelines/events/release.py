"""Published keys of an upstream as events of a derived dataset: each revision is one, and its address never changes."""

import json
from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.declarations.dataset import Dataset, pipeline_of
from kfm_pipelines.events.canonical_key import window_of
from kfm_pipelines.events.fold import IngestEvent, key_of
from kfm_pipelines.events.identity import release_identity

RELEASE_SHAPE = "kfm-release"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRelease:
    """The current revision of a key. `position` grows with every publication, across keys and transform versions."""

    dataset: str
    key: str
    window_start: datetime
    window_end: datetime
    revision: int
    content_hash: str
    bytes: int
    position: int


def derived_key(dataset: Dataset, window_start: datetime) -> str:
    """Returns the key that a key of an upstream whose window begins then is an input of."""
    return str(key_of(dataset, window_of(window_start, dataset.key.window)))


def release_event(release: UpstreamRelease, dataset: Dataset) -> IngestEvent:
    """Returns the event that tells a derived dataset of the release.

    It is dated by its window and not by its publication: the same releases then give the same result in whatever order
    they were published, and the upstream's own rule has decided about what came late.
    """
    window = window_of(release.window_start, dataset.key.window)
    key, upstream = derived_key(dataset, release.window_start), pipeline_of(release.dataset)
    return IngestEvent(
        shape=RELEASE_SHAPE,
        identity=release_identity(key, release.key, release.revision, release.content_hash),
        scheme="kfm",
        bucket=upstream,
        object_key=release.key,
        etag=release.content_hash,
        size=release.bytes,
        sequencer=f"{release.position:016x}",
        event_time=release.window_end,
        granule_start=release.window_start,
        granule_end=release.window_end,
        dataset=dataset.dataset,
        key=key,
        window_start=window.start,
        window_end=window.end,
        partition=upstream,
    )


def release_body(release: UpstreamRelease) -> str:
    """Returns what is archived in place of a message."""
    document = {
        "shape": RELEASE_SHAPE,
        "dataset": release.dataset,
        "key": release.key,
        "revision": release.revision,
        "sha256": release.content_hash,
        "size": release.bytes,
    }
    return json.dumps(document, sort_keys=True)
