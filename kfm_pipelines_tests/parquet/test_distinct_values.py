"""Distinct values of a column."""

import numpy as np
import pyarrow as pa
import pytest

from kfm_pipelines.parquet.distinct_values import EncodedColumn, encode_column


def decoded(column: EncodedColumn) -> list[object]:
    return [None if code < 0 else column.distinct[code].as_py() for code in column.codes.tolist()]


def test_duplicate_and_unused_dictionary_entries_are_removed() -> None:
    listed = pa.array(["a", "unused", "b", "a", "c"])
    column = pa.DictionaryArray.from_arrays(pa.array([3, 0, None, 2, 4], pa.int32()), listed)
    texts = encode_column(pa.chunked_array([column, column.slice(1, 3)]))
    assert sorted(texts.distinct.to_pylist()) == ["a", "b", "c"]
    assert decoded(texts) == ["a", "a", None, "b", "c", "a", None, "b"]
    assert texts.distinct_in(1, 4).to_pylist() == ["a", "b"]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_rows_have_the_same_code_when_their_values_are_equal(seed: int, ordered: bool) -> None:
    """Values in order are compared with their neighbours, others are hashed."""
    rng = np.random.default_rng(seed)
    texts = [*map(str, rng.integers(0, 40, int(rng.integers(0, 3000))))]
    values: list[str | None] = [*sorted(texts)] if ordered else [*texts, None, "0"]
    halves = [pa.array(values[: len(values) // 2], pa.string()), pa.array(values[len(values) // 2 :], pa.string())]
    column = encode_column(pa.chunked_array(halves))
    assert decoded(column) == values
    assert len(set(column.distinct.to_pylist())) == len(column.distinct) == len({*values} - {None})


def test_a_column_that_is_in_order_only_at_first_is_hashed() -> None:
    values = [f"{number:05}" for number in range(3000)] + ["00007", "00007"]
    column = encode_column(pa.chunked_array([values]))
    assert decoded(column) == values
    assert len(column.distinct) == 3000
