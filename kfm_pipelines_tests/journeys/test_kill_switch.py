"""A killed dataset: running work stops before its swap, new events are kept, and all is published after `unkill`."""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.tags import RUN_KEY_TAG

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.definitions import CHORES, build_definitions
from kfm_pipelines.dispatch.dispatch import LOST_AFTER_SECONDS, dispatch
from kfm_pipelines.dispatch.sensor import tick
from kfm_pipelines.dispatch.tables import open_dispatches
from kfm_pipelines.errors import RedriveStopped
from kfm_pipelines.operations.dead_letters import redrive
from kfm_pipelines.operations.dead_letters.tables import LetterFilter
from kfm_pipelines.producer.samples import tribal_areas_object
from kfm_pipelines.stages.batch import Batch
from kfm_pipelines.state import kill_switch
from kfm_pipelines.stores import Swap, WorkStore
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines_tests.fixtures.care.register import sites, with_reviewer
from kfm_pipelines_tests.fixtures.runs.batches import ManualRun, publish_due
from kfm_pipelines_tests.fixtures.runs.crash import applied
from kfm_pipelines_tests.fixtures.runs.dispatch import make_due, skip_reason
from kfm_pipelines_tests.fixtures.runs.keys import kill_moves
from kfm_pipelines_tests.fixtures.sites.site import START, Site

DATASET = "usgs/streamflow"
DROUGHT = "drought-tribal-areas:united_states:none:2025-12-04:v1-0-0"
PUBLISHED = ("catalog", "objects", "processed")


def kill(site: Site, dataset: str = DATASET) -> None:
    kill_switch.kill(site.services.database, dataset, "ada", "wrong datum")


def unkill(site: Site, dataset: str = DATASET) -> None:
    assert kill_switch.unkill(site.services.database, dataset, "ada", "corrected")


def run_job(
    site: Site, instance: dg.DagsterInstance, job: str, partition: str | None = None, **how: Any
) -> dg.ExecuteInProcessResult:
    definition = build_definitions(site.services.settings.resources).resolve_job_def(job)
    return definition.execute_in_process(instance=instance, partition_key=partition, raise_on_error=False, **how)


def failure(result: dg.ExecuteInProcessResult) -> str:
    [event] = result.get_step_failure_events()
    error = event.step_failure_data.error
    return error.message if error else ""


