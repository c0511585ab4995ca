"""`kfm watermark`: how far datasets are complete, and which of their streams holds them back."""

from datetime import timedelta
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from kfm_pipelines.console.options import StorableText
from kfm_pipelines.console.output import console, format_time, json_option, print_json
from kfm_pipelines.console.session import open_services
from kfm_pipelines.services import Services
from kfm_pipelines.watermarks.queries import WatermarkStatus, read_watermark_status

SINGLE_STREAM_LABEL = "(the only one)"


@click.group()
def watermark() -> None:
    """How far datasets are complete."""


@watermark.command()
@click.argument("dataset", type=StorableText(), required=False)
@json_option
def show(dataset: str | None, as_json: bool) -> None:
    """Show the watermark of all datasets or of one DATASET, and each stream it follows from."""
    with open_services() as services:
        found = _read_statuses(services, dataset)
    if as_json:
        print_json({"datasets": {one.dataset: _document(one) for one in found}})
        return
    for one in found:
        _display_status(one)


def _read_statuses(services: Services, dataset: str | None) -> list[WatermarkStatus]:
    chosen = services.datasets.values() if dataset is None else [services.datasets[dataset]]
    return [read_watermark_status(services.database, one) for one in chosen]


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


def _display_status(status: WatermarkStatus) -> None:
    console.print(status.dataset, style="bold")
    if status.watermark is None or status.lag is None:
        console.print("  watermark  none: " + ("no stream is far enough" if status.streams else "no event has come"))
    else:
        console.print(f"  watermark  {format_time(status.watermark)}, {_format_duration(status.lag)} behind the clock")
    if not status.streams:
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("stream", "watermark", "reached", "advanced at", "state"):
        table.add_column(column, overflow="fold")
    for stream in status.streams:
        held = stream.partition == status.held_back_by and len(status.streams) > 1
        state = ("active" if stream.active else "idle") + (", holds back the others" if held else "")
        table.add_row(
            stream.partition or SINGLE_STREAM_LABEL,
            format_time(stream.watermark),
            format_time(stream.reached),
            format_time(stream.advanced_at),
            state,
        )
    console.print(table)


def _format_duration(lag: timedelta) -> str:
    """In the largest unit that says something; a watermark may also be ahead of a clock that is wrong."""
    seconds = int(lag.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if abs(seconds) >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
