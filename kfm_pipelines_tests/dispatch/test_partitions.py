"""Old partitions and runs leave Dagster, come back when they are wanted, and nothing that has work is touched."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from kfm_pipelines.cli.main import kfm
from kfm_pipelines.dispatch import partitions
from kfm_pipelines.dispatch.dispatch import dispatch
from kfm_pipelines.dispatch.partitions import delete_old_runs, register_partitions, retire_partitions
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.retention.jobs import restore_job
from kfm_pipelines.orchestration import dagster_internals as internals
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.orchestration.names import group_of
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines_tests.fixtures.sites.site import START, Site, opened_site

KEPT = 3
HOURS = range(8)


@pytest.fixture
def site(stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Site]:
    url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", url, site_template, KFM_PARTITIONS_KEPT=str(KEPT)) as opened:
        yield opened


@pytest.fixture
def instance(site: Site) -> Iterator[dg.DagsterInstance]:
    with open_instance() as opened:
        yield opened


def register(site: Site, instance: dg.DagsterInstance) -> list[str]:
    """Creates settled keys that are partitions."""
    keys = [site.key(hour) for hour in HOURS]
    site.services.database.execute(
        """
        INSERT INTO kfm.keys (key, dataset, window_start, window_end)
        SELECT key, %(dataset)s, at, at + interval '1 hour'
        FROM unnest(%(keys)s::text[], %(starts)s::timestamptz[]) AS k (key, at)
        """,
        {
            "dataset": site.dataset.dataset,
            "keys": keys,
            "starts": [START + timedelta(hours=hour) for hour in HOURS],
        },
    )
    register_partitions(instance, site.dataset, keys)
    return keys


def registered(site: Site, instance: dg.DagsterInstance) -> list[str]:
    return list(instance.get_dynamic_partitions(group_of(site.dataset)))


def test_the_partitions_registered_longest_ago_are_retired(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "RETIRED_AT_ONCE", 2)
    keys = register(site, instance)
    assert retire_partitions(instance, site.services) == len(keys) - KEPT
    assert registered(site, instance) == keys[-KEPT:]
    assert retire_partitions(instance, site.services) == 0


@pytest.mark.parametrize(
    "work",
    [
        "due_at = now() + interval '1 day'",
        "owner = 'a-run', lease_until = now(), epoch = epoch + 1",
        "dispatch = 'requested'",
    ],
    ids=["due", "claimed", "dispatched"],
)
def test_keys_with_work_stay(site: Site, instance: dg.DagsterInstance, work: str) -> None:
    keys = register(site, instance)
    site.services.database.execute(
        "INSERT INTO kfm.dispatches (run_key, dataset, keys) VALUES ('requested', %(dataset)s, %(keys)s)",
        {"dataset": site.dataset.dataset, "keys": keys[:1]},
    )
    site.services.database.execute(f"UPDATE kfm.keys SET {work} WHERE key = %(key)s", {"key": keys[0]})
    retire_partitions(instance, site.services)
    assert registered(site, instance) == [keys[0], *keys[-KEPT:]]


def test_nothing_is_retired_during_a_backfill(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = register(site, instance)
    assert not internals.has_active_backfill(instance)
    monkeypatch.setattr(internals, "has_active_backfill", lambda _: True)
    assert retire_partitions(instance, site.services) == 0
    assert registered(site, instance) == keys


def test_a_retired_key_with_new_work_is_a_partition_again(site: Site, instance: dg.DagsterInstance) -> None:
    keys = register(site, instance)
    retire_partitions(instance, site.services)
    site.services.database.execute("UPDATE kfm.keys SET due_at = now() WHERE key = %(key)s", {"key": keys[0]})
    [request] = dispatch(instance, site.services).runs
    assert request.partition_key == keys[0]
    assert registered(site, instance) == [*keys[-KEPT:], keys[0]]


def test_retired_partitions_can_be_restored(site: Site, instance: dg.DagsterInstance) -> None:
    keys = register(site, instance)
    retire_partitions(instance, site.services)
    hours = [START + timedelta(hours=hour) for hour in (1, 3)]
    command = [
        "partitions",
        "restore",
        site.dataset.dataset,
        "--from",
        f"{hours[0]:%FT%RZ}",
        "--to",
        f"{hours[1]:%FT%RZ}",
    ]
    outcome = CliRunner().invoke(kfm, command, catch_exceptions=False)
    assert outcome.output == "2 keys of usgs/streamflow in this time; 2 partitions restored\n"
    assert registered(site, instance) == [*keys[-KEPT:], *keys[1:3]]
    retire_partitions(instance, site.services)
    assert registered(site, instance) == [keys[-1], *keys[1:3]]


def test_the_job_restores_by_the_offset_that_is_given(site: Site, instance: dg.DagsterInstance) -> None:
    keys = register(site, instance)
    retire_partitions(instance, site.services)
    times = {"start": f"{START - timedelta(hours=5):%FT%R}-06:00", "end": f"{START + timedelta(hours=2):%FT%RZ}"}
    config = {"ops": {"register_again": {"config": {"dataset": site.dataset.dataset, **times}}}}
    assert restore_job.execute_in_process(
        instance=instance, run_config=config, resources={"services": ServicesResource()}
    ).success
    assert registered(site, instance) == [*keys[-KEPT:], keys[1]]


def test_more_than_are_kept_cannot_be_restored(site: Site, instance: dg.DagsterInstance) -> None:
    register(site, instance)
    command = ["partitions", "restore", site.dataset.dataset, "--from", "2020-01-01", "--to", "2030-01-01"]
    outcome = CliRunner().invoke(kfm, command)
    assert "8 keys are more than the 3 of KFM_PARTITIONS_KEPT" in str(outcome.exception)


def test_old_runs_go_unless_their_partition_is_displayed(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = register(site, instance)
    retire_partitions(instance, site.services)
    monkeypatch.setattr(partitions, "PAGE_SIZE", 1)
    spans = {"retired": keys[:2], "displayed": keys[-2:], "partly": [keys[0], keys[-1]]}
    runs = {
        name: instance.create_run_for_job(
            dg.job(name=name)(lambda: None),
            tags={
                internals.ASSET_PARTITION_RANGE_START_TAG: first,
                internals.ASSET_PARTITION_RANGE_END_TAG: last,
            },
            status=dg.DagsterRunStatus.SUCCESS,
        ).run_id
        for name, (first, last) in spans.items()
    }
    assert delete_old_runs(instance, site.services) == 0  # they have just ended
    site.services.database.execute("UPDATE runs SET update_timestamp = now() - interval '91 days'")
    assert delete_old_runs(instance, site.services) == 1
    assert {name for name, run_id in runs.items() if instance.has_run(run_id)} == {"displayed", "partly"}
