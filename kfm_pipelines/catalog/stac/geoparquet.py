"""Writes all Items of a collection as one stac-geoparquet 1.0 table; the library refuses Items without a place."""

import io
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import shapely
from shapely.geometry import shape

_TIMES = ("datetime", "start_datetime", "end_datetime", "expires")
_EDGES = ("xmin", "ymin", "xmax", "ymax")
ROW_GROUP_SIZE = 10_000


def items_table(items: Sequence[Mapping[str, Any]]) -> bytes:
    """Returns the same bytes for the same Items in any order. Addresses are relative to the folder above the Items."""
    rows = [_row(item) for item in sorted(items, key=lambda item: str(item["id"]))]
    names = sorted({name for row in rows for name in row})
    columns = {name: _column(name, [row.get(name) for row in rows]) for name in names}
    table = pa.table(columns).replace_schema_metadata(
        {"stac-geoparquet": json.dumps({"version": "1.0.0"}), "geo": json.dumps(_geo_metadata(items))}
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=ROW_GROUP_SIZE, compression="zstd", compression_level=3, version="2.6")
    return sink.getvalue()


def _row(item: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in item.items() if name not in ("properties", "bbox", "geometry")}
    bbox = item.get("bbox")
    return {
        **fields,
        **item["properties"],
        "links": [{**link, "href": _href_from_parent(link["href"])} for link in item["links"]],
        "assets": {name: {**asset, "href": _href_from_parent(asset["href"])} for name, asset in item["assets"].items()},
        "bbox": dict(zip(_EDGES, bbox, strict=True)) if bbox else None,
        "geometry": _wkb(item.get("geometry")),
    }


def _column(name: str, values: list[Any]) -> Any:
    if name in _TIMES:
        times = [datetime.fromisoformat(value) if value else None for value in values]
        return pa.array(times, pa.timestamp("ms", tz="UTC"))
    if name == "geometry":
        return pa.array(values, pa.binary())
    if name == "bbox":
        return pa.array(values, pa.struct([(edge, pa.float64()) for edge in _EDGES]))
    return pa.array(values)


def _wkb(geometry: Mapping[str, Any] | None) -> bytes | None:
    return None if geometry is None else bytes(shapely.to_wkb(shape(geometry)))


def _geo_metadata(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    kinds = sorted({item["geometry"]["type"] for item in items if item.get("geometry")})
    boxes = [item["bbox"] for item in items if item.get("bbox")]
    box = [pick(edges) for pick, edges in zip((min, min, max, max), zip(*boxes, strict=True), strict=False)]
    column = {
        "encoding": "WKB",
        "geometry_types": kinds,
        **({"bbox": box} if boxes else {}),
        "covering": {"bbox": {edge: ["bbox", edge] for edge in _EDGES}},
    }
    return {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}


def _href_from_parent(href: str) -> str:
    """Rewrites a relative address for a document one folder further up."""
    if not href.startswith("../"):
        return href
    above = href.removeprefix("../")
    return above if above.startswith("../") else f"./{above}"
