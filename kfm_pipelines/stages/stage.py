"""Stage: the candidate revision, complete and checked, where no reader looks."""

import hashlib
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.catalogs.stac import BBox, ItemFacts, item_document
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.stages.parquet import read_parquet
from kfm_pipelines.stores import Layout, Store

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is about to be staged."""

    key: str
    epoch: int
    revision: int
    window_start: datetime
    window_end: datetime
    inputs: tuple[str, ...]
    inputs_hash: str
    fingerprint: str
    policy: str
    gates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """A staged revision, as it is written into the log: all that is needed to publish it, or to finish doing so."""

    key: str
    revision: int
    inputs_hash: str
    fingerprint: str
    content_hash: str
    item_hash: str
    expected_item: str | None
    rows: int
    bytes: int
    bbox: BBox | None

    def as_detail(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_detail(cls, detail: dict[str, Any]) -> "Release":
        bbox = detail["bbox"]
        return cls(**{**detail, "bbox": (bbox[0], bbox[1], bbox[2], bbox[3]) if bbox else None})


def stage(store: Store, dataset: Dataset, candidate: Candidate, content_hash: str) -> Release:
    """Write data and Item of the candidate to the staging tier; the data must be the bytes that were judged."""
    layout = Layout(dataset.pipeline)
    data = store.read(layout.masked(candidate.key, candidate.epoch))
    if hashlib.sha256(data).hexdigest() != content_hash:
        raise IntegrityBroken(f"{candidate.key}: the masked table changed after it was judged")
    table = read_parquet(data, candidate.key)
    bbox = bounding_box(table, dataset)
    item = item_document(dataset, _facts(dataset, candidate, content_hash, len(data), table.num_rows, bbox))
    store.write(layout.staged_data(candidate.key, candidate.epoch), data)
    store.write(layout.staged_item(candidate.key, candidate.epoch), item)
    return Release(
        key=candidate.key,
        revision=candidate.revision,
        inputs_hash=candidate.inputs_hash,
        fingerprint=candidate.fingerprint,
        content_hash=content_hash,
        item_hash=hashlib.sha256(item).hexdigest(),
        expected_item=store.digest(layout.item(candidate.key)),
        rows=table.num_rows,
        bytes=len(data),
        bbox=bbox,
    )


def bounding_box(table: "pa.Table", dataset: Dataset) -> BBox | None:
    """West, south, east, north of the rows; None for an empty table."""
    import pyarrow.compute as pc

    if table.num_rows == 0 or dataset.table.longitude_column is None:
        return None
    longitudes = pc.min_max(table.column(dataset.table.longitude_column)).as_py()
    latitudes = pc.min_max(table.column(dataset.table.latitude_column)).as_py()
    if longitudes["min"] is None or latitudes["min"] is None:
        return None
    return (longitudes["min"], latitudes["min"], longitudes["max"], latitudes["max"])


def _facts(
    dataset: Dataset, candidate: Candidate, content_hash: str, size: int, rows: int, bbox: BBox | None
) -> ItemFacts:
    return ItemFacts(
        key=candidate.key,
        window_start=candidate.window_start,
        window_end=candidate.window_end,
        bbox=bbox,
        rows=rows,
        size=size,
        content_hash=content_hash,
        inputs_hash=candidate.inputs_hash,
        inputs=candidate.inputs,
        policy=candidate.policy,
        gates=candidate.gates,
        data_href=f"../../../{Layout(dataset.pipeline).content(content_hash)}",
    )
