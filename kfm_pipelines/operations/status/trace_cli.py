"""`kfm trace`: the spans of an event, from its sender to the published Item, as a tree."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from kfm_pipelines.console.output import console, json_option, respond
from kfm_pipelines.errors import TraceUnknown
from kfm_pipelines.settings import TELEMETRY_FOLDER, home_directory
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
