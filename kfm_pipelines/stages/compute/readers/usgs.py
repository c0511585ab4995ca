"""Reads the instantaneous values of the USGS, as its water services answer in JSON (WaterML 2 in JSON).

Each series is one parameter at one site. The result has a row for each site and time, with a column for each parameter:
`discharge_cfs` and `gage_height_ft` for the two that have a usual name, the parameter's code for others.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import InputUnreadable

if TYPE_CHECKING:
    import pyarrow as pa

PARAMETERS = {"00060": "discharge_cfs", "00065": "gage_height_ft"}
WGS84 = "EPSG:4326"


def read_instantaneous_values(data: bytes, name: str, dataset: Dataset) -> "pa.Table":
    import msgspec
    import pyarrow as pa

    rows: dict[tuple[str, datetime], dict[str, Any]] = {}
    try:
        for series in msgspec.json.decode(data)["value"]["timeSeries"]:
            _add_series(rows, series, name)
            dataset.input.limits.refuse(name, rows=len(rows))
    except (msgspec.DecodeError, RecursionError, KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise InputUnreadable(f"{name} is not an answer of the USGS with instantaneous values") from None
    parameters = sorted({column for row in rows.values() for column in row if column not in _FIXED})
    schema = pa.schema(
        [*((column, kind) for column, kind in _fixed_types()), *((one, pa.float64()) for one in parameters)]
    )
    return pa.Table.from_pylist([_finish(row) for row in rows.values()], schema=schema)


_FIXED = ("site_no", "site_name", "latitude", "longitude", "observed_at", "qualifier")


def _fixed_types() -> "list[tuple[str, pa.DataType]]":
    import pyarrow as pa

    types = (pa.string(), pa.string(), pa.float64(), pa.float64(), pa.timestamp("us", tz="UTC"), pa.string())
    return list(zip(_FIXED, types, strict=True))


def _add_series(rows: dict[tuple[str, datetime], dict[str, Any]], series: dict[str, Any], name: str) -> None:
    source, variable = series["sourceInfo"], series["variable"]
    place = source["geoLocation"]["geogLocation"]
    if place["srs"] != WGS84:
        raise InputUnreadable(f"{name}: a site is not in {WGS84}")
    site, code = str(source["siteCode"][0]["value"]), str(variable["variableCode"][0]["value"])
    column, missing = PARAMETERS.get(code, code), variable.get("noDataValue")
    for value in (one for values in series["values"] for one in values["value"]):
        at = datetime.fromisoformat(value["dateTime"])
        if at.tzinfo is None:
            raise InputUnreadable(f"{name}: a time has no zone")
        row = rows.setdefault(
            (site, at.astimezone(UTC)),
            {
                "site_no": site,
                "site_name": str(source["siteName"]),
                "latitude": float(place["latitude"]),
                "longitude": float(place["longitude"]),
                "observed_at": at.astimezone(UTC),
                "qualifier": set(),
            },
        )
        measured = float(value["value"])
        row[column] = None if measured == missing else measured
        row["qualifier"].update(map(str, value["qualifiers"]))


def _finish(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "qualifier": ",".join(sorted(row["qualifier"]))}
