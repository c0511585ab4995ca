"""SQL over dead letters for operators: find, read, quarantine. `state.dead_letters` opens and closes letters."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from kfm_pipelines.errors import LetterUnknown
from kfm_pipelines.state import dead_letters
from kfm_pipelines.state.database import Database, pairs

TRIAGE_CLASSES = (
    "schema", "quality", "integrity", "permission", "missing-object", "care", "late", "exhausted", "transient",
    "configuration", "defect", "unclassified",
)  # fmt: skip
LIVE_STATES = ("open", "redriving", "quarantined")
UNFILED = "filed_at IS NULL"  # the record in the store is missing or out of date
UNFORWARDED = "forwarded_at IS NULL AND state = 'open'"  # not in the dead-letter queue yet


@dataclass(frozen=True, slots=True)
class Letter:
    """`body` is None for a key, and empty in lists; `size` is in bytes, 0 if the message was not kept."""

    id: int
    source: str
    state: str
    triage: str
    error: str
    reason: str
    failure_stage: str
    dataset: str | None
    key: str | None
    attempts: int
    at: datetime
    changed_at: datetime
    queue: str | None
    body: str | None
    size: int | None
    attributes: Mapping[str, str]
    attribute_types: Mapping[str, str]
    message_group: str | None
    run_id: str | None
    trace: str
    lineage: Mapping[str, Any]
    cost: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Conditions on letters, all of which must hold. A key may end in * to match any rest."""

    ids: tuple[int, ...] = ()
    triage: str | None = None
    dataset: str | None = None
    key: str | None = None
    older_than_seconds: float | None = None
    newer_than_seconds: float | None = None
    states: tuple[str, ...] = ("open",)

    def as_detail(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, (), [])}


# All columns except the message, which may be a megabyte.
WITHOUT_BODY = """
    l.id, l.source, l.state, l.triage, l.error, l.reason, l.failure_stage, l.dataset, l.key, l.attempts, l.at,
    l.changed_at, l.closed_at, l.queue, CASE WHEN l.body IS NOT NULL THEN '' END AS body, octet_length(l.body) AS size,
    l.attributes, l.attribute_types, l.message_group, l.group_sequence, l.run_id, l.trace, l.lineage, l.cost
"""
CONDITIONS = """
    (%(ids)s::bigint[] = '{}' OR id = ANY(%(ids)s))
    AND (%(triage)s::text IS NULL OR triage = %(triage)s)
    AND (%(dataset)s::text IS NULL OR dataset = %(dataset)s)
    AND (%(key)s::text IS NULL OR key = %(key)s
         OR (right(%(key)s, 1) = '*' AND starts_with(key, left(%(key)s, -1))))
    AND (%(older)s::float IS NULL OR changed_at < clock_timestamp() - make_interval(secs => %(older)s))
    AND (%(newer)s::float IS NULL OR changed_at >= clock_timestamp() - make_interval(secs => %(newer)s))
    AND state = ANY(%(states)s)
"""

# Not in an undecided redrive, which alone may move the letter.
IDLE_CONDITION = """
    NOT EXISTS (SELECT FROM kfm.redrive_items i WHERE i.letter = dead_letters.id
                AND i.state IN ('planned', 'sending', 'sent', 'arrived'))
"""


def filter_parameters(letter_filter: LetterFilter) -> dict[str, object]:
    ages = {"older": letter_filter.older_than_seconds, "newer": letter_filter.newer_than_seconds}
    return {**asdict(letter_filter), **ages, "ids": list(letter_filter.ids), "states": list(letter_filter.states)}


def find_letters(database: Database, letter_filter: LetterFilter, limit: int) -> list[Letter]:
    query = f"SELECT {WITHOUT_BODY} FROM kfm.dead_letters l WHERE {CONDITIONS} ORDER BY id LIMIT %(limit)s"  # noqa: S608 - a constant
    rows = database.fetch(query, {**filter_parameters(letter_filter), "limit": limit})
    return [letter_from_row(row) for row in rows]


