"""Each row goes to the key of its member; what a key gets does not depend on the rows of others."""

from itertools import permutations
from typing import Any

import h3
import pyarrow as pa
import pytest

from kfm_pipelines.declarations.areas import load_area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.gates import judge_schema
from kfm_pipelines.parquet.parquet import write_published
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.stages.compute import split as split_module
from kfm_pipelines.stages.compute.process import process, process_key
from kfm_pipelines.stages.compute.result import Computed, SourceObject
from kfm_pipelines.stages.compute.split import Splitter
from kfm_pipelines_tests.fixtures.features import as_geojson, layer, plots
from kfm_pipelines_tests.fixtures.gates.subjects import subject_of
from kfm_pipelines_tests.fixtures.tables import DATASET, minute, rows, stored

BY_SITE = {"column": "site_no", "members": {"06866500": "mentor", "06866501": "tescott", "06866502": "niles"}}


def kansas() -> Any:
    return load_area(shipped_path("resources"), "kansas_statewide")


def declare(split: dict[str, Any], **table: Any) -> Dataset:
    document = DATASET.model_dump(mode="json")
    document["key"]["split_by"] = split
    document["table"] |= table
    return Dataset.model_validate(document)


def part(dataset: Dataset, member: str, *tables: pa.Table) -> Computed:
    objects = [stored(table, f"object {number}") for number, table in enumerate(tables)]
    return Splitter().process(dataset, objects, kansas, key_of(member))


def key_of(member: str) -> str:
    return f"usgs-streamflow:kansas_statewide-{member}:none:2025-12-04T00Z:v1-0-0"


def data(dataset: Dataset, member: str, *tables: pa.Table) -> bytes:
    return write_published(part(dataset, member, *tables).table, dataset.table)


def test_the_parts_are_the_whole() -> None:
    split, state = declare(BY_SITE), rows(3)
    parts = [part(split, member, state).table for member in ("mentor", "tescott", "niles")]
    assert pa.concat_tables(parts).equals(process(split, [stored(state)], kansas).table)
    assert [one["site_no"].to_pylist() for one in parts] == [["06866500"], ["06866501"], ["06866502"]]


def test_several_values_may_be_one_member() -> None:
    east = declare({"column": "site_no", "members": {"06866500": "west", "06866501": "east", "06866502": "east"}})
    assert part(east, "east", rows(3)).table["site_no"].to_pylist() == ["06866501", "06866502"]


def test_numbers_decide_like_text() -> None:
    reach = {"name": "reach", "type": "int64", "nullable": True, "description": "Reach of the river"}
    columns = [*DATASET.model_dump(mode="json")["table"]["columns"], reach]
    numbered = declare({"column": "reach", "members": {"7": "seven", "-1": "none"}}, columns=columns)
    assert part(numbered, "none", rows(3, reach=[7, -1, 7])).table["site_no"].to_pylist() == ["06866501"]


def test_other_members_cannot_change_the_bytes_of_one() -> None:
    """Neither their rows, nor their nulls, nor the objects they are in."""
    split = declare(BY_SITE)
    alone = data(split, "mentor", rows(1))
    assert data(split, "mentor", rows(3)) == alone
    with_null = rows(3, site_name=["Smoky Hill River", None, "Solomon River"])
    assert data(split, "mentor", with_null) == alone
    assert judge_schema(subject_of(part(split, "mentor", with_null).table, dataset=split)).passed
    assert not judge_schema(subject_of(part(split, "tescott", with_null).table, dataset=split)).passed
    tables = [rows(3).slice(number, 1) for number in range(3)]
    assert {data(split, "mentor", *order) for order in permutations(tables)} == {alone}


def test_a_row_that_is_corrected_to_another_member_leaves_the_former() -> None:
    """The member is no part of the primary key: a gauge was first reported under the wrong name."""
    rule = {"on_conflict": "newest", "order_by": [{"column": "qualifier", "ranks": ["P", "A"]}]}
    split = declare({"column": "site_name", "members": ["Neosho", "Verdigris"]}, **rule)
    first = rows(1, site_name=["Neosho"], qualifier=["P"], observed_at=[minute(0)])
    second = rows(1, site_name=["Verdigris"], qualifier=["A"], observed_at=[minute(0)])
    for order in permutations((first, second)):
        assert part(split, "neosho", *order).table.num_rows == 0
        assert part(split, "verdigris", *order).table["qualifier"].to_pylist() == ["A"]


