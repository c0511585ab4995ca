"""Redrive: a few first, stop when they fail, never twice, and never lost when it is interrupted."""

import pytest

from kfm_pipelines.aws.clients import sqs_client
from kfm_pipelines.aws.queue import Queue
from kfm_pipelines.errors import RedriveStopped, ServiceUnavailable, Terminal
from kfm_pipelines.operations.dead_letters import redrive, redrives, tables
from kfm_pipelines.operations.dead_letters.collect import collect_dead_messages
from kfm_pipelines.operations.dead_letters.redrive import RedriveOptions
from kfm_pipelines.operations.dead_letters.tables import LetterFilter
from kfm_pipelines.services import Services
from kfm_pipelines_tests.fixtures.aws.emulator import bodies
from kfm_pipelines_tests.fixtures.runs.letters import messages_in, refusing, too_large
from kfm_pipelines_tests.fixtures.sites.site import Site, work_once

SCHEMA = LetterFilter(triage="schema")


@pytest.fixture
def five(site: Site) -> Site:
    """Five messages were refused; the declaration that refused them is mended."""
    with refusing(site) as strict:
        too_large(strict, 5)
        strict.drain()
        assert len(tables.find_letters(strict.services.database, LetterFilter(), 10)) == 5
    return Site(Services(site.services.settings), site.environment, site.root)


def started(site: Site, wanted: LetterFilter = SCHEMA, **how: float) -> str:
    limits = {"limit": 100, "canary": 2, "rate": 1000.0, **how}
    begun = redrive.begin(
        site.services, wanted, limit=int(limits["limit"]), canary=int(limits["canary"]), rate=limits["rate"]
    )
    assert begun is not None
    return begun


def manner(site: Site, *, wait: float = 60) -> RedriveOptions:
    return RedriveOptions(wait, work=lambda: work_once(site.services), sleep=lambda _: None)


def states(site: Site) -> list[str]:
    everything = LetterFilter(states=(*tables.LIVE_STATES, "closed"))
    return [letter.state for letter in tables.find_letters(site.services.database, everything, 100)]


@pytest.mark.slow
def test_a_redrive_that_succeeds_closes_the_letters_with_their_history(five: Site) -> None:
    done = redrive.run_redrive(five.services, started(five), manner(five))

    assert (done.sent, done.succeeded, done.failed) == (5, 5, 0)
    assert states(five) == ["closed"] * 5
    moves = [move["what"] for move in tables.history_of(five.services.database, 1)]
    assert moves == ["opened", "redrive planned", "sent", "recorded", "closed"]
    assert five.fetch("SELECT count(*) AS n FROM kfm.wal WHERE outcome = 'APPLIED'") == [{"n": 5}]


def test_a_canary_that_fails_stops_the_rest(site: Site) -> None:
    with refusing(site) as strict:
        too_large(strict, 5)
        strict.drain()
        with pytest.raises(RedriveStopped, match="2 of the first 2 failed again, so 3 others were not sent"):
            redrive.run_redrive(
                strict.services, started(strict), RedriveOptions(30, work=strict.drain, sleep=lambda _: None)
            )

        assert states(strict) == ["open"] * 5
        assert strict.services.queue.depth().waiting == 0
        found = tables.find_letters(strict.services.database, LetterFilter(), 10)
        assert sorted(letter.attempts for letter in found) == [1, 1, 1, 2, 2]
        assert len(tables.find_letters(strict.services.database, LetterFilter(), 10)) == 5


def test_a_dry_run_says_what_would_happen_and_does_nothing(five: Site) -> None:
    [first, *_] = tables.find_letters(five.services.database, SCHEMA, 10)
    said = redrive.describe(five.services, first)

    assert said.startswith("send ")
    assert said.endswith(f"bytes to queue {five.services.queue.name}, attributes: none")
    assert five.services.queue.depth().waiting == 0
    assert states(five) == ["open"] * 5


def test_attributes_and_group_go_back_with_the_message(site: Site) -> None:
    fifo = site.services.intakes[2].queue
    fifo.send("rubbish", {"origin": "somewhere"}, group="one")
    site.drain()
    before = site.fetch("SELECT group_sequence FROM kfm.dead_letters")

    begun = started(site)
    with pytest.raises(ServiceUnavailable, match="`kfm dlq redrive --resume r"):
        redrive.run_redrive(site.services, begun, RedriveOptions(0, sleep=lambda _: None))

    [sent] = messages_in(fifo)
    assert (sent.body, sent.group, sent.attributes["origin"]) == ("rubbish", "one", "somewhere")
    site.drain()
    assert site.fetch("SELECT group_sequence FROM kfm.dead_letters") == before


