"""Turns the objects of a key into what is published of it, by the processor that the dataset declares."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.dataset import Dataset, Processor
from kfm_pipelines.declarations.tables import declared_schema
from kfm_pipelines.events import CanonicalKey, Window, parse_label
from kfm_pipelines.gates.verdict import OUTSIDE_AREA, OUTSIDE_WINDOW, count_true
from kfm_pipelines.parquet.outside import rows_outside, times_outside
from kfm_pipelines.stages.compute.raster import process_raster
from kfm_pipelines.stages.compute.result import Computed, SourceObject
from kfm_pipelines.stages.compute.scene import process_scenes
from kfm_pipelines.stages.compute.table import compute

if TYPE_CHECKING:
    import pyarrow as pa

    LoadArea = Callable[[], Area]

# The area is loaded only by processors that need its shape.
Process = Callable[[Dataset, Sequence[SourceObject], "LoadArea"], Computed]


def process(dataset: Dataset, objects: Sequence[SourceObject], load_area: "LoadArea") -> Computed:
    """Pure: the same objects, in any order, give the same bytes."""
    if not objects:  # all were deleted
        return Computed(declared_schema(dataset.table).empty_table())
    return PROCESSORS[dataset.processor](dataset, objects, load_area)


def process_key(dataset: Dataset, objects: Sequence[SourceObject], load_area: "LoadArea", key: str) -> Computed:
    """Makes what is published of a key, without rows of other windows where the dataset leaves them out. An object with
    no row of this window is in the wrong place: then nothing is left out, and the gate refuses the key."""
    window = parse_label(CanonicalKey.parse(key).time_window)
    computed = process(dataset, objects, load_area)
    clipped = drop_rows_outside_window(dataset, computed, window)
    if clipped is computed or len(objects) == 1:
        return clipped
    alone = (process(dataset, [one], load_area).table for one in objects)  # only where rows were left out
    return computed if any(_are_all_outside(dataset, table, window) for table in alone) else clipped


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
    """Leaves out rows of other windows where that is declared, unless all are: then the gate refuses the key."""
    outside = _outside_window(dataset, computed.table, window)
    if outside is None or (count := count_true(outside)) in (0, computed.table.num_rows):
        return computed
    # Loads numpy and pyarrow, which loading the definitions must not.
    import pyarrow.compute as pc

    left_out = {**computed.left_out, OUTSIDE_WINDOW: count}
    return replace(computed, table=computed.table.filter(pc.invert(outside)), left_out=left_out)


def _are_all_outside(dataset: Dataset, table: "pa.Table", window: Window) -> bool:
    outside = _outside_window(dataset, table, window)
    return outside is not None and 0 < table.num_rows == count_true(outside)


def _outside_window(dataset: Dataset, table: "pa.Table", window: Window) -> "pa.ChunkedArray | None":
    """Marks the rows of other windows; None if they are not left out, or if the gate refuses the column anyway."""
    import pyarrow.compute as pc

    name = dataset.table.time_column
    if dataset.table.outside_window != "clip" or name not in table.column_names:
        return None
    if table.schema.field(name).type != declared_schema(dataset.table).field(name).type:
        return None
    return pc.fill_null(times_outside(table.column(name), (window.start, window.end)), False)


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
