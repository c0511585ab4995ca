"""Bytes that a gate refused, kept in the restricted tier for a while, so that somebody can see what was wrong."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import MASKED, STAGED


@dataclass(frozen=True, slots=True)
class Inspection:
    key: str
    txn: int
    folder: str
    until: datetime


def record_kept(database: Database, claim: Claim, folder: str, days: int) -> None:
    """To be written before the bytes are: what is not noted is never removed."""
    database.execute(
        """
        INSERT INTO kfm.inspections (key, txn, folder, until)
        VALUES (%(key)s, %(txn)s, %(folder)s, clock_timestamp() + make_interval(days => %(days)s))
        """,
        {"key": claim.key, "txn": claim.epoch, "folder": folder, "days": days},
    )


def record_removed(database: Database, inspection: Inspection) -> None:
    database.execute(
        "UPDATE kfm.inspections SET removed_at = clock_timestamp() WHERE key = %(key)s AND txn = %(txn)s",
        {"key": inspection.key, "txn": inspection.txn},
    )


def inspections_of(database: Database, key: str) -> list[Inspection]:
    """What is kept of one key, oldest first."""
    return _fetch_inspections(database, "i.key = %(key)s", key)


def outdated_inspections(database: Database) -> list[Inspection]:
    """What nobody needs to look at any more: its time is over, or the key was published since."""
    return _fetch_inspections(
        database,
        "i.until < clock_timestamp() OR EXISTS (SELECT FROM kfm.revisions r WHERE r.key = i.key AND r.txn > i.txn)",
    )


def _fetch_inspections(database: Database, condition: str, key: str = "") -> list[Inspection]:
    rows = database.fetch(
        f"""
        SELECT i.key, i.txn, i.folder, i.until FROM kfm.inspections i
        WHERE i.removed_at IS NULL AND ({condition}) ORDER BY i.key, i.txn
        """,  # noqa: S608 - both conditions are written above
        {"key": key},
    )
    return [Inspection(**row) for row in rows]


def quarantine_files(services: Services, dataset: Dataset, claim: Claim) -> None:
    """Set aside what this claim has masked and staged. What it was made from is not kept: that is where it came from.
    Noted before it is written, so that nothing is left that nobody knows of."""
    store, folder = services.store, Layout(dataset.pipeline).refused_folder(claim.key, claim.epoch)
    record_kept(services.database, claim, folder, services.settings.red_days)
    place = f"{dataset.pipeline}/{claim.key}/{claim.epoch}"
    # What is staged holds what is masked, so that alone is enough once it is there.
    for path in store.paths(f"{STAGED}/{place}") or store.paths(f"{MASKED}/{place}"):
        store.write(f"{folder}/{path.rsplit('/', 1)[1]}", store.read(path))


def quarantine_locations(services: Services, key: str) -> list[dict[str, object]]:
    """For whoever wants to look: where, and until when."""
    return [
        {"txn": kept.txn, "folder": f"{services.store.url}/{kept.folder}", "until": kept.until}
        for kept in inspections_of(services.database, key)
    ]


def remove_outdated(services: Services) -> int:
    return _remove(services, outdated_inspections(services.database))


def remove_replaced(services: Services, key: str, published_txn: int) -> int:
    """The key is published by this transaction: nobody has to look at what came before it."""
    kept = inspections_of(services.database, key)
    return _remove(services, (one for one in kept if one.txn < published_txn))


def _remove(services: Services, inspections: Iterable[Inspection]) -> int:
    removed = 0
    for one in inspections:
        services.store.remove(one.folder)
        record_removed(services.database, one)
        removed += 1
    return removed
