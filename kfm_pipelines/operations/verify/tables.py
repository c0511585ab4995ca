"""The data of a release against what its Item says of it."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.tables import arrow_type
from kfm_pipelines.operations.verify.check import Check
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.stages.publish.stage import bounding_box

if TYPE_CHECKING:
    import pyarrow as pa

COORDINATE_COLUMNS = ("longitude", "latitude")  # what these columns are called where no geometry is declared


def check_data(path: str, data: bytes, item: Mapping[str, Any]) -> Iterator[Check]:
    table = read_parquet(data, path)
    yield Check("data can be read", path, ok=True, found=f"{table.num_rows} rows")
    properties = item["properties"]
    count = properties["table:row_count"]
    yield Check("row count", path, ok=table.num_rows == count, found=f"{table.num_rows}, and the Item says {count}")
    columns = properties["table:columns"]
    said = [(column["name"], arrow_type(column["type"])) for column in columns]
    found = [(field.name, field.type) for field in table.schema]
    differing = sorted({name for name, _ in set(said) ^ set(found)})
    yield Check("columns", path, ok=said == found, found=f"other than the Item says: {', '.join(differing) or 'order'}"
                if said != found else f"{len(found)}")  # fmt: skip
    yield _check_bounding_box(path, table, item, columns)


def _check_bounding_box(path: str, table: "pa.Table", item: Mapping[str, Any], columns: list[dict[str, Any]]) -> Check:
    said = item.get("bbox")
    place = _location_columns(table, columns)
    if place is None:
        return Check(
            "bounding box", path, ok=said is None, found="no column tells a place" + (", the Item does" if said else "")
        )
    box = bounding_box(table, place)
    return Check("bounding box", path, ok=said == (list(box) if box else None),
                 found="" if said == (list(box) if box else None) else "other than the Item says")  # fmt: skip


def _location_columns(table: "pa.Table", columns: list[dict[str, Any]]) -> Table | None:
    """The columns that tell where a row is: by the file's own word where it is GeoParquet, else by the Item's."""
    geo = json.loads((table.schema.metadata or {}).get(b"geo", b"{}"))
    geometry = geo.get("primary_column") or next((one["name"] for one in columns if one["type"] == "geometry"), None)
    names = {one["name"] for one in columns}
    if geometry is None and not names.issuperset(COORDINATE_COLUMNS):
        return None
    longitude, latitude = (None, None) if geometry else COORDINATE_COLUMNS
    return Table.model_construct(
        primary_key=[], columns=[], geometry_column=geometry, longitude_column=longitude, latitude_column=latitude
    )
