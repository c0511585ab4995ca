"""Rules against disguised places: kept columns that follow places are found, and harmless ones pass."""

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import h3
import pytest

from kfm_pipelines_tests.fixtures.care.handmade_releases import Release, Row
from kfm_pipelines_tests.fixtures.care.honest_releases import ZONE_14, scattered_release
from kfm_pipelines_tests.fixtures.care.tampering import rules_of

Derive = Callable[[Row], Any]
BASE32 = "0123456789bcdefghjkmnpqrstuvwxyz"


def released(column: str, derive: Derive, number: int = 40) -> Release:
    """Returns a release in which a kept column has a value derived from each row."""
    first = derive({**scattered_release(1).rows[0], "number": 0})
    release = scattered_release(number, kept="int64" if isinstance(first, int) else "float64")
    for place, row in enumerate(release.rows):
        row["number"] = place
        row[column] = derive(row)
        release.publish([place])
    return release


def geohash(row: Row, length: int) -> str:
    ranges, degrees, code = [[-180.0, 180.0], [-90.0, 90.0]], (row["longitude"], row["latitude"]), 0
    for bit in range(5 * length):
        low, high = ranges[bit % 2]
        middle = (low + high) / 2
        upper = degrees[bit % 2] >= middle
        ranges[bit % 2] = [middle, high] if upper else [low, middle]
        code = code * 2 + upper
    return "".join(BASE32[code >> 5 * place & 31] for place in reversed(range(length)))


def sixty(degrees: float, form: str) -> str:
    minutes = abs(degrees) % 1 * 60
    return form.format(int(abs(degrees)), int(minutes), minutes % 1 * 60, minutes)


def mgrs(row: Row, digits: int) -> str:
    easting, northing = ZONE_14(row["longitude"], row["latitude"])
    cut = 10 ** (5 - digits)
    return f"14SNH{int(easting) % 100000 // cut:0{digits}d}{int(northing) % 100000 // cut:0{digits}d}"


NUMBERS: dict[str, Derive] = {
    "two decimals": lambda row: round(row["latitude"], 2),
    "three decimals": lambda row: round(row["latitude"], 3),
    "four decimals": lambda row: round(row["longitude"], 4),
    "a tiny bit more": lambda row: row["latitude"] + 1e-7,
    "no sign": lambda row: round(-row["longitude"], 4),
    "thousandths": lambda row: int(row["latitude"] * 1e3),
    "millionths": lambda row: int(row["latitude"] * 1e6),
    "ten millionths": lambda row: int(row["longitude"] * 1e7),
    "seconds": lambda row: int(row["latitude"] * 3600),
    "an easting": lambda row: int(row["easting"]),
    "an easting that no column has": lambda row: int(ZONE_14(row["longitude"] + 0.001, row["latitude"])[0]),
    "a northing in kilometres": lambda row: round(row["northing"] / 1000, 1),
    "a cell as a number": lambda row: int(h3.latlng_to_cell(row["latitude"], row["longitude"], 10), 16),
    "a cell as a float": lambda row: float(int(h3.latlng_to_cell(row["latitude"], row["longitude"], 10), 16)),
    "an order": lambda row: int((row["latitude"] - 30) ** 3),
    "an order from east to west": lambda row: -7.0 * row["longitude"] ** 3,
}


@pytest.mark.parametrize("derive", NUMBERS.values(), ids=NUMBERS)
def test_a_kept_number_that_follows_the_place_is_found(derive: Derive) -> None:
    assert "leak-disguised" in rules_of(released("depth_m", derive))


@pytest.mark.parametrize("derive", NUMBERS.values(), ids=NUMBERS)
def test_a_number_in_a_kept_text_that_follows_the_place_is_found(derive: Derive) -> None:
    assert rules_of(released("condition", lambda row: f"no. {Decimal(derive(row)):f}")) & {
        "leak-disguised",
        "leak-coordinates",
    }


def test_a_few_rows_that_follow_the_place_are_enough() -> None:
    release = released("depth_m", lambda row: round(row["latitude"], 4) if row["number"] < 6 else 0.5)
    assert rules_of(release) == {"leak-disguised"}


