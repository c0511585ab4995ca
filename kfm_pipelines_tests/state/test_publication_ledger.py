"""The ledger: one entry for a publication, and none is ever changed."""

import pytest

from kfm_pipelines.state.database import Database, TransitionIllegal
from kfm_pipelines.state.revisions import RecordDigests, Revision, record_in_ledger

FIRST = Revision("a:b:none:c:d", 1, 7, "i", "f", "c" * 64, "d" * 64, 3, 400, None, "run-1")
DIGESTS = RecordDigests("m" * 64, "a" * 64)


def test_a_publication_is_entered_once_and_for_ever(database: Database) -> None:
    with database.transaction() as connection:
        record_in_ledger(connection, "usgs/streamflow", FIRST, DIGESTS)
    with pytest.raises(Exception, match="ledger_key_txn_key"), database.transaction() as connection:
        record_in_ledger(connection, "usgs/streamflow", FIRST, DIGESTS)

    for statement in ("UPDATE kfm.ledger SET rows = 0", "DELETE FROM kfm.ledger", "TRUNCATE kfm.ledger"):
        with pytest.raises(TransitionIllegal, match="append-only"):
            database.execute(statement)
    [row] = database.fetch("SELECT run_id, txn, manifest_hash, attestation_hash, rows, bytes FROM kfm.ledger")
    assert tuple(row.values()) == ("run-1", 7, "m" * 64, "a" * 64, 3, 400)
