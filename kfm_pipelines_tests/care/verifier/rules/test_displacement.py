"""Rules on displaced points: each one broken once, and honest moves pass."""

import math
import random

import pytest

from kfm_pipelines_tests.fixtures.care.handmade_releases import Release
from kfm_pipelines_tests.fixtures.care.honest_releases import COARSE, displaced_release, move
from kfm_pipelines_tests.fixtures.care.tampering import Change, rules_of


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
def test_a_changed_displacement_breaks_one_rule(change: Change, rule: str) -> None:
    release = displaced_release()
    change(release)
    assert rules_of(release) == {rule}


def few(release: Release, number: int) -> None:
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
def test_one_offset_in_degrees_for_all_is_found_from_three_features_on(number: int) -> None:
    release = displaced_release()
    few(release, number)
    far_apart(release)
    for row, record in zip(release.rows, release.records, strict=True):
        record.values.update(longitude=row["longitude"] + 0.021, latitude=row["latitude"] + 0.017)
    assert rules_of(release) == {"displacement-pattern"}


def test_two_features_may_move_alike_by_chance() -> None:
    release = displaced_release()
    few(release, 2)
    all_moved(33.0, 0.0, 2500.0, 0.0)(release)
    assert rules_of(release) == set()


@pytest.mark.parametrize("number", [3, 5, 10, 19])
def test_random_moves_are_no_pattern(number: int) -> None:
    chance = random.Random(20260601)
    for _ in range(10):
        release = displaced_release()
        few(release, number)
        for which in range(number):
            moved(release, which, chance.uniform(0, 360), math.sqrt(chance.uniform(1000.0**2, 5000.0**2)))
        assert rules_of(release) == set()
