"""The I/O manager between assets: each key's table as a Parquet file in the work tier, never pickled."""

from functools import partial

import dagster as dg

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.services import Services
from kfm_pipelines.stages.handoff import Handoff, HandoffStream
from kfm_pipelines.stages.trigger import RunTrigger
from kfm_pipelines.state.keys import Claim, Claims
from kfm_pipelines.stores import Layout


class Handoffs:
    """The tables of a run's keys, produced or read one at a time to save memory."""

    def __init__(self, source: HandoffStream) -> None:
        self._source = source

    def __iter__(self) -> HandoffStream:
        return self._source


class ParquetHandoffs(dg.ConfigurableIOManager):
    """Writes an asset's table for each of its keys; reads those of the keys that are still in the run."""

    services: dg.ResourceDependency[ServicesResource]

    def handle_output(self, context: dg.OutputContext, obj: Handoffs) -> None:
        services = self.services.open()
        handoffs = iter(obj)
        handoff = next(handoffs, None)
        while handoff is not None:
            try:
                services.store.write(_path(services, context.asset_key, handoff.claim), handoff.data)
            except Exception as error:  # noqa: BLE001 - any error fails this key only
                handoff = _throw_into_stage(handoffs, error)
            else:
                handoff = next(handoffs, None)

    def load_input(self, context: dg.InputContext) -> Handoffs:
        return Handoffs(_read(self.services.open(), context))


def _throw_into_stage(handoffs: HandoffStream, error: Exception) -> Handoff | None:
    """Lets the stage handle a failure to store its hand-off; returns the next one."""
    try:
        return handoffs.throw(error)
    except StopIteration:
        return None


def _read(services: Services, context: dg.InputContext) -> HandoffStream:
    run, dataset = context.step_context, _dataset(services, context.asset_key)
    replay = RunTrigger.from_tags(run.run_tags).replay
    lease_seconds = services.settings.lease_seconds
    held = Claims(services.database, run.run_id, lease_seconds, replay, dataset=dataset.dataset).held()
    for claim in [held[key] for key in context.asset_partition_keys if key in held]:
        path = _path(services, context.asset_key, claim)
        yield Handoff(claim, partial(services.store.read, path))


def _dataset(services: Services, asset_key: dg.AssetKey) -> Dataset:
    return services.datasets["/".join(asset_key.path[:-1])]


def _path(services: Services, asset_key: dg.AssetKey, claim: Claim) -> str:
    layout = Layout(_dataset(services, asset_key).pipeline)
    unmasked = asset_key.path[-1] == "compute"  # every other hand-off is masked
    return layout.computed_table(claim.key, claim.epoch) if unmasked else layout.masked_table(claim.key, claim.epoch)
