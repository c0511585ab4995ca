"""`kfm catalog` writes documents about many keys, `kfm lineage` shows where published data came from."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import click

from kfm_pipelines.catalog.collections.geoparquet_snapshot import take_snapshot
from kfm_pipelines.catalog.lineage.graph import KeyLineage, query_graph, read_key_lineage, write_graph
from kfm_pipelines.catalog.published_map import draw_published_map
from kfm_pipelines.console.options import StorableText, default_option
from kfm_pipelines.console.output import console, format_count, json_option, respond
from kfm_pipelines.console.session import open_services
from kfm_pipelines.errors import KfmError, QueryRefused
from kfm_pipelines.events import CanonicalKey


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


@catalog.command("map")
@default_option("--out", default="map.png", type=click.Path(dir_okay=False, path_type=Path), help="The PNG to write.")
@json_option
def map_(out: Path, as_json: bool) -> None:
    """Draw the newest Item of every dataset, a panel each, from what is published alone."""
    with open_services() as services:
        picture, keys = draw_published_map(services)
    out.write_bytes(picture)
    document = {"picture": str(out), "keys": keys}
    respond(document, lambda: console.print(f"{out} shows {format_count(len(keys), 'key')}"), as_json=as_json)


@click.group()
def lineage() -> None:
    """Show where published data came from, or query all provenance with SPARQL."""


@lineage.command()
@click.argument("key", type=StorableText())
@json_option
def show(key: str, as_json: bool) -> None:
    """Show the objects, messages and stages that made the published data of KEY, and other keys made from them."""
    source = CanonicalKey.parse(key).source
    with open_services() as services:
        dataset = next((one for one in services.datasets.values() if one.key.source == source), None)
        if dataset is None:
            raise KfmError(f"no declared dataset has keys like {key}")
        origins = read_key_lineage(services, key, dataset)
    respond({"key": key, **asdict(origins)}, lambda: _display_lineage(key, origins), as_json=as_json)


@lineage.command()
@json_option
def graph(as_json: bool) -> None:
    """Write the provenance of every current release as one graph, as the nightly job does."""
    with open_services() as services:
        written = write_graph(services)
    document = {"written": written.written, "releases": written.releases, "left_out": written.left_out}
    respond(document, lambda: console.print(str(written)), as_json=as_json)


@lineage.command()
@click.argument("sparql", type=click.File(encoding="utf-8"))
@json_option
def query(sparql: TextIO, as_json: bool) -> None:
    """Run the SPARQL query in a file, or `-` for standard input, on the provenance of all current releases.

    The prefixes prov, dcterms, rdfs, kfm and care are defined. Updates are refused, and so are queries with SERVICE or
    FROM, which would read from elsewhere.
    """
    try:
        with open_services() as services:
            rows = query_graph(services, sparql.read())
    except QueryRefused as error:
        raise click.UsageError(str(error)) from None
    respond({"rows": rows}, lambda: _display_rows(rows), as_json=as_json)


def _display_rows(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        console.print("\t".join("" if value is None else str(value) for value in row.values()))
    console.print("1 row" if len(rows) == 1 else f"{len(rows)} rows")


def _display_lineage(key: str, origins: KeyLineage) -> None:
    console.print(key, style="bold")
    for one in origins.sources:
        version = f", version {one['version']}" if one["version"] else ""
        digest = f", sha256 {one['sha256']}" if one["sha256"] else ""
        console.print(f"  from {one['address']}{version}{digest}")
        console.print(f"    announced by message {one['message'].rpartition(':')[2]}")
    for one in origins.stages:
        plan = f" by {one['plan']}" if one["plan"] else ""
        console.print(f"  {one['kind'].rpartition(':')[2]}: {one['agent']}{plan}")
    for one in origins.sharing:
        console.print(f"  {one['address']} is also in {one['key']}")
    if not origins.sharing:
        console.print("  no other key in the graph came from these objects")
