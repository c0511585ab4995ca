"""Streamflow and drought of one week, side by side on H3 cells.

A cell has a row if there is a gauge in it or an area in drought touches it. Where one of the two has published nothing
of the week, all it would say is null; where it has, but has nothing in the cell, its counts are 0.
"""

from collections import defaultdict
from collections.abc import Mapping
from math import fsum
from typing import TYPE_CHECKING, Any

from kfm_pipelines.stages.compute.transforms.cells import CELL, with_centres

if TYPE_CHECKING:
    import pyarrow as pa

STREAMFLOW = "usgs/streamflow"
DROUGHT = "drought/tribal-areas"
CLASSES = ("D0", "D1", "D2", "D3", "D4")

Facts = Mapping[str, Mapping[str, Any]]  # columns and their values, by cell


def drought_streamflow(upstreams: "Mapping[str, pa.Table]") -> "pa.Table":
    import pyarrow as pa

    streamflow = _streamflow(upstreams[STREAMFLOW]) if STREAMFLOW in upstreams else {}
    drought = _drought(upstreams[DROUGHT]) if DROUGHT in upstreams else {}
    without_gauge = {"gauges": 0, "readings": 0} if STREAMFLOW in upstreams else {}
    without_area = {"areas_in_drought": 0} if DROUGHT in upstreams else {}
    rows = [
        {CELL: cell, **streamflow.get(cell, without_gauge), **drought.get(cell, without_area)}
        for cell in sorted({*streamflow, *drought})
    ]
    return with_centres(pa.Table.from_pylist(rows, schema=_schema()))


def _schema() -> "pa.Schema":
    import pyarrow as pa

    return pa.schema(
        {
            CELL: pa.string(),
            "gauges": pa.int64(),
            "readings": pa.int64(),
            "discharge_mean_cfs": pa.float64(),
            "discharge_min_cfs": pa.float64(),
            "areas_in_drought": pa.int64(),
            "worst_class": pa.string(),
            "drought_index": pa.float64(),
        }
    )


def _streamflow(rows: "pa.Table") -> Facts:
    """Counts the gauges of each cell and their readings of a discharge, with the mean and the least of these."""
    # A sum of floating-point numbers depends on their order, and threads choose their own.
    cells = rows.group_by(CELL, use_threads=False)
    flow = "discharge_cfs"
    counted = cells.aggregate([("site_no", "count_distinct"), (flow, "count"), (flow, "mean"), (flow, "min")])
    return {
        one[CELL]: {
            "gauges": one["site_no_count_distinct"],
            "readings": one["discharge_cfs_count"],
            "discharge_mean_cfs": one["discharge_cfs_mean"],
            "discharge_min_cfs": one["discharge_cfs_min"],
        }
        for one in counted.to_pylist()
    }


def _drought(rows: "pa.Table") -> Facts:
    """Counts the areas in drought that touch each cell, with the worst class and the highest index of any of them.

    The Drought Severity and Coverage Index of an area, 0 to 500, is the sum of its percentages in the classes, that in
    D0 once, that in D4 five times.
    """
    weighted: defaultdict[str, defaultdict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    worst: dict[str, str] = {}
    for row in rows.select([CELL, "gnis", "lsad", "usdm_class", "class_area_percent"]).to_pylist():
        cell, drought_class = row[CELL], row["usdm_class"]
        weight = CLASSES.index(drought_class) + 1
        weighted[cell][row["gnis"], row["lsad"]].append(weight * row["class_area_percent"])
        worst[cell] = max(worst.get(cell, ""), drought_class)
    return {
        cell: {
            "areas_in_drought": len(areas),
            "worst_class": worst[cell],
            "drought_index": max(map(fsum, areas.values())),
        }
        for cell, areas in weighted.items()
    }
