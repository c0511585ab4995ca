"""The definitions: five gated assets per dataset, one job, one sensor; loading them touches nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._daemon.sensor import MIN_INTERVAL_LOOP_TIME

from kfm_pipelines.declarations import Concurrency
from kfm_pipelines.declarations.dataset import load_datasets
from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.gates import GATES, RELEASE_GATES, TABLE_GATES
from kfm_pipelines.orchestration.names import group_of
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.stages.assets.assets import dataset_assets
from kfm_pipelines_tests.fixtures.declarations import resources_in

STAGES = ["compute", "mask", "validate", "stage", "publish"]
DECLARED = load_datasets(shipped_path("resources"))
TAGS = {"domain": "hydrology", "cadence": "hourly"}

LOAD_WITHOUT_NETWORK = """
import json, socket, sys

def refuse(*_):
    raise SystemExit("a socket was opened while definitions were loaded")

socket.socket.connect = socket.socket.connect_ex = refuse
import kfm_pipelines.definitions
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
HEAVY = {
    "cryptography",
    "h3",
    "jinja2",
    "matplotlib",
    "numpy",
    "pyproj",
    "shapely",
    "alembic",
    "boto3",
    "botocore",
    "geopandas",
    "great_expectations",
    "pandas",
    "psycopg",
    "psycopg_pool",
    "pyarrow",
    "pystac",
    "rasterio",
}


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    return build_definitions(shipped_path("resources"))


def spec_of(definitions: dg.Definitions, stage: str) -> dg.AssetSpec:
    key = dg.AssetKey(["usgs", "streamflow", stage])
    return definitions.resolve_assets_def(key).specs_by_key[key]


def test_the_assets_of_a_dataset(definitions: dg.Definitions) -> None:
    found = {
        stage: {
            "group": spec.group_name,
            "owners": list(spec.owners),
            "kinds": set(spec.kinds),
            "tags": {name: tag for name, tag in spec.tags.items() if not name.startswith("dagster/kind/")},
            "deps": {dep.asset_key.path[-1] for dep in spec.deps},
            "metadata": {name: spec.metadata[name] for name in ("dataset", "licence")},
        }
        for stage in STAGES
        for spec in [spec_of(definitions, stage)]
    }

    def expected(stage: str, kinds: set[str], deps: set[str]) -> dict[str, Any]:
        return {
            "group": "usgs_streamflow",
            "owners": ["team:hydrology", "hydrology@kfm.example"],
            "kinds": kinds,
            "tags": {**TAGS, "stage": stage},
            "deps": deps,
            "metadata": {"dataset": "usgs/streamflow", "licence": "CC0-1.0"},
        }

    assert found == {
        "compute": expected("compute", {"s3", "parquet"}, set()),
        "mask": expected("mask", {"parquet"}, {"compute"}),
        "validate": expected("validate", {"parquet"}, {"mask"}),
        "stage": expected("stage", {"parquet", "stac"}, {"mask", "validate"}),
        "publish": expected("publish", {"parquet", "stac"}, {"stage"}),
    }


def test_there_are_no_other_assets(definitions: dg.Definitions) -> None:
    keys = definitions.resolve_asset_graph().get_all_asset_keys()
    assert {key.path[-1] for key in keys if key.path[:2] == ["usgs", "streamflow"]} == {*STAGES, "table"}
    assert {key.path[-1] for key in keys} == {*STAGES, "table"}
    assert {key.path[-1] for key in keys if key.path[:2] == ["heritage", "sites"]} == set(STAGES)


def test_a_dataset_with_a_table_has_another(definitions: dg.Definitions) -> None:
    """In the same job, with the same partitions, behind `publish`; and its check stops nothing."""
    spec = spec_of(definitions, "table")
    assert {dep.asset_key.path[-1] for dep in spec.deps} == {"publish"}
    assert (spec.group_name, spec.kinds) == ("usgs_streamflow", {"iceberg"})
    asset = definitions.resolve_assets_def(dg.AssetKey(["usgs", "streamflow", "table"]))
    assert asset.partitions_def == dg.DynamicPartitionsDefinition(name="usgs_streamflow")
    assert asset.backfill_policy == dg.BackfillPolicy.multi_run(200)
    graph = definitions.resolve_asset_graph()
    [check] = [graph.get_check_spec(key) for key in graph.asset_check_keys if key.asset_key.path[-1] == "table"]
    assert (check.name, check.blocking) == ("matches_catalog", False)


def test_a_dataset_with_a_candidate_has_one_more(tmp_path: Path) -> None:
    """In the same job, with the same partitions, behind `publish`; and its check stops nothing."""
    resources = resources_in(tmp_path)
    path = resources / "datasets/usgs-streamflow.yaml"
    path.write_text(path.read_text() + "\ncanary: {transform_version: v1-1-0, fraction: 0.1}\n")
    definitions = build_definitions(resources)
    graph = definitions.resolve_asset_graph()
    canary = [key for key in graph.get_all_asset_keys() if key.path[-1] == "canary"]
    assert canary == [dg.AssetKey(["usgs", "streamflow", "canary"])]
    spec = spec_of(definitions, "canary")
    assert {dep.asset_key.path[-1] for dep in spec.deps} == {"publish"}
    assert (spec.group_name, spec.tags["stage"]) == ("usgs_streamflow", "canary")
    assert "never published" in str(spec.description)
    asset = definitions.resolve_assets_def(canary[0])
    assert asset.partitions_def == dg.DynamicPartitionsDefinition(name="usgs_streamflow")
    assert asset.backfill_policy == dg.BackfillPolicy.multi_run(200)
    [check] = [graph.get_check_spec(key) for key in graph.asset_check_keys if key.asset_key in canary]
    assert (check.name, check.blocking) == ("canary_agrees", False)
    job = definitions.resolve_job_def("usgs_streamflow")
    assert {key.path[-1] for key in job.asset_layer.executable_asset_keys} == {*STAGES, "table", "canary"}


