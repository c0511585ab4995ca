"""The canary asset compares the keys of a run, and no run fails because of it."""

from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.dispatch.partitions import register_partitions
from kfm_pipelines.operations.canary.promote import promote, read_candidate_status
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.stages.compute.transforms import TRANSFORMS
from kfm_pipelines_tests.fixtures.runs.batches import publish
from kfm_pipelines_tests.fixtures.runs.candidates import candidate_file, declared_now, try_candidate
from kfm_pipelines_tests.fixtures.runs.replay import published_hours
from kfm_pipelines_tests.fixtures.sites.site import Site

PUBLISHED = ("catalog", "objects", "processed")
SECRET_VALUE = "38.79812345"


def recorded(site: Site) -> list[dict[str, Any]]:
    return site.fetch("SELECT key, good, report, run_id FROM kfm.comparisons ORDER BY at, key")


def raises(_: pa.Table) -> pa.Table:
    raise ValueError(SECRET_VALUE)


@pytest.mark.slow
def test_a_good_candidate_is_compared_promoted_and_then_published(site: Site) -> None:
    dataset = try_candidate(site)
    for hour in range(2):
        site.put(hour)

    assert site.work() == {"keys": 2, "published": 2, "skipped": 0, "failed": 0}

    assert [(one["key"], one["good"]) for one in recorded(site)] == [(site.key(0), True), (site.key(1), True)]
    [report, _] = [one["report"] for one in recorded(site)]
    assert (report["published_rows"], report["candidate_rows"], report["identical"]) == (68, 68, False)
    assert [(one["column"], one["what"]) for one in report["columns"]] == [("discharge_m3s", "added")]
    assert (report["statistics"], report["faults"]) == ([], [])
    assert "discharge_m3s" not in pq.read_schema(site.data / f"processed/usgs-streamflow/{site.key()}.parquet").names
    status = read_candidate_status(site.services, dataset)
    assert (status.refusal, len(status.comparisons)) == (None, 2)

    promoted = promote(site.services, "usgs/streamflow", actor="ana", reason="it is right")

    assert (promoted.from_version, promoted.to_version) == ("v1-0-0", "v1-1-0")
    assert not candidate_file(site).exists()
    assert site.tree("work") == {}
    [record] = site.fetch("SELECT * FROM kfm.promotions")
    assert (record["actor"], record["reason"]) == ("ana", "it is right")
    assert (record["from_version"], record["to_version"]) == ("v1-0-0", "v1-1-0")
    assert record["report"]["keys"] == [site.key(0), site.key(1)]
    before = site.tree("processed")

    assert declared_now(site).canary is None
    site.put(2)
    site.drain()
    new = site.key(2).replace("v1-0-0", "v1-1-0")
    publish(site.services, site.dataset, [new], "after")
    table = pq.read_table(site.data / f"processed/usgs-streamflow/{new}.parquet")
    metric = pc.multiply(table["discharge_cfs"], 0.028316846592)
    assert table["discharge_m3s"].combine_chunks().equals(metric.combine_chunks())
    assert before.items() <= site.tree("processed").items()


@pytest.mark.slow
def test_a_run_stays_green_whatever_the_candidate_does(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tree with a candidate that breaks, with one whose file is gone, and without any."""
    try_candidate(site)
    monkeypatch.setitem(TRANSFORMS, "metric_discharge", raises)
    site.put(0)
    assert site.work()["published"] == 1
    broken = site.tree(*PUBLISHED)
    assert [one["good"] for one in recorded(site)] == [False]

    def again() -> dict[str, str]:
        """Publishes the key again after its files were lost."""
        for path in broken:
            if "/items/" in path or path.startswith("processed"):
                (site.data / path).unlink()
        site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
        assert site.work() == {"keys": 1, "published": 1, "skipped": 0, "failed": 0}
        return site.tree(*PUBLISHED)

    candidate_file(site).unlink()
    assert again() == broken
    with open_instance() as instance:
        [check] = instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(dg.AssetKey(["usgs", "streamflow", "canary"]), "canary_agrees"), limit=1
        )
        assert check.event is not None
        evaluation = check.event.asset_check_evaluation
        assert evaluation is not None
        assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
        assert {run.status for run in instance.get_runs()} == {dg.DagsterRunStatus.SUCCESS}

    try_candidate(site, None)
    assert again() == broken


def test_the_canary_can_be_started_by_itself(site: Site) -> None:
    """For keys that were published before there was a candidate."""
    published_hours(site, 2)
    try_candidate(site)
    job = build_definitions(site.services.settings.resources).resolve_job_def("usgs_streamflow")
    with open_instance() as instance:
        register_partitions(instance, site.dataset, [site.key(0), site.key(1)])
        result = job.execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey(["usgs", "streamflow", "canary"])],
            tags={"dagster/asset_partition_range_start": site.key(0), "dagster/asset_partition_range_end": site.key(1)},
        )
    assert result.success
    [evaluation] = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.blocking) == (True, False)
    assert [one["good"] for one in recorded(site)] == [True, True]
    table = evaluation.metadata["comparisons"]
    assert isinstance(table, dg.TableMetadataValue)
    assert table.records[0].data == {
        "key": site.key(0),
        "good": "yes",
        "rows": "68 → 68",
        "columns": "discharge_m3s added",
        "statistics": "the same",
        "bytes": table.records[0].data["bytes"],
        "what is not good": "",
    }
