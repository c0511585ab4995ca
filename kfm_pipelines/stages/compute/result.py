"""What a processor takes and what it makes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfm_pipelines.data_files import TABLE_ALONE, Attachments

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SourceObject:
    asset_uri: str
    data: bytes
    late: bool = False  # its event came after the window had closed


@dataclass(frozen=True, slots=True)
class Computed:
    """A table, what comes with it, and how many records were left out, by reason."""

    table: "pa.Table"
    attachments: Attachments = TABLE_ALONE
    left_out: Mapping[str, int] = field(default_factory=dict)
