"""The unmasked table, read by the declaration alone: place, kind and feature of each row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.rules import GeometryKind, Rule
from kfm_pipelines.care.verifier.evidence import EvidenceUnreadable
from kfm_pipelines.care.verifier.types import Codes, Degrees, Flags, Numbers
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.tables import arrow_type
from kfm_pipelines.parquet.distinct_values import encode_column
from kfm_pipelines.parquet.geoparquet import coordinates_of
from kfm_pipelines.parquet.parquet import flatten

KINDS: tuple[GeometryKind, ...] = get_args(GeometryKind)
UNKNOWN = -1


def classes_of(policy: Policy, table: pa.Table, subject: str = "data") -> Codes:
    """Returns the position of each row's class in the policy, or UNKNOWN."""
    names = list(policy.classes)
    if policy.class_column is None:
        number = names.index(policy.sensitivity) if policy.sensitivity in names else UNKNOWN
        return np.full(table.num_rows, number, dtype=np.int32)
    if policy.class_column not in table.column_names:
        raise EvidenceUnreadable(subject, "the column with the class", "no such column")
    column = table.column(policy.class_column)
    texts = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
    places = pc.index_in(texts, value_set=pa.array(names, pa.string()))
    found: Codes = places.fill_null(UNKNOWN).to_numpy()
    return found


def rows_with_rule(policy: Policy, classes: Codes, kinds: Codes, predicate: Callable[[Rule], bool]) -> Flags:
    """Flags rows whose class and kind have a rule that matches."""
    table = np.zeros((len(policy.classes) + 1, len(KINDS) + 1), np.bool_)  # UNKNOWN reads the last, which stays False
    for place, rules in enumerate(policy.classes.values()):
        for kind, rule in rules.rules.items():
            table[place, KINDS.index(kind)] = predicate(rule)
    found: Flags = table[classes, kinds]
    return found


# By shapely's type id. Other types have no rule.
_KIND_OF_TYPE = {0: "point", 1: "line", 5: "line", 3: "polygon", 6: "polygon"}
_TYPE_COUNT = 8  # geometry types of shapely; a missing geometry is -1


@dataclass(frozen=True, eq=False)
class Origins:
    """Class, kind, feature and place of each row. Degrees are NaN for shapes that are not points."""

    table: pa.Table
    classes: Codes
    kinds: Codes
    features: Numbers
    shapes: npt.NDArray[Any]  # empty when all are points
    longitudes: Degrees
    latitudes: Degrees


def read_origins(policy: Policy, dataset: Dataset, table: pa.Table, schema: pa.Schema) -> Origins:
    """`schema` is the file's own; texts in `table` may be dictionary-encoded."""
    _refuse_undeclared_columns(dataset, schema)
    shapes, kinds, longitudes, latitudes = _read_places(dataset, table)
    classes = classes_of(policy, table, "original")
    _refuse_rows_without_rule(policy, classes, kinds)
    return Origins(table, classes, kinds, _number_features(policy, table), shapes, longitudes, latitudes)


def _refuse_undeclared_columns(dataset: Dataset, schema: pa.Schema) -> None:
    declared = [(column.name, arrow_type(column.type)) for column in dataset.table.columns]
    found = [(field.name, field.type) for field in schema]
    if sorted(declared, key=lambda column: column[0]) != sorted(found, key=lambda column: column[0]):
        raise EvidenceUnreadable("original", "exactly the declared columns")


def _read_places(dataset: Dataset, table: pa.Table) -> tuple[npt.NDArray[Any], Codes, Degrees, Degrees]:
    """Returns geometries, their kinds, and the degrees of points. Points need no geometry."""
    declared = dataset.table
    if declared.geometry_column is not None:
        geometries = flatten(table.column(declared.geometry_column))
        points = None if geometries.null_count else coordinates_of(geometries)
        if points is None:
            return _read_shapes(dataset, geometries)
        longitudes, latitudes = np.ascontiguousarray(points.T)
    elif declared.longitude_column is None or declared.latitude_column is None:
        raise EvidenceUnreadable("original", "a column with a place", "none is declared")
    else:
        named = (declared.longitude_column, declared.latitude_column)
        longitudes, latitudes = (table.column(name).to_numpy() for name in named)
    _refuse_outside_extent(dataset, longitudes, latitudes, longitudes, latitudes)
    kinds = np.full(table.num_rows, KINDS.index("point"), np.int32)
    return np.empty(0, object), kinds, longitudes, latitudes


def _read_shapes(dataset: Dataset, geometries: pa.Array) -> tuple[npt.NDArray[Any], Codes, Degrees, Degrees]:
    try:
        shapes = np.asarray(shapely.from_wkb(geometries.to_numpy(zero_copy_only=False)), dtype=object)
    except (shapely.errors.ShapelyError, TypeError, ValueError):
        raise EvidenceUnreadable("original", "a geometry as WKB in every row") from None
    _refuse_outside_extent(dataset, *np.moveaxis(shapely.bounds(shapes), -1, 0))  # NaN when null or empty
    return shapes, _geometry_kinds(shapes), shapely.get_x(shapes), shapely.get_y(shapes)


def _geometry_kinds(shapes: npt.NDArray[Any]) -> Codes:
    known = [KINDS.index(_KIND_OF_TYPE[kind]) if kind in _KIND_OF_TYPE else UNKNOWN for kind in range(_TYPE_COUNT)]
    numbers: Codes = np.array([*known, UNKNOWN], np.int32)[shapely.get_type_id(shapes)]
    return numbers


def _refuse_outside_extent(dataset: Dataset, west: Degrees, south: Degrees, east: Degrees, north: Degrees) -> None:
    extent = dataset.extent
    if extent is None:
        raise EvidenceUnreadable("original", "a dataset with an extent", "none is declared")
    inside = (west >= extent.west) & (south >= extent.south) & (east <= extent.east) & (north <= extent.north)
    if not inside.all():
        raise EvidenceUnreadable(
            "original", "every place in the dataset's extent", f"{int((~inside).sum())} rows elsewhere"
        )


def _refuse_rows_without_rule(policy: Policy, classes: Codes, kinds: Codes) -> None:
    unruled = int((~rows_with_rule(policy, classes, kinds, lambda rule: True)).sum())
    if unruled:
        raise EvidenceUnreadable(
            "original", "classes and kinds of geometry the policy has rules for", f"{unruled} other rows"
        )


def _number_features(policy: Policy, table: pa.Table) -> Numbers:
    columns = [table.column(name) for name in policy.stable_id]
    if any(column.null_count for column in columns):
        raise EvidenceUnreadable("original", "a stable id in every row", "nulls")
    first, *more = (encode_column(column).codes for column in columns)
    features = first.astype(np.int64)  # already numbered without gaps
    for code in more:
        combined = features * (int(code.max(initial=0)) + 1) + code
        features = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    return features
