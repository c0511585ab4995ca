"""The unmasked table: points are read as numbers, and mean the same as when they are read as shapes."""

import numpy as np
import pyarrow as pa
import pytest
import shapely

from kfm_pipelines.care.verifier.evidence import EvidenceUnreadable
from kfm_pipelines.care.verifier.origins import Origins, read_origins
from kfm_pipelines.care.verifier.protected_values import protected_places
from kfm_pipelines_tests.fixtures.care.handmade_releases import Release, unparquet
from kfm_pipelines_tests.fixtures.care.honest_releases import displaced_geometry_release

LITTLE, BIG = 1, 0  # only points in little-endian WKB are read as numbers


def origins_of(release: Release, points: list[shapely.Point], byte_order: int) -> Origins:
    table = unparquet(release.evidence().original)
    place = table.schema.get_field_index("geometry")
    values = [shapely.to_wkb(point, byte_order=byte_order) for point in points]
    table = table.set_column(place, table.schema.field(place), pa.array(values, pa.binary()))
    return read_origins(release.policy, release.dataset, table, table.schema)


def points_of(release: Release) -> list[shapely.Point]:
    table = unparquet(release.evidence().original)
    return list(map(shapely.Point, table.column("longitude").to_pylist(), table.column("latitude").to_pylist()))


def test_points_mean_the_same_as_shapes() -> None:
    release = displaced_geometry_release()
    moved = [shapely.Point(point.x + 0.001, point.y) for point in points_of(release)]
    numbers, shapes = (origins_of(release, moved, order) for order in (LITTLE, BIG))
    assert (len(numbers.shapes), len(shapes.shapes)) == (0, len(moved))
    for name in ("classes", "kinds", "features", "longitudes", "latitudes"):
        np.testing.assert_array_equal(getattr(numbers, name), getattr(shapes, name))
    protected = [protected_places(release.policy, release.dataset, one) for one in (numbers, shapes)]
    for one, other in zip(*(places.coordinate_arrays for places in protected), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("order", [LITTLE, BIG])
@pytest.mark.parametrize("point", [shapely.Point(), shapely.Point(-98.0, 12.0)], ids=["empty", "elsewhere"])
def test_a_point_outside_the_extent_is_refused(point: shapely.Point, order: int) -> None:
    release = displaced_geometry_release()
    points = [point, *points_of(release)[1:]]
    with pytest.raises(EvidenceUnreadable) as refused:
        origins_of(release, points, order)
    assert refused.value.breach.measured == "1 rows elsewhere"
