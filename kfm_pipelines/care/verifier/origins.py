"""The unmasked table, read by the declaration alone: where each row is, of which kind, and which feature it is of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfm_pipelines.arrow_schemas import arrow_type
from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.rules import GeometryKind
from kfm_pipelines.care.verifier.reading import Unreadable
from kfm_pipelines.datasets import Dataset

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Degrees = npt.NDArray[np.float64]
    Numbers = npt.NDArray[np.int64]
    Objects = npt.NDArray[np.object_]

# Shapely's numbers for kinds of geometry. Whatever is not here has no rule.
_KINDS: Mapping[int, GeometryKind] = {0: "point", 1: "line", 5: "line", 3: "polygon", 6: "polygon"}


@dataclass(frozen=True, eq=False)
class Origins:
    """Row by row: class, kind, feature, and the place as a geometry; points have their degrees as well."""

    table: "pa.Table"
    classes: "Objects"
    kinds: "Objects"
    features: "Numbers"
    shapes: "npt.NDArray[Any]"
    longitudes: "Degrees"
    latitudes: "Degrees"


def read_origins(policy: Policy, dataset: Dataset, table: "pa.Table", classes: "Objects") -> Origins:
    import numpy as np
    import shapely

    _refuse_other_columns(dataset, table)
    shapes = _shapes(dataset, table)
    kinds = np.array([_KINDS.get(int(kind), "unknown") for kind in shapely.get_type_id(shapes)], dtype=object)
    _refuse_unruled(policy, classes, kinds)
    longitudes, latitudes = shapely.get_x(shapes), shapely.get_y(shapes)  # NaN unless a point
    return Origins(table, classes, kinds, _features(policy, table), shapes, longitudes, latitudes)


def _refuse_other_columns(dataset: Dataset, table: "pa.Table") -> None:
    declared = [(column.name, arrow_type(column.type)) for column in dataset.table.columns]
    found = [(field.name, field.type) for field in table.schema]
    if sorted(declared, key=lambda column: column[0]) != sorted(found, key=lambda column: column[0]):
        raise Unreadable("original", "exactly the declared columns")


def _shapes(dataset: Dataset, table: "pa.Table") -> "npt.NDArray[Any]":
    import numpy as np
    import shapely

    declared = dataset.table
    if declared.geometry_column is not None:
        try:
            shapes = shapely.from_wkb(table.column(declared.geometry_column).to_numpy())
        except (shapely.errors.ShapelyError, TypeError, ValueError):
            raise Unreadable("original", "a geometry as WKB in every row") from None
    elif declared.longitude_column is not None and declared.latitude_column is not None:
        degrees = [table.column(name).to_numpy() for name in (declared.longitude_column, declared.latitude_column)]
        shapes = shapely.points(*degrees)
    else:
        raise Unreadable("original", "a column with a place", "none is declared")
    _refuse_elsewhere(dataset, shapes)
    return np.asarray(shapes, dtype=object)


def _refuse_elsewhere(dataset: Dataset, shapes: "npt.NDArray[Any]") -> None:
    """A place that is no place, or not where the dataset is, cannot be held against anything."""
    import numpy as np
    import shapely

    if dataset.extent is None:
        raise Unreadable("original", "a dataset with an extent", "none is declared")
    west, south, east, north = np.moveaxis(shapely.bounds(shapes), -1, 0)  # NaN when null or empty
    extent = dataset.extent
    inside = (west >= extent.west) & (south >= extent.south) & (east <= extent.east) & (north <= extent.north)
    if not inside.all():
        raise Unreadable("original", "every place in the dataset's extent", f"{int((~inside).sum())} rows elsewhere")


def _refuse_unruled(policy: Policy, classes: "Objects", kinds: "Objects") -> None:
    ruled = {(sensitivity, kind) for sensitivity, rules in policy.classes.items() for kind in rules.rules}
    unruled = sum(pair not in ruled for pair in zip(classes, kinds, strict=True))
    if unruled:
        raise Unreadable("original", "classes and kinds of geometry the policy has rules for", f"{unruled} other rows")


def _features(policy: Policy, table: "pa.Table") -> "Numbers":
    import numpy as np

    columns = [table.column(name) for name in policy.stable_id]
    if any(column.null_count for column in columns):
        raise Unreadable("original", "a stable id in every row", "nulls")
    codes = [column.combine_chunks().dictionary_encode() for column in columns]
    features = np.zeros(table.num_rows, np.int64)
    for code in map(_indices, codes):
        combined = features * (int(code.max(initial=0)) + 1) + code
        features = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    return features


def _indices(encoded: Any) -> "Numbers":
    import pyarrow as pa

    whole = encoded if isinstance(encoded, pa.Array) else encoded.unify_dictionaries().combine_chunks()
    indices: Numbers = whole.indices.to_numpy()
    return indices
