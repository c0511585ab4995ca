"""Distinct values and their counts, by sorting, which for millions of values is faster than hashing."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kfm_pipelines.care.verifier.types import Flags, Numbers


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the distinct values, sorted."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def without(values: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the values that are not among the others; both are sorted."""
    return values[~is_among(values, others)]


def is_among(values: npt.NDArray[Any], ordered: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    found: npt.NDArray[np.bool_] = ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
    return found


def count_distinct(groups: Numbers, features: Numbers, number: int) -> Numbers:
    """Returns the number of distinct features in each of `number` groups."""
    width = int(features.max(initial=0)) + 1
    pairs = distinct(groups.astype(np.int64) * width + features)  # one number sorts faster than two
    return np.bincount(pairs // width, minlength=number)


NO_TEXT = -1


@dataclass(frozen=True, eq=False)
class TextColumn:
    distinct: pa.Array
    codes: npt.NDArray[np.int32]  # NO_TEXT for null

    def rows_with(self, flags: Flags) -> Flags:
        found: Flags = np.append(flags, False)[self.codes]
        return found

    def distinct_in(self, start: int, stop: int) -> pa.Array:
        there = np.zeros(len(self.distinct) + 1, np.bool_)
        there[self.codes[start:stop]] = True
        return self.distinct.filter(pa.array(there[:NO_TEXT]))


def read_texts(column: pa.ChunkedArray) -> TextColumn:
    """Cleans up a file's own dictionary, which may hold duplicates and texts that no row has."""
    flat = pa.concat_arrays(column.unify_dictionaries().chunks) if column.num_chunks else pa.array([], pa.string())
    encoded = flat.dictionary_encode()
    if not pa.types.is_dictionary(flat.type):
        return TextColumn(encoded.dictionary, encoded.indices.fill_null(NO_TEXT).to_numpy())
    listed = encoded.dictionary.dictionary_encode()
    known = listed.indices.to_numpy()
    which = np.append(known, NO_TEXT)[encoded.indices.fill_null(NO_TEXT).to_numpy()]
    used = np.zeros(len(listed.dictionary) + 1, np.bool_)
    used[which] = True
    used[NO_TEXT] = False
    places = np.where(used, np.cumsum(used) - 1, NO_TEXT).astype(np.int32)
    return TextColumn(listed.dictionary.filter(pa.array(used[:NO_TEXT])), places[which])
