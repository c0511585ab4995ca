"""Redrives dead letters, a few first. Steps are recorded before and after, so nothing is sent twice."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from kfm_pipelines.aws.queue import MAX_ATTRIBUTES
from kfm_pipelines.errors import RedriveStopped, ServiceUnavailable, Terminal
from kfm_pipelines.events.body import MAX_BYTES
from kfm_pipelines.inbox.drain import MAX_DRAIN_SECONDS, drain
from kfm_pipelines.inbox.parse import REDRIVE
from kfm_pipelines.operations.dead_letters import redrive_tables
from kfm_pipelines.operations.dead_letters.export import queue_of
from kfm_pipelines.operations.dead_letters.redrive_tables import IN_FLIGHT, UNDECIDED, RedriveItem
from kfm_pipelines.operations.dead_letters.tables import Letter, LetterFilter, find_letters, read_letter
from kfm_pipelines.services import Services
from kfm_pipelines.state import kill_switch

POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class RedriveProgress:
    total: int = 0
    sent: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def decided(self) -> int:
        return self.succeeded + self.failed


@dataclass(frozen=True, slots=True)
class RedriveOptions:
    """`work` processes what has arrived, where no daemon does."""

    wait_seconds: float
    work: Callable[[], object] = lambda: None
    on_progress: Callable[[RedriveProgress], None] = lambda _: None
    sleep: Callable[[float], None] = time.sleep


def describe(services: Services, letter: Letter) -> str:
    if letter.body is None:
        return f"make the key {letter.key} due again, with all its attempts"
    queue = queue_of(services, letter).name
    if obstacle := _obstacle(letter, {**letter.attributes, REDRIVE: f"r{'0' * 12}.{letter.id}"}):
        return f"fail, because {obstacle}"
    group = f", group {letter.message_group}" if letter.message_group else ""
    names = ", ".join(sorted(letter.attributes)) or "none"
    return f"send {letter.size} bytes to queue {queue}{group}, attributes: {names}"


def begin(services: Services, letter_filter: LetterFilter, *, limit: int, canary: int, rate: float) -> str | None:
    """Returns the new id, or None when none matches. Refuses killed datasets, whose keys would never be decided."""
    killed = kill_switch.killed_datasets(services.database)
    letters = find_letters(services.database, letter_filter, limit)
    if named := next((letter.dataset for letter in letters if letter.dataset in killed), None):
        raise RedriveStopped(f"{killed[named]}; release it first with `kfm unkill {named}`")
    redrive_id = f"r{uuid4().hex[:12]}"
    bound = redrive_tables.start_redrive(
        services.database, redrive_id, letter_filter, limit=limit, canary=canary, rate=rate
    )
    return redrive_id if bound else None


def run_redrive(services: Services, redrive_id: str, options: RedriveOptions) -> RedriveProgress:
    """Sends the canary first. Raises RedriveStopped if it fails; an undecided redrive can be resumed."""
    redrive = redrive_tables.read_redrive(services.database, redrive_id)
    if redrive.state != "running":
        raise RedriveStopped(
            f"redrive {redrive_id} has ended: {redrive.state}{f', {redrive.note}' if redrive.note else ''}"
        )
    items = redrive_tables.items_of(services.database, redrive_id)
    _resolve_in_doubt(services, [item for item in items if item.state in IN_FLIGHT], options)
    first, rest = items[: redrive.canary], items[redrive.canary :]
    _send(services, redrive_id, first, redrive.rate, options)
    _wait_until_decided(services, redrive_id, first, options)
    states = redrive_tables.item_states(services.database, redrive_id)
    failures = [states[item.place][1] for item in first if states[item.place][0] == "failed"]
    if failures:
        dropped = redrive_tables.end_redrive(
            services.database, redrive_id, "stopped", f"the canary failed: {failures[0]}"
        )
        raise RedriveStopped(
            f"{len(failures)} of the first {len(first)} failed again; {dropped} not sent: {failures[0]}"
        )
    _send(services, redrive_id, rest, redrive.rate, options)
    _wait_until_decided(services, redrive_id, rest, options)
    redrive_tables.end_redrive(services.database, redrive_id, "done")
    return progress_of(services, redrive_id)


def stop(services: Services, redrive_id: str) -> int:
    redrive_tables.read_redrive(services.database, redrive_id)
    return redrive_tables.end_redrive(services.database, redrive_id, "stopped", "stopped by hand", UNDECIDED)


def progress_of(services: Services, redrive_id: str) -> RedriveProgress:
    states = [state for state, _ in redrive_tables.item_states(services.database, redrive_id).values()]
    waiting = states.count("planned") + states.count("dropped")
    return RedriveProgress(len(states), len(states) - waiting, states.count("succeeded"), states.count("failed"))


def _send(
    services: Services, redrive_id: str, items: Sequence[RedriveItem], rate: float, options: RedriveOptions
) -> None:
    states = redrive_tables.item_states(services.database, redrive_id)
    for item in items:
        if states[item.place][0] == "planned":
            _send_one(services, item)
            options.on_progress(progress_of(services, redrive_id))
            options.sleep(1 / rate)


def _send_one(services: Services, item: RedriveItem) -> None:
    letter = item.letter
    if letter.body is None:
        redrive_tables.make_key_due(services.database, item.token, str(letter.key))
        return
    queue = queue_of(services, letter)
    fifo = queue.name.endswith(".fifo")
    attributes = {**letter.attributes, REDRIVE: item.token}
    if obstacle := _obstacle(letter, attributes):
        redrive_tables.fail_item(services.database, item.token, obstacle)
        return
    if not redrive_tables.mark_item(services.database, item.token, "sending", only_from=["planned"]):
        return  # another process runs this redrive too, and was first
    try:
        queue.send(
            str(read_letter(services.database, letter.id).body),
            attributes,
            group=(letter.message_group or "kfm-letters") if fifo else None,
            # Otherwise SQS would silently drop the same body within five minutes.
            deduplication_id=item.token if fifo else None,
            types=letter.attribute_types,
        )
    except Terminal as error:
        redrive_tables.fail_item(services.database, item.token, str(error))
        return
    redrive_tables.mark_item(services.database, item.token, "sent", only_from=["sending"])


def _obstacle(letter: Letter, attributes: Mapping[str, str]) -> str:
    if not letter.size:
        return "its message was not kept"
    if len(attributes) > MAX_ATTRIBUTES:
        return "it has so many attributes that none can be added"
    size = sum(len(f"{name}String{value}".encode()) for name, value in attributes.items())
    if letter.size + size > MAX_BYTES:
        return "it is so large that no attribute can be added"
    return ""


def _resolve_in_doubt(services: Services, items: Sequence[RedriveItem], options: RedriveOptions) -> None:
    """Drains the queue of unconfirmed items until they arrive or it is empty; then they are sent again."""
    deadline = time.monotonic() + options.wait_seconds
    for item in items:
        queue = queue_of(services, item.letter)
        while True:
            depth = queue.depth()
            drain(services, queue, budget_seconds=MAX_DRAIN_SECONDS)
            empty = depth.waiting + depth.in_flight == 0
            if empty and redrive_tables.mark_item(services.database, item.token, "planned", only_from=IN_FLIGHT):
                break
            states = redrive_tables.item_states(services.database, item.token.rpartition(".")[0])
            if states[item.place][0] not in IN_FLIGHT:
                break
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f"letter {item.letter.id} may already be in queue {queue.name}, where other consumers hold "
                    "messages; resume this redrive when they are done"
                )
            options.sleep(POLL_SECONDS)


def _wait_until_decided(
    services: Services, redrive_id: str, items: Sequence[RedriveItem], options: RedriveOptions
) -> None:
    places = {item.place for item in items}
    deadline = time.monotonic() + options.wait_seconds
    while True:
        options.work()
        redrive_tables.settle_items(services.database, redrive_id)
        states = redrive_tables.item_states(services.database, redrive_id)
        options.on_progress(progress_of(services, redrive_id))
        undecided = [place for place in places if states[place][0] in UNDECIDED]
        if not undecided:
            return
        if time.monotonic() > deadline:
            raise ServiceUnavailable(
                f"{len(undecided)} of {len(places)} are sent but not decided after {options.wait_seconds:.0f} s; "
                f"make sure Dagster's daemon or `kfm work` is running, then `kfm dlq redrive --resume {redrive_id}`"
            )
        options.sleep(POLL_SECONDS)
