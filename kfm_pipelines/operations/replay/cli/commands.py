"""`kfm replay`: do history again, from a plan, a few keys first."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from kfm_pipelines.console.options import Age, StorableText
from kfm_pipelines.console.output import console, json_option, print_json, progress, stderr_console
from kfm_pipelines.console.session import current_session, open_services
from kfm_pipelines.declarations import Tolerance
from kfm_pipelines.operations.replay import commands
from kfm_pipelines.operations.replay import plan as planning
from kfm_pipelines.operations.replay import register as registering
from kfm_pipelines.operations.replay.choose import KeyFilter
from kfm_pipelines.operations.replay.cli import tables
from kfm_pipelines.operations.replay.cli.options import (
    Instant,
    KeyCount,
    NumberRange,
    by_option,
    refuse_new_terms,
    resolve_key_count,
)
from kfm_pipelines.operations.replay.status import ReplayStatus, read_replay_details, read_replay_status
from kfm_pipelines.services import Services
from kfm_pipelines.state import replays
from kfm_pipelines.state.replays import Mode, ReplayTerms

if TYPE_CHECKING:
    from kfm_pipelines.operations.replay.backfills import DaemonBatchRunner, LocalBatchRunner

POLL_SECONDS = 1.0


@click.group()
def replay() -> None:
    """Replays: history done again, byte for byte or with the version declared now."""


@replay.command()
@click.option("--dataset", type=StorableText(), required=True, help="Which dataset.")
@click.option("--from", "start", type=Instant(), required=True, help="The first window begins here (UTC).")
@click.option("--to", "end", type=Instant(), required=True, help="The first window that is not part of it.")
@click.option("--where", multiple=True, type=StorableText(), metavar="FIELD=VALUE",
              help="Only: state=published|failed|unpublished, version=V, partition=P, late=yes|no.")  # fmt: skip
@click.option("--mode", type=click.Choice(["reproduce", "upgrade"]), show_default="reproduce, with --register upgrade",
              help="reproduce: as it was, byte for byte. upgrade: with what is declared now, as new keys.")  # fmt: skip
@click.option(
    "--register", is_flag=True, help="First make keys and partitions of all windows, from what is in the bucket."
)
@click.option("--rows-percent", type=NumberRange(0, 100), help="upgrade: how far row counts may be apart.")
@click.option("--changed-percent", type=NumberRange(0, 100), help="upgrade: how many rows may differ.")
@click.option("--statistics-percent", type=NumberRange(0, 100), help="upgrade: how far statistics may be apart.")
@click.option(
    "--columns", type=click.Choice(["identical", "additive", "any"]), help="upgrade: which columns may differ."
)
@by_option
@json_option
def plan(
    dataset: str, start: datetime, end: datetime, where: tuple[str, ...], register: bool, by: str, as_json: bool,
    **chosen: Any,
) -> None:  # fmt: skip
    """Plan a replay: which keys, why, what it will cost, and for which configuration. Runs nothing."""
    mode: Mode = chosen.pop("mode") or ("upgrade" if register else "reproduce")
    tolerance = _tolerance(chosen)
    if tolerance and mode == "reproduce":
        raise click.UsageError("a reproduction is byte for byte; tolerances are for --mode upgrade")
    conditions = KeyFilter.parse(where)
    with open_services() as services:
        registered = _register_windows(services, dataset, start, end, by) if register else None
        wish = planning.ReplayRequest(dataset, start, end, mode, conditions, tolerance)
        made = planning.make_plan(services, wish, by)
    if as_json:
        print_json(tables.plan_document(made, registered))
    else:
        tables.display_plan(made, registered)


@replay.command()
@click.argument("replay_id", metavar="ID", type=StorableText())
@click.option(
    "--canary", default="3", show_default=True, type=KeyCount(), help="Try so many keys first, or a share: 5%."
)
@click.option(
    "--batch", default=200, show_default=True, type=click.IntRange(1, 5000), help="Ask for so many keys at once."
)
@click.option("--rate", type=NumberRange(0.01, 100_000), help="So many keys a minute at most.")
@click.option("--time-box", type=Age(), help="Pause after so long: 90s, 15m, 2h.")
@click.option("--max-attempts", default=3, show_default=True, type=click.IntRange(1, 100),
              help="Set a key aside that failed so often.")  # fmt: skip
@click.option("--quarantine-percent", default=10.0, show_default=True, type=NumberRange(0, 100),
              help="Stop when more of the tried keys than this are set aside.")  # fmt: skip
@click.option("--here", is_flag=True, help="Carry it out in this process, where no daemon runs.")
@by_option
@json_option
def run(replay_id: str, canary: str, here: bool, by: str, as_json: bool, **chosen: Any) -> None:
    """Carry out the plan ID: a few keys in the shadow first, then the rest in batches."""
    with open_services() as services:
        standing = read_replay_status(services, replay_id)
        if standing.replay.state == "running":
            refuse_new_terms(replay_id, ("canary", *chosen))
        terms = ReplayTerms(
            canary=resolve_key_count(canary, standing.total),
            batch=chosen["batch"],
            rate=chosen["rate"],
            time_box_seconds=chosen["time_box"],
            max_attempts=chosen["max_attempts"],
            quarantine_percent=chosen["quarantine_percent"],
            here=here,
        )
        with _open_runner(services, here=here) as hands:
            if standing.replay.state == "running":
                commands.resume(services, replay_id, by, here=here)
            else:
                tried = commands.start(services, replay_id, terms, by)
                if not as_json:
                    tables.display_canary_results(tried)
            standing = _run_with_progress(services, replay_id, hands, by, quiet=as_json)
        _display_result(services, standing, as_json)


@replay.command()
@click.argument("replay_id", metavar="ID", type=StorableText())
@click.option("--here", is_flag=True, help="Carry it out in this process, where no daemon runs.")
@by_option
@json_option
def resume(replay_id: str, here: bool, by: str, as_json: bool) -> None:
    """Go on with a replay that was paused or interrupted, under its own terms."""
    with open_services() as services:
        replays.read(services.database, replay_id)
        with _open_runner(services, here=here) as hands:
            commands.resume(services, replay_id, by, here=here)
            standing = _run_with_progress(services, replay_id, hands, by, quiet=as_json)
        _display_result(services, standing, as_json)


@replay.command()
@click.argument("replay_id", metavar="ID", type=StorableText())
@by_option
@json_option
def pause(replay_id: str, by: str, as_json: bool) -> None:
    """Ask for no more batches of a replay; what was asked for goes on to its end."""
    with open_services() as services:
        commands.pause(services, replay_id, by)
        standing = read_replay_status(services, replay_id)
    _display_state(standing, as_json, f"go on with `kfm replay resume {replay_id}`")


@replay.command()
@click.argument("replay_id", metavar="ID", type=StorableText())
@by_option
@json_option
def cancel(replay_id: str, by: str, as_json: bool) -> None:
    """Give a replay up for good; what it has published stays."""
    with open_services() as services, _open_daemon_runner(services) as daemon:
        commands.cancel(services, replay_id, by, daemon)
        standing = read_replay_status(services, replay_id)
    _display_state(standing, as_json, "what it has published stays")


@replay.command()
@click.argument("replay_id", metavar="[ID]", type=StorableText(), required=False)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="List so many.")
@json_option
def status(replay_id: str | None, limit: int, as_json: bool) -> None:
    """Show how far replay ID is, or list the latest."""
    with open_services() as services:
        if replay_id is None:
            latest = [read_replay_status(services, one.id) for one in replays.latest(services.database, limit)]
            if as_json:
                print_json({"replays": [one.as_document() for one in latest]})
            else:
                tables.display_list(latest)
            return
        standing, details = read_replay_status(services, replay_id), read_replay_details(services, replay_id)
    if as_json:
        print_json({**standing.as_document(), **details})
    else:
        tables.display_status(standing, details)


def _tolerance(options: dict[str, Any]) -> Tolerance | None:
    given = {name: value for name, value in options.items() if value is not None}
    return Tolerance(**{"columns": "additive", **given}) if given else None


def _register_windows(
    services: Services, name: str, start: datetime, end: datetime, by: str
) -> registering.RegistrationResult:
    from kfm_pipelines.dispatch.dispatch import register_partitions
    from kfm_pipelines.orchestration.instance import open_instance

    dataset = services.datasets[name]
    registered = registering.register_windows(services, dataset, start, end, by)
    with open_instance() as instance:
        register_partitions(instance, dataset, registered.keys)
    return registered


@contextmanager
def _open_runner(services: Services, *, here: bool) -> "Iterator[LocalBatchRunner | DaemonBatchRunner]":
    """Whoever carries out batches; refused before anything is moved when nobody would."""
    from kfm_pipelines.operations.replay.backfills import LocalBatchRunner, refuse_without_daemon
    from kfm_pipelines.orchestration.instance import open_instance

    if here:
        with open_instance() as instance:
            yield LocalBatchRunner(instance, services, current_session().definitions(services.settings.resources))
        return
    with _open_daemon_runner(services) as daemon:
        refuse_without_daemon(daemon.instance)
        yield daemon


@contextmanager
def _open_daemon_runner(services: Services) -> "Iterator[DaemonBatchRunner]":
    from kfm_pipelines.operations.replay.backfills import DaemonBatchRunner
    from kfm_pipelines.orchestration.instance import open_instance

    with open_instance() as instance:
        yield DaemonBatchRunner(
            instance, lambda: current_session().definitions(services.settings.resources).resolve_asset_graph()
        )


def _run_with_progress(
    services: Services, replay_id: str, runner: "LocalBatchRunner | DaemonBatchRunner", by: str, *, quiet: bool
) -> ReplayStatus:
    """Until it is over or paused, with a bar. Stopping to look stops no daemon; in this process it stops the work."""
    from kfm_pipelines.operations.replay.backfills import LocalBatchRunner, run_in_process

    total = read_replay_status(services, replay_id).total
    try:
        with progress(f"replay {replay_id}", total, quiet=quiet) as show_done:
            if isinstance(runner, LocalBatchRunner):
                run_in_process(
                    services, replay_id, runner, lambda _: show_done(read_replay_status(services, replay_id).decided)
                )
            else:
                _watch(services, replay_id, runner, show_done)
    except KeyboardInterrupt:
        stderr_console.print(_handle_interrupt(services, replay_id, by, here=isinstance(runner, LocalBatchRunner)))
        raise click.Abort from None
    return read_replay_status(services, replay_id)


def _watch(
    services: Services, replay_id: str, runner: "DaemonBatchRunner", update_progress: Callable[[int], None]
) -> None:
    """Take steps as the sensor does, so that nothing waits for its next tick, and look."""
    from kfm_pipelines.operations.replay.advance import advance
    from kfm_pipelines.operations.replay.backfills import refuse_without_daemon

    while True:
        refuse_without_daemon(runner.instance)  # it may have been stopped meanwhile
        step = advance(services, replay_id, runner)
        standing = read_replay_status(services, replay_id)
        update_progress(standing.decided)
        if standing.replay.state != "running":
            return
        time.sleep(max(POLL_SECONDS, min(step.wait_seconds, 5.0) if step else 0.0))


def _handle_interrupt(services: Services, replay_id: str, by: str, *, here: bool) -> str:
    if here:
        commands.pause(services, replay_id, by, "interrupted")
        return f"replay {replay_id} is paused; go on with `kfm replay resume {replay_id} --here`"
    return (
        f"replay {replay_id} goes on: Dagster's daemon carries it out; `kfm replay pause {replay_id}` pauses it, "
        f"`kfm replay status {replay_id}` shows it"
    )


def _display_result(services: Services, replay_status: ReplayStatus, as_json: bool) -> None:
    details = read_replay_details(services, replay_status.replay.id)
    if as_json:
        print_json({**replay_status.as_document(), **details})
    else:
        tables.display_status(replay_status, details)
    if replay_status.replay.state == "stopped" or replay_status.states.get("quarantined"):
        raise click.exceptions.Exit(1)


def _display_state(replay_status: ReplayStatus, as_json: bool, hint: str) -> None:
    if as_json:
        print_json(replay_status.as_document())
    else:
        one = replay_status.replay
        console.print(
            f"replay {one.id} is {one.state}, {replay_status.decided} of {replay_status.total} keys decided; {hint}"
        )
