"""Where replays stand, for people and programs to read."""

from dataclasses import asdict, dataclass
from typing import Any

from kfm_pipelines.energy.estimate import UNKNOWN
from kfm_pipelines.energy.ledger import replay_totals, total_cpu_seconds
from kfm_pipelines.operations.replay import batches
from kfm_pipelines.operations.replay import keys as replay_keys
from kfm_pipelines.operations.replay.records import settle_replay
from kfm_pipelines.services import Services
from kfm_pipelines.state import replays
from kfm_pipelines.state.replays import Replay


@dataclass(frozen=True, slots=True)
class ReplayStatus:
    replay: Replay
    states: dict[str, int]
    outcomes: dict[str, int]
    without_data: int  # of what is done

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
    """As it is now: what the log says of its keys counts, also when nobody carries it on."""
    replay = replays.read(services.database, replay_id)
    if not replay.is_over or batches.find_open_batch(services.database, replay_id):
        settle_replay(services, replay)
    return ReplayStatus(
        replay,
        replay_keys.count_states(services.database, replay_id),
        replay_keys.count_outcomes(services.database, replay_id),
        replay_keys.count_without_data(services.database, replay_id),
    )


def read_replay_details(services: Services, replay_id: str) -> dict[str, Any]:
    """Its batches, its log, what is in quarantine, what the first keys came to, and what it has cost."""
    keys = replay_keys.keys_of(services.database, replay_id)
    spent = replay_totals(services.database, replay_id)
    estimated = next((one.energy for one in spent if one.energy.method == "estimated"), UNKNOWN)
    return {
        "canary": [{"key": one.key, **(one.comparison or {})} for one in keys if one.canary],
        "batches": batches.batches_of(services.database, replay_id),
        "quarantined": [
            {"key": one.key, "attempts": one.attempts, "reason": one.why} for one in keys if one.state == "quarantined"
        ],
        "cpu_seconds": total_cpu_seconds(spent),
        "energy_ws_estimated": estimated.watt_seconds,
        "carbon_grams_estimated": estimated.carbon_grams,
        "energy": [asdict(one.energy) for one in spent],
        "moves": replays.moves_of(services.database, replay_id),
    }
