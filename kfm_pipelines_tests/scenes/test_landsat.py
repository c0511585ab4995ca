"""What the metadata of a Landsat scene say, and what is refused because it cannot be right."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import shapely

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.producer.samples.landsat import landsat_folder, landsat_product
from kfm_pipelines.scenes import SceneFacts, bands_to_derive, read_scene
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data
from kfm_pipelines_tests.fixtures.scenes import START, sample_members

BUCKET, PRODUCT = "s3://usgs-landsat", landsat_product(START)
FOLDER = f"{BUCKET}/{landsat_folder(START)}"
REAL = DATA / "landsat" / "LC08_L2SP_017036_20130419_20200913_02_T2"


def scene(change: Callable[[dict[str, Any]], object] = lambda _: None, **others: bytes | None) -> SceneFacts:
    """The sample, with other metadata or other objects; None takes one away."""
    members = sample_members("usgs/landsat-ndvi")
    document = json.loads(members[f"{PRODUCT}_MTL.json"])
    change(document["LANDSAT_METADATA_FILE"])
    changed: dict[str, bytes | None] = {**members, f"{PRODUCT}_MTL.json": json.dumps(document).encode()}
    changed |= {f"{PRODUCT}_{name}".replace("__", "."): data for name, data in others.items()}
    return read_scene("landsat-c2-l2", FOLDER, {name: data for name, data in changed.items() if data is not None})


def set_field(group: str, field: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda document: document[group].__setitem__(field, value)


def test_a_scene_is_as_its_metadata_describe_it() -> None:
    found = scene()
    assert (found.scene_id, found.platform, found.epsg, found.href) == (PRODUCT, "landsat-9", 32614, FOLDER)
    assert found.acquired_at.date() == START.date()
    assert found.properties["landsat:wrs_path"] == "028"
    assert found.sensor["instruments"] == ["oli", "tirs"]
    red = found.assets["red"]
    assert red["href"] == f"{FOLDER}{PRODUCT}_SR_B4.TIF"
    assert (red["raster:scale"], red["raster:offset"], red["nodata"]) == (2.75e-05, -0.2, 0)
    assert red["proj:transform"] == [30, 0, 705000, 0, -30, 4310010]


def test_the_corners_are_the_footprint_where_usgs_states_none() -> None:
    whole, corners = scene().footprint, scene(SR_stac__json=None).footprint
    assert corners.symmetric_difference(whole).area < 1e-3 * whole.area


@needs_data
def test_a_real_scene_is_the_same_in_json_and_in_xml() -> None:
    folder = f"{BUCKET}/any/{REAL.name}/"
    members = {path.name: path.read_bytes() for path in REAL.iterdir()}
    as_json = read_scene("landsat-c2-l2", folder, members)
    as_xml = read_scene("landsat-c2-l2", folder, {n: d for n, d in members.items() if not n.endswith("_MTL.json")})
    assert as_json == as_xml
    assert (as_json.cloud_cover, as_json.epsg, as_json.properties["view:off_nadir"]) == (100.0, 32617, 11.696)
    stated = json.loads(members[f"{REAL.name}_SR_stac.json"])["bbox"]
    assert as_json.footprint.bounds == pytest.approx(stated, abs=1e-6)
    import rasterio

    with rasterio.open(REAL / f"{REAL.name}_SR_B4.TIF") as band:  # reduced, with the corners of the original
        rows, columns = as_json.assets["red"]["proj:shape"]
        size, _, west, _, _, north = as_json.assets["red"]["proj:transform"]
        assert tuple(band.bounds) == (west, north - rows * size, west + columns * size, north)


def test_clouds_that_nobody_counted_are_unknown() -> None:
    assert scene(set_field("IMAGE_ATTRIBUTES", "CLOUD_COVER", "-1")).cloud_cover is None


def test_an_azimuth_is_from_0_to_360() -> None:
    assert scene(set_field("IMAGE_ATTRIBUTES", "SUN_AZIMUTH", "-30")).sun_azimuth == 330


@pytest.mark.parametrize(
    ("group", "field", "value", "sentence"),
    [
        ("PRODUCT_CONTENTS", "LANDSAT_PRODUCT_ID", "LC08_L2SP_001001_20251204_20251206_02_T1", "is about 'LC08"),
        ("IMAGE_ATTRIBUTES", "DATE_ACQUIRED", "2025-12-05", "DATE_ACQUIRED is '2025-12-05', not the day"),
        ("IMAGE_ATTRIBUTES", "SCENE_CENTER_TIME", "25:00:00Z", "SCENE_CENTER_TIME: .* is not an RFC 3339"),
        ("IMAGE_ATTRIBUTES", "CLOUD_COVER", "many", "CLOUD_COVER must be a number, not 'many'"),
        ("IMAGE_ATTRIBUTES", "CLOUD_COVER", None, "CLOUD_COVER is missing"),
        ("PROJECTION_ATTRIBUTES", "UTM_ZONE", "61", "UTM_ZONE must be 1 to 60"),
        ("PRODUCT_CONTENTS", "FILE_NAME_BAND_4", "../../etc/passwd", "FILE_NAME_BAND_4 must be a file of the scene"),
        ("PRODUCT_CONTENTS", "FILE_NAME_BAND_4", "http://evil.example/x.TIF", "must be a file of the scene"),
    ],
)
def test_metadata_that_cannot_be_right_are_refused(group: str, field: str, value: Any, sentence: str) -> None:
    with pytest.raises(InputUnreadable, match=sentence):
        scene(set_field(group, field, value))


def test_the_outline_of_another_scene_is_refused() -> None:
    other = json.dumps({"id": "LC09_other", "geometry": shapely.geometry.mapping(shapely.box(0, 0, 1, 1))}).encode()
    with pytest.raises(InputUnreadable, match=r"_SR_stac\.json is about 'LC09_other'"):
        scene(SR_stac__json=other)


def test_a_folder_without_metadata_is_refused() -> None:
    with pytest.raises(InputUnreadable, match=r"_MTL\.json and .*_MTL\.xml are missing"):
        scene(MTL__json=None)


def test_older_satellites_have_other_numbers_for_their_bands() -> None:
    product = "LE07_L2SP_028033_20010704_20200917_02_T1"
    ends = ("SR_B3.TIF", "SR_B4.TIF", "QA_PIXEL.TIF")
    assert bands_to_derive(f"{BUCKET}/{product}/") == tuple(f"{product}_{end}" for end in ends)


@pytest.mark.parametrize("name", ["LC08_L1TP_001005_20230704_20230717_02_T1", "scene", ""])
def test_a_folder_of_another_name_is_no_scene(name: str) -> None:
    with pytest.raises(InputUnreadable, match="must be named after a product"):
        bands_to_derive(f"{BUCKET}/{name}/")
