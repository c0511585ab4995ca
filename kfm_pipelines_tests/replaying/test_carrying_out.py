"""A replay carried out: every key once, as often as it takes, and no more than was agreed."""

from kfm_pipelines_tests.replaying.given import (
    carried_out,
    key_states,
    moves,
    outcomes,
    planned,
    published_hours,
)
from kfm_pipelines_tests.site import Site


def test_here(site: Site) -> None:
    keys = published_hours(site, 3)
    plan = planned(site, 3)
    replay = carried_out(site, plan.id, batch=2)
    print(replay, outcomes(site, plan.id), key_states(site, plan.id), moves(site, plan.id))
    print(site.fetch("select key, why, outcome, attempts, cpu_seconds, telemetry from kfm.replay_keys"))
    print(site.fetch("select key, step, outcome, detail->>'reason' as r from kfm.wal order by id"))
    assert replay.state == "done"
    assert list(outcomes(site, plan.id)) == keys
