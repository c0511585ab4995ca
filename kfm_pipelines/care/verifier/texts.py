"""A column as its different values and, row by row, which one it is: what is true of one is worked out once."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Flags = npt.NDArray[np.bool_]

NONE = -1


@dataclass(frozen=True, eq=False)
class Texts:
    distinct: "pa.Array"
    which: "npt.NDArray[np.int32]"  # NONE where there is no text

    def where(self, these: "Flags") -> "Flags":
        """The rows that have one of these texts."""
        import numpy as np

        found: Flags = np.append(these, False)[self.which]
        return found

    def of_rows(self, start: int, stop: int) -> "pa.Array":
        """The different texts of some rows."""
        import numpy as np
        import pyarrow as pa

        there = np.zeros(len(self.distinct) + 1, np.bool_)
        there[self.which[start:stop]] = True
        return self.distinct.filter(pa.array(there[:NONE]))


def read_texts(column: "pa.ChunkedArray") -> Texts:
    """A file's own list of different texts may have one twice, or one that no row has: neither is so here."""
    import numpy as np
    import pyarrow as pa

    flat = pa.concat_arrays(column.unify_dictionaries().chunks) if column.num_chunks else pa.array([], pa.string())
    encoded = flat.dictionary_encode()
    if not pa.types.is_dictionary(flat.type):
        return Texts(encoded.dictionary, encoded.indices.fill_null(NONE).to_numpy())
    listed = encoded.dictionary.dictionary_encode()
    known = listed.indices.to_numpy()
    which = np.append(known, NONE)[encoded.indices.fill_null(NONE).to_numpy()]
    used = np.zeros(len(listed.dictionary) + 1, np.bool_)
    used[which] = True
    used[NONE] = False
    places = np.where(used, np.cumsum(used) - 1, NONE).astype(np.int32)
    return Texts(listed.dictionary.filter(pa.array(used[:NONE])), places[which])
