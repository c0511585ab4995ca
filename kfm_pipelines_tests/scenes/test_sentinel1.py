"""What the document of a Sentinel-1 scene says, and what is refused because it cannot be right."""

import json
from typing import Any

import pytest

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.scenes import SceneFacts, read_scene
from kfm_pipelines_tests.fixtures.scenes import SENTINEL_1_FOLDER, sentinel_1_info


def scene(folder: str = SENTINEL_1_FOLDER, **changes: Any) -> SceneFacts:
    document = sentinel_1_info() | changes
    return read_scene("sentinel-1-grd", folder, {"productInfo.json": json.dumps(document).encode()})


def test_a_scene_is_as_its_document_describes_it() -> None:
    found = scene()
    assert (found.scene_id, found.platform) == (sentinel_1_info()["id"], "sentinel-1a")
    assert found.acquired_at.isoformat() == "2025-12-04T00:30:15+00:00"
    assert found.sensor == {
        "constellation": "sentinel-1",
        "platform": "sentinel-1a",
        "instruments": ["c-sar"],
        "gsd": 10,
    }
    assert found.properties == {
        "sat:platform_international_designator": "2014-016A",
        "sat:absolute_orbit": 62001,
        "sat:relative_orbit": 154,
    }
    assert (found.cloud_cover, found.sun_elevation, found.epsg) == (None, None, None)
    assert found.footprint.bounds == (-100.5, 37.0, -97.0, 39.25)


def test_images_are_linked_by_polarisation() -> None:
    assets = scene().assets
    assert assets["vv"]["href"] == f"{SENTINEL_1_FOLDER}measurement/iw-vv.tiff"
    assert assets["calibration-vh"]["href"] == f"{SENTINEL_1_FOLDER}annotation/calibration/calibration-iw-vh.xml"
    assert "hh" not in assets
    single = sentinel_1_info()["id"].replace("_1SDV_", "_1SSH_")
    path = f"GRD/2025/12/4/IW/SH/{single}"
    horizontal = scene(f"s3://sentinel-s1-l1c/{path}/", id=single, path=path, polarization="SH").assets
    assert {name for name in horizontal if len(name) == 2} == {"hh"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"path": "GRD/2025/12/4/IW/DV/another"}, r"productInfo\.json is about '.*', not its own folder"),
        ({"id": "S1A_IW_SLC__1SDV_20251204T003015"}, "not its own folder"),
        ({"id": 1}, "id must be a text"),
        ({"missionId": "S1B"}, "missionId is 'S1B', and the name has S1A"),
        ({"polarization": "SV"}, "polarization is 'SV', and the name has DV"),
        ({"absoluteOrbitNumber": 7}, "absoluteOrbitNumber is 7, and the name has 62001"),
        ({"startTime": "yesterday"}, "startTime: 'yesterday' is not"),
        ({"stopTime": "2025-12-03T00:00:00"}, "stopTime is before startTime"),
        ({"footprint": None}, "the footprint must be a polygon"),
        ({"footprint": {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [2, 0], [0, 0]]]}}, "not a valid polygon"),
    ],
)
def test_a_document_that_cannot_be_right_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputUnreadable, match=sentence):
        scene(**changes)


def test_products_that_are_not_detected_on_the_ground_are_refused() -> None:
    name = sentinel_1_info()["id"].replace("GRDH", "SLC_")
    path = f"SLC/2025/12/4/IW/DV/{name}"
    with pytest.raises(InputUnreadable, match="id must name a GRD product of Sentinel-1, not 'S1A_IW_SLC_"):
        scene(f"s3://sentinel-s1-l1c/{path}/", id=name, path=path)


def test_the_document_is_needed() -> None:
    with pytest.raises(InputUnreadable, match=r"has no metadata: productInfo\.json is missing"):
        read_scene("sentinel-1-grd", SENTINEL_1_FOLDER, {})
