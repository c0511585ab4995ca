"""Why a run works on its keys: because events made them due, because somebody chose them, or for a replay.

Only the dispatcher and the worker ask for what events made due, and say so by a tag. Every other run was started by
somebody, who may have chosen any key: Dagster puts a tag on the runs of a backfill, and none on the run of a single
partition. So a run without our tag is bounded as well. It may still take a key of an open window that is due at this
moment: then it does what the dispatcher would have done. A backfill and a replay may not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kfm_pipelines.errors import AboveWatermark, ReplayRefused
from kfm_pipelines.orchestration.tags import BACKFILL_TAG, REPLAY_TAG
from kfm_pipelines.state import replays
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.keys import due_or_held_keys, keys_of_other_datasets
from kfm_pipelines.watermarks.queries import read_watermark, window_ends_after

# What it puts on a run that somebody starts again; all other tags of the first one are copied.
RERUN_TAG = "dagster/parent_run_id"
# On every run that is asked for because keys are due.
EVENT_RUN_TAGS = {"kfm/asked-by": "events"}


@dataclass(frozen=True, slots=True)
class RunTrigger:
    """What a run is for."""

    replay: str | None = None
    backfill: bool = False
    manual: bool = False  # somebody started it in some other way

    @classmethod
    def from_tags(cls, tags: Mapping[str, str]) -> "RunTrigger":
        replay, backfill = tags.get(REPLAY_TAG), BACKFILL_TAG in tags
        asked = EVENT_RUN_TAGS.items() <= tags.items() and RERUN_TAG not in tags
        return cls(replay, backfill, manual=not (asked or backfill or replay))

    @property
    def is_bounded(self) -> bool:
        """Whether only closed windows may be touched. What events ask for may be done at any time."""
        return self.backfill or self.manual or self.replay is not None


EVENT_TRIGGER = RunTrigger()


def refused_keys(
    database: Database, dataset: str, trigger: RunTrigger, keys: Sequence[str], run_id: str
) -> dict[str, str]:
    """Why some of the keys are not for this run: they are another dataset's, or their windows are not closed yet, so
    they may still change."""
    above = _above_watermark(database, dataset, keys) if trigger.is_bounded else {}
    allowed = due_or_held_keys(database, list(above), run_id) if trigger.manual else set()
    strangers = keys_of_other_datasets(database, dataset, keys)
    return {key: reason for key, reason in above.items() if key not in allowed} | strangers


def is_reproduction(database: Database, dataset: str, trigger: RunTrigger) -> bool:
    """Whether the run has to give the very bytes that are published. ReplayRefused when it belongs to no replay of the
    dataset, though it says so."""
    if trigger.replay is None:
        return False
    replay = replays.read(database, trigger.replay)
    if replay.dataset != dataset:
        raise ReplayRefused(f"replay {replay.id} is of {replay.dataset}, not of {dataset}")
    return replay.mode == "reproduce"


def _above_watermark(database: Database, dataset: str, keys: Sequence[str]) -> dict[str, str]:
    until = read_watermark(database, dataset)
    stands = (
        f"the watermark of {dataset} stands at {_format_time(until)}" if until else f"{dataset} has no watermark yet"
    )
    return {
        key: str(AboveWatermark(f"{key}: its window ends at {_format_time(end)} and is not closed: {stands}"))
        for key, end in window_ends_after(database, keys, until).items()
    }


def _format_time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
