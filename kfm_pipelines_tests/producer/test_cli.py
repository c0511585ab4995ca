"""`kfm emit` by each of the three routes."""

import json
import time
from collections.abc import Iterator

import pytest

from kfm_pipelines.aws.queue import Message, Queue
from kfm_pipelines.events import ObjectNotice, normalise, resolve_event
from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.site import START, Put, Site, opened_site

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One site for all tests: each takes off the queues whatever it sends."""
    root = tmp_path_factory.mktemp("emit") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        yield opened


def waiting(queue: str, expected: int = 1) -> list[Message]:
    """Receives what is on the queue; S3 sends its notices a moment after the upload."""
    found: list[Message] = []
    deadline = time.monotonic() + 10
    while len(found) < expected and time.monotonic() < deadline:
        found += Queue(queue).receive()
    found += Queue(queue).receive()
    Queue(queue).delete(found)
    return found


@pytest.mark.parametrize(("target", "day"), [("topic", 0), ("queue", 1)])
def test_fifo_envelopes_are_delivered_once_and_identified_as_s3_does(site: Site, target: str, day: int) -> None:
    arguments = [
        "--start",
        f"2025-12-0{4 + day}",
        "--windows",
        "2",
        "--copies",
        "2",
        "--fifo",
        "--to",
        target,
        "--json",
    ]
    sent = kfm(site.environment, "emit", *arguments).json
    assert sent == {"objects": 2, "messages": 6, "keys": [site.key(24 * day), site.key(24 * day + 1)]}

    settings = site.services.settings
    by_us = waiting(settings.fifo_queue, 2)
    by_s3 = [notice for message in waiting(settings.queue, 2) for notice in normalise(message.body)]
    assert [json.loads(message.body)["event_source"] for message in by_us] == ["kfm.usgs.streamflow"] * 2
    assert {json.loads(message.body)["dedupe_key"] for message in by_us} == {notice.identity for notice in by_s3}
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
    by_s3 = [notice for message in waiting(site.services.settings.queue, 2) for notice in normalise(message.body)]
    assert {resolve_event(notice, site.services.datasets).key for notice in by_s3} == set(sent["keys"])


def test_a_given_body_goes_to_its_group(site: Site) -> None:
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


def test_the_attributes_of_a_notice_are_taken_from_its_body(site: Site) -> None:
    put = site.put()
    site.drain()
    for priority in ("low", "high"):
        text = site.auto_update_message(put, priority=priority)
        assert kfm(site.environment, "emit", "--as", "auto-update", "--body", "-", text=text).code == 0

    settings = site.services.settings
    [low], [high] = waiting(settings.queue), waiting(settings.priority_queue)
    assert [normalise(message.body)[0].priority for message in (low, high)] == ["low", "high"]


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (["--as", "auto-update"], "not JSON", "is not JSON"),
        (["--as", "auto-update"], '{"Records": []}', "Records"),
        (["--fifo", "--group", "two words"], "x", "message group"),
    ],
)
def test_a_refusal_is_one_sentence(untouched: Site, arguments: list[str], text: str, message: str) -> None:
    result = kfm(untouched.environment, "emit", "--body", "-", *arguments, text=text)
    assert result.code == 1
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_an_s3_notification_is_no_auto_update(untouched: Site) -> None:
    text = untouched.s3_message(Put("usgs/streamflow/a.parquet", "etag", "v1", 3, START))
    result = kfm(untouched.environment, "emit", "--body", "-", "--as", "auto-update", text=text)
    assert (result.code, "must name one asset of one dataset" in result.err) == (1, True)
