"""Deleted objects: their key gets a revision without them, in whatever order the notices arrive."""

import json
from collections.abc import Sequence
from datetime import timedelta
from itertools import permutations
from typing import Any

import pyarrow.parquet as pq
import pytest

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.queue import Message
from kfm_pipelines.declarations.dataset import Datasets
from kfm_pipelines.events import IngestEvent, newest_per_object
from kfm_pipelines.inbox.parse import read_message
from kfm_pipelines.inbox.record import record
from kfm_pipelines.producer.messages import s3_notification
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.inbox import events_of
from kfm_pipelines_tests.fixtures.aws.messages import s3_removal
from kfm_pipelines_tests.fixtures.runs.batches import work_in_batches
from kfm_pipelines_tests.fixtures.sites.site import START, Site

OBJECT = "usgs/streamflow/2025/12/04/00/part.parquet"


def rows(site: Site) -> int:
    return int(pq.read_metadata(site.data / "processed" / "usgs-streamflow" / f"{site.key(0)}.parquet").num_rows)


def revisions(site: Site) -> int:
    [row] = site.fetch("SELECT coalesce(max(revision), 0)::int AS n FROM kfm.revisions")
    return int(row["n"])


@pytest.mark.slow
def test_a_deleted_object_is_missing_from_the_next_revision(site: Site) -> None:
    site.put(0, name="one.parquet")
    other = site.put(0, name="two.parquet")
    work_in_batches(site)
    both = rows(site)

    s3_client().delete_object(Bucket=site.bucket, Key=other.object_key)
    assert work_in_batches(site) == {"keys": 1, "published": 1, "skipped": 0, "failed": 0}

    assert revisions(site) == 2
    assert 0 < rows(site) <= both
    uris = [row["asset_uri"] for row in site.fetch("SELECT asset_uri FROM kfm.ingest_state")]
    assert [uri.rsplit("/", 1)[1] for uri in uris] == ["one.parquet"]
    item = json.loads((site.data / "catalog" / "usgs-streamflow" / "items" / f"{site.key(0)}.json").read_text())
    assert "two.parquet" not in json.dumps(item)


@pytest.mark.slow
def test_without_any_object_left_the_next_revision_is_empty(site: Site) -> None:
    put = site.put(0)
    work_in_batches(site)
    s3_client().delete_object(Bucket=site.bucket, Key=put.object_key)
    work_in_batches(site)

    assert (revisions(site), rows(site)) == (2, 0)
    assert site.fetch("SELECT 1 FROM kfm.dead_letters") == []


@pytest.mark.slow
def test_an_object_deleted_before_anything_was_published_leaves_nothing(site: Site) -> None:
    put = site.put(0)
    s3_client().delete_object(Bucket=site.bucket, Key=put.object_key)

    assert work_in_batches(site) == {"keys": 1, "published": 0, "skipped": 1, "failed": 0}
    assert site.tree("catalog", "processed") == {}
    [last] = site.fetch("SELECT detail FROM kfm.wal WHERE outcome = 'SKIPPED'")
    assert last["detail"]["reason"] == "every object of this key is gone, and nothing of it is published"


@pytest.mark.slow
def test_a_missing_object_recovers_when_its_deletion_arrives_later(site: Site) -> None:
    kept, gone = site.put(0, name="one.parquet"), site.put(0, name="two.parquet")
    site.drain()
    versions = s3_client().list_object_versions(Bucket=site.bucket, Prefix=gone.object_key)["Versions"]
    for version in versions:  # for good, so that even the version the event names is gone
        s3_client().delete_object(Bucket=site.bucket, Key=gone.object_key, VersionId=version["VersionId"])
    late = [body.body for body in _taken(site)]
    assert work_in_batches(site)["failed"] == 1
    [letter] = site.fetch("SELECT triage, state FROM kfm.dead_letters")
    assert letter == {"triage": "missing-object", "state": "open"}

    for body in late or [json.dumps(s3_removal(site.bucket, gone.object_key, gone.version_id, START))]:
        site.send(body)
    assert work_in_batches(site)["published"] == 1
    assert site.fetch("SELECT state FROM kfm.dead_letters") == [{"state": "closed"}]
    assert [row["asset_uri"].endswith(kept.object_key) for row in site.fetch("SELECT * FROM kfm.ingest_state")] == [
        True
    ]


