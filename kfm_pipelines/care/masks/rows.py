"""The published table and the crosswalk, put together from pieces. The order of rows follows from what is published."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.cells import names_of
from kfm_pipelines.care.masks.order import in_order, joint_key, ranked
from kfm_pipelines.care.masks.pieces import NO_SAMPLE, Piece, Source
from kfm_pipelines.care.published import CELL, RECORD, RECORDS, UNCERTAINTY
from kfm_pipelines.declarations import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from kfm_pipelines.care.masks.arrays import Ints


def put_together(source: Source, published: Table, pieces: Sequence[Piece]) -> "tuple[pa.Table, pa.Table]":
    """The table in the form of `published`, and which record of the source went into which of its rows."""
    import numpy as np
    import pyarrow as pa

    places, place = _places(source, pieces)
    records = _end_to_end([piece.records for piece in pieces])
    kept = {name: _carried(source, name, pieces) for name in source.policy.columns.keep}
    order = _order(places, place, records, [kept[name] for name in _names(published) if name in kept])
    columns = {RECORD: pa.array(np.arange(1, len(order) + 1)), RECORDS: pa.array(records[order])}
    columns |= {name: places.column(name).take(place[order]) for name in places.column_names}
    columns |= {name: column.take(order) for name, column in kept.items()}
    # One array for all of them: a text for each row and column would be most of the memory.
    wording = pa.repeat(pa.scalar(source.policy.wording, pa.string()), len(order))
    columns |= dict.fromkeys(source.policy.columns.withhold, wording)
    fields = [pa.field(one.name, columns[one.name].type, nullable=one.nullable) for one in published.columns]
    table = pa.Table.from_arrays([columns[one.name] for one in published.columns], schema=pa.schema(fields))
    return table, _crosswalk(pieces, order)


def _names(table: Table) -> list[str]:
    return [column.name for column in table.columns]


def _end_to_end(arrays: "Iterable[Ints]") -> "Ints":
    import numpy as np

    return np.concatenate([np.empty(0, np.int64), *arrays])


def _places(source: Source, pieces: Sequence[Piece]) -> "tuple[pa.Table, Ints]":
    """Every place of every piece, in the order it is sorted by, and for each row the position of its place."""
    import pyarrow as pa

    tables = [_place_columns(source, piece) for piece in pieces]
    sizes = [table.num_rows for table in tables]
    place = _end_to_end(piece.place + sum(sizes[:number]) for number, piece in enumerate(pieces))
    return pa.concat_tables(tables).combine_chunks(), place


def _place_columns(source: Source, piece: Piece) -> "pa.Table":
    import pyarrow as pa

    shown, declared = piece.shown, source.declared
    columns: dict[str, pa.Array] = {}
    if source.policy.class_column is not None:
        columns[source.policy.class_column] = pa.repeat(pa.scalar(piece.sensitivity, pa.string()), len(shown.cells))
    columns[CELL] = pa.array(names_of(shown.cells), pa.string())
    if declared.longitude_column is not None and declared.latitude_column is not None:
        columns[declared.longitude_column] = pa.array(shown.longitudes, from_pandas=True)
        columns[declared.latitude_column] = pa.array(shown.latitudes, from_pandas=True)
    if declared.geometry_column is not None:
        columns[declared.geometry_column] = pa.array(shown.geometries, pa.binary())
    columns[UNCERTAINTY] = pa.array(shown.uncertainties, from_pandas=True)
    return pa.table(columns)


def _carried(source: Source, name: str, pieces: Sequence[Piece]) -> "pa.Array":
    """The values of a kept column; null in the rows that do not carry it."""
    import numpy as np
    import pyarrow as pa

    sample = _end_to_end(
        piece.sample if name in piece.carries else np.full(len(piece.sample), NO_SAMPLE) for piece in pieces
    )
    return source.table.column(name).combine_chunks().take(pa.array(sample, mask=sample == NO_SAMPLE))


def _order(places: "pa.Table", place: "Ints", records: "Ints", kept: "Sequence[pa.Array]") -> "Ints":
    """Positions of the rows, sorted by what is published of them."""
    import pyarrow as pa

    where = joint_key([ranked(column) for column in places.columns], places.num_rows)
    by_place = ranked(pa.array(where))
    columns = [by_place.take(place), ranked(pa.array(records)), *map(ranked, kept)]
    return in_order(joint_key(columns, len(place)))


def _crosswalk(pieces: Sequence[Piece], order: "Ints") -> "pa.Table":
    import numpy as np
    import pyarrow as pa

    sizes = [len(piece.place) for piece in pieces]
    row = _end_to_end(piece.came_from for piece in pieces)
    went_to = _end_to_end(piece.went_to + sum(sizes[:number]) for number, piece in enumerate(pieces))
    record_of = np.empty(len(order), np.int64)
    record_of[order] = np.arange(1, len(order) + 1)
    return pa.table({"row": row, "record": record_of[went_to]})
