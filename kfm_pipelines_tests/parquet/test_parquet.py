"""Untrusted Parquet files are read or refused, and one table has one form."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm_pipelines.declarations.tables import declared_schema
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.parquet import parquet
from kfm_pipelines.parquet.parquet import read_parquet, rewrite_parquet, write_parquet
from kfm_pipelines_tests.fixtures.tables import COLUMNS, DATASET, rows

GOOD = write_parquet(rows())


def test_what_is_written_is_read() -> None:
    table = rows()
    assert read_parquet(write_parquet(table), "one").equals(table)


def test_the_same_table_has_the_same_bytes() -> None:
    assert write_parquet(rows()) == write_parquet(rows()) == GOOD


def test_how_a_table_lies_in_memory_does_not_show_in_its_bytes() -> None:
    whole = pa.table({"n": pa.array(range(300_000)), "t": pa.array([f"{n * 7919:040}" for n in range(300_000)])})
    cut = pa.concat_tables(
        [whole.slice(0, 1), whole.slice(1, 131_000), whole.slice(131_001, 777), whole.slice(131_778)]
    )
    assert cut.equals(whole)
    assert write_parquet(cut) == write_parquet(whole)


def test_units_and_descriptions_are_in_the_file() -> None:
    table = rows().cast(declared_schema(DATASET.table))
    field = pq.read_schema(io.BytesIO(write_parquet(table))).field("discharge_cfs")
    assert field.metadata[b"unit"] == b"ft3/s"
    assert field.metadata[b"description"] == b"Discharge"


def test_the_declared_schema_has_every_column_in_order() -> None:
    schema = declared_schema(DATASET.table)
    assert tuple(schema.names) == COLUMNS
    assert schema.field("observed_at").type == pa.timestamp("us", tz="UTC")
    assert [field.name for field in schema if field.nullable] == ["discharge_cfs", "gage_height_ft"]


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1PAR1", b"hello", b"\x00" * 1000, b'{"a": 1}', GOOD + b"x"])
def test_what_is_no_parquet_is_refused(data: bytes) -> None:
    with pytest.raises(InputUnreadable, match=r"^the object is not a readable Parquet file: .+"):
        read_parquet(data, "the object")


def test_the_refusal_quotes_nothing_of_the_file() -> None:
    """Arrow quotes the metadata of a type it cannot make."""
    field = pa.field("t", pa.list_(pa.float64(), 2)).with_metadata(
        {"ARROW:extension:name": "arrow.fixed_shape_tensor", "ARROW:extension:metadata": "at 38.123456"}
    )
    sink = io.BytesIO()
    pq.write_table(pa.table([pa.array([[1.0, 2.0]], field.type)], schema=pa.schema([field])), sink)
    with pytest.raises(InputUnreadable) as refused:
        read_parquet(sink.getvalue(), "the object")
    assert str(refused.value) == "the object is not a readable Parquet file: it is damaged or truncated"


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(InputUnreadable):
        read_parquet(data, "garbage")
    with pytest.raises(InputUnreadable):
        read_parquet(b"PAR1" + data + b"PAR1", "garbage")


@given(st.integers(0, len(GOOD) - 1))
def test_a_truncated_file_is_refused(length: int) -> None:
    with pytest.raises(InputUnreadable):
        read_parquet(GOOD[:length], "cut off")


def test_a_small_file_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), ["x" * 1000])
    sink = io.BytesIO()
    pq.write_table(pa.table({"t": text}), sink, store_schema=False)
    bomb = sink.getvalue()
    assert len(bomb) < 20_000

    assert read_parquet(bomb, "not yet").nbytes > 100_000_000
    monkeypatch.setattr(parquet, "UNPACKED_LIMIT", 10_000_000)
    with pytest.raises(InputUnreadable, match=r"^bomb unpacks to more than 10000000 bytes$"):
        read_parquet(bomb, "bomb")


@pytest.mark.parametrize("table", [rows(0), rows(1), pa.concat_tables([rows()] * 5000)])
def test_a_table_of_any_length_is_read_whole(table: pa.Table) -> None:
    assert read_parquet(write_parquet(table), "one").equals(table)


@pytest.mark.parametrize("group", [1000, 131_072, 200_000, 300_000])
def test_rewriting_gives_what_reading_and_writing_gives(group: int) -> None:
    """However the file is cut: where it is cut otherwise than we do, that is not written again."""
    table = pa.table({"n": pa.array(range(300_000)), "t": pa.array([f"{n % 7}" for n in range(300_000)])})
    for part in (table, table.slice(0, 131_072), table.slice(0, 0)):
        sink = io.BytesIO()
        pq.write_table(part, sink, row_group_size=group)
        assert rewrite_parquet(sink.getvalue(), "one") == write_parquet(part)


def test_what_cannot_be_read_is_not_rewritten() -> None:
    with pytest.raises(InputUnreadable, match="damaged"):
        rewrite_parquet(GOOD[: len(GOOD) // 2], "one")
