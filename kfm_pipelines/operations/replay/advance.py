"""Carrying a replay on, one step at a time: settle what was asked for, ask the gate, ask for the next batch.

Every step may be repeated, and may be the last one of its process: what was asked for is committed before it is asked,
and what became of it is read from the write-ahead log. One process at a time carries a replay on (`replays.driving`).
What happens around a replay is no failure of its keys: it is paused, and its note says what happened.
"""

import logging
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import DatasetUnknown
from kfm_pipelines.operations.replay import batches as replay_batches
from kfm_pipelines.operations.replay import keys as replay_keys
from kfm_pipelines.operations.replay.batches import ReplayBatch
from kfm_pipelines.operations.replay.gate import KeyAttempts, ReplayGate, ReplayVerdict
from kfm_pipelines.operations.replay.plan import config_changes_since_plan
from kfm_pipelines.operations.replay.records import settle_replay, write_records
from kfm_pipelines.services import Services
from kfm_pipelines.state import kill_switch, replays
from kfm_pipelines.state.keys import keys_in_review
from kfm_pipelines.state.replays import Replay, ReplayTerms
from kfm_pipelines.telemetry.logs.lines import log_context
from kfm_pipelines.telemetry.traces.spans import mark_failed

log = logging.getLogger(__name__)

SYSTEM_ACTOR = "kfm"  # who acts when nobody does
POLL_SECONDS = 2.0
MAX_BATCHES_WITHOUT_PROGRESS = 3  # batches in a row that came to nothing


class BatchStatus(StrEnum):
    """What became of a batch."""

    UNKNOWN = "unknown"  # nobody has heard of it
    RUNNING = "going"
    FINISHED = "over"
    CANCELLED = "called off"


class BatchRunner(Protocol):
    """Whoever has batches carried out."""

    def submit(self, dataset: Dataset, batch: ReplayBatch) -> None:
        """Have it carried out; asked twice it is carried out once."""

    def status(self, batch: ReplayBatch) -> BatchStatus: ...

    def cancel(self, batch: ReplayBatch) -> None:
        """Have no more of it carried out than is under way."""


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """Where the replay stands after a step, and after how many seconds the next one is worth taking."""

    replay: Replay
    wait_seconds: float = 0.0

    @property
    def is_last(self) -> bool:
        return self.replay.state != "running"


def advance(services: Services, replay: str, runner: BatchRunner) -> ReplayStep | None:
    """One step; None when somebody else is at it."""
    with replays.lock_replay(services.database, replay) as mine:
        return take_step(services, replay, runner) if mine else None


def take_step(services: Services, replay_id: str, runner: BatchRunner) -> ReplayStep:
    """By whoever drives the replay."""
    replay = replays.read(services.database, replay_id)
    settle_replay(services, replay)
    batch = replay_batches.find_open_batch(services.database, replay.id)
    if replay.state != "running":
        return _close_last_batch(services, replay, batch, runner)
    if stopped := kill_switch.killed_datasets(services.database).get(replay.dataset):
        return _halt(services, replay, "paused", f"{stopped}; resume it when that is over")
    if batch is None:
        return _start_next_batch(services, replay, runner)
    if runner.status(batch) is BatchStatus.UNKNOWN:
        if note := _config_change_note(services, replay):
            return _halt(services, replay, "paused", note)
        _submit(services, batch, replay, runner)
    return _follow_batch(services, replay, batch, runner)


def _follow_batch(services: Services, replay: Replay, batch: ReplayBatch, runner: BatchRunner) -> ReplayStep:
    """With a batch that was asked for."""
    now, fate = replays.read(services.database, replay.id), runner.status(batch)
    if fate is BatchStatus.RUNNING or (fate is BatchStatus.UNKNOWN and now.state == "running"):
        return ReplayStep(now, POLL_SECONDS)
    settle_replay(services, now)
    stopped = kill_switch.killed_datasets(services.database).get(replay.dataset)
    if now.state != "running":
        return _close_last_batch(services, now, batch, runner)
    replay_batches.end_batch(
        services.database, batch, ignore_failures=stopped is not None or fate is BatchStatus.CANCELLED
    )
    if fate is BatchStatus.CANCELLED:
        return _halt(services, now, "paused", f"its backfill {batch.backfill} was cancelled in Dagster")
    if stopped:
        return _halt(services, now, "paused", f"{stopped}; resume it when that is over")
    return _start_next_batch(services, now, runner)


def _close_last_batch(services: Services, replay: Replay, batch: ReplayBatch | None, runner: BatchRunner) -> ReplayStep:
    """Of one that is not carried on: what became of its last batch. One that nobody has heard of is kept for when a
    pause is over."""
    if batch is None:
        return ReplayStep(replay)
    fate = runner.status(batch)
    if fate in (BatchStatus.FINISHED, BatchStatus.CANCELLED) or (fate is BatchStatus.UNKNOWN and replay.is_over):
        settle_replay(services, replay)
        replay_batches.end_batch(services.database, batch, ignore_failures=fate is not BatchStatus.FINISHED)
        write_records(services, replay)
    return ReplayStep(replay)


