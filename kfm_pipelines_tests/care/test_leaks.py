"""The leak scanner finds a canary in every form it can take and wherever it is packed, and nothing in clean data."""

import base64
import gzip
import hashlib
import io
import json
import math
import random
import struct
import time
import zipfile
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

import h3
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyproj import Transformer

from kfm_pipelines.local.samples import SAMPLES
from kfm_pipelines_tests.care.leak_forms import geohash, military_grid
from kfm_pipelines_tests.care.leaks import Canary, Scanner
from kfm_pipelines_tests.site import Site

LON, LAT = -97.4567891, 38.1234567
NAME, NUMBER = "Quiet Heron Ledge “Ñandú”", "KS-14-QH-0917"
CANARY = Canary(LON, LAT, texts=(NAME,), ids=(NUMBER,))
OTHER = Canary(-99.8765432, 39.3456789, texts=("Amber Kestrel Bluff",), ids=("KS-22-AK-4471",))
SCANNER = Scanner([OTHER, CANARY])
EAST, NORTH = Transformer.from_crs("EPSG:4326", "EPSG:32614", always_xy=True).transform(LON, LAT)
WEB = Transformer.from_crs("EPSG:4326", "EPSG:3857", always_xy=True).transform(LON, LAT)
CELLS = [h3.latlng_to_cell(LAT, LON, resolution) for resolution in range(8, 16)]
NOISE = random.Random(7).randbytes(40_000)


