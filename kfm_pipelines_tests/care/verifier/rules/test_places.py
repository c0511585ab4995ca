"""The verifier on places and counts: each rule broken once, and nothing else found."""

import math
import random
from collections.abc import Callable
from typing import Any

import h3
import pytest
import shapely

from kfm_pipelines_tests.fixtures.care.handmade_releases import Release, cell_place, centre, near
from kfm_pipelines_tests.fixtures.care.honest_releases import (
    BLOCKS,
    COARSE,
    FINE,
    LONELY,
    OTHER,
    add_shape,
    displaced_release,
    move,
    register_release,
    shapes_release,
    told_twice_release,
)
from kfm_pipelines_tests.fixtures.care.tampering import Change, rules_of

IN_FIRST = slice(0, 10)  # records of the first cell
ALONE = slice(20, 25)  # records that lost their place


def show(sensitivity: str, which: int, **values: Any) -> Change:
    return lambda release: release.of(sensitivity)[which].values.update(values)


def finer(release: Release) -> None:
    cell = h3.latlng_to_cell(*centre(BLOCKS[0]), 6)
    for record in release.of("generalised")[IN_FIRST]:
        record.values.update(cell_place(cell))
        place = release.rows[record.rows[0]]
        place.update(near(*centre(cell), 10, [5, 6])[record.rows[0] % 10])


def finer_group(release: Release) -> None:
    release.of("restricted")[2].values.update(cell_place(h3.latlng_to_cell(*centre(FINE[0]), 5)))


def same_features(sensitivity: str, which: slice) -> Change:
    def change(release: Release) -> None:
        for record in release.of(sensitivity)[which]:
            release.rows[record.rows[0]]["site_id"] = "one-and-the-same"

    return change


def elsewhere(release: Release) -> None:
    release.rows[release.of("generalised")[0].rows[0]].update(near(*centre(BLOCKS[1]), 9, [5])[8])


def lonely_together(release: Release) -> None:
    places = near(*centre(LONELY[0]), 9, [3])
    for row, place in zip(release.of("restricted")[4].rows, places[3:], strict=True):
        release.rows[row].update(place)


def second_remainder(release: Release) -> None:
    record = release.of("restricted")[1]
    record.values = {"sensitivity": "restricted", "records": 5}


def overlap(release: Release) -> None:
    """One feature of the coarse cell is in no fine one, which its two fine cells give away."""
    row = release.of("restricted")[3].rows.pop()
    release.rows[row].update(near(*centre(FINE[2]), 1, [3, 4])[0])


REGISTER: dict[str, tuple[Change, str]] = {
    "a withheld cell": (show("withheld", 0, cell=COARSE), "place-suppressed"),
    "a withheld longitude": (show("withheld", 0, longitude=-98.25), "place-suppressed"),
    "a withheld latitude": (show("withheld", 0, latitude=38.25), "place-suppressed"),
    "a withheld uncertainty": (show("withheld", 0, uncertainty_m=5000.0), "place-suppressed"),
    "no H3 cell": (show("generalised", 0, cell="nonsense"), "place-cell"),
    "a cell in capitals": (show("generalised", 0, cell=BLOCKS[0].upper()), "place-cell"),
    "a place without a cell": (show("generalised", 0, cell=None), "place-cell"),
    "a finer cell": (finer, "place-resolution"),
    "a finer group": (finer_group, "place-resolution"),
    "a longitude beside the centre": (show("generalised", 0, longitude=-99.0), "place-centre"),
    "a latitude beside the centre": (show("restricted", 0, latitude=38.5), "place-centre"),
    "no longitude": (show("generalised", 0, longitude=None), "place-centre"),
    "a latitude that is no number": (show("generalised", 0, latitude=float("nan")), "place-centre"),
    "an uncertainty of its own": (show("generalised", 0, uncertainty_m=12000.0), "place-uncertainty"),
    "too little uncertainty": (show("restricted", 0, uncertainty_m=100.0), "place-uncertainty"),
    "no uncertainty": (show("restricted", 0, uncertainty_m=None), "place-uncertainty"),
    "an open place that moved": (show("open", 0, longitude=-97.7), "place-left"),
    "an open place with doubts": (show("open", 0, uncertainty_m=5.0), "place-left"),
    "an open place in a cell": (show("open", 0, cell=BLOCKS[0]), "place-left"),
    "a record that counts twice": (show("generalised", 0, records=2), "record-counts"),
    "an exact count": (show("restricted", 0, records=12), "record-counts"),
    "no count": (show("withheld", 0, records=None), "record-counts"),
    "too high a count": (show("restricted", 0, records=15), "count-true"),
    "too low a count": (show("restricted", 0, records=5), "count-true"),
    "four features in a cell": (same_features("generalised", slice(0, 7)), "cell-minimum"),
    "four features without a place": (same_features("withheld", slice(0, 3)), "placeless-minimum"),
    "eight features in a cell": (same_features("generalised", slice(0, 3)), "cell-steps"),
    "four features that lost theirs": (same_features("generalised", slice(20, 22)), "placeless-minimum"),
    "two resolutions that tell one apart": (overlap, "combination-minimum"),
    "a remainder of one group": (lonely_together, "remainder"),
    "two remainders": (second_remainder, "remainder"),
    "a place in another cell": (elsewhere, "place-in-cell"),
}


