"""`kfm lineage`: where published data came from, and what else came from there."""

from typing import Any, TextIO

import click

from kfm_pipelines.catalog.lineage.graph import KeyLineage, query_graph, read_key_lineage, write_graph
from kfm_pipelines.console.options import StorableText
from kfm_pipelines.console.output import console, json_option, print_json
from kfm_pipelines.console.session import open_services
from kfm_pipelines.errors import KfmError, QueryRefused
from kfm_pipelines.events import CanonicalKey


@click.group()
def lineage() -> None:
    """Where published data came from: of one key, or by SPARQL over the provenance of all."""


@lineage.command()
@click.argument("key", type=StorableText())
@json_option
def show(key: str, as_json: bool) -> None:
    """Show the objects, messages and stages that made what is published of KEY, and what else came from them."""
    source = CanonicalKey.parse(key).source
    with open_services() as services:
        dataset = next((one for one in services.datasets.values() if one.key.source == source), None)
        if dataset is None:
            raise KfmError(f"no declared dataset has keys like {key}")
        origins = read_key_lineage(services, key, dataset)
    if as_json:
        print_json({"key": key, "sources": origins.sources, "stages": origins.stages, "sharing": origins.sharing})
    else:
        _display_lineage(key, origins)


@lineage.command()
@json_option
def graph(as_json: bool) -> None:
    """Write the provenance of every current release as one graph, as the nightly job does."""
    with open_services() as services:
        written = write_graph(services)
    if as_json:
        print_json({"written": written.written, "releases": written.releases, "left_out": written.left_out})
    else:
        console.print(str(written))


@lineage.command()
@click.argument("sparql", type=click.File(encoding="utf-8"))
@json_option
def query(sparql: TextIO, as_json: bool) -> None:
    """Ask the graph of all current releases the SPARQL query in a file, or `-` for standard input.

    The prefixes prov, dcterms, rdfs, kfm and care are known. Nothing else is asked: a query with SERVICE or FROM is
    refused, and so is an update.
    """
    with open_services() as services:
        rows = _query_or_usage_error(services, sparql.read())
    if as_json:
        print_json({"rows": rows})
        return
    for row in rows:
        console.print("\t".join("" if value is None else str(value) for value in row.values()))
    console.print(f"{len(rows)} rows")


def _query_or_usage_error(services: Any, query: str) -> list[dict[str, Any]]:
    try:
        return query_graph(services, query)
    except QueryRefused as error:
        raise click.UsageError(str(error)) from None


def _display_lineage(key: str, origins: KeyLineage) -> None:
    console.print(key, style="bold")
    for one in origins.sources:
        version = f", version {one['version']}" if one["version"] else ""
        digest = f", sha256 {one['sha256']}" if one["sha256"] else ""
        console.print(f"  from {one['address']}{version}{digest}")
        console.print(f"    told of by message {one['message'].rpartition(':')[2]}")
    for one in origins.stages:
        plan = f" by {one['plan']}" if one["plan"] else ""
        console.print(f"  {one['kind'].rpartition(':')[2]}: {one['agent']}{plan}")
    for one in origins.sharing:
        console.print(f"  {one['address']} is also in {one['key']}")
    if not origins.sharing:
        console.print("  nothing else came from there, as far as the graph goes")
