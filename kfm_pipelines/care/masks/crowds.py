"""Whether there are enough features somewhere to hide among. Several at one coordinate are a single place to whoever
goes there, so both have to be enough: the features, and the coordinates they are at."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.features import Features
from kfm_pipelines.care.masks.mixing import mixed_coordinates

if TYPE_CHECKING:
    from kfm_pipelines.care.masks.arrays import Flags, Floats, Ints


@dataclass(frozen=True, slots=True)
class Crowd:
    """The features of some records, and their coordinates numbered in the same way, unless all of them differ."""

    features: Features
    spots: Features | None = None

    def of(self, rows: "Ints | Flags") -> "Crowd":
        return Crowd(self.features.of(rows), self.spots and self.spots.of(rows))

    def enough_by(self, labels: "Ints", size: int, minimum: int) -> "Flags":
        """Whether the records of each label are enough."""
        enough = self.features.count_by(labels, size) >= minimum
        return enough if self.spots is None else enough & (self.spots.count_by(labels, size) >= minimum)


def crowd_at(features: Features, longitudes: "Floats", latitudes: "Floats") -> Crowd:
    import numpy as np

    spots = mixed_coordinates(longitudes, latitudes)
    in_order = np.sort(spots)  # much quicker than numbering them
    if not (in_order[1:] == in_order[:-1]).any():
        return Crowd(features)
    distinct, codes = np.unique(spots, return_inverse=True)
    return Crowd(features, Features(codes, len(distinct), once=False))
