"""Kept columns that are places in disguise: rounded, in another unit or grid, as a rank, or written another way.

Belongs here: whatever shows only when a column is held against the places of its own rows. Does not: values that are
a protected place as it is (`leaks`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import pi
from typing import TYPE_CHECKING

from kfm_pipelines.care.rules import Leave
from kfm_pipelines.care.verifier.case import Case
from kfm_pipelines.care.verifier.evidence import Breach
from kfm_pipelines.care.verifier.search import coordinate_text, grids
from kfm_pipelines.care.verifier.search.correlation import are_rank_correlated, values_match_places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]
    Numbers = npt.NDArray[np.int64]

_SCALES = (1.0, 1e-3, 1e3, 1e5, 1e6, 1e7, 60.0, 3600.0, pi / 180)
_DEGREE_TOLERANCES = (
    0.0101,
    6e-4,
    6e-5,
    6e-6,
)  # tight ones tell where places are so close that a loose one says nothing
_METRE_TOLERANCES = (1000.0, 60.0, 6.0, 0.6)
_MINUTE = 1 / 60
_GRID_TOLERANCE_M = 100.0  # metres; two numbers that are both that close are no accident
_NUMBERS_PER_TEXT = 4  # so many numbers of a text are looked at
_H3_MODE_BIT = 59  # from which bit on an H3 cell says that it is one


@dataclass(frozen=True, eq=False)
class HiddenRows:
    """Rows whose place is hidden, the records they went into, and where they are."""

    case: Case
    rows: "Numbers"
    records: "Numbers"

    @cached_property
    def degrees(self) -> "tuple[Floats, Floats]":
        """Of shapes, their middles."""
        import numpy as np
        import shapely

        origins = self.case.origins
        longitudes, latitudes = origins.longitudes[self.rows], origins.latitudes[self.rows]
        shapes = np.isnan(longitudes)
        middles = shapely.centroid(origins.shapes[self.rows[shapes]])
        longitudes[shapes], latitudes[shapes] = shapely.get_x(middles), shapely.get_y(middles)
        return longitudes, latitudes

    @cached_property
    def grid(self) -> "list[tuple[Floats, Floats]]":
        extent = self.case.dataset.extent
        return list(grids.utm(*self.degrees, extent)) if extent is not None else []

    @cached_property
    def place_columns(self) -> "list[Floats]":
        """Place columns, in whatever unit."""
        table = self.case.dataset.table
        named = [column for column in table.columns if column.name in table.place_columns]
        numeric = [column.name for column in named if column.type in ("float64", "int64")]
        return [self.case.original_floats(name, self.rows) for name in numeric]

    @cached_property
    def one_per_feature(self) -> "HiddenRows":
        """One row of each feature."""
        import numpy as np

        first = np.unique(self.case.origins.features[self.rows], return_index=True)[1]
        return self.at(first)

    def at(self, places: "Numbers") -> "HiddenRows":
        return HiddenRows(self.case, self.rows[places], self.records[places])

    def coordinate_variants(self) -> "Iterator[tuple[Floats, tuple[float, ...]]]":
        """All tellings of a place in numbers, and how near to it is near."""
        import numpy as np

        for degrees in self.degrees:
            yield degrees, _DEGREE_TOLERANCES
        for grid in (*self.place_columns, *(values for pair in self.grid for values in pair)):
            yield grid, _METRE_TOLERANCES if np.nanmax(np.abs(grid), initial=0.0) > 1000 else _DEGREE_TOLERANCES


def hidden_rows(case: Case) -> HiddenRows:
    import numpy as np

    shares = [share for share in case.scopes if not isinstance(share.rule, Leave)]
    rows = np.concatenate([np.empty(0, np.int64), *(share.link_rows for share in shares)])
    records = np.concatenate([np.empty(0, np.int64), *(share.link_records for share in shares)])
    return HiddenRows(case, rows, records)


def kept_columns_are_no_places(case: Case) -> Iterator[Breach]:
    """Each feature counts once: what is said of it in many rows is still one agreement."""
    hidden = hidden_rows(case)
    for name in case.policy.columns.keep:
        found = _read_numbers(hidden, name)
        if any(
            _follow_places(hidden.one_per_feature, numbers) or _are_own_cells(hidden.one_per_feature, numbers)
            for numbers in found
        ):
            yield Breach("leak-disguised", name, "no column that follows the places of its rows", "one that does")


def kept_texts_reveal_no_place(case: Case) -> Iterator[Breach]:
    import numpy as np
    import pyarrow as pa

    hidden = hidden_rows(case)
    for name in case.policy.columns.keep:
        if not pa.types.is_string(case.schema.field(name).type):
            continue
        texts = _RowTexts.of(case, name, hidden.records)
        told = _hold_coordinates(case, texts)
        some = np.flatnonzero(texts.rows_where(_may_hold_coordinates))
        rows, few = hidden.at(some), _RowTexts(texts.distinct, texts.codes[some])
        told[some] |= _match_own_degrees(rows, few) | _match_own_grid(rows, few) | _match_own_geohash(rows, few)
        if found := int(np.sum(told)):
            yield Breach("leak-coordinates", name, "no text that tells a place in other words", f"{found} texts")


@dataclass(frozen=True, eq=False)
class _RowTexts:
    """The different texts of a column, and for each row which one it has; -1 when none."""

    distinct: "Sequence[str]"
    codes: "npt.NDArray[np.int32]"

    @classmethod
    def of(cls, case: Case, name: str, records: "Numbers") -> "_RowTexts":
        texts = case.texts_of(name)
        return cls(texts.distinct.to_pylist(), texts.codes[records])

    def numbers(self, read: "Callable[[str], list[float]]") -> "list[Floats]":
        """Row by row the first number that is read from the text, then the second, and so on; NaN when none."""
        import numpy as np

        found = np.full((len(self.distinct) + 1, _NUMBERS_PER_TEXT), np.nan)  # the last is for rows without a text
        for place, text in enumerate(self.distinct):
            for column, number in enumerate(read(text)[:_NUMBERS_PER_TEXT]):
                found[place, column] = number
        return [found[self.codes, column] for column in range(_NUMBERS_PER_TEXT) if np.isfinite(found[:, column]).any()]

    def rows_where(self, predicate: "Callable[[str], bool]") -> "Flags":
        import numpy as np

        telling = np.array([predicate(text) for text in self.distinct] + [False], dtype=np.bool_)
        return telling[self.codes]


def _may_hold_coordinates(text: str) -> bool:
    return bool(coordinate_text.numbers(text) or coordinate_text.degrees(text) or coordinate_text.geohashes(text))


def _read_numbers(hidden: HiddenRows, name: str) -> "list[Floats]":
    """In a kept column, of one row of each feature."""
    import pyarrow as pa

    kind = hidden.case.schema.field(name).type
    if pa.types.is_string(kind):
        distinct = hidden.case.texts_of(name).distinct.to_pylist()
        if not any(coordinate_text.numbers(text) or coordinate_text.sexagesimal(text) for text in distinct):
            return []  # nor is anything to be worked out for them
        texts = _RowTexts.of(hidden.case, name, hidden.one_per_feature.records)
        return [*texts.numbers(coordinate_text.numbers), *texts.numbers(coordinate_text.sexagesimal)]
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return [hidden.case.floats(name, hidden.one_per_feature.records)] if number else []


def _follow_places(hidden: HiddenRows, values: "Floats") -> bool:
    import numpy as np

    for places, tolerances in hidden.coordinate_variants():
        known = np.isfinite(values) & np.isfinite(places)
        found, place = np.abs(values[known]), np.abs(places[known])
        if any(_are_near(found / scale, place, tolerances) for scale in _SCALES):
            return True
    known = np.isfinite(values)
    return any(are_rank_correlated(values[known], degrees[known]) for degrees in hidden.degrees)


def _are_near(values: "Floats", places: "Floats", tolerances: tuple[float, ...]) -> bool:
    widest = max(tolerances)
    if not len(values) or values.max() < places.min() - widest or values.min() > places.max() + widest:
        return False
    return any(values_match_places(values, places, tolerance) for tolerance in tolerances)


def _are_own_cells(hidden: HiddenRows, numbers: "Floats") -> bool:
    """H3 cells are numbers too; a float has room for all that matters of one."""
    import h3.api.basic_int as h3
    import numpy as np

    longitudes, latitudes = hidden.degrees
    for place in np.flatnonzero((numbers >= 2.0**_H3_MODE_BIT) & (numbers < 2.0 ** (_H3_MODE_BIT + 1))).tolist():
        resolution = (int(numbers[place]) >> 52) & 0xF
        cell = h3.latlng_to_cell(latitudes[place], longitudes[place], resolution)
        if float(cell) == numbers[place] and h3.int_to_str(cell) not in hidden.case.cells.names:
            return True
    return False


def _hold_coordinates(case: Case, texts: _RowTexts) -> "Flags":
    """Places of the dataset's extent, whosever: pairs of degrees, and squares of a kilometre or less."""
    extent = case.dataset.extent
    squares = grids.mgrs_squares(extent) if extent is not None else set()

    def tells(text: str) -> bool:
        if any(square in squares for square in coordinate_text.mgrs_squares(text)):
            return True
        return any(case.in_extent(one, other) for one, other in coordinate_text.pairs(text))

    return texts.rows_where(tells)