def doing_once(do: Callable[[], object], where: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a call of the store to do something before the first call with such a path."""
    done: list[str] = []

    def called(store: FileStore, files: Iterable[str | Swap]) -> Any:
        paths = [one.path if isinstance(one, Swap) else one for one in files]
        if not done and any(where in path for path in paths):
            done.extend(paths)
            do()
        return call(store, files)

    return called


def assert_waiting(site: Site, *keys: str) -> None:
    """The keys are due, without an attempt, and have left no files."""
    rows = site.fetch(
        "SELECT key, attempts, owner, due_at <= clock_timestamp() AS due FROM kfm.keys"
        f" WHERE dataset = '{DATASET}' ORDER BY key"
    )
    assert rows == [{"key": key, "attempts": 0, "owner": None, "due": True} for key in keys]
    assert site.fetch("SELECT * FROM kfm.dead_letters") == []
    assert site.tree("work") == {}
    assert [path for path in site.tree(*PUBLISHED) if "usgs" in path] == []


@pytest.mark.slow
def test_killed_during_stage_nothing_is_published_until_unkill(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour in range(2):
        site.put(hour)
    name, data = tribal_areas_object(START)
    s3_client().put_object(Bucket=site.bucket, Key=name, Body=data)
    staging = doing_once(lambda: kill(site), f"staged/usgs-streamflow/{site.key(0)}", WorkStore.write_all)
    with monkeypatch.context() as patch:
        patch.setattr(WorkStore, "write_all", staging)
        counts = site.work()  # which ends, though two keys are due

    assert counts == {"keys": 1, "published": 1, "skipped": 0, "failed": 0}
    assert applied(site) == {DROUGHT: 1}  # the other dataset goes on
    assert_waiting(site, site.key(0), site.key(1))
    reasons = site.fetch("SELECT DISTINCT detail ->> 'reason' AS reason FROM kfm.wal WHERE step = 'fail'")
    assert reasons == [{"reason": "usgs/streamflow is killed by ada: wrong datum"}]

    site.put(2)
    reason = skip_reason(site, instance)
    assert "1 new event" in reason
    assert "3 keys wait: usgs/streamflow is killed (wrong datum); no other key is due, 0 runs open" in reason
    assert site.work()["keys"] == 0
    assert_waiting(site, *(site.key(hour) for hour in range(3)))

    unkill(site)
    assert site.work()["published"] == 3
    assert applied(site) == {DROUGHT: 1, **{site.key(hour): 1 for hour in range(3)}}
    assert site.tree("work") == {}


def test_killed_between_stage_and_publish(site: Site) -> None:
    run = ManualRun(site)
    run.validate()
    run.stage()
    kill(site)

    assert run.batch.publish([run.key]) == {}

    assert run.batch.notes == {run.key: "usgs/streamflow is killed by ada: wrong datum"}
    assert_waiting(site, run.key)
    # No intent was written that must not be carried out.
    assert site.fetch("SELECT FROM kfm.wal WHERE step = 'publish'") == []
    again = Batch(site.services, site.dataset, "another-run")
    again.compute([run.key])
    assert again.held_claims([run.key]) == []
    assert again.notes == run.batch.notes
    assert_waiting(site, run.key)


def test_a_kill_returns_after_the_running_swap_and_before_any_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ManualRun(site)
    run.validate()
    run.stage()
    swapping, resume = threading.Event(), threading.Event()

    def wait_at_the_swap() -> None:
        swapping.set()
        assert resume.wait(20)

    monkeypatch.setattr(FileStore, "swap_all", doing_once(wait_at_the_swap, run.key, FileStore.swap_all))
    with ThreadPoolExecutor(2) as pool:
        publication = pool.submit(run.batch.publish, [run.key])
        assert swapping.wait(20)
        killing = pool.submit(kill, site)
        with pytest.raises(TimeoutError):
            killing.result(timeout=0.5)
        assert [path for path in site.tree(*PUBLISHED) if "items" in path] == []
        resume.set()
        killing.result(timeout=20)
        # Readers see the whole publication by now.
        assert applied(site) == {run.key: 1}
        assert list(publication.result(timeout=20)) == [run.key]


@pytest.mark.slow
def test_a_publication_killed_during_its_upload_is_completed_after_unkill(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ManualRun(site)
    run.validate()
    run.stage()
    with ThreadPoolExecutor(1) as pool, monkeypatch.context() as patch:

        def kill_meanwhile() -> None:
            pool.submit(kill, site)
            deadline = time.monotonic() + 20
            while not kill_switch.killed_datasets(site.services.database):
                assert time.monotonic() < deadline

        patch.setattr(FileStore, "create_all", doing_once(kill_meanwhile, "objects/", FileStore.create_all))
        assert run.batch.publish([run.key]) == {}

    assert site.work()["keys"] == 0
    assert [path for path in site.tree(*PUBLISHED) if "items" in path or "processed" in path] == []
    assert applied(site) == {}
    assert site.fetch("SELECT attempts FROM kfm.keys") == [{"attempts": 0}]
    unkill(site)
    publish_due(site)
    assert applied(site) == {run.key: 1}
    # What was staged is forgotten, so the first intent is abandoned.
    assert site.fetch("SELECT count(*) AS n FROM kfm.wal WHERE step = 'publish'") == [{"n": 2}]
    assert site.tree("work") == {}


@pytest.mark.slow
def test_a_manual_run_takes_nothing_and_fails_with_the_reason(site: Site, instance: dg.DagsterInstance) -> None:
    site.put()
    [request] = tick(instance, site.services, CHORES).run_requests or []
    kill(site)

    result = run_job(site, instance, "usgs_streamflow", site.key(), tags={RUN_KEY_TAG: request.run_key or ""})

    assert not result.success
    assert f"{site.key()}: usgs/streamflow is killed by ada: wrong datum" in failure(result)
    assert site.fetch("SELECT * FROM kfm.wal") == []
    # The run is settled only after unkill, but it counts as no attempt.
    unkill(site)
    [again] = dispatch(instance, site.services).runs
    assert again.partition_key == site.key()
    assert_waiting(site, site.key())


def test_a_lost_request_is_not_repeated_and_occupies_no_slot(site: Site, instance: dg.DagsterInstance) -> None:
    [key] = make_due(site, 0)
    [lost] = dispatch(instance, site.services).runs
    kill(site)
    assert dispatch(instance, site.services).open_runs == 1  # it may still start
    late = timedelta(seconds=LOST_AFTER_SECONDS + 1)
    site.services.database.execute("UPDATE kfm.dispatches SET requested_at = requested_at - %(late)s", {"late": late})

    requests = dispatch(instance, site.services)

    assert (requests.runs, requests.open_runs) == ((), 0)
    assert open_dispatches(site.services.database) == []
    unkill(site)
    [again] = dispatch(instance, site.services).runs
    assert (again.partition_key, again.run_key == lost.run_key) == (key, False)


@pytest.mark.slow
def test_a_release_approved_while_killed_is_published_after_unkill(site: Site) -> None:
    register = with_reviewer(site)
    register.put(sites(register.dataset))
    publish_due(site)
    kill(site, "heritage/sites")

    register.approve()

    assert site.work()["published"] == 0
    assert site.tree(*PUBLISHED) == {}
    unkill(site, "heritage/sites")
    publish_due(site)
    assert list(applied(site).values()) == [1]


@pytest.mark.slow
def test_the_switch_is_two_jobs_in_the_ui(site: Site, instance: dg.DagsterInstance) -> None:
    def move(job: str, op: str, **config: str) -> dg.ExecuteInProcessResult:
        return run_job(site, instance, job, run_config={"ops": {op: {"config": config}}})

    options = {"dataset": DATASET, "by": "ada", "reason": "wrong\ndatum"}
    assert move("kfm_kill_dataset", "set_kill_switch", **options).success
    assert [str(one) for one in kill_switch.killed_datasets(site.services.database).values()] == [
        "usgs/streamflow is killed by ada: wrong datum"
    ]
    unknown = move("kfm_kill_dataset", "set_kill_switch", **{**options, "dataset": "usgs/streamflows"})
    assert "dataset 'usgs/streamflows' is not declared and has no keys" in failure(unknown)
    assert "say why" in failure(move("kfm_kill_dataset", "set_kill_switch", **{**options, "reason": " "}))
    assert "say who" in failure(move("kfm_unkill_dataset", "release_kill_switch", **{**options, "by": ""}))
    for _ in range(2):
        assert move("kfm_unkill_dataset", "release_kill_switch", **options).success
    assert kill_switch.killed_datasets(site.services.database) == {}
    assert len(kill_moves(site.services.database)) == 2


@pytest.mark.slow
def test_dead_letters_of_a_killed_dataset_are_not_redriven(site: Site) -> None:
    site.put(0, b"no parquet")
    publish_due(site)
    kill(site)
    with pytest.raises(RedriveStopped, match="is killed by ada: wrong datum; release it first with `kfm unkill"):
        redrive.begin(site.services, LetterFilter(), limit=10, canary=1, rate=10.0)
    assert site.fetch("SELECT state FROM kfm.dead_letters") == [{"state": "open"}]
