"""Where lineage is told from: when the last stage of a run ends, when any of them fails, and by whoever finds a run
that was stopped. Its first stage tells of its start."""

import dagster as dg

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.operations.lineage import tell
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.orchestration.naming import STAGES, group_of


def lineage_hooks(dataset: Dataset, stage: str) -> set[dg.HookDefinition]:
    """On the assets, so that a run tells whoever asked for it. A canary publishes nothing and is not told of."""

    @dg.success_hook(name=f"{group_of(dataset)}_lineage_complete", required_resource_keys={"workshop"})
    def complete(context: dg.HookContext) -> None:
        tell(context.resources.workshop.open(), dataset, context.run_id, "COMPLETE")

    @dg.failure_hook(name=f"{group_of(dataset)}_lineage_fail", required_resource_keys={"workshop"})
    def fail(context: dg.HookContext) -> None:
        tell(context.resources.workshop.open(), dataset, context.run_id, "FAIL")

    if stage not in STAGES:
        return set()
    return {complete, fail} if stage == STAGES[-1] else {fail}


def tell_if_aborted(instance: dg.DagsterInstance, workshop: Workshop, dataset: Dataset, run: dg.DagsterRun) -> None:
    """A run that ended badly without a stage that failed was stopped, or died: it could not tell so itself."""
    failures = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE, limit=1)
    if not failures.records:
        tell(workshop, dataset, run.run_id, "ABORT")
