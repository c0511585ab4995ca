"""A dataset is killed while a worker is at some point: only what readers already see is completed before `unkill`."""

import pytest

from kfm_pipelines.errors import StillPublishing
from kfm_pipelines.state import kill_switch
from kfm_pipelines_tests.fixtures.runs.batches import expire_leases
from kfm_pipelines_tests.fixtures.runs.crash import (
    PUBLISHED,
    Undisturbed,
    applied,
    assert_as_if_undisturbed,
    kill_worker,
    stopped_worker,
)
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow

DATASET = "usgs/streamflow"


def kill(site: Site) -> None:
    kill_switch.kill(site.services.database, DATASET, "ada", "wrong datum")


def work_after_the_leases(site: Site) -> None:
    expire_leases(site.services)
    site.work()


def assert_unkilled_as_if_undisturbed(site: Site, three_keys: Undisturbed) -> None:
    assert site.fetch("SELECT * FROM kfm.dead_letters") == []
    assert kill_switch.unkill(site.services.database, DATASET, "ada", "corrected")
    work_after_the_leases(site)
    assert_as_if_undisturbed(site, three_keys.tree, [site.key(hour) for hour in range(3)])


def items(site: Site) -> list[str]:
    return [path for path in site.tree(*PUBLISHED) if "/items/" in path]


@pytest.mark.parametrize(
    ("moment", "place", "completed"),
    [("after", "swap", True), ("after", "publish", False)],
)
def test_a_publication_is_completed_at_once_if_readers_see_it_and_after_unkill_otherwise(
    site: Site, three_keys: Undisturbed, moment: str, place: str, completed: bool
) -> None:
    kill_worker(site, moment, place, site.key(1), 1)
    kill(site)
    seen = items(site)

    work_after_the_leases(site)

    assert applied(site) == ({site.key(hour): 1 for hour in range(3)} if completed else {})
    assert items(site) == seen
    assert len(seen) == (3 if completed else 0)
    assert_unkilled_as_if_undisturbed(site, three_keys)


def test_a_running_worker_stops_before_its_next_swap(site: Site, three_keys: Undisturbed) -> None:
    with stopped_worker(site, "after", "stage_atomic", site.key(1), 1) as worker:
        kill(site)
        worker.resume()
        worker.assert_ended_well()

    assert items(site) == []
    assert applied(site) == {}
    attempts = site.fetch("SELECT key, attempts FROM kfm.keys ORDER BY key")
    assert attempts == [{"key": site.key(hour), "attempts": 0} for hour in range(3)]
    assert_unkilled_as_if_undisturbed(site, three_keys)


def test_a_kill_waits_for_a_worker_stopped_at_its_swap(site: Site, three_keys: Undisturbed) -> None:
    with stopped_worker(site, "before", "swap", site.key(1), 1) as worker:
        with pytest.raises(StillPublishing, match="still running after 0 s: 1;"):
            kill_switch.kill(site.services.database, DATASET, "ada", "wrong datum", wait_seconds=0.5)
        worker.kill()
    kill(site)
    assert items(site) == []
    assert_unkilled_as_if_undisturbed(site, three_keys)
