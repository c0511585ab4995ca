"""The energy ledger: what each stage of each attempt cost. Entries are added and never changed.

Measured and estimated energy are different things: nothing here adds one to the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal

from kfm_pipelines.energy.estimate import UNKNOWN, Energy
from kfm_pipelines.energy.meter import Usage
from kfm_pipelines.state.database import Database, Row


@dataclass(frozen=True, slots=True)
class EnergyEntry:
    """One stage of a run: of an attempt at a key; without an epoch, of one that claimed nothing; without a key, of what
    the run did beside its keys."""

    run_id: str
    stage: str
    usage: Usage
    energy: Energy
    dataset: str | None = None
    key: str | None = None
    epoch: int | None = None
    replay: str | None = None


def record_entries(database: Database, entries: Sequence[EnergyEntry], coefficients: str) -> None:
    """`coefficients` is the digest of what was estimated with, as it is frozen."""
    if not entries:
        return
    usages, energies = [one.usage for one in entries], [one.energy for one in entries]
    database.execute(
        """
        INSERT INTO kfm.energy (run_id, stage, dataset, key, epoch, replay, method, wall_seconds, cpu_seconds,
                                gigabyte_seconds, bytes_read, bytes_written, network_bytes, watt_seconds, carbon_grams,
                                cost_usd, coefficients)
        SELECT entry.*, %(coefficients)s
        FROM unnest(%(run_ids)s::text[], %(stages)s::text[], %(datasets)s::text[], %(keys)s::text[],
                    %(epochs)s::bigint[], %(replays)s::text[], %(methods)s::text[], %(wall_seconds)s::float[],
                    %(cpu_seconds)s::float[], %(gigabyte_seconds)s::float[], %(bytes_read)s::bigint[],
                    %(bytes_written)s::bigint[], %(network_bytes)s::bigint[], %(watt_seconds)s::float[],
                    %(carbon_grams)s::float[], %(cost_usd)s::float[]) AS entry
        """,
        {
            "coefficients": coefficients,
            "run_ids": [one.run_id for one in entries],
            "stages": [one.stage for one in entries],
            "datasets": [one.dataset for one in entries],
            "keys": [one.key for one in entries],
            "epochs": [one.epoch for one in entries],
            "replays": [one.replay for one in entries],
            "methods": [one.method for one in energies],
            "wall_seconds": [one.wall_seconds for one in usages],
            "cpu_seconds": [one.cpu_seconds for one in usages],
            "gigabyte_seconds": [one.gigabyte_seconds for one in usages],
            "bytes_read": [one.bytes_read for one in usages],
            "bytes_written": [one.bytes_written for one in usages],
            "network_bytes": [one.network_bytes for one in usages],
            "watt_seconds": [one.watt_seconds for one in energies],
            "carbon_grams": [one.carbon_grams for one in energies],
            "cost_usd": [one.cost_usd for one in energies],
        },
    )


def record_lost_stages(database: Database, key: str, dataset: str, coefficients: str) -> None:
    """What a run that died had begun and could not enter: nobody knows what it cost, which is not nothing. A run enters
    the costs of a stage when the stage ends, so that of those it had begun for this key some may be missing. What waits
    for a review was entered."""
    database.execute(
        """
        INSERT INTO kfm.energy (run_id, dataset, key, epoch, replay, stage, method, coefficients)
        SELECT last.run_id, %(dataset)s, last.key, last.txn,
               (SELECT detail ->> 'replay' FROM kfm.wal b
                WHERE b.key = last.key AND b.txn = last.txn AND b.step = 'begin'),
               begun.stage, 'unknown', %(coefficients)s
        FROM (SELECT w.run_id, w.key, w.txn, w.step, w.outcome FROM kfm.wal w JOIN kfm.keys k USING (key)
              WHERE w.key = %(key)s AND k.awaiting IS NULL ORDER BY w.id DESC LIMIT 1) last
        JOIN (VALUES (1, 'begin', 'compute'), (2, 'compute', 'mask'), (3, 'mask', 'validate'),
                     (4, 'validate', 'stage'), (5, 'stage_atomic', 'publish'), (5, 'publish', 'publish'))
                     AS reached (place, step, stage)
             ON reached.step = last.step
        JOIN (VALUES (1, 'compute'), (2, 'mask'), (3, 'validate'), (4, 'stage'), (5, 'publish')) AS begun (place, stage)
             ON begun.place <= reached.place
        WHERE last.outcome IS NULL AND NOT EXISTS (
            SELECT FROM kfm.energy e
            WHERE e.run_id = last.run_id AND e.key = last.key AND e.epoch = last.txn AND e.stage = begun.stage)
        ORDER BY begun.place
        """,
        {"key": key, "dataset": dataset, "coefficients": coefficients},
    )


@dataclass(frozen=True, slots=True)
class EnergyTotal:
    """What entries of one method come to. What one of them does not know, the sum does not know either."""

    entries: int
    usage: Usage
    energy: Energy


@dataclass(frozen=True, slots=True)
class MonthlyTotal:
    """What went into a dataset in a month, by one method; `for_nothing` is the share of the energy that went into what
    published nothing, None where the energy is unknown. Without a dataset it is what taking messages cost, which is
    never for nothing."""

    dataset: str | None
    month: date
    runs: int
    keys: int
    wasted_share: float | None
    total: EnergyTotal


# A sum that leaves out what is unknown would pass for the whole.
KNOWN_SUMS = ", ".join(
    f"CASE WHEN count({name}) = count(*) THEN sum({name}) END AS {name}"
    for name in (
        "wall_seconds", "cpu_seconds", "gigabyte_seconds", "bytes_read", "bytes_written", "network_bytes",
        "watt_seconds", "carbon_grams", "cost_usd",
    )
)  # fmt: skip
SUMS = f"count(*) AS entries, {KNOWN_SUMS}"

# Whether an attempt was for nothing: it has ended and nothing came of it, or there never was a claim. Beside its keys a
# run worked for nothing when it published none.
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
    """Of all of it, where one method covers it all; different methods are not added up, and then it is unknown."""
    return totals[0].energy if len(totals) == 1 else UNKNOWN


def total_cpu_seconds(totals: Sequence[EnergyTotal]) -> float | None:
    """Processor time is the same thing whatever the energy was found by; None when any of it is unknown."""
    parts = [one.usage.cpu_seconds for one in totals]
    return sum(part for part in parts if part is not None) if parts and None not in parts else None


def transaction_totals(database: Database, key: str, txn: int) -> tuple[EnergyTotal, ...]:
    """By method, of one attempt at a key so far."""
    rows = database.fetch(
        f"""
        SELECT method, {SUMS} FROM kfm.energy WHERE key = %(key)s AND epoch = %(txn)s GROUP BY method ORDER BY method
        """,  # noqa: S608 - a constant
        {"key": key, "txn": txn},
    )
    return tuple(_energy_total(row) for row in rows)


def stage_totals(database: Database, run_id: str) -> dict[str, tuple[EnergyTotal, ...]]:
    """What each stage of a run cost, by method; in the order the stages were first entered."""
    rows = database.fetch(
        f"""
        SELECT stage AS part, method, {SUMS} FROM kfm.energy WHERE run_id = %(run_id)s
        GROUP BY stage, method ORDER BY min(min(id)) OVER (PARTITION BY stage), method
        """,  # noqa: S608 - a constant
        {"run_id": run_id},
    )
    return _totals_by_part(rows)


def key_totals_of_replay(database: Database, replay: str) -> dict[str, tuple[EnergyTotal, ...]]:
    """What each key of a replay cost, by method, its trial before the others and all its attempts."""
    return _key_totals(database, "replay", replay)


def key_totals_of_run(database: Database, run_id: str) -> dict[str, tuple[EnergyTotal, ...]]:
    """What each key has cost in a run so far, by method."""
    return _key_totals(database, "run_id", run_id)


def _key_totals(
    database: Database, column: Literal["replay", "run_id"], value: str
) -> dict[str, tuple[EnergyTotal, ...]]:
    rows = database.fetch(
        f"""
        SELECT key AS part, method, {SUMS} FROM kfm.energy WHERE {column} = %(value)s AND key IS NOT NULL
        GROUP BY key, method ORDER BY key, method
        """,  # noqa: S608 - constants
        {"value": value},
    )
    return _totals_by_part(rows)


def replay_totals(database: Database, replay: str) -> tuple[EnergyTotal, ...]:
    """By method: its keys, and what its runs cost beside them."""
    rows = database.fetch(
        f"SELECT method, {SUMS} FROM kfm.energy WHERE replay = %(replay)s GROUP BY method ORDER BY method",  # noqa: S608 - a constant
        {"replay": replay},
    )
    return tuple(_energy_total(row) for row in rows)


def monthly_totals(
    database: Database, dataset: str | None = None, start: date | None = None, end: date | None = None
) -> list[MonthlyTotal]:
    """Of all datasets or one, from the month of `start` to before `end`, by UTC."""
    rows = database.fetch(
        f"""
        WITH attempts AS (
            SELECT dataset, date_trunc('month', at, 'UTC')::date AS month, method, run_id, key, epoch, {SUMS}
            FROM kfm.energy e WHERE {ENTRY_FILTER} GROUP BY dataset, month, method, run_id, key, epoch
        ), judged AS (SELECT e.*, {IS_WASTED} AS is_for_nothing FROM attempts e)
        SELECT dataset, month, method, count(DISTINCT run_id) AS runs, count(DISTINCT key) AS keys,
               coalesce(sum(watt_seconds) FILTER (WHERE is_for_nothing), 0) / sum(watt_seconds) AS for_nothing,
               sum(entries)::int AS entries, {KNOWN_SUMS}
        FROM judged GROUP BY dataset, month, method ORDER BY dataset NULLS LAST, month, method
        """,  # noqa: S608 - a constant
        {"dataset": dataset, "start": start, "end": end},
    )
    return [
        MonthlyTotal(row["dataset"], row["month"], row["runs"], row["keys"], row["for_nothing"], _energy_total(row))
        for row in rows
    ]


def coefficients_used(database: Database, dataset: str | None, start: date | None, end: date | None) -> list[str]:
    """The digests of what was estimated with in that time, the earliest first."""
    rows = database.fetch(
        f"SELECT coefficients FROM kfm.energy e WHERE {ENTRY_FILTER} GROUP BY coefficients ORDER BY min(id)",  # noqa: S608 - a constant
        {"dataset": dataset, "start": start, "end": end},
    )
    return [row["coefficients"] for row in rows]


def _totals_by_part(rows: Sequence[Row]) -> dict[str, tuple[EnergyTotal, ...]]:
    found: dict[str, tuple[EnergyTotal, ...]] = {}
    for row in rows:
        found[row["part"]] = (*found.get(row["part"], ()), _energy_total(row))
    return found


def _energy_total(row: Row) -> EnergyTotal:
    usage = Usage(
        wall_seconds=row["wall_seconds"],
        cpu_seconds=row["cpu_seconds"],
        gigabyte_seconds=row["gigabyte_seconds"],
        bytes_read=_as_int(row["bytes_read"]),
        bytes_written=_as_int(row["bytes_written"]),
        watt_seconds=row["watt_seconds"] if row["method"] == "measured" else None,
        network_bytes=_as_int(row["network_bytes"]),
    )
    return EnergyTotal(
        row["entries"], usage, Energy(row["method"], row["watt_seconds"], row["carbon_grams"], row["cost_usd"])
    )


def _as_int(value: Decimal | None) -> int | None:
    return None if value is None else int(value)
