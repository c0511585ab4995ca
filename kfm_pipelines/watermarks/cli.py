"""`kfm watermark`: how far datasets are complete, and which stream holds them back."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click

from kfm_pipelines.console.options import StorableText
from kfm_pipelines.console.output import console, format_time, json_option, print_table, respond
from kfm_pipelines.console.session import open_services
from kfm_pipelines.watermarks.queries import WatermarkStatus, read_watermark_status

SINGLE_STREAM_LABEL = "(the only one)"


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
