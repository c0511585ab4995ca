"""`publish` asks the verdicts itself and fails closed (G2)."""

import pytest

from kfm_pipelines.errors import GateRefused
from kfm_pipelines.state.database import Database, TransitionIllegal
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.verdicts import GateVerdict, record_verdict, require_green
from kfm_pipelines_tests.fixtures.runs.keys import claimed, known_key

GATES = ("schema", "care")
BYTES = "a" * 64


@pytest.fixture
def claim(database: Database) -> Claim:
    return claimed(database, known_key(database))


def judge(database: Database, claim: Claim, gate: str, *, content_hash: str = BYTES, passed: bool = True) -> None:
    record_verdict(database, claim, "usgs/streamflow", GateVerdict(gate, content_hash, passed, ()))


def test_all_gates_green_over_these_bytes_is_enough(database: Database, claim: Claim) -> None:
    for gate in GATES:
        judge(database, claim, gate)
    require_green(database, claim.key, claim.epoch, GATES, BYTES)


@pytest.mark.parametrize("missing", GATES)
def test_no_verdict_is_red(database: Database, claim: Claim, missing: str) -> None:
    for gate in set(GATES) - {missing}:
        judge(database, claim, gate)
    with pytest.raises(GateRefused, match=f"the {missing} gate has given no verdict"):
        require_green(database, claim.key, claim.epoch, GATES, BYTES)


def test_a_verdict_on_other_bytes_is_red(database: Database, claim: Claim) -> None:
    judge(database, claim, "schema")
    judge(database, claim, "care", content_hash="b" * 64)
    with pytest.raises(GateRefused, match="the care gate judged other bytes"):
        require_green(database, claim.key, claim.epoch, GATES, BYTES)


def test_one_red_verdict_is_red(database: Database, claim: Claim) -> None:
    judge(database, claim, "schema")
    judge(database, claim, "care", passed=False)
    with pytest.raises(GateRefused, match="the care gate is red"):
        require_green(database, claim.key, claim.epoch, GATES, BYTES)


def test_a_verdict_of_an_earlier_transaction_is_none(database: Database, claim: Claim) -> None:
    for gate in GATES:
        judge(database, claim, gate)
    with pytest.raises(GateRefused, match="no verdict in this transaction"):
        require_green(database, claim.key, claimed(database, claim.key).epoch, GATES, BYTES)


def test_a_verdict_of_another_key_is_none(database: Database, claim: Claim) -> None:
    other = claimed(database, known_key(database, 7))
    assert other.epoch == claim.epoch
    for gate in GATES:
        judge(database, other, gate)
    with pytest.raises(GateRefused, match="no verdict"):
        require_green(database, claim.key, claim.epoch, GATES, BYTES)


@pytest.mark.parametrize("statement", ["UPDATE kfm.verdicts SET passed = true", "DELETE FROM kfm.verdicts"])
def test_a_verdict_cannot_be_changed(database: Database, claim: Claim, statement: str) -> None:
    judge(database, claim, "schema", passed=False)
    with pytest.raises(TransitionIllegal, match="append-only"):
        database.execute(statement)


def test_a_gate_judges_a_transaction_once(database: Database, claim: Claim) -> None:
    judge(database, claim, "schema", passed=False)
    with pytest.raises(Exception, match="verdicts_pkey"):
        judge(database, claim, "schema")
