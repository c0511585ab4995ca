"""The upstreams of a derived dataset: whose published keys it is made of, and how their rows come to H3 cells."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from kfm_pipelines.declarations.faults import Fault
from kfm_pipelines.declarations.tables import JOINS
from kfm_pipelines.declarations.words import ColumnName, DeclarationModel, NonEmptyText, WindowLength

if TYPE_CHECKING:
    from kfm_pipelines.declarations.dataset import Dataset

Cell = Annotated[str, StringConstraints(pattern=r"^8[0-9a-f]{14}$")]

# Windows that lie within exactly one window of a length. A week can be in two months and in two years.
_WITHIN: Mapping[WindowLength, frozenset[WindowLength]] = {
    "hour": frozenset({"hour"}),
    "day": frozenset({"hour", "day"}),
    "week": frozenset({"hour", "day", "week"}),
    "month": frozenset({"hour", "day", "month"}),
    "year": frozenset({"hour", "day", "month", "year"}),
}


class TouchedCells(DeclarationModel):
    """The cells that one area touches, wholly or in part."""

    values: Annotated[list[str], Field(min_length=1)]  # of the columns that name the area
    cells: Annotated[list[Cell], Field(min_length=1)]


class RowCells(DeclarationModel):
    """How a row comes to its cells: by its coordinates, by a column that has its cell, or as an area by its name."""

    longitude: ColumnName | None = None
    latitude: ColumnName | None = None
    cell: ColumnName | None = None
    area: list[ColumnName] = Field(default_factory=list)
    areas: list[TouchedCells] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_one_way(self) -> Self:
        if (self.longitude is None) != (self.latitude is None) or bool(self.area) != bool(self.areas):
            raise ValueError("longitude goes together with latitude, and area with areas")
        if sum(map(bool, (self.longitude, self.cell, self.area))) != 1:
            raise ValueError("needs longitude and latitude, or cell, or area and areas")
        for one in self.areas:
            if len(one.values) != len(self.area):
                raise ValueError(f"areas: each needs as many values as area has columns, {len(self.area)}")
        named = [tuple(one.values) for one in self.areas]
        if len(set(named)) != len(named):
            raise ValueError("areas has the same area twice")
        return self

    @property
    def columns(self) -> list[str]:
        """The columns of the upstream's table that are read."""
        return [name for name in (self.longitude, self.latitude, self.cell, *self.area) if name]


class Upstream(DeclarationModel):
    """A dataset of ours whose published keys are inputs."""

    dataset: NonEmptyText
    cells: RowCells


def derivation_faults(dataset: "Dataset") -> Iterator[Fault]:
    """Yields what a derived dataset declares although only objects can have it, and what it lacks."""
    upstreams = dataset.input.upstream
    if bool(upstreams) != (dataset.transform in JOINS):
        needed = "input.upstream needs a transform that joins" if upstreams else "only input.upstream can be joined"
        yield Fault(f"transform: {needed}: {', '.join(JOINS)}", ("transform",))
    if not upstreams:
        return
    if len(set(dataset.input.upstream_names)) != len(upstreams):
        yield Fault("input.upstream has the same dataset twice", ("input", "upstream"))
    if dataset.processor != "table":
        yield Fault("input.upstream needs processor: table", ("processor",))
    if dataset.key.fold_by or dataset.watermark.partition:
        sentence = "key.fold_by and watermark.partition name a part of an object's path; input.upstream has none"
        yield Fault(sentence, ("key", "fold_by") if dataset.key.fold_by else ("watermark", "partition"))
    if dataset.key.h3_res == "none":
        yield Fault("key.h3_res must be a resolution, because upstreams are joined on H3 cells", ("key", "h3_res"))
        return
    for cell in chain.from_iterable(area.cells for one in upstreams for area in one.cells.areas):
        if int(cell[1], 16) != int(dataset.key.h3_res):
            sentence = f"input.upstream: cell {cell} is not of resolution {dataset.key.h3_res}, key.h3_res"
            yield Fault(sentence, ("key", "h3_res"))
            return


def upstream_faults(dataset: "Dataset", datasets: Mapping[str, "Dataset"]) -> Iterator[Fault]:
    """Yields upstreams that are not declared, that lead back to the dataset, and that have windows of which one would
    lie in two of its own."""
    for place, name in enumerate(dataset.input.upstream_names):
        path = ("input", "upstream", place, "dataset")
        if name not in datasets:
            yield Fault(f"input.upstream: {name!r} is not declared; declared: {', '.join(datasets)}", path)
            continue
        window = datasets[name].key.window
        if window not in _WITHIN[dataset.key.window]:
            sentence = f"a {window} of {name} does not lie within one {dataset.key.window}, this dataset's window"
            yield Fault(f"input.upstream: {sentence}", path)
    circle = _find_circle(datasets, [dataset.dataset]) if dataset.dataset in datasets else []
    if circle:
        yield Fault(f"input.upstream: is a circle: {' is made of '.join(circle)}", ("input", "upstream"))


def _find_circle(datasets: Mapping[str, "Dataset"], path: Sequence[str]) -> Sequence[str]:
    """Returns the datasets from one back to itself, if its upstreams lead there."""
    for name in datasets[path[-1]].input.upstream_names:
        longer = [*path, name]
        if name == path[0]:
            return longer
        if name in datasets and name not in path and (found := _find_circle(datasets, longer)):
            return found
    return []
