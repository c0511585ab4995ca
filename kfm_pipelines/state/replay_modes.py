"""What a run has to know of the replay it belongs to, and what it tells it back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.state.database import Database

Mode = Literal["reproduce", "upgrade"]


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """A replay, as far as its runs care."""

    id: str
    dataset: str
    mode: Mode
    config: Mapping[str, Any]


def replay_of(database: Database, replay: str) -> ReplayRow:
    """ReplayRefused when there is none of that id."""
    rows = database.fetch("SELECT id, dataset, mode, config FROM kfm.replays WHERE id = %(id)s", {"id": replay})
    if not rows:
        raise ReplayRefused(f"no replay {replay!r} is known")
    return ReplayRow(**rows[0])


def add_cpu(database: Database, replay: str, seconds: Mapping[str, float]) -> None:
    """Add what keys have cost in a stage of a run; a key that is none of the replay's is left out."""
    if not seconds:
        return
    keys = sorted(seconds)
    database.execute(
        """
        UPDATE kfm.replay_keys k SET cpu_seconds = k.cpu_seconds + spent.seconds
        FROM unnest(%(keys)s::text[], %(seconds)s::float[]) AS spent (key, seconds)
        WHERE k.replay = %(replay)s AND k.key = spent.key
        """,
        {"replay": replay, "keys": keys, "seconds": [seconds[key] for key in keys]},
    )
