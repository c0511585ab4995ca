"""Names of the array types that the masks exchange, and a count for their messages."""

import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Objects = npt.NDArray[np.object_]


def format_record_count(count: int) -> str:
    return "1 record has" if count == 1 else f"{count} records have"
