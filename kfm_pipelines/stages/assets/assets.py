"""Five assets for a dataset: compute, mask, validate, stage, publish. Each takes any number of keys."""

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from kfm_pipelines.catalog.collections.refresh import refresh_stale_collections
from kfm_pipelines.catalog.lineage.send import send_run_event
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.gates import RELEASE_GATES, TABLE_GATES
from kfm_pipelines.orchestration.names import STAGES, asset_key, column_schema, group_of, partitions_of, pool_of
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.services import Services
from kfm_pipelines.stages.assets import run_metadata
from kfm_pipelines.stages.batch import Batch
from kfm_pipelines.stages.telemetry.spans import begin_run_metering, emit_run_end
from kfm_pipelines.stages.trigger import RunTrigger

KEYS_PER_BACKFILL_RUN = 200


def dataset_assets(dataset: Dataset, published: Table | None = None) -> list[dg.AssetsDefinition]:
    """`published` is the published table's declaration, where it is known in advance."""
    return [_compute(dataset), _mask(dataset), _validate(dataset), _stage(dataset), _publish(dataset, published)]


def _compute(dataset: Dataset) -> dg.AssetsDefinition:
    @stage_asset(
        dataset,
        "compute",
        f"{_inputs_of(dataset)}, checked against what their events promised, as one table. Restricted.",
        kinds={"parquet"} if dataset.input.upstream else {"s3", "parquet"},
        deps=[_published(name) for name in dataset.input.upstream_names],
    )
    def compute(context: dg.AssetExecutionContext, services: ServicesResource) -> None:
        # Whether Dagster started this process for one run, from its code server or on a separate machine.
        own_process = multiprocessing.parent_process() is not None or "execute_run" in sys.argv
        begin_run_metering(services.open(), context.run.run_id, own_process=own_process)
        send_run_event(services.open(), dataset, context.run.run_id, "START")
        batch = _batch(context, services, dataset)
        batch.compute(context.partition_keys)
        _log_dropped_keys(context, batch)

    return compute


def _inputs_of(dataset: Dataset) -> str:
    published = " and ".join(dataset.input.upstream_names)
    return f"What is published of {published} in one window" if published else "The objects of one window"


def _published(upstream: str) -> dg.AssetDep:
    """Returns the dependency on what an upstream publishes. It shows the lineage only: which of its keys a key is made
    of, and when that is due, is in the inbox."""
    mapping = dg.SpecificPartitionsPartitionMapping([])
    return dg.AssetDep(asset_key(upstream, "publish"), partition_mapping=mapping)


def _mask(dataset: Dataset) -> dg.AssetsDefinition:
    @stage_asset(
        dataset,
        "mask",
        f"The table after masking policy '{dataset.policy}'. From here on the bytes are the ones published.",
        kinds={"parquet"},
        deps=[asset_key(dataset, "compute")],
    )
    def mask(context: dg.AssetExecutionContext, services: ServicesResource) -> None:
        batch = _batch(context, services, dataset)
        batch.mask(context.partition_keys)
        _log_dropped_keys(context, batch)

    return mask


def _validate(dataset: Dataset) -> dg.AssetsDefinition:
    @stage_asset(
        dataset,
        "validate",
        "Every gate's verdict on every key's table, recorded with the digest of the bytes it judged.",
        kinds={"parquet"},
        deps=[asset_key(dataset, "mask")],
        check_specs=_checks(dataset, "validate", TABLE_GATES),
    )
    def validate(context: dg.AssetExecutionContext, services: ServicesResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        batch = _batch(context, services, dataset)
        key_verdicts = batch.validate(context.partition_keys)
        run_metadata.log_notes(context, batch)
        return dg.MaterializeResult(
            metadata={"keys_judged": len({one.key for one in key_verdicts})},
            check_results=[run_metadata.check_result(gate, key_verdicts) for gate in TABLE_GATES],
        )

    return validate


def _stage(dataset: Dataset) -> dg.AssetsDefinition:
    @stage_asset(
        dataset,
        "stage",
        "The candidate revision, Parquet, STAC Item and provenance, complete and valid, where no reader looks; and the "
        "verdict of an independent verifier on exactly these bytes.",
        kinds={"parquet", "stac"},
        deps=[asset_key(dataset, "mask"), asset_key(dataset, "validate")],
        check_specs=_checks(dataset, "stage", RELEASE_GATES),
    )
    def stage(context: dg.AssetExecutionContext, services: ServicesResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        batch = _batch(context, services, dataset)
        key_verdicts = batch.stage(context.partition_keys)
        run_metadata.log_notes(context, batch)
        run_metadata.attach_care_metadata(context, batch, key_verdicts)
        return dg.MaterializeResult(
            metadata={"keys_staged": len({one.key for one in key_verdicts})},
            check_results=[run_metadata.check_result(gate, key_verdicts) for gate in RELEASE_GATES],
        )

    return stage


def _publish(dataset: Dataset, published: Table | None) -> dg.AssetsDefinition:
    freshness = dataset.slo.freshness

    @stage_asset(
        dataset,
        "publish",
        f"{dataset.description} Published by one swap of the STAC Item, after the verdicts are checked again.",
        kinds={"parquet", "stac"},
        deps=[asset_key(dataset, "stage")],
        # A release that needs a review is not published by its run.
        output_required=False,
        metadata={"dagster/column_schema": column_schema(published)} if published else {},
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=freshness) if freshness else None,
    )
    def publish(context: dg.AssetExecutionContext, services: ServicesResource) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]
        batch = _batch(context, services, dataset)
        releases = batch.publish(context.partition_keys)
        for problem in refresh_stale_collections(services.open()):
            context.log.warning("%s; a later run or tick retries", problem)
        run_metadata.log_notes(context, batch)
        if run_metadata.finish_run(context, batch, dataset, releases):
            yield dg.MaterializeResult(metadata={"keys_published": len(releases)})

    return publish


