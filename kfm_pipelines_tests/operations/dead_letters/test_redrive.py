"""A redrive sends a few letters first, stops when they fail, sends none twice and loses none when interrupted."""

import pytest

from kfm_pipelines.aws.clients import sqs_client
from kfm_pipelines.aws.queue import Queue
from kfm_pipelines.errors import RedriveStopped, ServiceUnavailable, Terminal
from kfm_pipelines.operations.dead_letters import redrive, redrive_tables, tables
from kfm_pipelines.operations.dead_letters.collect import collect_and_export_letters, collect_dead_messages
from kfm_pipelines.operations.dead_letters.redrive import RedriveOptions
from kfm_pipelines.operations.dead_letters.tables import LetterFilter
from kfm_pipelines.services import Services
from kfm_pipelines_tests.fixtures.aws.emulator import bodies
from kfm_pipelines_tests.fixtures.runs.letters import messages_in, refusing, too_large, work_directly
from kfm_pipelines_tests.fixtures.sites.site import Site

SCHEMA = LetterFilter(triage="schema")
WITHOUT_WORK = RedriveOptions(0, sleep=lambda _: None)


@pytest.fixture
def three(site: Site) -> Site:
    """Three messages were refused; the declaration that refused them is corrected."""
    with refusing(site) as strict:
        too_large(strict, 3)
        strict.drain()
        assert len(tables.find_letters(strict.services.database, LetterFilter(), 10)) == 3
    return Site(Services(site.services.settings), site.environment, site.root)


def started(site: Site, wanted: LetterFilter = SCHEMA, **how: float) -> str:
    limits = {"limit": 100, "canary": 2, "rate": 1000.0, **how}
    begun = redrive.begin(
        site.services, wanted, limit=int(limits["limit"]), canary=int(limits["canary"]), rate=limits["rate"]
    )
    assert begun is not None
    return begun


def with_work(site: Site, *, wait: float = 60) -> RedriveOptions:
    return RedriveOptions(wait, work=lambda: work_directly(site.services), sleep=lambda _: None)


def states(site: Site) -> list[str]:
    everything = LetterFilter(states=(*tables.LIVE_STATES, "closed"))
    return [letter.state for letter in tables.find_letters(site.services.database, everything, 100)]


@pytest.mark.slow
def test_a_redrive_that_succeeds_closes_the_letters_with_their_history(three: Site) -> None:
    done = redrive.run_redrive(three.services, started(three), with_work(three))

    assert (done.sent, done.succeeded, done.failed) == (3, 3, 0)
    assert states(three) == ["closed"] * 3
    moves = [move["what"] for move in tables.history_of(three.services.database, 1)]
    assert moves == ["opened", "redrive planned", "sent", "recorded", "closed"]
    assert three.fetch("SELECT count(*) AS n FROM kfm.wal WHERE outcome = 'APPLIED'") == [{"n": 3}]


def test_a_canary_that_fails_stops_the_rest(site: Site) -> None:
    with refusing(site) as strict:
        too_large(strict, 3)
        strict.drain()
        with pytest.raises(RedriveStopped, match="2 of the first 2 failed again; 1 not sent"):
            redrive.run_redrive(
                strict.services, started(strict), RedriveOptions(30, work=strict.drain, sleep=lambda _: None)
            )

        assert states(strict) == ["open"] * 3
        assert strict.services.queue.depth().waiting == 0
        found = tables.find_letters(strict.services.database, LetterFilter(), 10)
        assert sorted(letter.attempts for letter in found) == [1, 2, 2]
        assert len(tables.find_letters(strict.services.database, LetterFilter(), 10)) == 3


def test_describing_a_redrive_does_nothing(three: Site) -> None:
    [first, *_] = tables.find_letters(three.services.database, SCHEMA, 10)
    description = redrive.describe(three.services, first)

    assert description.startswith("send ")
    assert description.endswith(f"bytes to queue {three.services.queue.name}, attributes: none")
    assert three.services.queue.depth().waiting == 0
    assert states(three) == ["open"] * 3


