"""`kfm datasets approve-schema`: promise readers of a dataset another schema."""

import click

from kfm_pipelines.console.options import StorableText, actor_and_reason_options
from kfm_pipelines.console.output import console, json_option, print_json
from kfm_pipelines.console.session import open_services
from kfm_pipelines.gates import schema_approval


@click.command("approve-schema")
@click.argument("dataset", type=StorableText())
@actor_and_reason_options
@click.option("--dry-run", is_flag=True, help="Show what would be approved; approve nothing.")
@json_option
def approve_schema(dataset: str, reason: str, by: str, dry_run: bool, as_json: bool) -> None:
    """Approve the columns, types and units that DATASET is declared with now.

    Until then a key with them is red. Its dead letter can be redriven afterwards.
    """
    with open_services() as services:
        declared = services.datasets[dataset]
        proposal = schema_approval.proposal_of(services, declared)
        before = proposal.approved.version
        after = before if dry_run else schema_approval.approve(services, declared, by, reason).version
    if as_json:
        document = {"dataset": dataset, "from": before, "to": after, "changes": proposal.changes}
        print_json({**document, "digest": proposal.declared.digest, "approved": not dry_run})
        return
    for change in proposal.changes:
        console.print(f"  {change}", markup=False)
    if dry_run:
        told = "these changes would be approved" if proposal.changes else "there is nothing to approve"
        console.print(f"{dataset} has schema version {before}; {told}. Nothing was done.")
    else:
        console.print(f"{dataset} has schema version {after}; now redrive: kfm dlq redrive --dataset {dataset}")
