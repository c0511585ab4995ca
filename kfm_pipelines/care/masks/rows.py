"""The published table and the crosswalk, put together from pieces. The order of rows follows from what is published."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.cells import names_of
from kfm_pipelines.care.masks.displacement import hash_coordinates
from kfm_pipelines.care.masks.features import Features
from kfm_pipelines.care.masks.order import joint_key, rank_column, stable_argsort
from kfm_pipelines.care.masks.places import Places
from kfm_pipelines.care.masks.released_places import ReleasedPlaces
from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.published_table import CELL, RECORD, RECORDS, UNCERTAINTY
from kfm_pipelines.care.rules import GeometryKind, Sensitivity
from kfm_pipelines.declarations import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from kfm_pipelines.care.masks.types import Flags, Floats, Ints


@dataclass(frozen=True, slots=True)
class AnonymitySet:
    """The features of some records, and their coordinates numbered in the same way, unless all of them differ."""

    features: Features
    locations: Features | None = None

    def of(self, rows: "Ints | Flags") -> "AnonymitySet":
        return AnonymitySet(self.features.of(rows), self.locations and self.locations.of(rows))

    def meets_minimum_by(self, labels: "Ints", size: int, minimum: int) -> "Flags":
        """Whether the records of each label are enough."""
        enough = self.features.count_by(labels, size) >= minimum
        return enough if self.locations is None else enough & (self.locations.count_by(labels, size) >= minimum)


def build_anonymity_set(features: Features, longitudes: "Floats", latitudes: "Floats") -> AnonymitySet:
    import numpy as np

    spots = hash_coordinates(longitudes, latitudes)
    in_order = np.sort(spots)  # much quicker than numbering them
    if not (in_order[1:] == in_order[:-1]).any():
        return AnonymitySet(features)
    distinct, codes = np.unique(spots, return_inverse=True)
    return AnonymitySet(features, Features(codes, len(distinct), unique=False))


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
    def has_geometry(self) -> bool:
        return self.source.declared.geometry_column is not None

    def anonymity_set(self) -> AnonymitySet:
        places = self.source.places
        return build_anonymity_set(self.features, places.longitudes[self.rows], places.latitudes[self.rows])

    def empty(self) -> "Selection":
        return self.source.select(self.sensitivity, self.kind, self.rows[:0])


@dataclass(frozen=True, slots=True)
class CellCounts:
    """What became of the cells."""

    released: int = 0
    suppressed: int = 0  # lost, or counted together with others
    smallest: int | None = None  # features in the smallest released one, as far as the release tells


@dataclass(frozen=True, slots=True)
class TableFragment:
    """Rows to publish. The first three arrays have an item for each of them."""

    sensitivity: Sensitivity
    place: "Ints"  # position in `shown`
    records: "Ints"  # how many records it stands for
    sample: "Ints"  # a record whose values it carries, or NO_SAMPLE
    carried_columns: frozenset[str]  # the columns it carries; others are null
    released_places: ReleasedPlaces
    # Which record went into which row, as positions in the table and in this piece.
    source_rows: "Ints"
    target_rows: "Ints"
    cell_counts: CellCounts = CellCounts()
    distances: "Floats | None" = None  # how far each feature was moved


def one_row_per_record(
    selection: Selection, place: "Ints", released_places: ReleasedPlaces, cell_counts: CellCounts | None = None
) -> TableFragment:
    """A piece in which every record stays a row, with all that is kept of it."""
    import numpy as np

    rows = selection.rows
    return TableFragment(
        sensitivity=selection.sensitivity,
        place=place,
        records=np.ones(len(rows), np.int64),
        sample=rows,
        carried_columns=frozenset(selection.source.policy.columns.keep),
        released_places=released_places,
        source_rows=rows,
        target_rows=np.arange(len(rows)),
        cell_counts=cell_counts or CellCounts(),
    )


def count_cells(counts: "Ints", released: "Flags") -> CellCounts:
    number = int(released.sum())
    return CellCounts(number, len(counts) - number, int(counts[released].min()) if number else None)


def assemble_release(
    source: Source, published: Table, fragments: Sequence[TableFragment]
) -> "tuple[pa.Table, pa.Table]":
    """The table in the form of `published`, and which record of the source went into which of its rows."""
    import numpy as np
    import pyarrow as pa

    places, place = _collect_places(source, fragments)
    records = _concatenate([piece.records for piece in fragments])
    kept = {name: _kept_values(source, name, fragments) for name in source.policy.columns.keep}
    order = _sort_rows(places, place, records, [kept[name] for name in _column_names(published) if name in kept])
    columns = {RECORD: pa.array(np.arange(1, len(order) + 1)), RECORDS: pa.array(records[order])}
    columns |= {name: places.column(name).take(place[order]) for name in places.column_names}
    columns |= {name: column.take(order) for name, column in kept.items()}
    # One array for all of them: a text for each row and column would be most of the memory.
    wording = pa.repeat(pa.scalar(source.policy.wording, pa.string()), len(order))
    columns |= dict.fromkeys(source.policy.columns.withhold, wording)
    fields = [pa.field(one.name, columns[one.name].type, nullable=one.nullable) for one in published.columns]
    table = pa.Table.from_arrays([columns[one.name] for one in published.columns], schema=pa.schema(fields))
    return table, _build_crosswalk(fragments, order)


def _column_names(table: Table) -> list[str]:
    return [column.name for column in table.columns]


def _concatenate(arrays: "Iterable[Ints]") -> "Ints":
    import numpy as np

    return np.concatenate([np.empty(0, np.int64), *arrays])


def _collect_places(source: Source, fragments: Sequence[TableFragment]) -> "tuple[pa.Table, Ints]":
    """Every place of every piece, in the order it is sorted by, and for each row the position of its place."""
    import pyarrow as pa

    tables = [_place_columns(source, piece) for piece in fragments]
    sizes = [table.num_rows for table in tables]
    place = _concatenate(piece.place + sum(sizes[:number]) for number, piece in enumerate(fragments))
    return pa.concat_tables(tables).combine_chunks(), place


def _place_columns(source: Source, fragment: TableFragment) -> "pa.Table":
    import pyarrow as pa

    shown, declared = fragment.released_places, source.declared
    columns: dict[str, pa.Array] = {}
    if source.policy.class_column is not None:
        columns[source.policy.class_column] = pa.repeat(pa.scalar(fragment.sensitivity, pa.string()), len(shown.cells))
    columns[CELL] = pa.array(names_of(shown.cells), pa.string())
    if declared.longitude_column is not None and declared.latitude_column is not None:
        columns[declared.longitude_column] = pa.array(shown.longitudes, from_pandas=True)
        columns[declared.latitude_column] = pa.array(shown.latitudes, from_pandas=True)
    if declared.geometry_column is not None:
        columns[declared.geometry_column] = pa.array(shown.geometries, pa.binary())
    columns[UNCERTAINTY] = pa.array(shown.uncertainties, from_pandas=True)
    return pa.table(columns)


def _kept_values(source: Source, name: str, fragments: Sequence[TableFragment]) -> "pa.Array":
    """The values of a kept column; null in the rows that do not carry it."""
    import numpy as np
    import pyarrow as pa

    sample = _concatenate(
        piece.sample if name in piece.carried_columns else np.full(len(piece.sample), NO_SAMPLE) for piece in fragments
    )
    return source.table.column(name).combine_chunks().take(pa.array(sample, mask=sample == NO_SAMPLE))


def _sort_rows(places: "pa.Table", place: "Ints", records: "Ints", kept: "Sequence[pa.Array]") -> "Ints":
    """Positions of the rows, sorted by what is published of them."""
    import pyarrow as pa

    where = joint_key([rank_column(column) for column in places.columns], places.num_rows)
    by_place = rank_column(pa.array(where))
    columns = [by_place.take(place), rank_column(pa.array(records)), *map(rank_column, kept)]
    return stable_argsort(joint_key(columns, len(place)))


def _build_crosswalk(fragments: Sequence[TableFragment], order: "Ints") -> "pa.Table":
    import numpy as np
    import pyarrow as pa

    sizes = [len(piece.place) for piece in fragments]
    row = _concatenate(piece.source_rows for piece in fragments)
    went_to = _concatenate(piece.target_rows + sum(sizes[:number]) for number, piece in enumerate(fragments))
    record_of = np.empty(len(order), np.int64)
    record_of[order] = np.arange(1, len(order) + 1)
    return pa.table({"row": row, "record": record_of[went_to]})