def test_tight_tolerances_find_disguised_places_that_are_close_together() -> None:
    release = scattered_release(12)
    for place, row in enumerate(release.rows):
        row.update(latitude=38.5 + place * 0.6180339 % 1 * 0.01, longitude=-98.5 + place * 0.7548777 % 1 * 0.01)
        row["depth_m"] = round(row["latitude"], 4)
        release.publish([place])
    assert rules_of(release) == {"leak-disguised"}


TEXTS: dict[str, Derive] = {
    "degrees, minutes, seconds": lambda row: sixty(row["latitude"], "{0}°{1}'{2:.1f}\"N"),
    "minutes with decimals": lambda row: sixty(row["longitude"], "W {0}° {3:.3f}'"),
    "letters for signs": lambda row: sixty(row["latitude"], "{0}d{1}m{2:.0f}s"),
    "nothing but spaces": lambda row: sixty(row["latitude"], "{0} {1} {2:.0f} N"),
    "a pair with two decimals": lambda row: f"{row['latitude']:.2f},{row['longitude']:.2f}",
    "a pair in a sentence": lambda row: f"{row['latitude']:.2f} north and {-row['longitude']:.2f} west",
    "MGRS": lambda row: f"at {mgrs(row, 5)}",
    "MGRS, to a kilometre": lambda row: mgrs(row, 2),
    "UTM": lambda row: "E{:.0f} N{:.0f}".format(*ZONE_14(row["longitude"], row["latitude"])),
    "a geohash": lambda row: geohash(row, 9),
    "a short geohash": lambda row: f"({geohash(row, 5).upper()})",
}


@pytest.mark.parametrize("derive", TEXTS.values(), ids=TEXTS)
def test_one_kept_text_with_its_own_place_is_found(derive: Derive) -> None:
    release = released("condition", lambda row: derive(row) if row["number"] == 7 else "good", 40)
    assert rules_of(release) == {"leak-coordinates"}


def test_every_row_of_a_feature_is_checked() -> None:
    release = released("condition", lambda row: geohash(row, 8) if row["number"] == 7 else "good")
    release.rows[7]["site_id"] = release.rows[3]["site_id"]
    assert rules_of(release) == {"leak-coordinates"}


CHANCE = random.Random(20260601)
HARMLESS: dict[str, tuple[str, Derive]] = {
    "a year": ("depth_m", lambda row: CHANCE.randint(1890, 1999)),
    "a percentage": ("depth_m", lambda row: CHANCE.randint(30, 100)),
    "always 38": ("depth_m", lambda row: 38),
    "a depth about 38": ("depth_m", lambda row: round(CHANCE.uniform(36.0, 41.0), 2)),
    "a weight about 98": ("depth_m", lambda row: round(CHANCE.gauss(98.0, 2.0), 3)),
    "a number of six digits": ("depth_m", lambda row: CHANCE.randint(200000, 800000)),
    "a large number": ("depth_m", lambda row: CHANCE.randint(2**59, 2**60)),
    "a rough idea of the north": ("depth_m", lambda row: row["latitude"] * 10 + CHANCE.gauss(0, 6)),
    "the zone alone": ("condition", lambda row: "UTM 14S"),
    "a site number": ("condition", lambda row: f"14RH{row['number']:04d}"),
    "a shelf": ("condition", lambda row: "box 00038 of the museum"),
    "a time": ("condition", lambda row: f"seen at 10:{CHANCE.randint(10, 59)}:38"),
    "a slope": ("condition", lambda row: "a slope of 12°30'"),
    "words of geohash letters": ("condition", lambda row: "green deep steep number herbs"),
    "measures": ("condition", lambda row: f"{CHANCE.uniform(1, 9):.2f} by {CHANCE.uniform(30, 99):.2f} cm"),
    "true or not": ("condition", lambda row: None if row["number"] % 2 else "good"),
}


@pytest.mark.parametrize(("column", "derive"), HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("number", [5, 400])
def test_harmless_columns_may_be_kept(column: str, derive: Derive, number: int) -> None:
    assert rules_of(released(column, derive, number)) == set()


def test_a_shelf_number_is_no_degree() -> None:
    release = released("condition", lambda row: "box 00038 of the museum")
    release.rows[4]["latitude"] = 38.4000123
    assert rules_of(release) == set()
