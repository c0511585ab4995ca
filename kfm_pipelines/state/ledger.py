"""The ledger: one entry for each publication, written in its transaction and never changed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfm_pipelines.state.revisions import Revision

if TYPE_CHECKING:
    from psycopg import Connection


@dataclass(frozen=True, slots=True)
class Records:
    """Digests of what tells how a revision came about; None of what was staged before there was such a record."""

    manifest_hash: str | None
    attestation_hash: str | None


def enter(connection: "Connection[dict[str, Any]]", dataset: str, revision: Revision, records: Records) -> None:
    """Once for a transaction: whoever rolls it forward commits it, so it is entered by the commit and nowhere else."""
    connection.execute(
        """
        INSERT INTO kfm.ledger (run_id, dataset, key, revision, txn, content_hash, item_hash, manifest_hash,
                                attestation_hash, rows, bytes)
        VALUES (%(run_id)s, %(dataset)s, %(key)s, %(revision)s, %(txn)s, %(content_hash)s, %(item_hash)s, %(manifest)s,
                %(attestation)s, %(rows)s, %(bytes)s)
        """,
        {
            "run_id": revision.run_id,
            "dataset": dataset,
            "key": revision.key,
            "revision": revision.revision,
            "txn": revision.txn,
            "content_hash": revision.content_hash,
            "item_hash": revision.item_hash,
            "manifest": records.manifest_hash,
            "attestation": records.attestation_hash,
            "rows": revision.rows,
            "bytes": revision.bytes,
        },
    )
