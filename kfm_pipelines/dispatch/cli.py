"""`kfm drain` and `kfm work`: what the sensor and the daemon do, in this process."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click

from kfm_pipelines.console.output import console, format_count, json_option, progress, respond, stderr_console
from kfm_pipelines.console.session import current_session, open_services
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.inbox.drain import drain_all
from kfm_pipelines.inbox.record import BatchCounts
from kfm_pipelines.services import Services
from kfm_pipelines.state import kill_switch

once_option = click.option("--once", is_flag=True, help="Stop when there is nothing left to do.")
FOLLOW_SECONDS = 3600.0
LONG_POLL_SECONDS = 10
PAUSE_SECONDS = 5.0


@click.command()
@once_option
@json_option
def drain(once: bool, as_json: bool) -> None:
    """Move queue messages into the inbox."""
    with open_services() as services, _serve_metrics(services, once):
        total = BatchCounts()
        while True:
            budget, wait = (FOLLOW_SECONDS, 0) if once else (0, LONG_POLL_SECONDS)
            drained = drain_all(services, budget_seconds=budget, wait_seconds=wait)
            batch = drained.counts
            total += batch
            if once and drained.problems:
                raise ServiceUnavailable(drained.problems[0])
            if once:
                break
            if batch.received:
                _display_counts(batch, as_json)
            for problem in drained.problems:
                stderr_console.print(problem, markup=False)
            if drained.problems:
                time.sleep(PAUSE_SECONDS)
        _display_counts(total, as_json)


@click.command()
@once_option
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 64), help="Number of processes.")
@json_option
def work(once: bool, workers: int, as_json: bool) -> None:
    """Drain the queues and run due keys in this process, or in several."""
    from kfm_pipelines.dispatch.worker import WorkSummary
    from kfm_pipelines.dispatch.worker import work as run_worker
    from kfm_pipelines.dispatch.workers import work_together

    with (
        open_services() as services,
        _serve_metrics(services, once),
        progress("keys done", None, quiet=as_json or not once) as show,
    ):
        worked = WorkSummary()

        def on_progress(done: WorkSummary) -> None:
            worked.add(done)
            show(len(worked.outcomes))
            if not once:
                stderr_console.print("; ".join([_format_summary(worked.counts()), *worked.problems]), markup=False)

        session = current_session()
        if workers > 1:
            work_together(session, workers, once=once, on_progress=on_progress)
        else:
            definitions = session.definitions(services.settings.resources)
            run_worker(services, definitions, session.chores(), once=once, on_progress=on_progress)
        counts = worked.counts()
        stopped = [(killed, keys) for killed, keys in kill_switch.killed_with_due_keys(services.database) if keys]
        waiting = {"killed": {killed.dataset: keys for killed, keys in stopped}} if stopped else {}
        document = {**counts, "runs": worked.runs, **waiting}
        respond(document, lambda: _display_work(counts, stopped), as_json=as_json)
        if worked.problems:
            raise ServiceUnavailable(worked.problems[0])


def _display_work(counts: dict[str, int], stopped: list[tuple[kill_switch.KilledDataset, int]]) -> None:
    console.print(_format_summary(counts))
    for killed, keys in stopped:
        console.print(f"{format_count(keys, 'key')} waiting: {killed}")


@contextmanager
def _serve_metrics(services: Services, once: bool) -> Iterator[None]:
    """Serves metrics for Prometheus while the command runs, if a port is configured."""
    port = services.settings.metrics_port
    if once or port is None:
        yield
        return
    from kfm_pipelines.telemetry.metrics.scrape import serve_metrics

    with serve_metrics(services.settings.telemetry_folder, port, or_any_free_port=True) as url:
        stderr_console.print(f"metrics: {url}")
        yield


def _format_summary(counts: dict[str, int]) -> str:
    waiting = counts.get("awaiting_review", 0)
    return (
        f"{format_count(counts['keys'], 'key')}: {counts['published']} published, {counts['skipped']} unchanged, "
        f"{counts['failed']} failed" + (f"; {waiting} awaiting review (kfm review list)" if waiting else "")
    )


def _display_counts(batch_counts: BatchCounts, as_json: bool) -> None:
    counts = asdict(batch_counts)
    line = ", ".join(f"{count} {name}" for name, count in counts.items())
    respond(counts, lambda: console.print(line), as_json=as_json)
