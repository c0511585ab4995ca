"""Reference systems are taken by name, as WKT or as PROJJSON, and never from a file that they name."""

import json
from typing import Any

import numpy as np
import pyproj
import pytest
import shapely

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.vector.systems import choose_system, is_in_degrees, reproject

UTM = pyproj.CRS("EPSG:26914")
GRID = "+proj=longlat +ellps=clrk66 +nadgrids=/etc/passwd +no_defs"
BOUND = (
    'BOUNDCRS[SOURCECRS[GEOGCRS["one",DATUM["one",ELLIPSOID["GRS 1980",6378137,298.257222101]],CS[ellipsoidal,2],'
    'AXIS["longitude",east],AXIS["latitude",north],ANGLEUNIT["degree",0.0174532925199433]]],TARGETCRS['
    + pyproj.CRS("OGC:CRS84").to_wkt()
    + '],ABRIDGEDTRANSFORMATION["grid",METHOD["NTv2",ID["EPSG",9615]],'
    'PARAMETERFILE["Latitude and longitude difference file","/etc/passwd"]]]'
)


@pytest.mark.parametrize(
    "stated",
    [
        "EPSG:26914",
        " epsg:26914 ",
        "urn:ogc:def:crs:EPSG::26914",
        "http://www.opengis.net/def/crs/EPSG/0/26914",
        UTM.to_wkt(),
        UTM.to_wkt("WKT1_ESRI"),
        UTM.to_json_dict(),
    ],
)
def test_one_system_has_many_names(stated: object) -> None:
    system = choose_system([stated], "it")
    assert not is_in_degrees(system)
    [point] = reproject(np.array([shapely.Point(500_000, 4_200_000)]), system, "it")
    assert (point.x, round(point.y, 3)) == (-99.0, 37.948)


@pytest.mark.parametrize(
    "stated",
    [GRID, "+proj=longlat", "+init=/etc/passwd:1", "/etc/passwd", "WGS 84", 4326, ["EPSG:4326"], BOUND,
     {"proj": "longlat", "nadgrids": "/etc/passwd", "type": "crs"}, {"type": "x"}, {"a": 1}, "EPSG:" + "9" * 5000],
)  # fmt: skip
def test_anything_else_is_not_known(stated: Any) -> None:
    with pytest.raises(InputUnreadable, match=r"^it states a reference system that is not known$"):
        choose_system([stated], "it")


def test_statements_have_to_agree() -> None:
    assert choose_system(["EPSG:4326", "OGC:CRS84"], "it").is_geographic
    with pytest.raises(InputUnreadable, match=r"^it states two different reference systems$"):
        choose_system(["EPSG:4326", "EPSG:4269"], "it")
    for nothing in ([], [None], ["EPSG:4326", None], [""]):
        with pytest.raises(InputUnreadable, match=r"^it does not state the reference system of its coordinates$"):
            choose_system(nothing, "it")


def test_a_datum_is_never_guessed() -> None:
    unknown = json.loads(pyproj.CRS("EPSG:4269").to_json())
    unknown.pop("id")
    unknown["name"] = unknown["datum"]["name"] = "of somebody's own"
    unknown["datum"]["ellipsoid"] = {"name": "own", "semi_major_axis": 6370000, "inverse_flattening": 300}
    system = choose_system([unknown], "it")
    with pytest.raises(InputUnreadable, match=r"^it is in a reference system without a known way to WGS 84$"):
        reproject(np.array([shapely.Point(-98, 38)]), system, "it")
