"""Computes a key's features: each in WGS 84, valid and in one form, then a table as of any other dataset.

It is clipped to the area if that is declared, and its order makes neighbours on the map neighbours in the file.
"""

import json
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.inputs import Limits
from kfm_pipelines.declarations.vectors import Vector
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.gates.verdict import OUTSIDE_AREA
from kfm_pipelines.stages.compute.readers import read_object
from kfm_pipelines.stages.compute.readers.features import SYSTEMS, geometry_name
from kfm_pipelines.stages.compute.result import Computed, SourceObject
from kfm_pipelines.stages.compute.rows import differs_from_above
from kfm_pipelines.stages.compute.table import conform, merge
from kfm_pipelines.vector.clip import clip
from kfm_pipelines.vector.faults import faults_as_read, faults_in_degrees
from kfm_pipelines.vector.hilbert import distances_along
from kfm_pipelines.vector.systems import choose_system, is_in_degrees, reproject
from kfm_pipelines.vector.types import Shapes, format_feature_count
from kfm_pipelines.vector.validity import canonical, repair

_AT_ONCE = 50_000


def process_features(dataset: Dataset, objects: Sequence[SourceObject], load_area: Callable[[], Area]) -> Computed:
    names = [source.asset_uri for source in objects]
    merged = merge([_read_features(source, dataset) for source in objects], names, dataset)
    table, left_out = merged.table, dict(merged.left_out)
    if dataset.outside_aoi == "clip":
        table, outside = _clip_rows(table, dataset.table, load_area())
        left_out |= {OUTSIDE_AREA: outside} if outside else {}
    return Computed(_order_rows(table, dataset.table), left_out=left_out)


def _read_features(source: SourceObject, dataset: Dataset) -> pa.Table:
    name, geometry = source.asset_uri, geometry_name(dataset)
    table = read_object(source.data, name, dataset)
    if table.column_names.count(geometry) != 1 or not _is_binary(table.schema.field(geometry).type):
        raise InputUnreadable(f"{name} has no column {geometry!r} with geometries")
    place = table.schema.get_field_index(geometry)
    stated = json.loads((table.schema.field(place).metadata or {}).get(SYSTEMS, b"[]"))
    shapes = _prepare_shapes(table.column(place), stated, name, dataset)
    return conform(table.set_column(place, geometry, _to_wkb(shapes)), name, dataset)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _prepare_shapes(column: pa.ChunkedArray, stated: Sequence[object], name: str, dataset: Dataset) -> Shapes:
    system = choose_system(stated, name)
    shapes = _read_shapes(column, name, dataset.input.limits)
    _refuse_first(name, faults_as_read(shapes, column.is_null().to_numpy()))
    if is_in_degrees(system):  # a swapped latitude of 97 degrees has no place to go
        _refuse_first(name, faults_in_degrees(shapes, dataset.extent))
    shapes = reproject(shapely.force_2d(shapes), system, name)
    _refuse_first(name, faults_in_degrees(shapes, dataset.extent))
    return canonical(_make_valid(shapes, name, dataset.vector or Vector()))


def _read_shapes(column: pa.ChunkedArray, name: str, limits: Limits) -> Shapes:
    """Counts the vertices while it reads them."""
    parts: list[Shapes] = [np.empty(0, object)]
    vertices = 0
    for start in range(0, len(column), _AT_ONCE):
        values = column.slice(start, _AT_ONCE).to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            parts.append(shapely.from_wkb(values, on_invalid="ignore"))
        vertices += int(shapely.get_num_coordinates(parts[-1]).sum())
        limits.refuse(name, vertices=vertices)
    return np.concatenate(parts)


def _refuse_first(name: str, faults: Iterable[str]) -> None:
    for fault in faults:
        raise InputUnreadable(f"{name}: {fault}")


def _make_valid(shapes: Shapes, name: str, rules: Vector) -> Shapes:
    if rules.invalid == "repair":
        shapes, failed = repair(shapes)
        if count := int(failed.sum()):
            raise InputUnreadable(f"{name}: {format_feature_count(count)} a geometry that cannot be repaired")
    elif count := int((~shapely.is_valid(shapes)).sum()):
        what = "an invalid geometry, such as one that intersects itself; vector.invalid: repair would repair it"
        raise InputUnreadable(f"{name}: {format_feature_count(count)} {what}")
    return shapes


def _to_wkb(shapes: Shapes) -> pa.Array:
    return pa.array(shapely.to_wkb(shapes, output_dimension=2, byte_order=1), pa.binary())


def _from_wkb(table: pa.Table, declared: Table) -> Shapes:
    values = table.column(str(declared.geometry_column)).to_numpy(zero_copy_only=False)
    shapes: Shapes = shapely.from_wkb(values)
    return shapes


def _clip_rows(table: pa.Table, declared: Table, area: Area) -> tuple[pa.Table, int]:
    """Clips after conflicts are settled: a newer row outside of the area replaces an older one inside."""
    shapes, remains = clip(_from_wkb(table, declared), area.shape)
    place = table.schema.get_field_index(str(declared.geometry_column))
    clipped = table.set_column(place, table.schema.field(place), _to_wkb(shapes))
    return clipped.filter(pa.array(remains)), int((~remains).sum())


def _order_rows(table: pa.Table, declared: Table) -> pa.Table:
    """Orders by the place of what a row is about; the rows of one feature stay together, in the order of time."""
    if not table.num_rows:
        return table
    along = distances_along(_from_wkb(table, declared))
    return table.take(np.argsort(along[_first_rows(table, declared)], kind="stable"))


def _first_rows(table: pa.Table, declared: Table) -> npt.NDArray[np.int64]:
    """Returns for each row the first one of the same feature."""
    rows = np.arange(table.num_rows)
    feature = [name for name in declared.primary_key if name != declared.time_column and name in table.column_names]
    if declared.time_column not in declared.primary_key or table.num_rows < 2:
        return rows
    differs = differs_from_above(table.select(feature)).to_numpy(zero_copy_only=False) if feature else np.False_
    is_first = np.concatenate([[True], np.broadcast_to(differs, table.num_rows - 1)])
    return np.maximum.accumulate(np.where(is_first, rows, 0))
