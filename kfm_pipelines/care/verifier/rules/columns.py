"""Rules on columns: their names and types, the wording of withheld ones, and the order of rows."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kfm_pipelines.care.verifier.case import Case
from kfm_pipelines.care.verifier.evidence import Breach
from kfm_pipelines.care.verifier.origins import UNKNOWN
from kfm_pipelines.care.verifier.types import Flags
from kfm_pipelines.declarations.tables import arrow_type
from kfm_pipelines.parquet.distinct_values import NO_VALUE, EncodedColumn


def allowed_columns(case: Case) -> dict[str, pa.DataType]:
    """Returns the publishable columns and their types, derived from the declaration alone."""
    declared = case.dataset.table
    main = {declared.longitude_column, declared.latitude_column, declared.geometry_column} - {None}
    kept = {case.policy.class_column, *case.policy.columns.keep} - set(declared.place_columns)
    same = {column.name: arrow_type(column.type) for column in declared.columns if column.name in main | kept}
    withheld = {column.name: pa.string() for column in declared.columns if column.name in case.policy.columns.withhold}
    own = {"record": pa.int64(), "cell": pa.string(), "uncertainty_m": pa.float64(), "records": pa.int64()}
    return {**same, **withheld, **own}


def columns_are_allowed(case: Case) -> Iterator[Breach]:
    """Does not report the names of undeclared columns: a name can be a value."""
    names = case.published.column_names
    undeclared = [name for name in names if name not in allowed_columns(case)]
    if undeclared or len(set(names)) != len(names):
        measured = f"{len(undeclared) or 'the same'} more"
        yield Breach("columns-allowed", "data", "only columns that the policy lets out", measured)
    for name in allowed_columns(case):
        if name not in names:
            yield Breach("columns-allowed", name, "a column", "none")


def types_are_declared(case: Case) -> Iterator[Breach]:
    for name, expected in allowed_columns(case).items():
        if case.schema.field(name).type != expected:
            yield Breach("column-types", name, str(expected), "another type")


def withheld_columns_use_wording(case: Case) -> Iterator[Breach]:
    for name in case.policy.columns.withhold:
        texts = case.encoded(name)
        right = texts.rows_with(pc.equal(texts.distinct, case.policy.wording).to_numpy(zero_copy_only=False))
        if wrong := int((~right).sum()):
            yield Breach("withheld-wording", name, "the policy's wording in every row", f"{wrong} rows without")


def classes_are_known(case: Case) -> Iterator[Breach]:
    unknown = int((case.record_classes == UNKNOWN).sum())
    if unknown:
        yield Breach("class-known", "data", "only classes the policy has rules for", f"{unknown} other rows")


def records_are_numbered(case: Case) -> Iterator[Breach]:
    numbers = case.published.column("record").to_numpy()
    wrong = int((numbers != np.arange(1, len(numbers) + 1)).sum())
    if wrong:
        yield Breach("record-numbers", "record", "1, 2, 3 and so on", f"{wrong} rows with another number")


def rows_are_in_order(case: Case) -> Iterator[Breach]:
    """Sorting by all published columns leaves no order that could reveal anything."""
    lead = [case.policy.class_column, "cell", case.longitude, case.latitude]
    names = [name for name in lead if name is not None and name in case.published.column_names]
    names += [name for name in case.published.column_names if name not in (*names, "record")]
    before = count_unsorted_rows(_sortable_column(case, name) for name in names)
    if before:
        yield Breach(
            "row-order", "data", "rows sorted by what is published of them", f"{before} rows before their turn"
        )


def count_unsorted_rows(columns: Iterable[pa.Array | pa.ChunkedArray]) -> int:
    """Counts rows followed by one that sorts before them."""
    alike: Flags | None = None
    back = 0
    for column in columns:
        same, less = _compare_with_next(column)
        alike = np.ones(len(same), np.bool_) if alike is None else alike
        back += int((alike & ~same & ~less).sum())
        alike &= same
    return back


def _compare_with_next(column: pa.Array | pa.ChunkedArray) -> tuple[Flags, Flags]:
    """Flags for each row but the last whether the next is equal, and whether it is greater. NaN and null sort last."""
    here, there = column.slice(0, max(len(column) - 1, 0)), column.slice(1)
    same, less = pc.equal(here, there).fill_null(False), pc.less(here, there).fill_null(False)
    for is_last in (pc.is_nan, pc.is_null) if pa.types.is_floating(column.type) else (pc.is_null,):
        one, other = is_last(here).fill_null(False), is_last(there).fill_null(False)
        same = pc.or_(same, pc.and_(one, other))
        less = pc.or_(less, pc.and_(pc.and_not(other, one), here.is_valid()))
    return same.to_numpy(zero_copy_only=False), less.to_numpy(zero_copy_only=False)


def _sortable_column(case: Case, name: str) -> pa.Array | pa.ChunkedArray:
    column = case.published.column(name)
    return _text_ranks(case.encoded(name)) if pa.types.is_dictionary(column.type) else column


def _text_ranks(texts: EncodedColumn) -> pa.Array:
    """Returns numbers that sort as the texts do."""
    ranks = np.empty(len(texts.distinct) + 1, np.int32)
    ranks[pc.sort_indices(texts.distinct).to_numpy()] = np.arange(len(texts.distinct))
    return pa.array(ranks[texts.codes], mask=texts.codes == NO_VALUE)


NAME_RULES = (columns_are_allowed,)
TYPE_RULES = (types_are_declared,)
RULES = (withheld_columns_use_wording, classes_are_known, records_are_numbered, rows_are_in_order)
