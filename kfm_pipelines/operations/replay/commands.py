"""What people do to a replay: start it, pause it, resume it, cancel it. Each is in its log with their name."""

from dataclasses import replace

from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.operations.replay import batches as replay_batches
from kfm_pipelines.operations.replay import keys
from kfm_pipelines.operations.replay.advance import SYSTEM_ACTOR, BatchRunner
from kfm_pipelines.operations.replay.first_keys import CanaryResult, run_canary
from kfm_pipelines.operations.replay.plan import config_changes_since_plan
from kfm_pipelines.operations.replay.records import write_records
from kfm_pipelines.services import Services
from kfm_pipelines.state import kill_switch, replays
from kfm_pipelines.state.replays import Replay, ReplayTerms

MAX_BAD_KEYS = 3


def start(services: Services, replay_id: str, terms: ReplayTerms, actor: str) -> list[CanaryResult]:
    """Try the first keys; if they are good the replay is running, otherwise it is stopped and its note says why.
    A replay whose start was interrupted is started again."""
    with replays.lock_replay(services.database, replay_id) as mine:
        replay = replays.read(services.database, replay_id)
        if not mine:
            raise ReplayRefused(f"another process is at replay {replay.id}; `kfm replay status {replay.id}` shows it")
        if terms.canary < 1:
            raise ReplayRefused("at least one key is tried first")
        if replay.state not in ("planned", "canary"):
            raise _wrong_state_error(replay, "started")
        _refuse_if_killed(services, replay)
        refuse_if_changed(services, replay)
        replays.move(
            services.database, replay.id, "started", actor, to="canary", only_from=["planned", "canary"], terms=terms
        )
        tried = run_canary(services, replays.read(services.database, replay.id))
        _conclude_canary(services, replay, tried)
        return tried


def resume(services: Services, replay_id: str, actor: str, *, here: bool) -> Replay:
    """Go on with a paused replay under its own terms; the time box begins anew."""
    replay = replays.read(services.database, replay_id)
    _refuse_if_killed(services, replay)
    refuse_if_changed(services, replay)
    terms = replace(replay.terms, here=here)
    if not replays.move(
        services.database, replay.id, "resumed", actor, to="running", only_from=["paused", "running"], terms=terms
    ):
        raise _wrong_state_error(replays.read(services.database, replay_id), "resumed")
    return replays.read(services.database, replay_id)


def pause(services: Services, replay_id: str, actor: str, note: str = "") -> Replay:
    """Ask for no more batches. What was asked for goes on to its end."""
    replay = replays.read(services.database, replay_id)
    note = note or f"paused by {actor}"
    if not replays.move(services.database, replay.id, "paused", actor, to="paused", only_from=["running"], note=note):
        raise _wrong_state_error(replay, "paused")
    return _settle_and_read(services, replay_id)


def cancel(services: Services, replay_id: str, actor: str, runner: BatchRunner) -> Replay:
    """Give it up for good. What is published stays; what is under way ends; nothing more is asked for."""
    replay = replays.read(services.database, replay_id)
    only_from = ["planned", "canary", "running", "paused"]
    note = f"cancelled by {actor}"
    if not replays.move(
        services.database, replay.id, "cancelled", actor, to="cancelled", only_from=only_from, note=note
    ):
        raise _wrong_state_error(replay, "cancelled")
    if batch := replay_batches.find_open_batch(services.database, replay.id):
        runner.cancel(batch)
    return _settle_and_read(services, replay_id)


def _settle_and_read(services: Services, replay_id: str) -> Replay:
    """As far as it has come; what its last batch still does is settled when that is over."""
    replay = replays.read(services.database, replay_id)
    keys.settle_keys(services.database, replay.id)
    write_records(services, replay)
    return replay


def refuse_if_changed(services: Services, replay: Replay) -> None:
    """The plan was read and agreed to for one configuration."""
    if changed := config_changes_since_plan(services, replay):
        raise ReplayRefused(
            f"replay {replay.id} was planned for another configuration: {', '.join(changed)} changed since; plan it "
            "again"
        )


def _conclude_canary(services: Services, replay: Replay, results: list[CanaryResult]) -> None:
    bad = [one for one in results if one.faults]
    if not results:
        note, what, to = "none of its keys has an object that counts, so nothing speaks for it", "canary-bad", "stopped"
    elif bad:
        shown = "; ".join(f"{one.key}: {one.faults[0]}" for one in bad[:MAX_BAD_KEYS])
        note = f"{len(bad)} of the first {len(results)} keys are not good: {shown}"
        write_records(services, replay)
        what, to = "canary-bad", "stopped"
    else:
        note, what, to = f"the first {len(results)} keys are good", "canary-good", "running"
    replays.move(services.database, replay.id, what, SYSTEM_ACTOR, to=to, only_from=["canary"], note=note)


def _refuse_if_killed(services: Services, replay: Replay) -> None:
    if stopped := kill_switch.killed_datasets(services.database).get(replay.dataset):
        raise ReplayRefused(f"{stopped}; nothing of it is replayed before that is over")


def _wrong_state_error(replay: Replay, action: str) -> ReplayRefused:
    why = f" ({replay.note})" if replay.note else ""
    return ReplayRefused(f"replay {replay.id} is {replay.state}{why}, so it cannot be {action}")
