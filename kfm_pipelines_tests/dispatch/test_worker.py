"""A worker without a daemon keeps the same order and limits, although no run queue enforces them."""

from dataclasses import asdict

import dagster as dg
import pytest

from kfm_pipelines.dispatch.dispatch import run_tags
from kfm_pipelines.dispatch.plan import FairScheduler
from kfm_pipelines.dispatch.tables import RecentDispatch
from kfm_pipelines.dispatch.worker import _next_runs
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.operations.kill_switch import switch
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.state.keys import Claims
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines_tests.fixtures.runs.dispatch import declare, enqueue, make_due
from kfm_pipelines_tests.fixtures.runs.keys import advance, begin, revision
from kfm_pipelines_tests.fixtures.sites.site import Site, work_once

DATASET = "usgs/streamflow"
KANSAS = "usgs-streamflow:kansas_statewide:none:2025-"


def test_a_worker_runs_a_share_of_keys_that_are_not_urgent(small: Site) -> None:
    urgent = make_due(small, *range(5), priority="high")
    others = make_due(small, 10, 11)
    with open_instance() as instance:
        scheduler = FairScheduler([])
        assert [run.names for run in _next_runs(instance, small.services, scheduler)] == [
            (key,) for key in (*urgent[:3], others[0])
        ]
        owed = FairScheduler([RecentDispatch(DATASET, urgent=True)] * 3)
        assert next(_next_runs(instance, small.services, owed)).names == (others[0],)


@pytest.mark.parametrize("concurrency", [{"serial": True}, {"limits": [{"prefix": KANSAS, "runs": 1}]}])
def test_a_worker_respects_the_limits_of_runs_in_progress(site: Site, concurrency: dict[str, object]) -> None:
    declare(site, **concurrency)
    keys = make_due(site, 0, 1)
    with open_instance() as instance:
        under_way = enqueue(site, instance, status=dg.DagsterRunStatus.STARTED, tags=run_tags(site.dataset, keys))
        assert [*_next_runs(instance, site.services, FairScheduler([]))] == []

        run = instance.get_run_by_id(under_way)
        assert run is not None
        instance.report_run_canceled(run)
        assert [run.names for run in _next_runs(instance, site.services, FairScheduler([]))] == [tuple(keys)]


def test_a_run_of_a_worker_counts_in_the_run_queue(site: Site) -> None:
    declare(site, serial=True, limits=[{"prefix": KANSAS, "runs": 1}])
    site.put()
    site.work()
    with open_instance() as instance:
        [run] = instance.get_runs()
    assert run.tags["kfm/at-most-1"] == KANSAS
    assert run.run_op_concurrency is not None
    assert run.run_op_concurrency.all_pools == {"serial_usgs_streamflow"}


def test_a_publication_that_cannot_be_completed_is_reported(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a killed dataset, whose key no other run takes over."""
    database = site.services.database
    [key] = make_due(site, 0)
    claim = Claims(database, "one that died", 60).take(key)
    begin(database, claim)
    for step in (Step.COMPUTE, Step.MASK, Step.VALIDATE, Step.STAGE_ATOMIC, Step.PUBLISH):
        advance(database, claim, step, {**asdict(revision(key)), "expected_item": None})
    database.execute("UPDATE kfm.keys SET lease_until = clock_timestamp() - interval '1 minute'")
    switch.kill(site.services, DATASET, "ana", "to see what is reported")

    def away(store: FileStore, path: str) -> str | None:
        raise ServiceUnavailable("the store does not answer")

    monkeypatch.setattr(FileStore, "digest", away)
    reported: list[tuple[str, ...]] = []
    worked = work_once(site.services, on_progress=lambda worked: reported.append(worked.problems))
    assert worked.problems == (f"publication of {key}: the store does not answer",)
    assert reported == [worked.problems]