def test_rows_of_no_member_are_refused_with_their_number() -> None:
    split = declare({"column": "site_no", "members": ["06866500"]})
    refusal = r"^2 rows have site_no that is no member \('06866501', '06866502'\); add it to key.split_by.members, or"
    with pytest.raises(InputUnreadable, match=refusal):
        part(split, "06866500", rows(3))
    named = declare({"column": "qualifier", "members": ["P"]})
    with pytest.raises(InputUnreadable, match=r"^1 row has qualifier that is no member \(no value\)"):
        part(named, "p", rows(2, qualifier=["P", None]))
    many = rows(5, site_no=[f"x{number}" for number in range(5)])
    with pytest.raises(InputUnreadable, match=r"^5 rows .* \('x0', 'x1', 'x2', …\)"):
        part(split, "06866500", many)


def test_rows_of_no_member_may_be_ignored_and_are_counted() -> None:
    split = declare({"column": "site_no", "members": ["06866500"], "others": "ignore"})
    left = part(split, "06866500", rows(3))
    assert (left.table.num_rows, dict(left.left_out)) == (1, {"rows of no member": 2})


def test_without_the_column_nothing_can_be_split() -> None:
    split = declare(BY_SITE)
    with pytest.raises(InputUnreadable, match="cannot be split: they have no column 'site_no' of type string"):
        part(split, "mentor", rows(2).drop_columns(["site_no"]))
    with pytest.raises(InputUnreadable, match="no column 'site_no' of type string"):
        part(split, "mentor", rows(2, site_no=pa.array([1, 2], pa.int64())))


def test_places_go_to_their_cells() -> None:
    split = declare({"h3_res": 3})
    table = rows(3, longitude=[-94.7, -100.9, -100.9], latitude=[39.1, 37.05, 37.06])
    kansas_city, liberal = h3.latlng_to_cell(39.1, -94.7, 3), h3.latlng_to_cell(37.05, -100.9, 3)
    assert part(split, kansas_city, table).table["longitude"].to_pylist() == [-94.7]
    assert part(split, liberal, table).table["latitude"].to_pylist() == [37.05, 37.06]
    assert part(split, h3.latlng_to_cell(38.8, -97.6, 3), table).table.num_rows == 0


@pytest.mark.parametrize("latitude", [None, float("nan"), 91.0, -91.0, float("inf"), 51.5])
def test_a_place_outside_the_area_or_the_world_is_of_no_member(latitude: float | None) -> None:
    split = declare({"h3_res": 2})
    with pytest.raises(InputUnreadable, match=r"^1 row has a cell of resolution 2 that is no member"):
        part(split, "x", rows(2, latitude=[38.8, latitude]))


def test_objects_are_read_once_for_all_members_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counting(*arguments: Any) -> Computed:
        read.append(1)
        return process_key(*arguments)

    monkeypatch.setattr(split_module, "process_key", counting)
    split, splitter = declare(BY_SITE), Splitter()
    first, second = stored(rows(3)), stored(rows(3, qualifier=["A", "A", "A"]))
    for one in (first, second, first):
        for member in ("mentor", "tescott"):
            assert splitter.process(split, [one], kansas, key_of(member)).table.num_rows == 1
    assert len(read) == 3
    assert splitter.process(split, [second], kansas, key_of("mentor")).table["qualifier"].to_pylist() == ["A"]


def test_without_objects_or_without_a_split_nothing_is_split() -> None:
    assert Splitter().process(declare(BY_SITE), [], kansas, key_of("mentor")).table.num_rows == 0
    assert Splitter().process(DATASET, [stored(rows(3))], kansas, key_of("any")).table.num_rows == 3


def test_features_are_split_like_rows_and_keep_their_own_order() -> None:
    """The order along the map is that of the whole earth, so other members do not change it."""
    document = layer("geojson").model_dump(mode="json")
    plots_of_all = plots()
    names = plots_of_all["PLOT"].tolist()
    members = {name: f"m{place % 2}" for place, name in enumerate(names)}
    document["key"]["split_by"] = {"column": "plot", "members": members}
    split = Dataset.model_validate(document)

    def published(member: str, frame: Any) -> bytes:
        source = SourceObject("s3://kfm-ingest/plots.geojson", as_geojson(frame))
        table = Splitter().process(split, [source], kansas, key_of(member)).table
        return write_published(table, split.table, boxes=True)

    for member, first in (("m0", 0), ("m1", 1)):
        assert published(member, plots_of_all) == published(member, plots_of_all.iloc[first::2])
    assert published("m0", plots_of_all) != published("m1", plots_of_all)