def random_bytes(count: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(count)


def text_around(text: str) -> bytes:
    return f'2025-12-04T03:14:15.926Z INFO place="{text}" (done in 1.234 s)\n'.encode()


def among_bytes(value: bytes) -> bytes:
    return NOISE[:20_001] + value + NOISE[20_001:]


NUMBERS = {
    "float64": [struct.pack(order + "d", value) for order in "<>" for value in (LON, LAT)],
    "float64 rounded": [struct.pack("<d", value) for value in (-97.457, 38.1235, 38.12345)],
    "float32 pair": [struct.pack(order + "ff", *pair) for order in "<>" for pair in ((LON, LAT), (LAT, LON))],
    "float32 column": [struct.pack(order + "5f", 37.5, 39.5, LAT, 38.5, 37.25) for order in "<>"],
    "wkb point": [bytes([order == "<"]) + struct.pack(order + "Idd", 1, LON, LAT) for order in "<>"],
    "h3 integer": [struct.pack(order + "Q", h3.str_to_int(cell)) for order in "<>" for cell in CELLS],
}
TEXTS = {
    "decimal": ["38.123", "38.1234", "38.1235", "38.12345", "38.12346", "38.123456", "38.123457", "38.1234567"],
    "decimal with more digits": ["38.12345670000001", "38.123456699999997", "38.123500", "038.123"],
    "decimal of a float32": [repr(struct.unpack("<f", struct.pack("<f", value))[0]) for value in (LON, LAT)],
    "decimal longitude": ["-97.457", "-97.456", "97.4568W", "W 97.45678", "-97.4567891"],
    "decimal with comma": ["38,1234", "38,1234567", "-97,45679"],
    "decimals in JSON": ['{"lat":38.123,"x":1}', "[-97.457,38.123]", "POINT(-97.456789 38.123457)", "{38.123}"],
    "exponent": [f"{LAT:.3e}", f"{LON:.3e}", f"{LAT:.6E}", "3.8123e1"],
    "degrees": ["38°07'24\"N", "38°7'24.4\"", "38:07:24.44", "97 27 24", "38d07m24s", "38°07.407'", "N380724.4"],
    "degrees without a sign between": ["380724N", "0972724 W", "380724.44n"],
    "geohash": [geohash(LON, LAT, length) for length in range(6, 13)] + [geohash(LON, LAT).upper()],
    "h3": [*CELLS, CELLS[1].upper(), f"0x{CELLS[0]}"],
    "h3 decimal": [str(h3.str_to_int(cell)) for cell in CELLS],
    "utm": [f"{EAST:.0f} E {NORTH:.0f} N", f"{int(EAST)},{int(NORTH)}", f'{{"n": {NORTH:.1f}, "e": {EAST:.1f}}}'],
    "mercator": ["{:.0f} {:.0f}".format(*WEB)],
    "mgrs": ["14S{2}{3:05d}{4:05d}", "14s {2} {3:05d} {4:05d}", "14S{2} {3:05d}{4:05d}"],
}  # fmt: skip
NAMES: dict[str, Callable[[str], bytes]] = {
    "text": lambda text: text.encode(),
    "text in lower case": lambda text: text.lower().encode(),
    "text in upper case": lambda text: text.upper().encode(),
    "utf-16 from the left": lambda text: text.encode("utf-16-le"),
    "utf-16 from the right": lambda text: text.encode("utf-16-be"),
    "base64 0": lambda text: base64.b64encode(text.encode()),
    "base64 1": lambda text: base64.b64encode(b"x" + text.encode() + b"yz"),
    "base64 2": lambda text: base64.b64encode(b"xy" + text.encode() + b"z"),
    "base64 for addresses": lambda text: base64.urlsafe_b64encode(b"??>" + text.encode()),
    "hex": lambda text: text.encode().hex().encode(),
    "hex in upper case": lambda text: text.encode().hex().upper().encode(),
    "url": lambda text: quote(text).encode(),
    "escaped": lambda text: json.dumps({"name": text}).encode(),
    "escaped twice": lambda text: json.dumps(json.dumps({"name": text})).encode(),
    "text as a file name": lambda text: text.replace(" ", "_").encode(),
    "digest": lambda text: hashlib.sha256(text.encode()).hexdigest().encode(),
}


def forms(data: bytes) -> set[str]:
    """The forms the planted canary was found in; the other one must never be found."""
    hits = SCANNER.scan("here", data)
    assert {hit.canary for hit in hits} <= {1}
    return {hit.form for hit in hits}


def each(cases: dict[str, list[bytes]] | dict[str, list[str]]) -> list[object]:
    return [pytest.param(name, one, id=f"{name}-{place}") for name in cases for place, one in enumerate(cases[name])]


@pytest.mark.parametrize(("form", "value"), each(NUMBERS))
def test_a_place_is_found_as_bytes(form: str, value: bytes) -> None:
    assert form.split(maxsplit=1)[0] in forms(among_bytes(value))


@pytest.mark.parametrize(("form", "text"), each(TEXTS))
def test_a_place_is_found_as_text(form: str, text: str) -> None:
    zone, band, square, east, north = military_grid(LON, LAT)
    written = text.format(zone, band, square, int(east), int(north)) if form == "mgrs" else text
    assert form.split(maxsplit=1)[0].replace("decimals", "decimal") in forms(text_around(written))
    assert forms(written.encode())  # also when there is nothing else


@pytest.mark.parametrize("text", [NAME, NUMBER])
@pytest.mark.parametrize("form", NAMES)
def test_a_name_and_a_number_are_found_in_every_encoding(form: str, text: str) -> None:
    assert form.split(maxsplit=1)[0] in forms(among_bytes(NAMES[form](text)))


@pytest.mark.parametrize("digits", [3, 4])
def test_a_military_grid_reference_is_found_at_100_and_10_metres(digits: int) -> None:
    _, _, square, east, north = military_grid(LON, LAT)
    step = 10 ** (5 - digits)
    assert "mgrs" in forms(text_around(f"14S {square} {int(east / step):0{digits}d} {int(north / step):0{digits}d}"))


def test_the_grids_agree_with_published_examples() -> None:
    zone, band, square, east, north = military_grid(-77.03654, 38.897676)  # the White House
    assert f"{zone}{band}{square}" == "18SUJ"
    assert (east, north) == pytest.approx((23394, 7395), abs=5)
    assert geohash(-5.60302734375, 42.60498046875, 5) == "ezs42"
    assert geohash(10.40744, 57.64911, 11) == "u4pruydqqvj"


@pytest.mark.parametrize(
    "text",
    [
        "138.123",
        "12:34:38.123",
        "1765000038.123",
        "38.1239",
        "38.12",
        "38.123.4.5",
        "38,123 messages",
        "0.38.123",
        "7.38123",
        "2038-07-24",
        "120.38.1234",
        f"{EAST:.0f} rows",
        f"{NORTH:.0f} bytes",
        geohash(LON, LAT, 5),
        "x" + geohash(LON, LAT, 7),
        h3.latlng_to_cell(LAT, LON, 7),
        "Quiet Heron",
        "KS-14-QH-09",
    ],
)
def test_what_only_looks_like_it_is_no_hit(text: str) -> None:
    assert forms(text_around(text)) == set()


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_have_no_hit(seed: int) -> None:
    assert SCANNER.scan("random", random_bytes(1_000_000, seed)) == []


def logs(lines: int) -> bytes:
    """What logs are full of: times, durations, ids, digests, sizes, addresses."""
    chance = random.Random(11)
    start = datetime(2025, 12, 4, tzinfo=UTC)
    return "".join(
        f"{(start + timedelta(milliseconds=37 * line)).isoformat()} {start.timestamp() + line / 1000:.3f} "
        f"run={UUID(int=chance.getrandbits(128))} sha256={chance.randbytes(32).hex()} rows={line} "
        f"took {chance.uniform(0, 30):.4f}s 127.0.0.1:{chance.randint(1024, 65535)} "
        f"{base64.b64encode(chance.randbytes(24)).decode()}\n"
        for line in range(lines)
    ).encode()


def test_logs_have_no_hit() -> None:
    assert SCANNER.scan("logs", logs(20_000)) == []


@pytest.mark.parametrize("name", ["drought/tribal-areas", "usgs/streamflow"])
def test_published_data_has_no_hit(name: str) -> None:
    _, data = SAMPLES[name].make(datetime(2025, 12, 4, tzinfo=UTC))
    assert SCANNER.scan_parquet(name, data) == []


def zipped(data: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("first.txt", "nothing here")
        archive.writestr("second.txt", data)
    return sink.getvalue()


def png_with(kind: bytes, content: bytes) -> bytes:
    def chunk(name: bytes, payload: bytes) -> bytes:
        return struct.pack(">I", len(payload)) + name + payload + struct.pack(">I", zlib.crc32(name + payload))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(kind, content) + chunk(b"IEND", b"")


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip inside other bytes": lambda data: among_bytes(gzip.compress(data, mtime=0)),
    "zip": zipped,
    "zstd": lambda data: pa.compress(data, codec="zstd", asbytes=True),
    "zstd inside other bytes": lambda data: among_bytes(pa.compress(data, codec="zstd", asbytes=True)),
    "base64": lambda data: text_around(base64.b64encode(data).decode()),
    "base64 in lines": base64.encodebytes,
    "hex": lambda data: text_around("\\\\x" + data.hex()),
    "png text": lambda data: png_with(b"tEXt", b"Comment\x00" + data),
    "png compressed text": lambda data: png_with(b"zTXt", b"Comment\x00\x00" + zlib.compress(data)),
    "png as an address": lambda data: (
        b'<img src="data:image/png;base64,'
        + base64.b64encode(png_with(b"zTXt", b"Comment\x00\x00" + zlib.compress(data)))
        + b'">'
    ),
    "gzip in zip in base64": lambda data: base64.b64encode(zipped(gzip.compress(data, mtime=0))),
}


@pytest.mark.parametrize("pack", PACKINGS.values(), ids=list(PACKINGS))
def test_what_is_packed_is_unpacked(pack: Callable[[bytes], bytes]) -> None:
    wkb = b"\x01" + struct.pack("<Idd", 1, LON, LAT)
    packed = pack(b"some more bytes, so that there is something to compress " * 20 + wkb)
    assert "wkb" in forms(packed)
    assert forms(pack(b"nothing to see here " * 40)) == set()


def parquet(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def column(values: list[object], kind: pa.DataType) -> pa.Table:
    return pa.table({"a": pa.array(values, kind)})


TABLES = {
    "float64": column([37.5, LAT], pa.float64()),
    "float32": column([LAT, 37.5], pa.float32()),
    "text": column(["nothing", f"at {LAT:.4f}"], pa.string()),
    "dictionary": column([NAME] * 50, pa.string()),
    "geometry": column([b"\x00" + struct.pack(">Idd", 1, LON, LAT)], pa.binary()),
    "cell": column([h3.str_to_int(CELLS[2])], pa.uint64()),
    "list": column([[LON, LAT]], pa.list_(pa.float64())),
    "struct": column([{"x": LON, "y": LAT}], pa.struct({"x": pa.float64(), "y": pa.float64()})),
    "schema metadata": column([1], pa.int64()).replace_schema_metadata({"bbox": f"[{LON}, {LAT}]"}),
    "field metadata": pa.table([pa.array([1])], pa.schema([pa.field("a", pa.int64(), metadata={"note": NAME})])),
    "column name": pa.table({NUMBER: [1]}),
    "near": pa.table({"x": [LON + 0.0003, -97.0], "y": [LAT - 0.0004, 38.0]}),
    "utm": pa.table({"e": [EAST + 9.25, 500_000.5], "n": [NORTH - 3.75, 4_200_000.5]}),
}


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip", "brotli", "lz4"])
@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_parquet_is_read_down_to_its_footer(table: pa.Table, compression: str) -> None:
    data = parquet(table, compression=compression, write_page_index=True)
    assert {hit.canary for hit in SCANNER.scan_parquet("table", data)} == {1}
    assert {hit.canary for hit in SCANNER.scan("table", data)} == {1}
    assert {hit.canary for hit in SCANNER.scan("archive", zipped(data))} == {1}


def test_statistics_tell_what_the_rows_no_longer_do() -> None:
    """A footer that was copied from the unmasked file."""
    extremes = parquet(column([LAT, 37.5], pa.float64()), compression="snappy")
    footer = extremes[-struct.unpack("<I", extremes[-8:-4])[0] - 8 :]
    assert "float64" in forms(b"PAR1" + footer)


def test_every_file_and_every_name_below_a_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "deep" / "down").mkdir(parents=True)
    (tmp_path / "deep" / "down" / "a.bin").write_bytes(gzip.compress(struct.pack("<dd", LON, LAT), mtime=0))
    (tmp_path / f"{NUMBER}.txt").write_text("nothing")
    (tmp_path / "link").symlink_to(f"/nowhere/{NUMBER}")
    (tmp_path / "restricted").mkdir()
    (tmp_path / "restricted" / "b.txt").write_text(NAME)

    hits = SCANNER.scan_tree(tmp_path, exclude=[tmp_path / "restricted"])

    assert {hit.name.split(" > ")[0] for hit in hits} == {f"name of {NUMBER}.txt", "link link", "deep/down/a.bin"}
    assert "restricted/b.txt" in {hit.name for hit in SCANNER.scan_tree(tmp_path)}
    assert Scanner([OTHER]).scan_tree(tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("text", f"at {LAT}"),
        ("double precision", LAT),
        ("double precision[]", [LON, LAT]),
        ("jsonb", json.dumps({"place": {"lat": LAT}, "name": "x"})),
        ("jsonb", json.dumps({"name": NAME})),
        ("json", json.dumps({"name": NAME})),
        ("text", json.dumps(json.dumps(json.dumps({"name": NAME})))),
        ("bytea", struct.pack("<d", LON)),
        ("bytea", gzip.compress(NAME.encode(), mtime=0)),
        ("bytea", parquet(column([LAT, 37.5], pa.float64()), compression="snappy")),
    ],
)
def test_every_table_of_a_database_is_read(site: Site, kind: str, value: object) -> None:
    url = site.environment["KFM_POSTGRES_URL"]
    assert SCANNER.scan_postgres(url) == []
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA elsewhere")
        connection.execute(f"CREATE TABLE elsewhere.things (number int, value {kind})")
        connection.execute("INSERT INTO elsewhere.things VALUES (1, NULL), (2, %s)", (value,))
    hits = SCANNER.scan_postgres(url)
    assert {hit.canary for hit in hits} == {1}
    assert all(hit.name.startswith("elsewhere.things") for hit in hits)


@pytest.mark.slow
def test_tens_of_megabytes_take_seconds() -> None:
    data = random_bytes(20_000_000, 5) + logs(60_000)
    many = Scanner([Canary(LON + step, LAT + step, (f"{NAME} {step}",), (f"{NUMBER}-{step}",)) for step in range(20)])
    started = time.perf_counter()
    assert many.scan("large", data) == []
    assert time.perf_counter() - started < 30


@pytest.mark.parametrize(
    "wrong",
    [
        {"latitude": 38.5},
        {"latitude": 38.1203456},
        {"longitude": math.floor(LON)},
        {"texts": ("short",)},
        {"ids": ("7",)},
    ],
)
def test_a_canary_that_could_turn_up_by_chance_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="a canary's"):
        Canary(**{"longitude": LON, "latitude": LAT, **wrong})  # type: ignore[arg-type]
