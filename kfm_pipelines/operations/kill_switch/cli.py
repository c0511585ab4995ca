"""`kfm kill` and `kfm unkill`: stop a dataset in a second, and let it go on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from kfm_pipelines.console.options import StorableText, actor_and_reason_options
from kfm_pipelines.console.output import console, json_option, print_json
from kfm_pipelines.console.session import open_services
from kfm_pipelines.operations.kill_switch import switch
from kfm_pipelines.services import Services, set_up
from kfm_pipelines.state import kill_switch as kills


def switch_options(command: Callable[..., None]) -> Callable[..., None]:
    """What both moves of the switch need."""
    for option in (
        json_option,
        actor_and_reason_options,
        click.argument("dataset", type=StorableText()),
    ):
        command = option(command)
    return command


@click.command()
@switch_options
def kill(dataset: str, reason: str, by: str, as_json: bool) -> None:
    """Stop DATASET: once this has returned, nothing of it is published, whatever is under way.

    Events are still recorded; `kfm unkill` lets everything go on that came due meanwhile.
    """
    with _open_database_services() as services:
        switch.kill(services, dataset, by, reason)
        keys = dict(_count_waiting_keys(services)).get(dataset, 0)
    if as_json:
        print_json({"dataset": dataset, "killed": True, "keys_waiting": keys})
    else:
        console.print(f"{dataset} is killed: nothing of it is published until `kfm unkill`; {keys} keys wait")


@click.command()
@switch_options
def unkill(dataset: str, reason: str, by: str, as_json: bool) -> None:
    """Let DATASET go on after `kfm kill`."""
    with _open_database_services() as services:
        keys = dict(_count_waiting_keys(services)).get(dataset, 0)
        was_killed = switch.unkill(services, dataset, by, reason)
    if as_json:
        print_json({"dataset": dataset, "killed": False, "was_killed": was_killed, "keys_due": keys})
    elif was_killed:
        console.print(f"{dataset} goes on: {keys} keys are due, for the next run or `kfm work --once`")
    else:
        console.print(f"{dataset} was not killed; nothing is changed")


@contextmanager
def _open_database_services() -> Iterator[Services]:
    """Only the database is needed: a wrong declaration or a queue that is away must not keep anybody from this."""
    with open_services(prepared=False) as services:
        set_up(services, cloud=False)
        yield services


def _count_waiting_keys(services: Services) -> list[tuple[str, int]]:
    return [(killed.dataset, keys) for killed, keys in kills.killed_with_due_keys(services.database)]
