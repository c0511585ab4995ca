"""Overlaps and gaps are what comparing every pair finds, and the work on hopeless layers is limited."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from kfm_pipelines.vector import topology
from kfm_pipelines.vector.topology import count_gaps, find_overlaps, square_metres

# Corners on a coarse grid, so that shapes often share edges.
boxes = st.builds(
    lambda x, y, width, height: shapely.box(x, y, x + width, y + height),
    st.integers(0, 6), st.integers(0, 6), st.integers(1, 4), st.integers(1, 4),
)  # fmt: skip


def shapes_of(*shapes: shapely.Geometry | None) -> Any:
    return np.array([*shapes, None], dtype=object)[:-1]


@given(st.lists(boxes, max_size=12))
def test_overlaps_are_those_of_comparing_every_pair(drawn: list[shapely.Geometry]) -> None:
    common = [(a, b) for a, b in combinations(range(len(drawn)), 2) if drawn[a].intersection(drawn[b]).area > 0]
    found = find_overlaps(shapes_of(*drawn), tolerance_m2=0.0)
    assert (found.pairs, found.is_complete) == (len(common), True)
    assert np.flatnonzero(found.shapes).tolist() == sorted({place for pair in common for place in pair})


def test_overlaps_do_not_depend_on_how_many_are_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    places = np.random.default_rng(3).uniform(0, 6, (40, 2))
    drawn = shapes_of(*(shapely.box(x, y, x + 1, y + 1) for x, y in places))
    whole = find_overlaps(drawn, 0.0)
    monkeypatch.setattr(topology, "_BOXES_AT_ONCE", 3 * len(drawn))
    monkeypatch.setattr(topology, "_COMPARED_AT_ONCE", 2)
    parts = find_overlaps(drawn, 0.0)
    assert (parts.pairs, parts.shapes.tolist()) == (whole.pairs, whole.shapes.tolist())
    assert whole.pairs > 10


def test_only_valid_polygons_count() -> None:
    bow_tie = shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])
    mixed = shapes_of(None, shapely.Point(0.5, 0.5), bow_tie, shapely.box(0, 0, 1, 1), shapely.Polygon())
    assert find_overlaps(mixed, 0.0).pairs == 0
    assert find_overlaps(shapes_of(), 0.0).pairs == 0
    assert count_gaps(mixed, 0.0) == count_gaps(shapes_of(), 0.0) == 0


def test_what_is_small_does_not_count() -> None:
    """A strip of 1e-6 degrees by a hundredth, some 0.11 by 870 metres."""
    beside = shapes_of(shapely.box(-97, 38, -96.99, 38.01), shapely.box(-97, 38.009999, -96.99, 38.02))
    assert find_overlaps(beside, 90.0).pairs == 1
    assert find_overlaps(beside, 110.0).pairs == 0
    apart = shapely.box(-97, 38, -96.99, 38.01) - shapely.box(-96.996, 38.005, -96.995, 38.006)
    assert count_gaps(shapes_of(apart), 9_000.0) == 1
    assert count_gaps(shapes_of(apart), 10_500.0) == 0


def test_areas_agree_with_those_on_the_ellipsoid() -> None:
    from pyproj import Geod

    box = shapely.box(-97, 38, -96.99, 38.01)
    exact = abs(Geod(ellps="WGS84").geometry_area_perimeter(box)[0])
    assert square_metres(shapes_of(box))[0] == pytest.approx(exact, rel=0.01)


def test_gaps_are_what_shapes_surround_together() -> None:
    frame = [shapely.box(0, 0, 3, 1), shapely.box(0, 2, 3, 3), shapely.box(0, 1, 1, 2), shapely.box(2, 1, 3, 2)]
    assert count_gaps(shapes_of(*frame), 0.0) == 1
    assert count_gaps(shapes_of(*frame[:3]), 0.0) == 0
    island = shapely.box(1.4, 1.4, 1.6, 1.6)
    assert count_gaps(shapes_of(*frame, island), 0.0) == 1


@pytest.mark.parametrize("limit", ["_BOXES_BESIDES", "_MOST_VERTICES", "_MOST_OVERLAPS"])
def test_a_layer_of_shapes_on_each_other_is_not_compared_to_its_end(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    stacked = shapes_of(*(shapely.box(0, 0, 1 + place / 100, 1) for place in range(60)))
    assert find_overlaps(stacked, 0.0).is_complete
    monkeypatch.setattr(topology, limit, 100)
    monkeypatch.setattr(topology, "_BOXES_EACH", 0 if limit == "_BOXES_BESIDES" else topology._BOXES_EACH)
    monkeypatch.setattr(topology, "_BOXES_AT_ONCE", 120)
    assert not find_overlaps(stacked, 0.0).is_complete


def test_gaps_of_too_many_vertices_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "_MOST_VERTICES_JOINED", 9)
    assert count_gaps(shapes_of(shapely.box(0, 0, 1, 1)), 0.0) == 0
    assert count_gaps(shapes_of(shapely.box(0, 0, 1, 1), shapely.box(1, 0, 2, 1)), 0.0) is None
