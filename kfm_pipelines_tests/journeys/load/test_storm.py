"""A storm of duplicates: every object is announced fifty times, in four shapes and any order, and has one effect."""

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.inbox.record import BatchCounts
from kfm_pipelines.producer.envelope import object_envelope
from kfm_pipelines_tests.fixtures.events.messages import eventbridge
from kfm_pipelines_tests.fixtures.runs.batches import work_in_batches
from kfm_pipelines_tests.fixtures.sites.site import Put, Site

OBJECTS = 1000
DELIVERIES = 50
IN_QUEUE = 200  # at a time, as many as one commit takes; deeper queues are a little slower in the emulator


def announcements(site: Site) -> tuple[Callable[[Put], str], ...]:
    """The four shapes of an announcement, all with the identity of the object."""

    def raw(put: Put) -> str:
        return site.s3_message(put)

    def wrapped(put: Put) -> str:
        return site.wrapped(site.s3_message(put))

    def by_eventbridge(put: Put) -> str:
        stored = {"etag": put.etag, "size": put.size, "version-id": put.version_id}
        return json.dumps(eventbridge(site.bucket, put.object_key, stored))

    def fifo(put: Put) -> str:
        return object_envelope(
            site.dataset.event_source,
            bucket=site.bucket,
            object_key=put.object_key,
            etag=put.etag,
            size=put.size,
            version_id=put.version_id,
            event_time=put.window_start,
        ).body

    return raw, wrapped, by_eventbridge, fifo


@pytest.mark.slow
def test_fifty_deliveries_of_a_thousand_objects_are_a_thousand_effects(site: Site) -> None:
    s3_client().put_bucket_notification_configuration(Bucket=site.bucket, NotificationConfiguration={})
    with ThreadPoolExecutor(4) as pool:
        puts = list(pool.map(site.put, range(OBJECTS)))
    storm = _storm(site, puts)

    counts = BatchCounts()
    for start in range(0, len(storm), IN_QUEUE):
        site.send_all(storm[start : start + IN_QUEUE])
        while counts.received < min(len(storm), start + IN_QUEUE):
            counts += site.drain()

    assert (counts.received, counts.recorded, counts.refused) == (OBJECTS * DELIVERIES, OBJECTS, 0)
    assert counts.duplicates == len(storm) - OBJECTS
    assert work_in_batches(site) == {"keys": OBJECTS, "published": OBJECTS, "skipped": 0, "failed": 0}
    applied = site.fetch("SELECT key, count(*)::int AS n FROM kfm.wal WHERE step = 'commit' GROUP BY key")
    assert [row["n"] for row in applied] == [1] * OBJECTS
    assert len(site.tree("processed")) == OBJECTS


def _storm(site: Site, puts: list[Put]) -> list[str]:
    shapes = announcements(site)
    messages = [shapes[number % len(shapes)](put) for put in puts for number in range(DELIVERIES)]
    random.Random(7).shuffle(messages)
    return messages
