"""Features from any format are one table: in WGS 84, valid, clipped where declared, in the order of the map."""

import json
from itertools import permutations

import geopandas
import numpy as np
import pytest
import shapely
from shapely.geometry import mapping

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.inputs import Format
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.gates.verdict import OUTSIDE_AREA
from kfm_pipelines.parquet.parquet import write_parquet, write_published
from kfm_pipelines_tests.fixtures.features import (
    BOWTIE,
    COLUMNS,
    FAULTS,
    TABLE,
    WRITERS,
    as_geojson,
    as_geopackage,
    as_geoparquet,
    computed_features,
    features_of,
    layer,
    named_system,
    plots,
    shapes_of,
)
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data

GEOJSON = layer("geojson")


@needs_data
def test_the_reservations_of_kansas_are_what_geopandas_reads() -> None:
    """The file names NAD 83 in a member of its own, as GeoJSON before RFC 7946 could."""
    path = DATA / "kansas_aiannh.geojson"
    columns = [{**COLUMNS[0], "source": "GEOID"}, {**COLUMNS[0], "name": "label", "source": "NAMELSAD"}, COLUMNS[2]]
    dataset = layer("geojson", table=TABLE | {"columns": columns}, input={"columns": "declared"})
    table = features_of(dataset, path.read_bytes())
    frame = geopandas.read_file(path).to_crs("OGC:CRS84").set_index("GEOID").loc[table["plot"].to_pylist()]
    assert len(frame) == 7
    assert table["label"].to_pylist() == frame["NAMELSAD"].tolist()
    assert shapely.hausdorff_distance(shapes_of(table), frame.geometry.values).max() < 1e-9
    assert shapely.equals(shapely.set_precision(frame.geometry.values, 1e-9), shapes_of(table)).all()


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("system", ["EPSG:4326", "EPSG:26914", "EPSG:3857"])
def test_every_format_and_system_gives_the_same_bytes_with_nine_decimals(form: Format, system: str) -> None:
    expected = write_published(features_of(GEOJSON, as_geojson(plots())), GEOJSON.table, boxes=True)
    table = features_of(layer(form), WRITERS[form](plots(system=system)))
    assert write_published(table, GEOJSON.table, boxes=True) == expected


def test_features_in_any_order_and_any_split_give_the_same_bytes() -> None:
    frame = plots()
    whole = write_parquet(features_of(GEOJSON, as_geojson(frame)))
    parts = [as_geojson(frame.iloc[:1]), as_geojson(frame.iloc[[3, 1]]), as_geojson(frame.iloc[1:3])]
    assert {write_parquet(features_of(GEOJSON, *order)) for order in permutations(parts)} == {whole}
    assert write_parquet(features_of(GEOJSON, as_geojson(frame.iloc[::-1]))) == whole


def test_the_same_shape_written_in_another_way_is_the_same_row() -> None:
    square = shapely.box(-98, 38, -97, 39)
    turned = shapely.Polygon([(-97, 39), (-97, 38), (-98, 38), (-98, 39)])
    in_parts = shapely.MultiPolygon([shapely.Polygon(turned.exterior.coords, None)])
    objects = [as_geojson(plots(one)) for one in (square, turned, turned.reverse(), in_parts, shapely.force_3d(square))]
    table = features_of(GEOJSON, *objects)
    [shape] = shapes_of(table)
    assert shape.normalize() == square.normalize()
    assert shape.exterior.is_ccw
    assert not shape.has_z


def test_lines_keep_their_direction() -> None:
    river = shapely.LineString([(-97, 39), (-98, 38), (-98.5, 38)])
    assert shapes_of(features_of(GEOJSON, as_geojson(plots(river)))) == [river]


def test_a_conflict_is_settled_before_rows_are_clipped() -> None:
    """A newer outline outside of the area replaces an older one inside."""
    rules = {"on_conflict": "newest", "order_by": [{"column": "acres"}]}
    dataset = layer("geojson", table=TABLE | rules, outside_aoi="clip")
    inside, outside = plots(shapely.box(-98, 38, -97, 39)), plots(shapely.box(-88, 38, -87, 39))
    outside["acres"] = 641
    area = Area("half", shapely.box(-98, 37, -97.5, 40))
    for objects in permutations([as_geojson(inside), as_geojson(outside)]):
        result = computed_features(dataset, *objects, load_area=lambda: area)
        assert (result.table.num_rows, result.left_out) == (0, {OUTSIDE_AREA: 1})


def test_what_is_outside_the_area_is_cut_off_or_left_out_and_counted() -> None:
    dataset = layer("geojson", outside_aoi="clip")
    area = Area("half", shapely.box(-98, 37, -97.5, 40))
    shapes = [
        shapely.box(-97.9, 38, -97.8, 39),  # inside
        shapely.box(-98.1, 38, -97.9, 39),  # across the border
        shapely.box(-97.5, 38, -97, 39),  # touches it
        shapely.box(-90, 38, -89, 39),
        shapely.LineString([(-99, 38), (-97, 38)]),
        shapely.Point(-97.6, 38),
    ]
    result = computed_features(dataset, as_geojson(plots(*shapes)), load_area=lambda: area)
    found = dict(zip(result.table["plot"].to_pylist(), shapes_of(result.table), strict=True))
    assert result.left_out == {OUTSIDE_AREA: 2}
    assert set(found) == {"plot-0", "plot-1", "plot-4", "plot-5"}
    assert found["plot-0"].equals(shapes[0])
    assert found["plot-1"].equals(shapely.box(-98, 38, -97.9, 39))
    assert found["plot-4"].equals(shapely.LineString([(-98, 38), (-97.5, 38)]))


