"""A footprint is a valid polygon on the Earth, in degrees."""

from typing import Any

import pytest

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.scenes.footprint import MAX_VERTICES, read_footprint


def polygon(*ring: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [list(ring)]}


SQUARE = polygon([-97, 38], [-96, 38], [-96, 39], [-97, 39], [-97, 38])


def test_degrees_are_taken_as_they_are() -> None:
    assert read_footprint(SQUARE, "x").bounds == (-97, 38, -96, 39)


def test_metres_become_degrees() -> None:
    zone_14 = polygon([600_000, 4_190_220], [709_800, 4_190_220], [709_800, 4_300_020], [600_000, 4_190_220])
    west, south, east, north = read_footprint(zone_14, "x", 32614).bounds
    assert (west, south, east, north) == pytest.approx((-97.863, 37.836, -96.583, 38.824), abs=0.001)


def test_one_across_the_antimeridian_does_not_go_round_the_earth() -> None:
    crossing = polygon([179, 38], [-179, 38], [-179, 39], [179, 39], [179, 38])
    assert read_footprint(crossing, "x").bounds == (179, 38, 181, 39)


@pytest.mark.parametrize(
    ("geometry", "sentence"),
    [
        (None, "must be a polygon"),
        ({"type": "Point", "coordinates": [1, 2]}, "must be a polygon"),
        (polygon([1, 2]), "must be a polygon"),
        (polygon([1, 2], [3, "x"], [5, 6], [1, 2]), "must be a polygon"),
        (polygon([0, 0], [float("nan"), 1], [1, 1], [0, 0]), "must be a polygon"),
        (polygon([0, 0, 5], [1, 0, 5], [1, 1, 5], [0, 0, 5]), "two numbers"),
        (polygon([0, 0], [1, 1], [1, 0], [0, 1], [0, 0]), "not a valid polygon: self-intersection"),
        (polygon([0, 0], [1, 1], [2, 2], [0, 0]), "not a valid polygon"),
        (
            polygon([600_000, 4_190_220], [709_800, 4_190_220], [709_800, 4_300_020], [600_000, 4_190_220]),
            "on the Earth",
        ),
        (polygon([38, -97], [38, -96], [39, -96], [38, -97]), "on the Earth"),  # swapped axes
        (polygon(*([[0, 0]] * (2 * MAX_VERTICES))), "vertices"),
    ],
)
def test_anything_else_is_refused(geometry: object, sentence: str) -> None:
    with pytest.raises(InputUnreadable, match=sentence):
        read_footprint(geometry, "tileInfo.json")


def test_an_unknown_reference_system_is_refused() -> None:
    with pytest.raises(InputUnreadable, match="EPSG:99999 is no reference system"):
        read_footprint(SQUARE, "x", 99999)
