"""Whether every geometry is one: readable, not empty, valid, and on the earth."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kfm_pipelines.gates.samples import sample_of
from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.gates.verdict import Finding, Rule, error

if TYPE_CHECKING:
    import numpy as np


def _geometry_valid(subject: TableSubject) -> Iterator[Finding]:
    import pyarrow as pa

    name = subject.published.geometry_column
    if name is None:
        return
    for expected, measured, wrong in _mistakes(subject, name):
        if count := int(wrong.sum()):
            said = f"{count} of {subject.table.num_rows} rows {measured}"
            yield error("geometry-valid", name, expected, said, sample_of(subject, pa.array(wrong)))


def _mistakes(subject: TableSubject, name: str) -> "Iterator[tuple[str, str, np.ndarray[Any, Any]]]":
    """What is expected, what is said of those that are not so, and which they are; each is told of one thing only."""
    import numpy as np
    import shapely

    there = subject.table.column(name).is_valid().to_numpy()
    shapes = shapes_of(subject, name)
    read = ~shapely.is_missing(shapes)
    yield "geometries in WKB", "unreadable", there & ~read
    empty = shapely.is_empty(shapes)
    yield "a place each", "empty", read & empty
    astray = read & _is_astray(shapes)
    yield "degrees within 180 east or west and 90 north or south", "beyond", astray
    with np.errstate(invalid="ignore"):
        valid = shapely.is_valid(shapes)
    yield "valid geometries", "invalid", read & ~astray & ~valid


def shapes_of(subject: TableSubject, name: str) -> "np.ndarray[Any, Any]":
    """One for each row; none where there is none or it cannot be read."""
    import numpy as np
    import shapely

    wkb = subject.table.column(name).to_numpy()
    with np.errstate(invalid="ignore"):
        return shapely.from_wkb(wkb, on_invalid="ignore")  # type: ignore[no-any-return]


def _is_astray(shapes: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Whether any of its coordinates is no place on the earth, or no number."""
    import numpy as np
    import shapely

    coordinates, owners = shapely.get_coordinates(shapes, return_index=True)
    with np.errstate(invalid="ignore"):
        good = (np.abs(coordinates[:, 0]) <= 180.0) & (np.abs(coordinates[:, 1]) <= 90.0)
    astray = np.zeros(len(shapes), dtype=bool)
    astray[owners[~good]] = True
    return astray


GEOMETRY_VALID = Rule(
    "geometry-valid",
    _geometry_valid,
    "Repair the geometries where they come from (shapely's make_valid shows what is meant) and send the object again.",
)
