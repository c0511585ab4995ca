"""Which feature each record is of. Records with the same stable id are one feature, and count once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.order import joint_key, rank_column
from kfm_pipelines.care.masks.types import format_record_count
from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.rules import Sensitivity
from kfm_pipelines.errors import PolicyRefused

if TYPE_CHECKING:
    import pyarrow as pa

    from kfm_pipelines.care.masks.types import Flags, Ints


def read_classes(table: "pa.Table", policy: Policy) -> "dict[Sensitivity, Flags]":
    """For each class of the policy, which records are of it. Together they are all."""
    import numpy as np

    if policy.sensitivity is not None:
        return {policy.sensitivity: np.ones(table.num_rows, np.bool_)}
    column = table.column(str(policy.class_column))
    if column.null_count:
        raise PolicyRefused(f"{format_record_count(column.null_count)} no class in {policy.class_column!r}")
    found = rank_column(column)
    number_of = {value: number for number, value in enumerate(found.values.to_pylist())}
    classes: dict[Sensitivity, Flags] = {name: found.ranks == number_of.get(name, -1) for name in policy.classes}
    if unknown := table.num_rows - sum(int(of_it.sum()) for of_it in classes.values()):
        raise PolicyRefused(
            f"{format_record_count(unknown)} a class in {policy.class_column!r} that policy {policy.name} has no rules for"
        )
    return classes


@dataclass(frozen=True, slots=True)
class Features:
    """The number of the feature of each of some records."""

    codes: "Ints"
    size: int  # one more than the highest number
    unique: bool  # no feature has more than one record, which makes counting quick

    def of(self, rows: "Ints | Flags") -> "Features":
        return Features(self.codes[rows], self.size, self.unique)

    def count(self) -> int:
        import numpy as np

        return len(self.codes) if self.unique else len(np.unique(self.codes))

    def count_by(self, labels: "Ints", size: int) -> "Ints":
        """How many distinct features the records of each label have."""
        import numpy as np

        if self.unique:
            return np.bincount(labels, minlength=size)
        pairs = np.unique(labels * self.size + self.codes)
        return np.bincount(pairs // self.size, minlength=size)


def read_features(table: "pa.Table", stable_id: Sequence[str]) -> Features:
    """PolicyRefused when an id is missing: nobody could tell how many features there are, or move one twice alike."""
    import numpy as np

    for name in stable_id:
        if nulls := table.column(name).null_count:
            raise PolicyRefused(
                f"{format_record_count(nulls)} no value in {name!r}, which says what feature a record is of"
            )
    if any(_is_strictly_ascending(table.column(name)) for name in stable_id):
        return Features(np.arange(table.num_rows), max(table.num_rows, 1), unique=True)
    codes, size = _number_features(table, stable_id)
    return Features(codes, size, unique=bool((np.bincount(codes) <= 1).all()))


def _number_features(table: "pa.Table", stable_id: Sequence[str]) -> "tuple[Ints, int]":
    import numpy as np

    if len(stable_id) == 1:  # in no order, which spares sorting a million texts
        encoded = table.column(stable_id[0]).combine_chunks().dictionary_encode()
        return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
    key = joint_key([rank_column(table.column(name)) for name in stable_id], table.num_rows)
    present, codes = np.unique(key, return_inverse=True)
    return codes, len(present)


def _is_strictly_ascending(column: "pa.ChunkedArray") -> bool:
    """Whether every value is more than the one before, as in a register that is sorted by its ids. That is much
    quicker to find out than which of the values are the same."""
    import pyarrow.compute as pc

    values = column.combine_chunks()
    return bool(pc.all(pc.less(values[:-1], values[1:])).as_py())
