"""`kfm gc` removes unreferenced objects and work folders; `kfm partitions` brings retired partitions back."""

from datetime import datetime

import click

from kfm_pipelines.console.options import Instant, StorableText
from kfm_pipelines.console.output import console, format_count, json_option, respond
from kfm_pipelines.console.session import open_services
from kfm_pipelines.operations.retention.gc import Garbage, find_garbage, sweep


@click.command()
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@json_option
def gc(dry_run: bool, as_json: bool) -> None:
    """Remove unreferenced objects from the store, as the nightly purge does.

    An object is removed when no Item, current or historical, names it and no running publication owns it. Publications
    may continue meanwhile. Exits with 1 when a catalog document cannot be read: then no object is removed.
    """
    with open_services() as services:
        found = find_garbage(services)
        outcome = found if dry_run else sweep(services, found)
    parts = ("objects", "folders", "left", "refused")
    document = {"dry_run": dry_run, **{name: getattr(outcome, name) for name in parts}}
    respond(document, lambda: _display_outcome(outcome, dry_run), as_json=as_json, ok=not outcome.refused)


def _display_outcome(outcome: Garbage, dry_run: bool) -> None:
    for path in (*outcome.folders, *outcome.objects):
        console.print(path)
    verb = "would be removed" if dry_run else "removed"
    objects, folders = format_count(len(outcome.objects), "object"), format_count(len(outcome.folders), "work folder")
    console.print(f"{objects} and {folders} {verb}")
    if outcome.refused:
        console.print(f"no object was removed: {outcome.refused}")
    if outcome.left:
        console.print(f"objects are left ({outcome.left}) because publications kept running; try again later")


@click.group()
def partitions() -> None:
    """Keys as partitions in Dagster."""


@partitions.command()
@click.argument("dataset", type=StorableText())
@click.option("--from", "start", type=Instant(), required=True, help="Start of the first window (UTC).")
@click.option("--to", "end", type=Instant(), required=True, help="End, not included (UTC).")
@json_option
def restore(dataset: str, start: datetime, end: datetime, as_json: bool) -> None:
    """Make the keys of DATASET between two times partitions again, to choose them in a backfill.

    The nightly purge retires the oldest partitions beyond KFM_PARTITIONS_KEPT from Dagster. What is published stays.
    """
    from kfm_pipelines.dispatch.partitions import restore_partitions
    from kfm_pipelines.orchestration.instance import open_instance

    with open_services() as services, open_instance() as instance:
        keys, restored = restore_partitions(instance, services, services.datasets[dataset], start, end)
    document = {"dataset": dataset, "keys": keys, "restored": restored}
    line = f"{format_count(keys, 'key')} of {dataset} in this time; {format_count(restored, 'partition')} restored"
    respond(document, lambda: console.print(line), as_json=as_json)
