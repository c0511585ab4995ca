"""Advances a replay step by step. A step may be repeated or interrupted; outcomes are read from the log."""

import logging
import math
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Protocol

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import DatasetUnknown
from kfm_pipelines.operations.replay import tables
from kfm_pipelines.operations.replay.gate import KeyAttempts, ReplayGate, ReplayVerdict
from kfm_pipelines.operations.replay.plan import config_changes_since_plan
from kfm_pipelines.operations.replay.status import settle_replay, write_records
from kfm_pipelines.operations.replay.tables import ReplayBatch
from kfm_pipelines.services import Services
from kfm_pipelines.state import kill_switch, replays
from kfm_pipelines.state.keys import keys_in_review
from kfm_pipelines.state.replays import Replay
from kfm_pipelines.telemetry.logs.lines import log_context
from kfm_pipelines.telemetry.traces.spans import mark_failed

log = logging.getLogger(__name__)

SYSTEM_ACTOR = "kfm"
POLL_SECONDS = 2.0
MAX_BATCHES_WITHOUT_PROGRESS = 3


class BatchStatus(Enum):
    UNKNOWN = auto()  # never submitted, or its backfill was abandoned
    RUNNING = auto()
    FINISHED = auto()
    CANCELLED = auto()


class BatchRunner(Protocol):
    def submit(self, dataset: Dataset, batch: ReplayBatch) -> None:
        """Starts the batch, once even if called twice."""

    def status(self, batch: ReplayBatch) -> BatchStatus: ...

    def cancel(self, batch: ReplayBatch) -> None:
        """Starts no more of the batch."""


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """The replay after a step, and how long to wait before the next one."""

    replay: Replay
    wait_seconds: float = 0.0

    @property
    def is_last(self) -> bool:
        return self.replay.state != "running"


def advance(services: Services, replay: str, runner: BatchRunner, now: datetime | None = None) -> ReplayStep | None:
    """Takes one step. Returns None when another process holds the replay."""
    with replays.lock_replay(services.database, replay) as mine:
        return take_step(services, replay, runner, now) if mine else None


def take_step(services: Services, replay_id: str, runner: BatchRunner, now: datetime | None = None) -> ReplayStep:
    """Takes one step; the caller holds the lock. Rates are measured by the database's clock unless `now` is given."""
    return _Driver(services, runner, now).take_step(replays.read(services.database, replay_id))


@dataclass(frozen=True, slots=True)
class _Driver:
    services: Services
    runner: BatchRunner
    now: datetime | None

    def take_step(self, replay: Replay) -> ReplayStep:
        settle_replay(self.services, replay)
        batch = tables.find_open_batch(self.services.database, replay.id)
        if replay.state != "running":
            return self._close_last_batch(replay, batch)
        if note := self._kill_note(replay):
            return self._halt(replay, "paused", note)
        if batch is None:
            return self._start_next_batch(replay)
        if self.runner.status(batch) is BatchStatus.UNKNOWN:
            if note := _config_change_note(self.services, replay):
                return self._halt(replay, "paused", note)
            self._submit(batch, replay)
        return self._follow_batch(self._read(replay), batch)

    def _follow_batch(self, replay: Replay, batch: ReplayBatch) -> ReplayStep:
        status = self.runner.status(batch)
        if status is BatchStatus.RUNNING or (status is BatchStatus.UNKNOWN and replay.state == "running"):
            return ReplayStep(replay, POLL_SECONDS)
        settle_replay(self.services, replay)
        kill_note = self._kill_note(replay)
        if replay.state != "running":
            return self._close_last_batch(replay, batch)
        cancelled = status is BatchStatus.CANCELLED
        tables.end_batch(self.services.database, batch, ignore_failures=kill_note is not None or cancelled)
        if cancelled:
            return self._halt(replay, "paused", f"its backfill {batch.backfill} was cancelled in Dagster")
        if kill_note:
            return self._halt(replay, "paused", kill_note)
        return self._start_next_batch(replay)

    def _close_last_batch(self, replay: Replay, batch: ReplayBatch | None) -> ReplayStep:
        """Ends the last batch of a replay that is not running. A paused replay keeps a batch that never started."""
        if batch is None:
            return ReplayStep(replay)
        status = self.runner.status(batch)
        ended = status in (BatchStatus.FINISHED, BatchStatus.CANCELLED)
        if ended or (status is BatchStatus.UNKNOWN and replay.is_over):
            settle_replay(self.services, replay)
            tables.end_batch(self.services.database, batch, ignore_failures=status is not BatchStatus.FINISHED)
            write_records(self.services, replay)
        return ReplayStep(replay)

    def _start_next_batch(self, replay: Replay) -> ReplayStep:
        database = self.services.database
        verdict = _judge_gate(self.services, replay)
        tables.quarantine(database, replay.id, {one.key: one.reason for one in verdict.quarantined}, SYSTEM_ACTOR)
        if verdict.stop_reason:
            return self._halt(replay, "stopped", verdict.stop_reason)
        counts = tables.count_states(database, replay.id)
        if not counts.get("waiting"):
            without_data = tables.count_without_data(database, replay.id)
            empty = f", {without_data} of them without data" if without_data else ""
            quarantined = f", {counts['quarantined']} in quarantine" if counts.get("quarantined") else ""
            return self._halt(replay, "done", f"{counts.get('done', 0)} keys done{empty}{quarantined}")
        if note := _pause_reason(self.services, replay) or _config_change_note(self.services, replay):
            return self._halt(replay, "paused", note)
        rate, last = replay.terms.rate, tables.seconds_since_batch(database, replay.id, self.now)
        if last and (wait := rate_delay(rate, *last)) > 0:
            return ReplayStep(replay, wait)
        per_minute = replay.terms.batch if rate is None else max(1, math.ceil(rate))
        batch = tables.create_batch(database, replay.id, min(replay.terms.batch, per_minute), SYSTEM_ACTOR)
        if batch is None:  # other runs hold the rest, or the replay is no longer running
            return ReplayStep(self._read(replay), POLL_SECONDS)
        self._submit(batch, replay)
        return ReplayStep(self._read(replay))

    def _submit(self, batch: ReplayBatch, replay: Replay) -> None:
        self.runner.submit(self.services.datasets[replay.dataset], batch)
        if self._read(replay).state == "cancelled":  # while the batch was being submitted
            self.runner.cancel(batch)

    def _halt(self, replay: Replay, state: str, note: str) -> ReplayStep:
        """Ends or pauses the replay, writing its records first because no later step will."""
        write_records(self.services, replay)
        replays.move(self.services.database, replay.id, state, SYSTEM_ACTOR, to=state, only_from=["running"], note=note)
        return ReplayStep(self._read(replay))

    def _kill_note(self, replay: Replay) -> str | None:
        killed = kill_switch.killed_datasets(self.services.database).get(replay.dataset)
        return f"{killed}; resume it when that is over" if killed else None

    def _read(self, replay: Replay) -> Replay:
        return replays.read(self.services.database, replay.id)


