"""`kfm datasets`: what is declared, and whether a declaration is right. That needs no database and no cloud; how far a
candidate has come does (`canary`)."""

from pathlib import Path

import click
from rich.table import Table

from kfm_pipelines.care.governance import authority_of, load_authorities
from kfm_pipelines.care.policies import load_policy, refuse_if_mismatched, refuse_policy_change
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.console.output import console, json_option, print_json
from kfm_pipelines.declarations.dataset import Dataset, load_dataset, load_datasets
from kfm_pipelines.gates.cli import approve_schema
from kfm_pipelines.gates.expectations import suites_of
from kfm_pipelines.operations.canary.candidate import load_candidate, load_candidates
from kfm_pipelines.operations.canary.cli import canary, promote
from kfm_pipelines.settings import resources_directory


@click.group()
def datasets() -> None:
    """The declared datasets."""


for command in (canary, promote):
    datasets.add_command(command)


@datasets.command("list")
@json_option
def list_datasets(as_json: bool) -> None:
    """List every declared dataset with its key, its input and its policy."""
    declared = load_datasets(resources_directory())
    if as_json:
        print_json({"datasets": [_describe(dataset) for dataset in declared.values()]})
        return
    table = Table("dataset", "key", "input", "policy", "owners")
    for dataset in declared.values():
        described = _describe(dataset)
        where = f"s3://{dataset.input.bucket}/{dataset.input.prefix}"
        table.add_row(dataset.dataset, described["key"], where, dataset.policy, ", ".join(dataset.owners))
    console.print(table)


@datasets.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def check(file: Path | None, as_json: bool) -> None:
    """Check one declaration FILE, or all: that they agree with each other, their candidates, their policies, their
    suites and those who decide."""
    resources = resources_directory()
    checked, candidates = _load_one(resources, file) if file else _load_all(resources)
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
    if as_json:
        print_json({"ok": True, "datasets": names, "candidates": versions})
        return
    console.print(f"{len(names)} right: {', '.join(names)}")
    if versions:
        console.print(f"{len(versions)} candidates right: {', '.join(versions)}")


def _load_one(resources: Path, file: Path) -> tuple[list[Dataset], list[Dataset]]:
    dataset = load_dataset(file)
    return [dataset], [load_candidate(resources, dataset, dataset.canary)] if dataset.canary else []


def _load_all(resources: Path) -> tuple[list[Dataset], list[Dataset]]:
    declared = load_datasets(resources)
    return list(declared.values()), load_candidates(resources, declared)


datasets.add_command(approve_schema)


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
