"""How far a dataset has come: up to where its windows are closed."""

from collections.abc import Sequence
from datetime import datetime

from kfm_pipelines.state.database import Database

# The dataset as a whole, among its partitions; no partition has this name.
WHOLE_DATASET = "*"


def read_watermark(database: Database, dataset: str) -> datetime | None:
    """Every window that ends by then is closed. None when nothing is."""
    rows = database.fetch(
        "SELECT watermark FROM kfm.checkpoints WHERE dataset = %(dataset)s AND partition = %(whole)s",
        {"dataset": dataset, "whole": WHOLE_DATASET},
    )
    return rows[0]["watermark"] if rows else None


def window_ends_after(database: Database, keys: Sequence[str], until: datetime | None) -> dict[str, datetime]:
    """Those of the keys whose windows end later, and when."""
    rows = database.fetch(
        """
        SELECT key, window_end FROM kfm.keys
        WHERE key = ANY(%(keys)s) AND window_end > coalesce(%(until)s::timestamptz, '-infinity')
        """,
        {"keys": list(keys), "until": until},
    )
    return {row["key"]: row["window_end"] for row in rows}
