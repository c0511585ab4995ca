"""The one module that touches what Dagster does not call public. Its test names the version it was checked with.

Nothing public does the same: run tags have no constants, backfills cannot be created from Python, and
`context.add_asset_metadata` reads all partitions of the dataset for every key (44 ms a key with 200 partitions).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES, BulkActionStatus, PartitionBackfill
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
    "get_current_timestamp",
]


def attach_partition_metadata(context: dg.AssetExecutionContext, metadata: Mapping[str, Mapping[str, Any]]) -> None:
    """Puts each partition's metadata on its own materialization."""
    step = context.get_step_execution_context()
    for key, values in metadata.items():
        step._metadata_accumulator = step._metadata_accumulator.with_additional_asset_metadata(
            asset_key=context.asset_key, metadata=values, partition_key=key
        )


def are_daemons_healthy(instance: dg.DagsterInstance, daemons: Sequence[str], heartbeat_seconds: float) -> bool:
    """Returns whether each of these daemons has reported within so many seconds, whatever errors its sensors had."""
    from dagster._daemon.controller import get_daemon_statuses  # loads Alembic, which definitions can do without

    statuses = get_daemon_statuses(instance, daemons, ignore_errors=True, heartbeat_tolerance_seconds=heartbeat_seconds)
    return all(status.healthy for status in statuses.values())
