"""Radials of a radar are put on a grid: each pixel has the value of the gate that its centre lies in."""

import bz2
from typing import Any

import numpy as np
import pytest

from kfm_pipelines.declarations.rasters import Band
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.nexrad import RadarSweep, _gates_at, grid_around, read_sweep
from kfm_pipelines.raster.read import SourceRaster, read_raster
from kfm_pipelines_tests.fixtures.rasters.invented import area, raster_dataset
from kfm_pipelines_tests.fixtures.rasters.radar_gates import gates_on_pixels
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data

DBZ = {"name": "reflectivity", "unit": "dBZ", "description": "Base reflectivity"}
DODGE_CITY = DATA / "nexrad" / "KDDC_N0Q_20200817_0501.nids"


def four_quarters() -> RadarSweep:
    """Radials of 90 degrees, with two gates of 10 km."""
    values = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, np.nan]])
    return RadarSweep(-100.0, 38.0, np.array([45.0, 135.0, 225.0, 315.0]), 90.0, 0.0, 10_000.0, values)


def test_a_point_has_the_value_of_its_direction_and_distance() -> None:
    near, far = 0.03, 0.12  # degrees, about 3 and 11 to 13 km
    points = np.array(
        [
            (-100 + near, 38 + near), (-100 + near, 38 - near), (-100 - near, 38 - near), (-100 - near, 38 + near),
            (-100 + far, 38 + far), (-100 - far, 38 + far), (-100 + 1, 38 + 1),
        ]
    )  # fmt: skip
    expected = [1.0, 2.0, 3.0, 4.0, 10.0, np.nan, np.nan]
    np.testing.assert_array_equal(_gates_at(four_quarters(), points), expected)


def test_between_radials_that_are_missing_there_is_nothing() -> None:
    whole = four_quarters()
    half = RadarSweep(-100.0, 38.0, whole.directions[:2], 90.0, 0.0, 10_000.0, whole.values[:2])
    assert np.isnan(_gates_at(half, np.array([(-100.03, 38.0)]))[0])


def test_the_grid_around_a_radar_is_on_whole_hundredths_and_has_all_gates() -> None:
    west, south, east, north = grid_around(four_quarters()).bounds
    assert all(abs(edge * 100 - round(edge * 100)) < 1e-6 for edge in (west, south, east, north))
    assert (west, south, east, north) == pytest.approx((-100.23, 37.81, -99.77, 38.19), abs=0.02)


@pytest.mark.parametrize("data", [b"", b"<html>", b"SDUS54 KDDC 170501\r\r\nN0QDDC\r\r\n" + bytes(200)])
def test_other_files_are_refused(data: bytes) -> None:
    expected = (
        r"^one is not readable as NEXRAD Level III with layer 1 of radials: it is another product, cut or damaged$"
    )
    with pytest.raises(InputUnreadable, match=expected):
        read_sweep(data, "one", Band.model_validate(DBZ), raster_dataset().input.limits)


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    limits = raster_dataset(limits={"unpacked_bytes": 1_000_000}).input.limits
    with pytest.raises(InputUnreadable, match="one unpacks to 1000001 bytes"):
        read_sweep(b"header" + bz2.compress(bytes(50_000_000)), "one", Band.model_validate(DBZ), limits)


def read(data: bytes, **raster: Any) -> SourceRaster:
    dataset = raster_dataset(format="nexrad-level3", bands=[DBZ], **raster)
    assert dataset.raster is not None
    return read_raster(data, "one", dataset.raster, dataset.input, area(-102.05, 37, -94.61, 40))


@needs_data
def test_dodge_city_agrees_with_metpy() -> None:
    found = read(DODGE_CITY.read_bytes()).clipped
    expected = gates_on_pixels(DODGE_CITY.read_bytes(), found.grid.transform, found.values[0].shape)
    chosen = ~np.isnan(expected)
    assert chosen.sum() > 1000
    measured = np.where(np.isnan(found.values[0]), -np.inf, found.values[0])
    np.testing.assert_array_equal(measured[chosen], expected[chosen].astype(np.float32))
    assert found.grid.bounds == pytest.approx((-102.05, 37.0, -94.61, 40.0))


@needs_data
def test_a_declared_grid_may_be_in_another_system() -> None:
    grid = {
        "crs": "EPSG:32614", "west": 300_000, "north": 4_400_000, "pixel_width": 2000, "pixel_height": 2000,
        "columns": 100, "rows": 120,
    }  # fmt: skip
    found = read(DODGE_CITY.read_bytes(), grid=grid)
    assert (found.whole.width, found.whole.height) == (100, 120)
    assert found.clipped.grid.code == "EPSG:32614"
    assert -10 < np.nanmean(found.clipped.values) < 30


@needs_data
@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_a_file_that_is_cut_is_refused(share: float) -> None:
    data = DODGE_CITY.read_bytes()
    with pytest.raises(InputUnreadable, match="it is another product, cut or damaged"):
        read(data[: int(len(data) * share)])
