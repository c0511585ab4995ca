"""The split of objects: each row belongs to the key of its member, such as a county, a station or an H3 cell."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.faults import Fault
from kfm_pipelines.declarations.tables import Table
from kfm_pipelines.declarations.words import ColumnName, DeclarationModel
from kfm_pipelines.errors import DeclarationInvalid

if TYPE_CHECKING:
    from shapely.geometry import Polygon

MAX_MEMBERS = 1000  # each object is work for this many keys
MEMBER = r"[A-Za-z0-9_]{1,40}"  # part of a key, in lower case
_DEGREE_KM = 111.2
_EARTH_RADIUS_KM = 6371.0
_HIGHEST_LATITUDE = 80.0

MemberName = Annotated[str, StringConstraints(pattern=f"^{MEMBER}$")]


class SplitBy(DeclarationModel):
    """Where the member of a row comes from: the value of a column, or the H3 cell of its place."""

    column: ColumnName | None = None
    # Values that are their own names, or the name of each value; several values may have the same.
    members: list[MemberName] | dict[str, MemberName] = Field(default_factory=list)
    h3_res: Annotated[int, Field(ge=0, le=15)] | None = None  # the members are the cells that cover the area
    others: Literal["refuse", "ignore"] = "refuse"  # what becomes of objects with rows of no member

    @model_validator(mode="after")
    def _check_rule(self) -> Self:
        if (self.column is None) == (self.h3_res is None):
            raise ValueError("needs either a column or h3_res")
        if self.h3_res is not None and self.members:
            raise ValueError("members of h3_res are the cells that cover the area; leave them out")
        if self.column is not None and not 1 <= len(self.members) <= MAX_MEMBERS:
            raise ValueError(f"members must be 1 to {MAX_MEMBERS} values of {self.column!r}, not {len(self.members)}")
        for name, count in Counter(self.members if isinstance(self.members, list) else ()).items():
            if count > 1:
                raise ValueError(f"members has {name!r} more than once")
        if isinstance(self.members, list) and len(self.member_of_value) > len(set(self.member_of_value.values())):
            raise ValueError("members has two values that differ in upper and lower case alone; give them names")
        return self

    @cached_property
    def member_of_value(self) -> Mapping[str, str]:
        named = self.members if isinstance(self.members, dict) else {value: value for value in self.members}
        return {value: name.lower() for value, name in named.items()}


def split_faults(split: SplitBy | None, processor: str, table: Table) -> Iterator[Fault]:
    """Yields why the rows of a dataset cannot be split in this way."""
    if split is None:
        return
    path = ("key", "split_by")
    if processor not in ("table", "vector"):
        yield Fault(f"key.split_by: processor: {processor} has no rows to split; table and vector have", path)
    types = {column.name: column.type for column in table.columns}
    if split.column is not None and types.get(split.column) not in ("string", "int64"):
        sentence = f"key.split_by: {split.column!r} must be a column of the table of type string or int64"
        yield Fault(sentence, (*path, "column"))
    if split.h3_res is not None and None in (table.longitude_column, table.latitude_column):
        sentence = "key.split_by: h3_res needs table.longitude_column and table.latitude_column"
        yield Fault(sentence, (*path, "h3_res"))


def members_of(split: SplitBy, load_area: Callable[[], Area]) -> tuple[str, ...]:
    """Returns all members, sorted. The area is loaded only for cells."""
    if split.h3_res is None:
        return tuple(sorted(set(split.member_of_value.values())))
    return cells_of_area(load_area(), split.h3_res)


def cells_of_area(area: Area, resolution: int) -> tuple[str, ...]:
    """Returns every cell that a place in the area can be in, and perhaps a few at its edge that none is in."""
    import h3

    _, south, _, north = area.shape.bounds
    latitude = math.radians(min(_HIGHEST_LATITUDE, max(abs(south), abs(north))))
    shape = area.shape.buffer(_arc_margin(h3.average_hexagon_edge_length(resolution, "km"), latitude))
    # A lower bound, so that no billion cells are made only to be counted.
    square_km = shape.area * _DEGREE_KM**2 * math.cos(latitude)
    if square_km > 2 * MAX_MEMBERS * h3.average_hexagon_area(resolution, "km^2"):
        raise _too_many(area, resolution)
    cells: set[str] = set()
    for polygon in _polygons(shape):
        outer, *holes = (
            [(latitude, longitude) for longitude, latitude in ring.coords]
            for ring in (polygon.exterior, *polygon.interiors)
        )
        cells.update(h3.h3shape_to_cells_experimental(h3.LatLngPoly(outer, *holes), resolution, contain="overlap"))
        if len(cells) > MAX_MEMBERS:
            raise _too_many(area, resolution)
    return tuple(sorted(cells))


def _arc_margin(edge_km: float, latitude: float) -> float:
    """Returns in degrees how far the edge of a cell may be from the straight line between its ends, which is what the
    area is compared with; an edge is an arc on the globe. Three times that of an average edge, for the longest."""
    away_km = 3 * edge_km**2 * math.tan(latitude) / (8 * _EARTH_RADIUS_KM)
    return away_km / (_DEGREE_KM * math.cos(latitude))


def _polygons(shape: "Polygon") -> "Iterator[Polygon]":
    yield from getattr(shape, "geoms", [shape])


def _too_many(area: Area, resolution: int) -> DeclarationInvalid:
    return DeclarationInvalid(
        f"key.split_by: more than {MAX_MEMBERS} cells of resolution {resolution} cover {area.name}; take a coarser one"
    )
