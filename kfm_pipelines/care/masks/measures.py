"""What masking did, in numbers that may be public: each is coarse, or about many features, or published anyway."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.cells import cells_of
from kfm_pipelines.care.masks.rows import Source, TableFragment

if TYPE_CHECKING:
    from kfm_pipelines.care.masks.types import Cells, Flags, Floats, Ints

MIN_DISTRIBUTION_SIZE = 20  # features; a distribution of fewer is about single ones
_FIT_STEPS = 20  # from none to all; there have to be so many features that a step is the minimum of them or more
_FIT_RESOLUTION = 3
_FIT_SAMPLE = 5_000  # records; of a million, all would take as long as the masking


@dataclass(frozen=True, slots=True)
class Measures:
    # Of the rows that went into a record; rounded down to a multiple of the minimum count, none when there are fewer.
    rows_in: int | None
    rows_out: int
    records_without_place: int
    cells_released: int
    cells_suppressed: int  # rounded down to a multiple of the minimum count
    smallest_cell: int | None
    displacement_m: dict[str, float] | None
    spatial_fit: float | None
    uncertainty_m: float | None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def measure_release(source: Source, fragments: Sequence[TableFragment]) -> Measures:
    minimum = source.policy.minimum_count
    suppressed = sum(piece.cell_counts.suppressed for piece in fragments)
    smallest = [piece.cell_counts.smallest for piece in fragments if piece.cell_counts.smallest is not None]
    return Measures(
        rows_in=_count_source_rows(source, fragments) // minimum * minimum or None,
        rows_out=sum(len(piece.place) for piece in fragments),
        records_without_place=sum(_count_without_place(piece) for piece in fragments),
        cells_released=sum(piece.cell_counts.released for piece in fragments),
        cells_suppressed=suppressed // minimum * minimum,
        smallest_cell=min(smallest, default=None),
        displacement_m=_displacement_percentiles(fragments),
        spatial_fit=_spatial_fit(source, fragments),
        uncertainty_m=_largest_uncertainty(fragments),
    )


def _count_source_rows(source: Source, fragments: Sequence[TableFragment]) -> int:
    """Rows that were left out would be found by taking the others from all."""
    import numpy as np

    told = np.zeros(source.table.num_rows, np.bool_)
    for piece in fragments:
        told[piece.source_rows] = True
    return int(told.sum())


def _has_place(fragment: TableFragment) -> "Flags":
    """Whether each row of the piece has a place."""
    import numpy as np

    return ~np.isnan(fragment.released_places.uncertainties)[fragment.place]


def _count_without_place(fragment: TableFragment) -> int:
    return int(fragment.records[~_has_place(fragment)].sum())


def _largest_uncertainty(fragments: Sequence[TableFragment]) -> float | None:
    found = [piece.released_places.uncertainties[piece.place[_has_place(piece)]] for piece in fragments]
    return max((float(one.max()) for one in found if len(one)), default=None)


def _displacement_percentiles(fragments: Sequence[TableFragment]) -> dict[str, float] | None:
    import numpy as np

    distances = np.concatenate([[], *(piece.distances for piece in fragments if piece.distances is not None)])
    if len(distances) < MIN_DISTRIBUTION_SIZE:
        return None
    found = np.percentile(distances, [5, 50, 95])
    return {name: 10.0 * round(one / 10) for name, one in zip(("p05", "p50", "p95"), found.tolist(), strict=True)}


def _spatial_fit(source: Source, fragments: Sequence[TableFragment]) -> float | None:
    """Of the features that are published with a place, the share for which that is in the same large cell as the true
    one. Of many records, a part is looked at."""
    placed, minimum = [_placed_records(piece) for piece in fragments], source.policy.minimum_count
    one_in = max(1, -(-sum(len(rows) for rows, _ in placed) // _FIT_SAMPLE))
    looked_at, strays = [], []
    for piece, (rows, place) in zip(fragments, placed, strict=True):
        part = _sample_records(source, rows, one_in)
        looked_at.append(rows[part])
        strays.append(rows[part][~_in_same_cell(source, piece, rows[part], place[part])])
    features = _count_features(source, looked_at)
    return _fit_share(features, _count_features(source, strays), minimum) if features >= _FIT_STEPS * minimum else None


def _count_features(source: Source, rows: "Sequence[Ints]") -> int:
    """How many features; a record may be in two pieces."""
    import numpy as np

    return len(np.unique(source.features.codes[np.concatenate([np.empty(0, np.int64), *rows])]))


def _fit_share(features: int, strays: int, minimum: int) -> float:
    """In steps, and the strays rounded down: who knows all places but one must not see on which side that one lies of
    the border of a large cell."""
    told = strays // minimum * minimum
    return round(_FIT_STEPS * (features - told) / features) / _FIT_STEPS


def _placed_records(fragment: TableFragment) -> "tuple[Ints, Ints]":
    """The records that are published with coordinates, and the positions of these places. An open place may be told
    by its geometry only."""
    import numpy as np

    placed = (_has_place(fragment) & np.isfinite(fragment.released_places.longitudes)[fragment.place])[
        fragment.target_rows
    ]
    return fragment.source_rows[placed], fragment.place[fragment.target_rows[placed]]


def _sample_records(source: Source, rows: "Ints", one_in: int) -> "Flags":
    """One in so many, picked by what a coordinate says, not by where the record stands."""
    import numpy as np

    mixed = _bits(source.places.longitudes[rows]) * np.uint64(0x9E3779B97F4A7C15) ^ _bits(source.places.latitudes[rows])
    mixed *= np.uint64(0xC2B2AE3D27D4EB4F)
    return np.asarray((mixed >> np.uint64(32)) % np.uint64(one_in) == 0, np.bool_)


def _bits(degrees: "Floats") -> "Cells":
    import numpy as np

    return np.ascontiguousarray(degrees).view(np.uint64)


def _in_same_cell(source: Source, fragment: TableFragment, rows: "Ints", place: "Ints") -> "Flags":
    import numpy as np

    shown, true = fragment.released_places, source.places
    used, place = np.unique(place, return_inverse=True)
    shown_cells = _fit_cells(shown.longitudes[used], shown.latitudes[used])[place]
    return np.equal(shown_cells, _fit_cells(true.longitudes[rows], true.latitudes[rows]))


def _fit_cells(longitudes: "Floats", latitudes: "Floats") -> "Cells":
    return cells_of(longitudes, latitudes, _FIT_RESOLUTION)
