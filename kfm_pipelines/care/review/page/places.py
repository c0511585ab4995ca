"""The places on a map, taken from tables: cells with their record counts, and points by class."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from numpy.typing import NDArray

from kfm_pipelines.care.published_table import CELL, RECORDS, UNCERTAINTY
from kfm_pipelines.declarations.areas import area_path, load_area
from kfm_pipelines.declarations.dataset import Dataset


def load_outline(resources: Path, aoi: str) -> tuple[tuple[float, float], ...]:
    """Returns the longitude and latitude of each corner of the area's largest part; nothing for an area without one."""
    if not area_path(resources, aoi).is_file():
        return ()
    largest = max(shapely.get_parts(load_area(resources, aoi).shape), key=shapely.area)
    return tuple((longitude, latitude) for longitude, latitude in shapely.get_coordinates(largest.exterior).tolist())


@dataclass(frozen=True)
class CellCount:
    cell: str
    records: int


@dataclass(frozen=True, eq=False)
class Points:
    """Points of one class. The uncertainty is a radius; 0 or NaN when there is none."""

    name: str
    longitude: NDArray[np.float64]
    latitude: NDArray[np.float64]
    uncertainty_m: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.longitude)


@dataclass(frozen=True, eq=False)
class MapPlaces:
    cells: tuple[CellCount, ...] = ()
    points: tuple[Points, ...] = ()
    without_place: int = 0  # records that are not on the map

    @property
    def is_empty(self) -> bool:
        return not self.cells and not any(len(points) for points in self.points)


def original_places(original: pa.Table, dataset: Dataset, class_column: str | None = None) -> MapPlaces:
    """Returns the true places, shapes by their centroid. Restricted."""
    longitude, latitude = _coordinates(original, dataset)
    on_map = np.isfinite(longitude) & np.isfinite(latitude)
    points = _by_class(original, class_column, on_map, (longitude, latitude, np.zeros(len(longitude))))
    return MapPlaces(points=points, without_place=int((~on_map).sum()))


def released_places(published: pa.Table, dataset: Dataset, class_column: str | None = None) -> MapPlaces:
    """Returns the published cells with their counts, and the published points."""
    longitude, latitude = _coordinates(published, dataset)
    counts = _floats(published, RECORDS, default=1.0)
    in_cell = np.zeros(len(longitude), dtype=bool)
    if CELL in published.column_names:
        in_cell = pc.is_valid(published[CELL]).to_numpy()
    on_map = np.isfinite(longitude) & np.isfinite(latitude) & ~in_cell
    uncertainty = np.nan_to_num(_floats(published, UNCERTAINTY, default=0.0))
    return MapPlaces(
        cells=_cells(published),
        points=_by_class(published, class_column, on_map, (longitude, latitude, uncertainty)),
        without_place=int(counts[~on_map & ~in_cell].sum()),
    )


def _coordinates(table: pa.Table, dataset: Dataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Prefers the geometry; a pair of columns repeats it."""
    if dataset.table.geometry_column is not None:
        shapes = shapely.from_wkb(
            table[dataset.table.geometry_column].to_numpy(zero_copy_only=False), on_invalid="ignore"
        )
        centroids = shapely.centroid(shapes)
        return shapely.get_x(centroids), shapely.get_y(centroids)
    if dataset.table.longitude_column is None or dataset.table.latitude_column is None:
        missing = np.full(table.num_rows, np.nan)
        return missing, missing
    return _floats(table, dataset.table.longitude_column), _floats(table, dataset.table.latitude_column)


def _floats(table: pa.Table, name: str, default: float = float("nan")) -> NDArray[np.float64]:
    if name not in table.column_names:
        return np.full(table.num_rows, default)
    return np.asarray(table[name].to_numpy(zero_copy_only=False), dtype=np.float64)


def _cells(published: pa.Table) -> tuple[CellCount, ...]:
    if CELL not in published.column_names:
        return ()
    released = published.filter(published[CELL].is_valid())
    counted = released.group_by(CELL).aggregate([(RECORDS, "sum")]).sort_by(CELL)
    return tuple(
        CellCount(cell, int(records))
        for cell, records in zip(counted[CELL].to_pylist(), counted[f"{RECORDS}_sum"].to_pylist(), strict=True)
    )


def _by_class(
    table: pa.Table,
    class_column: str | None,
    on_map: NDArray[np.bool_],
    columns: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
) -> tuple[Points, ...]:
    if not on_map.any():
        return ()
    if class_column is None:
        return (Points("points", *(column[on_map] for column in columns)),)
    names = np.array([name or "no class" for name in table[class_column].to_pylist()])
    return tuple(
        Points(str(name), *(column[on_map & (names == name)] for column in columns))
        for name in np.unique(names[on_map])
    )
