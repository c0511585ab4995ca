"""The assets downstream of `publish`: what else shows a dataset's publications."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import KfmError
from kfm_pipelines.orchestration.names import asset_key
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.flush import write_now
from kfm_pipelines.sinks.graph import sink as graph
from kfm_pipelines.sinks.table import check as table_check
from kfm_pipelines.stages.assets.assets import stage_asset
from kfm_pipelines.state.outbox import Sink

MATCHES = "matches_catalog"
MAX_EXAMPLES = 5
MAX_COMPARED = 50  # reading all keys back would take as long as writing them

Describe = Callable[[Services, Dataset], Mapping[str, Any]]
Compare = Callable[[Services, Dataset, Sequence[str]], Mapping[str, str]]


def sink_assets(dataset: Dataset, *, has_graph: bool) -> list[dg.AssetsDefinition]:
    return [*([_table(dataset)] if dataset.tables else []), *([_graph(dataset)] if has_graph else [])]


def _table(dataset: Dataset) -> dg.AssetsDefinition:
    description = (
        f"{dataset.title}: all keys as one Iceberg table. Each run writes its keys on a branch, compares it with what "
        "is published, and makes it current by one move."
    )
    return _sink_asset(dataset, Sink.TABLE, description, {"iceberg"}, table_check.differences, _describe_table)


def _describe_table(services: Services, dataset: Dataset) -> Mapping[str, Any]:
    facts = table_check.totals(services, dataset)
    known = {name: facts[name] for name in ("table", "rows", "files", "snapshots", "metadata") if name in facts}
    return known | ({"snapshot": str(facts["snapshot"])} if "snapshot" in facts else {})  # too long for a number


def _graph(dataset: Dataset) -> dg.AssetsDefinition:
    description = (
        f"{dataset.title}: what is published, what it was made from, and under whose policy, in the knowledge graph. "
        "Written from the published documents alone."
    )
    return _sink_asset(dataset, Sink.GRAPH, description, {"graph"}, graph.differences, _describe_graph)


def _describe_graph(services: Services, _dataset: Dataset) -> Mapping[str, Any]:
    return {"graph": str(services.settings.graph_url)}


def _sink_asset(
    dataset: Dataset, sink: Sink, description: str, kinds: set[str], compare: Compare, describe: Describe
) -> dg.AssetsDefinition:
    @stage_asset(
        dataset,
        sink.value,
        description,
        kinds=kinds,
        deps=[asset_key(dataset, "publish")],
        # What cannot be written now is written by a later tick.
        output_required=False,
        check_specs=[
            dg.AssetCheckSpec(
                MATCHES,
                asset=asset_key(dataset, sink.value),
                description=f"The {sink.value} has what the catalog has, of {MAX_COMPARED} keys of this run or all.",
            )
        ],
    )
    def show(
        context: dg.AssetExecutionContext, services: ServicesResource
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:  # type: ignore[type-arg]
        opened, keys = services.open(), list(context.partition_keys)
        problems = _try_to_write(opened, dataset, sink, keys, f"run_{context.run.run_id}")
        for key, problem in list(problems.items())[:MAX_EXAMPLES]:
            context.log.warning("%s waits for the %s: %s; a later tick retries", key, sink, problem)
        if len(problems) < len(keys):
            facts = {"keys": len(keys) - len(problems), "waiting": len(problems), **describe(opened, dataset)}
            yield dg.MaterializeResult(metadata=facts)
        compared = sample(keys, MAX_COMPARED)
        yield _check(dataset, sink, {**_compare(compare, opened, dataset, compared), **problems}, len(compared))

    return show


def sample(keys: Sequence[str], most: int) -> list[str]:
    """Returns so many keys at most, evenly spaced."""
    step = -(-len(keys) // most)
    return list(keys[:: max(step, 1)])


def _try_to_write(services: Services, dataset: Dataset, sink: Sink, keys: Sequence[str], writer: str) -> dict[str, str]:
    try:
        return write_now(services, dataset, sink, keys, writer)
    except KfmError as error:  # the outbox has them
        return dict.fromkeys(keys, str(error))


def _compare(compare: Compare, services: Services, dataset: Dataset, keys: Sequence[str]) -> Mapping[str, str]:
    try:
        return compare(services, dataset, keys)
    except KfmError as error:
        return dict.fromkeys(keys, str(error))


def _check(dataset: Dataset, sink: Sink, found: Mapping[str, str], keys: int) -> dg.AssetCheckResult:
    examples = "\n".join(f"- {key}: {problem}" for key, problem in list(found.items())[:MAX_EXAMPLES])
    return dg.AssetCheckResult(
        check_name=MATCHES,
        asset_key=asset_key(dataset, sink.value),
        passed=not found,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={
            "keys_compared": keys,
            "keys_that_differ": len(found),
            **({"for_example": dg.MetadataValue.md(examples)} if found else {}),
        },
    )
