"""Columns, by themselves: which there are, of which type, what stands in withheld ones, and the order of the rows."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm_pipelines.arrow_schemas import arrow_type
from kfm_pipelines.care.verifier.case import Case
from kfm_pipelines.care.verifier.classes import UNKNOWN
from kfm_pipelines.care.verifier.evidence import Breach

if TYPE_CHECKING:
    import pyarrow as pa


def allowed(case: Case) -> "dict[str, pa.DataType]":
    """All that the policy lets out, and its types; worked out here from the declaration and nothing else."""
    import pyarrow as pa

    declared = case.dataset.table
    main = {declared.longitude_column, declared.latitude_column, declared.geometry_column} - {None}
    kept = {case.policy.class_column, *case.policy.columns.keep} - set(declared.place_columns)
    same = {column.name: arrow_type(column.type) for column in declared.columns if column.name in main | kept}
    withheld = {column.name: pa.string() for column in declared.columns if column.name in case.policy.columns.withhold}
    own = {"record": pa.int64(), "cell": pa.string(), "uncertainty_m": pa.float64(), "records": pa.int64()}
    return {**same, **withheld, **own}


def columns_are_allowed(case: Case) -> Iterator[Breach]:
    """The names of undeclared columns stay unsaid: a name can be a value."""
    names = case.published.column_names
    undeclared = [name for name in names if name not in allowed(case)]
    if undeclared or len(set(names)) != len(names):
        measured = f"{len(undeclared) or 'the same'} more"
        yield Breach("columns-allowed", "data", "only columns that the policy lets out", measured)
    for name in allowed(case):
        if name not in names:
            yield Breach("columns-allowed", name, "a column", "none")


def types_are_declared(case: Case) -> Iterator[Breach]:
    for name, expected in allowed(case).items():
        if case.published.schema.field(name).type != expected:
            yield Breach("column-types", name, str(expected), "another type")


def withheld_is_worded(case: Case) -> Iterator[Breach]:
    import pyarrow.compute as pc

    for name in case.policy.columns.withhold:
        same = pc.equal(case.published.column(name), case.policy.wording)
        if wrong := case.published.num_rows - int(pc.sum(same).as_py() or 0):
            yield Breach("withheld-wording", name, "the policy's wording in every row", f"{wrong} rows without")


def classes_are_known(case: Case) -> Iterator[Breach]:
    unknown = int((case.record_classes == UNKNOWN).sum())
    if unknown:
        yield Breach("class-known", "data", "only classes the policy has rules for", f"{unknown} other rows")


def records_are_numbered(case: Case) -> Iterator[Breach]:
    import numpy as np

    numbers = case.published.column("record").to_numpy()
    wrong = int((numbers != np.arange(1, len(numbers) + 1)).sum())
    if wrong:
        yield Breach("record-numbers", "record", "1, 2, 3 and so on", f"{wrong} rows with another number")


def rows_are_in_order(case: Case) -> Iterator[Breach]:
    """By published values alone, down to the last column: where two rows look alike, neither order says anything."""
    import numpy as np
    import pyarrow.compute as pc

    lead = [case.policy.class_column, "cell", case.longitude, case.latitude]
    names = [name for name in lead if name in case.published.column_names]
    names += [name for name in case.published.column_names if name not in (*names, "record")]
    keys = [(name, "ascending", "at_end") for name in names]
    order = pc.sort_indices(case.published, sort_keys=keys).to_numpy()
    moved = int((order != np.arange(len(order))).sum())
    if moved:
        yield Breach("row-order", "data", "rows sorted by what is published of them", f"{moved} rows elsewhere")


ALLOWED = (columns_are_allowed,)
TYPED = (types_are_declared,)
RULES = (
    withheld_is_worded,
    classes_are_known,
    records_are_numbered,
    rows_are_in_order,
)
