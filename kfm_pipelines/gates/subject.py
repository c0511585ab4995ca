"""What the table gates judge: a key's table as it would be published, what was declared, and what came before."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.declarations import Table

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Precedents:
    """What is known from earlier publications."""

    previous_rows: int | None = None  # of the revision published now
    neighbour_rows: tuple[int, ...] = ()  # of the windows around this one
    same_objects_gave: str | None = None  # content hash of what the very same objects gave under the same policy


@dataclass(frozen=True, slots=True)
class TableSubject:
    dataset: Dataset
    published: Table  # the declared table, or what the policy leaves of it
    table: "pa.Table"
    data: bytes  # the Parquet file the table was read from
    content_hash: str
    window: tuple[datetime, datetime]  # half-open: a reading at its end belongs to the next one
    may_show: bool = False  # whether a sample may hold values: nothing is masked, and nothing has to be
    precedents: Precedents = Precedents()
