"""Pieces of a release: the rows that one rule makes of one class and kind of geometry."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.crowds import Crowd, crowd_at
from kfm_pipelines.care.masks.features import Features
from kfm_pipelines.care.masks.places import Places
from kfm_pipelines.care.masks.shown import Shown
from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.rules import GeometryKind, Sensitivity
from kfm_pipelines.declarations import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from kfm_pipelines.care.masks.arrays import Flags, Floats, Ints


NO_SAMPLE = -1


@dataclass(frozen=True, slots=True)
class Source:
    """Everything that is known of the records before they are masked."""

    table: "pa.Table"
    declared: Table
    policy: Policy
    secret: bytes
    classes: "dict[Sensitivity, Flags]"  # for each class, which records are of it
    features: Features
    places: Places

    def select(self, sensitivity: Sensitivity, kind: GeometryKind, rows: "Ints") -> "Selection":
        return Selection(self, sensitivity, kind, rows, self.features.of(rows))


@dataclass(frozen=True, slots=True)
class Selection:
    """The records of one class and kind of geometry."""

    source: Source
    sensitivity: Sensitivity
    kind: GeometryKind
    rows: "Ints"  # positions in the table
    features: Features

    @property
    def minimum(self) -> int:
        return self.source.policy.minimum_count

    @property
    def drawn(self) -> bool:
        return self.source.declared.geometry_column is not None

    def crowd(self) -> Crowd:
        places = self.source.places
        return crowd_at(self.features, places.longitudes[self.rows], places.latitudes[self.rows])

    def none(self) -> "Selection":
        return self.source.select(self.sensitivity, self.kind, self.rows[:0])


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the cells."""

    released: int = 0
    suppressed: int = 0  # lost, or counted together with others
    smallest: int | None = None  # features in the smallest released one, as far as the release tells


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows to publish. The first three arrays have an item for each of them."""

    sensitivity: Sensitivity
    place: "Ints"  # position in `shown`
    records: "Ints"  # how many records it stands for
    sample: "Ints"  # a record whose values it carries, or NO_SAMPLE
    carries: frozenset[str]  # the columns it carries; others are null
    shown: Shown
    # Which record went into which row, as positions in the table and in this piece.
    came_from: "Ints"
    went_to: "Ints"
    tally: Tally = Tally()
    distances: "Floats | None" = None  # how far each feature was moved


def one_row_each(selection: Selection, place: "Ints", shown: Shown, tally: Tally | None = None) -> Piece:
    """A piece in which every record stays a row, with all that is kept of it."""
    import numpy as np

    rows = selection.rows
    return Piece(
        sensitivity=selection.sensitivity,
        place=place,
        records=np.ones(len(rows), np.int64),
        sample=rows,
        carries=frozenset(selection.source.policy.columns.keep),
        shown=shown,
        came_from=rows,
        went_to=np.arange(len(rows)),
        tally=tally or Tally(),
    )


def tally_of(counts: "Ints", released: "Flags") -> Tally:
    number = int(released.sum())
    return Tally(number, len(counts) - number, int(counts[released].min()) if number else None)
