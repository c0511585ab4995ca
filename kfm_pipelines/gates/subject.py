"""What the table gates judge: a key's table as it would be published, what was declared, and what came before."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset

if TYPE_CHECKING:
    import pyarrow as pa


def count_true(condition: "pa.ChunkedArray | pa.Array") -> int:
    """What is not known is not counted."""
    import pyarrow.compute as pc

    return int(pc.sum(condition).as_py() or 0)


@dataclass(frozen=True, slots=True)
class Baselines:
    """What is known from earlier publications."""

    previous_rows: int | None = None  # of the revision published now
    neighbour_rows: tuple[int, ...] = ()  # of the windows around this one
    same_inputs_hash: str | None = None  # content hash of what the very same objects gave under the same policy


@dataclass(frozen=True, slots=True)
class ApprovedSchema:
    """The schema that readers of the dataset were last promised, and the one they would get now."""

    version: int
    columns: Mapping[str, Mapping[str, Any]]
    now: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TableSubject:
    dataset: Dataset
    published: Table  # the declared table, or what the policy leaves of it
    table: "pa.Table"
    data: bytes  # the Parquet file the table was read from
    content_hash: str
    window: tuple[datetime, datetime]  # half-open: a reading at its end belongs to the next one
    may_sample: bool = False  # whether a sample may hold values: nothing is masked, and nothing has to be
    baselines: Baselines = Baselines()
    approved: ApprovedSchema | None = None  # None: nobody asks


@dataclass(frozen=True, slots=True)
class AnnouncedInput:
    """An input as its event announced it, and as it was when it was fetched."""

    asset_uri: str
    etag: str | None
    size: int | None
    found_etag: str | None
    found_size: int | None


@dataclass(frozen=True, slots=True)
class ReleaseSubject:
    """What the release gates judge: what is staged, to the byte, and what it has to agree with."""

    dataset: Dataset
    key: str
    inputs: tuple[AnnouncedInput, ...]
    judged: str  # content hash of the table that the table gates let pass
    digests: Mapping[str, str]  # what was staged, by name: data.parquet, item.json, …
    staged: Mapping[str, bytes]  # what lies there now, by the same names
    policy: str  # name and version of the policy in force
    care: str  # what it came to: masked, exempted or open
    verified: str | None  # digest of the release that the verifier found nothing wrong with
    digest: str  # of this release
