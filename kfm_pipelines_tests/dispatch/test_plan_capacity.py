"""Capacity for runs: in all, of a serial dataset, under a prefix."""

from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.dagster_run import RunOpConcurrency

from kfm_pipelines.declarations import Concurrency
from kfm_pipelines.declarations.dataset import Datasets, load_datasets
from kfm_pipelines.dispatch.plan import MIN_SHARE, PlannedRun, RunCapacity
from kfm_pipelines.dispatch.tables import HIGH, DueKey
from kfm_pipelines.orchestration.names import limit_tags
from kfm_pipelines.settings import shipped_path

NAME = "usgs/streamflow"
KANSAS = "usgs-streamflow:kansas_statewide:none:"
MAY, JUNE, JULY = f"{KANSAS}2025-05", f"{KANSAS}2025-06", f"{KANSAS}2025-07"
LIMITS = {"limits": [{"prefix": MAY, "runs": 1}, {"prefix": JUNE, "runs": 2}]}


def declared(concurrency: dict[str, Any]) -> Datasets:
    dataset = load_datasets(shipped_path("resources"))[NAME]
    changed = dataset.model_copy(update={"concurrency": Concurrency.model_validate(concurrency)})
    other = dataset.model_copy(update={"dataset": "usda/soil"})
    return Datasets({NAME: changed, "usda/soil": other})


def run_of(key: str, dataset: str = NAME) -> PlannedRun:
    return PlannedRun(dataset, (DueKey(key, 0, 0, 0, 1),))


def in_pool(pool: str) -> dg.DagsterRun:
    needs = RunOpConcurrency(root_key_counts={}, has_unconstrained_root_nodes=True, all_pools={pool})
    return dg.DagsterRun(job_name="any", run_op_concurrency=needs)


def test_no_run_fits_when_all_slots_are_reserved() -> None:
    capacity = RunCapacity(declared({}), slots=2)
    for key in (MAY, JUNE):
        assert capacity.fits(run_of(JULY))
        capacity.reserve(NAME, [key])
    assert not capacity.fits(run_of(JULY))


def test_one_large_run_waits_in_the_queue_and_an_urgent_one_overtakes_it() -> None:
    capacity = RunCapacity(declared({}), slots=1, queues=True)
    large = PlannedRun(NAME, tuple(DueKey(f"{KANSAS}{day}", 0, 0, 0, 1) for day in range(MIN_SHARE)))
    urgent = PlannedRun(NAME, (DueKey(MAY, 0, 0, 0, HIGH),))
    capacity.reserve(NAME, [JULY])
    assert [capacity.fits(run) for run in (large, run_of(JUNE), urgent)] == [True, False, False]
    capacity.reserve(NAME, large.names)
    assert [capacity.fits(run) for run in (large, run_of(JUNE), urgent)] == [False, False, True]
    capacity.reserve(NAME, urgent.names)
    assert not capacity.fits(urgent)


def test_a_worker_has_no_queue() -> None:
    capacity = RunCapacity(declared({}), slots=0)
    assert not capacity.fits(PlannedRun(NAME, tuple(DueKey(f"{MAY}-{n}", 0, 0, 0, 1) for n in range(MIN_SHARE))))


def test_under_a_prefix_there_are_as_many_runs_as_declared() -> None:
    capacity = RunCapacity(declared(LIMITS), slots=10)
    for fitting in ({MAY, JUNE, JULY}, {JUNE, JULY}, {JUNE, JULY}, {JULY}, {JULY}):
        assert {key for key in (MAY, JUNE, JULY) if capacity.fits(run_of(f"{key}-01"))} == fitting
        capacity.reserve(NAME, [f"{MAY if MAY in fitting else JUNE if JUNE in fitting else JULY}-02"])


@pytest.mark.parametrize("keys", [[MAY, JULY], [JULY, MAY]])
def test_a_run_requested_before_its_prefix_was_declared_counts_under_it(keys: list[str]) -> None:
    capacity = RunCapacity(declared(LIMITS), slots=10)
    capacity.reserve(NAME, keys)
    assert not capacity.fits(run_of(MAY))


def test_a_serial_dataset_has_one_run_and_others_are_free() -> None:
    capacity = RunCapacity(declared({"serial": True}), slots=10)
    assert capacity.fits(run_of(MAY))
    capacity.reserve(NAME, [MAY])
    assert not capacity.fits(run_of(JUNE))
    capacity.reserve("usda/soil", ["a"])
    assert capacity.fits(run_of("b", "usda/soil"))


def test_a_dispatch_of_an_undeclared_dataset_takes_a_slot() -> None:
    capacity = RunCapacity(declared({}), slots=1)
    capacity.reserve("gone/away", ["a"])
    assert not capacity.fits(run_of(MAY))


def test_a_run_of_a_backfill_counts_by_its_pool_or_tag() -> None:
    capacity = RunCapacity(declared({"serial": True}), slots=1)
    capacity.count_run(in_pool("serial_usda_soil"))
    assert capacity.fits(run_of(MAY))
    capacity.count_run(in_pool("serial_usgs_streamflow"))
    assert not capacity.fits(run_of(MAY))

    datasets = declared(LIMITS)
    capacity = RunCapacity(datasets, slots=1)
    capacity.count_run(dg.DagsterRun(job_name="any", tags={**limit_tags(datasets[NAME], [MAY]), "kfm/dataset": NAME}))
    assert not capacity.fits(run_of(MAY))
    assert capacity.fits(run_of(JUNE))
