"""Measures of what masking did, fit to be public: each is coarse, covers many features, or is published anyway."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kfm_pipelines.care.masks.cells import cells_of
from kfm_pipelines.care.masks.rows import Source, TableFragment
from kfm_pipelines.care.masks.types import Cells, Flags, Floats, Ints

MIN_DISTRIBUTION_SIZE = 20  # features; percentiles of fewer would describe single ones
_FIT_STEPS = 20  # the fit is published in twentieths; a step must stand for at least the minimum count
_FIT_RESOLUTION = 3
_FIT_SAMPLE = 5_000  # records; comparing a million would take as long as masking them


@dataclass(frozen=True, slots=True)
class Measures:
    # Rows that went into a record, rounded down to a multiple of the minimum count; None when there are fewer.
    rows_in: int | None
    rows_out: int
    records_without_place: int
    cells_released: int
    cells_suppressed: int  # rounded down to a multiple of the minimum count
    smallest_cell: int | None
    displacement_m: dict[str, float] | None
    spatial_fit: float | None
    uncertainty_m: float | None


def measure_release(source: Source, fragments: Sequence[TableFragment]) -> Measures:
    minimum = source.policy.minimum_count
    suppressed = sum(fragment.cell_counts.suppressed for fragment in fragments)
    smallest = [fragment.cell_counts.smallest for fragment in fragments if fragment.cell_counts.smallest is not None]
    return Measures(
        rows_in=_count_source_rows(source, fragments) // minimum * minimum or None,
        rows_out=sum(len(fragment.place) for fragment in fragments),
        records_without_place=sum(int(fragment.records[~_has_place(fragment)].sum()) for fragment in fragments),
        cells_released=sum(fragment.cell_counts.released for fragment in fragments),
        cells_suppressed=suppressed // minimum * minimum,
        smallest_cell=min(smallest, default=None),
        displacement_m=_displacement_percentiles(fragments),
        spatial_fit=_spatial_fit(source, fragments),
        uncertainty_m=_largest_uncertainty(fragments),
    )


def _count_source_rows(source: Source, fragments: Sequence[TableFragment]) -> int:
    """Counts only rows that went into a record: the difference to all rows would reveal how many were left out."""
    used = np.zeros(source.table.num_rows, np.bool_)
    for fragment in fragments:
        used[fragment.source_rows] = True
    return int(used.sum())


def _has_place(fragment: TableFragment) -> Flags:
    return ~np.isnan(fragment.released_places.uncertainties)[fragment.place]


def _largest_uncertainty(fragments: Sequence[TableFragment]) -> float | None:
    found = [fragment.released_places.uncertainties[fragment.place[_has_place(fragment)]] for fragment in fragments]
    return max((float(one.max()) for one in found if len(one)), default=None)


def _displacement_percentiles(fragments: Sequence[TableFragment]) -> dict[str, float] | None:
    distances = np.concatenate([[], *(fragment.distances for fragment in fragments if fragment.distances is not None)])
    if len(distances) < MIN_DISTRIBUTION_SIZE:
        return None
    found = np.percentile(distances, [5, 50, 95])
    return {name: 10.0 * round(one / 10) for name, one in zip(("p05", "p50", "p95"), found.tolist(), strict=True)}


def _spatial_fit(source: Source, fragments: Sequence[TableFragment]) -> float | None:
    """Returns the share of features, or of a sample of many, that are published in the same large cell as the truth."""
    placed, minimum = [_placed_records(fragment) for fragment in fragments], source.policy.minimum_count
    one_in = max(1, -(-sum(len(rows) for rows, _ in placed) // _FIT_SAMPLE))
    looked_at, strays = [], []
    for fragment, (rows, place) in zip(fragments, placed, strict=True):
        part = _sample_records(source, rows, one_in)
        looked_at.append(rows[part])
        strays.append(rows[part][~_in_same_cell(source, fragment, rows[part], place[part])])
    features = _count_features(source, looked_at)
    return _fit_share(features, _count_features(source, strays), minimum) if features >= _FIT_STEPS * minimum else None


def _count_features(source: Source, rows: Sequence[Ints]) -> int:
    """Counts each feature once, because a record may be in two fragments."""
    return len(np.unique(source.features.codes[np.concatenate([np.empty(0, np.int64), *rows])]))


def _fit_share(features: int, strays: int, minimum: int) -> float:
    """Rounds to steps, and the strays down: someone who knows all places but one must not learn on which side of a
    large cell's border that one lies."""
    rounded = strays // minimum * minimum
    return round(_FIT_STEPS * (features - rounded) / features) / _FIT_STEPS


def _placed_records(fragment: TableFragment) -> tuple[Ints, Ints]:
    """Returns the records published with coordinates, not a geometry only, and the positions of their places."""
    placed = (_has_place(fragment) & np.isfinite(fragment.released_places.longitudes)[fragment.place])[
        fragment.target_rows
    ]
    return fragment.source_rows[placed], fragment.place[fragment.target_rows[placed]]


def _sample_records(source: Source, rows: Ints, one_in: int) -> Flags:
    """Picks one in so many records by coordinate, so that the order of the rows does not matter."""
    mixed = _bits(source.places.longitudes[rows]) * np.uint64(0x9E3779B97F4A7C15) ^ _bits(source.places.latitudes[rows])
    mixed *= np.uint64(0xC2B2AE3D27D4EB4F)
    return np.asarray((mixed >> np.uint64(32)) % np.uint64(one_in) == 0, np.bool_)


def _bits(degrees: Floats) -> Cells:
    return np.ascontiguousarray(degrees).view(np.uint64)


def _in_same_cell(source: Source, fragment: TableFragment, rows: Ints, place: Ints) -> Flags:
    released, true = fragment.released_places, source.places
    used, place = np.unique(place, return_inverse=True)
    released_cells = _fit_cells(released.longitudes[used], released.latitudes[used])[place]
    return np.equal(released_cells, _fit_cells(true.longitudes[rows], true.latitudes[rows]))


def _fit_cells(longitudes: Floats, latitudes: Floats) -> Cells:
    return cells_of(longitudes, latitudes, _FIT_RESOLUTION)