@pytest.mark.parametrize(("change", "rule"), REGISTER.values(), ids=REGISTER)
def test_each_rule_of_places_and_counts_is_found_broken(change: Change, rule: str) -> None:
    release = register_release()
    change(release)
    assert rules_of(release) == {rule}


def test_a_group_of_too_few_is_found() -> None:
    """Its count, rounded down, says nothing of that: two of the features are one."""
    release = register_release()
    for row in release.of("restricted")[1].rows[:4]:
        release.rows[row]["site_id"] = "one-and-the-same"
    assert rules_of(release) == {"cell-minimum", "combination-minimum", "count-true"}


def test_cells_are_told_apart_from_their_parents() -> None:
    """A place near the border can lie in a cell whose parent it does not lie in."""
    release = register_release()
    row = release.of("restricted")[1].rows[0]
    border = next(
        (latitude, longitude)
        for child in h3.cell_to_children(OTHER, 7)
        for latitude, longitude in [h3.cell_to_latlng(child)]
        if h3.latlng_to_cell(latitude, longitude, 3) != OTHER
    )
    release.rows[row].update(latitude=border[0], longitude=border[1])
    assert rules_of(release) == {"place-in-cell"}


def moved(release: Release, which: int, bearing: float, distance: float) -> None:
    rows = release.records[which].rows
    release.records.insert(which, move(release, rows[0], bearing, distance))
    release.records.pop()
    release.records.pop(which + 1)


def all_moved(bearing: float, turn: float, distance: float, step: float) -> Change:
    def change(release: Release) -> None:
        for which in range(len(release.records)):
            moved(release, which, bearing + turn * (which % 24), distance + step * (which % 24))

    return change


DISPLACED: dict[str, tuple[Change, str]] = {
    "not far enough": (lambda r: moved(r, 3, 77.0, 999.9), "displacement-distance"),
    "too far": (lambda r: moved(r, 3, 77.0, 5000.1), "displacement-distance"),
    "all the same way": (all_moved(33.0, 0.5, 1200.0, 150.0), "displacement-pattern"),
    "along the axes": (all_moved(90.01, 90.0, 1200.0, 150.0), "displacement-pattern"),
    "all as far": (all_moved(33.0, 47.3, 2500.0, 1.0), "displacement-pattern"),
    "a feature two ways": (lambda r: moved(r, 24, 200.0, 2000.0), "displacement-feature"),
    "a feature as far another way": (lambda r: moved(r, 24, 12.1, 1200.0), "displacement-feature"),
    "a cell": (lambda r: r.records[0].values.update(cell=COARSE), "place-displaced"),
    "less uncertainty": (lambda r: r.records[0].values.update(uncertainty_m=1000.0), "place-displaced"),
    "no uncertainty": (lambda r: r.records[0].values.update(uncertainty_m=None), "place-displaced"),
    "no place": (lambda r: r.records[3].values.update(longitude=None), "displacement-distance"),
}


@pytest.mark.parametrize(("change", "rule"), DISPLACED.values(), ids=DISPLACED)
def test_each_rule_of_displacement_is_found_broken(change: Change, rule: str) -> None:
    release = displaced_release()
    change(release)
    assert rules_of(release) == {rule}


def few(release: Release, number: int) -> None:
    """Only so many features."""
    del release.rows[number:], release.records[number:]


def far_apart(release: Release) -> None:
    for place, row in enumerate(release.rows):
        row.update(longitude=-101.2 + place * 0.6180339 % 1 * 6.0, latitude=37.2 + place * 0.7548777 % 1 * 2.6)


@pytest.mark.parametrize("number", [3, 4, 7, 19])
@pytest.mark.parametrize("bearing", [0.01, 33.0, 179.999])
def test_one_move_for_all_is_found_from_three_features_on(number: int, bearing: float) -> None:
    release = displaced_release()
    few(release, number)
    far_apart(release)
    all_moved(bearing, 0.0, 2500.0, 0.0)(release)
    assert rules_of(release) == {"displacement-pattern"}


@pytest.mark.parametrize("number", [3, 4, 7, 19])
def test_the_same_degrees_for_all_are_found_from_three_features_on(number: int) -> None:
    release = displaced_release()
    few(release, number)
    far_apart(release)
    for row, record in zip(release.rows, release.records, strict=True):
        record.values.update(longitude=row["longitude"] + 0.021, latitude=row["latitude"] + 0.017)
    assert rules_of(release) == {"displacement-pattern"}


def test_two_features_may_happen_to_move_alike() -> None:
    release = displaced_release()
    few(release, 2)
    all_moved(33.0, 0.0, 2500.0, 0.0)(release)
    assert rules_of(release) == set()


