"""Files of features and rasters are looked at from their bytes alone."""

import io
import json
import zipfile
from pathlib import Path

import geopandas
import numpy as np
import pytest
import rasterio
from rasterio.io import MemoryFile
from rasterio.transform import from_origin

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.operations.datasets.new.features import inspect_features
from kfm_pipelines.operations.datasets.new.rasters import inspect_raster
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data


def features() -> bytes:
    def square(number: int) -> dict[str, object]:
        west, south = -98.0 - number, 38.0
        ring = [[west, south], [west + 1, south], [west + 1, south + 1], [west, south + 1], [west, south]]
        return {
            "type": "Feature",
            "properties": {"PARCEL_NO": f"P{number}", "Acres": 40.5 + number},
            "geometry": {"type": "Polygon", "coordinates": [ring]},
        }

    return json.dumps({"type": "FeatureCollection", "features": [square(0), square(1)]}).encode()


def raster(**profile: object) -> bytes:
    values = np.arange(12, dtype="float32").reshape(3, 4)
    values[0, 0] = -999.0
    shape = {"driver": "GTiff", "height": 3, "width": 4, "count": 1, "dtype": "float32"}
    place = {"crs": "EPSG:26914", "transform": from_origin(500_000, 4_300_000, 30, 30), **profile}
    with MemoryFile() as file:
        with file.open(**shape, **place) as dataset:
            dataset.write(values, 1)
            dataset.set_band_description(1, "Soil Moisture")
            dataset.set_band_unit(1, "m3/m3")
        return bytes(file.read())


def test_features_have_columns_a_key_a_geometry_and_an_extent() -> None:
    found = inspect_features(features(), "parcels.geojson", "geojson")
    assert found.table is not None
    assert [(one.name, one.type, one.source) for one in found.table.columns] == [
        ("parcel_no", "string", "PARCEL_NO"),
        ("acres", "float64", "Acres"),
        ("geometry", "geometry", None),
    ]
    assert (found.processor, found.table.geometry_column) == ("vector", "geometry")
    assert found.extent == (-99.0, 38.0, -97.0, 39.0)


VRT = (
    b'<OGRVRTDataSource><OGRVRTLayer name="a"><SrcDataSource>/etc/passwd</SrcDataSource></OGRVRTLayer>'
    b"</OGRVRTDataSource>"
)


def archive(**members: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return sink.getvalue()


@pytest.mark.parametrize(
    "data", [archive(**{"a.vrt": VRT}), archive(**{"../a.shp": b""}), archive(**{"a.shp": b"x"}), b"PK"]
)
def test_an_archive_with_anything_but_a_layer_is_refused(data: bytes) -> None:
    with pytest.raises(InputUnreadable, match=r"^x\.zip is not readable as shapefile$"):
        inspect_features(data, "x.zip", "shapefile")


@pytest.mark.parametrize("known", ["geopackage", "shapefile"])
def test_layers_of_other_formats_are_found(tmp_path: Path, known: str) -> None:
    source = tmp_path / "in.geojson"
    source.write_bytes(features())
    frame = geopandas.read_file(source).to_crs(26914)
    if known == "geopackage":
        frame.to_file(tmp_path / "a.gpkg", layer="parcels")
        frame.to_file(tmp_path / "a.gpkg", layer="roads")
        data = (tmp_path / "a.gpkg").read_bytes()
    else:
        frame.to_file(tmp_path / "a.shp")
        data = archive(**{path.name: path.read_bytes() for path in tmp_path.glob("a.*")})
    found = inspect_features(data, "a", known)
    assert found.table is not None
    assert [one.name for one in found.table.columns] == ["parcel_no", "acres", "geometry"]
    assert found.extent == pytest.approx((-99.0, 38.0, -97.0, 39.0), abs=0.05)
    assert found.layer == ("parcels" if known == "geopackage" else None)


@pytest.mark.parametrize("data", [b"", b"{}", b"not a file", VRT])
def test_what_is_no_file_of_features_is_refused(data: bytes) -> None:
    with pytest.raises(InputUnreadable, match=r"^x\.geojson is not readable as geojson$"):
        inspect_features(data, "x.geojson", "geojson")


def test_a_file_of_another_kind_is_refused_whatever_its_name() -> None:
    with pytest.raises(InputUnreadable, match="is not readable as geopackage"):
        inspect_features(features(), "x.gpkg", "geopackage")


def test_a_raster_has_bands_a_grid_an_extent_and_its_sentinels() -> None:
    found = inspect_raster(raster(), "soil.tif", "geotiff")
    [band] = found.bands
    assert (band.name, band.unit, band.description, band.source) == ("soil_moisture", "m3/m3", "Soil Moisture", 1)
    assert (band.bounds, band.sentinels) == ((1.0, 11.0), (-999.0,))
    assert found.grid == {
        "crs": "EPSG:26914",
        "west": 500_000.0,
        "north": 4_300_000.0,
        "pixel_width": 30.0,
        "pixel_height": 30.0,
        "columns": 4,
        "rows": 3,
    }
    assert found.extent is not None
    assert found.extent == pytest.approx((-99.0, 38.848, -98.9986, 38.849), abs=1e-3)


def test_a_raster_without_a_reference_system_is_pointed_out() -> None:
    with rasterio.Env():
        found = inspect_raster(raster(crs=None), "soil.tif", "geotiff")
    assert "the file names no reference system, so its objects will be refused" in found.unsure
    assert (found.grid, found.extent) == (None, None)


def test_what_is_no_raster_is_refused() -> None:
    with pytest.raises(InputUnreadable, match=r"^x\.tif is not readable as GeoTIFF"):
        inspect_raster(b"II*\x00 and nothing more", "x.tif", "geotiff")


@needs_data
def test_a_real_radar_grid_has_its_sentinels() -> None:
    [path] = Path(DATA).glob("MRMS*.grib2")
    found = inspect_raster(path.read_bytes(), path.name, "grib2")
    assert [(one.unit, one.sentinels) for one in found.bands] == [("dBZ", (-99.0, -999.0))]


@needs_data
def test_variables_of_a_real_netcdf_are_bands_with_the_first_of_several_steps() -> None:
    path = Path(DATA) / "netcdf/GFS_test.nc"
    found = inspect_raster(path.read_bytes(), path.name, "netcdf")
    assert "u-component_of_wind_isobaric" in [band.source for band in found.bands]
    assert {band.step for band in found.bands} == {1, None}


@needs_data
def test_real_outlines_are_features() -> None:
    path = Path(DATA) / "kansas_aiannh.geojson"
    found = inspect_features(path.read_bytes(), path.name, "geojson")
    assert found.table is not None
    assert found.table.primary_key == ("geoid",)
    assert found.layer is None
