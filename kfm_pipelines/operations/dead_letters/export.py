"""Filing dead letters: a record in the store for those who review, a copy in the dead-letter queue for those on call.

The letter in Postgres comes first, in the transaction that found the failure. Filing follows it, may stop between any
two steps, and goes on the next time. Belongs here: getting letters out. Does not: what is done about them.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kfm_pipelines.aws.queue import MAX_ATTRIBUTES, Queue
from kfm_pipelines.energy.ledger import total_cpu_seconds, total_energy, transaction_totals
from kfm_pipelines.errors import Terminal
from kfm_pipelines.events.body import MAX_BYTES
from kfm_pipelines.operations.dead_letters import tables
from kfm_pipelines.operations.dead_letters.remedies import findings_with_remedies
from kfm_pipelines.operations.dead_letters.summary import summarise_body
from kfm_pipelines.operations.dead_letters.tables import Letter
from kfm_pipelines.services import Services
from kfm_pipelines.stores.layout import UNROUTED, dead_letter, quarantine_record
from kfm_pipelines.text import redact_coordinates, truncate_line

LETTERS_AT_ONCE = 50
BUDGET_SECONDS = 5.0
MAX_HISTORY = 50
LETTER_ATTRIBUTE = "kfm-letter"  # on a copy in a dead-letter queue: which letter it is of
ATTRIBUTE_RESERVE_BYTES = 8 * 1024


def export_letters(services: Services, *, budget_seconds: float = BUDGET_SECONDS) -> list[str]:
    """Write the records that are missing and forward the letters that are not in the dead-letter queue yet; return what
    could not be done for a letter. One that cannot be filed holds up no other."""
    deadline = time.monotonic() + budget_seconds
    problems: list[str] = []
    for waiting, do, mark_done in (
        (tables.find_unfiled, _write_record, tables.mark_filed),
        (tables.find_unforwarded, _forward, tables.mark_forwarded),
    ):
        for letter in waiting(services.database, LETTERS_AT_ONCE):
            if time.monotonic() > deadline:
                break
            with _collect_problems(letter, problems):
                do(services, letter)
                mark_done(services.database, letter)
    return problems


@contextmanager
def _collect_problems(letter: Letter, problems: list[str]) -> Iterator[None]:
    try:
        yield
    except Terminal as error:
        problems.append(f"letter {letter.id}: {error}")


def letter_record(services: Services, letter: Letter) -> dict[str, Any]:
    """What a reviewer may know of a letter: everything but the raw payload."""
    return {
        "letter": letter.id,
        "state": letter.state,
        "class": letter.triage,
        "failure_stage": letter.failure_stage,
        "error": letter.error,
        "reason": redact_coordinates(letter.reason),
        "trace": letter.trace.splitlines(),
        "retry_count": letter.attempts,
        "dataset": letter.dataset,
        "key": letter.key,
        "queue": letter.queue,
        "message_group": letter.message_group,
        "findings": _findings(services, letter),
        "payload": None if letter.body is None else summarise_body(letter.body),
        "lineage": {**letter.lineage, "run": letter.run_id},
        "cost": _cost(services, letter),
        "opened_at": letter.at.isoformat(),
        "changed_at": letter.changed_at.isoformat(),
        "history": [
            {"at": move["at"].isoformat(), "what": move["what"], **_redact_detail(move["detail"])}
            for move in tables.history_of(services.database, letter.id)[-MAX_HISTORY:]
        ],
    }


def _findings(services: Services, letter: Letter) -> list[dict[str, Any]]:
    """What the gates found in the transaction that failed."""
    txn = letter.lineage.get("txn")
    return findings_with_remedies(services, letter.key, txn) if letter.key and txn else []


def _cost(services: Services, letter: Letter) -> dict[str, Any]:
    """Of the attempt that failed, as far as its stages have ended. What is not known is null, and never 0."""
    txn = letter.lineage.get("txn")
    spent = transaction_totals(services.database, letter.key, txn) if letter.key and txn else ()
    energy = total_energy(spent)
    return {
        "wall_seconds": letter.cost.get("seconds"),
        "cpu_seconds": total_cpu_seconds(spent),
        "energy_method": energy.method,
        "energy_joules": energy.watt_seconds,
        "carbon_grams_estimated": energy.carbon_grams,
        "cost_usd_estimated": energy.cost_usd,
    }


def _redact_detail(detail: Mapping[str, Any]) -> dict[str, Any]:
    return {name: redact_coordinates(value) if name == "reason" else value for name, value in detail.items()}


def queue_of(services: Services, letter: Letter) -> Queue:
    """Where the letter's message came from, and goes back to."""
    return next((intake.queue for intake in services.intakes if intake.queue.name == letter.queue), services.queue)


def dead_letter_queue_of(services: Services, letter: Letter) -> Queue:
    source = queue_of(services, letter)
    return next(intake.dead_letters for intake in services.intakes if intake.queue.name == source.name)


def _write_record(services: Services, letter: Letter) -> None:
    record = json.dumps(letter_record(services, letter), indent=2).encode()
    pipeline = _pipeline(services, letter)
    services.store.write(dead_letter(pipeline, letter.at.date(), letter.source), record)
    if letter.state == "quarantined":
        services.store.write(quarantine_record(pipeline, letter.at.date(), letter.source), record)


def _pipeline(services: Services, letter: Letter) -> str:
    if letter.dataset is None or letter.dataset not in services.datasets:
        return UNROUTED
    return services.datasets[letter.dataset].pipeline


def _forward(services: Services, letter: Letter) -> None:
    target = dead_letter_queue_of(services, letter)
    fifo = target.name.endswith(".fifo")
    target.send(
        _forwarded_body(services, letter),
        _attributes(letter),
        # A group of its own: copies stay, and in the message's own group nothing behind them would ever be seen.
        group=f"letter-{letter.id}" if fifo else None,
        deduplication_id=f"letter-{letter.id}-{letter.changed_at.timestamp():.6f}" if fifo else None,
    )


def _forwarded_body(services: Services, letter: Letter) -> str:
    """The message itself; the record for a key, and for a message that with its reasons would be too large for SQS."""
    body = letter.body
    if body is None or len(body.encode()) > MAX_BYTES - ATTRIBUTE_RESERVE_BYTES:
        return json.dumps({"kfm_letter": letter_record(services, letter)})
    return body


def _attributes(letter: Letter) -> dict[str, str]:
    """Why it is there, and as many of its own attributes as SQS has room for; the letter itself keeps them all."""
    reasons = {
        LETTER_ATTRIBUTE: str(letter.id),
        "kfm-class": letter.triage,
        "kfm-error": letter.error,
        "kfm-stage": letter.failure_stage,
        "kfm-reason": redact_coordinates(truncate_line(letter.reason, 500)),
        "kfm-dataset": letter.dataset or "",
        "kfm-key": letter.key or "",
    }
    stated = {name: value for name, value in reasons.items() if value}
    plain = {name: value for name, value in letter.attributes.items() if name not in letter.attribute_types}
    own = [(name, value) for name, value in plain.items() if value and len(value) < 500]
    return {**dict(own[: MAX_ATTRIBUTES - len(stated)]), **stated}
