"""What a run that was stopped had already done: Dagster learns of it from the log, since the run cannot say it."""

from collections.abc import Sequence

import dagster as dg

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.orchestration.names import asset_key
from kfm_pipelines.services import Services
from kfm_pipelines.state.wal import Outcome, last_entries_of_run


def report_published(
    instance: dg.DagsterInstance, services: Services, dataset: Dataset, run_id: str, keys: Sequence[str]
) -> list[str]:
    """Record a materialization of `publish` for every key that the run published without living to tell."""
    entries = last_entries_of_run(services.database, run_id, keys)
    published = [key for key, entry in entries.items() if entry.outcome is Outcome.APPLIED]
    if not published:
        return []
    told = _find_materialized(instance, dataset, run_id, published)
    untold = [key for key in published if key not in told]
    for key in untold:
        metadata = {"outcome": Outcome.APPLIED.value, "revision": entries[key].detail["revision"], "run": run_id}
        instance.report_runless_asset_event(
            dg.AssetMaterialization(asset_key(dataset, "publish"), partition=key, metadata=metadata)
        )
    return untold


def _find_materialized(
    instance: dg.DagsterInstance, dataset: Dataset, run_id: str, keys: Sequence[str]
) -> set[str | None]:
    of_keys = dg.AssetRecordsFilter(asset_key=asset_key(dataset, "publish"), asset_partitions=list(keys))
    found = instance.fetch_materializations(of_keys, limit=2 * len(keys))
    return {record.partition_key for record in found.records if record.run_id == run_id}
