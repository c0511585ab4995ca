"""Runs are in our log by their id: few lines for a success, and the place of a failure."""

import logging
import logging.config
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from kfm_pipelines.orchestration.run_logs import RunLogs
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.telemetry.logs.lines import LOG_FILE
from kfm_pipelines_tests.fixtures.sites.site import Site
from kfm_pipelines_tests.fixtures.telemetry.log_file import lines_of, logging_to


def lines_of_runs(home: Path) -> list[dict[str, Any]]:
    return [line for line in lines_of(home / "telemetry" / LOG_FILE) if line["logger"] == "dagster"]


@pytest.mark.slow
def test_a_run_is_in_the_log_from_beginning_to_end(site: Site) -> None:
    for hour in range(5):
        site.put(hour)
    site.work()

    [run] = site.fetch("SELECT DISTINCT run_id FROM kfm.wal")
    lines = lines_of_runs(site.root)
    assert {line["run_id"] for line in lines} == {run["run_id"]}
    assert {line["dataset"] for line in lines} == {"usgs/streamflow"}
    events = [line.get("dagster_event_type") for line in lines]
    assert (events[0], events[-1]) == ("RUN_START", "RUN_SUCCESS")
    stages = ["compute", "mask", "validate", "stage", "publish"]
    assert [line["stage"] for line in lines if line.get("dagster_event_type") == "STEP_SUCCESS"] == stages
    assert (lines[0]["first_partition"], lines[0]["last_partition"]) == (site.key(0), site.key(4))
    # As many for five keys as for five hundred.
    assert len(lines) == 2 + 2 * len(stages)


@pytest.mark.slow
def test_a_failure_is_logged_with_its_place_and_without_its_message(site: Site) -> None:
    site.put(0, data=b"rubbish of Quillwort Hollow")
    site.work()

    failed = [line for line in lines_of_runs(site.root) if "error" in line]
    assert [line["dagster_event_type"] for line in failed] == ["STEP_FAILURE", "RUN_FAILURE"]
    assert failed[0]["step"] == "usgs__streamflow__compute"
    assert failed[0]["error"]["class"] == "Failure"
    assert failed[0]["error"]["frames"][-1].startswith("kfm_pipelines/stages/assets/run_metadata.py:")
    assert failed[0]["first_partition"] == site.key(0)


@dg.op
def writes_log(context: dg.OpExecutionContext) -> None:
    context.log.debug("detail")
    context.log.info("%d rows\nforged", 3)
    dg.get_dagster_logger().warning("by another way")


@dg.op
def fails(context: dg.OpExecutionContext) -> None:
    try:
        int("39.09973 Quillwort Hollow")
    except ValueError as error:
        raise RuntimeError("Quillwort Hollow") from error


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["2025-12-04T03Z"]))
def part(context: dg.AssetExecutionContext) -> None:
    context.log.warning("look")


@dg.job
def logging_job() -> None:
    writes_log()


@dg.job
def failing() -> None:
    fails()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Dagster instance with the handlers of our dagster.yaml, and of ours nothing else: no database, no settings."""
    for name in ("KFM_POSTGRES_URL", "KFM_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KFM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def execute(job: dg.JobDefinition, **how: Any) -> None:
    config = {"python_logs": _shipped_python_logs()}
    with dg.instance_for_test(overrides=config) as instance:
        job.execute_in_process(instance=instance, raise_on_error=False, **how)


def _shipped_python_logs() -> Mapping[str, Any]:
    declared: Mapping[str, Any] = yaml.safe_load(shipped_path("dagster.yaml").read_text())["python_logs"]
    return declared


def test_log_lines_of_ops_appear_once_with_run_job_and_step(home: Path) -> None:
    with logging_to(home):
        execute(logging_job)

    events = {line["event"]: line for line in lines_of_runs(home) if "dagster_event_type" not in line}
    assert set(events) == {"3 rows forged", "by another way"}
    assert {(line["job"], line["step"]) for line in events.values()} == {("logging_job", "writes_log")}
    assert len(lines_of(home / "telemetry" / LOG_FILE)) == 2 + 4


def test_an_error_is_logged_by_its_classes_and_frames(home: Path) -> None:
    execute(failing)

    failed = next(line for line in lines_of_runs(home) if line.get("dagster_event_type") == "STEP_FAILURE")
    error = failed["error"]
    assert error["class"] == "DagsterExecutionStepExecutionError"
    assert error["causes"] == ["RuntimeError", "ValueError"]
    assert [frame.split(":")[0] for frame in error["frames"]][-1] == "test_run_logs.py"
    assert b"Quillwort" not in (home / "telemetry" / LOG_FILE).read_bytes()


def test_the_partition_is_logged_if_there_is_one(home: Path) -> None:
    job = dg.Definitions([part], jobs=[dg.define_asset_job("parts", "*")]).resolve_job_def("parts")
    execute(job, partition_key="2025-12-04T03Z")
    assert {line.get("partition") for line in lines_of_runs(home)} == {"2025-12-04T03Z"}


@pytest.mark.parametrize("level", ["off", "loud"])
def test_runs_continue_without_a_log(home: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setenv("KFM_LOG_LEVEL", level)
    execute(logging_job)
    assert not home.exists()


def test_an_unknown_record_does_not_stop_a_run(home: Path) -> None:
    RunLogs().handle(logging.makeLogRecord({"msg": "Quillwort Hollow", "levelno": 30, "levelname": "WARNING"}))
    [line] = lines_of_runs(home)
    assert line["event"] == "a log record of a run could not be converted"
