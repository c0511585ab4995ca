"""What must not be published: places of rows whose class hides them, and texts that the policy withholds."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.rules import Leave
from kfm_pipelines.care.verifier.origins import Origins, rows_with_rule
from kfm_pipelines.care.verifier.search.distinct import distinct, is_among, without
from kfm_pipelines.care.verifier.search.phrases import Phrases
from kfm_pipelines.care.verifier.types import Degrees
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.parquet.distinct_values import encode_column

_SAMPLE_SIZE = 4096
_DECIMAL = re.compile(r"(?<![0-9.])-?[0-9]{1,8}\.[0-9]{3,}(?![0-9]|\.[0-9])")
_METRES = re.compile(r"(?<![0-9.])[0-9]{5,8}(?:\.[0-9]{1,2})?(?![0-9]|\.[0-9])")


@dataclass(frozen=True, eq=False)
class ProtectedPlaces:
    """Sorted, without places that a record of an open class publishes anyway."""

    longitudes: Degrees
    latitudes: Degrees
    other_coordinates: Degrees  # such as grid coordinates, in any unit

    @property
    def coordinate_arrays(self) -> tuple[Degrees, ...]:
        return self.longitudes, self.latitudes, self.other_coordinates

    def count_matches(self, values: Degrees) -> int:
        """Counts values that are a place, among those with too many digits for a coincidence."""
        starts = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
        each, counts = values[starts], np.diff(starts, append=len(values))  # equal neighbours are searched once
        precise = np.round(each, 5) != each
        each, counts = each[precise], counts[precise]
        return int(counts[np.any([is_among(each, part) for part in self.coordinate_arrays], axis=0)].sum())

    def matches_decimal(self, number_text: str) -> bool:
        """Whether a decimal number is one of the places, rounded or truncated, with or without its sign."""
        number, step = float(number_text), rounding_step(number_text)
        for degrees in self.coordinate_arrays:
            for signed in {number, -number}:
                lowest = np.searchsorted(degrees, signed - step, side="right")
                if lowest < len(degrees) and degrees[lowest] < signed + step:
                    return True
        return False

    def is_dense_at(self, number_text: str) -> bool:
        """Whether places are so dense that a number of this length would be near one by accident."""
        step = rounding_step(number_text)
        return any(
            2 * step * len(degrees) > 0.001 * max(degrees[-1] - degrees[0], 1.0)
            for degrees in (self.longitudes, self.latitudes)
            if len(degrees)
        )


def protected_places(policy: Policy, dataset: Dataset, origins: Origins) -> ProtectedPlaces:
    open_rows = rows_with_rule(policy, origins.classes, origins.kinds, lambda rule: isinstance(rule, Leave))
    hidden, public = _collect_degrees(dataset, origins, ~open_rows), _collect_degrees(dataset, origins, open_rows)
    others, public_others = (
        _collect_other_coordinates(dataset, origins, ~open_rows),
        _collect_other_coordinates(dataset, origins, open_rows),
    )
    return ProtectedPlaces(without(hidden[0], public[0]), without(hidden[1], public[1]), without(others, public_others))


def protected_texts(policy: Policy, dataset: Dataset, origins: Origins, cells: Iterable[str]) -> Phrases:
    """Returns values of withheld and place columns, except those that declarations or released cells make public."""
    names = {*policy.columns.withhold, *dataset.table.place_columns}
    chunks = [
        _as_texts(_deduplicate_if_repeated(origins.table.column(column.name)))
        for column in dataset.table.columns
        if column.name in names and (column.type == "string" or column.name in policy.stable_id)
    ]
    declared = (dataset.model_dump(mode="json"), policy.model_dump(mode="json"))
    phrases = Phrases(pa.chunked_array(chunks, pa.string()))
    return phrases.without([*(json.dumps(one, ensure_ascii=False) for one in declared), *cells])


def _deduplicate_if_repeated(column: pa.ChunkedArray) -> pa.Array:
    """Drops nulls, and duplicates if a sample repeats: otherwise deduplication takes longer than it saves."""
    if pa.types.is_dictionary(column.type) or len(pc.unique(column.slice(0, _SAMPLE_SIZE))) < _SAMPLE_SIZE // 2:
        return encode_column(column).distinct
    return column.drop_null().combine_chunks()


def _as_texts(values: pa.Array) -> pa.Array:
    if pa.types.is_string(values.type):
        return values
    return pa.array([str(value) for value in values.to_pylist()], pa.string())


def texts_in(document: object) -> Iterator[str]:
    """Yields every text in a JSON document, names included."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for name, value in document.items():
            yield name
            yield from texts_in(value)
    elif isinstance(document, list):
        for value in document:
            yield from texts_in(value)


def numbers_in(document: object) -> Iterator[float]:
    if isinstance(document, float):
        yield document
    elif isinstance(document, dict | list):
        for value in document.values() if isinstance(document, dict) else document:
            yield from numbers_in(value)


def rounding_step(number_text: str) -> float:
    """Returns the value of the number's last digit, but no less than float precision."""
    return max(10.0 ** -len(number_text.partition(".")[2]), 1e-12)


def find_decimals(text: str) -> list[str]:
    """Returns numbers with enough decimals to locate a place."""
    return _DECIMAL.findall(text)


def find_grid_numbers(text: str) -> list[str]:
    """Returns numbers that look like grid coordinates."""
    return _METRES.findall(text)


def _collect_degrees(dataset: Dataset, origins: Origins, rows: npt.NDArray[np.bool_]) -> tuple[Degrees, Degrees]:
    table = dataset.table
    corners = (origins.longitudes[rows], origins.latitudes[rows])
    if len(origins.shapes):
        corners = tuple(shapely.get_coordinates(origins.shapes[rows]).T)
    found = {"longitude": [corners[0]], "latitude": [corners[1]]}
    main = {table.longitude_column: "longitude", table.latitude_column: "latitude"}
    for column in table.columns:
        holds = main.get(column.name, column.holds)
        if holds in found and column.type == "float64":
            found[holds].append(_finite_values(origins, column.name, rows))
    return _distinct_in(found["longitude"]), _distinct_in(found["latitude"])


def _collect_other_coordinates(dataset: Dataset, origins: Origins, rows: npt.NDArray[np.bool_]) -> Degrees:
    columns = [column for column in dataset.table.columns if column.holds == "place"]
    numeric = [column.name for column in columns if column.type in ("float64", "int64")]
    return _distinct_in([np.empty(0), *(_finite_values(origins, name, rows) for name in numeric)])


def _distinct_in(columns: list[Degrees]) -> Degrees:
    """Leaves out columns that repeat another, as degrees do those of a point."""
    own = [one for place, one in enumerate(columns) if not any(np.array_equal(one, two) for two in columns[:place])]
    return distinct(np.concatenate(own))


def _finite_values(origins: Origins, name: str, rows: npt.NDArray[np.bool_]) -> Degrees:
    column: Degrees = origins.table.column(name).to_numpy(zero_copy_only=False)[rows].astype(np.float64)
    finite: Degrees = column[np.isfinite(column)]
    return finite
