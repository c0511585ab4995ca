"""A sensor tick on a real site and Dagster instance: the runs it requests, and its reason when it requests none."""

from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG, RUN_KEY_TAG

from kfm_pipelines.aws.clients import sqs_client
from kfm_pipelines.definitions import CHORES, build_definitions
from kfm_pipelines.dispatch.sensor import tick
from kfm_pipelines.dispatch.tables import open_dispatches
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines_tests.fixtures.runs.dispatch import enqueue, skip_reason
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site


def requests_of_tick(site: Site, instance: dg.DagsterInstance) -> list[dg.RunRequest]:
    return list(tick(instance, site.services, CHORES).run_requests or [])


def run(site: Site, instance: dg.DagsterInstance, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
    """Executes a request in this process, as Dagster's daemon does in another."""
    job = build_definitions(site.services.settings.resources).resolve_job_def(request.job_name or "")
    return job.execute_in_process(
        instance=instance,
        partition_key=request.partition_key,
        tags={**request.tags, RUN_KEY_TAG: request.run_key or ""},
        raise_on_error=False,
    )


def age_dispatches(site: Site, seconds: int) -> None:
    site.services.database.execute(
        "UPDATE kfm.dispatches SET requested_at = requested_at - make_interval(secs => %(seconds)s)",
        {"seconds": seconds},
    )


def test_the_first_tick_requests_one_run_over_all_new_keys(site: Site, instance: dg.DagsterInstance) -> None:
    for hour in (2, 0, 1):
        site.put(hour)

    [request] = requests_of_tick(site, instance)

    assert request.job_name == "usgs_streamflow"
    assert request.tags["kfm/keys"] == "3"
    assert request.tags[ASSET_PARTITION_RANGE_START_TAG] == site.key(0)
    assert request.tags[ASSET_PARTITION_RANGE_END_TAG] == site.key(2)
    assert instance.get_dynamic_partitions("usgs_streamflow") == [site.key(hour) for hour in range(3)]
    [dispatch] = open_dispatches(site.services.database)
    assert (dispatch.run_key, dispatch.keys) == (request.run_key, tuple(site.key(hour) for hour in range(3)))
    assert site.services.queue.depth().waiting == 0


def test_one_key_is_a_run_over_one_partition(site: Site, instance: dg.DagsterInstance) -> None:
    site.put()
    [request] = requests_of_tick(site, instance)
    assert (request.partition_key, request.run_key) == (site.key(), f"{site.key()}#0#1")


def test_an_idle_tick_reports_the_depth_of_the_queue(site: Site, instance: dg.DagsterInstance) -> None:
    name = site.services.queue.name
    assert skip_reason(site, instance) == (
        f"queue {name}: 0 waiting, 0 in flight; this tick: no messages; no key is due, 0 runs open"
    )


def test_a_tick_without_requests_reports_what_it_read(site: Site, instance: dg.DagsterInstance) -> None:
    put = site.put()
    assert len(requests_of_tick(site, instance)) == 1
    site.send(site.s3_message(put))
    site.send("this is no event")
    reason = skip_reason(site, instance)
    assert "this tick: 0 new events, 1 duplicate, 1 refused" in reason
    assert "; usgs/streamflow complete until 2025-12-03T21:00Z; " in reason
    assert reason.endswith("; no key is due, 1 run open")


def test_keys_wait_while_enough_runs_are_open(stack: Stack, site_template: str, tmp_path: Path) -> None:
    url = stack.environment["KFM_POSTGRES_URL"]
    limits = {"KFM_RUNS_IN_FLIGHT": "2", "KFM_BATCH_SIZE": "1"}
    with opened_site(tmp_path / "site", url, site_template, **limits) as site, open_instance() as instance:
        for hour in range(3):
            site.put(hour)

        assert [request.partition_key for request in requests_of_tick(site, instance)] == [site.key(0), site.key(1)]
        assert skip_reason(site, instance).endswith("; 1 key waits for one of the 2 runs open to end")


def test_a_missing_queue_is_reported_with_a_remedy(site: Site, instance: dg.DagsterInstance) -> None:
    url = sqs_client().get_queue_url(QueueName=site.services.queue.name)["QueueUrl"]
    sqs_client().delete_queue(QueueUrl=url)

    reason = skip_reason(site, instance)

    name = site.services.settings.queue
    assert f"there is no queue '{name}'; `kfm doctor --fix` creates it; will try again; " in reason


def test_recorded_keys_do_not_wait_for_a_missing_queue(site: Site, instance: dg.DagsterInstance) -> None:
    site.put()
    site.drain()
    sqs_client().delete_queue(QueueUrl=sqs_client().get_queue_url(QueueName=site.services.queue.name)["QueueUrl"])
    assert [request.partition_key for request in requests_of_tick(site, instance)] == [site.key()]


def test_a_lost_request_is_repeated_under_the_same_run_key(site: Site, instance: dg.DagsterInstance) -> None:
    site.put()
    [lost] = requests_of_tick(site, instance)
    assert "no key is due, 1 run open" in skip_reason(site, instance)

    age_dispatches(site, 61)

    [again] = requests_of_tick(site, instance)
    assert again == lost


def test_a_request_whose_run_exists_is_not_lost_however_old(site: Site, instance: dg.DagsterInstance) -> None:
    site.put()
    [request] = requests_of_tick(site, instance)
    started = enqueue(site, instance, status=dg.DagsterRunStatus.STARTED, tags={RUN_KEY_TAG: request.run_key or ""})
    age_dispatches(site, 3600)

    assert "1 run open" in skip_reason(site, instance)
    assert [run.run_id for run in instance.get_runs()] == [started]


@pytest.mark.slow
def test_a_new_event_of_a_dispatched_key_waits_for_its_run_which_then_closes_the_dispatch(
    site: Site, instance: dg.DagsterInstance
) -> None:
    for hour in range(2):
        site.put(hour)
    [request] = requests_of_tick(site, instance)
    site.put(name="another.parquet")
    assert "this tick: 1 new event" in skip_reason(site, instance)

    assert run(site, instance, request).success

    assert "no key is due, 0 runs open" in skip_reason(site, instance)
    assert open_dispatches(site.services.database) == []
    assert len(site.tree("processed")) == 2


def test_keys_of_a_dead_run_are_requested_under_another_run_key(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.services.random, "uniform", lambda _, longest: longest)
    site.put()
    [request] = requests_of_tick(site, instance)
    dead = enqueue(site, instance, status=dg.DagsterRunStatus.FAILURE, tags={RUN_KEY_TAG: request.run_key or ""})
    site.services.database.execute(
        "UPDATE kfm.keys SET epoch = 1, attempts = 1, due_at = NULL, owner = %(run)s,"
        " lease_until = clock_timestamp() + interval '1 hour'",
        {"run": dead},
    )

    assert "no key is due, 0 runs open" in skip_reason(site, instance)  # not at once: it may die again
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    [again] = requests_of_tick(site, instance)

    assert (again.partition_key, again.run_key) == (site.key(), f"{site.key()}#0#2")


@pytest.mark.usefixtures("instance")
def test_the_declared_sensor_is_this_tick(site: Site) -> None:
    site.put()
    sensor = build_definitions(site.services.settings.resources).resolve_sensor_def("kfm_ingest")
    with open_instance() as instance:
        context = dg.build_sensor_context(instance=instance, resources={"services": ServicesResource()})
        result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    assert [request.partition_key for request in result.run_requests or []] == [site.key()]
