"""Rules about places: broken geometries, and the extent of masked data."""

import struct

import numpy as np
import pytest
import shapely

from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.declarations import Extent
from kfm_pipelines.gates.quality.table import judge_quality
from kfm_pipelines.gates.verdict import Severity
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.gates.quality_cases import BOW_TIE, POINT
from kfm_pipelines_tests.fixtures.gates.subjects import found, only, outlines, released, subject, with_value

with np.errstate(invalid="ignore"):
    NO_NUMBER = shapely.LineString([(0, 0), (float("nan"), 1)]).wkb
GEOMETRIES = {
    "not WKB": (b"nonsense", "1 of 2 rows unreadable"),
    "cut short": (POINT[:-3], "1 of 2 rows unreadable"),
    "an empty point": (shapely.Point().wkb, "1 of 2 rows empty"),
    "an empty collection": (shapely.GeometryCollection().wkb, "1 of 2 rows empty"),
    "crosses itself": (BOW_TIE, "1 of 2 rows invalid"),
    "too far east": (shapely.Point(180.1, 0).wkb, "1 of 2 rows beyond"),
    "too far south": (shapely.LineString([(0, 0), (0, -90.1)]).wkb, "1 of 2 rows beyond"),
    "no number": (NO_NUMBER, "1 of 2 rows beyond"),
    "endless": (shapely.Point(float("inf"), 1).wkb, "1 of 2 rows beyond"),
}


@pytest.mark.parametrize("case", GEOMETRIES)
def test_a_broken_geometry_is_reported_once(case: str) -> None:
    wkb, text = GEOMETRIES[case]
    finding = only(outlines(POINT, wkb))
    assert (finding.rule, finding.severity, finding.subject) == ("geometry-valid", Severity.ERROR, "outline")
    assert (finding.measured, finding.sample) == (text, "number=2")


def test_every_row_with_the_same_broken_geometry_counts() -> None:
    finding = only(outlines(BOW_TIE, POINT, None, BOW_TIE))
    assert (finding.measured, finding.sample) == ("2 of 4 rows invalid", "number=1; number=4")


@pytest.mark.parametrize("seed", range(30))
def test_points_are_judged_like_other_geometries(seed: int) -> None:
    """Points in little-endian WKB are read without shapely, those in big-endian WKB with it."""
    rng = np.random.default_rng(seed)
    degrees = [0.0, -98.5, 90.0, -90.1, 180.0, 180.1, float("inf"), float("nan")]
    places = [None if rng.random() < 0.2 else tuple(rng.choice(degrees, 2)) for _ in range(int(rng.integers(0, 12)))]
    little, big = (
        [None if place is None else struct.pack(f"{order}BIdd", first, 1, *place) for place in places]
        for order, first in (("<", 1), (">", 0))
    )
    assert judge_quality(outlines(*little)) == judge_quality(outlines(*big))


def test_a_masked_place_may_lie_outside_by_its_uncertainty() -> None:
    heritage = declared()["heritage/sites"]
    published = published_table(heritage, load_policy(shipped_path("resources"), heritage.policy))
    judged = released("heritage/sites", may_sample=False)
    centre = with_value(with_value(judged.table, "longitude", -98.0), "latitude", 40.35)  # 33 km north of the extent
    near, far = (with_value(centre, "uncertainty_m", metres) for metres in (35_000.0, 30_000.0))
    dataset = heritage.model_copy(update={"extent": Extent(west=-102.1, south=36.95, east=-94.55, north=40.05)})
    assert found(subject(near, dataset=dataset, published=published)) == []
    assert [rule for rule, _, _ in found(subject(far, dataset=dataset, published=published))] == ["in-extent"]
