"""Why a run was started, and so which keys it may touch: events made them due, a person chose them, or a replay.

Runs for due keys carry our tag. Dagster tags the runs of a backfill but not the run of a single partition, so a run
without our tag is manual and, like a backfill and a replay, limited to closed windows. A manual run may also take a key
that is due right now, as the dispatcher would.
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

RERUN_TAG = "dagster/parent_run_id"  # set by Dagster on a re-execution, which copies all other tags
EVENT_RUN_TAGS = {"kfm/asked-by": "events"}


@dataclass(frozen=True, slots=True)
class RunTrigger:
    replay: str | None = None
    backfill: bool = False
    manual: bool = False

    @classmethod
    def from_tags(cls, tags: Mapping[str, str]) -> "RunTrigger":
        replay, backfill = tags.get(REPLAY_TAG), BACKFILL_TAG in tags
        by_events = EVENT_RUN_TAGS.items() <= tags.items() and RERUN_TAG not in tags
        return cls(replay, backfill, manual=not (by_events or backfill or replay))

    @property
    def is_bounded(self) -> bool:
        """Whether only closed windows may be touched."""
        return self.backfill or self.manual or self.replay is not None


EVENT_TRIGGER = RunTrigger()


def refused_keys(
    database: Database, dataset: str, trigger: RunTrigger, keys: Sequence[str], run_id: str
) -> dict[str, str]:
    """Returns the keys of other datasets and open windows, which this run must not touch, with the reason for each."""
    above = _above_watermark(database, dataset, keys) if trigger.is_bounded else {}
    allowed = due_or_held_keys(database, list(above), run_id) if trigger.manual else set()
    others = keys_of_other_datasets(database, dataset, keys)
    return {key: reason for key, reason in above.items() if key not in allowed} | others


def is_reproduction(database: Database, dataset: str, trigger: RunTrigger) -> bool:
    """Whether the run must reproduce the published bytes. Raises ReplayRefused for a replay of another dataset."""
    if trigger.replay is None:
        return False
    replay = replays.read(database, trigger.replay)
    if replay.dataset != dataset:
        raise ReplayRefused(f"replay {replay.id} is of {replay.dataset}, not of {dataset}")
    return replay.mode == "reproduce"


def _above_watermark(database: Database, dataset: str, keys: Sequence[str]) -> dict[str, str]:
    until = read_watermark(database, dataset)
    watermark = (
        f"the watermark of {dataset} stands at {_format_time(until)}" if until else f"{dataset} has no watermark yet"
    )
    return {
        key: str(AboveWatermark(f"{key}: its window ends at {_format_time(end)} and is not closed: {watermark}"))
        for key, end in window_ends_after(database, keys, until).items()
    }


def _format_time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
