"""Only places in WGS 84 are accepted, wherever a file names its reference system."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.parquet.geoparquet import read_reference_systems, refuse_unless_wgs84
from kfm_pipelines_tests.fixtures.tables import computed, rows

UTM_14N = {"type": "ProjectedCRS", "name": "NAD83 / UTM zone 14N", "id": {"authority": "EPSG", "code": 26914}}
LON_LAT = {"type": "GeographicCRS", "name": "WGS 84 (CRS84)", "id": {"authority": "OGC", "code": "CRS84"}}
WGS_84 = {"type": "GeographicCRS", "name": "WGS 84", "id": {"authority": "EPSG", "code": 4326}}
UNNAMED = {"type": "ProjectedCRS", "name": "Survey grid of 38.123456 N"}
GOOD = ["EPSG:4326", "OGC:CRS84", LON_LAT, WGS_84]
BAD = [
    (None, "an unnamed system"),
    ("EPSG:26914", "EPSG:26914"),
    (UTM_14N, "EPSG:26914"),
    (UNNAMED, "an unnamed system"),
]


def geoparquet(**column: Any) -> pa.Table:
    described = {"encoding": "WKB", "geometry_types": ["Point"], **column}
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": described}}
    return rows().replace_schema_metadata({"geo": json.dumps(geo)})


def with_field_metadata(**metadata: str) -> pa.Table:
    table = rows()
    field = table.schema.field("latitude").with_metadata(
        {name.replace("__", ":"): text for name, text in metadata.items()}
    )
    return table.set_column(2, field, table.column("latitude"))


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def is_accepted(table: pa.Table) -> bool:
    refuse_unless_wgs84(parquet(table), "s3://kfm-ingest/0")
    return True


def refusal(table: pa.Table) -> str:
    with pytest.raises(InputUnreadable) as refused:
        refuse_unless_wgs84(parquet(table), "s3://kfm-ingest/0")
    return str(refused.value)


def test_compute_refuses_an_object_in_another_system() -> None:
    with pytest.raises(InputUnreadable, match="s3://kfm-ingest/0 is in EPSG:26914, not in WGS 84"):
        computed(geoparquet(crs="EPSG:26914"))


def test_a_file_that_names_no_system_is_read_as_declared() -> None:
    assert is_accepted(rows())


def test_geoparquet_without_a_system_is_in_wgs_84() -> None:
    assert is_accepted(geoparquet())


@pytest.mark.parametrize("crs", GOOD)
def test_geoparquet_in_wgs_84_is_read(crs: object) -> None:
    assert is_accepted(geoparquet(crs=crs))


@pytest.mark.parametrize(("crs", "named"), BAD)
def test_geoparquet_in_another_system_is_refused(crs: object, named: str) -> None:
    assert refusal(geoparquet(crs=crs)) == f"s3://kfm-ingest/0 is in {named}, not in WGS 84"


@pytest.mark.parametrize("crs", GOOD)
def test_a_column_in_wgs_84_is_read(crs: object) -> None:
    text = crs if isinstance(crs, str) else json.dumps(crs)
    assert is_accepted(with_field_metadata(crs=text))


@pytest.mark.parametrize(("crs", "named"), BAD)
def test_a_column_in_another_system_is_refused(crs: object, named: str) -> None:
    text = crs if isinstance(crs, str) else json.dumps(crs)
    assert refusal(with_field_metadata(crs=text)) == f"s3://kfm-ingest/0 is in {named}, not in WGS 84"


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ('{"crs": "EPSG:26914"}', "is in EPSG:26914, not in WGS 84"),
        ("{}", "is in an unnamed system, not in WGS 84"),
        ("not JSON", "has metadata about its coordinates that cannot be read"),
    ],
)
def test_geoarrow_columns_must_name_wgs_84(metadata: str, reason: str) -> None:
    metadata_of_field = {"ARROW__extension__name": "geoarrow.wkb", "ARROW__extension__metadata": metadata}
    assert reason in refusal(with_field_metadata(**metadata_of_field))


@contextmanager
def geometry_type(crs: str) -> Iterator[pa.ExtensionType]:
    """While the type is known to Arrow, it writes Parquet's own GEOMETRY, which has the system in it."""

    class Geometry(pa.ExtensionType):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(pa.binary(), "geoarrow.wkb")

        def __arrow_ext_serialize__(self) -> bytes:
            return json.dumps({"crs": crs}).encode()

        @classmethod
        def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> "Geometry":
            return cls()

    pa.register_extension_type(Geometry())
    try:
        yield Geometry()
    finally:
        pa.unregister_extension_type("geoarrow.wkb")


@pytest.mark.parametrize("crs", ["EPSG:26914", "OGC:CRS84"])
def test_the_type_of_a_column_may_name_its_system(crs: str) -> None:
    sink = io.BytesIO()
    with geometry_type(crs) as kind:
        point = b"\x01\x01\x00\x00\x00" + bytes(16)
        table = rows().append_column("geometry", pa.ExtensionArray.from_storage(kind, pa.array([point] * 3)))
        pq.write_table(table, sink, store_schema=False)
    assert read_reference_systems(sink.getvalue()) == [crs]


@pytest.mark.parametrize(
    "geo",
    [
        *(b"", b"\xff", b"{", b"[]", b"1", b"{}", b'{"columns": []}', b'{"columns": {"g": 1}}', b"[" * 100_000),
        b'{"columns": {"g": {"crs": {"id": 38.123456}}}}',
        b'{"columns": {"g": ' + b"9" * 5000 + b"}}",
    ],
    ids=lambda geo: geo[:20].decode("latin-1"),
)
def test_unreadable_metadata_is_refused_without_quoting_it(geo: bytes) -> None:
    message = refusal(rows().replace_schema_metadata({b"geo": geo}))
    assert message == "s3://kfm-ingest/0 has metadata about its coordinates that cannot be read"


@settings(max_examples=20)
@given(
    st.recursive(st.none() | st.text() | st.integers() | st.floats(), lambda inner: st.dictionaries(st.text(), inner))
)
def test_any_other_system_is_refused_as_unreadable_input(crs: Any) -> None:
    assert "s3://kfm-ingest/0" in refusal(geoparquet(crs=crs))


@pytest.mark.parametrize("crs", ["38.123456", "EPSG:26914 at 38.123456", {"id": {"authority": "38.1", "code": 38.123}}])
def test_an_invalid_system_name_is_not_quoted(crs: object) -> None:
    assert refusal(geoparquet(crs=crs)) == "s3://kfm-ingest/0 is in an unnamed system, not in WGS 84"
