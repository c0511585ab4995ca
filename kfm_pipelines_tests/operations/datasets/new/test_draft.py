"""A declaration that is written from an object is valid, complete, and closed until somebody decides."""

import gzip
import io
import json
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from kfm_pipelines.declarations.dataset import Dataset, load_dataset
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.operations.datasets.check import check_declarations
from kfm_pipelines.operations.datasets.new import draft_declaration
from kfm_pipelines.operations.datasets.new.draft import SampleObject
from kfm_pipelines.operations.datasets.new.inspectors import format_of, inspect_object
from kfm_pipelines.operations.datasets.trial import run_trial
from kfm_pipelines_tests.fixtures.declarations import resources_in
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data

TODAY = date(2026, 7, 1)
NOON = datetime.fromisoformat("2026-06-30T12:00:00+00:00")


@pytest.fixture
def resources(tmp_path: Path) -> Path:
    return resources_in(tmp_path)


def write(resources: Path, name: str, data: bytes) -> tuple[Dataset, str]:
    """Writes both files as the command does, and returns the dataset and its text."""
    draft = draft_declaration("new/wells", SampleObject(name, len(data)), inspect_object(data, name), resources, TODAY)
    path = resources / "datasets/new-wells.yaml"
    path.write_text(draft.declaration)
    (resources / "policies/new-wells.yaml").write_text(draft.policy)
    result = check_declarations(resources, [path])
    assert result.ok, result.problems
    assert {problem.field for problem in result.problems} == {"licence.id", "policy"}
    return load_dataset(path), draft.declaration


def wells() -> pa.Table:
    count = 40
    return pa.table(
        {
            "Well ID": [f"{number // 2:05d}" for number in range(count)],
            "measuredAt": [NOON + timedelta(minutes=number % 2) for number in range(count)],
            "lon": [-98.0 - number / 1000 for number in range(count)],
            "lat": [38.5 + number / 1000 for number in range(count)],
            "Depth (ft)": [12.5 + number for number in range(count)],
            "note": [None if number % 4 else "dry" for number in range(count)],
            "directions": ["2 miles north of the church"] * count,
        }
    )


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(wells(), sink)
    return sink.getvalue()


def delimited(delimiter: str = ";", encoding: str = "utf-8") -> bytes:
    rows = [wells().column_names, *([str(value or "") for value in row.values()] for row in wells().to_pylist())]
    return "\n".join(delimiter.join(row) for row in rows).encode(encoding)


def lines() -> bytes:
    return "\n".join(json.dumps(row, default=str) for row in wells().to_pylist()).encode()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("wells_2026-06-30.parquet", parquet()),
        ("wells_2026-06-30.csv", delimited()),
        ("wells_2026-06-30.ndjson", lines()),
    ],
)
def test_the_same_columns_are_found_in_every_format(resources: Path, name: str, data: bytes) -> None:
    dataset, _ = write(resources, name, data)
    table = dataset.table
    assert [(one.name, one.type, one.nullable) for one in table.columns] == [
        ("well_id", "string", False),
        ("measured_at", "timestamp", False),
        ("lon", "float64", False),
        ("lat", "float64", False),
        ("depth_ft", "float64", False),
        ("note", "string", True),
        ("directions", "string", False),
        ("geometry", "geometry", False),
    ]
    assert table.primary_key == ["well_id", "measured_at"]
    assert (table.time_column, table.longitude_column, table.latitude_column) == ("measured_at", "lon", "lat")
    assert table.geometry_column == "geometry"
    assert table.column("directions").holds == "place"
    assert table.column("depth_ft").unit == "ft"
    assert dataset.key.aoi == "kansas_statewide"
    assert dataset.key.window == "day"
    assert dataset.extent is not None
    assert (dataset.extent.west, dataset.extent.north) == (-102.5, 40.5)  # of the area, not of one object


def test_thresholds_have_room_and_leave_out_places(resources: Path) -> None:
    dataset, text = write(resources, "wells_2026-06-30.parquet", parquet())
    assert [(one.column, one.min, one.max, one.severity) for one in dataset.quality.ranges] == [
        ("depth_ft", 2.7, 62.0, "warn")
    ]
    assert [(one.column, one.warn_above) for one in dataset.quality.nulls] == [("note", 1.0)]
    for value in ("-98.0", "38.5", "38.53", "church"):
        assert value not in text.replace("-98.5", "").replace("38.0", "")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("wells_2026-06-30.parquet", parquet()),
        ("wells_2026-06-30.csv", delimited()),
        ("wells_2026-06-30.ndjson", lines()),
    ],
)
def test_what_is_written_reads_the_object_it_was_written_from(
    resources: Path, tmp_path: Path, name: str, data: bytes
) -> None:
    dataset, _ = write(resources, name, data)
    path = tmp_path / name
    path.write_bytes(data)
    trial = run_trial(resources, dataset, [path], TODAY, {})
    assert [(verdict.gate, verdict.passed) for verdict in trial.verdicts] == [("schema", True), ("qa", True)]
    assert trial.refusals == (
        "policy new-wells@1 is undecided: nothing is published under it until somebody with authority decides its "
        "sensitivity",
    )


