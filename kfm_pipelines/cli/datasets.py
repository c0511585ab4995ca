"""`kfm datasets`: lists and checks declarations, without a database or cloud services; candidates and schemas."""

from pathlib import Path

import click

from kfm_pipelines.care.governance import authority_of, load_authorities
from kfm_pipelines.care.policies import load_policy, refuse_if_mismatched, refuse_policy_change
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.console.output import console, format_count, json_option, print_table, respond
from kfm_pipelines.declarations.dataset import Dataset, Datasets, load_dataset, load_datasets
from kfm_pipelines.gates.cli import approve_schema
from kfm_pipelines.gates.expectations import suites_of
from kfm_pipelines.operations.canary.candidate import load_candidate, load_candidates
from kfm_pipelines.operations.canary.cli import canary, promote
from kfm_pipelines.settings import resources_directory


@click.group()
def datasets() -> None:
    """The declared datasets."""


for command in (canary, promote, approve_schema):
    datasets.add_command(command)


@datasets.command("list")
@json_option
def list_datasets(as_json: bool) -> None:
    """List all datasets with their key, input and policy."""
    declared = load_datasets(resources_directory())
    document = {"datasets": [_describe(dataset) for dataset in declared.values()]}
    respond(document, lambda: _display_datasets(declared), as_json=as_json)


def _display_datasets(declared: Datasets) -> None:
    rows = []
    for dataset in declared.values():
        place = f"s3://{dataset.input.bucket}/{dataset.input.prefix}"
        rows.append((dataset.dataset, _describe(dataset)["key"], place, dataset.policy, ", ".join(dataset.owners)))
    print_table(("dataset", "key", "input", "policy", "owners"), rows)


@datasets.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def check(file: Path | None, as_json: bool) -> None:
    """Check one declaration FILE, or all, against candidates, policies, suites and authorities."""
    resources = resources_directory()
    checked, candidates = _load(resources, file)
    authorities = load_authorities(resources)
    for dataset in (*checked, *candidates):
        policy = load_policy(resources, dataset.policy)
        refuse_if_mismatched(policy, dataset)
        authority_of(policy, authorities)
        suites_of(resources, dataset, published_table(dataset, policy))
    policies = {dataset.dataset: load_policy(resources, dataset.policy) for dataset in checked}
    for candidate in candidates:
        refuse_policy_change(policies[candidate.dataset], candidate)
    names = [dataset.dataset for dataset in checked]
    versions = [f"{candidate.dataset}@{candidate.key.transform_version}" for candidate in candidates]
    document = {"ok": True, "datasets": names, "candidates": versions}
    lines = f"{format_count(len(names), 'dataset')} valid: {', '.join(names)}"
    if versions:
        lines += f"\n{format_count(len(versions), 'candidate')} valid: {', '.join(versions)}"
    respond(document, lambda: console.print(lines), as_json=as_json)


def _load(resources: Path, file: Path | None) -> tuple[list[Dataset], list[Dataset]]:
    if file is None:
        declared = load_datasets(resources)
        return list(declared.values()), load_candidates(resources, declared)
    dataset = load_dataset(file)
    return [dataset], [load_candidate(resources, dataset, dataset.canary)] if dataset.canary else []


def _describe(dataset: Dataset) -> dict[str, str]:
    key = dataset.key
    return {
        "dataset": dataset.dataset,
        "title": dataset.title,
        "key": f"{key.source}:{key.aoi}:{key.h3_res}:{{{key.window}}}:{key.transform_version}",
        "bucket": dataset.input.bucket,
        "prefix": dataset.input.prefix,
        "format": dataset.input.format,
        "policy": dataset.policy,
        "licence": dataset.licence.id,
        "digest": dataset.digest,
    }
