"""`kfm kill` and `kfm unkill`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from kfm_pipelines.console.options import StorableText, actor_and_reason_options
from kfm_pipelines.console.output import console, json_option, respond
from kfm_pipelines.console.session import open_services
from kfm_pipelines.operations.kill_switch import switch
from kfm_pipelines.services import Services, set_up
from kfm_pipelines.state import kill_switch as kills


def switch_options(command: Callable[..., None]) -> Callable[..., None]:
    return json_option(actor_and_reason_options(click.argument("dataset", type=StorableText())(command)))


@click.command()
@switch_options
def kill(dataset: str, reason: str, by: str, as_json: bool) -> None:
    """Stop DATASET: once this returns, nothing of it is published, not even by runs that have begun.

    Events are still recorded; after `kfm unkill` everything that came due meanwhile is processed.
    """
    with _open_database_services() as services:
        switch.kill(services, dataset, by, reason)
        keys = _count_waiting_keys(services, dataset)
    line = f"{dataset} is killed: nothing of it is published until `kfm unkill`; keys waiting: {keys}"
    document = {"dataset": dataset, "killed": True, "keys_waiting": keys}
    respond(document, lambda: console.print(line), as_json=as_json)


@click.command()
@switch_options
def unkill(dataset: str, reason: str, by: str, as_json: bool) -> None:
    """Let DATASET continue after `kfm kill`."""
    with _open_database_services() as services:
        keys = _count_waiting_keys(services, dataset)
        was_killed = switch.unkill(services, dataset, by, reason)
    line = f"{dataset} was not killed; nothing has changed"
    if was_killed:
        line = f"{dataset} continues; keys due for the next run or `kfm work --once`: {keys}"
    document = {"dataset": dataset, "killed": False, "was_killed": was_killed, "keys_due": keys}
    respond(document, lambda: console.print(line), as_json=as_json)


@contextmanager
def _open_database_services() -> Iterator[Services]:
    """Needs only the database, so an invalid declaration or an unreachable queue cannot prevent a kill."""
    with open_services(prepared=False) as services:
        set_up(services, cloud=False)
        yield services


def _count_waiting_keys(services: Services, dataset: str) -> int:
    waiting = {killed.dataset: keys for killed, keys in kills.killed_with_due_keys(services.database)}
    return waiting.get(dataset, 0)