@pytest.mark.parametrize("stage", STAGES)
def test_every_asset_has_a_description(definitions: dg.Definitions, stage: str) -> None:
    description = spec_of(definitions, stage).description
    assert description
    assert description.endswith(".")
    assert len(description) > 60


def test_the_whole_chain_has_one_partitioning_and_one_backfill_policy(definitions: dg.Definitions) -> None:
    """Otherwise a backfill would split it into runs without their gates."""
    assets = [definitions.resolve_assets_def(dg.AssetKey(["usgs", "streamflow", stage])) for stage in STAGES]
    assert {asset.partitions_def for asset in assets} == {dg.DynamicPartitionsDefinition(name="usgs_streamflow")}
    assert {asset.backfill_policy for asset in assets} == {dg.BackfillPolicy.multi_run(200)}


def test_only_the_assets_of_a_serial_dataset_share_a_pool(definitions: dg.Definitions) -> None:
    dataset = DECLARED["usgs/streamflow"]
    serial = dataset.model_copy(update={"concurrency": Concurrency(serial=True)})
    assert {asset.op.pool for asset in dataset_assets(serial)} == {"serial_usgs_streamflow"}
    assets = [definitions.resolve_assets_def(dg.AssetKey(["usgs", "streamflow", stage])) for stage in STAGES]
    assert {asset.op.pool for asset in assets} == {None}


def test_every_gate_is_a_blocking_check(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    checks = [graph.get_check_spec(key) for key in graph.asset_check_keys if key.asset_key.path[-1] in STAGES]
    assert sorted(("/".join(check.asset_key.path), check.name, check.blocking) for check in checks) == [
        check
        for dataset in DECLARED
        for stage, gates in (("stage", RELEASE_GATES), ("validate", TABLE_GATES))
        for check in sorted((f"{dataset}/{stage}", gate, True) for gate in gates)
    ]
    assert all(check.description for check in checks)


def test_one_job_takes_the_whole_chain_with_its_gates(definitions: dg.Definitions) -> None:
    job = definitions.resolve_job_def("usgs_streamflow")
    assert {key.path[-1] for key in job.asset_layer.executable_asset_keys} == {*STAGES, "table"}
    assert {key.name for key in job.asset_layer.asset_graph.asset_check_keys} == {*GATES, "matches_catalog"}
    assert job.tags["kfm/dataset"] == "usgs/streamflow"
    assert job.executor_def is dg.in_process_executor


def test_one_sensor_asks_for_its_runs(definitions: dg.Definitions) -> None:
    sensor = definitions.resolve_sensor_def("kfm_ingest")
    assert sorted(target.job_name for target in sensor.targets) == sorted(group_of(one) for one in DECLARED.values())
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    # Otherwise it ticks every second time Dagster looks.
    assert 0 < (sensor.minimum_interval_seconds or 0) < MIN_INTERVAL_LOOP_TIME
    assert sensor.description


def test_what_is_published_is_looked_at_by_the_clock(definitions: dg.Definitions) -> None:
    names = (
        "kfm_qa_scan_nightly",
        "kfm_deep_scan_weekly",
        "kfm_recompute_extents_daily",
        "kfm_purge_nightly",
        "kfm_provenance_nightly",
        "kfm_snapshots_nightly",
        "kfm_late_lane_nightly",
    )
    schedules = [definitions.resolve_schedule_def(name) for name in names]
    assert [(one.job_name, one.cron_schedule, one.execution_timezone) for one in schedules] == [
        ("kfm_qa_scan", "0 2 * * *", "UTC"),
        ("kfm_deep_scan", "0 4 * * 0", "UTC"),
        ("kfm_recompute_extents", "0 5 * * *", "UTC"),
        ("kfm_purge", "30 3 * * *", "UTC"),
        ("kfm_provenance", "15 4 * * *", "UTC"),
        ("kfm_snapshots", "0 3 * * *", "UTC"),
        ("kfm_late_lane", "15 2 * * *", "UTC"),
    ]
    assert {one.default_status for one in schedules} == {dg.DefaultScheduleStatus.RUNNING}
    assert all(definitions.resolve_job_def(one.job_name).description for one in schedules)


def test_loading_the_definitions_needs_no_network_no_settings_and_no_heavy_library() -> None:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("KFM_", "AWS_", "DAGSTER_"))}
    result = subprocess.run(
        [sys.executable, "-c", LOAD_WITHOUT_NETWORK],
        env=bare,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert HEAVY & set(json.loads(result.stdout)) == set()
