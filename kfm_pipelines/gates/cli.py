"""`kfm datasets approve-schema`: approves the declared schema of a dataset."""

import click

from kfm_pipelines.console.options import StorableText, actor_and_reason_options
from kfm_pipelines.console.output import console, json_option, respond
from kfm_pipelines.console.session import open_services
from kfm_pipelines.gates import schema_approval


@click.command("approve-schema")
@click.argument("dataset", type=StorableText())
@actor_and_reason_options
@click.option("--dry-run", is_flag=True, help="Show what would be approved without approving it.")
@json_option
def approve_schema(dataset: str, reason: str, by: str, dry_run: bool, as_json: bool) -> None:
    """Approve the columns, types and units that DATASET is declared with now.

    Until then, keys that have them are red. Redrive their dead letters afterwards.
    """
    with open_services() as services:
        declared = services.datasets[dataset]
        proposal = schema_approval.proposal_of(services, declared)
        before = proposal.approved.version if proposal.approved else None
        after = before if dry_run else schema_approval.approve(services, declared, by, reason).version
    document = {"dataset": dataset, "from": before, "to": after, "changes": proposal.changes}
    document |= {"digest": proposal.declared.digest, "approved": not dry_run}
    respond(document, lambda: _display_approval(dataset, proposal.changes, after, dry_run=dry_run), as_json=as_json)


def _display_approval(dataset: str, changes: list[str], version: int | None, *, dry_run: bool) -> None:
    for change in changes:
        console.print(f"  {change}", markup=False)
    if version is None:
        console.print(f"{dataset}: {schema_approval.NOTHING_PUBLISHED}")
    elif dry_run:
        outcome = "these changes would be approved" if changes else "there is nothing to approve"
        console.print(f"{dataset} has schema version {version}; {outcome}. Nothing was done.")
    else:
        console.print(f"{dataset} has schema version {version}; now redrive: kfm dlq redrive --dataset {dataset}")
