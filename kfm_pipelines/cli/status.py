"""`kfm status`: everything at a glance, or one key's whole history."""

from datetime import datetime
from typing import Any

import click
from rich.table import Table

from kfm_pipelines.cli.output import console, json_option, print_json
from kfm_pipelines.cli.session import opened_workshop
from kfm_pipelines.errors import KeyInvalid
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.overview import (
    datasets_overview,
    key_history,
    nothing_known,
    queue_totals,
    refused_messages,
)


@click.command()
@click.argument("key", required=False)
@json_option
def status(key: str | None, as_json: bool) -> None:
    """Show datasets, queue, inbox, watermarks and dead letters; or the history of one KEY."""
    if key is not None:
        CanonicalKey.parse(key)
    with opened_workshop() as workshop:
        document = _whole(workshop) if key is None else _one(workshop, key)
    if as_json:
        print_json(document)
    elif key is None:
        _show_whole(document)
    else:
        _show_key(document)


def _whole(workshop: Workshop) -> dict[str, Any]:
    known = datasets_overview(workshop.database)
    depth = workshop.queue.depth()
    return {
        "datasets": {name: known.get(name, nothing_known()) for name in sorted({*workshop.datasets, *known})},
        "queue": {
            "name": workshop.queue.name,
            "waiting": depth.waiting,
            "in_flight": depth.in_flight,
            **queue_totals(workshop.database, workshop.queue.name),
        },
        "refused_messages": refused_messages(workshop.database),
    }


def _one(workshop: Workshop, key: str) -> dict[str, Any]:
    history = key_history(workshop.database, key)
    if history is None:
        raise KeyInvalid(f"{key}: no event has named this key")
    return history


def _show_whole(document: dict[str, Any]) -> None:
    table = Table("dataset", "received", "started", "succeeded", "failed", "published", "due", "DLQ", "watermark")
    for name, one in document["datasets"].items():
        inbox = one["inbox"]
        counts = [inbox["received"], inbox["started"], inbox["succeeded"], inbox["failed"]]
        counts += [one["published_keys"], one["due"], one["dlq"]]
        table.add_row(name, *(str(count) for count in counts), _time(one["watermark"]))
    console.print(table)
    queue = document["queue"]
    console.print(f"queue {queue['name']}: {queue['waiting']} waiting, {queue['in_flight']} in flight")
    console.print(
        f"so far {queue['received']} messages: {queue['recorded']} events recorded, {queue['duplicates']} duplicates, "
        f"{queue['refused']} refused"
    )


def _show_key(history: dict[str, Any]) -> None:
    console.print(f"{history['key']}   {history['dataset']}, {_time(history['window_start'])} until before "
                  f"{_time(history['window_end'])}")  # fmt: skip
    for title, columns, rows in (
        ("events", ("received_at", "shape", "state", "asset_uri"), history["events"]),
        ("transitions", ("at", "txn", "step", "outcome", "run_id"), history["transitions"]),
        ("revisions", ("revision", "rows", "bytes", "content_hash", "applied_at"), history["revisions"]),
        ("dead letters", ("at", "failure_stage", "triage", "reason", "closed_at"), history["dead_letters"]),
    ):
        if rows:
            table = Table(*columns, title=title, title_justify="left")
            for row in rows:
                table.add_row(*(_cell(row[column]) for column in columns))
            console.print(table)


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return _time(value)
    text = "" if value is None else str(value)
    return text[:12] if len(text) == 64 else text


def _time(value: datetime | None) -> str:
    return f"{value:%Y-%m-%d %H:%M:%SZ}" if value else "none"
