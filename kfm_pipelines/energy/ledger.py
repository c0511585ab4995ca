"""The energy ledger. Entries are never changed; measured and estimated energy are never added up."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from kfm_pipelines.energy.estimate import UNKNOWN, Energy
from kfm_pipelines.energy.meter import Usage
from kfm_pipelines.state.database import Database, Row, insert_rows

_ENTRY_COLUMNS = ("run_id", "stage", "dataset", "key", "epoch", "replay")
_USAGE_COLUMNS = (
    "wall_seconds", "cpu_seconds", "gigabyte_seconds", "bytes_read", "bytes_written", "network_bytes",
)  # fmt: skip
_ENERGY_COLUMNS = ("watt_seconds", "carbon_grams", "cost_usd")


@dataclass(frozen=True, slots=True)
class EnergyEntry:
    """One stage of an attempt at a key; without an epoch, of an unclaimed trial; without a key, a run's overhead."""

    run_id: str
    stage: str
    usage: Usage
    energy: Energy
    dataset: str | None = None
    key: str | None = None
    epoch: int | None = None
    replay: str | None = None


def record_entries(database: Database, entries: Sequence[EnergyEntry], coefficients: str) -> None:
    """`coefficients` is the digest of the stored coefficients."""
    rows = [
        {
            **{name: getattr(one, name) for name in _ENTRY_COLUMNS},
            **{name: getattr(one.usage, name) for name in _USAGE_COLUMNS},
            **{name: getattr(one.energy, name) for name in ("method", *_ENERGY_COLUMNS)},
            "coefficients": coefficients,
        }
        for one in entries
    ]
    if rows:
        with database.transaction() as connection:
            insert_rows(connection, "energy", rows)


def record_lost_stages(database: Database, keys: Sequence[str], dataset: str, coefficients: str) -> None:
    """Records an unknown cost for stages that a dead run began for these keys and did not record."""
    statement = """
        INSERT INTO kfm.energy (run_id, dataset, key, epoch, replay, stage, method, coefficients)
        SELECT last.run_id, %(dataset)s, last.key, last.txn,
               (SELECT detail ->> 'replay' FROM kfm.wal b
                WHERE b.key = last.key AND b.txn = last.txn AND b.step = 'begin'),
               begun.stage, 'unknown', %(coefficients)s
        FROM (SELECT DISTINCT ON (w.key) w.run_id, w.key, w.txn, w.step, w.outcome
              FROM kfm.wal w JOIN kfm.keys k USING (key)
              WHERE w.key = ANY(%(keys)s) AND k.awaiting IS NULL ORDER BY w.key, w.id DESC) last
        JOIN (VALUES (1, 'begin', 'compute'), (2, 'compute', 'mask'), (3, 'mask', 'validate'),
                     (4, 'validate', 'stage'), (5, 'stage_atomic', 'publish'), (5, 'publish', 'publish'))
                     AS reached (place, step, stage)
             ON reached.step = last.step
        JOIN (VALUES (1, 'compute'), (2, 'mask'), (3, 'validate'), (4, 'stage'), (5, 'publish')) AS begun (place, stage)
             ON begun.place <= reached.place
        WHERE last.outcome IS NULL AND NOT EXISTS (
            SELECT FROM kfm.energy e
            WHERE e.run_id = last.run_id AND e.key = last.key AND e.epoch = last.txn AND e.stage = begun.stage)
        ORDER BY last.key, begun.place
    """
    database.execute(statement, {"keys": list(keys), "dataset": dataset, "coefficients": coefficients})


@dataclass(frozen=True, slots=True)
class EnergyTotal:
    """The sum of entries of one method. A value that one of them does not know is unknown."""

    entries: int
    usage: Usage
    energy: Energy


@dataclass(frozen=True, slots=True)
class MonthlyTotal:
    """Without a dataset, the cost of receiving messages. `wasted_share` is of attempts that published nothing."""

    dataset: str | None
    month: date
    runs: int
    keys: int
    wasted_share: float | None
    total: EnergyTotal


# A sum without the unknown values would pass for the complete one.
KNOWN_SUMS = ", ".join(
    f"CASE WHEN count({name}) = count(*) THEN sum({name}) END AS {name}" for name in (*_USAGE_COLUMNS, *_ENERGY_COLUMNS)
)
SUMS = f"count(*) AS entries, {KNOWN_SUMS}"

# An attempt is wasted if it ended without publishing or never had a claim; a run's overhead, if it published no key.
IS_WASTED = """
    CASE WHEN e.dataset IS NULL THEN false
         WHEN e.key IS NULL THEN NOT EXISTS (
             SELECT FROM kfm.wal w WHERE w.run_id = e.run_id AND w.step = 'commit')
         ELSE NOT EXISTS (
             SELECT FROM kfm.wal w WHERE w.key = e.key AND w.step = 'commit' AND e.epoch IN (w.txn, w.epoch))
         AND NOT EXISTS (
             SELECT FROM kfm.wal w WHERE w.key = e.key AND w.txn = e.epoch
             HAVING bool_or(w.step = 'begin') AND bool_and(w.outcome IS NULL))
    END
"""

