"""A trial shows what would be published of local files, with the real stages and gates, and changes nothing."""

import json
import socket
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm_pipelines.declarations.dataset import load_datasets
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.operations.datasets.trial import Trial, run_trial, write_trial
from kfm_pipelines.producer.samples.heritage import heritage_object
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.declarations import change, resources_in
from kfm_pipelines_tests.fixtures.sites.site import START
from kfm_pipelines_tests.fixtures.tables import rows

TODAY = date(2026, 7, 1)
DATASETS = load_datasets(shipped_path("resources"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a trial opened a socket")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def gauges(folder: Path, **columns: list[object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "readings.parquet"
    pq.write_table(rows(3, **columns), path)
    return path


def run(path: Path, resources: Path | None = None, name: str = "usgs/streamflow") -> Trial:
    folder = resources or shipped_path("resources")
    return run_trial(folder, load_datasets(folder)[name], [path], TODAY, {})


def test_a_good_file_would_be_published_with_its_item(tmp_path: Path) -> None:
    trial = run(gauges(tmp_path))
    assert trial.is_green
    assert trial.table is not None
    assert trial.table.num_rows == 3
    assert trial.key == "usgs-streamflow:kansas_statewide:none:2025-12-04T00Z:v1-0-0"
    assert [(verdict.gate, verdict.passed) for verdict in trial.verdicts] == [("schema", True), ("qa", True)]
    item = json.loads(trial.item)
    assert item["properties"]["table:row_count"] == 3
    assert item["bbox"] == list(trial.bbox or ())


def test_the_window_is_that_of_the_path_where_it_has_one(tmp_path: Path) -> None:
    trial = run(gauges(tmp_path / "usgs/streamflow/2025/12/05/07"))
    assert trial.key.endswith(":2025-12-05T07Z:v1-0-0")
    assert [finding.rule for finding in trial.verdicts[0].findings] == ["time-in-window"]
    assert not trial.is_green


def test_readings_of_the_next_hour_are_left_out_as_in_a_run(tmp_path: Path) -> None:
    times: list[object] = [START, START + timedelta(minutes=30), START + timedelta(hours=1)]
    trial = run(gauges(tmp_path / f"usgs/streamflow/{START:%Y/%m/%d/%H}", observed_at=times))
    assert trial.is_green
    assert trial.table is not None
    assert (trial.table.num_rows, sum(trial.left_out.values())) == (2, 1)


def test_findings_of_all_gates_make_it_red(tmp_path: Path) -> None:
    trial = run(gauges(tmp_path, discharge_cfs=[1e9, 1.0, None]))
    assert [(verdict.gate, verdict.passed) for verdict in trial.verdicts] == [("schema", True), ("qa", False)]
    assert "range" in [finding.rule for finding in trial.verdicts[1].findings]
    assert trial.item == b""


def test_what_is_masked_is_masked_in_a_trial_too(tmp_path: Path) -> None:
    path = tmp_path / "register.parquet"
    path.write_bytes(heritage_object(START)[1])
    trial = run(path, name="heritage/sites")
    assert trial.is_green, (trial.refusals, trial.verdicts)
    assert trial.measures
    assert trial.table is not None
    assert "easting" not in trial.table.column_names
    written = {path.name: path.read_bytes() for path in write_trial(trial, tmp_path / "out")}
    assert written.keys() == {"data.parquet", "item.json"}
    exact = {str(value) for value in pq.read_table(path)["latitude"].to_pylist()}
    assert not exact & {str(value) for value in pq.read_table(tmp_path / "out/data.parquet")["latitude"].to_pylist()}


def test_nothing_is_written_under_an_undecided_policy(tmp_path: Path) -> None:
    resources = resources_in(tmp_path)
    change(resources / "policies/not-sensitive.yaml", sensitivity="undecided")
    trial = run(gauges(tmp_path / "files"), resources)
    assert not trial.is_green
    assert "is undecided: nothing is published under it" in trial.refusals[0]
    assert all(verdict.passed for verdict in trial.verdicts)
    assert all(finding.sample == "" for verdict in trial.verdicts for finding in verdict.findings)
    assert write_trial(trial, tmp_path / "out") == []


def test_several_files_are_the_objects_of_one_key(tmp_path: Path) -> None:
    first = gauges(tmp_path / "a")
    second = gauges(tmp_path / "b", site_no=pa.array(["1", "2", "3"]).to_pylist())
    second = second.rename(second.with_name("more.parquet"))
    trial = run_trial(shipped_path("resources"), DATASETS["usgs/streamflow"], [first, second], TODAY, {})
    assert trial.is_green
    assert trial.table is not None
    assert trial.table.num_rows == 6


def test_rows_that_would_be_in_no_key_are_found(tmp_path: Path) -> None:
    resources = resources_in(tmp_path)
    path = resources / "datasets/usgs-streamflow.yaml"
    split = "  window: hour\n  split_by: {column: site_no, members: ['06866500', '06866501']}"
    path.write_text(path.read_text().replace("  window: hour", split))
    with pytest.raises(InputUnreadable, match=r"^1 row has site_no that is no member \('06866502'\)"):
        run(gauges(tmp_path), resources)