def test_attributes_and_group_go_back_with_the_message(site: Site) -> None:
    fifo = site.services.intakes[2].queue
    fifo.send("rubbish", {"origin": "somewhere"}, group="one")
    site.drain()
    before = site.fetch("SELECT group_sequence FROM kfm.dead_letters")

    begun = started(site)
    with pytest.raises(ServiceUnavailable, match="`kfm dlq redrive --resume r"):
        redrive.run_redrive(site.services, begun, WITHOUT_WORK)

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
    corrected = Site(Services(site.services.settings), site.environment, site.root)
    fifo.send(site.s3_message(second), group="one")
    corrected.drain()
    with pytest.raises(ServiceUnavailable):
        redrive.run_redrive(
            corrected.services, started(corrected), RedriveOptions(0, work=corrected.drain, sleep=lambda _: None)
        )
    corrected.drain()

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
        redrive.run_redrive(site.services, started(site), WITHOUT_WORK)

    [back] = sqs_client().receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    assert {name: back["MessageAttributes"][name] for name in own} == own


@pytest.mark.slow
def test_the_same_letters_cannot_be_in_two_redrives(three: Site) -> None:
    started(three, limit=2)
    second = redrive.begin(three.services, SCHEMA, limit=100, canary=0, rate=1000.0)
    assert second is not None
    assert len(redrive_tables.items_of(three.services.database, second)) == 1
    assert redrive.begin(three.services, SCHEMA, limit=100, canary=0, rate=1000.0) is None


class PowerCut(BaseException):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before sending", "after sending"])
@pytest.mark.parametrize("at", [1, 3])
def test_an_interrupted_redrive_resumes_without_loss_or_second_sending(
    three: Site, monkeypatch: pytest.MonkeyPatch, when: str, at: int
) -> None:
    begun, real = started(three), Queue.send
    sent: list[str] = []

    def send(queue: Queue, body: str, *rest: object, **more: object) -> None:
        if len(sent) + 1 == at and when == "before sending":
            raise PowerCut
        sent.append(body)
        real(queue, body, *rest, **more)  # type: ignore[arg-type]
        if len(sent) == at and when == "after sending":
            raise PowerCut

    monkeypatch.setattr(Queue, "send", send)
    with pytest.raises(PowerCut):
        redrive.run_redrive(three.services, begun, with_work(three))
    at = -1
    done = redrive.run_redrive(three.services, begun, with_work(three))

    assert (done.sent, done.succeeded, done.failed) == (3, 3, 0)
    assert len(sent) == len(set(sent)) == 3
    assert three.fetch("SELECT sum(duplicates)::int AS n FROM kfm.queue_totals") == [{"n": 0}]


@pytest.mark.slow
def test_a_key_is_made_due_again_and_its_letter_closed(site: Site) -> None:
    put = site.put(0, data=b"no parquet")
    work_directly(site.services)
    [letter] = tables.find_letters(site.services.database, LetterFilter(), 10)
    assert redrive.describe(site.services, letter) == f"make the key {site.key(0)} due again, with all its attempts"

    with pytest.raises(RedriveStopped, match="1 of the first 1 failed again"):
        redrive.run_redrive(site.services, started(site, LetterFilter(key=site.key(0))), with_work(site))
    [again] = tables.find_letters(site.services.database, LetterFilter(), 10)
    assert (again.id, again.state) == (letter.id, "open")

    site.put(0, name=put.object_key.rsplit("/", 1)[1])
    site.drain()
    done = redrive.run_redrive(site.services, started(site, LetterFilter(key=site.key(0)[:-4] + "*")), with_work(site))
    assert done.succeeded == 1
    assert states(site) == ["closed"]
    moves = [move["what"] for move in tables.history_of(site.services.database, letter.id)]
    assert moves == [
        "opened", "redrive planned", "made due", "failed again", "redrive planned", "made due", "closed",
    ]  # fmt: skip


