"""Which queued runs Dagster's run queue would start, given our pools, tags and dagster.yaml."""

import dagster as dg
import pytest
from dagster._core.run_coordinator.queued_run_coordinator import QueuedRunCoordinator
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from kfm_pipelines.declarations import PrefixLimit
from kfm_pipelines.dispatch.dispatch import dispatch, run_tags
from kfm_pipelines_tests.fixtures.runs.dispatch import OTHER, declare, enqueue
from kfm_pipelines_tests.fixtures.sites.site import Site

KANSAS = "usgs-streamflow:kansas_statewide:none:2025-"
STARTED = dg.DagsterRunStatus.STARTED


def starting(instance: dg.DagsterInstance) -> set[str]:
    """The decision of the daemon's real queue, without its processes."""
    assert isinstance(instance.run_coordinator, QueuedRunCoordinator)
    daemon = QueuedRunCoordinatorDaemon(interval_seconds=1)
    return {run.run_id for run in daemon._get_runs_to_dequeue(instance, instance.get_concurrency_config(), None)}


def test_one_run_of_a_serial_dataset_starts_and_others_pass_it(site: Site, instance: dg.DagsterInstance) -> None:
    declare(site, serial=True)
    dispatch(instance, site.services)
    serial = [enqueue(site, instance) for _ in range(2)]
    others = {enqueue(site, instance, OTHER) for _ in range(2)}

    assert starting(instance) == {serial[0], *others}


def test_a_run_of_a_serial_dataset_waits_for_the_one_under_way(site: Site, instance: dg.DagsterInstance) -> None:
    declare(site, serial=True)
    dispatch(instance, site.services)
    enqueue(site, instance, status=STARTED)
    waiting, other = enqueue(site, instance), enqueue(site, instance, OTHER)

    assert starting(instance) == {other}

    [done] = instance.get_runs(dg.RunsFilter(statuses=[STARTED]))
    instance.report_run_canceled(done)
    assert starting(instance) == {waiting, other}


def test_without_a_tick_the_pool_has_its_limit_from_the_second_look_on(
    site: Site, instance: dg.DagsterInstance
) -> None:
    """This is why a tick configures the pools: Dagster's default applies too late for the first runs."""
    declare(site, serial=True)
    serial = [enqueue(site, instance) for _ in range(2)]
    assert starting(instance) == {*serial}
    assert len(starting(instance)) == 1


def test_a_limit_set_by_hand_stays(site: Site, instance: dg.DagsterInstance) -> None:
    declare(site, serial=True)
    instance.event_log_storage.set_concurrency_slots("serial_usgs_streamflow", 2)
    dispatch(instance, site.services)
    runs = {enqueue(site, instance) for _ in range(2)}
    assert starting(instance) == runs


@pytest.mark.slow
@pytest.mark.parametrize("at_most", [1, 3])
def test_under_a_prefix_as_many_runs_start_as_declared(site: Site, instance: dg.DagsterInstance, at_most: int) -> None:
    may, june = ({"prefix": f"{KANSAS}{month}", "runs": at_most} for month in ("05", "06"))
    declare(site, limits=[may, june])
    tags = run_tags(site.dataset, [f"{KANSAS}05-01"])
    runs = [enqueue(site, instance, tags=tags) for _ in range(at_most + 1)]
    other = enqueue(site, instance, tags=run_tags(site.dataset, [f"{KANSAS}06-01"]))

    found = starting(instance)

    assert found == {*[*runs[:at_most], other][:4]}


def test_every_limit_that_can_be_declared_is_in_the_instances_settings(instance: dg.DagsterInstance) -> None:
    bounds = PrefixLimit.model_json_schema()["properties"]["runs"]
    queue = instance.get_concurrency_config().run_queue_config
    assert queue is not None
    assert [(limit["key"], limit["limit"]) for limit in queue.tag_concurrency_limits] == [
        (f"kfm/at-most-{runs}", runs) for runs in range(bounds["minimum"], bounds["maximum"] + 1)
    ]
    assert {limit["value"]["applyLimitPerUniqueValue"] for limit in queue.tag_concurrency_limits} == {True}
