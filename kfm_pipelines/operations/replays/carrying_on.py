"""Carrying a replay on, one step at a time: settle what was asked for, ask the gate, ask for the next batch.

Every step may be repeated, and may be the last one of its process: what was asked for is committed before it is asked,
and what became of it is read from the write-ahead log. One process at a time carries a replay on (`replays.driving`).
"""

import math
from dataclasses import dataclass
from typing import Protocol

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.gates.replay import ReplayGate, Ruling, Tried
from kfm_pipelines.operations.replays.records import write_records
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state import kills, replay_keys, replays
from kfm_pipelines.state.replay_keys import ReplayBatch
from kfm_pipelines.state.replays import Replay, Terms

ITSELF = "kfm"  # who acts when nobody does
LOOK_AGAIN_SECONDS = 2.0


class Batches(Protocol):
    """Whoever has batches carried out."""

    def ask(self, dataset: Dataset, batch: ReplayBatch) -> None:
        """Have it carried out; asked twice it is carried out once."""

    def is_over(self, batch: ReplayBatch) -> bool: ...

    def call_off(self, batch: ReplayBatch) -> None:
        """Have no more of it carried out than is under way."""


@dataclass(frozen=True, slots=True)
class Step:
    """Where the replay stands after a step, and after how many seconds the next one is worth taking."""

    replay: Replay
    again_in: float = 0.0

    @property
    def is_last(self) -> bool:
        return self.replay.state != "running"


def advance(workshop: Workshop, replay: str, batches: Batches) -> Step | None:
    """One step; None when somebody else is at it."""
    with replays.driving(workshop.database, replay) as mine:
        return take_step(workshop, replay, batches) if mine else None


def take_step(workshop: Workshop, replay_id: str, batches: Batches) -> Step:
    """By whoever drives the replay."""
    replay = replays.read(workshop.database, replay_id)
    if replay.state != "running":
        return Step(replay)
    stopped = kills.killed(workshop.database).get(replay.dataset)
    if stopped is not None:
        return _halt(workshop, replay, "paused", f"{stopped}; resume it when that is over")
    dataset = workshop.datasets[replay.dataset]
    replay_keys.settle_keys(workshop.database, replay.id)
    if batch := replay_keys.open_batch(workshop.database, replay.id):
        batches.ask(dataset, batch)
        if not batches.is_over(batch):
            return Step(replay, LOOK_AGAIN_SECONDS)
        replay_keys.settle_keys(workshop.database, replay.id)
        replay_keys.end_batch(workshop.database, batch)
    return _next(workshop, replay, dataset, batches)


def _next(workshop: Workshop, replay: Replay, dataset: Dataset, batches: Batches) -> Step:
    database, terms = workshop.database, replay.terms
    ruling = _ruling(workshop, replay)
    replay_keys.quarantine(database, replay.id, {one.key: one.reason for one in ruling.quarantined}, ITSELF)
    if ruling.stop:
        return _halt(workshop, replay, "stopped", ruling.stop)
    counts = replay_keys.count_states(database, replay.id)
    if not counts.get("waiting"):
        return _halt(workshop, replay, "done", _summary(counts))
    if terms.time_box_seconds is not None:
        spent = replays.seconds_since_start(database, replay.id)
        if spent >= terms.time_box_seconds:
            return _halt(workshop, replay, "paused", f"its time box of {terms.time_box_seconds:g} s is over")
    wait = _wait_for_rate(workshop, replay)
    if wait > 0:
        return Step(replay, wait)
    batch = replay_keys.ask_batch(database, replay.id, _batch_size(terms), ITSELF)
    if batch is None:  # other runs hold all that is left
        return Step(replay, LOOK_AGAIN_SECONDS)
    batches.ask(dataset, batch)
    return Step(replay)


def _ruling(workshop: Workshop, replay: Replay) -> Ruling:
    database, terms = workshop.database, replay.terms
    counts = replay_keys.count_states(database, replay.id)
    tried = [
        Tried(one.key, one.attempts, one.outcome is not None, "" if one.outcome else one.why)
        for one in replay_keys.tried_keys(database, replay.id)
    ]
    gate = ReplayGate(terms.max_attempts, terms.quarantine_percent)
    spent = sum(not one.settled and one.failures >= terms.max_attempts for one in tried)
    return gate.judge(tried, counts.get("quarantined", 0), more_to_come=counts.get("waiting", 0) > spent)


def _batch_size(terms: Terms) -> int:
    """With a rate, no more at once than a minute's worth."""
    return terms.batch if terms.rate is None else max(1, min(terms.batch, math.ceil(terms.rate)))


def _wait_for_rate(workshop: Workshop, replay: Replay) -> float:
    last = replay_keys.seconds_since_batch(workshop.database, replay.id)
    if replay.terms.rate is None or last is None:
        return 0.0
    keys, seconds = last
    return max(0.0, keys / replay.terms.rate * 60 - seconds)


def _halt(workshop: Workshop, replay: Replay, state: str, note: str) -> Step:
    """Its end, or a pause; with what it has cost so far written down first, since afterwards nobody comes by."""
    write_records(workshop, replay)
    replays.move(workshop.database, replay.id, state, ITSELF, to=state, only_from=["running"], note=note)
    return Step(replays.read(workshop.database, replay.id))


def _summary(counts: dict[str, int]) -> str:
    quarantined = counts.get("quarantined", 0)
    return f"{counts.get('done', 0)} keys done" + (f", {quarantined} in quarantine" if quarantined else "")
