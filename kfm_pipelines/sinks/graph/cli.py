"""`kfm graph` shows how far the knowledge graph is, makes it anew from the catalog, and asks it questions."""

from dataclasses import asdict
from typing import Any, TextIO

import click

from kfm_pipelines.console.output import console, format_count, format_time, json_option, progress, respond
from kfm_pipelines.console.session import open_services
from kfm_pipelines.errors import QueryRefused
from kfm_pipelines.sinks.graph.client import open_graph
from kfm_pipelines.sinks.graph.query import query_graph
from kfm_pipelines.sinks.graph.rebuild import count_nodes
from kfm_pipelines.sinks.graph.rebuild import rebuild as rebuild_graph
from kfm_pipelines.state.outbox import Sink, backlogs
from kfm_pipelines.text import make_printable


@click.group()
def graph() -> None:
    """The knowledge graph: what was made from what, where, under which policy, and who decided."""


@graph.command()
@json_option
def status(as_json: bool) -> None:
    """Show the server, the number of nodes, and the keys that the graph does not show yet."""
    with open_services() as services:
        waiting = [asdict(one) for one in backlogs(services.database) if one.sink is Sink.GRAPH]
        with open_graph(services.settings) as opened:
            address, version = opened.server()
            document = {
                "address": services.settings.graph_url,
                "connected": address,
                "server": version,
                "nodes": count_nodes(opened),
                "waiting": waiting,
            }
    respond(document, lambda: _display_status(document), as_json=as_json)


@graph.command()
@json_option
def rebuild(as_json: bool) -> None:
    """Write every published key again, from the catalog alone, and remove what the catalog does not have."""
    with open_services() as services, progress("keys written", None, quiet=as_json) as advance:
        done = rebuild_graph(services, lambda number, _: advance(number))
    respond(asdict(done), lambda: _display_rebuild(asdict(done)), as_json=as_json, ok=not done.problems)


@graph.command()
@click.argument("cypher", type=click.File(encoding="utf-8"))
@json_option
def query(cypher: TextIO, as_json: bool) -> None:
    """Run the Cypher query in a file, or `-` for standard input. Queries can only read."""
    try:
        with open_services() as services:
            rows = query_graph(services, cypher.read())
    except QueryRefused as error:
        raise click.UsageError(str(error)) from None
    respond({"rows": rows}, lambda: _display_rows(rows), as_json=as_json)


def _display_status(document: dict[str, Any]) -> None:
    console.print(f"{document['address']}: {document['server']}", style="bold")
    for label, count in document["nodes"].items():
        console.print(f"  {label:<14} {count}")
    for one in document["waiting"]:
        keys, since = format_count(one["keys"], "key"), format_time(one["since"])
        console.print(f"  waiting        {keys} of {one['dataset']} since {since}")
        if one["problem"]:
            console.print(f"    {make_printable(one['problem'])}")
    if not document["waiting"]:
        console.print("  nothing waits")


def _display_rebuild(done: dict[str, Any]) -> None:
    written, removed = format_count(done["keys"], "key"), format_count(done["removed"], "key")
    console.print(f"{written} of the catalog written, {removed} removed")
    for key, problem in done["problems"].items():
        console.print(f"  {key}: {make_printable(problem)}")


def _display_rows(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        console.print("\t".join("" if value is None else make_printable(str(value)) for value in row.values()))
    console.print(format_count(len(rows), "row"))