def test_without_a_rule_for_the_area_nothing_is_clipped() -> None:
    far = shapely.box(-90, 38, -89, 39)
    result = computed_features(GEOJSON, as_geojson(plots(far)))
    assert (result.table.num_rows, result.left_out) == (1, {})


def test_a_bow_tie_is_repaired_where_that_is_declared() -> None:
    repairing = layer("geojson", vector={"invalid": "repair"})
    [shape] = shapes_of(features_of(repairing, as_geojson(plots(BOWTIE))))
    assert shape.is_valid
    assert shape.area == pytest.approx(0.5)


def test_a_shape_that_collapses_when_repaired_is_refused() -> None:
    repairing = layer("geojson", vector={"invalid": "repair"})
    with pytest.raises(InputUnreadable, match=r"0: 1 feature has a geometry that cannot be repaired$"):
        features_of(repairing, as_geojson(plots(shapely.LineString([(-98, 38), (-98, 38)]))))


@pytest.mark.parametrize("case", FAULTS)
@pytest.mark.parametrize("system", ["EPSG:4326", "EPSG:4269"])
def test_a_fault_is_one_sentence_that_names_how_many_and_not_where(case: str, system: str) -> None:
    shapes, sentence = FAULTS[case]
    frame = plots(*shapes)
    frame = frame.set_crs(system, allow_override=True)
    with pytest.raises(InputUnreadable, match=rf"^s3://kfm-ingest/0: {sentence}") as refused:
        features_of(layer("parquet"), as_geoparquet(frame))
    assert not any(number in str(refused.value) for number in ("38", "98", "179.5", "plot-"))


def test_a_shape_that_is_cut_at_the_antimeridian_is_good() -> None:
    cut = shapely.MultiPolygon([shapely.box(179, 1, 180, 2), shapely.box(-180, 1, -179, 2)])
    assert features_of(GEOJSON, as_geojson(plots(cut))).num_rows == 1


def test_a_place_that_fits_the_extent_only_when_swapped_is_refused() -> None:
    extent = {"west": 10.0, "south": 40.0, "east": 20.0, "north": 50.0}
    dataset = layer("geojson", extent=extent)
    assert features_of(dataset, as_geojson(plots(shapely.Point(15, 45)))).num_rows == 1
    with pytest.raises(InputUnreadable, match=r"1 feature has longitude and latitude swapped"):
        features_of(dataset, as_geojson(plots(shapely.Point(45, 15))))


def test_a_place_that_no_reprojection_reaches_is_refused() -> None:
    frame = plots(shapely.Point(5e8, 5e8)).set_crs("EPSG:26914", allow_override=True)
    with pytest.raises(InputUnreadable, match=r"1 feature has a place outside of longitudes"):
        features_of(layer("geopackage"), as_geopackage(frame))


def test_a_limit_on_vertices_is_held() -> None:
    dataset = layer("geojson", input={"limits": {"vertices": 10}})
    with pytest.raises(InputUnreadable, match=r"has 29 vertices; input.limits.vertices allows 10$"):
        features_of(dataset, as_geojson(plots()))


def test_rows_follow_the_map_and_those_of_one_feature_the_time() -> None:
    columns = [*COLUMNS, {"name": "day", "type": "date", "nullable": False, "description": "When"}]
    table = TABLE | {"primary_key": ["plot", "day"], "time_column": "day", "columns": columns}
    features = [
        {
            "type": "Feature",
            "properties": {"PLOT": f"plot-{number:02d}", "acres": 1, "day": f"2025-12-0{day}"},
            "geometry": mapping(shapely.Point(-98 + number * 37 % 20 / 10 + day, 38 + number * 17 % 20 / 10)),
        }
        for number in range(20)
        for day in (1, 2, 3)
    ]
    document = {"type": "FeatureCollection", "features": features, "crs": named_system("urn:ogc:def:crs:OGC:1.3:CRS84")}
    rows = features_of(layer("geojson", table=table), json.dumps(document).encode()).to_pylist()
    assert [row["day"].day for row in rows] == [1, 2, 3] * 20
    assert len({row["plot"] for row in rows[::3]}) == 20
    steps = np.diff(shapely.get_coordinates(shapely.from_wkb([row["geometry"] for row in rows[::3]])), axis=0)
    by_number = np.diff([features[place]["geometry"]["coordinates"] for place in range(0, 60, 3)], axis=0)
    assert np.hypot(*steps.T).sum() < np.hypot(*by_number.T).sum() / 2
