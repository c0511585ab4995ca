"""What time alone brings about: watermarks that follow the clock, lateness judged again, windows that close.

Belongs here: doing all of it, again and again; nothing is lost if it is done once too often or stopped in between.
"""

from datetime import datetime

from kfm_pipelines.declarations.dataset import Datasets
from kfm_pipelines.state.database import Database
from kfm_pipelines.watermarks.due import close_windows
from kfm_pipelines.watermarks.late import reevaluate_lateness
from kfm_pipelines.watermarks.late_lane import count_held_by_dataset
from kfm_pipelines.watermarks.queries import read_watermarks
from kfm_pipelines.watermarks.streams import advance_watermarks


def tick_watermarks(database: Database, datasets: Datasets, *, now: datetime | None = None) -> None:
    """To be done after events were recorded, and now and then when none come."""
    advance_watermarks(database, datasets, now)
    reevaluate_lateness(database, datasets)
    close_windows(database, datasets)


def format_watermarks(database: Database) -> list[str]:
    """How far each dataset is complete and what is held late, in a few words; of datasets with anything to say."""
    marks, held = read_watermarks(database), count_held_by_dataset(database)
    return [
        ", ".join(
            [
                f"{dataset} complete until {marks[dataset]:%Y-%m-%dT%H:%MZ}" if dataset in marks else dataset,
                *([f"{held[dataset]} late held"] if dataset in held else []),
            ]
        )
        for dataset in sorted({*marks, *held})
    ]
