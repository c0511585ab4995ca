"""How a dataset of features is read and made: its layer, and what becomes of invalid geometries."""

from collections.abc import Iterable, Iterator
from typing import Literal

from kfm_pipelines.declarations.faults import Fault
from kfm_pipelines.declarations.inputs import Format
from kfm_pipelines.declarations.tables import Table
from kfm_pipelines.declarations.words import DeclarationModel, NonEmptyText

COVERING = "bbox"  # the column that GeoParquet has for the box of each feature; see `parquet.boxes`
_ONLY_FEATURES: frozenset[Format] = frozenset({"geojson", "geopackage", "shapefile"})
_FEATURES = _ONLY_FEATURES | {"parquet"}


class Vector(DeclarationModel):
    layer: NonEmptyText | None = None  # of a file with several; None: it has one
    invalid: Literal["refuse", "repair"] = "refuse"  # geometries that break the rules of simple features


def feature_faults(processor: str, formats: Iterable[Format], table: Table) -> Iterator[Fault]:
    """Yields why a processor cannot read these formats, or features cannot be made into this table."""
    if processor != "vector":
        for name in sorted(_ONLY_FEATURES.intersection(formats)):
            yield Fault(f"input.format: {name} needs processor: vector", ("input", "format"))
        return
    for name in sorted(set(formats) - _FEATURES):
        yield Fault(f"processor: vector reads {', '.join(sorted(_FEATURES))}, not {name}", ("input", "format"))
    if table.geometry_column is None:
        yield Fault("processor: vector needs table.geometry_column", ("table",))
    if table.derived_column is not None:
        yield Fault("processor: vector reads its geometry from the objects, so it cannot be derived", ("table",))
    if sum(column.type == "geometry" for column in table.columns) > 1:
        yield Fault("processor: vector makes one column of type geometry, which is the geometry_column", ("table",))
    if any(column.name == COVERING for column in table.columns):
        yield Fault(f"the column {COVERING!r} is added to what is published, so it cannot be declared", ("table",))
