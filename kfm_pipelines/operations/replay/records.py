"""What a replay has cost and come to, one record for each key: in the database, and as lines in the store."""

import json
from collections.abc import Sequence
from typing import Any

from kfm_pipelines.energy.ledger import EnergyTotal, key_totals_of_replay, total_cpu_seconds, total_energy
from kfm_pipelines.operations.replay.keys import KeyState, keys_of, read_failure_reasons, record_telemetry, settle_keys
from kfm_pipelines.services import Services
from kfm_pipelines.state.replays import Replay
from kfm_pipelines.stores.layout import replay_records

MAX_FAULTS = 3
RECORDED_STATES = ("done", "quarantined", "asked", "waiting")


def settle_replay(services: Services, replay: Replay) -> None:
    """Give the keys what the log has for them. Of a replay that is not carried on nobody else writes it down."""
    if settle_keys(services.database, replay.id) and replay.state != "running":
        write_records(services, replay)


def write_records(services: Services, replay: Replay) -> None:
    """Of every key that was tried; written anew whenever a replay ends or pauses."""
    spent = key_totals_of_replay(services.database, replay.id)
    failures = read_failure_reasons(services.database, replay.id)
    tried = [
        one
        for one in keys_of(services.database, replay.id, states=RECORDED_STATES)
        if one.batch is not None or one.canary
    ]
    records = {one.key: _key_record(replay, one, failures.get(one.key), spent.get(one.key, ())) for one in tried}
    record_telemetry(services.database, replay.id, records)
    lines = [json.dumps(record, sort_keys=True) + "\n" for record in records.values()]
    services.store.write(replay_records(replay.id), "".join(lines).encode())


def _key_record(
    replay: Replay, key_state: KeyState, failure: str | None, spent: Sequence[EnergyTotal]
) -> dict[str, Any]:
    energy = total_energy(spent)
    faults = (key_state.comparison or {}).get("faults", [])  # of one that was tried first
    return {
        "replay_id": replay.id,
        "key": key_state.key,
        "outcome": key_state.outcome or ("REFUSED" if faults else None),
        "previous_attempts": key_state.attempts,
        "validation_fail_reason": failure
        or (key_state.why if key_state.attempts else None)
        or "; ".join(faults[:MAX_FAULTS])
        or None,
        "cpu_seconds": total_cpu_seconds(spent),
        "energy_method": energy.method,
        "energy_cost_ws": energy.watt_seconds,
        "carbon_grams_estimated": energy.carbon_grams,
        "cost_usd_estimated": energy.cost_usd,
    }
