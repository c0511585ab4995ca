"""`kfm watermark`: how far datasets are complete. `kfm late`: lists late events and releases held ones."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from kfm_pipelines.console.options import Reason, StorableText, by_option, default_option
from kfm_pipelines.console.output import console, format_count, format_time, json_option, print_table, respond
from kfm_pipelines.console.session import open_services
from kfm_pipelines.errors import DatasetUnknown
from kfm_pipelines.services import Services
from kfm_pipelines.watermarks import late_lane
from kfm_pipelines.watermarks.late_lane import LateEvent, LateFilter
from kfm_pipelines.watermarks.queries import WatermarkStatus, read_watermark_status

SINGLE_STREAM_LABEL = "(the only one)"
DISPLAYED_DIGITS = 16


@click.group()
def watermark() -> None:
    """How far datasets are complete."""


@watermark.command()
@click.argument("dataset", type=StorableText(), required=False)
@json_option
def show(dataset: str | None, as_json: bool) -> None:
    """Show the watermark of all datasets, or of one DATASET, with its streams."""
    with open_services() as services:
        chosen = services.datasets.values() if dataset is None else [services.datasets[dataset]]
        found = [read_watermark_status(services.database, one) for one in chosen]
    document = {"datasets": {one.dataset: _document(one) for one in found}}
    respond(document, lambda: _display(found), as_json=as_json)


def _document(status: WatermarkStatus) -> dict[str, Any]:
    return {
        "watermark": status.watermark,
        "lag_seconds": None if status.lag is None else round(status.lag.total_seconds()),
        "held_back_by": status.held_back_by,
        "partitions": [
            {
                "partition": stream.partition,
                "watermark": stream.watermark,
                "reached": stream.reached,
                "advanced_at": stream.advanced_at,
                "state": "active" if stream.active else "idle",
            }
            for stream in status.streams
        ],
    }


def _display(statuses: Sequence[WatermarkStatus]) -> None:
    for one in statuses:
        console.print(one.dataset, style="bold")
        if one.watermark is None or one.lag is None:
            console.print("  watermark  none: " + ("no stream is far enough" if one.streams else "no events yet"))
        else:
            console.print(f"  watermark  {format_time(one.watermark)}, {_format_duration(one.lag)} behind the clock")
        rows = []
        for stream in one.streams:
            slowest = stream.partition == one.held_back_by and len(one.streams) > 1
            state = ("active" if stream.active else "idle") + (", holds back the others" if slowest else "")
            name = stream.partition or SINGLE_STREAM_LABEL
            rows.append((name, stream.watermark or "none", stream.reached, stream.advanced_at, state))
        print_table(("stream", "watermark", "reached", "advanced at", "state"), rows)


def _format_duration(lag: timedelta) -> str:
    """Formats in the largest useful unit; the lag is negative if the clock is wrong."""
    seconds = int(lag.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if abs(seconds) >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


class IdentityPrefix(StorableText):
    """The first digits of an identity, as `kfm late list` displays them."""

    name = "identity"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        digits = super().convert(value, param, ctx).lower()
        if not 8 <= len(digits) <= 64 or set(digits) - set("0123456789abcdef"):
            self.fail("an identity has 64 hexadecimal digits; give at least the first 8", param, ctx)
        return digits


@click.group()
def late() -> None:
    """Events made after the watermark had passed their window."""


@late.command("list")
@click.option("--dataset", type=StorableText(), help="Only this dataset.")
@default_option("--state", type=click.Choice(["held", "applied", "released", "all"]), default="held")
@default_option("--limit", default=50, type=click.IntRange(1, 100_000))
@json_option
def list_late(dataset: str | None, state: str, limit: int, as_json: bool) -> None:
    """List late events; by default those that are held."""
    chosen = LateFilter(dataset=dataset, state=None if state == "all" else state)
    with open_services() as services:
        found = late_lane.find_late_events(services.database, chosen, limit=limit)
        total = late_lane.count_late_events(services.database, chosen)
        _require_known_dataset(services, dataset, found)
    document = {"events": [asdict(event) for event in found], "total": total}
    respond(document, lambda: _display_list(found, total, state), as_json=as_json)


def _display_list(found: Sequence[LateEvent], total: int, state: str) -> None:
    _display_events(found)
    count = format_count(total, "late event" if state == "all" else f"{state} late event")
    console.print(count + (f", {len(found)} listed" if total > len(found) else ""))


@late.command()
@click.option("--dataset", type=StorableText(), help="Only this dataset.")
@click.option("--key", type=StorableText(), help="Only this key.")
@click.option("--identity", "identities", type=IdentityPrefix(), multiple=True, help="This event; may be repeated.")
@click.option("--all", "everything", is_flag=True, help="All held events.")
@by_option
@click.option("--reason", type=Reason(), help="Why; kept in the audit. Required except for a dry run.")
@click.option("--dry-run", is_flag=True, help="Only list what would be released.")
@json_option
def release(
    dataset: str | None, key: str | None, identities: tuple[str, ...], everything: bool, by: str, reason: str | None,
    dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Release held events and make their keys due at once. The audit records who and why."""
    if everything == bool(dataset or key or identities):
        raise click.UsageError("choose events with --dataset, --key or --identity, or use --all")
    if reason is None and not dry_run:
        raise click.UsageError("give a --reason, or use --dry-run")
    with open_services() as services:
        chosen = late_lane.find_held_events(services, LateFilter(dataset=dataset, key=key, identities=identities))
        _require_known_dataset(services, dataset, chosen)
        released: list[str] = []
        if reason is not None and not dry_run:
            released = late_lane.release(services.database, services.datasets, chosen, actor=by, reason=reason)
        behind = late_lane.find_outdated_keys(services, chosen)
    done = chosen if dry_run else [event for event in chosen if event.identity in set(released)]
    keys = len({event.key for event in done})
    document = {"dry_run": dry_run, "events": [asdict(event) for event in done], "keys": keys, "left_behind": behind}
    respond(document, lambda: _display_release(done, keys, behind, dry_run), as_json=as_json)


def _display_release(done: Sequence[LateEvent], keys: int, behind: Sequence[str], dry_run: bool) -> None:
    if dry_run:
        _display_events(done)
    verb = "to release" if dry_run else "released"
    console.print(f"{format_count(len(done), 'event')} {verb}, {format_count(keys, 'key')} due")
    if behind:
        console.print(
            f"{format_count(len(behind), 'key')} cannot take these events because the version is no longer declared; "
            "upgrade with: kfm replay plan --mode upgrade"
        )
        for outdated in behind:
            console.print(f"  {outdated}")


def _require_known_dataset(services: Services, dataset: str | None, found: Sequence[LateEvent]) -> None:
    """A dataset that is no longer declared may still have late events; an unknown one is a mistake."""
    if dataset is not None and not found and dataset not in services.datasets:
        known = ", ".join(services.datasets)
        raise DatasetUnknown(f"dataset {dataset[:200]!r} is not declared; declared: {known}")


def _display_events(events: Sequence[LateEvent]) -> None:
    rows = []
    for event in events:
        identity, mark = event.identity[:DISPLAYED_DIGITS], event.watermark or "none"
        state = event.state if event.state != "released" else f"released by {event.changed_by}"
        rows.append((identity, event.key, event.made_at, mark, event.rule, state, event.asset_uri))
    print_table(("identity", "key", "made at", "watermark then", "rule", "state", "object"), rows)
