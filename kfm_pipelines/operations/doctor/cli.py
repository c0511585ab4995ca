"""`kfm doctor`: is everything there and as it should be; what is wrong and how to mend it."""

import click

from kfm_pipelines.console.output import console, json_option, print_json
from kfm_pipelines.console.session import open_services
from kfm_pipelines.operations.doctor import diagnose
from kfm_pipelines.services import set_up


@click.command()
@click.option("--fix", is_flag=True, help="Create or put right: database schema, buckets, topics, queues, wiring.")
@json_option
def doctor(fix: bool, as_json: bool) -> None:
    """Check declarations, database, clock, policies and their secrets, store, buckets, topics and queues."""
    with open_services(prepared=False) as services:
        fixed = set_up(services, cloud=True) if fix else []
        findings = diagnose(services)
    wrong = [finding for finding in findings if not finding.ok]
    if as_json:
        checks = [{"check": f.check, "ok": f.ok, "found": f.found, "remedy": f.remedy} for f in findings]
        print_json({"ok": not wrong, "fixed": fixed, "checks": checks})
    else:
        for line in fixed:
            console.print(f"mended  {line}")
        for finding in findings:
            console.print(f"{'ok   ' if finding.ok else 'WRONG'}  {finding.check}: {finding.found}")
            if not finding.ok:
                console.print(f"       {finding.remedy}")
    if wrong:
        raise click.exceptions.Exit(1)
