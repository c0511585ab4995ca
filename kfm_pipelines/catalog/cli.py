"""`kfm catalog`: writes documents about many keys."""

from dataclasses import asdict

import click

from kfm_pipelines.catalog.collections.geoparquet_snapshot import take_snapshot
from kfm_pipelines.console.options import StorableText
from kfm_pipelines.console.output import console, json_option, respond
from kfm_pipelines.console.session import open_services


@click.group()
def catalog() -> None:
    """The catalog of what is published."""


@catalog.command()
@click.argument("dataset", required=False, type=StorableText())
@click.option("--anyway", is_flag=True, help="Write even when nothing has changed since the last one.")
@json_option
def snapshot(dataset: str | None, anyway: bool, as_json: bool) -> None:
    """Write all Items of DATASET, or of every dataset, as one stac-geoparquet table, as the nightly job does."""
    with open_services() as services:
        chosen = [services.datasets[dataset]] if dataset else list(services.datasets.values())
        taken = [take_snapshot(services, one, anyway=anyway) for one in chosen]
    document = {"snapshots": [asdict(one) for one in taken]}
    respond(document, lambda: console.print("\n".join(map(str, taken))), as_json=as_json)
