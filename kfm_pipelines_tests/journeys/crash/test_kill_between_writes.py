"""SIGKILL between any two writes of a publication, and between the record of a drain and its delete."""

import time

import pytest

from kfm_pipelines.aws.clients import sqs_client
from kfm_pipelines.catalog.collections.refresh import refresh_stale_collections
from kfm_pipelines_tests.fixtures.runs.crash import (
    Undisturbed,
    assert_as_if_undisturbed,
    inbox_states,
    kill_worker,
    recover,
)
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow

# Which call for a key it is, by count: renames complete the validation report, the Item, the file under its known name
# and the history; provenance and manifest name the key, the other objects do not.
POINTS = {
    "report half written": ("before", "rename", 1),
    "objects kept": ("after", "keep", 1),
    "Item half written": ("before", "rename", 2),
    "Item swapped": ("after", "swap", 1),
    "known name about to be moved": ("after", "link", 1),
    "known name moved": ("after", "replace", 1),
    "revision half written": ("before", "rename", 4),
    "history half written": ("before", "rename", 5),
}


@pytest.mark.parametrize(("moment", "call", "nth"), POINTS.values(), ids=POINTS)
def test_killed_between_two_writes(site: Site, three_keys: Undisturbed, moment: str, call: str, nth: int) -> None:
    kill_worker(site, moment, call, site.key(1), nth)

    recover(site)

    assert_as_if_undisturbed(site, three_keys.tree, [site.key(hour) for hour in range(3)])
    assert set(inbox_states(site).values()) == {"succeeded"}


@pytest.mark.parametrize(
    ("moment", "call", "document"),
    [
        ("after", "write", "/history/"),
        ("before", "rename", "/by-time/"),
        ("after", "write", "collection.json"),
        ("before", "rename", "data/catalog/catalog.json"),
    ],
    ids=["revision written", "page half written", "collection written", "root half written"],
)
def test_killed_at_the_catalog(site: Site, three_keys: Undisturbed, moment: str, call: str, document: str) -> None:
    kill_worker(site, moment, call, document, 1)

    recover(site)
    assert refresh_stale_collections(site.services) == []

    assert_as_if_undisturbed(site, three_keys.tree, [site.key(hour) for hour in range(3)])


def test_killed_between_record_and_delete(site: Site) -> None:
    url = sqs_client().get_queue_url(QueueName=site.services.queue.name)["QueueUrl"]
    sqs_client().set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "1"})
    kill_worker(site, "after", "record", "", 1)
    recorded = site.fetch("SELECT identity, changed_at FROM kfm.inbox ORDER BY identity")
    time.sleep(1.1)

    counts = site.drain()

    assert len(recorded) == 3
    assert (counts.received, counts.recorded, counts.duplicates) == (3, 0, 3)
    assert site.fetch("SELECT identity, changed_at FROM kfm.inbox ORDER BY identity") == recorded
    assert site.work() == {"keys": 3, "published": 3, "skipped": 0, "failed": 0}
    assert site.drain().received == 0
