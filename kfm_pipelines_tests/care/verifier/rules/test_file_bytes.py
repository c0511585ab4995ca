"""Rules on the bytes of the file: everything hidden in them is found."""

import io
import json
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from kfm_pipelines.care.verifier import Breach, Evidence
from kfm_pipelines.care.verifier.rules.file_bytes import count_coordinates
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines_tests.fixtures.care.handmade_releases import Release, Row, asset, parquet, unparquet, with_boxes
from kfm_pipelines_tests.fixtures.care.honest_releases import register_release, shapes_release
from kfm_pipelines_tests.fixtures.care.leaked_values import DOCUMENTS, Leak, hidden, leak_from
from kfm_pipelines_tests.fixtures.care.tampering import Forge, before_footer, breaches_of, on_data, rules_of


@pytest.mark.parametrize(("leak", "rule"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_protected_value_in_the_files_metadata_is_found(leak: Leak, rule: str) -> None:
    release = register_release()
    release.metadata["more"] = json.dumps(leak_from(release, leak))
    assert rules_of(release) == {rule}


def test_metadata_of_a_column_is_checked() -> None:
    release = register_release()
    hidden(release)["site_id"] = "KS-4"
    evidence = release.evidence()
    table = unparquet(evidence.data)
    noted = table.schema.field("cell").with_metadata({"note": str(hidden(release)["site_id"])})
    forged = replace(evidence, data=parquet(table.cast(table.schema.set(table.schema.get_field_index("cell"), noted))))
    assert rules_of(release, forged) == {"leak-text"}


HIDDEN: dict[str, tuple[Callable[[Row], bytes], str]] = {
    "a longitude": (lambda row: struct.pack("<d", row["longitude"]), "leak-bytes"),
    "a latitude in the other byte order": (lambda row: struct.pack(">d", row["latitude"]), "leak-bytes"),
    "a northing": (lambda row: struct.pack("<d", row["northing"]), "leak-bytes"),
    "an id": (lambda row: row["site_id"].encode(), "leak-text"),
    "a name": (lambda row: row["site_name"].encode(), "leak-text"),
}


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize(("leak", "rule"), HIDDEN.values(), ids=HIDDEN)
def test_bytes_that_no_reader_sees_are_checked(leak: Callable[[Row], bytes], rule: str, offset: int) -> None:
    release = register_release()
    row = hidden(release)
    evidence = release.evidence()
    forged = replace(evidence, data=before_footer(evidence.data, bytes(offset) + leak(row)))
    assert unparquet(forged.data).equals(unparquet(evidence.data))
    assert rules_of(release, forged) == {rule}


def test_statistics_of_other_rows_are_found() -> None:
    release = register_release()
    evidence = release.evidence()
    smallest = min(record.values["longitude"] for record in release.records if "longitude" in record.values)
    forged = evidence.data.replace(struct.pack("<d", smallest), struct.pack("<d", smallest - 0.25))
    footer = len(evidence.data) - 8 - int.from_bytes(evidence.data[-8:-4], "little")
    forged = evidence.data[:footer] + forged[footer:]
    assert forged != evidence.data
    assert rules_of(release, replace(evidence, data=forged)) == {"footer-statistics"}


def features_release() -> Release:
    release = shapes_release()
    release.dataset = release.dataset.model_copy(update={"processor": "vector"})
    return release


def test_boxes_of_published_shapes_are_no_breach() -> None:
    assert rules_of(features_release()) == set()


BOXES: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "moved": (lambda table: with_boxes(table.drop_columns("bbox"), "geometry", -0.0001), "shape-boxes"),
    "none": (lambda table: table.drop_columns("bbox"), "evidence-readable"),
    "twice": (lambda table: table.append_column("bbox", table.column("bbox")), "evidence-readable"),
    "another name": (lambda table: table.append_column("box", table.column("bbox")), "columns-allowed"),
}


@pytest.mark.parametrize(("forge", "rule"), BOXES.values(), ids=BOXES)
def test_other_boxes_are_found(forge: Callable[[pa.Table], pa.Table], rule: str) -> None:
    release = features_release()
    assert rules_of(release, on_data(forge)(release.evidence())) == {rule}


def test_a_box_of_an_original_shape_is_found_in_a_row_without_shape() -> None:
    release = features_release()

    def forge(table: pa.Table) -> pa.Table:
        box = dict(
            zip(("xmin", "ymin", "xmax", "ymax"), shapely.from_wkb(release.rows[0]["geometry"]).bounds, strict=True)
        )
        boxes = [found or box for found in table.column("bbox").to_pylist()]
        return table.set_column(table.column_names.index("bbox"), "bbox", pa.array(boxes, table["bbox"].type))

    assert rules_of(release, on_data(forge)(release.evidence())) >= {"shape-boxes", "leak-bytes"}


def test_boxes_are_a_column_like_others_in_a_dataset_without_features() -> None:
    release = shapes_release()
    forged = on_data(lambda table: with_boxes(table, "geometry"))(release.evidence())
    assert rules_of(release, forged) == {"columns-allowed"}


def written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", **options)
    return sink.getvalue()


def unused_entries(evidence: Evidence) -> Evidence:
    table = unparquet(evidence.data)
    place = table.column_names.index("condition")
    codes = pa.array([None if value is None else 0 for value in table.column("condition").to_pylist()], pa.int32())
    entries = pa.DictionaryArray.from_arrays(codes, pa.array(["good", "anything at all"]))
    forged = table.set_column(place, "condition", entries)
    return replace(evidence, data=written(forged, store_schema=False, write_statistics=False))


FORGED: dict[str, Forge] = {
    "unused entries of a dictionary": unused_entries,
    "bytes before the footer": lambda e: replace(e, data=before_footer(e.data, b"anything at all")),
    "a row group for each row": lambda e: replace(e, data=written(unparquet(e.data), row_group_size=1)),
    "another compression": lambda e: replace(e, data=written(unparquet(e.data), compression_level=9)),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_bytes_that_no_row_needs_are_found(forge: Forge) -> None:
    release = register_release()
    evidence = forge(release.evidence())
    assert unparquet(evidence.data).equals(unparquet(evidence.rewrite()))
    item = release.item(release.table()[0])
    item["assets"]["data"] = asset(evidence.data, "parquet")
    assert rules_of(release, replace(evidence, item=json.dumps(item).encode())) == {"canonical-bytes"}


def test_the_rewritten_table_must_be_the_same() -> None:
    release = register_release()
    evidence = release.evidence()
    other = replace(evidence, rewrite=lambda: parquet(unparquet(evidence.data).slice(1)))
    subjects = {breach.subject for breach in breaches_of(release, other)}
    assert subjects == {"data", "rewritten"}


def test_a_table_that_cannot_be_written_again_is_not_passed() -> None:
    def fail() -> bytes:
        raise InputUnreadable("one")

    release = register_release()
    with pytest.raises(InputUnreadable):
        breaches_of(release, replace(release.evidence(), rewrite=fail))


@pytest.mark.parametrize("rewritten", [b"", b"PAR1garbage"])
def test_the_rewritten_table_must_be_readable(rewritten: bytes) -> None:
    release = register_release()
    found = breaches_of(release, replace(release.evidence(), rewrite=lambda: rewritten))
    assert found == (Breach("evidence-readable", "rewritten", "a Parquet file", "something else"),)


def some_places(seed: int) -> "tuple[npt.NDArray[np.float64], ...]":
    rng = np.random.default_rng(seed)
    parts = (rng.uniform(-102, -94, 200), rng.uniform(37, 40, 200), np.append(rng.uniform(1e5, 5e6, 200), [0.0, 38.5]))
    return tuple(np.sort(part) for part in parts)


@pytest.mark.parametrize("seed", range(8))
def test_exactly_the_coordinates_in_bytes_are_counted(seed: int) -> None:
    chance, places = random.Random(seed), some_places(seed)
    every = np.concatenate(places).tolist()
    blob = chance.randbytes(chance.randint(0, 7))
    for _ in range(50):
        number = chance.choice([chance.choice(every), chance.uniform(-102, 40), 0.0, 38.5, float("nan")])
        blob += chance.randbytes(chance.randint(0, 9)) + struct.pack(chance.choice("<>") + "d", number)
    marked = [number for number in every if struct.pack("<d", number)[:4] != bytes(4)]
    expected = sum(blob.count(struct.pack(f"{order}d", number)) for number in marked for order in "<>")
    assert count_coordinates(blob, places) == expected > 0
    assert count_coordinates(b"", places) == 0
