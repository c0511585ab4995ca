"""`kfm datasets`: what is declared, and whether a declaration is right. Needs no database and no cloud."""

from pathlib import Path

import click
from rich.table import Table

from kfm_pipelines.care.authorities import authority_of, load_authorities
from kfm_pipelines.care.policies import load_policy, refuse_if_unsuited
from kfm_pipelines.care.published import published_table
from kfm_pipelines.cli.output import console, json_option, print_json
from kfm_pipelines.datasets import Dataset, load_dataset, load_datasets
from kfm_pipelines.gates.expectations import suites_of
from kfm_pipelines.settings import resources_directory


@click.group()
def datasets() -> None:
    """The declared datasets."""


@datasets.command("list")
@json_option
def list_datasets(as_json: bool) -> None:
    """List every declared dataset with its key, its input and its policy."""
    declared = load_datasets(resources_directory())
    if as_json:
        print_json({"datasets": [_described(dataset) for dataset in declared.values()]})
        return
    table = Table("dataset", "key", "input", "policy", "owners")
    for dataset in declared.values():
        described = _described(dataset)
        where = f"s3://{dataset.input.bucket}/{dataset.input.prefix}"
        table.add_row(dataset.dataset, described["key"], where, dataset.policy, ", ".join(dataset.owners))
    console.print(table)


@datasets.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def check(file: Path | None, as_json: bool) -> None:
    """Check one declaration FILE, or all: that they agree with each other, their policies, their suites and those who
    decide."""
    resources = resources_directory()
    checked = [load_dataset(file)] if file else list(load_datasets(resources).values())
    authorities = load_authorities(resources)
    for dataset in checked:
        policy = load_policy(resources, dataset.policy)
        refuse_if_unsuited(policy, dataset)
        authority_of(policy, authorities)
        suites_of(resources, dataset, published_table(dataset, policy))
    names = [dataset.dataset for dataset in checked]
    if as_json:
        print_json({"ok": True, "datasets": names})
    else:
        console.print(f"{len(names)} right: {', '.join(names)}")


def _described(dataset: Dataset) -> dict[str, str]:
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
