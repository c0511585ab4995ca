"""Rules against kept columns that disguise places: rounded, in another unit or grid, as a rank, or written otherwise.

These compare a column with the places of its own rows. Values that equal a protected place are found by `leaks`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import pi

import h3.api.basic_int as h3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from kfm_pipelines.care.rules import Leave
from kfm_pipelines.care.verifier.case import Case
from kfm_pipelines.care.verifier.evidence import Breach
from kfm_pipelines.care.verifier.search import coordinate_text, grids
from kfm_pipelines.care.verifier.search.correlation import are_rank_correlated, values_match_places
from kfm_pipelines.care.verifier.types import Flags, Floats, Numbers

_SCALES = (1.0, 1e-3, 1e3, 1e5, 1e6, 1e7, 60.0, 3600.0, pi / 180)
# Tight ones are for dense places, where a loose one proves nothing.
_DEGREE_TOLERANCES = (0.0101, 6e-4, 6e-5, 6e-6)
_METRE_TOLERANCES = (1000.0, 60.0, 6.0, 0.6)
_MINUTE = 1 / 60
_GRID_TOLERANCE_M = 100.0  # two numbers both this close are no accident
_NUMBERS_PER_TEXT = 4  # further ones are ignored
_H3_MODE_BIT = 59  # the mode bits of an H3 cell start here


@dataclass(frozen=True, eq=False)
class HiddenRows:
    """Rows whose place is hidden, and the records they went into."""

    case: Case
    rows: Numbers
    records: Numbers

    @cached_property
    def degrees(self) -> tuple[Floats, Floats]:
        """Longitudes and latitudes; for shapes, of the centroid."""
        origins = self.case.origins
        longitudes, latitudes = origins.longitudes[self.rows], origins.latitudes[self.rows]
        shapes = np.isnan(longitudes)
        middles = shapely.centroid(origins.shapes[self.rows[shapes]])
        longitudes[shapes], latitudes[shapes] = shapely.get_x(middles), shapely.get_y(middles)
        return longitudes, latitudes

    @cached_property
    def grid(self) -> list[tuple[Floats, Floats]]:
        extent = self.case.dataset.extent
        return list(grids.utm(*self.degrees, extent)) if extent is not None else []

    @cached_property
    def place_columns(self) -> list[Floats]:
        """Numeric place columns, in any unit."""
        table = self.case.dataset.table
        named = [column for column in table.columns if column.name in table.place_columns]
        numeric = [column.name for column in named if column.type in ("float64", "int64")]
        return [self.case.original_floats(name, self.rows) for name in numeric]

    @cached_property
    def one_per_feature(self) -> "HiddenRows":
        first = np.unique(self.case.origins.features[self.rows], return_index=True)[1]
        return self.at(first)

    def at(self, places: Numbers) -> "HiddenRows":
        return HiddenRows(self.case, self.rows[places], self.records[places])

    def coordinate_variants(self) -> Iterator[tuple[Floats, tuple[float, ...]]]:
        """Yields every numeric form of the places, with the tolerances for matching it."""
        for degrees in self.degrees:
            yield degrees, _DEGREE_TOLERANCES
        for grid in (*self.place_columns, *(values for pair in self.grid for values in pair)):
            yield grid, _METRE_TOLERANCES if np.nanmax(np.abs(grid), initial=0.0) > 1000 else _DEGREE_TOLERANCES


def hidden_rows(case: Case) -> HiddenRows:
    scopes = [scope for scope in case.scopes if not isinstance(scope.rule, Leave)]
    rows = np.concatenate([np.empty(0, np.int64), *(scope.link_rows for scope in scopes)])
    records = np.concatenate([np.empty(0, np.int64), *(scope.link_records for scope in scopes)])
    return HiddenRows(case, rows, records)


def kept_columns_are_no_places(case: Case) -> Iterator[Breach]:
    """Compares one row per feature, since many rows of one feature agree only once."""
    hidden = hidden_rows(case)
    for name in case.policy.columns.keep:
        found = _read_numbers(hidden, name)
        if any(
            _follow_places(hidden.one_per_feature, numbers) or _are_own_cells(hidden.one_per_feature, numbers)
            for numbers in found
        ):
            yield Breach("leak-disguised", name, "no column that follows the places of its rows", "one that does")


def kept_texts_reveal_no_place(case: Case) -> Iterator[Breach]:
    hidden = hidden_rows(case)
    for name in case.policy.columns.keep:
        if not pa.types.is_string(case.schema.field(name).type):
            continue
        texts = _RowTexts.of(case, name, hidden.records)
        revealing = _hold_coordinates(case, texts)
        some = np.flatnonzero(texts.rows_where(_may_hold_coordinates))
        rows, few = hidden.at(some), _RowTexts(texts.distinct, texts.codes[some])
        revealing[some] |= _match_own_degrees(rows, few) | _match_own_grid(rows, few) | _match_own_geohash(rows, few)
        if found := int(np.sum(revealing)):
            yield Breach("leak-coordinates", name, "no text that tells a place in other words", f"{found} texts")


@dataclass(frozen=True, eq=False)
class _RowTexts:
    """The distinct texts of a column, and the position of each row's text; -1 for null."""

    distinct: Sequence[str]
    codes: npt.NDArray[np.int32]

    @classmethod
    def of(cls, case: Case, name: str, records: Numbers) -> "_RowTexts":
        texts = case.encoded(name)
        return cls(texts.distinct.to_pylist(), texts.codes[records])

    def numbers(self, read: Callable[[str], list[float]]) -> list[Floats]:
        """Returns the first number read from each row's text, then the second, and so on; NaN when there is none."""
        found = np.full((len(self.distinct) + 1, _NUMBERS_PER_TEXT), np.nan)  # the last for null
        for place, text in enumerate(self.distinct):
            for column, number in enumerate(read(text)[:_NUMBERS_PER_TEXT]):
                found[place, column] = number
        return [found[self.codes, column] for column in range(_NUMBERS_PER_TEXT) if np.isfinite(found[:, column]).any()]

    def rows_where(self, predicate: Callable[[str], bool]) -> Flags:
        matching = np.array([predicate(text) for text in self.distinct] + [False], dtype=np.bool_)
        return matching[self.codes]


