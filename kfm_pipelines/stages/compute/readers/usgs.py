"""Reads the instantaneous values of the USGS, as its water services answer in JSON (WaterML 2 in JSON).

Each series is one parameter at one site. The result has a row for each site and time, with a column for each parameter
that the dataset declares: `discharge_cfs` and `gage_height_ft` for the two that have a usual name, the parameter's code
for others. Which parameters an answer has depends on the question, so others are no fault of it and are left out.
"""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import InputUnreadable

if TYPE_CHECKING:
    import pyarrow as pa

PARAMETERS = {"00060": "discharge_cfs", "00065": "gage_height_ft"}
WGS84 = "EPSG:4326"
_CODE = re.compile(r"[0-9]{5}")


def read_instantaneous_values(data: bytes, name: str, dataset: Dataset) -> "pa.Table":
    import msgspec
    import pyarrow as pa

    rows: dict[tuple[str, datetime], dict[str, Any]] = {}
    declared = _declared_parameters(dataset)
    try:
        for series in msgspec.json.decode(data)["value"]["timeSeries"]:
            _add_series(rows, series, declared, name)
            dataset.input.limits.refuse(name, rows=len(rows))
    except (msgspec.DecodeError, RecursionError, KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise InputUnreadable(f"{name} is not an answer of the USGS with instantaneous values") from None
    found = {column for row in rows.values() for column in row if column not in _FIXED}
    parameters = sorted(found if declared is None else declared)
    schema = pa.schema(
        [*((column, kind) for column, kind in _fixed_types()), *((one, pa.float64()) for one in parameters)]
    )
    return pa.Table.from_pylist([_finish(row) for row in rows.values()], schema=schema)


_FIXED = ("site_no", "site_name", "latitude", "longitude", "observed_at", "qualifier")


def _fixed_types() -> "list[tuple[str, pa.DataType]]":
    import pyarrow as pa

    types = (pa.string(), pa.string(), pa.float64(), pa.float64(), pa.timestamp("us", tz="UTC"), pa.string())
    return list(zip(_FIXED, types, strict=True))


def _declared_parameters(dataset: Dataset) -> set[str] | None:
    """Returns the columns of parameters that the dataset has; None for all, if nothing is declared yet."""
    names = {column.source or column.name for column in dataset.table.columns}
    return {name for name in names if name in PARAMETERS.values() or _CODE.fullmatch(name)} if names else None


def _add_series(
    rows: dict[tuple[str, datetime], dict[str, Any]], series: dict[str, Any], declared: set[str] | None, name: str
) -> None:
    source, variable = series["sourceInfo"], series["variable"]
    place = source["geoLocation"]["geogLocation"]
    if place["srs"] != WGS84:
        raise InputUnreadable(f"{name}: a site is not in {WGS84}")
    site, code = str(source["siteCode"][0]["value"]), str(variable["variableCode"][0]["value"])
    column, missing = PARAMETERS.get(code, code), variable.get("noDataValue")
    if declared is not None and column not in declared:
        return
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
        if row.get(column) is None:  # of several instruments the first that has a value
            row[column] = None if measured == missing else measured
        row["qualifier"].update(map(str, value["qualifiers"]))


def _finish(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "qualifier": ",".join(sorted(row["qualifier"]))}
