"""A release: its contents, its order, and its crosswalk."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm_pipelines.care.masks import mask_table
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.declarations import Column
from kfm_pipelines_tests.fixtures.care.sites_to_mask import (
    LEAVE,
    OMIT,
    SECRET,
    SHAPES,
    SITES,
    SUPPRESS,
    WORDING,
    beside,
    displace,
    generalise,
    group,
    mask,
    policy,
    scattered,
    shapes,
    sites,
)

RULES = {"generalised": generalise(3), "restricted": group(3, 4, by=["period"]), "withheld": SUPPRESS}
CLASSES = ["generalised", "restricted", "withheld"]
ARROW = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "geometry": pa.binary()}


def register(count: int = 900) -> pa.Table:
    rng = np.random.default_rng(5)
    return sites(
        *scattered(count),
        sensitivity=[CLASSES[number % 3] for number in range(count)],
        period=rng.choice(["archaic", "woodland", "historic"], count).tolist(),
        condition=rng.choice(np.array(["good", "poor", None], object), count).tolist(),
    )


@pytest.mark.parametrize("dataset", [SITES, SHAPES], ids=["coordinates", "geometries"])
@pytest.mark.parametrize("rows", [0, 900])
def test_the_table_matches_its_declaration(dataset: Any, rows: int) -> None:
    table = register(rows)
    if dataset is SHAPES:
        points = shapely.points(table.column("longitude").to_numpy(), table.column("latitude").to_numpy())
        wkb = pa.array(list(shapely.to_wkb(points)), pa.binary())
        table = table.drop(["longitude", "latitude"]).append_column("outline", wkb)
    masked = mask_table(table, dataset, policy(RULES), SECRET)
    declared = published_table(dataset, policy(RULES))
    assert masked.table.schema.equals(
        pa.schema([pa.field(one.name, ARROW[one.type], nullable=one.nullable) for one in declared.columns])
    )
    for column in declared.columns:
        assert column.nullable or masked.table.column(column.name).null_count == 0
    assert masked.crosswalk.schema.equals(pa.schema([("row", pa.int64()), ("record", pa.int64())]))
    assert (masked.table.num_rows > 0) == (rows > 0)


def test_other_place_columns_are_dropped() -> None:
    table = mask(register(), RULES).table
    assert not {"easting", "northing", "directions"} & set(table.column_names)


def test_withheld_columns_hold_the_wording_in_every_row() -> None:
    table = mask(register(), RULES).table
    for name in policy(RULES).columns.withhold:
        assert set(table.column(name).to_pylist()) == {WORDING}


def test_a_suppressed_record_has_no_place_and_keeps_the_rest() -> None:
    table = sites(*scattered(6), "withheld", condition=["poor"] * 6)
    for row in mask(table, RULES).table.to_pylist():
        assert [row[name] for name in ("cell", "longitude", "latitude", "uncertainty_m")] == [None] * 4
        assert (row["records"], row["period"], row["condition"]) == (1, "archaic", "poor")
    [*rows] = mask(shapes([shapely.Point(-98, 38)] * 6, "withheld"), RULES).table.to_pylist()
    assert [row["outline"] for row in rows] == [None] * 6


@pytest.mark.parametrize(("ids", "rows"), [(5, 8), (4, 0)])
def test_too_few_suppressed_features_are_not_published(ids: int, rows: int) -> None:
    table = sites(*scattered(8), "withheld", site_id=[f"INVENTED-{number % ids}" for number in range(8)])
    masked = mask(table, RULES)
    assert (masked.table.num_rows, masked.crosswalk.num_rows) == (rows, rows)


def test_omitted_records_are_not_published() -> None:
    masked = mask(sites(*scattered(50), "withheld"), {"withheld": OMIT})
    assert (masked.table.num_rows, masked.crosswalk.num_rows) == (0, 0)
    assert masked.measures.rows_out == 0


def test_places_that_the_policy_leaves_are_unchanged() -> None:
    longitudes, latitudes = scattered(3)
    table = mask(sites(longitudes, latitudes, "open"), {"open": LEAVE}).table
    assert sorted(table.column("longitude").to_pylist()) == sorted(longitudes.tolist())
    assert set(table.column("uncertainty_m").to_pylist()) == {0.0}
    assert set(table.column("cell").to_pylist()) == {None}
    line = shapely.LineString([(-98, 38), (-97, 39)])
    [row] = mask(shapes([line], "open"), {"open": {"line": {"method": "none"}}}).table.to_pylist()
    assert row["outline"] == line.wkb


def test_a_policy_for_one_class_needs_no_class_column() -> None:
    rules: dict[str, Any] = {"sensitivity": "withheld", "class_column": None}
    columns = {"keep": ["period", "condition", "sensitivity"], "withhold": policy(RULES).columns.withhold}
    masked = mask(register(), {"withheld": SUPPRESS}, columns=columns, **rules)
    assert masked.table.num_rows == 900
    assert set(masked.table.column("sensitivity").to_pylist()) == set(CLASSES)


def test_a_geometry_takes_precedence_over_coordinates() -> None:
    both = SITES.model_copy(
        update={
            "table": SITES.table.model_copy(
                update={
                    "geometry_column": "outline",
                    "columns": [
                        *SITES.table.columns,
                        Column(name="outline", type="geometry", nullable=True, description="Where it is"),
                    ],
                }
            )
        }
    )
    point = shapely.Point(-95.0, 39.5)
    outlines = pa.array([one.wkb for one in beside(point, 5)], pa.binary())
    table = sites([-98.0] * 5, [38.0] * 5).append_column("outline", outlines)
    for row in mask_table(table, both, policy(RULES), SECRET).table.to_pylist():
        assert shapely.from_wkb(row["outline"]).contains(point)
        assert shapely.from_wkb(row["outline"]).contains(shapely.Point(row["longitude"], row["latitude"]))


def test_rows_are_sorted_by_published_values_and_numbered() -> None:
    table = mask(register(), RULES).table
    assert table.column("record").to_pylist() == list(range(1, table.num_rows + 1))
    names = ["sensitivity", "cell", "longitude", "latitude", "uncertainty_m", "records", "period", "condition"]
    keys = [tuple((row[name] is None, row[name]) for name in names) for row in table.to_pylist()]
    for above, below in pairwise(keys):
        differing = [(a, b) for a, b in zip(above, below, strict=True) if a != b]
        if differing:
            (a_null, a), (b_null, b) = differing[0]
            assert b_null or (not a_null and a < b)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_the_input_does_not_matter(seed: int) -> None:
    rules = {**RULES, "generalised": displace(500, 2000)} if seed % 2 else RULES
    table = register(300)
    shuffled = table.take(np.random.default_rng(seed).permutation(300))
    one, other = mask(table, rules), mask(shuffled, rules)
    assert one.table.equals(other.table)
    assert one.measures == other.measures


def test_the_position_of_a_record_reveals_nothing_of_the_input() -> None:
    """Suppressed sites numbered from west to east are not published in that order."""
    longitudes, latitudes = scattered(400)
    rng = np.random.default_rng(2)
    table = sites(
        np.sort(longitudes), latitudes, "withheld", period=rng.permutation([f"p{n}" for n in range(400)]).tolist()
    )
    crosswalk = mask(table, RULES).crosswalk
    together = np.corrcoef(crosswalk.column("row").to_numpy(), crosswalk.column("record").to_numpy())[0, 1]
    assert abs(together) < 0.2


def test_the_crosswalk_leads_from_each_record_to_its_rows() -> None:
    table = register(6000)
    masked = mask(table, RULES)
    joined = masked.crosswalk.join(masked.table, "record").to_pylist()
    given_classes, periods = table.column("sensitivity").to_pylist(), table.column("period").to_pylist()
    for pair in joined:
        assert pair["sensitivity"] == given_classes[pair["row"]]
        assert pair["period"] in (periods[pair["row"]], None)
    single = [pair["row"] for pair in joined if pair["sensitivity"] != "restricted"]
    assert sorted(single) == [row for row, name in enumerate(given_classes) if name != "restricted"]
    grouped = {pair["row"] for pair in joined if pair["sensitivity"] == "restricted"}
    assert grouped == {row for row, name in enumerate(given_classes) if name == "restricted"}
    assert len(joined) > len(single) + len(grouped), "some are counted at both resolutions"


def test_the_chunks_of_a_table_do_not_matter() -> None:
    table = register()
    chunked = pa.concat_tables([table.slice(start, 100) for start in range(0, 900, 100)])
    assert mask(chunked, RULES).table.equals(mask(table, RULES).table)
