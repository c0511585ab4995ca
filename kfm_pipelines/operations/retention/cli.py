"""`kfm gc`: remove objects that nothing refers to, and what transactions that are over left in the work folders."""

from typing import Any

import click

from kfm_pipelines.console.output import console, json_option, print_json
from kfm_pipelines.console.session import open_services
from kfm_pipelines.operations.retention.gc import Garbage, SweepResult, find_garbage, sweep


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@json_option
def gc(dry_run: bool, as_json: bool) -> None:
    """Remove what nobody refers to from the store, as the nightly purge does.

    An object goes when no Item, current or older, names it and no publication under way owns it. Publications may go
    on meanwhile. Exits with 1 when a document of the catalog cannot be read: then no object is removed.
    """
    with open_services() as services:
        found = find_garbage(services)
        outcome = found if dry_run else sweep(services, found)
    if as_json:
        print_json(_outcome_document(outcome))
    else:
        _display_outcome(outcome)
    if outcome.refused:
        raise click.exceptions.Exit(1)


def _outcome_document(outcome: Garbage | SweepResult) -> dict[str, Any]:
    return {
        "dry_run": isinstance(outcome, Garbage),
        "objects": list(outcome.objects),
        "folders": list(outcome.folders),
        "left": outcome.left if isinstance(outcome, SweepResult) else None,
        "refused": outcome.refused,
    }


def _display_outcome(outcome: Garbage | SweepResult) -> None:
    for path in (*outcome.folders, *outcome.objects):
        console.print(path)
    verb = "would be removed" if isinstance(outcome, Garbage) else "removed"
    console.print(f"{len(outcome.objects)} objects and {len(outcome.folders)} work folders {verb}")
    if outcome.refused:
        console.print(f"no object may go: {outcome.refused}")
    if isinstance(outcome, SweepResult) and outcome.left:
        console.print(f"{outcome.left} objects are left: publications go on all the time; try again later")
