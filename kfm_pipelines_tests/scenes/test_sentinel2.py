"""What the two documents of a Sentinel-2 tile say, and what is refused because it cannot be right."""

import json
from typing import Any

import pytest

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.producer.samples.sentinel2 import sentinel2_path, sentinel2_product
from kfm_pipelines.scenes import SceneFacts, read_scene
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data
from kfm_pipelines_tests.fixtures.scenes import START, sample_members

FOLDER = f"s3://sentinel-s2-l2a/{sentinel2_path(START)}/"
REAL = DATA / "sentinel-2" / "S2A_T34LBP_20220401"


def tile(
    xml: tuple[str, str] = ("", ""), product: Any = "sentinel-2-l2a", folder: str = FOLDER, **info: Any
) -> SceneFacts:
    """The sample, with other fields in its tile info, or another text in its metadata."""
    members = sample_members("esa/sentinel-2-scenes")
    document = json.loads(members["tileInfo.json"]) | info
    metadata = members["metadata.xml"].decode()
    assert xml[0] in metadata
    changed = {"tileInfo.json": json.dumps(document).encode(), "metadata.xml": metadata.replace(*xml).encode()}
    return read_scene(product, folder, changed)


def test_a_tile_is_as_its_documents_describe_it() -> None:
    found = tile()
    assert (found.scene_id, found.platform, found.epsg) == (sentinel2_product(START), "sentinel-2b", 32614)
    assert found.acquired_at.isoformat() == "2025-12-04T17:21:30.283000+00:00"
    assert (found.properties["sat:relative_orbit"], found.properties["sat:absolute_orbit"]) == (112, 40123)
    assert found.assets["b04"]["href"] == f"{FOLDER}R10m/B04.jp2"
    assert found.assets["b11"]["raster:spatial_resolution"] == 20
    assert found.assets["b04"]["raster:offset"] == -0.1
    assert "b10" not in found.assets


def test_bands_of_level_1c_are_elsewhere() -> None:
    level_1c = tile(("Level-2A_Tile_ID", "Level-1C_Tile_ID"), product="sentinel-2-l1c")
    assert level_1c.assets["b10"]["href"] == f"{FOLDER}B10.jp2"
    assert "scl" not in level_1c.assets


@needs_data
def test_a_real_tile_has_the_clouds_of_its_metadata_and_the_outline_of_its_swath() -> None:
    folder = "s3://sentinel-s2-l2a/tiles/34/L/BP/2022/4/1/0/"
    found = read_scene("sentinel-2-l2a", folder, {path.name: path.read_bytes() for path in REAL.iterdir()})
    assert found.cloud_cover == pytest.approx(92.696983)
    assert found.scene_id == "S2A_MSIL2A_20220401T083601_N0400_R064_T34LBP_20220401T110010"
    import geopandas
    from shapely.geometry import shape

    stated = json.loads((REAL / "tileInfo.json").read_bytes())["tileDataGeometry"]
    expected = geopandas.GeoSeries([shape(stated)], crs=32734).to_crs(4326)
    assert found.footprint.symmetric_difference(expected.iloc[0]).area < 1e-5 * found.footprint.area


def test_without_an_outline_of_the_swath_the_tile_is_the_footprint() -> None:
    assert tile(tileDataGeometry=None).footprint.bounds[0] < tile().footprint.bounds[0]


def test_a_product_of_many_tiles_does_not_name_one() -> None:
    assert tile(productName="S2A_OPER_PRD_MSIL1C_PDMC_20160101T000000").scene_id.startswith("S2B_OPER_MSI_L2A_TL_")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"path": "tiles/14/S/PH/2025/12/5/0"}, r"tileInfo\.json is about '.*', not its own folder"),
        ({"gridSquare": "QH"}, "its path is not that of 'T14SQH', its tile"),
        ({"utmZone": "x"}, "utmZone must be a whole number"),
        ({"productName": None}, "productName must be a text"),
        ({"xml": ("_T14SPH_N05", "_T14SQH_N05")}, "metadata.xml is about '.*', not tile T14SPH"),
        ({"xml": ("Level-2A_Tile_ID", "Level-1C_Tile_ID")}, "must describe a tile of Level-2A"),
        ({"xml": ("EPSG:32614", "EPSG:32615")}, "tileDataGeometry is in EPSG:32614, and metadata.xml has EPSG:32615"),
        ({"xml": ("EPSG:32614", "somewhere")}, "must be a code of EPSG, not 'somewhere'"),
        ({"xml": ("160.5", "south")}, "Mean_Sun_Angle/AZIMUTH_ANGLE must be a number"),
        ({"xml": ('<SENSING_TIME metadataLevel="Standard">2025', "<SENSING_TIME>no")}, "SENSING_TIME: 'no"),
    ],
)
def test_documents_that_cannot_be_right_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputUnreadable, match=sentence):
        tile(**changes)


@pytest.mark.parametrize("missing", ["tileInfo.json", "metadata.xml"])
def test_both_documents_are_needed(missing: str) -> None:
    members = {name: data for name, data in sample_members("esa/sentinel-2-scenes").items() if name != missing}
    with pytest.raises(InputUnreadable, match=f"{missing} is missing"):
        read_scene("sentinel-2-l2a", FOLDER, members)
