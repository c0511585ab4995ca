"""The ledger holds every attempt, adds up one method at a time, and never takes unknown for zero."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from kfm_pipelines.energy.estimate import UNKNOWN, Coefficients, Energy, estimate, load_coefficients
from kfm_pipelines.energy.ledger import (
    EnergyEntry,
    EnergyTotal,
    coefficients_used,
    key_totals_of_replay,
    monthly_totals,
    record_entries,
    replay_totals,
    total_energy,
    transaction_totals,
)
from kfm_pipelines.energy.meter import Usage
from kfm_pipelines.errors import AttemptsExhausted
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.state import transactions, wal
from kfm_pipelines.state.audit import load_snapshot, save_snapshot
from kfm_pipelines.state.database import Database, TransitionIllegal
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.wal import Step, Transition
from kfm_pipelines_tests.fixtures.runs.energy import stage_totals
from kfm_pipelines_tests.fixtures.runs.keys import (
    advance,
    claimed,
    known_key,
    skip,
)

DATASET = "usgs/streamflow"
SHIPPED = load_coefficients(shipped_path("resources"))
USED = Usage(4, 2, 1, 100, 50, None, 30)


def entry(stage: str = "compute", usage: Usage = USED, **fields: Any) -> EnergyEntry:
    stated = {"run_id": "run-1", "dataset": DATASET, **fields}
    return EnergyEntry(stage=stage, usage=usage, energy=estimate(SHIPPED, usage), **stated)


def entered(database: Database, *entries: EnergyEntry) -> None:
    record_entries(database, entries, save_snapshot(database, "energy-coefficients", SHIPPED.model_dump(mode="json")))


def of(claim: Claim, stage: str = "compute", usage: Usage = USED, **fields: Any) -> EnergyEntry:
    return entry(stage, usage, key=claim.key, epoch=claim.epoch, **{"run_id": claim.owner, **fields})


def watt_seconds(spent: Sequence[EnergyTotal]) -> dict[str, float | None]:
    return {one.energy.method: one.energy.watt_seconds for one in spent}


def begin(database: Database, claim: Claim) -> None:
    with database.transaction() as connection:
        wal.append(connection, [Transition(claim, Step.BEGIN)])


def test_the_stages_of_a_run_add_up_to_it(database: Database) -> None:
    claim = claimed(database, known_key(database))
    stages = ("compute", "mask", "validate", "stage", "publish")
    usages = [Usage(number, number / 2, 0.1, 10, 5, None, 1) for number in range(1, 6)]
    entered(database, *(of(claim, stage, usage) for stage, usage in zip(stages, usages, strict=True)))
    by_stage = stage_totals(database, "run-1")
    assert tuple(by_stage) == stages
    [whole] = transaction_totals(database, claim.key, claim.epoch)
    assert whole.entries == 5
    assert replace(whole.usage, gigabyte_seconds=None) == Usage(15, 7.5, None, 50, 25, None, 5)
    assert whole.usage.gigabyte_seconds == pytest.approx(0.5)
    parts = [one.energy for spent in by_stage.values() for one in spent]
    for name in ("watt_seconds", "carbon_grams", "cost_usd"):
        assert sum(getattr(part, name) for part in parts) == pytest.approx(getattr(whole.energy, name))
    # The estimate is linear: that of the whole is that of its parts.
    assert whole.energy.watt_seconds == pytest.approx(estimate(SHIPPED, whole.usage).watt_seconds)


def test_measured_and_estimated_are_never_added_up(database: Database) -> None:
    claim = claimed(database, known_key(database))
    measured = Usage(4, 2, 1, 100, 50, 300.0, 30)
    entered(database, of(claim), of(claim, usage=measured), of(claim, usage=measured))
    spent = transaction_totals(database, claim.key, claim.epoch)
    assert watt_seconds(spent) == {"measured": 600.0, "estimated": estimate(SHIPPED, USED).watt_seconds}
    assert total_energy(spent) == UNKNOWN
    assert {one.total.energy.method for one in monthly_totals(database)} == {"measured", "estimated"}


def test_unknown_is_not_zero(database: Database) -> None:
    claim = claimed(database, known_key(database))
    entered(database, of(claim, usage=Usage(4, None)))
    [row] = database.fetch("SELECT method, cpu_seconds, watt_seconds, carbon_grams, cost_usd FROM kfm.energy")
    assert tuple(row.values()) == ("unknown", None, None, None, None)
    entered(database, of(claim))
    spent = transaction_totals(database, claim.key, claim.epoch)
    assert watt_seconds(spent) == {"unknown": None, "estimated": estimate(SHIPPED, USED).watt_seconds}
    [unknown] = [one for one in monthly_totals(database) if one.total.energy.method == "unknown"]
    assert (unknown.wasted_share, unknown.total.energy.energy_kwh) == (None, None)
    for wrong in (Energy("unknown", 1.0, 1.0, 1.0), Energy("estimated", None, None, None), Energy("measured", 0, 0, 0)):
        with pytest.raises(Exception, match="check constraint"):
            entered(database, EnergyEntry("run-1", "compute", USED, wrong))


def test_a_part_that_is_missing_is_missing_in_the_sum(database: Database) -> None:
    claim = claimed(database, known_key(database))
    entered(database, of(claim), of(claim, "mask", Usage(1, 1)))
    [spent] = transaction_totals(database, claim.key, claim.epoch)
    assert spent.usage == Usage(5, 3, None, None, None, None, None)
    assert spent.usage.missing == ("gigabyte_seconds", "network_bytes")
    assert spent.energy.method == "estimated"


def test_entries_cannot_be_changed(database: Database) -> None:
    entered(database, entry())
    entered(database)
    with pytest.raises(TransitionIllegal, match="append-only"):
        database.execute("UPDATE kfm.energy SET watt_seconds = 1")
    [used] = coefficients_used(database, None, None, None)
    assert Coefficients.model_validate(load_snapshot(database, used)) == SHIPPED


def test_failed_and_repeated_attempts_count_separately(database: Database) -> None:
    """Of four equal attempts the first is handed back, the second fails, the third has nothing to do and the
    fourth is still running: three quarters are wasted so far."""
    key = known_key(database)
    for ending in ("again", "fail", "skip", "open"):
        claim = claimed(database, key, f"run-{ending}")
        begin(database, claim)
        entered(database, of(claim))
        if ending == "again":
            transactions.hand_back(database, claim, delay=0, reason="busy", count_attempt=True)
        elif ending == "fail":
            transactions.fail(database, claim, "compute", AttemptsExhausted("too often"), retry_in=0)
        elif ending == "skip":
            skip(database, claim, {"reason": "nothing new"})
    [month] = monthly_totals(database)
    assert (month.dataset, month.runs, month.keys, month.total.entries) == (DATASET, 4, 1, 4)
    assert month.wasted_share == pytest.approx(0.75)


def test_a_publication_completed_by_another_run_is_not_wasted(database: Database) -> None:
    key = known_key(database)
    first = claimed(database, key, "run-1")
    begin(database, first)
    for step in (Step.COMPUTE, Step.MASK, Step.VALIDATE, Step.STAGE_ATOMIC, Step.PUBLISH):
        advance(database, first, step, {})
    database.execute("UPDATE kfm.keys SET lease_until = clock_timestamp() - interval '1 s'")
    second = claimed(database, key, "run-2")
    with database.transaction() as connection:
        wal.append(connection, [Transition(second, Step.COMMIT, txn=first.epoch)])
    entered(database, of(first), of(second))
    entered(database, entry("start", run_id="run-2"), entry("start", run_id="run-3"))
    entered(database, entry("canary", run_id="replay-1", key=key, replay="replay-1"))
    [month] = monthly_totals(database)
    assert month.wasted_share == pytest.approx(2 / 5)  # a run that published nothing, and a try without a claim


def test_receiving_messages_belongs_to_no_dataset_and_is_not_wasted(database: Database) -> None:
    entered(database, entry("drain", dataset=None), entry())
    [of_dataset, of_queues] = monthly_totals(database)
    assert (of_dataset.dataset, of_dataset.wasted_share) == (DATASET, 1)
    assert (of_queues.dataset, of_queues.wasted_share, of_queues.keys) == (None, 0, 0)


def test_the_cost_of_a_replay_is_known_by_key(database: Database) -> None:
    one, two = (claimed(database, known_key(database, hour)) for hour in (3, 4))
    entered(
        database, of(one, replay="replay-1"), of(one, "mask", replay="replay-1"), of(two, replay="replay-1"), of(two)
    )
    entered(database, entry("start", replay="replay-1"))
    by_key = key_totals_of_replay(database, "replay-1")
    assert {key: spent[0].entries for key, spent in by_key.items()} == {one.key: 2, two.key: 1}
    assert [spent.entries for spent in replay_totals(database, "replay-1")] == [4]


def test_months_are_utc_and_can_be_chosen(database: Database) -> None:
    moments = ("2025-11-30T23:59:59Z", "2025-12-01T00:00:00Z", "2025-12-31T23:59:59Z", "2026-01-01T00:00:00Z")
    for at in moments:
        entered(database, entry(dataset="usgs/streamflow" if "11" in at else "heritage/sites"))
        database.execute("ALTER TABLE kfm.energy DISABLE TRIGGER USER")
        database.execute("UPDATE kfm.energy SET at = %(at)s WHERE id = (SELECT max(id) FROM kfm.energy)", {"at": at})
        database.execute("ALTER TABLE kfm.energy ENABLE TRIGGER USER")

    def months(*chosen: Any) -> list[tuple[str | None, str, int]]:
        return [(one.dataset, f"{one.month:%Y-%m}", one.total.entries) for one in monthly_totals(database, *chosen)]

    heritage = [("heritage/sites", "2025-12", 2), ("heritage/sites", "2026-01", 1)]
    assert months() == [*heritage, ("usgs/streamflow", "2025-11", 1)]
    assert months("heritage/sites") == heritage
    assert months(None, date(2025, 12, 1), date(2026, 1, 1)) == heritage[:1]
    assert months("usgs/streamflow", date(2025, 12, 1)) == []
