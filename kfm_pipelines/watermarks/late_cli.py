"""`kfm late`: what came after its window had closed, and letting go of what is held."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from kfm_pipelines.console.options import Reason, StorableText, user_name
from kfm_pipelines.console.output import console, format_time, json_option, print_json
from kfm_pipelines.console.session import open_services
from kfm_pipelines.errors import DatasetUnknown
from kfm_pipelines.services import Services
from kfm_pipelines.text import make_printable
from kfm_pipelines.watermarks import late_lane_release
from kfm_pipelines.watermarks.late_lane import LateEvent, LateFilter, count_late_events, find_late_events

DISPLAYED_DIGITS = 16


class IdentityPrefix(StorableText):
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
@click.option("--dataset", type=StorableText(), help="Of this dataset.")
@click.option("--state", type=click.Choice(["held", "applied", "released", "all"]), default="held", show_default=True)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 100_000))
@json_option
def list_late(dataset: str | None, state: str, limit: int, as_json: bool) -> None:
    """List late events, by default those that are held."""
    chosen = LateFilter(dataset=dataset, state=None if state == "all" else state)
    with open_services() as services:
        found = find_late_events(services.database, chosen, limit=limit)
        total = count_late_events(services.database, chosen)
        _require_known_dataset(services, dataset, found)
    if as_json:
        print_json({"events": [asdict(event) for event in found], "total": total})
        return
    _display_events(found)
    what = "late" if state == "all" else f"late and {state}"
    console.print(f"{total} events are {what}" + (f", {len(found)} shown" if total > len(found) else ""))


def choice_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--all", "everything", is_flag=True, help="Everything that is held."),
        click.option(
            "--identity", "identities", type=IdentityPrefix(), multiple=True, help="This event; may be repeated."
        ),
        click.option("--key", type=StorableText(), help="Of this key."),
        click.option("--dataset", type=StorableText(), help="Of this dataset."),
    ):
        command = option(command)
    return command


@late.command()
@choice_options
@click.option(
    "--by", type=StorableText(), default=user_name("--by"), show_default="your user name", help="Who says so."
)
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
    with open_services() as services:
        chosen = late_lane_release.find_held_events(
            services, LateFilter(dataset=dataset, key=key, identities=identities)
        )
        _require_known_dataset(services, dataset, chosen)
        released = (
            [] if reason is None or dry_run else late_lane_release.release(services, chosen, actor=by, reason=reason)
        )
        behind = late_lane_release.find_outdated_keys(services, chosen)
    done = chosen if dry_run else [event for event in chosen if event.identity in set(released)]
    keys = len({event.key for event in done})
    if as_json:
        print_json(
            {"dry_run": dry_run, "events": [asdict(event) for event in done], "keys": keys, "left_behind": behind}
        )
        return
    if dry_run:
        _display_events(done)
    would = "would be released" if dry_run else "are released"
    console.print(f"{len(done)} events {would}, {keys} keys {'would be' if dry_run else 'are'} due by that")
    if behind:
        console.print(
            f"{len(behind)} of these keys cannot take them, because their version is not declared any more; make them "
            "again with: kfm replay plan --mode upgrade"
        )
        for outdated in behind:
            console.print(f"  {outdated}")


def _require_known_dataset(services: Services, dataset: str | None, found: Sequence[LateEvent]) -> None:
    """A dataset that is declared no more may still have late events; one that never was is a slip."""
    if dataset is not None and not found and dataset not in services.datasets:
        known = ", ".join(services.datasets)
        raise DatasetUnknown(f"dataset {dataset[:200]!r} is not declared; declared: {known}")


def _display_events(events: Sequence[LateEvent]) -> None:
    if not events:
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("identity", "key", "made at", "watermark then", "rule", "state", "object"):
        table.add_column(column, overflow="fold", no_wrap=column in ("identity", "key"))
    for event in events:
        state = event.state if event.state != "released" else f"released by {make_printable(event.changed_by)}"
        table.add_row(
            event.identity[:DISPLAYED_DIGITS],
            event.key,
            format_time(event.made_at),
            format_time(event.watermark),
            event.rule,
            state,
            make_printable(event.asset_uri),
        )
    console.print(table)