def count_letters(database: Database, letter_filter: LetterFilter) -> dict[str, int]:
    query = f"SELECT triage, count(*) AS n FROM kfm.dead_letters WHERE {CONDITIONS} GROUP BY triage ORDER BY triage"  # noqa: S608 - a constant
    return pairs(database.fetch(query, filter_parameters(letter_filter)))


def read_letter(database: Database, letter: int) -> Letter:
    query = "SELECT *, octet_length(body) AS size FROM kfm.dead_letters WHERE id = %(letter)s"
    rows = database.fetch(query, {"letter": letter})
    if not rows:
        raise _unknown_letter(letter)
    return letter_from_row(rows[0])


def check_open(database: Database, ids: Sequence[int]) -> None:
    states = states_of(database, ids)
    for letter in ids:
        if letter not in states:
            raise _unknown_letter(letter)
        if states[letter] != "open":
            raise LetterUnknown(f"letter {letter} is {states[letter]}; only an open one can be redriven or quarantined")


def history_of(database: Database, letter: int) -> list[dict[str, Any]]:
    query = "SELECT at, what, detail FROM kfm.letter_moves WHERE letter = %(letter)s ORDER BY id"
    return database.fetch(query, {"letter": letter})


def quarantine(database: Database, letter_filter: LetterFilter, reason: str, limit: int) -> list[Letter]:
    """Sets letters aside for good, out of reach of redrives. Their payload is kept."""
    with database.transaction() as connection:
        statement = f"""
            UPDATE kfm.dead_letters SET state = 'quarantined', changed_at = clock_timestamp(), filed_at = NULL
            WHERE id IN (SELECT id FROM kfm.dead_letters WHERE {CONDITIONS} AND {IDLE_CONDITION}
                         ORDER BY id LIMIT %(limit)s FOR UPDATE)
            RETURNING *, octet_length(body) AS size
        """.encode()  # noqa: S608 - a constant
        rows = connection.execute(statement, {**filter_parameters(letter_filter), "limit": limit}).fetchall()
        dead_letters.record_move(connection, [row["id"] for row in rows], "quarantined", {"reason": reason})
    return sorted((letter_from_row(row) for row in rows), key=lambda letter: letter.id)


def letter_from_row(row: Mapping[str, Any]) -> Letter:
    return Letter(**{name: row[name] for name in Letter.__dataclass_fields__})


def find_to_export(database: Database, condition: str, limit: int) -> list[Letter]:
    """Returns letters with their messages; the condition is UNFILED or UNFORWARDED."""
    query = f"SELECT *, octet_length(body) AS size FROM kfm.dead_letters WHERE {condition} ORDER BY id LIMIT %(limit)s"  # noqa: S608 - a constant
    rows = database.fetch(query, {"limit": limit})
    return [letter_from_row(row) for row in rows]


def mark_filed(database: Database, letter: Letter) -> None:
    """Marks the record as written unless the letter has changed since."""
    statement = "UPDATE kfm.dead_letters SET filed_at = clock_timestamp() WHERE id = %(id)s AND changed_at = %(seen)s"
    database.execute(statement, {"id": letter.id, "seen": letter.changed_at})


def mark_forwarded(database: Database, letter: Letter) -> None:
    statement = "UPDATE kfm.dead_letters SET forwarded_at = clock_timestamp() WHERE id = %(id)s"
    database.execute(statement, {"id": letter.id})


def states_of(database: Database, ids: Sequence[int]) -> dict[int, str]:
    return pairs(database.fetch("SELECT id, state FROM kfm.dead_letters WHERE id = ANY(%(ids)s)", {"ids": list(ids)}))


def _unknown_letter(letter: int) -> LetterUnknown:
    return LetterUnknown(f"there is no dead letter {letter}; `kfm dlq list --state all` lists them")
