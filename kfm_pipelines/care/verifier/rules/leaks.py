"""Rules against leaks: no protected value is in published numbers, texts or documents; see `file_bytes` for files."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kfm_pipelines.care.rules import Leave
from kfm_pipelines.care.verifier.case import Case, RuleScope
from kfm_pipelines.care.verifier.evidence import Breach
from kfm_pipelines.care.verifier.protected_values import (
    find_decimals,
    find_grid_numbers,
    numbers_in,
    rounding_step,
    texts_in,
)
from kfm_pipelines.care.verifier.search.bbox import published_numbers
from kfm_pipelines.care.verifier.search.cells import is_cell
from kfm_pipelines.care.verifier.search.phrases import is_number
from kfm_pipelines.care.verifier.types import Floats

NumberTexts = tuple[list[str], list[str]]  # degrees and metres of one text
_CELL = re.compile(r"(?<![0-9a-z])8[0-9a-f]{14}(?![0-9a-z])")
_MIN_GRID_COORDINATE = 10_000  # smaller whole numbers are shelf marks or the like
_TIMESTAMP = re.compile(r"\d{4}-\d{2}(-\d{2})?([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?(Z|[+-]\d{2}:\d{2})?")


def numbers_are_not_places(case: Case) -> Iterator[Breach]:
    """Numbers with few digits are compared with the places of their own row only."""
    scopes = list(_hidden_scopes(case))
    hidden = np.concatenate([np.empty(0, np.int64), *(scope.records for scope in scopes)])
    rows = [(scope, list(_row_places(case, scope))) for scope in scopes]
    for name in _columns_of_type(case, "double", "int64"):
        found = case.places.count_matches(case.floats(name, hidden))
        found += sum(_count_own_places(case.floats(name, scope.link_records), places) for scope, places in rows)
        if found:
            yield Breach("leak-number", name, "no number that is a protected place", f"{found} of them")


def texts_hold_nothing_withheld(case: Case) -> Iterator[Breach]:
    for name in _kept_text_columns(case):
        texts = [text for text in case.encoded(name).distinct.to_pylist() if text]
        held = sum(map(bool, case.protected_phrases.find_in_each(texts)))
        if held:
            yield Breach("leak-text", name, "no text that holds a withheld value", f"{held} different texts")


def texts_hold_no_coordinates(case: Case) -> Iterator[Breach]:
    for name in _kept_text_columns(case):
        texts = case.encoded(name)
        distinct = texts.distinct.to_pylist()
        held = sum(_reveals_place(case, text) for text in distinct if text)
        numbers = [(find_decimals(text), find_grid_numbers(text)) for text in distinct]
        rows = ((scope, texts.codes[scope.link_records]) for scope in _hidden_scopes(case))
        held += sum(_count_own_places_in_texts(case, scope, numbers, codes) for scope, codes in rows)
        if held:
            yield Breach("leak-coordinates", name, "no text with coordinates", f"{held} texts")


def documents_hold_nothing_protected(case: Case) -> Iterator[Breach]:
    for subject, documents in (
        ("item", [case.item]),
        ("documents", [*case.documents, *case.evidence.documents, *case.evidence.records]),
    ):
        texts = [_TIMESTAMP.sub(" ", text) for document in documents for text in texts_in(document)]
        yield from search_for_leaks(case, subject, texts, (number for one in documents for number in numbers_in(one)))


def search_for_leaks(case: Case, subject: str, texts: Iterable[str], numbers: Iterable[float]) -> Iterator[Breach]:
    """Ignores the outermost coordinates, which the published table itself gives."""
    texts = list(texts)
    held = sum(any(map(_is_identifying, phrases)) for phrases in case.protected_phrases.find_in_each(texts))
    if held:
        yield Breach("leak-text", subject, "no withheld value", f"{held} texts with one")
    written = [number for text in texts for number in find_decimals(text)]
    written += [number for value in numbers for number in find_decimals(f"{value!r}")]
    open_to_all = published_numbers(case)
    near = sum(
        case.places.matches_decimal(number) and not _matches_published(number, open_to_all) for number in written
    )
    near += sum(_count_unpublished_cells(case, text) for text in texts)
    if near:
        yield Breach("leak-coordinates", subject, "no protected coordinate", f"{near} that are near one")


def _count_unpublished_cells(case: Case, text: str) -> int:
    return sum(is_cell(found) and found not in case.cells.names for found in _CELL.findall(text.lower()))


def _is_identifying(phrase: str) -> bool:
    """Short numbers in documents are years or counts."""
    return not is_number(phrase) or len(phrase) >= 6


def _matches_published(number_text: str, numbers: npt.NDArray[np.float64]) -> bool:
    return bool((abs(numbers - float(number_text)) <= 0.51 * rounding_step(number_text)).any())


def _reveals_place(case: Case, text: str) -> bool:
    """Finds a pair of numbers in the dataset's extent, or a number that can only be a protected coordinate."""
    found = find_decimals(text)
    if _count_unpublished_cells(case, text) or any(
        case.in_extent(float(one), float(other)) for one, other in pairwise(found)
    ):
        return True
    return any(not case.places.is_dense_at(number) and case.places.matches_decimal(number) for number in found)


def _count_own_places(values: Floats, row_places: Sequence[Floats]) -> int:
    """Counts numbers that are a coordinate of their own row."""
    found = np.zeros(len(values), np.bool_)
    for places in row_places:
        found |= values == places
    same = values[found]
    marked = (np.round(same, 2) != same) | (np.abs(same) >= 1000)
    return int((marked & np.isfinite(same)).sum())


def _count_own_places_in_texts(
    case: Case, scope: RuleScope, numbers: Sequence[NumberTexts], codes: npt.NDArray[np.int32]
) -> int:
    """Counts numbers in texts that are a coordinate of their own row: degrees with three decimals or metres."""
    some = np.array([bool(degrees or grid) for degrees, grid in numbers] + [False], dtype=np.bool_)
    rows, found = np.flatnonzero(some[codes]), 0
    if not len(rows):
        return 0
    for text, *places in zip(codes[rows], *(places[rows] for places in _row_places(case, scope)), strict=True):
        degrees, grid = numbers[text]
        far = [place for place in places if abs(place) >= _MIN_GRID_COORDINATE]
        found += sum(_matches_any(number, places) for number in degrees) + sum(
            _matches_any(number, far) for number in grid
        )
    return found


def _matches_any(number_text: str, places: Iterable[float]) -> bool:
    return any(abs(abs(float(number_text)) - abs(place)) < rounding_step(number_text) for place in places)


def _row_places(case: Case, scope: RuleScope) -> Iterator[Floats]:
    yield case.origins.longitudes[scope.link_rows]
    yield case.origins.latitudes[scope.link_rows]
    for column in case.dataset.table.columns:
        if column.name in case.dataset.table.place_columns and column.type in ("float64", "int64"):
            yield case.original_floats(column.name, scope.link_rows)


def _hidden_scopes(case: Case) -> Iterator[RuleScope]:
    return (scope for scope in case.scopes if not isinstance(scope.rule, Leave))


def _kept_text_columns(case: Case) -> list[str]:
    return [name for name in _columns_of_type(case, "string") if name in case.policy.columns.keep]


def _columns_of_type(case: Case, *types: str) -> list[str]:
    return [field.name for field in case.schema if str(field.type) in types and field.name != "record"]


RULES = (
    numbers_are_not_places,
    texts_hold_nothing_withheld,
    texts_hold_no_coordinates,
    documents_hold_nothing_protected,
)
