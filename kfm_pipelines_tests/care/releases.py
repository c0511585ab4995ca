"""Releases made by hand, record by record: honest ones, for tests to tamper with. Nothing here comes from the masks."""

import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import h3
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely
import yaml
from pyproj import Geod

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.verifier import Evidence
from kfm_pipelines.datasets import Dataset, load_dataset
from kfm_pipelines.declarations import Column
from kfm_pipelines.settings import shipped
from kfm_pipelines_tests.declared import without_geometry

K = 5
PROVENANCE = "provenance.jsonld"
WORDING = "Withheld; ask the board"
GEOD = Geod(ellps="WGS84")
TYPES = {
    "string": pa.string(),
    "float64": pa.float64(),
    "int64": pa.int64(),
    "date": pa.date32(),
    "geometry": pa.binary(),
}

Row = dict[str, Any]


@dataclass
class Record:
    """What is published, and the rows it stands for."""

    values: Row
    rows: list[int]


@dataclass
class Release:
    policy: Policy
    dataset: Dataset
    rows: list[Row] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)
    documents: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)

    def add(self, row: Row) -> int:
        """A row of the original, with something in every declared column."""
        number = len(self.rows)
        self.rows.append({**_filler(self.dataset, number), **row})
        return number

    def publish(self, rows: Iterable[int], **values: Any) -> Record:
        """A record; for one row it keeps what may be kept."""
        rows = list(rows)
        first = self.rows[rows[0]]
        kept = {name: first[name] for name in self.policy.columns.keep} if values.get("records", 1) == 1 else {}
        named = {name: first[name] for name in (self.policy.class_column,) if name}
        record = Record({"records": 1, **named, **kept, **values}, rows)
        self.records.append(record)
        return record

    def of(self, sensitivity: str, *, cell: bool | None = None) -> list[Record]:
        found = [record for record in self.records if record.values.get("sensitivity", sensitivity) == sensitivity]
        return [one for one in found if cell is None or (one.values.get("cell") is not None) is cell]

    def evidence(self) -> Evidence:
        table, order = self.table()
        links = sorted((row, 1 + new) for new, old in enumerate(order) for row in self.records[old].rows)
        crosswalk = {"row": [row for row, _ in links], "record": [record for _, record in links]}
        original = pa.Table.from_pylist(self.rows, schema=original_schema(self.dataset))
        return Evidence(
            parquet(table),
            json.dumps(self.item(table)).encode(),
            {name: json.dumps(document).encode() for name, document in self.documents.items()},
            parquet(original),
            parquet(pa.table(crosswalk, schema=pa.schema({"row": pa.int64(), "record": pa.int64()}))),
            parquet(unparquet(parquet(table))),
        )

    def table(self) -> tuple[pa.Table, list[int]]:
        """Sorted by all published columns; and which record each row of it is."""
        schema = published_schema(self.policy, self.dataset)
        withheld = dict.fromkeys(self.policy.columns.withhold, self.policy.wording)
        table = pa.Table.from_pylist([{**withheld, **record.values} for record in self.records], schema=schema)
        keys = [(name, "ascending", "at_end") for name in schema.names if name != "record"]
        order = pc.sort_indices(table, sort_keys=keys)
        table = table.take(order).set_column(0, schema.field("record"), pa.array(range(1, len(order) + 1), pa.int64()))
        return table.replace_schema_metadata(self.metadata or None), order.to_pylist()

    def item(self, table: pa.Table) -> dict[str, Any]:
        box = box_of(self.dataset, table)
        properties: dict[str, Any] = {
            "title": self.dataset.title,
            "start_datetime": "2026-06-01T00:00:00Z",
            "kfm:policy": self.policy.name,
            "kfm:labels": list(self.policy.labels),
            "anon:warning": "Places are masked",
            "anon:size": size_of(self.dataset, table),
            "table:row_count": table.num_rows,
        }
        if self.dataset.sovereignty is not None:
            properties["kfm:sovereignty"] = {"notice": self.dataset.sovereignty.notice}
        item: dict[str, Any] = {
            "type": "Feature",
            "geometry": rectangle(box),
            "properties": {**properties, **self.properties},
        }
        item["assets"] = {"data": asset(parquet(table), "parquet")}
        if PROVENANCE in self.documents:
            item["assets"]["provenance"] = asset(json.dumps(self.documents[PROVENANCE]).encode(), "json")
        return item | ({"bbox": box} if box else {})


def asset(data: bytes, ending: str) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    href = f"../../../objects/sha256/{digest[:2]}/{digest}.{ending}"
    return {"href": href, "file:checksum": f"1220{digest}", "file:size": len(data)}


