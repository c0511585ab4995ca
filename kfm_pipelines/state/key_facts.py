"""What the database knows of the keys of a stage, in a few statements for all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kfm_pipelines.errors import GateRefused
from kfm_pipelines.state.database import Connection, Database
from kfm_pipelines.state.revisions import Revision
from kfm_pipelines.state.verdicts import GateVerdict, verdicts_of_transactions
from kfm_pipelines.state.wal import Step, entries_of_transactions


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """A key, its current revision, and one of its transactions as far as the log has it."""

    key: str
    window: tuple[datetime, datetime]
    source: str | None  # the key of another version that this one takes its inputs from
    current: Revision | None
    details: Mapping[Step, Mapping[str, Any]]
    verdicts: tuple[GateVerdict, ...]

    def detail(self, step: Step) -> Mapping[str, Any]:
        try:
            return self.details[step]
        except KeyError:
            raise GateRefused(
                f"{self.key}: this transaction has not been through {step}; run the whole group of assets"
            ) from None


def load_facts(database: Database, txns: Mapping[str, int]) -> dict[str, KeyFacts]:
    """Returns the facts about each key and its transaction."""
    with database.transaction() as connection:
        query = "SELECT key, window_start, window_end, inputs_from FROM kfm.keys WHERE key = ANY(%(keys)s)"
        rows = connection.execute(query, {"keys": list(txns)}).fetchall()
        current = _current_revisions(connection, list(txns))
        verdicts = verdicts_of_transactions(connection, txns)
        details: dict[str, dict[Step, Mapping[str, Any]]] = {key: {} for key in txns}
        for entry in entries_of_transactions(connection, txns):
            details[entry.key][entry.step] = entry.detail
    return {
        row["key"]: KeyFacts(
            key=row["key"],
            window=(row["window_start"], row["window_end"]),
            source=row["inputs_from"],
            current=current.get(row["key"]),
            details=details[row["key"]],
            verdicts=tuple(verdicts[row["key"]]),
        )
        for row in rows
    }


def _current_revisions(connection: Connection, keys: list[str]) -> dict[str, Revision]:
    query = """
        SELECT r.* FROM unnest(%(keys)s::text[]) AS asked (key)
        JOIN LATERAL (SELECT * FROM kfm.revisions WHERE key = asked.key ORDER BY revision DESC LIMIT 1) r ON true
    """
    rows = connection.execute(query, {"keys": keys})
    return {row["key"]: Revision.from_values(row) for row in rows}
