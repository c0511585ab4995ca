"""Starts, pauses, resumes and cancels replays; each is logged with the name of who did it."""

from dataclasses import replace

from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.operations.replay import tables
from kfm_pipelines.operations.replay.advance import SYSTEM_ACTOR, BatchRunner
from kfm_pipelines.operations.replay.first_keys import CanaryResult, run_canary
from kfm_pipelines.operations.replay.plan import config_changes_since_plan
from kfm_pipelines.operations.replay.status import write_records
from kfm_pipelines.services import Services
from kfm_pipelines.state import kill_switch, replays
from kfm_pipelines.state.replays import Replay, ReplayTerms

MAX_BAD_KEYS = 3


def start(services: Services, replay_id: str, terms: ReplayTerms, actor: str) -> list[CanaryResult]:
    """Runs the canary, then sets the replay running, or stops it with a note. Also restarts an interrupted start."""
    with replays.lock_replay(services.database, replay_id) as mine:
        replay = replays.read(services.database, replay_id)
        if not mine:
            raise ReplayRefused(f"another process is running replay {replay.id}; see `kfm replay status {replay.id}`")
        if terms.canary < 1:
            raise ReplayRefused("the canary needs at least 1 key")
        if replay.state not in ("planned", "canary"):
            raise _wrong_state_error(replay, "started")
        _refuse_if_killed(services, replay)
        _refuse_if_changed(services, replay)
        replays.move(
            services.database, replay.id, "started", actor, to="canary", only_from=["planned", "canary"], terms=terms
        )
        tried = run_canary(services, replays.read(services.database, replay.id))
        _conclude_canary(services, replay, tried)
        return tried


def resume(services: Services, replay_id: str, actor: str, *, here: bool) -> Replay:
    """Continues a paused replay under its own terms, with a new time box."""
    replay = replays.read(services.database, replay_id)
    _refuse_if_killed(services, replay)
    _refuse_if_changed(services, replay)
    terms = replace(replay.terms, here=here)
    if not replays.move(
        services.database, replay.id, "resumed", actor, to="running", only_from=["paused", "running"], terms=terms
    ):
        raise _wrong_state_error(replays.read(services.database, replay_id), "resumed")
    return replays.read(services.database, replay_id)


def pause(services: Services, replay_id: str, actor: str, note: str = "") -> Replay:
    """Starts no more batches; the current one finishes."""
    replay = replays.read(services.database, replay_id)
    note = note or f"paused by {actor}"
    if not replays.move(services.database, replay.id, "paused", actor, to="paused", only_from=["running"], note=note):
        raise _wrong_state_error(replay, "paused")
    return _settle_and_read(services, replay_id)


def cancel(services: Services, replay_id: str, actor: str, runner: BatchRunner) -> Replay:
    """Ends a replay for good. What it has published stays, and the current batch finishes."""
    replay = replays.read(services.database, replay_id)
    only_from = ["planned", "canary", "running", "paused"]
    note = f"cancelled by {actor}"
    if not replays.move(
        services.database, replay.id, "cancelled", actor, to="cancelled", only_from=only_from, note=note
    ):
        raise _wrong_state_error(replay, "cancelled")
    if batch := tables.find_open_batch(services.database, replay.id):
        runner.cancel(batch)
    return _settle_and_read(services, replay_id)


def _settle_and_read(services: Services, replay_id: str) -> Replay:
    """Records what is finished so far; a later step settles the batch that is still running."""
    replay = replays.read(services.database, replay_id)
    tables.settle_keys(services.database, replay.id)
    write_records(services, replay)
    return replay


def _refuse_if_changed(services: Services, replay: Replay) -> None:
    if changed := config_changes_since_plan(services, replay):
        raise ReplayRefused(
            f"replay {replay.id} was planned for another configuration: {', '.join(changed)} changed since then; "
            "plan it again"
        )


def _conclude_canary(services: Services, replay: Replay, results: list[CanaryResult]) -> None:
    bad = [one for one in results if one.faults]
    if not results:
        note, what, to = "none of its keys has an object that counts, so nothing speaks for it", "canary-bad", "stopped"
    elif bad:
        reasons = "; ".join(f"{one.key}: {one.faults[0]}" for one in bad[:MAX_BAD_KEYS])
        note = f"{len(bad)} of the first {len(results)} keys are not good: {reasons}"
        write_records(services, replay)
        what, to = "canary-bad", "stopped"
    else:
        note, what, to = f"the first {len(results)} keys are good", "canary-good", "running"
    replays.move(services.database, replay.id, what, SYSTEM_ACTOR, to=to, only_from=["canary"], note=note)


def _refuse_if_killed(services: Services, replay: Replay) -> None:
    if killed := kill_switch.killed_datasets(services.database).get(replay.dataset):
        raise ReplayRefused(f"{killed}; it cannot be replayed until that ends")


def _wrong_state_error(replay: Replay, action: str) -> ReplayRefused:
    why = f" ({replay.note})" if replay.note else ""
    return ReplayRefused(f"replay {replay.id} is {replay.state}{why}, so it cannot be {action}")
