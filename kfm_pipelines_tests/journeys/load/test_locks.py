"""Concurrent drains, renewals and dispatches over the same keys never deadlock."""

import hashlib
import random
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
from kfm_pipelines_tests.fixtures.runs.keys import begin
from kfm_pipelines_tests.fixtures.sites.site import START, Put, Site

KEYS = 100
ROUNDS = 25  # of the slowest; the others go on until it is done


@pytest.mark.slow
def test_no_deadlock_between_drains_renewals_and_dispatches(site: Site) -> None:
    events = [_event(site, hour) for hour in range(KEYS)]
    record(site.services.database, "q", [Delivery("", (event,)) for event in events], site.services.datasets)
    claims = Claims(site.services.database, "a-run", 30)
    # Not in the order of the keys, as in a table that has been in use.
    for event in random.Random(1).sample(events, KEYS):
        claims.take(event.key)

    actions: list[Callable[[Database, int], object]] = [
        lambda database, _: Claims(database, "a-run", 30).renew(),
        lambda database, round_: _record_some(database, events, f"one {round_}"),
        lambda database, round_: _record_some(database, events, f"two {round_}"),
        lambda database, round_: _dispatch_all(database, events, f"run {round_}"),
        lambda database, round_: _work_on_one(database, claims, events, round_),
    ]
    rounds = [0] * len(actions)
    with ThreadPoolExecutor(len(actions)) as threads:
        for future in [threads.submit(_repeat, action, rounds, number) for number, action in enumerate(actions)]:
            future.result()

    assert min(rounds) >= ROUNDS


def _event(site: Site, hour: int) -> IngestEvent:
    start = START + timedelta(hours=hour)
    message = site.s3_message(Put(streamflow_object(start)[0], "0" * 32, "null", 10, start))
    [event] = read_message(Message(message), site.services.datasets).events
    return event


def _repeat(action: Callable[[Database, int], object], rounds: list[int], number: int) -> None:
    """Repeats the action with its own connections until every action has had its rounds, or has failed."""
    services = Services(load_settings())
    try:
        while min(rounds) < ROUNDS:
            action(services.database, rounds[number] + 1)
            rounds[number] += 1
    except BaseException:
        rounds[:] = [ROUNDS] * len(rounds)  # stops the others
        raise
    finally:
        services.close()


def _record_some(database: Database, events: list[IngestEvent], name: str) -> None:
    """Records new events for most of the keys, in random order, and known ones as written later."""
    chosen = random.Random(name).sample(events, KEYS * 2 // 3)
    fresh = [replace(event, identity=hashlib.sha256(f"{name} {event.key}".encode()).hexdigest()) for event in chosen]
    again = [
        replace(event, event_time=event.event_time + timedelta(seconds=random.Random(name).random()))
        for event in chosen
    ]
    record(database, "q", [Delivery("", (event,)) for event in [*again, *fresh]], declared())


def _work_on_one(database: Database, claims: Claims, events: list[IngestEvent], round_: int) -> None:
    """Locks a key first and its events second, like a worker."""
    claim = Claims(database, claims.owner, 30).take(events[round_ % KEYS].key)
    transactions.close_abandoned(database, claim)
    begin(database, claim, {"inputs": []})


def _dispatch_all(database: Database, events: list[IngestEvent], run_key: str) -> None:
    assert record_dispatch(database, run_key, "usgs/streamflow", [event.key for event in events])
    close_dispatch(database, run_key)
