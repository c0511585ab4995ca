"""Classes and features of records. Records with the same stable id are one feature and count once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kfm_pipelines.care.masks.order import joint_key, rank_column
from kfm_pipelines.care.masks.types import Flags, Ints, format_record_count
from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.rules import Sensitivity
from kfm_pipelines.errors import PolicyRefused


def read_classes(table: pa.Table, policy: Policy) -> dict[Sensitivity, Flags]:
    """Flags the records of each class of the policy; every record is in exactly one."""
    if policy.sensitivity is not None and policy.sensitivity != "undecided":
        return {policy.sensitivity: np.ones(table.num_rows, np.bool_)}
    column = table.column(str(policy.class_column))
    if column.null_count:
        raise PolicyRefused(f"{format_record_count(column.null_count)} no class in {policy.class_column!r}")
    found = rank_column(column)
    number_of = {value: number for number, value in enumerate(found.values.to_pylist())}
    classes: dict[Sensitivity, Flags] = {name: found.ranks == number_of.get(name, -1) for name in policy.classes}
    if unknown := table.num_rows - sum(int(of_it.sum()) for of_it in classes.values()):
        raise PolicyRefused(
            f"{format_record_count(unknown)} a class in {policy.class_column!r} "
            f"that policy {policy.name} has no rules for"
        )
    return classes


@dataclass(frozen=True, slots=True)
class Features:
    codes: Ints
    size: int  # exceeds every number
    unique: bool  # no feature has two records, which makes counting fast

    def of(self, rows: Ints | Flags) -> "Features":
        return Features(self.codes[rows], self.size, self.unique)

    def count(self) -> int:
        return len(self.codes) if self.unique else len(np.unique(self.codes))

    def count_by(self, labels: Ints, size: int) -> Ints:
        if self.unique:
            return np.bincount(labels, minlength=size)
        pairs = np.unique(labels * self.size + self.codes)
        return np.bincount(pairs // self.size, minlength=size)


def read_features(table: pa.Table, stable_id: Sequence[str]) -> Features:
    """Raises PolicyRefused when an id is missing: features could be neither counted nor displaced consistently."""
    for name in stable_id:
        if nulls := table.column(name).null_count:
            raise PolicyRefused(f"{format_record_count(nulls)} no value in {name!r}, which identifies the feature")
    if any(_is_strictly_ascending(table.column(name)) for name in stable_id):
        return Features(np.arange(table.num_rows), max(table.num_rows, 1), unique=True)
    codes, size = _number_features(table, stable_id)
    return Features(codes, size, unique=bool((np.bincount(codes) <= 1).all()))


def _number_features(table: pa.Table, stable_id: Sequence[str]) -> tuple[Ints, int]:
    if len(stable_id) == 1:  # unordered, which avoids sorting a million texts
        encoded = table.column(stable_id[0]).combine_chunks().dictionary_encode()
        return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
    key = joint_key([rank_column(table.column(name)) for name in stable_id], table.num_rows)
    present, codes = np.unique(key, return_inverse=True)
    return codes, len(present)


def _is_strictly_ascending(column: pa.ChunkedArray) -> bool:
    """True of a register sorted by its ids. Much faster to check than which values are equal."""
    values = column.combine_chunks()
    return bool(pc.all(pc.less(values[:-1], values[1:])).as_py())
