"""A raster's declaration has formats of rasters, numbers that can be published, and a table that follows from it."""

from typing import Any

import pytest
from pydantic import ValidationError

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.rasters.invented import RAIN, raster_dataset


def refusal(**changes: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        raster_dataset(**changes)
    return str(refused.value)


@pytest.mark.parametrize("kind", ["geotiff", "grib2", "netcdf", "nexrad-level3"])
def test_rasters_have_formats_of_rasters(kind: str) -> None:
    assert raster_dataset(format=kind).input.format == kind
    streamflow = declared()["usgs/streamflow"].model_dump(mode="json", exclude_unset=True)
    streamflow["input"]["format"] = kind
    with pytest.raises(ValidationError, match=f"input.format: {kind} does not go with processor: table"):
        Dataset.model_validate(streamflow)


def test_tables_are_no_rasters() -> None:
    assert "input.format: csv does not go with processor: raster" in refusal(format="csv")


@pytest.mark.parametrize("nodata", [float("nan"), float("inf"), -9999.9, 1e300])
def test_nodata_is_a_number_that_a_float_holds(nodata: float) -> None:
    assert "nodata must be a number that a 32-bit float holds exactly" in refusal(nodata=nodata)


def test_a_picture_is_of_a_band_that_exists() -> None:
    assert "'snow' is not one of the bands rain" in refusal(picture={"band": "snow", "min": 0, "max": 1})


def test_the_table_follows_from_bands_and_resolution() -> None:
    cells = raster_dataset(h3_res="6", bands=[RAIN, RAIN | {"name": "snow"}]).table
    assert [column.name for column in cells.columns][:5] == [
        "h3_cell", "longitude", "latitude", "rain_count", "rain_mean",
    ]  # fmt: skip
    assert cells.primary_key == ["h3_cell"]
    assert raster_dataset().table.primary_key == ["band"]


def test_a_step_shapes_the_bytes_and_limits_do_not() -> None:
    before = raster_dataset().digest
    assert raster_dataset(bands=[RAIN | {"step": 2}]).digest != before
    assert raster_dataset(limits={"pixels": 10}).digest == before
