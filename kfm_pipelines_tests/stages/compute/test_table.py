"""Compute: the same rows give the same table, whatever order and files they came in; nothing is guessed."""

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.tables import declared_schema
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.gates import judge_schema
from kfm_pipelines.parquet.parquet import write_parquet
from kfm_pipelines.stages.compute.result import SourceObject
from kfm_pipelines.stages.compute.table import inputs_hash
from kfm_pipelines_tests.fixtures.gates.subjects import subject_of
from kfm_pipelines_tests.fixtures.tables import COLUMNS, DATASET, computed, minute, rows, stored

NAN = float("nan")
# Few values each, so that many rows are alike in many columns.
READINGS = st.lists(
    st.fixed_dictionaries(
        {
            "site_no": st.sampled_from(["06866500", "06869500"]),
            "latitude": st.sampled_from([38.8, 0.0, -0.0, NAN, -NAN, math.inf]),
            "observed_at": st.integers(0, 2).map(minute),
            "discharge_cfs": st.none() | st.sampled_from([0.0, -0.0, NAN, 310.0]),
            "qualifier": st.none() | st.sampled_from(["P", "A"]),
        }
    ),
    max_size=12,
)


def table_of(readings: list[dict[str, Any]]) -> pa.Table:
    count = len(readings)
    chosen = {name: [reading[name] for reading in readings] for name in readings[0]} if readings else {}
    return rows(count, **{"longitude": [-97.6] * count, **chosen})


def with_column(name: str, kind: str) -> Dataset:
    """The dataset with one column declared as something else."""
    document = DATASET.model_dump(mode="json", exclude={"quality"})
    for column in document["table"]["columns"]:
        if column["name"] == name:
            column["type"] = kind
    return Dataset.model_validate(document)


def with_sources(**sources: str) -> Dataset:
    """The dataset with columns that have other names in the objects."""
    document = DATASET.model_dump(mode="json")
    for column in document["table"]["columns"]:
        column["source"] = sources.get(column["name"])
    return Dataset.model_validate(document)


@given(readings=READINGS, data=st.data())
def test_the_order_of_rows_and_of_objects_makes_no_difference(
    readings: list[dict[str, Any]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(readings))
    cut = data.draw(st.integers(0, len(readings)))

    one = write_parquet(computed(table_of(readings)))
    two = write_parquet(computed(table_of(shuffled[:cut]), table_of(shuffled[cut:])))

    assert one == two


@given(readings=READINGS)
def test_a_row_that_comes_again_is_there_once(readings: list[dict[str, Any]]) -> None:
    once, again = computed(table_of(readings)), computed(table_of(readings + readings), table_of(readings))
    assert write_parquet(once) == write_parquet(again)
    assert computed(once).num_rows == once.num_rows


@pytest.mark.parametrize("value", [None, NAN, 0.0, 310.5])
def test_rows_alike_in_every_column_are_one_row(value: float | None) -> None:
    alike = rows(2, site_no=["a", "a"], observed_at=[minute(0)] * 2, discharge_cfs=[value, value])
    same = {name: alike.column(name)[:1].to_pylist() * 2 for name in ("latitude", "longitude")}
    assert computed(rows(2, **{name: alike.column(name).to_pylist() for name in COLUMNS} | same)).num_rows == 1


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("discharge_cfs", [None, NAN]),
        ("discharge_cfs", [None, 0.0]),
        ("discharge_cfs", [NAN, 1.0]),
        ("discharge_cfs", [1.0, 1.0000000000000002]),
        ("site_no", ["a", "a "]),
        ("observed_at", [minute(0), minute(0) + timedelta(microseconds=1)]),
        ("qualifier", ["", None]),
    ],
)
def test_rows_that_differ_in_one_column_stay_two_rows(name: str, values: list[Any]) -> None:
    row = {column: rows(1).column(column).to_pylist() * 2 for column in COLUMNS}
    assert computed(rows(2, **row | {name: values})).num_rows == 2


def test_the_columns_are_the_declared_ones_in_the_declared_order() -> None:
    backwards = rows().select(list(reversed(COLUMNS)))
    table = computed(backwards)
    assert table.schema.equals(declared_schema(DATASET.table), check_metadata=True)
    assert judge_schema(subject_of(table)).passed


