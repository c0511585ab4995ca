"""The verifier on leaks: every way out that a place, a name or an id could take, one at a time."""

import json
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import h3
import pyarrow as pa
import pytest

from kfm_pipelines.care.verifier.search.phrases import Phrases
from kfm_pipelines_tests.fixtures.care.handmade_releases import Release, Row, parquet, unparquet
from kfm_pipelines_tests.fixtures.care.honest_releases import displaced_release, register_release
from kfm_pipelines_tests.fixtures.care.tampering import Change, before_footer, breaches_of, rules_of

NAME = "Pawnee Lookout Mound"
Told = Callable[[Row], Any]  # what is told of a withheld row


def told_of(release: Release, tell: Told) -> Any:
    return tell(hidden(release))


def hidden(release: Release) -> Row:
    row = release.rows[release.of("withheld")[3].rows[0]]
    row["site_name"] = NAME
    return row


def cell_of(row: Row) -> str:
    cell: str = h3.latlng_to_cell(row["latitude"], row["longitude"], 9)
    return cell


def keep(release: Release, column: str, value: object, sensitivity: str = "withheld", which: int = 0) -> None:
    """In the row and in the record: it was always there, in a column the policy keeps."""
    record = release.of(sensitivity)[which]
    release.rows[record.rows[0]][column] = record.values[column] = value


TEXTS: dict[str, tuple[Told, str]] = {
    "a name": (lambda row: f"near {NAME}", "leak-text"),
    "a name in small letters": (lambda row: f"({NAME.lower()})", "leak-text"),
    "a name with other signs between": (lambda row: NAME.replace(" ", "_-"), "leak-text"),
    "an id": (lambda row: f"see {row['site_id']}.", "leak-text"),
    "directions": (lambda row: f"go: {row['directions']}", "leak-text"),
    "a pair of degrees": (lambda row: "at 38.512, -98.731", "leak-coordinates"),
    "a pair the other way round": (lambda row: "-98.731/38.512", "leak-coordinates"),
    "a pair with letters for signs": (lambda row: "38.512N 98.731W", "leak-coordinates"),
    "a fine cell": (lambda row: f"in {cell_of(row)}", "leak-coordinates"),
    "a latitude in full": (lambda row: f"lat {row['latitude']!r}", "leak-coordinates"),
    "a longitude without its sign": (lambda row: f"{-row['longitude']:.7f} W", "leak-coordinates"),
}


@pytest.mark.parametrize(("tell", "rule"), TEXTS.values(), ids=TEXTS)
def test_kept_texts_hold_nothing_protected(tell: Told, rule: str) -> None:
    release = register_release()
    keep(release, "condition", told_of(release, tell))
    assert rules_of(release) == {rule}


@pytest.mark.parametrize("digits", [3, 4, 9])
def test_a_kept_text_does_not_give_its_own_place(digits: int) -> None:
    release = register_release()
    row = release.rows[release.of("withheld")[0].rows[0]]
    keep(release, "condition", f"seen from {row['latitude']:.{digits}f}")
    assert rules_of(release) == {"leak-coordinates"}


@pytest.mark.parametrize("text", ["E 412345 N 4212345", "412345.6", "412346 (rounded)"])
def test_a_kept_text_does_not_give_its_own_grid_coordinates(text: str) -> None:
    release = register_release()
    own(release, easting=412345.67, northing=4212345.25)
    keep(release, "condition", text)
    assert rules_of(release) == {"leak-coordinates"}


@pytest.mark.parametrize(
    "text", ["a good one, 2.500 m deep", "version 1.234.5", "38.12 and -98.12", "12.345 of 67.890"]
)
def test_other_numbers_may_be_kept(text: str) -> None:
    release = register_release()
    keep(release, "condition", text)
    assert breaches_of(release) == ()


def test_what_the_declarations_say_themselves_is_no_leak() -> None:
    release = register_release()
    hidden(release)["land_owner"] = "Kansas"
    release.properties["title"] = "Heritage sites, Kansas"
    assert breaches_of(release) == ()


NUMBERS: dict[str, tuple[Change, set[str]]] = {
    "its own latitude": (lambda r: own(r, latitude=38.90625, depth_m=38.90625), {"leak-number"}),
    "its own easting": (lambda r: own(r, easting=412345.0, depth_m=412345.0), {"leak-number"}),
    "another's longitude": (lambda r: keep(r, "depth_m", hidden(r)["longitude"]), {"leak-number", "leak-bytes"}),
    "another's northing": (lambda r: keep(r, "depth_m", hidden(r)["northing"]), {"leak-number", "leak-bytes"}),
}


def own(release: Release, **values: float) -> None:
    row = release.rows[release.of("withheld")[0].rows[0]]
    row.update(values)
    if "depth_m" in values:
        keep(release, "depth_m", values["depth_m"])


@pytest.mark.parametrize(("change", "rules"), NUMBERS.values(), ids=NUMBERS)
def test_kept_numbers_are_no_places(change: Change, rules: set[str]) -> None:
    release = register_release()
    change(release)
    assert rules_of(release) == rules


