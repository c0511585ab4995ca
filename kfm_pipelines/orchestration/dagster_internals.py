"""The only module that uses private names of Dagster, besides `event_log`. Its test pins the version of both.

There is no public equivalent: run tags have no constants, backfills cannot be created from Python, storages cannot be
told to keep connections, a code server cannot be told how to start runs, and
`context.add_asset_metadata` reads all partitions of the dataset for every key (44 ms a key with 200 partitions).
"""

import atexit
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.events import RunFailureReason
from dagster._core.execution.backfill import (
    BULK_ACTION_TERMINAL_STATUSES,
    BulkActionsFilter,
    BulkActionStatus,
    PartitionBackfill,
)
from dagster._core.storage.dagster_run import ACTIVE_RUN_STATUSES
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
    PRIORITY_TAG,
    RUN_KEY_TAG,
)
from dagster._time import get_current_timestamp

__all__ = [
    "ACTIVE_RUN_STATUSES",
    "ASSET_PARTITION_RANGE_END_TAG",
    "ASSET_PARTITION_RANGE_START_TAG",
    "BULK_ACTION_TERMINAL_STATUSES",
    "PARTITION_NAME_TAG",
    "PRIORITY_TAG",
    "RUN_KEY_TAG",
    "BaseAssetGraph",
    "BulkActionStatus",
    "PartitionBackfill",
    "UnresolvedAssetJobDefinition",
    "are_daemons_healthy",
    "attach_partition_metadata",
    "fork_runs",
    "get_current_timestamp",
    "has_active_backfill",
    "storage_engines",
]


def attach_partition_metadata(context: dg.AssetExecutionContext, metadata: Mapping[str, Mapping[str, Any]]) -> None:
    """Puts each partition's metadata on its own materialization."""
    step = context.get_step_execution_context()
    for key, values in metadata.items():
        step._metadata_accumulator = step._metadata_accumulator.with_additional_asset_metadata(
            asset_key=context.asset_key, metadata=values, partition_key=key
        )


def are_daemons_healthy(instance: dg.DagsterInstance, daemons: Sequence[str], heartbeat_seconds: float) -> bool:
    """Returns whether each of these daemons reported within `heartbeat_seconds`, ignoring errors of its sensors."""
    from dagster._daemon.controller import get_daemon_statuses  # imports Alembic, which definitions do not need

    statuses = get_daemon_statuses(instance, daemons, ignore_errors=True, heartbeat_tolerance_seconds=heartbeat_seconds)
    return all(status.healthy for status in statuses.values())


def was_interrupted(result: dg.ExecuteInProcessResult) -> bool:
    """Whether Ctrl-C has ended the run. Dagster makes it a failure like any other and goes on."""
    failures = [one for one in result.all_events if one.event_type is dg.DagsterEventType.RUN_FAILURE]
    return any(one.job_failure_data.failure_reason is RunFailureReason.UNEXPECTED_TERMINATION for one in failures)


def has_active_backfill(instance: dg.DagsterInstance) -> bool:
    active = [status for status in BulkActionStatus if status not in BULK_ACTION_TERMINAL_STATUSES]
    return bool(instance.get_backfills(BulkActionsFilter(statuses=active), limit=1))


def fork_runs(*preload: str) -> None:
    """In a code server, forks the process of each run from one that has imported these modules, because a new
    interpreter would import everything again. Dagster starts processes by the context named `spawn`."""
    if sys.argv[1:3] != ["api", "grpc"] or multiprocessing.parent_process() is not None:
        return  # not a code server, or one of its runs
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process with threads must not be forked
    multiprocessing.set_forkserver_preload([*preload])
    multiprocessing.get_context("spawn").Process = _RunProcess  # type: ignore[assignment,misc]
    forkserver.ensure_running()


class _RunProcess(ForkServerProcess):
    """Does at its end what an interpreter does, such as sending the last metrics; a forked process would not."""

    def run(self) -> None:
        try:
            super().run()
        finally:
            atexit._run_exitfuncs()


def storage_engines(instance: dg.DagsterInstance) -> list[Any]:
    """Returns the SQLAlchemy engines whose connections Dagster keeps open and never closes."""
    storages = (instance.run_storage, instance.event_log_storage, instance.schedule_storage)
    engines = (getattr(storage, "_engine", None) for storage in storages)
    return [engine for engine in engines if engine is not None]
