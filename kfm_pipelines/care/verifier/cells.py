"""H3 cells as the verifier sees them: valid or not, their centre, outline and radius, and which one holds a point."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Degrees = npt.NDArray[np.float64]
    Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cells:
    """Distinct cells, and for each value it was made from which one it is."""

    codes: "npt.NDArray[np.uint64]"
    positions: "Numbers"

    @cached_property
    def resolutions(self) -> "Numbers":
        import h3.api.basic_int as h3
        import numpy as np

        return np.array([h3.get_resolution(int(code)) for code in self.codes], dtype=np.int64)

    @cached_property
    def centres(self) -> "tuple[Degrees, Degrees]":
        """Longitudes and latitudes."""
        import h3.api.basic_int as h3
        import numpy as np

        found = np.array([h3.cell_to_latlng(int(code)) for code in self.codes], dtype=np.float64).reshape(-1, 2)
        return found[:, 1], found[:, 0]

    @cached_property
    def outlines(self) -> "npt.NDArray[Any]":
        import h3.api.basic_int as h3
        import numpy as np
        import shapely

        rings = [[(x, y) for y, x in h3.cell_to_boundary(int(code))] for code in self.codes]
        return np.array([shapely.Polygon(ring) for ring in rings], dtype=object)

    @cached_property
    def radii(self) -> "Degrees":
        """Metres from the centre to the farthest corner."""
        import numpy as np
        import shapely

        corners, of = shapely.get_coordinates(self.outlines, return_index=True)
        longitudes, latitudes = self.centres
        reach = metres(longitudes[of], latitudes[of], corners[:, 0], corners[:, 1])
        farthest = np.zeros(len(self.codes))
        np.maximum.at(farthest, of, reach)
        return farthest


def valid(texts: "pa.Array") -> "npt.NDArray[np.bool_]":
    """Whether each text names a cell, in the one way a cell is written. Null does not."""
    import numpy as np

    distinct = texts.dictionary_encode()
    known: npt.NDArray[np.bool_] = np.array([is_cell(text) for text in distinct.dictionary.to_pylist()] + [False])
    indices: Numbers = distinct.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
    return known[indices]


def cells_of(texts: "pa.Array") -> Cells:
    """All texts have to be valid."""
    import h3.api.basic_int as h3
    import numpy as np

    distinct = texts.dictionary_encode()
    codes = np.array([h3.str_to_int(text) for text in distinct.dictionary.to_pylist()], dtype=np.uint64)
    return Cells(codes, distinct.indices.to_numpy(zero_copy_only=False).astype(np.int64))


def resolutions_of(texts: "pa.Array") -> "Numbers":
    """-1 where there is no valid cell."""
    import numpy as np
    import pyarrow as pa

    found = np.full(len(texts), -1, dtype=np.int64)
    good = valid(texts)
    cells = cells_of(texts.filter(pa.array(good)))
    found[good] = cells.resolutions[cells.positions]
    return found


def cells_at(longitudes: "Degrees", latitudes: "Degrees", resolutions: "Numbers") -> "npt.NDArray[np.uint64]":
    """The cell each coordinate lies in: always from the coordinate, because a cell does not hold all its children."""
    import h3.api.basic_int as h3
    import numpy as np

    triples = zip(latitudes.tolist(), longitudes.tolist(), resolutions.tolist(), strict=True)
    return np.array([h3.latlng_to_cell(*triple) for triple in triples], dtype=np.uint64)


def metres(west: "Degrees", south: "Degrees", east: "Degrees", north: "Degrees") -> "Degrees":
    """Distance on the ellipsoid from each (west, south) to its (east, north); NaN where there is none."""
    import numpy as np
    from pyproj import Geod

    return np.asarray(Geod(ellps="WGS84").inv(west, south, east, north)[2], dtype=np.float64)


def is_cell(text: str) -> bool:
    import h3.api.basic_str as h3

    return bool(h3.is_valid_cell(text)) and h3.int_to_str(h3.str_to_int(text)) == text
