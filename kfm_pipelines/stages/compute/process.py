"""Turns the objects of a key into what is published of it, by the processor that the dataset declares."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.dataset import Dataset, Processor
from kfm_pipelines.declarations.tables import declared_schema
from kfm_pipelines.events import CanonicalKey, Window, parse_label
from kfm_pipelines.gates.verdict import OUTSIDE_AREA, OUTSIDE_WINDOW, count_true
from kfm_pipelines.parquet.area import rows_outside
from kfm_pipelines.parquet.times import times_outside
from kfm_pipelines.stages.compute.raster import process_raster
from kfm_pipelines.stages.compute.result import Computed, SourceObject
from kfm_pipelines.stages.compute.scene import process_scenes
from kfm_pipelines.stages.compute.table import compute

if TYPE_CHECKING:
    LoadArea = Callable[[], Area]

# The area is loaded only by processors that need its shape.
Process = Callable[[Dataset, Sequence[SourceObject], "LoadArea"], Computed]


def process(dataset: Dataset, objects: Sequence[SourceObject], load_area: "LoadArea") -> Computed:
    """Pure: the same objects, in any order, give the same bytes."""
    if not objects:  # all were deleted
        return Computed(declared_schema(dataset.table).empty_table())
    return PROCESSORS[dataset.processor](dataset, objects, load_area)


def process_key(dataset: Dataset, objects: Sequence[SourceObject], load_area: "LoadArea", key: str) -> Computed:
    """Makes what is published of a key, without rows of other windows where the dataset leaves them out."""
    window = parse_label(CanonicalKey.parse(key).time_window)
    return drop_rows_outside_window(dataset, process(dataset, objects, load_area), window)


def _process_table(dataset: Dataset, objects: Sequence[SourceObject], load_area: "LoadArea") -> Computed:
    computed = compute(dataset, objects)
    return drop_rows_outside(dataset, computed, load_area()) if dataset.outside_aoi == "clip" else computed


def drop_rows_outside(dataset: Dataset, computed: Computed, area: Area) -> Computed:
    """Leaves out rows whose place is outside the area. A correction that moves a place out of it takes its row away,
    so this comes after conflicts are settled."""
    # Loads numpy and pyarrow, which loading the definitions must not.
    import pyarrow as pa

    outside = rows_outside(computed.table, dataset.table, area)
    if outside is None or not outside.any():
        return computed
    left_out = {**computed.left_out, OUTSIDE_AREA: int(outside.sum())}
    return replace(computed, table=computed.table.filter(pa.array(~outside)), left_out=left_out)


def drop_rows_outside_window(dataset: Dataset, computed: Computed, window: Window) -> Computed:
    """Leaves out rows of other windows where that is declared. If all rows are of others, the object is in the wrong
    place: nothing is left out, and the gate refuses the key."""
    # Loads numpy and pyarrow, which loading the definitions must not.
    import pyarrow.compute as pc

    name, table = dataset.table.time_column, computed.table
    declared = declared_schema(dataset.table)
    if dataset.table.outside_window != "clip" or name not in table.column_names:
        return computed
    if table.schema.field(name).type != declared.field(name).type:
        return computed
    outside = pc.fill_null(times_outside(table.column(name), (window.start, window.end)), False)
    count = count_true(outside)
    if count in (0, table.num_rows):
        return computed
    left_out = {**computed.left_out, OUTSIDE_WINDOW: count}
    return replace(computed, table=table.filter(pc.invert(outside)), left_out=left_out)


def _process_vector(dataset: Dataset, objects: Sequence[SourceObject], load_area: "LoadArea") -> Computed:
    # Loads numpy and shapely, which loading the definitions must not.
    from kfm_pipelines.stages.compute.vector import process_features

    return process_features(dataset, objects, load_area)


PROCESSORS: Mapping[Processor, Process] = {
    "table": _process_table,
    "vector": _process_vector,
    "raster": process_raster,
    "scene": process_scenes,
}