def size_of(dataset: Dataset, table: pa.Table) -> float:
    """Degrees of longitude in the far north of the extent, twice the largest uncertainty."""
    largest = pc.max(table.column("uncertainty_m")).as_py()
    if largest is None or dataset.extent is None:
        return 360.0
    return round(2 * float(largest) / (111_320 * math.cos(math.radians(dataset.extent.north))), 3)


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_page_index=True)
    return sink.getvalue()


def unparquet(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data))


def original_schema(dataset: Dataset) -> pa.Schema:
    return pa.schema([pa.field(column.name, TYPES[column.type]) for column in dataset.table.columns])


def published_schema(policy: Policy, dataset: Dataset) -> pa.Schema:
    declared = {column.name: TYPES[column.type] for column in dataset.table.columns}
    table = dataset.table
    lead = [name for name in (table.longitude_column, table.latitude_column, table.geometry_column) if name]
    return pa.schema(
        [
            ("record", pa.int64()),
            *((name, pa.string()) for name in (policy.class_column,) if name),
            ("cell", pa.string()),
            *((name, declared[name]) for name in lead),
            ("uncertainty_m", pa.float64()),
            ("records", pa.int64()),
            *((name, declared[name]) for name in policy.columns.keep),
            *((name, pa.string()) for name in policy.columns.withhold),
        ]
    )


def box_of(dataset: Dataset, table: pa.Table) -> list[float] | None:
    if dataset.table.geometry_column is not None:
        values = table.column(dataset.table.geometry_column).drop_null().to_pylist()
        return shapely.total_bounds(shapely.from_wkb(values, on_invalid="ignore")).tolist() if values else None
    x, y = (pc.min_max(table.column(name)).as_py() for name in ("longitude", "latitude"))
    return [x["min"], y["min"], x["max"], y["max"]] if x["min"] is not None else None


def rectangle(box: list[float] | None) -> dict[str, Any] | None:
    if box is None:
        return None
    west, south, east, north = box
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [ring]}


def cell_place(cell: str, *, shape: bool = False) -> Row:
    """What is published of a cell: its code, centre, outline and a radius that holds it."""
    latitude, longitude = h3.cell_to_latlng(cell)
    corners = h3.cell_to_boundary(cell)
    radius = max(GEOD.inv(longitude, latitude, x, y)[2] for y, x in corners)
    outline = {"geometry": shapely.to_wkb(shapely.Polygon([(x, y) for y, x in corners]))} if shape else {}
    degrees = {} if shape else {"longitude": longitude, "latitude": latitude}
    return {"cell": cell, **degrees, **outline, "uncertainty_m": float(round(radius * 1.01))}


def near(latitude: float, longitude: float, number: int, resolutions: Iterable[int]) -> list[Row]:
    """Points close together, all in the cell of each resolution that the first place is in."""
    middle = {resolution: h3.latlng_to_cell(latitude, longitude, resolution) for resolution in resolutions}
    points: list[Row] = [
        {"longitude": longitude + 0.0013721937 * step, "latitude": latitude + 0.0009173311 * (1 + step % 3)}
        for step in range(1, number + 1)
    ]
    for point in points:
        assert all(h3.latlng_to_cell(point["latitude"], point["longitude"], r) == c for r, c in middle.items())
    return points


def centre(cell: str) -> tuple[float, float]:
    latitude, longitude = h3.cell_to_latlng(cell)
    return latitude, longitude


def _filler(dataset: Dataset, number: int) -> Row:
    """Values that occur nowhere else, so that a scan for them can only find a leak."""
    columns = dataset.table.columns
    texts = {column.name: f"value-{number:04d}-of-{column.name}" for column in columns if column.type == "string"}
    numbers = {column.name: 400000.123457 + number for column in columns if column.type == "float64"}
    return {**texts, **numbers, "period": "Woodland", "condition": "good", "depth_m": 0.5}


def policy_of(classes: Mapping[str, Any], **changes: Any) -> Policy:
    document = yaml.safe_load((shipped("resources") / "policies" / "heritage-sites.yaml").read_text())
    document["columns"]["keep"].append("depth_m")
    return Policy.model_validate({**document, "minimum_count": K, "wording": WORDING, "classes": classes, **changes})


def register(**changes: Any) -> Dataset:
    """The shipped register of heritage sites: points, with their place told in five columns; and a number to keep."""
    dataset = without_geometry(load_dataset(shipped("resources") / "datasets" / "heritage-sites.yaml"))
    depth = Column(name="depth_m", type="float64", nullable=True, description="Depth below ground")
    table = dataset.table.model_copy(update={"columns": [*dataset.table.columns, depth]})
    return dataset.model_copy(update={"table": table, **changes})


def changed(evidence: Evidence, table: pa.Table) -> Evidence:
    return replace(evidence, data=parquet(table))
