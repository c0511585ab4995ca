"""Objects in other formats than Parquet are read as the same table, within limits, or refused with one sentence."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.parquet.parquet import write_parquet
from kfm_pipelines.producer.samples.usgs_answer import usgs_answer
from kfm_pipelines.stages.compute.readers import read_object
from kfm_pipelines.stages.compute.result import SourceObject
from kfm_pipelines.stages.compute.table import compute
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data
from kfm_pipelines_tests.fixtures.tables import DATASET, rows, stored

COLUMNS = (
    "site_no",
    "site_name",
    "latitude",
    "longitude",
    "observed_at",
    "discharge_cfs",
    "gage_height_ft",
    "qualifier",
)
HEADER = ",".join(COLUMNS)
LINE = "06866500,A gauge,38.8,-97.6,2025-12-04T00:00:00Z,310.5,,P"


def reading(**given: Any) -> Dataset:
    """The dataset with another `input`."""
    document = DATASET.model_dump(mode="json")
    document["input"] |= given
    return Dataset.model_validate(document)


CSV, NDJSON, USGS = reading(format="csv"), reading(format="ndjson"), reading(format="usgs-iv")


def read(data: bytes, dataset: Dataset) -> pa.Table:
    return read_object(data, "the object", dataset)


def as_csv(table: pa.Table) -> bytes:
    lines = [HEADER]
    for row in table.to_pylist():
        row["observed_at"] = row["observed_at"].isoformat()
        lines.append(",".join("" if row[name] is None else str(row[name]) for name in COLUMNS))
    return "\n".join([*lines, ""]).encode()


def as_json_lines(table: pa.Table) -> bytes:
    def line(row: dict[str, Any]) -> str:
        return json.dumps({**row, "observed_at": row["observed_at"].isoformat()})

    return "\n".join(map(line, table.to_pylist())).encode()


@pytest.mark.parametrize(("dataset", "write"), [(CSV, as_csv), (NDJSON, as_json_lines)])
def test_the_same_rows_in_another_format_are_the_same_bytes(dataset: Dataset, write: Any) -> None:
    table = rows(5, discharge_cfs=[1.5, None, 0.0, -3.25, 1e6])
    text = compute(dataset, [SourceObject("it", write(table))]).table
    assert write_parquet(text) == write_parquet(compute(DATASET, [SourceObject("it", stored(table).data)]).table)


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ({}, f"{HEADER}\r\n{LINE}\r\n"),
        ({}, f"\ufeff{HEADER}\n{LINE}"),
        ({"delimiter": ";"}, f"{HEADER}\n{LINE}\n".replace(",", ";")),
        ({"delimiter": "\t", "quote": None}, f"{HEADER}\n{LINE}\n".replace(",", "\t")),
        ({"skip_rows": 2}, f"a title\n\n{HEADER}\n{LINE}\n"),
        ({"nulls": ["M"]}, f"{HEADER}\n{LINE}\n".replace(",,", ",M,")),
        ({}, f"{HEADER}\n{LINE}\n".replace(",,", ", ,").replace("A gauge", '"A gauge"')),
    ],
)
def test_dialects(dialect: dict[str, Any], text: str) -> None:
    [row] = read(text.encode(), reading(format="csv", csv=dialect)).to_pylist()
    assert (row["site_no"], row["site_name"], row["discharge_cfs"]) == ("06866500", "A gauge", 310.5)
    assert row["gage_height_ft"] is None
    assert row["observed_at"] == datetime(2025, 12, 4, tzinfo=UTC)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1", "windows-1252"])
def test_encodings(encoding: str) -> None:
    data = f"{HEADER}\n{LINE.replace('A gauge', 'Río')}\n".encode(encoding)
    assert read(data, reading(format="csv", csv={"encoding": encoding})).column("site_name").to_pylist() == ["Río"]


def test_times_without_an_offset_need_a_declared_zone() -> None:
    data = f"{HEADER}\n{LINE}\n".replace("2025-12-04T00:00:00Z", "2025-12-04 00:00:00").encode()
    assert pa.types.is_string(read(data, CSV).schema.field("observed_at").type)
    chicago = read(data, reading(format="csv", timezone="America/Chicago"))
    assert chicago.column("observed_at").to_pylist() == [datetime(2025, 12, 4, 6, tzinfo=UTC)]


def test_a_column_that_does_not_parse_stays_text_for_the_gate() -> None:
    table = read(f"{HEADER}\n{LINE}\n{LINE.replace('310.5', 'Ice')}\n".encode(), CSV)
    assert table.column("discharge_cfs").to_pylist() == ["310.5", "Ice"]


def test_thousands_of_undeclared_columns_are_left_out_if_declared_so() -> None:
    others = ",".join(f"x{number}" for number in range(5000))
    data = f"{HEADER},{others}\n{LINE}{',' * 5000}\n".encode()
    assert read(data, reading(format="csv", columns="declared")).column_names == list(COLUMNS)
    assert read(data, CSV).num_columns == 5008
    stored_wide = io.BytesIO()
    pq.write_table(rows(1).append_column("undeclared", pa.array([1])), stored_wide)
    assert "undeclared" not in read(stored_wide.getvalue(), reading(columns="declared")).column_names


@pytest.mark.parametrize(
    ("dataset", "data", "sentence"),
    [
        (CSV, f"{HEADER}\n{LINE.replace('A gauge', chr(34) + 'A gauge')}\n", "a quote is never closed"),
        (CSV, f"{HEADER}\n{LINE},more\n", "a row does not have 8 values"),
        (CSV, f"{HEADER}\n1,2\n", "a row does not have 8 values"),
        (CSV, "", "it has no header"),
        (CSV, "\n\n", "it has no header"),
        (CSV, f"{HEADER},site_no\n", "'site_no' is in the file more than once"),
        (CSV, "\xff\xfe", "is not text in utf-8"),
        (NDJSON, "", "is empty"),
        (NDJSON, "{}\nno\n", "line 2 is not one object"),
        (NDJSON, "[1]\n", "line 1 is not one object"),
        (NDJSON, '{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "line 1 is not one object"),
        (NDJSON, '{"a": 1}\n{"a": "x"}\n', "values of different types"),
        (USGS, "{}", "is not an answer of the USGS"),
        (USGS, "[" * 100_000, "is not an answer of the USGS"),
        (USGS, '{"value": {"timeSeries": [{}]}}', "is not an answer of the USGS"),
    ],
)
def test_what_cannot_be_read_is_refused_with_one_sentence(dataset: Dataset, data: str, sentence: str) -> None:
    with pytest.raises(InputUnreadable, match=sentence) as refused:
        read(data.encode("latin-1"), dataset)
    assert str(refused.value).startswith("the object")
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("limits", "data", "sentence"),
    [
        ({"rows": 2}, f"{HEADER}\n" + f"{LINE}\n" * 3, "has 4 rows; input.limits.rows allows 2"),
        ({"columns": 7}, f"{HEADER}\n{LINE}\n", "has 8 columns; input.limits.columns allows 7"),
        ({"unpacked_bytes": 100}, f"{HEADER}\n{LINE}\n", "input.limits.unpacked_bytes allows 100"),
    ],
)
def test_limits_of_text(limits: dict[str, int], data: str, sentence: str) -> None:
    with pytest.raises(InputUnreadable, match=sentence):
        read(data.encode(), reading(format="csv", limits=limits))


def test_limits_of_parquet_hold_before_anything_is_unpacked() -> None:
    allowed = 1 << 26
    value = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), ["x" * (1 << 20)])
    nulls = pa.table({f"n{number}": pa.nulls(2_000_000, pa.float64()) for number in range(8)})
    pool = pa.default_memory_pool()
    for table in (pa.table({"t": value}), nulls):
        sink = io.BytesIO()
        pq.write_table(table, sink, store_schema=False, compression="zstd")
        assert len(sink.getvalue()) < 500_000
        before = pool.max_memory()
        with pytest.raises(InputUnreadable, match=f"unpacks to more than {allowed} bytes"):
            read(sink.getvalue(), reading(limits={"unpacked_bytes": allowed}))
        assert pool.max_memory() - before < allowed
    with pytest.raises(InputUnreadable, match="has 5 rows; at most 4 are allowed"):
        read(write_parquet(rows(5)), reading(limits={"rows": 4}))


def test_a_text_in_many_rows_is_read_if_it_fits() -> None:
    """As a dictionary, so that its size is known first."""
    texts = ["x" * 1000] * 50_000 + [None]
    sink = io.BytesIO()
    pq.write_table(pa.table({"site_no": texts}), sink)
    limits = {"limits": {"unpacked_bytes": 100_000_000}}
    assert read(sink.getvalue(), reading(**limits)).column("site_no").to_pylist() == texts


def test_the_format_may_follow_from_the_name_of_the_object() -> None:
    dataset = reading(formats={".csv": "csv"})
    assert read_object(f"{HEADER}\n{LINE}\n".encode(), "s3://b/one.csv", dataset).num_rows == 1
    assert read_object(write_parquet(rows(2)), "s3://b/two.parquet", dataset).num_rows == 2


def test_how_objects_are_read_is_part_of_the_configuration() -> None:
    assert reading().digest == DATASET.digest
    assert len({DATASET.digest, CSV.digest, reading(format="csv", csv={"delimiter": ";"}).digest}) == 3
    assert reading(limits={"rows": 5}).digest == DATASET.digest


def answer() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(usgs_answer(datetime(2025, 12, 4, 0, tzinfo=UTC))[1])
    return document


def columns_of(document: dict[str, Any], dataset: Dataset) -> pa.Table:
    return read(json.dumps(document).encode(), dataset)


def test_an_answer_has_the_declared_parameters_and_no_others() -> None:
    document = answer()
    series = document["value"]["timeSeries"]
    codes = {one["variable"]["variableCode"][0]["value"] for one in series}
    assert codes == {"00060", "00065", "00010"}
    assert set(columns_of(document, USGS).column_names) == set(COLUMNS)
    warmth = [one for one in series if one["variable"]["variableCode"][0]["value"] == "00010"]
    assert columns_of({"value": {"timeSeries": warmth}}, USGS).num_rows == 0
    warm = reading(format="usgs-iv").model_dump(mode="json")
    warm["table"]["columns"].append(
        {"name": "celsius", "source": "00010", "type": "float64", "nullable": True, "description": "Temperature"}
    )
    assert columns_of(document, Dataset.model_validate(warm)).column("00010").null_count < 85


def test_a_declared_parameter_that_an_answer_lacks_has_no_values() -> None:
    document = answer()
    series = document["value"]["timeSeries"]
    flows = [one for one in series if one["variable"]["variableCode"][0]["value"] == "00060"]
    document["value"]["timeSeries"] = flows
    heights = columns_of(document, USGS).column("gage_height_ft")
    assert (len(heights), heights.null_count) == (85, 85)


def test_of_several_instruments_the_first_with_a_value_counts() -> None:
    document = answer()
    flows = document["value"]["timeSeries"][0]
    [methods], at = flows["values"], flows["values"][0]["value"][0]
    flows["values"] = [{**methods, "value": [{**at, "value": value}]} for value in ("-999999", "12.5", "99", "-999999")]
    document["value"]["timeSeries"] = [flows]
    assert columns_of(document, USGS).column("discharge_cfs").to_pylist() == [12.5]


@needs_data
def test_the_real_answer_of_the_usgs() -> None:
    data = (DATA / "usgs_nwis_iv.json").read_bytes()
    table = read(data, USGS)
    series = json.loads(data)["value"]["timeSeries"]
    measured = [
        float(value["value"])
        for one in series
        for value in one["values"][0]["value"]
        if one["variable"]["variableCode"][0]["value"] == "00060"
    ]
    assert sorted(value for value in table.column("discharge_cfs").to_pylist() if value is not None) == sorted(measured)
    assert set(table.column("site_no").to_pylist()) == {one["sourceInfo"]["siteCode"][0]["value"] for one in series}
    assert min(table.column("observed_at").to_pylist()) == datetime(2019, 2, 14, 5, tzinfo=UTC)


@needs_data
def test_real_tables_of_stations() -> None:
    surface = read((DATA / "tables" / "SFC_obs.csv").read_bytes(), reading(format="csv", csv={"nulls": ["   "]}))
    assert (surface.num_columns, surface.column("station")[0].as_py()) == (29, "YUM")
    mesonet = read((DATA / "tables" / "mesonet_sample.txt").read_bytes(), CSV)
    assert (mesonet.num_columns, mesonet.column("STID")[0].as_py()) == (22, "ACME")