def test_a_redriven_message_keeps_its_place_in_its_group(site: Site) -> None:
    """The first announcement in a group was refused; the second was recorded before the first is sent again."""
    fifo, first, second = site.services.intakes[2].queue, site.put(0), site.put(0)
    site.drain()
    site.services.database.execute("DELETE FROM kfm.inbox")
    with refusing(site) as strict:
        fifo.send(site.s3_message(first), group="one")
        strict.drain()
    mended = Site(Services(site.services.settings), site.environment, site.root)
    fifo.send(site.s3_message(second), group="one")
    mended.drain()
    with pytest.raises(ServiceUnavailable):
        redrive.run_redrive(
            mended.services, started(mended), RedriveOptions(0, work=mended.drain, sleep=lambda _: None)
        )
    mended.drain()

    rows = site.fetch("SELECT version_id FROM kfm.inbox ORDER BY group_sequence")
    assert [row["version_id"] for row in rows] == [first.version_id, second.version_id]


def test_attributes_of_every_type_go_back_as_they_came(site: Site) -> None:
    url = site.services.queue.url
    own = {
        "count": {"DataType": "Number", "StringValue": "3"},
        "mark": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        "colour": {"DataType": "String.name", "StringValue": "red"},
    }
    sqs_client().send_message(QueueUrl=url, MessageBody="rubbish", MessageAttributes=own)  # type: ignore[arg-type]
    site.drain()
    with pytest.raises(ServiceUnavailable):
        redrive.run_redrive(site.services, started(site), RedriveOptions(0, sleep=lambda _: None))

    [back] = sqs_client().receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    assert {name: back["MessageAttributes"][name] for name in own} == own


@pytest.mark.slow
def test_the_same_letters_cannot_be_in_two_redrives(five: Site) -> None:
    started(five, limit=3)
    second = redrive.begin(five.services, SCHEMA, limit=100, canary=0, rate=1000.0)
    assert second is not None
    assert len(redrives.items_of(five.services.database, second)) == 2
    assert redrive.begin(five.services, SCHEMA, limit=100, canary=0, rate=1000.0) is None


class Pulled(BaseException):
    """The plug."""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before sending", "after sending"])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_an_interrupted_redrive_resumes_without_loss_or_second_sending(
    five: Site, monkeypatch: pytest.MonkeyPatch, when: str, at: int
) -> None:
    begun, real = started(five), Queue.send
    sent: list[str] = []

    def send(queue: Queue, body: str, *rest: object, **more: object) -> None:
        if len(sent) + 1 == at and when == "before sending":
            raise Pulled
        sent.append(body)
        real(queue, body, *rest, **more)  # type: ignore[arg-type]
        if len(sent) == at and when == "after sending":
            raise Pulled

    monkeypatch.setattr(Queue, "send", send)
    with pytest.raises(Pulled):
        redrive.run_redrive(five.services, begun, manner(five))
    at = -1
    done = redrive.run_redrive(five.services, begun, manner(five))

    assert (done.sent, done.succeeded, done.failed) == (5, 5, 0)
    assert len(sent) == len(set(sent)) == 5
    assert five.fetch("SELECT sum(duplicates)::int AS n FROM kfm.queue_totals") == [{"n": 0}]


@pytest.mark.slow
def test_a_key_is_made_due_again_and_its_letter_closed(site: Site) -> None:
    put = site.put(0, data=b"no parquet")
    site.work()
    [letter] = tables.find_letters(site.services.database, LetterFilter(), 10)
    assert redrive.describe(site.services, letter) == f"make the key {site.key(0)} due again, with all its attempts"

    with pytest.raises(RedriveStopped, match="1 of the first 1 failed again"):
        redrive.run_redrive(site.services, started(site, LetterFilter(key=site.key(0))), manner(site))
    [again] = tables.find_letters(site.services.database, LetterFilter(), 10)
    assert (again.id, again.state) == (letter.id, "open")

    site.put(0, name=put.object_key.rsplit("/", 1)[1])
    site.drain()
    done = redrive.run_redrive(site.services, started(site, LetterFilter(key=site.key(0)[:-4] + "*")), manner(site))
    assert done.succeeded == 1
    assert states(site) == ["closed"]
    moves = [move["what"] for move in tables.history_of(site.services.database, letter.id)]
    assert moves == [
        "opened", "redrive planned", "made due", "failed again", "redrive planned", "made due", "closed",
    ]  # fmt: skip


