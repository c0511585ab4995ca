"""`kfm datasets canary` and `promote`: how far a candidate has come, and making it the declared version."""

from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from kfm_pipelines.console.options import StorableText, actor_and_reason_options
from kfm_pipelines.console.output import console, json_option, print_json
from kfm_pipelines.console.session import open_services
from kfm_pipelines.operations.canary import promote as promotion
from kfm_pipelines.operations.canary.promote import CandidateStatus, PromotionResult
from kfm_pipelines.text import make_printable

RELOAD_NOTE = (
    "Commit both files where they are reviewed, and reload the code location in Dagster: until then it runs {}."
)
MAX_BAD_KEYS = 20


@click.command()
@click.argument("dataset", type=StorableText())
@json_option
def canary(dataset: str, as_json: bool) -> None:
    """Show what comparing the candidate of DATASET with what is published has found."""
    with open_services() as services:
        standing = promotion.read_candidate_status(services, services.datasets[dataset])
    if as_json:
        print_json(_status_document(standing))
    else:
        _display_status(standing)


@click.command()
@click.argument("dataset", type=StorableText())
@actor_and_reason_options
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@json_option
def promote(dataset: str, reason: str, by: str, dry_run: bool, as_json: bool) -> None:
    """Make the candidate of DATASET its declared version, if enough keys were compared, all of them are good, and no
    key of the version before is on its way."""
    with open_services() as services:
        promoted = promotion.promote(services, dataset, actor=by, reason=reason, dry_run=dry_run)
    if as_json:
        print_json(_promotion_document(promoted, dry_run))
    else:
        _display_promotion(promoted, dry_run)


def _status_document(status: CandidateStatus) -> dict[str, Any]:
    keys = [{"key": one.key, "good": one.good, **one.report} for one in status.comparisons]
    return {**status.as_report(), "may_be_promoted": status.refusal is None, "keys": keys}


def _display_status(status: CandidateStatus) -> None:
    report = status.as_report()
    console.print(f"{report['dataset']}: {report['from_version']} → {report['candidate_version']}", style="bold")
    console.print(f"  compared   {report['compared']} keys of {report['needed']} needed, {report['good']} good")
    if status.largest_differences:
        table = Table("column", "measure", "differs by", "most in", box=SIMPLE_HEAD, pad_edge=False)
        for worst in status.largest_differences:
            table.add_row(make_printable(worst["column"]), worst["measure"], f"{worst['percent']:.3g} %", worst["key"])
        console.print(table)
    for one in status.bad[:MAX_BAD_KEYS]:
        console.print(f"  not good   {one.key}: {make_printable('; '.join(one.report['faults']))}")
    if len(status.bad) > MAX_BAD_KEYS:
        console.print(f"             and {len(status.bad) - MAX_BAD_KEYS} more")
    may = f"may be promoted: kfm datasets promote {report['dataset']} --reason …"
    console.print(f"  promotion  {status.refusal or may}")


def _promotion_document(result: PromotionResult, dry_run: bool) -> dict[str, Any]:
    return {
        "dataset": result.dataset,
        "from_version": result.from_version,
        "to_version": result.to_version,
        "declaration": str(result.declaration),
        "candidate": str(result.candidate),
        "dry_run": dry_run,
        "reload_code_location": not dry_run,
    }


def _display_promotion(result: PromotionResult, dry_run: bool) -> None:
    files = f"datasets/{result.declaration.name} from candidates/{result.candidate.name}"
    if result.from_version is None:
        console.print(f"{result.dataset} has version {result.to_version} already; candidates/"
                      f"{result.candidate.name} {'would be' if dry_run else 'was'} removed.")  # fmt: skip
        return
    console.print(f"{result.dataset}: {result.from_version} → {result.to_version}, {files}")
    console.print("Nothing was done." if dry_run else RELOAD_NOTE.format(result.from_version))