def _taken(site: Site) -> Sequence[Any]:
    """Takes S3's notices out of the queue."""
    held = site.services.queue.receive()
    site.services.queue.delete(held)
    return held


SEQUENCERS: dict[str, tuple[str | None, str | None, str | None]] = {
    "present": ("0055AED6DCD90281E5", "0055AED6DCD90281E6", "0055AED6DCD90281E7"),
    "of unequal length": ("0055AE", "0055AED6DCD90281E6", "0055AED7"),
    "missing": (None, None, None),
    "missing on the first": (None, "0055AED6DCD90281E6", "0055AED6DCD90281E7"),
    "missing on the deletion": ("0055AED6DCD90281E5", None, "0055AED6DCD90281E7"),
    "missing on the last": ("0055AED6DCD90281E5", "0055AED6DCD90281E6", None),
}


@pytest.mark.parametrize("sequencers", SEQUENCERS.values(), ids=SEQUENCERS)
def test_put_delete_put_in_all_orders_ends_in_the_same_state(
    database: Database, datasets: Datasets, sequencers: tuple[str | None, str | None, str | None]
) -> None:
    """Each order for its own object; each message twice, one at a time."""
    for number, order in enumerate(permutations(range(3))):
        place: dict[str, Any] = {
            "bucket": datasets["usgs/streamflow"].input.bucket,
            "object_key": OBJECT.replace("part", f"part-{number}"),
            "version_id": None,
        }
        messages = [
            s3_notification(etag="1" * 32, size=1, event_time=START, sequencer=sequencers[0], **place),
            s3_removal(event_time=START + timedelta(seconds=10), sequencer=sequencers[1], **place),
            s3_notification(
                etag="2" * 32, size=2, event_time=START + timedelta(seconds=20), sequencer=sequencers[2], **place
            ),
        ]
        for position in order:
            for _ in range(2):
                _record_message(database, datasets, messages[position])

    assert [event.etag for event in _newest_events(database)] == ["2" * 32] * 6


@pytest.mark.parametrize("with_sequencers", [True, False])
def test_the_first_content_written_again_last_is_what_counts(
    database: Database, datasets: Datasets, with_sequencers: bool
) -> None:
    """A, then B, then A again: the third message has the identity of the first, but a later position."""
    sequencers = ["0A", "0B", "0C"] if with_sequencers else [None, None, None]
    bucket = datasets["usgs/streamflow"].input.bucket
    place: dict[str, Any] = {"bucket": bucket, "object_key": OBJECT, "version_id": None, "size": 1}
    writes = [
        s3_notification(etag=tag * 32, sequencer=sequencer, event_time=START + timedelta(seconds=at), **place)
        for at, (tag, sequencer) in enumerate(zip("aba", sequencers, strict=True))
    ]
    for order in permutations(range(3)):
        database.execute("DELETE FROM kfm.inbox")
        for position in order:
            _record_message(database, datasets, writes[position])
        [newest] = _newest_events(database)
        assert newest.etag == "a" * 32, order
        assert database.fetch("SELECT due_at IS NOT NULL AS due FROM kfm.keys") == [{"due": True}]


def _record_message(database: Database, datasets: Datasets, document: dict[str, Any]) -> None:
    record(database, "q", [read_message(Message(json.dumps(document)), datasets)], datasets)


def _newest_events(database: Database) -> Sequence[IngestEvent]:
    [row] = database.fetch("SELECT key FROM kfm.keys")
    with database.transaction() as connection:
        return newest_per_object(events_of(connection, row["key"]))
