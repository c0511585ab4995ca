"""Released places: each distinct one once, in parallel arrays that rows point into."""

from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
import shapely

from kfm_pipelines.care.masks.cells import NO_CELL, centres_of, outlines_of, radii_of
from kfm_pipelines.care.masks.types import Cells, Floats, Objects
from kfm_pipelines.declarations import Table


@dataclass(frozen=True, slots=True)
class ReleasedPlaces:
    """NaN stands for a missing coordinate or uncertainty, None for a missing geometry."""

    cells: Cells
    longitudes: Floats
    latitudes: Floats
    uncertainties: Floats
    geometries: Objects  # WKB


def release_as_cells(cells: Cells, *, geometries: bool, reach: float = 1.0) -> ReleasedPlaces:
    """`reach` is how many radii from its centre the contents of a cell may extend."""
    longitudes, latitudes = centres_of(cells)
    outlines = np.full(len(cells), None, object)
    if geometries:
        outlines[:] = shapely.to_wkb(outlines_of(cells))
    return ReleasedPlaces(cells, longitudes, latitudes, reach * radii_of(cells), outlines)


def release_as_points(longitudes: Floats, latitudes: Floats, uncertainty: float, *, geometries: bool) -> ReleasedPlaces:
    count = len(longitudes)
    points = np.full(count, None, object)
    if geometries:
        points[:] = shapely.to_wkb(shapely.points(longitudes, latitudes))
    cells = np.full(count, NO_CELL, np.uint64)
    return ReleasedPlaces(cells, longitudes, latitudes, np.full(count, uncertainty), points)


def release_unchanged(table: pa.Table, declared: Table) -> ReleasedPlaces:
    rows = table.num_rows
    nothing = np.full(rows, np.nan)

    def degrees(name: str | None) -> Floats:
        return nothing if name is None else np.asarray(table.column(name).to_numpy(), np.float64)

    geometries = np.full(rows, None, object)
    if declared.geometry_column is not None:
        geometries[:] = table.column(declared.geometry_column).to_pylist()
    longitudes, latitudes = degrees(declared.longitude_column), degrees(declared.latitude_column)
    return ReleasedPlaces(np.full(rows, NO_CELL, np.uint64), longitudes, latitudes, np.zeros(rows), geometries)


def no_place() -> ReleasedPlaces:
    none = np.array([np.nan])
    return ReleasedPlaces(np.array([NO_CELL], np.uint64), none, none, none, np.array([None], object))


def append_no_place(places: ReleasedPlaces) -> ReleasedPlaces:
    last = no_place()
    return ReleasedPlaces(*(np.append(getattr(places, one.name), getattr(last, one.name)) for one in fields(places)))
