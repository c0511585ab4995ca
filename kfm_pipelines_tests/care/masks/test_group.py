"""Grouping publishes counts only, and nothing that can be derived from them describes too few features."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import h3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from kfm_pipelines.care.masks import MaskingResult
from kfm_pipelines.care.masks.features import Features
from kfm_pipelines.care.masks.group import choose_groups
from kfm_pipelines.care.masks.rows import AnonymitySet
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines_tests.fixtures.care.sites_to_mask import around, group, mask, scattered, sites

K = 5
FOUR = [h3.cell_to_latlng(h3.latlng_to_cell(37.6 + step, -98.0, 3))[::-1] for step in (0.0, 1.2)] + [
    h3.cell_to_latlng(h3.latlng_to_cell(37.6 + step, -96.0, 3))[::-1] for step in (0.0, 1.2)
]


def cell_at(place: tuple[float, float], resolution: int = 3) -> str:
    return str(h3.latlng_to_cell(place[1], place[0], resolution))


def grouped(table: pa.Table, *resolutions: int, by: Sequence[str] = ()) -> MaskingResult:
    return mask(table, {"restricted": group(*resolutions, by=by)}, minimum_count=K)


def counts(masked: MaskingResult) -> dict[str | None, int]:
    return {row["cell"]: row["records"] for row in masked.table.to_pylist()}


def restricted(longitudes: Sequence[float], latitudes: Sequence[float], **columns: Sequence[Any]) -> pa.Table:
    return sites(longitudes, latitudes, "restricted", **columns)


def test_the_places_of_these_tests_lie_in_different_cells() -> None:
    assert len({cell_at(place) for place in FOUR}) == 4


@pytest.mark.parametrize(
    ("features", "published"),
    [
        ([5, 6, 9, 10], [5, 5, 5, 10]),
        ([2, 3, 7, 12], [None, None, 5, 10]),
        ([1, 2, 7, 12], [None, None, None, 10]),  # three would be too few, so the smallest group joins them
        ([4, 6, 7, 12], [None, None, 5, 10]),
        ([4, 5, 0, 0], [None, None, 0, 0]),
    ],
)
def test_counts_are_rounded_down_and_small_groups_are_counted_together(
    features: list[int], published: list[int | None]
) -> None:
    found = counts(grouped(restricted(*around(FOUR, features)), 3))
    assert {cell: number for cell, number in found.items() if cell} == {
        cell_at(place): number for place, number in zip(FOUR, published, strict=True) if number
    }
    together = sum(many for many, number in zip(features, published, strict=True) if number is None)
    assert found.get(None, 0) == together // K * K


def test_too_few_features_altogether_are_not_counted() -> None:
    masked = grouped(restricted(*around(FOUR, [1, 1, 1, 1])), 3, 4)
    assert (masked.table.num_rows, masked.crosswalk.num_rows) == (0, 0)


def test_a_row_stands_for_a_cell_and_carries_nothing_of_a_single_record() -> None:
    [row] = grouped(restricted(*around(FOUR[:1], [7])), 3).table.to_pylist()
    latitude, longitude = h3.cell_to_latlng(cell_at(FOUR[0]))
    assert (row["cell"], row["longitude"], row["latitude"]) == (cell_at(FOUR[0]), longitude, latitude)
    assert (row["period"], row["condition"], row["records"]) == (None, None, 5)


def test_records_of_one_feature_count_once() -> None:
    ids = [f"INVENTED-{number % 9}" for number in range(20)]
    masked = grouped(restricted(*around(FOUR[:1], [20]), site_id=ids), 3)
    assert counts(masked) == {cell_at(FOUR[0]): 5}


@pytest.mark.parametrize(("spots", "published"), [(1, [None, None, 10]), (4, [None, None, 10]), (5, [5, 5, 10])])
def test_many_features_at_too_few_places_do_not_reveal_their_cell(spots: int, published: list[int | None]) -> None:
    """The smallest of the other cells joins them, so that they are not the only ones without a cell."""
    longitudes, latitudes = around(FOUR[:3], [spots, 9, 12])
    extra = 8 - spots
    table = restricted([*longitudes[:1] * extra, *longitudes], [*latitudes[:1] * extra, *latitudes])
    expected = {cell_at(place): number for place, number in zip(FOUR, published, strict=False) if number}
    assert counts(grouped(table, 3)) == expected | ({None: 15} if None in published else {})


def test_features_at_too_few_places_of_a_single_cell_are_refused() -> None:
    [longitude], [latitude] = around(FOUR[:1], [1])
    with pytest.raises(PolicyRefused, match=r"^all records of class 'restricted' are in one group, at fewer places"):
        grouped(restricted([longitude] * 9, [latitude] * 9), 3, 4)


def test_groups_by_a_column_keep_its_value() -> None:
    table = restricted(
        *around(FOUR[:2], [12, 7]), period=["archaic"] * 5 + ["woodland"] * 7 + ["woodland"] * 5 + ["historic"] * 2
    )
    masked = grouped(table, 3, by=["period"])
    first, second = cell_at(FOUR[0]), cell_at(FOUR[1])
    found = {(row["cell"], row["period"], row["records"], row["condition"]) for row in masked.table.to_pylist()}
    # Two alone would be too few, so a group of five is dropped as well: that of the first cell.
    dropped = min((first, "archaic"), (second, "woodland"))
    left = {(first, "archaic"), (second, "woodland")} - {dropped}
    assert found == {(first, "woodland", 5, None), (None, None, 5, None), *((*one, 5, None) for one in left)}


def test_a_null_is_a_value_to_group_by() -> None:
    masked = grouped(restricted(*around(FOUR[:1], [10]), condition=["good"] * 5 + [None] * 5), 3, by=["condition"])
    assert [(row["condition"], row["records"]) for row in masked.table.to_pylist()] == [("good", 5), (None, 5)]


def test_a_finer_cell_is_dropped_when_it_leaves_too_few_features_of_a_coarser_one() -> None:
    one, other = [h3.cell_to_latlng(cell)[::-1] for cell in list(h3.cell_to_children(cell_at(FOUR[0]), 5))[:2]]
    assert cell_at(one) == cell_at(other) == cell_at(FOUR[0])
    for resolutions in ((3, 5), (5, 3)):
        few = grouped(restricted(*around([one, other], [6, 4])), *resolutions)
        assert counts(few) == {cell_at(FOUR[0]): 10}
    assert counts(grouped(restricted(*around([one, other], [6, 5])), 5, 3)) == {
        cell_at(FOUR[0]): 10,
        cell_at(one, 5): 5,
        cell_at(other, 5): 5,
    }


def test_a_finer_cell_is_dropped_when_it_leaves_too_few_places_of_a_coarser_one() -> None:
    one, other = [h3.cell_to_latlng(cell)[::-1] for cell in list(h3.cell_to_children(cell_at(FOUR[0]), 5))[:2]]
    longitudes, latitudes = around([one, other], [6, 1])
    together = restricted([*longitudes, *longitudes[-1:] * 5], [*latitudes, *latitudes[-1:] * 5])
    assert counts(grouped(together, 3, 5)) == {cell_at(FOUR[0]): 10}


def test_a_cell_across_a_border_is_dropped_when_one_side_has_too_few() -> None:
    inside, outside, *_ = crossings(1)
    away = [h3.cell_to_latlng(cell_at(place))[::-1] for place in (inside, outside)]
    crossing = cell_at(inside, 4)
    few = grouped(restricted(*around([inside, outside, *away], [6, 4, 8, 8])), 3, 4)
    assert crossing not in counts(few)
    enough = grouped(restricted(*around([inside, outside, *away], [6, 5, 8, 8])), 3, 4)
    assert counts(enough)[crossing] == 10


def test_no_more_finer_groups_are_dropped_than_necessary() -> None:
    """Two parts each have two features left over. The group dropped for the first part is in the second as well, which
    then needs no other."""
    in_part = {0: {0: 6, 1: 20, 3: 2}, 1: {0: 7, 2: 5, 3: 2}}
    pairs = [(part, group) for part, groups in in_part.items() for group, many in groups.items() for _ in range(many)]
    parts, finer = (np.array(one) for one in zip(*pairs, strict=True))
    everyone = Features(np.arange(len(pairs)), len(pairs), unique=True)
    [coarse, fine] = choose_groups(AnonymitySet(everyone), [parts, finer], K)
    assert coarse.released.tolist() == [True, True]
    assert fine.released.tolist() == [False, True, True, False]


def crossings(number: int) -> list[tuple[float, float]]:
    """Returns places on both sides of resolution 3 borders, in shared cells of resolution 4, and the centres there."""
    sides: dict[str, dict[str, tuple[float, float]]] = {}
    for longitude, latitude in zip(*(one.tolist() for one in scattered(4000)), strict=True):
        if -101 < longitude < -95.6 and 37.9 < latitude < 39.2:  # keeps the centres in Kansas as well
            place = (longitude, latitude)
            sides.setdefault(cell_at(place, 4), {})[cell_at(place)] = place
    crossed = [sides[fine] for fine in sorted(sides) if len(sides[fine]) > 1][:number]
    middles = {coarse for both in crossed for coarse in both}
    return [place for both in crossed for place in both.values()] + [
        (longitude, latitude) for latitude, longitude in map(h3.cell_to_latlng, sorted(middles))
    ]


Records = list[tuple[tuple[float, float], str, int]]
_PLACES = crossings(4)


def records_of(counts: list[int], features: int, spots: int) -> Records:
    """Returns the given numbers of records near each place and of each period. With fewer features or spots than
    records, some are shared."""
    where = [(place, period) for place in _PLACES for period in ("archaic", "woodland")]
    spread = [one for one, many in zip(where, counts, strict=True) for _ in range(many)]
    return [
        ((place[0] + number % spots * 1e-8, place[1]), period, number % features)
        for number, (place, period) in enumerate(spread)
    ]


# Near the minimum, where mistakes are likely.
_COUNTS = st.lists(st.integers(0, K + 3), min_size=2 * len(_PLACES), max_size=2 * len(_PLACES))
_RECORDS = st.builds(records_of, _COUNTS, st.sampled_from([1000, 23]), st.sampled_from([1000, 7, 3]))
_BY = st.sampled_from([[], ["period"]])


def table_of(records: Records) -> pa.Table:
    return restricted(
        [place[0] for place, _, _ in records],
        [place[1] for place, _, _ in records],
        period=[period for _, period, _ in records],
        site_id=[f"INVENTED-{feature}" for _, _, feature in records],
    )


def grouped_if_possible(records: Records, *resolutions: int, by: Sequence[str]) -> MaskingResult:
    try:
        return grouped(table_of(records), *resolutions, by=by)
    except PolicyRefused:
        reject()


def spots_of(records: Records, rows: list[int]) -> int:
    return len({records[row][0] for row in rows})


def features_of(records: Records, rows: list[int]) -> int:
    return len({records[row][2] for row in rows})


@pytest.mark.slow
@settings(max_examples=150)
@given(_RECORDS, _BY)
def test_no_count_and_no_combination_of_counts_describes_too_few_features(records: Records, by: list[str]) -> None:
    masked = grouped_if_possible(records, 3, 4, 5, by=by)
    rows_of = rows_by_record(masked)
    for row in masked.table.to_pylist():
        there = features_of(records, rows_of[row["record"]])
        assert there >= K
        assert row["cell"] is None or spots_of(records, rows_of[row["record"]]) >= K
        assert row["records"] == there // K * K
    atoms: dict[tuple[int, ...], list[int]] = {}
    for number, into in records_by_row(masked, len(records)).items():
        atoms.setdefault(into, []).append(number)
    if masked.table.num_rows:
        assert all(features_of(records, rows) >= K for rows in atoms.values())
        remainder = {(row["record"],) for row in masked.table.to_pylist() if row["cell"] is None}
        assert all(spots_of(records, rows) >= K for into, rows in atoms.items() if into not in remainder)
        assert () not in atoms, "every record is counted at the coarsest resolution"


@pytest.mark.slow
@settings(max_examples=100)
@given(_RECORDS, _BY, st.tuples(st.sampled_from(_PLACES), st.just("archaic"), st.just(5000)))
def test_one_record_changes_counts_by_multiples_of_the_minimum_only(
    records: Records, by: list[str], one: tuple[tuple[float, float], str, int]
) -> None:
    without, with_it = (published(grouped_if_possible(some, 3, 4, by=by)) for some in (records, [*records, one]))
    for key in without.keys() | with_it.keys():
        assert (with_it[key] - without[key]) % K == 0
    assert all(count >= K for count in [*without.values(), *with_it.values()])


@pytest.mark.slow
@settings(max_examples=60)
@given(_RECORDS, _BY, st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(records: Records, by: list[str], random: Any) -> None:
    shuffled = list(records)
    random.shuffle(shuffled)
    one, other = (grouped_if_possible(some, 3, 4, by=by) for some in (records, shuffled))
    assert one.table.equals(other.table)
    assert one.measures == other.measures


def published(masked: MaskingResult) -> Counter[tuple[str | None, str | None]]:
    return Counter({(row["cell"], row["period"]): row["records"] for row in masked.table.to_pylist()})


def rows_by_record(masked: MaskingResult) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pair in masked.crosswalk.to_pylist():
        found.setdefault(pair["record"], []).append(pair["row"])
    return found


def records_by_row(masked: MaskingResult, rows: int) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = dict.fromkeys(range(rows), ())
    for pair in masked.crosswalk.to_pylist():
        found[pair["row"]] = (*found[pair["row"]], pair["record"])
    return found


def test_many_records_release_cells_of_every_resolution() -> None:
    """The cases that the properties above cover do occur."""
    masked = grouped(restricted(*(one.tolist() for one in scattered(4000))), 3, 4)
    resolutions = Counter(h3.get_resolution(cell) for cell in counts(masked) if cell)
    assert resolutions[3] > 10
    assert resolutions[4] > 50
    assert (
        np.sum([number for cell, number in counts(masked).items() if not cell or h3.get_resolution(cell) == 3]) > 3800
    )