def test_an_open_place_may_be_told() -> None:
    release = register_release()
    row = release.rows[release.of("open")[0].rows[0]]
    release.documents["map"] = {"at": [row["longitude"], row["latitude"]]}
    assert breaches_of(release) == ()


def test_a_displaced_point_is_not_put_where_another_was() -> None:
    release = displaced_release()
    release.rows[5].update(longitude=release.records[3].values["longitude"])
    assert {"leak-number", "leak-bytes"} <= rules_of(release)


DOCUMENTS: dict[str, tuple[Told, str]] = {
    "a fine cell": (lambda row: {"cell": cell_of(row)}, "leak-coordinates"),
    "an easting": (lambda row: {"at": row["easting"]}, "leak-coordinates"),
    "a northing in a text": (lambda row: {"at": f"N{row['northing']:.3f}"}, "leak-coordinates"),
    "a name": (lambda row: {"used": NAME}, "leak-text"),
    "a name as a name": (lambda row: {NAME: 1}, "leak-text"),
    "an id, deep inside": (lambda row: {"a": [{"b": [f"urn:site:{row['site_id']}"]}]}, "leak-text"),
    "a number": (lambda row: {"at": row["latitude"]}, "leak-coordinates"),
    "a number cut to three digits": (lambda row: {"at": int(row["latitude"] * 1000) / 1000}, "leak-coordinates"),
    "a number in a text": (lambda row: {"at": f"POINT({row['longitude']:.4f} 0)"}, "leak-coordinates"),
}


