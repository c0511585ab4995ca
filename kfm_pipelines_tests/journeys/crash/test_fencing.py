"""A worker that stalls and resumes too late publishes nothing: another worker has taken the key and keeps it."""

import time
from typing import Any

import pytest

from kfm_pipelines_tests.fixtures.runs.batches import expire_leases
from kfm_pipelines_tests.fixtures.runs.crash import (
    Undisturbed,
    Worker,
    assert_as_if_undisturbed,
    inbox_states,
    recover,
    stopped_worker,
)
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow

# Points without a lock, so that others need not wait for the stalled worker.
STALLS = {
    "before the claim's first entry": ("before", "begin"),
    "computed": ("before", "compute"),
    "masked": ("before", "mask"),
    "judged": ("before", "validate"),
    "staged": ("before", "stage_atomic"),
    "before the intent": ("before", "publish"),
    "after the intent": ("after", "publish"),
}
# Points with the key's row locked.
LOCKED_STALLS = {"before the swap": ("before", "swap"), "after the swap": ("after", "swap")}


@pytest.mark.parametrize(("moment", "place"), STALLS.values(), ids=STALLS)
def test_a_late_worker_loses(site: Site, three_keys: Undisturbed, moment: str, place: str) -> None:
    with stopped_worker(site, moment, place, site.key(1), 1) as late:
        recover(site)
        _assert_published_once(site, three_keys)
        log = _log_of(site, site.key(1))

        late.resume()
        late.assert_ended_well()

    _assert_published_once(site, three_keys)
    assert _log_of(site, site.key(1)) == log
    assert site.fetch("SELECT * FROM kfm.dead_letters") == []


def test_a_late_worker_leaves_its_successor_what_it_needs(site: Site, three_keys: Undisturbed) -> None:
    with stopped_worker(site, "after", "publish", site.key(1), 1) as late:
        expire_leases(site.services)
        with stopped_worker(site, "after", "take", site.key(1), 1) as successor:
            late.resume()
            late.assert_ended_well()
            successor.resume()
            successor.assert_ended_well()

    _assert_published_once(site, three_keys)
    assert site.fetch("SELECT * FROM kfm.dead_letters") == []


@pytest.mark.parametrize("wakes", [True, False], ids=["then wakes", "then is killed"])
@pytest.mark.parametrize(("moment", "place"), LOCKED_STALLS.values(), ids=LOCKED_STALLS)
def test_nobody_overtakes_a_publication(
    site: Site, three_keys: Undisturbed, moment: str, place: str, wakes: bool
) -> None:
    with stopped_worker(site, moment, place, site.key(1), 1) as late:
        # Only its batches: a whole worker does not even try a key whose row is locked.
        second = Worker(site, "SIGCONT", "before", "nothing", "", 1, "batches")
        try:
            _await_a_blocked_claim(site)
            assert second.is_running()
            if wakes:
                late.resume()
                late.assert_ended_well()
            else:
                late.kill()
            second.assert_ended_well()
        finally:
            second.kill()

    _assert_published_once(site, three_keys)
    assert site.fetch("SELECT * FROM kfm.dead_letters") == []


def _await_a_blocked_claim(site: Site) -> None:
    """Waits until another worker blocks on the row of the stalled worker's key."""
    deadline = time.monotonic() + 60
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR NO KEY UPDATE%'"
    while not site.fetch(waiting):
        assert time.monotonic() < deadline, "no second worker reached the locked key"
        time.sleep(0.1)


def _log_of(site: Site, key: str) -> list[dict[str, Any]]:
    return site.fetch(f"SELECT * FROM kfm.wal WHERE key = '{key}' ORDER BY id")


def _assert_published_once(site: Site, three_keys: Undisturbed) -> None:
    assert_as_if_undisturbed(site, three_keys.tree, [site.key(hour) for hour in range(3)])
    assert set(inbox_states(site).values()) == {"succeeded"}