def test_a_message_lost_on_its_way_is_sent_again_by_resuming(three: Site) -> None:
    begun = started(three, canary=0)
    with pytest.raises(ServiceUnavailable, match="3 of 3 are sent but not decided"):
        redrive.run_redrive(three.services, begun, WITHOUT_WORK)
    assert len(bodies(three.services.queue.name)) == 3

    with pytest.raises(ServiceUnavailable, match="3 of 3 are sent but not decided"):
        redrive.run_redrive(three.services, begun, WITHOUT_WORK)

    assert len(bodies(three.services.queue.name)) == 3


def test_a_redriven_message_that_sqs_gives_up_on_has_failed(site: Site) -> None:
    good = site.s3_message(site.put(0), etag="0" * 32)
    site.services.intakes[1].dead_letters.send(good)
    site.drain()
    collect_dead_messages(site.services)
    begun = started(site, LetterFilter(triage="exhausted"), canary=0)
    with pytest.raises(ServiceUnavailable):
        redrive.run_redrive(site.services, begun, WITHOUT_WORK)
    for _ in range(6):
        messages_in(site.services.queue)
    assert site.services.queue.depth().waiting == 0

    assert collect_dead_messages(site.services) == 1

    done = redrive.run_redrive(site.services, begun, WITHOUT_WORK)
    assert (done.sent, done.failed) == (1, 1)
    assert states(site) == ["open"]


def test_an_unknown_redrive_token_makes_no_message_a_repeat(site: Site) -> None:
    for body in ("one", "two"):
        site.services.queue.send(body, {"kfm-redrive": "r000000000000.1"})

    assert site.drain().refused == 2
    assert states(site) == ["open", "open"]


def test_a_message_that_sqs_refuses_fails_alone(three: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, real, made = started(three, canary=0), Queue.send, []

    def send(queue: Queue, body: str, *rest: object, **more: object) -> None:
        made.append(body)
        if len(made) == 2:
            raise Terminal("SQS will not have it")
        real(queue, body, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Queue, "send", send)
    with pytest.raises(ServiceUnavailable):  # nobody works on what was sent
        redrive.run_redrive(three.services, begun, WITHOUT_WORK)
    assert len(made) == 3
    assert sorted(states(three)) == ["open"] + ["redriving"] * 2


def test_stopping_a_redrive_reopens_its_letters(three: Site) -> None:
    begun = started(three)
    assert redrive.begin(three.services, SCHEMA, limit=100, canary=0, rate=1.0) is None
    assert redrive.stop(three.services, begun) == 3
    assert states(three) == ["open"] * 3
    with pytest.raises(RedriveStopped, match="has ended: stopped, stopped by hand"):
        redrive.run_redrive(three.services, begun, with_work(three))
    assert redrive.begin(three.services, SCHEMA, limit=100, canary=0, rate=1.0) is not None


def test_a_letter_in_an_undecided_redrive_is_left_to_it(three: Site) -> None:
    """Its body came again by itself and was refused again, so it is open; the redrive has not decided yet."""
    started(three, limit=1)
    three.services.database.execute("UPDATE kfm.dead_letters SET state = 'open' WHERE id = 1")

    second = redrive.begin(three.services, SCHEMA, limit=100, canary=0, rate=1.0)
    assert second is not None
    assert [item.letter.id for item in redrive_tables.items_of(three.services.database, second)] == [2, 3]
    assert tables.quarantine(three.services.database, LetterFilter(ids=(1,)), "no use", 10) == []


@pytest.mark.slow
def test_arrived_letters_are_decided_though_nobody_waits(three: Site) -> None:
    begun = started(three, canary=0)
    with pytest.raises(ServiceUnavailable):
        redrive.run_redrive(three.services, begun, WITHOUT_WORK)

    work_directly(three.services)  # as a daemon would; nobody waits for the redrive any more
    collect_and_export_letters(three.services)

    assert states(three) == ["closed"] * 3
    assert redrive_tables.read_redrive(three.services.database, begun).state == "done"


@pytest.mark.slow
def test_a_quarantined_key_stays_there_when_it_fails_again(site: Site) -> None:
    site.put(0, data=b"no parquet")
    work_directly(site.services)
    tables.quarantine(site.services.database, LetterFilter(key=site.key(0)), "cannot be fixed", 10)
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    work_directly(site.services)
    assert states(site) == ["quarantined"]
