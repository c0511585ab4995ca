"""`kfm late`: what came after its window had closed, and letting go of what is held."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from kfm_pipelines.console.options import Reason, Words, user_name
from kfm_pipelines.console.output import console, json_option, print_json, shown_time
from kfm_pipelines.console.session import opened_services
from kfm_pipelines.errors import DatasetUnknown
from kfm_pipelines.services import Services
from kfm_pipelines.text import printable
from kfm_pipelines.watermarks import late_lane_release
from kfm_pipelines.watermarks.late_lane import LateEvent, LateFilter, count_late, late_events

DIGITS_SHOWN = 16


class Digits(Words):
    """The first digits of an identity, as the list shows them."""

    name = "identity"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        digits = super().convert(value, param, ctx).lower()
        if not 8 <= len(digits) <= 64 or set(digits) - set("0123456789abcdef"):
            self.fail("an identity has 64 hexadecimal digits; give at least the first 8", param, ctx)
        return digits


@click.group()
def late() -> None:
    """The late lane: events made after the watermark had passed their window."""


@late.command("list")
@click.option("--dataset", type=Words(), help="Of this dataset.")
@click.option("--state", type=click.Choice(["held", "applied", "released", "all"]), default="held", show_default=True)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 100_000))
@json_option
def list_late(dataset: str | None, state: str, limit: int, as_json: bool) -> None:
    """List late events, by default those that are held."""
    chosen = LateFilter(dataset=dataset, state=None if state == "all" else state)
    with opened_services() as services:
        found = late_events(services.database, chosen, limit=limit)
        total = count_late(services.database, chosen)
        _refuse_unknown(services, dataset, found)
    if as_json:
        print_json({"events": [asdict(event) for event in found], "total": total})
        return
    _show(found)
    what = "late" if state == "all" else f"late and {state}"
    console.print(f"{total} events are {what}" + (f", {len(found)} shown" if total > len(found) else ""))


def choice_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--all", "everything", is_flag=True, help="Everything that is held."),
        click.option("--identity", "identities", type=Digits(), multiple=True, help="This event; may be repeated."),
        click.option("--key", type=Words(), help="Of this key."),
        click.option("--dataset", type=Words(), help="Of this dataset."),
    ):
        command = option(command)
    return command


@late.command()
@choice_options
@click.option("--by", type=Words(), default=user_name("--by"), show_default="your user name", help="Who says so.")
@click.option("--reason", type=Reason(), help="Why; kept for ever and shown to everybody. Only a dry run needs none.")
@click.option("--dry-run", is_flag=True, help="Say what would be released, and release nothing.")
@json_option
def release(
    dataset: str | None,
    key: str | None,
    identities: tuple[str, ...],
    everything: bool,
    by: str,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Let held events into their keys, which are due at once. Who and why is in the audit."""
    if everything == bool(dataset or key or identities):
        raise click.UsageError("choose with --dataset, --key or --identity, or say --all")
    if reason is None and not dry_run:
        raise click.UsageError("say why with --reason, or only look with --dry-run")
    with opened_services() as services:
        chosen = late_lane_release.held(services, LateFilter(dataset=dataset, key=key, identities=identities))
        _refuse_unknown(services, dataset, chosen)
        released = (
            [] if reason is None or dry_run else late_lane_release.release(services, chosen, actor=by, reason=reason)
        )
        behind = late_lane_release.left_behind(services, chosen)
    done = chosen if dry_run else [event for event in chosen if event.identity in set(released)]
    keys = len({event.key for event in done})
    if as_json:
        print_json(
            {"dry_run": dry_run, "events": [asdict(event) for event in done], "keys": keys, "left_behind": behind}
        )
        return
    if dry_run:
        _show(done)
    would = "would be released" if dry_run else "are released"
    console.print(f"{len(done)} events {would}, {keys} keys {'would be' if dry_run else 'are'} due by that")
    if behind:
        console.print(
            f"{len(behind)} of these keys cannot take them, because their version is not declared any more; make them "
            "again with: kfm replay plan --mode upgrade"
        )
        for outdated in behind:
            console.print(f"  {outdated}")


def _refuse_unknown(services: Services, dataset: str | None, found: Sequence[LateEvent]) -> None:
    """A dataset that is declared no more may still have late events; one that never was is a slip."""
    if dataset is not None and not found and dataset not in services.datasets:
        known = ", ".join(services.datasets)
        raise DatasetUnknown(f"dataset {dataset[:200]!r} is not declared; declared: {known}")


def _show(events: Sequence[LateEvent]) -> None:
    if not events:
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("identity", "key", "made at", "watermark then", "rule", "state", "object"):
        table.add_column(column, overflow="fold", no_wrap=column in ("identity", "key"))
    for event in events:
        state = event.state if event.state != "released" else f"released by {printable(event.changed_by)}"
        table.add_row(
            event.identity[:DIGITS_SHOWN],
            event.key,
            shown_time(event.made_at),
            shown_time(event.watermark),
            event.rule,
            state,
            printable(event.asset_uri),
        )
    console.print(table)
