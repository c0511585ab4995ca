"""What a successor finds after a publish intent, and what it makes of it."""

import shutil

import pytest

from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines_tests.fixtures.runs.crash import Undisturbed, Worker
from kfm_pipelines_tests.fixtures.sites.site import START, Site

INTENT = ("SIGKILL", "after", "publish")


def killed_after_intent(site: Site) -> None:
    assert Worker(site, *INTENT, site.key(1), 1).ended_with() == -9


@pytest.mark.slow
def test_an_event_that_comes_before_the_roll_forward_is_not_forgotten(site: Site) -> None:
    killed_after_intent(site)
    _, other = streamflow_object(START, seed=1)
    newer = site.put(1, other, name="second.parquet")
    site.send(site.s3_message(newer))
    site.drain()

    site.work()

    assert site.fetch("SELECT DISTINCT state FROM kfm.inbox") == [{"state": "failed"}, {"state": "succeeded"}]
    [row] = site.fetch("SELECT count(*) AS n FROM kfm.dead_letters WHERE reason LIKE '%outside%'")
    assert row["n"] == 1  # it was looked at, and refused by the gate: these are the readings of another hour


@pytest.mark.slow
def test_a_publication_that_cannot_be_completed_is_begun_anew(site: Site, three_keys: Undisturbed) -> None:
    killed_after_intent(site)
    shutil.rmtree(site.data / "work" / "staged")

    assert site.work()["failed"] == 0

    assert site.tree("catalog", "objects", "processed") == three_keys.tree
    reasons = site.fetch("SELECT detail ->> 'reason' AS reason FROM kfm.wal WHERE step = 'fail'")
    assert any("nothing was published" in str(row["reason"]) for row in reasons)
    assert site.tree("work") == {}


@pytest.mark.slow
def test_an_item_changed_by_hand_in_between_does_not_hold_the_key_up(site: Site, three_keys: Undisturbed) -> None:
    killed_after_intent(site)
    item = site.data / f"catalog/usgs-streamflow/items/{site.key(1)}.json"
    item.parent.mkdir(parents=True, exist_ok=True)
    item.write_text("changed by hand")

    assert site.work()["failed"] == 0

    assert site.tree("catalog", "objects", "processed") == three_keys.tree
