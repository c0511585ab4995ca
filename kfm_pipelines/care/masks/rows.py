"""Assembles the published table and the crosswalk from fragments. Published values alone decide the order of rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kfm_pipelines.care.masks.cells import names_of
from kfm_pipelines.care.masks.displacement import hash_coordinates
from kfm_pipelines.care.masks.features import Features
from kfm_pipelines.care.masks.order import joint_key, rank_column, stable_argsort
from kfm_pipelines.care.masks.places import Places
from kfm_pipelines.care.masks.released_places import ReleasedPlaces
from kfm_pipelines.care.masks.types import Flags, Floats, Ints
from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.published_table import CELL, RECORD, RECORDS, UNCERTAINTY
from kfm_pipelines.care.rules import GeometryKind, Sensitivity
from kfm_pipelines.declarations import Table


@dataclass(frozen=True, slots=True)
class AnonymitySet:
    """The features of some records, and their coordinates numbered alike unless all coordinates differ."""

    features: Features
    locations: Features | None = None

    def of(self, rows: Ints | Flags) -> "AnonymitySet":
        return AnonymitySet(self.features.of(rows), self.locations and self.locations.of(rows))

    def meets_minimum_by(self, labels: Ints, size: int, minimum: int) -> Flags:
        enough = self.features.count_by(labels, size) >= minimum
        return enough if self.locations is None else enough & (self.locations.count_by(labels, size) >= minimum)


NO_SAMPLE = -1


@dataclass(frozen=True, slots=True)
class Source:
    table: pa.Table
    declared: Table
    policy: Policy
    secret: bytes
    classes: dict[Sensitivity, Flags]  # flags for each class
    features: Features
    places: Places

    def select(self, sensitivity: Sensitivity, kind: GeometryKind, rows: Ints) -> "Selection":
        return Selection(self, sensitivity, kind, rows, self.features.of(rows))


@dataclass(frozen=True, slots=True)
class Selection:
    """The records of one class and kind of geometry."""

    source: Source
    sensitivity: Sensitivity
    kind: GeometryKind
    rows: Ints  # positions in the table
    features: Features

    @property
    def minimum(self) -> int:
        return self.source.policy.minimum_count

    @property
    def has_geometry(self) -> bool:
        return self.source.declared.geometry_column is not None

    def anonymity_set(self) -> AnonymitySet:
        places = self.source.places
        spots = hash_coordinates(places.longitudes[self.rows], places.latitudes[self.rows])
        in_order = np.sort(spots)  # much faster than numbering them
        if not (in_order[1:] == in_order[:-1]).any():
            return AnonymitySet(self.features)
        distinct, codes = np.unique(spots, return_inverse=True)
        return AnonymitySet(self.features, Features(codes, len(distinct), unique=False))

    def empty(self) -> "Selection":
        return self.source.select(self.sensitivity, self.kind, self.rows[:0])


@dataclass(frozen=True, slots=True)
class CellCounts:
    released: int = 0
    suppressed: int = 0  # dropped, or counted together with others
    smallest: int | None = None  # features in the smallest released cell, as published


@dataclass(frozen=True, slots=True)
class TableFragment:
    """Rows to publish. `place`, `records` and `sample` have one item per row."""

    sensitivity: Sensitivity
    place: Ints  # position in `released_places`
    records: Ints  # how many records the row stands for
    sample: Ints  # a record whose values the row carries, or NO_SAMPLE
    carried_columns: frozenset[str]  # other columns are null
    released_places: ReleasedPlaces
    # Which record went into which row, as positions in the table and in this fragment.
    source_rows: Ints
    target_rows: Ints
    cell_counts: CellCounts = CellCounts()
    distances: Floats | None = None  # metres each feature was moved


def one_row_per_record(
    selection: Selection, place: Ints, released_places: ReleasedPlaces, cell_counts: CellCounts | None = None
) -> TableFragment:
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


def count_cells(counts: Ints, released: Flags) -> CellCounts:
    number = int(released.sum())
    return CellCounts(number, len(counts) - number, int(counts[released].min()) if number else None)


def assemble_release(source: Source, published: Table, fragments: Sequence[TableFragment]) -> tuple[pa.Table, pa.Table]:
    """Returns the table in the form of `published`, and the crosswalk from source rows to its records."""
    places, place = _collect_places(source, fragments)
    records = _concatenate([fragment.records for fragment in fragments])
    kept = {name: _kept_values(source, name, fragments) for name in source.policy.columns.keep}
    order = _sort_rows(places, place, records, [kept[one.name] for one in published.columns if one.name in kept])
    columns = {RECORD: pa.array(np.arange(1, len(order) + 1)), RECORDS: pa.array(records[order])}
    columns |= {name: places.column(name).take(place[order]) for name in places.column_names}
    columns |= {name: column.take(order) for name, column in kept.items()}
    # One shared array: a text for each row and column would take most of the memory.
    wording = pa.repeat(pa.scalar(source.policy.wording, pa.string()), len(order))
    columns |= dict.fromkeys(source.policy.columns.withhold, wording)
    fields = [pa.field(one.name, columns[one.name].type, nullable=one.nullable) for one in published.columns]
    table = pa.Table.from_arrays([columns[one.name] for one in published.columns], schema=pa.schema(fields))
    return table, _build_crosswalk(fragments, order)


def _concatenate(arrays: Iterable[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *arrays])


def _collect_places(source: Source, fragments: Sequence[TableFragment]) -> tuple[pa.Table, Ints]:
    """Returns every place of every fragment, its columns in sort order, and the position of each row's place."""
    tables = [_place_columns(source, fragment) for fragment in fragments]
    sizes = [table.num_rows for table in tables]
    place = _concatenate(fragment.place + sum(sizes[:number]) for number, fragment in enumerate(fragments))
    return pa.concat_tables(tables).combine_chunks(), place


