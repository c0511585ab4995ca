"""`kfm datasets canary` and `kfm datasets promote`."""

from dataclasses import asdict

import click

from kfm_pipelines.console.options import StorableText, actor_and_reason_options
from kfm_pipelines.console.output import console, json_option, print_table, respond
from kfm_pipelines.console.session import open_services
from kfm_pipelines.operations.canary import promote as promotion
from kfm_pipelines.operations.canary.promote import CandidateStatus, PromotionResult
from kfm_pipelines.text import make_printable

MAX_BAD_KEYS = 20


@click.command()
@click.argument("dataset", type=StorableText())
@json_option
def canary(dataset: str, as_json: bool) -> None:
    """Show how the candidate of DATASET compares with what is published."""
    with open_services() as services:
        status = promotion.read_candidate_status(services, services.datasets[dataset])
    keys = [{"key": one.key, "good": one.good, **one.report} for one in status.comparisons]
    document = {**status.as_report(), "may_be_promoted": status.refusal is None, "keys": keys}
    respond(document, lambda: _display_status(status), as_json=as_json)


@click.command()
@click.argument("dataset", type=StorableText())
@actor_and_reason_options
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
@json_option
def promote(dataset: str, reason: str, by: str, dry_run: bool, as_json: bool) -> None:
    """Make the candidate of DATASET its declared version, if enough keys were compared, all are good, and no key of the
    current version is due, in a run or awaiting review."""
    with open_services() as services:
        result = promotion.promote(services, dataset, actor=by, reason=reason, dry_run=dry_run)
    files = {"declaration": str(result.declaration), "candidate": str(result.candidate)}
    document = {**asdict(result), **files, "dry_run": dry_run, "reload_code_location": not dry_run}
    respond(document, lambda: _display_promotion(result, dry_run), as_json=as_json)


def _display_status(status: CandidateStatus) -> None:
    report = status.as_report()
    console.print(f"{report['dataset']}: {report['from_version']} → {report['candidate_version']}", style="bold")
    console.print(f"  compared   {report['compared']} keys of {report['needed']} needed, {report['good']} good")
    worst = [
        (one["column"], one["measure"], f"{one['percent']:.3g} %", one["key"]) for one in status.largest_differences
    ]
    print_table(["column", "measure", "differs by", "most in"], worst)
    for one in status.bad[:MAX_BAD_KEYS]:
        console.print(f"  not good   {one.key}: {make_printable('; '.join(one.report['faults']))}")
    if len(status.bad) > MAX_BAD_KEYS:
        console.print(f"             and {len(status.bad) - MAX_BAD_KEYS} more")
    may = f"may be promoted: kfm datasets promote {report['dataset']} --reason …"
    console.print(f"  promotion  {status.refusal or may}")


def _display_promotion(result: PromotionResult, dry_run: bool) -> None:
    candidate = f"candidates/{result.candidate.name}"
    if result.from_version is None:
        removed = f"{candidate} {'would be' if dry_run else 'was'} removed"
        console.print(f"{result.dataset} already has version {result.to_version}; {removed}.")
        return
    declaration = f"datasets/{result.declaration.name}"
    console.print(f"{result.dataset}: {result.from_version} → {result.to_version}, {declaration} from {candidate}")
    console.print(
        "Nothing was done."
        if dry_run
        else "Commit both files where they are reviewed, and reload the code location in Dagster: until then it runs "
        f"{result.from_version}."
    )
