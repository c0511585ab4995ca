"""GDAL reads what was fetched and nothing else: no other drivers, no files beside the bytes, no addresses."""

import json
import socket
from collections.abc import Callable, Iterator

import pyogrio
import pytest

from kfm_pipelines.declarations.inputs import Format
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.stages.compute.readers.features import DRIVERS
from kfm_pipelines_tests.fixtures.features import as_geojson, features_of, layer, plots, zip_of

PASSWORDS = "/etc/passwd"
FORMATS: tuple[Format, ...] = ("geojson", "geopackage", "shapefile", "parquet")


def vrt(source: str) -> bytes:
    return (
        f'<OGRVRTDataSource><OGRVRTLayer name="plots"><SrcDataSource>{source}</SrcDataSource>'
        "<SrcLayer>passwd</SrcLayer></OGRVRTLayer></OGRVRTDataSource>"
    ).encode()


def gml(source: str) -> bytes:
    return (
        f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e SYSTEM "file://{source}">]>'
        '<gml:FeatureCollection xmlns:gml="http://www.opengis.net/gml" xmlns:xlink="http://www.w3.org/1999/xlink">'
        f'<gml:featureMember xlink:href="{source}"><plots><PLOT>&e;</PLOT></plots></gml:featureMember>'
        "</gml:FeatureCollection>"
    ).encode()


def kml(source: str) -> bytes:
    return (
        '<?xml version="1.0"?><kml xmlns="http://www.opengis.net/kml/2.2"><Document>'
        f"<NetworkLink><Link><href>{source}</href></Link></NetworkLink></Document></kml>"
    ).encode()


def algorithm(source: str) -> bytes:
    """A JSON file that GDAL would run as a command."""
    command = f"gdal vector pipeline ! read {source} ! write"
    return json.dumps({"type": "gdal_streamed_alg", "command_line": command}).encode()


@pytest.fixture
def address() -> Iterator[str]:
    """Of a server on this machine, which nobody may ask for anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield f"http://127.0.0.1:{server.getsockname()[1]}/plots.geojson"
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize("write", [vrt, gml, kml, algorithm])
@pytest.mark.parametrize("form", FORMATS)
def test_a_file_that_refers_to_another_is_refused_without_following_it(
    form: Format, write: Callable[[str], bytes], address: str
) -> None:
    for source in (f"CSV:{PASSWORDS}", PASSWORDS, f"/vsicurl/{address}", address):
        with pytest.raises(
            InputUnreadable, match=r"^s3://kfm-ingest/0 is not (readable as|a readable Parquet)"
        ) as found:
            features_of(layer(form), write(source))
        assert "root" not in str(found.value)


def test_gdal_has_no_drivers_but_those_of_our_formats() -> None:
    features_of(layer("geojson"), as_geojson(plots()))
    assert pyogrio.list_drivers().keys() == DRIVERS


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("data", [b"", b"{", b"\x00" * 200, b"PK\x05\x06" + bytes(18), zip_of({"a.txt": b"text"})])
def test_bytes_of_no_format_are_one_sentence(form: Format, data: bytes) -> None:
    with pytest.raises(InputUnreadable, match=r"^s3://kfm-ingest/0 (is not|has no .shp file)"):
        features_of(layer(form), data)