ENTRY_FILTER = """
    (%(dataset)s::text IS NULL OR e.dataset = %(dataset)s)
    AND (%(start)s::date IS NULL OR e.at >= %(start)s::date) AND (%(end)s::date IS NULL OR e.at < %(end)s::date)
"""


def total_energy(totals: Sequence[EnergyTotal]) -> Energy:
    """Returns UNKNOWN when several methods were used."""
    return totals[0].energy if len(totals) == 1 else UNKNOWN


def total_cpu_seconds(totals: Sequence[EnergyTotal]) -> float | None:
    """Adds up all methods; None when any part is unknown."""
    parts = [one.usage.cpu_seconds for one in totals]
    return sum(part for part in parts if part is not None) if parts and None not in parts else None


def transaction_totals(database: Database, key: str, txn: int) -> tuple[EnergyTotal, ...]:
    return totals_by(database, "''", "key = %(key)s AND epoch = %(txn)s", {"key": key, "txn": txn}).get("", ())


def replay_totals(database: Database, replay: str) -> tuple[EnergyTotal, ...]:
    """Returns the totals by method of its keys and the overhead of its runs."""
    return totals_by(database, "''", "replay = %(replay)s", {"replay": replay}).get("", ())


def key_totals_of_replay(database: Database, replay: str) -> dict[str, tuple[EnergyTotal, ...]]:
    """Returns the totals by method of each key of a replay, including its trial and all attempts."""
    return totals_by(database, "key", "replay = %(replay)s AND key IS NOT NULL", {"replay": replay})


def key_totals_of_run(database: Database, run_id: str) -> dict[str, tuple[EnergyTotal, ...]]:
    return totals_by(database, "key", "run_id = %(run_id)s AND key IS NOT NULL", {"run_id": run_id})


def totals_by(
    database: Database, part: str, condition: str, parameters: dict[str, object]
) -> dict[str, tuple[EnergyTotal, ...]]:
    """Returns the totals by method of each value of a column, in the order in which they were first recorded."""
    query = f"""
        SELECT {part} AS part, method, {SUMS} FROM kfm.energy WHERE {condition}
        GROUP BY part, method ORDER BY min(min(id)) OVER (PARTITION BY {part}), method
    """  # noqa: S608 - constants
    rows = database.fetch(query, parameters)
    found: dict[str, tuple[EnergyTotal, ...]] = {}
    for row in rows:
        found[row["part"]] = (*found.get(row["part"], ()), _energy_total(row))
    return found


def monthly_totals(
    database: Database, dataset: str | None = None, start: date | None = None, end: date | None = None
) -> list[MonthlyTotal]:
    """Returns the totals of all datasets or one, from `start` to before `end`, UTC."""
    query = f"""
        WITH attempts AS (
            SELECT dataset, date_trunc('month', at, 'UTC')::date AS month, method, run_id, key, epoch, {SUMS}
            FROM kfm.energy e WHERE {ENTRY_FILTER} GROUP BY dataset, month, method, run_id, key, epoch
        ), judged AS (SELECT e.*, {IS_WASTED} AS is_for_nothing FROM attempts e)
        SELECT dataset, month, method, count(DISTINCT run_id) AS runs, count(DISTINCT key) AS keys,
               coalesce(sum(watt_seconds) FILTER (WHERE is_for_nothing), 0) / sum(watt_seconds) AS for_nothing,
               sum(entries)::int AS entries, {KNOWN_SUMS}
        FROM judged GROUP BY dataset, month, method ORDER BY dataset NULLS LAST, month, method
    """  # noqa: S608 - a constant
    rows = database.fetch(query, {"dataset": dataset, "start": start, "end": end})
    return [
        MonthlyTotal(row["dataset"], row["month"], row["runs"], row["keys"], row["for_nothing"], _energy_total(row))
        for row in rows
    ]


def coefficients_used(database: Database, dataset: str | None, start: date | None, end: date | None) -> list[str]:
    """Returns the digests of the coefficients used in that time, earliest first."""
    query = f"SELECT coefficients FROM kfm.energy e WHERE {ENTRY_FILTER} GROUP BY coefficients ORDER BY min(id)"  # noqa: S608 - a constant
    rows = database.fetch(query, {"dataset": dataset, "start": start, "end": end})
    return [row["coefficients"] for row in rows]


def _energy_total(row: Row) -> EnergyTotal:
    usage = {name: row[name] for name in _USAGE_COLUMNS[:3]}
    usage |= {name: None if row[name] is None else int(row[name]) for name in _USAGE_COLUMNS[3:]}  # sums are Decimals
    measured = row["watt_seconds"] if row["method"] == "measured" else None
    energy = Energy(row["method"], row["watt_seconds"], row["carbon_grams"], row["cost_usd"])
    return EnergyTotal(row["entries"], Usage(**usage, watt_seconds=measured), energy)
