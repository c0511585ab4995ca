"""What is shown of places: every distinct one once, in parallel arrays. Rows point into them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.cells import NO_CELL, centres_of, outlines_of, radii_of
from kfm_pipelines.declarations import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from kfm_pipelines.care.masks.types import Cells, Floats, Objects


@dataclass(frozen=True, slots=True)
class Shown:
    """NaN is no coordinate and no uncertainty, None no geometry."""

    cells: "Cells"
    longitudes: "Floats"
    latitudes: "Floats"
    uncertainties: "Floats"
    geometries: "Objects"  # WKB


def shown_as_cells(cells: "Cells", *, geometries: bool, reach: float = 1.0) -> Shown:
    """What is in a cell is within so many radii of its centre."""
    import numpy as np
    import shapely

    longitudes, latitudes = centres_of(cells)
    outlines = np.full(len(cells), None, object)
    if geometries:
        outlines[:] = shapely.to_wkb(outlines_of(cells))
    return Shown(cells, longitudes, latitudes, reach * radii_of(cells), outlines)


def shown_as_points(longitudes: "Floats", latitudes: "Floats", uncertainty: float, *, geometries: bool) -> Shown:
    import numpy as np
    import shapely

    count = len(longitudes)
    points = np.full(count, None, object)
    if geometries:
        points[:] = shapely.to_wkb(shapely.points(longitudes, latitudes))
    cells = np.full(count, NO_CELL, np.uint64)
    return Shown(cells, longitudes, latitudes, np.full(count, uncertainty), points)


def shown_as_is(table: "pa.Table", declared: Table) -> Shown:
    """What the declared columns say, unchanged."""
    import numpy as np

    rows = table.num_rows
    nothing = np.full(rows, np.nan)

    def degrees(name: str | None) -> "Floats":
        return nothing if name is None else np.asarray(table.column(name).to_numpy(), np.float64)

    geometries = np.full(rows, None, object)
    if declared.geometry_column is not None:
        geometries[:] = table.column(declared.geometry_column).to_pylist()
    longitudes, latitudes = degrees(declared.longitude_column), degrees(declared.latitude_column)
    return Shown(np.full(rows, NO_CELL, np.uint64), longitudes, latitudes, np.zeros(rows), geometries)


def nowhere() -> Shown:
    """One place, which is none."""
    import numpy as np

    none = np.array([np.nan])
    return Shown(np.array([NO_CELL], np.uint64), none, none, none, np.array([None], object))


def and_nowhere(places: Shown) -> Shown:
    """The same places, and after them none."""
    import numpy as np

    last = nowhere()
    return Shown(
        np.append(places.cells, last.cells),
        np.append(places.longitudes, last.longitudes),
        np.append(places.latitudes, last.latitudes),
        np.append(places.uncertainties, last.uncertainties),
        np.append(places.geometries, last.geometries),
    )
