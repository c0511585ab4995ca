"""Generalisation publishes the cell of a record when enough features share it."""

import h3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyproj
import pytest
import shapely

from kfm_pipelines_tests.fixtures.care.sites_to_mask import SECRET, around, generalise, mask, scattered, shapes, sites

# The centres of four cells of resolution 5.
FOUR = [h3.cell_to_latlng(h3.latlng_to_cell(38.0 + step, -98.0, 5))[::-1] for step in (0.0, 0.5, 1.0, 1.5)]
RULES = {"generalised": generalise(5)}


def rows_by_cell(table: pa.Table) -> dict[str | None, int]:
    found = table.group_by("cell").aggregate([([], "count_all")]).to_pylist()
    return {row["cell"]: row["count_all"] for row in found}


def cell_at(place: tuple[float, float], resolution: int = 5) -> str:
    return str(h3.latlng_to_cell(place[1], place[0], resolution))


def test_a_record_gets_the_cell_of_its_coordinate() -> None:
    table = mask(sites(*around(FOUR[:2], [5, 10])), RULES).table
    assert rows_by_cell(table) == {cell_at(FOUR[0]): 5, cell_at(FOUR[1]): 10}
    for row in table.to_pylist():
        latitude, longitude = h3.cell_to_latlng(row["cell"])
        assert (row["longitude"], row["latitude"], row["records"]) == (longitude, latitude, 1)


def test_a_cell_comes_from_the_coordinate_and_never_from_a_finer_cell() -> None:
    longitudes, latitudes = scattered(5000)
    strays = [
        (longitude, latitude)
        for longitude, latitude in zip(longitudes.tolist(), latitudes.tolist(), strict=True)
        if h3.cell_to_parent(h3.latlng_to_cell(latitude, longitude, 9), 5) != h3.latlng_to_cell(latitude, longitude, 5)
    ]
    assert strays, "such places are everywhere"
    stray = strays[0]
    table = mask(sites([stray[0] + step * 1e-9 for step in range(5)], [stray[1]] * 5), RULES).table
    assert rows_by_cell(table) == {cell_at(stray): 5}


def test_everything_in_a_cell_is_within_the_published_uncertainty() -> None:
    longitudes, latitudes = scattered(3000)
    for resolution in (2, 3, 4):
        table = sites(longitudes, latitudes)
        masked = mask(table, {"generalised": generalise(resolution)})
        placed = masked.crosswalk.join(masked.table, "record").filter(pc.field("cell").is_valid())
        row, x, y = (placed.column(name).to_numpy() for name in ("row", "longitude", "latitude"))
        _, _, distances = pyproj.Geod(ellps="WGS84").inv(longitudes[row], latitudes[row], x, y)
        uncertainty = placed.column("uncertainty_m").to_numpy()
        assert len(row) > 1000
        assert (distances <= uncertainty).all()
        assert uncertainty.max() < 1.35 * h3.average_hexagon_edge_length(resolution, "m")


@pytest.mark.parametrize(
    ("counts", "kept"),
    [
        ([5, 5, 5, 5], [5, 5, 5, 5]),
        ([4, 4, 5, 10], [0, 0, 5, 10]),
        ([4, 4, 5, 6], [0, 0, 5, 5]),  # with the release before, six would reveal the sixth
        ([4, 6, 5, 9], [0, 5, 5, 5]),
        ([4, 10, 5, 15], [0, 10, 0, 15]),  # four alone would be too few, so the smallest cell joins them
        ([6, 0, 0, 0], [0, 0, 0, 0]),
        ([6, 5, 0, 0], [5, 0, 0, 0]),
        ([1, 5, 5, 10], None),
        ([4, 5, 0, 0], [0, 0, 0, 0]),
    ],
)
def test_neither_a_cell_nor_the_records_without_a_place_have_too_few_features(
    counts: list[int], kept: list[int] | None
) -> None:
    found = rows_by_cell(mask(sites(*around(FOUR, counts)), RULES).table)
    assert sum(found.values()) == sum(counts)
    assert all(count >= 5 for count in found.values())
    if kept is None:
        # Of two equal cells the lower one is dropped, whatever the order of the records.
        dropped = min(cell_at(FOUR[1]), cell_at(FOUR[2]))
        kept = [0, *(0 if cell_at(place) == dropped else 5 for place in FOUR[1:3]), 10]
    assert {cell: count for cell, count in found.items() if cell} == {
        cell_at(place): count for place, count in zip(FOUR, kept, strict=True) if count
    }


def test_a_record_without_a_cell_has_no_place_at_all() -> None:
    [*rows] = mask(sites(*around(FOUR[:2], [4, 4])), RULES).table.to_pylist()
    assert len(rows) == 8
    for row in rows:
        assert (row["cell"], row["longitude"], row["latitude"], row["uncertainty_m"]) == (None, None, None, None)
        assert (row["records"], row["period"], row["condition"]) == (1, "archaic", "good")


def test_too_few_features_altogether_are_not_published() -> None:
    masked = mask(sites(*around(FOUR[:2], [2, 2])), RULES)
    assert (masked.table.num_rows, masked.crosswalk.num_rows) == (0, 0)


