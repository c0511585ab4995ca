"""The energy ledger: what each stage of each attempt cost. Entries are added and never changed.

Measured and estimated energy are different things: nothing here adds one to the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kfm_pipelines.state.database import Database
from kfm_pipelines.telemetry.energy import Energy
from kfm_pipelines.telemetry.usage import Usage


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


def enter(database: Database, entries: Sequence[EnergyEntry], coefficients: str) -> None:
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
