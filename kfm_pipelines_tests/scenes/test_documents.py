"""Metadata documents are read without entities, files, hosts or surprises of size."""

import pytest

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.scenes.documents import Fields, read_json, read_xml

BOMB = b"""<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]><a>&c;</a>"""
FILE = b"""<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>"""
HOST = b"""<!DOCTYPE a SYSTEM "http://127.0.0.1:1/a.dtd"><a/>"""


@pytest.mark.parametrize("data", [BOMB, FILE, HOST, FILE.decode().encode("utf-16")])
def test_a_document_type_is_refused(data: bytes) -> None:
    with pytest.raises(InputUnreadable, match=r"metadata\.xml has a document type or entities"):
        read_xml(data, "metadata.xml")


@pytest.mark.parametrize("data", [b"", b"<a>", b"<a/><b/>", b"\x00", b'<?xml version="1.0" encoding="x"?><a/>', b"&b;"])
def test_what_is_no_xml_is_one_sentence(data: bytes) -> None:
    with pytest.raises(InputUnreadable, match=r"metadata\.xml is not an XML document"):
        read_xml(data, "metadata.xml")


def test_depth_is_limited() -> None:
    assert read_xml(b"<a>" * 64 + b"</a>" * 64, "x").tag == "a"
    with pytest.raises(InputUnreadable, match="nested more than 64 deep"):
        read_xml(b"<a>" * 65 + b"</a>" * 65, "x")


def test_prefixes_of_namespaces_do_not_count() -> None:
    root = read_xml(b'<n1:Tile xmlns:n1="urn:x"><ID level="1"> one </ID></n1:Tile>', "x")
    assert (root.tag, root.findtext("ID")) == ("Tile", " one ")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"[" * 100_000, b"1" * 5000, b"\xff"])
def test_what_is_no_json_object_is_one_sentence(data: bytes) -> None:
    with pytest.raises(InputUnreadable, match=r"MTL\.json (is not a JSON document|must be a JSON object)"):
        read_json(data, "MTL.json")


@pytest.mark.parametrize("value", [True, [], {}, "NaN", "1e999", "ten", ""])
def test_a_number_is_finite(value: object) -> None:
    with pytest.raises(InputUnreadable, match=r"x: A\.B must be a number, not "):
        Fields({"A": {"B": value}}, "x").number("A.B")


def test_fields_are_read_by_their_path() -> None:
    fields = Fields({"A": {"B": "2.5", "C": "7", "D": "2025-12-04T03:00:00"}}, "x")
    assert (fields.number("A.B"), fields.whole_number("A.C"), fields.find("A.B.C")) == (2.5, 7, None)
    assert fields.time("A.D").isoformat() == "2025-12-04T03:00:00+00:00"
    with pytest.raises(InputUnreadable, match=r"x: A\.E is missing"):
        fields.number("A.E")