def stage_asset(
    dataset: Dataset,
    stage: str,
    description: str,
    *,
    kinds: set[str],
    metadata: Mapping[str, Any] | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Returns the decorator for one asset of a dataset, with what they all have in common."""
    decorator: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(
        key=asset_key(dataset, stage),
        description=description,
        group_name=group_of(dataset),
        partitions_def=partitions_of(dataset),
        # The same for the whole chain, or a backfill would split it into runs without gates.
        backfill_policy=dg.BackfillPolicy.multi_run(KEYS_PER_BACKFILL_RUN),
        pool=pool_of(dataset),
        kinds=kinds,
        owners=dataset.owners,
        tags={**dataset.tags, "stage": stage},
        metadata={
            "dataset": dataset.dataset,
            "licence": dataset.licence.id,
            "policy": dataset.policy,
            **(metadata or {}),
        },
        hooks=run_hooks(dataset, stage),
        **options,
    )
    return decorator


def _checks(dataset: Dataset, stage: str, gates: Sequence[str]) -> list[dg.AssetCheckSpec]:
    stops = "A red key stops here and is dead-lettered; the green ones come again without it."
    key = asset_key(dataset, stage)
    return [dg.AssetCheckSpec(gate, asset=key, blocking=True, description=f"{gate} gate. {stops}") for gate in gates]


def _log_dropped_keys(context: dg.AssetExecutionContext, batch: Batch) -> None:
    run_metadata.log_notes(context, batch)
    run_metadata.stop_if_all_failed(context, batch)


def _batch(context: dg.AssetExecutionContext, services: ServicesResource, dataset: Dataset) -> Batch:
    return Batch(services.open(), dataset, context.run.run_id, RunTrigger.from_tags(context.run.tags))


def run_hooks(dataset: Dataset, stage: str) -> set[dg.HookDefinition]:
    """Returns hooks that emit the end of a run, however it was started. Canary assets publish nothing and have none."""

    @dg.success_hook(name=f"{group_of(dataset)}_run_complete", required_resource_keys={"services"})
    def complete(context: dg.HookContext) -> None:
        _emit_run_end(context, dataset, succeeded=True)

    @dg.failure_hook(name=f"{group_of(dataset)}_run_fail", required_resource_keys={"services"})
    def fail(context: dg.HookContext) -> None:
        _emit_run_end(context, dataset, succeeded=False)

    if stage not in STAGES:
        return set()
    return {complete, fail} if stage == STAGES[-1] else {fail}


def emit_run_abort_if_stopped(
    instance: dg.DagsterInstance, services: Services, dataset: Dataset, run: dg.DagsterRun
) -> None:
    """Emits the end of a run that failed without a failed step: it was stopped or died before it could."""
    failures = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE, limit=1)
    if not failures.records:
        send_run_event(services, dataset, run.run_id, "ABORT")
        replay = RunTrigger.from_tags(run.tags).replay
        emit_run_end(services, dataset, run.run_id, replay, succeeded=False, lost=True)


def _emit_run_end(context: dg.HookContext, dataset: Dataset, *, succeeded: bool) -> None:
    services: Services = context.resources.services.open()
    send_run_event(services, dataset, context.run_id, "COMPLETE" if succeeded else "FAIL")
    run = context.instance.get_run_by_id(context.run_id)
    replay = RunTrigger.from_tags(run.tags).replay if run else None
    emit_run_end(services, dataset, context.run_id, replay, succeeded=succeeded)