def _may_hold_coordinates(text: str) -> bool:
    return bool(coordinate_text.numbers(text) or coordinate_text.degrees(text) or coordinate_text.geohashes(text))


def _read_numbers(hidden: HiddenRows, name: str) -> list[Floats]:
    """Reads the numbers in a kept column, in one row per feature."""
    kind = hidden.case.schema.field(name).type
    if pa.types.is_string(kind):
        distinct = hidden.case.encoded(name).distinct.to_pylist()
        if not any(coordinate_text.numbers(text) or coordinate_text.sexagesimal(text) for text in distinct):
            return []  # avoids computing one row per feature
        texts = _RowTexts.of(hidden.case, name, hidden.one_per_feature.records)
        return [*texts.numbers(coordinate_text.numbers), *texts.numbers(coordinate_text.sexagesimal)]
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return [hidden.case.floats(name, hidden.one_per_feature.records)] if number else []


def _follow_places(hidden: HiddenRows, values: Floats) -> bool:
    for places, tolerances in hidden.coordinate_variants():
        known = np.isfinite(values) & np.isfinite(places)
        found, place = np.abs(values[known]), np.abs(places[known])
        if any(_are_near(found / scale, place, tolerances) for scale in _SCALES):
            return True
    known = np.isfinite(values)
    return any(are_rank_correlated(values[known], degrees[known]) for degrees in hidden.degrees)


def _are_near(values: Floats, places: Floats, tolerances: tuple[float, ...]) -> bool:
    widest = max(tolerances)
    if not len(values) or values.max() < places.min() - widest or values.min() > places.max() + widest:
        return False
    return any(values_match_places(values, places, tolerance) for tolerance in tolerances)


def _are_own_cells(hidden: HiddenRows, numbers: Floats) -> bool:
    """Detects H3 cells given as numbers. A float holds all bits that matter."""
    longitudes, latitudes = hidden.degrees
    for place in np.flatnonzero((numbers >= 2.0**_H3_MODE_BIT) & (numbers < 2.0 ** (_H3_MODE_BIT + 1))).tolist():
        resolution = (int(numbers[place]) >> 52) & 0xF
        cell = h3.latlng_to_cell(latitudes[place], longitudes[place], resolution)
        if float(cell) == numbers[place] and h3.int_to_str(cell) not in hidden.case.cells.names:
            return True
    return False


def _hold_coordinates(case: Case, texts: _RowTexts) -> Flags:
    """Flags texts with any place in the extent: a pair of degrees, or a square of a kilometre or less."""
    extent = case.dataset.extent
    squares = grids.mgrs_squares(extent) if extent is not None else set()

    def reveals_place(text: str) -> bool:
        if any(square in squares for square in coordinate_text.mgrs_squares(text)):
            return True
        return any(case.in_extent(one, other) for one, other in coordinate_text.pairs(text))

    return texts.rows_where(reveals_place)


def _match_own_degrees(hidden: HiddenRows, texts: _RowTexts) -> Flags:
    """One with minutes is enough; of plain decimals, the longitude beside the latitude."""
    longitudes, latitudes = (np.abs(degrees) for degrees in hidden.degrees)
    revealing = np.zeros(len(longitudes), np.bool_)
    for value in texts.numbers(coordinate_text.sexagesimal):
        revealing |= (np.abs(value - longitudes) <= _MINUTE) | (np.abs(value - latitudes) <= _MINUTE)
    return revealing | _match_pairs(
        texts.numbers(coordinate_text.degrees), longitudes, latitudes, max(_DEGREE_TOLERANCES)
    )


def _match_own_grid(hidden: HiddenRows, texts: _RowTexts) -> Flags:
    revealing = np.zeros(len(hidden.rows), np.bool_)
    for eastings, northings in hidden.grid:
        revealing |= _match_pairs(texts.numbers(coordinate_text.numbers), eastings, northings, _GRID_TOLERANCE_M)
    return revealing


def _match_pairs(found: list[Floats], xs: Floats, ys: Floats, tolerance: float) -> Flags:
    revealing = np.zeros(len(xs), np.bool_)
    for one, other in pairwise(found):
        for x, y in ((one, other), (other, one)):
            revealing |= (np.abs(x - xs) <= tolerance) & (np.abs(y - ys) <= tolerance)
    return revealing


def _match_own_geohash(hidden: HiddenRows, texts: _RowTexts) -> Flags:
    def read(text: str) -> list[float]:
        return [float(grids.geohash_number(letters)) for letters in coordinate_text.geohashes(text)]

    own = grids.geohashes(*hidden.degrees)
    revealing = np.zeros(len(own), np.bool_)
    for numbers in texts.numbers(read):
        revealing |= numbers == own
    return revealing


RULES = (kept_columns_are_no_places, kept_texts_reveal_no_place)
