"""The state of replays, and one cost and outcome record per key, in the database and in the store."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kfm_pipelines.energy import ledger
from kfm_pipelines.energy.estimate import UNKNOWN
from kfm_pipelines.operations.replay import tables
from kfm_pipelines.operations.replay.tables import KeyState
from kfm_pipelines.services import Services
from kfm_pipelines.state import replays
from kfm_pipelines.state.replays import Replay
from kfm_pipelines.stores.layout import replay_records

MAX_FAULTS = 3
RECORDED_STATES = ("done", "quarantined", "asked", "waiting")


@dataclass(frozen=True, slots=True)
class ReplayStatus:
    replay: Replay
    states: dict[str, int]
    outcomes: dict[str, int]
    without_data: int  # among the keys that are done

    @property
    def total(self) -> int:
        return sum(number for state, number in self.states.items() if state != "left_out")

    @property
    def decided(self) -> int:
        return self.states.get("done", 0) + self.states.get("quarantined", 0)

    def as_document(self) -> dict[str, Any]:
        one = self.replay
        return {
            "replay": one.id,
            "dataset": one.dataset,
            "mode": one.mode,
            "state": one.state,
            "note": one.note,
            "from": one.plan["from"],
            "to": one.plan["to"],
            "keys": self.total,
            "decided": self.decided,
            "states": self.states,
            "outcomes": self.outcomes,
            "without_data": self.without_data,
            "terms": asdict(one.terms),
            "config": one.config_digest,
            "created_at": one.created_at,
            "started_at": one.started_at,
            "ended_at": one.ended_at,
        }


def read_replay_status(services: Services, replay_id: str) -> ReplayStatus:
    """Returns the current state, after copying outcomes from the log even when nothing advances the replay."""
    replay = replays.read(services.database, replay_id)
    if not replay.is_over or tables.find_open_batch(services.database, replay_id):
        settle_replay(services, replay)
    return ReplayStatus(
        replay,
        tables.count_states(services.database, replay_id),
        tables.count_outcomes(services.database, replay_id),
        tables.count_without_data(services.database, replay_id),
    )


def read_replay_details(services: Services, replay_id: str) -> dict[str, Any]:
    keys = tables.keys_of(services.database, replay_id)
    spent = ledger.replay_totals(services.database, replay_id)
    estimated = next((one.energy for one in spent if one.energy.method == "estimated"), UNKNOWN)
    return {
        "canary": [{"key": one.key, **(one.comparison or {})} for one in keys if one.canary],
        "batches": tables.batches_of(services.database, replay_id),
        "quarantined": [
            {"key": one.key, "attempts": one.attempts, "reason": one.why} for one in keys if one.state == "quarantined"
        ],
        "cpu_seconds": ledger.total_cpu_seconds(spent),
        "energy_ws_estimated": estimated.watt_seconds,
        "carbon_grams_estimated": estimated.carbon_grams,
        "energy": [asdict(one.energy) for one in spent],
        "moves": replays.moves_of(services.database, replay_id),
    }


def settle_replay(services: Services, replay: Replay) -> None:
    """Copies outcomes from the log. A running replay writes its records at its end."""
    if tables.settle_keys(services.database, replay.id) and replay.state != "running":
        write_records(services, replay)


def write_records(services: Services, replay: Replay) -> None:
    spent = ledger.key_totals_of_replay(services.database, replay.id)
    failures = tables.read_failure_reasons(services.database, replay.id)
    records = {
        one.key: _key_record(replay, one, failures.get(one.key), spent.get(one.key, ()))
        for one in tables.keys_of(services.database, replay.id, states=RECORDED_STATES)
        if one.batch is not None or one.canary
    }
    tables.record_telemetry(services.database, replay.id, records)
    lines = [json.dumps(record, sort_keys=True) + "\n" for record in records.values()]
    services.store.write(replay_records(replay.id), "".join(lines).encode())


def _key_record(
    replay: Replay, key_state: KeyState, failure: str | None, spent: Sequence[ledger.EnergyTotal]
) -> dict[str, Any]:
    energy = ledger.total_energy(spent)
    faults = (key_state.comparison or {}).get("faults", [])  # of a canary key
    return {
        "replay_id": replay.id,
        "key": key_state.key,
        "outcome": key_state.outcome or ("REFUSED" if faults else None),
        "previous_attempts": key_state.attempts,
        "validation_fail_reason": failure
        or (key_state.why if key_state.attempts else None)
        or "; ".join(faults[:MAX_FAULTS])
        or None,
        "cpu_seconds": ledger.total_cpu_seconds(spent),
        "energy_method": energy.method,
        "energy_cost_ws": energy.watt_seconds,
        "carbon_grams_estimated": energy.carbon_grams,
        "cost_usd_estimated": energy.cost_usd,
    }
