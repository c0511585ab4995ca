"""`kfm demo`: publishes samples of every dataset on the real stack, each event sent twice, and draws them on a map."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from kfm_pipelines.care.review.tables import pending_reviews
from kfm_pipelines.catalog.published_map import draw_published_map
from kfm_pipelines.console.options import default_option
from kfm_pipelines.console.output import console, format_count, json_option, progress, respond, stderr_console
from kfm_pipelines.console.session import open_services
from kfm_pipelines.dispatch.tables import open_dispatches
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.events import CanonicalKey, parse_label
from kfm_pipelines.events.release import derived_key
from kfm_pipelines.inbox.releases import all_announced
from kfm_pipelines.local.dagster import serve_recovered
from kfm_pipelines.local.process import is_running
from kfm_pipelines.operations.status.gauges import emit_gauges
from kfm_pipelines.operations.status.tables import keys_in_progress, queue_totals, revisions_of
from kfm_pipelines.producer.cli import SampleRequest, emit_samples, prepare_providers
from kfm_pipelines.producer.routes import sender_for_route
from kfm_pipelines.producer.samples import SAMPLES
from kfm_pipelines.services import Services

DATASET = "usgs/streamflow"
START = datetime(2025, 12, 4, tzinfo=UTC)
TABLES = (DATASET, "drought/tribal-areas", "heritage/sites")
# A FIFO queue delivers one of two equal messages; S3's own notification is the second.
OTHER_SAMPLES = (
    SampleRequest("drought/tribal-areas", datetime(2025, 12, 2, tzinfo=UTC), 1, copies=1, route="fifo"),
    SampleRequest("heritage/sites", datetime(2026, 5, 1, tzinfo=UTC), 1, copies=1),
    *(SampleRequest(dataset, START, 1, copies=1) for dataset in sorted(SAMPLES) if dataset not in TABLES),
)


@click.command()
@default_option("--windows", default=24, type=click.IntRange(1, 5000), help="Number of hours.")
@default_option("--timeout", default=280, type=click.IntRange(10), help="Seconds to wait at most.")
@json_option
def demo(windows: int, timeout: int, as_json: bool) -> None:
    """Start the embedded stack, process sample events and report what was published where."""
    _display_note("starting Postgres, S3, SNS and SQS on this machine", as_json)
    with open_services() as services, _serve_dagster_if_needed(services, as_json):
        before = _queue_totals(services)
        sent = _emit(services, windows, as_json)
        derived = _derived_keys(services, sent)
        keys = [*sent, *derived]
        already = revisions_of(services.database, keys)
        with progress("keys done", len(keys), quiet=as_json) as show:
            _wait(services, sent, derived, before["received"] + 2 * len(sent), time.monotonic() + timeout, show)
        summary = {**_summarise(services, keys, already, before), "map": _draw_map(services)}
        emit_gauges(services, at_once=True)  # so that kfm status is up to date
    done = summary["published_keys"] + len(summary["awaiting_review"])
    respond(summary, lambda: _display_summary(summary), as_json=as_json, ok=done >= len(keys))


def _emit(services: Services, windows: int, as_json: bool) -> list[str]:
    """Uploads the samples, sends each event a second time, and returns their keys."""
    every = [SampleRequest(DATASET, START, windows, copies=1), *OTHER_SAMPLES]
    total = sum(samples.windows for samples in every)
    prepare_providers(services, [samples.dataset for samples in every])
    with progress("objects uploaded, each event sent twice", total, quiet=as_json) as show:
        keys: list[str] = []
        for samples in every:
            sender = sender_for_route(services, samples.route, "topic", services.datasets[samples.dataset].pipeline)
            keys += emit_samples(services, samples, sender, lambda number: show(len(keys) + number))  # noqa: B023
        return keys


def _derived_keys(services: Services, keys: list[str]) -> list[str]:
    """Returns the keys that follow from these."""
    parsed = [CanonicalKey.parse(key) for key in keys]
    found = {
        derived_key(dataset, parse_label(key.time_window).start): None
        for dataset in services.datasets.values()
        for name in dataset.input.upstream_names
        for key in parsed
        if key.source == services.datasets[name].key.source
    }
    return list(found)


def _draw_map(services: Services) -> str:
    picture, _ = draw_published_map(services)
    path = services.settings.home / "map.png"
    path.write_bytes(picture)
    return str(path)


def _queue_totals(services: Services) -> Counter[str]:
    """Returns the totals of all queues, because duplicates may arrive on another one."""
    return sum((Counter(queue_totals(services.database, one.queue.name)) for one in services.intakes), Counter())


@contextmanager
def _serve_dagster_if_needed(services: Services, as_json: bool) -> Iterator[None]:
    home = services.settings.home
    if is_running(home, "dagster"):
        yield
        return
    _display_note("starting Dagster's UI and daemon", as_json)
    with serve_recovered(services):
        yield


def _wait(
    services: Services,
    sent: list[str],
    derived: list[str],
    messages: int,
    deadline: float,
    show: Callable[[int], None],
) -> None:
    keys = [*sent, *derived]
    while True:
        announced = all_announced(services)  # before the keys, which are due when they are announced
        open_keys = set(keys_in_progress(services.database, keys))
        if not announced or not open_keys.isdisjoint(sent):
            open_keys.update(derived)  # each release makes them due again
        received = _queue_totals(services)["received"]
        show(len(keys) - len(open_keys) if received >= messages else 0)
        # A run writes its last events after its last key; wait until Dagster has recorded its end.
        if received >= messages and announced and not open_keys and not open_dispatches(services.database):
            return
        if time.monotonic() > deadline:
            logs = services.settings.home / "logs"
            raise ServiceUnavailable(f"{len(open_keys)} of {len(keys)} keys were not done in time; see {logs}")
        time.sleep(0.5)


def _summarise(services: Services, keys: list[str], already: dict[str, int], before: Counter[str]) -> dict[str, Any]:
    after = _queue_totals(services)
    now = revisions_of(services.database, keys)
    waiting = {one.key for one in pending_reviews(services.database)}
    return {
        "keys": len(keys),
        "published_now": sum(now[key] > already.get(key, 0) for key in now),
        "published_keys": len(now),
        "awaiting_review": [key for key in keys if key in waiting and key not in now],
        "messages": after["received"] - before["received"],
        "events_recorded": after["recorded"] - before["recorded"],
        "duplicates_ignored": after["duplicates"] - before["duplicates"],
        "parquet": f"{services.store.url}/processed/",
        "catalog": f"{services.store.url}/catalog/catalog.json",
        "ui": "kfm up",
    }


def _display_summary(summary: dict[str, Any]) -> None:
    new = summary["published_now"]
    if new:
        console.print(f"{format_count(new, 'key')} published, from object to STAC Item")
    else:
        console.print(f"nothing new to publish: {format_count(summary['published_keys'], 'key')} unchanged")
    duplicates = format_count(summary["duplicates_ignored"], "duplicate")
    console.print(f"{duplicates} ignored, of {format_count(summary['messages'], 'message')} received")
    for key in summary["awaiting_review"]:
        console.print(f"1 key awaits review because its places are sensitive: kfm review show {key}")
    console.print(f"Parquet      {_relative_path(summary['parquet'])}")
    console.print(f"Catalog      {_relative_path(summary['catalog'])}")
    console.print(f"Map          {_relative_path('file://' + summary['map'])}")
    console.print("Next         .venv/bin/kfm up (Dagster UI), .venv/bin/kfm status")


def _relative_path(url: str) -> str:
    return os.path.relpath(url.removeprefix("file://")) if url.startswith("file://") else url


def _display_note(text: str, as_json: bool) -> None:
    if not as_json:
        stderr_console.print(text)
