"""`kfm datasets list`, `check` and `schema`: declarations as they are written."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from kfm_pipelines.console.output import console, format_count, json_option, print_table, respond, stderr_console
from kfm_pipelines.console.session import current_session
from kfm_pipelines.declarations.dataset import Dataset, Datasets, load_datasets
from kfm_pipelines.errors import KfmError
from kfm_pipelines.operations.datasets.check import CheckResult, check_declarations
from kfm_pipelines.operations.datasets.readiness import Readiness, steps_from_files, steps_from_services
from kfm_pipelines.operations.datasets.schema import schema_document
from kfm_pipelines.settings import resources_directory
from kfm_pipelines.text import make_printable

NO_SITE = "whether objects are announced and the running code has it: no stack is running (start `kfm up`)"


@click.command("list")
@json_option
def list_datasets(as_json: bool) -> None:
    """List all datasets with their key, input and policy."""
    declared = load_datasets(resources_directory())
    document = {"datasets": [_describe(dataset) for dataset in declared.values()]}
    respond(document, lambda: _display_datasets(declared), as_json=as_json)


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def check(files: tuple[Path, ...], as_json: bool) -> None:
    """Check declarations, or all: every problem with its line, then what is missing to receive data."""
    resources = resources_directory()
    result = check_declarations(resources, files)
    readiness = find_missing_steps(resources, result) if result.ok else Readiness((), ())
    document = {
        "ok": result.ok,
        "datasets": [dataset.dataset for dataset in result.datasets],
        "candidates": list(result.candidates),
        "problems": [asdict(problem) for problem in result.problems],
        "missing": [asdict(step) for step in readiness.steps],
        "unchecked": list(readiness.unknown),
    }
    respond(document, lambda: display_check(result, readiness), as_json=as_json, ok=result.ok)


@click.command()
def schema() -> None:
    """Print the JSON Schema of declarations, for editors."""
    click.echo(json.dumps(schema_document(), indent=2, ensure_ascii=False))


def find_missing_steps(resources: Path, result: CheckResult) -> Readiness:
    """Asks the files, and the site if one is running; starts nothing and changes nothing."""
    valid = [(one.path, one.dataset) for one in result.files if one.dataset is not None]
    steps = [step for path, dataset in valid for step in steps_from_files(resources, path, dataset)]
    session = current_session()
    session.use_running_stack()
    if not os.environ.get("KFM_POSTGRES_URL") or not _has_aws():
        return Readiness(tuple(steps), (NO_SITE,))
    unknown: list[str] = []
    try:
        with session.open_services(prepared=False) as services:
            for path, dataset in valid:
                found = steps_from_services(services, path, dataset)
                steps += found.steps
                unknown += found.unknown
    except KfmError as error:
        unknown.append(f"whether objects are announced: {error}")
    return Readiness(tuple(steps), tuple(unknown))


def _has_aws() -> bool:
    return bool(os.environ.get("AWS_ENDPOINT_URL")) or os.environ.get("KFM_AWS") == "real"


def display_check(result: CheckResult, readiness: Readiness) -> None:
    if not display_problems(result):
        return
    names = [dataset.dataset for dataset in result.datasets]
    console.print(f"{format_count(len(names), 'dataset')} valid: {', '.join(names)}")
    if result.candidates:
        candidates = ", ".join(result.candidates)
        console.print(f"{format_count(len(result.candidates), 'candidate')} valid: {candidates}")
    display_readiness(readiness, names)


def display_problems(result: CheckResult) -> bool:
    """Returns whether the declarations can be used: warnings leave something to decide."""
    for problem in sorted(result.problems, key=lambda one: (one.severity, one.file, one.line or 0)):
        target = stderr_console if problem.severity == "error" else console
        target.print(make_printable(f"{problem.severity}: {problem}"))
    errors = sum(problem.severity == "error" for problem in result.problems)
    if errors:
        stderr_console.print(f"{format_count(errors, 'error')} to correct")
    return not errors


def display_readiness(readiness: Readiness, names: Sequence[str]) -> None:
    if readiness.steps:
        console.print("still missing to receive and publish data:")
    for step in readiness.steps:
        console.print(make_printable(f"  {step}"))
    for one in readiness.unknown:
        console.print(make_printable(f"not checked: {one}"))
    if names and not readiness.steps and not readiness.unknown:
        console.print("nothing is missing: objects are announced, and the running code has loaded the declarations")


def _display_datasets(declared: Datasets) -> None:
    rows = []
    for dataset in declared.values():
        place = dataset.input.location
        rows.append((dataset.dataset, _describe(dataset)["key"], place, dataset.policy, ", ".join(dataset.owners)))
    print_table(("dataset", "key", "input", "policy", "owners"), rows)


def _describe(dataset: Dataset) -> dict[str, str]:
    key = dataset.key
    member = key.fold_by or (key.split_by.column or "cell" if key.split_by else "")
    aoi = f"{key.aoi}-{{{member}}}" if member else key.aoi
    return {
        "dataset": dataset.dataset,
        "title": dataset.title,
        "key": f"{key.source}:{aoi}:{key.h3_res}:{{{key.window}}}:{key.transform_version}",
        "bucket": dataset.input.bucket,
        "prefix": dataset.input.prefix,
        "format": dataset.input.format,
        "policy": dataset.policy,
        "licence": dataset.licence.id,
        "digest": dataset.digest,
    }
