"""A run that failed is told to whoever listens at the topic for alerts: once, without data, and not only when SNS is
there."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.freshness import TimeWindowFreshnessPolicy

from kfm_pipelines.aws.clients import sns_client
from kfm_pipelines.aws.topics import topic_attributes
from kfm_pipelines.declarations.dataset import load_datasets
from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.dispatch.alerts import MAX_REFUSALS, AlertCursor, FailedRun, failure_sensor, tick
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.aws.emulator import bodies, listening, topic_arn
from kfm_pipelines_tests.fixtures.runs.dispatch import spoiled
from kfm_pipelines_tests.fixtures.sites.site import Site

JOBS = ["usgs_streamflow"]


class Sensor:
    """The sensor as the daemon evaluates it, with its memory."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance
        self._sensor = failure_sensor(JOBS)
        self.cursor: str | None = None

    def tick(self) -> str:
        context = dg.build_sensor_context(
            self._instance, cursor=self.cursor, resources={"services": ServicesResource()}
        )
        data = self._sensor.evaluate_tick(context)
        self.cursor = data.cursor
        return data.skip_message or ""


@pytest.fixture
def sensor(instance: dg.DagsterInstance) -> Sensor:
    return Sensor(instance)


def fail(site: Site, *hours: int) -> None:
    for hour in hours:
        site.put(hour, spoiled(hour))
    site.work()


@contextmanager
def without_topic(site: Site) -> Iterator[None]:
    sns_client().delete_topic(TopicArn=topic_arn(site.services.settings.alert_topic))
    yield
    sns_client().create_topic(Name=site.services.settings.alert_topic)


def test_a_red_key_reaches_whoever_listens(site: Site, sensor: Sensor) -> None:
    queue = listening(site.services.settings.alert_topic)
    assert sensor.tick() == "tells of the runs that fail from now on"
    site.put(1)
    fail(site, 0)

    assert sensor.tick() == "1 failed runs told"

    [envelope] = [json.loads(body) for body in bodies(queue)]
    told = json.loads(envelope["Message"])
    [run] = dg.DagsterInstance.get().get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
    assert envelope["Subject"] == told["summary"] == "KFM: a run of usgs/streamflow failed at validate, 2 keys"
    assert (told["id"], told["run_id"]) == (f"run-failure:{run.run_id}", run.run_id)
    assert (told["job"], told["dataset"], told["keys"]) == ("usgs_streamflow", "usgs/streamflow", 2)
    assert [step["step"] for step in told["failed_steps"]] == ["usgs__streamflow__validate"]
    assert "discharge" not in envelope["Message"]
    assert "-999999" not in envelope["Message"]
    assert envelope["MessageAttributes"]["dataset"]["Value"] == "usgs/streamflow"
    # Once, however often it ticks.
    assert sensor.tick() == "0 failed runs told"
    assert bodies(queue) == []


def test_what_sns_did_not_take_is_sent_when_it_does(site: Site, sensor: Sensor) -> None:
    sensor.tick()
    with without_topic(site):
        fail(site, 0)
        assert "1 wait: there is no topic" in sensor.tick()
        fail(site, 1)
        assert "2 wait" in sensor.tick()
    queue = listening(site.services.settings.alert_topic)

    assert sensor.tick() == "2 failed runs told"

    told = [json.loads(json.loads(body)["Message"])["run_id"] for body in bodies(queue)]
    assert len(set(told)) == len(told) == 2


def test_one_that_is_refused_stands_in_nobodys_way(site: Site, instance: dg.DagsterInstance) -> None:
    """More of them than a tick bears: those that come after them are told all the same, within two ticks."""
    told, _ = tick(instance, None, JOBS, lambda run: None)
    for hour in range(MAX_REFUSALS + 2):
        fail(site, hour)
    failed = [run.run_id for run in reversed(instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE])))]
    refused, sent = failed[:MAX_REFUSALS], list[str]()

    def send(run: FailedRun) -> None:
        if run.run_id in refused:
            raise ServiceUnavailable("not this one")
        sent.append(run.run_id)

    for _ in range(2):
        told, said = tick(instance, told.serialise(), JOBS, send)

    assert sent == failed[MAX_REFUSALS:]
    assert set(told.retry_run_ids) == set(refused)
    assert "3 wait: not this one" in said


def test_what_failed_before_is_no_news_and_jobs_of_others_are_not_ours(
    site: Site, instance: dg.DagsterInstance
) -> None:
    fail(site, 0)
    sent: list[FailedRun] = []
    told, _ = tick(instance, None, JOBS, sent.append)
    tick(instance, told.serialise(), JOBS, sent.append)
    assert sent == []
    tick(instance, AlertCursor(-1).serialise(), ["another"], sent.append)
    assert sent == []
    tick(instance, AlertCursor(-1).serialise(), JOBS, sent.append)
    assert len(sent) == 1


def test_a_step_that_fails_is_named_with_the_class_of_its_error(site: Site, instance: dg.DagsterInstance) -> None:
    site.put(0, data=b"no parquet")
    site.work()
    sent: list[FailedRun] = []
    tick(instance, AlertCursor(-1).serialise(), JOBS, sent.append)
    [(step, error)] = sent[0].steps
    assert (step, error) == ("usgs__streamflow__compute", "Failure")


def test_the_topic_is_provisioned_and_the_sensor_runs_from_the_start(site: Site) -> None:
    assert topic_attributes(topic_arn(site.services.settings.alert_topic)) is not None
    found: Any = build_definitions(site.services.settings.resources).get_sensor_def("kfm_failed_runs")
    assert found.default_status is dg.DefaultSensorStatus.RUNNING


def test_dagster_knows_how_fresh_a_publication_has_to_be_and_nothing_else() -> None:
    definitions, declared = build_definitions(shipped_path("resources")), load_datasets(shipped_path("resources"))
    found = {
        "/".join(key.path): spec.freshness_policy.fail_window.to_timedelta()
        for definition in definitions.resolve_asset_graph().assets_defs
        for key, spec in definition.specs_by_key.items()
        if isinstance(spec.freshness_policy, TimeWindowFreshnessPolicy)
    }
    assert found == {f"{name}/publish": dataset.slo.freshness for name, dataset in declared.items()}
