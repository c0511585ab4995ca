"""`kfm replay`: plans and runs replays."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from kfm_pipelines.console.options import Age, Instant, StorableText, default_option
from kfm_pipelines.console.output import console, json_option, progress, respond, stderr_console
from kfm_pipelines.console.session import current_session, open_services
from kfm_pipelines.declarations import Tolerance
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.operations.replay import commands
from kfm_pipelines.operations.replay.choose import KeyFilter
from kfm_pipelines.operations.replay.cli import display, options
from kfm_pipelines.operations.replay.cli.options import KeyCount, NumberRange
from kfm_pipelines.operations.replay.plan import ReplayRequest, make_plan
from kfm_pipelines.operations.replay.register import RegistrationResult, register_windows
from kfm_pipelines.operations.replay.status import ReplayStatus, read_replay_details, read_replay_status
from kfm_pipelines.services import Services
from kfm_pipelines.state import replays
from kfm_pipelines.state.replays import Mode, ReplayTerms

if TYPE_CHECKING:
    from kfm_pipelines.operations.replay.jobs import DaemonBatchRunner, LocalBatchRunner

MIN_POLL_SECONDS, MAX_POLL_SECONDS = 1.0, 5.0


@click.group()
def replay() -> None:
    """Rerun history, byte for byte or with the version declared now."""


@replay.command()
@click.option("--dataset", type=StorableText(), required=True, help="The dataset to replay.")
@click.option("--from", "start", type=Instant(), required=True, help="Start of the first window (UTC).")
@click.option("--to", "end", type=Instant(), required=True, help="Replay windows that start before this time (UTC).")
@click.option(
    "--where",
    multiple=True,
    type=StorableText(),
    metavar="FIELD=VALUE",
    help="Only keys of state=published|failed|unpublished, version=V, partition=P, late=yes|no.",
)
@click.option(
    "--mode",
    type=click.Choice(["reproduce", "upgrade"]),
    show_default="reproduce, with --register upgrade",
    help="reproduce: the same bytes again. upgrade: new keys with what is declared now.",
)
@click.option("--register", is_flag=True, help="First create keys and partitions for all windows, from the bucket.")
@click.option(
    "--include-open",
    is_flag=True,
    help="With --register: make keys of windows that are not closed due, as if their objects were announced now.",
)
@click.option("--rows-percent", type=NumberRange(0, 100), help="upgrade: how much row counts may differ.")
@click.option("--changed-percent", type=NumberRange(0, 100), help="upgrade: how many rows may differ.")
@click.option("--statistics-percent", type=NumberRange(0, 100), help="upgrade: how much statistics may differ.")
@click.option(
    "--columns", type=click.Choice(["identical", "additive", "any"]), help="upgrade: which columns may differ."
)
@options.by_option
@json_option
def plan(
    dataset: str, start: datetime, end: datetime, where: tuple[str, ...], register: bool, include_open: bool, by: str,
    as_json: bool, **chosen: Any,
) -> None:  # fmt: skip
    """Plan a replay: its keys, the reasons, the cost and the configuration.

    Runs nothing. With --include-open, keys of open windows become due like those of new objects.
    """
    if include_open and not register:
        raise click.UsageError("--include-open is about objects found in the bucket; it needs --register")
    mode: Mode = chosen.pop("mode") or ("upgrade" if register else "reproduce")
    given = {name: value for name, value in chosen.items() if value is not None}
    tolerance = Tolerance(**{"columns": "additive", **given}) if given else None
    if tolerance and mode == "reproduce":
        raise click.UsageError("a reproduction is byte for byte; tolerances are for --mode upgrade")
    request = ReplayRequest(dataset, start, end, mode, KeyFilter.parse(where), tolerance)
    with open_services() as services:
        registered = _register_windows(services, request, by, include_open=include_open) if register else None
        try:
            made = make_plan(services, request, by)
        except ReplayRefused as error:
            if registered is not None and not include_open:
                raise ReplayRefused(
                    f"{error}; --include-open takes in what lies in windows that are not closed"
                ) from None
            if registered is None or not registered.due:
                raise
            _respond_without_plan(registered, str(error), as_json)
            return
    respond(display.plan_document(made, registered), lambda: display.display_plan(made, registered), as_json=as_json)


def _respond_without_plan(registered: RegistrationResult, reason: str, as_json: bool) -> None:
    """All that was registered may lie in open windows; then there is work, but no replay."""
    document = {"replay": None, "note": reason, "registered": display.registration_document(registered)}
    note = f"nothing else needs a replay: {reason}"
    respond(document, lambda: display.display_registration(registered, note), as_json=as_json)


@replay.command()
@options.replay_argument
@default_option("--canary", default="3", type=KeyCount(), help="How many keys to try first, or what share: 5%.")
@default_option("--batch", default=200, type=click.IntRange(1, 5000), help="Keys per batch.")
@click.option("--rate", type=NumberRange(0.01, 100_000), help="Maximum keys a minute.")
@click.option("--time-box", type=Age(), help="Pause after this long: 90s, 15m, 2h.")
@default_option(
    "--max-attempts", default=3, type=click.IntRange(1, 100), help="Set a key aside after this many failures."
)
@default_option(
    "--quarantine-percent",
    default=10.0,
    type=NumberRange(0, 100),
    help="Stop when more than this share of the tried keys is set aside.",
)
@options.here_option
@options.by_option
@json_option
def run(replay_id: str, canary: str, here: bool, by: str, as_json: bool, **chosen: Any) -> None:
    """Run the plan ID: a few keys in the shadow tier first, then the rest in batches."""
    with open_services() as services:
        before = read_replay_status(services, replay_id)
        is_running = before.replay.state == "running"
        if is_running:
            options.refuse_new_terms(replay_id, ("canary", *chosen))
        box = chosen.pop("time_box")
        terms = ReplayTerms(
            canary=options.resolve_key_count(canary, before.total), time_box_seconds=box, here=here, **chosen
        )
        with _open_runner(services, here=here) as runner:
            if is_running:
                commands.resume(services, replay_id, by, here=here)
            else:
                results = commands.start(services, replay_id, terms, by)
                if not as_json:
                    display.display_canary_results(results)
            after = _run_with_progress(services, replay_id, runner, by, quiet=as_json)
        _display_result(services, after, as_json)


@replay.command()
@options.replay_argument
@options.here_option
@options.by_option
@json_option
def resume(replay_id: str, here: bool, by: str, as_json: bool) -> None:
    """Continue a paused or interrupted replay under its own terms."""
    with open_services() as services:
        replays.read(services.database, replay_id)
        with _open_runner(services, here=here) as runner:
            commands.resume(services, replay_id, by, here=here)
            after = _run_with_progress(services, replay_id, runner, by, quiet=as_json)
        _display_result(services, after, as_json)


@replay.command()
@options.replay_argument
@options.by_option
@json_option
def pause(replay_id: str, by: str, as_json: bool) -> None:
    """Start no more batches of a replay; the current one finishes."""
    with open_services() as services:
        commands.pause(services, replay_id, by)
        after = read_replay_status(services, replay_id)
    _display_state(after, as_json, f"continue with `kfm replay resume {replay_id}`")


@replay.command()
@options.replay_argument
@options.by_option
@json_option
def cancel(replay_id: str, by: str, as_json: bool) -> None:
    """End a replay for good; what it has published stays."""
    with open_services() as services, _open_daemon_runner(services) as daemon:
        commands.cancel(services, replay_id, by, daemon)
        after = read_replay_status(services, replay_id)
    _display_state(after, as_json, "what it has published stays")


@replay.command()
@click.argument("replay_id", metavar="[ID]", type=StorableText(), required=False)
@default_option("--limit", default=20, type=click.IntRange(1, 1000), help="How many to list.")
@json_option
def status(replay_id: str | None, limit: int, as_json: bool) -> None:
    """Show the progress of replay ID, or list the latest replays."""
    with open_services() as services:
        if replay_id is not None:
            _display_status(services, read_replay_status(services, replay_id), as_json)
            return
        latest = [read_replay_status(services, one.id) for one in replays.latest(services.database, limit)]
    document = {"replays": [one.as_document() for one in latest]}
    respond(document, lambda: display.display_list(latest), as_json=as_json)


def _register_windows(services: Services, request: ReplayRequest, by: str, *, include_open: bool) -> RegistrationResult:
    from kfm_pipelines.dispatch.partitions import register_partitions
    from kfm_pipelines.orchestration.instance import open_instance

    dataset = services.datasets[request.dataset]
    registered = register_windows(services, dataset, request.start, request.end, by, include_open=include_open)
    with open_instance() as instance:
        register_partitions(instance, dataset, registered.keys)
    return registered


@contextmanager
def _open_runner(services: Services, *, here: bool) -> "Iterator[LocalBatchRunner | DaemonBatchRunner]":
    """Opens what runs batches. Refuses before anything is changed when no daemon is running."""
    from kfm_pipelines.operations.replay.jobs import LocalBatchRunner, refuse_without_daemon
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
    from kfm_pipelines.operations.replay.jobs import DaemonBatchRunner
    from kfm_pipelines.orchestration.instance import open_instance

    with open_instance() as instance:
        yield DaemonBatchRunner(
            instance, lambda: current_session().definitions(services.settings.resources).resolve_asset_graph()
        )


def _run_with_progress(
    services: Services, replay_id: str, runner: "LocalBatchRunner | DaemonBatchRunner", by: str, *, quiet: bool
) -> ReplayStatus:
    """Waits until the replay is over or paused. Ctrl-C pauses a local replay; a daemon continues unwatched."""
    from kfm_pipelines.operations.replay.jobs import LocalBatchRunner, run_in_process

    total = read_replay_status(services, replay_id).total
    is_local = isinstance(runner, LocalBatchRunner)
    try:
        with progress(f"replay {replay_id}", total, quiet=quiet) as update:
            if isinstance(runner, LocalBatchRunner):
                run_in_process(
                    services, replay_id, runner, lambda _: update(read_replay_status(services, replay_id).decided)
                )
            else:
                _watch(services, replay_id, runner, update)
    except KeyboardInterrupt:
        stderr_console.print(_handle_interrupt(services, replay_id, by, here=is_local))
        raise click.Abort from None
    return read_replay_status(services, replay_id)


def _watch(services: Services, replay_id: str, runner: "DaemonBatchRunner", update: Callable[[int], None]) -> None:
    """Takes steps as the sensor does, so that nothing waits for its next tick."""
    from kfm_pipelines.operations.replay.advance import advance
    from kfm_pipelines.operations.replay.jobs import refuse_without_daemon

    while True:
        refuse_without_daemon(runner.instance)  # it may have stopped
        step = advance(services, replay_id, runner)
        current = read_replay_status(services, replay_id)
        update(current.decided)
        if current.replay.state != "running":
            return
        time.sleep(max(MIN_POLL_SECONDS, min(step.wait_seconds, MAX_POLL_SECONDS) if step else 0.0))


def _handle_interrupt(services: Services, replay_id: str, by: str, *, here: bool) -> str:
    if here:
        commands.pause(services, replay_id, by, "interrupted")
        return f"replay {replay_id} is paused; continue with `kfm replay resume {replay_id} --here`"
    return (
        f"Dagster's daemon continues replay {replay_id}; `kfm replay pause {replay_id}` pauses it, "
        f"`kfm replay status {replay_id}` shows its progress"
    )


def _display_result(services: Services, after: ReplayStatus, as_json: bool) -> None:
    _display_status(
        services, after, as_json, ok=after.replay.state != "stopped" and not after.states.get("quarantined")
    )


def _display_status(services: Services, current: ReplayStatus, as_json: bool, *, ok: bool = True) -> None:
    details = read_replay_details(services, current.replay.id)
    document = {**current.as_document(), **details}
    respond(document, lambda: display.display_status(current, details), as_json=as_json, ok=ok)


def _display_state(current: ReplayStatus, as_json: bool, hint: str) -> None:
    one = current.replay
    sentence = f"replay {one.id} is {one.state}, {current.decided} of {current.total} keys decided; {hint}"
    respond(current.as_document(), lambda: console.print(sentence), as_json=as_json)
