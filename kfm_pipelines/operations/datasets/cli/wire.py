"""`kfm datasets add` and `upload`: from a declaration to objects that are worked on."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import click

from kfm_pipelines.aws.provision import provision_input
from kfm_pipelines.console.output import console, json_option, respond
from kfm_pipelines.console.session import open_services
from kfm_pipelines.declarations.dataset import Datasets, load_datasets
from kfm_pipelines.errors import DeclarationInvalid, LocationUndeclared
from kfm_pipelines.events import IngestEvent, resolve_events
from kfm_pipelines.events.shapes.s3 import S3Object, s3_notice
from kfm_pipelines.operations.datasets.check import check_declarations
from kfm_pipelines.operations.datasets.cli.declarations import display_check, display_readiness
from kfm_pipelines.operations.datasets.readiness import (
    NOT_LOADED,
    Readiness,
    loading_steps,
    steps_from_files,
    steps_from_services,
)
from kfm_pipelines.producer.upload import upload as put_object
from kfm_pipelines.settings import resources_directory


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def add(file: Path, as_json: bool) -> None:
    """Wire the dataset of FILE: create its bucket and have S3 announce its objects, or subscribe to its provider's
    topic. Nothing of a provider's is created."""
    resources = resources_directory()
    result = check_declarations(resources, [file])
    if not result.ok:
        problems = {"ok": False, "problems": [asdict(problem) for problem in result.problems]}
        respond(problems, lambda: display_check(result, Readiness((), ())), as_json=as_json, ok=False)
    [dataset] = result.datasets
    if file.resolve().parent != (resources / "datasets").resolve():
        raise DeclarationInvalid(
            f"{file.name} is not in {resources / 'datasets'}, where declarations are read: move it"
        )
    datasets = load_datasets(resources)
    with open_services() as services:
        done = provision_input(services.settings, datasets, dataset)
        found = steps_from_services(services, file, dataset)
    steps = (*steps_from_files(resources, file, dataset), *found.steps)
    document = {"ok": True, "dataset": dataset.dataset, "done": done, "missing": [asdict(step) for step in steps]}
    document["unchecked"] = list(found.unknown)

    def display() -> None:
        place = dataset.input.location
        announced = "announced to us" if dataset.input.provider is None else "announced by their provider"
        for line in done:
            console.print(f"created or changed: {line}")
        follows = f"it follows from what is published of {place}"
        wired = follows if dataset.input.upstream else f"objects under {place} are {announced}"
        console.print(f"{dataset.dataset} is wired: {wired}")
        display_readiness(Readiness(steps, found.unknown), [dataset.dataset])

    respond(document, display, as_json=as_json)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("place", metavar="s3://BUCKET/KEY")
@json_option
def upload(file: Path, place: str, as_json: bool) -> None:
    """Upload FILE to a place that a dataset declares; S3 announces it like any other object."""
    address = urlsplit(place)
    bucket, object_key = address.netloc, address.path.removeprefix("/")
    if address.scheme != "s3" or not bucket or not object_key:
        raise click.UsageError(f"{place!r} is not a place; write s3://BUCKET/KEY")
    with open_services() as services:
        events = _events_of(bucket, object_key, file.stat().st_size, services.datasets)
        dataset, key = services.datasets[events[0].dataset], events[0].key
        for step in loading_steps(dataset):
            if step.missing == NOT_LOADED:
                raise LocationUndeclared(f"{step}. Its notice would become a dead letter; nothing was uploaded")
        sent = put_object(dataset, object_key, file.read_bytes(), datetime.now(UTC))
    document = {"dataset": dataset.dataset, "key": key, "place": place, "etag": sent.etag}
    belongs = f"the key {key}" if len(events) == 1 else f"{len(events)} keys, the first of which is {key}"
    uploaded = f"uploaded for {dataset.dataset}; it belongs to {belongs}. Next: kfm status {key}"
    respond(document, lambda: console.print(uploaded), as_json=as_json)


def _events_of(bucket: str, object_key: str, size: int, datasets: Datasets) -> tuple[IngestEvent, ...]:
    """Raises LocationUndeclared if no dataset would take it: its notice would become a dead letter."""
    notice = s3_notice("upload", "created", S3Object(bucket, object_key, None, None, size, None), datetime.now(UTC))
    try:
        return resolve_events(notice, datasets)
    except LocationUndeclared as error:
        raise LocationUndeclared(f"{error}; nothing was uploaded") from None
