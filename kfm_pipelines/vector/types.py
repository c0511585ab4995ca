"""Arrays of shapes and of what is known of each."""

import numpy as np
import numpy.typing as npt

Shapes = npt.NDArray[np.object_]  # of shapely
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


def format_feature_count(count: int) -> str:
    return "1 feature has" if count == 1 else f"{count} features have"
