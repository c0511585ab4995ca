"""Messages arrive at least once and are recorded once, whatever fails and however many consumers drain."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from types import SimpleNamespace

import dagster as dg
import pytest

from kfm_pipelines.aws.clients import s3_client, sns_client, sqs_client
from kfm_pipelines.aws.queue import Message, Queue
from kfm_pipelines.definitions import CHORES
from kfm_pipelines.dispatch.sensor import tick
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.events import newest_per_object
from kfm_pipelines.inbox.drain import drain, drain_all
from kfm_pipelines.inbox.parse import read_message
from kfm_pipelines.inbox.record import BatchCounts, record
from kfm_pipelines.producer.messages import s3_notification
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines.state.inbox import events_of
from kfm_pipelines_tests.fixtures.aws.faults import Doorway, answering_500, partly_failing
from kfm_pipelines_tests.fixtures.sites.site import START, Site


def message(site: Site, number: int, **changes: object) -> str:
    """The notice of an object that need not be there: draining does not look at it."""
    known = {
        "bucket": site.bucket,
        "object_key": f"usgs/streamflow/2025/12/04/{number % 24:02d}/part-{number}.parquet",
        "etag": f"{number:032x}",
        "size": 1,
        "version_id": f"v{number}",
        "event_time": START,
    }
    return json.dumps(s3_notification(**{**known, **changes}))  # type: ignore[arg-type]


def recorded(site: Site) -> int:
    [row] = site.fetch("SELECT count(*)::int AS n FROM kfm.inbox")
    return int(row["n"])


def test_what_sqs_fails_to_delete_comes_again_and_changes_nothing(site: Site) -> None:
    site.send_all([message(site, number) for number in range(20)])
    url = sqs_client().get_queue_url(QueueName=site.services.queue.name)["QueueUrl"]
    sqs_client().set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "2"})
    with partly_failing(sqs_client(), "DeleteMessageBatch") as failed:
        first = drain(site.services, site.services.queue, budget_seconds=0.5)
    assert (first.recorded, len(failed)) == (20, 10 + 4)  # of each ten every second one, and of those again
    time.sleep(2.1)

    assert site.drain() == BatchCounts(received=4, recorded=0, duplicates=4)
    assert recorded(site) == 20
    assert site.services.queue.depth().waiting + site.services.queue.depth().in_flight == 0


def test_what_was_received_before_a_failed_receive_is_recorded_at_once(site: Site) -> None:
    site.send_all([message(site, number) for number in range(30)])
    with answering_500(sqs_client(), "ReceiveMessage", calls=(3, 4)):  # the third receive, and boto's second try
        first = drain(site.services, site.services.queue, budget_seconds=60)
    assert first == BatchCounts(received=30, recorded=30)


def test_hostile_messages_leave_one_log_line_each_at_most(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    hostile = ["\r\n2025-12-04 INFO all is well", "\x1b[2Jgone", "\u2028split", "\u0000", "x" * 5000]
    for number, name in enumerate(hostile):
        site.send(json.dumps({"Records": [{"eventName": name}]}))
        site.send(message(site, number, object_key=f"usgs/streamflow/{name}.parquet"))
        site.send(message(site, number, etag=None, object_key="usgs/streamflow/2025/12/04/00/part.parquet"))
    with caplog.at_level("DEBUG"), dg.DagsterInstance.get() as instance:
        reason = str(tick(instance, site.services, CHORES).skip_reason)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("kfm")]
    for line in [reason, *ours, *(row["reason"] for row in site.fetch("SELECT reason FROM kfm.dead_letters"))]:
        assert line.isprintable()
        assert len(line) <= 1000


@pytest.mark.parametrize("consumers", [2, 8])
def test_consumers_race_without_a_double_record(site: Site, consumers: int) -> None:
    bodies = [message(site, number) for number in range(300)]
    site.send_all([*bodies, *reversed(bodies)])
    consumers_services = [Services(load_settings(site.environment)) for _ in range(consumers)]

    with ThreadPoolExecutor(consumers) as pool:
        drained = list(pool.map(lambda services: drain_all(services, budget_seconds=60), consumers_services))
    for services in consumers_services:
        services.close()

    assert [one.problems for one in drained] == [()] * consumers
    total = sum((one.counts for one in drained), BatchCounts())
    assert total == BatchCounts(received=600, recorded=300, duplicates=300)
    assert recorded(site) == 300
    [row] = site.fetch("SELECT sum(received)::int AS r, sum(duplicates)::int AS d FROM kfm.queue_totals")
    assert (row["r"], row["d"]) == (600, 300)


def test_one_record_that_no_dataset_takes_does_not_take_its_neighbours_with_it(site: Site) -> None:
    first, second = json.loads(message(site, 1)), json.loads(message(site, 2, object_key="elsewhere/part.parquet"))
    site.send(json.dumps({"Records": first["Records"] + second["Records"]}))

    assert site.drain() == BatchCounts(received=1, recorded=1, refused=1)
    [letter] = site.fetch("SELECT reason, triage FROM kfm.dead_letters")
    assert letter["reason"].startswith("record 2 of 2: ")
    assert letter["triage"] == "permission"


def test_a_message_the_database_refuses_is_refused_alone(site: Site) -> None:
    site.services.database.execute(
        "ALTER TABLE kfm.inbox ADD CONSTRAINT unlucky CHECK (asset_uri NOT LIKE '%%part-13.parquet')"
    )
    site.send_all([message(site, number) for number in range(20)])

    assert site.drain() == BatchCounts(received=20, recorded=19, refused=1)
    [letter] = site.fetch("SELECT reason FROM kfm.dead_letters")
    assert letter["reason"].startswith("the message could not be recorded: Postgres refused")


def test_a_message_the_database_refuses_keeps_what_it_needs_to_be_sent_again(site: Site) -> None:
    site.services.database.execute("ALTER TABLE kfm.inbox ADD CONSTRAINT unlucky CHECK (size <> 1)")
    site.services.intakes[2].queue.send(message(site, 1), {"origin": "here"}, group="one")
    site.drain()
    [letter] = site.fetch("SELECT attributes, message_group, group_sequence > 0 AS placed FROM kfm.dead_letters")
    assert letter == {"attributes": {"origin": "here"}, "message_group": "one", "placed": True}


def test_nothing_is_received_while_the_database_is_down(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfm_pipelines.state.database.CONNECTION_SECONDS", 0.5)
    site.send(message(site, 1))
    disconnected = Services(replace(site.services.settings, postgres_url="postgresql://nobody:none@127.0.0.1:1/none"))
    with pytest.raises(ServiceUnavailable):
        drain(disconnected, site.services.queue, budget_seconds=1)
    disconnected.close()
    assert site.services.queue.depth().waiting == 1


def test_a_message_of_many_records_is_not_kept_once_for_each(site: Site) -> None:
    records = [json.loads(message(site, number))["Records"][0] | {"filling": "x" * 1500} for number in range(150)]
    site.send(json.dumps({"Records": records}))
    assert site.drain() == BatchCounts(received=1, refused=1)
    [letter] = site.fetch("SELECT reason FROM kfm.dead_letters")
    assert letter["reason"].startswith("message has 150 records in ")


def test_an_event_in_two_shapes_has_one_position_whichever_came_first(site: Site) -> None:
    """One shape has a sequencer and an early clock, the other none and a late clock, with another write in between. All
    together, or one by one in any order."""
    same = {"object_key": "usgs/streamflow/2025/12/04/03/part.parquet", "version_id": None}
    messages = [
        message(site, 1, **same, event_time=START + timedelta(seconds=10)),
        message(site, 1, **same, event_time=START + timedelta(seconds=5), sequencer="05"),
        message(site, 2, **same, event_time=START + timedelta(seconds=7)),
    ]
    winners = set()
    for order in permutations(messages):
        for batches in ([order], [[one] for one in order]):
            site.services.database.execute("DELETE FROM kfm.inbox")
            for batch in batches:
                read = [read_message(Message(body), site.services.datasets) for body in batch]
                record(site.services.database, "q", read, site.services.datasets)
            with site.services.database.transaction() as connection:
                [newest] = newest_per_object(events_of(connection, site.key(3)))
            winners.add(newest.etag)
    assert winners == {f"{1:032x}"}


@pytest.mark.parametrize("name", ["dedupe_key", "unique_key", "event_id"])
def test_uniqueness_kept_in_attributes_is_refused_and_counted(site: Site, name: str) -> None:
    body = message(site, 1)
    site.services.queue.send(body, {name: "landsat-2025-12-04T00:00Z"})

    assert site.drain() == BatchCounts(received=1, refused=1, violations=1)
    [letter] = site.fetch("SELECT reason, error FROM kfm.dead_letters")
    assert letter["error"] == "UniquenessInAttributes"
    assert f"the attribute {name} is 'landsat-2025-12-04T00:00Z', which is not in the body" in letter["reason"]


@pytest.mark.parametrize(("value", "recorded"), [(f"{1:032x}", 1), ("1", 1), ("00001", 0), ("Köln-1", 1)])
def test_an_attribute_may_repeat_a_value_of_the_body(site: Site, value: str, recorded: int) -> None:
    body = json.dumps(json.loads(message(site, 1)) | {"town": "Köln-1"})  # written as K\\u00f6ln
    site.services.queue.send(body, {"dedupe_key": value})
    assert site.drain().recorded == recorded


def test_the_urgent_queue_is_drained_first_and_no_queue_goes_without(site: Site) -> None:
    urgent, usual, fifo = (intake.queue for intake in site.services.intakes)
    urgent.send(message(site, 1))
    usual.send(message(site, 2))
    fifo.send(message(site, 3), group="one")

    assert drain_all(site.services, budget_seconds=0).counts.recorded == 3
    order = site.fetch("SELECT queue FROM kfm.inbox ORDER BY received_at")
    assert [row["queue"] for row in order] == [urgent.name, usual.name, fifo.name]


def test_a_group_keeps_its_order_and_poison_holds_up_nobody(site: Site) -> None:
    """The same object is announced three times in one group, with a clock that runs backwards; the second message is
    poison. What came last in the group is what counts, and another group is not kept waiting."""
    fifo = site.services.intakes[2].queue
    late, early = START.replace(hour=5), START.replace(hour=1)
    same = {"object_key": "usgs/streamflow/2025/12/04/03/part.parquet", "version_id": None}
    fifo.send(message(site, 1, event_time=late, **same), group="one")
    fifo.send("poison", group="one")
    fifo.send(message(site, 2, event_time=early, **same), group="one")
    fifo.send(message(site, 3), group="two")

    tally = BatchCounts()
    for _ in range(4):
        tally += site.drain()

    assert (tally.received, tally.recorded, tally.refused) == (4, 3, 1)
    rows = site.fetch("SELECT etag, message_group FROM kfm.inbox WHERE message_group = 'one' ORDER BY group_sequence")
    assert [row["etag"] for row in rows] == [f"{1:032x}", f"{2:032x}"]
    with site.services.database.transaction() as connection:
        events = [event for event in events_of(connection, site.key(3)) if event.message_group == "one"]
    assert [event.etag for event in newest_per_object(events)] == [f"{2:032x}"]


@pytest.fixture
def doorway(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Doorway]:
    """The site's AWS behind a port that can be shut."""
    door = Doorway(site.environment["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", door.url)
    for client in (s3_client, sns_client, sqs_client):
        client.cache_clear()
    yield door
    door.shut()
    for client in (s3_client, sns_client, sqs_client):
        client.cache_clear()


@pytest.mark.slow
def test_an_unreachable_queue_is_reported_and_everything_recovers(site: Site, doorway: Doorway) -> None:
    site.send_all([message(site, number) for number in range(50)])
    doorway.shut()
    with dg.DagsterInstance.get() as instance:
        for _ in range(3):
            started = time.monotonic()
            reason = str(tick(instance, site.services, CHORES).skip_reason)
            assert time.monotonic() - started < 20  # Dagster drops a tick after 60 s
            assert "the service cannot be reached; will try again" in reason
    assert recorded(site) == 0

    doorway.open()
    assert site.drain() == BatchCounts(received=50, recorded=50)


def test_time_that_other_queues_leave_goes_to_a_busy_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour for three queues, two of them empty: the busy one gets what the last one leaves, and an end."""
    now, asked = [0.0], []

    def busy(_services: object, queue: Queue, *, budget_seconds: float, **_: object) -> BatchCounts:
        asked.append((queue.name, round(budget_seconds)))
        now[0] += budget_seconds if queue.name == site.services.queue.name else 0
        return BatchCounts()

    monkeypatch.setattr("kfm_pipelines.inbox.drain.drain", busy)
    monkeypatch.setattr("kfm_pipelines.inbox.drain.time", SimpleNamespace(monotonic=lambda: now[0]))
    drain_all(site.services, budget_seconds=3600)
    priority, main, fifo = (intake.queue.name for intake in site.services.intakes)
    assert asked == [(priority, 1200), (main, 1800), (fifo, 900), (main, 1800)]
