"""Rules on published places: each one broken once, and nothing else found."""

from collections.abc import Callable

import h3
import pytest
import shapely

from kfm_pipelines_tests.fixtures.care.handmade_releases import Release, cell_place, centre, near
from kfm_pipelines_tests.fixtures.care.honest_releases import (
    BLOCKS,
    COARSE,
    FINE,
    add_shape,
    displaced_geometry_release,
    register_release,
    shapes_release,
)
from kfm_pipelines_tests.fixtures.care.tampering import Change, rules_of, show

IN_FIRST = slice(0, 10)  # records of the first cell


def finer(release: Release) -> None:
    cell = h3.latlng_to_cell(*centre(BLOCKS[0]), 6)
    for record in release.of("generalised")[IN_FIRST]:
        record.values.update(cell_place(cell))
        place = release.rows[record.rows[0]]
        place.update(near(*centre(cell), 10, [5, 6])[record.rows[0] % 10])


def finer_group(release: Release) -> None:
    release.of("restricted")[2].values.update(cell_place(h3.latlng_to_cell(*centre(FINE[0]), 5)))


PLACES: dict[str, tuple[Change, str]] = {
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
    "an open place with uncertainty": (show("open", 0, uncertainty_m=5.0), "place-left"),
    "an open place in a cell": (show("open", 0, cell=BLOCKS[0]), "place-left"),
    "a record that counts twice": (show("generalised", 0, records=2), "record-counts"),
    "an exact count": (show("restricted", 0, records=12), "record-counts"),
    "no count": (show("withheld", 0, records=None), "record-counts"),
}


@pytest.mark.parametrize(("change", "rule"), PLACES.values(), ids=PLACES)
def test_a_changed_place_breaks_one_rule(change: Change, rule: str) -> None:
    release = register_release()
    change(release)
    assert rules_of(release) == {rule}


@pytest.mark.parametrize(("factor", "rules"), [(1.49, set()), (2.09, set()), (2.15, {"place-uncertainty"})])
def test_shapes_may_extend_beyond_their_cell_but_not_far(factor: float, rules: set[str]) -> None:
    release = shapes_release()
    for record in release.records:
        if record.values.get("cell") and len(release.rows[record.rows[0]]["geometry"]) > 21:
            record.values["uncertainty_m"] *= factor / 1.01
    assert rules_of(release) == rules


@pytest.mark.parametrize(
    ("factor", "rules"), [(0.98, {"place-uncertainty"}), (1.0, set()), (1.02, {"place-uncertainty"})]
)
def test_the_uncertainty_of_a_point_is_the_radius_of_its_cell(factor: float, rules: set[str]) -> None:
    release = register_release()
    for record in release.of("generalised")[IN_FIRST]:
        record.values["uncertainty_m"] *= factor
    assert rules_of(release) == rules


def test_degrees_and_geometry_of_a_displaced_point_agree() -> None:
    release = displaced_geometry_release()
    release.records[0].values["geometry"] = release.records[1].values["geometry"]
    assert rules_of(release) == {"place-displaced"}


def test_a_displaced_geometry_has_no_trailing_bytes() -> None:
    release = displaced_geometry_release()
    release.records[0].values["geometry"] += b"x"
    assert rules_of(release) == {"place-displaced"}


def outline(cell: str) -> bytes:
    geometry: bytes = cell_place(cell, shape=True)["geometry"]
    return geometry


def stretched(release: Release) -> None:
    """Puts the centroid into the cell and the ends outside."""
    latitude, longitude = centre(BLOCKS[0])
    long = shapely.box(longitude - 0.5001937, latitude, longitude + 0.5001937, latitude + 0.0101913)
    release.rows[0]["geometry"] = shapely.to_wkb(long)


def coarser(release: Release) -> None:
    """Adds as many shapes that are too long for a cell of the rule's resolution."""
    latitude, longitude = centre(COARSE)
    for step in range(1, 6):
        west = longitude - 0.2001937 + 0.0011937 * step
        add_shape(release, shapely.box(west, latitude, west + 0.4000391, latitude + 0.0101913), COARSE)


def every_outline(change: Callable[[bytes], bytes]) -> Change:
    """Changes all outlines alike, so that no outline differs from the others."""

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
    "a shape beyond its circle": (stretched, "place-in-cell"),
}


@pytest.mark.parametrize(("change", "rule"), SHAPES.values(), ids=SHAPES)
def test_a_changed_shape_breaks_one_rule(change: Change, rule: str) -> None:
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