@pytest.mark.parametrize(
    ("declared_as", "came_as"),
    [
        ("int64", pa.array([1, 2, 3], pa.int32())),
        ("int64", pa.array([1, 2, 3], pa.uint8())),
        ("int64", pa.array([1.0, 2.0, 3.0], pa.float64())),
        ("float64", pa.array([1, 2, 3], pa.int32())),
        ("float64", pa.array([1.5, 2.5, None], pa.float32())),
        ("string", pa.array(["a", "b", None]).dictionary_encode()),
        ("string", pa.array(["a", "b", "c"], pa.large_string())),
        ("string", pa.array(["a", "b", None], pa.string_view())),
        ("string", pa.nulls(3)),
        ("float64", pa.nulls(3)),
        ("timestamp", pa.array([minute(0), minute(1), None], pa.timestamp("ns", tz="UTC"))),
        ("timestamp", pa.array([minute(0), minute(1), None], pa.timestamp("ms", tz="America/Chicago"))),
        ("date", pa.array([date(2025, 12, 4)] * 3, pa.date64())),
        ("bool", pa.array([True, False, None])),
    ],
)
def test_a_column_gets_its_declared_type_where_nothing_is_lost(declared_as: str, came_as: pa.Array) -> None:
    dataset = with_column("gage_height_ft", declared_as)
    wanted = declared_schema(dataset.table).field("gage_height_ft").type

    table = computed(rows(gage_height_ft=came_as), dataset=dataset)

    assert table.schema.field("gage_height_ft").type == wanted
    assert table.column("gage_height_ft").to_pylist() == came_as.to_pylist()


@pytest.mark.parametrize(
    ("declared_as", "came_as"),
    [
        ("int64", pa.array([1.5, 2.0, 3.0])),
        ("int64", pa.array([1, 2, 2**64 - 1], pa.uint64())),
        ("int64", pa.array(["1", "2", "3"])),
        ("float64", pa.array(["1.5", "2", "3"])),
        ("float64", pa.array(["1.5", "2", "3"]).dictionary_encode()),
        ("timestamp", pa.array(["2025-12-04T00:00:00Z"] * 3)),
        ("timestamp", pa.array([1, 2, 3], pa.timestamp("ns", tz="UTC"))),
        ("string", pa.array([6866500, 6869500, 1])),
        ("string", pa.array([b"\xff", b"b", b"c"])),
        ("bool", pa.array(["true", "false", "true"])),
        ("date", pa.array(["2025-12-04"] * 3)),
    ],
)
def test_a_column_that_would_lose_or_guess_is_left_for_the_gate_to_name(declared_as: str, came_as: pa.Array) -> None:
    dataset = with_column("gage_height_ft", declared_as)

    table = computed(rows(gage_height_ft=came_as), dataset=dataset)

    assert table.column("gage_height_ft").combine_chunks().equals(came_as)
    verdict = judge_schema(subject_of(table, dataset))
    assert [(finding.rule, finding.subject) for finding in verdict.findings] == [("column-type", "gage_height_ft")]