@pytest.mark.parametrize(("tell", "rule"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_documents_hold_nothing_protected(tell: Told, rule: str) -> None:
    release = register_release()
    release.documents["more"] = told_of(release, tell)
    assert rules_of(release) == {rule}


@pytest.mark.parametrize(("tell", "rule"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_the_item_holds_nothing_protected(tell: Told, rule: str) -> None:
    release = register_release()
    release.properties["more"] = told_of(release, tell)
    assert rules_of(release) == {rule}


@pytest.mark.parametrize(("tell", "rule"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_the_files_metadata_holds_nothing_protected(tell: Told, rule: str) -> None:
    release = register_release()
    release.metadata["more"] = json.dumps(told_of(release, tell))
    assert rules_of(release) == {rule}


def test_escapes_hide_nothing() -> None:
    release = register_release()
    hidden(release)
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in NAME)
    forged = replace(release.evidence(), documents={"more": f'["{escaped}"]'.encode()})
    assert rules_of(release, forged) == {"leak-text"}


def test_names_of_documents_are_looked_at() -> None:
    release = register_release()
    release.documents[str(hidden(release)["site_id"])] = {}
    assert rules_of(release) == {"leak-text"}


def test_metadata_of_a_column_is_looked_at() -> None:
    release = register_release()
    hidden(release)["site_id"] = "KS-4"
    evidence = release.evidence()
    table = unparquet(evidence.data)
    noted = table.schema.field("cell").with_metadata({"note": str(hidden(release)["site_id"])})
    forged = replace(evidence, data=parquet(table.cast(table.schema.set(table.schema.get_field_index("cell"), noted))))
    assert rules_of(release, forged) == {"leak-text"}


def test_dates_and_counts_in_documents_are_no_ids() -> None:
    release = register_release()
    hidden(release)["site_id"] = "1999"
    release.documents["more"] = {"on": "1999-06-01", "path": "sites/1999/06", "count": 1999}
    assert breaches_of(release) == ()


def test_seconds_in_documents_are_no_degrees() -> None:
    release = register_release()
    release.documents["more"] = {"at": f"2026-06-01T10:20:{hidden(release)['latitude']:.6f}Z"}
    assert breaches_of(release) == ()


def test_documents_may_repeat_the_box_of_what_is_published() -> None:
    """Even when a protected place is just beside its border."""
    release = register_release()
    box = release.item(release.table()[0])["bbox"]
    hidden(release).update(longitude=box[0] + 0.0001937)
    release.documents["more"] = {"bbox": [round(number, 3) for number in box]}
    assert breaches_of(release) == ()


def test_a_number_with_few_digits_is_no_place() -> None:
    release = register_release()
    own(release, latitude=38.75, depth_m=38.75)
    assert breaches_of(release) == ()


def test_a_hidden_place_that_an_open_record_shows_is_no_secret() -> None:
    release = register_release()
    shown = release.rows[release.of("open")[0].rows[0]]
    hidden(release).update(longitude=shown["longitude"], latitude=shown["latitude"])
    assert breaches_of(release) == ()


HIDDEN: dict[str, tuple[Callable[[Row], bytes], str]] = {
    "a longitude": (lambda row: struct.pack("<d", row["longitude"]), "leak-bytes"),
    "a latitude in the other byte order": (lambda row: struct.pack(">d", row["latitude"]), "leak-bytes"),
    "a northing": (lambda row: struct.pack("<d", row["northing"]), "leak-bytes"),
    "an id": (lambda row: row["site_id"].encode(), "leak-text"),
    "a name": (lambda row: row["site_name"].encode(), "leak-text"),
}


@pytest.mark.parametrize("offset", range(8))
@pytest.mark.parametrize(("tell", "rule"), HIDDEN.values(), ids=HIDDEN)
def test_bytes_that_no_reader_looks_at_are_looked_at(tell: Callable[[Row], bytes], rule: str, offset: int) -> None:
    release = register_release()
    told = hidden(release)
    evidence = release.evidence()
    forged = replace(evidence, data=before_footer(evidence.data, bytes(offset) + tell(told)))
    assert unparquet(forged.data).equals(unparquet(evidence.data))
    assert rules_of(release, forged) == {rule}


def test_statistics_are_those_of_the_published_rows() -> None:
    release = register_release()
    evidence = release.evidence()
    smallest = min(record.values["longitude"] for record in release.records if "longitude" in record.values)
    forged = evidence.data.replace(struct.pack("<d", smallest), struct.pack("<d", smallest - 0.25))
    footer = len(evidence.data) - 8 - int.from_bytes(evidence.data[-8:-4], "little")
    forged = evidence.data[:footer] + forged[footer:]
    assert forged != evidence.data
    assert rules_of(release, replace(evidence, data=forged)) == {"footer-statistics"}


ITEM: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another policy": (lambda item: item["properties"].update({"kfm:policy": "heritage-sites@2"}), "item-policy"),
    "no policy": (lambda item: item["properties"].pop("kfm:policy"), "item-policy"),
    "no labels": (lambda item: item["properties"].pop("kfm:labels"), "item-labels"),
    "a label less": (lambda item: item["properties"]["kfm:labels"].pop(), "item-labels"),
    "no word of the nations": (lambda item: item["properties"].pop("kfm:sovereignty"), "item-sovereignty"),
    "an empty notice": (lambda item: item["properties"].update({"kfm:sovereignty": ""}), "item-sovereignty"),
    "no warning": (lambda item: item["properties"].pop("anon:warning"), "item-warning"),
    "a blank warning": (lambda item: item["properties"].update({"anon:warning": " "}), "item-warning"),
    "no box": (lambda item: item.pop("bbox"), "item-box"),
    "another box": (lambda item: item["bbox"].__setitem__(0, -101.75), "item-box"),
    "a box of no numbers": (lambda item: item.update(bbox=["a", "b", "c", "d"]), "item-box"),
    "no geometry": (lambda item: item.update(geometry=None), "item-box"),
    "one corner only": (lambda item: item["geometry"].update(coordinates=[[item["bbox"][:2]] * 5]), "item-box"),
    "a corner more": (lambda item: item["geometry"]["coordinates"][0].insert(1, [-98.75, 38.25]), "item-box"),
    "another corner": (lambda item: item["geometry"]["coordinates"][0].__setitem__(1, [-98.75, 38.25]), "item-box"),
    "a point": (lambda item: item.update(geometry={"type": "Point", "coordinates": [-98.75, 38.25]}), "item-box"),
}


@pytest.mark.parametrize(("change", "rule"), ITEM.values(), ids=ITEM)
def test_each_rule_of_the_item_is_found_broken(change: Callable[[dict[str, Any]], object], rule: str) -> None:
    release = register_release()
    item = release.item(release.table()[0])
    change(item)
    assert rules_of(release, replace(release.evidence(), item=json.dumps(item).encode())) == {rule}


@pytest.mark.parametrize("geo", ['{"columns": {"geometry": {"bbox": [-101.75, 37, -95, 39]}}}', "garbage", "[]"])
def test_the_files_own_box_is_that_of_the_published(geo: str) -> None:
    release = register_release()
    release.metadata["geo"] = geo
    assert rules_of(release) == {"geo-box"}


def test_a_release_without_places_has_no_box() -> None:
    release = register_release()
    release.rows = [{**row, "sensitivity": "withheld"} for row in release.rows]
    release.records = []
    for row in range(len(release.rows)):
        release.publish([row])
    item = {**release.item(release.table()[0]), "bbox": [-99.0, 38.0, -98.0, 39.0]}
    assert rules_of(release, replace(release.evidence(), item=json.dumps(item).encode())) == {"item-box"}


def test_phrases_are_found_whole() -> None:
    phrases = Phrases(["14RI301", "Old Mill", "Private", "abc", " x "])
    assert phrases.find_in("the 14ri301 of")
    assert phrases.find_in("old-mill")
    assert phrases.find_in("Private land")
    for text in ("14RI3010", "Old Millstone", "private land", "abc", "x", ""):
        assert not phrases.find_in(text), text


def test_very_many_phrases_take_no_room_of_their_own() -> None:
    """They stay as they were read: of a million rows, each with three texts, nothing is copied into Python."""
    values = pa.chunked_array([pa.array([f"14XX{number:07d} north field" for number in range(100_000)])])
    tracemalloc.start()
    phrases = Phrases(values)
    found = phrases.find_in_each(["see 14xx0000017, North Field", "see 14xx0000018 South Field", ""])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [len(one) for one in found] == [1, 0, 0]
    assert peak < 5_000_000
