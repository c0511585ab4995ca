"""What is requested while keys compete for slots, and what happens to the keys of dead runs."""

import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import dagster as dg
import pytest
from dagster._core.storage.tags import RUN_KEY_TAG

from kfm_pipelines.dispatch import dispatch as dispatch_module
from kfm_pipelines.dispatch.dispatch import (
    close_finished_dispatches,
    dispatch,
    plan_due_runs,
    reap,
    recover,
    report_published,
)
from kfm_pipelines.dispatch.plan import FairScheduler
from kfm_pipelines.dispatch.tables import close_dispatch, open_dispatches
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.orchestration.names import asset_key
from kfm_pipelines.services import Services
from kfm_pipelines.state.keys import Claims
from kfm_pipelines.state.liveness import ProcessLock, record_run
from kfm_pipelines_tests.fixtures.runs.dispatch import declare, die_holding, due_since, enqueue, make_due
from kfm_pipelines_tests.fixtures.runs.keys import begin, skip
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

STARTED = dg.DagsterRunStatus.STARTED
YEAR = "usgs-streamflow:kansas_statewide:none:2025"


@pytest.fixture
def narrow(stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Site]:
    """One run at a time, one key in it."""
    url = stack.environment["KFM_POSTGRES_URL"]
    limits = {"KFM_RUNS_IN_FLIGHT": "1", "KFM_BATCH_SIZE": "1"}
    with opened_site(tmp_path / "site", url, site_template, **limits) as site:
        yield site


@pytest.fixture
def instance(stack: Stack) -> Iterator[dg.DagsterInstance]:
    with open_instance() as opened:
        yield opened


def requested(instance: dg.DagsterInstance, services: Services) -> list[str]:
    return [request.partition_key or "" for request in dispatch(instance, services).runs]


def finish(services: Services, key: str) -> None:
    """Does what a run without changes does, and the tick after it."""
    claim = Claims(services.database, "run", 60).take(key)
    begin(services.database, claim)
    skip(services.database, claim, {})
    for one in open_dispatches(services.database):
        if key in one.keys:
            close_dispatch(services.database, one.run_key)


def test_in_a_flood_of_urgent_keys_the_others_are_dispatched_one_in_four(
    narrow: Site, instance: dg.DagsterInstance
) -> None:
    """Across ticks, each of which has one free slot."""
    patient = [*make_due(narrow, 100, 101), *make_due(narrow, 102, priority="low")]
    due_since(narrow, patient, minutes=30)
    order = []
    for turn in range(13):
        make_due(narrow, turn, priority="high")
        [key] = requested(instance, narrow.services)
        finish(narrow.services, key)
        order.append(key)

    assert [turn for turn, key in enumerate(order) if key in patient] == [3, 7, 11]
    assert [order[turn] for turn in (3, 7, 11)] == patient


@pytest.mark.parametrize(("minutes", "waited_enough"), [(8, False), (12, True)])
def test_in_a_flood_of_normal_keys_a_low_one_waits_ten_minutes_and_no_more(
    narrow: Site, minutes: float, waited_enough: bool
) -> None:
    [low] = make_due(narrow, 100, priority="low")
    due_since(narrow, [low], minutes)
    flood = make_due(narrow, *range(3))
    with open_instance() as instance:
        assert requested(instance, narrow.services) == ([low] if waited_enough else flood[:1])


def test_no_more_runs_are_requested_under_a_prefix_than_its_limit(small: Site, instance: dg.DagsterInstance) -> None:
    declare(small, limits=[{"prefix": f"{YEAR}-12-04", "runs": 2}])
    limited = make_due(small, *range(6))
    [free] = make_due(small, 30)
    due_since(small, limited, minutes=5)

    requests = dispatch(instance, small.services)

    tags = {request.partition_key: request.tags.get("kfm/at-most-2") for request in requests.runs}
    assert tags == {limited[0]: f"{YEAR}-12-04", limited[1]: f"{YEAR}-12-04", free: None}
    assert requests.held_back == 2  # of the four it looked at under the prefix
    assert requested(instance, small.services) == []
    finish(small.services, limited[0])
    assert requested(instance, small.services) == limited[2:3]


def test_after_the_deadline_nothing_is_requested_and_the_next_tick_goes_on(
    small: Site, instance: dg.DagsterInstance
) -> None:
    keys = make_due(small, 0, 1)
    over = time.monotonic() - 1
    assert dispatch(instance, small.services, deadline=over).runs == ()
    assert plan_due_runs(instance, small.services, FairScheduler([]), slots=4, deadline=over) == []
    assert requested(instance, small.services) == keys


def test_open_runs_are_looked_up_at_once(small: Site, instance: dg.DagsterInstance) -> None:
    make_due(small, *range(4))
    assert len(dispatch(instance, small.services).runs) == 4
    with patch.object(instance, "get_runs", wraps=instance.get_runs) as looks:
        assert len(close_finished_dispatches(instance, small.services)) == 4
    assert looks.call_count == 1


def test_a_lost_request_is_repeated_with_its_limit(small: Site, instance: dg.DagsterInstance) -> None:
    declare(small, limits=[{"prefix": YEAR, "runs": 3}])
    make_due(small, 0)
    [lost] = dispatch(instance, small.services).runs
    small.services.database.execute("UPDATE kfm.dispatches SET requested_at = requested_at - interval '61 s'")
    assert dispatch(instance, small.services).runs == (lost,)
    assert lost.tags["kfm/at-most-3"] == YEAR


