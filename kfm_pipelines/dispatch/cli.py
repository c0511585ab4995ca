"""`kfm drain` and `kfm work`: by hand, in this process, what the sensor and the daemon do by themselves."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click

from kfm_pipelines.console.output import console, json_option, print_json, progress, stderr_console
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
            drained = drain_all(
                services,
                budget_seconds=FOLLOW_SECONDS if once else 0,
                wait_seconds=0 if once else LONG_POLL_SECONDS,
            )
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
@json_option
def work(once: bool, as_json: bool) -> None:
    """Drain, dispatch and execute what is due, in this process."""
    from kfm_pipelines.dispatch.worker import WorkSummary
    from kfm_pipelines.dispatch.worker import work as run_worker

    with (
        open_services() as services,
        _serve_metrics(services, once),
        progress("keys done", None, quiet=as_json or not once) as show,
    ):

        def on_progress(worked: WorkSummary) -> None:
            show(len(worked.outcomes))
            if not once:
                stderr_console.print("; ".join([_format_summary(worked.counts()), *worked.problems]), markup=False)

        session = current_session()
        definitions = session.definitions(services.settings.resources)
        worked = run_worker(services, definitions, session.chores(), once=once, on_progress=on_progress)
        counts = worked.counts()
        stopped = [(killed, keys) for killed, keys in kill_switch.killed_with_due_keys(services.database) if keys]
        if as_json:
            waiting = {"killed": {killed.dataset: keys for killed, keys in stopped}} if stopped else {}
            print_json({**counts, "runs": worked.runs, **waiting})
        else:
            console.print(_format_summary(counts))
            for killed, keys in stopped:
                console.print(f"{keys} keys wait: {killed}")
        if worked.problems:
            raise ServiceUnavailable(worked.problems[0])


@contextmanager
def _serve_metrics(services: Services, once: bool) -> Iterator[None]:
    """For Prometheus, as long as this process runs, when somebody has said where."""
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
        f"{counts['keys']} keys: {counts['published']} published, {counts['skipped']} unchanged, "
        f"{counts['failed']} failed" + (f"; {waiting} await review (kfm review list)" if waiting else "")
    )


def _display_counts(batch_counts: BatchCounts, as_json: bool) -> None:
    counts = asdict(batch_counts)
    if as_json:
        print_json(counts)
    else:
        console.print(", ".join(f"{count} {name}" for name, count in counts.items()))
