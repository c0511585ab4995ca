"""How a successor handles a publish intent that it finds: complete it, or abandon it and begin again."""

import pytest

from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines_tests.fixtures.runs.batches import expire_leases
from kfm_pipelines_tests.fixtures.runs.crash import Undisturbed, kill_worker
from kfm_pipelines_tests.fixtures.sites.site import START, Site


def killed_after_intent(site: Site) -> None:
    kill_worker(site, "after", "publish", site.key(1), 1)
    expire_leases(site.services)


@pytest.mark.slow
def test_an_event_received_before_the_roll_forward_is_still_processed(site: Site) -> None:
    killed_after_intent(site)
    _, other = streamflow_object(START, seed=1)
    newer = site.put(1, other, name="second.parquet")
    site.send(site.s3_message(newer))
    site.drain()

    site.work()

    assert site.fetch("SELECT DISTINCT state FROM kfm.inbox") == [{"state": "failed"}, {"state": "succeeded"}]
    [row] = site.fetch("SELECT count(*) AS n FROM kfm.dead_letters WHERE reason LIKE '%outside%'")
    assert row["n"] == 1  # it was processed, and refused because these are the readings of another hour


@pytest.mark.slow
def test_a_publication_that_cannot_be_completed_is_begun_again(site: Site, three_keys: Undisturbed) -> None:
    """What was staged ended with its process."""
    killed_after_intent(site)

    assert site.work()["failed"] == 0

    assert site.tree("catalog", "objects", "processed") == three_keys.tree
    reasons = site.fetch("SELECT detail ->> 'reason' AS reason FROM kfm.wal WHERE step = 'fail'")
    assert any("nothing was published" in str(row["reason"]) for row in reasons)
    assert site.tree("work") == {}


@pytest.mark.slow
def test_an_item_changed_by_hand_meanwhile_does_not_block_the_key(site: Site, three_keys: Undisturbed) -> None:
    killed_after_intent(site)
    item = site.data / f"catalog/usgs-streamflow/items/{site.key(1)}.json"
    item.parent.mkdir(parents=True, exist_ok=True)
    item.write_text("changed by hand")

    assert site.work()["failed"] == 0

    assert site.tree("catalog", "objects", "processed") == three_keys.tree