def _match_own_degrees(hidden: HiddenRows, texts: _RowTexts) -> "Flags":
    """One with minutes is enough; of plain decimals, the longitude beside the latitude."""
    import numpy as np

    longitudes, latitudes = (np.abs(degrees) for degrees in hidden.degrees)
    told = np.zeros(len(longitudes), np.bool_)
    for value in texts.numbers(coordinate_text.sexagesimal):
        told |= (np.abs(value - longitudes) <= _MINUTE) | (np.abs(value - latitudes) <= _MINUTE)
    return told | _match_pairs(texts.numbers(coordinate_text.degrees), longitudes, latitudes, max(_DEGREE_TOLERANCES))


def _match_own_grid(hidden: HiddenRows, texts: _RowTexts) -> "Flags":
    import numpy as np

    told = np.zeros(len(hidden.rows), np.bool_)
    for eastings, northings in hidden.grid:
        told |= _match_pairs(texts.numbers(coordinate_text.numbers), eastings, northings, _GRID_TOLERANCE_M)
    return told


def _match_pairs(found: "list[Floats]", xs: "Floats", ys: "Floats", tolerance: float) -> "Flags":
    import numpy as np

    told = np.zeros(len(xs), np.bool_)
    for one, other in pairwise(found):
        for x, y in ((one, other), (other, one)):
            told |= (np.abs(x - xs) <= tolerance) & (np.abs(y - ys) <= tolerance)
    return told


def _match_own_geohash(hidden: HiddenRows, texts: _RowTexts) -> "Flags":
    import numpy as np

    def read(text: str) -> list[float]:
        return [float(grids.geohash_number(letters)) for letters in coordinate_text.geohashes(text)]

    own = grids.geohashes(*hidden.degrees)
    told = np.zeros(len(own), np.bool_)
    for numbers in texts.numbers(read):
        told |= numbers == own
    return told


RULES = (kept_columns_are_no_places, kept_texts_reveal_no_place)
