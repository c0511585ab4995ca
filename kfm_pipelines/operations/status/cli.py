"""`kfm status`: an overview of everything, or the history of one key."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from kfm_pipelines.aws.queue import Queue
from kfm_pipelines.console.output import (
    console,
    display_findings,
    format_count,
    format_time,
    json_option,
    print_table,
    respond,
)
from kfm_pipelines.console.session import open_services
from kfm_pipelines.declarations.dataset import pipeline_of
from kfm_pipelines.errors import KeyInvalid, KfmError
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.inbox.unseen import look_at_input
from kfm_pipelines.operations.dead_letters.export import findings_with_remedies
from kfm_pipelines.operations.dead_letters.redrive_tables import running_redrives
from kfm_pipelines.operations.status import tables
from kfm_pipelines.operations.status.last_hour import display_last_hour, last_hour
from kfm_pipelines.services import Services
from kfm_pipelines.stages.validate.report import quarantine_locations
from kfm_pipelines.state.outbox import Backlog, Sink, backlogs
from kfm_pipelines.stores import Layout
from kfm_pipelines.text import make_printable

MAX_LETTERS_DISPLAYED = 10


@click.command()
@click.argument("key", required=False)
@json_option
def status(key: str | None, as_json: bool) -> None:
    """Show datasets, queue, inbox, watermarks and dead letters; or the history of one KEY."""
    if key is not None:
        CanonicalKey.parse(key)
    with open_services() as services:
        document = _overview_document(services) if key is None else _key_document(services, key)
    display = _display_overview if key is None else _display_key
    respond(document, lambda: display(document), as_json=as_json)


def _overview_document(services: Services) -> dict[str, Any]:
    known = tables.datasets_overview(services.database)
    return {
        "datasets": {name: known.get(name, tables.empty_overview()) for name in sorted({*services.datasets, *known})},
        "queue": _queue_document(services, services.queue),
        "queues": [_queue_document(services, intake.queue) for intake in services.intakes],
        "refused_messages": tables.refused_messages(services.database),
        "letters": tables.letters_by_class(services.database),
        "redrives": running_redrives(services.database),
        "dead_letter_queues": [_depth_document(queue) for queue in services.dead_letter_queues],
        "dead_letters": tables.latest_dead_letters(services.database, MAX_LETTERS_DISPLAYED),
        "sinks": _sink_documents(services),
        "inputs": _input_documents(services),
        "telemetry": last_hour(services.settings.telemetry_folder, datetime.now(UTC)),
    }


def _input_documents(services: Services) -> dict[str, dict[str, Any]]:
    """Says of each input whether it is announced and whether objects lie there unseen, or why that is unknown."""
    found: dict[str, dict[str, Any]] = {}
    for name, dataset in services.datasets.items():
        try:
            state = look_at_input(services, dataset)
            found[name] = {**asdict(state), "warnings": state.problems}
        except KfmError as error:
            found[name] = {"dataset": name, "warnings": [], "unknown": str(error)}
    return found


def _sink_documents(services: Services) -> dict[str, dict[str, Any]]:
    """Says of each sink how many keys wait for it, since when, and what was wrong with one of them."""
    waiting = backlogs(services.database)
    return {str(sink): _sink_document([one for one in waiting if one.sink is sink]) for sink in Sink}


def _sink_document(waiting: Sequence[Backlog]) -> dict[str, Any]:
    return {
        "keys": sum(one.keys for one in waiting),
        "failed": sum(one.failed for one in waiting),
        "since": min((one.since for one in waiting), default=None),
        "problem": next((one.problem for one in waiting if one.problem), None),
        "datasets": {one.dataset: one.keys for one in waiting},
    }


def _queue_document(services: Services, queue: Queue) -> dict[str, Any]:
    return {**_depth_document(queue), **tables.queue_totals(services.database, queue.name)}


def _depth_document(queue: Queue) -> dict[str, Any]:
    depth = queue.depth()
    return {"name": queue.name, "waiting": depth.waiting, "in_flight": depth.in_flight}


def _key_document(services: Services, key: str) -> dict[str, Any]:
    history = tables.key_history(services.database, key)
    if history is None:
        raise KeyInvalid(f"{key}: no event has named this key")
    last = max((transition["txn"] for transition in history["transitions"]), default=0)
    history["findings"] = findings_with_remedies(services, key, last)
    history["red_bytes"] = quarantine_locations(services, key)
    history["file"] = f"{services.store.url}/{Layout(pipeline_of(history['dataset'])).processed_data(key)}"
    return history


def _display_overview(document: dict[str, Any]) -> None:
    for name, one in document["datasets"].items():
        console.print(name, style="bold")
        if one["killed"]:
            console.print(f"  KILLED     {_format_kill_switch(one['killed'])}; kfm unkill {name}")
        console.print("  events     " + ", ".join(f"{count} {state}" for state, count in one["inbox"].items()))
        console.print(
            f"  keys       {one['published_keys']} published of {one['keys']}, {one['due']} due, "
            f"{one['in_flight']} in flight"
        )
        if one["awaiting_review"]:
            console.print(f"  review     {one['awaiting_review']} await it; kfm review list")
        console.print(f"  DLQ        {one['dlq']}")
        console.print(f"  watermark  {format_time(one['watermark'])}")
        console.print(f"  published  without a gap until {format_time(one['published_until'])}")
        if one["late_held"]:
            console.print(f"  late       {one['late_held']} held; kfm late list --dataset {name}")
    _display_sinks(document["sinks"])
    _display_inputs(document["inputs"])
    for queue in document["queues"]:
        _display_queue(queue)
    classes = ", ".join(f"{count} {name}" for name, count in document["letters"].items())
    console.print("dead letters", style="bold")
    console.print(f"  waiting    {classes or 'none'}")
    for redrive in document["redrives"]:
        console.print(f"  redrive    {redrive} is not finished; kfm dlq redrive --resume {redrive}")
    for queue in document["dead_letter_queues"]:
        console.print(f"  in queue   {queue['name']}: {queue['waiting']} waiting, {queue['in_flight']} in flight")
    for letter in document["dead_letters"]:
        about = f"{letter['letter']:>6}  {format_time(letter['at'])}  {letter['triage']}"
        console.print(f"  {about}: {make_printable(letter['reason'])}")
    display_last_hour(document["telemetry"])


def _display_sinks(sinks: dict[str, dict[str, Any]]) -> None:
    console.print("sinks", style="bold")
    for name, one in sinks.items():
        since = f" since {format_time(one['since'])}" if one["since"] else ""
        failed = f", {one['failed']} of them failed" if one["failed"] else ""
        console.print(f"  {name:<10} {format_count(one['keys'], 'key')} waiting{since}{failed}")
        if one["problem"]:
            console.print(f"             {make_printable(one['problem'])}")


def _display_inputs(inputs: dict[str, dict[str, Any]]) -> None:
    """Displays what is wrong; nothing where everything is announced and seen."""
    lines = [f"  WARNING    {make_printable(line)}" for one in inputs.values() for line in one["warnings"]]
    lines += [
        f"  unknown    {name}: {make_printable(one['unknown'])}" for name, one in inputs.items() if "unknown" in one
    ]
    if lines:
        console.print("inputs", style="bold")
        console.print("\n".join(lines))


def _display_queue(queue: dict[str, Any]) -> None:
    console.print(f"queue {queue['name']}", style="bold")
    console.print(f"  now        {queue['waiting']} waiting, {queue['in_flight']} in flight")
    console.print(
        f"  so far     {queue['received']} messages: {queue['recorded']} events recorded, "
        f"{queue['duplicates']} duplicates, {queue['refused']} refused"
    )
    if queue["violations"]:
        console.print(f"             {queue['violations']} had their deduplication key only in attributes")


def _display_key(history: dict[str, Any]) -> None:
    console.print(history["key"], style="bold")
    console.print(
        f"{history['dataset']}, {format_time(history['window_start'])} to {format_time(history['window_end'])}"
    )
    console.print(_format_publication(history), markup=False)
    if history["killed"]:
        console.print(f"KILLED, nothing of {history['dataset']} is published: {_format_kill_switch(history['killed'])}")
    if traces := [event["trace"] for event in history["events"] if event["trace"]]:
        console.print(f"trace {traces[-1].split('-')[1]}; kfm trace {history['key']}")
    if history["awaiting"] and not history["owner"]:
        console.print(f"awaiting review of release {history['awaiting'][:16]}…; kfm review show {history['key']}")
    transitions = [{**one, "reason": one["detail"].get("reason")} for one in history["transitions"]]
    for title, columns, rows in (
        ("events", ("received_at", "state", "late", "change", "shape", "asset_uri"), history["events"]),
        ("transitions", ("at", "txn", "step", "outcome", "reason", "run_id"), transitions),
        ("revisions", ("revision", "rows", "bytes", "content_hash", "applied_at"), history["revisions"]),
        ("reviews", ("at", "decision", "holder", "release_digest", "reason"), history["reviews"]),
        ("care", ("at", "action", "actor", "policy", "digest"), history["audit"]),
        ("dead letters", ("letter", "at", "state", "failure_stage", "triage", "reason"), history["dead_letters"]),
    ):
        if rows:
            console.print(title, style="italic")
            headings = [column.replace("_", " ") for column in columns]
            print_table(headings, [[_shorten(row[column]) for column in columns] for row in rows])
    display_findings(history["findings"])
    for kept in history["red_bytes"]:
        console.print(f"refused bytes: {kept['folder']} until {format_time(kept['until'])}", markup=False)


def _format_publication(history: dict[str, Any]) -> str:
    """Says whether the key is published, and where; or what it waits for."""
    if history["revisions"]:
        last = history["revisions"][-1]
        rows, at = format_count(last["rows"], "row"), format_time(last["applied_at"])
        return f"published: revision {last['revision']}, {rows}, {at}; {history['file']}"
    if history["owner"]:
        return "not published yet: a run works on it"
    if history["due_at"]:
        return f"not published yet: it is due at {format_time(history['due_at'])}"
    failed = [one for one in history["transitions"] if one["outcome"] == "FAILED"]
    return "not published" + (", because it failed; see its dead letter" if failed and history["dead_letters"] else "")


def _format_kill_switch(killed: dict[str, Any]) -> str:
    return f"since {format_time(killed['at'])} by {make_printable(killed['actor'])}: {make_printable(killed['reason'])}"


def _shorten(value: object) -> object:
    """Digests are shown by their first characters."""
    return value[:12] if isinstance(value, str) and len(value) == 64 else value
