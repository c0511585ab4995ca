"""A replay killed at every step, one after the other, and then resumed misses no key and repeats none."""

import shutil
import signal

import pytest

from kfm_pipelines_tests.fixtures.forks.process import Forked
from kfm_pipelines_tests.fixtures.runs.crash import Undisturbed
from kfm_pipelines_tests.fixtures.runs.replay import PUBLISHED, carried_on, close_windows, key_states, outcomes, planned
from kfm_pipelines_tests.fixtures.sites.site import Site

REPLAYER = "kfm_pipelines_tests.journeys.crash.replayer"
PATIENCE_SECONDS = 60


def kill_replay(site: Site, replay: str, *point: str) -> None:
    log = site.root / f"{replay}-{'-'.join(point[:2])}.log"
    with log.open("wb") as out:
        process = Forked(["-m", REPLAYER, "SIGKILL", *point, replay], env=site.environment, stdout=out, stderr=out)
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL, f"it never reached {point}\n{log.read_text()[-3000:]}"


@pytest.mark.slow
def test_killed_anywhere_and_resumed(site: Site, three_keys: Undisturbed) -> None:
    """Three keys in batches of two, in a store that has lost everything."""
    site.work()
    close_windows(site)
    keys = [site.key(hour) for hour in range(3)]
    tree = site.tree(*PUBLISHED)
    for points in (
        [("before", "canary", "", "1"), ("before", "ask", "", "1"), ("after", "ask", "", "1"),
         ("after", "begin", keys[0], "1"), ("after", "commit", keys[0], "1")],
        [("inside", "publish", keys[1], "1"), ("after", "commit", keys[1], "1"), ("before", "settle", "", "2")],
        [("after", "settle", "", "3"), ("after", "end", "", "1"), ("after", "commit", keys[2], "1"),
         ("before", "records", "", "1"), ("after", "move", "'done'", "1")],
    ):  # fmt: skip
        for folder in PUBLISHED:
            shutil.rmtree(site.data / folder)
        plan = planned(site, 3)
        for point in points:
            kill_replay(site, plan.id, *point)

        assert carried_on(site, plan.id).state == "done", points

        assert key_states(site, plan.id) == dict.fromkeys(keys, "done"), points
        final = {key: [one for one in found if one != "FAILED"] for key, found in outcomes(site, plan.id).items()}
        assert final == {key: ["APPLIED"] for key in keys}, points
        assert site.tree(*PUBLISHED) == tree, points
        assert site.fetch("SELECT key FROM kfm.keys WHERE owner IS NOT NULL") == [], points
    assert site.fetch("SELECT DISTINCT revision FROM kfm.revisions") == [{"revision": 1}]
    assert site.fetch("SELECT count(*) AS n FROM kfm.revisions") == [{"n": 3}]
