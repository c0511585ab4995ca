"""`kfm emit`: sample objects into the bucket, whose notices S3 sends by itself, or given messages to topic or queue."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import click

from kfm_pipelines.cli.output import console, json_option, print_json, progress
from kfm_pipelines.cli.session import opened_workshop
from kfm_pipelines.errors import MessageRefused
from kfm_pipelines.events import fold, normalise
from kfm_pipelines.local.samples import SAMPLES, sample_windows
from kfm_pipelines.messaging.producer import Topic, upload
from kfm_pipelines.operations.workshop import Workshop


class Target(Protocol):
    """Something that carries messages."""

    def send(self, body: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Samples:
    """Which sample objects to upload, and how often to repeat their notices."""

    dataset: str
    start: datetime
    windows: int
    seed: int = 0
    copies: int = 0


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
    help="Where copies and --body go.",
)
@json_option
def emit(body: Path | None, target: str, as_json: bool, **chosen: object) -> None:
    """Publish sample objects and events, or a message of your own."""
    with opened_workshop() as workshop:
        carrier: Target = workshop.queue if target == "queue" else Topic(workshop.settings.topic)
        if body is not None:
            carrier.send(_text(body))
            _tell({"objects": 0, "messages": 1, "keys": []}, as_json)
            return
        samples = Samples(**{**chosen, "start": chosen["start"].replace(tzinfo=UTC)})  # type: ignore[attr-defined]
        with progress("objects uploaded", samples.windows, quiet=as_json) as show:
            keys = emit_samples(workshop, samples, carrier, show)
        _tell({"objects": samples.windows, "messages": samples.windows * samples.copies, "keys": keys}, as_json)


def emit_samples(workshop: Workshop, samples: Samples, carrier: Target, show: Callable[[int], None]) -> list[str]:
    """Upload the samples and repeat their notices; return the keys they belong to, in order."""
    dataset = workshop.datasets[samples.dataset]
    keys: dict[str, None] = {}
    for number, start in enumerate(sample_windows(samples.start, samples.windows), start=1):
        object_key, data = SAMPLES[samples.dataset](start, seed=samples.seed)
        notice = upload(dataset, object_key, data, start)
        for _ in range(samples.copies):
            carrier.send(notice)
        keys |= {fold(said, workshop.datasets).key: None for said in normalise(notice)}
        show(number)
    return list(keys)


def _text(path: Path) -> str:
    raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise MessageRefused(f"{path.name} is not UTF-8 text, which is all that SNS and SQS carry") from None


def _tell(sent: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(sent)
    else:
        console.print(f"{sent['objects']} objects uploaded, {sent['messages']} messages sent besides S3's own notices")