def test_a_serial_dataset_has_one_requested_run_at_a_time(small: Site, instance: dg.DagsterInstance) -> None:
    declare(small, serial=True)
    keys = make_due(small, 0, 1)
    assert requested(instance, small.services) == keys[:1]
    assert requested(instance, small.services) == []
    finish(small.services, keys[0])
    assert requested(instance, small.services) == keys[1:]


def test_keys_of_a_dead_run_are_due_again_after_the_retry_delay(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    services, [held, untouched] = site.services, make_due(site, 0, 1)
    # Full jitter is uniform from zero to a ceiling; the longest wait reveals the ceiling.
    monkeypatch.setattr(services.random, "uniform", lambda least, most: least + 100 * most)
    with open_instance() as instance:
        [request] = dispatch(instance, services).runs
        run = enqueue(site, instance, status=dg.DagsterRunStatus.FAILURE, tags={RUN_KEY_TAG: request.run_key or ""})
        die_holding(site, held, run)
        services.database.execute("UPDATE kfm.keys SET attempts = 3 WHERE key = %(key)s", {"key": held})

        assert close_finished_dispatches(instance, services) == []

    rows = site.fetch(
        "SELECT key, attempts, owner, round(extract(epoch FROM due_at - clock_timestamp()), -1)::int AS wait"
        " FROM kfm.keys ORDER BY key"
    )
    assert rows == [
        {"key": held, "attempts": 3, "owner": None, "wait": 80},
        {"key": untouched, "attempts": 1, "owner": None, "wait": 20},
    ]


def test_a_key_whose_runs_keep_dying_is_dead_lettered_at_last(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.services.random, "uniform", lambda *_: 0.0)
    [key] = make_due(site, 0)
    with open_instance() as instance:
        for _ in range(site.services.settings.max_attempts):
            [request] = dispatch(instance, site.services).runs
            run = enqueue(site, instance, status=dg.DagsterRunStatus.FAILURE, tags={RUN_KEY_TAG: request.run_key or ""})
            die_holding(site, key, run)
            close_finished_dispatches(instance, site.services)

    assert site.work()["failed"] == 1
    assert site.fetch("SELECT key, error FROM kfm.dead_letters") == [{"key": key, "error": "AttemptsExhausted"}]


def publish_materializations(instance: dg.DagsterInstance, site: Site) -> list[str]:
    records = instance.fetch_materializations(asset_key(site.dataset, "publish"), limit=10).records
    return sorted(str(record.partition_key) for record in records)


@pytest.mark.slow
def test_only_unreported_publications_are_reported(site: Site) -> None:
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


def statuses(instance: dg.DagsterInstance) -> dict[str, str]:
    return {run.run_id: run.status.value for run in instance.get_runs()}


def test_a_run_of_ours_is_failed_when_its_lock_is_missing_in_two_looks(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = site.services.database
    alive = ProcessLock(database)
    fates = {
        (dead := add_started_run(instance)): "FAILURE",
        (living := add_started_run(instance)): "STARTED",
        (backfilled := add_started_run(instance, "usgs")): "FAILURE",
        (foreign := add_started_run(instance, "other")): "STARTED",
        add_started_run(instance): "STARTED",  # has not begun
    }
    for run, process in ((dead, 0), (living, alive.number), (backfilled, 0), (foreign, 0)):
        record_run(database, run, process)

    reap(instance, site.services)
    assert set(statuses(instance).values()) == {"STARTED"}
    database.execute("UPDATE kfm.run_processes SET missing_since = missing_since - interval '9 s'")
    reap(instance, site.services)

    assert statuses(instance) == fates
    monkeypatch.setattr(dispatch_module, "START_SECONDS", -5)
    reap(instance, site.services)
    assert list(statuses(instance).values()).count("FAILURE") == 3
    assert statuses(instance)[living] == "STARTED"
    alive.close()


def test_at_a_start_nothing_waits_for_runs_of_an_earlier_dagster(small: Site, instance: dg.DagsterInstance) -> None:
    keys, services = make_due(small, 0, 5, 9), small.services
    requests = dispatch(instance, services).runs
    assert len(requests) == 3
    alive = ProcessLock(services.database)
    _lost, *created = [request.run_key or "" for request in requests]
    runs = [enqueue(small, instance, status=STARTED, tags={RUN_KEY_TAG: run_key}) for run_key in created]
    record_run(services.database, runs[1], alive.number)

    recover(services)

    assert statuses(instance) == {runs[0]: "FAILURE", runs[1]: "STARTED"}
    assert [one.run_key for one in open_dispatches(services.database)] == created[1:]
    rows = small.fetch("SELECT key FROM kfm.keys WHERE dispatch IS NULL ORDER BY key")
    assert [row["key"] for row in rows] == keys[:2]
    alive.close()


def add_started_run(instance: dg.DagsterInstance, backfilled: str | None = None) -> str:
    """Adds a run of the job, or one that a backfill of this domain started."""
    selection = frozenset({dg.AssetKey([backfilled, "streamflow", "compute"])}) if backfilled else None
    job = "__ASSET_JOB" if backfilled else "usgs_streamflow"
    run = dg.DagsterRun(job_name=job, status=dg.DagsterRunStatus.STARTED, asset_selection=selection)
    return instance.add_run(run).run_id
