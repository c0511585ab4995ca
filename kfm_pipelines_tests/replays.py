"""Replays as runs know them, without the part that plans them and asks for runs."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.wal import Entry, history


def close_until(workshop: Workshop, dataset: str, until: datetime) -> None:
    """Every window that ends by then is closed."""
    workshop.database.execute(
        "INSERT INTO kfm.checkpoints (dataset, partition, watermark) VALUES (%(dataset)s, '*', %(until)s)"
        " ON CONFLICT (dataset, partition) DO UPDATE SET watermark = excluded.watermark",
        {"dataset": dataset, "until": until},
    )


def plan_replay(workshop: Workshop, dataset: str, keys: Sequence[str], *, mode: str = "reproduce") -> str:
    """A replay of these keys; its id."""
    replay = f"{mode}-{hashlib.sha256(repr(keys).encode()).hexdigest()[:8]}"
    workshop.database.execute(
        "INSERT INTO kfm.replays (id, dataset, mode, plan, config, config_digest)"
        " VALUES (%(id)s, %(dataset)s, %(mode)s, '{}', '{}', '') ON CONFLICT DO NOTHING",
        {"id": replay, "dataset": dataset, "mode": mode},
    )
    workshop.database.execute(
        "INSERT INTO kfm.replay_keys (replay, key, place) SELECT %(id)s, key, place"
        " FROM unnest(%(keys)s::text[]) WITH ORDINALITY AS n (key, place) ON CONFLICT DO NOTHING",
        {"id": replay, "keys": list(keys)},
    )
    return replay


def last_of(workshop: Workshop, key: str) -> Entry:
    with workshop.database.transaction() as connection:
        return history(connection, key)[-1]


def whole_tree(folder: Path) -> dict[str, bytes]:
    """Every file of a store, but for what tells of single transactions."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return {path: data for path, data in found.items() if not path.startswith(("reports/", "work/"))}
