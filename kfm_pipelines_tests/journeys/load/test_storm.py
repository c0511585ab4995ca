"""A storm of duplicates: every object is announced fifty times, in four shapes and any order, and has one effect."""

import json
import random
from collections.abc import Callable, Sequence
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
RECORDS = 10  # in a notification of S3, which may have several
IN_QUEUE = 200  # at a time, as many as one commit takes; deeper queues are a little slower in the emulator


def announcements(site: Site) -> tuple[tuple[Callable[[Sequence[Put]], str], int], ...]:
    """The four shapes of an announcement, all with the identities of the objects, and how many objects one names."""

    def raw(puts: Sequence[Put]) -> str:
        return json.dumps(
            {"Records": [record for put in puts for record in json.loads(site.s3_message(put))["Records"]]}
        )

    def wrapped(puts: Sequence[Put]) -> str:
        return site.wrapped(raw(puts))

    def by_eventbridge(puts: Sequence[Put]) -> str:
        [put] = puts
        stored = {"etag": put.etag, "size": put.size, "version-id": put.version_id}
        return json.dumps(eventbridge(site.bucket, put.object_key, stored))

    def fifo(puts: Sequence[Put]) -> str:
        [put] = puts
        return object_envelope(
            site.dataset.event_source,
            bucket=site.bucket,
            object_key=put.object_key,
            etag=put.etag,
            size=put.size,
            version_id=put.version_id,
            event_time=put.window_start,
        ).body

    return (raw, RECORDS), (wrapped, RECORDS), (by_eventbridge, 1), (fifo, 1)


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

    assert (counts.received, counts.recorded, counts.refused) == (len(storm), OBJECTS, 0)
    assert counts.duplicates == OBJECTS * DELIVERIES - OBJECTS
    assert work_in_batches(site) == {"keys": OBJECTS, "published": OBJECTS, "skipped": 0, "failed": 0}
    applied = site.fetch("SELECT key, count(*)::int AS n FROM kfm.wal WHERE step = 'commit' GROUP BY key")
    assert [row["n"] for row in applied] == [1] * OBJECTS
    assert len(site.tree("processed")) == OBJECTS


def _storm(site: Site, puts: list[Put]) -> list[str]:
    """Announces every object once in each delivery, each delivery in another order."""
    chance, shapes = random.Random(7), announcements(site)
    messages: list[str] = []
    for delivery in range(DELIVERIES):
        shape, size = shapes[delivery % len(shapes)]
        shuffled = chance.sample(puts, len(puts))
        messages += [shape(shuffled[start : start + size]) for start in range(0, len(puts), size)]
    chance.shuffle(messages)
    return messages