@pytest.mark.slow
@pytest.mark.parametrize("number", [3, 5, 10, 19])
def test_honest_moves_are_no_pattern(number: int) -> None:
    chance = random.Random(20260601)
    for _ in range(30):
        release = displaced_release()
        few(release, number)
        for which in range(number):
            moved(release, which, chance.uniform(0, 360), math.sqrt(chance.uniform(1000.0**2, 5000.0**2)))
        assert rules_of(release) == set()


@pytest.mark.parametrize(("factor", "rules"), [(1.49, set()), (2.09, set()), (2.15, {"place-uncertainty"})])
def test_shapes_may_reach_out_of_their_cell_but_not_far(factor: float, rules: set[str]) -> None:
    release = shapes_release()
    for record in release.records:
        if record.values.get("cell") and len(release.rows[record.rows[0]]["geometry"]) > 21:
            record.values["uncertainty_m"] *= factor / 1.01
    assert rules_of(release) == rules


@pytest.mark.parametrize(
    ("factor", "rules"), [(0.98, {"place-uncertainty"}), (1.0, set()), (1.02, {"place-uncertainty"})]
)
def test_a_point_is_as_uncertain_as_its_cell_is_wide(factor: float, rules: set[str]) -> None:
    """A radius of one cell's own would be a message."""
    release = register_release()
    for record in release.of("generalised")[IN_FIRST]:
        record.values["uncertainty_m"] *= factor
    assert rules_of(release) == rules


def test_both_tellings_of_a_displaced_point_agree() -> None:
    release = told_twice_release()
    release.records[0].values["geometry"] = release.records[1].values["geometry"]
    assert rules_of(release) == {"place-displaced"}


def test_a_displaced_geometry_is_told_in_no_more_bytes_than_a_point_needs() -> None:
    release = told_twice_release()
    release.records[0].values["geometry"] += b"x"
    assert rules_of(release) == {"place-displaced"}


def outline(cell: str) -> bytes:
    geometry: bytes = cell_place(cell, shape=True)["geometry"]
    return geometry


def stretched(release: Release) -> None:
    """Its middle is in the cell and its end is not."""
    latitude, longitude = centre(BLOCKS[0])
    long = shapely.box(longitude - 0.5001937, latitude, longitude + 0.5001937, latitude + 0.0101913)
    release.rows[0]["geometry"] = shapely.to_wkb(long)


def coarser(release: Release) -> None:
    """As many again, too long for a cell of the rule's resolution."""
    latitude, longitude = centre(COARSE)
    for step in range(1, 6):
        west = longitude - 0.2001937 + 0.0011937 * step
        add_shape(release, shapely.box(west, latitude, west + 0.4000391, latitude + 0.0101913), COARSE)


def every_outline(change: Callable[[bytes], bytes]) -> Change:
    """The same for all, so that only the outline itself can tell."""

    def changed(release: Release) -> None:
        for record in release.records:
            if "geometry" in record.values:
                record.values["geometry"] = change(record.values["geometry"])

    return changed


SHAPES: dict[str, tuple[Change, str]] = {
    "another outline everywhere": (every_outline(lambda _: outline(BLOCKS[1])), "place-outline"),
    "bytes after every outline": (every_outline(lambda wkb: wkb + b"x"), "place-outline"),
    "another outline": (lambda r: r.records[0].values.update(geometry=outline(BLOCKS[1])), "place-outline"),
    "no outline": (lambda r: r.records[0].values.update(geometry=None), "place-outline"),
    "garbage": (lambda r: r.records[0].values.update(geometry=b"\x01\x02"), "place-outline"),
    "no bytes": (lambda r: r.records[0].values.update(geometry=b""), "place-outline"),
    "an unknown order of bytes": (lambda r: r.records[0].values.update(geometry=b"\x07"), "place-outline"),
    "bytes after the outline": (
        lambda r: r.records[0].values.update(geometry=outline(BLOCKS[0]) + b"x"),
        "place-outline",
    ),
    "a line with a place": (lambda r: r.records[1].values.update(geometry=outline(BLOCKS[0])), "place-suppressed"),
    "a shape that reaches out of its circle": (stretched, "place-in-cell"),
}


@pytest.mark.parametrize(("change", "rule"), SHAPES.values(), ids=SHAPES)
def test_each_rule_of_shapes_is_found_broken(change: Change, rule: str) -> None:
    release = shapes_release()
    # One more of each, so that five are left.
    latitude, longitude = centre(BLOCKS[0])
    add_shape(release, shapely.box(longitude, latitude, longitude + 0.0033917, latitude + 0.0033917), BLOCKS[0])
    add_shape(release, shapely.LineString([(longitude + 0.0031, latitude), (longitude + 0.0331937, latitude)]), None)
    change(release)
    assert rules_of(release) == {rule}


def test_shapes_may_be_in_coarser_cells() -> None:
    release = shapes_release()
    coarser(release)
    assert rules_of(release) == set()
