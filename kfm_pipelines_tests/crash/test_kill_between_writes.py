"""SIGKILL between any two writes of a publication, and between the record of a drain and its delete."""

import time

import pytest

from kfm_pipelines.messaging.clients import sqs_client
from kfm_pipelines_tests.crash.given import Undisturbed, assert_as_if_undisturbed, inbox_states, kill_worker
from kfm_pipelines_tests.site import Site

pytestmark = pytest.mark.slow

# A key's calls of the store, counted: a claim removes the three work folders, a publication does so again at its end;
# the first `replace` is the swap's own, the second one gives the bytes the name that people know.
PUBLICATION = (
    ("before", "keep", 1),
    ("after", "keep", 1),
    ("before", "replace", 1),
    ("after", "replace", 1),
    ("after", "swap", 1),
    ("after", "replace", 2),
    ("after", "remove", 4),
    ("after", "remove", 5),
    ("after", "remove", 6),
)
# Tables after compute and mask, then data and Item in the staging tier.
HAND_OFFS = (("after", "write", 1), ("after", "write", 2), ("after", "write", 3), ("after", "write", 4))


@pytest.mark.parametrize(("moment", "call", "nth"), [*HAND_OFFS, *PUBLICATION])
def test_killed_between_two_writes(site: Site, three_keys: Undisturbed, moment: str, call: str, nth: int) -> None:
    kill_worker(site, moment, call, site.key(1), nth)

    site.work()

    assert_as_if_undisturbed(site, three_keys.tree, [site.key(hour) for hour in range(3)])
    assert set(inbox_states(site).values()) == {"succeeded"}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("document", ["collection.json", "catalog.json"])
def test_killed_at_the_collection(site: Site, three_keys: Undisturbed, document: str, moment: str) -> None:
    kill_worker(site, moment, "write", document, 1)

    site.work()

    assert_as_if_undisturbed(site, three_keys.tree, [site.key(hour) for hour in range(3)])


def test_killed_between_record_and_delete(site: Site) -> None:
    url = sqs_client().get_queue_url(QueueName=site.workshop.queue.name)["QueueUrl"]
    sqs_client().set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "1"})
    kill_worker(site, "after", "record", "", 1)
    recorded = site.fetch("SELECT identity, changed_at FROM kfm.inbox ORDER BY identity")
    time.sleep(1.1)

    tally = site.drain()

    assert len(recorded) == 3
    assert (tally.received, tally.recorded, tally.duplicates) == (3, 0, 3)
    assert site.fetch("SELECT identity, changed_at FROM kfm.inbox ORDER BY identity") == recorded
    assert site.work() == {"keys": 3, "published": 3, "skipped": 0, "failed": 0}
    assert site.drain().received == 0
