"""Exports dead letters to the store and to the dead-letter queue; may stop between any two letters."""

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kfm_pipelines.aws.queue import MAX_ATTRIBUTES, Queue
from kfm_pipelines.energy.ledger import total_cpu_seconds, total_energy, transaction_totals
from kfm_pipelines.errors import BodyUnreadable, Terminal
from kfm_pipelines.events.body import MAX_BYTES, read_body
from kfm_pipelines.gates.remedies import remedy_of
from kfm_pipelines.gates.verdict import WORST_FIRST
from kfm_pipelines.operations.dead_letters import tables
from kfm_pipelines.operations.dead_letters.tables import Letter
from kfm_pipelines.services import Services
from kfm_pipelines.stages.validate.report import quarantine_locations
from kfm_pipelines.state.verdicts import verdicts_of
from kfm_pipelines.stores.layout import UNROUTED, dead_letter, quarantine_record
from kfm_pipelines.text import WITHHELD, redact_coordinates, truncate_line

LETTERS_AT_ONCE = 50
BUDGET_SECONDS = 5.0
MAX_HISTORY = 50
LETTER_ATTRIBUTE = "kfm-letter"  # on a copy in a dead-letter queue: its letter
ATTRIBUTE_RESERVE_BYTES = 8 * 1024
MAX_FIELDS = 40
MAX_DEPTH = 4
MAX_TEXT_LENGTH = 120

_SENSITIVE_NAME = re.compile(
    r"lat|lon|lng|coord|geom|wkt|bbox|place|where|address|secret|token|passw|credential|signature|authori|cookie"
    r"|principal|sourceip|x-amz|unsubscribe",
    re.IGNORECASE,
)


def export_letters(services: Services) -> list[str]:
    """Writes records and forwards letters. Returns problems of single letters, which hold up no others."""
    deadline = time.monotonic() + BUDGET_SECONDS
    problems: list[str] = []
    for condition, do, mark_done in (
        (tables.UNFILED, _write_record, tables.mark_filed),
        (tables.UNFORWARDED, _forward, tables.mark_forwarded),
    ):
        for letter in tables.find_to_export(services.database, condition, LETTERS_AT_ONCE):
            if time.monotonic() > deadline:
                break
            try:
                do(services, letter)
                mark_done(services.database, letter)
            except Terminal as error:
                problems.append(f"letter {letter.id}: {error}")
    return problems


def letter_record(services: Services, letter: Letter) -> dict[str, Any]:
    """Returns what a reviewer may know of a letter: everything but the raw payload."""
    failed = _failed_transaction(letter)
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
        "findings": findings_with_remedies(services, *failed) if failed else [],
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


def findings_with_remedies(services: Services, key: str, txn: int) -> list[dict[str, Any]]:
    """Returns every gate finding of one transaction with its remedy, errors first."""
    found = [
        {"gate": judged.gate, **finding, "fix": remedy_of(judged.gate, finding["rule"])}
        for judged in verdicts_of(services.database, key, txn)
        for finding in judged.findings
    ]
    return sorted(found, key=lambda finding: WORST_FIRST.index(finding["severity"]))


def find_refused_bytes(services: Services, letter: Letter) -> dict[str, Any] | None:
    """Returns where the refused bytes of a letter are kept and until when, or None."""
    failed = _failed_transaction(letter)
    if failed is None:
        return None
    key, txn = failed
    return next((kept for kept in quarantine_locations(services, key) if kept["txn"] == txn), None)


def _failed_transaction(letter: Letter) -> tuple[str, int] | None:
    """Returns None for a message, even if it names a key."""
    txn = letter.lineage.get("txn")
    return (letter.key, txn) if letter.key and txn else None


def _cost(services: Services, letter: Letter) -> dict[str, Any]:
    """Returns the cost of the failed attempt, without unfinished stages. Unknown values are null, never 0."""
    failed = _failed_transaction(letter)
    spent = transaction_totals(services.database, *failed) if failed else ()
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
    return next((intake.queue for intake in services.intakes if intake.queue.name == letter.queue), services.queue)


def _write_record(services: Services, letter: Letter) -> None:
    record = json.dumps(letter_record(services, letter), indent=2).encode()
    name = letter.dataset or ""
    pipeline = services.datasets[name].pipeline if name in services.datasets else UNROUTED
    services.store.write(dead_letter(pipeline, letter.at.date(), letter.source), record)
    if letter.state == "quarantined":
        services.store.write(quarantine_record(pipeline, letter.at.date(), letter.source), record)


def _forward(services: Services, letter: Letter) -> None:
    """Sends the message, or the record for a key and for a message that would be too large with its attributes."""
    source = queue_of(services, letter).name
    target = next(intake.dead_letters for intake in services.intakes if intake.queue.name == source)
    fifo = target.name.endswith(".fifo")
    body = letter.body
    if body is None or len(body.encode()) > MAX_BYTES - ATTRIBUTE_RESERVE_BYTES:
        body = json.dumps({"kfm_letter": letter_record(services, letter)})
    target.send(
        body,
        _attributes(letter),
        # In the message's own group a copy, which stays in the queue, would hide everything behind it.
        group=f"letter-{letter.id}" if fifo else None,
        deduplication_id=f"letter-{letter.id}-{letter.changed_at.timestamp():.6f}" if fifo else None,
    )


def _attributes(letter: Letter) -> dict[str, str]:
    """Returns the reasons and as many of the message's own attributes as SQS allows; the letter keeps them all."""
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


def summarise_body(body: str) -> dict[str, object]:
    """Returns the size and, for JSON, the fields of a message, bounded in number, depth and length."""
    described: dict[str, object] = {"bytes": len(body.encode("utf-8", "replace"))}
    try:
        document = read_body(body)
    except BodyUnreadable:
        return {**described, "starts": _text(body[: 2 * MAX_TEXT_LENGTH])}
    if isinstance(document, dict) and isinstance(document.get("Message"), str):
        with suppress(BodyUnreadable):
            document = {**document, "Message": read_body(document["Message"])}
    fields: dict[str, object] = {}
    _collect("", document, MAX_DEPTH, fields)
    return {**described, "fields": fields}


def _collect(path: str, value: object, depth: int, fields: dict[str, object]) -> None:
    if len(fields) >= MAX_FIELDS:
        return
    if isinstance(value, dict) and depth:
        for name in list(value)[:MAX_FIELDS]:
            below = f"{path}.{_text(name)}" if path else _text(name)
            if _SENSITIVE_NAME.search(name):
                fields[below] = WITHHELD
            else:
                _collect(below, value[name], depth - 1, fields)
    elif isinstance(value, list) and depth:
        for number, one in enumerate(value[:3]):
            _collect(f"{path}[{number}]", one, depth - 1, fields)
    else:
        fields[path] = _redact_value(value)


def _redact_value(value: object) -> object:
    if isinstance(value, bool | int) or value is None:
        return value if len(str(value)) < 20 else WITHHELD
    if isinstance(value, float):
        return WITHHELD
    return _text(value if isinstance(value, str) else json.dumps(value))


def _text(text: str) -> str:
    return redact_coordinates(truncate_line(text, MAX_TEXT_LENGTH))
