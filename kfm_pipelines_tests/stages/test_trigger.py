"""Runs that people start in Dagster touch closed windows only."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import dagster as dg
import pytest

from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.dispatch.dispatch import range_tags
from kfm_pipelines.operations.canary.evaluate import CanaryRun
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.orchestration.names import asset_key, group_of, partitions_of
from kfm_pipelines.orchestration.tags import BACKFILL_TAG
from kfm_pipelines.stages.trigger import EVENT_RUN_TAGS, EVENT_TRIGGER, RunTrigger
from kfm_pipelines.state.wal import Outcome
from kfm_pipelines_tests.fixtures.runs.batches import receive, upload
from kfm_pipelines_tests.fixtures.runs.replay_runs import close_until
from kfm_pipelines_tests.fixtures.sites.site import START, Site


def backfill(site: Site, keys: Sequence[str]) -> tuple[bool, str]:
    return started(site, keys, {BACKFILL_TAG: "by-hand"})


def started(site: Site, keys: Sequence[str], tags: Mapping[str, str]) -> tuple[bool, str]:
    """Runs a job with these tags; returns whether it succeeded, and its failure messages."""
    job = build_definitions(site.services.settings.resources).resolve_job_def(group_of(site.dataset))
    with open_instance() as instance:
        instance.add_dynamic_partitions(str(partitions_of(site.dataset).name), list(keys))
        tags = {**tags, **range_tags(keys)}
        result = job.execute_in_process(instance=instance, tags=tags, raise_on_error=False)
    failures = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    messages = [one.user_failure_data.description for one in failures if one.user_failure_data]
    return result.success, "\n".join(str(one) for one in messages)


def outcomes(site: Site) -> list[tuple[str, str]]:
    rows = site.fetch("SELECT key, outcome FROM kfm.wal WHERE outcome IS NOT NULL ORDER BY id")
    return [(row["key"], row["outcome"]) for row in rows]


def materialized_last(site: Site) -> set[str | None]:
    """Returns the keys that the last run reported to Dagster."""
    with open_instance() as instance:
        [last] = instance.get_run_records(limit=1)
        of_publish = dg.AssetRecordsFilter(asset_key=asset_key(site.dataset, "publish"))
        found = instance.fetch_materializations(of_publish, limit=50).records
        return {one.partition_key for one in found if one.run_id == last.dagster_run.run_id}


def test_a_key_of_another_dataset_is_left_alone(site: Site) -> None:
    """Any name can be added as a partition and run."""
    receive(site.services, upload(site))
    close_until(site.services, site.dataset.dataset, START + timedelta(days=1))
    site.services.database.execute("UPDATE kfm.keys SET dataset = 'usda/soil'")
    before = site.fetch("SELECT * FROM kfm.keys")
    success, message = backfill(site, [site.key()])
    assert not success
    assert message.endswith(f"{site.key()}: is a key of usda/soil, not of usgs/streamflow")
    assert site.fetch("SELECT * FROM kfm.keys") == before
    assert site.fetch("SELECT * FROM kfm.wal") == site.fetch("SELECT * FROM kfm.dead_letters") == []
    assert site.tree("catalog", "objects", "processed") == {}
    canary = CanaryRun(site.services, site.dataset, "a-run")
    assert canary.compare([site.key()]) == []
    assert canary.skipped == {site.key(): f"{site.key()}: is a key of usda/soil, not of usgs/streamflow"}


def test_every_run_not_started_for_events_is_bounded() -> None:
    assert RunTrigger.from_tags(EVENT_RUN_TAGS) == EVENT_TRIGGER
    assert not EVENT_TRIGGER.is_bounded
    assert (
        RunTrigger.from_tags({})
        == RunTrigger.from_tags({**EVENT_RUN_TAGS, "dagster/parent_run_id": "1"})
        == RunTrigger(manual=True)
    )
    assert RunTrigger.from_tags({**EVENT_RUN_TAGS, BACKFILL_TAG: "b"}) == RunTrigger(backfill=True)
    assert RunTrigger.from_tags({**EVENT_RUN_TAGS, "kfm/replay": "r"}) == RunTrigger(replay="r")
    assert all(one.is_bounded for one in (RunTrigger(manual=True), RunTrigger(backfill=True), RunTrigger(replay="r")))


@pytest.mark.slow
def test_a_single_partition_of_an_open_window_is_taken_only_when_it_is_due(site: Site) -> None:
    """As from the UI, where Dagster puts no tag on the run."""
    receive(site.services, upload(site))
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp() + interval '1 hour'")
    before = site.fetch("SELECT * FROM kfm.keys")
    success, message = started(site, [site.key()], {})
    assert not success
    assert "and is not closed: " in message
    assert site.fetch("SELECT * FROM kfm.keys") == before

    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    assert not backfill(site, [site.key()])[0]
    assert started(site, [site.key()], {}) == (True, "")
    assert outcomes(site) == [(site.key(), Outcome.APPLIED)]
    # Runs of the dispatcher and the worker are not bounded, due or not.
    assert started(site, [site.key()], EVENT_RUN_TAGS) == (True, "")
    assert not started(site, [site.key()], {})[0]


@pytest.mark.slow
def test_a_backfill_touches_closed_windows_only(site: Site) -> None:
    keys = [site.key(hour) for hour in range(3)]
    for hour in range(3):
        receive(site.services, upload(site, hour=hour))
    before = site.fetch("SELECT * FROM kfm.keys ORDER BY key")

    success, message = backfill(site, keys)
    assert not success
    assert message.startswith("3 keys were not published")
    assert f"{keys[0]}: its window ends at 2025-12-04 01:00:00 UTC and is not closed: the watermark of" in message
    assert site.fetch("SELECT * FROM kfm.keys ORDER BY key") == before

    close_until(site.services, site.dataset.dataset, START + timedelta(hours=2))
    success, message = backfill(site, keys)
    assert not success
    assert message == (
        f"1 key was not published:\n{keys[2]}: its window ends at 2025-12-04 03:00:00 UTC and is not closed: the "
        "watermark of usgs/streamflow stands at 2025-12-04 02:00:00 UTC"
    )
    assert outcomes(site) == [(keys[0], Outcome.APPLIED), (keys[1], Outcome.APPLIED)]
    assert site.fetch("SELECT * FROM kfm.dead_letters") == []
    assert site.fetch("SELECT * FROM kfm.keys ORDER BY key")[2] == before[2]

    # Unchanged keys are no failure.
    assert backfill(site, keys[:2]) == (True, "")
    assert outcomes(site)[2:] == [(keys[0], Outcome.SKIPPED), (keys[1], Outcome.SKIPPED)]
    # Unchanged keys next to an open window are reported to Dagster as well.
    assert not backfill(site, keys)[0]
    assert outcomes(site)[4:] == [(keys[0], Outcome.SKIPPED), (keys[1], Outcome.SKIPPED)]
    assert materialized_last(site) == set(keys[:2])
    # Events need no watermark.
    assert site.work()["published"] == 1
