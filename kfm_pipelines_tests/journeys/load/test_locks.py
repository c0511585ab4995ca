"""Drains, renewals and dispatches over the same keys at once: they wait for each other, never in a circle."""

import hashlib
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from kfm_pipelines.aws.queue import Message
from kfm_pipelines.dispatch.tables import close_dispatch, record_dispatch
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.inbox.parse import read_message
from kfm_pipelines.inbox.record import record
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines.state import transactions
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines.state.keys import Claims
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.sites.site import START, Put, Site

KEYS = 100
SECONDS = 6.0


@pytest.mark.slow
def test_no_deadlock_between_drains_renewals_and_dispatches(site: Site) -> None:
    events = [_event(site, hour) for hour in range(KEYS)]
    record(site.services.database, "q", [Delivery("", (event,)) for event in events], site.services.datasets)
    claims = Claims(site.services.database, "a-run", 30)
    # In another order than that of the keys, as it is in a table that has been in use.
    for event in random.Random(1).sample(events, KEYS):
        claims.take(event.key)

    with ThreadPoolExecutor(5) as threads:
        rounds = [
            threads.submit(_repeat, lambda database, _: Claims(database, "a-run", 30).renew()),
            threads.submit(_repeat, lambda database, turn: _record_some(database, events, f"one {turn}")),
            threads.submit(_repeat, lambda database, turn: _record_some(database, events, f"two {turn}")),
            threads.submit(_repeat, lambda database, turn: _dispatch_all(database, events, f"run {turn}")),
            threads.submit(_repeat, lambda database, turn: _work_on_one(database, claims, events, turn)),
        ]

    assert all(future.result() > 10 for future in rounds)


def _event(site: Site, hour: int) -> IngestEvent:
    start = START + timedelta(hours=hour)
    message = site.s3_message(Put(streamflow_object(start)[0], "0" * 32, "null", 10, start))
    [event] = read_message(Message(message), site.services.datasets).events
    return event


def _repeat(action: Callable[[Database, int], object]) -> int:
    """How often it could be done, with connections of its own."""
    services = Services(load_settings())
    turn, deadline = 0, time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            turn += 1
            action(services.database, turn)
    finally:
        services.close()
    return turn


def _record_some(database: Database, events: list[IngestEvent], name: str) -> None:
    """New events for most of the keys, in no order."""
    chosen = random.Random(name).sample(events, KEYS * 2 // 3)
    fresh = [replace(event, identity=hashlib.sha256(f"{name} {event.key}".encode()).hexdigest()) for event in chosen]
    # Among them the ones that are known, told again as written later.
    again = [
        replace(event, event_time=event.event_time + timedelta(seconds=random.Random(name).random()))
        for event in chosen
    ]
    record(database, "q", [Delivery("", (event,)) for event in [*again, *fresh]], declared())


def _work_on_one(database: Database, claims: Claims, events: list[IngestEvent], turn: int) -> None:
    """What a worker does with a key: first its lock, then its events."""
    claim = Claims(database, claims.owner, 30).take(events[turn % KEYS].key)
    transactions.close_abandoned(database, claim)
    transactions.begin(database, claim, lambda _: {"inputs": []})


def _dispatch_all(database: Database, events: list[IngestEvent], run_key: str) -> None:
    assert record_dispatch(database, run_key, "usgs/streamflow", [event.key for event in events])
    close_dispatch(database, run_key)
