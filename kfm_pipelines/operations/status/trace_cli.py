"""`kfm trace`: what happened to an event, from whoever sent it to the published Item, as a tree of spans."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from kfm_pipelines.console.output import console, json_option, print_json
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

    Reads the files of this home alone; neither database nor queue has to be there.
    """
    folder = home_directory(os.environ) / TELEMETRY_FOLDER
    traces = [what] if TRACE_ID.fullmatch(what) else traces_about(folder, what)
    spans = spans_of_trace(folder, traces[0]) if traces else []
    if not spans:
        raise TraceUnknown(f"nothing was told of {make_printable(what[:200])} in {folder.name}/; see docs/traces.md")
    if as_json:
        print_json({"trace": traces[0], "others": traces[1:], "spans": [asdict(one) for one in spans]})
        return
    console.print(f"trace {traces[0]}", style="bold")
    for depth, one in order_spans(spans):
        _display_span(one, depth)
    if traces[1:]:
        console.print(f"earlier: {', '.join(traces[1 : MAX_OTHER_TRACES + 1])}")


def order_spans(spans: Sequence[RecordedSpan]) -> Iterator[tuple[int, RecordedSpan]]:
    """Each under its parent, the earlier first. One whose parent nobody has written stands by itself."""
    spans = list({one.id: one for one in spans}.values())  # whoever sends twice has written the first span twice
    known = {one.id for one in spans}
    waiting = [(0, one) for one in spans if one.parent not in known]
    waiting.sort(key=lambda found: found[1].begun, reverse=True)
    while waiting:
        depth, one = waiting.pop()
        yield depth, one
        below = sorted((child for child in spans if child.parent == one.id), key=lambda child: child.begun)
        waiting += [(depth + 1, child) for child in reversed(below)]


def _display_span(span: RecordedSpan, depth: int) -> None:
    name = f"{'  ' * depth}{make_printable(span.name)}"
    failed = f"  FAILED: {make_printable(span.failed)}" if span.failed else ""
    about = "  ".join(
        f"{label} {make_printable(str(span.attributes[said]))}"
        for label, said in DISPLAYED_ATTRIBUTES.items()
        if said in span.attributes
    )
    begun = f"{span.begun:%Y-%m-%d %H:%M:%S.%f}"[:-3]
    console.print(f"  {begun}  {span.milliseconds:>10.1f} ms  {name:<34}  {about}{failed}".rstrip())