def rate_delay(rate: float | None, keys: int, seconds: float) -> float:
    """Returns how long to wait after a batch of `keys`, asked for `seconds` ago, to keep to `rate` keys a minute."""
    return 0.0 if rate is None else max(0.0, keys / rate * 60 - seconds)


def _pause_reason(services: Services, replay: Replay) -> str | None:
    box = replay.terms.time_box_seconds
    if box is not None and replays.seconds_since_start(services.database, replay.id) >= box:
        return f"its time box of {box:g} s is over"
    if not tables.made_no_progress(services.database, replay.id, MAX_BATCHES_WITHOUT_PROGRESS):
        return None
    waiting = [one.key for one in tables.keys_of(services.database, replay.id, states=["waiting"])]
    in_review = keys_in_review(services.database, waiting)
    why = next(iter(in_review.values()), f"their runs say why, the first is that of {waiting[0]}")
    return f"its last {MAX_BATCHES_WITHOUT_PROGRESS} batches ended and none of their keys was worked on; {why}"


def _config_change_note(services: Services, replay: Replay) -> str | None:
    """Checked before every batch: the plan was approved for one configuration."""
    try:
        changed = config_changes_since_plan(services, replay)
    except DatasetUnknown as error:
        return str(error)
    if not changed:
        return None
    return f"{', '.join(changed)} changed since it was planned; change it back and resume it, or plan it again"


def _judge_gate(services: Services, replay: Replay) -> ReplayVerdict:
    database, terms = services.database, replay.terms
    counts = tables.count_states(database, replay.id)
    attempts = [
        KeyAttempts(one.key, one.attempts, one.outcome is not None, "" if one.outcome else one.why)
        for one in tables.keys_of(database, replay.id, states=("done", "waiting"))
        if one.batch is not None
    ]
    gate = ReplayGate(terms.max_attempts, terms.quarantine_percent)
    exhausted = sum(not one.has_outcome and one.failures >= terms.max_attempts for one in attempts)
    about = {"kfm.replay_id": replay.id, "kfm.dataset": replay.dataset, "kfm.gate": "replay"}
    with (
        log_context(replay_id=replay.id, dataset=replay.dataset),
        services.telemetry.spans.span("replay_gate", about) as span,
    ):
        verdict = gate.judge(attempts, counts.get("quarantined", 0), more_to_come=counts.get("waiting", 0) > exhausted)
        colour = "red" if verdict.stop_reason else "green"
        if verdict.stop_reason:
            mark_failed(span, colour)
        log.info("gate replay is %s; %d keys are set aside", colour, len(verdict.quarantined))
    services.telemetry.metrics.count("gate_verdicts_total", gate="replay", verdict=colour)
    services.telemetry.flush()
    return verdict
