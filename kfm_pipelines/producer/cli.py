"""`kfm emit`: sample objects into the bucket and messages about them by any of the three roads, or given messages."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from kfm_pipelines.console.output import console, json_option, print_json, progress
from kfm_pipelines.console.session import open_services
from kfm_pipelines.errors import MessageRefused
from kfm_pipelines.events import normalise, resolve_event
from kfm_pipelines.events.notice import Priority
from kfm_pipelines.producer.routes import ROUTES, MessageSender, Route, format_message, sender_for_route
from kfm_pipelines.producer.samples import SAMPLES
from kfm_pipelines.producer.upload import upload
from kfm_pipelines.services import Services
from kfm_pipelines.telemetry.traces.spans import TRACEPARENT, SpanValue, TraceContext, context_of


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Which sample objects to upload, by which road to tell of them, and how often to repeat that."""

    dataset: str
    start: datetime
    windows: int
    seed: int = 0
    copies: int = 0
    route: Route = "s3"
    priority: Priority = "normal"

    @property
    def messages_per_object(self) -> int:
        """S3 tells of an object by itself; the other roads are ours to send on."""
        return self.copies if self.route == "s3" else self.copies + 1


@click.command()
@click.option("--dataset", default="usgs/streamflow", show_default=True, type=click.Choice(sorted(SAMPLES)))
@click.option("--windows", default=24, show_default=True, type=click.IntRange(1, 100_000), help="How many windows.")
@click.option(
    "--start",
    default="2025-12-04T00",
    show_default=True,
    type=click.DateTime(["%Y-%m-%dT%H", "%Y-%m-%d"]),
    help="The first window, UTC.",
)
@click.option("--seed", default=0, show_default=True, help="Another seed gives other readings for the same windows.")
@click.option(
    "--copies",
    default=0,
    show_default=True,
    type=click.IntRange(0, 100),
    help="Send each notice so many times more, as SNS and SQS may do.",
)
@click.option(
    "--as",
    "route",
    default="s3",
    show_default=True,
    type=click.Choice(ROUTES),
    help="What tells of the objects: S3 alone, or also auto-update notices or FIFO envelopes.",
)
@click.option("--fifo", is_flag=True, help="The same as --as fifo.")
@click.option(
    "--priority",
    default="normal",
    show_default=True,
    type=click.Choice(["high", "normal", "low"]),
    help="Of auto-update notices.",
)
@click.option("--group", help="Message group on the FIFO road; the dataset's pipeline by default.")
@click.option(
    "--body",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Send the text of this file (- for standard input) as one message instead.",
)
@click.option(
    "--to",
    "target",
    default="topic",
    show_default=True,
    type=click.Choice(["topic", "queue"]),
    help="Where messages and --body go: to the road's topic, or past it to the queue.",
)
@json_option
def emit(**given: Any) -> None:
    """Publish sample objects and events, or a message of your own."""
    body, target, as_json, group = (given.pop(name) for name in ("body", "target", "as_json", "group"))
    if given.pop("fifo"):
        given["route"] = "fifo"
    samples = SampleRequest(**{**given, "start": given["start"].replace(tzinfo=UTC)})
    with open_services() as services:
        way = sender_for_route(services, samples.route, target, group or services.datasets[samples.dataset].pipeline)
        if body is not None:
            _send_traced(services, way, _read_text(body))
            _display_sent({"objects": 0, "messages": 1, "keys": []}, as_json)
            return
        with progress("objects uploaded", samples.windows, quiet=as_json) as show:
            keys = emit_samples(services, samples, way, show)
        sent = samples.windows * samples.messages_per_object
        _display_sent({"objects": samples.windows, "messages": sent, "keys": keys}, as_json)


def emit_samples(
    services: Services, request: SampleRequest, sender: MessageSender, on_progress: Callable[[int], None]
) -> list[str]:
    """Upload the samples and tell of them; return the keys they belong to, in order."""
    dataset, sample = services.datasets[request.dataset], SAMPLES[request.dataset]
    keys: dict[str, None] = {}
    for number, start in enumerate(sample.windows(request.start, request.windows), start=1):
        begun = datetime.now(UTC)
        object_key, data = sample.make(start, seed=request.seed)
        uploaded = upload(dataset, object_key, data, start)
        [event] = [resolve_event(said, services.datasets) for said in normalise(format_message(uploaded, "s3"))]
        trace = TraceContext.of_event(event.identity)  # S3's own notice leads to the same one
        for _ in range(request.messages_per_object):
            sender.send(format_message(uploaded, request.route, request.priority), {TRACEPARENT: trace.traceparent})
        attributes: dict[str, SpanValue] = {"kfm.dataset": event.dataset, "kfm.key": event.key}
        attributes |= {"kfm.event_id": event.identity, "kfm.object": event.asset_uri}
        services.telemetry.spans.emit_root_span("publish_event", trace, begun, datetime.now(UTC), attributes)
        keys |= {event.key: None}
        on_progress(number)
    services.telemetry.flush()
    return list(keys)


def _send_traced(services: Services, sender: MessageSender, body: str) -> None:
    with services.telemetry.spans.span("publish_event", kind="producer") as span:
        here = context_of(span)
        sender.send(body, {TRACEPARENT: here.traceparent} if here else {})
    services.telemetry.flush()


def _read_text(path: Path) -> str:
    raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise MessageRefused(f"{path.name} is not UTF-8 text, which is all that SNS and SQS carry") from None


def _display_sent(sent: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(sent)
    else:
        console.print(f"{sent['objects']} objects uploaded, {sent['messages']} messages sent besides S3's own notices")
