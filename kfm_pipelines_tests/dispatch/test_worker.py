"""A worker without a daemon keeps the same order and limits, although no run queue enforces them."""

from dataclasses import asdict

import dagster as dg
import pytest
from dagster._core.storage.tags import RUN_KEY_TAG

from kfm_pipelines.dispatch.dispatch import dispatch, run_tags
from kfm_pipelines.dispatch.worker import _bind_next_run
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.operations.kill_switch import switch
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.state.keys import Claims
from kfm_pipelines.state.liveness import ProcessLock
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines_tests.fixtures.runs.dispatch import declare, enqueue, make_due
from kfm_pipelines_tests.fixtures.runs.keys import advance, begin, revision
from kfm_pipelines_tests.fixtures.sites.site import Site, work_once

DATASET = "usgs/streamflow"
KANSAS = "usgs-streamflow:kansas_statewide:none:2025-"


def bound_runs(instance: dg.DagsterInstance, site: Site, count: int) -> list[tuple[str, ...]]:
    """Returns the keys of the next runs that a worker would execute, until there is none."""
    runs = [_bind_next_run(instance, site.services, process=1) for _ in range(count)]
    return [run.names for run in runs if run]


def test_a_worker_runs_a_share_of_keys_that_are_not_urgent(small: Site) -> None:
    urgent = make_due(small, *range(5), priority="high")
    others = make_due(small, 10, 11)
    with open_instance() as instance:
        assert bound_runs(instance, small, 6) == [(key,) for key in (*urgent[:3], others[0], *urgent[3:])]


@pytest.mark.parametrize("concurrency", [{"serial": True}, {"limits": [{"prefix": KANSAS, "runs": 1}]}])
def test_a_worker_respects_the_limits_of_runs_in_progress(
    site: Site, instance: dg.DagsterInstance, concurrency: dict[str, object]
) -> None:
    declare(site, **concurrency)
    keys = make_due(site, 0, 1)
    under_way = enqueue(site, instance, status=dg.DagsterRunStatus.STARTED, tags=run_tags(site.dataset, keys))
    assert bound_runs(instance, site, 1) == []

    run = instance.get_run_by_id(under_way)
    assert run is not None
    instance.report_run_canceled(run)
    assert bound_runs(instance, site, 1) == [tuple(keys)]
    make_due(site, 5)
    assert bound_runs(instance, site, 1) == []  # although the worker has not yet begun its run


def test_idle_workers_share_what_is_due(site: Site, instance: dg.DagsterInstance) -> None:
    keys = make_due(site, *range(60))
    workers = [ProcessLock(site.services.database, worker=True) for _ in range(2)]
    shares = [_bind_next_run(instance, site.services, one.number) for one in (*workers, workers[0])]
    assert [run and run.names for run in shares] == [tuple(keys[:30]), tuple(keys[30:]), None]
    for worker in workers:
        worker.close()


def test_keys_of_a_worker_that_died_before_its_run_are_free_again(site: Site, instance: dg.DagsterInstance) -> None:
    keys = tuple(make_due(site, 0, 1))
    worker = ProcessLock(site.services.database, worker=True)
    assert _bind_next_run(instance, site.services, worker.number) is not None
    age = "UPDATE kfm.dispatches SET requested_at = requested_at - interval '9 s'"
    site.services.database.execute(age)
    assert bound_runs(instance, site, 1) == []

    worker.close()

    assert bound_runs(instance, site, 1) == [keys]


def test_a_worker_takes_a_request_that_no_daemon_has_started(site: Site, instance: dg.DagsterInstance) -> None:
    keys = tuple(make_due(site, 0, 1))
    [request] = dispatch(instance, site.services).runs
    run = enqueue(site, instance, tags={RUN_KEY_TAG: request.run_key or ""})
    assert bound_runs(instance, site, 1) == [keys]

    site.services.database.execute("UPDATE kfm.keys SET dispatch = %(key)s", {"key": request.run_key})
    instance.run_storage.handle_run_event(run, dg.DagsterEvent("PIPELINE_STARTING", "usgs_streamflow"))
    assert bound_runs(instance, site, 1) == []


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
