"""`kfm emit`: uploads sample objects and announces them by one of three routes, or sends a given message."""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from kfm_pipelines.aws.emulated_provider import EmulatedProvider
from kfm_pipelines.aws.provision import provision
from kfm_pipelines.console.options import default_option
from kfm_pipelines.console.output import console, format_count, json_option, progress, respond
from kfm_pipelines.console.session import open_services
from kfm_pipelines.errors import MessageRefused
from kfm_pipelines.events import normalise, resolve_events
from kfm_pipelines.events.notice import Priority
from kfm_pipelines.producer.routes import ROUTES, MessageSender, Route, format_message, sender_for_route
from kfm_pipelines.producer.samples import SAMPLES
from kfm_pipelines.producer.upload import upload
from kfm_pipelines.services import Services
from kfm_pipelines.telemetry.traces.spans import TRACEPARENT, SpanValue, TraceContext, context_of


@dataclass(frozen=True, slots=True)
class SampleRequest:
    dataset: str
    start: datetime
    windows: int
    seed: int = 0
    copies: int = 0
    route: Route = "s3"
    priority: Priority = "normal"

    @property
    def messages_per_object(self) -> int:
        """S3 announces an object itself; on the other routes the announcement is ours to send."""
        return self.copies if self.route == "s3" else self.copies + 1


@click.command()
@default_option("--dataset", default="usgs/streamflow", type=click.Choice(sorted(SAMPLES)))
@default_option("--windows", default=24, type=click.IntRange(1, 100_000), help="How many windows.")
@default_option(
    "--start", default="2025-12-04T00", type=click.DateTime(["%Y-%m-%dT%H", "%Y-%m-%d"]), help="The first window, UTC."
)
@default_option("--seed", default=0, help="Another seed gives other readings for the same windows.")
@default_option(
    "--copies", default=0, type=click.IntRange(0, 100), help="Extra copies of each message, as SNS and SQS may deliver."
)
@default_option(
    "--as",
    "route",
    default="s3",
    type=click.Choice(ROUTES),
    help="Who announces the objects: S3 alone, or also auto-update notices or FIFO envelopes.",
)
@click.option("--fifo", is_flag=True, help="Same as --as fifo.")
@default_option(
    "--priority",
    default="normal",
    type=click.Choice(["high", "normal", "low"]),
    help="Priority of auto-update notices.",
)
@click.option("--group", help="Message group of FIFO messages; by default the dataset's pipeline.")
@click.option(
    "--body",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Send the text of this file (- for stdin) as one message instead.",
)
@default_option(
    "--to",
    "target",
    default="topic",
    type=click.Choice(["topic", "queue"]),
    help="Send messages and --body to the route's topic, or directly to its queue.",
)
@json_option
def emit(**given: Any) -> None:
    """Upload sample objects and announce them, or send a message of your own."""
    body, target, as_json, group = (given.pop(name) for name in ("body", "target", "as_json", "group"))
    if given.pop("fifo"):
        given["route"] = "fifo"
    samples = SampleRequest(**{**given, "start": given["start"].replace(tzinfo=UTC)})
    with open_services() as services:
        sender = sender_for_route(services, samples.route, target, group or services.datasets[samples.dataset].pipeline)
        if body is not None:
            with services.telemetry.spans.span("publish_event", kind="producer") as span:
                here = context_of(span)
                sender.send(_read_text(body), {TRACEPARENT: here.traceparent} if here else {})
            services.telemetry.flush()
            _display_sent({"objects": 0, "messages": 1, "keys": []}, as_json)
            return
        with progress("objects uploaded", samples.windows, quiet=as_json) as on_progress:
            keys = emit_samples(services, samples, sender, on_progress)
        sent = samples.windows * samples.messages_per_object
        _display_sent({"objects": samples.windows, "messages": sent, "keys": keys}, as_json)


def emit_samples(
    services: Services, request: SampleRequest, sender: MessageSender, on_progress: Callable[[int], None]
) -> list[str]:
    """Uploads and announces the samples. Returns the keys they belong to, in order."""
    dataset, sample = services.datasets[request.dataset], SAMPLES[request.dataset]
    if dataset.input.provider is not None:
        return _emit_as_provider(services, request, on_progress)
    keys: dict[str, None] = {}
    for number, start in enumerate(sample.windows(request.start, request.windows), start=1):
        begun = datetime.now(UTC)
        object_key, data = sample.make(start, seed=request.seed)
        uploaded = upload(dataset, object_key, data, start)
        [notice] = normalise(format_message(uploaded, "s3"))
        events = resolve_events(notice, services.datasets)
        trace = TraceContext.of_event(notice.identity)  # the same for S3's own notice
        for _ in range(request.messages_per_object):
            sender.send(format_message(uploaded, request.route, request.priority), {TRACEPARENT: trace.traceparent})
        attributes: dict[str, SpanValue] = {"kfm.dataset": dataset.dataset, "kfm.key": events[0].key}
        attributes |= {"kfm.event_id": notice.identity, "kfm.object": events[0].asset_uri}
        services.telemetry.spans.emit_root_span("publish_event", trace, begun, datetime.now(UTC), attributes)
        keys |= dict.fromkeys(event.key for event in events)
        on_progress(number)
    services.telemetry.flush()
    return list(keys)


def prepare_providers(services: Services, datasets: Iterable[str]) -> None:
    """Sets up the providers of these datasets, and subscribes to their topics if one is new."""
    fed = [services.datasets[name] for name in datasets if services.datasets[name].input.provider is not None]
    new = [dataset for dataset in fed if EmulatedProvider(dataset).set_up()]
    if new:
        provision(services.settings, services.datasets)


def _emit_as_provider(services: Services, request: SampleRequest, on_progress: Callable[[int], None]) -> list[str]:
    """Plays the provider of the dataset: fills its bucket and sends what its topic says, in whatever route."""
    dataset, sample = services.datasets[request.dataset], SAMPLES[request.dataset]
    prepare_providers(services, [request.dataset])
    provider = EmulatedProvider(dataset)
    keys: dict[str, None] = {}
    for number, start in enumerate(sample.windows(request.start, request.windows), start=1):
        objects = sample.objects(start, seed=request.seed)
        provider.put(objects)
        body = json.dumps(sample.announcement(start, dataset.input.bucket, objects))
        for _ in range(request.copies + 1):
            provider.send(body)
        events = [event for notice in normalise(body) for event in resolve_events(notice, services.datasets)]
        keys |= dict.fromkeys(event.key for event in events)
        on_progress(number)
    return list(keys)


def _read_text(path: Path) -> str:
    raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise MessageRefused(f"{path.name} is not UTF-8 text, the only kind SNS and SQS accept") from None


def _display_sent(sent: dict[str, Any], as_json: bool) -> None:
    summary = (
        f"{format_count(sent['objects'], 'object')} uploaded, "
        f"{format_count(sent['messages'], 'message')} sent in addition to S3's own"
    )
    respond(sent, lambda: console.print(summary), as_json=as_json)
