"""SIGKILL before, inside and after every transition of the log: the next worker ends in the same state as without it.

At one moment of each transition a whole worker is killed and recovers; at the others the batches that it runs do.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm_pipelines_tests.fixtures.runs.batches import expire_leases
from kfm_pipelines_tests.fixtures.runs.crash import (
    KILLER,
    PUBLISHED,
    Undisturbed,
    applied,
    assert_as_if_undisturbed,
    assert_items_lead_to_their_bytes,
    inbox_states,
    kill_worker,
    recover,
)
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow

MOMENTS = ("before", "inside", "after")
STEPS = ("begin", "compute", "mask", "validate", "stage_atomic", "publish", "commit")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("step", STEPS)
def test_killed_on_the_way(site: Site, three_keys: Undisturbed, step: str, moment: str) -> None:
    if moment == "after":
        kill_worker(site, moment, step, site.key(1), 1, runs="worker")
        expire_leases(site.services)
        site.work()
    else:
        kill_worker(site, moment, step, site.key(1), 1)
        recover(site)

    _assert_three_published(site, three_keys)


def test_killed_in_an_interpreter_of_its_own(site: Site, three_keys: Undisturbed) -> None:
    """The others are forked; this one is started like a worker."""
    command = [sys.executable, "-m", KILLER, "SIGKILL", "after", "publish", site.key(1), "1"]
    killed = subprocess.run(command, env=dict(site.environment), check=False, capture_output=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    recover(site)

    _assert_three_published(site, three_keys)


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_rolling_back(site: Site, three_keys: Undisturbed, moment: str) -> None:
    kill_worker(site, "after", "stage_atomic", site.key(1), 1)
    expire_leases(site.services)
    kill_worker(site, moment, "fail", site.key(1), 1)

    recover(site)

    _assert_three_published(site, three_keys)


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_rolling_forward(site: Site, three_keys: Undisturbed, moment: str) -> None:
    kill_worker(site, "after", "publish", site.key(1), 1)
    expire_leases(site.services)
    kill_worker(site, moment, "commit", site.key(1), 1)

    recover(site)

    _assert_three_published(site, three_keys)


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_a_skip(site: Site, three_keys: Undisturbed, moment: str) -> None:
    recover(site)
    for put in three_keys.puts:
        site.send(site.auto_update_message(put))
    kill_worker(site, moment, "skip", site.key(1), 1)

    recover(site)

    _assert_three_published(site, three_keys)
    skips = site.fetch("SELECT key FROM kfm.wal WHERE outcome = 'SKIPPED' ORDER BY key")
    assert {row["key"] for row in skips} == {site.key(hour) for hour in range(3)}


class TestWithARedKey:
    @pytest.fixture
    def site(self, red_between_green: Undisturbed, tmp_path: Path) -> Iterator[Site]:
        with red_between_green.again(tmp_path / "site") as opened:
            yield opened

    @pytest.mark.parametrize("hour", [0, 1, 2], ids=["handing back", "failing", "handing back later"])
    @pytest.mark.parametrize("moment", MOMENTS)
    def test_killed_at_a_failure(self, site: Site, red_between_green: Undisturbed, hour: int, moment: str) -> None:
        kill_worker(site, moment, "fail", site.key(hour), 1)

        recover(site)

        assert applied(site) == {site.key(0): 1, site.key(2): 1}
        assert inbox_states(site) == {site.key(0): "succeeded", site.key(1): "failed", site.key(2): "succeeded"}
        assert_items_lead_to_their_bytes(site)
        assert site.tree(*PUBLISHED) == red_between_green.tree
        assert site.tree("work") == {}
        [letter] = site.fetch("SELECT key, failure_stage, error FROM kfm.dead_letters")
        assert letter == {"key": site.key(1), "failure_stage": "validate", "error": "GateRefused"}


def _assert_three_published(site: Site, three_keys: Undisturbed) -> None:
    keys = [site.key(hour) for hour in range(3)]
    assert_as_if_undisturbed(site, three_keys.tree, keys)
    assert set(inbox_states(site).values()) == {"succeeded"}
