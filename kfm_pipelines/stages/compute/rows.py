"""The rows of a key's table: their order, duplicates, and rows that conflict because they have the same primary key."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.tables import Order, declared_schema

if TYPE_CHECKING:
    import pyarrow as pa


def arrange_rows(table: "pa.Table", declaration: Table) -> "tuple[pa.Table, int]":
    """Sorts by primary key, time and then all other columns, drops duplicate rows and settles conflicts. Returns how
    many duplicates were dropped, too. A table with a column that is not as declared is left alone: not every type can
    be compared, and the gate refuses it anyway."""
    declared = declared_schema(declaration)
    as_declared = all(
        field.name in declared.names and declared.field(field.name).type == field.type for field in table.schema
    )
    if not as_declared or table.num_rows == 0:
        return table, 0
    rows = _drop_duplicate_rows(_sort(_normalise_floats(table), declaration))
    duplicates = table.num_rows - rows.num_rows
    if declaration.on_conflict != "refuse":
        rows = _sort(settle_conflicts(rows, declaration), declaration)
    return rows, duplicates


def settle_conflicts(rows: "pa.Table", declaration: Table) -> "pa.Table":
    """Keeps the last row of each primary key in the declared order, or numbers all of them. Rows that it does not tell
    apart are compared by their other columns, so that the order of arrival does not matter."""
    import pyarrow as pa
    import pyarrow.compute as pc

    identity = declaration.identity_columns
    if not {*identity, *(order.column for order in declaration.order_by)} <= set(rows.column_names):
        return rows  # the schema gate names what is missing
    ranks = {f"rank {place}": _rank(rows, order) for place, order in enumerate(declaration.order_by)}
    compared = {**{name: rows.column(name) for name in rows.column_names}, **ranks}
    keys = [(name, "ascending") for name in dict.fromkeys((*identity, *ranks, *rows.column_names))]
    in_order = rows.take(pc.sort_indices(pa.table(compared), sort_keys=keys))
    is_first = pa.concat_arrays([pa.array([True]), differs_from_above(in_order.select(identity))])
    if declaration.on_conflict == "newest":
        return in_order.filter(pa.concat_arrays([is_first.slice(1), pa.array([True])]))
    places = pa.array(range(len(rows)), pa.int64())
    first_of_key = pc.fill_null_forward(pc.if_else(is_first, places, None))
    return _set_revision(in_order, pc.add(pc.subtract(places, first_of_key), 1), declaration)


def _rank(rows: "pa.Table", order: Order) -> "pa.Array":
    """Returns numbers in the declared order; null, and a value without a rank, come first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = rows.column(order.column).combine_chunks()
    if order.ranks is None:
        return pc.rank(values, null_placement="at_start", tiebreaker="dense")
    if order.separator is not None:
        distinct = values.unique()
        ranks = [_rank_of_parts(value, order.ranks, order.separator) for value in distinct.to_pylist()]
        return pa.array(ranks, pa.int64()).take(pc.index_in(values, distinct))
    return pc.fill_null(pc.index_in(values, pa.array(order.ranks, pa.string())), -1)


def _rank_of_parts(value: str | None, ranks: Sequence[str], separator: str) -> int:
    """Ranks by the earliest part first, so that what is only partly approved comes before what is wholly so."""
    found = [ranks.index(part) for part in (value or "").split(separator) if part in ranks]
    return min(found) * len(ranks) + max(found) if found else -1


def _set_revision(rows: "pa.Table", numbers: "pa.Array", declaration: Table) -> "pa.Table":
    declared = declared_schema(declaration)
    name = str(declaration.revision_column)
    if name in rows.column_names:
        rows = rows.drop_columns([name])
    place = sum(one in rows.column_names for one in declared.names[: declared.get_field_index(name)])
    return rows.add_column(place, declared.field(name), numbers)


def _sort(rows: "pa.Table", declaration: Table) -> "pa.Table":
    """Sorts by the primary key, its time last, and then by all other columns."""
    identifiers = [name for name in declaration.primary_key if name != declaration.time_column]
    times = [declaration.time_column] if declaration.time_column in declaration.primary_key else []
    order = dict.fromkeys(name for name in (*identifiers, *times, *rows.column_names) if name in rows.column_names)
    return rows.sort_by([(name, "ascending") for name in order])


def _normalise_floats(table: "pa.Table") -> "pa.Table":
    """Keeps one zero and one NaN, so that equal values have equal bits and their order does not matter."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            without_minus = pc.add(table.column(place), 0.0)
            table = table.set_column(place, field, pc.if_else(pc.is_nan(without_minus), float("nan"), without_minus))
    return table


def _drop_duplicate_rows(sorted_table: "pa.Table") -> "pa.Table":
    """Drops each row that equals the one before it."""
    import pyarrow as pa

    if sorted_table.num_rows < 2:
        return sorted_table
    return sorted_table.filter(pa.concat_arrays([pa.array([True]), differs_from_above(sorted_table)]))


def differs_from_above(rows: "pa.Table") -> "pa.Array":
    """Returns for each row but the first whether it differs from the one above it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    differs: pa.Array | None = None
    for column in rows.columns:
        values = column.combine_chunks()
        above, below = values.slice(0, len(values) - 1), values.slice(1)
        unequal = pc.fill_null(pc.not_equal(above, below), False)
        if pa.types.is_floating(values.type):
            both_nan = pc.and_(pc.is_nan(above), pc.is_nan(below))
            unequal = pc.and_not(unequal, pc.fill_null(both_nan, False))
        one_null = pc.not_equal(pc.is_null(above), pc.is_null(below))
        changed = pc.or_(unequal, one_null)
        differs = changed if differs is None else pc.or_(differs, changed)
    return differs
