"""`kfm doctor`: checks the environment, and says what is wrong and how to fix it."""

from collections.abc import Sequence
from dataclasses import asdict

import click

from kfm_pipelines.console.output import console, json_option, respond
from kfm_pipelines.console.session import open_services
from kfm_pipelines.operations.doctor import DoctorFinding, diagnose
from kfm_pipelines.services import set_up


@click.command()
@click.option("--fix", is_flag=True, help="Create or correct the database schema, buckets, topics and queues.")
@json_option
def doctor(fix: bool, as_json: bool) -> None:
    """Check declarations, database, clock, policies and their secrets, store, buckets, topics and queues."""
    with open_services(prepared=False) as services:
        fixed = set_up(services, cloud=True) if fix else []
        findings = diagnose(services)
    ok = all(finding.ok for finding in findings)
    document = {"ok": ok, "fixed": fixed, "checks": [asdict(finding) for finding in findings]}
    respond(document, lambda: _display(fixed, findings), as_json=as_json, ok=ok)


def _display(fixed: Sequence[str], findings: Sequence[DoctorFinding]) -> None:
    for line in fixed:
        console.print(f"fixed  {line}")
    for finding in findings:
        console.print(f"{'ok   ' if finding.ok else 'WRONG'}  {finding.check}: {finding.found}")
        if not finding.ok:
            console.print(f"       {finding.remedy}")
