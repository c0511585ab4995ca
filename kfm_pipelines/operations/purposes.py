"""Why a run works on its keys: because events made them due, because somebody chose them, or for a replay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kfm_pipelines.errors import AboveWatermark, ReplayRefused
from kfm_pipelines.state.checkpoints import closed_until, ends_beyond
from kfm_pipelines.state.claims import keys_of_others
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.replay_modes import replay_of

# On every run that a replay asks for: which replay.
REPLAY_TAG = "kfm/replay"
# What Dagster puts on the runs of a backfill.
BACKFILL_TAG = "dagster/backfill"


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a run is for."""

    replay: str | None = None
    backfill: bool = False

    @classmethod
    def of(cls, tags: Mapping[str, str]) -> "Purpose":
        return cls(replay=tags.get(REPLAY_TAG), backfill=BACKFILL_TAG in tags)

    @property
    def is_bounded(self) -> bool:
        """Whether only closed windows may be touched. What events ask for may be done at any time."""
        return self.backfill or self.replay is not None


EVENTS = Purpose()


def refused_keys(database: Database, dataset: str, purpose: Purpose, keys: Sequence[str]) -> dict[str, str]:
    """Why some of the keys are not for this run: they are another dataset's, or their windows are not closed yet, so
    they may still change."""
    strangers = keys_of_others(database, dataset, keys)
    return _above_watermark(database, dataset, purpose, keys) | strangers


def reproduces(database: Database, dataset: str, purpose: Purpose) -> bool:
    """Whether the run has to give the very bytes that are published. ReplayRefused when it belongs to no replay of the
    dataset, though it says so."""
    if purpose.replay is None:
        return False
    replay = replay_of(database, purpose.replay)
    if replay.dataset != dataset:
        raise ReplayRefused(f"replay {replay.id} is of {replay.dataset}, not of {dataset}")
    return replay.mode == "reproduce"


def _above_watermark(database: Database, dataset: str, purpose: Purpose, keys: Sequence[str]) -> dict[str, str]:
    if not purpose.is_bounded:
        return {}
    until = closed_until(database, dataset)
    stands = f"the watermark of {dataset} stands at {_told(until)}" if until else f"{dataset} has no watermark yet"
    return {
        key: str(AboveWatermark(f"{key}: its window ends at {_told(end)} and is not closed: {stands}"))
        for key, end in ends_beyond(database, keys, until).items()
    }


def _told(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
