"""Dead letters reach the store and the dead-letter queue after any interruption, and reveal no more than allowed."""

import json
from datetime import UTC, datetime

import pytest

from kfm_pipelines.aws.clients import sqs_client
from kfm_pipelines.aws.queue import Queue
from kfm_pipelines.errors import Terminal
from kfm_pipelines.operations.dead_letters import tables
from kfm_pipelines.operations.dead_letters.collect import collect_dead_messages
from kfm_pipelines.operations.dead_letters.export import export_letters
from kfm_pipelines.operations.dead_letters.tables import LetterFilter
from kfm_pipelines_tests.fixtures.runs.letters import let_sqs_give_up, messages_in, stored
from kfm_pipelines_tests.fixtures.sites.site import Site

NOT_JSON = "rubbish at 38.97123,-95.23529"


def today() -> str:
    return datetime.now(UTC).date().isoformat()


@pytest.fixture
def dead(site: Site) -> Queue:
    return site.services.intakes[1].dead_letters


def only_letter(site: Site) -> tables.Letter:
    [letter] = tables.find_letters(site.services.database, LetterFilter(states=(*tables.LIVE_STATES, "closed")), 10)
    return letter


def test_a_refused_message_is_filed_and_forwarded_once(site: Site, dead: Queue) -> None:
    site.send("rubbish")
    site.drain()
    for _ in range(3):
        export_letters(site.services)

    letter = only_letter(site)
    record = stored(site, f"dlq/unrouted/{today()}/{letter.source}.json")
    assert (record["class"], record["error"], record["failure_stage"]) == ("schema", "BodyUnreadable", "receive")
    assert record["payload"] == {"bytes": 7, "starts": "rubbish"}
    [copy] = messages_in(dead)
    assert copy.body == "rubbish"
    assert copy.attributes["kfm-letter"] == str(letter.id)
    assert copy.attributes["kfm-class"] == "schema"
    assert copy.attributes["kfm-reason"] == letter.reason


def test_a_record_shows_no_coordinates_and_no_control_characters(site: Site) -> None:
    site.send(NOT_JSON)
    document = {
        "latitude": 38.97123,
        "note": "found at 38.97123 -95.23529",
        "token": "abc",
        "red": "\x1b[31m",
        "n": 3,
        "deep": [[[[[1]]]]],
    }
    site.send(json.dumps(document))
    site.drain()
    export_letters(site.services)

    text = "".join(path.read_text() for path in (site.data / "dlq").rglob("*.json"))
    assert "97123" not in text
    assert "23529" not in text
    assert "abc" not in text
    assert "\\u001b" not in text
    assert '"n": 3' in text
    assert '"red": " [31m"' in text


def test_a_large_message_is_forwarded_as_its_record(site: Site, dead: Queue) -> None:
    site.send("x" * (1024 * 1024 - 10))
    site.drain()
    export_letters(site.services)

    [copy] = messages_in(dead)
    assert json.loads(copy.body)["kfm_letter"]["payload"]["bytes"] == 1024 * 1024 - 10


def test_a_message_with_ten_attributes_keeps_them_in_its_letter(site: Site, dead: Queue) -> None:
    own = {f"own-{number}": "x" for number in range(10)}
    site.services.queue.send("rubbish", own)
    site.drain()
    export_letters(site.services)

    assert only_letter(site).attributes == own
    [copy] = messages_in(dead)
    assert len(copy.attributes) == 10


def test_an_interrupted_export_continues(site: Site, dead: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    site.send("rubbish")
    site.drain()
    with monkeypatch.context() as patch:
        patch.setattr(tables, "mark_filed", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            export_letters(site.services)
    export_letters(site.services)

    assert len(messages_in(dead)) == 1
    assert tables.find_to_export(site.services.database, tables.UNFILED, 10) == []


def test_messages_that_sqs_moved_are_collected_and_classified(site: Site, dead: Queue) -> None:
    """A consumer that receives and never deletes, until SQS has enough: a readable message and rubbish."""
    good = site.s3_message(site.put(0), etag="0" * 32)
    site.drain()
    site.send(good)
    site.send("rubbish")
    let_sqs_give_up(site.services.queue)

    assert collect_dead_messages(site.services) == 2

    found = tables.find_letters(site.services.database, LetterFilter(), 10)
    assert sorted((letter.triage, letter.error) for letter in found) == [
        ("exhausted", "DeliveryExhausted"),
        ("schema", "BodyUnreadable"),
    ]
    exhausted = next(letter for letter in found if letter.triage == "exhausted")
    assert (exhausted.key, exhausted.queue) == (site.key(0), site.services.queue.name)
    assert tables.read_letter(site.services.database, exhausted.id).body == good
    assert messages_in(dead) == []
    export_letters(site.services)
    assert len(messages_in(dead)) == 2
    assert collect_dead_messages(site.services) == 0


def test_a_copy_leaves_the_dead_letter_queue_when_its_letter_is_settled(site: Site, dead: Queue) -> None:
    site.send("rubbish")
    site.drain()
    export_letters(site.services)
    collect_dead_messages(site.services)
    assert len(messages_in(dead)) == 1 or dead.depth().in_flight == 1

    tables.quarantine(site.services.database, LetterFilter(triage="schema"), "cannot be fixed", 10)
    url = sqs_client().get_queue_url(QueueName=dead.name)["QueueUrl"]
    sqs_client().set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "0"})
    export_letters(site.services)
    collect_dead_messages(site.services)

    assert dead.depth().waiting + dead.depth().in_flight <= 1
    letter = only_letter(site)
    assert letter.state == "quarantined"
    assert stored(site, f"quarantine/unrouted/{today()}/{letter.source}.json")["state"] == "quarantined"


def test_our_attribute_alone_makes_no_message_a_copy(site: Site, dead: Queue) -> None:
    """Sent to the intake with our attribute, and moved by SQS after too many receives."""
    numbers = ("²", "999999", "-1", "x")
    for number in numbers:
        site.services.queue.send(f"rubbish {number}", {"kfm-letter": number})
    let_sqs_give_up(site.services.queue)
    assert collect_dead_messages(site.services) == len(numbers)
    found = tables.find_letters(site.services.database, LetterFilter(), 10)
    assert [letter.error for letter in found] == ["BodyUnreadable"] * len(numbers)
    assert messages_in(dead) == []


def test_a_letter_that_cannot_be_forwarded_holds_up_no_other(
    site: Site, dead: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.send("first")
    site.send("second")
    site.drain()
    real = Queue.send

    def send(queue: Queue, body: str, *rest: object, **more: object) -> None:
        if body == "first":
            raise Terminal("SQS will not have it")
        real(queue, body, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Queue, "send", send)
    problems = export_letters(site.services)
    assert [copy.body for copy in messages_in(dead)] == ["second"]
    assert len(problems) == 1
    assert problems[0].endswith("SQS will not have it")


def test_copies_in_a_fifo_queue_do_not_hide_what_comes_after_them(site: Site) -> None:
    fifo, dead_fifo = site.services.intakes[2].queue, site.services.intakes[2].dead_letters
    for number in range(12):
        fifo.send(f"rubbish {number}", group="one")
    for _ in range(4):
        site.drain()
    export_letters(site.services)
    dead_fifo.send("moved here", group="one")

    assert sum(collect_dead_messages(site.services) for _ in range(2)) == 1
