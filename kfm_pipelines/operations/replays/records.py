"""What a replay has cost and come to, one record for each key: in the database, and as lines in the store."""

import json
from typing import Any

from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.replay_keys import KeyState, failures_of, keys_of, record_telemetry, settle_keys
from kfm_pipelines.state.replays import Replay
from kfm_pipelines.stores.layout import replay_records
from kfm_pipelines.telemetry.energy import Coefficients, energy_of, load_coefficients
from kfm_pipelines.telemetry.usage import Usage

SHOWN = 3
TOLD = ("done", "quarantined", "asked", "waiting")


def settle(workshop: Workshop, replay: Replay) -> None:
    """Give the keys what the log has for them. Of a replay that is not carried on nobody else writes it down."""
    if settle_keys(workshop.database, replay.id) and replay.state != "running":
        write_records(workshop, replay)


def write_records(workshop: Workshop, replay: Replay) -> None:
    """Of every key that was tried; written anew whenever a replay ends or pauses."""
    coefficients = load_coefficients(workshop.settings.resources)
    failures = failures_of(workshop.database, replay.id)
    tried = [one for one in keys_of(workshop.database, replay.id, states=TOLD) if one.batch is not None or one.canary]
    records = {one.key: _record(replay, one, failures.get(one.key), coefficients) for one in tried}
    record_telemetry(workshop.database, replay.id, records)
    lines = [json.dumps(record, sort_keys=True) + "\n" for record in records.values()]
    workshop.store.write(replay_records(replay.id), "".join(lines).encode())


def _record(replay: Replay, one: KeyState, failure: str | None, coefficients: Coefficients) -> dict[str, Any]:
    energy = energy_of(coefficients, Usage(0.0, one.cpu_seconds))
    faults = (one.comparison or {}).get("faults", [])  # of one that was tried first
    return {
        "replay_id": replay.id,
        "key": one.key,
        "outcome": one.outcome or ("REFUSED" if faults else None),
        "previous_attempts": one.attempts,
        "validation_fail_reason": failure or (one.why if one.attempts else None) or "; ".join(faults[:SHOWN]) or None,
        "cpu_seconds": one.cpu_seconds or None,
        "energy_cost_ws": energy.watt_seconds,
        "carbon_grams_estimated": energy.carbon_grams,
    }