@pytest.mark.parametrize(
    "strange",
    [
        pa.nulls(3),
        pa.array([True, None, False]),
        pa.array([1.5, None, 2.5], pa.float16()),
        pa.array([Decimal("1.5"), None, Decimal("2.5")]),
        pa.array([b"a", None, b"b"]),
        pa.array([b"ab", None, b"cd"], pa.binary(2)),
        pa.array([b"ab", None, b"cd"], pa.large_binary()),
        pa.array(["a", None, "b"], pa.string_view()),
        pa.array(["b", None, "a"]).dictionary_encode(),
        pa.array([3, None, 1]).dictionary_encode(),
        pa.array([timedelta(seconds=1), None, timedelta(0)]),
        pa.array([time(3), None, time(1)]),
        pa.array([date(2025, 12, 4), None, date(1, 1, 1)]),
        pa.array([datetime(2025, 12, 4, tzinfo=UTC), None, None]),
        pa.array([[1, 2], None, []]),
        pa.array([{"a": 1}, None, {"a": 2}]),
        pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda array: str(array.type),
)
def test_an_undeclared_column_of_any_type_is_left_for_the_gate_to_name(strange: pa.Array) -> None:
    table = computed(rows(zz_strange=strange), rows(zz_strange=strange))

    findings = judge_schema(subject_of(table)).findings
    assert [(finding.rule, finding.subject) for finding in findings] == [("column-declared", "zz_strange")]


def test_undeclared_columns_of_different_objects_come_out_in_one_order() -> None:
    one, other = rows(zz=[1, 2, 3]), rows(aa=["x", "y", "z"])
    assert computed(one, other).column_names == computed(other, one).column_names == [*COLUMNS, "aa", "zz"]


def test_a_column_one_object_lacks_is_null_there() -> None:
    table = computed(rows(), rows(1, site_no=["another"]).drop_columns(["discharge_cfs"]))
    assert table.column("discharge_cfs").null_count == 1


@pytest.mark.parametrize("name", ["qualifier", "zz_undeclared"])
def test_a_column_name_that_is_there_twice_is_refused(name: str) -> None:
    table = rows()
    for _ in range(2 - table.column_names.count(name)):
        table = table.append_column(name, pa.array(["x", "y", "z"]))
    with pytest.raises(InputUnreadable, match=f"the column '{name}' is in the file more than once"):
        computed(table)


def test_objects_that_do_not_form_one_table_are_refused() -> None:
    reason = (
        "do not form one table: the column 'latitude' is double and string, in s3://kfm-ingest/0, s3://kfm-ingest/1"
    )
    with pytest.raises(InputUnreadable, match=reason):
        computed(rows(), rows(latitude=pa.array(["north"] * 3)))


@pytest.mark.parametrize("came", [True, False], ids=["named as in the source", "already named as declared"])
def test_a_column_gets_its_declared_name(came: bool) -> None:
    dataset = with_sources(discharge_cfs="Discharge (ft³/s)")
    names = ["Discharge (ft³/s)" if came and name == "discharge_cfs" else name for name in COLUMNS]

    table = computed(rows().rename_columns(names), dataset=dataset)

    assert table.schema.equals(declared_schema(dataset.table), check_metadata=True)
    assert table.column("discharge_cfs").to_pylist() == [310.0, 311.0, 312.0]


def test_two_columns_may_trade_names() -> None:
    dataset = with_sources(discharge_cfs="gage_height_ft", gage_height_ft="discharge_cfs")
    table = computed(rows(), dataset=dataset)
    assert table.column("gage_height_ft").to_pylist() == [310.0, 311.0, 312.0]
    assert table.column("discharge_cfs").to_pylist() == [4.1] * 3


def test_a_column_under_both_names_is_refused() -> None:
    dataset = with_sources(discharge_cfs="Flow")
    with pytest.raises(InputUnreadable, match="both 'Flow' and 'discharge_cfs' are in the file, as one column"):
        computed(rows(Flow=[1.0, 2.0, 3.0]), dataset=dataset)


def test_the_name_in_the_source_counts_for_its_dataset_only() -> None:
    table = computed(rows(Flow=[1.0, 2.0, 3.0]))
    findings = judge_schema(subject_of(table)).findings
    assert [(finding.rule, finding.subject) for finding in findings] == [("column-declared", "Flow")]


@pytest.mark.parametrize("stated", [{"unit": "m3/s"}, {"units": " m3/s "}, {"UNITS": "m3/s"}])
def test_a_unit_that_the_object_states_itself_is_left_for_the_gate_to_name(stated: dict[str, str]) -> None:
    table = computed(rows(), stating("discharge_cfs", stated))
    [finding] = judge_schema(subject_of(table)).findings
    assert (finding.rule, finding.subject) == ("column-unit", "discharge_cfs")
    assert (finding.expected, finding.measured) == ("ft3/s", "m3/s")


def test_objects_that_state_the_declared_unit_give_the_same_table_as_those_that_state_none() -> None:
    stated = computed(stating("discharge_cfs", {"units": "ft3/s"}))
    assert stated.schema.equals(computed(rows()).schema, check_metadata=True)


def test_every_unit_that_the_objects_state_is_named() -> None:
    table = computed(stating("gage_height_ft", {"unit": "m"}), stating("gage_height_ft", {"unit": "cm"}))
    [finding] = judge_schema(subject_of(table)).findings
    assert finding.measured == "cm, m"


def stating(name: str, metadata: dict[str, str]) -> pa.Table:
    """Good rows in a table that says something about one of its columns."""
    table = rows()
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place).with_metadata(metadata), table.column(place))


def test_a_gauge_that_is_renamed_within_the_window_stays_in_the_order_of_time() -> None:
    renamed = rows(2, site_no=["a", "a"], site_name=["Zeandale", "Abilene"], observed_at=[minute(0), minute(1)])
    table = computed(renamed.take([1, 0]))
    assert table.column("observed_at").to_pylist() == [minute(0), minute(1)]
    assert judge_schema(subject_of(table)).passed


def test_an_object_that_is_no_parquet_is_named() -> None:
    from kfm_pipelines.stages.compute.table import compute

    with pytest.raises(InputUnreadable, match="s3://kfm-ingest/bad is not a readable Parquet file"):
        compute(DATASET, [stored(rows()), SourceObject("s3://kfm-ingest/bad", b"PAR1")])


def test_no_rows_are_a_table_too() -> None:
    table = computed(rows(0), rows(0))
    assert (table.num_rows, tuple(table.column_names)) == (0, COLUMNS)


def test_the_inputs_hash_is_about_content_location_and_configuration() -> None:
    one, other = SourceObject("s3://b/one", b"1"), SourceObject("s3://b/other", b"2")
    known = inputs_hash("config", [one, other])

    assert known == inputs_hash("config", [other, one])
    assert len({
        known,
        inputs_hash("config", [one]),
        inputs_hash("config", []),
        inputs_hash("other config", [one, other]),
        inputs_hash("config", [one, SourceObject("s3://b/other", b"3")]),
        inputs_hash("config", [one, SourceObject("s3://b/moved", b"2")]),
        inputs_hash("config", [one, SourceObject("s3://b/other", b"2", late=True)]),
        inputs_hash("config", [SourceObject("s3://b/one", b"2"), SourceObject("s3://b/other", b"1")]),
    }) == 8  # fmt: skip


def test_the_inputs_hash_is_pinned() -> None:
    """Stored hashes outlive the code: another value means that every key is computed again."""
    hashed = inputs_hash("config", [SourceObject("s3://b/one", b"1")])
    assert hashed == "e79c0c43890c2553a2444af5eaa37775c9d91349cf1338a2c1e537a071dbd3e7"
