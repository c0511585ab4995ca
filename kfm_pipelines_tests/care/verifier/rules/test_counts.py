"""Rules on counts: each one broken once, and nothing else found."""

import h3
import pytest

from kfm_pipelines_tests.fixtures.care.handmade_releases import Release, centre, near
from kfm_pipelines_tests.fixtures.care.honest_releases import BLOCKS, FINE, LONELY, OTHER, register_release
from kfm_pipelines_tests.fixtures.care.tampering import Change, rules_of, show


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
    """Leaves one feature of the coarse cell out of both fine cells, which reveals it."""
    row = release.of("restricted")[3].rows.pop()
    release.rows[row].update(near(*centre(FINE[2]), 1, [3, 4])[0])


COUNTS: dict[str, tuple[Change, str]] = {
    "too high a count": (show("restricted", 0, records=15), "count-true"),
    "too low a count": (show("restricted", 0, records=5), "count-true"),
    "four features in a cell": (same_features("generalised", slice(0, 7)), "cell-minimum"),
    "four features without a place": (same_features("withheld", slice(0, 3)), "placeless-minimum"),
    "eight features in a cell": (same_features("generalised", slice(0, 3)), "cell-steps"),
    "four features that lost theirs": (same_features("generalised", slice(20, 22)), "placeless-minimum"),
    "two resolutions that isolate one feature": (overlap, "combination-minimum"),
    "a remainder of one group": (lonely_together, "remainder"),
    "two remainders": (second_remainder, "remainder"),
    "a place in another cell": (elsewhere, "place-in-cell"),
}


@pytest.mark.parametrize(("change", "rule"), COUNTS.values(), ids=COUNTS)
def test_a_changed_count_breaks_one_rule(change: Change, rule: str) -> None:
    release = register_release()
    change(release)
    assert rules_of(release) == {rule}


def test_a_group_of_too_few_features_is_found() -> None:
    """Two of its features are one, which the rounded count does not show."""
    release = register_release()
    for row in release.of("restricted")[1].rows[:4]:
        release.rows[row]["site_id"] = "one-and-the-same"
    assert rules_of(release) == {"cell-minimum", "combination-minimum", "count-true"}


def test_a_place_outside_the_parent_cell_is_found() -> None:
    """A place near the border can lie in a cell and outside the parent of that cell."""
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
