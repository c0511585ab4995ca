"""A zipped Shapefile is unpacked within limits, one layer of it, and needs to state its reference system."""

import io
import struct
import zipfile
from typing import Any

import pytest

from kfm_pipelines.declarations.inputs import Limits
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.stages.compute.readers.shapefile import _unpack
from kfm_pipelines_tests.fixtures.features import as_shapefile, features_of, layer, plots, unzipped, zip_of

DATASET = layer("shapefile")
GOOD = as_shapefile(plots())


def members(data: bytes = GOOD) -> dict[str, bytes]:
    return unzipped(data)


def limited(**limits: int) -> Any:
    return layer("shapefile", input={"limits": limits})


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (as_shapefile(plots(), ".prj"), "has no .prj file, which states the reference system of a Shapefile$"),
        (zip_of(members() | {"plots.prj": b" "}), "has no .prj file, which states the reference"),
        (zip_of(members() | {"plots.prj": b"PROJCS[nothing"}), "(does not state the|states a|is not readable)"),
        (as_shapefile(plots(), ".shx"), "has a .shp file without the .shx file of the same name$"),
        (as_shapefile(plots(), ".dbf"), "has a .shp file without the .dbf file of the same name$"),
        (as_shapefile(plots(), ".shp"), "has no .shp file$"),
        (zip_of(members() | {"../plots.txt": b""}), "has a file whose name leads out of the archive$"),
        (zip_of(members() | {"a/../../b.shp": b""}), "has a file whose name leads out of the archive$"),
        (zip_of(members() | {"/etc/passwd": b""}), "has a file whose name leads out of the archive$"),
        (zip_of(members() | {"..\\plots.txt": b""}), "has a file whose name leads out of the archive$"),
        (zip_of(members() | {"more/plots.shp": b""}), "has 2 layers; vector.layer must name one of them$"),
        (zip_of(members() | {"plots.SHP": b""}), "has 2 layers; vector.layer must name one of them$"),
        (zip_of(members() | {"plots.DBF": b""}), "has a file of its layer more than once$"),
        (zip_of(members() | {"plots.shp": b"nothing"}), "is not readable as a zipped Shapefile$"),
        (zip_of(members() | {"plots.shp": GOOD[:50]}), "is not readable as a zipped Shapefile$"),
        (GOOD[: len(GOOD) // 2], "is not readable as a zipped Shapefile$"),
    ],
)
def test_a_bad_archive_is_one_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(InputUnreadable, match=rf"^s3://kfm-ingest/0 {sentence}"):
        features_of(DATASET, data)


def test_an_encrypted_archive_is_refused() -> None:
    """In both places that say so."""
    data = bytearray(GOOD)
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(signature)
        while at >= 0:
            data[at + flags] |= 1
            at = data.find(signature, at + 4)
    with pytest.raises(InputUnreadable, match=r"is encrypted$"):
        features_of(DATASET, bytes(data))


def test_another_method_than_deflate_is_refused() -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_LZMA) as archive:
        for name, content in members().items():
            archive.writestr(name, content)
    with pytest.raises(InputUnreadable, match=r"is packed by another method than deflate$"):
        features_of(DATASET, sink.getvalue())


def test_a_bomb_is_refused_by_what_its_directory_states() -> None:
    bomb = zip_of(members() | {"plots.dbf": bytes(50_000_000)})
    assert len(bomb) < 100_000
    with pytest.raises(InputUnreadable, match=r"unpacks to .* bytes; input.limits.unpacked_bytes allows 1000000$"):
        features_of(limited(unpacked_bytes=1_000_000), bomb)


def test_a_bomb_whose_directory_lies_is_refused_while_it_unpacks() -> None:
    """Every file states ten bytes, in the directory and before its content."""
    data = bytearray(zip_of(members() | {"plots.dbf": bytes(50_000_000)}))
    for signature, size in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.find(signature)
        while at >= 0:
            data[at + size : at + size + 4] = struct.pack("<I", 10)
            at = data.find(signature, at + 4)
    with pytest.raises(InputUnreadable, match=r"^s3://kfm-ingest/0 (unpacks to|is not readable as)"):
        features_of(limited(unpacked_bytes=1_000_000), bytes(data))


def test_what_is_unpacked_is_counted_whatever_the_directory_states() -> None:
    with zipfile.ZipFile(io.BytesIO(GOOD)) as archive:
        wanted = {".shp": archive.getinfo("plots.shp"), ".dbf": archive.getinfo("plots.dbf")}
        size = sum(one.file_size for one in wanted.values())
        assert sum(map(len, _unpack(archive, wanted, "it", Limits(unpacked_bytes=size)).values())) == size
        with pytest.raises(InputUnreadable, match=rf"^it unpacks to {size} bytes"):
            _unpack(archive, wanted, "it", Limits(unpacked_bytes=size - 1))


def test_only_the_files_of_the_layer_are_unpacked() -> None:
    """What else is in the archive is neither read nor counted."""
    data = zip_of(members() | {"readme.txt": bytes(50_000_000), "plots.vrt": b"<OGRVRTDataSource/>"})
    assert features_of(limited(unpacked_bytes=1_000_000), data).equals(features_of(DATASET, GOOD))
    shadow = {f"__MACOSX/._{name}": b"shadow" for name in members()}
    assert features_of(DATASET, zip_of(members() | shadow)).num_rows == 4


def test_a_named_layer_is_read_beside_others() -> None:
    named = layer("shapefile", vector={"layer": "plots"})
    data = zip_of(members() | members(as_shapefile(plots(), name="fields")))
    assert features_of(named, data).equals(features_of(DATASET, GOOD))
    with pytest.raises(InputUnreadable, match=r"has no layer 'roads', which vector.layer names$"):
        features_of(layer("shapefile", vector={"layer": "roads"}), data)


@pytest.mark.parametrize(("limit", "found"), [("rows", 4), ("columns", 2)])
def test_limits_are_held_by_what_the_headers_state(limit: str, found: int) -> None:
    with pytest.raises(InputUnreadable, match=rf"has {found} {limit}; input.limits.{limit} allows {found - 1}$"):
        features_of(limited(**{limit: found - 1}), GOOD)


def test_text_is_read_in_the_encoding_that_the_archive_states() -> None:
    frame = plots()
    frame["PLOT"] = ["Ñandú", "Ærø", "Köln", "Łódź"]
    assert set(features_of(DATASET, as_shapefile(frame))["plot"].to_pylist()) == set(frame["PLOT"])
