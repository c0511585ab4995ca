"""Looks at rasters: their bands, grid and extent."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.identity import BBox
from kfm_pipelines.declarations.inputs import Limits
from kfm_pipelines.declarations.rasters import Band
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.operations.datasets.check.units import unit_problem
from kfm_pipelines.operations.datasets.new.inspection import FoundBand, ObjectInspection
from kfm_pipelines.operations.datasets.new.types import column_name
from kfm_pipelines.raster.hdf5 import refuse_other_files
from kfm_pipelines.raster.nexrad import grid_around, read_sweep
from kfm_pipelines.raster.open import open_memory
from kfm_pipelines.raster.read import unpack_gzip

if TYPE_CHECKING:
    from rasterio.io import DatasetReader, MemoryFile

_DRIVERS = {"geotiff": "GTiff", "grib2": "GRIB", "netcdf": "netCDF"}
MAX_BANDS = 32
NO_UNIT = "1"
SAMPLE_PIXELS = 1000  # to a side
_SENTINELS = (-99.0, -999.0, -9999.0, -99999.0, -32768.0, 9999.0, 32767.0)  # by which files say: no measurement


def inspect_raster(data: bytes, name: str, known: str) -> ObjectInspection:
    data = unpack_gzip(data, name, Limits())
    if known == "netcdf":
        refuse_other_files(data, name)
    with open_memory(data, name, _DRIVERS[known]) as file:
        with file.open(driver=_DRIVERS[known]) as raster:
            variables = [one.rpartition(":")[2] for one in raster.subdatasets]
            if not variables:
                bands = [_inspect_band(raster, number, _source(raster, number, known)) for number in _numbers(raster)]
                return _describe(raster, known, bands)
        return _inspect_variables(file, variables, known)


def inspect_level3(data: bytes, name: str, known: str) -> ObjectInspection:
    """Takes the first layer of radials; each radar has pixels of its own around it, so no grid is declared."""
    import numpy as np

    first = Band(name="first", source=1, unit=NO_UNIT, description="First layer of radials")
    sweep = read_sweep(unpack_gzip(data, name, Limits()), name, first, Limits())
    measured = sweep.values[np.isfinite(sweep.values)]
    found = FoundBand(
        name=column_name(sweep.product.removesuffix(" Data Array")),
        source=1,
        unit=sweep.unit if sweep.unit and unit_problem(sweep.unit) is None else NO_UNIT,
        description=sweep.product,
        bounds=(float(measured.min()), float(measured.max())) if measured.size else None,
        missing_share=1.0,  # a radar sees a circle, and most of the time a clear sky
    )
    several = "objects of several radars or scans in one key need raster.composite, such as max"
    guess = ("the product states no unit; unit: 1 is a guess",) if found.unit == NO_UNIT else ()
    extent = grid_around(sweep).bounds
    return ObjectInspection(known, "raster", bands=(found,), extent=extent, unsure=(*guess, several))


def _inspect_variables(file: "MemoryFile", variables: Sequence[str], known: str) -> ObjectInspection:
    """Takes the variables that lie on the grid of the first."""
    import rasterio

    bands, found = [], None
    for variable in variables[:MAX_BANDS]:
        with rasterio.open(f'netcdf:"{file.name}":{variable}', driver=_DRIVERS[known]) as raster:
            described = _describe(raster, known, [])
            found = found or described
            if (described.grid, described.extent) == (found.grid, found.extent):
                bands.append(replace(_inspect_band(raster, 1, variable), step=1 if raster.count > 1 else None))
    if found is None:
        raise InputUnreadable(f"{file.name} has no variable on a grid")
    several = "of variables with several times or levels the first is declared, as bands.step"
    return replace(found, bands=_with_unique_names(bands), unsure=(*found.unsure, several))


def _numbers(raster: "DatasetReader") -> list[int]:
    return list(raster.indexes[:MAX_BANDS])


def _source(raster: "DatasetReader", number: int, known: str) -> int | str:
    return str(raster.tags(number)["NETCDF_VARNAME"]) if known == "netcdf" else number


def _describe(raster: "DatasetReader", known: str, bands: Sequence[FoundBand]) -> ObjectInspection:
    unsure = [] if raster.crs else ["the file names no reference system, so its objects will be refused"]
    if any(band.unit == NO_UNIT for band in bands):
        unsure.append("a band states no unit that is known; unit: 1 is a guess")
    return ObjectInspection(
        format=known,
        processor="raster",
        bands=_with_unique_names(bands),
        grid=_grid(raster),
        extent=_extent(raster),
        unsure=(*unsure, "sentinels are guesses: the values that mean no measurement, besides nodata"),
    )


def _inspect_band(raster: "DatasetReader", number: int, source: int | str) -> FoundBand:
    import numpy as np

    tags = raster.tags(number)
    title = tags.get("GRIB_COMMENT") or tags.get("long_name") or raster.descriptions[number - 1] or f"Band {number}"
    short = (
        tags.get("GRIB_ELEMENT") or tags.get("NETCDF_VARNAME") or raster.descriptions[number - 1] or f"band_{number}"
    )
    unit = (raster.units[number - 1] or tags.get("GRIB_UNIT") or tags.get("units") or NO_UNIT).strip("[]") or NO_UNIT
    shape = (min(raster.height, SAMPLE_PIXELS), min(raster.width, SAMPLE_PIXELS))
    sample = raster.read(number, out_shape=shape, masked=True).astype("float64")
    finite = sample.compressed()[np.isfinite(sample.compressed())]
    sentinels = tuple(value for value in _SENTINELS if (finite == value).any())
    measured = finite[~np.isin(finite, sentinels)]
    bounds = (float(measured.min()), float(measured.max())) if measured.size else None
    meaning = str(title).split("[")[0].strip() or f"Band {number}"
    known_unit = NO_UNIT if unit_problem(unit) else unit
    missing = 1 - measured.size / sample.size
    return FoundBand(column_name(str(short)), source, known_unit, meaning, bounds, sentinels, missing_share=missing)


def _with_unique_names(bands: Sequence[FoundBand]) -> tuple[FoundBand, ...]:
    names = [band.name for band in bands]
    return tuple(
        replace(band, name=f"{band.name}_{band.source}") if names.count(band.name) > 1 else band for band in bands
    )


def _grid(raster: "DatasetReader") -> dict[str, Any] | None:
    """A grid is declared by its EPSG code; without one, or if it is not north up, it is left out."""
    code = raster.crs.to_epsg() if raster.crs else None
    turned = raster.transform.b or raster.transform.d
    if code is None or turned:
        return None
    return {
        "crs": f"EPSG:{code}",
        "west": raster.transform.c,
        "north": raster.transform.f,
        "pixel_width": raster.transform.a,
        "pixel_height": -raster.transform.e,
        "columns": raster.width,
        "rows": raster.height,
    }


def _extent(raster: "DatasetReader") -> BBox | None:
    from rasterio.warp import transform_bounds

    if not raster.crs:
        return None
    west, south, east, north = transform_bounds(raster.crs, "EPSG:4326", *raster.bounds)
    return (west, south, east, north)
