"""The real daemon: batches are its own backfills."""

import dagster as dg
import pytest

from kfm_pipelines.local.dagster import serve_dagster
from kfm_pipelines_tests.fixtures.runs.replay import moves, outcomes, planned, published_hours
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.processes import eventually
from kfm_pipelines_tests.fixtures.sites.site import Site


@pytest.mark.slow
def test_backfills_are_asked_for_and_finish(site: Site) -> None:
    keys = published_hours(site, 3)
    plan = planned(site, 3)
    with serve_dagster(site.root, site.environment), dg.DagsterInstance.get() as instance:
        assert eventually(lambda: "BACKFILL" in instance.get_daemon_heartbeats(), seconds=60)
        run = ("replay", "run", plan.id, "--canary", "1", "--by", "ana", "--json")
        done = kfm(site.environment, *run, seconds=200).json
        backfills = {one.backfill_id: one for one in instance.get_backfills()}
        runs = instance.get_runs(dg.RunsFilter(tags={"kfm/replay": plan.id}))
    assert (done["state"], done["outcomes"]) == ("done", {"SKIPPED": 3})
    statuses = {one: backfill.status.value for one, backfill in backfills.items()}
    assert statuses == {f"{plan.id}-1": "COMPLETED_SUCCESS"}
    assert [one["backfill"] for one in done["batches"]] == sorted(backfills)
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS]
    assert outcomes(site, plan.id) == {key: ["SKIPPED"] for key in keys}
    assert moves(site, plan.id)[-1] == ("done", "kfm")
