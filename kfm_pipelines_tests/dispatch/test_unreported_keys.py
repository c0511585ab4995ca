"""A run that is killed after it published something: Dagster still learns what is published, and the slot is freed."""

from datetime import timedelta

import dagster as dg
import pytest

from kfm_pipelines.dispatch import reaper
from kfm_pipelines.dispatch.unreported_keys import report_published
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.orchestration.names import asset_key
from kfm_pipelines_tests.fixtures.sites.site import Site


def publish_materializations(instance: dg.DagsterInstance, site: Site) -> list[str]:
    records = instance.fetch_materializations(asset_key(site.dataset, "publish"), limit=10).records
    return sorted(str(record.partition_key) for record in records)


@pytest.mark.slow
def test_only_what_the_run_did_not_tell_is_reported(site: Site) -> None:
    site.put(0)
    site.work()
    [row] = site.fetch("SELECT run_id FROM kfm.revisions")
    with open_instance() as instance:
        before = publish_materializations(instance, site)
        assert report_published(instance, site.services, site.dataset, row["run_id"], [site.key()]) == []

        instance.wipe_assets([asset_key(site.dataset, "publish")])
        reported = report_published(instance, site.services, site.dataset, row["run_id"], [site.key()])

        assert reported == [site.key()]
        assert publish_materializations(instance, site) == before == [site.key()]


@pytest.mark.parametrize(("holds_a_key", "fate"), [(False, "FAILURE"), (True, "STARTED")])
def test_a_silent_run_is_failed_unless_it_still_holds_a_key(
    site: Site, monkeypatch: pytest.MonkeyPatch, holds_a_key: bool, fate: str
) -> None:
    monkeypatch.setattr(reaper, "SILENT_AFTER", timedelta(seconds=-5))
    site.put(0)
    site.drain()
    with open_instance() as instance:
        run = dg.DagsterRun(job_name="usgs_streamflow", status=dg.DagsterRunStatus.STARTED)
        instance.add_run(run)
        if holds_a_key:
            site.services.database.execute(
                "UPDATE kfm.keys SET owner = %(run)s, epoch = 1, lease_until = clock_timestamp() + interval '1 minute'",
                {"run": run.run_id},
            )

        reaper.reap(instance, site.services)

        record = instance.get_run_by_id(run.run_id)
        assert record is not None
        assert record.status.value == fate


@pytest.mark.parametrize(("dataset", "fate"), [("usgs", "FAILURE"), ("other", "STARTED")])
def test_a_silent_run_of_a_backfill_is_failed_if_it_is_ours(
    site: Site, monkeypatch: pytest.MonkeyPatch, dataset: str, fate: str
) -> None:
    monkeypatch.setattr(reaper, "SILENT_AFTER", timedelta(seconds=-5))
    with open_instance() as instance:
        run = dg.DagsterRun(
            job_name="__ASSET_JOB",
            status=dg.DagsterRunStatus.STARTED,
            asset_selection=frozenset({dg.AssetKey([dataset, "streamflow", "compute"])}),
        )
        instance.add_run(run)

        reaper.reap(instance, site.services)

        record = instance.get_run_by_id(run.run_id)
        assert record is not None
        assert record.status.value == fate
