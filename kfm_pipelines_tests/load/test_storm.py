"""A storm of duplicates: every object announced fifty times, by every road, in any order; each has one effect."""

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from kfm_pipelines.events.fifo import object_envelope
from kfm_pipelines.messaging.clients import sqs_client
from kfm_pipelines_tests.events.samples import eventbridge_of
from kfm_pipelines_tests.site import START, Put, Site

OBJECTS = 1000
DELIVERIES = 50


def roads(site: Site) -> tuple[Callable[[Put, int], str], ...]:
    """The four shapes of one announcement; they all have the identity of the object."""

    def raw(put: Put, _: int) -> str:
        return site.s3_message(put)

    def wrapped(put: Put, _: int) -> str:
        return site.wrapped(site.s3_message(put))

    def eventbridge(put: Put, _: int) -> str:
        return json.dumps(eventbridge_of(site.bucket, put.object_key, put.etag, put.size, put.version_id, START))

    def fifo(put: Put, _: int) -> str:
        return object_envelope(
            site.dataset.event_source,
            bucket=site.bucket,
            object_key=put.object_key,
            etag=put.etag,
            size=put.size,
            version_id=put.version_id,
            event_time=put.window_start,
        ).body

    return raw, wrapped, eventbridge, fifo


@pytest.mark.slow
def test_fifty_deliveries_of_a_thousand_objects_are_a_thousand_effects(site: Site) -> None:
    with ThreadPoolExecutor(4) as pool:
        puts = list(pool.map(site.put, range(OBJECTS)))
    site.drain()  # what S3 itself said of them
    site.workshop.database.execute("DELETE FROM kfm.queue_totals")
    site.workshop.database.execute("TRUNCATE kfm.inbox, kfm.keys CASCADE")
    storm = _storm(site, puts)
    _send(site, storm)

    tally = site.drain()
    while tally.received < len(storm):
        tally += site.drain()

    assert (tally.received, tally.recorded, tally.refused) == (OBJECTS * DELIVERIES, OBJECTS, 0)
    assert tally.duplicates == len(storm) - OBJECTS
    assert site.work() == {"keys": OBJECTS, "published": OBJECTS, "skipped": 0, "failed": 0}
    [applied] = site.fetch("SELECT count(*)::int AS n, count(DISTINCT key)::int AS keys FROM kfm.wal WHERE step = 'commit'")
    assert (applied["n"], applied["keys"]) == (OBJECTS, OBJECTS)
    assert len(site.tree("processed")) == OBJECTS


def _storm(site: Site, puts: list[Put]) -> list[str]:
    shapes = roads(site)
    messages = [shapes[number % len(shapes)](put, number) for put in puts for number in range(DELIVERIES)]
    random.Random(7).shuffle(messages)
    return messages


def _send(site: Site, messages: list[str]) -> None:
    url = sqs_client().get_queue_url(QueueName=site.workshop.queue.name)["QueueUrl"]

    def send(place: int) -> None:
        entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(messages[place : place + 10])]
        assert not sqs_client().send_message_batch(QueueUrl=url, Entries=entries).get("Failed")  # type: ignore[arg-type]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(0, len(messages), 10)))


def now() -> datetime:
    return datetime.now(UTC)
