"""Which feature each record is of. Records with the same stable id are one feature, and count once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.counted import records
from kfm_pipelines.care.masks.order import joint_key, ranked
from kfm_pipelines.errors import PolicyRefused

if TYPE_CHECKING:
    import pyarrow as pa

    from kfm_pipelines.care.masks.arrays import Flags, Ints


@dataclass(frozen=True, slots=True)
class Features:
    """The number of the feature of each of some records."""

    codes: "Ints"
    size: int  # one more than the highest number
    once: bool  # no feature has more than one record, which makes counting quick

    def of(self, rows: "Ints | Flags") -> "Features":
        return Features(self.codes[rows], self.size, self.once)

    def count(self) -> int:
        import numpy as np

        return len(self.codes) if self.once else len(np.unique(self.codes))

    def count_by(self, labels: "Ints", size: int) -> "Ints":
        """How many distinct features the records of each label have."""
        import numpy as np

        if self.once:
            return np.bincount(labels, minlength=size)
        pairs = np.unique(labels * self.size + self.codes)
        return np.bincount(pairs // self.size, minlength=size)


def read_features(table: "pa.Table", stable_id: Sequence[str]) -> Features:
    """PolicyRefused when an id is missing: nobody could tell how many features there are, or move one twice alike."""
    import numpy as np

    for name in stable_id:
        if nulls := table.column(name).null_count:
            raise PolicyRefused(f"{records(nulls)} no value in {name!r}, which says what feature a record is of")
    codes, size = _codes(table, stable_id)
    once = not len(codes) or bool(np.bincount(codes).max() <= 1)
    return Features(codes, size, once)


def _codes(table: "pa.Table", stable_id: Sequence[str]) -> "tuple[Ints, int]":
    import numpy as np

    if len(stable_id) == 1:
        encoded = table.column(stable_id[0]).combine_chunks().dictionary_encode()
        return encoded.indices.to_numpy().astype(np.int64), max(len(encoded.dictionary), 1)
    present, codes = np.unique(
        joint_key([ranked(table.column(name)) for name in stable_id], table.num_rows), return_inverse=True
    )
    return codes, max(len(present), 1)
