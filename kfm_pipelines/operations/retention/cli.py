"""`kfm gc`: removes unreferenced objects and the work folders of finished transactions."""

import click

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
