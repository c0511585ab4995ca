"""`kfm emit` on each of the three roads."""

import json
import time

import pytest

from kfm_pipelines.aws.queue import Message, Queue
from kfm_pipelines.events import ObjectNotice, normalise, resolve_event
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow


def waiting(queue: str, expected: int = 1) -> list[Message]:
    """What is on the queue; S3 sends its notices a moment after the upload."""
    found: list[Message] = []
    deadline = time.monotonic() + 10
    while len(found) < expected and time.monotonic() < deadline:
        found += Queue(queue).receive()
    return [*found, *Queue(queue).receive()]


@pytest.mark.parametrize("target", ["topic", "queue"])
def test_fifo_envelopes_are_delivered_once_and_known_by_what_s3_said(site: Site, target: str) -> None:
    arguments = ["--windows", "2", "--copies", "2", "--fifo", "--to", target, "--json"]
    sent = kfm(site.environment, "emit", *arguments).json
    assert sent == {"objects": 2, "messages": 6, "keys": [site.key(0), site.key(1)]}

    settings = site.services.settings
    by_us = waiting(settings.fifo_queue, 2)
    by_s3 = [said for message in waiting(settings.queue, 2) for said in normalise(message.body)]
    assert [json.loads(message.body)["event_source"] for message in by_us] == ["kfm.usgs.streamflow"] * 2
    assert {json.loads(message.body)["dedupe_key"] for message in by_us} == {said.identity for said in by_s3}
    assert {message.group for message in by_us} == {"usgs-streamflow"}


@pytest.mark.parametrize(
    ("dataset", "labels"),
    [
        ("drought/tribal-areas", ["2025-06-24", "2025-07-01"]),
        ("heritage/sites", ["2025-06", "2025-07"]),
        ("usgs/streamflow", ["2025-06-26T00Z", "2025-06-26T01Z"]),
    ],
)
def test_every_dataset_has_samples_in_windows_of_its_own(site: Site, dataset: str, labels: list[str]) -> None:
    arguments = ["--dataset", dataset, "--windows", "2", "--start", "2025-06-26", "--json"]
    sent = kfm(site.environment, "emit", *arguments).json
    assert [key.split(":")[3] for key in sent["keys"]] == labels
    by_s3 = [said for message in waiting(site.services.settings.queue, 2) for said in normalise(message.body)]
    assert {resolve_event(said, site.services.datasets).key for said in by_s3} == set(sent["keys"])


def test_a_body_of_ones_own_goes_to_its_group(site: Site) -> None:
    kfm(site.environment, "emit", "--fifo", "--body", "-", "--group", "mine", text="anything at all")
    [message] = waiting(site.services.settings.fifo_queue)
    assert (message.body, message.group) == ("anything at all", "mine")


@pytest.mark.parametrize("target", ["topic", "queue"])
def test_a_notice_of_high_priority_goes_to_the_priority_queue(site: Site, target: str) -> None:
    arguments = ["--as", "auto-update", "--windows", "1", "--priority", "high", "--to", target, "--json"]
    assert kfm(site.environment, "emit", *arguments).json["messages"] == 1

    [message] = waiting(site.services.settings.priority_queue)
    [notice] = normalise(message.body)
    assert isinstance(notice, ObjectNotice)
    assert (notice.dataset, notice.priority, notice.granule_start is not None) == ("usgs/streamflow", "high", True)
    [by_s3] = waiting(site.services.settings.queue)
    assert normalise(by_s3.body)[0].shape == "s3-notification"


def test_the_attributes_of_a_notice_are_read_off_its_body(site: Site) -> None:
    put = site.put()
    site.drain()
    for priority in ("low", "high"):
        text = site.auto_update_message(put, priority=priority)
        assert kfm(site.environment, "emit", "--as", "auto-update", "--body", "-", text=text).code == 0

    settings = site.services.settings
    [low], [high] = waiting(settings.queue), waiting(settings.priority_queue)
    assert [normalise(message.body)[0].priority for message in (low, high)] == ["low", "high"]


@pytest.mark.parametrize(
    ("arguments", "text", "says"),
    [
        (["--as", "auto-update"], "not JSON", "is not JSON"),
        (["--as", "auto-update"], '{"Records": []}', "Records"),
        (["--fifo", "--group", "two words"], "x", "message group"),
    ],
)
def test_what_cannot_be_sent_is_one_sentence(untouched: Site, arguments: list[str], text: str, says: str) -> None:
    said = kfm(untouched.environment, "emit", "--body", "-", *arguments, text=text)
    assert said.code == 1
    assert says in said.err
    assert len(said.err.strip().splitlines()) == 1


def test_an_s3_notification_is_no_auto_update(site: Site) -> None:
    text = site.s3_message(site.put())
    said = kfm(site.environment, "emit", "--body", "-", "--as", "auto-update", text=text)
    assert (said.code, "names one asset of one dataset" in said.err) == (1, True)
