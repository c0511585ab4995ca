"""Why a run works on its keys: because events made them due, because somebody chose them, or for a replay."""

from collections.abc import Mapping
from dataclasses import dataclass

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