def test_records_of_one_feature_count_once() -> None:
    longitudes, latitudes = around(FOUR[:2], [8, 10])
    same = [*["INVENTED-1"] * 4, *(f"INVENTED-{number}" for number in range(2, 6)), *(f"OTHER-{n}" for n in range(10))]
    found = rows_by_cell(mask(sites(longitudes, latitudes, site_id=same), RULES).table)
    assert found == {cell_at(FOUR[0]): 8, cell_at(FOUR[1]): 10}
    same[4] = "INVENTED-1"  # leaves four features in the first cell, so both are dropped
    assert rows_by_cell(mask(sites(longitudes, latitudes, site_id=same), RULES).table) == {None: 18}


@pytest.mark.parametrize("twice", [False, True])
def test_the_secret_and_not_the_order_decides_who_loses_the_place(twice: bool) -> None:
    """Of thirteen features in each of two cells, three lose their place; others do with another secret."""
    longitudes, latitudes = around(FOUR[:2], [13, 13])
    ids = [f"INVENTED-{number:02d}" for number in range(26)]
    conditions = [f"c{number}" for number in range(26)]
    if twice:
        longitudes, latitudes, ids = longitudes * 2, latitudes * 2, ids * 2
        conditions = conditions + conditions
    table = sites(longitudes, latitudes, site_id=ids, condition=conditions)

    def losers(given: pa.Table, secret: bytes = SECRET) -> list[str]:
        masked = mask(given, RULES, secret=secret).table
        return sorted(row["condition"] for row in masked.to_pylist() if row["cell"] is None)

    assert len(losers(table)) == (12 if twice else 6)
    shuffled = table.take(np.random.default_rng(3).permutation(table.num_rows))
    assert losers(shuffled) == losers(table)
    assert losers(table, b"another secret of sixteen bytes or more") != losers(table)


def test_features_at_one_place_are_distinguished_by_their_ids() -> None:
    """Of thirteen features at five places, three lose their place."""
    longitudes, latitudes = around(FOUR[:1], [5])
    ids = [f"INVENTED-{number:02d}" for number in range(13)]
    table = sites([*longitudes, *longitudes[:1] * 8], latitudes[:1] * 13, site_id=ids)
    other = sites(*around([FOUR[1]], [5]), site_id=[f"OTHER-{number}" for number in range(5)])
    found = rows_by_cell(mask(pa.concat_tables([table, other]), RULES).table)
    assert found == {cell_at(FOUR[0]): 10, None: 8}


@pytest.mark.parametrize(("spots", "released"), [(1, False), (4, False), (5, True)])
def test_many_features_at_too_few_places_do_not_reveal_their_cell(spots: int, released: bool) -> None:
    longitudes, latitudes = around(FOUR[:2], [spots, 10])
    extra = 10 - spots
    table = sites([*longitudes[:1] * extra, *longitudes], [*latitudes[:1] * extra, *latitudes])
    elsewhere = {cell_at(FOUR[1]): 10}
    assert rows_by_cell(mask(table, RULES).table) == elsewhere | {cell_at(FOUR[0]) if released else None: 10}


def test_one_record_changes_a_cell_by_nothing_or_by_the_minimum() -> None:
    counts = [13, 9, 6, 25]
    table = sites(*around(FOUR, counts), condition=[f"c{number}" for number in range(sum(counts))])
    before = rows_by_cell(mask(table, RULES).table)
    for row in range(table.num_rows):
        without = pa.concat_tables([table.slice(0, row), table.slice(row + 1)])
        after = rows_by_cell(mask(without, RULES).table)
        changes = {before.get(cell, 0) - after.get(cell, 0) for cell in {*before, *after} if cell}
        assert all(change % 5 == 0 for change in changes)
        assert all(count >= 5 for cell, count in after.items())


def test_the_geometry_is_the_outline_of_the_cell() -> None:
    points = [shapely.Point(longitude, latitude) for longitude, latitude in zip(*around(FOUR[:1], [5]), strict=True)]
    [*rows] = mask(shapes(points), RULES).table.to_pylist()
    outline = shapely.Polygon([corner[::-1] for corner in h3.cell_to_boundary(cell_at(FOUR[0]))])
    assert [shapely.from_wkb(row["outline"]).equals(outline) for row in rows] == [True] * 5


def test_cells_of_each_class_are_separate() -> None:
    table = sites(*around([FOUR[0], FOUR[0]], [4, 5]), sensitivity="generalised")
    classes = ["generalised"] * 4 + ["restricted"] * 5
    table = table.set_column(2, "sensitivity", pa.array(classes))
    found = mask(table, {"generalised": generalise(5), "restricted": generalise(5)}).table
    assert found.column("sensitivity").to_pylist() == ["restricted"] * 5
    assert rows_by_cell(found) == {cell_at(FOUR[0]): 5}
    assert np.all(found.column("record").to_numpy() == np.arange(1, 6))


@pytest.mark.parametrize(("stable_id", "rows"), [(["site_id"], 0), (["site_type"], 0), (["site_id", "site_type"], 6)])
def test_all_parts_of_an_id_identify_a_feature(stable_id: list[str], rows: int) -> None:
    names, kinds = ["b", "a", "b", "a", "c", "c"], ["x", "x", "y", "y", "x", "y"]
    table = sites(*around(FOUR[:1], [6]), site_id=names, site_type=kinds)
    assert mask(table, RULES, stable_id=stable_id).table.num_rows == rows