@pytest.mark.parametrize(("delimiter", "encoding"), [(",", "utf-8"), ("\t", "utf-16"), ("|", "utf-8")])
def test_the_dialect_of_text_is_found(resources: Path, delimiter: str, encoding: str) -> None:
    dataset, _ = write(resources, "wells_2026-06-30.csv", delimited(delimiter, encoding))
    assert (dataset.input.csv.delimiter, dataset.input.csv.encoding) == (delimiter, encoding)


def test_times_without_an_offset_need_a_time_zone_and_numbers_with_zeros_are_names(resources: Path) -> None:
    data = b"id,when,n\n007,2026-06-30 12:00:00,1\n008,2026-06-30 13:00:00,2\n"
    dataset, text = write(resources, "a_20260630.csv", data)
    assert dataset.input.timezone == "UTC"
    assert [column.type for column in dataset.table.columns] == ["string", "timestamp", "int64"]
    assert "# Look at this: times have no offset; timezone: UTC is a guess" in text


def test_a_column_without_a_declared_type_is_left_out(resources: Path) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": ["a", "b"], "tags": [["x"], ["y"]]}), sink)
    dataset, _ = write(resources, "a_2026.parquet", sink.getvalue())
    assert [column.name for column in dataset.table.columns] == ["id"]
    assert dataset.input.columns == "declared"


def test_times_outside_the_window_in_the_name_are_not_checked_against_it(resources: Path) -> None:
    dataset, text = write(resources, "wells_2020-01-01.parquet", parquet())
    assert dataset.table.time_column is None
    assert "measured_at has times outside the day in the object's name" in text


def test_rows_without_a_key_are_pointed_out(resources: Path) -> None:
    _, text = write(resources, "a_2026.csv", b"id,n\na,1\na,1\n")
    assert "# Look at this: no combination of columns tells the rows apart; choose the primary_key yourself" in text


def test_the_policy_is_closed(resources: Path) -> None:
    write(resources, "wells_2026-06-30.parquet", parquet())
    policy = yaml.safe_load((resources / "policies/new-wells.yaml").read_text())
    assert policy["sensitivity"] == "undecided"


@pytest.mark.parametrize(
    ("name", "data", "known"),
    [
        ("x", b"PAR1", "parquet"),
        ("x.csv", b"a,b", "csv"),
        ("x.json", b'{"value": {"timeSeries": []}}', "usgs-iv"),
        ("x.json", b'{"type": "FeatureCollection", "features": []}', "geojson"),
        ("x.json", b'{"a": 1}\n{"a": 2}\n', "ndjson"),
        ("x.tif", b"II*\x00", "geotiff"),
        ("x.bin", b"GRIB", "grib2"),
        ("x.zip", b"PK\x03\x04", "shapefile"),
        ("x", b"\x01\r\r\n048 \r\r\nSDUS53 KDDC 170501\r\r\nN0QDDC\r\r\n", "nexrad-level3"),
        ("x.grib2.gz", gzip.compress(b"GRIB", mtime=0), "grib2"),
    ],
)
def test_the_format_follows_from_the_bytes_or_the_name(name: str, data: bytes, known: str) -> None:
    assert format_of(data, name) == known


@pytest.mark.parametrize(
    ("name", "data"),
    [("x.xyz", b"abc"), ("x.json", b"{a"), ("x.parquet", b"PAR1"), ("x.csv.gz", gzip.compress(b"a,b", mtime=0))],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(name: str, data: bytes) -> None:
    with pytest.raises(InputUnreadable, match=rf"^{name} "):
        inspect_object(data, name)


REAL = (
    "usgs_nwis_iv.json", "tables/SFC_obs.csv", "tables/mesonet_sample.txt", "usdm-aiannh/USDM_2024-06-04.parquet",
    "kansas_aiannh.geojson",
)  # fmt: skip


@needs_data
@pytest.mark.parametrize("name", REAL)
def test_real_files_are_declared_and_read_at_once(resources: Path, name: str) -> None:
    path: Any = DATA / name
    dataset, _ = write(resources, path.name, path.read_bytes())
    trial = run_trial(resources, dataset, [path], TODAY, {})
    assert trial.table is not None
    assert trial.table.num_rows > 0
    # Places outside the area are for the writer of the declaration to decide about.
    found = [finding.rule for verdict in trial.verdicts for finding in verdict.findings if finding.severity == "error"]
    assert {*found} <= {"outside-aoi"}
