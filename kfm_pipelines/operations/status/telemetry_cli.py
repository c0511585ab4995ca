"""`kfm trace` and `kfm metrics`: spans and metrics from the files of this home. Needs no database, no queue."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from kfm_pipelines.console.output import console, json_option, print_json, respond
from kfm_pipelines.console.session import stop_on_signal
from kfm_pipelines.errors import TraceUnknown
from kfm_pipelines.settings import TELEMETRY_FOLDER, home_directory, metrics_port
from kfm_pipelines.telemetry.traces.reader import RecordedSpan, spans_of_trace, traces_about
from kfm_pipelines.text import make_printable

TRACE_ID = re.compile(r"[0-9a-f]{32}")
MAX_OTHER_TRACES = 5
DISPLAYED_ATTRIBUTES = {"attempt": "kfm.attempt", "verdict": "kfm.verdict", "queue": "messaging.destination.name"}


@click.command()
@click.argument("what")
@json_option
def trace(what: str, as_json: bool) -> None:
    """Show the latest trace about WHAT: a key, an event id, a run id, a replay id or a trace id.

    Reads only files of this home; needs no database and no queue.
    """
    folder = home_directory(os.environ) / TELEMETRY_FOLDER
    traces = [what] if TRACE_ID.fullmatch(what) else traces_about(folder, what)
    spans = spans_of_trace(folder, traces[0]) if traces else []
    if not spans:
        raise TraceUnknown(f"no trace of {make_printable(what[:200])} in {folder.name}/; see docs/traces.md")
    document = {"trace": traces[0], "others": traces[1:], "spans": [asdict(one) for one in spans]}
    respond(document, lambda: _display_trace(traces, spans), as_json=as_json)


def _display_trace(traces: Sequence[str], spans: Sequence[RecordedSpan]) -> None:
    console.print(f"trace {traces[0]}", style="bold")
    for depth, one in order_spans(spans):
        title = f"{'  ' * depth}{make_printable(one.name)}"
        failed = f"  FAILED: {make_printable(one.failed)}" if one.failed else ""
        about = "  ".join(
            f"{label} {make_printable(str(one.attributes[name]))}"
            for label, name in DISPLAYED_ATTRIBUTES.items()
            if name in one.attributes
        )
        begun = f"{one.begun:%Y-%m-%d %H:%M:%S.%f}"[:-3]
        console.print(f"  {begun}  {one.milliseconds:>10.1f} ms  {title:<34}  {about}{failed}".rstrip())
    if traces[1:]:
        console.print(f"earlier: {', '.join(traces[1 : MAX_OTHER_TRACES + 1])}")


def order_spans(spans: Sequence[RecordedSpan]) -> Iterator[tuple[int, RecordedSpan]]:
    """Yields each span with its depth below its parent, earliest first. A span without a recorded parent is a root."""
    spans = list({one.id: one for one in spans}.values())  # a sender that sends twice records its span twice
    known = {one.id for one in spans}
    waiting = [(0, one) for one in spans if one.parent not in known]
    waiting.sort(key=lambda found: found[1].begun, reverse=True)
    while waiting:
        depth, one = waiting.pop()
        yield depth, one
        below = sorted((child for child in spans if child.parent == one.id), key=lambda child: child.begun)
        waiting += [(depth + 1, child) for child in reversed(below)]


@click.command()
@click.option("--serve", is_flag=True, help="Serve Prometheus on this machine until Ctrl-C.")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port to serve on; KFM_METRICS_PORT or 9464 by default.")
@json_option
def metrics(serve: bool, port: int | None, as_json: bool) -> None:
    """Print the metrics in Prometheus's text format, or serve them."""
    if port and not serve:
        raise click.UsageError("--port goes with --serve")
    folder = home_directory(os.environ) / TELEMETRY_FOLDER
    if serve:
        _serve(folder, port or metrics_port(), as_json)
    elif as_json:
        print_json(_document(folder))
    else:
        from kfm_pipelines.telemetry.metrics.scrape import Exposition

        click.echo(Exposition(folder).text(), nl=False)


def _serve(folder: Path, port: int | None, as_json: bool) -> None:
    """Insists on a port that was asked for; else takes the usual one or any free port."""
    from kfm_pipelines.telemetry.metrics.scrape import DEFAULT_PORT, serve_metrics

    stop = stop_on_signal()
    with serve_metrics(folder, port or DEFAULT_PORT, or_any_free_port=port is None) as url:
        respond({"metrics": url}, lambda: console.print(f"Metrics      {url}"), as_json=as_json)
        stop.wait()


def _document(folder: Path) -> dict[str, Any]:
    from kfm_pipelines.telemetry.metrics.names import METRICS
    from kfm_pipelines.telemetry.metrics.reader import read_totals

    totals = read_totals(folder)

    def fields(value: Any) -> dict[str, Any]:
        return {"value": value} if isinstance(value, float | int) else {"count": value.count, "sum": value.total}

    return {
        metric.name: [
            {"labels": dict(zip(metric.labels, labels, strict=True)), **fields(value)}
            for labels, value in totals.series(metric.name)
        ]
        for metric in METRICS
    }
