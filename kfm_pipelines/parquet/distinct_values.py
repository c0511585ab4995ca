"""Columns as their distinct values, and which of them each row has."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

NO_VALUE = -1
_SAMPLE_SIZE = 1024


@dataclass(frozen=True, eq=False)
class EncodedColumn:
    """The distinct texts or geometries of a column, and which of them each row has."""

    distinct: pa.Array
    codes: npt.NDArray[np.int32]  # NO_VALUE for null

    def rows_with(self, flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = np.append(flags, False)[self.codes]
        return found

    def distinct_in(self, start: int, stop: int) -> pa.Array:
        there = np.zeros(len(self.distinct) + 1, np.bool_)
        there[self.codes[start:stop]] = True
        return self.distinct.filter(pa.array(there[:NO_VALUE]))


def encode_column(column: pa.ChunkedArray) -> EncodedColumn:
    """Cleans up a file's own dictionary, which may hold duplicates and values that no row has."""
    flat = pa.concat_arrays(column.unify_dictionaries().chunks) if column.num_chunks else pa.array([], pa.string())
    if not pa.types.is_dictionary(flat.type):
        if _is_ordered(flat):
            return _encode_ordered(flat)
        encoded = flat.dictionary_encode()
        return EncodedColumn(encoded.dictionary, encoded.indices.fill_null(NO_VALUE).to_numpy())
    listed = flat.dictionary.dictionary_encode()
    known = listed.indices.to_numpy()
    which = np.append(known, NO_VALUE)[flat.indices.fill_null(NO_VALUE).to_numpy()]
    used = np.zeros(len(listed.dictionary) + 1, np.bool_)
    used[which] = True
    used[NO_VALUE] = False
    places = np.where(used, np.cumsum(used) - 1, NO_VALUE).astype(np.int32)
    return EncodedColumn(listed.dictionary.filter(pa.array(used[:NO_VALUE])), places[which])


def _is_ordered(values: pa.Array) -> bool:
    """Whether no value is null or less than the one before. Most columns that are not show it soon."""
    if len(values) < 2 or values.null_count:
        return False
    parts = (values.slice(0, _SAMPLE_SIZE), values)
    return all(pc.all(pc.less_equal(part.slice(0, len(part) - 1), part.slice(1))).as_py() for part in parts)


def _encode_ordered(values: pa.Array) -> EncodedColumn:
    """Equal values are neighbours here, so comparing those replaces hashing all."""
    first = np.ones(len(values), np.bool_)
    first[1:] = pc.not_equal(values.slice(0, len(values) - 1), values.slice(1)).to_numpy(zero_copy_only=False)
    return EncodedColumn(values.filter(pa.array(first)), np.cumsum(first, dtype=np.int32) - np.int32(1))
