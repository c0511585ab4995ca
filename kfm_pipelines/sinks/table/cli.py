"""`kfm tables`: what the Iceberg tables show, and their upkeep."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from kfm_pipelines.console.options import StorableText
from kfm_pipelines.console.output import console, format_count, format_time, json_option, print_table, respond
from kfm_pipelines.console.session import open_services
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import KfmError
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.flush import flush_now
from kfm_pipelines.sinks.table.check import compare_all, totals
from kfm_pipelines.sinks.table.maintain import maintain as maintain_table
from kfm_pipelines.sinks.table.tables import history_of_key
from kfm_pipelines.sinks.table.warehouse import load_table
from kfm_pipelines.state import outbox
from kfm_pipelines.state.outbox import Sink


@click.group()
def tables() -> None:
    """The Iceberg tables of datasets that declare `tables: iceberg`."""


@tables.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the tables: rows, files, snapshots, and keys that wait to be written."""
    with open_services() as services:
        known = [totals(services, one) for one in _with_tables(services, None)]
        waiting = {one.dataset: one.keys for one in outbox.backlogs(services.database) if one.sink is Sink.TABLE}
    document = {"tables": [{**one, "waiting": waiting.get(one["dataset"], 0)} for one in known]}
    respond(document, lambda: _display_tables(document["tables"]), as_json=as_json)


@tables.command()
@click.argument("key", type=StorableText())
@json_option
def history(key: str, as_json: bool) -> None:
    """Show the snapshots in which the table began to show each revision of KEY, for time travel."""
    with open_services() as services, services.database.transaction() as connection:
        known = history_of_key(connection, key)
    respond({"key": key, "history": [asdict(one) for one in known]}, lambda: _display_history(known), as_json=as_json)


@tables.command()
@click.argument("dataset", required=False, type=StorableText())
@json_option
def check(dataset: str | None, as_json: bool) -> None:
    """Compare every row of the tables with the files in the catalog. Exits with 1 when something differs."""
    with open_services() as services:
        found = {
            one.dataset: dict(compare_all(services.store, load_table(services, one), one.pipeline))
            for one in _with_tables(services, dataset)
        }
    respond(
        {"differences": found},
        lambda: _display_differences(found),
        as_json=as_json,
        ok=not any(found.values()),
    )


@tables.command()
@click.argument("dataset", type=StorableText())
@json_option
def rebuild(dataset: str, as_json: bool) -> None:
    """Write every published key of DATASET into its table: after `tables: iceberg` was declared, or to repair it."""
    with open_services() as services:
        [declared] = _with_tables(services, dataset)
        asked = outbox.request_all_published(services.database, Sink.TABLE, dataset)
        problems = flush_now(services, declared, Sink.TABLE)
    document = {"dataset": dataset, "keys": asked, "problems": problems}
    respond(document, lambda: _display_rebuilt(asked, problems), as_json=as_json, ok=not problems)


@tables.command()
@click.argument("dataset", required=False, type=StorableText())
@json_option
def maintain(dataset: str | None, as_json: bool) -> None:
    """Put small files together, expire old snapshots and remove unused files, as the nightly job does."""
    with open_services() as services:
        done = [maintain_table(services, one) for one in _with_tables(services, dataset)]
    document = {"tables": [asdict(one) for one in done]}
    respond(document, lambda: console.print("\n".join(map(str, done))), as_json=as_json)


def _with_tables(services: Services, name: str | None) -> list[Dataset]:
    if name is None:
        return [one for one in services.datasets.values() if one.tables]
    dataset = services.datasets[name]
    if dataset.tables is None:
        raise KfmError(f"{name} has no table; declare `tables: iceberg` in its file")
    return [dataset]


def _display_tables(found: Sequence[Mapping[str, Any]]) -> None:
    if not found:
        console.print("no dataset declares `tables: iceberg`")
    columns = ("dataset", "table", "rows", "files", "snapshots", "waiting")
    print_table(columns, ([one.get(name) for name in columns] for one in found))


def _display_history(known: Sequence[Any]) -> None:
    if not known:
        console.print("the table has never had this key")
    rows = ((one.revision or "left", one.snapshot, format_time(one.ended)) for one in known)
    print_table(("revision", "snapshot", "since"), rows)


def _display_differences(found: Mapping[str, Mapping[str, str]]) -> None:
    for dataset, differing in found.items():
        for key, problem in differing.items():
            console.print(f"{key}: {problem}")
        same = "the table has exactly what the catalog has"
        console.print(f"{dataset}: {format_count(len(differing), 'difference') if differing else same}")


def _display_rebuilt(asked: int, problems: Sequence[str]) -> None:
    for problem in problems:
        console.print(problem)
    console.print(f"{format_count(asked, 'key')} asked for" if problems else f"{format_count(asked, 'key')} written")