def test_a_message_lost_on_its_way_is_sent_again_by_resuming(five: Site) -> None:
    begun = started(five, canary=0)
    with pytest.raises(ServiceUnavailable, match="5 of 5 are sent but not decided"):
        redrive.run_redrive(five.services, begun, RedriveOptions(0, sleep=lambda _: None))
    assert len(bodies(five.services.queue.name)) == 5

    with pytest.raises(ServiceUnavailable, match="5 of 5 are sent but not decided"):
        redrive.run_redrive(five.services, begun, RedriveOptions(0, sleep=lambda _: None))

    assert len(bodies(five.services.queue.name)) == 5


def test_a_redriven_message_that_sqs_gives_up_on_has_failed(site: Site) -> None:
    good = site.s3_message(site.put(0), etag="0" * 32)
    site.services.intakes[1].dead_letters.send(good)
    site.drain()
    collect_dead_messages(site.services)
    begun = started(site, LetterFilter(triage="exhausted"), canary=0)
    with pytest.raises(ServiceUnavailable):
        redrive.run_redrive(site.services, begun, RedriveOptions(0, sleep=lambda _: None))
    for _ in range(6):
        messages_in(site.services.queue)
    assert site.services.queue.depth().waiting == 0

    assert collect_dead_messages(site.services) == 1

    done = redrive.run_redrive(site.services, begun, RedriveOptions(0, sleep=lambda _: None))
    assert (done.sent, done.failed) == (1, 1)
    assert states(site) == ["open"]


def test_a_mark_that_we_never_gave_out_makes_no_message_a_repeat(site: Site) -> None:
    for body in ("one", "two"):
        site.services.queue.send(body, {"kfm-redrive": "r000000000000.1"})

    assert site.drain().refused == 2
    assert states(site) == ["open", "open"]


def test_a_message_that_sqs_refuses_fails_alone(five: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, real, made = started(five, canary=0), Queue.send, []

    def send(queue: Queue, body: str, *rest: object, **more: object) -> None:
        made.append(body)
        if len(made) == 2:
            raise Terminal("SQS will not have it")
        real(queue, body, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Queue, "send", send)
    with pytest.raises(ServiceUnavailable):  # nobody works on what was sent
        redrive.run_redrive(five.services, begun, RedriveOptions(0, sleep=lambda _: None))
    assert len(made) == 5
    assert sorted(states(five)) == ["open"] + ["redriving"] * 4


def test_a_redrive_that_is_stopped_gives_its_letters_back(five: Site) -> None:
    begun = started(five)
    assert redrive.begin(five.services, SCHEMA, limit=100, canary=0, rate=1.0) is None
    assert redrive.stop(five.services, begun) == 5
    assert states(five) == ["open"] * 5
    with pytest.raises(RedriveStopped, match="has ended: stopped, stopped by hand"):
        redrive.run_redrive(five.services, begun, manner(five))
    assert redrive.begin(five.services, SCHEMA, limit=100, canary=0, rate=1.0) is not None


def test_a_letter_that_is_under_way_is_left_to_its_redrive(five: Site) -> None:
    """Its body came again by itself and was refused again, so it is open; the redrive has not decided yet."""
    started(five, limit=1)
    five.services.database.execute("UPDATE kfm.dead_letters SET state = 'open' WHERE id = 1")

    second = redrive.begin(five.services, SCHEMA, limit=100, canary=0, rate=1.0)
    assert second is not None
    assert [item.letter.id for item in redrives.items_of(five.services.database, second)] == [2, 3, 4, 5]
    assert tables.quarantine(five.services.database, LetterFilter(ids=(1,)), "no use", 10) == []


@pytest.mark.slow
def test_what_arrived_is_decided_without_whoever_sent_it(five: Site) -> None:
    begun = started(five, canary=0)
    with pytest.raises(ServiceUnavailable):
        redrive.run_redrive(five.services, begun, RedriveOptions(0, sleep=lambda _: None))

    five.work()  # as the daemon would; nobody waits for the redrive any more

    assert states(five) == ["closed"] * 5
    assert redrives.read_redrive(five.services.database, begun).state == "done"


@pytest.mark.slow
def test_a_quarantined_key_stays_there_when_it_fails_again(site: Site) -> None:
    site.put(0, data=b"no parquet")
    site.work()
    tables.quarantine(site.services.database, LetterFilter(key=site.key(0)), "cannot be mended", 10)
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    site.work()
    assert states(site) == ["quarantined"]
