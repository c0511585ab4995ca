"""Red bytes that are kept for a while, so that somebody can look at them: which, and until when."""

from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.state.claims import Claim
from kfm_pipelines.state.database import Database


@dataclass(frozen=True, slots=True)
class Inspection:
    key: str
    txn: int
    folder: str
    until: datetime


def note_kept(database: Database, claim: Claim, folder: str, days: int) -> None:
    """To be written before the bytes are: what is not noted is never removed."""
    database.execute(
        """
        INSERT INTO kfm.inspections (key, txn, folder, until)
        VALUES (%(key)s, %(txn)s, %(folder)s, clock_timestamp() + make_interval(days => %(days)s))
        """,
        {"key": claim.key, "txn": claim.epoch, "folder": folder, "days": days},
    )


def note_removed(database: Database, inspection: Inspection) -> None:
    database.execute(
        "UPDATE kfm.inspections SET removed_at = clock_timestamp() WHERE key = %(key)s AND txn = %(txn)s",
        {"key": inspection.key, "txn": inspection.txn},
    )


def kept_of(database: Database, key: str) -> list[Inspection]:
    """What is kept of one key, oldest first."""
    return _found(database, "i.key = %(key)s", key)


def outdated(database: Database) -> list[Inspection]:
    """What nobody needs to look at any more: its time is over, or the key was published since."""
    return _found(
        database,
        "i.until < clock_timestamp() OR EXISTS (SELECT FROM kfm.revisions r WHERE r.key = i.key AND r.txn > i.txn)",
    )


def _found(database: Database, which: str, key: str = "") -> list[Inspection]:
    rows = database.fetch(
        f"""
        SELECT i.key, i.txn, i.folder, i.until FROM kfm.inspections i
        WHERE i.removed_at IS NULL AND ({which}) ORDER BY i.key, i.txn
        """,  # noqa: S608 - both conditions are written above
        {"key": key},
    )
    return [Inspection(**row) for row in rows]
