"""What is kept of messages and objects: the raw event once, what each object was, and nothing longer than needed."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.events import IngestEvent, newest_per_object
from kfm_pipelines.inbox.record import archive_events
from kfm_pipelines.operations.retention.purge import purge
from kfm_pipelines.producer.messages import s3_notification
from kfm_pipelines.services import Services
from kfm_pipelines.state.inbox import events_of
from kfm_pipelines.stores.layout import archived_event
from kfm_pipelines_tests.fixtures.runs.batches import publish, stage, work_in_batches
from kfm_pipelines_tests.fixtures.runs.keys import deliver, event_of_hour
from kfm_pipelines_tests.fixtures.sites.site import START, Site


def archived(site: Site) -> dict[str, str]:
    return {path.stem: path.read_text() for path in (site.data / "ingest" / "events").glob("*.json")}


def test_a_raw_message_is_archived_once_per_identity_and_never_overwritten(site: Site) -> None:
    put = site.put(0)
    first, second = site.s3_message(put), site.wrapped(site.s3_message(put))
    site.drain()
    [row] = site.fetch("SELECT identity, body FROM kfm.inbox")
    site.send(first)
    site.send(second)
    site.drain()

    assert archive_events(site.services, [site.key(0)]) == {}
    assert archived(site) == {row["identity"]: row["body"]}
    (site.data / archived_event(row["identity"])).unlink()
    assert archive_events(site.services, [site.key(0)]) == {}
    assert archived(site) == {}  # its mark says that it is archived
    assert archive_events(site.services, [site.key(0)], recheck_store=True) == {}

    site.services.database.execute("UPDATE kfm.inbox SET archived_at = NULL, body = 'another'")
    assert archive_events(site.services, [site.key(0)]) == {}  # as after a crash between the file and its mark
    assert archived(site) == {row["identity"]: row["body"]}


@pytest.mark.slow
def test_work_does_not_start_before_its_messages_are_archived(site: Site) -> None:
    site.put(0)
    site.drain()
    site.data.mkdir(parents=True, exist_ok=True)
    (site.data / "ingest").write_text("a file where a folder should be")
    stage(site.services, site.dataset, [site.key()], "without an archive")
    assert site.fetch("SELECT 1 FROM kfm.wal WHERE step = 'compute'") == []

    (site.data / "ingest").unlink()
    publish(site.services, site.dataset, [site.key()], "with an archive")
    assert len(site.tree("processed")) == 1
    assert len(archived(site)) == 1


@pytest.mark.slow
def test_an_object_announced_again_without_an_etag_is_asked_about_but_not_fetched(site: Site) -> None:
    put = site.put(0)
    work_in_batches(site)
    [known] = site.fetch("SELECT etag, version_id FROM kfm.ingest_state")
    assert known == {"etag": put.etag, "version_id": put.version_id}

    bare = {"bucket": site.bucket, "object_key": put.object_key, "etag": None, "version_id": None, "size": put.size}
    site.send(json.dumps(s3_notification(**bare, event_time=datetime(2100, 1, 1, tzinfo=UTC))))  # type: ignore[arg-type]
    assert work_in_batches(site) == {"keys": 1, "published": 0, "skipped": 1, "failed": 0}
    assert site.fetch("SELECT hits::int, misses::int FROM kfm.fetch_totals") == [{"hits": 1, "misses": 1}]


@pytest.mark.slow
def test_a_purge_forgets_versions_that_s3_no_longer_has_and_nothing_else(site: Site) -> None:
    put = site.put(0)
    work_in_batches(site)
    other = site.put(1)
    s3_client().delete_object(Bucket=site.bucket, Key=other.object_key)
    site.put(0, name=put.object_key.rsplit("/", 1)[1])
    work_in_batches(site)
    tree = site.tree()
    site.services.database.execute("UPDATE kfm.inbox SET received_at = received_at - interval '1 year'")
    assert purge(site.services).events == 0  # the second version of one or the marker of the other may yet be purged

    s3_client().delete_object(Bucket=site.bucket, Key=put.object_key, VersionId=put.version_id)
    s3_client().delete_object(Bucket=site.bucket, Key=other.object_key, VersionId=other.version_id)
    work_in_batches(site)
    assert purge(site.services).events == 2
    left = site.fetch("SELECT key, change FROM kfm.inbox ORDER BY key, change")
    assert [(row["key"], row["change"]) for row in left] == [
        (site.key(0), "created"),
        (site.key(0), "purged"),
        (site.key(1), "deleted"),
        (site.key(1), "purged"),
    ]
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    assert work_in_batches(site) == {"keys": 2, "published": 0, "skipped": 2, "failed": 0}
    assert site.tree() == tree


def settled_long_ago(site: Site, *events: IngestEvent) -> None:
    deliver(site.services.database, *events)
    for state in ("started", "succeeded"):
        site.services.database.execute(f"UPDATE kfm.inbox SET state = '{state}'")
    site.services.database.execute(
        "UPDATE kfm.inbox SET archived_at = now() - interval '1 year', received_at = now() - interval '1 year'"
    )


def test_a_purge_never_changes_which_write_counts(site: Site) -> None:
    ahead = event_of_hour(identity="a" * 64, sequencer="01", event_time=START + timedelta(hours=9))
    newest = event_of_hour(identity="b" * 64, sequencer="02", event_time=START)
    announced = event_of_hour(identity="c" * 64, event_time=START + timedelta(hours=8))
    settled_long_ago(site, ahead, newest)
    deliver(site.services.database, announced)

    purge(site.services)
    with site.services.database.transaction() as connection:
        [counts] = newest_per_object(events_of(connection, newest.key))
    assert counts.identity == newest.identity


def test_a_purge_gets_to_every_key_past_those_with_nothing_to_forget(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfm_pipelines.operations.retention.purge.KEYS_AT_ONCE", 2)
    kept = [event_of_hour(n % 5, identity=f"a{n:063}", version_id=f"v{n}", sequencer=f"0{n}") for n in range(10)]
    gone = [event_of_hour(n, identity=f"b{n:063}", sequencer="01") for n in range(5, 10)]
    last = [event_of_hour(n, identity=f"c{n:063}", sequencer="02") for n in range(5, 10)]
    settled_long_ago(site, *kept, *gone, *last)

    assert purge(site.services).events == len(gone)
    assert {row["identity"] for row in site.fetch("SELECT identity FROM kfm.inbox")} == {
        event.identity for event in [*kept, *last]
    }
    assert purge(site.services).events == 0


def test_a_purge_keeps_the_latest_payloads_and_those_in_quarantine(site: Site) -> None:
    for number in range(4):
        site.send(f"rubbish {number}")
    site.drain()
    site.services.database.execute("UPDATE kfm.dead_letters SET state = 'closed', closed_at = now() WHERE id > 1")
    keeping_one = Services(replace(site.services.settings, payloads_kept=1))

    assert purge(keeping_one).payloads == 2
    keeping_one.close()
    assert sorted(row["body"] for row in site.fetch("SELECT body FROM kfm.dead_letters")).count("") == 2
    assert site.fetch("SELECT body <> '' AS kept FROM kfm.dead_letters WHERE id = 1") == [{"kept": True}]
