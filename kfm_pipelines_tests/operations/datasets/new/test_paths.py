"""Where objects lie and which part of their names is their time, guessed from one name."""

import re
from datetime import UTC, datetime

import pytest

from kfm_pipelines.operations.datasets.new.paths import guess_place


@pytest.mark.parametrize(
    ("name", "prefix", "window", "another"),
    [
        ("usgs/flow/2025/12/04/03/a.parquet", "usgs/flow/", "hour", "usgs/flow/2026/01/02/23/other-b.parquet"),
        ("usgs/flow/2025/12/04/a.csv", "usgs/flow/", "day", "usgs/flow/2026/01/02/b.csv"),
        ("noaa/x/MRMS_00.50_20220704-110040.grib2", "noaa/x/", "hour", "noaa/x/MRMS_00.50_20230101-235959.grib2"),
        ("USDM_2024-06-04.parquet", "new/wells/", "day", "new/wells/USDM_2026-01-02.parquet"),
        ("soil/2024_06_04.csv", "soil/", "day", "soil/2025_01_31.csv"),
        ("reg/2025/12/register-07.parquet", "reg/", "month", "reg/2026/01/register-11.parquet"),
        ("parcels-2025.gpkg", "new/wells/", "year", "new/wells/parcels-2026.gpkg"),
        (
            "LC08_017036_20130419_20200913_02_T2.TIF",
            "new/wells/",
            "day",
            "new/wells/LC08_017036_20140501_20210101_03_T1.TIF",
        ),
        ("x/2025010112.csv", "x/", "hour", "x/2026020323.csv"),
        ("gfs/20250101/run_00.nc", "gfs/", "day", "gfs/20260203/run_12.nc"),
    ],
)
def test_the_time_in_a_name_is_found(name: str, prefix: str, window: str, another: str) -> None:
    place = guess_place(name, "new/wells/", None)
    whole = name if "/" in name else f"new/wells/{name}"
    assert (place.prefix, place.window, place.is_dated) == (prefix, window, True)
    assert re.fullmatch(place.object_pattern, whole)
    assert re.fullmatch(place.object_pattern, another)


@pytest.mark.parametrize(
    ("first", "last", "window"),
    [
        ("2025-12-04T03:15", "2025-12-04T03:45", "hour"),
        ("2025-12-04T03:15", "2025-12-04T13:45", "day"),
        ("2025-12-04T00:00", "2025-12-04T00:00", "day"),
        ("2025-12-04T03:15", "2025-12-14T03:45", "month"),
        ("2025-11-04T03:15", "2025-12-14T03:45", "year"),
    ],
)
def test_without_a_time_in_the_name_the_times_in_the_data_decide(first: str, last: str, window: str) -> None:
    times = (datetime.fromisoformat(first).replace(tzinfo=UTC), datetime.fromisoformat(last).replace(tzinfo=UTC))
    place = guess_place("wells.csv", "new/wells/", times)
    assert (place.window, place.is_dated, place.prefix) == (window, False, "new/wells/")
    assert re.fullmatch(
        place.object_pattern, f"new/wells/{'2025/12/04/03'[: {'hour': 13, 'day': 10, 'month': 7}.get(window, 4)]}/a.csv"
    )


def test_a_static_layer_has_a_folder_for_each_year() -> None:
    place = guess_place("reservations.geojson", "land/reservations/", None)
    assert place.object_pattern == r"land/reservations/(?P<year>\d{4})/[A-Za-z0-9_.-]+\.geojson"
