"""GeoJSON is in WGS 84 unless it names another system, and stays GeoJSON whatever is around its features."""

import json

import pytest

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines_tests.fixtures.features import (
    as_geojson,
    change_first_feature,
    features_of,
    layer,
    named_system,
    plots,
    shapes_of,
)

DATASET = layer("geojson")
UTM, WGS84 = "urn:ogc:def:crs:EPSG::26914", "urn:ogc:def:crs:OGC:1.3:CRS84"


@pytest.mark.parametrize(
    "system", [None, "OGC:CRS84", "EPSG:4326", "urn:ogc:def:crs:EPSG::4326", "urn:ogc:def:crs:OGC:1.3:CRS84"]
)
def test_longitude_is_first_whatever_wgs_84_is_called(system: str | None) -> None:
    members = {} if system is None else {"crs": named_system(system)}
    plain = features_of(DATASET, as_geojson(plots()))
    assert features_of(DATASET, as_geojson(plots(), **members)).equals(plain)


def test_a_system_that_the_file_names_is_honoured() -> None:
    projected = as_geojson(plots(system="EPSG:26914"), crs=named_system(UTM))
    assert features_of(DATASET, projected).equals(features_of(DATASET, as_geojson(plots())))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (as_geojson(plots(), crs=None), "does not state the reference system of its coordinates"),
        (as_geojson(plots(), crs=named_system("EPSG:99999")), "states a reference system that is not known"),
        (as_geojson(plots(), crs=named_system("EPSG:5714")), "is in a reference system without longitudes and"),
        (
            as_geojson(plots(), crs={"type": "link", "properties": {"href": "http://127.0.0.1:9/crs"}}),
            "has a member crs that does not name a reference system",
        ),
        (as_geojson(plots(), crs={"type": "name"}), "has a member crs that does not name a reference system"),
        (
            change_first_feature(as_geojson(plots(), crs=named_system(WGS84)), crs=named_system(UTM)),
            "states two different reference systems",
        ),
        (
            change_first_feature(
                as_geojson(plots()),
                crs=named_system(UTM),
                geometry={"type": "Point", "coordinates": [-98, 38], "crs": named_system(WGS84)},
            ),
            "states two different reference systems",
        ),
        (as_geojson(plots()).replace(b'"type": "FeatureCollection"', b'"type": "Topology"'), "is not readable as"),
        (as_geojson(plots())[:-1], "is not readable as GeoJSON"),
        (b'{"type": "FeatureCollection"}', "is not readable as GeoJSON"),
        (b'{"type": "FeatureCollection", "features": [1, 2]}', "has 2 features, of which 2 cannot be read$"),
        (b'{"type": "FeatureCollection", "features": []}', "has no features"),
        (b"[]", "is not readable as GeoJSON"),
    ],
)
def test_a_bad_document_is_one_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(InputUnreadable, match=rf"^s3://kfm-ingest/0 ?{sentence}"):
        features_of(DATASET, data)


@pytest.mark.parametrize("levels", [5_000, 200_000])
def test_deep_nesting_is_refused_wherever_it_is(levels: int) -> None:
    nested = b"[" * levels + b"]" * levels
    point = b'{"type": "Point", "coordinates": [-98, 38]}'
    collections = b'{"type": "GeometryCollection", "geometries": [' * levels + b"]}" * levels
    for geometry, properties in ((nested, b"null"), (point, nested), (collections, b"null")):
        feature = b'{"type": "Feature", "geometry": %s, "properties": {"PLOT": %s}}' % (geometry, properties)
        with pytest.raises(InputUnreadable, match=r"^s3://kfm-ingest/0(: 1 feature has| is not readable as)"):
            features_of(DATASET, b'{"type": "FeatureCollection", "features": [' + feature + b"]}")
    with pytest.raises(InputUnreadable, match=r"is not readable as GeoJSON$"):
        features_of(DATASET, b'{"type": "FeatureCollection", "features": [], "more": ' + nested + b"}")


def test_nesting_within_what_json_readers_take_ends_no_process() -> None:
    feature = b'{"type": "Feature", "properties": {"PLOT": "a"}, "geometry": %s%s}' % (
        b'{"type": "GeometryCollection", "geometries": [' * 400,
        b"]}" * 400,
    )
    with pytest.raises(InputUnreadable):
        features_of(DATASET, b'{"type": "FeatureCollection", "features": [' + feature + b"]}")


def test_members_that_other_drivers_look_for_mean_nothing() -> None:
    extra = {"conformsTo": ["json-fg"], "links": [{"rel": "next", "href": "http://127.0.0.1:9/"}], "xy_coordinate": 1}
    plain = features_of(DATASET, as_geojson(plots()))
    assert features_of(DATASET, as_geojson(plots(), **extra)).equals(plain)


def test_one_feature_alone_is_read() -> None:
    feature = json.dumps(json.loads(as_geojson(plots()))["features"][0]).encode()
    table = features_of(DATASET, b"\xef\xbb\xbf" + feature)
    assert table["plot"].to_pylist() == ["plot-0"]
    assert shapes_of(table)[0].bounds == (-98.5, 38.25, -98.25, 38.5)


def test_dates_stay_as_they_are_written_until_they_are_declared() -> None:
    data = change_first_feature(as_geojson(plots()), properties={"PLOT": "2025-12-04", "acres": 1})
    assert features_of(DATASET, data)["plot"].to_pylist().count("2025-12-04") == 1


@pytest.mark.parametrize(("limit", "found"), [("rows", 4), ("columns", 2)])
def test_limits_are_held(limit: str, found: int) -> None:
    dataset = layer("geojson", input={"limits": {limit: found - 1}})
    with pytest.raises(InputUnreadable, match=rf"has {found} {limit}; input.limits.{limit} allows {found - 1}$"):
        features_of(dataset, as_geojson(plots()))
