"""A release of an upstream is an event of one key of a derived dataset, whatever else was published before it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations

from kfm_pipelines.events import newest_per_object, superseded_identities
from kfm_pipelines.events.notice import read_release_uri, release_uri
from kfm_pipelines.events.release import UpstreamRelease, release_event
from kfm_pipelines_tests.fixtures.events.notices import declared

ATLAS = declared()["atlas/drought-streamflow"]
HOUR = datetime(2025, 12, 7, 23, tzinfo=UTC)
RELEASE = UpstreamRelease(
    dataset="usgs/streamflow",
    key="usgs-streamflow:kansas_statewide:none:2025-12-07T23Z:v1-0-0",
    window_start=HOUR,
    window_end=HOUR + timedelta(hours=1),
    revision=1,
    content_hash="a" * 64,
    bytes=100,
    position=15,
)


def test_it_belongs_to_the_week_its_window_lies_in() -> None:
    event = release_event(RELEASE, ATLAS)
    assert event.key == "atlas-drought-streamflow:kansas_statewide:5:2025-W49:v1-0-0"
    assert event.window_end == RELEASE.window_end == event.event_time
    assert (event.data_time, event.partition) == (HOUR, "usgs-streamflow")


def test_its_address_is_that_of_the_key_and_its_content_that_of_the_revision() -> None:
    first, second = (
        release_event(replace(RELEASE, revision=revision, content_hash=digest * 64), ATLAS)
        for revision, digest in ((1, "a"), (2, "b"))
    )
    assert first.asset_uri == second.asset_uri == f"kfm://usgs-streamflow/{RELEASE.key}"
    assert first.asset_uri == release_uri(RELEASE.dataset, RELEASE.key)
    assert read_release_uri(first.asset_uri) == ("usgs-streamflow", RELEASE.key)
    assert read_release_uri("s3://kfm-ingest/usgs/streamflow/f.parquet") is None
    assert first.identity != second.identity
    assert (first.etag, second.etag) == ("a" * 64, "b" * 64)


def test_two_derived_keys_are_announced_separately() -> None:
    next_version = ATLAS.model_copy(update={"key": ATLAS.key.model_copy(update={"transform_version": "v1-1-0"})})
    assert release_event(RELEASE, ATLAS).identity != release_event(RELEASE, next_version).identity


def test_the_last_publication_counts_in_whatever_order_they_are_announced() -> None:
    positions = (15, 16, 4096)  # in hexadecimal the last ends in zeros
    events = [release_event(replace(RELEASE, revision=n, position=at), ATLAS) for n, at in enumerate(positions, 1)]
    assert {newest_per_object(order) for order in permutations(events)} == {(events[-1],)}
    assert superseded_identities(events) == {event.identity for event in events[:-1]}


def test_a_window_counts_once_when_its_upstream_gets_another_transform_version() -> None:
    other = replace(RELEASE, key=RELEASE.key.replace("v1-0-0", "v1-1-0"), position=99)
    newer, older = release_event(other, ATLAS), release_event(RELEASE, ATLAS)
    assert newest_per_object([newer, older]) == (newer,)
