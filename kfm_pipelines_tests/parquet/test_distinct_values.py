"""Distinct texts of a column."""

import pyarrow as pa

from kfm_pipelines.parquet.distinct_values import encode_column


def test_duplicate_and_unused_dictionary_entries_are_removed() -> None:
    listed = pa.array(["a", "unused", "b", "a", "c"])
    column = pa.DictionaryArray.from_arrays(pa.array([3, 0, None, 2, 4], pa.int32()), listed)
    texts = encode_column(pa.chunked_array([column, column.slice(1, 3)]))
    assert sorted(texts.distinct.to_pylist()) == ["a", "b", "c"]
    names = [None if place < 0 else texts.distinct[place].as_py() for place in texts.codes.tolist()]
    assert names == ["a", "a", None, "b", "c", "a", None, "b"]
    assert texts.distinct_in(1, 4).to_pylist() == ["a", "b"]
