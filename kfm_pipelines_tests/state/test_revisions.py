"""Revisions: one after the other, never twice from the same inputs, and restored only with the same bytes (I7)."""

from dataclasses import replace

import pytest

from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.state.database import Database, TransitionIllegal
from kfm_pipelines.state.revisions import Revision, current_revision, published_keys, record_in_ledger, record_revisions
from kfm_pipelines_tests.fixtures.runs.keys import event_of_hour, known_key, revision

FIRST = revision(event_of_hour().key, bbox=(-102.0, 37.0, -94.5, 40.0))
SECOND = replace(FIRST, revision=2, txn=2, inputs_hash="inputs-2", content_hash="content-2", bbox=None)


def apply(database: Database, *revisions: Revision) -> None:
    for one in revisions:
        with database.transaction() as connection:
            record_revisions(connection, [one])


@pytest.fixture(autouse=True)
def _key(database: Database) -> None:
    known_key(database)


def test_the_latest_revision_is_the_current_one(database: Database) -> None:
    assert current_revision(database, FIRST.key) is None
    apply(database, FIRST)
    assert current_revision(database, FIRST.key) == FIRST
    apply(database, SECOND)
    assert current_revision(database, FIRST.key) == SECOND


def test_the_same_inputs_are_not_applied_twice(database: Database) -> None:
    apply(database, FIRST)
    with pytest.raises(TransitionIllegal, match="was already applied with these inputs"):
        apply(database, replace(SECOND, inputs_hash=FIRST.inputs_hash))
    assert current_revision(database, FIRST.key) == FIRST


def test_inputs_of_an_older_revision_may_come_back(database: Database) -> None:
    third = replace(FIRST, revision=3, txn=3)
    apply(database, FIRST, SECOND, third)
    assert current_revision(database, FIRST.key) == third


@pytest.mark.parametrize(("there", "next_number"), [((), 2), ((), 5), ((FIRST,), 3), ((FIRST, SECOND), 5)])
def test_a_gap_is_refused(database: Database, there: tuple[Revision, ...], next_number: int) -> None:
    apply(database, *there)
    far = replace(FIRST, revision=next_number, inputs_hash="other")
    with pytest.raises(TransitionIllegal, match=f"revision {next_number} of .* does not follow {len(there)}$"):
        apply(database, far)


def test_restoring_a_revision_needs_the_same_bytes(database: Database) -> None:
    apply(database, FIRST)

    apply(database, replace(FIRST, txn=2, run_id="run-2"))
    with pytest.raises(IntegrityBroken, match="revision 1 came out as content-2, not content-1"):
        apply(database, replace(FIRST, txn=2, content_hash="content-2"))

    assert database.fetch("SELECT txn, content_hash FROM kfm.revisions") == [{"txn": 1, "content_hash": "content-1"}]


def test_a_collection_sees_each_key_once_as_it_is_now(database: Database) -> None:
    apply(database, FIRST, SECOND)
    other = replace(FIRST, key=known_key(database, 5))
    apply(database, other)
    known_key(database, 7)  # never published

    with database.transaction() as connection:
        found = published_keys(connection, "usgs/streamflow")

    assert [(one.key, one.bbox) for one in found] == [(SECOND.key, None), (other.key, other.bbox)]
    assert found[0].window_start == event_of_hour().window_start


def test_a_publication_is_in_the_ledger_once_and_is_never_changed(database: Database) -> None:
    one = revision(txn=7, rows=3, bytes=400)
    with database.transaction() as connection:
        record_in_ledger(connection, "usgs/streamflow", {one: {"manifest": "m" * 64, "attestation": "a" * 64}})
    with pytest.raises(Exception, match="ledger_key_txn_key"), database.transaction() as connection:
        record_in_ledger(connection, "usgs/streamflow", {one: {"manifest": "m" * 64, "attestation": "a" * 64}})

    for statement in ("UPDATE kfm.ledger SET rows = 0", "DELETE FROM kfm.ledger", "TRUNCATE kfm.ledger"):
        with pytest.raises(TransitionIllegal, match="append-only"):
            database.execute(statement)
    [row] = database.fetch("SELECT run_id, txn, manifest_hash, attestation_hash, rows, bytes FROM kfm.ledger")
    assert tuple(row.values()) == ("run-1", 7, "m" * 64, "a" * 64, 3, 400)