def _place_columns(source: Source, fragment: TableFragment) -> pa.Table:
    released, declared = fragment.released_places, source.declared
    columns: dict[str, pa.Array] = {}
    if source.policy.class_column is not None:
        columns[source.policy.class_column] = pa.repeat(
            pa.scalar(fragment.sensitivity, pa.string()), len(released.cells)
        )
    columns[CELL] = pa.array(names_of(released.cells), pa.string())
    if declared.longitude_column is not None and declared.latitude_column is not None:
        columns[declared.longitude_column] = pa.array(released.longitudes, from_pandas=True)
        columns[declared.latitude_column] = pa.array(released.latitudes, from_pandas=True)
    if declared.geometry_column is not None:
        columns[declared.geometry_column] = pa.array(released.geometries, pa.binary())
    columns[UNCERTAINTY] = pa.array(released.uncertainties, from_pandas=True)
    return pa.table(columns)


def _kept_values(source: Source, name: str, fragments: Sequence[TableFragment]) -> pa.Array:
    """Returns a kept column, null in rows that do not carry it."""
    sample = _concatenate(
        fragment.sample if name in fragment.carried_columns else np.full(len(fragment.sample), NO_SAMPLE)
        for fragment in fragments
    )
    return source.table.column(name).combine_chunks().take(pa.array(sample, mask=sample == NO_SAMPLE))


def _sort_rows(places: pa.Table, place: Ints, records: Ints, kept: Sequence[pa.Array]) -> Ints:
    where = joint_key([rank_column(column) for column in places.columns], places.num_rows)
    by_place = rank_column(pa.array(where))
    columns = [by_place.take(place), rank_column(pa.array(records)), *map(rank_column, kept)]
    return stable_argsort(joint_key(columns, len(place)))


def _build_crosswalk(fragments: Sequence[TableFragment], order: Ints) -> pa.Table:
    sizes = [len(fragment.place) for fragment in fragments]
    row = _concatenate(fragment.source_rows for fragment in fragments)
    went_to = _concatenate(fragment.target_rows + sum(sizes[:number]) for number, fragment in enumerate(fragments))
    record_of = np.empty(len(order), np.int64)
    record_of[order] = np.arange(1, len(order) + 1)
    return pa.table({"row": row, "record": record_of[went_to]})
