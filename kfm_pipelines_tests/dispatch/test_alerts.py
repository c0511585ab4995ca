"""A failed run is published to the alert topic: once, without data, and later if SNS is unavailable."""

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
    """The sensor as the daemon evaluates it, with its cursor."""

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


@dg.job(name="usgs_streamflow")
def without_steps() -> None:
    pass


def add_failed_runs(instance: dg.DagsterInstance, count: int) -> list[str]:
    """Reports failed runs without executing any."""
    runs = [instance.create_run_for_job(without_steps, status=dg.DagsterRunStatus.STARTED) for _ in range(count)]
    for run in runs:
        instance.report_run_failed(run)
    return [run.run_id for run in runs]


@contextmanager
def without_topic(site: Site) -> Iterator[None]:
    sns_client().delete_topic(TopicArn=topic_arn(site.services.settings.alert_topic))
    yield
    sns_client().create_topic(Name=site.services.settings.alert_topic)


@pytest.mark.slow
def test_a_failed_run_reaches_subscribers_even_if_sns_was_unavailable(site: Site, instance: dg.DagsterInstance) -> None:
    sensor = Sensor(instance)
    assert sensor.tick() == "watching for failed runs from now on"
    with without_topic(site):
        site.put(0, spoiled(0))
        site.put(1)
        site.work()
        assert "1 waiting: there is no topic" in sensor.tick()
        assert "1 waiting" in sensor.tick()
    queue = listening(site.services.settings.alert_topic)

    assert sensor.tick() == "1 alert sent"

    [envelope] = [json.loads(body) for body in bodies(queue)]
    alert = json.loads(envelope["Message"])
    [run] = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
    assert envelope["Subject"] == alert["summary"] == "KFM: a run of usgs/streamflow failed at validate, 2 keys"
    assert (alert["id"], alert["run_id"]) == (f"run-failure:{run.run_id}", run.run_id)
    assert (alert["job"], alert["dataset"], alert["keys"]) == ("usgs_streamflow", "usgs/streamflow", 2)
    assert [step["step"] for step in alert["failed_steps"]] == ["usgs__streamflow__validate"]
    assert "discharge" not in envelope["Message"]
    assert "-999999" not in envelope["Message"]
    assert envelope["MessageAttributes"]["dataset"]["Value"] == "usgs/streamflow"
    # Only once.
    assert sensor.tick() == "0 alerts sent"
    assert bodies(queue) == []


def test_refused_alerts_do_not_keep_others_from_being_sent() -> None:
    """With more refusals than a tick allows, the alerts after them are sent within two ticks."""
    with dg.DagsterInstance.ephemeral() as instance:
        cursor, _ = tick(instance, None, JOBS, lambda run: None)
        failed = add_failed_runs(instance, MAX_REFUSALS + 2)
        refused, sent = failed[:MAX_REFUSALS], list[str]()

        def send(run: FailedRun) -> None:
            if run.run_id in refused:
                raise ServiceUnavailable("not this one")
            sent.append(run.run_id)

        for _ in range(2):
            cursor, summary = tick(instance, cursor.serialise(), JOBS, send)

    assert sent == failed[MAX_REFUSALS:]
    assert set(cursor.retry_run_ids) == set(refused)
    assert "3 waiting: not this one" in summary


def test_earlier_failures_and_jobs_of_others_are_not_sent() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        add_failed_runs(instance, 1)
        sent: list[FailedRun] = []
        cursor, _ = tick(instance, None, JOBS, sent.append)
        tick(instance, cursor.serialise(), JOBS, sent.append)
        tick(instance, AlertCursor(-1).serialise(), ["another"], sent.append)
        assert sent == []
        tick(instance, AlertCursor(-1).serialise(), JOBS, sent.append)
        assert len(sent) == 1


def test_a_failed_step_is_named_with_the_class_of_its_first_error() -> None:
    @dg.op
    def breaks() -> None:
        raise dg.Failure("39.1 N 94.6 W")

    @dg.job(name="usgs_streamflow")
    def breaking() -> None:
        breaks()

    with dg.DagsterInstance.ephemeral() as instance:
        breaking.execute_in_process(instance=instance, raise_on_error=False)
        sent: list[FailedRun] = []
        tick(instance, AlertCursor(-1).serialise(), JOBS, sent.append)
    assert sent[0].steps == (("breaks", "Failure"),)


def test_the_topic_is_provisioned_and_the_sensor_runs_from_the_start(untouched: Site) -> None:
    assert topic_attributes(topic_arn(untouched.services.settings.alert_topic)) is not None
    found: Any = build_definitions(untouched.services.settings.resources).get_sensor_def("kfm_failed_runs")
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
