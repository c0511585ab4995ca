"""Numbers spread so that near ones are no longer near. Not secret by itself."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kfm_pipelines.care.masks.arrays import Floats

    Draws = NDArray[np.uint64]


def mixed(numbers: "Draws") -> "Draws":
    """Every bit of a number spread over all of them, one to one (the finish of SplitMix64)."""
    import numpy as np

    spread = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    spread = (spread ^ (spread >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return spread ^ (spread >> np.uint64(31))


def mixed_coordinates(longitudes: "Floats", latitudes: "Floats") -> "Draws":
    """A number for each coordinate, the same for the same one."""
    import numpy as np

    bits = (np.ascontiguousarray(degrees).view(np.uint64) for degrees in (longitudes, latitudes))
    return mixed(next(bits)) ^ next(bits)
