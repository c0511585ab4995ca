"""Bounding boxes of everything published: the only coordinates that documents may repeat."""

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import shapely

from kfm_pipelines.care.verifier.case import Case

Box = tuple[float, float, float, float]


def published_boxes(case: Case) -> list[Box]:
    """Returns the boxes of the published degrees and of the published shapes, where there are any."""
    return [box for box in (_box_of_degrees(case), _box_of_shapes(case)) if box is not None]


def published_numbers(case: Case) -> npt.NDArray[np.float64]:
    extent = case.dataset.extent
    declared = [extent.west, extent.south, extent.east, extent.north] if extent is not None else []
    return np.array([*declared, *(number for box in published_boxes(case) for number in box)], dtype=np.float64)


def _box_of_degrees(case: Case) -> Box | None:
    if case.longitude is None or case.latitude is None:
        return None
    x, y = (pc.min_max(case.published.column(name)).as_py() for name in (case.longitude, case.latitude))
    if x["min"] is None or y["min"] is None:
        return None
    return (x["min"], y["min"], x["max"], y["max"])


def _box_of_shapes(case: Case) -> Box | None:
    if case.geometry is None:
        return None
    values = case.encoded(case.geometry).distinct.to_numpy(zero_copy_only=False)
    if not len(values):
        return None
    west, south, east, north = shapely.total_bounds(shapely.from_wkb(values, on_invalid="ignore")).tolist()
    return None if np.isnan(west) else (west, south, east, north)