def _start_next_batch(services: Services, replay: Replay, runner: BatchRunner) -> ReplayStep:
    database, terms = services.database, replay.terms
    ruling = _judge_gate(services, replay)
    replay_keys.quarantine(database, replay.id, {one.key: one.reason for one in ruling.quarantined}, SYSTEM_ACTOR)
    if ruling.stop_reason:
        return _halt(services, replay, "stopped", ruling.stop_reason)
    counts = replay_keys.count_states(database, replay.id)
    if not counts.get("waiting"):
        return _halt(services, replay, "done", _summary(counts, replay_keys.count_without_data(database, replay.id)))
    if note := _pause_reason(services, replay) or _config_change_note(services, replay):
        return _halt(services, replay, "paused", note)
    wait = _rate_delay(services, replay)
    if wait > 0:
        return ReplayStep(replay, wait)
    batch = replay_batches.create_batch(database, replay.id, _batch_size(terms), SYSTEM_ACTOR)
    if batch is None:  # other runs hold all that is left, or somebody has moved it
        return ReplayStep(replays.read(database, replay.id), POLL_SECONDS)
    _submit(services, batch, replay, runner)
    return ReplayStep(replays.read(database, replay.id))


def _submit(services: Services, batch: ReplayBatch, replay: Replay, runner: BatchRunner) -> None:
    runner.submit(services.datasets[replay.dataset], batch)
    if replays.read(services.database, replay.id).state == "cancelled":  # after the batch was written down
        runner.cancel(batch)


def _pause_reason(services: Services, replay: Replay) -> str | None:
    """It has had its time, or nothing comes of asking again."""
    box = replay.terms.time_box_seconds
    if box is not None and replays.seconds_since_start(services.database, replay.id) >= box:
        return f"its time box of {box:g} s is over"
    if replay_batches.made_no_progress(services.database, replay.id, MAX_BATCHES_WITHOUT_PROGRESS):
        return _no_progress_note(services, replay)
    return None


def _no_progress_note(services: Services, replay: Replay) -> str:
    waiting = [one.key for one in replay_keys.keys_of(services.database, replay.id, states=["waiting"])]
    in_review = keys_in_review(services.database, waiting)
    why = next(iter(in_review.values()), f"their runs say why, the first is that of {waiting[0]}")
    return f"its last {MAX_BATCHES_WITHOUT_PROGRESS} batches ended and none of their keys was worked on; {why}"


def _config_change_note(services: Services, replay: Replay) -> str | None:
    """What was agreed to is for one configuration, and it has to be that one until the last batch."""
    try:
        changed = config_changes_since_plan(services, replay)
    except DatasetUnknown as error:
        return str(error)
    if not changed:
        return None
    return f"{', '.join(changed)} changed since it was planned; change it back and resume it, or plan it again"


def _judge_gate(services: Services, replay: Replay) -> ReplayVerdict:
    database, terms = services.database, replay.terms
    counts = replay_keys.count_states(database, replay.id)
    tried = [
        KeyAttempts(one.key, one.attempts, one.outcome is not None, "" if one.outcome else one.why)
        for one in replay_keys.attempted_keys(database, replay.id)
    ]
    gate = ReplayGate(terms.max_attempts, terms.quarantine_percent)
    spent = sum(not one.has_outcome and one.failures >= terms.max_attempts for one in tried)
    about = {"kfm.replay_id": replay.id, "kfm.dataset": replay.dataset, "kfm.gate": "replay"}
    with (
        log_context(replay_id=replay.id, dataset=replay.dataset),
        services.telemetry.spans.span("replay_gate", about) as span,
    ):
        ruling = gate.judge(tried, counts.get("quarantined", 0), more_to_come=counts.get("waiting", 0) > spent)
        if ruling.stop_reason:
            mark_failed(span, "red")
        log.info(
            "gate replay is %s; %d keys are set aside",
            "red" if ruling.stop_reason else "green",
            len(ruling.quarantined),
        )
    services.telemetry.metrics.count(
        "gate_verdicts_total", gate="replay", verdict="red" if ruling.stop_reason else "green"
    )
    services.telemetry.flush()
    return ruling


def _batch_size(terms: ReplayTerms) -> int:
    """With a rate, no more at once than a minute's worth."""
    return terms.batch if terms.rate is None else max(1, min(terms.batch, math.ceil(terms.rate)))


def _rate_delay(services: Services, replay: Replay) -> float:
    last = replay_batches.seconds_since_batch(services.database, replay.id)
    if replay.terms.rate is None or last is None:
        return 0.0
    keys, seconds = last
    return max(0.0, keys / replay.terms.rate * 60 - seconds)


def _halt(services: Services, replay: Replay, state: str, note: str) -> ReplayStep:
    """Its end, or a pause; with what it has cost so far written down first, since afterwards nobody comes by."""
    write_records(services, replay)
    replays.move(services.database, replay.id, state, SYSTEM_ACTOR, to=state, only_from=["running"], note=note)
    return ReplayStep(replays.read(services.database, replay.id))


def _summary(counts: dict[str, int], without_data: int) -> str:
    quarantined = counts.get("quarantined", 0)
    return (
        f"{counts.get('done', 0)} keys done"
        + (f", {without_data} of them without data" if without_data else "")
        + (f", {quarantined} in quarantine" if quarantined else "")
    )
