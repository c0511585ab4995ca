"""Rows are ordered by value, column by column, with nulls last."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kfm_pipelines.care.masks.order import joint_key, rank_column, stable_argsort

_VALUES = st.one_of(st.none(), st.integers(-3, 3))


@given(st.lists(st.tuples(_VALUES, _VALUES, _VALUES)))
def test_rows_are_ordered_by_the_first_column_then_by_the_next(rows: list[tuple[int | None, ...]]) -> None:
    columns = [rank_column(pa.array([row[number] for row in rows], pa.int64())) for number in range(3)]
    order = stable_argsort(joint_key(columns, len(rows))).tolist()
    wanted = sorted(range(len(rows)), key=lambda row: [(value is None, value or 0) for value in rows[row]])
    assert order == wanted


def test_rows_are_ordered_when_the_joint_key_would_overflow() -> None:
    rng = np.random.default_rng(1)
    columns = [rng.integers(0, many, 40_000) for many in (3, 6, 50_000, 50_000, 50_000, 50_000, 6)]
    columns.insert(2, columns[1])
    for some in (columns, columns[:5]):  # overflow on the way, and only at the end
        order = stable_argsort(joint_key([rank_column(pa.array(column)) for column in some], 40_000))
        assert (order == np.lexsort(some[::-1])).all()
